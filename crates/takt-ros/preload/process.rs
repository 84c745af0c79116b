//! What the threads of the process do: which has which ring, and what it writes there.
//!
//! Nothing is set up before the first event, so that programs without ROS cost nothing. An event
//! then compares one number (the generation), reads the clocks and writes its words: no allocation,
//! no lock, no loop.
//!
//! A forked child must not write into its parent's rings. The generation therefore lies on a page
//! that the kernel clears in every child (`MADV_WIPEONFORK`), whichever way it was forked, and the
//! rings are not mapped there at all.

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering, compiler_fence};

use crate::c::{CLOCK_MONOTONIC, CLOCK_THREAD_CPUTIME, PR_GET_NAME, clock, gettid, prctl, pthread_setspecific};
use crate::off_cpu::{self, Course, OffCpu};
use crate::ring::{self, Record, Writer, code};
use crate::session::{
    CPU_CODES, FIRST_GENERATION, NO_GENERATION, NOT_YET, OFF, THREAD_KEY, claim, generation, without_ring, set_up,
};

/// What a thread has.
struct Thread {
    /// The generation in which it looked for a ring.
    generation: AtomicU32,
    /// An event is being written: a signal handler's event must not come between.
    busy: AtomicU32,
    writer: UnsafeCell<Option<Writer<'static>>>,
    /// The activation under way. Used under `busy` alone, as `writer` is.
    course: UnsafeCell<Course>,
    /// How often it has called `sched_yield`.
    yields: AtomicU64,
    /// The message of the last `rcl_publish`.
    message: AtomicU64,
    /// The executor that ran last.
    executor: AtomicU64,
    /// What was reported of what the executor runs: [`ran`].
    ran: AtomicU32,
    /// A step of a service call is under way, and is reported when it is over.
    inside: AtomicBool,
    /// Where the middleware writes what it knows of the message that is being taken.
    info: AtomicPtr<u8>,
}

thread_local! {
    static THREAD: Thread = const {
        Thread {
            generation: AtomicU32::new(NO_GENERATION),
            busy: AtomicU32::new(0),
            writer: UnsafeCell::new(None),
            course: UnsafeCell::new(Course::NEW),
            yields: AtomicU64::new(0),
            message: AtomicU64::new(0),
            executor: AtomicU64::new(0),
            ran: AtomicU32::new(ran::NOT_RUN),
            inside: AtomicBool::new(false),
            info: AtomicPtr::new(std::ptr::null_mut()),
        }
    };
}

/// Writes one event: `code`, with room for `words` words of arguments, filled by `fill`.
#[inline]
pub fn event(code: u8, words: usize, fill: impl FnOnce(&mut Record<'_, '_>)) {
    with_ring(|thread| thread.write(code, words, fill));
}

/// The monotonic clock, for [`event_at`]; 0 while nothing is written.
#[inline]
pub fn now() -> u64 {
    if enabled() { clock(CLOCK_MONOTONIC) } else { 0 }
}

/// As [`event`], for what began at `at_ns` and could not be reported before it was over. The thread
/// has written nothing since then.
#[inline]
pub fn event_at(at_ns: Option<u64>, code: u8, words: usize, fill: impl FnOnce(&mut Record<'_, '_>)) {
    with_ring(|thread| {
        let now = Stamps::now(code);
        let at_ns = at_ns.filter(|&at_ns| at_ns > 0).unwrap_or(now.at_ns);
        thread.write_at(code, Stamps { at_ns, ..now }, words, fill);
    });
}

/// An executor begins to run something.
pub fn execution_begins() {
    if CPU_CODES.load(Ordering::Relaxed) >> code::CALLBACK_START & 1 == 1 {
        with_course(|course| course.execution_begins(clock(CLOCK_MONOTONIC)));
    }
}

/// Counts a `sched_yield` of this thread.
pub fn yields() {
    THREAD.with(|thread| {
        thread.yields.store(thread.yields.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    });
}

/// Writes the start of a callback.
pub fn callback_start(callback: u64, intra_process: bool) {
    with_ring(|thread| {
        let mut now = None;
        let counts = CPU_CODES.load(Ordering::Relaxed) >> code::CALLBACK_START & 1 == 1;
        if counts {
            // SAFETY: this thread's own, and `busy` keeps a signal handler of it out.
            let course = unsafe { &mut *thread.course.get() };
            course.begin(callback, thread.yields.load(Ordering::Relaxed), || {
                let stamps = *now.insert(Stamps::now(code::CALLBACK_START));
                (stamps.at_ns, stamps.cpu_ns)
            });
        }
        let now = now.unwrap_or_else(|| Stamps::now(code::CALLBACK_START));
        thread.write_at(code::CALLBACK_START, now, 1, |record| {
            if intra_process {
                record.flag(ring::FLAG_SET);
            }
            record.word(callback);
        });
    });
}

/// Writes the end of a callback, and before it why it was off the CPU, if it was.
pub fn callback_end(callback: u64) {
    with_ring(|thread| {
        let (now, end) = Stamps::end(code::CALLBACK_END);
        // SAFETY: as above.
        let course = unsafe { &mut *thread.course.get() };
        thread.write_off_cpu(course.end(callback, thread.yields.load(Ordering::Relaxed), end), now);
        thread.write_at(code::CALLBACK_END, now, 1, |record| record.word(callback));
    });
}

/// What stands for a callback that has no events of its own.
const EVENTLESS: u64 = 2;

/// Something begins that has no callback's events and is followed like one.
pub fn eventless_begins() {
    with_ring(|thread| {
        // SAFETY: as above.
        let course = unsafe { &mut *thread.course.get() };
        course.begin(EVENTLESS, thread.yields.load(Ordering::Relaxed), || {
            let now = Stamps::now(code::TAKE_RESPONSE);
            (now.at_ns, now.cpu_ns)
        });
    });
}

/// Writes that what an executor ran has returned, and before it why it was off the CPU, if it was.
pub fn executed(complete: bool) {
    with_ring(|thread| {
        let (now, end) = Stamps::end(code::EXECUTED);
        // SAFETY: as above.
        let course = unsafe { &mut *thread.course.get() };
        let found = course.end(EVENTLESS, thread.yields.load(Ordering::Relaxed), end);
        let found = found.or_else(|| course.execution_ends(now.at_ns));
        thread.write_off_cpu(found.filter(|_| !complete), now);
        thread.write_at(code::EXECUTED, now, 0, |record| {
            if complete {
                record.flag(ring::FLAG_SET);
            }
        });
    });
}

/// Writes that an executor selects, and before it why the work since its last selection was off the
/// CPU, if that had no events and was so: a client's callback, an action, what else waits in the
/// wait set. Where its executor reports of the end of all that it runs, that is reported there.
pub fn next_ready() {
    with_ring(|thread| {
        // SAFETY: as above.
        let course = unsafe { &mut *thread.course.get() };
        let (mut now, mut end) = Stamps::end(code::NEXT_READY);
        if course.reports_ends {
            return thread.write_at(code::NEXT_READY, now, 0, |_| ());
        }
        let asked =
            course.asks_untraced() && CPU_CODES.load(Ordering::Relaxed) >> code::CALLBACK_END & 1 == 1;
        if asked && now.cpu_ns.is_none() {
            now.cpu_ns = Some(clock(CLOCK_THREAD_CPUTIME));
            end = off_cpu::End { cpu_ns: now.cpu_ns, after_ns: clock(CLOCK_MONOTONIC), ..end };
        }
        let yields = thread.yields.load(Ordering::Relaxed);
        thread.write_off_cpu(course.end_untraced(yields, end), now);
        thread.write_at(code::NEXT_READY, now, 0, |_| ());
        course.begin_untraced(yields, now.at_ns, now.cpu_ns);
    });
}

/// The selection had events, or there was none: no work without events.
pub fn selected() {
    with_course(Course::selected);
}

/// Calls `with` with the thread's activations, unless it is writing already.
#[inline]
fn with_course(with: impl FnOnce(&mut Course)) {
    THREAD.with(|thread| {
        if thread.busy.load(Ordering::Relaxed) == 0 {
            thread.busy.store(1, Ordering::Relaxed);
            compiler_fence(Ordering::SeqCst);
            // SAFETY: this thread's own, and `busy` keeps a signal handler of it out.
            with(unsafe { &mut *thread.course.get() });
            compiler_fence(Ordering::SeqCst);
            thread.busy.store(0, Ordering::Relaxed);
        }
    });
}

/// When an event is.
#[derive(Clone, Copy)]
struct Stamps {
    at_ns: u64,
    cpu_ns: Option<u64>,
}

impl Stamps {
    #[inline]
    fn now(code: u8) -> Self {
        let at_ns = clock(CLOCK_MONOTONIC);
        let with_cpu = CPU_CODES.load(Ordering::Relaxed) >> code & 1 == 1;
        Self { at_ns, cpu_ns: with_cpu.then(|| clock(CLOCK_THREAD_CPUTIME)) }
    }

    #[inline]
    fn end(code: u8) -> (Self, off_cpu::End) {
        let now = Self::now(code);
        let after_ns = if now.cpu_ns.is_some() { clock(CLOCK_MONOTONIC) } else { now.at_ns };
        (now, off_cpu::End { at_ns: now.at_ns, cpu_ns: now.cpu_ns, after_ns })
    }
}

/// Calls `write` with what the thread has, if it has a ring and is not writing already.
#[inline]
fn with_ring(write: impl FnOnce(&Thread)) {
    THREAD.with(|thread| {
        let now = generation().load(Ordering::Acquire);
        if thread.generation.load(Ordering::Relaxed) != now && !thread.settle(now) {
            return;
        }
        if thread.busy.load(Ordering::Relaxed) != 0 {
            without_ring();
            return;
        }
        thread.busy.store(1, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        write(thread);
        compiler_fence(Ordering::SeqCst);
        thread.busy.store(0, Ordering::Relaxed);
    });
}

/// Whether events are written, or would be: what `ros_trace_enabled_*` answers.
pub fn enabled() -> bool {
    generation().load(Ordering::Relaxed) != OFF
}

/// The message of this thread's last `rcl_publish`.
pub fn last_message() -> u64 {
    THREAD.with(|thread| thread.message.load(Ordering::Relaxed))
}

/// Keeps the message of an `rcl_publish`.
pub fn keep_message(message: u64) {
    THREAD.with(|thread| thread.message.store(message, Ordering::Relaxed));
}

/// What the events say of what an executor has under way on this thread.
pub mod ran {
    /// The thread has not run anything for an executor.
    pub const NOT_RUN: u32 = 0;
    /// Nothing so far.
    pub const NOTHING: u32 = 1;
    /// A callback has started, or all was reported.
    pub const REPORTED: u32 = 2;
}

/// Sets what is known of this thread's work, and returns what was.
#[inline]
pub fn set_ran(now: u32) -> u32 {
    THREAD.with(|thread| {
        let before = thread.ran.load(Ordering::Relaxed);
        thread.ran.store(now, Ordering::Relaxed);
        before
    })
}

/// The thread runs `executor`: whether that is new.
#[inline]
pub fn new_executor(executor: u64) -> bool {
    THREAD.with(|thread| {
        let new = thread.executor.load(Ordering::Relaxed) != executor;
        thread.executor.store(executor, Ordering::Relaxed);
        new
    })
}

/// Sets whether a step of a service call is under way, and returns what was.
#[inline]
pub fn set_inside(now: bool) -> bool {
    THREAD.with(|thread| {
        let before = thread.inside.load(Ordering::Relaxed);
        thread.inside.store(now, Ordering::Relaxed);
        before
    })
}

/// Sets where the middleware writes what it knows of the message that is being taken; null: nothing
/// is.
#[inline]
pub fn set_info(info: *const u8) {
    THREAD.with(|thread| thread.info.store(info.cast_mut(), Ordering::Relaxed));
}

/// What [`set_info`] has set.
#[inline]
pub fn info() -> *const u8 {
    THREAD.with(|thread| thread.info.load(Ordering::Relaxed))
}

/// Whether a step of a service call is under way.
#[inline]
pub fn inside() -> bool {
    THREAD.with(|thread| thread.inside.load(Ordering::Relaxed))
}

impl Thread {
    /// The caller has set `busy`.
    #[inline]
    fn write(&self, code: u8, words: usize, fill: impl FnOnce(&mut Record<'_, '_>)) {
        self.write_at(code, Stamps::now(code), words, fill);
    }

    #[inline]
    fn write_at(&self, code: u8, now: Stamps, words: usize, fill: impl FnOnce(&mut Record<'_, '_>)) {
        // SAFETY: this thread's own, and `busy` keeps a signal handler of it out.
        let Some(writer) = (unsafe { &mut *self.writer.get() }) else { return without_ring() };
        let with_cpu = usize::from(now.cpu_ns.is_some());
        let Some(mut record) = writer.begin(2 + with_cpu + words, now.at_ns) else { return };
        if let Some(cpu_ns) = now.cpu_ns {
            record.flag(ring::FLAG_CPU);
            record.word(cpu_ns);
        }
        fill(&mut record);
        record.end(code);
    }

    /// Why the activation was off the CPU that the next record ends. The caller has set `busy`.
    #[inline]
    fn write_off_cpu(&self, found: Option<OffCpu>, now: Stamps) {
        if let Some(OffCpu { switches, ready_ns, yields, early_ns }) = found {
            self.write_at(code::OFF_CPU, Stamps { cpu_ns: None, ..now }, 4, |record| {
                record.word(switches);
                record.word(ready_ns);
                record.word(yields);
                record.word(early_ns);
            });
        }
    }

    /// The thread's first event, or the first after a fork; false: this event cannot be written.
    #[cold]
    #[inline(never)]
    fn settle(&self, mut now: u32) -> bool {
        if now == NOT_YET {
            now = set_up();
        }
        if now < FIRST_GENERATION || self.busy.load(Ordering::Relaxed) != 0 {
            return false;
        }
        self.busy.store(1, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        // SAFETY: as in `write_at`. A writer of an earlier generation is the parent's: forgotten,
        // not used.
        unsafe {
            *self.writer.get() = claim();
            *self.course.get() = Course::NEW;
        }
        self.generation.store(now, Ordering::Relaxed);
        let mut name = [0; 16];
        // SAFETY: the kernel writes at most 16 bytes. SAFETY of gettid: takes nothing.
        let tid = unsafe {
            prctl(PR_GET_NAME, name.as_mut_ptr());
            gettid()
        };
        let name = name.split(|&byte| byte == 0).next().unwrap_or(&[]);
        self.write(code::THREAD, 1 + ring::text_words(name), |record| {
            record.word(tid as u64);
            record.text(name);
        });
        compiler_fence(Ordering::SeqCst);
        self.busy.store(0, Ordering::Relaxed);
        // SAFETY: the key was made before the generation was set; any value but null makes the
        // destructor run.
        unsafe { pthread_setspecific(THREAD_KEY.load(Ordering::Relaxed), (self as *const Self).cast()) };
        true
    }

    /// The thread ends: says so, and gives its ring to the next.
    fn leave(&self) {
        let now = generation().load(Ordering::Acquire);
        let owned = self.generation.swap(NO_GENERATION, Ordering::Relaxed) == now && now >= FIRST_GENERATION;
        self.busy.store(1, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        if owned {
            // SAFETY: this thread's own; a signal handler's event finds no generation, and settles
            // anew only when not busy.
            if unsafe { (*self.writer.get()).is_some() } {
                self.write(code::THREAD_END, 0, |_| ());
            }
            // SAFETY: as above.
            if let Some(writer) = unsafe { (*self.writer.get()).take() } {
                writer.leave();
            }
        }
        compiler_fence(Ordering::SeqCst);
        self.busy.store(0, Ordering::Relaxed);
    }
}

pub unsafe extern "C" fn thread_ends(_: *mut c_void) {
    THREAD.with(Thread::leave);
}

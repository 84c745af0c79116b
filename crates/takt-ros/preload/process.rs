//! What the probe knows of its process: where the session is, the shared file, the rings, and which thread has which.
//!
//! Nothing is set up before the first event, so that programs without ROS cost nothing. An event then compares one
//! number (the generation), reads the clocks and writes its words: no allocation, no lock, no loop.
//!
//! A forked child must not write into its parent's rings. The generation therefore lies on a page that the kernel clears in
//! every child (`MADV_WIPEONFORK`), whichever way it was forked, and the rings are not mapped there at all.

use std::cell::UnsafeCell;
use std::ffi::{c_char, c_int, c_long, c_void};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, compiler_fence};

use crate::off_cpu::{self, Course, Told};
use crate::ring::{
    self, FileHeader, MAGIC, MOST_RINGS, PAGE, Record, RingView, VERSION, Writer, code, state,
};

unsafe extern "C" {
    fn getenv(name: *const c_char) -> *const c_char;
    fn getpid() -> c_int;
    fn gettid() -> c_int;
    fn open(path: *const c_char, flags: c_int, mode: c_int) -> c_int;
    fn close(fd: c_int) -> c_int;
    fn read(fd: c_int, to: *mut c_void, bytes: usize) -> isize;
    fn write(fd: c_int, from: *const c_void, bytes: usize) -> isize;
    fn unlink(path: *const c_char) -> c_int;
    fn mmap(at: *mut c_void, bytes: usize, prot: c_int, flags: c_int, fd: c_int, offset: i64) -> *mut c_void;
    fn munmap(at: *mut c_void, bytes: usize) -> c_int;
    fn madvise(at: *mut c_void, bytes: usize, advice: c_int) -> c_int;
    fn posix_fallocate(fd: c_int, offset: i64, bytes: i64) -> c_int;
    fn clock_gettime(clock: c_int, to: *mut Timespec) -> c_int;
    fn prctl(option: c_int, ...) -> c_int;
    fn pthread_key_create(key: *mut u32, destructor: Option<unsafe extern "C" fn(*mut c_void)>) -> c_int;
    fn pthread_setspecific(key: u32, value: *const c_void) -> c_int;
}

const O_RDWR: c_int = 2;
const O_CREAT: c_int = 0o100;
const O_EXCL: c_int = 0o200;
const O_CLOEXEC: c_int = 0o2000000;
const PROT_BOTH: c_int = 3;
const MAP_SHARED: c_int = 1;
const MAP_PRIVATE_ANONYMOUS: c_int = 0x22;
const MAP_POPULATE: c_int = 0x8000;
const MADV_DONTFORK: c_int = 10;
const MADV_WIPEONFORK: c_int = 18;
const PR_GET_NAME: c_int = 16;
pub const CLOCK_MONOTONIC: c_int = 1;
const CLOCK_THREAD_CPUTIME: c_int = 3;

#[repr(C)]
struct Timespec {
    seconds: i64,
    nanoseconds: c_long,
}

#[inline]
pub fn clock(which: c_int) -> u64 {
    let mut now = Timespec { seconds: 0, nanoseconds: 0 };
    // SAFETY: the kernel writes one timespec.
    unsafe { clock_gettime(which, &mut now) };
    (now.seconds as u64).wrapping_mul(1_000_000_000).wrapping_add(now.nanoseconds as u64)
}

/// States of the word on the wiped page; greater numbers are generations.
const NOT_YET: u32 = 0;
const UNDER_WAY: u32 = 1;
const OFF: u32 = 2;
const FIRST_GENERATION: u32 = 16;
/// Of a thread that has not seen any event.
const NO_GENERATION: u32 = u32::MAX;

/// What stands for the wiped page before there is one, or when there is no session: the probe is off.
static NO_PAGE: AtomicU32 = AtomicU32::new(OFF);
static PAGE_WORD: AtomicPtr<AtomicU32> = AtomicPtr::new((&raw const NO_PAGE).cast_mut());
static LAST_GENERATION: AtomicU32 = AtomicU32::new(FIRST_GENERATION - 1);

#[inline]
fn generation() -> &'static AtomicU32 {
    // SAFETY: points to the static above or to the page, which is never unmapped.
    unsafe { &*PAGE_WORD.load(Ordering::Acquire) }
}

const MOST_PATH: usize = 1024;

/// Set once, when the library is loaded, and read afterwards; and the file's path, set by whoever wins the setting-up.
struct Place {
    directory: UnsafeCell<[u8; MOST_PATH]>,
    directory_bytes: AtomicUsize,
    file: UnsafeCell<[u8; MOST_PATH]>,
}

// SAFETY: `directory` is written while the library is loaded, by one thread; `file` by the one thread that has moved the
// generation from NOT_YET to UNDER_WAY, and read only by those that saw the generation after that.
unsafe impl Sync for Place {}

static PLACE: Place = Place {
    directory: UnsafeCell::new([0; MOST_PATH]),
    directory_bytes: AtomicUsize::new(0),
    file: UnsafeCell::new([0; MOST_PATH]),
};

static RING_WORDS: AtomicUsize = AtomicUsize::new(32 * 1024);
static CPU_CODES: AtomicU64 = AtomicU64::new(ring::CPU_NEEDED);
static HEADER: AtomicPtr<FileHeader> = AtomicPtr::new(std::ptr::null_mut());
static RINGS: [AtomicPtr<u8>; MOST_RINGS] = [const { AtomicPtr::new(std::ptr::null_mut()) }; MOST_RINGS];
/// That there is no space for a ring is said once.
static COMPLAINED: AtomicBool = AtomicBool::new(false);
static THREAD_KEY: AtomicU32 = AtomicU32::new(u32::MAX);

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
    /// What was told of what the executor runs: [`ran`].
    ran: AtomicU32,
    /// A step of a service call is under way, and is told when it is over.
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
            ran: AtomicU32::new(ran::NEVER),
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

/// As [`event`], for what began at `at_ns` and could not be told before it was over. The thread has written nothing since then.
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
        thread.tell(course.end(callback, thread.yields.load(Ordering::Relaxed), end), now);
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
pub fn executed(told: bool) {
    with_ring(|thread| {
        let (now, end) = Stamps::end(code::EXECUTED);
        // SAFETY: as above.
        let course = unsafe { &mut *thread.course.get() };
        let found = course.end(EVENTLESS, thread.yields.load(Ordering::Relaxed), end);
        let found = found.or_else(|| course.execution_ends(now.at_ns));
        thread.tell(found.filter(|_| !told), now);
        thread.write_at(code::EXECUTED, now, 0, |record| {
            if told {
                record.flag(ring::FLAG_SET);
            }
        });
    });
}

/// Writes that an executor selects, and before it why the work since its last selection was off the CPU, if that had no events and was so:
/// a client's callback, an action, what else waits in the wait set. Where its executor tells of the end of all that it runs, that is told there.
pub fn next_ready() {
    with_ring(|thread| {
        // SAFETY: as above.
        let course = unsafe { &mut *thread.course.get() };
        let (mut now, mut end) = Stamps::end(code::NEXT_READY);
        if course.tells_ends {
            return thread.write_at(code::NEXT_READY, now, 0, |_| ());
        }
        let asked =
            course.asks_untraced() && CPU_CODES.load(Ordering::Relaxed) >> code::CALLBACK_END & 1 == 1;
        if asked && now.cpu_ns.is_none() {
            now.cpu_ns = Some(clock(CLOCK_THREAD_CPUTIME));
            end = off_cpu::End { cpu_ns: now.cpu_ns, after_ns: clock(CLOCK_MONOTONIC), ..end };
        }
        let yields = thread.yields.load(Ordering::Relaxed);
        thread.tell(course.end_untraced(yields, end), now);
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

    /// Of an end.
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
            homeless();
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
    pub const NEVER: u32 = 0;
    /// Nothing so far.
    pub const NOTHING: u32 = 1;
    /// A callback has started, or all was told.
    pub const TOLD: u32 = 2;
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

/// Sets where the middleware writes what it knows of the message that is being taken; null: nothing is.
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

/// The file's header, if there is one.
pub fn header() -> Option<&'static FileHeader> {
    match generation().load(Ordering::Acquire) >= FIRST_GENERATION {
        // SAFETY: null or a mapping that stays; a forked child sets it anew before any use (its generation is cleared).
        true => unsafe { HEADER.load(Ordering::Acquire).as_ref() },
        false => None,
    }
}

fn homeless() {
    if let Some(header) = header() {
        header.homeless.fetch_add(1, Ordering::Relaxed);
    }
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
        let Some(writer) = (unsafe { &mut *self.writer.get() }) else { return homeless() };
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
    fn tell(&self, found: Option<Told>, now: Stamps) {
        if let Some(Told { switches, ready_ns, yields, early_ns }) = found {
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
        // SAFETY: as in `write_at`. A writer of an earlier generation is the parent's: forgotten, not used.
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
        // SAFETY: the key was made before the generation was set; any value but null makes the destructor run.
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
            // SAFETY: this thread's own; a signal handler's event finds no generation, and settles anew only when not busy.
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

unsafe extern "C" fn thread_ends(_: *mut c_void) {
    THREAD.with(Thread::leave);
}

/// When the library is loaded: where the session is. Without one the probe stays off for good.
pub fn load() {
    // SAFETY: the environment is read while the program is being loaded, before it has threads of its own.
    unsafe {
        let directory = text(getenv(c"TAKT_PROBE_DIR".as_ptr()));
        // Room for the file's name and its end.
        if directory.is_empty() {
            return;
        }
        if directory.len() + 64 > MOST_PATH {
            return complain(b"the path of the session's directory is too long");
        }
        (&mut *PLACE.directory.get())[..directory.len()].copy_from_slice(directory);
        PLACE.directory_bytes.store(directory.len(), Ordering::Relaxed);
        if let Some(kib) = number(text(getenv(c"TAKT_PROBE_RING_KIB".as_ptr()))) {
            let words = (kib.min(1 << 20) as usize * 128).next_power_of_two();
            RING_WORDS.store(words.clamp(ring::LEAST_WORDS, ring::MOST_WORDS), Ordering::Relaxed);
        }
        match text(getenv(c"TAKT_PROBE_CPU".as_ptr())) {
            b"all" => CPU_CODES.store(u64::MAX, Ordering::Relaxed),
            b"none" => CPU_CODES.store(0, Ordering::Relaxed),
            _ => {}
        }
        let page = mmap(std::ptr::null_mut(), PAGE, PROT_BOTH, MAP_PRIVATE_ANONYMOUS, -1, 0);
        if page as isize == -1 || madvise(page, PAGE, MADV_WIPEONFORK) != 0 {
            return complain(b"the kernel cannot clear a page on fork (Linux 4.14)");
        }
        let mut key = 0;
        if pthread_key_create(&mut key, Some(thread_ends)) != 0 {
            return complain(b"no thread-specific key is left");
        }
        THREAD_KEY.store(key, Ordering::Relaxed);
        // The page's word is 0: NOT_YET.
        PAGE_WORD.store(page.cast(), Ordering::Release);
    }
}

/// When the process leaves by `exit`.
pub fn unload() {
    if let Some(header) = header() {
        header.state.store(state::ENDED, Ordering::Release);
    }
}

/// The process's first event, or its first after a fork: makes the file. Returns the state that holds then.
fn set_up() -> u32 {
    let word = generation();
    // Whoever comes second goes without until the first is through: it waits for nobody.
    if let Err(now) = word.compare_exchange(NOT_YET, UNDER_WAY, Ordering::Acquire, Ordering::Acquire) {
        return now;
    }
    for ring in &RINGS {
        ring.store(std::ptr::null_mut(), Ordering::Relaxed);
    }
    let now = match make_file() {
        Ok(header) => {
            HEADER.store(header, Ordering::Release);
            LAST_GENERATION
                .fetch_add(1, Ordering::Relaxed)
                .wrapping_add(1)
                .clamp(FIRST_GENERATION, NO_GENERATION - 1)
        }
        Err(what) => {
            complain(what);
            OFF
        }
    };
    word.store(now, Ordering::Release);
    now
}

fn make_file() -> Result<*mut FileHeader, &'static [u8]> {
    let opened_ns = clock(CLOCK_MONOTONIC);
    // SAFETY: takes nothing.
    let pid = unsafe { getpid() } as u32;
    // SAFETY: only the thread that sets up comes here (see `Place`); the directory was written at load.
    let path = unsafe {
        let directory = &(&*PLACE.directory.get())[..PLACE.directory_bytes.load(Ordering::Relaxed)];
        let file = &mut *PLACE.file.get();
        *file = [0; MOST_PATH];
        let mut writer = Appender { to: file, used: 0 };
        writer.bytes(directory);
        writer.bytes(b"/");
        writer.number(u64::from(pid), 10);
        writer.bytes(b"-");
        writer.number(opened_ns, 16);
        writer.bytes(b".ring");
        file.as_ptr().cast::<c_char>()
    };
    // SAFETY: plain calls on a path that ends in zero; the mapping is new, and only pointers into it are formed.
    unsafe {
        let fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0o600);
        if fd < 0 {
            return Err(b"cannot make a file in the session's directory");
        }
        if posix_fallocate(fd, 0, PAGE as i64) != 0 {
            close(fd);
            unlink(path);
            return Err(b"no space for the file in the session's directory");
        }
        let page = mmap(std::ptr::null_mut(), PAGE, PROT_BOTH, MAP_SHARED | MAP_POPULATE, fd, 0);
        close(fd);
        if page as isize == -1 || madvise(page, PAGE, MADV_DONTFORK) != 0 {
            unlink(path);
            return Err(b"cannot map the file in the session's directory");
        }
        let header = page.cast::<FileHeader>();
        let to = &*header;
        to.version.store(VERSION, Ordering::Relaxed);
        to.pid.store(pid, Ordering::Relaxed);
        to.start_ticks.store(start_ticks(), Ordering::Relaxed);
        to.opened_ns.store(opened_ns, Ordering::Relaxed);
        to.ring_words.store(RING_WORDS.load(Ordering::Relaxed) as u32, Ordering::Relaxed);
        to.state.store(state::LIVE, Ordering::Relaxed);
        to.name[0].store(0, Ordering::Relaxed);
        let mut name = [0u8; 16];
        // The main thread's name is the program's; /proc/self/comm is it whichever thread asks.
        let comm = open(c"/proc/self/comm".as_ptr(), O_CLOEXEC, 0);
        if comm >= 0 {
            let count = read(comm, name.as_mut_ptr().cast(), 15);
            close(comm);
            let end = name.iter().position(|&byte| byte == b'\n' || byte == 0).unwrap_or(0);
            name[end.min(usize::try_from(count).unwrap_or(0))..].fill(0);
        }
        for (to, from) in to.name.iter().zip(name.chunks_exact(8)) {
            to.store(from.try_into().map_or(0, u64::from_le_bytes), Ordering::Relaxed);
        }
        to.magic.store(MAGIC, Ordering::Release);
        Ok(header)
    }
}

/// A ring for this thread: one that a thread left, or a new one. `None`: there is no room; its events are counted.
fn claim() -> Option<Writer<'static>> {
    let header = header()?;
    let words = RING_WORDS.load(Ordering::Relaxed);
    // SAFETY: takes nothing.
    let tid = unsafe { gettid() } as u32;
    for base in RINGS.iter().take(header.rings.load(Ordering::Relaxed) as usize) {
        let base = base.load(Ordering::Acquire);
        if base.is_null() {
            continue;
        }
        // SAFETY: the mapping of a whole ring, which stays.
        let ring = unsafe { RingView::at(base, words) };
        let waiting = |ring: &RingView<'_>| {
            ring.header.head.load(Ordering::Relaxed).wrapping_sub(ring.header.tail.load(Ordering::Relaxed))
        };
        let free = ring.header.owner.load(Ordering::Relaxed) == 0 && waiting(&ring) < words as u64 / 4;
        if free && ring.header.owner.compare_exchange(0, tid, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            if waiting(&ring) < words as u64 / 2 {
                return Some(Writer::new(ring));
            }
            ring.header.owner.store(0, Ordering::Release);
        }
    }
    let index = header.rings.fetch_add(1, Ordering::Relaxed) as usize;
    let slot = RINGS.get(index)?;
    let bytes = ring::ring_bytes(words);
    let offset = ring::ring_offset(index, words) as i64;
    // SAFETY: the path was written before the generation that this thread has seen; the mapping is new. Opened by its name each
    // time: a descriptor kept open could have been closed, or replaced, by a program that closes all it does not know.
    let base = unsafe {
        let fd = open((*PLACE.file.get()).as_ptr().cast(), O_RDWR | O_CLOEXEC, 0);
        if fd < 0 {
            // The session has ended, as a rule; or the program has left for another root directory.
            return None;
        }
        // All its blocks and pages now: later a full disk would be a SIGBUS, and a page fault a delay.
        let full = posix_fallocate(fd, offset, bytes as i64);
        let base = match full != 0 {
            true => -1isize as *mut c_void,
            false => mmap(std::ptr::null_mut(), bytes, PROT_BOTH, MAP_SHARED | MAP_POPULATE, fd, offset),
        };
        close(fd);
        if base as isize == -1 {
            if !COMPLAINED.swap(true, Ordering::Relaxed) {
                complain(b"no space for the rings of its threads, whose events are only counted");
            }
            return None;
        }
        if madvise(base, bytes, MADV_DONTFORK) != 0 {
            munmap(base, bytes);
            return None;
        }
        base.cast::<u8>()
    };
    // SAFETY: as above.
    let ring = unsafe { RingView::at(base, words) };
    ring.header.owner.store(tid, Ordering::Relaxed);
    ring.header.ready.store(1, Ordering::Release);
    slot.store(base, Ordering::Release);
    Some(Writer::new(ring))
}

/// One line on stderr, and the program runs on unobserved.
pub fn complain(what: &[u8]) {
    let error = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
    let mut line = [0; MOST_PATH];
    let mut to = Appender { to: &mut line, used: 0 };
    to.bytes(b"takt probe: process ");
    // SAFETY: takes nothing.
    to.number(unsafe { getpid() } as u64, 10);
    to.bytes(b" is not observed, or not wholly: ");
    to.bytes(what);
    to.bytes(b" (error ");
    to.number(error as u64, 10);
    to.bytes(b")\n");
    let used = to.used;
    // SAFETY: the bytes are there.
    unsafe { write(2, line.as_ptr().cast(), used) };
}

/// Bytes of a C string; none of a null pointer.
///
/// # Safety
///
/// `text` is null or ends in zero.
pub unsafe fn text<'a>(text: *const c_char) -> &'a [u8] {
    match text.is_null() {
        true => &[],
        // SAFETY: by contract.
        false => unsafe { std::ffi::CStr::from_ptr(text) }.to_bytes(),
    }
}

fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.trim().parse().ok()
}

/// Start time of this process in clock ticks since boot: field 22 of `/proc/self/stat`.
fn start_ticks() -> u64 {
    let mut bytes = [0u8; 1024];
    // SAFETY: reads at most what the buffer holds.
    let count = unsafe {
        let fd = open(c"/proc/self/stat".as_ptr(), O_CLOEXEC, 0);
        if fd < 0 {
            return 0;
        }
        let count = read(fd, bytes.as_mut_ptr().cast(), bytes.len());
        close(fd);
        count
    };
    let read = bytes.get(..usize::try_from(count).unwrap_or(0)).unwrap_or(&[]);
    // The name in parentheses may contain anything; the rest starts with field 3.
    let Some(end) = read.iter().rposition(|&byte| byte == b')') else { return 0 };
    read[end + 1..]
        .split(|&byte| byte == b' ')
        .filter(|field| !field.is_empty())
        .nth(19)
        .and_then(number)
        .unwrap_or(0)
}

/// Puts bytes and numbers together without allocating; what does not fit is left out.
struct Appender<'a> {
    to: &'a mut [u8],
    used: usize,
}

impl Appender<'_> {
    fn bytes(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            // The last byte stays zero.
            if self.used + 1 < self.to.len() {
                self.to[self.used] = byte;
                self.used += 1;
            }
        }
    }

    fn number(&mut self, mut value: u64, base: u64) {
        let mut digits = [0u8; 20];
        let mut first = digits.len();
        loop {
            first -= 1;
            digits[first] = b"0123456789abcdef"[(value % base) as usize];
            value /= base;
            if value == 0 {
                break;
            }
        }
        self.bytes(&digits[first..]);
    }
}

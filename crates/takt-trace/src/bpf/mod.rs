//! Threads followed in the kernel: programs of its virtual machine (BPF) keep what each watched
//! thread does, and hand out one record from each wake-up to the next sleep. A reader of all events
//! would spend a microsecond on each of a dozen events of every cycle.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use perf_event_open_sys as perf;
use takt_rt::bpf::{Instruction, Map, MapKind, Program, ProgramKind, Ring};

use self::programs::{Builder, Maps, Place, cpu, source, state};
use crate::capture::open;
use crate::error::TraceError;
use crate::event::{State, Vector};
use crate::format::Format;
use crate::tracefs::Tracefs;

mod programs;
#[cfg(test)]
mod tests;

/// Waker of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waker {
    /// A timer, by its address and the address of its function.
    Timer {
        /// Address of the timer.
        timer: u64,
        /// Address of the function that it calls.
        function: u64,
    },
    /// Another thread.
    Thread(i32),
    /// A device's interrupt.
    Interrupt(u32),
    /// A software interrupt, by its number.
    Softirq(u8),
    /// The CPU's own interrupts, or one that nobody reported.
    Other,
}

/// A thread's activity from a wake-up to its next sleep. Times are CLOCK_MONOTONIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Awake {
    /// The thread.
    pub tid: i32,
    /// Its waker.
    pub waker: Waker,
    /// When it was to be woken: what its timer was set to, else the begin of the wake-up.
    pub planned_ns: u64,
    /// It got a CPU.
    pub awake_ns: u64,
    /// It went to sleep.
    pub end_ns: u64,
    /// CPU time in between.
    pub cpu_ns: u64,
    /// State at its end.
    pub state: State,
    /// Address and function of the timer that it set before it went to sleep.
    pub slept_on: Option<(u64, u64)>,
    /// The CPU that it ended on.
    pub cpu: u16,
    /// So often did it lose its CPU meanwhile.
    pub preempted: u64,
    /// In the longest of its waits for a CPU: who had it last before (0: nobody), and how long the
    /// wait was.
    pub kept_by: (i32, u64),
}

/// Threads that can be followed at once: 4 MB of the kernel's memory.
const MAX_THREADS: usize = 16 << 10;
/// Timers of those that are remembered; the kernel forgets those used least.
const MAX_TIMERS: usize = 16 << 10;
/// Room for some 60,000 records: six seconds of ten loops of 1 kHz.
const RING_BYTES: usize = 8 << 20;

/// Programs in the kernel that follow threads. Dropping it takes them out.
#[derive(Debug)]
pub struct KernelFollower {
    // Attachments are closed before the maps.
    _attached: Vec<OwnedFd>,
    _programs: Vec<Program>,
    threads: Map,
    _timers: Map,
    cpus: Map,
    ring: Ring,
    possible_cpus: usize,
    followed: BTreeSet<i32>,
    /// Parts of what it shows that this kernel lacks.
    notes: Vec<String>,
}

impl KernelFollower {
    /// Loads the programs; nobody is followed yet.
    ///
    /// # Errors
    /// [`TraceError`]: no right (CAP_BPF with CAP_PERFMON, or root), no BPF in the kernel, or a verifier that refuses.
    pub fn start() -> Result<Self, TraceError> {
        let tracefs = Tracefs::open()?;
        let refused = |call| move |source| TraceError::refused(call, "bpf", 0, source);
        let map = |kind, key, value, entries| {
            Map::new(kind, key, value, entries).map_err(refused("bpf(MAP_CREATE)"))
        };
        let threads = map(MapKind::Hash, 4, state::BYTES, MAX_THREADS)?;
        let timers = map(MapKind::LruHash, 8, programs::TIMER_BYTES, MAX_TIMERS)?;
        let cpus = map(MapKind::PerCpuArray, 4, cpu::BYTES, 1)?;
        let ring = Ring::new(RING_BYTES).map_err(refused("bpf(MAP_CREATE)"))?;
        let maps = Maps { threads: threads.fd(), timers: timers.fd(), cpus: cpus.fd(), records: ring.fd() };
        let mut follower = Self {
            _attached: Vec::new(),
            _programs: Vec::new(),
            threads,
            _timers: timers,
            cpus,
            ring,
            possible_cpus: possible_cpus(),
            followed: BTreeSet::new(),
            notes: Vec::new(),
        };
        follower.attach_all(&tracefs, &Builder { maps })?;
        Ok(follower)
    }

    fn attach_all(&mut self, tracefs: &Tracefs, builder: &Builder) -> Result<(), TraceError> {
        // Tracepoints that run with interrupts off are attached to perf's record, whose fields
        // tracefs reports: no program can interrupt them, and the kernel runs only one of these at
        // a time on a CPU. What an interrupt may interrupt is attached raw: its arguments are
        // numbers.
        for (tracepoint, place) in [("irq:irq_handler", cpu::INTERRUPT), ("irq:softirq", cpu::SOFTIRQ)] {
            self.attach_raw(&format!("{tracepoint}_entry"), builder.enter(place))?;
            self.attach_raw(&format!("{tracepoint}_exit"), builder.leave(place))?;
        }
        self.attach_raw("timer:hrtimer_expire_exit", builder.leave(cpu::EXPIRING))?;
        // Only x86 has these; elsewhere the timer's interrupt is a device's.
        for (vector, name) in Vector::TRACED {
            if tracefs.read(&format!("events/irq_vectors/{name}_entry/format")).is_ok()
                && vector != Vector::Thermal
            {
                self.attach_raw(&format!("irq_vectors:{name}_entry"), builder.enter(cpu::VECTOR))?;
                self.attach_raw(&format!("irq_vectors:{name}_exit"), builder.leave(cpu::VECTOR))?;
            }
        }
        let fields = |tracepoint: &str, names: [&str; 3]| -> Result<(u16, [Place; 3]), TraceError> {
            let text = tracefs
                .read(&format!("events/{}/format", tracepoint.replace(':', "/")))
                .map_err(|source| TraceError::refused("read tracefs", tracepoint, 0, source))?;
            let format = Format::parse(tracepoint, &text)?;
            let mut places = [(0, 0); 3];
            for (place, name) in places.iter_mut().zip(names) {
                let field = format.field(name)?;
                *place = (i16::try_from(field.offset).unwrap_or(i16::MAX), field.size);
            }
            Ok((format.id, places))
        };
        let (id, [tid, ..]) = fields("sched:sched_waking", ["pid"; 3])?;
        self.attach("sched:sched_waking", id, builder.waking(tid))?;
        let (id, [timer, function, expires]) =
            fields("timer:hrtimer_start", ["hrtimer", "function", "softexpires"])?;
        self.attach("timer:hrtimer_start", id, builder.timer_start(timer, function, expires))?;
        let (id, [timer, function, of_timer]) =
            fields("timer:hrtimer_expire_entry", ["hrtimer", "function", "now"])?;
        self.attach("timer:hrtimer_expire_entry", id, builder.timer_expire(timer, function, of_timer))?;
        let (id, [prev, why, next]) = fields("sched:sched_switch", ["prev_pid", "prev_state", "next_pid"])?;
        self.attach("sched:sched_switch", id, builder.switch(prev, why, next))
    }

    fn load(
        &mut self,
        kind: ProgramKind,
        tracepoint: &str,
        code: Option<Vec<Instruction>>,
    ) -> Result<(), TraceError> {
        let name = tracepoint.split_once(':').map_or(tracepoint, |parts| parts.1);
        let code = code.unwrap_or_default();
        let program = Program::load(kind, name, &code)
            .map_err(|source| TraceError::refused("bpf(PROG_LOAD)", tracepoint, 0, source))?;
        self._programs.push(program);
        Ok(())
    }

    fn attach(
        &mut self,
        tracepoint: &str,
        id: u16,
        code: Option<Vec<Instruction>>,
    ) -> Result<(), TraceError> {
        self.load(ProgramKind::Tracepoint, tracepoint, code)?;
        let Some(program) = self._programs.last() else { return Ok(()) };
        // The event stays off: the program is called for every CPU as long as it is open.
        let refused = |call, source| TraceError::refused(call, tracepoint, 0, source);
        let event = open::open(&mut open::attributes(id, 0), 0)
            .map_err(|source| refused("perf_event_open", source))?;
        // SAFETY: both descriptors are open; the call keeps no pointer.
        let rc = unsafe { perf::ioctls::SET_BPF(event.as_raw_fd(), program.fd() as u32) };
        if rc < 0 {
            return Err(refused("ioctl(SET_BPF)", io::Error::last_os_error()));
        }
        self._attached.push(event);
        Ok(())
    }

    fn attach_raw(&mut self, tracepoint: &str, code: Option<Vec<Instruction>>) -> Result<(), TraceError> {
        self.load(ProgramKind::RawTracepoint, tracepoint, code)?;
        let name = tracepoint.split_once(':').map_or(tracepoint, |parts| parts.1);
        let (Some(program), Ok(name)) = (self._programs.last(), CString::new(name)) else { return Ok(()) };
        match program.attach_raw(&name) {
            Ok(attached) => self._attached.push(attached),
            // A thread woken in it is reported as woken by the thread that it interrupted.
            Err(error) => self.notes.push(format!("{tracepoint} is not followed: {error}")),
        }
        Ok(())
    }

    /// Follows these threads, and none else.
    ///
    /// # Errors
    /// The kernel's: `E2BIG` beyond `MAX_THREADS`.
    pub fn follow(&mut self, threads: &BTreeSet<i32>) -> io::Result<()> {
        let gone: Vec<i32> = self.followed.difference(threads).copied().collect();
        for tid in gone {
            // Refused where it is not there.
            let _ = self.threads.delete(&tid.to_ne_bytes());
            self.followed.remove(&tid);
        }
        for &tid in threads {
            if self.followed.contains(&tid) {
                continue;
            }
            let mut value = [0; state::BYTES];
            value[state::TID as usize..][..8].copy_from_slice(&i64::from(tid).to_ne_bytes());
            self.threads.update(&tid.to_ne_bytes(), &value)?;
            self.followed.insert(tid);
        }
        Ok(())
    }

    /// Hands every record that is there to `take`, oldest first.
    pub fn drain(&mut self, take: &mut dyn FnMut(Awake)) {
        self.ring.drain(&mut |record| {
            if let Some(awake) = decoded(record) {
                take(awake);
            }
        });
    }

    /// Records that were lost so far, because nobody had taken the ones before.
    pub fn lost(&self) -> u64 {
        let Ok(values) = self.cpus.per_cpu(0, self.possible_cpus) else { return 0 };
        let counts = values.chunks_exact(cpu::BYTES.next_multiple_of(8));
        counts.filter_map(|value| word(value, cpu::DROPPED)).sum()
    }

    /// Notes for the reader.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }
}

fn word(bytes: &[u8], at: i16) -> Option<u64> {
    let at = usize::try_from(at).ok()?;
    bytes.get(at..at + 8)?.try_into().ok().map(u64::from_ne_bytes)
}

fn decoded(record: &[u8]) -> Option<Awake> {
    let at = |place| word(record, place);
    let id = at(state::SOURCE_ID)?;
    let waker = match i32::try_from(at(state::SOURCE)?).ok()? {
        source::TIMER => Waker::Timer { timer: id, function: at(state::SOURCE_FUNCTION)? },
        source::THREAD => Waker::Thread(i32::try_from(id).ok()?),
        source::INTERRUPT => Waker::Interrupt(u32::try_from(id).ok()?),
        source::SOFTIRQ => Waker::Softirq(u8::try_from(id).ok()?),
        _ => Waker::Other,
    };
    let awake_ns = at(state::AWAKE)?;
    let slept_on = at(state::SLEPT_ON)?;
    Some(Awake {
        tid: i32::try_from(at(state::TID)?).ok()?,
        waker,
        planned_ns: at(state::PLANNED)?.min(awake_ns),
        awake_ns,
        end_ns: at(state::END)?,
        cpu_ns: at(state::CPU_NS)?,
        state: State::from_raw(at(state::STATE)? as i64),
        slept_on: (slept_on != 0).then_some((slept_on, at(state::SLEPT_FUNCTION)?)),
        cpu: u16::try_from(at(state::CPU)?).ok()?,
        preempted: at(state::PREEMPTED)?,
        kept_by: (i32::try_from(at(state::KEPT_BY)?).ok()?, at(state::KEPT_NS)?),
    })
}

/// As many as maps by CPU have values: all that there can ever be.
fn possible_cpus() -> usize {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
    let last = text.trim().rsplit([',', '-']).next().and_then(|last| last.parse::<usize>().ok());
    last.map_or(takt_rt::placement::CpuSet::MAX_CPU + 1, |last| last + 1)
}

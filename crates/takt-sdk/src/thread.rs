//! Settings of the calling thread: policy, CPUs, locked memory, memory that is touched in advance.
//! What the kernel granted is read back.

use std::fmt;
use std::mem::{MaybeUninit, size_of};
use std::str::FromStr;
use std::time::Duration;

use crate::error::{Error, errno};
use crate::system::own_tid;

/// A scheduling policy. As texts: `other`, `other:-5`, `fifo:80`, `rr:10`,
/// `deadline:500us/2ms/2ms` (runtime, deadline, period).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Policy {
    /// SCHED_OTHER.
    Other {
        /// -20 to 19.
        nice: i32,
    },
    /// SCHED_FIFO.
    Fifo {
        /// 1 to 99.
        priority: i32,
    },
    /// SCHED_RR.
    RoundRobin {
        /// 1 to 99.
        priority: i32,
    },
    /// SCHED_DEADLINE.
    Deadline {
        /// CPU time in each period.
        runtime: Duration,
        /// After the begin of the period.
        deadline: Duration,
        /// How often.
        period: Duration,
    },
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Other { nice: 0 } => f.write_str("other"),
            Self::Other { nice } => write!(f, "other:{nice}"),
            Self::Fifo { priority } => write!(f, "fifo:{priority}"),
            Self::RoundRobin { priority } => write!(f, "rr:{priority}"),
            Self::Deadline { runtime, deadline, period } => {
                let us = |time: &Duration| time.as_nanos() as f64 / 1e3;
                write!(f, "deadline:{}us/{}us/{}us", us(runtime), us(deadline), us(period))
            }
        }
    }
}

fn refused(received: &str) -> Error {
    Error::Argument {
        what: "policy",
        received: format!("{received:?}"),
        accepted: "other, other:-20 to other:19, fifo:1 to fifo:99, rr:1 to rr:99, deadline:500us/2ms/2ms",
    }
}

/// `500us`, `2 ms`, `0.1 s`.
pub(crate) fn time(text: &str) -> Option<Duration> {
    let text = text.trim();
    let unit = text.find(|c: char| c.is_ascii_alphabetic() || c == '\u{b5}')?;
    let number: f64 = text[..unit].trim().parse().ok()?;
    let scale = match &text[unit..] {
        "ns" => 1e-9,
        "us" | "\u{b5}s" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(number * scale).ok()
}

impl FromStr for Policy {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let (name, rest) = text.trim().split_once(':').unwrap_or((text.trim(), ""));
        let number = || rest.trim().parse::<i32>().map_err(|_| refused(text));
        let policy = match name {
            "other" if rest.is_empty() => Self::Other { nice: 0 },
            "other" => Self::Other { nice: number()? },
            "fifo" => Self::Fifo { priority: number()? },
            "rr" => Self::RoundRobin { priority: number()? },
            "deadline" => {
                let times: Option<Vec<Duration>> = rest.split('/').map(time).collect();
                match times.as_deref() {
                    Some(&[runtime, deadline, period]) => Self::Deadline { runtime, deadline, period },
                    _ => return Err(refused(text)),
                }
            }
            _ => return Err(refused(text)),
        };
        policy.validate()?;
        Ok(policy)
    }
}

impl Policy {
    /// Refuses what no kernel takes.
    ///
    /// # Errors
    /// [`Error::Argument`].
    pub fn validate(&self) -> Result<(), Error> {
        let is_valid = match self {
            Self::Other { nice } => (-20..=19).contains(nice),
            Self::Fifo { priority } | Self::RoundRobin { priority } => (1..=99).contains(priority),
            Self::Deadline { runtime, deadline, period } => {
                *runtime >= Duration::from_nanos(1024)
                    && runtime <= deadline
                    && deadline <= period
                    && period.as_nanos() <= i64::MAX as u128
            }
        };
        if is_valid { Ok(()) } else { Err(refused(&self.to_string())) }
    }

    fn attributes(self) -> Attributes {
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let mut attributes = Attributes { size: size_of::<Attributes>() as u32, ..Attributes::default() };
        let policy = match self {
            Self::Other { nice } => {
                attributes.nice = nice;
                libc::SCHED_OTHER
            }
            Self::Fifo { priority } => {
                attributes.priority = priority.unsigned_abs();
                libc::SCHED_FIFO
            }
            Self::RoundRobin { priority } => {
                attributes.priority = priority.unsigned_abs();
                libc::SCHED_RR
            }
            Self::Deadline { runtime, deadline, period } => {
                attributes.runtime_ns = nanoseconds(runtime);
                attributes.deadline_ns = nanoseconds(deadline);
                attributes.period_ns = nanoseconds(period);
                libc::SCHED_DEADLINE
            }
        };
        attributes.policy = policy.unsigned_abs();
        if !matches!(self, Self::Other { .. }) {
            // What the thread starts does not inherit it.
            attributes.flags = libc::SCHED_FLAG_RESET_ON_FORK as u64;
        }
        attributes
    }

    /// The calling thread's policy; `None` for one that has no name here (batch, idle).
    pub fn read() -> Option<Self> {
        let attributes = read_attributes().ok()?;
        let priority = i32::try_from(attributes.priority).ok()?;
        match i32::try_from(attributes.policy).ok()? {
            libc::SCHED_OTHER => Some(Self::Other { nice: attributes.nice }),
            libc::SCHED_FIFO => Some(Self::Fifo { priority }),
            libc::SCHED_RR => Some(Self::RoundRobin { priority }),
            libc::SCHED_DEADLINE => Some(Self::Deadline {
                runtime: Duration::from_nanos(attributes.runtime_ns),
                deadline: Duration::from_nanos(attributes.deadline_ns),
                period: Duration::from_nanos(attributes.period_ns),
            }),
            _ => None,
        }
    }

    fn apply(self) -> Result<(), Error> {
        let mut attributes = self.attributes();
        if matches!(self, Self::Other { .. }) {
            // Taking the flag away needs a right, and it means nothing here.
            attributes.flags = read_attributes()?.flags & libc::SCHED_FLAG_RESET_ON_FORK as u64;
        }
        // SAFETY: of the calling thread; the structure says itself how long it is.
        let answer = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
        if answer == 0 { Ok(()) } else { Err(Error::System { what: "policy", errno: errno() }) }
    }
}

/// `struct sched_attr` of linux/sched/types.h, its first version.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
}

fn read_attributes() -> Result<Attributes, Error> {
    let mut attributes = Attributes::default();
    let size = size_of::<Attributes>();
    // SAFETY: of the calling thread; the kernel writes at most `size` bytes.
    let answer = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) };
    if answer == 0 { Ok(attributes) } else { Err(Error::System { what: "policy", errno: errno() }) }
}

/// A set of CPUs, as text: `1`, `2-3,5`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Cpus([u64; WORDS]);

const WORDS: usize = 16;

impl Cpus {
    /// The first number that is none.
    pub const END: usize = WORDS * 64;

    /// Whether it has this one.
    pub fn has(&self, cpu: usize) -> bool {
        self.0.get(cpu / 64).is_some_and(|word| word >> (cpu % 64) & 1 == 1)
    }

    /// Those that the calling thread may run on.
    pub fn read() -> Option<Self> {
        let mut cpus = Self([0; WORDS]);
        let bytes = size_of::<[u64; WORDS]>();
        // SAFETY: of the calling thread; the kernel writes at most so many bytes.
        let answer = unsafe { libc::syscall(libc::SYS_sched_getaffinity, 0, bytes, cpus.0.as_mut_ptr()) };
        (answer > 0).then_some(cpus)
    }

    fn apply(&self) -> Result<(), Error> {
        let bytes = size_of::<[u64; WORDS]>();
        // SAFETY: of the calling thread; the kernel reads so many bytes.
        let answer = unsafe { libc::syscall(libc::SYS_sched_setaffinity, 0, bytes, self.0.as_ptr()) };
        if answer == 0 { Ok(()) } else { Err(Error::System { what: "cpus", errno: errno() }) }
    }
}

impl FromStr for Cpus {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let error = || Error::Argument {
            what: "cpus",
            received: format!("{text:?}"),
            accepted: "numbers below 1024 and ranges, such as 1 or 2-3,5",
        };
        let mut words = [0u64; WORDS];
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let number = |text: &str| text.trim().parse::<usize>().map_err(|_| error());
            let (first, last) = (number(first)?, number(last)?);
            if first > last || last >= Self::END {
                return Err(error());
            }
            for cpu in first..=last {
                words[cpu / 64] |= 1 << (cpu % 64);
            }
        }
        Ok(Self(words))
    }
}

impl fmt::Display for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut is_first = true;
        let mut cpu = 0;
        while cpu < Self::END {
            if !self.has(cpu) {
                cpu += 1;
                continue;
            }
            let last = (cpu..Self::END).take_while(|&cpu| self.has(cpu)).last().unwrap_or(cpu);
            let comma = if is_first { "" } else { "," };
            match last == cpu {
                true => write!(f, "{comma}{cpu}")?,
                false => write!(f, "{comma}{cpu}-{last}")?,
            }
            is_first = false;
            cpu = last + 1;
        }
        Ok(())
    }
}

impl fmt::Debug for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cpus({self})")
    }
}

/// Which memory of the process stays resident.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LockMemory {
    /// As it is.
    #[default]
    Keep,
    /// What is mapped now.
    Current,
    /// What is mapped now and later. Later stacks are resident as a whole: choose small ones.
    All,
}

/// What a thread is to have; what is left out stays as it is.
///
/// ```
/// use takt_sdk::{LockMemory, ThreadSettings};
///
/// let mut settings = ThreadSettings { lock_memory: LockMemory::All, ..Default::default() };
/// settings.policy = Some("fifo:80".parse()?);
/// let granted = settings.apply()?;
/// for difference in &granted.differences {
///     eprintln!("{difference}"); // what was not granted, and how to get it
/// }
/// # Ok::<(), takt_sdk::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ThreadSettings {
    /// The policy.
    pub policy: Option<Policy>,
    /// Where it may run.
    pub cpus: Option<Cpus>,
    /// Of the whole process.
    pub lock_memory: LockMemory,
    /// So much of the stack is touched now.
    pub prefault_stack_bytes: usize,
    /// So much heap is touched now, and kept by the allocator (glibc).
    pub prefault_heap_bytes: usize,
}

/// A setting that was not granted as asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// Locked memory.
    Memory,
    /// CPUs.
    Cpus,
    /// Policy.
    Policy,
    /// Prefaulted stack.
    Stack,
}

/// What is not as asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// What.
    pub setting: Setting,
    /// A sentence with the way out.
    pub why: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

/// What the thread has, read back from the kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Granted {
    /// The thread.
    pub tid: i32,
    /// Its policy; `None` for one that has no name here.
    pub policy: Option<Policy>,
    /// Where it may run.
    pub cpus: Option<Cpus>,
    /// Locked memory of the process.
    pub locked_bytes: u64,
    /// What is not as asked.
    pub differences: Vec<Difference>,
}

impl ThreadSettings {
    /// Gives the calling thread these settings and reads back what it has. Goes on after a refusal.
    /// Call it before the loop: locking memory takes milliseconds.
    ///
    /// # Errors
    /// [`Error::Argument`] for what no kernel takes.
    pub fn apply(&self) -> Result<Granted, Error> {
        self.policy.map_or(Ok(()), |policy| policy.validate())?;
        let mut differences = Vec::new();
        let mut refused = |setting, why: String| differences.push(Difference { setting, why });
        if self.lock_memory != LockMemory::Keep
            && let Err(errno) = lock_memory(self.lock_memory)
        {
            let reason = std::io::Error::from_raw_os_error(errno);
            refused(
                Setting::Memory,
                format!(
                    "memory is not locked: {reason}. Raise RLIMIT_MEMLOCK (`ulimit -l unlimited`, or memlock in \
                     /etc/security/limits.d), or grant CAP_IPC_LOCK"
                ),
            );
        }
        if self.prefault_heap_bytes > 0 {
            prefault_heap(self.prefault_heap_bytes);
        }
        if self.prefault_stack_bytes > 0 && !prefault_stack(self.prefault_stack_bytes) {
            let asked = self.prefault_stack_bytes;
            refused(
                Setting::Stack,
                format!(
                    "{asked} bytes of stack are not prefaulted: the thread's stack is smaller. Ask for less, or start the thread with a larger stack"
                ),
            );
        }
        if let Some(cpus) = self.cpus {
            let outcome = cpus.apply();
            let has = Cpus::read();
            if outcome.is_err() || has != Some(cpus) {
                let has = has.map_or_else(|| "unreadable".to_owned(), |has| has.to_string());
                refused(
                    Setting::Cpus,
                    format!(
                        "cpus: asked {cpus}, has {has}{}. Ask for CPUs that are online and in the thread's control group",
                        reason(&outcome)
                    ),
                );
            }
        }
        // Last: the steps above should not run before others at a real-time priority.
        if let Some(policy) = self.policy {
            let outcome = policy.apply();
            let has = Policy::read();
            if outcome.is_err() || has != Some(policy) {
                let has = has.map_or_else(|| "another one".to_owned(), |has| has.to_string());
                refused(
                    Setting::Policy,
                    format!(
                        "policy: asked {policy}, has {has}{}. Raise RLIMIT_RTPRIO (rtprio in /etc/security/limits.d), grant \
                         CAP_SYS_NICE, or run as root; `takt doctor` finds what is missing",
                        reason(&outcome)
                    ),
                );
            }
        }
        Ok(Granted {
            tid: own_tid().cast_signed(),
            policy: Policy::read(),
            cpus: Cpus::read(),
            locked_bytes: locked_bytes(),
            differences,
        })
    }
}

fn reason(outcome: &Result<(), Error>) -> String {
    match outcome {
        Ok(()) => String::new(),
        Err(Error::System { errno, .. }) => format!(": {}", std::io::Error::from_raw_os_error(*errno)),
        Err(error) => format!(": {error}"),
    }
}

fn lock_memory(what: LockMemory) -> Result<(), i32> {
    let flags = match what {
        LockMemory::Keep => return Ok(()),
        LockMemory::Current => libc::MCL_CURRENT,
        LockMemory::All => libc::MCL_CURRENT | libc::MCL_FUTURE,
    };
    // SAFETY: takes flags alone and invalidates nothing.
    if unsafe { libc::mlockall(flags) } == 0 { Ok(()) } else { Err(errno()) }
}

/// `VmLck` of this process.
fn locked_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = text.lines().find_map(|line| line.strip_prefix("VmLck:"));
    let kib = field.and_then(|rest| rest.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

const PAGE: usize = 4096;
const CHUNK: usize = 4 * PAGE;

/// Of the stack below the caller, what is left for others.
const LEFT: usize = 64 << 10;

/// Touches so much of the stack below the caller; false where there is not so much.
fn prefault_stack(bytes: usize) -> bool {
    #[inline(never)]
    fn descend(left: usize) -> u8 {
        let mut chunk = [0u8; CHUNK];
        for page in chunk.chunks_mut(PAGE) {
            // SAFETY: a write within the array; volatile, so that it is not dropped.
            unsafe { std::ptr::write_volatile(&raw mut page[0], 1) };
        }
        // Adding to the result keeps this from becoming a loop that reuses one frame.
        let below = if left > CHUNK { descend(left - CHUNK) } else { 0 };
        std::hint::black_box(&chunk)[0].wrapping_add(below)
    }
    let here = 0u8;
    let Some(lowest) = lowest_of_the_stack() else { return false };
    let available = (&raw const here as usize).saturating_sub(lowest);
    if bytes.saturating_add(bytes / 8).saturating_add(LEFT) > available {
        return false;
    }
    std::hint::black_box(descend(bytes));
    true
}

/// The lowest address of the calling thread's stack.
fn lowest_of_the_stack() -> Option<usize> {
    let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
    let mut address = std::ptr::null_mut();
    let mut bytes = 0;
    // SAFETY: the first call initialises the attributes; they are read and destroyed once.
    unsafe {
        if libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr()) != 0 {
            return None;
        }
        let found = libc::pthread_attr_getstack(attributes.as_ptr(), &raw mut address, &raw mut bytes);
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        (found == 0).then_some(address as usize)
    }
}

/// Touches so much heap and gives it back to the allocator, which keeps it.
fn prefault_heap(bytes: usize) {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt changes thresholds under malloc's own lock.
    unsafe {
        libc::mallopt(libc::M_TRIM_THRESHOLD, i32::MAX);
        // The greatest that glibc takes on 64 bits: larger blocks are mapped and given back.
        libc::mallopt(libc::M_MMAP_THRESHOLD, 32 << 20);
    }
    // In parts that come from the heap.
    const PART: usize = 1 << 20;
    let mut parts: Vec<*mut libc::c_void> = Vec::new();
    for _ in 0..bytes.div_ceil(PART) {
        // SAFETY: a block of this size, or null.
        let part = unsafe { libc::malloc(PART) };
        if part.is_null() {
            break;
        }
        for at in (0..PART).step_by(PAGE) {
            // SAFETY: within the block; volatile, so that it is not dropped.
            unsafe { part.cast::<u8>().add(at).write_volatile(0) };
        }
        parts.push(part);
    }
    for part in parts {
        // SAFETY: from malloc above, freed once.
        unsafe { libc::free(part) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_and_cpus_are_read_as_they_are_written() {
        for text in ["other", "other:-5", "fifo:80", "rr:1", "deadline:500us/2000us/2000us"] {
            assert_eq!(text.parse::<Policy>().unwrap().to_string(), text);
        }
        assert_eq!(
            "deadline:0.5ms/2 ms/2ms".parse::<Policy>().unwrap().to_string(),
            "deadline:500us/2000us/2000us"
        );
        for text in [
            "",
            "fifo",
            "fifo:0",
            "fifo:100",
            "rr:x",
            "other:20",
            "deadline:1ms/1ms",
            "deadline:2ms/1ms/1ms",
            "idle",
        ] {
            assert!(text.parse::<Policy>().unwrap_err().to_string().contains("accepted: other"), "{text}");
        }
        for (text, shown) in [("1", "1"), ("2-3,5", "2-3,5"), ("0,1,2", "0-2"), ("1023", "1023")] {
            assert_eq!(text.parse::<Cpus>().unwrap().to_string(), shown);
        }
        for text in ["", "a", "3-2", "1024", "1,,2", "-1"] {
            assert!(text.parse::<Cpus>().is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_granted_is_what_the_kernel_says() {
        std::thread::spawn(|| {
            let first = (0..Cpus::END).find(|&cpu| Cpus::read().unwrap().has(cpu)).unwrap();
            let settings = ThreadSettings {
                policy: Some(Policy::Other { nice: 3 }),
                cpus: Some(first.to_string().parse().unwrap()),
                prefault_stack_bytes: 100_000,
                prefault_heap_bytes: 1 << 20,
                ..ThreadSettings::default()
            };
            let granted = settings.apply().unwrap();
            assert_eq!(granted.differences, []);
            assert_eq!(granted.cpus, settings.cpus);
            // The kernel's own text.
            let text = std::fs::read_to_string("/proc/thread-self/status").unwrap();
            let line = text.lines().find(|line| line.starts_with("Cpus_allowed_list:")).unwrap();
            assert!(line.ends_with(&format!("\t{first}")), "{line}");
            let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
            assert_eq!(stat.rsplit(')').next().unwrap().split_whitespace().nth(16), Some("3"));
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_refusal_is_a_sentence_and_the_rest_is_done() {
        std::thread::Builder::new()
            .stack_size(256 << 10)
            .spawn(|| {
                let settings = ThreadSettings {
                    policy: Some(Policy::Other { nice: 4 }),
                    cpus: Some("1023".parse().unwrap()),
                    prefault_stack_bytes: 1 << 20,
                    ..ThreadSettings::default()
                };
                let granted = settings.apply().unwrap();
                let which: Vec<Setting> = granted.differences.iter().map(|one| one.setting).collect();
                assert_eq!(which, [Setting::Stack, Setting::Cpus]);
                assert!(granted.differences[1].why.starts_with("cpus: asked 1023, has "));
                assert_eq!(granted.policy, settings.policy);
                let impossible = ThreadSettings { policy: Some(Policy::Fifo { priority: 120 }), ..settings };
                assert!(matches!(impossible.apply(), Err(Error::Argument { .. })));
            })
            .unwrap()
            .join()
            .unwrap();
    }
}

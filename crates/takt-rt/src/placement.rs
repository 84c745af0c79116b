//! On which CPUs a thread may run.

use std::fmt;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::{Cause, Error};
use crate::sys;

const WORDS: usize = libc::CPU_SETSIZE as usize / 64;

/// A set of CPUs, written as the kernel writes it: `0-3,5`.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct CpuSet {
    words: [u64; WORDS],
}

impl CpuSet {
    /// Highest CPU number that a set can hold (`CPU_SETSIZE` of the C library, less one).
    pub const MAX_CPU: usize = WORDS * 64 - 1;

    /// The set without CPUs.
    pub const EMPTY: Self = Self { words: [0; WORDS] };

    /// The set of one CPU.
    pub fn single(cpu: usize) -> Result<Self, Error> {
        let error = || Error::InvalidCpuList {
            given: cpu.to_string(),
            reason: format!("CPU {cpu} is beyond the highest"),
        };
        Self::from_cpus([cpu]).ok_or_else(error)
    }

    /// The set of the given CPUs; `None` when one is beyond [`MAX_CPU`](Self::MAX_CPU).
    pub fn from_cpus(cpus: impl IntoIterator<Item = usize>) -> Option<Self> {
        let mut set = Self::EMPTY;
        cpus.into_iter().all(|cpu| set.insert(cpu)).then_some(set)
    }

    /// Adds a CPU; false when it is beyond [`MAX_CPU`](Self::MAX_CPU).
    pub fn insert(&mut self, cpu: usize) -> bool {
        let Some(word) = self.words.get_mut(cpu / 64) else { return false };
        *word |= 1 << (cpu % 64);
        true
    }

    /// Whether the set holds `cpu`.
    pub fn contains(&self, cpu: usize) -> bool {
        self.words.get(cpu / 64).is_some_and(|word| word >> (cpu % 64) & 1 == 1)
    }

    /// The CPUs in rising order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        (0..=Self::MAX_CPU).filter(|&cpu| self.contains(cpu))
    }

    /// Number of CPUs in the set.
    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether the set holds none.
    pub fn is_empty(&self) -> bool {
        self.words == [0; WORDS]
    }

    /// The CPUs that are in this set and in `other`.
    pub fn both(&self, other: &Self) -> Self {
        Self { words: std::array::from_fn(|i| self.words[i] & other.words[i]) }
    }

    /// The CPUs that are in this set or in `other`.
    pub fn or(&self, other: &Self) -> Self {
        Self { words: std::array::from_fn(|i| self.words[i] | other.words[i]) }
    }

    /// The CPUs of this set that are not in `other`.
    pub fn without(&self, other: &Self) -> Self {
        Self { words: std::array::from_fn(|i| self.words[i] & !other.words[i]) }
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        let mut cpu = 0;
        while cpu <= Self::MAX_CPU {
            if !self.contains(cpu) {
                cpu += 1;
                continue;
            }
            let first = cpu;
            while self.contains(cpu + 1) {
                cpu += 1;
            }
            match cpu - first {
                0 => write!(f, "{separator}{first}")?,
                _ => write!(f, "{separator}{first}-{cpu}")?,
            }
            separator = ",";
            cpu += 1;
        }
        Ok(())
    }
}

impl fmt::Debug for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CpuSet({self})")
    }
}

impl FromStr for CpuSet {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let error = |reason: String| Error::InvalidCpuList { given: text.to_owned(), reason };
        let number = |part: &str| match part.trim().parse::<usize>() {
            Ok(cpu) if cpu <= Self::MAX_CPU => Ok(cpu),
            Ok(cpu) => Err(error(format!("CPU {cpu} is beyond the highest"))),
            Err(_) => Err(error(format!("`{part}` is not a CPU number"))),
        };
        let mut set = Self::EMPTY;
        for part in text.trim().split(',') {
            let (first, last) = match part.split_once('-') {
                Some((first, last)) => (number(first)?, number(last)?),
                None => (number(part)?, number(part)?),
            };
            if first > last {
                return Err(error(format!("the range `{part}` runs backwards")));
            }
            for cpu in first..=last {
                set.insert(cpu);
            }
        }
        Ok(set)
    }
}

impl Serialize for CpuSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for CpuSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// The CPUs that are online (`/sys/devices/system/cpu/online`).
pub fn online() -> Result<CpuSet, Error> {
    let path = PathBuf::from("/sys/devices/system/cpu/online");
    match fs::read_to_string(&path) {
        Ok(text) => text.trim().parse().map_err(|_| Error::Unexpected {
            path,
            expected: "a CPU list",
            found: text.trim().to_owned(),
        }),
        Err(source) => Err(Error::File { path, source, fix: String::new() }),
    }
}

/// CPUs on which thread `tid` (0: the calling one) may run.
pub fn affinity(tid: i32) -> Result<CpuSet, Error> {
    let mut set = CpuSet::EMPTY;
    // SAFETY: the kernel writes at most the given size of bytes into the array.
    let rc = unsafe {
        libc::sched_getaffinity(
            tid,
            size_of_val(&set.words),
            set.words.as_mut_ptr().cast::<libc::cpu_set_t>(),
        )
    };
    match rc {
        0 => Ok(set),
        _ => {
            let source = io::Error::last_os_error();
            let cause = sys::common_cause(&source);
            Err(Error::Refused {
                setting: format!("reading the CPU affinity of thread {tid}"),
                fix: "check that the thread is alive".into(),
                cause,
                source,
            })
        }
    }
}

/// Lets the calling thread run wherever its cpuset permits, isolated CPUs included.
pub(crate) fn ask_for_all_cpus() -> io::Result<()> {
    let all = [u64::MAX; WORDS];
    // SAFETY: the kernel reads the given size of bytes from the array.
    let rc = unsafe { libc::sched_setaffinity(0, size_of_val(&all), all.as_ptr().cast::<libc::cpu_set_t>()) };
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// As [`set_affinity`], with the system's own answer; CPUs that are not online are left out by the
/// kernel.
///
/// # Errors
/// The system's error.
pub fn try_affinity(tid: i32, cpus: &CpuSet) -> io::Result<()> {
    // SAFETY: the kernel reads the given size of bytes from the array.
    let rc = unsafe {
        libc::sched_setaffinity(tid, size_of_val(&cpus.words), cpus.words.as_ptr().cast::<libc::cpu_set_t>())
    };
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Binds thread `tid` (0: the calling one) to `cpus`; the effective set is what [`affinity`] reads
/// back.
///
/// # Errors
/// [`Error::CpusOffline`] when a CPU is not online (the kernel would drop it without a word), else
/// the kernel's refusal.
pub fn set_affinity(tid: i32, cpus: &CpuSet) -> Result<(), Error> {
    if cpus.is_empty() {
        return Err(Error::InvalidCpuList { given: String::new(), reason: "the list is empty".into() });
    }
    let online = online()?;
    let missing = cpus.without(&online);
    if !missing.is_empty() {
        let (asked, online, missing) = (Box::new(*cpus), Box::new(online), Box::new(missing));
        return Err(Error::CpusOffline { asked, online, missing });
    }
    let Err(source) = try_affinity(tid, cpus) else { return Ok(()) };
    let (cause, fix) = match source.raw_os_error() {
        // sched_setaffinity answers EBUSY when a SCHED_DEADLINE thread would lose a CPU of its
        // domain.
        Some(libc::EBUSY) => {
            let cause = Cause::DeadlineAffinity { allowed: Box::new(*cpus), online: Box::new(online) };
            (cause, sys::DEADLINE_AFFINITY_FIX.into())
        }
        Some(libc::EINVAL) => (
            Cause::Unknown,
            "choose CPUs of this process's cpuset: `grep Cpus_allowed_list /proc/self/status`".to_owned(),
        ),
        Some(libc::EPERM) => (Cause::MissingCapability("CAP_SYS_NICE"), sys::nice_fix()),
        _ => (sys::common_cause(&source), "check that the thread is alive".into()),
    };
    Err(Error::Refused { setting: format!("binding thread {tid} to CPUs {cpus}"), cause, fix, source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn reads_lists() {
        let set: CpuSet = "0-3,5".parse().unwrap();
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 1, 2, 3, 5]);
        assert_eq!(set.to_string(), "0-3,5");
        assert_eq!("1023".parse::<CpuSet>().unwrap().iter().next(), Some(1023));
        for text in ["", ",", "a", "3-1", "1024", "0-", "-1", "0--1", "99999999999999999999"] {
            assert!(text.parse::<CpuSet>().is_err(), "{text}");
        }
    }

    #[test]
    fn binding_is_read_back_and_offline_cpus_are_refused() {
        std::thread::spawn(|| {
            let allowed = affinity(0).unwrap();
            let one = CpuSet::single(allowed.iter().next().unwrap()).unwrap();
            set_affinity(0, &one).unwrap();
            assert_eq!(affinity(0).unwrap(), one);
            let far = CpuSet::single(CpuSet::MAX_CPU).unwrap();
            assert!(matches!(set_affinity(0, &far), Err(Error::CpusOffline { .. })));
            assert!(set_affinity(0, &CpuSet::EMPTY).is_err());
            assert_eq!(affinity(0).unwrap(), one);
        })
        .join()
        .unwrap();
        assert!(matches!(affinity(i32::MAX), Err(Error::Refused { cause: Cause::NoSuchThread, .. })));
    }

    proptest! {
        #[test]
        fn display_and_parse_agree(cpus in proptest::collection::btree_set(0usize..=CpuSet::MAX_CPU, 1..40)) {
            let set = CpuSet::from_cpus(cpus.iter().copied()).unwrap();
            prop_assert_eq!(set.len(), cpus.len());
            prop_assert_eq!(set.iter().collect::<BTreeSet<_>>(), cpus);
            prop_assert_eq!(set.to_string().parse::<CpuSet>().unwrap(), set);
        }

        #[test]
        fn parsing_never_panics(text in "[0-9,\\- a]{0,20}") {
            if let Ok(set) = text.parse::<CpuSet>() {
                prop_assert!(!set.is_empty());
            }
        }
    }
}

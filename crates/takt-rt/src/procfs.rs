//! Reads processes, threads and CPUs from `/proc` for observers: ids, names, fields of `stat`,
//! processor time. Not for real-time threads.
//!
//! The crate `procfs` (0.18, without default features) was tried on the same threads: 30 % more CPU
//! for each (9.5 us against 7.3 us, 65 threads, release) and more system calls, because it opens
//! the folder of each thread beside its file.

use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::sys;

/// More than a line of `stat` or a name.
const AT_ONCE: usize = 1024;

/// A file of `/proc`. `fs::read` would ask for size and position of what has none, and grow from 32
/// bytes, which costs a quarter more; `take` keeps a file from asking.
fn read(path: &str) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(AT_ONCE);
    File::open(path)?.take(u64::MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Entries of a folder that are numbers, in no order: processes of `/proc`, interrupts of
/// `/proc/irq`. None where it cannot be read.
pub fn numbers<T: FromStr>(folder: impl AsRef<Path>) -> impl Iterator<Item = T> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The threads of a process, in no order; `"self"` is this one.
pub fn threads<T: FromStr>(pid: impl Display) -> impl Iterator<Item = T> {
    numbers(format!("/proc/{pid}/task"))
}

/// The name of a thread, as the kernel keeps it (15 bytes).
pub fn thread_name(pid: impl Display, tid: impl Display) -> Option<String> {
    let name = read(&format!("/proc/{pid}/task/{tid}/comm")).ok()?;
    Some(String::from_utf8_lossy(name.strip_suffix(b"\n").unwrap_or(&name)).into_owned())
}

/// Whether there is such a process, or what is left of it.
pub fn exists(pid: impl Display) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

/// A `stat` file of a process or a thread (proc_pid_stat(5)).
#[derive(Debug, Clone)]
pub struct Stat<B = Vec<u8>> {
    bytes: B,
    /// Offset of the end of the name.
    end: usize,
}

impl Stat {
    /// Of a process.
    pub fn of(pid: impl Display) -> Option<Self> {
        Self::parse(read(&format!("/proc/{pid}/stat")).ok()?)
    }

    /// Of one thread of a process.
    pub fn of_thread(pid: impl Display, tid: impl Display) -> Option<Self> {
        Self::parse(read(&format!("/proc/{pid}/task/{tid}/stat")).ok()?)
    }
}

impl<B: AsRef<[u8]>> Stat<B> {
    /// Of the contents of such a file. The name may hold spaces, parentheses and other bytes than
    /// text; the last parenthesis ends it.
    pub fn parse(bytes: B) -> Option<Self> {
        let end = bytes.as_ref().iter().rposition(|&byte| byte == b')')?;
        Some(Self { bytes, end })
    }

    /// The name of the program or thread.
    pub fn name(&self) -> String {
        let before = &self.bytes.as_ref()[..self.end];
        let begin = before.iter().position(|&byte| byte == b'(').map_or(0, |at| at + 1);
        String::from_utf8_lossy(&before[begin..]).into_owned()
    }

    /// A field behind the name, by its number in the manual page; the third, the state, is the
    /// first.
    pub fn field(&self, number: usize) -> Option<&str> {
        let rest = std::str::from_utf8(&self.bytes.as_ref()[self.end + 1..]).ok()?;
        rest.split_ascii_whitespace().nth(number.checked_sub(3)?)
    }

    /// Such a field as a number.
    pub fn number<T: FromStr>(&self, number: usize) -> Option<T> {
        self.field(number)?.parse().ok()
    }

    /// Whether it runs or can run again: a zombie does not.
    pub fn is_alive(&self) -> bool {
        self.field(3).is_some_and(|state| !matches!(state, "Z" | "X"))
    }

    /// The process that started it, or has adopted it since.
    pub fn parent<T: FromStr>(&self) -> Option<T> {
        self.number(4)
    }

    /// When it was started, clock ticks since boot: with the id this names a process or thread, for
    /// ids are used again.
    pub fn start_ticks(&self) -> Option<u64> {
        self.number(22)
    }
}

/// Effective capabilities of the calling thread (`CapEff` of its status, capabilities(7)), a bit
/// for each; `None` where they cannot be reported.
pub fn capabilities() -> Option<u64> {
    u64::from_str_radix(&sys::status_field("CapEff:")?, 16).ok()
}

/// Length of a tick in the counters of `/proc`: 10 ms on every architecture of today.
pub fn tick_ns() -> u64 {
    // SAFETY: sysconf takes one integer.
    let per_s = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    1_000_000_000 / u64::try_from(per_s).unwrap_or(100).max(1)
}

/// Processor time since boot, of one CPU or of all, in clock ticks: the first lines of `/proc/stat`
/// (proc_stat(5)).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// Time that the hypervisor gave to others while this machine wanted to run.
    pub steal: u64,
    /// Nothing to run, waits for I/O included.
    pub idle: u64,
    /// All time, stolen time included.
    pub total: u64,
}

impl CpuTime {
    /// Of all CPUs now; zeros where the kernel does not report.
    pub fn read() -> Self {
        fs::read_to_string("/proc/stat").ok().and_then(|text| Self::of_all(&text)).unwrap_or_default()
    }

    /// Of each CPU now; none where the kernel does not report.
    pub fn read_by_cpu() -> Vec<(usize, Self)> {
        fs::read_to_string("/proc/stat").map_or_else(|_| Vec::new(), |text| Self::by_cpu(&text).collect())
    }

    /// Of all CPUs, from the text of `/proc/stat`.
    pub fn of_all(text: &str) -> Option<Self> {
        text.lines().find_map(|line| Self::parse(line.strip_prefix("cpu ")?))
    }

    /// Of each CPU, from the text of `/proc/stat`.
    pub fn by_cpu(text: &str) -> impl Iterator<Item = (usize, Self)> + '_ {
        text.lines().filter_map(|line| {
            let (cpu, ticks) = line.strip_prefix("cpu")?.split_once(' ')?;
            Some((cpu.parse().ok()?, Self::parse(ticks)?))
        })
    }

    /// The numbers of a line: user, nice, system, idle, iowait, irq, softirq, steal. Guests' time
    /// behind them is within user's.
    fn parse(line: &str) -> Option<Self> {
        let mut ticks = [0; 8];
        let mut words = line.split_ascii_whitespace();
        for tick in &mut ticks {
            *tick = words.next()?.parse().ok()?;
        }
        let total = ticks.iter().fold(0u64, |sum, &tick| sum.saturating_add(tick));
        Some(Self { steal: ticks[7], idle: ticks[3].saturating_add(ticks[4]), total })
    }

    /// Stolen time in nanoseconds, in steps of a tick.
    pub fn steal_ns(&self) -> u64 {
        self.steal.saturating_mul(tick_ns())
    }

    /// Shares of the time between `earlier` and `self`.
    pub fn since(&self, earlier: &Self) -> CpuShare {
        let total = self.total.saturating_sub(earlier.total);
        let share = |ticks: u64| if total == 0 { 0.0 } else { ticks as f64 / total as f64 };
        let idle = self.idle.saturating_sub(earlier.idle);
        CpuShare {
            stolen: share(self.steal.saturating_sub(earlier.steal)),
            busy: share(total.saturating_sub(idle)),
        }
    }
}

/// Shares of processor time, 0..=1.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuShare {
    /// Taken by the hypervisor.
    pub stolen: f64,
    /// Not idle (stolen time included).
    pub busy: f64,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn fields_are_found_whatever_the_name() {
        let stat =
            Stat::parse("42 (a) b (c) S 7 9 9 0 -1 4194560 1 2 3 4 50 60 7 8 20 0 1 0 100 5000 77").unwrap();
        assert_eq!((stat.name().as_str(), stat.field(3), stat.parent()), ("a) b (c", Some("S"), Some(7)));
        assert_eq!((stat.start_ticks(), stat.number(24), stat.field(25)), (Some(100), Some(77_u64), None));
        assert_eq!((stat.field(2), stat.number::<u64>(8)), (None, None), "-1 is no u64");
        let odd = Stat::parse(b"1 (\xff) Z 1".as_slice()).unwrap();
        assert!(odd.name() == "\u{fffd}" && !odd.is_alive() && odd.parent() == Some(1));
    }

    #[test]
    fn files_longer_than_one_reading_are_whole() {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/src/procfs.rs");
        let long = fs::read(source).unwrap();
        assert!(long.len() > 4 * AT_ONCE);
        assert_eq!(read(source).unwrap(), long);
        let short = format!("/proc/self/task/{}/comm", crate::sys::gettid());
        assert_eq!(read(&short).unwrap(), fs::read(&short).unwrap());
        assert!(read("/proc/self/no such file").is_err());
    }

    #[test]
    fn this_thread_is_listed_named_and_alive() {
        std::thread::Builder::new()
            .name("takt-procfs".into())
            .spawn(|| {
                let (pid, tid) = (std::process::id(), crate::sys::gettid());
                assert!(numbers("/proc").any(|number: u32| number == pid) && exists(pid));
                assert!(threads("self").any(|thread: i32| thread == tid));
                assert_eq!(thread_name("self", tid).unwrap(), "takt-procfs");
                let stat = Stat::of_thread(pid, tid).unwrap();
                assert!(stat.is_alive() && stat.name() == "takt-procfs" && stat.start_ticks().is_some());
            })
            .unwrap()
            .join()
            .unwrap();
        assert!(
            Stat::of(u32::MAX).is_none() && !exists(u32::MAX) && threads::<i32>(u32::MAX).next().is_none()
        );
    }

    #[test]
    fn processor_time_is_read_of_all_and_by_cpu() {
        let text = "cpu  100 0 50 800 20 0 5 25 7 0\ncpu0 1 2 3 4 5 6 7 8\ncpu12 1 2 3 4 5 6 7 9 1\ncpu3 1 2\n\
                    cpux 1 2 3 4 5 6 7 8 9\nintr 5 5 5 5 5 5 5 5 5\n";
        let before = CpuTime::of_all(text).unwrap();
        assert_eq!(before, CpuTime { steal: 25, idle: 820, total: 1000 });
        let at = |steal| CpuTime { steal, idle: 9, total: 28 + steal };
        assert_eq!(CpuTime::by_cpu(text).collect::<Vec<_>>(), [(0, at(8)), (12, at(9))]);
        assert_eq!(at(9).steal_ns(), 9 * tick_ns());
        let after = CpuTime::of_all("cpu  150 0 50 820 20 0 5 55 0 0\n").unwrap();
        assert_eq!(after.since(&before), CpuShare { stolen: 0.3, busy: 0.8 });
        assert_eq!(CpuTime::of_all("garbage"), None);
        assert_eq!(before.since(&after), CpuShare::default(), "after another boot");
        let now = CpuTime::read();
        assert!(now.total > 0 && now.idle <= now.total && CpuTime::read_by_cpu()[0].1.total <= now.total);
    }

    proptest! {
        #[test]
        fn any_line_of_a_cpu_is_survived(line: String, numbers: Vec<u64>) {
            let numbers: String = numbers.iter().map(|number| format!(" {number}")).collect();
            let _ = CpuTime::by_cpu(&format!("cpu{line}\ncpu0{numbers}\n")).count();
            let _ = CpuTime::of_all(&format!("cpu {numbers}")).map(|time| (time.steal_ns(), time.since(&time)));
        }

        #[test]
        fn any_bytes_are_survived(bytes: Vec<u8>, field: usize) {
            if let Some(stat) = Stat::parse(&bytes) {
                let _ = (stat.name(), stat.field(field), stat.start_ticks());
            }
        }
    }
}

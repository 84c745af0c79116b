//! What `/proc` says of processes and threads, for whoever observes them: ids, names, fields of `stat`. Not for real-time threads.

use std::fmt::Display;
use std::fs;
use std::path::Path;
use std::str::FromStr;

/// Entries of a folder that are numbers, in no order: processes of `/proc`, interrupts of `/proc/irq`. None where it cannot be read.
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
    let name = fs::read(format!("/proc/{pid}/task/{tid}/comm")).ok()?;
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
    /// Where the name ends.
    end: usize,
}

impl Stat {
    /// Of a process.
    pub fn of(pid: impl Display) -> Option<Self> {
        Self::parse(fs::read(format!("/proc/{pid}/stat")).ok()?)
    }

    /// Of one thread of a process.
    pub fn of_thread(pid: impl Display, tid: impl Display) -> Option<Self> {
        Self::parse(fs::read(format!("/proc/{pid}/task/{tid}/stat")).ok()?)
    }
}

impl<B: AsRef<[u8]>> Stat<B> {
    /// Of the contents of such a file. The name may hold spaces, parentheses and other bytes than text; the last parenthesis ends it.
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

    /// A field behind the name, by its number in the manual page; the third, the state, is the first.
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

    /// When it was started, clock ticks since boot: with the id this names a process or thread, for ids are used again.
    pub fn start_ticks(&self) -> Option<u64> {
        self.number(22)
    }
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

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes: Vec<u8>, field: usize) {
            if let Some(stat) = Stat::parse(&bytes) {
                let _ = (stat.name(), stat.field(field), stat.start_ticks());
            }
        }
    }
}

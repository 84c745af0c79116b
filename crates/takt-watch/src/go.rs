//! Programs in Go: their threads are the runtime's, which lends them to goroutines by turns, and
//! one of them (sysmon) belongs to nobody: it looks after the others every 20 us to 10 ms.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use takt_rt::procfs;

use crate::elf;

/// The watched programs in Go.
#[derive(Debug, Default)]
pub(crate) struct Gos {
    /// Processes with the program that they ran when they were looked at, and whether Go made it.
    known: BTreeMap<i32, (PathBuf, bool)>,
    /// Threads that look after others, with their processes.
    pub(crate) monitors: BTreeMap<i32, i32>,
}

impl Gos {
    /// Looks at the processes that are watched now.
    pub(crate) fn refresh(&mut self, processes: &BTreeSet<i32>) {
        self.known.retain(|pid, _| processes.contains(pid));
        self.monitors.retain(|_, pid| processes.contains(pid));
        for &pid in processes {
            let exe = format!("/proc/{pid}/exe");
            // Kernel threads have none.
            let Ok(program) = std::fs::read_link(&exe) else { continue };
            if self.known.get(&pid).is_none_or(|known| known.0 != program) {
                let is_go = elf::has_section(Path::new(&exe), ".go.buildinfo");
                self.known.insert(pid, (program, is_go));
            }
            if !self.is_go(pid) || self.monitors.values().any(|&of| of == pid) {
                continue;
            }
            let sleeps = |tid: i32| {
                let doing = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall"));
                doing.is_ok_and(|text| is_nanosleep(&text))
            };
            // The first that the runtime starts; goroutines sleep in futex and epoll_wait.
            let first = procfs::threads::<i32>(pid).filter(|&tid| tid != pid).min();
            if let Some(tid) = first.filter(|&tid| sleeps(tid)) {
                self.monitors.insert(tid, pid);
            }
        }
    }

    /// Whether a process runs a program in Go.
    pub(crate) fn is_go(&self, pid: i32) -> bool {
        self.known.get(&pid).is_some_and(|known| known.1)
    }
}

/// Whether `/proc/PID/task/TID/syscall` reports of a sleep for a time.
fn is_nanosleep(text: &str) -> bool {
    text.split(' ').next().and_then(|number| number.parse().ok()) == Some(libc::SYS_nanosleep)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_sleep_for_a_time_is_one() {
        assert!(is_nanosleep(&format!("{} 0x7ffc 0x0 0x0 0x7f00 0x45a0f3", libc::SYS_nanosleep)));
        for other in ["running", "-1 0x0 0x0", &format!("{} 0x1 0x80", libc::SYS_futex), ""] {
            assert!(!is_nanosleep(other), "{other}");
        }
    }

    #[test]
    fn a_program_of_another_language_is_none() {
        let own = std::process::id() as i32;
        let mut gos = Gos::default();
        gos.refresh(&BTreeSet::from([own, 2]));
        assert!(!gos.is_go(own) && !gos.is_go(2) && gos.monitors.is_empty());
    }
}

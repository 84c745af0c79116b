//! Other processes, as `/proc` shows them.

use std::collections::HashSet;

use takt_rt::procfs::{self, Stat};

/// A process at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    pub(crate) parent: i32,
    pub(crate) group: i32,
    /// No zombie.
    pub(crate) alive: bool,
    pub(crate) name: String,
    pub(crate) resident_pages: u64,
    /// CPU time, that of children it has waited for included, in clock ticks.
    pub(crate) cpu_ticks: u64,
    /// Its own time outside the kernel, in clock ticks.
    pub(crate) user_ticks: u64,
}

impl Process {
    pub(crate) fn read(pid: i32) -> Option<Self> {
        let stat = Stat::of(pid)?;
        Some(Self {
            pid,
            name: stat.name(),
            alive: stat.is_alive(),
            parent: stat.parent()?,
            group: stat.number(5)?,
            resident_pages: stat.number(24)?,
            user_ticks: stat.number(14)?,
            cpu_ticks: (14..=17).filter_map(|field| stat.number(field)).fold(0, u64::saturating_add),
        })
    }

    /// CPU time, that of children it has waited for included, nanoseconds in steps of a clock tick
    /// (10 ms).
    pub(crate) fn cpu_ns(&self) -> u64 {
        self.cpu_ticks.saturating_mul(procfs::tick_ns())
    }
}

/// Whether process `pid` is there and no zombie.
pub(crate) fn is_alive(pid: i32) -> bool {
    Stat::of(pid).is_some_and(|stat| stat.is_alive())
}

/// All processes now.
pub(crate) fn all() -> Vec<Process> {
    procfs::numbers("/proc").filter_map(Process::read).collect()
}

/// Whether a process of this group is there and no zombie.
pub(crate) fn any_alive_in(group: i32) -> bool {
    // The kernel answers for zombies as well, but at once when there is none at all.
    // SAFETY: kill takes two integers; signal 0 is none.
    let known = unsafe { libc::kill(-group, 0) } == 0;
    known && all().iter().any(|process| process.group == group && process.alive)
}

/// Living processes that `root` has started, directly or not.
pub(crate) fn descendants(root: i32, all: &[Process]) -> Vec<&Process> {
    let mut family = HashSet::from([root]);
    let mut found = Vec::new();
    loop {
        let before = found.len();
        for process in all {
            if family.contains(&process.parent) && family.insert(process.pid) && process.alive {
                found.push(process);
            }
        }
        if found.len() == before {
            return found;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_this_process() {
        let me = std::process::id() as i32;
        assert!(is_alive(me) && Process::read(me).unwrap().resident_pages > 0);
        assert!(!is_alive(i32::MAX));
    }

    #[test]
    fn children_of_children_are_found() {
        let process = |pid, parent| Process {
            pid,
            parent,
            group: 1,
            alive: pid != 5,
            name: String::new(),
            resident_pages: 0,
            cpu_ticks: 0,
            user_ticks: 0,
        };
        // Listed before its parent; a zombie; another family; a loop that cannot be.
        let all = [process(4, 3), process(3, 2), process(5, 2), process(8, 7), process(2, 4)];
        let pids: HashSet<_> = descendants(2, &all).iter().map(|process| process.pid).collect();
        assert_eq!(pids, HashSet::from([3, 4]));
    }
}

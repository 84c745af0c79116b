//! Other processes, as `/proc` shows them.

use std::collections::HashSet;
use std::fs;

/// A process at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    pub(crate) parent: i32,
    pub(crate) group: i32,
    pub(crate) state: char,
    pub(crate) name: String,
    pub(crate) resident_pages: u64,
    /// CPU time, that of children it has waited for included, in clock ticks.
    pub(crate) cpu_ticks: u64,
}

impl Process {
    pub(crate) fn is_alive(&self) -> bool {
        !matches!(self.state, 'Z' | 'X')
    }

    pub(crate) fn read(pid: i32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    fn parse(stat: &str) -> Option<Self> {
        // The name may hold spaces and parentheses; the last one ends it.
        let (head, rest) = stat.rsplit_once(')')?;
        let (pid, name) = head.split_once(" (")?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        Some(Self {
            pid: pid.parse().ok()?,
            name: name.to_owned(),
            state: fields.first()?.chars().next()?,
            parent: fields.get(1)?.parse().ok()?,
            group: fields.get(2)?.parse().ok()?,
            resident_pages: fields.get(21)?.parse().ok()?,
            cpu_ticks: fields
                .get(11..15)?
                .iter()
                .filter_map(|field| field.parse::<u64>().ok())
                .fold(0, u64::saturating_add),
        })
    }

    /// CPU time, that of children it has waited for included, nanoseconds in steps of a clock tick (10 ms).
    pub(crate) fn cpu_ns(&self) -> u64 {
        // SAFETY: sysconf takes one integer.
        let per_s = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
        self.cpu_ticks.saturating_mul(1_000_000_000 / u64::try_from(per_s).unwrap_or(100).max(1))
    }
}

/// Whether process `pid` is there and no zombie.
pub(crate) fn is_alive(pid: i32) -> bool {
    Process::read(pid).is_some_and(|process| process.is_alive())
}

/// All processes now.
pub(crate) fn all() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter_map(Process::read).collect()
}

/// Whether a process of this group is there and no zombie.
pub(crate) fn any_alive_in(group: i32) -> bool {
    // The kernel answers for zombies as well, but at once when there is none at all.
    // SAFETY: kill takes two integers; signal 0 is none.
    let known = unsafe { libc::kill(-group, 0) } == 0;
    known && all().iter().any(|process| process.group == group && process.is_alive())
}

/// What `root` has started, directly or not, and is alive.
pub(crate) fn descendants(root: i32, all: &[Process]) -> Vec<&Process> {
    let mut family = HashSet::from([root]);
    let mut found = Vec::new();
    loop {
        let before = found.len();
        for process in all {
            if family.contains(&process.parent) && family.insert(process.pid) && process.is_alive() {
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
    use proptest::prelude::*;

    #[test]
    fn reads_processes_with_odd_names() {
        let stat =
            "42 (a) b (c) S 7 9 9 0 -1 4194560 1 2 3 4 50 60 7 8 20 0 1 0 100 5000 77 18446744073709551615";
        let process = Process::parse(stat).unwrap();
        assert_eq!((process.pid, process.parent, process.group), (42, 7, 9));
        assert_eq!((process.name.as_str(), process.state, process.resident_pages), ("a) b (c", 'S', 77));
        assert_eq!(process.cpu_ticks, 125);
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
            state: if pid == 5 { 'Z' } else { 'S' },
            name: String::new(),
            resident_pages: 0,
            cpu_ticks: 0,
        };
        // Listed before its parent; a zombie; another family; a loop that cannot be.
        let all = [process(4, 3), process(3, 2), process(5, 2), process(8, 7), process(2, 4)];
        let pids: HashSet<_> = descendants(2, &all).iter().map(|process| process.pid).collect();
        assert_eq!(pids, HashSet::from([3, 4]));
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in "\\PC*") {
            Process::parse(&text);
        }
    }
}

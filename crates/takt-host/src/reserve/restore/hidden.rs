//! Cores that the kernel hides. A partition root of cgroup v2 takes its CPUs out of the set of
//! every thread outside of it and gives them back when it goes; what a thread shows meanwhile is
//! not what it asked for, and the kernel does not report the latter.

use std::collections::HashMap;

use takt_rt::placement::CpuSet;

use crate::reserve::system::{self, Identity, Kernel};

/// Cores that only threads of a partition are to see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hidden {
    pub cores: CpuSet,
    pub online: CpuSet,
}

impl Hidden {
    /// CPU set of a thread outside of the partition that requested `cpus`: the kernel leaves none
    /// without CPUs.
    #[must_use]
    pub fn shown(&self, cpus: &CpuSet) -> CpuSet {
        match cpus.without(&self.cores) {
            CpuSet::EMPTY => self.online.without(&self.cores),
            some => some,
        }
    }
}

/// CPU sets that all threads had requested before cores were hidden.
#[derive(Debug)]
pub(super) struct Asked {
    hidden: Hidden,
    threads: HashMap<Identity, CpuSet>,
}

impl Asked {
    /// Must come before the cores are hidden.
    pub fn note(kernel: &dyn Kernel, hidden: Hidden) -> Self {
        let mut threads = HashMap::new();
        // Threads that end or start in the meantime are treated like all later ones.
        for pid in kernel.processes().unwrap_or_default() {
            for tid in kernel.threads(pid).unwrap_or_default() {
                if let (Some(thread), Ok(cpus)) = (system::identify(kernel, pid, tid), kernel.affinity(tid)) {
                    threads.insert(thread, cpus);
                }
            }
        }
        Self { hidden, threads }
    }

    /// CPU set that a thread with the set `seen` had requested. A later thread is treated like its
    /// process, or as one that may run anywhere.
    pub fn by(&self, thread: &Identity, process: Option<&CpuSet>, seen: CpuSet) -> CpuSet {
        [self.threads.get(thread), process, Some(&self.hidden.online)]
            .into_iter()
            .flatten()
            .find(|cpus| self.hidden.shown(cpus) == seen)
            .copied()
            .unwrap_or(seen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reserve::system::sim::Sim;

    fn cpus(cpus: &[usize]) -> CpuSet {
        CpuSet::from_cpus(cpus.iter().copied()).unwrap()
    }

    #[test]
    fn what_was_asked_for_is_known_although_it_does_not_show() {
        let mut sim = Sim::new(4);
        for tid in 10..14 {
            sim.spawn(10, tid, "worker");
        }
        for (tid, asked) in [(11, vec![2, 3]), (12, vec![0, 3]), (13, vec![0])] {
            sim.set_affinity(tid, &cpus(&asked)).unwrap();
        }
        let hidden = Hidden { cores: cpus(&[2, 3]), online: cpus(&[0, 1, 2, 3]) };
        let asked = Asked::note(&sim, hidden);
        for tid in 10..14 {
            let was = sim.affinity(tid).unwrap();
            sim.set_affinity(tid, &hidden.shown(&was)).unwrap();
        }
        let of = |sim: &Sim, tid, process: Option<&CpuSet>| {
            let thread = system::identify(sim, 10, tid).unwrap();
            asked.by(&thread, process, sim.affinity(tid).unwrap())
        };
        assert_eq!(of(&sim, 10, None), cpus(&[0, 1, 2, 3]));
        assert_eq!(of(&sim, 11, None), cpus(&[2, 3]), "all of its CPUs were taken, so it shows those left");
        assert_eq!(of(&sim, 12, None), cpus(&[0, 3]));
        assert_eq!(of(&sim, 13, None), cpus(&[0]));
        // One that chose others meanwhile is taken at its word.
        sim.set_affinity(12, &cpus(&[1])).unwrap();
        assert_eq!(of(&sim, 12, None), cpus(&[1]));
        // Later threads: as their process, or anywhere.
        sim.spawn(10, 14, "made later");
        sim.set_affinity(14, &cpus(&[0])).unwrap();
        assert_eq!(of(&sim, 14, Some(&cpus(&[0, 2]))), cpus(&[0, 2]));
        assert_eq!(of(&sim, 14, None), cpus(&[0]), "nothing says that there was more");
        sim.set_affinity(14, &cpus(&[0, 1])).unwrap();
        assert_eq!(of(&sim, 14, None), cpus(&[0, 1, 2, 3]));
    }
}

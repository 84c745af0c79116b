//! CPU time of threads, from the kernel's switches.

use std::collections::HashMap;

/// Processors; numbers beyond are damage.
const MAX_CPUS: usize = 4096;
/// Threads; beyond, new ones get no CPU time.
const MAX_THREADS: usize = 1 << 20;

/// Thread on a processor: its id, its start, and its use until then.
#[derive(Debug, Clone, Copy)]
struct Running {
    tid: u32,
    since_ns: u64,
    used_ns: u64,
}

/// Threads on the processors, and their use.
#[derive(Debug, Default)]
pub struct Cpus {
    running: Vec<Option<Running>>,
    /// Of threads that do not run.
    used: HashMap<u32, u64>,
}

impl Cpus {
    /// A processor goes from one thread to another.
    pub fn switch(&mut self, cpu: Option<u64>, from: u32, to: u32, at_ns: u64) {
        let Some(cpu) = cpu.and_then(|cpu| usize::try_from(cpu).ok()).filter(|cpu| *cpu < MAX_CPUS) else {
            return;
        };
        if cpu >= self.running.len() {
            self.running.resize(cpu + 1, None);
        }
        // Thread 0 is the idle one of every processor.
        if let Some(running) = self.running[cpu].take().filter(|running| running.tid == from && from != 0) {
            let used_ns = running.used_ns + at_ns.saturating_sub(running.since_ns);
            self.used.insert(from, used_ns);
        }
        let known = self.used.get(&to).copied();
        if to != 0 && (known.is_some() || self.used.len() < MAX_THREADS) {
            // Known from here on, so that what it uses is known even if it never leaves.
            let used_ns = *self.used.entry(to).or_insert(0);
            self.running[cpu] = Some(Running { tid: to, since_ns: at_ns, used_ns });
        }
    }

    /// Switches of a processor were lost: who runs there is not known until the next.
    pub fn lost(&mut self, cpu: Option<u64>) {
        match cpu.and_then(|cpu| usize::try_from(cpu).ok()).and_then(|cpu| self.running.get_mut(cpu)) {
            Some(running) => *running = None,
            None => self.running.fill(None),
        }
    }

    /// Use of a thread since it was first seen, if it is known to run on this processor.
    #[inline]
    pub fn used_ns(&self, cpu: Option<u64>, tid: u32, at_ns: u64) -> Option<u64> {
        let running = (*self.running.get(usize::try_from(cpu?).ok()?)?)?;
        (running.tid == tid).then(|| running.used_ns + at_ns.saturating_sub(running.since_ns))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_time_on_a_processor_counts() {
        let mut cpus = Cpus::default();
        assert_eq!(cpus.used_ns(Some(0), 7, 5), None);
        cpus.switch(Some(0), 3, 7, 10);
        assert_eq!(cpus.used_ns(Some(0), 7, 15), Some(5));
        // Off, and on again elsewhere.
        cpus.switch(Some(0), 7, 0, 20);
        assert_eq!(cpus.used_ns(Some(0), 7, 25), None);
        cpus.switch(Some(2), 0, 7, 100);
        assert_eq!(cpus.used_ns(Some(2), 7, 103), Some(13));
        cpus.lost(Some(2));
        assert_eq!(cpus.used_ns(Some(2), 7, 104), None);
        cpus.switch(Some(u64::MAX), 0, 7, 100);
    }

    proptest! {
        /// Threads that run one after the other on one processor use all of its time, each what it
        /// was given.
        #[test]
        fn what_threads_use_is_what_they_were_given(turns in prop::collection::vec((0_u32..5, 1_u64..1000), 1..100)) {
            let mut cpus = Cpus::default();
            let (mut now, mut running) = (0, 99);
            let mut given: HashMap<u32, u64> = HashMap::new();
            for (tid, for_ns) in turns {
                cpus.switch(Some(1), running, tid, now);
                now += for_ns;
                *given.entry(tid).or_default() += for_ns;
                let expected = (tid != 0).then(|| given[&tid]);
                prop_assert_eq!(cpus.used_ns(Some(1), tid, now), expected);
                running = tid;
            }
        }
    }
}

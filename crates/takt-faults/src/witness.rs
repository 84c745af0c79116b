//! CPU time that the machine takes from everybody: threads on every CPU ask to be woken every
//! millisecond and record their excess waiting.
//!
//! A cell on a shared machine reacts late when nobody lets it run. That is not a fault of the cell,
//! but it must not hide one either: the witness records how much time was taken. There are two on
//! every CPU: one under the policy that the test's cell asks for its critical threads (SCHED_RR, at
//! its lowest priority; without the privilege the cell does not have it either), and one of
//! ordinary priority, for what a cell does in ordinary threads (it handles signals there).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use takt_rt::clock::{monotonic_ns, sleep_until};
use takt_rt::placement::{self, CpuSet};
use takt_rt::policy::Policy;

use crate::proxy::lock;

const PERIOD_NS: u64 = 1_000_000;

/// A wake-up that is later than this counts. Below is what timers and switches cost anyway.
const COUNTED_NS: u64 = 200_000;

/// Gaps that are kept per CPU: minutes of a busy machine.
const MAX_GAPS: usize = 1 << 16;

/// A time in which a witness should have run and did not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// When it should have run, CLOCK_MONOTONIC nanoseconds.
    pub from_ns: u64,
    /// When it did.
    pub to_ns: u64,
}

/// Threads of the cell that have to act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// Critical ones.
    RealTime,
    /// Ordinary ones.
    Ordinary,
}

/// The witnesses; dropping it ends them.
#[derive(Debug)]
pub struct Witness {
    stop: Arc<AtomicBool>,
    cpus: Vec<(Urgency, Arc<Mutex<VecDeque<Gap>>>)>,
    threads: Vec<JoinHandle<()>>,
}

impl Witness {
    /// Starts two on every CPU that this process may use.
    pub fn start() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (mut cpus, mut threads) = (Vec::new(), Vec::new());
        let both = [Urgency::RealTime, Urgency::Ordinary];
        for (cpu, urgency) in allowed_cpus().into_iter().flat_map(|cpu| both.map(|urgency| (cpu, urgency))) {
            let gaps = Arc::new(Mutex::new(VecDeque::new()));
            let body = {
                let (stop, gaps) = (Arc::clone(&stop), Arc::clone(&gaps));
                move || watch(cpu, urgency, &stop, &gaps)
            };
            // Without a thread the CPU is not watched: less allowance, never more.
            if let Ok(thread) = std::thread::Builder::new().name("witness".to_owned()).spawn(body) {
                cpus.push((urgency, gaps));
                threads.push(thread);
            }
        }
        Self { stop, cpus, threads }
    }

    /// Time taken between two times: the sum on the CPU where it is greatest.
    pub fn taken_ns(&self, urgency: Urgency, from_ns: u64, to_ns: u64) -> u64 {
        self.cpus
            .iter()
            .filter(|(watched, _)| *watched == urgency)
            .map(|(_, gaps)| lock(gaps).iter().map(|gap| overlap_ns(gap, from_ns, to_ns)).sum())
            .max()
            .unwrap_or(0)
    }
}

fn overlap_ns(gap: &Gap, from_ns: u64, to_ns: u64) -> u64 {
    gap.to_ns.min(to_ns).saturating_sub(gap.from_ns.max(from_ns))
}

impl Drop for Witness {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            // A panic of the thread has been reported on stderr by itself.
            let _ = thread.join();
        }
    }
}

fn watch(cpu: usize, urgency: Urgency, stop: &AtomicBool, gaps: &Mutex<VecDeque<Gap>>) {
    pin(cpu);
    if urgency == Urgency::RealTime {
        // Without the privilege the cell has no real-time priority either.
        let _ = Policy::RoundRobin { priority: 1 }.apply(0);
    }
    let mut next_ns = monotonic_ns();
    while !stop.load(Ordering::Acquire) {
        next_ns += PERIOD_NS;
        sleep_until(next_ns);
        let now_ns = monotonic_ns();
        if now_ns.saturating_sub(next_ns) > COUNTED_NS {
            let mut gaps = lock(gaps);
            if gaps.len() == MAX_GAPS {
                gaps.pop_front();
            }
            gaps.push_back(Gap { from_ns: next_ns, to_ns: now_ns });
            next_ns = now_ns;
        }
    }
}

fn allowed_cpus() -> Vec<usize> {
    placement::affinity(0).map_or_else(|_| Vec::new(), |cpus| cpus.iter().take(64).collect())
}

/// A refusal leaves the thread unpinned: it then watches whichever CPU it is on.
fn pin(cpu: usize) {
    let _ = CpuSet::single(cpu).and_then(|cpu| placement::set_affinity(0, &cpu));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_lies_in_the_window_counts() {
        let gap = Gap { from_ns: 10, to_ns: 30 };
        for (from_ns, to_ns, expected) in [(0, 100, 20), (15, 100, 15), (0, 20, 10), (12, 14, 2), (40, 50, 0)]
        {
            assert_eq!(overlap_ns(&gap, from_ns, to_ns), expected, "{from_ns} to {to_ns}");
        }
    }
}

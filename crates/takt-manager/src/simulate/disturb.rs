//! Occasional execution of activations beyond their curves: at any time, by any callback, executing
//! or suspended, as much and as often as the allowance of a core lets them, which is counted at
//! their ends.

use takt_rt::random::SplitMix64;

use super::engine::Job;

/// Allowance used on each core.
#[derive(Debug, Default)]
pub(super) struct Disturber {
    most_ns: u64,
    window_ns: u64,
    taken: Vec<Taken>,
}

#[derive(Debug)]
struct Taken {
    core: usize,
    thread: usize,
    /// `None`: it has not ended yet.
    ended_ns: Option<u64>,
    more_ns: u64,
}

impl Disturber {
    pub fn new(most_ns: u64, window_ns: u64) -> Self {
        Self { most_ns, window_ns, taken: Vec::new() }
    }

    /// A thread begins an activation.
    pub fn begin(&mut self, now_ns: u64, core: usize, thread: usize, job: &mut Job, random: &mut SplitMix64) {
        if self.most_ns == 0 || !random.one_in(3) {
            return;
        }
        // Whatever ended no longer ago may count together with the end of this one.
        self.taken.retain(|t| t.ended_ns.is_none_or(|ns| ns.saturating_add(self.window_ns) >= now_ns));
        let here = self.taken.iter().filter(|taken| taken.core == core);
        let left_ns = self.most_ns.saturating_sub(here.map(|taken| taken.more_ns).sum());
        // All at once hurts most, and in parts it hurts many.
        let more_ns = if random.one_in(2) { left_ns } else { random.within(0, left_ns) };
        if more_ns == 0 {
            return;
        }
        let suspended_ns = match random.within(0, 3) {
            0 => more_ns,
            1 => random.within(0, more_ns),
            _ => 0,
        };
        if suspended_ns > 0 {
            match job.suspensions.last_mut() {
                Some(last) if random.one_in(2) => *last += suspended_ns,
                _ => job.suspensions.push(suspended_ns),
            }
        }
        job.left_ns += more_ns - suspended_ns;
        self.taken.push(Taken { core, thread, ended_ns: None, more_ns });
    }

    pub fn end(&mut self, now_ns: u64, thread: usize) {
        let of = |taken: &&mut Taken| taken.thread == thread && taken.ended_ns.is_none();
        if let Some(taken) = self.taken.iter_mut().find(of) {
            taken.ended_ns = Some(now_ns);
        }
    }
}

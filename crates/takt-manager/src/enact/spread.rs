//! Places of best-effort threads when the kernel does not balance between the domains: each goes to
//! the core, or to the CPUs outside of the partition, that leaves it most time.

use std::collections::BTreeMap;
use std::time::Instant;

use takt_rt::placement::CpuSet;

use crate::system::Kernel;

/// A thread stays where it is unless another place is better by this share of a CPU: moves cost
/// caches, and shares fluctuate.
const HYSTERESIS: f64 = 0.15;

#[derive(Debug, Default)]
pub(super) struct Spread {
    seen: BTreeMap<(u32, u32), (u64, CpuSet)>,
    at: Option<Instant>,
}

impl Spread {
    /// Whether the thread was given a place.
    pub fn knows(&self, pid: u32, tid: u32) -> bool {
        self.seen.contains_key(&(pid, tid))
    }

    pub fn assign(
        &mut self,
        kernel: &dyn Kernel,
        threads: &[(u32, u32)],
        reserved: &BTreeMap<usize, f64>,
        online: &CpuSet,
    ) -> Vec<Option<CpuSet>> {
        let now = Instant::now();
        let passed_ns = self.at.map_or(0.0, |at| now.duration_since(at).as_nanos() as f64);
        self.at = Some(now);
        let run: Vec<u64> = threads.iter().map(|&(pid, tid)| kernel.run_ns(pid, tid).unwrap_or(0)).collect();
        let share = |(thread, run_ns): (&(u32, u32), &u64)| match self.seen.get(thread) {
            Some((before_ns, _)) if passed_ns > 0.0 => run_ns.saturating_sub(*before_ns) as f64 / passed_ns,
            // Not known yet: not nothing, so that new threads do not all go to one place.
            _ => 0.1,
        };
        let shares: Vec<f64> = threads.iter().zip(&run).map(share).collect();
        let mut free: Vec<(CpuSet, f64)> = Vec::new();
        let mut rest = *online;
        for (&core, &share) in reserved {
            let Ok(cpus) = CpuSet::single(core) else { continue };
            rest = rest.without(&cpus);
            free.push((cpus, 1.0 - share));
        }
        if !rest.is_empty() {
            free.insert(0, (rest, rest.len() as f64));
        }
        let places =
            place(&shares, threads.iter().map(|thread| self.seen.get(thread).map(|(_, at)| *at)), &mut free);
        self.seen = threads
            .iter()
            .zip(&run)
            .zip(&places)
            .filter_map(|((&thread, &run_ns), place)| Some((thread, (run_ns, (*place)?))))
            .collect();
        places
    }
}

/// Worst fit, the greatest first.
fn place(
    shares: &[f64],
    at: impl Iterator<Item = Option<CpuSet>>,
    free: &mut [(CpuSet, f64)],
) -> Vec<Option<CpuSet>> {
    let mut places = vec![None; shares.len()];
    let mut order: Vec<(usize, Option<CpuSet>)> = at.enumerate().collect();
    order.sort_by(|(a, _), (b, _)| shares[*b].total_cmp(&shares[*a]).then(a.cmp(b)));
    for (thread, at) in order {
        let most = |bonus: &dyn Fn(&CpuSet) -> f64| {
            (0..free.len()).max_by(|&a, &b| {
                let value = |i: usize| free[i].1 + bonus(&free[i].0);
                // Of equal ones the first.
                value(a).total_cmp(&value(b)).then(b.cmp(&a))
            })
        };
        let bonus = |cpus: &CpuSet| if at == Some(*cpus) { HYSTERESIS } else { 0.0 };
        let Some(best) = most(&bonus) else { continue };
        free[best].1 -= shares[thread];
        places[thread] = Some(free[best].0);
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    fn core(core: usize) -> CpuSet {
        CpuSet::single(core).unwrap()
    }

    #[test]
    fn the_heaviest_goes_where_most_is_left() {
        let mut free = vec![(core(0), 1.0), (core(1), 0.4)];
        let places = place(&[0.1, 0.9, 0.2], [None, None, None].into_iter(), &mut free);
        assert_eq!(places, [Some(core(1)), Some(core(0)), Some(core(1))]);
        assert!(free.iter().all(|(_, left)| (left - 0.1).abs() < 1e-9), "{free:?}");
    }

    #[test]
    fn small_differences_move_nobody() {
        let free = || vec![(core(0), 0.55), (core(1), 0.5)];
        assert_eq!(place(&[0.1], [Some(core(1))].into_iter(), &mut free()), [Some(core(1))]);
        assert_eq!(place(&[0.1], [None].into_iter(), &mut free()), [Some(core(0))]);
    }
}

//! Work of a core from the beginning of a busy window on, and the time at which it is done.

use std::cell::OnceCell;

/// A demand that grows with the interval's length.
#[derive(Debug, Clone, Default)]
pub(super) struct CoreDemand {
    steps: Vec<Step>,
    /// By how much the demand of closed intervals is above their length at most, from each step on:
    /// few ask for that.
    above_ns: OnceCell<Vec<i128>>,
    /// Longer intervals were not looked at.
    to_ns: u64,
}

impl PartialEq for CoreDemand {
    fn eq(&self, other: &Self) -> bool {
        (self.to_ns, &self.steps) == (other.to_ns, &other.steps)
    }
}

impl Eq for CoreDemand {}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Step {
    /// In half-open intervals of at least this length, up to the next step,
    from_ns: u64,
    /// so much is needed.
    busy_ns: u64,
    /// Largest additional work that fits, here or in a shorter interval.
    fits_ns: u64,
}

impl CoreDemand {
    /// From what is added in half-open intervals of at least so many nanoseconds.
    pub fn new(first_ns: u64, mut more: Vec<(u64, u64)>, to_ns: u64) -> Self {
        // Stable, since it makes use of what is in order already: the steps of each executor.
        more.sort_by_key(|(from_ns, _)| *from_ns);
        let mut steps = Vec::with_capacity(more.len() + 1);
        steps.push(Step { from_ns: 1, busy_ns: first_ns, fits_ns: 0 });
        for (from_ns, add_ns) in more {
            let last = steps.len() - 1;
            let busy_ns = steps[last].busy_ns.saturating_add(add_ns);
            if steps[last].from_ns >= from_ns {
                steps[last].busy_ns = busy_ns;
            } else {
                steps.push(Step { from_ns, busy_ns, fits_ns: 0 });
            }
        }
        let mut most = 0;
        for index in 0..steps.len() {
            let next_ns = steps.get(index + 1).map_or(to_ns.saturating_add(2), |next| next.from_ns);
            most = most.max((next_ns - 1).saturating_sub(steps[index].busy_ns));
            steps[index].fits_ns = most;
        }
        Self { steps, above_ns: OnceCell::new(), to_ns }
    }

    /// The least interval in which so much is done beside all that arrives before its end; `None`:
    /// none that was looked at.
    pub(crate) fn done_before(&self, length_ns: u64) -> Option<u64> {
        if length_ns == 0 {
            return Some(0);
        }
        let step = self.steps.get(self.steps.partition_point(|step| step.fits_ns < length_ns))?;
        let end_ns = step.busy_ns.saturating_add(length_ns).max(step.from_ns);
        (end_ns <= self.to_ns).then_some(end_ns)
    }

    /// The same with what arrives at its end.
    pub(crate) fn done_by(&self, more_ns: u64) -> Option<u64> {
        let step = self.steps.get(self.steps.partition_point(|step| step.fits_ns <= more_ns))?;
        let end_ns = step.busy_ns.saturating_add(more_ns).max(step.from_ns - 1);
        (end_ns <= self.to_ns).then_some(end_ns)
    }

    fn above_ns(&self) -> &[i128] {
        self.above_ns.get_or_init(|| {
            let mut most = i128::MIN;
            let of = |step: &Step| i128::from(step.busy_ns) - i128::from(step.from_ns - 1);
            let mut above: Vec<i128> = self.steps.iter().map(of).collect();
            for above in above.iter_mut().rev() {
                most = most.max(*above);
                *above = most;
            }
            above
        })
    }

    /// Largest work that can be left in a closed interval of this length that begins within a busy
    /// window; `None`: that was not computed.
    pub fn left(&self, length_ns: u64) -> Option<u64> {
        if length_ns > self.to_ns {
            return None;
        }
        let next = self.steps.partition_point(|step| step.from_ns <= length_ns.saturating_add(1));
        let now = self.steps[next - 1].busy_ns;
        let later = self.above_ns().get(next).map_or(0, |above_ns| {
            u64::try_from((i128::from(length_ns) + above_ns).max(0)).unwrap_or(u64::MAX)
        });
        Some(now.max(later))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn inversions_are_those_that_a_search_finds(
            first in 0_u64..20,
            more in prop::collection::vec((1_u64..100, 1_u64..20), 0..20),
            length in 0_u64..60,
        ) {
            let demand = CoreDemand::new(first, more.clone(), 200);
            let half_open =
                |f: u64| first + more.iter().filter(|(at, _)| *at <= f).map(|(_, add)| add).sum::<u64>();
            let found = (1..=200).find(|f| length + half_open(*f) <= *f);
            prop_assert_eq!(demand.done_before(length), if length == 0 { Some(0) } else { found });
            let closed = |f: u64| half_open(f + 1);
            let found = (0..=200).find(|f| length + closed(*f) <= *f);
            prop_assert_eq!(demand.done_by(length), found);
            let left = (0..=300).map(|b| closed(length + b).saturating_sub(b)).max();
            prop_assert_eq!(demand.left(length), left);
        }
    }
}

//! Reservations to cores: worst-fit decreasing, then first-fit decreasing (*ROS-Llama*, section
//! IV.C.a).

/// Reservations of a workload: one for each thread of every executor, executor by executor; one for
/// an executor without.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slots {
    executors: Vec<usize>,
    /// On one core at most.
    most: usize,
}

impl Slots {
    /// Of these executors' numbers of threads, and no more than `most` on one core.
    #[must_use]
    pub fn new(threads: impl IntoIterator<Item = usize>, most: usize) -> Self {
        let executors = threads.into_iter().enumerate();
        let executors = executors.flat_map(|(e, threads)| std::iter::repeat_n(e, threads.max(1))).collect();
        Self { executors, most }
    }

    #[must_use]
    pub fn executors(&self) -> &[usize] {
        &self.executors
    }

    #[must_use]
    pub fn budgets(&self, of_executors_ns: &[u64]) -> Vec<u64> {
        self.executors.iter().map(|e| of_executors_ns.get(*e).copied().unwrap_or(0)).collect()
    }

    /// Finds cores for them.
    #[must_use]
    pub fn partition(&self, of_executors_ns: &[u64], capacities_ns: &[u64]) -> Option<Vec<usize>> {
        let budgets = self.budgets(of_executors_ns);
        partition(&budgets, capacities_ns).filter(|places| self.few(&budgets, places, capacities_ns.len()))
    }

    /// Whether no core has more than it may.
    #[must_use]
    pub fn few(&self, budgets_ns: &[u64], places: &[usize], cores: usize) -> bool {
        let on = |core: usize| {
            budgets_ns.iter().zip(places).filter(|(budget, place)| **budget > 0 && **place == core).count()
        };
        (0..cores).all(|core| on(core) <= self.most)
    }
}

/// Finds a core for every budget, so that no core's sum exceeds its capacity. Entry `i` of the
/// result is the position of the core of budget `i`; budgets of 0 get core 0 and count nothing.
/// `None`: neither heuristic finds one.
#[must_use]
pub fn partition(budgets_ns: &[u64], capacities_ns: &[u64]) -> Option<Vec<usize>> {
    let mut falling: Vec<usize> = (0..budgets_ns.len()).filter(|i| budgets_ns[*i] > 0).collect();
    // By number where equal, so that equal systems give equal plans.
    falling.sort_by_key(|i| (std::cmp::Reverse(budgets_ns[*i]), *i));
    let fit = |choose: fn(&[u64], u64, &[u64]) -> Option<usize>| {
        let mut used = vec![0_u64; capacities_ns.len()];
        let mut places = vec![0; budgets_ns.len()];
        for &item in &falling {
            let core = choose(&used, budgets_ns[item], capacities_ns)?;
            used[core] += budgets_ns[item];
            places[item] = core;
        }
        Some(places)
    };
    fit(worst).or_else(|| fit(first))
}

fn fits(used: u64, budget: u64, capacity: u64) -> bool {
    used.checked_add(budget).is_some_and(|sum| sum <= capacity)
}

/// The core with most left.
#[must_use]
pub(crate) fn emptiest(used: &[u64], capacities_ns: &[u64]) -> Option<usize> {
    let left = |core: &usize| capacities_ns[*core].saturating_sub(used[*core]);
    (0..used.len().min(capacities_ns.len())).min_by_key(|core| std::cmp::Reverse(left(core)))
}

fn worst(used: &[u64], budget: u64, capacities_ns: &[u64]) -> Option<usize> {
    emptiest(used, capacities_ns).filter(|core| fits(used[*core], budget, capacities_ns[*core]))
}

fn first(used: &[u64], budget: u64, capacities_ns: &[u64]) -> Option<usize> {
    (0..used.len()).find(|core| fits(used[*core], budget, capacities_ns[*core]))
}

/// Whether these places keep every core's capacity.
#[must_use]
pub fn keeps(budgets_ns: &[u64], places: &[usize], capacities_ns: &[u64]) -> bool {
    let mut used = vec![0_u64; capacities_ns.len()];
    budgets_ns.len() == places.len()
        && budgets_ns.iter().zip(places).filter(|(b, _)| **b > 0).all(|(budget, core)| {
            used.get_mut(*core).is_some_and(|sum| {
                *sum = sum.saturating_add(*budget);
                *sum <= capacities_ns[*core]
            })
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn worst_fit_spreads_and_first_fit_packs_what_it_cannot() {
        assert_eq!(partition(&[4, 3, 2], &[10, 10]), Some(vec![0, 1, 1]));
        // Worst-fit puts 6|5, 5+2|..., and then finds no place for what first-fit packs exactly.
        assert_eq!(worst(&[6, 7], 4, &[10, 10]), Some(0));
        let packed = partition(&[6, 4, 5, 5], &[10, 10]).unwrap();
        assert!(keeps(&[6, 4, 5, 5], &packed, &[10, 10]));
        assert_eq!(partition(&[6, 6, 6], &[10, 10]), None);
        assert_eq!(partition(&[1], &[]), None);
        assert_eq!(partition(&[u64::MAX, u64::MAX], &[u64::MAX]), None);
        // A core that offers less is filled last, and no further.
        assert_eq!(partition(&[4, 3], &[5, 10]), Some(vec![1, 1]));
        assert_eq!(partition(&[6, 6], &[5, 10]), None);
    }

    proptest! {
        #[test]
        fn never_exceeds_capacity(
            budgets in prop::collection::vec(0_u64..100, 0..30),
            capacities in prop::collection::vec(1_u64..300, 1..6),
        ) {
            if let Some(places) = partition(&budgets, &capacities) {
                prop_assert!(keeps(&budgets, &places, &capacities));
            } else {
                // First-fit refuses only what exceeds the room left on every core, so all of them
                // are nearly full.
                let greatest = budgets.iter().copied().max().unwrap_or(0);
                let slack: u64 = capacities.iter().map(|c| c.saturating_sub(greatest - 1)).sum();
                prop_assert!(budgets.iter().sum::<u64>() > slack);
            }
        }
    }
}

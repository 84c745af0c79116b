//! Reservations to cores: worst-fit decreasing, then first-fit decreasing (*ROS-Llama*, section IV.C.a).

/// Finds a core for every budget, so that no core's sum exceeds `capacity_ns`. Entry `i` of the result is the position of the
/// core of budget `i`; budgets of 0 get core 0 and count nothing. `None`: neither heuristic finds one.
#[must_use]
pub fn partition(budgets_ns: &[u64], cores: usize, capacity_ns: u64) -> Option<Vec<usize>> {
    let mut falling: Vec<usize> = (0..budgets_ns.len()).filter(|i| budgets_ns[*i] > 0).collect();
    // By number where equal, so that equal systems give equal plans.
    falling.sort_by_key(|i| (std::cmp::Reverse(budgets_ns[*i]), *i));
    let fit = |choose: fn(&[u64], u64, u64) -> Option<usize>| {
        let mut used = vec![0_u64; cores];
        let mut places = vec![0; budgets_ns.len()];
        for &item in &falling {
            let core = choose(&used, budgets_ns[item], capacity_ns)?;
            used[core] += budgets_ns[item];
            places[item] = core;
        }
        Some(places)
    };
    fit(emptiest).or_else(|| fit(first))
}

fn fits(used: u64, budget: u64, capacity: u64) -> bool {
    used.checked_add(budget).is_some_and(|sum| sum <= capacity)
}

fn emptiest(used: &[u64], budget: u64, capacity: u64) -> Option<usize> {
    let (core, least) = used.iter().enumerate().min_by_key(|(_, used)| **used)?;
    fits(*least, budget, capacity).then_some(core)
}

fn first(used: &[u64], budget: u64, capacity: u64) -> Option<usize> {
    used.iter().position(|used| fits(*used, budget, capacity))
}

/// Whether these places keep every core's capacity.
#[must_use]
pub fn keeps(budgets_ns: &[u64], places: &[usize], cores: usize, capacity_ns: u64) -> bool {
    let mut used = vec![0_u64; cores];
    budgets_ns.len() == places.len()
        && budgets_ns.iter().zip(places).filter(|(b, _)| **b > 0).all(|(budget, core)| {
            used.get_mut(*core).is_some_and(|sum| {
                *sum = sum.saturating_add(*budget);
                *sum <= capacity_ns
            })
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn worst_fit_spreads_and_first_fit_packs_what_it_cannot() {
        assert_eq!(partition(&[4, 3, 2], 2, 10), Some(vec![0, 1, 1]));
        // Worst-fit puts 6|5, 5+2|..., and then finds no place for what first-fit packs exactly.
        assert_eq!(emptiest(&[6, 7], 4, 10), Some(0));
        let packed = partition(&[6, 4, 5, 5], 2, 10).unwrap();
        assert!(keeps(&[6, 4, 5, 5], &packed, 2, 10));
        assert_eq!(partition(&[6, 6, 6], 2, 10), None);
        assert_eq!(partition(&[1], 0, 10), None);
        assert_eq!(partition(&[u64::MAX, u64::MAX], 1, u64::MAX), None);
    }

    proptest! {
        #[test]
        fn never_exceeds_capacity(
            budgets in prop::collection::vec(0_u64..100, 0..30),
            cores in 1_usize..6,
            capacity in 1_u64..300,
        ) {
            if let Some(places) = partition(&budgets, cores, capacity) {
                prop_assert!(keeps(&budgets, &places, cores, capacity));
            } else {
                // First-fit leaves at most one core less than half full, so a refusal means real load.
                prop_assert!(2 * budgets.iter().sum::<u64>() > capacity * (cores as u64 - 1)
                    || budgets.iter().any(|b| *b > capacity));
            }
        }
    }
}

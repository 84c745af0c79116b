//! The order of changes: such that the kernel's admission test, which looks at every single step,
//! refuses none of them when the whole fits.
//!
//! Threads that lose their reservation and those whose bandwidth shrinks come first; then whatever
//! fits its core at the moment (moves, growth, new reservations). If nothing fits although the
//! whole does (two threads that swap full cores), the one with the least bandwidth is lifted: it
//! gives up its reservation for the rest of the change, a matter of microseconds.

use std::collections::BTreeMap;

pub use takt_host::reserve::ratio;

/// A reservation on a core.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    pub budget_ns: u64,
    pub period_ns: u64,
    pub core: usize,
}

impl Held {
    fn ratio(&self) -> u64 {
        ratio(self.budget_ns, self.period_ns)
    }
}

/// One change of one thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Back to what the thread was before it had a reservation.
    Release { tid: u32 },
    /// As [`Step::Release`], for the moment only.
    Lift { tid: u32 },
    /// Another budget or period on the same core.
    Resize {
        tid: u32,
        /// The new reservation.
        to: Held,
    },
    /// The reservation moves to another core, with the bandwidth of `to`.
    Move {
        tid: u32,
        /// The new reservation.
        to: Held,
    },
    /// A first reservation, or the one after a [`Step::Lift`].
    Reserve {
        tid: u32,
        /// The new reservation.
        to: Held,
    },
}

/// The steps from `now` to `wanted`, where reservations on one core may together have `capacity`
/// (in [`ratio`] units). Steps that can never fit come at the end nevertheless, for the kernel to
/// judge.
#[must_use]
pub fn steps(now: &BTreeMap<u32, Held>, wanted: &BTreeMap<u32, Held>, capacity: u64) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut used: BTreeMap<usize, u64> = BTreeMap::new();
    let mut held = BTreeMap::new();
    for (&tid, &has) in now {
        match wanted.get(&tid) {
            None => steps.push(Step::Release { tid }),
            Some(to) => {
                let mut has = has;
                // Also one that is to move: it makes room where it is. A change of the period alone
                // is made here too.
                if to.ratio() <= has.ratio() && (to.budget_ns, to.period_ns) != (has.budget_ns, has.period_ns)
                {
                    has = Held { core: has.core, ..*to };
                    steps.push(Step::Resize { tid, to: has });
                }
                *used.entry(has.core).or_default() += has.ratio();
                held.insert(tid, has);
            }
        }
    }
    let mut open: Vec<(u32, Held)> =
        wanted.iter().filter(|(tid, to)| held.get(tid) != Some(to)).map(|(&tid, &to)| (tid, to)).collect();
    // The greatest first: they are the hardest to place. Equal ones by number, so that the order is
    // always the same.
    open.sort_by_key(|(tid, to)| (std::cmp::Reverse(to.ratio()), *tid));
    while !open.is_empty() {
        let fits = |(tid, to): &(u32, Held)| {
            let own = held.get(tid).filter(|has| has.core == to.core).map_or(0, Held::ratio);
            used.get(&to.core).copied().unwrap_or(0) - own + to.ratio() <= capacity
        };
        let next = open.iter().position(fits);
        let lift = || {
            let holders = open.iter().filter_map(|(tid, _)| held.get(tid).map(|has| (has.ratio(), *tid)));
            holders.min().map(|(_, tid)| tid)
        };
        match (next, lift()) {
            (None, Some(tid)) => {
                if let Some(has) = held.remove(&tid) {
                    *used.entry(has.core).or_default() -= has.ratio();
                }
                steps.push(Step::Lift { tid });
            }
            // Without anything to lift, what is left cannot fit: the kernel shall say so.
            (position, _) => {
                let (tid, to) = open.remove(position.unwrap_or(0));
                let has = held.insert(tid, to);
                if let Some(has) = has {
                    *used.entry(has.core).or_default() -= has.ratio();
                }
                *used.entry(to.core).or_default() += to.ratio();
                steps.push(match has {
                    Some(has) if has.core == to.core => Step::Resize { tid, to },
                    Some(_) => Step::Move { tid, to },
                    None => Step::Reserve { tid, to },
                });
            }
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CAPACITY: u64 = (1 << 20) * 9 / 10;

    fn held(share_percent: u64, core: usize) -> Held {
        Held { budget_ns: share_percent * 100_000, period_ns: 10_000_000, core }
    }

    /// A kernel that admits step by step.
    fn play(now: &BTreeMap<u32, Held>, steps: &[Step]) -> Result<BTreeMap<u32, Held>, String> {
        let mut state = now.clone();
        for step in steps {
            match *step {
                Step::Release { tid } | Step::Lift { tid } => {
                    state.remove(&tid).ok_or(format!("{tid} has none"))?;
                }
                Step::Resize { tid, to } if state.get(&tid).is_none_or(|has| has.core != to.core) => {
                    return Err(format!("{tid} is not there"));
                }
                Step::Move { tid, to } if state.get(&tid).is_none_or(|has| has.core == to.core) => {
                    return Err(format!("{tid} does not move"));
                }
                Step::Reserve { tid, .. } if state.contains_key(&tid) => {
                    return Err(format!("{tid} has one"));
                }
                Step::Resize { tid, to } | Step::Move { tid, to } | Step::Reserve { tid, to } => {
                    state.insert(tid, to);
                }
            }
            for core in 0..4 {
                let used: u64 = state.values().filter(|has| has.core == core).map(Held::ratio).sum();
                if used > CAPACITY {
                    return Err(format!("core {core} refuses {step:?}"));
                }
            }
        }
        Ok(state)
    }

    #[test]
    fn a_shrink_goes_before_the_growth_that_needs_it() {
        let now = BTreeMap::from([(1, held(50, 0)), (2, held(40, 0))]);
        let wanted = BTreeMap::from([(1, held(60, 0)), (2, held(30, 0))]);
        let steps = steps(&now, &wanted, CAPACITY);
        assert_eq!(
            steps,
            [Step::Resize { tid: 2, to: held(30, 0) }, Step::Resize { tid: 1, to: held(60, 0) }]
        );
    }

    #[test]
    fn full_cores_swap_by_lifting_one() {
        let now = BTreeMap::from([(1, held(90, 0)), (2, held(80, 1))]);
        let wanted = BTreeMap::from([(1, held(90, 1)), (2, held(80, 0))]);
        let steps = steps(&now, &wanted, CAPACITY);
        assert_eq!(
            steps,
            [
                Step::Lift { tid: 2 },
                Step::Move { tid: 1, to: held(90, 1) },
                Step::Reserve { tid: 2, to: held(80, 0) }
            ]
        );
    }

    #[test]
    fn nothing_to_do_is_nothing_done() {
        let now = BTreeMap::from([(1, held(50, 0))]);
        assert_eq!(steps(&now, &now, CAPACITY), []);
    }

    /// Reservations that fit four cores.
    fn feasible() -> impl Strategy<Value = BTreeMap<u32, Held>> {
        let one = (0u32..12, 1u64..90, 0usize..4, 1u64..30);
        proptest::collection::vec(one, 0..16).prop_map(|all| {
            let mut used = [0; 4];
            let mut set = BTreeMap::new();
            for (tid, share, core, period_ms) in all {
                let has =
                    Held { budget_ns: share * period_ms * 10_000, period_ns: period_ms * 1_000_000, core };
                if !set.contains_key(&tid) && used[core] + has.ratio() <= CAPACITY {
                    used[core] += has.ratio();
                    set.insert(tid, has);
                }
            }
            set
        })
    }

    proptest! {
        #[test]
        fn admission_never_refuses_what_fits(now in feasible(), wanted in feasible()) {
            let steps = steps(&now, &wanted, CAPACITY);
            prop_assert_eq!(play(&now, &steps), Ok(wanted));
        }

        #[test]
        fn what_cannot_fit_still_ends(shares in proptest::collection::vec((1u64..100, 0usize..2), 0..12)) {
            let wanted: BTreeMap<u32, Held> =
                shares.iter().enumerate().map(|(tid, &(share, core))| (tid as u32, held(share, core))).collect();
            let steps = steps(&BTreeMap::new(), &wanted, CAPACITY);
            prop_assert_eq!(steps.len(), wanted.len());
        }
    }
}

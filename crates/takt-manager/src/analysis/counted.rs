//! Arrivals as the analysis asks for them, with the last answers at hand.
//!
//! A search for a fixed point asks for the arrivals in nearly the same two intervals again and
//! again: up to the activation under analysis, and up to where the search is. Counts change only
//! where something arrives, so the stretches in which the last two answers hold save most of the
//! work.

use std::cell::Cell;

use crate::curves::{Flows, Stretch};

/// Arrivals of one callback during one analysis.
#[derive(Debug)]
pub(super) struct Arrivals<'a> {
    flows: &'a Flows,
    latest: Cell<Stretch>,
    older: Cell<Stretch>,
}

impl<'a> Arrivals<'a> {
    pub fn new(flows: &'a Flows) -> Self {
        // Before any other: intervals of no length.
        let nothing = Stretch { above_ns: 0, to_ns: 0, count: 0 };
        Self { flows, latest: Cell::new(nothing), older: Cell::new(nothing) }
    }

    pub fn flows(&self) -> &'a Flows {
        self.flows
    }

    /// Greatest number in any half-open interval of this length.
    #[inline]
    pub fn count(&self, delta_ns: u64) -> u64 {
        let latest = self.latest.get();
        if latest.holds_at(delta_ns) {
            return latest.count;
        }
        let older = self.older.get();
        self.older.set(latest);
        let found = if older.holds_at(delta_ns) { older } else { self.flows.stretch(delta_ns) };
        self.latest.set(found);
        found.count
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use takt_model::ArrivalCurve;

    use super::*;
    use crate::curves::{Counts, Spans};

    proptest! {
        #[test]
        fn remembered_counts_are_those_counted(
            curves in prop::collection::vec(prop::collection::vec(0_u64..60, 1..6), 1..3),
            jitters in prop::collection::vec(0_u64..90, 1..4),
            counts in prop::collection::vec(0_u64..4, 1..4),
            asked in prop::collection::vec(0_u64..300, 1..60),
        ) {
            let mut flows = Flows::none();
            let counts = Arc::new(Counts::measured(&counts, 3));
            for (root, mut ns) in curves.into_iter().enumerate() {
                ns.sort_unstable();
                prop_assume!(ns.last() != Some(&0));
                let curve = ArrivalCurve { seen: ns.len() as u64 + 1, least_span_ns: ns, observed_ns: 1000 };
                let root = Flows::root(root, Arc::new(Spans::measured(&curve, 0.0).unwrap()));
                for jitter in &jitters {
                    flows.add(&root, *jitter, &counts);
                }
            }
            let arrivals = Arrivals::new(&flows);
            for delta in asked {
                prop_assert_eq!(arrivals.count(delta), flows.count(delta), "in {} ns", delta);
            }
        }
    }
}

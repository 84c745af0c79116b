//! Bounds as far as they are above what is known already.
//!
//! A fixed point that is reached from below keeps the greater of what it has and what is found, so
//! that nobody needs to know how far a bound is below that. An analysis that looks for the worst
//! activation passes over all that end within the floor, many at a time.

use std::rc::Rc;

use super::Bound;

/// Bounds of one executor's callbacks, in its order; `None`: without bound.
pub(super) type Bounds = Rc<Vec<Option<Bound>>>;

/// Bounds above these floors, in the executor's order. A smaller value is not known exactly.
#[derive(Debug, Clone)]
pub(super) struct AboveFloors {
    pub floors_ns: Vec<u64>,
    pub bounds: Bounds,
}

impl AboveFloors {
    /// Whether these bounds are those above other floors, too.
    pub fn answers(&self, floors_ns: &[u64]) -> bool {
        let each = self.bounds.iter().zip(&self.floors_ns).zip(floors_ns);
        self.bounds.len() == floors_ns.len()
            && each.into_iter().all(|((bound, known_ns), asked_ns)| {
                known_ns <= asked_ns || bound.is_none_or(|bound| bound.ns > *known_ns)
            })
    }
}

impl Bound {
    /// A value that is known to be reached, whatever its source; `None`: there is none.
    pub(super) fn floor(ns: u64) -> Option<Self> {
        (ns > 0).then_some(Self { ns, ..Self::NONE })
    }
}

//! Whether reservations are still what they were made: anybody with the right to may change them
//! (`chrt`, `taskset`, another manager, a thread that sets its own policy), and no event shows. So
//! they are read back between plans, too.

use super::{Difference, Enactor};
use crate::enact::order::Held;
use crate::system::{self, Attributes, Kernel};
use takt_rt::placement::CpuSet;

impl<K: Kernel> Enactor<K> {
    /// Reads every reservation back: policy, budget, period, deadline, flags, CPUs. Two system
    /// calls for each thread. A change that is reverted between two calls is not noticed.
    #[must_use]
    pub fn check(&self) -> Vec<Difference> {
        self.kept.keys().filter_map(|tid| self.difference_of(*tid)).collect()
    }

    /// Difference between a thread's reservation and the requested one. A thread that has ended has
    /// no difference, even while its number still exists.
    pub(super) fn difference_of(&self, tid: u32) -> Option<Difference> {
        let kept = self.kept.get(&tid)?;
        let (Ok(has), Ok(cpus)) = (self.kernel.attributes(tid), self.kernel.affinity(tid)) else {
            return None;
        };
        if has.is_of_dead() {
            return None;
        }
        // Looked at last: the number may have come again meanwhile.
        let difference = self.compare(tid, &kept.name, &kept.held, (&has, &cpus))?;
        system::is_alive(&self.kernel, &kept.thread).then_some(difference)
    }

    pub(super) fn compare(
        &self,
        tid: u32,
        name: &str,
        held: &Held,
        (has, cpus): (&Attributes, &CpuSet),
    ) -> Option<Difference> {
        let asked = self.attributes_of(held);
        let bound = cpus.len() == 1 && cpus.contains(held.core);
        if has.serves(&asked) && bound {
            return None;
        }
        Some(Difference {
            tid,
            name: name.to_owned(),
            asked: format!("{asked} on CPU {}", held.core),
            has: format!("{has} on {cpus}"),
            reservation: true,
        })
    }
}

//! Reservations that others made: with the admission test off nobody but the manager counts them.

use std::collections::BTreeSet;

use takt_rt::placement::CpuSet;

use super::{Difference, Enacted, Enactor, Mode};
use crate::system::Kernel;

/// `SCHED_FLAG_SUGOV`: the kernel's thread that sets frequencies. Its parameters are for show, and
/// it has no bandwidth.
const SUGOV: u64 = 0x1000_0000;
/// Share of a core that is left besides reservations and the fair server (50 ms in a second).
const USABLE: f64 = 1.0 - 0.05;

/// A reservation of somebody else.
struct Foreign {
    tid: u32,
    name: String,
    share: f64,
    cpus: CpuSet,
}

impl<K: Kernel> Enactor<K> {
    fn reservations_of_others(&self) -> Vec<Foreign> {
        let (ours, cores) = (std::process::id(), self.platform.cores.iter().copied());
        let cores = CpuSet::from_cpus(cores).unwrap_or(CpuSet::EMPTY);
        let mut found = Vec::new();
        for pid in self.kernel.processes().unwrap_or_default() {
            for tid in self.kernel.threads(pid).unwrap_or_default() {
                let Ok(has) = self.kernel.attributes(tid) else { continue };
                let is_ours = pid == ours || self.kept.contains_key(&tid);
                if !has.is_deadline() || is_ours || has.flags & SUGOV != 0 {
                    continue;
                }
                let Ok(cpus) = self.kernel.affinity(tid) else { continue };
                let share = has.runtime_ns as f64 / has.period_ns.max(1) as f64;
                let name = self.kernel.thread_name(pid, tid).unwrap_or_default();
                found.push(Foreign { tid, name, share, cpus: cpus.both(&cores) });
            }
        }
        found
    }

    /// Says which cores are overfilled with the reservations of others, and that nothing is bound
    /// where nothing is.
    pub(super) fn foreign(
        &mut self,
        report: &mut Enacted,
        planned: &[(usize, f64)],
        alone: bool,
        named: &BTreeSet<u32>,
    ) {
        let mut refuse = |tid, name: String, asked: String, has: String| {
            report.differences.push(Difference { tid, name, asked, has, reservation: true });
        };
        match self.mode() {
            // The kernel's own test counts them.
            Mode::PartitionRoots | Mode::ExclusiveSets => return,
            Mode::AdmissionOff => {}
        }
        let mut others = self.reservations_of_others();
        // One that the plan replaces is gone in a moment.
        others.retain(|other| !named.contains(&other.tid));
        self.has_others = !others.is_empty();
        let cores: BTreeSet<usize> = planned.iter().map(|(core, _)| *core).collect();
        for core in cores {
            let own: f64 = planned.iter().filter(|(at, _)| *at == core).map(|(_, share)| share).sum();
            // One that may run on several cores may need its share on each, one after the other.
            let here: Vec<&Foreign> = others.iter().filter(|other| other.cpus.contains(core)).collect();
            let foreign: f64 = here.iter().map(|other| other.share).sum();
            let Some(greatest) = here.iter().max_by(|a, b| a.share.total_cmp(&b.share)) else { continue };
            let percent = foreign * 100.0;
            if alone {
                refuse(
                    greatest.tid,
                    greatest.name.clone(),
                    format!("CPU {core} for the plan's threads, whose bounds assume their combined demand"),
                    format!("SCHED_DEADLINE of others, {percent:.0} % of it; the next plan does without"),
                );
            } else if own + foreign > USABLE + 1e-6 {
                refuse(
                    greatest.tid,
                    greatest.name.clone(),
                    format!(
                        "no more than {:.0} % of CPU {core} in addition to the plan",
                        (USABLE - own).max(0.0) * 100.0
                    ),
                    format!(
                        "SCHED_DEADLINE of others, {percent:.0} % of it. Fix: end it, or leave CPU {core} out of `cores`"
                    ),
                );
            }
        }
    }
}

//! Reclaiming of what reservations leave unused (GRUB, SCHED_FLAG_RECLAIM): where it keeps the
//! other reservations whole, and what it needs.
//!
//! A thread that reclaims uses up its budget the more slowly the less the other reservations of its
//! CPU want, so that on an idle CPU it is not held back at all. Linux computes the rate from what
//! is free on the CPU (`grub_reclaim` of kernel/sched/deadline.c):
//! `u_act = max(u, u_max - u_inactive - u_extra)`. `u_extra` is the part of the CPU that nobody has
//! reserved, and the kernel spreads every reservation over all CPUs of its root domain when it
//! computes it. For a domain of one CPU that is right. With the admission test off, reservations
//! sit on one CPU each and the domain has them all: on the fullest one `u_extra` is too great,
//! several threads take the same free time, and a fourth waits eight times as long (measured on
//! 6.18: 3 ms of work in a reservation of 3.2 ms in 10 took 24.7 ms beside six spinning threads of
//! 1 in 10; 3.0 ms with what follows).
//!
//! So every CPU gets a **filler**: a thread of our own that sleeps, with a reservation of what is
//! missing up to the same sum on every CPU ([`fillers`]). Then the spread sum is the sum of each
//! CPU, and the kernel's arithmetic is right. A filler never runs; what it reserves is reclaimed by
//! the others.

use std::collections::BTreeMap;
use std::path::Path;

use crate::reserve::mode::Mode;
use crate::reserve::system::{Attributes, Kernel};
use crate::reserve::{MIN_BUDGET_NS, system};

/// Period of fillers. Long, so that the kernel's rounding of their bandwidth is small.
const FILLER_PERIOD_NS: u64 = 100_000_000;

/// Reason why threads may not reclaim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unsound {
    /// It would be taken from what nobody has.
    #[error("kernels from 6.12 to 6.16 lose the fair server's share when the admission test is switched off")]
    FairServerLost,
    /// Nothing shows which kernel this is.
    #[error("the kernel's release is unknown")]
    UnknownRelease,
}

/// Whether threads may reclaim without harm to other reservations, with [`fillers`] where those are
/// needed; else why not.
///
/// # Errors
///
/// [`Unsound`].
pub fn is_sound(kernel: &dyn Kernel, mode: Mode) -> Result<(), Unsound> {
    match mode {
        Mode::PartitionRoots | Mode::ExclusiveSets => Ok(()),
        // The fair server came with 6.12. Switching the admission test off drops it from `u_extra`,
        // but not from what is inactive on the CPU; "sched/deadline: Fix accounting after global
        // limits change" (6.17) brings it back.
        Mode::AdmissionOff => {
            let release = kernel.read(Path::new("/proc/sys/kernel/osrelease")).unwrap_or_default();
            let server = kernel.read(Path::new("/sys/kernel/debug/sched/fair_server/cpu0/runtime"));
            match system::version(&release) {
                Some(version) if ((6, 12)..(6, 17)).contains(&version) => {
                    let off = server.is_ok_and(|runtime| runtime.trim() == "0");
                    if off { Ok(()) } else { Err(Unsound::FairServerLost) }
                }
                Some(_) => Ok(()),
                None => Err(Unsound::UnknownRelease),
            }
        }
    }
}

/// Reservation of each CPU's filler, so that all come to `sum` if `used` is reserved; `None`:
/// nothing is missing.
#[must_use]
pub fn fillers(
    cpus: impl Iterator<Item = usize>,
    used: &BTreeMap<usize, f64>,
    sum: f64,
) -> Vec<(usize, Option<Attributes>)> {
    let missing = |cpu: usize| {
        let share = sum.clamp(0.0, 1.0) - used.get(&cpu).copied().unwrap_or(0.0);
        // Rounded up: a filler that is too small would make `u_extra` too great.
        let budget_ns = (share.max(0.0) * FILLER_PERIOD_NS as f64).ceil() as u64;
        (budget_ns > MIN_BUDGET_NS).then(|| Attributes::reservation(budget_ns, FILLER_PERIOD_NS, false))
    };
    cpus.map(|cpu| (cpu, missing(cpu))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reserve::system::sim::Sim;

    #[test]
    fn fillers_make_all_sums_equal() {
        let used = BTreeMap::from([(0, 0.25), (1, 0.9), (2, 0.95)]);
        let filled = fillers(0..4, &used, 0.9);
        let share = |of: &Option<Attributes>| of.map_or(0.0, |a| a.runtime_ns as f64 / a.period_ns as f64);
        let shares: Vec<f64> = filled.iter().map(|(_, filler)| share(filler)).collect();
        assert!((shares[0] - 0.65).abs() < 1e-6 && (shares[3] - 0.9).abs() < 1e-6, "{shares:?}");
        assert_eq!((shares[1], shares[2]), (0.0, 0.0), "{shares:?}");
        assert!(filled.iter().flat_map(|(_, filler)| filler).all(|filler| !filler.reclaims()));
    }

    #[test]
    fn kernels_that_lose_the_fair_server_are_distinguished() {
        let mut sim = Sim::new(2);
        let mut sound = |release: &str| {
            sim.files.insert("/proc/sys/kernel/osrelease".into(), format!("{release}\n"));
            is_sound(&sim, Mode::AdmissionOff).is_ok()
        };
        assert!(sound("6.1.0-56-rt-amd64") && sound("5.15.0-91-generic") && sound("6.17.0"));
        assert!(sound("7.0-rc1"));
        assert!(!sound("6.12.117+deb12-amd64") && !sound("6.16.3") && !sound("?"));
        sim.files.insert("/sys/kernel/debug/sched/fair_server/cpu0/runtime".into(), "0\n".into());
        sim.files.insert("/proc/sys/kernel/osrelease".into(), "6.12.1\n".into());
        assert!(is_sound(&sim, Mode::AdmissionOff).is_ok());
    }
}

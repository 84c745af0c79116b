//! Self-suspension: activations that were off the CPU by themselves, because they slept, waited for a lock, a device or a reply.
//!
//! Wall time less CPU time of an activation, where it is more than [`OFF_CPU_NS`], is one of
//! - **preemption**: the source counted that the thread never gave the CPU up by itself. Nothing is learnt from it;
//! - **suspension**: it did, so often, and for how long it was ready all the same is known. The rest counts;
//! - **undecided**: the source cannot tell, did not count from the activation's start, or knows that the thread gave the CPU up but not for
//!   how long it was ready again. All of it counts as suspension, until another activation of the same callback that was off the CPU for
//!   at least half as long has been decided (and suspended itself, if that one did), until [`SPOKEN`] activations have passed of which
//!   the source would have told, or until the horizon has passed: a callback that suspends itself does so again, and is then seen to.
//!
//! Where execution times are wall times (no CPU clock) they contain suspension, which is then demand for the CPU: more than was
//! needed, and sound.

use takt_ros::event::OFF_CPU_NS;

use crate::guard::{CostLimit, Excess};
use crate::{CostCurve, CostRecorder, GreatestRecorder};

/// What the source says of an activation that was off the CPU: how often by itself, and for how long it was ready.
pub(crate) type OffCpu = (Option<u64>, Option<u64>);

/// Suspensions of one callback.
#[derive(Debug, Clone, Default)]
pub(crate) struct Suspensions {
    /// From the first activation on that suspended itself.
    decided: Option<Box<CostRecorder>>,
    most: GreatestRecorder,
    /// Activations of which nobody knows.
    undecided: Option<Undecided>,
    /// What a plan assumed.
    limit: Option<Box<CostLimit>>,
}

#[derive(Debug, Clone)]
struct Undecided {
    /// From the first of them on.
    windows: Box<CostRecorder>,
    /// When the last of them was, and its number.
    at_ns: u64,
    number: u64,
    most_ns: u64,
    /// How often the thread gave the CPU up, if it is known to have done so.
    times: u64,
}

/// After so many activations that were decided or ordinary, what was undecided before says nothing. 100: a minute of an ordinary callback,
/// in which whatever it waits for has been waited for again.
const SPOKEN: u64 = 100;

/// An activation that has ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ended {
    /// Its number, from one on.
    pub number: u64,
    pub at_ns: u64,
    /// How long it was off the CPU.
    pub off_ns: u64,
    /// What the source says of that.
    pub known: Option<OffCpu>,
    /// The source is one that tells.
    pub tells: bool,
}

/// How curves are kept.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Keep {
    pub activations: usize,
    pub horizon_ns: Option<u64>,
}

/// A recorder for the `number`th activation; none of those before suspended itself.
fn recorder(number: u64, at_ns: u64, keep: Keep) -> Box<CostRecorder> {
    let mut recorder = CostRecorder::new(keep.activations, keep.horizon_ns, at_ns);
    let before = number.saturating_sub(1).min(keep.activations as u64);
    (0..before).for_each(|_| recorder.record(at_ns, 0, true));
    Box::new(recorder)
}

impl Suspensions {
    /// One activation.
    pub(crate) fn record(&mut self, ended: Ended, keep: Keep) {
        let Ended { number, at_ns, off_ns, known, tells } = ended;
        let spoken = |undecided: &Undecided| tells && number.saturating_sub(undecided.number) >= SPOKEN;
        if self.undecided.as_ref().is_some_and(spoken) {
            self.undecided = None;
        }
        let off_ns = if off_ns > OFF_CPU_NS { off_ns } else { 0 };
        // What it slept and how often; or what is left open, and how often at least.
        let (slept_ns, open_ns, times) = match known {
            _ if off_ns == 0 => (0, 0, 0),
            Some((Some(0), _)) => (0, 0, 0),
            Some((Some(times), Some(ready_ns))) => (off_ns.saturating_sub(ready_ns), 0, times),
            Some((times, _)) => (0, off_ns, times.unwrap_or(0)),
            None => (0, off_ns, 0),
        };
        let decides = |open: &Undecided| off_ns >= open.most_ns / 2 && (open.times == 0 || times > 0);
        if open_ns == 0 && off_ns > 0 && self.undecided.as_ref().is_some_and(decides) {
            self.undecided = None;
        }
        if open_ns > 0 {
            let open = self.undecided.get_or_insert_with(|| Undecided {
                windows: recorder(number, at_ns, keep),
                at_ns,
                number,
                most_ns: 0,
                times: 0,
            });
            (open.at_ns, open.number) = (at_ns, number);
            open.most_ns = open.most_ns.max(open_ns);
            open.times = open.times.max(times);
        } else if times > 0 {
            self.decided.get_or_insert_with(|| recorder(number, at_ns, keep));
        }
        if let Some(open) = &mut self.undecided {
            open.windows.record(at_ns, open_ns, true);
        }
        if let Some(limit) = &mut self.limit {
            limit.see(at_ns, slept_ns);
        }
        if let Some(decided) = &mut self.decided {
            decided.record(at_ns, slept_ns, true);
            self.most.record(at_ns, if open_ns > 0 { 0 } else { times }, keep.horizon_ns);
        }
    }

    /// Holds every activation from now on against these suspensions; `None`: no longer.
    pub(crate) fn limit(&mut self, limit: Option<CostLimit>) {
        self.limit = limit.map(Box::new);
    }

    /// Where the limit was first left since the last call.
    pub(crate) fn excess(&mut self) -> Option<Excess> {
        self.limit.as_mut()?.take()
    }

    /// Activations may be missing here.
    pub(crate) fn gap(&mut self) {
        if let Some(limit) = &mut self.limit {
            limit.gap();
        }
        if let Some(decided) = &mut self.decided {
            decided.gap();
        }
        if let Some(open) = &mut self.undecided {
            open.windows.gap();
        }
    }

    /// The curve at `now_ns`, and how often one activation suspended itself at most. Both empty: none did.
    pub(crate) fn curve(&self, now_ns: u64, keep: Keep) -> (CostCurve, u64) {
        let mut curve = self.decided.as_ref().map(|decided| decided.curve()).unwrap_or_default();
        let mut most = self.most.most();
        if curve.most_ns.last().is_none_or(|&most_ns| most_ns == 0) {
            (curve, most) = (CostCurve::default(), 0);
        }
        let forgotten = |undecided: &Undecided| {
            keep.horizon_ns.is_some_and(|horizon_ns| now_ns.saturating_sub(undecided.at_ns) > horizon_ns)
        };
        if let Some(undecided) = self.undecided.as_ref().filter(|undecided| !forgotten(undecided)) {
            let open = undecided.windows.curve();
            let entries = open.most_ns.len().max(curve.most_ns.len());
            let at = |curve: &CostCurve, i: usize| {
                curve.most_ns.get(i).or(curve.most_ns.last()).copied().unwrap_or(0)
            };
            curve.most_ns = (0..entries)
                .map(|i| match i {
                    // One activation is either decided or not.
                    0 => at(&curve, 0).max(at(&open, 0)),
                    _ => at(&curve, i).saturating_add(at(&open, i)),
                })
                .collect();
            curve.seen = curve.seen.max(open.seen);
            curve.total_ns = curve.total_ns.saturating_add(open.total_ns);
            curve.cpu_time = true;
            most = most.max(undecided.times).max(1);
        }
        (curve, most)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KEEP: Keep = Keep { activations: 16, horizon_ns: Some(1_000_000_000_000) };
    const MS: u64 = 1_000_000;

    #[derive(Debug, Clone, Copy)]
    enum Truth {
        Ran,
        Preempted(u64),
        Slept(u64, u64),
        Unknown(u64),
    }

    fn truth() -> impl Strategy<Value = Truth> {
        prop_oneof![
            (0u64..1).prop_map(|_| Truth::Ran),
            (1u64..50).prop_map(|ms| Truth::Preempted(ms * MS)),
            (1u64..50, 0u64..9).prop_map(|(ms, ready)| Truth::Slept(ms * MS, ready * MS)),
            (1u64..50).prop_map(|ms| Truth::Unknown(ms * MS)),
        ]
    }

    fn off_ns(truth: Truth) -> u64 {
        match truth {
            Truth::Ran => 0,
            Truth::Preempted(ns) | Truth::Unknown(ns) => ns,
            Truth::Slept(ns, ready) => ns + ready,
        }
    }

    fn record(to: &mut Suspensions, number: u64, truth: Truth) {
        let (off, known) = match truth {
            Truth::Ran => (OFF_CPU_NS, None),
            Truth::Preempted(ns) => (ns, Some((Some(0), None))),
            Truth::Slept(ns, ready) => (ns + ready, Some((Some(2), Some(ready)))),
            Truth::Unknown(ns) => (ns, None),
        };
        let at_ns = number * 100 * MS;
        to.record(Ended { number, at_ns, off_ns: off, known, tells: true }, KEEP);
    }

    proptest! {
        /// Every window's suspension is covered, and that of undecided ones until they are decided.
        #[test]
        fn windows_are_covered(truths in proptest::collection::vec(truth(), 1..80)) {
            let mut suspensions = Suspensions::default();
            for (number, truth) in truths.iter().enumerate() {
                record(&mut suspensions, number as u64 + 1, *truth);
            }
            let (curve, most) = suspensions.curve(0, KEEP);
            let slept: Vec<u64> =
                truths.iter().map(|t| if let Truth::Slept(ns, _) = t { *ns } else { 0 }).collect();
            let any = slept.iter().any(|&ns| ns > 0);
            prop_assert!(!any || most == 2);
            if any {
                prop_assert!(curve.most_ns.len() >= truths.len().min(KEEP.activations));
            }
            for (i, entry) in curve.most_ns.iter().enumerate() {
                let sum = slept.windows(i + 1).map(|w| w.iter().sum::<u64>()).max().unwrap_or(0);
                prop_assert!(*entry >= sum, "{} activations: {entry} < {sum}", i + 1);
                let off: u64 = truths.windows(i + 1).map(|w| w.iter().map(|&t| off_ns(t)).sum()).max().unwrap_or(0);
                prop_assert!(*entry <= 2 * off, "{} activations: {entry} > {off}", i + 1);
                if suspensions.undecided.is_none() {
                    prop_assert_eq!(*entry, sum);
                }
            }
            if let Some(Truth::Unknown(ns)) = truths.last() {
                prop_assert!(curve.most_ns[0] >= *ns && most >= 1);
            }
        }
    }

    #[test]
    fn preemption_alone_is_no_suspension() {
        let mut suspensions = Suspensions::default();
        for number in 1..100 {
            record(&mut suspensions, number, Truth::Preempted(number * MS));
        }
        assert_eq!(suspensions.curve(0, KEEP), (CostCurve::default(), 0));
    }

    #[test]
    fn what_nobody_knows_counts_until_it_is_decided_or_forgotten() {
        let mut suspensions = Suspensions::default();
        record(&mut suspensions, 1, Truth::Unknown(20 * MS));
        record(&mut suspensions, 2, Truth::Preempted(9 * MS));
        let (curve, most) = suspensions.curve(0, KEEP);
        assert_eq!((curve.most_ns, most), (vec![20 * MS, 20 * MS], 1));
        let later_ns = 100 * MS + KEEP.horizon_ns.unwrap_or(0) + 1;
        assert_eq!(suspensions.curve(later_ns, KEEP).1, 0);
        record(&mut suspensions, 3, Truth::Preempted(10 * MS));
        assert_eq!(suspensions.curve(0, KEEP), (CostCurve::default(), 0));
    }

    #[test]
    fn one_that_gave_the_cpu_up_for_who_knows_how_long_is_decided_by_its_like() {
        let mut suspensions = Suspensions::default();
        let open = |to: &mut Suspensions, number| {
            let known = Some((Some(3), None));
            to.record(Ended { number, at_ns: number * MS, off_ns: 30 * MS, known, tells: true }, KEEP);
        };
        open(&mut suspensions, 1);
        record(&mut suspensions, 2, Truth::Preempted(40 * MS));
        assert_eq!((suspensions.curve(0, KEEP).0.most_ns[0], suspensions.curve(0, KEEP).1), (30 * MS, 3));
        record(&mut suspensions, 3, Truth::Slept(20 * MS, 10 * MS));
        assert_eq!((suspensions.curve(0, KEEP).0.most_ns[0], suspensions.curve(0, KEEP).1), (20 * MS, 2));
        // So many in a row for which the source would have told.
        let mut suspensions = Suspensions::default();
        open(&mut suspensions, 1);
        (2..=SPOKEN).for_each(|number| record(&mut suspensions, number, Truth::Ran));
        assert_eq!(suspensions.curve(0, KEEP).1, 3);
        record(&mut suspensions, SPOKEN + 1, Truth::Ran);
        assert_eq!(suspensions.curve(0, KEEP).1, 0);
    }
}

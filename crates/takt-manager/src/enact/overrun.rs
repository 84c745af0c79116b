//! Budgets that do not suffice: noticed, and softened where that is asked for.
//!
//! **Noticing.** The kernel can send SIGXCPU at an overrun (SCHED_FLAG_DL_OVERRUN), but to the
//! *reserved* process, whose default action is to die, and never to us. For processes of others
//! this is out of the question. So the manager compares, every few periods, the CPU time of each
//! reserved thread with its budget: one that wants to run and has had all that its budget allows is
//! held back. This alone is as planned: a callback of 22 ms on 4 ms in 10 is held back five times.
//! It is an overrun when the thread has not caught up for as long as the tightest goal that it
//! serves ([`super::Wanted::patience_ns`]). An overrun within one period that is over before the
//! next look goes unseen here; the probes see it, as a longer callback. The account is kept as the
//! kernel keeps it, with debts: it looks at budgets on scheduler ticks only, so a small budget is
//! first overdrawn by up to a tick and then paid back over several periods.
//!
//! **Reclaiming.** A hard reservation holds a thread back also while its CPU idles: a callback of 5
//! ms on 1 ms in 10 takes 50 ms. With SCHED_FLAG_RECLAIM (GRUB) a thread's budget drains more
//! slowly, by what the core's other reservations leave unused: 5 ms again (both measured on 6.18).
//! Every other reservation stays whole ([`takt_host::reserve::reclaim`], which says where).
//! Reclaimed time is taken from threads without a reservation, so [`Soft::Reclaim`] takes it away
//! from a thread that wants more for longer than that patience.
//!
//! **Softening.** Mainline Linux has hard reservations only (section VII.B.d of the paper): a
//! thread that needs more than was learnt would be worse off than without a manager, as the main
//! thread of an OpenMP loop is that does the work of helpers which do not get a CPU (frames of 52
//! ms instead of 29). So the manager lets a thread that is found to overrun go on as what it was
//! before it was managed, on all its CPUs, until it has caught up (it sleeps, or gets less than its
//! bandwidth), and then gives the reservation back. This takes effect after that patience, not at
//! once, and costs the guarantee for that time, which the log says. [`Soft::Soft`] lets it reclaim
//! without end where that is sound; [`Soft::Hard`] holds it to its budget.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Kept;
use crate::system::{Kernel, Usage};

/// Treatment of a thread that has used up its budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Soft {
    /// It waits for the next period, also when nobody else wants the CPU.
    Hard,
    /// It goes on in time that nobody has reserved or that others leave, until it has wanted more
    /// for longer than its patience; then it goes on as what it was before it was managed, until it
    /// has caught up.
    #[default]
    Reclaim,
    /// It goes on as best effort.
    Soft,
    /// It goes on in bandwidth that the other reservations of its core leave unused, as the
    /// kernel's GRUB has it, and waits for its next period when that is used up. This is the
    /// behaviour of *ROS-Llama*'s reservations (sections II.c and VII.B.d).
    Grub,
}

/// A thread that had used up its budget and wanted more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overrun {
    pub tid: u32,
    pub name: String,
    /// Its budget per period.
    pub budget_ns: u64,
    pub period_ns: u64,
    /// CPU time that it had since the last look.
    pub used_ns: u64,
    /// Time since then.
    pub passed_ns: u64,
    /// It now goes on without its reservation until it has caught up.
    pub released: bool,
}

/// Action requested by [`Watch::look`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    /// End the reservation for the moment.
    Release(u32),
    /// Give it back.
    Reserve(u32),
}

/// Response to an overrun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    Report,
    /// The reservation ends for the moment.
    Release,
}

/// Time between two looks at a thread, at least.
const MIN_NS: u64 = 20_000_000;
/// Looks in a row at which a released thread has caught up.
const LOOKS: u32 = 2;

/// Largest remembered debt in budgets: a tick of 10 ms and a budget of 1 ms make ten.
const MAX_DEBT: i64 = 10;

#[derive(Debug, Default, Clone, Copy)]
struct Seen {
    start_ticks: u64,
    run_ns: u64,
    at_ns: u64,
    /// Budget left, or debt.
    left_ns: i64,
    /// Since when it has been without budget and wanting more, at every look.
    behind_since_ns: Option<u64>,
    calm: u32,
    /// It goes without its reservation, as far as is known here: a new plan may have given it back.
    released: bool,
}

#[derive(Debug, Default)]
pub(super) struct Watch {
    seen: BTreeMap<u32, Seen>,
}

impl Watch {
    pub fn look(
        &mut self,
        kernel: &dyn Kernel,
        now_ns: u64,
        kept: &BTreeMap<u32, Kept>,
        answer: Answer,
    ) -> (Vec<Overrun>, Vec<Action>) {
        let (mut overruns, mut actions) = (Vec::new(), Vec::new());
        self.seen.retain(|tid, _| kept.contains_key(tid));
        for (&tid, one) in kept {
            let pid = one.thread.pid;
            // Looking costs system calls; more than once in two periods shows little more, and
            // nobody answers within less.
            let least_ns = one.held.period_ns.saturating_mul(2).max(MIN_NS);
            let known = self.seen.get(&tid).filter(|seen| seen.start_ticks == one.thread.start_ticks);
            if known.is_some_and(|seen| now_ns.saturating_sub(seen.at_ns) < least_ns) {
                continue;
            }
            let Ok(Usage { run_ns, .. }) = kernel.usage(&one.thread) else { continue };
            let budget_ns = i64::try_from(one.held.budget_ns).unwrap_or(i64::MAX / 100);
            let fresh = Seen {
                start_ticks: one.thread.start_ticks,
                run_ns,
                at_ns: now_ns,
                left_ns: budget_ns,
                ..Seen::default()
            };
            let seen = self.seen.entry(tid).or_insert(fresh);
            if seen.start_ticks != fresh.start_ticks {
                *seen = fresh;
            }
            let passed_ns = now_ns.saturating_sub(seen.at_ns);
            if passed_ns < least_ns {
                continue;
            }
            let used_ns = run_ns.saturating_sub(seen.run_ns);
            (seen.run_ns, seen.at_ns) = (run_ns, now_ns);
            let share = one.held.budget_ns as f64 / one.held.period_ns.max(1) as f64;
            let earned_ns = (share * passed_ns as f64) as i64;
            let left_ns = seen.left_ns.saturating_add(earned_ns).saturating_sub_unsigned(used_ns);
            seen.left_ns = left_ns.clamp(budget_ns.saturating_mul(-MAX_DEBT), budget_ns);
            // More than one budget cannot be saved up: who has less than that left, or debt, left
            // nothing unused. A fiftieth, because the kernel accounts budgets at its own grain.
            let spent = left_ns <= budget_ns + budget_ns / 50;
            if !spent && !seen.released {
                seen.behind_since_ns = None;
                continue;
            }
            let reserved = kernel.attributes(tid).is_ok_and(|now| now.is_deadline());
            let wants = kernel.wants_to_run(pid, tid).unwrap_or(false);
            let exhausted = wants && spent;
            let calm = !wants || (used_ns as f64) < 0.8 * share * passed_ns as f64;
            let since_ns = *seen.behind_since_ns.get_or_insert(now_ns - passed_ns);
            if !(reserved && exhausted) {
                seen.behind_since_ns = None;
            }
            let behind = reserved && exhausted && now_ns - since_ns >= one.patience_ns;
            seen.calm = if !reserved && calm { seen.calm + 1 } else { 0 };
            let releases = answer == Answer::Release && behind;
            if releases {
                (seen.behind_since_ns, seen.released) = (None, true);
                actions.push(Action::Release(tid));
            }
            if answer == Answer::Release && seen.calm >= LOOKS {
                (seen.calm, seen.released) = (0, false);
                actions.push(Action::Reserve(tid));
            }
            if behind {
                let (budget_ns, period_ns) = (one.held.budget_ns, one.held.period_ns);
                let name = one.name.clone();
                overruns.push(Overrun {
                    tid,
                    name,
                    budget_ns,
                    period_ns,
                    used_ns,
                    passed_ns,
                    released: releases,
                });
            }
        }
        (overruns, actions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::enact::order::Held;
    use crate::system::sim::Sim;
    use crate::system::{Attributes, Identity};

    const MS: u64 = 1_000_000;

    /// One thread with 1 ms in 10; each look is 20 ms after the one before, in which it ran as long
    /// as given.
    fn looks(ran_ms: &[(u64, bool)], answer: Answer) -> Vec<(usize, Vec<Action>)> {
        let mut sim = Sim::new(2);
        sim.spawn(10, 10, "busy");
        let held = Held { budget_ns: MS, period_ns: 10 * MS, core: 1 };
        let thread = Identity { pid: 10, tid: 10, start_ticks: sim.start_ticks(10, 10).unwrap() };
        let kept = BTreeMap::from([(10, Kept { thread, name: "busy".into(), held, patience_ns: 40 * MS })]);
        let mut watch = Watch::default();
        let mut reserved = true;
        let mut reported = Vec::new();
        for (i, &(ran, wants)) in [(0, false)].iter().chain(ran_ms).enumerate() {
            let attributes =
                if reserved { Attributes::reservation(MS, 10 * MS, false) } else { Attributes::other(0) };
            sim.force(10, attributes, ran * MS, wants);
            let (overruns, actions) = watch.look(&sim, (1 + i as u64) * 20 * MS, &kept, answer);
            for action in &actions {
                reserved = !matches!(action, Action::Release(_));
            }
            reported.push((overruns.len(), actions));
        }
        reported.split_off(1)
    }

    #[test]
    fn a_thread_within_its_budget_overruns_nothing() {
        let reported = looks(&[(1, true), (2, false), (1, true), (2, false), (1, true)], Answer::Release);
        assert!(reported.iter().all(|reported| *reported == (0, vec![])), "{reported:?}");
    }

    #[test]
    fn a_burst_beyond_the_budget_counts_until_it_is_paid_back() {
        // 6 ms at once are six periods' worth: held back for three looks, then there is budget
        // again.
        let reported = looks(&[(6, true), (0, true), (0, true), (0, true)], Answer::Report);
        assert_eq!(reported.iter().map(|reported| reported.0).collect::<Vec<_>>(), [0, 1, 1, 0]);
        assert!(reported.iter().all(|reported| reported.1.is_empty()));
    }

    #[test]
    fn a_thread_that_always_has_just_its_budget_is_held_back() {
        // Windows of two periods see one to three budgets.
        let reported =
            looks(&[(3, true), (1, true), (2, true), (2, true), (3, true), (1, true)], Answer::Report);
        assert!(reported[1..].iter().all(|reported| reported.0 == 1), "{reported:?}");
    }

    #[test]
    fn an_exhausted_thread_is_let_go_and_taken_back_when_it_has_caught_up() {
        let reported = looks(
            &[(6, true), (0, true), (20, true), (20, true), (0, false), (0, false), (1, false)],
            Answer::Release,
        );
        let actions: Vec<_> = reported.into_iter().map(|reported| reported.1).collect();
        assert_eq!(actions[1], [Action::Release(10)]);
        assert_eq!(actions[5], [Action::Reserve(10)]);
        assert_eq!(actions.iter().flatten().count(), 2);
    }
}

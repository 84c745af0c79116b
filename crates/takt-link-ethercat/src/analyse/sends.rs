//! When cycles began: sends that were late, and sends that were early.

use std::collections::HashMap;

use super::app::{AppCycle, AppLog};
use super::blame::{LateFrameJudge, host_send_ns};
use super::report::{Blame, FindingKind, micros};
use super::ways::FrameTimes;

/// Reason of a cycle's late begin, by the application's own timestamps: the largest one that they
/// show.
fn own_words(before: Option<&AppCycle>, cycle: &AppCycle, late_ns: u64, period_ns: u64) -> String {
    let AppCycle { planned_ns, wake_ns, sent_ns, .. } = *cycle;
    let known = |later: u64, earlier: u64| if earlier > 0 { later.saturating_sub(earlier) } else { 0 };
    let put_off = known(planned_ns, before.map_or(0, |before| before.planned_ns)).saturating_sub(period_ns);
    let parts = [
        (known(wake_ns, planned_ns), "its thread woke", "after its time (scheduling: see takt trace)"),
        (known(sent_ns, wake_ns), "it was", "from its wake-up to sending"),
        (put_off, "it planned this cycle", "later than one period after the previous one"),
    ];
    match parts.into_iter().max_by_key(|parts| parts.0).filter(|parts| parts.0 > late_ns / 2) {
        Some((ns, what, when)) => format!("{what} {:.0} µs {when}", micros(ns)),
        None => format!("it sent {:.0} µs late according to its own timestamps", micros(late_ns)),
    }
}

/// When cycles are due. A cycle is due a period after the one before. The grid goes on in step with
/// the frames counted: who sent late, and catches up with the frames that were held up, is not
/// early. One early frame says nothing of the grid: it may be this cycle's, sent too soon, or one
/// more beside the cycle's, or the first one of a new phase. The next frame shows which.
struct Grid {
    period_ns: u64,
    limit_ns: u64,
    /// When the next send is due.
    due_ns: u64,
    /// The time that the last one had in the grid.
    slot_ns: u64,
    /// After early frames: when the first of them was due.
    early: Option<u64>,
}

enum Time {
    Due,
    Late(u64),
    Early(u64),
}

impl Grid {
    fn from(first_ns: u64, period_ns: u64, limit_ns: u64) -> Self {
        let due_ns = first_ns.saturating_add(period_ns);
        Self { period_ns, limit_ns, due_ns, slot_ns: first_ns, early: None }
    }

    /// A send that no capture saw.
    fn unseen(&mut self, sent_ns: u64) {
        (self.due_ns, self.slot_ns, self.early) = (sent_ns.saturating_add(self.period_ns), sent_ns, None);
    }

    /// When the next send is due, if early frames went before it: of the times that these leave
    /// open, the nearest.
    fn nearest_due_ns(&self, sent_ns: u64, first_due_ns: u64) -> u64 {
        let after_last_ns = self.due_ns;
        let last_ns = after_last_ns.saturating_sub(self.period_ns);
        // A frame that is early by most of a period is none that was due then.
        let is_in_its_place = first_due_ns.saturating_sub(last_ns) <= self.period_ns / 2;
        let next_ns = first_due_ns.saturating_add(if is_in_its_place { self.period_ns } else { 0 });
        let open = [first_due_ns, after_last_ns, next_ns];
        open.into_iter().min_by_key(|due_ns| due_ns.abs_diff(sent_ns)).unwrap_or(first_due_ns)
    }

    fn send(&mut self, sent_ns: u64) -> Time {
        let next_ns = sent_ns.saturating_add(self.period_ns);
        if let Some(first_due_ns) = self.early {
            self.due_ns = self.nearest_due_ns(sent_ns, first_due_ns);
            // Nothing was held up.
            self.slot_ns = self.due_ns.saturating_sub(self.period_ns);
        }
        let (due_ns, slot_ns) = (self.due_ns, self.slot_ns.saturating_add(self.period_ns));
        let early_ns = due_ns.min(slot_ns).saturating_sub(sent_ns);
        if early_ns > self.limit_ns {
            self.early.get_or_insert(due_ns.min(slot_ns));
            (self.due_ns, self.slot_ns) = (next_ns, sent_ns);
            return Time::Early(early_ns);
        }
        self.due_ns = next_ns;
        self.early = None;
        if sent_ns.saturating_sub(due_ns) > self.limit_ns {
            self.slot_ns = slot_ns;
            return Time::Late(sent_ns - due_ns);
        }
        let on_time = due_ns.saturating_sub(sent_ns) <= self.limit_ns;
        self.slot_ns = if on_time || sent_ns.abs_diff(slot_ns) <= self.limit_ns { sent_ns } else { slot_ns };
        Time::Due
    }
}

impl LateFrameJudge<'_> {
    /// Cycles that began after or before their time, counted from the cycle before: also from one
    /// of `unseen`.
    pub(super) fn sends(
        &mut self,
        starts: &[usize],
        period_ns: u64,
        cycles: Option<&(&AppLog, Vec<(AppCycle, usize)>)>,
        unseen: &[AppCycle],
    ) {
        let cycle_of: HashMap<usize, AppCycle> =
            cycles.iter().flat_map(|(_, found)| found.iter().map(|&(cycle, way)| (way, cycle))).collect();
        let Some(&first) = starts.first() else { return };
        let mut grid = Grid::from(self.ways.ways[first].first_ns(), period_ns, self.late_ns);
        for two in starts.windows(2) {
            let (before, way) = (self.ways.ways[two[0]], self.ways.ways[two[1]]);
            if before.steps != way.steps {
                grid = Grid::from(way.first_ns(), period_ns, self.late_ns);
                continue;
            }
            let app = cycles.and_then(|(log, _)| Some((*log, *cycle_of.get(&two[1])?)));
            let hidden = app.and_then(|(log, cycle)| {
                let last = unseen.partition_point(|other| other.sent_ns < cycle.sent_ns).checked_sub(1)?;
                let at_ns = log.in_capture(unseen[last].sent_ns);
                (at_ns > before.first_ns()).then_some((at_ns, unseen[last]))
            });
            if let Some((at_ns, _)) = hidden {
                grid.unseen(at_ns);
            }
            let time = grid.send(way.first_ns());
            let due_ns = match time {
                Time::Late(late_ns) => way.first_ns().saturating_sub(late_ns),
                Time::Due | Time::Early(_) => way.first_ns(),
            };
            let previous = hidden.map(|(_, cycle)| cycle).or_else(|| cycle_of.get(&two[0]).copied());
            let waited = app.and_then(|(log, cycle)| host_send_ns(log, cycle, &way)).unwrap_or(0);
            if waited > self.late_ns {
                let why = format!("{:.0} µs from the application's send to the interface", micros(waited));
                self.find(&way, FindingKind::SentLate, Blame::HostStack, Some(waited), why);
                continue;
            }
            match time {
                Time::Due => {}
                Time::Early(early_ns) => self.early(&before, &way, early_ns),
                Time::Late(late_ns) => {
                    self.late(&before, &way, [due_ns, late_ns, period_ns], app, previous.as_ref());
                }
            }
        }
    }

    fn early(&mut self, before: &FrameTimes, way: &FrameTimes, early_ns: u64) {
        let since_ns = way.first_ns().saturating_sub(before.first_ns());
        let why = format!(
            "it left {:.0} µs early, {:.0} µs after the previous frame",
            micros(early_ns),
            micros(since_ns)
        );
        self.find(way, FindingKind::SentEarly, Blame::Application, Some(early_ns), why);
    }

    fn late(
        &mut self,
        before: &FrameTimes,
        way: &FrameTimes,
        [due_ns, late_ns, period_ns]: [u64; 3],
        app: Option<(&AppLog, AppCycle)>,
        previous: Option<&AppCycle>,
    ) {
        // A master that waits for an answer cannot send in time when that is late.
        let answered = match (app, previous) {
            // Its own word counts: an answer may lie in the host for long.
            (Some((log, _)), Some(cycle)) if cycle.looked_ns == cycle.sent_ns => {
                (cycle.taken_ns > 0).then(|| log.in_capture(cycle.taken_ns))
            }
            // A pipelined master waits for nothing.
            (Some(_), _) => Some(due_ns),
            (None, _) => before.returned_ns.or(before.from_segment_ns),
        };
        if answered.is_none_or(|answered| answered > due_ns) {
            self.held_up += 1;
            return;
        }
        let why = match app {
            Some((_, cycle)) => own_words(previous, &cycle, late_ns, period_ns),
            None => format!(
                "it left {:.0} µs late; the previous answer had arrived after {:.0} µs, so the bus did not delay it",
                micros(late_ns),
                micros(answered.unwrap_or(0).saturating_sub(before.first_ns()))
            ),
        };
        self.find(way, FindingKind::SentLate, Blame::Application, Some(late_ns), why);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Early and late sends of a master with a period of 1000, late or early by more than 250.
    fn found(sends: impl IntoIterator<Item = u64>) -> (Vec<u64>, Vec<u64>) {
        let mut sends = sends.into_iter();
        let mut grid = Grid::from(sends.next().unwrap(), 1000, 250);
        let (mut early, mut late) = (Vec::new(), Vec::new());
        for sent in sends {
            match grid.send(sent) {
                Time::Due => {}
                Time::Early(by) => early.push(by),
                Time::Late(by) => late.push(by),
            }
        }
        (early, late)
    }

    fn every(sends: u64) -> impl Iterator<Item = u64> {
        (1..=sends).map(|at| at * 1000)
    }

    #[test]
    fn a_few_early_or_extra_frames_move_nothing_but_themselves() {
        // One more frame, soon after the cycle's own, in the middle, and shortly before the next.
        for (after, by) in [(20, 980), (300, 700), (500, 500), (700, 300)] {
            let extra =
                every(100).flat_map(|at| [at].into_iter().chain((at % 10_000 == 0).then_some(at + after)));
            assert_eq!(found(extra), (vec![by; 10], vec![]), "{after}");
        }
        // Two more of them, after which the cycles go on from the last one.
        let mut at = 0;
        let moved: Vec<u64> = (0..100)
            .map(|send| {
                at += if send % 50 < 2 { 20 } else { 1000 };
                at
            })
            .collect();
        assert_eq!(found(moved), (vec![980, 980, 960], vec![]));
        // Too soon, and then in time.
        let soon = every(100).map(|at| if at % 10_000 == 0 { at - 400 } else { at });
        assert_eq!(found(soon), (vec![400; 10], vec![]));
        // A new phase, earlier and later.
        for shift in [-400_i64, 400, -900, 900] {
            let shifted = every(100).map(|at| if at > 50_000 { at.saturating_add_signed(shift) } else { at });
            let (early, late) = found(shifted);
            let off: Vec<u64> = early.iter().chain(&late).copied().collect();
            assert_eq!((off, early.is_empty()), (vec![shift.unsigned_abs()], shift > 0), "{shift}");
        }
    }

    #[test]
    fn who_catches_up_is_not_early_and_lateness_after_an_early_frame_is_seen() {
        // Held up for 3.5 periods; then three frames at once, and in step again.
        let caught_up = every(20).map(|at| match at {
            10_000..=13_000 => 13_500 + at / 1000,
            at => at,
        });
        assert_eq!(found(caught_up), (vec![], vec![3510]));
        // An extra frame, and a cycle left out behind it.
        let left_out = every(20).flat_map(|at| match at {
            10_000 => vec![10_000, 10_020],
            11_000 => vec![],
            at => vec![at],
        });
        assert_eq!(found(left_out), (vec![980], vec![980]));
    }
}

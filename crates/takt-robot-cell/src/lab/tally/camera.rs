//! One camera and its perception task: what came, what was judged, what was lost.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};
use takt_stats::{Recorder, RecorderError};

use super::{Rules, StealTally, inside};
use crate::reaction::MAX_WAITING;
use crate::records::FrameRecord;

/// Rules for a camera.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CameraRule {
    /// Its name in the configuration.
    pub name: String,
    /// Time from one frame to the next, nanoseconds; absent for a recording that is paced by its
    /// own time stamps.
    pub period_ns: Option<u64>,
}

/// Facts about the previous frame.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Last {
    sequence: u64,
    /// Only of judged frames: the stamps of others may be anything.
    capture_ns: Option<u64>,
    arrival_ns: u64,
}

/// Frames that were not taken up between two that were.
#[derive(Clone, Copy, Debug)]
struct Gap {
    /// Place of the frame after them among all that were taken up.
    place: u64,
    before: Last,
    after: Last,
    dropped: u64,
}

/// The counts of one camera, of frames that arrived within the window.
#[derive(Debug, Serialize, Deserialize)]
pub struct CameraTally {
    /// Frames judged.
    pub judged: u64,
    /// Frames taken up that could not be judged, by reason.
    pub unjudged: BTreeMap<String, u64>,
    /// Frames delivered and never taken up: a newer one took their place, or the driver was late.
    pub dropped: u64,
    /// Those of them whose answer, that of the next judged frame, came after their own deadline.
    pub dropped_late: u64,
    /// Frames that the camera should have delivered and did not.
    pub missing: u64,
    /// Longest time without a frame, nanoseconds.
    pub longest_silence_ns: u64,
    /// People found, summed over the judged frames.
    pub people: u64,
    /// Judged frames on which a network ran before their result was published.
    pub with_networks: u64,
    /// Frames judged and never seen by a job.
    pub unanswered: u64,
    /// Those of them that were past their deadline.
    pub unanswered_late: u64,
    /// Reaction times.
    pub reaction: Recorder,
    /// Arrival to publication: the response time of the perception task.
    pub response: Recorder,
    last: Option<Last>,
    taken: u64,
    /// Places of the judged frames that wait for their answer.
    #[serde(skip)]
    waiting: VecDeque<u64>,
    #[serde(skip)]
    gaps: VecDeque<Gap>,
    /// When newer results were published, by sequence number.
    #[serde(skip)]
    published: VecDeque<(u64, u64)>,
}

impl CameraTally {
    pub(super) fn new(rules: &Rules) -> Result<Self, RecorderError> {
        Ok(Self {
            judged: 0,
            unjudged: BTreeMap::new(),
            dropped: 0,
            dropped_late: 0,
            missing: 0,
            longest_silence_ns: 0,
            people: 0,
            with_networks: 0,
            unanswered: 0,
            unanswered_late: 0,
            reaction: Recorder::compact(Some(rules.reaction_deadline_ns))?,
            response: Recorder::compact(Some(rules.perception_deadline_ns))?,
            last: None,
            taken: 0,
            waiting: VecDeque::new(),
            gaps: VecDeque::new(),
            published: VecDeque::new(),
        })
    }

    /// The camera starts again, and its numbers with it.
    pub(super) fn begin_anew(&mut self) {
        self.last = None;
    }

    /// Frames without a judgement.
    pub(crate) fn unjudged_frames(&self) -> u64 {
        self.unjudged.values().sum()
    }

    /// Frames that the camera delivered.
    pub fn delivered(&self) -> u64 {
        self.judged + self.unjudged_frames() + self.dropped
    }

    pub(super) fn frame(
        &mut self,
        frame: &FrameRecord,
        rule: &CameraRule,
        deadline_ns: u64,
        window_ns: [u64; 2],
        steal: &mut StealTally,
    ) {
        let FrameRecord { sequence, capture_ns, arrival_ns, dropped, .. } = *frame;
        let capture_ns = frame.is_judged().then_some(capture_ns);
        let now = Last { sequence, capture_ns, arrival_ns };
        self.taken += 1;
        self.since_last(now, dropped, rule, window_ns);
        self.last = Some(now);
        if frame.is_judged() {
            push_bounded(&mut self.waiting, self.taken);
            push_bounded(&mut self.published, (sequence, frame.published_ns));
        }
        if !inside(window_ns, arrival_ns) {
            return;
        }
        if !frame.is_judged() {
            *self.unjudged.entry(reason(frame)).or_default() += 1;
            return;
        }
        self.judged += 1;
        self.people += u64::from(frame.people);
        self.with_networks += u64::from(frame.used_networks());
        let response_ns = frame.published_ns.saturating_sub(arrival_ns);
        self.response.record(response_ns);
        if response_ns > deadline_ns {
            steal.miss(arrival_ns, frame.published_ns, 1);
        }
    }

    /// Counts frames between the previous frame and this one: those that came, and those that
    /// should have come.
    fn since_last(&mut self, now: Last, dropped: u64, rule: &CameraRule, window_ns: [u64; 2]) {
        let [from_ns, to_ns] = window_ns;
        let Some(before) = self.last else {
            if inside(window_ns, now.arrival_ns) {
                self.dropped += dropped;
            }
            let silence_ns = now.arrival_ns.min(to_ns).saturating_sub(from_ns);
            self.silence(silence_ns);
            self.missing += rule.period_ns.map_or(0, |period| silence_ns / period.max(1));
            return;
        };
        self.silence(now.arrival_ns.min(to_ns).saturating_sub(before.arrival_ns.max(from_ns)));
        let gap = Gap { place: self.taken, before, after: now, dropped };
        let dropped_inside = gap.dropped_within(from_ns, to_ns);
        self.dropped += dropped_inside;
        if let Some(period_ns) = rule.period_ns {
            self.missing += gap.missing_within(period_ns, dropped_inside, window_ns);
        }
        if dropped > 0
            && let Some(forgotten) = push_bounded(&mut self.gaps, gap)
        {
            // Nothing was judged for minutes.
            self.dropped_late += forgotten.dropped_within(from_ns, to_ns);
        }
    }

    fn silence(&mut self, silence_ns: u64) {
        self.longest_silence_ns = self.longest_silence_ns.max(silence_ns);
    }

    /// The oldest judged frame without an answer has one now, and with it those that were dropped
    /// before it.
    pub(super) fn answered(&mut self, answer_ns: u64, deadline_ns: u64, window_ns: [u64; 2]) {
        let Some(place) = self.waiting.pop_front() else { return };
        while let Some(gap) = self.gaps.pop_front_if(|gap| gap.place <= place) {
            self.late(&gap, answer_ns, deadline_ns, window_ns);
        }
    }

    fn late(&mut self, gap: &Gap, answer_ns: u64, deadline_ns: u64, [from_ns, to_ns]: [u64; 2]) {
        self.dropped_late += gap.dropped_within(from_ns, to_ns.min(answer_ns.saturating_sub(deadline_ns)));
    }

    /// A frame has waited so long that no job will answer it.
    pub(super) fn given_up(&mut self, frame: &FrameRecord, deadline_ns: u64, window_ns: [u64; 2]) {
        self.answered(u64::MAX, deadline_ns, window_ns);
        self.unanswered(frame, u64::MAX, deadline_ns, window_ns);
    }

    pub(super) fn unanswered(
        &mut self,
        frame: &FrameRecord,
        end_ns: u64,
        deadline_ns: u64,
        window_ns: [u64; 2],
    ) {
        if inside(window_ns, frame.arrival_ns) {
            self.unanswered += 1;
            self.unanswered_late += u64::from(end_ns.saturating_sub(frame.arrival_ns) > deadline_ns);
        }
    }

    /// When the result of a frame was published, for a job that consumed it; older ones are not
    /// asked for any more.
    pub(super) fn published_ns(&mut self, sequence: u64) -> Option<u64> {
        while self.published.front().is_some_and(|(older, _)| *older < sequence) {
            self.published.pop_front();
        }
        self.published.front().filter(|(found, _)| *found == sequence).map(|(_, at_ns)| *at_ns)
    }

    /// The window is over: `end_ns` is when the last answer could have come.
    pub(super) fn finish(&mut self, end_ns: u64, rule: &CameraRule, deadline_ns: u64, window_ns: [u64; 2]) {
        let [from_ns, to_ns] = window_ns;
        for gap in std::mem::take(&mut self.gaps) {
            self.late(&gap, end_ns, deadline_ns, window_ns);
        }
        let since_ns = self.last.map_or(from_ns, |last| last.arrival_ns).max(from_ns);
        let silence_ns = to_ns.saturating_sub(since_ns);
        self.silence(silence_ns);
        if let Some(period_ns) = rule.period_ns {
            let period_ns = period_ns.max(1);
            // Half a period is given to a frame that is on its way.
            let due = if self.last.is_some() {
                (silence_ns + period_ns / 2) / period_ns
            } else {
                silence_ns / period_ns
            };
            self.missing += due.saturating_sub(u64::from(self.last.is_some()));
        }
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.len() + self.gaps.len() + self.published.len()
    }
}

impl Gap {
    /// Number of dropped frames that arrived in `[from_ns, to_ns)`. Their arrival was not seen; a
    /// camera sends at even intervals.
    fn dropped_within(&self, from_ns: u64, to_ns: u64) -> u64 {
        let apart = self.after.sequence.saturating_sub(self.before.sequence);
        // A source that restarted counts from 1 again.
        let dropped = self.dropped.min(apart.saturating_sub(1));
        self.even(apart, from_ns, to_ns).min(dropped)
    }

    /// Number of frames between both, at `apart - 1` even distances, that lie in
    /// `[from_ns, to_ns)`.
    fn even(&self, apart: u64, from_ns: u64, to_ns: u64) -> u64 {
        let span_ns = self.after.arrival_ns.saturating_sub(self.before.arrival_ns);
        if apart < 2 || span_ns == 0 || to_ns <= from_ns {
            return 0;
        }
        // Those before `at_ns`: frame k of them arrives at `before + span * k / apart`.
        let earlier = |at_ns: u64| {
            let into_ns = u128::from(at_ns.saturating_sub(self.before.arrival_ns));
            let frames = (into_ns * u128::from(apart)).div_ceil(u128::from(span_ns)).saturating_sub(1);
            u64::try_from(frames).unwrap_or(u64::MAX).min(apart - 1)
        };
        earlier(to_ns) - earlier(from_ns)
    }

    /// Number of frames between both that the camera should have delivered in the window but did
    /// not. It is counted by captures if they continue, because the driver's lateness is not a
    /// loss, and by their distance rather than the time since the start, because cameras are not
    /// clocks.
    fn missing_within(&self, period_ns: u64, dropped_inside: u64, [from_ns, to_ns]: [u64; 2]) -> u64 {
        let period_ns = period_ns.max(1);
        let gap = |later: u64, earlier: u64| later.checked_sub(earlier).filter(|gap| *gap > 0);
        let captures = self.after.capture_ns.zip(self.before.capture_ns);
        let span_ns = captures
            .and_then(|(after, before)| gap(after, before))
            .or_else(|| gap(self.after.arrival_ns, self.before.arrival_ns))
            .unwrap_or(0);
        let due = span_ns.saturating_add(period_ns / 2) / period_ns;
        let apart = self.after.sequence.saturating_sub(self.before.sequence).max(1);
        let missing = due.saturating_sub(apart);
        if missing == 0 {
            return 0;
        }
        self.even(due, from_ns, to_ns).saturating_sub(dropped_inside).min(missing)
    }
}

/// Reason why a frame was not judged, in a word: the name of its health in the sample files.
fn reason(frame: &FrameRecord) -> String {
    match serde_json::to_value(frame.health) {
        Ok(serde_json::Value::String(name)) => name,
        _ => format!("{:?}", frame.health),
    }
}

/// Adds to a queue; what no longer fits is its oldest entry.
fn push_bounded<T>(queue: &mut VecDeque<T>, item: T) -> Option<T> {
    // Both sides of the join may hold as many.
    let oldest = if queue.len() >= 2 * MAX_WAITING + 2 { queue.pop_front() } else { None };
    queue.push_back(item);
    oldest
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: u64 = 1_000_000;

    fn gap(sequences: [u64; 2], arrivals: [u64; 2], dropped: u64) -> Gap {
        let at = |i: usize| Last {
            sequence: sequences[i],
            capture_ns: Some(arrivals[i]),
            arrival_ns: arrivals[i],
        };
        Gap { place: 0, before: at(0), after: at(1), dropped }
    }

    #[test]
    fn what_the_camera_did_not_send_is_missing_and_what_nobody_took_up_is_not() {
        let all = [0, u64::MAX];
        let missing = |apart: u64, span_ms: u64, dropped: u64| {
            gap([1, 1 + apart], [100 * MS, (100 + span_ms) * MS], dropped).missing_within(
                20 * MS,
                dropped,
                all,
            )
        };
        assert_eq!(
            (missing(1, 20, 0), missing(1, 29, 0), missing(1, 31, 0)),
            (0, 0, 1),
            "half a period of jitter"
        );
        assert_eq!((missing(5, 100, 4), missing(1, 100, 0), missing(3, 100, 2)), (0, 4, 2));
        // Only those within the window.
        let half = gap([1, 2], [100 * MS, 300 * MS], 0);
        assert_eq!(
            (half.missing_within(20 * MS, 0, all), half.missing_within(20 * MS, 0, [200 * MS, u64::MAX])),
            (9, 5)
        );
        // Stamps that stand still, or go backwards, do not hide it.
        let frozen = Gap { after: Last { capture_ns: Some(100 * MS), ..half.after }, ..half };
        assert_eq!(frozen.missing_within(20 * MS, 0, all), 9);
    }

    proptest! {
        #[test]
        fn no_more_frames_are_late_than_were_dropped(
            sequences in (any::<u64>(), any::<u64>()), arrivals in (any::<u64>(), any::<u64>()), dropped in any::<u64>(),
            window in (any::<u64>(), any::<u64>()), middle in any::<u64>(), period in any::<u64>(),
        ) {
            let gap = gap([sequences.0, sequences.1], [arrivals.0, arrivals.1], dropped);
            let (from_ns, to_ns) = (window.0.min(window.1), window.0.max(window.1));
            let all = gap.dropped_within(from_ns, to_ns);
            prop_assert!(all <= dropped);
            gap.missing_within(period, all, [from_ns, to_ns]);
            // Every one of the even frames lies on one side of any moment.
            let middle = middle.clamp(from_ns, to_ns);
            let even = |from_ns, to_ns| gap.even(sequences.1.saturating_sub(sequences.0), from_ns, to_ns);
            prop_assert_eq!(even(from_ns, middle) + even(middle, to_ns), even(from_ns, to_ns));
        }
    }
}

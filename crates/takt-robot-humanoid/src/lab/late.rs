//! Every frame whose answer came late, with its cause: the stamps of its way say where the time
//! went, and a trace of the kernel, where there is one, why.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use takt_lab::LabError;
use takt_link_ethercat::analyse::{Blame, LatePlace};
use takt_rundir::RunDir;
use takt_trace::analysis::{Late, Part, stood_still_ns};
use takt_trace::event::Span;
use takt_trace::{Cause, Trace, held_up, woken_late};

use self::explained::{is_explained, sentence};
pub(super) use self::joiner::LateJoiner;
use self::joiner::{COLUMNS, rows_of};
pub use self::joiner::{LATE, LateRow};
use super::collector::COUNTS_FILE;

mod explained;
mod joiner;

pub const LATE_CAUSES_FILE: &str = "late-frames.json";
/// Late frames that are reported one by one; the causes are of all in the sample file.
const MAX_LISTED: usize = 1000;

/// A late frame with its cause.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LateFrame {
    #[serde(flatten)]
    pub stamps: LateRow,
    /// Part of the path with the delay.
    pub place: LatePlace,
    /// The blamed part, in the words of `takt ethercat analyse`; null if unknown.
    pub blame: Option<Blame>,
    /// Time between the end of the controller's wait and the answer, microseconds.
    pub missed_by_us: f64,
    /// Excess over the usual time there, microseconds.
    pub excess_us: f64,
    /// In whose hands it was there, where the trace was asked for that thread; null where it was no
    /// thread of this host.
    pub holder: Option<Holder>,
    /// Cause that delayed the thread which handled it, in the words of `takt trace`; null if it was
    /// not recorded, or was not a thread.
    pub cause: Option<Cause>,
    /// The thread, interrupt or lock holder to blame for that, where there is one.
    pub who: String,
    /// Share of that time which the cause explains, 0 to 1. Below one half it explains nothing.
    pub share: f64,
    /// Parts of all that time, by the kernel's events, greatest first.
    pub parts: Vec<Part>,
    /// The device kept it on purpose: the segment's own stamps say so.
    pub kept: bool,
    /// The cause is that of the frame before: this one was sent late, because the controller waited
    /// for that one.
    pub inherited: bool,
    /// All that in a sentence.
    pub why: String,
}

/// A thread of the run in whose hands a frame can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Holder {
    /// The motion controller.
    Controller,
    /// The simulated segment's thread.
    Segment,
}

impl Holder {
    /// For people.
    fn name(self) -> &'static str {
        match self {
            Self::Controller => "the controller",
            Self::Segment => "the simulated segment",
        }
    }
}

/// Frames that were late for the same cause.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LateFrameCause {
    /// Part of the path with the delay.
    pub place: LatePlace,
    pub blame: Option<Blame>,
    /// Cause that delayed the thread there.
    pub cause: Option<Cause>,
    /// Whether something that was seen says why; the rest of such rows is counted as unexplained.
    pub explained: bool,
    /// By whom: threads of one name are one row, with the id of that which made the worst of them
    /// late.
    pub who: String,
    pub frames: u64,
    /// The latest of them: how long after it was given up it came, microseconds.
    pub worst_us: f64,
    /// The sentence of that one.
    pub why: String,
}

/// `late-frames.json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LateCauses {
    /// Late frames within the window.
    pub frames: u64,
    /// Of these, those that nothing explains: no stamp shows where the time went, or nothing
    /// recorded says why.
    pub unexplained: u64,
    /// Causes, the most frequent first.
    pub causes: Vec<LateFrameCause>,
    /// The first of the frames, one by one.
    pub each: Vec<LateFrame>,
    /// Reason why the kernel's part is unknown, if it is.
    pub untraced: Option<String>,
}

/// Threads of the run in whose hands a frame is.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Threads {
    pub controller: Option<i32>,
    /// The simulated segment's.
    pub segment: Option<i32>,
}

/// Key of `run.json` under which they are.
pub(super) const THREADS: &str = "late_frame_threads";

impl Threads {
    /// In whose hands a frame was, where that is a thread of the run.
    fn holds(&self, place: LatePlace) -> Option<Holder> {
        match place {
            LatePlace::WakeUp | LatePlace::Work | LatePlace::Handing | LatePlace::Untaken => {
                Some(Holder::Controller)
            }
            // While the controller waits it is the segment that has the frame before.
            LatePlace::Before | LatePlace::Outward | LatePlace::Segment | LatePlace::Homeward => {
                Some(Holder::Segment)
            }
            LatePlace::Beyond | LatePlace::Unexplained => None,
        }
        .filter(|&holder| self.tid(holder).is_some())
    }

    fn tid(&self, holder: Holder) -> Option<i32> {
        match holder {
            Holder::Controller => self.controller,
            Holder::Segment => self.segment,
        }
    }
}

/// The fields read from [`COUNTS_FILE`].
#[derive(Default, Deserialize)]
#[serde(default)]
struct Counted {
    late_frames: u64,
}

impl LateCauses {
    /// Counts late frames of which no stamps were kept: a ring was full, or the sample file.
    fn without_stamps(&mut self, frames: u64) {
        if frames == 0 {
            return;
        }
        self.frames += frames;
        self.unexplained += frames;
        self.causes.push(LateFrameCause {
            place: LatePlace::Unexplained,
            blame: None,
            cause: None,
            explained: false,
            who: String::new(),
            frames,
            worst_us: 0.0,
            why: "unexplained: no timestamps of these frames were kept".to_owned(),
        });
        self.causes.sort_by_key(|row| std::cmp::Reverse(row.frames));
    }
}

/// Judges the late frames of a run and writes [`LATE_CAUSES_FILE`]. `trace`: what the kernel did
/// meanwhile, or why that is not known.
///
/// # Errors
/// [`LabError::Files`].
pub(crate) fn explain(dir: &RunDir, trace: Result<&Trace, &str>) -> Result<LateCauses, LabError> {
    let names = COLUMNS.map(|(name, _)| name);
    let rows = if dir.has_samples(LATE)? { rows_of(&dir.columns(LATE, &names)?) } else { Vec::new() };
    let run: serde_json::Value = dir.read_json(takt_rundir::RUN_FILE)?;
    let threads: Threads = serde_json::from_value(run[THREADS].clone()).unwrap_or_default();
    let mut causes = causes(&rows, &threads, trace);
    // Whatever ended the run: the collector's count is kept from time to time.
    let counted: u64 = dir.read_json::<Counted>(COUNTS_FILE).map_or(0, |counted| counted.late_frames);
    causes.without_stamps(counted.saturating_sub(causes.frames));
    dir.write_json(LATE_CAUSES_FILE, &causes)?;
    Ok(causes)
}

/// The name of a thread to blame: a program that starts one after the other is one cause, and two
/// programs are not.
fn without_tid(who: &str) -> &str {
    who.split_once(" (tid ").map_or(who, |(name, _)| name)
}

fn causes(rows: &[LateRow], threads: &Threads, trace: Result<&Trace, &str>) -> LateCauses {
    let mut frames: Vec<LateFrame> = rows
        .iter()
        .map(|row| {
            let cause = row.way.judge(&row.usual);
            LateFrame {
                stamps: *row,
                place: cause.place,
                blame: cause.place.blame(),
                missed_by_us: cause.missed_by_ns as f64 / 1e3,
                excess_us: cause.excess_ns as f64 / 1e3,
                holder: threads.holds(cause.place),
                cause: None,
                who: String::new(),
                share: 0.0,
                parts: Vec::new(),
                kept: cause.place == LatePlace::Segment && is_most(row.held_ns, cause.to_ns - cause.from_ns),
                inherited: false,
                why: String::new(),
            }
        })
        .collect();
    let mut untraced = trace.err().map(str::to_owned);
    if let Ok(trace) = trace {
        if let Err(error) = ask_kernel(&mut frames, threads, trace) {
            untraced = Some(error.to_string());
        }
        let has_gaps = frames.iter().any(|frame| frame.cause == Some(Cause::Gap));
        // A hypervisor that takes time and does not report charges threads with it.
        for frame in frames.iter_mut().filter(|_| trace.guest && has_gaps) {
            if frame.cause == Some(Cause::Execution) {
                (frame.cause, frame.blame) = (Some(Cause::ExecutionOrFirmware), None);
            }
        }
    }
    behind_others(&mut frames);
    inherit(&mut frames);
    attribute(frames, threads, untraced)
}

/// Whether a part of a time explains it: at least half of it, and some.
fn is_most(part_ns: u64, of_ns: u64) -> bool {
    part_ns > 0 && part_ns >= of_ns - of_ns / 2
}

/// Says of every frame why it was late, and sums up.
fn attribute(mut frames: Vec<LateFrame>, threads: &Threads, untraced: Option<String>) -> LateCauses {
    let mut unexplained = 0;
    let mut all: BTreeMap<(LatePlace, Option<Cause>, String, bool), LateFrameCause> = BTreeMap::new();
    for frame in &mut frames {
        let known = is_explained(frame, threads);
        unexplained += u64::from(!known);
        frame.why = sentence(frame, known);
        // Knowledge about one frame does not explain another.
        let same = (frame.place, frame.cause, without_tid(&frame.who).to_owned(), known);
        let row = all.entry(same).or_insert_with(|| LateFrameCause {
            place: frame.place,
            blame: frame.blame,
            cause: frame.cause,
            explained: known,
            who: String::new(),
            frames: 0,
            worst_us: -1.0,
            why: String::new(),
        });
        row.frames += 1;
        if frame.missed_by_us > row.worst_us {
            row.worst_us = frame.missed_by_us;
            row.who.clone_from(&frame.who);
            row.why.clone_from(&frame.why);
        }
    }
    let count = frames.len() as u64;
    frames.truncate(MAX_LISTED);
    let mut causes: Vec<LateFrameCause> = all.into_values().collect();
    causes.sort_by_key(|row| std::cmp::Reverse(row.frames));
    LateCauses { frames: count, unexplained, causes, each: frames, untraced }
}

/// Gives frames that were sent late because the controller waited for a late one before them the
/// cause of that one: it was given up in the moment in which they were sent. Its answer may have
/// come before theirs or after.
fn inherit(frames: &mut [LateFrame]) {
    // Of several frames of a cycle the one that came last was waited for longest.
    let mut given_up: BTreeMap<u64, usize> = BTreeMap::new();
    for (at, frame) in frames.iter().enumerate().filter(|(_, frame)| frame.stamps.way.gave_up_ns > 0) {
        let last = given_up.entry(frame.stamps.way.gave_up_ns).or_insert(at);
        if frames[*last].missed_by_us < frame.missed_by_us {
            *last = at;
        }
    }
    let mut in_order: Vec<usize> = (0..frames.len()).collect();
    in_order.sort_by_key(|&at| frames[at].stamps.way.sent_ns);
    for at in in_order {
        // If the controller itself was delayed in the meantime, that is the cause.
        let own = &frames[at];
        if own.place != LatePlace::Before || own.holder == Some(Holder::Controller) {
            continue;
        }
        let sent_ns = own.stamps.way.sent_ns;
        let before = given_up.get(&sent_ns).copied();
        let Some(from) = before.filter(|&from| frames[from].stamps.way.sent_ns < sent_ns) else { continue };
        let LateFrame { stamps: _, missed_by_us, excess_us, why, .. } = frames[at].clone();
        let stamps = frames[at].stamps;
        frames[at] =
            LateFrame { stamps, missed_by_us, excess_us, why, inherited: true, ..frames[from].clone() };
    }
}

/// Asks the kernel's events about the threads that handled frames, except for frames that the
/// device held back on purpose.
fn ask_kernel(
    frames: &mut [LateFrame],
    threads: &Threads,
    trace: &Trace,
) -> Result<(), takt_trace::TraceError> {
    let found = |frames: &[LateFrame], holder: Holder, is_asked: &dyn Fn(&LateFrame) -> bool| {
        let asked = |at: &usize| is_asked(&frames[*at]) && frames[*at].place != LatePlace::Unexplained;
        let asked: Vec<usize> = (0..frames.len()).filter(asked).collect();
        let Some(tid) = threads.tid(holder).filter(|_| !asked.is_empty()) else { return Ok(Vec::new()) };
        let span = |&at: &usize| {
            let cause = frames[at].stamps.way.judge(&frames[at].stamps.usual);
            Span { from_ns: cause.from_ns, to_ns: cause.to_ns }
        };
        let spans: Vec<Span> = asked.iter().map(span).collect();
        // The release of a cycle is one; what a thread does with a frame is none.
        let wakes = asked.first().is_some_and(|&at| frames[at].place == LatePlace::WakeUp);
        let mut late = if wakes { woken_late } else { held_up }(trace, tid, &spans)?;
        let judged = late.iter_mut().zip(&spans).filter_map(|(late, span)| Some((late.as_mut()?, span)));
        for (late, span) in judged.filter(|(late, _)| is_charge(late.cause)) {
            let stood_ns = stood_still_ns(trace, tid, *span);
            if is_most(stood_ns, span.to_ns - span.from_ns) {
                late.cause = Cause::Gap;
                late.who =
                    "timers of its CPU were due but did not fire: firmware, the hypervisor, or interrupts off"
                        .to_owned();
                late.share = stood_ns as f64 / (span.to_ns - span.from_ns) as f64;
            }
        }
        Ok::<_, takt_trace::TraceError>(asked.into_iter().zip(late).collect())
    };
    // While it waits for the frame before, the controller can be held up itself.
    for (at, late) in found(frames, Holder::Controller, &|frame| frame.place == LatePlace::Before)? {
        if let Some(late) = late.filter(|late| is_of_its_own(late.cause)) {
            frames[at].holder = Some(Holder::Controller);
            frames[at].held_up_by(late);
        }
    }
    for (holder, wakes) in [(Holder::Controller, true), (Holder::Controller, false), (Holder::Segment, false)]
    {
        let is_asked = |frame: &LateFrame| {
            let is_unexplained = frame.cause.is_none() && !frame.kept;
            frame.holder == Some(holder) && is_unexplained && (frame.place == LatePlace::WakeUp) == wakes
        };
        for (at, late) in found(frames, holder, &is_asked)? {
            let Some(late) = late else { continue };
            frames[at].held_up_by(late);
        }
    }
    Ok(())
}

impl LateFrame {
    /// Takes in what held up the thread in whose hands it was.
    fn held_up_by(&mut self, mut late: Late) {
        let of_segment = self.holder == Some(Holder::Segment);
        if of_segment && self.place == LatePlace::Segment && is_charge(late.cause) {
            self.doubt(&mut late);
        }
        if of_segment {
            self.blame = match late.cause {
                Cause::NotRecorded | Cause::EventsLost => self.blame,
                cause if is_no_cause_of_the_segment(self.place, cause) => None,
                // The simulation worked on something else.
                Cause::Execution => Some(Blame::Device),
                Cause::ExecutionOrFirmware => None,
                _ => Some(Blame::HostStack),
            };
        } else if self.place == LatePlace::Before {
            let own = matches!(late.cause, Cause::Execution | Cause::ExecutionOrFirmware);
            self.blame = Some(if own { Blame::Application } else { Blame::HostStack });
        }
        (self.cause, self.who, self.share, self.parts) = (Some(late.cause), late.who, late.share, late.parts);
    }

    /// Asks the segment's own stamps about time that the kernel's events charge its thread with.
    fn doubt(&self, late: &mut Late) {
        let LateRow { way, ran_ns, still_ns, .. } = self.stamps;
        let took_ns = way.left_segment_ns.saturating_sub(way.at_segment_ns);
        if ran_ns > 0 && !is_most(ran_ns, took_ns) {
            // Its CPU time contradicts them.
            (late.cause, late.who) = (Cause::Unknown, NO_CPU_TIME.to_owned());
        } else if is_most(still_ns, took_ns) {
            late.cause = Cause::Gap;
            let still_us = still_ns as f64 / 1e3;
            late.who = format!(
                "{still_us:.0} µs between two readings of its clock that are usually some 1 µs apart"
            );
            late.share = still_ns as f64 / took_ns as f64;
        }
    }
}

/// Whether it says that the thread itself had the CPU.
fn is_charge(cause: Cause) -> bool {
    matches!(cause, Cause::Execution | Cause::ExecutionOrFirmware)
}

/// Of a segment's thread that no event shows off its CPU.
const NO_CPU_TIME: &str = "its CPU time shows that it did not run, and no event shows what ran instead";

/// Frames that lay before the segment while its thread had another one in its hands are late for
/// what held it up with that.
fn behind_others(frames: &mut [LateFrame]) {
    let within = |frame: &LateFrame| (frame.stamps.way.at_segment_ns, frame.stamps.way.left_segment_ns);
    let others: Vec<LateFrame> = frames
        .iter()
        .filter(|frame| frame.place == LatePlace::Segment && frame.cause.is_some())
        .cloned()
        .collect();
    for frame in frames.iter_mut().filter(|frame| frame.place == LatePlace::Outward) {
        let span = frame.stamps.way.judge(&frame.stamps.usual);
        let behind = |other: &&LateFrame| {
            let (at_ns, left_ns) = within(other);
            is_most(
                left_ns.min(span.to_ns).saturating_sub(at_ns.max(span.from_ns)),
                span.to_ns - span.from_ns,
            )
        };
        if frame.cause.is_some_and(is_charge)
            && let Some(other) = others.iter().find(behind)
        {
            (frame.cause, frame.blame, frame.share) = (other.cause, other.blame, other.share);
            frame.parts.clone_from(&other.parts);
            frame.who = format!("{}, while it handled the previous frame", other.who);
        }
    }
}

/// Whether the controller was held up by this itself, while it seemed to wait for a frame.
fn is_of_its_own(cause: Cause) -> bool {
    !matches!(cause, Cause::Waited | Cause::Unknown | Cause::NotRecorded | Cause::EventsLost)
}

/// Whether it says nothing that the simulated segment's thread did this: asleep until a frame comes
/// is its normal state, and with a frame in its hands it sleeps on purpose alone, which it stamps.
fn is_no_cause_of_the_segment(place: LatePlace, cause: Cause) -> bool {
    matches!(place, LatePlace::Before | LatePlace::Outward | LatePlace::Segment | LatePlace::Homeward)
        && matches!(cause, Cause::Waited | Cause::Unknown)
}

#[cfg(test)]
mod tests;

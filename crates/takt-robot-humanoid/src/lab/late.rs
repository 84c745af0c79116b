//! Every frame whose answer came late, with its cause: the stamps of its way say where the time
//! went, and a trace of the kernel, where there is one, why.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use takt_lab::LabError;
use takt_link_ethercat::analyse::{Blame, Place};
use takt_rundir::RunDir;
use takt_trace::analysis::Late;
use takt_trace::event::Span;
use takt_trace::{Cause, Trace, held_up, woken_late};

pub(super) use self::joiner::LateJoiner;
use self::joiner::{COLUMNS, rows_of};
pub use self::joiner::{LATE, LateRow};
use super::collector::COUNTS_FILE;

mod joiner;

pub const LATE_CAUSES_FILE: &str = "late-frames.json";
/// Late frames that are reported one by one; the causes are of all in the sample file.
const MOST_LISTED: usize = 1000;

/// A late frame with its cause.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LateFrame {
    #[serde(flatten)]
    pub stamps: LateRow,
    /// Where the time went.
    pub place: Place,
    /// Who is to blame, in the words of `takt ethercat analyse`; null where nobody knows.
    pub blame: Option<Blame>,
    /// How long after the controller had gone on without it the answer came, microseconds.
    pub missed_by_us: f64,
    /// How much longer than usual it took there, microseconds.
    pub excess_us: f64,
    /// In whose hands it was there, where the trace was asked for that thread; null where it was no
    /// thread of this host.
    pub holder: Option<Holder>,
    /// What held up the thread in whose hands it was, in the words of `takt trace`; null where that
    /// was not recorded, or was no thread.
    pub cause: Option<Cause>,
    /// The thread, interrupt or lock holder to blame for that, where there is one.
    pub who: String,
    /// Share of that time which the cause explains, 0 to 1.
    pub share: f64,
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
    /// Where the time went.
    pub place: Place,
    pub blame: Option<Blame>,
    /// What held up the thread there.
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
    /// Why the kernel's part is not known, where it is not.
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
    fn holds(&self, place: Place) -> Option<Holder> {
        match place {
            Place::WakeUp | Place::Work | Place::Handing | Place::Untaken => Some(Holder::Controller),
            // While the controller waits it is the segment that has the frame before.
            Place::Before | Place::Outward | Place::Segment | Place::Homeward => Some(Holder::Segment),
            Place::Beyond | Place::Unexplained => None,
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

/// What is read of [`COUNTS_FILE`].
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
            place: Place::Unexplained,
            blame: None,
            cause: None,
            explained: false,
            who: String::new(),
            frames,
            worst_us: 0.0,
            why: "unexplained: no stamps of these frames were kept".to_owned(),
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
                inherited: false,
                why: String::new(),
            }
        })
        .collect();
    let mut untraced = trace.err().map(str::to_owned);
    let mut kept = vec![false; frames.len()];
    if let Ok(trace) = trace
        && let Err(error) = ask_kernel(&mut frames, &mut kept, threads, trace)
    {
        untraced = Some(error.to_string());
    }
    inherit(&mut frames, &mut kept);
    attribute(frames, threads, &kept, untraced)
}

/// Says of every frame why it was late, and sums up.
fn attribute(
    mut frames: Vec<LateFrame>,
    threads: &Threads,
    kept: &[bool],
    untraced: Option<String>,
) -> LateCauses {
    let mut unexplained = 0;
    let mut all: BTreeMap<(Place, Option<Cause>, String, bool), LateFrameCause> = BTreeMap::new();
    for (frame, &kept) in frames.iter_mut().zip(kept) {
        let known = is_explained(frame, threads, kept);
        unexplained += u64::from(!known);
        frame.why = sentence(frame, known);
        // What is known of one does not explain another, of which it is not.
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
    frames.truncate(MOST_LISTED);
    let mut causes: Vec<LateFrameCause> = all.into_values().collect();
    causes.sort_by_key(|row| std::cmp::Reverse(row.frames));
    LateCauses { frames: count, unexplained, causes, each: frames, untraced }
}

/// Gives frames that were sent late because the controller waited for a late one before them the
/// cause of that one: it was given up in the moment in which they were sent. Its answer may have
/// come before theirs or after.
fn inherit(frames: &mut [LateFrame], kept: &mut [bool]) {
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
        // Where the controller itself was held up meanwhile, that is the cause.
        let own = &frames[at];
        if own.place != Place::Before || own.holder == Some(Holder::Controller) {
            continue;
        }
        let sent_ns = own.stamps.way.sent_ns;
        let before = given_up.get(&sent_ns).copied();
        let Some(from) = before.filter(|&from| frames[from].stamps.way.sent_ns < sent_ns) else { continue };
        let LateFrame { place, blame, holder, cause, who, share, .. } = frames[from].clone();
        let own = &mut frames[at];
        (own.place, own.blame, own.holder, own.inherited) = (place, blame, holder, true);
        (own.cause, own.who, own.share) = (cause, who, share);
        kept[at] = kept[from];
    }
}

/// What the kernel says of the threads in whose hands frames were; `kept`: those that the device
/// kept on purpose.
fn ask_kernel(
    frames: &mut [LateFrame],
    kept: &mut [bool],
    threads: &Threads,
    trace: &Trace,
) -> Result<(), takt_trace::TraceError> {
    let found = |frames: &[LateFrame], holder: Holder, is_asked: &dyn Fn(&LateFrame) -> bool| {
        let asked = |at: &usize| is_asked(&frames[*at]) && frames[*at].place != Place::Unexplained;
        let asked: Vec<usize> = (0..frames.len()).filter(asked).collect();
        let Some(tid) = threads.tid(holder).filter(|_| !asked.is_empty()) else { return Ok(Vec::new()) };
        let span = |&at: &usize| {
            let cause = frames[at].stamps.way.judge(&frames[at].stamps.usual);
            Span { from_ns: cause.from_ns, to_ns: cause.to_ns }
        };
        let spans: Vec<Span> = asked.iter().map(span).collect();
        // The release of a cycle is one; what a thread does with a frame is none.
        let wakes = asked.first().is_some_and(|&at| frames[at].place == Place::WakeUp);
        let late = if wakes { woken_late } else { held_up }(trace, tid, &spans)?;
        Ok::<_, takt_trace::TraceError>(asked.into_iter().zip(late).collect())
    };
    // While it waits for the frame before, the controller can be held up itself.
    for (at, late) in found(frames, Holder::Controller, &|frame| frame.place == Place::Before)? {
        if let Some(late) = late.filter(|late| is_of_its_own(late.cause)) {
            frames[at].holder = Some(Holder::Controller);
            kept[at] = frames[at].held_up_by(late);
        }
    }
    for (holder, wakes) in [(Holder::Controller, true), (Holder::Controller, false), (Holder::Segment, false)]
    {
        let is_asked = |frame: &LateFrame| {
            frame.holder == Some(holder) && frame.cause.is_none() && (frame.place == Place::WakeUp) == wakes
        };
        for (at, late) in found(frames, holder, &is_asked)? {
            let Some(late) = late else { continue };
            kept[at] = frames[at].held_up_by(late);
        }
    }
    Ok(())
}

impl LateFrame {
    /// Takes in what held up the thread in whose hands it was. Returns whether that says that the
    /// device kept it on purpose.
    fn held_up_by(&mut self, late: Late) -> bool {
        let of_segment = self.holder == Some(Holder::Segment);
        if self.place == Place::Segment && of_segment && is_of_the_device(late.cause) {
            return true;
        }
        if of_segment {
            self.blame = match late.cause {
                Cause::NotRecorded | Cause::EventsLost => self.blame,
                cause if is_no_cause_beside_the_device(self.place, cause) => None,
                // The simulation worked on something else.
                Cause::Execution => Some(Blame::Device),
                Cause::ExecutionOrFirmware => None,
                cause if is_of_this_host(cause) => Some(Blame::HostStack),
                _ => self.blame,
            };
        } else if self.place == Place::Before {
            let own = matches!(late.cause, Cause::Execution | Cause::ExecutionOrFirmware);
            self.blame = Some(if own { Blame::Application } else { Blame::HostStack });
        }
        (self.cause, self.who, self.share) = (Some(late.cause), late.who, late.share);
        false
    }
}

/// Whether the controller was held up by this itself, while it seemed to wait for a frame.
fn is_of_its_own(cause: Cause) -> bool {
    !matches!(cause, Cause::Waited | Cause::Unknown | Cause::NotRecorded | Cause::EventsLost)
}

/// Whether a simulated segment whose thread did this kept the frame back on purpose: it sleeps
/// meanwhile, or works. A timer that came late for it is this host's; and where nobody can tell its
/// work from a gap by the firmware, nobody can say that it kept anything.
fn is_of_the_device(cause: Cause) -> bool {
    matches!(cause, Cause::Waited | Cause::Execution)
}

/// Whether this host held up the simulated segment's thread, which is no device then and no wire.
fn is_of_this_host(cause: Cause) -> bool {
    let is_not_known =
        matches!(cause, Cause::ExecutionOrFirmware | Cause::Unknown | Cause::NotRecorded | Cause::EventsLost);
    !is_of_the_device(cause) && !is_not_known
}

/// Whether it says nothing that the simulated segment's thread did this while the frame was not in
/// the segment: asleep until a frame comes is its normal state.
fn is_no_cause_beside_the_device(place: Place, cause: Cause) -> bool {
    matches!(place, Place::Before | Place::Outward | Place::Homeward)
        && matches!(cause, Cause::Waited | Cause::Unknown)
}

/// Whether something that was seen says why; `kept`: the kernel's trace says that the device kept
/// the frame on purpose.
fn is_explained(frame: &LateFrame, threads: &Threads, kept: bool) -> bool {
    match (frame.place, frame.cause) {
        (Place::Unexplained | Place::Beyond, _)
        | (_, Some(Cause::Unknown | Cause::NotRecorded | Cause::EventsLost)) => false,
        (place, Some(cause)) => !is_no_cause_beside_the_device(place, cause),
        // A simulated segment without a thread of its own stamps the delays that were planted, and
        // no others.
        (Place::Outward | Place::Segment | Place::Homeward, None) => kept || threads.segment.is_none(),
        // In a thread of this host, and nothing says what held it up.
        (Place::WakeUp | Place::Work | Place::Before | Place::Handing | Place::Untaken, None) => false,
    }
}

fn sentence(frame: &LateFrame, known: bool) -> String {
    let cycles = frame.stamps.late_cycles;
    let plural = if cycles == 1 { "" } else { "s" };
    let late = format!("{cycles} cycle{plural} late, {:.0} µs after it was given up", frame.missed_by_us);
    if frame.place == Place::Unexplained {
        if frame.stamps.way.gave_up_ns == 0 {
            return format!("unexplained: {cycles} cycle{plural} late; its own cycle is not recorded");
        }
        return format!("unexplained: {late}; no stamp of its way shows where the time went");
    }
    let title = frame.place.title();
    let place = if frame.inherited {
        format!("{title} of the frame before, for which the controller waited: {late}")
    } else {
        let way = &frame.stamps.way;
        let took = way.judge(&frame.stamps.usual);
        let took_us = took.to_ns.saturating_sub(took.from_ns) as f64 / 1e3;
        if frame.excess_us < took_us / 2.0 {
            format!(
                "{title}: {late}; {took_us:.0} µs there, of which only {:.0} more than usual",
                frame.excess_us
            )
        } else {
            format!("{title}: {late}; {:.0} µs longer there than usual", frame.excess_us)
        }
    };
    let holder = frame.holder.map_or("the thread", Holder::name);
    let by = if frame.who.is_empty() { String::new() } else { format!(" ({})", frame.who) };
    match frame.cause {
        Some(cause) if known => {
            format!("{place}, {:.0} % of which {holder} lost to {}{by}", 100.0 * frame.share, cause.title())
        }
        Some(cause) => format!("{place}; why {holder} was held up is unexplained: {}{by}", cause.title()),
        None if known && frame.place == Place::Segment => format!("{place}: the device kept it"),
        None if known => place,
        None if frame.place == Place::Beyond => format!("{place}; nothing that was recorded says why"),
        None => format!(
            "{place}; why {holder} was held up is unexplained: the kernel's trace does not say, or there is none"
        ),
    }
}

#[cfg(test)]
mod tests;

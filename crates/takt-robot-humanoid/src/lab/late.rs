//! Every frame whose answer came late, with its cause: the stamps of its way say where the time went, and a trace of the kernel, where
//! there is one, why.

use std::collections::{BTreeMap, VecDeque};

use serde::de::Error as _;
use serde::ser::SerializeStruct as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use takt_lab::LabError;
use takt_link_ethercat::analyse::{Blame, LateWay, Place, Usual};
use takt_link_ethercat::control::{ExchangeMode, LateAnswer};
use takt_rundir::RunDir;
use takt_trace::analysis::Late;
use takt_trace::event::Span;
use takt_trace::{Cause, Trace, held_up, woken_late};

use super::collector::COUNTS_FILE;
use crate::run::CycleRecord;

/// Name of the sample file with the stamps of late frames.
pub const LATE: &str = "late_frames";
/// File with the causes of late frames.
pub const LATE_CAUSES_FILE: &str = "late-frames.json";
/// Late frames that are told one by one; the causes are of all in the sample file.
const MOST_TOLD: usize = 1000;
/// Cycles kept to find a late answer's own in: it comes within 16, or counts as lost.
const CYCLES_KEPT: usize = 256;
/// Answers in time that are kept: of the last second, those whose frames the segment has not forgotten.
const IN_TIME_KEPT: usize = 16;
/// Frames kept as the segment told of them: several a cycle.
const PASSED_KEPT: usize = 1024;
/// Drains for which the segment's word of a frame is waited for.
const MOST_LOOKS: u32 = 10;

/// A line of the sample file; its columns are [`COLUMNS`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LateRow {
    /// Index of the frame's cycle on the release grid.
    pub index: u64,
    /// Cycles by which it came late.
    pub late_cycles: u64,
    /// Its way; stamps are CLOCK_MONOTONIC, 0 where unknown.
    pub way: LateWay,
    /// What the parts of the way usually took, from the cycles before.
    pub usual: Usual,
}

/// A column of the sample file, and what it holds of a row.
type Column = (&'static str, fn(&mut LateRow) -> &mut u64);

/// The columns, which are the keys in [`LATE_CAUSES_FILE`], too.
const COLUMNS: [Column; 20] = [
    ("index", |row| &mut row.index),
    ("planned_ns", |row| &mut row.way.planned_ns),
    ("wake_ns", |row| &mut row.way.wake_ns),
    ("begun_ns", |row| &mut row.way.begun_ns),
    ("sent_ns", |row| &mut row.way.sent_ns),
    ("handed_ns", |row| &mut row.way.handed_ns),
    ("at_segment_ns", |row| &mut row.way.at_segment_ns),
    ("left_segment_ns", |row| &mut row.way.left_segment_ns),
    ("arrived_ns", |row| &mut row.way.arrived_ns),
    ("gave_up_ns", |row| &mut row.way.gave_up_ns),
    ("taken_ns", |row| &mut row.way.taken_ns),
    ("late_cycles", |row| &mut row.late_cycles),
    ("usual_wake_ns", |row| &mut row.usual.wake_ns),
    ("usual_work_ns", |row| &mut row.usual.work_ns),
    ("usual_before_ns", |row| &mut row.usual.before_ns),
    ("usual_handing_ns", |row| &mut row.usual.handing_ns),
    ("usual_outward_ns", |row| &mut row.usual.outward_ns),
    ("usual_segment_ns", |row| &mut row.usual.segment_ns),
    ("usual_homeward_ns", |row| &mut row.usual.homeward_ns),
    ("usual_beyond_ns", |row| &mut row.usual.beyond_ns),
];

impl Serialize for LateRow {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // A plain struct: CSV has no nested ones.
        let mut fields = serializer.serialize_struct("LateRow", COLUMNS.len())?;
        let mut row = *self;
        for (name, of) in COLUMNS {
            fields.serialize_field(name, of(&mut row))?;
        }
        fields.end()
    }
}

impl<'de> Deserialize<'de> for LateRow {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let fields = BTreeMap::<String, serde_json::Value>::deserialize(deserializer)?;
        let mut row = Self::default();
        for (name, of) in COLUMNS {
            let value = fields.get(name).and_then(serde_json::Value::as_u64);
            *of(&mut row) = value.ok_or_else(|| D::Error::missing_field(name))?;
        }
        Ok(row)
    }
}

/// The rows of the sample file's columns.
fn rows_of(columns: &[Vec<u64>]) -> Vec<LateRow> {
    let count = columns.iter().map(Vec::len).min().unwrap_or(0);
    let mut rows = vec![LateRow::default(); count];
    for ((_, of), column) in COLUMNS.iter().zip(columns) {
        for (row, value) in rows.iter_mut().zip(column) {
            *of(row) = *value;
        }
    }
    rows
}

/// A frame as the segment told of it.
#[derive(Clone, Copy, Debug)]
struct Passed {
    /// The low 32 bits of the number of its cycle.
    cycle: u32,
    /// Where its first process data lie: frames of one cycle differ by it.
    address: u32,
    at_ns: u64,
    left_ns: u64,
}

/// A late answer, with what the controller recorded of its cycle: found when the answer is taken, as records do not stay.
#[derive(Clone, Copy, Debug)]
struct Pending {
    answer: LateAnswer,
    own: Option<CycleRecord>,
    gave_up_ns: u64,
    /// How often it was looked at.
    looks: u32,
}

/// Puts together what the master, the controller and the segment say of late frames, whichever comes first.
pub(super) struct LateJoiner {
    waiting_mode: bool,
    /// Whether the segment tells of frames.
    told: bool,
    records: VecDeque<CycleRecord>,
    passed: VecDeque<Passed>,
    answers: VecDeque<LateAnswer>,
    /// Some that came in time.
    in_time: VecDeque<LateAnswer>,
    /// Within the window.
    pending: VecDeque<Pending>,
}

fn bounded<T>(queue: &mut VecDeque<T>, most: usize, item: T) {
    if queue.len() == most {
        queue.pop_front();
    }
    queue.push_back(item);
}

fn median(values: impl Iterator<Item = u64>) -> u64 {
    let mut values: Vec<u64> = values.collect();
    values.sort_unstable();
    values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or(0)
}

impl LateJoiner {
    pub fn new(mode: ExchangeMode, told: bool) -> Self {
        Self {
            waiting_mode: mode == ExchangeMode::Waiting,
            told,
            records: VecDeque::with_capacity(CYCLES_KEPT),
            passed: VecDeque::with_capacity(PASSED_KEPT),
            answers: VecDeque::new(),
            in_time: VecDeque::with_capacity(IN_TIME_KEPT),
            pending: VecDeque::new(),
        }
    }

    pub fn answer(&mut self, answer: LateAnswer) {
        match answer.cycles {
            0 => bounded(&mut self.in_time, IN_TIME_KEPT, answer),
            _ => self.answers.push_back(answer),
        }
    }

    /// A frame of ours, as the segment tells of it.
    pub fn passed(&mut self, (cycle, address): (u32, u32), at_ns: u64, left_ns: u64) {
        bounded(&mut self.passed, PASSED_KEPT, Passed { cycle, address, at_ns, left_ns });
    }

    /// A cycle, after all answers that it took; `counts` where it lies in the window, so that frames here and counts elsewhere agree.
    pub fn cycle(&mut self, record: &CycleRecord, counts: bool) {
        bounded(&mut self.records, CYCLES_KEPT, *record);
        while let Some(answer) = self.answers.pop_front_if(|one| one.taken_ns <= record.exchanged_ns) {
            // Those before the controller's first cycle are nobody's.
            if counts && answer.taken_ns >= record.wake_ns {
                self.pending.push_back(self.of_its_cycle(answer));
            }
        }
    }

    fn of_its_cycle(&self, answer: LateAnswer) -> Pending {
        let at = self.records.iter().position(|record| record.sent_ns == answer.sent_ns);
        let own = at.and_then(|at| self.records.get(at)).copied();
        let gave_up_ns = if self.waiting_mode {
            // The exchange ends later: it judges what came, and lets readers see it.
            own.map_or(0, |own| own.begun_ns + own.exchange_ns)
        } else {
            // A record that was lost leaves a gap: the one behind it was not waiting for this answer.
            let is_next = |own: CycleRecord, next: &CycleRecord| {
                next.index == own.index.saturating_add(1).saturating_add(next.skipped.into())
            };
            let next = at.and_then(|at| self.records.get(at + 1));
            next.filter(|next| own.is_some_and(|own| is_next(own, next))).map_or(0, |next| next.sent_ns)
        };
        Pending { answer, own, gave_up_ns, looks: 0 }
    }

    /// Hands out what is complete, or as complete as it gets; `all`: nothing more will come.
    pub fn take(&mut self, all: bool, mut row: impl FnMut(LateRow)) {
        let mut pending = std::mem::take(&mut self.pending);
        pending.retain_mut(|late| {
            late.looks += 1;
            let passed = self.passed_of(&late.answer);
            if passed.is_none() && self.told && !all && late.looks < MOST_LOOKS {
                return true;
            }
            row(self.row(late, passed));
            false
        });
        self.pending = pending;
    }

    /// What the segment told of the frame that this answers. Of copies that something on the wire made it is the first that had left
    /// when the answer came: whatever comes of the others comes later, and is not taken.
    fn passed_of(&self, answer: &LateAnswer) -> Option<Passed> {
        let within = answer.sent_ns..=answer.taken_ns;
        let own = self.passed.iter().filter(|passed| {
            (passed.cycle, passed.address) == (answer.cycle, answer.address) && within.contains(&passed.at_ns)
        });
        let came_ns = answer.arrived_ns.unwrap_or(answer.taken_ns);
        // Where none had, the stamps of two threads crossed.
        own.clone().find(|passed| passed.left_ns <= came_ns).or_else(|| own.clone().next()).copied()
    }

    fn row(&self, late: &Pending, passed: Option<Passed>) -> LateRow {
        let Pending { answer, own, gave_up_ns, .. } = *late;
        let own = own.unwrap_or_default();
        // A waiting exchange waits from sending on: by how late that was the answer did not miss it.
        let before = if self.waiting_mode { CycleRecord::default() } else { own };
        LateRow {
            index: own.index,
            late_cycles: answer.cycles.into(),
            way: LateWay {
                planned_ns: before.planned_ns,
                wake_ns: before.wake_ns,
                begun_ns: before.begun_ns,
                sent_ns: answer.sent_ns,
                handed_ns: own.handed_ns,
                at_segment_ns: passed.map_or(0, |passed| passed.at_ns),
                left_segment_ns: passed.map_or(0, |passed| passed.left_ns),
                arrived_ns: answer.arrived_ns.unwrap_or(0),
                gave_up_ns,
                taken_ns: answer.taken_ns,
            },
            usual: self.usual(),
        }
    }

    /// What the cycles before took. Late frames are rare, so this costs seldom.
    fn usual(&self) -> Usual {
        let of = |part: fn(&CycleRecord) -> (u64, u64)| {
            median(self.records.iter().map(part).map(|(from_ns, to_ns)| to_ns.saturating_sub(from_ns)))
        };
        let outward = self.passed.iter().filter_map(|passed| {
            let sent = self.records.partition_point(|record| record.sent_ns <= passed.at_ns);
            Some(passed.at_ns - self.records.get(sent.checked_sub(1)?)?.sent_ns)
        });
        let arrived = |answer: &LateAnswer| answer.arrived_ns;
        let homeward = self
            .in_time
            .iter()
            .filter_map(|answer| Some(arrived(answer)?.saturating_sub(self.passed_of(answer)?.left_ns)));
        let beyond =
            self.in_time.iter().filter_map(|answer| Some(arrived(answer)?.saturating_sub(answer.sent_ns)));
        Usual {
            homeward_ns: median(homeward),
            beyond_ns: median(beyond),
            wake_ns: of(|record| (record.planned_ns, record.wake_ns)),
            work_ns: of(|record| (record.wake_ns, record.begun_ns)),
            before_ns: of(|record| (record.begun_ns, record.sent_ns)),
            handing_ns: of(|record| (record.sent_ns, record.handed_ns)),
            outward_ns: median(outward),
            segment_ns: median(self.passed.iter().map(|passed| passed.left_ns.saturating_sub(passed.at_ns))),
        }
    }
}

/// A late frame with its cause.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LateFrame {
    /// Its stamps.
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
    /// In whose hands it was there, where the trace was asked for that thread; null where it was no thread of this host.
    pub holder: Option<Holder>,
    /// What held up the thread in whose hands it was, in the words of `takt trace`; null where that was not recorded, or was no thread.
    pub cause: Option<Cause>,
    /// The thread, interrupt or lock holder to blame for that, where there is one.
    pub who: String,
    /// Share of that time which the cause explains, 0 to 1.
    pub share: f64,
    /// The cause is that of the frame before: this one was sent late, because the controller waited for that one.
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
    /// Who is to blame.
    pub blame: Option<Blame>,
    /// What held up the thread there.
    pub cause: Option<Cause>,
    /// Whether something that was seen says why; the rest of such rows is counted as unexplained.
    pub explained: bool,
    /// By whom: threads of one name are one row, with the id of that which made the worst of them late.
    pub who: String,
    /// Frames.
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
    /// Of these, those that nothing explains: no stamp shows where the time went, or nothing recorded says why.
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

/// Judges the late frames of a run and writes [`LATE_CAUSES_FILE`]. `trace`: what the kernel did meanwhile, or why that is not known.
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

/// The name of a thread to blame: a program that starts one after the other is one cause, and two programs are not.
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
    tell(frames, threads, &kept, untraced)
}

/// Says of every frame why it was late, and sums up.
fn tell(
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
    frames.truncate(MOST_TOLD);
    let mut causes: Vec<LateFrameCause> = all.into_values().collect();
    causes.sort_by_key(|row| std::cmp::Reverse(row.frames));
    LateCauses { frames: count, unexplained, causes, each: frames, untraced }
}

/// Gives frames that were sent late because the controller waited for a late one before them the cause of that one: it was given up in the
/// moment in which they were sent. Its answer may have come before theirs or after.
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

/// What the kernel says of the threads in whose hands frames were; `kept`: those that the device kept on purpose.
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
    /// Takes in what held up the thread in whose hands it was. Returns whether that says that the device kept it on purpose.
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

/// Whether a simulated segment whose thread did this kept the frame back on purpose: it sleeps meanwhile, or works. A timer that came
/// late for it is this host's; and where nobody can tell its work from a gap by the firmware, nobody can say that it kept anything.
fn is_of_the_device(cause: Cause) -> bool {
    matches!(cause, Cause::Waited | Cause::Execution)
}

/// Whether this host held up the simulated segment's thread, which is no device then and no wire.
fn is_of_this_host(cause: Cause) -> bool {
    let is_not_known =
        matches!(cause, Cause::ExecutionOrFirmware | Cause::Unknown | Cause::NotRecorded | Cause::EventsLost);
    !is_of_the_device(cause) && !is_not_known
}

/// Whether it says nothing that the simulated segment's thread did this while the frame was not in the segment: asleep until a frame
/// comes is its normal state.
fn is_no_cause_beside_the_device(place: Place, cause: Cause) -> bool {
    matches!(place, Place::Before | Place::Outward | Place::Homeward)
        && matches!(cause, Cause::Waited | Cause::Unknown)
}

/// Whether something that was seen says why; `kept`: the kernel's trace says that the device kept the frame on purpose.
fn is_explained(frame: &LateFrame, threads: &Threads, kept: bool) -> bool {
    match (frame.place, frame.cause) {
        (Place::Unexplained | Place::Beyond, _)
        | (_, Some(Cause::Unknown | Cause::NotRecorded | Cause::EventsLost)) => false,
        (place, Some(cause)) => !is_no_cause_beside_the_device(place, cause),
        // A simulated segment without a thread of its own stamps the delays that were planted, and no others.
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

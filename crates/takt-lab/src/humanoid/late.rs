//! Every frame whose answer came late, with its cause: the stamps of its way say where the time went, and a trace of the kernel, where
//! there is one, why.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};
use takt_link_ethercat::analyse::{Blame, LateWay, Place, Usual};
use takt_link_ethercat::control::{ExchangeMode, LateAnswer};
use takt_robot_humanoid::run::CycleRecord;
use takt_rundir::RunDir;
use takt_trace::event::Span;
use takt_trace::{Cause, Trace, held_up};

use super::collector::COUNTS_FILE;
use crate::LabError;

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

/// A line of the sample file; stamps are CLOCK_MONOTONIC, 0 where unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LateRow {
    /// Index of the frame's cycle on the release grid.
    pub index: u64,
    /// Planned release of that cycle.
    pub planned_ns: u64,
    /// Its wake-up.
    pub wake_ns: u64,
    /// When the frame was about to be handed to the wire.
    pub sent_ns: u64,
    /// When that exchange was over.
    pub handed_ns: u64,
    /// When the frame came to the segment, where that is a simulated one.
    pub at_segment_ns: u64,
    /// When it left it.
    pub left_segment_ns: u64,
    /// When this host's kernel got the answer.
    pub arrived_ns: u64,
    /// When the controller went on without it.
    pub gave_up_ns: u64,
    /// When it was taken.
    pub taken_ns: u64,
    /// Cycles by which it came late.
    pub late_cycles: u8,
    /// What the wake-up usually took, from the cycles before.
    pub usual_wake_ns: u64,
    /// The controller's work from waking to sending, likewise.
    pub usual_work_ns: u64,
    /// Handing over.
    pub usual_handing_ns: u64,
    /// The way to the segment.
    pub usual_outward_ns: u64,
    /// The way through it.
    pub usual_segment_ns: u64,
    /// The way back.
    pub usual_homeward_ns: u64,
    /// From sending to this host's kernel, where no segment tells.
    pub usual_beyond_ns: u64,
}

const COLUMNS: [&str; 18] = [
    "index",
    "planned_ns",
    "wake_ns",
    "sent_ns",
    "handed_ns",
    "at_segment_ns",
    "left_segment_ns",
    "arrived_ns",
    "gave_up_ns",
    "taken_ns",
    "late_cycles",
    "usual_wake_ns",
    "usual_work_ns",
    "usual_handing_ns",
    "usual_outward_ns",
    "usual_segment_ns",
    "usual_homeward_ns",
    "usual_beyond_ns",
];

impl LateRow {
    fn of(columns: &[Vec<u64>], row: usize) -> Option<Self> {
        let mut values = [0; COLUMNS.len()];
        for (value, column) in values.iter_mut().zip(columns) {
            *value = *column.get(row)?;
        }
        let [
            index,
            planned_ns,
            wake_ns,
            sent_ns,
            handed_ns,
            at_segment_ns,
            left_segment_ns,
            arrived_ns,
            gave_up_ns,
            taken_ns,
            late_cycles,
            usual_wake_ns,
            usual_work_ns,
            usual_handing_ns,
            usual_outward_ns,
            usual_segment_ns,
            usual_homeward_ns,
            usual_beyond_ns,
        ] = values;
        Some(Self {
            index,
            planned_ns,
            wake_ns,
            sent_ns,
            handed_ns,
            at_segment_ns,
            left_segment_ns,
            arrived_ns,
            gave_up_ns,
            taken_ns,
            late_cycles: u8::try_from(late_cycles).unwrap_or(u8::MAX),
            usual_wake_ns,
            usual_work_ns,
            usual_handing_ns,
            usual_outward_ns,
            usual_segment_ns,
            usual_homeward_ns,
            usual_beyond_ns,
        })
    }

    fn way(&self) -> LateWay {
        let Self { planned_ns, wake_ns, sent_ns, handed_ns, at_segment_ns, left_segment_ns, .. } = *self;
        let Self { arrived_ns, gave_up_ns, taken_ns, .. } = *self;
        LateWay {
            planned_ns,
            wake_ns,
            sent_ns,
            handed_ns,
            at_segment_ns,
            left_segment_ns,
            arrived_ns,
            gave_up_ns,
            taken_ns,
        }
    }

    fn usual(&self) -> Usual {
        Usual {
            wake_ns: self.usual_wake_ns,
            work_ns: self.usual_work_ns,
            handing_ns: self.usual_handing_ns,
            outward_ns: self.usual_outward_ns,
            segment_ns: self.usual_segment_ns,
            homeward_ns: self.usual_homeward_ns,
            beyond_ns: self.usual_beyond_ns,
        }
    }
}

/// A frame as the segment told of it.
#[derive(Clone, Copy, Debug)]
struct Passed {
    index: u8,
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

    pub fn passed(&mut self, index: u8, at_ns: u64, left_ns: u64) {
        bounded(&mut self.passed, PASSED_KEPT, Passed { index, at_ns, left_ns });
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
            own.map_or(0, |own| own.exchanged_ns)
        } else {
            at.and_then(|at| self.records.get(at + 1)).map_or(0, |next| next.sent_ns)
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

    /// What the segment told of the frame that this answers.
    fn passed_of(&self, answer: &LateAnswer) -> Option<Passed> {
        let within = answer.sent_ns..=answer.taken_ns;
        let own = |passed: &&Passed| passed.index == answer.index && within.contains(&passed.at_ns);
        self.passed.iter().rev().find(own).copied()
    }

    fn row(&self, late: &Pending, passed: Option<Passed>) -> LateRow {
        let (Pending { answer, own, gave_up_ns, .. }, usual) = (*late, self.usual());
        LateRow {
            index: own.map_or(0, |own| own.index),
            planned_ns: own.map_or(0, |own| own.planned_ns),
            wake_ns: own.map_or(0, |own| own.wake_ns),
            sent_ns: answer.sent_ns,
            // A waiting exchange is over when the wait is: what handing over took is not seen.
            handed_ns: own.map_or(0, |own| if self.waiting_mode { own.sent_ns } else { own.exchanged_ns }),
            at_segment_ns: passed.map_or(0, |passed| passed.at_ns),
            left_segment_ns: passed.map_or(0, |passed| passed.left_ns),
            arrived_ns: answer.arrived_ns.unwrap_or(0),
            gave_up_ns,
            taken_ns: answer.taken_ns,
            late_cycles: answer.cycles,
            usual_wake_ns: usual.wake_ns,
            usual_work_ns: usual.work_ns,
            usual_handing_ns: usual.handing_ns,
            usual_outward_ns: usual.outward_ns,
            usual_segment_ns: usual.segment_ns,
            usual_homeward_ns: usual.homeward_ns,
            usual_beyond_ns: usual.beyond_ns,
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
            work_ns: of(|record| (record.wake_ns, record.sent_ns)),
            handing_ns: if self.waiting_mode {
                0
            } else {
                of(|record| (record.sent_ns, record.exchanged_ns))
            },
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

/// Frames that were late for the same cause.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LateFrameCause {
    /// Where the time went.
    pub place: Place,
    /// Who is to blame.
    pub blame: Option<Blame>,
    /// What held up the thread there.
    pub cause: Option<Cause>,
    /// By whom, for the worst of them.
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
    /// In whose hands a frame was, and what it is called.
    fn holds(&self, place: Place) -> Option<(i32, &'static str)> {
        match place {
            Place::WakeUp | Place::Work | Place::Handing | Place::Untaken => {
                Some((self.controller?, "the controller"))
            }
            Place::Outward | Place::Segment | Place::Homeward => {
                Some((self.segment?, "the simulated segment"))
            }
            Place::Beyond | Place::Unexplained => None,
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
    let columns = if dir.has_samples(LATE)? { dir.columns(LATE, &COLUMNS)? } else { Vec::new() };
    let rows: Vec<LateRow> = (0..).map_while(|row| LateRow::of(columns.as_slice(), row)).collect();
    let rows = if columns.is_empty() { Vec::new() } else { rows };
    let run: serde_json::Value = dir.read_json(takt_rundir::RUN_FILE)?;
    let threads: Threads = serde_json::from_value(run[THREADS].clone()).unwrap_or_default();
    let mut causes = causes(&rows, &threads, trace);
    // Whatever ended the run: the collector's count is kept from time to time.
    let counted: u64 = dir.read_json::<Counted>(COUNTS_FILE).map_or(0, |counted| counted.late_frames);
    causes.without_stamps(counted.saturating_sub(causes.frames));
    dir.write_json(LATE_CAUSES_FILE, &causes)?;
    Ok(causes)
}

fn causes(rows: &[LateRow], threads: &Threads, trace: Result<&Trace, &str>) -> LateCauses {
    let mut frames: Vec<LateFrame> = rows
        .iter()
        .map(|row| {
            let cause = row.way().judge(&row.usual());
            LateFrame {
                stamps: *row,
                place: cause.place,
                blame: cause.place.blame(),
                missed_by_us: cause.missed_by_ns as f64 / 1e3,
                excess_us: cause.excess_ns as f64 / 1e3,
                cause: None,
                who: String::new(),
                share: 0.0,
                inherited: false,
                why: String::new(),
            }
        })
        .collect();
    for at in 1..frames.len() {
        let (before, own) = (&frames[at - 1].stamps, &frames[at]);
        // The frame before was given up in the moment in which this one was sent.
        let waited = before.gave_up_ns > 0 && before.gave_up_ns == own.stamps.sent_ns;
        frames[at].inherited = waited && own.place == Place::Work;
    }
    let mut untraced = trace.err().map(str::to_owned);
    let mut kept = vec![false; frames.len()];
    if let Ok(trace) = trace {
        for tid in [threads.controller, threads.segment].into_iter().flatten() {
            if let Err(error) = ask_kernel(&mut frames, &mut kept, threads, tid, trace) {
                untraced = Some(error.to_string());
            }
        }
    }
    for at in 1..frames.len() {
        if frames[at].inherited {
            let LateFrame { place, blame, cause, who, share, .. } = frames[at - 1].clone();
            let own = &mut frames[at];
            (own.place, own.blame, own.cause, own.who, own.share) = (place, blame, cause, who, share);
            kept[at] = kept[at - 1];
        }
    }
    let mut unexplained = 0;
    let mut all: BTreeMap<(Place, Option<Cause>), LateFrameCause> = BTreeMap::new();
    for (frame, kept) in frames.iter_mut().zip(kept) {
        let known = is_explained(frame, threads, kept);
        unexplained += u64::from(!known);
        frame.why = sentence(frame, threads, known);
        let row = all.entry((frame.place, frame.cause)).or_insert_with(|| LateFrameCause {
            place: frame.place,
            blame: frame.blame,
            cause: frame.cause,
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

/// What the kernel says of the frames that were in the hands of thread `tid`; `kept`: those that the device kept on purpose.
fn ask_kernel(
    frames: &mut [LateFrame],
    kept: &mut [bool],
    threads: &Threads,
    tid: i32,
    trace: &Trace,
) -> Result<(), takt_trace::TraceError> {
    let mut asked = Vec::new();
    let mut spans = Vec::new();
    for (at, frame) in frames.iter().enumerate() {
        if !frame.inherited && threads.holds(frame.place).is_some_and(|(holder, _)| holder == tid) {
            let cause = frame.stamps.way().judge(&frame.stamps.usual());
            asked.push(at);
            spans.push(Span { from_ns: cause.from_ns, to_ns: cause.to_ns });
        }
    }
    for (at, late) in asked.into_iter().zip(held_up(trace, tid, &spans)?) {
        let Some(late) = late else { continue };
        let frame = &mut frames[at];
        // A segment that keeps a frame back on purpose sleeps meanwhile: that is the device's doing, and no thread's.
        let own = matches!(
            late.cause,
            Cause::TimerLate | Cause::Waited | Cause::Execution | Cause::ExecutionOrFirmware
        );
        if frame.place == Place::Segment && own {
            kept[at] = true;
            continue;
        }
        (frame.cause, frame.who, frame.share) = (Some(late.cause), late.who, late.share);
    }
    Ok(())
}

/// Whether something that was seen says why; `kept`: the kernel's trace says that the device kept the frame on purpose.
fn is_explained(frame: &LateFrame, threads: &Threads, kept: bool) -> bool {
    match (frame.place, frame.cause) {
        (Place::Unexplained | Place::Beyond, _)
        | (_, Some(Cause::Unknown | Cause::NotRecorded | Cause::EventsLost)) => false,
        (_, Some(_)) => true,
        // A simulated segment without a thread of its own stamps the delays that were planted, and no others.
        (Place::Outward | Place::Segment | Place::Homeward, None) => kept || threads.segment.is_none(),
        // In a thread of this host, and nothing says what held it up.
        (Place::WakeUp | Place::Work | Place::Handing | Place::Untaken, None) => false,
    }
}

fn sentence(frame: &LateFrame, threads: &Threads, known: bool) -> String {
    let cycles = frame.stamps.late_cycles;
    let plural = if cycles == 1 { "" } else { "s" };
    let late = format!("{cycles} cycle{plural} late, {:.0} µs after it was given up", frame.missed_by_us);
    if frame.place == Place::Unexplained {
        if frame.stamps.gave_up_ns == 0 {
            return format!("unexplained: {cycles} cycle{plural} late; its own cycle is not recorded");
        }
        return format!("unexplained: {late}; no stamp of its way shows where the time went");
    }
    let title = frame.place.title();
    let place = if frame.inherited {
        format!("{title} of the frame before, for which the controller waited: {late}")
    } else {
        format!("{title}: {late}; {:.0} µs longer there than usual", frame.excess_us)
    };
    let holder = threads.holds(frame.place).map_or("the thread", |(_, name)| name);
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
mod tests {
    use super::*;
    use takt_link_ethercat::control::{
        ControlConfig, Link, Port, SimulatedTime, bring_up, in_simulated_time,
    };
    use takt_link_ethercat::segment::{Segment, SegmentConfig, Truth};
    use takt_rt::ring::Consumer;

    const MS: u64 = 1_000_000;
    const US: u64 = 1000;

    /// A loop of exchanges in simulated time, told to the joiner as the collector does.
    struct Bench {
        time: SimulatedTime,
        port: Port,
        late: Consumer<LateAnswer>,
        truth: Consumer<Truth>,
        joiner: LateJoiner,
        planned_ns: u64,
        rows: Vec<LateRow>,
        late_frames: u64,
    }

    impl Bench {
        /// `home_us` says how long the way back takes for each frame, by its number.
        fn new(mode: ExchangeMode, home_us: impl Fn(u64) -> u64 + Send + 'static) -> Self {
            let time = SimulatedTime::new(MS);
            let config = SegmentConfig { watchdog_ms: 5000, ..SegmentConfig::humanoid(4) };
            let mut segment = Segment::new(&config).unwrap();
            let truth = segment.truth(1 << 16);
            let wire = in_simulated_time(segment, time.clone(), move |frame| Some(home_us(frame) * US));
            let config = ControlConfig { mode, bring_up_ms: 60_000, ..ControlConfig::default() };
            let Link { port, late, .. } = bring_up(wire, &config, &mut |_| {}).unwrap();
            let planned_ns = time.now_ns() + MS;
            let joiner = LateJoiner::new(mode, true);
            Self { time, port, late, truth, joiner, planned_ns, rows: Vec::new(), late_frames: 0 }
        }

        /// A cycle whose thread wakes up so late.
        fn cycle(&mut self, late_us: u64) {
            self.time.go_to(self.planned_ns + late_us * US);
            let wake_ns = self.time.now_ns();
            let exchanged = self.port.exchange(self.planned_ns + MS);
            let exchanged_ns = self.time.now_ns();
            let (planned_ns, sent_ns) = (self.planned_ns, exchanged.sent_at_ns);
            let late = exchanged.late as u16;
            let record = CycleRecord { planned_ns, wake_ns, sent_ns, exchanged_ns, late, ..record() };
            self.planned_ns += MS;
            let mut truths = Vec::new();
            self.truth.take_into(&mut truths, 1 << 12);
            for truth in truths {
                if let Truth::Passed { index, at_ns, left_ns } = truth {
                    self.joiner.passed(index, at_ns, left_ns);
                }
            }
            let mut late = Vec::new();
            self.late.take_into(&mut late, 64);
            late.into_iter().for_each(|answer| self.joiner.answer(answer));
            self.late_frames += u64::from(record.late);
            self.joiner.cycle(&record, true);
            let rows = &mut self.rows;
            self.joiner.take(false, |row| rows.push(row));
        }

        fn causes(&self) -> LateCauses {
            causes(&self.rows, &Threads::default(), Err("no trace"))
        }
    }

    fn record() -> CycleRecord {
        CycleRecord {
            index: 0,
            planned_ns: 0,
            wake_ns: 0,
            sent_ns: 0,
            taken_ns: 0,
            exchanged_ns: 0,
            end_ns: 0,
            exchange_ns: 0,
            lock_wait_ns: 0,
            working_counter: 0,
            expected_counter: 0,
            answered: true,
            counter_wrong: false,
            lost: 0,
            late: 0,
            stale: 0,
            phase: None,
            skipped: 0,
            mode: 1,
            events: 0,
            applied: 0,
            command: 0,
        }
    }

    #[test]
    fn with_nothing_planted_nothing_is_late_and_nothing_guessed() {
        for mode in [ExchangeMode::Pipelined, ExchangeMode::Waiting] {
            let mut bench = Bench::new(mode, |_| 120);
            (0..200).for_each(|cycle| bench.cycle(10 + cycle % 7));
            assert_eq!((bench.late_frames, bench.causes().frames), (0, 0));
        }
    }

    #[test]
    fn a_delay_on_the_way_back_is_named_for_every_frame_that_it_made_late() {
        for mode in [ExchangeMode::Pipelined, ExchangeMode::Waiting] {
            // Bring-up takes some hundred frames; every 50th of those after it is slow.
            let mut bench =
                Bench::new(mode, |frame| if frame > 3000 && frame % 50 == 0 { 1700 } else { 100 });
            (0..6000).for_each(|_| bench.cycle(15));
            assert!(bench.late_frames > 30, "{}", bench.late_frames);
            let causes = bench.causes();
            assert_eq!(causes.frames, bench.late_frames, "each has its row");
            assert_eq!((causes.causes.len(), causes.causes[0].place), (1, Place::Homeward), "{causes:?}");
            assert!(causes.each.iter().all(|frame| (frame.excess_us - 1600.0).abs() < 1.0), "{mode:?}");
        }
    }

    #[test]
    fn a_controller_that_woke_late_is_named_itself() {
        let mut bench = Bench::new(ExchangeMode::Pipelined, |_| 700);
        for cycle in 0..500 {
            // Then the next one in time: the answer, usually there after 700 us, is beyond what the grace, grown by 500, waits for.
            bench.cycle(if cycle % 100 == 99 { 990 } else { 15 });
        }
        let causes = bench.causes();
        assert!(causes.frames >= 4 && causes.frames == bench.late_frames, "{causes:?}");
        assert_eq!((causes.causes.len(), causes.causes[0].place), (1, Place::WakeUp), "{causes:?}");
        // The cycle after it waited for its answer, and sent late for that.
        assert!(causes.each.iter().any(|frame| frame.inherited), "{causes:?}");
        // Why the thread was late only the kernel knows.
        let threads = Threads { controller: Some(1), segment: None };
        let asked = super::causes(&bench.rows, &threads, Err("no trace"));
        assert_eq!((causes.unexplained, asked.unexplained), (causes.frames, asked.frames));
        assert!(asked.causes[0].why.contains("is unexplained"), "{}", asked.causes[0].why);
        assert!(causes.causes[0].why.contains("own wake-up late"), "{}", causes.causes[0].why);
    }

    #[test]
    fn the_segments_word_is_waited_for_and_done_without() {
        let mut joiner = LateJoiner::new(ExchangeMode::Pipelined, true);
        for cycle in 1..=3 {
            let at_ns = cycle * MS;
            let record = CycleRecord { index: cycle, planned_ns: at_ns, wake_ns: at_ns + 1, ..record() };
            let record = CycleRecord { sent_ns: at_ns + 2, exchanged_ns: at_ns + 9, ..record };
            if cycle == 3 {
                let sent_ns = MS + 2;
                let answer =
                    LateAnswer { sent_ns, cycles: 1, index: 7, arrived_ns: None, taken_ns: 3 * MS + 2 };
                joiner.answer(answer);
            }
            joiner.cycle(&record, true);
        }
        let mut rows = Vec::new();
        joiner.take(false, |row| rows.push(row));
        assert!(rows.is_empty(), "its word may still come");
        joiner.passed(8, MS + 5, MS + 6);
        joiner.passed(7, MS + 7, 2 * MS + 500);
        joiner.take(false, |row| rows.push(row));
        assert_eq!((rows[0].index, rows[0].at_segment_ns, rows[0].gave_up_ns), (1, MS + 7, 2 * MS + 2));
        let told = causes(&rows, &Threads::default(), Err("no trace"));
        assert_eq!((told.causes[0].place, told.unexplained), (Place::Segment, 0), "{told:?}");
        // A segment with a thread of its own may have been held up: only the kernel tells that from a device that keeps frames.
        let threads = Threads { controller: None, segment: Some(1) };
        let mut told = causes(&rows, &threads, Err("no trace"));
        assert_eq!(told.unexplained, 1, "{told:?}");
        assert!(!told.causes[0].why.contains("kept it"), "{told:?}");
        // What was counted and has no row is counted here, too.
        told.without_stamps(5);
        let sum: u64 = told.causes.iter().map(|cause| cause.frames).sum();
        assert_eq!((told.frames, told.unexplained, sum), (6, 6, 6));
        // Beyond this host nobody knows who it was.
        let stamps = LateRow { at_segment_ns: 0, left_segment_ns: 0, ..rows[0] };
        let beyond = LateRow { arrived_ns: stamps.taken_ns, usual_beyond_ns: 10, ..stamps };
        let told = causes(&[beyond], &Threads::default(), Err("no trace"));
        let cause = &told.causes[0];
        assert_eq!((cause.place, cause.blame, told.unexplained), (Place::Beyond, None, 1), "{told:?}");
    }

    #[test]
    fn an_answers_own_cycle_is_found_though_a_thousand_come_at_once() {
        let mut joiner = LateJoiner::new(ExchangeMode::Pipelined, false);
        // The second answer's cycle was not recorded.
        for (sent_ns, taken_ns) in [(5 * MS + 2, 7 * MS + 2), (MS / 2, 9 * MS + 2)] {
            joiner.answer(LateAnswer { sent_ns, cycles: 1, index: 5, arrived_ns: None, taken_ns });
        }
        for cycle in 1..=1000 {
            let at_ns = cycle * MS;
            let record = CycleRecord { index: cycle, planned_ns: at_ns, wake_ns: at_ns + 1, ..record() };
            joiner.cycle(&CycleRecord { sent_ns: at_ns + 2, exchanged_ns: at_ns + 9, ..record }, true);
        }
        let mut rows = Vec::new();
        joiner.take(false, |row| rows.push(row));
        let stamps: Vec<_> = rows.iter().map(|row| (row.index, row.planned_ns, row.gave_up_ns)).collect();
        assert_eq!(stamps, [(5, 5 * MS, 6 * MS + 2), (0, 0, 0)]);
        let told = causes(&rows, &Threads::default(), Err("no trace"));
        assert!(told.causes.iter().all(|cause| cause.worst_us < 2000.0), "{told:?}");
        assert_eq!((told.frames, told.unexplained), (2, 2));
    }
}

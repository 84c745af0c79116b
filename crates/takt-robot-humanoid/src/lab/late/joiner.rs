//! The stamps of every late frame, put together from what the master, the loop and the segment
//! report it.

use std::collections::{BTreeMap, VecDeque};

use serde::de::Error as _;
use serde::ser::SerializeStruct as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use takt_link_ethercat::analyse::{LateWay, Usual};
use takt_link_ethercat::control::{ExchangeMode, LateAnswer};
use takt_link_ethercat::segment::Stay;

use crate::run::CycleRecord;

/// Name of the sample file with the stamps of late frames.
pub const LATE: &str = "late_frames";
/// Cycles kept to find a late answer's own in: one that comes is reported for up to 255 cycles.
const CYCLES_KEPT: usize = 257;
/// Answers in time that are kept: of the last second, those whose frames the segment has not
/// forgotten.
const IN_TIME_KEPT: usize = 16;
/// Frames kept as the segment reported them: several a cycle.
const PASSED_KEPT: usize = 1024;
/// Drains for which the segment's word of a frame is waited for.
const MAX_LOOKS: u32 = 10;

/// A line of the sample file; its columns are `COLUMNS`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LateRow {
    /// Index of the frame's cycle on the release grid.
    pub index: u64,
    /// Cycles by which it came late.
    pub late_cycles: u64,
    /// Its way; stamps are CLOCK_MONOTONIC, 0 where unknown.
    pub way: LateWay,
    /// Usual times of the parts of the path, from the earlier cycles.
    pub usual: Usual,
    /// For how long the segment kept it on purpose, by its own stamps.
    pub held_ns: u64,
    /// CPU time that the segment's thread got while it had the frame; 0 where that is not known.
    pub ran_ns: u64,
    /// Longest time between two readings of the clock in that work, some 1 us apart; 0 likewise.
    pub still_ns: u64,
}

/// A column of the sample file, and what it holds of a row.
pub(super) type Column = (&'static str, fn(&mut LateRow) -> &mut u64);

/// The columns, which are the keys in [`LATE_CAUSES_FILE`], too.
pub(super) const COLUMNS: [Column; 23] = [
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
    ("held_ns", |row| &mut row.held_ns),
    ("ran_ns", |row| &mut row.ran_ns),
    ("still_ns", |row| &mut row.still_ns),
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
pub(super) fn rows_of(columns: &[Vec<u64>]) -> Vec<LateRow> {
    let count = columns.iter().map(Vec::len).min().unwrap_or(0);
    let mut rows = vec![LateRow::default(); count];
    for ((_, of), column) in COLUMNS.iter().zip(columns) {
        for (row, value) in rows.iter_mut().zip(column) {
            *of(row) = *value;
        }
    }
    rows
}

/// A frame as the segment reported it.
#[derive(Clone, Copy, Debug)]
struct Passed {
    /// The low 32 bits of the number of its cycle.
    cycle: u32,
    /// Address of its first process data: frames of one cycle differ by it.
    address: u32,
    stay: Stay,
}

/// A late answer, with what the controller recorded of its cycle: found when the answer is taken,
/// as records do not stay.
#[derive(Clone, Copy, Debug)]
struct Pending {
    answer: LateAnswer,
    own: Option<CycleRecord>,
    gave_up_ns: u64,
    /// Number of examinations.
    looks: u32,
}

/// Puts together what the master, the controller and the segment say of late frames, whichever
/// comes first.
pub(crate) struct LateJoiner {
    waiting_mode: bool,
    /// Whether the segment reports frames.
    has_truth: bool,
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
    pub fn new(mode: ExchangeMode, has_truth: bool) -> Self {
        Self {
            waiting_mode: mode == ExchangeMode::Waiting,
            has_truth,
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

    /// A frame of ours, as the segment reports it.
    pub fn passed(&mut self, (cycle, address): (u32, u32), stay: Stay) {
        bounded(&mut self.passed, PASSED_KEPT, Passed { cycle, address, stay });
    }

    /// A cycle, after all answers that it took; `counts` where it lies in the window, so that
    /// frames here and counts elsewhere agree.
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
            // A record that was lost leaves a gap: the one behind it was not waiting for this
            // answer.
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
            if passed.is_none() && self.has_truth && !all && late.looks < MAX_LOOKS {
                return true;
            }
            row(self.row(late, passed));
            false
        });
        self.pending = pending;
    }

    /// The segment's record of the frame that this answers. If the wire duplicated the frame, it is
    /// the first copy that had left when the answer arrived: the other copies return later and are
    /// ignored.
    fn passed_of(&self, answer: &LateAnswer) -> Option<Passed> {
        let within = answer.sent_ns..=answer.taken_ns;
        let own = self.passed.iter().filter(|passed| {
            (passed.cycle, passed.address) == (answer.cycle, answer.address)
                && within.contains(&passed.stay.at_ns)
        });
        let came_ns = answer.arrived_ns.unwrap_or(answer.taken_ns);
        // If none had, the timestamps of two threads crossed.
        own.clone().find(|passed| passed.stay.left_ns <= came_ns).or_else(|| own.clone().next()).copied()
    }

    fn row(&self, late: &Pending, passed: Option<Passed>) -> LateRow {
        let Pending { answer, own, gave_up_ns, .. } = *late;
        let own = own.unwrap_or_default();
        let stay = passed.map_or(Stay::default(), |passed| passed.stay);
        // A waiting exchange waits from sending on: by how late that was the answer did not miss
        // it.
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
                at_segment_ns: stay.at_ns,
                left_segment_ns: stay.left_ns,
                arrived_ns: answer.arrived_ns.unwrap_or(0),
                gave_up_ns,
                taken_ns: answer.taken_ns,
            },
            usual: self.usual(),
            held_ns: stay.held_ns,
            // None at all is known, too.
            ran_ns: stay.ran_ns.map_or(0, |ran_ns| ran_ns.max(1)),
            still_ns: stay.still_ns.unwrap_or(0),
        }
    }

    /// Usual times from the earlier cycles. Late frames are rare, so this is seldom computed.
    fn usual(&self) -> Usual {
        let of = |part: fn(&CycleRecord) -> (u64, u64)| {
            median(self.records.iter().map(part).map(|(from_ns, to_ns)| to_ns.saturating_sub(from_ns)))
        };
        let outward = self.passed.iter().filter_map(|passed| {
            let sent = self.records.partition_point(|record| record.sent_ns <= passed.stay.at_ns);
            Some(passed.stay.at_ns - self.records.get(sent.checked_sub(1)?)?.sent_ns)
        });
        let arrived = |answer: &LateAnswer| answer.arrived_ns;
        let homeward = self
            .in_time
            .iter()
            .filter_map(|answer| Some(arrived(answer)?.saturating_sub(self.passed_of(answer)?.stay.left_ns)));
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
            segment_ns: median(
                self.passed.iter().map(|passed| passed.stay.left_ns.saturating_sub(passed.stay.at_ns)),
            ),
        }
    }
}

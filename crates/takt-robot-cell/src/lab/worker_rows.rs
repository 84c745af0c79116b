//! Answers and events of the perception process, as rows and figures. Times are CLOCK_MONOTONIC.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use takt_perception::process::{EventKind, PARTS, Record, StageSpans, WorkerFacts};
use takt_stats::{Recorder, RecorderError, Summary};

use super::tally::{in_units_of, inside};

/// Name of the sample file of frames that the perception process answered in time.
pub const GPU_FRAMES: &str = "gpu_frames";
/// Name of the sample file of everything else: overruns, late answers, breaker, restarts.
pub const GPU_EVENTS: &str = "gpu_events";

/// One line of `gpu_frames` and `gpu_events`. Parts of the work are 0 where there was none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkerRow {
    pub time_ns: u64,
    pub kind: EventKind,
    /// The camera, empty for what concerns all.
    pub camera: Option<u32>,
    /// The frame, 0 for none.
    pub frame: u64,
    /// Number of the worker process, from 1.
    pub process: u32,
    /// The cell asked.
    pub asked_ns: u64,
    /// The worker took the frame up.
    pub taken_ns: u64,
    /// The worker had the answer.
    pub done_ns: u64,
    /// Copies to the device began.
    pub upload_start_ns: u64,
    pub upload_end_ns: u64,
    /// Geometry, things, the detector's input began.
    pub prepare_start_ns: u64,
    pub prepare_end_ns: u64,
    /// The detector began.
    pub detect_start_ns: u64,
    pub detect_end_ns: u64,
    /// Candidates, and their way back, began.
    pub decode_start_ns: u64,
    pub decode_end_ns: u64,
    /// Masks began.
    pub masks_start_ns: u64,
    pub masks_end_ns: u64,
    /// Nearest points, and their way back, began.
    pub measure_start_ns: u64,
    pub measure_end_ns: u64,
    /// Largest error of these times: the device's clock is mapped onto CLOCK_MONOTONIC.
    pub error_ns: u64,
    pub cause: String,
}

impl From<&Record> for WorkerRow {
    fn from(r: &Record) -> Self {
        let [upload, prepare, detect, decode, masks, measure] = r.stages.spans;
        Self {
            time_ns: r.time_ns,
            kind: r.kind,
            camera: r.camera,
            frame: r.frame,
            process: r.generation,
            asked_ns: r.asked_ns,
            taken_ns: r.taken_ns,
            done_ns: r.done_ns,
            upload_start_ns: upload[0],
            upload_end_ns: upload[1],
            prepare_start_ns: prepare[0],
            prepare_end_ns: prepare[1],
            detect_start_ns: detect[0],
            detect_end_ns: detect[1],
            decode_start_ns: decode[0],
            decode_end_ns: decode[1],
            masks_start_ns: masks[0],
            masks_end_ns: masks[1],
            measure_start_ns: measure[0],
            measure_end_ns: measure[1],
            error_ns: r.stages.error_ns,
            cause: r.cause.to_string(),
        }
    }
}

/// Figures of the perception process over a window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkerSummary {
    /// The judge.
    pub device: String,
    /// Version of its driver.
    pub driver: String,
    /// The engine of the networks.
    pub engine: String,
    /// Frames answered in time.
    pub answered: u64,
    /// From asking to the worker's answer, milliseconds, of frames answered in time.
    pub answer_ms: Summary,
    /// From taking the frame up to the answer.
    pub work_ms: Summary,
    /// Work on the device by part, milliseconds, where it says.
    pub stages_ms: Vec<(String, Summary)>,
    /// Greatest error of the parts' times, microseconds.
    pub clock_error_us: f64,
    /// Events by kind.
    pub events: BTreeMap<String, u64>,
    /// First cause of each kind.
    pub causes: BTreeMap<String, String>,
}

impl WorkerSummary {
    /// Number of events of a kind.
    pub fn count(&self, kind: EventKind) -> u64 {
        self.events.get(kind.name()).copied().unwrap_or(0)
    }
}

/// Activity of the perception process within the window, counted in constant memory.
#[derive(Debug, Serialize, Deserialize)]
pub struct WorkerTally {
    answer: Recorder,
    work: Recorder,
    stages: Vec<Recorder>,
    worst_error_ns: u64,
    events: BTreeMap<String, u64>,
    /// First cause of each kind.
    causes: BTreeMap<String, String>,
    answered: u64,
}

impl WorkerTally {
    pub(super) fn new() -> Result<Self, RecorderError> {
        Ok(Self {
            answer: Recorder::compact(None)?,
            work: Recorder::compact(None)?,
            stages: (0..PARTS).map(|_| Recorder::compact(None)).collect::<Result<_, _>>()?,
            worst_error_ns: 0,
            events: BTreeMap::new(),
            causes: BTreeMap::new(),
            answered: 0,
        })
    }

    /// Takes an answer or an event, if it lies in the window.
    pub fn see(&mut self, record: &Record, window_ns: [u64; 2]) {
        if !inside(window_ns, record.time_ns) {
            return;
        }
        if record.kind != EventKind::Answered {
            let name = record.kind.name();
            *self.events.entry(name.to_owned()).or_default() += 1;
            self.causes.entry(name.to_owned()).or_insert_with(|| record.cause.to_string());
            return;
        }
        self.answered += 1;
        let keep = |recorder: &mut Recorder, [from, to]: [u64; 2]| {
            if to > from && from > 0 {
                recorder.record(to - from);
            }
        };
        keep(&mut self.answer, [record.asked_ns, record.done_ns]);
        keep(&mut self.work, [record.taken_ns, record.done_ns]);
        self.stages.iter_mut().zip(record.stages.spans).for_each(|(stage, span)| keep(stage, span));
        self.worst_error_ns = self.worst_error_ns.max(record.stages.error_ns);
    }

    /// Its figures.
    pub fn summary(&self, facts: &WorkerFactsShort) -> WorkerSummary {
        const NS_PER_MS: f64 = 1e6;
        let stages_ms = StageSpans::NAMES
            .iter()
            .zip(&self.stages)
            .filter(|(_, stage)| stage.count() > 0)
            .map(|(name, stage)| ((*name).to_owned(), in_units_of(NS_PER_MS, stage)));
        WorkerSummary {
            device: facts.device.clone(),
            driver: facts.driver.clone(),
            engine: facts.engine.clone(),
            answered: self.answered,
            answer_ms: in_units_of(NS_PER_MS, &self.answer),
            work_ms: in_units_of(NS_PER_MS, &self.work),
            stages_ms: stages_ms.collect(),
            clock_error_us: self.worst_error_ns as f64 / 1e3,
            events: self.events.clone(),
            causes: self.causes.clone(),
        }
    }
}

/// Inputs of the summary from the worker.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkerFactsShort {
    /// The judge.
    pub device: String,
    /// Version of its driver.
    pub driver: String,
    /// The engine of the networks.
    pub engine: String,
}

impl From<&WorkerFacts> for WorkerFactsShort {
    fn from(facts: &WorkerFacts) -> Self {
        let about = &facts.about;
        Self { device: about.device.clone(), driver: about.driver.clone(), engine: about.engine.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use takt_perception::process::Text;

    fn record(kind: EventKind, time_ns: u64) -> Record {
        let mut stages = StageSpans { error_ns: 1500, ..StageSpans::default() };
        stages.spans[0] = [10, 2_000_010];
        Record {
            camera: Some(1),
            frame: 7,
            asked_ns: 1_000_000,
            taken_ns: 2_000_000,
            done_ns: 5_000_000,
            stages,
            ..Record::of(kind, time_ns, 2, Text::new("because, \"so\""))
        }
    }

    #[test]
    fn rows_round_trip_through_csv() {
        for kind in EventKind::EVENTS.into_iter().chain([EventKind::Answered]) {
            let row = WorkerRow::from(&record(kind, 3));
            let mut writer = csv::Writer::from_writer(Vec::new());
            writer.serialize(&row).unwrap();
            let text = writer.into_inner().unwrap();
            let again: WorkerRow =
                csv::Reader::from_reader(text.as_slice()).deserialize().next().unwrap().unwrap();
            assert_eq!(again, row);
            assert!(
                String::from_utf8(text).unwrap().contains(kind.name()),
                "the name in files is the name in words"
            );
        }
    }

    #[test]
    fn only_the_window_counts() {
        let mut tally = WorkerTally::new().unwrap();
        for (kind, times) in [(EventKind::Answered, [5, 15, 16, 25]), (EventKind::Overrun, [9, 10, 19, 20])] {
            times.iter().for_each(|&at| tally.see(&record(kind, at), [10, 20]));
        }
        let tally: WorkerTally = serde_json::from_str(&serde_json::to_string(&tally).unwrap()).unwrap();
        let summary = tally.summary(&WorkerFactsShort::default());
        assert_eq!(
            (summary.answered, summary.count(EventKind::Overrun), summary.count(EventKind::Late)),
            (2, 2, 0)
        );
        assert_eq!((summary.answer_ms.worst, summary.work_ms.worst, summary.clock_error_us), (4.0, 3.0, 1.5));
        assert_eq!(summary.stages_ms.len(), 1, "parts that were never there are left out");
        assert_eq!(summary.stages_ms[0].1.worst, 2.0);
        assert!(summary.causes["overrun"].starts_with("because"));
    }
}

//! What the perception process answered and did, as rows and figures. Times are CLOCK_MONOTONIC.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use takt_perception_process::{EventKind, PARTS, Record, Stages, WorkerFacts};
use takt_stats::Summary;

/// Name of the sample file of frames that the perception process answered in time.
pub const GPU_FRAMES: &str = "gpu_frames";
/// Name of the sample file of everything else: overruns, late answers, breaker, restarts.
pub const GPU_EVENTS: &str = "gpu_events";

/// One line of `gpu_frames` and `gpu_events`. Parts of the work are 0 where there was none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkerRow {
    /// When.
    pub time_ns: u64,
    /// What.
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
    /// And ended.
    pub upload_end_ns: u64,
    /// Geometry, things, the detector's input began.
    pub prepare_start_ns: u64,
    /// And ended.
    pub prepare_end_ns: u64,
    /// The detector began.
    pub detect_start_ns: u64,
    /// And ended.
    pub detect_end_ns: u64,
    /// Candidates, and their way back, began.
    pub decode_start_ns: u64,
    /// And ended.
    pub decode_end_ns: u64,
    /// Masks began.
    pub masks_start_ns: u64,
    /// And ended.
    pub masks_end_ns: u64,
    /// Nearest points, and their way back, began.
    pub measure_start_ns: u64,
    /// And ended.
    pub measure_end_ns: u64,
    /// How wrong these times may be: the device's clock is mapped onto CLOCK_MONOTONIC.
    pub error_ns: u64,
    /// Why.
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
    /// What judged.
    pub device: String,
    /// Version of its driver.
    pub driver: String,
    /// What ran the networks.
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
    /// How often something happened.
    pub fn count(&self, kind: EventKind) -> u64 {
        self.events.get(kind.name()).copied().unwrap_or(0)
    }

    /// Sums up what lies in the window.
    pub fn of(
        facts: &WorkerFactsShort,
        frames: &[WorkerRow],
        events: &[WorkerRow],
        window_ns: [u64; 2],
    ) -> Self {
        let inside = |row: &&WorkerRow| (window_ns[0]..window_ns[1]).contains(&row.time_ns);
        let frames: Vec<&WorkerRow> = frames.iter().filter(inside).collect();
        let of = |value: &dyn Fn(&WorkerRow) -> Option<u64>| {
            let values = frames.iter().filter_map(|row| value(row)).map(|ns| ns as f64 / 1e6);
            Summary::of(&mut values.collect::<Vec<_>>())
        };
        let span = |from: u64, to: u64| (to > from && from > 0).then(|| to - from);
        type Part = fn(&WorkerRow) -> (u64, u64);
        let parts: [Part; PARTS] = [
            |r| (r.upload_start_ns, r.upload_end_ns),
            |r| (r.prepare_start_ns, r.prepare_end_ns),
            |r| (r.detect_start_ns, r.detect_end_ns),
            |r| (r.decode_start_ns, r.decode_end_ns),
            |r| (r.masks_start_ns, r.masks_end_ns),
            |r| (r.measure_start_ns, r.measure_end_ns),
        ];
        let stages_ms = Stages::NAMES.iter().zip(parts).map(|(name, part)| {
            let summary = of(&|row| {
                let (from, to) = part(row);
                span(from, to)
            });
            ((*name).to_owned(), summary)
        });
        let mut summary = Self {
            device: facts.device.clone(),
            driver: facts.driver.clone(),
            engine: facts.engine.clone(),
            answered: frames.len() as u64,
            answer_ms: of(&|row| span(row.asked_ns, row.done_ns)),
            work_ms: of(&|row| span(row.taken_ns, row.done_ns)),
            clock_error_us: frames.iter().map(|row| row.error_ns).max().unwrap_or(0) as f64 / 1e3,
            stages_ms: stages_ms.filter(|(_, summary)| summary.count > 0).collect(),
            ..Self::default()
        };
        for event in events.iter().filter(inside) {
            let name = event.kind.name();
            *summary.events.entry(name.to_owned()).or_default() += 1;
            summary.causes.entry(name.to_owned()).or_insert_with(|| event.cause.clone());
        }
        summary
    }
}

/// What the summary needs to know of the worker.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkerFactsShort {
    /// What judges.
    pub device: String,
    /// Version of its driver.
    pub driver: String,
    /// What runs the networks.
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
    use takt_perception_process::Text;

    fn record(kind: EventKind, time_ns: u64) -> Record {
        let mut stages = Stages { error_ns: 1500, ..Stages::default() };
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
        let rows = |kind, times: &[u64]| -> Vec<WorkerRow> {
            times.iter().map(|&t| WorkerRow::from(&record(kind, t))).collect()
        };
        let frames = rows(EventKind::Answered, &[5, 15, 16, 25]);
        let events = rows(EventKind::Overrun, &[9, 10, 19, 20]);
        let summary = WorkerSummary::of(&WorkerFactsShort::default(), &frames, &events, [10, 20]);
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

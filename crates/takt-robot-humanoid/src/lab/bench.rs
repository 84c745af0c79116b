//! `takt bench humanoid`: one run, with the paper's table.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;
use takt_lab::LabError;
use takt_lab::Session;
use takt_lab::options::RunOptions;
use takt_lab::robot::Observe;
use takt_lab::summary::RunSummary;
use takt_lab::trace::{TraceRequest, trace};
use takt_report::Figures;
use takt_stats::low::LowRow;
use takt_trace::Thresholds;

use super::HumanoidFile;
use super::late::{LATE_CAUSES_FILE, LateCauses, LateFrameCause};

/// Output of `takt bench humanoid --json`; null if a run that ended early lacks the value.
#[derive(Debug, Serialize)]
pub struct HumanoidBench {
    pub devices_op: Option<u64>,
    /// Time until they were, seconds.
    pub bring_up_s: Option<f64>,
    /// Cycles in the measured window.
    pub cycles: Option<u64>,
    /// Releases in it that never ran.
    pub skipped_cycles: Option<u64>,
    /// Frames that never came back.
    pub lost_frames: Option<u64>,
    /// Frames that came back after the cycle that waited for them.
    pub late_frames: Option<u64>,
    /// Reasons of their lateness, the most frequent first.
    pub late_frame_causes: Vec<LateFrameCause>,
    /// Late frames that nothing explains.
    pub late_frames_unexplained: u64,
    /// Reason why the kernel's part of the causes is unknown; null if the kernel was traced.
    pub untraced: Option<String>,
    /// Notes on the trace for a reader of the figures.
    pub trace_notes: Vec<String>,
    /// Cycles whose working counter was wrong.
    pub working_counter_errors: Option<u64>,
    /// The tuning as the paper writes it.
    pub tuning: String,
    /// The control period in microseconds: Figures 7 and 8 of the paper.
    pub period_low_us: Vec<LowRow>,
    /// Wake-up lateness in microseconds, likewise.
    pub lateness_low_us: Vec<LowRow>,
    /// Sensor latency, command latency and reaction in cycles: `{min, mean, max}`. The paper: 1.5
    /// to 2.5, 1.5, and 3 to 4.
    pub latency_cycles: BTreeMap<String, BTreeMap<String, f64>>,
    /// The run's summary: verdict, all figures, what was not granted.
    pub run: RunSummary,
}

/// Runs `file` and makes the table of what it left. `traced`: with a flight recorder of the kernel
/// beside it, which knows why threads were held up in whose hands late frames were; where the
/// kernel cannot be traced, the run goes on and says so.
pub fn bench(
    file: &HumanoidFile,
    options: &RunOptions,
    traced: bool,
    observe: Observe<'_>,
) -> Result<HumanoidBench, LabError> {
    let (run, notes) = if traced {
        // Whatever makes a frame late takes about a cycle.
        let lateness_ns = file.motion.period().as_nanos() as u64 / 2;
        let mut request = TraceRequest::flight(Thresholds { lateness_ns, ..Thresholds::default() });
        // They would cost each cycle a microsecond or two.
        request.options.stacks = false;
        let traced = trace(file, options, &request, observe)?;
        (traced.run, traced.trace.map(|trace| trace.report.notes).unwrap_or_default())
    } else {
        (Session::run(file, options, observe)?, Vec::new())
    };
    let dir = run.dir().clone();
    let run = run.into_summary()?;
    let late: LateCauses = dir.read_json(LATE_CAUSES_FILE)?;
    let header = dir.header()?;
    let table = |name: &str| -> Result<Vec<LowRow>, LabError> {
        let Some(measure) = header.measures.iter().find(|measure| measure.name == name) else {
            return Ok(Vec::new());
        };
        Ok(Figures::read(&dir, measure)?.low().into_iter().map(in_us).collect())
    };
    let figure = |name: &str| run.figures.get(name).copied();
    let count = |name: &str| figure(name).map(|value| value as u64);
    let mut latency_cycles = BTreeMap::new();
    for (name, key) in
        [("sensor", "sensor_latency"), ("command", "command_latency"), ("reaction", "reaction")]
    {
        let parts = [("min", "_min_cycles"), ("mean", "_cycles"), ("max", "_max_cycles")];
        let values: BTreeMap<String, f64> = parts
            .iter()
            .filter_map(|(part, end)| Some(((*part).to_owned(), *run.figures.get(&format!("{key}{end}"))?)))
            .collect();
        if !values.is_empty() {
            latency_cycles.insert(name.to_owned(), values);
        }
    }
    Ok(HumanoidBench {
        devices_op: count("devices_op"),
        bring_up_s: figure("bring_up_s"),
        cycles: count("cycles"),
        skipped_cycles: count("skipped_cycles"),
        lost_frames: count("lost_frames"),
        late_frames: count("late_frames"),
        late_frame_causes: late.causes,
        late_frames_unexplained: late.unexplained,
        untraced: late.untraced,
        trace_notes: notes,
        working_counter_errors: count("working_counter_errors"),
        tuning: file.tuning(),
        period_low_us: table("period")?,
        lateness_low_us: table("lateness")?,
        latency_cycles,
        run,
    })
}

/// Nanoseconds as microseconds.
fn in_us(row: LowRow) -> LowRow {
    let LowRow { percent, count, min, max, mean, stddev } = row;
    LowRow { percent, count, min: min / 1e3, max: max / 1e3, mean: mean / 1e3, stddev: stddev / 1e3 }
}

/// A figure for people; what is not known is no 0.
fn or_dash(value: Option<u64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

impl HumanoidBench {
    /// For people.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let _ = writeln!(
            text,
            "{} devices in OP after {} s, {} cycles, {} never ran, {} frames lost, {} late, {} working counters wrong; tuning {}",
            or_dash(self.devices_op),
            self.bring_up_s.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}")),
            or_dash(self.cycles),
            or_dash(self.skipped_cycles),
            or_dash(self.lost_frames),
            or_dash(self.late_frames),
            or_dash(self.working_counter_errors),
            self.tuning
        );
        for cause in &self.late_frame_causes {
            let _ = writeln!(text, "  {} late: at worst {}", cause.frames, cause.why);
        }
        if self.late_frames_unexplained > 0 {
            let _ = writeln!(text, "  {} late frames unexplained", self.late_frames_unexplained);
        }
        if let Some(why) = self.untraced.as_ref().filter(|_| self.late_frames > Some(0)) {
            let _ = writeln!(text, "  causes beyond the timestamps of each frame are unknown: {why}");
        }
        for (title, rows) in
            [("control period, µs", &self.period_low_us), ("wake-up lateness, µs", &self.lateness_low_us)]
        {
            let _ = writeln!(text, "\n{title:<24} {:>10} {:>10} {:>10} {:>10}", "min", "max", "mean", "SD");
            for row in rows {
                let _ = writeln!(
                    text,
                    "{:<24} {:>10.2} {:>10.2} {:>10.2} {:>10.2}",
                    row.label(),
                    row.min,
                    row.max,
                    row.mean,
                    row.stddev
                );
            }
        }
        let _ =
            writeln!(text, "\n{:<24} {:>10} {:>10} {:>10}   paper", "latency, cycles", "min", "mean", "max");
        for (name, paper) in [("sensor", "1.5 to 2.5"), ("command", "1.5"), ("reaction", "3 to 4")] {
            if let Some(values) = self.latency_cycles.get(name) {
                let value = |part: &str| values.get(part).copied().unwrap_or(f64::NAN);
                let _ = writeln!(
                    text,
                    "{name:<24} {:>10.2} {:>10.2} {:>10.2}   {paper}",
                    value("min"),
                    value("mean"),
                    value("max")
                );
            }
        }
        for note in &self.trace_notes {
            let _ = writeln!(text, "trace: {note}");
        }
        for difference in &self.run.not_granted {
            let _ = writeln!(text, "not granted: {difference}");
        }
        for problem in &self.run.problems {
            let _ = writeln!(text, "problem: {problem}");
        }
        let _ = writeln!(text, "{}", self.run.sentence);
        text
    }
}

//! Analysis of the kernel's events that `takt trace` left in run directories, as far as a report
//! shows it.
//!
//! The file is read by structures of its own, in which everything may be missing: a trace of an
//! older or newer version, or one that was cut off, costs a labelled gap and never the report. Keys
//! that are not known are skipped.

use std::io::Read;

use serde::Deserialize;

use crate::collect::Collection;
use crate::words::clean;

pub const TRACE_FILE: &str = "trace.json";

/// Longest file that is read: a real one has some 20 KiB, so that one of 4 MiB is not what it says
/// it is.
const LONGEST: u64 = 4 << 20;

/// Longest list that is shown: an analysis has some ten segments and causes, and as many windows as
/// were asked for.
const MOST: usize = 2000;

/// A trace of one thread.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Trace {
    pub task: Option<String>,
    /// Releases within the trace.
    pub releases: Option<u64>,
    /// Of these, how many have every step of their activation.
    pub matched: Option<u64>,
    /// Reason why there is no trace, if the run continued without one.
    pub untraced: Option<String>,
    /// CPUs that the tracer kept out of idle.
    pub kept_awake: Vec<u16>,
    pub events: Option<u64>,
    /// Events that the kernel or the recorder dropped.
    pub lost_events: Option<u64>,
    /// Late releases.
    pub late: Option<u64>,
    /// Segments of the activation path.
    pub segments_us: Vec<Segment>,
    /// The activation sequence.
    pub sequence: Vec<Step>,
    /// The thresholds of lateness.
    pub thresholds: Thresholds,
    /// Causes of late releases.
    pub causes: Vec<CauseRow>,
    /// The worst late releases.
    pub windows: Vec<Window>,
    /// Remarks of the analysis.
    pub notes: Vec<String>,
    /// Cost of tracing on the machine, if it was measured.
    pub overhead: Option<Overhead>,
}

/// Cost of tracing.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Overhead {
    /// Off, on, full rings.
    pub costs: Vec<Cost>,
    /// Cost of one event.
    pub ns_per_event: Option<f64>,
    /// Percent of the machine's CPU time while tracing is on.
    pub cpu_percent: Option<f64>,
}

/// Cost of one way of tracing.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Cost {
    /// `off`, `on`, `full`.
    pub mode: String,
    /// Wake-up lateness of a 1 kHz loop.
    pub lateness_us: Segment,
    /// CPU time of the reader, percent of one CPU.
    pub reader_cpu_percent: Option<f64>,
    pub events_per_s: Option<f64>,
    pub lost_events: Option<u64>,
}

/// Thresholds of lateness.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Thresholds {
    /// A wake-up more than this after the release.
    pub lateness_ns: Option<u64>,
    /// An end more than this after the release; the greatest number stands for none.
    pub response_ns: Option<u64>,
}

/// The distribution of a segment, microseconds.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Segment {
    pub name: String,
    pub title: String,
    /// Number of releases that it was measured in.
    pub count: Option<u64>,
    pub mean: Option<f64>,
    pub median: Option<f64>,
    /// 99 % quantile.
    pub p99: Option<f64>,
    /// 99.9 % quantile.
    pub p999: Option<f64>,
    /// Greatest.
    pub worst: Option<f64>,
}

/// A step of the activation sequence.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Step {
    pub event: String,
    /// Share of the releases that had it, 0 to 1.
    pub share: Option<f64>,
    /// Time since the interrupt's entry.
    pub median_us: Option<f64>,
}

/// A row of the table of causes.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct CauseRow {
    /// The cause: `timer_late`.
    pub cause: String,
    /// Most frequent thread or device behind it.
    pub who: String,
    /// Late releases.
    pub count: Option<u64>,
    /// Releases after them that never ran.
    pub never_ran: Option<u64>,
    pub worst_us: Option<f64>,
    /// All together, microseconds.
    pub total_us: Option<f64>,
}

/// A late release.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Window {
    /// Number of the release.
    pub index: Option<u64>,
    /// Wake-up after the release.
    pub lateness_us: Option<f64>,
    /// End after the release.
    pub response_us: Option<f64>,
    pub cause: String,
    /// The thread or device behind it.
    pub who: String,
    /// Share of the time that the cause explains, 0 to 1.
    pub share: Option<f64>,
    /// The cause is that of the release before.
    pub inherited: bool,
    /// Parts of the lost time.
    pub parts: Vec<Part>,
}

impl Window {
    /// From the planned release to the end of the job, nanoseconds; 0 where neither is reported.
    pub fn length_ns(&self) -> f64 {
        1e3 * sound(self.response_us).unwrap_or(0.0).max(sound(self.lateness_us).unwrap_or(0.0))
    }
}

/// A part of a late release.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Part {
    /// Its cause.
    pub cause: String,
    pub who: String,
    /// Its length.
    pub ns: Option<f64>,
}

/// A time as a file may report it: neither negative nor, in any unit, longer than thirty years.
pub fn sound(value: Option<f64>) -> Option<f64> {
    value.filter(|v| (0.0..1e18).contains(v))
}

/// A run with a trace.
#[derive(Clone, Debug)]
pub struct Traced {
    /// Number of the run in [`Collection::runs`].
    pub run: usize,
    /// The trace, or why it cannot be used.
    pub trace: Result<Trace, String>,
}

/// The traces of all runs that have one.
pub fn traces(collection: &Collection) -> Vec<Traced> {
    let one = |(run, path): (usize, std::path::PathBuf)| {
        // A link that leads nowhere is a trace that cannot be read; no entry at all is a run that
        // was not traced.
        std::fs::symlink_metadata(&path).is_ok().then(|| Traced { run, trace: read(&path) })
    };
    let paths = collection.runs.iter().map(|run| run.dir.path().join(TRACE_FILE));
    paths.enumerate().filter_map(one).collect()
}

/// The trace of one run; `None` where it was not traced.
pub(crate) fn of_run(dir: &takt_rundir::RunDir) -> Option<Result<Trace, String>> {
    let path = dir.path().join(TRACE_FILE);
    std::fs::symlink_metadata(&path).is_ok().then(|| read(&path))
}

fn read(path: &std::path::Path) -> Result<Trace, String> {
    let mut bytes = Vec::new();
    let file = takt_files::open(path).map_err(|error| error.to_string())?;
    file.take(LONGEST + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    parse(&bytes)
}

/// Reads a trace. Whatever the bytes are, the answer is a trace or a reason.
fn parse(bytes: &[u8]) -> Result<Trace, String> {
    if bytes.len() as u64 > LONGEST {
        return Err(format!("longer than {} MiB, too long for the analysis of a trace", LONGEST >> 20));
    }
    let trace: Trace = serde_json::from_slice(bytes).map_err(|error| clean(&format!("damaged: {error}")))?;
    let lengths = [
        trace.segments_us.len(),
        trace.sequence.len(),
        trace.causes.len(),
        trace.windows.len(),
        trace.notes.len(),
        trace.kept_awake.len(),
    ];
    match lengths.into_iter().find(|length| *length > MOST) {
        Some(length) => Err(format!("damaged: a list has {length} entries; at most {MOST} are expected")),
        None => match &trace.untraced {
            Some(why) => Err(format!("the run continued without a trace: {}", clean(why))),
            None => Ok(trace),
        },
    }
}

/// The worst late releases over all traces, the worst first, with the number of their run.
pub fn worst(traced: &[Traced], most: usize) -> Vec<(usize, &Window)> {
    let mut all: Vec<(usize, &Window)> = Vec::new();
    for one in traced {
        let windows = one.trace.iter().flat_map(|trace| &trace.windows);
        all.extend(windows.filter(|window| window.length_ns() > 0.0).map(|window| (one.run, window)));
    }
    all.sort_by(|a, b| b.1.length_ns().total_cmp(&a.1.length_ns()));
    all.truncate(most);
    all
}

/// Words for a cause. A cause that a later version added is reported by its own name.
pub(crate) fn cause_title(cause: &str) -> String {
    let words = match cause {
        "timer_late" => "timer fired late",
        "interrupts_off" => "interrupts off, or a firmware gap",
        "softirq" => "software interrupt",
        "higher_priority" => "thread of higher or equal priority",
        "own_thread" => "own helper thread",
        "unpreemptible" => "non-preemptible thread in the kernel",
        "lock" => "lock held",
        "waited" => "waited for",
        "idle_exit" => "idle exit",
        "frequency" => "CPU frequency",
        "throttled" => "throttled: budget exhausted",
        "steal" => "hypervisor steal",
        "gap" => "gap (SMI or unreported steal)",
        "stopped" => "stopped by a signal",
        "previous_job" => "previous job still running",
        "execution" => "the job itself",
        "execution_or_firmware" => {
            "the job itself, or a gap (SMI or unreported steal): cannot be distinguished here"
        }
        "" => "not reported",
        other => return clean(&other.replace('_', " ")),
    };
    words.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn unknown_keys_are_skipped_and_missing_ones_are_missing() {
        let trace =
            parse(br#"{"task":"t","new":[1],"windows":[{"parts":[{"cause":"steal","ns":7,"x":{}}]}]}"#);
        let trace = trace.unwrap();
        assert_eq!(trace.task.as_deref(), Some("t"));
        assert_eq!((trace.releases, trace.thresholds), (None, Thresholds::default()));
        assert_eq!(trace.windows[0].parts[0].ns, Some(7.0));
        assert_eq!(trace.windows[0].length_ns(), 0.0);
    }

    #[test]
    fn damage_is_a_reason() {
        for bytes in [&b""[..], b"{", b"[]x", br#"{"releases":"many"}"#, br#"{"causes":{}}"#, b"\xff\xfe"] {
            assert!(parse(bytes).unwrap_err().starts_with("damaged"), "{bytes:?}");
        }
        let long = format!(r#"{{"notes":[{}"a"]}}"#, r#""a","#.repeat(MOST));
        assert!(parse(long.as_bytes()).unwrap_err().contains("2001 entries"));
        assert!(parse(&vec![b' '; (LONGEST + 1) as usize]).unwrap_err().contains("longer"));
    }

    #[test]
    fn a_run_that_went_on_untraced_says_why() {
        let reason = parse(br#"{"untraced":"no tracefs. Fix: mount it"}"#).unwrap_err();
        assert_eq!(reason, "the run continued without a trace: no tracefs. Fix: mount it");
    }

    proptest! {
        #[test]
        fn any_bytes_give_a_trace_or_a_reason(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse(&bytes);
        }
    }
}

//! `--otlp` of run, manage and watch: what is instructed to an OpenTelemetry collector.

use std::error::Error;
use std::time::Duration;

use takt_otlp::{Endpoint, Exporter, Options, Points, Record, Severity, Value};
use takt_stats::Verdict;

/// Time between two requests, unless OTEL_METRIC_EXPORT_INTERVAL says otherwise.
const INTERVAL: Duration = Duration::from_secs(5);

/// Time that a program at its end waits for its last messages to be sent.
const LAST: Duration = Duration::from_secs(5);

/// Lateness by cause.
pub const LATE: [&str; 3] =
    ["takt.late", "{release}", "Releases that were late or whose job ended late, by cause."];

/// A collector that is reported.
#[derive(Debug)]
pub struct Telemetry(Exporter);

/// Before anything is measured: an address that cannot be one is a mistake of whoever gave it.
pub fn check(url: Option<&String>) -> Result<Option<Endpoint>, takt_otlp::EndpointError> {
    url.map(|url| Endpoint::new(url, &Endpoint::environment())).transpose()
}

/// Starts to send what `source` fills in.
pub fn begin(
    endpoint: Option<Endpoint>,
    about: &[(&str, String)],
    source: impl FnMut(&mut Points) + Send + 'static,
) -> Result<Option<Telemetry>, Box<dyn Error>> {
    let Some(endpoint) = endpoint else { return Ok(None) };
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let mut labels = vec![("host".to_owned(), host)];
    // As points name it: `robot`.
    let short = about.iter().filter_map(|(name, value)| Some((name.strip_prefix("takt.")?, value)));
    labels.extend(short.map(|(name, value)| (name.to_owned(), value.clone())));
    let options = Options { endpoint, interval: interval()?, resource: resource(about)?, labels };
    Ok(Some(Telemetry(Exporter::start(options, source)?)))
}

fn interval() -> Result<Duration, String> {
    let name = "OTEL_METRIC_EXPORT_INTERVAL";
    let Ok(text) = std::env::var(name) else { return Ok(INTERVAL) };
    match text.trim().parse() {
        Ok(ms @ 100..=3_600_000) => Ok(Duration::from_millis(ms)),
        _ => Err(format!("{name}={text}: expected milliseconds, 100 to 3600000")),
    }
}

/// The reporting resource, named by OpenTelemetry's conventions, with the additions of its
/// variables.
fn resource(about: &[(&str, String)]) -> Result<Vec<(String, Value)>, String> {
    let uname = rustix::system::uname();
    let host = uname.nodename().to_string_lossy().into_owned();
    let service = std::env::var("OTEL_SERVICE_NAME").unwrap_or_else(|_| "takt".to_owned());
    let facts = [
        ("service.name", service),
        ("service.version", env!("CARGO_PKG_VERSION").to_owned()),
        ("service.instance.id", format!("{host}/{}", std::process::id())),
        ("host.name", host.clone()),
        ("os.type", "linux".to_owned()),
        ("os.version", uname.release().to_string_lossy().into_owned()),
    ];
    let mut all: Vec<(String, Value)> = Vec::new();
    let mut set = |name: &str, value: &str| {
        all.retain(|(known, _)| known != name);
        all.push((name.to_owned(), Value::from(value)));
    };
    facts.iter().chain(about).for_each(|(name, value)| set(name, value));
    let more = std::env::var("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default();
    for (name, value) in
        takt_otlp::pairs("OTEL_RESOURCE_ATTRIBUTES", &more).map_err(|error| error.to_string())?
    {
        set(&name, &value);
    }
    Ok(all)
}

impl Telemetry {
    /// Reports a verdict, with where its evidence lies.
    fn verdict(&self, verdict: Verdict, sentence: String, mut evidence: Vec<(String, Value)>) {
        let severity = match verdict {
            Verdict::Pass => Severity::Info,
            Verdict::Inconclusive => Severity::Warn,
            Verdict::Fail => Severity::Error,
        };
        evidence.push(("takt.verdict".to_owned(), Value::Text(verdict.to_string())));
        self.report("takt.verdict", severity, sentence, evidence);
    }

    fn report(&self, event: &str, severity: Severity, body: String, attributes: Vec<(String, Value)>) {
        self.0.log(Record { event: event.to_owned(), severity, body, attributes });
    }

    /// Sends what is left. Undelivered data is reported and changes nothing else.
    pub fn finish(self) {
        if let Some(trouble) = self.0.finish(LAST).trouble() {
            eprintln!("--otlp: {trouble}; the run is not affected");
        }
    }
}

/// One for the verdict that was reached: what counts robots by verdict adds them up.
fn fill_verdict(points: &mut Points, verdict: Verdict) {
    // A unit in braces is none; without any, VictoriaMetrics takes that of the metric before.
    let about = ["takt.verdict", "{verdict}", "1 for the verdict that was reached."];
    points.gauge(about, &[("verdict", &verdict.to_string())], 1.0);
}

/// The address of a place within a run: where a late window is to be looked at.
pub fn link(dir: &std::path::Path, what: &str) -> (String, Value) {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let dir = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
    ("url.full".to_owned(), Value::Text(format!("file://{host}{}{what}", dir.display())))
}

/// The cause as JSON spells it.
pub fn cause(cause: takt_trace::Cause) -> String {
    let value = serde_json::to_value(cause).ok();
    value.and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

pub mod of_run {
    //! A run of a robot.

    use std::sync::{Arc, Mutex, PoisonError};

    use takt_lab::{LiveMeasures, Ran};
    use takt_otlp::{Points, Value};
    use takt_stats::Verdict;
    use takt_trace::analysis::CauseRow;

    use super::{LATE, Telemetry, cause, link};

    /// Values that a run knows at its end.
    #[derive(Debug, Default)]
    pub struct AtEnd {
        /// Causes of late releases, of a run with a flight recorder.
        pub causes: Vec<CauseRow>,
        verdict: Option<Verdict>,
    }

    /// The same, for the thread that sends.
    pub type Known = Arc<Mutex<AtEnd>>;

    /// Metrics are named after what is measured; which of a robot's tasks it is about, an attribute
    /// says.
    fn metric(measure: &str) -> &'static str {
        let kinds = ["lateness", "response", "reaction", "latency"];
        let metrics = ["takt.lateness", "takt.response", "takt.reaction", "takt.latency"];
        kinds
            .iter()
            .zip(metrics)
            .find(|(kind, _)| measure.contains(*kind))
            .map_or("takt.time", |found| found.1)
    }

    /// Asked at each interval.
    pub fn fill(points: &mut Points, live: &LiveMeasures, known: &Known) {
        for one in live.read() {
            let labels = [("measure", one.name.as_str())];
            let about = "Times in the measured window, from a run's collector.";
            points.times([metric(&one.name), about], &labels, &one.values);
            let mut misses = |cause: &str, count: u64| {
                let about = ["takt.misses", "{job}", "Deadlines missed: late, or without a job."];
                points.sum(about, &[labels[0], ("cause", cause)], count);
            };
            if let Some(late) = one.late {
                misses("late", late);
                misses("never-ran", one.skipped);
            }
        }
        let known = known.lock().unwrap_or_else(PoisonError::into_inner);
        for row in &known.causes {
            let cause = cause(row.cause);
            points.sum(LATE, &[("cause", cause.as_str()), ("who", row.who.as_str())], row.count);
        }
        if let Some(verdict) = known.verdict {
            super::fill_verdict(points, verdict);
        }
    }

    /// The verdict, with the worst value of the measure that decided.
    pub fn conclude(telemetry: &Telemetry, ran: &Ran, live: &LiveMeasures, known: &Known) {
        let dir = ran.dir();
        live.complete(dir);
        known.lock().unwrap_or_else(PoisonError::into_inner).verdict = Some(ran.verdict());
        let mut evidence = vec![
            ("takt.run.directory".to_owned(), Value::Text(dir.path().display().to_string())),
            ("takt.run.hash".to_owned(), Value::Text(dir.seal_hash().unwrap_or_default())),
        ];
        let mut worst = None;
        for measure in dir.header().map(|header| header.measures).unwrap_or_default() {
            let Some(deadline_ns) = measure.deadline_ns else { continue };
            let Ok(series) = dir.series(&measure) else { continue };
            let most = series.times_ns.iter().zip(&series.values_ns).max_by_key(|(_, value)| **value);
            // Those of different measures are compared by how much of the deadline they took.
            if let Some((&at_ns, &value_ns)) = most {
                let share = value_ns as f64 / deadline_ns.max(1) as f64;
                if worst.as_ref().is_none_or(|(_, _, _, most)| share > *most) {
                    worst = Some((measure.name, at_ns, value_ns, share));
                }
            }
        }
        if let Some((measure, at_ns, value_ns, _)) = worst {
            let count = |value: u64| Value::Count(i64::try_from(value).unwrap_or(i64::MAX));
            let late = dir.path().join(takt_lab::trace::LATE_FILE);
            // A flight recorder has left a picture of it; else the samples report.
            evidence.push(match late.is_file() {
                true => link(&late, ""),
                false => link(dir.path(), &format!("#{measure}@{at_ns}")),
            });
            evidence.push(("takt.late.measure".to_owned(), Value::Text(measure)));
            evidence.push(("takt.late.at_ns".to_owned(), count(at_ns)));
            evidence.push(("takt.late.value_ns".to_owned(), count(value_ns)));
        }
        let sentence = ran.clone().into_summary().map(|summary| summary.sentence);
        let verdict = ran.verdict();
        telemetry.verdict(verdict, sentence.unwrap_or_else(|_| verdict.to_string()), evidence);
    }
}

pub mod of_watch {
    //! A watch of any program.

    use takt_otlp::{Points, Severity, Value};
    use takt_watch::{LoopReport, Report};

    use super::{LATE, Telemetry, cause, link};

    /// Asked at each interval.
    pub fn fill(points: &mut Points, report: &Report) {
        for thread in &report.threads {
            let tid = thread.tid.to_string();
            let labels = [
                ("thread", thread.name.as_str()),
                ("process", thread.process.as_str()),
                ("tid", tid.as_str()),
            ];
            if let Some([lateness, response]) = thread.histograms.as_deref() {
                points.times(["takt.lateness", "From the release to the CPU."], &labels, lateness);
                points.times(["takt.response", "From the release to the sleep after."], &labels, response);
            }
            points.sum(["takt.releases", "{release}", "Observed cycles."], &labels, thread.releases);
            points.sum(
                [
                    "takt.releases.missed",
                    "{release}",
                    "Releases that were due by the period but did not happen.",
                ],
                &labels,
                thread.missed,
            );
            let mut late = |cause: &str, count: u64| {
                let [thread, process, tid] = labels;
                points.sum(LATE, &[thread, process, tid, ("cause", cause)], count);
            };
            thread.causes.iter().for_each(|row| late(&cause(row.cause), row.count));
            if thread.unjudged > 0 {
                late("not-looked-at", thread.unjudged);
            }
        }
        points.sum(["takt.events.lost", "{event}", "Kernel events that were lost."], &[], report.lost_events);
    }

    /// Nobody has said what a watched program must keep, so there is no verdict. Late cycles are
    /// reported, with a pointer to their details.
    pub fn conclude(telemetry: &Telemetry, report: &Report) {
        let late: u64 = report.threads.iter().map(|thread| thread.late).sum();
        let releases: u64 = report.threads.iter().map(|thread| thread.releases).sum();
        let sentence = format!("{late} of {releases} cycles of {} were late", report.target);
        let mut evidence = Vec::new();
        let worst = |thread: &LoopReport| {
            let window = thread.windows.iter().max_by(|a, b| a.lateness_us.total_cmp(&b.lateness_us))?;
            Some((thread.name.clone(), window.clone()))
        };
        let worst = report.threads.iter().filter_map(worst);
        let worst = worst.max_by(|(_, a), (_, b)| a.lateness_us.total_cmp(&b.lateness_us));
        if let (Some((thread, window)), Some(dir)) = (worst, &report.run_dir) {
            evidence.push(link(dir, &format!("#{thread}@{}", window.planned_ns)));
            evidence.push(("takt.late.cause".to_owned(), Value::Text(cause(window.cause))));
            evidence.push(("takt.late.who".to_owned(), Value::Text(window.who)));
            evidence.push(("takt.late.us".to_owned(), Value::Number(window.lateness_us)));
        }
        let severity = if late == 0 { Severity::Info } else { Severity::Warn };
        telemetry.report("takt.watched", severity, sentence, evidence);
    }
}

#[cfg(feature = "ros")]
pub mod of_manager {
    //! The latency manager.

    use std::sync::{Arc, OnceLock};

    use takt_manager::live::Status;
    use takt_otlp::{Points, Value};

    use super::Telemetry;

    /// Values known at the end, for the sending thread.
    pub type AtEnd = Arc<OnceLock<Status>>;

    /// Asked once the manager has ended.
    pub fn fill_last(points: &mut Points, status: &Status) {
        fill(points, status);
        super::fill_verdict(points, status.verdict().verdict);
    }

    /// Asked at each interval: what the Prometheus page has.
    pub fn fill(points: &mut Points, status: &Status) {
        for chain in &status.chains {
            let labels = [("chain", chain.name.as_str())];
            let seconds = |ns: u64| ns as f64 / 1e9;
            let yes = |is: bool| f64::from(u8::from(is));
            let state = chain.state.as_str();
            points.gauge(["takt.chain.goal", "s", "Latency goal."], &labels, seconds(chain.goal_ns));
            if let Some(bound_ns) = chain.bound_ns {
                points.gauge(["takt.chain.bound", "s", "Bound on the latency."], &labels, seconds(bound_ns));
            }
            points.gauge(
                ["takt.chain.guaranteed", "{chain}", "Whether the bound meets the goal."],
                &labels,
                yes(state == "guaranteed"),
            );
            points.sum(
                ["takt.chain.violations", "{instance}", "Completions later than the goal."],
                &labels,
                chain.violations,
            );
            points.sum(
                ["takt.chain.dropped", "{instance}", "Instances that never completed."],
                &labels,
                chain.dropped,
            );
            if !chain.histogram.is_empty() {
                let at_most: Vec<(f64, u64)> =
                    chain.histogram.iter().map(|(bound_ns, count)| (seconds(*bound_ns), *count)).collect();
                let counted = chain.histogram.iter().map(|(_, count)| *count).max().unwrap_or(0);
                let count = counted.max(chain.completions);
                let sum = chain.mean_ns.unwrap_or(0.0) * count as f64 / 1e9;
                let name = ["takt.chain.latency", "Measured end-to-end latency."];
                points.times_at_most(name, &labels, &at_most, count, sum);
            }
        }
        for one in &status.reservations {
            let labels = [("thread", one.name.as_str()), ("cpus", one.cpus.as_str())];
            points.gauge(
                ["takt.reservation.bandwidth", "1", "Reserved share of a CPU."],
                &labels,
                one.bandwidth(),
            );
        }
        points.sum(["takt.plans", "{plan}", "Plans made."], &[], status.plans);
        points.gauge(
            ["takt.plan.holds", "{plan}", "Whether all reservations hold."],
            &[],
            f64::from(u8::from(status.holds)),
        );
        points.sum(["takt.events.lost", "{event}", "Events lost before they were read."], &[], status.lost);
    }

    /// The verdict on the whole time, with the chain that was farthest beyond its goal.
    pub fn conclude(telemetry: &Telemetry, status: &Status, at_end: &AtEnd) {
        // Asked for once only.
        let _ = at_end.set(status.clone());
        let report = status.verdict();
        let mut evidence = Vec::new();
        let beyond = |chain: &&takt_manager::live::ChainStatus| chain.worst_ns.saturating_sub(chain.goal_ns);
        if let Some(chain) = status.chains.iter().max_by_key(beyond).filter(|chain| beyond(chain) > 0) {
            evidence.push(("takt.chain".to_owned(), Value::from(chain.name.as_str())));
            evidence.push(("takt.late.value_ns".to_owned(), Value::Number(chain.worst_ns as f64)));
        }
        telemetry.verdict(report.verdict, report.reasons.join("; "), evidence);
    }
}

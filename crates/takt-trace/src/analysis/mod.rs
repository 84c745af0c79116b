//! Analysis of one thread in a trace: activation paths, and the cause of every late release.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use takt_rt::jobs::JobRecord;

use self::cause::{Bucket, Circumstances, FirmwareTime, main_cause, parts};
pub use self::cause::{Cause, Part};
pub use self::held::{held_up, woken_late};
pub use self::observed::{Slice, observed_jobs, observed_releases, timeline};
pub use self::overdue::stood_still_ns;
pub use self::path::{Activation, Handler, Path, Segment, Step, table};
use self::path::{Segments, sequence};
pub use self::steps::MissingStep;
use self::sweep::{Found, Hidden, Sweep, Swept};
use crate::error::TraceError;
use crate::event::{Clock, ClockMap, Trace};

mod cause;
mod cpu;
mod held;
mod observed;
mod overdue;
mod path;
mod steal;
mod steps;
mod sweep;
#[cfg(test)]
mod tests;

/// Thresholds of lateness.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Thresholds {
    /// A wake-up more than this after the release. 100 µs: an untuned kernel meets it most of the
    /// time, so that what is beyond has a reason worth naming.
    pub lateness_ns: u64,
    /// An end more than this after the release. None: the period, the deadline that a loop has by
    /// itself.
    pub response_ns: Option<u64>,
    /// Late releases reported one by one, the worst first: 20. All are in the table of causes.
    pub windows: usize,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self { lateness_ns: 100_000, response_ns: None, windows: 20 }
    }
}

/// A late release and its cause.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Late {
    /// Number of the release.
    pub index: u64,
    /// Planned release, CLOCK_MONOTONIC.
    pub planned_ns: u64,
    /// End of the job.
    pub end_ns: u64,
    /// Wake-up after the release.
    pub lateness_us: f64,
    /// End after the release.
    pub response_us: f64,
    /// The cause.
    pub cause: Cause,
    /// The thread, interrupt or lock holder to blame, where there is one.
    pub who: String,
    /// Share of the delay that this cause explains, 0 to 1: of the time beyond what a release
    /// usually takes.
    pub share: f64,
    /// The cause is that of an earlier release, whose backlog this one had to wait for.
    pub inherited: bool,
    /// Number of that release; null where nothing is inherited.
    #[serde(default)]
    pub backlog_of: Option<u64>,
    /// Releases after this one that never ran, because it had not.
    #[serde(default)]
    pub never_ran: u64,
    /// Parts of the lost time, greatest first.
    pub parts: Vec<Part>,
}

/// Reason why a release is not matched with its activation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unmatched {
    /// Events were lost meanwhile.
    EventsLost,
    /// No wake-up was seen, and the kernel left out what a thread did that had a CPU meanwhile.
    LeftOut,
    /// No wake-up was seen.
    NoWakeup,
    /// A wake-up was seen, and not all that belongs to it.
    StepMissing,
}

impl Unmatched {
    /// A few words for tables.
    pub fn title(self) -> &'static str {
        match self {
            Self::EventsLost => "events lost",
            Self::LeftOut => "woken while a thread ran whose events the kernel leaves out",
            Self::NoWakeup => "no wake-up seen",
            Self::StepMissing => "a step is missing",
        }
    }
}

/// A row of the table of causes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CauseRow {
    pub cause: Cause,
    /// Most frequent thread or device behind it; empty if there is none.
    pub who: String,
    /// Late releases.
    pub count: u64,
    /// Releases that never ran because of them; those of which the records report.
    #[serde(default)]
    pub never_ran: u64,
    /// The worst of them (lateness, or response where only that was late), in microseconds.
    pub worst_us: f64,
    /// Their sum.
    pub total_us: f64,
}

/// Report on one thread in a trace.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TraceReport {
    /// The thread's name.
    pub task: String,
    /// Its id.
    pub tid: i32,
    /// Of a thread that polls and has no releases: how often what it polls for came. Nothing is
    /// activated then, and what is late are these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub polled: Option<u64>,
    /// Releases that lie in the trace.
    pub releases: u64,
    /// Of these, how many have every step of their activation.
    pub matched: u64,
    /// The others by what is missing.
    #[serde(default)]
    pub unmatched: BTreeMap<Unmatched, u64>,
    /// Of those that lack a step: which.
    #[serde(default)]
    pub missing_steps: BTreeMap<MissingStep, u64>,
    /// CPUs that the tracer kept out of idle, because their idle time leaves no events: the figures
    /// hold for a machine that never goes idle there.
    #[serde(default)]
    pub kept_awake: Vec<u16>,
    /// Releases by how they were activated.
    pub activations: BTreeMap<String, u64>,
    /// Releases with so many context switches between interrupt and task.
    pub switches: BTreeMap<u32, u64>,
    /// The distribution of every segment, microseconds.
    pub segments_us: Vec<Segment>,
    /// The activation sequence of the paper's Table 6.
    pub sequence: Vec<Step>,
    /// Events lost in the whole trace.
    pub lost_events: u64,
    pub events: u64,
    /// Conversion of a recorded file's times to CLOCK_MONOTONIC; absent if they already use that
    /// clock, or one that the file does not relate to it (see the notes).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_map: Option<ClockMap>,
    /// The thresholds of lateness.
    pub thresholds: Thresholds,
    /// Late releases.
    pub late: u64,
    /// Causes of the late ones, the most frequent first.
    pub causes: Vec<CauseRow>,
    /// The worst late releases.
    pub windows: Vec<Late>,
    /// Notes for the reader about the trace.
    pub notes: Vec<String>,
}

impl TraceReport {
    /// The activation share that was fully matched, 0 to 1; None where there was nothing to match.
    pub fn matched_share(&self) -> Option<f64> {
        (self.releases > 0).then(|| self.matched as f64 / self.releases as f64)
    }

    /// Factor by which the job's code runs longer here than in `idle`, from the medians: the
    /// paper's dilation.
    pub fn dilation(&self, idle: &Self) -> Option<f64> {
        let median = |report: &Self| {
            let segment = report.segments_us.iter().find(|segment| segment.name == "execution_on_cpu")?;
            (segment.summary.median > 0.0).then_some(segment.summary.median)
        };
        Some(median(self)? / median(idle)?)
    }
}

/// Analyses `tid` with its job records, and the usual thresholds.
///
/// # Errors
/// [`TraceError::Clock`] where trace and records count different clocks.
pub fn analyse(trace: &Trace, tid: i32, jobs: &[JobRecord]) -> Result<TraceReport, TraceError> {
    analyse_with(trace, tid, jobs, &Thresholds::default())
}

/// As [`analyse`], with thresholds.
///
/// # Errors
/// [`TraceError::Clock`].
pub fn analyse_with(
    trace: &Trace,
    tid: i32,
    jobs: &[JobRecord],
    thresholds: &Thresholds,
) -> Result<TraceReport, TraceError> {
    if let Clock::Other(found) = &trace.clock {
        return Err(TraceError::Clock { found: found.clone() });
    }
    Ok(analyse_same_clock(trace, tid, jobs, thresholds))
}

/// Analyses `tid` by the jobs that the trace itself shows ([`observed_jobs`]), which are returned
/// too. They are of the trace's clock, whichever that is.
pub fn analyse_observed(trace: &Trace, tid: i32, thresholds: &Thresholds) -> (TraceReport, Vec<JobRecord>) {
    let jobs = observed_jobs(trace, tid);
    (analyse_same_clock(trace, tid, &jobs, thresholds), jobs)
}

fn analyse_same_clock(trace: &Trace, tid: i32, jobs: &[JobRecord], thresholds: &Thresholds) -> TraceReport {
    let mut jobs = jobs.to_vec();
    jobs.sort_by_key(|job| job.planned_ns);
    let period_ns = period_ns(&jobs);
    let response_ns = thresholds.response_ns.or(period_ns).unwrap_or(u64::MAX);
    // Time counts up to the job's end, or only up to its wake-up if the job made good for a late
    // one.
    let delayed_to = |job: &JobRecord| {
        if job.response_ns() > response_ns {
            Some(job.end_ns)
        } else {
            (job.lateness_ns() > thresholds.lateness_ns).then_some(job.wake_ns)
        }
    };
    let delayed: Vec<Option<u64>> = jobs.iter().map(delayed_to).collect();
    let Swept { mut found, hidden, gaps, shown } = Sweep::new(trace, tid).run(&jobs, &delayed);
    charge_backlog(&jobs, &delayed, &mut found);
    // The path begins where the timer was programmed, at the end of the job before.
    let recorded: Vec<bool> = jobs
        .iter()
        .enumerate()
        .map(|(index, job)| {
            let before_ns = index.checked_sub(1).map_or(job.planned_ns, |before| jobs[before].end_ns);
            trace.covers(before_ns.min(job.planned_ns), job.end_ns)
        })
        .collect();

    let mut report = TraceReport {
        task: trace.name(tid),
        tid,
        polled: None,
        releases: 0,
        matched: 0,
        unmatched: BTreeMap::new(),
        missing_steps: BTreeMap::new(),
        kept_awake: trace.kept_awake.clone(),
        activations: BTreeMap::new(),
        switches: BTreeMap::new(),
        segments_us: Vec::new(),
        sequence: Vec::new(),
        lost_events: trace.lost_events,
        events: trace.events.len() as u64,
        clock_map: trace.clock_map.clone(),
        thresholds: Thresholds { response_ns: Some(response_ns), ..*thresholds },
        late: 0,
        causes: Vec::new(),
        windows: Vec::new(),
        notes: trace.notes.clone(),
    };
    let mut segments = Segments::default();
    let mut paths = Vec::new();
    let mut own: Vec<u64> = Vec::new();
    let mut fault_own: Vec<u64> = Vec::new();
    let left_out = |index: usize| {
        let before_ns = index.checked_sub(1).map_or(0, |before| jobs[before].end_ns);
        let first = hidden.partition_point(|hidden| hidden.span.to_ns < before_ns);
        hidden[first..].iter().any(|hidden| hidden.span.from_ns <= jobs[index].wake_ns)
    };
    for (index, (job, found)) in jobs.iter().zip(&found).enumerate().filter(|(index, _)| recorded[*index]) {
        report.releases += 1;
        own.push(found.own_ns);
        fault_own.push(found.fault_own_ns);
        let step = found.path.as_ref().and_then(|path| shown.missing(path, trace));
        let missing = match &found.path {
            _ if found.lost => Some(Unmatched::EventsLost),
            None if left_out(index) => Some(Unmatched::LeftOut),
            None => Some(Unmatched::NoWakeup),
            Some(_) => step.map(|_| Unmatched::StepMissing),
        };
        let (Some(path), None) = (found.path, missing) else {
            *report.unmatched.entry(missing.unwrap_or(Unmatched::NoWakeup)).or_default() += 1;
            if let Some(step) = step.filter(|_| missing == Some(Unmatched::StepMissing)) {
                *report.missing_steps.entry(step).or_default() += 1;
            }
            continue;
        };
        report.matched += 1;
        let name = match path.activation {
            Activation::Timer => "timer",
            Activation::DeferredTimer => "deferred_timer",
            Activation::Event => "event",
            Activation::Awake => "awake",
        };
        *report.activations.entry(name.to_owned()).or_default() += 1;
        if path.activation != Activation::Awake {
            *report.switches.entry(path.switches).or_default() += 1;
        }
        segments.add(job, &path, found.own_ns);
        paths.push((*job, path));
    }
    report.notes.extend(about_kept_awake(&trace.kept_awake));
    report.notes.extend(about_hidden(trace, &hidden));
    let is_timed = |(_, path): &(JobRecord, Path)| path.expire_ns.is_some();
    report.notes.extend(shown.note().filter(|_| paths.iter().any(is_timed)));
    report.notes.extend(steal::quota(&gaps).filter(|_| trace.guest));
    report.sequence = sequence(trace, &report.task, &paths);
    report.segments_us = segments.finish();

    let usual_own_ns = median(&mut own).unwrap_or(0);
    let usual_fault_own_ns = median(&mut fault_own).unwrap_or(0);
    let pid = trace.threads.get(&tid).and_then(|thread| thread.pid);
    let same_process =
        |other: i32| pid.is_some() && trace.threads.get(&other).and_then(|thread| thread.pid) == pid;
    let mut rows = CauseTable::default();
    // The late release that a backlog began with; one that found nothing to wait for ends it.
    let mut backlog: Option<Late> = None;
    for (index, job) in jobs.iter().enumerate() {
        if index.checked_sub(1).is_none_or(|before| jobs[before].end_ns <= job.planned_ns) {
            backlog = None;
        }
        let (Some(delayed_to_ns), found) = (delayed[index], &found[index]) else { continue };
        let known = Circumstances {
            faults: found.faults,
            fault_own_ns: found.fault_own_ns,
            usual_fault_own_ns,
            // Up to the wake-up it has nothing to do.
            usual_own_ns: if delayed_to_ns == job.end_ns { usual_own_ns } else { 0 },
            migrations: found.migrations,
            frequency_changed: found.frequency_changed,
            firmware: FirmwareTime::between(trace, job.planned_ns, delayed_to_ns),
            interrupted: found
                .path
                .and_then(|path| trace.interrupted_by_wakeup(tid, path.cpu, path.waking_ns))
                .map_or_else(Vec::new, <[String]>::to_vec),
        };
        let parts = parts(&found.account, &known, &same_process, trace);
        let mut late = judge(job, found.lost, recorded[index], parts, backlog.as_ref());
        late.never_ran = never_ran(job, jobs.get(index + 1), period_ns);
        if !late.inherited {
            backlog = Some(late.clone());
        }
        rows.add(&late, thresholds.lateness_ns);
        report.late += 1;
        report.windows.push(late);
        if report.windows.len() / 2 > thresholds.windows.saturating_add(500) {
            keep_worst(&mut report.windows, thresholds.windows);
        }
    }
    report.causes = rows.rows();
    keep_worst(&mut report.windows, thresholds.windows);
    report
}

/// Charges the time that a late job waited behind the one before, as a whole: the pass over the
/// events charges each moment to one job, which is the one that was still running.
fn charge_backlog(jobs: &[JobRecord], delayed: &[Option<u64>], found: &mut [Found]) {
    for (index, pair) in jobs.windows(2).enumerate() {
        let [before, job] = pair else { continue };
        let Some(delayed_to_ns) = delayed[index + 1] else { continue };
        let behind_ns = before.end_ns.min(delayed_to_ns).saturating_sub(job.planned_ns);
        if behind_ns > 0 {
            found[index + 1].account.insert(Bucket::Previous, behind_ns);
        }
    }
}

/// Note for the reader about CPUs that do not go idle.
fn about_kept_awake(cpus: &[u16]) -> Option<String> {
    let list = cpus.iter().map(u16::to_string).collect::<Vec<_>>().join(", ");
    (!cpus.is_empty()).then(|| {
        format!(
            "MEASURED WITHOUT IDLE TIME on CPU {list}: this kernel records nothing there while it is idle, so the tracer kept it busy \
             with a thread below all others (SCHED_IDLE). Idle exits are not in the figures, and a sibling CPU is slower"
        )
    })
}

/// Threads named in a note at most.
const MAX_NAMED: usize = 5;

/// Note for the reader about threads whose events the kernel left out. A single one may be a swap
/// of two timestamps.
fn about_hidden(trace: &Trace, hidden: &[Hidden]) -> Option<String> {
    let mut times: BTreeMap<(i32, u16), u64> = BTreeMap::new();
    for one in hidden {
        // The idle threads of all CPUs have number 0.
        *times.entry((one.tid, if one.tid == 0 { one.cpu } else { 0 })).or_default() += 1;
    }
    let mut times: Vec<((i32, u16), u64)> = times.into_iter().filter(|entry| entry.1 > 1).collect();
    times.sort_by_key(|entry| std::cmp::Reverse(entry.1));
    let named: Vec<String> = times
        .iter()
        .take(MAX_NAMED)
        .map(|&((tid, cpu), times)| match tid {
            0 => format!("idle of CPU {cpu} ({times} times)"),
            _ => format!("{} ({times} times)", trace.name_and_id(tid)),
        })
        .collect();
    let more = times.len().saturating_sub(MAX_NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    (!named.is_empty()).then(|| {
        format!(
            "this kernel leaves out, uncounted, what happens while these threads have the CPU: {}{more}; whom they or their interrupts \
             wake has no recorded activation",
            named.join(", ")
        )
    })
}

/// Releases between a late job and the next that never ran. If windows of a run are left out, the
/// next known job need not be the one after it.
fn never_ran(job: &JobRecord, next: Option<&JobRecord>, period_ns: Option<u64>) -> u64 {
    let (Some(next), Some(period_ns)) = (next, period_ns) else { return 0 };
    let skipped = u64::from(next.skipped);
    let due_ns = job.planned_ns.saturating_add(period_ns.saturating_mul(skipped.saturating_add(1)));
    if due_ns.abs_diff(next.planned_ns) <= period_ns / 2 { skipped } else { 0 }
}

/// The release's cause from where its time went.
fn judge(job: &JobRecord, lost: bool, recorded: bool, parts: Vec<Part>, backlog: Option<&Late>) -> Late {
    let mut late = Late::of(job, Cause::Unknown, parts);
    if !recorded {
        late.cause = Cause::NotRecorded;
    } else if lost {
        late.cause = Cause::EventsLost;
    } else if let Some((cause, who, share)) = main_cause(&late.parts) {
        (late.cause, late.who, late.share) = (cause, who.to_owned(), share);
        if cause == Cause::PreviousJob
            && let Some(first) = backlog
            && !matches!(first.cause, Cause::NotRecorded | Cause::EventsLost)
        {
            late.cause = first.cause;
            late.who.clone_from(&first.who);
            late.inherited = true;
            late.backlog_of = Some(first.index);
        }
    }
    late
}

/// The worst first, and no more than `most`.
pub fn keep_worst(windows: &mut Vec<Late>, most: usize) {
    windows.sort_by(|a, b| b.response_us.max(b.lateness_us).total_cmp(&a.response_us.max(a.lateness_us)));
    windows.truncate(most);
}

impl Late {
    /// A late release with its cause; nobody is to blame yet.
    pub fn of(job: &JobRecord, cause: Cause, parts: Vec<Part>) -> Self {
        Self {
            index: job.index,
            planned_ns: job.planned_ns,
            end_ns: job.end_ns,
            lateness_us: job.lateness_ns() as f64 / 1e3,
            response_us: job.response_ns() as f64 / 1e3,
            cause,
            who: String::new(),
            share: 0.0,
            inherited: false,
            backlog_of: None,
            never_ran: 0,
            parts,
        }
    }

    /// Its lateness, microseconds: that of its wake-up if it exceeds `late_ns`, otherwise its
    /// response.
    pub fn late_us(&self, late_ns: u64) -> f64 {
        if self.lateness_us * 1e3 > late_ns as f64 { self.lateness_us } else { self.response_us }
    }
}

/// The table "cause, count, worst, total", with the names of whom each cause blames.
#[derive(Debug, Default)]
pub struct CauseTable(BTreeMap<Cause, (CauseRow, BTreeMap<String, u64>)>);

impl CauseTable {
    /// Takes a late release, of a task whose wake-ups count as late beyond `late_ns`.
    pub fn add(&mut self, late: &Late, late_ns: u64) {
        let us = late.late_us(late_ns);
        let (row, names) = self.0.entry(late.cause).or_insert_with(|| {
            let row = CauseRow {
                cause: late.cause,
                who: String::new(),
                count: 0,
                never_ran: 0,
                worst_us: 0.0,
                total_us: 0.0,
            };
            (row, BTreeMap::new())
        });
        row.count += 1;
        row.never_ran = row.never_ran.saturating_add(late.never_ran);
        row.worst_us = row.worst_us.max(us);
        row.total_us += us;
        // A watch of days meets ever new names.
        const MAX_NAMES: usize = 1024;
        let known = names.len() < MAX_NAMES || names.contains_key(&late.who);
        let who = if known { late.who.clone() } else { "others".to_owned() };
        *names.entry(who).or_default() += 1;
    }

    /// Its rows, the most frequent first, each with whom it blames most often.
    pub fn rows(&self) -> Vec<CauseRow> {
        let named = |(row, names): &(CauseRow, BTreeMap<String, u64>)| {
            // A late release whose culprit was not seen blames nobody.
            let named = names.iter().filter(|(name, _)| !name.is_empty());
            let who = named.max_by_key(|entry| entry.1).map_or(String::new(), |entry| entry.0.clone());
            CauseRow { who, ..row.clone() }
        };
        let mut rows: Vec<CauseRow> = self.0.values().map(named).collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.count));
        rows
    }
}

/// The usual distance of two releases.
fn period_ns(jobs: &[JobRecord]) -> Option<u64> {
    let mut distances: Vec<u64> =
        jobs.windows(2).map(|pair| pair[1].planned_ns - pair[0].planned_ns).filter(|&ns| ns > 0).collect();
    median(&mut distances)
}

fn median<T: Ord + Copy>(values: &mut [T]) -> Option<T> {
    let middle = values.len().checked_sub(1)? / 2;
    Some(*values.select_nth_unstable(middle).1)
}

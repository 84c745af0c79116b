//! Every late edge with its cause: the stamps of its way say where the time went, and a trace of
//! the kernel, where there is one, why.
//!
//! The loop polls: it has no releases, so that nothing says when it should have woken up. It has
//! the time from one poll to the next instead. If that is long, the loop itself was held up, and
//! the trace of its thread names by what: another thread, an interrupt, the hypervisor, the
//! firmware. If the polls went on and the level was not there, the link was late, and the trace of
//! the thread at its far end is asked.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use takt_lab::LabError;
use takt_rt::jobs::JobRecord;
use takt_rundir::RunDir;
use takt_trace::analysis::{CauseTable, Late, Part, keep_worst, stood_still_ns};
use takt_trace::event::Span;
use takt_trace::{Cause, Thresholds, Trace, TraceReport, held_up, woken_late};

use super::State;
use crate::config::Stamp;
use crate::{DaqConfig, EdgeRecord};

/// Its file in the run directory.
pub const LATE_EDGES_FILE: &str = "late-edges.json";
/// Key of `run.json` under which the threads are.
pub(super) const THREADS: &str = "late_edge_threads";
/// Late edges whose stamps are kept: the first, in each checkpoint.
const MAX_KEPT: usize = 500;
/// Of a run without a deadline: the latest so many.
const WORST: usize = 20;

/// Stamps of a late edge. CLOCK_MONOTONIC nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LateEdge {
    /// Number of the edge.
    pub index: u64,
    /// From when its latency counts.
    pub since_ns: u64,
    /// When it was written to the output.
    pub sent_ns: u64,
    /// When it was seen, or waiting for it ended.
    pub received_ns: u64,
    /// Its latency, by the clock of `pulse.clock`.
    pub latency_ns: u64,
    /// Execution time of the controller before it was written.
    pub controller_ns: u64,
    /// Longest time from one poll to the next, and when that began.
    pub stall_ns: u64,
    pub stall_from_ns: u64,
    /// Number of times that the link sent it again.
    pub resends: u32,
    /// False: it never came.
    pub arrived: bool,
}

/// The late edges of a run, as they come.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LateKept {
    /// Beyond this an edge is late: the deadline, or the threshold that ends the run. None: the
    /// latest edges are kept.
    pub limit_ns: Option<u64>,
    /// Number of late edges.
    pub count: u64,
    /// The first of them; without a limit the latest.
    pub edges: Vec<LateEdge>,
    stamped_at_write: bool,
}

impl LateKept {
    /// Of a run of `file`.
    pub(super) fn new(file: &DaqConfig) -> Self {
        Self {
            limit_ns: file.deadline_ns().or(file.stop.threshold_ns).filter(|limit_ns| *limit_ns > 0),
            stamped_at_write: file.pulse.stamp == Stamp::Write,
            ..Self::default()
        }
    }

    /// Takes an edge. Returns from when to when it was under way where it is late.
    pub(super) fn push(&mut self, index: u64, edge: &EdgeRecord) -> Option<[u64; 2]> {
        let is_late = !edge.arrived || self.limit_ns.is_none_or(|limit_ns| edge.latency_ns > limit_ns);
        let counted = is_late && (self.limit_ns.is_some() || !edge.arrived);
        self.count += u64::from(counted);
        if !is_late {
            return None;
        }
        // Under a clock that was set, the latency is none of this clock's.
        let since_ns = match self.stamped_at_write {
            true => edge.sent_ns,
            false => edge.received_ns.saturating_sub(edge.latency_ns).min(edge.sent_ns),
        };
        let kept = LateEdge {
            index,
            since_ns,
            sent_ns: edge.sent_ns,
            received_ns: edge.received_ns,
            latency_ns: edge.latency_ns,
            controller_ns: edge.controller_ns,
            stall_ns: edge.stall_ns,
            stall_from_ns: edge.stall_from_ns,
            resends: edge.resends,
            arrived: edge.arrived,
        };
        let window = Some([since_ns, edge.received_ns]);
        if self.limit_ns.is_some() {
            if self.edges.len() < MAX_KEPT {
                self.edges.push(kept);
            }
            return window;
        }
        if self.edges.len() < WORST {
            self.edges.push(kept);
            return window;
        }
        let least = self.edges.iter_mut().min_by_key(|edge| edge.latency_ns)?;
        if least.latency_ns >= kept.latency_ns {
            return None;
        }
        *least = kept;
        window
    }
}

/// Part of the path with a late edge's delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EdgePlace {
    /// The controller computed.
    Controller,
    /// The sleep between two edges ended late.
    Pause,
    /// From one poll to the next.
    BetweenPolls,
    /// The loop polled, and the level was not there.
    Link,
}

impl EdgePlace {
    fn title(self) -> &'static str {
        match self {
            Self::Controller => "in the controller",
            Self::Pause => "the sleep between two edges ended late",
            Self::BetweenPolls => "between two polls",
            Self::Link => "the loop polled all the time, but the level had not arrived",
        }
    }
}

impl LateEdge {
    /// Part of the path with most of the time, and its span.
    fn judge(&self, wait_ns: u64) -> (EdgePlace, Span) {
        let before_ns = self.sent_ns.saturating_sub(self.since_ns);
        let due_ns = self.since_ns.saturating_add(self.controller_ns).saturating_add(wait_ns);
        let pause_ns = self.sent_ns.saturating_sub(due_ns);
        let link_ns = self.received_ns.saturating_sub(self.sent_ns).saturating_sub(self.stall_ns);
        let span = |from_ns: u64, to_ns: u64| Span { from_ns, to_ns };
        let parts = [
            (
                self.stall_ns,
                EdgePlace::BetweenPolls,
                span(self.stall_from_ns, self.stall_from_ns + self.stall_ns),
            ),
            (link_ns, EdgePlace::Link, span(self.sent_ns, self.received_ns)),
            (pause_ns, EdgePlace::Pause, span(due_ns.min(self.sent_ns), self.sent_ns)),
            (self.controller_ns.min(before_ns), EdgePlace::Controller, span(self.since_ns, self.sent_ns)),
        ];
        let greatest = parts.into_iter().max_by_key(|part| part.0);
        greatest
            .map_or((EdgePlace::Link, span(self.sent_ns, self.received_ns)), |(_, place, span)| (place, span))
    }
}

/// A late edge with its cause.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExplainedEdge {
    #[serde(flatten)]
    pub stamps: LateEdge,
    /// Part with most of its time.
    pub place: EdgePlace,
    /// Its time there, microseconds.
    pub there_us: f64,
    /// Cause that delayed the thread which handled it, in the words of `takt trace`; null if it was
    /// not recorded, or was not a thread.
    pub cause: Option<Cause>,
    /// The thread, interrupt or lock holder to blame, where there is one.
    pub who: String,
    /// Share of that time which the cause explains, 0 to 1.
    pub share: f64,
    /// Parts of all that time, by the kernel's events, greatest first.
    pub parts: Vec<Part>,
    /// Whether something that was seen says why.
    pub explained: bool,
    /// All that in a sentence.
    pub why: String,
}

/// Edges that were late for the same cause.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LateEdgeCause {
    pub place: EdgePlace,
    pub cause: Option<Cause>,
    pub who: String,
    pub explained: bool,
    pub edges: u64,
    /// Latency of the worst of them, microseconds, and its sentence.
    pub worst_us: f64,
    pub why: String,
}

/// `late-edges.json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LateEdges {
    /// Beyond this an edge was late, microseconds; null where the latest edges stand for them.
    pub limit_us: Option<f64>,
    /// Late edges, those that never came among them.
    pub edges: u64,
    /// Of these and of the latest, those that nothing explains.
    pub unexplained: u64,
    /// Causes, the most frequent first.
    pub causes: Vec<LateEdgeCause>,
    /// The edges, one by one.
    pub each: Vec<ExplainedEdge>,
    /// Reason why the kernel's part is unknown, if it is.
    pub untraced: Option<String>,
}

/// Threads of the run in whose hands an edge is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Threads {
    pub acquisition: Option<i32>,
    /// The link's far end: an echo thread, or a plant's process. None: a board.
    pub far_end: Option<i32>,
    /// The pause that was asked for between two edges, nanoseconds.
    pub wait_ns: u64,
}

/// Judges the late edges of a run and writes [`LATE_EDGES_FILE`].
///
/// # Errors
/// [`LabError::Files`].
pub(super) fn explain(dir: &RunDir, trace: Result<&Trace, &str>) -> Result<LateEdges, LabError> {
    let kept = State::read(dir)?.map(|state| state.late).unwrap_or_default();
    let late = causes(&kept, &threads(dir)?, trace);
    dir.write_json(LATE_EDGES_FILE, &late)?;
    Ok(late)
}

fn threads(dir: &RunDir) -> Result<Threads, LabError> {
    let run: serde_json::Value = dir.read_json(takt_rundir::RUN_FILE)?;
    Ok(serde_json::from_value(run[THREADS].clone()).unwrap_or_default())
}

/// Report of `takt trace` for such a run: the causes of its late edges, in the form of late
/// releases.
///
/// # Errors
/// [`LabError::Files`].
pub(super) fn report(dir: &RunDir, trace: &Trace, edges: u64) -> Result<TraceReport, LabError> {
    let late: LateEdges = dir.read_json(LATE_EDGES_FILE)?;
    let tid = threads(dir)?.acquisition.unwrap_or(0);
    let limit_ns = late.limit_us.map_or(0, |us| (us * 1e3) as u64);
    let mut table = CauseTable::default();
    let mut windows = Vec::new();
    for edge in &late.each {
        let LateEdge { index, since_ns, received_ns, .. } = edge.stamps;
        let job = JobRecord {
            index,
            planned_ns: since_ns,
            wake_ns: since_ns,
            start_ns: since_ns,
            end_ns: received_ns,
            ..JobRecord::default()
        };
        let cause = edge.cause.unwrap_or(Cause::Unknown);
        let who = match (edge.place, edge.who.as_str()) {
            (EdgePlace::BetweenPolls, who) => who.to_owned(),
            (place, "") => place.title().to_owned(),
            (place, who) => format!("{who}, {}", place.title()),
        };
        let window = Late { who, share: edge.share, ..Late::of(&job, cause, edge.parts.clone()) };
        table.add(&window, u64::MAX);
        windows.push(window);
    }
    keep_worst(&mut windows, Thresholds::default().windows);
    let mut notes = trace.notes.clone();
    if late.limit_us.is_none() {
        notes.push(format!("no deadline: the {} latest edges are shown as the late ones", late.each.len()));
    }
    let more = late.edges.saturating_sub(late.each.len() as u64);
    if more > 0 {
        notes.push(format!("{more} more late edges: only the first {MAX_KEPT} are explained individually"));
    }
    Ok(TraceReport {
        task: trace.name(tid),
        tid,
        polled: Some(edges),
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
        thresholds: Thresholds {
            lateness_ns: limit_ns,
            response_ns: late.limit_us.map(|_| limit_ns),
            ..Thresholds::default()
        },
        late: late.each.len() as u64,
        causes: table.rows(),
        windows,
        notes,
    })
}

fn causes(kept: &LateKept, threads: &Threads, trace: Result<&Trace, &str>) -> LateEdges {
    let places: Vec<(EdgePlace, Span)> = kept.edges.iter().map(|edge| edge.judge(threads.wait_ns)).collect();
    let mut found: Vec<Option<Late>> = vec![None; places.len()];
    let mut untraced = trace.err().map(str::to_owned);
    if let Ok(trace) = trace
        && let Err(error) = ask_kernel(&places, &mut found, threads, trace)
    {
        untraced = Some(error.to_string());
    }
    let mut all: BTreeMap<(EdgePlace, Option<Cause>, String, bool), LateEdgeCause> = BTreeMap::new();
    let mut each = Vec::with_capacity(places.len());
    for ((stamps, (place, span)), late) in kept.edges.iter().zip(&places).zip(found) {
        let edge = explained(stamps, *place, *span, late, threads);
        let same = (edge.place, edge.cause, without_tid(&edge.who).to_owned(), edge.explained);
        let row = all.entry(same).or_insert_with(|| LateEdgeCause {
            place: edge.place,
            cause: edge.cause,
            who: String::new(),
            explained: edge.explained,
            edges: 0,
            worst_us: -1.0,
            why: String::new(),
        });
        row.edges += 1;
        let latency_us = stamps.latency_ns as f64 / 1e3;
        if latency_us > row.worst_us {
            (row.worst_us, row.who, row.why) = (latency_us, edge.who.clone(), edge.why.clone());
        }
        each.push(edge);
    }
    let mut causes: Vec<LateEdgeCause> = all.into_values().collect();
    causes.sort_by_key(|row| std::cmp::Reverse(row.edges));
    let more = kept.count.saturating_sub(each.len() as u64);
    let unexplained = each.iter().filter(|edge| !edge.explained).count() as u64 + more;
    let limit_us = kept.limit_ns.map(|ns| ns as f64 / 1e3);
    LateEdges { limit_us, edges: kept.count, unexplained, causes, each, untraced }
}

/// Threads of one name are one cause.
fn without_tid(who: &str) -> &str {
    who.split_once(" (tid ").map_or(who, |(name, _)| name)
}

/// Asks the trace about the threads in whose hands the edges were.
fn ask_kernel(
    places: &[(EdgePlace, Span)],
    found: &mut [Option<Late>],
    threads: &Threads,
    trace: &Trace,
) -> Result<(), takt_trace::TraceError> {
    for place in [EdgePlace::BetweenPolls, EdgePlace::Controller, EdgePlace::Pause, EdgePlace::Link] {
        let tid = if place == EdgePlace::Link { threads.far_end } else { threads.acquisition };
        let asked: Vec<usize> = (0..places.len()).filter(|&at| places[at].0 == place).collect();
        let Some(tid) = tid.filter(|_| !asked.is_empty()) else { continue };
        let spans: Vec<Span> = asked.iter().map(|&at| places[at].1).collect();
        // The end of a sleep is a release; the other spans are none.
        let late = if place == EdgePlace::Pause { woken_late } else { held_up }(trace, tid, &spans)?;
        for ((at, late), span) in asked.into_iter().zip(late).zip(&spans) {
            found[at] = late.map(|late| doubted(late, trace, tid, *span));
        }
    }
    Ok(())
}

/// A thread is charged with time in which its CPU did not run, where no counter says so: a timer of
/// that CPU was due, and its interrupt did not come.
fn doubted(mut late: Late, trace: &Trace, tid: i32, span: Span) -> Late {
    if !is_charge(late.cause) {
        return late;
    }
    let took_ns = span.to_ns.saturating_sub(span.from_ns);
    let stood_ns = stood_still_ns(trace, tid, span);
    if stood_ns > 0 && stood_ns >= took_ns - took_ns / 2 {
        late.cause = Cause::Gap;
        late.who = "timers of its CPU were due but did not fire: firmware, the hypervisor, or interrupts off"
            .to_owned();
        late.share = stood_ns as f64 / took_ns as f64;
    }
    late
}

/// Whether it says that the thread itself had the CPU.
fn is_charge(cause: Cause) -> bool {
    matches!(cause, Cause::Execution | Cause::ExecutionOrFirmware)
}

fn explained(
    stamps: &LateEdge,
    place: EdgePlace,
    span: Span,
    late: Option<Late>,
    threads: &Threads,
) -> ExplainedEdge {
    let there_us = span.to_ns.saturating_sub(span.from_ns) as f64 / 1e3;
    let (cause, who, share, parts) = match late {
        Some(late) => (Some(late.cause), late.who, late.share, late.parts),
        None => (None, String::new(), 0.0, Vec::new()),
    };
    let is_known = match cause {
        Some(Cause::Unknown | Cause::NotRecorded | Cause::EventsLost | Cause::ExecutionOrFirmware) => false,
        // Asleep until a level comes is the far end's normal state.
        Some(Cause::Waited) if place == EdgePlace::Link => false,
        Some(_) => share >= 0.5,
        None => false,
    };
    // A link that lost a level and sent it again says so itself, and a controller its time.
    let by_stamps = match place {
        EdgePlace::Link => stamps.resends > 0 && !is_known,
        EdgePlace::Controller => !is_known,
        EdgePlace::Pause | EdgePlace::BetweenPolls => false,
    };
    let by = if who.is_empty() { String::new() } else { format!(" ({who})") };
    let holder = match (place, threads.far_end) {
        (EdgePlace::Link, Some(_)) => "the thread at the far end",
        (EdgePlace::Link, None) => "the board",
        _ => "the loop",
    };
    let came = if stamps.arrived { "" } else { "; the edge never arrived" };
    let first = format!("{there_us:.0} us {}{came}", place.title());
    let why = match cause {
        Some(cause) if is_known => {
            format!("{first}; {:.0} % of them {holder} lost to {}{by}", 100.0 * share, cause.title())
        }
        _ if by_stamps && place == EdgePlace::Controller => {
            format!("{first}: its execution took {:.0} us", stamps.controller_ns as f64 / 1e3)
        }
        _ if by_stamps => {
            format!("{first}: the level was lost on the way and sent again {} times", stamps.resends)
        }
        Some(cause) => {
            let most =
                if share > 0.0 { format!("most of it, {:.0} %, was ", 100.0 * share) } else { String::new() };
            format!("{first}; the delay of {holder} is unexplained: {most}{}{by}", cause.title())
        }
        None if place == EdgePlace::Link && threads.far_end.is_none() => {
            format!("{first}; its far end is not a thread of this host, so the reason is unknown")
        }
        None => {
            format!("{first}; the delay of {holder} is unexplained: the kernel was not traced at that time")
        }
    };
    let explained = is_known || by_stamps;
    ExplainedEdge { stamps: *stamps, place, there_us, cause, who, share, parts, explained, why }
}

#[cfg(test)]
mod tests;

//! Findings, and who is to blame for each.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::{Deserialize, Serialize};

use super::Limits;
use super::app::{AppCycle, AppLog};
use super::ways::{FrameTimes, Frames, Traffic};
use crate::frame::command;

/// The period that is taken where a capture has no cyclic frames.
const PERIOD_NS: u64 = 1_000_000;
/// Frames sent so shortly before the end of a capture may still be under way.
const OPEN_NS: u64 = 20_000_000;

/// Who is to blame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Blame {
    /// The application sent late, or its thread woke up late.
    Application,
    /// The frame waited in the host's network stack, on its way out or for being taken.
    HostStack,
    /// It was slow or lost between the sightings at both ends: network card, driver, cable, switch.
    Wire,
    /// The devices were slow, lost it, or did not take part.
    Device,
    /// Beyond the master's interface; a capture at one end alone cannot separate the wire from the
    /// devices.
    WireOrDevice,
}

impl Blame {
    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Application => "application",
            Self::HostStack => "host stack",
            Self::Wire => "wire or NIC",
            Self::Device => "device",
            Self::WireOrDevice => "wire, NIC or device",
        }
    }
}

/// What a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The answer never came.
    Missing,
    /// The answer took long.
    Slow,
    /// The frame left after its time.
    SentLate,
    /// The answer was there, and was taken late or never.
    TakenLate,
    /// A working counter other than usual.
    Counter,
}

impl Kind {
    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Slow => "slow",
            Self::SentLate => "sent late",
            Self::TakenLate => "taken late",
            Self::Counter => "counter",
        }
    }
}

/// A datagram's working counter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Counter {
    /// The command's name.
    pub command: &'static str,
    /// Its address: logical, or station in the low and register in the high half.
    pub address: u32,
    /// In this frame's answer.
    pub got: u16,
    /// In most answers to such frames.
    pub usual: u16,
}

/// A frame that something happened to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// Number of its first sighting in the file, from 1, as Wireshark shows it; 0 for one that was
    /// never seen.
    pub frame: u64,
    /// Since the first frame of the capture, seconds.
    pub at_s: f64,
    /// What.
    pub kind: Kind,
    /// Who.
    pub blame: Blame,
    /// Round trip at the master's interface, microseconds; `None` where it never came back.
    pub round_trip_us: Option<f64>,
    /// How long it took, or came late, beyond what is usual, microseconds.
    pub excess_us: Option<f64>,
    /// Working counters of its last sighting.
    pub working_counters: Vec<Counter>,
    /// The evidence.
    pub why: String,
}

/// Least, middle and greatest of a time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// How many.
    pub n: usize,
    /// Least, microseconds.
    pub min_us: f64,
    /// Median, microseconds.
    pub median_us: f64,
    /// Exceeded by one in a hundred, microseconds.
    pub p99_us: f64,
    /// Greatest, microseconds.
    pub max_us: f64,
}

impl Spread {
    fn of(mut values: Vec<u64>) -> Option<Self> {
        values.sort_unstable();
        let at = |share: f64| values.get(((values.len() - 1) as f64 * share) as usize).map(|&ns| micros(ns));
        let (min_us, max_us) = (micros(*values.first()?), micros(*values.last()?));
        Some(Self { n: values.len(), min_us, median_us: at(0.5)?, p99_us: at(0.99)?, max_us })
    }
}

/// What a capture reports.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// Frames, each counted once however often it was seen.
    pub frames: usize,
    /// Those with process data.
    pub cyclic_frames: usize,
    /// From the first to the last sighting, seconds.
    pub length_s: f64,
    /// The master's period: the median time between cycles.
    pub period_us: Option<f64>,
    /// Round trips of cyclic frames.
    pub round_trip: Option<Spread>,
    /// From the master's interface to the segment.
    pub outward: Option<Spread>,
    /// In the segment.
    pub in_segment: Option<Spread>,
    /// From the segment to the master's interface.
    pub homeward: Option<Spread>,
    /// From handing a frame to the system to its sighting at the interface.
    pub host_send: Option<Spread>,
    /// Round trips beyond this are slow, microseconds.
    pub slow_limit_us: f64,
    /// Lateness beyond this is reported, microseconds.
    pub late_limit_us: f64,
    /// Findings of each kind.
    pub kinds: BTreeMap<Kind, u64>,
    /// Findings by who is to blame.
    pub blames: BTreeMap<Blame, u64>,
    /// Frames that were sent late because the answer before was late or missing; that one is the
    /// finding.
    pub held_up: u64,
    /// Answers that nobody waited for: doubled on the way, or sent before the capture began.
    pub unasked: u64,
    /// Cycles of the application's log that a frame was found for; `None` without a log.
    pub cycles_found: Option<usize>,
    /// What the capture cannot tell, and why.
    pub notes: Vec<String>,
    /// In the order of time.
    pub findings: Vec<Finding>,
}

fn micros(ns: u64) -> f64 {
    ns as f64 / 1e3
}

fn since(later: Option<u64>, earlier: Option<u64>) -> Option<u64> {
    Some(later?.saturating_sub(earlier?))
}

fn median(mut values: Vec<u64>) -> Option<u64> {
    values.sort_unstable();
    values.get(values.len().checked_sub(1)? / 2).copied()
}

/// The three parts of a way beyond the host, each with who is to blame for it.
type Part = (fn(&FrameTimes) -> Option<u64>, Blame, &'static str);
const PARTS: [Part; 3] = [
    (
        |way| since(way.at_segment_ns, way.sent_ns),
        Blame::Wire,
        "between the master's interface and the segment",
    ),
    (|way| since(way.from_segment_ns, way.at_segment_ns), Blame::Device, "in the segment"),
    (
        |way| since(way.returned_ns, way.from_segment_ns),
        Blame::Wire,
        "between the segment and the master's interface",
    ),
];

/// Judges all ways.
pub(super) fn judge(traffic: &Traffic, app: Option<&AppLog>, limits: &Limits) -> Report {
    let ways = traffic.ways();
    let first_ns = ways.first_ns;
    let cyclic = |way: &&FrameTimes| way.cyclic;
    // Several frames of one cycle go out together: a cycle begins where its first one does.
    let starts = cycle_starts(&ways);
    let period = median(starts.windows(2).map(|two| gap(&ways, two[0], two[1])).collect());
    let period_ns = period.unwrap_or(PERIOD_NS);
    let usual_trip_ns = median(ways.ways.iter().filter_map(FrameTimes::round_trip_ns).collect()).unwrap_or(0);
    // Of a bring-up alone no period is known: slow is what takes far longer there than most.
    let usual_limit_ns = if period.is_some() { 0 } else { 2 * usual_trip_ns };
    let slow_ns = limits.slow_ns.unwrap_or_else(|| (period_ns / 2).max(usual_limit_ns));
    let late_ns = limits.late_ns.unwrap_or(period_ns / 4);
    let spread = |part: &dyn Fn(&FrameTimes) -> Option<u64>| {
        Spread::of(ways.ways.iter().filter(cyclic).filter_map(part).collect())
    };
    let usual: Vec<Option<u64>> =
        PARTS.iter().map(|(part, ..)| median(ways.ways.iter().filter_map(part).collect())).collect();
    let cycles = app.map(|log| (log, found(log, &ways, &starts)));
    let mut judge = LateFrameJudge {
        traffic,
        usual_trip_ns,
        ways: &ways,
        usual,
        usual_counters: usual_counters(traffic, &ways),
        first_ns,
        slow_ns,
        late_ns,
        findings: Vec::new(),
        held_up: 0,
    };
    for way in &ways.ways {
        judge.trip(way);
    }
    let unseen = cycles.as_ref().map(|(log, found)| unseen(log, found, &ways)).unwrap_or_default();
    if let Some((log, _)) = &cycles {
        judge.never_left(log, &unseen);
    }
    judge.sends(&starts, period_ns, cycles.as_ref(), &unseen);
    if let Some((log, found)) = &cycles {
        judge.taken(log, found);
    }
    let LateFrameJudge { mut findings, held_up, .. } = judge;
    findings.sort_by(|a, b| a.at_s.total_cmp(&b.at_s).then(a.frame.cmp(&b.frame)).then(a.kind.cmp(&b.kind)));
    let (mut kinds, mut blames) = (BTreeMap::new(), BTreeMap::new());
    for finding in &findings {
        *kinds.entry(finding.kind).or_insert(0) += 1;
        *blames.entry(finding.blame).or_insert(0) += 1;
    }
    let is_missing = kinds.contains_key(&Kind::Missing);
    let host_send = cycles.as_ref().and_then(|(log, found)| {
        let delays = found.iter().map(|&(cycle, way)| host_send_ns(log, cycle, &ways.ways[way]));
        Spread::of(delays.flatten().collect())
    });
    Report {
        frames: ways.ways.len(),
        cyclic_frames: ways.ways.iter().filter(cyclic).count(),
        length_s: micros(ways.last_ns.saturating_sub(first_ns)) / 1e6,
        period_us: period.map(micros),
        round_trip: spread(&FrameTimes::round_trip_ns),
        outward: spread(&PARTS[0].0),
        in_segment: spread(&PARTS[1].0),
        homeward: spread(&PARTS[2].0),
        host_send,
        slow_limit_us: micros(slow_ns),
        late_limit_us: micros(late_ns),
        kinds,
        blames,
        held_up,
        unasked: ways.unasked,
        cycles_found: cycles.as_ref().map(|(_, found)| found.len()),
        notes: notes(&ways, cycles.as_ref().map(|(_, found)| found.len()), is_missing),
        findings,
    }
}

fn notes(ways: &Frames, cycles_found: Option<usize>, is_missing: bool) -> Vec<String> {
    let mut notes = Vec::new();
    if is_missing && !ways.has_segment {
        // Seen in captures of TwinCAT by Windows' drivers: neither frame nor answer of 25 indices
        // in a row, and no packet counted as lost.
        notes.push(
            "what the capture itself lost looks missing, too, and not every driver counts it; compare with the master's own \
             count of lost frames"
                .to_owned(),
        );
    }
    if ways.has_master && !ways.has_segment {
        notes.push(
            "captured at the master's host alone: what took long beyond its interface may be the network card, the wire or a \
             device; a capture at the devices' end, too (takt segment --capture, a tap at the first device) distinguishes them"
                .to_owned(),
        );
    }
    if !ways.has_master && ways.has_segment {
        notes.push(
            "captured at the segment alone: the way between master and segment is not in it".to_owned(),
        );
    }
    match cycles_found {
        None => notes.push(
            "without the application's own stamps (--run) a frame that waited in the host's stack looks as if it was sent late, and \
             one that was dropped there as if the application had left a cycle out"
                .to_owned(),
        ),
        Some(0) => notes.push(
            "no cycle of the application's log fits a frame: it is of another time, or of another clock".to_owned(),
        ),
        Some(_) => {}
    }
    notes
}

/// The first frame of each cycle: of those with process data, those that lead with what most lead
/// with.
fn cycle_starts(ways: &Frames) -> Vec<usize> {
    let seen = |way: &FrameTimes| way.cyclic && (way.sent_ns.is_some() || !ways.has_master);
    let Some(first) = ways.ways.iter().position(seen) else { return Vec::new() };
    // The same command at the same address: other datagrams of the frame may come and go.
    let mut leads: HashMap<u64, usize> = HashMap::new();
    for way in ways.ways[first..].iter().filter(|way| seen(way)) {
        *leads.entry(way.lead).or_default() += 1;
    }
    let lead = leads.into_iter().max_by_key(|&(lead, count)| (count, std::cmp::Reverse(lead)));
    let Some((lead, _)) = lead else { return Vec::new() };
    (first..ways.ways.len()).filter(|&at| seen(&ways.ways[at]) && ways.ways[at].lead == lead).collect()
}

fn gap(ways: &Frames, earlier: usize, later: usize) -> u64 {
    ways.ways[later].first_ns().saturating_sub(ways.ways[earlier].first_ns())
}

/// The usual working counters of each shape: those of most answers.
fn usual_counters(traffic: &Traffic, ways: &Frames) -> HashMap<u32, u32> {
    let mut counts: HashMap<u32, BTreeMap<u32, u64>> = HashMap::new();
    for way in ways.ways.iter().filter(|way| way.from_segment_ns.or(way.returned_ns).is_some()) {
        *counts.entry(way.shape).or_default().entry(way.counters).or_default() += 1;
    }
    let most = |counts: BTreeMap<u32, u64>| {
        // Of equally many the greater counters: more devices took part.
        counts
            .into_iter()
            .max_by_key(|&(counters, count)| (count, traffic.counters(counters).to_vec()))
            .map(|(counters, _)| counters)
    };
    counts.into_iter().filter_map(|(shape, counts)| Some((shape, most(counts)?))).collect()
}

/// Cycles of the log and the first frames of theirs.
fn found(log: &AppLog, ways: &Frames, starts: &[usize]) -> Vec<(AppCycle, usize)> {
    // Clocks are read, and stamps made, this far apart.
    const SLACK_NS: u64 = 20_000;
    let mut found = Vec::new();
    let mut at = 0;
    for (place, cycle) in log.cycles.iter().enumerate() {
        let from = log.in_capture(cycle.sent_ns).saturating_sub(SLACK_NS);
        let next = log.cycles.get(place + 1);
        let to = next.map_or(u64::MAX, |next| log.in_capture(next.sent_ns).saturating_sub(SLACK_NS));
        while starts.get(at).is_some_and(|&start| ways.ways[start].first_ns() < from) {
            at += 1;
        }
        let Some(&start) = starts.get(at) else { break };
        let sent = ways.ways[start].first_ns();
        // A log that begins before the capture has cycles without a frame; so has a frame that the
        // interface refused.
        if sent < to && sent - from < 1_000_000_000 {
            found.push((*cycle, start));
            at += 1;
        }
    }
    found
}

/// Cycles of the application whose frames no capture at its own interface has. Those before the
/// first and after the last that was found may have been sent while nobody captured.
fn unseen(log: &AppLog, found: &[(AppCycle, usize)], ways: &Frames) -> Vec<AppCycle> {
    let (Some(&(first, _)), Some(&(last, _)), true) = (found.first(), found.last(), ways.has_master) else {
        return Vec::new();
    };
    let seen: HashSet<u64> = found.iter().map(|(cycle, _)| cycle.sent_ns).collect();
    let between = log.cycles.iter().filter(|cycle| (first.sent_ns..last.sent_ns).contains(&cycle.sent_ns));
    between.filter(|cycle| !seen.contains(&cycle.sent_ns)).copied().collect()
}

fn host_send_ns(log: &AppLog, cycle: AppCycle, way: &FrameTimes) -> Option<u64> {
    Some(way.sent_ns?.saturating_sub(log.in_capture(cycle.sent_ns)))
}

/// Why a cycle began late, by the application's own stamps: the greatest of what they report.
fn own_words(before: Option<&AppCycle>, cycle: &AppCycle, late_ns: u64, period_ns: u64) -> String {
    let AppCycle { planned_ns, wake_ns, sent_ns, .. } = *cycle;
    let known = |later: u64, earlier: u64| if earlier > 0 { later.saturating_sub(earlier) } else { 0 };
    let put_off = known(planned_ns, before.map_or(0, |before| before.planned_ns)).saturating_sub(period_ns);
    let parts = [
        (known(wake_ns, planned_ns), "its thread woke", "after its time (scheduling: see takt trace)"),
        (known(sent_ns, wake_ns), "it was", "from its wake-up to sending"),
        (put_off, "it planned this cycle", "later than a period after the one before"),
    ];
    match parts.into_iter().max_by_key(|parts| parts.0).filter(|parts| parts.0 > late_ns / 2) {
        Some((ns, what, when)) => format!("{what} {:.0} µs {when}", micros(ns)),
        None => format!("it sent {:.0} µs late by its own stamps", micros(late_ns)),
    }
}

struct LateFrameJudge<'a> {
    traffic: &'a Traffic,
    ways: &'a Frames,
    usual: Vec<Option<u64>>,
    usual_trip_ns: u64,
    usual_counters: HashMap<u32, u32>,
    first_ns: u64,
    slow_ns: u64,
    late_ns: u64,
    findings: Vec<Finding>,
    held_up: u64,
}

impl LateFrameJudge<'_> {
    fn find(&mut self, way: &FrameTimes, kind: Kind, blame: Blame, excess_ns: Option<u64>, why: String) {
        let usual = self.usual_counters.get(&way.shape).copied().unwrap_or(way.counters);
        let usual = self.traffic.counters(usual);
        let answered = way.from_segment_ns.or(way.returned_ns).is_some();
        let working_counters = self
            .traffic
            .datagrams(way.shape, way.counters)
            .enumerate()
            .filter(|_| answered)
            .map(|(place, (command, address, got))| Counter {
                command: command::name(command),
                address,
                got,
                usual: usual.get(place).copied().unwrap_or(got),
            })
            .collect();
        self.findings.push(Finding {
            frame: way.number,
            at_s: micros(way.first_ns().saturating_sub(self.first_ns)) / 1e6,
            kind,
            blame,
            round_trip_us: way.round_trip_ns().map(micros),
            excess_us: excess_ns.map(micros),
            working_counters,
            why,
        });
    }

    /// A frame's round trip and its working counters.
    fn trip(&mut self, way: &FrameTimes) {
        match way.round_trip_ns() {
            Some(trip_ns) if trip_ns > self.slow_ns => self.slow(way, trip_ns),
            Some(_) => {}
            None if self.ways.last_ns.saturating_sub(way.first_ns()) < OPEN_NS => return,
            None => self.missing(way),
        }
        if way.from_segment_ns.or(way.returned_ns).is_none() {
            return;
        }
        // Requests of the bring-up ask who is there: there the answer is the counter. Process data
        // have a usual one.
        let usual = self.usual_counters.get(&way.shape).copied();
        if way.cyclic && usual.is_some_and(|usual| usual != way.counters) {
            let usual = self.traffic.counters(usual.unwrap_or_default()).to_vec();
            let parts: Vec<String> = self
                .traffic
                .datagrams(way.shape, way.counters)
                .zip(usual)
                .filter(|((_, _, got), usual)| got != usual)
                .map(|((command, address, got), usual)| {
                    format!("{} at {address:#x} counts {got}, usually {usual}", command::name(command))
                })
                .collect();
            let why = format!("{}: not every device took part as usual", parts.join("; "));
            self.find(way, Kind::Counter, Blame::Device, None, why);
        }
    }

    fn slow(&mut self, way: &FrameTimes, trip_ns: u64) {
        let excess_ns = trip_ns.saturating_sub(self.usual_trip_ns);
        let worst = PARTS
            .iter()
            .zip(&self.usual)
            .filter_map(|((part, blame, place), usual)| {
                let took = part(way)?;
                Some((took.saturating_sub(usual.unwrap_or(0)), took, *blame, *place))
            })
            .max_by_key(|part| part.0);
        let (blame, why) = match worst {
            Some((_, took, blame, place)) => {
                (blame, format!("{:.0} of {:.0} µs passed {place}", micros(took), micros(trip_ns)))
            }
            None => (
                Blame::WireOrDevice,
                format!("{:.0} µs from the master's interface and back to it", micros(trip_ns)),
            ),
        };
        self.find(way, Kind::Slow, blame, Some(excess_ns), why);
    }

    fn missing(&mut self, way: &FrameTimes) {
        let (blame, why) = match (way.sent_ns, way.at_segment_ns, way.from_segment_ns) {
            (Some(_), None, _) if self.ways.has_segment => {
                (Blame::Wire, "it left the master's host and never reached the segment")
            }
            (_, Some(_), None) => (Blame::Device, "it reached the segment, which never sent it back"),
            (_, _, Some(_)) if self.ways.has_master => {
                (Blame::Wire, "the segment sent it back, and it never reached the master's host")
            }
            (_, _, Some(_)) => return,
            _ => (Blame::WireOrDevice, "it left the master's host and never came back"),
        };
        self.find(way, Kind::Missing, blame, None, why.to_owned());
    }

    /// Frames that the application sent and that did not get as far as its own interface. Where the
    /// answer came, the capture has a hole.
    fn never_left(&mut self, log: &AppLog, unseen: &[AppCycle]) {
        let lost = unseen.iter().filter(|cycle| cycle.taken_ns == 0);
        self.findings.extend(lost.map(|cycle| Finding {
            frame: 0,
            at_s: micros(log.in_capture(cycle.sent_ns).saturating_sub(self.first_ns)) / 1e6,
            kind: Kind::Missing,
            blame: Blame::HostStack,
            round_trip_us: None,
            excess_us: None,
            working_counters: Vec::new(),
            why: "the application sent it, and it never left the host's interface: a queue dropped it, or the capture has a hole"
                .to_owned(),
        }));
    }

    /// Cycles that began after their time, counted from the cycle before: also from one of
    /// `unseen`.
    fn sends(
        &mut self,
        starts: &[usize],
        period_ns: u64,
        cycles: Option<&(&AppLog, Vec<(AppCycle, usize)>)>,
        unseen: &[AppCycle],
    ) {
        let cycle_of: HashMap<usize, AppCycle> =
            cycles.iter().flat_map(|(_, found)| found.iter().map(|&(cycle, way)| (way, cycle))).collect();
        for two in starts.windows(2) {
            let (before, way) = (self.ways.ways[two[0]], self.ways.ways[two[1]]);
            let app = cycles.and_then(|(log, _)| Some((*log, *cycle_of.get(&two[1])?)));
            let hidden = app.and_then(|(log, cycle)| {
                let last = unseen.partition_point(|other| other.sent_ns < cycle.sent_ns).checked_sub(1)?;
                let at_ns = log.in_capture(unseen[last].sent_ns);
                (at_ns > before.first_ns()).then_some((at_ns, unseen[last]))
            });
            let due = hidden.map_or(before.first_ns(), |(at_ns, _)| at_ns) + period_ns;
            let late_ns = way.first_ns().saturating_sub(due);
            let previous = hidden.map(|(_, cycle)| cycle).or_else(|| cycle_of.get(&two[0]).copied());
            let waited = app.and_then(|(log, cycle)| host_send_ns(log, cycle, &way)).unwrap_or(0);
            if waited > self.late_ns {
                let why = format!("{:.0} µs from the application's send to the interface", micros(waited));
                self.find(&way, Kind::SentLate, Blame::HostStack, Some(waited), why);
                continue;
            }
            if late_ns <= self.late_ns {
                continue;
            }
            // A master that waits for an answer cannot send in time when that is late.
            let answered = match (app, previous) {
                // Its own word counts: an answer may lie in the host for long.
                (Some((log, _)), Some(cycle)) if cycle.looked_ns == cycle.sent_ns => {
                    (cycle.taken_ns > 0).then(|| log.in_capture(cycle.taken_ns))
                }
                // A pipelined master waits for nothing.
                (Some(_), _) => Some(due),
                (None, _) => before.returned_ns.or(before.from_segment_ns),
            };
            if answered.is_none_or(|answered| answered > due) {
                self.held_up += 1;
                continue;
            }
            let why = match app {
                Some((_, cycle)) => own_words(previous.as_ref(), &cycle, late_ns, period_ns),
                None => format!(
                    "it left {:.0} µs late; the answer before had come after {:.0} µs, so that nothing on the bus held it up",
                    micros(late_ns),
                    micros(answered.unwrap_or(0).saturating_sub(before.first_ns()))
                ),
            };
            self.find(&way, Kind::SentLate, Blame::Application, Some(late_ns), why);
        }
    }

    /// Answers that were at the interface and reached the application late or never.
    fn taken(&mut self, log: &AppLog, found: &[(AppCycle, usize)]) {
        for (cycle, way) in found {
            let way = self.ways.ways[*way];
            let Some(returned_ns) = way.returned_ns else { continue };
            // Not before it was looked for.
            let there_ns = returned_ns.max(log.in_capture(cycle.looked_ns));
            if cycle.taken_ns > 0 {
                let waited = log.in_capture(cycle.taken_ns).saturating_sub(there_ns);
                if waited > self.late_ns {
                    let why = format!(
                        "the answer was at the interface {:.0} µs before the application had it",
                        micros(waited)
                    );
                    self.find(&way, Kind::TakenLate, Blame::HostStack, Some(waited), why);
                }
            } else if cycle.gave_up_ns > 0 {
                let waited = log.in_capture(cycle.gave_up_ns).saturating_sub(there_ns);
                if log.in_capture(cycle.gave_up_ns) > there_ns && waited > self.late_ns {
                    let why = format!(
                        "the answer was at the interface {:.0} µs before the application gave up waiting, and never reached it",
                        micros(waited)
                    );
                    self.find(&way, Kind::TakenLate, Blame::HostStack, Some(waited), why);
                }
            }
        }
    }
}

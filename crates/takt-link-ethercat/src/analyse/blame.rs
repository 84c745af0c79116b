//! Findings, and who is to blame for each.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::Limits;
use super::app::{AppCycle, AppLog};
use super::intervals;
use super::notes::notes;
use super::report::{Blame, Counter, Finding, FindingKind, Report, Spread, micros};
use super::ways::{FrameTimes, Frames, Traffic};
use crate::frame::command;

/// The period that is taken where a capture has no cyclic frames.
const PERIOD_NS: u64 = 1_000_000;
/// Frames sent so shortly before the end of a capture may still be under way.
const OPEN_NS: u64 = 20_000_000;

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
    let comparable = |two: &&[usize]| ways.ways[two[0]].steps == ways.ways[two[1]].steps;
    let gaps: Vec<u64> = starts.windows(2).filter(comparable).map(|two| gap(&ways, two[0], two[1])).collect();
    let intervals = intervals::judge(&gaps, limits.period_ns);
    let period_ns = intervals.as_ref().map(|judged| judged.period_ns).or(limits.period_ns);
    let is_cyclic = period_ns.is_some();
    let period_ns = period_ns.unwrap_or(PERIOD_NS);
    let usual_trip_ns = median(ways.ways.iter().filter_map(FrameTimes::round_trip_ns).collect()).unwrap_or(0);
    // Of a bring-up alone no period is known: slow is what takes far longer there than most.
    let usual_limit_ns = if is_cyclic { 0 } else { 2 * usual_trip_ns };
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
    // By a period that nobody knows every second frame of a pair would be late.
    if limits.period_ns.is_some() || intervals.as_ref().is_some_and(|judged| judged.facts.has_due_times) {
        judge.sends(&starts, period_ns, cycles.as_ref(), &unseen);
    }
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
    let is_missing = kinds.contains_key(&FindingKind::Missing);
    let host_send = cycles.as_ref().and_then(|(log, found)| {
        let delays = found.iter().map(|&(cycle, way)| host_send_ns(log, cycle, &ways.ways[way]));
        Spread::of(delays.flatten().collect())
    });
    Report {
        frames: ways.ways.len(),
        cyclic_frames: ways.ways.iter().filter(cyclic).count(),
        length_s: micros(ways.last_ns.saturating_sub(first_ns)) / 1e6,
        period_us: intervals.as_ref().map(|judged| judged.mean_ns / 1e3),
        judged_period_us: micros(period_ns),
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
        notes: notes(&ways, cycles.as_ref().map(|(_, found)| found.len()), is_missing, &intervals, limits),
        send_interval_us: intervals.map(|judged| judged.facts),
        probe_ports: if ways.is_probed { traffic.ports() } else { Vec::new() },
        unstamped: ways.unstamped,
        findings,
    }
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

pub(super) fn host_send_ns(log: &AppLog, cycle: AppCycle, way: &FrameTimes) -> Option<u64> {
    Some(way.sent_ns?.saturating_sub(log.in_capture(cycle.sent_ns)))
}

pub(super) struct LateFrameJudge<'a> {
    traffic: &'a Traffic,
    pub(super) ways: &'a Frames,
    usual: Vec<Option<u64>>,
    usual_trip_ns: u64,
    usual_counters: HashMap<u32, u32>,
    first_ns: u64,
    slow_ns: u64,
    pub(super) late_ns: u64,
    findings: Vec<Finding>,
    pub(super) held_up: u64,
}

impl LateFrameJudge<'_> {
    pub(super) fn find(
        &mut self,
        way: &FrameTimes,
        kind: FindingKind,
        blame: Blame,
        excess_ns: Option<u64>,
        why: String,
    ) {
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
        if way.damaged {
            let why = "the probe saw a receive error: the frame was damaged before it and is dropped by its receiver";
            self.find(way, FindingKind::Damaged, Blame::Wire, None, why.to_owned());
        }
        match way.round_trip_ns() {
            Some(trip_ns) if trip_ns > self.slow_ns => self.slow(way, trip_ns),
            Some(_) => {}
            None if way.is_answer_unjudged => return,
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
            self.find(way, FindingKind::Counter, Blame::Device, None, why);
        }
    }

    fn slow(&mut self, way: &FrameTimes, trip_ns: u64) {
        let excess_ns = trip_ns.saturating_sub(self.usual_trip_ns);
        let [outward, homeward] = self.ways.devices_between;
        let worst = PARTS
            .iter()
            .zip(&self.usual)
            .zip([outward, true, homeward])
            .filter_map(|(((part, blame, place), usual), devices)| {
                let took = part(way)?;
                let blame = if devices { Blame::Device } else { *blame };
                Some((took.saturating_sub(usual.unwrap_or(0)), took, blame, *place))
            })
            .max_by_key(|part| part.0);
        let (blame, why) = match worst {
            Some((_, took, blame, _)) if self.ways.is_probed && !self.ways.has_master => {
                let took = micros(took);
                (blame, format!("{took:.0} µs from passing the probe until its return to it"))
            }
            Some((_, took, blame, place)) => {
                (blame, format!("{:.0} of {:.0} µs passed {place}", micros(took), micros(trip_ns)))
            }
            None => (
                Blame::WireOrDevice,
                format!("{:.0} µs from the master's interface and back to it", micros(trip_ns)),
            ),
        };
        self.find(way, FindingKind::Slow, blame, Some(excess_ns), why);
    }

    fn missing(&mut self, way: &FrameTimes) {
        let [outward, homeward] =
            self.ways.devices_between.map(|devices| if devices { Blame::Device } else { Blame::Wire });
        let (blame, why) = match (way.sent_ns, way.at_segment_ns, way.from_segment_ns) {
            (Some(_), None, _) if self.ways.has_segment && self.ways.is_probed => {
                (outward, "it passed the probe's first channel but never reached its second one")
            }
            (_, Some(_), None) if self.ways.is_probed => (
                Blame::Device,
                "it passed the probe but never returned: a device or a cable behind the probe lost it",
            ),
            (_, _, Some(_)) if self.ways.has_master && self.ways.is_probed => {
                (homeward, "it left the probe's second channel but never returned to its first one")
            }
            (Some(_), None, _) if self.ways.has_segment => {
                (Blame::Wire, "it left the master's host but never reached the segment")
            }
            (_, Some(_), None) => (Blame::Device, "it reached the segment, which never sent it back"),
            (_, _, Some(_)) if self.ways.has_master => {
                (Blame::Wire, "the segment sent it back, but it never reached the master's host")
            }
            (_, _, Some(_)) => return,
            _ => (Blame::WireOrDevice, "it left the master's host but never returned"),
        };
        self.find(way, FindingKind::Missing, blame, None, why.to_owned());
    }

    /// Frames that the application sent and that did not get as far as its own interface. If its
    /// answer arrived, the capture has a gap.
    fn never_left(&mut self, log: &AppLog, unseen: &[AppCycle]) {
        let lost = unseen.iter().filter(|cycle| cycle.taken_ns == 0);
        self.findings.extend(lost.map(|cycle| Finding {
            frame: 0,
            at_s: micros(log.in_capture(cycle.sent_ns).saturating_sub(self.first_ns)) / 1e6,
            kind: FindingKind::Missing,
            blame: Blame::HostStack,
            round_trip_us: None,
            excess_us: None,
            working_counters: Vec::new(),
            why: "the application sent it, but it never left the host's interface: a queue dropped it, or the capture has a gap"
                .to_owned(),
        }));
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
                        "the answer reached the interface {:.0} µs before the application received it",
                        micros(waited)
                    );
                    self.find(&way, FindingKind::TakenLate, Blame::HostStack, Some(waited), why);
                }
            } else if cycle.gave_up_ns > 0 {
                let waited = log.in_capture(cycle.gave_up_ns).saturating_sub(there_ns);
                if log.in_capture(cycle.gave_up_ns) > there_ns && waited > self.late_ns {
                    let why = format!(
                        "the answer reached the interface {:.0} µs before the application stopped waiting, but never reached the application",
                        micros(waited)
                    );
                    self.find(&way, FindingKind::TakenLate, Blame::HostStack, Some(waited), why);
                }
            }
        }
    }
}

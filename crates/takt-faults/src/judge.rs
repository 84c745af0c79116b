//! The judge: the controller's log, what was planted when, and nothing else.

use crate::case::{After, Case, Stop};
use crate::cell::{RAMP_MS, WATCHDOG_MS};
use crate::log::Row;
use crate::report::Violation;

const NS_PER_MS: u64 = 1_000_000;
const CYCLE_NS: u64 = 2 * NS_PER_MS;

/// One SSM period, one packet period, and one controller cycle each way.
const PATH_NS: u64 = 2 * NS_PER_MS + 3 * CYCLE_NS;

/// The arm's ramp, and what a pause adds to a slider on its way.
const STANDS_AFTER_NS: u64 = (RAMP_MS + 50) * NS_PER_MS;

/// Time for which a robot may move without a new heartbeat: the watchdog's limit, and the time in
/// which the cell must notice that its heartbeat is not echoed (a heartbeat that is written but
/// never changes does not trip the controller's watchdog).
const WATCHED_NS: u64 = (WATCHDOG_MS + 50) * NS_PER_MS + PATH_NS;

/// Time in which the cell's outputs must follow its command: values that are sent together arrive
/// together.
const LIGHT_NS: u64 = 10 * NS_PER_MS;

/// A stop without a fault is excused when this much was taken from the cell shortly before: half of
/// the shortest limit.
const EXCUSE_NS: u64 = 15 * NS_PER_MS;
const SHORTLY_NS: u64 = 250 * NS_PER_MS;

/// When what happened; CLOCK_MONOTONIC nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// From when the fault could be known.
    pub known_ns: u64,
    /// Until when it certainly lasted.
    pub ended_ns: u64,
    /// When the cell was instructed to end, or had ended.
    pub quit_ns: u64,
}

/// Findings of the judge.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Findings {
    /// From when it could be known to the command, nanoseconds.
    pub commanded_after_ns: Option<u64>,
    pub allowed_ns: Option<u64>,
    /// Of this, what was taken from the test.
    pub taken_ns: u64,
    /// From the end of the fault to motion.
    pub moved_after_ns: Option<u64>,
    /// Violations.
    pub violations: Vec<Violation>,
}

impl Findings {
    fn add(&mut self, rule: &'static str, evidence: String) {
        self.violations.push(Violation { rule, evidence });
    }
}

/// Colours of the light: standard outputs 0, 1 and 2.
const GREEN: u64 = 0b001;
const RED: u64 = 0b100;

fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

fn index_at(rows: &[Row], ns: u64) -> usize {
    rows.partition_point(|row| row.mono_ns < ns)
}

/// Judges a case. `taken_ns` shows what was taken from everybody between two times.
pub fn judge(case: &Case, rows: &[Row], times: &Times, taken_ns: &dyn Fn(u64, u64) -> u64) -> Findings {
    let mut findings = Findings::default();
    // Cycles that the controller itself missed are seen by nobody else; what took them from it took
    // them from the witness, too, so that they are not added.
    let taken = |from_ns: u64, to_ns: u64| {
        let missed = rows[index_at(rows, from_ns)..index_at(rows, to_ns + 1)].iter();
        taken_ns(from_ns, to_ns).max(missed.map(|row| row.steps.saturating_sub(1) * CYCLE_NS).sum::<u64>())
    };
    let planted = index_at(rows, times.known_ns);
    let ended = index_at(rows, times.ended_ns).max(planted);
    let quit = index_at(rows, times.quit_ns).max(ended);
    let fault = &rows[planted..ended];
    match case.stop {
        Stop::Within(limit_ms) => stops(&mut findings, fault, times, limit_ms * NS_PER_MS, &taken),
        Stop::Never => moves_on(&mut findings, fault, &taken),
        Stop::FromStart => {
            // A slider that stood at 1 takes its ramp; that the arm does not use this time is asked
            // nowhere.
            let free = rows[..quit].iter().find(|row| row.moves() && !row.commanded_to_stand());
            if let Some(row) = free.or_else(|| moves_though_stopped(&rows[..quit])) {
                findings.add("the robot never moves", format!("it does: {}", row.words()));
            }
        }
        Stop::Free => {}
    }
    let after = &rows[ended..quit];
    match case.after {
        After::Moves => moves_again(&mut findings, case, after, times),
        After::Stands => {
            let free = after.iter().find(|row| row.moves() && !row.commanded_to_stand());
            if let Some(row) = free.or_else(|| moves_though_stopped(after)) {
                let at = ms(row.mono_ns - times.ended_ns);
                findings.add(
                    "the robot stands afterwards",
                    format!("{at:.1} ms after the fault: {}", row.words()),
                );
            }
        }
        After::Free => {}
    }
    is_watched(&mut findings, rows, &taken);
    shows_red(&mut findings, &rows[..quit], &taken);
    findings
}

fn stops(
    findings: &mut Findings,
    fault: &[Row],
    times: &Times,
    limit_ns: u64,
    taken: &dyn Fn(u64, u64) -> u64,
) {
    let Some(at) = fault.iter().position(Row::commanded_to_stand) else {
        let most = fault.iter().map(|row| row.joint_speed_rad_s).fold(0.0, f64::max);
        let lasted = ms(times.ended_ns - times.known_ns);
        findings.add(
            "commanded to stand",
            format!("never in the {lasted:.0} ms that the fault lasted; joints at up to {most:.3} rad/s"),
        );
        return;
    };
    let commanded = &fault[at];
    // CPU time taken just before the fault delays its packet, too.
    let taken_ns = taken(times.known_ns.saturating_sub(5 * NS_PER_MS), commanded.mono_ns);
    let after_ns = commanded.mono_ns - times.known_ns;
    let allowed_ns = limit_ns + PATH_NS + taken_ns;
    findings.commanded_after_ns = Some(after_ns);
    findings.allowed_ns = Some(allowed_ns);
    findings.taken_ns = taken_ns;
    if after_ns > allowed_ns {
        findings.add(
            "commanded to stand in time",
            format!(
                "after {:.1} ms; allowed are {:.1}, of which {:.1} were taken from the test",
                ms(after_ns),
                ms(allowed_ns),
                ms(taken_ns)
            ),
        );
    }
    // Until the limit has passed, late packets of before may still say otherwise.
    let due_ns = commanded.mono_ns.max(times.known_ns + allowed_ns);
    let due = fault.iter().skip_while(|row| row.mono_ns <= due_ns);
    if let Some(row) = due.clone().find(|row| !row.commanded_to_stand()) {
        let back = ms(row.mono_ns - times.known_ns);
        let left = ms(times.ended_ns - row.mono_ns);
        findings.add(
            "the command stays while the fault lasts",
            format!(
                "withdrawn {back:.1} ms after the fault began and {left:.1} ms before it ended: {}",
                row.words()
            ),
        );
        return;
    }
    if let Some(row) = moves_though_stopped(fault) {
        let at = ms(row.mono_ns - commanded.mono_ns);
        findings.add(
            "the arm stands while the fault lasts",
            format!("{at:.1} ms after the command: {}", row.words()),
        );
    }
}

/// The first row in which the arm moves, though one of the ways to stop it has held for longer than
/// its ramp.
fn moves_though_stopped(rows: &[Row]) -> Option<&Row> {
    let mut since_ns = [None; 2];
    rows.iter().find(|row| {
        for (since_ns, holds) in since_ns.iter_mut().zip([row.slider == 0.0, !row.may_move()]) {
            *since_ns = if holds { since_ns.or(Some(row.mono_ns)) } else { None };
        }
        let longest_ns = since_ns.iter().flatten().map(|since_ns| row.mono_ns - since_ns).max();
        row.moves() && longest_ns.is_some_and(|held_ns| held_ns > STANDS_AFTER_NS)
    })
}

fn moves_on(findings: &mut Findings, fault: &[Row], taken: &dyn Fn(u64, u64) -> u64) {
    let begins = |index: usize| index == 0 || !fault[index - 1].commanded_to_stand();
    let stops = fault.iter().enumerate().filter(|(index, row)| row.commanded_to_stand() && begins(*index));
    let unexcused = stops
        .map(|(_, row)| row)
        .find(|row| taken(row.mono_ns.saturating_sub(SHORTLY_NS), row.mono_ns) < EXCUSE_NS);
    if let Some(row) = unexcused {
        findings.add("the robot moves on", format!("it was commanded to stand: {}", row.words()));
    }
    if !fault.iter().any(|row| row.moves()) {
        findings.add("the robot moves on", "it never moved".to_owned());
    }
}

fn moves_again(findings: &mut Findings, case: &Case, after: &[Row], times: &Times) {
    let stood = matches!(case.stop, Stop::Within(_));
    let free = after.iter().find(|row| !row.commanded_to_stand());
    // The fault ended at most one cycle and one packet later than it certainly lasted.
    let least_ns = (case.recovery_ms * NS_PER_MS).saturating_sub(2 * CYCLE_NS);
    if let Some(row) = free.filter(|_| stood) {
        let waited_ns = row.mono_ns - times.ended_ns;
        if waited_ns < least_ns {
            findings.add(
                "the recovery time passes first",
                format!("free after {:.1} ms of {:.0}: {}", ms(waited_ns), ms(least_ns), row.words()),
            );
        }
    }
    match after.iter().find(|row| !row.commanded_to_stand() && row.moves()) {
        Some(row) => findings.moved_after_ns = Some(row.mono_ns - times.ended_ns),
        None => {
            let last = after.last().map_or_else(String::new, Row::words);
            findings.add("the robot moves again", format!("it does not; last row: {last}"));
        }
    }
}

/// Whatever happens: a robot that moves is watched by somebody who is alive.
fn is_watched(findings: &mut Findings, rows: &[Row], taken: &dyn Fn(u64, u64) -> u64) {
    let Some(first) = rows.first() else { return };
    let (mut beat, mut since_ns) = (first.heartbeat, first.mono_ns);
    for row in rows {
        if row.heartbeat != beat {
            (beat, since_ns) = (row.heartbeat, row.mono_ns);
        }
        let silent_ns = row.mono_ns - since_ns;
        let bad = silent_ns > WATCHED_NS && row.moves() && !row.commanded_to_stand();
        if bad && silent_ns > WATCHED_NS + taken(since_ns, row.mono_ns) {
            let silent = ms(silent_ns);
            findings.add(
                "no motion without a heartbeat",
                format!("it moves {silent:.1} ms after the last one: {}", row.words()),
            );
            return;
        }
    }
}

/// Whatever happens: a stop that arrives comes with the red light, and not with the green one.
fn shows_red(findings: &mut Findings, rows: &[Row], taken: &dyn Fn(u64, u64) -> u64) {
    let mut since_ns = None;
    let (mut beat, mut beaten_ns) = (0, 0);
    for row in rows {
        if row.heartbeat != beat {
            (beat, beaten_ns) = (row.heartbeat, row.mono_ns);
        }
        let lit = row.digital_outputs & RED != 0 && row.digital_outputs & GREEN == 0;
        let arrives = beat != 0 && row.mono_ns - beaten_ns < LIGHT_NS;
        if row.slider != 0.0 || lit || !arrives {
            since_ns = None;
            continue;
        }
        let since = *since_ns.get_or_insert(row.mono_ns);
        if row.mono_ns - since > LIGHT_NS + taken(since, row.mono_ns) {
            findings.add(
                "a stop shows the red light",
                format!("not {:.1} ms after it: {}", ms(row.mono_ns - since), row.words()),
            );
            return;
        }
    }
}

/// A cell that ended in order leaves a stop behind, and the red light.
pub fn leaves_a_stop(rows: &[Row], findings: &mut Findings) {
    let Some(last) = rows.last() else { return };
    if last.slider != 0.0 || last.digital_outputs & RED == 0 || last.digital_outputs & GREEN != 0 {
        findings.add("an end in order leaves slider 0 and the red light", last.words());
    }
}

//! The judge against logs of robots that do what they must not.

#![allow(clippy::unwrap_used)]

use takt_faults::case::{After, Case, CaseKind, Plant, Stop};
use takt_faults::judge::{Findings, Times, judge, leaves_a_stop};
use takt_faults::log::Row;

const MS: u64 = 1_000_000;
const TIMES: Times = Times { known_ns: 1_000 * MS, ended_ns: 2_000 * MS, quit_ns: 4_000 * MS };

/// A robot that obeys: reported to stand at 1010 ms, ramps down, reported to move at 2400 ms.
fn obedient(ns: u64) -> Row {
    let stopped = (1_010 * MS..2_400 * MS).contains(&ns);
    let moves = !(1_270 * MS..2_404 * MS).contains(&ns);
    Row {
        mono_ns: ns,
        steps: 1,
        slider: f64::from(!stopped),
        joint_speed_rad_s: if moves { 0.4 } else { 0.0 },
        tcp_way_m: ns as f64 * 1e-9,
        digital_outputs: if stopped { 0b100 } else { 0b001 },
        heartbeat: (ns / (2 * MS)) as i32,
        runtime: 2,
        robot_mode: 7,
        safety_mode: 1,
        clients: 2,
        watchdog_trips: 0,
    }
}

fn rows(change: impl Fn(&mut Row)) -> Vec<Row> {
    let row = |cycle: u64| {
        let mut row = obedient(cycle * 2 * MS);
        change(&mut row);
        row
    };
    (0..2_000).map(row).collect()
}

fn case() -> Case {
    Case::new(CaseKind::Link, "x", Plant::Nothing).within_ms(10)
}

fn rules(case: &Case, rows: &[Row]) -> Vec<&'static str> {
    judge(case, rows, &TIMES, &|_, _| 0).violations.into_iter().map(|violation| violation.rule).collect()
}

/// Between two milliseconds.
fn between(row: &Row, from_ms: u64, to_ms: u64) -> bool {
    (from_ms * MS..to_ms * MS).contains(&row.mono_ns)
}

#[test]
fn an_obedient_robot_is_acquitted_with_its_times() {
    let findings = judge(&case(), &rows(|_| ()), &TIMES, &|_, _| 0);
    assert_eq!(findings.violations, []);
    assert_eq!(findings.commanded_after_ns, Some(10 * MS));
    // The limit, one SSM period, one packet period, two controller cycles.
    assert_eq!(findings.allowed_ns, Some(18 * MS));
    assert_eq!(findings.moved_after_ns, Some(404 * MS));
}

#[test]
fn a_robot_that_moves_on_is_seen() {
    let deaf = rows(|row| (row.slider, row.joint_speed_rad_s, row.digital_outputs) = (1.0, 0.4, 0b001));
    assert!(rules(&case(), &deaf).contains(&"commanded to stand"));
    // Reported to stand, but it does not.
    let disobedient = rows(|row| row.joint_speed_rad_s = 0.4);
    assert_eq!(rules(&case(), &disobedient), ["the arm stands while the fault lasts"]);
    // It creeps, even.
    let creeping = rows(|row| row.joint_speed_rad_s = row.joint_speed_rad_s.max(0.001));
    assert_eq!(rules(&case(), &creeping), ["the arm stands while the fault lasts"]);
}

#[test]
fn a_late_command_is_seen_unless_the_time_was_taken_from_everybody() {
    let late = rows(|row| {
        if between(row, 1_010, 1_030) {
            (row.slider, row.digital_outputs) = (1.0, 0b001);
        }
    });
    assert_eq!(rules(&case(), &late), ["commanded to stand in time"]);
    let taken = |from_ns: u64, to_ns: u64| if from_ns < to_ns { 15 * MS } else { 0 };
    let excused = judge(&case(), &late, &TIMES, &taken);
    assert_eq!(excused.violations, []);
    assert_eq!((excused.taken_ns, excused.allowed_ns), (15 * MS, Some(33 * MS)));
    // The controller's own missed cycles are nobody's fault either.
    let mut missed = late;
    missed[512].steps = 9;
    assert_eq!(rules(&case(), &missed), [] as [&str; 0]);
}

#[test]
fn a_command_that_is_withdrawn_is_seen() {
    let withdrawn = rows(|row| {
        if between(row, 1_600, 1_604) {
            (row.slider, row.digital_outputs) = (1.0, 0b001);
        }
    });
    assert_eq!(rules(&case(), &withdrawn), ["the command stays while the fault lasts"]);
    // A pause instead of the slider is a stop, too, and a mode in which the arm cannot move.
    for stop in [
        |row: &mut Row| row.runtime = 4,
        |row: &mut Row| row.safety_mode = 3,
        |row: &mut Row| row.robot_mode = 5,
    ] {
        let otherwise = rows(|row| {
            if between(row, 1_010, 2_400) {
                row.slider = 1.0;
                stop(row);
            }
        });
        assert_eq!(rules(&case(), &otherwise), [] as [&str; 0]);
    }
}

#[test]
fn recovery_too_early_or_never_is_seen() {
    let early = rows(|row| {
        if between(row, 2_100, 2_400) {
            (row.slider, row.joint_speed_rad_s, row.digital_outputs) = (1.0, 0.4, 0b001);
        }
    });
    assert_eq!(rules(&case(), &early), ["the recovery time passes first"]);
    let never = rows(|row| {
        if between(row, 2_000, 4_000) {
            (row.slider, row.joint_speed_rad_s, row.digital_outputs) = (0.0, 0.0, 0b100);
        }
    });
    assert_eq!(rules(&case(), &never), ["the robot moves again"]);
    let stands = case().expect(Stop::Within(10), After::Stands);
    assert_eq!(rules(&stands, &never), [] as [&str; 0]);
    assert_eq!(rules(&stands, &rows(|_| ())), ["the robot stands afterwards"]);
}

#[test]
fn motion_without_a_heartbeat_and_a_stop_without_the_red_light_are_seen() {
    let free = case().expect(Stop::Free, After::Free);
    let silent = rows(|row| {
        if between(row, 3_000, 3_400) {
            row.heartbeat = 1;
        }
    });
    assert_eq!(rules(&free, &silent), ["no motion without a heartbeat"]);
    let green = rows(|row| row.digital_outputs = 0b001);
    assert_eq!(rules(&free, &green), ["a stop shows the red light"]);
    let both = rows(|row| row.digital_outputs |= 0b101);
    assert_eq!(rules(&free, &both), ["a stop shows the red light"]);
}

#[test]
fn an_end_that_leaves_the_robot_free_is_seen() {
    let mut findings = Findings::default();
    leaves_a_stop(&rows(|_| ()), &mut findings);
    assert_eq!(findings.violations.len(), 1);
    let mut findings = Findings::default();
    leaves_a_stop(&rows(|_| ())[..1_000], &mut findings);
    assert_eq!(findings.violations, []);
}

#[test]
fn robots_that_must_move_on_or_never_are_judged_so() {
    let never = case().expect(Stop::Never, After::Free);
    assert_eq!(rules(&never, &rows(|_| ())), ["the robot moves on"]);
    let from_start = case().expect(Stop::FromStart, After::Free);
    assert_eq!(rules(&from_start, &rows(|_| ())), ["the robot never moves"]);
    let stands = rows(|row| (row.slider, row.joint_speed_rad_s, row.digital_outputs) = (0.0, 0.0, 0b100));
    assert_eq!(rules(&from_start, &stands), [] as [&str; 0]);
    // Nobody informed it to stand, and it stands: a blind test.
    let blind = rows(|row| (row.slider, row.joint_speed_rad_s, row.digital_outputs) = (1.0, 0.0, 0b001));
    assert_eq!(rules(&never, &blind), ["the robot moves on"]);
}

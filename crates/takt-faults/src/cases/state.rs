//! Faults in the controller's report on the robot: modes, clocks, invalid numbers.

use super::limits::CLOCK_MS;
use crate::case::{After, Case, CaseKind, Plant, Stop};
use crate::proxy::Direction::ToCell;
use crate::proxy::Disturbance::{Add, Freeze, Pace, Set};
use crate::proxy::{Disturbance, Value};

const CLOCK_WORDS: &[&str] = &["clock", "time", "stale", "old", "age", "backwards"];
const NUMBER_WORDS: &[&str] = &["not a number", "impossible", "finite"];

const IMPOSSIBLE_WORDS: &[&str] = &["impossible", "joints", "faster", "moves"];

/// Longer than the recovery time, so that a stop that is withdrawn while the fault lasts is seen.
const LONG_MS: u64 = 1200;

fn mode(name: impl AsRef<str>, variable: &'static str, value: f64) -> Case {
    let set = Set(ToCell, variable, Value::Number(value));
    Case::new(CaseKind::Mode, name, Plant::Wire(vec![set])).within_ms(0).hold_ms(500)
}

fn state(name: impl AsRef<str>, faults: Vec<Disturbance>) -> Case {
    Case::new(CaseKind::State, name, Plant::Wire(faults))
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = modes();
    cases.extend(clocks());
    cases.extend(numbers());
    cases
}

fn modes() -> Vec<Case> {
    let mut cases = Vec::new();
    for value in [-1, 0, 1, 2, 3, 4, 5, 6, 8, 99] {
        let name = format!("robot-mode-{value}");
        cases.push(mode(name, "robot_mode", f64::from(value)).named(&["robot is not running", "robot mode"]));
    }
    for value in [0, 3, 4, 5, 6, 7, 8, 9, 10, 11, 99] {
        let name = format!("safety-mode-{value}");
        cases.push(mode(name, "safety_mode", f64::from(value)).named(&["safety"]));
    }
    // Reduced is a mode in which the robot works.
    cases.push(mode("safety-mode-2", "safety_mode", 2.0).expect(Stop::Never, After::Moves));
    for value in [0, 1, 3, 4, 5, 99] {
        let name = format!("program-state-{value}");
        cases.push(mode(name, "runtime_state", f64::from(value)).named(&["program"]));
    }
    cases
}

fn clocks() -> Vec<Case> {
    let time = "timestamp";
    vec![
        state("clock-frozen", vec![Freeze(ToCell, time)])
            .within_ms(CLOCK_MS)
            .hold_ms(LONG_MS)
            .named(CLOCK_WORDS),
        state("clock-runs-backwards", vec![Pace(ToCell, time, -1.0)])
            .within_ms(CLOCK_MS)
            .hold_ms(LONG_MS)
            .named(CLOCK_WORDS),
        state("clock-at-half-pace", vec![Pace(ToCell, time, 0.5)])
            .within_ms(2 * CLOCK_MS)
            .hold_ms(LONG_MS)
            .named(CLOCK_WORDS),
        state("clock-at-twice-the-pace", vec![Pace(ToCell, time, 2.0)]).expect(Stop::Free, After::Moves),
        state("clock-jumps-back-10-s", vec![Add(ToCell, time, -10.0)]).expect(Stop::Free, After::Moves),
        state("clock-jumps-back-for-good", vec![Set(ToCell, time, Value::Number(0.0))])
            .within_ms(CLOCK_MS)
            .hold_ms(LONG_MS)
            .named(CLOCK_WORDS),
        state("clock-jumps-ahead-10-s", vec![Add(ToCell, time, 10.0)]).expect(Stop::Free, After::Moves),
        state("clock-is-no-number", vec![Set(ToCell, time, Value::Number(f64::NAN))])
            .within_ms(CLOCK_MS)
            .hold_ms(LONG_MS),
        state("clock-is-infinite", vec![Set(ToCell, time, Value::Number(f64::INFINITY))])
            .within_ms(CLOCK_MS)
            .hold_ms(LONG_MS),
    ]
}

fn numbers() -> Vec<Case> {
    let mut cases = Vec::new();
    for variable in ["actual_TCP_pose", "actual_TCP_speed", "actual_q", "target_speed_fraction"] {
        for (name, value) in
            [("no-number", f64::NAN), ("infinite", f64::INFINITY), ("minus-infinite", f64::NEG_INFINITY)]
        {
            let set = Set(ToCell, variable, Value::First(value));
            cases.push(
                state(format!("{variable}-is-{name}"), vec![set])
                    .within_ms(0)
                    .named(NUMBER_WORDS)
                    .hold_ms(500),
            );
        }
    }
    // Numbers that no robot has, in a cell in which nobody is near.
    for (name, variable, value) in [
        ("pose-50-m-from-the-base", "actual_TCP_pose", 50.0),
        ("pose-1e308-m-from-the-base", "actual_TCP_pose", 1e308),
        ("pose-3-m-from-the-base", "actual_TCP_pose", 3.0),
        ("tool-speed-of-1e308-m-s", "actual_TCP_speed", 1e308),
        ("joint-speed-of-1e6-rad-s", "actual_qd", 1e6),
        ("joint-angle-of-1e6-rad", "actual_q", 1e6),
    ] {
        let set = Set(ToCell, variable, Value::First(value));
        cases.push(state(name, vec![set]).within_ms(0).hold_ms(500).named(IMPOSSIBLE_WORDS));
    }
    // Within reach, but not where the joints of the same packet place it: at least 1.09 m from the
    // flange of the simulator's UR10e wherever it is in its mission. A UR20 would reach 1.8 m, so
    // the cell must know the arm; no known arm reaches 2.1 m.
    let elsewhere = |x_m| vec![Set(ToCell, "actual_TCP_pose", Value::First(x_m))];
    let not_there =
        |name: &str, x_m| state(name, elsewhere(x_m)).within_ms(0).hold_ms(500).named(&["joints"]);
    cases.push(not_there("pose-not-of-the-joints", 1.8).key("robot.shape", "model", "\"ur10e\"").key(
        "robot.shape",
        "kinematics",
        "\"nominal\"",
    ));
    cases.push(not_there("pose-not-of-the-joints-of-any-arm", 2.1));
    // Absurd, but numbers: what the cell makes of them is its own matter, as long as it stays safe.
    for (name, variable, value) in [
        ("pose-of-1e9-m", "actual_TCP_pose", 1e9),
        ("speed-of-1e9-m-s", "actual_TCP_speed", 1e9),
        ("angles-of-1e9", "actual_q", 1e9),
    ] {
        let set = Set(ToCell, variable, Value::Number(value));
        cases.push(state(name, vec![set]).expect(Stop::Free, After::Moves).hold_ms(500));
    }
    cases
}

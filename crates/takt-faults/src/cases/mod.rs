//! The cases. Every limit is a documented one: of the monitor's configuration, of the controller's
//! watchdog, or of the check that the fault must meet (see [`limits`]).

mod camera;
mod link;
mod machine;
mod state;

use crate::FaultError;
use crate::case::{After, Case, CaseKind, Plant, Spoil, Stop};
use crate::proxy::{Direction, Disturbance, Value, Which};

/// The documented limits that no configuration key of the test's cell sets.
pub mod limits {
    use crate::cell::{CAMERA_STALE_MS, ROBOT_STALE_MS, WATCHDOG_MS};

    /// The newest state is that old at most.
    pub(crate) const STATE_MS: u64 = ROBOT_STALE_MS;
    /// The newest frame is that old at most.
    pub(crate) const FRAME_MS: u64 = CAMERA_STALE_MS;
    /// The controller's own watchdog.
    pub(crate) const SILENCE_MS: u64 = WATCHDOG_MS;
    /// A command's echo comes back within `ssm.ack_after_ms`; after it the controller's watchdog
    /// needs its time, where only silence still reaches the robot.
    pub(crate) const ECHO_MS: u64 = 40;
    /// Disobedience of the robot (`ssm.ack_after_ms`, `protective.controller_time_s`,
    /// `protective.stopping_time_s`) is ended by silence or through the dashboard, within the
    /// watchdog's time.
    pub(crate) const DISOBEDIENCE_MS: u64 = ECHO_MS + 10 + 300 + WATCHDOG_MS;
    /// A controller's clock that stands, runs back or runs wrong shows in the age of the state: the
    /// state's own limit, and as much again for the filter that follows the clock.
    pub(crate) const CLOCK_MS: u64 = 2 * ROBOT_STALE_MS + 20;
    /// Content that does not change (`perception.health.frozen_after_ms`), and a frame's period
    /// until the next one shows it.
    pub(crate) const FROZEN_MS: u64 = 120 + 34;
    /// Additional time for faults in a frame's content, which are known with its judgement: half a
    /// frame's period more than the mark's took.
    pub(crate) const CONTENT_MS: u64 = 17;
}

/// All cases, in groups.
pub fn all() -> Vec<Case> {
    let mut all = controls();
    all.extend(link::cases());
    all.extend(state::cases());
    all.extend(camera::cases());
    all.extend(machine::cases());
    all
}

/// Those whose name contains `part`.
///
/// # Errors
/// None has.
pub fn named(part: &str) -> Result<Vec<Case>, FaultError> {
    let found: Vec<Case> = all().into_iter().filter(|case| case.name.contains(part)).collect();
    if found.is_empty() {
        return Err(FaultError::NoSuchCase { asked: part.to_owned() });
    }
    Ok(found)
}

/// Without a fault the robot moves and does not stop: a test that sees no motion would see no stop
/// either.
fn controls() -> Vec<Case> {
    let control = |name: &str, plant| {
        Case::new(CaseKind::Control, name, plant).expect(Stop::Never, After::Moves).hold_ms(1500)
    };
    vec![
        control("no-fault", Plant::Nothing),
        control("no-fault-through-the-proxy", Plant::Wire(Vec::new())),
        control("recording-without-fault", Plant::Recording(Spoil::Nothing, Vec::new())),
        // The opposite: what the judge would see if the cell stopped, it does see.
        Case::new(CaseKind::Control, "person-in-the-recording", Plant::Recording(Spoil::Person, Vec::new()))
            .within_ms(limits::CONTENT_MS)
            .is_near(),
    ]
}

/// Cases that must end in violations: what is planted cannot be known, or nothing is planted where
/// a stop is asked for. A test that finds nothing here would find nothing anywhere.
pub fn mutations() -> Vec<Case> {
    let command = |name| Disturbance::Set(Direction::ToRobot, name, Value::Number(1.0));
    let freeze = |name| Disturbance::Freeze(Direction::ToCell, name);
    let zero = |name| Disturbance::Set(Direction::ToCell, name, Value::Number(0.0));
    // A controller that is deaf and lies: full speed is commanded on the wire, and everything that
    // it says of the robot is what a robot would say that obeys.
    let liar = vec![
        Disturbance::Map(Direction::ToRobot, "speed_slider_fraction", 0.0, 1.0),
        command("speed_slider_mask"),
        zero("target_speed_fraction"),
        zero("actual_TCP_speed"),
        zero("actual_qd"),
        freeze("actual_q"),
        freeze("actual_TCP_pose"),
    ];
    let silent = |name: &str, plant| Case::new(CaseKind::Control, name, plant).within_ms(0);
    vec![
        silent("mutation-deaf-and-lying", Plant::Recording(Spoil::Person, liar)).hold_ms(1000),
        silent("mutation-no-fault-where-a-stop-is-asked", Plant::Nothing),
        silent(
            "mutation-stop-that-comes-too-late",
            Plant::Wire(vec![Disturbance::Drop(Direction::ToRobot, Which::Safety, 1)]),
        ),
        Case::new(
            CaseKind::Control,
            "mutation-fault-where-motion-is-asked",
            Plant::Wire(vec![Disturbance::Refuse]),
        )
        .expect(Stop::Never, After::Moves),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_a_hundred_cases_and_each_has_a_name_of_its_own() {
        let all = all();
        assert!(all.len() >= 100, "{}", all.len());
        let mut seen = std::collections::BTreeSet::new();
        let repeated: Vec<&str> =
            all.iter().map(|case| case.name.as_str()).filter(|name| !seen.insert(*name)).collect();
        assert_eq!(repeated, Vec::<&str>::new());
        for kind in CaseKind::ALL {
            assert!(all.iter().any(|case| case.kind == kind), "{kind:?}");
        }
    }

    #[test]
    fn a_name_that_no_case_has_is_refused_with_the_way_out() {
        let error = named("no-such-case").unwrap_err().to_string();
        assert!(error.contains("no-such-case") && error.contains("--list"), "{error}");
    }
}

//! Ranges of the cell's numbers. Beyond them a configuration switches the safety off or cannot be
//! meant; each bound has its reason here.

use takt_perception::{MountFrame, StaticBox, Volume};
use takt_rt::config::{SettingError, all_within, within};

use super::CellConfig;
use crate::error::CellConfigError;
use crate::ssm::REMEMBERED;

/// A camera farther away than this has nobody near the robot within the 65 m that 16-bit
/// millimetres hold.
const FARTHEST_MOUNT_M: f64 = 100.0;

/// No arm carries a camera farther from its tool: 80 that was meant to be 0.080 is refused.
const FARTHEST_ON_ARM_M: f64 = 2.0;

/// Age beyond which an input counts as missing, milliseconds. In a second a person walks 1.6 m,
/// more than any stop distance leaves.
const OLDEST_MS: f64 = 1000.0;

/// The robot's base stands on the floor or above it, metres: whoever is lower than the floor is not
/// seen.
const HIGHEST_FLOOR_M: f64 = 0.2;

/// Height above the base in which every arm has its first link, metres. No fixture is there, and
/// one that is configured there would hide everybody near the robot.
const SHOULDER_M: f32 = 0.1;

/// Largest distance in 16-bit millimetres, metres.
const FARTHEST_M: f64 = 65.6;

pub(super) fn validate(config: &CellConfig) -> Result<(), CellConfigError> {
    for camera in &config.cameras {
        // It stands in tables, on the page and in a line of at most 95 bytes about why the robot
        // stands.
        within("cameras.name (bytes)", camera.name.len() as f64, 1.0, 40.0)?;
        // Recordings and backgrounds are named after it: a path in it would lead out of their
        // folder.
        if camera.name.starts_with('.') || camera.name.contains(|c: char| c == '/' || c.is_control()) {
            let accepted = "accepted are names without `/` and control characters that do not begin with a dot, because files \
                            are named after cameras";
            return Err(SettingError::value("cameras.name", format!("{:?}", camera.name), accepted).into());
        }
        let prefix = format!("cameras ({}): ", camera.name);
        let place = |error: SettingError| error.within_section(&prefix);
        let farthest_m = match camera.mount.frame {
            MountFrame::Tcp => FARTHEST_ON_ARM_M,
            MountFrame::Base => FARTHEST_MOUNT_M,
        };
        for value in camera.mount.position_m {
            within("mount.position_m", value, -farthest_m, farthest_m).map_err(place)?;
        }
        let [.., height_m] = camera.mount.position_m;
        let floor_m = f64::from(config.perception.occupancy.floor_m);
        if camera.mount.frame == MountFrame::Base && height_m <= floor_m {
            let accepted =
                format!("accepted: a place above the floor, perception.occupancy.floor_m = {floor_m}");
            let error = SettingError::value("mount.position_m, height", height_m, accepted);
            return Err(place(error).into());
        }
        // A rotation vector has at most half a turn; a whole one is a matter of taste.
        for value in camera.mount.rotation_rad {
            within("mount.rotation_rad", value, -6.3, 6.3).map_err(place)?;
        }
        let source =
            |source| CellConfigError::Source { camera: camera.name.clone(), source: Box::new(source) };
        camera.source.validate().map_err(source)?;
    }
    volume(config)?;
    ssm(config)?;
    tasks(config)?;
    obedience(config)?;
    if config.tasks.strict && !(config.ssm.require_watchdog && config.ssm.require_program) {
        let keys = format!(
            "tasks.strict = true with ssm.require_watchdog = {}, ssm.require_program = {}",
            config.ssm.require_watchdog, config.ssm.require_program
        );
        let expected = "a strict run proves that a program with the watchdog is running; set both to true, or set tasks.strict = false";
        return Err(SettingError::conflict(keys, expected).into());
    }
    let robot = &config.robot;
    if let Some(simulator) = &robot.simulator {
        simulator.check().map_err(|error| error.within_section("robot.simulator: "))?;
    }
    if let Some(mission) = &robot.mission {
        mission.check().map_err(CellConfigError::Mission)?;
    }
    Ok(())
}

/// People come to the robot, so that the volume which is watched holds the robot's base, and
/// fixtures leave most of it.
fn volume(config: &CellConfig) -> Result<(), SettingError> {
    let Volume { min_m, max_m } = &config.perception.occupancy.volume;
    if !(0..2).all(|axis| min_m[axis] <= 0.0 && max_m[axis] >= 0.0) {
        let keys = format!("perception.occupancy.volume from {min_m} to {max_m}");
        return Err(SettingError::conflict(keys, "it must contain x = 0, y = 0, where the robot stands"));
    }
    let floor_m = f64::from(config.perception.occupancy.floor_m);
    if floor_m > HIGHEST_FLOOR_M {
        let accepted = format!(
            "accepted are heights up to {HIGHEST_FLOOR_M} above the robot's base, which stands on it"
        );
        return Err(SettingError::value("perception.occupancy.floor_m", floor_m, accepted));
    }
    let swallows = |fixture: &&StaticBox| {
        let holds = |axis: usize, at_m: f32| fixture.min_m[axis] <= at_m && at_m <= fixture.max_m[axis];
        holds(0, 0.0) && holds(1, 0.0) && holds(2, SHOULDER_M)
    };
    if let Some(fixture) = config.perception.occupancy.static_boxes.iter().find(swallows) {
        let keys = format!(
            "perception.occupancy.static_boxes, {:?} from {} to {}",
            fixture.name, fixture.min_m, fixture.max_m
        );
        let expected =
            format!("it must not contain x = 0, y = 0, z = {SHOULDER_M}, where the robot itself is");
        return Err(SettingError::conflict(keys, expected));
    }
    let size = |low: [f32; 3], high: [f32; 3]| -> f64 {
        (0..3).map(|axis| f64::from((high[axis] - low[axis]).max(0.0))).product()
    };
    let whole = size((*min_m).into(), (*max_m).into());
    let boxes = config.perception.occupancy.static_boxes.iter();
    let taken: f64 =
        boxes.map(|fixture| size(fixture.min_m.sup(min_m).into(), fixture.max_m.inf(max_m).into())).sum();
    if taken > 0.5 * whole {
        let share = 100.0 * taken / whole;
        return Err(SettingError::conflict(
            format!("perception.occupancy.static_boxes take {share:.0} % of perception.occupancy.volume"),
            "accepted are up to 50 %, because nobody is seen within them",
        ));
    }
    Ok(())
}

/// Commands are remembered for so many jobs: a stop that may take longer could not be distinguished
/// from disobedience.
fn obedience(config: &CellConfig) -> Result<(), SettingError> {
    let most_ms = 0.9 * REMEMBERED as f64 * config.tasks.ssm.period_ms;
    let needed_ms = config.ssm.obey_within_ms() + config.ssm.robot_state_age_ms;
    if needed_ms > most_ms {
        let period_ms = config.tasks.ssm.period_ms;
        return Err(SettingError::conflict(
            format!(
                "ssm.ack_after_ms, ssm.robot_state_age_ms, ssm.protective.controller_time_s and \
                 ssm.protective.stopping_time_s sum up to {needed_ms:.0} ms"
            ),
            format!("accepted are up to {most_ms:.0} ms at tasks.ssm.period_ms = {period_ms}"),
        ));
    }
    Ok(())
}

fn ssm(config: &CellConfig) -> Result<(), SettingError> {
    let ssm = &config.ssm;
    let p = &ssm.protective;
    all_within(
        "ssm.",
        &[
            // Less than a forearm from the tool is no distance to stop in.
            ("stop_below_m", ssm.stop_below_m, 0.2, FARTHEST_M),
            ("reduce_below_m", ssm.reduce_below_m, 0.2, FARTHEST_M),
            ("farthest_m", ssm.farthest_m, ssm.reduce_below_m, FARTHEST_M),
            // The fastest collaborative arms reach 5 m/s at the tool.
            ("full_speed_m_s", ssm.full_speed_m_s, 0.01, 5.0),
            ("slowdown_margin_m", ssm.slowdown_margin_m, 0.0, 10.0),
            ("hysteresis_m", ssm.hysteresis_m, 0.0, 10.0),
            // Longer than ten minutes nobody waits for a robot that is free to move.
            ("resume_after_s", ssm.resume_after_s, 0.0, 600.0),
            ("recover_after_s", ssm.recover_after_s, 0.0, 600.0),
            ("stale_after_ms", ssm.stale_after_ms, 1.0, OLDEST_MS),
            ("robot_stale_after_ms", ssm.robot_stale_after_ms, 1.0, OLDEST_MS),
            ("robot_state_age_ms", ssm.robot_state_age_ms, 1.0, OLDEST_MS),
            ("ack_after_ms", ssm.ack_after_ms, 1.0, OLDEST_MS),
            // Honest clocks of one machine differ by less than a frame.
            ("future_tolerance_ms", ssm.future_tolerance_ms, 0.0, 50.0),
            // From somebody who shuffles to somebody who sprints. ISO 13855 has 1.6 and 2.0.
            ("protective.human_speed_m_s", p.human_speed_m_s, 0.5, 10.0),
            ("protective.near_human_speed_m_s", p.near_human_speed_m_s, 0.0, 10.0),
            ("protective.near_m", p.near_m, 0.0, 10.0),
            ("protective.reaction_time_s", p.reaction_time_s.unwrap_or(0.0), 0.0, 2.0),
            ("protective.controller_time_s", p.controller_time_s, 0.0, 2.0),
            // No arm stands within a controller's cycle, and one that needs longer than 5 s is no
            // arm.
            ("protective.stopping_time_s", p.stopping_time_s, 0.002, 5.0),
            ("protective.intrusion_m", p.intrusion_m, 0.0, 2.0),
            ("protective.human_uncertainty_m", p.human_uncertainty_m, 0.0, 2.0),
            ("protective.robot_uncertainty_m", p.robot_uncertainty_m, 0.0, 2.0),
        ],
    )
}

fn tasks(config: &CellConfig) -> Result<(), SettingError> {
    let tasks = &config.tasks;
    all_within(
        "tasks.",
        &[
            // The robot's watchdog wants ten heartbeats a second, one with every job.
            ("ssm.period_ms", tasks.ssm.period_ms, 0.1, 100.0),
            // A camera of one frame a second.
            ("perception.period_ms", tasks.perception.period_ms, 1.0, 1000.0),
            ("reaction_deadline_ms", tasks.reaction_deadline_ms, 0.1, OLDEST_MS),
            // Every timer of the thread may come so late.
            ("timer_slack_ns", tasks.timer_slack_ns as f64, 0.0, 1e6),
        ],
    )
}

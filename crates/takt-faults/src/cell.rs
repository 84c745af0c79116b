//! The cell under test, as its configuration says it: one small camera, no networks, a mission that
//! always moves.

use std::fmt::Write;
use std::net::SocketAddr;
use std::path::Path;

use crate::case::{Case, RECOVER_AFTER_MS, RESUME_AFTER_MS};
use crate::recording::INTRINSICS;

/// `ssm.stale_after_ms` of the test's cell: the monitor's default.
pub(crate) const CAMERA_STALE_MS: u64 = 120;
/// `ssm.robot_stale_after_ms` of the test's cell: the monitor's default.
pub(crate) const ROBOT_STALE_MS: u64 = 40;
/// Silence after which the controller's own watchdog stops the robot: the script's 10 Hz.
pub(crate) const WATCHDOG_MS: u64 = 100;
/// Time of slider and pause from full speed to standstill: the simulator's 4 per second.
pub(crate) const RAMP_MS: u64 = 250;

/// Settings of the controller.
pub(crate) fn controller(case: &Case) -> String {
    format!("fifo_priority = 60\nwatchdog_auto_resume = {}\n", !case.person_plays)
}

/// Surroundings of the cell.
#[derive(Clone, Copy, Debug)]
pub(crate) struct World<'a> {
    /// The proxy.
    pub(crate) rtde: SocketAddr,
    /// The controller's dashboard server.
    pub(crate) dashboard: SocketAddr,
    /// The recording; without, the camera renders an empty room.
    pub(crate) recording: Option<&'a Path>,
    /// Whether the cell's program knows `robot.dashboard_port`.
    pub(crate) dashboard_known: bool,
}

/// The configuration of a case.
pub(crate) fn text(case: &Case, world: &World<'_>) -> String {
    let mut tables: Vec<(&str, Vec<(&str, String)>)> = vec![
        ("tasks", vec![("policy", quoted("RR+RR"))]),
        (
            "ssm",
            vec![
                // Whatever a fault shows in front of the camera is near enough, wherever the arm
                // is; the recordings' mark is not, and only slows it.
                ("stop_below_m", "2.9".to_owned()),
                ("reduce_below_m", "6.0".to_owned()),
                ("recover_after_s", seconds(RECOVER_AFTER_MS)),
                ("resume_after_s", seconds(RESUME_AFTER_MS)),
                ("stale_after_ms", format!("{CAMERA_STALE_MS}.0")),
                ("robot_stale_after_ms", format!("{ROBOT_STALE_MS}.0")),
            ],
        ),
        ("perception.detector", vec![("enabled", "false".to_owned())]),
        ("perception.segmenter", vec![("enabled", "false".to_owned())]),
        // Less than the sensor can measure at its usual resolution, whatever the size of the test's
        // images.
        ("perception.health", vec![("min_depth_mm", "195".to_owned())]),
        ("perception.occupancy", vec![("floor_m", "-0.8".to_owned())]),
        (
            "perception.occupancy.volume",
            vec![("min_m", "[-4.5, -2.0, -0.8]".to_owned()), ("max_m", "[1.99, 2.0, 1.4]".to_owned())],
        ),
        (
            "robot.rtde",
            vec![
                ("host", quoted(&world.rtde.ip().to_string())),
                ("port", world.rtde.port().to_string()),
                ("connect_timeout_ms", "500".to_owned()),
                ("reconnect_max_ms", "200".to_owned()),
            ],
        ),
    ];
    if world.dashboard_known {
        tables.push(("robot", vec![("dashboard_port", world.dashboard.port().to_string())]));
    }
    for (table, key, value) in &case.keys {
        match tables.iter_mut().find(|(name, _)| name == table) {
            Some((_, keys)) => {
                keys.retain(|(name, _)| name != key);
                keys.push((key, value.clone()));
            }
            None => tables.push((table, vec![(key, value.clone())])),
        }
    }
    let mut text = "name = \"faults\"\n".to_owned();
    for (table, keys) in tables {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "[{table}]");
        for (key, value) in keys {
            let _ = writeln!(text, "{key} = {value}");
        }
    }
    text.push_str(MISSION);
    text.push_str(&camera(world.recording));
    text
}

fn seconds(ms: u64) -> String {
    format!("{:?}", ms as f64 / 1000.0)
}

fn quoted(text: &str) -> String {
    format!("\"{text}\"")
}

/// From side to side without a pause, high accelerations: at nearly every time the arm moves.
const MISSION: &str = r#"
[robot.mission]
name = "sway"
speed_rad_s = 0.4
acceleration_rad_s2 = 20.0
[robot.mission.waypoints_deg]
left = [-80.0, -90.0, -90.0, -90.0, 90.0, 0.0]
right = [80.0, -90.0, -90.0, -90.0, 90.0, 0.0]
[[robot.mission.steps]]
do = "move"
to = "left"
[[robot.mission.steps]]
do = "move"
to = "right"
"#;

/// A camera that looks at the robot, level, from the side to which the arm never reaches.
fn camera(recording: Option<&Path>) -> String {
    let mount = "\n[[cameras]]\nname = \"front\"\nmount = { frame = \"base\", position_m = [2.0, 0.0, 1.0], \
                 rotation_rad = [-1.2091996, -1.2091996, 1.2091996] }\n[cameras.source]\n";
    let source = match recording {
        Some(path) => format!(
            "backend = \"replay\"\npath = {:?}\ntopic = \"/cam\"\nallow_truncated = false\n",
            path.display().to_string()
        ),
        None => {
            let i = INTRINSICS;
            format!(
                "backend = \"synthetic\"\nintrinsics = {{ width = {}, height = {}, fx = {:?}, fy = {:?}, cx = {:?}, cy = \
                 {:?} }}\nrate_fps = 30.0\ndepth_noise_m = 0.001\n[cameras.source.scene]\nfloor_m = -0.8\npeople = []\n",
                i.width, i.height, i.fx, i.fy, i.cx, i.cy
            )
        }
    };
    format!("{mount}{source}")
}

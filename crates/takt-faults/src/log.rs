//! The controller's own log, as it grows and as it ends.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use takt_link_rtde::sim::LOG_COLUMNS;

use crate::FaultError;

/// `runtime`: a program runs.
const PLAYING: u32 = 2;
/// `robot_mode`: running.
const RUNNING: i32 = 7;
/// `safety_mode`: normal, reduced.
const SAFE_TO_MOVE: [i32; 2] = [1, 2];

/// Joint speed above which the arm moves, rad/s: a thousandth of what the test's mission asks.
const MOVES_RAD_S: f64 = 5e-4;

/// One cycle of the controller.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Row {
    /// CLOCK_MONOTONIC nanoseconds.
    pub mono_ns: u64,
    /// Cycles of 2 ms that were done at once; more than one: the controller itself was kept from
    /// running.
    pub steps: u64,
    /// Speed slider as commanded.
    pub slider: f64,
    /// Greatest joint speed, rad/s.
    pub joint_speed_rad_s: f64,
    /// Way of the tool since the start, metres.
    pub tcp_way_m: f64,
    pub digital_outputs: u64,
    /// Newest value of the heartbeat register.
    pub heartbeat: i32,
    /// Program state.
    pub runtime: u32,
    pub robot_mode: i32,
    pub safety_mode: i32,
    /// RTDE clients.
    pub clients: u32,
    /// Number of times that the watchdog has stopped the robot.
    pub watchdog_trips: u64,
}

impl Row {
    /// Whether the robot is commanded to stand, by whatever way reaches the arm.
    pub(crate) fn commanded_to_stand(&self) -> bool {
        self.slider == 0.0 || !self.may_move()
    }

    /// Whether program and modes are such that the slider alone decides.
    pub fn may_move(&self) -> bool {
        self.runtime == PLAYING && self.robot_mode == RUNNING && SAFE_TO_MOVE.contains(&self.safety_mode)
    }

    /// Whether the arm moves.
    pub fn moves(&self) -> bool {
        self.joint_speed_rad_s > MOVES_RAD_S
    }

    /// In words, for a report.
    pub fn words(&self) -> String {
        format!(
            "slider {}, joints {:.3} rad/s, program {}, heartbeat {}, outputs {:#05b}",
            self.slider,
            self.joint_speed_rad_s,
            self.runtime,
            self.heartbeat,
            self.digital_outputs & 0b111
        )
    }
}

/// Follows a log while it is written.
#[derive(Debug)]
pub struct Follower {
    file: File,
    rest: String,
    header_seen: bool,
    /// All rows so far.
    pub rows: Vec<Row>,
    /// Rows that the controller could not write.
    pub lost: u64,
}

impl Follower {
    /// Opens a log that exists.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn open(path: &Path) -> Result<Self, FaultError> {
        let file =
            File::open(path).map_err(FaultError::io(format!("the controller's log {}", path.display())))?;
        Ok(Self { file, rest: String::new(), header_seen: false, rows: Vec::new(), lost: 0 })
    }

    /// Reads what was written since.
    ///
    /// # Errors
    /// It cannot be read, or is no such log.
    pub fn poll(&mut self) -> Result<(), FaultError> {
        self.file.read_to_string(&mut self.rest).map_err(FaultError::io("reading the controller's log"))?;
        let Some(end) = self.rest.rfind('\n') else { return Ok(()) };
        for line in self.rest[..end].lines() {
            if !self.header_seen {
                self.header_seen = true;
                if line != LOG_COLUMNS {
                    return Err(FaultError::Child(format!("the controller's log begins with \"{line}\"")));
                }
                continue;
            }
            let Some((row, lost)) = parse(line) else {
                return Err(FaultError::Child(format!("the controller's log has the row \"{line}\"")));
            };
            self.lost = self.lost.max(lost);
            self.rows.push(row);
        }
        self.rest.drain(..=end);
        Ok(())
    }
}

fn parse(line: &str) -> Option<(Row, u64)> {
    let fields: Vec<&str> = line.split(',').collect();
    let at = |name: &str| {
        let index = LOG_COLUMNS.split(',').position(|known| known == name)?;
        fields.get(index).copied()
    };
    fn number<T: std::str::FromStr>(text: Option<&str>) -> Option<T> {
        text?.parse().ok()
    }
    let row = Row {
        mono_ns: number(at("mono_ns"))?,
        steps: number(at("steps"))?,
        slider: number(at("slider"))?,
        joint_speed_rad_s: number(at("joint_speed_rad_s"))?,
        tcp_way_m: number(at("tcp_way_m"))?,
        digital_outputs: number(at("digital_outputs"))?,
        heartbeat: number(at("heartbeat"))?,
        runtime: number(at("runtime"))?,
        robot_mode: number(at("robot_mode"))?,
        safety_mode: number(at("safety_mode"))?,
        clients: number(at("clients"))?,
        watchdog_trips: number(at("watchdog_trips"))?,
    };
    Some((row, number(at("lost"))?))
}

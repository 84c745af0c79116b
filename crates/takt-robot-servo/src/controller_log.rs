//! The stream from the other side of the wire: what the simulated controller wrote down of its own
//! cycles (`simulator.log`, `takt simulate --log`).
//!
//! It knows the log's columns and nothing of what was sent. Cycles that the simulator made up for
//! after it was kept from running are counted and not judged: no sender could have been heard in
//! them.

use std::path::Path;

use serde::Serialize;
use takt_link_rtde::servo::{ProgramState, registers as reg};
use takt_link_rtde::sim::{LOG_COLUMNS, SERVO_LOG_COLUMNS};

use crate::ServoError;

/// One row of the log: what one or, after a pause of the simulator, several cycles of the
/// controller were.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ControllerRow {
    /// CLOCK_MONOTONIC nanoseconds.
    pub mono_ns: u64,
    pub cycle: u64,
    /// Cycles that it stands for.
    pub steps: u64,
    /// Newest count in the register.
    pub count: i32,
    /// `runtime_state`.
    pub runtime: u32,
    pub safety_mode: i32,
    /// Targets that servoj follows, rad.
    pub targets_rad: [f64; 6],
    /// Joints after the cycle, rad.
    pub joints_rad: [f64; 6],
    /// Fastest joint, rad/s.
    pub joint_speed_rad_s: f64,
    /// The request ([`reg::FOLLOW`], [`reg::STOP`]).
    pub asked: i32,
    /// State of the program.
    pub program: ProgramState,
    /// Its own count of cycles without a command.
    pub missed: i32,
    /// The controller's time after the cycle, seconds.
    pub controller_s: f64,
    /// Time of the state that the newest command answers.
    pub answered_s: f64,
}

/// Contents of a stream's rows while the program followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ControllerView {
    /// Cycles in which the program followed, those that are judged.
    pub cycles: u64,
    /// Cycles that the simulator made up for: not judged.
    pub made_up: u64,
    /// Cycles in which no new command was there.
    pub without_command: u64,
    /// Most of them in a row.
    pub longest_without: u64,
    /// Cycles in which more than one new command was there: all but the newest had no effect.
    pub overwritten: u64,
    /// Greatest age of a command in the cycle that used it, in cycles since the state that it
    /// answers.
    pub oldest_answer_cycles: u64,
    pub mean_answer_cycles: f64,
    /// Greatest distance of a joint from its target, rad.
    pub following_max_rad: f64,
    /// Root of the mean square of the farthest joint's distance, rad.
    pub following_rms_rad: f64,
}

/// Reads a log.
///
/// # Errors
/// [`ServoError::Log`] for a file that no simulated controller with `takt_servo.script` wrote, or
/// that lost rows; a last line that is cut off, as after a kill, is left out.
pub fn read(path: &Path) -> Result<Vec<ControllerRow>, ServoError> {
    // 500 rows of some 300 bytes a second: an hour and a half.
    let text = takt_files::read_to_string(path, 1 << 30)
        .map_err(|error| ServoError::File(format!("{}: {error}", path.display())))?;
    parse(&text)
}

/// Reads the text of a log.
///
/// # Errors
/// As [`read`].
pub fn parse(text: &str) -> Result<Vec<ControllerRow>, ServoError> {
    let mut lines = text.split_inclusive('\n');
    let columns = format!("{LOG_COLUMNS},{SERVO_LOG_COLUMNS}");
    let header = lines.next().unwrap_or_default();
    if header.trim_end() != columns {
        let problem = "the first line has unexpected columns: is this the log of a controller that runs takt_servo.script?";
        return Err(ServoError::Log { line: 1, problem: problem.to_owned() });
    }
    let names: Vec<&str> = columns.split(',').collect();
    let mut rows = Vec::new();
    for (index, line) in lines.enumerate() {
        if !line.ends_with('\n') {
            break;
        }
        let row = row(&names, line.trim_end());
        rows.push(row.map_err(|problem| ServoError::Log { line: index + 2, problem })?);
    }
    Ok(rows)
}

fn row(names: &[&str], line: &str) -> Result<ControllerRow, String> {
    let values: Vec<&str> = line.split(',').collect();
    if values.len() != names.len() {
        return Err(format!("{} values, expected {}", values.len(), names.len()));
    }
    let text = |name: &str| {
        let index = names.iter().position(|known| *known == name);
        index.and_then(|index| values.get(index).copied()).ok_or_else(|| format!("no column {name}"))
    };
    fn parsed<T: std::str::FromStr>(name: &str, text: &str) -> Result<T, String> {
        text.parse().map_err(|_| format!("{name} is '{text}', expected a number"))
    }
    let float = |name: &str| parsed::<f64>(name, text(name)?);
    let whole = |name: &str| parsed::<u64>(name, text(name)?);
    let signed = |name: &str| parsed::<i32>(name, text(name)?);
    if whole("lost")? > 0 {
        return Err(
            "the simulated controller lost rows because its disk was too slow, so this log proves nothing"
                .to_owned(),
        );
    }
    let six = |prefix: &str| -> Result<[f64; 6], String> {
        let mut angles = [0.0; 6];
        for (joint, angle) in angles.iter_mut().enumerate() {
            *angle = float(&format!("{prefix}_{joint}"))?;
        }
        Ok(angles)
    };
    Ok(ControllerRow {
        mono_ns: whole("mono_ns")?,
        cycle: whole("cycle")?,
        steps: whole("steps")?,
        count: signed("heartbeat")?,
        runtime: u32::try_from(whole("runtime")?).map_err(|_| "runtime out of range".to_owned())?,
        safety_mode: signed("safety_mode")?,
        targets_rad: six("target")?,
        joints_rad: six("joint")?,
        joint_speed_rad_s: float("joint_speed_rad_s")?,
        asked: signed("asked")?,
        program: ProgramState::from_register(signed("servo_state")?),
        missed: signed("servo_missed")?,
        controller_s: float("controller_s")?,
        answered_s: float("answered_s")?,
    })
}

impl ControllerRow {
    /// Distance of the farthest joint from its target, rad.
    pub fn following_rad(&self) -> f64 {
        let distance = self.targets_rad.iter().zip(&self.joints_rad).map(|(a, b)| (a - b).abs());
        distance.fold(0.0, f64::max)
    }
}

/// Judges the rows at `rate_hz`, from the first one in which the program followed to the last one
/// in which it was asked to.
pub fn view(rows: &[ControllerRow], rate_hz: f64) -> ControllerView {
    let mut view = ControllerView::default();
    let (mut squares, mut answers, mut row_of) = (0.0, 0.0, 0_u64);
    let mut without = 0;
    for pair in rows.windows(2) {
        let [before, now] = pair else { continue };
        let follows =
            |row: &ControllerRow| row.program == ProgramState::Following && row.asked == reg::FOLLOW;
        if !follows(before) || !follows(now) {
            without = 0;
            continue;
        }
        view.made_up += now.steps.saturating_sub(1);
        view.cycles += 1;
        row_of += 1;
        let new = now.count.wrapping_sub(before.count);
        if new == 0 {
            without += 1;
            view.without_command += 1;
            view.longest_without = view.longest_without.max(without);
        } else {
            without = 0;
            // Commands that piled up during the simulator's own pause are not the sender's fault.
            if before.steps == 1 && now.steps == 1 {
                view.overwritten += u64::try_from(new - 1).unwrap_or(0);
            }
            // The cycle used it before its time was counted on.
            let cycles = ((now.controller_s - now.answered_s) * rate_hz).round() - (now.steps as f64 - 1.0);
            let cycles = cycles.max(0.0);
            view.oldest_answer_cycles = view.oldest_answer_cycles.max(cycles as u64);
            answers += cycles;
        }
        let following_rad = now.following_rad();
        view.following_max_rad = view.following_max_rad.max(following_rad);
        squares += following_rad.powi(2);
    }
    let with_command = view.cycles - view.without_command;
    if with_command > 0 {
        view.mean_answer_cycles = answers / with_command as f64;
    }
    if row_of > 0 {
        view.following_rms_rad = (squares / row_of as f64).sqrt();
    }
    view
}

//! The simulated controller's own log: one CSV row a cycle, so that a test can judge what the robot
//! did without asking the program that controls it.
//!
//! The simulator's thread only pushes a row into a ring; another thread, `ursim-log`, writes the
//! file. Rows that did not fit are counted in the column `lost`, and whoever judges a log refuses
//! one with losses.

use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use takt_rt::ring::{Consumer, Producer, ring};

use super::controller::Controller;
use crate::RtdeError;
use crate::arm::registers as reg;
use crate::servo::registers as servo;

/// Names of the columns, in order.
pub const COLUMNS: &str = "mono_ns,cycle,steps,slider,slider_followed,run_scale,joint_speed_rad_s,tcp_speed_m_s,\
     tcp_way_m,digital_outputs,heartbeat,runtime,robot_mode,safety_mode,clients,watchdog_armed,watchdog_trips,lost";

/// Columns that follow them where the controller plays `takt_servo.script`: targets that its servoj
/// follows and joints (rad), what was asked, the program's state and its count of cycles without a
/// command, the controller's time after the cycle, and the time of the state that the newest
/// command answers.
pub const SERVO_COLUMNS: &str = "target_0,target_1,target_2,target_3,target_4,target_5,joint_0,joint_1,joint_2,joint_3,\
     joint_4,joint_5,asked,servo_state,servo_missed,servo_longest,controller_s,answered_s";

/// Rows that wait for the disk: 16 s at 500 Hz.
const CAPACITY: usize = 1 << 13;

/// Period at which the file is written: a test that follows the log is not much behind, and the
/// disk is spared.
const WRITE_EVERY: Duration = Duration::from_millis(10);

/// One cycle of the controller.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Row {
    mono_ns: u64,
    cycle: u64,
    steps: u64,
    slider: f64,
    slider_followed: f64,
    run_scale: f64,
    joint_speed_rad_s: f64,
    tcp_speed_m_s: f64,
    tcp_way_m: f64,
    digital_outputs: u64,
    heartbeat: i32,
    runtime: u32,
    robot_mode: i32,
    safety_mode: i32,
    clients: u32,
    watchdog_armed: bool,
    watchdog_trips: u64,
    lost: u64,
    servo: Option<ServoRow>,
}

/// Values of [`SERVO_COLUMNS`].
#[derive(Clone, Copy, Debug, Default)]
struct ServoRow {
    targets_rad: [f64; 6],
    joints_rad: [f64; 6],
    asked: i32,
    state: i32,
    missed: i32,
    longest: i32,
    controller_s: f64,
    answered_s: f64,
}

/// The log that is being written; dropping it writes what is left and closes the file.
#[derive(Debug)]
pub(super) struct Log {
    rows: Option<Producer<Row>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Log {
    /// Creates the file and starts the thread that writes it.
    ///
    /// # Errors
    /// The file cannot be created, or the thread cannot be started.
    pub(super) fn create(path: &Path, servo: bool) -> Result<Self, RtdeError> {
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        let file = takt_files::create_output(path).map_err(named);
        let mut file = BufWriter::new(file.map_err(RtdeError::io("creating the log (log)"))?);
        let more = if servo { format!(",{SERVO_COLUMNS}") } else { String::new() };
        writeln!(file, "{COLUMNS}{more}").map_err(RtdeError::io("writing the log (log)"))?;
        let (producer, consumer) = ring(CAPACITY);
        let stop = Arc::new(AtomicBool::new(false));
        let thread = std::thread::Builder::new()
            .name("ursim-log".to_owned())
            .spawn({
                let stop = Arc::clone(&stop);
                move || {
                    if let Err(error) = write_rows(consumer, &mut file, &stop) {
                        eprintln!("ursim: the log ends here: {error}");
                    }
                }
            })
            .map_err(RtdeError::io("starting the thread ursim-log"))?;
        Ok(Self { rows: Some(producer), stop, thread: Some(thread) })
    }

    /// Notes a cycle; wait-free.
    pub(super) fn note(&mut self, controller: &Controller, mono_ns: u64, steps: u64, clients: usize) {
        let Some(rows) = &mut self.rows else { return };
        let lost = rows.lost();
        rows.push(row(controller, mono_ns, steps, clients, lost));
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.rows = None;
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // A panic of the writer has been reported on stderr by itself.
            let _ = thread.join();
        }
    }
}

fn row(c: &Controller, mono_ns: u64, steps: u64, clients: usize, lost: u64) -> Row {
    let [x, y, z, ..] = c.tcp_speed;
    Row {
        mono_ns,
        cycle: c.cycles,
        steps,
        slider: c.slider,
        slider_followed: c.slider_followed,
        run_scale: c.run_scale,
        joint_speed_rad_s: c.speeds_rad_s.iter().fold(0.0, |most: f64, speed| most.max(speed.abs())),
        tcp_speed_m_s: (x * x + y * y + z * z).sqrt(),
        tcp_way_m: c.tcp_way_m(),
        digital_outputs: c.digital_outputs,
        heartbeat: c.registers.input_int[reg::HEARTBEAT],
        runtime: c.runtime as u32,
        robot_mode: c.robot_mode.to_rtde(),
        safety_mode: c.safety_mode.to_rtde(),
        clients: clients as u32,
        watchdog_armed: c.watchdog_armed(),
        watchdog_trips: c.watchdog_trips,
        lost,
        servo: c.plays_servo().then(|| servo_row(c)),
    }
}

fn servo_row(c: &Controller) -> ServoRow {
    ServoRow {
        targets_rad: c.servo.targets_rad,
        joints_rad: c.joints_rad,
        asked: c.registers.input_int[servo::ASKED],
        state: c.registers.output_int[servo::STATE],
        missed: c.registers.output_int[servo::MISSED],
        longest: c.registers.output_int[servo::LONGEST],
        controller_s: c.time_s(),
        answered_s: c.registers.input_double[servo::ANSWERED],
    }
}

fn write_rows(mut rows: Consumer<Row>, file: &mut impl Write, stop: &AtomicBool) -> io::Result<()> {
    let mut batch = Vec::with_capacity(CAPACITY);
    loop {
        // Asked before the ring is emptied: what was pushed before the stop is written.
        let last = stop.load(Ordering::Acquire);
        batch.clear();
        rows.take_into(&mut batch, CAPACITY);
        for r in &batch {
            write!(
                file,
                "{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}",
                r.mono_ns,
                r.cycle,
                r.steps,
                r.slider,
                r.slider_followed,
                r.run_scale,
                r.joint_speed_rad_s,
                r.tcp_speed_m_s,
                r.tcp_way_m,
                r.digital_outputs,
                r.heartbeat,
                r.runtime,
                r.robot_mode,
                r.safety_mode,
                r.clients,
                u8::from(r.watchdog_armed),
                r.watchdog_trips,
                r.lost,
            )?;
            if let Some(s) = r.servo {
                for angle in s.targets_rad.iter().chain(&s.joints_rad) {
                    write!(file, ",{angle}")?;
                }
                let (asked, state, missed) = (s.asked, s.state, s.missed);
                write!(file, ",{asked},{state},{missed},{},{},{}", s.longest, s.controller_s, s.answered_s)?;
            }
            writeln!(file)?;
        }
        file.flush()?;
        if last {
            return Ok(());
        }
        std::thread::sleep(WRITE_EVERY);
    }
}

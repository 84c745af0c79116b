//! The simulated controller and the sender as processes, and waiting for a condition.
#![allow(dead_code, reason = "every test binary uses a part of it")]

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use takt_link_rtde::servo::ProgramState;
use takt_robot_servo::controller_log::{self, ControllerRow};
use takt_robot_servo::record::CycleRecord;
use takt_robot_servo::run::Finished;
use takt_robot_servo::{ServoConfig, start};
use takt_rt::ring::ring;

/// Long enough for a loaded machine; a condition that comes ends the wait at once.
const PATIENCE: Duration = Duration::from_secs(60);

/// Cycles of silence that the program allows in these tests: on a loaded machine a sender that is
/// well, too, may be kept from running for longer than a cell would have it.
pub const SILENT_CYCLES: i32 = 250;

pub fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "never came: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// An example of this crate, beside the test.
fn example(name: &str) -> Command {
    let test = std::env::current_exe().unwrap();
    Command::new(test.parent().unwrap().parent().unwrap().join("examples").join(name))
}

fn spawn(command: &mut Command) -> Child {
    // `--test stream` alone builds no examples.
    let built = "build it: cargo test -p takt-robot-servo --no-run";
    command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}; {built}"))
}

pub struct Controller {
    child: Child,
    /// It runs until this ends.
    stdin: Option<ChildStdin>,
    pub address: SocketAddr,
    log: PathBuf,
    _folder: tempfile::TempDir,
}

impl Controller {
    pub fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("controller.csv");
        let mut child = spawn(example("controller").arg(&log).stdin(Stdio::piped()).stdout(Stdio::piped()));
        let stdin = child.stdin.take();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().parse().unwrap_or_else(|error| panic!("{error}: {line:?}"));
        Self { child, stdin, address, log, _folder: folder }
    }

    /// Its log so far; empty while its first line is being written.
    pub fn log(&self) -> Vec<ControllerRow> {
        if !std::fs::read_to_string(&self.log).is_ok_and(|text| text.contains('\n')) {
            return Vec::new();
        }
        controller_log::read(&self.log).unwrap()
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        self.stdin = None;
        let _ = self.child.wait();
    }
}

/// The shipped values, but with patience for a loaded machine.
pub fn patient() -> ServoConfig {
    let mut config = ServoConfig::default();
    config.link.connect_timeout_ms = 10_000;
    config.servoj.silent_cycles = SILENT_CYCLES;
    config.limits.stale_cycles = 250;
    config.limits.skipped_cycles = 250;
    config
}

/// A stream to that controller.
pub fn config(controller: &Controller) -> ServoConfig {
    let mut config = patient();
    config.link.host = controller.address.ip().to_string();
    config.link.port = controller.address.port();
    config
}

/// Runs the built-in motion for so long; what it left, and its records.
pub fn streamed(config: &ServoConfig, time: Duration) -> (Finished, Vec<CycleRecord>) {
    let (producer, mut records) = ring(1 << 15);
    let running = start(config, producer).unwrap();
    let until = Instant::now() + time;
    while Instant::now() < until && !running.is_finished() {
        std::thread::sleep(Duration::from_millis(10));
    }
    let finished = running.stop().unwrap();
    let mut cycles = Vec::new();
    records.take_into(&mut cycles, 1 << 15);
    (finished, cycles)
}

/// A value of every row in which the program followed.
pub fn followed<T>(rows: &[ControllerRow], value: impl Fn(&ControllerRow) -> T) -> Vec<T> {
    rows.iter().filter(|row| row.program == ProgramState::Following).map(value).collect()
}

/// The example `stream` as a process, and what it has printed.
pub fn sender(controller: &Controller, seconds: f64) -> (Child, Arc<Mutex<String>>) {
    let folder = controller.log.parent().unwrap();
    let file = folder.join("servo.toml");
    std::fs::write(&file, toml::to_string(&config(controller)).unwrap()).unwrap();
    let mut child = spawn(example("stream").arg(&file).arg(seconds.to_string()).stdout(Stdio::piped()));
    let mut stdout = child.stdout.take().unwrap();
    let printed = Arc::new(Mutex::new(String::new()));
    let into = Arc::clone(&printed);
    std::thread::spawn(move || {
        let mut chunk = [0; 4096];
        while let Ok(read @ 1..) = stdout.read(&mut chunk) {
            into.lock().unwrap().push_str(&String::from_utf8_lossy(&chunk[..read]));
        }
    });
    (child, printed)
}

pub fn signal(sender: &(Child, Arc<Mutex<String>>), signal: i32) {
    // SAFETY: kill has no memory preconditions; the child has not been waited for, so its number is
    // its own.
    assert_eq!(unsafe { libc::kill(sender.0.id() as i32, signal) }, 0);
}

/// One stream at a time: two of them would take each other's processor time.
pub fn alone() -> std::sync::MutexGuard<'static, ()> {
    static ONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

//! Runs cases: several side by side, each with processes, ports and a folder of its own.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, RwLock};
use std::time::{Duration, Instant};

use takt_rt::clock::monotonic_ns;

use crate::case::{Act, After, Case, Denial, Plant, Stop};
use crate::children::{Controller, LOOK_AGAIN, PATIENCE, Process, address_space, limit, starve};
use crate::judge::Times;
use crate::log::{Follower, Row};
use crate::proxy::{Proxy, lock};
use crate::recording::{self, FAULT_AFTER_MARK_NS};
use crate::report::{CaseReport, Report, Violation};
use crate::witness::Witness;
use crate::{FaultError, cell};

use self::command::command;
use self::setting::{Scene, Setting};

mod command;
mod setting;

const NS_PER_MS: u64 = 1_000_000;

/// Time for which the robot must have moved at full speed before a fault is planted.
const MOVING_NS: u64 = 300 * NS_PER_MS;

/// Time for which a robot that must stand is watched after the fault.
const WATCHED: Duration = Duration::from_millis(900);

/// Time in which a robot must move again: recovery, reconnection, and a busy machine.
const MOVES_WITHIN: Duration = Duration::from_secs(12);

/// Time limit for a recording's mark.
const MARK_WITHIN: Duration = Duration::from_secs(8);

/// Number of attempts of a case whose robot did not move when its fault was to be planted: on a
/// heavily loaded machine it may have been stopped before. A case is never repeated once its fault
/// has been planted.
const ATTEMPTS: usize = 3;

/// Time for which a robot that must not move at all is watched.
const NEVER_MOVES: Duration = Duration::from_millis(2500);

/// Options of running cases.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program under test.
    pub takt: PathBuf,
    /// Cases side by side.
    pub jobs: usize,
    /// Keep every case's folder (logs, configuration, words) here.
    pub keep: Option<PathBuf>,
}

/// Runs all `cases`; `progress` is called with each that is done.
///
/// # Errors
/// The test itself cannot run: no folder, no processes. Faults of the cell are in the report.
pub fn run_all(
    cases: &[Case],
    options: &Options,
    stop: &AtomicBool,
    progress: &(dyn Fn(&CaseReport) + Sync),
) -> Result<Report, FaultError> {
    let since = Instant::now();
    // The wire's threads allocate beside ordinary ones, and none may wait for a heap that another
    // holds.
    takt_rt::memory::keep_heap();
    let folder = tempfile::tempdir().map_err(FaultError::io("a folder for the cases"))?;
    let setting = Setting {
        takt: &options.takt,
        folder: options.keep.as_deref().unwrap_or(folder.path()),
        witness: Witness::start(),
        dashboard_known: knows_dashboard(&options.takt, folder.path()),
        beside: RwLock::new(()),
        recording: Mutex::new(()),
    };
    let (next, reports, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()), Mutex::new(None));
    std::thread::scope(|scope| {
        for _ in 0..options.jobs.clamp(1, cases.len().max(1)) {
            scope.spawn(|| {
                while !stop.load(Ordering::Acquire) && lock(&failed).is_none() {
                    let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) else { return };
                    match setting.try_case(case) {
                        Ok(report) => {
                            progress(&report);
                            lock(&reports).push(report);
                        }
                        Err(error) => *lock(&failed) = Some(error),
                    }
                }
            });
        }
    });
    if let Some(error) = lock(&failed).take() {
        return Err(error);
    }
    let details = std::mem::take(&mut *lock(&reports));
    Ok(Report::new(details, since.elapsed().as_secs_f64()))
}

/// Whether the program knows `robot.dashboard_port`: the cell's second way to stop the robot. Older
/// builds do not.
fn knows_dashboard(takt: &Path, folder: &Path) -> bool {
    let path = folder.join("dashboard.toml");
    let text = "name = \"x\"\ncameras = []\n[robot]\ndashboard_port = 1\n";
    let asked = fs::write(&path, text).and_then(|()| Command::new(takt).arg("check").arg(&path).output());
    asked.is_ok_and(|message| !String::from_utf8_lossy(&message.stderr).contains("unknown field"))
}

/// A case that goes on.
struct Play<'a> {
    case: &'a Case,
    folder: &'a Path,
    controller: Controller,
    proxy: Proxy,
    cell: Process,
    log: Follower,
    findings: Vec<Violation>,
    planted: bool,
}

type Skipped = String;

impl<'a> Play<'a> {
    fn start(setting: &Setting<'_>, case: &'a Case, folder: &'a Path) -> Result<Self, FaultError> {
        let log_path = folder.join("controller.csv");
        let controller = Controller::start(setting.takt, folder, &cell::controller(case), &log_path)?;
        let proxy = Proxy::start(controller.rtde)?;
        let recording = match case.plant {
            Plant::Recording(spoil, _) | Plant::UnreadableRecording(spoil) => {
                let path = folder.join("cam.mcap");
                // One at a time: encoding takes a CPU, and nobody should starve for a recording.
                let _turn = lock(&setting.recording);
                recording::write(&path, spoil, case.hold_ms)?;
                Some(path)
            }
            _ => None,
        };
        if let Plant::WireFromStart(disturbances) = &case.plant {
            proxy.plant(disturbances);
        }
        let world = cell::World {
            rtde: proxy.address(),
            dashboard: controller.dashboard,
            recording: recording.as_deref(),
            dashboard_known: setting.dashboard_known,
        };
        let config = folder.join("cell.toml");
        fs::write(&config, cell::text(case, &world)).map_err(FaultError::io("the cell's configuration"))?;
        let cell = Process::start("the cell", command(setting.takt, case, folder, &config)?)?;
        let log = Follower::open(&log_path)?;
        Ok(Self { case, folder, controller, proxy, cell, log, findings: Vec::new(), planted: true })
    }

    fn perform(mut self) -> Result<Result<Scene, Skipped>, FaultError> {
        let case = self.case;
        let moves = !matches!(case.stop, Stop::FromStart);
        // Measured, and still moving.
        if moves && !(self.begins_to_move()? && self.is_measured()? && self.begins_to_move()?) {
            self.add("the robot moves before the fault", self.last_row());
            self.planted = false;
            return self.finish(Times::default()).map(Ok);
        }
        let mut times = match self.plant()? {
            Ok(times) => times,
            Err(why) => return Ok(Err(why)),
        };
        self.watch_afterwards(&times)?;
        times.quit_ns = monotonic_ns();
        self.finish(times).map(Ok)
    }

    /// Waits until the robot moves. On a machine that takes much from everybody the watchdog may
    /// pause it before anything was planted: where a person plays, the person does so here, too.
    fn begins_to_move(&mut self) -> Result<bool, FaultError> {
        const PLAY_EVERY: Duration = Duration::from_secs(2);
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until && self.cell.ended().is_none() {
            if self.wait(PLAY_EVERY, |rows| moves_since(rows, 0).is_some())? {
                return Ok(true);
            }
            if self.case.person_plays && self.log.rows.last().is_some_and(|row| !row.may_move()) {
                self.controller.play()?;
            }
        }
        Ok(false)
    }

    /// Waits until the cell's verdict begins to count: what happened before would not be in it. A
    /// recording has its own time, which is later.
    fn is_measured(&mut self) -> Result<bool, FaultError> {
        // If a disk is full from the start, its part of the run is unknown.
        if matches!(self.case.plant, Plant::Recording(..) | Plant::Machine(Denial::Disk)) {
            return Ok(true);
        }
        let path = self.run_dir().join("run.json");
        let counts = || {
            let text = fs::read_to_string(&path).unwrap_or_default();
            let run: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
            run["facts"]["window_ns"][0].as_u64().is_some_and(|from_ns| from_ns > 0)
        };
        self.wait(PATIENCE, |_| counts())
    }

    /// The cell's run directory, from here: one in a file system of its own is in a mount namespace
    /// of its own.
    fn run_dir(&self) -> PathBuf {
        let run = self.folder.join("run");
        match self.case.plant {
            Plant::Machine(denial) if denial.file_system().is_some() => {
                let within = run.join(command::WITHIN);
                let path = within.strip_prefix("/").unwrap_or(&within);
                Path::new("/proc").join(self.cell.pid().to_string()).join("root").join(path)
            }
            _ => run,
        }
    }

    /// Takes from the cell what the machine has. Returns from when on it is taken.
    fn deny(&mut self, denial: Denial) -> Result<u64, FaultError> {
        let (pid, now_ns) = (self.cell.pid(), monotonic_ns());
        let dir = self.run_dir();
        match denial {
            Denial::FileSize => limit(pid, libc::RLIMIT_FSIZE, 1024)?,
            Denial::Memory => limit(pid, libc::RLIMIT_AS, address_space(pid)?)?,
            Denial::Descriptors => {
                limit(pid, libc::RLIMIT_NOFILE, 3)?;
                return Ok(self.proxy.plant(&[crate::proxy::Disturbance::Reset]));
            }
            Denial::DescriptorsToTheEnd => limit(pid, libc::RLIMIT_NOFILE, 3)?,
            Denial::Disk => {}
            Denial::Filled => until_full(|| {
                let mut filler = fs::File::create(dir.join("../filler"))?;
                loop {
                    filler.write_all(&[7; 1 << 16])?;
                }
            })?,
            Denial::Inodes => {
                let mut number = 0;
                until_full(|| {
                    loop {
                        number += 1;
                        fs::File::create(dir.join(format!("../filler-{number}")))?;
                    }
                })?;
            }
            Denial::Removed => {
                fs::remove_dir_all(&dir).map_err(FaultError::io("removing the run directory"))?
            }
        }
        Ok(now_ns)
    }

    fn add(&mut self, rule: &'static str, evidence: String) {
        self.findings.push(Violation { rule, evidence });
    }

    fn last_row(&self) -> String {
        let message = fs::read_to_string(self.folder.join("cell.err")).unwrap_or_default();
        let message = message.lines().last().unwrap_or_default();
        self.log
            .rows
            .last()
            .map_or_else(|| "no rows".to_owned(), |row| format!("{}; cell: {message}", row.words()))
    }

    /// Waits until the log shows something.
    fn wait(&mut self, most: Duration, shows: impl Fn(&[Row]) -> bool) -> Result<bool, FaultError> {
        let until = Instant::now() + most;
        loop {
            self.log.poll()?;
            if shows(&self.log.rows) {
                return Ok(true);
            }
            if Instant::now() > until || self.cell.ended().is_some() {
                return Ok(false);
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    fn hold(&self) {
        std::thread::sleep(Duration::from_millis(self.case.hold_ms));
    }

    /// Plants the fault, holds it, ends it.
    fn plant(&mut self) -> Result<Result<Times, Skipped>, FaultError> {
        let mut times = Times::default();
        match &self.case.plant {
            Plant::Nothing => {
                times.known_ns = monotonic_ns();
                self.hold();
                times.ended_ns = monotonic_ns();
            }
            Plant::Wire(disturbances) => {
                times.known_ns = self.proxy.plant(disturbances);
                self.hold();
                times.ended_ns = monotonic_ns();
                self.proxy.heal();
            }
            Plant::WireAndPlay(disturbances) => {
                times.known_ns = self.proxy.plant(disturbances);
                std::thread::sleep(Duration::from_millis(self.case.hold_ms / 2));
                self.controller.play()?;
                std::thread::sleep(Duration::from_millis(self.case.hold_ms / 2));
                times.ended_ns = monotonic_ns();
                self.proxy.heal();
            }
            Plant::WireFromStart(_) | Plant::UnreadableRecording(_) => {
                self.wait(NEVER_MOVES, |_| false)?;
                times.ended_ns = monotonic_ns();
            }
            Plant::Recording(_, disturbances) => {
                let Some(fault_ns) = self.fault_of_recording()? else {
                    self.add("the recording's mark slows the robot, which then moves on", self.last_row());
                    self.planted = false;
                    return Ok(Ok(times));
                };
                if !disturbances.is_empty() {
                    self.proxy.plant(disturbances);
                }
                (times.known_ns, times.ended_ns) =
                    (fault_ns, fault_ns + recording::fault_ns(self.case.hold_ms));
                takt_rt::clock::sleep_until(times.ended_ns);
                self.proxy.heal();
            }
            Plant::Process(act) => {
                times.known_ns = monotonic_ns();
                if let Err(why) = self.act(*act)? {
                    return Ok(Err(why));
                }
                times.ended_ns = monotonic_ns();
                self.cell.signal(libc::SIGCONT);
            }
            Plant::Machine(denial) => {
                let denial = *denial;
                times.known_ns = self.deny(denial)?;
                self.hold();
                times.ended_ns = monotonic_ns();
                if denial == Denial::Descriptors && self.cell.ended().is_none() {
                    limit(self.cell.pid(), libc::RLIMIT_NOFILE, 1024)?;
                }
            }
            Plant::Output(_) => {
                times.known_ns = monotonic_ns();
                self.cell.take_pipes();
                self.hold();
                times.ended_ns = monotonic_ns();
            }
        }
        Ok(Ok(times))
    }

    /// When the fault's first frame is due, from the stop for the recording's person.
    fn fault_of_recording(&mut self) -> Result<Option<u64>, FaultError> {
        let Some(moving_ns) = moves_since(&self.log.rows, 0) else { return Ok(None) };
        let slows = |rows: &[Row]| {
            let slow = |row: &&Row| row.mono_ns > moving_ns && row.slider > 0.0 && row.slider < 1.0;
            rows.iter().find(slow).map(|row| row.mono_ns)
        };
        if !self.wait(MARK_WITHIN, |rows| slows(rows).is_some())? {
            return Ok(None);
        }
        let Some(mark_ns) = slows(&self.log.rows) else { return Ok(None) };
        let fault_ns = mark_ns + FAULT_AFTER_MARK_NS;
        // The robot moves again before the fault: else its stop would show nothing.
        if !self.wait(MARK_WITHIN, |rows| moves_since(rows, mark_ns).is_some())? || monotonic_ns() > fault_ns
        {
            return Ok(None);
        }
        Ok(Some(fault_ns))
    }

    fn act(&mut self, act: Act) -> Result<Result<(), Skipped>, FaultError> {
        match act {
            Act::Pause => {
                self.cell.signal(libc::SIGSTOP);
                self.hold();
            }
            Act::Stutter(stopped_ms, running_ms) => {
                let until = Instant::now() + Duration::from_millis(self.case.hold_ms);
                while Instant::now() < until {
                    self.cell.signal(libc::SIGSTOP);
                    std::thread::sleep(Duration::from_millis(stopped_ms));
                    self.cell.signal(libc::SIGCONT);
                    std::thread::sleep(Duration::from_millis(running_ms));
                }
            }
            Act::Signal(signal) => {
                self.cell.signal(signal);
                self.hold();
            }
            Act::KillAndPlay => {
                self.cell.signal(libc::SIGKILL);
                std::thread::sleep(Duration::from_millis(self.case.hold_ms / 2));
                self.controller.play()?;
                std::thread::sleep(Duration::from_millis(self.case.hold_ms / 2));
            }
            Act::Starve => {
                if !starve(monotonic_ns() + self.case.hold_ms * NS_PER_MS) {
                    return Ok(Err("real-time priorities are not granted to this process".to_owned()));
                }
            }
        }
        Ok(Ok(()))
    }

    fn watch_afterwards(&mut self, times: &Times) -> Result<(), FaultError> {
        match self.case.after {
            // Full speed, so that a single flicker is no recovery. What it may do at most is judged
            // afterwards.
            After::Moves => self.moves_again(times)?,
            After::Stands => {
                let until = Instant::now() + WATCHED;
                while Instant::now() < until {
                    std::thread::sleep(LOOK_AGAIN);
                }
                false
            }
            After::Free => self.wait(WATCHED / 2, |_| false)?,
        };
        Ok(())
    }

    /// Waits until the robot moves. A program that the watchdog or the dashboard's stop has ended
    /// needs a person to press play, who does so once the cell has had its time.
    fn moves_again(&mut self, times: &Times) -> Result<bool, FaultError> {
        const PERSON_AFTER: Duration = Duration::from_millis(600);
        let until = Instant::now() + MOVES_WITHIN;
        while Instant::now() < until && self.cell.ended().is_none() {
            if self.wait(PERSON_AFTER, |rows| moves_since(rows, times.ended_ns).is_some())? {
                return Ok(true);
            }
            if self.log.rows.last().is_some_and(|row| !row.may_move()) {
                self.controller.play()?;
            }
        }
        Ok(false)
    }

    /// Ends the cell and the controller, and reads what they left.
    fn finish(mut self, mut times: Times) -> Result<Scene, FaultError> {
        if times.quit_ns == 0 {
            times.quit_ns = monotonic_ns();
        }
        let gone = self.cell.ended();
        let asked = gone.is_none();
        if asked {
            self.cell.signal(libc::SIGINT);
        }
        let status = self.cell.end();
        if status.is_none() {
            self.add("the cell ends when it is instructed to", format!("it still runs after {PATIENCE:?}"));
        }
        drop(self.cell);
        // The controller logs its last input two cycles later.
        std::thread::sleep(Duration::from_millis(30));
        self.controller.end()?;
        self.log.poll()?;
        let mut findings = self.findings;
        if self.log.lost > 0 {
            let evidence = format!("{} rows were lost", self.log.lost);
            findings.push(Violation { rule: "the controller's log is whole", evidence });
        }
        let read = |name: &str| fs::read_to_string(self.folder.join(name)).unwrap_or_default();
        let summary = serde_json::from_str(&read("cell.out")).ok();
        let message = read("cell.err");
        let broken = matches!(self.case.plant, Plant::Process(_) | Plant::Machine(_) | Plant::Output(_));
        if moves(self.case) && !broken && (!asked || summary.is_none()) {
            let last = message.lines().last().unwrap_or_default();
            let evidence = format!("{gone:?}, {status:?}: {last}");
            findings.push(Violation { rule: "the cell lives and reports", evidence });
        }
        let in_order = asked && status.is_some() && moves(self.case);
        Ok(Scene { planted: self.planted, rows: self.log.rows, times, in_order, findings, summary, message })
    }
}

/// Does something until a file system takes no more.
fn until_full(fill: impl FnOnce() -> std::io::Result<std::convert::Infallible>) -> Result<(), FaultError> {
    match fill() {
        Err(error) if error.kind() == std::io::ErrorKind::StorageFull => Ok(()),
        Err(error) => Err(FaultError::io("filling the run directory's file system")(error)),
        Ok(never) => match never {},
    }
}

fn moves(case: &Case) -> bool {
    !matches!(case.stop, Stop::FromStart)
}

/// From when on the robot has moved at full speed until now, when this is long enough and after
/// `from_ns`.
fn moves_since(rows: &[Row], from_ns: u64) -> Option<u64> {
    let newest = rows.last()?;
    let mut since_ns = None;
    for row in rows.iter().rev().take_while(|row| row.mono_ns > from_ns) {
        if row.commanded_to_stand() || row.slider < 1.0 {
            break;
        }
        since_ns = Some(row);
    }
    let since = since_ns?;
    let long = newest.mono_ns - since.mono_ns >= MOVING_NS;
    (long && newest.tcp_way_m > since.tcp_way_m).then_some(since.mono_ns)
}

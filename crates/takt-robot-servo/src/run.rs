//! The real-time thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;
use takt_link_rtde::RtdeError;
use takt_link_rtde::client::RtdeConfig;
use takt_link_rtde::servo::registers as reg;
use takt_link_rtde::servo::{ProgramState, ServoCommand, ServoLink};
use takt_link_rtde::sim::{SimConfig, SimProgram, Simulator};
use takt_link_rtde::wire::ControllerVersion;
use takt_rt::clock::monotonic_ns;
use takt_rt::memory::{self, Faults};
use takt_rt::ring::Producer;
use takt_rt::settings::Granted;
use takt_rt::thread::{self, Handle};

use crate::ServoError;
use crate::config::ServoConfig;
use crate::error::not_ready;
use crate::monitor::{Monitor, Seen, StopReason};
use crate::motion::{Targets, Trajectory};
use crate::pacing::{Pacer, Wake};
use crate::record::{CycleRecord, Totals};

/// Phase of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
pub enum Phase {
    /// Holds the arm where it is until the program on the robot follows.
    Beginning = 0,
    /// Streams targets.
    Streaming = 1,
    /// Has asked the program to stop the arm, and waits until it rests.
    Stopping = 2,
    Ended = 3,
}

pub const THREAD: &str = "takt-servo";

/// Time for the program on the robot to begin, and to bring the arm to rest: stopj needs 0.8 s from
/// the fastest target that it follows.
const PATIENCE: Duration = Duration::from_secs(2);

/// Joint speed that counts as rest, rad/s.
const REST_RAD_S: f64 = 0.001;

/// Result of a stream.
#[derive(Clone, Debug, Serialize)]
pub struct Finished {
    /// Reason of its end.
    pub reason: StopReason,
    /// Whether the arm was seen at rest after that.
    pub at_rest: bool,
    /// Sums over the cycles that streamed.
    pub totals: Totals,
    /// Control cycles without a command, and most of them in a row, as the program on the robot
    /// counted.
    pub missed: i32,
    /// See `missed`.
    pub longest: i32,
    /// Records that nobody took in time.
    pub records_lost: u64,
    /// Page faults of the thread while it cycled.
    pub minor_faults: u64,
    /// Those that were served from storage.
    pub major_faults: u64,
    /// Allocations and frees of the thread while it cycled; for tests, 0 unless `takt_rt::proof`
    /// counts them.
    #[serde(skip)]
    pub allocations: u64,
}

#[derive(Debug, Default)]
struct StreamState {
    stop: AtomicBool,
    phase: AtomicU8,
}

/// A running stream. Dropping it stops the arm.
#[derive(Debug)]
pub struct RunningStream {
    shared: Arc<StreamState>,
    thread: Option<Handle<Finished>>,
    version: ControllerVersion,
    /// Last, so that the controller outlives the stream.
    simulator: Option<Simulator>,
}

/// Starts the built-in motion of `config`; `records` takes every cycle.
///
/// # Errors
/// As [`start_with`].
pub fn start(config: &ServoConfig, records: Producer<CycleRecord>) -> Result<RunningStream, ServoError> {
    config.validate()?;
    let trajectory = Trajectory::new(&config.motion, &config.limits, config.rate_hz())?;
    start_with(config, trajectory, records)
}

/// Starts a stream of `targets`: connects, looks whether the robot is ready, and hands over to a
/// thread of its own.
///
/// # Errors
/// [`ServoError`]; nothing moves then.
pub fn start_with(
    config: &ServoConfig,
    targets: impl Targets,
    records: Producer<CycleRecord>,
) -> Result<RunningStream, ServoError> {
    config.validate()?;
    let mut link_config = config.link.clone();
    let simulator = config.simulator.clone().map(Simulator::start).transpose()?;
    if let Some(simulator) = &simulator {
        let address = simulator.rtde_address();
        link_config = RtdeConfig { host: address.ip().to_string(), port: address.port(), ..link_config };
    }
    let mut link = ServoLink::open(&link_config)?;
    let version = link.controller_version();
    await_ready(&mut link, Duration::from_millis(link_config.connect_timeout_ms))?;
    let shared = Arc::new(StreamState::default());
    let seen = Arc::clone(&shared);
    let command = ServoCommand {
        // Another count than one that an earlier stream may have left in the register.
        count: (monotonic_ns() >> 10) as i32,
        asked: reg::FOLLOW,
        silent_cycles: config.servoj.silent_cycles,
        targets_rad: link.state().joints_rad,
        lookahead_s: config.servoj.lookahead_s,
        gain: config.servoj.gain,
        answered_s: 0.0,
    };
    // Before the first command that moves the arm.
    link.at_death(&command);
    let stream = Stream {
        monitor: Monitor::new(config),
        pacer: Pacer::new(config, &link)?,
        targets,
        records,
        command,
        start_rad: link.state().joints_rad,
        link,
        period_ns: config.period_ns(),
        deadline_ns: config.task.deadline_us.saturating_mul(1000),
        began_at: None,
        last_index: None,
        totals: Totals::default(),
    };
    let thread = thread::spawn(THREAD, &config.task.settings(), move || stream.run(&seen))?;
    Ok(RunningStream { shared, thread: Some(thread), version, simulator })
}

/// Waits for the first states and looks whether the robot is ready. A program that has just been
/// played resets its registers in its first cycle.
fn await_ready(link: &mut ServoLink, patience: Duration) -> Result<(), ServoError> {
    let until = Instant::now() + patience;
    loop {
        let came = link.receive(monotonic_ns() + 50_000_000)?;
        let state = link.state();
        let not_ready = not_ready(state.program, state.program_running);
        let ready = state.sequence > 1 && not_ready.is_none();
        if came > 0 && ready {
            return Ok(());
        }
        if Instant::now() >= until {
            let silent = RtdeError::TimedOut {
                doing: "waiting for the first state",
                waited_ms: patience.as_millis() as u64,
            };
            return Err(if state.sequence == 0 { silent.into() } else { not_ready.unwrap_or(silent.into()) });
        }
    }
}

impl RunningStream {
    /// Settings that the kernel granted the thread.
    pub fn granted(&self) -> Option<&Granted> {
        self.thread.as_ref().map(Handle::granted)
    }

    pub const fn controller_version(&self) -> ControllerVersion {
        self.version
    }

    /// The simulated controller, where there is one.
    pub const fn simulator(&self) -> Option<&Simulator> {
        self.simulator.as_ref()
    }

    /// Its present phase.
    pub fn phase(&self) -> Phase {
        match self.shared.phase.load(Ordering::Acquire) {
            0 => Phase::Beginning,
            1 => Phase::Streaming,
            2 => Phase::Stopping,
            _ => Phase::Ended,
        }
    }

    /// Whether it has ended.
    pub fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(Handle::is_finished)
    }

    /// Asks for a stop; the thread leads the arm to rest.
    pub(crate) fn ask_to_stop(&self) {
        self.shared.stop.store(true, Ordering::Release);
    }

    /// Stops the arm and waits for the end.
    ///
    /// # Errors
    /// The thread panicked.
    pub fn stop(self) -> Result<Finished, ServoError> {
        self.ask_to_stop();
        self.wait()
    }

    /// Waits until it ends by itself.
    ///
    /// # Errors
    /// The thread panicked.
    pub fn wait(mut self) -> Result<Finished, ServoError> {
        match self.thread.take() {
            Some(thread) => Ok(thread.join()?),
            // Taken nowhere else but in `drop`.
            None => Err(ServoError::File("a stream can be waited for only once".to_owned())),
        }
    }
}

impl Drop for RunningStream {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.ask_to_stop();
            // Nobody is left to report.
            let _ = thread.join();
        }
    }
}

struct Stream<T> {
    monitor: Monitor,
    pacer: Pacer,
    targets: T,
    records: Producer<CycleRecord>,
    command: ServoCommand,
    start_rad: [f64; 6],
    link: ServoLink,
    period_ns: u64,
    deadline_ns: u64,
    /// Cycle in which the stream began.
    began_at: Option<u64>,
    /// Cycle of the newest command that was sent.
    last_index: Option<u64>,
    totals: Totals,
}

impl<T: Targets> Stream<T> {
    fn run(mut self, shared: &StreamState) -> Finished {
        let (faults, allocations) = (memory::thread_faults(), counted());
        let reason = self.stream(shared);
        shared.phase.store(Phase::Stopping as u8, Ordering::Release);
        let at_rest = self.lead_to_rest();
        let after = memory::thread_faults();
        let allocations = counted() - allocations;
        let Faults { minor, major } = faults;
        shared.phase.store(Phase::Ended as u8, Ordering::Release);
        let state = self.link.state();
        Finished {
            reason,
            at_rest,
            totals: self.totals,
            missed: state.missed,
            longest: state.longest,
            records_lost: self.records.lost(),
            minor_faults: after.minor.saturating_sub(minor),
            major_faults: after.major.saturating_sub(major),
            allocations,
        }
    }

    /// Cycles until there is a reason to stop.
    fn stream(&mut self, shared: &StreamState) -> StopReason {
        let began_ns = monotonic_ns();
        loop {
            let wake = match self.pacer.next(&mut self.link) {
                Ok(wake) => wake,
                Err(_) => return StopReason::LinkLost,
            };
            if shared.stop.load(Ordering::Acquire) {
                return StopReason::Asked;
            }
            if self.began_at.is_none() && self.link.state().program == ProgramState::Following {
                self.began_at = Some(wake.index);
                shared.phase.store(Phase::Streaming as u8, Ordering::Release);
            }
            if self.began_at.is_none() && monotonic_ns() - began_ns > PATIENCE.as_nanos() as u64 {
                return StopReason::NotFollowed;
            }
            if let Err(reason) = self.cycle(&wake) {
                return reason;
            }
        }
    }

    /// One cycle: judge, plan, send, note.
    fn cycle(&mut self, wake: &Wake) -> Result<(), StopReason> {
        let seen = Seen {
            state: self.link.state(),
            age_ns: self.pacer.age_ns(monotonic_ns()),
            content: wake.content,
            skipped: wake.skipped,
            streaming: self.began_at.is_some(),
        };
        let following_rad = self.monitor.following_error(seen.state).map_or(0.0, |(_, by_rad)| by_rad);
        let judged = self.monitor.judge(&seen).and_then(|()| self.send(wake));
        let state = self.link.state();
        let end_ns = monotonic_ns();
        let record = CycleRecord {
            index: wake.index,
            planned_ns: wake.planned_ns,
            wake_ns: wake.wake_ns,
            received_ns: state.received_ns,
            sent_ns: judged.unwrap_or(0),
            end_ns,
            age_ns: self.pacer.age_ns(end_ns),
            skipped: u32::try_from(wake.skipped).unwrap_or(u32::MAX),
            packets: wake.packets,
            lost_packets: wake.lost_packets,
            following_rad,
            controller_s: state.controller_s,
            joints_rad: state.joints_rad,
            targets_rad: self.command.targets_rad,
            count: self.command.count,
            missed: state.missed,
            longest: state.longest,
            streaming: self.began_at.is_some(),
        };
        if record.streaming {
            self.totals.add(&record, self.period_ns, self.deadline_ns);
        }
        self.records.push(record);
        judged.map(|_| ())
    }

    /// Plans and sends the command of a cycle; when it was on its way, or 0.
    fn send(&mut self, wake: &Wake) -> Result<u64, StopReason> {
        let target_rad = match self.began_at {
            Some(began_at) => {
                let time_s = wake.index.saturating_sub(began_at) as f64 * self.period_ns as f64 * 1e-9;
                self.targets.at(time_s, &self.start_rad)
            }
            None => self.start_rad,
        };
        let cycles = self.last_index.map_or(1, |last| wake.index.saturating_sub(last));
        self.monitor.admit(&target_rad, &self.link.state().joints_rad, cycles)?;
        self.command.count = self.command.count.wrapping_add(1);
        self.command.targets_rad = target_rad;
        self.command.answered_s = self.link.state().controller_s;
        let outcome = self.link.send(&self.command);
        let sent_ns = monotonic_ns();
        self.monitor.sent(&target_rad, outcome.is_sent())?;
        if !outcome.is_sent() {
            return Ok(0);
        }
        self.last_index = Some(wake.index);
        Ok(sent_ns)
    }

    /// Asks the program to stop the arm, cycle by cycle, until it rests; whether it was seen to.
    fn lead_to_rest(&mut self) -> bool {
        self.command.asked = reg::STOP;
        let until_ns = monotonic_ns() + PATIENCE.as_nanos() as u64;
        while monotonic_ns() < until_ns {
            self.command.count = self.command.count.wrapping_add(1);
            let sent = self.link.send(&self.command);
            if matches!(sent, takt_link_rtde::client::SendOutcome::Disconnected)
                || self.link.receive(monotonic_ns() + self.period_ns).is_err()
            {
                // Nothing can be said or seen any more: the program on the robot stops for the
                // silence.
                return false;
            }
            let state = self.link.state();
            let rests = state.joint_speeds_rad_s.iter().all(|speed| speed.abs() < REST_RAD_S);
            let follows = state.program_running && state.program == ProgramState::Following;
            if rests && !follows {
                return true;
            }
        }
        false
    }
}

impl<T> Drop for Stream<T> {
    /// A panic of the thread, too, ends with a stop; best effort, once: the program's own watchdog
    /// is behind it.
    fn drop(&mut self) {
        self.command.asked = reg::STOP;
        self.command.count = self.command.count.wrapping_add(1);
        let _ = self.link.send(&self.command);
    }
}

fn counted() -> u64 {
    takt_rt::proof::allocations() + takt_rt::proof::frees()
}

/// A simulated controller for [`ServoConfig::simulator`]: on free ports, with the program that
/// follows a stream.
pub fn simulated() -> SimConfig {
    SimConfig { program: SimProgram::TaktServo, ..SimConfig::on_free_ports() }
}

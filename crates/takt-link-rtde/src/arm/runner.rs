//! The thread that gives a mission's steps to the program on the robot, one by one.

use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::registers as reg;
use super::{Mission, Step};
use takt_rt::thread;

use crate::RtdeError;
use crate::client::RtdeConfig;
use crate::recipe::{self, Field, Output};
use crate::session::{RtdeSession, Variable};
use crate::wire::{DataType, Fields, PacketType, PacketWriter, Reply};

const OUTPUTS: [Output<Status>; 4] = [
    ("runtime_state", |s| Field::Playing(&mut s.runs)),
    ("output_int_register_24", |s| Field::Int(&mut s.finished)),
    ("output_int_register_25", |s| Field::Int(&mut s.taken)),
    ("input_int_register_25", |s| Field::Int(&mut s.asked)),
];

const INPUTS: [Variable; 10] = [
    ("input_int_register_25", DataType::Int32),
    ("input_int_register_26", DataType::Int32),
    ("input_double_register_24", DataType::Double),
    ("input_double_register_25", DataType::Double),
    ("input_double_register_26", DataType::Double),
    ("input_double_register_27", DataType::Double),
    ("input_double_register_28", DataType::Double),
    ("input_double_register_29", DataType::Double),
    ("input_double_register_30", DataType::Double),
    ("input_double_register_31", DataType::Double),
];

/// Packets per second: a step takes seconds, so 25 Hz costs it nothing to speak of.
const FREQUENCY_HZ: f64 = 25.0;

/// Time that a receive waits before the stop flag is checked again.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// Silence after which the connection counts as lost.
const SILENCE: Duration = Duration::from_secs(2);

/// Packets (at [`FREQUENCY_HZ`]: 0.5 s) after which a running program that has not taken a step in
/// is reported again, under a new number: it was started afresh and takes the number that it found
/// for an old one.
const PACKETS_UNTIL_REPORTED_AGAIN: u32 = 13;

/// Outcome of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepOutcome {
    /// The program says that it is finished.
    Finished,
    /// The caller's stop flag was set first.
    Stopped,
}

/// Event of the runner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MissionEvent {
    /// Connected to the controller.
    Connected,
    /// A step is finished; counted from 0.
    StepFinished {
        /// Index into [`Mission::steps`].
        step: usize,
    },
    /// All steps are finished, and it begins again.
    CycleFinished,
    /// The connection is lost or was refused; it connects again.
    Lost {
        /// The reason.
        reason: String,
    },
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Status {
    /// Whether the program runs.
    runs: bool,
    finished: i32,
    taken: i32,
    asked: i32,
}

/// The mission's own connection to the controller.
#[derive(Debug)]
pub struct Arm {
    session: RtdeSession,
    output_recipe: u8,
    input_recipe: u8,
    status: Status,
    number: i32,
}

impl Arm {
    /// Connects and sets the recipes up. `host`, `port` and `connect_timeout_ms` of `config` count.
    ///
    /// # Errors
    /// As [`crate::client::Link::open`].
    pub fn connect(config: &RtdeConfig) -> Result<Self, RtdeError> {
        config.check()?;
        let mut session = RtdeSession::open(&config.host, config.port, config.connect_timeout())?;
        session.require_upper_registers()?;
        let output_recipe = session.setup_outputs(FREQUENCY_HZ, &recipe::outputs(&OUTPUTS))?;
        let input_recipe = session.setup_inputs(&INPUTS)?;
        session.start()?;
        let doing = "setting the receive time-out";
        session.stream.set_read_timeout(Some(LOOK_AGAIN)).map_err(RtdeError::io(doing))?;
        let mut arm = Self { session, output_recipe, input_recipe, status: Status::default(), number: 0 };
        let deadline = Instant::now() + SILENCE;
        while !arm.receive(deadline)? {}
        // A number that nobody has used: neither the program nor whoever was here before.
        arm.number = arm.status.finished.max(arm.status.taken).max(arm.status.asked);
        Ok(arm)
    }

    /// Executes one step of `mission` and waits until the program has finished it, or `stop` is
    /// set.
    ///
    /// # Errors
    /// The connection fails, or the step is not executable.
    pub fn execute(
        &mut self,
        mission: &Mission,
        step: &Step,
        stop: &AtomicBool,
    ) -> Result<StepOutcome, RtdeError> {
        let unusable = |problem| RtdeError::Mission { step: 0, problem };
        let (kind, values) = match step {
            Step::Dwell { seconds } => return self.dwell(*seconds, stop),
            Step::Suction { on: true } => (reg::KIND_SUCTION_ON, [0.0; 8]),
            Step::Suction { on: false } => (reg::KIND_SUCTION_OFF, [0.0; 8]),
            Step::Move { to, speed_rad_s, acceleration_rad_s2 } => {
                let [a, b, c, d, e, f] = mission.joints_rad(to).map_err(unusable)?;
                let speed = speed_rad_s.unwrap_or(mission.speed_rad_s);
                let acceleration = acceleration_rad_s2.unwrap_or(mission.acceleration_rad_s2);
                (reg::KIND_MOVE_JOINTS, [a, b, c, d, e, f, speed, acceleration])
            }
        };
        self.ask(kind, &values)?;
        let mut not_taken = 0;
        let mut received = Instant::now();
        loop {
            if stop.load(Ordering::Acquire) {
                return Ok(StepOutcome::Stopped);
            }
            if !self.receive(received + SILENCE)? {
                continue;
            }
            received = Instant::now();
            if self.status.finished == self.number {
                return Ok(StepOutcome::Finished);
            }
            let ignored = self.status.runs && self.status.taken != self.number;
            not_taken = if ignored { not_taken + 1 } else { 0 };
            if not_taken > PACKETS_UNTIL_REPORTED_AGAIN {
                not_taken = 0;
                self.ask(kind, &values)?;
            }
        }
    }

    /// Waits while it keeps the connection served.
    fn dwell(&mut self, seconds: f64, stop: &AtomicBool) -> Result<StepOutcome, RtdeError> {
        let end = Instant::now() + Duration::try_from_secs_f64(seconds).unwrap_or_default();
        let mut received = Instant::now();
        while Instant::now() < end {
            if stop.load(Ordering::Acquire) {
                return Ok(StepOutcome::Stopped);
            }
            if self.receive(received + SILENCE)? {
                received = Instant::now();
            }
        }
        Ok(StepOutcome::Finished)
    }

    fn ask(&mut self, kind: i32, values: &[f64; 8]) -> Result<(), RtdeError> {
        // 0 means "none yet" on the robot's side.
        self.number = self.number.checked_add(1).unwrap_or(1).max(1);
        let mut buffer = [0; 128];
        let size = PacketWriter::new(&mut buffer, PacketType::Data)
            .u8(self.input_recipe)
            .i32(self.number)
            .i32(kind)
            .doubles(values)
            .finish()?;
        self.session.stream.write_all(&buffer[..size]).map_err(RtdeError::io("sending a step"))
    }

    /// Receives once; true when the status is new.
    fn receive(&mut self, deadline: Instant) -> Result<bool, RtdeError> {
        let doing = "waiting for the program";
        match self.session.frames.fill(|free| self.session.stream.read(free)) {
            Ok(0) => return Err(RtdeError::Closed { doing }),
            Ok(_) => {}
            Err(error) => match error.kind() {
                io::ErrorKind::Interrupted => {}
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                    if Instant::now() >= deadline {
                        return Err(RtdeError::TimedOut { doing, waited_ms: SILENCE.as_millis() as u64 });
                    }
                }
                _ => return Err(RtdeError::Io { doing, source: error }),
            },
        }
        let mut new = false;
        while let Some(packet) = self.session.frames.next_packet()? {
            if packet.kind == PacketType::Data {
                let mut fields = Fields::new(packet.payload);
                if fields.u8()? != self.output_recipe {
                    continue;
                }
                recipe::decode(&OUTPUTS, fields.rest(), &mut self.status)?;
                new = true;
            } else {
                Reply::parse(packet)?;
            }
        }
        Ok(new)
    }
}

/// Repeats `mission` until `stop` is set, and connects again when the link is lost.
///
/// A step that was under way when the link was lost is asked for again: moves go to joint angles,
/// so that a repeated one changes nothing.
pub fn run(mission: &Mission, config: &RtdeConfig, stop: &AtomicBool, mut report: impl FnMut(MissionEvent)) {
    let mut next = 0;
    let mut pause = Duration::from_millis(config.reconnect_min_ms);
    while !stop.load(Ordering::Acquire) {
        let lost = match Arm::connect(config) {
            Ok(mut arm) => {
                report(MissionEvent::Connected);
                pause = Duration::from_millis(config.reconnect_min_ms);
                match repeat(mission, &mut arm, &mut next, stop, &mut report) {
                    Ok(()) => return,
                    Err(error) => error,
                }
            }
            Err(error) => error,
        };
        report(MissionEvent::Lost { reason: lost.to_string() });
        let end = Instant::now() + pause;
        while Instant::now() < end && !stop.load(Ordering::Acquire) {
            std::thread::sleep(pause.min(LOOK_AGAIN));
        }
        pause = (pause * 2).min(Duration::from_millis(config.reconnect_max_ms));
    }
}

fn repeat(
    mission: &Mission,
    arm: &mut Arm,
    next: &mut usize,
    stop: &AtomicBool,
    report: &mut impl FnMut(MissionEvent),
) -> Result<(), RtdeError> {
    loop {
        let Some(step) = mission.steps.get(*next) else {
            if mission.steps.is_empty() {
                return Ok(());
            }
            *next = 0;
            report(MissionEvent::CycleFinished);
            continue;
        };
        match arm.execute(mission, step, stop)? {
            StepOutcome::Stopped => return Ok(()),
            StepOutcome::Finished => {
                report(MissionEvent::StepFinished { step: *next });
                *next += 1;
            }
        }
    }
}

/// Progress of a mission.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MissionProgress {
    /// Whether the connection is up.
    pub connected: bool,
    /// Steps finished since the start.
    pub steps_finished: u64,
    /// Whole cycles finished since the start.
    pub cycles_finished: u64,
    /// Reason of the last loss or refusal of the connection.
    pub last_problem: Option<String>,
}

/// A mission that repeats on a thread of its own, `arm-mission`; dropping it ends the thread. The
/// robot finishes the step that it has taken in.
#[derive(Debug)]
pub struct MissionThread {
    stop: Arc<AtomicBool>,
    progress: Arc<Mutex<MissionProgress>>,
    thread: Option<thread::Handle>,
}

impl MissionThread {
    /// Starts the thread; best effort, so it keeps the default scheduling policy.
    ///
    /// # Errors
    /// A mission or a setting out of range, or no thread.
    pub fn start(mission: Mission, config: RtdeConfig) -> Result<Self, RtdeError> {
        mission.check()?;
        config.check()?;
        let stop = Arc::new(AtomicBool::new(false));
        let progress = Arc::new(Mutex::new(MissionProgress::default()));
        let body = {
            let (stop, progress) = (Arc::clone(&stop), Arc::clone(&progress));
            move || {
                run(&mission, &config, &stop, |event| {
                    let mut progress = progress.lock().unwrap_or_else(PoisonError::into_inner);
                    match event {
                        MissionEvent::Connected => progress.connected = true,
                        MissionEvent::StepFinished { .. } => progress.steps_finished += 1,
                        MissionEvent::CycleFinished => progress.cycles_finished += 1,
                        MissionEvent::Lost { reason } => {
                            progress.connected = false;
                            progress.last_problem = Some(reason);
                        }
                    }
                });
            }
        };
        // A task of seconds: best effort, whatever policy library threads get.
        let thread = thread::spawn_exempt("arm-mission", "moves the arm, best effort", body)
            .map_err(|error| RtdeError::io("starting the thread arm-mission")(io::Error::other(error)))?;
        Ok(Self { stop, progress, thread: Some(thread) })
    }

    /// Its progress.
    pub fn progress(&self) -> MissionProgress {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for MissionThread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // A panic of the runner has been reported on stderr by itself.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::recipe::distinct;

    use super::*;

    #[test]
    fn each_variable_is_in_its_own_field() {
        let variables = recipe::outputs(&OUTPUTS);
        let mut status = Status::default();
        recipe::decode(&OUTPUTS, &distinct::packet(&variables, None), &mut status).unwrap();
        let expected = Status {
            runs: true,
            finished: distinct::int(&variables, "output_int_register_24"),
            taken: distinct::int(&variables, "output_int_register_25"),
            asked: distinct::int(&variables, "input_int_register_25"),
        };
        assert_eq!(status, expected);
        distinct::each_counts(&OUTPUTS);
        distinct::lengths_count(&OUTPUTS);
    }
}

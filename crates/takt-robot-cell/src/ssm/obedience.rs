//! Whether the robot does what it is instructed, judged by what it shows: echoes, the program's
//! watchdog, motion.

use serde::{Deserialize, Serialize};
use takt_link_rtde::RobotState;
use takt_link_rtde::client::{Content, SendOutcome};

use super::{FaultKind, SsmConfig};

/// Commands that are remembered: 8 s at 500 Hz. Configurations whose bounds reach farther back are
/// refused.
pub(crate) const REMEMBERED: usize = 4096;

/// Largest difference between a commanded and an echoed speed fraction: the controller keeps it in
/// its own type.
const FRACTION_TOLERANCE: f64 = 0.02;

/// Largest excess over the commanded speed, as a share of it and in m/s: noise of a velocity that
/// the controller derives from its encoders.
const SPEED_TOLERANCE: f64 = 0.1;
const SPEED_TOLERANCE_M_S: f64 = 0.05;

/// A joint that turns slower than this stands, rad/s; a tool that moves slower, m/s. Above the
/// noise of both.
const STANDSTILL_RAD_S: f64 = 0.02;
const STANDSTILL_M_S: f64 = 0.02;

/// A command on its way.
#[derive(Clone, Copy, Debug, Default)]
struct Sent {
    heartbeat: i32,
    at_ns: u64,
    speed_fraction: f64,
}

/// Delays of the run so far, nanoseconds. They enter the reaction time of the separation formula.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkDelays {
    /// Worst time from sending a command to receiving the controller's echo of it.
    pub acknowledged_worst_ns: u64,
    /// Worst time from sending a command to receiving the program's echo of it.
    pub script_worst_ns: u64,
    /// Worst age of the robot's state by its content when a job used it, the error of the estimate
    /// included.
    pub state_age_worst_ns: u64,
}

/// An echo of the heartbeat and when it last moved on.
#[derive(Clone, Copy, Debug, Default)]
struct Echo {
    value: i32,
    changed_ns: u64,
    /// The newest command that it has acknowledged was sent then; 0 while it has acknowledged none.
    answers_ns: u64,
    /// Its newest round trip.
    trip_ns: u64,
}

/// The monitor's memory of commands and echoes. Plain memory: nothing is allocated after creation.
#[derive(Clone, Debug)]
pub struct Obedience {
    sent: Box<[Sent; REMEMBERED]>,
    count: usize,
    next: usize,
    unsent: u32,
    controller: Echo,
    script: Echo,
    challenges: [(i32, u64); 2],
    proved_ever: bool,
    clock_faults: Option<u32>,
    connected_since_ns: Option<u64>,
    first_sent_ns: Option<u64>,
    delays: LinkDelays,
}

impl Default for Obedience {
    fn default() -> Self {
        Self {
            sent: Box::new([Sent::default(); REMEMBERED]),
            count: 0,
            next: 0,
            unsent: 0,
            controller: Echo::default(),
            script: Echo::default(),
            challenges: [(0, 0); 2],
            proved_ever: false,
            clock_faults: None,
            connected_since_ns: None,
            first_sent_ns: None,
            delays: LinkDelays::default(),
        }
    }
}

fn ns(milliseconds: f64) -> u64 {
    (milliseconds * 1e6) as u64
}

impl Obedience {
    /// Notes what was commanded at `at_ns` and what became of it.
    pub fn commanded(
        &mut self,
        heartbeat: i32,
        challenge: i32,
        speed_fraction: f64,
        at_ns: u64,
        sent: SendOutcome,
    ) {
        self.unsent = if sent.is_sent() { 0 } else { self.unsent.saturating_add(1) };
        if sent.is_sent() {
            self.first_sent_ns.get_or_insert(at_ns);
        }
        // Also one that the kernel refused: what it asked for has not come back either, which is
        // what counts.
        self.sent[self.next] = Sent { heartbeat, at_ns, speed_fraction };
        self.next = (self.next + 1) % REMEMBERED;
        self.count = (self.count + 1).min(REMEMBERED);
        if self.challenges[0].0 != challenge {
            self.challenges = [(challenge, at_ns), self.challenges[0]];
        }
    }

    /// The worst delays so far.
    pub const fn delays(&self) -> LinkDelays {
        self.delays
    }

    /// Whether the program on the robot has proved its watchdog since the start.
    pub const fn watchdog_proved(&self) -> bool {
        self.proved_ever
    }

    /// Takes the newest state in; call before [`find`](Self::find).
    pub fn see(&mut self, robot: &RobotState, now_ns: u64) {
        if !robot.connected || robot.sequence == 0 {
            self.connected_since_ns = None;
            // A request over a lost link is not a command.
            self.first_sent_ns = None;
            return;
        }
        self.connected_since_ns.get_or_insert(now_ns);
        let controller = self.follow(self.controller, robot.heartbeat_echo, robot.heartbeat_echo_ns);
        let script = self.follow(self.script, robot.script_echo, robot.script_echo_ns);
        (self.controller, self.script) = (controller, script);
        if self.challenges.iter().any(|&(challenge, _)| challenge != 0 && robot.proves(challenge)) {
            self.proved_ever = true;
        }
    }

    /// An echo that has been `value` since a packet of `received_ns`.
    fn follow(&self, mut echo: Echo, value: i32, received_ns: u64) -> Echo {
        if value == echo.value {
            return echo;
        }
        echo.value = value;
        // One that was never sent is no answer to anything, however often it changes.
        if let Some(sent) = self.find_sent(value) {
            echo.changed_ns = received_ns;
            echo.answers_ns = sent.at_ns;
            echo.trip_ns = received_ns.saturating_sub(sent.at_ns);
        }
        echo
    }

    fn find_sent(&self, heartbeat: i32) -> Option<Sent> {
        let newest = self.newest()?;
        // Heartbeats count up by one, so its place is known.
        let back = usize::try_from(newest.heartbeat.wrapping_sub(heartbeat)).ok()?;
        (back < self.count).then(|| self.back(back)).filter(|sent| sent.heartbeat == heartbeat)
    }

    fn newest(&self) -> Option<Sent> {
        (self.count > 0).then(|| self.back(0))
    }

    fn back(&self, back: usize) -> Sent {
        self.sent[(self.next + 2 * REMEMBERED - 1 - back) % REMEMBERED]
    }

    /// Age of the oldest command that `echo` has not acknowledged; 0 when it has acknowledged all.
    fn unanswered_ns(&self, echo: Echo, now_ns: u64) -> u64 {
        let next = match self.find_sent(echo.value) {
            Some(_) => self.find_sent(echo.value.wrapping_add(1)),
            // Nothing of what is remembered: the oldest of it.
            None => self.count.checked_sub(1).map(|oldest| self.back(oldest)),
        };
        let since = next.map_or(now_ns, |sent| sent.at_ns).max(self.connected_since_ns.unwrap_or(now_ns));
        now_ns.saturating_sub(since)
    }

    /// Remembers the delays of a job whose inputs were found good; those of faults stop the robot
    /// anyway and do not widen the distance for ever.
    pub fn measure(&mut self, robot: &RobotState, now_ns: u64) {
        let delays = &mut self.delays;
        delays.acknowledged_worst_ns = delays.acknowledged_worst_ns.max(self.controller.trip_ns);
        delays.script_worst_ns = delays.script_worst_ns.max(self.script.trip_ns);
        delays.state_age_worst_ns = delays.state_age_worst_ns.max(state_age_ns(robot, now_ns));
    }

    /// The least that was commanded last and all that was commanded within the bound before the
    /// state's measurement: the greatest fraction that may still show.
    fn allowed_fraction(&self, config: &SsmConfig, robot: &RobotState) -> Option<f64> {
        let bound_ns = ns(config.obey_within_ms()) + robot.age_error_ns;
        let since_ns = robot.measured_ns.checked_sub(bound_ns)?;
        // Before the first command of this run the robot did what somebody else had asked.
        if self.first_sent_ns.is_none_or(|first| first > since_ns) {
            return None;
        }
        if self.count == REMEMBERED && self.back(REMEMBERED - 1).at_ns > since_ns {
            // Nothing is known of the commands of then.
            return None;
        }
        let mut greatest = 0.0f64;
        for back in 0..self.count {
            let sent = self.back(back);
            if sent.at_ns <= robot.measured_ns {
                greatest = greatest.max(sent.speed_fraction);
            }
            if sent.at_ns <= since_ns {
                break;
            }
        }
        Some(greatest)
    }

    /// Motion of the robot against the command.
    pub(crate) fn find_motion(&self, config: &SsmConfig, robot: &RobotState) -> Option<FaultKind> {
        let allowed = self.allowed_fraction(config, robot)?;
        let [x, y, z, ..] = robot.tcp_speed;
        let tool_m_s = (x * x + y * y + z * z).sqrt();
        let joints_rad_s = robot.joint_speeds_rad_s.iter().fold(0.0f64, |most, speed| most.max(speed.abs()));
        if allowed == 0.0 && (joints_rad_s > STANDSTILL_RAD_S || tool_m_s > STANDSTILL_M_S) {
            return Some(FaultKind::MovesDespiteStop);
        }
        let limit_m_s = allowed * config.full_speed_m_s * (1.0 + SPEED_TOLERANCE) + SPEED_TOLERANCE_M_S;
        if tool_m_s > limit_m_s {
            return Some(FaultKind::FasterThanCommanded);
        }
        if robot.speed_fraction > allowed + FRACTION_TOLERANCE {
            return Some(FaultKind::SpeedFractionNotFollowed);
        }
        None
    }

    /// Finds faults in the echoes. `watchdog` is whether the program must have one.
    pub fn find(
        &mut self,
        config: &SsmConfig,
        robot: &RobotState,
        watchdog: bool,
        now_ns: u64,
    ) -> Option<FaultKind> {
        let leapt =
            self.clock_faults.replace(robot.clock_faults).is_some_and(|old| old != robot.clock_faults);
        if leapt {
            return Some(match robot.clock_fault {
                Content::ClockLeapt => FaultKind::RobotClockLeapt,
                _ => FaultKind::RobotClockBackwards,
            });
        }
        if self.unsent >= config.send_failures {
            return Some(FaultKind::CommandNotSent);
        }
        let late = ns(config.ack_after_ms);
        let kind = |echo: Echo, silent, slow| {
            let unanswered = self.unanswered_ns(echo, now_ns);
            // Silent: it has not moved on for as long; slow: it moves, but answers what is long
            // past.
            let unknown = self.find_sent(echo.value).is_none();
            if unanswered > late && (unknown || now_ns.saturating_sub(echo.changed_ns) > late) {
                Some(silent)
            } else if unanswered > late || echo.trip_ns > late {
                Some(slow)
            } else {
                None
            }
        };
        // Before the first answer nothing is known of it; the run begins stopped.
        if self.controller.answers_ns == 0 {
            return Some(FaultKind::HeartbeatNotEchoed);
        }
        if let Some(kind) =
            kind(self.controller, FaultKind::HeartbeatNotEchoed, FaultKind::AcknowledgementLate)
        {
            return Some(kind);
        }
        if !watchdog || !robot.program_running {
            return None;
        }
        if self.script.answers_ns == 0 || self.find_sent(self.script.value).is_none() {
            return Some(FaultKind::WatchdogNotProven);
        }
        if let Some(kind) = kind(self.script, FaultKind::ScriptNotEchoing, FaultKind::ScriptEchoLate) {
            return Some(kind);
        }
        // The newest challenge may be on its way still; the one before it was answered, or never
        // will be.
        let asked_ns = self.challenges[0].1;
        let answered = robot.proves(self.challenges[0].0)
            || (now_ns.saturating_sub(asked_ns) <= late && robot.proves(self.challenges[1].0));
        (!answered).then_some(FaultKind::WatchdogNotProven)
    }
}

/// Age of a state by its content, with the error of the estimate.
pub(super) fn state_age_ns(robot: &RobotState, now_ns: u64) -> u64 {
    now_ns.saturating_sub(robot.measured_ns).saturating_add(robot.age_error_ns)
}

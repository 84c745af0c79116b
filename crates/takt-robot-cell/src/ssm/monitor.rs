//! The decision of one SSM job.

use serde::{Deserialize, Serialize};
use takt_link_rtde::RobotState;
use takt_link_rtde::client::SendOutcome;
use takt_link_rtde::kinematics::Arm;
use takt_perception::Places;

use super::watch::{CameraWatch, Reach, robot_fault};
use super::{CameraInput, Fault, LinkDelays, Obedience, ReactionTime, SsmConfig, SsmMode};
use takt_rt::config::SettingError;

/// Most cameras one monitor can watch.
pub const MAX_CAMERAS: usize = 8;

/// Everything a job may look at.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    /// Time of the decision, CLOCK_MONOTONIC nanoseconds.
    pub now_ns: u64,
    /// One entry per configured camera, in order. Fewer than configured is a fault.
    pub cameras: &'a [CameraInput<'a>],
    /// Newest state of the robot.
    pub robot: &'a RobotState,
    /// The run's own worst time from capture to command so far, seconds (for T_r).
    pub measured_worst_s: f64,
}

/// The signal light (SentryRT-1, section III).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Light {
    /// Normal operation.
    Green,
    /// Slowed motion.
    Orange,
    /// Safety stop.
    #[default]
    Red,
}

/// Decision of one job.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Decision {
    /// Speed slider to command, 0..=1.
    pub speed_fraction: f64,
    /// Whether the robot must stand.
    pub stop: bool,
    /// Light to show.
    pub light: Light,
    /// Reason why the inputs are not trusted, if they are not.
    pub fault: Option<Fault>,
    /// Least separation over all cameras, metres; infinite when nobody is seen.
    pub separation_m: f64,
    /// Camera that sees the least separation.
    pub nearest_camera: Option<u32>,
    /// Separation below which this job stops the robot, metres.
    pub stop_distance_m: f64,
    /// Whether the separation of this job lies below that.
    pub breach: bool,
    /// Whether the robot stands only because a fault is over for less than the recovery time.
    pub recovering: bool,
}

impl Decision {
    /// The decision before the first job: stop.
    pub const STOPPED: Self = Self {
        speed_fraction: 0.0,
        stop: true,
        light: Light::Red,
        fault: None,
        separation_m: 0.0,
        nearest_camera: None,
        stop_distance_m: 0.0,
        breach: false,
        recovering: false,
    };
}

/// The monitor: a state machine that slows at once and speeds up late.
#[derive(Clone, Debug)]
pub struct Monitor {
    config: SsmConfig,
    reaction: ReactionTime,
    obedience: Obedience,
    reach: Reach,
    watchdog: bool,
    cameras: usize,
    speed_fraction: f64,
    watches: [CameraWatch; MAX_CAMERAS],
    valid_since_ns: Option<u64>,
    clear_since_ns: Option<u64>,
}

impl Monitor {
    /// A stopped monitor for `cameras` cameras.
    ///
    /// # Errors
    /// [`SsmConfig::validate`]'s, or more than [`MAX_CAMERAS`] or no cameras.
    pub fn new(config: SsmConfig, cameras: usize) -> Result<Self, SettingError> {
        config.validate()?;
        if !(1..=MAX_CAMERAS).contains(&cameras) {
            let accepted = format!("accepted are 1 to {MAX_CAMERAS}");
            return Err(SettingError::conflict(format!("{cameras} cameras"), accepted));
        }
        Ok(Self {
            reaction: ReactionTime::of(&config, &crate::tasks::TaskSet::default()),
            obedience: Obedience::default(),
            reach: Reach::of(None),
            watchdog: config.require_watchdog,
            config,
            cameras,
            speed_fraction: 0.0,
            watches: [CameraWatch::default(); MAX_CAMERAS],
            valid_since_ns: None,
            clear_since_ns: None,
        })
    }

    /// The time that the monitor tolerates under these tasks: the floor of T_r.
    #[must_use]
    pub(crate) fn with_reaction(mut self, reaction: ReactionTime) -> Self {
        self.reaction = reaction;
        self
    }

    /// The arm whose joints and tool must fit together; without, any of the known ones.
    #[must_use]
    pub(crate) fn with_arm(mut self, arm: Option<Arm>) -> Self {
        self.reach = Reach::of(arm);
        self
    }

    /// Whether the program on the robot must prove its watchdog: `ssm.require_watchdog` until
    /// instructed otherwise. A lenient run that found none at its start goes on without, and its
    /// verdict says so.
    pub(crate) const fn expect_watchdog(&mut self, expected: bool) {
        self.watchdog = expected;
    }

    /// Whether the program on the robot must prove its watchdog.
    pub(crate) const fn expects_watchdog(&self) -> bool {
        self.watchdog
    }

    /// Notes what was sent after a decision: the monitor judges what comes back.
    pub fn commanded(
        &mut self,
        heartbeat: i32,
        challenge: i32,
        speed_fraction: f64,
        at_ns: u64,
        sent: SendOutcome,
    ) {
        self.obedience.commanded(heartbeat, challenge, speed_fraction, at_ns, sent);
    }

    /// The worst delays of the link so far.
    pub(crate) const fn link_delays(&self) -> LinkDelays {
        self.obedience.delays()
    }

    /// Whether the program on the robot has proved its watchdog since the start.
    pub const fn watchdog_proved(&self) -> bool {
        self.obedience.watchdog_proved()
    }

    /// T_r in use, seconds: what is tolerated, or what the run measured if that is more.
    fn reaction_s(&self, inputs: &Inputs<'_>) -> f64 {
        let delays = self.obedience.delays();
        let link_ns = delays.acknowledged_worst_ns.saturating_add(delays.state_age_worst_ns);
        let measured_s = inputs.measured_worst_s + link_ns as f64 / 1e9 + self.reaction.controller_s;
        // `max` leaves a measurement that is no number out.
        self.config.protective.reaction_time_s.unwrap_or(0.0).max(self.reaction.sum_s()).max(measured_s)
    }

    /// Decides. Never blocks, allocates or panics, whatever the inputs hold.
    pub fn decide(&mut self, inputs: &Inputs<'_>) -> Decision {
        let fault = self.find_fault(inputs);
        let (seen, hidden) = (nearest(inputs), nearest_hidden(inputs));
        // Somebody may stand in what is hidden.
        let (separation_m, nearest_camera) = if hidden.0 < seen.0 { hidden } else { seen };
        let stop_distance_m = self.stop_distance(inputs, separation_m);
        let breach = separation_m < stop_distance_m;
        let fault = fault.or_else(|| {
            let hides = hidden.0 < stop_distance_m;
            hides.then_some(Fault { kind: super::FaultKind::Hidden, camera: hidden.1 })
        });
        if fault.is_some() {
            self.forget_validity();
        } else {
            self.obedience.measure(inputs.robot, inputs.now_ns);
        }
        let valid_since_ns = *self.valid_since_ns.get_or_insert(inputs.now_ns);
        let recovered =
            elapsed(inputs.now_ns, valid_since_ns, self.config.recover_after_s) && self.all_fresh();
        let recovering = fault.is_none() && !recovered;

        self.speed_fraction = if fault.is_some() || recovering || breach {
            self.clear_since_ns = None;
            0.0
        } else {
            self.follow(inputs, separation_m)
        };
        let stop = self.speed_fraction <= 0.0;
        Decision {
            speed_fraction: self.speed_fraction,
            stop,
            light: match self.speed_fraction {
                _ if stop => Light::Red,
                f if f < 1.0 => Light::Orange,
                _ => Light::Green,
            },
            fault,
            separation_m,
            nearest_camera,
            stop_distance_m,
            breach,
            recovering,
        }
    }

    /// Down at once; up only after the hysteresis held for the configured time.
    fn follow(&mut self, inputs: &Inputs<'_>, separation_m: f64) -> f64 {
        let allowed = self.allowed_fraction(inputs, separation_m);
        if allowed < self.speed_fraction {
            self.clear_since_ns = None;
            return allowed;
        }
        let wished = self.allowed_fraction(inputs, separation_m - self.config.hysteresis_m);
        if wished <= self.speed_fraction {
            self.clear_since_ns = None;
            return self.speed_fraction;
        }
        let since = *self.clear_since_ns.get_or_insert(inputs.now_ns);
        if elapsed(inputs.now_ns, since, self.config.resume_after_s) { wished } else { self.speed_fraction }
    }

    /// Speed fraction that a separation allows, without memory.
    fn allowed_fraction(&self, inputs: &Inputs<'_>, separation_m: f64) -> f64 {
        let c = &self.config;
        match c.mode {
            SsmMode::Fixed if separation_m < c.stop_below_m => 0.0,
            SsmMode::Fixed if separation_m < c.reduce_below_m => c.reduced_speed,
            SsmMode::Fixed => 1.0,
            SsmMode::SpeedDependent => {
                let speed_m_s =
                    c.protective.allowed_speed(separation_m - c.slowdown_margin_m, self.reaction_s(inputs));
                let fraction = (speed_m_s / c.full_speed_m_s).min(1.0);
                if fraction >= c.min_speed { fraction } else { 0.0 }
            }
        }
    }

    fn stop_distance(&self, inputs: &Inputs<'_>, separation_m: f64) -> f64 {
        match self.config.mode {
            SsmMode::Fixed => self.config.stop_below_m,
            SsmMode::SpeedDependent => {
                let [x, y, z, ..] = inputs.robot.tcp_speed;
                let speed_m_s = (x * x + y * y + z * z).sqrt();
                self.config.protective.at(speed_m_s, separation_m, self.reaction_s(inputs))
            }
        }
    }

    fn find_fault(&mut self, inputs: &Inputs<'_>) -> Option<Fault> {
        if inputs.cameras.len() != self.cameras {
            return Some(Fault { kind: super::FaultKind::NoFrame, camera: None });
        }
        let obedience = &mut self.obedience;
        let robot =
            robot_fault(&self.config, obedience, &self.reach, self.watchdog, inputs.robot, inputs.now_ns);
        let mut found = robot.map(|kind| Fault { kind, camera: None });
        // Every camera is followed in every job, whatever else is wrong; the first fault is the one
        // that is reported.
        for (index, (&camera, watch)) in inputs.cameras.iter().zip(&mut self.watches).enumerate() {
            let kind = watch.judge(&self.config, camera, inputs.now_ns);
            found = found.or(kind.map(|kind| Fault { kind, camera: Some(index as u32) }));
        }
        found
    }

    fn forget_validity(&mut self) {
        self.valid_since_ns = None;
        self.watches.iter_mut().for_each(CameraWatch::forget_validity);
    }

    /// Whether every camera shows a frame that was captured after the last fault.
    fn all_fresh(&self) -> bool {
        self.watches[..self.cameras].iter().all(CameraWatch::is_fresh)
    }
}

/// Whether `seconds` have passed since `since_ns`. A clock that went backwards has not.
fn elapsed(now_ns: u64, since_ns: u64, seconds: f64) -> bool {
    now_ns.saturating_sub(since_ns) as f64 >= seconds * 1e9
}

/// Least separation and the camera that sees it. A distance that is not a number counts as contact.
fn nearest(inputs: &Inputs<'_>) -> (f64, Option<u32>) {
    let mut least = (f64::INFINITY, None);
    for (index, camera) in inputs.cameras.iter().enumerate() {
        for object in camera.detections.objects() {
            let distance = f64::from(object.distance_m);
            let distance = if distance.is_nan() { 0.0 } else { distance };
            if distance < least.0 {
                least = (distance, Some(index as u32));
            }
        }
    }
    least
}

/// Least distance of a place that something hides from a camera and that no camera sees, and the
/// camera.
///
/// Where no camera has any such place in its picture, nobody looks at the space around the tool: it
/// counts as occupied, as what a board hides does.
fn nearest_hidden(inputs: &Inputs<'_>) -> (f64, Option<u32>) {
    let mut places = inputs.cameras.iter().map(|camera| &camera.detections.places).peekable();
    if places.peek().is_some() && places.all(Places::are_out_of_the_picture) {
        return (0.0, None);
    }
    let mut least = (f64::INFINITY, None);
    for (index, camera) in inputs.cameras.iter().enumerate() {
        let others = inputs.cameras.iter().enumerate().filter(|(other, _)| *other != index);
        let others = others.map(|(_, other)| &other.detections.places);
        let found = camera.detections.places.hidden_from_all(&camera.detections.tcp_m, others);
        let distance = found.map_or(f64::INFINITY, |hidden| f64::from(hidden.distance_m));
        // One that is no number is contact, as everywhere.
        let distance = if distance.is_nan() { 0.0 } else { distance };
        if distance < least.0 {
            least = (distance, Some(index as u32));
        }
    }
    least
}

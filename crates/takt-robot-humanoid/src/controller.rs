//! The motion controller: pure, one step per cycle.
//!
//! It works on process data as slices and knows neither clock nor wire, so its tests need no segment.

use serde::Serialize;
use takt_link_ethercat::control::{Exchanged, Port};

use crate::cia402::{Drive, DriveState, Goal, before_enable};
use crate::config::HumanoidConfig;
use crate::joint::{DriveMode, Gains, Scale};
use crate::motion::{Moment, Motion, Target, Walk};
use crate::safety::{Punctuality, StopReason, Watch};
use crate::topology::{Device, DriveLayout, Kind};
use crate::trajectory::{Limits, Reference};

/// Process data by device.
pub trait ProcessData {
    /// From the device, as of the last exchange.
    fn inputs(&self, device: usize) -> &[u8];
    /// To the device, with the next exchange.
    fn outputs_mut(&mut self, device: usize) -> &mut [u8];
}

impl ProcessData for Port {
    fn inputs(&self, device: usize) -> &[u8] {
        Port::inputs(self, device)
    }

    fn outputs_mut(&mut self, device: usize) -> &mut [u8] {
        Port::outputs_mut(self, device)
    }
}

/// What the robot is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Drives come into operation, each where it stands.
    Enabling,
    /// All drives follow the walk.
    Walking,
    /// Drives decelerate on their own ramps.
    Stopping(StopReason),
    /// Without torque. Only a new start leads out.
    Stopped(StopReason),
}

impl Mode {
    /// A number for records: 0 enabling, 1 walking, 2 stopping, 3 stopped.
    pub fn code(self) -> u8 {
        match self {
            Self::Enabling => 0,
            Self::Walking => 1,
            Self::Stopping(_) => 2,
            Self::Stopped(_) => 3,
        }
    }

    /// Why it stops, if it does.
    pub fn reason(self) -> Option<StopReason> {
        match self {
            Self::Stopping(reason) | Self::Stopped(reason) => Some(reason),
            Self::Enabling | Self::Walking => None,
        }
    }
}

struct Joint {
    device: usize,
    drive: Drive,
    reference: Reference,
    scale: Scale,
    layout: DriveLayout,
    mode: DriveMode,
    gains: Gains,
    limits: Limits,
    max_torque_nm: f64,
    /// What the encoder showed last before the drive came into operation: held until the walk begins.
    held_counts: i32,
    /// Where the walk begins: where the joint was held.
    start_rad: f64,
    /// Where it stood last; `None` before anything is known.
    position_rad: Option<f64>,
}

impl Joint {
    /// Whether it stands farther outside its range than `most_rad`.
    fn is_outside(&self, most_rad: f64) -> bool {
        let Limits { min_rad, max_rad, .. } = self.limits;
        self.position_rad.is_some_and(|at| at < min_rad - most_rad || at > max_rad + most_rad)
    }
}

/// What a probe showed: the controller answers each event that it counts with a command of its own number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProbeView {
    /// Events that the device has counted.
    pub events: u16,
    /// Command number that the device applied last.
    pub applied: u16,
    /// Command number that goes out with the next exchange.
    pub command: u16,
}

/// The motion controller.
pub struct Controller {
    joints: Vec<Joint>,
    probe: Option<usize>,
    /// Farthest that a joint may stand outside its range when drives are enabled.
    most_outside_rad: f64,
    watch: Watch,
    mode: Mode,
    /// Cycles in this mode.
    cycles: u64,
    dt_s: f64,
    motion: Box<dyn Motion>,
    /// Where joints were at this cycle's inputs, where the motion began, and where they are to be.
    measured_rad: Vec<f64>,
    start_rad: Vec<f64>,
    targets: Vec<Target>,
    /// Time of the motion.
    moved_s: f64,
    enable_cycles: u64,
    stop_cycles: u64,
    most_resets: u32,
    probe_view: ProbeView,
}

impl Controller {
    /// A controller for the devices of `config` that walks. All memory is taken here.
    pub fn new(config: &HumanoidConfig) -> Self {
        Self::with_motion(config, Box::new(Walk::new(config)))
    }

    /// A controller with one's own motion instead of the built-in walk.
    pub fn with_motion(config: &HumanoidConfig, motion: Box<dyn Motion>) -> Self {
        let devices = config.devices();
        let joint = |(device, spec): (usize, &Device)| Joint {
            device,
            drive: Drive::default(),
            reference: Reference::new(spec.limits),
            scale: spec.scale(),
            layout: spec.layout.unwrap_or(config.layout),
            mode: spec.mode,
            gains: spec.gains,
            limits: spec.limits,
            max_torque_nm: spec.max_torque_nm,
            held_counts: 0,
            start_rad: 0.0,
            position_rad: None,
        };
        let cycles = |ms: u32| (f64::from(ms) / 1000.0 * config.rate_hz).ceil() as u64;
        let drives = devices.iter().filter(|device| device.kind == Kind::Drive).count();
        Self {
            joints: devices
                .iter()
                .enumerate()
                .filter(|(_, device)| device.kind == Kind::Drive)
                .map(joint)
                .collect(),
            probe: devices.iter().position(|device| device.kind == Kind::Probe),
            most_outside_rad: f64::from(config.safety.most_outside_mrad) / 1000.0,
            watch: Watch::new(config.safety),
            mode: Mode::Enabling,
            cycles: 0,
            dt_s: 1.0 / config.rate_hz,
            motion,
            measured_rad: vec![0.0; drives],
            start_rad: vec![0.0; drives],
            targets: vec![Target::default(); drives],
            moved_s: 0.0,
            enable_cycles: cycles(config.safety.enable_ms),
            stop_cycles: cycles(config.safety.stop_ms),
            most_resets: config.safety.most_resets,
            probe_view: ProbeView::default(),
        }
    }

    /// What the robot is doing.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Drives in operation, of all.
    pub fn enabled(&self) -> (usize, usize) {
        let on = |joint: &&Joint| joint.drive.state() == DriveState::OperationEnabled;
        (self.joints.iter().filter(on).count(), self.joints.len())
    }

    /// Whether no drive holds torque, as far as is known.
    pub fn is_safe(&self) -> bool {
        self.joints.iter().all(|joint| joint.drive.state().is_safe())
    }

    /// What the probe showed last; `None` without one.
    pub fn probe(&self) -> Option<ProbeView> {
        self.probe.map(|_| self.probe_view)
    }

    /// One cycle: reads what the exchange brought, and fills what the next one takes. `punctuality` tells how the cycle
    /// came; `asked` whether to stop.
    pub fn step(
        &mut self,
        exchanged: &Exchanged,
        punctuality: Punctuality,
        asked: bool,
        data: &mut impl ProcessData,
    ) -> Mode {
        let found = self.watch.judge(exchanged, punctuality);
        let before = self.mode;
        self.mode = self.decide(found, asked);
        self.cycles = if self.mode == before { self.cycles + 1 } else { 0 };
        self.plan(before, data);
        let goal = match self.mode {
            Mode::Enabling | Mode::Walking => Goal::Enabled,
            Mode::Stopping(_) => Goal::QuickStop,
            Mode::Stopped(_) => Goal::Off,
        };
        for place in 0..self.joints.len() {
            self.joint(place, goal, exchanged.fresh, data);
        }
        self.answer_probe(data);
        self.mode
    }

    fn decide(&self, found: Option<StopReason>, asked: bool) -> Mode {
        match self.mode {
            Mode::Enabling | Mode::Walking => {
                if let Some(reason) = found {
                    return Mode::Stopping(reason);
                }
                if asked {
                    return Mode::Stopping(StopReason::Asked);
                }
                let resets = self.joints.iter().map(|joint| joint.drive.resets()).max().unwrap_or(0);
                let (on, all) = self.enabled();
                if self.mode == Mode::Walking {
                    let fault = |joint: &Joint| {
                        matches!(joint.drive.state(), DriveState::Fault | DriveState::FaultReaction)
                    };
                    if self.joints.iter().any(fault) {
                        return Mode::Stopping(StopReason::DriveFault);
                    }
                    if on < all {
                        return Mode::Stopping(StopReason::NotEnabled);
                    }
                    return Mode::Walking;
                }
                // The states are those of the last inputs: none before the first cycle.
                if self.joints.iter().any(|joint| joint.is_outside(self.most_outside_rad)) {
                    Mode::Stopping(StopReason::OutOfRange)
                } else if on == all && self.cycles > 0 {
                    Mode::Walking
                } else if resets > self.most_resets {
                    Mode::Stopping(StopReason::DriveFault)
                } else if self.cycles >= self.enable_cycles {
                    Mode::Stopping(StopReason::NotEnabled)
                } else {
                    Mode::Enabling
                }
            }
            Mode::Stopping(reason) => {
                if self.cycles >= self.stop_cycles || (self.cycles > 0 && self.is_safe()) {
                    Mode::Stopped(reason)
                } else {
                    Mode::Stopping(reason)
                }
            }
            stopped @ Mode::Stopped(_) => stopped,
        }
    }

    fn joint(&mut self, place: usize, goal: Goal, fresh: bool, data: &mut impl ProcessData) {
        let walking = self.mode == Mode::Walking;
        let Target { position_rad: walk_rad, velocity_rad_s: walk_rad_s } = self.targets[place];
        let dt_s = self.dt_s;
        let joint = &mut self.joints[place];
        let layout = joint.layout;
        let inputs = data.inputs(joint.device);
        let (Some(status), Some(counts)) =
            (u16_at(inputs, layout.statusword), i32_at(inputs, layout.position))
        else {
            return;
        };
        let before_rad = joint.position_rad;
        let position_rad = joint.scale.position_rad(counts);
        let measured = layout.velocity.and_then(|at| i32_at(inputs, at));
        let rad_s = match (measured, before_rad) {
            (Some(units), _) => joint.scale.velocity_rad_s(units),
            (None, Some(before_rad)) => (position_rad - before_rad) / dt_s,
            (None, None) => 0.0,
        };
        joint.position_rad = Some(position_rad);
        let mut word = joint.drive.step(status, goal);
        let on = joint.drive.state() == DriveState::OperationEnabled;
        // Torque comes on where the joint is; with old inputs nobody knows where that is.
        if !fresh && !on {
            word = before_enable(word);
        }
        if walking {
            joint.reference.step(walk_rad, walk_rad_s, dt_s);
        } else if !(on && goal == Goal::Enabled) {
            // A drive without torque, or on its own way to standstill, has its target where the joint is.
            joint.held_counts = counts;
            joint.reference.reset(position_rad);
            joint.start_rad = position_rad;
        }
        let (wanted_rad, wanted_rad_s) = (joint.reference.position_rad(), joint.reference.velocity_rad_s());
        let control = on && goal == Goal::Enabled;
        let outputs = data.outputs_mut(joint.device);
        put(outputs, layout.controlword, &word.to_le_bytes());
        if let Some(at) = layout.mode {
            put(outputs, at, &[joint.mode.code()]);
        }
        match joint.mode {
            DriveMode::Csp => {
                let target = if walking { joint.scale.counts(wanted_rad) } else { joint.held_counts };
                put(outputs, layout.target, &target.to_le_bytes());
            }
            DriveMode::Csv => {
                let most = joint.limits.max_rad_s;
                let rate = wanted_rad_s + joint.gains.position_per_s * (wanted_rad - position_rad);
                let rate = if control { rate.clamp(-most, most) } else { 0.0 };
                let at = layout.target_velocity.unwrap_or(usize::MAX);
                put(outputs, at, &joint.scale.velocity(rate).to_le_bytes());
            }
            DriveMode::Cst => {
                let Gains { stiffness_nm_per_rad, damping_nm_s_per_rad, .. } = joint.gains;
                let torque = stiffness_nm_per_rad * (wanted_rad - position_rad)
                    + damping_nm_s_per_rad * (wanted_rad_s - rad_s);
                let most = joint.max_torque_nm;
                let torque = if control { torque.clamp(-most, most) } else { 0.0 };
                let at = layout.target_torque.unwrap_or(usize::MAX);
                put(outputs, at, &joint.scale.torque(torque).to_le_bytes());
            }
        }
    }

    /// Lets the motion say where joints are to be, while they move.
    fn plan(&mut self, before: Mode, data: &impl ProcessData) {
        for (joint, measured_rad) in self.joints.iter().zip(&mut self.measured_rad) {
            // One whose data are too short keeps its place.
            if let Some(counts) = i32_at(data.inputs(joint.device), joint.layout.position) {
                *measured_rad = joint.scale.position_rad(counts);
            }
        }
        if self.mode != Mode::Walking {
            return;
        }
        if before != Mode::Walking {
            // It begins where joints were held.
            for ((joint, start_rad), target) in
                self.joints.iter().zip(&mut self.start_rad).zip(&mut self.targets)
            {
                *start_rad = joint.start_rad;
                *target = Target { position_rad: joint.start_rad, velocity_rad_s: 0.0 };
            }
        }
        self.moved_s += self.dt_s;
        let moment =
            Moment { time_s: self.moved_s, start_rad: &self.start_rad, measured_rad: &self.measured_rad };
        self.motion.plan(&moment, &mut self.targets);
    }

    fn answer_probe(&mut self, data: &mut impl ProcessData) {
        let Some(device) = self.probe else { return };
        let inputs = data.inputs(device);
        let (Some(events), Some(applied)) = (u16_at(inputs, 0), u16_at(inputs, 2)) else { return };
        // The reaction to an event is a command with the event's number.
        self.probe_view = ProbeView { events, applied, command: events };
        put(data.outputs_mut(device), 0, &events.to_le_bytes());
    }
}

fn u16_at(data: &[u8], at: usize) -> Option<u16> {
    data.get(at..)?.first_chunk().map(|bytes| u16::from_le_bytes(*bytes))
}

fn i32_at(data: &[u8], at: usize) -> Option<i32> {
    data.get(at..)?.first_chunk().map(|bytes| i32::from_le_bytes(*bytes))
}

fn put(data: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(place) = data.get_mut(at..).and_then(|rest| rest.get_mut(..bytes.len())) {
        place.copy_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Devices that answer at once: drives by the standard's rules, the probe with a fixed count.
    struct Plant {
        kinds: Vec<Kind>,
        inputs: Vec<Vec<u8>>,
        outputs: Vec<Vec<u8>>,
        stuck: bool,
    }

    impl ProcessData for Plant {
        fn inputs(&self, device: usize) -> &[u8] {
            &self.inputs[device]
        }

        fn outputs_mut(&mut self, device: usize) -> &mut [u8] {
            &mut self.outputs[device]
        }
    }

    impl Plant {
        fn new(config: &HumanoidConfig) -> Self {
            let kinds: Vec<Kind> = config.devices().iter().map(|device| device.kind).collect();
            let mut plant = Self {
                inputs: kinds.iter().map(|_| vec![0; 6]).collect(),
                outputs: kinds.iter().map(|_| vec![0; 6]).collect(),
                kinds,
                stuck: false,
            };
            plant.react();
            plant
        }

        fn react(&mut self) {
            for (device, kind) in self.kinds.iter().enumerate() {
                if *kind == Kind::Drive && !self.stuck {
                    let word = u16::from_le_bytes([self.outputs[device][0], self.outputs[device][1]]);
                    let status: u16 = match word {
                        0x06 => 0x21,
                        0x07 => 0x23,
                        0x0F => 0x27,
                        0x02 => 0x07,
                        _ => 0x40,
                    };
                    self.inputs[device][..2].copy_from_slice(&status.to_le_bytes());
                    if status == 0x27 {
                        let target = self.outputs[device][2..6].to_vec();
                        self.inputs[device][2..6].copy_from_slice(&target);
                    }
                } else if *kind == Kind::Probe {
                    self.inputs[device][..2].copy_from_slice(&9_u16.to_le_bytes());
                }
            }
        }
    }

    fn well(cycle: u64) -> Exchanged {
        Exchanged { cycle, fresh: true, all_op: true, published: true, ..Exchanged::default() }
    }

    #[test]
    fn drives_are_enabled_walk_within_limits_and_stop() {
        let config = HumanoidConfig { devices: 12, ..HumanoidConfig::default() };
        let (mut controller, mut plant) = (Controller::new(&config), Plant::new(&config));
        let mut farthest = 0;
        for cycle in 1..5000 {
            controller.step(&well(cycle), Punctuality::default(), false, &mut plant);
            plant.react();
            let elbow = i32::from_le_bytes(plant.outputs[10][2..6].try_into().unwrap());
            farthest = farthest.max(elbow.abs());
        }
        assert_eq!(controller.mode(), Mode::Walking);
        assert_eq!(controller.enabled().0, controller.enabled().1);
        // The elbow swings around half a radian.
        let rad = f64::from(farthest) / config.devices()[10].scale().counts_per_rad();
        assert_eq!(config.devices()[10].name, "left-elbow");
        assert!((0.6..0.75).contains(&rad), "{rad}");
        assert_eq!(controller.probe().unwrap().command, 9);
        assert_eq!(plant.outputs[0][..2], [9, 0]);
        for cycle in 5000..5010 {
            controller.step(&well(cycle), Punctuality::default(), true, &mut plant);
            plant.react();
        }
        // The plant's drives never end their quick stop: torque goes off after the configured time.
        assert_eq!(controller.mode(), Mode::Stopping(StopReason::Asked));
        for cycle in 5010..5600 {
            controller.step(&well(cycle), Punctuality::default(), false, &mut plant);
            plant.react();
        }
        assert_eq!(controller.mode(), Mode::Stopped(StopReason::Asked));
        assert!(controller.is_safe());
    }

    #[test]
    fn drives_that_do_not_come_stop_the_robot() {
        let config = HumanoidConfig { devices: 12, ..HumanoidConfig::default() };
        let (mut controller, mut plant) = (Controller::new(&config), Plant::new(&config));
        plant.stuck = true;
        let stopped = (1..4000).find(|&cycle| {
            matches!(
                controller.step(&well(cycle), Punctuality::default(), false, &mut plant),
                Mode::Stopped(StopReason::NotEnabled)
            )
        });
        assert!(stopped.is_some_and(|cycle| cycle >= 2000), "{stopped:?}");
    }

    #[test]
    fn shorter_process_data_than_expected_harm_nobody() {
        let config = HumanoidConfig { devices: 12, ..HumanoidConfig::default() };
        let (mut controller, mut plant) = (Controller::new(&config), Plant::new(&config));
        plant.inputs.iter_mut().for_each(|inputs| inputs.truncate(1));
        plant.outputs.iter_mut().for_each(Vec::clear);
        for cycle in 1..50 {
            controller.step(&well(cycle), Punctuality::default(), false, &mut plant);
        }
    }
}

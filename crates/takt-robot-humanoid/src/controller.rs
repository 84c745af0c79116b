//! The motion controller: pure, one step per cycle.
//!
//! It works on process data as slices and knows neither clock nor wire, so its tests need no
//! segment.

use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::Serialize;
use takt_link_ethercat::control::{Exchanged, Port};

use crate::cia402::{DISABLE_VOLTAGE, Drive, DriveState, Goal, QUICK_STOP, before_enable};
use crate::config::HumanoidConfig;
use crate::joint::{DriveMode, Gains, Scale};
use crate::motion::{Moment, Motion, Target, Walk};
use crate::safety::{Punctuality, StopReason, Watch};
use crate::topology::{Device, DeviceClass, DriveLayout};
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
    /// What the encoder showed last before the drive came into operation: held until the walk
    /// begins.
    held_counts: i32,
    /// Where the walk begins: where the joint was held.
    start_rad: f64,
    /// Where it stood last; `None` before anything is known.
    position_rad: Option<f64>,
    /// Whether the drive was seen without torque. One that came with torque on is taken out of
    /// operation first: what it holds, and in which mode, nobody here has reported it.
    seen_off: bool,
    /// Whether the drive, in operation, shows another mode than its targets are for.
    wrong_mode: bool,
    /// Where it stood at the last new inputs, and the speed since those before: for drives that do
    /// not report their speed.
    sampled_rad: f64,
    sampled_rad_s: f64,
}

impl Joint {
    /// Whether it stands farther outside its range than `most_rad`.
    fn is_outside(&self, most_rad: f64) -> bool {
        let Limits { min_rad, max_rad, .. } = self.limits;
        self.position_rad.is_some_and(|at| at < min_rad - most_rad || at > max_rad + most_rad)
    }
}

/// What is known of the inputs of a cycle.
#[derive(Clone, Copy)]
struct Inputs {
    /// Whether they are new, and all devices took part and are in OP.
    trusted: bool,
    /// Cycles from the inputs used before to these; 0 for the first. `None` where these are not
    /// new, or not all took part.
    newer_by: Option<u64>,
}

/// Least that a moving joint may be outside its range: at its limit it overshoots a little.
const MIN_OUTSIDE_RAD: f64 = 0.05;

/// What a probe showed: the controller answers each event that it counts with a command of its own
/// number.
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
    max_outside_rad: f64,
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
    /// Exchange that the inputs last used are of; `None` before any.
    inputs_of: Option<u64>,
    enable_cycles: u64,
    stop_cycles: u64,
    max_resets: u32,
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
            seen_off: false,
            wrong_mode: false,
            sampled_rad: 0.0,
            sampled_rad_s: 0.0,
        };
        let cycles = |ms: u32| (f64::from(ms) / 1000.0 * config.rate_hz).ceil() as u64;
        let drives = devices.iter().filter(|device| device.kind == DeviceClass::Drive).count();
        Self {
            joints: devices
                .iter()
                .enumerate()
                .filter(|(_, device)| device.kind == DeviceClass::Drive)
                .map(joint)
                .collect(),
            probe: devices.iter().position(|device| device.kind == DeviceClass::Probe),
            max_outside_rad: f64::from(config.safety.max_outside_mrad) / 1000.0,
            watch: Watch::new(config.safety),
            mode: Mode::Enabling,
            cycles: 0,
            dt_s: 1.0 / config.rate_hz,
            motion,
            measured_rad: vec![0.0; drives],
            start_rad: vec![0.0; drives],
            targets: vec![Target::default(); drives],
            moved_s: 0.0,
            inputs_of: None,
            enable_cycles: cycles(config.safety.enable_ms),
            stop_cycles: cycles(config.safety.stop_ms),
            max_resets: config.safety.max_resets,
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

    /// One cycle: reads what the exchange brought, and fills what the next one takes. `punctuality`
    /// shows how the cycle came; `asked` whether to stop.
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
        let inputs = Inputs {
            // With another working counter a device that did not take part left its old bytes.
            trusted: exchanged.complete() && exchanged.all_op,
            newer_by: self.newer_by(exchanged),
        };
        for place in 0..self.joints.len() {
            self.joint(place, goal, inputs, data);
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
                // The positions are those of the last inputs: none before the first cycle.
                if self.joints.iter().any(|joint| joint.wrong_mode) {
                    return Mode::Stopping(StopReason::WrongMode);
                }
                let outside = |most_rad: f64| self.joints.iter().any(|joint| joint.is_outside(most_rad));
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
                    if outside(self.max_outside_rad.max(MIN_OUTSIDE_RAD)) {
                        return Mode::Stopping(StopReason::OutOfRange);
                    }
                    return Mode::Walking;
                }
                if outside(self.max_outside_rad) {
                    Mode::Stopping(StopReason::OutOfRange)
                } else if on == all && self.cycles > 0 && self.joints.iter().all(|joint| joint.seen_off) {
                    Mode::Walking
                } else if resets > self.max_resets {
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

    /// As [`Inputs::newer_by`].
    fn newer_by(&mut self, exchanged: &Exchanged) -> Option<u64> {
        let came = exchanged.fresh || exchanged.stale > 0;
        if !came || exchanged.working_counter != exchanged.expected_counter {
            return None;
        }
        let of = exchanged.cycle.saturating_sub(exchanged.stale.into());
        match self.inputs_of.replace(of) {
            Some(before) if before == of => None,
            // Older ones than before: the port has begun to count anew.
            Some(before) => Some(of.saturating_sub(before)),
            None => Some(0),
        }
    }

    fn joint(&mut self, place: usize, goal: Goal, new: Inputs, data: &mut impl ProcessData) {
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
        let position_rad = joint.scale.position_rad(counts);
        let measured = layout.velocity.and_then(|at| i32_at(inputs, at));
        if let Some(cycles) = new.newer_by {
            let moved_rad = position_rad - joint.sampled_rad;
            joint.sampled_rad_s = if cycles > 0 { moved_rad / (cycles as f64 * dt_s) } else { 0.0 };
            joint.sampled_rad = position_rad;
        }
        let rad_s = measured.map_or(joint.sampled_rad_s, |units| joint.scale.velocity_rad_s(units));
        joint.position_rad = Some(position_rad);
        let mut word = joint.drive.step(status, goal);
        let on = joint.drive.state() == DriveState::OperationEnabled;
        joint.seen_off |= new.trusted && joint.drive.state().is_off();
        if goal == Goal::Enabled && !joint.seen_off {
            word = DISABLE_VOLTAGE;
        }
        // A drive that does not report its mode is believed.
        let in_mode = layout.mode_display.is_none_or(|at| inputs.get(at) == Some(&joint.mode.code()));
        // Once it is on as asked for: one that came with torque on is taken out of operation first.
        joint.wrong_mode = on && joint.seen_off && !in_mode;
        // Torque comes on where the joint is, in the mode that its targets are for, and not while
        // others move: with old inputs nobody knows where that is.
        if !on && (!new.trusted || !in_mode || walking) {
            word = before_enable(word);
        }
        let control = on && goal == Goal::Enabled && joint.seen_off;
        if walking {
            joint.reference.step(walk_rad, walk_rad_s, dt_s);
        } else if !control {
            // A drive without torque, or on its own way to standstill, has its target where the
            // joint is.
            joint.held_counts = counts;
            joint.reference.reset(position_rad);
            joint.start_rad = position_rad;
        }
        let (wanted_rad, wanted_rad_s) = (joint.reference.position_rad(), joint.reference.velocity_rad_s());
        let outputs = data.outputs_mut(joint.device);
        put(outputs, Some(layout.controlword), &word.to_le_bytes());
        put(outputs, layout.mode, &[joint.mode.code()]);
        if joint.mode != DriveMode::Csp {
            // A drive that is in CSP all the same stays where it is.
            put(outputs, layout.target(), &counts.to_le_bytes());
        }
        match joint.mode {
            DriveMode::Csp => {
                let target = if walking { joint.scale.counts(wanted_rad) } else { joint.held_counts };
                put(outputs, layout.target(), &target.to_le_bytes());
            }
            DriveMode::Csv => {
                let most = joint.limits.max_rad_s;
                let rate = wanted_rad_s + joint.gains.position_per_s * (wanted_rad - position_rad);
                let rate = if control { rate.clamp(-most, most) } else { 0.0 };
                put(outputs, layout.target_velocity, &joint.scale.velocity(rate).to_le_bytes());
            }
            DriveMode::Cst => {
                let Gains { stiffness_nm_per_rad, damping_nm_s_per_rad, .. } = joint.gains;
                let torque = stiffness_nm_per_rad * (wanted_rad - position_rad)
                    + damping_nm_s_per_rad * (wanted_rad_s - rad_s);
                let most = joint.max_torque_nm;
                let torque = if control { torque.clamp(-most, most) } else { 0.0 };
                put(outputs, layout.target_torque, &joint.scale.torque(torque).to_le_bytes());
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
        let (motion, targets) = (&mut self.motion, &mut self.targets);
        // Nothing that it may have left half done is used again: only a walking robot asks it, and
        // follows its targets.
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| motion.plan(&moment, targets))) {
            // A payload whose own drop panics would end the thread after all.
            std::mem::forget(payload);
            self.mode = Mode::Stopping(StopReason::MotionPanicked);
            self.cycles = 0;
        }
    }

    /// Cycles of a quick stop before torque goes off.
    pub(crate) fn stop_cycles(&self) -> u64 {
        self.stop_cycles
    }

    /// Commands all drives to stop, or without torque, whatever they say: for the end of a control
    /// that has itself failed.
    pub(crate) fn halt(&self, goal: Goal, data: &mut impl ProcessData) {
        let word = if goal == Goal::QuickStop { QUICK_STOP } else { DISABLE_VOLTAGE };
        for joint in &self.joints {
            put(data.outputs_mut(joint.device), Some(joint.layout.controlword), &word.to_le_bytes());
        }
    }

    /// Makes the next step panic.
    #[cfg(test)]
    pub(crate) fn break_down(&mut self) {
        self.targets.clear();
    }

    fn answer_probe(&mut self, data: &mut impl ProcessData) {
        let Some(device) = self.probe else { return };
        let inputs = data.inputs(device);
        let (Some(events), Some(applied)) = (u16_at(inputs, 0), u16_at(inputs, 2)) else { return };
        // The reaction to an event is a command with the event's number.
        self.probe_view = ProbeView { events, applied, command: events };
        put(data.outputs_mut(device), Some(0), &events.to_le_bytes());
    }
}

fn u16_at(data: &[u8], at: usize) -> Option<u16> {
    data.get(at..)?.first_chunk().map(|bytes| u16::from_le_bytes(*bytes))
}

fn i32_at(data: &[u8], at: usize) -> Option<i32> {
    data.get(at..)?.first_chunk().map(|bytes| i32::from_le_bytes(*bytes))
}

/// Writes an object that the drive maps.
fn put(data: &mut [u8], at: Option<usize>, bytes: &[u8]) {
    if let Some(place) = at.and_then(|at| data.get_mut(at..)?.get_mut(..bytes.len())) {
        place.copy_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests;

//! The bodies of the three tasks. After start-up they neither allocate nor lock, and make no system
//! call but the sleep.

use takt_rt::clock::monotonic_ns;
use takt_rt::exchange::{Reader, Writer};
use takt_rt::periodic::Release;
use takt_rt::ring::Producer;

use crate::control::{AttitudeLaw, ForceCommand, PositionController};
use crate::plant::Plant;
use crate::records::{AttitudeRecord, PositionRecord, TelemetryRecord};
use crate::reference::Reference;
use crate::vehicle::State;

/// The attitude job: moves the vehicle to now, runs the control law, leaves a record.
#[derive(Debug)]
pub struct AttitudeTask {
    /// The simulated vehicle.
    pub plant: Plant,
    /// The control law.
    pub law: AttitudeLaw,
    /// Time 0 of the flight, CLOCK_MONOTONIC.
    pub epoch_ns: u64,
    /// Newest force command.
    pub force: Reader<ForceCommand>,
    /// The state, for the others.
    pub state: Writer<State>,
    pub records: Producer<AttitudeRecord>,
}

impl AttitudeTask {
    pub fn job(&mut self, release: &Release) -> AttitudeRecord {
        let wake_ns = release.wake_ns;
        self.plant.advance_to(wake_ns.saturating_sub(self.epoch_ns));
        let state = *self.plant.state();

        let control_start_ns = monotonic_ns();
        let command = self.force.read();
        let allocation = self.law.rotors(&state, command.value);
        let control_end_ns = monotonic_ns();

        let force_sequence = command.sequence;
        let reference = self.plant.reference().at(self.plant.now_s()).position_m;
        let position_error_m = self.plant.position_error_m();
        self.plant.command_at(control_end_ns.saturating_sub(self.epoch_ns), allocation.rotors_rad_s);
        self.state.publish(wake_ns, state);
        let record = AttitudeRecord {
            index: release.index,
            planned_ns: release.planned_ns,
            wake_ns,
            control_start_ns,
            control_end_ns,
            end_ns: monotonic_ns(),
            skipped: release.skipped,
            force_sequence,
            position_m: state.position_m.into(),
            reference_m: reference.into(),
            position_error_m,
            tilt_rad: state.tilt_rad(),
            rotors_at_limit: allocation.at_limit,
            loss: self.plant.loss().map(|(_, why)| why),
        };
        self.records.push(record);
        record
    }
}

/// The position job: from the newest state to a force.
#[derive(Debug)]
pub struct PositionTask {
    pub controller: PositionController,
    /// The flown reference.
    pub reference: Reference,
    /// Time 0 of the flight, CLOCK_MONOTONIC.
    pub epoch_ns: u64,
    /// Newest state.
    pub state: Reader<State>,
    /// The force, for the others.
    pub force: Writer<ForceCommand>,
    pub records: Producer<PositionRecord>,
}

impl PositionTask {
    pub fn job(&mut self, release: &Release) -> PositionRecord {
        let state = self.state.read();
        // The reference of the state's time: a state that is some milliseconds old is then no
        // error. Before the first attitude job the state is the initial one, of time 0.
        let time_s = state.stamp_ns.saturating_sub(self.epoch_ns) as f64 * 1e-9;
        let command = self.controller.follow(&self.reference, time_s, state.value);
        let end_ns = monotonic_ns();
        self.force.publish(end_ns, command);
        let record = PositionRecord {
            index: release.index,
            planned_ns: release.planned_ns,
            wake_ns: release.wake_ns,
            end_ns,
            skipped: release.skipped,
            state_sequence: state.sequence,
            force_n: command.force_n.into(),
        };
        self.records.push(record);
        record
    }
}

/// The telemetry job: the newest of everything in one line.
#[derive(Debug)]
pub struct TelemetryTask {
    /// Newest state.
    pub state: Reader<State>,
    /// Newest force.
    pub force: Reader<ForceCommand>,
    /// The lines.
    pub records: Producer<TelemetryRecord>,
}

impl TelemetryTask {
    pub fn job(&mut self) {
        let state = self.state.read();
        let (roll, pitch, yaw) = state.value.attitude.euler_angles();
        self.records.push(TelemetryRecord {
            time_ns: state.stamp_ns,
            position_m: state.value.position_m.into(),
            velocity_m_s: state.value.velocity_m_s.into(),
            roll_pitch_yaw_rad: [roll, pitch, yaw],
            rates_rad_s: state.value.rates_rad_s.into(),
            rotors_rad_s: state.value.rotors_rad_s,
            force_n: self.force.read().value.force_n.into(),
        });
    }
}

//! Applications of the micro-controllers: their actuators and sensors.

use takt_rt::random::SplitMix64;

use super::config::{DeviceConfig, SegmentConfig};
use super::drive::{Drive, error_code};
use super::objects::{
    DIGITAL_IN, DIGITAL_OUT, DeviceKind, FORCE_TORQUE, IMU, PROBE_COMMAND, PROBE_STATUS, TACTILE,
};
use super::truth::{Log, Truth};

/// The application of one device.
#[derive(Debug)]
pub(super) enum App {
    Drive(Box<Drive>),
    /// IMU, force and torque, tactile.
    Sensor(Sensor),
    DigitalIo {
        outputs: u8,
        /// Inputs set from outside; else the outputs are wired back.
        inputs: Option<u8>,
    },
    Probe(Probe),
}

/// A sensor that sees what the joint before it does, and noise.
#[derive(Debug)]
pub(super) struct Sensor {
    index: u16,
    values: [i16; 6],
    noise: SplitMix64,
    /// Of the joint it sits on: position, speed, torque.
    pub(super) joint: [f64; 3],
}

/// Counts events and shows when it took a command.
#[derive(Debug)]
pub(super) struct Probe {
    counter: u16,
    command: u16,
    applied: u16,
    next_event_ns: Option<u64>,
    period_ns: u64,
    struck_ns: Option<u64>,
}

impl App {
    pub(super) fn new(config: &DeviceConfig, segment: &SegmentConfig, index: usize) -> Self {
        let sensor = |object| {
            Self::Sensor(Sensor {
                index: object,
                values: [0; 6],
                noise: SplitMix64::new(index as u64),
                joint: [0.0; 3],
            })
        };
        match config.kind {
            DeviceKind::Drive => Self::Drive(Box::new(Drive::new(config.joint))),
            DeviceKind::ImuSensor => sensor(IMU),
            DeviceKind::ForceTorqueSensor => sensor(FORCE_TORQUE),
            DeviceKind::TactileSensor => sensor(TACTILE),
            DeviceKind::DigitalIo => Self::DigitalIo { outputs: 0, inputs: None },
            DeviceKind::EventProbe => Self::Probe(Probe {
                counter: 0,
                command: 0,
                applied: 0,
                next_event_ns: None,
                period_ns: u64::from(segment.event_period_us) * 1000,
                struck_ns: None,
            }),
        }
    }

    /// Safe state: no torque, outputs off.
    pub(super) fn lose_master(&mut self) {
        match self {
            Self::Drive(drive) => drive.lose_master(),
            Self::DigitalIo { outputs, .. } => *outputs = 0,
            Self::Sensor(_) | Self::Probe(_) => {}
        }
    }

    pub(super) fn inject_fault(&mut self) -> bool {
        let Self::Drive(drive) = self else { return false };
        drive.fail(error_code::INJECTED);
        true
    }

    /// Time passes up to `now_ns`.
    pub(super) fn advance(&mut self, now_ns: u64, dt_s: f64, log: &mut Log, device: u16) {
        match self {
            Self::Drive(drive) => drive.advance(dt_s),
            Self::Sensor(sensor) => sensor.sample(),
            Self::DigitalIo { .. } => {}
            Self::Probe(probe) => probe.sample(now_ns, log, device),
        }
    }

    /// The outputs that [`set`](Self::set) has written take effect.
    pub(super) fn apply(&mut self, now_ns: u64, dt_s: f64, log: &mut Log, device: u16) {
        match self {
            Self::Drive(drive) => drive.apply(dt_s),
            Self::Probe(probe) if probe.command != probe.applied => {
                probe.applied = probe.command;
                log.push(Truth::Applied { device, value: probe.applied, at_ns: now_ns });
            }
            _ => {}
        }
    }

    pub(super) fn get(&self, index: u16, sub: u8) -> Option<(u32, u8)> {
        match self {
            Self::Drive(drive) => drive.get(index, sub),
            Self::Sensor(sensor) if index == sensor.index => sensor.get(sub),
            Self::DigitalIo { outputs, inputs } => match (index, sub) {
                (DIGITAL_IN, 1) => Some((u32::from(inputs.unwrap_or(*outputs)), 1)),
                (DIGITAL_OUT, 1) => Some((u32::from(*outputs), 1)),
                _ => None,
            },
            Self::Probe(probe) => match (index, sub) {
                (PROBE_STATUS, 1) => Some((u32::from(probe.counter), 2)),
                (PROBE_STATUS, 2) => Some((u32::from(probe.applied), 2)),
                _ => None,
            },
            Self::Sensor(_) => None,
        }
    }

    /// `None`: not an object that can be written; `Some(false)`: not such a value.
    pub(super) fn set(&mut self, index: u16, sub: u8, value: u32) -> Option<bool> {
        match self {
            Self::Drive(drive) => drive.set(index, sub, value),
            Self::DigitalIo { outputs, .. } if (index, sub) == (DIGITAL_OUT, 1) => {
                *outputs = value as u8;
                Some(true)
            }
            Self::Probe(probe) if (index, sub) == (PROBE_COMMAND, 1) => {
                probe.command = value as u16;
                Some(true)
            }
            _ => None,
        }
    }
}

impl Sensor {
    /// Noise of -2 to 1 units.
    fn noise(&mut self) -> f64 {
        self.noise.within(0, 3) as f64 - 2.0
    }

    fn sample(&mut self) {
        let [position, velocity, torque] = self.joint;
        let clean = match self.index {
            // Milliradians per second about the joint's axis (y); acceleration in mm/s², gravity
            // turned with it.
            IMU => {
                let (sin, cos) = position.sin_cos();
                [0.0, velocity * 1000.0, 0.0, 9806.65 * sin, 0.0, 9806.65 * cos]
            }
            // Tenths of a newton; hundredths of a newton metre: what the joint before it bears.
            FORCE_TORQUE => [0.0, 0.0, 0.0, 0.0, torque * 100.0, 0.0],
            // Pascals above the resting pressure.
            _ => [100.0, 100.0, 100.0, 100.0, 0.0, 0.0],
        };
        for (at, value) in clean.into_iter().enumerate() {
            let noisy = value + self.noise();
            self.values[at] = noisy.clamp(f64::from(i16::MIN), f64::from(i16::MAX)) as i16;
        }
    }

    fn get(&self, sub: u8) -> Option<(u32, u8)> {
        let count = if self.index == TACTILE { 4 } else { 6 };
        match sub {
            0 => Some((count, 1)),
            sub if u32::from(sub) <= count => Some((u32::from(self.values[usize::from(sub) - 1] as u16), 2)),
            _ => None,
        }
    }
}

impl Probe {
    /// Counts what has happened since the last sample.
    fn sample(&mut self, now_ns: u64, log: &mut Log, device: u16) {
        if let Some(at_ns) = self.struck_ns.take() {
            self.counter = self.counter.wrapping_add(1);
            log.push(Truth::Event { device, count: self.counter, at_ns, sampled_ns: now_ns });
        }
        if self.period_ns == 0 {
            return;
        }
        // The first sample starts the clock of the events.
        let next = self.next_event_ns.get_or_insert(now_ns + self.period_ns);
        // After a long silence only the last events are reported.
        let behind = now_ns.saturating_sub(*next) / self.period_ns;
        let skipped = behind.saturating_sub(16);
        self.counter = self.counter.wrapping_add(skipped as u16);
        *next += skipped * self.period_ns;
        while *next <= now_ns {
            self.counter = self.counter.wrapping_add(1);
            log.push(Truth::Event { device, count: self.counter, at_ns: *next, sampled_ns: now_ns });
            *next += self.period_ns;
        }
    }

    /// An event at `at_ns`, whatever the period; counted at the next sample.
    pub(super) fn strike(&mut self, at_ns: u64) {
        self.struck_ns.get_or_insert(at_ns);
    }
}

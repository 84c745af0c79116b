//! The flight in simulated time: the same plant, controllers and periods as
//! [`flight`](crate::flight), with lateness chosen instead of met. Deterministic.

use serde::{Deserialize, Serialize};

use takt_rt::random::SplitMix64;

use crate::config::UavConfig;
use crate::control::{AttitudeLaw, ForceCommand, PositionController};
use crate::plant::{Loss, Plant};
use crate::vehicle::{State, Vehicle, VehicleConfig};
use takt_rt::config::SettingError;

/// When one attitude job runs, relative to its release.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobTiming {
    /// It reads the state this much after its release.
    pub lateness_ns: u64,
    /// Its rotor command takes effect this much after that.
    pub actuation_ns: u64,
}

/// Lateness that lasts for a whole flight.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Pattern {
    /// Every job is punctual.
    Punctual,
    /// Every command takes effect `delay_ns` after its state was read.
    Delay { delay_ns: u64 },
    /// Every job wakes late by an equally distributed time up to `most_ns`.
    Jitter {
        /// Greatest lateness.
        most_ns: u64,
        /// Seed of the sequence.
        seed: u64,
    },
    /// Once in `every_ns` the job wakes late by `hold_ns`; the releases in between are skipped.
    Blackouts {
        /// From one blackout's start to the next.
        every_ns: u64,
        /// Time for which the rotors hold their command.
        hold_ns: u64,
    },
}

/// The timings of a pattern, job after job.
#[derive(Clone, Debug)]
pub struct Timings {
    pattern: Pattern,
    random: SplitMix64,
    next_blackout_ns: u64,
}

impl Timings {
    /// The timings of a flight whose first job is released at `from_ns`.
    pub fn new(pattern: Pattern, from_ns: u64) -> Self {
        let random = if let Pattern::Jitter { seed, .. } = pattern { seed } else { 0 };
        let next_blackout_ns = match pattern {
            Pattern::Blackouts { every_ns, .. } => from_ns.saturating_add(every_ns),
            _ => u64::MAX,
        };
        Self { pattern, random: SplitMix64::new(random), next_blackout_ns }
    }

    pub fn next(&mut self, release_ns: u64) -> JobTiming {
        match self.pattern {
            Pattern::Punctual => JobTiming::default(),
            Pattern::Delay { delay_ns } => JobTiming { lateness_ns: 0, actuation_ns: delay_ns },
            Pattern::Jitter { most_ns, .. } => {
                let lateness_ns = (self.random.unit() * most_ns as f64) as u64;
                JobTiming { lateness_ns, actuation_ns: 0 }
            }
            Pattern::Blackouts { every_ns, hold_ns } => {
                let due = release_ns >= self.next_blackout_ns;
                if due {
                    self.next_blackout_ns = self.next_blackout_ns.saturating_add(every_ns);
                }
                JobTiming { lateness_ns: if due { hold_ns } else { 0 }, actuation_ns: 0 }
            }
        }
    }
}

/// Accuracy of a flight against its reference.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Quality {
    /// Root mean square of the distance from the reference, sampled every attitude period, m.
    pub position_rms_m: f64,
    /// Greatest distance, m.
    pub max_position_error_m: f64,
    /// Reason of the flight's loss; absent when it was not lost.
    pub loss: Option<Loss>,
}

/// A flight in simulated time. A clone flies on from the same moment.
#[derive(Clone, Debug)]
pub struct Simulation {
    plant: Plant,
    law: AttitudeLaw,
    position: PositionController,
    force: ForceCommand,
    /// Last publication of an attitude job.
    published: (u64, State),
    attitude_period_ns: u64,
    position_period_ns: u64,
    next_attitude_ns: u64,
    next_position_ns: u64,
    next_sample_ns: u64,
    samples: u64,
    sum_squares_m2: f64,
    max_m: f64,
}

impl Simulation {
    /// A flight at its start.
    ///
    /// # Errors
    /// As [`UavConfig::validate`].
    pub fn new(config: &UavConfig) -> Result<Self, SettingError> {
        config.validate()?;
        let vehicle = Vehicle::new(&config.vehicle)?;
        let plant = Plant::new(vehicle, config.limits, config.reference);
        let (attitude, position) = (config.attitude.period(), config.position.period());
        Ok(Self {
            law: AttitudeLaw::new(&config.control, &config.vehicle),
            position: PositionController::new(&config.control, &config.vehicle, position.as_secs_f64()),
            force: ForceCommand::hovering(&config.vehicle),
            published: (0, *plant.state()),
            plant,
            attitude_period_ns: attitude.as_nanos() as u64,
            position_period_ns: position.as_nanos() as u64,
            next_attitude_ns: 0,
            next_position_ns: 0,
            next_sample_ns: 0,
            samples: 0,
            sum_squares_m2: 0.0,
            max_m: 0.0,
        })
    }

    /// Lets time pass to `to_ns` without an attitude job: the rotors hold, the position loop goes
    /// on.
    pub(crate) fn hold_to(&mut self, to_ns: u64) {
        loop {
            let next_ns = to_ns.min(self.next_position_ns).min(self.next_sample_ns);
            self.plant.advance_to(next_ns);
            if next_ns == self.next_sample_ns {
                self.next_sample_ns += self.attitude_period_ns;
                let error_m = self.plant.position_error_m();
                self.samples += 1;
                self.sum_squares_m2 += error_m * error_m;
                self.max_m = self.max_m.max(error_m);
            }
            if next_ns == self.next_position_ns {
                self.next_position_ns += self.position_period_ns;
                let (read_ns, state) = &self.published;
                let read_s = *read_ns as f64 * 1e-9;
                self.force = self.position.follow(self.plant.reference(), read_s, state);
            }
            if next_ns >= to_ns {
                return;
            }
        }
    }

    /// The next attitude job. Releases that its lateness has passed over are skipped.
    pub fn job(&mut self, timing: JobTiming) {
        let wake_ns = self.next_attitude_ns + timing.lateness_ns;
        self.hold_to(wake_ns);
        let state = *self.plant.state();
        let allocation = self.law.rotors(&state, &self.force);
        self.plant.command_at(wake_ns + timing.actuation_ns, allocation.rotors_rad_s);
        self.published = (wake_ns, state);
        self.next_attitude_ns = (wake_ns / self.attitude_period_ns + 1) * self.attitude_period_ns;
    }

    /// Flies to `to_ns` under a pattern, or until the flight is lost.
    pub fn fly_to(&mut self, to_ns: u64, pattern: Pattern) {
        let mut timings = Timings::new(pattern, self.next_attitude_ns);
        while self.next_attitude_ns < to_ns && self.plant.loss().is_none() {
            self.job(timings.next(self.next_attitude_ns));
        }
    }

    /// Flies on punctually to `at_ns`, and says where the vehicle is then. Times before the last
    /// release count as it.
    pub fn punctual_at(&mut self, at_ns: u64) -> State {
        while self.next_attitude_ns <= at_ns && self.plant.loss().is_none() {
            self.job(JobTiming::default());
        }
        let mut plant = self.plant.clone();
        plant.advance_to(at_ns);
        *plant.state()
    }

    /// Flies another vehicle from here on; the controllers keep what they know of the first.
    ///
    /// # Errors
    /// As [`VehicleConfig::validate`].
    pub fn replace_vehicle(&mut self, vehicle: &VehicleConfig) -> Result<(), SettingError> {
        self.plant.replace_vehicle(Vehicle::new(vehicle)?);
        Ok(())
    }

    /// Forgets the errors so far; the figures begin anew.
    pub fn restart_figures(&mut self) {
        (self.samples, self.sum_squares_m2, self.max_m) = (0, 0.0, 0.0);
    }

    /// The figures so far.
    pub fn quality(&self) -> Quality {
        Quality {
            position_rms_m: (self.sum_squares_m2 / self.samples.max(1) as f64).sqrt(),
            max_position_error_m: self.max_m,
            loss: self.plant.loss().map(|(_, why)| why),
        }
    }

    /// The vehicle.
    pub fn plant(&self) -> &Plant {
        &self.plant
    }

    /// When the next attitude job is released, ns from the start.
    pub fn next_release_ns(&self) -> u64 {
        self.next_attitude_ns
    }
}

/// Flies `seconds` of a configuration under a pattern.
///
/// # Errors
/// As [`UavConfig::validate`].
pub fn fly(config: &UavConfig, seconds: f64, pattern: Pattern) -> Result<Quality, SettingError> {
    let mut simulation = Simulation::new(config)?;
    simulation.fly_to((seconds * 1e9) as u64, pattern);
    Ok(simulation.quality())
}

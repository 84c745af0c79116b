//! The vehicle moved along with time. Rotors hold their command until the next one takes effect,
//! and the flight counts as lost when the vehicle is beyond its limits.

#![deny(missing_docs)]

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::reference::Reference;
use crate::vehicle::{RotorSpeeds, State, Vehicle};
use takt_rt::config::{SettingError, all_within};

/// Longest integration step. 1 ms: a twelfth of the fastest rotor time constant.
pub const LONGEST_STEP_NS: u64 = 1_000_000;

/// Longest time that is simulated at once. A flight that nobody steered for longer counts as lost,
/// and a job that wakes up after a suspended hour does not integrate an hour.
pub const LONGEST_SILENCE_NS: u64 = 2_000_000_000;

/// Commands on their way to the rotors at one time. 32: a delay of 128 ms at 250 Hz. A real flight
/// has one.
pub const MAX_PENDING: usize = 32;

/// When a flight counts as lost.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Greatest distance from the reference, m. 5: more than either shipped manoeuvre is long.
    pub position_error_m: f64,
    /// Greatest angle between thrust and vertical, degrees. 90: beyond it thrust points down.
    pub tilt_deg: f64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { position_error_m: 5.0, tilt_deg: 90.0 }
    }
}

impl Limits {
    /// Checks what the types cannot.
    ///
    /// # Errors
    /// [`SettingError`] names the key, the value and what is accepted.
    pub fn validate(&self) -> Result<(), SettingError> {
        all_within(
            "limits.",
            &[
                ("position_error_m", self.position_error_m, 0.01, 1e4),
                ("tilt_deg", self.tilt_deg, 5.0, 180.0),
            ],
        )?;
        Ok(())
    }
}

/// Reason of a flight's loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Loss {
    /// Too far from the reference.
    Position,
    /// Tilted too far.
    Tilt,
    /// Below the ground.
    Ground,
    /// The state is no number any more.
    NotANumber,
    /// Nobody steered for longer than [`LONGEST_SILENCE_NS`].
    Silence,
}

/// The simulated vehicle at a time. Times are nanoseconds from the start of the flight.
#[derive(Clone, Debug)]
pub struct Plant {
    vehicle: Vehicle,
    limits: Limits,
    reference: Reference,
    state: State,
    now_ns: u64,
    command: RotorSpeeds,
    /// Commands that take effect later, in the order of their times.
    pending: VecDeque<(u64, RotorSpeeds)>,
    loss: Option<(u64, Loss)>,
}

impl Plant {
    /// A vehicle that hovers on the reference, with the reference's velocity, at time 0.
    pub fn new(vehicle: Vehicle, limits: Limits, reference: Reference) -> Self {
        let start = reference.at(0.0);
        let state = State::hovering(vehicle.config(), start.position_m, start.velocity_m_s);
        let command = state.rotors_rad_s;
        Self {
            vehicle,
            limits,
            reference,
            state,
            now_ns: 0,
            command,
            pending: VecDeque::with_capacity(MAX_PENDING),
            loss: None,
        }
    }

    /// Moves the vehicle to `to_ns` (nothing when that has passed). A lost vehicle stays where it
    /// was lost. Allocates nothing, and takes bounded time.
    pub fn advance_to(&mut self, to_ns: u64) {
        let gap_ns = to_ns.saturating_sub(self.now_ns);
        if gap_ns > LONGEST_SILENCE_NS {
            self.lose(Loss::Silence);
        }
        while let Some(&(effective_ns, command)) = self.pending.front()
            && effective_ns <= to_ns
        {
            self.integrate_to(effective_ns);
            self.command = command;
            self.pending.pop_front();
        }
        self.integrate_to(to_ns);
        self.now_ns = self.now_ns.max(to_ns);
        if self.position_error_m() > self.limits.position_error_m {
            self.lose(Loss::Position);
        }
    }

    fn integrate_to(&mut self, to_ns: u64) {
        if self.loss.is_some() || to_ns <= self.now_ns {
            return;
        }
        let gap_ns = to_ns - self.now_ns;
        let steps = gap_ns.div_ceil(LONGEST_STEP_NS);
        let step_s = gap_ns as f64 / steps as f64 * 1e-9;
        let begin_ns = self.now_ns;
        let least_up = self.limits.tilt_deg.to_radians().cos();
        for step in 1..=steps {
            let next = self.vehicle.step(&self.state, &self.command, step_s);
            self.now_ns = begin_ns + gap_ns * step / steps;
            let loss = if !next.is_finite() {
                // The last state that was one is kept: it can be recorded and plotted.
                Some(Loss::NotANumber)
            } else {
                self.state = next;
                if next.up().z < least_up {
                    Some(Loss::Tilt)
                } else if next.position_m.z < 0.0 {
                    Some(Loss::Ground)
                } else {
                    None
                }
            };
            if let Some(loss) = loss {
                self.lose(loss);
                return;
            }
        }
    }

    fn lose(&mut self, why: Loss) {
        self.loss.get_or_insert((self.now_ns, why));
    }

    /// Gives the rotors a command from `at_ns` on; until then they hold what they have. Commands
    /// that were to take effect at that time or later are dropped. At most [`MAX_PENDING`] may
    /// wait; a further one displaces the newest.
    pub(crate) fn command_at(&mut self, at_ns: u64, command: RotorSpeeds) {
        while self.pending.back().is_some_and(|&(effective_ns, _)| effective_ns >= at_ns)
            || self.pending.len() >= MAX_PENDING
        {
            self.pending.pop_back();
        }
        if at_ns <= self.now_ns {
            self.command = command;
        } else {
            self.pending.push_back((at_ns, command));
        }
    }

    /// Flies another vehicle from here on: what the controllers do not know of.
    pub fn replace_vehicle(&mut self, vehicle: Vehicle) {
        self.vehicle = vehicle;
    }

    /// The vehicle now.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Distance from its present reference, m.
    pub fn position_error_m(&self) -> f64 {
        (self.state.position_m - self.reference.at(self.now_s()).position_m).norm()
    }

    /// Its reference.
    pub fn reference(&self) -> &Reference {
        &self.reference
    }

    /// The time that it has been moved to, ns.
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// The same in seconds.
    pub(crate) fn now_s(&self) -> f64 {
        self.now_ns as f64 * 1e-9
    }

    /// When and why the flight was lost; `None` while it flies.
    pub fn loss(&self) -> Option<(u64, Loss)> {
        self.loss
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vehicle::VehicleConfig;
    use proptest::prelude::*;

    fn plant() -> Plant {
        let vehicle = Vehicle::new(&VehicleConfig::default()).unwrap();
        Plant::new(vehicle, Limits::default(), Reference::Hover { at_m: [0.0, 0.0, 5.0] })
    }

    #[test]
    fn a_command_acts_from_its_time_on() {
        let mut late = plant();
        late.command_at(3_000_000, [600.0; 4]);
        late.advance_to(3_000_000);
        assert!((late.state().rotors_rad_s[0] - plant().state().rotors_rad_s[0]).abs() < 1e-9);
        late.advance_to(4_000_000);
        assert!(late.state().rotors_rad_s[0] > plant().state().rotors_rad_s[0] + 1.0);
        let mut direct = plant();
        direct.advance_to(3_000_000);
        direct.command_at(3_000_000, [600.0; 4]);
        direct.advance_to(4_000_000);
        assert!((direct.state().position_m - late.state().position_m).norm() < 1e-12);
    }

    #[test]
    fn commands_under_way_arrive_in_order_and_later_ones_are_overtaken() {
        let ms = |n: u64| n * 1_000_000;
        let speeds = |commands: &[(u64, f64)]| {
            let mut plant = plant();
            commands.iter().for_each(|&(at_ns, speed)| plant.command_at(at_ns, [speed; 4]));
            plant.advance_to(ms(30));
            plant.state().rotors_rad_s[0]
        };
        let both = speeds(&[(ms(4), 600.0), (ms(8), 300.0)]);
        let first = speeds(&[(ms(4), 600.0)]);
        assert!(both < first && both > 300.0);
        assert_eq!(speeds(&[(ms(8), 300.0), (ms(4), 600.0)]), first);
        let many: Vec<_> = (1..100).map(|i| (ms(100 + i), 0.0)).collect();
        assert_eq!(speeds(&many), plant().state().rotors_rad_s[0], "none has taken effect");
    }

    #[test]
    fn losses_latch_and_say_why() {
        let lost = |command: [f64; 4], to_ns: u64| {
            let mut plant = plant();
            plant.command_at(0, command);
            (1..=to_ns / 100_000_000).for_each(|i| plant.advance_to(i * 100_000_000));
            let at = *plant.state();
            plant.advance_to(plant.now_ns() + 500_000_000);
            assert_eq!(*plant.state(), at, "a lost vehicle stays");
            plant.loss().map(|(_, why)| why)
        };
        assert_eq!(lost([800.0; 4], 3_000_000_000), Some(Loss::Position));
        assert_eq!(lost([100.0, 480.0, 600.0, 480.0], 1_000_000_000), Some(Loss::Tilt));
        assert_eq!(lost([f64::NAN; 4], 1_000_000_000), Some(Loss::NotANumber));
        let mut silent = plant();
        silent.advance_to(LONGEST_SILENCE_NS + 1);
        assert_eq!(silent.loss(), Some((0, Loss::Silence)));
        let mut low = Plant::new(
            Vehicle::new(&VehicleConfig::default()).unwrap(),
            Limits::default(),
            Reference::Hover { at_m: [0.0, 0.0, 1.0] },
        );
        low.command_at(0, [100.0; 4]);
        low.advance_to(900_000_000);
        assert_eq!(low.loss().map(|(_, why)| why), Some(Loss::Ground));
    }

    proptest! {
        #[test]
        fn however_time_is_cut_the_flight_is_the_same(cuts in proptest::collection::vec(1u64..9_000_000, 1..40)) {
            let command = [500.0, 480.0, 470.0, 490.0];
            let total: u64 = cuts.iter().sum();
            let (mut cut, mut whole) = (plant(), plant());
            cut.command_at(0, command);
            whole.command_at(0, command);
            for length in cuts {
                cut.advance_to(cut.now_ns() + length);
            }
            whole.advance_to(total);
            prop_assert_eq!(cut.now_ns(), whole.now_ns());
            prop_assert!((cut.state().position_m - whole.state().position_m).norm() < 1e-7);
        }
    }
}

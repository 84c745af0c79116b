//! The plant at the far end of the link: a process of its own that keeps real time. Until a new
//! input comes, the plant goes on under the old one; so a controller that is late finds another
//! state than the one it would have found in time.

use std::process::ExitCode;

use serde::{Deserialize, Serialize};
use takt_link_daq::{FarEnd, far_end};

use super::{Plant, PlantConfig, Reference, State};
use crate::error_meter::ErrorMeter;

/// Steps of the integration and of the error's account: the plants here are slower by a hundred
/// times.
const GRID_NS: u64 = 1_000_000;
/// Time that a frozen process makes up for at most: what went on for longer is no control loop, and
/// must not keep it from the next answer.
const MAX_NS: u64 = 1_000_000_000;

/// Description sent to the plant's process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Description {
    pub plant: PlantConfig,
    pub reference: Reference,
}

/// Volts at the board and quantities of the plant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wiring {
    drive_per_v: f64,
    position_per_v: f64,
    speed_per_v: f64,
    input_limit: f64,
}

impl Wiring {
    pub fn of(plant: &PlantConfig) -> Self {
        let PlantConfig { drive_per_v, position_per_v, speed_per_v, input_limit, .. } = *plant;
        Self { drive_per_v, position_per_v, speed_per_v, input_limit }
    }

    /// The level that asks for the input `u`; none for what is not a number.
    pub fn drive_v(&self, u: f64) -> f64 {
        let u = if u.is_nan() { 0.0 } else { u.clamp(-self.input_limit, self.input_limit) };
        u / self.drive_per_v
    }

    /// The input that a level asks for.
    fn input(&self, drive_v: f64) -> f64 {
        drive_v * self.drive_per_v
    }

    /// Reading of the sensors in a state.
    fn sensors_v(&self, [position, speed]: State) -> [f64; 2] {
        [position / self.position_per_v, speed / self.speed_per_v]
    }

    /// The state that the sensors show.
    pub fn state(&self, [position_v, speed_v]: [f64; 2]) -> State {
        [position_v * self.position_per_v, speed_v * self.speed_per_v]
    }
}

/// A plant with a clock.
pub(crate) struct RealTimePlant {
    plant: Plant,
    reference: Reference,
    wiring: Wiring,
    input: f64,
    /// The state is that of this time; None before the first call.
    at_ns: Option<u64>,
    /// Next time at which the error is taken.
    grid_ns: u64,
    error: ErrorMeter,
}

impl RealTimePlant {
    pub fn new(Description { plant, reference }: &Description) -> Self {
        Self {
            plant: Plant::new(plant),
            reference: *reference,
            wiring: Wiring::of(plant),
            input: 0.0,
            at_ns: None,
            grid_ns: 0,
            error: ErrorMeter::default(),
        }
    }

    /// Lets time pass under the present input.
    fn advance(&mut self, now_ns: u64) {
        let Some(mut at_ns) = self.at_ns else {
            self.at_ns = Some(now_ns);
            self.grid_ns = now_ns + GRID_NS;
            return;
        };
        if now_ns.saturating_sub(at_ns) > MAX_NS {
            at_ns = now_ns - MAX_NS;
            self.grid_ns = at_ns + GRID_NS;
        }
        while at_ns < now_ns {
            let until_ns = now_ns.min(self.grid_ns);
            self.plant.advance((until_ns - at_ns) as f64 / 1e9, self.input);
            at_ns = until_ns;
            if at_ns == self.grid_ns {
                self.error.push(self.plant.state()[0] - self.reference.at(self.plant.time_s()).x);
                self.grid_ns += GRID_NS;
            }
        }
        self.at_ns = Some(at_ns);
    }
}

impl FarEnd for RealTimePlant {
    fn exchange(&mut self, now_ns: u64, drive_v: f64) -> [f64; 2] {
        self.advance(now_ns);
        self.input = self.wiring.input(drive_v);
        self.wiring.sensors_v(self.plant.state())
    }

    fn report(&self) -> serde_json::Value {
        serde_json::to_value(self.error.tracking()).unwrap_or_default()
    }
}

/// Is the plant of a DAQ loop: the body of the process at the far end ([`far_end::serve`]).
pub fn serve() -> ExitCode {
    far_end::serve(&|description| {
        let description: Description = serde_json::from_value(description.clone())?;
        description.plant.validate()?;
        Ok(Box::new(RealTimePlant::new(&description)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::ControllerConfig;

    const MS: u64 = 1_000_000;

    /// Root mean squared error of a controller whose inputs reach the plant `late_ns` after its
    /// sensors were read, every millisecond, on a clock of the test's own.
    fn error(kind: &str, late_ns: u64) -> f64 {
        let reference = Reference::Sine { amplitude: 1.0, frequency_hz: 1.0 };
        let config = PlantConfig::default();
        let description = Description { plant: config.clone(), reference };
        let mut far = RealTimePlant::new(&description);
        let wiring = Wiring::of(&config);
        let mut law = ControllerConfig::of_kind(kind).unwrap().build(&config, &reference).unwrap().unwrap();
        let mut sensed_v = far.exchange(0, 0.0);
        let (mut now_ns, mut before_ns, mut drive_v) = (0, 0, 0.0);
        while now_ns < 10_000 * MS {
            let dt_s = (now_ns - before_ns).max(MS) as f64 / 1e9;
            let u = law.control(now_ns as f64 / 1e9, dt_s, wiring.state(sensed_v));
            before_ns = now_ns;
            now_ns += late_ns;
            // The input takes effect late; the next sample comes a millisecond after.
            far.exchange(now_ns, wiring.drive_v(u));
            drive_v = wiring.drive_v(u);
            now_ns += MS;
            sensed_v = far.exchange(now_ns, drive_v);
        }
        assert!(drive_v.is_finite());
        let tracking: crate::Tracking = serde_json::from_value(far.report()).unwrap();
        tracking.rms_error
    }

    #[test]
    fn a_late_controller_has_the_greater_error() {
        for kind in ["neuro_adaptive", "pid", "mpc"] {
            let (prompt, late) = (error(kind, 0), error(kind, 40 * MS));
            println!("{kind}: in time {prompt}, 40 ms late {late}");
            assert!(late > 2.0 * prompt, "{kind}: {prompt} {late}");
        }
    }

    #[test]
    fn time_passes_at_the_plant_whether_or_not_somebody_asks() {
        let config = PlantConfig { start: [1.0, 0.0], ..PlantConfig::default() };
        let description = Description { plant: config, reference: Reference::default() };
        let (mut often, mut seldom) = (RealTimePlant::new(&description), RealTimePlant::new(&description));
        let mut states = [[0.0; 2]; 2];
        for now_ns in (0..=500 * MS).step_by(130_001) {
            states[0] = often.exchange(now_ns, 1.0);
        }
        seldom.exchange(0, 1.0);
        states[1] = seldom.exchange(500 * MS / 130_001 * 130_001, 1.0);
        assert!((states[0][0] - states[1][0]).abs() < 1e-6, "{states:?}");
        assert!((states[0][0] - 2.0).abs() > 0.1, "it has moved: {states:?}");
        // A gap of an hour is not computed whole, and leaves numbers.
        assert!(seldom.exchange(3_600_000 * MS, f64::NAN).iter().all(|v| v.is_finite()));
        assert!(seldom.exchange(3_600_001 * MS, 0.0).iter().all(|v| v.is_finite()));
    }
}

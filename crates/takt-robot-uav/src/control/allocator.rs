//! From collective thrust and torque to four rotor speeds within their limits.

use nalgebra::Vector3;

use crate::vehicle::{ROTORS, RotorSpeeds, VehicleConfig};

/// Decision of the allocator.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Allocation {
    pub rotors_rad_s: RotorSpeeds,
    /// Bit per rotor that stands at a limit because more, or less, was asked.
    pub at_limit: u8,
    /// Roll and pitch got less than asked.
    pub tilt_reduced: bool,
    /// The collective thrust was moved to make room for roll and pitch, or lies beyond the rotors.
    pub thrust_moved: bool,
    /// Yaw got less than asked.
    pub yaw_reduced: bool,
}

/// Inverts the rotors' geometry. When the rotors cannot give everything, roll and pitch come first,
/// since they hold the vehicle up; then thrust; and yaw, which only turns the nose, gets what is
/// left.
#[derive(Clone, Debug)]
pub struct ControlAllocator {
    /// Thrust of each rotor over roll torque, and over pitch torque, 1/m.
    tilt: [[f64; 2]; ROTORS],
    /// Thrust of each rotor over yaw torque, 1/m.
    yaw: [f64; ROTORS],
    thrust_n_s2: f64,
    least_n: f64,
    most_n: f64,
}

impl ControlAllocator {
    pub fn new(vehicle: &VehicleConfig) -> Self {
        let positions = vehicle.rotor_positions();
        // Both layouts are symmetric, so the geometry's rows are orthogonal and its inverse is its
        // scaled transpose.
        let (mut xx, mut yy) = (0.0, 0.0);
        for place in &positions {
            xx += place.x * place.x;
            yy += place.y * place.y;
        }
        let signs = vehicle.yaw_signs();
        let (least_n, most_n) = vehicle.rotor_thrust_range_n();
        Self {
            tilt: positions.map(|place| [place.y / yy, -place.x / xx]),
            yaw: signs.map(|sign| sign / (ROTORS as f64 * vehicle.torque_per_thrust_m)),
            thrust_n_s2: vehicle.thrust_n_s2,
            least_n,
            most_n,
        }
    }

    /// Rotor speeds for a collective thrust in N and a torque in N·m. An invalid number counts as
    /// zero.
    pub fn allocate(&self, thrust_n: f64, torque: &Vector3<f64>) -> Allocation {
        let number = |x: f64| if x.is_finite() { x } else { 0.0 };
        let (thrust_n, torque) = (number(thrust_n), torque.map(number));
        let span = self.most_n - self.least_n;

        let mut parts: [f64; ROTORS] =
            std::array::from_fn(|i| self.tilt[i][0] * torque.x + self.tilt[i][1] * torque.y);
        let (low, high) = extremes(&parts);
        let tilt_reduced = high - low > span;
        if tilt_reduced {
            let share = span / (high - low);
            parts = parts.map(|part| part * share);
        }

        let (low, high) = extremes(&parts);
        let asked_n = thrust_n / ROTORS as f64;
        // Rounding may leave the bounds a hair the wrong way round, so not `clamp`, which panics
        // then.
        let base_n = asked_n.max(self.least_n - low).min(self.most_n - high);
        let thrust_moved = (base_n - asked_n).abs() > 1e-9;

        let mut share: f64 = 1.0;
        for (part, yaw) in parts.iter().zip(&self.yaw) {
            let (now_n, more_n) = (base_n + part, yaw * torque.z);
            let limit_n = if more_n > 0.0 { self.most_n } else { self.least_n };
            if (more_n > 0.0 && now_n + more_n > limit_n) || (more_n < 0.0 && now_n + more_n < limit_n) {
                share = share.min(((limit_n - now_n) / more_n).max(0.0));
            }
        }

        let mut at_limit = 0;
        let rotors_rad_s = std::array::from_fn(|i| {
            let wanted_n = asked_n + parts[i] + self.yaw[i] * torque.z;
            at_limit |= u8::from(wanted_n > self.most_n || wanted_n < self.least_n) << i;
            let given_n = base_n + parts[i] + share * self.yaw[i] * torque.z;
            (given_n.max(self.least_n).min(self.most_n) / self.thrust_n_s2).sqrt()
        });
        Allocation { rotors_rad_s, at_limit, tilt_reduced, thrust_moved, yaw_reduced: share < 1.0 }
    }
}

fn extremes(parts: &[f64; ROTORS]) -> (f64, f64) {
    parts
        .iter()
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), &part| (low.min(part), high.max(part)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vehicle::Layout;
    use proptest::prelude::*;

    /// Thrust and torque that rotor speeds give, from the geometry alone.
    fn wrench(vehicle: &VehicleConfig, speeds: &RotorSpeeds) -> (f64, Vector3<f64>) {
        let (positions, signs) = (vehicle.rotor_positions(), vehicle.yaw_signs());
        let mut total = (0.0, Vector3::zeros());
        for i in 0..ROTORS {
            let thrust = vehicle.thrust_n_s2 * speeds[i] * speeds[i];
            total.0 += thrust;
            total.1 += positions[i].cross(&Vector3::new(0.0, 0.0, thrust));
            total.1.z += signs[i] * vehicle.torque_per_thrust_m * thrust;
        }
        total
    }

    fn vehicles() -> impl Strategy<Value = VehicleConfig> {
        prop_oneof![Just(Layout::Plus), Just(Layout::X)]
            .prop_map(|layout| VehicleConfig { layout, ..VehicleConfig::default() })
    }

    proptest! {
        #[test]
        fn what_fits_is_given_exactly(
            vehicle in vehicles(),
            share in 0.35..0.55f64,
            torque in proptest::array::uniform3(-0.15..0.15f64),
        ) {
            let thrust_n = share * 4.0 * vehicle.rotor_thrust_range_n().1;
            let torque = Vector3::new(torque[0], torque[1], torque[2] * 0.2);
            let allocation = ControlAllocator::new(&vehicle).allocate(thrust_n, &torque);
            let given = wrench(&vehicle, &allocation.rotors_rad_s);
            prop_assert!((given.0 - thrust_n).abs() < 1e-9 && (given.1 - torque).norm() < 1e-9, "{:?}", given);
            prop_assert_eq!(
                (allocation.at_limit, allocation.tilt_reduced, allocation.thrust_moved, allocation.yaw_reduced),
                (0, false, false, false)
            );
        }

        #[test]
        fn limits_hold_and_roll_and_pitch_come_first(
            vehicle in vehicles(),
            thrust_n in -10.0..60.0f64,
            torque in proptest::array::uniform3(-3.0..3.0f64),
        ) {
            let torque = Vector3::from(torque);
            let allocation = ControlAllocator::new(&vehicle).allocate(thrust_n, &torque);
            for speed in allocation.rotors_rad_s {
                prop_assert!((vehicle.rotor_min_rad_s - 1e-6..=vehicle.rotor_max_rad_s + 1e-6).contains(&speed));
            }
            let (thrust, given) = wrench(&vehicle, &allocation.rotors_rad_s);
            if allocation.tilt_reduced {
                // Reduced in size, not turned.
                let cross = given.x * torque.y - given.y * torque.x;
                prop_assert!(cross.abs() < 1e-6, "{given:?} for {torque:?}");
                prop_assert!(given.xy().norm() <= torque.xy().norm());
            } else {
                prop_assert!((given.xy() - torque.xy()).norm() < 1e-9, "{given:?} for {torque:?}");
            }
            if !allocation.thrust_moved {
                prop_assert!((thrust - thrust_n).abs() < 1e-6);
            }
            prop_assert!(given.z.abs() <= torque.z.abs() + 1e-9 && given.z * torque.z >= -1e-9);
        }
    }

    #[test]
    fn odd_numbers_count_as_nothing() {
        let vehicle = VehicleConfig::default();
        let allocation =
            ControlAllocator::new(&vehicle).allocate(f64::NAN, &Vector3::new(f64::INFINITY, f64::NAN, 0.0));
        assert!(allocation.rotors_rad_s.iter().all(|&s| (s - vehicle.rotor_min_rad_s).abs() < 1e-9));
        assert!(allocation.thrust_moved);
    }
}

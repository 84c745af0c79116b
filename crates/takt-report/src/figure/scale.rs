//! Axes: from values to places, and where the marks go.

/// Scale of an axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Scale {
    low: f64,
    high: f64,
    log: bool,
    /// Unit of the marks: round numbers of minutes are not round numbers of seconds.
    unit: f64,
}

/// Largest range of axes, and the lowest begin of logarithmic ones: far beyond any time, count or
/// share, and far from where one more decade is infinite or 0.
const DRAWN: std::ops::RangeInclusive<f64> = 1e-30..=1e30;

impl Scale {
    /// A linear axis from 0 that holds `high`.
    pub(crate) fn linear(high: f64) -> Self {
        let high = drawable(high);
        let step = nice_step(high / 5.0);
        Self { low: 0.0, high: (high / step).ceil() * step, log: false, unit: 1.0 }
    }

    /// A linear axis from 0 to `high` exactly, whose marks are round in multiples of `unit`: time.
    pub(crate) fn span(high: f64, unit: f64) -> Self {
        Self { low: 0.0, high: drawable(high), log: false, unit }
    }

    /// A logarithmic axis that holds `low..=high`. Values at or below its beginning are set on its
    /// beginning. Values that cannot be drawn (no value at all, nothing but 0) have an axis from 1
    /// to 10.
    pub(crate) fn log(low: f64, high: f64) -> Self {
        let low = if DRAWN.contains(&low) { low } else { 1.0 };
        let high = if high > low { high.min(*DRAWN.end()) } else { low * 10.0 };
        let (low, mut high) = (round_125(low, false), round_125(high, true));
        if high < low * 10.0 {
            high = low * 10.0;
        }
        Self { low, high, log: true, unit: 1.0 }
    }

    /// A logarithmic axis where a linear one would squeeze what is typical into its first
    /// twentieth, else a linear one.
    pub(crate) fn suited(least: f64, typical: f64, high: f64) -> Self {
        if high > 20.0 * typical.max(1.0) { Self::log(least.max(1.0), high) } else { Self::linear(high) }
    }

    /// Whether a value lies on the axis.
    pub(crate) fn holds(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }

    /// Whether it is logarithmic.
    pub(crate) fn is_log(&self) -> bool {
        self.log
    }

    /// The place of a value, 0..=1.
    pub(crate) fn place(&self, value: f64) -> f64 {
        let share = if self.log {
            (value.max(self.low) / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        if share.is_nan() { 0.0 } else { share.clamp(0.0, 1.0) }
    }

    /// Values with a mark and a label; at most about `available`.
    pub(crate) fn marks(&self, available: usize) -> Vec<f64> {
        let available = available.max(2);
        if !self.log {
            let step = nice_step((self.high - self.low) / self.unit / available as f64) * self.unit;
            let count = ((self.high - self.low) / step + 1e-9).floor() as usize;
            return (0..=count.min(50)).map(|i| self.low + i as f64 * step).collect();
        }
        let (first, last) = (self.low.log10().floor() as i32, self.high.log10().ceil() as i32);
        let within = |v: &f64| *v >= self.low * 0.999 && *v <= self.high * 1.001;
        let of = |digits: &[f64]| -> Vec<f64> {
            let decade = |e: i32| digits.iter().map(move |d| d * 10f64.powi(e));
            (first..=last).flat_map(decade).filter(within).collect()
        };
        for digits in [&[1.0, 2.0, 5.0][..], &[1.0, 3.0], &[1.0]] {
            let marks = of(digits);
            if marks.len() <= available {
                return marks;
            }
        }
        let marks = of(&[1.0]);
        let every = marks.len().div_ceil(available).max(1);
        marks.into_iter().step_by(every).collect()
    }
}

/// The end of a linear axis.
fn drawable(high: f64) -> f64 {
    if DRAWN.contains(&high) { high } else { 1.0 }
}

fn nice_step(rough: f64) -> f64 {
    let power = 10f64.powf(rough.max(f64::MIN_POSITIVE).log10().floor());
    let digit = rough / power;
    let nice = [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().find(|n| digit <= n * 1.000_001).unwrap_or(10.0);
    nice * power
}

fn round_125(value: f64, up: bool) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    let digit = value / power;
    let steps = [1.0, 2.0, 5.0, 10.0];
    let found = if up {
        steps.into_iter().find(|s| digit <= s * 1.000_001)
    } else {
        steps.into_iter().rev().find(|s| digit >= s * 0.999_999)
    };
    found.unwrap_or(1.0) * power
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn marks_are_round() {
        assert_eq!(Scale::linear(93.0).marks(5), vec![0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        // 0, 2, ... 10 minutes.
        assert_eq!(Scale::span(600.0, 60.0).marks(6), vec![0.0, 120.0, 240.0, 360.0, 480.0, 600.0]);
        assert_eq!(Scale::log(3.0, 9000.0).marks(6), vec![10.0, 100.0, 1000.0, 10000.0]);
        assert_eq!(Scale::log(30.0, 400.0).marks(6), vec![20.0, 50.0, 100.0, 200.0, 500.0]);
    }

    #[test]
    fn an_axis_of_nothing_or_of_everything_has_marks() {
        let ends =
            [0.0, f64::MIN_POSITIVE, 5e-324, 1e-30, 1.0, 1e30, f64::MAX, f64::INFINITY, f64::NAN, -1.0];
        for low in ends {
            for high in ends {
                for scale in [
                    Scale::log(low, high),
                    Scale::suited(low, high, high),
                    Scale::linear(high),
                    Scale::span(high, 60.0),
                ] {
                    let marks = scale.marks(6);
                    assert!(!marks.is_empty() && marks.len() < 60, "{low} to {high}: {marks:?}");
                    assert!(marks.iter().all(|mark| mark.is_finite()), "{low} to {high}: {marks:?}");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn every_value_has_a_place(values in proptest::collection::vec(0.0f64..1e13, 1..20), available in 0usize..20) {
            let high = values.iter().copied().fold(0.0, f64::max);
            let low = values.iter().copied().fold(f64::MAX, f64::min);
            for scale in [Scale::linear(high), Scale::span(high, 60.0), Scale::log(low, high), Scale::suited(low, values[0], high)] {
                for &v in &values {
                    prop_assert!((0.0..=1.0).contains(&scale.place(v)));
                }
                let marks = scale.marks(available);
                prop_assert!(!marks.is_empty() && marks.len() <= available.max(2) + 2, "{:?} {}", marks, available);
                prop_assert!(marks.is_sorted());
            }
            let log = Scale::log(low, high);
            prop_assert!(log.place(high) > log.place(low) || high == low);
        }
    }
}

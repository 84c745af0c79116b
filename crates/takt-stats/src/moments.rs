//! Count, mean and standard deviation of whole numbers, exactly.
//!
//! Sums are integers (128 bits for the values, 192 for their squares), so that neither the order of
//! the values nor their number changes the result: a recorder that saw 3.5e9 values and a batch
//! over the same values agree to the last bit. Only the final division rounds.

use serde::{Deserialize, Serialize};

/// Running sums of unsigned whole numbers. u64 values cannot overflow them: 2^64 squares below
/// 2^128 fit 192 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Words", into = "Words")]
pub(crate) struct Moments {
    count: u64,
    sum: u128,
    squares_low: u128,
    squares_high: u64,
    min: u64,
    max: u64,
}

/// Written form of the sums: 64-bit words, lowest first, because few formats carry 128-bit numbers.
#[derive(Serialize, Deserialize)]
struct Words {
    count: u64,
    sum: [u64; 2],
    squares: [u64; 3],
    min: u64,
    max: u64,
}

impl From<Moments> for Words {
    fn from(m: Moments) -> Self {
        let split = |v: u128| [v as u64, (v >> 64) as u64];
        let [low, middle] = split(m.squares_low);
        Self {
            count: m.count,
            sum: split(m.sum),
            squares: [low, middle, m.squares_high],
            min: m.min,
            max: m.max,
        }
    }
}

impl From<Words> for Moments {
    fn from(w: Words) -> Self {
        let join = |low: u64, high: u64| u128::from(low) | u128::from(high) << 64;
        Self {
            count: w.count,
            sum: join(w.sum[0], w.sum[1]),
            squares_low: join(w.squares[0], w.squares[1]),
            squares_high: w.squares[2],
            min: w.min,
            max: w.max,
        }
    }
}

impl Moments {
    /// The sums of a sample whose values are all whole, non-negative and below 2^53 (where every
    /// whole number is an f64); `None` where one is not.
    pub(crate) fn of_whole(values: &[f64]) -> Option<Self> {
        const LIMIT: f64 = (1u64 << 53) as f64;
        let mut moments = Self::default();
        for &v in values {
            if !(0.0..=LIMIT).contains(&v) || v.fract() != 0.0 {
                return None;
            }
            moments.push(v as u64);
        }
        Some(moments)
    }

    #[inline]
    pub(crate) fn push(&mut self, value: u64) {
        self.min = if self.count == 0 { value } else { self.min.min(value) };
        self.max = self.max.max(value);
        self.count += 1;
        self.sum += u128::from(value);
        let (low, carry) = self.squares_low.overflowing_add(u128::from(value) * u128::from(value));
        self.squares_low = low;
        self.squares_high = self.squares_high.wrapping_add(u64::from(carry));
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        self.min = if self.count == 0 { other.min } else { self.min.min(other.min) };
        self.max = self.max.max(other.max);
        self.count = self.count.saturating_add(other.count);
        self.sum = self.sum.saturating_add(other.sum);
        let (low, carry) = self.squares_low.overflowing_add(other.squares_low);
        self.squares_low = low;
        self.squares_high = self.squares_high.wrapping_add(other.squares_high).wrapping_add(u64::from(carry));
    }

    /// Whether these sums can be those of a sample: for what was read back from a file.
    pub(crate) fn plausible(&self) -> bool {
        let n = u128::from(self.count);
        if n == 0 {
            return *self == Self::default();
        }
        self.count < u64::MAX / 2
            && self.min <= self.max
            && n * u128::from(self.min) <= self.sum
            && self.sum <= n * u128::from(self.max)
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    pub(crate) fn min(&self) -> u64 {
        self.min
    }

    pub(crate) fn max(&self) -> u64 {
        self.max
    }

    pub(crate) fn mean(&self) -> f64 {
        if self.count == 0 {
            return 0.0;
        }
        let n = u128::from(self.count);
        (self.sum / n) as f64 + (self.sum % n) as f64 / self.count as f64
    }

    /// Sample standard deviation (n - 1), 0 for fewer than two values.
    ///
    /// With m = floor(mean) and r = sum mod n: the squares about m are D = Σv² - m(Σv + r), a whole
    /// number, and the squares about the mean are D - r²/n. D is computed modulo 2^192, above which
    /// it cannot be.
    pub(crate) fn stddev(&self) -> f64 {
        if self.count < 2 {
            return 0.0;
        }
        let n = u128::from(self.count);
        let (m, r) = (self.sum / n, self.sum % n);
        let (product_low, product_high) = multiply(m as u64, self.sum.wrapping_add(r));
        let (low, borrow) = self.squares_low.overflowing_sub(product_low);
        let high = self.squares_high.wrapping_sub(product_high).wrapping_sub(u64::from(borrow));
        let degrees = (self.count - 1) as f64;
        let variance = match (high, low.checked_mul(n)) {
            (0, Some(scaled)) => scaled.saturating_sub(r * r) as f64 / self.count as f64 / degrees,
            _ => {
                let about_floor = high as f64 * 2f64.powi(128) + low as f64;
                (about_floor - r as f64 * (r as f64 / self.count as f64)) / degrees
            }
        };
        variance.max(0.0).sqrt()
    }
}

/// a × b modulo 2^192, as (low 128 bits, high 64 bits).
fn multiply(a: u64, b: u128) -> (u128, u64) {
    let low = u128::from(a) * (b & u128::from(u64::MAX));
    let high = u128::from(a) * (b >> 64);
    let (sum, carry) = low.overflowing_add(high << 64);
    (sum, ((high >> 64) as u64).wrapping_add(u64::from(carry)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(values: &[u64]) -> Moments {
        let mut m = Moments::default();
        values.iter().for_each(|&v| m.push(v));
        m
    }

    #[test]
    fn known_values() {
        assert_eq!(of(&[]).stddev(), 0.0);
        let m = of(&[2, 4, 4, 4, 5, 5, 7, 9]);
        assert_eq!((m.mean(), m.min(), m.max()), (5.0, 2, 9));
        assert_eq!(m.stddev(), (32.0f64 / 7.0).sqrt());
    }

    #[test]
    fn the_greatest_values_do_not_overflow() {
        let m = of(&[u64::MAX, u64::MAX, u64::MAX]);
        assert_eq!((m.mean(), m.stddev()), (u64::MAX as f64, 0.0));
        let m = of(&[0, u64::MAX, 0, u64::MAX]);
        let expected = (u64::MAX as f64 / 2.0) * (4.0f64 / 3.0).sqrt();
        assert!((m.stddev() / expected - 1.0).abs() < 1e-12);
    }

    #[test]
    fn no_cancellation_far_from_zero() {
        // A mean of 1e15 and a spread of 1: the textbook formula in f64 gives nonsense here.
        let values: Vec<u64> = (0..1000).map(|i| 1_000_000_000_000_000 + i % 2).collect();
        assert!((of(&values).stddev() - (0.25f64 * 1000.0 / 999.0).sqrt()).abs() < 1e-15);
    }

    proptest! {
        #[test]
        fn as_two_passes(values in proptest::collection::vec(0u64..1_000_000_000, 2..200)) {
            let n = values.len() as f64;
            let mean = values.iter().sum::<u64>() as f64 / n;
            let sd = (values.iter().map(|&v| (v as f64 - mean).powi(2)).sum::<f64>() / (n - 1.0)).sqrt();
            let m = of(&values);
            prop_assert!((m.mean() - mean).abs() <= 1e-12 * mean.max(1.0));
            prop_assert!((m.stddev() - sd).abs() <= 1e-10 * sd.max(1.0));
        }

        #[test]
        fn merging_is_concatenating(a in proptest::collection::vec(any::<u64>(), 0..50),
                                    b in proptest::collection::vec(any::<u64>(), 0..50)) {
            let mut merged = of(&a);
            merged.merge(&of(&b));
            prop_assert_eq!(merged, of(&[a, b].concat()));
        }
    }
}

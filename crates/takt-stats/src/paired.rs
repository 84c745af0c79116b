//! Paired comparisons: what leaving something out costs, from pairs that were measured next to each
//! other in an order drawn by lot.
//!
//! The decision is Fisher's randomisation test (The Design of Experiments, 1935, section 21): were
//! there no effect, each pair's difference could as well have the other sign, because the lot alone
//! decided which came first. This holds for any distribution of latencies, with any tail, and for
//! any drift that is slow compared with a pair. Differences are taken of logarithms, so that a rare
//! latency of a hundred times the usual one counts, and does not decide alone; nothing is left out.

use rand::Rng;
use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

use crate::quantile;
use crate::random::generator;

/// Draws of signs and of pairs.
const DRAWS: usize = 2000;
/// Up to so many pairs all signs are tried instead of drawn.
const MAX_EXACT: usize = 12;
/// Values below are taken as this: a logarithm needs a positive number, and no latency is shorter
/// than a clock shows.
const LEAST: f64 = 1e-3;

/// Result of a paired comparison, in the unit of the values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Paired {
    /// Geometric mean of `without` less that of `with`: positive where it helps.
    pub gain: f64,
    /// Lower end of its interval.
    pub low: f64,
    /// Upper end of its interval.
    pub high: f64,
    /// Probability of so great a gain where there is no effect: one-sided.
    pub p: f64,
    /// Pairs.
    pub pairs: usize,
}

/// Compares pairs (`without`, `with`); `None` with less than three of them, or with values that are
/// not finite.
///
/// The interval is that of a bootstrap of the pairs (percentiles), made wider as Student's quantile
/// is wider than the normal one.
pub fn compare(pairs: &[(f64, f64)], confidence: f64, seed: u64) -> Option<Paired> {
    let finite = pairs.iter().all(|(a, b)| a.is_finite() && b.is_finite());
    if pairs.len() < 3 || !finite || !(0.5..1.0).contains(&confidence) {
        return None;
    }
    let logs: Vec<(f64, f64)> = pairs.iter().map(|(a, b)| (a.max(LEAST).ln(), b.max(LEAST).ln())).collect();
    let n = logs.len() as f64;
    let of = |sum: (f64, f64)| (sum.0 / n).exp() - (sum.1 / n).exp();
    let gain = of(logs.iter().fold((0.0, 0.0), |sum, pair| (sum.0 + pair.0, sum.1 + pair.1)));
    let mut rng = generator(seed);
    let mut drawn: Vec<f64> = (0..DRAWS)
        .map(|_| {
            let mut sum = (0.0, 0.0);
            for _ in 0..logs.len() {
                let pair = logs[(rng.next_u64() % logs.len() as u64) as usize];
                sum = (sum.0 + pair.0, sum.1 + pair.1);
            }
            of(sum)
        })
        .collect();
    drawn.sort_unstable_by(f64::total_cmp);
    let tail = (1.0 - confidence) / 2.0;
    let student = StudentsT::new(0.0, 1.0, n - 1.0).ok()?.inverse_cdf(1.0 - tail);
    let normal = Normal::standard().inverse_cdf(1.0 - tail);
    let wider = student / normal * (n / (n - 1.0)).sqrt();
    let at = |q| quantile::of_sorted(&drawn, q).map(|drawn| gain + (drawn - gain) * wider);
    let differences: Vec<f64> = logs.iter().map(|pair| pair.0 - pair.1).collect();
    let p = sign_test(&differences, &mut rng);
    Some(Paired { gain, low: at(tail)?, high: at(1.0 - tail)?, p, pairs: pairs.len() })
}

/// The share of all choices of signs whose sum is at least what was seen.
fn sign_test(differences: &[f64], rng: &mut crate::random::Pcg) -> f64 {
    let seen: f64 = differences.iter().sum();
    let sum = |signs: u64| -> f64 {
        let signed = differences.iter().enumerate().map(|(at, d)| if signs >> at & 1 == 1 { *d } else { -d });
        signed.sum()
    };
    // Sums that differ by rounding alone are equal.
    let slack = 1e-9 * differences.iter().map(|d| d.abs()).sum::<f64>();
    let reaches = |sum: f64| sum >= seen - slack;
    if differences.len() <= MAX_EXACT {
        let all = 1_u64 << differences.len();
        return (0..all).filter(|&signs| reaches(sum(signs))).count() as f64 / all as f64;
    }
    let mut as_great = 0;
    for _ in 0..DRAWS {
        let mut total = 0.0;
        for chunk in differences.chunks(64) {
            let signs = rng.next_u64();
            for (at, d) in chunk.iter().enumerate() {
                total += if signs >> at & 1 == 1 { *d } else { -d };
            }
        }
        as_great += usize::from(reaches(total));
    }
    // The observed assignment is itself one of the possible choices.
    (as_great + 1) as f64 / (DRAWS + 1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(rng: &mut crate::random::Pcg) -> f64 {
        // The sum of twelve uniform values: normal enough.
        (0..12).map(|_| rng.next_u64() as f64 / u64::MAX as f64).sum::<f64>() - 6.0
    }

    #[test]
    fn an_effect_is_found_and_none_is_not() {
        let mut rng = generator(1);
        let (mut found, mut false_alarms, mut covered) = (0, 0, 0);
        for seed in 0..200 {
            let mut draw = |gain: f64| {
                (100.0 * (0.3 * noise(&mut rng)).exp() * gain, 100.0 * (0.3 * noise(&mut rng)).exp())
            };
            let with: Vec<_> = (0..16).map(|_| draw(2.0)).collect();
            let none: Vec<_> = (0..16).map(|_| draw(1.0)).collect();
            let (effect, nothing) =
                (compare(&with, 0.95, seed).unwrap(), compare(&none, 0.95, seed).unwrap());
            found += usize::from(effect.p < 0.01);
            false_alarms += usize::from(nothing.p < 0.05);
            covered += usize::from(effect.low <= 100.0 && 100.0 <= effect.high);
        }
        assert!(found >= 195, "{found} of 200");
        assert!((2..=20).contains(&false_alarms), "{false_alarms} of 200 at 5 %");
        assert!(covered >= 180, "{covered} of 200 intervals hold the true gain");
    }

    #[test]
    fn equal_sides_say_nothing() {
        let same = compare(&[(5.0, 5.0); 8], 0.95, 1).unwrap();
        assert_eq!((same.gain, same.p), (0.0, 1.0));
        assert!(compare(&[(1.0, 2.0); 2], 0.95, 1).is_none());
        assert!(compare(&[(f64::NAN, 2.0); 9], 0.95, 1).is_none());
        // The best that five pairs can say is one choice of 32.
        assert_eq!(compare(&[(9.0, 1.0); 5], 0.95, 1).unwrap().p, 1.0 / 32.0);
    }

    #[test]
    fn one_monster_does_not_decide() {
        let mut pairs = vec![(10.0, 11.0); 15];
        pairs.push((1e6, 10.0));
        let judged = compare(&pairs, 0.95, 3).unwrap();
        assert!(judged.p > 0.05, "{judged:?}");
    }
}

//! Limits for the probability of an event that was seen `k` times in `n` trials. Exact limits by
//! Clopper and Pearson (Biometrika 26:404, 1934), as quantiles of Beta distributions, which also
//! hold for the fractions of trials that dependent jobs amount to.
//!
//! An invalid count or probability excludes nothing: the limits are then 0 and 1, and no number of
//! trials is enough.

use statrs::function::beta::beta_reg;
use statrs::function::factorial::ln_factorial;

/// Whether `k` of `n` is something that can be seen, and `confidence` a probability that says
/// something.
fn meant(k: f64, n: f64, confidence: f64) -> bool {
    (0.0..=n).contains(&k) && n.is_finite() && n > 0.0 && confidence > 0.0 && confidence < 1.0
}

/// Greatest probability that `k` in `n` does not exclude at this one-sided confidence.
pub fn upper(k: f64, n: f64, confidence: f64) -> f64 {
    if !meant(k, n, confidence) || k >= n {
        return 1.0;
    }
    if k <= 0.0 {
        // (1 - p)^n = 1 - confidence.
        return -((1.0 - confidence).ln() / n).exp_m1();
    }
    bisect(|p| beta_reg(k + 1.0, n - k, p) < confidence)
}

/// Least probability, likewise.
pub fn lower(k: f64, n: f64, confidence: f64) -> f64 {
    if !meant(k, n, confidence) || k <= 0.0 {
        return 0.0;
    }
    bisect(|p| beta_reg(k, (n - k).max(0.0) + 1.0, p) < 1.0 - confidence)
}

/// Trials of which `k` happened, after which [`upper`] is at most `p`; infinitely many where that
/// is never so.
pub(crate) fn trials_needed(k: f64, p: f64, confidence: f64) -> f64 {
    let probabilities = p > 0.0 && p < 1.0 && confidence > 0.0 && confidence < 1.0;
    if !(probabilities && k >= 0.0 && k.is_finite()) {
        // Nothing is excluded by a limit of 1, however little was seen.
        return if p >= 1.0 { 0.0 } else { f64::INFINITY };
    }
    if k <= 0.0 {
        return (1.0 - confidence).ln() / (-p).ln_1p();
    }
    let mut high = (k + 1.0) / p;
    while upper(k, high, confidence) > p && high < 1e300 {
        high *= 2.0;
    }
    let mut low = k;
    for _ in 0..100 {
        let middle = 0.5 * (low + high);
        *(if upper(k, middle, confidence) > p { &mut low } else { &mut high }) = middle;
    }
    high
}

/// Probability that chance deals at least so much of what happened `before` and `after` (how often,
/// of how many) to the side after: Fisher's exact test, one-sided.
pub fn more_often(before: (usize, usize), after: (usize, usize)) -> f64 {
    let (happened, all) = (before.0 + after.0, before.1 + after.1);
    if after.0 == 0 || happened > all || before.0 > before.1 || after.0 > after.1 {
        return 1.0;
    }
    let choose =
        |n: usize, k: usize| ln_factorial(n as u64) - ln_factorial(k as u64) - ln_factorial((n - k) as u64);
    let total = choose(all, happened);
    let of = |k: usize| (choose(after.1, k) + choose(before.1, happened - k) - total).exp();
    (after.0..=happened.min(after.1)).filter(|k| happened - k <= before.1).map(of).sum::<f64>().min(1.0)
}

/// Finds the end of a condition that holds below some probability. It bisects the logarithm,
/// because probabilities may be tiny.
fn bisect(below: impl Fn(f64) -> bool) -> f64 {
    let (mut low, mut high) = (1e-300f64.ln(), 0.0f64);
    for _ in 0..200 {
        let middle = 0.5 * (low + high);
        *(if below(middle.exp()) { &mut low } else { &mut high }) = middle;
    }
    high.exp()
}

#[cfg(test)]
mod tests {
    use super::*;
    use statrs::distribution::{Binomial, DiscreteCDF};

    #[test]
    fn limits_are_those_of_the_distribution_itself() {
        for (k, n) in [(0u64, 30u64), (1, 100), (3, 40), (17, 5000), (40, 41)] {
            for confidence in [0.9, 0.95, 0.999] {
                let (kf, nf) = (k as f64, n as f64);
                let (up, low) = (upper(kf, nf, confidence), lower(kf, nf, confidence));
                // At the upper limit k or fewer come with probability 1 - confidence; at the lower
                // k or more.
                let at = |p: f64| Binomial::new(p, n).unwrap();
                assert!((at(up).cdf(k) - (1.0 - confidence)).abs() < 1e-6, "{k} {n} {confidence}");
                if k > 0 {
                    assert!((1.0 - at(low).cdf(k - 1) - (1.0 - confidence)).abs() < 1e-6, "{k} {n}");
                }
            }
        }
        assert_eq!((lower(0.0, 10.0, 0.95), upper(10.0, 10.0, 0.95), upper(0.0, 0.0, 0.95)), (0.0, 1.0, 1.0));
        // The rule of three.
        assert!((upper(0.0, 3000.0, 0.95) - 1e-3).abs() < 1e-5);
    }

    #[test]
    fn what_is_no_count_or_no_probability_excludes_nothing() {
        let bad = [f64::NAN, -1.0, f64::INFINITY, f64::NEG_INFINITY];
        for x in bad {
            for (k, n, confidence) in [(x, 10.0, 0.95), (3.0, x, 0.95), (3.0, 10.0, x), (x, x, x)] {
                assert_eq!(upper(k, n, confidence), 1.0, "{k} {n} {confidence}");
                assert_eq!(lower(k, n, confidence), 0.0, "{k} {n} {confidence}");
            }
            assert_eq!(trials_needed(x, 1e-3, 0.95), f64::INFINITY, "{x}");
            assert_eq!(trials_needed(1.0, 1e-3, x), f64::INFINITY, "{x}");
        }
        for confidence in [0.0, 1.0, 1.5] {
            assert_eq!((upper(3.0, 10.0, confidence), lower(3.0, 10.0, confidence)), (1.0, 0.0));
        }
        // More happened than was tried.
        assert_eq!((upper(11.0, 10.0, 0.95), lower(11.0, 10.0, 0.95)), (1.0, 0.0));
        assert_eq!(trials_needed(2.0, f64::NAN, 0.95), f64::INFINITY);
        assert_eq!(trials_needed(2.0, 0.0, 0.95), f64::INFINITY);
        assert_eq!((trials_needed(2.0, 1.0, 0.95), trials_needed(0.0, 7.0, 0.95)), (0.0, 0.0));
    }

    #[test]
    fn more_often_is_fishers_test() {
        // The lady tasting tea (The Design of Experiments, 1935): all four of four, and three of
        // four.
        assert!((more_often((0, 4), (4, 4)) - 1.0 / 70.0).abs() < 1e-12);
        assert!((more_often((1, 4), (3, 4)) - 17.0 / 70.0).abs() < 1e-12);
        assert_eq!((more_often((3, 9), (0, 5)), more_often((9, 3), (1, 5))), (1.0, 1.0));
        assert!((more_often((0, 20), (5, 10)) - 252.0 / 142_506.0).abs() < 1e-12);
    }

    #[test]
    fn what_is_needed_is_enough_and_no_more() {
        for k in [0.0, 0.2, 1.0, 7.0] {
            for p in [1e-9, 1e-4, 0.02] {
                let n = trials_needed(k, p, 0.95);
                assert!(upper(k, n * 1.0001, 0.95) <= p, "{k} {p}");
                assert!(upper(k, n * 0.999, 0.95) > p, "{k} {p}");
            }
        }
    }
}

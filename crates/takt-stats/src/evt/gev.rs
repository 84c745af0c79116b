//! The generalised extreme value distribution of block maxima: G(x) = exp(-(1 + ξ(x -
//! μ)/σ)^(-1/ξ)).
//!
//! Maximum likelihood, started from L-moments (Hosking, Wallis, Wood, Technometrics 27:251, 1985).
//! SciPy's genextreme has c = -ξ, loc = μ, scale = σ.

use rand::RngExt;
use serde::{Deserialize, Serialize};
use statrs::function::gamma::gamma;

use super::anderson;
use crate::random::Pcg;
use crate::simplex;

/// A fitted generalised extreme value distribution.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gev {
    /// ξ: below 0 the tail ends, at 0 it is Gumbel's, above 0 it falls as a power.
    pub shape: f64,
    /// μ.
    pub location: f64,
    /// σ.
    pub scale: f64,
}

impl Gev {
    /// ln(1 + ξy)/ξ with y = (x - μ)/σ: -ln(-ln G). NaN-free: ±∞ outside the support.
    fn reduced(&self, x: f64) -> f64 {
        let y = (x - self.location) / self.scale;
        let t = self.shape * y;
        if t <= -1.0 {
            if self.shape < 0.0 { f64::INFINITY } else { f64::NEG_INFINITY }
        } else if t.abs() < 1e-8 {
            y * (1.0 - t / 2.0)
        } else {
            t.ln_1p() / self.shape
        }
    }

    /// 1 - G(x).
    pub fn survival(&self, x: f64) -> f64 {
        -(-(-self.reduced(x)).exp()).exp_m1()
    }

    /// The p-quantile, 0 < p < 1.
    pub fn quantile(&self, p: f64) -> f64 {
        let r = -(-p.ln()).ln();
        let y = if self.shape.abs() < 1e-9 { r } else { (self.shape * r).exp_m1() / self.shape };
        self.location + self.scale * y
    }

    /// Sum of the log densities; -∞ where a value is impossible.
    pub fn log_likelihood(&self, maxima: &[f64]) -> f64 {
        if self.scale.is_nan() || self.scale <= 0.0 {
            return f64::NEG_INFINITY;
        }
        let mut sum = -(maxima.len() as f64) * self.scale.ln();
        for &x in maxima {
            let r = self.reduced(x);
            if !r.is_finite() {
                return f64::NEG_INFINITY;
            }
            sum -= (1.0 + self.shape) * r + (-r).exp();
        }
        sum
    }

    /// The most likely distribution with ξ > -1 (below, the likelihood has no maximum). `None` for
    /// fewer than three values, for values that are not numbers, and when all are equal.
    pub fn fit(maxima: &[f64]) -> Option<Self> {
        let mut sorted = maxima.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        let quick = Self::fit_sorted(&sorted)?;
        // Once more from there: a collapsed simplex does not stay collapsed.
        Some(quick.polished(&sorted))
    }

    fn polished(self, sorted: &[f64]) -> Self {
        let of = |x: &[f64; 3]| Self {
            location: self.location + self.scale * x[0],
            scale: self.scale * x[1].exp(),
            shape: x[2],
        };
        let cost = |x: &[f64; 3]| if x[2] > -1.0 { -of(x).log_likelihood(sorted) } else { f64::INFINITY };
        of(&simplex::minimise([0.0, 0.0, self.shape], [0.05, 0.05, 0.05], 400, cost).0)
    }

    /// One search, from an ascending sample.
    fn fit_sorted(maxima: &[f64]) -> Option<Self> {
        if maxima.len() < 3 || !maxima.iter().all(|x| x.is_finite()) {
            return None;
        }
        // In units of the quartiles, which one far value cannot stretch.
        let quartile = |i: usize| maxima[i * (maxima.len() - 1) / 4];
        let (centre, mut width) = (quartile(2), quartile(3) - quartile(1));
        if width <= 0.0 {
            width = maxima[maxima.len() - 1] - maxima[0];
        }
        if !(width > 0.0 && width.is_finite()) {
            return None;
        }
        let scaled: Vec<f64> = maxima.iter().map(|x| (x - centre) / width).collect();
        let start = Self::from_l_moments(&scaled);
        let of = |x: &[f64; 3]| Self { location: x[0], scale: x[1].exp(), shape: x[2] };
        let cost = |x: &[f64; 3]| if x[2] > -1.0 { -of(x).log_likelihood(&scaled) } else { f64::INFINITY };
        // An L-moment start can lie outside the support of a sample; Gumbel's never does. Its
        // quartiles lie 1.57 scales apart, its median 0.37 above the location.
        let gumbel = [-0.37 / 1.57, (1.0 / 1.57f64).ln(), 0.0];
        let lm = [start.location, start.scale.max(1e-3).ln(), start.shape.clamp(-0.9, 0.9)];
        let first = if cost(&lm) < cost(&gumbel) { lm } else { gumbel };
        let (x, value) = simplex::minimise(first, [0.1, 0.1, 0.1], 300, cost);
        let g = of(&x);
        value.is_finite().then_some(Self {
            shape: g.shape,
            location: g.location * width + centre,
            scale: g.scale * width,
        })
    }

    /// L-moment estimate from an ascending sample.
    fn from_l_moments(sorted: &[f64]) -> Self {
        let n = sorted.len() as f64;
        let (mut b0, mut b1, mut b2) = (0.0, 0.0, 0.0);
        for (i, &x) in sorted.iter().enumerate() {
            let i = i as f64;
            b0 += x / n;
            b1 += x * i / (n - 1.0) / n;
            b2 += x * i * (i - 1.0) / ((n - 1.0) * (n - 2.0)) / n;
        }
        let (l1, l2, l3) = (b0, 2.0 * b1 - b0, 6.0 * b2 - 6.0 * b1 + b0);
        let c = 2.0 / (3.0 + l3 / l2) - 2f64.ln() / 3f64.ln();
        let k = 7.859 * c + 2.9554 * c * c;
        if k.abs() < 1e-6 {
            let scale = l2 / 2f64.ln();
            return Self { shape: 0.0, location: l1 - 0.577_215_664_9 * scale, scale };
        }
        let g = gamma(1.0 + k);
        let scale = l2 * k / ((1.0 - 2f64.powf(-k)) * g);
        Self { shape: -k, location: l1 - scale * (1.0 - g) / k, scale }
    }

    fn draw(&self, count: usize, rng: &mut Pcg) -> Vec<f64> {
        let mut values: Vec<f64> =
            (0..count).map(|_| self.quantile(rng.random::<f64>().max(1e-300))).collect();
        values.sort_unstable_by(f64::total_cmp);
        values
    }

    /// Anderson and Darling's statistic A² of an ascending sample.
    pub fn anderson_darling(&self, sorted: &[f64]) -> f64 {
        let logs: Vec<(f64, f64)> = sorted
            .iter()
            .map(|&x| {
                let h = (-self.reduced(x)).exp().clamp(1e-300, 700.0);
                (-h, (-(-h).exp_m1()).ln())
            })
            .collect();
        anderson::statistic(&logs)
    }

    /// p-value of the fit to an ascending sample, and the refits of the simulated samples: the
    /// parametric bootstrap of the parameters.
    pub(crate) fn fit_p_value(&self, sorted: &[f64], rounds: usize, rng: &mut Pcg) -> (f64, Vec<Self>) {
        let mut refits = Vec::with_capacity(rounds);
        let [p] = anderson::p_values([self.anderson_darling(sorted)], rounds, || {
            let drawn = self.draw(sorted.len(), rng);
            let refit = Self::fit_sorted(&drawn)?;
            refits.push(refit);
            Some([refit.anderson_darling(&drawn)])
        });
        (p, refits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::generator;

    #[test]
    fn distribution_is_consistent() {
        for shape in [-0.4, 0.0, 1e-12, 0.3] {
            let g = Gev { shape, location: 50.0, scale: 3.0 };
            for p in [0.001, 0.1, 0.5, 0.99, 0.999_999] {
                assert!((g.survival(g.quantile(p)) - (1.0 - p)).abs() < 1e-9, "{shape} {p}");
            }
        }
        let g = Gev { shape: -0.5, location: 0.0, scale: 1.0 };
        assert_eq!((g.survival(2.1), g.survival(-1e9)), (0.0, 1.0));
    }

    #[test]
    fn finds_what_was_drawn() {
        let mut rng = generator(5);
        for shape in [-0.3, 0.0, 0.25] {
            let truth = Gev { shape, location: 60_000.0, scale: 4000.0 };
            let fit = Gev::fit(&truth.draw(5000, &mut rng)).unwrap();
            assert!((fit.shape - shape).abs() < 0.04, "{fit:?}");
            assert!((fit.location - truth.location).abs() < 250.0 && (fit.scale / 4000.0 - 1.0).abs() < 0.05);
        }
    }

    #[test]
    fn unusable_samples_give_nothing() {
        for bad in [&[][..], &[1.0, 2.0], &[2.0, 2.0, 2.0], &[1.0, 2.0, f64::NAN]] {
            assert_eq!(Gev::fit(bad), None);
        }
    }

    #[test]
    fn the_fit_test_sees_two_populations() {
        let mut rng = generator(6);
        let truth = Gev { shape: 0.0, location: 50.0, scale: 3.0 };
        let drawn = truth.draw(100, &mut rng);
        let (p, refits) = Gev::fit(&drawn).unwrap().fit_p_value(&drawn, 99, &mut rng);
        assert!(p > 0.05 && refits.len() == 99, "{p}");
        let mut two = truth.draw(60, &mut rng);
        two.extend(Gev { location: 500.0, ..truth }.draw(40, &mut rng));
        let fit = Gev::fit(&two).unwrap();
        let (p, _) = fit.fit_p_value(&two, 99, &mut rng);
        assert!(p <= 0.1 && fit.shape > 1.0, "{p} {fit:?}");
    }
}

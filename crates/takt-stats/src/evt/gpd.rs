//! The generalised Pareto distribution of excesses over a threshold: F(x) = 1 - (1 + ξx/σ)^(-1/ξ),
//! x ≥ 0.
//!
//! Maximum likelihood in θ = ξ/σ and σ (Grimshaw, Technometrics 35:185, 1993): with S(θ) = mean
//! ln(1 + θx) and A = S/θ the likelihood is l(θ, σ) = -n(ln σ + S + A/σ), greatest over σ at σ = A,
//! so that one parameter is left to search. The same form gives likelihood regions in closed form
//! over σ, and profile-likelihood intervals of anything that follows from the parameters (Coles, An
//! Introduction to Statistical Modeling of Extreme Values, 2001, 2.6.6). SciPy's genpareto has c =
//! ξ, scale = σ.

use rand::RngExt;
use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, Normal};

use super::anderson;
use crate::random::Pcg;

/// Beyond it, the point of χ² would be infinite before long.
const MAX_CONFIDENCE: f64 = 1.0 - 1e-12;

/// Half the point of χ² with one degree of freedom below which it lies with this probability; what
/// is no probability counts as the nearest that has a finite point, and NaN as the greatest of
/// them.
fn half_chi2(confidence: f64) -> f64 {
    let confidence = if confidence.is_nan() { MAX_CONFIDENCE } else { confidence.clamp(0.0, MAX_CONFIDENCE) };
    let z = Normal::standard().inverse_cdf(0.5 * (1.0 + confidence));
    0.5 * z * z
}

/// A fitted generalised Pareto distribution.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gpd {
    /// ξ: below 0 the tail ends, at 0 it is exponential, above 0 it falls as a power.
    pub shape: f64,
    /// σ, in the unit of the excesses.
    pub scale: f64,
}

impl Gpd {
    /// -ln(1 - F(x)): infinite beyond the upper end.
    fn hazard(&self, x: f64) -> f64 {
        hazard(self.shape / self.scale, self.scale, x)
    }

    /// 1 - F(x).
    pub fn survival(&self, x: f64) -> f64 {
        (-self.hazard(x.max(0.0))).exp()
    }

    /// The p-quantile, 0 ≤ p < 1.
    pub fn quantile(&self, p: f64) -> f64 {
        let e = -(-p).ln_1p();
        if self.shape.abs() < 1e-9 {
            self.scale * e
        } else {
            self.scale * (self.shape * e).exp_m1() / self.shape
        }
    }

    /// End of the tail, for ξ < 0.
    pub(crate) fn upper_end(&self) -> Option<f64> {
        (self.shape < 0.0).then(|| -self.scale / self.shape)
    }

    /// Sum of the log densities; -∞ where a value is impossible.
    pub fn log_likelihood(&self, excesses: &[f64]) -> f64 {
        let hazards: f64 = excesses.iter().map(|&x| self.hazard(x)).sum();
        -(excesses.len() as f64) * self.scale.ln() - (1.0 + self.shape) * hazards
    }

    /// The most likely distribution with ξ > -1 (below, the likelihood has no maximum). `None` for
    /// fewer than two values, for values that are not positive numbers, and when all are equal.
    pub fn fit(excesses: &[f64]) -> Option<Self> {
        Sample::new(excesses)?.fit(true)
    }

    /// `count` ascending excesses drawn from it.
    pub(crate) fn draw(&self, count: usize, rng: &mut Pcg) -> Vec<f64> {
        let mut values: Vec<f64> = (0..count).map(|_| self.quantile(rng.random::<f64>())).collect();
        values.sort_unstable_by(f64::total_cmp);
        values
    }

    /// Anderson and Darling's statistic A² of an ascending sample.
    pub fn anderson_darling(&self, sorted: &[f64]) -> f64 {
        let logs: Vec<(f64, f64)> = sorted
            .iter()
            .map(|&x| {
                let h = self.hazard(x).clamp(1e-12, 700.0);
                ((-(-h).exp_m1()).ln(), -h)
            })
            .collect();
        anderson::statistic(&logs)
    }

    /// The widest gap of an ascending sample, with the number of values above it. In the fitted
    /// hazard scale the excesses are exponential, and their normalised spacings (n - i + 1)(E_i -
    /// E_(i-1)) independent standard exponentials (Rényi 1953); this is the greatest of them.
    fn widest_gap(&self, sorted: &[f64]) -> (f64, usize) {
        let n = sorted.len();
        let mut widest = (0.0f64, 0);
        let mut before = 0.0;
        for (i, &x) in sorted.iter().enumerate() {
            let e = self.hazard(x);
            let spacing = (n - i) as f64 * (e - before);
            if spacing.is_finite() && spacing > widest.0 {
                widest = (spacing, n - i);
            }
            before = e;
        }
        widest
    }

    /// Tests how well this fit describes the ascending sample to which it was fitted. Each
    /// simulated sample is fitted again, so that the effect of fitting (an outlier pulls the shape
    /// towards itself) is the same there.
    pub(crate) fn test(&self, sorted: &[f64], rounds: usize, rng: &mut Pcg) -> FitTest {
        let (gap, above_gap) = self.widest_gap(sorted);
        let [fit_p, gap_p] = anderson::p_values([self.anderson_darling(sorted), gap], rounds, || {
            let drawn = self.draw(sorted.len(), rng);
            let refitted = Sample::new(&drawn)?.fit(false)?;
            Some([refitted.anderson_darling(&drawn), refitted.widest_gap(&drawn).0])
        });
        FitTest { fit_p, gap_p, above_gap }
    }
}

/// Results of the tests of a fit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FitTest {
    /// Anderson-Darling p-value.
    pub(crate) fit_p: f64,
    /// p-value of the widest gap.
    pub(crate) gap_p: f64,
    /// Values above that gap.
    pub(crate) above_gap: usize,
}

/// -ln(1 - F(x)) in the parameters θ, σ: ln(1 + θx)/(θσ).
pub(crate) fn hazard(theta: f64, scale: f64, x: f64) -> f64 {
    let t = theta * x;
    if t <= -1.0 {
        f64::INFINITY
    } else if t.abs() < 1e-8 {
        x / scale * (1.0 - t / 2.0)
    } else {
        t.ln_1p() / (theta * scale)
    }
}

/// A point of a likelihood region: parameters in units of the sample, and by which factors the rate
/// of excesses can deviate from the observed one together with them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RegionPoint {
    pub(crate) theta: f64,
    pub(crate) scale: f64,
    pub(crate) rate_low: f64,
    pub(crate) rate_high: f64,
}

/// Excesses scaled to mean 1.
struct Sample {
    values: Vec<f64>,
    mean: f64,
    max: f64,
}

impl Sample {
    fn new(excesses: &[f64]) -> Option<Self> {
        let n = excesses.len();
        if n < 2 || !excesses.iter().all(|x| *x > 0.0 && x.is_finite()) {
            return None;
        }
        let mean = excesses.iter().sum::<f64>() / n as f64;
        let values: Vec<f64> = excesses.iter().map(|x| x / mean).collect();
        let max = values.iter().copied().fold(0.0, f64::max);
        let min = values.iter().copied().fold(f64::INFINITY, f64::min);
        (min < max && mean.is_finite()).then_some(Self { values, mean, max })
    }

    /// S(θ) = mean ln(1 + θx). Eight factors share a logarithm.
    fn s(&self, theta: f64) -> f64 {
        if theta.abs() * self.max < 1e-4 {
            // The products would lose what is left of θ.
            return self.values.iter().map(|x| (theta * x).ln_1p()).sum::<f64>() / self.values.len() as f64;
        }
        let logs = self.values.chunks(8).map(|c| c.iter().map(|x| 1.0 + theta * x).product::<f64>().ln());
        logs.sum::<f64>() / self.values.len() as f64
    }

    /// (S, A) at θ; A = S/θ goes to the mean, 1, for θ → 0.
    fn terms(&self, theta: f64) -> (f64, f64) {
        let s = self.s(theta);
        if theta.abs() < 1e-9 { (s, 1.0) } else { (s, s / theta) }
    }

    /// l/n at its greatest over σ; -∞ where ξ = S(θ) is not above -1.
    fn profile(&self, theta: f64) -> f64 {
        let (s, a) = self.terms(theta);
        if s > -1.0 && a > 0.0 { -(a.ln() + s + 1.0) } else { f64::NEG_INFINITY }
    }

    /// θ from t = ln(θ + 1/max), which is unbounded.
    fn theta(&self, t: f64) -> f64 {
        t.exp() - 1.0 / self.max
    }

    /// t of the moment estimate: ξ = (1 - m²/v)/2, σ = m(1 + m²/v)/2.
    fn start(&self) -> f64 {
        let n = self.values.len() as f64;
        let variance = self.values.iter().map(|x| (x - 1.0).powi(2)).sum::<f64>() / (n - 1.0);
        let (shape, scale) = (0.5 * (1.0 - 1.0 / variance), 0.5 * (1.0 + 1.0 / variance));
        (shape / scale + 1.0 / self.max).max(0.01 / self.max).ln()
    }

    /// The t of greatest profile likelihood. `thorough` looks along the whole range first.
    fn best(&self, thorough: bool) -> f64 {
        let f = |t: f64| self.profile(self.theta(t));
        let mut centre = self.start();
        if thorough {
            let end = -self.max.ln();
            for i in 0..60 {
                let t = end - 6.0 + 0.3 * f64::from(i);
                if f(t) > f(centre) {
                    centre = t;
                }
            }
        }
        // Walk uphill until the top is bracketed.
        let mut step = 0.2;
        let (mut low, mut high) = (centre - step, centre + step);
        for _ in 0..60 {
            let (fl, fc, fh) = (f(low), f(centre), f(high));
            if fc >= fl && fc >= fh {
                break;
            }
            step *= 1.6;
            if fh > fl {
                (low, centre, high) = (centre, high, high + step);
            } else {
                (high, centre, low) = (centre, low, low - step);
            }
        }
        golden(low, high, 1e-7, f)
    }

    fn fit(&self, thorough: bool) -> Option<Gpd> {
        let theta = self.theta(self.best(thorough));
        let (s, a) = self.terms(theta);
        (s.is_finite() && a > 0.0).then_some(Gpd { shape: theta * a, scale: a * self.mean })
    }
}

/// The greatest point of a function with one top between `low` and `high`: golden section with
/// parabolic steps (Brent 1973, chapter 5).
fn golden(mut low: f64, mut high: f64, tolerance: f64, f: impl Fn(f64) -> f64) -> f64 {
    const C: f64 = 0.381_966_011_250_105;
    let mut x = low + C * (high - low);
    let (mut w, mut v, mut d, mut e) = (x, x, 0.0f64, 0.0f64);
    let mut fx = -f(x);
    let (mut fw, mut fv) = (fx, fx);
    for _ in 0..80 {
        let middle = 0.5 * (low + high);
        if (x - middle).abs() <= 2.0 * tolerance - 0.5 * (high - low) {
            break;
        }
        let mut parabolic = false;
        if e.abs() > tolerance {
            let r = (x - w) * (fx - fv);
            let q = (x - v) * (fx - fw);
            let mut p = (x - v) * q - (x - w) * r;
            let mut q = 2.0 * (q - r);
            if q > 0.0 {
                p = -p;
            }
            q = q.abs();
            let before = e;
            e = d;
            if p.abs() < (0.5 * q * before).abs() && p > q * (low - x) && p < q * (high - x) {
                d = p / q;
                parabolic = true;
            }
        }
        if !parabolic {
            e = if x >= middle { low - x } else { high - x };
            d = C * e;
        }
        let u = x + if d.abs() >= tolerance { d } else { tolerance.copysign(d) };
        let fu = -f(u);
        if fu <= fx {
            if u >= x {
                low = x;
            } else {
                high = x;
            }
            (v, fv, w, fw, x, fx) = (w, fw, x, fx, u, fu);
        } else {
            if u < x {
                low = u;
            } else {
                high = u;
            }
            if fu <= fw || w == x {
                (v, fv, w, fw) = (w, fw, u, fu);
            } else if fu <= fv || v == x || v == w {
                (v, fv) = (u, fu);
            }
        }
    }
    x
}

/// Parameters that the excesses do not exclude at this confidence, together with the Poisson rate
/// at which excesses come: all points where the joint log likelihood lies less than
/// χ²₁(confidence)/2 below its maximum. The least and greatest value of any function of the
/// parameters over it is that function's profile-likelihood interval.
pub(crate) fn region(excesses: &[f64], confidence: f64) -> Vec<RegionPoint> {
    const THETAS: usize = 80;
    const SCALES: usize = 12;
    let Some(sample) = Sample::new(excesses) else { return Vec::new() };
    let n = excesses.len() as f64;
    let top = sample.best(true);
    let best = sample.profile(sample.theta(top));
    let all = half_chi2(confidence);
    let slack = |t: f64| all / n - (best - sample.profile(sample.theta(t)));
    let edge = |direction: f64| {
        let mut step = 0.1;
        let mut inside = top;
        while slack(inside + direction * step) > 0.0 && step < 50.0 {
            inside += direction * step;
            step *= 1.5;
        }
        let mut outside = inside + direction * step;
        for _ in 0..40 {
            let middle = 0.5 * (inside + outside);
            *(if slack(middle) > 0.0 { &mut inside } else { &mut outside }) = middle;
        }
        inside
    };
    let (low, high) = (edge(-1.0), edge(1.0));
    let mut points = Vec::with_capacity((THETAS + 2) * (SCALES + 1));
    let grid = (0..=THETAS).map(|i| low + (high - low) * i as f64 / THETAS as f64);
    for t in grid.chain([top]) {
        let theta = sample.theta(t);
        let (_, a) = sample.terms(theta);
        let left = slack(t).max(0.0);
        // σ = Az with ln z + 1/z - 1 ≤ slack; in 1/z the same equation as the rate's.
        let (inverse_low, inverse_high) = deviation(left);
        for j in 0..=SCALES {
            let share = j as f64 / SCALES as f64;
            let z = (-(inverse_low.ln() + (inverse_high / inverse_low).ln() * share)).exp();
            let rest = (left - (z.ln() + 1.0 / z - 1.0)).max(0.0);
            // The number of excesses is Poisson: k(w - 1 - ln w) below the maximum for a rate w
            // times the observed.
            let (rate_low, rate_high) = deviation(rest);
            points.push(RegionPoint {
                theta: theta / sample.mean,
                scale: a * z * sample.mean,
                rate_low,
                rate_high,
            });
        }
    }
    points
}

/// The same region of the exponential distribution, θ = 0: σ = A/w with A the mean.
pub(crate) fn exponential_region(excesses: &[f64], confidence: f64) -> Vec<RegionPoint> {
    const STEPS: usize = 24;
    let Some(sample) = Sample::new(excesses) else { return Vec::new() };
    let all = half_chi2(confidence) / excesses.len() as f64;
    let (low, high) = deviation(all);
    (0..=STEPS)
        .map(|i| {
            let w = low + (high - low) * i as f64 / STEPS as f64;
            let (rate_low, rate_high) = deviation((all - (w - 1.0 - w.ln())).max(0.0));
            RegionPoint { theta: 0.0, scale: sample.mean / w, rate_low, rate_high }
        })
        .collect()
}

/// The two solutions w ≤ 1 ≤ w' of w - 1 - ln w = slack.
fn deviation(slack: f64) -> (f64, f64) {
    let excess = |w: f64| w - 1.0 - w.ln() - slack;
    let bisect = |mut inside: f64, mut outside: f64| {
        for _ in 0..60 {
            let middle = 0.5 * (inside + outside);
            *(if excess(middle) <= 0.0 { &mut inside } else { &mut outside }) = middle;
        }
        inside
    };
    (bisect(1.0, (-slack - 1.0).exp()), bisect(1.0, 3.0 + 2.0 * slack))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::generator;

    #[test]
    fn distribution_is_consistent() {
        for shape in [-0.4, -0.1, 0.0, 1e-12, 0.2, 0.8] {
            let g = Gpd { shape, scale: 3.0 };
            for p in [0.0, 0.1, 0.5, 0.99, 0.999_999] {
                assert!((g.survival(g.quantile(p)) - (1.0 - p)).abs() < 1e-9, "{shape} {p}");
            }
        }
        let g = Gpd { shape: -0.5, scale: 1.0 };
        assert_eq!((g.upper_end(), g.survival(2.5)), (Some(2.0), 0.0));
    }

    #[test]
    fn finds_what_was_drawn() {
        let mut rng = generator(1);
        for shape in [-0.3, -0.1, 0.0, 0.2, 0.5, 0.9] {
            let truth = Gpd { shape, scale: 4000.0 };
            let drawn = truth.draw(20_000, &mut rng);
            let fit = Gpd::fit(&drawn).unwrap();
            assert!((fit.shape - shape).abs() < 0.03, "{fit:?} for {truth:?}");
            assert!((fit.scale / 4000.0 - 1.0).abs() < 0.04, "{fit:?} for {truth:?}");
            let quick = Sample::new(&drawn).unwrap().fit(false).unwrap();
            assert!((fit.shape - quick.shape).abs() < 1e-3, "{fit:?} {quick:?}");
        }
    }

    #[test]
    fn the_optimum_is_one() {
        let mut rng = generator(2);
        for shape in [-0.2, 0.0, 0.3] {
            let drawn = Gpd { shape, scale: 7.0 }.draw(150, &mut rng);
            let fit = Gpd::fit(&drawn).unwrap();
            let best = fit.log_likelihood(&drawn);
            for (ds, df) in [(0.01, 1.0), (-0.01, 1.0), (0.0, 1.01), (0.0, 0.99), (0.02, 0.98)] {
                let other = Gpd { shape: fit.shape + ds, scale: fit.scale * df };
                assert!(other.log_likelihood(&drawn) <= best + 1e-9);
            }
        }
    }

    #[test]
    fn unusable_samples_give_nothing() {
        for bad in [&[][..], &[1.0], &[2.0, 2.0, 2.0], &[1.0, -1.0], &[1.0, f64::NAN], &[1.0, f64::INFINITY]]
        {
            assert_eq!(Gpd::fit(bad), None);
            assert!(region(bad, 0.95).is_empty());
        }
        assert!(Gpd::fit(&[1.0, 2.0]).is_some());
    }

    #[test]
    fn the_fit_test_holds_its_level_and_sees_two_populations() {
        let mut rng = generator(3);
        let truth = Gpd { shape: 0.1, scale: 1.0 };
        let rejected = (0..200)
            .filter(|_| {
                let drawn = truth.draw(100, &mut rng);
                Gpd::fit(&drawn).unwrap().test(&drawn, 99, &mut rng).fit_p <= 0.1
            })
            .count();
        // 10 % of 200, standard deviation 4.2.
        assert!((6..=36).contains(&rejected), "{rejected}");
        let mut two = truth.draw(80, &mut rng);
        two.extend(Gpd { shape: 0.0, scale: 0.5 }.draw(20, &mut rng).iter().map(|x| x + 40.0));
        let fit = Gpd::fit(&two).unwrap();
        assert!(fit.test(&two, 199, &mut rng).fit_p <= 0.01);
        let mut one = truth.draw(80, &mut rng);
        one.push(400.0);
        let test = Gpd::fit(&one).unwrap().test(&one, 199, &mut rng);
        assert!(test.gap_p <= 0.06 && test.above_gap == 1, "{test:?}");
    }

    #[test]
    fn regions_cover_as_often_as_they_say() {
        // Rate and parameters both random: the chance of a value beyond d, where 1 of 2000 excesses
        // lies.
        let mut rng = generator(4);
        for shape in [-0.2, 0.0, 0.2] {
            let truth = Gpd { shape, scale: 1.0 };
            let d = truth.quantile(1.0 - 1.0 / 2000.0);
            let (mut covered, rounds) = (0, 400);
            for _ in 0..rounds {
                // Poisson(150) by exponential gaps.
                let mut k = 0;
                let mut at = -(1.0 - rng.random::<f64>()).ln();
                while at < 150.0 {
                    k += 1;
                    at -= (1.0 - rng.random::<f64>()).ln();
                }
                let points = region(&truth.draw(k, &mut rng), 0.95);
                let rates = points.iter().flat_map(|p| {
                    let s = (-hazard(p.theta, p.scale, d)).exp() * k as f64;
                    [s * p.rate_low, s * p.rate_high]
                });
                let (low, high) = rates.fold((f64::INFINITY, 0.0f64), |(l, h), r| (l.min(r), h.max(r)));
                covered += usize::from((low..=high).contains(&(150.0 / 2000.0)));
            }
            let coverage = covered as f64 / rounds as f64;
            // Standard error 1.1 %.
            assert!((0.91..=0.985).contains(&coverage), "shape {shape}: {coverage}");
        }
    }
}

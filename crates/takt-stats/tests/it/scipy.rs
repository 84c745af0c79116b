//! Agreement with NumPy and SciPy on committed numbers (tools/reference/evt.py; provenance in the
//! file).

use serde::Deserialize;
use takt_stats::evt::{Gev, Gpd};
use takt_stats::{Summary, quantile};

#[derive(Deserialize)]
struct Reference {
    quantiles: Vec<Quantiles>,
    genpareto: Vec<Fit>,
    genextreme: Vec<Fit>,
}

#[derive(Deserialize)]
struct Quantiles {
    sample: Vec<f64>,
    levels: Vec<f64>,
    values: Vec<f64>,
    intervals: Vec<Interval>,
    mean: f64,
    stddev: f64,
}

#[derive(Deserialize)]
struct Interval {
    q: f64,
    confidence: f64,
    low: usize,
    high: usize,
}

#[derive(Deserialize)]
struct Fit {
    sample: Vec<f64>,
    shape: f64,
    #[serde(default)]
    location: f64,
    scale: f64,
    log_likelihood: f64,
    #[serde(default)]
    anderson_darling: f64,
    at: Vec<f64>,
    survival: Vec<f64>,
    levels: Vec<f64>,
    quantiles: Vec<f64>,
}

fn reference() -> Reference {
    serde_json::from_str(include_str!("../data/scipy.json"))
        .expect("the committed reference is JSON of this shape")
}

fn close(ours: f64, theirs: f64, relative: f64) -> bool {
    (ours - theirs).abs() <= relative * theirs.abs().max(1e-300)
}

#[test]
fn quantiles_and_their_intervals_agree() {
    for case in reference().quantiles {
        let mut sorted = case.sample;
        let summary = Summary::of(&mut sorted);
        assert!(close(summary.mean, case.mean, 1e-12) && close(summary.stddev, case.stddev, 1e-10));
        for (&level, &value) in case.levels.iter().zip(&case.values) {
            assert_eq!(quantile::of_sorted(&sorted, level), Some(value), "n {}, {level}", sorted.len());
        }
        for i in case.intervals {
            let ours = quantile::estimate(&sorted, i.q, i.confidence).unwrap();
            let at = |rank: usize| rank.checked_sub(1).map(|index| sorted[index]);
            assert_eq!((ours.low, ours.high), (at(i.low), at(i.high)), "n {}, q {}", sorted.len(), i.q);
        }
    }
}

#[test]
fn generalised_pareto_agrees() {
    for case in reference().genpareto {
        let theirs = Gpd { shape: case.shape, scale: case.scale };
        assert!(close(theirs.log_likelihood(&case.sample), case.log_likelihood, 1e-10));
        let mut sorted = case.sample.clone();
        sorted.sort_by(f64::total_cmp);
        assert!(close(theirs.anderson_darling(&sorted), case.anderson_darling, 1e-9));
        let ours = Gpd::fit(&case.sample).unwrap();
        let gained = ours.log_likelihood(&case.sample) - case.log_likelihood;
        assert!(gained >= -1e-7, "{ours:?} is less likely than SciPy's {theirs:?} by {}", -gained);
        // Where SciPy found the same top, the parameters are the same; it may have stopped short of
        // it.
        assert!(gained < 1e-3, "SciPy's {theirs:?} is less likely than {ours:?} by {gained}");
        assert!(
            (ours.shape - theirs.shape).abs() < 2e-3 && close(ours.scale, theirs.scale, 3e-3),
            "{ours:?} {theirs:?}"
        );
        for (&x, &survival) in case.at.iter().zip(&case.survival) {
            assert!(close(theirs.survival(x), survival, 1e-9), "{theirs:?} at {x}");
        }
        for (&p, &quantile) in case.levels.iter().zip(&case.quantiles) {
            assert!(close(theirs.quantile(p), quantile, 1e-9), "{theirs:?} at {p}");
        }
    }
}

#[test]
fn generalised_extreme_value_agrees() {
    for case in reference().genextreme {
        let theirs = Gev { shape: case.shape, location: case.location, scale: case.scale };
        assert!(close(theirs.log_likelihood(&case.sample), case.log_likelihood, 1e-10));
        let ours = Gev::fit(&case.sample).unwrap();
        let gained = ours.log_likelihood(&case.sample) - case.log_likelihood;
        assert!(gained >= -1e-6, "{ours:?} is less likely than SciPy's {theirs:?} by {}", -gained);
        assert!(gained < 1e-3, "SciPy's {theirs:?} is less likely than {ours:?} by {gained}");
        assert!(
            (ours.shape - theirs.shape).abs() < 2e-3 && close(ours.scale, theirs.scale, 3e-3),
            "{ours:?} {theirs:?}"
        );
        assert!((ours.location - theirs.location).abs() < 2e-3 * theirs.scale, "{ours:?} {theirs:?}");
        for (&x, &survival) in case.at.iter().zip(&case.survival) {
            assert!(close(theirs.survival(x), survival, 1e-8), "{theirs:?} at {x}");
        }
        for (&p, &quantile) in case.levels.iter().zip(&case.quantiles) {
            assert!(close(theirs.quantile(p), quantile, 1e-9), "{theirs:?} at {p}");
        }
    }
}

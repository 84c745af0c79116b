//! Range of the dependence between neighbours: Politis and White's automatic block length.

/// Values looked at: autocovariances cost n·√n.
const LOOKED_AT: usize = 65_536;

/// The block length for the circular block bootstrap of the mean of `series` (`length` values, of
/// which it may be a leading part): b = (2G²/D)^(1/3) n^(1/3) with the flat-top window of Politis
/// and Romano (1995). At least 1, at most a tenth of the series.
pub(super) fn length(series: impl ExactSizeIterator<Item = f64>, length: usize) -> usize {
    let values: Vec<f64> = series.take(LOOKED_AT).collect();
    let n = values.len();
    let most = (length / 10).max(1);
    if n < 20 {
        return 1;
    }
    let mean = values.iter().sum::<f64>() / n as f64;
    let centred: Vec<f64> = values.iter().map(|v| v - mean).collect();
    let covariance =
        |lag: usize| centred[lag..].iter().zip(&centred).map(|(a, b)| a * b).sum::<f64>() / n as f64;
    let variance = covariance(0);
    if variance <= 0.0 {
        return 1;
    }
    // The smallest lag after which `quiet` correlations in a row are within chance.
    let quiet = ((n as f64).log10().sqrt().ceil() as usize).max(5);
    let lags = ((n as f64).sqrt().ceil() as usize + quiet).min(n - 1);
    let chance = 2.0 * ((n as f64).log10() / n as f64).sqrt();
    let mut covariances = Vec::with_capacity(lags + 1);
    covariances.push(variance);
    let (mut run, mut last_loud) = (0, 0);
    for lag in 1..=lags {
        let c = covariance(lag);
        covariances.push(c);
        if (c / variance).abs() < chance {
            run += 1;
            if run >= quiet {
                break;
            }
        } else {
            run = 0;
            last_loud = lag;
        }
    }
    let window = (2 * last_loud.max(1)).min(lags);
    // Lags past the quiet run were not computed above.
    while covariances.len() <= window {
        covariances.push(covariance(covariances.len()));
    }
    let flat_top = |lag: usize| {
        let t = lag as f64 / window as f64;
        if t <= 0.5 { 1.0 } else { 2.0 * (1.0 - t) }
    };
    let (mut g, mut spectrum) = (0.0, variance);
    for (lag, c) in covariances.iter().enumerate().take(window + 1).skip(1) {
        g += 2.0 * flat_top(lag) * lag as f64 * c;
        spectrum += 2.0 * flat_top(lag) * c;
    }
    // D = 4/3 spectrum² for the circular bootstrap.
    let d = 4.0 / 3.0 * spectrum * spectrum;
    if d <= 0.0 {
        return most;
    }
    let b = (2.0 * g * g / d).cbrt() * (length as f64).cbrt();
    (b.ceil().clamp(1.0, most as f64)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::generator;
    use rand::RngExt;

    fn autoregressive(n: usize, rho: f64) -> Vec<f64> {
        let mut rng = generator(1);
        let mut x = 0.0;
        (0..n)
            .map(|_| {
                x = rho * x + rng.random::<f64>() - 0.5;
                x
            })
            .collect()
    }

    #[test]
    fn grows_with_the_dependence() {
        let of = |rho| length(autoregressive(10_000, rho).into_iter(), 10_000);
        let (none, some, strong) = (of(0.0), of(0.5), of(0.9));
        // Theory for AR(1), circular: (6 (ρ/(1 - ρ²))²)^(1/3) n^(1/3): 30 at 0.5, 110 at 0.9.
        assert!(
            none <= 6 && (15..60).contains(&some) && (60..220).contains(&strong),
            "{none} {some} {strong}"
        );
    }

    #[test]
    fn degenerate_series() {
        assert_eq!(length([].into_iter(), 0), 1);
        assert_eq!(length(vec![3.0; 100].into_iter(), 100), 1);
        assert!(length((0..100).map(f64::from), 100) <= 10);
    }
}

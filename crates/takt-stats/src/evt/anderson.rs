//! Goodness of fit: Anderson and Darling's statistic, which weighs the tails, with its p-value by
//! parametric bootstrap. Tables do not apply, since the parameters are estimated from the same data
//! (Stute, Gonzáles Manteiga, Presedo Quindimil, Metrika 40:243, 1993).

/// A² = -n - 1/n Σ (2i - 1)(ln F(x_i) + ln(1 - F(x_{n+1-i}))), from (ln F, ln(1 - F)) of an
/// ascending sample (Anderson & Darling 1954).
pub(crate) fn statistic(logs: &[(f64, f64)]) -> f64 {
    let n = logs.len();
    let sum: f64 = (0..n).map(|i| (2 * i + 1) as f64 * (logs[i].0 + logs[n - 1 - i].1)).sum();
    -(n as f64) - sum / n as f64
}

/// For each of N statistics the share of `rounds` simulated ones that are no smaller than the
/// observed one, the observed one counted in (Davison & Hinkley 1997, section 4.2.3): never 0.
/// Rounds in which nothing could be fitted count as smaller, which makes rejection likelier, not
/// less likely.
pub(crate) fn p_values<const N: usize>(
    observed: [f64; N],
    rounds: usize,
    mut simulated: impl FnMut() -> Option<[f64; N]>,
) -> [f64; N] {
    let mut reached = [1usize; N];
    for _ in 0..rounds {
        if let Some(drawn) = simulated() {
            (0..N).for_each(|i| reached[i] += usize::from(drawn[i] >= observed[i]));
        }
    }
    reached.map(|r| r as f64 / (rounds + 1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_statistic() {
        // Uniform(0, 1) at the midpoints i - 1/2 over n: the least possible discrepancy; against a
        // shifted sample.
        let logs = |shift: f64| -> Vec<(f64, f64)> {
            (0..10)
                .map(|i| ((i as f64 + 0.5) / 10.0 + shift).clamp(1e-9, 1.0 - 1e-9))
                .map(|u| (u.ln(), (1.0 - u).ln()))
                .collect()
        };
        // One value at 1/2: -1 - 2 ln(1/2).
        assert!((statistic(&[(0.5f64.ln(), 0.5f64.ln())]) - (2.0 * 2f64.ln() - 1.0)).abs() < 1e-12);
        assert!(statistic(&logs(0.0)) < 0.1 && statistic(&logs(0.049)) > statistic(&logs(0.0)));
    }

    #[test]
    fn p_counts_the_observed_one() {
        assert_eq!(p_values([5.0, 5.0], 99, || Some([1.0, 9.0])), [0.01, 1.0]);
        assert_eq!(p_values([5.0], 99, || None), [0.01]);
    }
}

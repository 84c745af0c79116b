//! Nelder and Mead's simplex search (Computer Journal 7:308, 1965), for a handful of parameters of
//! a smooth function.

/// The best point found and its value, from `start` with first steps of `step`. The search ends
/// when the values of all corners agree to 1e-10 (relative to the number of rounds allowed,
/// whatever comes first).
pub(crate) fn minimise<const N: usize>(
    start: [f64; N],
    step: [f64; N],
    rounds: usize,
    f: impl Fn(&[f64; N]) -> f64,
) -> ([f64; N], f64) {
    let value = |x: &[f64; N]| {
        let v = f(x);
        if v.is_nan() { f64::INFINITY } else { v }
    };
    let mut corners = Vec::with_capacity(N + 1);
    corners.push((start, value(&start)));
    for i in 0..N {
        let mut x = start;
        x[i] += step[i];
        corners.push((x, value(&x)));
    }
    let between = |a: &[f64; N], b: &[f64; N], t: f64| -> [f64; N] {
        std::array::from_fn(|i| a[i] + t * (b[i] - a[i]))
    };
    for _ in 0..rounds {
        corners.sort_by(|a, b| a.1.total_cmp(&b.1));
        let (best, second_worst, worst) = (corners[0], corners[N - 1], corners[N]);
        if (worst.1 - best.1).abs() <= 1e-10 * (1.0 + best.1.abs()) {
            break;
        }
        let mut centre = [0.0; N];
        for (x, _) in &corners[..N] {
            (0..N).for_each(|i| centre[i] += x[i] / N as f64);
        }
        let at = |t: f64| {
            let x = between(&centre, &worst.0, t);
            (x, value(&x))
        };
        let reflected = at(-1.0);
        if reflected.1 < best.1 {
            let expanded = at(-2.0);
            corners[N] = if expanded.1 < reflected.1 { expanded } else { reflected };
        } else if reflected.1 < second_worst.1 {
            corners[N] = reflected;
        } else {
            let contracted = if reflected.1 < worst.1 { at(-0.5) } else { at(0.5) };
            if contracted.1 < worst.1.min(reflected.1) {
                corners[N] = contracted;
            } else {
                for corner in &mut corners[1..] {
                    let x = between(&best.0, &corner.0, 0.5);
                    *corner = (x, value(&x));
                }
            }
        }
    }
    corners.sort_by(|a, b| a.1.total_cmp(&b.1));
    corners[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_rosenbrocks_valley() {
        let (x, value) = minimise([-1.2, 1.0], [0.5, 0.5], 500, |x| {
            100.0 * (x[1] - x[0] * x[0]).powi(2) + (1.0 - x[0]).powi(2)
        });
        assert!(value < 1e-9 && (x[0] - 1.0).abs() < 1e-3, "{x:?}");
        let (x, _) =
            minimise([0.0], [1.0], 100, |x| if x[0] > 2.0 { f64::NAN } else { (x[0] - 1.5).powi(2) });
        assert!((x[0] - 1.5).abs() < 1e-4);
    }
}

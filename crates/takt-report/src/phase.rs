//! A measure by the phases of its runs: how many samples, how many late, and how they are
//! distributed.

/// A measure in one configuration and one phase.
#[derive(Clone, Debug, PartialEq)]
pub struct PhaseDigest {
    pub name: String,
    /// Samples.
    pub count: u64,
    /// Of these, later than the deadline.
    pub misses: u64,
    /// The greatest, nanoseconds.
    pub worst: f64,
    /// Value and share of samples that are not above it.
    pub at_most: Vec<(f64, f64)>,
}

/// Points of a curve: more than a picture has pixels across a panel.
const CURVE_POINTS: usize = 400;

/// The share of samples up to each value, thinned to [`CURVE_POINTS`]; the least and the greatest
/// value always stay.
fn at_most(sorted: &[u64]) -> Vec<(f64, f64)> {
    let count = sorted.len();
    let points = count.min(CURVE_POINTS);
    let place = |point: usize| if points < 2 { 0 } else { point * (count - 1) / (points - 1) };
    let point = |index: usize| (sorted[index] as f64, (index + 1) as f64 / count as f64);
    (0..points).map(place).map(point).collect()
}

pub(crate) fn phases(pooled: Vec<(String, Vec<u64>)>, deadline_ns: Option<u64>) -> Vec<PhaseDigest> {
    let digest = |(name, mut values): (String, Vec<u64>)| {
        values.sort_unstable();
        PhaseDigest {
            name,
            count: values.len() as u64,
            misses: deadline_ns.map_or(0, |d| values.len() - values.partition_point(|v| *v <= d)) as u64,
            worst: values.last().copied().unwrap_or(0) as f64,
            at_most: at_most(&values),
        }
    };
    pooled.into_iter().map(digest).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_ends_at_the_greatest_value_and_is_thinned() {
        assert!(at_most(&[]).is_empty());
        assert_eq!(at_most(&[7]), [(7.0, 1.0)]);
        assert_eq!(at_most(&[1, 2]), [(1.0, 0.5), (2.0, 1.0)]);
        let many: Vec<u64> = (0..100_000).collect();
        let curve = at_most(&many);
        assert_eq!((curve.len(), curve[0].0, curve[CURVE_POINTS - 1]), (CURVE_POINTS, 0.0, (99_999.0, 1.0)));
        assert!(curve.is_sorted_by(|a, b| a.0 < b.0 && a.1 < b.1));
    }

    #[test]
    fn a_sample_on_its_deadline_is_not_late() {
        let of = phases(vec![("busy".to_owned(), vec![30, 10, 20]), ("idle".to_owned(), vec![])], Some(20));
        assert_eq!((of[0].count, of[0].misses, of[0].worst), (3, 1, 30.0));
        assert_eq!((of[1].count, of[1].misses, of[1].worst), (0, 0, 0.0));
        assert!(of[1].at_most.is_empty());
    }
}

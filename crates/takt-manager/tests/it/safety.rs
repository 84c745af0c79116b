//! No latency of a simulated system exceeds its bound.

#![allow(clippy::unwrap_used)]

use crate::common;

use common::{Checked, check};

#[test]
fn no_simulated_latency_exceeds_its_bound() {
    let mut sum = Checked::default();
    for seed in 0..300 {
        let one = check(seed, 2_000_000_000).unwrap_or_else(|e| panic!("{e}"));
        sum.bounded += one.bounded;
        sum.unbounded += one.unbounded;
        sum.completions += one.completions;
        sum.closest_percent = sum.closest_percent.max(one.closest_percent);
    }
    println!("{sum:?}");
    // A test of bounds that are never there, or never near, would show nothing.
    assert!(sum.bounded > 4 * sum.unbounded && sum.completions > 100_000, "{sum:?}");
    assert!(sum.closest_percent > 80, "{sum:?}");
}

//! Simulations that refute: no random system may ever exceed its bounds, and what the analysis was
//! before does.
//!
//! `cargo test -p takt-manager --test it refute:: -- --ignored --nocapture` checks 10,000 systems.

#![allow(clippy::unwrap_used)]

use crate::common;

use common::{Checked, Known, check_with};
use takt_manager::simulate::Features;

const SECOND_NS: u64 = 1_000_000_000;

const NONE: Features =
    Features { bursts: false, suspension: false, kinds: false, threads: false, joins: false };

fn all(seeds: std::ops::Range<u64>, features: Features, ticks: bool, known: Known) -> (Checked, Vec<String>) {
    let mut sum = Checked::default();
    let mut failures = Vec::new();
    for seed in seeds {
        match check_with(seed, SECOND_NS / 2, features, ticks && seed % 3 > 0, known) {
            Ok(one) => {
                sum.bounded += one.bounded;
                sum.unbounded += one.unbounded;
                sum.completions += one.completions;
                sum.closest_percent = sum.closest_percent.max(one.closest_percent);
            }
            Err(why) => failures.push(why),
        }
    }
    (sum, failures)
}

fn holds(seeds: std::ops::Range<u64>, features: Features, ticks: bool) {
    let (sum, failures) = all(seeds.clone(), features, ticks, Known::All);
    println!("{features:?}, {seeds:?}: {sum:?}");
    assert!(
        failures.is_empty(),
        "{} of {seeds:?}: {:#?}",
        failures.len(),
        &failures[..failures.len().min(10)]
    );
    assert!(sum.bounded > sum.unbounded / 3 && sum.completions > 1000 && sum.closest_percent > 60, "{sum:?}");
}

#[test]
fn plain_systems_never_exceed_their_bounds() {
    holds(0..100, NONE, false);
}

#[test]
fn no_system_exceeds_its_bounds() {
    holds(1000..1400, Features::ALL, true);
}

/// The bounds of before are refuted, by each of what they did not know.
#[test]
fn the_analysis_that_did_not_know_of_them_is_refuted() {
    let refuted = |features: Features, ticks, known| {
        let refuted = all(0..600, features, ticks, known).1.len();
        println!("{features:?}, ticks {ticks}: {refuted} of 600 systems exceed the bounds of {known:?}");
        refuted
    };
    assert!(refuted(Features { bursts: true, ..NONE }, false, Known::Before) > 0);
    assert!(refuted(Features { suspension: true, ..NONE }, false, Known::Before) > 0);
    // The bound of a wait set that counts all arrivals until the start covers the order of
    // activation, too; RTSS'21 does not.
    refuted(Features { bursts: true, kinds: true, ..NONE }, false, Known::OneKind);
    assert!(refuted(Features { bursts: true, threads: true, ..NONE }, false, Known::OneKind) > 0);
    refuted(NONE, true, Known::Before);
}

#[test]
#[ignore = "minutes"]
fn campaign_ten_thousand_systems_never_exceed_their_bounds() {
    holds(10_000..20_000, Features::ALL, true);
}

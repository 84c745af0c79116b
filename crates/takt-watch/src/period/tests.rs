//! Planted series: what was planted is found, and where nothing was planted nothing is.

use proptest::prelude::*;
use takt_rt::random::SplitMix64;

use super::{Done, FEWEST, find, find_by_work};

/// From -1 to 1.
fn sign(random: &mut SplitMix64) -> f64 {
    2.0 * random.unit() - 1.0
}

/// Releases on a grid: `jitter` (a share of the period) to either side, and a share of `dropped`
/// ones missing.
fn grid(seed: u64, count: usize, period: f64, jitter: f64, dropped: f64) -> Vec<u64> {
    let mut random = SplitMix64::new(seed);
    let mut times = Vec::new();
    for index in 1..=count {
        let time = (index as f64 + jitter * sign(&mut random)) * period;
        if random.unit() >= dropped {
            times.push(time as u64);
        }
    }
    times.sort_unstable();
    times
}

fn assert_period(times: &[u64], period: f64, within: f64) -> Result<(), TestCaseError> {
    let found = find(times);
    let right = found.is_some_and(|found| (found.ns / period - 1.0).abs() <= within);
    prop_assert!(right, "{found:?} instead of {period}");
    Ok(())
}

fn hertz() -> impl Strategy<Value = f64> {
    (0.0_f64..=1.0).prop_map(|share| 8000_f64.powf(share))
}

/// The jitter makes their ratio, 3.2, that of an even grid of which every second release or more is
/// missing.
#[test]
fn pairs_that_are_nearly_on_a_grid_are_pairs() {
    for (apart, seed) in [0.37, 0.38, 0.52, 0.53, 0.54]
        .into_iter()
        .zip(0..)
        .flat_map(|(apart, first)| (0..8).map(move |seed| (apart, 8 * first + seed)))
    {
        let mut random = SplitMix64::new(seed);
        let off = |index: u64| if index % 2 == 1 { -apart } else { 0.0 };
        let times: Vec<u64> = (0..400)
            .map(|index| ((index as f64 + 1.0 + off(index) + 0.01 * sign(&mut random)) * 1e6) as u64)
            .collect();
        let done: Vec<Done> = times.iter().map(|ns| Done { end_ns: ns + 1000, cpu_ns: 1000 }).collect();
        let found = find_by_work(&times, &done);
        let group = found.and_then(|found| found.group);
        assert!(group.is_some_and(|group| group.count == 2), "{apart}, {seed}: {found:?}");
    }
    // A grid of 70 us is no loop's.
    let fast: Vec<u64> = (0..400).map(|index| index / 2 * 280_000 + index % 2 * 70_000).collect();
    let found = find(&fast);
    assert!(found.is_some_and(|found| (found.ns / 140_000.0 - 1.0).abs() < 0.01), "{found:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_clock_is_found_from_1_hz_to_8_khz(hz in hertz(), seed: u64, count in FEWEST + 4..400_usize) {
        let period = 1e9 / hz;
        assert_period(&grid(seed, count, period, 0.002, 0.0), period, 0.002)?;
    }

    #[test]
    fn jitter_and_dropped_cycles_are_seen_through(
        hz in hertz(), seed: u64, jitter in 0.05_f64..0.30, dropped in 0.0_f64..0.25,
    ) {
        let period = 1e9 / hz;
        assert_period(&grid(seed, 400, period, jitter, dropped), period, 0.01)?;
    }

    #[test]
    fn dropped_cycles_do_not_lengthen_the_period(hz in hertz(), seed: u64, dropped in 0.0_f64..0.4) {
        let period = 1e9 / hz;
        assert_period(&grid(seed, 200, period, 0.01, dropped), period, 0.005)?;
    }

    #[test]
    fn bursts_after_a_release_do_not_shorten_the_period(
        hz in hertz(), seed: u64, extra in 1_usize..4, apart in 0.005_f64..0.04,
    ) {
        let period = 1e9 / hz;
        let mut random = SplitMix64::new(seed);
        let mut times = Vec::new();
        for release in grid(seed, 200, period, 0.01, 0.0) {
            let so_many = (random.unit() * (extra as f64 + 1.0)) as usize;
            times.extend((0..=so_many).map(|number| release + (number as f64 * apart * period) as u64));
        }
        times.sort_unstable();
        assert_period(&times, period, 0.01)?;
    }

    #[test]
    fn a_loop_that_sleeps_for_a_time_has_a_period_though_it_drifts(hz in hertz(), seed: u64, jitter in 0.0_f64..0.1) {
        let period = 1e9 / hz;
        let mut random = SplitMix64::new(seed);
        let mut now = 1e6;
        let times: Vec<u64> = (0..300).map(|_| {
            now += period * (1.0 + jitter * sign(&mut random));
            now as u64
        }).collect();
        assert_period(&times, period, 0.02)?;
    }

    #[test]
    fn of_two_timers_in_one_thread_one_is_reported_or_none(hz in 20.0_f64..2000.0, ratio in 1.3_f64..9.0, seed: u64) {
        let (fast, slow) = (1e9 / hz, ratio * 1e9 / hz);
        let mut times = grid(seed, 400, fast, 0.01, 0.0);
        let end = *times.last().unwrap_or(&0);
        times.extend(grid(seed ^ 1, 400, slow, 0.01, 0.0).into_iter().filter(|&time| time < end));
        times.sort_unstable();
        if let Some(found) = find(&times) {
            let is = |period: f64| (found.ns / period - 1.0).abs() < 0.02;
            // If they have nearly a common divisor, that is a period as well.
            let near = |period: f64| (found.ns / period - 1.0).abs() < 0.04;
            let divides = (1..=9).any(|parts| near(slow / f64::from(parts))) && (1..=9).any(|parts| near(fast / f64::from(parts)));
            let common = divides || (1..=9).any(|parts| is(slow / f64::from(parts)) && (ratio * 2.0 - (ratio * 2.0).round()).abs() < 0.1);
            prop_assert!(is(fast) || is(slow) || common, "{found:?} of {fast} and {slow}");
        }
    }

    #[test]
    fn random_times_have_no_period(hz in hertz(), seed: u64, count in FEWEST..700_usize) {
        let mut random = SplitMix64::new(seed);
        let mut now = 0.0;
        let times: Vec<u64> = (0..count).map(|_| {
            now -= (1.0 - random.unit()).ln() * 1e9 / hz;
            now as u64
        }).collect();
        prop_assert_eq!(find(&times), None);
    }

    #[test]
    fn random_multiples_of_the_tick_have_no_period(seed: u64, empty in 0.7_f64..0.95) {
        prop_assert_eq!(find(&grid(seed, 2000, 4e6, 0.01, empty)), None);
    }

    #[test]
    fn jitter_is_no_group(hz in hertz(), seed: u64, jitter in 0.0_f64..0.30) {
        let found = find(&grid(seed, 400, 1e9 / hz, jitter, 0.0));
        prop_assert!(found.is_none_or(|found| found.group.is_none()), "{found:?}");
    }

    #[test]
    fn pairs_are_found_through_jitter(hz in hertz(), seed: u64, apart in 0.1_f64..0.9, noise in 0.0_f64..0.02) {
        // Distances of 1 - apart and 1 + apart times the mean.
        let (period, mut random) = (1e9 / hz, SplitMix64::new(seed));
        let at = |index: u64, off: f64| (index as f64 + if index % 2 == 1 { -apart } else { 0.0 } + 1.0 + off) * period;
        let times: Vec<u64> = (0..400).map(|index| at(index, noise * sign(&mut random)) as u64).collect();
        // An even grid of which some releases do not come looks the same, but for the work.
        let done: Vec<Done> = times.iter().map(|ns| Done { end_ns: ns + 1000, cpu_ns: 1000 }).collect();
        let found = find_by_work(&times, &done);
        let group = found.and_then(|found| found.group);
        prop_assert!(group.is_some_and(|group| group.count == 2), "{found:?}");
        prop_assert!(found.is_some_and(|found| (found.ns / period - 1.0).abs() < 0.02), "{found:?}");
    }

    #[test]
    fn any_numbers_are_answered(mut times in proptest::collection::vec(any::<u64>(), 0..200)) {
        let _ = find(&times);
        times.sort_unstable();
        let _ = find(&times);
    }
}

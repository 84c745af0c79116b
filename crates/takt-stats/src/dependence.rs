//! How far do misses hang together? Jobs that miss in bursts are fewer trials than they are jobs.
//!
//! The measure is the index of dispersion (Cox and Lewis, "The Statistical Analysis of Series of
//! Events", 1966, section 4.5): the variance of the number of events in a stretch over its mean, 1
//! for independent events, the size-biased burst length for bursts. Stretches of all lengths 2^j
//! are looked at, and the greatest index counts. Where no job missed, the events are the largest
//! values: what makes the machine late makes it a little late more often.

/// Thresholds leave so many events, where the series has as many times ten values.
const EVENTS: [usize; 3] = [100, 300, 1000];
/// Values per event at least: below, events are the body of the distribution and no tail.
const VALUES_PER_EVENT: usize = 20;
/// Stretches of one length: fewer say nothing.
const LEAST_STRETCHES: usize = 30;
/// An index that chance moves by so many standard errors (√(2/stretches)) counts as 1.
const CHANCE: f64 = 3.0;

/// The index of dispersion of a series in time order: how many jobs count as one trial. At least 1.
pub fn dispersion(values_ns: &[u64], deadline_ns: Option<u64>) -> f64 {
    let mut index = 1.0f64;
    if let Some(deadline_ns) = deadline_ns {
        index = index.max(of_events(values_ns, deadline_ns));
    }
    let most = EVENTS.iter().copied().filter(|&events| events * VALUES_PER_EVENT <= values_ns.len()).max();
    let Some(most) = most else { return index };
    let mut greatest = values_ns.to_vec();
    let place = greatest.len() - 1 - most;
    greatest.select_nth_unstable(place);
    greatest.drain(..place);
    greatest.sort_unstable_by(|a, b| b.cmp(a));
    for events in EVENTS {
        if let Some(&threshold) = greatest.get(events) {
            index = index.max(of_events(values_ns, threshold));
        }
    }
    index
}

/// Of the values above a threshold.
fn of_events(values_ns: &[u64], threshold_ns: u64) -> f64 {
    // Events per stretch, for stretches that double.
    let mut counts: Vec<u32> = values_ns.iter().map(|&value| u32::from(value > threshold_ns)).collect();
    let mut index = 1.0f64;
    while counts.len() >= LEAST_STRETCHES {
        let stretches = counts.len() as f64;
        let mean = counts.iter().map(|&c| f64::from(c)).sum::<f64>() / stretches;
        if mean == 0.0 {
            return 1.0;
        }
        let squares: f64 = counts.iter().map(|&c| (f64::from(c) - mean).powi(2)).sum();
        let found = squares / (stretches - 1.0) / mean;
        if found > 1.0 + CHANCE * (2.0 / stretches).sqrt() {
            index = index.max(found);
        }
        counts = counts.chunks_exact(2).map(|pair| pair[0] + pair[1]).collect();
    }
    index
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::generator;
    use proptest::prelude::*;
    use rand::RngExt;

    #[test]
    fn independent_values_are_trials_each() {
        for seed in 0..20 {
            let mut rng = generator(seed);
            let series: Vec<u64> = (0..20_000).map(|_| rng.random_range(0..1_000_000u64)).collect();
            let found = dispersion(&series, None);
            assert!(found < 2.0, "{seed}: {found}");
        }
    }

    #[test]
    fn bursts_count_as_one() {
        let mut rng = generator(7);
        let mut series = Vec::new();
        while series.len() < 40_000 {
            // One block of ten in a thousand is slow.
            let slow = rng.random::<f64>() < 1e-3;
            series.extend((0..10).map(|_| rng.random_range(0..1000u64) + if slow { 10_000 } else { 0 }));
        }
        let found = dispersion(&series, Some(5_000));
        assert!((8.0..14.0).contains(&found), "{found}");
        // The deadline need not be missed: large values hang together likewise.
        let found = dispersion(&series, Some(50_000));
        assert!(found > 2.0, "{found}");
    }

    proptest! {
        #[test]
        fn any_series_has_an_index(
            values in proptest::collection::vec(0u64..50, 0..5000), deadline in proptest::option::of(0u64..60)
        ) {
            let found = dispersion(&values, deadline);
            prop_assert!(found >= 1.0 && found.is_finite() && found <= values.len().max(1) as f64);
        }
    }
}

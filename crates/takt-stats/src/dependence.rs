//! Range of the dependence between misses. Jobs that miss in bursts are fewer trials than they are
//! jobs.
//!
//! The measure is the index of dispersion (Cox and Lewis, "The Statistical Analysis of Series of
//! Events", 1966, section 4.5): the variance of the number of events in a stretch over its mean, 1
//! for independent events, the size-biased burst length for bursts. Stretches of all lengths 2^j
//! are looked at, and the greatest index counts. If no job missed, the events are the largest
//! values: causes of lateness make the machine a little late more often.
//!
//! A short series cannot show how far a longer one of the same process hangs together. A question
//! about additional measuring time gets a forecast: it looks at stretches of which there are only a
//! few, allows for the effect of chance on an index, and takes as many events as the longer series
//! will have.

/// Thresholds leave so many events, where the series has as many times ten values.
const EVENTS: [usize; 3] = [100, 300, 1000];
/// Values per event at least: below, events are the body of the distribution and no tail.
const VALUES_PER_EVENT: usize = 20;
/// Stretches of one length: fewer say nothing.
const MIN_STRETCHES: usize = 30;
/// An index that chance moves by so many standard errors (√(2/stretches)) counts as 1.
const CHANCE: f64 = 3.0;
/// The forecast also looks at so few stretches. Fewer would ask for several times the time that is
/// needed: over simulated processes 8 is where nine forecasts of ten are enough.
const MIN_STRETCHES_TO_COME: usize = 8;
/// Events that a forecast needs at least.
const MIN_EVENTS_TO_COME: usize = 20;

/// Range of the dependence in a series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dispersion {
    /// The index of dispersion: how many jobs count as one trial. At least 1.
    pub index: f64,
    /// Value that a longer series of the same process may show: at least [`Self::index`].
    pub to_come: f64,
}

impl Dispersion {
    const NONE: Self = Self { index: 1.0, to_come: 1.0 };

    fn or_more(self, other: Self) -> Self {
        Self { index: self.index.max(other.index), to_come: self.to_come.max(other.to_come) }
    }
}

/// The index of dispersion of a series in time order: how many jobs count as one trial. At least 1.
pub fn dispersion(values_ns: &[u64], deadline_ns: Option<u64>) -> f64 {
    measure(values_ns, deadline_ns).index
}

/// The index of dispersion of a series in time order, and what it may be in a longer one.
pub fn measure(values_ns: &[u64], deadline_ns: Option<u64>) -> Dispersion {
    let mut found = deadline_ns.map_or(Dispersion::NONE, |deadline_ns| of_events(values_ns, deadline_ns));
    // A longer series has thresholds further down, where more of it hangs together.
    let to_come = (values_ns.len() / VALUES_PER_EVENT).min(EVENTS[EVENTS.len() - 1]);
    if to_come < MIN_EVENTS_TO_COME {
        return found;
    }
    let mut greatest = values_ns.to_vec();
    let place = greatest.len() - 1 - to_come;
    greatest.select_nth_unstable(place);
    greatest.drain(..place);
    greatest.sort_unstable_by(|a, b| b.cmp(a));
    for events in EVENTS {
        if let Some(&threshold) = greatest.get(events) {
            found = found.or_more(of_events(values_ns, threshold));
        }
    }
    if !EVENTS.contains(&to_come) {
        let Dispersion { to_come, .. } = of_events(values_ns, greatest[to_come]);
        found.to_come = found.to_come.max(to_come);
    }
    found
}

/// Of the values above a threshold.
fn of_events(values_ns: &[u64], threshold_ns: u64) -> Dispersion {
    // Events per stretch, for stretches that double.
    let mut counts: Vec<u32> = values_ns.iter().map(|&value| u32::from(value > threshold_ns)).collect();
    let mut found = Dispersion::NONE;
    while counts.len() >= MIN_STRETCHES_TO_COME {
        let stretches = counts.len() as f64;
        let mean = counts.iter().map(|&c| f64::from(c)).sum::<f64>() / stretches;
        if mean == 0.0 {
            break;
        }
        let squares: f64 = counts.iter().map(|&c| (f64::from(c) - mean).powi(2)).sum();
        let index = squares / (stretches - 1.0) / mean;
        let error = (2.0 / stretches).sqrt();
        if index > 1.0 + CHANCE * error {
            if counts.len() >= MIN_STRETCHES {
                found.index = found.index.max(index);
            }
            found.to_come = found.to_come.max(index * (1.0 + error));
        }
        counts = counts.chunks_exact(2).map(|pair| pair[0] + pair[1]).collect();
    }
    found
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
            let found = measure(&series, None);
            assert!(found.index < 2.0 && found.to_come < 6.0, "{seed}: {found:?}");
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
            let found = measure(&values, deadline);
            prop_assert!(found.index >= 1.0 && found.index <= values.len().max(1) as f64);
            prop_assert!(found.to_come >= found.index && found.to_come.is_finite());
            prop_assert_eq!(found.index, dispersion(&values, deadline));
        }
    }
}

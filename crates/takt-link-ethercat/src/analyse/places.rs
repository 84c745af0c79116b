//! Identification of a frame's sightings if the file does not report the end of the wire: ports of
//! a probe, or several interfaces that saw the same frames.

use std::collections::{BTreeMap, HashMap};

/// A sighting, as far as its place in the way counts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    /// Port, or interface and direction.
    pub place: u32,
    /// Equal for a frame and its answer.
    pub key: u64,
    pub time_ns: u64,
    /// Whether it had been through a device.
    pub passed: bool,
    /// Sum of its working counters, which grows from device to device.
    pub count: u64,
}

/// A place, in the order of the way of frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PlaceFacts {
    pub place: u32,
    passed: bool,
    count: u64,
    /// Against the first of the places that counters do not distinguish.
    position_ns: i64,
}

impl PlaceFacts {
    /// Whether no device lies between the two: only a wire.
    pub fn joins(&self, other: &Self) -> bool {
        (self.passed, self.count) == (other.passed, other.count)
    }
}

type Times = HashMap<u64, Vec<u64>>;

/// The places of `seen`, in the order in which frames pass them: by what devices leave in frames,
/// and by time where no device lies between.
pub(super) fn order(seen: &[Seen]) -> Vec<PlaceFacts> {
    let mut counts: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    let mut passed: BTreeMap<u32, usize> = BTreeMap::new();
    let mut times: BTreeMap<u32, Times> = BTreeMap::new();
    for one in seen {
        counts.entry(one.place).or_default().push(one.count);
        *passed.entry(one.place).or_default() += usize::from(one.passed);
        times.entry(one.place).or_default().entry(one.key).or_default().push(one.time_ns);
    }
    for list in times.values_mut().flat_map(HashMap::values_mut) {
        list.sort_unstable();
    }
    let mut places: Vec<PlaceFacts> = counts
        .into_iter()
        .map(|(place, mut counts)| {
            counts.sort_unstable();
            let passed = passed.get(&place).copied().unwrap_or(0) * 2 > counts.len();
            PlaceFacts { place, passed, count: counts[counts.len() / 2], position_ns: 0 }
        })
        .collect();
    for at in 1..places.len() {
        let this = places[at];
        let Some(first) = places[..at].iter().find(|other| other.joins(&this)) else { continue };
        if let (Some(first), Some(this)) = (times.get(&first.place), times.get(&this.place)) {
            places[at].position_ns = position(first, this);
        }
    }
    places.sort_by_key(|place| (place.count, place.passed, place.position_ns, place.place));
    places
}

/// Delay from `first` to `this`; negative if frames arrive at `this` earlier. The nearer of the
/// two, as the same frame comes again in each cycle.
fn position(first: &Times, this: &Times) -> i64 {
    match (median_step(first, this), median_step(this, first)) {
        (Some(after), Some(before)) if before < after => -before,
        (Some(after), _) => after,
        (None, Some(before)) => -before,
        (None, None) => 0,
    }
}

fn median_step(from: &Times, to: &Times) -> Option<i64> {
    let mut steps = Vec::new();
    for (key, times) in from {
        let Some(later) = to.get(key) else { continue };
        for time in times {
            let next = later.get(later.partition_point(|other| other < time));
            steps.extend(next.map(|next| i64::try_from(next - time).unwrap_or(i64::MAX)));
        }
    }
    steps.sort_unstable();
    steps.get(steps.len() / 2).copied()
}

/// The places of the four sightings of a way: leaving the master, at the segment, from the segment,
/// back at the master.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Four(pub [Option<PlaceFacts>; 4]);

impl Four {
    /// Of `places` in their order. Two places of a probe (`inside`) have the master on one side and
    /// the devices on the other; two interfaces have both ends beyond them.
    pub fn of(places: &[PlaceFacts], inside: bool) -> Self {
        let (first, last) = match places {
            [] => return Self::default(),
            [one] if one.passed && inside => return Self([None, None, Some(*one), None]),
            [one] if one.passed => return Self([None, None, None, Some(*one)]),
            [one] if inside => return Self([None, Some(*one), None, None]),
            [one] => return Self([Some(*one), None, None, None]),
            [first, last] if first.joins(last) && !first.passed => {
                return Self([Some(*first), Some(*last), None, None]);
            }
            [first, last] if first.joins(last) => return Self([None, None, Some(*first), Some(*last)]),
            [first, last] if inside => return Self([None, Some(*first), Some(*last), None]),
            [first, .., last] => (*first, *last),
        };
        let middle = &places[1..places.len() - 1];
        let half = middle.len() / 2;
        // One of two directions is missing there: nothing can be paired.
        let pair = (half > 0 && middle.len().is_multiple_of(2)).then(|| (middle[half - 1], middle[half]));
        Self([Some(first), pair.map(|pair| pair.0), pair.map(|pair| pair.1), Some(last)])
    }

    /// Whether devices lie between the first two, and between the last two.
    pub fn devices_between(&self) -> [bool; 2] {
        let between =
            |a: Option<PlaceFacts>, b: Option<PlaceFacts>| a.zip(b).is_some_and(|(a, b)| !a.joins(&b));
        let Self([sent, at, from, back]) = *self;
        [between(sent, at), between(from, back)]
    }

    /// Index of `place` among the four.
    pub fn index(&self, place: u32) -> Option<usize> {
        self.0.iter().position(|one| one.is_some_and(|one| one.place == place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cycles of 1 ms whose frame is at `place` after `us`, with `count`.
    fn cycles(places: &[(u32, u64, u64)]) -> Vec<Seen> {
        let one = |cycle: u64, &(place, us, count): &(u32, u64, u64)| Seen {
            place,
            key: cycle % 3,
            time_ns: cycle * 1_000_000 + us * 1000,
            passed: count > 0,
            count,
        };
        (0..20).flat_map(|cycle| places.iter().map(move |place| one(cycle, place))).collect()
    }

    fn indices(seen: &[Seen], inside: bool) -> [Option<u32>; 4] {
        Four::of(&order(seen), inside).0.map(|place| place.map(|place| place.place))
    }

    #[test]
    fn ports_are_ordered_by_counters_and_by_time() {
        // A probe at the master's end of a cable (ports 1 and 0) and one at its other end (3, 2).
        let seen = cycles(&[(1, 0, 0), (3, 5, 0), (2, 900, 9), (0, 905, 9)]);
        assert_eq!(indices(&seen, true), [Some(1), Some(3), Some(2), Some(0)]);
        assert_eq!(Four::of(&order(&seen), true).devices_between(), [false, false]);
        // The second behind some devices.
        let seen = cycles(&[(0, 0, 0), (2, 5, 3), (3, 9, 9), (1, 20, 12)]);
        assert_eq!(indices(&seen, true), [Some(0), Some(2), Some(3), Some(1)]);
        assert_eq!(Four::of(&order(&seen), true).devices_between(), [true, true]);
    }

    #[test]
    fn one_channel_of_a_probe_has_the_devices_behind_it() {
        assert_eq!(indices(&cycles(&[(5, 0, 0), (4, 30, 9)]), true), [None, Some(5), Some(4), None]);
        assert_eq!(indices(&cycles(&[(0, 30, 9)]), true), [None, None, Some(0), None]);
        // Two network cards of a tap, one for each direction.
        assert_eq!(indices(&cycles(&[(1, 30, 9), (0, 0, 0)]), false), [Some(0), None, None, Some(1)]);
        // Both ports on the way out.
        assert_eq!(indices(&cycles(&[(2, 4, 0), (0, 0, 0)]), true), [Some(0), Some(2), None, None]);
        // One direction of the second probe was not recorded.
        assert_eq!(
            indices(&cycles(&[(0, 0, 0), (2, 4, 0), (1, 30, 9)]), true),
            [Some(0), None, None, Some(1)]
        );
        assert_eq!(indices(&[], true), [None; 4]);
    }
}

//! The clock of a probe on the wire: which of its stamps are times, and where it began anew.

/// A clock that is further back than this began anew: frames of several ports come out of order by
/// less. So near must a stamp of zero be to the next one, by the recording computer's clock.
const BACK_NS: u64 = 10_000_000;
/// A clock that runs ahead of the recording computer's by more than this at once was set: frames
/// wait on their way to the recording computer for less.
const AHEAD_NS: i128 = 1_000_000_000;
/// A frame that the recording computer got late belongs to the stretch before, if it is so near.
const BEHIND_NS: i128 = 100_000_000;

/// When a probe saw a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct At {
    /// Its time, shifted to the recording computer's clock.
    pub time_ns: u64,
    /// How often the clock began anew before it.
    pub restarts: u32,
}

/// The recording computer's time of each frame, and the probe's stamp.
pub(super) type Stamped = (u64, Option<u64>);

/// A stretch in which the clock ran on.
struct Stretch {
    newest_ns: u64,
    /// The recording computer's clock less the probe's: at the last frame, and the least, which is
    /// that of the frame with the shortest way.
    offset_ns: i128,
    least_offset_ns: i128,
}

impl Stretch {
    fn from(stamp_ns: u64, offset_ns: i128) -> Self {
        Self { newest_ns: stamp_ns, offset_ns, least_offset_ns: offset_ns }
    }

    fn goes_on(&self, stamp_ns: u64, offset_ns: i128) -> bool {
        self.newest_ns.saturating_sub(stamp_ns) <= BACK_NS && self.offset_ns - offset_ns <= AHEAD_NS
    }

    fn take(&mut self, stamp_ns: u64, offset_ns: i128) {
        self.newest_ns = self.newest_ns.max(stamp_ns);
        self.offset_ns = offset_ns;
        self.least_offset_ns = self.least_offset_ns.min(offset_ns);
    }
}

/// Which stamps are times. A multiplier of ports stamps what it receives with a time, and what it
/// is given to send with zero; a clock that has just begun is at zero, too, and at the next frame
/// not far from it.
fn times(seen: &[Stamped]) -> Vec<Option<u64>> {
    let is_set = |stamp: Option<u64>| stamp.filter(|stamp_ns| *stamp_ns > 0);
    let mut next = None;
    let mut times: Vec<Option<u64>> = seen
        .iter()
        .rev()
        .map(|&(recorded_ns, stamp)| {
            if let Some(stamp_ns) = is_set(stamp) {
                next = Some((recorded_ns, stamp_ns));
                return Some(stamp_ns);
            }
            let (next_ns, next_stamp_ns) = next?;
            stamp.filter(|_| next_stamp_ns.abs_diff(next_ns.saturating_sub(recorded_ns)) <= BACK_NS)
        })
        .collect();
    times.reverse();
    times
}

/// When the probe saw each of the frames, which are in the order of the file; `None` for those
/// without a time. By its own clock, shifted to that of the recording computer by the least delay
/// between the two; anew where the clock began anew.
pub(super) fn clock(seen: &[Stamped]) -> Vec<Option<At>> {
    let mut stretches: Vec<Stretch> = Vec::new();
    let placed: Vec<Option<(u64, usize)>> = times(seen)
        .into_iter()
        .zip(seen)
        .map(|(stamp, &(recorded_ns, _))| {
            let stamp_ns = stamp?;
            let offset_ns = i128::from(recorded_ns) - i128::from(stamp_ns);
            let newest = stretches.len().checked_sub(1);
            let at = match newest {
                Some(newest) if stretches[newest].goes_on(stamp_ns, offset_ns) => newest,
                Some(newest)
                    if newest > 0 && (stretches[newest - 1].offset_ns - offset_ns).abs() <= BEHIND_NS =>
                {
                    newest - 1
                }
                _ => {
                    stretches.push(Stretch::from(stamp_ns, offset_ns));
                    stretches.len() - 1
                }
            };
            stretches[at].take(stamp_ns, offset_ns);
            Some((stamp_ns, at))
        })
        .collect();
    let at = |(stamp_ns, at): (u64, usize)| At {
        time_ns: u64::try_from(i128::from(stamp_ns) + stretches[at].least_offset_ns).unwrap_or(0),
        restarts: at as u32,
    };
    placed.into_iter().map(|placed| placed.map(at)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;

    /// Frames each millisecond with these stamps, recorded up to 600 us later.
    fn seen(stamps: impl IntoIterator<Item = u64>) -> Vec<Stamped> {
        let recorded = |at: usize| 1_000_000 * MS + at as u64 * MS + (at as u64 * 7919 % 600) * 1000;
        stamps.into_iter().enumerate().map(|(at, stamp)| (recorded(at), Some(stamp))).collect()
    }

    fn restarts(seen: &[Stamped]) -> u32 {
        clock(seen).iter().flatten().map(|at| at.restarts).max().unwrap_or(0)
    }

    #[test]
    fn a_clock_that_began_anew_is_found_and_its_times_go_on() {
        let at = |at: u64| at * MS;
        let restarted = |from: u64| (0..400).map(move |n| if n < 200 { at(from + n) } else { at(n - 199) });
        let wrapped = |from: u64, bits: u32| {
            (0..400).map(move |n| (from.wrapping_add(at(n))) & (u64::MAX >> (64 - bits)))
        };
        for (what, stamps, count) in [
            ("steady", seen((0..400).map(at)), 0),
            ("restarted", seen(restarted(900_000)), 1),
            ("restarted early", seen(restarted(0)), 1),
            ("64 bits are full", seen(wrapped(u64::MAX - 200 * MS, 64)), 1),
            ("32 bits are full", seen(wrapped((1 << 32) - 200 * MS, 32)), 1),
            ("set", seen((0..400).map(|n| if n < 200 { at(n) } else { at(n) + (1 << 60) })), 1),
        ] {
            assert_eq!(restarts(&stamps), count, "{what}");
            let times: Vec<u64> = clock(&stamps).into_iter().map(|at| at.unwrap().time_ns).collect();
            // Within a stretch exact; from one to the next as exact as the recording.
            let (mut exact, mut near) = (0, 0);
            for two in times.windows(2) {
                exact += usize::from(two[1] - two[0] == MS);
                near += usize::from((two[1] - two[0]).abs_diff(MS) < 600_000);
            }
            assert_eq!((exact >= 398, near), (true, 399), "{what}");
        }
        // A frame that came late to the recording computer, behind the first of the new stretch.
        let mut mixed = seen(restarted(900_000));
        let (earlier, later) = (mixed[199].1, mixed[200].1);
        (mixed[199].1, mixed[200].1) = (later, earlier);
        let of: Vec<u32> = clock(&mixed)[198..202].iter().map(|at| at.unwrap().restarts).collect();
        assert_eq!((of, restarts(&mixed)), (vec![0, 1, 0, 1], 1));
    }

    #[test]
    fn a_stamp_of_zero_is_a_time_where_the_clock_begins() {
        assert!(clock(&seen((0..50).map(|n| n * MS))).iter().all(Option::is_some));
        let sent_without = clock(&seen((0..50).map(|n| if n % 2 == 0 { 0 } else { 5_000 * MS + n * MS })));
        assert!(sent_without.iter().enumerate().all(|(at, one)| one.is_some() == (at % 2 == 1)));
        assert!(clock(&seen([0; 20])).iter().all(Option::is_none));
        assert!(clock(&[]).is_empty());
    }

    proptest! {
        #[test]
        fn any_stamps_are_answered(seen in proptest::collection::vec(any::<Stamped>(), 0..60)) {
            prop_assert_eq!(clock(&seen).len(), seen.len());
        }
    }
}

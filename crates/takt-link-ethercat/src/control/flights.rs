//! Which frames of which cycle are under way, came late, or never came.
//!
//! A frame that is not there when its cycle is fetched is *missing*. When it comes after all it was
//! *late*; only one that has not come [`LOST_AFTER`] cycles later is *lost*.

/// Cycles after which a frame that has not come counts as lost. 16: far beyond what a host that is
/// held up for some milliseconds delays frames by, and soon enough to be reported in the same
/// second.
pub(super) const LOST_AFTER: u64 = 16;

/// A cycle's frames.
#[derive(Debug, Clone, Copy, Default)]
struct Flight {
    /// 0: none yet.
    cycle: u64,
    sent_ns: u64,
    /// Frames with process data, one bit each.
    sent: u32,
    came: u32,
}

/// What a frame that comes back is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arrival {
    /// Of the newest cycle.
    InTime,
    /// So many cycles after its own.
    Late(u64),
    /// It had come before.
    Twice,
    /// It counts as lost already.
    AfterLost,
}

/// The last [`LOST_AFTER`] cycles.
#[derive(Debug, Clone, Default)]
pub(super) struct Flights {
    ring: [Flight; LOST_AFTER as usize],
}

impl Flights {
    fn place(cycle: u64) -> usize {
        (cycle % LOST_AFTER) as usize
    }

    /// `frames` frames of `cycle` were sent at `sent_ns`. Returns how many of the cycle that falls
    /// out never came.
    pub fn open(&mut self, cycle: u64, sent_ns: u64, frames: usize) -> u32 {
        let sent = u32::MAX.checked_shr(32_u32.saturating_sub(frames as u32)).unwrap_or(0);
        let new = Flight { cycle, sent_ns, sent, came: 0 };
        let old = std::mem::replace(&mut self.ring[Self::place(cycle)], new);
        (old.sent & !old.came).count_ones()
    }

    /// Frame `frame` of `cycle` has come, while `newest` is the cycle sent last.
    pub fn close(&mut self, cycle: u64, frame: u8, newest: u64) -> Arrival {
        let flight = &mut self.ring[Self::place(cycle)];
        let bit = 1_u32.checked_shl(frame.into()).unwrap_or(0);
        if flight.cycle != cycle || cycle == 0 || flight.sent & bit == 0 {
            return Arrival::AfterLost;
        }
        if flight.came & bit != 0 {
            return Arrival::Twice;
        }
        flight.came |= bit;
        match newest.saturating_sub(cycle) {
            0 => Arrival::InTime,
            cycles => Arrival::Late(cycles),
        }
    }

    /// When the frames of `cycle` were sent.
    pub fn sent_ns(&self, cycle: u64) -> Option<u64> {
        let flight = &self.ring[Self::place(cycle)];
        (flight.cycle == cycle && cycle > 0).then_some(flight.sent_ns)
    }

    /// Whatever is under way is nobody's loss, but for the frames of `newest`.
    pub fn settle(&mut self, newest: u64) {
        self.ring
            .iter_mut()
            .filter(|flight| flight.cycle != newest)
            .for_each(|flight| flight.came = flight.sent);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn late_is_not_lost_and_lost_is_what_never_came() {
        let mut flights = Flights::default();
        for cycle in 1..=3 {
            assert_eq!(flights.open(cycle, 100 * cycle, 2), 0);
        }
        assert_eq!(flights.close(3, 0, 3), Arrival::InTime);
        assert_eq!(flights.close(3, 0, 3), Arrival::Twice);
        assert_eq!(flights.close(1, 1, 3), Arrival::Late(2));
        assert_eq!((flights.sent_ns(2), flights.sent_ns(4), flights.sent_ns(0)), (Some(200), None, None));
        // No frame of that number was sent.
        assert_eq!(flights.close(3, 2, 3), Arrival::AfterLost);
        let lost: Vec<u32> = (4..=20).map(|cycle| flights.open(cycle, 0, 2)).collect();
        assert_eq!(lost[13..16], [1, 2, 1], "of cycles 1, 2 and 3");
        assert_eq!(flights.close(2, 0, 20), Arrival::AfterLost);
    }

    proptest! {
        #[test]
        fn every_frame_is_in_time_late_or_lost_once(
            delays in proptest::collection::vec((proptest::option::weighted(0.8, 0_u64..40), 0_u8..3), 1..300)
        ) {
            let mut flights = Flights::default();
            let (mut in_time, mut late, mut lost, mut after) = (0, 0, 0, 0);
            let mut under_way: Vec<(u64, u64)> = Vec::new();
            let total = delays.len() as u64;
            for newest in 1..=total + 60 {
                let sent = newest <= total;
                lost += flights.open(newest, newest, usize::from(sent));
                if let Some(&(Some(delay), copies)) = delays.get(newest as usize - 1) {
                    (0..copies).for_each(|_| under_way.push((newest + delay, newest)));
                }
                under_way.retain(|&(due, cycle)| {
                    if due > newest {
                        return true;
                    }
                    match flights.close(cycle, 0, newest) {
                        Arrival::InTime => in_time += 1,
                        Arrival::Late(_) => late += 1,
                        Arrival::AfterLost => after += 1,
                        Arrival::Twice => {}
                    }
                    false
                });
            }
            prop_assert_eq!(in_time + late + u64::from(lost), total, "{} came after they were lost", after);
        }
    }
}

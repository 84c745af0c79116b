//! State of the cycles' frames: under way, late, or lost.
//!
//! A frame that is not there when its cycle is fetched is *missing*. When it comes after all it was
//! *late*; one that has not come [`LOST_AFTER`] cycles later counts as *lost*, until it comes.

/// Cycles after which a frame that has not come counts as lost. 16: far beyond what a host that is
/// held up for some milliseconds delays frames by, and soon enough to be reported in the same
/// second.
pub(super) const LOST_AFTER: u64 = 16;
/// Cycles for which a lost frame is known: one that comes within them was late and not lost. 256: a
/// quarter of a second at 1 kHz; no queue on the way holds a frame for longer.
const REMEMBERED: u64 = 256;

/// A cycle's frames.
#[derive(Debug, Clone, Copy, Default)]
struct Flight {
    /// 0: none yet.
    cycle: u64,
    sent_ns: u64,
    /// Frames with process data, one bit each.
    sent: u32,
    came: u32,
    /// Those of them that count as lost.
    lost: u32,
    /// Those that do not come are nobody's loss.
    is_nobodys: bool,
}

/// Kind of a returning frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arrival {
    /// Of the newest cycle.
    InTime,
    /// So many cycles after its own.
    Late(u64),
    /// So many cycles after its own: it counted as lost, and was late.
    Found(u64),
    /// It had come before.
    Twice,
    /// It counts as lost, and its cycle is forgotten.
    AfterLost,
}

/// The last [`REMEMBERED`] cycles.
#[derive(Debug, Clone)]
pub(super) struct Flights {
    ring: Box<[Flight]>,
}

impl Default for Flights {
    fn default() -> Self {
        Self { ring: vec![Flight::default(); REMEMBERED as usize].into() }
    }
}

impl Flights {
    fn place(cycle: u64) -> usize {
        (cycle % REMEMBERED) as usize
    }

    /// `frames` frames of `cycle` were sent at `sent_ns`. Returns how many of the cycle
    /// [`LOST_AFTER`] before have not come, and count as lost from now on.
    pub fn open(&mut self, cycle: u64, sent_ns: u64, frames: usize) -> u32 {
        let sent = u32::MAX.checked_shr(32_u32.saturating_sub(frames as u32)).unwrap_or(0);
        self.ring[Self::place(cycle)] = Flight { cycle, sent_ns, sent, came: 0, lost: 0, is_nobodys: false };
        let Some(before) = cycle.checked_sub(LOST_AFTER) else { return 0 };
        let old = &mut self.ring[Self::place(before)];
        if old.cycle != before || old.is_nobodys {
            return 0;
        }
        old.lost = old.sent & !old.came;
        old.lost.count_ones()
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
            cycles if flight.lost & bit != 0 => Arrival::Found(cycles),
            0 => Arrival::InTime,
            cycles => Arrival::Late(cycles),
        }
    }

    /// When the frames of `cycle` were sent.
    pub fn sent_ns(&self, cycle: u64) -> Option<u64> {
        let flight = &self.ring[Self::place(cycle)];
        (flight.cycle == cycle && cycle > 0).then_some(flight.sent_ns)
    }

    /// Whatever is under way is nobody's loss, but for the frames of `newest`; it may still come.
    pub fn settle(&mut self, newest: u64) {
        for flight in self.ring.iter_mut().filter(|flight| flight.cycle != newest) {
            (flight.lost, flight.is_nobodys) = (0, true);
        }
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
        assert_eq!(flights.close(2, 0, 20), Arrival::Found(18));
        assert_eq!(flights.close(2, 0, 20), Arrival::Twice);
        // Forgotten.
        (21..=258).for_each(|cycle| _ = flights.open(cycle, 0, 1));
        assert_eq!(flights.close(2, 1, 258), Arrival::AfterLost);
    }

    #[test]
    fn what_was_under_way_before_counting_is_no_loss_and_no_stray() {
        let mut flights = Flights::default();
        (1..=4).for_each(|cycle| _ = flights.open(cycle, 0, 1));
        flights.settle(4);
        assert_eq!(flights.close(2, 0, 4), Arrival::Late(2));
        let lost: u32 = (5..=40).map(|cycle| flights.open(cycle, 0, 0)).sum();
        assert_eq!(lost, 1, "of cycle 4; 1 and 3 are nobody's");
        assert_eq!(flights.close(1, 0, 40), Arrival::Late(39));
    }

    proptest! {
        #[test]
        fn every_frame_is_in_time_late_or_lost_once(
            delays in proptest::collection::vec((proptest::option::weighted(0.8, 0_u64..250), 0_u8..3), 1..300)
        ) {
            let mut flights = Flights::default();
            let (mut in_time, mut late, mut lost) = (0, 0, 0);
            let mut under_way: Vec<(u64, u64)> = Vec::new();
            let total = delays.len() as u64;
            for newest in 1..=total + 300 {
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
                        Arrival::Found(_) => (late, lost) = (late + 1, lost - 1),
                        Arrival::AfterLost => panic!("within what is remembered"),
                        Arrival::Twice => {}
                    }
                    false
                });
            }
            let came = delays.iter().filter(|(delay, copies)| delay.is_some() && *copies > 0).count() as u64;
            prop_assert_eq!((in_time + late, u64::from(lost)), (came, total - came));
        }
    }
}

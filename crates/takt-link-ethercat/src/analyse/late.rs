//! Reason why an answer came too late, from the timestamps of its path: of the application itself,
//! of this host's kernel, and of the segment if it is a simulated one that reports the truth.
//!
//! ```text
//!  planned ─► awake ─► begun ─► sent ─► handed over ─► at the segment ─► left it ─► arrived here ─► (given up) ─► taken
//!     own wake-up  own work  frame before  handing over   way out      segment      way back     host
//! ```
//!
//! Names the part that took longest beyond its usual time, if the answer would have arrived in time
//! without it, or a part that always takes too long for any answer. Without such a part, it does
//! not guess.

use serde::{Deserialize, Serialize};

use super::report::Blame;

/// The stamps of a frame whose answer came late, CLOCK_MONOTONIC; 0 where nothing is known. The
/// parts before sending are 0, too, if the wait for the answer begins with sending: whatever was
/// late then, the answer had all of its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LateWay {
    /// When the application was to wake up.
    pub planned_ns: u64,
    /// When it was awake.
    pub wake_ns: u64,
    /// When its exchange began: in a pipelined one it waits from then on for the frames of the
    /// cycle before.
    pub begun_ns: u64,
    /// When it was about to hand the frame to the system.
    pub sent_ns: u64,
    /// When the system had taken it.
    pub handed_ns: u64,
    /// When the frame came to the segment.
    pub at_segment_ns: u64,
    /// When it left the segment.
    pub left_segment_ns: u64,
    /// When this host's kernel got the answer.
    pub arrived_ns: u64,
    /// When the application looked for it last before it went on without it.
    pub gave_up_ns: u64,
    /// When the application took it.
    pub taken_ns: u64,
}

/// Usual time of each part of the path, nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usual {
    /// From the planned release to being awake.
    pub wake_ns: u64,
    /// From being awake to the exchange.
    pub work_ns: u64,
    /// Waiting for the frames of the cycle before, and taking their answers.
    pub before_ns: u64,
    /// Handing over.
    pub handing_ns: u64,
    /// From sending to the segment.
    pub outward_ns: u64,
    /// In the segment.
    pub segment_ns: u64,
    /// From the segment to this host's kernel.
    pub homeward_ns: u64,
    /// From sending to this host's kernel, where the segment does not report.
    pub beyond_ns: u64,
}

/// Part of the path that made an answer late.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LatePlace {
    /// The application's own thread woke up late.
    WakeUp,
    /// From its wake-up to the exchange; to sending, where the beginning of the exchange is not
    /// known.
    Work,
    /// Waiting for the answer to the frame before, and taking it.
    Before,
    /// In the system call that hands the frame over.
    Handing,
    /// Between handing over and the segment.
    Outward,
    /// In the segment.
    Segment,
    /// Between the segment and this host's kernel.
    Homeward,
    /// Between handing over and this host's receive path: wire, card, device, or this host's own
    /// interrupts and softirqs, as the kernel stamps an answer in software. Only the segment's own
    /// stamps distinguish them.
    Beyond,
    /// The answer was in this host, and the application did not get it.
    Untaken,
    /// No stamp shows where.
    Unexplained,
}

impl LatePlace {
    /// For people.
    pub fn title(self) -> &'static str {
        match self {
            Self::WakeUp => "own wake-up late",
            Self::Work => "own work before sending",
            Self::Before => "waited for the previous frame",
            Self::Handing => "delayed while handing the frame over",
            Self::Outward => "late at the segment",
            Self::Segment => "late in the segment",
            Self::Homeward => "late on the return from the segment",
            Self::Beyond => "between handing over and this host's receive path",
            Self::Untaken => "answer waited in this host",
            Self::Unexplained => "unexplained",
        }
    }

    /// The blamed part in the words of the analysis of captures; `None` if unknown.
    pub fn blame(self) -> Option<Blame> {
        Some(match self {
            Self::WakeUp | Self::Work => Blame::Application,
            Self::Handing | Self::Untaken => Blame::HostStack,
            Self::Outward | Self::Homeward => Blame::Wire,
            Self::Segment => Blame::Device,
            // The cause of the previous frame's lateness is not among the timestamps of this one.
            Self::Before | Self::Beyond | Self::Unexplained => return None,
        })
    }
}

/// Reason why an answer was late.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LateCause {
    /// Part with most of the time.
    pub place: LatePlace,
    /// From when.
    pub from_ns: u64,
    /// To when.
    pub to_ns: u64,
    /// Its excess over the usual time, nanoseconds.
    pub excess_ns: u64,
    /// Time between the end of the application's wait and the answer.
    pub missed_by_ns: u64,
}

/// An answer that was here so long before it was given up was not looked for well enough; shorter
/// is a race of two stamps.
const RACE_NS: u64 = 20_000;

impl LateWay {
    /// Finds the reason of its lateness.
    pub fn judge(&self, usual: &Usual) -> LateCause {
        let Self { planned_ns, wake_ns, begun_ns, sent_ns, handed_ns, .. } = *self;
        let came_ns = if self.arrived_ns > 0 { self.arrived_ns } else { self.taken_ns };
        // When it was given up is not known: neither is by how much it missed that.
        let missed_by_ns = if self.gave_up_ns == 0 { 0 } else { came_ns.saturating_sub(self.gave_up_ns) };
        let first_ns = if planned_ns > 0 { planned_ns } else { sent_ns };
        let cause = |place, from_ns: u64, to_ns: u64, excess_ns| LateCause {
            place,
            from_ns,
            to_ns,
            excess_ns,
            missed_by_ns,
        };
        if self.gave_up_ns == 0 {
            return cause(LatePlace::Unexplained, first_ns, came_ns, 0);
        }
        if self.arrived_ns > 0 && self.gave_up_ns > self.arrived_ns.saturating_add(RACE_NS) {
            let waited_ns = self.gave_up_ns - self.arrived_ns;
            return cause(LatePlace::Untaken, self.arrived_ns, self.gave_up_ns, waited_ns);
        }
        // Handing over ends where the next thing is seen, if that is before: the segment may be
        // faster than the system call's return.
        let next_ns = [self.at_segment_ns, self.arrived_ns].into_iter().find(|&ns| ns > 0);
        let handed_ns = next_ns.map_or(handed_ns, |next_ns| next_ns.min(handed_ns));
        let parts = [
            (LatePlace::WakeUp, planned_ns, wake_ns, usual.wake_ns),
            (LatePlace::Work, wake_ns, if begun_ns > 0 { begun_ns } else { sent_ns }, usual.work_ns),
            (LatePlace::Before, begun_ns, sent_ns, usual.before_ns),
            (LatePlace::Handing, sent_ns, handed_ns, usual.handing_ns),
            (
                LatePlace::Outward,
                handed_ns,
                self.at_segment_ns,
                usual.outward_ns.saturating_sub(usual.handing_ns),
            ),
            (LatePlace::Segment, self.at_segment_ns, self.left_segment_ns, usual.segment_ns),
            (LatePlace::Homeward, self.left_segment_ns, self.arrived_ns, usual.homeward_ns),
            (
                LatePlace::Beyond,
                if self.at_segment_ns == 0 { handed_ns } else { 0 },
                self.arrived_ns,
                usual.beyond_ns.saturating_sub(usual.handing_ns),
            ),
        ];
        let seen = parts.into_iter().filter(|&(_, from_ns, to_ns, _)| from_ns > 0 && to_ns > from_ns);
        let seen = seen.map(|(place, from_ns, to_ns, usual_ns)| {
            cause(place, from_ns, to_ns, (to_ns - from_ns).saturating_sub(usual_ns))
        });
        // Without it the answer would have been there; or late all the same, and most of the time
        // must be its, to name it alone.
        let is_enough = |took_ns: u64| {
            took_ns >= missed_by_ns.max(RACE_NS) || (took_ns > RACE_NS && took_ns >= missed_by_ns / 2)
        };
        let greatest = seen.clone().max_by_key(|cause| cause.excess_ns);
        if let Some(greatest) = greatest.filter(|greatest| is_enough(greatest.excess_ns)) {
            return greatest;
        }
        // A cause that takes this long in every cycle is not an excess but makes every answer late
        // all the same: it must take most of the whole time.
        let longest = seen.max_by_key(|cause| cause.to_ns - cause.from_ns);
        let is_most = |cause: &LateCause| {
            let took_ns = cause.to_ns - cause.from_ns;
            is_enough(took_ns) && took_ns > came_ns.saturating_sub(first_ns) / 2
        };
        longest.filter(is_most).unwrap_or_else(|| cause(LatePlace::Unexplained, first_ns, came_ns, 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1000;
    const USUAL: Usual = Usual {
        wake_ns: 20 * US,
        work_ns: 10 * US,
        before_ns: 0,
        handing_ns: 15 * US,
        outward_ns: 40 * US,
        segment_ns: 5 * US,
        homeward_ns: 10 * US,
        beyond_ns: 55 * US,
    };

    /// A frame that took `parts` (µs) for waking, working (and nothing for the frame before),
    /// handing over, way out, segment, way back; the next cycle gives up 1060 µs after this one was
    /// planned.
    fn way(parts: [u64; 6]) -> LateWay {
        let mut at_ns = 1_000_000_000;
        let mut next = |us: u64| {
            at_ns += us * US;
            at_ns
        };
        let planned_ns = next(0);
        let [wake_ns, sent_ns, handed_ns, at_segment_ns, left_segment_ns, arrived_ns] = parts.map(&mut next);
        let gave_up_ns = planned_ns + 1060 * US;
        let taken_ns = planned_ns + 2030 * US;
        LateWay {
            planned_ns,
            wake_ns,
            begun_ns: sent_ns,
            sent_ns,
            handed_ns,
            at_segment_ns,
            left_segment_ns,
            arrived_ns,
            gave_up_ns,
            taken_ns,
        }
    }

    #[test]
    fn what_took_long_is_named() {
        let planted = [
            (LatePlace::WakeUp, [1300, 10, 15, 25, 5, 10]),
            (LatePlace::Work, [20, 1300, 15, 25, 5, 10]),
            (LatePlace::Handing, [20, 10, 1300, 25, 5, 10]),
            (LatePlace::Outward, [20, 10, 15, 1300, 5, 10]),
            (LatePlace::Segment, [20, 10, 15, 25, 1300, 10]),
            (LatePlace::Homeward, [20, 10, 15, 25, 5, 1300]),
        ];
        for (place, parts) in planted {
            let cause = way(parts).judge(&USUAL);
            assert_eq!(cause.place, place, "{parts:?}");
            assert_eq!(cause.missed_by_ns, parts.iter().sum::<u64>() * US - 1060 * US);
            assert!((1250 * US..=1300 * US).contains(&cause.excess_ns), "{cause:?}");
            assert!(cause.to_ns - cause.from_ns == 1300 * US);
        }
    }

    #[test]
    fn waiting_for_the_frame_before_is_no_work_of_ones_own() {
        let waited = way([20, 1300, 15, 25, 5, 10]);
        let begun_ns = waited.wake_ns + 10 * US;
        let cause = LateWay { begun_ns, ..waited }.judge(&USUAL);
        assert_eq!((cause.place, cause.from_ns, cause.excess_ns), (LatePlace::Before, begun_ns, 1290 * US));
        assert_eq!(cause.place.blame(), None, "whose doing the frame before was is not seen");
        // If its begin is unknown, it counts as work: the two cannot be distinguished.
        assert_eq!(LateWay { begun_ns: 0, ..waited }.judge(&USUAL).place, LatePlace::Work);
    }

    #[test]
    fn what_always_takes_too_long_is_named_though_it_is_usual() {
        let slow = way([20, 10, 15, 25, 1300, 10]);
        let cause = slow.judge(&Usual { segment_ns: 1300 * US, ..USUAL });
        assert_eq!(
            (cause.place, cause.excess_ns, cause.to_ns - cause.from_ns),
            (LatePlace::Segment, 0, 1300 * US)
        );
        let cause = way([20, 10, 15, 1300, 5, 10]).judge(&Usual { outward_ns: 1315 * US, ..USUAL });
        assert_eq!((cause.place, cause.excess_ns), (LatePlace::Outward, 0));
        // Two parts that are as long as always, neither of which is most of the way.
        let both = Usual { segment_ns: 600 * US, homeward_ns: 600 * US, ..USUAL };
        assert_eq!(way([20, 10, 15, 25, 600, 600]).judge(&both).place, LatePlace::Unexplained);
    }

    #[test]
    fn an_answer_that_was_here_and_not_taken_is_the_hosts() {
        let cause = way([20, 10, 15, 25, 5, 10]).judge(&USUAL);
        assert_eq!((cause.place, cause.missed_by_ns), (LatePlace::Untaken, 0));
        assert_eq!(cause.excess_ns, (1060 - 85) * US);
    }

    #[test]
    fn without_the_segments_stamps_the_wire_and_the_devices_are_one() {
        let way = LateWay { at_segment_ns: 0, left_segment_ns: 0, ..way([20, 10, 15, 25, 1300, 10]) };
        let cause = way.judge(&USUAL);
        assert_eq!((cause.place, cause.place.blame()), (LatePlace::Beyond, None));
        // Without the kernel's stamp either, no part is seen in which it was late.
        assert_eq!(LateWay { arrived_ns: 0, ..way }.judge(&USUAL).place, LatePlace::Unexplained);
    }

    #[test]
    fn nothing_is_guessed_where_nothing_took_long() {
        // Each a little longer, none enough.
        let cause = way([200, 190, 200, 200, 190, 2000]).judge(&USUAL);
        assert_eq!(cause.place, LatePlace::Homeward);
        let all = way([400, 400, 400, 400, 400, 400]);
        assert_eq!(all.judge(&USUAL).place, LatePlace::Unexplained);
        // Its own cycle is not known: it was not late by the machine's uptime.
        let stray = LateWay { planned_ns: 0, wake_ns: 0, begun_ns: 0, handed_ns: 0, gave_up_ns: 0, ..all };
        let cause = stray.judge(&USUAL);
        assert_eq!((cause.place, cause.missed_by_ns), (LatePlace::Unexplained, 0));
        // A log without stamps.
        assert_eq!(LateWay::default().judge(&USUAL).place, LatePlace::Unexplained);
        let taken = LateWay { taken_ns: 5, gave_up_ns: 3, ..LateWay::default() };
        assert_eq!(taken.judge(&USUAL).place, LatePlace::Unexplained);
    }
}

//! The way of each frame, put together from its sightings.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::capture::{Packet, Side};
use crate::frame::{self, command};

/// Longest time from a sending to its answer: what comes later counts as never come. A second:
/// masters give up far sooner.
const LONGEST_NS: u64 = 1_000_000_000;

/// Where a frame was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Point {
    Sent,
    AtSegment,
    FromSegment,
    Returned,
}

/// A frame seen once.
#[derive(Debug, Clone, Copy)]
struct Sighting {
    number: u64,
    time_ns: u64,
    side: Side,
    outgoing: Option<bool>,
    /// Bit 1 of the source address is set.
    marked: bool,
    source: u64,
    /// Equal for a frame and its answer.
    key: u64,
    shape: u32,
    counters: u32,
}

/// Datagrams of a kind of frame: command, address without what devices count, length.
type Shape = Vec<(u8, u32, u16)>;

/// The frames of a capture.
#[derive(Debug, Default)]
pub struct Traffic {
    sightings: Vec<Sighting>,
    shapes: Vec<Shape>,
    shape_of: HashMap<Shape, u32>,
    counters: Vec<Vec<u16>>,
    counters_of: HashMap<Vec<u16>, u32>,
}

/// A frame's way: when it was seen where, in the capture's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameTimes {
    /// Number of its first sighting in the file, from 1.
    pub number: u64,
    /// Leaving the master's host.
    pub sent_ns: Option<u64>,
    /// Reaching the segment.
    pub at_segment_ns: Option<u64>,
    /// Leaving the segment.
    pub from_segment_ns: Option<u64>,
    /// Back at the master's host.
    pub returned_ns: Option<u64>,
    /// Whether it carried process data.
    pub cyclic: bool,
    /// Command and address of its first datagram of process data; 0 without one.
    pub(super) lead: u64,
    /// What kind of frame, for [`Traffic::datagrams`].
    pub(super) shape: u32,
    /// Working counters of its last sighting.
    pub(super) counters: u32,
}

impl FrameTimes {
    /// When it was seen first.
    pub fn first_ns(&self) -> u64 {
        self.sent_ns.or(self.at_segment_ns).or(self.from_segment_ns).or(self.returned_ns).unwrap_or(0)
    }

    /// From the master's interface and back to it; at the segment where the capture has nothing
    /// else.
    pub(crate) fn round_trip_ns(&self) -> Option<u64> {
        match (self.sent_ns, self.returned_ns) {
            (Some(sent), Some(returned)) => Some(returned.saturating_sub(sent)),
            (None, None) => Some(self.from_segment_ns?.saturating_sub(self.at_segment_ns?)),
            _ => None,
        }
    }
}

/// All ways, and what belongs to none.
#[derive(Debug, Default)]
pub(super) struct Frames {
    pub ways: Vec<FrameTimes>,
    /// Answers without a frame: doubled on the way, or sent before the capture began.
    pub unasked: u64,
    /// Whether the capture has both sightings at the segment, and at the master.
    pub has_segment: bool,
    pub has_master: bool,
    /// First and last sighting, of whatever kind.
    pub first_ns: u64,
    pub last_ns: u64,
}

impl Traffic {
    /// Adds a frame of a capture.
    pub fn add(&mut self, packet: &Packet<'_>) {
        let mut shape = Shape::new();
        let mut counters = Vec::new();
        let mut hasher = DefaultHasher::new();
        for datagram in frame::datagrams(packet.frame) {
            datagram.index.hash(&mut hasher);
            shape.push((datagram.command, datagram.lasting_address(), datagram.data.len() as u16));
            counters.push(datagram.working_counter);
        }
        if shape.is_empty() {
            return;
        }
        let source = packet.frame.get(6..12).map_or(0, |bytes| {
            bytes
                .iter()
                .enumerate()
                .fold(0_u64, |sum, (at, byte)| sum << 8 | u64::from(if at == 0 { byte & !2 } else { *byte }))
        });
        (source, &shape).hash(&mut hasher);
        let shape = intern(&mut self.shapes, &mut self.shape_of, shape);
        let counters = intern(&mut self.counters, &mut self.counters_of, counters);
        self.sightings.push(Sighting {
            number: packet.number,
            time_ns: packet.time_ns,
            side: packet.side,
            outgoing: packet.outgoing,
            marked: frame::has_passed(packet.frame),
            source,
            key: hasher.finish(),
            shape,
            counters,
        });
    }

    /// Frames added.
    pub fn frames(&self) -> usize {
        self.sightings.len()
    }

    /// Command, address and working counter of each datagram of a way.
    pub(super) fn datagrams(&self, shape: u32, counters: u32) -> impl Iterator<Item = (u8, u32, u16)> {
        let shape = self.shapes.get(shape as usize).map_or(&[][..], Vec::as_slice);
        let counters = self.counters.get(counters as usize).map_or(&[][..], Vec::as_slice);
        shape.iter().zip(counters).map(|((command, address, _), counter)| (*command, *address, *counter))
    }

    /// Working counters by their number.
    pub(super) fn counters(&self, counters: u32) -> &[u16] {
        self.counters.get(counters as usize).map_or(&[], Vec::as_slice)
    }

    /// Stations whose frames are marked before they have been round: those whose own address has
    /// the bit set. Their answers are reported by working counters, which are zero before the first
    /// device.
    fn always_marked(&self) -> BTreeSet<u64> {
        let all: BTreeSet<u64> = self.sightings.iter().map(|sighting| sighting.source).collect();
        let unmarked: BTreeSet<u64> = self
            .sightings
            .iter()
            .filter(|sighting| !sighting.marked)
            .map(|sighting| sighting.source)
            .collect();
        all.difference(&unmarked).copied().collect()
    }

    fn point(&self, sighting: &Sighting, always_marked: &BTreeSet<u64>) -> Point {
        let passed = if always_marked.contains(&sighting.source) {
            self.counters(sighting.counters).iter().any(|counter| *counter != 0)
        } else {
            sighting.marked
        };
        match sighting.side {
            Side::Master if !sighting.outgoing.unwrap_or(!passed) => Point::Returned,
            Side::Master => Point::Sent,
            Side::Segment if sighting.outgoing.unwrap_or(passed) => Point::FromSegment,
            Side::Segment => Point::AtSegment,
        }
    }

    pub(super) fn ways(&self) -> Frames {
        let always_marked = self.always_marked();
        // Sightings of equal frames, by point and in order of time.
        let mut groups: BTreeMap<u64, [Vec<usize>; 4]> = BTreeMap::new();
        let mut order: Vec<usize> = (0..self.sightings.len()).collect();
        order.sort_by_key(|&at| (self.sightings[at].time_ns, self.sightings[at].number));
        let first_ns = order.first().map_or(0, |&at| self.sightings[at].time_ns);
        let mut result = Frames { first_ns, ..Frames::default() };
        for at in order {
            let sighting = &self.sightings[at];
            result.last_ns = result.last_ns.max(sighting.time_ns);
            match sighting.side {
                Side::Master => result.has_master = true,
                Side::Segment => result.has_segment = true,
            }
            let point = self.point(sighting, &always_marked) as usize;
            groups.entry(sighting.key).or_default()[point].push(at);
        }
        for [sent, at_segment, from_segment, returned] in groups.values() {
            self.group(&mut result, sent, at_segment, from_segment, returned);
        }
        result.ways.sort_by_key(|way| (way.first_ns(), way.number));
        result
    }

    fn group(
        &self,
        result: &mut Frames,
        sent: &[usize],
        at_segment: &[usize],
        from_segment: &[usize],
        returned: &[usize],
    ) {
        let time = |at: usize| self.sightings[at].time_ns;
        let times = |list: &[usize]| list.iter().map(|&at| time(at)).collect::<Vec<u64>>();
        let (sent_t, at_t, from_t, returned_t) =
            (times(sent), times(at_segment), times(from_segment), times(returned));
        let unmatched = |list: &[usize], pairs: &[Option<usize>]| {
            let taken: BTreeSet<usize> = pairs.iter().flatten().copied().collect();
            (0..list.len()).filter(|at| !taken.contains(at)).collect::<Vec<usize>>()
        };
        // Starts of ways: frames that the master sent, and those that only the segment has seen
        // coming.
        let reached = if result.has_segment { pair(&sent_t, &at_t) } else { vec![None; sent.len()] };
        let mut starts: Vec<(Option<usize>, Option<usize>)> =
            reached.iter().enumerate().map(|(at, &reached)| (Some(at), reached)).collect();
        starts.extend(unmatched(at_segment, &reached).into_iter().map(|at| (None, Some(at))));
        let left = pair(&at_t, &from_t);
        let back = if result.has_segment { pair(&from_t, &returned_t) } else { pair(&sent_t, &returned_t) };
        result.unasked +=
            unmatched(returned, &back).len() as u64 + unmatched(from_segment, &left).len() as u64;
        for (sent_at, at) in starts {
            let from = at.and_then(|at| left[at]);
            let home = if result.has_segment {
                from.and_then(|from| back[from])
            } else {
                sent_at.and_then(|at| back[at])
            };
            let sightings = [
                sent_at.map(|at| sent[at]),
                at.map(|at| at_segment[at]),
                from.map(|at| from_segment[at]),
                home.map(|at| returned[at]),
            ];
            let (Some(first), Some(last)) =
                (sightings.iter().flatten().next(), sightings.iter().flatten().next_back())
            else {
                continue;
            };
            let [sent_ns, at_segment_ns, from_segment_ns, returned_ns] =
                sightings.map(|sighting| sighting.map(time));
            let (first, last) = (&self.sightings[*first], &self.sightings[*last]);
            let lead = self.shapes[first.shape as usize]
                .iter()
                .find(|(command, _, _)| command::is_logical(*command))
                .map_or(0, |(command, address, _)| u64::from(*command) << 32 | u64::from(*address));
            result.ways.push(FrameTimes {
                number: first.number,
                sent_ns,
                at_segment_ns,
                from_segment_ns,
                returned_ns,
                cyclic: lead != 0,
                lead,
                shape: first.shape,
                counters: last.counters,
            });
        }
    }
}

fn intern<T: Clone + Eq + Hash>(list: &mut Vec<T>, places: &mut HashMap<T, u32>, value: T) -> u32 {
    if let Some(place) = places.get(&value) {
        return *place;
    }
    let place = list.len() as u32;
    list.push(value.clone());
    places.insert(value, place);
    place
}

/// For each of `first` the one of `second` that follows from it; both in order of time. Frames do
/// not overtake each other, so what comes last belongs to what went last: an index that is used
/// again after a loss does not shift all answers by one.
fn pair(first: &[u64], second: &[u64]) -> Vec<Option<usize>> {
    let mut pairs = vec![None; first.len()];
    let mut open = first.len();
    for (answer, &time_ns) in second.iter().enumerate().rev() {
        let Some(at) = (0..open).rev().find(|&at| first[at] <= time_ns) else { break };
        if time_ns - first[at] > LONGEST_NS {
            open = at + 1;
            continue;
        }
        pairs[at] = Some(answer);
        open = at;
    }
    // Of doubled answers the first is the answer.
    let mut free = 0;
    for (at, taken) in pairs.iter_mut().enumerate() {
        let Some(answer) = *taken else { continue };
        while free < answer && second[free] < first[at] {
            free += 1;
        }
        *taken = Some(free);
        free += 1;
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn answers_find_their_frames() {
        assert_eq!(pair(&[10, 20], &[12, 22]), [Some(0), Some(1)]);
        // The first is lost; its index is used again.
        assert_eq!(pair(&[10, 20], &[22]), [None, Some(0)]);
        // The first comes after the second was sent.
        assert_eq!(pair(&[10, 20], &[21, 22]), [Some(0), Some(1)]);
        // Doubled.
        assert_eq!(pair(&[10, 20], &[12, 13, 22, 23]), [Some(0), Some(2)]);
        assert_eq!(pair(&[10, 20], &[12, 22, 25]), [Some(0), Some(1)]);
        assert_eq!(pair(&[10], &[5]), [None]);
        assert_eq!(pair(&[10, 3 * LONGEST_NS], &[2 * LONGEST_NS, 3 * LONGEST_NS + 1]), [None, Some(1)]);
        assert!(pair(&[], &[1]).is_empty());
    }

    proptest! {
        #[test]
        fn no_answer_is_given_twice_or_before_its_frame(
            mut first in proptest::collection::vec(0_u64..1000, 0..30),
            mut second in proptest::collection::vec(0_u64..1000, 0..30),
        ) {
            first.sort_unstable();
            second.sort_unstable();
            let pairs = pair(&first, &second);
            let taken: Vec<usize> = pairs.iter().flatten().copied().collect();
            prop_assert!(taken.windows(2).all(|two| two[0] < two[1]));
            for (at, answer) in pairs.iter().enumerate() {
                prop_assert!(answer.is_none_or(|answer| second[answer] >= first[at]));
            }
        }
    }
}

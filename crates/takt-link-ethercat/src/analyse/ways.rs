//! The way of each frame, put together from its sightings.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};

use super::places::{Four, Seen, order};
use super::probe;
use crate::capture::{Packet, ProbeStamp, Side};
use crate::frame::{self, command};

/// Longest time from a sending to its answer: what comes later counts as never come. A second:
/// masters give up far sooner.
const LONGEST_NS: u64 = 1_000_000_000;

/// Place at which a frame was seen.
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
    /// A probe's port, else the interface's number in the file.
    place: u16,
    /// A probe's stamp.
    stamp_ns: Option<u64>,
    /// Steps back of the clock before it.
    steps: u32,
    /// A probe saw a receive error.
    damaged: bool,
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
    ports: BTreeMap<u8, PortFacts>,
    clock: Steps,
}

/// A clock that is set back further than this was set: packets of several queues of a card come out
/// of order by less.
const STEP_NS: u64 = 10_000_000;

/// Times at which the capture's clock was set back. Later times continue from there: the length of
/// the interval is unknown, but no frame is sent before an earlier one.
#[derive(Debug, Default)]
struct Steps {
    /// By how much, one after the other.
    back_ns: Vec<u64>,
    /// Number of the packet behind the first one.
    first: u64,
    /// Of each interface: its last stamp, as the file has it, and how many steps it has seen.
    last: HashMap<u16, (u64, usize)>,
}

impl Steps {
    /// The packet's stamp without the steps so far, and their number.
    fn continued(&mut self, packet: &Packet<'_>) -> (u64, u32) {
        let (last_ns, seen) = self.last.entry(packet.interface).or_insert((packet.time_ns, 0));
        let back_ns = last_ns.saturating_sub(packet.time_ns);
        if back_ns > STEP_NS {
            // Another interface may have seen the same step before.
            if *seen == self.back_ns.len() {
                self.back_ns.push(back_ns);
                self.first = if self.first == 0 { packet.number } else { self.first };
            }
            *seen += 1;
        }
        *last_ns = packet.time_ns;
        let steps = self.back_ns[..*seen].iter().fold(0, |sum: u64, step| sum.saturating_add(*step));
        (packet.time_ns.saturating_add(steps), *seen as u32)
    }
}

/// Observations of a port of a probe on the wire.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize)]
pub struct PortFacts {
    /// Its number; 255 where the probe does not say.
    pub port: u8,
    /// EtherCAT frames that came in at it.
    pub frames: u64,
    /// Those with a wrong checksum.
    pub crc_errors: u64,
    /// Those that ended within a byte.
    pub alignment_errors: u64,
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
    /// Of the master, the command and the address of its first datagram of process data; 0 without
    /// one.
    pub(super) lead: u64,
    /// A probe saw it damaged.
    pub(super) damaged: bool,
    /// Places before it over which times are not compared: steps back of the capture's clock,
    /// restarts of a probe's, cycles that the probe did not stamp.
    pub(super) steps: u32,
    /// Its answer has no time that can be compared: the probe did not stamp it, or its clock began
    /// anew before.
    pub(super) is_answer_unjudged: bool,
    /// Equal for a frame and its answer.
    key: u64,
    /// Kind of frame, for [`Traffic::datagrams`].
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
    /// Whether a probe's stamps are judged, and how many frames have none.
    pub is_probed: bool,
    pub unstamped: u64,
    /// How often that probe's clock began anew, and the packet behind the first time.
    pub probe_restarts: (u32, u64),
    /// Whether devices, and not only a wire, lie between the master's sightings and those nearer to
    /// the devices: on the way out, and on the way back.
    pub devices_between: [bool; 2],
    /// Interfaces of the file that saw the same frames, where their order was found.
    pub interfaces_joined: usize,
    /// Steps back of the capture's clock: how many, the longest, and the packet behind the first.
    pub clock_steps: (usize, u64, u64),
}

/// Judged sightings, and which of the four each place is where the file does not say.
struct Judged {
    sightings: Vec<Sighting>,
    four: Option<Four>,
    unstamped: Vec<Sighting>,
    restarts: (u32, u64),
    is_probed: bool,
}

impl Traffic {
    /// Adds a frame of a capture.
    pub fn add(&mut self, packet: &Packet<'_>) {
        let mut shape = Shape::new();
        let mut counters = Vec::new();
        let mut hasher = DefaultHasher::new();
        let mut is_whole = true;
        frame::heads(packet.frame, &mut |head| {
            head.index.hash(&mut hasher);
            shape.push((head.command, head.lasting_address, head.length));
            is_whole &= head.working_counter.is_some();
            counters.extend(head.working_counter);
        });
        if shape.is_empty() {
            return;
        }
        if !is_whole {
            // Cut by the capture: some counters would be taken for those of other datagrams.
            counters.clear();
        }
        let source = frame::source(packet.frame);
        (source, &shape).hash(&mut hasher);
        if let Some(stamp) = packet.probe {
            self.count_port(stamp);
        }
        let shape = intern(&mut self.shapes, &mut self.shape_of, shape);
        let counters = intern(&mut self.counters, &mut self.counters_of, counters);
        let (time_ns, steps) = self.clock.continued(packet);
        self.sightings.push(Sighting {
            number: packet.number,
            time_ns,
            side: packet.side,
            outgoing: packet.outgoing,
            marked: frame::has_passed(packet.frame),
            place: packet.probe.map_or(packet.interface, |stamp| u16::from(stamp.port)),
            stamp_ns: packet.probe.map(|stamp| stamp.time_ns),
            steps,
            damaged: packet.probe.is_some_and(|stamp| stamp.crc_error || stamp.alignment_error),
            source,
            key: hasher.finish(),
            shape,
            counters,
        });
    }

    fn count_port(&mut self, stamp: ProbeStamp) {
        let facts = self.ports.entry(stamp.port).or_default();
        facts.port = stamp.port;
        facts.frames += 1;
        facts.crc_errors += u64::from(stamp.crc_error);
        facts.alignment_errors += u64::from(stamp.alignment_error);
    }

    /// The ports of a probe, where one stamped the frames.
    pub(super) fn ports(&self) -> Vec<PortFacts> {
        self.ports.values().cloned().collect()
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

    fn has_passed(&self, sighting: &Sighting, always_marked: &BTreeSet<u64>) -> bool {
        if always_marked.contains(&sighting.source) {
            self.counters(sighting.counters).iter().any(|counter| *counter != 0)
        } else {
            sighting.marked
        }
    }

    fn point(
        &self,
        sighting: &Sighting,
        four: Option<&Four>,
        always_marked: &BTreeSet<u64>,
    ) -> Option<Point> {
        let passed = self.has_passed(sighting, always_marked);
        if let Some(four) = four {
            let points = [Point::Sent, Point::AtSegment, Point::FromSegment, Point::Returned];
            return four.index(place(sighting, passed)).map(|at| points[at]);
        }
        Some(match sighting.side {
            Side::Master if !sighting.outgoing.unwrap_or(!passed) => Point::Returned,
            Side::Master => Point::Sent,
            Side::Segment if sighting.outgoing.unwrap_or(passed) => Point::FromSegment,
            Side::Segment => Point::AtSegment,
        })
    }

    /// Selects the judged frames. If a probe timestamped frames, these are its frames only, by its
    /// clock, shifted to that of the recording computer by the least delay between the two.
    fn judged(&self, always_marked: &BTreeSet<u64>) -> Judged {
        let seen: Vec<probe::Stamped> =
            self.sightings.iter().map(|sighting| (sighting.time_ns, sighting.stamp_ns)).collect();
        let clock = probe::clock(&seen);
        let stamps = || seen.iter().zip(&clock).filter_map(|(seen, at)| seen.1.filter(|_| at.is_some()));
        // A probe whose clock does not run stamps all frames alike. One that stamps frames on their
        // way back alone does not say how long that was.
        let sees_sends = |is_stamped: bool| {
            let seen = |(s, at): (&Sighting, &Option<probe::At>)| {
                at.is_some() == is_stamped && !self.has_passed(s, always_marked)
            };
            self.sightings.iter().zip(&clock).any(seen)
        };
        let is_probed = stamps().min() < stamps().max() && (sees_sends(true) || !sees_sends(false));
        let (mut sightings, mut unstamped, mut restarts) = (Vec::new(), Vec::new(), (0, 0));
        if is_probed {
            for (sighting, at) in self.sightings.iter().zip(clock) {
                let Some(probe::At { time_ns, restarts: steps }) = at else {
                    unstamped.push(*sighting);
                    continue;
                };
                if steps > 0 && restarts.0 == 0 {
                    restarts.1 = sighting.number;
                }
                restarts.0 = steps.max(restarts.0);
                // The capture's own clock does not count here.
                sightings.push(Sighting { time_ns, steps, ..*sighting });
            }
        } else {
            sightings.clone_from(&self.sightings);
        }
        let is_joined = !is_probed && share_frames(&sightings);
        let has_cyclic = sightings.iter().any(|sighting| self.is_cyclic(sighting.shape));
        let four = (is_probed || is_joined).then(|| {
            let seen: Vec<Seen> = sightings
                .iter()
                .filter(|sighting| !has_cyclic || self.is_cyclic(sighting.shape))
                .map(|sighting| {
                    let passed = self.has_passed(sighting, always_marked);
                    Seen {
                        place: place(sighting, passed),
                        key: sighting.key,
                        time_ns: sighting.time_ns,
                        passed,
                        count: self.counters(sighting.counters).iter().map(|&n| u64::from(n)).sum(),
                    }
                })
                .collect();
            Four::of(&order(&seen), is_probed)
        });
        Judged { sightings, four, unstamped, restarts, is_probed }
    }

    fn is_cyclic(&self, shape: u32) -> bool {
        let shape = self.shapes.get(shape as usize).map_or(&[][..], Vec::as_slice);
        shape.iter().any(|(command, ..)| command::is_logical(*command))
    }

    pub(super) fn ways(&self) -> Frames {
        let always_marked = self.always_marked();
        let judged = self.judged(&always_marked);
        // Sightings of equal frames, by point and in order of time.
        let mut groups: BTreeMap<u64, [Vec<usize>; 4]> = BTreeMap::new();
        let mut order: Vec<usize> = (0..judged.sightings.len()).collect();
        order.sort_by_key(|&at| (judged.sightings[at].time_ns, judged.sightings[at].number));
        let mut result = Frames {
            first_ns: order.first().map_or(0, |&at| judged.sightings[at].time_ns),
            is_probed: judged.is_probed,
            unstamped: judged.unstamped.len() as u64,
            probe_restarts: judged.restarts,
            devices_between: judged.four.map_or([false; 2], |four| four.devices_between()),
            interfaces_joined: if judged.is_probed { 0 } else { joined(&judged) },
            clock_steps: (
                self.clock.back_ns.len(),
                self.clock.back_ns.iter().max().copied().unwrap_or(0),
                self.clock.first,
            ),
            ..Frames::default()
        };
        for at in order {
            let sighting = &judged.sightings[at];
            result.last_ns = result.last_ns.max(sighting.time_ns);
            let Some(point) = self.point(sighting, judged.four.as_ref(), &always_marked) else { continue };
            match point {
                Point::Sent | Point::Returned => result.has_master = true,
                Point::AtSegment | Point::FromSegment => result.has_segment = true,
            }
            groups.entry(sighting.key).or_default()[point as usize].push(at);
        }
        for [sent, at_segment, from_segment, returned] in groups.values() {
            self.group(&mut result, &judged.sightings, [sent, at_segment, from_segment, returned]);
        }
        result.ways.sort_by_key(|way| (way.first_ns(), way.number));
        self.leave_unstamped_out(&mut result, &judged, &always_marked);
        result
    }

    /// Frames that the probe did not stamp are in the file: a cycle among them is not missing, and
    /// the one behind it not late; a frame whose answer is among them is not lost.
    fn leave_unstamped_out(&self, result: &mut Frames, judged: &Judged, always_marked: &BTreeSet<u64>) {
        if judged.unstamped.is_empty() {
            return;
        }
        let mut sends: Vec<(u64, u64)> = Vec::new();
        let mut answers: HashMap<u64, Vec<u64>> = HashMap::new();
        for sighting in &judged.unstamped {
            if self.has_passed(sighting, always_marked) {
                answers.entry(sighting.key).or_default().push(sighting.number);
            } else if self.is_cyclic(sighting.shape) {
                sends.push((sighting.number, sighting.key));
            }
        }
        // Where every frame was seen a second time, without a stamp, those of the same key are the
        // same frames.
        let are_copies = sends.len() * 2 > result.ways.iter().filter(|way| way.cyclic).count();
        let mut steps = 0;
        let mut before: Option<(u64, u64)> = None;
        for way in result.ways.iter_mut().filter(|way| way.cyclic) {
            if let Some((number, key)) = before {
                let from = sends.partition_point(|send| send.0 <= number.min(way.number));
                let between = sends[from..].iter().take_while(|send| send.0 < number.max(way.number));
                let mut others = between.filter(|send| !are_copies || ![key, way.key].contains(&send.1));
                steps += u32::from(others.next().is_some());
            }
            before = Some((way.number, way.key));
            way.steps += steps;
        }
        // An answer is that of the last frame of its key before it.
        let mut next: HashMap<u64, u64> = HashMap::new();
        for way in result.ways.iter_mut().rev() {
            let until = next.insert(way.key, way.number).unwrap_or(u64::MAX);
            let Some(answers) = answers.get(&way.key) else { continue };
            let first = answers.get(answers.partition_point(|&number| number < way.number));
            way.is_answer_unjudged |= first.is_some_and(|&number| number < until);
        }
    }

    fn group(
        &self,
        result: &mut Frames,
        all: &[Sighting],
        [sent, at_segment, from_segment, returned]: [&[usize]; 4],
    ) {
        let time = |at: usize| all[at].time_ns;
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
            // A probe's clock that began anew on the way says nothing of its length.
            let is_same = |at: &usize| !result.is_probed || all[*at].steps == all[*first].steps;
            let is_answer_unjudged = !sightings.iter().flatten().all(is_same);
            let [sent_ns, at_segment_ns, from_segment_ns, returned_ns] =
                sightings.map(|sighting| sighting.filter(is_same).map(time));
            let damaged = sightings.iter().flatten().any(|&at| all[at].damaged);
            let (first, last) = (&all[*first], &all[*last]);
            let lead = self.shapes[first.shape as usize]
                .iter()
                .find(|(command, _, _)| command::is_logical(*command))
                .map_or(0, |(command, address, _)| lead(first.source, *command, *address));
            result.ways.push(FrameTimes {
                number: first.number,
                sent_ns,
                at_segment_ns,
                from_segment_ns,
                returned_ns,
                cyclic: lead != 0,
                lead,
                damaged,
                steps: first.steps,
                is_answer_unjudged,
                key: first.key,
                shape: first.shape,
                counters: last.counters,
            });
        }
    }
}

/// Identity of cycles; not 0.
fn lead(source: u64, command: u8, address: u32) -> u64 {
    let mut hasher = DefaultHasher::new();
    (source, command, address).hash(&mut hasher);
    hasher.finish().max(1)
}

/// The number of a sighting's place: a probe's port or an interface, and a direction there.
fn place(sighting: &Sighting, passed: bool) -> u32 {
    u32::from(sighting.place) << 1 | u32::from(passed)
}

/// Whether several interfaces, none of which says that it is at the segment, saw the same frames:
/// most frames of the one that saw fewer were seen at another, too.
fn share_frames(sightings: &[Sighting]) -> bool {
    if sightings.iter().any(|sighting| sighting.side == Side::Segment) {
        return false;
    }
    let mut keys: BTreeMap<u16, BTreeSet<u64>> = BTreeMap::new();
    for sighting in sightings {
        keys.entry(sighting.place).or_default().insert(sighting.key);
    }
    let mut all: Vec<&BTreeSet<u64>> = keys.values().collect();
    all.sort_by_key(|keys| keys.len());
    let Some((fewest, others)) = all.split_first() else { return false };
    let shared = fewest.iter().filter(|key| others.iter().any(|other| other.contains(key))).count();
    !others.is_empty() && shared * 2 > fewest.len()
}

fn joined(judged: &Judged) -> usize {
    let Some(_) = judged.four else { return 0 };
    let places: BTreeSet<u16> = judged.sightings.iter().map(|sighting| sighting.place).collect();
    places.len()
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

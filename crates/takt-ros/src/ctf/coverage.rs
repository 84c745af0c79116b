//! Times that a recording covers: between them nothing was recorded, whatever happened.
//!
//! LTTng stamps the beginning and the end of each packet. If no stream has a packet, nothing was
//! recorded, with three exceptions due to tracers' ways of working:
//!
//! - A stream that is quiet has no packet: after a flush the next packet begins with the next
//!   event. `lttng stop` flushes every stream, quiet ones with an empty packet. A flush by a timer
//!   (`--switch-timer`) leaves quiet streams alone. So nothing was recorded only where **all**
//!   streams end together.
//! - A rotation flushes every stream and opens an empty packet in the next file at once. Such a
//!   stream goes on: it covers the time to its next packet.
//! - Streams that cannot hold callbacks cover nothing: `ros2 trace --dual-session` has a session
//!   for what is made, which runs before the one for what happens.
//!
//! With one stream alone, a flush by a timer cannot be distinguished from a stop: quiet times then
//! count as gaps, in which nothing is judged. If several streams show that there is such a timer, a
//! time counts as a gap if a quiet stream was flushed with it, or if it is four times as long as
//! such times usually are.

use std::collections::HashMap;

use crate::event::GapCause;

/// Shorter gaps are not reported: no timer of ROS 2 has a period as short.
pub(super) const SHORTEST_NS: u64 = 100_000;
/// A stop flushes all streams within this time.
const TOGETHER_NS: u64 = 50_000_000;
/// Longest quiet time if a timer flushes buffers: stopping and restarting a session takes far
/// longer.
const PAUSE_NS: u64 = 100_000_000;
/// Times without a packet that are looked through for a timer: it shows within seconds.
const MAX_HOLES: usize = 4096;
/// Spans of a stream that are kept; where there are more, gaps between the others are not known.
const MAX_SPANS: usize = 1 << 16;

/// A time in which nothing was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    pub from_ns: u64,
    pub to_ns: u64,
    pub why: GapCause,
}

/// Coverage of one stream.
#[derive(Debug, Default)]
struct Track {
    /// From beginning to end, in the order of time; the last one goes on where it is open.
    spans: Vec<(u64, u64)>,
    /// The last span goes on to the next packet.
    open: bool,
    /// Whether something before the first packet was overwritten or deleted.
    beheaded: bool,
    /// Ends of packets behind which a file cannot be read.
    cuts: Vec<u64>,
}

impl Track {
    fn push(&mut self, begin_ns: u64, end_ns: u64) {
        let goes_on = std::mem::take(&mut self.open) || self.spans.len() >= MAX_SPANS;
        if let Some((_, last_ns)) = self.spans.last_mut()
            && (goes_on || begin_ns < last_ns.saturating_add(SHORTEST_NS))
        {
            *last_ns = end_ns.max(*last_ns);
            return;
        }
        self.spans.push((begin_ns, end_ns.max(begin_ns)));
    }

    /// The end of the last span that begins before `ns`, and whether there is one after that.
    fn around(&self, ns: u64) -> Option<u64> {
        let after = self.spans.partition_point(|(begin_ns, _)| *begin_ns < ns);
        let before = self.spans.get(after.checked_sub(1)?)?;
        self.spans.get(after).map(|_| before.1)
    }
}

/// Coverage of a recording's streams.
#[derive(Debug, Default)]
pub struct Coverage {
    tracks: HashMap<u64, Track>,
    /// The earliest beginning of any stream, of those that can hold no callbacks, too.
    first_ns: Option<u64>,
    /// The end of what is covered so far, by all parts read.
    until_ns: Option<u64>,
}

/// A packet, as a stream's file has it.
#[derive(Debug, Clone, Copy)]
pub struct Packet {
    pub begin_ns: u64,
    pub end_ns: u64,
    pub sequence: Option<u64>,
    pub is_empty: bool,
}

impl Coverage {
    /// Something was recorded at this time, though perhaps nothing of callbacks.
    pub fn begins(&mut self, ns: u64) {
        self.first_ns = Some(self.first_ns.map_or(ns, |first_ns| first_ns.min(ns)));
    }

    /// The packets of one file of a stream that can hold callbacks; files come in the order of
    /// time.
    pub fn add(&mut self, stream: u64, packets: impl Iterator<Item = Packet>) {
        let track = self.tracks.entry(stream).or_default();
        for (at, packet) in packets.enumerate() {
            if track.spans.is_empty() {
                track.beheaded = packet.sequence.is_some_and(|sequence| sequence > 0);
            }
            track.push(packet.begin_ns, packet.end_ns);
            // A rotation's first packet.
            track.open = at == 0 && packet.is_empty && packet.sequence.is_some_and(|sequence| sequence > 0);
        }
    }

    /// A file of the stream cannot be read from this time on: the others may go on, and the stream
    /// may in its next file.
    pub fn cut(&mut self, stream: u64, from_ns: u64) {
        let track = self.tracks.entry(stream).or_default();
        if track.cuts.len() < MAX_SPANS {
            track.cuts.push(from_ns);
        }
    }

    /// The times that streams cannot be read, up to `until_ns` where they do not go on.
    fn unreadable(&mut self, until_ns: u64) -> Vec<Gap> {
        let mut found = Vec::new();
        for track in self.tracks.values_mut() {
            for from_ns in std::mem::take(&mut track.cuts) {
                let next = track.spans.iter().map(|span| span.0).find(|begin_ns| *begin_ns >= from_ns);
                let to_ns = next.unwrap_or(until_ns);
                if to_ns.saturating_sub(from_ns) >= SHORTEST_NS {
                    found.push(Gap { from_ns, to_ns, why: GapCause::Unreadable });
                }
            }
        }
        found
    }

    /// Whether all streams that go on afterwards ended at `from_ns`.
    fn ended_together(&self, from_ns: u64, to_ns: u64) -> bool {
        let mut ends = self.tracks.values().filter_map(|track| track.around(to_ns));
        ends.all(|ended_ns| ended_ns.saturating_add(TOGETHER_NS) >= from_ns)
    }

    /// Whether a quiet stream was flushed, too: a timer does not do that.
    fn is_stop(&self, from_ns: u64) -> bool {
        let near = |ns: u64| ns.abs_diff(from_ns) <= TOGETHER_NS;
        self.tracks.values().flat_map(|track| &track.spans).any(|(begin, end)| begin == end && near(*end))
    }

    /// Whether buffers are flushed by a timer: some are while another one stays quiet. A stop
    /// flushes them all.
    fn has_flush_timer(&self) -> bool {
        let holes = self.tracks.iter().flat_map(|(stream, track)| {
            track.spans.windows(2).map(move |pair| (stream, pair[0].1, pair[1].0))
        });
        let holes: Vec<_> = holes.take(MAX_HOLES).collect();
        holes.iter().any(|(stream, flushed_ns, _)| {
            holes.iter().any(|(other, from_ns, to_ns)| {
                other != stream
                    && from_ns.saturating_add(TOGETHER_NS) < *flushed_ns
                    && flushed_ns.saturating_add(TOGETHER_NS) < *to_ns
            })
        })
    }

    /// The gaps that are new since the last call, by time.
    pub fn gaps(&mut self) -> Vec<Gap> {
        let mut found = Vec::new();
        let mut spans: Vec<(u64, u64)> =
            self.tracks.values().flat_map(|track| track.spans.iter().copied()).collect();
        spans.sort_unstable();
        let Some(&(first_ns, _)) = spans.first() else { return found };
        let mut until_ns = match self.until_ns {
            Some(until_ns) => until_ns,
            None => {
                // Overwritten events of one stream are unknown, whatever the other streams contain.
                let beheaded = self.tracks.values().filter(|track| track.beheaded);
                let whole_ns = beheaded.filter_map(|track| track.spans.first()).map(|span| span.0).max();
                let to_ns = whole_ns.map_or(first_ns, |whole_ns| whole_ns.max(first_ns));
                let from_ns = self.first_ns.unwrap_or(first_ns).min(first_ns);
                let why = if to_ns > first_ns { GapCause::Packets } else { GapCause::NotYet };
                if to_ns.saturating_sub(from_ns) >= SHORTEST_NS {
                    found.push(Gap { from_ns, to_ns, why });
                }
                to_ns
            }
        };
        let mut paused = Vec::new();
        for (begin_ns, end_ns) in spans {
            if begin_ns > until_ns
                && begin_ns - until_ns >= SHORTEST_NS
                && self.ended_together(until_ns, begin_ns)
            {
                paused.push(Gap { from_ns: until_ns, to_ns: begin_ns, why: GapCause::Paused });
            }
            until_ns = until_ns.max(end_ns);
        }
        if self.has_flush_timer() {
            let mut lengths: Vec<u64> = paused.iter().map(|gap| gap.to_ns - gap.from_ns).collect();
            lengths.sort_unstable();
            let usual_ns = lengths.get(lengths.len() / 2).copied().unwrap_or(0);
            let least_ns = usual_ns.saturating_mul(4).max(PAUSE_NS);
            paused.retain(|gap| gap.to_ns - gap.from_ns >= least_ns || self.is_stop(gap.from_ns));
        }
        found.extend(paused);
        found.extend(self.unreadable(until_ns));
        self.until_ns = Some(until_ns);
        // The covered time has been examined; the next part continues from here.
        for track in self.tracks.values_mut() {
            let last = track.spans.len().saturating_sub(1);
            track.spans.drain(..last);
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn packets(all: &[(u64, u64, bool)]) -> Vec<Packet> {
        let first = all.iter().zip(0..);
        first
            .map(|(&(begin, end, is_empty), sequence)| Packet {
                begin_ns: begin * MS,
                end_ns: end * MS,
                sequence: Some(sequence),
                is_empty,
            })
            .collect()
    }

    fn gaps(streams: &[&[(u64, u64, bool)]]) -> Vec<(u64, u64)> {
        let mut coverage = Coverage::default();
        for (stream, all) in (0..).zip(streams) {
            coverage.add(stream, packets(all).into_iter());
        }
        coverage.gaps().iter().map(|gap| (gap.from_ns / MS, gap.to_ns / MS)).collect()
    }

    #[test]
    fn a_stop_ends_all_streams_together() {
        // The second stream was quiet, and is flushed with an empty packet.
        let paused =
            gaps(&[&[(0, 3000, false), (5000, 8000, false)], &[(0, 3000, false), (8000, 8000, true)]]);
        assert_eq!(paused, [(3000, 5000)]);
        let twice = gaps(&[
            &[(0, 1000, false), (2000, 2500, false), (3000, 4000, false)],
            &[(0, 1000, false), (2500, 2500, true), (3100, 4000, false)],
        ]);
        assert_eq!(twice, [(1000, 2000), (2500, 3000)]);
    }

    #[test]
    fn a_flush_by_a_timer_leaves_quiet_streams_alone() {
        let quiet = gaps(&[
            &[(0, 200, false), (330, 400, false), (660, 800, false), (1000, 1000, true)],
            &[(0, 200, false), (1000, 1000, true)],
        ]);
        // Both streams were flushed at 200 once; at 400 one was, without the other.
        assert_eq!(quiet, []);
        // The same with a stop at 1000 for two seconds: quiet times are a tenth of that.
        let busy: Vec<(u64, u64, bool)> =
            (0..10).map(|tick| (tick * 100 + 20, tick * 100 + 100, false)).collect();
        let after = [(3000, 3400, false)];
        let first = [busy.as_slice(), &after].concat();
        let second = [&busy[..3], &busy[6..], &after].concat();
        assert_eq!(gaps(&[&first, &second]), [(1000, 3000)]);
    }

    #[test]
    fn a_rotated_session_goes_on() {
        let mut coverage = Coverage::default();
        let packet = |begin: u64, end: u64, sequence, is_empty| Packet {
            begin_ns: begin * MS,
            end_ns: end * MS,
            sequence: Some(sequence),
            is_empty,
        };
        for stream in 0..2 {
            coverage.add(stream, [packet(0, 700, 0, false)].into_iter());
        }
        assert_eq!(coverage.gaps(), []);
        coverage.add(0, [packet(700, 700, 1, true)].into_iter());
        coverage.add(1, [packet(700, 700, 1, true), packet(1000, 1400, 2, false)].into_iter());
        assert_eq!(coverage.gaps(), []);
        // Stopped at 1900, and started again.
        coverage.add(0, [packet(1400, 1400, 2, true), packet(1900, 1900, 3, true)].into_iter());
        let second =
            [packet(1400, 1400, 3, true), packet(1600, 1900, 4, false), packet(2500, 2800, 5, false)];
        coverage.add(1, second.into_iter());
        coverage.add(0, [packet(2800, 2800, 4, true)].into_iter());
        let gap = Gap { from_ns: 1900 * MS, to_ns: 2500 * MS, why: GapCause::Paused };
        assert_eq!(coverage.gaps(), [gap]);
    }

    #[test]
    fn a_stream_that_cannot_be_read_is_a_gap_up_to_its_next_file_or_the_end() {
        let mut coverage = Coverage::default();
        coverage.add(0, packets(&[(0, 1000, false)]).into_iter());
        coverage.cut(0, 1000 * MS);
        coverage.add(1, packets(&[(0, 1000, false), (1000, 4000, false)]).into_iter());
        let gap = |from: u64, to: u64| Gap { from_ns: from * MS, to_ns: to * MS, why: GapCause::Unreadable };
        assert_eq!(coverage.gaps(), [gap(1000, 4000)]);
        // The next part of a rotated session.
        coverage.add(1, packets(&[(4000, 9000, false)]).into_iter());
        coverage.cut(1, 9000 * MS);
        coverage.add(1, packets(&[(9500, 9700, false)]).into_iter());
        coverage.add(0, packets(&[(4000, 9700, false)]).into_iter());
        assert_eq!(coverage.gaps(), [gap(9000, 9500)]);
    }

    #[test]
    fn what_was_overwritten_in_one_stream_is_not_known() {
        let mut coverage = Coverage::default();
        coverage.begins(0);
        coverage.add(0, packets(&[(100, 2000, false)]).into_iter());
        let busy = packets(&[(1500, 2000, false)]).into_iter().map(|it| Packet { sequence: Some(9), ..it });
        coverage.add(1, busy);
        let gap = Gap { from_ns: 0, to_ns: 1500 * MS, why: GapCause::Packets };
        assert_eq!(coverage.gaps(), [gap]);
    }
}

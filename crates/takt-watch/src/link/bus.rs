//! A link on which the master speaks first: EtherCAT. Its frames go round the devices and come
//! back; what can be late is the send (the master's thread was woken late or kept from running, its
//! own code took long, the queue before the interface was full, or it had waited for a frame that
//! came back late) and the return (wire, card and devices, or this host's own receive path).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use takt_link_ethercat::capture::Tap;
use takt_link_ethercat::frame;
use takt_link_ethercat::segment::raw::InterfaceError;
use takt_rt::clock::monotonic_ns;
use takt_trace::analysis::observed_jobs;
use takt_trace::event::{PacketStep, State};
use takt_trace::{Event, Kind, Trace};

use super::judge::{NET_RX, Now, SLACK_NS, before};
use super::{Exchange, LinkPlace, Violation};

/// From a send to its return; what comes later counts as never come, as in the analysis of
/// captures.
const LONGEST_NS: u64 = 1_000_000_000;
/// Frames that may be under way: a second of four a cycle at 4 kHz.
const MAX_OPEN: usize = 1 << 14;
/// Cyclic frames after which the one that began the cycles is forgotten: the master has begun anew
/// with others.
const MAX_OTHERS: u32 = 100;
/// The frame's header is not counted by sockets, and is by the interface's queue.
const HEADER: u32 = 14;

/// An observation of a frame with process data.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Seen {
    /// The first of a cycle left; `alone`: that of the cycle before was not back yet.
    Sent { time_ns: u64, bytes: u32, alone: bool },
    /// One is back, or will not come any more.
    Over(Exchange),
}

/// The frames of an interface.
#[derive(Debug)]
pub(super) struct Bus {
    tap: Tap,
    frames: Frames,
    /// Frames that the kernel had no room for.
    pub(super) lost: u64,
}

/// Frames that are under way.
#[derive(Debug, Default)]
struct Frames {
    open: VecDeque<(u64, Exchange)>,
    /// The kind of frame that begins the cycles, and how many others have come since the last one.
    lead: Option<u64>,
    others: u32,
    /// When the one before left.
    sent_ns: u64,
}

impl Bus {
    /// # Errors
    /// [`InterfaceError`].
    pub(super) fn open(interface: &str) -> Result<Self, InterfaceError> {
        Ok(Self { tap: Tap::open(interface)?, frames: Frames::default(), lost: 0 })
    }

    /// Packets since the last call, in the order of time.
    pub(super) fn drain(&mut self) -> Vec<Seen> {
        let now_ns = monotonic_ns();
        let ahead_ns = crate::history::ahead_ns();
        let mut sighted = Vec::new();
        // An error is reported once, where the interface goes down; later frames come again when it
        // is up.
        while let Ok(Some(one)) = self.tap.take() {
            sighted.push(one);
        }
        sighted.sort_by_key(|one| one.time_ns);
        let lost = self.tap.dropped();
        self.lost += lost;
        if lost > 0 {
            // Whether those came back nobody knows.
            self.frames.open.clear();
        }
        let mut seen = Vec::new();
        for one in sighted {
            self.frames.see(&one.frame, one.time_ns.saturating_sub(ahead_ns), one.outgoing, &mut seen);
        }
        self.frames.give_up(now_ns, &mut seen);
        seen
    }
}

impl Frames {
    fn see(&mut self, bytes: &[u8], time_ns: u64, outgoing: bool, seen: &mut Vec<Seen>) {
        let Some(identity) = frame::identity(bytes).filter(|identity| identity.cyclic) else { return };
        if !outgoing {
            if let Some(place) = self.open.iter().position(|one| one.0 == identity.key)
                && let Some((_, exchange)) = self.open.remove(place)
            {
                seen.push(Seen::Over(Exchange { answered_ns: Some(time_ns), ..exchange }));
            }
            return;
        }
        let bytes = (bytes.len() as u32).saturating_sub(HEADER);
        self.others += 1;
        if self.lead.is_none() || self.others > MAX_OTHERS {
            self.lead = Some(identity.kind);
        }
        if self.lead == Some(identity.kind) {
            self.others = 0;
            let alone = self.open.iter().rev().any(|one| one.1.arrived_ns == self.sent_ns);
            self.sent_ns = time_ns;
            seen.push(Seen::Sent { time_ns, bytes, alone });
        }
        if self.open.len() >= MAX_OPEN {
            self.open.pop_front();
        }
        let exchange = Exchange {
            arrived_ns: time_ns,
            bytes,
            late_ns: 0,
            answered_ns: None,
            answer_bytes: bytes,
            behind_ns: None,
        };
        self.open.push_back((identity.key, exchange));
    }

    fn give_up(&mut self, now_ns: u64, seen: &mut Vec<Seen>) {
        while self.open.front().is_some_and(|one| one.1.arrived_ns + LONGEST_NS < now_ns) {
            seen.extend(self.open.pop_front().map(|one| Seen::Over(one.1)));
        }
    }
}

/// A frame that never came back: it had left the interface, and what comes in is stamped before
/// anything here can drop it. Or the send of the next one, for which the master had waited in vain.
pub(super) fn missing(exchange: &Exchange) -> Violation {
    let ns = if exchange.late_ns > 0 { exchange.late_ns } else { LONGEST_NS };
    Violation {
        time_ns: exchange.begin_ns(),
        us: ns as f64 / 1e3,
        place: LinkPlace::RobotOrNetwork,
        who: String::new(),
        parts_us: Vec::new(),
    }
}

/// Blames a late frame on its send, if that was late, and otherwise on its return. `others` are
/// those before it, the newest first.
pub(super) fn blamed(
    trace: &Trace,
    late: &Exchange,
    others: &[Exchange],
    threads: &BTreeSet<i32>,
) -> Violation {
    let us = if late.late_ns > 0 { late.late_ns } else { late.response_ns().unwrap_or(0) } as f64 / 1e3;
    let unknown = Violation {
        time_ns: late.begin_ns(),
        us,
        place: LinkPlace::Unknown,
        who: String::new(),
        parts_us: Vec::new(),
    };
    if !trace.covers(late.begin_ns(), late.end_ns()) {
        return unknown;
    }
    let found =
        if late.late_ns > 0 { sent_late(trace, late, others, threads) } else { returned_late(trace, late) };
    let Some((parts, who)) = found else { return unknown };
    let place = parts.iter().max_by_key(|part| part.1).filter(|part| *part.1 > 0).map(|part| *part.0);
    let Some(place) = place else { return unknown };
    let who = who.get(&place).map_or(String::new(), |&tid| trace.name_and_id(tid));
    let parts_us = parts.into_iter().map(|(place, ns)| (place, ns as f64 / 1e3)).collect();
    Violation { place, who, parts_us, ..unknown }
}

type Parts = (BTreeMap<LinkPlace, u64>, BTreeMap<LinkPlace, i32>);

/// The master's actions from the time at which the frame was due until its send. None if its send
/// was not seen.
fn sent_late(trace: &Trace, late: &Exchange, others: &[Exchange], threads: &BTreeSet<i32>) -> Option<Parts> {
    let (due_ns, sent_ns) = (late.begin_ns(), late.arrived_ns);
    let until_ns = sent_ns + SLACK_NS;
    let events = trace.between(due_ns.saturating_sub(50_000_000), until_ns);
    let queued = events.iter().rev().find(|event| {
        matches!(event.kind, Kind::Packet { step: PacketStep::Queued, bytes, .. }
            if bytes >= late.bytes && bytes <= late.bytes + 2 * HEADER)
            && threads.contains(&event.tid)
    })?;
    let (tid, queued_ns) = (queued.tid, queued.time_ns.min(sent_ns));
    let mut parts: BTreeMap<LinkPlace, u64> = BTreeMap::new();
    let mut who = BTreeMap::from([(LinkPlace::UserCode, tid)]);
    parts.insert(LinkPlace::SendPath, sent_ns.saturating_sub(queued_ns.max(due_ns)));
    // Time spent while the previous frame is still under way counts as waiting for it.
    let before_ns = others.first().and_then(|other| other.answered_ns).unwrap_or(0);
    let mut kept: BTreeMap<i32, u64> = BTreeMap::new();
    let mut spend = |now: Now, from_ns: u64, to_ns: u64, by: i32| {
        let (from_ns, to_ns) = (from_ns.max(due_ns), to_ns.min(queued_ns));
        let spent_ns = to_ns.saturating_sub(from_ns);
        if now == Now::Ready {
            *kept.entry(by).or_default() += spent_ns;
            *parts.entry(LinkPlace::WokenLate).or_default() += spent_ns;
            return;
        }
        let waited_ns = before_ns.min(to_ns).saturating_sub(from_ns);
        *parts.entry(LinkPlace::RobotOrNetwork).or_default() += waited_ns;
        *parts.entry(LinkPlace::UserCode).or_default() += spent_ns - waited_ns;
    };
    let begin = events.partition_point(|event| event.time_ns < due_ns);
    let (mut now, mut since_ns) = (before(&events[..begin], tid), due_ns);
    // A timer that was due and did not come is a late wake-up as well. Jobs are reported when they
    // are over: this one goes on, and is cut off.
    let kind = Kind::Switch {
        prev_tid: tid,
        prev_prio: 120,
        prev_state: State::Sleeping,
        next_tid: 0,
        next_prio: 120,
    };
    let cut = Event { time_ns: until_ns, kind, ..*queued };
    let planned = observed_jobs(&Trace { events: [events, &[cut]].concat(), ..Trace::default() }, tid);
    for event in &events[begin..] {
        let next = match event.kind {
            Kind::Switch { prev_tid, next_tid, .. } if next_tid == tid => Some((Now::Running, prev_tid)),
            Kind::Switch { prev_tid, prev_state, next_tid, .. } if prev_tid == tid => {
                Some((if prev_state == State::Runnable { Now::Ready } else { Now::Asleep }, next_tid))
            }
            Kind::Waking { tid: woken, .. } if woken == tid && now == Now::Asleep => {
                let job = planned.iter().find(|job| job.wake_ns >= event.time_ns);
                let due = job.map_or(event.time_ns, |job| job.planned_ns.clamp(since_ns, event.time_ns));
                spend(Now::Asleep, since_ns, due, 0);
                spend(Now::Ready, due, event.time_ns, 0);
                since_ns = event.time_ns;
                Some((Now::Ready, 0))
            }
            _ => None,
        };
        if let Some((next, by)) = next {
            spend(now, since_ns, event.time_ns, by);
            (now, since_ns) = (next, event.time_ns);
        }
    }
    spend(now, since_ns, queued_ns, 0);
    let kept = kept.into_iter().filter(|&(by, _)| by > 0).max_by_key(|&(_, ns)| ns);
    who.extend(kept.map(|(by, _)| (LinkPlace::WokenLate, by)));
    // The frame before came back late, and what follows it takes its usual time: that is not the
    // program's fault.
    let excess_ns = excess_ns(others).min(late.late_ns);
    let user = parts.entry(LinkPlace::UserCode).or_default();
    let moved_ns = excess_ns.min(*user);
    *user -= moved_ns;
    *parts.entry(LinkPlace::RobotOrNetwork).or_default() += moved_ns;
    Some((parts, who))
}

/// Excess over the usual travel time of the newest of `others`.
fn excess_ns(others: &[Exchange]) -> u64 {
    let mut all: Vec<u64> = others.iter().filter_map(Exchange::response_ns).collect();
    let newest_ns = others.first().and_then(Exchange::response_ns).unwrap_or(0);
    all.sort_unstable();
    newest_ns.saturating_sub(all.get(all.len() / 2).copied().unwrap_or(0))
}

/// Part of a round trip in this host's receive path: from the notification of packets until the
/// protocols received this one. None if the return was not seen.
fn returned_late(trace: &Trace, late: &Exchange) -> Option<Parts> {
    let back_ns = late.answered_ns?;
    let events = trace.between(late.arrived_ns, back_ns + SLACK_NS);
    let received = events.iter().rposition(|event| is_received(event, late.bytes))?;
    let cpu = events[received].cpu;
    let raised = events[..received].iter().rev().find(|event| {
        event.cpu == cpu && event.kind == Kind::SoftirqRaise(NET_RX) && event.time_ns <= back_ns
    });
    let host_ns = raised.map_or(0, |event| back_ns.saturating_sub(event.time_ns.max(late.arrived_ns)));
    let whole_ns = back_ns.saturating_sub(late.arrived_ns);
    let parts =
        [(LinkPlace::Interrupt, host_ns), (LinkPlace::RobotOrNetwork, whole_ns.saturating_sub(host_ns))];
    Some((BTreeMap::from(parts), BTreeMap::new()))
}

fn is_received(event: &Event, length: u32) -> bool {
    matches!(event.kind, Kind::Packet { step: PacketStep::Received, bytes, .. }
        if bytes >= length && bytes <= length + 2 * HEADER)
}

#[cfg(test)]
mod tests;

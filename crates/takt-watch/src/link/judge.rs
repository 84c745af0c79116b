//! Finds where a packet and its answer lost their time, from the kernel events around them.

use std::collections::{BTreeMap, BTreeSet};

use takt_trace::event::{PacketStep, Softirq, State};
use takt_trace::{Event, Kind, Trace};

use super::{Exchange, LinkPlace, Violation};

/// The way of one packet, nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Path {
    interrupt_ns: u64,
    stack_ns: u64,
    woken_ns: u64,
    user_ns: u64,
    send_ns: u64,
    /// The thread that had the CPU for longest while this one was ready.
    kept_by: Option<i32>,
    /// The thread that answered.
    tid: i32,
}

impl Path {
    fn parts(&self) -> [(LinkPlace, u64); 5] {
        [
            (LinkPlace::Interrupt, self.interrupt_ns),
            (LinkPlace::KernelStack, self.stack_ns),
            (LinkPlace::WokenLate, self.woken_ns),
            (LinkPlace::UserCode, self.user_ns),
            (LinkPlace::SendPath, self.send_ns),
        ]
    }
}

/// Time stamps of packets and of events are of two clocks that were read one after the other.
pub(super) const SLACK_NS: u64 = 30_000;
/// The network's input.
pub(super) const NET_RX: Softirq = Softirq(3);
/// Shorter frames are filled up by the wire (IEEE 802.3: 46 bytes of data).
const SHORTEST: u32 = 46;

/// State of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Now {
    Asleep,
    Ready,
    Running,
}

/// The way of `exchange`, among `events` in the order of time; `threads` are those that may answer.
/// None where a step is missing.
fn way(events: &[Event], exchange: &Exchange, threads: &BTreeSet<i32>) -> Option<Path> {
    let end_ns = exchange.answered_ns?;
    let from = events.partition_point(|event| event.time_ns + SLACK_NS < exchange.arrived_ns);
    let received = events[from..].iter().position(|event| {
        matches!(event.kind, Kind::Packet { step: PacketStep::Received, bytes, .. }
            if bytes == exchange.bytes || bytes == SHORTEST && exchange.bytes < SHORTEST)
    })?;
    let received = from + received;
    let (received_ns, cpu) = (events[received].time_ns, events[received].cpu);
    if received_ns > end_ns {
        return None;
    }
    let queued = queued(&events[received..], exchange, threads)?;
    let queued = received + queued;
    let tid = events[queued].tid;
    let queued_ns = events[queued].time_ns.min(end_ns + SLACK_NS);
    // The wake-up of that thread by this packet, where it was asleep: later ones are its own
    // affair.
    let handled = events[received..queued]
        .iter()
        .position(|event| event.cpu == cpu && event.kind == Kind::SoftirqExit(NET_RX))
        .map_or(queued, |handled| received + handled);
    let waking = events[received..handled].iter().find(|event| {
        event.cpu == cpu && matches!(event.kind, Kind::Waking { tid: woken, .. } if woken == tid)
    });
    let socket_ns = waking.map_or(received_ns, |event| event.time_ns);
    let mut way = Path {
        interrupt_ns: received_ns.saturating_sub(exchange.arrived_ns),
        stack_ns: socket_ns.saturating_sub(received_ns),
        send_ns: end_ns.saturating_sub(queued_ns),
        tid,
        ..Path::default()
    };
    // Its earlier state is reported by the last event that shows it.
    let mut now = if waking.is_some() { Now::Ready } else { before(&events[..received], tid) };
    let mut since_ns = socket_ns;
    let mut on_cpu: BTreeMap<u16, i32> = BTreeMap::new();
    let mut kept: BTreeMap<i32, u64> = BTreeMap::new();
    let mut spend = |now: Now, since_ns: u64, to_ns: u64, who: Option<i32>| {
        let spent_ns = to_ns.saturating_sub(since_ns);
        match now {
            Now::Ready => {
                way.woken_ns += spent_ns;
                if let Some(who) = who {
                    *kept.entry(who).or_default() += spent_ns;
                }
            }
            // Its waits in the middle are its own.
            Now::Running | Now::Asleep => way.user_ns += spent_ns,
        }
    };
    for event in &events[received..=queued] {
        if event.time_ns < since_ns {
            continue;
        }
        match event.kind {
            Kind::Switch { prev_tid, prev_state, next_tid, .. } => {
                on_cpu.insert(event.cpu, next_tid);
                if next_tid == tid {
                    spend(now, since_ns, event.time_ns, Some(prev_tid));
                    (now, since_ns) = (Now::Running, event.time_ns);
                } else if prev_tid == tid {
                    spend(now, since_ns, event.time_ns, None);
                    now = if prev_state == State::Runnable { Now::Ready } else { Now::Asleep };
                    since_ns = event.time_ns;
                }
            }
            Kind::Waking { tid: woken, .. } if woken == tid && now == Now::Asleep => {
                spend(now, since_ns, event.time_ns, None);
                (now, since_ns) = (Now::Ready, event.time_ns);
            }
            _ => {}
        }
    }
    spend(now, since_ns, queued_ns, None);
    way.kept_by = kept.into_iter().filter(|&(who, _)| who > 0).max_by_key(|&(_, ns)| ns).map(|(who, _)| who);
    Some(way)
}

/// The moment at which one of `threads` handed the answer to the interface: the buffer that the
/// driver took when the answer left. There may be other answers of the same length on their way. If
/// the driver reports nothing, it is the last one before.
fn queued(events: &[Event], exchange: &Exchange, threads: &BTreeSet<i32>) -> Option<usize> {
    let end_ns = exchange.answered_ns?;
    // With the link's header before it.
    let lengths = exchange.answer_bytes..=exchange.answer_bytes + 32;
    let at = |event: &Event, wanted: PacketStep| match event.kind {
        Kind::Packet { step, buffer, bytes } if step == wanted && lengths.contains(&bytes) => Some(buffer),
        _ => None,
    };
    let mut left = events.iter().filter(|event| event.time_ns + SLACK_NS >= end_ns);
    let buffer = left.find_map(|event| at(event, PacketStep::Sent));
    events.iter().rposition(|event| {
        let found = at(event, PacketStep::Queued).filter(|_| threads.contains(&event.tid));
        found.is_some_and(|found| buffer.map_or(event.time_ns <= end_ns + SLACK_NS, |buffer| found == buffer))
    })
}

/// State of the thread at the end of `events`.
pub(super) fn before(events: &[Event], tid: i32) -> Now {
    for event in events.iter().rev() {
        match event.kind {
            Kind::Switch { next_tid, .. } if next_tid == tid => return Now::Running,
            Kind::Switch { prev_tid, prev_state, .. } if prev_tid == tid => {
                return if prev_state == State::Runnable { Now::Ready } else { Now::Asleep };
            }
            Kind::Waking { tid: woken, .. } if woken == tid => return Now::Ready,
            _ => {}
        }
    }
    Now::Asleep
}

/// The violation that `exchange` was, by what is usual in `others`, and by whom: the place that
/// took most beyond its usual time.
pub(super) fn blamed(
    trace: &Trace,
    exchange: &Exchange,
    others: &[Exchange],
    threads: &BTreeSet<i32>,
) -> Violation {
    let us = exchange.response_ns().unwrap_or(0) as f64 / 1e3;
    let unknown = Violation {
        time_ns: exchange.arrived_ns,
        us,
        place: LinkPlace::Unknown,
        who: String::new(),
        parts_us: Vec::new(),
    };
    if !trace.covers(exchange.arrived_ns, exchange.end_ns()) {
        return unknown;
    }
    let until_ns = exchange.end_ns() + SLACK_NS;
    let events = trace.between(exchange.arrived_ns.saturating_sub(50_000_000), until_ns);
    let Some(found) = way(events, exchange, threads) else { return unknown };
    let mut usual: BTreeMap<LinkPlace, Vec<u64>> = BTreeMap::new();
    for other in others {
        let events = trace.between(other.arrived_ns.saturating_sub(SLACK_NS), other.end_ns() + SLACK_NS);
        if let Some(way) = way(events, other, threads) {
            for (place, ns) in way.parts() {
                usual.entry(place).or_default().push(ns);
            }
        }
    }
    let median = |place: LinkPlace| {
        let mut all = usual.get(&place).cloned().unwrap_or_default();
        all.sort_unstable();
        all.get(all.len() / 2).copied().unwrap_or(0)
    };
    let beyond = found.parts().map(|(place, ns)| (place, ns.saturating_sub(median(place))));
    let most = beyond.iter().max_by_key(|part| part.1).filter(|part| part.1 > 0);
    let place = most.map_or(LinkPlace::Unknown, |part| part.0);
    let who = match place {
        LinkPlace::WokenLate => found.kept_by.map_or(String::new(), |tid| trace.name_and_id(tid)),
        LinkPlace::UserCode => trace.name_and_id(found.tid),
        _ => String::new(),
    };
    let parts_us = found.parts().into_iter().map(|(place, ns)| (place, ns as f64 / 1e3)).collect();
    Violation { place, who, parts_us, ..unknown }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TID: i32 = 7;

    fn event(time_us: u64, tid: i32, kind: Kind) -> Event {
        Event { time_ns: time_us * 1000, tid, cpu: 0, kind }
    }

    fn switch(time_us: u64, prev_tid: i32, prev_state: State, next_tid: i32) -> Event {
        let kind = Kind::Switch { prev_tid, prev_prio: 120, prev_state, next_tid, next_prio: 120 };
        event(time_us, prev_tid, kind)
    }

    fn packet(time_us: u64, tid: i32, step: PacketStep, bytes: u32) -> Event {
        event(time_us, tid, Kind::Packet { step, buffer: 1, bytes })
    }

    /// An exchange that takes the given times from one place to the next, microseconds.
    fn exchange(from_us: u64, [interrupt, stack, woken, user, send]: [u64; 5]) -> (Exchange, Vec<Event>) {
        let received = from_us + interrupt;
        let waking = received + stack;
        let runs = waking + woken;
        let queued = runs + user;
        let events = vec![
            packet(received, 0, PacketStep::Received, 60),
            event(waking, 0, Kind::Waking { tid: TID, prio: 120, target_cpu: 0 }),
            switch(waking + 1, 0, State::Runnable, 9),
            switch(runs, 9, State::Runnable, TID),
            packet(queued, TID, PacketStep::Queued, 74),
            switch(queued + send + 1, TID, State::Sleeping, 0),
        ];
        let exchange = Exchange {
            arrived_ns: from_us * 1000,
            bytes: 60,
            late_ns: 0,
            answered_ns: Some((queued + send) * 1000),
            answer_bytes: 60,
            behind_ns: None,
        };
        (exchange, events)
    }

    #[test]
    fn each_place_is_blamed_for_its_own_delay() {
        let usual = [20, 30, 40, 900, 10];
        let places = [
            LinkPlace::Interrupt,
            LinkPlace::KernelStack,
            LinkPlace::WokenLate,
            LinkPlace::UserCode,
            LinkPlace::SendPath,
        ];
        for (index, expected) in places.into_iter().enumerate() {
            let mut trace = Trace::default();
            let mut others = Vec::new();
            for number in 1..=5 {
                let (other, events) = exchange(number * 10_000, usual);
                trace.events.extend(events);
                others.push(other);
            }
            let mut delayed = usual;
            delayed[index] += 3000;
            let (late, events) = exchange(60_000, delayed);
            trace.events.extend(events);
            trace.events.insert(0, switch(0, 0, State::Runnable, 0));
            let found = blamed(&trace, &late, &others, &BTreeSet::from([TID]));
            assert_eq!(found.place, expected, "{found:?}");
            if expected == LinkPlace::WokenLate {
                assert!(found.who.contains('9'), "{found:?}");
            }
            let sum_us: f64 = found.parts_us.iter().map(|part| part.1).sum();
            assert!((sum_us - found.us).abs() < 1.0, "{found:?}");
        }
    }

    #[test]
    fn an_answer_is_known_by_its_buffer_among_others_of_its_length() {
        let (late, mut events) = exchange(60_000, [20, 30, 40, 900, 3000]);
        let at =
            events.iter().position(|event| matches!(event.kind, Kind::Packet { bytes: 74, .. })).unwrap();
        // Two more are handed over while it waits, and it leaves first.
        let queued_us = events[at].time_ns / 1000;
        let other = |after_us: u64, buffer: u64| {
            let kind = Kind::Packet { step: PacketStep::Queued, buffer, bytes: 74 };
            event(queued_us + after_us, TID, kind)
        };
        events.splice(at + 1..at + 1, [other(100, 2), other(200, 3)]);
        let end_us = late.answered_ns.unwrap() / 1000;
        let left =
            |us: u64, buffer: u64| event(us, 0, Kind::Packet { step: PacketStep::Sent, buffer, bytes: 74 });
        let last = events.len() - 1;
        events.splice(last..last, [left(end_us, 1)]);
        let found = way(&events, &late, &BTreeSet::from([TID])).unwrap();
        assert_eq!((found.user_ns, found.send_ns), (900_000, 3_000_000));
    }

    #[test]
    fn what_is_not_there_is_not_guessed() {
        let (late, events) = exchange(60_000, [20, 30, 40, 900, 10]);
        let threads = BTreeSet::from([TID]);
        assert_eq!(blamed(&Trace::default(), &late, &[], &threads).place, LinkPlace::Unknown);
        for missing in [0, 4] {
            let mut trace = Trace { events: events.clone(), ..Trace::default() };
            trace.events.remove(missing);
            trace.events.insert(0, switch(0, 0, State::Runnable, 0));
            assert_eq!(blamed(&trace, &late, &[], &threads).place, LinkPlace::Unknown);
        }
        let silent = Exchange { answered_ns: None, ..late };
        let trace = Trace { events, ..Trace::default() };
        assert_eq!(blamed(&trace, &silent, &[], &threads).place, LinkPlace::Unknown);
    }
}

//! Links: packets of a robot's loop, followed from outside: arrival at the interface, software
//! interrupt, socket, the thread runs, its code, the send, out at the interface. Each violation
//! belongs to one of six places. On EtherCAT the master speaks first: its frames are followed from
//! the send to their return.

use std::collections::{BTreeSet, VecDeque};
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use takt_rt::packet::{Layer, PacketSocket};
use takt_stats::{Recorder, Summary};
use takt_trace::Trace;

#[cfg(feature = "ethercat")]
use self::bus::Bus;
pub use self::endpoint::{Endpoint, InterfaceName};
pub use self::stamp::RobotClock;
use self::stamp::Stamps;
use self::tap::{Packet, Tap};
use crate::error::WatchError;
use crate::period;
use crate::watcher::Settings;

#[cfg(feature = "ethercat")]
mod bus;
mod endpoint;
mod judge;
mod stamp;
mod tap;

/// Place that delayed a cycle of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkPlace {
    /// The packet came late: the robot, or the network; on EtherCAT the wire, its cards, or the
    /// devices.
    RobotOrNetwork,
    /// From the interface to the protocols: its interrupt, and the software interrupt behind it.
    Interrupt,
    /// The protocols, up to the socket.
    KernelStack,
    /// The thread was ready and did not run.
    WokenLate,
    /// The program's own code, or what it waited for.
    UserCode,
    /// From the send to the wire: protocols, queue of the interface.
    SendPath,
    /// Its events were lost, or not looked at.
    Unknown,
}

impl LinkPlace {
    /// A few words for tables.
    pub fn title(self) -> &'static str {
        match self {
            Self::RobotOrNetwork => "robot or network was late",
            Self::Interrupt => "interface and its interrupt",
            Self::KernelStack => "kernel's protocols",
            Self::WokenLate => "thread woken late or not running",
            Self::UserCode => "the program's own code",
            Self::SendPath => "send path",
            Self::Unknown => "not known",
        }
    }
}

/// Number of times that a place was to blame.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Blame {
    pub place: LinkPlace,
    /// Violations.
    pub count: u64,
    /// Name of the thread that had the CPU in the last of them; empty if unknown.
    pub who: String,
}

/// A violation, one of the worst.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Violation {
    /// When the packet came, CLOCK_MONOTONIC; when it should have come, where it came late.
    pub time_ns: u64,
    /// Its lateness, or the time until its answer, microseconds.
    pub us: f64,
    /// To blame.
    pub place: LinkPlace,
    /// The thread that had the CPU, if that is to blame.
    pub who: String,
    /// The way of the packet, microseconds, by place; empty where it is not known.
    pub parts_us: Vec<(LinkPlace, f64)>,
}

/// A link. On EtherCAT its packets are the frames with process data that the master sends, answered
/// when they are back.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LinkReport {
    /// As it was asked for.
    pub name: String,
    /// Packets from the robot; of the first kind in each cycle, on EtherCAT.
    pub packets: u64,
    /// Of these, how many were answered before the next came.
    pub answered: u64,
    /// Their period; null where none was found.
    pub period_us: Option<f64>,
    /// Distances of packets from the robot.
    pub gap_us: Summary,
    /// From a packet at the interface to its answer at the interface.
    pub response_us: Summary,
    /// Margin by which the answers could have left later, up to the end of the period or the
    /// deadline: minimum and 1 % quantile; null without a period.
    pub margin_us: Option<[f64; 2]>,
    /// An answer counted as late beyond this, microseconds; null without a period.
    pub deadline_us: Option<f64>,
    /// Cycles that came late or were answered late.
    pub violations: u64,
    /// Blamed places, the most frequent first.
    pub blame: Vec<Blame>,
    pub worst: Vec<Violation>,
    /// The robot's clock; null where its packets carry no stamp.
    pub robot_clock: Option<RobotClock>,
    /// Packets that were lost to this watch.
    pub lost: u64,
}

/// A cycle of a link: a packet from the robot, and what came of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Exchange {
    pub(crate) arrived_ns: u64,
    pub(crate) bytes: u32,
    /// Its lateness, if it was late.
    pub(crate) late_ns: u64,
    pub(crate) answered_ns: Option<u64>,
    pub(crate) answer_bytes: u32,
    /// Its delay after the robot's own timestamp, if known.
    pub(crate) behind_ns: Option<u64>,
}

impl Exchange {
    /// Until when it is of interest.
    pub(crate) fn end_ns(&self) -> u64 {
        self.answered_ns.unwrap_or(self.arrived_ns)
    }

    /// From when on it is of interest.
    pub(crate) fn begin_ns(&self) -> u64 {
        self.arrived_ns.saturating_sub(self.late_ns)
    }

    /// Of a bus: it was sent late, and that is what is asked.
    pub(crate) fn is_late_send(&self) -> bool {
        self.late_ns > 0 && self.answered_ns == Some(self.arrived_ns)
    }

    pub(crate) fn response_ns(&self) -> Option<u64> {
        Some(self.answered_ns?.saturating_sub(self.arrived_ns))
    }
}

impl LinkReport {
    /// Name of a place on this link.
    pub fn title(&self, place: LinkPlace) -> &'static str {
        let bus = self.name.ends_with(":ethercat");
        match place {
            LinkPlace::RobotOrNetwork if bus => "wire, card or device",
            place => place.title(),
        }
    }
}

/// Arrivals that the period is determined from.
const MAX_TIMES: usize = period::MOST;
/// Exchanges that are remembered: what is usual is determined from those before a violation.
const MAX_EXCHANGES: usize = 4096;
/// Packets that may wait for their answers at once.
const MAX_OPEN: usize = 16;
/// Packets in a row, after which one that has no answer yet will have none.
const MAX_BEHIND: u32 = 32;
/// Violations that are reported one by one.
const MAX_WORST: usize = 20;

/// Robots that are distinguished at one port.
const MAX_PEERS: usize = 8;
/// A robot or a connection that is silent for so long may be gone, and another one in its place.
const GONE_NS: u64 = 1_000_000_000;

/// Source of its packets.
#[derive(Debug)]
enum Source {
    Tap(Box<Tap>),
    /// By the tap of another link of the same endpoint: several robots send to the same port.
    Beside,
    #[cfg(feature = "ethercat")]
    Bus(Box<Bus>),
}

/// A link that is followed.
#[derive(Debug)]
pub(crate) struct Link {
    endpoint: Endpoint,
    source: Source,
    /// The peer of these packets ([`Packet::peer`]), once it is known.
    peer: Option<(IpAddr, u16)>,
    /// It is one of several of its endpoint.
    is_one_of_several: bool,
    /// Packets of others, beyond those that are distinguished.
    mixed: u64,
    /// Its connection has ended.
    is_closed: bool,
    /// So often another connection or a restarted robot took the place of the one before.
    begun_anew: u64,
    times: VecDeque<u64>,
    try_at: u64,
    period_ns: Option<f64>,
    packets: u64,
    answered: u64,
    violations: u64,
    /// Packets without an answer yet, oldest first.
    open: VecDeque<Exchange>,
    /// Packets in a row that came while an earlier one had no answer yet.
    behind: u32,
    pub(crate) exchanges: VecDeque<Exchange>,
    /// Violations whose place is not known yet.
    pub(crate) pending: Vec<Exchange>,
    gaps: Recorder,
    responses: Recorder,
    margins: Recorder,
    blame: Vec<Blame>,
    worst: Vec<Violation>,
    stamps: Stamps,
    settings: Settings,
}

impl Link {
    /// Reason why no link could be opened; None if one could.
    pub(crate) fn refused() -> Option<String> {
        PacketSocket::open(Layer::Network, false).err().map(|error| format!("no packet socket: {error}"))
    }

    /// Opens the tap.
    ///
    /// # Errors
    /// [`WatchError::Link`], [`WatchError::Interface`].
    pub(crate) fn open(endpoint: Endpoint, settings: Settings) -> Result<Self, WatchError> {
        let source = match endpoint {
            #[cfg(not(feature = "ethercat"))]
            Endpoint::Ethercat { .. } => return Err(WatchError::NoEthercat { link: endpoint }),
            #[cfg(feature = "ethercat")]
            Endpoint::Ethercat { interface } => {
                let bus = Bus::open(interface.as_str());
                let bus = bus.map_err(|source| WatchError::Interface { link: endpoint, source })?;
                Source::Bus(Box::new(bus))
            }
            _ => {
                let tap = Tap::open(&endpoint).map_err(|source| WatchError::Link { link: endpoint, source });
                Source::Tap(Box::new(tap?))
            }
        };
        Self::of(endpoint, source, settings)
    }

    fn of(endpoint: Endpoint, source: Source, settings: Settings) -> Result<Self, WatchError> {
        let recorder = || Recorder::compact(None);
        Ok(Self {
            endpoint,
            source,
            peer: None,
            is_one_of_several: false,
            mixed: 0,
            is_closed: false,
            begun_anew: 0,
            times: VecDeque::new(),
            try_at: 0,
            period_ns: settings.period_ns,
            packets: 0,
            answered: 0,
            violations: 0,
            open: VecDeque::new(),
            behind: 0,
            exchanges: VecDeque::new(),
            pending: Vec::new(),
            gaps: recorder()?,
            responses: recorder()?,
            margins: recorder()?,
            blame: Vec::new(),
            worst: Vec::new(),
            stamps: Stamps::new()?,
            settings,
        })
    }

    /// Up to five exchanges before that of `arrived_ns` that were in time: what is usual. On
    /// EtherCAT the last ones, of whatever kind: what held the one before up may hold this one up.
    pub(crate) fn usual(&self, arrived_ns: u64) -> Vec<Exchange> {
        const USUAL: usize = 5;
        const BACK_NS: u64 = 800_000_000;
        #[cfg(feature = "ethercat")]
        if let Source::Bus(_) = self.source {
            let before = self.exchanges.iter().rev().filter(|other| other.arrived_ns < arrived_ns);
            return before.take(2 * USUAL).copied().collect();
        }
        let deadline_ns = self.deadline_ns().unwrap_or(u64::MAX);
        let before = self.exchanges.iter().rev().skip_while(|other| other.arrived_ns >= arrived_ns);
        before
            .take_while(|other| other.arrived_ns + BACK_NS > arrived_ns)
            .filter(|other| other.response_ns().is_some_and(|response_ns| response_ns <= deadline_ns))
            .take(USUAL)
            .copied()
            .collect()
    }

    fn deadline_ns(&self) -> Option<u64> {
        match self.source {
            Source::Tap(_) | Source::Beside => self.settings.deadline_ns(self.period_ns),
            // As `takt ethercat analyse` has it: for most masters an answer that is not there by
            // then is late.
            #[cfg(feature = "ethercat")]
            Source::Bus(_) => self.settings.deadline_ns.or(self.period_ns.map(|ns| (ns / 2.0) as u64)),
        }
    }

    /// Finds the place where a violation lost its time, from the events around it; `threads` are
    /// the watched ones.
    pub(crate) fn blamed(
        &self,
        trace: &Trace,
        late: &Exchange,
        usual: &[Exchange],
        threads: &BTreeSet<i32>,
    ) -> Violation {
        match self.source {
            Source::Tap(_) | Source::Beside => judge::blamed(trace, late, usual, threads),
            #[cfg(feature = "ethercat")]
            Source::Bus(_) => bus::blamed(trace, late, usual, threads),
        }
    }

    /// Takes the packets that have passed `links` since the last time; `last` where no other time
    /// follows. A port to which several robots send has a link for each of them.
    pub(crate) fn take_all(links: &mut Vec<Self>, last: bool) {
        for at in 0..links.len() {
            if let Source::Tap(tap) = &mut links[at].source {
                for packet in tap.drain() {
                    Self::hand_over(links, at, &packet);
                }
            }
        }
        for link in links {
            link.take(last);
        }
    }

    /// Gives a packet that the tap of the link at `tapped` saw to the link that it is of.
    fn hand_over(links: &mut Vec<Self>, tapped: usize, packet: &Packet) {
        if let Some(to) = Self::whose(links, tapped, packet) {
            links[to].see(packet);
        }
    }

    /// The link of a packet that the tap of the one at `tapped` saw; none for the end of a
    /// connection on which no state came.
    fn whose(links: &mut Vec<Self>, tapped: usize, packet: &Packet) -> Option<usize> {
        let endpoint = links[tapped].endpoint;
        let is_udp = matches!(endpoint, Endpoint::Udp { .. });
        let its = |link: &Self| link.endpoint == endpoint && link.peer == Some(packet.peer);
        let its = links.iter().position(its);
        if !is_udp && its.is_none_or(|at| links[at].packets == 0) {
            if packet.data_bytes == 0 {
                return None;
            }
            if !packet.incoming {
                // Commands may go out on a connection of their own, as those of ur_rtde do: they
                // answer the states that come on another one.
                let open = |link: &Self| link.endpoint == endpoint && link.packets > 0 && !link.is_closed;
                return links.iter().position(open).or(Some(tapped));
            }
        }
        if its.is_some() {
            return its;
        }
        let of_it: Vec<usize> = (0..links.len()).filter(|&at| links[at].endpoint == endpoint).collect();
        let find =
            |links: &[Self], is: &dyn Fn(&Self) -> bool| of_it.iter().copied().find(|&at| is(&links[at]));
        let same_host = |link: &Self| link.peer.is_some_and(|peer| peer.0 == packet.peer.0);
        if is_udp && !packet.incoming {
            // An answer to another port of the robot's, or to all.
            return find(links, &same_host).or(Some(tapped));
        }
        if let Some(at) = find(links, &|link| link.peer.is_none()) {
            links[at].peer = Some(packet.peer);
            return Some(at);
        }
        let is_gone = |link: &Self| {
            link.is_closed || link.times.back().is_some_and(|last| last + GONE_NS < packet.time_ns)
        };
        if let Some(at) = find(links, &|link| is_gone(link) && (!is_udp || same_host(link))) {
            links[at].begin_anew(packet.peer);
            return Some(at);
        }
        if of_it.len() < MAX_PEERS
            && let Ok(link) = Self::of(endpoint, Source::Beside, links[tapped].settings)
        {
            links.push(Self { peer: Some(packet.peer), ..link });
            for (at, link) in links.iter_mut().enumerate() {
                link.is_one_of_several |= of_it.contains(&at) || link.peer == Some(packet.peer);
            }
            return Some(links.len() - 1);
        }
        let at = find(links, &same_host).unwrap_or(tapped);
        links[at].mixed += 1;
        Some(at)
    }

    /// Another connection, or the robot after a restart: nobody was late in between, and what was
    /// not answered by then will not be.
    fn begin_anew(&mut self, peer: (IpAddr, u16)) {
        self.peer = Some(peer);
        self.is_closed = false;
        self.begun_anew += 1;
        self.behind = 0;
        self.times.clear();
        let open = std::mem::take(&mut self.open);
        open.into_iter().for_each(|exchange| self.remember(exchange));
    }

    fn take(&mut self, last: bool) {
        #[cfg(feature = "ethercat")]
        if let Source::Bus(bus) = &mut self.source {
            let seen = bus.drain();
            for one in seen {
                self.see_frame(one);
            }
        }
        if last {
            // The last ones had no chance to be answered.
            self.exchanges.extend(self.open.drain(..));
        }
        if self.settings.period_ns.is_none() && self.packets >= self.try_at.max(period::FEWEST as u64) {
            let found = period::find(self.times.make_contiguous()).map(|period| period.ns);
            // Late packets may lie on a finer grid: one that was found is only reported more
            // closely.
            let near = |found: f64| self.period_ns.is_none_or(|known| (found / known - 1.0).abs() < 0.05);
            self.period_ns = found.filter(|&found| near(found)).or(self.period_ns);
            self.try_at = self.packets + self.packets.clamp(period::FEWEST as u64, 4 * MAX_TIMES as u64);
        }
    }

    /// At the end, while the program still waits for them: a robot that has stopped sending is
    /// late.
    pub(crate) fn end(&mut self, now_ns: u64) {
        /// Periods without a packet.
        const SILENT: u64 = 3;
        let (Source::Tap(_) | Source::Beside, false, Some(period_ns), Some(&last_ns)) =
            (&self.source, self.is_closed, self.period_ns.map(|ns| ns as u64), self.times.back())
        else {
            return;
        };
        let due_ns = last_ns + period_ns;
        let over_ns = now_ns.saturating_sub(due_ns);
        if over_ns > (SILENT * period_ns).max(self.settings.late_ns(Some(period_ns as f64))) {
            self.violations += 1;
            self.blame(&Violation {
                time_ns: due_ns,
                us: over_ns as f64 / 1e3,
                place: LinkPlace::RobotOrNetwork,
                who: String::new(),
                parts_us: Vec::new(),
            });
        }
    }

    fn see(&mut self, packet: &Packet) {
        self.is_closed |= packet.closes && self.peer == Some(packet.peer);
        if packet.data_bytes == 0 {
            return;
        }
        if !packet.incoming {
            if let Some(open) = self.open.pop_front() {
                let answered_ns = Some(packet.time_ns);
                self.close(Exchange { answered_ns, answer_bytes: packet.bytes, ..open });
            }
            return;
        }
        self.behind = if self.open.is_empty() { 0 } else { self.behind + 1 };
        // It answers every packet, if late; who goes on being late by as many has left some out.
        if self.behind > MAX_BEHIND || self.open.len() > MAX_OPEN {
            self.behind = 0;
            if let Some(open) = self.open.pop_front() {
                self.close(open);
            }
        }
        let late_ns = self.arrive(packet.time_ns);
        let late = self.period_ns.filter(|_| late_ns > 0).map(|period_ns| (late_ns, period_ns));
        let behind_ns = self.stamps.see(&packet.data[..packet.data_bytes], packet.time_ns, late);
        self.open.push_back(Exchange {
            arrived_ns: packet.time_ns,
            bytes: packet.bytes,
            late_ns,
            answered_ns: None,
            answer_bytes: 0,
            behind_ns,
        });
    }

    /// The next packet that a cycle begins with: how late it is, where it is late.
    fn arrive(&mut self, time_ns: u64) -> u64 {
        let before_ns = self.times.back().copied();
        self.packets += 1;
        if self.times.len() >= MAX_TIMES {
            self.times.pop_front();
        }
        self.times.push_back(time_ns);
        let Some(before_ns) = before_ns else { return 0 };
        let gap_ns = time_ns.saturating_sub(before_ns);
        self.gaps.record(gap_ns);
        let Some(period_ns) = self.period_ns else { return 0 };
        let over_ns = gap_ns.saturating_sub(period_ns as u64);
        if over_ns > self.settings.late_ns(Some(period_ns)) { over_ns } else { 0 }
    }

    #[cfg(feature = "ethercat")]
    fn see_frame(&mut self, seen: bus::Seen) {
        match seen {
            bus::Seen::Sent { time_ns, bytes, alone } => {
                let late_ns = self.arrive(time_ns);
                if late_ns == 0 {
                    return;
                }
                self.violations += 1;
                let answered_ns = Some(time_ns);
                let late = Exchange {
                    arrived_ns: time_ns,
                    bytes,
                    late_ns,
                    answered_ns,
                    answer_bytes: bytes,
                    behind_ns: None,
                };
                if alone { self.blame(&bus::missing(&late)) } else { self.pending.push(late) }
            }
            bus::Seen::Over(exchange) => {
                self.remember(exchange);
                let deadline_ns = self.deadline_ns();
                match (exchange.response_ns(), deadline_ns) {
                    (None, _) => {
                        self.violations += 1;
                        self.blame(&bus::missing(&exchange));
                    }
                    (Some(response_ns), Some(deadline_ns)) if response_ns > deadline_ns => {
                        self.violations += 1;
                        self.pending.push(exchange);
                    }
                    _ => {}
                }
            }
        }
    }

    /// Counts a finished exchange.
    fn remember(&mut self, exchange: Exchange) {
        if self.exchanges.len() >= MAX_EXCHANGES {
            self.exchanges.pop_front();
        }
        self.exchanges.push_back(exchange);
        let Some(response_ns) = exchange.response_ns() else { return };
        self.answered += 1;
        self.responses.record(response_ns);
        if let Some(behind_ns) = exchange.behind_ns {
            self.stamps.answered(behind_ns, response_ns);
        }
        if let Some(deadline_ns) = self.deadline_ns() {
            self.margins.record(deadline_ns.saturating_sub(response_ns));
        }
    }

    fn close(&mut self, exchange: Exchange) {
        self.remember(exchange);
        let Some(deadline_ns) = self.deadline_ns() else { return };
        let response_ns = exchange.response_ns();
        // A link on which nobody ever answers is read only.
        let silent = response_ns.is_none() && self.answered * 2 > self.packets;
        if exchange.late_ns > 0 {
            self.violations += 1;
            self.blame(&Violation {
                time_ns: exchange.arrived_ns,
                us: exchange.late_ns as f64 / 1e3,
                place: LinkPlace::RobotOrNetwork,
                who: String::new(),
                parts_us: Vec::new(),
            });
        }
        if silent || response_ns.is_some_and(|response_ns| response_ns > deadline_ns) {
            self.violations += 1;
            self.pending.push(exchange);
        }
    }

    /// Counts a violation whose place is known.
    pub(crate) fn blame(&mut self, violation: &Violation) {
        let entry = match self.blame.iter_mut().find(|entry| entry.place == violation.place) {
            Some(entry) => entry,
            None => {
                self.blame.push(Blame { place: violation.place, count: 0, who: String::new() });
                let last = self.blame.len() - 1;
                &mut self.blame[last]
            }
        };
        entry.count += 1;
        if !violation.who.is_empty() {
            entry.who.clone_from(&violation.who);
        }
        self.worst.push(violation.clone());
        self.worst.sort_by(|a, b| b.us.total_cmp(&a.us));
        self.worst.truncate(self.settings.windows.max(MAX_WORST));
    }

    /// Its name in a report.
    fn name(&self) -> String {
        match (self.endpoint, self.peer.filter(|_| self.is_one_of_several)) {
            (Endpoint::Udp { .. }, Some((host, port))) => format!("{} of {host} port {port}", self.endpoint),
            (_, Some((_, port))) => format!("{} at local port {port}", self.endpoint),
            (_, None) => self.endpoint.to_string(),
        }
    }

    /// Notes for the reader, for example that no packet was seen.
    pub(crate) fn notes(&self) -> Vec<String> {
        let name = self.name();
        let mut notes = Vec::new();
        if self.packets == 0 {
            let what = match self.endpoint {
                Endpoint::Udp { .. } => "no UDP packet with data came to this port of this machine",
                Endpoint::Tcp { .. } => "no TCP packet with data came from this address and port",
                Endpoint::Ethercat { .. } => "no frame with process data passed this interface",
            };
            let elsewhere = match self.endpoint {
                Endpoint::Ethercat { .. } => "",
                _ => " (on the interfaces of this network namespace)",
            };
            notes.push(format!("--link {name}: {what}{elsewhere}, so the link is not reported"));
        }
        if self.is_closed {
            notes.push(format!("--link {name}: its connection was closed, and no other was made"));
        }
        if self.begun_anew > 0 {
            notes.push(format!(
                "--link {name}: {} times, a new connection or a restarted robot replaced the previous one; the time in between is not \
                 judged",
                self.begun_anew
            ));
        }
        if self.mixed > 0 {
            notes.push(format!(
                "--link {name}: more than {MAX_PEERS} robots or connections; {} packets of others are counted here, so the period, gaps \
                 and answers are not those of one robot",
                self.mixed
            ));
        }
        notes
    }

    pub(crate) fn report(&self) -> LinkReport {
        let mut blame = self.blame.clone();
        blame.sort_by_key(|entry| std::cmp::Reverse(entry.count));
        let margin = self.margins.summary();
        let period_us = self.period_ns.map(|ns| ns / 1e3);
        LinkReport {
            name: self.name(),
            packets: self.packets,
            answered: self.answered,
            period_us,
            gap_us: self.gaps.summary().over(1e3),
            response_us: self.responses.summary().over(1e3),
            margin_us: (margin.count > 0)
                .then(|| [margin.min / 1e3, self.margins.quantile(0.01).unwrap_or(margin.min) / 1e3]),
            deadline_us: self.deadline_ns().map(|ns| ns as f64 / 1e3),
            violations: self.violations,
            blame,
            worst: self.worst.clone(),
            robot_clock: self.stamps.report(self.period_ns),
            lost: match &self.source {
                Source::Tap(tap) => tap.lost,
                // Counted at the link that has the tap: nobody knows whose they were.
                Source::Beside => 0,
                #[cfg(feature = "ethercat")]
                Source::Bus(bus) => bus.lost,
            },
        }
    }
}

#[cfg(test)]
mod tests;

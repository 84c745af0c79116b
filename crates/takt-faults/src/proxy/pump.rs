//! One direction of a connection: reads packets, does to them what is planted, sends what is due.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use takt_link_rtde::wire::HEADER_BYTES;
use takt_rt::clock::monotonic_ns;

use super::disturbance::{Direction, Disturbance, Plan, Which};
use super::packet::{self, Layout, Value};
use super::{LinkState, ProxyState, lock};

const NS_PER_MS: u64 = 1_000_000;

/// Longest sleep: a new plan or the end is noticed within it.
const LONGEST_WAIT_MS: i32 = 5;

/// Bytes of a lie that no RTDE peer understands: a packet of an unknown type, then one that is too
/// short.
const GARBAGE: [u8; 9] = [0, 7, b'?', 1, 2, 3, 4, 0, 1];

#[derive(Debug)]
struct Due {
    at_ns: u64,
    bytes: Vec<u8>,
}

/// A disturbance's memory from its first packet.
#[derive(Clone, Debug, Default)]
struct Memory {
    packets: u32,
    packet: Option<Vec<u8>>,
    number: Option<f64>,
    bytes: Option<Vec<u8>>,
    done: bool,
}

pub(super) struct Pump<'a> {
    shared: &'a ProxyState,
    link: &'a LinkState,
    direction: Direction,
    plan: Arc<Plan>,
    memories: Vec<Memory>,
    received: Vec<u8>,
    queue: VecDeque<Due>,
    held: Option<Vec<u8>>,
}

impl<'a> Pump<'a> {
    pub(super) fn new(shared: &'a ProxyState, link: &'a LinkState, direction: Direction) -> Self {
        Self {
            shared,
            link,
            direction,
            plan: Arc::default(),
            memories: Vec::new(),
            received: Vec::new(),
            queue: VecDeque::new(),
            held: None,
        }
    }

    pub(super) fn run(&mut self, from: &TcpStream, to: &TcpStream) {
        let (mut reading, mut writing) = (from, to);
        let mut buffer = [0; 8192];
        while self.link.open.load(Ordering::Acquire) && !self.shared.stop.load(Ordering::Acquire) {
            self.look_at_plan();
            let stalled = self.link.dead.load(Ordering::Acquire) || self.is_stalled();
            match wait(from, self.wait_ms(), stalled) {
                Ok(true) => match reading.read(&mut buffer) {
                    Ok(0) => return,
                    Ok(read) => {
                        // The plan may have changed while nothing came: what came later is under
                        // the new one.
                        self.look_at_plan();
                        self.received.extend_from_slice(&buffer[..read]);
                        if !self.take_packets() {
                            return;
                        }
                    }
                    Err(error) if is_temporary(&error) => {}
                    Err(_) => return,
                },
                Ok(false) => {}
                Err(_) => return,
            }
            if self.link.dead.load(Ordering::Acquire) {
                self.queue.clear();
                continue;
            }
            let now_ns = monotonic_ns();
            while self.queue.front().is_some_and(|due| due.at_ns <= now_ns) {
                let Some(due) = self.queue.pop_front() else { break };
                if due.bytes.is_empty() || writing.write_all(&due.bytes).is_err() {
                    // An empty packet is the end that `Cut` asks for.
                    return;
                }
            }
        }
    }

    fn look_at_plan(&mut self) {
        let plan = self.shared.plan();
        if plan.number != self.plan.number {
            self.memories = vec![Memory::default(); plan.disturbances.len()];
            self.plan = plan;
            // Waiting packets leave at once: a repaired wire delivers its backlog.
            let now_ns = monotonic_ns();
            self.queue.extend(self.held.take().map(|bytes| Due { at_ns: now_ns, bytes }));
            self.queue.iter_mut().for_each(|due| due.at_ns = now_ns);
        }
    }

    fn concerns(&self, disturbance: &Disturbance) -> bool {
        disturbance.direction() == Some(self.direction)
            && match disturbance.which() {
                Which::All => true,
                Which::Safety => lock(&self.link.recipes).is_safety(),
                Which::Mission => !lock(&self.link.recipes).is_safety(),
            }
    }

    fn is_stalled(&self) -> bool {
        self.plan.disturbances.iter().any(|d| matches!(d, Disturbance::Stall(_)) && self.concerns(d))
    }

    fn wait_ms(&self) -> i32 {
        let now_ns = monotonic_ns();
        self.queue.front().map_or(LONGEST_WAIT_MS, |due| {
            let left_ns = due.at_ns.saturating_sub(now_ns);
            i32::try_from(left_ns.div_ceil(NS_PER_MS)).unwrap_or(LONGEST_WAIT_MS).min(LONGEST_WAIT_MS)
        })
    }

    /// Takes whole packets out of what was received; false at bytes that no packet begins with.
    fn take_packets(&mut self) -> bool {
        while let [high, low, ..] = self.received[..] {
            let size = usize::from(u16::from_be_bytes([high, low]));
            if size < HEADER_BYTES {
                return false;
            }
            if self.received.len() < size {
                break;
            }
            let packet: Vec<u8> = self.received.drain(..size).collect();
            self.observe(&packet);
            self.pass(packet);
        }
        true
    }

    fn observe(&self, packet: &[u8]) {
        let mut recipes = lock(&self.link.recipes);
        match self.direction {
            Direction::ToRobot => recipes.observe_cell(packet),
            Direction::ToCell => recipes.observe_controller(packet),
        }
    }

    fn pass(&mut self, mut packet: Vec<u8>) {
        let now_ns = monotonic_ns();
        let Some(recipe) = packet::data_recipe(&packet) else {
            self.queue_up(now_ns, packet);
            return;
        };
        let layout = {
            let recipes = lock(&self.link.recipes);
            match self.direction {
                Direction::ToRobot => recipes.input(recipe).cloned(),
                Direction::ToCell => recipes.output().cloned(),
            }
        };
        let plan = Arc::clone(&self.plan);
        let (mut at_ns, mut copies, mut swap) = (now_ns, 1, false);
        for (index, disturbance) in plan.disturbances.iter().enumerate() {
            if !self.concerns(disturbance) {
                continue;
            }
            let memory = &mut self.memories[index];
            memory.packets += 1;
            match disturbance {
                Disturbance::Drop(_, _, one_in) => {
                    if memory.packets.is_multiple_of(*one_in) {
                        return;
                    }
                }
                Disturbance::Delay(_, _, ms) => at_ns = now_ns + ms * NS_PER_MS,
                Disturbance::Creep(_, ms_per_s, most_ms) => {
                    let since_ns = now_ns.saturating_sub(plan.since_ns);
                    at_ns = now_ns + (since_ns * ms_per_s / 1000).min(most_ms * NS_PER_MS);
                }
                Disturbance::Duplicate(_, times) => copies = *times,
                Disturbance::Swap(_) => swap = true,
                Disturbance::Cut(_) => {
                    packet.truncate(packet.len() / 2);
                    self.queue_up(now_ns, packet);
                    self.queue_up(now_ns, Vec::new());
                    return;
                }
                Disturbance::Garbage(_) => {
                    if !std::mem::replace(&mut memory.done, true) {
                        self.queue_up(now_ns, GARBAGE.to_vec());
                    }
                }
                Disturbance::Replay(_) => packet = memory.packet.get_or_insert(packet).clone(),
                Disturbance::Flip(_, byte, mask) => {
                    if let Some(byte) = packet.get_mut(*byte) {
                        *byte ^= mask;
                    }
                }
                _ => {
                    if let Some(layout) = &layout {
                        change(disturbance, memory, layout, packet::values(&mut packet));
                    }
                }
            }
        }
        if swap {
            match self.held.take() {
                None => self.held = Some(packet),
                Some(earlier) => {
                    self.queue_up(at_ns, packet);
                    self.queue_up(at_ns, earlier);
                }
            }
            return;
        }
        for _ in 0..copies {
            self.queue_up(at_ns, packet.clone());
        }
    }

    /// In the order of arrival, whatever the delays are: the wire is a stream.
    fn queue_up(&mut self, at_ns: u64, bytes: Vec<u8>) {
        let at_ns = self.queue.back().map_or(at_ns, |last| last.at_ns.max(at_ns));
        self.queue.push_back(Due { at_ns, bytes });
    }
}

/// Changes one variable.
fn change(disturbance: &Disturbance, memory: &mut Memory, layout: &Layout, values: &mut [u8]) {
    match *disturbance {
        Disturbance::Set(_, name, value) => layout.set(values, name, value),
        Disturbance::Freeze(_, name) => {
            let Some((_, range)) = layout.field(name) else { return };
            let Some(now) = values.get_mut(range) else { return };
            let first = memory.bytes.get_or_insert_with(|| now.to_vec());
            // Another connection's recipe may have the same name with another length.
            if first.len() == now.len() {
                now.copy_from_slice(first);
            }
        }
        Disturbance::Map(_, name, from, to) if layout.get(values, name) == Some(from) => {
            layout.set(values, name, Value::Number(to));
        }
        Disturbance::Add(_, name, amount) => {
            if let Some(number) = layout.get(values, name) {
                layout.set(values, name, Value::Number(number + amount));
            }
        }
        Disturbance::Pace(_, name, factor) => {
            if let Some(number) = layout.get(values, name) {
                let first = *memory.number.get_or_insert(number);
                layout.set(values, name, Value::Number(first + (number - first) * factor));
            }
        }
        _ => {}
    }
}

fn is_temporary(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted | io::ErrorKind::TimedOut)
}

/// Waits until something can be read; a stalled pump only sleeps.
fn wait(stream: &TcpStream, most_ms: i32, stalled: bool) -> io::Result<bool> {
    let mut polled = libc::pollfd { fd: stream.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let count = libc::nfds_t::from(!stalled);
    // SAFETY: pointer and length are those of one live pollfd (or length 0); the call only writes
    // `revents`.
    let ready = unsafe { libc::poll(&raw mut polled, count, most_ms) };
    if ready < 0 {
        let error = io::Error::last_os_error();
        return if is_temporary(&error) { Ok(false) } else { Err(error) };
    }
    Ok(ready > 0)
}

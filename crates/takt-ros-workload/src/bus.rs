//! Publish and subscribe between processes: one datagram socket for each node, messages by kernel
//! copies.
//!
//! As in DDS implementations, a helper thread in every process receives and files messages into the
//! subscriptions' histories (`KEEP_LAST`), and then wakes the executor. It is an ordinary thread
//! that nobody described to the scheduler: whoever starves it delays every chain through its
//! process (*ROS-Llama*, section VI.A).

use std::collections::VecDeque;
use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::system::System;
use takt_rt::clock::monotonic_ns;

/// A message on the bus.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message {
    /// Index of the topic in [`System::topics`].
    pub topic: u32,
    /// Activation that sent it ([`crate::stamps::ActivationId::packed`]).
    pub sequence: u64,
    /// The publisher's time stamp.
    pub source_ns: i64,
}

const MAGIC: u32 = 0x7473_6f72;
const BYTES: usize = 24;

impl Message {
    fn encode(self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        bytes[..4].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.topic.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[16..].copy_from_slice(&self.source_ns.to_le_bytes());
        bytes
    }

    /// Whatever else arrives at the socket is no message.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; BYTES] = bytes.try_into().ok()?;
        let (magic, rest) = bytes.split_first_chunk()?;
        let (topic, rest) = rest.split_first_chunk()?;
        let (sequence, rest) = rest.split_first_chunk()?;
        (u32::from_le_bytes(*magic) == MAGIC).then_some(())?;
        Some(Self {
            topic: u32::from_le_bytes(*topic),
            sequence: u64::from_le_bytes(*sequence),
            source_ns: i64::from_le_bytes(rest.try_into().ok()?),
        })
    }
}

/// One subscription's history.
#[derive(Debug)]
struct History {
    topic: u32,
    depth: usize,
    messages: VecDeque<Message>,
    overwritten: u64,
}

#[derive(Debug)]
struct Inbox {
    histories: Mutex<Vec<History>>,
    changed: Condvar,
    dropped: AtomicU64,
}

/// A node's end of the bus.
#[derive(Debug, Clone)]
pub struct Bus {
    inbox: Arc<Inbox>,
    socket: Arc<UnixDatagram>,
    /// For each topic the sockets of nodes that subscribe to it.
    receivers: Arc<Vec<Vec<PathBuf>>>,
}

impl Bus {
    /// Opens the socket of a node below `directory` and starts its helper thread, which ends with
    /// the process.
    ///
    /// # Errors
    ///
    /// The socket cannot be made (a path too long for a socket, or no permission).
    pub fn open(system: &System, node: &str, directory: &Path) -> io::Result<Self> {
        let topics = system.topics();
        let index = |name: &str| topics.iter().position(|topic| *topic == name);
        let path = socket_path(directory, node);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let socket = Arc::new(UnixDatagram::bind(&path)?);
        let histories = (system.node(node).into_iter().flat_map(|node| &node.subscription))
            .filter_map(|subscription| {
                Some(History {
                    topic: u32::try_from(index(&subscription.topic)?).ok()?,
                    depth: subscription.depth,
                    messages: VecDeque::with_capacity(subscription.depth),
                    overwritten: 0,
                })
            })
            .collect();
        let receivers = topics
            .iter()
            .map(|topic| {
                (system.node.iter())
                    .filter(|node| node.subscription.iter().any(|subscription| subscription.topic == *topic))
                    .map(|node| socket_path(directory, &node.name))
                    .collect()
            })
            .collect();
        let inbox = Arc::new(Inbox {
            histories: Mutex::new(histories),
            changed: Condvar::new(),
            dropped: AtomicU64::new(0),
        });
        let bus =
            Self { inbox: Arc::clone(&inbox), socket: Arc::clone(&socket), receivers: Arc::new(receivers) };
        std::thread::Builder::new().name("dds-recv".to_owned()).spawn(move || receive(&socket, &inbox))?;
        Ok(bus)
    }

    /// Sends a message to all subscribers; one whose socket is full or gone does not get it, as
    /// with best-effort quality of service.
    pub fn publish(&self, message: Message) {
        let bytes = message.encode();
        for receiver in self.receivers.get(message.topic as usize).into_iter().flatten() {
            // The socket is non-blocking for sending only through this flag.
            let sent = rustix::net::SocketAddrUnix::new(receiver).and_then(|address| {
                rustix::net::sendto(&*self.socket, &bytes, rustix::net::SendFlags::DONTWAIT, &address)
            });
            if sent.is_err() {
                self.inbox.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Waits until a subscription has a message or the time has come; returns which subscriptions
    /// have one.
    pub fn wait(&self, until_ns: u64, ready: &mut Vec<bool>) {
        let mut histories = self.inbox.histories.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            ready.clear();
            ready.extend(histories.iter().map(|history| !history.messages.is_empty()));
            let left_ns = until_ns.saturating_sub(monotonic_ns());
            if left_ns == 0 || ready.contains(&true) {
                return;
            }
            histories = (self.inbox.changed)
                .wait_timeout(histories, Duration::from_nanos(left_ns))
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    /// Takes the oldest message of a subscription.
    #[must_use]
    pub fn take(&self, subscription: usize) -> Option<Message> {
        let mut histories = self.inbox.histories.lock().unwrap_or_else(PoisonError::into_inner);
        histories.get_mut(subscription)?.messages.pop_front()
    }

    /// Messages that were not delivered, and messages overwritten in full histories.
    #[must_use]
    pub fn losses(&self) -> (u64, u64) {
        let histories = self.inbox.histories.lock().unwrap_or_else(PoisonError::into_inner);
        (
            self.inbox.dropped.load(Ordering::Relaxed),
            histories.iter().map(|history| history.overwritten).sum(),
        )
    }
}

fn socket_path(directory: &Path, node: &str) -> PathBuf {
    directory.join(format!("{node}.sock"))
}

fn receive(socket: &UnixDatagram, inbox: &Inbox) {
    let mut bytes = [0; BYTES + 1];
    loop {
        match socket.recv(&mut bytes) {
            Ok(length) => {
                let Some(message) = bytes.get(..length).and_then(Message::decode) else { continue };
                let mut histories = inbox.histories.lock().unwrap_or_else(PoisonError::into_inner);
                for history in histories.iter_mut().filter(|history| history.topic == message.topic) {
                    if history.messages.len() == history.depth {
                        history.messages.pop_front();
                        history.overwritten += 1;
                    }
                    history.messages.push_back(message);
                }
                drop(histories);
                inbox.changed.notify_one();
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // The socket is closed with the process only.
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn system() -> System {
        System::parse(
            r#"
            phases = ["one"]
            [[node]]
            name = "talker"
            timer = [{ name = "tick", period_ms = 10, cost = { ms = [0.0] }, publishes = ["/a", "/b"] }]
            [[node]]
            name = "listener"
            subscription = [
              { topic = "/a", name = "on_a", cost = { ms = [0.0] }, depth = 2 },
              { topic = "/b", name = "on_b", cost = { ms = [0.0] } },
            ]
            "#,
        )
        .unwrap()
    }

    #[test]
    fn messages_reach_their_subscription_and_the_oldest_give_way() {
        let directory = tempfile::tempdir().unwrap();
        let listener = Bus::open(&system(), "listener", directory.path()).unwrap();
        let talker = Bus::open(&system(), "talker", directory.path()).unwrap();
        for sequence in 0..3 {
            talker.publish(Message { topic: 0, sequence, source_ns: -5 });
        }
        talker.publish(Message { topic: 1, sequence: 9, source_ns: 7 });
        let mut ready = Vec::new();
        while !ready.get(1).is_some_and(|ready| *ready) {
            listener.wait(monotonic_ns() + 1_000_000, &mut ready);
            std::thread::yield_now();
        }
        assert_eq!(ready, [true, true]);
        assert_eq!(listener.take(0).map(|message| message.sequence), Some(1));
        assert_eq!(listener.take(0), Some(Message { topic: 0, sequence: 2, source_ns: -5 }));
        assert_eq!(listener.take(0), None);
        assert_eq!(listener.take(1).map(|message| message.source_ns), Some(7));
        assert_eq!(listener.losses(), (0, 1));
        assert_eq!(listener.take(7), None);
    }

    #[test]
    fn a_missing_receiver_is_a_counted_loss_and_noise_is_no_message() {
        let directory = tempfile::tempdir().unwrap();
        let talker = Bus::open(&system(), "talker", directory.path()).unwrap();
        talker.publish(Message { topic: 0, sequence: 0, source_ns: 0 });
        assert_eq!(talker.losses(), (1, 0));
        assert_eq!(Message::decode(b"short"), None);
        assert_eq!(Message::decode(&[0; BYTES]), None);
        let message = Message { topic: 3, sequence: 4, source_ns: i64::MIN };
        assert_eq!(Message::decode(&message.encode()), Some(message));
    }
}

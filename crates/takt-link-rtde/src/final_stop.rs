//! The stop that is sent when the program has no time left for anything else: from a handler of a
//! fatal signal, or when somebody ends the program for good while it still ends in order.
//!
//! Every commander and every stream of joint targets keeps here, ready to be sent, its connection's
//! descriptor and the packet that stops the robot. No lock, no allocation: [`send_final_stop`] may
//! be called from a signal handler. It is best effort. A packet of which the kernel took only a
//! part stands in the way of it, and so does a connection that was lost a moment ago; then the
//! robot's own watchdog stops it, since no heartbeat comes any more.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::socket;

/// Commanders at a time that are served. A program has one; tests that run side by side have some
/// more.
const SLOTS: usize = 16;

/// Longest packet that stops a robot: that of a stream of joint targets has 88 bytes.
pub(crate) const MAX_BYTES: usize = WORDS * 8;
const WORDS: usize = 12;

/// Time for the packet before the process may die: a closed connection can take unread data with
/// it, and the controller reads every 2 ms.
const TIME_TO_BE_READ: Duration = Duration::from_millis(10);

/// Bit 63 set: bits 0..32 are a descriptor.
const ARMED: u64 = 1 << 63;

struct Slot {
    owned: AtomicBool,
    descriptor: AtomicU64,
    /// Bytes of the packet.
    length: AtomicU64,
    packet: [AtomicU64; WORDS],
}

static TABLE: [Slot; SLOTS] = [const {
    Slot {
        owned: AtomicBool::new(false),
        descriptor: AtomicU64::new(0),
        length: AtomicU64::new(0),
        packet: [const { AtomicU64::new(0) }; WORDS],
    }
}; SLOTS];

/// Set with the final stop: no command may follow it.
static OVER: AtomicBool = AtomicBool::new(false);

/// Whether the final stop has been sent, so that nothing else may be.
pub(crate) fn is_over() -> bool {
    OVER.load(Ordering::Acquire)
}

/// Sends every connected robot the stop and gives it 10 ms to be read; nothing is commanded in this
/// process after it. For the end of the process: may be called from a signal handler.
pub fn send_final_stop() {
    OVER.store(true, Ordering::Release);
    if TABLE.iter().filter(|slot| slot.send()).count() > 0 {
        // `clock_nanosleep` is async-signal-safe.
        takt_rt::clock::sleep_until(
            takt_rt::clock::monotonic_ns().saturating_add(TIME_TO_BE_READ.as_nanos() as u64),
        );
    }
}

impl Slot {
    fn send(&self) -> bool {
        let word = self.descriptor.load(Ordering::Acquire);
        if word & ARMED == 0 {
            return false;
        }
        let mut packet = [0; MAX_BYTES];
        for (bytes, word) in packet.chunks_exact_mut(8).zip(&self.packet) {
            bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
        }
        // SAFETY: the owner disarms the slot before it gives the descriptor up. Where that happens
        // between the load above and the call, in the moment in which a connection is replaced, the
        // number may name nothing or another socket, to which some bytes are sent while the process
        // dies; no memory is touched through it.
        let socket = unsafe { BorrowedFd::borrow_raw(word as u32 as i32) };
        let length = (self.length.load(Ordering::Relaxed) as usize).min(MAX_BYTES);
        socket::send_now(socket, &packet[..length]).is_ok()
    }
}

/// A commander's place in the table; empty when all are taken.
#[derive(Debug)]
pub(crate) struct FinalStop {
    index: Option<usize>,
}

impl FinalStop {
    pub(crate) fn new() -> Self {
        let free = |slot: &Slot| {
            slot.owned.compare_exchange(false, true, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        Self { index: TABLE.iter().position(free) }
    }

    fn slot(&self) -> Option<&'static Slot> {
        self.index.and_then(|index| TABLE.get(index))
    }

    /// From now on `packet`, of at most [`MAX_BYTES`], goes to `socket` at the end.
    pub(crate) fn arm(&self, socket: &impl AsFd, packet: &[u8]) {
        debug_assert!(packet.len() <= MAX_BYTES);
        let Some(slot) = self.slot() else { return };
        self.disarm();
        for (index, word) in slot.packet.iter().enumerate() {
            let mut bytes = [0; 8];
            let part = &packet[(index * 8).min(packet.len())..((index + 1) * 8).min(packet.len())];
            bytes[..part.len()].copy_from_slice(part);
            word.store(u64::from_ne_bytes(bytes), Ordering::Relaxed);
        }
        slot.length.store(packet.len() as u64, Ordering::Relaxed);
        let descriptor = u64::from(socket.as_fd().as_raw_fd() as u32);
        // Release: whoever sees the descriptor sees its packet.
        slot.descriptor.store(ARMED | descriptor, Ordering::Release);
    }

    /// The connection is no longer to be used.
    pub(crate) fn disarm(&self) {
        if let Some(slot) = self.slot() {
            slot.descriptor.store(0, Ordering::Release);
        }
    }
}

impl Drop for FinalStop {
    fn drop(&mut self) {
        self.disarm();
        if let Some(slot) = self.slot() {
            slot.owned.store(false, Ordering::Release);
        }
    }
}

//! The master (`ethercrab`) with its frames carried in the calling thread: no thread, timer or wake-up of its own.
//!
//! The master's futures are polled here. A first poll queues a frame, which [`Master::send_all`] hands to the wire; the poll
//! after [`Master::receive_all`] has found the answer completes the future. So sending and fetching are split by holding the future
//! in between, which is what lets a frame return in the next cycle.
//!
//! The master's own time-outs are switched off (`Duration::MAX` makes its timers ones that never fire): a timer would
//! register with a reactor in another thread, by an eventfd write each cycle. Time is watched here instead.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use ethercrab::error::Error;
use ethercrab::{MainDevice, MainDeviceConfig, PduRx, PduStorage, PduTx, ReceiveAction, Timeouts};
use takt_rt::clock::monotonic_ns;

use super::error::ControlError;
use super::wire::{MOST_FRAME_BYTES, Wire};

/// Frames that can be under way: those of a cycle and its predecessor, with room.
const FRAMES: usize = 16;
/// Most data of one datagram: 1500 bytes less the headers of frame and datagram and the working counter.
pub(super) const MOST_DATA: usize = 1486;

type Storage = PduStorage<FRAMES, { PduStorage::element_size(MOST_DATA) }>;

/// Frames taken at a time. A flood of foreign frames cannot hold a cycle up for longer.
const MOST_TAKEN: usize = 64;

/// What the master stands on, freed after everything that refers to it.
struct Memory {
    device: *mut MainDevice<'static>,
    storage: *mut Storage,
}

// SAFETY: both pointers come from boxes that this struct alone frees; the values behind them are Sync.
unsafe impl Send for Memory {}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: made by `Box::into_raw`; `Master` and `Port` drop their references before this field.
        unsafe {
            drop(Box::from_raw(self.device));
            drop(Box::from_raw(self.storage));
        }
    }
}

/// Counts of the carrying.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Carried {
    /// Frames sent.
    pub sent: u64,
    /// Frames that could not be sent.
    pub send_errors: u64,
    /// Last `errno` of sending or receiving; 0 for none.
    pub last_errno: i32,
    /// Frames that came back and belonged to a request under way.
    pub received: u64,
    /// EtherCAT frames that belonged to no request: too late, twice, or broken.
    pub strays: u64,
}

/// The working counter of a datagram that came back, and which it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Heard {
    pub command: u8,
    pub address: u32,
    pub working_counter: u16,
}

pub(super) struct Master {
    tx: PduTx<'static>,
    rx: PduRx<'static>,
    wire: Box<dyn Wire>,
    buffer: Box<[u8; MOST_FRAME_BYTES]>,
    pub carried: Carried,
    memory: Memory,
}

impl Master {
    pub fn new(wire: Box<dyn Wire>, clock_frames: u32) -> Result<Self, ControlError> {
        let storage = Box::into_raw(Box::new(Storage::new()));
        // SAFETY: the storage lives until `Memory` is dropped, after all that borrows it.
        let split = unsafe { &*storage }.try_split();
        let never = Duration::MAX;
        let timeouts = Timeouts {
            state_transition: never,
            pdu: never,
            eeprom: never,
            wait_loop_delay: Duration::ZERO,
            mailbox_echo: never,
            mailbox_response: never,
        };
        let config = MainDeviceConfig { dc_static_sync_iterations: clock_frames, ..Default::default() };
        let Ok((tx, rx, pdu_loop)) = split else {
            // SAFETY: as in `Memory::drop`; nothing was split off.
            drop(unsafe { Box::from_raw(storage) });
            let message = "its storage is in use".to_owned();
            return Err(ControlError::Master { phase: "starting", message });
        };
        let device = Box::into_raw(Box::new(MainDevice::new(pdu_loop, timeouts, config)));
        Ok(Self {
            tx,
            rx,
            wire,
            buffer: Box::new([0; MOST_FRAME_BYTES]),
            carried: Carried::default(),
            memory: Memory { device, storage },
        })
    }

    /// The master's handle. It must not outlive `self`: holders keep `self` in a field below the handle's.
    pub fn device(&self) -> &'static MainDevice<'static> {
        // SAFETY: valid until `Memory` is dropped, see above; shared references alone are made.
        unsafe { &*self.memory.device }
    }

    /// Hands queued frames to the wire.
    pub fn send_all(&mut self) {
        while let Some(frame) = self.tx.next_sendable_frame() {
            let wire = &mut self.wire;
            let mut errno = 0;
            let sent = frame.send_blocking(|bytes| match wire.send(bytes) {
                Ok(()) => Ok(bytes.len()),
                Err(error) => {
                    errno = error.raw_os_error().unwrap_or(libc::EIO);
                    Err(Error::SendFrame)
                }
            });
            if sent.is_err() {
                self.carried.send_errors += 1;
                self.carried.last_errno = errno;
                // The frame stays queued until its request is given up.
                break;
            }
            self.carried.sent += 1;
        }
    }

    /// Takes what has come back; tells `heard` of every datagram that belonged to a request. True if there was one.
    pub fn receive_all(&mut self, mut heard: impl FnMut(Heard)) -> bool {
        let before = self.carried.received;
        for _ in 0..MOST_TAKEN {
            let length = match self.wire.receive(&mut self.buffer[..]) {
                Ok(Some(length)) => length.min(MOST_FRAME_BYTES),
                Ok(None) => break,
                Err(error) => {
                    self.carried.last_errno = error.raw_os_error().unwrap_or(libc::EIO);
                    break;
                }
            };
            let frame = &self.buffer[..length];
            match self.rx.receive_frame(frame) {
                Ok(ReceiveAction::Processed) => {
                    self.carried.received += 1;
                    if let Some(datagram) = first_datagram(frame) {
                        heard(datagram);
                    }
                }
                // Another protocol, or our own frame.
                Ok(ReceiveAction::Ignored) => {}
                Err(_) => self.carried.strays += 1,
            }
        }
        self.carried.received > before
    }

    /// Waits for the wire until `deadline_ns`.
    pub fn wait(&mut self, deadline_ns: u64) {
        self.wire.wait(deadline_ns);
    }

    /// Runs a request of the bring-up to its end, by `deadline_ns` and without silences beyond `silence`.
    pub fn run<T>(
        &mut self,
        phase: &'static str,
        limits: &Limits,
        future: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, ControlError> {
        // On the heap: the master's futures carry its device tables.
        let mut future = Box::pin(future);
        let mut context = Context::from_waker(Waker::noop());
        let silence_ns = limits.silence.as_nanos() as u64;
        let mut heard_ns = monotonic_ns();
        loop {
            // The master adds up lengths from EEPROMs unchecked: absurd ones overflow. Nothing of it is used afterwards.
            let polled = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(&mut context)));
            let failed = |message: String| ControlError::Master { phase, message };
            match polled {
                Ok(Poll::Ready(outcome)) => return outcome.map_err(|error| failed(error.to_string())),
                Ok(Poll::Pending) => {}
                Err(_) => {
                    return Err(failed(
                        "it panicked over what a device says of itself; check the devices' EEPROMs"
                            .to_owned(),
                    ));
                }
            }
            self.send_all();
            let mut came = self.receive_all(|_| {});
            let mut now_ns = monotonic_ns();
            if !came {
                self.wait((heard_ns + silence_ns).min(limits.deadline_ns));
                came = self.receive_all(|_| {});
                now_ns = monotonic_ns();
            }
            if came {
                heard_ns = now_ns;
            } else if now_ns >= heard_ns + silence_ns {
                return Err(ControlError::Silent { phase, waited: limits.silence });
            }
            if now_ns >= limits.deadline_ns {
                return Err(ControlError::TooLong { phase, allowed: limits.allowed, detail: String::new() });
            }
        }
    }
}

/// How long a bring-up may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub deadline_ns: u64,
    pub allowed: Duration,
    pub silence: Duration,
}

/// Reads the first datagram of an Ethernet frame. The master compares working counters and keeps them to itself.
pub(super) fn first_datagram(frame: &[u8]) -> Option<Heard> {
    let datagram = frame.get(16..)?;
    let head = datagram.first_chunk::<10>()?;
    let length = usize::from(u16::from_le_bytes([head[6], head[7]]) & 0x07FF);
    let tail = datagram.get(10 + length..)?.first_chunk::<2>()?;
    Some(Heard {
        command: head[0],
        address: u32::from_le_bytes([head[2], head[3], head[4], head[5]]),
        working_counter: u16::from_le_bytes(*tail),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn working_counters_are_read() {
        let mut frame = vec![0u8; 14];
        frame.extend([0x0E, 0x10]);
        frame.extend([12, 7, 0x00, 0x01, 0x00, 0x00, 0x02, 0x00, 0, 0, 0xAA, 0xBB, 0xB1, 0x00]);
        let expected = Heard { command: 12, address: 0x100, working_counter: 177 };
        assert_eq!(first_datagram(&frame), Some(expected));
        frame.pop();
        assert_eq!(first_datagram(&frame), None);
    }

    proptest! {
        #[test]
        fn no_frame_is_read_beyond_its_end(frame in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = first_datagram(&frame);
        }
    }
}

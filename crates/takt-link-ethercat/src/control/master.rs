//! The master (`ethercrab`) with its frames carried in the calling thread: no thread, timer or
//! wake-up of its own.
//!
//! The master's futures are polled here. A first poll queues a frame, which [`Master::send_all`]
//! hands to the wire; the poll after [`Master::receive`] has found the answer completes the future.
//! So sending and fetching are split by holding the future in between, which is what lets a frame
//! return in the next cycle.
//!
//! The master's own time-outs are switched off (`Duration::MAX` makes its timers ones that never
//! fire): a timer would register with a reactor in another thread, by an eventfd write each cycle.
//! Time is watched here instead.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use ethercrab::error::Error;
use ethercrab::{MainDevice, MainDeviceConfig, PduRx, PduStorage, PduTx, ReceiveAction, Timeouts};

use super::config::ControlConfig;
use super::cyclic;
use super::error::ControlError;
use super::requests::UnderWay;
use super::wire::{MAX_FRAME_BYTES, Wire};
use crate::frame::{MAX_DATA, has_passed};

/// Frames that can be under way: those of a cycle and its predecessor, with room.
const FRAMES: usize = 16;
type Storage = PduStorage<FRAMES, { PduStorage::element_size(MAX_DATA) }>;

/// Frames taken at a time. A flood of foreign frames cannot hold a cycle up for longer.
const MAX_TAKEN: usize = 64;

/// Memory of the master, freed after everything that refers to it.
struct Memory {
    device: *mut MainDevice<'static>,
    storage: *mut Storage,
}

// SAFETY: both pointers come from boxes that this struct alone frees; the values behind them are
// Sync.
unsafe impl Send for Memory {}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: made by `Box::into_raw`; `Master` and `Port` drop their references before this
        // field.
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

pub(super) struct Master {
    tx: PduTx<'static>,
    rx: PduRx<'static>,
    wire: Box<dyn Wire>,
    buffer: Box<[u8; MAX_FRAME_BYTES]>,
    pub carried: Carried,
    requests: UnderWay,
    memory: Memory,
}

impl Master {
    pub fn new(wire: Box<dyn Wire>, clock_frames: u32) -> Result<Self, ControlError> {
        let storage = Box::into_raw(Box::new(Storage::new()));
        // SAFETY: the storage lives until `Memory` is dropped, after all that borrows it.
        let split = unsafe { &*storage }.try_split();
        let unlimited = Duration::MAX;
        let timeouts = Timeouts {
            state_transition: unlimited,
            pdu: unlimited,
            eeprom: unlimited,
            wait_loop_delay: Duration::ZERO,
            mailbox_echo: unlimited,
            mailbox_response: unlimited,
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
            buffer: Box::new([0; MAX_FRAME_BYTES]),
            carried: Carried::default(),
            requests: UnderWay::new(FRAMES),
            memory: Memory { device, storage },
        })
    }

    /// The master's handle. It must not outlive `self`: holders keep `self` in a field below the
    /// handle's.
    pub fn device(&self) -> &'static MainDevice<'static> {
        // SAFETY: valid until `Memory` is dropped, see above; shared references alone are made.
        unsafe { &*self.memory.device }
    }

    /// Hands queued frames to the wire.
    pub fn send_all(&mut self) {
        while let Some(frame) = self.tx.next_sendable_frame() {
            let (wire, requests) = (&mut self.wire, &mut self.requests);
            let mut errno = 0;
            let sent = frame.send_blocking(|bytes| match wire.send(bytes) {
                Ok(()) => {
                    requests.sent(bytes, wire.now_ns());
                    Ok(bytes.len())
                }
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

    /// Sends those of the master's own frames again that were sent `after_ns` ago or earlier and
    /// have not come back. Only for requests that a device may get twice: those that read and write
    /// registers. A mailbox takes each message for a new one.
    pub(crate) fn send_again(&mut self, after_ns: u64) {
        let now_ns = self.wire.now_ns();
        while let Some(frame) = self.requests.overdue(now_ns, after_ns) {
            match self.wire.send(frame) {
                Ok(()) => self.carried.sent += 1,
                Err(error) => {
                    self.carried.send_errors += 1;
                    self.carried.last_errno = error.raw_os_error().unwrap_or(libc::EIO);
                }
            }
        }
    }

    /// Sends a frame that is not the master's.
    pub fn send(&mut self, frame: &[u8]) {
        match self.wire.send(frame) {
            Ok(()) => self.carried.sent += 1,
            Err(error) => {
                self.carried.send_errors += 1;
                self.carried.last_errno = error.raw_os_error().unwrap_or(libc::EIO);
            }
        }
    }

    /// Takes frames that have come back until `enough` says so or none is there; `enough` is given
    /// the cyclic ones, and what shows when they came to this host, as far as the wire knows, and
    /// the time now. The master's own go to its requests. True if one came.
    pub fn receive(
        &mut self,
        mut enough: impl FnMut(&[u8], &dyn Fn() -> (Option<u64>, u64)) -> bool,
    ) -> bool {
        let mut came = false;
        for _ in 0..MAX_TAKEN {
            let length = match self.wire.receive(&mut self.buffer[..]) {
                Ok(Some(length)) => length.min(MAX_FRAME_BYTES),
                Ok(None) => break,
                Err(error) => {
                    self.carried.last_errno = error.raw_os_error().unwrap_or(libc::EIO);
                    break;
                }
            };
            let frame = &self.buffer[..length];
            if cyclic::is_cyclic(frame) {
                // Kernels before 5.4 give back what was sent: it has not been through the devices.
                if !has_passed(frame) {
                    continue;
                }
                came = true;
                if enough(frame, &|| (self.wire.arrived_ns(), self.wire.now_ns())) {
                    break;
                }
                continue;
            }
            match self.rx.receive_frame(frame) {
                Ok(ReceiveAction::Processed) => {
                    self.requests.came(frame);
                    self.carried.received += 1;
                    came = true;
                }
                // Another protocol, or our own frame.
                Ok(ReceiveAction::Ignored) => {}
                // The other answer to a request that was sent twice is no stranger's frame.
                Err(_) if self.requests.was_repeated(frame) => {}
                Err(_) => self.carried.strays += 1,
            }
        }
        came
    }

    /// Waits for the wire until `deadline_ns`.
    pub fn wait(&mut self, deadline_ns: u64) {
        self.wire.wait(deadline_ns);
    }

    /// The wire's time.
    pub fn now_ns(&self) -> u64 {
        self.wire.now_ns()
    }

    /// Sleeps in the wire's time.
    pub fn sleep_until(&mut self, at_ns: u64) {
        self.wire.sleep_until(at_ns);
    }
}

/// Carrier of a request's frames while it runs.
pub(super) trait Carrier {
    /// The time that deadlines are reported in.
    fn now_ns(&self) -> u64;
    /// A request begins: those before it are over, whatever became of their frames.
    fn begin_request(&mut self);
    /// Hands queued frames to the wire.
    fn send_queued(&mut self);
    /// Takes what has come back; true if anything had.
    fn take_answers(&mut self) -> bool;
    /// Waits until something may have come, or `deadline_ns`; earlier where there is something else
    /// to do.
    fn wait(&mut self, deadline_ns: u64);

    /// Runs a request of the master to its end, within `limits`.
    fn run<T>(
        &mut self,
        phase: &'static str,
        limits: &Limits,
        future: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, ControlError> {
        self.begin_request();
        // On the heap: the master's futures carry its device tables.
        let mut future = Box::pin(future);
        let mut context = Context::from_waker(Waker::noop());
        let silence_ns = limits.silence.as_nanos() as u64;
        let mut received_ns = self.now_ns();
        loop {
            // The master adds up lengths from EEPROMs unchecked: absurd ones overflow. Nothing of
            // it is used afterwards.
            let polled = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(&mut context)));
            let failed = |message: String| ControlError::Master { phase, message };
            match polled {
                Ok(Poll::Ready(outcome)) => return outcome.map_err(|error| failed(error.to_string())),
                Ok(Poll::Pending) => {}
                Err(_) => {
                    return Err(failed(
                        "it panicked while reading a device's description; check the devices' EEPROMs"
                            .to_owned(),
                    ));
                }
            }
            self.send_queued();
            let mut came = self.take_answers();
            let mut now_ns = self.now_ns();
            if !came {
                self.wait((received_ns + silence_ns).min(limits.deadline_ns));
                came = self.take_answers();
                now_ns = self.now_ns();
            }
            if came {
                received_ns = now_ns;
            } else if now_ns >= received_ns + silence_ns {
                return Err(ControlError::Silent { phase, waited: limits.silence });
            }
            if now_ns >= limits.deadline_ns {
                return Err(ControlError::TooLong { phase, allowed: limits.allowed, detail: String::new() });
            }
        }
    }
}

impl Carrier for Master {
    fn now_ns(&self) -> u64 {
        self.wire.now_ns()
    }

    fn begin_request(&mut self) {
        self.requests.forget();
    }

    fn send_queued(&mut self) {
        self.send_all();
    }

    fn take_answers(&mut self) -> bool {
        Master::receive(self, |_, _| false)
    }

    fn wait(&mut self, deadline_ns: u64) {
        self.wire.wait(deadline_ns);
    }
}

/// Time limits of a bring-up.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub deadline_ns: u64,
    pub allowed: Duration,
    pub silence: Duration,
}

impl Limits {
    /// Those of `config` for what begins at `now_ns`.
    pub fn of(config: &ControlConfig, now_ns: u64) -> Self {
        let allowed = Duration::from_millis(config.bring_up_ms.into());
        let silence = Duration::from_millis(config.silence_ms.into());
        Self { deadline_ns: now_ns + allowed.as_nanos() as u64, allowed, silence }
    }
}

//! Carriers of frames: a network interface, or anything that answers like a segment.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use takt_rt::clock::{monotonic_ns, realtime_ns};
use takt_rt::net;
use takt_rt::packet::{self, Layer, PacketSocket};

use super::error::ControlError;
use crate::segment::{Outcome, Segment, Stay};

/// Longest Ethernet frame, without its checksum.
pub const MAX_FRAME_BYTES: usize = 1518;

pub use crate::frame::ETHERCAT;

/// Carries Ethernet frames to a segment and back. None of its methods may allocate or lock: they
/// run in the motion controller's thread.
pub trait Wire: Send {
    /// Sends one frame.
    ///
    /// # Errors
    /// The system's answer; the frame counts as lost.
    fn send(&mut self, frame: &[u8]) -> io::Result<()>;

    /// Takes a frame that has come back, without waiting; its length, or `None` when there is none.
    ///
    /// # Errors
    /// The system's answer, as a link that is down.
    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>>;

    /// Waits until a frame may have come, or `deadline_ns` of CLOCK_MONOTONIC has passed.
    fn wait(&mut self, deadline_ns: u64);

    /// When the frame that was received last came to this host, in the time of
    /// [`now_ns`](Self::now_ns): asked for late ones alone. `None` where nobody knows.
    fn arrived_ns(&self) -> Option<u64> {
        None
    }

    /// The time that deadlines and cycles are reported in: CLOCK_MONOTONIC, but for a simulation in
    /// a time of its own.
    fn now_ns(&self) -> u64 {
        monotonic_ns()
    }

    /// Sleeps until `at_ns` of that time.
    fn sleep_until(&mut self, at_ns: u64) {
        takt_rt::clock::sleep_until(at_ns);
    }
}

/// A network interface, through a packet socket.
///
/// The socket's own buffer is what the paper's modified driver was made for: the kernel puts the
/// answer there, and the controller fetches it when its cycle begins. So sending and fetching need
/// no thread of their own, and no wake-up.
#[derive(Debug)]
pub struct Interface {
    name: String,
    socket: PacketSocket,
}

impl Interface {
    /// Opens interface `name`.
    ///
    /// # Errors
    /// [`ControlError::UnknownInterface`], [`ControlError::InterfaceDown`],
    /// [`ControlError::NoRawSocket`].
    pub fn open(name: &str) -> Result<Self, ControlError> {
        let given = || name.to_owned();
        let index = index_of(name)?;
        let failed = |source: io::Error| match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => ControlError::NoRawSocket { interface: given(), source },
            Some(libc::ENETDOWN) => ControlError::InterfaceDown { interface: given() },
            _ => ControlError::Wire { interface: given(), source },
        };
        let socket = PacketSocket::open(Layer::Frame, false).map_err(failed)?;
        socket.bind(index, ETHERCAT).map_err(failed)?;
        // Frames sent by this host must not come back as received, if the kernel can tell.
        let _ = socket.ignore_outgoing();
        // From now on the kernel stamps what comes: the first question for a stamp has no answer,
        // and switches them on.
        let _ = socket.last_stamp_ns();
        must_be_up(name)?;
        Ok(Self { name: given(), socket })
    }

    /// The interface's name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// Number of interface `name`.
pub(super) fn index_of(name: &str) -> Result<u32, ControlError> {
    let unknown = |_| ControlError::UnknownInterface { given: name.to_owned(), present: present() };
    net::interface(name).map(|interface| interface.index).map_err(unknown)
}

/// Refuses an interface that is down.
pub(super) fn must_be_up(name: &str) -> Result<(), ControlError> {
    // Of the socket, not of /sys, which may show another network namespace.
    if net::interface(name).map_or(true, |interface| interface.is_up()) {
        return Ok(());
    }
    Err(ControlError::InterfaceDown { interface: name.to_owned() })
}

/// Waits until `socket` may have a frame, or `deadline_ns` of CLOCK_MONOTONIC has passed.
pub(super) fn wait_for_frame(socket: BorrowedFd<'_>, deadline_ns: u64) {
    packet::wait(socket, Duration::from_nanos(deadline_ns.saturating_sub(monotonic_ns())));
}

/// Names of the interfaces that there are.
fn present() -> String {
    net::names().join(", ")
}

impl Wire for Interface {
    fn send(&mut self, frame: &[u8]) -> io::Result<()> {
        self.socket.send(frame)
    }

    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        self.socket.receive(buffer)
    }

    fn arrived_ns(&self) -> Option<u64> {
        let stamp_ns = self.socket.last_stamp_ns()?;
        // Both clocks now: the stamp is moments old.
        let ahead_ns = realtime_ns().checked_sub(stamp_ns)?;
        monotonic_ns().checked_sub(ahead_ns)
    }

    fn wait(&mut self, deadline_ns: u64) {
        wait_for_frame(self.socket.as_fd(), deadline_ns);
    }
}

/// A segment in the same process.
///
/// `answer` processes a frame at once, in the sender's thread; the answer waits here until it is
/// fetched.
pub struct InProcess<F> {
    answer: F,
    /// Answers on their way.
    places: Box<[Answer]>,
    /// Frames sent, to hand out answers in their order.
    sent: u64,
    /// When the answer taken last came.
    arrived_ns: Option<u64>,
}

/// Treatment of a returning frame by a segment: the number of its copies, and their delay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Back {
    /// 1, or more for a frame that is doubled on the way.
    pub copies: u8,
    /// Delay.
    pub delay_ns: u64,
}

struct Answer {
    /// When it comes, and which it is; `None` for a free place.
    due: Option<(u64, u64)>,
    length: usize,
    bytes: [u8; MAX_FRAME_BYTES],
}

/// Answers that can be on their way at once. Several times those of two cycles; what is beyond is
/// lost.
const QUEUE: usize = 32;

impl<F: FnMut(&mut [u8], u64) -> Option<Back> + Send> InProcess<F> {
    /// A segment that changes a frame in place by `answer(frame, now_ns)`, as the way through all
    /// devices would; `None` when it does not come back.
    pub fn new(answer: F) -> Self {
        let empty = || Answer { due: None, length: 0, bytes: [0; MAX_FRAME_BYTES] };
        Self { answer, places: (0..QUEUE).map(|_| empty()).collect(), sent: 0, arrived_ns: None }
    }

    fn next_due(&self) -> Option<(u64, u64)> {
        self.places.iter().filter_map(|place| place.due).min()
    }
}

/// A simulated segment in the same process.
pub fn in_process(mut segment: Segment) -> Box<dyn Wire> {
    Box::new(InProcess::new(move |frame, now_ns| match segment.process(frame, now_ns) {
        Outcome::Return { copies, delay_ns } => {
            segment.passed(frame, Stay::held(now_ns, delay_ns));
            Some(Back { copies, delay_ns })
        }
        _ => None,
    }))
}

impl<F: FnMut(&mut [u8], u64) -> Option<Back> + Send> Wire for InProcess<F> {
    fn arrived_ns(&self) -> Option<u64> {
        self.arrived_ns
    }

    fn send(&mut self, frame: &[u8]) -> io::Result<()> {
        if frame.len() > MAX_FRAME_BYTES {
            return Err(io::Error::from_raw_os_error(libc::EMSGSIZE));
        }
        let mut bytes = [0; MAX_FRAME_BYTES];
        let bytes = &mut bytes[..frame.len()];
        bytes.copy_from_slice(frame);
        let now_ns = monotonic_ns();
        let Some(back) = (self.answer)(bytes, now_ns) else { return Ok(()) };
        for _ in 0..back.copies {
            self.sent += 1;
            if let Some(place) = self.places.iter_mut().find(|place| place.due.is_none()) {
                place.due = Some((now_ns.saturating_add(back.delay_ns), self.sent));
                place.length = bytes.len();
                place.bytes[..bytes.len()].copy_from_slice(bytes);
            }
        }
        Ok(())
    }

    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let due = self.next_due().filter(|&(due_ns, _)| due_ns <= monotonic_ns());
        let Some(place) = self.places.iter_mut().find(|place| due.is_some() && place.due == due) else {
            return Ok(None);
        };
        self.arrived_ns = place.due.take().map(|(due_ns, _)| due_ns);
        let length = place.length.min(buffer.len());
        buffer[..length].copy_from_slice(&place.bytes[..length]);
        Ok(Some(length))
    }

    fn wait(&mut self, deadline_ns: u64) {
        let due_ns = self.next_due().map_or(u64::MAX, |(due_ns, _)| due_ns);
        takt_rt::clock::sleep_until(deadline_ns.min(due_ns));
    }
}

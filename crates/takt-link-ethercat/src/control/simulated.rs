//! A segment in the same process whose time is not that of the clock: an hour of cycles takes a
//! minute, and a machine that is busy changes nothing.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::wire::{MAX_FRAME_BYTES, Wire};
use crate::segment::{Outcome, Segment, Stay};

/// Time that goes on only when somebody waits. Clones show the same time.
#[derive(Debug, Clone)]
pub struct SimulatedTime(Arc<AtomicU64>);

impl SimulatedTime {
    /// A time that begins at `start_ns`.
    pub fn new(start_ns: u64) -> Self {
        Self(Arc::new(AtomicU64::new(start_ns)))
    }

    /// Now.
    pub fn now_ns(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Lets time go on to `at_ns`; it never goes back.
    pub fn go_to(&self, at_ns: u64) {
        self.0.fetch_max(at_ns, Ordering::Relaxed);
    }
}

/// Answers under way at once.
const QUEUE: usize = 64;

struct Simulated<D> {
    segment: Segment,
    time: SimulatedTime,
    /// Delay of each frame's return besides the segment's own faults; `None`: the frame is lost.
    delay: D,
    /// When a frame comes back, its number, its bytes.
    under_way: Vec<(u64, u64, Vec<u8>)>,
    sent: u64,
    /// When the answer taken last came.
    arrived_ns: Option<u64>,
}

/// `segment` behind a wire in `time`. `delay_ns` says for each frame, numbered from 0, how long it
/// takes to come back; `None` for one that is lost on the way back.
pub fn in_simulated_time(
    segment: Segment,
    time: SimulatedTime,
    delay_ns: impl FnMut(u64) -> Option<u64> + Send + 'static,
) -> Box<dyn Wire> {
    Box::new(Simulated {
        segment,
        time,
        delay: delay_ns,
        under_way: Vec::with_capacity(QUEUE),
        sent: 0,
        arrived_ns: None,
    })
}

impl<D: FnMut(u64) -> Option<u64> + Send> Wire for Simulated<D> {
    fn send(&mut self, frame: &[u8]) -> io::Result<()> {
        if frame.len() > MAX_FRAME_BYTES {
            return Err(io::Error::from_raw_os_error(libc::EMSGSIZE));
        }
        let now_ns = self.time.now_ns();
        let number = self.sent;
        self.sent += 1;
        let way_ns = (self.delay)(number);
        let mut bytes = frame.to_vec();
        if let Outcome::Return { copies, delay_ns } = self.segment.process(&mut bytes, now_ns)
            && let Some(way_ns) = way_ns
            && self.under_way.len() < QUEUE
        {
            self.segment.passed(&bytes, Stay::held(now_ns, delay_ns));
            let due_ns = now_ns.saturating_add(way_ns).saturating_add(delay_ns);
            (0..copies).for_each(|_| self.under_way.push((due_ns, number, bytes.clone())));
        }
        Ok(())
    }

    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let now_ns = self.time.now_ns();
        let next = (0..self.under_way.len()).min_by_key(|&at| (self.under_way[at].0, self.under_way[at].1));
        let Some(at) = next.filter(|&at| self.under_way[at].0 <= now_ns) else { return Ok(None) };
        let (due_ns, _, bytes) = self.under_way.remove(at);
        self.arrived_ns = Some(due_ns);
        let length = bytes.len().min(buffer.len());
        buffer[..length].copy_from_slice(&bytes[..length]);
        Ok(Some(length))
    }

    fn wait(&mut self, deadline_ns: u64) {
        let due_ns = self.under_way.iter().map(|frame| frame.0).min().unwrap_or(u64::MAX);
        self.time.go_to(deadline_ns.min(due_ns));
    }

    fn arrived_ns(&self) -> Option<u64> {
        self.arrived_ns
    }

    fn now_ns(&self) -> u64 {
        self.time.now_ns()
    }

    fn sleep_until(&mut self, at_ns: u64) {
        self.time.go_to(at_ns);
    }
}

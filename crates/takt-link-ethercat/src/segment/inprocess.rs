//! The segment and ethercrab in one process, without a network interface.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Wake, Waker};
use std::time::Duration;

use ethercrab::{PduRx, PduTx};
use takt_rt::clock;
use takt_rt::settings::ThreadSettings;
use takt_rt::signal::Signal;
use takt_rt::thread::{self, Handle};

use super::late::LateFrames;
use super::process::{Outcome, Segment};
use super::wire::MAX_FRAME;

/// Longest sleep of the thread before it checks whether it must stop.
const PATIENCE: Duration = Duration::from_millis(50);

/// A thread that is the wire: takes ethercrab's frames, lets the segment execute them, hands them
/// back. Dropping stops it.
#[derive(Debug)]
pub struct InProcess {
    shared: Arc<InProcessState>,
    thread: Option<Handle<Segment>>,
}

#[derive(Debug, Default)]
struct InProcessState {
    wake: Signal,
    stop: AtomicBool,
    refused: AtomicU64,
}

impl Wake for InProcessState {
    fn wake(self: Arc<Self>) {
        self.wake.notify();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.wake.notify();
    }
}

impl InProcess {
    /// Starts thread `name` with `settings` between ethercrab's two ends and `segment`. A frame
    /// that the master makes sendable wakes it.
    ///
    /// # Errors
    /// [`takt_rt::Error`] when the thread cannot be started or strict settings are not granted.
    pub fn start(
        name: &str,
        settings: &ThreadSettings,
        segment: Segment,
        tx: PduTx<'static>,
        rx: PduRx<'static>,
    ) -> Result<Self, takt_rt::Error> {
        let shared = Arc::new(InProcessState::default());
        let own = Arc::clone(&shared);
        let thread = thread::spawn(name, settings, move || carry(&own, segment, tx, rx))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Frames that ethercrab would not take back: late or double ones, whose place is no longer
    /// waiting.
    pub fn refused(&self) -> u64 {
        self.shared.refused.load(Ordering::Relaxed)
    }

    /// Stops the thread and gives the segment back.
    pub fn stop(mut self) -> Option<Segment> {
        self.end()
    }

    fn end(&mut self) -> Option<Segment> {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.wake.notify();
        self.thread.take().and_then(|thread| thread.join().ok())
    }
}

impl Drop for InProcess {
    fn drop(&mut self) {
        self.end();
    }
}

fn carry(
    shared: &Arc<InProcessState>,
    mut segment: Segment,
    mut tx: PduTx<'static>,
    mut rx: PduRx<'static>,
) -> Segment {
    let waker = Waker::from(Arc::clone(shared));
    let mut buffer = [0; MAX_FRAME];
    let mut late = LateFrames::new();
    while !shared.stop.load(Ordering::Acquire) && !tx.should_exit() {
        // Before looking: a frame that comes while we look must not be slept through.
        let seen = shared.wake.value();
        tx.replace_waker(&waker);
        while let Some(frame) = tx.next_sendable_frame() {
            let mut length = 0;
            let taken = frame.send_blocking(|bytes| {
                length = bytes.len().min(MAX_FRAME);
                buffer[..length].copy_from_slice(&bytes[..length]);
                Ok(bytes.len())
            });
            if taken.is_err() {
                continue;
            }
            let now_ns = clock::monotonic_ns();
            if let Outcome::Return { copies, delay_ns } = segment.process(&mut buffer[..length], now_ns) {
                for _ in 0..copies {
                    if delay_ns > 0 {
                        late.keep(&buffer[..length], now_ns.saturating_add(delay_ns));
                    } else {
                        give_back(shared, &mut rx, &buffer[..length]);
                    }
                }
            }
        }
        late.release(clock::monotonic_ns(), |frame| give_back(shared, &mut rx, frame));
        let patience = late.next_ns().map_or(PATIENCE, |due| {
            Duration::from_nanos(due.saturating_sub(clock::monotonic_ns())).min(PATIENCE)
        });
        shared.wake.wait(seen, patience);
    }
    segment
}

fn give_back(shared: &InProcessState, rx: &mut PduRx<'static>, frame: &[u8]) {
    // Late and double frames find their place taken or free; that is the master's normal life.
    if rx.receive_frame(frame).is_err() {
        shared.refused.fetch_add(1, Ordering::Relaxed);
    }
}

//! Moments in a stream.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cudarc::driver::sys::CUevent;

use crate::error::GpuError;
use crate::gpu::Device;
use crate::wait::{self, Wait, Waited};

/// A moment in a stream: reached when all work before it has ended. It belongs to the stream that
/// made it.
#[derive(Debug)]
pub struct Event(pub(crate) Arc<Moment>);

#[derive(Debug)]
pub(crate) struct Moment {
    pub(crate) device: Arc<Device>,
    pub(crate) raw: CUevent,
    pub(super) slot: usize,
    pub(super) timed: bool,
    /// Number of the stream's work before it; 0 until it is recorded.
    pub(super) number: AtomicU64,
    /// Recorded by a graph. Until a launch comes to it, the driver says of such an event what the
    /// launch before left.
    pub(super) in_graph: AtomicBool,
}

// SAFETY: the driver's functions on events may be called from any thread.
unsafe impl Send for Moment {}
// SAFETY: as above; the number is atomic.
unsafe impl Sync for Moment {}

impl Event {
    /// Whether the moment is reached; so is an event that was never recorded.
    ///
    /// # Errors
    /// [`GpuError::Invalid`] for an event inside a graph, [`GpuError::Lost`] or what else the work
    /// before it has led to.
    pub fn is_reached(&self) -> Result<bool, GpuError> {
        let moment = &*self.0;
        moment.device.bind()?;
        if moment.in_graph.load(Ordering::SeqCst) {
            return Err(GpuError::Invalid {
                what: "event to wait for",
                expected: "one recorded after a graph's launch".to_owned(),
                received: "one inside the graph".to_owned(),
            });
        }
        // Read first: what is recorded meanwhile must not be taken for over.
        let number = moment.number.load(Ordering::SeqCst);
        // SAFETY: the event is alive.
        match unsafe { (moment.device.api.event_query)(moment.raw) } {
            0 => {
                moment.device.timelines.of(moment.slot).complete(number);
                Ok(true)
            }
            wait::NOT_READY => Ok(false),
            code => Err(moment.device.fail("cuEventQuery", code)),
        }
    }

    /// Waits until the moment is reached or `deadline_ns` of CLOCK_MONOTONIC has passed. The work
    /// goes on after an overrun, and what it uses stays taken.
    ///
    /// # Errors
    /// As [`Event::is_reached`].
    pub fn wait(&self, deadline_ns: u64, wait: Wait) -> Result<Waited, GpuError> {
        wait::until(deadline_ns, wait, || self.is_reached())
    }

    /// Time from `earlier` to this event on the device's clock, both reached. Single precision of
    /// milliseconds: 60 ns at one second, 1 us at 16 s.
    ///
    /// # Errors
    /// [`GpuError::InFlight`] when one is not reached, or what the driver refuses (events without
    /// time).
    pub fn since(&self, earlier: &Event) -> Result<i64, GpuError> {
        self.0.device.bind()?;
        if !self.0.timed || !earlier.0.timed {
            return Err(GpuError::Invalid {
                what: "event",
                expected: "created with timing".to_owned(),
                received: "without".to_owned(),
            });
        }
        let mut ms = 0f32;
        // SAFETY: a valid place for the answer; both events are alive.
        let code = unsafe { (self.0.device.api.event_elapsed)(&raw mut ms, earlier.0.raw, self.0.raw) };
        if code == wait::NOT_READY {
            return Err(GpuError::InFlight { what: "event time", by: "work on the device" });
        }
        self.0.device.call("cuEventElapsedTime", code)?;
        Ok((f64::from(ms) * 1e6).round() as i64)
    }

    /// The driver's handle, for libraries.
    pub fn raw(&self) -> *mut c_void {
        self.0.raw.cast()
    }
}

impl Drop for Moment {
    fn drop(&mut self) {
        if self.device.bind().is_ok() {
            // SAFETY: made once, used by nobody any more; the driver keeps it until pending records
            // are done.
            unsafe { (self.device.api.event_destroy)(self.raw) };
        }
    }
}

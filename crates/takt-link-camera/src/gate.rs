//! Starting several cameras at one moment.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

#[derive(Debug, Default)]
struct State {
    arrived: usize,
    origin_ns: Option<u64>,
}

/// Holds feeds back until all are ready; then they start with a common origin of time, each at its
/// own phase.
///
/// For start-up alone: it uses an ordinary lock.
#[derive(Clone, Debug, Default)]
pub struct StartGate {
    shared: Arc<(Mutex<State>, Condvar)>,
}

impl StartGate {
    /// A closed gate.
    pub fn new() -> Self {
        Self::default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // The state is two plain values, valid after any panic.
        self.shared.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Feeds that are open and wait at the gate.
    pub fn arrived(&self) -> usize {
        self.state().arrived
    }

    /// Waits until `feeds` wait at the gate, at most `timeout`; whether they do.
    pub fn wait_arrived(&self, feeds: usize, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        let mut state = self.state();
        while state.arrived < feeds {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            state = self.shared.1.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Opens the gate: frames are delivered from `origin_ns` (CLOCK_MONOTONIC) on, each camera's at
    /// its phase after that. Give the feeds some 50 ms to decode their first frames.
    pub fn open(&self, origin_ns: u64) {
        self.state().origin_ns = Some(origin_ns);
        self.shared.1.notify_all();
    }

    /// Reports one feed as ready.
    pub(crate) fn arrive(&self) {
        self.state().arrived += 1;
        self.shared.1.notify_all();
    }

    /// The origin once the gate is open; waits for that at most `timeout`.
    pub(crate) fn origin_ns(&self, timeout: Duration) -> Option<u64> {
        let state = self.state();
        if state.origin_ns.is_some() {
            return state.origin_ns;
        }
        self.shared.1.wait_timeout(state, timeout).unwrap_or_else(PoisonError::into_inner).0.origin_ns
    }
}

//! State shared by the cameras' threads and the supervisor within the cell's process.

use std::sync::atomic::{AtomicU32, Ordering};

use takt_rt::signal::Signal;

use crate::process::breaker::Breaker;

#[derive(Debug)]
pub(crate) struct WorkerState {
    pub breaker: Breaker,
    /// Number of the living worker process, from 1.
    generation: AtomicU32,
    /// Reports the supervisor that the breaker opened.
    pub changed: Signal,
}

impl WorkerState {
    pub fn new(cameras: usize, trials: u32) -> Self {
        Self { breaker: Breaker::new(cameras, trials), generation: AtomicU32::new(1), changed: Signal::new() }
    }

    pub fn generation(&self) -> u32 {
        self.generation.load(Ordering::Acquire)
    }

    /// To be called when no process of an older generation lives any more, and before the trials
    /// begin.
    pub(crate) fn set_generation(&self, generation: u32) {
        self.generation.store(generation, Ordering::Release);
    }
}

//! Distance of a plant from its reference, for a controller's side and for the plant's own.

use crate::record::Tracking;

/// Error of an experiment whose length nobody knows, without its beginning: sums over blocks of
/// double length each. The last complete block and what came after it are the last half to three
/// quarters of all.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ErrorMeter {
    steps: u64,
    last: f64,
    before: Block,
    current: Block,
}

#[derive(Clone, Copy, Debug, Default)]
struct Block {
    length: u64,
    squares: f64,
    max: f64,
}

impl ErrorMeter {
    pub fn push(&mut self, error: f64) {
        self.steps += 1;
        self.last = error;
        self.current.length += 1;
        self.current.squares += error * error;
        self.current.max = self.current.max.max(error.abs());
        if self.current.length > self.before.length.saturating_mul(2).max(1) {
            self.before = std::mem::take(&mut self.current);
        }
    }

    pub fn tracking(&self) -> Tracking {
        let length = self.before.length + self.current.length;
        let rms = ((self.before.squares + self.current.squares) / length.max(1) as f64).sqrt();
        Tracking {
            steps: self.steps,
            rms_error: rms,
            last_error: self.last,
            max_error: self.before.max.max(self.current.max),
        }
    }
}

//! Frames that a fault keeps back for a while.

use super::wire::MAX_FRAME;

/// Number of stored frames; further ones are lost, as in a switch with a full queue.
const CAPACITY: usize = 64;

#[derive(Debug)]
struct Late {
    due_ns: u64,
    length: usize,
    bytes: [u8; MAX_FRAME],
}

/// A bounded store, allocated once.
#[derive(Debug)]
pub(super) struct LateFrames {
    frames: Vec<Late>,
}

impl LateFrames {
    pub(super) fn new() -> Self {
        Self { frames: Vec::with_capacity(CAPACITY) }
    }

    /// Keeps a copy of `frame` until `due_ns`.
    pub(super) fn keep(&mut self, frame: &[u8], due_ns: u64) {
        if self.frames.len() < CAPACITY && frame.len() <= MAX_FRAME {
            let mut bytes = [0; MAX_FRAME];
            bytes[..frame.len()].copy_from_slice(frame);
            self.frames.push(Late { due_ns, length: frame.len(), bytes });
        }
    }

    /// Hands out what is due, oldest first.
    pub(super) fn release(&mut self, now_ns: u64, mut give: impl FnMut(&[u8])) {
        while let Some(at) = self.earliest().filter(|at| self.frames[*at].due_ns <= now_ns) {
            let late = self.frames.remove(at);
            give(&late.bytes[..late.length]);
        }
    }

    fn earliest(&self) -> Option<usize> {
        (0..self.frames.len()).min_by_key(|at| self.frames[*at].due_ns)
    }

    /// When the next one is due.
    pub(super) fn next_ns(&self) -> Option<u64> {
        self.frames.iter().map(|late| late.due_ns).min()
    }
}

//! Real-time primitives: policy, placement, memory, periodic loops, exchange buffers, job records.

pub mod clock;
pub mod exchange;
pub mod signal;
mod sync;

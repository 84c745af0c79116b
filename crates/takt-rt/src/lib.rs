//! Real-time primitives: policy, placement, memory, periodic loops, exchange buffers, job records.

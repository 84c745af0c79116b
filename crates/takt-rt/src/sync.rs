//! The atomics of the lock-free modules: the standard ones, or loom's when built with `--cfg loom`,
//! so that the model test checks the very code that runs.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Keeps its content on cache lines of its own: 128 bytes, because recent x86 prefetches lines in
/// pairs and several aarch64 cores have lines of that size.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct CachePadded<T>(pub(crate) T);

//! Scripted streams.

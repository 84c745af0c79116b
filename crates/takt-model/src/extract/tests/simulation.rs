//! Random systems.

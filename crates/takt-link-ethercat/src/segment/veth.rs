//! The segment behind a network interface.

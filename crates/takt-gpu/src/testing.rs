//! The emulated device, for tests.

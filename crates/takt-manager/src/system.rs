//! The kernel as enactment sees it.

pub use takt_host::reserve::system::*;

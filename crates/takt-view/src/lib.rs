//! Best-effort views of a running safety cell: a web page on the loopback interface and a terminal screen. The latency manager has a
//! [screen](manager) and a [page](graph) of its own.
//!
//! A view must never delay the critical path. So it runs in `view-*` threads of the lowest urgency
//! ([`Urgency`]), takes no lock that another thread holds, and reads only through the wait-free readers of
//! [`takt_rt::exchange`] that it is given. Pictures are encoded only while somebody looks. Everything that a client
//! can make it hold (connections, request size, time, pictures) is bounded, and the number of threads is fixed:
//! one for the web page, one for the terminal.
//!
//! Nothing shown here is a certified safety function.

mod api;
mod error;
pub mod graph;
mod histogram;
mod http;
pub mod manager;
mod mask;
mod picture;
mod server;
mod status;
pub mod terminal;
mod urgency;

pub use error::Error;
pub use histogram::ReactionHistogram;
pub use http::answer_heads;
pub use server::{CameraSource, ViewConfig, ViewServer, ViewSources};
pub use status::{
    CameraList, CameraStatus, CellStatus, Label, Light, MAX_CAMERAS, ProtectiveStatus, ReactionStatus,
    RobotStatus, ThreadSummary, Zone,
};
pub use terminal::ViewExit;
pub use urgency::Urgency;

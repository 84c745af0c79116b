//! Best-effort views of the running cell: a web page on the loopback interface and a terminal
//! screen.
//!
//! A view must never delay the critical path. So it runs in `view-*` threads of the lowest urgency
//! ([`Urgency`](takt_view::Urgency)), takes no lock that another thread holds, and reads only
//! through the wait-free readers of [`takt_rt::exchange`] that it is given. Pictures are encoded
//! only while somebody looks. Everything that a client can make it hold (connections, request size,
//! time, pictures) is bounded, and the number of threads is fixed: one for the web page, one for
//! the terminal.
//!
//! Nothing shown here is a certified safety function.

mod api;
mod histogram;
mod mask;
mod picture;
mod screen;
mod server;
mod status;
mod terminal;

pub use histogram::ReactionHistogram;
pub(crate) use mask::tint;
pub use server::{CameraSource, ViewConfig, ViewServer, ViewSources};
pub use status::{
    CameraList, CameraStatus, CellStatus, Label, ProtectiveStatus, ReactionStatus, RobotStatus,
    ThreadSummary, Zone,
};
pub use terminal::drawing;

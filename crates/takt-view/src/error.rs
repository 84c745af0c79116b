//! Errors that keep a view from starting.

use std::net::SocketAddr;

/// Reason why a view cannot run. A view is best effort: what it looks at runs on without it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address would be reachable from other machines.
    #[error(
        "the view listens on the loopback interface only, but view address is {received}: use 127.0.0.1:PORT or \
         [::1]:PORT, and `ssh -L PORT:127.0.0.1:PORT` to look from another machine"
    )]
    NotLoopback {
        /// The address that was asked for.
        received: SocketAddr,
    },
    /// A setting is outside its range.
    #[error("view setting {setting} must be {accepted}, received {received}")]
    Setting { setting: &'static str, accepted: &'static str, received: String },
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}; choose another port, or port 0 for any free one")]
    Listen {
        /// The address that was asked for.
        address: SocketAddr,
        source: std::io::Error,
    },
    /// A thread cannot be started or cannot be given its low urgency.
    #[error("cannot start the view thread: {0}")]
    Thread(#[source] takt_rt::Error),
    /// The kernel refuses SCHED_IDLE.
    #[error("cannot run the view under SCHED_IDLE: {0}; use the low urgency (nice 19) instead")]
    Idle(#[source] std::io::Error),
    /// The channel that ends the view cannot be made.
    #[error("cannot create the channel that ends the view: {0}; raise the limit of open files (`ulimit -n`)")]
    Channel(#[source] std::io::Error),
    /// The terminal cannot be used.
    #[error("cannot use the terminal: {0}; run in an interactive terminal, or switch the terminal view off")]
    Terminal(#[source] std::io::Error),
}

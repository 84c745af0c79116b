//! Common parts of all views: HTTP on the loopback interface, a screen in the terminal, threads of
//! the lowest urgency. The content comes from its users: the safety cell, the latency manager, the
//! watch.
//!
//! A view must never delay what it looks at, and no client may wear it down: one thread serves all
//! connections, and requests, time and the number of connections are bounded.

mod error;
mod http;
mod serve;
pub mod terminal;
mod urgency;

pub use error::Error;
pub use http::{Answer, Body, Request, answer_heads};
pub use serve::{Pages, Server};
pub use terminal::ViewExit;
pub use urgency::Urgency;

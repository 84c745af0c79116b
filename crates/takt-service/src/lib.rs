//! What a service tells the machine that it runs on.
//!
//! ```text
//! collector, manager, watch ─ report() ─► bounded queue ─► thread at best effort ─┬► events.jsonl (bounded, rotated)
//!                                                                                 └► journald's socket
//! the loop that times a run ─ notify::ready(), watchdog(), stopping() ─► NOTIFY_SOCKET
//! ```
//!
//! Nobody waits: [`report`] hands an event over or counts it as lost, and a socket that is full or
//! absent delays nothing. The file has every event; journald has those that it took. Both are off
//! until a command calls [`begin`] and [`notify::begin`], so that a run within a bench or a test
//! tells nobody anything.

#![deny(missing_docs)]

mod burst;
mod event;
mod flood;
mod journal;
mod local;
pub mod notify;
mod sender;
mod store;

pub use burst::{Burst, Reported};
pub use event::{Event, Kind};
pub use journal::SOCKET;
pub use local::{Since, SinceError, clock_text, parse_since, utc_text};
pub use sender::{About, Options, Report, Reporting, about, begin, is_on, report, window_began};
pub use store::{Follower, Read, folders, own_folder, read};

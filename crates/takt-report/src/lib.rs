//! Reads run directories: tables, figures, comparisons, exports.
//!
//! Nothing but run directories is read, so that every figure can be traced to its samples, and
//! every figure names the runs and hashes that it came from. Nothing here knows a robot: a run
//! reports its measures, its deadlines and its figures in its header ([`takt_rundir::RunHeader`]).
//!
//! ```text
//! collect (find, read, group) -> digest (samples once, bounded) -> build (tables, figures) -> HTML, Markdown, text
//! ```

mod build;
mod collect;
pub mod compare;
mod digest;
pub mod document;
mod error;
pub mod export;
mod figure;
pub mod figures;
mod html;
mod markdown;
mod phase;
mod pictures;
mod plan;
pub mod questions;
pub mod results;
pub mod table;
mod tables;
mod terminal;
mod traces;
mod values;
pub mod verdict;
mod words;
mod write;

pub use build::build;
pub use collect::{Collection, Configuration, Fact, Gap, Group, Run, Seal, collect};
pub use digest::{Digest, digests};
pub use error::Error;
pub use figure::{HistoryPicture, HistoryPoint, history_picture};
pub use figures::Figures;
pub use html::html;
pub use markdown::markdown;
pub use terminal::text;
pub use words::{Unit, clean, count, short, time};
pub use write::{Written, write};

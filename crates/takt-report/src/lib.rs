//! Reads run directories: tables, figures, comparisons, exports.
//!
//! Nothing but run directories is read, so that every figure can be traced to its samples, and
//! every figure names the runs and hashes that it came from. Nothing here knows a robot: a run
//! reports its measures, its deadlines and its figures in its header ([`takt_rundir::RunHeader`]),
//! and the tables of a robot's paper come from its own crate ([`Supplement`]).
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
pub mod paper;
mod phase;
mod pictures;
mod plan;
pub mod results;
mod supplement;
pub mod table;
mod tables;
mod terminal;
mod traces;
mod values;
pub mod verdict;
mod words;
mod write;

pub use build::build;
pub use collect::{Collection, Configuration, Fact, Gap, Group, Run, Seal, collect, is_idle};
pub use digest::{Digest, digests};
pub use error::Error;
pub use figure::{HistoryPicture, HistoryPoint, history_picture};
pub use figures::Figures;
pub use html::html;
pub use markdown::markdown;
pub use supplement::{Context, Drawn, Moment, PublishedJitter, Shapes, Supplement, Supplements};
pub use tables::spread;

/// Tables in shapes that papers have, for any measure.
pub mod shapes {
    pub use crate::tables::{conditions, effects, low, low_of, share_of_the_period};
}

pub use terminal::text;
pub use words::{Unit, clean, count, short, time};
pub use write::{Written, write};

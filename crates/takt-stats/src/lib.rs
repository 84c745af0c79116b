//! What a set of latencies says: summaries, miss counts and a verdict against a deadline.
//!
//! Nothing here filters: the tail is the message (DESIGN.md, rule 2).

mod summary;
mod verdict;

pub use summary::{Summary, reduction};
pub use verdict::{DeadlineEvidence, Verdict, VerdictReport, judge};

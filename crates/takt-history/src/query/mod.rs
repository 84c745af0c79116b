//! Questions across the runs of a store.
//!
//! - [`compare()`]: groups of runs by any columns of the index, and how far their figures lie
//!   apart. Conditions are read by the grammar of SQL and decided here: no engine is needed.
//! - [`Views`]: runs of a store as run directories, for whoever reads such.

pub mod compare;
mod error;
mod figures;
mod filter;
mod runs;
mod show;
mod table;

pub use compare::{Comparison, Options, compare, pick};
pub use error::QueryError;
pub use filter::Filter;
pub use runs::{View, Views};
pub use show::document;
pub use table::{Cell, Column, ColumnKind, Table};

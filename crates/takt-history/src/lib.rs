//! Runs that are kept.
//!
//! - [`gate`]: whether new runs are worse than those before, and since when;
//! - [`store`]: sealed run directories in a folder that machines share, or in a bucket (feature
//!   `s3`);
//! - [`query`]: comparisons by any column of a store's index.

pub mod gate;
#[cfg(feature = "store")]
pub mod query;
#[cfg(feature = "store")]
pub mod store;

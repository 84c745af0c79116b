//! Interference: noise threads and stress profiles, each with the proof that it was there.
//!
//! ```no_run
//! use takt_load::{Load, Profile};
//!
//! let load = Load::start(&Profile::named("uav")?, std::path::Path::new("/var/tmp"))?;
//! // measure
//! load.check()?;
//! let report = load.stop();
//! assert!(report.components.iter().all(|component| component.ran()));
//! # Ok::<(), takt_load::LoadError>(())
//! ```

mod builtin;
mod error;
pub mod gpu;
mod guard;
mod load;
pub mod noise;
mod processes;
pub mod profile;
mod report;
pub mod system;
mod tool;

pub use error::LoadError;
pub use load::Load;
pub use profile::{Component, Profile};
pub use report::{ComponentReport, Death, LoadReport, STRESS_TOLERANCE, unequal};

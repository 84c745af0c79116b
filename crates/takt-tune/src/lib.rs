//! Settings of a machine that make a loop less late, found by experiment: blocks under settings
//! drawn by lot, interleaved within the same minutes, with placebos; a setting is kept if removing
//! it hurts. Everything is taken back.
//!
//! ```text
//! catalog (what can be set here, tried) -> search (screening, halving, ablation, stretches: design, effects) -> tuned (table), files (to apply it)
//!                                             |  plan of configurations      ^  blocks
//!                                             v                              |
//!                                          live (journal of the doctor, loop watched by kernel events)
//! ```

mod ablation;
pub mod aim;
mod boot;
pub mod catalog;
pub mod design;
mod effects;
pub mod error;
pub mod files;
pub mod live;
mod prompt;
pub mod search;
#[cfg(test)]
mod simulated;
mod stretches;
mod tune;
pub mod tuned;

pub use aim::Aim;
pub use error::TuneError;
pub use live::LiveOptions;
pub use search::SearchSettings;
pub use stretches::Stretches;
pub use tune::{Options, tune};
pub use tuned::{GuestSide, InGuests, KnobRow, Proposed, TuneReport};

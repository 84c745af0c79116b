//! The settings of a machine, changed so that each is given back.
//!
//! - [`doctor`]: what makes a machine unfit for real time, with evidence and the fix. Its journal
//!   survives a boot, and people read it;
//! - [`reserve`]: SCHED_DEADLINE on CPUs of their own. Its journal belongs to a run.

pub mod doctor;
pub mod reserve;

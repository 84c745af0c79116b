//! Campaigns: a robot under every combination of some factors, each combination measured several
//! times.
//!
//! ```text
//! CampaignFile ─► Plan (every run, validated before the first) ─► Campaign (runs, kill, resume) ─► Table
//! ```
//!
//! A campaign directory holds `campaign.json` (the whole plan), `configs/` (the resolved
//! configuration of every run), one run directory per run, `failures.json` and `table.json`.

mod apply;
mod condition;
mod engine;
mod executor;
mod failure;
mod file;
mod plan;
pub mod present;
mod scheduler;
mod shipped;
mod stress;
mod table;

pub use condition::{ConditionRow, condition_rows};
pub use engine::Campaign;
pub use executor::{Executor, Local, Make, Notify, Progress, Queue, RunOrder, Step, TimeLeft};
pub use failure::RunFailure;
pub use file::{CampaignFile, FactorSpec, Level, Order, Quick};
pub use plan::{CellRun, Plan, RunSetup};
pub use scheduler::{SchedulerRow, scheduler_rows};
pub use shipped::{all, shipped, shipped_text};
pub use stress::{StressComparison, StressSide, stress_work, unequal_stress};
pub use table::{Row, Table};

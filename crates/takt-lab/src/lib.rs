//! Runs robots and keeps what was measured: run directories, benches, verdicts.
//!
//! A run leaves one [`takt_rundir::RunDir`]: what was asked, what the kernel really granted, the
//! machine, the samples, the events. Summaries and verdicts are computed from run directories only.

pub mod campaign;
pub mod collect;
mod collecting;
pub mod cyclic;
mod envelope;
mod error;
mod guests;
pub mod jobs;
pub mod keeper;
pub mod kernels;
mod late_watch;
mod live;
mod machine_asked;
mod notices;
pub mod options;
pub mod picture;
pub mod questions;
mod registry;
pub mod releases;
pub mod resume;
pub mod robot;
mod run;
#[cfg(feature = "jobs")]
pub mod run_jobs;
mod sched_ext;
mod session;
pub mod shipped;
mod stopped;
pub mod summary;
mod task_log;
pub mod trace;
mod watchdog;

pub use collecting::{Collecting, EndFlag, Ending};
pub use envelope::{ConfigError, Envelope, parse, read_table};
pub use error::{LabError, last_words};
pub use late_watch::LateWatch;
pub use live::{LiveMeasure, LiveMeasures, LiveSeries};
pub use machine_asked::{MachineAsked, Scheduler};
pub use notices::report_event;
pub use options::{Interference, RunOptions, Target, View};
pub use registry::Registry;
pub use robot::{Event, Observe, Robot, RobotFile, RobotKind, Running};
pub use run::Ran;
pub use session::{SETTLE, Session, file_name};
pub use shipped::Shipped;
pub use summary::{RunSummary, SeriesSummary};
pub use takt_service::Kind as Happening;
pub use task_log::{TaskLog, Timed, Times};
pub use watchdog::watchdog_command;

//! Output for people: tables, progress, the verdict. One file a kind of thing that is shown.

mod campaign;
mod cell;
mod robot;
mod trace;

pub use campaign::{CampaignProgress, condition_rows, plan, scheduler_rows, table};
pub use cell::{BenchProgress, RunProgress, rows, summary, verdict};
pub use robot::{RobotProgress, run_summary};
pub use trace::{trace_report, traced};

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar on standard error; hidden where that is no terminal.
fn bar(length: u64, template: &str) -> ProgressBar {
    let bar = if std::io::stderr().is_terminal() {
        ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::stderr())
    } else {
        ProgressBar::hidden()
    };
    bar.with_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()))
}

//! Output for people: tables, progress, the verdict. One file a kind of thing that is shown.

mod campaign;
#[cfg(feature = "cell")]
mod cell;
pub mod colour;
mod granted;
mod kernels;
#[cfg(feature = "ros")]
pub mod learn;
mod left;
#[cfg(feature = "ros")]
mod manager;
mod robot;
mod trace;
mod tune;
mod watch;

pub use campaign::{CampaignProgress, condition_rows, plan, scheduler_rows, table};
#[cfg(feature = "cell")]
pub use cell::{designs, rows, summary, verdict};
pub use granted::not_granted;
pub use kernels::{kernel_list, kernel_rows};
#[cfg(feature = "ros")]
pub use manager::{managed, managed_json, manager_table, recorded, recorded_chains, recorded_json};
pub use robot::{RobotProgress, ran, run_summary};
pub use trace::{trace_report, traced};
pub use tune::tuned;
pub use watch::{ahead, ending, watched};

use std::fmt::Write;
use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use takt_rundir::CpuShare;

/// A bar on standard error; hidden where that is no terminal. `left` puts the time left into its
/// style.
fn bar(length: u64, template: &str, left: impl FnOnce(ProgressStyle) -> ProgressStyle) -> ProgressBar {
    let bar = if std::io::stderr().is_terminal() {
        ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::stderr())
    } else {
        ProgressBar::hidden()
    };
    bar.with_style(left(style(template)))
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// A figure with `decimals`; a dash where nothing was measured.
fn number(value: Option<f64>, decimals: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.decimals$}"))
}

/// A number; a dash where nothing was counted.
fn counted(value: Option<u64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// A share as percent; a dash where it is not known.
fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), |share| format!("{:.2}%", 100.0 * share))
}

/// The line below a row whose figures are of survivors.
fn skipped(skipped: u64, came: u64) -> Option<String> {
    (skipped > 0).then(|| {
        let all = came.saturating_add(skipped);
        format!("      {skipped} of {all} SKIPPED, DROPPED OR UNANSWERED; mean to maximum cover the others\n")
    })
}

/// Notes that a reader of a run's figures must know about the machine and the run, one a line.
fn circumstances(cpu: CpuShare, records_lost: u64, not_granted: &[String]) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(
        out,
        "  Processors {:.0} % busy, {:.2} % of the time taken by a hypervisor",
        100.0 * cpu.busy,
        100.0 * cpu.stolen
    );
    if records_lost > 0 {
        let _ = writeln!(out, "  {records_lost} records were lost");
    }
    out.extend(granted::not_granted(not_granted).map(|line| format!("  {line}\n")));
    out
}

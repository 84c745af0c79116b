//! `takt gate` and `takt history`.

use std::path::PathBuf;

use super::needs;

fn quantile(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(quantile) if (0.5..1.0).contains(&quantile) => Ok(quantile),
        _ => Err(match text.trim_start_matches(['p', 'P']).parse::<f64>() {
            Ok(percentile) if (50.0..100.0).contains(&percentile) => {
                format!(
                    "expected a quantile of 0.5 to below 1; write {} for P{percentile}",
                    (percentile * 1e6).round() / 1e8
                )
            }
            _ => "expected a quantile of 0.5 to below 1, such as 0.99 for P99".to_owned(),
        }),
    }
}

/// `10%`, `10` and `0.5%` are percent.
fn percent(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('%').trim().parse::<f64>() {
        Ok(percent) if (0.1..=1000.0).contains(&percent) => Ok(percent / 100.0),
        _ => Err("expected 0.1% to 1000%, such as 10%".to_owned()),
    }
}

/// `takt gate`
#[derive(Debug, clap::Args)]
#[command(after_help = needs::GATE)]
pub struct Gate {
    /// New runs: run directories, campaigns, folders of them, or stores
    #[arg(required = true, value_name = "RUN")]
    pub runs: Vec<PathBuf>,
    /// Baseline runs, likewise; can be repeated
    #[arg(long, required = true, value_name = "DIR")]
    pub baseline: Vec<PathBuf>,
    /// Only this measure [default: those of the runs' verdict]
    #[arg(long)]
    pub measure: Option<String>,
    /// Quantile that stands for a run; above 0.95, a lower one is judged as well (for P99, the P95)
    #[arg(long, default_value_t = 0.99, value_parser = quantile, value_name = "Q")]
    pub quantile: f64,
    /// Smaller changes count as none
    #[arg(long, default_value = "10%", value_parser = percent, value_name = "PERCENT")]
    pub tolerance: f64,
    /// Report how many runs would reveal a rise of this size
    #[arg(long, default_value = "20%", value_parser = percent, value_name = "PERCENT")]
    pub find: f64,
    /// Of stores, only the runs that match, as in SQL: "robot = 'uav' and takt = '0.1.0'"
    #[cfg(feature = "store")]
    #[arg(long = "where", value_name = "CONDITION")]
    pub condition: Option<String>,
    /// Judge even if machines or kernels differ; the differences are listed
    #[arg(long)]
    pub across_machines: bool,
    /// Write the decision as JUnit XML: worse is a failure, "cannot tell" is skipped
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,
    /// Print the decision as JSON
    #[arg(long)]
    pub json: bool,
}

/// `takt history`
#[derive(Debug, clap::Args)]
pub struct History {
    /// Run directories, campaigns, folders of them, or stores
    #[arg(required = true)]
    pub dirs: Vec<PathBuf>,
    /// Of stores, only the runs that match, as in SQL: "robot = 'uav' and stolen < 0.01"
    #[cfg(feature = "store")]
    #[arg(long = "where", value_name = "CONDITION")]
    pub condition: Option<String>,
    /// Order of the runs: kernel, version (of takt), day, or a factor of their campaign
    #[arg(long, default_value = "day")]
    pub by: String,
    /// Only this measure [default: those of the runs' verdict]
    #[arg(long)]
    pub measure: Option<String>,
    /// Quantile that stands for a run
    #[arg(long, default_value_t = 0.99, value_parser = quantile, value_name = "Q")]
    pub quantile: f64,
    /// Write the history as a picture (SVG)
    #[arg(long, value_name = "FILE")]
    pub picture: Option<PathBuf>,
    /// Print the history as JSON
    #[arg(long)]
    pub json: bool,
}

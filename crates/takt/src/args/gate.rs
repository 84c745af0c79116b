//! `takt gate` and `takt history`.

use std::path::PathBuf;

use super::needs;

fn quantile(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(quantile) if (0.5..1.0).contains(&quantile) => Ok(quantile),
        _ => Err("accepted are 0.5 to 1 (0.99 for P99)".to_owned()),
    }
}

/// `10%`, `10` and `0.5%` are percent.
fn percent(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('%').trim().parse::<f64>() {
        Ok(percent) if (0.1..=1000.0).contains(&percent) => Ok(percent / 100.0),
        _ => Err("accepted are 0.1% to 1000%".to_owned()),
    }
}

/// `takt gate`
#[derive(Debug, clap::Args)]
#[command(after_help = needs::GATE)]
pub struct Gate {
    /// New runs: run directories, campaigns, folders of them, stores
    #[arg(required = true, value_name = "RUN")]
    pub runs: Vec<PathBuf>,
    /// Runs before: likewise, or a store; several times for several
    #[arg(long, required = true, value_name = "DIR")]
    pub baseline: Vec<PathBuf>,
    /// Only this measure; those that the runs' verdict is about when absent
    #[arg(long)]
    pub measure: Option<String>,
    /// Which quantile is the figure of a run; beyond 0.95, one with five times as many samples
    /// beyond it is judged as well (the P95 beside the P99)
    #[arg(long, default_value_t = 0.99, value_parser = quantile, value_name = "Q")]
    pub quantile: f64,
    /// Changes within this share are none
    #[arg(long, default_value = "10%", value_parser = percent, value_name = "PERCENT")]
    pub tolerance: f64,
    /// Tell how many runs would find a rise of so much
    #[arg(long, default_value = "20%", value_parser = percent, value_name = "PERCENT")]
    pub find: f64,
    /// Of stores, only the runs of which this is true, as in SQL: "robot = 'uav' and takt =
    /// '0.1.0'"
    #[cfg(feature = "store")]
    #[arg(long = "where", value_name = "CONDITION")]
    pub condition: Option<String>,
    /// Judge although the machines or kernels differ; what differs is said
    #[arg(long)]
    pub across_machines: bool,
    /// Write the decision as JUnit XML: worse is a failure, what cannot be reported is skipped
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,
    /// Print the decision as JSON
    #[arg(long)]
    pub json: bool,
}

/// `takt history`
#[derive(Debug, clap::Args)]
pub struct History {
    /// Run directories, campaigns, folders of them, stores
    #[arg(required = true)]
    pub dirs: Vec<PathBuf>,
    /// Of stores, only the runs of which this is true, as in SQL: "robot = 'uav' and stolen < 0.01"
    #[cfg(feature = "store")]
    #[arg(long = "where", value_name = "CONDITION")]
    pub condition: Option<String>,
    /// In which order runs make a history: kernel, version (of takt), day, or the name of a
    /// campaign's factor
    #[arg(long, default_value = "day")]
    pub by: String,
    /// Only this measure; those that the runs' verdict is about when absent
    #[arg(long)]
    pub measure: Option<String>,
    /// Which quantile is the figure of a run
    #[arg(long, default_value_t = 0.99, value_parser = quantile, value_name = "Q")]
    pub quantile: f64,
    /// Write a picture (SVG)
    #[arg(long, value_name = "FILE")]
    pub picture: Option<PathBuf>,
    /// Print the history as JSON
    #[arg(long)]
    pub json: bool,
}

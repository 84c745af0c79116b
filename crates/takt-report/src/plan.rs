//! Planned runs of a campaign, so that a missing run leaves a labelled gap and not a shorter table.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use takt_rundir::{Experiment, RUN_FILE, read_json};

/// The campaign's own file: only what is needed here is read.
const CAMPAIGN_FILE: &str = "campaign.json";
/// File with the reasons of failed runs, by name.
const FAILURES_FILE: &str = "failures.json";

#[derive(Deserialize)]
struct Stored {
    #[serde(default)]
    command: Option<String>,
    plan: Plan,
}

/// The command that began the campaign in `folder`.
pub(crate) fn command(folder: &Path) -> Option<String> {
    let stored: Stored = read_json(&folder.join(CAMPAIGN_FILE)).ok()?;
    stored.command
}

#[derive(Deserialize)]
struct Plan {
    robot: String,
    runs: Vec<Planned>,
}

#[derive(Deserialize)]
struct Planned {
    name: String,
    setup: Setup,
}

#[derive(Deserialize)]
struct Setup {
    experiment: Experiment,
}

/// A run that was planned and has left no directory.
#[derive(Clone, Debug)]
pub(crate) struct Absent {
    /// Expected path of its directory.
    pub(crate) path: PathBuf,
    pub(crate) robot: String,
    /// Its position in the campaign.
    pub(crate) experiment: Experiment,
    pub(crate) why: String,
}

/// The runs that the campaign in `folder` planned and that are not there; none where there is no
/// campaign. An error is what is wrong with the campaign's file.
pub(crate) fn absent(folder: &Path) -> Result<Vec<Absent>, String> {
    let file = folder.join(CAMPAIGN_FILE);
    if !file.is_file() {
        return Ok(Vec::new());
    }
    let stored: Stored = read_json(&file).map_err(|e| e.to_string())?;
    let failures: BTreeMap<String, String> = read_json(&folder.join(FAILURES_FILE)).unwrap_or_default();
    let Plan { robot, runs } = stored.plan;
    let absent =
        runs.into_iter().filter(|run| !folder.join(&run.name).join(RUN_FILE).is_file()).map(|run| Absent {
            path: folder.join(&run.name),
            robot: robot.clone(),
            experiment: run.setup.experiment,
            why: failures
                .get(&run.name)
                .map_or("planned but not run yet".to_owned(), |why| format!("failed: {why}")),
        });
    Ok(absent.collect())
}

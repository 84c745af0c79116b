//! `takt check`

use std::path::Path;
use std::process::ExitCode;

use takt_lab::campaign::{CampaignFile, Plan};

use super::CommandResult;
use crate::registry::ROBOTS;

pub fn run(config: &Path) -> CommandResult {
    let text =
        takt_files::read_configuration(config).map_err(|error| format!("{}: {error}", config.display()))?;
    let mut found = Vec::new();
    let what = if is_campaign(&text) {
        let plan = Plan::resolve_with(&ROBOTS, &CampaignFile::load(config)?, &mut |_| Ok(()))?;
        format!("campaign {} of {}: {} runs", plan.file.name, plan.robot, plan.runs.len())
    } else {
        let robot = ROBOTS.load(config)?;
        found = robot.inspect().map_err(|error| format!("{}: {error}", config.display()))?;
        robot.title()
    };
    println!("{}: {what}", config.display());
    for sentence in found {
        println!("  {sentence}");
    }
    Ok(ExitCode::SUCCESS)
}

/// Factors and repetitions are keys that no robot has.
fn is_campaign(text: &str) -> bool {
    let table: toml::Table = toml::from_str(text).unwrap_or_default();
    ["factor", "repetitions", "set"].iter().any(|key| table.contains_key(*key))
}

//! `takt check`

use std::path::Path;
use std::process::ExitCode;

use takt_lab::campaign::{CampaignFile, Plan, all, shipped};
use takt_lab::shipped::{robots, word};

use super::CommandResult;
use crate::registry::ROBOTS;

pub fn run(config: &Path) -> CommandResult {
    let mut found = Vec::new();
    let campaign = match campaign_named(config) {
        Some(name) => Some(shipped(&ROBOTS, name)?),
        None if robot_named(config) => None,
        None => {
            let text = takt_files::read_configuration(config)
                .map_err(|error| format!("{}: {error}", config.display()))?;
            is_campaign(&text).then(|| CampaignFile::load(config)).transpose()?
        }
    };
    let what = if let Some(campaign) = campaign {
        let plan = Plan::resolve_with(&ROBOTS, &campaign, &mut |_| Ok(()))?;
        format!("campaign {} of {}: {} runs", plan.file.name, plan.robot, plan.runs.len())
    } else {
        let robot = ROBOTS.find(config)?;
        found = robot.inspect().map_err(|error| format!("{}: {error}", config.display()))?;
        robot.title()
    };
    println!("{}: {what}", config.display());
    for sentence in found {
        println!("  {sentence}");
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether this is the name of a shipped robot, or of nothing: the error lists the robots then.
fn robot_named(config: &Path) -> bool {
    let files = robots(&ROBOTS);
    word(config, |name| files.iter().any(|file| file.is(name))).is_some()
}

/// The name of a shipped campaign, unless a robot has it, too.
fn campaign_named(config: &Path) -> Option<&str> {
    let robots = robots(&ROBOTS);
    let is_campaign = |name: &str| all(&ROBOTS).any(|(known, _)| *known == name);
    word(config, is_campaign).filter(|name| is_campaign(name) && !robots.iter().any(|file| file.is(name)))
}

/// Factors and repetitions are keys that no robot has.
fn is_campaign(text: &str) -> bool {
    let table: toml::Table = toml::from_str(text).unwrap_or_default();
    ["factor", "repetitions", "set"].iter().any(|key| table.contains_key(*key))
}

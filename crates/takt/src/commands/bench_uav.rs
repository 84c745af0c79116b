//! `takt bench uav`: the shipped campaign `uav`, its rows as in the paper's Table 4.

use std::process::ExitCode;

use takt_lab::campaign::{Campaign, Plan, shipped};
use takt_robot_uav::UavConfig;
use takt_robot_uav::blackout::StudyOptions;
use takt_robot_uav::lab as uav;

use super::{CommandResult, campaign};
use crate::args::CampaignCommon;
use crate::args::bench::{BenchUav, Stress};
use crate::print;
use crate::registry::ROBOTS;

pub fn run(args: &BenchUav) -> CommandResult {
    if args.blackout {
        return blackout(args);
    }
    let mut file = shipped(&ROBOTS, "uav")?;
    file.repetitions = args.repeat;
    file.use_config(args.config.as_deref());
    file.set_text(&format!("iterations={}", args.iterations))?;
    if !args.policies.is_empty() {
        file.replace_values("policy", &args.policies)?;
    }
    match args.stress {
        Stress::Off => file.keep_only("stress=off")?,
        Stress::On => file.keep_only("stress=uav")?,
        Stress::Both => {}
    }
    let campaign = Campaign::create(ROBOTS, &args.runs, Plan::resolve(&ROBOTS, &file)?)?;
    let common = CampaignCommon { json: args.json, ..CampaignCommon::default() };
    let table = campaign::measure(&campaign, &common)?;
    let rows = takt_lab::campaign::scheduler_rows(&table);
    if args.json {
        let value = serde_json::json!({
            "rows": rows, "campaign_dir": table.dir, "machine_differences": table.machine_differences,
        });
        println!("{}", serde_json::to_string_pretty(&value)?);
    } else {
        print!("{}", print::scheduler_rows(&rows));
        println!("Run directories: {}", table.dir);
    }
    Ok(ExitCode::SUCCESS)
}

fn blackout(args: &BenchUav) -> CommandResult {
    let file = match &args.config {
        Some(path) => ROBOTS.load(path)?,
        None => ROBOTS.shipped("uav")?,
    };
    let Some(config) = file.get::<UavConfig>() else {
        return Err(format!(
            "--config is for the robot \"{}\"; `takt bench uav` needs \"uav\"",
            file.robot()
        )
        .into());
    };
    let study = uav::blackout(config, &StudyOptions::default())?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&study)?);
    } else {
        print!("{}", uav::blackout_text(&study));
    }
    Ok(ExitCode::SUCCESS)
}

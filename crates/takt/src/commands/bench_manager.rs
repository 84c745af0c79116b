//! `takt bench manager`: the shipped campaign `manager`, its rows as in the ROS-Llama paper's Table II.

use std::process::ExitCode;

use takt_lab::campaign::{Campaign, Plan, shipped};
use takt_lab::ros::manager_table;

use super::{CommandResult, campaign};
use crate::args::{BenchManager, CampaignCommon};
use crate::print;

pub fn run(args: &BenchManager) -> CommandResult {
    let mut file = shipped("manager")?;
    file.repetitions = args.repeat;
    file.use_config(args.config.as_deref());
    file.set_text(&format!("seconds={}", args.seconds))?;
    if !args.policies.is_empty() {
        file.replace_values("policy", &args.policies)?;
    }
    let campaign = Campaign::create(&args.runs, Plan::resolve(&file)?)?;
    let common = CampaignCommon { json: args.json, ..CampaignCommon::default() };
    let table = manager_table(&campaign::measure(&campaign, &common)?)?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&table)?);
    } else {
        print!("{}", print::manager_table(&table));
    }
    Ok(ExitCode::SUCCESS)
}

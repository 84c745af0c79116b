//! `takt bench manager`: the shipped campaign `manager`, its rows as in the ROS-Llama paper's Table
//! II.

use takt_lab::campaign::{Campaign, Plan, shipped};
use takt_report::compare::{Options, compare, document};
use takt_robot_ros::{Load, manager_table};

use super::tidy::Tidy;
use super::{CommandResult, campaign};
use crate::args::CampaignCommon;
use crate::args::bench::BenchManager;
use crate::print;
use crate::registry::ROBOTS;

/// The campaign.
const NAME: &str = "manager";

pub fn run(args: &BenchManager) -> CommandResult {
    // A missing comparison is reported before minutes of measuring.
    if let Some(other) = &args.compare {
        takt_report::collect(&[other])?;
    }
    let _tidy = Tidy::before(&args.runs);
    let campaign = match &args.resume {
        Some(path) => {
            let campaign = Campaign::open(ROBOTS, path)?;
            let found = &campaign.plan().file.name;
            if found != NAME {
                return Err(format!(
                    "{}: contains the campaign \"{found}\"; `takt campaign resume` continues it",
                    path.display()
                )
                .into());
            }
            campaign
        }
        None => {
            let mut file = shipped(&ROBOTS, NAME)?;
            file.repetitions = args.repeat;
            file.use_config(args.config.as_deref());
            file.set_text(&format!("seconds={}", args.seconds))?;
            if args.load != Load::Paper {
                file.set_text(&format!("load={}", args.load))?;
            }
            // The time of day decides which policy comes first in a bench without repetitions.
            file.seed = takt_rt::clock::realtime_ns() / 1_000_000_000;
            if !args.policies.is_empty() {
                file.replace_values("policy", &args.policies)?;
            }
            Campaign::create(ROBOTS, &args.runs, Plan::resolve(&ROBOTS, &file)?)?
        }
    };
    let common = CampaignCommon { json: args.json, ..CampaignCommon::default() };
    let measured = campaign::measure(&campaign, &common)?;
    let table = manager_table(&measured.table)?;
    let comparison = match &args.compare {
        Some(before) => {
            let options = Options { across_machines: args.across_machines, measure: None };
            Some(compare(&[before.clone(), campaign.path().to_owned()], &options)?)
        }
        None => None,
    };
    if args.json {
        let mut all = serde_json::to_value(&table)?;
        all["bench_dir"] = campaign.path().display().to_string().into();
        if let Some(comparison) = &comparison {
            all["comparison"] = serde_json::to_value(comparison)?;
        }
        println!("{}", serde_json::to_string_pretty(&all)?);
        return Ok(measured.status());
    }
    print!("{}", print::manager_table(&table));
    println!("{}\nReport: takt report {0}", campaign.path().display());
    if let Some(comparison) = &comparison {
        print!("\n{}", takt_report::text(&document(comparison)));
    }
    Ok(measured.status())
}

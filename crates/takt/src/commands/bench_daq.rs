//! `takt bench daq`: the shipped campaign `daq`.

use std::process::ExitCode;

use takt_lab::campaign::{Campaign, Plan, condition_rows, shipped};

use super::{CommandResult, campaign};
use crate::args::CampaignCommon;
use crate::args::bench::BenchDaq;
use crate::print;
use crate::registry::ROBOTS;

pub fn run(args: &BenchDaq) -> CommandResult {
    let mut file = shipped(&ROBOTS, "daq")?;
    file.repetitions = args.repeat;
    file.seconds = Some(args.seconds);
    file.use_config(args.config.as_deref());
    file.set_text(&format!("link.kind={}", args.link))?;
    let campaign = Campaign::create(ROBOTS, &args.runs, Plan::resolve(&ROBOTS, &file)?)?;
    let common = CampaignCommon { json: args.json, ..CampaignCommon::default() };
    let table = campaign::measure(&campaign, &common)?;
    let rows = condition_rows(&table);
    if args.json {
        let value = serde_json::json!({
            "link": args.link, "rows": rows, "campaign_dir": table.dir, "machine_differences": table.machine_differences,
        });
        println!("{}", serde_json::to_string_pretty(&value)?);
    } else {
        print!("{}", print::condition_rows(&rows));
        println!("Run directories: {}", table.dir);
    }
    Ok(ExitCode::SUCCESS)
}

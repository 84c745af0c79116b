//! `takt bench daq`: the shipped campaign `daq`.

use std::path::Path;

use takt_lab::LabError;
use takt_lab::campaign::{Campaign, CampaignFile, Plan, condition_rows, shipped};

use super::tidy::Tidy;
use super::{CommandResult, campaign};
use crate::args::CampaignCommon;
use crate::args::bench::BenchDaq;
use crate::print;
use crate::registry::ROBOTS;

/// The links whose far end is a thread of Takt's own: one's keys are the others', too.
const ECHOED: [&str; 3] = ["udp", "pty", "eventfd"];

fn link_of_file(config: Option<&Path>) -> Result<String, Box<dyn std::error::Error>> {
    let robot = config.map_or_else(|| ROBOTS.shipped("daq"), |path| ROBOTS.load(path))?;
    Ok(robot.to_json()?["link"]["kind"].as_str().unwrap_or_default().to_owned())
}

/// Setting that gives a run another link than the file's. A board has no far end and no keys for
/// one: the file's link settings do not apply to it, and its defaults hold.
fn setting(link: &str, of_file: &str) -> String {
    if ECHOED.contains(&link) && ECHOED.contains(&of_file) {
        format!("link.kind={link}")
    } else {
        // Quoted as TOML: whatever was given is a text.
        format!("link={{ kind = {} }}", toml::Value::from(link))
    }
}

/// Edges a second that every condition of a link that is worth measuring has.
const EDGES_PER_S: f64 = 2500.0;

/// A run of at most `seconds` ends with its edges, so that conditions compare the same number of
/// them, however fast they are.
fn last(file: &mut CampaignFile, seconds: f64) -> Result<(), LabError> {
    file.seconds = Some(seconds);
    file.set_text(&format!("stop.edges={}", (seconds * EDGES_PER_S).ceil()))
}

pub fn run(args: &BenchDaq) -> CommandResult {
    let mut file = shipped(&ROBOTS, "daq")?;
    file.repetitions = args.repeat;
    last(&mut file, args.seconds)?;
    file.use_config(args.config.as_deref());
    let of_file = link_of_file(args.config.as_deref())?;
    let link = args.link.clone().unwrap_or_else(|| of_file.clone());
    if link != of_file {
        file.set_text(&setting(&link, &of_file))?;
    }
    let _tidy = Tidy::before(&args.runs);
    let campaign = Campaign::create(ROBOTS, &args.runs, Plan::resolve(&ROBOTS, &file)?)?;
    let common = CampaignCommon { json: args.json, ..CampaignCommon::default() };
    let measured = campaign::measure(&campaign, &common)?;
    let table = &measured.table;
    let rows = condition_rows(table);
    if args.json {
        let value = serde_json::json!({
            "link": link, "rows": rows, "campaign_dir": table.dir, "machine_differences": table.machine_differences,
        });
        println!("{}", serde_json::to_string_pretty(&value)?);
    } else {
        print!("{}", print::condition_rows(&rows));
        println!("Run directories: {}", table.dir);
    }
    Ok(measured.status())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_link_can_be_asked_for_and_a_files_own_keeps_its_keys() {
        let of_file = link_of_file(None).expect("the shipped file");
        assert_eq!(of_file, "udp");
        for link in ["udp", "pty", "eventfd", "simulated", "comedi", "iio"] {
            let mut file = shipped(&ROBOTS, "daq").expect("the shipped campaign");
            file.set_text(&setting(link, &of_file)).expect("a setting");
            let plan = Plan::resolve(&ROBOTS, &file).unwrap_or_else(|error| panic!("{link}: {error}"));
            let config = &plan.configs[0].1;
            assert!(config.contains(&format!("kind = \"{link}\"")), "{link}: {config}");
            // The far end's priority is the file's.
            assert_eq!(config.contains("priority = 98"), ECHOED.contains(&link), "{link}: {config}");
        }
        let mut file = shipped(&ROBOTS, "daq").expect("the shipped campaign");
        file.set_text(&setting("a\"b = {", &of_file)).expect("a setting");
        assert!(Plan::resolve(&ROBOTS, &file).is_err());
    }
}

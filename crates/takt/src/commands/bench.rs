//! `takt bench cell`: the shipped campaign `sentryrt1` over a configuration of the cell, its rows
//! as in the paper's Table II.

use std::path::Path;

use takt_lab::LabError;
use takt_lab::campaign::{Campaign, Plan};
use takt_robot_cell::lab::bench::{self, BenchRow, Matrix};
use takt_robot_cell::lab::scale::{self, Scaled};
use takt_robot_cell::lab::{CellFile, designs};

use super::campaign::Measured;
use super::tidy::Tidy;
use super::{CommandResult, campaign};
use crate::args::{self, CampaignCommon};
use crate::print;
use crate::registry::ROBOTS;

pub fn run(args: &args::bench::Bench) -> CommandResult {
    let mut file = match &args.config {
        Some(path) => CellFile::load(path)?,
        None => CellFile::demo()?,
    };
    if let Some(cameras) = args.cameras {
        file.cameras.truncate(cameras);
    }
    let mut against = args.against.as_deref().map(design).transpose()?;
    let begun = args.resume.as_deref().map(|dir| Campaign::open(ROBOTS, dir)).transpose()?;
    // A bench that goes on has decided already.
    let before = begun.as_ref().map(decided).transpose()?.flatten();
    let scaled = scale::settle_both(&mut file, against.as_mut(), before)?;
    if let Some(scaled) = &scaled {
        eprintln!("{}", scaled.text());
    }
    let matrix = Matrix {
        policies: args.policies.clone(),
        noise: args.noise.clone(),
        seconds: args.seconds,
        repeat: args.repeat,
    };
    let plan = Plan::resolve(&ROBOTS, &bench::campaign(&matrix, &file, against.as_ref())?)?;
    let _tidy = Tidy::before(&args.runs);
    let campaign = match begun {
        Some(campaign) => same(campaign, &plan)?,
        None => Campaign::create(ROBOTS, &args.runs, plan)?,
    };
    let (measured, rows) = measure(&campaign)?;
    let against_rows = bench::against_rows(&campaign)?;
    let comparison = designs::compare(&rows, &against_rows);
    let folder = campaign.path().display().to_string();
    if args.json {
        let mut answer = serde_json::json!({ "rows": rows, "bench_dir": folder });
        if let Some(scaled) = &scaled {
            answer["scaled"] = serde_json::to_value(scaled)?;
            answer["scaled_sentence"] = scaled.text().into();
        }
        if let Some(against) = &against {
            answer["against"] = serde_json::json!({ "name": against.envelope.name, "rows": against_rows });
            answer["comparison"] = serde_json::to_value(&comparison)?;
        }
        println!("{}", serde_json::to_string_pretty(&answer)?);
    } else {
        print!("{}", print::rows(&rows));
        if let Some(against) = &against {
            println!("\n{}, the same matrix:", against.envelope.name);
            print!("{}", print::rows(&against_rows));
            print!("\n{}", print::designs(&file.envelope.name, &against.envelope.name, &comparison));
        }
        if let Some(scaled) = &scaled {
            println!("{}", scaled.text());
        }
        println!("Run directories: {folder}");
    }
    Ok(measured.status())
}

/// The other design: the name of a shipped configuration of the cell, or a file.
fn design(name: &str) -> Result<CellFile, Box<dyn std::error::Error>> {
    let file = ROBOTS.load_or_shipped(name)?;
    let other =
        || format!("--against {name}: a configuration of {}, not of the safety cell", file.robot()).into();
    file.get::<CellFile>().cloned().ok_or_else(other)
}

/// Common properties of a bench's runs, from the configurations with which it began.
fn decided(campaign: &Campaign) -> Result<Option<Scaled>, LabError> {
    let Some((name, text)) = campaign.plan().configs.first() else { return Ok(None) };
    Ok(CellFile::parse(text, name, Path::new(""))?.scaled)
}

/// The bench that goes on, where it is the one that was asked for.
fn same(campaign: Campaign, now: &Plan) -> Result<Campaign, LabError> {
    let before = campaign.plan();
    if (&before.runs, &before.configs) == (&now.runs, &now.configs) {
        return Ok(campaign);
    }
    let (dir, before, now) = (campaign.path().to_owned(), in_words(before), in_words(now));
    Err(LabError::OtherBench { dir, before, now })
}

/// Text that distinguishes one bench from another.
fn in_words(plan: &Plan) -> String {
    let factor = |f: &takt_lab::campaign::FactorSpec| {
        let values: Vec<String> = f.values.iter().map(takt_lab::campaign::Level::text).collect();
        format!("{} {}", f.name, values.join(", "))
    };
    let factors: Vec<String> = plan.file.factors.iter().map(factor).collect();
    let configs: Vec<&str> = plan.configs.iter().map(|(name, _)| name.as_str()).collect();
    let seconds = plan.file.seconds.unwrap_or_default();
    let (factors, configs, repeat) = (factors.join("; "), configs.join(", "), plan.file.repetitions);
    format!("{factors}; {repeat} x {seconds} s of {configs}")
}

/// Makes the runs of a bench that are not made yet.
pub fn measure(campaign: &Campaign) -> Result<(Measured, Vec<BenchRow>), Box<dyn std::error::Error>> {
    let measured = campaign::measure(campaign, &CampaignCommon::default())?;
    let rows = bench::rows(campaign)?;
    Ok((measured, rows))
}

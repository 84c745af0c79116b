//! `takt campaign`

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use takt_lab::campaign::{Campaign, CampaignFile, Plan, RunOrder, Table, all, shipped, shipped_text};
use takt_lab::kernels::Maker;

use super::{CommandResult, child, stop_flag};
use crate::args::{self, CampaignCommon, CampaignResume, CampaignRun};
use crate::print;
use crate::registry::ROBOTS;

pub fn run(what: &args::Campaign) -> CommandResult {
    match what {
        args::Campaign::Run(run) => new(run),
        args::Campaign::Resume(resume) => go_on(resume),
        args::Campaign::List => {
            for (name, _) in all(&ROBOTS) {
                println!("{name:<20}{}", shipped(&ROBOTS, name)?.about);
            }
            Ok(ExitCode::SUCCESS)
        }
        args::Campaign::Show { name } => {
            print!("{}", shipped_text(&ROBOTS, name)?);
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn new(args: &CampaignRun) -> CommandResult {
    let path = Path::new(&args.campaign);
    let mut file = if path.is_file() { CampaignFile::load(path)? } else { shipped(&ROBOTS, &args.campaign)? };
    file.seconds = args.seconds.or(file.seconds);
    file.repetitions = args.repetitions.unwrap_or(file.repetitions);
    if args.guests {
        file.guests.get_or_insert_default();
    }
    for setting in &args.set {
        file.set_text(setting)?;
    }
    for only in &args.only {
        file.keep_only(only)?;
    }
    if args.dry_run {
        // Nothing is measured for a look: runs are shown as configured.
        let plan = Plan::resolve_with(&ROBOTS, &file, &mut |robot| {
            eprintln!(
                "{}: what this machine cannot carry is decided when the campaign begins ([scale])",
                robot.name()
            );
            Ok(())
        })?;
        print!("{}", print::plan(&plan));
        return Ok(ExitCode::SUCCESS);
    }
    let plan = Plan::resolve(&ROBOTS, &file)?;
    if let Some(text) = plan.scaled.as_ref().and_then(|scaled| ROBOTS.scaled_text(&plan.robot, scaled)) {
        eprintln!("{text}");
    }
    plan.check_labels(&labels(&args.common))?;
    let table = measure(&Campaign::create(ROBOTS, &args.runs, plan)?, &args.common)?;
    show(&table, args.common.json)
}

fn go_on(args: &CampaignResume) -> CommandResult {
    let table = measure(&Campaign::open(ROBOTS, &args.dir)?, &args.common)?;
    show(&table, args.common.json)
}

/// Conditions that hold now.
fn labels(common: &CampaignCommon) -> BTreeMap<String, String> {
    let kernel = common.kernel.iter().map(|kernel| ("kernel".to_owned(), kernel.clone()));
    common.label.iter().cloned().chain(kernel).collect()
}

/// Makes the runs of a campaign that are not made yet, each in a process, or a guest, of its own.
pub fn measure(campaign: &Campaign, common: &CampaignCommon) -> Result<Table, Box<dyn std::error::Error>> {
    let stop = stop_flag()?;
    let maker = match &campaign.plan().file.guests {
        Some(guests) => {
            let maker = Maker::new(ROBOTS, guests, &std::env::current_exe()?)?;
            let kernels = campaign.plan().runs.iter().filter_map(|run| run.setup.kernel.as_deref());
            let kernels: BTreeSet<&str> = kernels.collect();
            maker.fetch(kernels.into_iter(), &mut |line| eprintln!("{line}"));
            Some(maker)
        }
        None => None,
    };
    let make = |order: &RunOrder<'_>| {
        if let Some(maker) = &maker {
            return maker.make(order, &stop);
        }
        let mut options = vec![OsString::from("--setup"), order.setup.into()];
        if let Some(seconds) = order.run.setup.seconds {
            options.extend(["--seconds".into(), seconds.to_string().into()]);
        }
        child::run(order.config, order.dir, order.resume, &options, &stop)
    };
    let labels = labels(common);
    let mut progress = print::CampaignProgress::new();
    let table = campaign.measure(
        &labels,
        common.any_machine,
        &make,
        &|| !stop.load(Ordering::Acquire),
        &mut |event, done, all| progress.see(&event, done, all),
    );
    progress.clear();
    Ok(table?)
}

fn show(table: &Table, json: bool) -> CommandResult {
    if json {
        println!("{}", serde_json::to_string_pretty(table)?);
    } else {
        print!("{}", print::table(table));
    }
    Ok(ExitCode::SUCCESS)
}

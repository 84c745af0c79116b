//! `takt kernels`

use std::path::Path;
use std::process::ExitCode;

use serde_json::json;
use takt_kernels::packages::{Listed, Store};
use takt_lab::campaign::{Campaign, CampaignFile, FactorSpec, Level, Order, Plan};
use takt_lab::kernels::{Guests, kernel_rows};

use super::tidy::Tidy;
use super::{CommandResult, campaign};
use crate::args::CampaignCommon;
use crate::args::kernels::{Fetch, Kernels, List, Run};
use crate::print;
use crate::registry::ROBOTS;

pub fn run(what: &Kernels) -> CommandResult {
    match what {
        Kernels::List(args) => list(args),
        Kernels::Fetch(args) => fetch(args),
        Kernels::Run(args) => measure(args),
    }
}

fn list(args: &List) -> CommandResult {
    let store = Store::open(args.cache.as_deref())?;
    let (all, error) = store.list()?;
    if let Some(error) = error {
        eprintln!("takt: {error}");
    }
    let shown = |kernel: &&Listed| args.all || !kernel.aliases.is_empty() || kernel.cached.is_some();
    let listed: Vec<&Listed> = all.iter().filter(shown).collect();
    if args.json {
        let row = |kernel: &&Listed| {
            json!({
                "name": kernel.name,
                "aliases": kernel.aliases,
                "package": kernel.package,
                "version": kernel.version,
                "size_bytes": kernel.size_bytes,
                "offered": kernel.offered,
                "cached": kernel.cached.as_ref().map(|kernel| &kernel.vmlinuz),
                "preemption": kernel.preemption.map(|preemption| preemption.to_string()),
            })
        };
        let rows: Vec<_> = listed.iter().map(row).collect();
        println!("{}", serde_json::to_string_pretty(&json!({ "kernels": rows, "cache": store.folder() }))?);
    } else {
        print!("{}", print::kernel_list(&listed, all.len() - listed.len(), store.folder()));
    }
    Ok(ExitCode::SUCCESS)
}

fn fetch(args: &Fetch) -> CommandResult {
    let store = Store::open(args.cache.as_deref())?;
    for name in &args.names {
        let kernel = store.get(name, &mut |line| eprintln!("{line}"))?;
        let preemption = kernel.preemption.map_or("unknown".to_owned(), |preemption| preemption.to_string());
        println!("{name}: {} ({preemption}) {}", kernel.release, kernel.vmlinuz.display());
    }
    Ok(ExitCode::SUCCESS)
}

fn measure(args: &Run) -> CommandResult {
    let plan = Plan::resolve(&ROBOTS, &campaign_of(args)?)?;
    let _tidy = Tidy::before(&args.runs);
    let campaign = Campaign::create(ROBOTS, &args.runs, plan)?;
    let measured = campaign::measure(&campaign, &CampaignCommon::default())?;
    let table = &measured.table;
    let rows = kernel_rows(table, None);
    if args.json {
        let differing = &table.machine_differences;
        let all = json!({ "rows": rows, "campaign": campaign.path(), "machine_differences": differing });
        println!("{}", serde_json::to_string_pretty(&all)?);
    } else {
        print!("{}", print::kernel_rows(&rows, table));
    }
    // A comparison of one kernel with nothing is none.
    let failed = rows.iter().any(|row| row.run_dirs.is_empty());
    Ok(if failed { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

/// The campaign that the options describe: the kernels, and whatever else has several values, are
/// its factors.
fn campaign_of(args: &Run) -> Result<CampaignFile, Box<dyn std::error::Error>> {
    let path = Path::new(&args.robot);
    let (robot, config) =
        if path.is_file() { (None, Some(path.to_owned())) } else { (Some(args.robot.clone()), None) };
    let file = ROBOTS.load_or_shipped(&args.robot)?;
    let seconds = match (args.iterations, file.rate_hz()) {
        (Some(iterations), Some(rate_hz)) => Some(iterations as f64 / rate_hz),
        (Some(_), None) => {
            return Err(format!("--iterations: {} has no fixed rate; pass --seconds", file.robot()).into());
        }
        (None, _) => args.seconds,
    };
    let guests = Guests {
        boot: args.boot.split_whitespace().map(str::to_owned).collect(),
        trace: args.trace,
        ..args.guests.apply(Guests::default())
    };
    let factor = |name: &str, values: &[String]| FactorSpec {
        name: name.to_owned(),
        values: values.iter().map(|value| Level::Value(value.clone().into())).collect(),
        ..FactorSpec::default()
    };
    let mut factors = vec![factor("kernel", &args.kernels)];
    let mut set = toml::Table::new();
    for (name, values) in [("policy", &args.policy), ("stress", &args.stress)] {
        match values.as_slice() {
            [] => {}
            [one] => drop(set.insert(name.to_owned(), one.clone().into())),
            several => factors.push(factor(name, several)),
        }
    }
    if let Some(noise) = args.noise {
        set.insert("noise".to_owned(), i64::from(noise).into());
    }
    let mut campaign = CampaignFile {
        name: format!("kernels-{}", file.robot()),
        about: format!("{} on the kernels {}", file.title(), args.kernels.join(", ")),
        paper: None,
        robot,
        config,
        repetitions: args.repeat,
        order: Order::Given,
        seed: 0,
        seconds,
        guests: Some(guests),
        quick: None,
        set,
        factors,
    };
    for setting in &args.set {
        campaign.set_text(setting)?;
    }
    // As from a file: every value is checked.
    Ok(CampaignFile::parse(&toml::to_string(&campaign)?, "takt kernels run")?)
}

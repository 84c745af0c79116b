//! `takt demo`

use std::process::ExitCode;

use takt_lab::{RunOptions, View};
use takt_robot_cell::lab::CellFile;
use takt_robot_cell::lab::bench::{Bench, BenchPlan};
use takt_robot_cell::lab::run::run as run_cell;
use takt_robot_cell::tasks::PolicyMix;
use takt_rundir::sha256_of;

use super::{CommandResult, bench, stop_flag};
use crate::args::Demo;
use crate::print;

pub fn run(args: &Demo) -> CommandResult {
    let stop = stop_flag()?;
    let file = CellFile::demo()?;
    let view = match (args.headless, args.terminal) {
        (true, _) => View::None,
        (_, true) => View::Terminal,
        _ => View::Web,
    };
    let options =
        RunOptions { seconds: Some(args.seconds), view, ..RunOptions::below(&args.runs, stop.clone()) };
    let mut progress = print::RobotProgress::new(args.terminal);
    let summary = run_cell(&file, &options, &mut |event| progress.see(&event))?;
    progress.clear();
    if !args.json {
        print!("{}", print::summary(&summary));
        println!(
            "\nThe same cell with and without interference, under an unmodified scheduler and under DL+RR:"
        );
    }

    let config = toml::to_string(&file)?;
    let plan = BenchPlan {
        policies: vec![PolicyMix::CfsCfs, PolicyMix::DlRr],
        noise: vec![0, 128],
        seconds: args.bench_seconds,
        repeat: 1,
        config_sha256: sha256_of(config.as_bytes()),
        against_sha256: None,
    };
    let short = Bench::create(&args.runs, plan)?;
    let rows = bench::measure(&short, &config, args.bench_seconds, &stop)?;
    if args.json {
        let mut value = serde_json::to_value(&summary)?;
        value["bench"] = serde_json::to_value(&rows)?;
        println!("{}", serde_json::to_string_pretty(&value)?);
    } else {
        print!("{}", print::rows(&rows));
        println!("\n{}", print::verdict(&summary));
        println!("Run directory: {}", summary.run_dir);
    }
    Ok(ExitCode::SUCCESS)
}

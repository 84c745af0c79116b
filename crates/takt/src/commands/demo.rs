//! `takt demo`

use takt_lab::campaign::{Campaign, Plan};
use takt_lab::{RunOptions, View};
use takt_robot_cell::lab::CellFile;
use takt_robot_cell::lab::bench::{Matrix, campaign};
use takt_robot_cell::lab::run::run as run_cell;
use takt_robot_cell::tasks::PolicyMix;

use super::tidy::Tidy;
use super::{CommandResult, bench, failed, stop_flag};
use crate::args::Demo;
use crate::print;
use crate::registry::ROBOTS;

/// A run of this length can be a PASS.
const ENOUGH_S: f64 = 32.0;

pub fn run(args: &Demo) -> CommandResult {
    let file = CellFile::demo()?;
    let view = match (args.headless, args.terminal) {
        (true, _) => View::None,
        (_, true) => View::Terminal,
        _ => View::Web,
    };
    let options =
        RunOptions { seconds: Some(args.seconds), view, ..RunOptions::below(&args.runs, stop_flag()?) };
    let mut progress = print::RobotProgress::new(args.terminal);
    let _tidy = Tidy::before(&args.runs);
    let summary = run_cell(&file, &options, &mut |event| progress.see(&event))
        .inspect_err(|error| failed::note(progress.run_dir(), error))?;
    progress.clear();
    if !args.json {
        print!("{}", print::summary(&summary));
        println!(
            "\nThe same cell with and without interference, under an unmodified scheduler and under DL+RR, {} s each{}:",
            args.bench_seconds,
            if args.bench_seconds < ENOUGH_S {
                format!(
                    " (this shows the difference but is too short for a PASS; `--bench-seconds {ENOUGH_S}` is long enough)"
                )
            } else {
                String::new()
            }
        );
    }

    let matrix = Matrix {
        policies: vec![PolicyMix::CfsCfs, PolicyMix::DlRr],
        noise: vec![0, 128],
        seconds: args.bench_seconds,
        repeat: 1,
    };
    let plan = Plan::resolve(&ROBOTS, &campaign(&matrix, &file, None)?)?;
    let (measured, mut rows) = bench::measure(&Campaign::create(ROBOTS, &args.runs, plan)?)?;
    // The bench's `--seconds` is the length of the first run here.
    for sentence in rows.iter_mut().flat_map(|row| &mut row.sentences) {
        *sentence = sentence.replace("`--seconds ", "`--bench-seconds ");
    }
    if args.json {
        let mut value = serde_json::to_value(&summary)?;
        value["bench"] = serde_json::to_value(&rows)?;
        println!("{}", serde_json::to_string_pretty(&value)?);
    } else {
        print!("{}", print::rows(&rows));
        println!("\n{}", print::verdict(&summary));
        println!("Run directory: {}", summary.run_dir);
    }
    Ok(measured.status())
}

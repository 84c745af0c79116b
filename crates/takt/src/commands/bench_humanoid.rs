//! `takt bench humanoid`: one run at 1 kHz, with the 2009 paper's table.

use std::process::ExitCode;

use takt_lab::RunOptions;
use takt_robot_humanoid::lab::{HumanoidFile, WireKind, bench};

use super::{CommandResult, stop_flag};
use crate::args::bench::BenchHumanoid;
use crate::print;
use crate::registry::ROBOTS;

pub fn run(args: &BenchHumanoid) -> CommandResult {
    let robot = match &args.config {
        Some(path) => ROBOTS.load(path)?,
        None => ROBOTS.shipped("humanoid")?,
    };
    let Some(mut file) = robot.get::<HumanoidFile>().cloned() else {
        return Err(format!(
            "--config is for the robot \"{}\"; `takt bench humanoid` needs \"humanoid\"",
            robot.robot()
        )
        .into());
    };
    if let Some(devices) = args.devices {
        file.motion.devices = devices;
    }
    if let Some(wire) = &args.wire {
        file.wire = match wire.as_str() {
            "veth" => WireKind::Veth,
            "in-process" => WireKind::InProcess,
            name if name.starts_with("xdp:") => {
                WireKind::Xdp { name: name["xdp:".len()..].to_owned(), queue: 0, attach: Default::default() }
            }
            name => WireKind::Interface { name: name.to_owned() },
        };
    }
    file.validate()?;
    let options = RunOptions { seconds: Some(args.seconds), ..RunOptions::below(&args.runs, stop_flag()?) };
    let mut progress = print::RobotProgress::new(false);
    let measured = bench(&file, &options, !args.untraced, &mut |event| progress.see(&event))?;
    progress.clear();
    if args.json {
        println!("{}", serde_json::to_string_pretty(&measured)?);
    } else {
        print!("{}", measured.text());
    }
    Ok(ExitCode::SUCCESS)
}

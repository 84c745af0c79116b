//! `takt workload`: processes that behave like ROS 2 nodes.

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Duration;

use takt_robot_ros::Load;
use takt_ros_workload::system::{EIGHT_TRACKERS, TURTLEBOT};
use takt_ros_workload::{Program, Running, System, serve};

use super::{CommandResult, stop_flag};
use crate::args;

pub fn run(args: &args::Workload) -> CommandResult {
    if args.show {
        print!(
            "{}",
            match args.load {
                Load::Paper => TURTLEBOT,
                Load::EightTrackers => EIGHT_TRACKERS,
            }
        );
        return Ok(ExitCode::SUCCESS);
    }
    let system = match &args.system {
        Some(path) => {
            let text = takt_files::read_configuration(path)
                .map_err(|error| format!("{}: {error}", path.display()))?;
            System::parse(&text).map_err(|error| format!("{}: {error}", path.display()))?
        }
        None => args.load.system(),
    };
    // The nodes that the bench starts are already fitted and stay as they are.
    let (system, _) = system.fitted(takt_robot_ros::cores());
    if let (Some(node), Some(directory)) = (&args.node, &args.directory) {
        serve(&system, node, directory)?;
        return Ok(ExitCode::SUCCESS);
    }
    let stop = stop_flag()?;
    let sockets = tempfile::Builder::new().prefix("takt-").tempdir()?;
    let mut program = node_program(args, sockets.path())?;
    program.preload_stand_in(sockets.path())?;
    let mut running = Running::start(&system, &program)?;
    for (node, pid) in running.processes() {
        println!("{node}: process {pid}");
    }
    running.begin(Duration::ZERO, Duration::from_secs_f64(args.seconds), system.phases.len())?;
    while !stop.load(Ordering::Acquire) && !running.ended() {
        std::thread::sleep(Duration::from_millis(20));
    }
    if stop.load(Ordering::Acquire) {
        // Dropping it ends the nodes.
        return Ok(ExitCode::SUCCESS);
    }
    let mut whole = true;
    for ended in running.wait() {
        match ended.losses {
            Some(losses) => println!("{}: {losses}", ended.node),
            None => {
                println!("{}: ended before its time", ended.node);
                whole = false;
            }
        }
    }
    Ok(if whole { ExitCode::SUCCESS } else { ExitCode::from(2) })
}

/// This program again, as one node.
fn node_program(args: &args::Workload, sockets: &std::path::Path) -> std::io::Result<Program> {
    let mut arguments: Vec<OsString> = vec!["workload".into()];
    match &args.system {
        Some(path) => arguments.push(path.clone().into_os_string()),
        None => arguments.extend(["--load".into(), args.load.to_string().into()]),
    }
    arguments.extend(["--directory".into(), sockets.as_os_str().to_owned(), "--node".into()]);
    Ok(Program { path: std::env::current_exe()?, arguments, environment: Vec::new() })
}

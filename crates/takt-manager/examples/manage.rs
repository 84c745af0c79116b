//! The manager without the rest of Takt:
//! `manage GOALS SECONDS [--observe] [--soft] -- PROGRAM ARGUMENTS`. With `stand-in` in the
//! environment variable TAKT_PROBE the probe brings its stand-in for ROS 2's tracing library.
//!
//! Prints the log while it runs and the status at the end; metrics are served on a free port.

use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use takt_manager::enact::platform;
use takt_manager::goals::Goals;
use takt_manager::live::launch::Launched;
use takt_manager::live::{Live, Log, Options, metrics};
use takt_manager::restore::watchdog;
use takt_ros::preload::{ProbeOptions, ProbeSession};

type Failure = Box<dyn std::error::Error>;

fn watchdog_command(state: &Path) -> std::io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("--watchdog").arg(state);
    Ok(command)
}

fn main() -> Result<ExitCode, Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [first, state] = arguments.as_slice()
        && first == "--watchdog"
    {
        if let Some(restored) = watchdog::run(Path::new(state))? {
            eprintln!("the manager was killed: {restored}");
        }
        return Ok(ExitCode::SUCCESS);
    }
    let split = arguments.iter().position(|word| word == "--").ok_or("no program after `--`")?;
    let (ours, program) = (&arguments[..split], &arguments[split + 1..]);
    let goals = Goals::read(Path::new(ours.first().ok_or("no goals file")?))?;
    let seconds: f64 = ours.get(1).ok_or("no number of seconds")?.parse()?;
    let platform = platform(&goals.options)?;
    let stand_in = std::env::var("TAKT_PROBE").is_ok_and(|probe| probe == "stand-in");
    let session = ProbeSession::create(&ProbeOptions { stand_in, ..ProbeOptions::default() })?;
    let mut options = Options {
        observe: ours.iter().any(|word| word == "--observe"),
        log: Log::new(Some(Box::new(std::io::stdout())), None),
        watchdog: Some(watchdog_command),
        ..Options::default()
    };
    if ours.iter().any(|word| word == "--soft") {
        options.enact.soft = takt_manager::enact::Soft::Soft;
    }
    if let Ok(mode) = std::env::var("TAKT_MODE") {
        options.enact.modes = vec![serde_json::from_str(&format!("\"{mode}\""))?];
    }
    let mut command = Command::new(program.first().ok_or("no program after `--`")?);
    command.args(&program[1..]);
    let mut live = Live::new(goals, platform, session.probe()?, options)?;
    let server = metrics::Server::start(([127, 0, 0, 1], 0).into(), live.board())?;
    println!("metrics at http://{}/metrics", server.address());
    let mut launched = Launched::start(command, &session)?;
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    let watcher = std::thread::spawn(move || {
        let until = Instant::now() + Duration::from_secs_f64(seconds);
        while Instant::now() < until && launched.ended().is_ok_and(|status| status.is_none()) {
            std::thread::sleep(Duration::from_millis(100));
        }
        flag.store(true, Ordering::Release);
        while launched.ended().is_ok_and(|status| status.is_none()) {
            launched.end();
            std::thread::sleep(Duration::from_millis(50));
        }
    });
    live.run(&stop)?;
    let finished = live.finish()?;
    let _ = watcher.join();
    println!("\n{}", finished.status.text());
    println!("{:#?}", finished.status.cost);
    Ok(ExitCode::SUCCESS)
}

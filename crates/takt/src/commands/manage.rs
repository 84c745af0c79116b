//! `takt manage`: latency goals kept on running ROS 2 processes.

use std::ffi::OsString;
use std::fs::File;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use takt_lab::ros::watchdog_command;
use takt_manager::live::launch::Launched;
use takt_manager::live::{Board, Finished, Live, Log, Options, metrics};
use takt_manager::restore::{self, watchdog};
use takt_manager::system::{Linux, platform};
use takt_manager::{Goals, recorded};
use takt_model::Model;
use takt_ros::Source;
use takt_ros::ctf::Recording;
use takt_ros::preload::{Session, SessionOptions};
use takt_ros::uprobes::{Probe as Uprobes, UprobeOptions};

use super::{CommandResult, stop_flag};
use crate::args;
use crate::print;

pub fn run(args: &args::Manage) -> CommandResult {
    if let Some(state) = &args.watchdog {
        if let Some(restored) = watchdog::run(state)? {
            eprintln!("takt: the manager was killed: {restored}");
        }
        return Ok(ExitCode::SUCCESS);
    }
    if args.restore {
        let state = args.state.clone().unwrap_or_else(restore::default_path);
        match restore::restore(&mut Linux::new(), &state)? {
            Some(restored) => println!("{restored}"),
            None => println!("{}: no manager has left anything to be restored", state.display()),
        }
        return Ok(ExitCode::SUCCESS);
    }
    let path = args.goals.as_ref().ok_or("which goals? takt manage GOALS.toml -- ros2 launch …")?;
    let goals = Goals::read(path)?;
    if let Some(folder) = &args.trace {
        return examine(args, &goals, folder);
    }
    match (args.command.split_first(), args.pid.as_slice()) {
        (Some((program, arguments)), []) => launch(args, goals, program, arguments),
        (None, pids) if !pids.is_empty() => attach(args, goals, pids),
        (Some(_), _) => Err("a command and --pid: give one of them".into()),
        (None, _) => Err("nothing to manage: give a command after --, or --pid of running processes".into()),
    }
}

/// Reads a recording.
fn examine(args: &args::Manage, goals: &Goals, folder: &Path) -> CommandResult {
    let open = || Recording::open(folder);
    let seen = recorded::examine(open, goals, &platform(&goals.options)?, &takt_model::Options::default())?;
    write_dot(args, &seen.model)?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&print::recorded_json(&seen))?);
    } else {
        print!("{}\n{}", seen.model.to_text(), print::recorded(&seen));
    }
    Ok(ExitCode::SUCCESS)
}

/// Starts the command under the preload probe.
fn launch(args: &args::Manage, goals: Goals, program: &OsString, arguments: &[OsString]) -> CommandResult {
    let stop = stop_flag()?;
    let session = Session::create(&SessionOptions::default())?;
    let live = Live::new(goals.clone(), platform(&goals.options)?, session.probe()?, options(args)?)?;
    let mut command = Command::new(program);
    command.args(arguments);
    if args.json {
        // Standard output is the result's.
        command.stdout(std::io::stderr());
    }
    let mut launched =
        Launched::start(command, &session).map_err(|error| format!("{}: {error}", program.display()))?;
    let ended = Arc::new(AtomicBool::new(false));
    let watcher = {
        let (ended, until) = (Arc::clone(&ended), until(args));
        std::thread::Builder::new().name("takt-launch".to_owned()).spawn(move || {
            let over = || stop.load(Ordering::Acquire) || until.is_some_and(|until| Instant::now() >= until);
            while launched.ended().is_ok_and(|status| status.is_none()) && !over() {
                std::thread::sleep(Duration::from_millis(50));
            }
            ended.store(true, Ordering::Release);
            // Everything is restored by the main thread before the program has gone.
            while launched.ended().is_ok_and(|status| status.is_none()) {
                launched.end();
                std::thread::sleep(Duration::from_millis(50));
            }
            launched.ended().ok().flatten()
        })?
    };
    let finished = keep(args, &goals, live, &ended, |probe| {
        for broken in probe.take_broken() {
            eprintln!("takt: {}: {}", broken.label, broken.error);
        }
        probe.finish();
    })?;
    let status = watcher.join().unwrap_or_default();
    report(args, &finished)?;
    // A program that failed by itself is worth telling; one that was asked to end is not.
    let failed = status.is_some_and(|status| !status.success() && status.code().is_some());
    if failed && until(args).is_none() {
        eprintln!(
            "takt: the command ended with {}",
            status.map(|status| status.to_string()).unwrap_or_default()
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// Attaches to processes that run already.
fn attach(args: &args::Manage, goals: Goals, pids: &[u32]) -> CommandResult {
    let stop = stop_flag()?;
    let probe = Uprobes::attach(&UprobeOptions { pids: pids.to_vec(), ..UprobeOptions::default() })?;
    let live = Live::new(goals.clone(), platform(&goals.options)?, probe, options(args)?)?;
    let ended = Arc::new(AtomicBool::new(false));
    let until = until(args);
    let watcher = {
        let (ended, pids) = (Arc::clone(&ended), pids.to_vec());
        std::thread::Builder::new().name("takt-attach".to_owned()).spawn(move || {
            let alive = |pid: &u32| PathBuf::from(format!("/proc/{pid}")).exists();
            while !stop.load(Ordering::Acquire)
                && until.is_none_or(|until| Instant::now() < until)
                && pids.iter().any(alive)
            {
                std::thread::sleep(Duration::from_millis(50));
            }
            ended.store(true, Ordering::Release);
        })?
    };
    let finished = keep(args, &goals, live, &ended, |_| {})?;
    // It has set the flag that ended the loop.
    let _ = watcher.join();
    report(args, &finished)?;
    Ok(ExitCode::SUCCESS)
}

fn until(args: &args::Manage) -> Option<Instant> {
    args.seconds.map(|seconds| Instant::now() + Duration::from_secs_f64(seconds))
}

fn options(args: &args::Manage) -> Result<Options, Box<dyn std::error::Error>> {
    let json = match &args.log {
        Some(path) => {
            let file = File::create(path).map_err(|error| format!("{}: {error}", path.display()))?;
            Some(Box::new(file) as Box<dyn Write + Send>)
        }
        None => None,
    };
    let text: Option<Box<dyn Write + Send>> = match (args.screen, args.json) {
        (true, _) => None,
        (false, true) => Some(Box::new(std::io::stderr())),
        (false, false) => Some(Box::new(std::io::stdout())),
    };
    let mut options = Options {
        observe: args.observe,
        log: Log::new(text, json),
        watchdog: Some(watchdog_command),
        ..Options::default()
    };
    // Who only looks wants to see what has ended, too.
    options.model.keep_ended = args.observe;
    if let Some(state) = &args.state {
        options.enact.state = state.clone();
    }
    if args.soft {
        options.enact.soft = takt_manager::enact::Soft::Soft;
    }
    Ok(options)
}

/// Runs the manager until the flag is set, with metrics and screen beside it; then restores everything.
fn keep<S: Source>(
    args: &args::Manage,
    goals: &Goals,
    mut live: Live<S>,
    ended: &Arc<AtomicBool>,
    at_end: impl FnOnce(&mut S),
) -> Result<Finished, Box<dyn std::error::Error>> {
    let _server = match args.metrics {
        Some(address) => {
            let server = metrics::Server::start(address, live.board())?;
            eprintln!("metrics at http://{}/metrics", server.address());
            Some(server)
        }
        None => None,
    };
    let screen =
        (args.screen && std::io::stdout().is_terminal()).then(|| show(live.board(), Arc::clone(ended)));
    let outcome = live.run(ended);
    ended.store(true, Ordering::Release);
    at_end(live.source_mut());
    if outcome.is_ok() {
        // The last events, and a plan if there was none yet.
        let now_ns = takt_rt::clock::monotonic_ns();
        live.step(now_ns)?;
        if live.plan().is_none() && !goals.chains.is_empty() {
            live.decide(now_ns)?;
        }
    }
    let finished = live.finish()?;
    if let Some(screen) = screen {
        // A screen that broke has said so.
        let _ = screen.join();
    }
    outcome?;
    Ok(finished)
}

/// The status, twice a second, on the terminal.
fn show(board: Board, ended: Arc<AtomicBool>) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        while !ended.load(Ordering::Acquire) {
            print!("\x1b[2J\x1b[H{}", board.read().text());
            let _ = std::io::stdout().flush();
            std::thread::sleep(Duration::from_millis(500));
        }
    })
}

fn report(args: &args::Manage, finished: &Finished) -> Result<(), Box<dyn std::error::Error>> {
    write_dot(args, &finished.model)?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&print::managed_json(finished))?);
    } else {
        if args.observe {
            print!("{}", finished.model.to_text());
        }
        print!("\n{}", finished.status.text());
    }
    Ok(())
}

fn write_dot(args: &args::Manage, model: &Model) -> Result<(), String> {
    let Some(path) = &args.dot else { return Ok(()) };
    let dot = model.to_dot(takt_model::DotOptions::default());
    std::fs::write(path, dot).map_err(|error| format!("{}: {error}", path.display()))
}

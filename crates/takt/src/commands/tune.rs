//! `takt tune`: which settings of this machine make a loop less late.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use takt_doctor::{DoctorError, default_state, journal, revert};
use takt_tune::{LiveOptions, Options, SearchSettings, TuneError, TuneReport, tune};
use takt_watch::Target;

use super::{CommandResult, stop_flag, watch};
use crate::args::tune::Tune;
use crate::print;

/// Beside the doctor's: what is only tried must not be mixed with what was applied.
fn state_file(args: &Tune) -> PathBuf {
    args.state.clone().unwrap_or_else(|| default_state().with_file_name("tune.json"))
}

pub fn run(args: &Tune) -> CommandResult {
    let state = state_file(args);
    if args.watchdog {
        let changed = journal::watchdog(&state)?;
        if !changed.is_empty() {
            eprintln!("takt: the search was killed: {} settings were put back", changed.len());
        }
        return Ok(ExitCode::SUCCESS);
    }
    if args.restore {
        return restore(&state);
    }
    let stop = stop_flag()?;
    let mut child = start(args)?;
    let target = match (&child, args.pid, &args.name) {
        (Some(child), ..) => Target::Tree(i32::try_from(child.id())?),
        (None, Some(pid), _) => Target::Process(pid),
        (None, None, Some(pattern)) => Target::Name(pattern.clone()),
        (None, None, None) => {
            return Err(
                "nothing to tune: name a robot's file, --pid N, --name PATTERN, or a command after `--`"
                    .into(),
            );
        }
    };
    let options = Options {
        live: LiveOptions {
            target,
            aim: args.aim.clone(),
            period: args.period,
            block: None,
            watchdog: Some(watchdog(&state)?),
            state,
        },
        search: SearchSettings { seed: args.seed, ..SearchSettings::default() },
        links: args.link.clone(),
        budget: Duration::from_secs_f64(args.seconds),
        only: args.only.clone(),
        only_list: args.list,
    };
    let tuned = tune(options, &stop, &mut |line| eprintln!("takt: {line}"));
    if let Some(child) = &mut child {
        watch::end(child)?;
    }
    let mut report = match tuned {
        Err(TuneError::Stopped) => {
            eprintln!("takt: {}", TuneError::Stopped);
            return Ok(ExitCode::from(2));
        }
        tuned => tuned?,
    };
    if !args.list {
        write(&mut report, args.out.as_deref())?;
    }
    if args.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print!("{}", print::tuned(&report));
    }
    Ok(ExitCode::SUCCESS)
}

fn restore(state: &Path) -> CommandResult {
    match revert(state) {
        Ok(changed) => println!("{} settings were put back.", changed.len()),
        Err(DoctorError::NothingApplied { .. }) => println!("Nothing is left of a search."),
        Err(error) => return Err(error.into()),
    }
    Ok(ExitCode::SUCCESS)
}

fn watchdog(state: &Path) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["tune", "--watchdog", "--state"]).arg(state);
    Ok(command)
}

/// Starts the command, or the run of the robot, if there is one. Its output must not stand between the lines of the result.
fn start(args: &Tune) -> Result<Option<Child>, String> {
    let own = |robot: &PathBuf| -> Result<Vec<OsString>, String> {
        let takt = std::env::current_exe().map_err(|error| format!("this program's own path: {error}"))?;
        // The search ends it; by itself it does only when that is gone.
        let seconds = 2.0 * args.seconds + 120.0;
        let mut words: Vec<OsString> = vec![takt.into(), "run".into(), robot.into()];
        words.extend(["--json", "--seconds"].map(OsString::from));
        words.push(seconds.to_string().into());
        words.push("--parent".into());
        words.push(std::process::id().to_string().into());
        Ok(words)
    };
    let words = match &args.robot {
        Some(robot) => own(robot)?,
        None => args.command.clone(),
    };
    let Some((program, rest)) = words.split_first() else { return Ok(None) };
    let mut command = Command::new(program);
    command.args(rest).stdout(Stdio::null());
    let child = command.spawn();
    child.map(Some).map_err(|error| format!("{}: {error}", program.to_string_lossy()))
}

/// A new folder for what was found.
fn folder(out: Option<&Path>) -> io::Result<PathBuf> {
    if let Some(out) = out {
        std::fs::create_dir_all(out)?;
        return Ok(out.to_owned());
    }
    let mut number = 1;
    loop {
        let path =
            PathBuf::from(if number == 1 { "takt-tuned".to_owned() } else { format!("takt-tuned-{number}") });
        match std::fs::create_dir(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < 1000 => number += 1,
            made => return made.map(|()| path),
        }
    }
}

/// The table as JSON, and, where anything is kept, the files that apply it.
fn write(report: &mut TuneReport, out: Option<&Path>) -> Result<(), Box<dyn std::error::Error>> {
    let shown = out.map_or_else(|| PathBuf::from("takt-tuned"), Path::to_owned);
    let folder = folder(out).map_err(|source| TuneError::File { path: shown, source })?;
    let folder = std::path::absolute(&folder).unwrap_or(folder);
    let mut files: Vec<(PathBuf, String)> = Vec::new();
    if report.kept().next().is_some() {
        let apply = folder.join("tuned.toml");
        files.push((folder.join("takt.conf"), report.systemd(&apply.to_string_lossy())));
        files.push((folder.join("tuned.conf"), report.profile()));
        files.insert(0, (apply, report.tuned().to_toml()?));
    }
    report.files = files.iter().map(|file| file.0.clone()).collect();
    report.files.push(folder.join("tune.json"));
    files.push((folder.join("tune.json"), serde_json::to_string_pretty(&report)?));
    for (path, text) in files {
        takt_files::write(&path, text).map_err(|source| TuneError::File { path, source })?;
    }
    Ok(())
}

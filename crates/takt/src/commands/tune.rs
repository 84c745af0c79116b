//! `takt tune`: which settings of this machine make a loop less late.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use takt_host::doctor::{DoctorError, default_state, journal, may_change, revert};
use takt_tune::files::{self, Left};
use takt_tune::{Aim, LiveOptions, Options, SearchSettings, TuneError, TuneReport, tune};
use takt_watch::Target;

use super::{CommandResult, stop_flag, tune_guests, watch};
use crate::args::tune::Tune;
use crate::print;
use crate::registry::ROBOTS;

/// Beside the doctor's: what is only tried must not be mixed with what was applied.
fn state_file(args: &Tune) -> PathBuf {
    args.state.clone().unwrap_or_else(|| default_state().with_file_name("tune.json"))
}

pub fn run(args: &Tune) -> CommandResult {
    let state = state_file(args);
    if let Some(of) = args.watchdog {
        let changed = journal::watchdog(&state, of)?;
        if !changed.is_empty() {
            eprintln!("takt: the search was killed; {} settings were restored", changed.len());
        }
        return Ok(ExitCode::SUCCESS);
    }
    if args.restore {
        may_change("tune --restore")?;
        return restore(&state);
    }
    let stop = stop_flag()?;
    let aim = aim(args)?;
    let mut child = start(args)?;
    let summary = child.as_mut().and_then(|child| child.stdout.take()).map(read);
    let target = match (&child, args.pid, &args.name) {
        // A simulator that a robot starts beside itself may have threads of the same name.
        (Some(child), ..) if args.robot.is_some() => Target::Process(i32::try_from(child.id())?),
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
            aim,
            period: args.period,
            block: args.block,
            budget: Duration::from_secs_f64(args.seconds),
            watchdog: Some(watchdog(&state)?),
            state,
        },
        search: SearchSettings { seed: args.seed, ..SearchSettings::default() },
        links: args.link.clone(),
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
        // A robot stops by its own limits; which one it was is in the summary of its run.
        Err(error @ TuneError::Ended { .. }) => {
            return Err(match summary.and_then(verdict) {
                Some(verdict) => format!("{error}. The robot's run: {verdict}").into(),
                None => error.into(),
            });
        }
        tuned => tuned?,
    };
    // Guests show their settings without the loop, whose load would only make them slower.
    let folder = if args.list && !args.guests { None } else { Some(folder(args.out.as_deref())?) };
    if let (true, false, Some(folder)) = (args.guests, report.stopped, &folder)
        && let Err(error) = tune_guests::show(&mut report, &args.kernel, &folder.join("guests"))
    {
        report.notes.push(format!("the boot parameters were not tried in guests: {error}"));
    }
    if let Some(folder) = &folder {
        write(&mut report, folder)?;
    }
    if args.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print!("{}", print::tuned(&report));
    }
    // The user requested a complete search.
    Ok(if report.stopped { ExitCode::from(2) } else { ExitCode::SUCCESS })
}

/// Reads all of a robot's summary, so that its run never waits for a reader.
fn read(mut summary: ChildStdout) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut text = String::new();
        // Cut short, it is no JSON, and nothing is reported of it.
        let _ = summary.read_to_string(&mut text);
        text
    })
}

/// The verdict of a robot's run.
fn verdict(summary: JoinHandle<String>) -> Option<String> {
    let summary: serde_json::Value = serde_json::from_str(&summary.join().ok()?).ok()?;
    Some(summary.get("sentence")?.as_str()?.to_owned())
}

fn restore(state: &Path) -> CommandResult {
    match revert(state) {
        Ok(changed) => println!("{} settings were restored.", changed.len()),
        Err(DoctorError::NothingApplied { .. }) => println!("No search has left anything to restore."),
        Err(error) => return Err(error.into()),
    }
    Ok(ExitCode::SUCCESS)
}

fn watchdog(state: &Path) -> io::Result<Vec<OsString>> {
    let mut command: Vec<OsString> = vec![std::env::current_exe()?.into()];
    command.extend(["tune", "--watchdog"].map(OsString::from));
    command.push(std::process::id().to_string().into());
    command.push("--state".into());
    command.push(state.into());
    Ok(command)
}

/// The aim; of a robot's file its critical thread is meant, where nobody names another.
fn aim(args: &Tune) -> Result<Aim, Box<dyn std::error::Error>> {
    let mut aim = args.aim.clone();
    if let (Some(robot), None) = (&args.robot, &aim.thread) {
        aim.thread = ROBOTS.find(robot)?.critical().ok().map(|critical| critical.thread.to_owned());
    }
    Ok(aim)
}

/// Starts the command, or the run of the robot, if there is one. A command's output must not stand
/// between the lines of the result; a robot's is its summary and can be read.
fn start(args: &Tune) -> Result<Option<Child>, String> {
    let own = |robot: &PathBuf| -> Result<Vec<OsString>, String> {
        let takt = std::env::current_exe().map_err(|error| format!("this program's own path: {error}"))?;
        // The search ends it; by itself it does only when that is gone.
        let seconds = 2.0 * args.seconds + 120.0;
        let mut words: Vec<OsString> = vec![takt.into(), "run".into(), robot.into()];
        words.extend(["--json", "--view", "none", "--seconds"].map(OsString::from));
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
    command.args(rest).stdout(if args.robot.is_some() { Stdio::piped() } else { Stdio::null() });
    let child = command.spawn();
    child.map(Some).map_err(|error| format!("{}: {error}", program.to_string_lossy()))
}

/// A new folder for what was found.
fn folder(out: Option<&Path>) -> Result<PathBuf, TuneError> {
    let shown = out.map_or_else(|| PathBuf::from("takt-tuned"), Path::to_owned);
    let folder = new_folder(out).map_err(|source| TuneError::File { path: shown, source })?;
    Ok(std::path::absolute(&folder).unwrap_or(folder))
}

fn new_folder(out: Option<&Path>) -> io::Result<PathBuf> {
    if let Some(out) = out {
        takt_files::make_folder(out)?;
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
fn write(report: &mut TuneReport, folder: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let left = files::left(report, folder, &std::env::current_exe()?)?;
    report.files = left.iter().map(|file| folder.join(&file.path)).collect();
    report.files.push(folder.join("tune.json"));
    let table = serde_json::to_string_pretty(&report)?;
    for Left { path, text, script } in
        left.into_iter().chain([Left { path: "tune.json".into(), text: table, script: false }])
    {
        let path = folder.join(path);
        let written = (|| {
            path.parent().map_or(Ok(()), fs::create_dir_all)?;
            takt_files::write(&path, text)?;
            if script { fs::set_permissions(&path, fs::Permissions::from_mode(0o755)) } else { Ok(()) }
        })();
        written.map_err(|source| TuneError::File { path, source })?;
    }
    Ok(())
}

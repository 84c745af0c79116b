//! `takt watch`: any program's loops, from outside.

use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use takt_trace::KeepAwake;
use takt_watch::link::Endpoint;
use takt_watch::{FollowBy, Options, Recording, Report, Settings, Target, TraceOptions, watch};

use super::{CommandResult, stop_flag};
use crate::args;
use crate::print;

/// What a command that is asked to end gets, one after the other, and the patience with each.
const ASKED: [(Signal, Duration); 3] = [
    (Signal::INT, Duration::from_secs(5)),
    (Signal::TERM, Duration::from_secs(5)),
    (Signal::KILL, Duration::from_secs(5)),
];

pub fn run(args: &args::Watch) -> CommandResult {
    let stop = stop_flag()?;
    let links = Endpoint::all(&args.link)?;
    let mut child = start(args)?;
    let target = match (&child, args.pid, &args.name, &args.cgroup) {
        (Some(child), ..) => Target::Tree(i32::try_from(child.id())?),
        (None, Some(pid), ..) => Target::Process(pid),
        (None, None, Some(pattern), _) => Target::Name(pattern.clone()),
        (None, None, None, Some(path)) => Target::cgroup(path)?,
        (None, None, None, None) => Target::Machine,
    };
    let microseconds = |us: Option<f64>| us.map(|us| (us * 1e3) as u64);
    let settings = Settings {
        links,
        period_ns: args.period.map(|period| period.as_nanos() as f64),
        late_ns: microseconds(args.late_us),
        deadline_ns: microseconds(args.deadline_us),
        follow: if args.all_events { FollowBy::Events } else { FollowBy::Auto },
        live: args.screen,
        probes: args.gc,
        ..Settings::default()
    };
    let keep_awake = if args.let_idle { KeepAwake::Off } else { KeepAwake::Auto };
    let trace = TraceOptions { keep_awake, ..TraceOptions::default() };
    let options = Options { target: target.clone(), seconds: args.seconds, settings, trace };
    let mut recording = Recording::create(&args.runs, args.out.as_deref(), &target.to_string())?;
    if args.flight_recorder {
        recording = recording.without_rows();
    }
    let watched = match args.screen {
        true => on_screen(&options, &stop, &mut recording),
        false => watch(&options, &stop, Some(&mut recording), &mut |_| {}),
    };
    let status = child.as_mut().map(end).transpose()?;
    let mut report = match watched {
        Ok(report) => report,
        Err(error) => {
            // A refusal leaves nothing behind; what was measured before an error stays, unsealed.
            if matches!(error, takt_watch::WatchError::Nobody { .. }) {
                recording.discard();
            }
            return Err(error.into());
        }
    };
    report.exit_status =
        status.and_then(|status| status.code().or(status.signal().map(|signal| 128 + signal)));
    report.run_dir = Some(recording.path().to_owned());
    if args.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print!("{}", print::watched(&report));
    }
    // What was asked for, loops and their causes, is not there.
    let nothing = report.threads.is_empty() && report.links.iter().all(|link| link.packets == 0);
    if nothing && report.untraced.is_none() {
        eprintln!(
            "takt: {}: nothing of it was seen to wake up, so there is no loop to report of",
            report.target
        );
        let notes = report.notes.iter().filter(|note| note.starts_with("missing: "));
        notes.for_each(|note| eprintln!("takt: {note}"));
    }
    Ok(if nothing || report.untraced.is_some() { ExitCode::from(2) } else { ExitCode::SUCCESS })
}

/// Starts the command, if there is one. With --json its output must not stand between the lines of
/// the report.
fn start(args: &args::Watch) -> Result<Option<Child>, String> {
    let Some((program, rest)) = args.command.split_first() else { return Ok(None) };
    let mut command = Command::new(program);
    command.args(rest);
    if args.json || args.screen {
        command.stdout(Stdio::null());
    }
    if args.screen {
        command.stdin(Stdio::null()).stderr(Stdio::null());
    }
    let child = command.spawn();
    child.map(Some).map_err(|error| format!("{}: {error}", program.to_string_lossy()))
}

/// Ends the command as Ctrl-C would, and waits for it.
pub(super) fn end(child: &mut Child) -> std::io::Result<ExitStatus> {
    for (signal, patience) in ASKED {
        let until = Instant::now() + patience;
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
            // Refused where it has just ended.
            let _ = kill_process(pid, signal);
        }
        while Instant::now() < until {
            if let Some(status) = child.try_wait()? {
                return Ok(status);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    child.wait()
}

#[cfg(feature = "ros")]
fn on_screen(
    options: &Options,
    stop: &Arc<AtomicBool>,
    recording: &mut Recording,
) -> Result<Report, takt_watch::WatchError> {
    use std::sync::{Mutex, PoisonError};
    use takt_view::{ViewExit, terminal};

    let shown: Arc<Mutex<Option<Report>>> = Arc::default();
    let ended = Arc::new(AtomicBool::new(false));
    let screen = {
        let (shown, ended, stop) = (Arc::clone(&shown), Arc::clone(&ended), Arc::clone(stop));
        std::thread::spawn(move || {
            let exit = terminal::show(&ended, |frame| {
                if let Some(report) = &*shown.lock().unwrap_or_else(PoisonError::into_inner) {
                    takt_watch::screen::draw(frame, report);
                }
            });
            match exit {
                Ok(ViewExit::UserQuit) => stop.store(true, Ordering::Release),
                Ok(ViewExit::Stopped) => {}
                Err(error) => eprintln!("takt: --screen: {error}; watching goes on without"),
            }
        })
    };
    let report = watch(options, stop, Some(recording), &mut |report| {
        *shown.lock().unwrap_or_else(PoisonError::into_inner) = Some(report.clone());
    });
    ended.store(true, Ordering::Release);
    // The terminal is given back before anything else is printed.
    let _ = screen.join();
    report
}

#[cfg(not(feature = "ros"))]
fn on_screen(
    options: &Options,
    stop: &Arc<AtomicBool>,
    recording: &mut Recording,
) -> Result<Report, takt_watch::WatchError> {
    eprintln!(
        "takt: --screen: this program was built without screens (feature `ros`); watching goes on without"
    );
    watch(options, stop, Some(recording), &mut |_| {})
}

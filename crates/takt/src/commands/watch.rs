//! `takt watch`: any program's loops, from outside.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use takt_stats::Verdict;
use takt_trace::KeepAwake;
use takt_watch::link::Endpoint;
use takt_watch::{FollowBy, Options, Recording, Report, Settings, Target, TraceOptions, watch};

#[cfg(feature = "otlp")]
use super::otlp;
use super::{CommandResult, service, stop_flag};
use crate::args;
use crate::print;

/// Signals that ask a command to end, in this order, with the patience for each.
const ASKED: [(Signal, Duration); 3] = [
    (Signal::INT, Duration::from_secs(5)),
    (Signal::TERM, Duration::from_secs(5)),
    (Signal::KILL, Duration::from_secs(5)),
];

/// Of what a command printed while the screen was on, so much is kept.
const MAX_OUTPUT: usize = 64 << 10;

pub fn run(args: &args::Watch) -> CommandResult {
    let stop = stop_flag()?;
    let links = Endpoint::all(&args.link)?;
    #[cfg(feature = "otlp")]
    let collector = otlp::check(args.otlp.as_ref())?;
    if args.dry_run {
        return look_ahead(&running(args)?);
    }
    // Before it can end: a shell is gone at once, and what it left behind is init's then.
    takt_rt::child::adopt_orphans();
    let output = Output::default();
    let mut child = start(args, &output)?;
    let target = match &child {
        Some(child) => Target::Tree(i32::try_from(child.id())?),
        None => running(args)?,
    };
    let command: Vec<_> = args.command.iter().map(|word| word.to_string_lossy()).collect();
    let label = takt_watch::label(&target, &command.join(" "));
    // Told as events: of a recorder for weeks, and of what systemd has started.
    takt_service::notify::begin();
    let serves = args.flight_recorder || takt_service::notify::is_on();
    let microseconds = |us: Option<f64>| us.map(|us| (us * 1e3) as u64);
    let settings = Settings {
        links,
        period_ns: args.period.map(|period| period.as_nanos() as f64),
        late_ns: microseconds(args.late_us),
        deadline_ns: microseconds(args.deadline_us),
        follow: if args.all_events { FollowBy::Events } else { FollowBy::Auto },
        live: args.screen || reported(args) || serves,
        histograms: reported(args),
        probes: args.gc,
        declared: true,
        ..Settings::default()
    };
    let keep_awake = if args.let_idle { KeepAwake::Off } else { KeepAwake::Auto };
    let trace = TraceOptions { keep_awake, ..TraceOptions::default() };
    let options = Options {
        target: target.clone(),
        seconds: args.seconds,
        settings,
        expected: Default::default(),
        trace,
    };
    let recording = Recording::create(&args.runs, args.out.as_deref(), &label);
    // The command must not outlive a refusal.
    let mut recording = recording.inspect_err(|_| {
        let _ = child.as_mut().map(end);
    })?;
    if args.flight_recorder {
        recording = recording.without_rows();
    }
    let _reporting =
        serves.then(|| service::begin_about("watch", &target.to_string(), Some(recording.path())));
    let mut late = service::LateLoops::default();
    let mut informed = move |report: &Report| {
        if serves {
            takt_service::notify::ready("watches");
            takt_service::notify::alive();
            takt_service::notify::status(&report.summary());
            late.see(report);
        }
    };
    let latest = Latest::default();
    #[cfg(feature = "otlp")]
    let telemetry = {
        let latest = Arc::clone(&latest);
        otlp::begin(collector, &[("takt.target", target.to_string())], move |points| {
            if let Some(report) = shown(&latest) {
                otlp::of_watch::fill(points, &report);
            }
        })?
    };
    let watched = match args.screen {
        true => on_screen(&options, &stop, &mut recording, &latest, &mut informed),
        false => watch(&options, &stop, Some(&mut recording), &mut |report| {
            informed(report);
            keep(&latest, report);
        }),
    };
    if serves {
        service::ended(watched.as_ref().map(Report::summary).map_err(ToString::to_string));
    }
    let ended = child.as_mut().map(|child| ended(child, &stop)).transpose()?;
    output.show();
    let mut report = match watched {
        Ok(report) => report,
        Err(error) => {
            // A refusal leaves nothing behind; what was measured before an error stays, unsealed.
            if matches!(error, takt_watch::WatchError::Nobody { .. }) {
                recording.discard();
                if let Some((status, true)) = ended {
                    let how = print::ending(status.code(), status.signal());
                    return Err(format!("the command ended {how} before takt could watch it").into());
                }
            }
            return Err(error.into());
        }
    };
    report.exit_signal = ended.and_then(|(status, _)| status.signal());
    report.exit_status =
        ended.and_then(|(status, _)| status.code()).or(report.exit_signal.map(|signal| 128 + signal));
    report.ended_by_itself = ended.map(|(_, by_itself)| by_itself);
    report.run_dir = Some(recording.path().to_owned());
    if let Some(error) = recording.failed() {
        report.notes.push(format!("the run directory is incomplete: {error}"));
    }
    #[cfg(feature = "otlp")]
    if let Some(telemetry) = telemetry {
        keep(&latest, &report);
        otlp::of_watch::conclude(&telemetry, &report);
        telemetry.finish();
    }
    if args.check {
        let verdict = takt_report::verdict::of_run(recording.dir())?;
        report.verdict = Some(verdict.report.verdict);
        report.verdict_sentence = Some(verdict.report.sentence());
    }
    if args.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print!("{}", print::watched(&report));
    }
    // The requested result, loops and their causes, is missing.
    let nothing = report.threads.is_empty() && report.links.iter().all(|link| link.packets == 0);
    if nothing && report.untraced.is_none() {
        eprintln!(
            "takt: {}: none of its threads was seen to wake up, so there is no loop to report",
            report.target
        );
        let notes = report.notes.iter().filter(|note| note.starts_with("missing: "));
        notes.for_each(|note| eprintln!("takt: {note}"));
    }
    if let Some(error) = recording.failed() {
        eprintln!("takt: the run directory is incomplete, but the report above is complete: {error}");
    }
    let named = |link: &Endpoint| report.links.iter().any(|one| one.name.starts_with(&link.to_string()));
    let not_followed = !args.link.iter().all(named);
    if not_followed {
        report.notes.iter().filter(|note| note.contains("--link")).for_each(|note| eprintln!("takt: {note}"));
    }
    let short = nothing || not_followed || report.untraced.is_some() || recording.failed().is_some();
    if short {
        return Ok(ExitCode::from(2));
    }
    let failed_by_itself = ended.is_some_and(|(status, by_itself)| by_itself && !status.success());
    let failed = failed_by_itself || report.verdict != Some(Verdict::Pass);
    Ok(if args.check && failed { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

/// Finds the running processes to watch.
fn running(args: &args::Watch) -> Result<Target, takt_watch::WatchError> {
    Ok(match (args.pid, &args.name, &args.cgroup) {
        (Some(pid), ..) => Target::Process(pid),
        (None, Some(pattern), _) => Target::Name(pattern.clone()),
        (None, None, Some(path)) => Target::cgroup(path)?,
        (None, None, None) => Target::Machine,
    })
}

/// Says whether it can be watched, and what is missing for that.
fn look_ahead(target: &Target) -> CommandResult {
    let found = takt_watch::look_ahead(target);
    print!("{}", print::ahead(&found));
    Ok(if found.is_possible() { ExitCode::SUCCESS } else { ExitCode::from(2) })
}

/// Ends the command, if it has not ended by itself; whether it has, before anybody asked it to.
fn ended(child: &mut Child, stop: &AtomicBool) -> std::io::Result<(ExitStatus, bool)> {
    // Ctrl-C in the terminal reaches the command as well.
    match child.try_wait()?.filter(|_| !stop.load(Ordering::Acquire)) {
        Some(status) => Ok((status, true)),
        None => Ok((end(child)?, false)),
    }
}

/// Output of a command while the watch uses the screen: the end of it is shown afterwards.
#[derive(Debug, Clone, Default)]
struct Output(Arc<Mutex<VecDeque<u8>>>);

impl Output {
    /// Keeps what comes through a pipe, as long as anybody holds its other end: what the command
    /// left behind may do so for longer than this program runs.
    fn keep(&self, mut from: std::io::PipeReader) -> std::io::Result<()> {
        let kept = Arc::clone(&self.0);
        let reader = std::thread::Builder::new().name("takt-output".to_owned());
        reader.spawn(move || {
            let mut bytes = vec![0; 8 << 10];
            while let Ok(count @ 1..) = from.read(&mut bytes) {
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                kept.extend(&bytes[..count]);
                let beyond = kept.len().saturating_sub(MAX_OUTPUT);
                kept.drain(..beyond);
            }
        })?;
        Ok(())
    }

    /// Prints it.
    fn show(&self) {
        // The command's last output is read within that time.
        std::thread::sleep(Duration::from_millis(if Arc::strong_count(&self.0) > 1 { 50 } else { 0 }));
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Without a reader, there is nobody to inform.
        let _ = std::io::stderr().write_all(kept.make_contiguous());
        kept.clear();
    }
}

/// The last report that was made, for whoever looks on. It is taken out to be looked at, so that
/// the watch does not wait for that.
type Latest = Arc<Mutex<Option<Arc<Report>>>>;

fn keep(latest: &Latest, report: &Report) {
    *latest.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(report.clone()));
}

#[cfg(any(feature = "otlp", feature = "ros"))]
fn shown(latest: &Latest) -> Option<Arc<Report>> {
    latest.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

#[cfg(feature = "otlp")]
fn reported(args: &args::Watch) -> bool {
    args.otlp.is_some()
}

#[cfg(not(feature = "otlp"))]
fn reported(_: &args::Watch) -> bool {
    false
}

/// Starts the command, if there is one. With --json its output must not stand between the lines of
/// the report, nor on the screen.
fn start(args: &args::Watch, output: &Output) -> Result<Option<Child>, String> {
    let Some((program, rest)) = args.command.split_first() else { return Ok(None) };
    let mut command = Command::new(program);
    command.args(rest);
    let failed = |error: std::io::Error| format!("{}: {error}", program.to_string_lossy());
    if args.json {
        command.stdout(std::io::stderr());
    }
    if args.screen {
        let (reader, writer) = std::io::pipe().map_err(failed)?;
        output.keep(reader).map_err(failed)?;
        let second = writer.try_clone().map_err(failed)?;
        command.stdin(Stdio::null()).stdout(writer).stderr(second);
    }
    command.spawn().map(Some).map_err(failed)
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
    latest: &Latest,
    informed: &mut dyn FnMut(&Report),
) -> Result<Report, takt_watch::WatchError> {
    use takt_view::{ViewExit, terminal};

    let ended = Arc::new(AtomicBool::new(false));
    let screen = {
        let (latest, ended, stop) = (Arc::clone(latest), Arc::clone(&ended), Arc::clone(stop));
        std::thread::spawn(move || {
            let exit = terminal::show(&ended, |frame| {
                if let Some(report) = shown(&latest) {
                    takt_watch::screen::draw(frame, &report);
                }
            });
            match exit {
                Ok(ViewExit::UserQuit) => stop.store(true, Ordering::Release),
                Ok(ViewExit::Stopped) => {}
                Err(error) => eprintln!("takt: --screen: {error}; watching continues without it"),
            }
        })
    };
    let report = watch(options, stop, Some(recording), &mut |report| {
        informed(report);
        keep(latest, report);
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
    latest: &Latest,
    informed: &mut dyn FnMut(&Report),
) -> Result<Report, takt_watch::WatchError> {
    eprintln!(
        "takt: --screen: this program was built without screens (feature `ros`); watching continues without it"
    );
    watch(options, stop, Some(recording), &mut |report| {
        informed(report);
        keep(latest, report);
    })
}

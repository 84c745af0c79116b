//! `takt manage`: latency goals kept on running ROS 2 processes.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use takt_files::Folder;
use takt_host::reserve::pin::PinOptions;
use takt_lab::{run_jobs, shipped, watchdog_command};
use takt_manager::enact::platform;
use takt_manager::live::launch::Launched;
use takt_manager::live::{Board, Drive, Finished, Live, Log, Options, metrics};
use takt_manager::restore;
use takt_manager::system::Linux;
use takt_manager::{Goals, Policy, recorded};
use takt_model::Model;
use takt_ros::Source;
use takt_ros::ctf::{Host, Live as Parts, Recording};
use takt_ros::preload::{ProbeOptions, ProbeSession};
use takt_ros::uprobes::{Probe as Uprobes, UprobeOptions};
use takt_stats::{Part, Verdict, VerdictReport, overall};
use takt_view::ViewExit;
use takt_view::terminal;

use super::{CommandResult, service, stop_flag};
use crate::args;
use crate::print;
use crate::registry::ROBOTS;

pub fn run(args: &args::Manage) -> CommandResult {
    if let Some(state) = &args.watchdog {
        return super::watchdog::run(state);
    }
    if args.restore {
        let state = args.state.clone().unwrap_or_else(restore::default_path);
        match restore::restore(&mut Linux::new(), &state)? {
            Some(restored) => println!("{restored}"),
            None => println!("{}: no manager has left anything to restore", state.display()),
        }
        // Remains of a run's placement whose watchdog was killed, too.
        if args.state.is_none()
            && let Some(restored) = restore::restore(&mut Linux::new(), &PinOptions::default().state)?
        {
            println!("a run's placement: {restored}");
        }
        return Ok(ExitCode::SUCCESS);
    }
    if args.screen && !terminal::is_possible() {
        return Err(
            "--screen: standard input and output are not both terminals; omit it to get the log".into()
        );
    }
    if args.learn {
        return super::learn::run(args);
    }
    #[cfg(feature = "otlp")]
    super::otlp::check(args.otlp.as_ref())?;
    let path = args.goals.as_ref().ok_or_else(|| {
        let of = match (&args.trace, args.pid.first()) {
            (Some(folder), _) => format!("--trace {}", folder.display()),
            (None, Some(pid)) => format!("--pid {pid}"),
            (None, None) => "-- ros2 launch …".to_owned(),
        };
        format!(
            "expected a goals file, received none: `takt manage GOALS.toml {of}`. To write a first one: `takt manage --learn {of}`"
        )
    })?;
    let mut goals = read_goals(path)?;
    goals.options.policy = args.policy.unwrap_or(goals.options.policy);
    if args.soft && goals.options.policy == Policy::RosLlama {
        return Err("--soft: the paper's manager has no reservations that continue at best effort. Omit it, or choose --policy takt"
            .into());
    }
    // Kept open: its path may come to mean another folder during the run.
    let emit = super::outputs::check_emit(args)?;
    let emit = emit.as_ref();
    if let Some(folder) = &args.trace {
        return examine(args, &goals, folder, emit);
    }
    if let Some(folder) = &args.lttng {
        return follow(args, goals, folder, emit);
    }
    match (args.command.split_first(), args.pid.as_slice()) {
        (Some((program, arguments)), []) => launch(args, goals, program, arguments, emit),
        (None, pids) if !pids.is_empty() => attach(args, goals, pids, emit),
        (Some(_), _) => Err("a command and --pid: give one of them".into()),
        (None, _) => Err("nothing to manage: give a command after --, or --pid of running processes".into()),
    }
}

/// The goals in a file, or the shipped ones of that name where no file has it.
fn read_goals(path: &Path) -> Result<Goals, Box<dyn std::error::Error>> {
    let files = shipped::goals(&ROBOTS);
    match shipped::word(path, |name| files.iter().any(|file| file.is(name))) {
        Some(name) => {
            let file = shipped::named(files, "goals file", name)?;
            Ok(Goals::parse(file.text, &format!("{name} (built in)"))?)
        }
        None => Ok(Goals::read(path)?),
    }
}

/// Reads a recording, or the jobs of a run.
fn examine(args: &args::Manage, goals: &Goals, folder: &Path, emit: Option<&Folder>) -> CommandResult {
    let (platform, options) = (platform(&goals.options)?, takt_model::Options::default());
    if !run_jobs::is_run(folder) {
        let hosts = Recording::by_host(folder)?;
        if hosts.len() > 1 {
            return examine_hosts(args, goals, &hosts, emit);
        }
    }
    let seen = if run_jobs::is_run(folder) {
        // Read once, handed over twice.
        let run = run_jobs::recorded(&ROBOTS, folder)?;
        recorded::examine(|| Ok(run.events()), goals, &platform, &options)?
    } else {
        recorded::examine(|| Recording::open(folder), goals, &platform, &options)?
    };
    show_recorded(args, &seen, emit)
}

fn show_recorded(args: &args::Manage, seen: &recorded::Recorded, emit: Option<&Folder>) -> CommandResult {
    let verdict = seen.verdict();
    write_dot(args, &seen.model)?;
    write_page(args, &seen.model, print::recorded_chains(seen))?;
    super::outputs::emit(args, emit, Some(&seen.plan), &seen.model)?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&print::recorded_json(seen, &verdict))?);
    } else {
        print!("{}\n{}", seen.model.to_text(), print::recorded(seen, &verdict));
    }
    self::seen(seen.events)?;
    Ok(exit(args, &verdict))
}

/// Reads a recording of several hosts: together where the goals say how far their clocks are apart,
/// else one after the other.
fn examine_hosts(args: &args::Manage, goals: &Goals, hosts: &[Host], emit: Option<&Folder>) -> CommandResult {
    let (platform, options) = (platform(&goals.options)?, takt_model::Options::default());
    let related = goals.network.as_ref().and_then(|network| network.clock_error_ns);
    if let Some(error_ns) = related {
        let traces: Vec<PathBuf> = hosts.iter().flat_map(|host| host.traces.clone()).collect();
        let seen = recorded::examine(|| Recording::together(&traces), goals, &platform, &options)?;
        eprintln!(
            "takt: {} hosts, read together: their clocks agree within {} ms according to [network] clock_error",
            hosts.len(),
            error_ns as f64 / 1e6
        );
        return show_recorded(args, &seen, emit);
    }
    if args.dot.is_some() || args.page.is_some() || emit.is_some() {
        return Err("--dot, --page and --emit: this recording covers several hosts. Name the folder of one of them, or state in the goals \
             file how far their clocks are apart ([network] clock_error = \"1 ms\")"
            .into());
    }
    eprintln!(
        "takt: {} hosts, read one by one, because the difference between their clocks is unknown. To read them together, state it in the \
         goals file: [network] clock_error = \"1 ms\"",
        hosts.len()
    );
    let mut read = Vec::new();
    for host in hosts {
        let seen = recorded::examine(|| Recording::of(&host.traces), goals, &platform, &options)
            .map_err(|error| format!("{}: {error}", host.name))?;
        let verdict = seen.verdict();
        read.push((host, seen, verdict));
    }
    let parts: Vec<Part<'_>> =
        read.iter().map(|(host, _, report)| Part { name: &host.name, report, excused: None }).collect();
    let verdict = overall(&parts);
    if args.json {
        let all = read.iter().map(|(host, seen, verdict)| {
            let mut json = print::recorded_json(seen, verdict);
            json["host"] = host.name.clone().into();
            json
        });
        let json = serde_json::json!({
            "verdict": verdict.verdict,
            "reasons": verdict.reasons,
            "hosts": all.collect::<Vec<_>>(),
        });
        println!("{}", serde_json::to_string_pretty(&json)?);
    } else {
        for (host, seen, verdict) in &read {
            print!("{}:\n{}\n{}\n", host.name, seen.model.to_text(), print::recorded(seen, verdict));
        }
        println!("{}", verdict.sentence());
    }
    Ok(exit(args, &verdict))
}

/// Starts the command under the preload probe.
fn launch(
    args: &args::Manage,
    goals: Goals,
    program: &OsString,
    arguments: &[OsString],
    emit: Option<&Folder>,
) -> CommandResult {
    let stop = stop_flag()?;
    let session = ProbeSession::create(&ProbeOptions::default())?;
    let live = Live::new(goals.clone(), platform(&goals.options)?, session.probe()?, options(args)?)?;
    let mut command = Command::new(program);
    command.args(arguments);
    if args.json {
        // Standard output is the result's.
        command.stdout(std::io::stderr());
    }
    let mut launched = Launched::start_adopting(command, &session)
        .map_err(|error| format!("{}: {error}", program.display()))?;
    let ended = Arc::new(AtomicBool::new(false));
    let watcher = {
        let (ended, until) = (Arc::clone(&ended), until(args));
        std::thread::Builder::new().name("takt-launch".to_owned()).spawn(move || {
            let over = || {
                stop.load(Ordering::Acquire)
                    || ended.load(Ordering::Acquire)
                    || until.is_some_and(|until| Instant::now() >= until)
            };
            while launched.ended().is_ok_and(|status| status.is_none()) && !over() {
                std::thread::sleep(Duration::from_millis(50));
            }
            // Nobody asked it to, Ctrl-C in its terminal included.
            let by_itself = !over();
            ended.store(true, Ordering::Release);
            // Everything is restored by the main thread before the program has gone.
            while launched.ended().is_ok_and(|status| status.is_none()) {
                launched.end();
                std::thread::sleep(Duration::from_millis(50));
            }
            let status = launched.ended().ok().flatten();
            left_over(launched.end_rest());
            status.filter(|_| by_itself)
        })?
    };
    let finished = keep(args, &goals, live, &ended, |probe| {
        for broken in probe.take_broken() {
            eprintln!("takt: {}: {}", broken.label, broken.error);
        }
        probe.finish();
    })?;
    let status = watcher.join().unwrap_or_default();
    let code = report(args, &finished, emit)?;
    failed_by_itself(status)?;
    Ok(code)
}

/// Refuses to call a run a success of which the command failed by itself (`status`; none where it
/// was asked to end): whoever puts `takt manage` before a command must not lose its failure. Not
/// with the command's own number, of which 1 and 2 mean something else here.
pub(super) fn failed_by_itself(status: Option<ExitStatus>) -> Result<(), String> {
    match status.filter(|status| !status.success()) {
        Some(status) => Err(format!("the command itself failed ({status}); the results above end there")),
        None => Ok(()),
    }
}

/// Reports the processes that would not end.
pub(super) fn left_over(count: usize) {
    if count > 0 {
        eprintln!("takt: {count} processes started by the command are still running and cannot be stopped");
    }
}

/// Attaches to processes that run already.
fn attach(args: &args::Manage, goals: Goals, pids: &[u32], emit: Option<&Folder>) -> CommandResult {
    let stop = stop_flag()?;
    let probe = Uprobes::attach(&UprobeOptions { pids: pids.to_vec(), ..UprobeOptions::default() })?;
    let live = Live::new(goals.clone(), platform(&goals.options)?, probe, options(args)?)?;
    let ended = Arc::new(AtomicBool::new(false));
    let until = until(args);
    let watcher = {
        let (ended, pids) = (Arc::clone(&ended), pids.to_vec());
        std::thread::Builder::new().name("takt-attach".to_owned()).spawn(move || {
            while !stop.load(Ordering::Acquire)
                && !ended.load(Ordering::Acquire)
                && until.is_none_or(|until| Instant::now() < until)
                && pids.iter().any(takt_rt::procfs::exists)
            {
                std::thread::sleep(Duration::from_millis(50));
            }
            ended.store(true, Ordering::Release);
        })?
    };
    let finished = keep(args, &goals, live, &ended, |_| {})?;
    // It has set the flag that ended the loop.
    let _ = watcher.join();
    report(args, &finished, emit)
}

/// Follows an LTTng session until it is destroyed.
fn follow(args: &args::Manage, goals: Goals, folder: &Path, emit: Option<&Folder>) -> CommandResult {
    if !args.observe {
        return Err("--lttng: the parts of a session arrive seconds late, and from any container, so takt manage can only observe them: add \
             --observe, or start the command under takt manage"
            .into());
    }
    let stop = stop_flag()?;
    let source = Parts::open(folder)?;
    let live = Live::new(goals.clone(), platform(&goals.options)?, source, options(args)?)?;
    let ended = Arc::new(AtomicBool::new(false));
    let until = until(args);
    let watcher = {
        let ended = Arc::clone(&ended);
        std::thread::Builder::new().name("takt-follow".to_owned()).spawn(move || {
            while !stop.load(Ordering::Acquire)
                && !ended.load(Ordering::Acquire)
                && until.is_none_or(|until| Instant::now() < until)
            {
                std::thread::sleep(Duration::from_millis(50));
            }
            ended.store(true, Ordering::Release);
        })?
    };
    let finished = keep(args, &goals, live, &ended, |parts| {
        for damage in parts.damages() {
            eprintln!("takt: {}, at byte {}: {}", damage.path.display(), damage.at, damage.problem);
        }
        for error in parts.failed_parts() {
            eprintln!("takt: a part was left out: {error}");
        }
        if parts.last_part().is_none() {
            eprintln!(
                "takt: {}: no finished part arrived. Rotate the session: lttng enable-rotation --session=NAME --timer=1s",
                folder.display()
            );
        }
    })?;
    // `keep` has set the flag that ends it.
    let _ = watcher.join();
    report(args, &finished, emit)
}

fn until(args: &args::Manage) -> Option<Instant> {
    args.seconds.map(|seconds| Instant::now() + Duration::from_secs_f64(seconds))
}

fn options(args: &args::Manage) -> Result<Options, Box<dyn std::error::Error>> {
    let json = match &args.log {
        Some(path) => {
            let file =
                takt_files::create_output(path).map_err(|error| format!("{}: {error}", path.display()))?;
            Some(Box::new(file) as Box<dyn Write + Send>)
        }
        None => None,
    };
    let text: Option<Box<dyn Write + Send>> = match (args.screen, args.json) {
        // The screen shows it.
        (true, _) => None,
        (false, true) => Some(Box::new(std::io::stderr())),
        (false, false) => Some(Box::new(std::io::stdout())),
    };
    let mut options = Options {
        observe: args.observe,
        log: Log::new(text, json).informing(Box::new(takt_robot_ros::notices::report)),
        watchdog: Some(watchdog_command),
        kept: super::outputs::kept(args)?,
        ..Options::default()
    };
    // Observers want to see processes that have ended, too.
    options.model.keep_ended = args.observe;
    if let Some(state) = &args.state {
        options.enact.state = state.clone();
    }
    if args.soft {
        options.enact.soft = takt_manager::enact::Soft::Soft;
    }
    Ok(options)
}

/// Runs the manager until the flag is set, with metrics and screen beside it; then restores
/// everything.
fn keep<S: Source>(
    args: &args::Manage,
    goals: &Goals,
    mut live: Live<S>,
    ended: &Arc<AtomicBool>,
    at_end: impl FnOnce(&mut S),
) -> Result<Finished, Box<dyn std::error::Error>>
where
    Live<S>: Drive,
{
    let _reporting = service::begin_about("manage", &goals_name(args), None);
    let (turns, line) = (live.board(), live.board());
    let vouching = service::Vouching::start(move || turns.read().at_ns, move || line.read().line());
    let _server = match args.metrics {
        Some(address) => {
            let page = Some(takt_robot_ros::view::live_page as metrics::Page);
            let server = metrics::Server::start_with(address, live.board(), page)?;
            eprintln!("metrics at http://{0}/metrics, the graph at http://{0}/graph", server.address());
            Some(server)
        }
        None => None,
    };
    #[cfg(feature = "otlp")]
    let (telemetry, known) = {
        let (board, known) = (live.board(), super::otlp::of_manager::AtEnd::default());
        let endpoint = super::otlp::check(args.otlp.as_ref())?;
        let reported = std::sync::Arc::clone(&known);
        let telemetry = super::otlp::begin(endpoint, &[], move |points| match reported.get() {
            Some(last) => super::otlp::of_manager::fill_last(points, last),
            None => super::otlp::of_manager::fill(points, &board.read()),
        })?;
        (telemetry, known)
    };
    let screen = args.screen.then(|| show(live.board(), Arc::clone(ended)));
    let outcome = live.drive(ended);
    ended.store(true, Ordering::Release);
    drop(vouching);
    takt_service::notify::stopping("restores what was changed");
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
    // A panic of the screen has been printed.
    if let Some(Ok(Err(error))) = screen.map(std::thread::JoinHandle::join) {
        eprintln!("takt: {error}");
    }
    #[cfg(feature = "otlp")]
    if let Some(telemetry) = telemetry {
        super::otlp::of_manager::conclude(&telemetry, &finished.status, &known);
        telemetry.finish();
    }
    service::ended(match &outcome {
        Ok(()) => Ok(finished.status.verdict().sentence()),
        Err(error) => Err(error.to_string()),
    });
    outcome?;
    Ok(finished)
}

/// The name of the goals file, as operators call what is managed.
fn goals_name(args: &args::Manage) -> String {
    let stem = args.goals.as_deref().and_then(Path::file_stem);
    stem.map_or_else(|| "manage".to_owned(), |stem| stem.to_string_lossy().into_owned())
}

/// The status on the terminal. The user ends the manager with the screen.
fn show(board: Board, ended: Arc<AtomicBool>) -> std::thread::JoinHandle<Result<(), takt_view::Error>> {
    std::thread::spawn(move || {
        let exit = terminal::show(&ended, |frame| takt_robot_ros::view::draw(frame, &board.read()))?;
        if exit == ViewExit::UserQuit {
            ended.store(true, Ordering::Release);
        }
        Ok(())
    })
}

/// Reports what came of it. As with the other commands a verdict decides about the exit status only
/// with `--check`; where nothing was seen there is none.
fn report(args: &args::Manage, finished: &Finished, emit: Option<&Folder>) -> CommandResult {
    let verdict = finished.status.verdict();
    write_dot(args, &finished.model)?;
    write_page(args, &finished.model, finished.status.chains.iter().map(takt_robot_ros::view::Chain::from))?;
    super::outputs::keep(args, finished.kept.as_ref());
    super::outputs::emit(args, emit, finished.plan.as_ref(), &finished.model)?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&print::managed_json(finished, &verdict))?);
    } else {
        if args.observe {
            print!("{}", finished.model.to_text());
        }
        print!("\n{}", print::managed(&finished.status, &verdict));
    }
    seen(finished.status.events)?;
    Ok(exit(args, &verdict))
}

/// Refuses what was observed where that is nothing.
pub(super) fn seen(events: u64) -> Result<(), &'static str> {
    match events {
        0 => Err(
            "no callback was seen: does the program use rclcpp, and did it run a callback? `takt manage --help` lists what can be observed",
        ),
        _ => Ok(()),
    }
}

fn exit(args: &args::Manage, verdict: &VerdictReport) -> ExitCode {
    if args.check && verdict.verdict != Verdict::Pass { ExitCode::from(1) } else { ExitCode::SUCCESS }
}

pub(super) fn write_page(
    args: &args::Manage,
    model: &Model,
    chains: impl Iterator<Item = takt_robot_ros::view::Chain>,
) -> Result<(), String> {
    let Some(path) = &args.page else { return Ok(()) };
    let page = takt_robot_ros::view::page(model, &chains.collect::<Vec<_>>(), None);
    takt_files::create_output(path)
        .and_then(|mut file| file.write_all(page.as_bytes()))
        .map_err(|error| format!("{}: {error}", path.display()))
}

pub(super) fn write_dot(args: &args::Manage, model: &Model) -> Result<(), String> {
    let Some(path) = &args.dot else { return Ok(()) };
    let dot = model.to_dot(takt_model::DotOptions::default());
    takt_files::create_output(path)
        .and_then(|mut file| file.write_all(dot.as_bytes()))
        .map_err(|error| format!("{}: {error}", path.display()))
}

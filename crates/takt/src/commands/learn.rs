//! `takt manage --learn`: the graph and the chains of a system without goals, and a goals file to
//! begin from.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use takt_lab::run_jobs;
use takt_manager::enact::platform;
use takt_manager::learn::{self, Learner, Learnt, Options};
use takt_manager::live::launch::Launched;
use takt_manager::plan::Platform;
use takt_ros::Source;
use takt_ros::ctf::{Live as Parts, Recording};
use takt_ros::preload::{ProbeOptions, ProbeSession};
use takt_ros::uprobes::{Probe as Uprobes, UprobeOptions};
use takt_rt::clock::monotonic_ns;

use super::{CommandResult, stop_flag};
use crate::args;
use crate::print;

/// Time between two looks at the events, as the manager's.
const POLL: Duration = Duration::from_millis(15);
/// Default name of the goals file; a number is added if it exists.
const FILE: &str = "takt-goals.toml";
/// Numbers that are tried.
const MAX_FILES: u32 = 1000;

pub fn run(args: &args::Manage) -> CommandResult {
    // Before anything is observed for minutes.
    let mut out = Output::choose(args)?;
    let platform = platform(&takt_manager::goals::Options::default())?;
    let options = Options { most_chains: args.chains, ..Options::default() };
    let mut ended = None;
    let learnt = match (&args.trace, &args.lttng, args.command.is_empty()) {
        (Some(folder), ..) => recorded(folder, &platform, &options)?,
        (None, Some(folder), _) => {
            let source = Parts::open(folder)?;
            observe(args, source, options, &platform, || Ok(false), |_| {})?
        }
        (None, None, false) if !args.pid.is_empty() => {
            return Err("a command and --pid: give one of them".into());
        }
        (None, None, false) => {
            let (learnt, status) = launched(args, options, &platform)?;
            ended = status;
            learnt
        }
        (None, None, true) => {
            // Without numbers: whatever runs, and what comes.
            let uprobes = UprobeOptions { pids: args.pid.clone(), ..UprobeOptions::default() };
            observe(args, Uprobes::attach(&uprobes)?, options, &platform, || Ok(false), |_| {})?
        }
    };
    super::manage::write_dot(args, &learnt.model)?;
    super::manage::write_page(
        args,
        &learnt.model,
        learnt.chains.iter().map(takt_robot_ros::view::Chain::from),
    )?;
    super::manage::seen(learnt.events)?;
    let text = learnt.goals_text();
    let written = match &text {
        Some(text) => Some(out.write(text)?),
        None => None,
    };
    if args.json {
        let all = print::learn::json(&learnt, written.as_deref(), text.as_deref());
        println!("{}", serde_json::to_string_pretty(&all)?);
    } else {
        print!("{}\n{}", learnt.model.to_text(), print::learn::text(&learnt, written.as_deref()));
    }
    super::manage::failed_by_itself(ended)?;
    Ok(ExitCode::SUCCESS)
}

fn recorded(
    folder: &Path,
    platform: &Platform,
    options: &Options,
) -> Result<Learnt, Box<dyn std::error::Error>> {
    if run_jobs::is_run(folder) {
        let run = run_jobs::recorded(&crate::registry::ROBOTS, folder)?;
        return Ok(learn::from_recording(|| Ok(run.events()), platform, options)?);
    }
    Ok(learn::from_recording(|| Recording::open(folder), platform, options)?)
}

/// Learns from the command. Also returns its exit status if it ended on its own.
fn launched(
    args: &args::Manage,
    options: Options,
    platform: &Platform,
) -> Result<(Learnt, Option<ExitStatus>), Box<dyn std::error::Error>> {
    let Some((program, arguments)) = args.command.split_first() else { return Err("no command".into()) };
    let session = ProbeSession::create(&ProbeOptions::default())?;
    let mut command = Command::new(program);
    command.args(arguments);
    if args.json {
        // Standard output is the result's.
        command.stdout(std::io::stderr());
    }
    let probe = session.probe()?;
    let mut launched = Launched::start_adopting(command, &session)
        .map_err(|error| format!("{}: {error}", program.display()))?;
    let stop = stop_flag()?;
    let mut asked = false;
    let learnt = observe(
        args,
        probe,
        options,
        platform,
        || Ok(launched.ended()?.is_some()),
        |probe| {
            for broken in probe.take_broken() {
                eprintln!("takt: {}: {}", broken.label, broken.error);
            }
            probe.finish();
        },
    );
    while launched.ended()?.is_none() {
        asked = true;
        launched.end();
        std::thread::sleep(Duration::from_millis(20));
    }
    let by_itself = !asked && !stop.load(Ordering::Acquire);
    let status = launched.ended()?.filter(|_| by_itself);
    super::manage::left_over(launched.end_rest());
    Ok((learnt?, status))
}

/// Looks until the time is over, the user stops it, `ended` says so, or the source has ended.
fn observe<S: Source>(
    args: &args::Manage,
    source: S,
    options: Options,
    platform: &Platform,
    mut ended: impl FnMut() -> std::io::Result<bool>,
    at_end: impl FnOnce(&mut S),
) -> Result<Learnt, Box<dyn std::error::Error>>
where
    S::Error: 'static,
{
    let stop: std::sync::Arc<AtomicBool> = stop_flag()?;
    let until = args.seconds.map(|seconds| Instant::now() + Duration::from_secs_f64(seconds));
    let mut learner = Learner::new(source, options)?;
    if args.seconds.is_none() {
        eprintln!("takt: learning until Ctrl-C or the program's end (--seconds N stops after N seconds)");
    }
    while learner.step(monotonic_ns())? {
        let over = stop.load(Ordering::Acquire) || until.is_some_and(|until| Instant::now() >= until);
        if over || ended()? {
            break;
        }
        std::thread::sleep(POLL);
    }
    at_end(learner.source_mut());
    // The events before the end.
    let now_ns = monotonic_ns();
    learner.step(now_ns)?;
    Ok(learner.finish(now_ns, platform))
}

/// Destination of the goals file.
#[derive(Debug)]
struct Output {
    path: PathBuf,
    overwrite: bool,
}

impl Output {
    /// A file that is there is never touched unless the user says so, and then it is known before
    /// anything is observed.
    fn choose(args: &args::Manage) -> Result<Self, String> {
        let overwrite = args.overwrite;
        let path = match &args.goals {
            Some(path) if path.symlink_metadata().is_ok() && !overwrite => {
                return Err(format!(
                    "{} already exists, and --learn writes a new goals file: name another one, or add --overwrite",
                    path.display()
                ));
            }
            Some(path) => path.clone(),
            None if overwrite => FILE.into(),
            None => free()?,
        };
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if !folder.is_dir() {
            return Err(format!("{}: there is no folder {}", path.display(), folder.display()));
        }
        Ok(Self { path, overwrite })
    }

    fn write(&mut self, text: &str) -> Result<PathBuf, String> {
        let failed = |path: &Path, error: std::io::Error| {
            format!("the goals file {}: {error}; here is its text:\n{text}", path.display())
        };
        if self.overwrite {
            let mut file =
                takt_files::create_output(&self.path).map_err(|error| failed(&self.path, error))?;
            file.write_all(text.as_bytes()).map_err(|error| failed(&self.path, error))?;
            return Ok(self.path.clone());
        }
        // It may have come meanwhile, which creating a new one reports.
        let mut file = std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&self.path)
            .map_err(|error| failed(&self.path, error))?;
        file.write_all(text.as_bytes()).map_err(|error| failed(&self.path, error))?;
        Ok(self.path.clone())
    }
}

fn free() -> Result<PathBuf, String> {
    let numbered = (2..=MAX_FILES).map(|number| FILE.replace(".toml", &format!("-{number}.toml")));
    std::iter::once(FILE.to_owned())
        .chain(numbered)
        .map(PathBuf::from)
        .find(|path| path.symlink_metadata().is_err())
        .ok_or_else(|| format!("{FILE} and {MAX_FILES} more already exist: name a file, or add --overwrite"))
}

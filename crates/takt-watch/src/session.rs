//! A watch from its begin to its end: the capture, its parts every second, the report.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use takt_rt::jobs::JobRecord;
use takt_rt::procfs;
use takt_trace::{TraceError, TraceOptions, Tracer};

use crate::advice::advise;
use crate::coarse::Coarse;
use crate::declared::Watching;
use crate::error::WatchError;
use crate::history::History;
use crate::python::Pythons;
use crate::report::Report;
use crate::rights::Facts;
use crate::target::Target;
use crate::watcher::{Expected, FollowBy, Settings, Watcher};
use crate::windows::{self, Windows};

/// Options of a watch.
#[derive(Debug, Clone)]
pub struct Options {
    /// The target.
    pub target: Target,
    /// For how long; until it is stopped or what is watched has ended, when absent.
    pub seconds: Option<f64>,
    /// Thresholds of lateness.
    pub settings: Settings,
    /// Known properties of single threads, by their ids; the settings are for all others.
    pub expected: BTreeMap<i32, Expected>,
    pub trace: TraceOptions,
}

/// Receiver of a watch's results.
pub trait Keep {
    /// Cycles of a thread that have ended.
    fn jobs(&mut self, tid: i32, jobs: &[JobRecord]);

    /// Everything since the last call has been handed over; called ten times a second, or once.
    fn part(&mut self) {}

    /// Nothing follows.
    fn finish(&mut self, found: &Found<'_>);
}

/// Results of a watch.
#[derive(Debug, Clone, Copy)]
pub struct Found<'a> {
    pub report: &'a Report,
    /// The worst windows; None where there were no kernel events.
    pub(crate) history: Option<&'a History>,
}

/// Events are taken and judged so often: a part of 1 s of a busy machine has some 200,000 of them.
const PART: Duration = Duration::from_secs(1);
/// The flag and the end of what is watched are looked at so often.
const LOOK: Duration = Duration::from_millis(20);
/// A process is looked for so often: its end ends the watch.
const ALIVE: Duration = Duration::from_millis(500);

/// Open files of all processes of a machine are looked at once in so many seconds.
const MACHINE_LOOKS: u64 = 10;

/// Of the thread that watches, before what else has no real-time policy.
const NICE: i32 = -10;

/// Watches until the time is over, `stop` is set or nothing of it runs any more; `see` gets a
/// report after every part. Cycles are handed to `keep` as they come, where there is one. Without
/// kernel events, it continues with the data of /proc and the report gives the reason; it also
/// continues without a link that it has no right to.
///
/// # Errors
/// [`WatchError`].
pub fn watch(
    options: &Options,
    stop: &AtomicBool,
    keep: Option<&mut dyn Keep>,
    see: &mut dyn FnMut(&Report),
) -> Result<Report, WatchError> {
    let mut watcher = Watcher::new(options.target.clone(), options.settings);
    watcher.expected.clone_from(&options.expected);
    watcher.watched.adopt();
    watcher.refresh();
    if !watcher.watched.is_there() {
        return Err(WatchError::Nobody { target: options.target.to_string() });
    }
    watcher.open_links()?;
    let packets = !watcher.links.is_empty();
    let trace =
        TraceOptions { processes: followed(&watcher, &options.target), packets, ..options.trace.clone() };
    let facts = Facts::read();
    // With other numbers than the kernel's, strangers would be taken for watched threads.
    let feed = match facts.own_pids {
        true => Err("the kernel's events use thread ids of another namespace".to_owned()),
        false => {
            Feed::start(options.settings.follow, &trace, &mut watcher).map_err(|error| error.to_string())
        }
    };
    match feed {
        Ok(feed) => traced(options, stop, keep, see, (watcher, feed, &facts)),
        Err(error) => {
            let advice = facts.advice();
            let why = format!("{error}\n{advice}").trim_end().to_owned();
            let report = untraced(options, stop, see, watcher, &why);
            if let Some(keep) = keep {
                keep.finish(&Found { report: &report, history: None });
            }
            Ok(report)
        }
    }
}

/// Source of the cycles.
enum Feed {
    /// All events of the machine.
    Events(Box<Tracer>),
    /// The kernel follows the threads; events are read round late cycles.
    Kernel(Box<Windows>),
}

impl Feed {
    fn start(follow: FollowBy, trace: &TraceOptions, watcher: &mut Watcher) -> Result<Self, TraceError> {
        if follow != FollowBy::Events {
            match Windows::start(trace) {
                Ok(windows) => {
                    watcher.in_kernel = true;
                    return Ok(Self::Kernel(Box::new(windows)));
                }
                Err(error) if follow == FollowBy::Kernel => return Err(error),
                // Said only where the events that are read instead can be had.
                Err(error) => {
                    watcher.note(format!(
                        "the kernel cannot follow the threads here, so takt reads all events: {error}"
                    ));
                }
            }
        }
        Tracer::start(trace).map(|tracer| Self::Events(Box::new(tracer)))
    }

    fn by(&self) -> FollowBy {
        match self {
            Self::Events(_) => FollowBy::Events,
            Self::Kernel(_) => FollowBy::Kernel,
        }
    }

    /// Period of taking new results.
    fn part(&self) -> Duration {
        match self {
            Self::Events(_) => PART,
            Self::Kernel(_) => windows::TICK,
        }
    }

    fn follow(&self, processes: Vec<i32>) {
        match self {
            Self::Events(tracer) => tracer.follow(processes),
            Self::Kernel(windows) => windows.follow_faults(processes),
        }
    }
}

/// Processes whose page faults are worth recording. Those of a whole machine would fill the rings.
fn followed(watcher: &Watcher, target: &Target) -> Vec<i32> {
    match target {
        Target::Machine => Vec::new(),
        _ => watcher.watched.processes.iter().copied().collect(),
    }
}

/// Takes the records of declared loops, and looks for new ones every second. Not where somebody
/// else keeps the cycles and takes these records himself.
struct Declarations(Option<(Watching, u64)>);

impl Declarations {
    fn new(is_wanted: bool) -> Self {
        Self(is_wanted.then(Default::default))
    }

    fn part(&mut self, watcher: &Watcher, target: &Target, second: bool) {
        let Some((watching, looks)) = &mut self.0 else { return };
        if second {
            if !matches!(target, Target::Machine) || *looks % MACHINE_LOOKS == 0 {
                watching.look(watcher.watched.processes.iter().copied());
            }
            *looks += 1;
        }
        watching.take();
    }

    fn fill(&self, report: &mut Report) {
        if let Some((watching, _)) = &self.0 {
            let (declared, notes) = watching.report();
            report.declared = declared;
            report.notes.extend(notes);
        }
    }
}

/// Waits for the next part; true where it is the last.
fn is_last(
    options: &Options,
    stop: &AtomicBool,
    watcher: &mut Watcher,
    (began, part): (Instant, Duration),
) -> bool {
    let until = Instant::now() + part;
    let end = options.seconds.map(|seconds| began + Duration::from_secs_f64(seconds));
    loop {
        if stop.load(Ordering::Acquire) || end.is_some_and(|end| Instant::now() >= end) {
            return true;
        }
        // Looking a target up costs a walk through /proc.
        if matches!(options.target, Target::Process(_) | Target::Tree(_) | Target::Offspring(_))
            && watcher.is_time_to_look(ALIVE)
            && !watcher.watched.still_lives()
        {
            watcher.watched.refresh();
            if !watcher.watched.is_there() {
                return true;
            }
        }
        let now = Instant::now();
        if now >= until {
            return false;
        }
        let next = end.map_or(until, |end| end.min(until));
        std::thread::sleep(look(part).min(next.saturating_duration_since(now)));
    }
}

/// Each wake-up costs some microseconds, so the shortest parts are slept through as a whole.
fn look(part: Duration) -> Duration {
    if part == PART { LOOK } else { part }
}

fn traced(
    options: &Options,
    stop: &AtomicBool,
    mut keep: Option<&mut dyn Keep>,
    see: &mut dyn FnMut(&Report),
    (mut watcher, mut feed, facts): (Watcher, Feed, &Facts),
) -> Result<Report, WatchError> {
    let began = Instant::now();
    // Beside the reader, which hands it what it has read: events of late cycles are overwritten
    // within a second.
    let _favoured = takt_rt::policy::Favoured::begin(NICE);
    let mut refreshed = began;
    let busy_ns = own_cpu_ns();
    let by = feed.by();
    let mut processes = followed(&watcher, &options.target);
    let mut pythons = Pythons::new(options.settings.probes);
    pythons.refresh(&watcher.watched);
    watcher.spinning.on = true;
    watcher.look_for_spinning();
    // With those that have ended by the time of the report.
    let mut own: BTreeSet<i32> = BTreeSet::new();
    let mut declarations = Declarations::new(options.settings.declared);
    declarations.part(&watcher, &options.target, true);
    let finish = |watcher: &Watcher, pythons: &Pythons, own: &BTreeSet<i32>, declared: &Declarations| {
        let mut report = watcher.report();
        declared.fill(&mut report);
        report.python = pythons.reports(&watcher.watched);
        advise(&mut report, pythons, own);
        let (by_own_ns, all_ns) = watcher.lateness_by(own);
        report.watcher_lateness_us = by_own_ns as f64 / 1e3;
        report.watcher_lateness_share = (all_ns > 0).then(|| by_own_ns as f64 / all_ns as f64);
        report.target = options.target.to_string();
        report.followed_by = by;
        let spent_ns = own_cpu_ns().saturating_sub(busy_ns);
        report.watcher_cpu_percent = spent_ns as f64 / 1e7 / report.seconds.max(1e-3);
        report.notes.extend(
            facts.missing().into_iter().map(|one| format!("missing: {}; fix: {}", one.what, one.fix)),
        );
        report
    };
    let report = loop {
        let last = is_last(options, stop, &mut watcher, (began, feed.part()));
        let second = last || refreshed.elapsed() >= PART;
        if second {
            refreshed = Instant::now();
            own.extend(procfs::threads::<i32>(std::process::id()));
            watcher.refresh();
            watcher.look_for_spinning();
            pythons.refresh(&watcher.watched);
        }
        declarations.part(&watcher, &options.target, second);
        let mut sink = |tid: i32, jobs: &[JobRecord]| {
            if let Some(keep) = keep.as_deref_mut() {
                keep.jobs(tid, jobs);
            }
        };
        match feed {
            Feed::Events(tracer) if last => {
                watcher.feed(tracer.stop()?, true, &mut sink);
                watcher.refresh();
                break finish(&watcher, &pythons, &own, &declarations);
            }
            Feed::Events(ref tracer) => watcher.feed(tracer.take()?, false, &mut sink),
            Feed::Kernel(ref mut windows) => watcher.take(windows, last, &mut sink)?,
        }
        if let Some(keep) = keep.as_deref_mut() {
            keep.part();
        }
        if last {
            // Names of those that only the last part reported.
            watcher.refresh();
            break finish(&watcher, &pythons, &own, &declarations);
        }
        if !second {
            continue;
        }
        let now = followed(&watcher, &options.target);
        if now != processes {
            feed.follow(now.clone());
            processes = now;
        }
        if options.settings.live {
            see(&finish(&watcher, &pythons, &own, &declarations));
        }
    };
    if let Some(keep) = keep {
        keep.finish(&Found { report: &report, history: Some(watcher.history()) });
    }
    Ok(report)
}

/// Watches by /proc alone: rates, waits and CPU time, and no causes.
fn untraced(
    options: &Options,
    stop: &AtomicBool,
    see: &mut dyn FnMut(&Report),
    mut watcher: Watcher,
    why: &str,
) -> Report {
    let began = Instant::now();
    let mut coarse = Coarse::default();
    let mut declarations = Declarations::new(options.settings.declared);
    declarations.part(&watcher, &options.target, true);
    loop {
        coarse.look(&watcher.watched);
        let last = is_last(options, stop, &mut watcher, (began, PART));
        watcher.refresh();
        declarations.part(&watcher, &options.target, true);
        if last {
            coarse.look(&watcher.watched);
        }
        let mut report = coarse.report(&options.target.to_string(), why);
        report.notes.extend(watcher.notes.iter().cloned());
        declarations.fill(&mut report);
        watcher.take_packets(last);
        // Without events nobody can be blamed but the robot and the network.
        watcher.links.iter_mut().for_each(|link| link.pending.clear());
        report.links = watcher.links.iter().map(crate::link::Link::report).collect();
        report.notes.extend(watcher.links.iter().flat_map(crate::link::Link::notes));
        if last {
            return report;
        }
        see(&report);
    }
}

/// CPU time of this program, without the threads that keep CPUs awake: those run only where nobody
/// else wants to.
fn own_cpu_ns() -> u64 {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else { return 0 };
    let spent = tasks.flatten().filter_map(|task| {
        let name = std::fs::read_to_string(task.path().join("comm")).ok()?;
        if name.starts_with("takt-awake") || name.starts_with("takt-gaps") {
            return None;
        }
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    });
    spent.sum()
}

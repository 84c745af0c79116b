//! The running machine: settings made and taken back through the journal, the loop's cycles from
//! the kernel's events, block by block.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsString;
use std::fmt::Display;
use std::io;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use takt_host::doctor::{Action, Journal, Scope, Setting};
use takt_host::reserve::restore::guard::Guard;
use takt_rt::clock::monotonic_ns;
use takt_rt::jobs::JobRecord;
use takt_rt::placement::{self, CpuSet};
use takt_rt::policy::Policy;
use takt_rt::procfs::CpuTime;
use takt_watch::rights::Facts;
use takt_watch::{CycleFeed, LoopReport, Report, Settings as WatchSettings, Target, Watcher, target};

use crate::aim::{Aim, Time};
use crate::catalog::{Knob, Loop};
use crate::design::{Bench, Block, Config};
use crate::error::TuneError;

/// So many watch: whoever kills the search and its watchdog at once leaves the other.
const WATCHDOGS: usize = 2;

/// Watchdogs of this command line; none without.
fn watchdogs(words: Option<Vec<OsString>>) -> io::Result<Vec<Guard>> {
    let Some(words) = words else { return Ok(Vec::new()) };
    let start = |words: Vec<OsString>| {
        Guard::start(move || {
            let (program, arguments) = words.split_first().ok_or(io::ErrorKind::InvalidInput)?;
            let mut command = Command::new(program);
            command.args(arguments);
            Ok(command)
        })
    };
    (0..WATCHDOGS).map(|_| start(words.clone())).collect()
}

/// Options of tuning the running machine.
#[derive(Debug)]
pub struct LiveOptions {
    /// The target.
    pub target: Target,
    /// The aim.
    pub aim: Aim,
    /// The loop's period, where the user reported it.
    pub period: Option<Duration>,
    /// Length of a block; found from the period and the time there is when absent.
    pub block: Option<Duration>,
    /// Total time, including the restoring of all settings.
    pub budget: Duration,
    /// The file that everything is taken back by.
    pub state: PathBuf,
    /// The command that takes everything back after a kill: it calls
    /// [`takt_host::doctor::journal::watchdog`] with the state file.
    pub watchdog: Option<Vec<OsString>>,
}

/// The loop is looked for so long at most.
const LOOK: Duration = Duration::from_secs(15);
/// And at least so long, so that the fastest of several is not the first that woke up.
const MIN_LOOK: Duration = Duration::from_millis(1500);
/// Of a short search no more than this part.
const LOOK_PART: f64 = 0.2;
/// Cycles of a block, and of one in a search that has little time.
const CYCLES: [f64; 2] = [200.0, 10.0];
/// A block is not shorter where there is time: what comes ten times a second has a part in each. In
/// a search with little time it must come more often to be seen.
const MIN_BLOCK: [Duration; 2] = [Duration::from_millis(300), Duration::from_millis(60)];
/// Nor longer: drift is to be slow against it.
const MAX_BLOCK: Duration = Duration::from_secs(5);
/// Blocks that a search is to have: to this end they are made shorter.
const BLOCKS: f64 = 400.0;
/// Taking everything back, and the answer, are to be within the time as well.
pub(crate) const TO_END: Duration = Duration::from_millis(500);
/// The newest block has this part in the estimate of what a block takes.
const NEWEST: f64 = 0.2;
/// After a change this passes before it counts: caches, timers that were armed before, work that
/// was put off.
const SETTLE: Duration = Duration::from_millis(40);
/// And so many periods.
const SETTLE_PERIODS: f64 = 3.0;
/// The last cycle of a block may end before the search goes on: a period, and no longer than this.
const LAST_CYCLE: Duration = Duration::from_millis(5);
/// So long at least the cycles under way may take to end, before blocks are looked at.
const END_OF_BLOCKS: Duration = Duration::from_millis(100);

/// A block that was measured: from when to when, stolen time and load.
type Window = ((u64, u64), f64, f64);

/// Closed by a thread of its own: the kernel waits for its grace periods (RCU) then, a dozen of
/// them, and where others leave its threads no CPU that takes seconds. Nothing waits for it but the
/// end of the process.
#[derive(Debug)]
struct ClosedBehind(Option<CycleFeed>);

impl Drop for ClosedBehind {
    fn drop(&mut self) {
        if let Some(feed) = self.0.take() {
            // Without a thread it is closed here and now.
            let _ = std::thread::Builder::new().name("takt-close".to_owned()).spawn(move || drop(feed));
        }
    }
}

/// A watched loop on a machine whose settings are tried.
#[derive(Debug)]
pub struct Live<'a> {
    feed: ClosedBehind,
    watcher: Watcher,
    journal: Option<Journal>,
    /// Behind the journal, so that it ends when everything has been taken back.
    watchdogs: Vec<Guard>,
    stop: &'a AtomicBool,
    aim: Aim,
    pub about: Loop,
    /// Settings of each way of each knob.
    ways: Vec<Vec<Vec<Setting>>>,
    on: Vec<Action>,
    /// Cycles that no block has counted yet: planned, lateness and response.
    cycles: VecDeque<(u64, u64, u64)>,
    refreshed: Instant,
    /// Length of a block.
    pub block: Duration,
    settle: Duration,
    last_cycle: Duration,
    /// By then everything is to have been taken back.
    deadline: Instant,
    /// Time of a block with everything that belongs to it, as seen so far.
    takes: Duration,
    /// The longest that a change of settings took, which taking everything back may take as well:
    /// where others leave the kernel's own threads no CPU it is seconds.
    slowest_change: Duration,
    /// Refusals of the kernel during the search, and their number.
    pub refused: BTreeMap<String, u32>,
    /// Events that were lost.
    pub lost: u64,
    /// Settings left by an earlier search that had been killed.
    pub left_behind: usize,
}

/// Observations before any change.
#[derive(Debug)]
pub struct Seen {
    /// Used share of each CPU.
    pub busy: Vec<(usize, f64)>,
    /// The loop, as it was found.
    pub thread: LoopReport,
}

impl<'a> Live<'a> {
    /// Watches until the loop is found, and begins the journal. Nothing is changed yet.
    ///
    /// # Errors
    /// [`TuneError`].
    pub fn begin(options: LiveOptions, stop: &'a AtomicBool) -> Result<(Self, Seen), TuneError> {
        let before = Instant::now();
        let settings = WatchSettings {
            period_ns: options.period.map(|period| period.as_nanos() as f64),
            // Causes are not asked for, so that nothing counts as late.
            late_ns: Some(u64::MAX),
            deadline_ns: Some(u64::MAX),
            windows: 1,
            ..WatchSettings::default()
        };
        let mut watcher = Watcher::new(options.target.clone(), settings);
        watcher.refresh();
        let shown = options.target.to_string();
        if !watcher.watched.is_there() {
            return Err(takt_watch::WatchError::Nobody { target: shown }.into());
        }
        let facts = Facts::read();
        let not_traced = |why: &dyn Display| {
            TuneError::NotTraced(format!("{why}\n{}", facts.advice()).trim_end().to_owned())
        };
        if facts.own_pids {
            return Err(not_traced(&"they use thread ids of another namespace"));
        }
        // CPUs are not kept awake: how they sleep is one of the knobs.
        let mut feed = CycleFeed::start(&mut watcher).map_err(|error| not_traced(&error))?;
        let (from, began) = (CpuTime::read_by_cpu(), Instant::now());
        let look = LOOK.min(options.budget.mul_f64(LOOK_PART));
        let thread = loop {
            std::thread::sleep(Duration::from_millis(250));
            if stop.load(Ordering::Acquire) {
                return Err(TuneError::Stopped);
            }
            watcher.refresh();
            feed.take(&mut watcher, &mut |_, _| {})?;
            let report = watcher.report();
            let over = began.elapsed() > look;
            if began.elapsed() > MIN_LOOK.min(look) || over {
                match choose(&report, &options.aim) {
                    Ok(thread) => break thread.clone(),
                    Err(reason) if over => return Err(TuneError::NoLoop { target: shown, reason }),
                    Err(_) => {}
                }
            }
            if !watcher.watched.is_there() {
                let reason = "it ended before takt found a loop".to_owned();
                return Err(TuneError::NoLoop { target: shown, reason });
            }
        };
        let busy = CpuTime::read_by_cpu()
            .into_iter()
            .filter_map(|(cpu, now)| {
                let before = from.iter().find(|entry| entry.0 == cpu)?;
                Some((cpu, now.since(&before.1).busy))
            })
            .collect();
        let about = about(&thread)?;
        let period = about.period_ns.map_or(Duration::from_millis(10), |ns| Duration::from_nanos(ns as u64));
        let settle = SETTLE.max(period.mul_f64(SETTLE_PERIODS)).min(MAX_BLOCK);
        let block = options.block.unwrap_or_else(|| block(period, settle, options.budget));
        // The watchdog first: from its first byte on somebody looks after the file.
        let watchdogs = watchdogs(options.watchdog).map_err(TuneError::Watchdog)?;
        let (journal, left) = Journal::begin(&options.state)?;
        let live = Self {
            feed: ClosedBehind(Some(feed)),
            watcher,
            journal: Some(journal),
            watchdogs,
            stop,
            aim: options.aim,
            about,
            ways: Vec::new(),
            on: Vec::new(),
            cycles: VecDeque::new(),
            refreshed: Instant::now(),
            block,
            settle,
            last_cycle: period.min(LAST_CYCLE),
            deadline: before + options.budget,
            takes: block + settle,
            slowest_change: Duration::ZERO,
            refused: BTreeMap::new(),
            lost: 0,
            left_behind: left.len(),
        };
        Ok((live, Seen { busy, thread }))
    }

    /// The journal, to try knobs with.
    pub fn journal(&mut self) -> Option<&mut Journal> {
        self.journal.as_mut()
    }

    /// The knobs that are searched.
    pub fn offer(&mut self, knobs: &[Knob]) {
        let of = |knob: &Knob| knob.ways.iter().map(|way| way.settings.clone()).collect();
        self.ways = knobs.iter().map(of).collect();
    }

    /// So much time a change of settings took.
    pub(crate) fn change_took(&mut self, time: Duration) {
        self.slowest_change = self.slowest_change.max(time);
    }

    /// Number of restarts of the watchdog.
    pub(crate) fn guarded_again(&self) -> u32 {
        self.watchdogs.iter().filter_map(|watchdog| watchdog.check().ok()).sum()
    }

    /// Takes everything back.
    ///
    /// # Errors
    /// [`TuneError::Journal`] names what could not be put back.
    pub fn end(mut self) -> Result<(), TuneError> {
        self.take_back()
    }

    fn take_back(&mut self) -> Result<(), TuneError> {
        self.on.clear();
        match self.journal.take() {
            Some(journal) => journal.revert().map(|_| ()).map_err(TuneError::from),
            None => Ok(()),
        }
    }

    /// Brings the machine from what is set to what `config` asks for.
    fn switch(&mut self, config: &Config) -> Result<(), TuneError> {
        let Some(journal) = self.journal.as_mut() else { return Ok(()) };
        let scope = Some(self.about.scope);
        let mut wanted: Vec<Action> = Vec::new();
        let mut refused = Vec::new();
        for (ways, way) in self.ways.iter().zip(config) {
            let Some(settings) = way.and_then(|way| ways.get(way)) else { continue };
            for setting in settings {
                match setting.resolve(scope) {
                    Ok(actions) => wanted.extend(actions),
                    Err(why) => refused.push(why.to_string()),
                }
            }
        }
        journal.note(&wanted)?;
        let gone: Vec<Action> =
            self.on.iter().rev().filter(|action| !wanted.contains(action)).cloned().collect();
        let mut given_up = false;
        for action in &gone {
            given_up |= matches!(action, Action::Cpus(..));
            refused.extend(journal.unset(action).err().map(|why| why.to_string()));
        }
        if given_up {
            journal.free_inherited();
        }
        // Taking back one setting of a thread takes back all of it, and a policy changes its slack:
        // they are made again.
        for action in &wanted {
            if !journal.is_set(action) || matches!(action, Action::File(_)) && !self.on.contains(action) {
                refused.extend(journal.set(action).err().map(|why| why.to_string()));
            }
        }
        self.on = wanted;
        for why in refused {
            // A thread of somebody else that has ended meanwhile is nobody's fault.
            if !why.ends_with("has ended") && self.refused.len() < 20 {
                *self.refused.entry(why).or_default() += 1;
            }
        }
        Ok(())
    }

    /// Takes what was traced meanwhile.
    fn take(&mut self) -> Result<(), TuneError> {
        if self.refreshed.elapsed() > Duration::from_secs(1) {
            self.watcher.refresh();
            self.refreshed = Instant::now();
        }
        let (tid, cycles) = (self.about.scope.tid as i32, &mut self.cycles);
        let Some(feed) = &mut self.feed.0 else { return Ok(()) };
        self.lost += feed.take(&mut self.watcher, &mut |of, jobs: &[JobRecord]| {
            if of == tid {
                cycles.extend(jobs.iter().map(|job| (job.planned_ns, job.lateness_ns(), job.response_ns())));
            }
        })?;
        Ok(())
    }

    fn check(&self) -> Result<(), TuneError> {
        if self.is_stopped() {
            return Err(TuneError::Stopped);
        }
        for watchdog in &self.watchdogs {
            watchdog.check().map_err(TuneError::Watchdog)?;
        }
        let Scope { pid, tid } = self.about.scope;
        if !std::path::Path::new(&format!("/proc/{pid}/task/{tid}")).exists() {
            return Err(TuneError::Ended { name: self.about.thread.clone(), tid: tid as i32 });
        }
        Ok(())
    }

    /// Sleeps, and looks at the flag meanwhile.
    fn pause(&self, time: Duration) -> Result<(), TuneError> {
        let until = Instant::now() + time;
        loop {
            self.check()?;
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(Duration::from_millis(100)));
        }
    }

    /// The block between two times, from the cycles that were planned in it.
    fn block_of(&self, (from_ns, to_ns): (u64, u64), stolen: f64, load: f64) -> Block {
        let inside = self.cycles.iter().filter(|cycle| (from_ns..to_ns).contains(&cycle.0));
        let pick = |cycle: &(u64, u64, u64)| match self.aim.time {
            Time::Lateness => cycle.1 as f64 / 1e3,
            Time::Response => cycle.2 as f64 / 1e3,
        };
        let mut values: Vec<f64> = inside.clone().map(pick).collect();
        let releases = values.len() as u64;
        // A loop that did not get to run at all has no cycles to report of: from its last release
        // to the end it was kept waiting.
        let last_ns = inside.map(|cycle| cycle.0).max().unwrap_or(from_ns);
        let patience_ns = self.about.period_ns.map_or(f64::INFINITY, |ns| 3.0 * ns);
        let silent_ns = to_ns.saturating_sub(last_ns) as f64;
        if silent_ns > patience_ns || releases == 0 {
            values.push(silent_ns / 1e3);
        }
        let worst_us = values.iter().copied().fold(0.0, f64::max);
        let value_us = self.aim.of(&mut values).unwrap_or(worst_us);
        Block { value_us, worst_us, releases, stolen, load }
    }
}

impl Bench for Live<'_> {
    type Error = TuneError;

    fn measure(&mut self, plan: &[Config]) -> Result<Vec<Block>, TuneError> {
        let mut windows = Vec::new();
        let mut at = Instant::now();
        for config in plan {
            if self.left() == 0 {
                break;
            }
            match self.window(config) {
                Ok(window) => windows.push(window),
                // The blocks before it count.
                Err(TuneError::Stopped) => break,
                Err(error) => return Err(error),
            }
            self.take()?;
            let took = std::mem::replace(&mut at, Instant::now()).elapsed();
            self.takes = self.takes.mul_f64(1.0 - NEWEST) + took.mul_f64(NEWEST);
        }
        // As found meanwhile, so that the cycles under way can end; those of whole blocks have.
        self.switch(&Vec::new())?;
        match self.pause(self.settle.max(END_OF_BLOCKS)) {
            Ok(()) | Err(TuneError::Stopped) => {}
            Err(error) => return Err(error),
        }
        self.take()?;
        let blocks =
            windows.iter().map(|&(window, stolen, load)| self.block_of(window, stolen, load)).collect();
        self.cycles.clear();
        Ok(blocks)
    }

    fn left(&self) -> usize {
        if self.is_stopped() {
            return 0;
        }
        let reserved = TO_END + self.takes + END_OF_BLOCKS + self.slowest_change;
        let left = self.deadline.saturating_duration_since(Instant::now()).saturating_sub(reserved);
        (left.as_secs_f64() / self.takes.as_secs_f64().max(1e-3)) as usize
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }
}

/// The length of a block: shorter than it might be where the time would not do for enough of them.
fn block(period: Duration, settle: Duration, budget: Duration) -> Duration {
    let [usual, short] = [0, 1].map(|at| period.mul_f64(CYCLES[at]).clamp(MIN_BLOCK[at], MAX_BLOCK));
    let fits = budget.div_f64(BLOCKS).saturating_sub(settle);
    fits.clamp(short, usual.max(short))
}

impl Live<'_> {
    /// One block under `config`: from when to when, the stolen time and the load of others in it.
    fn window(&mut self, config: &Config) -> Result<Window, TuneError> {
        self.check()?;
        let before = Instant::now();
        self.switch(config)?;
        self.change_took(before.elapsed());
        self.pause(self.settle)?;
        let (before, from_ns) = (CpuTime::read(), monotonic_ns());
        self.pause(self.block)?;
        let (to_ns, after) = (monotonic_ns(), CpuTime::read());
        self.pause(self.last_cycle)?;
        let used = after.since(&before);
        let load = (used.busy - used.stolen - self.own_share()).max(0.0);
        Ok(((from_ns, to_ns), used.stolen, load))
    }

    /// The loop's own part of all CPUs' time.
    fn own_share(&self) -> f64 {
        let cpus = placement::online().map_or(1, |online| online.len().max(1));
        self.about.share / cpus as f64
    }
}

impl Drop for Live<'_> {
    fn drop(&mut self) {
        // Failed entries stay in the file, and the watchdog tries once more.
        let _ = self.take_back();
    }
}

/// The loop that is meant: of the threads that the aim names, or of all, the fastest that has a
/// period.
fn choose<'r>(report: &'r Report, aim: &Aim) -> Result<&'r LoopReport, String> {
    type Names = fn(&LoopReport) -> &str;
    // A thread's own name before that of its process, which others have as well.
    let of_name = [|thread| thread.name.as_str(), |thread| thread.process.as_str()] as [Names; 2];
    let named = |name: Names| {
        let meant = move |thread: &&LoopReport| {
            aim.thread.as_ref().is_none_or(|pattern| target::matches(pattern, name(thread)))
        };
        report.threads.iter().filter(meant)
    };
    let fastest = |threads: &mut dyn Iterator<Item = &'r LoopReport>| {
        threads.max_by(|a, b| a.rate_hz.total_cmp(&b.rate_hz))
    };
    let periodic = |name: Names| fastest(&mut named(name).filter(|thread| thread.period_us.is_some()));
    // One of a name that is asked for may do without a period.
    let awake = |name: Names| {
        fastest(&mut named(name).filter(|thread| thread.releases >= 20 && aim.thread.is_some()))
    };
    let found = of_name.into_iter().find_map(periodic).or_else(|| of_name.into_iter().find_map(awake));
    found.ok_or_else(|| {
        let seen: Vec<String> = report
            .threads
            .iter()
            .take(6)
            .map(|thread| format!("{} ({:.0} Hz)", thread.name, thread.rate_hz))
            .collect();
        match (&aim.thread, seen.is_empty()) {
            (_, true) => "none of its threads slept and was woken, so none has a cycle".to_owned(),
            (Some(name), _) => format!("no loop named `{name}` was found; the loops seen: {}", seen.join(", ")),
            (None, _) => format!(
                "none of its threads has a period; threads seen: {}. Fix: name one (--aim \"worst lateness of NAME\"), or pass the period \
                 (--period)",
                seen.join(", ")
            ),
        }
    })
}

/// Properties that the catalogue needs.
fn about(thread: &LoopReport) -> Result<Loop, TuneError> {
    let ended = || TuneError::Ended { name: thread.name.clone(), tid: thread.tid };
    let policy = Policy::read(thread.tid).map_err(|_| ended())?;
    let cpus: CpuSet = placement::affinity(thread.tid).map_err(|_| ended())?;
    Ok(Loop {
        scope: Scope { pid: thread.pid.unsigned_abs(), tid: thread.tid.unsigned_abs() },
        process: thread.process.clone(),
        thread: thread.name.clone(),
        period_ns: thread.period_us.map(|us| us * 1e3),
        share: thread.cpu_percent / 100.0,
        policy,
        cpus,
    })
}

//! SCHED_DEADLINE and CPUs of one's own for the few threads of a robot.
//!
//! The ways, in order; each is tried with the threads themselves and undone where it does not hold:
//!
//! 1. The CPUs are a domain of their own already: one isolated CPU (`isolcpus=`), or an exclusive
//!    cpuset that the program was started in.
//! 2. Admission control off while the threads are placed (`sched_rt_runtime_us = -1`, which
//!    switches runtime throttling off as well), and on again at once: the kernel checks the
//!    affinity of a reservation when it grants it, and never again. Milliseconds.
//! 3. Exclusive cpusets (cgroup v1), for as long as the threads run.
//! 4. Partition roots (cgroup v2), for as long as the threads run.
//!
//! Changes are on disk first ([`restore`]), and a watchdog process undoes them when this one is
//! killed. Without one, only the first way is gone.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use takt_rt::placement::{self, CpuSet};
use takt_rt::policy::Policy;

use crate::reserve::partition::{Partition, Trouble, set};
use crate::reserve::restore::watchdog::Watchdog;
use crate::reserve::restore::{self, Journal, Owner};
use crate::reserve::system::{Attributes, Kernel, Linux, RECLAIM, RESET_ON_FORK};
use crate::reserve::{ADMISSION_FILE, Mode};

/// A sleeping thread belongs to the domain of the CPU where it fell asleep, so it has to wake once
/// before a reservation is granted on others.
const PATIENCE: Duration = Duration::from_millis(200);
/// Between two attempts.
const STEP: Duration = Duration::from_millis(2);
/// Time to wait for another program's placing, which also takes milliseconds.
const OTHERS: Duration = Duration::from_secs(2);

/// Method that combined a reservation with its CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PinMethod {
    /// The CPUs were a scheduling domain of their own.
    OwnDomain,
    /// Admission control was off while the threads were placed.
    AdmissionPaused,
    /// Exclusive cpusets of cgroup v1.
    ExclusiveSets,
    /// Partition roots of cgroup v2.
    PartitionRoots,
}

impl PinMethod {
    /// All, in the order in which they are tried.
    pub const ALL: [Self; 4] =
        [Self::OwnDomain, Self::AdmissionPaused, Self::ExclusiveSets, Self::PartitionRoots];
}

impl std::fmt::Display for PinMethod {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::OwnDomain => "the CPUs are a scheduling domain of their own",
            Self::AdmissionPaused => {
                "admission control and runtime throttling off while the threads were placed"
            }
            Self::ExclusiveSets => "exclusive cpusets (cgroup v1)",
            Self::PartitionRoots => "partition roots (cgroup v2)",
        })
    }
}

/// A thread of this process, and what it is to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// The thread; it may sleep, but must wake within milliseconds.
    pub tid: i32,
    pub cpus: CpuSet,
    /// Its policy, a reservation.
    pub policy: Policy,
}

/// A way that does not hold here, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Closed {
    pub way: PinMethod,
    pub reason: String,
}

impl std::fmt::Display for Closed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.way, self.reason)
    }
}

/// Makes the program that undoes what the file of this name says when this process ends: it calls
/// [`watchdog::run`](crate::reserve::restore::watchdog::run).
pub type WatchdogCommand = fn(&Path) -> io::Result<Command>;

static WATCHDOG: OnceLock<WatchdogCommand> = OnceLock::new();

/// Reports once, at the start of the program, which program is the watchdog.
pub fn undo_after_a_kill_with(command: WatchdogCommand) {
    // The first to report is the program itself.
    let _ = WATCHDOG.set(command);
}

/// Permissions of [`pin`].
#[derive(Debug, Clone)]
pub struct PinOptions {
    /// The file that says what to undo. Beside the manager's.
    pub state: PathBuf,
    /// The watchdog program; by default that of [`undo_after_a_kill_with`].
    pub watchdog: Option<WatchdogCommand>,
    /// The ways, in order. [`PinMethod::ALL`].
    pub ways: Vec<PinMethod>,
}

impl Default for PinOptions {
    fn default() -> Self {
        Self {
            state: restore::default_path().with_file_name("placement.json"),
            watchdog: WATCHDOG.get().copied(),
            ways: PinMethod::ALL.to_vec(),
        }
    }
}

/// Threads that have what was wanted. Dropping it undoes what is still changed; the threads should
/// have ended then.
#[derive(Debug)]
pub struct Pinned {
    /// The way that held.
    pub way: PinMethod,
    /// Those tried before.
    pub closed: Vec<Closed>,
    _hold: Option<Hold>,
    _dead: Option<Dead>,
}

/// Threads that have died with their reservations: the kernel counts anew without them. Some it
/// takes out of its account twice (one of two that die asleep on 6.18), and where nothing else is
/// reserved it refuses everything from then on.
#[derive(Debug)]
struct Dead(Linux);

impl Drop for Dead {
    fn drop(&mut self) {
        self.0.await_zero_lag(true);
        // The kernel counts anew when a value is written, and the one that was read must not be
        // written once another program has changed it. Whoever has switched the test off has it
        // counted when it is switched on.
        let owner = Owner::if_free(&self.0);
        if owner.is_some() || !is_off(&self.0) {
            self.0.recount();
        }
    }
}

/// Whether admission control is off, whoever switched it off.
fn is_off(kernel: &dyn Kernel) -> bool {
    kernel.read(Path::new(ADMISSION_FILE)).is_ok_and(|now| now.trim() == "-1")
}

/// Changes of the system that last as long as the threads.
#[derive(Debug)]
struct Hold {
    journal: Journal,
    // After the journal is undone.
    _watchdog: Watchdog,
    _partition: Partition,
}

impl Drop for Hold {
    fn drop(&mut self) {
        // Failed entries stay in the file; the watchdog tries once more.
        let _ = self.journal.undo(&mut Linux::new());
    }
}

/// Gives every thread its CPUs and its reservation, all in one way.
///
/// # Errors
/// The ways and why each is closed; nothing is changed then: the threads run as SCHED_OTHER where
/// they ran before.
pub fn pin(wanted: &[Wanted], options: &PinOptions) -> Result<Pinned, Vec<Closed>> {
    let mut closed = Vec::new();
    let mut journal = None;
    for &way in &options.ways {
        let outcome = match way {
            PinMethod::OwnDomain => apply_all(wanted).map(|()| None),
            // A manager's reservations go on beside these; nothing has to be changed.
            PinMethod::AdmissionPaused if is_off(&Linux::new()) => apply_all(wanted).map(|()| None),
            _ => {
                let begun = match journal.take() {
                    Some(begun) => Ok(begun),
                    None => begin(options),
                };
                begun.and_then(|(begun, watchdog)| change(way, wanted, begun, watchdog, &mut journal))
            }
        };
        match outcome {
            Ok(hold) => {
                let dead = (way == PinMethod::AdmissionPaused).then(|| {
                    let given = wanted.iter().filter_map(|one| attributes(&one.policy));
                    Dead(Linux::after_the_death_of(given))
                });
                return Ok(Pinned { way, closed, _hold: hold, _dead: dead });
            }
            Err(reason) => closed.push(Closed { way, reason }),
        }
    }
    if let Some((mut journal, _watchdog)) = journal {
        let _ = journal.undo(&mut Linux::new());
        // Before the watchdog, which would wait for its lock.
        drop(journal);
    }
    Err(closed)
}

fn begin(options: &PinOptions) -> Result<(Journal, Watchdog), String> {
    let Some(command) = options.watchdog else {
        return Err("this program has no watchdog to undo it after a kill".into());
    };
    let end = Instant::now() + OTHERS;
    let journal = loop {
        match Journal::begin(&mut Linux::new(), &options.state) {
            Ok((journal, _)) => break journal,
            Err(restore::Error::StillManaged { .. }) if Instant::now() < end => {
                std::thread::sleep(10 * STEP);
            }
            Err(error) => return Err(error.to_string()),
        }
    };
    let watchdog = command(&options.state).and_then(Watchdog::start);
    match watchdog {
        Ok(watchdog) => Ok((journal, watchdog)),
        Err(error) => {
            let mut journal = journal;
            let _ = journal.undo(&mut Linux::new());
            Err(format!("the watchdog that undoes it after a kill cannot be started: {error}"))
        }
    }
}

/// Goes one way that changes the system. Settings that are no longer needed, or that did not hold,
/// are undone; `left` then has the journal for the next.
fn change(
    way: PinMethod,
    wanted: &[Wanted],
    mut journal: Journal,
    watchdog: Watchdog,
    left: &mut Option<(Journal, Watchdog)>,
) -> Result<Option<Hold>, String> {
    let kernel = &mut Linux::new();
    let outcome = match way {
        PinMethod::OwnDomain | PinMethod::AdmissionPaused => {
            let off = set(kernel, &mut journal, Path::new(ADMISSION_FILE), "-1", None);
            off.map_err(words).and_then(|()| apply_all(wanted)).map(|()| None)
        }
        PinMethod::ExclusiveSets => grouped(kernel, &mut journal, Mode::ExclusiveSets, wanted).map(Some),
        PinMethod::PartitionRoots => grouped(kernel, &mut journal, Mode::PartitionRoots, wanted).map(Some),
    };
    if let Ok(Some(partition)) = outcome {
        return Ok(Some(Hold { journal, _watchdog: watchdog, _partition: partition }));
    }
    let undone = journal.undo(kernel).map_err(|error| error.to_string())?;
    let outcome = match outcome {
        // On again, with the reservations in its account; read back, since a thread that lost its
        // place in between is none.
        Ok(_) if undone.is_complete() => wanted.iter().try_for_each(holds).map(|()| None),
        Ok(_) => Err(undone.to_string()),
        Err(reason) => Err(reason),
    };
    if outcome.is_err() {
        release(wanted);
        *left = Some((journal, watchdog));
    }
    outcome
}

fn words(trouble: Trouble) -> String {
    match trouble {
        Trouble::Closed(reason) => reason,
        Trouble::Journal(error) => error.to_string(),
    }
}

/// CPUs by affinity, then the reservation, for all threads or none.
fn apply_all(wanted: &[Wanted]) -> Result<(), String> {
    let before: Vec<Option<CpuSet>> = wanted.iter().map(|one| placement::affinity(one.tid).ok()).collect();
    let outcome = wanted.iter().try_for_each(apply);
    if outcome.is_err() {
        release(wanted);
        for (one, before) in wanted.iter().zip(&before) {
            if let Some(before) = before {
                let _ = placement::set_affinity(one.tid, before);
            }
        }
    }
    outcome
}

fn apply(one: &Wanted) -> Result<(), String> {
    placement::set_affinity(one.tid, &one.cpus).map_err(|error| error.to_string())?;
    let end = Instant::now() + PATIENCE;
    loop {
        match one.policy.apply(one.tid) {
            Ok(()) => return holds(one),
            Err(takt_rt::Error::Refused { .. }) if Instant::now() < end => std::thread::sleep(STEP),
            Err(error) => return Err(error.to_string()),
        }
    }
}

/// Reads back.
fn holds(one: &Wanted) -> Result<(), String> {
    let policy = Policy::read(one.tid).map_err(|error| error.to_string())?;
    let cpus = placement::affinity(one.tid).map_err(|error| error.to_string())?;
    if (policy, cpus) == (one.policy, one.cpus) {
        return Ok(());
    }
    Err(format!("requested {} on CPUs {}, read back {policy} on CPUs {cpus}", one.policy, one.cpus))
}

/// Ends the reservations that were granted already.
fn release(wanted: &[Wanted]) {
    for one in wanted {
        if !matches!(Policy::read(one.tid), Ok(Policy::Other { .. })) {
            let Ok(tid) = u32::try_from(one.tid) else { continue };
            let _ = Linux::new().set_attributes(tid, &Attributes::other(0));
        }
    }
}

/// A domain for each thread's CPU, by control groups.
fn grouped(
    kernel: &mut Linux,
    journal: &mut Journal,
    mode: Mode,
    wanted: &[Wanted],
) -> Result<Partition, String> {
    let mut cores = Vec::new();
    for one in wanted {
        let core = one.cpus.iter().next().filter(|_| one.cpus.len() == 1);
        let Some(core) = core else {
            return Err(format!("designed for one CPU per thread, but CPUs {} were requested", one.cpus));
        };
        if !cores.contains(&core) {
            cores.push(core);
        }
    }
    let partition = Partition::establish(kernel, journal, mode, &cores).map_err(words)?;
    let pid = std::process::id();
    let threads = wanted.iter().filter_map(|one| Some((pid, u32::try_from(one.tid).ok()?)));
    journal.record(kernel, threads, mode.groups()).map_err(|error| error.to_string())?;
    for one in wanted {
        let (Some(core), Ok(tid)) = (one.cpus.iter().next(), u32::try_from(one.tid)) else { continue };
        let Some(attributes) = attributes(&one.policy) else { continue };
        let end = Instant::now() + PATIENCE;
        loop {
            match partition.reserve(kernel, pid, tid, core, &attributes) {
                Ok(()) => break,
                Err(_) if Instant::now() < end => std::thread::sleep(STEP),
                Err(error) => {
                    release(wanted);
                    return Err(format!("{} on CPU {core}: {error}", one.policy));
                }
            }
        }
        if let Err(reason) = holds(one) {
            release(wanted);
            return Err(reason);
        }
    }
    Ok(partition)
}

fn attributes(policy: &Policy) -> Option<Attributes> {
    let Policy::Deadline { runtime, deadline, period, reclaim } = *policy else { return None };
    let ns = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    Some(Attributes {
        policy: libc::SCHED_DEADLINE as u32,
        flags: RESET_ON_FORK | if reclaim { RECLAIM } else { 0 },
        runtime_ns: ns(runtime),
        deadline_ns: ns(deadline),
        period_ns: ns(period),
        ..Attributes::default()
    })
}

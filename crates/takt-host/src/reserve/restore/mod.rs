//! Undoing: what the system was like before each change, on disk before the change is made, and the
//! way back.
//!
//! Three parties can undo: the manager at its end, the [watchdog] process when the manager died,
//! and a person with the state file (`takt manage --restore`). All run [`undo`], which may be run
//! any number of times, at any point of a half-made or half-undone enactment. A thread that is
//! gone, or whose number now belongs to another (its start time differs), is passed over.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use takt_rt::placement::CpuSet;

use crate::reserve::ADMISSION_FILE;
use crate::reserve::system::{self, Attributes, GroupVersion, Identity, Kernel};

pub mod guard;
mod hidden;
mod journal;
pub mod owner;
mod permitted;
pub mod watchdog;

pub use hidden::Hidden;
pub use journal::{Journal, default_path};
pub use owner::Owner;
pub use permitted::FEATURE_FILES;
pub(crate) use permitted::FEATURES;

/// The form of the state file that this version writes and reads.
pub const VERSION: u32 = 1;

/// Reason why a state file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// It could not be read or written.
    #[error("state file {}: {source}. Fix: run as root, or choose another path with --state", path.display())]
    File { path: PathBuf, source: io::Error },
    /// It holds something else.
    #[error(
        "state file {}: {reason}; expected the JSON that `takt manage` writes, version {VERSION}. Nothing was changed. Fix: end or \
         `chrt -o -p 0 TID` the threads that `ps -eLo tid,cls,comm | grep DLN` lists, remove control groups named `takt-*`, and \
         delete the file",
        path.display()
    )]
    Unreadable { path: PathBuf, reason: String },
    /// Its manager still runs.
    #[error(
        "process {pid} is still managing with state file {}; end it (`kill {pid}`), and it restores everything itself",
        path.display()
    )]
    StillManaged { path: PathBuf, pid: u32 },
    /// Another program changes settings of the whole machine.
    #[error(
        "{who} is changing settings of the whole machine (lock {}). Two such programs would restore each other's settings. Fix: wait until \
         it ends, or end it, and it restores everything itself",
        path.display()
    )]
    Owned { path: PathBuf, who: String },
    /// Nobody can be kept out, so nothing may be changed.
    #[error(
        "{}: {source}. Changing settings of the whole machine needs this lock, so nothing was changed. Fix: run as root, with a writable \
         /run",
        path.display()
    )]
    NoOwner { path: PathBuf, source: io::Error },
    /// A program of another kind was killed, and its watchdogs too.
    #[error(
        "a search for settings was killed, and its settings are still in force according to state file {}. Nothing was changed. Fix: `takt \
         tune --restore --state {}`",
        path.display(), path.display()
    )]
    LeftBehind { path: PathBuf },
}

/// Everything that is to be undone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    pub version: u32,
    /// `/proc/sys/kernel/random/boot_id`: after a reboot there is nothing to undo.
    pub boot: String,
    pub manager: Identity,
    /// Threads, as they were.
    pub threads: Vec<ThreadBefore>,
    /// Processes, as they were.
    pub processes: Vec<ProcessBefore>,
    /// Changes of the system, in the order in which they were made.
    pub changes: Vec<Change>,
    /// CPU sets that threads were bound to: a thread that is not recorded and has one of them
    /// inherited it.
    pub given: Vec<CpuSet>,
    /// Recorded threads have died meanwhile.
    #[serde(skip)]
    pub died: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ThreadBefore {
    pub thread: Identity,
    /// Its name, for people.
    pub name: String,
    /// Its earlier scheduling.
    pub attributes: Attributes,
    /// Its earlier CPUs.
    pub cpus: CpuSet,
    /// Its control group, with the kind of control groups that is used.
    pub group: Option<String>,
}

/// A process, as it was: for threads that it makes later.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProcessBefore {
    /// Its first thread.
    pub main: Identity,
    /// Its earlier CPUs.
    pub cpus: CpuSet,
    /// Its control group.
    pub group: Option<String>,
}

/// A change of the system.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// A file was written.
    File { path: PathBuf, undo: String },
    /// A control group was made.
    Group {
        /// Its directory.
        path: PathBuf,
        version: GroupVersion,
        /// Destination of its remaining threads: a directory of the same hierarchy.
        heir: PathBuf,
    },
}

/// Result of undoing.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Restored {
    /// Threads that were given something back.
    pub threads: usize,
    /// Files and groups undone.
    pub changes: usize,
    /// Threads that are gone.
    pub gone: usize,
    /// Changes that could not be undone, for a person.
    pub failures: Vec<String>,
}

impl Restored {
    /// Whether everything is as it was.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.failures.is_empty()
    }

    /// Sum of both results.
    fn and(self, other: Self) -> Self {
        Self {
            threads: self.threads + other.threads,
            changes: self.changes + other.changes,
            gone: self.gone + other.gone,
            failures: self.failures.into_iter().chain(other.failures).collect(),
        }
    }
}

impl fmt::Display for Restored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { threads, changes, gone, failures } = self;
        write!(f, "{threads} threads and {changes} settings restored, {gone} threads were gone")?;
        for failure in failures {
            write!(f, "; NOT restored: {failure}")?;
        }
        Ok(())
    }
}

/// Undoes what the state file at `path` says and deletes it: `takt manage --restore`. Also what one
/// who was killed left by another state file. Nothing to do: `None`.
///
/// # Errors
///
/// The file cannot be read, its manager still runs, or another program changes settings. Changes
/// that could not be undone are in the result, and the file then stays.
pub fn restore(kernel: &mut dyn Kernel, path: &Path) -> Result<Option<Restored>, Error> {
    let has_own = not_managed(kernel, path)?.is_some();
    match Owner::take(kernel, path) {
        // The process that has it takes care of the remains itself.
        Err(Error::Owned { .. }) if !has_own => Ok(None),
        taken => {
            let (_owner, left) = taken?;
            Ok(both(left, restore_as_owner(kernel, path)?))
        }
    }
}

fn both(one: Option<Restored>, other: Option<Restored>) -> Option<Restored> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.and(other)),
        (one, other) => one.or(other),
    }
}

/// The state at `path`, whose manager has ended.
fn not_managed(kernel: &dyn Kernel, path: &Path) -> Result<Option<State>, Error> {
    let Some(state) = journal::load(path)? else { return Ok(None) };
    if system::is_alive(kernel, &state.manager) && state.boot == journal::boot(kernel) {
        return Err(Error::StillManaged { path: path.to_owned(), pid: state.manager.pid });
    }
    Ok(Some(state))
}

fn restore_as_owner(kernel: &mut dyn Kernel, path: &Path) -> Result<Option<Restored>, Error> {
    let state = not_managed(kernel, path)?;
    state.map(|state| undo_and_forget(kernel, &state, path)).transpose()
}

/// [`undo`], and deletes the file when all succeeded.
fn undo_and_forget(kernel: &mut dyn Kernel, state: &State, path: &Path) -> Result<Restored, Error> {
    let restored =
        if state.boot == journal::boot(kernel) { undo(kernel, state) } else { Restored::default() };
    if restored.is_complete() {
        journal::forget(path)?;
    }
    Ok(restored)
}

/// Brings everything back that `state` records.
pub fn undo(kernel: &mut dyn Kernel, state: &State) -> Restored {
    let mut undoing = Undoing { kernel, restored: Restored::default(), touched: BTreeSet::new() };
    let alive: Vec<&ThreadBefore> =
        state.threads.iter().filter(|before| undoing.alive(&before.thread)).collect();
    undoing.restored.gone = state.threads.len() - alive.len();
    // Reservations end first: they hold threads in their groups and keep admission control off.
    for before in &alive {
        undoing.end_reservation(before);
    }
    // A manager that was killed had threads with reservations, too.
    let died = undoing.restored.gone > 0 || state.died || state.manager.pid != std::process::id();
    undoing.kernel.await_zero_lag(died);
    undoing.groups(state, &alive);
    for change in state.changes.iter().rev() {
        undoing.change(change);
    }
    for before in &alive {
        undoing.affinity(&before.thread, &before.name, &before.cpus);
    }
    undoing.inherited(state);
    // Last those that had a reservation of their own: they need their CPUs for it.
    for before in alive.iter().filter(|before| before.attributes.is_deadline()) {
        undoing.attributes(before);
    }
    undoing.kernel.recount();
    undoing.restored.threads = undoing.touched.len();
    undoing.restored
}

struct Undoing<'a> {
    kernel: &'a mut dyn Kernel,
    restored: Restored,
    touched: BTreeSet<Identity>,
}

impl Undoing<'_> {
    fn alive(&self, thread: &Identity) -> bool {
        system::is_alive(self.kernel, thread)
    }

    fn judge(&mut self, thread: Option<&Identity>, what: impl FnOnce() -> String, outcome: io::Result<()>) {
        match (outcome, thread) {
            (Ok(()), Some(thread)) => {
                self.touched.insert(*thread);
            }
            (Ok(()), None) => self.restored.changes += 1,
            (Err(error), _) if system::is_gone(&error) => {}
            (Err(error), _) => self.restored.failures.push(format!("{}: {error}", what())),
        }
    }

    /// Gives the policy back; one that had a reservation of its own gets it when it is back on its
    /// CPUs, and is without until then.
    fn end_reservation(&mut self, before: &ThreadBefore) {
        if !before.attributes.is_deadline() {
            return self.attributes(before);
        }
        let tid = before.thread.tid;
        if self.kernel.attributes(tid).is_ok_and(|now| now.is_deadline() && now != before.attributes) {
            let outcome = self.kernel.set_attributes(tid, &Attributes::other(0));
            self.judge(Some(&before.thread), || format!("ending the reservation of thread {tid}"), outcome);
        }
    }

    fn attributes(&mut self, before: &ThreadBefore) {
        let tid = before.thread.tid;
        if self.kernel.attributes(tid).is_ok_and(|now| now == before.attributes) {
            return;
        }
        let outcome = self.kernel.set_attributes(tid, &before.attributes);
        self.judge(
            Some(&before.thread),
            || format!("policy {} of thread {tid} `{}`", before.attributes, before.name),
            outcome,
        );
    }

    fn affinity(&mut self, thread: &Identity, name: &str, cpus: &CpuSet) {
        if self.kernel.affinity(thread.tid).is_ok_and(|now| now == *cpus) {
            return;
        }
        let outcome = self.kernel.set_affinity(thread.tid, cpus);
        self.judge(Some(thread), || format!("CPUs {cpus} of thread {} `{name}`", thread.tid), outcome);
    }

    /// Puts threads and processes back into their control groups, and what is left in ours to the
    /// heir.
    fn groups(&mut self, state: &State, alive: &[&ThreadBefore]) {
        for change in state.changes.iter().rev() {
            let Change::Group { path, version, .. } = change else { continue };
            let (version, Some(mount)) = (*version, self.kernel.group_mount(*version)) else { continue };
            let Some(ours) = path.strip_prefix(&mount).ok().map(|below| Path::new("/").join(below)) else {
                continue;
            };
            let is_ours =
                |group: Option<String>| group.is_some_and(|group| Path::new(&group).starts_with(&ours));
            let target = |group: &Option<String>, file: &str| {
                let elsewhere = |group: &&str| {
                    permitted::is_plain(Path::new(group)) && !Path::new(group).starts_with(&ours)
                };
                let group = group.as_deref().filter(elsewhere);
                mount.join(group.unwrap_or("/").trim_start_matches('/')).join(file)
            };
            match version {
                GroupVersion::V1 => {
                    for before in alive {
                        let Identity { pid, tid, .. } = before.thread;
                        if self.kernel.group(pid, tid, version).is_ok_and(is_ours) {
                            let file = target(&before.group, "tasks");
                            let outcome = self.kernel.write(&file, &tid.to_string());
                            self.judge(Some(&before.thread), || format!("group of thread {tid}"), outcome);
                        }
                    }
                }
                // Threads of a process cannot leave a threaded subtree one by one.
                GroupVersion::V2 => {
                    for process in &state.processes {
                        let Identity { pid, tid, .. } = process.main;
                        if self.alive(&process.main)
                            && self.kernel.group(pid, tid, version).is_ok_and(is_ours)
                        {
                            let file = target(&process.group, "cgroup.procs");
                            let outcome = self.kernel.write(&file, &pid.to_string());
                            self.judge(Some(&process.main), || format!("group of process {pid}"), outcome);
                        }
                    }
                }
            }
        }
    }

    fn change(&mut self, change: &Change) {
        if let Err(why) = permitted::permitted(self.kernel, change) {
            let (Change::File { path, .. } | Change::Group { path, .. }) = change;
            return self.restored.failures.push(format!("{}: {why}", path.display()));
        }
        match change {
            Change::File { path, undo } => {
                let now = self.kernel.read(path);
                if now.as_ref().is_ok_and(|now| now.trim() == undo.trim()) {
                    return;
                }
                // Another program has switched the test on since: its value is the newer will.
                if path == Path::new(ADMISSION_FILE) && now.is_ok_and(|now| now.trim() != "-1") {
                    return;
                }
                // The admission test is refused while threads that have just ended still hold
                // bandwidth: up to a period.
                let mut outcome = self.kernel.write(path, undo);
                for _ in 0..50 {
                    if !outcome.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::EBUSY)) {
                        break;
                    }
                    std::thread::sleep(std::time::Duration::from_millis(10));
                    outcome = self.kernel.write(path, undo);
                }
                self.judge(None, || format!("`{undo}` to {}", path.display()), outcome);
            }
            Change::Group { path, version, heir } => {
                // A threaded group lists no processes; its threads can go as far as the group
                // above.
                let list = match version {
                    GroupVersion::V1 => "tasks",
                    GroupVersion::V2 if self.kernel.read(&path.join("cgroup.procs")).is_ok() => {
                        "cgroup.procs"
                    }
                    GroupVersion::V2 => "cgroup.threads",
                };
                // The kernel rebuilds its domains when a group that balances goes, and does so
                // milliseconds after the removal. A reservation that somebody gets meanwhile is
                // lost from its account, and shrinking it refused (seen on 6.18). Balancing
                // switched off here, it has nothing left to do then.
                if *version == GroupVersion::V1 {
                    let _ = self.kernel.write(&path.join("cpuset.sched_load_balance"), "0");
                }
                // Threads that are just ending keep a group busy for a moment, and others may make
                // threads meanwhile.
                for attempt in 0..20 {
                    for task in self.kernel.read(&path.join(list)).unwrap_or_default().lines() {
                        let _ = self.kernel.write(&heir.join(list), task);
                    }
                    match self.kernel.remove_dir(path) {
                        Err(error) if error.raw_os_error() == Some(libc::EBUSY) && attempt < 19 => {
                            std::thread::sleep(std::time::Duration::from_millis(5));
                        }
                        outcome => {
                            self.judge(None, || format!("group {}", path.display()), outcome);
                            break;
                        }
                    }
                }
            }
        }
    }

    /// Threads that the managed processes made meanwhile inherited CPUs that were ours to give.
    fn inherited(&mut self, state: &State) {
        let recorded: BTreeSet<Identity> = state.threads.iter().map(|before| before.thread).collect();
        for process in &state.processes {
            if !self.alive(&process.main) {
                continue;
            }
            let pid = process.main.pid;
            for tid in self.kernel.threads(pid).unwrap_or_default() {
                let Some(thread) = system::identify(self.kernel, pid, tid) else { continue };
                let inherits = |cpus: CpuSet| cpus != process.cpus && state.given.contains(&cpus);
                if !recorded.contains(&thread) && self.kernel.affinity(tid).is_ok_and(inherits) {
                    self.affinity(&thread, "made meanwhile", &process.cpus);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;

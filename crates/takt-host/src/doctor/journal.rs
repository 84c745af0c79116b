//! The journal of settings that are tried and taken back: every value from before is on disk before
//! the first one is written, so that the one who tries, a [watchdog] that outlives it, or a person
//! can take everything back.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use crate::reserve::restore::Owner;
use crate::reserve::restore::owner::Form;
use crate::reserve::restore::watchdog::{self as waiting, Attempt};
use crate::reserve::system::{self, Attributes, Identity, Kernel, Linux};
use serde::{Deserialize, Serialize};
use takt_rt::placement::CpuSet;
use takt_rt::procfs::Stat;

use crate::doctor::cache::{self, Resctrl};
use crate::doctor::change::{self, Changed, Saved, State};
use crate::doctor::error::DoctorError;
use crate::doctor::setting::{self, Action};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SavedThread {
    thread: Identity,
    name: String,
    attributes: Attributes,
    cpus: CpuSet,
    /// Known where policy or slack are changed: a real-time thread has none, and one that was gets
    /// its default (kernel 6.12 and newer).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    slack_ns: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SavedInterface {
    name: String,
    rx_us: u32,
    tx_us: u32,
}

/// Id of this boot: threads of another boot are gone, whatever threads have their numbers.
fn boot() -> String {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    text.unwrap_or_default().trim().to_owned()
}

/// Settings that are tried.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    state: State,
    kernel: Linux,
    /// Nobody else changes settings of the whole machine meanwhile.
    _owner: Option<Owner>,
}

impl Journal {
    /// Begins. Settings left by an earlier journal, killed together with its watchdog, are first
    /// restored and reported.
    ///
    /// # Errors
    /// The file cannot be written or read, holds something else, its owner still runs, or another
    /// program changes settings of the whole machine.
    pub fn begin(path: &Path) -> Result<(Self, Vec<Changed>), DoctorError> {
        if let Some(folder) = path.parent() {
            takt_files::private_folder(folder)
                .map_err(|source| DoctorError::StateFile { path: path.to_owned(), source })?;
        }
        let kernel = Linux::new();
        let is_there = || -> Result<bool, DoctorError> {
            let Some(state) = change::load(path)? else { return Ok(false) };
            let owner = state.owner.filter(|owner| state.boot == boot() && kernel.is_alive(owner));
            let owned = owner.map(|owner| DoctorError::StillOwned { path: path.to_owned(), pid: owner.pid });
            owned.map_or(Ok(true), Err)
        };
        is_there()?;
        let owner = change::owner(path)?;
        let _one = change::one_at_a_time(path)?;
        let left = if is_there()? { change::revert_below(Path::new("/"), path)? } else { Vec::new() };
        if let Some(owner) = &owner {
            owner.undone_by(&kernel, path, Form::Settings)?;
        }
        let own = std::process::id();
        let state = State { owner: system::identify(&kernel, own, own), boot: boot(), ..State::new() };
        let journal = Self { path: path.to_owned(), state, kernel, _owner: owner };
        change::save(path, &journal.state)?;
        Ok((journal, left))
    }

    /// Goes on with what is there: for changes that last longer than this program.
    ///
    /// # Errors
    /// As [`Journal::begin`].
    pub(crate) fn resume(path: &Path) -> Result<Self, DoctorError> {
        let mut state = change::load(path)?.unwrap_or_else(State::new);
        if state.boot != boot() {
            state.threads.clear();
            state.given.clear();
            state.given_since = None;
        }
        state.boot = boot();
        Ok(Self { path: path.to_owned(), state, kernel: Linux::new(), _owner: None })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes down how everything was that `actions` change. To be called before any of them is
    /// made.
    ///
    /// # Errors
    /// [`DoctorError::ForeignState`] for a file that is no setting; [`DoctorError::StateFile`] when
    /// it cannot be written down: then nothing must be changed.
    pub fn note(&mut self, actions: &[Action]) -> Result<(), DoctorError> {
        let before = self.state.clone();
        for action in actions {
            match action {
                Action::File(wanted) => {
                    change::permitted(&wanted.path, &wanted.value)
                        .map_err(|reason| DoctorError::ForeignState { path: wanted.path.clone(), reason })?;
                    let known = self.state.settings.iter().any(|saved| saved.path == wanted.path);
                    if !known && let Ok(before) = change::read(Path::new("/"), &wanted.path) {
                        self.state.settings.push(Saved { path: wanted.path.clone(), before });
                    }
                }
                Action::Policy(thread, _) | Action::Cpus(thread, _) | Action::TimerSlack(thread, _) => {
                    self.note_thread(thread, !matches!(action, Action::Cpus(..)));
                    if let Action::Cpus(_, cpus) = action
                        && !self.state.given.contains(cpus)
                    {
                        self.state.given.push(*cpus);
                        self.state.given_since = self.state.given_since.or_else(now_ticks);
                    }
                }
                Action::CacheWays(_) => {
                    if self.state.cache.is_none() {
                        self.state.cache = cache::probe(&mut Resctrl).ok();
                    }
                }
                Action::Coalescing(name, ..) => {
                    let known = self.state.interfaces.iter().any(|saved| saved.name == *name);
                    if !known && let Ok((rx_us, tx_us)) = setting::coalescing(name) {
                        self.state.interfaces.push(SavedInterface { name: name.clone(), rx_us, tx_us });
                    }
                }
            }
        }
        if self.state == before { Ok(()) } else { change::save(&self.path, &self.state) }
    }

    fn note_thread(&mut self, thread: &Identity, slack: bool) {
        let slack_ns = || read_slack(thread).ok();
        if let Some(saved) = self.state.threads.iter_mut().find(|saved| saved.thread == *thread) {
            if slack && saved.slack_ns.is_none() {
                saved.slack_ns = slack_ns();
            }
            return;
        }
        let (Ok(attributes), Ok(cpus)) =
            (self.kernel.attributes(thread.tid), self.kernel.affinity(thread.tid))
        else {
            return;
        };
        // A thread that was made meanwhile has what its maker was given.
        let cpus = match self.inherited(thread, &cpus) {
            Some(own) => own,
            None => cpus,
        };
        let name = self.kernel.thread_name(thread.pid, thread.tid).unwrap_or_default();
        let slack_ns = if slack { slack_ns() } else { None };
        self.state.threads.push(SavedThread { thread: *thread, name, attributes, cpus, slack_ns });
    }

    /// CPU set of a thread that shows a set which others were given: its process's earlier set, or
    /// any.
    fn inherited(&self, thread: &Identity, shown: &CpuSet) -> Option<CpuSet> {
        inherited(&self.kernel, &self.state, thread, shown)
    }

    /// Makes the change; it must have been noted.
    ///
    /// # Errors
    /// [`DoctorError::Setting`]: why the kernel did not take it.
    pub fn set(&mut self, action: &Action) -> Result<(), DoctorError> {
        self.make(action).map_err(DoctorError::setting)
    }

    fn make(&mut self, action: &Action) -> Result<(), String> {
        match action {
            Action::File(wanted) => {
                if !self.state.settings.iter().any(|saved| saved.path == wanted.path) {
                    return Err(format!("{} is missing", wanted.path.display()));
                }
                let changed = change::write(Path::new("/"), &wanted.path, &wanted.value, String::new());
                changed.error.map_or(Ok(()), |error| Err(format!("{}: {error}", wanted.path.display())))
            }
            Action::Policy(thread, attributes) => {
                self.known(thread)?;
                let tid = thread.tid;
                described(self.kernel.set_attributes(tid, attributes), || {
                    format!("policy {attributes} for thread {tid}")
                })
            }
            Action::Cpus(thread, cpus) => {
                self.known(thread)?;
                let tid = thread.tid;
                described(self.kernel.set_affinity(tid, cpus), || format!("CPUs {cpus} for thread {tid}"))
            }
            Action::TimerSlack(thread, slack_ns) => {
                self.known(thread)?;
                let what = || format!("timer slack of {slack_ns} ns for thread {}", thread.tid);
                described(write_slack(thread, *slack_ns), what)
            }
            Action::CacheWays(thread) => {
                let Some(saved) = &self.state.cache else {
                    // It was looked at when it was noted: the same look says why.
                    return cache::probe(&mut Resctrl).map(|_| ()).and(Err("it was not recorded".to_owned()));
                };
                if !self.kernel.is_alive(thread) {
                    return Err(format!("thread {} has ended", thread.tid));
                }
                // Half a division would leave others less than they had, for nothing.
                cache::give(&mut Resctrl, thread.tid).map_err(|why| {
                    match cache::give_back(&mut Resctrl, saved) {
                        Ok(()) => why,
                        Err(back) => format!("{why}; and it could not be undone: {back}"),
                    }
                })
            }
            Action::Coalescing(name, rx_us, tx_us) => {
                let what = || format!("coalescing of {rx_us} and {tx_us} us for {name}");
                described(setting::set_coalescing(name, *rx_us, *tx_us), what)?;
                match setting::coalescing(name) {
                    Ok(now) if now == (*rx_us, *tx_us) => Ok(()),
                    Ok((rx, tx)) => Err(format!("{}: the driver set {rx} and {tx} us", what())),
                    Err(error) => Err(format!("{}: {error}", what())),
                }
            }
        }
    }

    /// Makes the change and shows it.
    pub(crate) fn change(&mut self, action: &Action) -> Changed {
        let task = |thread: &Identity| PathBuf::from(format!("/proc/{}/task/{}", thread.pid, thread.tid));
        let saved = |thread: &Identity| self.state.threads.iter().find(|saved| saved.thread == *thread);
        let (path, before, after) = match action {
            Action::File(wanted) => {
                let before = change::read(Path::new("/"), &wanted.path).unwrap_or_default();
                (wanted.path.clone(), before, wanted.value.clone())
            }
            Action::Policy(thread, attributes) => {
                let before = saved(thread).map(|saved| saved.attributes.to_string());
                (task(thread), before.unwrap_or_default(), attributes.to_string())
            }
            Action::Cpus(thread, cpus) => {
                let before = saved(thread).map(|saved| format!("CPUs {}", saved.cpus));
                (task(thread), before.unwrap_or_default(), format!("CPUs {cpus}"))
            }
            Action::TimerSlack(thread, slack_ns) => {
                let before = saved(thread).and_then(|saved| saved.slack_ns).map(|ns| format!("slack {ns}"));
                (task(thread), before.unwrap_or_default(), format!("slack {slack_ns}"))
            }
            Action::CacheWays(thread) => (
                PathBuf::from(cache::ROOT),
                "the whole cache".to_owned(),
                format!("ways for thread {}", thread.tid),
            ),
            Action::Coalescing(name, rx_us, tx_us) => {
                let us = |(rx, tx): (u32, u32)| format!("rx-usecs {rx} tx-usecs {tx}");
                let before = setting::coalescing(name).map(us).unwrap_or_default();
                (PathBuf::from(format!("/sys/class/net/{name}")), before, us((*rx_us, *tx_us)))
            }
        };
        let error = self.make(action).err();
        Changed { path, before, after, error }
    }

    fn known(&self, thread: &Identity) -> Result<(), String> {
        let known = self.state.threads.iter().any(|saved| saved.thread == *thread);
        if known && self.kernel.is_alive(thread) {
            Ok(())
        } else {
            Err(format!("thread {} has ended", thread.tid))
        }
    }

    /// Whether the machine is already as `action` would make it.
    pub fn is_set(&self, action: &Action) -> bool {
        match action {
            Action::File(wanted) => {
                change::read(Path::new("/"), &wanted.path).is_ok_and(|now| now == wanted.value)
            }
            Action::Policy(thread, attributes) => {
                self.kernel.attributes(thread.tid).is_ok_and(|now| now.serves(attributes))
            }
            Action::Cpus(thread, cpus) => self.kernel.affinity(thread.tid).is_ok_and(|now| now == *cpus),
            Action::TimerSlack(thread, slack_ns) => read_slack(thread).is_ok_and(|now| now == *slack_ns),
            Action::CacheWays(thread) => cache::is_given(&Resctrl, thread.tid),
            Action::Coalescing(name, rx_us, tx_us) => {
                setting::coalescing(name).is_ok_and(|now| now == (*rx_us, *tx_us))
            }
        }
    }

    /// Gives threads that were made meanwhile, and have inherited CPUs that others were given, what
    /// they would have without.
    pub fn free_inherited(&mut self) {
        free_inherited(&mut self.kernel, &self.state);
    }

    /// Puts back what `action` changes, as it was before. A thread gets back everything.
    ///
    /// # Errors
    /// [`DoctorError::Setting`]: why the kernel did not take it. A thread that has ended is no reason.
    pub fn unset(&mut self, action: &Action) -> Result<(), DoctorError> {
        self.take_back(action).map_err(DoctorError::setting)
    }

    fn take_back(&mut self, action: &Action) -> Result<(), String> {
        let root = Path::new("/");
        match action {
            Action::File(wanted) => {
                let saved = self.state.settings.iter().find(|saved| saved.path == wanted.path);
                let Some(saved) = saved else { return Ok(()) };
                let changed = change::put_back(root, saved);
                changed.error.map_or(Ok(()), |error| Err(format!("{}: {error}", wanted.path.display())))
            }
            Action::Policy(thread, _) | Action::Cpus(thread, _) | Action::TimerSlack(thread, _) => {
                let saved = self.state.threads.iter().find(|saved| saved.thread == *thread).cloned();
                let Some(saved) = saved else { return Ok(()) };
                let changed = restore_thread(&mut self.kernel, &saved);
                changed.and_then(|changed| changed.error).map_or(Ok(()), Err)
            }
            Action::CacheWays(_) => match &self.state.cache {
                Some(saved) => cache::give_back(&mut Resctrl, saved),
                None => Ok(()),
            },
            Action::Coalescing(name, ..) => {
                let saved = self.state.interfaces.iter().find(|saved| saved.name == *name);
                let Some(saved) = saved else { return Ok(()) };
                described(setting::set_coalescing(name, saved.rx_us, saved.tx_us), || {
                    format!("coalescing of {name}")
                })
            }
        }
    }

    /// Takes everything back and deletes the file.
    ///
    /// # Errors
    /// [`DoctorError::NotReverted`]; the file still holds what could not be put back.
    pub fn revert(self) -> Result<Vec<Changed>, DoctorError> {
        change::revert_as_owner(&self.path)
    }
}

/// Ticks since boot, of which the kernel reports programs a hundred a second.
fn now_ticks() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/uptime").ok()?;
    let seconds: f64 = text.split_whitespace().next()?.parse().ok()?;
    Some((seconds * 100.0).round() as u64)
}

fn described(outcome: io::Result<()>, what: impl FnOnce() -> String) -> Result<(), String> {
    outcome.map_err(|error| format!("{}: {error}", what()))
}

fn slack_file(thread: &Identity) -> String {
    format!("/proc/{}/timerslack_ns", thread.tid)
}

fn read_slack(thread: &Identity) -> io::Result<u64> {
    std::fs::read_to_string(slack_file(thread))?.trim().parse().map_err(io::Error::other)
}

/// Real-time threads have none, and the kernel refuses theirs silently: it is read back.
fn write_slack(thread: &Identity, slack_ns: u64) -> io::Result<()> {
    if read_slack(thread).is_ok_and(|now| now == slack_ns) {
        return Ok(());
    }
    std::fs::write(slack_file(thread), slack_ns.to_string())
}

fn inherited(kernel: &Linux, state: &State, thread: &Identity, shown: &CpuSet) -> Option<CpuSet> {
    let is_older = state.given_since.is_some_and(|since| thread.start_ticks < since);
    if is_older || !state.given.contains(shown) {
        return None;
    }
    // Its process's own, else that of whoever started the process, up to the first.
    let mut pid = thread.pid;
    for _ in 0..32 {
        if let Some(saved) = state.threads.iter().find(|saved| saved.thread.pid == pid) {
            return Some(saved.cpus).filter(|cpus| cpus != shown);
        }
        pid = Stat::of(pid)?.parent().filter(|&parent: &u32| parent > 0)?;
    }
    kernel.online().ok()
}

/// Puts a thread back; `None` where it has ended, or is as it was.
fn restore_thread(kernel: &mut Linux, saved: &SavedThread) -> Option<Changed> {
    if !kernel.is_alive(&saved.thread) {
        return None;
    }
    let tid = saved.thread.tid;
    let (mut before, mut after, mut errors) = (Vec::new(), Vec::new(), Vec::new());
    let mut step = |now: String, was: String, outcome: io::Result<()>| {
        match outcome {
            Err(error) if system::is_gone(&error) => {}
            Err(error) => errors.push(format!("{was} of thread {tid} `{}`: {error}", saved.name)),
            Ok(()) => {}
        }
        before.push(now);
        after.push(was);
    };
    // A reservation needs all CPUs, so it goes before CPUs are taken, and comes back after they are
    // given.
    let now = kernel.attributes(tid).unwrap_or(saved.attributes);
    if now != saved.attributes && !saved.attributes.is_deadline() {
        let outcome = kernel.set_attributes(tid, &saved.attributes);
        step(now.to_string(), saved.attributes.to_string(), outcome);
    }
    if let Ok(cpus) = kernel.affinity(tid)
        && cpus != saved.cpus
        && !setting::is_bound_by_kernel(saved.thread.pid, tid)
    {
        let outcome = kernel.set_affinity(tid, &saved.cpus);
        step(format!("CPUs {cpus}"), format!("CPUs {}", saved.cpus), outcome);
    }
    if now != saved.attributes && saved.attributes.is_deadline() {
        let outcome = kernel.set_attributes(tid, &saved.attributes);
        step(now.to_string(), saved.attributes.to_string(), outcome);
    }
    // After the policy, which changes it.
    if let Some(slack_ns) = saved.slack_ns
        && let Ok(now) = read_slack(&saved.thread)
        && now != slack_ns
    {
        step(format!("slack {now}"), format!("slack {slack_ns}"), write_slack(&saved.thread, slack_ns));
    }
    if before.is_empty() {
        return None;
    }
    let error = (!errors.is_empty()).then(|| errors.join("; "));
    let path = PathBuf::from(format!("/proc/{}/task/{tid}", saved.thread.pid));
    Some(Changed { path, before: before.join(", "), after: after.join(", "), error })
}

fn free_inherited(kernel: &mut Linux, state: &State) {
    if state.given.is_empty() {
        return;
    }
    let known: BTreeSet<Identity> = state.threads.iter().map(|saved| saved.thread).collect();
    for pid in kernel.processes().unwrap_or_default() {
        for tid in kernel.threads(pid).unwrap_or_default() {
            let Ok(shown) = kernel.affinity(tid) else { continue };
            if !state.given.contains(&shown) {
                continue;
            }
            let Some(thread) = system::identify(kernel, pid, tid).filter(|thread| !known.contains(thread))
            else {
                continue;
            };
            if let Some(own) = inherited(kernel, state, &thread, &shown) {
                // Refused for a thread that is just ending, and for one that the kernel binds.
                let _ = kernel.set_affinity(tid, &own);
            }
        }
    }
}

/// Puts back the threads and interfaces of `state`, and what threads that were made meanwhile
/// inherited; leaves in it what failed.
pub(crate) fn restore(state: &mut State) -> Vec<Changed> {
    let mut changed = Vec::new();
    let mut kernel = Linux::new();
    state.interfaces.retain(|saved| {
        let path = PathBuf::from(format!("/sys/class/net/{}", saved.name));
        let Ok((rx_us, tx_us)) = setting::coalescing(&saved.name) else { return false };
        if (rx_us, tx_us) == (saved.rx_us, saved.tx_us) {
            return false;
        }
        let outcome = setting::set_coalescing(&saved.name, saved.rx_us, saved.tx_us);
        let error = outcome.err().map(|error| format!("coalescing of {}: {error}", saved.name));
        let failed = error.is_some();
        let us = |rx: u32, tx: u32| format!("rx-usecs {rx} tx-usecs {tx}");
        changed.push(Changed { path, before: us(rx_us, tx_us), after: us(saved.rx_us, saved.tx_us), error });
        failed
    });
    if state.boot != boot() {
        state.threads.clear();
        state.given.clear();
        state.given_since = None;
        // No kernel keeps it over a boot.
        state.cache = None;
        return changed;
    }
    if let Some(saved) = state.cache.take().filter(|saved| cache::is_divided(&Resctrl, saved)) {
        let error = cache::give_back(&mut Resctrl, &saved).err();
        if error.is_some() {
            state.cache = Some(saved);
        }
        let (before, after) = ("divided".to_owned(), "the whole cache".to_owned());
        changed.push(Changed { path: PathBuf::from(cache::ROOT), before, after, error });
    }
    free_inherited(&mut kernel, state);
    let mut failed = Vec::new();
    for saved in std::mem::take(&mut state.threads) {
        if let Some(one) = restore_thread(&mut kernel, &saved) {
            if one.error.is_some() {
                failed.push(saved);
            }
            changed.push(one);
        }
    }
    state.threads = failed;
    if state.threads.is_empty() {
        state.given.clear();
        state.given_since = None;
    }
    changed
}

/// The side of the process that outlives the one who tries settings, whose number is `of`: waits
/// until its standard input ends, then takes back what is left. Settings that the kernel refuses
/// now are retried until it accepts them.
///
/// # Errors
/// Those of [`change::revert`], but [`DoctorError::NotReverted`].
pub fn watchdog(path: &Path, of: u32) -> Result<Vec<Changed>, DoctorError> {
    waiting::await_end();
    let mut is_first = true;
    waiting::until_undone(|| {
        let newer = if std::mem::take(&mut is_first) { Ok(()) } else { keep_newer(path, Path::new("/")) };
        match newer.and_then(|()| take_back_of(path, of)) {
            Ok(changed) => Ok(Attempt::Done(changed)),
            Err(error) if is_for_now(&error) => Ok(Attempt::Left(error.to_string())),
            Err(error) => Err(error),
        }
    })
}

/// Leaves the admission test as it is where another program has switched it on between two
/// attempts: nothing here sets another value than -1, and theirs is the newer will.
fn keep_newer(path: &Path, root: &Path) -> Result<(), DoctorError> {
    let admission = Path::new(crate::reserve::ADMISSION_FILE);
    let Some(mut state) = change::load(path)? else { return Ok(()) };
    let is_on = change::read(root, admission).is_ok_and(|now| now != "-1");
    let before = state.settings.len();
    state.settings.retain(|saved| !(is_on && saved.path == admission));
    if state.settings.len() == before { Ok(()) } else { change::save(path, &state) }
}

/// Whether another attempt may succeed: settings that the kernel did not take, and a state file
/// that could not be written (a full disk).
fn is_for_now(error: &DoctorError) -> bool {
    matches!(error, DoctorError::NotReverted { .. } | DoctorError::StateFile { .. })
}

/// Takes back what the process `of` left, and nothing of another that lives.
fn take_back_of(path: &Path, of: u32) -> Result<Vec<Changed>, DoctorError> {
    // A manager that ended cleanly has restored everything, and the next one may have begun.
    let is_left = || -> Result<bool, DoctorError> {
        let Some(state) = change::load(path)? else { return Ok(false) };
        let of_another = |owner: &Identity| owner.pid != of && Linux::new().is_alive(owner);
        Ok(state.boot != boot() || !state.owner.as_ref().is_some_and(of_another))
    };
    let _owner = Owner::take_to_undo(&Linux::new(), || is_left().unwrap_or(true));
    let _one = change::one_at_a_time(path)?;
    if is_left()? { change::revert_below(Path::new("/"), path) } else { Ok(Vec::new()) }
}

#[cfg(test)]
#[path = "journal_tests.rs"]
mod tests;

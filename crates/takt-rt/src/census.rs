//! The census: every thread of the process, who made it, and the policy that it got.
//!
//! Libraries (inference, transport) spawn threads that nobody asked for. The census lists
//! `/proc/self/task`, knows the threads that Takt started (they [register](Registration)), and
//! gives all others the configured fallback policy; a [`CensusKeeper`] does so again when new ones
//! appear. Its findings and actions are part of the run directory.
//!
//! A thread's origin is known if it appeared while [`CensusKeeper::attribute`] ran its creator, or
//! if it carries the name of a registered thread: the kernel passes names on to new threads.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock;
use crate::error::Error;
use crate::placement::{self, CpuSet};
use crate::policy::Policy;
use crate::procfs::{self, Stat};
use crate::signal::Signal;
use crate::sys;
use crate::thread::{self, Handle};

/// Role of a thread in the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// The thread that `main` runs in; never touched.
    ProcessMain,
    /// A task's own thread, started by [`thread::spawn`]; never touched.
    Main,
    /// A thread that a library spawned; gets the fallback policy.
    Subthread,
    /// A thread of Takt that shall keep its policy: views, collectors, noise.
    Exempt,
}

/// A thread's identity: ids are used again, ids with the start time are not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Key {
    tid: i32,
    /// Field 22 of the stat file.
    start_ticks: u64,
}

#[derive(Debug, Clone)]
struct Registered {
    role: Role,
    note: String,
}

type Registry = BTreeMap<Key, Registered>;

static REGISTRY: Mutex<Registry> = Mutex::new(BTreeMap::new());

fn registry() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Marks thread `tid` of this process as exempt from the fallback policy, for reason `why`; false
/// when there is no such thread. A thread that the census has already changed gets its former
/// policy back at the next scan.
pub fn exempt(tid: i32, why: &str) -> bool {
    Registration::new(tid, Role::Exempt, why).is_some_and(|registration| {
        // The registry forgets threads that have ended, so nothing is left behind.
        std::mem::forget(registration);
        true
    })
}

/// A thread's entry in the registry, for as long as it lives.
#[derive(Debug)]
pub struct Registration {
    key: Key,
}

impl Registration {
    /// Registers `tid` as a task's main thread.
    pub(crate) fn main(tid: i32, name: &str) -> Option<Self> {
        Self::new(tid, Role::Main, name)
    }

    /// Registers the calling thread as exempt, for reason `why`. Set the policy that the thread
    /// shall have after this, not before: then no scan can come in between. `None` where /proc
    /// cannot be read.
    pub fn exempt_self(why: &str) -> Option<Self> {
        Self::new(sys::gettid(), Role::Exempt, why)
    }

    fn new(tid: i32, role: Role, note: &str) -> Option<Self> {
        let key = Key { tid, start_ticks: start_ticks(tid)? };
        registry().insert(key, Registered { role, note: note.into() });
        Some(Self { key })
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        registry().remove(&self.key);
    }
}

/// Start time of a thread of this process, in clock ticks since boot.
fn start_ticks(tid: i32) -> Option<u64> {
    Stat::of_thread("self", tid)?.start_ticks()
}

/// The threads of this process now.
fn threads() -> Result<Vec<Key>, Error> {
    let path = PathBuf::from("/proc/self/task");
    let error = |source: io::Error| {
        let fix = match source.raw_os_error() {
            Some(libc::EMFILE) => "; this process has no descriptors left: raise `ulimit -n`",
            Some(libc::ENFILE) => "; the machine has no descriptors left: raise fs.file-max",
            _ => "; mount /proc",
        };
        Error::File { path: path.clone(), source, fix: fix.into() }
    };
    let mut keys = Vec::new();
    for entry in fs::read_dir(&path).map_err(error)? {
        let name = entry.map_err(error)?.file_name();
        let Some(tid) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        // A thread that ended meanwhile is none.
        keys.extend(start_ticks(tid).map(|start_ticks| Key { tid, start_ticks }));
    }
    Ok(keys)
}

/// The census's record of one thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CensusEntry {
    /// Thread id.
    pub tid: i32,
    /// Name, as the kernel keeps it (15 bytes).
    pub name: String,
    /// Role of the thread in the run.
    pub role: Role,
    /// The thread that started it, if known.
    pub creator: Option<String>,
    /// Reason why it is exempt.
    pub why: Option<String>,
    /// Policy when first seen.
    pub policy_before: Option<Policy>,
    /// Policy after the census did its part; `None` when the thread had ended before.
    pub policy_after: Option<Policy>,
    /// CPUs on which it may run.
    pub cpus: Option<CpuSet>,
    /// When it was first seen, CLOCK_MONOTONIC.
    pub first_seen_ns: u64,
    /// Whether it has ended.
    pub ended: bool,
    /// Number of times that the thread had left the fallback policy and got it again.
    pub reapplied: u32,
    /// Reason why the fallback policy could not be given.
    pub error: Option<String>,
}

/// A census as it goes into the run directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CensusReport {
    /// The policy given to subthreads.
    pub fallback: Policy,
    /// Number of scans of the threads.
    pub scans: u64,
    /// Every thread ever seen, oldest first.
    pub threads: Vec<CensusEntry>,
}

/// Counts the threads of the process and gives unknown ones the fallback policy.
#[derive(Debug)]
pub struct Census {
    fallback: Policy,
    entries: BTreeMap<Key, CensusEntry>,
    creators: HashMap<Key, String>,
    /// Policies of threads that shall not have the fallback.
    exceptions: HashMap<Key, Policy>,
    scans: u64,
}

impl Census {
    /// A census with the given fallback policy.
    ///
    /// # Errors
    /// [`Error::InvalidFallback`] for SCHED_DEADLINE; [`Error::InvalidPolicy`].
    pub fn new(fallback: Policy) -> Result<Self, Error> {
        fallback.validate()?;
        if matches!(fallback, Policy::Deadline { .. }) {
            return Err(Error::InvalidFallback { given: fallback.to_string() });
        }
        Ok(Self {
            fallback,
            entries: BTreeMap::new(),
            creators: HashMap::new(),
            exceptions: HashMap::new(),
            scans: 0,
        })
    }

    /// Counts once; returns how many threads are new.
    ///
    /// # Errors
    /// [`Error::File`] where /proc cannot be read. A refused policy is in the thread's entry.
    pub fn scan(&mut self) -> Result<usize, Error> {
        // Held to the end: a thread that registers meanwhile does so before its policy is looked
        // at, or after it was changed, and then sets its own.
        let mut registry = registry();
        let alive: HashSet<Key> = threads()?.into_iter().collect();
        registry.retain(|key, _| alive.contains(key));
        self.creators.retain(|key, _| alive.contains(key));
        self.exceptions.retain(|key, _| alive.contains(key));
        let process = std::process::id() as i32;
        let known = self.entries.len();
        for (key, entry) in &mut self.entries {
            entry.ended = !alive.contains(key);
        }
        for key in alive {
            let registered = registry.get(&key);
            let role = match registered {
                Some(registered) => registered.role,
                None if key.tid == process => Role::ProcessMain,
                None => Role::Subthread,
            };
            let entry = self.entries.entry(key).or_insert_with(|| CensusEntry {
                tid: key.tid,
                name: String::new(),
                role,
                creator: None,
                why: None,
                policy_before: Policy::read(key.tid).ok(),
                policy_after: None,
                cpus: None,
                first_seen_ns: clock::monotonic_ns(),
                ended: false,
                reapplied: 0,
                error: None,
            });
            let was = std::mem::replace(&mut entry.role, role);
            // A thread names itself after it started.
            entry.name = procfs::thread_name("self", key.tid).unwrap_or_default();
            entry.cpus = placement::affinity(key.tid).ok();
            entry.why = registered.filter(|_| role == Role::Exempt).map(|registered| registered.note.clone());
            if role == Role::Subthread {
                if entry.creator.is_none() {
                    entry.creator =
                        self.creators.get(&key).cloned().or_else(|| inherited(&registry, &entry.name));
                }
                give(entry, self.exceptions.get(&key).copied().unwrap_or(self.fallback));
            } else if was == Role::Subthread && role == Role::Exempt {
                // It was taken for a library's before it registered. Its own choice since then
                // stays.
                if let Some(before) =
                    entry.policy_before.filter(|_| Policy::read(key.tid).ok() == entry.policy_after)
                {
                    entry.error = before.apply(key.tid).err().map(|error| error.to_string());
                }
            }
            // A thread that has ended since keeps what it was given.
            entry.policy_after = Policy::read(key.tid).ok().or(entry.policy_after);
        }
        self.scans += 1;
        Ok(self.entries.len() - known)
    }

    /// All threads seen so far.
    pub fn report(&self) -> CensusReport {
        let mut threads: Vec<_> = self.entries.values().cloned().collect();
        threads.sort_by_key(|entry| (entry.first_seen_ns, entry.tid));
        CensusReport { fallback: self.fallback, scans: self.scans, threads }
    }
}

/// Gives a subthread the fallback policy where it has another.
fn give(entry: &mut CensusEntry, fallback: Policy) {
    // An unreadable policy means that the thread has just ended.
    let Ok(now) = Policy::read(entry.tid) else { return };
    if now == fallback {
        return;
    }
    if entry.policy_after == Some(fallback) {
        entry.reapplied += 1;
    }
    entry.error = match fallback.apply(entry.tid) {
        Ok(()) => {
            entry.policy_after = Some(fallback);
            None
        }
        Err(Error::Refused { cause: crate::Cause::NoSuchThread, .. }) => None,
        Err(error) => Some(error.to_string()),
    };
}

/// The registered thread whose name a new thread still carries.
fn inherited(registry: &Registry, name: &str) -> Option<String> {
    registry
        .values()
        .find(|registered| registered.role == Role::Main && registered.note == name)
        .map(|_| name.into())
}

#[derive(Debug)]
struct KeeperState {
    census: Mutex<Census>,
    stop: AtomicBool,
    signal: Signal,
    /// The error of the last scan that failed.
    failure: Mutex<Option<Error>>,
}

impl KeeperState {
    fn census(&self) -> MutexGuard<'_, Census> {
        self.census.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn scan(&self) {
        if let Err(error) = self.census().scan() {
            *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        }
    }
}

/// Repeats the census from a best-effort thread, until dropped.
#[derive(Debug)]
pub struct CensusKeeper {
    shared: Arc<KeeperState>,
    thread: Option<Handle>,
}

impl CensusKeeper {
    /// Counts once, now, and then every `period`.
    ///
    /// # Errors
    /// As [`Census::new`] and [`Census::scan`]; [`Error::Spawn`].
    pub fn start(fallback: Policy, period: Duration) -> Result<Self, Error> {
        let mut census = Census::new(fallback)?;
        census.scan()?;
        let shared = Arc::new(KeeperState {
            census: Mutex::new(census),
            stop: AtomicBool::new(false),
            signal: Signal::new(),
            failure: Mutex::new(None),
        });
        let own = Arc::clone(&shared);
        let thread = thread::spawn_exempt("takt-census", "counts the threads", move || {
            loop {
                let seen = own.signal.value();
                if own.stop.load(Ordering::Acquire) {
                    break;
                }
                own.scan();
                own.signal.wait(seen, period);
            }
        })?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Runs `create` and attributes the threads that appear meanwhile to `creator`; then counts, so
    /// that they have the fallback policy when this returns. Threads that others create at the same
    /// time are attributed as well: start libraries one after another.
    pub fn attribute<T>(&self, creator: &str, create: impl FnOnce() -> T) -> T {
        self.attribute_as(creator, None, create)
    }

    /// As [`attribute`](Self::attribute), with a policy of their own for these threads in place of
    /// the fallback.
    pub fn attribute_with<T>(&self, creator: &str, policy: Policy, create: impl FnOnce() -> T) -> T {
        self.attribute_as(creator, Some(policy), create)
    }

    fn attribute_as<T>(&self, creator: &str, policy: Option<Policy>, create: impl FnOnce() -> T) -> T {
        let before: HashSet<Key> = threads().unwrap_or_default().into_iter().collect();
        let made = create();
        let after = threads().unwrap_or_default();
        let mut census = self.shared.census();
        for key in after.into_iter().filter(|key| !before.contains(key)) {
            census.creators.insert(key, creator.into());
            if let Some(policy) = policy {
                census.exceptions.insert(key, policy);
            }
            // The background scan may have seen it before it was attributed.
            if let Some(entry) = census.entries.get_mut(&key).filter(|entry| entry.role == Role::Subthread) {
                entry.creator = Some(creator.into());
            }
        }
        drop(census);
        self.shared.scan();
        made
    }

    /// Counts now and returns all threads seen so far.
    ///
    /// # Errors
    /// The last scan's failure.
    pub fn report(&self) -> Result<CensusReport, Error> {
        self.shared.scan();
        match self.shared.failure.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(error) => Err(error),
            None => Ok(self.shared.census().report()),
        }
    }
}

impl Drop for CensusKeeper {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.signal.notify();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests;

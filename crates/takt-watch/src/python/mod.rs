//! Programs in Python: who holds the interpreter's lock (the GIL) while others wait for it, and
//! when its garbage is collected.
//!
//! A thread that waits for the lock sleeps on a futex within `_PyRuntime`, as
//! `/proc/PID/task/TID/syscall` shows. Takt samples the threads some fifty times a second, at times
//! that no loop can be in step with. A thread that then neither sleeps nor waits is the one that
//! holds it. The begin and end of the collector are found by the interpreter's symbols or by the
//! probes that distributors build in (USDT): there the kernel sets breakpoints for the time of the
//! watch. Facts missing in the interpreter's file are not reported here either.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use takt_rt::procfs;
use takt_trace::probe::{Hit, ProbePoint, Probes};

use crate::elf::{self, Facts};
use crate::report::Share;
use crate::target::Watched;

/// Mean time between two looks.
const LOOK: Duration = Duration::from_millis(20);
/// Interpreters, threads of one, and collections that are remembered.
const MAX_PYTHONS: usize = 16;
const MAX_THREADS: usize = 64;
const MAX_COLLECTIONS: usize = 4096;
/// Looks at a thread that are enough to say anything.
const FEWEST: u64 = 20;

/// A thread that waited for the interpreter's lock.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LockWait {
    /// Its name.
    pub thread: String,
    /// Its id.
    pub tid: i32,
    /// Share of the looks at which it waited for the lock, 0 to 1.
    pub share: f64,
    /// Holders of the lock in those samples, by number of samples.
    pub holders: Vec<Share>,
}

/// Activity of the garbage collector.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Collector {
    /// Number of collections.
    pub collections: u64,
    /// Total time, microseconds.
    pub us: f64,
    /// The longest, microseconds.
    pub worst_us: f64,
    /// Of the worst late cycles, those of which it took most.
    pub late_cycles: u64,
}

/// A program in Python.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PythonReport {
    /// Its process.
    pub pid: i32,
    /// Number of samples of its threads.
    pub looks: u64,
    /// Threads that waited for the interpreter's lock, the longest first; null where the
    /// interpreter's file does not report where it is.
    pub lock: Option<Vec<LockWait>>,
    /// The collector; null where the interpreter's file does not report where it is, or probes were
    /// not wanted.
    pub collector: Option<Collector>,
    /// Notes on unknown facts, with the reasons.
    pub notes: Vec<String>,
}

/// Facts about one thread.
#[derive(Debug, Default)]
struct Looked {
    looks: u64,
    waited: u64,
    holders: BTreeMap<i32, u64>,
}

/// From and to, CLOCK_MONOTONIC, and the thread that collected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Collection {
    tid: i32,
    from_ns: u64,
    to_ns: u64,
}

/// A process with an interpreter.
#[derive(Debug, Default)]
struct Python {
    /// Addresses of `_PyRuntime`.
    runtime: Option<(u64, u64)>,
    /// The interpreter's file, and where it collects.
    collection: Option<(PathBuf, [ProbePoint; 2])>,
    threads: BTreeSet<i32>,
    probes: BTreeMap<i32, Probes>,
    began: BTreeMap<i32, u64>,
    collections: Vec<Collection>,
    counted: (u64, u64, u64),
    looks: u64,
    looked: BTreeMap<i32, Looked>,
    notes: BTreeSet<String>,
}

/// All of them, looked at by a thread of its own.
#[derive(Debug)]
pub(crate) struct Pythons {
    shared: Arc<Mutex<BTreeMap<i32, Python>>>,
    /// Processes that were looked for an interpreter, with the program that they ran then: a shell
    /// may become another.
    known: BTreeMap<i32, PathBuf>,
    probes: bool,
    stop: Arc<AtomicBool>,
    looker: Option<JoinHandle<()>>,
}

impl Drop for Pythons {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(looker) = self.looker.take() {
            let _ = looker.join();
        }
    }
}

impl Pythons {
    /// None is known yet; `probes`: breakpoints may be set at the collector.
    pub(crate) fn new(probes: bool) -> Self {
        Self { shared: Arc::default(), known: BTreeMap::new(), probes, stop: Arc::default(), looker: None }
    }

    /// Looks for interpreters among the watched processes.
    pub(crate) fn refresh(&mut self, watched: &Watched) {
        self.known.retain(|pid, _| watched.processes.contains(pid));
        for &pid in &watched.processes {
            let Ok(program) = std::fs::read_link(format!("/proc/{pid}/exe")) else { continue };
            let new = self.known.get(&pid) != Some(&program);
            let mut all = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
            if new && all.len() < MAX_PYTHONS && !all.contains_key(&pid) {
                let found = find(pid, &program);
                // One that has just begun has not yet loaded its library.
                if found.is_some() || !program.to_string_lossy().contains("python") {
                    self.known.insert(pid, program);
                }
                let Some(mut python) = found else { continue };
                if !self.probes {
                    let note = "--gc follows its collector, with two breakpoints in the interpreter";
                    python.notes.insert(note.to_owned());
                }
                all.insert(pid, python);
            }
            let Some(python) = all.get_mut(&pid) else { continue };
            python.threads = procfs::threads(pid).take(MAX_THREADS).collect();
            if self.probes {
                python.open_probes();
            }
        }
        let any = !self.shared.lock().unwrap_or_else(PoisonError::into_inner).is_empty();
        if any && self.looker.is_none() {
            let (shared, stop) = (Arc::clone(&self.shared), Arc::clone(&self.stop));
            let looker = std::thread::Builder::new().name("takt-python".to_owned());
            self.looker = looker.spawn(move || look_on(&shared, &stop)).ok();
        }
    }

    /// Current reports, without the late cycles that they explain.
    pub(crate) fn reports(&self, watched: &Watched) -> Vec<PythonReport> {
        let mut all = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter_mut()
            .map(|(&pid, python)| {
                python.take_hits();
                python.report(pid, watched)
            })
            .collect()
    }

    /// Time of a stretch that collections took, and their thread.
    pub(crate) fn collected_ns(&self, pid: i32, from_ns: u64, to_ns: u64) -> Option<(u64, i32)> {
        let all = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let within = all.get(&pid)?.collections.iter().filter_map(|one| {
            let ns = one.to_ns.min(to_ns).saturating_sub(one.from_ns.max(from_ns));
            (ns > 0).then_some((ns, one.tid))
        });
        let all: Vec<(u64, i32)> = within.collect();
        let sum = all.iter().map(|one| one.0).sum();
        all.into_iter().max().map(|most| (sum, most.1))
    }
}

/// Looks at all threads until `stop`.
fn look_on(shared: &Mutex<BTreeMap<i32, Python>>, stop: &AtomicBool) {
    // The golden ratio's multiples are spread evenly and meet no rhythm.
    const STEP: f64 = 0.618_033_988_749_895;
    let mut at = 0.0_f64;
    while !stop.load(Ordering::Acquire) {
        at = (at + STEP).fract();
        std::thread::sleep(LOOK.mul_f64(0.5 + at));
        let mut all = shared.lock().unwrap_or_else(PoisonError::into_inner);
        for (&pid, python) in all.iter_mut() {
            python.look(pid);
            python.take_hits();
        }
    }
}

/// State of a thread, as `/proc/PID/task/TID/syscall` reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doing {
    /// On a CPU, or ready for one.
    Running,
    /// It waits on the futex at this address.
    Futex(u64),
    /// It waits for something else.
    Other,
}

fn doing(text: &str) -> Option<Doing> {
    let mut words = text.split_whitespace();
    let first = words.next()?;
    if first == "running" {
        return Some(Doing::Running);
    }
    let number: i64 = first.parse().ok()?;
    let address = words.next().and_then(|word| u64::from_str_radix(word.trim_start_matches("0x"), 16).ok());
    Some(match address {
        Some(address) if number == libc::SYS_futex => Doing::Futex(address),
        _ => Doing::Other,
    })
}

impl Python {
    fn open_probes(&mut self) {
        self.probes.retain(|tid, _| self.threads.contains(tid));
        let Some((file, places)) = &self.collection else { return };
        for &tid in &self.threads {
            if self.probes.contains_key(&tid) {
                continue;
            }
            match Probes::open(file, *places, tid) {
                Ok(probes) => {
                    self.probes.insert(tid, probes);
                }
                // It has just ended.
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                Err(error) => {
                    self.notes.insert(format!(
                        "its collector is not followed, because no probe can be set: {error}"
                    ));
                    self.collection = None;
                    return;
                }
            }
        }
    }

    fn take_hits(&mut self) {
        let mut hits: Vec<Hit> = self.probes.values_mut().flat_map(Probes::drain).collect();
        hits.sort_by_key(|hit| hit.time_ns);
        for hit in hits {
            if hit.begin {
                self.began.insert(hit.tid, hit.time_ns);
            } else if let Some(from_ns) = self.began.remove(&hit.tid) {
                let ns = hit.time_ns.saturating_sub(from_ns);
                let (count, sum_ns, worst_ns) = self.counted;
                self.counted = (count + 1, sum_ns + ns, worst_ns.max(ns));
                if self.collections.len() >= MAX_COLLECTIONS {
                    self.collections.drain(..MAX_COLLECTIONS / 2);
                }
                self.collections.push(Collection { tid: hit.tid, from_ns, to_ns: hit.time_ns });
            }
        }
    }

    fn look(&mut self, pid: i32) {
        let Some((from, to)) = self.runtime else { return };
        let now: Vec<(i32, Doing)> = self
            .threads
            .iter()
            .filter_map(|&tid| {
                let text = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall")).ok()?;
                Some((tid, doing(&text)?))
            })
            .collect();
        self.take_look(&now, (from, to));
    }

    fn take_look(&mut self, now: &[(i32, Doing)], (from, to): (u64, u64)) {
        self.looks += 1;
        let mut running = now.iter().filter(|one| one.1 == Doing::Running).map(|one| one.0);
        // With more of them running, all but one have let go of it, and nobody knows which.
        let holder = running.next().filter(|_| running.next().is_none());
        for &(tid, doing) in now {
            let looked = self.looked.entry(tid).or_default();
            looked.looks += 1;
            if let Doing::Futex(address) = doing
                && (from..to).contains(&address)
            {
                looked.waited += 1;
                *looked.holders.entry(holder.unwrap_or(0)).or_default() += 1;
            }
        }
    }

    fn report(&self, pid: i32, watched: &Watched) -> PythonReport {
        let name = |tid: i32| watched.threads.get(&tid).map_or(String::new(), |thread| thread.name.clone());
        let lock = self.runtime.map(|_| {
            let waited = self.looked.iter().filter(|(_, one)| one.waited > 0 && one.looks >= FEWEST);
            let mut waits: Vec<LockWait> = waited
                .map(|(&tid, one)| {
                    let holder = |(&who, &count): (&i32, &u64)| Share {
                        who: if who == 0 {
                            "not known".to_owned()
                        } else {
                            format!("{} (tid {who})", name(who))
                        },
                        count,
                        us: 0.0,
                    };
                    let mut holders: Vec<Share> = one.holders.iter().map(holder).collect();
                    holders.sort_by_key(|share| std::cmp::Reverse(share.count));
                    LockWait { thread: name(tid), tid, share: one.waited as f64 / one.looks as f64, holders }
                })
                .collect();
            waits.sort_by(|a, b| b.share.total_cmp(&a.share));
            waits
        });
        let (collections, sum_ns, worst_ns) = self.counted;
        let collector = (!self.probes.is_empty() || collections > 0).then(|| Collector {
            collections,
            us: sum_ns as f64 / 1e3,
            worst_us: worst_ns as f64 / 1e3,
            late_cycles: 0,
        });
        PythonReport { pid, looks: self.looks, lock, collector, notes: self.notes.iter().cloned().collect() }
    }
}

/// The interpreter of a process that runs `program`, if it has one: a file with `_PyRuntime`.
fn find(pid: i32, program: &Path) -> Option<Python> {
    let maps = Path::new("/proc").join(pid.to_string()).join("maps");
    let maps = takt_files::read_to_string(&maps, takt_files::PROCESS_BYTES).ok()?;
    let mut seen = BTreeSet::new();
    for line in maps.lines() {
        // Addresses, rights, offset, device, inode, path.
        let mut words = line.split_whitespace();
        let (Some(addresses), Some(offset), Some(path)) = (words.next(), words.nth(1), words.nth(2)) else {
            continue;
        };
        let name = Path::new(path).file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let candidate =
            name.starts_with("libpython") || name.contains("python") && Path::new(path) == program;
        if !candidate || u64::from_str_radix(offset, 16) != Ok(0) || !seen.insert(path.to_owned()) {
            continue;
        }
        let Some(start) = addresses.split('-').next().and_then(|text| u64::from_str_radix(text, 16).ok())
        else {
            continue;
        };
        // As the process sees it, in a container as well.
        let file = PathBuf::from(format!("/proc/{pid}/root{path}"));
        let Some(Facts { runtime: Some((at, size)), collection, linked_at }) = elf::read(&file) else {
            continue;
        };
        let from = start.wrapping_sub(linked_at).wrapping_add(at);
        let mut python = Python {
            runtime: Some((from, from.wrapping_add(size))),
            collection: collection.map(|places| (file, places)),
            ..Python::default()
        };
        if python.collection.is_none() {
            python.notes.insert(format!(
                "its collector is not followed, because {path} has neither symbols nor probes that locate it"
            ));
        }
        return Some(python);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_thread_does_is_read() {
        assert_eq!(doing("running\n"), Some(Doing::Running));
        let futex = format!("{} 0x7f00 0x189 0x0 0x0 0x0 0x7ffd 0x7ffe", libc::SYS_futex);
        assert_eq!(doing(&futex), Some(Doing::Futex(0x7f00)));
        assert_eq!(doing("-1 0x7ffd 0x7ffe"), Some(Doing::Other));
        assert_eq!(doing(""), None);
    }

    #[test]
    fn the_holder_is_whoever_alone_runs() {
        let mut python = Python::default();
        let waits = Doing::Futex(0x150);
        python.take_look(&[(1, waits), (2, Doing::Running)], (0x100, 0x200));
        // Another lock; two that run.
        python.take_look(&[(1, Doing::Futex(0x250)), (2, Doing::Running)], (0x100, 0x200));
        python.take_look(&[(1, waits), (2, Doing::Running), (3, Doing::Running)], (0x100, 0x200));
        let looked = &python.looked[&1];
        assert_eq!((looked.looks, looked.waited), (3, 2));
        assert_eq!(looked.holders, BTreeMap::from([(2, 1), (0, 1)]));
    }

    #[test]
    fn a_program_without_an_interpreter_has_none() {
        let own = std::env::current_exe().unwrap();
        assert!(find(std::process::id() as i32, &own).is_none());
    }
}

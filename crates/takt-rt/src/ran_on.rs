//! On which CPUs threads really ran: what was granted says where a thread may run, not where it
//! did.
//!
//! A thread of [`thread::spawn`](crate::thread::spawn) notes its CPU at every release of a
//! [`Periodic`](crate::periodic::Periodic) loop, or wherever it calls [`mark`]: a read of the
//! thread's own memory (the restartable sequence that glibc registers, or the vDSO) and a compare.
//! All other threads of the process, libraries' included, are looked at from outside
//! ([`Watch::look`]), as often as the run's ordinary thread ticks.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use crate::clock;
use crate::placement::CpuSet;
use crate::procfs::{self, Stat};
use crate::settings::Granted;

const WORDS: usize = (CpuSet::MAX_CPU + 1) / 64;
const NOWHERE: usize = usize::MAX;

/// Ended threads that are remembered until a [`Watch`] reports them.
const MAX_ENDED: usize = 1024;

/// Record of one thread.
#[derive(Debug)]
struct Seen {
    cpus: [AtomicU64; WORDS],
    last: AtomicUsize,
    changes: AtomicU64,
    /// By the thread itself.
    marks: AtomicU64,
    /// From outside.
    looks: AtomicU64,
}

impl Seen {
    fn new() -> Self {
        Self {
            cpus: [const { AtomicU64::new(0) }; WORDS],
            last: AtomicUsize::new(NOWHERE),
            changes: AtomicU64::new(0),
            marks: AtomicU64::new(0),
            looks: AtomicU64::new(0),
        }
    }

    fn mark(&self, cpu: usize) {
        self.marks.fetch_add(1, Ordering::Relaxed);
        self.note(cpu);
    }

    fn look(&self, cpu: usize) {
        self.looks.fetch_add(1, Ordering::Relaxed);
        self.note(cpu);
    }

    /// Whether the thread itself marks where it is: the first mark is made when it starts.
    fn marks_itself(&self) -> bool {
        self.marks.load(Ordering::Relaxed) > 1
    }

    fn forget(&self) {
        self.last.store(NOWHERE, Ordering::Relaxed);
        self.changes.store(0, Ordering::Relaxed);
        for word in &self.cpus {
            word.store(0, Ordering::Relaxed);
        }
    }

    fn note(&self, cpu: usize) {
        let last = self.last.swap(cpu, Ordering::Relaxed);
        if last == cpu {
            return;
        }
        if let Some(word) = self.cpus.get(cpu / 64) {
            word.fetch_or(1 << (cpu % 64), Ordering::Relaxed);
        }
        if last != NOWHERE {
            self.changes.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn cpus(&self) -> CpuSet {
        let holds = |cpu: &usize| self.cpus[cpu / 64].load(Ordering::Relaxed) >> (cpu % 64) & 1 == 1;
        CpuSet::from_cpus((0..=CpuSet::MAX_CPU).filter(holds)).unwrap_or(CpuSet::EMPTY)
    }
}

thread_local! {
    static OWN: OnceCell<Arc<Seen>> = const { OnceCell::new() };
}

/// A thread that [`crate::thread`] started.
#[derive(Debug)]
struct Known {
    name: String,
    tid: i32,
    begun_ns: u64,
    asked: Option<CpuSet>,
    granted: Option<CpuSet>,
    seen: Arc<Seen>,
}

static KNOWN: Mutex<Vec<Known>> = Mutex::new(Vec::new());

fn known() -> MutexGuard<'static, Vec<Known>> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Notes the CPU on which the calling thread runs now. Does nothing in a thread that was not
/// started by [`crate::thread`]. No lock, no allocation.
#[inline]
pub fn mark() {
    let _ = OWN.try_with(|own| {
        if let Some(seen) = own.get() {
            // SAFETY: takes nothing; -1 where the kernel does not report.
            let cpu = unsafe { libc::sched_getcpu() };
            if let Ok(cpu) = usize::try_from(cpu) {
                seen.mark(cpu);
            }
        }
    });
}

/// Begins to note for the calling thread, before its body runs.
pub(crate) fn begin(name: &str, granted: &Granted) {
    let seen = Arc::new(Seen::new());
    let fresh = OWN.try_with(|own| own.set(Arc::clone(&seen)).is_ok()).unwrap_or(false);
    if !fresh {
        return;
    }
    let mut list = known();
    if list.len() >= MAX_ENDED {
        // The thread's own reference goes when it ends.
        list.retain(|known| Arc::strong_count(&known.seen) > 1);
    }
    list.push(Known {
        name: name.to_owned(),
        tid: granted.effective.tid,
        begun_ns: clock::monotonic_ns(),
        asked: granted.requested.cpus,
        granted: granted.effective.cpus,
        seen,
    });
    drop(list);
    mark();
}

/// Reports that a thread was placed anew after it started: what was asked, and what it has now. Its
/// earlier place is forgotten.
pub fn placed(granted: &Granted) {
    let mut list = known();
    if let Some(known) = list.iter_mut().rev().find(|known| known.tid == granted.effective.tid) {
        (known.asked, known.granted) = (granted.requested.cpus, granted.effective.cpus);
        known.seen.forget();
    }
}

/// CPUs on which one thread was to run, may run, and ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadCpus {
    /// Its name.
    pub name: String,
    /// Its id.
    pub tid: i32,
    /// CPUs that were asked for; `None`: no choice was made.
    pub asked: Option<CpuSet>,
    /// CPUs that the kernel granted, read back.
    pub granted: Option<CpuSet>,
    /// CPUs on which it was seen.
    pub ran_on: CpuSet,
    /// Number of times that it was seen on another CPU than the time before.
    pub changes: u64,
    /// Number of observations.
    pub seen: u64,
    /// Whether it looked itself, at every release; else it was looked at from outside, and what it
    /// did between two looks is not known.
    pub every_release: bool,
}

impl ThreadCpus {
    /// A sentence where it ran on a CPU that was not asked for, although the kernel had granted
    /// what was: somebody moved it, or took its CPU away. (What was not granted is reported by
    /// [`Granted`].)
    pub fn strayed(&self) -> Option<String> {
        self.asked.filter(|_| self.asked == self.granted)?;
        let elsewhere = self.ran_on.without(&self.asked?);
        (!elsewhere.is_empty())
            .then(|| format!("{}: ran on CPUs {elsewhere}, which were not requested", self.name))
    }
}

/// Threads of this process from now on, wherever they run.
#[derive(Debug)]
pub struct Watch {
    begun_ns: u64,
    others: BTreeMap<(i32, u64), (String, Option<CpuSet>, Seen)>,
}

impl Watch {
    /// Begins to watch: threads that start later, and those that live.
    pub fn begin() -> Self {
        Self { begun_ns: clock::monotonic_ns(), others: BTreeMap::new() }
    }

    /// Looks where every thread of the process is, or was when it last ran.
    pub fn look(&mut self) {
        let known: Vec<(i32, Arc<Seen>)> = {
            let list = known();
            // Those that live: numbers of ended threads are used again.
            let alive = list.iter().filter(|known| Arc::strong_count(&known.seen) > 1);
            alive.map(|known| (known.tid, Arc::clone(&known.seen))).collect()
        };
        for tid in procfs::threads::<i32>("self") {
            let Some((name, started, cpu)) = stat(tid) else { continue };
            if let Some((_, seen)) = known.iter().rev().find(|(known, _)| *known == tid) {
                // One that marks itself is the only writer of its notes.
                if !seen.marks_itself() {
                    seen.look(cpu);
                }
                continue;
            }
            let (sender, granted, seen) =
                self.others.entry((tid, started)).or_insert_with(|| (name.clone(), None, Seen::new()));
            // Threads name themselves after they started.
            *sender = name;
            *granted = crate::placement::affinity(tid).ok().or(*granted);
            seen.look(cpu);
        }
    }

    /// All threads that were seen, those of [`crate::thread`] first.
    pub fn report(&self) -> Vec<ThreadCpus> {
        let list = known();
        let alive = |known: &Known| Arc::strong_count(&known.seen) > 1;
        let own = list
            .iter()
            .filter(|known| known.begun_ns >= self.begun_ns || alive(known))
            .map(|known| report(&known.name, known.tid, (known.asked, known.granted), &known.seen));
        let others = self
            .others
            .iter()
            .map(|(&(tid, _), (name, granted, seen))| report(name, tid, (None, *granted), seen));
        own.chain(others).collect()
    }
}

fn report(
    name: &str,
    tid: i32,
    (asked, granted): (Option<CpuSet>, Option<CpuSet>),
    seen: &Seen,
) -> ThreadCpus {
    ThreadCpus {
        name: name.to_owned(),
        tid,
        asked,
        granted,
        ran_on: seen.cpus(),
        changes: seen.changes.load(Ordering::Relaxed),
        seen: seen.marks.load(Ordering::Relaxed) + seen.looks.load(Ordering::Relaxed),
        every_release: seen.marks_itself(),
    }
}

/// Name, start time (clock ticks since boot) and last CPU of a thread of this process: fields 2, 22
/// and 39 of its stat.
fn stat(tid: i32) -> Option<(String, u64, usize)> {
    let stat = Stat::of_thread("self", tid)?;
    Some((stat.name(), stat.start_ticks()?, stat.number(39)?))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;
    use crate::periodic::{Periodic, SleepStrategy};
    use crate::placement;
    use crate::settings::ThreadSettings;
    use crate::thread;

    #[test]
    fn a_pinned_loop_is_seen_on_its_cpu_and_one_that_moves_on_all() {
        let usable = crate::cpus::MachineCpus::read().unwrap().usable;
        let (first, last) = (usable.iter().next().unwrap(), usable.iter().last().unwrap());
        let mut watch = Watch::begin();
        let settings = ThreadSettings { cpus: CpuSet::single(last).ok(), ..ThreadSettings::default() };
        let (sender, receiver) = mpsc::channel::<()>();
        let idle = thread::spawn("ran-on-idle", &settings, move || receiver.recv().is_err()).unwrap();
        let pinned = thread::spawn("ran-on-pinned", &settings, || {
            let mut periodic =
                Periodic::start_now(Duration::from_micros(200), SleepStrategy::Kernel).unwrap();
            for _ in 0..20 {
                periodic.next();
            }
        })
        .unwrap();
        let moves = thread::spawn("ran-on-moves", &ThreadSettings::default(), move || {
            for cpu in [first, last, first] {
                placement::set_affinity(0, &CpuSet::single(cpu).unwrap()).unwrap();
                mark();
            }
        })
        .unwrap();
        pinned.join().unwrap();
        moves.join().unwrap();
        watch.look();
        drop(sender);
        idle.join().unwrap();
        let report = watch.report();
        let of = |name: &str| report.iter().find(|thread| thread.name == name).unwrap().clone();
        let pinned = of("ran-on-pinned");
        assert_eq!((pinned.ran_on, pinned.changes), (CpuSet::single(last).unwrap(), 0), "{pinned:?}");
        assert!(pinned.every_release && pinned.seen >= 20, "{pinned:?}");
        assert_eq!((pinned.asked, pinned.granted), (settings.cpus, settings.cpus));
        assert!(pinned.strayed().is_none());
        let moved = of("ran-on-moves");
        for cpu in [first, last] {
            assert!(moved.ran_on.contains(cpu), "{moved:?}");
        }
        assert!(first == last || moved.changes >= 2, "{moved:?}");
        let idle = of("ran-on-idle");
        assert_eq!((idle.ran_on, idle.every_release), (CpuSet::single(last).unwrap(), false), "{idle:?}");
        // Threads that nobody of ours started: the test's own.
        assert!(report.iter().any(|thread| thread.asked.is_none() && !thread.every_release));
    }

    #[test]
    fn one_on_another_cpu_than_asked_is_reported() {
        let strayed = ThreadCpus {
            name: "loop".into(),
            tid: 1,
            asked: "1".parse().ok(),
            granted: "1".parse().ok(),
            ran_on: "0-1".parse().unwrap(),
            changes: 3,
            seen: 100,
            every_release: true,
        };
        assert!(strayed.strayed().unwrap().contains("CPUs 0"));
        let refused = ThreadCpus { granted: "0-1".parse().ok(), ..strayed.clone() };
        assert!(refused.strayed().is_none(), "reported as not granted");
        assert!(ThreadCpus { asked: None, ..strayed }.strayed().is_none());
    }
}

//! CPUs whose idle time leaves no events, and the threads that keep them out of it.
//!
//! On some kernels perf gets nothing that happens while certain threads are current, one of them a
//! CPU's idle thread: neither its switches and idle states nor the timer interrupts that wake a
//! sleeping thread, and no loss is counted. Seen on a paravirtualised x86 guest with Linux 6.18,
//! for the idle thread of one of its two CPUs and for some of the oldest threads of its init;
//! ftrace gets their interrupts. (Since Linux 6.11 perf guards against recursion by a count in the
//! thread; one that was left raised would look just like that.) A thread that sleeps on such a CPU
//! wakes out of nothing.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use takt_rt::placement::{self, CpuSet};
use takt_rt::policy::{self, Policy};
use takt_rt::thread::{self, Handle};

use crate::event::{Event, KEEPER_NAME, Kind};

/// Whether CPUs are kept out of idle while they are traced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeepAwake {
    /// Only those whose idle time turns out to leave no events: without it nearly no release of a
    /// thread that sleeps there can be explained. It changes what is measured (no idle exits, a
    /// busy neighbour for the sibling), so the trace and every report name the CPUs.
    #[default]
    Auto,
    /// None: what is measured stays as it is, at the price of the paths.
    Off,
}

/// Knowledge about a CPU's idle time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IdleTime {
    /// It has not been idle yet.
    Unknown,
    /// Its events are there.
    Traced,
    /// It went idle, and what came next had another thread for current.
    Hidden,
}

/// Judges a CPU's idle time by its events: after a switch to the idle thread the idle thread is
/// current in the next one.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct IdleWatch {
    idle: bool,
    seen: u64,
    hidden: u64,
}

/// So often must it be missed: once may be a race of a switch with the end of a chunk.
const ENOUGH: u64 = 2;

impl IdleWatch {
    /// Marks an interruption: the next event does not follow the last one.
    pub(crate) fn interrupt(&mut self) {
        self.idle = false;
    }

    /// Takes the CPU's next event.
    pub(crate) fn see(&mut self, event: &Event) {
        if let Kind::Lost { .. } = event.kind {
            self.interrupt();
            return;
        }
        if self.idle {
            let count = if event.tid == 0 { &mut self.seen } else { &mut self.hidden };
            *count += 1;
        }
        self.idle = matches!(event.kind, Kind::Switch { next_tid: 0, .. });
    }

    /// The verdict so far.
    pub(crate) fn verdict(&self) -> IdleTime {
        match (self.seen, self.hidden) {
            (0, hidden) if hidden >= ENOUGH => IdleTime::Hidden,
            (0, _) => IdleTime::Unknown,
            _ => IdleTime::Traced,
        }
    }
}

/// Naps on every CPU: each lets it go idle, if nothing else runs there, and wakes it by its own
/// timer.
const NAPS: u32 = 4;
const NAP: Duration = Duration::from_micros(300);

/// Lets every CPU go idle a few times, so that its idle time can be judged before it matters. Busy
/// CPUs and those that this process may not use stay unjudged.
pub(super) fn nap_everywhere(cpus: &[u16]) {
    let cpus: Vec<usize> = cpus.iter().map(|&cpu| usize::from(cpu)).collect();
    let naps = move || {
        for cpu in cpus {
            let Ok(set) = CpuSet::single(cpu) else { continue };
            if placement::set_affinity(0, &set).is_ok() {
                (0..NAPS).for_each(|_| std::thread::sleep(NAP));
            }
        }
    };
    if let Ok(handle) = thread::spawn_exempt("takt-nap", "lets the CPUs become idle before a trace", naps) {
        let _ = handle.join();
    }
}

/// A thread that keeps a CPU out of idle, below every other thread, until dropped.
#[derive(Debug)]
pub(super) struct Keeper {
    cpu: u16,
    stop: Arc<AtomicBool>,
    thread: Option<Handle<()>>,
}

impl Keeper {
    pub(super) fn start(cpu: u16) -> Result<Self, IdleThreadError> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let why = "keeps a CPU awake that records no events while idle";
        let thread = spawn_below_all(&format!("{KEEPER_NAME}{cpu}"), why, cpu, move || {
            while !stopped.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        })?;
        Ok(Self { cpu, stop, thread: Some(thread) })
    }

    pub(super) fn cpu(&self) -> u16 {
        self.cpu
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // Real-time threads may leave it no time where it is.
            let _ = Policy::default().apply(thread.tid());
            let _ = placement::online().and_then(|cpus| placement::set_affinity(thread.tid(), &cpus));
            let _ = thread.join();
        }
    }
}

/// Reason why a thread below all others did not start. The trace goes on without it, with a note.
#[derive(Debug, thiserror::Error)]
pub(super) enum IdleThreadError {
    /// It was not spawned, or not bound to its CPU.
    #[error(transparent)]
    Thread(#[from] takt_rt::Error),
    /// It did not get its policy.
    #[error("SCHED_IDLE: {0}")]
    Policy(#[source] io::Error),
    /// It ended before it said anything.
    #[error("its thread ended")]
    Ended,
}

/// Runs `work` in a thread on `cpu` that any other thread preempts at once, when that is sure.
pub(super) fn spawn_below_all(
    name: &str,
    why: &'static str,
    cpu: u16,
    work: impl FnOnce() + Send + 'static,
) -> Result<Handle<()>, IdleThreadError> {
    let set = CpuSet::single(usize::from(cpu))?;
    let (ready, settled) = std::sync::mpsc::sync_channel(1);
    // Started from here, it inherits neither the policy nor the group.
    let remover = Remover::of_this_process();
    let body = move || {
        let bound = placement::set_affinity(0, &set).map_err(IdleThreadError::from);
        let outcome = bound.and_then(|()| policy::set_idle().map_err(IdleThreadError::Policy));
        let settled = outcome.is_ok();
        let _group = settled.then(|| IdleGroup::join(remover)).flatten();
        let _ = ready.send(outcome);
        if settled {
            work();
        }
    };
    let thread = thread::spawn_exempt(name, why, body)?;
    match settled.recv().map_err(|_| IdleThreadError::Ended).flatten() {
        Ok(()) => Ok(thread),
        Err(error) => {
            let _ = thread.join();
            Err(error)
        }
    }
}

/// A control group that gives way to all others, for as long as the calling thread is in it.
///
/// SCHED_IDLE counts among the threads of one's own group alone, and each session is one
/// (autogroups) where no control groups are: from another terminal than the watched program's, the
/// thread would take half of a CPU from it, milliseconds at a time. Threads can be moved by
/// themselves in the older hierarchy alone.
struct IdleGroup {
    _remover: Option<Arc<Remover>>,
}

impl IdleGroup {
    const PATH: &str = "/sys/fs/cgroup/cpu/takt-awake";
    const ROOT: &str = "/sys/fs/cgroup/cpu/tasks";

    fn join(remover: Option<Arc<Remover>>) -> Option<Self> {
        let group = Path::new(Self::PATH);
        // It may be there: another takt's, or left by one that was killed.
        let _ = fs::create_dir(group);
        // 0 is the calling thread.
        let joined =
            fs::write(group.join("cpu.idle"), "1").and_then(|()| fs::write(group.join("tasks"), "0"));
        if joined.is_err() {
            let _ = fs::remove_dir(group);
        }
        joined.is_ok().then_some(Self { _remover: remover })
    }
}

impl Drop for IdleGroup {
    fn drop(&mut self) {
        let _ = fs::write(Self::ROOT, "0");
        // Refused while another is in it, who will do it.
        let _ = fs::remove_dir(Self::PATH);
    }
}

/// The one that runs.
static RUNNING: Mutex<Weak<Remover>> = Mutex::new(Weak::new());

/// The process that cleans up behind this one, while there is one: a child of it that no caller
/// started.
pub fn helper_process() -> Option<i32> {
    let remover = RUNNING.lock().unwrap_or_else(PoisonError::into_inner).upgrade()?;
    i32::try_from(remover.0.id()).ok()
}

/// A process that removes the group when this one is gone, also by SIGKILL: it waits for the end of
/// its standard input, of which this process alone has the other side.
#[derive(Debug)]
struct Remover(Child);

impl Remover {
    /// The one of this process, for all CPUs; none where there can be no such group.
    fn of_this_process() -> Option<Arc<Self>> {
        let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(remover) = running.upgrade() {
            return Some(remover);
        }
        if !Path::new(IdleGroup::ROOT).exists() {
            return None;
        }
        let remover = Arc::new(Self::start(Path::new(IdleGroup::PATH)).ok()?);
        *running = Arc::downgrade(&remover);
        Some(remover)
    }

    fn start(group: &Path) -> io::Result<Self> {
        // The kernel may need some time to take a killed process's threads out of the group. A
        // signal that ends the observed program or its group must not end it first.
        let script = "trap '' HUP INT QUIT TERM; read -r _; for _ in 1 2 3 4 5 6 7 8 9 10; do \
                      [ -d \"$1\" ] || exit; rmdir \"$1\" 2>/dev/null && exit; sleep 0.2; done";
        let child = Command::new("/bin/sh")
            .args(["-c", script, "sh"])
            .arg(group)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self(child))
    }
}

impl Drop for Remover {
    fn drop(&mut self) {
        // Nothing is left to be removed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::State;

    fn switch(prev_tid: i32, next_tid: i32) -> Event {
        let kind =
            Kind::Switch { prev_tid, prev_prio: 120, prev_state: State::Sleeping, next_tid, next_prio: 120 };
        Event { time_ns: 0, tid: prev_tid, cpu: 0, kind }
    }

    fn verdict(events: &[Event]) -> IdleTime {
        let mut watch = IdleWatch::default();
        events.iter().for_each(|event| watch.see(event));
        watch.verdict()
    }

    #[test]
    fn idle_time_is_judged_by_what_follows_it() {
        let tick = |tid| Event { time_ns: 0, tid, cpu: 0, kind: Kind::CpuIdle { state: None } };
        assert_eq!(verdict(&[switch(5, 6), switch(6, 5), tick(5)]), IdleTime::Unknown);
        assert_eq!(verdict(&[switch(5, 0), tick(0), switch(0, 5)]), IdleTime::Traced);
        assert_eq!(verdict(&[switch(5, 0), tick(5), switch(5, 0)]), IdleTime::Unknown);
        assert_eq!(verdict(&[switch(5, 0), tick(5), switch(5, 0), switch(5, 0)]), IdleTime::Hidden);
        // Lost events prove nothing.
        let lost = Event { kind: Kind::Lost { count: 1 }, ..tick(0) };
        assert_eq!(verdict(&[switch(5, 0), lost, tick(5), switch(5, 0), lost, tick(5)]), IdleTime::Unknown);
    }

    #[test]
    fn a_keeper_runs_below_all_others_and_ends() {
        let keeper = Keeper::start(0).unwrap();
        let tid = keeper.thread.as_ref().unwrap().tid();
        // SAFETY: takes an integer.
        assert_eq!(unsafe { libc::sched_getscheduler(tid) }, libc::SCHED_IDLE);
        assert_eq!(placement::affinity(tid).unwrap(), CpuSet::single(0).unwrap());
        if Path::new(IdleGroup::PATH).join("cpu.idle").exists() {
            let groups = fs::read_to_string(format!("/proc/self/task/{tid}/cgroup")).unwrap();
            assert!(groups.contains("takt-awake"), "{groups}");
        }
        drop(keeper);
        // Joined threads leave /proc a moment later, one of this urgency on a busy machine much
        // later.
        let place = format!("/proc/self/task/{tid}");
        let until = std::time::Instant::now() + std::time::Duration::from_secs(30);
        while std::path::Path::new(&place).exists() {
            assert!(std::time::Instant::now() < until, "{place} is still there");
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        assert!(Keeper::start(1023).is_err());
    }

    #[test]
    fn the_group_is_removed_when_its_process_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let group = folder.path().join("group");
        fs::create_dir_all(group.join("busy")).unwrap();
        let mut remover = Remover::start(&group).unwrap();
        // As after a kill.
        drop(remover.0.stdin.take());
        // Somebody is still in it.
        std::thread::sleep(Duration::from_millis(100));
        assert!(group.exists());
        fs::remove_dir(group.join("busy")).unwrap();
        assert!(remover.0.wait().unwrap().success());
        assert!(!group.exists());
    }
}

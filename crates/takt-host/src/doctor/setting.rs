//! Settings that are tried and taken back: files of the kernel, threads' policies, CPUs and timer
//! slack, interfaces' coalescing.
//!
//! A [`Setting`] names threads by their names, so that it holds for the next start of a program and
//! the next boot; an [`Action`] is one of it here and now, on one file or one thread, which the
//! [journal](crate::doctor::journal) can take back.

use std::path::PathBuf;

use crate::reserve::system::{self, Attributes, Identity, Kernel, Linux};
use serde::{Deserialize, Serialize};
use takt_rt::net::{self, EthtoolRequest};
use takt_rt::oom;
use takt_rt::placement::CpuSet;
use takt_rt::policy::Policy;
use takt_rt::procfs::Stat;

use crate::doctor::change::Change;
use crate::doctor::error::DoctorError;

/// Something to set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Setting {
    /// A file below `/proc` or `/sys`.
    File {
        path: PathBuf,
        /// Value to write.
        value: String,
    },
    /// The scheduling policy of threads, as `fifo:80`.
    Policy {
        /// Name of the process (`/proc/PID/comm`).
        process: String,
        /// Name of the thread (`/proc/PID/task/TID/comm`).
        thread: String,
        policy: String,
    },
    /// The CPUs that threads may run on, as `0-3`.
    Cpus {
        /// Name of the process (`/proc/PID/comm`).
        process: String,
        /// Name of the thread (`/proc/PID/task/TID/comm`).
        thread: String,
        cpus: CpuSet,
    },
    /// The timer slack of threads.
    TimerSlack {
        /// Name of the process (`/proc/PID/comm`).
        process: String,
        /// Name of the thread (`/proc/PID/task/TID/comm`).
        thread: String,
        /// Nanoseconds; 0 is the default of the thread.
        slack_ns: u64,
    },
    /// All threads but those of the process, and those that can run nowhere else, keep off these
    /// CPUs.
    Alone {
        /// Name of the process.
        process: String,
        cpus: CpuSet,
    },
    /// A part of the last cache for threads alone (resctrl).
    CacheWays {
        /// Name of the process (`/proc/PID/comm`).
        process: String,
        /// Name of the thread (`/proc/PID/task/TID/comm`).
        thread: String,
    },
    /// Adjustment of the score by which the kernel chooses a process to kill when memory runs out
    /// (`oom_score_adj`), for processes of this name.
    OomScore {
        /// Name of the process.
        process: String,
        /// -1000: never; 1000: before all others.
        score_adj: i32,
    },
    /// For how long an interface holds frames back.
    Coalescing {
        interface: String,
        /// Received ones, microseconds.
        rx_us: u32,
        /// Sent ones, microseconds.
        tx_us: u32,
    },
}

/// One change, here and now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    File(Change),
    /// A thread's scheduling.
    Policy(Identity, Attributes),
    /// A thread's CPUs.
    Cpus(Identity, CpuSet),
    /// A thread's timer slack.
    TimerSlack(Identity, u64),
    /// A part of the last cache for a thread.
    CacheWays(Identity),
    /// An interface.
    Coalescing(String, u32, u32),
}

/// The intended thread if several have the name, and the intended process for threads of others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scope {
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
}

impl Setting {
    /// Actions for it on this machine now; within `scope` the thread is that one, even if others
    /// have its name.
    ///
    /// # Errors
    /// [`DoctorError::Setting`] names what is not there, or what cannot be read.
    pub fn resolve(&self, scope: Option<Scope>) -> Result<Vec<Action>, DoctorError> {
        self.actions(scope).map_err(DoctorError::setting)
    }

    fn actions(&self, scope: Option<Scope>) -> Result<Vec<Action>, String> {
        let kernel = Linux::new();
        match self {
            Self::File { path, value } => {
                Ok(vec![Action::File(Change { path: path.clone(), value: value.clone() })])
            }
            Self::Policy { process, thread, policy } => {
                let policy: Policy =
                    policy.parse().map_err(|error| format!("policy \"{policy}\": {error}"))?;
                policy.validate().map_err(|error| error.to_string())?;
                let attributes = attributes(&policy);
                let threads = threads(&kernel, (process, thread), scope)?;
                Ok(threads.into_iter().map(|thread| Action::Policy(thread, attributes)).collect())
            }
            Self::Cpus { process, thread, cpus } => {
                let threads = threads(&kernel, (process, thread), scope)?;
                Ok(threads.into_iter().map(|thread| Action::Cpus(thread, *cpus)).collect())
            }
            Self::TimerSlack { process, thread, slack_ns } => {
                let threads = threads(&kernel, (process, thread), scope)?;
                Ok(threads.into_iter().map(|thread| Action::TimerSlack(thread, *slack_ns)).collect())
            }
            Self::CacheWays { process, thread } => {
                let threads = threads(&kernel, (process, thread), scope)?;
                Ok(threads.into_iter().map(Action::CacheWays).collect())
            }
            Self::Alone { process, cpus } => others(&kernel, process, scope, cpus),
            Self::OomScore { process, score_adj } => {
                if !(oom::NEVER..=oom::FIRST).contains(score_adj) {
                    return Err(format!("oom_score_adj {score_adj}: accepted are -1000 to 1000"));
                }
                let change = |pid: u32| Change {
                    path: PathBuf::from(format!("/proc/{pid}/oom_score_adj")),
                    value: score_adj.to_string(),
                };
                let found = processes(&kernel, process, scope)?;
                Ok(found.into_iter().map(|pid| Action::File(change(pid))).collect())
            }
            Self::Coalescing { interface, rx_us, tx_us } => {
                Ok(vec![Action::Coalescing(interface.clone(), *rx_us, *tx_us)])
            }
        }
    }
}

/// The kernel's form of a policy.
fn attributes(policy: &Policy) -> Attributes {
    let ns = |duration: std::time::Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    match *policy {
        Policy::Other { nice } => Attributes::other(nice),
        Policy::Fifo { priority } => Attributes {
            policy: libc::SCHED_FIFO as u32,
            priority: priority.into(),
            flags: system::RESET_ON_FORK,
            ..Attributes::default()
        },
        Policy::RoundRobin { priority } => Attributes {
            policy: libc::SCHED_RR as u32,
            priority: priority.into(),
            flags: system::RESET_ON_FORK,
            ..Attributes::default()
        },
        Policy::Deadline { runtime, deadline, period, reclaim } => Attributes {
            deadline_ns: ns(deadline),
            ..Attributes::reservation(ns(runtime), ns(period), reclaim)
        },
    }
}

fn threads(
    kernel: &Linux,
    (process, thread): (&str, &str),
    scope: Option<Scope>,
) -> Result<Vec<Identity>, String> {
    let name = |pid: u32, tid: u32| kernel.thread_name(pid, tid).ok();
    if let Some(Scope { pid, tid }) = scope
        && name(pid, pid).as_deref() == Some(process)
        && name(pid, tid).as_deref() == Some(thread)
    {
        let thread = system::identify(kernel, pid, tid);
        return thread.map(|thread| vec![thread]).ok_or_else(|| format!("thread {tid} has ended"));
    }
    let mut found = Vec::new();
    for pid in kernel.processes().map_err(|error| format!("/proc: {error}"))? {
        if kernel.thread_name(pid, pid).ok().as_deref() != Some(process) {
            continue;
        }
        let named = kernel.threads(pid).unwrap_or_default();
        let named =
            named.into_iter().filter(|&tid| kernel.thread_name(pid, tid).ok().as_deref() == Some(thread));
        found.extend(named.filter_map(|tid| system::identify(kernel, pid, tid)));
    }
    if found.is_empty() {
        return Err(format!("no thread `{thread}` of a process `{process}` is running: start it first"));
    }
    Ok(found)
}

/// The processes of this name; within `scope` that one.
fn processes(kernel: &Linux, process: &str, scope: Option<Scope>) -> Result<Vec<u32>, String> {
    let is_named = |pid: u32| kernel.thread_name(pid, pid).ok().as_deref() == Some(process);
    if let Some(Scope { pid, .. }) = scope.filter(|scope| is_named(scope.pid)) {
        return Ok(vec![pid]);
    }
    let all = kernel.processes().map_err(|error| format!("/proc: {error}"))?;
    let found: Vec<u32> = all.into_iter().filter(|&pid| is_named(pid)).collect();
    if found.is_empty() {
        return Err(format!("no process `{process}` is running: start it first"));
    }
    Ok(found)
}

/// `PF_NO_SETAFFINITY` of linux/sched.h.
const NO_SET_AFFINITY: u64 = 0x0400_0000;

/// Whether the kernel alone says where the thread runs: workers of workqueues follow their own
/// mask, and refuse any other, also the one that they had.
pub(crate) fn is_bound_by_kernel(pid: u32, tid: u32) -> bool {
    let flags = Stat::of_thread(pid, tid).and_then(|stat| stat.number::<u64>(9));
    flags.is_some_and(|flags| flags & NO_SET_AFFINITY != 0)
}

/// Everybody else off the CPUs. Threads that may run nowhere else stay: pinned programs, and the
/// kernel's own of each CPU.
fn others(kernel: &Linux, process: &str, scope: Option<Scope>, cpus: &CpuSet) -> Result<Vec<Action>, String> {
    let online = kernel.online().map_err(|error| error.to_string())?;
    if online.without(cpus).is_empty() {
        return Err(format!("no CPU except {cpus} is left for the other threads"));
    }
    let mut actions = Vec::new();
    for pid in kernel.processes().map_err(|error| format!("/proc: {error}"))? {
        let own = match scope {
            Some(scope) => pid == scope.pid,
            None => kernel.thread_name(pid, pid).ok().as_deref() == Some(process),
        };
        if own {
            continue;
        }
        for tid in kernel.threads(pid).unwrap_or_default() {
            let Ok(allowed) = kernel.affinity(tid) else { continue };
            let left = allowed.both(&online).without(cpus);
            if allowed.both(cpus).is_empty() || left.is_empty() || is_bound_by_kernel(pid, tid) {
                continue;
            }
            // A reservation and a set of CPUs of one's own do not go together.
            let reserved = kernel.attributes(tid).is_ok_and(|attributes| attributes.is_deadline());
            if let Some(thread) = system::identify(kernel, pid, tid).filter(|_| !reserved) {
                actions.push(Action::Cpus(thread, left));
            }
        }
    }
    Ok(actions)
}

/// `struct ethtool_coalesce` of linux/ethtool.h: 23 numbers; 1 is rx-usecs, 5 is tx-usecs.
#[repr(C)]
pub(crate) struct Coalesce([u32; 23]);

// SAFETY: as long as struct ethtool_coalesce, plain numbers, the first of which is the command.
unsafe impl EthtoolRequest for Coalesce {}

/// `ETHTOOL_GCOALESCE`.
const GET_COALESCE: u32 = 0x0e;
/// `ETHTOOL_SCOALESCE`.
const SET_COALESCE: u32 = 0x0f;

fn read_coalesce(interface: &str) -> std::io::Result<Coalesce> {
    let mut coalesce = Coalesce([0; 23]);
    coalesce.0[0] = GET_COALESCE;
    net::ethtool(interface, &mut coalesce)?;
    Ok(coalesce)
}

/// For how long `interface` holds received and sent frames, microseconds.
///
/// # Errors
/// The driver's error.
pub(crate) fn coalescing(interface: &str) -> std::io::Result<(u32, u32)> {
    read_coalesce(interface).map(|coalesce| (coalesce.0[1], coalesce.0[5]))
}

pub(crate) fn set_coalescing(interface: &str, rx_us: u32, tx_us: u32) -> std::io::Result<()> {
    let mut coalesce = read_coalesce(interface)?;
    (coalesce.0[0], coalesce.0[1], coalesce.0[5]) = (SET_COALESCE, rx_us, tx_us);
    net::ethtool(interface, &mut coalesce)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_as_they_are_written() {
        let process = || "control".to_owned();
        let thread = || "loop".to_owned();
        let all = [
            Setting::File { path: "/proc/sys/kernel/timer_migration".into(), value: "0".into() },
            Setting::Policy { process: process(), thread: thread(), policy: "fifo:80".into() },
            Setting::Cpus { process: process(), thread: thread(), cpus: "1,3".parse().unwrap() },
            Setting::TimerSlack { process: process(), thread: thread(), slack_ns: 1 },
            Setting::Alone { process: "control".into(), cpus: "1".parse().unwrap() },
            Setting::OomScore { process: "control".into(), score_adj: -1000 },
            Setting::Coalescing { interface: "eth0".into(), rx_us: 0, tx_us: 0 },
        ];
        for setting in all {
            let text = serde_json::to_string(&setting).unwrap();
            assert_eq!(serde_json::from_str::<Setting>(&text).unwrap(), setting, "{text}");
        }
    }

    #[test]
    fn workers_of_the_kernel_are_left_alone() {
        let workers = takt_rt::procfs::numbers::<u32>("/proc")
            .filter(|&pid| Stat::of(pid).is_some_and(|stat| stat.name().starts_with("kworker/")));
        for pid in workers {
            // One that has ended meanwhile has no flags.
            assert!(is_bound_by_kernel(pid, pid) || Stat::of(pid).is_none(), "{pid}");
        }
        let own = std::process::id();
        assert!(!is_bound_by_kernel(own, own));
    }

    #[test]
    fn what_is_not_there_is_named() {
        let policy = |policy: &str| Setting::Policy {
            process: "no such process".into(),
            thread: "x".into(),
            policy: policy.to_owned(),
        };
        let message = policy("fifo:80").actions(None).unwrap_err();
        assert!(message.contains("no such process") && message.contains("start it first"), "{message}");
        let own = Some(Scope { pid: std::process::id(), tid: std::process::id() });
        let message = policy("fifo:100").actions(own).unwrap_err();
        assert!(message.contains("fifo:100"), "{message}");
        let oom = |score_adj| Setting::OomScore { process: "no such process".into(), score_adj };
        let message = oom(-1000).actions(own).unwrap_err();
        assert!(message.contains("no such process") && message.contains("start it first"), "{message}");
        assert!(oom(-1001).actions(own).unwrap_err().contains("-1000 to 1000"));
        let online = takt_rt::placement::online().unwrap();
        let message = Setting::Alone { process: "x".into(), cpus: online }.actions(own).unwrap_err();
        assert!(message.contains("is left for the other threads"), "{message}");
    }
}

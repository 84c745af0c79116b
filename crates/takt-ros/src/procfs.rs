//! Reads processes from `/proc`.

use std::fs;

use takt_rt::procfs::{Stat, numbers, threads};

/// When the process of this number was started, clock ticks since boot; `None`: there is none, or
/// only what is left of one.
pub(crate) fn started(pid: u32) -> Option<u64> {
    // A zombie writes no more.
    Stat::of(pid).filter(Stat::is_alive)?.start_ticks()
}

/// The number by which a process or thread knows itself: its innermost PID namespace's, which in a
/// container is not ours.
fn own_number(status: &str) -> Option<u32> {
    let status = fs::read_to_string(status).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    line.split_ascii_whitespace().last()?.parse().ok()
}

/// Our number of a process that calls itself `pid` and was started at `start_ticks`; `None`: it has
/// gone.
pub(crate) fn process_called(pid: u32, start_ticks: u64) -> Option<u32> {
    let called = |&other: &u32| {
        started(other) == Some(start_ticks) && own_number(&format!("/proc/{other}/status")) == Some(pid)
    };
    // It is in our own namespace, as a rule.
    Some(pid).filter(called).or_else(|| numbers("/proc").find(called))
}

/// Our number of a thread of `pid` that calls itself `tid`.
pub(crate) fn thread_called(pid: u32, tid: u32) -> Option<u32> {
    threads(pid).find(|thread| own_number(&format!("/proc/{pid}/task/{thread}/status")) == Some(tid))
}

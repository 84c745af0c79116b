//! Remains of a launched program: processes of other sessions and groups among them, found by the
//! session of the probe in their environment, as children of one that has it, or, when this process
//! adopts orphans, as its own children that it did not start.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use takt_rt::procfs::{self, Stat};

/// A process and when it started, so that another of its number is not taken for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Stray {
    pid: u32,
    start_ticks: u64,
}

/// Number of the parent and time of the start; `None` where it has ended.
fn stat(pid: u32) -> Option<(u32, u64)> {
    let stat = Stat::of(pid).filter(Stat::is_alive)?;
    Some((stat.parent()?, stat.start_ticks()?))
}

/// Processes whose parent ends become children of this one from now on, instead of init's: a daemon
/// that cleared its environment is known by that alone.
pub(super) fn adopt() {
    takt_rt::child::adopt_orphans();
}

/// Whether a child of this process was adopted: what it starts itself stays in its session, and the
/// launched program leads a group in that. An orphan with a group of its own in this session cannot
/// be distinguished from this process's own guards, which have one as well, and is left alone.
fn is_adopted(pid: u32, launched: u32) -> bool {
    let Ok(id) = i32::try_from(pid) else { return false };
    // SAFETY: these have no preconditions and no memory effects.
    let (session, own, group) = unsafe { (libc::getsid(id), libc::getsid(0), libc::getpgid(id)) };
    pid != launched && (session != own || group == launched as i32)
}

/// Takes the status of adopted children that have ended, which only a parent can: else they would
/// keep their numbers until this process ends.
pub(super) fn reap(launched: u32) {
    loop {
        // SAFETY: an all-zero siginfo_t is a valid one to be overwritten.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        // SAFETY: `info` is a valid place for the answer; the field read is set after success.
        let pid = unsafe {
            if libc::waitid(libc::P_ALL, 0, &mut info, flags) != 0 {
                return;
            }
            info.si_pid()
        };
        // One that this process started is waited for where that was done; others come after it.
        if pid == 0 || !is_adopted(pid as u32, launched) {
            return;
        }
        takt_rt::child::reap(pid);
    }
}

/// All that run in this session of the probe, and their children, whatever those did to their
/// environment; and what of it this process has adopted.
pub(super) fn of_session(directory: &Path, launched: u32) -> BTreeSet<Stray> {
    let mut marker = b"TAKT_PROBE_DIR=".to_vec();
    marker.extend_from_slice(directory.as_os_str().as_bytes());
    let ours = std::process::id();
    let mut parents: BTreeMap<u32, (u32, u64)> = BTreeMap::new();
    let mut found = BTreeSet::new();
    for pid in procfs::numbers("/proc") {
        let Some((parent, start_ticks)) = stat(pid).filter(|_| pid != ours) else { continue };
        parents.insert(pid, (parent, start_ticks));
        if parent == ours && is_adopted(pid, launched) {
            found.insert(Stray { pid, start_ticks });
            continue;
        }
        let environment = Path::new("/proc").join(pid.to_string()).join("environ");
        let environment = takt_files::read(&environment, takt_files::PROCESS_BYTES).unwrap_or_default();
        if environment.split(|byte| *byte == 0).any(|variable| variable == marker) {
            found.insert(Stray { pid, start_ticks });
        }
    }
    loop {
        let before = found.len();
        let known: BTreeSet<u32> = found.iter().map(|stray| stray.pid).collect();
        let children = parents.iter().filter(|(_, (parent, _))| known.contains(parent));
        found.extend(children.map(|(&pid, &(_, start_ticks))| Stray { pid, start_ticks }));
        if found.len() == before {
            return found;
        }
    }
}

/// Those that still run.
pub(super) fn alive(strays: &BTreeSet<Stray>) -> BTreeSet<Stray> {
    let is = |stray: &&Stray| stat(stray.pid).is_some_and(|(_, ticks)| ticks == stray.start_ticks);
    strays.iter().filter(is).copied().collect()
}

/// Sends a signal to each, if it is still itself.
pub(super) fn signal(strays: &BTreeSet<Stray>, signal: i32) {
    for stray in alive(strays) {
        if let Ok(pid) = i32::try_from(stray.pid) {
            // SAFETY: kill has no memory effects.
            unsafe { libc::kill(pid, signal) };
        }
    }
}

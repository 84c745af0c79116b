//! What a launched program started and left: processes of other sessions and groups among them,
//! found by the session of the probe in their environment, or as children of one that has it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
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

/// All that run in this session of the probe, and their children, whatever those did to their
/// environment.
pub(super) fn of_session(directory: &Path) -> BTreeSet<Stray> {
    let mut marker = b"TAKT_PROBE_DIR=".to_vec();
    marker.extend_from_slice(directory.as_os_str().as_bytes());
    let ours = std::process::id();
    let mut parents: BTreeMap<u32, (u32, u64)> = BTreeMap::new();
    let mut found = BTreeSet::new();
    for pid in procfs::numbers("/proc") {
        let Some((parent, start_ticks)) = stat(pid).filter(|_| pid != ours) else { continue };
        parents.insert(pid, (parent, start_ticks));
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
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

//! One reservation for a group of real-time threads: a control group with a share of each CPU for
//! its SCHED_FIFO and SCHED_RR threads together (RT group scheduling, and its successor with
//! deadline servers where a kernel has it).
//!
//! Whether the kernel has it is found by trying, with a thread of our own. The group is new and
//! ours alone, so that nothing has to be brought back: dropping it moves what is left in it up and
//! removes it, and what a kill leaves is an empty group that the next start removes.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use serde::{Deserialize, Serialize};
use takt_rt::policy::Policy;

use crate::reserve::system::{Kernel, Linux};

/// Prefix of such groups' names; the process that made them follows.
const NAME: &str = "takt-rt-";

/// A process makes more than one only in tests.
static NUMBER: AtomicU32 = AtomicU32::new(0);

/// Run time of the group in each period, of each CPU, microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupBudget {
    pub runtime_us: u64,
    pub period_us: u64,
}

impl std::fmt::Display for GroupBudget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {} us of each CPU", self.runtime_us, self.period_us)
    }
}

/// Reason why there is no group, or a thread is not in it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GroupError {
    /// The mounts of this process cannot be listed.
    #[error("/proc/self/mounts: {0}. Fix: mount /proc")]
    Mounts(io::Error),
    /// No control groups for CPU time.
    #[error(
        "no control group hierarchy with the controller cpu is mounted. Fix: mount one, outside of a container"
    )]
    NoHierarchy,
    /// Each hierarchy that was tried, with its reason.
    #[error("{}", tried.iter().map(|(mount, reason)| format!("{}: {reason}", mount.display())).collect::<Vec<_>>().join("; "))]
    Refused { tried: Vec<(PathBuf, String)> },
    /// The kernel did not take a thread in.
    #[error("thread {tid} in {}: {source}", group.display())]
    Thread { tid: i32, group: PathBuf, source: io::Error },
}

/// A control group with a budget for its real-time threads.
#[derive(Debug)]
pub struct RtGroup {
    kernel: Linux,
    path: PathBuf,
    parent: PathBuf,
    /// The file that takes threads.
    list: &'static str,
    budget: GroupBudget,
}

/// A hierarchy in which such groups may be made.
struct Hierarchy {
    mount: PathBuf,
    list: &'static str,
    is_threaded: bool,
}

/// The hierarchies that are mounted here: that of the controller `cpu`, then the unified one.
fn hierarchies(mounts: &str) -> Vec<Hierarchy> {
    let mut found: Vec<Hierarchy> = mounts
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ').skip(1);
            let (place, kind, options) = (words.next()?, words.next()?, words.next()?);
            let is_first = kind == "cgroup" && options.split(',').any(|option| option == "cpu");
            let is_threaded = kind == "cgroup2";
            let list = if is_threaded { "cgroup.threads" } else { "tasks" };
            (is_first || is_threaded).then(|| Hierarchy { mount: PathBuf::from(place), list, is_threaded })
        })
        .collect();
    found.sort_by_key(|hierarchy| hierarchy.is_threaded);
    found
}

impl RtGroup {
    /// Makes a group with this budget and tries it with a thread of our own.
    ///
    /// # Errors
    /// Reasons why there is none: each hierarchy with its reason. Nothing is left then.
    pub fn make(budget: GroupBudget) -> Result<Self, GroupError> {
        let mut kernel = Linux::new();
        let mounts = kernel.read(Path::new("/proc/self/mounts")).map_err(GroupError::Mounts)?;
        let mut tried = Vec::new();
        for hierarchy in hierarchies(&mounts) {
            sweep(&mut kernel, &hierarchy);
            match Self::within(kernel, &hierarchy, budget) {
                Ok(group) => return Ok(group),
                Err(refusal) => {
                    let (back, reason) = *refusal;
                    tried.push((hierarchy.mount.clone(), reason));
                    kernel = back;
                }
            }
        }
        Err(if tried.is_empty() { GroupError::NoHierarchy } else { GroupError::Refused { tried } })
    }

    fn within(
        mut kernel: Linux,
        hierarchy: &Hierarchy,
        budget: GroupBudget,
    ) -> Result<Self, Box<(Linux, String)>> {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = hierarchy.mount.join(format!("{NAME}{}-{number}", std::process::id()));
        if let Err(error) = kernel.make_dir(&path) {
            let fix = match error.raw_os_error() {
                Some(libc::EACCES | libc::EPERM | libc::EROFS) => ": run as root, outside of a container",
                _ => "",
            };
            return Err(Box::new((kernel, format!("a group cannot be created there: {error}{fix}"))));
        }
        let mut group = Self { kernel, path, parent: hierarchy.mount.clone(), list: hierarchy.list, budget };
        let outcome = group.fill(hierarchy.is_threaded).and_then(|()| group.attempt());
        match outcome {
            Ok(()) => Ok(group),
            Err(reason) => {
                group.remove();
                // A dropped group would be removed again; the kernel's account continues with the
                // next one.
                let kernel = std::mem::replace(&mut group.kernel, Linux::new());
                Err(Box::new((kernel, reason)))
            }
        }
    }

    fn fill(&mut self, is_threaded: bool) -> Result<(), String> {
        let runtime = self.path.join("cpu.rt_runtime_us");
        if self.kernel.read(&runtime).is_err() {
            return Err("the kernel has no RT group scheduling there (no cpu.rt_runtime_us: built without \
                        CONFIG_RT_GROUP_SCHED, or booted with rt_group_sched=0)"
                .to_owned());
        }
        let GroupBudget { runtime_us, period_us } = self.budget;
        let period = self.path.join("cpu.rt_period_us");
        for (file, value) in [(&period, period_us), (&runtime, runtime_us)] {
            self.kernel.write(file, &value.to_string()).map_err(|error| {
                let cause = match error.raw_os_error() {
                    Some(libc::EINVAL) => {
                        ": more than the parent group has left (kernel.sched_rt_runtime_us, and other groups' shares)"
                    }
                    _ => "",
                };
                format!("{value} in {}: {error}{cause}", file.display())
            })?;
            let read = self.kernel.read(file).unwrap_or_default();
            if read.trim() != value.to_string() {
                return Err(format!("{value} in {}: read back {}", file.display(), read.trim()));
            }
        }
        if is_threaded {
            let kind = self.path.join("cgroup.type");
            self.kernel.write(&kind, "threaded").map_err(|error| format!("{}: {error}", kind.display()))?;
        }
        Ok(())
    }

    /// A thread of our own goes in under SCHED_RR, and out again.
    fn attempt(&mut self) -> Result<(), String> {
        let (_, tid) =
            self.kernel.scratch().map_err(|error| format!("cannot start a thread for the trial: {error}"))?;
        let tid = i32::try_from(tid).map_err(|error| error.to_string())?;
        let rr = Policy::RoundRobin { priority: 1 };
        let outcome = rr
            .apply(tid)
            .map_err(|error| format!("SCHED_RR for a thread: {error}"))
            .and_then(|()| self.add(tid).map_err(|error| error.to_string()))
            .and_then(|()| match Policy::read(tid) {
                Ok(read) if read == rr => Ok(()),
                other => Err(format!("requested {rr} in the group, read back {other:?}")),
            });
        let _ = Policy::default().apply(tid);
        let _ = self.kernel.write(&self.parent.join(self.list), &tid.to_string());
        self.kernel.end_scratch();
        outcome
    }

    /// Takes a thread in. Threads that it makes are in it from their beginning.
    ///
    /// # Errors
    /// The kernel's refusal, in words. A thread that is gone is none.
    pub fn add(&mut self, tid: i32) -> Result<(), GroupError> {
        match self.kernel.write(&self.path.join(self.list), &tid.to_string()) {
            Err(source) if !crate::reserve::system::is_gone(&source) => {
                Err(GroupError::Thread { tid, group: self.path.clone(), source })
            }
            _ => Ok(()),
        }
    }

    /// The threads that are in it.
    pub fn threads(&self) -> Vec<i32> {
        let text = self.kernel.read(&self.path.join(self.list)).unwrap_or_default();
        text.lines().filter_map(|line| line.trim().parse().ok()).collect()
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Joint budget of its threads.
    pub fn budget(&self) -> GroupBudget {
        self.budget
    }

    fn remove(&mut self) {
        remove(&mut self.kernel, &self.path, &self.parent, self.list);
    }
}

impl Drop for RtGroup {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Moves the threads of a group up and removes it; what is gone already is no matter.
fn remove(kernel: &mut Linux, path: &Path, parent: &Path, list: &str) {
    // Threads that are just ending keep a group busy for a moment.
    for _ in 0..20 {
        for tid in kernel.read(&path.join(list)).unwrap_or_default().lines() {
            let _ = kernel.write(&parent.join(list), tid);
        }
        match kernel.remove_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            _ => return,
        }
    }
}

/// Removes the groups whose process has ended: what a kill left.
fn sweep(kernel: &mut Linux, hierarchy: &Hierarchy) {
    let Ok(entries) = std::fs::read_dir(&hierarchy.mount) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let maker =
            name.to_str().and_then(|name| name.strip_prefix(NAME)?.split('-').next()?.parse::<u32>().ok());
        let Some(maker) = maker else { continue };
        if kernel.start_ticks(maker, maker).is_err() {
            remove(kernel, &entry.path(), &hierarchy.mount, hierarchy.list);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hierarchies_are_found_by_their_controller() {
        let mounts = "proc /proc proc rw 0 0\n\
                      cgroup2 /sys/fs/cgroup/unified cgroup2 rw,relatime 0 0\n\
                      cgroup /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0\n\
                      cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0\n";
        let found: Vec<_> =
            hierarchies(mounts).into_iter().map(|h| (h.mount.display().to_string(), h.list)).collect();
        let expected =
            [("/sys/fs/cgroup/cpu,cpuacct", "tasks"), ("/sys/fs/cgroup/unified", "cgroup.threads")];
        assert_eq!(found, expected.map(|(mount, list)| (mount.to_owned(), list)));
        assert!(hierarchies("").is_empty() && hierarchies("garbage\n\n x").is_empty());
    }

    #[test]
    fn a_budget_beyond_its_period_is_refused_with_the_file() {
        let budget = GroupBudget { runtime_us: 2_000_000, period_us: 1_000_000 };
        let refused = RtGroup::make(budget).map(|_| ()).expect_err("no kernel grants that");
        assert!(!refused.to_string().is_empty());
        let left = std::fs::read_dir("/sys/fs/cgroup/cpu").into_iter().flatten().flatten();
        let own = format!("{NAME}{}-", std::process::id());
        assert!(!left.map(|entry| entry.file_name()).any(|name| name.to_string_lossy().starts_with(&own)));
    }
}

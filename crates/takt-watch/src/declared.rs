//! Loops that programs declare with the library of their own loop (`takt-sdk`, `takt.h`, Python's
//! `takt`): found in the shared memory of each process, and read while they run.
//!
//! The memory is a program's, which may be broken or hostile. Nothing of it is trusted but its
//! size, which a seal keeps: numbers are bounded, names checked, records that cannot be are counted
//! and left out. A program can spoil its own rows with it, and nothing else.

mod follower;
mod memory;
mod watching;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use takt_rt::procfs;
use takt_sdk::layout;

pub use follower::{DeclaredError, Follower, Job, Row, Taken};
use memory::Region;
pub use watching::DeclaredReport;
pub(crate) use watching::Watching;

/// What `/proc/PID/fd` shows of the memory before its version.
const LINK: &str = "/memfd:takt-loops-";

/// Memories of one scan, at most: each is a process.
const MAX_REGIONS: usize = 256;

/// Open files of a process that are looked at. A program with more has its memory among the first,
/// for it is opened at the start.
const MAX_FILES: usize = 16_384;

/// A declared loop.
#[derive(Clone, Debug)]
pub struct Declared {
    /// Its name.
    pub name: String,
    /// Its process.
    pub pid: i32,
    /// The name of that process.
    pub process: String,
    /// The thread that runs it; `None` where the process has no thread of the number that it says.
    pub tid: Option<i32>,
    /// `None` for a loop that an input releases.
    pub period_ns: Option<u64>,
    /// After the release; `None` where there is none.
    pub deadline_ns: Option<u64>,
    /// So long before its release it stops sleeping.
    pub spin_ns: u64,
    region: Arc<Region>,
    slot: usize,
}

impl Declared {
    /// Names of its stages.
    pub fn stages(&self) -> Vec<String> {
        self.region.stages(self.slot)
    }

    /// The same loop as it is declared now; `None` where it is closed.
    pub fn now(&self) -> Option<Self> {
        self.region.declared(self.slot)
    }

    /// Begins to take its records.
    ///
    /// # Errors
    /// [`DeclaredError`].
    pub fn follow(&self) -> Result<Follower, DeclaredError> {
        Follower::new(Arc::clone(&self.region), self.slot, &self.name)
    }

    /// What tells one loop from another of the same name.
    pub fn identity(&self) -> (u64, u64, usize) {
        let (device, inode) = self.region.identity;
        (device, inode, self.slot)
    }
}

/// What a program declared in vain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The same loop twice.
    Twice {
        /// Its name.
        name: String,
    },
    /// A period that none can be.
    Period {
        /// The loop's name.
        name: String,
        /// What it asked for.
        period_ns: u64,
    },
    /// More loops than there is room for.
    Full {
        /// The first that found none.
        name: String,
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Twice { name } => write!(
                f,
                "the program declares loop \"{}\" twice; the second was refused, and the rows are those of the first",
                takt_files::quoted(name)
            ),
            Self::Period { name, period_ns } => write!(
                f,
                "the program declares loop \"{}\" with a period of {}, which was refused: declare one above 0 and up to an hour, in \
                 nanoseconds",
                takt_files::quoted(name),
                if *period_ns == 0 { "zero".to_owned() } else { format!("{period_ns} ns") }
            ),
            Self::Full { name } => write!(
                f,
                "the program declares more than {} different loops; \"{}\" was refused",
                layout::MAX_LOOPS,
                takt_files::quoted(name)
            ),
        }
    }
}

/// What is known of a file that calls itself one of loops.
#[derive(Debug)]
enum Known {
    Region(Arc<Region>),
    /// It was refused, which has been said.
    Refused,
}

/// Finds the memories of processes, and the loops in them.
#[derive(Debug, Default)]
pub struct Scanner {
    known: BTreeMap<(u64, u64), Known>,
    problems: Vec<String>,
}

impl Scanner {
    /// Looks at what these processes have open.
    pub fn scan(&mut self, processes: impl IntoIterator<Item = i32>) {
        for pid in processes {
            for path in memories_of(pid) {
                if self.known.len() >= MAX_REGIONS {
                    return;
                }
                self.look(pid, &path);
            }
        }
    }

    fn look(&mut self, pid: i32, path: &Path) {
        let (identity, outcome) = match memory::open(path) {
            // It was closed in between.
            Err(None) => return,
            Err(Some((identity, why))) => (identity, Err(why)),
            Ok(file) => (file.identity, Ok(file)),
        };
        if self.known.contains_key(&identity) {
            return;
        }
        let known = match outcome.and_then(|file| Region::map(&file, pid)) {
            Ok(region) => Known::Region(Arc::new(region)),
            Err(memory::Refused::NotReady) => return,
            Err(why) => {
                self.problems.push(format!("the declared loops of process {pid} cannot be read: {why}"));
                Known::Refused
            }
        };
        self.known.insert(identity, known);
    }

    fn regions(&self) -> impl Iterator<Item = &Arc<Region>> {
        self.known.values().filter_map(|known| match known {
            Known::Region(region) => Some(region),
            Known::Refused => None,
        })
    }

    /// The loops that are declared now, in the order of their processes.
    pub fn loops(&self) -> Vec<Declared> {
        self.regions().flat_map(Region::loops).collect()
    }

    /// What programs declared in vain.
    pub fn refusals(&self) -> Vec<Refusal> {
        self.regions().flat_map(|region| region.refusals()).collect()
    }

    /// What could not be read, a sentence each.
    pub fn problems(&self) -> &[String] {
        &self.problems
    }
}

/// The files of a process that call themselves memories of loops.
fn memories_of(pid: i32) -> Vec<PathBuf> {
    let folder = PathBuf::from(format!("/proc/{pid}/fd"));
    // Gone, or another user's.
    let Ok(entries) = std::fs::read_dir(&folder) else { return Vec::new() };
    let named = entries.flatten().take(MAX_FILES).map(|entry| entry.path());
    named
        .filter(|path| std::fs::read_link(path).is_ok_and(|link| link.to_string_lossy().starts_with(LINK)))
        .collect()
}

/// The number that this machine gives a thread which its own process calls `tid`: in a container
/// they differ.
fn thread_of(pid: i32, tid: u32) -> Option<i32> {
    let own = |thread: i32| -> Option<u32> {
        let path = PathBuf::from(format!("/proc/{pid}/task/{thread}/status"));
        let text = takt_files::read_to_string(&path, takt_files::PROCESS_BYTES).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
        line.split_whitespace().last()?.parse().ok()
    };
    let same = i32::try_from(tid).ok()?;
    if own(same) == Some(tid) {
        return Some(same);
    }
    procfs::threads::<i32>(pid).find(|&thread| own(thread) == Some(tid))
}

#[cfg(test)]
#[path = "declared/tests.rs"]
mod tests;

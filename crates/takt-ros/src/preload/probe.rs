//! All observed processes of a session as one source of events.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use super::process::{Process, ProcessError, ProcessInfo};
use crate::event::{Event, Source};

/// Period at which the directory is searched for new processes, and the old ones are checked.
const SCAN_EVERY: Duration = Duration::from_millis(50);
/// The directory says when it was last changed. That clock may stand still for a tick (10 ms), so a
/// change may hide behind a known one; when nothing has changed for so long, nothing is hidden.
const CLOCK_STANDS: Duration = Duration::from_millis(100);
/// Searched all the same after so long, for file systems whose clocks are worse.
const SEARCH_EVERY: Duration = Duration::from_secs(1);
/// Period at which threads' names are read: programs name them late, and rarely twice.
const NAMES_EVERY: Duration = Duration::from_secs(3);
/// A file whose process does not finish making it within this time is given up.
const UNFINISHED_FOR: Duration = Duration::from_secs(2);

/// Files of a session: processes that run at a time, and those that have ended and are still to be
/// read. Each takes a descriptor or two, and the observed processes make as many as they like.
pub(super) const MAX_PROCESSES: usize = 4096;

/// Reason why a session cannot be read at all.
#[derive(Debug, thiserror::Error)]
#[error("cannot read the session's directory {}: {source}", directory.display())]
pub struct ProbeError {
    directory: PathBuf,
    source: io::Error,
}

/// A process that is observed no more, and why.
#[derive(Debug, thiserror::Error)]
#[error("{label}: {error}")]
pub struct Broken {
    /// The process, by number and name where they are known, or the file.
    pub label: String,
    pub error: ProcessError,
}

/// The preload probe's reading side.
#[derive(Debug)]
pub struct Probe {
    directory: PathBuf,
    processes: Vec<Process>,
    /// Those that have ended or are broken.
    past: Vec<ProcessInfo>,
    /// Files that were opened or given up.
    known: HashSet<OsString>,
    unfinished: Vec<(OsString, Instant)>,
    broken: Vec<Broken>,
    scanned: Option<Instant>,
    folder: Folder,
    named: Instant,
    events: Vec<Event>,
    /// Memory for the question which processes still run.
    polled: Vec<libc::pollfd>,
    finishing: bool,
}

/// When the session's directory was last changed and searched: most of the time nothing comes or
/// goes.
#[derive(Debug, Default)]
struct Folder {
    changed: Option<SystemTime>,
    /// When that change was first seen, and the last search.
    seen: Option<(Instant, Instant)>,
}

impl Folder {
    /// Whether a search would find what the last one found. When not, one is expected to follow.
    fn is_as_searched(&mut self, directory: &Path, now: Instant) -> bool {
        let changed = fs::metadata(directory).and_then(|folder| folder.modified()).ok();
        let (seen, searched) = match self.seen {
            Some(seen) if changed.is_some() && changed == self.changed => seen,
            _ => (now, now),
        };
        let as_searched = searched > seen
            && searched.duration_since(seen) >= CLOCK_STANDS
            && now.duration_since(searched) < SEARCH_EVERY;
        self.changed = changed;
        self.seen = Some((seen, if as_searched { searched } else { now }));
        as_searched
    }
}

impl Probe {
    /// Reads the session in `directory`; one reader at a time.
    ///
    /// # Errors
    ///
    /// The directory cannot be read.
    pub fn open(directory: &Path) -> Result<Self, ProbeError> {
        let mut probe = Self {
            directory: directory.to_owned(),
            processes: Vec::new(),
            past: Vec::new(),
            known: HashSet::new(),
            unfinished: Vec::new(),
            broken: Vec::new(),
            scanned: None,
            folder: Folder::default(),
            named: Instant::now(),
            events: Vec::new(),
            polled: Vec::new(),
            finishing: false,
        };
        probe.scan()?;
        Ok(probe)
    }

    /// Knowledge about all processes, those of the past included.
    pub fn processes(&self) -> impl Iterator<Item = &ProcessInfo> {
        self.past.iter().chain(self.processes.iter().map(|process| &process.info))
    }

    /// Processes that could not be observed, or not to their end, since the last call.
    pub fn take_broken(&mut self) -> Vec<Broken> {
        std::mem::take(&mut self.broken)
    }

    /// No more processes will come: the source ends with the last that is there.
    pub fn finish(&mut self) {
        self.finishing = true;
        // Whatever has come until now is still found.
        (self.scanned, self.folder) = (None, Folder::default());
    }

    fn scan(&mut self) -> Result<(), ProbeError> {
        let now = Instant::now();
        self.scanned = Some(now);
        if self.folder.is_as_searched(&self.directory, now) && self.unfinished.is_empty() {
            return Ok(());
        }
        let failed = |source| ProbeError { directory: self.directory.clone(), source };
        let mut there = HashSet::new();
        for entry in fs::read_dir(&self.directory).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            if Path::new(&name).extension().is_some_and(|e| e == "ring") {
                there.insert(name);
            }
            if there.len() > 2 * MAX_PROCESSES {
                break;
            }
        }
        // Names do not come again, so those of files that have gone need not be kept.
        self.known.retain(|name| there.contains(name));
        self.unfinished.retain(|(name, _)| there.contains(name));
        for name in there {
            if !self.known.contains(&name) {
                self.open_file(name);
            }
        }
        Ok(())
    }

    fn open_file(&mut self, name: OsString) {
        if self.processes.len() >= MAX_PROCESSES {
            let error = ProcessError::Many { most: MAX_PROCESSES };
            self.broken.push(Broken { label: name.to_string_lossy().into_owned(), error });
            self.known.insert(name);
            return;
        }
        let path = self.directory.join(&name);
        match Process::open(&path) {
            Ok(Some(mut process)) => {
                if self.processes.iter().any(|newer| process.is_predecessor_of(newer)) {
                    process.set_gone();
                }
                for old in self.processes.iter_mut().filter(|old| old.is_predecessor_of(&process)) {
                    old.set_gone();
                }
                self.processes.push(process);
            }
            Ok(None) => {
                match self.unfinished.iter().find(|(waiting, _)| *waiting == name) {
                    None => return self.unfinished.push((name, Instant::now())),
                    Some((_, since)) if since.elapsed() < UNFINISHED_FOR => return,
                    Some(_) => {}
                }
                let error = ProcessError::Foreign("its process never finished creating it".into());
                self.broken.push(Broken { label: name.to_string_lossy().into_owned(), error });
            }
            Err(error) => self.broken.push(Broken { label: name.to_string_lossy().into_owned(), error }),
        }
        self.unfinished.retain(|(waiting, _)| *waiting != name);
        self.known.insert(name);
    }

    /// Asks which processes still run, of all at once.
    fn mark_gone(&mut self) {
        let asked = |process: &Process| libc::pollfd {
            // A negative one is passed over.
            fd: process.awaited().map_or(-1, |fd| fd.as_raw_fd()),
            events: libc::POLLIN,
            revents: 0,
        };
        self.polled.clear();
        self.polled.extend(self.processes.iter().map(asked));
        let count = self.polled.len() as libc::nfds_t;
        // SAFETY: as many descriptors as said, which are open while `processes` holds them; no
        // waiting.
        unsafe { libc::poll(self.polled.as_mut_ptr(), count, 0) };
        for (process, polled) in self.processes.iter_mut().zip(&self.polled) {
            process.check(polled.revents != 0);
        }
    }

    /// Ends those that have gone, after everything that they wrote was read.
    fn read_all(&mut self) {
        let names = self.named.elapsed() >= NAMES_EVERY;
        if names {
            self.named = Instant::now();
        }
        // Asked first: what a process wrote before it went is there by now.
        self.mark_gone();
        let mut index = 0;
        while let Some(process) = self.processes.get_mut(index) {
            let result = process.read(&mut self.events);
            if result.is_ok() && process.info.alive {
                if names {
                    process.rename(&mut self.events);
                }
                index += 1;
                continue;
            }
            process.end(&mut self.events);
            let mut process = self.processes.swap_remove(index);
            if let Err(error) = result {
                let label = format!("process {} ({})", process.info.pid, process.info.name);
                self.broken.push(Broken { label, error });
            } else {
                // Read to its end: nobody needs it any more.
                let _ = fs::remove_file(process.path());
            }
            process.set_gone();
            self.past.push(process.info.clone());
        }
    }
}

impl Source for Probe {
    type Error = ProbeError;

    fn poll(&mut self, sink: &mut dyn FnMut(Event)) -> Result<usize, ProbeError> {
        if self.scanned.is_none_or(|at| at.elapsed() >= SCAN_EVERY) {
            self.scan()?;
        }
        self.read_all();
        // Rings come one after the other, each in order; a stable sort merges them and keeps each
        // thread's order.
        self.events.sort_by_key(|event| event.at_ns);
        let count = self.events.len();
        self.events.drain(..).for_each(sink);
        Ok(count)
    }

    fn ended(&self) -> bool {
        self.finishing && self.scanned.is_some() && self.processes.is_empty() && self.unfinished.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_searched_until_nothing_can_hide_and_again_when_it_changes() {
        let directory = tempfile::tempdir().unwrap();
        let (mut folder, began) = (Folder::default(), Instant::now());
        let mut is_searched =
            |at_ms| !folder.is_as_searched(directory.path(), began + Duration::from_millis(at_ms));
        assert!([0, 50, 100].into_iter().all(&mut is_searched), "nothing may hide until then");
        assert!(![150, 200, 900].into_iter().any(&mut is_searched));
        fs::write(directory.path().join("1.ring"), "").unwrap();
        assert!([950, 1000].into_iter().all(&mut is_searched));
        // One more behind the same time stamp.
        let changed = fs::metadata(directory.path()).unwrap().modified().unwrap();
        fs::write(directory.path().join("2.ring"), "").unwrap();
        fs::File::open(directory.path()).unwrap().set_modified(changed).unwrap();
        assert!(is_searched(1050) && !is_searched(1100) && !is_searched(2000));
        // And whatever the file system says, now and then.
        assert!(is_searched(2050) && !is_searched(2100));
    }
}

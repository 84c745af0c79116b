//! All observed processes of a session as one source of events.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::process::{Process, ProcessError, ProcessInfo};
use crate::event::{Event, Source};

/// How often the directory is searched for new processes, and the old ones are looked after.
const SCAN_EVERY: Duration = Duration::from_millis(50);
/// How often threads are asked for their names: programs name theirs late, and rarely twice.
const NAMES_EVERY: Duration = Duration::from_secs(3);
/// A file whose process does not finish making it within this time is given up.
const UNFINISHED_FOR: Duration = Duration::from_secs(2);

/// Why a session cannot be read at all.
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
    /// Why.
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
    named: Instant,
    events: Vec<Event>,
    finishing: bool,
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
            named: Instant::now(),
            events: Vec::new(),
            finishing: false,
        };
        probe.scan()?;
        Ok(probe)
    }

    /// What is known of all processes, those of the past included.
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
        self.scanned = None;
    }

    fn scan(&mut self) -> Result<(), ProbeError> {
        let failed = |source| ProbeError { directory: self.directory.clone(), source };
        let mut there = HashSet::new();
        for entry in fs::read_dir(&self.directory).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            if Path::new(&name).extension().is_some_and(|e| e == "ring") {
                there.insert(name);
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
        self.scanned = Some(Instant::now());
        Ok(())
    }

    fn open_file(&mut self, name: OsString) {
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
                let error = ProcessError::Foreign("its process never finished making it".into());
                self.broken.push(Broken { label: name.to_string_lossy().into_owned(), error });
            }
            Err(error) => self.broken.push(Broken { label: name.to_string_lossy().into_owned(), error }),
        }
        self.unfinished.retain(|(waiting, _)| *waiting != name);
        self.known.insert(name);
    }

    /// Ends those that have gone, after everything that they wrote was read.
    fn read_all(&mut self) {
        let names = self.named.elapsed() >= NAMES_EVERY;
        if names {
            self.named = Instant::now();
        }
        let mut index = 0;
        while let Some(process) = self.processes.get_mut(index) {
            // Asked first: what a process wrote before it went is there by now.
            process.check();
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
        // Rings come one after the other, each in order; a stable sort merges them and keeps each thread's order.
        self.events.sort_by_key(|event| event.at_ns);
        let count = self.events.len();
        self.events.drain(..).for_each(sink);
        Ok(count)
    }

    fn ended(&self) -> bool {
        self.finishing && self.scanned.is_some() && self.processes.is_empty() && self.unfinished.is_empty()
    }
}

//! The state file: written whole or not at all, before each change.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use takt_rt::placement::CpuSet;

use super::hidden::{Asked, Hidden};
use super::owner::{Form, Owner};
use super::{Change, Error, ProcessBefore, Restored, State, ThreadBefore, VERSION, undo_and_forget};
use crate::reserve::system::{self, GroupVersion, Identity, Kernel};

/// Default path of the state file: `/run/takt` for root, otherwise the user's run-time directory or
/// folder of states, never a shared folder.
#[must_use]
pub fn default_path() -> PathBuf {
    let folder = match (is_root(), takt_files::environment::var_os("XDG_RUNTIME_DIR")) {
        (true, _) => PathBuf::from("/run/takt"),
        (_, Some(folder)) => PathBuf::from(folder).join("takt"),
        (_, None) => takt_files::state_folder(),
    };
    folder.join("manage.json")
}

pub(super) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

pub(super) fn boot(kernel: &dyn Kernel) -> String {
    kernel.read(Path::new("/proc/sys/kernel/random/boot_id")).unwrap_or_default().trim().to_owned()
}

/// The state at `path`; `None` where there is none.
pub(super) fn load(path: &Path) -> Result<Option<State>, Error> {
    let text = match takt_files::read_own(path, takt_files::FIGURES_BYTES) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(Error::File { path: path.to_owned(), source }),
    };
    let unreadable = |reason: String| Error::Unreadable { path: path.to_owned(), reason };
    let state: State = serde_json::from_str(&text).map_err(|error| unreadable(error.to_string()))?;
    if state.version != VERSION {
        return Err(unreadable(format!("version {}", state.version)));
    }
    Ok(Some(state))
}

pub(super) fn forget(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(Error::File { path: path.to_owned(), source })
        }
        _ => Ok(()),
    }
}

/// Changes so far, in memory and on disk.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    state: State,
    /// Nobody else changes settings of the whole machine meanwhile.
    _owner: Option<Owner>,
    asked: Option<Asked>,
    /// Position of each thread among the recorded ones: hundreds are looked up every second.
    places: BTreeMap<u32, usize>,
}

impl Journal {
    /// Begins; what an earlier manager left behind, by this state file or another, is undone first
    /// and reported.
    ///
    /// # Errors
    ///
    /// The file cannot be written, holds something else, its manager still runs, or another program
    /// changes settings of the whole machine.
    pub fn begin(kernel: &mut dyn Kernel, path: &Path) -> Result<(Self, Option<Restored>), Error> {
        super::not_managed(kernel, path)?;
        let (owner, left) = Owner::take(kernel, path)?;
        let left = super::both(left, super::restore_as_owner(kernel, path)?);
        if let Some(owner) = &owner {
            owner.undone_by(kernel, path, Form::Reservations)?;
        }
        let pid = std::process::id();
        let manager = system::identify(kernel, pid, pid).ok_or_else(|| Error::File {
            path: PathBuf::from(format!("/proc/{pid}/stat")),
            source: io::Error::from(io::ErrorKind::NotFound),
        })?;
        let state = State {
            version: VERSION,
            boot: boot(kernel),
            manager,
            threads: Vec::new(),
            processes: Vec::new(),
            changes: Vec::new(),
            given: Vec::new(),
            died: false,
        };
        let journal =
            Self { path: path.to_owned(), state, _owner: owner, asked: None, places: BTreeMap::new() };
        if let Some(folder) = path.parent() {
            takt_files::private_folder(folder).map_err(|source| journal.error(source))?;
        }
        journal.save()?;
        Ok((journal, left))
    }

    /// The record.
    #[must_use]
    pub fn state(&self) -> &State {
        &self.state
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Records threads and their processes as they are now, those that are not known yet. To be
    /// called before any of them is changed.
    ///
    /// A thread that was made after its creator was bound has inherited a set of CPUs that is ours;
    /// it is recorded with its process' own instead.
    ///
    /// # Errors
    ///
    /// The file cannot be written: then nothing must be changed.
    pub fn record(
        &mut self,
        kernel: &dyn Kernel,
        threads: impl IntoIterator<Item = (u32, u32)>,
        groups: Option<GroupVersion>,
    ) -> Result<(), Error> {
        let mut grown = false;
        // At first sight nothing of a process can have inherited from us.
        let mut new = Vec::new();
        for (pid, tid) in threads {
            if self.before(pid, tid).is_some_and(|before| kernel.is_alive(&before.thread)) {
                continue;
            }
            let Some(thread) = system::identify(kernel, pid, tid) else { continue };
            let group = |tid| groups.and_then(|version| kernel.group(pid, tid, version).ok().flatten());
            if let Some(main) = system::identify(kernel, pid, pid)
                && !self.state.processes.iter().any(|process| process.main == main)
                && let Ok(cpus) = kernel.affinity(pid)
            {
                let cpus = self.asked_for(&main, cpus);
                self.state.processes.push(ProcessBefore { main, cpus, group: group(pid) });
                new.push(pid);
            }
            let (Ok(attributes), Ok(cpus)) = (kernel.attributes(tid), kernel.affinity(tid)) else { continue };
            let process = self.state.processes.iter().find(|process| process.main.pid == pid);
            let inherited = process.filter(|_| !new.contains(&pid) && self.state.given.contains(&cpus));
            let (cpus, group) = match inherited {
                Some(process) => (process.cpus, process.group.clone()),
                None => (self.asked_for(&thread, cpus), group(tid)),
            };
            let name = kernel.thread_name(pid, tid).unwrap_or_default();
            let before = ThreadBefore { thread, name, attributes, cpus, group };
            match self.places.get(&tid).and_then(|&place| self.state.threads.get_mut(place)) {
                Some(predecessor) => *predecessor = before,
                None => {
                    self.places.insert(tid, self.state.threads.len());
                    self.state.threads.push(before);
                }
            }
            grown = true;
        }
        if grown { self.save() } else { Ok(()) }
    }

    /// Notes what all threads asked for; to be called before cores are hidden from them.
    pub fn hide(&mut self, kernel: &dyn Kernel, hidden: Hidden) {
        self.asked = Some(Asked::note(kernel, hidden));
    }

    fn asked_for(&self, thread: &Identity, seen: CpuSet) -> CpuSet {
        let process = self.state.processes.iter().find(|process| process.main.pid == thread.pid);
        let process = process.map(|process| &process.cpus);
        self.asked.as_ref().map_or(seen, |asked| asked.by(thread, process, seen))
    }

    /// Earlier state of a thread; `None` if it was never recorded.
    #[must_use]
    pub fn before(&self, pid: u32, tid: u32) -> Option<&ThreadBefore> {
        let before = self.state.threads.get(*self.places.get(&tid)?)?;
        (before.thread.pid == pid).then_some(before)
    }

    /// Records that threads will be bound to `cpus`.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn give(&mut self, cpus: CpuSet) -> Result<(), Error> {
        if self.state.given.contains(&cpus) {
            return Ok(());
        }
        self.state.given.push(cpus);
        self.save()
    }

    /// Records a change of the system that is about to be made.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn change(&mut self, change: Change) -> Result<(), Error> {
        let path = |change: &Change| match change {
            Change::File { path, .. } | Change::Group { path, .. } => path.clone(),
        };
        // Only what was there first is to come back.
        if self.state.changes.iter().any(|known| path(known) == path(&change)) {
            return Ok(());
        }
        self.state.changes.push(change);
        self.save()
    }

    /// Records that another program has set a file that is about to be changed once more: what it
    /// set is to come back at the end, and no longer what was there first.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn supersede(&mut self, path: &Path, undo: &str) -> Result<(), Error> {
        self.state
            .changes
            .retain(|change| !matches!(change, Change::File { path: known, .. } if known == path));
        self.change(Change::File { path: path.to_owned(), undo: undo.to_owned() })
    }

    /// Undoes everything and forgets what succeeded whole; the journal goes on empty.
    ///
    /// # Errors
    ///
    /// The file cannot be deleted.
    pub fn undo(&mut self, kernel: &mut dyn Kernel) -> Result<Restored, Error> {
        let restored = undo_and_forget(kernel, &self.state, &self.path)?;
        if restored.is_complete() {
            self.state.threads.clear();
            self.places.clear();
            self.state.processes.clear();
            self.state.changes.clear();
            self.state.given.clear();
            self.state.died = false;
            self.asked = None;
        }
        Ok(restored)
    }

    /// Forgets threads that are gone, so that a system that makes and ends threads for weeks does
    /// not grow the file.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn forget_gone(&mut self, kernel: &dyn Kernel) -> Result<(), Error> {
        let known = self.state.threads.len();
        self.state.threads.retain(|before| system::is_alive(kernel, &before.thread));
        self.state.processes.retain(|process| system::is_alive(kernel, &process.main));
        if self.state.threads.len() == known {
            return Ok(());
        }
        self.state.died = true;
        let threads = self.state.threads.iter().enumerate();
        self.places = threads.map(|(place, before)| (before.thread.tid, place)).collect();
        self.save()
    }

    fn error(&self, source: io::Error) -> Error {
        Error::File { path: self.path.clone(), source }
    }

    fn save(&self) -> Result<(), Error> {
        let text = serde_json::to_vec_pretty(&self.state).map_err(|error| self.error(error.into()))?;
        let write = || -> io::Result<()> {
            let (folder, name) = takt_files::Folder::of(&self.path)?;
            let mut draft = folder.private_draft(name)?;
            draft.write_all(&text)?;
            draft.finish()
        };
        write().map_err(|source| self.error(source))
    }
}

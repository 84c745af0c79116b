//! One observed process, as the reader sees it: its file, its rings, and whether it still lives.

use std::fs::File;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::decode::Content;
use super::reader::{Reader, RingError};
use super::ring::{
    FileHeader, MAGIC, MAX_RINGS, MAX_WORDS, MIN_WORDS, PAGE, RingView, VERSION, ring_bytes, ring_offset,
    state,
};
use crate::event::{Event, Kind};
use crate::procfs::{process_called, started, thread_called};
use takt_files::Mapped;
use takt_rt::clock::monotonic_ns;

/// Reason why a process can no longer be observed. The others go on.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// The file cannot be opened or mapped.
    #[error("{what}: {source}")]
    File { what: &'static str, source: io::Error },
    /// Not a file of the probe, or not whole.
    #[error("not a file of the probe: {0}")]
    Foreign(String),
    /// Written by a probe of another version.
    #[error("written by version {found} of the probe but read by {VERSION}: restart the processes")]
    Version { found: u32 },
    /// The file has become shorter than what it holds.
    #[error("cut to {found} bytes, {expected} expected")]
    Truncated { found: u64, expected: u64 },
    /// More files than processes can be observed at a time.
    #[error("{most} processes are already observed: end some, or start the others in a separate session")]
    Many { most: usize },
    /// A ring is torn.
    #[error("ring {ring}: {source}")]
    Ring { ring: usize, source: RingError },
}

#[derive(Debug)]
struct ThreadRing {
    index: usize,
    mapping: Mapped,
    reader: Reader,
    /// The thread whose records come now, if any has come yet.
    tid: Option<u32>,
    alive: bool,
    last_ns: u64,
    name: Arc<str>,
    /// Losses that the stream has reported.
    reported: u64,
    /// All losses, as last read.
    lost: u64,
}

/// Knowledge about an observed process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessInfo {
    pub pid: u32,
    pub name: String,
    /// Threads that report, now.
    pub threads: usize,
    /// Events read.
    pub events: u64,
    /// Events lost: rings were full, or threads got none.
    pub lost: u64,
    /// Texts that were longer than a record takes.
    pub cut_texts: u64,
    /// Arguments of its `rmw_publish`: 1 before Jazzy, 3 since; 0 while unknown.
    pub rmw_publish_arguments: u32,
    /// It runs.
    pub alive: bool,
}

#[derive(Debug)]
pub(super) struct Process {
    path: PathBuf,
    file: File,
    header: Mapped,
    pub(super) info: ProcessInfo,
    start_ticks: u64,
    /// In another PID namespace: a container. Thread numbers are then translated.
    is_foreign: bool,
    ring_words: usize,
    rings: Vec<ThreadRing>,
    next_ring: usize,
    pidfd: Option<OwnedFd>,
    without_ring_reported: u64,
}

impl Process {
    /// Opens the file; `None`: its process has not finished making it.
    pub(super) fn open(path: &Path) -> Result<Option<Self>, ProcessError> {
        let failed = |what| move |source| ProcessError::File { what, source };
        // The directory is ours, its content is not.
        let file = takt_files::open_shared(path).map_err(failed("open"))?;
        let metadata = file.metadata().map_err(failed("stat"))?;
        if metadata.len() < PAGE as u64 {
            return Ok(None);
        }
        let mapping = Mapped::new(&file, 0, PAGE).map_err(failed("map"))?;
        // SAFETY: a whole page is mapped, all of whose fields are atomics.
        let header = unsafe { &*mapping.base().as_ptr().cast::<FileHeader>() };
        match header.magic.load(Ordering::Acquire) {
            MAGIC => {}
            0 => return Ok(None),
            other => return Err(ProcessError::Foreign(format!("it begins with {other:#018x}"))),
        }
        let found = header.version.load(Ordering::Relaxed);
        if found != VERSION {
            return Err(ProcessError::Version { found });
        }
        let ring_words = header.ring_words.load(Ordering::Relaxed) as usize;
        if !ring_words.is_power_of_two() || !(MIN_WORDS..=MAX_WORDS).contains(&ring_words) {
            return Err(ProcessError::Foreign(format!("rings of {ring_words} words")));
        }
        let pid = header.pid.load(Ordering::Relaxed);
        let start_ticks = header.start_ticks.load(Ordering::Relaxed);
        let name: Vec<u8> = header
            .name
            .iter()
            .flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes())
            .take_while(|&b| b != 0)
            .collect();
        let found = process_called(pid, start_ticks);
        let is_foreign = found.is_some_and(|found| found != pid);
        let pid = found.unwrap_or(pid);
        let pidfd = found.and_then(open_pidfd);
        let info = ProcessInfo {
            pid,
            name: String::from_utf8_lossy(&name).into_owned(),
            threads: 0,
            events: 0,
            lost: 0,
            cut_texts: 0,
            rmw_publish_arguments: 0,
            // Read anew behind the descriptor: the number could have gone to another process in
            // between.
            alive: found.is_some() && started(pid) == Some(start_ticks),
        };
        Ok(Some(Self {
            path: path.to_owned(),
            file,
            header: mapping,
            info,
            start_ticks,
            is_foreign,
            ring_words,
            rings: Vec::new(),
            next_ring: 0,
            pidfd,
            without_ring_reported: 0,
        }))
    }

    fn header(&self) -> &FileHeader {
        // SAFETY: a whole page is mapped while `self` lives, all of whose fields are atomics.
        unsafe { &*self.header.base().as_ptr().cast::<FileHeader>() }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The same process under a new image has a newer file: this one ends.
    pub(super) fn is_predecessor_of(&self, other: &Self) -> bool {
        (self.info.pid, self.start_ticks) == (other.info.pid, other.start_ticks)
            && self.header().opened_ns.load(Ordering::Relaxed)
                < other.header().opened_ns.load(Ordering::Relaxed)
    }

    /// Descriptor that becomes readable when it ends, while it is thought to run.
    pub(super) fn awaited(&self) -> Option<&OwnedFd> {
        self.pidfd.as_ref().filter(|_| self.info.alive)
    }

    /// Notes whether the process still runs; `readable`: what [`Self::awaited`] has become. Data
    /// written before can be read afterwards.
    pub(super) fn check(&mut self, readable: bool) {
        if !self.info.alive {
            return;
        }
        let gone = match &self.pidfd {
            Some(_) => readable,
            None => started(self.info.pid) != Some(self.start_ticks),
        };
        if gone || self.header().state.load(Ordering::Acquire) == state::ENDED {
            self.info.alive = false;
        }
    }

    /// Ends it from outside (see [`Self::is_predecessor_of`]).
    pub(super) fn set_gone(&mut self) {
        self.info.alive = false;
    }

    /// Appends what its threads have written.
    pub(super) fn read(&mut self, out: &mut Vec<Event>) -> Result<(), ProcessError> {
        let size = self.file.metadata().map_err(|source| ProcessError::File { what: "stat", source })?.len();
        self.map_new_rings(size)?;
        let expected = (ring_offset(self.next_ring, self.ring_words)) as u64;
        if size < expected {
            return Err(ProcessError::Truncated { found: size, expected });
        }
        let (pid, words, is_foreign) = (self.info.pid, self.ring_words, self.is_foreign);
        let before = out.len();
        for ring in &mut self.rings {
            let read = ring.read((pid, is_foreign), words, out);
            let cut = match read {
                Ok(cut) => cut,
                // Zeros in the place of what was cut off.
                Err(_) if ring.mapping.is_broken() => break,
                Err(source) => return Err(ProcessError::Ring { ring: ring.index, source }),
            };
            self.info.cut_texts += cut;
        }
        let without_ring = self.header().without_ring.load(Ordering::Relaxed);
        if without_ring > self.without_ring_reported {
            let at_ns = out.last().map_or(0, |event| event.at_ns).max(monotonic_ns());
            let count = without_ring - std::mem::replace(&mut self.without_ring_reported, without_ring);
            out.push(Event { at_ns, cpu_ns: None, pid, tid: pid, kind: Kind::Lost { count } });
        }
        self.info.events += (out.len() - before) as u64;
        self.info.threads = self.rings.iter().filter(|ring| ring.alive).count();
        self.info.rmw_publish_arguments = self.header().rmw_publish.load(Ordering::Relaxed);
        // The process writes these numbers as it likes.
        self.info.lost = self.rings.iter().fold(without_ring, |lost, ring| lost.saturating_add(ring.lost));
        // Cut while it was read: what came of it is worth nothing.
        if self.header.is_broken() || self.rings.iter().any(|ring| ring.mapping.is_broken()) {
            out.truncate(before);
            let found = self.file.metadata().map_or(0, |file| file.len());
            return Err(ProcessError::Truncated { found, expected });
        }
        Ok(())
    }

    fn map_new_rings(&mut self, size: u64) -> Result<(), ProcessError> {
        let handed_out = (self.header().rings.load(Ordering::Acquire) as usize).min(MAX_RINGS);
        let bytes = ring_bytes(self.ring_words);
        while self.next_ring < handed_out {
            let index = self.next_ring;
            let offset = ring_offset(index, self.ring_words);
            if size < (offset + bytes) as u64 {
                break;
            }
            let mapping = Mapped::new(&self.file, offset, bytes)
                .map_err(|source| ProcessError::File { what: "map", source })?;
            // SAFETY: the whole ring was just mapped, and the length was checked to be a power of
            // two.
            let view = unsafe { RingView::at(mapping.base().as_ptr(), self.ring_words) };
            if view.header.ready.load(Ordering::Acquire) != 1 {
                break;
            }
            self.rings.push(ThreadRing {
                index,
                reader: Reader::resume(view),
                mapping,
                tid: None,
                alive: false,
                last_ns: 0,
                name: "".into(),
                reported: 0,
                lost: 0,
            });
            self.next_ring += 1;
        }
        Ok(())
    }

    /// Appends what the end of the process means: losses not reported, the end of each thread.
    pub(super) fn end(&mut self, out: &mut Vec<Event>) {
        let (pid, before) = (self.info.pid, out.len());
        // All end when the process does, not each with its own last event.
        let at_ns = self.rings.iter().map(|ring| ring.last_ns).max().unwrap_or(0);
        for ring in &mut self.rings {
            let Some(tid) = ring.tid else { continue };
            let event = |kind| Event { at_ns, cpu_ns: None, pid, tid, kind };
            // Not from the file: it may have been cut.
            if ring.lost > ring.reported {
                out.push(event(Kind::Lost { count: ring.lost - ring.reported }));
            }
            if ring.alive {
                out.push(event(Kind::ThreadEnd));
            }
            ring.reported = ring.lost;
            ring.alive = false;
        }
        self.info.events += (out.len() - before) as u64;
        self.info.threads = 0;
    }

    /// Looks whether threads have changed their names.
    pub(super) fn rename(&mut self, out: &mut Vec<Event>) {
        let pid = self.info.pid;
        for ring in self.rings.iter_mut().filter(|ring| ring.alive) {
            let Some(tid) = ring.tid else { continue };
            let Some(name) = takt_rt::procfs::thread_name(pid, tid) else { continue };
            if *name != *ring.name {
                ring.name = name.into();
                let kind = Kind::ThreadName { name: Arc::clone(&ring.name) };
                out.push(Event { at_ns: monotonic_ns(), cpu_ns: None, pid, tid, kind });
            }
        }
    }
}

impl ThreadRing {
    /// Appends the ring's records; returns how many texts were cut.
    fn read(
        &mut self,
        (pid, is_foreign): (u32, bool),
        words: usize,
        out: &mut Vec<Event>,
    ) -> Result<u64, RingError> {
        // SAFETY: the whole ring of `words` is mapped while `self` lives.
        let view = unsafe { RingView::at(self.mapping.base().as_ptr(), words) };
        let Self { reader, tid, alive, last_ns, name, reported, .. } = &mut *self;
        let mut cut = 0;
        reader.read(view, |record| {
            cut += u64::from(record.cut);
            *last_ns = (*last_ns).max(record.at_ns);
            let (at_ns, cpu_ns) = (record.at_ns, record.cpu_ns);
            let mut push = |tid, kind| out.push(Event { at_ns, cpu_ns, pid, tid, kind });
            match record.content {
                Content::Thread { tid: own, name: called } => {
                    // A thread that has gone keeps the number that it gave itself.
                    let new = if is_foreign { thread_called(pid, own).unwrap_or(own) } else { own };
                    if let (Some(old), true) = (*tid, *alive) {
                        push(old, Kind::ThreadEnd);
                    }
                    (*tid, *alive) = (Some(new), true);
                    *name = Arc::clone(&called);
                    push(new, Kind::ThreadName { name: called });
                }
                Content::Init => {}
                Content::Event(kind) => {
                    match kind {
                        Kind::ThreadEnd => *alive = false,
                        Kind::Lost { count } => *reported = reported.saturating_add(count),
                        _ => {}
                    }
                    // Before the first thread record: a reader that came late. The process stands
                    // for the thread.
                    push(tid.unwrap_or(pid), kind);
                }
            }
        })?;
        self.lost = view.header.lost.load(Ordering::Relaxed);
        Ok(cut)
    }
}

fn open_pidfd(pid: u32) -> Option<OwnedFd> {
    let pid = libc::pid_t::try_from(pid).ok()?;
    // SAFETY: takes numbers, returns a descriptor or -1.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    // SAFETY: a descriptor that the kernel has just made for us.
    (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;
    use std::os::unix::fs::FileExt;

    use super::super::ring::RingHeader;
    use super::super::{ProbeOptions, ProbeSession};
    use std::fs::OpenOptions;

    use super::*;
    use crate::event::Source;
    use crate::jobs::JobFile;

    /// A process may write anything into its file: absurd numbers end nothing.
    #[test]
    fn counters_beyond_all_sense_are_read() {
        let session = ProbeSession::create(&ProbeOptions::default()).unwrap();
        let mut jobs = JobFile::create(session.directory()).unwrap();
        let _tasks = [jobs.task("a", 1).unwrap(), jobs.task("b", 2).unwrap()];
        let path = std::fs::read_dir(session.directory()).unwrap().flatten().map(|entry| entry.path());
        let path = path.into_iter().find(|path| path.extension().is_some_and(|end| end == "ring")).unwrap();
        let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
        let write = |at: usize, word: u64| file.write_all_at(&word.to_ne_bytes(), at as u64).unwrap();
        let mut words = [0; 4];
        file.read_exact_at(&mut words, offset_of!(FileHeader, ring_words) as u64).unwrap();
        let words = u32::from_ne_bytes(words) as usize;
        write(offset_of!(FileHeader, without_ring), u64::MAX - 1);
        for ring in 0..2 {
            write(ring_offset(ring, words) + offset_of!(RingHeader, lost), u64::MAX - 1);
        }
        let mut probe = session.probe().unwrap();
        let mut lost = Vec::new();
        let mut keep = |event: Event| {
            if let Kind::Lost { count } = event.kind {
                lost.push(count);
            }
        };
        probe.poll(&mut keep).unwrap();
        assert_eq!(probe.processes().next().unwrap().lost, u64::MAX);
        drop(jobs);
        probe.finish();
        probe.poll(&mut keep).unwrap();
        assert_eq!(lost, [u64::MAX - 1; 3]);
    }
}

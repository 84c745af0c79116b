//! The writing side for robots that run: jobs into the session's directory, in the preload probe's
//! format.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use crate::preload::ring::{
    FileHeader, MAGIC, MAX_RINGS, MIN_WORDS, PAGE, RingView, VERSION, Writer, code, ring_bytes, ring_offset,
    state, text_words,
};
use crate::procfs::started;
use takt_files::Mapped;
use takt_rt::clock::monotonic_ns;

/// Words of a task's ring: at seven to nine words a job some 4,000 jobs, four seconds of a 1 kHz
/// task.
const RING_WORDS: usize = 32 * 1024;
const _: () = assert!(RING_WORDS >= MIN_WORDS && RING_WORDS.is_power_of_two());

/// Reason why jobs cannot be written to a session.
#[derive(Debug, thiserror::Error)]
pub enum JobFileError {
    /// The system refused.
    #[error("{what} {}: {source}", path.display())]
    Io { what: &'static str, path: PathBuf, source: io::Error },
    /// More tasks than rings.
    #[error("a process can have {MAX_RINGS} tasks in a session")]
    Tasks,
}

/// A process's file in a session's directory. The process is reported to have ended when this is
/// dropped, its [`JobWriter`]s notwithstanding.
///
/// A process is observed either this way or by the preload probe: of two files the reader takes the
/// older for an image that was replaced by `exec`.
#[derive(Debug)]
pub struct JobFile {
    path: PathBuf,
    file: File,
    header: Mapped,
}

impl JobFile {
    /// Joins the session that the environment names (`TAKT_PROBE_DIR`, as
    /// [`ProbeSession::prepare`](crate::preload::ProbeSession::prepare) sets it); `None`: it names
    /// none.
    ///
    /// # Errors
    ///
    /// As [`create`](Self::create).
    pub fn from_environment() -> Result<Option<Self>, JobFileError> {
        takt_files::environment::var_os("TAKT_PROBE_DIR")
            .map(|directory| Self::create(Path::new(&directory)))
            .transpose()
    }

    /// Makes this process's file in the session's directory.
    ///
    /// # Errors
    ///
    /// No such directory, no right, no space.
    pub fn create(directory: &Path) -> Result<Self, JobFileError> {
        let opened_ns = monotonic_ns();
        let pid = std::process::id();
        let path = directory.join(format!("{pid}-{opened_ns:x}.ring"));
        let io = |what| {
            let path = path.clone();
            move |source| JobFileError::Io { what, path, source }
        };
        let file = File::options().read(true).write(true).create_new(true).mode(0o600).open(&path);
        let file = file.map_err(io("make"))?;
        allocate(&file, 0, PAGE).map_err(io("find space for"))?;
        let header = Mapped::new(&file, 0, PAGE).map_err(io("map"))?;
        let this = Self { path: path.clone(), file, header };
        let to = this.header();
        to.version.store(VERSION, Ordering::Relaxed);
        to.pid.store(pid, Ordering::Relaxed);
        to.start_ticks.store(started(pid).unwrap_or(0), Ordering::Relaxed);
        to.opened_ns.store(opened_ns, Ordering::Relaxed);
        to.ring_words.store(u32::try_from(RING_WORDS).unwrap_or(u32::MAX), Ordering::Relaxed);
        to.state.store(state::LIVE, Ordering::Relaxed);
        let name = std::fs::read("/proc/self/comm").unwrap_or_default();
        for (to, from) in to.name.iter().zip(name.trim_ascii_end().chunks(8)) {
            let mut word = [0; 8];
            word[..from.len()].copy_from_slice(from);
            to.store(u64::from_le_bytes(word), Ordering::Relaxed);
        }
        // Release: whoever sees the magic number sees all of the above.
        to.magic.store(MAGIC, Ordering::Release);
        Ok(this)
    }

    fn header(&self) -> &FileHeader {
        // SAFETY: a whole page is mapped while `self` lives, all of whose fields are atomics.
        unsafe { &*self.header.base().as_ptr().cast::<FileHeader>() }
    }

    /// A writer for the task of this name, whose jobs thread `tid` does. All memory is there
    /// afterwards: writing a job neither allocates nor faults nor waits. The writer may be used by
    /// the thread itself, or on its behalf by whoever collects its records.
    ///
    /// # Errors
    ///
    /// No space, or too many tasks.
    pub fn task(&mut self, name: &str, tid: u32) -> Result<JobWriter, JobFileError> {
        let index = self.header().rings.load(Ordering::Relaxed) as usize;
        if index >= MAX_RINGS {
            return Err(JobFileError::Tasks);
        }
        let io = |what| {
            let path = self.path.clone();
            move |source| JobFileError::Io { what, path, source }
        };
        let (offset, bytes) = (ring_offset(index, RING_WORDS), ring_bytes(RING_WORDS));
        allocate(&self.file, offset, bytes).map_err(io("find space in"))?;
        let mapping = Mapped::new(&self.file, offset, bytes).map_err(io("map"))?;
        // SAFETY: the whole ring was just mapped; pages are touched so that none faults later.
        let ring = unsafe {
            libc::madvise(mapping.base().as_ptr().cast(), bytes, libc::MADV_POPULATE_WRITE);
            RingView::at(mapping.base().as_ptr(), RING_WORDS)
        };
        ring.header.owner.store(tid, Ordering::Relaxed);
        let mut writer = Writer::new(ring);
        let kept = &name.as_bytes()[..name.floor_char_boundary(64)];
        if let Some(mut record) = writer.begin(3 + text_words(kept), monotonic_ns()) {
            record.word(u64::from(tid));
            record.text(kept);
            record.end(code::THREAD);
        }
        ring.header.ready.store(1, Ordering::Release);
        self.header().rings.store(u32::try_from(index + 1).unwrap_or(u32::MAX), Ordering::Release);
        Ok(JobWriter { writer, name: kept.into(), _mapping: mapping })
    }
}

impl Drop for JobFile {
    fn drop(&mut self) {
        self.header().state.store(state::ENDED, Ordering::Release);
    }
}

/// Space for so many bytes: without it, a full file system would be a SIGBUS later.
fn allocate(file: &File, offset: usize, bytes: usize) -> io::Result<()> {
    let of =
        |number: usize| libc::off_t::try_from(number).map_err(|_| io::Error::from_raw_os_error(libc::EFBIG));
    // SAFETY: takes a descriptor that is open, and numbers.
    match unsafe { libc::posix_fallocate(file.as_raw_fd(), of(offset)?, of(bytes)?) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// One job that has ended. Times are CLOCK_MONOTONIC nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Job {
    /// Planned release.
    pub released_ns: u64,
    /// The job's work began.
    pub started_ns: u64,
    /// The job's work ended.
    pub ended_ns: u64,
    /// CPU time used; where it is not measured, the time from start to end, which is never less.
    pub used_ns: u64,
}

/// Writes the jobs of one task.
pub struct JobWriter {
    /// Writes to `_mapping`, which lives as long.
    writer: Writer<'static>,
    name: Box<[u8]>,
    _mapping: Mapped,
}

// SAFETY: the writer's ring is memory of the mapping, used through atomics; one thread at a time
// has the writer.
unsafe impl Send for JobWriter {}

impl std::fmt::Debug for JobWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JobWriter")
            .field("task", &String::from_utf8_lossy(&self.name))
            .finish_non_exhaustive()
    }
}

impl JobWriter {
    /// Writes a job; `false`: the ring was full, and the loss is counted and reported to the
    /// reader. Wait-free.
    pub fn job(&mut self, job: &Job) -> bool {
        let Some(mut record) = self.writer.begin(5 + text_words(&self.name), job.ended_ns) else {
            return false;
        };
        record.word(job.released_ns);
        record.word(job.started_ns);
        record.word(job.used_ns);
        record.text(&self.name);
        record.end(code::JOB);
        true
    }

    /// Jobs were lost before they came here.
    pub fn lost(&mut self, count: u64) {
        (0..count.min(1 << 16)).for_each(|_| self.writer.lose());
    }
}

impl Drop for JobWriter {
    fn drop(&mut self) {
        if let Some(record) = self.writer.begin(2, monotonic_ns()) {
            record.end(code::THREAD_END);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Event, Kind, Source};
    use crate::preload::{ProbeOptions, ProbeSession};

    fn poll(probe: &mut crate::preload::Probe) -> Vec<Event> {
        let mut events = Vec::new();
        probe.poll(&mut |event| events.push(event)).unwrap();
        events
    }

    #[test]
    fn a_robots_jobs_arrive_where_the_probes_events_do() {
        let session = ProbeSession::create(&ProbeOptions::default()).unwrap();
        let mut file = JobFile::create(session.directory()).unwrap();
        let mut probe = session.probe().unwrap();
        let mut ssm = file.task("ssm", 41).unwrap();
        let mut wire = file.task("rtde-recv", 42).unwrap();
        let job = |number: u64| Job {
            released_ns: number * 100,
            started_ns: number * 100 + 5,
            ended_ns: number * 100 + 25,
            used_ns: 15,
        };
        for number in 1..=1000 {
            assert!(ssm.job(&job(number)));
            assert!(wire.job(&job(number)));
        }
        let events = poll(&mut probe);
        let jobs = |events: &[Event], tid: u32, name: &str| -> Vec<(u64, u64, u64, u64)> {
            let of = |event: &Event| match &event.kind {
                Kind::Job { task, released_ns, started_ns, used_ns } if event.tid == tid => {
                    assert_eq!((&**task, event.pid), (name, std::process::id()));
                    Some((event.at_ns, *released_ns, *started_ns, *used_ns))
                }
                _ => None,
            };
            events.iter().filter_map(of).collect()
        };
        let expected: Vec<_> = (1..=1000).map(|n| (n * 100 + 25, n * 100, n * 100 + 5, 15)).collect();
        assert_eq!(jobs(&events, 41, "ssm"), expected);
        assert_eq!(jobs(&events, 42, "rtde-recv"), expected);
        assert!(
            events.iter().any(|event| matches!(&event.kind, Kind::ThreadName { name } if &**name == "ssm"))
        );

        // A full ring loses and counts; the next job that finds room shows it.
        let written = (0..20_000).filter(|number| ssm.job(&job(2000 + number))).count();
        assert!(written < 20_000);
        assert_eq!(jobs(&poll(&mut probe), 41, "ssm").len(), written);
        assert!(ssm.job(&job(90_000)));
        ssm.lost(3);
        drop(ssm);
        let last = poll(&mut probe);
        let lost: u64 =
            last.iter().map(|event| if let Kind::Lost { count } = event.kind { count } else { 0 }).sum();
        assert_eq!(lost, 20_000 - written as u64 + 3);
        assert!(last.iter().any(|event| event.tid == 41 && event.kind == Kind::ThreadEnd));

        drop(wire);
        drop(file);
        probe.finish();
        poll(&mut probe);
        assert!(probe.ended());
    }

    #[test]
    fn no_session_is_a_clear_answer() {
        let error = JobFile::create(Path::new("/nowhere/at/all")).unwrap_err().to_string();
        assert!(error.contains("/nowhere/at/all"), "{error}");
        let session = ProbeSession::create(&ProbeOptions::default()).unwrap();
        let mut file = JobFile::create(session.directory()).unwrap();
        // Its space is not taken before a task asks for it.
        assert_eq!(file.file.metadata().unwrap().len(), PAGE as u64);
        assert!(file.task("a", 1).is_ok());
    }
}

//! Files of `/proc` that are read again and again, held open.
//!
//! A look at a thread by its path is a walk through `/proc`, a new inode, two reads and a close: 10
//! µs, 400 times a second. Read through a descriptor it is one system call of 1 µs. And the
//! descriptor belongs to the thread and not to its number: when the thread is gone the kernel says
//! so (`ESRCH`), also when its number has come again.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use super::linux::{start_ticks, task_file, unexpected};
use super::{Identity, Usage, is_gone};

/// Descriptors held at most, however many the process may have.
const MOST: usize = 8192;
/// Those of ended threads are looked for no more often than this.
const SWEEP_EVERY: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct Held(RefCell<Files>);

#[derive(Debug)]
struct Files {
    /// `schedstat` of threads, by their numbers.
    threads: BTreeMap<u32, (Identity, File)>,
    /// `task` of processes.
    tasks: BTreeMap<u32, File>,
    /// No more than this: the rest of the program needs descriptors, too.
    most: usize,
    swept: Option<Instant>,
}

impl Default for Held {
    fn default() -> Self {
        Self::at_most(allowed())
    }
}

/// Half of the descriptors that this process may have.
fn allowed() -> usize {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid place for the answer.
    let rc = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
    if rc == 0 { usize::try_from(limit.rlim_cur / 2).unwrap_or(MOST).min(MOST) } else { 0 }
}

impl Held {
    fn at_most(most: usize) -> Self {
        let files = Files { threads: BTreeMap::new(), tasks: BTreeMap::new(), most, swept: None };
        Self(RefCell::new(files))
    }

    /// Use of a thread; `ESRCH` or `ENOENT` when it is gone.
    pub fn usage(&self, thread: &Identity) -> io::Result<Usage> {
        let mut files = self.0.borrow_mut();
        if let Some(outcome) = files.known(thread) {
            return outcome;
        }
        let file = File::open(task_file(thread.pid, thread.tid, "schedstat"))?;
        // Whose path it is is asked after it was opened, and read through it after that: so it is
        // the thread meant that was opened.
        if start_ticks(thread.pid, thread.tid)? != thread.start_ticks {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        let usage = read_usage(&file)?;
        if files.has_free_slot() {
            files.threads.insert(thread.tid, (*thread, file));
        }
        Ok(usage)
    }

    /// Whether the thread is there, where its file is held.
    pub fn is_alive(&self, thread: &Identity) -> Option<bool> {
        let outcome = self.0.borrow_mut().known(thread)?;
        Some(!outcome.is_err_and(|error| is_gone(&error)))
    }

    /// Number of a process's threads. The kernel counts them as links of their directory.
    pub fn thread_count(&self, pid: u32) -> io::Result<usize> {
        let mut files = self.0.borrow_mut();
        if let Some(file) = files.tasks.get(&pid) {
            match count(file)? {
                // The process is gone; its number may have come again.
                0 => drop(files.tasks.remove(&pid)),
                count => return Ok(count),
            }
        }
        let path = format!("/proc/{pid}/task");
        let file = std::fs::OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(path)?;
        let count = count(&file)?;
        if count > 0 && files.has_free_slot() {
            files.tasks.insert(pid, file);
        }
        Ok(count)
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.0.borrow().len()
    }
}

impl Files {
    fn len(&self) -> usize {
        self.threads.len() + self.tasks.len()
    }

    /// Reads through the descriptor of exactly this thread.
    fn known(&mut self, thread: &Identity) -> Option<io::Result<Usage>> {
        let (of, file) = self.threads.get(&thread.tid)?;
        if of == thread {
            let outcome = read_usage(file);
            if outcome.as_ref().is_err_and(is_gone) {
                self.threads.remove(&thread.tid);
            }
            return Some(outcome);
        }
        self.threads.remove(&thread.tid);
        None
    }

    fn has_free_slot(&mut self) -> bool {
        if self.len() < self.most {
            return true;
        }
        // Of those that nobody asks for any more some have ended.
        if self.swept.is_none_or(|at| at.elapsed() >= SWEEP_EVERY) {
            self.swept = Some(Instant::now());
            self.threads.retain(|_, (_, file)| read_usage(file).is_ok());
            self.tasks.retain(|_, file| count(file).is_ok_and(|count| count > 0));
        }
        self.len() < self.most
    }
}

/// Beside the two of every directory: none where the process is gone.
fn count(file: &File) -> io::Result<usize> {
    Ok(usize::try_from(file.metadata()?.nlink().saturating_sub(2)).unwrap_or(usize::MAX))
}

/// Time on a CPU, time of waiting for one, turns.
fn read_usage(file: &File) -> io::Result<Usage> {
    // Three numbers of 64 bits.
    let mut bytes = [0; 80];
    let length = file.read_at(&mut bytes, 0)?;
    let mut numbers = bytes[..length].split(u8::is_ascii_whitespace).map(number);
    match (numbers.next(), numbers.nth(1)) {
        (Some(Some(run_ns)), Some(Some(turns))) => Ok(Usage { run_ns, turns }),
        _ => Err(unexpected("schedstat")),
    }
}

fn number(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// A short file of `/proc`, in one read.
pub(super) fn read_short<'a>(path: &Path, bytes: &'a mut [u8]) -> io::Result<&'a [u8]> {
    let length = File::open(path)?.read_at(bytes, 0)?;
    Ok(&bytes[..length])
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// A thread that ends when its sender is dropped.
    fn thread() -> (Identity, mpsc::Sender<()>, std::thread::JoinHandle<()>) {
        let (sender, receiver) = mpsc::channel();
        let (end, wait) = mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            let _ = sender.send(takt_rt::thread::own_tid() as u32);
            let _ = wait.recv();
        });
        let (pid, tid) = (std::process::id(), receiver.recv().unwrap());
        (Identity { pid, tid, start_ticks: start_ticks(pid, tid).unwrap() }, end, thread)
    }

    /// The kernel still has a thread for a moment after it was joined.
    fn gone(held: &Held, of: &Identity) -> bool {
        (0..500).any(|_| {
            std::thread::sleep(Duration::from_millis(2));
            held.usage(of).is_err_and(|error| is_gone(&error))
        })
    }

    fn reads() -> Option<u64> {
        let text = std::fs::read_to_string("/proc/thread-self/io").ok()?;
        text.lines().find_map(|line| line.strip_prefix("syscr: ")?.parse().ok())
    }

    #[test]
    fn the_thread_meant_is_read_and_none_that_has_its_number() {
        let held = Held::at_most(8);
        let (of, end, thread) = thread();
        assert_eq!(held.is_alive(&of), None, "not asked for yet");
        let first = held.usage(&of).unwrap();
        assert_eq!((held.len(), held.is_alive(&of)), (1, Some(true)));
        assert!(first.turns >= 1 && held.usage(&of).unwrap().turns >= first.turns);
        // Somebody else with the same number.
        let other = Identity { start_ticks: of.start_ticks + 1, ..of };
        assert!(held.usage(&other).is_err_and(|error| is_gone(&error)));
        assert_eq!(held.len(), 0);
        held.usage(&of).unwrap();
        drop(end);
        thread.join().unwrap();
        assert!(gone(&held, &of), "{of:?}");
        assert_eq!(held.len(), 0, "nothing stays of a thread that has ended");
    }

    #[test]
    fn a_look_at_a_known_thread_is_one_read() {
        let held = Held::at_most(8);
        let (of, end, thread) = thread();
        held.usage(&of).unwrap();
        // Reading the count is counted, too; where the kernel keeps no account there is nothing to
        // say.
        if let (Some(a), Some(b)) = (reads(), reads()) {
            let own = b - a;
            let before = reads().unwrap();
            assert!((0..100).all(|_| held.usage(&of).is_ok()));
            assert_eq!(reads().unwrap() - before - own, 100);
        }
        drop(end);
        thread.join().unwrap();
    }

    #[test]
    fn descriptors_are_few_and_go_with_their_threads() {
        let held = Held::at_most(3);
        let threads: Vec<_> = (0..5).map(|_| thread()).collect();
        for (of, ..) in &threads {
            held.usage(of).unwrap();
            held.usage(of).unwrap();
        }
        assert_eq!(held.len(), 3, "the others are read all the same");
        let ids: Vec<Identity> = threads.iter().map(|(of, ..)| *of).collect();
        for (_, end, thread) in threads {
            drop(end);
            thread.join().unwrap();
        }
        assert!(ids[3..].iter().all(|of| gone(&held, of)));
        // Nobody asks for the first three any more.
        held.0.borrow_mut().swept = None;
        let (of, end, thread) = thread();
        assert!((0..500).any(|_| {
            std::thread::sleep(Duration::from_millis(2));
            held.0.borrow_mut().swept = None;
            held.usage(&of).unwrap();
            held.len() == 1
        }));
        drop(end);
        thread.join().unwrap();
    }

    #[test]
    fn threads_are_counted_while_their_process_lives() {
        let held = Held::at_most(8);
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id();
        assert_eq!((held.thread_count(pid).unwrap(), held.thread_count(pid).unwrap()), (1, 1));
        assert_eq!(held.len(), 1);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(held.thread_count(pid).is_err());
        assert_eq!(held.len(), 0);
    }
}

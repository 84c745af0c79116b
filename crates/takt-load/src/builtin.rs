//! Interference by threads of this process: what no tool does as it is needed here, and stand-ins
//! for missing tools.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, UdpSocket};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use takt_rt::census::Registration;
use takt_rt::clock;
use takt_rt::policy::Policy;

/// Small, since locked memory makes every stack resident.
const STACK_BYTES: usize = 128 << 10;

/// One piece of work; the amount done, in the unit of the job, or `None` when the work is over
/// because its other half has ended.
type Step = Box<dyn FnMut() -> io::Result<Option<u64>> + Send>;

/// The work of one thread.
pub(crate) struct Job {
    /// Unit of the amounts: a key of the report's proof.
    unit: &'static str,
    step: Step,
}

impl Job {
    fn new(unit: &'static str, step: impl FnMut() -> io::Result<Option<u64>> + Send + 'static) -> Self {
        Self { unit, step: Box::new(step) }
    }
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct Progress {
    amount: AtomicU64,
    cpu_ns: AtomicU64,
    death: OnceLock<String>,
}

/// Threads at work, SCHED_OTHER with nice 0, exempt from the census. Dropping stops and joins them.
#[derive(Debug)]
pub(crate) struct Workers {
    stop: Arc<AtomicBool>,
    progress: Vec<(&'static str, Arc<Progress>)>,
    threads: Vec<JoinHandle<()>>,
}

impl Workers {
    pub(crate) fn start(kind: &str, jobs: Vec<Job>) -> io::Result<Self> {
        let mut workers = Self { stop: Arc::default(), progress: Vec::new(), threads: Vec::new() };
        for (number, Job { unit, mut step }) in jobs.into_iter().enumerate() {
            let own = Arc::<Progress>::default();
            let (stop, progress) = (Arc::clone(&workers.stop), Arc::clone(&own));
            // Returning early drops `workers`, which stops what has been started.
            let thread = Builder::new()
                .name(format!("{kind}-{number}").chars().take(15).collect())
                .stack_size(STACK_BYTES)
                .spawn(move || {
                    let _registration = Registration::exempt_self("load");
                    let end = |why: String| {
                        // Set once only: nobody else sets it.
                        let _ = progress.death.set(why);
                    };
                    if let Err(refusal) = (Policy::Other { nice: 0 }).apply(0) {
                        return end(refusal.to_string());
                    }
                    while !stop.load(Ordering::Relaxed) {
                        match step() {
                            Ok(Some(amount)) => {
                                progress.amount.fetch_add(amount, Ordering::Relaxed);
                                progress.cpu_ns.store(clock::thread_cpu_ns(), Ordering::Relaxed);
                            }
                            _ if stop.load(Ordering::Relaxed) => return,
                            Ok(None) => return end("its partner ended".into()),
                            Err(error) => return end(error.to_string()),
                        }
                    }
                })?;
            workers.progress.push((unit, own));
            workers.threads.push(thread);
        }
        Ok(workers)
    }

    pub(crate) fn len(&self) -> usize {
        self.threads.len()
    }

    /// Whether every thread has done something.
    pub(crate) fn all_run(&self) -> bool {
        self.progress.iter().all(|(_, progress)| progress.amount.load(Ordering::Relaxed) > 0)
    }

    pub(crate) fn death(&self) -> Option<String> {
        self.progress.iter().find_map(|(_, progress)| progress.death.get().cloned())
    }

    /// Amounts done, by unit.
    pub(crate) fn amounts(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.progress.iter().map(|(unit, progress)| (*unit, progress.amount.load(Ordering::Relaxed)))
    }

    pub(crate) fn cpu_ns(&self) -> u64 {
        self.progress.iter().map(|(_, progress)| progress.cpu_ns.load(Ordering::Relaxed)).sum()
    }

    /// Reports all threads to stop; does not wait.
    pub(crate) fn ask_to_end(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Stops and joins all threads.
    pub(crate) fn end(&mut self) {
        self.ask_to_end();
        for thread in self.threads.drain(..) {
            // A thread that panicked shows by its work.
            let _ = thread.join();
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.end();
    }
}

/// Products of 64 x 64 matrices: the stand-in for `stress-ng --matrix`.
pub(crate) fn matrix() -> Job {
    const N: usize = 64;
    let (a, mut b) = (vec![1.000_1f64; N * N], vec![0.999_9f64; N * N]);
    Job::new("matrix_products", move || {
        let mut product = vec![0.0; N * N];
        for row in 0..N {
            for k in 0..N {
                let factor = a[row * N + k];
                for column in 0..N {
                    product[row * N + column] += factor * b[k * N + column];
                }
            }
        }
        // Kept near 1, where arithmetic costs what it usually costs.
        for (value, sum) in b.iter_mut().zip(&product) {
            *value = std::hint::black_box(0.5 + sum / (2.0 * N as f64));
        }
        Ok(Some(1))
    })
}

/// Fills `bytes` of memory and goes on writing to every cache line of it: the stand-in for
/// `stress-ng --vm`.
pub(crate) fn memory(bytes: u64) -> Job {
    // Above malloc's greatest threshold, so that freeing a piece gives it back to the system.
    const PIECE: usize = 64 << 20;
    const LINE_WORDS: usize = 8;
    let mut pieces: VecDeque<Vec<u64>> = VecDeque::new();
    let mut left = bytes / 8;
    Job::new("bytes_written", move || {
        let words = left.min(PIECE as u64 / 8) as usize;
        if words > 0 {
            let mut piece = Vec::new();
            piece.try_reserve_exact(words).map_err(io::Error::other)?;
            piece.resize(words, 1);
            left -= words as u64;
            pieces.push_back(piece);
            return Ok(Some(words as u64 * 8));
        }
        let Some(mut piece) = pieces.pop_front() else { return Ok(None) };
        for word in piece.iter_mut().step_by(LINE_WORDS) {
            *word = std::hint::black_box(word.wrapping_add(1));
        }
        let written = piece.len() as u64 * 8;
        pieces.push_back(piece);
        Ok(Some(written))
    })
}

/// Two threads that wake each other with messages of `bytes`: the stand-in for `stress-ng --switch`
/// and, in groups, for `hackbench`.
pub(crate) fn ping_pong(bytes: usize) -> io::Result<[Job; 2]> {
    let (mut near, mut far) = UnixStream::pair()?;
    let (mut ball, mut other) = (vec![0u8; bytes], vec![0u8; bytes]);
    // A stream that ended is the other half's end, not a fault of this one.
    let over = |result: io::Result<()>, amount| match result {
        Ok(()) => Ok(Some(amount)),
        Err(error) if matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe) => {
            Ok(None)
        }
        Err(error) => Err(error),
    };
    Ok([
        Job::new("messages", move || {
            over(near.write_all(&ball).and_then(|()| near.read_exact(&mut ball)), 1)
        }),
        Job::new("messages", move || {
            over(far.read_exact(&mut other).and_then(|()| far.write_all(&other)), 1)
        }),
    ])
}

/// Starts `true` and waits for it: the stand-in for `stress-ng --fork`.
pub(crate) fn fork() -> Job {
    Job::new("processes_started", move || {
        let status = Command::new("true").stdin(Stdio::null()).status()?;
        if status.success() {
            Ok(Some(1))
        } else {
            Err(io::Error::other(format!("`true` ended with {status}")))
        }
    })
}

/// The block of the 2009 paper's `dd`.
pub(crate) const DISK_BLOCK: usize = 1_024_000;

/// A file in `folder` that loses its name before the first byte is written.
pub(crate) fn nameless(folder: &Path) -> io::Result<File> {
    let path = folder.join(format!(".takt-load-{}-{}", std::process::id(), clock::monotonic_ns()));
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .custom_flags(libc::O_CLOEXEC)
        .open(&path)?;
    fs::remove_file(&path)?;
    Ok(file)
}

/// Writes a file of `file_bytes` in `folder` over and over, at most `bytes_per_s`. The file loses
/// its name before the first byte is written.
pub(crate) fn disk(folder: &Path, file_bytes: u64, bytes_per_s: u64) -> io::Result<Job> {
    let mut file = nameless(folder)?;
    let block = vec![0u8; DISK_BLOCK];
    let mut position = 0;
    let mut next_ns = clock::monotonic_ns();
    Ok(Job::new("bytes_written", move || {
        pause_until(next_ns);
        if position >= file_bytes {
            // As `dd` does: the file is cut off and grows anew.
            file.set_len(0)?;
            io::Seek::rewind(&mut file)?;
            position = 0;
        }
        let bytes = (file_bytes - position).min(DISK_BLOCK as u64);
        file.write_all(&block[..bytes as usize])?;
        position += bytes;
        // Delays are not made up for: the rate is an upper bound.
        let gap_ns = (u128::from(bytes) * 1_000_000_000 / u128::from(bytes_per_s)) as u64;
        next_ns = (next_ns + gap_ns).max(clock::monotonic_ns().saturating_sub(gap_ns));
        Ok(Some(bytes))
    }))
}

/// Sleeps, at most long enough for the stop flag still to be seen soon.
fn pause_until(deadline_ns: u64) {
    let now = clock::monotonic_ns();
    clock::sleep_until(deadline_ns.min(now + 100_000_000));
}

/// Looks at every file below `folder`, over and over, without leaving its file system: mounts of
/// other kinds may be remote, or answer to being looked at.
pub(crate) fn walk(folder: PathBuf) -> io::Result<Job> {
    let device = fs::metadata(&folder)?.dev();
    let mut waiting = vec![folder.clone()];
    let mut bytes = 0u64;
    Ok(Job::new("files_seen", move || {
        let Some(next) = waiting.pop() else {
            waiting.push(folder.clone());
            return Ok(Some(0));
        };
        let mut seen = 1;
        // Entries that are unreadable or gone are skipped, as `du` does.
        let Ok(entries) = fs::read_dir(&next) else { return Ok(Some(seen)) };
        for entry in entries.flatten() {
            seen += 1;
            let Ok(metadata) = entry.metadata() else { continue };
            bytes = std::hint::black_box(bytes.wrapping_add(metadata.blocks() * 512));
            if metadata.is_dir() && metadata.dev() == device {
                waiting.push(entry.path());
            }
        }
        Ok(Some(seen))
    }))
}

/// Datagrams of `payload` bytes to an echo on the loopback interface, at most `per_s`.
pub(crate) fn network(per_s: u64, payload: usize) -> io::Result<[Job; 2]> {
    let sender = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    let echo = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    // Connected to each other, nobody else's datagrams come in, and none go elsewhere.
    sender.connect(echo.local_addr()?)?;
    echo.connect(sender.local_addr()?)?;
    sender.set_nonblocking(true)?;
    echo.set_read_timeout(Some(Duration::from_millis(50)))?;
    let (data, mut back, mut ball) = (vec![0u8; payload], vec![0u8; payload], vec![0u8; payload]);
    // A full queue, and a datagram that the kernel dropped, are what a storm is like.
    let passing = |error: &io::Error| {
        matches!(
            error.kind(),
            io::ErrorKind::WouldBlock
                | io::ErrorKind::TimedOut
                | io::ErrorKind::Interrupted
                | io::ErrorKind::ConnectionRefused
        ) || error.raw_os_error() == Some(libc::ENOBUFS)
    };
    // A burst per millisecond, or single datagrams where that is less.
    let burst = (per_s / 1000).max(1);
    let mut next_ns = clock::monotonic_ns();
    let send = Job::new("datagrams_sent", move || {
        pause_until(next_ns);
        let mut sent = 0;
        for _ in 0..burst {
            match sender.send(&data) {
                Ok(_) => sent += 1,
                Err(error) if passing(&error) => break,
                Err(error) => return Err(error),
            }
        }
        while sender.recv(&mut back).is_ok() {}
        next_ns =
            (next_ns + burst * 1_000_000_000 / per_s).max(clock::monotonic_ns().saturating_sub(1_000_000));
        Ok(Some(sent))
    });
    let answer = Job::new("datagrams_echoed", move || {
        match echo.recv(&mut ball).and_then(|n| echo.send(&ball[..n])) {
            Ok(_) => Ok(Some(1)),
            Err(error) if passing(&error) => Ok(Some(0)),
            Err(error) => Err(error),
        }
    });
    Ok([send, answer])
}

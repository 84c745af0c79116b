//! Noise threads: the interfering workload of the SentryRT paper (section V.B), SCHED_OTHER threads
//! in "a tight loop of relaxed atomic increments and decrements on a dummy counter, designed to
//! saturate CPU pipelines".

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use takt_rt::census::Registration;
use takt_rt::clock;
use takt_rt::policy::Policy;
use takt_rt::signal::Signal;

/// Small, since locked memory makes every stack resident.
const STACK_BYTES: usize = 64 << 10;

/// Increments and decrements between looks at the stop flag: about ten microseconds alone on a CPU.
const BATCH: u64 = 1000;

/// Reason why noise could not be started.
#[derive(Debug, thiserror::Error)]
pub enum NoiseError {
    /// The system refused a thread; those started before have been stopped.
    #[error(
        "cannot start noise thread {number} of {asked}: {source}. Fix: use fewer threads, or raise `ulimit -u` or the cgroup's pids.max"
    )]
    Spawn {
        /// Number of the refused thread, from 1.
        number: usize,
        asked: usize,
        source: std::io::Error,
    },
    /// A thread did not get SCHED_OTHER; all have been stopped.
    #[error("noise thread {number} of {asked}: {source}")]
    Policy {
        /// Number of the thread, from 1.
        number: usize,
        asked: usize,
        source: takt_rt::Error,
    },
}

/// Work of one noise thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NoiseWork {
    /// Increments and decrements.
    pub operations: u64,
    /// CPU time used, nanoseconds. 0 with operations 0: the thread has never come to run.
    pub cpu_ns: u64,
}

#[derive(Debug, Default)]
struct NoiseControl {
    /// Opens when all threads are there: noise must not slow down the starting of noise.
    go: Signal,
    stop: AtomicBool,
    counter: AtomicI64,
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct Progress {
    operations: AtomicU64,
    cpu_ns: AtomicU64,
}

/// Running noise threads; dropping stops and joins them.
#[derive(Debug)]
pub struct NoiseThreads {
    shared: Arc<NoiseControl>,
    progress: Vec<Arc<Progress>>,
    threads: Vec<JoinHandle<()>>,
}

impl NoiseThreads {
    /// Starts `count` threads, SCHED_OTHER with nice 0 whatever the caller's policy is, allowed
    /// wherever the caller is, exempt from the thread census. Returns when every one has its policy
    /// and the noise begins.
    ///
    /// # Errors
    /// [`NoiseError`]; no thread is left running then.
    pub fn start(count: usize) -> Result<Self, NoiseError> {
        let mut noise =
            Self { shared: Arc::new(NoiseControl::default()), progress: Vec::new(), threads: Vec::new() };
        let (report, reported) = mpsc::channel();
        // Returning early drops `noise`, which stops what has been started.
        for number in 1..=count {
            let progress = Arc::new(Progress::default());
            let (shared, own, report) = (Arc::clone(&noise.shared), Arc::clone(&progress), report.clone());
            let body = move || {
                let _registration = Registration::exempt_self("noise");
                let outcome = Policy::Other { nice: 0 }.apply(0);
                let granted = outcome.is_ok();
                let _ = report.send((number, outcome));
                // The starter reads until every sender is gone.
                drop(report);
                if granted {
                    shared.go.wait(0, Duration::MAX);
                    make_noise(&shared, &own);
                }
            };
            let thread = Builder::new()
                .name(format!("noise-{number}"))
                .stack_size(STACK_BYTES)
                .spawn(body)
                .map_err(|source| NoiseError::Spawn { number, asked: count, source })?;
            noise.progress.push(progress);
            noise.threads.push(thread);
        }
        drop(report);
        for (number, outcome) in reported {
            outcome.map_err(|source| NoiseError::Policy { number, asked: count, source })?;
        }
        noise.shared.go.notify();
        Ok(noise)
    }

    /// Number of threads.
    pub fn len(&self) -> usize {
        self.threads.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.threads.is_empty()
    }

    /// Work of every thread so far: the proof that the noise was there.
    pub fn work(&self) -> Vec<NoiseWork> {
        let read = |progress: &Progress| NoiseWork {
            operations: progress.operations.load(Ordering::Relaxed),
            cpu_ns: progress.cpu_ns.load(Ordering::Relaxed),
        };
        self.progress.iter().map(|progress| read(progress)).collect()
    }

    /// Stops and joins all threads; returns what each has done.
    pub fn stop(mut self) -> Vec<NoiseWork> {
        self.end();
        self.work()
    }

    fn end(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.shared.go.notify();
        for thread in self.threads.drain(..) {
            // Nothing in a noise thread panics; if one did, its work shows that it stood still.
            let _ = thread.join();
        }
    }
}

impl Drop for NoiseThreads {
    fn drop(&mut self) {
        self.end();
    }
}

fn make_noise(shared: &NoiseControl, progress: &Progress) {
    let mut operations = 0;
    while !shared.stop.load(Ordering::Relaxed) {
        for _ in 0..BATCH / 2 {
            shared.counter.fetch_add(1, Ordering::Relaxed);
            shared.counter.fetch_sub(1, Ordering::Relaxed);
        }
        operations += BATCH;
        progress.operations.store(operations, Ordering::Relaxed);
        progress.cpu_ns.store(clock::thread_cpu_ns(), Ordering::Relaxed);
    }
}

/// Held by tests that start noise: one of them counts the noise threads of the whole process.
#[cfg(test)]
pub(crate) static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

#[cfg(test)]
mod tests {
    use super::*;

    fn noise_threads_of_this_process() -> Vec<i32> {
        let tids = std::fs::read_dir("/proc/self/task").unwrap();
        tids.filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok())
            .filter(|tid| {
                let name = std::fs::read_to_string(format!("/proc/self/task/{tid}/comm")).unwrap_or_default();
                name.starts_with("noise-")
            })
            .collect()
    }

    #[test]
    fn noise_is_there_is_other_and_ends() {
        let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        assert!(NoiseThreads::start(0).unwrap().is_empty());

        // From a real-time parent: without care the children would inherit its policy.
        let parent = std::thread::spawn(|| {
            let policy = Policy::Fifo { priority: 3 };
            if let Err(refusal) = policy.apply(0) {
                takt_witness::skip!("in part: {refusal}");
            } else {
                // Children of this thread inherit FIFO: drop the flag that stops that.
                let parameters = libc::sched_param { sched_priority: 3 };
                // SAFETY: the parameters outlive the call, which concerns the calling thread.
                assert_eq!(unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &parameters) }, 0);
            }
            NoiseThreads::start(6).unwrap()
        });
        let noise = parent.join().unwrap();
        assert_eq!(noise.len(), 6);
        let tids = noise_threads_of_this_process();
        assert_eq!(tids.len(), 6);
        for tid in tids {
            assert_eq!(Policy::read(tid).unwrap(), Policy::Other { nice: 0 });
        }
        // All come to run in the end, and keep on.
        while !noise.work().iter().all(|work| work.operations > 10 * BATCH && work.cpu_ns > 0) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let before = noise.work();
        let work = noise.stop();
        assert!(work.iter().zip(&before).all(|(after, before)| after.operations >= before.operations));
        // A thread that was joined is in /proc for a moment more.
        let gone = || {
            (0..1000).any(|_| {
                std::thread::sleep(Duration::from_millis(1));
                noise_threads_of_this_process().is_empty()
            })
        };
        assert!(gone());

        drop(NoiseThreads::start(2).unwrap());
        assert!(gone());
    }
}

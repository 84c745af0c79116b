//! The order's jobs, run by an init: which also inherits and reaps what its jobs leave behind.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, WaitStatus, kill_process_group, pidfd_open, wait,
};
use rustix::time::Timespec;

use super::order::{JOBS_DIRECTORY, Job, RESULTS_PATH};
use super::system::now_ns;
use crate::transport::JobEnding;

/// Guest time between asking a job to end and ending it.
const GRACE: Duration = Duration::from_secs(5);

const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A started job.
#[derive(Debug)]
pub struct Running {
    pub name: String,
    pid: Pid,
    handle: OwnedFd,
    limit_s: u64,
    limit_ns: u64,
}

/// Children whose end was seen, by their id.
#[derive(Debug, Default)]
pub struct Reaper(BTreeMap<i32, WaitStatus>);

impl Reaper {
    /// Waits for every child that has ended, also those that jobs left behind.
    fn reap(&mut self) {
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            self.0.insert(pid.as_raw_nonzero().get(), status);
        }
    }

    fn take(&mut self, pid: Pid) -> Option<JobEnding> {
        let status = self.0.remove(&pid.as_raw_nonzero().get())?;
        Some(match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => JobEnding::Exited { code },
            (None, Some(signal)) => JobEnding::Signalled { signal },
            (None, None) => JobEnding::Signalled { signal: 0 },
        })
    }
}

/// Starts a job in a process group of its own, its output going to files that are brought out.
pub fn start(job: &Job, reaper: &mut Reaper) -> io::Result<Running> {
    let outputs = Path::new(RESULTS_PATH).join(JOBS_DIRECTORY);
    fs::create_dir_all(&outputs)?;
    fs::create_dir_all(&job.directory)?;
    let output = |stream: &str| File::create(outputs.join(format!("{}.{stream}", job.name)));
    let child = Command::new(&job.program)
        .args(&job.arguments)
        .env_clear()
        .env("PATH", PATH)
        .env("HOME", "/root")
        .env("LANG", "C.UTF-8")
        .env("TMPDIR", "/tmp")
        .envs(&job.environment)
        .current_dir(&job.directory)
        .stdin(Stdio::null())
        .stdout(output("stdout")?)
        .stderr(output("stderr")?)
        .process_group(0)
        .spawn()?;
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidData)?;
    // The id may have been that of a process whose end nobody asked for.
    reaper.take(pid);
    let handle = pidfd_open(pid, PidfdFlags::empty())?;
    Ok(Running {
        name: job.name.clone(),
        pid,
        handle,
        limit_s: job.limit_s,
        limit_ns: now_ns().saturating_add(job.limit_s.saturating_mul(1_000_000_000)),
    })
}

impl Running {
    /// Waits for its end, `beat` being called every so often; at its limit, it is ended.
    pub fn join(self, reaper: &mut Reaper, every: Duration, beat: &mut dyn FnMut(&str)) -> JobEnding {
        let every_ns = u64::try_from(every.as_nanos()).unwrap_or(u64::MAX);
        let mut beat_ns = now_ns().saturating_add(every_ns);
        loop {
            if let Some(ending) = self.wait_until(reaper, beat_ns.min(self.limit_ns)) {
                return ending;
            }
            let now = now_ns();
            if now >= self.limit_ns {
                self.end(reaper);
                return JobEnding::Limit { limit_s: self.limit_s };
            }
            if now >= beat_ns {
                beat(&self.name);
                beat_ns = now.saturating_add(every_ns);
            }
        }
    }

    /// Ends a job that runs beside the others. One that had ended before says how.
    pub fn stop(self, reaper: &mut Reaper) -> JobEnding {
        reaper.reap();
        if let Some(ending) = reaper.take(self.pid) {
            return ending;
        }
        self.end(reaper);
        JobEnding::Stopped
    }

    fn end(&self, reaper: &mut Reaper) {
        // The whole group: a job's helpers end with it.
        for signal in [Signal::TERM, Signal::KILL] {
            if kill_process_group(self.pid, signal).is_err() {
                break;
            }
            let until = now_ns().saturating_add(u64::try_from(GRACE.as_nanos()).unwrap_or(0));
            if self.wait_until(reaper, until).is_some() {
                break;
            }
        }
        // Helpers that outlived the leader.
        let _ = kill_process_group(self.pid, Signal::KILL);
    }

    fn wait_until(&self, reaper: &mut Reaper, until_ns: u64) -> Option<JobEnding> {
        let left_ns = until_ns.saturating_sub(now_ns());
        let timeout = Timespec {
            tv_sec: i64::try_from(left_ns / 1_000_000_000).unwrap_or(i64::MAX),
            tv_nsec: i64::try_from(left_ns % 1_000_000_000).unwrap_or(0),
        };
        // An interrupted wait is looked at like one that ended: the caller comes back.
        let _ = poll(&mut [PollFd::new(&self.handle, PollFlags::IN)], Some(&timeout));
        reaper.reap();
        reaper.take(self.pid)
    }
}

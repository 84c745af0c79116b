//! The processes of a case: the controller and the cell.

use std::fs::File;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use takt_rt::child::end_with_this_process;
use takt_rt::policy::Policy;

use crate::FaultError;

/// Time that a process may take for a second's work on an idle machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(40);

/// Period of checking things that are not announced.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_millis(4);

/// A process of the test; killed when dropped.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    name: &'static str,
}

impl Process {
    pub(crate) fn start(name: &'static str, mut command: Command) -> Result<Self, FaultError> {
        // Nothing of a case outlives the test, not even when it is killed.
        end_with_this_process(&mut command);
        // SAFETY: between fork and exec only `signal` and `setrlimit` are called, which are
        // async-signal-safe, the last with a live rlimit that it only reads.
        unsafe {
            command.pre_exec(|| {
                // The test may run under nohup, which the cell would inherit.
                libc::signal(libc::SIGHUP, libc::SIG_DFL);
                // A process that dies of a signal is gone at once: dumping it takes longer than the
                // watchdog's limit.
                let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
                libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
                Ok(())
            });
        }
        let child =
            command.stdin(Stdio::null()).spawn().map_err(FaultError::io(format!("starting {name}")))?;
        Ok(Self { child, name })
    }

    pub(crate) fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    pub(crate) fn signal(&self, signal: i32) {
        // SAFETY: `kill` takes plain numbers, and the child has not been waited for, so that its
        // number is its own.
        unsafe { libc::kill(self.pid(), signal) };
    }

    /// Its status, once it has ended.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Waits for its end; `None` when it does not come.
    pub(crate) fn end(&mut self) -> Option<ExitStatus> {
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            if let Some(status) = self.ended() {
                return Some(status);
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        None
    }

    /// The pipe of its standard output and error, to be closed.
    pub(crate) fn take_pipes(&mut self) {
        self.child.stdout = None;
        self.child.stderr = None;
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.ended().is_none() {
            self.signal(libc::SIGCONT);
            let _ = self.child.kill();
        }
        if self.child.wait().is_err() {
            eprintln!("{} could not be waited for", self.name);
        }
    }
}

/// A simulated controller of its own, on free ports, with its log at `log`.
#[derive(Debug)]
pub(crate) struct Controller {
    pub(crate) process: Process,
    pub(crate) rtde: SocketAddr,
    pub(crate) dashboard: SocketAddr,
}

impl Controller {
    pub(crate) fn start(takt: &Path, folder: &Path, settings: &str, log: &Path) -> Result<Self, FaultError> {
        let config = folder.join("controller.toml");
        std::fs::write(&config, settings).map_err(FaultError::io("the controller's settings"))?;
        let message = folder.join("controller.out");
        let mut command = Command::new(takt);
        command.args(["simulate", "--rtde-port", "0", "--dashboard-port", "0", "--config"]).arg(&config);
        command.arg("--log").arg(log);
        command.stdout(File::create(&message).map_err(FaultError::io("the controller's words"))?);
        command.stderr(
            File::create(folder.join("controller.err")).map_err(FaultError::io("the controller's words"))?,
        );
        let mut process = Process::start("the simulated controller", command)?;
        let until = Instant::now() + PATIENCE;
        loop {
            let text = std::fs::read_to_string(&message).unwrap_or_default();
            if let Some((rtde, dashboard)) = ports(&text) {
                return Ok(Self { process, rtde, dashboard });
            }
            let ended = process.ended();
            if ended.is_some() || Instant::now() > until {
                let error = std::fs::read_to_string(folder.join("controller.err")).unwrap_or_default();
                return Err(FaultError::Child(format!(
                    "the simulated controller did not print its ports ({ended:?}): {}",
                    error.trim()
                )));
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// A person presses play: on the dashboard, which is no part of the cell.
    pub(crate) fn play(&self) -> Result<(), FaultError> {
        let doing = "pressing play";
        let mut stream = TcpStream::connect_timeout(&self.dashboard, Duration::from_secs(2))
            .map_err(FaultError::io(doing))?;
        stream.write_all(b"play\n").map_err(FaultError::io(doing))
    }

    /// Ends it in order, so that its log is whole.
    pub(crate) fn end(&mut self) -> Result<(), FaultError> {
        self.process.signal(libc::SIGINT);
        match self.process.end() {
            Some(_) => Ok(()),
            None => Err(FaultError::Child("the simulated controller does not end".to_owned())),
        }
    }
}

fn ports(message: &str) -> Option<(SocketAddr, SocketAddr)> {
    let line = message.lines().find(|line| line.starts_with("RTDE: ") && message.ends_with('\n'))?;
    let (rtde, dashboard) = line.strip_prefix("RTDE: ")?.split_once(", dashboard: ")?;
    Some((rtde.parse().ok()?, dashboard.parse().ok()?))
}

/// Sets a limit of a running process.
pub(crate) fn limit(pid: i32, resource: libc::__rlimit_resource_t, soft: u64) -> Result<(), FaultError> {
    let mut old = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `old` is a live rlimit that the call may write; a null new limit changes nothing.
    let read = unsafe { libc::prlimit(pid, resource, std::ptr::null(), &raw mut old) };
    let new = libc::rlimit { rlim_cur: soft.min(old.rlim_max), rlim_max: old.rlim_max };
    // SAFETY: `new` is a live rlimit that the call only reads; a null old limit is not written.
    if read != 0 || unsafe { libc::prlimit(pid, resource, &raw const new, std::ptr::null_mut()) } != 0 {
        return Err(FaultError::io("limiting the cell's process")(std::io::Error::last_os_error()));
    }
    Ok(())
}

/// Address space of a process, bytes.
pub(crate) fn address_space(pid: i32) -> Result<u64, FaultError> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/statm"))
        .map_err(FaultError::io("the cell's address space"))?;
    let pages: u64 = text.split(' ').next().and_then(|pages| pages.parse().ok()).unwrap_or(0);
    // SAFETY: `sysconf` takes a plain number.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    Ok(pages * page.max(0) as u64)
}

/// Takes all CPUs until `until_ns` with threads of a real-time priority above the cell's fallback;
/// false where that is not granted.
pub(crate) fn starve(until_ns: u64) -> bool {
    const HOG_PRIORITY: u8 = 50;
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let hogs: Vec<_> = (0..cpus)
        .map(|_| {
            std::thread::spawn(move || {
                let granted = Policy::Fifo { priority: HOG_PRIORITY }.apply(0).is_ok();
                while granted && takt_rt::clock::monotonic_ns() < until_ns {
                    std::hint::spin_loop();
                }
                granted
            })
        })
        .collect();
    hogs.into_iter().all(|hog| hog.join().unwrap_or(false))
}

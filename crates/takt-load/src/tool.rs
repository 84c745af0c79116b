//! Stress tools as child processes: `stress-ng` and `hackbench`.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::fs::MemfdFlags;
use takt_rt::census::Registration;
use takt_rt::oom;
use takt_rt::policy::Policy;

use crate::processes;

/// The hidden subcommand of `takt` that does the work on a GPU, with an
/// [`Interference`](crate::gpu::Interference) in JSON as its argument.
pub const SUBCOMMAND: &str = "gpu-load";

/// Names and values of an environment.
pub type Variables = Vec<(OsString, OsString)>;

/// Time that a tool has to end its children before it is killed.
const GRACE: Duration = Duration::from_secs(3);

/// The same for a tool that counts to its end and gives gigabytes back before it shows its count:
/// an emulated machine takes tens of seconds for that.
const LONG_GRACE: Duration = Duration::from_secs(60);

/// Memory that grew by less than this did not grow.
const MIB_GROWN: u64 = 1 << 20;

/// Time outside the kernel after which a process of `--vm` writes to its memory, in clock ticks.
/// What comes before, mapping the pages and asking which are there, is the kernel's time, and
/// kernels differ in how long they take.
const WORKING_TICKS: u64 = 3;

/// Memory that has not grown for so long is filled.
const FILLED: Duration = Duration::from_secs(5);

/// The programs; tests name others.
#[derive(Debug, Clone)]
pub(crate) struct Tools {
    pub(crate) stress_ng: PathBuf,
    pub(crate) hackbench: PathBuf,
    pub(crate) dd: PathBuf,
    pub(crate) du: PathBuf,
    pub(crate) ping: PathBuf,
    /// Program that becomes the process with GPU interference, and its arguments before the
    /// configuration.
    pub(crate) gpu: (PathBuf, Vec<String>),
}

impl Default for Tools {
    fn default() -> Self {
        // This very program, as it is on disk even if the file has been replaced.
        let gpu = ("/proc/self/exe".into(), vec![SUBCOMMAND.to_owned()]);
        Self {
            stress_ng: "stress-ng".into(),
            hackbench: "hackbench".into(),
            dd: "dd".into(),
            du: "du".into(),
            ping: "ping".into(),
            gpu,
        }
    }
}

/// Version string of `program`; an error when it cannot be run.
pub(crate) fn version(program: &Path, argument: &str) -> Result<String, String> {
    let output = Command::new(program)
        .arg(argument)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{} cannot be run: {error}", program.display()))?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    // `hackbench --help` fails on purpose; it names its version all the same.
    Ok(text.lines().next().unwrap_or_default().trim().to_owned())
}

/// Of a tool beside a process that the kernel must not kill for want of memory: its own processes
/// come first then. The shell becomes the tool.
const VICTIM: &str = "echo 1000 > /proc/self/oom_score_adj; exec \"$0\" \"$@\"";

/// A tool with its arguments. Children would inherit this process's protection by `oom_score_adj`,
/// but the robot can do without interference.
fn command(program: &Path, arguments: &[String]) -> Command {
    if oom::score_adj().is_none_or(|score| score >= 0) {
        let mut command = Command::new(program);
        command.args(arguments);
        return command;
    }
    let mut command = Command::new("/bin/sh");
    command.args(["-c", VICTIM]).arg(program).args(arguments);
    command
}

/// A tool that has been started and not yet waited for.
#[derive(Debug)]
pub(crate) struct Process {
    pid: i32,
    output: File,
    /// Has been waited for: the number may be another's from then on.
    reaped: bool,
}

/// End of a tool.
#[derive(Debug, Clone)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    /// CPU time of the tool and all it has waited for, nanoseconds.
    pub(crate) cpu_ns: u64,
    /// Its output.
    pub(crate) output: String,
}

impl Ended {
    pub(crate) fn why(&self) -> String {
        let last = self.output.lines().rev().find(|line| !line.trim().is_empty());
        match last {
            Some(line) => format!("{}; its last words: {}", self.status, line.trim()),
            None => format!("{}, without a message", self.status),
        }
    }
}

impl Process {
    /// Starts `program` in process group `group`. Its output goes to memory, so it never waits for
    /// a reader.
    pub(crate) fn start(program: &Path, arguments: &[String], group: i32) -> io::Result<Self> {
        Self::spawn(command(program, arguments).process_group(group))
    }

    /// As [`Process::start`], of a command with an environment and a group of its own.
    pub(crate) fn spawn(command: &mut Command) -> io::Result<Self> {
        let output = File::from(rustix::fs::memfd_create("takt-load", MemfdFlags::CLOEXEC)?);
        let child = command
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output.try_clone()?)
            .spawn()?;
        // From here on the child is waited for by its number: only wait4 reports the CPU time.
        Ok(Self { pid: child.id() as i32, output, reaped: false })
    }

    /// Asks the kernel whether the tool has ended, or waits for that.
    pub(crate) fn reap(&mut self, block: bool) -> Option<Ended> {
        if self.reaped {
            return None;
        }
        let mut status = 0;
        // SAFETY: rusage is plain integers, for which zero is valid.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        let flags = if block { 0 } else { libc::WNOHANG };
        loop {
            // SAFETY: both pointers are to writable variables of the types asked for.
            let rc = unsafe { libc::wait4(self.pid, &mut status, flags, &mut usage) };
            if rc == 0 {
                return None;
            }
            if rc == -1 && io::Error::last_os_error().raw_os_error() == Some(libc::EINTR) {
                continue;
            }
            break;
        }
        self.reaped = true;
        let ns = |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1000;
        let mut output = String::new();
        let _ = self.output.seek(SeekFrom::Start(0));
        let mut bytes = Vec::new();
        if self.output.read_to_end(&mut bytes).is_ok() {
            output = String::from_utf8_lossy(&bytes).into_owned();
        }
        let cpu_ns = ns(usage.ru_utime) + ns(usage.ru_stime);
        Some(Ended { status: ExitStatus::from_raw(status), cpu_ns, output })
    }

    pub(crate) fn signal(&self, signal: libc::c_int) {
        if !self.reaped {
            // SAFETY: kill takes two integers; the child has not been waited for, so the number is
            // still its own.
            unsafe { libc::kill(self.pid, signal) };
        }
    }

    /// Waits until the tool has ended without taking its number back.
    fn wait_for_end(pid: i32) {
        loop {
            // SAFETY: siginfo is plain data, for which zero is valid.
            let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
            let flags = libc::WEXITED | libc::WNOWAIT;
            // SAFETY: `info` is writable.
            let rc = unsafe { libc::waitid(libc::P_PID, pid as libc::id_t, &mut info, flags) };
            if rc == 0 || io::Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
                return;
            }
        }
    }

    /// Its output so far. The file position is not changed.
    pub(crate) fn printed(&self) -> String {
        let length = self.output.metadata().map_or(0, |data| data.len());
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
        let read = self.output.read_at(&mut bytes, 0).unwrap_or(0);
        String::from_utf8_lossy(&bytes[..read]).into_owned()
    }

    /// Waits for the end that has been asked for; SIGKILL after [`GRACE`].
    pub(crate) fn await_end(&mut self) -> Option<Ended> {
        self.await_end_within(GRACE)
    }

    fn await_end_within(&mut self, grace: Duration) -> Option<Ended> {
        let since = Instant::now();
        while since.elapsed() < grace {
            if let Some(ended) = self.reap(false) {
                return Some(ended);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        self.signal(libc::SIGKILL);
        self.reap(true)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.signal(libc::SIGKILL);
        let _ = self.reap(true);
    }
}

/// One `stress-ng` with one kind of stressor.
#[derive(Debug)]
pub(crate) struct StressNg {
    stressor: &'static str,
    process: Option<Process>,
    /// The processes that do the work.
    workers: Vec<i32>,
    /// Memory held, bytes, and CPU time used, nanoseconds, when it was asked to end.
    last_look: Option<(u64, u64)>,
    ended: Option<Ended>,
    /// Its processes end by themselves and count what they did until then.
    counts_to_the_end: bool,
    /// Processes held still by [`pause`](Self::pause).
    paused: Vec<i32>,
    /// Those asked to end, whose ends are awaited before their parents are asked.
    ending: Vec<i32>,
    /// CPU time used before they first went on, nanoseconds: filling the memory is no work.
    filling_ns: u64,
}

impl StressNg {
    pub(crate) fn start(
        program: &Path,
        stressor: &'static str,
        arguments: &[String],
        group: i32,
    ) -> io::Result<Self> {
        let process = Process::start(program, arguments, group)?;
        Ok(Self {
            stressor,
            process: Some(process),
            workers: Vec::new(),
            last_look: None,
            ended: None,
            counts_to_the_end: false,
            paused: Vec::new(),
            ending: Vec::new(),
            filling_ns: 0,
        })
    }

    /// Whether its processes are left to end by themselves: those of `--vm` with one method look at
    /// the signal at every step, and the work of an unfinished walk is counted.
    pub(crate) fn counting_to_the_end(mut self, counts: bool) -> Self {
        self.counts_to_the_end = counts;
        self
    }

    /// Waits until `count` workers run.
    pub(crate) fn await_workers(&mut self, count: usize, until: Instant) -> Result<usize, String> {
        loop {
            if let Some(ended) = self.poll() {
                return Err(format!("ended before it ran: {}", ended.why()));
            }
            let Some(process) = &self.process else { return Err("has ended".into()) };
            let all = processes::all();
            let workers = all.iter().filter(|worker| {
                // Before a worker takes its name it has not begun.
                worker.parent == process.pid && worker.alive && worker.name.starts_with("stress-ng-")
            });
            self.workers = workers.map(|worker| worker.pid).collect();
            if self.workers.len() >= count {
                return Ok(processes::descendants(process.pid, &all).len());
            }
            if Instant::now() > until {
                return Err(format!("{} of {count} workers ran", self.workers.len()));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until its processes hold nine tenths of `bytes`; the rest is the tool's own rounding.
    /// One that fills its memory before it works
    /// ([`counting_to_the_end`](Self::counting_to_the_end)) is waited for until it holds all, or no
    /// more comes: kernels differ in how long they take to map a page, and what is left of that
    /// would be missing in the work of one of them.
    pub(crate) fn await_resident(&mut self, bytes: u64, until: Instant) -> Result<(), String> {
        let (mut most, mut since) = (0, Instant::now());
        loop {
            if let Some(ended) = self.poll() {
                return Err(format!("ended before it had its memory: {}", ended.why()));
            }
            let Some(process) = &self.process else { return Err("has ended".into()) };
            let all = processes::all();
            let family = processes::descendants(process.pid, &all);
            let page = rustix::param::page_size() as u64;
            let held = family.iter().map(|worker| worker.resident_pages).sum::<u64>() * page;
            if self.counts_to_the_end {
                // Each as soon as it works: one that waits for the others would work meanwhile.
                let part = bytes / self.workers.len().max(1) as u64;
                let inner = family.iter().filter(|each| each.parent != process.pid);
                let works = |each: &&&processes::Process| {
                    each.resident_pages * page >= part && each.user_ticks >= WORKING_TICKS
                };
                for worker in inner.filter(works) {
                    if !self.paused.contains(&worker.pid) {
                        stop(worker.pid);
                        self.paused.push(worker.pid);
                    }
                }
            }
            if held > most + MIB_GROWN {
                (most, since) = (held, Instant::now());
            }
            let is_filled = !self.counts_to_the_end
                || self.paused.len() >= self.workers.len()
                || since.elapsed() > FILLED;
            if held >= bytes / 10 * 9 && is_filled {
                return Ok(());
            }
            if Instant::now() > until {
                return Err(format!("holds {} of {} MiB", held >> 20, bytes >> 20));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Its process, which starts the others.
    #[cfg(test)]
    pub(crate) fn pid(&self) -> Option<i32> {
        self.process.as_ref().map(|process| process.pid)
    }

    /// Holds the processes still that `--vm`'s workers have started, which do the work. stress-ng
    /// counts from its start to its end: work before the window, while other stressors come to run,
    /// and work after it would be in the count, and kernels differ in how long both take.
    pub(crate) fn pause(&mut self) {
        let Some(process) = self.process.as_ref().filter(|_| self.counts_to_the_end) else { return };
        let all = processes::all();
        self.paused = inner(process.pid, &all);
        self.paused.iter().for_each(|&pid| stop(pid));
    }

    /// Lets them go on.
    pub(crate) fn resume(&mut self) {
        if let Some(process) =
            self.process.as_ref().filter(|_| self.filling_ns == 0 && !self.paused.is_empty())
        {
            self.filling_ns =
                processes::descendants(process.pid, &processes::all()).iter().map(|each| each.cpu_ns()).sum();
        }
        for pid in self.paused.drain(..) {
            // SAFETY: kill takes two integers; a stopped process keeps its number.
            unsafe { libc::kill(pid, libc::SIGCONT) };
        }
    }

    fn poll(&mut self) -> Option<&Ended> {
        if let Some(process) = &mut self.process
            && let Some(ended) = process.reap(false)
        {
            self.ended = Some(ended);
            self.process = None;
        }
        self.ended.as_ref()
    }

    /// Reason why it no longer works, or only partly.
    pub(crate) fn death(&mut self) -> Option<String> {
        if let Some(ended) = self.poll() {
            return Some(ended.why());
        }
        let dead = self.workers.iter().filter(|&&pid| !processes::is_alive(pid)).count();
        (dead > 0).then(|| format!("{dead} of {} workers ended", self.workers.len()))
    }

    /// Asks it to end, after a last look at what its processes hold and have used. Does not wait.
    pub(crate) fn ask_to_end(&mut self) {
        let Some(process) = self.process.as_ref().filter(|_| self.last_look.is_none()) else { return };
        let all = processes::all();
        let family = processes::descendants(process.pid, &all);
        let pages: u64 = family.iter().map(|worker| worker.resident_pages).sum();
        // stress-ng kills the processes of `--vm` without waiting for them, so their time is in no
        // sum afterwards.
        let cpu_ns = family.iter().map(|worker| worker.cpu_ns()).sum();
        self.last_look = Some((pages * rustix::param::page_size() as u64, cpu_ns));
        if self.counts_to_the_end {
            // Those that do the work are asked first: a parent that is asked to end kills them soon
            // afterwards, and a walk that was killed is missing in the count.
            let inner: Vec<i32> = inner(process.pid, &all);
            for &pid in &inner {
                // SAFETY: as in `stop`.
                unsafe { libc::kill(pid, libc::SIGALRM) };
            }
            self.ending = inner;
            self.resume();
            return;
        }
        process.signal(libc::SIGTERM);
        if self.stressor == "vm" {
            // They look at the signal only after a walk through their memory, which may be seconds.
            // Nothing of theirs is lost: their parents have the counts.
            for worker in family.iter().filter(|worker| worker.parent != process.pid) {
                // SAFETY: kill takes two integers; the process was seen a moment ago, and its
                // number is kept for its parent, which waits for nothing else now.
                unsafe { libc::kill(worker.pid, libc::SIGKILL) };
            }
        }
    }

    /// Memory that its processes held at the end, bytes.
    pub(crate) fn resident_bytes(&self) -> u64 {
        self.last_look.map_or(0, |(bytes, _)| bytes)
    }

    /// Ends it; the CPU time, and the stressor's own count of its work.
    pub(crate) fn end(&mut self) -> (u64, u64) {
        self.ask_to_end();
        if let Some(mut process) = self.process.take() {
            let grace = if self.counts_to_the_end { LONG_GRACE } else { GRACE };
            let since = Instant::now();
            while since.elapsed() < grace && self.ending.iter().any(|&pid| processes::is_alive(pid)) {
                std::thread::sleep(Duration::from_millis(5));
            }
            process.signal(libc::SIGTERM);
            self.ended = process.await_end_within(grace);
        }
        let ended = self.ended.as_ref();
        let operations = ended.and_then(|ended| bogo_operations(&ended.output, self.stressor));
        let seen_ns = self.last_look.map_or(0, |(_, cpu_ns)| cpu_ns);
        let cpu_ns = if self.filling_ns > 0 {
            seen_ns.saturating_sub(self.filling_ns)
        } else {
            ended.map_or(0, |ended| ended.cpu_ns).max(seen_ns)
        };
        (cpu_ns, operations.unwrap_or(0))
    }
}

/// The processes that `root`'s workers have started: those that do the work of `--vm`.
fn inner(root: i32, all: &[processes::Process]) -> Vec<i32> {
    let family = processes::descendants(root, all);
    family.iter().filter(|each| each.parent != root).map(|each| each.pid).collect()
}

/// Holds a process of a tool still that was seen a moment ago.
fn stop(pid: i32) {
    // SAFETY: kill takes two integers; the number is kept for the process's parent, which waits for
    // nothing else while the tool runs.
    unsafe { libc::kill(pid, libc::SIGSTOP) };
}

/// The count in the line that `--metrics-brief` prints for a stressor. Before 0.15 the lines are
/// labelled `info`, since then `metrc`.
fn bogo_operations(output: &str, stressor: &str) -> Option<u64> {
    output.lines().find_map(|line| {
        let mut words = line.split_once(']')?.1.split_ascii_whitespace();
        (words.next()? == stressor).then(|| words.next()?.parse().ok())?
    })
}

#[derive(Debug, Default)]
struct Runs {
    started: AtomicU64,
    finished: AtomicU64,
    cpu_ns: AtomicU64,
    state: Mutex<RunState>,
}

#[derive(Debug, Default)]
struct RunState {
    current: Option<Process>,
    stopping: bool,
    /// It was killed to be started anew.
    killed: bool,
    /// Output of the last run.
    output: String,
    death: Option<String>,
}

/// A tool that is started again whenever it has finished.
#[derive(Debug)]
pub(crate) struct Repeated {
    runs: Arc<Runs>,
    thread: Option<JoinHandle<()>>,
    /// Work of a run, in the unit of [`Repeats::unit`].
    work_per_run: u64,
    unit: &'static str,
    children: usize,
    /// Signal that ends it.
    signal: libc::c_int,
    kill_every: Option<Duration>,
    killed: Instant,
    kills: u64,
    /// File to which it writes, if that has no name.
    _file: Option<File>,
}

/// Repetition of a tool.
#[derive(Debug)]
pub(crate) struct Repeats {
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<String>,
    /// Processes that a run starts.
    pub(crate) children: usize,
    /// Work of a finished run, and its unit.
    pub(crate) work_per_run: u64,
    pub(crate) unit: &'static str,
    /// Signal that ends it.
    pub(crate) signal: libc::c_int,
    /// Kills it so often, whatever it does.
    pub(crate) kill_every: Option<Duration>,
    /// Whether a run may end with an error and count as finished: files vanish while `du` looks.
    pub(crate) may_fail: bool,
    /// Kept open for it.
    pub(crate) file: Option<File>,
}

/// Senders in a group of hackbench, and receivers: it is built in there as well.
pub(crate) const HACKBENCH_SIDE: usize = 20;

impl Repeats {
    pub(crate) fn of(program: &Path, arguments: Vec<String>) -> Self {
        Self {
            program: program.to_owned(),
            arguments,
            children: 0,
            work_per_run: 1,
            unit: "passes",
            signal: libc::SIGTERM,
            kill_every: None,
            may_fail: false,
            file: None,
        }
    }

    pub(crate) fn hackbench(program: &Path, groups: usize, loops: usize, kill_every_s: Option<u64>) -> Self {
        let arguments = ["-g".to_owned(), groups.to_string(), "-l".to_owned(), loops.to_string()];
        Self {
            children: groups * HACKBENCH_SIDE * 2,
            work_per_run: (groups * HACKBENCH_SIDE * HACKBENCH_SIDE * loops) as u64,
            unit: "messages",
            kill_every: kill_every_s.map(Duration::from_secs),
            ..Self::of(program, arguments.into())
        }
    }
}

impl Repeated {
    pub(crate) fn start(repeats: Repeats, group: i32) -> io::Result<Self> {
        let Repeats { program, arguments, children, work_per_run, unit, signal, kill_every, may_fail, file } =
            repeats;
        let runs = Arc::new(Runs::default());
        let shared = Arc::clone(&runs);
        let thread = std::thread::Builder::new().name("load-repeat".into()).spawn(move || {
            let _registration = Registration::exempt_self("load");
            // The tool inherits this thread's policy, and a census may have come before the
            // exemption.
            if let Err(refusal) = (Policy::Other { nice: 0 }).apply(0) {
                shared.lock().death = Some(refusal.to_string());
                return;
            }
            while shared.run(&program, &arguments, group, may_fail) {}
        })?;
        let (thread, killed) = (Some(thread), Instant::now());
        let kills = 0;
        Ok(Self {
            runs,
            thread,
            work_per_run,
            unit,
            children,
            signal,
            kill_every,
            killed,
            kills,
            _file: file,
        })
    }

    /// Kills the run, to be started anew, where it is time to.
    pub(crate) fn kill_where_due(&mut self) {
        if self.kill_every.is_none_or(|every| self.killed.elapsed() < every) {
            return;
        }
        self.killed = Instant::now();
        let mut state = self.runs.lock();
        if state.stopping || state.killed {
            return;
        }
        let RunState { current, killed, .. } = &mut *state;
        if let Some(process) = current {
            process.signal(libc::SIGTERM);
            *killed = true;
            self.kills += 1;
        }
    }

    /// Waits until all processes of a run are there, or a run has finished.
    pub(crate) fn await_workers(&self, until: Instant) -> Result<usize, String> {
        loop {
            if let Some(death) = self.death() {
                return Err(format!("ended before it ran: {death}"));
            }
            let pid = self.runs.lock().current.as_ref().map(|process| process.pid);
            let seen = pid.map_or(0, |pid| processes::descendants(pid, &processes::all()).len());
            let runs = pid.is_some() && seen >= self.children;
            if runs || self.runs.finished.load(Ordering::Relaxed) > 0 {
                return Ok(self.children.max(1));
            }
            if Instant::now() > until {
                return Err(format!("{seen} of {} processes ran", self.children));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub(crate) fn death(&self) -> Option<String> {
        self.runs.lock().death.clone()
    }

    #[cfg(test)]
    pub(crate) fn runs_started(&self) -> u64 {
        self.runs.started.load(Ordering::Relaxed)
    }

    /// Asks it to end; does not wait.
    pub(crate) fn ask_to_end(&mut self) {
        let mut state = self.runs.lock();
        if !std::mem::replace(&mut state.stopping, true)
            && let Some(process) = &state.current
        {
            process.signal(self.signal);
        }
    }

    /// Ends it; the CPU time, and counts by name: runs started and finished, what the finished ones
    /// have done, and how often one was killed.
    pub(crate) fn end(&mut self) -> (u64, Vec<(&'static str, u64)>) {
        self.ask_to_end();
        if let Some(thread) = self.thread.take() {
            let since = Instant::now();
            while !thread.is_finished() {
                if since.elapsed() > GRACE
                    && let Some(process) = &self.runs.lock().current
                {
                    process.signal(libc::SIGKILL);
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            let _ = thread.join();
        }
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let finished = load(&self.runs.finished);
        let mut counts = vec![
            ("runs_started", load(&self.runs.started)),
            ("runs_finished", finished),
            (self.unit, finished * self.work_per_run),
        ];
        if self.kill_every.is_some() {
            counts.push(("runs_killed", self.kills));
        }
        counts.extend(requests(&self.runs.lock().output).map(|sent| ("requests", sent)));
        (load(&self.runs.cpu_ns), counts)
    }
}

impl Drop for Repeated {
    fn drop(&mut self) {
        self.end();
    }
}

impl Runs {
    fn lock(&self) -> std::sync::MutexGuard<'_, RunState> {
        // The state is whole between any two statements.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One run; whether another shall follow.
    fn run(&self, program: &Path, arguments: &[String], group: i32, may_fail: bool) -> bool {
        let pid = {
            let mut state = self.lock();
            if state.stopping {
                return false;
            }
            match Process::start(program, arguments, group) {
                Ok(process) => state.current.insert(process).pid,
                Err(error) => {
                    state.death = Some(format!("cannot be started: {error}"));
                    return false;
                }
            }
        };
        self.started.fetch_add(1, Ordering::Relaxed);
        Process::wait_for_end(pid);
        // Under the lock, so that nobody signals a number that is free again.
        let mut state = self.lock();
        let Some(mut process) = state.current.take() else { return false };
        let Some(ended) = process.reap(true) else { return false };
        self.cpu_ns.fetch_add(ended.cpu_ns, Ordering::Relaxed);
        state.output.clone_from(&ended.output);
        if state.stopping {
            return false;
        }
        if std::mem::take(&mut state.killed) {
            return true;
        }
        // One that a signal ended has not come to its end.
        let is_done = ended.status.success() || (may_fail && ended.status.code().is_some());
        if !is_done {
            state.death = Some(ended.why());
            return false;
        }
        self.finished.fetch_add(1, Ordering::Relaxed);
        true
    }
}

/// Number of requests that `ping` reports as sent.
fn requests(output: &str) -> Option<u64> {
    let line = output.lines().find(|line| line.contains(" packets transmitted"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_ping_says_it_sent() {
        let output = "PING localhost (127.0.0.1) 10(38) bytes of data.\n\n--- localhost ping statistics ---\n\
                      81234 packets transmitted, 81230 received, 0.005% packet loss, time 998ms\n";
        assert_eq!(requests(output), Some(81234));
        assert_eq!(requests("2 packets\n"), None);
    }

    #[test]
    fn reads_the_metrics_of_old_and_new_versions() {
        let new = "stress-ng: metrc: [7137] stressor       bogo ops real time\n\
                   stress-ng: metrc: [7137] matrix             6182      2.00      1.24\n\
                   stress-ng: metrc: [7137] vm                16947      2.00      0.25\n";
        assert_eq!(bogo_operations(new, "vm"), Some(16947));
        assert_eq!(bogo_operations(new, "switch"), None);
        assert_eq!(bogo_operations("stress-ng: info:  [1] fork      12  1.0\n", "fork"), Some(12));
        assert_eq!(bogo_operations("vm 3", "vm"), None);
    }
}

//! A process between Takt and the command. Everything that the command starts is its offspring,
//! also what its own parent has left behind, and all of it ends with the run: when Takt says so,
//! and when Takt is gone, also by SIGKILL.
//!
//! ```text
//! takt ──stdin: how to start, then signals; its end: kill all──► keeper ──► command ──► …
//!      ◄──stdout: started, ended, gone───────────────────────────
//!      ◄──stderr: what the command prints────────────────────────────────┘
//! ```

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, PipeReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use takt_rt::clock::monotonic_ns;
use takt_rt::thread;
use takt_watch::target::offspring;

use crate::ProgramError;
use crate::output::Output;

/// The hidden command of Takt that runs [`serve`].
pub const SUBCOMMAND: &str = "program-keeper";

/// The killed are looked for again so often, until none is left.
const LOOK: Duration = Duration::from_millis(5);

/// Time that a killed process may take to disappear: one in the kernel's hands cannot be killed.
const KILLED: Duration = Duration::from_secs(10);

/// Start of a command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Start {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Its folder.
    pub folder: PathBuf,
    /// Variables beside those of Takt.
    pub environment: BTreeMap<String, String>,
}

impl Start {
    /// The program: a path with a slash that is relative begins at the folder.
    pub fn program(&self) -> PathBuf {
        let name = self.command.first().map_or("", String::as_str);
        if name.contains('/') { self.folder.join(name) } else { PathBuf::from(name) }
    }
}

/// Message of a keeper, a line each.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Message {
    /// The command runs, with this id.
    Started(i32),
    /// It could not be started.
    Refused(String),
    /// It has ended.
    Ended(Ended),
    /// Nothing of it is left.
    Gone,
}

/// End of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// Its exit status; absent where a signal ended it.
    pub status: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// When, CLOCK_MONOTONIC nanoseconds.
    pub at_ns: u64,
}

impl Ended {
    /// In words: `with status 3`.
    pub fn how(&self) -> String {
        match (self.status, self.signal) {
            (Some(status), _) => format!("with status {status}"),
            (None, Some(signal)) => format!("by signal {signal}"),
            (None, None) => "with an unknown status".to_owned(),
        }
    }
}

/// The command, as the keeper knows it.
#[derive(Debug)]
struct Kept {
    pid: i32,
    has_ended: bool,
}

/// Runs the keeper: starts the command that the first line of the standard input describes, and
/// ends with it.
pub fn serve() -> ExitCode {
    match serve_lines() {
        Ok(()) => ExitCode::SUCCESS,
        // Nobody is there who could read a word of it.
        Err(_) => ExitCode::from(2),
    }
}

fn report(message: &Message) {
    if let Ok(line) = serde_json::to_string(message) {
        let mut out = io::stdout().lock();
        // Takt may be gone.
        let _ = writeln!(out, "{line}").and_then(|()| out.flush());
    }
}

fn serve_lines() -> io::Result<()> {
    takt_rt::child::adopt_orphans();
    // SAFETY: takes no argument; fails for a leader of a group alone. Ctrl-C at Takt's terminal is
    // Takt's affair from here on.
    unsafe { libc::setsid() };
    let mut lines = io::stdin().lines();
    let line = lines.next().transpose()?.unwrap_or_default();
    let start: Start = serde_json::from_str(&line).map_err(io::Error::other)?;
    let child = match spawn(&start) {
        Ok(child) => child,
        Err(error) => {
            report(&Message::Refused(error.to_string()));
            return Ok(());
        }
    };
    let pid = i32::try_from(child.id()).map_err(io::Error::other)?;
    report(&Message::Started(pid));
    let kept = Arc::new(Mutex::new(Kept { pid, has_ended: false }));
    let waiting = {
        let kept = Arc::clone(&kept);
        std::thread::Builder::new().name("takt-reaper".to_owned()).spawn(move || reap(&kept))?
    };
    for line in lines {
        let Ok(signal) = line?.trim().parse::<i32>() else { continue };
        let kept = lock(&kept);
        if kept.has_ended {
            send(signal);
        } else {
            // SAFETY: sends a signal to the group of a child that has not been waited for, so that
            // its number is nobody else's.
            unsafe { libc::kill(-kept.pid, signal) };
        }
    }
    // Takt has closed its end, or is gone.
    while !waiting.is_finished() {
        send(libc::SIGKILL);
        std::thread::sleep(LOOK);
    }
    Ok(())
}

fn lock(kept: &Mutex<Kept>) -> MutexGuard<'_, Kept> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sends all that is left a signal.
fn send(signal: i32) {
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    for pid in offspring(own) {
        // SAFETY: sends a signal; this process is the parent of whatever it reaps, so that a number
        // becomes free in `reap` alone, and is not given away again within this moment.
        unsafe { libc::kill(pid, signal) };
    }
}

fn spawn(start: &Start) -> io::Result<Child> {
    let mut command = Command::new(start.program());
    command.args(start.command.iter().skip(1)).envs(&start.environment);
    command.current_dir(&start.folder).process_group(0).stdin(Stdio::null());
    // Both go where Takt reads; the standard output of this process is its own.
    command.stdout(io::stderr()).stderr(io::stderr());
    takt_rt::child::end_with_this_process(&mut command);
    command.spawn()
}

/// Waits for every child, and reports the end of the command and the end of all.
fn reap(kept: &Mutex<Kept>) {
    loop {
        // SAFETY: all zeroes are a valid siginfo_t, which the call fills in.
        let mut about: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: `about` outlives the call. The child stays to be waited for, so that its number
        // stays its own until the lock below is held.
        let found = unsafe { libc::waitid(libc::P_ALL, 0, &mut about, libc::WEXITED | libc::WNOWAIT) };
        if found != 0 {
            match io::Error::last_os_error().kind() {
                io::ErrorKind::Interrupted => continue,
                // No child is left.
                _ => return report(&Message::Gone),
            }
        }
        // SAFETY: the call has filled in what belongs to an ended child.
        let pid = unsafe { about.si_pid() };
        let mut kept = lock(kept);
        let at_ns = monotonic_ns();
        let mut status = 0;
        // SAFETY: `status` outlives the call, which takes the status of a child that has ended.
        if unsafe { libc::waitpid(pid, &mut status, 0) } == pid && pid == kept.pid {
            kept.has_ended = true;
            let exited = libc::WIFEXITED(status);
            report(&Message::Ended(Ended {
                status: exited.then(|| libc::WEXITSTATUS(status)),
                signal: (!exited).then(|| libc::WTERMSIG(status)),
                at_ns,
            }));
        }
    }
}

/// Knowledge about a command.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct State {
    /// End of the command itself.
    pub(crate) ended: Option<Ended>,
    /// Nothing of it is left, not even what it had left behind.
    pub(crate) gone: bool,
}

impl State {
    /// End of the command, in words.
    pub(crate) fn how(self) -> String {
        self.ended.map_or_else(|| "with its keeper".to_owned(), |ended| ended.how())
    }
}

/// A command that runs under a keeper. Dropped, all of it is killed.
#[derive(Debug)]
pub(crate) struct Program {
    keeper: Child,
    control: Option<ChildStdin>,
    state: Arc<Mutex<State>>,
    /// The command itself.
    pub(crate) pid: i32,
    /// When it was started.
    pub(crate) since: Instant,
}

impl Program {
    /// Starts the command; returns it with what it prints.
    ///
    /// # Errors
    /// [`ProgramError::NotStarted`], [`ProgramError::Keeper`].
    pub(crate) fn start(start: &Start) -> Result<(Self, PipeReader), ProgramError> {
        let line = serde_json::to_string(start).map_err(io::Error::other)?;
        let (reader, writer) = io::pipe()?;
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(SUBCOMMAND).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(writer);
        let mut keeper = command.spawn()?;
        // The other end is the command's alone.
        drop(command);
        let mut control = keeper.stdin.take();
        let messages = keeper.stdout.take().map(BufReader::new);
        let (Some(control_in), Some(mut messages)) = (control.as_mut(), messages) else {
            return Err(io::Error::other("it has no pipes").into());
        };
        let state = Arc::default();
        let mut program = Self { keeper, control: None, state, pid: 0, since: Instant::now() };
        let begun = writeln!(control_in, "{line}").and_then(|()| {
            let mut line = String::new();
            messages.read_line(&mut line).map(|_| line)
        });
        program.control = control;
        match serde_json::from_str(&begun?) {
            Ok(Message::Started(pid)) => program.pid = pid,
            Ok(Message::Refused(reason)) => {
                let program = start.program().display().to_string();
                let folder = start.folder.display().to_string();
                return Err(ProgramError::NotStarted { program, reason, folder });
            }
            _ => return Err(io::Error::other("it ended before it started a process").into()),
        }
        program.listen(messages)?;
        Ok((program, reader))
    }

    fn listen(&self, messages: BufReader<std::process::ChildStdout>) -> Result<(), ProgramError> {
        let state = Arc::clone(&self.state);
        let listen = move || {
            for line in messages.lines().map_while(Result::ok) {
                let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
                match serde_json::from_str(&line) {
                    Ok(Message::Ended(ended)) => state.ended = Some(ended),
                    Ok(Message::Gone) => state.gone = true,
                    _ => {}
                }
            }
            // A keeper that was killed takes the command with it.
            state.lock().unwrap_or_else(PoisonError::into_inner).gone = true;
        };
        let why = "waits for the end of the command";
        thread::spawn_exempt("takt-program", why, listen).map(drop).map_err(io::Error::other)?;
        Ok(())
    }

    /// Its keeper: all of the command is its offspring.
    pub(crate) fn keeper_pid(&self) -> i32 {
        i32::try_from(self.keeper.id()).unwrap_or(0)
    }

    /// Present knowledge about it.
    pub(crate) fn state(&self) -> State {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reason of a run's end whose command had ended before `until`, with all of its output.
    pub(crate) fn ended_early(&self, state: State, output: &Output, until: &str) -> ProgramError {
        output.finish();
        let (how, after, until) = (state.how(), self.since.elapsed(), until.to_owned());
        ProgramError::EndedEarly { how, after, until, words: output.words() }
    }

    /// Asks the command to end by `signal`, and kills what is left of it after `within`. Returns
    /// how the command ended, and whether something had to be killed.
    ///
    /// # Errors
    /// [`ProgramError::Keeper`] where something cannot be killed.
    pub(crate) fn end(mut self, signal: i32, within: Duration) -> Result<(State, bool), ProgramError> {
        if let Some(control) = &mut self.control {
            // Refused where it is gone.
            let _ = writeln!(control, "{signal}").and_then(|()| control.flush());
        }
        let until = Instant::now() + within;
        while self.state().ended.is_none() && !self.state().gone && Instant::now() < until {
            std::thread::sleep(LOOK);
        }
        let asked = self.state();
        let was_killed = asked.ended.is_none() && !asked.gone;
        self.kill()?;
        Ok((self.state(), was_killed))
    }

    /// Has the keeper kill all of it, and waits for that.
    fn kill(&mut self) -> Result<(), ProgramError> {
        drop(self.control.take());
        let until = Instant::now() + KILLED;
        while self.keeper.try_wait()?.is_none() {
            if Instant::now() >= until {
                let left: Vec<String> = offspring(self.keeper_pid()).iter().map(i32::to_string).collect();
                let _ = self.keeper.kill();
                let _ = self.keeper.wait();
                let left = left.join(", ");
                return Err(io::Error::other(format!("processes {left} were killed but do not end")).into());
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Ended before: nothing happens.
        let _ = self.kill();
    }
}

/// The file that would be run, where it can be.
///
/// # Errors
/// [`ProgramError::NotStarted`].
pub(crate) fn find(start: &Start) -> Result<PathBuf, ProgramError> {
    let program = start.program();
    let is_there = |path: &Path| {
        use std::os::unix::fs::PermissionsExt;
        path.metadata().is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
    };
    let found = if program.components().count() > 1 {
        Some(program.clone()).filter(|path| is_there(path))
    } else {
        let own = start.environment.get("PATH").map(std::ffi::OsString::from);
        let places = own.or_else(|| std::env::var_os("PATH")).unwrap_or_default();
        std::env::split_paths(&places).map(|place| place.join(&program)).find(|path| is_there(path))
    };
    found.ok_or_else(|| ProgramError::NotStarted {
        program: program.display().to_string(),
        reason: "the program does not exist or is not executable".to_owned(),
        folder: start.folder.display().to_string(),
    })
}

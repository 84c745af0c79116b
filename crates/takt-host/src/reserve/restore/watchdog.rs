//! A process that outlives the manager, whatever ends it, and then undoes.
//!
//! It is started anew (fork and exec), because a forked copy of a program with several threads may
//! do next to nothing. It waits at its standard input, a pipe of which the manager holds the other
//! end: the kernel closes that end however the manager ends. The manager that ends in order has
//! undone everything itself; then no state file is there and nothing is left to do.
//!
//! It leaves the control groups by which systemd and containers end everything at once (the unified
//! hierarchy, systemd's own and the freezer of version 1): what ends or freezes the manager with
//! its group must not end the one who undoes.

use std::io::{self, Read};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use super::{Error, Owner, Restored, State, journal};
use crate::reserve::system::{Kernel as _, Linux};

/// The manager's side.
#[derive(Debug)]
pub struct Watchdog {
    child: Child,
}

impl Watchdog {
    /// Starts `command`, which is to call [`run`] with the state file's path.
    ///
    /// # Errors
    ///
    /// The program cannot be started.
    pub fn start(mut command: Command) -> io::Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        // A preloaded probe has no business here.
        command.env_remove("LD_PRELOAD");
        // A group of its own: it must not get the terminal's Ctrl-C. Not `setsid` before exec, for
        // which the library would fork: the pages of a process with locked memory would then fault
        // once more under its real-time threads.
        command.process_group(0);
        let child = command.spawn()?;
        leave_groups(child.id());
        Ok(Self { child })
    }

    /// The input at whose end it undoes what is left: whoever holds it is watched.
    pub(super) fn take_input(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    /// Returns when it has ended.
    pub(super) fn wait(&mut self) {
        let _ = self.child.wait();
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        // Closing the pipe ends it; it undoes what is left, if anything is.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// Brings the process to the root of each such hierarchy. Without the right to, or in a container
/// that sees only its own groups, it stays.
fn leave_groups(pid: u32) {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    for line in mounts.lines() {
        let mut words = line.split(' ').skip(1);
        let (Some(place), Some(kind), Some(options)) = (words.next(), words.next(), words.next()) else {
            continue;
        };
        let ends_all = |option: &str| matches!(option, "name=systemd" | "freezer");
        if kind == "cgroup2" || (kind == "cgroup" && options.split(',').any(ends_all)) {
            let _ = std::fs::write(Path::new(place).join("cgroup.procs"), pid.to_string());
        }
    }
}

/// The watchdog's side: waits until standard input ends, then undoes what the state file says;
/// `None`: there was nothing to undo.
///
/// # Errors
///
/// The state file cannot be read or deleted.
pub fn run(path: &Path) -> Result<Option<Restored>, Error> {
    let of = std::os::unix::process::parent_id();
    await_end();
    until_undone(|| {
        let restored = undo_of(path, of)?;
        Ok(match restored {
            Some(restored) if !restored.is_complete() => Attempt::Left(restored.failures.join("; ")),
            other => Attempt::Done(other),
        })
    })
}

/// Result of an attempt to undo.
#[derive(Debug)]
pub enum Attempt<T> {
    /// Nothing is left.
    Done(T),
    /// Changes that could not be undone now, for people.
    Left(String),
}

/// Between two attempts, at first and later: what the kernel refuses now it takes once others have
/// ended, and nobody knows when.
const AGAIN: Duration = Duration::from_secs(1);
const MUCH_LATER: Duration = Duration::from_secs(10);
/// Attempts before it is `MUCH_LATER`.
const OFTEN: u32 = 60;

/// Attempts until nothing is left, however long that takes: the kernel refuses to switch the
/// admission test on, for one, while the reservations of others exceed the limit. From the second
/// attempt on in a process of its own, so that nobody waits for it.
///
/// # Errors
/// The error of an attempt after which none can succeed.
pub fn until_undone<T, E>(attempt: impl FnMut() -> Result<Attempt<T>, E>) -> Result<T, E> {
    let alone = || takt_rt::child::go_on_alone(libc::EXIT_FAILURE).is_ok();
    attempts(attempt, alone, std::thread::sleep)
}

fn attempts<T, E>(
    mut attempt: impl FnMut() -> Result<Attempt<T>, E>,
    alone: impl FnOnce() -> bool,
    mut wait: impl FnMut(Duration),
) -> Result<T, E> {
    let mut left = match attempt()? {
        Attempt::Done(done) => return Ok(done),
        Attempt::Left(why) => why,
    };
    eprintln!("takt: not yet restored: {left}");
    // If no other process can be created, the caller waits.
    alone();
    let own = std::process::id();
    eprintln!("takt: process {own} retries until it succeeds");
    let mut tries = 0_u32;
    loop {
        wait(if tries < OFTEN { AGAIN } else { MUCH_LATER });
        tries = tries.saturating_add(1);
        match attempt()? {
            Attempt::Done(done) => {
                eprintln!("takt: process {own} has restored everything");
                return Ok(done);
            }
            Attempt::Left(why) if why != left => {
                eprintln!("takt: not yet restored: {why}");
                left = why;
            }
            Attempt::Left(_) => {}
        }
    }
}

/// Undoes what the process `of` left, and nothing of another that lives: whoever ended in order has
/// undone everything, and the next one may have begun with the same file; or it never began, since
/// that one was there.
fn undo_of(path: &Path, of: u32) -> Result<Option<Restored>, Error> {
    let mut kernel = Linux::new();
    let asked = Linux::new();
    let is_of_another = |state: &State| {
        // The manager itself may still be listed while it is dying.
        state.manager.pid != of && state.boot == journal::boot(&asked) && asked.is_alive(&state.manager)
    };
    let is_left = || match journal::load(path) {
        Ok(state) => state.is_some_and(|state| !is_of_another(&state)),
        Err(_) => true,
    };
    // The process that had the lock first has undone it.
    let _owner = Owner::take_to_undo(&kernel, is_left);
    let Some(state) = journal::load(path)?.filter(|state| !is_of_another(state)) else { return Ok(None) };
    super::undo_and_forget(&mut kernel, &state, path).map(Some)
}

/// Waits until standard input ends, which is the end of whoever started this process with
/// [`Watchdog::start`]. Ignores all signals that ask a process to end: what it has to undo outlives
/// whoever sends them.
pub fn await_end() {
    // Not what `killall takt` means.
    takt_rt::thread::set_own_name(c"undo-if-killed");
    for signal in takt_rt::endings::requests().chain([libc::SIGPIPE]) {
        // SAFETY: ignoring a signal installs no handler.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    // Without it they would end it, and nothing else depends on that.
    let _ = takt_rt::endings::ignore_reserved();
    // The last one that the kernel should choose when memory runs out; needs a privilege, and is
    // not essential.
    let _ = std::fs::write("/proc/self/oom_score_adj", "-900");
    let mut sink = [0_u8; 64];
    let mut input = io::stdin().lock();
    loop {
        match input.read(&mut sink) {
            Ok(0) => break,
            Err(error) if error.kind() != io::ErrorKind::Interrupted => break,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::reserve::restore::VERSION;
    use crate::reserve::system;

    #[test]
    fn what_cannot_be_undone_now_is_tried_until_it_can() {
        let mut answers = vec!["EBUSY", "EBUSY", "EPERM", ""].into_iter();
        let (mut alone, mut waited) = (0, Vec::new());
        let attempt = || -> Result<Attempt<u32>, Error> {
            Ok(match answers.next().unwrap() {
                "" => Attempt::Done(7),
                why => Attempt::Left(why.to_owned()),
            })
        };
        let begin = || {
            alone += 1;
            true
        };
        assert_eq!(attempts(attempt, begin, |time| waited.push(time)).unwrap(), 7);
        // The caller is not kept waiting: alone before the first pause, and once.
        assert_eq!((alone, waited), (1, vec![AGAIN; 3]));
        let done = || -> Result<_, Error> { Ok(Attempt::Done(1)) };
        let never = |_: Duration| panic!("nothing is left to wait for");
        assert_eq!(attempts(done, || panic!("no process of its own"), never).unwrap(), 1);
    }

    #[test]
    fn what_another_who_lives_has_written_down_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let (kernel, own) = (Linux::new(), std::process::id());
        let state = State {
            version: VERSION,
            boot: journal::boot(&kernel),
            manager: system::identify(&kernel, own, own).unwrap(),
            threads: Vec::new(),
            processes: Vec::new(),
            changes: Vec::new(),
            given: Vec::new(),
            died: false,
        };
        std::fs::write(&path, serde_json::to_vec(&state).unwrap()).unwrap();
        assert!(undo_of(&path, own + 1).unwrap().is_none() && path.exists());
        assert!(undo_of(&path, own).unwrap().is_some() && !path.exists());
    }
}

//! The managed program: started with the probe in its environment, as the user who asked for it,
//! and ended in order, with all that it started: its process group is asked by SIGINT, SIGTERM and
//! SIGKILL ([`Launched::end`]); what is left then, also in other groups and sessions, by SIGTERM
//! and SIGKILL ([`Launched::end_rest`]). A process that cleared its environment and was left by its
//! parent is found if this process adopts orphans ([`Launched::start_adopting`]).

use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use takt_ros::preload::ProbeSession;

use super::account::Account;
use super::strays;

/// A program under observation.
#[derive(Debug)]
pub struct Launched {
    child: Child,
    asked: Option<(usize, Instant)>,
    /// The session's, which names what belongs to it.
    directory: PathBuf,
    /// Orphans are adopted, and were last waited for then.
    adopts: Option<Instant>,
}

/// Adopted orphans that have ended are waited for so often.
const REAP_EVERY: Duration = Duration::from_secs(1);

/// Time for the program's remains after SIGTERM, and after SIGKILL.
const REST: [(i32, Duration); 2] =
    [(libc::SIGTERM, Duration::from_secs(5)), (libc::SIGKILL, Duration::from_secs(2))];

/// Signals that ask a program to end, with increasing urgency. `ros2 launch` ends its nodes at
/// SIGINT and needs time for it.
const ASKING: [(i32, Duration); 3] = [
    (libc::SIGINT, Duration::from_secs(10)),
    (libc::SIGTERM, Duration::from_secs(5)),
    (libc::SIGKILL, Duration::from_secs(5)),
];

impl Launched {
    /// Starts `command` in the session, as the user who became root to start this program
    /// ([`Account::invoking`]). It gets a process group of its own: a Ctrl-C in the terminal comes
    /// to it once, from [`Launched::end`], and not a second time, which `ros2 launch` takes for
    /// impatience. Its standard input is empty for the same reason (a background group must not
    /// read the terminal).
    ///
    /// # Errors
    ///
    /// The program cannot be started.
    pub fn start(command: Command, session: &ProbeSession) -> io::Result<Self> {
        Self::start_as(command, session, Account::invoking().as_ref())
    }

    /// As [`Launched::start`], and what the program leaves is adopted by this process, so that it
    /// is found and ended whatever it did to its environment. For a process that launches one
    /// program and nothing else: all of its orphans count as the program's.
    ///
    /// # Errors
    ///
    /// As [`Launched::start`].
    pub fn start_adopting(command: Command, session: &ProbeSession) -> io::Result<Self> {
        strays::adopt();
        let mut launched = Self::start(command, session)?;
        launched.adopts = Some(Instant::now());
        Ok(launched)
    }

    /// As [`Launched::start`], as this user, or as the one that this program is.
    ///
    /// # Errors
    ///
    /// The program cannot be started, or may not be started as that user.
    pub fn start_as(
        mut command: Command,
        session: &ProbeSession,
        account: Option<&Account>,
    ) -> io::Result<Self> {
        session.prepare(&mut command);
        if let Some(account) = account {
            session.give_to(account.uid, account.gid)?;
            account.apply(&mut command);
        }
        command.process_group(0).stdin(Stdio::null());
        // A shell starts its background jobs with SIGINT ignored; a program that inherits that
        // could not be ended in order. SAFETY: signal is async-signal-safe and has no memory
        // effects.
        unsafe {
            command.pre_exec(|| {
                libc::signal(libc::SIGINT, libc::SIG_DFL);
                Ok(())
            });
        }
        let directory = session.directory().to_owned();
        Ok(Self { child: command.spawn()?, asked: None, directory, adopts: None })
    }

    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its exit status; `None` while it runs. Remaining processes of its group are ended with it
    /// (SIGTERM).
    ///
    /// # Errors
    ///
    /// It cannot be asked.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        if self.adopts.is_some_and(|reaped| reaped.elapsed() >= REAP_EVERY) {
            strays::reap(self.child.id());
            self.adopts = Some(Instant::now());
        }
        if self.has_ended() {
            // Not waited for yet, so that its number, and with it the group's, is still its own.
            // SAFETY: kill has no memory effects.
            unsafe { libc::kill(-(self.child.id() as i32), libc::SIGTERM) };
        }
        self.child.try_wait()
    }

    /// Whether it has ended and was not waited for.
    fn has_ended(&self) -> bool {
        // SAFETY: an all-zero siginfo_t is a valid one to be overwritten.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        // SAFETY: `info` is a valid place for the answer; WNOWAIT leaves the child to be waited
        // for.
        let rc = unsafe { libc::waitid(libc::P_PID, self.child.id(), &mut info, flags) };
        // SAFETY: after success the field is set, to 0 where no child has ended.
        rc == 0 && unsafe { info.si_pid() } != 0
    }

    /// Asks it to end; to be called again and again until [`Launched::ended`]: it becomes firmer
    /// with time. Its whole group is asked.
    pub fn end(&mut self) {
        let now = Instant::now();
        let step = match self.asked {
            None => 0,
            Some((step, since)) if step + 1 < ASKING.len() && now - since >= ASKING[step].1 => step + 1,
            Some(_) => return,
        };
        self.asked = Some((step, now));
        self.signal(ASKING[step].0);
    }

    /// Sends a signal to the program and all that belong to its group.
    pub fn signal(&mut self, signal: i32) {
        // Once it is waited for, its number may be another's.
        if matches!(self.ended(), Ok(None)) {
            // SAFETY: kill has no memory effects; the group is the child's own and alive.
            unsafe { libc::kill(-(self.child.id() as i32), signal) };
        }
    }
}

impl Launched {
    /// Ends what the program has left, once it has ended itself: SIGTERM, and SIGKILL after five
    /// seconds. Returns how many would not go.
    pub fn end_rest(&mut self) -> usize {
        let mut left = strays::of_session(&self.directory, self.child.id());
        for (signal, patience) in REST {
            if left.is_empty() {
                break;
            }
            strays::signal(&left, signal);
            let end = Instant::now() + patience;
            while !left.is_empty() && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(20));
                left = strays::alive(&left);
            }
            // Those that were made meanwhile.
            left.extend(strays::of_session(&self.directory, self.child.id()));
        }
        left.len()
    }
}

impl Drop for Launched {
    fn drop(&mut self) {
        self.signal(libc::SIGKILL);
        let _ = self.child.wait();
        let left = strays::of_session(&self.directory, self.child.id());
        strays::signal(&left, libc::SIGKILL);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::path::Path;

    use super::*;
    use takt_ros::preload::ProbeOptions;

    fn output(command: &str, account: Option<&Account>) -> (Launched, String) {
        let session = ProbeSession::create(&ProbeOptions::default()).unwrap();
        let mut shell = Command::new("sh");
        shell.args(["-c", command]).stdout(Stdio::piped());
        let mut launched = Launched::start_as(shell, &session, account).unwrap();
        let mut text = String::new();
        BufReader::new(launched.child.stdout.take().unwrap()).read_line(&mut text).unwrap();
        // The directory has to outlive the start of the program only.
        while launched.ended().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(5));
        }
        (launched, text)
    }

    #[test]
    fn what_went_to_another_session_is_ended_too_and_nothing_else() {
        let bystander = Command::new("sleep").arg("1000").spawn().unwrap();
        let script = "setsid sh -c 'trap \"\" TERM; sleep 1000 & echo $$ $!; wait; sleep 1000' & sleep 0.3";
        let (mut launched, text) = output(script, None);
        let left: Vec<u32> = text.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
        assert_eq!(left.len(), 2);
        let runs = |pid: u32| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            !stat.is_empty() && !stat.contains(") Z ")
        };
        assert!(left.iter().all(|&pid| runs(pid)), "the group was asked, and they are not in it");
        assert_eq!(launched.end_rest(), 0);
        assert!(!left.iter().any(|&pid| runs(pid)), "also the one that ignores SIGTERM");
        assert!(runs(bystander.id()));
        let mut bystander = bystander;
        bystander.kill().unwrap();
        bystander.wait().unwrap();
    }

    #[test]
    fn a_program_runs_as_the_user_given_and_can_reach_its_session() {
        // SAFETY: geteuid has no preconditions.
        if unsafe { libc::geteuid() } != 0 {
            takt_witness::skip!("needs root");
            return;
        }
        let account = Account::numbered(65_534, Some(65_534));
        let script = "touch $TAKT_PROBE_DIR/mine && echo $(id -u) $(id -g) $(id -G) $USER:${SUDO_UID-none} \
            $(grep -c CapEff:.0000000000000000 /proc/self/status) $(cat ${LD_PRELOAD%%:*} | wc -c)";
        let (_launched, text) = output(script, Some(&account));
        let words: Vec<&str> = text.split_whitespace().collect();
        assert_eq!(&words[..2], ["65534", "65534"], "{text}");
        assert!(words[words.len() - 3].ends_with(":none"), "{text}");
        assert_eq!(words[words.len() - 2], "1", "no capabilities: {text}");
        assert_ne!(words[words.len() - 1], "0", "{text}");
    }

    #[test]
    fn a_program_ends_when_asked_and_its_children_with_it() {
        let session = ProbeSession::create(&ProbeOptions::default()).unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "trap 'exit 7' INT; sleep 1000 >&2 & echo $!; while :; do sleep 0.01; done"]);
        command.stdout(Stdio::piped());
        // As in a background job: nothing of ours is to be ended by it meanwhile.
        // SAFETY: plain calls; what was is put back at once.
        let mut launched = unsafe {
            let was = libc::signal(libc::SIGINT, libc::SIG_IGN);
            let launched = Launched::start(command, &session);
            libc::signal(libc::SIGINT, was);
            launched.unwrap()
        };
        assert!(launched.ended().unwrap().is_none());
        let mut line = String::new();
        BufReader::new(launched.child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let left: u32 = line.trim().parse().unwrap();
        assert!(Path::new(&format!("/proc/{left}")).exists());
        launched.end();
        let status = loop {
            if let Some(status) = launched.ended().unwrap() {
                break status;
            }
            launched.end();
            std::thread::sleep(Duration::from_millis(5));
        };
        assert_eq!(status.code(), Some(7));
        // A background job ignores SIGINT, and still does not stay behind.
        let gone = || {
            let stat = std::fs::read_to_string(format!("/proc/{left}/stat")).unwrap_or_default();
            stat.is_empty() || stat.contains(") Z ")
        };
        assert!((0..1000).any(|_| {
            std::thread::sleep(Duration::from_millis(5));
            gone()
        }));
    }
}

//! The managed program: started with the probe in its environment, ended in order.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use takt_ros::preload::Session;

/// A program under observation.
#[derive(Debug)]
pub struct Launched {
    child: Child,
    asked: Option<(usize, Instant)>,
}

/// How a program is asked to end: more and more firmly. `ros2 launch` ends its nodes at SIGINT and needs time for it.
const ASKING: [(i32, Duration); 3] = [
    (libc::SIGINT, Duration::from_secs(10)),
    (libc::SIGTERM, Duration::from_secs(5)),
    (libc::SIGKILL, Duration::from_secs(5)),
];

impl Launched {
    /// Starts `command` in the session. It gets a process group of its own: a Ctrl-C in the terminal comes to it once, from
    /// [`Launched::end`], and not a second time, which `ros2 launch` takes for impatience. Its standard input is empty for the same reason (a
    /// background group must not read the terminal).
    ///
    /// # Errors
    ///
    /// The program cannot be started.
    pub fn start(mut command: Command, session: &Session) -> io::Result<Self> {
        session.prepare(&mut command);
        command.process_group(0).stdin(Stdio::null());
        // A shell starts its background jobs with SIGINT ignored; a program that inherits that could not be ended in order.
        // SAFETY: signal is async-signal-safe and has no memory effects.
        unsafe {
            command.pre_exec(|| {
                libc::signal(libc::SIGINT, libc::SIG_DFL);
                Ok(())
            });
        }
        Ok(Self { child: command.spawn()?, asked: None })
    }

    /// Its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How it ended; `None` while it runs. What it leaves behind in its group is ended with it (SIGTERM).
    ///
    /// # Errors
    ///
    /// It cannot be asked.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
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
        // SAFETY: `info` is a valid place for the answer; WNOWAIT leaves the child to be waited for.
        let rc = unsafe { libc::waitid(libc::P_PID, self.child.id(), &mut info, flags) };
        // SAFETY: after success the field is set, to 0 where no child has ended.
        rc == 0 && unsafe { info.si_pid() } != 0
    }

    /// Asks it to end; to be called again and again until [`Launched::ended`]: it becomes firmer with time. Its whole group is asked.
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

impl Drop for Launched {
    fn drop(&mut self) {
        self.signal(libc::SIGKILL);
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::path::Path;

    use super::*;
    use takt_ros::preload::SessionOptions;

    #[test]
    fn a_program_ends_when_asked_and_its_children_with_it() {
        let session = Session::create(&SessionOptions::default()).unwrap();
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

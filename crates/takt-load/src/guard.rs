//! Nothing survives: all tools of a load run in one process group, whose leader is a shell that
//! waits on a pipe from this process. When this process ends, however it does, the pipe closes and
//! the shell ends the group.
//!
//! The parent-death signal of prctl(2) would not do: it reaches the tool but not what the tool has
//! forked, it fires when the *thread* ends that started the tool, and setting it forks this process
//! by copy-on-write, which costs its real-time threads page faults (a plain start is a vfork).

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use crate::processes;

/// The shell and its `sleep` ignore the signal that asks the others to end. A second suffices for
/// `stress-ng` and `hackbench` to end what they have forked; what is left then is killed, the shell
/// with it.
const SCRIPT: &str = "trap '' TERM INT HUP; read -r line; kill -TERM 0; sleep 1; kill -KILL 0";

/// Time to wait until killed processes are gone: only one that hangs in the kernel takes this long.
const LAST_WAIT: Duration = Duration::from_secs(2);

/// The leader of the load's process group. Dropping kills the whole group.
#[derive(Debug)]
pub(crate) struct Guard {
    shell: Child,
    /// Open as long as the load shall run.
    _pipe: Option<ChildStdin>,
}

impl Guard {
    pub(crate) fn start() -> io::Result<Self> {
        let mut shell = Command::new("/bin/sh")
            .args(["-c", SCRIPT, "takt-load-guard"])
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self { _pipe: shell.stdin.take(), shell })
    }

    /// The process group that tools are to be started in.
    pub(crate) fn group(&self) -> i32 {
        self.shell.id() as i32
    }

    /// Whether the shell is there to do its work.
    pub(crate) fn is_alive(&self) -> bool {
        processes::is_alive(self.group())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // The shell has not been waited for, so the group's number cannot have become another's.
        // SAFETY: kill takes two integers.
        unsafe { libc::kill(-self.group(), libc::SIGKILL) };
        // It has been killed and ends at once.
        let _ = self.shell.wait();
        // Killed processes may take a moment to go, and would still use CPU time then. What was
        // orphaned is waited for by others, so it can only be looked for.
        let since = Instant::now();
        while since.elapsed() < LAST_WAIT && processes::any_alive_in(self.group()) {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

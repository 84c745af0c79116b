//! Removes a session's directory when its reader is killed.
//!
//! Observed processes find the session by a path, and the loader its library, so there has to be a
//! directory. A small process outlives the reader: it reads from a pipe whose other end the reader
//! alone holds, and the kernel closes that end however the reader ends. It is the shell with `rm`,
//! because a library has no program of its own to start. Files of observed processes that go on
//! stay theirs without a name, and end with them.
//!
//! Memory without a name (`memfd`) would need no guard, and does not serve here:
//! - The loader takes `LD_PRELOAD` as a path in every program that is started under the session.
//!   `/proc/PID/fd/N` of the reader is such a path only for those that may trace the reader: not
//!   for a workload that runs as a user under a manager that runs as root, nor in another PID
//!   namespace. `/proc/self/fd/N` needs the descriptor handed down, and Python's `subprocess`
//!   (`ros2 launch`) closes what it does not know.
//! - A thread that comes later makes its ring in the process's file, by its name, because a
//!   descriptor kept open in a foreign process may be closed or replaced by it. A `memfd` cannot be
//!   opened again: each ring would be a `memfd` of its own, sent over a socket, by a connection
//!   that a real-time thread makes, and that fails when the reader does not accept in time.
//! - Another reader that takes the session up after a crash ([`super::ProbeSession::attach`]) finds
//!   the rings by the directory alone. Of a `memfd` whose reader has died nothing is left but the
//!   mapping in the observed process.
//! - A directory on a private mount goes with its mount namespace, which the workload would have to
//!   be in: it needs rights that who starts the workload has not, and hides the workload's own
//!   mounts from the rest of the machine.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Waits for the end of its input, whatever a terminal sends meanwhile, then removes what it was
/// given.
const SCRIPT: &str = "trap '' HUP INT QUIT TERM; while read -r _; do :; done; exec rm -rf -- \"$@\"";

/// A process that removes directories when this one ends. Dropping it ends it, too: the directories
/// should be gone then.
#[derive(Debug)]
pub(super) struct Guard {
    child: Child,
}

impl Guard {
    /// `None` where there is no shell: then the next session clears away what a killed one left.
    pub fn start(directories: &[&Path]) -> Option<Self> {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", SCRIPT, "takt-probe-guard"]).args(directories);
        // Nothing of the caller's environment: no preloaded library, no other `rm`.
        command.env_clear().env("PATH", "/usr/bin:/bin").current_dir("/");
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // A group of its own: what a terminal sends to the foreground does not end it.
        command.process_group(0);
        Some(Self { child: command.spawn().ok()? })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

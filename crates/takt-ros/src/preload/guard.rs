//! What clears a session's directory away when its reader is killed.
//!
//! Observed processes find the session by a path, and the loader its library, so there has to be a directory. A small process outlives the
//! reader: it reads from a pipe whose other end the reader alone holds, and the kernel closes that end however the reader ends. It is
//! the shell with `rm`, because a library has no program of its own to start. Files of observed processes that go on stay theirs
//! without a name, and end with them.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Waits for the end of its input, whatever a terminal sends meanwhile, then removes what it was given.
const SCRIPT: &str = "trap '' HUP INT QUIT TERM; while read -r _; do :; done; exec rm -rf -- \"$@\"";

/// A process that removes directories when this one ends. Dropping it ends it, too: the directories should be gone then.
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

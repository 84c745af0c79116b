//! Uprobes as named events of tracefs: defined once each, and opened on every CPU.
//!
//! Without a name (the `uprobe` PMU alone) each CPU needs probes of its own: a call then passes all
//! of them, and removing them takes as many times as long. Names are the whole system's, so they
//! carry our process's number, and what a killed process left is removed by the next; until then it
//! is a line in a list and touches nobody.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use takt_rt::mount;

const ROOTS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
const PREFIX: &str = "takt_uprobes_";

/// Groups of this process.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// Events that were defined; dropped, they are removed. Descriptors that have them open must be
/// closed before.
#[derive(Debug)]
pub struct Definitions {
    root: PathBuf,
    /// A mount of our own that is attached nowhere, where tracefs is not mounted.
    _detached: Option<OwnedFd>,
    group: String,
    names: Vec<String>,
}

impl Definitions {
    /// Opens tracefs where it is mounted, or can be opened, and may be written; `None`: nowhere.
    pub fn new() -> Option<Self> {
        let mounted = ROOTS.iter().map(PathBuf::from).find(|root| is_writable(root));
        let (root, detached) = match mounted {
            Some(root) => (root, None),
            None => {
                let mount = mount::detached(c"tracefs").ok()?;
                let root = PathBuf::from(format!("/proc/self/fd/{}", mount.as_raw_fd()));
                (Some(root).filter(|root| is_writable(root))?, Some(mount))
            }
        };
        sweep(&root);
        let group = format!("{PREFIX}{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        Some(Self { root, _detached: detached, group, names: Vec::new() })
    }

    /// Defines an event at `offset` of the file; returns its number. A path with blanks or colons
    /// cannot be written there.
    pub fn add(&mut self, function: &str, path: &Path, offset: u64) -> io::Result<u64> {
        let path = path.to_str().filter(|path| !path.contains([' ', ':', '\n', '\t']));
        let path = path.ok_or(io::ErrorKind::InvalidInput)?;
        let name = format!("{function}_{}", self.names.len());
        write(&self.root, &format!("p:{}/{name} {path}:{offset:#x}\n", self.group))?;
        let id = fs::read_to_string(self.root.join("events").join(&self.group).join(&name).join("id"));
        self.names.push(name);
        id?.trim().parse().map_err(|_| io::ErrorKind::InvalidData.into())
    }
}

impl Drop for Definitions {
    fn drop(&mut self) {
        for name in &self.names {
            // The kernel may hold it for a moment after the last event was closed.
            for _ in 0..50 {
                match write(&self.root, &format!("-:{}/{name}\n", self.group)) {
                    Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                        std::thread::sleep(std::time::Duration::from_millis(20));
                    }
                    _ => break,
                }
            }
        }
    }
}

fn is_writable(root: &Path) -> bool {
    OpenOptions::new().append(true).open(root.join("uprobe_events")).is_ok()
}

/// Appends; opened otherwise, the kernel would remove everybody's events.
fn write(root: &Path, line: &str) -> io::Result<()> {
    OpenOptions::new().append(true).open(root.join("uprobe_events"))?.write_all(line.as_bytes())
}

/// Removes what processes that have gone left.
fn sweep(root: &Path) {
    let list = fs::read_to_string(root.join("uprobe_events")).unwrap_or_default();
    for event in list.lines().filter_map(abandoned) {
        let _ = write(root, &format!("-:{event}\n"));
    }
}

/// The event of a line, if a process of ours defined it that has gone.
fn abandoned(line: &str) -> Option<&str> {
    let event = line.strip_prefix("p:")?.split_ascii_whitespace().next()?;
    let (pid, _) = event.strip_prefix(PREFIX)?.split_once('_')?;
    let pid: u32 = pid.parse().ok()?;
    (!takt_rt::procfs::exists(pid)).then_some(event)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_events_of_ours_whose_process_has_gone_are_removed() {
        let own = std::process::id();
        assert_eq!(
            abandoned("p:takt_uprobes_4194399_0/x_1 /lib/a.so:0x10"),
            Some("takt_uprobes_4194399_0/x_1")
        );
        assert_eq!(abandoned(&format!("p:takt_uprobes_{own}_0/x_1 /lib/a.so:0x10")), None);
        assert_eq!(abandoned("p:probe_bash/readline /bin/bash:0x10"), None);
        assert_eq!(abandoned("r:takt_uprobes_4194399_0/x_1 /lib/a.so:0x10"), None);
        assert_eq!(abandoned("p:takt_uprobes_x_0/y /a:0x1"), None);
    }
}

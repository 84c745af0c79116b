//! A file of the kernel that holds another value for a while, and gets its own back however this
//! process ends.
//!
//! As for CPUs that are taken [offline](crate::offline), a guard stands beside: a shell that reads
//! from a pipe which nobody writes to, and which the kernel closes with this process.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Paths of `sched_nr_migrate`, the largest number of tasks that the scheduler moves at once with
/// interrupts off: a sysctl before Linux 5.13, in debugfs since. The default is 32, or 8 with
/// PREEMPT_RT.
pub const NR_MIGRATE: [&str; 2] = ["/proc/sys/kernel/sched_nr_migrate", "/sys/kernel/debug/sched/nr_migrate"];

/// Only what a shell has built in.
const GUARD: &str = "trap '' HUP INT QUIT TERM; while read -r _; do :; done; printf %s \"$2\" > \"$1\"";

/// Reason why a file does not hold the requested value.
#[derive(Debug, thiserror::Error)]
pub enum KernelFileError {
    /// None of the places where kernels have it is there.
    #[error(
        "this kernel has no {what}: none of {} is there (built without CONFIG_SCHED_DEBUG, or debugfs is not mounted). Fix: `sudo mount -t \
         debugfs none /sys/kernel/debug`, or use a kernel that has it",
        paths.join(", ")
    )]
    Absent {
        /// Its name.
        what: &'static str,
        /// The paths that were tried.
        paths: Vec<String>,
    },
    /// It cannot be read or written.
    #[error("{}: {source}. Fix: {}", path.display(), way_out(source))]
    File {
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// It holds another value than the one written.
    #[error("{}: wrote {asked}, but it reads back {found}", path.display())]
    ReadsBack {
        /// The file.
        path: PathBuf,
        /// The written value.
        asked: String,
        /// The value read back.
        found: String,
    },
    /// Nobody would put the value back after a kill.
    #[error("{}: not changed, because the guard that restores the value after a kill cannot start: /bin/sh: {source}", path.display())]
    Guard {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
}

/// Root is refused where the kernel is locked down: debugfs can then not even be read.
fn way_out(refused: &io::Error) -> &'static str {
    // SAFETY: geteuid takes nothing and always succeeds.
    let is_root = unsafe { libc::geteuid() } == 0;
    match refused.kind() {
        io::ErrorKind::PermissionDenied if is_root => {
            "this kernel refuses it to root: see /sys/kernel/security/lockdown (`integrity` and `confidentiality` close debugfs; \
             Secure Boot sets them), or the container's rights"
        }
        io::ErrorKind::PermissionDenied => "run as root",
        _ => "none is known; the value stays as it was",
    }
}

/// A file with another value than its own. Dropping it puts the own one back.
#[derive(Debug)]
pub struct Changed {
    path: PathBuf,
    before: String,
    guard: Option<Child>,
}

impl Changed {
    /// Gives `what` the value `value`, in the first of `paths` that is there.
    ///
    /// # Errors
    /// [`KernelFileError`]; nothing is changed then.
    pub fn first_of(what: &'static str, paths: &[&str], value: &str) -> Result<Self, KernelFileError> {
        match paths.iter().map(Path::new).find(|path| path.exists()) {
            Some(path) => Self::set(path, value),
            None => {
                let paths = paths.iter().map(|path| (*path).to_owned()).collect();
                Err(KernelFileError::Absent { what, paths })
            }
        }
    }

    /// Writes `value` and reads it back.
    ///
    /// # Errors
    /// [`KernelFileError`]; nothing is changed then.
    pub fn set(path: &Path, value: &str) -> Result<Self, KernelFileError> {
        let failed = |source| KernelFileError::File { path: path.to_owned(), source };
        let read = || fs::read_to_string(path).map(|text| text.trim().to_owned());
        let before = read().map_err(failed)?;
        let guard = guard(path, &before)
            .map_err(|source| KernelFileError::Guard { path: path.to_owned(), source })?;
        // From here on dropping puts it back.
        let changed = Self { path: path.to_owned(), before, guard: Some(guard) };
        fs::write(path, value).map_err(failed)?;
        let found = read().map_err(failed)?;
        if found != value {
            return Err(KernelFileError::ReadsBack { path: path.to_owned(), asked: value.to_owned(), found });
        }
        Ok(changed)
    }

    /// The file, and the value that it had.
    pub fn before(&self) -> (&Path, &str) {
        (&self.path, &self.before)
    }

    /// Puts the own value back; a sentence where that fails.
    pub fn restore(mut self) -> Option<String> {
        self.put_back()
    }

    fn put_back(&mut self) -> Option<String> {
        let mut guard = self.guard.take()?;
        let (path, before) = (self.path.display(), &self.before);
        let failed = fs::write(&self.path, &self.before)
            .err()
            .map(|error| format!("{path} was not restored: {error}. Fix: `echo {before} | sudo tee {path}`"));
        // Its pipe ends; it writes the same once more and ends.
        drop(guard.stdin.take());
        let _ = guard.wait();
        failed
    }
}

impl Drop for Changed {
    fn drop(&mut self) {
        // A failure here was tried twice; nobody is left to inform.
        let _ = self.put_back();
    }
}

fn guard(path: &Path, before: &str) -> io::Result<Child> {
    Command::new("/bin/sh")
        .args(["-c", GUARD, "takt-file"])
        .arg(path)
        .arg(before)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn a_value_goes_and_comes_back_and_what_is_not_there_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nr_migrate");
        fs::write(&path, "32\n").unwrap();
        let read = || fs::read_to_string(&path).unwrap().trim().to_owned();
        let absent = folder.path().join("gone");
        let paths = [absent.to_str().unwrap(), path.to_str().unwrap()];
        let changed = Changed::first_of("sched_nr_migrate", &paths, "8").unwrap();
        assert_eq!((read().as_str(), changed.before()), ("8", (path.as_path(), "32")));
        assert_eq!(changed.restore(), None);
        assert_eq!(read(), "32");
        drop(Changed::set(&path, "4").unwrap());
        assert_eq!(read(), "32");
        let error = Changed::first_of("sched_nr_migrate", &paths[..1], "8").unwrap_err().to_string();
        assert!(
            error.contains("sched_nr_migrate") && error.contains("debugfs") && error.contains("gone"),
            "{error}"
        );
        // A file that takes what it likes.
        let error =
            Changed::set(Path::new("/proc/self/comm"), "a name of more than fifteen letters").unwrap_err();
        assert!(matches!(error, KernelFileError::ReadsBack { .. }), "{error}");
    }

    #[test]
    fn root_is_not_sent_to_become_root() {
        // SAFETY: geteuid takes nothing and always succeeds.
        let is_root = unsafe { libc::geteuid() } == 0;
        let refused = KernelFileError::File {
            path: "/sys/kernel/debug/sched/nr_migrate".into(),
            source: io::Error::from_raw_os_error(libc::EPERM),
        };
        let message = refused.to_string();
        assert_eq!(message.contains("lockdown"), is_root, "{message}");
        assert_eq!(message.contains("Fix: run as root"), !is_root, "{message}");
    }

    #[test]
    fn after_a_kill_the_guard_puts_it_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("it's a file");
        fs::write(&path, "32").unwrap();
        let mut changed = Changed::set(&path, "8").unwrap();
        // As after a kill: the pipe ends, and nothing of `Drop` happens.
        let mut guard = changed.guard.take().unwrap();
        drop(changed);
        assert_eq!(fs::read_to_string(&path).unwrap(), "8");
        drop(guard.stdin.take());
        let until = Instant::now() + Duration::from_secs(30);
        while fs::read_to_string(&path).unwrap() != "32" {
            assert!(Instant::now() < until, "the guard does not put it back");
            std::thread::sleep(Duration::from_millis(5));
        }
        guard.wait().unwrap();
    }
}

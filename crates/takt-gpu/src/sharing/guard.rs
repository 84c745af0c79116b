//! A guard that ends with this process, however that ends: a shell waits on a pipe from it, and
//! when the pipe closes it ends the service or restores the setting.

use std::fs::File;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use super::{SharingError, find};
use crate::mps::{self, LOG_VARIABLE, Mps, PIPE_VARIABLE};

/// The service's control program.
const CONTROL: &str = "nvidia-cuda-mps-control";

/// Runs the service in the foreground, asks it to end when nobody holds standard input any more,
/// kills it where it does not within five seconds, and takes its folder away.
const SERVE: &str = r#"trap '' HUP INT TERM
( "$1" -f </dev/null >"$2/said" 2>&1; echo "$?" >"$2/ended" ) >/dev/null &
read -r line
( echo "quit -t 2" | "$1" ) >/dev/null 2>&1 &
n=0
while [ ! -e "$2/ended" ] && [ $n -lt 100 ]; do sleep 0.05; n=$((n + 1)); done
rm -rf "$2"
kill -KILL 0"#;

/// Longest time until the service can be reached.
const START_PATIENCE: Duration = Duration::from_secs(10);

/// Longest time until the shell has done its work.
const END_PATIENCE: Duration = Duration::from_secs(12);

/// Between two looks.
const LOOK: Duration = Duration::from_millis(10);

fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> SharingError {
    let what = what.into();
    move |error| SharingError::System { what, why: error.to_string() }
}

/// Keeps other runs from sharing the same device in another way. A process that has the file open
/// holds the lock: this one, and the shell that outlives it until everything is restored.
#[derive(Debug)]
pub(super) struct Lock(File);

impl Lock {
    pub(super) fn take(ordinal: u32) -> Result<Self, SharingError> {
        let usual = Path::new("/run/lock");
        let folder = if usual.is_dir() { usual.to_path_buf() } else { std::env::temp_dir() };
        let path = folder.join(format!("takt-gpu-{ordinal}.lock"));
        let file = takt_files::open_lock(&path).map_err(system(path.display().to_string()))?;
        match file.try_lock() {
            Ok(()) => Ok(Self(file)),
            Err(std::fs::TryLockError::WouldBlock) => {
                Err(SharingError::Taken { lock: path.display().to_string(), ordinal })
            }
            Err(std::fs::TryLockError::Error(error)) => Err(system(path.display().to_string())(error)),
        }
    }
}

/// The shell.
#[derive(Debug)]
pub(super) struct Guard {
    shell: Child,
    /// Open as long as this lives.
    pipe: Option<ChildStdin>,
}

impl Guard {
    /// Runs `script` with `arguments`.
    pub(super) fn start(
        script: &str,
        arguments: &[&std::ffi::OsStr],
        variables: &[(&str, &Path)],
        lock: Lock,
    ) -> io::Result<Self> {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script, "takt-gpu-guard"]).args(arguments);
        command.envs(variables.iter().copied());
        // A group of its own: Ctrl-C is for this process, and the script kills the group.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::from(lock.0)).stderr(Stdio::null());
        let mut shell = command.spawn()?;
        Ok(Self { pipe: shell.stdin.take(), shell })
    }

    /// Lets the shell do its work and waits for it; whether it is done.
    pub(super) fn end(&mut self) -> bool {
        self.pipe = None;
        let until = Instant::now() + END_PATIENCE;
        while Instant::now() < until {
            if !matches!(self.shell.try_wait(), Ok(None)) {
                return true;
            }
            std::thread::sleep(LOOK);
        }
        false
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.end();
    }
}

/// The service, started here.
#[derive(Debug)]
pub(super) struct Daemon {
    folder: PathBuf,
    guard: Guard,
}

impl Daemon {
    /// Starts it and waits until it can be reached.
    pub(super) fn start(ordinal: u32) -> Result<Self, SharingError> {
        let program = find(
            CONTROL,
            "install the driver's MPS (Debian: nvidia-cuda-mps), or use another gpu.sharing.way",
        )?;
        let lock = Lock::take(ordinal)?;
        let stamp = takt_rt::clock::monotonic_ns();
        // Short: sockets lie in it, whose paths are of at most 107 bytes.
        let folder = std::env::temp_dir().join(format!("takt-mps-{}-{stamp:x}", std::process::id()));
        let mut builder = std::fs::DirBuilder::new();
        builder.mode(0o700);
        for part in [folder.clone(), folder.join("pipe"), folder.join("log")] {
            builder.create(&part).map_err(system(part.display().to_string()))?;
        }
        let variables = [(PIPE_VARIABLE, &*folder.join("pipe")), (LOG_VARIABLE, &*folder.join("log"))];
        let arguments = [program.as_os_str(), folder.as_os_str()];
        let guard = Guard::start(SERVE, &arguments, &variables, lock).map_err(|error| {
            let _ = std::fs::remove_dir_all(&folder);
            system("/bin/sh")(error)
        })?;
        let daemon = Self { folder, guard };
        let until = Instant::now() + START_PATIENCE;
        while !matches!(mps::look_in(&daemon.pipe()), Mps::Running(_)) {
            let ended = daemon.folder.join("ended").exists();
            if ended || Instant::now() > until {
                let message = std::fs::read_to_string(daemon.folder.join("said")).unwrap_or_default();
                let message = message.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("nothing");
                let how = if ended { "ended at once" } else { "cannot be reached after 10 s" };
                let why = format!("{how}; its message: {}", message.trim());
                let fix =
                    "check that the driver works (`nvidia-smi`) and that no other user's MPS is running";
                return Err(SharingError::Tool { tool: CONTROL, why, fix });
            }
            std::thread::sleep(LOOK);
        }
        Ok(daemon)
    }

    pub(super) fn pipe(&self) -> PathBuf {
        self.folder.join("pipe")
    }

    pub(super) fn end(mut self) -> Result<(), SharingError> {
        if self.guard.end() && !self.folder.exists() {
            return Ok(());
        }
        let (tool, why) = (CONTROL, format!("did not end within {} s", END_PATIENCE.as_secs()));
        Err(SharingError::Tool { tool, why, fix: "end it: `echo quit | nvidia-cuda-mps-control`" })
    }
}

//! A session: the directory where observed processes and the reader meet, and the environment that
//! brings processes there.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use super::guard::Guard;
use super::probe::{MAX_PROCESSES, Probe, ProbeError};
use crate::procfs::started;
use crate::standin::STAND_IN;

/// The library that is loaded into processes.
const PROBE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libtakt_probe.so"));

const PREFIX: &str = "takt-probe-";
/// Number of the next session of this process.
static NEXT: AtomicU64 = AtomicU64::new(0);
/// Locked while the session lives.
const LOCK: &str = "session.lock";

/// Events with CPU time: reading that clock is a system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CpuClock {
    /// Starts and ends of callbacks, publications, an executor's waits: all that the model is made
    /// of.
    #[default]
    Needed,
    /// Every event.
    All,
    /// None: execution times are then wall times.
    None,
}

/// Options of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ProbeOptions {
    /// KiB of each thread's ring; 256: some 8,000 events, seconds of the busiest executor, should
    /// the reader be held up.
    pub ring_kib: u32,
    /// Events with CPU time.
    pub cpu_clock: CpuClock,
    /// Brings the stand-in for `libtracetools.so` too, for workloads without ROS. Off: a real ROS
    /// has its own.
    pub stand_in: bool,
    /// Parent of the directory; by default `/dev/shm`, where nothing is ever written to a disk,
    /// otherwise the temporary directory.
    pub base: Option<PathBuf>,
}

impl Default for ProbeOptions {
    fn default() -> Self {
        Self { ring_kib: 256, cpu_clock: CpuClock::Needed, stand_in: false, base: None }
    }
}

impl ProbeOptions {
    /// # Errors
    ///
    /// A ring size out of range.
    pub fn validate(&self) -> Result<(), ProbeSessionError> {
        match self.ring_kib {
            32..=65536 => Ok(()),
            found => Err(ProbeSessionError::RingSize { found }),
        }
    }
}

/// Reason why there is no session.
#[derive(Debug, thiserror::Error)]
pub enum ProbeSessionError {
    /// Ring size out of range.
    #[error("ring_kib is {found}; 32 to 65536 are possible")]
    RingSize { found: u32 },
    /// The directory, or what belongs into it, cannot be made.
    #[error("{}: {source}; name another place with `base`", path.display())]
    Make {
        /// Path that could not be made.
        path: PathBuf,
        source: io::Error,
    },
    /// The loader takes blanks and colons in `LD_PRELOAD` for separators.
    #[error("{}: the loader cannot take a path with blanks or colons; name another place with `base`", path.display())]
    Path { path: PathBuf },
    /// Nowhere to put the library.
    #[error(
        "all of {tried:?} are mounted noexec, so the library cannot be loaded from there; name another place with `base`"
    )]
    NoExec { tried: Vec<PathBuf> },
    /// Not a session's directory.
    #[error("{} is not a session of the probe: {source}", path.display())]
    NoSession { path: PathBuf, source: io::Error },
    /// Somebody else reads it.
    #[error("{}: another process is reading this session", path.display())]
    Taken { path: PathBuf },
}

/// A session; its directory goes when it is dropped.
#[derive(Debug)]
pub struct ProbeSession {
    directory: PathBuf,
    /// Folder of the libraries: the directory itself, or another from which programs may be
    /// executed.
    libraries: PathBuf,
    options: ProbeOptions,
    _lock: File,
    /// Clears away when this process is killed.
    _guard: Option<Guard>,
}

impl ProbeSession {
    /// Makes a directory and puts the libraries there. It goes with this process, however that
    /// ends; what an earlier session left all the same goes now.
    ///
    /// # Errors
    ///
    /// Options out of range, or nowhere to make the directory.
    pub fn create(options: &ProbeOptions) -> Result<Self, ProbeSessionError> {
        options.validate()?;
        let bases = match &options.base {
            Some(base) => vec![base.clone()],
            None => vec![PathBuf::from("/dev/shm"), std::env::temp_dir()],
        };
        bases.iter().for_each(|base| sweep(base));
        let mut first_error = None;
        let made = bases.iter().find_map(|base| match make_directory(base) {
            Ok(made) => Some(made),
            Err(error) => {
                first_error.get_or_insert(error);
                None
            }
        });
        let Some((directory, lock)) = made else {
            return Err(first_error.unwrap_or(ProbeSessionError::NoExec { tried: bases }));
        };
        let mut session = Self {
            libraries: directory.clone(),
            directory,
            options: options.clone(),
            _lock: lock,
            _guard: None,
        };
        session.place_libraries(&bases)?;
        session._guard = Guard::start(&[&session.directory, &session.libraries]);
        Ok(session)
    }

    /// Takes up a session whose reader has let go of it, by the directory that its processes still
    /// write to. A reader that was killed leaves none, but where there is no shell to clear away.
    ///
    /// # Errors
    ///
    /// No session is there, or it is being read.
    pub fn attach(directory: &Path) -> Result<Self, ProbeSessionError> {
        let no_session = |source| ProbeSessionError::NoSession { path: directory.to_owned(), source };
        let lock = takt_files::open(&directory.join(LOCK)).map_err(no_session)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(ProbeSessionError::Taken { path: directory.to_owned() });
            }
            Err(TryLockError::Error(source)) => return Err(no_session(source)),
        }
        let options = takt_files::read(&directory.join("options.json"), takt_files::CONFIGURATION_BYTES)
            .map_err(no_session)?;
        let options = serde_json::from_slice(&options).map_err(|error| no_session(error.into()))?;
        let libraries = directory.to_owned();
        let guard = Guard::start(&[directory]);
        Ok(Self { _guard: guard, directory: directory.to_owned(), libraries, options, _lock: lock })
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The reading side.
    ///
    /// # Errors
    ///
    /// The directory cannot be read.
    pub fn probe(&self) -> Result<Probe, ProbeError> {
        Probe::open(&self.directory)
    }

    /// Environment of a process to be observed; `preloaded` is the existing content of
    /// `LD_PRELOAD`.
    pub fn environment(&self, preloaded: Option<OsString>) -> Vec<(&'static str, OsString)> {
        let mut preload = self.libraries.join("libtakt_probe.so").into_os_string();
        if self.options.stand_in {
            preload.push(":");
            preload.push(self.libraries.join("libtracetools.so"));
        }
        if let Some(others) = preloaded.filter(|others| !others.is_empty()) {
            preload.push(":");
            preload.push(others);
        }
        let cpu = match self.options.cpu_clock {
            CpuClock::Needed => "needed",
            CpuClock::All => "all",
            CpuClock::None => "none",
        };
        vec![
            ("LD_PRELOAD", preload),
            ("TAKT_PROBE_DIR", self.directory.clone().into_os_string()),
            ("TAKT_PROBE_RING_KIB", self.options.ring_kib.to_string().into()),
            ("TAKT_PROBE_CPU", cpu.into()),
        ]
    }

    /// Makes `command`, and all that it starts, observed.
    pub fn prepare<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.envs(self.environment(std::env::var_os("LD_PRELOAD")))
    }

    /// Gives the directory, with the libraries in it, to another user, whose processes are to be
    /// observed.
    ///
    /// # Errors
    ///
    /// The system refuses, as it does without privilege.
    pub fn give_to(&self, uid: u32, gid: u32) -> io::Result<()> {
        for folder in [&self.directory, &self.libraries] {
            for name in ["libtakt_probe.so", "libtracetools.so", "options.json"] {
                let file = folder.join(name);
                if file.symlink_metadata().is_ok() {
                    std::os::unix::fs::lchown(&file, Some(uid), Some(gid))?;
                }
            }
            // Last: from then on that user may change what is in there.
            std::os::unix::fs::lchown(folder, Some(uid), Some(gid))?;
        }
        Ok(())
    }

    fn place_libraries(&mut self, bases: &[PathBuf]) -> Result<(), ProbeSessionError> {
        let mut tried = vec![self.directory.clone()];
        if forbids_execution(&self.directory) {
            // Its own directory elsewhere, under the same name.
            let name = self.directory.file_name().unwrap_or_default().to_owned();
            let home = std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache"));
            let elsewhere = bases.iter().cloned().chain([std::env::temp_dir()]).chain(home);
            let found = elsewhere.filter(|base| base.is_dir()).find(|base| {
                tried.push(base.clone());
                !forbids_execution(base)
            });
            let Some(base) = found else { return Err(ProbeSessionError::NoExec { tried }) };
            let path = base.join(name);
            DirBuilder::new().mode(0o700).create(&path).map_err(make(&path))?;
            self.libraries = path;
        }
        for (name, bytes) in [("libtakt_probe.so", PROBE), ("libtracetools.so", STAND_IN)] {
            let path = self.libraries.join(name);
            if path.as_os_str().as_bytes().iter().any(|byte| byte.is_ascii_whitespace() || *byte == b':') {
                return Err(ProbeSessionError::Path { path });
            }
            write_new(&path, bytes, 0o700)?;
        }
        let options = serde_json::to_vec(&self.options).unwrap_or_default();
        write_new(&self.directory.join("options.json"), &options, 0o600)
    }
}

impl Drop for ProbeSession {
    fn drop(&mut self) {
        // Processes that go on write into files without a name, which end with them.
        let _ = fs::remove_dir_all(&self.directory);
        if self.libraries != self.directory {
            let _ = fs::remove_dir_all(&self.libraries);
        }
    }
}

fn make(path: &Path) -> impl FnOnce(io::Error) -> ProbeSessionError {
    let path = path.to_owned();
    move |source| ProbeSessionError::Make { path, source }
}

fn write_new(path: &Path, bytes: &[u8], mode: u32) -> Result<(), ProbeSessionError> {
    let mut options = File::options();
    let file = options.write(true).create_new(true).mode(mode).open(path);
    file.and_then(|mut file| file.write_all(bytes)).map_err(make(path))
}

/// A new directory, for this user alone, with its lock held.
fn make_directory(base: &Path) -> Result<(PathBuf, File), ProbeSessionError> {
    let pid = std::process::id();
    for _ in 0..1000 {
        // Never twice in a process: the guard of a session that has just ended may still be
        // removing its directory.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let directory = base.join(format!("{PREFIX}{pid}-{number}"));
        match DirBuilder::new().mode(0o700).create(&directory) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
            Err(error) => return Err(make(&directory)(error)),
        }
        let path = directory.join(LOCK);
        let lock =
            File::create_new(&path).and_then(|lock| lock.lock().map(|()| lock)).map_err(make(&path))?;
        return Ok((directory, lock));
    }
    Err(make(base)(io::ErrorKind::AlreadyExists.into()))
}

/// Removes the directories of sessions whose maker and processes have gone, and that nobody has
/// taken up.
fn sweep(base: &Path) {
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let maker = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('-').next()?.parse().ok());
        // While its maker runs it may be half made: not locked yet.
        if maker.is_none_or(|maker| started(maker).is_some()) {
            continue;
        }
        // Anybody can plant such a name here: a link leads elsewhere, and a lock that is no plain
        // file would be waited for.
        let path = entry.path();
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        let Ok(lock) = takt_files::open(&path.join(LOCK)) else { continue };
        if lock.try_lock().is_ok() && !has_processes(&path) {
            let _ = fs::remove_dir_all(&path);
        }
    }
}

/// Whether a file belongs to a process that still runs: somebody may take the session up again.
fn has_processes(directory: &Path) -> bool {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    // More than there can be: somebody else's, and left alone.
    let mut left = MAX_PROCESSES;
    entries.into_iter().any(|entry| {
        left = left.saturating_sub(1);
        left == 0
            || matches!(super::process::Process::open(&entry.path()), Ok(Some(process)) if process.info.alive)
    })
}

fn forbids_execution(path: &Path) -> bool {
    let Ok(path) = std::ffi::CString::new(path.as_os_str().as_bytes()) else { return false };
    let mut stat = std::mem::MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: the path ends in zero; the kernel fills the structure when it returns 0, and only
    // then is it read.
    unsafe {
        libc::statvfs(path.as_ptr(), stat.as_mut_ptr()) == 0
            && stat.assume_init().f_flag & libc::ST_NOEXEC != 0
    }
}

//! Work of an init before anything can run: file systems, modules, loopback, and the shutdown.

use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::mount::MountFlags;
use rustix::system::RebootCommand;

use super::order::{MODULES_PATH, RESULTS_PATH};
use crate::transport::Hello;

/// Error of setting up the guest.
#[derive(Debug, thiserror::Error)]
pub enum SystemError {
    /// A directory or a mount.
    #[error("cannot mount {kind} on {at}: {source}")]
    Mount { kind: &'static str, at: &'static str, source: io::Error },
    #[error("cannot load the module {path}: {source}. Does it belong to this kernel ({release})?")]
    Module { path: PathBuf, release: String, source: io::Error },
    /// A file of the image.
    #[error("cannot read {path}: {source}")]
    Read { path: PathBuf, source: io::Error },
}

struct Mount {
    kind: &'static str,
    at: &'static str,
    options: &'static std::ffi::CStr,
    /// Not in every kernel's configuration; nothing that a guest must have.
    optional: bool,
}

const fn mount(kind: &'static str, at: &'static str) -> Mount {
    Mount { kind, at, options: c"", optional: false }
}

const MOUNTS: [Mount; 9] = [
    mount("proc", "/proc"),
    mount("sysfs", "/sys"),
    mount("devtmpfs", "/dev"),
    Mount { kind: "devpts", at: "/dev/pts", options: c"", optional: true },
    mount("tmpfs", "/dev/shm"),
    Mount { kind: "tmpfs", at: RESULTS_PATH, options: c"size=90%", optional: false },
    Mount { kind: "cgroup2", at: "/sys/fs/cgroup", options: c"", optional: true },
    Mount { kind: "debugfs", at: "/sys/kernel/debug", options: c"", optional: true },
    Mount { kind: "tracefs", at: "/sys/kernel/tracing", options: c"", optional: true },
];

/// Mounts what programs expect. `/tmp` and `/run` stay where the image put them: in memory, too.
pub(crate) fn mount_all() -> Result<(), SystemError> {
    for directory in ["/tmp", "/run", "/root"] {
        if let Err(error) = fs::create_dir_all(directory) {
            eprintln!("takt-guest: without {directory}: {error}");
        }
    }
    for Mount { kind, at, options, optional } in MOUNTS {
        // Below /sys the directories are the kernel's, and missing where it has no such file
        // system.
        let made = fs::create_dir_all(at);
        let done = made.and_then(|()| {
            rustix::mount::mount(kind, at, kind, MountFlags::empty(), options).map_err(io::Error::from)
        });
        match done {
            Err(source) if !optional => return Err(SystemError::Mount { kind, at, source }),
            Err(source) => eprintln!("takt-guest: without {kind}: {source}"),
            Ok(()) => {}
        }
    }
    Ok(())
}

/// Loads the modules of the image's list, in its order. No list: a kernel that needs none.
pub(crate) fn load_modules() -> Result<usize, SystemError> {
    let list = match fs::read_to_string(MODULES_PATH) {
        Ok(list) => list,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(source) => return Err(SystemError::Read { path: MODULES_PATH.into(), source }),
    };
    let mut loaded = 0;
    for path in list.lines().map(str::trim).filter(|line| !line.is_empty()).map(PathBuf::from) {
        let file =
            fs::File::open(&path).map_err(|source| SystemError::Read { path: path.clone(), source })?;
        match rustix::system::finit_module(&file, c"", 0) {
            Ok(()) => loaded += 1,
            // Loaded already, or part of the kernel.
            Err(rustix::io::Errno::EXIST) => {}
            Err(error) => {
                let release = rustix::system::uname().release().to_string_lossy().into_owned();
                return Err(SystemError::Module { path, release, source: error.into() });
            }
        }
    }
    Ok(loaded)
}

/// Brings the loopback interface up; the kernel gives it 127.0.0.1 then.
pub(crate) fn loopback_up() -> io::Result<()> {
    let socket = rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::DGRAM, None)?;
    // SAFETY: ifreq is plain data, for which zeros are valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = *from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: SIOCSIFFLAGS reads an ifreq, which lives until the call returns.
    let answer = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Locked memory and real-time priorities without limits, as a service file of a robot would grant
/// them.
pub(crate) fn lift_limits() -> io::Result<()> {
    use rustix::process::{Resource, Rlimit, setrlimit};
    let unlimited = Rlimit { current: None, maximum: None };
    setrlimit(Resource::Memlock, unlimited)?;
    setrlimit(Resource::Rtprio, unlimited)?;
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: None })?;
    Ok(())
}

/// CLOCK_MONOTONIC, nanoseconds.
pub fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

fn line(path: impl AsRef<Path>) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

/// The guest's description of itself.
pub fn hello() -> Hello {
    let name = rustix::system::uname();
    let memory_kib = line("/proc/meminfo")
        .and_then(|text| text.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()))
        .unwrap_or(0);
    Hello {
        release: name.release().to_string_lossy().into_owned(),
        version: name.version().to_string_lossy().into_owned(),
        realtime: line("/sys/kernel/realtime").map(|text| text == "1"),
        preempt: line("/sys/kernel/debug/sched/preempt"),
        command_line: line("/proc/cmdline").unwrap_or_default(),
        // Not those that this process may use: isolated ones count, too.
        cpus: line("/proc/cpuinfo").map_or(1, |text| text.matches("processor\t").count()),
        memory_kib,
        clock_source: line("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        at_ns: now_ns(),
    }
}

/// The kernel's log so far.
pub(crate) fn kernel_log() -> io::Result<String> {
    use std::io::Read;
    use std::os::unix::fs::OpenOptionsExt;
    let mut log = fs::OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open("/dev/kmsg")?;
    let (mut text, mut record) = (String::new(), [0u8; 8192]);
    loop {
        match log.read(&mut record) {
            Ok(0) => return Ok(text),
            Ok(length) => text.push_str(&record_text(&String::from_utf8_lossy(&record[..length]))),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(text),
            // The oldest record was overwritten while it was read: the next one comes.
            Err(error) if error.raw_os_error() == Some(libc::EPIPE) => {}
            Err(error) => return Err(error),
        }
    }
}

/// `6,123,4567890,-;text` as dmesg prints it.
fn record_text(record: &str) -> String {
    let Some((head, text)) = record.split_once(';') else { return String::new() };
    let microseconds: u64 = head.split(',').nth(2).and_then(|field| field.parse().ok()).unwrap_or(0);
    let text = text.lines().next().unwrap_or("");
    format!("[{:5}.{:06}] {text}\n", microseconds / 1_000_000, microseconds % 1_000_000)
}

/// Switches the machine off. Comes back only where the kernel refuses.
pub fn power_off() -> ! {
    rustix::fs::sync();
    loop {
        if let Err(error) = rustix::system::reboot(RebootCommand::PowerOff) {
            eprintln!("takt-guest: cannot power off: {error}");
        }
        std::thread::sleep(Duration::from_secs(3600));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_records_read_like_dmesg() {
        assert_eq!(record_text("6,339,5140900,-;NET: up\n SUBSYSTEM=x\n"), "[    5.140900] NET: up\n");
        assert_eq!(record_text("garbage"), "");
    }
}

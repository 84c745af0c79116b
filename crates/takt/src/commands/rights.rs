//! `takt doctor --rights`: what each command may do as this user. Everything is tried and given
//! back at once; nothing is concluded from groups or capabilities.

use std::fmt;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde::Serialize;
use takt_host::doctor::{Check, Status, rights};
use takt_rt::packet::{Layer, PacketSocket};
use takt_watch::{Target, look_ahead};

use super::CommandResult;

/// The group that packages of Takt make.
const GROUP: &str = "takt";

/// One thing that a command does.
#[derive(Debug, Serialize)]
struct Right {
    /// Stable name, for programs.
    id: &'static str,
    /// Who needs it.
    command: &'static str,
    /// What it is.
    what: &'static str,
    /// Whether it works; null where there is nothing here to try it on.
    possible: Option<bool>,
    /// What happened when it was tried.
    evidence: String,
    /// The line that mends it; null where nothing is to be mended.
    fix: Option<String>,
}

impl Right {
    fn new(id: &'static str, command: &'static str, what: &'static str) -> Self {
        Self { id, command, what, possible: None, evidence: String::new(), fix: None }
    }

    fn works(self, evidence: impl Into<String>) -> Self {
        Self { possible: Some(true), evidence: evidence.into(), ..self }
    }

    fn refused(self, evidence: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { possible: Some(false), evidence: evidence.into(), fix: Some(fix.into()), ..self }
    }

    fn nothing_here(self, evidence: impl Into<String>) -> Self {
        Self { evidence: evidence.into(), ..self }
    }

    /// A finding of the doctor's. One that only warns works in part.
    fn of(self, check: Check) -> Self {
        match check.status {
            Status::Ok => self.works(check.evidence),
            Status::Unknown => self.nothing_here(check.evidence),
            Status::Warn | Status::Fail => {
                let fix = check.fix.unwrap_or_else(|| "run as root".to_owned());
                self.refused(check.evidence, in_group().unwrap_or(fix))
            }
        }
    }
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = match self.possible {
            Some(true) => "yes",
            Some(false) => "NO",
            None => "-",
        };
        write!(f, "{mark:4} {:28} {}\n     {}", self.command, self.what, self.evidence)?;
        match &self.fix {
            Some(fix) => write!(f, "\n     mend: {fix}"),
            None => Ok(()),
        }
    }
}

pub fn run(json: bool, check: bool) -> CommandResult {
    let all = try_all();
    if json {
        println!("{}", serde_json::to_string_pretty(&all)?);
    } else {
        for right in &all {
            println!("{right}");
        }
    }
    let refused = all.iter().any(|right| right.possible == Some(false));
    Ok(if check && refused { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

fn try_all() -> Vec<Right> {
    let mut all = vec![
        Right::new("run_realtime", "takt run", "real-time policies (SCHED_FIFO)").of(rights::fifo()),
        Right::new("run_memory", "takt run", "locked memory").of(rights::memory_lock()),
        Right::new("run_idle", "takt run", "CPUs kept out of deep idle states").of(rights::dma_latency()),
    ];
    all.extend(tracing());
    all.push(tune());
    all.push(
        Right::new("manage_reservations", "takt manage", "reservations (SCHED_DEADLINE)")
            .of(rights::deadline()),
    );
    all.push(groups());
    all.push(devices(
        Right::new("cameras", "takt run, takt record", "cameras"),
        "video",
        "sudo usermod -aG video $USER, and log in again",
    ));
    all.push(devices(
        Right::new("boards", "takt run", "data acquisition boards (comedi)"),
        "comedi",
        "a udev rule: KERNEL==\"comedi*\", GROUP=\"takt\", MODE=\"0660\"",
    ));
    all.push(devices(
        Right::new("converters", "takt run", "converters (Industrial I/O)"),
        "iio:device",
        "a udev rule: SUBSYSTEM==\"iio\", GROUP=\"takt\", MODE=\"0660\"",
    ));
    all.push(raw_ethernet());
    all
}

/// The same attempt for all that read the kernel's events.
fn tracing() -> Vec<Right> {
    let ahead = look_ahead(&Target::Machine);
    let fixes: Vec<&str> = ahead.missing.iter().map(|missing| missing.fix.as_str()).collect();
    let fix = fixes.first().map_or_else(|| "run as root".to_owned(), |fix| (*fix).to_owned());
    let traced = |right: Right| match &ahead.untraced {
        None => right.works("kernel events were recorded and given back"),
        Some(why) => right.refused(first_line(why), fix.clone()),
    };
    let mut all = vec![
        traced(Right::new("watch", "takt watch", "late cycles of any program, and their causes")),
        traced(Right::new("trace", "takt trace, --flight-recorder", "kernel events of a run")),
        traced(Right::new("manage_running", "takt manage --pid", "running ROS 2 processes (uprobes)")),
    ];
    let calls = Right::new("watch_calls", "takt watch", "sends and writes of polling loops");
    all.push(match &ahead.no_calls {
        None => calls.works("system calls of this process were followed"),
        Some(why) => calls.refused(first_line(why), fix),
    });
    let links = Right::new("watch_links", "takt watch --link", "packets of a loop");
    all.push(match &ahead.no_links {
        None => links.works("a packet socket was opened"),
        Some(why) => links.refused(first_line(why), raw_fix()),
    });
    all
}

/// Opened for writing, and nothing written.
fn tune() -> Right {
    let right = Right::new("tune", "takt tune, doctor --apply", "settings of the kernel");
    match OpenOptions::new().write(true).open("/proc/sys/kernel/sched_rt_runtime_us") {
        Ok(_) => right.works("/proc/sys/kernel/sched_rt_runtime_us could be opened for writing"),
        Err(error) => {
            right.refused(format!("/proc/sys/kernel/sched_rt_runtime_us: {error}"), "run it with sudo")
        }
    }
}

/// A control group is made and taken away.
fn groups() -> Right {
    let right = Right::new("manage_groups", "takt manage, takt run", "CPUs of their own (control groups)");
    let root = Path::new("/sys/fs/cgroup");
    if !root.join("cgroup.controllers").is_file() {
        return right.nothing_here("no control groups of version 2 at /sys/fs/cgroup");
    }
    let folder = root.join(format!("takt-rights-{}", std::process::id()));
    match std::fs::create_dir(&folder) {
        Ok(()) => {
            let gone = std::fs::remove_dir(&folder);
            match gone {
                Ok(()) => right.works("a control group was made and taken away"),
                Err(error) => right.refused(format!("{}: {error}", folder.display()), "run it with sudo"),
            }
        }
        Err(error) => right.refused(format!("{}: {error}", folder.display()), "run it with sudo"),
    }
}

/// Device files of that name: opened as a driver's user does, and closed.
fn devices(right: Right, prefix: &str, fix: &str) -> Right {
    let entries = std::fs::read_dir("/dev").into_iter().flatten().flatten();
    let named = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        let number = name.and_then(|name| name.strip_prefix(prefix));
        number.is_some_and(|number| number.starts_with(|c: char| c.is_ascii_digit()))
            && std::fs::metadata(path).is_ok_and(|found| found.file_type().is_char_device())
    };
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(named).collect();
    found.sort();
    if found.is_empty() {
        return right.nothing_here(format!("no /dev/{prefix}* here"));
    }
    for path in &found {
        let opened = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
            .open(path);
        match opened.map_err(|error| (error.kind(), error)) {
            Ok(_) => {}
            // Somebody has it, who was permitted to.
            Err((io::ErrorKind::ResourceBusy, _)) => {}
            Err((_, error)) => {
                let fix = in_group().unwrap_or_else(|| fix.to_owned());
                return right.refused(format!("{}: {error}", path.display()), fix);
            }
        }
    }
    right.works(format!("{} of them could be opened", found.len()))
}

fn raw_fix() -> String {
    let program = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("takt"));
    in_group()
        .unwrap_or_else(|| format!("run it with sudo, or: sudo setcap cap_net_raw+ep {}", program.display()))
}

fn raw_ethernet() -> Right {
    let right = Right::new("ethernet", "takt run (EtherCAT), takt ethercat", "raw Ethernet frames");
    match PacketSocket::open(Layer::Frame, false) {
        Ok(_) => right.works("a packet socket was opened"),
        Err(error) => right.refused(format!("no packet socket: {error}"), raw_fix()),
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

/// The line that makes this user one of the group of the package, where there is that group and the
/// user is not in it.
fn in_group() -> Option<String> {
    let text = takt_files::read_to_string(Path::new("/etc/group"), 1 << 20).ok()?;
    let line = text.lines().find(|line| line.split(':').next() == Some(GROUP))?;
    let number: u32 = line.split(':').nth(2)?.parse().ok()?;
    let mine = rustix::process::getgroups().ok()?;
    let is_in =
        rustix::process::getegid().as_raw() == number || mine.iter().any(|gid| gid.as_raw() == number);
    (!is_in).then(|| format!("sudo usermod -aG {GROUP} $USER, and log in again"))
}

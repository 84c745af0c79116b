//! Hands events over to the thread that writes them.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use takt_rt::clock::{monotonic_ns, realtime_ns};
use takt_rt::procfs::Stat;
use takt_rt::thread::{self, Handle};

use crate::event::{Event, Kind};
use crate::flood::Flood;
use crate::journal::{Journal, SOCKET};
use crate::local::utc_text;
use crate::store::{Writer, own_folder};

/// Names journald's socket instead of its own: for tests, and for another logger that speaks its
/// protocol.
const SOCKET_VARIABLE: &str = "TAKT_JOURNAL_SOCKET";

/// Events on their way to the thread. It empties them ten times a second at least, unless the disk
/// holds it up.
const QUEUE: usize = 4096;

/// How often a full socket is tried again.
const RETRY: Duration = Duration::from_millis(100);

/// How long the end of a process waits for a full socket, and for a disk.
const PATIENCE: Duration = Duration::from_millis(500);

/// Where events go.
#[derive(Clone, Debug)]
pub struct Options {
    /// The command: `run`.
    pub command: &'static str,
    /// The folder of the file.
    pub folder: PathBuf,
    /// journald's socket.
    pub socket: PathBuf,
}

impl Options {
    /// Where this process is to send them: the environment is asked for both.
    pub fn of(command: &'static str) -> Self {
        let socket = takt_files::environment::var_os(SOCKET_VARIABLE).filter(|name| !name.is_empty());
        Self { command, folder: own_folder(), socket: socket.map_or_else(|| SOCKET.into(), PathBuf::from) }
    }
}

/// What events are about.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// The robot, the managed system or the watched target.
    pub robot: String,
    /// The run directory.
    pub run_dir: Option<PathBuf>,
}

/// What is reported.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// When, CLOCK_MONOTONIC nanoseconds; now where absent.
    pub at_ns: Option<u64>,
    /// Why, in words.
    pub cause: String,
    /// Of which measure or chain.
    pub measure: Option<String>,
    /// How many values.
    pub count: Option<u64>,
    /// The worst of them, nanoseconds.
    pub worst_ns: Option<u64>,
}

impl Report {
    /// For this reason, now.
    pub fn of(cause: impl Into<String>) -> Self {
        Self { cause: cause.into(), ..Self::default() }
    }
}

#[derive(Debug)]
struct Shared {
    sender: SyncSender<Event>,
    about: Mutex<(About, Option<u64>)>,
    lost: AtomicU64,
    /// A start was told, and no end yet.
    open: AtomicBool,
    /// What each event has: boot, process, command, unit.
    constant: Event,
}

static SHARED: OnceLock<Shared> = OnceLock::new();

/// The thread that writes events, until this is dropped.
#[derive(Debug)]
pub struct Reporting {
    thread: Option<Handle<()>>,
}

/// Whether anybody takes events.
pub fn is_on() -> bool {
    SHARED.get().is_some()
}

/// Begins to take events, once in a process. A second call, or a thread that cannot be had, leaves
/// things as they are.
pub fn begin(options: Options) -> Reporting {
    let (sender, receiver) = sync_channel(QUEUE);
    let shared = Shared {
        sender,
        about: Mutex::default(),
        lost: AtomicU64::new(0),
        open: AtomicBool::new(false),
        constant: constant(options.command),
    };
    if SHARED.set(shared).is_err() {
        return Reporting { thread: None };
    }
    let why = "writes events to journald and to a file";
    let thread = thread::spawn_exempt("takt-events", why, move || write_all(&receiver, &options));
    Reporting { thread: thread.ok() }
}

impl Drop for Reporting {
    fn drop(&mut self) {
        let (Some(thread), Some(shared)) = (self.thread.take(), SHARED.get()) else { return };
        if shared.open.load(Ordering::Relaxed) {
            // Whoever reads this later must not take it for a kill.
            report(Kind::Ended, Report::of("after an error, which is on standard error"));
        }
        // The last one: the thread ends with it. A queue that is full still is taken from.
        let until = Instant::now() + PATIENCE;
        let mut last = Event { robot: END.to_owned(), ..shared.constant.clone() };
        while let Err(std::sync::mpsc::TrySendError::Full(back)) = shared.sender.try_send(last) {
            last = back;
            if Instant::now() >= until {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        // A disk that hangs must not hold up the end of a robot.
        let until = Instant::now() + 3 * PATIENCE;
        while !thread.is_finished() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// No robot is called so.
const END: &str = "\0end";

/// From now on events are about this. A window that had begun is forgotten.
pub fn about(about: About) {
    if let Some(shared) = SHARED.get() {
        *shared.about.lock().unwrap_or_else(PoisonError::into_inner) = (about, None);
    }
}

/// The measured window began at `from_ns`, CLOCK_MONOTONIC: the moments of events count from it.
pub fn window_began(from_ns: u64) {
    if let Some(shared) = SHARED.get() {
        shared.about.lock().unwrap_or_else(PoisonError::into_inner).1 = Some(from_ns);
    }
}

/// Hands an event over, and waits for nobody. Not for threads with a deadline: it allocates.
pub fn report(kind: Kind, report: Report) {
    let Some(shared) = SHARED.get() else { return };
    match kind {
        Kind::Started => shared.open.store(true, Ordering::Relaxed),
        Kind::Ended => shared.open.store(false, Ordering::Relaxed),
        _ => {}
    }
    let (about, from_ns) = shared.about.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let now_ns = monotonic_ns();
    let at_ns = report.at_ns.unwrap_or(now_ns);
    let wall_now_ns = realtime_ns();
    let wall_ns = match now_ns.checked_sub(at_ns) {
        Some(ago_ns) => wall_now_ns.saturating_sub(ago_ns),
        None => wall_now_ns.saturating_add(at_ns - now_ns),
    };
    let moment_s = from_ns.and_then(|from_ns| Some(at_ns.checked_sub(from_ns)? as f64 / 1e9));
    let event = Event {
        utc: utc_text(wall_ns),
        wall_ns,
        at_ns,
        event: kind,
        robot: about.robot,
        cause: report.cause,
        measure: report.measure,
        count: report.count,
        worst_ns: report.worst_ns,
        run_dir: about.run_dir,
        moment_s,
        ..shared.constant.clone()
    };
    if shared.sender.try_send(event).is_err() {
        shared.lost.fetch_add(1, Ordering::Relaxed);
    }
}

fn constant(command: &str) -> Event {
    let pid = std::process::id();
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let cgroup = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    Event {
        utc: String::new(),
        wall_ns: 0,
        at_ns: 0,
        boot: boot.trim().to_owned(),
        event: Kind::Other,
        robot: String::new(),
        cause: String::new(),
        measure: None,
        count: None,
        worst_ns: None,
        run_dir: None,
        moment_s: None,
        pid,
        pid_start_ticks: Stat::of(pid).and_then(|stat| stat.start_ticks()).unwrap_or(0),
        command: command.to_owned(),
        unit: unit(&cgroup),
    }
}

/// The unit of systemd in a process's `cgroup` file.
fn unit(cgroup: &str) -> Option<String> {
    let path = Path::new(cgroup.lines().find_map(|line| line.strip_prefix("0::"))?.trim());
    let mut parts = path.iter().filter_map(|part| part.to_str());
    parts.rfind(|part| part.ends_with(".service")).map(str::to_owned)
}

/// A stream that nobody reads is no reason to end.
fn print_line(text: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// The thread.
struct Writing {
    writer: Writer,
    journal: Journal,
    flood: Flood,
    /// What was last refused, which is said once.
    refused: Option<String>,
    unwritten: u64,
}

fn write_all(receiver: &Receiver<Event>, options: &Options) {
    let mut writing = Writing {
        writer: Writer::new(&options.folder),
        journal: Journal::new(&options.socket),
        flood: Flood::default(),
        refused: None,
        unwritten: 0,
    };
    let mut last: Option<Event> = None;
    loop {
        match receiver.recv_timeout(RETRY) {
            Ok(event) if event.robot == END => break,
            Ok(event) => {
                if writing.flood.admits(event.event, Instant::now()) {
                    writing.write(&event);
                }
                last = Some(event);
            }
            Err(RecvTimeoutError::Timeout) => writing.journal.retry(),
            Err(RecvTimeoutError::Disconnected) => break,
        }
        writing.sums(last.as_ref(), false);
    }
    writing.sums(last.as_ref(), true);
    let until = Instant::now() + PATIENCE;
    while writing.journal.waiting() > 0 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(10));
        writing.journal.retry();
    }
    let missed = writing.journal.given_up + writing.journal.waiting() as u64;
    if missed > 0 {
        let folder = options.folder.display();
        print_line(format_args!(
            "takt: journald did not take {missed} events; `takt events` has them ({folder})"
        ));
    }
    if writing.unwritten > 0 {
        let (count, folder) = (writing.unwritten, options.folder.display());
        print_line(format_args!("takt: {count} events are in no file: {folder}"));
    }
}

impl Writing {
    fn write(&mut self, event: &Event) {
        if let Err(error) = self.writer.append(event) {
            self.unwritten += 1;
            let why = error.to_string();
            if self.refused.as_ref() != Some(&why) {
                print_line(format_args!(
                    "takt: events cannot be kept in a file: {why}; TAKT_EVENTS names another folder"
                ));
                self.refused = Some(why);
            }
        }
        self.journal.send(event);
    }

    /// How many events were held back, or found the queue full.
    fn sums(&mut self, last: Option<&Event>, at_end: bool) {
        let Some(last) = last else { return };
        for (kind, count) in self.flood.over(Instant::now(), at_end) {
            let cause = format!("and {count} more events of this kind within seconds");
            self.write(&Event {
                event: kind,
                cause,
                count: Some(count),
                measure: None,
                worst_ns: None,
                ..last.clone()
            });
        }
        let lost = SHARED.get().map_or(0, |shared| shared.lost.swap(0, Ordering::Relaxed));
        if lost > 0 {
            let cause = format!("{lost} events were lost: they came faster than the disk took them");
            self.write(&Event { event: Kind::Fault, cause, measure: None, worst_ns: None, ..last.clone() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_is_the_innermost_service() {
        let text = "0::/system.slice/system-takt\\x2drun.slice/takt-run@cell.service/payload\n";
        assert_eq!(unit(text).as_deref(), Some("takt-run@cell.service"));
        assert_eq!(unit("0::/user.slice/session-2.scope\n"), None);
        assert_eq!(unit("12:cpu:/x.service\n"), None);
    }
}

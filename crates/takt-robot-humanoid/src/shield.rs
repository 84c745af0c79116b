//! CPU shielding (the paper's C): the controller's CPU for the controller alone. Every other task
//! and every interrupt that can be moved is moved to the other CPUs, and moved back at the end.
//!
//! By affinities, not cpusets: a cpuset moves whole processes, and in a container there is seldom
//! one to write to. Children inherit affinities, so what starts later stays away as well. The
//! earlier state is in a state file before anything is changed; a shield whose process was killed
//! is undone from it by the next one ([`recover`]).

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use takt_rt::placement::{self, CpuSet};
use takt_rt::procfs;

/// Reason why a shield was not set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ShieldError {
    /// Nothing would be left for the other tasks.
    #[error("shielding CPUs {shielded} of {online} leaves no CPU for other tasks; shield fewer CPUs")]
    NothingLeft { shielded: Box<CpuSet>, online: Box<CpuSet> },
    /// Another shield is up.
    #[error("process {pid} already has an active shield (state in {}); end it first", path.display())]
    Taken { pid: i32, path: PathBuf },
    /// The state file could not be written or read.
    #[error("{}: {source}; the shield needs it to undo itself after a kill", path.display())]
    State { path: PathBuf, source: io::Error },
    /// Nothing could be moved.
    #[error(
        "no task or interrupt could be moved off CPUs {shielded}: this needs root, or CAP_SYS_NICE for tasks and a writable /proc/irq for \
         interrupts"
    )]
    NotPermitted { shielded: Box<CpuSet> },
    /// From the placement.
    #[error(transparent)]
    Rt(#[from] takt_rt::Error),
}

/// Tasks and interrupts that a shield moved, and those that it could not move.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize)]
pub struct Moved {
    /// Threads moved.
    pub tasks: usize,
    /// Threads of the kernel that belong to their CPU.
    pub bound: usize,
    /// Threads that the system refused to move.
    pub refused: usize,
    pub interrupts: usize,
    /// Interrupts that arrive at the shielded CPUs and cannot be moved, by number and name.
    pub fixed: Vec<String>,
    /// Interrupts that cannot be moved either, and arrive elsewhere or nowhere: every PC has some
    /// (the timer that only boots it, the cascade of the old controller).
    pub elsewhere: usize,
}

/// Interrupts that are named; the others are counted.
const MAX_NAMED: usize = 4;

impl Moved {
    /// Differences from the request, as sentences for a run's labels.
    pub fn differences(&self) -> Vec<String> {
        let mut list = Vec::new();
        if self.refused > 0 {
            list.push(format!("shield: {} tasks could not be moved (no permission)", self.refused));
        }
        if !self.fixed.is_empty() {
            let named = self.fixed.iter().take(MAX_NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
            let others = match self.fixed.len().saturating_sub(MAX_NAMED) {
                0 => String::new(),
                others => format!(" and {others} more"),
            };
            list.push(format!(
                "shield: interrupts that could not be moved off the controller's CPU: {named}{others}"
            ));
        }
        list
    }
}

/// A shield; dropping it moves everything back.
#[derive(Debug)]
pub struct Shield {
    path: PathBuf,
    moved: Moved,
}

/// Default path of the state: gone after a restart, like the settings that it describes.
pub fn default_state() -> PathBuf {
    Path::new("/run").join(STATE_NAME)
}

const STATE_NAME: &str = "takt-shield.state";

/// One entry of the state file.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Entry {
    /// Thread, its start time (threads' ids come again), its CPUs before.
    Task { tid: i32, started: u64, cpus: CpuSet },
    /// Interrupt and its CPUs before.
    Interrupt { number: u32, cpus: CpuSet },
}

impl Shield {
    /// Moves all other tasks and interrupts off `cpus`. State goes to `path`.
    ///
    /// # Errors
    /// [`ShieldError`]; nothing is moved then.
    pub fn up(cpus: &CpuSet, path: &Path) -> Result<Self, ShieldError> {
        recover(path)?;
        let online = placement::online()?;
        let others = online.without(cpus);
        if others.is_empty() {
            return Err(ShieldError::NothingLeft { shielded: Box::new(*cpus), online: Box::new(online) });
        }
        let entries = look(cpus);
        let state = |source| ShieldError::State { path: path.to_owned(), source };
        write_state(path, cpus, &entries).map_err(state)?;
        let mut moved = Moved::default();
        for entry in &entries {
            match entry {
                Entry::Task { tid, cpus: before, .. } => {
                    let rest = before.without(cpus);
                    let rest = if rest.is_empty() { others } else { rest };
                    match set_affinity(*tid, &rest) {
                        Ok(()) => moved.tasks += 1,
                        // A thread that may not leave its CPU, or has ended.
                        Err(libc::EINVAL | libc::ESRCH) => moved.bound += 1,
                        Err(_) => moved.refused += 1,
                    }
                }
                Entry::Interrupt { number, cpus: before } => {
                    let rest = before.without(cpus);
                    let rest = if rest.is_empty() { others } else { rest };
                    match fs::write(irq_path(*number), rest.to_string()) {
                        Ok(()) => moved.interrupts += 1,
                        Err(_) if arrives_at(*number, cpus) => moved.fixed.push(named(*number)),
                        Err(_) => moved.elsewhere += 1,
                    }
                }
            }
        }
        let fixed = moved.fixed.len() + moved.elsewhere;
        if moved.tasks + moved.interrupts == 0 && moved.refused + fixed > 0 {
            let _ = fs::remove_file(path);
            return Err(ShieldError::NotPermitted { shielded: Box::new(*cpus) });
        }
        Ok(Self { path: path.to_owned(), moved })
    }

    pub fn moved(&self) -> &Moved {
        &self.moved
    }
}

/// Reason why a shield of `cpus` would not serve its purpose. On two CPUs all of the machine's work
/// would come to the one on which the simulated devices run: their answers come cycles late for it,
/// and the robot stops, by no fault of the controller.
pub(crate) fn too_few_cpus(online: &CpuSet, cpus: &CpuSet, simulated: bool) -> Option<String> {
    let rest = online.without(cpus);
    (simulated && rest.len() == 1).then(|| {
        format!(
            "not set up: all other tasks would move to CPU {rest} next to the simulated devices, which would then answer late and stop the \
             robot. Fix: measure with at least three CPUs, or with real devices (wire.kind = \"interface\")"
        )
    })
}

impl Drop for Shield {
    fn drop(&mut self) {
        let _ = undo(&self.path);
    }
}

/// Undoes a shield whose process has ended without doing so. Nothing when there is none.
///
/// # Errors
/// [`ShieldError::Taken`] when its process lives; [`ShieldError::State`].
pub fn recover(path: &Path) -> Result<(), ShieldError> {
    let text = match takt_files::read_own(path, takt_files::FIGURES_BYTES) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(source) => return Err(ShieldError::State { path: path.to_owned(), source }),
    };
    let owner = text.lines().find_map(|line| {
        let mut words = line.strip_prefix("owner ")?.split(' ');
        Some((words.next()?.parse::<i32>().ok()?, words.next()?.parse::<u64>().ok()?))
    });
    if let Some((pid, begun)) = owner
        && started(pid, pid) == Some(begun)
    {
        return Err(ShieldError::Taken { pid, path: path.to_owned() });
    }
    undo(path).map_err(|source| ShieldError::State { path: path.to_owned(), source })
}

/// Moves back what the state file reports, and removes it.
fn undo(path: &Path) -> io::Result<()> {
    let text = takt_files::read_own(path, takt_files::FIGURES_BYTES)?;
    let shielded = text.lines().find_map(|line| line.strip_prefix("shielded ")?.parse::<CpuSet>().ok());
    for entry in text.lines().filter_map(parse) {
        match entry {
            Entry::Task { tid, started: begun, cpus } => {
                let same = started_of(tid) == Some(begun);
                // A task that has since moved to the shielded CPU, or was given another set, keeps
                // it.
                let ours = placement::affinity(tid)
                    .is_ok_and(|now| shielded.is_none_or(|shielded| now.without(&shielded) == now));
                if same && ours {
                    let _ = set_affinity(tid, &cpus);
                }
            }
            Entry::Interrupt { number, cpus } => {
                let _ = fs::write(irq_path(number), cpus.to_string());
            }
        }
    }
    fs::remove_file(path)
}

fn irq_folder(number: u32) -> PathBuf {
    Path::new("/proc/irq").join(number.to_string())
}

fn irq_path(number: u32) -> PathBuf {
    irq_folder(number).join("smp_affinity_list")
}

/// Whether an interrupt comes to `cpus` now: of the CPUs that it may have, the kernel gives it one
/// or some. If it does not say, it may.
fn arrives_at(number: u32, cpus: &CpuSet) -> bool {
    let effective = fs::read_to_string(irq_folder(number).join("effective_affinity_list"));
    is_among(effective.ok().as_deref(), cpus)
}

/// An interrupt that nobody has started has an empty list.
fn is_among(effective: Option<&str>, cpus: &CpuSet) -> bool {
    match effective.map(str::trim) {
        Some("") => false,
        Some(list) => list.parse::<CpuSet>().ok().is_none_or(|list| !list.both(cpus).is_empty()),
        None => true,
    }
}

/// Number and name, which is a folder of its handler's.
fn named(number: u32) -> String {
    let names = fs::read_dir(irq_folder(number)).into_iter().flatten().flatten();
    let mut folders = names.filter(|name| name.file_type().is_ok_and(|kind| kind.is_dir()));
    match folders.next() {
        Some(name) => format!("{number} ({})", name.file_name().to_string_lossy()),
        None => number.to_string(),
    }
}

fn set_affinity(tid: i32, cpus: &CpuSet) -> Result<(), i32> {
    placement::try_affinity(tid, cpus).map_err(|error| error.raw_os_error().unwrap_or(libc::EINVAL))
}

/// All threads and interrupts that may run on `cpus` now.
fn look(cpus: &CpuSet) -> Vec<Entry> {
    let touches = |set: &CpuSet| set.iter().any(|cpu| cpus.contains(cpu));
    let mut list = Vec::new();
    for pid in procfs::numbers("/proc") {
        for tid in procfs::threads(pid) {
            if let (Some(started), Ok(before)) = (started(pid, tid), placement::affinity(tid))
                && touches(&before)
            {
                list.push(Entry::Task { tid, started, cpus: before });
            }
        }
    }
    for number in procfs::numbers("/proc/irq") {
        let before = fs::read_to_string(irq_path(number)).ok().and_then(|text| text.trim().parse().ok());
        if let Some(before) = before.filter(touches) {
            list.push(Entry::Interrupt { number, cpus: before });
        }
    }
    list
}

/// Start time of a thread in clock ticks since boot: field 22 of its stat.
fn started(pid: i32, tid: i32) -> Option<u64> {
    procfs::Stat::of_thread(pid, tid)?.start_ticks()
}

/// As [`started`], for a thread of any process: /proc knows threads by their own id as well.
fn started_of(tid: i32) -> Option<u64> {
    started(tid, tid)
}

fn write_state(path: &Path, cpus: &CpuSet, entries: &[Entry]) -> io::Result<()> {
    let pid = std::process::id() as i32;
    let mut text = format!("owner {pid} {}\nshielded {cpus}\n", started(pid, pid).unwrap_or(0));
    for entry in entries {
        let _ = match entry {
            Entry::Task { tid, started, cpus } => writeln!(text, "task {tid} {started} {cpus}"),
            Entry::Interrupt { number, cpus } => writeln!(text, "irq {number} {cpus}"),
        };
    }
    // Never over another's: a file that came meanwhile is an error.
    takt_files::check_folder(path.parent().unwrap_or(Path::new("")))?;
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

fn parse(line: &str) -> Option<Entry> {
    let mut words = line.split(' ');
    match words.next()? {
        "task" => Some(Entry::Task {
            tid: words.next()?.parse().ok()?,
            started: words.next()?.parse().ok()?,
            cpus: words.next()?.parse().ok()?,
        }),
        "irq" => {
            Some(Entry::Interrupt { number: words.next()?.parse().ok()?, cpus: words.next()?.parse().ok()? })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn state(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("takt-{name}-{}.state", std::process::id()))
    }

    #[test]
    fn a_dead_shield_is_undone_and_a_living_one_respected() {
        let online = placement::online().unwrap();
        if online.len() < 2 {
            takt_witness::skip!("one CPU");
            return;
        }
        let shielded = CpuSet::single(online.iter().last().unwrap()).unwrap();
        // A thread of this process stands for all tasks: other tests' machines are not to be moved
        // about.
        let tid = std::process::id() as i32;
        let before = placement::affinity(tid).unwrap();
        let rest = before.without(&shielded);
        let entry = Entry::Task { tid, started: started(tid, tid).unwrap(), cpus: before };
        let path = state("dead");
        write_state(&path, &shielded, std::slice::from_ref(&entry)).unwrap();
        assert!(matches!(recover(&path), Err(ShieldError::Taken { pid, .. }) if pid == tid));
        // As left by a process that is no more.
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.replacen(&format!("owner {tid} "), "owner 1 9", 1)).unwrap();
        set_affinity(tid, &rest).unwrap();
        recover(&path).unwrap();
        assert_eq!(placement::affinity(tid).unwrap(), before);
        assert!(!path.exists());
        recover(&path).unwrap();
    }

    #[test]
    fn simulated_devices_are_not_left_alone_with_everything_else() {
        let set = |text: &str| text.parse::<CpuSet>().unwrap();
        let why = too_few_cpus(&set("0-1"), &set("1"), true).unwrap();
        assert!(why.contains("CPU 0 next to the simulated devices") && why.contains("three CPUs"), "{why}");
        assert_eq!(too_few_cpus(&set("0-2"), &set("1"), true), None);
        assert_eq!(
            too_few_cpus(&set("0-1"), &set("1"), false),
            None,
            "real devices need no CPU of this host"
        );
        assert_eq!(too_few_cpus(&set("0-1"), &set("0-1"), true), None, "refused as any robot's");
    }

    #[test]
    fn an_interrupt_that_cannot_be_moved_and_does_not_come_is_no_difference() {
        let shielded: CpuSet = "1".parse().unwrap();
        for (effective, expected) in [
            (Some("0\n"), false),
            (Some("\n"), false),
            (Some("0-3\n"), true),
            (Some("1"), true),
            (Some("?"), true),
            (None, true),
        ] {
            assert_eq!(is_among(effective, &shielded), expected, "{effective:?}");
        }
        let elsewhere = Moved { elsewhere: 2, tasks: 100, ..Moved::default() };
        assert_eq!(elsewhere.differences(), Vec::<String>::new());
        let names = (24..30).map(|number| format!("{number} (nvme0q{number})")).collect();
        let fixed = Moved { fixed: names, ..elsewhere };
        let message = &fixed.differences()[0];
        assert!(message.ends_with("26 (nvme0q26), 27 (nvme0q27) and 2 more"), "{message}");
        assert!(!message.contains("28"), "{message}");
    }

    #[test]
    fn shielding_everything_is_refused() {
        let online = placement::online().unwrap();
        let error = Shield::up(&online, &state("all")).unwrap_err();
        assert!(matches!(error, ShieldError::NothingLeft { .. }));
    }

    proptest! {
        #[test]
        fn a_state_file_of_any_text_is_read(line in ".{0,80}") {
            let _ = parse(&line);
        }

        #[test]
        fn entries_come_back(tid in 1..i32::MAX, started in any::<u64>(), cpu in 0..64_usize) {
            let cpus = CpuSet::single(cpu).unwrap();
            let line = format!("task {tid} {started} {cpus}");
            prop_assert_eq!(parse(&line), Some(Entry::Task { tid, started, cpus }));
        }
    }
}

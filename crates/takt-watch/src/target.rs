//! Choice of the watched threads by the user's target; renewed as processes and threads come and
//! go.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use takt_rt::procfs;

use crate::error::WatchError;

/// Target of a watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// One process, with its threads.
    Process(i32),
    /// A process and all that it starts: a command.
    Tree(i32),
    /// All that a process has started, without itself. It must adopt what its children leave behind
    /// ([`takt_rt::child::adopt_orphans`]), so that nothing of it gets lost.
    Offspring(i32),
    /// Threads whose name, or whose process's name or command line, contains this text; `*` stands
    /// for any characters.
    Name(String),
    /// The processes of a control group and of those below it: a container, a systemd unit.
    Cgroup(PathBuf),
    /// The whole machine, kernel threads included.
    Machine,
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Process(pid) => write!(f, "process {pid}"),
            Self::Tree(pid) => write!(f, "process {pid} and what it starts"),
            Self::Offspring(pid) => write!(f, "the processes that process {pid} has started"),
            Self::Name(pattern) => write!(f, "threads named {pattern}"),
            Self::Cgroup(path) => write!(f, "control group {}", path.display()),
            Self::Machine => f.write_str("the whole machine"),
        }
    }
}

/// Mount point of control groups.
const CGROUPS: &str = "/sys/fs/cgroup";

impl Target {
    /// The control group `path`: as it is, or below the mount; or that of the container with this
    /// id, which engines put at different places and under different names.
    ///
    /// # Errors
    /// [`WatchError::NoCgroup`].
    pub fn cgroup(path: &Path) -> Result<Self, WatchError> {
        let below = path.strip_prefix("/").unwrap_or(path);
        // Beside the older hierarchies the newer one lies in a folder of its own, and so does
        // systemd's.
        let places = ["", "unified", "systemd"].map(|place| Path::new(CGROUPS).join(place).join(below));
        let found =
            std::iter::once(path.to_owned()).chain(places).find(|path| path.join("cgroup.procs").is_file());
        let of_container = || container_below(Path::new(CGROUPS), path.to_str().filter(|it| is_id(it))?, 0);
        let found = found.or_else(of_container);
        found.map(Self::Cgroup).ok_or_else(|| WatchError::NoCgroup { path: path.to_owned() })
    }
}

/// Whether this is the id of a container, as `docker ps` (12 digits) and `docker inspect` (64)
/// print it.
fn is_id(text: &str) -> bool {
    (12..=64).contains(&text.len()) && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// The group of the container `id` below `path` that holds processes: `docker/ID`,
/// `docker-ID.scope`, `libpod-ID.scope`, `cri-containerd-ID.scope`.
fn container_below(path: &Path, id: &str, depth: usize) -> Option<PathBuf> {
    let entries = fs::read_dir(path).ok()?.flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let mut below: Vec<PathBuf> = folders.map(|entry| entry.path()).collect();
    below.sort();
    below.into_iter().filter(|_| depth < DEEPEST).find_map(|folder| {
        // Beside it Podman keeps a group for what looks after the container.
        let is_its = |name: &str| name.contains(id) && !name.contains("conmon");
        if folder.file_name().and_then(|name| name.to_str()).is_some_and(is_its) {
            let mut processes = Vec::new();
            processes_below(&folder, 0, &mut processes);
            return (!processes.is_empty()).then_some(folder);
        }
        container_below(&folder, id, depth + 1)
    })
}

/// A thread that is watched.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Thread {
    pub name: String,
    /// Its process.
    pub pid: i32,
    /// The name of its process.
    pub process: String,
    /// When it began, ticks after the machine's start.
    pub started: u64,
    /// The command line of its process, and when that began.
    pub command: Arc<(String, u64)>,
}

/// The watched threads, now and before.
#[derive(Debug)]
pub struct Watched {
    target: Target,
    own: i32,
    /// Every thread that was ever watched, by its id.
    pub threads: BTreeMap<i32, Thread>,
    /// The watched threads that live.
    now: BTreeSet<i32>,
    /// Processes that have watched threads now.
    pub processes: BTreeSet<i32>,
    /// Processes that belong to a tree, also when the process that started them has ended.
    tree: BTreeSet<i32>,
    /// Threads that are no program's own: those of a runtime.
    left_out: BTreeSet<i32>,
    /// Orphans of the tree are children of this process.
    adopts: bool,
}

impl Watched {
    /// Nothing is looked up yet.
    pub fn new(target: Target) -> Self {
        let own = i32::try_from(std::process::id()).unwrap_or(0);
        Self {
            target,
            own,
            threads: BTreeMap::new(),
            now: BTreeSet::new(),
            processes: BTreeSet::new(),
            tree: BTreeSet::new(),
            left_out: BTreeSet::new(),
            adopts: false,
        }
    }

    /// Of a command also what it leaves behind when it ends, as a shell does with what it started
    /// in the background: this process becomes its parent, and must have no other children then.
    /// Its earlier orphans belong to init, unless this process adopted orphans already.
    pub(crate) fn adopt(&mut self) {
        if let Target::Tree(_) = self.target {
            takt_rt::child::adopt_orphans();
            self.adopts = true;
        }
    }

    /// The watched threads that live, as they were looked up last.
    pub(crate) fn threads_now(&self) -> &BTreeSet<i32> {
        &self.now
    }

    /// Whether anything of what is watched is there at all, now.
    pub fn is_there(&self) -> bool {
        !self.processes.is_empty()
    }

    /// Whether any process that was there when it was looked up last still lives: a look at one
    /// file, where looking up reads the names of all threads.
    pub(crate) fn still_lives(&self) -> bool {
        self.processes.iter().any(|&pid| lives(pid))
    }

    /// Does not watch these threads from now on.
    pub(crate) fn leave_out(&mut self, threads: &BTreeSet<i32>) {
        for tid in threads {
            self.now.remove(tid);
            self.threads.remove(tid);
        }
        // Numbers come again.
        self.left_out.clone_from(threads);
    }

    /// Looks the threads up anew.
    pub fn refresh(&mut self) {
        self.processes = self.find_processes().into_iter().filter(|&pid| pid != self.own).collect();
        self.now.clear();
        for &pid in &self.processes {
            let process = procfs::thread_name(pid, pid).unwrap_or_default();
            let mut command = None;
            for tid in procfs::threads(pid) {
                let Some(name) = procfs::thread_name(pid, tid) else { continue };
                if let Target::Name(pattern) = &self.target
                    && !matches(pattern, &name)
                    && !matches(pattern, &process)
                    && !matches(pattern, &command_line(pid))
                {
                    continue;
                }
                if self.left_out.contains(&tid) {
                    continue;
                }
                self.now.insert(tid);
                // A thread number comes again in another process, and a process becomes another
                // program.
                if let Some(known) = self.threads.get_mut(&tid)
                    && (known.pid, &known.process) == (pid, &process)
                {
                    known.name = name;
                    continue;
                }
                let began =
                    |stat: Option<procfs::Stat>| stat.and_then(|stat| stat.start_ticks()).unwrap_or(0);
                let command = command
                    .get_or_insert_with(|| Arc::new((command_line(pid), began(procfs::Stat::of(pid)))));
                let started = began(procfs::Stat::of_thread(pid, tid));
                let command = Arc::clone(command);
                self.threads.insert(tid, Thread { name, pid, process: process.clone(), started, command });
            }
        }
    }

    fn find_processes(&mut self) -> Vec<i32> {
        match &self.target {
            Target::Process(pid) => Some(*pid).filter(|&pid| lives(pid)).into_iter().collect(),
            Target::Tree(root) => {
                self.tree.insert(*root);
                let all = processes();
                let parents = parents_of(&all);
                if self.adopts {
                    // The helper that cleans up after this program lives as long as this process
                    // and is not part of the command.
                    let helper = takt_trace::helper_process();
                    let adopted = parents
                        .iter()
                        .filter(|&&(pid, parent)| parent == self.own && pid != *root && Some(pid) != helper);
                    for &(pid, _) in adopted {
                        self.tree.insert(pid);
                        // Nobody else takes its status.
                        if !lives(pid) {
                            takt_rt::child::reap(pid);
                        }
                    }
                }
                add_offspring(&mut self.tree, &parents);
                // A number that is free again must not bring a stranger in.
                self.tree.retain(|pid| pid == root || all.binary_search(pid).is_ok());
                let there = self.tree.iter().copied().filter(|pid| all.binary_search(pid).is_ok());
                there.filter(|&pid| lives(pid)).collect()
            }
            Target::Offspring(root) => {
                let mut found = offspring(*root);
                found.retain(|&pid| lives(pid));
                found
            }
            Target::Name(pattern) => {
                let named = |&pid: &i32| {
                    let named = |tid| matches(pattern, &procfs::thread_name(pid, tid).unwrap_or_default());
                    matches(pattern, &command_line(pid)) || procfs::threads::<i32>(pid).any(named)
                };
                // The processes that started this program (sudo, timeout, a shell) have the pattern
                // in their command lines.
                let starters: Vec<i32> =
                    std::iter::successors(Some(self.own), |&pid| parent(pid)).take(DEEPEST).collect();
                processes().into_iter().filter(|pid| !starters.contains(pid)).filter(named).collect()
            }
            Target::Cgroup(path) => {
                let mut found = Vec::new();
                processes_below(path, 0, &mut found);
                found
            }
            Target::Machine => processes(),
        }
    }
}

/// Control groups lie in each other at most so deep here; a loop of links must end.
const DEEPEST: usize = 32;

fn processes_below(path: &Path, depth: usize, found: &mut Vec<i32>) {
    // Groups that hold single threads have no list of processes.
    let text = fs::read_to_string(path.join("cgroup.procs")).unwrap_or_default();
    found.extend(text.lines().filter_map(|line| line.trim().parse::<i32>().ok()));
    let Ok(entries) = fs::read_dir(path) else { return };
    for entry in entries.flatten().filter(|_| depth < DEEPEST) {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            processes_below(&entry.path(), depth + 1, found);
        }
    }
}

fn command_line(pid: i32) -> String {
    // Arguments may be any bytes.
    let path = Path::new("/proc").join(pid.to_string()).join("cmdline");
    let line = takt_files::read(&path, takt_files::PROCESS_BYTES).unwrap_or_default();
    String::from_utf8_lossy(&line).replace('\0', " ")
}

/// All processes, in order.
fn processes() -> Vec<i32> {
    let mut all: Vec<i32> = procfs::numbers("/proc").collect();
    all.sort_unstable();
    all
}

/// Each process with its parent.
fn parents_of(processes: &[i32]) -> Vec<(i32, i32)> {
    processes.iter().filter_map(|&pid| Some((pid, parent(pid)?))).collect()
}

/// Adds what the processes of `tree` have started, and what those have started.
fn add_offspring(tree: &mut BTreeSet<i32>, parents: &[(i32, i32)]) {
    // A child may have a lower number than its parent, when numbers have begun anew: until nothing
    // is added.
    loop {
        let before = tree.len();
        let children = parents.iter().filter(|(_, parent)| tree.contains(parent));
        let children: Vec<i32> = children.map(|child| child.0).collect();
        tree.extend(children);
        if tree.len() == before {
            return;
        }
    }
}

/// All that a process has started, and what those have started, in order.
pub fn offspring(root: i32) -> Vec<i32> {
    let mut found = BTreeSet::from([root]);
    add_offspring(&mut found, &parents_of(&processes()));
    found.remove(&root);
    found.into_iter().collect()
}

/// Whether anything of a process can still run: not a command that has ended and that nobody has
/// waited for yet. Its first thread may end before others.
fn lives(pid: i32) -> bool {
    procfs::Stat::of(pid).is_some_and(|stat| stat.is_alive()) || procfs::threads::<i32>(pid).count() > 1
}

/// The process that started this one.
fn parent(pid: i32) -> Option<i32> {
    procfs::Stat::of(pid)?.parent()
}

/// Whether `text` contains `pattern`, in which `*` stands for any characters.
pub fn matches(pattern: &str, text: &str) -> bool {
    let mut rest = text;
    for part in pattern.split('*').filter(|part| !part.is_empty()) {
        match rest.split_once(part) {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
    !pattern.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_parts_of_names() {
        for (pattern, text, meets) in [
            ("loop", "control_loop", true),
            ("cont*loop", "control_loop", true),
            ("loop*cont", "control_loop", false),
            ("*", "anything", true),
            ("", "anything", false),
            ("x", "", false),
        ] {
            assert_eq!(matches(pattern, text), meets, "{pattern} in {text}");
        }
    }

    #[test]
    fn a_child_is_found_and_stays_found() {
        let mut child = std::process::Command::new("sleep").arg("30").spawn().unwrap();
        let pid = child.id() as i32;
        let own = std::process::id() as i32;
        assert_eq!(parent(pid), Some(own));
        let mut tree = Watched::new(Target::Tree(pid));
        tree.refresh();
        assert!(tree.is_there() && tree.threads[&pid].pid == pid, "{tree:?}");
        let mut all = Watched::new(Target::Machine);
        all.refresh();
        assert!(all.threads.contains_key(&pid) && !all.threads.contains_key(&own));
        let mut alone = Watched::new(Target::Process(pid));
        alone.refresh();
        assert!(alone.is_there());
        child.kill().unwrap();
        // Until it has ended; nobody has waited for it yet.
        while procfs::Stat::of(pid).is_some_and(|stat| stat.is_alive()) {
            std::thread::yield_now();
        }
        for watched in [&mut tree, &mut alone] {
            watched.refresh();
            assert!(!watched.is_there() && watched.threads.contains_key(&pid));
        }
        child.wait().unwrap();
    }

    #[test]
    fn offspring_is_what_a_process_started_without_itself() {
        let mut shell =
            std::process::Command::new("sh").args(["-c", "sleep 30 & sleep 30 & wait"]).spawn().unwrap();
        let pid = shell.id() as i32;
        let mut watched = Watched::new(Target::Offspring(pid));
        let since = std::time::Instant::now();
        while watched.processes.len() < 2 {
            assert!(since.elapsed().as_secs() < 60, "{watched:?}");
            watched.refresh();
        }
        assert!(!watched.threads.contains_key(&pid));
        for &child in &watched.processes {
            assert_eq!(parent(child), Some(pid));
            // SAFETY: sends a signal to a child of the shell that this test started.
            unsafe { libc::kill(child, libc::SIGKILL) };
        }
        shell.wait().unwrap();
        watched.refresh();
        assert!(!watched.is_there());
    }

    #[test]
    fn a_group_that_is_not_there_is_refused_with_the_way_out() {
        let message = Target::cgroup(Path::new("/no/such/group")).unwrap_err().to_string();
        assert!(message.contains("cgroup.procs") && message.contains("/no/such/group"), "{message}");
    }

    #[test]
    fn the_group_of_a_container_is_found_by_its_id() {
        const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
        let group = |root: &Path, path: String, processes: &str| {
            fs::create_dir_all(root.join(&path)).unwrap();
            fs::write(root.join(&path).join("cgroup.procs"), processes).unwrap();
        };
        // An engine's folders, of which only one holds the container's processes: below it, in
        // Podman's case.
        for (path, inner) in [
            (format!("docker/{ID}"), ""),
            (format!("system.slice/docker-{ID}.scope"), ""),
            (format!("machine.slice/libpod-{ID}.scope"), "container"),
            (format!("kubepods.slice/kubepods-pod1.slice/cri-containerd-{ID}.scope"), ""),
        ] {
            let root = tempfile::tempdir().unwrap();
            group(root.path(), format!("aaa/libpod-conmon-{ID}.scope"), "1\n");
            group(root.path(), format!("cpu/docker/{ID}"), "");
            group(root.path(), format!("{path}/{inner}"), "2\n");
            for id in [ID, &ID[..12]] {
                assert_eq!(container_below(root.path(), id, 0), Some(root.path().join(&path)), "{id}");
            }
            assert_eq!(container_below(root.path(), "fedcba987654", 0), None);
        }
        for (text, is) in [(ID, true), (&ID[..12], true), (&ID[..11], false), ("system.slice", false)] {
            assert_eq!(is_id(text), is, "{text}");
        }
    }
}

//! A kernel in memory: threads, cpusets of v1 with root domains, the admission test, and a thread's
//! sleep on the CPU where it fell asleep. It stops after a given number of changes, as a killed
//! manager does.

#![allow(missing_docs, clippy::unwrap_used, reason = "for tests alone")]

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use takt_rt::placement::CpuSet;

use super::ratio;
use super::{Attributes, GroupVersion, Identity, Kernel, Usage};

#[derive(Debug, Clone, PartialEq)]
pub struct SimThread {
    pub pid: u32,
    pub name: String,
    pub start_ticks: u64,
    pub attributes: Attributes,
    /// As asked for by `sched_setaffinity`.
    pub cpus: CpuSet,
    pub group: String,
    pub last: usize,
    pub run_ns: u64,
    pub turns: u64,
    pub wants: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Sim {
    pub threads: BTreeMap<u32, SimThread>,
    pub files: BTreeMap<PathBuf, String>,
    /// Cpusets below the root, by path.
    pub sets: BTreeMap<String, Option<CpuSet>>,
    pub has_cpusets: bool,
    pub may_switch_admission_off: bool,
    online: CpuSet,
    ticks: u64,
    /// Changes that are still let through.
    pub left: Cell<Option<usize>>,
    pub changes: usize,
    pub tick_ns: u64,
    /// Budgets are enforced exactly.
    pub exact: bool,
    /// A lock for tests of it.
    pub owner_file: Option<PathBuf>,
    /// Reservations of sleeping threads of the manager's own, which end with it.
    pub fillers: BTreeMap<usize, Attributes>,
}

const MOUNT: &str = "/cpuset";
const SYSCTL: &str = "/proc/sys/kernel/sched_rt_runtime_us";
const BALANCE: &str = "/cpuset/cpuset.sched_load_balance";

fn errno<T>(code: i32) -> io::Result<T> {
    Err(io::Error::from_raw_os_error(code))
}

impl Sim {
    pub fn new(cpus: usize) -> Self {
        let files = [
            (SYSCTL, "950000\n"),
            (BALANCE, "1\n"),
            ("/cpuset/cpuset.mems", "0\n"),
            ("/proc/sys/kernel/random/boot_id", "a-boot\n"),
            ("/proc/sys/kernel/osrelease", "6.18.0\n"),
            ("/sys/devices/virtual/workqueue/cpumask", "ff\n"),
        ];
        let mut sim = Self {
            threads: BTreeMap::new(),
            files: files.map(|(path, text)| (PathBuf::from(path), text.to_owned())).into(),
            sets: BTreeMap::new(),
            has_cpusets: true,
            may_switch_admission_off: true,
            online: CpuSet::from_cpus(0..cpus).unwrap(),
            ticks: 100,
            left: Cell::new(None),
            changes: 0,
            tick_ns: 4_000_000,
            exact: true,
            owner_file: None,
            fillers: BTreeMap::new(),
        };
        let ours = std::process::id();
        sim.spawn(ours, ours, "manager");
        sim
    }

    pub fn spawn(&mut self, pid: u32, tid: u32, name: &str) {
        self.ticks += 1;
        let last = self.ticks as usize % self.online.len();
        self.threads.insert(
            tid,
            SimThread {
                pid,
                name: name.into(),
                start_ticks: self.ticks,
                attributes: Attributes::other(0),
                cpus: self.online,
                group: "/".into(),
                last,
                run_ns: 0,
                turns: 0,
                wants: false,
            },
        );
    }

    /// A thread makes another, which inherits what a thread inherits.
    pub fn fork(&mut self, parent: u32, tid: u32) {
        self.ticks += 1;
        let mut child = self.threads[&parent].clone();
        assert!(!child.attributes.is_deadline() || child.attributes.flags & super::RESET_ON_FORK != 0);
        if child.attributes.flags & super::RESET_ON_FORK != 0 {
            child.attributes = Attributes::other(0);
        }
        child.start_ticks = self.ticks;
        // The child's own mask is what its creator's was at the time.
        child.cpus = self.effective(parent);
        self.threads.insert(tid, child);
    }

    pub fn force(&mut self, tid: u32, attributes: Attributes, ran_ns: u64, wants: bool) {
        let thread = self.threads.get_mut(&tid).unwrap();
        thread.attributes = attributes;
        thread.run_ns += ran_ns;
        thread.wants = wants;
    }

    pub fn wake(&mut self, tid: u32) {
        let cpus = self.effective(tid);
        let thread = self.threads.get_mut(&tid).unwrap();
        if !cpus.contains(thread.last) {
            thread.last = cpus.iter().next().unwrap();
        }
    }

    fn change(&mut self) -> io::Result<()> {
        match self.left.get() {
            Some(0) => return errno(libc::EINTR),
            Some(left) => self.left.set(Some(left - 1)),
            None => {}
        }
        self.changes += 1;
        Ok(())
    }

    fn thread(&self, tid: u32) -> io::Result<&SimThread> {
        self.threads.get(&tid).map_or_else(|| errno(libc::ESRCH), Ok)
    }

    fn effective(&self, tid: u32) -> CpuSet {
        let thread = &self.threads[&tid];
        let set = self.sets.get(&thread.group).copied().flatten().unwrap_or(self.online);
        let both = set.without(&set.without(&thread.cpus));
        if both.is_empty() { set } else { both }
    }

    /// The root domain of a CPU.
    fn span(&self, cpu: usize) -> CpuSet {
        if self.files[Path::new(BALANCE)].trim() == "1" {
            return self.online;
        }
        let of_set = self.sets.values().flatten().find(|set| set.contains(cpu));
        of_set.copied().unwrap_or_else(|| CpuSet::single(cpu).unwrap())
    }

    fn admission(&self) -> bool {
        !self.files[Path::new(SYSCTL)].trim().starts_with('-')
    }

    fn fits(&self, span: &CpuSet, without: u32, more: u64) -> bool {
        let home = |tid: u32, thread: &SimThread| {
            // A sleeper that was moved counts where it was moved to.
            let cpus = self.effective(tid);
            if cpus.contains(thread.last) { thread.last } else { cpus.iter().next().unwrap() }
        };
        let used: u64 = self
            .threads
            .iter()
            .filter(|(tid, thread)| {
                **tid != without && thread.attributes.is_deadline() && span.contains(home(**tid, thread))
            })
            .map(|(_, thread)| ratio(thread.attributes.runtime_ns, thread.attributes.period_ns))
            .sum();
        used + more <= span.len() as u64 * ratio(90, 100)
    }

    /// Everything that is to be as before, for comparison.
    pub fn settings(&self) -> impl PartialEq + std::fmt::Debug + use<> {
        let threads: BTreeMap<u32, (Attributes, CpuSet, String)> = self
            .threads
            .iter()
            .map(|(&tid, thread)| (tid, (thread.attributes, self.effective(tid), thread.group.clone())))
            .collect();
        (threads, self.files.clone(), self.sets.clone())
    }
}

impl Kernel for Sim {
    fn threads(&self, pid: u32) -> io::Result<Vec<u32>> {
        let tids: Vec<u32> =
            self.threads.iter().filter(|(_, thread)| thread.pid == pid).map(|(&tid, _)| tid).collect();
        if tids.is_empty() { errno(libc::ENOENT) } else { Ok(tids) }
    }

    fn processes(&self) -> io::Result<Vec<u32>> {
        let all: std::collections::BTreeSet<u32> = self.threads.values().map(|thread| thread.pid).collect();
        Ok(all.into_iter().collect())
    }

    fn kernel_threads(&self) -> io::Result<Vec<u32>> {
        Ok(self
            .threads
            .iter()
            .filter(|(_, thread)| thread.name.starts_with("kernel"))
            .map(|(&tid, _)| tid)
            .collect())
    }

    fn start_ticks(&self, pid: u32, tid: u32) -> io::Result<u64> {
        self.thread(tid)
            .and_then(|thread| if thread.pid == pid { Ok(thread.start_ticks) } else { errno(libc::ENOENT) })
    }

    fn thread_name(&self, _: u32, tid: u32) -> io::Result<String> {
        self.thread(tid).map(|thread| thread.name.clone())
    }

    fn run_ns(&self, _: u32, tid: u32) -> io::Result<u64> {
        self.thread(tid).map(|thread| thread.run_ns)
    }

    fn wants_to_run(&self, _: u32, tid: u32) -> io::Result<bool> {
        self.thread(tid).map(|thread| thread.wants)
    }

    fn last_cpu(&self, _: u32, tid: u32) -> io::Result<usize> {
        self.thread(tid).map(|thread| thread.last)
    }

    fn attributes(&self, tid: u32) -> io::Result<Attributes> {
        self.thread(tid).map(|thread| thread.attributes)
    }

    fn set_attributes(&mut self, tid: u32, attributes: &Attributes) -> io::Result<()> {
        let thread = self.thread(tid)?;
        let span = self.span(thread.last);
        if attributes.is_deadline() && self.admission() {
            if !span.without(&self.effective(tid)).is_empty() {
                return errno(libc::EPERM);
            }
            if !self.fits(&span, tid, ratio(attributes.runtime_ns, attributes.period_ns)) {
                return errno(libc::EBUSY);
            }
        }
        self.change()?;
        self.threads.get_mut(&tid).unwrap().attributes = *attributes;
        Ok(())
    }

    fn affinity(&self, tid: u32) -> io::Result<CpuSet> {
        self.thread(tid)?;
        Ok(self.effective(tid))
    }

    fn set_affinity(&mut self, tid: u32, cpus: &CpuSet) -> io::Result<()> {
        let thread = self.thread(tid)?;
        if thread.name.starts_with("kernel-bound") {
            return errno(libc::EINVAL);
        }
        if thread.attributes.is_deadline()
            && self.admission()
            && !self.span(thread.last).without(cpus).is_empty()
        {
            return errno(libc::EBUSY);
        }
        self.change()?;
        self.threads.get_mut(&tid).unwrap().cpus = *cpus;
        Ok(())
    }

    fn online(&self) -> io::Result<CpuSet> {
        Ok(self.online)
    }

    fn group(&self, _: u32, tid: u32, version: GroupVersion) -> io::Result<Option<String>> {
        let thread = self.thread(tid)?;
        Ok((version == GroupVersion::V1 && self.has_cpusets).then(|| thread.group.clone()))
    }

    fn group_mount(&self, version: GroupVersion) -> Option<PathBuf> {
        (version == GroupVersion::V1 && self.has_cpusets).then(|| MOUNT.into())
    }

    fn read(&self, path: &Path) -> io::Result<String> {
        if path.file_name().is_some_and(|name| name == "tasks") {
            let group = set_of(path);
            let inside = self.threads.iter().filter(|(_, thread)| thread.group == group);
            return Ok(inside.map(|(tid, _)| format!("{tid}\n")).collect());
        }
        self.files.get(path).map_or_else(|| errno(libc::ENOENT), |text| Ok(text.clone()))
    }

    fn write(&mut self, path: &Path, text: &str) -> io::Result<()> {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let group = set_of(path);
        match name {
            "tasks" => {
                let tid: u32 = text.trim().parse().unwrap();
                let thread = self.thread(tid)?.clone();
                if group != "/" && self.sets.get(&group).is_none_or(Option::is_none) {
                    return errno(libc::ENOENT);
                }
                self.change()?;
                let to = self.sets.get(&group).copied().flatten().unwrap_or(self.online);
                if thread.attributes.is_deadline() && self.admission() {
                    let from = self.sets.get(&thread.group).copied().flatten().unwrap_or(self.online);
                    let apart = from.without(&to) == from;
                    // The real kernel loses count here; nobody may go this way.
                    assert!(apart || from == to, "a reserved thread moves between overlapping sets");
                    let bandwidth = ratio(thread.attributes.runtime_ns, thread.attributes.period_ns);
                    if apart && !self.fits(&self.span(to.iter().next().unwrap()), tid, bandwidth) {
                        return errno(libc::EBUSY);
                    }
                }
                self.threads.get_mut(&tid).unwrap().group = group;
            }
            "cpuset.cpus" if group != "/" => {
                self.change()?;
                *self.sets.get_mut(&group).ok_or(io::ErrorKind::NotFound)? =
                    Some(text.trim().parse().unwrap());
            }
            _ if group != "/" && self.sets.contains_key(&group) => self.change()?,
            _ if path == Path::new(SYSCTL) && !self.may_switch_admission_off => return errno(libc::EACCES),
            _ => {
                if !self.files.contains_key(path) {
                    return errno(libc::ENOENT);
                }
                self.change()?;
                if path.ends_with("sched/features") {
                    let feature = text.trim().strip_prefix("NO_").unwrap_or(text.trim());
                    let same = |word: &str| word.strip_prefix("NO_").unwrap_or(word) == feature;
                    let words = self.files[path].split_whitespace();
                    let words = words.map(|word| if same(word) { text.trim() } else { word });
                    let text = words.collect::<Vec<_>>().join(" ") + "\n";
                    self.files.insert(path.into(), text);
                    return Ok(());
                }
                self.files.insert(path.into(), format!("{}\n", text.trim()));
            }
        }
        Ok(())
    }

    fn make_dir(&mut self, path: &Path) -> io::Result<()> {
        let group = set_of(&path.join("x"));
        if self.sets.contains_key(&group) {
            return errno(libc::EEXIST);
        }
        self.change()?;
        self.sets.insert(group, None);
        Ok(())
    }

    fn remove_dir(&mut self, path: &Path) -> io::Result<()> {
        let group = set_of(&path.join("x"));
        if !self.sets.contains_key(&group) {
            return errno(libc::ENOENT);
        }
        if self.threads.values().any(|thread| thread.group == group) {
            return errno(libc::EBUSY);
        }
        self.change()?;
        self.sets.remove(&group);
        Ok(())
    }

    fn usage(&self, of: &Identity) -> io::Result<Usage> {
        let thread = self.thread(of.tid)?;
        if (thread.pid, thread.start_ticks) != (of.pid, of.start_ticks) {
            return errno(libc::ESRCH);
        }
        Ok(Usage { run_ns: thread.run_ns, turns: thread.turns })
    }

    fn fill(&mut self, cpu: usize, reservation: Option<&Attributes>) -> io::Result<()> {
        match reservation {
            Some(reservation) => self.fillers.insert(cpu, *reservation),
            None => self.fillers.remove(&cpu),
        };
        Ok(())
    }

    fn scratch(&mut self) -> io::Result<(u32, u32)> {
        let ours = std::process::id();
        if !self.threads.contains_key(&SCRATCH) {
            self.spawn(ours, SCRATCH, "scratch");
        }
        Ok((ours, SCRATCH))
    }

    fn spin_scratch(&mut self, for_ns: u64) -> io::Result<Vec<(u64, u64)>> {
        let has = self.thread(SCRATCH)?.attributes;
        let (mut runs, mut at_ns) = (Vec::new(), 0);
        while at_ns < for_ns {
            let end_ns = at_ns + has.runtime_ns;
            let end_ns = if self.exact { end_ns } else { end_ns.div_ceil(self.tick_ns) * self.tick_ns };
            runs.push((at_ns, end_ns.min(for_ns)));
            // A debt is paid back by whole periods.
            at_ns += (end_ns - at_ns).div_ceil(has.runtime_ns) * has.period_ns;
        }
        Ok(runs)
    }

    fn tick_ns(&self) -> u64 {
        self.tick_ns
    }

    fn owner_file(&self) -> Option<PathBuf> {
        self.owner_file.clone()
    }

    fn end_scratch(&mut self) {
        self.threads.remove(&SCRATCH);
    }
}

const SCRATCH: u32 = 4_000_000;

/// The cpuset that a file belongs to: `/` also for files elsewhere.
fn set_of(path: &Path) -> String {
    let folder = path.parent().unwrap_or(Path::new("/"));
    match folder.strip_prefix(MOUNT) {
        Ok(below) if below != Path::new("") => format!("/{}", below.display()),
        _ => "/".into(),
    }
}

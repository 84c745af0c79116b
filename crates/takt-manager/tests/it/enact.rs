//! Enactment on the running kernel: everything that is changed here is changed for real, for a
//! second or two, and must be as before afterwards, however the manager ended.
//!
//! Without privilege a test says why it was skipped. All tests of this file hold one lock: cpusets
//! and the admission test are the whole machine's.
#![allow(clippy::unwrap_used)] // Helpers of tests may panic as tests may.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use takt_host::reserve::pin;
use takt_manager::enact::order::Held;
use takt_manager::enact::{Enacted, Enactor, Error, Mode, Options, Soft, Target, Wanted};
use takt_manager::plan::Platform;
use takt_manager::restore::{self, watchdog};
use takt_manager::system::{Attributes, GroupVersion, Kernel, Linux};
use takt_rt::clock::monotonic_ns;
use takt_rt::placement::{self, CpuSet};
use takt_rt::policy::Policy;

/// One test of this file at a time, in whatever process.
fn serial() -> File {
    let file = File::create(std::env::temp_dir().join("takt-enact-test.lock")).unwrap();
    // SAFETY: the descriptor is open.
    assert_eq!(unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) }, 0);
    file
}

/// This test program again, as something else.
fn myself(role: &str, value: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["enact::role", "--exact", "--nocapture"]).env(format!("TAKT_TEST_{role}"), value);
    command
}

/// Role of this program when another test started it.
#[test]
fn role() {
    if let Ok(path) = std::env::var("TAKT_TEST_WATCHDOG") {
        watchdog::run(Path::new(&path)).unwrap();
    } else if std::env::var("TAKT_TEST_DUMMY").is_ok() {
        dummy();
    } else if let Ok(path) = std::env::var("TAKT_TEST_MANAGER") {
        manager(Path::new(&path));
    } else if let Ok(value) = std::env::var("TAKT_TEST_ADMISSION") {
        fs::write(takt_host::reserve::ADMISSION_FILE, value).unwrap();
    }
}

/// A process with a thread that always wants to run (but for 1 ms in 20), one that mostly sleeps,
/// and one that makes threads when reported.
fn dummy() {
    let (report, reported) = std::sync::mpsc::channel();
    let announce = move |name: &'static str| {
        // SAFETY: gettid has no preconditions.
        report.send((name, unsafe { libc::gettid() })).unwrap();
    };
    let (make, made) = std::sync::mpsc::channel::<()>();
    let announcer = announce.clone();
    std::thread::spawn(move || {
        announcer("busy");
        loop {
            let end = monotonic_ns() + 20_000_000;
            while monotonic_ns() < end {
                std::hint::spin_loop();
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    let announcer = announce.clone();
    std::thread::spawn(move || {
        announcer("idle");
        loop {
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    let announcer = announce.clone();
    std::thread::spawn(move || {
        announcer("maker");
        while made.recv().is_ok() {
            let announcer = announcer.clone();
            std::thread::spawn(move || {
                announcer("made");
                loop {
                    std::thread::sleep(Duration::from_millis(50));
                }
            });
        }
    });
    std::thread::spawn(move || {
        for (name, tid) in reported {
            println!("\nthread {name} {tid}");
        }
    });
    for line in std::io::stdin().lines() {
        if line.unwrap() == "make" {
            make.send(()).unwrap();
        }
    }
}

struct Dummy {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
    threads: BTreeMap<String, u32>,
}

impl Dummy {
    fn start() -> Self {
        let mut command = myself("DUMMY", "1");
        // A nice value that this test was started with would be one that the dummy chose for
        // itself. SAFETY: setpriority is async-signal-safe and has no memory effects.
        unsafe {
            command.pre_exec(|| {
                libc::setpriority(libc::PRIO_PROCESS, 0, 0);
                Ok(())
            });
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut dummy = Self { child, output, threads: BTreeMap::new() };
        while dummy.threads.len() < 3 {
            dummy.listen();
        }
        dummy
    }

    fn listen(&mut self) {
        let mut line = String::new();
        assert_ne!(self.output.read_line(&mut line).unwrap(), 0, "the dummy ended");
        if let Some((name, tid)) = line.trim().strip_prefix("thread ").and_then(|rest| rest.split_once(' ')) {
            self.threads.insert(name.into(), tid.parse().unwrap());
        }
    }

    fn make(&mut self) -> u32 {
        writeln!(self.child.stdin.as_mut().unwrap(), "make").unwrap();
        while !self.threads.contains_key("made") {
            self.listen();
        }
        self.threads["made"]
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    fn tid(&self, name: &str) -> u32 {
        self.threads[name]
    }

    fn wanted(&self, name: &str, budget_us: u64, core: usize) -> Wanted {
        let held = Held { budget_ns: budget_us * 1000, period_ns: 10_000_000, core };
        Wanted { pid: self.pid(), tid: self.tid(name), name: name.into(), held, patience_ns: 20_000_000 }
    }

    fn target(&self, reservations: Vec<Wanted>, best_effort: &[&str]) -> Target {
        Target {
            reservations,
            best_effort: best_effort.iter().map(|name| (self.pid(), self.tid(name))).collect(),
            processes: BTreeSet::from([self.pid()]),
            alone: false,
        }
    }
}

impl Drop for Dummy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Everything that enactment may change.
#[derive(Debug, PartialEq)]
struct Snapshot {
    threads: BTreeMap<u32, (Attributes, CpuSet, [Option<String>; 2])>,
    settings: BTreeMap<PathBuf, String>,
    groups: Vec<PathBuf>,
    kernel_threads: BTreeMap<u32, CpuSet>,
}

impl Snapshot {
    fn take(pid: u32) -> Self {
        let kernel = Linux::new();
        let mut settings = BTreeMap::new();
        let mut groups = Vec::new();
        for path in [
            "/proc/sys/kernel/sched_rt_runtime_us",
            "/sys/devices/virtual/workqueue/cpumask",
            takt_host::reserve::enforce::FEATURE_FILES[0],
        ] {
            settings.insert(path.into(), fs::read_to_string(path).unwrap_or_default());
        }
        for (version, file) in
            [(GroupVersion::V1, "cpuset.sched_load_balance"), (GroupVersion::V2, "cgroup.subtree_control")]
        {
            let Some(mount) = kernel.group_mount(version) else { continue };
            let path = mount.join(file);
            settings.insert(path.clone(), fs::read_to_string(path).unwrap_or_default());
            groups.extend(
                fs::read_dir(mount)
                    .unwrap()
                    .map(|entry| entry.unwrap().path())
                    .filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("takt")),
            );
        }
        let threads = kernel.threads(pid).unwrap_or_default();
        let threads = threads.into_iter().map(|tid| {
            let groups = [GroupVersion::V1, GroupVersion::V2];
            let groups = groups.map(|version| kernel.group(pid, tid, version).unwrap());
            (tid, (kernel.attributes(tid).unwrap(), kernel.affinity(tid).unwrap(), groups))
        });
        // Kernel threads come and go; only those that live on are compared. The kernel moves
        // threads of interrupts after these.
        let passing = ["kworker", "irq/"];
        let workers = |tid: &u32| {
            kernel.thread_name(*tid, *tid).is_ok_and(|name| !passing.iter().any(|p| name.starts_with(p)))
        };
        let kernel_threads = kernel.kernel_threads().unwrap().into_iter().filter(workers);
        let kernel_threads =
            kernel_threads.filter_map(|tid| Some((tid, kernel.affinity(tid).ok()?))).collect();
        Self { threads: threads.collect(), settings, groups, kernel_threads }
    }
}

fn cores() -> Option<(usize, usize)> {
    let online: Vec<usize> = placement::online().unwrap().iter().collect();
    match online.as_slice() {
        [system, .., reserved] => Some((*system, *reserved)),
        _ => {
            takt_witness::skip!("needs two CPUs");
            None
        }
    }
}

fn platform() -> Option<Platform> {
    let (system_core, reserved) = cores()?;
    Some(Platform::new(vec![reserved], system_core, 0.9))
}

fn options(folder: &Path, mode: Mode) -> Options {
    Options {
        modes: vec![mode],
        state: folder.join("state.json"),
        kernel_workers: false,
        kernel_threads: false,
        ..Options::default()
    }
}

/// The enactor, or why not here.
fn enactor(platform: &Platform, options: Options) -> Option<Enactor<Linux>> {
    match Enactor::new(Linux::new(), platform, options) {
        Ok(enactor) => Some(enactor),
        Err(Error::NothingGranted { refusals }) => {
            takt_witness::skip!("{refusals:?}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn each_way_reserves_and_restores() {
    let _lock = serial();
    let Some(platform) = platform() else { return };
    for mode in Mode::ALL {
        let folder = tempfile::tempdir().unwrap();
        let mut dummy = Dummy::start();
        let before = Snapshot::take(dummy.pid());
        if let Some(mut enactor) = enactor(&platform, options(folder.path(), mode)) {
            let core = platform.cores[0];
            let first = dummy
                .target(vec![dummy.wanted("busy", 3000, core), dummy.wanted("maker", 4000, core)], &["idle"]);
            let enacted = patiently(&mut enactor, &first);
            assert_eq!(enacted.differences, [], "{mode}");
            assert_eq!(enacted.reserved.len(), 2, "{mode}");
            assert_eq!(enacted.helpers, enactor_helpers(&dummy), "{mode}");
            if mode == Mode::AdmissionOff {
                // Also while they are reserved, threads stay in the group of their unit or
                // container.
                for (tid, (_, _, group)) in &Snapshot::take(dummy.pid()).threads {
                    assert_eq!(*group, before.threads[tid].2, "{mode}: thread {tid}");
                }
            }
            // A reserved thread can still make threads, and they start without reservation.
            let made = dummy.make();
            let kernel = Linux::new();
            assert!(!kernel.attributes(made).unwrap().is_deadline());
            // It inherits the one CPU of the thread that made it, until the next look.
            enactor.watch(monotonic_ns());
            if mode == Mode::AdmissionOff {
                let (_, cpus, _) = &before.threads[&dummy.pid()];
                assert_eq!(kernel.affinity(made).unwrap(), *cpus, "{mode}");
            }
            // Shrink one, grow the other beyond what was free, and drop the third from best effort.
            let second = dummy
                .target(vec![dummy.wanted("busy", 1000, core), dummy.wanted("maker", 7000, core)], &["idle"]);
            let enacted = patiently(&mut enactor, &second);
            assert_eq!(enacted.differences, [], "{mode}");
            let budgets: Vec<u64> = enacted.reserved.iter().map(|reserved| reserved.budget_ns).collect();
            assert_eq!(budgets.iter().sum::<u64>(), 8_000_000, "{mode}");
            // What was made meanwhile is a helper now.
            assert_eq!(enacted.helpers, enactor_helpers(&dummy) + 1, "{mode}");
            // Nothing to do: nothing done.
            let again = enactor.enact(&second).unwrap();
            assert_eq!(again.reserved, enacted.reserved, "{mode}");
            // Where the kernel balances nobody, helpers go by their measured demand, which changes.
            assert!(again.changes == 0 || mode == Mode::ExclusiveSets, "{mode}: {again:?}");
            let third = dummy.target(vec![], &["busy", "maker", "idle"]);
            let enacted = enactor.enact(&third).unwrap();
            assert_eq!((enacted.reserved.len(), enacted.best_effort), (0, 3), "{mode}");
            let restored = enactor.restore().unwrap();
            assert!(restored.is_complete(), "{mode}: {restored}");
            let mut after = Snapshot::take(dummy.pid());
            // The new thread is as its process was.
            let (attributes, cpus, group) = after.threads.remove(&made).unwrap();
            let (_, main_cpus, main_group) = &before.threads[&dummy.pid()];
            assert_eq!((attributes.policy, &cpus, &group), (0, main_cpus, main_group), "{mode}");
            assert_eq!(after.threads, before.threads, "{mode}");
            the_account_is_right(&mode.to_string());
        }
        assert_eq!(Snapshot::take(dummy.pid()).settings, before.settings, "{mode}");
        assert_eq!(Snapshot::take(dummy.pid()).groups, before.groups, "{mode}");
        assert!(!folder.path().join("state.json").exists(), "{mode}");
    }
}

/// EBUSY or EAGAIN.
fn is_refused_for_now(why: &str) -> bool {
    why.contains("os error 16") || why.contains("os error 11")
}

/// As the manager does it: what the kernel refuses as busy, because a reservation that has just
/// ended has not left its domain yet, is tried again with the next plan.
fn patiently(enactor: &mut Enactor<Linux>, target: &Target) -> Enacted {
    for _ in 0..40 {
        let enacted = enactor.enact(target).unwrap();
        if !enacted.differences.iter().any(|difference| is_refused_for_now(&difference.has)) {
            return enacted;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    enactor.enact(target).unwrap()
}

/// Bandwidth that the kernel has in its account for the domain of each CPU, 2^-20 CPUs; `None`
/// where nobody may see it. Read by another program, in a mount namespace of its own.
fn account() -> Option<Vec<i64>> {
    let script = "mount -t debugfs none /mnt && cat /mnt/sched/debug";
    let output = Command::new("unshare").args(["-m", "sh", "-c", script]).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let sums = text.lines().filter_map(|line| line.trim().strip_prefix(".dl_bw->total_bw"));
    let number = |rest: &str| rest.rsplit(' ').next()?.parse::<i64>().ok();
    let sums: Vec<i64> = sums.filter_map(number).collect();
    (!sums.is_empty()).then_some(sums)
}

/// The kernel's present account equals its result when it counts anew (6.17 and later do at this
/// write).
fn the_account_is_right(when: &str) {
    let Some(before) = account() else {
        takt_witness::skip!("in part: the account cannot be seen");
        return;
    };
    let runtime = fs::read_to_string(takt_host::reserve::ADMISSION_FILE).unwrap();
    fs::write(takt_host::reserve::ADMISSION_FILE, runtime.trim()).unwrap();
    assert_eq!(Some(before), account(), "{when}");
}

/// The main thread, the harness' threads and those of the dummy that nobody names.
fn enactor_helpers(dummy: &Dummy) -> usize {
    let all = Linux::new().threads(dummy.pid()).unwrap().len();
    all - 3 - usize::from(dummy.threads.contains_key("made"))
}

/// A manager that enacts, says so, and waits for its end.
fn manager(folder: &Path) {
    if let Some(group) = std::env::var_os("TAKT_TEST_GROUP") {
        fs::write(Path::new(&group).join("cgroup.procs"), "0").unwrap();
    }
    let text = fs::read_to_string(folder.join("target.json")).unwrap();
    let (pid, busy, idle, mode): (u32, u32, u32, Mode) = serde_json::from_str(&text).unwrap();
    let platform = platform().unwrap();
    let options = Options { kernel_workers: true, kernel_threads: true, ..options(folder, mode) };
    let _watchdog = std::env::var_os("TAKT_TEST_WATCHED")
        .map(|_| watchdog::Watchdog::start(myself("WATCHDOG", options.state.to_str().unwrap())).unwrap());
    let Some(mut enactor) = enactor(&platform, options) else {
        println!("\nskipped");
        return;
    };
    let held = Held { budget_ns: 3_000_000, period_ns: 10_000_000, core: platform.cores[0] };
    let target = Target {
        reservations: vec![Wanted { pid, tid: busy, name: "busy".into(), held, patience_ns: 20_000_000 }],
        best_effort: vec![(pid, idle)],
        processes: BTreeSet::from([pid]),
        alone: false,
    };
    let enacted = enactor.enact(&target).unwrap();
    assert!(enacted.holds(), "{:?}", enacted.differences);
    println!("\nenacted");
    let _ = std::io::stdin().read(&mut [0]);
}

/// Starts a manager in a process of its own, waits until it has enacted, and kills it. False:
/// skipped.
fn kill_a_manager(dummy: &Dummy, folder: &Path, mode: Mode, watched: bool, group: Option<&Path>) -> bool {
    let Some(mut manager) = start_a_manager(dummy, folder, mode, watched, group) else { return false };
    if let Some(group) = group {
        // All in the group at once, as systemd ends a service. The watchdog is not in it.
        let inside = fs::read_to_string(group.join("cgroup.procs")).unwrap();
        assert_eq!(inside.trim(), manager.id().to_string());
        fs::write(group.join("cgroup.kill"), "1").unwrap();
    } else {
        manager.kill().unwrap();
    }
    manager.wait().unwrap();
    true
}

/// A manager in a process of its own that has enacted.
fn start_a_manager(
    dummy: &Dummy,
    folder: &Path,
    mode: Mode,
    watched: bool,
    group: Option<&Path>,
) -> Option<Child> {
    let target = (dummy.pid(), dummy.tid("busy"), dummy.tid("idle"), mode);
    fs::write(folder.join("target.json"), serde_json::to_string(&target).unwrap()).unwrap();
    let mut command = myself("MANAGER", folder.to_str().unwrap());
    if watched {
        command.env("TAKT_TEST_WATCHED", "1");
    }
    if let Some(group) = group {
        command.env("TAKT_TEST_GROUP", group);
    }
    let mut manager = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut message = BufReader::new(manager.stdout.take().unwrap()).lines().map(Result::unwrap);
    let answer = message.find(|line| line == "enacted" || line == "skipped").expect("the manager failed");
    if answer == "skipped" {
        manager.kill().unwrap();
        manager.wait().unwrap();
        return None;
    }
    assert!(Linux::new().attributes(dummy.tid("busy")).unwrap().is_deadline());
    Some(manager)
}

#[test]
fn a_killed_manager_is_undone_by_its_watchdog() {
    let _lock = serial();
    if platform().is_none() {
        return;
    }
    for mode in [Mode::PartitionRoots, Mode::ExclusiveSets, Mode::AdmissionOff] {
        let folder = tempfile::tempdir().unwrap();
        let dummy = Dummy::start();
        let before = Snapshot::take(dummy.pid());
        if !kill_a_manager(&dummy, folder.path(), mode, true, None) {
            continue;
        }
        await_the_watchdog(folder.path());
        let mut after = Snapshot::take(dummy.pid());
        after.kernel_threads.retain(|tid, _| before.kernel_threads.contains_key(tid));
        for (tid, cpus) in &after.kernel_threads {
            let name = Linux::new().thread_name(*tid, *tid).unwrap_or_default();
            assert_eq!(before.kernel_threads[tid], *cpus, "{mode}: kernel thread {tid} {name}");
        }
        assert_eq!(after.threads, before.threads, "{mode}");
        assert_eq!((after.settings, after.groups), (before.settings, before.groups), "{mode}");
        the_account_is_right(&format!("{mode}, after a kill"));
    }
}

/// The watchdog ends by deleting the state file.
fn await_the_watchdog(folder: &Path) {
    let state = folder.join("state.json");
    // A minute: on a busy machine it needs its turn first.
    for _ in 0..6000 {
        if !state.exists() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("the watchdog has not restored");
}

#[test]
fn the_watchdog_is_not_ended_with_the_group_of_its_manager() {
    let _lock = serial();
    if platform().is_none() {
        return;
    }
    let Some(mount) = Linux::new().group_mount(GroupVersion::V2) else {
        takt_witness::skip!("no cgroup v2 is mounted");
        return;
    };
    let group = mount.join(format!("test-manager-{}", std::process::id()));
    let folder = tempfile::tempdir().unwrap();
    let dummy = Dummy::start();
    let before = Snapshot::take(dummy.pid());
    if fs::create_dir(&group).is_err() || !group.join("cgroup.kill").exists() {
        let _ = fs::remove_dir(&group);
        takt_witness::skip!("no right to make control groups, or a kernel that cannot end one (5.14)");
        return;
    }
    if kill_a_manager(&dummy, folder.path(), Mode::AdmissionOff, true, Some(&group)) {
        await_the_watchdog(folder.path());
        let after = Snapshot::take(dummy.pid());
        assert_eq!((after.threads, after.settings), (before.threads, before.settings));
    }
    fs::remove_dir(&group).unwrap();
}

#[test]
fn a_killed_manager_without_watchdog_is_undone_from_the_state_file() {
    let _lock = serial();
    if platform().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state.json");
    let dummy = Dummy::start();
    let before = Snapshot::take(dummy.pid());
    if !kill_a_manager(&dummy, folder.path(), Mode::AdmissionOff, false, None) {
        return;
    }
    assert!(state.exists());
    assert!(Linux::new().attributes(dummy.tid("busy")).unwrap().is_deadline());
    let restored = restore::restore(&mut Linux::new(), &state).unwrap().expect("there was something to do");
    assert!(restored.is_complete(), "{restored}");
    assert_eq!(restore::restore(&mut Linux::new(), &state).unwrap(), None);
    let after = Snapshot::take(dummy.pid());
    assert_eq!((after.threads, after.settings), (before.threads, before.settings));
}

#[test]
fn the_next_manager_undoes_what_a_killed_one_left() {
    let _lock = serial();
    let Some(platform) = platform() else { return };
    for mode in Mode::ALL {
        is_undone_by_the_next(mode, &platform);
    }
}

/// Two with state files of their own: the second one is refused while the first runs, and undoes it
/// once it was killed. Each would bring back what the other had set, and leave that.
#[test]
fn one_manager_at_a_time_changes_the_machine_whatever_its_state_file_is() {
    let _lock = serial();
    let Some(platform) = platform() else { return };
    let [first, second] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let dummy = Dummy::start();
    let before = Snapshot::take(dummy.pid());
    let Some(mut manager) = start_a_manager(&dummy, first.path(), Mode::AdmissionOff, false, None) else {
        return;
    };
    let begin = || Enactor::new(Linux::new(), &platform, options(second.path(), Mode::AdmissionOff));
    let refused = begin().map(drop).unwrap_err().to_string();
    manager.kill().unwrap();
    manager.wait().unwrap();
    assert!(refused.contains(&format!("process {} ", manager.id())), "{refused}");
    let enactor = begin().unwrap();
    let left = enactor.left_behind().cloned();
    assert!(!first.path().join("state.json").exists());
    assert!(left.is_some_and(|left| left.is_complete() && left.threads > 0));
    assert!(!Linux::new().attributes(dummy.tid("busy")).unwrap().is_deadline());
    assert!(enactor.restore().unwrap().is_complete());
    let after = Snapshot::take(dummy.pid());
    assert_eq!((after.threads, after.settings), (before.threads, before.settings));
}

/// The kernel's earlier admission test, restored whatever becomes of the test.
struct AsFound(String);

impl Drop for AsFound {
    fn drop(&mut self) {
        let _ = fs::write(takt_host::reserve::ADMISSION_FILE, self.0.trim());
    }
}

/// `sysctl -w` by somebody else, again and again.
#[test]
fn an_admission_test_that_another_program_switches_on_is_off_again_and_comes_back_as_it_was_set() {
    let _lock = serial();
    let Some(platform) = platform() else { return };
    let folder = tempfile::tempdir().unwrap();
    let dummy = Dummy::start();
    let path = takt_host::reserve::ADMISSION_FILE;
    let found = AsFound(fs::read_to_string(path).unwrap());
    let Some(mut enactor) = enactor(&platform, options(folder.path(), Mode::AdmissionOff)) else { return };
    let target = dummy.target(vec![dummy.wanted("busy", 3000, platform.cores[0])], &["idle"]);
    assert_eq!(patiently(&mut enactor, &target).differences, []);
    let now = || fs::read_to_string(path).unwrap().trim().to_owned();
    let set = "960000";
    assert_ne!(found.0.trim(), set);
    let mut last = 0;
    for times in 0..4 {
        // This program, for a guest has no shell.
        let mut other = Command::new(std::env::current_exe().unwrap());
        other.args(["enact::role", "--exact", "--nocapture"]).env("TAKT_TEST_ADMISSION", set);
        let mut other = other.stdout(Stdio::null()).spawn().unwrap();
        last = other.id();
        assert!(other.wait().unwrap().success());
        let mut kernel = Linux::new();
        // As another manager's end does; and nothing is granted any more.
        kernel.set_attributes(dummy.tid("busy"), &Attributes::other(0)).unwrap();
        let asked = Attributes::reservation(3_000_000, 10_000_000, false);
        assert!(kernel.set_attributes(dummy.tid("busy"), &asked).is_err());
        let mut enacted = patiently(&mut enactor, &target);
        if times < 3 {
            // The kernel refuses that, too, while what has just ended weighs on it.
            for _ in 0..100 {
                if enacted.holds() && now() == "-1" {
                    break;
                }
                std::thread::sleep(Duration::from_millis(20));
                enacted = patiently(&mut enactor, &target);
            }
            assert_eq!((enacted.differences, now().as_str()), (vec![], "-1"), "{times}");
            assert!(kernel.attributes(dummy.tid("busy")).unwrap().is_deadline());
        } else {
            let shown: Vec<String> = enacted.differences.iter().map(ToString::to_string).collect();
            assert!(!enacted.holds() && shown.iter().any(|one| one.contains("keeps switching")), "{shown:?}");
            assert_eq!(now(), set);
        }
    }
    let notes = enactor.admission_notes();
    assert_eq!(notes.len(), 2, "each is said once: {notes:#?}");
    // Where fanotify is to be had, it says who.
    let named = notes[1].contains(&format!("process {last}"));
    assert!(named || notes[1].contains(": another program has switched"), "{notes:#?}");
    assert!(enactor.restore().unwrap().is_complete());
    assert_eq!(now(), set, "and not {}", found.0);
}

fn is_undone_by_the_next(mode: Mode, platform: &Platform) {
    let folder = tempfile::tempdir().unwrap();
    let dummy = Dummy::start();
    let before = Snapshot::take(dummy.pid());
    if !kill_a_manager(&dummy, folder.path(), mode, false, None) {
        return;
    }
    let enactor = enactor(platform, options(folder.path(), Mode::AdmissionOff)).unwrap();
    assert!(enactor.left_behind().is_some_and(|left| left.is_complete() && left.threads > 0));
    assert!(!Linux::new().attributes(dummy.tid("busy")).unwrap().is_deadline());
    assert!(matches!(
        restore::restore(&mut Linux::new(), enactor.state_file()),
        Err(restore::Error::StillManaged { pid, .. }) if pid == std::process::id()
    ));
    enactor.restore().unwrap();
    let after = Snapshot::take(dummy.pid());
    assert_eq!(
        (after.threads, after.settings, after.groups),
        (before.threads, before.settings, before.groups)
    );
}

fn watchdog_command(state: &Path) -> std::io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["enact::role", "--exact", "--nocapture"]).env("TAKT_TEST_WATCHDOG", state);
    Ok(command)
}

/// A robot pins its few threads, in each way that this kernel has.
#[test]
fn threads_of_ones_own_are_pinned_with_their_reservation_in_each_way() {
    let _lock = serial();
    let online = placement::online().unwrap();
    let Some(last) = online.iter().last().filter(|_| online.len() > 1) else { return };
    let (cpus, policy) = (CpuSet::single(last).unwrap(), "deadline:400us/4ms/4ms".parse().unwrap());
    let dummy = Dummy::start();
    let before = Snapshot::take(dummy.pid());
    for way in pin::PinMethod::ALL {
        let folder = tempfile::tempdir().unwrap();
        let options = pin::PinOptions {
            state: folder.path().join("state.json"),
            watchdog: Some(watchdog_command),
            ways: vec![way],
        };
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let (report, reported) = std::sync::mpsc::channel();
        let sleeper = std::thread::spawn(move || {
            // SAFETY: gettid has no preconditions.
            report.send(unsafe { libc::gettid() }).unwrap();
            while ended.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let tid = reported.recv().unwrap();
        let outcome = pin::pin(&[pin::Wanted { tid, cpus, policy }], &options);
        match &outcome {
            Ok(pinned) => {
                let now = (Policy::read(tid).unwrap(), placement::affinity(tid).unwrap());
                assert_eq!(now, (policy, cpus), "{way}");
                eprintln!("pinned by {}", pinned.way);
            }
            Err(closed) => takt_witness::skip!("in part: {}", closed[0]),
        }
        drop(end);
        sleeper.join().unwrap();
        drop(outcome);
        let after = Snapshot::take(dummy.pid());
        assert_eq!(
            (after.threads, after.settings, after.groups),
            (before.threads.clone(), before.settings.clone(), before.groups.clone()),
            "{way}"
        );
        the_account_is_right(&way.to_string());
    }
}

/// CPU time of the busy thread in the next 500 ms, as a share of a CPU.
fn share(dummy: &Dummy, mut each: impl FnMut()) -> f64 {
    let kernel = Linux::new();
    let run = || kernel.run_ns(dummy.pid(), dummy.tid("busy")).unwrap();
    let (from, at) = (run(), monotonic_ns());
    while monotonic_ns() < at + 500_000_000 {
        std::thread::sleep(Duration::from_millis(15));
        each();
    }
    (run() - from) as f64 / (monotonic_ns() - at) as f64
}

#[test]
fn a_budget_that_is_too_small_holds_back_only_where_it_is_hard() {
    let _lock = serial();
    let Some(platform) = platform() else { return };
    for (mode, soft) in [
        (Mode::PartitionRoots, Soft::Hard),
        (Mode::PartitionRoots, Soft::Soft),
        (Mode::ExclusiveSets, Soft::Hard),
        (Mode::ExclusiveSets, Soft::Soft),
        (Mode::AdmissionOff, Soft::Hard),
        (Mode::AdmissionOff, Soft::Reclaim),
        (Mode::AdmissionOff, Soft::Soft),
        (Mode::AdmissionOff, Soft::Grub),
    ] {
        // Where the hypervisor or other threads take the CPU for half a second, nothing can be seen
        // of a budget.
        let mut refused = Vec::new();
        while let Err(why) = hold_back(&platform, mode, soft) {
            refused.push(why);
            assert!(refused.len() < 5, "{mode}, {soft:?}: {refused:#?}");
        }
    }
}

/// A thread that always wants to run, on 5 % of a CPU: what it had, and whether that was noticed,
/// is as `soft` says.
fn hold_back(platform: &Platform, mode: Mode, soft: Soft) -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    let dummy = Dummy::start();
    let options = Options { soft, ..options(folder.path(), mode) };
    let Some(mut enactor) = enactor(platform, options) else { return Ok(()) };
    let target = dummy.target(vec![dummy.wanted("busy", 500, platform.cores[0])], &["maker", "idle"]);
    let enacted = patiently(&mut enactor, &target);
    assert!(enacted.holds(), "{mode}: {:?}", enacted.differences);
    let (mut overruns, mut released) = (0, false);
    let share = share(&dummy, || {
        let noticed = enactor.watch(monotonic_ns());
        overruns += noticed.len();
        released |= noticed.iter().any(|overrun| overrun.released);
    });
    // Without reservation it competes with whatever runs here, so there the release is what can be
    // tested.
    let reclaims = soft != Soft::Hard && enactor.no_reclaim().is_none();
    let expected = match (soft, mode) {
        (Soft::Hard, _) => share < 0.1,
        (Soft::Soft | Soft::Grub, _) if reclaims => share > 0.1,
        (Soft::Grub, _) => share < 0.1,
        // Let go once it had wanted more for as long as its patience.
        (Soft::Reclaim | Soft::Soft, _) => true,
    };
    assert!(enactor.restore().unwrap().is_complete());
    let seen =
        format!("reserved 0.05, had {share:.2} of a CPU, {overruns} overruns noticed, released: {released}");
    eprintln!("{mode}, {soft:?}: {seen}");
    if expected && overruns > 0 && released == (soft == Soft::Reclaim || soft == Soft::Soft && !reclaims) {
        Ok(())
    } else {
        Err(seen)
    }
}

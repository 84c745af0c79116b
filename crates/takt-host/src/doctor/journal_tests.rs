use super::*;
use crate::doctor::setting::{Scope, Setting};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A thread of this process that sleeps, to try things with.
struct Asleep {
    end: Option<Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
    scope: Scope,
}

impl Asleep {
    fn start() -> Self {
        let (end, ended) = channel::<()>();
        let (sender, receiver) = channel();
        let thread = std::thread::Builder::new().name("asleep".to_owned()).spawn(move || {
            // SAFETY: gettid has no preconditions.
            sender.send(unsafe { libc::gettid() } as u32).unwrap();
            let _ = ended.recv();
        });
        let scope = Scope { pid: std::process::id(), tid: receiver.recv().unwrap() };
        Self { end: Some(end), thread: Some(thread.unwrap()), scope }
    }

    fn identity(&self) -> Identity {
        system::identify(&Linux::new(), self.scope.pid, self.scope.tid).unwrap()
    }

    /// Everything that may be changed of it.
    fn shown(&self) -> (Attributes, CpuSet, u64) {
        let kernel = Linux::new();
        let tid = self.scope.tid;
        let slack = read_slack(&self.identity()).unwrap();
        (kernel.attributes(tid).unwrap(), kernel.affinity(tid).unwrap(), slack)
    }
}

impl Drop for Asleep {
    fn drop(&mut self) {
        drop(self.end.take());
        let _ = self.thread.take().map(std::thread::JoinHandle::join);
    }
}

/// A journal has the lock on the machine's settings.
fn one_at_a_time() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn names() -> (String, String) {
    let own = std::process::id();
    let read = |path: String| std::fs::read_to_string(path).unwrap().trim().to_owned();
    (read(format!("/proc/{own}/comm")), "asleep".to_owned())
}

fn all(cpu: usize) -> Vec<Setting> {
    let (process, thread) = names();
    vec![
        Setting::TimerSlack { process: process.clone(), thread: thread.clone(), slack_ns: 7_000 },
        Setting::Cpus {
            process: process.clone(),
            thread: thread.clone(),
            cpus: CpuSet::single(cpu).unwrap(),
        },
        Setting::Policy { process, thread, policy: "other:5".to_owned() },
    ]
}

#[test]
fn a_thread_is_changed_and_put_back_whole() {
    let _one = one_at_a_time();
    let _machine = crate::doctor::alone();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tried/state.json");
    let asleep = Asleep::start();
    let before = asleep.shown();
    let cpu = before.1.iter().next().unwrap();
    let (mut journal, left) = Journal::begin(&path).unwrap();
    assert!(left.is_empty() && path.is_file());
    let actions: Vec<Action> =
        all(cpu).iter().flat_map(|setting| setting.resolve(Some(asleep.scope)).unwrap()).collect();
    // Settings that were not noted are not changed.
    assert!(journal.set(&actions[0]).is_err());
    journal.note(&actions).unwrap();
    for round in 0..2 {
        for action in &actions {
            journal.set(action).unwrap();
            assert!(journal.is_set(action), "{action:?}");
        }
        let now = asleep.shown();
        assert_eq!((now.0.nice, now.1.len(), now.2), (5, 1, 7_000), "round {round}");
        for action in actions.iter().rev() {
            journal.unset(action).unwrap();
        }
        // Nice values are raised by anybody and lowered by who may.
        if asleep.shown() != before {
            assert_eq!(asleep.shown().0.nice, 5);
            return takt_witness::skip!("no right to lower a nice value");
        }
    }
    for action in &actions {
        journal.set(action).unwrap();
    }
    journal.revert().unwrap();
    assert_eq!(asleep.shown(), before);
    assert!(!path.exists());
}

/// A real-time policy takes the slack, and the kernel gives back the default afterwards, not what
/// was there.
#[test]
fn slack_survives_a_real_time_policy() {
    let _one = one_at_a_time();
    let _machine = crate::doctor::alone();
    let folder = tempfile::tempdir().unwrap();
    let asleep = Asleep::start();
    std::fs::write(slack_file(&asleep.identity()), "20000000").unwrap();
    let before = asleep.shown();
    assert_eq!(before.2, 20_000_000);
    let (process, thread) = names();
    let fifo = Setting::Policy { process, thread, policy: "fifo:1".to_owned() };
    let (mut journal, _) = Journal::begin(&folder.path().join("state.json")).unwrap();
    let actions = fifo.resolve(Some(asleep.scope)).unwrap();
    journal.note(&actions).unwrap();
    if let Err(why) = journal.set(&actions[0]) {
        return takt_witness::skip!("{why}");
    }
    journal.unset(&actions[0]).unwrap();
    assert_eq!(asleep.shown(), before);
    journal.revert().unwrap();
}

#[test]
fn what_a_killed_search_left_is_taken_back_by_the_next() {
    let _one = one_at_a_time();
    let _machine = crate::doctor::alone();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.json");
    let asleep = Asleep::start();
    let before = asleep.shown();
    let (mut journal, _) = Journal::begin(&path).unwrap();
    let cpu = before.1.iter().next().unwrap();
    let actions: Vec<Action> =
        all(cpu)[..2].iter().flat_map(|setting| setting.resolve(Some(asleep.scope)).unwrap()).collect();
    journal.note(&actions).unwrap();
    for action in &actions {
        journal.set(action).unwrap();
    }
    // While its owner runs nobody else may.
    let refused = Journal::begin(&path).unwrap_err().to_string();
    assert!(refused.contains(&std::process::id().to_string()), "{refused}");
    // Nor by another file: each would bring back what the other had set. Others than root may not.
    match Journal::begin(&folder.path().join("another.json")) {
        Err(refused) => assert!(refused.to_string().contains("settings of the whole machine"), "{refused}"),
        Ok(_) => assert!(!Path::new("/run/takt").exists()),
    }
    // Nor does the watchdog of an earlier one, which comes late.
    assert!(take_back_of(&path, 1).unwrap().is_empty() && path.exists());
    assert_ne!(asleep.shown(), before);
    // Now its owner is another process, which has ended.
    let mut state = change::load(&path).unwrap().unwrap();
    state.owner = Some(Identity { start_ticks: 1, ..asleep.identity() });
    change::save(&path, &state).unwrap();
    drop(journal);
    let (journal, left) = Journal::begin(&path).unwrap();
    assert_eq!(left.len(), 1, "{left:?}");
    assert_eq!(asleep.shown(), before);
    journal.revert().unwrap();
    // Threads of another boot are strangers, whatever has their numbers.
    state.boot = "another".to_owned();
    change::save(&path, &state).unwrap();
    assert!(change::revert(&path).unwrap().is_empty());
    assert!(!path.exists());
}

#[test]
fn what_was_made_meanwhile_loses_what_it_inherited() {
    let _one = one_at_a_time();
    let _machine = crate::doctor::alone();
    let folder = tempfile::tempdir().unwrap();
    let online = takt_rt::placement::online().unwrap();
    if online.len() < 2 {
        return takt_witness::skip!("needs two CPUs");
    }
    let (mut journal, _) = Journal::begin(&folder.path().join("state.json")).unwrap();
    let only = CpuSet::single(online.iter().last().unwrap()).unwrap();
    // Somebody has bound another one to the same CPU before.
    let mut bound = std::process::Command::new("sleep").arg("20").spawn().unwrap();
    Linux::new().set_affinity(bound.id(), &only).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(30));
    // The thread that is bound has a child process.
    let (sender, receiver) = channel();
    let (go, wait) = channel::<()>();
    let maker = std::thread::Builder::new().name("asleep".to_owned()).spawn(move || {
        // SAFETY: gettid has no preconditions.
        sender.send(unsafe { libc::gettid() } as u32).unwrap();
        wait.recv().unwrap();
        std::process::Command::new("sleep").arg("20").spawn().unwrap()
    });
    let scope = Scope { pid: std::process::id(), tid: receiver.recv().unwrap() };
    let (process, thread) = names();
    let actions = Setting::Cpus { process, thread, cpus: only }.resolve(Some(scope)).unwrap();
    journal.note(&actions).unwrap();
    journal.set(&actions[0]).unwrap();
    go.send(()).unwrap();
    let mut child = maker.unwrap().join().unwrap();
    let shown = || Linux::new().affinity(child.id()).unwrap();
    assert_eq!(shown(), only);
    journal.free_inherited();
    let freed = shown();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(freed.len() > 1, "{freed}");
    assert_eq!(Linux::new().affinity(bound.id()).unwrap(), only);
    bound.kill().unwrap();
    bound.wait().unwrap();
    journal.revert().unwrap();
}

/// The choice of the OOM victim: of the process in the scope alone, and put back.
#[test]
fn the_score_of_a_process_is_changed_and_put_back() {
    let _one = one_at_a_time();
    let folder = tempfile::tempdir().unwrap();
    let own = std::process::id();
    let mut other = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    let score =
        |pid: u32| std::fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).unwrap().trim().to_owned();
    let before = (score(own), score(other.id()));
    let scope = Scope { pid: other.id(), tid: other.id() };
    // Until it has become `sleep` it has our name.
    let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
    let setting = Setting::OomScore { process: "sleep".to_owned(), score_adj: 700 };
    let actions = loop {
        match setting.resolve(Some(scope)) {
            Ok(actions) if actions.len() == 1 => break actions,
            other => assert!(std::time::Instant::now() < until, "{other:?}"),
        }
    };
    let (mut journal, _) = Journal::begin(&folder.path().join("state.json")).unwrap();
    journal.note(&actions).unwrap();
    journal.set(&actions[0]).unwrap();
    assert_eq!((score(own), score(other.id())), (before.0.clone(), "700".to_owned()));
    journal.unset(&actions[0]).unwrap();
    assert_eq!(score(other.id()), before.1);
    journal.set(&actions[0]).unwrap();
    journal.revert().unwrap();
    let after = (score(own), score(other.id()));
    other.kill().unwrap();
    other.wait().unwrap();
    assert_eq!(after, before);
}

#[test]
fn files_that_are_no_settings_are_not_written() {
    let _one = one_at_a_time();
    let folder = tempfile::tempdir().unwrap();
    let (mut journal, _) = Journal::begin(&folder.path().join("state.json")).unwrap();
    let foreign = [
        ("/etc/passwd", "x"),
        ("/proc/sys/kernel/core_pattern", "|/bin/sh"),
        ("/sys/class/net/eth0/../../../kernel/x/queues/rx-0/rps_cpus", "1"),
        ("/proc/sys/vm/swappiness", "1\n2"),
        ("/sys/devices/system/cpu/cpu0/disable", "1"),
        ("/proc/self/oom_score_adj", "0"),
        ("/proc/1/../2/oom_score_adj", "0"),
        ("/proc//oom_score_adj", "0"),
        ("/sys/kernel/debug/sched/nr_migrate/x", "8"),
    ];
    for (path, value) in foreign {
        let action =
            Action::File(crate::doctor::change::Change { path: path.into(), value: value.to_owned() });
        let refused = journal.note(std::slice::from_ref(&action)).unwrap_err().to_string();
        assert!(refused.contains("Nothing was changed"), "{path}: {refused}");
        assert!(journal.set(&action).is_err(), "{path}");
    }
    journal.revert().unwrap();
}

#[test]
fn a_limit_that_another_program_has_set_meanwhile_stays() {
    let (root, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = folder.path().join("state.json");
    let saved = |path: &str| Saved { path: path.into(), before: "950000".to_owned() };
    let state = State {
        settings: vec![saved(crate::reserve::ADMISSION_FILE), saved("/proc/sys/kernel/timer_migration")],
        ..State::new()
    };
    let file = root.path().join(crate::reserve::ADMISSION_FILE.trim_start_matches('/'));
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    for (now, left) in [("-1\n", 2), ("980000\n", 1)] {
        change::save(&path, &state).unwrap();
        std::fs::write(&file, now).unwrap();
        keep_newer(&path, root.path()).unwrap();
        assert_eq!(change::load(&path).unwrap().unwrap().settings.len(), left, "{now}");
    }
    std::fs::remove_file(&path).unwrap();
    keep_newer(&path, root.path()).unwrap();
}

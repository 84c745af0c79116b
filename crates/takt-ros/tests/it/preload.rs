//! Processes under the preload probe: this test's own executable, started anew as a child that
//! calls what `rclcpp` calls.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use crate::workload;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use takt_ros::preload::{CpuClock, Probe, ProbeOptions, ProbeSession, ProbeSessionError, ProcessError};
use takt_ros::{Event, Kind, Source};
use workload::{EVENTS_A_ROUND, QUIET_ROUNDS, ROLE, ROUNDS, SIGN, THREADS};

/// Main function of the children; alone it does nothing.
#[test]
fn child() {
    if let Ok(role) = std::env::var(ROLE) {
        workload::play(&role);
    }
}

fn options() -> ProbeOptions {
    ProbeOptions { stand_in: true, ..ProbeOptions::default() }
}

fn command(session: &ProbeSession, role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "preload::child", "--test-threads=1", "--nocapture"]).env(ROLE, role);
    command.stdin(Stdio::piped()).stdout(Stdio::null());
    session.prepare(&mut command);
    command
}

fn start(session: &ProbeSession, role: &str) -> Child {
    command(session, role).spawn().unwrap()
}

/// Polls until all processes of the session have ended.
fn read_to_end(probe: &mut Probe) -> Vec<Event> {
    let mut events = Vec::new();
    probe.finish();
    let until = Instant::now() + Duration::from_secs(60);
    while !probe.ended() {
        assert!(Instant::now() < until, "the session does not end");
        probe.poll(&mut |event| events.push(event)).unwrap();
        std::thread::sleep(Duration::from_millis(2));
    }
    events
}

fn observe(role: &str, options: &ProbeOptions) -> (Vec<Event>, Probe) {
    let session = ProbeSession::create(options).unwrap();
    let mut probe = session.probe().unwrap();
    assert!(start(&session, role).wait().unwrap().success());
    let events = read_to_end(&mut probe);
    assert!(probe.take_broken().is_empty());
    (events, probe)
}

fn by_thread(events: &[Event]) -> BTreeMap<u32, Vec<&Event>> {
    let mut threads = BTreeMap::<u32, Vec<&Event>>::new();
    events.iter().for_each(|event| threads.entry(event.tid).or_default().push(event));
    threads
}

#[test]
fn all_events_of_all_threads_arrive_in_order() {
    // Large enough for everything, should the reader not come to run.
    let options = ProbeOptions { ring_kib: 1024, ..options() };
    let (mut events, probe) = observe("plain", &options);
    assert!(events.is_sorted_by_key(|event| event.at_ns));
    let info = probe.processes().next().unwrap();
    let all = events.len() as u64;
    // Whether the machine preempted it is not the child's doing; nothing of it waits.
    events.retain(|event| match event.kind {
        Kind::OffCpu { switches, .. } => {
            assert!(matches!(switches, None | Some(0)), "{event:?}");
            false
        }
        _ => true,
    });
    assert_eq!((info.lost, info.alive, info.rmw_publish_arguments, info.cut_texts), (0, false, 3, 1));
    assert_eq!(info.events, all);
    let threads = by_thread(&events);
    assert_eq!(threads.len() as u64, THREADS + 1);
    // Reported by the process's end alone, and so not before the other threads' last events.
    assert_eq!(events.last().unwrap().kind, Kind::ThreadEnd);
    for (tid, events) in &threads {
        let Kind::ThreadName { name } = &events[0].kind else { panic!("{tid} has no name: {:?}", events[0]) };
        assert_eq!(events.last().unwrap().kind, Kind::ThreadEnd);
        assert!(events.iter().all(|event| event.pid == info.pid));
        let cpu: Vec<u64> = events.iter().filter_map(|event| event.cpu_ns).collect();
        assert!(cpu.is_sorted() && !cpu.is_empty());
        if !name.starts_with("executor") {
            check_init(events);
            continue;
        }
        let callback = name[9..].parse::<u64>().unwrap() * 1000;
        let body = &events[1..events.len() - 1];
        assert_eq!(body.len(), ROUNDS as usize * EVENTS_A_ROUND);
        for (number, round) in (1..).zip(body.chunks(EVENTS_A_ROUND)) {
            let kinds: Vec<&Kind> = round.iter().map(|event| &event.kind).collect();
            let expected = [
                Kind::ExecutorNextReady,
                Kind::ExecutorExecute { handle: callback + 1 },
                Kind::RmwTake {
                    rmw_subscription: callback + 2,
                    message: number,
                    source_ns: number as i64,
                    taken: true,
                },
                Kind::CallbackStart { callback, intra_process: number.is_multiple_of(2) },
                Kind::RclcppPublish { message: number },
                Kind::RclPublish { publisher: callback + 3, message: number },
                Kind::RmwPublish {
                    rmw_publisher: callback + 4,
                    message: number,
                    source_ns: Some(-(number as i64) - 1),
                },
                Kind::CallbackEnd { callback },
                Kind::ExecutorWait { timeout_ns: -1 },
            ];
            assert_eq!(kinds, expected.iter().collect::<Vec<_>>());
            let with_cpu: Vec<usize> = (0..EVENTS_A_ROUND).filter(|&at| round[at].cpu_ns.is_some()).collect();
            assert_eq!(with_cpu, [3, 5, 7, 8]);
        }
    }
}

fn check_init(events: &[&Event]) {
    let kinds: Vec<&Kind> = events[1..events.len() - 1].iter().map(|event| &event.kind).collect();
    let expected = [
        Kind::NodeInit { node: 10, name: "camera driver".into(), namespace: "/front".into() },
        Kind::PublisherInit { publisher: 20, node: 10, rmw_publisher: 21, topic: "/rgb".into(), depth: 5 },
        Kind::SubscriptionInit {
            subscription: 30,
            node: 10,
            rmw_subscription: 31,
            topic: "/tick".into(),
            depth: 6,
        },
        Kind::SubscriptionObject { subscription: 30, object: 32 },
        Kind::SubscriptionCallback { object: 32, callback: 33 },
        Kind::TimerInit { timer: 40, period_ns: 100_000_000 },
        Kind::TimerCallback { timer: 40, callback: 41 },
        Kind::TimerNode { timer: 40, node: 10 },
        Kind::CallbackSymbol { callback: 41, symbol: "x".repeat(1016).into() },
        Kind::LifecycleTransition { machine: 50, from: "inactive".into(), to: "active".into() },
    ];
    assert!(kinds.iter().copied().eq(&expected), "{:?}", &kinds[..kinds.len().min(20)]);
}

#[test]
fn cpu_time_comes_with_all_events_or_none_when_asked() {
    for (cpu_clock, expected) in [(CpuClock::All, true), (CpuClock::None, false)] {
        let (events, _) = observe("old", &ProbeOptions { cpu_clock, ..options() });
        // Ends that the reader concludes carry none.
        let mut own = events.iter().filter(|event| event.kind != Kind::ThreadEnd);
        assert!(own.all(|event| event.cpu_ns.is_some() == expected));
    }
}

#[test]
fn the_older_rmw_publish_is_reported_by_the_message() {
    let (events, probe) = observe("old", &options());
    assert_eq!(probe.processes().next().unwrap().rmw_publish_arguments, 1);
    let published = events.iter().filter(|event| matches!(event.kind, Kind::RmwPublish { .. }));
    let expected = (1..=10).map(|message| Kind::RmwPublish { rmw_publisher: 0, message, source_ns: None });
    assert!(published.map(|event| &event.kind).eq(expected.collect::<Vec<_>>().iter()));
}

#[test]
fn what_finds_the_ring_full_is_counted_and_said() {
    let session = ProbeSession::create(&ProbeOptions { ring_kib: 32, ..options() }).unwrap();
    let mut probe = session.probe().unwrap();
    let mut child = command(&session, "flood").stdout(Stdio::piped()).spawn().unwrap();
    // Nothing is read before the flood is over.
    let mut output = BufReader::new(child.stdout.take().unwrap());
    assert!(output.by_ref().lines().any(|line| line.unwrap() == SIGN));
    let until = Instant::now() + Duration::from_secs(60);
    let mut events = Vec::new();
    while events.is_empty() {
        assert!(Instant::now() < until);
        std::thread::sleep(Duration::from_millis(60));
        probe.poll(&mut |event| events.push(event)).unwrap();
    }
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    events.extend(read_to_end(&mut probe));
    let ends = events.iter().filter(|event| matches!(event.kind, Kind::CallbackEnd { .. })).count() as u64;
    let lost: Vec<(usize, u64)> = events
        .iter()
        .enumerate()
        .filter_map(|(at, event)| match event.kind {
            Kind::Lost { count } => Some((at, count)),
            _ => None,
        })
        .collect();
    assert_eq!(lost.len(), 1, "{lost:?}");
    assert!(lost[0].1 > 90_000);
    assert_eq!(ends + lost[0].1, 100_001);
    // Said before the event that came after the gap.
    assert_eq!(events[lost[0].0 + 1].kind, Kind::CallbackEnd { callback: 100_000 });
    assert_eq!(probe.processes().next().unwrap().lost, lost[0].1);
}

#[test]
fn a_forked_child_writes_into_a_file_of_its_own() {
    let (events, probe) = observe("fork", &options());
    let mut counts: Vec<(u64, usize)> =
        probe.processes().map(|info| (info.lost, info.events as usize)).collect();
    counts.sort_unstable();
    // It waits for its child within the callback, which is reported where it takes long.
    let reported = events.iter().filter(|event| matches!(event.kind, Kind::OffCpu { .. })).count();
    counts[0].1 -= reported.min(1);
    // Name, start, end, the thread's end; name, ten ends, the thread's end.
    assert_eq!(counts, [(0, 4), (0, 12)]);
    for thread in by_thread(&events).values() {
        let starts = thread.iter().filter(|event| matches!(event.kind, Kind::CallbackStart { .. })).count();
        let ends = thread.iter().filter(|event| matches!(event.kind, Kind::CallbackEnd { .. })).count();
        assert!([(1, 1), (0, 10)].contains(&(starts, ends)), "{starts} {ends}");
        assert_eq!(thread.last().unwrap().kind, Kind::ThreadEnd);
    }
}

#[test]
fn what_a_process_wrote_before_it_crashed_is_read() {
    let session = ProbeSession::create(&options()).unwrap();
    let mut probe = session.probe().unwrap();
    let mut command = command(&session, "crash");
    assert!(!command.stderr(Stdio::null()).spawn().unwrap().wait().unwrap().success());
    let events = read_to_end(&mut probe);
    let kinds: Vec<&Kind> = events.iter().skip(1).map(|event| &event.kind).collect();
    assert_eq!(kinds, [&Kind::CallbackStart { callback: 1, intra_process: false }, &Kind::ThreadEnd]);
}

#[test]
fn threads_leave_their_rings_to_the_next() {
    let (events, probe) = observe("threads", &options());
    let ends = events.iter().filter(|event| matches!(event.kind, Kind::CallbackEnd { .. })).count();
    assert_eq!(ends, 600);
    assert_eq!(probe.processes().next().unwrap().lost, 0);
    // Each thread says its name first and its end last, though its number may come again.
    for thread in by_thread(&events).values() {
        let (mut alive, mut events) = (false, 0);
        for event in thread {
            match event.kind {
                Kind::ThreadName { .. } => alive = true,
                Kind::ThreadEnd => alive = false,
                _ => events += usize::from(alive),
            }
        }
        assert!(events <= 600 && !alive);
    }
}

#[test]
fn programs_without_ros_leave_no_trace() {
    let session = ProbeSession::create(&options()).unwrap();
    assert!(start(&session, "idle").wait().unwrap().success());
    let files = std::fs::read_dir(session.directory()).unwrap().flatten();
    assert_eq!(files.filter(|file| file.path().extension().is_some_and(|e| e == "ring")).count(), 0);
}

#[test]
fn another_image_of_the_same_process_has_a_file_of_its_own() {
    let (events, probe) = observe("exec", &options());
    let mut counts: Vec<u64> = probe.processes().map(|info| info.events).collect();
    counts.sort_unstable();
    // Name, end of a callback, the thread's end; name, twenty publications, the thread's end.
    assert_eq!(counts, [3, 22]);
    assert!(probe.processes().all(|info| info.pid == events[0].pid && !info.alive));
}

#[test]
fn a_session_is_taken_up_by_another_reader_and_by_one_only() {
    let session = ProbeSession::create(&options()).unwrap();
    let directory = session.directory().to_owned();
    assert!(matches!(ProbeSession::attach(&directory), Err(ProbeSessionError::Taken { .. })));
    let mut child = command(&session, "wait").stdout(Stdio::piped()).spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    assert!(output.by_ref().lines().any(|line| line.unwrap() == SIGN));
    let mut probe = session.probe().unwrap();
    let mut first = Vec::new();
    probe.poll(&mut |event| first.push(event)).unwrap();
    assert_eq!(first[1].kind, Kind::CallbackEnd { callback: 1 });
    // The reader is killed: nothing is cleared away.
    drop(probe);
    std::mem::forget(close_lock(session));
    let session = ProbeSession::attach(&directory).unwrap();
    let mut probe = session.probe().unwrap();
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    let kinds: Vec<Kind> = read_to_end(&mut probe).into_iter().map(|event| event.kind).collect();
    assert_eq!(kinds.len(), 2, "{kinds:?}");
    assert_eq!(kinds[0], Kind::CallbackEnd { callback: 2 });
    drop(session);
    assert!(!directory.exists());
    assert!(matches!(ProbeSession::attach(&directory), Err(ProbeSessionError::NoSession { .. })));
}

/// Not a test: the reader that is killed.
#[test]
#[expect(clippy::zombie_processes, reason = "it is killed before it could wait")]
fn the_victims_side() {
    if std::env::var(ROLE).as_deref() != Ok("victim") {
        return;
    }
    let session = ProbeSession::create(&options()).unwrap();
    let mut child = command(&session, "wait").stdout(Stdio::piped()).spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    assert!(output.by_ref().lines().any(|line| line.unwrap() == SIGN));
    println!("\nvictim: {} {}", child.id(), session.directory().display());
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
fn a_killed_reader_leaves_no_files_and_its_processes_go_on() {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "preload::the_victims_side", "--nocapture"]).env(ROLE, "victim");
    let mut victim = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(victim.stdout.take().unwrap()).lines();
    let reported = lines.find_map(|line| line.unwrap().strip_prefix("victim: ").map(str::to_owned)).unwrap();
    let (observed, directory) = reported.split_once(' ').unwrap();
    let directory = std::path::Path::new(directory);
    assert!(directory.join("session.lock").exists());
    // Held: what is observed waits for the end of its input, which the victim's death would be.
    victim.kill().unwrap();
    victim.wait().unwrap();
    let until = Instant::now() + Duration::from_secs(30);
    while directory.exists() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(!directory.exists(), "left behind: {}", directory.display());
    // The observed process reads the end of its input and ends by itself: it is not brought down by
    // files that went.
    while std::path::Path::new("/proc").join(observed).join("exe").exists() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// As the kernel does when a process is killed: its locks go, its files stay.
fn close_lock(session: ProbeSession) -> ProbeSession {
    let lock = session.directory().join("session.lock");
    for entry in std::fs::read_dir("/proc/self/fd").unwrap().flatten() {
        if std::fs::read_link(entry.path()).is_ok_and(|target| target == lock) {
            let fd: i32 = entry.file_name().to_str().unwrap().parse().unwrap();
            // SAFETY: unlocks only; the descriptor stays open.
            assert_eq!(unsafe { libc::flock(fd, libc::LOCK_UN) }, 0);
        }
    }
    session
}

#[test]
fn what_dead_sessions_left_is_cleared_away() {
    let base = tempfile::tempdir().unwrap();
    let options = ProbeOptions { base: Some(base.path().to_owned()), ..options() };
    // As processes with a number that no process can have left them: one that nobody holds, and one
    // taken up again.
    let directory = |name: &str| base.path().join(name);
    let leave = |name: &str| {
        let session = close_lock(ProbeSession::create(&options).unwrap());
        std::fs::rename(session.directory(), directory(name)).unwrap();
        std::mem::forget(session);
    };
    leave("takt-probe-4194999-0");
    leave("takt-probe-4194999-1");
    let _taken = ProbeSession::attach(&directory("takt-probe-4194999-1")).unwrap();
    std::fs::create_dir(directory("takt-probe-notes")).unwrap();
    let living = ProbeSession::create(&options).unwrap();
    let newer = ProbeSession::create(&options).unwrap();
    assert!(!directory("takt-probe-4194999-0").exists());
    assert!(directory("takt-probe-4194999-1").exists() && directory("takt-probe-notes").exists());
    assert!(living.directory().exists() && newer.directory().exists());
}

#[test]
fn files_that_are_none_are_labelled_and_the_others_go_on() {
    let session = ProbeSession::create(&options()).unwrap();
    let put = |name: &str, bytes: &[u8]| std::fs::write(session.directory().join(name), bytes).unwrap();
    put("1-1.ring", &[7; 4096]);
    let mut newer = vec![0; 4096];
    newer[..8].copy_from_slice(b"TAKTPRB\x01");
    newer[8] = 99;
    put("2-2.ring", &newer);
    std::fs::create_dir(session.directory().join("3-3.ring")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", session.directory().join("4-4.ring")).unwrap();
    put("readme.txt", b"not ours");
    let mut probe = session.probe().unwrap();
    let mut child = command(&session, "wait").stdout(Stdio::piped()).spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    assert!(output.by_ref().lines().any(|line| line.unwrap() == SIGN));
    let mut events = Vec::new();
    let until = Instant::now() + Duration::from_secs(60);
    while events.is_empty() {
        assert!(Instant::now() < until);
        std::thread::sleep(Duration::from_millis(20));
        probe.poll(&mut |event| events.push(event)).unwrap();
    }
    let mut broken: Vec<String> = probe.take_broken().iter().map(ToString::to_string).collect();
    broken.sort_unstable();
    assert_eq!(broken.len(), 4, "{broken:?}");
    for (line, expected) in broken.iter().zip(["0x0707070707070707", "version 99", "3-3.ring", "4-4.ring"]) {
        assert!(line.contains(expected), "{line}");
    }
    // Cut short while it is read: an error of that process, with its name.
    let file = std::fs::read_dir(session.directory())
        .unwrap()
        .flatten()
        .find(|file| file.file_name().to_string_lossy().starts_with(&format!("{}-", child.id())));
    let file = std::fs::File::options().write(true).open(file.unwrap().path()).unwrap();
    file.set_len(4096).unwrap();
    probe.poll(&mut |_| ()).unwrap();
    let broken = probe.take_broken();
    assert_eq!(broken.len(), 1);
    assert!(broken[0].label.contains(&child.id().to_string()));
    assert!(matches!(broken[0].error, ProcessError::Truncated { found: 4096, .. }));
    // Its pages are gone: it would not survive another event.
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn without_space_the_program_runs_on_and_says_so_once() {
    use std::os::unix::process::CommandExt;
    for size in ["4k", "8k"] {
        let session = ProbeSession::create(&options()).unwrap();
        let mut command = command(&session, "plain");
        let directory = std::ffi::CString::new(session.directory().to_str().unwrap()).unwrap();
        let libraries = tempfile::tempdir().unwrap();
        let mut preload = std::ffi::OsString::new();
        for name in ["libtakt_probe.so", "libtracetools.so"] {
            std::fs::copy(session.directory().join(name), libraries.path().join(name)).unwrap();
            preload.push(libraries.path().join(name));
            preload.push(":");
        }
        command.env("LD_PRELOAD", preload).stderr(Stdio::piped());
        let data = std::ffi::CString::new(format!("size={size}")).unwrap();
        let mount = move || {
            let none = c"none".as_ptr();
            // SAFETY: a mount namespace of the child's own; all pointers are to texts that end in
            // zero.
            let done = unsafe {
                libc::unshare(libc::CLONE_NEWNS) == 0
                    && libc::mount(
                        none,
                        c"/".as_ptr(),
                        none,
                        libc::MS_REC | libc::MS_PRIVATE,
                        std::ptr::null(),
                    ) == 0
                    && libc::mount(none, directory.as_ptr(), c"tmpfs".as_ptr(), 0, data.as_ptr().cast()) == 0
            };
            if done { Ok(()) } else { Err(std::io::Error::last_os_error()) }
        };
        // SAFETY: only system calls between fork and exec.
        unsafe { command.pre_exec(mount) };
        let output = match command.output() {
            Ok(output) => output,
            Err(error) => {
                takt_witness::skip!("no mount namespace: {error}");
                return;
            }
        };
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{stderr}");
        let lines: Vec<&str> = stderr.lines().filter(|line| line.starts_with("takt probe:")).collect();
        assert_eq!(lines.len(), 1, "{stderr}");
        assert!(lines[0].contains("no space"));
    }
}

#[test]
fn numbers_of_a_container_are_translated() {
    use std::os::unix::process::CommandExt;
    let session = ProbeSession::create(&options()).unwrap();
    let mut command = command(&session, "wait");
    let enter = || {
        // SAFETY: namespaces of the child's own; between fork and exec only system calls, on texts
        // that end in zero.
        unsafe {
            if libc::unshare(libc::CLONE_NEWPID | libc::CLONE_NEWNS) != 0 {
                return Err(std::io::Error::last_os_error());
            }
            let pid = libc::fork();
            if pid > 0 {
                // Whoever waits for the exec must not wait for us.
                libc::close_range(3, libc::c_uint::MAX, 0);
                let mut status = 0;
                libc::waitpid(pid, &mut status, 0);
                libc::_exit(libc::WEXITSTATUS(status));
            }
            let (none, proc) = (c"none".as_ptr(), c"/proc".as_ptr());
            libc::mount(none, c"/".as_ptr(), none, libc::MS_REC | libc::MS_PRIVATE, std::ptr::null());
            libc::mount(none, proc, c"proc".as_ptr(), 0, std::ptr::null());
        }
        Ok(())
    };
    // SAFETY: see above.
    unsafe { command.pre_exec(enter) };
    let mut child = match command.stdout(Stdio::piped()).spawn() {
        Ok(child) => child,
        Err(error) => {
            takt_witness::skip!("no PID namespace: {error}");
            return;
        }
    };
    let mut output = BufReader::new(child.stdout.take().unwrap());
    assert!(output.by_ref().lines().any(|line| line.unwrap() == SIGN));
    let mut probe = session.probe().unwrap();
    let mut events = Vec::new();
    probe.poll(&mut |event| events.push(event)).unwrap();
    let info = probe.processes().next().unwrap().clone();
    assert!(info.alive && info.pid != 1);
    let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", child.id()));
    assert_eq!(children.unwrap().trim(), info.pid.to_string());
    let task = format!("/proc/{}/task/{}", info.pid, events[0].tid);
    assert!(std::path::Path::new(&task).exists(), "{task}");
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    events.extend(read_to_end(&mut probe));
    assert!(events.iter().all(|event| event.pid == info.pid));
    assert_eq!(events.iter().filter(|event| matches!(event.kind, Kind::CallbackEnd { .. })).count(), 2);
}

/// A `libtracetools.so` that says at exit how often it was called, and a module that is loaded for
/// itself alone, as Python loads its own.
#[test]
fn calls_are_handed_on_also_to_a_library_that_only_a_module_has() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let library = write(
        "tracetools.c",
        "#include <stdio.h>\n#include <stdbool.h>\nstatic int starts, registered;\n\
         void ros_trace_callback_start(const void * c, bool i) {starts += c == (void *)5 && i;}\n\
         bool ros_trace_enabled_rclcpp_callback_register(void) {return true;}\n\
         void ros_trace_do_rclcpp_callback_register(const void * c, const char * s) {registered += s[0] == 'f';}\n\
         __attribute__((destructor)) void report(void) {printf(\"\\nhanded on: %d %d\\n\", starts, registered);}\n",
    );
    let module = write(
        "module.c",
        "#include <stdbool.h>\nvoid ros_trace_callback_start(const void *, bool);\n\
         bool ros_trace_enabled_rclcpp_callback_register(void);\n\
         void ros_trace_do_rclcpp_callback_register(const void *, const char *);\n\
         void call(void) {\n  ros_trace_callback_start((void *)5, true);\n\
         if (ros_trace_enabled_rclcpp_callback_register()) ros_trace_do_rclcpp_callback_register((void *)5, \"f()\");}\n",
    );
    let cc = |arguments: &[&std::ffi::OsStr]| {
        Command::new("cc").args(["-shared", "-fPIC", "-O1"]).args(arguments).status()
    };
    let (library_so, module_so) =
        (directory.path().join("libtracetools.so"), directory.path().join("module.so"));
    let name = std::ffi::OsStr::new("-Wl,-soname,libtracetools.so");
    match cc(&[library.as_os_str(), name, "-o".as_ref(), library_so.as_os_str()]) {
        Ok(status) => assert!(status.success()),
        Err(error) => {
            assert!(std::env::var_os("TAKT_REQUIRE_OUTSIDE").is_none(), "{error}");
            takt_witness::skip!("no C compiler: {error}");
            return;
        }
    }
    let linked = cc(&[module.as_os_str(), library_so.as_os_str(), "-o".as_ref(), module_so.as_os_str()]);
    assert!(linked.unwrap().success());
    let session = ProbeSession::create(&ProbeOptions::default()).unwrap();
    let mut probe = session.probe().unwrap();
    let mut command = command(&session, "module");
    command
        .env("TAKT_TEST_MODULE", &module_so)
        .env("LD_LIBRARY_PATH", directory.path())
        .stdout(Stdio::piped());
    let output = String::from_utf8(command.output().unwrap().stdout).unwrap();
    assert!(output.contains("handed on: 1 1"), "{output}");
    let kinds: Vec<Kind> = read_to_end(&mut probe).into_iter().map(|event| event.kind).collect();
    assert!(kinds.contains(&Kind::CallbackStart { callback: 5, intra_process: true }), "{kinds:?}");
    assert!(kinds.contains(&Kind::CallbackSymbol { callback: 5, symbol: "f()".into() }), "{kinds:?}");
}

#[test]
fn a_missing_directory_leaves_the_program_alone() {
    let session = ProbeSession::create(&options()).unwrap();
    let mut command = command(&session, "old");
    command.env("TAKT_PROBE_DIR", "/nowhere/at/all").stderr(Stdio::piped());
    let output = command.output().unwrap();
    assert!(output.status.success());
    let stderr = String::from_utf8(output.stderr).unwrap();
    let lines: Vec<&str> = stderr.lines().filter(|line| line.starts_with("takt probe:")).collect();
    assert_eq!(lines.len(), 1, "{stderr}");
    assert!(lines[0].contains("/nowhere/at/all") || lines[0].contains("session's directory"));
}

/// System calls and bytes of the heap that [`QUIET_ROUNDS`] took; `None`: the kernel cannot count
/// them.
fn quiet(cpu_clock: CpuClock) -> Option<String> {
    let session = ProbeSession::create(&ProbeOptions { cpu_clock, ..options() }).unwrap();
    let output = command(&session, "quiet").stdout(Stdio::piped()).output().unwrap();
    let output = String::from_utf8(output.stdout).unwrap();
    let line = output.lines().find(|line| line.starts_with(SIGN)).unwrap();
    if line.contains("seccomp") {
        takt_witness::skip!("{line}");
        return None;
    }
    Some(line[SIGN.len()..].trim().to_owned())
}

#[test]
fn an_event_makes_no_system_call_but_for_clock_and_switches_and_takes_no_memory() {
    for (cpu_clock, clocks, starts) in
        [(CpuClock::None, 0, 0), (CpuClock::Needed, 4, 1), (CpuClock::All, 9, 1)]
    {
        // At each start the count of switches is read; at its end, too, where reading the clock
        // took so long (being watched here) that a switch could hide in it.
        let expected = [1, 2].map(|count| format!("{} 0", (clocks + count * starts) * QUIET_ROUNDS));
        let mut found = Vec::new();
        // A callback that the machine preempts is asked why: so often in a row it does not.
        while !found.iter().any(|line| expected.contains(line)) {
            let Some(line) = quiet(cpu_clock) else { return };
            found.push(line);
            assert!(found.len() < 30, "{cpu_clock:?}: none of {expected:?} is among {found:?}");
        }
    }
}

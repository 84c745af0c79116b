//! Uprobes on a process that already runs: this test's own executable, started anew as a child with
//! the stand-in library.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use takt_ros::preload::{ProbeOptions, ProbeSession};
use takt_ros::standin::Tracepoints;
use takt_ros::uprobes::{Probe, UprobeError, UprobeInfo, UprobeOptions};
use takt_ros::{Event, Kind, Source};

const ROLE: &str = "TAKT_TEST_ROLE";
const SIGN: &str = "the child says:";
const ROUNDS: u64 = 20;

fn address<T>(value: u64) -> *const T {
    std::ptr::without_provenance(value as usize)
}

fn burn(time: Duration) {
    let start = cpu_time();
    while cpu_time() - start < time {}
}

fn cpu_time() -> Duration {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut now) };
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// The beginning that all objects of the middleware share, and an object of `rcl` that leads there.
#[repr(C)]
struct Rmw {
    identifier: *const libc::c_char,
    data: u64,
    name: *const libc::c_char,
}

#[repr(C)]
struct Implementation {
    options: [u64; 20],
    rmw: *const Rmw,
}

#[repr(C)]
struct Rcl {
    implementation: *const Implementation,
}

/// Objects as `rcl` makes them; leaked, for they are the process's.
fn object(name: &'static std::ffi::CStr) -> (*const libc::c_void, *const libc::c_void) {
    let rmw = Box::leak(Box::new(Rmw { identifier: c"rmw_test_cpp".as_ptr(), data: 0, name: name.as_ptr() }));
    let implementation = Box::leak(Box::new(Implementation { options: [0x1234_5670; 20], rmw }));
    let rcl = Box::leak(Box::new(Rcl { implementation }));
    (std::ptr::from_ref(rcl).cast(), std::ptr::from_ref(rmw).cast())
}

#[test]
fn child() {
    let Ok(_) = std::env::var(ROLE) else { return };
    let calls = Tracepoints::find();
    assert_eq!(calls.count(), 40, "the stand-in is not loaded");
    let (publisher, rmw_publisher) = object(c"/out");
    let (subscription, rmw_subscription) = object(c"/in");
    println!("\n{SIGN} {} {}", publisher as u64, subscription as u64);
    // The observer comes now, after what would have been the initialisation.
    std::io::stdin().read_line(&mut String::new()).unwrap();
    for number in 1..=ROUNDS {
        calls.rclcpp_executor_get_next_ready();
        calls.rclcpp_executor_execute(address(500));
        calls.callback_start(address(501), false);
        calls.callback_end(address(501));
        calls.rclcpp_executor_execute(subscription);
        calls.rmw_take(rmw_subscription, address(number), number as i64, true);
        calls.callback_start(address(601), true);
        burn(Duration::from_millis(2));
        // Off the CPU: no time of the callback's.
        std::thread::sleep(Duration::from_millis(5));
        calls.rcl_publish(publisher, address(number));
        calls.rmw_publish(rmw_publisher, address(number), -(number as i64));
        calls.callback_end(address(601));
        calls.rclcpp_executor_wait_for_work(-1);
    }
    let name = c"late node";
    calls.rcl_node_init(address(700), address(701), name, c"/late");
    calls.callback_start(address(801), false);
    std::io::stdin().read_line(&mut String::new()).unwrap();
}

struct Observed {
    child: Child,
    stdin: ChildStdin,
    _session: ProbeSession,
    handles: Vec<u64>,
}

fn start() -> Observed {
    let session = ProbeSession::create(&ProbeOptions { stand_in: true, ..ProbeOptions::default() }).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "uprobes::child", "--test-threads=1", "--nocapture"]).env(ROLE, "child");
    // The stand-in alone: as a process that was started without us.
    command.env("LD_PRELOAD", session.directory().join("libtracetools.so"));
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let stdin = child.stdin.take().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.starts_with(SIGN) {
        line.clear();
        assert!(output.read_line(&mut line).unwrap() > 0, "the child ended");
    }
    // Kept open: the child prints its result at the end.
    std::thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
    let handles = line[SIGN.len()..].split_whitespace().map(|number| number.parse().unwrap()).collect();
    Observed { child, stdin, _session: session, handles }
}

fn attach(options: &UprobeOptions) -> Option<Probe> {
    match Probe::attach(options) {
        Ok(probe) => Some(probe),
        Err(error @ (UprobeError::NotPermitted { .. } | UprobeError::NoKernelSupport)) => {
            assert!(std::env::var_os("TAKT_REQUIRE_OUTSIDE").is_none(), "{error}");
            takt_witness::skip!("{error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn observe() -> Option<(Vec<Event>, UprobeInfo, Vec<u64>)> {
    let mut observed = start();
    let pid = observed.child.id();
    let mut probe = attach(&UprobeOptions { pids: vec![pid], ..UprobeOptions::default() })?;
    observed.stdin.write_all(b"go\n").unwrap();
    let mut events = Vec::new();
    let until = Instant::now() + Duration::from_secs(20);
    let mut reported = false;
    while !probe.ended() {
        assert!(Instant::now() < until, "the probe does not end: {:?}, {events:?}", probe.info());
        probe.poll(&mut |event| events.push(event)).unwrap();
        if !reported
            && events
                .iter()
                .any(|event| event.kind == Kind::CallbackStart { callback: 801, intra_process: false })
        {
            observed.stdin.write_all(b"end\n").unwrap();
            reported = true;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(observed.child.wait().unwrap().success());
    assert!(events.iter().all(|event| event.pid == pid));
    Some((events, probe.info(), observed.handles))
}

#[test]
fn a_running_process_is_observed_and_what_came_before_is_found_again() {
    let Some((events, info, handles)) = observe() else { return };
    assert!(info.missing.is_empty(), "{info:?}");
    // Busy machines lose nothing here: a few hundred records in a megabyte.
    assert_eq!((info.lost, info.lost_texts), (0, 0));
    assert!(events.is_sorted_by_key(|event| event.at_ns));
    let (publisher, subscription) = (handles[0], handles[1]);
    let has = |kind: &Kind| events.iter().filter(|event| event.kind == *kind).count();
    assert_eq!(has(&Kind::CallbackEnd { callback: 501 }) as u64, ROUNDS);
    assert_eq!(has(&Kind::CallbackEnd { callback: 601 }) as u64, ROUNDS);
    assert_eq!(has(&Kind::CallbackStart { callback: 601, intra_process: true }) as u64, ROUNDS);
    // Found by the order of calls, and in memory.
    assert_eq!(has(&Kind::TimerCallback { timer: 500, callback: 501 }), 1);
    assert_eq!(has(&Kind::SubscriptionCallback { object: subscription, callback: 601 }), 1);
    let topics: Vec<(&str, u64)> = events
        .iter()
        .filter_map(|event| match &event.kind {
            Kind::SubscriptionInit { topic, subscription, .. } => Some((&**topic, *subscription)),
            Kind::PublisherInit { topic, publisher, .. } => Some((&**topic, *publisher)),
            _ => None,
        })
        .collect();
    assert_eq!(topics, [("/in", subscription), ("/out", publisher)]);
    assert_eq!((info.filled, info.unexplained), (3, 1));
    // Reported before what needs it.
    let first = |wanted: &dyn Fn(&Kind) -> bool| events.iter().position(|event| wanted(&event.kind)).unwrap();
    assert!(
        first(&|kind| matches!(kind, Kind::PublisherInit { .. }))
            < first(&|kind| matches!(kind, Kind::RclPublish { .. }))
    );
    // A process that goes on initialising is seen to.
    let node = Kind::NodeInit { node: 700, name: "late node".into(), namespace: "/late".into() };
    assert_eq!(has(&node), 1);
    let stamps = events.iter().filter_map(|event| match event.kind {
        Kind::RmwPublish { source_ns, .. } => source_ns,
        _ => None,
    });
    assert!(stamps.eq((1..=ROUNDS as i64).map(|number| -number)));
}

#[test]
fn cpu_time_counts_the_time_on_the_cpu_alone() {
    let Some((events, ..)) = observe() else { return };
    let of = |wanted: fn(&Kind) -> bool| {
        let found = events.iter().filter(move |event| wanted(&event.kind));
        found.map(|event| (event.at_ns, event.cpu_ns.unwrap())).collect::<Vec<_>>()
    };
    let starts = of(|kind| matches!(kind, Kind::CallbackStart { callback: 601, .. }));
    let ends = of(|kind| matches!(kind, Kind::CallbackEnd { callback: 601 }));
    for ((started, cpu_before), (ended, cpu_after)) in starts.into_iter().zip(ends) {
        let (wall, cpu) = (ended - started, cpu_after - cpu_before);
        // The sleep is at least 5 ms of the wall's time, and the burnt 2 ms are all the CPU's.
        assert!(cpu >= 2_000_000 && wall >= cpu + 4_900_000, "{cpu} of {wall}");
    }
}

#[test]
fn a_process_without_the_library_is_said_to_be_one() {
    let pids = vec![std::process::id()];
    match Probe::attach(&UprobeOptions { pids: pids.clone(), ..UprobeOptions::default() }) {
        Err(UprobeError::NotFound { pids: named }) => assert_eq!(named, pids),
        Err(UprobeError::NoKernelSupport) => takt_witness::skip!("no uprobes in this kernel"),
        other => panic!("{other:?}"),
    }
}

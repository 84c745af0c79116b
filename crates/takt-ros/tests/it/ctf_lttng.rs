//! Real recordings: a small program with the tracepoints of ROS 2, recorded by LTTng-UST here and
//! now, and read back.

use crate::lttng;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use lttng::{Lttng, skip};
use takt_ros::ctf::{Live, Recording, Records};
use takt_ros::{Event, Kind, Source};

/// Events that a thread records in one round, and those that the program records once.
const PER_ROUND: u64 = 8;
const ONCE: u64 = 2;

/// One at a time: they share the session daemon.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A session with that channel, and `workload.c`.
fn recorder(name: &str, channel: &[&str]) -> Option<Lttng> {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/lttng/workload.c");
    Lttng::new(name, Path::new(source), channel)
}

fn read(folder: &Path) -> (Vec<Event>, Recording) {
    let mut recording = Recording::open(folder).expect("a recording");
    let mut events = Vec::new();
    while !recording.ended() {
        recording.poll(&mut |event| events.push(event)).expect("events");
    }
    (events, recording)
}

/// Every worker's events, in the order in which they came, must be those that the program records.
fn check_threads(events: &[Event], threads: u64, rounds: u64) {
    let mut names: BTreeMap<u32, &str> = BTreeMap::new();
    let mut by_thread: BTreeMap<u32, Vec<&Event>> = BTreeMap::new();
    for event in events {
        match &event.kind {
            Kind::ThreadName { name } => {
                names.insert(event.tid, name);
            }
            _ => by_thread.entry(event.tid).or_default().push(event),
        }
    }
    let mut workers = 0;
    for (tid, events) in &by_thread {
        assert!(events.is_sorted_by_key(|event| event.at_ns), "thread {tid} goes back in time");
        let Some(number) = names[tid].strip_prefix("worker-") else { continue };
        let number: u64 = number.parse().expect("a worker's number");
        workers += 1;
        let handle = |what: u64| (number + 1) << 20 | what;
        assert_eq!(events.len() as u64, rounds * PER_ROUND);
        for (round, events) in events.chunks(PER_ROUND as usize).enumerate() {
            let stamp = i64::try_from(number << 32 | round as u64).expect("a stamp");
            let kinds: Vec<Kind> = events.iter().map(|event| event.kind.clone()).collect();
            let expected = [
                Kind::ExecutorWait { timeout_ns: -1 },
                Kind::ExecutorNextReady,
                Kind::RmwTake {
                    rmw_subscription: handle(1),
                    message: handle(2),
                    source_ns: stamp - 1,
                    taken: round > 0,
                },
                Kind::CallbackStart { callback: handle(3), intra_process: round % 2 == 1 },
                Kind::RclcppPublish { message: handle(2) },
                Kind::RclPublish { publisher: handle(4), message: handle(2) },
                Kind::RmwPublish { rmw_publisher: handle(5), message: handle(2), source_ns: Some(stamp) },
                Kind::CallbackEnd { callback: handle(3) },
            ];
            assert_eq!(kinds, expected);
        }
    }
    assert_eq!(workers, threads);
}

#[test]
fn all_events_and_fields_come_back() {
    let _alone = alone();
    let Some(lttng) = recorder("whole", &["--subbuf-size=1M", "--num-subbuf=8"]) else { return };
    let session = format!("--session={}", lttng.session);
    let clock = ["add-context", "--userspace", &session, "--channel=c", "--type=perf:thread:task-clock"];
    let has_clock = lttng.command(&clock);
    lttng.start();
    assert!(lttng.workload(["3", "2000"]).status().expect("the workload runs").success());
    lttng.finish();

    let (events, recording) = read(&lttng.recording());
    assert_eq!(recording.damages(), []);
    check_threads(&events, 3, 2000);
    assert!(events.iter().any(|event| matches!(&event.kind,
        Kind::NodeInit { name, namespace, node, .. } if &**name == "talker" && &**namespace == "/robot" && *node == 1 << 20 | 6)));
    assert!(events.iter().any(|event| matches!(event.kind, Kind::TimerInit { period_ns: 100_000_000, .. })));
    let seen: BTreeMap<String, u64> =
        recording.seen().into_iter().map(|seen| (seen.name, seen.count)).collect();
    assert_eq!(seen["takt_test:kinds"], 3 * 125);
    assert_eq!(seen["ros2:callback_start"], 6000);
    let with_cpu_time = events.iter().filter(|event| event.cpu_ns.is_some_and(|ns| ns > 0)).count();
    if has_clock && with_cpu_time > 0 {
        let mut last: BTreeMap<u32, u64> = BTreeMap::new();
        for (event, cpu_ns) in events.iter().filter_map(|event| Some((event, event.cpu_ns?))) {
            let before = last.insert(event.tid, cpu_ns).unwrap_or(0);
            assert!(cpu_ns >= before, "CPU time of thread {} goes back", event.tid);
        }
    } else {
        takt_witness::skip!("in part: no CPU time of threads from perf here");
    }

    // Field by field as babeltrace2 has them, those of the event with all kinds of fields too.
    let shown =
        Command::new("babeltrace2").args(["--no-delta", "--clock-cycles"]).arg(lttng.recording()).output();
    let Ok(shown) = shown else { return skip("no babeltrace2") };
    let shown = String::from_utf8(shown.stdout).expect("text");
    let mut lines: Vec<&str> = shown.lines().map(|line| line.split_once("] ").expect("a stamp").1).collect();
    let mut ours: Vec<String> =
        Records::open(lttng.recording()).expect("a recording").map(|record| record.to_string()).collect();
    let mut theirs: Vec<String> =
        lines.drain(..).map(|line| line.split_once(' ').expect("a host").1.to_owned()).collect();
    // Equal stamps of two processors may come in either order.
    ours.sort();
    theirs.sort();
    assert_eq!(ours.len(), theirs.len());
    for (ours, theirs) in ours.iter().zip(&theirs) {
        assert_eq!(ours, theirs);
    }
}

#[test]
fn a_rotating_session_is_read_while_it_records() {
    let _alone = alone();
    let Some(lttng) = recorder("rotating", &["--subbuf-size=64k", "--num-subbuf=16"]) else { return };
    lttng.start();
    let mut live = Live::open(lttng.recording()).expect("the session's folder");
    let mut events = Vec::new();
    live.poll(&mut |event| events.push(event)).expect("nothing yet");
    assert_eq!((events.len(), live.ended()), (0, false));
    let mut workload = lttng.workload(["4", "3000", "1000"]).spawn().expect("the workload runs");
    let mut early = 0;
    for _ in 0..6 {
        lttng.must(&["rotate", &lttng.session]);
        live.poll(&mut |event| events.push(event)).expect("a part");
        assert!(!live.ended());
        if workload.try_wait().expect("its state").is_none() {
            early = events.len();
        }
    }
    assert!(workload.wait().expect("the workload ends").success());
    lttng.must(&["rotate", &lttng.session]);
    live.poll(&mut |event| events.push(event)).expect("a part");
    lttng.finish();
    for _ in 0..100 {
        live.poll(&mut |event| events.push(event)).expect("the last part");
        if live.ended() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert!(live.ended(), "a destroyed session ends");
    assert!(live.last_part().is_some_and(|part| part >= 6));
    assert_eq!((live.damages(), live.failed_parts().len()), (&[][..], 0));
    println!("{early} of {} events while the workload ran", events.len());
    assert!(early > 0);
    check_threads(&events, 4, 3000);
    assert!(events.is_sorted_by_key(|event| event.at_ns), "in order across parts");
    // The same, read as one recording afterwards.
    let (again, _) = read(&lttng.recording());
    assert_eq!(again.len(), events.len());
}

#[test]
fn what_lttng_had_no_room_for_is_counted() {
    let _alone = alone();
    // Two small buffers for each processor.
    let Some(lttng) = recorder("flooded", &["--subbuf-size=4k", "--num-subbuf=2"]) else { return };
    lttng.start();
    assert!(lttng.workload(["3", "6000"]).status().expect("the workload runs").success());
    lttng.finish();
    let (events, recording) = read(&lttng.recording());
    assert_eq!(recording.damages(), []);
    let lost: u64 = events
        .iter()
        .filter_map(|event| match event.kind {
            Kind::Lost { count } => Some(count),
            _ => None,
        })
        .sum();
    let read: u64 = recording.seen().iter().map(|seen| seen.count).sum();
    let made = 3 * 6000 * PER_ROUND + 3 * 375 + ONCE + 1;
    println!("{read} read, {lost} lost");
    assert!(lost > 0, "the buffers are too large to lose anything");
    assert_eq!(read + lost, made);
    assert!(events.iter().all(|event| !matches!(event.kind, Kind::Lost { .. }) || event.tid == 0));
}

/// `lttng stop` and `lttng start` while the program works: the times between are gaps, those of
/// rotations are not, and each event lies outside.
#[test]
fn pauses_are_gaps_and_rotations_are_not() {
    use std::time::Duration;
    use takt_ros::GapCause;

    let _alone = alone();
    let Some(recorder) = recorder("pauses", &[]) else { return };
    recorder.start();
    let mut program = recorder.workload(["2", "400", "10000"]).spawn().expect("the program");
    let session = recorder.session.clone();
    let pause = || {
        std::thread::sleep(Duration::from_millis(700));
        recorder.must(&["stop", &session]);
        let stopped = std::time::Instant::now();
        std::thread::sleep(Duration::from_millis(500));
        let least = stopped.elapsed();
        recorder.must(&["start", &session]);
        least
    };
    let first = pause();
    recorder.must(&["rotate", &session]);
    let second = pause();
    assert!(program.wait().expect("its end").success());
    recorder.finish();
    let (events, recording) = read(&recorder.recording());
    assert_eq!(recording.damages(), []);
    let gaps: Vec<(u64, u64)> = events
        .iter()
        .filter_map(|event| match event.kind {
            Kind::Gap { from_ns, why } => {
                assert_eq!(why, GapCause::Paused);
                Some((from_ns, event.at_ns))
            }
            _ => None,
        })
        .collect();
    assert_eq!(gaps.len(), 2, "{gaps:?}");
    for ((from_ns, to_ns), least) in gaps.iter().zip([first, second]) {
        // The next event begins the next packet: one comes every few milliseconds.
        assert!(Duration::from_nanos(to_ns - from_ns) >= least, "{gaps:?}, {least:?}");
        let within = |event: &&Event| (from_ns + 1..*to_ns).contains(&event.at_ns);
        assert_eq!(events.iter().find(within), None);
    }
}

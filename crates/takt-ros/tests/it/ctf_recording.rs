//! A real recording, read and held against babeltrace2 and against what is known of its system.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;

use takt_ros::ctf::{Recording, Records};
use takt_ros::{Event, Kind, Source};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/caret-end-to-end")
}

fn events(recording: &mut Recording) -> Vec<Event> {
    let mut events = Vec::new();
    while !recording.ended() {
        recording.poll(&mut |event| events.push(event)).expect("events");
    }
    events
}

#[test]
fn every_field_of_every_event_is_what_babeltrace2_reads() {
    let shown = Command::new("babeltrace2").args(["--no-delta", "--clock-cycles"]).arg(folder()).output();
    let Ok(shown) = shown else {
        assert!(std::env::var_os("TAKT_REQUIRE_OUTSIDE").is_none(), "babeltrace2 is missing");
        takt_witness::skip!("no babeltrace2 (tools/install-outside gets it)");
        return;
    };
    assert!(shown.status.success(), "{}", String::from_utf8_lossy(&shown.stderr));
    let shown = String::from_utf8(shown.stdout).unwrap();
    let mut records = Records::open(folder()).unwrap();
    let mut lines = 0;
    for line in shown.lines() {
        // `[cycles] host event: { ... }, ...`
        let (stamp, rest) = line.split_once("] ").unwrap();
        let (_, theirs) = rest.split_once(' ').unwrap();
        let ours = records.next().expect("as many events as babeltrace2 has");
        assert_eq!(ours.at_ns, stamp[1..].parse::<u64>().unwrap());
        assert_eq!(ours.to_string(), theirs);
        lines += 1;
    }
    assert_eq!(lines, 2880);
    assert_eq!(records.next(), None);
    assert_eq!(records.damages(), []);
}

#[test]
fn all_that_means_something_to_us_arrives() {
    let mut recording = Recording::open(folder()).unwrap();
    let events = events(&mut recording);
    assert_eq!(recording.damages(), []);
    assert_eq!(recording.clock(), Some("monotonic"));
    assert_eq!(recording.epoch_ns(), Some(1_655_772_632_839_550_660));
    let seen = recording.seen();
    assert_eq!(seen.iter().map(|seen| seen.count).sum::<u64>(), 2880);
    let unused: Vec<_> = seen.iter().filter(|seen| !seen.used).map(|seen| seen.name.as_str()).collect();
    assert_eq!(unused, ["ros2:rcl_init", "ros2_caret:dds_write", "ros2_caret:rmw_implementation"]);
    // One more for each thread: its name.
    let named = events.iter().filter(|event| matches!(event.kind, Kind::ThreadName { .. })).count();
    let used: u64 = seen.iter().filter(|seen| seen.used).map(|seen| seen.count).sum();
    let threads: BTreeSet<_> = events.iter().map(|event| event.tid).collect();
    assert_eq!(named, threads.len());
    assert_eq!(events.len() as u64, used + named as u64);
    assert!(events.is_sorted_by_key(|event| event.at_ns));
    assert!(events.iter().all(|event| event.pid == 25055 && event.cpu_ns.is_none()));
}

#[test]
fn the_system_is_the_one_that_was_recorded() {
    let events = events(&mut Recording::open(folder()).unwrap());
    let nodes: BTreeSet<&str> = events
        .iter()
        .filter_map(|event| match &event.kind {
            Kind::NodeInit { name, namespace, .. } if &**namespace == "/" => Some(&**name),
            _ => None,
        })
        .collect();
    // As the recording's own architecture.yaml names them.
    let expected = [
        "actuator_dummy_node",
        "drive_node",
        "filter_node",
        "message_driven_node",
        "sensor_dummy_node",
        "timer_driven_node",
    ];
    assert_eq!(nodes, BTreeSet::from(expected));
    let groups = events.iter().filter(|event| matches!(event.kind, Kind::CallbackGroup { .. })).count();
    assert_eq!(groups, 6);
    assert!(events.iter().any(
        |event| matches!(&event.kind, Kind::ExecutorInit { kind, .. } if &**kind == "multi_threaded_executor")
    ));
}

#[test]
fn callbacks_nest_on_their_threads_and_takes_join_with_publications() {
    let events = events(&mut Recording::open(folder()).unwrap());
    let mut open: BTreeMap<u32, u64> = BTreeMap::new();
    let (mut started, mut published, mut joined, mut taken) = (0, BTreeSet::new(), 0, 0);
    let mut subscriptions = BTreeSet::new();
    for event in &events {
        match &event.kind {
            Kind::SubscriptionInit { rmw_subscription, .. } => {
                subscriptions.insert(*rmw_subscription);
            }
            Kind::CallbackStart { callback, .. } => {
                assert_eq!(open.insert(event.tid, *callback), None, "one callback at a time on a thread");
                started += 1;
            }
            Kind::CallbackEnd { callback } => assert_eq!(open.remove(&event.tid), Some(*callback)),
            Kind::RmwPublish { source_ns: Some(source_ns), .. } => {
                published.insert(*source_ns);
            }
            Kind::RmwTake { source_ns, rmw_subscription, .. } => {
                taken += 1;
                joined += usize::from(published.contains(source_ns));
                assert!(subscriptions.contains(rmw_subscription), "named through the callback");
            }
            _ => {}
        }
    }
    assert_eq!((started, open.len()), (480, 0));
    assert_eq!(taken, 333);
    // Nearly all; some messages were published before the publisher's stamp was recorded.
    assert!(joined * 10 > taken * 9, "{joined} of {taken}");
}

/// A recording of which one stream was not copied: what ran on that CPU would look as if it had
/// never run.
#[test]
fn a_stream_that_is_not_there_is_named() {
    let inner = "ust/uid/1000/64-bit";
    let copy = tempfile::tempdir().unwrap();
    let streams = copy.path().join(inner);
    std::fs::create_dir_all(streams.join("index")).unwrap();
    let mut names = BTreeSet::new();
    for entry in std::fs::read_dir(folder().join(inner)).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        std::fs::copy(entry.path(), streams.join(&name)).unwrap();
        if name != "metadata" {
            names.insert(name);
        }
    }
    assert!(names.len() == 12 && Recording::open(copy.path()).is_ok());
    let refused = |name: &str| {
        std::fs::remove_file(streams.join(name)).unwrap();
        let outcome = Recording::open(copy.path()).map(drop).map_err(|error| error.to_string());
        std::fs::copy(folder().join(inner).join(name), streams.join(name)).unwrap();
        outcome
    };
    for name in &names {
        // Nothing says that there was one behind the last.
        let Err(error) = refused(name) else {
            assert_eq!(name, "ros2_11");
            continue;
        };
        let message = format!("the stream file `{name}` is missing");
        assert!(error.contains(&message) && error.contains("copy the complete recording again"), "{error}");
    }
    // LTTng's index beside it says so, and so does another channel of the same session.
    std::fs::write(streams.join("index/ros2_11.idx"), "").unwrap();
    assert!(refused("ros2_11").unwrap_err().contains("`ros2_11` is missing"));
    std::fs::remove_file(streams.join("index/ros2_11.idx")).unwrap();
    // An empty stream is one on which nothing ran.
    for number in 0..12 {
        std::fs::write(streams.join(format!("second_{number}")), "").unwrap();
    }
    assert!(Recording::open(copy.path()).is_ok());
    assert!(refused("ros2_11").unwrap_err().contains("`ros2_11` is missing"));
}

//! `takt manage --observe --lttng` on a session of LTTng that records and is rotated here and now.

#![allow(clippy::unwrap_used)]

// The session, its daemon and the tracepoints are those of the CTF reader's own tests.
use crate::recorder;
use crate::takt;

use std::path::Path;
use std::process::Stdio;

use recorder::Lttng;
use takt::{alone, goals_of, json, takt as run};

#[test]
#[ignore = "takes 15 s"]
fn a_rotating_session_is_followed_to_its_end() {
    let _machine = alone();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/lttng/node.c");
    let Some(lttng) = Lttng::new("manage", Path::new(source), &[]) else { return };
    lttng.start();
    lttng.must(&["enable-rotation", &format!("--session={}", lttng.session), "--timer=1s"]);
    let goals = goals_of(lttng.scratch(), "beat", ["/robot/talker"; 2], "100 ms");
    let mut manager = run(["manage", "--observe", "--json", "--lttng"]);
    manager.arg(lttng.recording()).arg(&goals).stdout(Stdio::piped()).stderr(Stdio::piped());
    let manager = manager.spawn().unwrap();
    // Ten seconds: the first plan comes six after the first part, and is measured from then on.
    assert!(lttng.workload(["500"]).status().unwrap().success());
    lttng.finish();
    // The session has ended, and so does the manager.
    let all = json(&manager.wait_with_output().unwrap());
    let names: Vec<&str> = all["graph"]["vertices"]
        .as_array()
        .unwrap()
        .iter()
        .map(|vertex| vertex["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["/robot/talker timer 20ms"]);
    assert_eq!(all["graph"]["vertices"][0]["activations"], 500);
    let chain = &all["status"]["chains"][0];
    assert!(chain["completions"].as_u64().unwrap() > 0, "{chain:#}");
    assert!(chain["bound_ns"].is_u64() && all["status"]["observes"] == true, "{chain:#}");
    assert!(all["restored"].is_null());
}

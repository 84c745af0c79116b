//! `takt manage --observe --lttng` on a session of LTTng that records and is rotated here and now.

#![allow(clippy::unwrap_used)]

mod takt;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use takt::{alone, json, takt as run};
use tempfile::TempDir;

fn skip(why: &str) {
    assert!(std::env::var_os("TAKT_REQUIRE_OUTSIDE").is_none(), "{why}");
    println!("SKIPPED: {why} (tools/install-outside gets lttng-tools, liblttng-ust-dev and gcc)");
}

/// A session that is rotated every second, and its daemon where none ran; everything goes when this is dropped.
struct Session {
    scratch: TempDir,
    daemon: Option<Child>,
    name: String,
}

impl Session {
    fn new() -> Option<Self> {
        let scratch = tempfile::tempdir().unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lttng");
        let mut compiler = Command::new("gcc");
        compiler.args(["-O2", "-Wall", "-o"]).arg(scratch.path().join("node")).arg("-I").arg(&source);
        compiler.arg(source.join("node.c")).args(["-llttng-ust", "-lpthread", "-ldl"]);
        match compiler.output() {
            Ok(built) if built.status.success() => {}
            Ok(built) => {
                let errors = String::from_utf8_lossy(&built.stderr).into_owned();
                assert!(errors.contains("lttng/tracepoint.h"), "{errors}");
                skip("no headers of LTTng-UST");
                return None;
            }
            Err(error) => {
                skip(&format!("gcc: {error}"));
                return None;
            }
        }
        let name = format!("takt-manage-{}", std::process::id());
        let mut this = Self { scratch, daemon: None, name };
        if Command::new("lttng").arg("--version").output().is_err() {
            skip("no lttng");
            return None;
        }
        if !this.lttng(&["list"]) {
            let mut daemon = Command::new("lttng-sessiond");
            daemon.arg("--no-kernel").env("LTTNG_HOME", this.scratch.path());
            this.daemon = daemon.stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok();
            let runs = (0..100).any(|_| {
                std::thread::sleep(Duration::from_millis(100));
                this.lttng(&["list"])
            });
            if !runs {
                skip("lttng-sessiond does not start");
                return None;
            }
        }
        let session = format!("--session={}", this.name);
        let output = format!("--output={}", this.recording().display());
        this.must(&["create", &this.name, &output]);
        this.must(&["enable-channel", "--userspace", &session, "c"]);
        this.must(&["enable-event", "--userspace", &session, "--channel=c", "ros2:*"]);
        let context = ["--type=vpid", "--type=vtid", "--type=procname"];
        this.must(&[&["add-context", "--userspace", &session, "--channel=c"], &context[..]].concat());
        this.must(&["start", &this.name]);
        this.must(&["enable-rotation", &session, "--timer=1s"]);
        Some(this)
    }

    fn recording(&self) -> PathBuf {
        self.scratch.path().join("recording")
    }

    fn lttng(&self, arguments: &[&str]) -> bool {
        let mut command = Command::new("lttng");
        command.arg("--no-sessiond").args(arguments).env("LTTNG_HOME", self.scratch.path());
        command.output().is_ok_and(|output| output.status.success())
    }

    fn must(&self, arguments: &[&str]) {
        assert!(self.lttng(arguments), "lttng {arguments:?} failed");
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.lttng(&["destroy", &self.name]);
        if let Some(mut daemon) = self.daemon.take() {
            // The daemon takes SIGTERM for its end.
            let _ = Command::new("kill").arg(daemon.id().to_string()).status();
            let _ = daemon.wait();
        }
    }
}

#[test]
fn a_rotating_session_is_followed_to_its_end() {
    let _machine = alone();
    let Some(session) = Session::new() else { return };
    let goals = session.scratch.path().join("goals.toml");
    let text = "degradation_order = [\"beat\"]\n[[chain]]\nname = \"beat\"\nstart = \"/robot/talker\"\nend = \"/robot/talker\"\ngoal = \"100 ms\"\n";
    fs::write(&goals, text).unwrap();
    let mut manager = run(["manage", "--observe", "--json", "--lttng"]);
    manager.arg(session.recording()).arg(&goals).stdout(Stdio::piped()).stderr(Stdio::piped());
    let manager = manager.spawn().unwrap();
    // Ten seconds: the first plan comes six after the first part, and is measured from then on.
    let mut node = Command::new(session.scratch.path().join("node"));
    node.arg("500").env("LTTNG_UST_REGISTER_TIMEOUT", "30000").env("LTTNG_HOME", session.scratch.path());
    assert!(node.status().unwrap().success());
    session.must(&["stop", &session.name]);
    session.must(&["destroy", &session.name]);
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

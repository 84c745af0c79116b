//! A session of LTTng and a program with the tracepoints beside this file, for the tests of
//! `takt-ros` and `takt`.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

/// Folder of the tracepoints, seen from either crate.
const TRACEPOINTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../takt-ros/tests/lttng");

/// Says why a test cannot run here; fails where it must.
pub fn skip(why: &str) {
    assert!(std::env::var_os("TAKT_REQUIRE_OUTSIDE").is_none(), "{why}");
    takt_witness::skip!("{why} (tools/install-outside gets lttng-tools, liblttng-ust-dev and gcc)");
}

/// LTTng with a session, and the program to be recorded; everything goes when this is dropped.
pub struct Lttng {
    scratch: TempDir,
    /// A session daemon of our own, where none ran.
    daemon: Option<Child>,
    /// Name of the session.
    pub session: String,
}

impl Lttng {
    /// A session with one channel, and the program of that source; `None`: not possible here (the
    /// reason is printed).
    pub fn new(name: &str, source: &Path, channel: &[&str]) -> Option<Self> {
        let scratch = tempfile::tempdir().expect("a temporary folder");
        let built = Command::new("gcc")
            .args(["-O2", "-Wall", "-o"])
            .arg(scratch.path().join("workload"))
            .args(["-I", TRACEPOINTS])
            .arg(source)
            .args(["-llttng-ust", "-lpthread", "-ldl"])
            .output();
        match built {
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
        let mut this = Self { scratch, daemon: None, session: format!("takt-{name}-{}", std::process::id()) };
        if Command::new("lttng").arg("--version").output().is_err() {
            skip("no lttng");
            return None;
        }
        if !this.command(&["list"]) {
            let daemon = Command::new("lttng-sessiond")
                .arg("--no-kernel")
                .env("LTTNG_HOME", this.scratch())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn();
            this.daemon = daemon.ok();
            let runs = (0..100).any(|_| {
                std::thread::sleep(Duration::from_millis(100));
                this.command(&["list"])
            });
            if !runs {
                skip("lttng-sessiond does not start");
                return None;
            }
        }
        let output = format!("--output={}", this.recording().display());
        this.must(&["create", &this.session, &output]);
        let session = format!("--session={}", this.session);
        this.must(&[&["enable-channel", "--userspace", &session, "c"], channel].concat());
        for provider in ["ros2:*", "takt_test:*"] {
            this.must(&["enable-event", "--userspace", &session, "--channel=c", provider]);
        }
        let context = ["--type=vpid", "--type=vtid", "--type=procname"];
        this.must(&[&["add-context", "--userspace", &session, "--channel=c"], &context[..]].concat());
        Some(this)
    }

    /// A folder that goes with this.
    pub fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    /// Folder that the session records to.
    pub fn recording(&self) -> PathBuf {
        self.scratch().join("recording")
    }

    /// Whether `lttng` did as instructed.
    pub fn command(&self, arguments: &[&str]) -> bool {
        let mut command = Command::new("lttng");
        command.arg("--no-sessiond").args(arguments).env("LTTNG_HOME", self.scratch());
        command.output().is_ok_and(|output| output.status.success())
    }

    /// Runs a command that must not fail.
    pub fn must(&self, arguments: &[&str]) {
        assert!(self.command(arguments), "lttng {arguments:?} failed");
    }

    /// The program, to be started.
    pub fn workload<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(self.scratch().join("workload"));
        // Waits until it is registered, so that no event is missed.
        command.args(arguments).env("LTTNG_UST_REGISTER_TIMEOUT", "30000").env("LTTNG_HOME", self.scratch());
        command
    }

    /// Begins to record.
    pub fn start(&self) {
        self.must(&["start", &self.session]);
    }

    /// Ends the recording and the session.
    pub fn finish(&self) {
        self.must(&["stop", &self.session]);
        self.must(&["destroy", &self.session]);
    }
}

impl Drop for Lttng {
    fn drop(&mut self) {
        self.command(&["destroy", &self.session]);
        if let Some(mut daemon) = self.daemon.take() {
            // The daemon takes SIGTERM for its end.
            let _ = Command::new("kill").arg(daemon.id().to_string()).status();
            let _ = daemon.wait();
        }
    }
}

//! Common parts of the command line's tests: the binary, its children, configurations.

// Every test file uses a part; helpers of tests may panic as tests may.
#![allow(dead_code, clippy::unwrap_used)]

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

/// The program under test.
pub const TAKT: &str = env!("CARGO_BIN_EXE_takt");

/// TLS before what listens at `port`, or what takes every request where that is `None`; its
/// authority is `authority.pem` in the folder. It prints its port, and ends with this.
pub fn tls_proxy(folder: &Path, port: Option<&str>) -> Option<Beside> {
    let there = Command::new("openssl").arg("version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if missing("there is no openssl", there.is_ok_and(|status| status.success())) {
        return None;
    }
    let mut command = Command::new("python3");
    command.arg(root().join("crates/takt/tests/tls/proxy.py")).arg(folder).args(port);
    Some(Beside::start({
        command.stdin(Stdio::piped());
        command
    }))
}

/// Longest wait for something that takes seconds, on a machine that does much else.
pub const PATIENCE: Duration = Duration::from_secs(240);

/// Runs of the cell take the whole machine: one at a time.
pub fn alone() -> MutexGuard<'static, ()> {
    static MACHINE: Mutex<()> = Mutex::new(());
    MACHINE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Path of the shipped demonstration.
pub fn demo() -> PathBuf {
    root().join("robots/demo.toml")
}

/// Text of the shipped demonstration.
pub fn demo_text() -> String {
    fs::read_to_string(demo()).unwrap()
}

/// The synthetic cell with `perception` added, without networks and with much patience, as a file
/// in `folder`.
pub fn patient_cell(folder: &Path, perception: &str) -> PathBuf {
    let text = fs::read_to_string(root().join("robots/synthetic.toml")).unwrap();
    let cell = "[perception.detector]\nenabled = false\n[perception.segmenter]\nenabled = false\n";
    let text =
        text.replacen("[perception.occupancy]", &format!("{perception}\n{cell}\n[perception.occupancy]"), 1);
    let path = folder.join("cell.toml");
    fs::write(
        &path,
        text.replacen(
            "[ssm]",
            "[ssm]\nstale_after_ms = 1000.0\nrobot_stale_after_ms = 1000.0\nrobot_state_age_ms = 1000.0\n\
             ack_after_ms = 1000.0",
            1,
        ),
    )
    .unwrap();
    path
}

/// The same cell with nobody in it, so that nothing but what a test plants stops the robot: a stop
/// for a person who happens to stand there would hide the cause that the test looks for.
pub fn empty_cell(folder: &Path, perception: &str) -> PathBuf {
    let path = patient_cell(folder, perception);
    let text = fs::read_to_string(&path).unwrap();
    let mut cell = toml::from_str::<toml::Table>(&text).unwrap();
    for camera in cell["cameras"].as_array_mut().unwrap() {
        camera["source"]["scene"]["people"] = toml::Value::Array(Vec::new());
    }
    fs::write(&path, toml::to_string(&cell).unwrap()).unwrap();
    path
}

/// `takt` with arguments.
pub fn takt<I: IntoIterator<Item = S>, S: AsRef<std::ffi::OsStr>>(args: I) -> Command {
    let mut command = Command::new(TAKT);
    command.args(args).stdin(Stdio::null());
    command
}

/// Text on standard output.
pub fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Text on standard error.
pub fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Message of a command that refused: exit status 2 and no panic.
#[track_caller]
pub fn refusal(output: &Output) -> String {
    let message = stderr(output);
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(!message.contains("panicked"), "{message}");
    message
}

/// Asserts that every one of `parts` was said.
#[track_caller]
pub fn has(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "\"{part}\" is not in: {message}");
    }
}

/// Standard output as one JSON value, after exit status 0.
pub fn json(output: &Output) -> Value {
    assert_eq!(output.status.code(), Some(0), "{}", stderr(output));
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}:\n{}", stdout(output)))
}

/// As [`json`], of several runs some of which failed: exit status 1.
pub fn partial_json(output: &Output) -> Value {
    assert_eq!(output.status.code(), Some(1), "{}", stderr(output));
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}:\n{}", stdout(output)))
}

/// As [`json`], of a run that may have gone on untraced: its exit status says so then.
pub fn traced_json(output: &Output) -> Value {
    assert!(matches!(output.status.code(), Some(0 | 2)), "{}", stderr(output));
    let traced: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", stderr(output)));
    let of_run = traced["untraced"].is_null() == (output.status.code() == Some(0));
    assert!(of_run, "{:?}: {}", output.status, traced["untraced"]);
    traced
}

/// A JSON file.
pub fn read_json(path: &Path) -> Value {
    let text = fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Folders below `path`.
pub fn folders(path: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(path) else { return Vec::new() };
    let mut found: Vec<PathBuf> = entries.map(|e| e.unwrap().path()).filter(|p| p.is_dir()).collect();
    found.sort();
    found
}

/// Data rows of a sample file.
pub fn rows(run_dir: &Path, name: &str) -> usize {
    let text = fs::read_to_string(run_dir.join("samples").join(name)).unwrap_or_default();
    text.lines().count().saturating_sub(1)
}

/// The Markdown that `takt report` writes about a folder.
pub fn report(folder: &str) -> String {
    let output = takt(["report", folder]).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    fs::read_to_string(Path::new(folder).join("report.md")).unwrap()
}

/// A goals file with one chain, written into `folder`.
pub fn goals_of(folder: &Path, chain: &str, [start, end]: [&str; 2], goal: &str) -> PathBuf {
    let path = folder.join("goals.toml");
    let text = format!(
        "degradation_order = [\"{chain}\"]\n[[chain]]\nname = \"{chain}\"\nstart = \"{start}\"\nend = \"{end}\"\n\
         goal = \"{goal}\"\n"
    );
    fs::write(&path, text).unwrap();
    path
}

/// A folder with a campaign file.
pub struct Workspace(tempfile::TempDir);

impl Workspace {
    /// With that text.
    pub fn new(text: &str) -> Self {
        let workspace = Self(tempfile::tempdir().unwrap());
        fs::write(workspace.file(), text).unwrap();
        workspace
    }

    /// The campaign file.
    pub fn file(&self) -> PathBuf {
        self.0.path().join("campaign.toml")
    }

    /// Folder of its campaigns.
    pub fn runs(&self) -> PathBuf {
        self.0.path().join("runs")
    }

    /// Makes its runs.
    pub fn command(&self, more: &[&str]) -> Command {
        let mut command = takt(["campaign", "run"]);
        command.arg(self.file()).args(more).arg("--runs").arg(self.runs());
        command
    }

    /// Answer of `takt` to a campaign that it must refuse before anything runs.
    pub fn refused(&self, more: &[&str]) -> String {
        let message = refusal(&self.command(more).output().unwrap());
        assert!(message.starts_with("takt: "), "{message}");
        assert!(folders(&self.runs()).is_empty(), "something ran");
        message
    }
}

/// Asks until there is an answer.
pub fn wait_for<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let since = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(since.elapsed() < PATIENCE, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A `takt` that runs beside the test, with its words in files; killed when dropped.
pub struct Beside {
    child: Child,
    output: tempfile::TempDir,
}

impl Beside {
    pub fn start(mut command: Command) -> Self {
        let output = tempfile::tempdir().unwrap();
        let file = |name: &str| fs::File::create(output.path().join(name)).unwrap();
        // The tests may themselves run under nohup, which their programs would inherit.
        let hang_up_ends = || {
            // SAFETY: signal(2) is async-signal-safe, and SIG_DFL is a disposition that every
            // signal has.
            unsafe { libc::signal(libc::SIGHUP, libc::SIG_DFL) };
            Ok(())
        };
        // SAFETY: between fork and exec the closure makes that one call alone.
        unsafe { std::os::unix::process::CommandExt::pre_exec(&mut command, hang_up_ends) };
        let child = command.stdout(file("stdout")).stderr(file("stderr")).spawn().unwrap();
        Self { child, output }
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its output so far on `stdout` or `stderr`.
    pub fn output(&self, stream: &str) -> String {
        let mut text = String::new();
        fs::File::open(self.output.path().join(stream)).unwrap().read_to_string(&mut text).unwrap();
        text
    }

    /// As [`output`](Self::output): for tests that are not renamed yet.
    pub fn said(&self, stream: &str) -> String {
        self.output(stream)
    }

    /// The rest of the first line that begins with `prefix`, once it is there.
    pub fn line(&mut self, stream: &str, prefix: &str) -> String {
        wait_for(&format!("\"{prefix}\""), || {
            let text = self.output(stream);
            let whole = &text[..text.rfind('\n').map_or(0, |end| end + 1)];
            let found = whole.lines().find_map(|l| l.strip_prefix(prefix)).map(str::to_owned);
            if found.is_none() {
                let ended = self.child.try_wait().unwrap();
                assert!(ended.is_none(), "it ended ({ended:?}) and never wrote \"{prefix}\":\n{text}");
            }
            found
        })
    }

    /// Whether it still runs.
    pub fn runs(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Sends a signal.
    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Waits for its end.
    pub fn end(&mut self) -> ExitStatus {
        wait_for("the end", || self.child.try_wait().unwrap())
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `setpriv`, which becomes the program that is appended, as a user without any right.
pub fn without_rights() -> Command {
    let mut command = Command::new("setpriv");
    command.args([
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        "--no-new-privs",
        "--bounding-set=-all",
    ]);
    command
}

/// Whether something from outside is missing; then says so, or fails where `TAKT_REQUIRE_OUTSIDE=1`
/// asks for it.
pub fn missing(what: &str, there: bool) -> bool {
    if !there {
        let required = std::env::var_os("TAKT_REQUIRE_OUTSIDE").is_some_and(|value| value == "1");
        assert!(!required, "TAKT_REQUIRE_OUTSIDE=1, but {what}");
        takt_witness::skip!("{what}");
    }
    !there
}

/// Whether a traced run could not be traced here; then as [`missing`].
pub fn untraced(traced: &Value) -> bool {
    let why = &traced["untraced"];
    missing(&format!("the kernel cannot be traced here: {why}"), why.is_null())
}

//! What another user names or plants, given to the program as a whole: nothing blocks, nothing is
//! read without end, nothing is echoed by the megabyte, nothing is followed, and nothing of theirs
//! is believed.

#![allow(clippy::unwrap_used)]

mod takt;

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use takt::{TAKT, has, refusal, root, stderr, takt as run};

/// A user that owns nothing.
const NOBODY: u32 = 65_534;

/// What a command says that must come to its end by itself: one that waits for a FIFO, or reads
/// without end, never does.
fn ended(mut command: Command, what: &str) -> Output {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let until = Instant::now() + Duration::from_secs(120);
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > until {
            child.kill().unwrap();
            panic!("{what} does not end: {}", stderr(&child.wait_with_output().unwrap()));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().unwrap()
}

#[test]
fn fifos_and_endless_files_are_refused() {
    let workspace = tempfile::tempdir().unwrap();
    let fifo = workspace.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let runs = workspace.path().join("runs").display().to_string();
    // A run directory whose files are FIFOs.
    let planted = workspace.path().join("planted");
    fs::create_dir(&planted).unwrap();
    assert!(Command::new("mkfifo").arg(planted.join("run.json")).status().unwrap().success());
    let planted = planted.display().to_string();
    for file in [fifo.to_str().unwrap(), "/dev/zero"] {
        for args in [
            vec!["check", file],
            vec!["run", file, "--runs", &runs, "--seconds", "1", "--view", "none"],
            vec!["campaign", "run", file, "--runs", &runs],
            vec!["workload", file],
            vec!["simulate", "--config", file],
            vec!["segment", "--config", file],
            vec!["trace", "--file", file, "--thread", "x"],
            vec!["manage", file, "--pid", "1", "--seconds", "1"],
            vec!["manage", "--restore", "--state", file],
            vec!["doctor", "--revert", "--state", file],
        ] {
            let output = ended(run(&args), &format!("{args:?}"));
            assert_eq!(output.status.code(), Some(2), "{args:?}: {}", stderr(&output));
            let message = refusal(&output);
            let reported = ["FIFO", "device", "is no file"].iter().any(|word| message.contains(word));
            assert!(reported, "{args:?}: {message}");
        }
    }
    for args in [vec!["report", &planted], vec!["compare", &planted, &planted], vec!["export", &planted]] {
        let output = ended(run(&args), &format!("{args:?}"));
        assert!(!output.status.success(), "{args:?}");
    }
}

#[test]
fn a_line_of_megabytes_is_not_echoed() {
    let workspace = tempfile::tempdir().unwrap();
    let path = workspace.path().join("robot.toml");
    let file = path.to_str().unwrap();
    // Within what is read: the place is still reported.
    fs::write(&path, format!("robot = \"uav\"\nx = \"{}\" oops\n", "a".repeat(900_000))).unwrap();
    for args in
        [vec!["check", file], vec!["run", file], vec!["campaign", "run", file], vec!["workload", file]]
    {
        let message = refusal(&run(&args).output().unwrap());
        assert!(message.len() < 3000, "{args:?}: {} bytes", message.len());
        assert!(message.contains("line 2"), "{args:?}: {message}");
    }
    // A value that is echoed in an error of its own.
    fs::write(&path, format!("robot = \"{}\"\n", "a".repeat(900_000))).unwrap();
    assert!(refusal(&run(["check", file]).output().unwrap()).len() < 6000);
    // Beyond it.
    fs::write(&path, format!("x = \"{}\" oops\n", "a".repeat(10_000_000))).unwrap();
    has(&refusal(&run(["check", file]).output().unwrap()), &["at most 1048576"]);
}

#[test]
fn state_files_of_another_user_are_not_believed() {
    let workspace = tempfile::tempdir().unwrap();
    let state = workspace.path().join("state.json");
    let text = "{\"format\": 1, \"settings\": [{\"path\": \"/proc/sys/kernel/sched_rt_runtime_us\", \"before\": \"950000\"}]}";
    fs::write(&state, text).unwrap();
    if chown(&state, Some(NOBODY), Some(NOBODY)).is_err() {
        eprintln!("SKIPPED: a second user needs root");
        return;
    }
    let state = state.to_str().unwrap();
    for args in [["doctor", "--revert", "--state", state], ["manage", "--restore", "--state", state]] {
        let message = refusal(&run(args).output().unwrap());
        has(&message, &["not trusted", "user 65534"]);
    }
}

#[test]
fn a_report_by_root_follows_no_link_of_another_user() {
    let workspace = tempfile::tempdir().unwrap();
    let runs = workspace.path().join("runs");
    let made =
        run(["run", root().join("robots/uav.toml").to_str().unwrap(), "--seconds", "0.3", "--view", "none"])
            .args(["--runs", runs.to_str().unwrap()])
            .output()
            .unwrap();
    let dir =
        fs::read_dir(&runs).unwrap().next().unwrap_or_else(|| panic!("{}", stderr(&made))).unwrap().path();
    let victim = workspace.path().join("victim");
    fs::write(&victim, "precious").unwrap();
    for name in ["report.html", "report.md"] {
        let _ = fs::remove_file(dir.join(name));
        symlink(&victim, dir.join(name)).unwrap();
        if std::os::unix::fs::lchown(dir.join(name), Some(NOBODY), Some(NOBODY)).is_err() {
            eprintln!("a second user needs root: the link is this user's own");
        }
    }
    let output = run(["report", dir.to_str().unwrap()]).output().unwrap();
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious", "{}", stderr(&output));
    assert!(dir.join("report.html").symlink_metadata().unwrap().is_file(), "{}", stderr(&output));
}

/// A copy of the program with CAP_SYS_NICE from its file, started by another user who names a
/// library.
#[test]
fn a_binary_with_capabilities_does_not_believe_its_users_environment() {
    let workspace = tempfile::tempdir().unwrap();
    fs::set_permissions(workspace.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let copy = workspace.path().join("takt");
    fs::copy(TAKT, &copy).unwrap();
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).unwrap();
    // VFS_CAP_REVISION_2 with the effective bit (include/uapi/linux/capability.h), CAP_SYS_NICE
    // (23) permitted.
    let mut capability = [0u8; 20];
    capability[..4].copy_from_slice(&0x0200_0001_u32.to_le_bytes());
    capability[4..8].copy_from_slice(&(1_u32 << 23).to_le_bytes());
    if let Err(error) = set_attribute(&copy, &capability) {
        eprintln!("SKIPPED: no capabilities on files here: {error}");
        return;
    }
    let output = Command::new(&copy)
        .args(["doctor", "--seconds", "0"])
        .env("ORT_DYLIB_PATH", "/tmp/planted.so")
        .env("VIRTUAL_ENV", "/tmp/planted")
        .uid(NOBODY)
        .gid(NOBODY)
        .current_dir("/")
        .output();
    match output {
        Ok(output) if output.status.success() => {
            has(&stderr(&output), &["capabilities from its file", "ORT_DYLIB_PATH", "not believed"]);
        }
        other => eprintln!("SKIPPED: the copy cannot be started by another user: {other:?}"),
    }
}

fn set_attribute(path: &Path, value: &[u8]) -> std::io::Result<()> {
    let path = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    let name = c"security.capability";
    // SAFETY: both texts end in NUL, and the value is alive and as long as is said.
    match unsafe { libc::setxattr(path.as_ptr(), name.as_ptr(), value.as_ptr().cast(), value.len(), 0) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

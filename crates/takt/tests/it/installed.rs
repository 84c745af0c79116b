//! What an installed program has without its source tree: robots, goals and campaigns by name, the
//! pages of the manual, what it is made of, and rights for its group alone.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::{hold as golden, takt};

use takt::{Beside, TAKT, alone, has, json, missing, refusal, root, stdout, takt as run, wait_for};

/// Names of the files of a folder of the repository, without `.toml`.
fn stems(folder: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(root().join(folder)).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect()
}

/// What `takt ARGS --json` lists.
fn listed(args: &[&str]) -> Vec<Value> {
    let list = json(&run(args).arg("--json").output().unwrap());
    list.as_array().unwrap().clone()
}

fn text<'a>(row: &'a Value, key: &str) -> &'a str {
    row[key].as_str().unwrap_or_else(|| panic!("{key}: {row}"))
}

#[test]
fn every_shipped_file_is_listed_and_printed_as_it_is() {
    for (command, folder) in [("robots", "robots"), ("goals", "goals")] {
        let rows = listed(&[command]);
        golden::hold(command, &golden::shape("--json", &rows.clone().into()));
        let names: BTreeSet<String> = rows.iter().map(|row| text(row, "name").to_owned()).collect();
        assert_eq!(names, stems(folder), "{command}");
        let words = stdout(&run([command]).output().unwrap());
        for row in &rows {
            let (name, about) = (text(row, "name"), text(row, "about"));
            assert!(about.ends_with('.') && (10..240).contains(&about.len()), "{name}: {about}");
            has(&words, &[name, about]);
            let file = fs::read_to_string(root().join(folder).join(name).with_extension("toml")).unwrap();
            let also = row["also"].as_array().unwrap().iter().map(|name| name.as_str().unwrap());
            for name in also.chain([name]) {
                let shown = run([command, "show", name]).output().unwrap();
                assert_eq!(stdout(&shown), file, "{command} show {name}");
            }
        }
    }
    let campaigns = listed(&["campaign", "list"]);
    golden::hold("campaign-list", &golden::shape("--json", &campaigns.clone().into()));
    let names: BTreeSet<String> = campaigns.iter().map(|row| text(row, "name").to_owned()).collect();
    assert_eq!(names, stems("campaigns"));
    assert!(campaigns.iter().all(|row| !text(row, "about").is_empty()), "{campaigns:?}");
    let aliases =
        |name: &str| listed(&["robots"]).into_iter().find(|row| row["name"] == name).unwrap()["also"].clone();
    assert_eq!(
        (aliases("demo"), aliases("turtlebot")),
        (serde_json::json!(["cell"]), serde_json::json!(["ros"]))
    );
}

#[test]
fn a_printed_file_is_a_file_of_ones_own_in_any_folder() {
    let folder = tempfile::tempdir().unwrap();
    for row in listed(&["robots"]) {
        let name = text(&row, "name");
        let file = fs::File::create(folder.path().join("my.toml")).unwrap();
        assert!(run(["robots", "show", name]).stdout(file).status().unwrap().success());
        let checked = run(["check", "my.toml"]).current_dir(folder.path()).output().unwrap();
        assert!(checked.status.success(), "{name}: {}", takt::stderr(&checked));
        // By name it is the same robot.
        let by_name = run(["check", name]).current_dir(folder.path()).output().unwrap();
        let (own, shipped) = (stdout(&checked), stdout(&by_name));
        assert_eq!(own.split_once(": ").unwrap().1, shipped.split_once(": ").unwrap().1, "{name}");
    }
    for (name, what) in
        [("humanoid-guest", "campaign humanoid-guest"), ("uav-isolation", "campaign uav-isolation")]
    {
        let checked = run(["check", name]).current_dir(folder.path()).output().unwrap();
        has(&stdout(&checked), &[what, " runs"]);
    }
}

#[test]
fn a_robot_runs_by_name_where_there_is_no_file() {
    let _machine = alone();
    let folder = tempfile::tempdir().unwrap();
    // A folder of that name is no robot.
    fs::create_dir(folder.path().join("cyclic")).unwrap();
    let args = ["run", "cyclic", "--seconds", "0.3", "--view", "none", "--json", "--runs", "runs"];
    let output = run(args).current_dir(folder.path()).output().unwrap();
    let summary: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", takt::stderr(&output)));
    assert_eq!(summary["robot"], "cyclic", "{summary:#}");
    // A file of that name is the reader's own, and has the right of way.
    fs::remove_dir(folder.path().join("cyclic")).unwrap();
    fs::write(folder.path().join("cyclic"), "robot = 'cyclic'\nrate_hz = 'fast'\n").unwrap();
    has(&refusal(&run(args).current_dir(folder.path()).output().unwrap()), &["rate_hz"]);
}

#[test]
fn names_that_nobody_has_are_refused_with_those_that_there_are() {
    let folder = tempfile::tempdir().unwrap();
    for (args, words) in [
        (vec!["run", "cylic"], vec!["built-in robots: cell, demo", "turtlebot", "did you mean `cyclic`?"]),
        (vec!["run", "robots/uav.toml"], vec!["there is no folder robots", "takt run NAME"]),
        (vec!["check", "sentry1"], vec!["built-in robots: cell, demo", "did you mean `sentryrt1`?"]),
        (vec!["tune", "uaw", "--list"], vec!["did you mean `uav`?"]),
        (vec!["robots", "show", "demmo"], vec!["shipped are", "did you mean `demo`?"]),
        (vec!["goals", "show", "x"], vec!["shipped are uav, turtlebot"]),
        (vec!["manage", "turtlebo", "--", "true"], vec!["goals file", "did you mean `turtlebot`?"]),
        (vec!["manage", "turtlebot", "--trace", "none"], vec!["none"]),
        (vec!["man", "--out", "none"], vec!["none"]),
        (vec!["--verbose", "robots"], vec!["--verbose goes with --version"]),
    ] {
        let output = run(&args).current_dir(folder.path()).output().unwrap();
        has(&refusal(&output), &words);
        assert!(output.stdout.is_empty(), "{args:?}: {}", stdout(&output));
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn the_version_says_what_the_program_is_made_of() {
    let short = stdout(&run(["--version"]).output().unwrap());
    assert_eq!(short, format!("takt {}\n", env!("CARGO_PKG_VERSION")));
    for args in [["--version", "--verbose"], ["--verbose", "--version"], ["-V", "--verbose"]] {
        let long = stdout(&run(args).output().unwrap());
        assert!(long.starts_with(&short), "{long}");
        let field = |name: &str| {
            let prefix = format!("{name}: ");
            let line = long.lines().find_map(|line| line.strip_prefix(&prefix));
            line.filter(|value| !value.is_empty()).unwrap_or_else(|| panic!("no {name}: {long}")).to_owned()
        };
        let features = field("features");
        let features: Vec<&str> = features.split(' ').collect();
        for (feature, built) in
            [("cell", cfg!(feature = "cell")), ("s3", cfg!(feature = "s3")), ("iio", cfg!(feature = "iio"))]
        {
            assert_eq!(features.contains(&feature), built, "{feature}: {long}");
        }
        assert!(field("target").starts_with(std::env::consts::ARCH), "{long}");
        assert!(field("compiler").starts_with("rustc "), "{long}");
        field("commit");
        field("profile");
        assert_eq!(Path::new(&field("shipped files")), root(), "{long}");
    }
    // Where they lie beside the program.
    let elsewhere = tempfile::tempdir().unwrap();
    let long = run(["--version", "--verbose"]).env("TAKT_DATA", elsewhere.path()).output().unwrap();
    has(&stdout(&long), &[&format!("shipped files: {}", elsewhere.path().display())]);
}

#[test]
fn every_command_has_a_page_and_is_completed() {
    let folder = tempfile::tempdir().unwrap();
    assert!(run(["man", "--out"]).arg(folder.path()).status().unwrap().success());
    let pages: BTreeSet<String> = fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let help = stdout(&run(["--help"]).output().unwrap());
    // Two blanks before a command, and one word.
    let commands: Vec<&str> = help
        .lines()
        .filter(|line| line.starts_with("  ") && !line.starts_with("   ") && !line.starts_with("  -"))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|word| word.chars().all(|letter| letter.is_ascii_lowercase()))
        .collect();
    assert!(commands.len() > 25, "{commands:?}");
    for page in ["takt.1", "takt-bench-cell.1", "takt-robots-show.1"] {
        assert!(pages.contains(page), "{page}: {pages:?}");
    }
    for shell in ["bash", "zsh", "fish"] {
        let script = stdout(&run(["completions", shell]).output().unwrap());
        for command in &commands {
            assert!(pages.contains(&format!("takt-{command}.1")), "{command}: {pages:?}");
            assert!(script.contains(command), "{shell}: {command}");
        }
    }
    assert!(!pages.iter().any(|page| page.contains("help") || page.contains("keeper")), "{pages:?}");
    let page = fs::read_to_string(folder.path().join("takt-watch.1")).unwrap();
    has(&page, &["takt\\-watch", "\\-\\-seconds"]);
}

/// A group that nobody has.
const GROUP: u32 = 61_234;
const NOBODY: u32 = 65_534;
/// Bits of `linux/capability.h`.
const DAC_READ_SEARCH: u64 = 1 << 2;
const SYS_NICE: u64 = 1 << 23;

/// Capabilities of a file (`vfs_cap_data`, revision 2), permitted and not in force.
fn set_capabilities(file: &Path, permitted: u64) -> std::io::Result<()> {
    let mut data = [0_u8; 20];
    data[..4].copy_from_slice(&0x0200_0000_u32.to_le_bytes());
    data[4..8].copy_from_slice(&(permitted as u32).to_le_bytes());
    data[12..16].copy_from_slice(&((permitted >> 32) as u32).to_le_bytes());
    let path = CString::new(file.as_os_str().as_bytes()).unwrap();
    // SAFETY: both texts end with a zero, and the data is as long as is said.
    let rc = unsafe {
        libc::setxattr(path.as_ptr(), c"security.capability".as_ptr(), data.as_ptr().cast(), data.len(), 0)
    };
    if rc == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

/// The program as a package installs it, in `folder`: for everybody, of a group of its own.
fn packaged(folder: &Path, permitted: u64) -> std::io::Result<std::path::PathBuf> {
    fs::set_permissions(folder, PermissionsExt::from_mode(0o777))?;
    let program = folder.join("takt");
    fs::copy(TAKT, &program)?;
    chown(&program, Some(0), Some(GROUP))?;
    fs::set_permissions(&program, PermissionsExt::from_mode(0o755))?;
    set_capabilities(&program, permitted)?;
    Ok(program)
}

#[test]
fn rights_of_the_file_are_for_its_group_and_read_nothing_for_others() {
    let folder = tempfile::tempdir().unwrap();
    let program = match packaged(folder.path(), SYS_NICE | DAC_READ_SEARCH) {
        Ok(program) => program,
        Err(error) => {
            missing(&format!("no program with capabilities can be made here: {error}"), false);
            return;
        }
    };
    let secret = folder.path().join("secret.toml");
    fs::write(&secret, "password = 'swordfish\n").unwrap();
    fs::set_permissions(&secret, PermissionsExt::from_mode(0o600)).unwrap();
    let as_member_of = |group: u32| {
        let mut command = Command::new(&program);
        command.uid(NOBODY).gid(group).current_dir(folder.path()).stdin(Stdio::null());
        command
    };
    // What the kernel says of a process that goes on for a while.
    let held = |group: u32| {
        let mut command = as_member_of(group);
        command.args(["simulate", "--rtde-port", "0", "--dashboard-port", "0", "--seconds", "20"]);
        let simulator = Beside::start(command);
        let status = wait_for("the program's own work", || {
            let text = fs::read_to_string(format!("/proc/{}/status", simulator.pid())).unwrap();
            simulator.output("stdout").contains("127.0.0.1").then_some(text)
        });
        let bits = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap();
            u64::from_str_radix(line.trim(), 16).unwrap()
        };
        (bits("CapPrm:"), bits("CapEff:"))
    };
    let (permitted, effective) = held(GROUP);
    if permitted == 0 {
        takt_witness::skip!("the file system gives no capabilities to programs");
        return;
    }
    assert_eq!((permitted, effective), (SYS_NICE | DAC_READ_SEARCH, SYS_NICE));
    assert_eq!(held(NOBODY), (0, 0));
    for group in [GROUP, NOBODY] {
        let message = refusal(&as_member_of(group).args(["check", "secret.toml"]).output().unwrap());
        assert!(!message.contains("swordfish") && message.contains("may not read it"), "{message}");
    }
    // A program that its mode restricts gives its rights to whoever may start it.
    chown(&program, Some(0), Some(GROUP)).unwrap();
    fs::set_permissions(&program, PermissionsExt::from_mode(0o750)).unwrap();
    set_capabilities(&program, SYS_NICE).unwrap();
    assert_eq!(held(GROUP), (SYS_NICE, SYS_NICE));
}

#[test]
fn members_of_the_group_may_watch_and_others_may_not() {
    let folder = tempfile::tempdir().unwrap();
    // Perf events, BPF programs, locked memory, tracefs, names of the kernel's functions.
    let bits = [38, 39, 14, 2, 34].iter().fold(0, |all, bit| all | 1 << bit);
    let program = match packaged(folder.path(), bits) {
        Ok(program) => program,
        Err(error) => {
            missing(&format!("no program with capabilities can be made here: {error}"), false);
            return;
        }
    };
    let lacks = |group: u32| {
        let mut command = Command::new(&program);
        command.args(["watch", "--dry-run"]).uid(NOBODY).gid(group).current_dir(folder.path());
        let output = command.stdin(Stdio::null()).output().unwrap();
        let text = stdout(&output) + &takt::stderr(&output);
        text.lines().filter(|line| line.contains("missing: ")).map(str::to_owned).collect::<Vec<_>>()
    };
    let root_lacks = {
        let output = run(["watch", "--dry-run"]).output().unwrap();
        stdout(&output).matches("missing: ").count() + takt::stderr(&output).matches("missing: ").count()
    };
    if root_lacks > 0 {
        takt_witness::skip!("even root may not watch here");
        return;
    }
    assert_eq!(lacks(GROUP), Vec::<String>::new());
    assert!(lacks(NOBODY).iter().any(|line| line.contains("CAP_PERFMON")), "{:?}", lacks(NOBODY));
}

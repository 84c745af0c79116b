//! Tests that cannot run on a machine say why, and a test run ends with one list of these reasons.
//!
//! Cargo starts many test programs and captures what their tests print, so a reader would not see
//! a skipped test. [`skip!`] therefore also adds a line to a file that all programs of one run
//! share, and the test program `skipped` of this crate prints that file.
#![deny(missing_docs)]

pub mod plant;

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// Reports that a test, or a part of it, cannot run here: `skip!("no qemu: {error}")`.
///
/// The test returns by itself afterwards. Its value is `()`, so `return skip!("…")` works.
#[macro_export]
macro_rules! skip {
    ($($reason:tt)+) => {
        $crate::skipped(env!("CARGO_PKG_NAME"), &format!($($reason)+))
    };
}

/// Function behind [`skip!`], with the crate of the test.
pub fn skipped(package: &str, reason: &str) {
    eprintln!("SKIPPED: {reason}");
    note(package, std::thread::current().name().unwrap_or("?"), reason);
}

/// Adds a line to the list without printing, for test programs that have no harness.
pub fn note(package: &str, test: &str, reason: &str) {
    let reason = reason.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some(path) = list() {
        // One write of one line: other test programs append at the same time. A list that cannot be
        // written must not fail the test.
        let line = format!("{package}\t{test}\t{reason}\n");
        let file = OpenOptions::new().append(true).create(true).open(path);
        let _ = file.and_then(|mut file| file.write_all(line.as_bytes()));
    }
}

/// The file of this test run, in the folder of cargo's builds; `None` for a program that cargo did
/// not build there, such as one that was copied into a guest.
///
/// A test run is known by its process group, which one command of a shell is, and by the time at
/// which that group's leader began, since numbers of processes come again.
pub fn list() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    let deps = program.ancestors().find(|folder| folder.ends_with("deps"))?;
    let group = rustix::process::getpgrp().as_raw_nonzero();
    Some(deps.with_file_name(format!("skipped-{group}-{}.list", began(group.get()))))
}

/// When a process began, in the kernel's clock ticks (proc(5), field 22 of `stat`); 0 if it is
/// gone.
fn began(pid: i32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let after_name = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    after_name.split(' ').nth(19).and_then(|ticks| ticks.parse().ok()).unwrap_or(0)
}

/// The list for a person: tests by the reason that stopped them. Removes the file.
///
/// # Errors
/// The file is there and cannot be read.
pub fn take(path: &Path) -> std::io::Result<String> {
    let lines = match fs::read_to_string(path) {
        Ok(lines) => lines,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error),
    };
    let _ = fs::remove_file(path);
    Ok(grouped(&lines))
}

/// Groups the lines of [`skipped`] by reason, in the order in which reasons first appeared.
fn grouped(lines: &str) -> String {
    let mut reasons: Vec<(&str, Vec<String>)> = Vec::new();
    for line in lines.lines() {
        let mut parts = line.splitn(3, '\t');
        let (Some(package), Some(test), Some(reason)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        let test = format!("{package} {test}");
        match reasons.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, tests)) if tests.contains(&test) => {}
            Some((_, tests)) => tests.push(test),
            None => reasons.push((reason, vec![test])),
        }
    }
    if reasons.is_empty() {
        return "No test was skipped on this machine.\n".to_owned();
    }
    let mut text = String::from("Skipped on this machine, wholly or in part:\n");
    for (reason, tests) in reasons {
        let _ = writeln!(text, "\n  {reason}");
        for test in tests {
            let _ = writeln!(text, "    {test}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_listed_once_under_their_reason() {
        let lines = "takt-a\tx::one\tno qemu\ntakt-b\ttwo\tno root\ntakt-a\tx::one\tno qemu\ntakt-b\tthree\tno qemu\nbroken\n";
        assert_eq!(
            grouped(lines),
            "Skipped on this machine, wholly or in part:\n\n  no qemu\n    takt-a x::one\n    takt-b three\n\n  no root\n    takt-b two\n"
        );
        assert_eq!(grouped(""), "No test was skipped on this machine.\n");
    }

    #[test]
    fn a_reported_reason_is_in_the_list_of_this_run_and_taken_once() {
        let folder = std::env::temp_dir().join(format!("takt-witness-{}", std::process::id()));
        fs::write(&folder, "takt-a\tone\tno network\n").unwrap();
        assert!(take(&folder).unwrap().contains("no network"));
        assert!(!folder.exists());
        assert!(list().is_some_and(|path| path.parent().is_some_and(|parent| !parent.ends_with("deps"))));
    }

    #[test]
    fn a_process_that_is_gone_began_at_no_time() {
        assert!(began(std::process::id() as i32) > 0);
        assert_eq!(began(i32::MAX), 0);
    }
}

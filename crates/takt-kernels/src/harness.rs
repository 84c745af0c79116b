//! For test programs that run in a guest, too: each is a program of its own without Rust's harness,
//! because it is the guest's first process as well.

use std::fmt::Display;
use std::io;
use std::process::{Command, ExitCode};

use crate::guest;
use crate::packages::{Kernel, PackageError, Store};

/// Reason why no kernel can be booted here.
#[derive(Debug, thiserror::Error)]
pub enum NoGuest {
    /// There is no virtual machine.
    #[error("no qemu-system-x86_64: {0}")]
    Qemu(io::Error),
    /// There is no such kernel.
    #[error("no kernel {name}: {source}")]
    Kernel { name: String, source: PackageError },
}

/// Work of such a program's `main`: in a guest its first process, on the host test `name`. It
/// supports the part of the harness' command line that tools use: a list, and names. `test` returns
/// an error if it cannot run here: that is reported as SKIPPED, and is a panic where
/// `TAKT_REQUIRE_OUTSIDE` is set. `note` takes package, test and reason down for the end of the
/// whole test run.
pub fn run<E: Display>(
    package: &str,
    name: &str,
    test: impl FnOnce() -> Result<(), E>,
    note: impl FnOnce(&str, &str, &str),
) -> ExitCode {
    if guest::is_init() {
        guest::run();
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "--list") {
        println!("{name}: test");
        return ExitCode::SUCCESS;
    }
    if !is_asked_for(name, &arguments) {
        return ExitCode::SUCCESS;
    }
    if let Err(reason) = test() {
        note(package, name, &reason.to_string());
        if std::env::var_os("TAKT_REQUIRE_OUTSIDE").is_some() {
            panic!("{reason}: required by TAKT_REQUIRE_OUTSIDE");
        }
        println!("SKIPPED: {reason}");
    } else {
        println!("test {name} ... ok");
    }
    ExitCode::SUCCESS
}

fn is_asked_for(name: &str, arguments: &[String]) -> bool {
    let mut names = arguments.iter().filter(|argument| !argument.starts_with("--")).peekable();
    names.peek().is_none() || names.any(|wanted| name.contains(wanted.as_str()))
}

/// The kernel of this name and what boots it.
///
/// # Errors
/// Reason why it is not available here.
pub fn kernel(name: &str) -> Result<Kernel, NoGuest> {
    Command::new("qemu-system-x86_64").arg("--version").output().map_err(NoGuest::Qemu)?;
    let kernel = Store::open(None).and_then(|store| store.get(name, &mut |_| {}));
    kernel.map_err(|source| NoGuest::Kernel { name: name.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_runs_where_nobody_or_its_name_is_asked_for() {
        let asked = |arguments: &[&str]| {
            let arguments: Vec<String> = arguments.iter().map(|&argument| argument.to_owned()).collect();
            is_asked_for("boards_in_a_guest", &arguments)
        };
        assert!(asked(&[]) && asked(&["--nocapture"]) && asked(&["other", "boards"]));
        assert!(!asked(&["other"]));
    }
}

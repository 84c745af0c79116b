//! For test programs that run in a guest, too: each is a program of its own without Rust's harness, because it is the guest's first
//! process as well.

use std::process::{Command, ExitCode};

use crate::guest;
use crate::packages::{Kernel, Store};

/// What such a program's `main` does: in a guest its first process, on the host test `name`. Of the harness' command line as much as tools use:
/// a list, and names. `test` says by an error why it cannot run here: that is told as SKIPPED, and is a panic where
/// `TAKT_REQUIRE_OUTSIDE` is set.
pub fn run(name: &str, test: impl FnOnce() -> Result<(), String>) -> ExitCode {
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
    match test() {
        Ok(()) => println!("test {name} ... ok"),
        Err(reason) if std::env::var_os("TAKT_REQUIRE_OUTSIDE").is_none() => println!("SKIPPED: {reason}"),
        Err(reason) => panic!("{reason}: required by TAKT_REQUIRE_OUTSIDE"),
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
/// Why it cannot be had here.
pub fn kernel(name: &str) -> Result<Kernel, String> {
    if Command::new("qemu-system-x86_64").arg("--version").output().is_err() {
        return Err("no qemu-system-x86_64".to_owned());
    }
    let kernel = Store::open(None).and_then(|store| store.get(name, &mut |_| {}));
    kernel.map_err(|error| format!("no kernel {name}: {error}"))
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

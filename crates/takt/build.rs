//! Tells `takt --version --verbose` what the binary is made of. `TAKT_COMMIT` names the commit;
//! without it, a release build asks git. Other builds name none: they would be built again after
//! each commit.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=TAKT_COMMIT");
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let mut features: Vec<String> = std::env::vars()
        .filter_map(|(name, _)| Some(name.strip_prefix("CARGO_FEATURE_")?.to_lowercase()))
        .filter(|name| name != "default")
        .collect();
    features.sort();
    let profile = variable("PROFILE");
    let commit = match variable("TAKT_COMMIT") {
        given if !given.is_empty() => given,
        _ if profile == "release" => by_git(),
        _ => "not recorded (development build)".to_owned(),
    };
    let compiler = first_line(Command::new(variable("RUSTC")).arg("--version"));
    for (name, value) in [
        ("TAKT_COMMIT", commit),
        ("TAKT_FEATURES", if features.is_empty() { "none".to_owned() } else { features.join(" ") }),
        ("TAKT_TARGET", variable("TARGET")),
        ("TAKT_PROFILE", format!("{profile}, level {}", variable("OPT_LEVEL"))),
        ("TAKT_COMPILER", compiler.unwrap_or_else(|| "unknown".to_owned())),
    ] {
        println!("cargo::rustc-env={name}={value}");
    }
}

/// The commit of the source tree, which may have been changed since.
fn by_git() -> String {
    let git = |words: &[&str]| first_line(Command::new("git").args(words));
    // Where the name of the commit changes: the branch, and what is checked out.
    for file in ["HEAD", "logs/HEAD"] {
        if let Some(path) = git(&["rev-parse", "--git-path", file]).filter(|path| Path::new(path).exists()) {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    git(&["rev-parse", "HEAD"]).map_or_else(
        || "unknown (not built from a clone)".to_owned(),
        |commit| format!("{commit}, and changes since, if any"),
    )
}

/// The first line that a command prints.
fn first_line(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).lines().next()?.trim().to_owned())
}

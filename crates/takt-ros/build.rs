//! Compiles the two libraries that are loaded into other processes (the probe and the stand-in for
//! `libtracetools.so`) with the compiler at hand, so that the one binary carries them and no
//! further toolchain is needed.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Sources of the two libraries, and what both sides share.
const SOURCES: [&str; 9] = [
    "preload/c.rs",
    "preload/calls.rs",
    "preload/off_cpu.rs",
    "preload/probe.rs",
    "preload/process.rs",
    "preload/session.rs",
    "preload/standin.rs",
    "preload/tracepoints.rs",
    "src/preload/ring.rs",
];

fn main() {
    for source in SOURCES {
        println!("cargo::rerun-if-changed={source}");
    }
    println!("cargo::rerun-if-changed=build.rs");
    let out = PathBuf::from(variable("OUT_DIR"));
    // The probe must stay where it is once loaded: threads that end call into it.
    // It unwinds: exceptions of C++ callbacks go through its frames.
    library("probe", &out.join("libtakt_probe.so"), 3, "unwind", &["-Wl,-z,nodelete"]);
    // Level 1: from level 2 on, functions with equal bodies become one, and a uprobe could not
    // distinguish them.
    library("standin", &out.join("libtracetools.so"), 1, "abort", &["-Wl,-soname,libtracetools.so"]);
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("cargo sets {name} for build scripts"))
}

/// Neither the profile nor RUSTFLAGS matter here: a sanitizer or a coverage runtime inside a
/// foreign process would be wrong, and an unoptimised probe would cost what no one measured.
fn library(name: &str, target: &Path, level: u8, panic: &str, link: &[&str]) {
    let mut rustc = Command::new(variable("RUSTC"));
    rustc
        .args(["--edition=2024", "--crate-type=cdylib", "-Ccodegen-units=1"])
        .args(["-Cstrip=symbols", "-Coverflow-checks=off", "-Cdebug-assertions=off"])
        .arg(format!("-Cpanic={panic}"))
        .arg(format!("-Copt-level={level}"))
        .arg(format!("--crate-name=takt_{name}"))
        .arg(format!("--target={}", variable("TARGET")))
        .args(link.iter().map(|argument| format!("-Clink-arg={argument}")))
        .arg("-o")
        .arg(target)
        .arg(format!("preload/{name}.rs"));
    if let Ok(linker) = env::var("RUSTC_LINKER") {
        rustc.arg(format!("-Clinker={linker}"));
    }
    let status = rustc.status().unwrap_or_else(|error| panic!("{rustc:?}: {error}"));
    assert!(status.success(), "{rustc:?}: {status}");
}

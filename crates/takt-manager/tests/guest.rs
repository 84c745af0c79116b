//! The tests of enactment once more under a kernel that has all ways, in a virtual machine: the computer that runs this test may have
//! no cgroup v2 cpusets, or no privilege.
//!
//! A program of its own (no test harness), because it is the first process of the guest too. Skipped without QEMU or kernel, unless
//! TAKT_REQUIRE_OUTSIDE=1.

#![allow(clippy::unwrap_used)] // Helpers of tests may panic as tests may.

use std::path::PathBuf;
use std::process::ExitCode;

use takt_kernels::guest::{Job, Order};
use takt_kernels::machine::Settings;
use takt_kernels::transport::JobEnding;
use takt_kernels::{Brought, GuestRun, harness, run_in_guest};

const NAME: &str = "partition_roots_reserve_and_restore_in_a_guest";
/// It has `cpuset.cpus.exclusive`, which came with 6.7.
const KERNEL: &str = "6.12";
const PROGRAM: &str = "/usr/local/bin/enact";

fn main() -> ExitCode {
    harness::run(NAME, test)
}

/// `Err`: why not here.
fn test() -> Result<(), Box<dyn std::error::Error>> {
    let kernel = harness::kernel(KERNEL)?;
    let enact = enact().ok_or("the program of tests/enact.rs is not built: run all tests of the crate")?;
    let directory = tempfile::tempdir().unwrap();
    let job = Job::new("enact", PROGRAM, &["--nocapture", "--test-threads", "1"]);
    let outcome = run_in_guest(
        &GuestRun {
            kernel,
            settings: Settings { cpus: 2, memory_mib: 1024, ..Settings::default() },
            init: std::env::current_exe().unwrap(),
            programs: vec![Brought { host: enact, guest: PROGRAM.into() }],
            files: Vec::new(),
            modules: Vec::new(),
            order: Order { jobs: vec![job], ..Order::default() },
            directory: directory.path().to_path_buf(),
        },
        &mut |_| true,
    )
    .unwrap();
    let said = ["stdout", "stderr"]
        .map(|stream| std::fs::read_to_string(outcome.results.join(format!("jobs/enact.{stream}"))).unwrap());
    let [out, err] = &said;
    assert_eq!(outcome.job("enact").unwrap().ending, JobEnding::Exited { code: 0 }, "{out}\n{err}");
    // Skipped is not passed: this is what the guest is for.
    assert!(!err.contains("mode: PartitionRoots"), "{err}");
    assert!(err.contains("partition roots (cgroup v2), Hard"), "{err}");
    for way in ["partition roots (cgroup v2)", "admission control and runtime throttling off"] {
        assert!(err.contains(&format!("pinned by {way}")), "{way}: {err}");
    }
    for line in err.lines().filter(|line| line.contains("partition roots")) {
        println!("{line}");
    }
    Ok(())
}

/// The newest build of the other test program, which cargo puts beside this one.
fn enact() -> Option<PathBuf> {
    let folder = std::env::current_exe().ok()?.parent()?.to_path_buf();
    std::fs::read_dir(folder)
        .ok()?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.strip_prefix("enact-").is_some_and(|hash| hash.chars().all(|c| c.is_ascii_hexdigit()))
        })
        .max_by_key(|path| path.metadata().and_then(|metadata| metadata.modified()).ok())
}

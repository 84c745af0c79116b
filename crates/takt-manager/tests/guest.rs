//! The tests of enactment once more under a kernel that has all ways, in a virtual machine: the
//! computer that runs this test may have no cgroup v2 cpusets, or no privilege. And those of the
//! supply, under that kernel and those that `TAKT_GUEST_KERNELS` names (paths of kernels with a
//! `config` beside them, with colons between), for other ticks.
//!
//! A program of its own (no test harness), because it is the first process of the guest too.
//! Skipped without QEMU or kernel, unless TAKT_REQUIRE_OUTSIDE=1.

#![allow(clippy::unwrap_used)] // Helpers of tests may panic as tests may.

use std::path::PathBuf;
use std::process::ExitCode;

use takt_kernels::guest::Job;
use takt_kernels::machine::Settings;
use takt_kernels::packages::{Kernel, config_value};
use takt_kernels::transport::JobEnding;
use takt_kernels::{Brought, GuestRun, harness, run_in_guest};

const NAME: &str = "partition_roots_reserve_and_restore_in_a_guest";
/// It has `cpuset.cpus.exclusive`, which came with 6.7.
const KERNEL: &str = "6.12";

fn main() -> ExitCode {
    harness::run(env!("CARGO_PKG_NAME"), NAME, test, takt_witness::note)
}

/// `Err`: why not here.
fn test() -> Result<(), Box<dyn std::error::Error>> {
    let kernel = harness::kernel(KERNEL)?;
    let [out, err] = reported_in_guest(kernel.clone(), "enact")?;
    // Skipped is not passed: this is what the guest is for.
    assert!(!err.contains("mode: PartitionRoots"), "{err}");
    assert!(err.contains("partition roots (cgroup v2), Hard"), "{err}");
    for way in ["partition roots (cgroup v2)", "admission control and runtime throttling off"] {
        assert!(err.contains(&format!("pinned by {way}")), "{way}: {out}\n{err}");
    }
    for line in err.lines().filter(|line| line.contains("partition roots")) {
        println!("{line}");
    }
    let given = std::env::var_os("TAKT_GUEST_KERNELS").unwrap_or_default();
    let given = std::env::split_paths(&given).filter(|path| !path.as_os_str().is_empty());
    let given: Result<Vec<Kernel>, _> = given.map(|path| Kernel::from_path(&path, None)).collect();
    for kernel in std::iter::once(kernel).chain(given?) {
        supply(kernel)?;
    }
    Ok(())
}

/// Reservations against the bound of their supply, on the ticks of this kernel. Time in the guest
/// is counted in instructions, so that nothing is taken from it and each measurement counts.
fn supply(kernel: Kernel) -> Result<(), Box<dyn std::error::Error>> {
    let config = kernel.config.as_ref().ok_or("the kernel has no configuration beside it")?;
    let hz: u64 = config_value(&std::fs::read_to_string(config)?, "HZ").ok_or("no CONFIG_HZ")?.parse()?;
    let release = kernel.release.clone();
    let [_, err] = reported_in_guest(kernel, "supply")?;
    println!("{release}, CONFIG_HZ={hz}:\n{err}");
    assert!(!err.contains("SKIPPED") && !err.contains("stolen"), "{err}");
    let tick_ms = (1_000_000_000 / hz) as f64 / 1e6;
    let ticks = format!("budgets are enforced on ticks of {tick_ms} ms");
    let [at_ticks, exactly] =
        [&ticks, "budgets are enforced exactly"].map(|words| err.matches(words).count());
    assert_eq!((at_ticks, exactly), (1, 1), "{err}");
    assert_eq!(err.matches(" in one go").count(), 12, "{err}");
    Ok(())
}

/// Output of a test program of this crate in a guest in which all its tests pass.
fn reported_in_guest(kernel: Kernel, name: &str) -> Result<[String; 2], Box<dyn std::error::Error>> {
    let program = format!("/usr/local/bin/{name}");
    let host = built().ok_or("the program of tests/it is not built: run all tests of the crate")?;
    let directory = tempfile::tempdir().unwrap();
    // Also those that a newcomer's run leaves out because they measure for seconds.
    let tests = format!("{name}::");
    let job = Job::new(name, &program, &[&tests, "--include-ignored", "--nocapture", "--test-threads", "1"]);
    let outcome = run_in_guest(
        &GuestRun {
            settings: Settings { cpus: 2, memory_mib: 1024, ..Settings::default() },
            programs: vec![Brought { host, guest: program }],
            ..GuestRun::new(kernel, std::env::current_exe().unwrap(), vec![job], directory.path())
        },
        &mut |_| true,
    )
    .unwrap();
    let message = ["stdout", "stderr"].map(|stream| {
        std::fs::read_to_string(outcome.results.join(format!("jobs/{name}.{stream}"))).unwrap()
    });
    assert_eq!(
        outcome.job(name).unwrap().ending,
        JobEnding::Exited { code: 0 },
        "{}\n{}",
        message[0],
        message[1]
    );
    Ok(message)
}

/// The newest build of this crate's program of integration tests, which cargo puts beside this one.
/// Those of all crates have one name, so that cargo's list of its sources tells which is which.
fn built() -> Option<PathBuf> {
    let folder = std::env::current_exe().ok()?.parent()?.to_path_buf();
    let is_ours = |path: &PathBuf| {
        let sources = std::fs::read_to_string(path.with_extension("d")).unwrap_or_default();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let hash = name.strip_prefix("it-").unwrap_or_default();
        !hash.is_empty()
            && hash.chars().all(|c| c.is_ascii_hexdigit())
            && sources.contains(concat!(env!("CARGO_PKG_NAME"), "/tests/it/main.rs"))
    };
    let entries = std::fs::read_dir(folder).ok()?;
    entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(is_ours)
        .max_by_key(|path| path.metadata().and_then(|metadata| metadata.modified()).ok())
}

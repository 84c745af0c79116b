//! System management interrupts (SMI) as a machine without a hypervisor has them: each is counted
//! by its CPU, and charged to whatever ran.
//!
//! The machine is a virtual one that does not show it (no `hypervisor` among the CPU's flags): QEMU
//! enters its firmware at each write to the port of the power management (0xb2) and counts that in
//! MSR_SMI_COUNT as Intel's CPUs do. An Intel CPU's count is read by perf; of another one's SMIs
//! nobody knows where there is no `/dev/cpu/*/msr`, as in this guest.
//!
//! A program of its own (no test harness): it is the guest's first process too, and its job.
//! Skipped without QEMU or kernel, unless TAKT_REQUIRE_OUTSIDE=1.

#![allow(clippy::unwrap_used)] // Helpers of tests may panic as tests may.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use takt_kernels::guest::Job;
use takt_kernels::machine::Settings;
use takt_kernels::transport::JobEnding;
use takt_kernels::{GuestRun, TAKT_PATH, harness, run_in_guest};
use takt_rt::clock::monotonic_ns;
use takt_rt::jobs::JobRecord;
use takt_rt::periodic::{Periodic, SleepStrategy};
use takt_rt::settings::ThreadSettings;
use takt_trace::analysis::{Late, Thresholds};
use takt_trace::{Cause, TraceOptions, Tracer, analyse_with};

const NAME: &str = "smis_that_the_cpu_counts_are_not_the_job_itself";
const KERNEL: &str = "generic";
/// File of perf's count.
const COUNT: &str = "/sys/bus/event_source/devices/msr/events/smi";

fn main() -> ExitCode {
    // The guest's jobs, which its first process is none of.
    let job = std::env::args().nth(1).filter(|_| !takt_kernels::guest::is_init());
    match job.as_deref() {
        Some("counted") => counted(),
        Some("uncounted") => uncounted(),
        _ => return harness::run(env!("CARGO_PKG_NAME"), NAME, test, takt_witness::note),
    }
    ExitCode::SUCCESS
}

/// `Err`: why not here.
fn test() -> Result<(), Box<dyn std::error::Error>> {
    if !cfg!(target_arch = "x86_64") {
        return Err("other CPUs have no SMIs".into());
    }
    let kernel = harness::kernel(KERNEL)?;
    for (cpu, name) in [("Nehalem,-hypervisor", "counted"), ("$word,-hypervisor", "uncounted")] {
        let directory = tempfile::tempdir().unwrap();
        let qemu = directory.path().join("qemu");
        let words =
            "for word do shift; case $word in qemu64,*) word=CPU ;; esac; set -- \"$@\" \"$word\"; done";
        let script = format!("#!/bin/sh\n{}\nexec qemu-system-x86_64 \"$@\"\n", words.replace("CPU", cpu));
        fs::write(&qemu, script).unwrap();
        fs::set_permissions(&qemu, fs::Permissions::from_mode(0o755)).unwrap();
        let job = Job { limit_s: 120, ..Job::new(name, TAKT_PATH, &[name]) };
        let outcome = run_in_guest(
            &GuestRun {
                settings: Settings { memory_mib: 512, qemu, ..Settings::default() },
                ..GuestRun::new(
                    kernel.clone(),
                    std::env::current_exe().unwrap(),
                    vec![job],
                    directory.path().join("guest"),
                )
            },
            &mut |_| true,
        )
        .unwrap();
        let [out, err] = ["stdout", "stderr"].map(|stream| {
            let path = outcome.results.join(format!("jobs/{name}.{stream}"));
            fs::read_to_string(path).unwrap_or_default()
        });
        let ending = &outcome.job(name).unwrap().ending;
        assert_eq!(*ending, JobEnding::Exited { code: 0 }, "{name}\n{out}\n{err}");
        print!("{name}\n{out}");
    }
    Ok(())
}

/// Jobs in which something is planted.
const PLANTED: [u64; 3] = [60, 80, 100];
const PERIOD: Duration = Duration::from_millis(5);
const LONG_NS: u64 = 3_000_000;

/// Of the power management: each write makes an SMI.
const PORT: u16 = 0xb2;

/// Allows this thread the port.
#[cfg(target_arch = "x86_64")]
fn allow_port() {
    // SAFETY: takes integers.
    let allowed = unsafe { libc::ioperm(PORT.into(), 1, 1) };
    assert_eq!(allowed, 0, "{}", std::io::Error::last_os_error());
}

#[cfg(not(target_arch = "x86_64"))]
fn allow_port() {}

#[cfg(target_arch = "x86_64")]
fn smi() {
    // SAFETY: this thread may use the port, and the firmware of this virtual machine takes 0x55
    // for nothing.
    unsafe { std::arch::asm!("out dx, al", in("dx") PORT, in("al") 0x55_u8, options(nomem, nostack)) };
}

#[cfg(not(target_arch = "x86_64"))]
fn smi() {}

/// Sends SMIs to this CPU, one after the other. Each is over within some microseconds, which no
/// event of the kernel shows.
fn smis() {
    let until_ns = monotonic_ns() + LONG_NS;
    while monotonic_ns() < until_ns {
        smi();
    }
}

fn work() {
    let until_ns = monotonic_ns() + LONG_NS;
    while monotonic_ns() < until_ns {
        std::hint::spin_loop();
    }
}

/// In the guest: the late windows of a loop that does `act` in some of its jobs, and what the trace
/// notes.
fn late(act: fn()) -> (Vec<Late>, Vec<String>) {
    let options = TraceOptions { buffer_bytes: 1 << 20, memory_bytes: 64 << 20, ..TraceOptions::default() };
    let tracer = Tracer::start(&options).unwrap();
    let settings = ThreadSettings { policy: "fifo:50".parse().unwrap(), ..ThreadSettings::default() };
    let victim = takt_rt::thread::spawn("victim", &settings, move || {
        allow_port();
        let mut periodic = Periodic::start_now(PERIOD, SleepStrategy::Kernel).unwrap();
        let mut jobs = Vec::with_capacity(200);
        while jobs.len() < 120 {
            let release = periodic.next();
            let start_ns = monotonic_ns();
            if PLANTED.contains(&release.index) {
                act();
            }
            jobs.push(JobRecord { start_ns, end_ns: monotonic_ns(), ..JobRecord::of(&release) });
        }
        jobs
    });
    let victim = victim.unwrap();
    let tid = victim.tid();
    let jobs = victim.join().unwrap();
    let trace = tracer.stop().unwrap();
    let limits = Thresholds { lateness_ns: 1_000_000, response_ns: Some(1_000_000), windows: usize::MAX };
    let report = analyse_with(&trace, tid, &jobs, &limits).unwrap();
    let windows = report.windows.into_iter().filter(|late| PLANTED.contains(&late.index)).collect();
    (windows, trace.notes)
}

fn hold(act: fn(), cause: Cause, who: &str) -> Vec<String> {
    let (windows, notes) = late(act);
    assert_eq!(windows.len(), PLANTED.len(), "{windows:#?}");
    for late in &windows {
        println!("  {} us: {} {}", late.response_us, late.cause.title(), late.who);
        assert!(late.cause == cause && late.who.starts_with(who), "{late:#?}\n{notes:#?}");
    }
    notes
}

/// The guest's kernel sees its CPU without a hypervisor.
fn sees_no_hypervisor() {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap();
    assert!(!info.contains("hypervisor"), "{info}");
}

/// In a guest whose count can be read.
fn counted() {
    sees_no_hypervisor();
    assert!(Path::new(COUNT).exists());
    hold(smis, Cause::Gap, "SMI: ");
    hold(work, Cause::Execution, "");
}

/// In a guest whose count nobody can read, with one CPU, so that no thread looks for gaps.
fn uncounted() {
    sees_no_hypervisor();
    assert!(!Path::new(COUNT).exists());
    for act in [smis, work] {
        let notes = hold(act, Cause::ExecutionOrFirmware, "");
        assert!(notes.iter().any(|note| note.contains("cannot be distinguished")), "{notes:#?}");
    }
}

//! The loop over comedi's virtual board (`comedi_test`, whose analog outputs are looped back to its
//! inputs by the kernel), and CPUs taken offline and brought back after a kill: both in a Debian
//! kernel, in a virtual machine, because the computer that runs this test has neither the driver
//! nor CPUs to give away.
//!
//! A program of its own (no test harness): it is the guest's first process too, and its job.
//! Skipped without QEMU, kernel or libcomedi, unless TAKT_REQUIRE_OUTSIDE=1.

#![allow(clippy::unwrap_used)] // Helpers of tests may panic as tests may.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use takt_kernels::guest::{Job, Order};
use takt_kernels::machine::Settings;
use takt_kernels::transport::JobEnding;
use takt_kernels::{Brought, GuestRun, TAKT_PATH, harness, run_in_guest};
use takt_robot_daqloop::{DaqConfig, DaqLoop, Ended};
use takt_rt::offline::Offline;

const NAME: &str = "comedi_board_and_offline_cpus_in_a_guest";
const KERNEL: &str = "rt";
const LIBRARY: &str = "libcomedi.so.0";

fn main() -> ExitCode {
    // The guest's jobs, which its first process is none of.
    let job = std::env::args().nth(1).filter(|_| !takt_kernels::guest::is_init());
    match job.as_deref() {
        Some("comedi") => comedi(),
        Some("offline") => offline(),
        Some("hold") => hold(),
        _ => return harness::run(env!("CARGO_PKG_NAME"), NAME, test, takt_witness::note),
    }
    ExitCode::SUCCESS
}

/// `Err`: why not here.
fn test() -> Result<(), Box<dyn std::error::Error>> {
    let library = library().ok_or("no libcomedi.so.0 (`apt install libcomedi0`)")?;
    let kernel = harness::kernel(KERNEL)?;
    let directory = tempfile::tempdir().unwrap();
    let job = |name: &str| Job { limit_s: 120, ..Job::new(name, TAKT_PATH, &[name]) };
    let outcome = run_in_guest(
        &GuestRun {
            settings: Settings { cpus: 2, memory_mib: 512, ..Settings::default() },
            programs: vec![Brought::same("/bin/sh")],
            files: vec![Brought { host: library, guest: format!("/lib/{LIBRARY}") }],
            modules: vec!["comedi_test".into()],
            order: Order { settle_ms: 0, jobs: vec![job("comedi"), job("offline")], ..Order::default() },
            ..GuestRun::new(kernel, std::env::current_exe().unwrap(), Vec::new(), directory.path())
        },
        &mut |_| true,
    )
    .unwrap();
    for name in ["comedi", "offline"] {
        let message = ["stdout", "stderr"].map(|stream| {
            std::fs::read_to_string(outcome.results.join(format!("jobs/{name}.{stream}"))).unwrap_or_default()
        });
        let [out, err] = &message;
        let kernel = std::fs::read_to_string(outcome.results.join("kernel.log")).unwrap_or_default();
        let about: Vec<&str> =
            kernel.lines().filter(|line| line.contains("comedi") || line.contains("CPU 1")).collect();
        let ending = &outcome.job(name).unwrap().ending;
        assert_eq!(*ending, JobEnding::Exited { code: 0 }, "{name}\n{out}\n{err}\n{}", about.join("\n"));
        print!("{out}");
    }
    Ok(())
}

/// Path of comedi's library, as the loader finds it.
fn library() -> Option<PathBuf> {
    let output = Command::new("ldconfig")
        .arg("-p")
        .output()
        .or_else(|_| Command::new("/sbin/ldconfig").arg("-p").output());
    let listed = String::from_utf8_lossy(&output.ok()?.stdout).into_owned();
    let line = listed.lines().find(|line| line.trim_start().starts_with(LIBRARY))?;
    Path::new(line.split("=> ").nth(1)?.trim()).canonicalize().ok()
}

fn config(text: &str) -> DaqConfig {
    toml::from_str(text).unwrap()
}

/// In the guest: edges through the kernel's driver.
fn comedi() {
    // The kernel's own account of the board.
    let attached = std::fs::read_to_string("/proc/comedi").unwrap();
    assert!(attached.contains("comedi_test"), "{attached}");

    let daq =
        DaqLoop::start(&config("link = { kind = 'comedi' }\nstop.edges = 3000\nseconds = 120")).unwrap();
    let description = daq.link().description.clone();
    assert!(description.contains("comedi_test") && description.contains("-10 V to 10 V"), "{description}");
    let outcome = daq.wait().unwrap();
    println!("{description}: {:?}, mean {:?} ns", outcome.totals, outcome.totals.mean_ns());
    assert_eq!(outcome.ended, Ended::Edges);
    assert_eq!((outcome.totals.edges, outcome.totals.lost_edges), (3000, 0));
    assert_eq!(outcome.link, takt_link_daq::LinkCounts::default());

    // Levels come back as they were sent, within a step of 16 bits over 20 V, on every channel; and
    // only on their own.
    for channel in 0..3 {
        let text = format!("output.channel = {channel}\ninput.channel = {channel}\nkind = 'comedi'");
        let mut link = takt_link_daq::open(&toml::from_str(&text).unwrap()).unwrap();
        for level_v in [-10.0, -3.3, 0.0, 1.0, 5.0, 10.0] {
            link.write_v(level_v).unwrap();
            let read_v = link.read_v().unwrap();
            assert!(
                (read_v - level_v).abs() <= 20.0 / 65535.0,
                "channel {channel}: {level_v} V came as {read_v} V"
            );
        }
    }
    let text =
        "link = { kind = 'comedi', input.channel = 3 }\npulse = { timeout = '2ms', lost_in_a_row = 3 }";
    let outcome = DaqLoop::start(&config(text)).unwrap().wait().unwrap();
    assert!(
        matches!(outcome.ended, Ended::NoAnswer(_)),
        "another channel shows nothing: {:?}",
        outcome.ended
    );

    // A controller reads its sensors and writes its drive beside the pulse. Drive and position are
    // one channel here, so the law sees what it commanded: 5 units of input for a volt, half a unit
    // of position.
    let text = "link = { kind = 'comedi' }\ncontroller.kind = 'pid'\nstop.edges = 500\nseconds = 120";
    let daq = DaqLoop::start(&config(text)).unwrap();
    let description = daq.link().description.clone();
    assert!(
        description.contains("sensors") && daq.granted().len() == 2,
        "{description}: {:?}",
        daq.granted()
    );
    let outcome = daq.wait().unwrap();
    assert_eq!(outcome.totals.edges, 500, "{outcome:?}");
    assert_eq!(outcome.tracking.unwrap().steps, 500);
    assert!(outcome.totals.controller_max_ns > 0);

    // What the board has not.
    let text = "link = { kind = 'comedi', device = '/dev/comedi7' }";
    let error = DaqLoop::start(&config(text)).err().unwrap().to_string();
    assert!(error.contains("/dev/comedi7"), "{error}");
}

const CPU_1: &str = "/sys/devices/system/cpu/cpu1/online";

fn is_online() -> bool {
    std::fs::read_to_string(CPU_1).unwrap().trim() == "1"
}

/// In the guest: takes CPU 1 offline, says so, and waits to be killed.
fn hold() -> ! {
    let (offline, stay) = Offline::take(&"1".parse().unwrap());
    println!("{:?} {stay:?}", offline.taken());
    loop {
        std::thread::sleep(Duration::from_secs(60));
    }
}

/// In the guest: CPU 1 goes and comes back, in order and after a kill.
fn offline() {
    assert!(is_online());
    let (offline, stay) = Offline::take(&"0-1".parse().unwrap());
    assert_eq!(offline.taken(), [1], "{stay:?}");
    assert!(stay.len() == 1 && stay[0].contains("CPU 0"), "{stay:?}");
    assert!(!is_online());
    assert_eq!(takt_rt::placement::online().unwrap().to_string(), "0");
    assert_eq!(offline.restore(), Vec::<String>::new());
    assert!(is_online());

    let mut holder = Command::new(TAKT_PATH).arg("hold").stdout(Stdio::piped()).spawn().unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    while is_online() {
        assert!(Instant::now() < until, "the holder does not take CPU 1");
        std::thread::sleep(Duration::from_millis(20));
    }
    // SIGKILL.
    holder.kill().unwrap();
    holder.wait().unwrap();
    while !is_online() {
        assert!(Instant::now() < until, "nobody brings CPU 1 back");
        std::thread::sleep(Duration::from_millis(20));
    }
    println!("CPU 1 was offline, and is back after a kill");
}

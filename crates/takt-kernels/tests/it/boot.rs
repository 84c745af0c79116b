//! Real kernels in a real QEMU. Skipped without one, unless TAKT_REQUIRE_OUTSIDE=1.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use takt_kernels::guest::{Job, Order, Setting};
use takt_kernels::machine::{Accelerator, Event, Machine, MachineError, Settings};
use takt_kernels::packages::{Kernel, Store};
use takt_kernels::transport::JobEnding;
use takt_kernels::{Brought, GuestRun, RunError, run_in_guest};

fn missing(what: &str) -> bool {
    assert!(std::env::var_os("TAKT_REQUIRE_OUTSIDE").is_none(), "{what}: required by TAKT_REQUIRE_OUTSIDE");
    takt_witness::skip!("{what}");
    false
}

/// A kernel to boot, fetched once into the user's cache.
fn kernel(name: &str) -> Option<Kernel> {
    if Command::new("qemu-system-x86_64").arg("--version").output().is_err() {
        missing("no qemu-system-x86_64");
        return None;
    }
    match Store::open(None).and_then(|store| store.get(name, &mut |_| {})) {
        Ok(kernel) => Some(kernel),
        Err(error) => {
            missing(&format!("no kernel {name}: {error}"));
            None
        }
    }
}

fn run(kernel: &Kernel, jobs: Vec<Job>, directory: &Path) -> GuestRun {
    GuestRun {
        settings: Settings { memory_mib: 512, ..Settings::default() },
        programs: vec![Brought::same("/bin/sh")],
        order: Order { settle_ms: 0, jobs, ..Order::default() },
        ..GuestRun::new(kernel.clone(), env!("CARGO_BIN_EXE_takt-guest"), Vec::new(), directory)
    }
}

fn shell(name: &str, script: &str) -> Job {
    Job::new(name, "/bin/sh", &["-c", script])
}

fn all_files(directory: &Path) -> std::io::Result<Vec<(PathBuf, Vec<u8>)>> {
    let mut files = Vec::new();
    let mut open = vec![directory.to_path_buf()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            if path.is_dir() {
                open.push(path);
            } else {
                files.push((path.clone(), fs::read(path)?));
            }
        }
    }
    files.sort();
    Ok(files)
}

#[test]
#[ignore = "takes 25 s"]
fn a_guest_brings_back_what_its_jobs_wrote() {
    let Some(kernel) = kernel("generic") else { return };
    let directory = tempfile::tempdir().unwrap();
    let mut jobs = vec![
        shell("beside", "while :; do :; done"),
        shell(
            "writes",
            "echo $((6 * 7)) $WORD > c; read name < /proc/sys/kernel/hostname; echo $name; echo no >&2; exit 3",
        ),
        shell("hangs", "while :; do :; done"),
        Job::new("nothing", "/no/such/program", &[]),
        // A helper that outlives its parent has to be reaped by the first process.
        shell("orphan", "(: & ) ; kill -9 $$"),
    ];
    jobs[0].background = true;
    jobs[1].environment.insert("WORD".into(), "and more".into());
    jobs[1].directory = "/results/a/b".into();
    jobs[2].limit_s = 1;
    let mut run = run(&kernel, jobs, directory.path());
    run.files.push(Brought { host: "/proc/self/cmdline".into(), guest: "/tmp/kept".into() });
    run.order.hostname = "a-guest".into();
    run.order
        .settings
        .push(Setting { path: "/proc/sys/kernel/sched_rt_runtime_us".into(), value: "-1".into() });
    let mut events = Vec::new();
    let outcome = run_in_guest(&run, &mut |event| {
        if *event != Event::Waiting {
            events.push(event.clone());
        }
        true
    })
    .unwrap();

    assert_eq!(outcome.hello.release, kernel.release);
    assert_eq!(outcome.hello.cpus, 1);
    assert!(outcome.hello.preemption().starts_with("PREEMPT_DYNAMIC"), "{:?}", outcome.hello);
    let ending = |name: &str| outcome.job(name).unwrap().ending.clone();
    assert_eq!(ending("writes"), JobEnding::Exited { code: 3 });
    assert_eq!(ending("hangs"), JobEnding::Limit { limit_s: 1 });
    assert!(matches!(ending("nothing"), JobEnding::NotStarted { .. }));
    assert_eq!(ending("orphan"), JobEnding::Signalled { signal: 9 });
    assert_eq!(ending("beside"), JobEnding::Stopped);
    let text = |path: &str| fs::read_to_string(outcome.results.join(path)).unwrap();
    assert_eq!(text("a/b/c"), "42 and more\n");
    assert_eq!(text("jobs/writes.stdout"), "a-guest\n");
    assert_eq!(text("jobs/writes.stderr"), "no\n");
    assert!(text("kernel.log").contains("Linux version"));
    assert!(matches!(events[0], Event::Up(_)));
    assert!(events.contains(&Event::JobStart("hangs".into())));
    // The limit is the guest's time.
    assert!(outcome.ended.guest_ns > 1_000_000_000);
    let left: Vec<_> = fs::read_dir(directory.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left.len(), 3, "console, QEMU's log and results stay: {left:?}");
}

#[test]
#[ignore = "takes 20 s"]
fn two_runs_are_equal_to_the_bit() {
    let Some(kernel) = kernel("rt") else { return };
    // Random numbers, process ids, addresses and times: all that differs between runs elsewhere.
    let script = "read -r line < /proc/sys/kernel/random/uuid; echo $line $$; while read -r line; do echo $line; done \
                  < /proc/self/maps; while read -r line; do echo $line; done < /proc/self/stat; read -r line < /proc/uptime; \
                  echo $line; (while :; do :; done) & i=0; while [ $i -lt 20000 ]; do i=$((i + 1)); done; \
                  read -r line < /proc/self/schedstat; echo $line; kill $!";
    let [first, second] = [0, 1].map(|_| {
        let directory = tempfile::tempdir().unwrap();
        let run = run(&kernel, vec![shell("chance", script)], directory.path());
        let outcome = run_in_guest(&run, &mut |_| true).unwrap();
        assert_eq!(outcome.hello.preemption(), "PREEMPT_RT");
        let files: Vec<_> = all_files(&outcome.results)
            .unwrap()
            .into_iter()
            .map(|(path, bytes)| (path.strip_prefix(&outcome.results).unwrap().to_path_buf(), bytes))
            .collect();
        (outcome.ended.guest_ns, fs::read(&outcome.console).unwrap(), files)
    });
    assert!(first.2.iter().any(|(path, bytes)| path.ends_with("chance.stdout") && !bytes.is_empty()));
    assert_eq!(first.0, second.0);
    assert_eq!(first.1, second.1);
    assert_eq!(first.2, second.2);
}

#[test]
#[ignore = "takes 15 s"]
fn a_panic_keeps_its_words() {
    let Some(kernel) = kernel("generic") else { return };
    let directory = tempfile::tempdir().unwrap();
    let run = run(&kernel, vec![shell("panics", "echo c > /proc/sysrq-trigger")], directory.path());
    let error = run_in_guest(&run, &mut |_| true).unwrap_err();
    let RunError::Machine(error @ MachineError::Panicked { .. }) = error else { panic!("{error}") };
    assert!(error.to_string().contains("sysrq triggered crash"), "{error}");
    assert!(fs::read_to_string(error.console().unwrap()).unwrap().contains("sysrq triggered crash"));
}

#[test]
#[ignore = "takes 35 s"]
fn a_guest_without_memory_is_distinguished_from_one_that_panics() {
    let Some(kernel) = kernel("generic") else { return };
    let directory = tempfile::tempdir().unwrap();
    // The shell's own variable grows until nothing is left.
    let mut run =
        run(&kernel, vec![shell("eats", "a=0123456789; while :; do a=$a$a; done")], directory.path());
    run.settings.memory_mib = 256;
    let outcome = run_in_guest(&run, &mut |_| true);
    match outcome {
        // The kernel ended the job and the guest came back: the job's own ending says so.
        Ok(outcome) => assert!(
            matches!(
                outcome.job("eats").unwrap().ending,
                JobEnding::Signalled { signal: 9 } | JobEnding::Exited { code: 2 }
            ),
            "{:?}",
            outcome.jobs
        ),
        Err(error) => {
            assert!(matches!(error, RunError::Machine(MachineError::OutOfMemory { .. })), "{error}");
        }
    }
}

#[test]
#[ignore = "takes 65 s"]
fn a_guest_that_says_nothing_is_ended() {
    let Some(kernel) = kernel("generic") else { return };
    let directory = tempfile::tempdir().unwrap();
    let mut run = run(&kernel, vec![shell("hangs", "while :; do :; done")], directory.path());
    run.order.heartbeat_s = 800_000;
    run.settings.quiet_limit_s = 20;
    let error = run_in_guest(&run, &mut |_| true).unwrap_err();
    let RunError::Machine(MachineError::Hung { quiet_s, stage, .. }) = &error else { panic!("{error}") };
    assert!(*quiet_s >= 20);
    // On a host with no CPU to spare, it may not even have come up.
    assert!(stage == "in job hangs" || stage == "while it started up", "{stage}");
}

#[test]
#[ignore = "takes 20 s"]
fn a_caller_can_end_a_run() {
    let Some(kernel) = kernel("generic") else { return };
    let directory = tempfile::tempdir().unwrap();
    let run = run(&kernel, vec![shell("long", "while :; do :; done")], directory.path());
    let error = run_in_guest(&run, &mut |event| !matches!(event, Event::JobStart(_))).unwrap_err();
    assert!(matches!(error, RunError::Machine(MachineError::Stopped)), "{error}");
    // Also while nothing comes from the guest.
    let mut asked = 0;
    let error = run_in_guest(&run, &mut |event| {
        assert_eq!(*event, Event::Waiting);
        asked += 1;
        asked < 3
    });
    assert!(matches!(error.unwrap_err(), RunError::Machine(MachineError::Stopped)));
}

#[test]
#[ignore = "takes 15 s"]
fn the_serial_line_serves_where_the_driver_is_missing() {
    let Some(mut kernel) = kernel("generic") else { return };
    kernel.modules = None;
    let directory = tempfile::tempdir().unwrap();
    let run = run(&kernel, vec![shell("writes", "echo over the line; echo $((1 << 40))")], directory.path());
    let outcome = run_in_guest(&run, &mut |_| true).unwrap();
    let text = fs::read_to_string(outcome.results.join("jobs/writes.stdout")).unwrap();
    assert_eq!(text, "over the line\n1099511627776\n");
}

#[test]
#[ignore = "takes 15 s"]
fn several_cpus_are_there() {
    let Some(kernel) = kernel("generic") else { return };
    let directory = tempfile::tempdir().unwrap();
    let mut run = run(
        &kernel,
        vec![shell(
            "ends",
            "while read -r line; do case $line in processor*) echo $line; esac; done < /proc/cpuinfo",
        )],
        directory.path(),
    );
    run.settings.cpus = 2;
    // Busy beside the job: each CPU must get its turns.
    run.order.jobs.insert(0, shell("busy", "while :; do :; done"));
    run.order.jobs[0].background = true;
    run.settings.boot_parameters = "isolcpus=1".into();
    let outcome = run_in_guest(&run, &mut |_| true).unwrap();
    assert_eq!(outcome.hello.cpus, 2, "{:?}", outcome.hello);
    let text = fs::read_to_string(outcome.results.join("jobs/ends.stdout")).unwrap();
    assert_eq!(text.replace(['\t', ' '], ""), "processor:0\nprocessor:1\n");
    assert!(outcome.hello.command_line.ends_with("isolcpus=1"));
}

#[test]
fn what_is_no_kernel_is_reported() {
    let Some(_) = kernel("generic") else { return };
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("vmlinuz");
    fs::write(&file, b"no kernel at all").unwrap();
    let machine = Machine {
        kernel: file.clone(),
        initramfs: file,
        settings: Settings { quiet_limit_s: 20, ..Settings::default() },
        directory: directory.path().join("run"),
    };
    let error = machine.boot(&mut |_| true).unwrap_err();
    assert!(matches!(&error, MachineError::Qemu { text, .. } if !text.is_empty()), "{error}");
}

#[test]
fn without_qemu_the_way_out_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, b"x").unwrap();
    let machine = Machine {
        kernel: file.clone(),
        initramfs: file,
        settings: Settings { qemu: "/no/such/qemu".into(), ..Settings::default() },
        directory: directory.path().join("run"),
    };
    let error = machine.boot(&mut |_| true).unwrap_err();
    assert!(error.to_string().contains("apt-get install qemu-system-x86"), "{error}");
}

#[test]
fn kvm_runs_or_says_why_not() {
    let Some(kernel) = kernel("generic") else { return };
    let directory = tempfile::tempdir().unwrap();
    let mut run = run(&kernel, vec![shell("ends", "echo fast")], directory.path());
    run.settings.accelerator = Accelerator::Kvm;
    run.settings.quiet_limit_s = 60;
    match run_in_guest(&run, &mut |_| true) {
        Ok(outcome) => {
            let text = fs::read_to_string(outcome.results.join("jobs/ends.stdout")).unwrap();
            assert_eq!(text, "fast\n");
        }
        Err(RunError::Machine(error @ MachineError::NoKvm { .. })) => takt_witness::skip!("{error}"),
        // In a virtual machine itself, the host's KVM may take a guest and never bring it up.
        Err(RunError::Machine(error @ (MachineError::Silent { .. } | MachineError::Hung { .. }))) => {
            takt_witness::skip!("KVM is there, and does not bring a kernel up: {error}");
        }
        // Or refuse a register that QEMU takes for granted, upon which QEMU aborts.
        Err(RunError::Machine(MachineError::Qemu { status, text })) if text.contains("kvm") => {
            takt_witness::skip!("KVM is there, and QEMU gives up on it ({status}): {text}");
        }
        Err(error) => panic!("{error}"),
    }
}

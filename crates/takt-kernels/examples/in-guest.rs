//! Runs a program of this computer under another kernel, in a machine whose time is counted in
//! instructions:
//!
//! ```text
//! cargo run -p takt-kernels --example in-guest -- rt cyclictest -m -p80 -i4000 -l1000 -q
//! ```
//!
//! The kernel is a name of the distribution's (`generic`, `rt`, `6.12-rt`) or a path. What the
//! program prints and all that it leaves in its directory is below `guest-run` then. Environment:
//! CPUS, MEMORY_MIB, BOOT (boot parameters), KVM=1, FILES (files to take along), PROGRAMS (programs
//! to take along).

use std::error::Error;
use std::path::{Path, PathBuf};

use takt_kernels::guest::{Job, Order};
use takt_kernels::machine::{Accelerator, Event, Settings};
use takt_kernels::packages::{Kernel, Store};
use takt_kernels::{Brought, GuestRun, run_in_guest};

fn variable<T: std::str::FromStr>(name: &str, default: T) -> T {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

fn program(name: &str) -> Option<PathBuf> {
    if name.contains('/') {
        return Path::new(name).canonicalize().ok();
    }
    std::env::split_paths(&std::env::var_os("PATH")?)
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
}

fn main() -> Result<(), Box<dyn Error>> {
    if takt_kernels::guest::is_init() {
        takt_kernels::guest::run();
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [kernel, name, rest @ ..] = &arguments[..] else {
        return Err("usage: in-guest KERNEL PROGRAM [ARGUMENT...]".into());
    };
    let kernel = if kernel.contains('/') {
        Kernel::from_path(Path::new(kernel), None)?
    } else {
        Store::open(None)?.get(kernel, &mut |line| eprintln!("{line}"))?
    };
    let host = program(name).ok_or("no such program")?;
    let guest = format!("/usr/local/bin/{}", host.file_name().unwrap_or_default().to_string_lossy());
    let rest: Vec<&str> = rest.iter().map(String::as_str).collect();
    let accelerator = if variable("KVM", 0) == 1 { Accelerator::Kvm } else { Accelerator::Counted };
    let list = |name: &str| {
        variable(name, String::new()).split_whitespace().map(str::to_owned).collect::<Vec<_>>().into_iter()
    };
    let mut programs: Vec<Brought> = list("PROGRAMS").map(|program| Brought::same(&program)).collect();
    programs.push(Brought { host, guest: guest.clone() });
    let run = GuestRun {
        kernel,
        settings: Settings {
            accelerator,
            cpus: variable("CPUS", 1),
            memory_mib: variable("MEMORY_MIB", 1024),
            boot_parameters: variable("BOOT", String::new()),
            ..Settings::default()
        },
        init: "/proc/self/exe".into(),
        order: Order { jobs: vec![Job::new("program", &guest, &rest)], ..Order::default() },
        programs,
        files: list("FILES").map(|file| Brought::same(&file)).collect(),
        modules: Vec::new(),
        directory: variable("DIRECTORY", PathBuf::from("guest-run")),
    };
    let outcome = run_in_guest(&run, &mut |event| {
        if !matches!(event, Event::Results(_) | Event::Waiting) {
            eprintln!("{event:?}");
        }
        true
    })?;
    print!("{}", std::fs::read_to_string(outcome.results.join("jobs/program.stdout"))?);
    eprint!("{}", std::fs::read_to_string(outcome.results.join("jobs/program.stderr"))?);
    eprintln!("{}, {:?}", outcome.hello.preemption(), outcome.ended);
    Ok(())
}

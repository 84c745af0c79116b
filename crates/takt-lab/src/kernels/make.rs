//! One run of a campaign in a guest.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;
use takt_kernels::guest::{JOBS_DIRECTORY, Job, Order, RESULTS_PATH};
use takt_kernels::image::ImageError;
use takt_kernels::machine::{self, Outcome, Settings};
use takt_kernels::packages::{Kernel, PackageError, Store, modules};
use takt_kernels::transport::{Hello, JobEnding};
use takt_kernels::{Brought, GuestRun, TAKT_PATH, run_in_guest};
use takt_rundir::{Error, GUEST_PARAMETER, VIRTUAL_MACHINE_FILE, VirtualMachine, set_aside, write_json};

use super::{Accelerator, GUESTS, Guests};
use crate::campaign::{CellRun, RunFailure, RunOrder};
use crate::registry::Registry;
use crate::{LabError, last_words};

/// Paths in the guest.
const ROBOT_FILE: &str = "/etc/takt/robot.toml";
const SETUP_FILE: &str = "/etc/takt/setup.json";
/// The run directory in the guest, below what is brought out.
const RUN: &str = "run";
const JOB: &str = "takt";

/// Tools of the interference, used if the host has them; built-in threads replace missing ones.
const TOOLS: [&str; 3] = ["stress-ng", "hackbench", "true"];
/// Shell that guards those tools, called by exactly this path.
const SHELL: &str = "/bin/sh";

/// Makes runs in guests. Kernels are fetched once.
pub struct Maker {
    registry: Registry,
    guests: Guests,
    store: Store,
    kernels: Mutex<BTreeMap<String, Kernel>>,
    /// The program that runs in the guests.
    program: PathBuf,
    /// Emulator or virtualiser, in words.
    machine: String,
}

/// Stored facts about a guest: `guest.json`.
#[derive(Serialize)]
struct Kept<'a> {
    virtual_machine: &'a VirtualMachine,
    kernel_version: &'a str,
    #[serde(rename = "said")]
    hello: &'a Hello,
    /// The guest's own clock at its end, seconds.
    guest_s: f64,
    /// The host's time in all, seconds.
    host_s: f64,
    /// The host's time until the guest was up, seconds.
    host_boot_s: f64,
}

impl Maker {
    /// A maker of guests that run `program`, a takt.
    ///
    /// # Errors
    /// [`LabError::Kernel`] when there is no place for the cache.
    pub fn new(registry: Registry, guests: &Guests, program: &Path) -> Result<Self, LabError> {
        Ok(Self {
            registry,
            store: Store::open(guests.cache.as_deref())?,
            kernels: Mutex::default(),
            program: program.to_path_buf(),
            machine: describe(guests.accelerator),
            guests: guests.clone(),
        })
    }

    /// Fetches kernels before the first run needs them. One that is not to be had fails its own
    /// runs only.
    pub fn fetch<'a>(&self, names: impl Iterator<Item = &'a str>, progress: &mut dyn FnMut(&str)) {
        for name in names {
            if let Err(error) = self.kernel(name, progress) {
                progress(&format!("{name}: {error}"));
            }
        }
    }

    fn kernel(&self, name: &str, progress: &mut dyn FnMut(&str)) -> Result<Kernel, PackageError> {
        // Held while fetching: the other runs on this kernel wait for the one download.
        let mut kernels = self.kernels.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(kernel) = kernels.get(name) {
            return Ok(kernel.clone());
        }
        let kernel = self.store.get(name, progress)?;
        kernels.insert(name.to_owned(), kernel.clone());
        Ok(kernel)
    }

    /// Makes one run: boots its kernel, runs the robot there and leaves the run directory where the
    /// campaign wants it. The guest's other files, its console first of all, are kept in the
    /// campaign's folder, whatever happens.
    ///
    /// # Errors
    /// [`RunFailure`]; of a job that failed, with the console's place.
    pub fn make(&self, order: &RunOrder<'_>, stop: &AtomicBool) -> Result<(), RunFailure> {
        let name = order.run.setup.kernel.as_deref().ok_or(RunFailure::NoKernel)?;
        let kernel = self.kernel(name, &mut |_| {})?;
        let campaign = order.dir.parent().unwrap_or(Path::new("."));
        let directory = campaign.join(GUESTS).join(&order.run.name);
        set_aside(&directory)?;
        takt_files::make_folder(&directory).map_err(Error::io(&directory))?;
        let description = self.virtual_machine(name, &kernel, order.run);
        let described = directory.join("virtual-machine.json");
        write_json(&described, &description)?;
        let guest = self.guest(order, kernel.clone(), &directory, described)?;
        let booted = run_in_guest(&guest, &mut |_| !stop.load(Ordering::Acquire));
        // Of a run that broke, too: what was measured until then.
        let run = directory.join("results").join(RUN);
        if run.is_dir() {
            fs::rename(&run, order.dir).map_err(Error::io(order.dir))?;
        }
        let outcome = booted?;
        let kept = Kept {
            virtual_machine: &description,
            kernel_version: &kernel.version,
            hello: &outcome.hello,
            guest_s: outcome.ended.guest_ns as f64 / 1e9,
            host_s: outcome.ended.wall.as_secs_f64(),
            host_boot_s: outcome.ended.boot_wall.as_secs_f64(),
        };
        write_json(&directory.join("guest.json"), &kept)?;
        judge(&outcome)
    }

    fn virtual_machine(&self, name: &str, kernel: &Kernel, run: &CellRun) -> VirtualMachine {
        VirtualMachine {
            virtual_time: self.guests.is_virtual_time(),
            machine: self.machine.clone(),
            cpus: self.guests.cpus,
            memory_mib: self.guests.memory_mib,
            kernel: name.to_owned(),
            package: kernel.package.as_ref().map(|package| format!("{} {}", package.name, package.version)),
            kernel_sha256: kernel.sha256.clone(),
            boot: self.boot(run),
        }
    }

    fn boot(&self, run: &CellRun) -> Vec<String> {
        self.guests.boot.iter().cloned().chain(run.setup.boot_parameters()).collect()
    }

    fn settings(&self, run: &CellRun) -> Settings {
        let accelerator = match self.guests.accelerator {
            Accelerator::Tcg => machine::Accelerator::Counted,
            Accelerator::TcgRealTime => machine::Accelerator::RealTime,
            Accelerator::Kvm => machine::Accelerator::Kvm,
        };
        Settings {
            accelerator,
            cpus: self.guests.cpus,
            memory_mib: self.guests.memory_mib,
            boot_parameters: format!("{GUEST_PARAMETER} {}", self.boot(run).join(" ")),
            wall_limit_s: self.guests.limit_s.into(),
            // A starved first process gives its sign of life late.
            quiet_limit_s: u64::from(self.guests.limit_s).div_ceil(3),
            ..Settings::default()
        }
    }

    /// The guest: this program, what the run is, and what it needs of the host.
    fn guest(
        &self,
        order: &RunOrder<'_>,
        kernel: Kernel,
        directory: &Path,
        described: PathBuf,
    ) -> Result<GuestRun, RunFailure> {
        let config = takt_files::read_to_string(order.config, takt_files::CONFIGURATION_BYTES)
            .map_err(Error::io(order.config))?;
        let mut files: Vec<Brought> = files_named_in(&config)
            .into_iter()
            .map(|path| Brought { guest: path.to_string_lossy().into_owned(), host: path })
            .collect();
        for (host, guest) in
            [(order.config, ROBOT_FILE), (order.setup, SETUP_FILE), (&described, VIRTUAL_MACHINE_FILE)]
        {
            files.push(Brought { host: host.to_path_buf(), guest: guest.to_owned() });
        }
        let loaded = !order.run.setup.interference().profile().is_off();
        let needs = robot_of(&config).and_then(|robot| self.registry.kind(&robot)).map(|kind| kind.guest);
        let (wanted, programs) = needs.map_or((&[][..], &[][..]), |needs| (needs.modules, needs.programs));
        let libraries = needs.map_or(&[][..], |needs| needs.libraries);
        files.extend(libraries.iter().filter_map(|name| library(name)));
        let mut tools: Vec<PathBuf> = programs.iter().filter_map(|program| in_path(program)).collect();
        if loaded {
            tools.extend(TOOLS.iter().filter_map(|tool| in_path(tool)));
            tools.extend(Some(PathBuf::from(SHELL)).filter(|shell| shell.is_file()));
        }
        tools.sort();
        tools.dedup();
        Ok(GuestRun {
            modules: modules_for(&kernel, wanted)?,
            kernel,
            settings: self.settings(order.run),
            init: self.program.clone(),
            programs: tools
                .into_iter()
                .map(|tool| Brought { guest: tool.to_string_lossy().into_owned(), host: tool })
                .collect(),
            files,
            order: self.order(order.run),
            directory: directory.to_path_buf(),
        })
    }

    fn order(&self, run: &CellRun) -> Order {
        let setup = &run.setup;
        let command = if self.guests.trace { "trace" } else { "run" };
        let mut arguments = vec![command, ROBOT_FILE, "--setup", SETUP_FILE, "--json"];
        let directory = format!("{RESULTS_PATH}/{RUN}");
        arguments.extend(["--run-dir", &directory]);
        if !self.guests.trace {
            arguments.extend(["--view", "none"]);
        }
        let seconds = setup.seconds.or((self.guests.trace && run.expected_s > 0.0).then_some(run.expected_s));
        let seconds = seconds.map(|seconds| seconds.to_string());
        if let Some(seconds) = &seconds {
            arguments.extend(["--seconds", seconds]);
        }
        let mut job = Job::new(JOB, TAKT_PATH, &arguments);
        // A starved SCHED_OTHER needs far longer than its window; this only ends what never ends.
        job.limit_s = 600 + 10 * run.expected_s.ceil() as u64;
        Order { jobs: vec![job], ..Order::default() }
    }
}

/// Whether the job did its work.
fn judge(outcome: &Outcome) -> Result<(), RunFailure> {
    let end = outcome.job(JOB).ok_or(RunFailure::Silent)?;
    if end.ending == (JobEnding::Exited { code: 0 }) {
        return Ok(());
    }
    let message = outcome.results.join(JOBS_DIRECTORY).join(format!("{JOB}.stderr"));
    let message = fs::read_to_string(message).unwrap_or_default();
    let last = last_words(&message).or(message.lines().last()).unwrap_or_default();
    Err(RunFailure::Job {
        ending: end.ending.clone(),
        message: last.to_owned(),
        console: outcome.console.clone(),
    })
}

/// The machine in words, with QEMU's own version.
fn describe(accelerator: Accelerator) -> String {
    let asked = Command::new(Settings::default().qemu).arg("--version").output().ok();
    let text = asked.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let version =
        text.split_whitespace().skip_while(|word| *word != "version").nth(1).unwrap_or("of unknown version");
    match accelerator {
        Accelerator::Tcg => format!("QEMU {version}, time counted in instructions of 1 ns"),
        Accelerator::TcgRealTime => format!("QEMU {version}, emulated, real time"),
        Accelerator::Kvm => format!("QEMU {version}, KVM, real time"),
    }
}

/// The robot of a configuration.
fn robot_of(config: &str) -> Option<String> {
    toml::from_str::<toml::Table>(config).ok()?.get("robot")?.as_str().map(str::to_owned)
}

/// Modules that a robot uses, where the kernel has them.
fn modules_for(kernel: &Kernel, wanted: &[&str]) -> Result<Vec<String>, ImageError> {
    let Some(folder) = &kernel.modules else { return Ok(Vec::new()) };
    let index = modules::Index::read(folder)?;
    Ok(wanted.iter().filter(|module| index.has(module)).map(|module| (*module).to_owned()).collect())
}

/// A program of the host. Those of administrators are not in everybody's PATH.
fn in_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .map(|folder| folder.join(program))
        .find(|file| file.is_absolute() && file.is_file())
}

/// A library of the host, by the name under which the loader knows it; it lies in /lib of the
/// guest.
fn library(name: &str) -> Option<Brought> {
    let asked = in_path("ldconfig").and_then(|program| Command::new(program).arg("-p").output().ok())?;
    let listed = String::from_utf8_lossy(&asked.stdout).into_owned();
    let line = listed.lines().find(|line| line.trim_start().starts_with(name))?;
    let host = Path::new(line.split("=> ").nth(1)?.trim()).canonicalize().ok()?;
    Some(Brought { host, guest: format!("/lib/{name}") })
}

/// Files and folders of the host that a configuration names: recordings, models. Devices are not
/// among them.
fn files_named_in(config: &str) -> Vec<PathBuf> {
    fn texts(value: &toml::Value, found: &mut Vec<PathBuf>) {
        match value {
            toml::Value::String(text) => found.push(PathBuf::from(text)),
            toml::Value::Array(values) => values.iter().for_each(|value| texts(value, found)),
            toml::Value::Table(table) => table.values().for_each(|value| texts(value, found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    if let Ok(table) = toml::from_str::<toml::Table>(config) {
        texts(&toml::Value::Table(table), &mut found);
    }
    let own = ["/dev", "/proc", "/sys", "/results"];
    let of_host = |path: &PathBuf| {
        path.is_absolute()
            && path.components().count() > 2
            && !own.iter().any(|own| path.starts_with(own))
            && path.exists()
    };
    found.retain(of_host);
    found.sort();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_is_found_by_its_name() {
        // The C library is everywhere where there is a loader.
        let found = library("libc.so.6").unwrap();
        assert!(found.host.is_file() && found.guest == "/lib/libc.so.6", "{found:?}");
        assert!(library("libno-such.so.9").is_none());
    }

    #[test]
    fn a_configuration_brings_its_files() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        let (there, gone) = (folder.join("Cargo.toml"), folder.join("nowhere"));
        let text = format!(
            "a = \"{0}\"\nb = [\"{1}\", \"/dev/null\", \"relative\"]\n[c]\nd = \"{0}\"\ne = \"/\"\n",
            there.display(),
            gone.display()
        );
        assert_eq!(files_named_in(&text), [there]);
        assert!(files_named_in("no toml").is_empty());
    }
}

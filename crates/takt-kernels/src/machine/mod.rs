//! The virtual machine: QEMU, driven so that a run depends on nothing outside.
//!
//! With [`Accelerator::Counted`] (QEMU's translator with `-icount`), one guest instruction takes
//! one nanosecond and an idle guest jumps to its next timer. Every source of chance is shut: a
//! fixed start of the clock that follows virtual time, no entropy instructions, a fixed seed for
//! what QEMU makes up, no address randomisation, devices that act at once in the virtual CPU's own
//! thread, results that go to a file and never make the guest wait. Two runs of the same image on
//! the same version of QEMU are then equal to the bit, however busy the host is.
//!
//! Several CPUs take turns of at most 25 us. They never run at the same moment, and virtual time is
//! the sum of what all of them do: work in parallel takes as long as work in a row, and a release
//! or a wake-up from another CPU can come a turn late. So more than one CPU shows what a kernel
//! puts where (`isolcpus`, `threadirqs`, `rcu_nocbs`), not how fast it is there.
//!
//! With [`Accelerator::RealTime`] the translator runs without the counter, a thread of the host for
//! each CPU: CPUs work at the same moment, and whatever delays these threads is in every figure.
//!
//! With [`Accelerator::Kvm`] the guest runs on the host's CPU in real time: fast, and as noisy as
//! the host.

mod boot;
mod command;
mod console;
mod payload;
mod process;
mod quiet;

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use boot::{Ended, Event, Outcome};
pub use console::{Judgement, judge};
pub use payload::kernel_within;

use crate::transport::{JobEnd, MessageError};

/// Executor of the guest's instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Accelerator {
    /// Translated, one instruction a nanosecond. The default: any computer gives the same figures.
    #[default]
    Counted,
    /// Translated, in real time, a thread of the host for each CPU.
    RealTime,
    /// The host's CPU, in real time.
    Kvm,
}

impl Accelerator {
    /// Whether the guest's time is counted in instructions.
    #[must_use]
    pub fn is_virtual_time(self) -> bool {
        self == Self::Counted
    }
}

/// Settings of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Default counted.
    pub accelerator: Accelerator,
    /// CPUs of the guest. Default 1: several take turns, see the module.
    pub cpus: u32,
    /// Memory, MiB. Default 1024: an unpacked image of 60 MB, its copy while it is unpacked, stress
    /// and results.
    pub memory_mib: u32,
    /// Boot parameters after Takt's own (`isolcpus=1 nohz_full=1 preempt=full`). Default none.
    pub boot_parameters: String,
    /// Host time that a whole run gets, seconds. Default 1800: a busy second of the guest takes
    /// about ten of the host, and a run of 1000 releases under stress a few minutes.
    pub wall_limit_s: u64,
    /// Time without a sign of life before the guest counts as hung, seconds, in which QEMU runs or
    /// sleeps; what it waits for a CPU of the host does not count. Default 300: the guest gives a
    /// sign every ten seconds of its own time, which take some 100 s under full load.
    pub quiet_limit_s: u64,
    /// Seed of everything that QEMU makes up. Default 1; another one gives another sequence of the
    /// same kind.
    pub seed: u32,
    /// QEMU's program. Default `qemu-system-x86_64`, looked for in PATH.
    pub qemu: PathBuf,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            accelerator: Accelerator::default(),
            cpus: 1,
            memory_mib: 1024,
            boot_parameters: String::new(),
            wall_limit_s: 1800,
            quiet_limit_s: 300,
            seed: 1,
            qemu: "qemu-system-x86_64".into(),
        }
    }
}

/// Most CPUs of a guest.
pub(crate) const CPUS_MOST: u32 = 16;

/// Least memory in which the kernels of a distribution start with an image of Takt's, MiB.
pub(crate) const MEMORY_LEAST_MIB: u32 = 256;

/// A setting that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// A number out of range.
    #[error("{key} = {found}: expected {least} to {most}")]
    Range { key: &'static str, found: u64, least: u64, most: u64 },
    /// Boot parameters of more than one line, or too many.
    #[error("boot_parameters: {found:?}: expected one line of printable characters, at most 1500 bytes")]
    BootParameters { found: String },
    /// A parameter that Takt sets itself, because the run depends on it.
    #[error(
        "boot_parameters: {found:?} is set by Takt: with another value, the guest would not start or not return"
    )]
    Reserved { found: String },
}

const RESERVED: [&str; 8] = ["console", "rdinit", "init", "panic", "root", "initrd", "nr_cpus", "maxcpus"];

impl Settings {
    /// Whether a machine can be made like this.
    pub fn validate(&self) -> Result<(), SettingsError> {
        let range = |key, found: u64, least, most| {
            if (least..=most).contains(&found) {
                Ok(())
            } else {
                Err(SettingsError::Range { key, found, least, most })
            }
        };
        range("cpus", self.cpus.into(), 1, CPUS_MOST.into())?;
        range("memory_mib", self.memory_mib.into(), MEMORY_LEAST_MIB.into(), 1 << 20)?;
        range("wall_limit_s", self.wall_limit_s, 1, 864_000)?;
        range("quiet_limit_s", self.quiet_limit_s, 1, 864_000)?;
        let parameters = &self.boot_parameters;
        if parameters.len() > 1500 || parameters.chars().any(char::is_control) {
            return Err(SettingsError::BootParameters { found: parameters.clone() });
        }
        let reserved = |word: &&str| RESERVED.contains(&word.split('=').next().unwrap_or(""));
        match parameters.split_whitespace().find(reserved) {
            Some(found) => Err(SettingsError::Reserved { found: found.to_owned() }),
            None => Ok(()),
        }
    }
}

/// A machine that can be started.
#[derive(Debug, Clone)]
pub struct Machine {
    /// The kernel's image, compressed or not.
    pub kernel: PathBuf,
    pub initramfs: PathBuf,
    /// The rest.
    pub settings: Settings,
    /// An empty or new directory that keeps what a run leaves: `console.log`, `qemu.log`, `stream`,
    /// `results/`.
    pub directory: PathBuf,
}

/// Reason why a guest did not return its results. The console's log is kept in every case in which
/// QEMU ran.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// The machine cannot be made.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// A file that is not there.
    #[error("{what} {path}: {source}")]
    File { what: &'static str, path: PathBuf, source: std::io::Error },
    #[error(
        "no QEMU: {program} cannot be started: {source}. Fix: `apt-get install qemu-system-x86` (Debian, Ubuntu), `dnf install \
         qemu-system-x86-core` (Fedora), or pass its path"
    )]
    NoQemu { program: PathBuf, source: std::io::Error },
    /// KVM was asked for and cannot be used.
    #[error("KVM cannot be used: {why}. Fix: run without it (time counted in instructions needs no KVM)")]
    NoKvm { why: String },
    /// QEMU itself gave up.
    #[error("QEMU ended with {status}: {text}")]
    Qemu { status: String, text: String },
    /// The kernel panicked.
    #[error("the guest's kernel panicked: {reason}\nlast lines of {console}:\n{tail}", console = console.display())]
    Panicked { reason: String, tail: String, console: PathBuf },
    /// Not enough memory.
    #[error(
        "the guest ran out of memory ({reason}) with {memory}. Fix: give it more memory (`memory_mib`). Console: {console}",
        console = console.display()
    )]
    OutOfMemory {
        reason: String,
        /// Its memory, in words.
        memory: String,
        console: PathBuf,
    },
    /// No message came from the guest for too long.
    #[error(
        "the guest hung: no sign of life for {quiet_s} s of its own run time ({stage}); it was stopped. Fix: raise `quiet_limit_s` if it \
         was only slow\nlast lines of {console}:\n{tail}",
        console = console.display()
    )]
    Hung {
        /// Time without a message, without the time for which QEMU waited for a CPU.
        quiet_s: u64,
        /// Stage that it had reached.
        stage: String,
        tail: String,
        console: PathBuf,
    },
    /// It ran too long.
    #[error(
        "the run took longer than its {limit_s} s ({stage}); it was stopped. Fix: raise `wall_limit_s`, or shorten the run"
    )]
    TooLong {
        limit_s: u64,
        /// Stage that it had reached.
        stage: String,
        console: PathBuf,
    },
    /// Nothing ever came from the kernel.
    #[error(
        "nothing on the guest's console after {waited_s} s: is {kernel} an x86-64 kernel with a serial console \
         (CONFIG_SERIAL_8250_CONSOLE)?{hint}",
        kernel = kernel.display()
    )]
    Silent {
        kernel: PathBuf,
        waited_s: u64,
        /// Another possible reason; empty if there is none.
        hint: &'static str,
        console: PathBuf,
    },
    /// The kernel could not start Takt's first process, or that process ended before its time.
    #[error(
        "the guest's first process did not start or ended: {reason}. Fix: use a kernel with CONFIG_BLK_DEV_INITRD, CONFIG_RD_GZIP and \
         CONFIG_DEVTMPFS. Console: {console}",
        console = console.display()
    )]
    NoInit { reason: String, console: PathBuf },
    /// The guest itself says that something failed.
    #[error("the guest failed: {why}. Console: {console}", console = console.display())]
    Guest { why: String, console: PathBuf },
    /// The guest stopped before it had sent everything, and nothing says why.
    #[error("the guest stopped before it sent its results ({stage}). Console: {console}", console = console.display())]
    Unfinished {
        /// Stage that it had reached.
        stage: String,
        console: PathBuf,
    },
    /// The output differs from what was sent.
    #[error("the results cannot be read: {source}")]
    Stream { source: MessageError, console: PathBuf },
    /// The caller asked for an end.
    #[error("stopped by request")]
    Stopped,
}

impl MachineError {
    /// The console's log, where there is one.
    #[must_use]
    pub fn console(&self) -> Option<&std::path::Path> {
        match self {
            Self::Panicked { console, .. }
            | Self::OutOfMemory { console, .. }
            | Self::Hung { console, .. }
            | Self::TooLong { console, .. }
            | Self::Silent { console, .. }
            | Self::NoInit { console, .. }
            | Self::Guest { console, .. }
            | Self::Unfinished { console, .. }
            | Self::Stream { console, .. } => Some(console),
            _ => None,
        }
    }

    /// One word for a row: `panic`, `hang`, `out of memory`, ...
    #[must_use]
    pub fn label(&self) -> &'static str {
        match self {
            Self::Settings(_) => "settings",
            Self::File { .. } => "file",
            Self::NoQemu { .. } => "no qemu",
            Self::NoKvm { .. } => "no kvm",
            Self::Qemu { .. } => "qemu",
            Self::Panicked { .. } => "panic",
            Self::OutOfMemory { .. } => "out of memory",
            Self::Hung { .. } => "hang",
            Self::TooLong { .. } => "too long",
            Self::Silent { .. } => "no console",
            Self::NoInit { .. } => "no init",
            Self::Guest { .. } => "guest",
            Self::Unfinished { .. } => "unfinished",
            Self::Stream { .. } => "stream",
            Self::Stopped => "stopped",
        }
    }
}

impl Outcome {
    #[must_use]
    pub fn job(&self, name: &str) -> Option<&JobEnd> {
        self.jobs.iter().find(|end| end.name == name)
    }
}

/// Host time between two looks at a running machine.
const LOOK: Duration = Duration::from_millis(50);

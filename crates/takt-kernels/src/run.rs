//! Programs of the host, run under another kernel: the image is made, booted, and what came of it
//! brought out.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::guest::{Job, ORDER_PATH, Order, OrderError, RESULTS_PATH};
use crate::image::{ImageError, Initramfs};
use crate::machine::{Event, Machine, MachineError, Outcome, Settings};
use crate::packages::Kernel;

/// Modules that a guest needs to communicate with the host.
const MODULES: [&str; 2] = ["virtio_pci", "virtio_console"];

/// A file or directory of the host and where it lies in the guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Brought {
    pub host: PathBuf,
    pub guest: String,
}

impl Brought {
    /// The same path in the guest.
    #[must_use]
    pub fn same(path: &str) -> Self {
        Self { host: path.into(), guest: path.to_owned() }
    }
}

/// A run under another kernel.
#[derive(Debug, Clone)]
pub struct GuestRun {
    pub kernel: Kernel,
    /// The machine.
    pub settings: Settings,
    /// The program that is the guest's first process: one that calls [`crate::guest::run`], mostly
    /// Takt itself (`/proc/self/exe`). It is also there as `/usr/bin/takt`, with all its shared
    /// libraries.
    pub init: PathBuf,
    /// Other programs, with their shared libraries.
    pub programs: Vec<Brought>,
    /// Other files and directories.
    pub files: Vec<Brought>,
    /// Names of more kernel modules to load (`tun`); their dependencies come with them. None of
    /// them is needed to run.
    pub modules: Vec<String>,
    /// Orders of the guest.
    pub order: Order,
    /// Folder of everything in this run: logs and `results/`. It is created when it is missing.
    pub directory: PathBuf,
}

impl GuestRun {
    /// The jobs, with `init` as first process and nothing else brought along, on the default
    /// machine. Callers that need more set the fields.
    pub fn new(
        kernel: Kernel,
        init: impl Into<PathBuf>,
        jobs: Vec<Job>,
        directory: impl Into<PathBuf>,
    ) -> Self {
        Self {
            kernel,
            settings: Settings::default(),
            init: init.into(),
            programs: Vec::new(),
            files: Vec::new(),
            modules: Vec::new(),
            order: Order { jobs, ..Order::default() },
            directory: directory.into(),
        }
    }
}

/// Paths where the guest's mounts hide files of an image.
const HIDDEN: [&str; 4] = ["/proc", "/sys", "/dev", RESULTS_PATH];

/// Further path of the first process.
pub const TAKT_PATH: &str = "/usr/bin/takt";

/// Error of a run under another kernel.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A place in the guest that is no place for a file of the host.
    #[error("{guest:?} cannot be placed in the guest: {why}")]
    Place { guest: String, why: &'static str },
    /// The order cannot be carried out.
    #[error(transparent)]
    Order(#[from] OrderError),
    /// The image cannot be made.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The guest did not come back with its results.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// The guest runs this machine's programs, and is an x86-64 machine.
    #[error(
        "other kernels boot only in x86-64 machines, but this program is for {0}. Fix: compare kernels on an x86-64 computer, or boot each \
         of them here and run `takt run` under it"
    )]
    Processor(&'static str),
}

/// Runs an order under a kernel. `progress` is called with what goes on and may end the run by
/// returning false.
///
/// # Errors
/// [`RunError`]; nothing runs on then, and logs are kept in the run's directory.
pub fn run_in_guest(run: &GuestRun, progress: &mut dyn FnMut(&Event) -> bool) -> Result<Outcome, RunError> {
    if cfg!(not(target_arch = "x86_64")) {
        return Err(RunError::Processor(std::env::consts::ARCH));
    }
    run.order.validate()?;
    run.settings.validate().map_err(MachineError::from)?;
    fs::create_dir_all(&run.directory).map_err(|source| MachineError::File {
        what: "directory",
        path: run.directory.clone(),
        source,
    })?;
    let image = image(run)?;
    // In the run's directory, so that a run that is cut off leaves nothing elsewhere; QEMU reads it
    // at its start only.
    let file = tempfile::Builder::new()
        .prefix("initramfs-")
        .tempfile_in(&run.directory)
        .map_err(|source| MachineError::File { what: "image in", path: run.directory.clone(), source })?;
    image.write(file.path())?;
    let machine = Machine {
        kernel: run.kernel.vmlinuz.clone(),
        initramfs: file.path().to_path_buf(),
        settings: run.settings.clone(),
        directory: run.directory.clone(),
    };
    Ok(machine.boot(progress)?)
}

fn image(run: &GuestRun) -> Result<Initramfs, RunError> {
    let mut places = BTreeSet::from([TAKT_PATH, "/init", ORDER_PATH]);
    for Brought { guest, .. } in run.programs.iter().chain(&run.files) {
        let refused = |why| RunError::Place { guest: guest.clone(), why };
        if HIDDEN.iter().any(|hidden| Path::new(guest).starts_with(hidden)) {
            return Err(refused("the guest mounts a file system there"));
        }
        if !places.insert(guest) {
            return Err(refused("another file is already there"));
        }
    }
    let mut image = Initramfs::new();
    image.program(&run.init, TAKT_PATH)?;
    image.link("/init", TAKT_PATH)?;
    for Brought { host, guest } in &run.programs {
        image.program(host, guest)?;
    }
    for Brought { host, guest } in &run.files {
        image.copy(host, guest)?;
    }
    for directory in ["/root", "/etc"] {
        image.dir(directory)?;
    }
    let modules: Vec<&str> = MODULES.into_iter().chain(run.modules.iter().map(String::as_str)).collect();
    image.kernel_modules(&run.kernel, &modules)?;
    let order = serde_json::to_vec_pretty(&run.order).map_err(|error| OrderError::Text(error.to_string()))?;
    image.file(ORDER_PATH, 0o644, order)?;
    Ok(image)
}

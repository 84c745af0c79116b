//! The guest's first process: Takt itself, started by the kernel as `/init`. It mounts what
//! programs expect, loads modules, does what the order says and sends what came of it to the host.
//! It always switches the machine off, whatever happens.
//!
//! A program becomes an init by one line at its beginning:
//!
//! ```no_run
//! if takt_kernels::guest::is_init() {
//!     takt_kernels::guest::run();
//! }
//! ```

mod jobs;
mod order;
mod port;
mod system;

use std::ffi::OsStr;
use std::fs;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::Duration;

pub use order::{JOBS_DIRECTORY, Job, MODULES_PATH, ORDER_PATH, Order, OrderError, RESULTS_PATH, Setting};
pub use port::PORT_NAME;

use crate::transport::{FRAME_PAYLOAD_MAX_BYTES, JobEnd, JobEnding, JobStart, Sender};
use port::Port;

/// Prefix of an error that the guest writes on the console, for a reader when nothing else came
/// out.
pub(crate) const CONSOLE_ERROR: &str = "takt-guest: error: ";

/// Whether this process is the first of a machine that Takt made: id 1, called `/init`, with an
/// order at hand.
#[must_use]
pub fn is_init() -> bool {
    std::process::id() == 1
        && std::env::args_os().next().as_deref() == Some(OsStr::new("/init"))
        && Path::new(ORDER_PATH).exists()
}

/// Does everything, then switches the machine off. Only for a process for which [`is_init`] holds.
pub fn run() -> ! {
    // A panic here would be a bug; it must still be read and end the machine.
    if std::panic::catch_unwind(work).is_err() {
        eprintln!("{CONSOLE_ERROR}panic in the first process");
    }
    system::power_off()
}

fn work() {
    if let Err(error) = system::mount_all() {
        eprintln!("{CONSOLE_ERROR}{error}");
        return;
    }
    // Standard streams to the console of the mounted /dev; the kernel's own node may be missing in
    // an image.
    if let Err(error) = port::console() {
        eprintln!("{CONSOLE_ERROR}no console: {error}");
    }
    let modules = system::load_modules();
    let port = match Port::open() {
        Ok(port) => port,
        Err(error) => {
            if let Err(modules) = modules {
                eprintln!("{CONSOLE_ERROR}{modules}");
            }
            eprintln!("{CONSOLE_ERROR}{error}");
            return;
        }
    };
    let mut sender = Sender::new(port);
    let done = modules.map_err(|error| error.to_string()).and_then(|_| carry_out(&mut sender));
    if let Err(error) = done {
        eprintln!("{CONSOLE_ERROR}{error}");
        let _ = sender.failure(&error);
    }
    if let Err(error) = sender.done(system::now_ns()) {
        eprintln!("{CONSOLE_ERROR}cannot send: {error}");
    }
}

fn carry_out(sender: &mut Sender<Port>) -> Result<(), String> {
    let sent = |error: std::io::Error| format!("cannot send: {error}");
    let bytes = fs::read(ORDER_PATH).map_err(|error| format!("{ORDER_PATH}: {error}"))?;
    let order = Order::read(&bytes).map_err(|error| error.to_string())?;
    prepare(&order, sender)?;
    sender.hello(&system::hello()).map_err(sent)?;
    std::thread::sleep(Duration::from_millis(order.settle_ms));
    run_jobs(&order, sender).map_err(sent)?;
    bring_out(sender)
}

fn prepare(order: &Order, sender: &mut Sender<Port>) -> Result<(), String> {
    let mut minor = |what: &str, done: std::io::Result<()>| {
        if let Err(error) = done {
            let _ = sender.progress(&format!("{what}: {error}"));
        }
    };
    minor("hostname", rustix::system::sethostname(order.hostname.as_bytes()).map_err(Into::into));
    minor("loopback", system::loopback_up());
    minor("limits", system::lift_limits());
    // Errors only: writing to a serial line takes time in which a kernel may not be preempted.
    minor("printk", fs::write("/proc/sys/kernel/printk", "4"));
    for setting in &order.settings {
        fs::write(&setting.path, &setting.value).map_err(|error| {
            format!("cannot write {:?} to {}: {error}", setting.value, setting.path.display())
        })?;
    }
    Ok(())
}

fn run_jobs(order: &Order, sender: &mut Sender<Port>) -> std::io::Result<()> {
    let mut reaper = jobs::Reaper::default();
    let mut beside = Vec::new();
    for job in &order.jobs {
        let name = job.name.clone();
        sender.job_start(&JobStart { name: name.clone(), at_ns: system::now_ns() })?;
        let ending = match jobs::start(job, &mut reaper) {
            Err(error) => JobEnding::NotStarted { why: error.to_string() },
            Ok(running) if job.background => {
                beside.push(running);
                continue;
            }
            Ok(running) => running.join(&mut reaper, Duration::from_secs(order.heartbeat_s), &mut |name| {
                let _ = sender.progress(&format!("{name} runs at {} s", system::now_ns() / 1_000_000_000));
            }),
        };
        sender.job_end(&JobEnd { name, at_ns: system::now_ns(), ending })?;
    }
    for running in beside {
        let name = running.name.clone();
        let ending = running.stop(&mut reaper);
        sender.job_end(&JobEnd { name, at_ns: system::now_ns(), ending })?;
    }
    Ok(())
}

fn bring_out(sender: &mut Sender<Port>) -> Result<(), String> {
    let log = system::kernel_log().unwrap_or_else(|error| format!("cannot be read: {error}\n"));
    fs::write(Path::new(RESULTS_PATH).join("kernel.log"), log)
        .map_err(|error| format!("kernel.log: {error}"))?;
    let mut archive = tar::Builder::new(BufWriter::with_capacity(FRAME_PAYLOAD_MAX_BYTES, &mut *sender));
    archive.follow_symlinks(false);
    archive
        .append_dir_all("", RESULTS_PATH)
        .and_then(|()| archive.into_inner())
        .and_then(|mut buffered| buffered.flush())
        .and_then(|()| sender.archive_end())
        .map_err(|error| format!("cannot send the results: {error}"))
}

//! The command that runs the cell in a case, its streams as the case wants them.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::FaultError;
use crate::case::{Case, Plant, Words};

/// The run directory in a file system of its own.
pub(super) const WITHIN: &str = "it";

pub(super) fn command(takt: &Path, case: &Case, folder: &Path, config: &Path) -> Result<Command, FaultError> {
    let run = folder.join("run");
    let mut command = Command::new(takt);
    let file_system = match case.plant {
        Plant::Machine(denial) => denial.file_system(),
        _ => None,
    };
    if let Some(options) = file_system {
        // A small file system of its own, in a mount namespace of its own, which ends with the
        // process.
        let script = format!("mkdir -p \"$0\" && mount -t tmpfs -o {options} none \"$0\" && exec \"$@\"");
        command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", &script]).arg(&run).arg(takt);
    }
    command.arg("run").arg(config).args(["--seconds", "120", "--view", "none", "--json"]);
    match file_system {
        None => command.arg("--run-dir").arg(&run),
        Some(_) => command.arg("--run-dir").arg(run.join(WITHIN)),
    };
    let file = |name: &str| File::create(folder.join(name)).map_err(FaultError::io("the cell's words"));
    let full = || File::options().write(true).open("/dev/full").map_err(FaultError::io("opening /dev/full"));
    match case.plant {
        Plant::Output(Words::Full) => command.stdout(full()?).stderr(full()?),
        Plant::Output(Words::Broken) => command.stdout(Stdio::piped()).stderr(Stdio::piped()),
        Plant::Output(Words::Closed) => close_streams(&mut command),
        _ => command.stdout(file("cell.out")?).stderr(file("cell.err")?),
    };
    Ok(command)
}

/// Has the process start without standard output and error.
fn close_streams(command: &mut Command) -> &mut Command {
    use std::os::unix::process::CommandExt;
    // SAFETY: between fork and exec only `close` is called, which is async-signal-safe, on
    // descriptors that the child inherited and does not use before exec.
    unsafe {
        command.pre_exec(|| {
            libc::close(1);
            libc::close(2);
            Ok(())
        })
    }
}

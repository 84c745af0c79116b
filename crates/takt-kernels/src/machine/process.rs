//! QEMU's process: ends with Takt, whatever way Takt ends.

use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use super::command::{QEMU_LOG, arguments};
use super::{Machine, MachineError};

/// A running QEMU; dropping ends it.
#[derive(Debug)]
pub(super) struct Qemu {
    child: Child,
}

impl Qemu {
    pub(super) fn start(machine: &Machine, kernel: &Path) -> Result<Self, MachineError> {
        let log = machine.directory.join(QEMU_LOG);
        let file = |path: &Path| {
            File::create(path).map_err(|source| MachineError::File {
                what: "log",
                path: path.to_path_buf(),
                source,
            })
        };
        let mut command = Command::new(&machine.settings.qemu);
        command
            .args(arguments(machine, kernel))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(file(&log)?);
        let parent = std::process::id();
        // SAFETY: between fork and exec, only two system calls are made, which is allowed there.
        unsafe {
            command.pre_exec(move || {
                if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                    return Err(io::Error::last_os_error());
                }
                // The parent died in between: nobody would end this process.
                if u32::try_from(libc::getppid()) != Ok(parent) {
                    return Err(io::ErrorKind::Interrupted.into());
                }
                Ok(())
            });
        }
        let program = machine.settings.qemu.clone();
        let child = command.spawn().map_err(|source| MachineError::NoQemu { program, source })?;
        Ok(Self { child })
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its exit status; `None` while it runs.
    pub(super) fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }
}

impl Drop for Qemu {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether KVM can be used by this process: reported by the kernel, not by the file's being there.
pub(super) fn probe_kvm() -> Result<(), String> {
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
    const KVM_GET_API_VERSION: libc::c_ulong = 0xae00;
    const KVM_CREATE_VM: libc::c_ulong = 0xae01;
    let kvm = File::options().read(true).write(true).open("/dev/kvm").map_err(|error| {
        format!("/dev/kvm: {error} (virtualisation off in the firmware, or not in group kvm)")
    })?;
    // SAFETY: this call takes no argument and returns a number.
    let version = unsafe { libc::ioctl(kvm.as_raw_fd(), KVM_GET_API_VERSION, 0) };
    if version != 12 {
        return Err(format!("/dev/kvm has version {version}, expected 12"));
    }
    // SAFETY: this call takes a machine type (0) and returns a file descriptor or -1.
    let machine = unsafe { libc::ioctl(kvm.as_raw_fd(), KVM_CREATE_VM, 0) };
    if machine < 0 {
        return Err(format!("no virtual machine can be created: {}", io::Error::last_os_error()));
    }
    // SAFETY: the descriptor was made above and belongs to nobody else.
    drop(unsafe { OwnedFd::from_raw_fd(machine) });
    Ok(())
}

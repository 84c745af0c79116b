//! CPUs taken offline for a while, as the DAQ paper's Table 3 has it ("Cores 2 & 3 disabled").
//!
//! A CPU that is offline stays so when the process that took it ends. So a guard stands beside: a
//! shell that reads from a pipe which nobody writes to, and which the kernel closes with this
//! process, however it ends; then the guard brings the CPUs back.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::placement::CpuSet;

const CPUS: &str = "/sys/devices/system/cpu";

/// Only what a shell has built in: the guard must work while the machine is as bare as a guest. It
/// outlives a closed terminal and Ctrl-C, which reach the process that it guards too.
const GUARD: &str =
    "trap '' HUP INT QUIT TERM; while read -r _; do :; done; for file; do echo 1 > \"$file\"; done";

/// CPUs that were online and are not. Dropping it brings them back.
#[derive(Debug, Default)]
pub struct Offline {
    taken: Vec<(usize, PathBuf)>,
    guard: Option<Child>,
}

impl Offline {
    /// Takes `cpus` offline, as far as the kernel allows it. The second value says of each CPU that
    /// stays why. A CPU that is not online is as asked, and not brought back.
    pub fn take(cpus: &CpuSet) -> (Self, Vec<String>) {
        Self::take_below(Path::new(CPUS), cpus)
    }

    fn take_below(root: &Path, cpus: &CpuSet) -> (Self, Vec<String>) {
        let mut offline = Self { taken: Vec::new(), guard: None };
        let mut stay = Vec::new();
        let mut open = Vec::new();
        for cpu in cpus.iter() {
            let path = root.join(format!("cpu{cpu}/online"));
            match fs::read_to_string(&path) {
                Ok(state) if state.trim() == "1" => open.push((cpu, path)),
                // Offline already, or a CPU that this machine has not.
                Ok(_) => {}
                Err(_) if !root.join(format!("cpu{cpu}")).exists() => {}
                Err(error) => stay.push(format!(
                    "CPU {cpu} stays online: {}: {error} (the kernel needs this CPU, or is built without CPU hotplug)",
                    path.display()
                )),
            }
        }
        if open.is_empty() {
            return (offline, stay);
        }
        match guard(&open) {
            Ok(guard) => offline.guard = Some(guard),
            Err(error) => {
                let left = open.iter().map(|(cpu, _)| {
                    format!("CPU {cpu} stays online: the guard that brings it back after a kill cannot start: /bin/sh: {error}")
                });
                stay.extend(left);
                return (offline, stay);
            }
        }
        for (cpu, path) in open {
            let written = fs::write(&path, "0");
            // Even where writing failed: a value that is 0 now was made so here.
            match fs::read_to_string(&path) {
                Ok(state) if state.trim() == "0" => offline.taken.push((cpu, path)),
                _ => {
                    let reason = written.err().map_or("it came back".to_owned(), |error| error.to_string());
                    stay.push(format!(
                        "CPU {cpu} stays online: {}: {reason}. Fix: run as root, on a kernel whose CPUs can be taken offline",
                        path.display()
                    ));
                }
            }
        }
        (offline, stay)
    }

    /// The CPUs taken.
    pub fn taken(&self) -> Vec<usize> {
        self.taken.iter().map(|(cpu, _)| *cpu).collect()
    }

    /// Brings them back; a sentence for each that does not come.
    pub fn restore(mut self) -> Vec<String> {
        self.bring_back()
    }

    fn bring_back(&mut self) -> Vec<String> {
        let mut missing = Vec::new();
        for (cpu, path) in self.taken.drain(..) {
            if let Err(error) = fs::write(&path, "1") {
                let path = path.display();
                missing.push(format!(
                    "CPU {cpu} is still offline: {path}: {error}. Fix: `echo 1 | sudo tee {path}`"
                ));
            }
        }
        if let Some(mut guard) = self.guard.take() {
            // Its pipe ends; it writes the same once more and ends.
            drop(guard.stdin.take());
            let _ = guard.wait();
        }
        missing
    }
}

impl Drop for Offline {
    fn drop(&mut self) {
        // A CPU that does not come back was tried twice; nobody is left to inform.
        self.bring_back();
    }
}

fn guard(cpus: &[(usize, PathBuf)]) -> io::Result<Child> {
    Command::new("/bin/sh")
        .args(["-c", GUARD, "takt-cpus"])
        .args(cpus.iter().map(|(_, path)| path))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    /// A folder that looks like the kernel's: CPUs 0 to 3, of which the first cannot be taken and
    /// the last is offline.
    fn machine() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for cpu in 0..4 {
            let folder = root.path().join(format!("cpu{cpu}"));
            fs::create_dir(&folder).unwrap();
            if cpu > 0 {
                fs::write(folder.join("online"), if cpu == 3 { "0\n" } else { "1\n" }).unwrap();
            }
        }
        root
    }

    fn state(root: &Path) -> String {
        let read = |cpu| fs::read_to_string(root.join(format!("cpu{cpu}/online"))).unwrap();
        (1..4).map(|cpu| read(cpu).trim().to_owned()).collect()
    }

    #[test]
    fn what_was_online_goes_and_comes_back_and_what_stays_is_reported() {
        let root = machine();
        let (offline, stay) = Offline::take_below(root.path(), &"0-3,9".parse().unwrap());
        assert_eq!(offline.taken(), [1, 2]);
        assert_eq!(state(root.path()), "000");
        assert!(stay.len() == 1 && stay[0].contains("CPU 0"), "{stay:?}");
        assert_eq!(offline.restore(), Vec::<String>::new());
        // A CPU that was offline before stays offline.
        assert_eq!(state(root.path()), "110");
    }

    #[test]
    fn after_a_kill_the_guard_brings_them_back() {
        let root = machine();
        let (mut offline, _) = Offline::take_below(root.path(), &"1-2".parse().unwrap());
        assert_eq!(state(root.path()), "000");
        // As after a kill: the pipe ends, and nothing of `Drop` happens.
        offline.taken.clear();
        let mut guard = offline.guard.take().unwrap();
        std::mem::forget(offline);
        drop(guard.stdin.take());
        let until = Instant::now() + Duration::from_secs(30);
        while state(root.path()) != "110" {
            assert!(Instant::now() < until, "the guard does not bring them back");
            std::thread::sleep(Duration::from_millis(5));
        }
        guard.wait().unwrap();
    }
}

//! `takt manage --restore` with any state file, on a system that notes what is asked of it: only
//! what a manager changes is written.
#![no_main]

use std::cell::Cell;
use std::io;
use std::path::{Path, PathBuf};

use libfuzzer_sys::fuzz_target;
use takt_manager::restore;
use takt_manager::system::{Attributes, GroupVersion, Kernel};
use takt_rt::placement::CpuSet;

/// A system with a few threads, all of them in a group of the manager's.
struct System {
    looks: Cell<u32>,
}

const MOUNT: &str = "/cgroup";

impl System {
    fn thread<T>(&self, tid: u32, answer: T) -> io::Result<T> {
        self.looks.set(self.looks.get() + 1);
        if tid < 4 { Ok(answer) } else { Err(io::ErrorKind::NotFound.into()) }
    }
}

impl Kernel for System {
    fn threads(&self, pid: u32) -> io::Result<Vec<u32>> {
        self.thread(pid, vec![0, 1, 2, 3, 4])
    }
    fn processes(&self) -> io::Result<Vec<u32>> {
        Ok(vec![0, 1])
    }
    fn kernel_threads(&self) -> io::Result<Vec<u32>> {
        Ok(Vec::new())
    }
    fn start_ticks(&self, _: u32, tid: u32) -> io::Result<u64> {
        self.thread(tid, 1)
    }
    fn thread_name(&self, _: u32, tid: u32) -> io::Result<String> {
        self.thread(tid, "name".to_owned())
    }
    fn run_ns(&self, _: u32, tid: u32) -> io::Result<u64> {
        self.thread(tid, 0)
    }
    fn wants_to_run(&self, _: u32, tid: u32) -> io::Result<bool> {
        self.thread(tid, false)
    }
    fn last_cpu(&self, _: u32, tid: u32) -> io::Result<usize> {
        self.thread(tid, 0)
    }
    fn attributes(&self, tid: u32) -> io::Result<Attributes> {
        self.thread(tid, Attributes::reservation(1_000_000, 2_000_000, true))
    }
    fn set_attributes(&mut self, tid: u32, _: &Attributes) -> io::Result<()> {
        self.thread(tid, ())
    }
    fn affinity(&self, tid: u32) -> io::Result<CpuSet> {
        CpuSet::single(tid as usize % 2).map_err(io::Error::other)
    }
    fn set_affinity(&mut self, tid: u32, _: &CpuSet) -> io::Result<()> {
        self.thread(tid, ())
    }
    fn online(&self) -> io::Result<CpuSet> {
        CpuSet::from_cpus(0..2).ok_or_else(|| io::ErrorKind::Other.into())
    }
    fn group(&self, _: u32, tid: u32, _: GroupVersion) -> io::Result<Option<String>> {
        self.thread(tid, Some("/takt-1".to_owned()))
    }
    fn group_mount(&self, _: GroupVersion) -> Option<PathBuf> {
        Some(MOUNT.into())
    }
    fn read(&self, path: &Path) -> io::Result<String> {
        match path.to_str() {
            // Another boot's state is only forgotten.
            Some("/proc/sys/kernel/random/boot_id") => Ok("boot\n".to_owned()),
            _ => Ok("2\n".to_owned()),
        }
    }
    fn write(&mut self, path: &Path, text: &str) -> io::Result<()> {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let setting = ["/proc/sys/kernel/sched_rt_runtime_us", "/sys/devices/virtual/workqueue/cpumask"];
        let group = path.starts_with(MOUNT)
            && !path.components().any(|part| part.as_os_str() == "..")
            && [
                "tasks",
                "cgroup.procs",
                "cgroup.threads",
                "cpuset.sched_load_balance",
                "cgroup.subtree_control",
            ]
            .contains(&name);
        assert!(group || setting.contains(&path.to_str().unwrap_or_default()), "{}: {text}", path.display());
        Ok(())
    }
    fn make_dir(&mut self, path: &Path) -> io::Result<()> {
        panic!("{} is made", path.display())
    }
    fn remove_dir(&mut self, path: &Path) -> io::Result<()> {
        assert!(path.starts_with(MOUNT) && path != Path::new(MOUNT), "{}", path.display());
        Ok(())
    }
    fn scratch(&mut self) -> io::Result<(u32, u32)> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn end_scratch(&mut self) {}
}

fuzz_target!(|text: &[u8]| {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("manage.json");
    std::fs::write(&path, text).expect("a file");
    match restore::restore(&mut System { looks: Cell::new(0) }, &path) {
        Ok(restored) => {
            let restored = restored.expect("there was a file");
            assert_eq!(path.exists(), !restored.is_complete(), "{restored}");
        }
        Err(error) => assert!(!error.to_string().is_empty() && path.exists()),
    }
});

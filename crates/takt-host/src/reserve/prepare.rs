//! Cores made ready with control groups, and settings written so that they can be undone.
//!
//! `cgroups-rs` (0.5) needs 302 system calls to make a set and move a thread into it, ours 37, and
//! knows neither partitions nor a v2 hierarchy beside those of v1.

use std::io;
use std::path::Path;

use takt_rt::placement::CpuSet;

use crate::reserve::partition::{Partition, Trouble, at, cpu_set, set};
use crate::reserve::restore::{Change, Hidden, Journal};
use crate::reserve::system::{GroupVersion, Kernel};

impl Partition {
    pub(crate) fn exclusive_sets(
        &mut self,
        kernel: &mut dyn Kernel,
        journal: &mut Journal,
        cores: &[usize],
    ) -> Result<(), Trouble> {
        let version = GroupVersion::V1;
        let mount = kernel
            .group_mount(version)
            .ok_or_else(|| Trouble::Closed("no cpuset hierarchy of cgroup v1 is mounted".into()))?;
        let memory = mount.join("cpuset.mems");
        let memory = kernel.read(&memory).map_err(at(&memory))?;
        let online = kernel.online().map_err(|error| Trouble::Closed(error.to_string()))?;
        let reserved = cpu_set(cores)?;
        let rest = online.without(&reserved);
        let mut sets: Vec<(String, CpuSet, Option<usize>)> = Vec::new();
        for &core in cores {
            sets.push((format!("takt-{core}"), cpu_set(&[core])?, Some(core)));
        }
        // Without a set of their own the other CPUs would not be balanced among each other.
        if !rest.is_empty() {
            sets.push(("takt-system".into(), rest, None));
        }
        for (name, cpus, core) in sets {
            let path = mount.join(name);
            group(kernel, journal, &path, version, &mount)?;
            for (file, value) in [
                ("cpuset.mems", memory.trim()),
                ("cpuset.cpus", &cpus.to_string()),
                ("cpuset.cpu_exclusive", "1"),
                ("cpuset.sched_load_balance", "1"),
            ] {
                let file = path.join(file);
                kernel.write(&file, value).map_err(at(&file))?;
            }
            if let Some(core) = core {
                self.groups.insert(core, path);
            }
        }
        set(kernel, journal, &mount.join("cpuset.sched_load_balance"), "0", None)?;
        self.mount = Some(mount);
        Ok(())
    }

    pub(crate) fn partition_roots(
        &mut self,
        kernel: &mut dyn Kernel,
        journal: &mut Journal,
        cores: &[usize],
    ) -> Result<(), Trouble> {
        let version = GroupVersion::V2;
        let mount = kernel
            .group_mount(version)
            .ok_or_else(|| Trouble::Closed("no cgroup v2 hierarchy is mounted".into()))?;
        let has_cpuset = |text: &str| text.split_whitespace().any(|name| name == "cpuset");
        let list = mount.join("cgroup.controllers");
        if !has_cpuset(&kernel.read(&list).map_err(at(&list))?) {
            let reason = "the cpuset controller is not in the cgroup v2 hierarchy (cgroup v1 holds it, or the kernel lacks it)";
            return Err(Trouble::Closed(reason.into()));
        }
        let enabled = mount.join("cgroup.subtree_control");
        if !has_cpuset(&kernel.read(&enabled).map_err(at(&enabled))?) {
            set(kernel, journal, &enabled, "+cpuset", Some("-cpuset"))?;
        }
        // Threads of one process are to run in several groups, so the groups are threaded ones
        // below the group in which the processes live. That one is no partition root, which makes
        // its children remote partitions.
        let home = mount.join("takt-managed");
        group(kernel, journal, &home, version, &mount)?;
        let exclusive = home.join("cpuset.cpus.exclusive");
        if kernel.read(&exclusive).is_err() {
            let reason = "threaded partition roots need cpuset.cpus.exclusive (Linux 6.7 or newer)";
            return Err(Trouble::Closed(reason.into()));
        }
        let reserved = cpu_set(cores)?;
        let online = kernel.online().map_err(|error| Trouble::Closed(error.to_string()))?;
        let hidden = Hidden { cores: reserved, online };
        journal.hide(kernel, hidden);
        self.hidden = Some(hidden);
        for &core in cores {
            let path = home.join(format!("core-{core}"));
            group(kernel, journal, &path, version, &home)?;
            let kind = path.join("cgroup.type");
            kernel.write(&kind, "threaded").map_err(at(&kind))?;
            self.groups.insert(core, path);
        }
        let enabled = home.join("cgroup.subtree_control");
        kernel.write(&enabled, "+cpuset").map_err(at(&enabled))?;
        kernel.write(&exclusive, &reserved.to_string()).map_err(at(&exclusive))?;
        for (core, path) in &self.groups {
            let core = core.to_string();
            for (file, value) in [
                ("cpuset.cpus", core.as_str()),
                ("cpuset.cpus.exclusive", &core),
                ("cpuset.cpus.partition", "root"),
            ] {
                let file = path.join(file);
                kernel.write(&file, value).map_err(at(&file))?;
            }
            let file = path.join("cpuset.cpus.partition");
            let state = kernel.read(&file).map_err(at(&file))?;
            if state.trim() != "root" {
                return Err(Trouble::Closed(format!("{}: {}", file.display(), state.trim())));
            }
        }
        self.home = Some(home);
        self.mount = Some(mount);
        Ok(())
    }
}

fn group(
    kernel: &mut dyn Kernel,
    journal: &mut Journal,
    path: &Path,
    version: GroupVersion,
    heir: &Path,
) -> Result<(), Trouble> {
    journal.change(Change::Group { path: path.to_owned(), version, heir: heir.to_owned() })?;
    match kernel.make_dir(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(at(path)(error)),
        _ => Ok(()),
    }
}

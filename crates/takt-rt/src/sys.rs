//! Rights that the system grants this process: capabilities, limits, control groups. Used to
//! explain refusals.

use std::fs;
use std::io;
use std::path::PathBuf;

use crate::error::Cause;

/// Bit of CAP_IPC_LOCK (linux/capability.h).
pub(crate) const CAP_IPC_LOCK: u32 = 14;
/// Bit of CAP_SYS_NICE (linux/capability.h).
pub(crate) const CAP_SYS_NICE: u32 = 23;

pub(crate) const DEADLINE_AFFINITY_FIX: &str = "leave `cpus` out for SCHED_DEADLINE threads; or give the CPUs \
     a scheduling domain of their own and run there (cgroup v2): `mkdir /sys/fs/cgroup/takt && echo 2-3 > \
     /sys/fs/cgroup/takt/cpuset.cpus && echo root > /sys/fs/cgroup/takt/cpuset.cpus.partition && echo $$ > \
     /sys/fs/cgroup/takt/cgroup.procs`";

/// Whether the calling thread holds capability `bit`; true when it cannot be reported, so that
/// nothing is blamed wrongly.
pub(crate) fn has_capability(bit: u32) -> bool {
    crate::procfs::capabilities().is_none_or(|all| all >> bit & 1 == 1)
}

/// First word after `key` in /proc/thread-self/status.
pub(crate) fn status_field(key: &str) -> Option<String> {
    let status = fs::read_to_string("/proc/thread-self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with(key))?;
    line[key.len()..].split_whitespace().next().map(str::to_owned)
}

/// Soft value of a resource limit of this process, as `RLIMIT_MEMLOCK`; `u64::MAX` means unlimited.
#[must_use]
pub fn soft_limit(resource: libc::__rlimit_resource_t) -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid rlimit to write into.
    match unsafe { libc::getrlimit(resource, &mut limit) } {
        0 => limit.rlim_cur,
        _ => u64::MAX,
    }
}

/// This program's path for a setcap command.
fn program() -> String {
    std::env::current_exe().map_or_else(|_| "PROGRAM".into(), |path| path.display().to_string())
}

/// The command that gives this program the right to set policies and priorities.
pub(crate) fn nice_fix() -> String {
    format!(
        "run as root; or `sudo setcap cap_sys_nice,cap_ipc_lock+ep {}`; or `echo '* - rtprio 99' | sudo tee \
         /etc/security/limits.d/99-realtime.conf` and log in again",
        program()
    )
}

/// The command that gives this program the right to lock memory.
pub(crate) fn memlock_fix() -> String {
    format!(
        "`ulimit -l unlimited`; or `sudo setcap cap_sys_nice,cap_ipc_lock+ep {}`; or `echo '* - memlock \
         unlimited' | sudo tee /etc/security/limits.d/99-realtime.conf` and log in again",
        program()
    )
}

/// The causes that any call on a thread can have.
pub(crate) fn common_cause(error: &io::Error) -> Cause {
    match error.raw_os_error() {
        Some(libc::ESRCH) => Cause::NoSuchThread,
        Some(libc::ENOSYS) => Cause::Unsupported,
        _ => Cause::Unknown,
    }
}

/// The file that gives this process's control group its real-time run time (cgroup v1 with
/// CONFIG_RT_GROUP_SCHED), and its value.
pub(crate) fn group_runtime_us() -> Option<(PathBuf, i64)> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = groups.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        controllers.split(',').any(|name| name == "cpu").then(|| path.trim_start_matches('/').to_owned())
    })?;
    ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"].iter().find_map(|mount| {
        let file = PathBuf::from(mount).join(&path).join("cpu.rt_runtime_us");
        let value = fs::read_to_string(&file).ok()?.trim().parse().ok()?;
        Some((file, value))
    })
}

/// An integer in a file under /proc/sys.
pub(crate) fn sysctl(name: &str) -> Option<i64> {
    fs::read_to_string(format!("/proc/sys/kernel/{name}")).ok()?.trim().parse().ok()
}

/// Thread id of the caller. By number: glibc has a function for it since 2.30 only.
pub(crate) fn gettid() -> i32 {
    // SAFETY: gettid takes nothing and has no preconditions.
    unsafe { libc::syscall(libc::SYS_gettid) as libc::pid_t }
}

//! Rights that this process lacks to see kernel events, and the way to grant them: on the machine,
//! in Docker, Podman, Kubernetes.

use std::fs;
use std::path::Path;

/// A thing that is missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// The missing right, and how that was found.
    pub what: String,
    /// Way to grant it.
    pub fix: String,
}

/// Facts read about the machine and this process.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Facts {
    /// Effective capabilities.
    pub capabilities: u64,
    /// kernel.perf_event_paranoid; None where the file is missing.
    pub paranoid: Option<i32>,
    /// tracefs is mounted where it is expected.
    pub mounted: bool,
    /// Its tracepoints can be read.
    pub readable: bool,
    /// The kernel's lockdown, unless it is off.
    pub lockdown: Option<String>,
    /// A seccomp filter keeps `perf_event_open` from the kernel.
    pub filtered: bool,
    /// Memory that may be locked, in KiB; None where there is no limit.
    pub lockable_kib: Option<u64>,
    /// This process is in a container of this kind.
    pub container: Option<Container>,
    /// It has its own numbering of processes.
    pub own_pids: bool,
    /// It is in a user namespace of its own, beyond which its capabilities count for nothing.
    pub own_users: bool,
    /// Its user is another than root: what a container is given is not this process's then.
    pub not_root: bool,
}

/// Kind of the container's engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Container {
    Docker,
    Podman,
    /// A pod of Kubernetes.
    Kubernetes,
}

const SYS_ADMIN: u32 = 21;
const DAC_READ_SEARCH: u32 = 2;
const DAC_OVERRIDE: u32 = 1;
const IPC_LOCK: u32 = 14;
const PERFMON: u32 = 38;
const BPF: u32 = 39;
/// The inodes of the first namespaces of process ids and of users (PROC_PID_INIT_INO and
/// PROC_USER_INIT_INO, include/linux/proc_ns.h).
const FIRST_PID_NAMESPACE: &str = "pid:[4026531836]";
const FIRST_USER_NAMESPACE: &str = "user:[4026531837]";
const TRACEFS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// Whether `perf_event_open` never reaches the kernel. The kernel answers an invalid request with
/// EINVAL before it checks any right, and a filter answers with EPERM or ENOSYS.
fn filtered() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let is_filter = |line: &str| line.strip_prefix("Seccomp:").is_some_and(|mode| mode.trim() == "2");
    if !status.lines().any(is_filter) {
        return false;
    }
    let no_such_flag: libc::c_ulong = 1 << 31;
    // SAFETY: no flag of perf_event_open is so high, so that the kernel returns before it reads the
    // attributes, which are at null.
    let rc =
        unsafe { libc::syscall(libc::SYS_perf_event_open, std::ptr::null::<u8>(), 0, -1, -1, no_such_flag) };
    let error = std::io::Error::last_os_error().raw_os_error();
    rc == -1 && matches!(error, Some(libc::EPERM | libc::ENOSYS))
}

impl Facts {
    pub fn read() -> Self {
        let paranoid = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").ok();
        let mounted = |root: &&str| {
            // A folder that may not be entered is there.
            let events = fs::metadata(Path::new(root).join("events"));
            !events.is_err_and(|error| error.kind() != std::io::ErrorKind::PermissionDenied)
        };
        let format = |root: &&str| Path::new(root).join("events/sched/sched_switch/format");
        // Of a capability that is in force only for them.
        let readable = |root: &&str| takt_files::rights::reading(|| fs::read(format(root)).is_ok());
        let lockdown = fs::read_to_string("/sys/kernel/security/lockdown").ok().and_then(|text| {
            let mode = text.split_once('[')?.1.split_once(']')?.0.to_owned();
            (mode != "none").then_some(mode)
        });
        let container = if std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() {
            Some(Container::Kubernetes)
        } else if Path::new("/run/.containerenv").exists() {
            Some(Container::Podman)
        } else {
            Path::new("/.dockerenv").exists().then_some(Container::Docker)
        };
        let other = |namespace: &str, first: &str| {
            fs::read_link(Path::new("/proc/self/ns").join(namespace))
                .is_ok_and(|link| link != Path::new(first))
        };
        Self {
            capabilities: takt_rt::procfs::capabilities().unwrap_or_default(),
            paranoid: paranoid.and_then(|text| text.trim().parse().ok()),
            mounted: TRACEFS.iter().any(mounted),
            readable: TRACEFS.iter().any(readable),
            lockdown,
            filtered: filtered(),
            lockable_kib: Some(takt_rt::soft_limit(libc::RLIMIT_MEMLOCK))
                .filter(|&bytes| bytes != libc::RLIM_INFINITY)
                .map(|bytes| bytes >> 10),
            container,
            own_pids: other("pid", FIRST_PID_NAMESPACE),
            own_users: other("user", FIRST_USER_NAMESPACE),
            not_root: !rustix::process::geteuid().is_root(),
        }
    }

    fn has(&self, capability: u32) -> bool {
        self.capabilities & (1 << capability) != 0
    }

    /// As [`has`](Self::has), where the kernel asks for the machine's and not for the namespace's.
    fn may(&self, capability: u32) -> bool {
        !self.own_users && (self.has(capability) || self.has(SYS_ADMIN))
    }

    /// Everybody may trace.
    fn is_open(&self) -> bool {
        self.paranoid.is_some_and(|level| level < 0)
    }

    /// Missing rights; empty if all are present.
    pub fn missing(&self) -> Vec<Missing> {
        let mut missing = Vec::new();
        let mut add = |what: String, fix: &str| missing.push(Missing { what, fix: fix.to_owned() });
        if self.own_users {
            let fix = match self.container {
                Some(Container::Kubernetes) => "a pod without `hostUsers: false`",
                Some(_) => {
                    "an engine that runs as root (`--userns=host`, where it remaps users); a container of a rootless engine cannot have \
                     them: watch from the host with `--cgroup`"
                }
                None => "watch from outside the container, as root",
            };
            add(
                "the host's users (capabilities in a separate user namespace do not allow tracing)"
                    .to_owned(),
                fix,
            );
        }
        if !self.may(PERFMON) && !self.is_open() && !self.own_users {
            let level = self.paranoid.map_or("unknown".to_owned(), |level| level.to_string());
            let fix = match self.container {
                None => {
                    "run as root, or `setcap cap_perfmon,cap_bpf,cap_ipc_lock,cap_dac_read_search+ep PROGRAM`, or `sysctl kernel.perf_event_paranoid=-1`"
                }
                Some(_) if self.not_root => {
                    "give the container CAP_PERFMON and run it as root, because other users get no capabilities (below)"
                }
                Some(_) => "give the container CAP_PERFMON (below)",
            };
            add(format!("CAP_PERFMON or CAP_SYS_ADMIN (kernel.perf_event_paranoid is {level})"), fix);
        }
        // Engines make their filter of the capabilities: without these nothing is known of it.
        if self.filtered && self.may(PERFMON) {
            let fix = match self.container {
                Some(Container::Kubernetes) => "`seccompProfile: {type: Unconfined}` (below)",
                Some(_) => "`--security-opt seccomp=unconfined`",
                None => "start it without the filter",
            };
            add("the system call perf_event_open, which a seccomp filter refuses".to_owned(), fix);
        }
        if !self.mounted && (!self.has(SYS_ADMIN) || self.own_users) {
            let fix = match self.container {
                None => "`mount -t tracefs nodev /sys/kernel/tracing` as root",
                Some(_) => "give the container the host's /sys/kernel/tracing (below)",
            };
            add("tracefs is not mounted at /sys/kernel/tracing".to_owned(), fix);
        } else if self.mounted && !self.readable && !self.has(DAC_READ_SEARCH) && !self.has(DAC_OVERRIDE) {
            add(
                "the files in tracefs cannot be read".to_owned(),
                "CAP_DAC_READ_SEARCH, or `mount -o remount,gid=GROUP,mode=750 /sys/kernel/tracing` for one of your groups",
            );
        }
        if let Some(mode) = &self.lockdown {
            let fix = "boot with `lockdown=none`, or without secure boot where that enforces it";
            add(format!("kernel lockdown is `{mode}`, which forbids tracing"), fix);
        }
        if self.own_pids {
            let fix = match self.container {
                Some(Container::Kubernetes) => {
                    "`hostPID: true` (below): events identify threads by the host's ids"
                }
                Some(_) => "`--pid=host` (below): events identify threads by the host's ids",
                None => "watch from the host: events identify threads by the host's ids",
            };
            add("the host's process ids (this process has its own namespace of them)".to_owned(), fix);
        }
        missing.extend(self.dearer());
        missing
    }

    /// Missing rights that can be replaced at a price.
    fn dearer(&self) -> Vec<Missing> {
        let fix = |capability: &str, more: &str| match self.container {
            Some(_) => format!("give the container CAP_{capability}{more} (below)"),
            None => format!("run as root, or with CAP_{capability}{more}"),
        };
        let mut missing = Vec::new();
        if !self.may(BPF) {
            let what =
                "CAP_BPF (without it, takt reads all events of the machine, which takes more CPU time)"
                    .to_owned();
            missing.push(Missing { what, fix: fix("BPF", "") });
        }
        if let Some(kib) =
            self.lockable_kib.filter(|_| !(self.has(IPC_LOCK) && !self.own_users || self.is_open()))
        {
            let what = format!("CAP_IPC_LOCK (without it, event buffers are limited to {kib} KiB)");
            missing.push(Missing { what, fix: fix("IPC_LOCK", ", or `ulimit -l unlimited`") });
        }
        missing
    }

    /// All of it for a person: what is missing with its fix, and what a container's manifest needs.
    pub fn advice(&self) -> String {
        let missing = self.missing();
        let mut text = String::new();
        for one in &missing {
            text += &format!("missing: {}\n  fix: {}\n", one.what, one.fix);
        }
        if missing.is_empty() {
            return text;
        }
        match self.container {
            Some(Container::Kubernetes) => text += KUBERNETES,
            Some(container) => text += &self.command_line(container),
            None => {}
        }
        text
    }

    /// Options that a container of Docker or Podman needs.
    fn command_line(&self, container: Container) -> String {
        let line = |engine: &str, capabilities: &[&str], option: &str| {
            let mut line = format!("{engine} run");
            line += if self.own_users { " --userns=host" } else { "" };
            line += if self.not_root { " --user=0" } else { "" };
            line += " --pid=host";
            for capability in capabilities {
                line += &format!(" --cap-add={capability}");
            }
            line + &format!(" \\\n  {option}-v /sys/kernel/tracing:/sys/kernel/tracing:ro IMAGE\n")
        };
        match container {
            // Its filter has refused perf_event_open to who has CAP_PERFMON alone, until the end of
            // 2025.
            Container::Podman => {
                line("sudo podman", &CAPABILITIES, "--security-opt seccomp=unconfined ")
                    + "  (if SELinux confines containers, add --security-opt label=disable)\n"
            }
            _ => {
                line("docker", &CAPABILITIES, "")
                    + "or, before Docker 23, which has neither PERFMON nor BPF:\n"
                    + &line("docker", &OLD_CAPABILITIES, "")
            }
        }
    }
}

/// To trace, to be served by the kernel rather than to read all events, to have buffers, to read
/// tracefs, and to name functions of the kernel.
const CAPABILITIES: [&str; 5] = ["PERFMON", "BPF", "IPC_LOCK", "DAC_READ_SEARCH", "SYSLOG"];
/// The same where it is all one capability.
const OLD_CAPABILITIES: [&str; 4] = ["SYS_ADMIN", "IPC_LOCK", "DAC_READ_SEARCH", "SYSLOG"];

/// Fields that a pod of Kubernetes needs.
pub const KUBERNETES: &str = "\
spec:
  hostPID: true
  containers:
  - securityContext:
      runAsUser: 0
      capabilities: {add: [PERFMON, BPF, IPC_LOCK, DAC_READ_SEARCH, SYSLOG]}
      seccompProfile: {type: Unconfined}   # where the default refuses perf_event_open
    volumeMounts: [{name: tracing, mountPath: /sys/kernel/tracing, readOnly: true}]
  volumes: [{name: tracing, hostPath: {path: /sys/kernel/tracing}}]
  (its namespace admits such a pod with the label pod-security.kubernetes.io/enforce: privileged)
";

#[cfg(test)]
mod tests {
    use super::*;

    /// Root on the machine itself.
    fn root() -> Facts {
        Facts { capabilities: u64::MAX, mounted: true, readable: true, ..Facts::default() }
    }

    #[test]
    fn what_is_missing_is_named_with_its_fix() {
        let nothing = Facts { paranoid: Some(2), ..Facts::default() };
        let text = nothing.advice();
        for part in ["CAP_PERFMON", "is 2", "setcap", "mount -t tracefs", "CAP_BPF"] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
        assert_eq!(root().missing(), []);
        assert_eq!(root().advice(), "");
        let locked = Facts { lockdown: Some("integrity".to_owned()), ..root() };
        assert!(locked.advice().contains("lockdown=none"));
        // The capability is enough to trace, and not to read files of root.
        let perfmon = Facts { capabilities: 1 << PERFMON | 1 << BPF, mounted: true, ..Facts::default() };
        assert_eq!(perfmon.missing().len(), 1);
        assert!(perfmon.advice().contains("CAP_DAC_READ_SEARCH"));
        // Nor to have large buffers.
        let small = Facts { lockable_kib: Some(8192), readable: true, ..perfmon };
        assert_eq!(small.missing().len(), 1);
        assert!(small.advice().contains("CAP_IPC_LOCK") && small.advice().contains("8192 KiB"));
        assert_eq!(Facts { lockable_kib: Some(8192), ..root() }.missing(), []);
        assert_eq!(Facts { paranoid: Some(-1), ..small }.missing(), []);
    }

    #[test]
    fn a_container_is_reported_the_lines_of_its_manifest() {
        let bare = Facts { own_pids: true, container: Some(Container::Docker), ..Facts::default() };
        let text = bare.advice();
        for part in
            ["docker run --pid=host", "--cap-add=PERFMON", "--cap-add=SYS_ADMIN", "/sys/kernel/tracing:ro"]
        {
            assert!(text.contains(part), "{part} is not in {text}");
        }
        // Capabilities that are added are root's alone.
        let user = Facts { not_root: true, ..bare.clone() };
        assert!(user.advice().contains("--user=0") && !text.contains("--user=0"));
        let podman = Facts { container: Some(Container::Podman), ..bare.clone() };
        assert!(
            podman.advice().contains("podman run --pid=host") && podman.advice().contains("label=disable")
        );
        let pod = Facts { container: Some(Container::Kubernetes), ..bare.clone() };
        for part in ["hostPID: true", "PERFMON", "hostPath", "pod-security"] {
            assert!(pod.advice().contains(part), "{part}");
        }
        for capability in CAPABILITIES {
            assert!(text.contains(capability) && KUBERNETES.contains(capability), "{capability}");
        }
        // If there is no text below, the advice does not refer to it.
        let unknown = Facts { container: None, ..bare };
        assert!(!unknown.advice().contains("below"), "{}", unknown.advice());
    }

    #[test]
    fn capabilities_that_count_for_nothing_are_missing() {
        let filtered = Facts { filtered: true, container: Some(Container::Docker), ..root() };
        let all = filtered.missing();
        assert_eq!(all.len(), 1);
        assert!(all[0].what.contains("seccomp") && all[0].fix.contains("seccomp=unconfined"), "{all:?}");
        // An engine's filter lets through what goes with the capabilities that it is asked for.
        let bare = Facts { capabilities: 0, ..filtered };
        assert!(!bare.advice().contains("seccomp"), "{}", bare.advice());
        // All of them, in a user namespace.
        let rootless = Facts { own_users: true, container: Some(Container::Podman), ..root() };
        let text = rootless.advice();
        for part in ["user namespace", "--userns=host", "--cgroup"] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
        assert!(!text.contains("CAP_PERFMON or"), "{text}");
    }

    #[test]
    fn facts_of_this_machine_can_be_read() {
        let facts = Facts::read();
        assert!(facts.paranoid.is_none_or(|level| (-1..=4).contains(&level)), "{facts:?}");
    }
}

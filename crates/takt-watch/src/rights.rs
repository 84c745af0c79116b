//! What this process lacks to see kernel events, and how to give it: on the machine, in Docker, in
//! Kubernetes.

use std::fs;
use std::path::Path;

/// A thing that is missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// What is missing, and how that was found.
    pub what: String,
    /// How to give it.
    pub fix: String,
}

/// What was read of the machine and of this process.
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
    /// This process is in a container of this kind.
    pub container: Option<Container>,
    /// It has its own numbering of processes.
    pub own_pids: bool,
}

/// Where a container runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Container {
    /// Docker or Podman.
    Docker,
    /// A pod of Kubernetes.
    Kubernetes,
}

const SYS_ADMIN: u32 = 21;
const DAC_READ_SEARCH: u32 = 2;
const DAC_OVERRIDE: u32 = 1;
const PERFMON: u32 = 38;
/// The inode of the first namespace of process ids (PROC_PID_INIT_INO, include/linux/proc_ns.h).
const FIRST_PID_NAMESPACE: &str = "pid:[4026531836]";
const TRACEFS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

impl Facts {
    pub fn read() -> Self {
        let paranoid = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").ok();
        let mounted = |root: &&str| {
            // A folder that may not be entered is there.
            let events = fs::metadata(Path::new(root).join("events"));
            !events.is_err_and(|error| error.kind() != std::io::ErrorKind::PermissionDenied)
        };
        let readable =
            |root: &&str| fs::read(Path::new(root).join("events/sched/sched_switch/format")).is_ok();
        let lockdown = fs::read_to_string("/sys/kernel/security/lockdown").ok().and_then(|text| {
            let mode = text.split_once('[')?.1.split_once(']')?.0.to_owned();
            (mode != "none").then_some(mode)
        });
        let kubernetes = std::env::var_os("KUBERNETES_SERVICE_HOST").is_some();
        let docker = Path::new("/.dockerenv").exists() || Path::new("/run/.containerenv").exists();
        let container = match (kubernetes, docker) {
            (true, _) => Some(Container::Kubernetes),
            (_, true) => Some(Container::Docker),
            _ => None,
        };
        let pids = fs::read_link("/proc/self/ns/pid").ok();
        Self {
            capabilities: takt_rt::procfs::capabilities().unwrap_or_default(),
            paranoid: paranoid.and_then(|text| text.trim().parse().ok()),
            mounted: TRACEFS.iter().any(mounted),
            readable: TRACEFS.iter().any(readable),
            lockdown,
            container,
            own_pids: pids.is_some_and(|link| link != Path::new(FIRST_PID_NAMESPACE)),
        }
    }

    fn has(&self, capability: u32) -> bool {
        self.capabilities & (1 << capability) != 0
    }

    /// What is missing; nothing where everything is there.
    pub fn missing(&self) -> Vec<Missing> {
        let mut missing = Vec::new();
        let mut add = |what: String, fix: &str| missing.push(Missing { what, fix: fix.to_owned() });
        let may_trace =
            self.has(PERFMON) || self.has(SYS_ADMIN) || self.paranoid.is_some_and(|level| level < 0);
        if !may_trace {
            let level = self.paranoid.map_or("unknown".to_owned(), |level| level.to_string());
            let fix = match self.container {
                None => {
                    "run as root, or `setcap cap_perfmon,cap_dac_read_search+ep PROGRAM`, or `sysctl kernel.perf_event_paranoid=-1`"
                }
                Some(_) => "give the container CAP_PERFMON (below)",
            };
            add(format!("CAP_PERFMON or CAP_SYS_ADMIN (kernel.perf_event_paranoid is {level})"), fix);
        }
        if !self.mounted && !self.has(SYS_ADMIN) {
            let fix = match self.container {
                None => "`mount -t tracefs nodev /sys/kernel/tracing` as root",
                Some(_) => "give the container the host's /sys/kernel/tracing (below)",
            };
            add("tracefs is not mounted at /sys/kernel/tracing".to_owned(), fix);
        } else if self.mounted && !self.readable && !self.has(DAC_READ_SEARCH) && !self.has(DAC_OVERRIDE) {
            add(
                "the files of tracefs cannot be read".to_owned(),
                "CAP_DAC_READ_SEARCH, or `mount -o remount,gid=GROUP,mode=750 /sys/kernel/tracing` for a group of yours",
            );
        }
        if let Some(mode) = &self.lockdown {
            let fix = "boot with `lockdown=none`, or without secure boot where that enforces it";
            add(format!("kernel lockdown is `{mode}`, which forbids tracing"), fix);
        }
        if self.own_pids {
            let fix = match self.container {
                Some(Container::Kubernetes) => {
                    "`hostPID: true` (below): events name threads by the host's numbers"
                }
                _ => "`--pid=host` (below): events name threads by the host's numbers",
            };
            add("the host's process ids (this process has its own namespace of them)".to_owned(), fix);
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
            Some(Container::Docker) => text += DOCKER,
            Some(Container::Kubernetes) => text += KUBERNETES,
            None => {}
        }
        text
    }
}

/// What a container of Docker needs.
pub const DOCKER: &str = "\
docker run --pid=host --cap-add=PERFMON --cap-add=DAC_READ_SEARCH --cap-add=SYSLOG \\
  -v /sys/kernel/tracing:/sys/kernel/tracing:ro IMAGE
  (where the seccomp profile refuses perf_event_open: --security-opt seccomp=unconfined)
";

/// What a pod of Kubernetes needs.
pub const KUBERNETES: &str = "\
spec:
  hostPID: true
  containers:
  - securityContext:
      capabilities: {add: [PERFMON, DAC_READ_SEARCH, SYSLOG]}
      seccompProfile: {type: Unconfined}   # where the default refuses perf_event_open
    volumeMounts: [{name: tracing, mountPath: /sys/kernel/tracing, readOnly: true}]
  volumes: [{name: tracing, hostPath: {path: /sys/kernel/tracing}}]
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_with_its_fix() {
        let nothing = Facts { paranoid: Some(2), ..Facts::default() };
        let text = nothing.advice();
        for part in ["CAP_PERFMON", "is 2", "setcap", "mount -t tracefs"] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
        let root = Facts { capabilities: u64::MAX, mounted: true, readable: true, ..Facts::default() };
        assert_eq!(root.missing(), []);
        assert_eq!(root.advice(), "");
        let locked = Facts { lockdown: Some("integrity".to_owned()), ..root.clone() };
        assert!(locked.advice().contains("lockdown=none"));
        // The capability is enough to trace, and not to read files of root.
        let perfmon = Facts { capabilities: 1 << PERFMON, mounted: true, ..Facts::default() };
        assert_eq!(perfmon.missing().len(), 1);
        assert!(perfmon.advice().contains("CAP_DAC_READ_SEARCH"));
    }

    #[test]
    fn a_container_is_reported_the_lines_of_its_manifest() {
        let bare = Facts { own_pids: true, container: Some(Container::Docker), ..Facts::default() };
        let text = bare.advice();
        for part in ["--pid=host", "--cap-add=PERFMON", "/sys/kernel/tracing:ro"] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
        let pod = Facts { container: Some(Container::Kubernetes), ..bare };
        for part in ["hostPID: true", "PERFMON", "hostPath"] {
            assert!(pod.advice().contains(part), "{part}");
        }
    }

    #[test]
    fn facts_of_this_machine_can_be_read() {
        let facts = Facts::read();
        assert!(facts.paranoid.is_none_or(|level| (-1..=4).contains(&level)), "{facts:?}");
    }
}

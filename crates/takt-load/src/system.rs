//! Activity of the whole machine (`/proc/stat`), and the memory that it can give.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};
use takt_rt::clock;
use takt_rt::procfs::CpuTime;

/// Event counters of the machine since boot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    at_ns: u64,
    switches: u64,
    forks: u64,
    interrupts: u64,
    softirqs: u64,
    cpu: CpuTime,
}

/// Activity of the whole machine over a time, the load and the measured programs together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Rates {
    /// Context switches per second.
    pub switches_per_s: f64,
    /// Processes and threads created per second.
    pub forks_per_s: f64,
    /// Interrupts served per second.
    pub interrupts_per_s: f64,
    /// Soft interrupts served per second.
    pub softirqs_per_s: f64,
    /// Share of all CPU time that was not idle, 0..=1; stolen time is counted as busy.
    pub busy: f64,
    /// Share of all CPU time that the hypervisor took, 0..=1.
    pub stolen: f64,
}

impl Counters {
    /// Reads the counters now; zeros where the kernel does not report.
    pub fn read() -> Self {
        let text = fs::read_to_string("/proc/stat").unwrap_or_default();
        Self { at_ns: clock::monotonic_ns(), ..Self::parse(&text) }
    }

    fn parse(text: &str) -> Self {
        let mut counters = Self { cpu: CpuTime::of_all(text).unwrap_or_default(), ..Self::default() };
        for line in text.lines() {
            let mut words = line.split_ascii_whitespace();
            let key = words.next().unwrap_or_default();
            let mut first = || words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
            match key {
                "ctxt" => counters.switches = first(),
                "processes" => counters.forks = first(),
                "intr" => counters.interrupts = first(),
                "softirq" => counters.softirqs = first(),
                _ => {}
            }
        }
        counters
    }

    pub fn since(&self, earlier: &Self) -> Rates {
        let seconds = self.at_ns.saturating_sub(earlier.at_ns) as f64 / 1e9;
        let ratio = |part: u64, whole: f64| if whole > 0.0 { part as f64 / whole } else { 0.0 };
        let cpu = self.cpu.since(&earlier.cpu);
        Rates {
            switches_per_s: ratio(self.switches.saturating_sub(earlier.switches), seconds),
            forks_per_s: ratio(self.forks.saturating_sub(earlier.forks), seconds),
            interrupts_per_s: ratio(self.interrupts.saturating_sub(earlier.interrupts), seconds),
            softirqs_per_s: ratio(self.softirqs.saturating_sub(earlier.softirqs), seconds),
            busy: cpu.busy,
            stolen: cpu.stolen,
        }
    }
}

/// Processes that the kernel has killed for want of memory, since boot; 0 where it does not report.
pub(crate) fn oom_kills() -> u64 {
    let text = fs::read_to_string("/proc/vmstat").unwrap_or_default();
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok()).unwrap_or(0)
}

/// Memory of the machine, or of the control group where that gives less; bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    pub total: u64,
    /// Memory available without swapping.
    pub available: u64,
}

impl Memory {
    /// Reads `/proc/meminfo` and the limits of this process's control groups below `root` (`/` but
    /// in tests); `None` without a readable `/proc/meminfo`.
    pub fn read(root: &Path) -> Option<Self> {
        let meminfo = fs::read_to_string(root.join("proc/meminfo")).ok()?;
        let field = |key: &str| -> Option<u64> {
            let line = meminfo.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
            line.split_ascii_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
        };
        let mut memory = Self { total: field("MemTotal")?, available: field("MemAvailable")? };
        let groups = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
        for line in groups.lines() {
            let mut parts = line.splitn(3, ':');
            let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next()) else {
                continue;
            };
            let (mount, limit, usage) = match controllers {
                "" => ("sys/fs/cgroup", "memory.max", "memory.current"),
                list if list.split(',').any(|name| name == "memory") => {
                    ("sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes")
                }
                _ => continue,
            };
            // A limit of any ancestor holds as well.
            let mut group = root.join(mount).join(path.trim_start_matches('/'));
            while group.starts_with(root.join(mount)) {
                let read = |name| fs::read_to_string(group.join(name)).ok()?.trim().parse::<u64>().ok();
                if let Some(limit) = read(limit).filter(|&limit| limit < memory.total) {
                    memory.total = limit;
                    memory.available = memory.available.min(limit.saturating_sub(read(usage).unwrap_or(0)));
                }
                if !group.pop() {
                    break;
                }
            }
        }
        Some(memory)
    }

    /// Memory that a load must leave free: a tenth of the memory, at least 512 MiB. Enough for the
    /// kernel's own needs and for the measured programs to grow, so that neither the OOM killer nor
    /// swap comes in.
    pub fn reserve(&self) -> u64 {
        (self.total / 10).max(512 << 20)
    }

    /// Below this the memory component is ended: somebody else grew meanwhile. Half of
    /// [`reserve`](Self::reserve).
    pub fn floor(&self) -> u64 {
        self.reserve() / 2
    }

    /// Bytes for `share` of the available memory, at most `cap`, leaving
    /// [`reserve`](Self::reserve); `None` when nothing is left.
    pub fn budget(&self, share: f64, cap: Option<u64>) -> Option<u64> {
        let wanted = (self.available as f64 * share) as u64;
        let most = self.available.checked_sub(self.reserve()).filter(|&most| most > 0)?;
        Some(wanted.min(most).min(cap.unwrap_or(u64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use takt_witness::plant::tree;

    #[test]
    fn rates_are_differences_over_time() {
        let before = "cpu  10 0 10 80 0 0 0 0 0 0\nintr 100 1 2\nctxt 1000\nprocesses 7\nsoftirq 5 1\n";
        let after = "cpu  60 0 10 100 10 0 0 20 0 0\nintr 300 1 2\nctxt 2000\nprocesses 17\nsoftirq 45 1\n";
        let before = Counters { at_ns: 0, ..Counters::parse(before) };
        let rates = Counters { at_ns: 2_000_000_000, ..Counters::parse(after) }.since(&before);
        let expected = Rates {
            switches_per_s: 500.0,
            forks_per_s: 5.0,
            interrupts_per_s: 100.0,
            softirqs_per_s: 20.0,
            busy: 0.7,
            stolen: 0.2,
        };
        assert_eq!(rates, expected);
        // Counters that went back (another boot) are no rates.
        assert_eq!(before.since(&Counters::read()).switches_per_s, 0.0);
    }

    #[test]
    fn the_tightest_control_group_counts() {
        let meminfo = "MemTotal:       16777216 kB\nMemFree: 1 kB\nMemAvailable:   8388608 kB\n";
        let root = tree(&[("proc/meminfo", meminfo)]);
        let whole = Memory { total: 16 << 30, available: 8 << 30 };
        assert_eq!(Memory::read(root.path()), Some(whole));
        let root = tree(&[
            ("proc/meminfo", meminfo),
            ("proc/self/cgroup", "0::/a/b\n"),
            ("sys/fs/cgroup/a/memory.max", "4294967296\n"),
            ("sys/fs/cgroup/a/memory.current", "1073741824\n"),
            ("sys/fs/cgroup/a/b/memory.max", "max\n"),
        ]);
        assert_eq!(Memory::read(root.path()), Some(Memory { total: 4 << 30, available: 3 << 30 }));
        let root = tree(&[
            ("proc/meminfo", meminfo),
            ("proc/self/cgroup", "4:memory:/x\n0::/\n"),
            ("sys/fs/cgroup/memory/x/memory.limit_in_bytes", "2147483648\n"),
            ("sys/fs/cgroup/memory/x/memory.usage_in_bytes", "2147483648\n"),
        ]);
        let full = Memory::read(root.path()).unwrap();
        assert_eq!(full, Memory { total: 2 << 30, available: 0 });
        assert_eq!(full.budget(0.75, None), None);
        assert_eq!(Memory::read(tree(&[]).path()), None);
    }

    proptest! {
        #[test]
        fn the_budget_always_leaves_the_reserve(total in 0u64..1 << 45, part in 0.0f64..1.0, share in 0.0f64..=1.0) {
            let memory = Memory { total, available: (total as f64 * part) as u64 };
            if let Some(bytes) = memory.budget(share, None) {
                prop_assert!(bytes <= memory.available - memory.reserve());
                prop_assert_eq!(memory.budget(share, Some(1)), Some(bytes.min(1)));
            }
        }

        #[test]
        fn any_text_is_read(text in "\\PC*") {
            Counters::parse(&text);
            Memory::read(tree(&[("proc/meminfo", &text), ("proc/self/cgroup", &text)]).path());
        }
    }
}

//! Settings of the whole machine that an experiment requests: `machine.NAME` in campaigns. A guest
//! of Takt gets these settings, because it is used by nobody else and ends with the run. Any other
//! machine is left as it is. On both, each difference is a label of the run.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};
use takt_rt::placement::CpuSet;
use takt_rundir::{Machine, RunHeader};

use crate::sched_ext::SchedExt;

const RT_RUNTIME: &str = "proc/sys/kernel/sched_rt_runtime_us";
const CPUS: &str = "sys/devices/system/cpu";

/// Requested settings; absent ones are left to the machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MachineAsked {
    /// Microseconds per second that real-time threads may use (`sched_rt_runtime_us`); -1: no
    /// limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rt_runtime_us: Option<i64>,
    /// Frequency governor of every CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub governor: Option<String>,
    /// CPUs that the kernel keeps other work off (`isolcpus`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub isolated_cpus: Option<CpuSet>,
    /// Least number of CPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<usize>,
    /// Scheduler of ordinary threads; the kernel's own when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<Scheduler>,
}

/// A scheduler of ordinary threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scheduler {
    /// One queue for all CPUs, first come first served.
    SchedExt,
}

impl MachineAsked {
    /// Whether nothing is asked.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Asks for `name`, as a campaign's factor gives it.
    ///
    /// # Errors
    /// A sentence with what is accepted.
    pub(crate) fn ask(&mut self, name: &str, value: &toml::Value) -> Result<(), String> {
        let refuse = |accepted: &str| Err(format!("machine.{name} = {value}: accepted are {accepted}"));
        match name {
            "rt_runtime_us" => match value.as_integer().filter(|us| (-1..=1_000_000).contains(us)) {
                Some(us) => self.rt_runtime_us = Some(us),
                None => return refuse("-1 (no limit) to 1000000"),
            },
            "governor" => match value.as_str().filter(|name| is_word(name)) {
                Some(governor) => self.governor = Some(governor.to_owned()),
                None => return refuse("names of governors, such as \"performance\""),
            },
            "isolated_cpus" => match value.as_str().and_then(|list| list.parse().ok()) {
                Some(cpus) => self.isolated_cpus = Some(cpus),
                None => return refuse("lists of CPUs, such as \"2-3\""),
            },
            "cpus" => match value.as_integer().and_then(|n| usize::try_from(n).ok()).filter(|&n| n > 0) {
                Some(cpus) => self.cpus = Some(cpus),
                None => return refuse("1 and more"),
            },
            "scheduler" => match value.as_str() {
                Some("kernel") => self.scheduler = None,
                Some("sched_ext") => self.scheduler = Some(Scheduler::SchedExt),
                _ => return refuse("\"kernel\" and \"sched_ext\""),
            },
            _ => {
                return Err(format!(
                    "machine.{name}: accepted are machine.rt_runtime_us, .governor, .isolated_cpus, .cpus and .scheduler"
                ));
            }
        }
        Ok(())
    }

    /// Sets up a guest of Takt, and labels the run with what the machine does not have. The
    /// scheduler lasts as long as what is returned.
    pub(crate) fn settle(&self, header: &mut RunHeader) -> Option<SchedExt> {
        if self.is_empty() {
            return None;
        }
        let is_guest = header.machine.virtual_machine.is_some();
        if is_guest {
            self.set_up(Path::new("/"));
            header.machine = Machine::read();
        }
        header.not_granted.extend(self.differences(&header.machine));
        let started = match (self.scheduler?, is_guest) {
            (Scheduler::SchedExt, true) => SchedExt::start().map_err(|error| error.to_string()),
            // It would schedule everybody's threads.
            (Scheduler::SchedExt, false) => {
                Err("only Takt's virtual machines can get another scheduler".to_owned())
            }
        };
        started.map_err(|why| header.not_granted.push(format!("scheduler: requested sched_ext: {why}"))).ok()
    }

    /// Writes what can be written below `root`. Reading back reveals the kernel's refusals.
    fn set_up(&self, root: &Path) {
        if let Some(us) = self.rt_runtime_us {
            let _ = fs::write(root.join(RT_RUNTIME), us.to_string());
        }
        let Some(governor) = &self.governor else { return };
        for entry in fs::read_dir(root.join(CPUS)).into_iter().flatten().flatten() {
            let file = entry.path().join("cpufreq/scaling_governor");
            // Never created: a CPU without the file has no governor.
            if file.is_file() {
                let _ = fs::write(file, governor);
            }
        }
    }

    /// Requested settings that the machine lacks, one sentence each, with the way out.
    fn differences(&self, machine: &Machine) -> Vec<String> {
        let mut missing = Vec::new();
        if let Some(asked) = self.rt_runtime_us.filter(|us| machine.rt_runtime_us != Some(*us)) {
            let has = machine.rt_runtime_us.map_or("none".to_owned(), |us| us.to_string());
            missing.push(format!(
                "sched_rt_runtime_us: requested {asked}, in effect {has}. Fix: sudo sysctl kernel.sched_rt_runtime_us={asked}"
            ));
        }
        if let Some(asked) = &self.governor {
            let others = machine.power.iter().filter(|power| power.governor.as_ref() != Some(asked));
            let others: Vec<String> = others
                .map(|power| match &power.governor {
                    Some(governor) => format!("CPUs {} have {governor}", power.cpus),
                    None => format!("CPUs {} have no governor", power.cpus),
                })
                .collect();
            if !others.is_empty() {
                let has_any = machine.power.iter().any(|power| power.governor.is_some());
                let way = match has_any {
                    true => format!("Fix: write {asked} to {CPUS}/cpu*/cpufreq/scaling_governor"),
                    false => "The hypervisor or the firmware sets the frequency".to_owned(),
                };
                missing.push(format!("governor: requested {asked}, {}. {way}", others.join(", ")));
            }
        }
        if let Some(asked) = &self.isolated_cpus {
            let isolated: CpuSet =
                machine.isolated_cpus.as_deref().and_then(|list| list.parse().ok()).unwrap_or_default();
            if !asked.without(&isolated).is_empty() {
                let has = if isolated.is_empty() { "none".to_owned() } else { isolated.to_string() };
                missing.push(format!(
                    "isolated CPUs: requested {asked}, in effect {has}. Fix: boot with isolcpus={asked}"
                ));
            }
        }
        if let Some(asked) = self.cpus {
            let online: CpuSet =
                machine.online_cpus.as_deref().and_then(|list| list.parse().ok()).unwrap_or_default();
            if online.len() < asked {
                missing.push(format!("CPUs: requested {asked}, available {}", online.len()));
            }
        }
        missing
    }
}

fn is_word(name: &str) -> bool {
    !name.is_empty() && name.len() < 16 && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;
    use takt_rundir::CpuPower;

    fn papers() -> MachineAsked {
        MachineAsked {
            rt_runtime_us: Some(-1),
            governor: Some("performance".to_owned()),
            isolated_cpus: Some("2-3".parse().unwrap()),
            cpus: Some(4),
            scheduler: None,
        }
    }

    fn machine(governor: Option<&str>) -> Machine {
        Machine {
            rt_runtime_us: Some(-1),
            isolated_cpus: Some("2-3".to_owned()),
            online_cpus: Some("0-3".to_owned()),
            power: vec![CpuPower {
                cpus: "0-3".to_owned(),
                governor: governor.map(str::to_owned),
                idle_states: Vec::new(),
            }],
            ..Machine::default()
        }
    }

    #[test]
    fn what_the_machine_has_not_is_named_with_the_way_out() {
        assert!(papers().differences(&machine(Some("performance"))).is_empty());
        let guest = papers().differences(&machine(None));
        assert_eq!(
            guest,
            [
                "governor: requested performance, CPUs 0-3 have no governor. The hypervisor or the firmware sets the frequency"
            ]
        );
        let slow = papers().differences(&machine(Some("powersave")));
        assert!(slow[0].contains("CPUs 0-3 have powersave") && slow[0].contains("Fix"), "{slow:?}");
        let small = Machine {
            rt_runtime_us: Some(950_000),
            isolated_cpus: None,
            online_cpus: Some("0".to_owned()),
            ..machine(Some("performance"))
        };
        let small = papers().differences(&small).join("\n");
        for word in [
            "requested -1, in effect 950000",
            "requested 2-3, in effect none",
            "CPUs: requested 4, available 1",
        ] {
            assert!(small.contains(word), "{small}");
        }
    }

    #[test]
    fn a_guest_is_set_up_where_it_has_the_files() {
        let root = tempfile::tempdir().unwrap();
        let governor = root.path().join("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
        fs::create_dir_all(governor.parent().unwrap()).unwrap();
        fs::create_dir_all(root.path().join("sys/devices/system/cpu/cpu1")).unwrap();
        fs::create_dir_all(root.path().join("proc/sys/kernel")).unwrap();
        fs::write(&governor, "powersave").unwrap();
        papers().set_up(root.path());
        assert_eq!(fs::read_to_string(&governor).unwrap(), "performance");
        assert_eq!(fs::read_to_string(root.path().join(RT_RUNTIME)).unwrap(), "-1");
        assert!(!root.path().join("sys/devices/system/cpu/cpu1/cpufreq").exists());
    }

    #[test]
    fn a_machine_that_is_no_guest_is_left_as_it_is() {
        let mut header = RunHeader::new("cyclic", "");
        header.machine.virtual_machine = None;
        let before = Machine::read().rt_runtime_us;
        let asked = MachineAsked { rt_runtime_us: Some(123_456), ..MachineAsked::default() };
        assert!(asked.settle(&mut header).is_none());
        assert_eq!(Machine::read().rt_runtime_us, before);
        assert!(header.not_granted[0].contains("requested 123456"), "{:?}", header.not_granted);
        let asked = MachineAsked { scheduler: Some(Scheduler::SchedExt), ..MachineAsked::default() };
        assert!(asked.settle(&mut header).is_none());
        assert!(header.not_granted[1].contains("only Takt's virtual machines"), "{:?}", header.not_granted);
    }
}

//! Power management of each CPU.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use takt_rt::placement::CpuSet;
use takt_rt::processor::{line, online};

/// Governor and idle states of CPUs that have the same ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuPower {
    /// The CPUs, as the kernel writes lists: `0-1,3`.
    pub cpus: String,
    /// Frequency governor; absent where the hypervisor or firmware sets the frequency.
    pub governor: Option<String>,
    /// Idle states, shallowest first; those switched off are marked: `C6 (off)`.
    pub idle_states: Vec<String>,
}

/// Power management of every online CPU below `root`.
pub(crate) fn power(root: &Path) -> Vec<CpuPower> {
    let mut alike: BTreeMap<(Option<String>, Vec<String>), CpuSet> = BTreeMap::new();
    for cpu in online(root).iter() {
        let folder = root.join(format!("sys/devices/system/cpu/cpu{cpu}"));
        let idle_states = (0..16).map_while(|state| {
            let state = folder.join(format!("cpuidle/state{state}"));
            let name = line(&state.join("name"))?;
            let off = line(&state.join("disable")).is_some_and(|text| text != "0");
            Some(if off { format!("{name} (off)") } else { name })
        });
        let key = (line(&folder.join("cpufreq/scaling_governor")), idle_states.collect());
        // The kernel's own list: no number is beyond the highest.
        alike.entry(key).or_default().insert(cpu);
    }
    let mut power: Vec<(Option<usize>, CpuPower)> = alike
        .into_iter()
        .map(|((governor, idle_states), cpus)| {
            (cpus.iter().next(), CpuPower { cpus: cpus.to_string(), governor, idle_states })
        })
        .collect();
    power.sort_by_key(|(first, _)| *first);
    power.into_iter().map(|(_, power)| power).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use takt_witness::plant::tree;

    #[test]
    fn every_cpu_reports_its_governor_and_idle_states() {
        let cpu = |n: usize, file: &str| format!("sys/devices/system/cpu/cpu{n}/{file}");
        let mut files = vec![("sys/devices/system/cpu/online".to_owned(), "0-3\n")];
        for n in 0..4 {
            files
                .push((cpu(n, "cpufreq/scaling_governor"), if n == 2 { "powersave" } else { "performance" }));
            files.push((cpu(n, "cpuidle/state0/name"), "POLL\n"));
            files.push((cpu(n, "cpuidle/state1/name"), "C6\n"));
            files.push((cpu(n, "cpuidle/state1/disable"), if n == 3 { "1\n" } else { "0\n" }));
        }
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        let power = power(tree(&files).path());
        let shown: Vec<_> = power
            .iter()
            .map(|p| (p.cpus.as_str(), p.governor.as_deref().unwrap(), p.idle_states.join(" ")))
            .collect();
        assert_eq!(
            shown,
            [
                ("0-1", "performance", "POLL C6".to_owned()),
                ("2", "powersave", "POLL C6".to_owned()),
                ("3", "performance", "POLL C6 (off)".to_owned()),
            ]
        );
    }
}

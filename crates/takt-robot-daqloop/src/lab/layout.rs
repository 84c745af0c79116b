//! Layouts that name more CPUs than the machine has: they run, and are labelled.
//!
//! The kernel takes a list of CPUs for the part of it that there is, so that a layout of four cores
//! would pass for one on a machine with two.

use takt_rt::placement::CpuSet;

use crate::DaqConfig;

/// Parts of the layout that this machine lacks, one sentence each; `online`: before any CPU was
/// taken offline for the run.
pub(super) fn beyond(file: &DaqConfig, online: &CpuSet) -> Vec<String> {
    let named = [
        ("acquisition.cpus", file.acquisition.cpus),
        ("saving.cpus", file.saving.cpus.filter(|_| file.saving.enabled)),
        ("link.echo.cpus", file.link.echo().and_then(|echo| echo.cpus)),
    ];
    let mut labels: Vec<String> = Vec::new();
    for (key, cpus) in named {
        let Some(cpus) = cpus else { continue };
        let missing = cpus.without(online);
        if !missing.is_empty() {
            labels.push(format!(
                "layout: {key} = {cpus} names CPU {missing}, which this machine does not have (it has {online}), so the run does not have \
                 the layout of its name"
            ));
        }
    }
    // "Offline from CPU 4 on" promises that CPUs 0 to 3 are there.
    let first = file.offline_cpus.and_then(|offline| offline.iter().next()).unwrap_or(0);
    if let Some(promised) = CpuSet::from_cpus(0..first).filter(|_| first > 0) {
        let missing = promised.without(online);
        if !missing.is_empty() {
            labels.push(format!(
                "layout: it keeps CPUs {promised} (offline_cpus begins at {first}), but this machine has {online}, so the run has fewer \
                 CPUs than its name says"
            ));
        }
    }
    labels
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AcquisitionConfig, SavingConfig};

    #[test]
    fn a_layout_with_more_cpus_than_there_are_is_labelled_and_one_that_fits_is_not() {
        let campaign = include_str!("../../../../campaigns/daq-cores.toml");
        let campaign: toml::Table = toml::from_str(campaign).unwrap();
        let levels = campaign["factor"].as_array().unwrap()[0]["values"].as_array().unwrap();
        assert_eq!(levels.len(), 7);
        for (cpus, fitting) in [("0-7", 7), ("0-3", 7), ("0-1", 3), ("0", 2)] {
            let online: CpuSet = cpus.parse().unwrap();
            let mut unlabelled = 0;
            for level in levels {
                let set = level["set"].as_table().unwrap();
                let text = |key: &str| set.get(key).and_then(|value| value.as_str()).map(str::to_owned);
                let cpus_of = |key: &str| text(key).map(|cpus| cpus.parse::<CpuSet>().unwrap());
                let file = DaqConfig {
                    offline_cpus: cpus_of("offline_cpus"),
                    acquisition: AcquisitionConfig {
                        cpus: cpus_of("placement"),
                        ..AcquisitionConfig::default()
                    },
                    saving: SavingConfig {
                        cpus: cpus_of("saving.cpus"),
                        enabled: set.get("saving.enabled").is_none(),
                        ..SavingConfig::default()
                    },
                    ..DaqConfig::default()
                };
                let labels = beyond(&file, &online);
                assert!(labels.iter().all(|label| label.contains(cpus)), "{labels:?}");
                unlabelled += usize::from(labels.is_empty());
                let name = level["name"].as_str().unwrap();
                if name.contains("four cores") && cpus == "0-1" {
                    assert!(labels.iter().any(|label| label.contains("fewer CPUs")), "{name}: {labels:?}");
                }
            }
            // With two CPUs: two cores, and one core with saving and without.
            assert_eq!(unlabelled, fitting, "{cpus}");
        }
        assert!(beyond(&DaqConfig::default(), &"0".parse().unwrap()).is_empty());
    }
}

//! Work of a load: the proof that it was there.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::system::Rates;

const MIB: f64 = (1u64 << 20) as f64;

/// End of a component before it was requested.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Death {
    /// Seconds since the load ran.
    pub after_s: f64,
    /// The known cause.
    pub why: String,
}

/// Description and work of one component.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ComponentReport {
    /// The component's kind, as in the profile.
    pub kind: String,
    /// Its tool: `stress-ng`, `hackbench` or `built-in`.
    pub tool: String,
    /// The tool's version string.
    pub version: Option<String>,
    /// Reason why built-in threads replaced the profile's tool; `None` when they did not.
    pub stand_in: Option<String>,
    /// The request, as the command line or in words, including applied bounds.
    pub asked: String,
    /// Processes (of a tool) or threads (built in) that were seen running at the start.
    pub processes: usize,
    /// CPU time used, seconds.
    pub cpu_s: f64,
    /// CPU time used as a share of what all online CPUs had, 0..=1.
    pub cpu_share: f64,
    /// Work done, by unit: `matrix_bogo_ops`, `bytes_written`, `datagrams_echoed`...
    pub proof: BTreeMap<String, u64>,
    /// Its end, if it did not last.
    pub died: Option<Death>,
}

impl ComponentReport {
    /// Whether the component worked from the start to the end.
    pub fn ran(&self) -> bool {
        self.died.is_none() && self.processes > 0 && self.cpu_s > 0.0 && self.proof.values().any(|&n| n > 0)
    }
}

/// Work of a load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoadReport {
    pub profile: String,
    /// From the moment when every component ran to the moment when they were instructed to end.
    pub seconds: f64,
    /// One entry per component, in the order of the profile.
    pub components: Vec<ComponentReport>,
    /// Activity of the whole machine in the meantime.
    pub system: Rates,
}

/// Difference (a share) up to which stress counts as the same: the time that two kernels leave to
/// greedy programs differs by their own cost, which is part of the comparison.
pub const STRESS_TOLERANCE: f64 = 0.25;

/// In what two sides did unequal work: a sentence for each kind, with the smaller amount first.
/// Work that one side alone reports is unequal, and so is work that neither did.
pub fn unequal(sides: [(&str, &BTreeMap<String, f64>); 2], tolerance: f64) -> Vec<String> {
    let kinds: std::collections::BTreeSet<&String> = sides.iter().flat_map(|(_, work)| work.keys()).collect();
    let differs = |kind: &&String| {
        let amounts = sides.map(|(name, work)| (name, work.get(*kind).copied().unwrap_or(0.0)));
        let [less, more] = if amounts[0].1 <= amounts[1].1 { amounts } else { [amounts[1], amounts[0]] };
        if less.1 > 0.0 && less.1 >= more.1 * (1.0 - tolerance) {
            return None;
        }
        if more.1 <= 0.0 {
            return Some(format!("{kind}: {} and {} did no work", less.0, more.0));
        }
        let share = 100.0 * (1.0 - less.1 / more.1);
        Some(format!(
            "{kind}: {:.1} on {} against {:.1} on {}, {share:.0} % less",
            less.1, less.0, more.1, more.0
        ))
    };
    kinds.iter().filter_map(differs).collect()
}

impl LoadReport {
    /// The work of the stressors: a second's worth of each count, and the memory that they held at
    /// the end (`memory_resident_mib`). Two runs under the same profile are comparable where these
    /// are equal ([`unequal`]).
    pub fn work(&self) -> BTreeMap<String, f64> {
        let mut work = BTreeMap::new();
        for component in &self.components {
            for (name, &count) in &component.proof {
                let (name, amount) = match name.as_str() {
                    "resident_bytes" => (format!("{}_resident_mib", component.kind), count as f64 / MIB),
                    // Runs of a tool, not its work.
                    "runs_started" | "runs_finished" => continue,
                    name if self.seconds > 0.0 => (format!("{name}_per_s"), count as f64 / self.seconds),
                    _ => continue,
                };
                *work.entry(name).or_insert(0.0) += amount;
            }
        }
        work
    }

    /// Sentences for everything that makes this load other than the profile means: deaths,
    /// stand-ins, work not done.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        for component in &self.components {
            let (kind, tool) = (&component.kind, &component.tool);
            if let Some(reason) = &component.stand_in {
                problems.push(format!("load {kind}: built-in threads replaced the tool: {reason}"));
            }
            if let Some(Death { after_s, why }) = &component.died {
                problems.push(format!("load {kind} ({tool}) ended after {after_s:.1} s: {why}"));
            } else if !component.ran() {
                problems.push(format!("load {kind} ({tool}) shows no work done"));
            }
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(kind: &str, proof: &[(&str, u64)]) -> LoadReport {
        let component = ComponentReport {
            kind: kind.to_owned(),
            tool: "stress-ng".to_owned(),
            version: None,
            stand_in: None,
            asked: String::new(),
            processes: 1,
            cpu_s: 1.0,
            cpu_share: 0.5,
            proof: proof.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect(),
            died: None,
        };
        let again = component.clone();
        LoadReport {
            profile: "x".to_owned(),
            seconds: 4.0,
            components: vec![component, again],
            system: Rates::default(),
        }
    }

    #[test]
    fn work_is_a_seconds_worth_of_all_components() {
        let work = report("memory", &[("memory_bogo_ops", 100), ("resident_bytes", 3 << 20)]).work();
        let wanted = [("memory_bogo_ops_per_s", 50.0), ("memory_resident_mib", 6.0)];
        assert_eq!(work, wanted.map(|(name, amount)| (name.to_owned(), amount)).into());
        assert!(report("hackbench", &[("runs_started", 4)]).work().is_empty());
        // A load of no length has done nothing that could be compared.
        let none = LoadReport { seconds: 0.0, ..report("fork", &[("fork_bogo_ops", 4)]) };
        assert!(none.work().is_empty());
    }

    #[test]
    fn unequal_work_is_named_with_both_sides() {
        let work = |fork: f64, matrix: f64| {
            BTreeMap::from([("fork".to_owned(), fork), ("matrix".to_owned(), matrix)])
        };
        let compared = |a, b| unequal([("generic", &a), ("rt", &b)], STRESS_TOLERANCE);
        assert!(compared(work(100.0, 80.0), work(76.0, 100.0)).is_empty(), "within a quarter, both ways");
        let less = compared(work(100.0, 80.0), work(74.0, 80.0));
        assert_eq!(less, ["fork: 74.0 on rt against 100.0 on generic, 26 % less"]);
        let more = compared(work(74.0, 80.0), work(100.0, 80.0));
        assert_eq!(more, ["fork: 74.0 on generic against 100.0 on rt, 26 % less"]);
        // Nothing on both sides is no work: 120 and 166 MiB with nothing done are not the same.
        assert_eq!(compared(work(0.0, 1.0), work(0.0, 1.0)), ["fork: generic and rt did no work"]);
        let one = BTreeMap::from([("fork".to_owned(), 1.0)]);
        assert_eq!(unequal([("a", &one), ("b", &BTreeMap::new())], 0.5).len(), 1);
        assert!(unequal([("a", &BTreeMap::new()), ("b", &BTreeMap::new())], 0.5).is_empty());
    }
}

//! Work done by the stressors: two kernels are comparable under stress only if both did the same.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use takt_load::{LoadReport, STRESS_TOLERANCE, unequal};
use takt_rundir::RunHeader;

use super::apply::KERNEL;
use super::table::Row;

/// A kernel, and what the stressors did on it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StressSide {
    /// As the campaign calls it.
    pub kernel: String,
    /// Units in the names: `fork_bogo_ops_per_s`, `memory_resident_mib`.
    pub work: BTreeMap<String, f64>,
}

/// The stressors' work on every kernel in one configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StressComparison {
    /// The other factors in one line.
    pub configuration: String,
    /// The kernels in the campaign's order; the others are compared with the first.
    pub sides: Vec<StressSide>,
    /// Difference (a share) up to which the work counts as the same.
    pub tolerance: f64,
    /// Whether all did the same work within the tolerance.
    pub equal: bool,
    /// In what they did not, a sentence each: then the kernels are not compared.
    pub unequal: Vec<String>,
}

impl fmt::Display for StressComparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kernels: Vec<&str> = self.sides.iter().map(|side| side.kernel.as_str()).collect();
        let percent = 100.0 * self.tolerance;
        if self.equal {
            write!(f, "Stress work, {}: equal within {percent:.0} %", self.configuration)?;
        } else {
            write!(
                f,
                "NOT COMPARABLE, {}: the stressors did different amounts of work (differences up to {percent:.0} % are accepted)",
                self.configuration
            )?;
        }
        let kinds = self.sides.first().map(|side| side.work.keys()).into_iter().flatten();
        for kind in kinds {
            let amounts = self.sides.iter().map(|side| match side.work.get(kind) {
                Some(amount) => format!("{amount:.1}"),
                None => "-".to_owned(),
            });
            write!(f, "\n  {kind}: {} ({})", amounts.collect::<Vec<_>>().join(" / "), kernels.join(" / "))?;
        }
        self.unequal.iter().try_for_each(|sentence| write!(f, "\n  {sentence}"))
    }
}

/// Work done by the stressors in a run; empty without stress.
pub fn stress_work(header: &RunHeader) -> BTreeMap<String, f64> {
    // Run directories of older versions may hold another report.
    serde_json::from_value::<LoadReport>(header.load.clone()).map(|load| load.work()).unwrap_or_default()
}

/// The mean over runs. A kind of work that a run does not report was not done in it.
pub(super) fn mean_work<'a>(runs: impl Iterator<Item = &'a RunHeader>) -> BTreeMap<String, f64> {
    let (mut sums, mut count) = (BTreeMap::<String, f64>::new(), 0_u32);
    for header in runs {
        count += 1;
        for (kind, amount) in stress_work(header) {
            *sums.entry(kind).or_default() += amount;
        }
    }
    sums.values_mut().for_each(|sum| *sum /= f64::from(count.max(1)));
    sums
}

/// In what the stressors did unequal work in two sets of runs, a sentence each; nothing where both
/// sides did the same, and where neither reports any.
pub fn unequal_stress(sides: [(&str, Vec<&RunHeader>); 2]) -> Vec<String> {
    let [(first, before), (second, after)] = sides;
    let [before, after] = [before, after].map(|headers| mean_work(headers.into_iter()));
    unequal([(first, &before), (second, &after)], STRESS_TOLERANCE)
}

/// Compares the rows that differ in their kernel alone, and notes in each that its figures are not
/// comparable where its stressors did other work than those of the first.
pub(super) fn compare(rows: &mut [Row]) -> Vec<StressComparison> {
    let others = |row: &Row| {
        let others = row.factors.iter().filter(|factor| factor.name != KERNEL);
        others.map(|factor| format!("{} {}", factor.name, factor.value)).collect::<Vec<_>>().join(", ")
    };
    let mut alike: Vec<(String, Vec<usize>)> = Vec::new();
    for (index, row) in rows.iter().enumerate() {
        if row.factor(KERNEL).is_none() || row.measured == 0 {
            continue;
        }
        let configuration = others(row);
        match alike.iter_mut().find(|(known, _)| *known == configuration) {
            Some((_, indices)) => indices.push(index),
            None => alike.push((configuration, vec![index])),
        }
    }
    // One kernel has nothing to be compared with, and idle ones have done nothing.
    alike.retain(|(_, indices)| {
        indices.len() > 1 && indices.iter().any(|&index| !rows[index].stress_work.is_empty())
    });
    alike.into_iter().map(|(configuration, indices)| compare_one(rows, configuration, &indices)).collect()
}

fn compare_one(rows: &mut [Row], configuration: String, indices: &[usize]) -> StressComparison {
    let sides: Vec<StressSide> = indices
        .iter()
        .map(|&index| StressSide {
            kernel: rows[index].factor(KERNEL).unwrap_or_default().to_owned(),
            work: rows[index].stress_work.clone(),
        })
        .collect();
    let mut all = Vec::new();
    for (side, &index) in sides.iter().zip(indices).skip(1) {
        let first = &sides[0];
        let less = unequal([(&first.kernel, &first.work), (&side.kernel, &side.work)], STRESS_TOLERANCE);
        if !less.is_empty() {
            rows[index].problems.push(format!(
                "not comparable with kernel {}: the stressors did different amounts of work ({})",
                first.kernel,
                less.join("; ")
            ));
        }
        all.extend(less);
    }
    StressComparison {
        configuration,
        sides,
        tolerance: STRESS_TOLERANCE,
        equal: all.is_empty(),
        unequal: all,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use takt_rundir::Factor;

    fn row(kernel: &str, stress: &str, forks: f64) -> Row {
        let factor = |name: &str, value: &str| Factor { name: name.to_owned(), value: value.to_owned() };
        let work = (stress != "off").then(|| ("fork_bogo_ops_per_s".to_owned(), forks));
        Row {
            factors: vec![factor("kernel", kernel), factor("stress", stress)],
            measured: 1,
            stress_work: work.into_iter().collect(),
            ..Row::default()
        }
    }

    #[test]
    fn kernels_are_compared_where_all_else_is_alike() {
        let mut rows =
            [row("a", "off", 0.0), row("b", "off", 0.0), row("a", "uav", 100.0), row("b", "uav", 90.0)];
        let compared = compare(&mut rows);
        assert_eq!(compared.len(), 1, "idle runs have no work to compare: {compared:?}");
        assert!(compared[0].equal && compared[0].unequal.is_empty());
        assert_eq!((compared[0].configuration.as_str(), compared[0].sides.len()), ("stress uav", 2));
        assert!(rows.iter().all(|row| row.problems.is_empty()));
        let text = compared[0].to_string();
        assert!(text.contains("equal within 25 %") && text.contains("100.0 / 90.0 (a / b)"), "{text}");
    }

    #[test]
    fn unequal_work_is_refused_as_a_comparison() {
        let mut rows = [row("a", "uav", 100.0), row("b", "uav", 60.0), row("c", "uav", 99.0)];
        let compared = compare(&mut rows);
        assert!(!compared[0].equal);
        assert!(compared[0].to_string().starts_with("NOT COMPARABLE, stress uav"), "{}", compared[0]);
        assert!(rows[0].problems.is_empty() && rows[2].problems.is_empty());
        assert!(rows[1].problems[0].contains("not comparable with kernel a"), "{:?}", rows[1].problems);
        assert!(rows[1].problems[0].contains("40 % less"), "{:?}", rows[1].problems);
    }

    #[test]
    fn stressors_that_did_nothing_are_no_equals() {
        let mut rows = [row("a", "uav", 0.0), row("b", "uav", 0.0)];
        assert!(!compare(&mut rows)[0].equal);
        // A stress of which one kernel reports nothing at all.
        let mut rows = [row("a", "uav", 5.0), Row { stress_work: BTreeMap::new(), ..row("b", "uav", 0.0) }];
        assert!(!compare(&mut rows)[0].equal);
        let mut alone = [row("a", "uav", 5.0)];
        assert!(compare(&mut alone).is_empty());
    }
}

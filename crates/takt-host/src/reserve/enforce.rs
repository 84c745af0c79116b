//! Precision of the kernel's budget enforcement, switched to exact if possible, and measured.
//!
//! Budgets are looked at on scheduler ticks unless the feature `HRTICK_DL` (`HRTICK` before 5.12)
//! sets a timer at their end. On ticks a thread may run for up to one tick beyond its budget in one
//! go, and is then held back for as many periods as that was worth: 0.5 ms in 10 ms ran 3.9 ms at
//! 250 Hz, and was away for 79 ms where the bound of an exact server says 19 (6.18). The switch
//! lies in debugfs, which a locked-down kernel closes, and a container lacks; then a thread of ours
//! tries what holds.

use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use takt_rt::placement::CpuSet;

use crate::reserve::partition::{Partition, Trouble, at};
pub use crate::reserve::restore::FEATURE_FILES;
use crate::reserve::restore::{self, Change, FEATURES, Journal};
use crate::reserve::system::{Attributes, Kernel};

/// The trial's reservation: a small budget, so that a tick is much, and a period that no tick
/// divides. A multiple of the tick would keep its phase, and in a quarter of all phases a tick
/// comes soon after the budget's end each time and looks exact.
const BUDGET_NS: u64 = 300_000;
const PERIOD_NS: u64 = 7_137_000;
const TRIAL_NS: u64 = 210_000_000;
/// So many times at least it must have run out of budget: on ticks, a tick's debt lets it run two
/// or three times.
const MIN_RUNS: usize = 10;

/// Budget enforcement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enforcement {
    /// Longest time after the budget's end at which a thread is stopped; 0: exactly.
    pub granularity_ns: u64,
    /// The longest that a thread of ours ran in one go with 0.3 ms in 7.137 ms; `None`: not tried.
    pub longest_run_ns: Option<u64>,
    /// By what this is known, for people.
    pub by: String,
}

impl Enforcement {
    fn ticks(kernel: &dyn Kernel, longest_run_ns: Option<u64>, why: &str) -> Self {
        let granularity_ns = kernel.tick_ns();
        let tick_ms = granularity_ns as f64 / 1e6;
        Self { granularity_ns, longest_run_ns, by: format!("on ticks of {tick_ms} ms: {why}") }
    }
}

/// The file, the switch and whether it is on.
fn switch(kernel: &dyn Kernel) -> Result<(&'static str, &'static str, bool), String> {
    let mut why = String::new();
    for file in FEATURE_FILES {
        match kernel.read(Path::new(file)) {
            Ok(text) => {
                for feature in FEATURES {
                    for word in text.split_whitespace() {
                        if word.strip_prefix("NO_").unwrap_or(word) == feature {
                            return Ok((file, feature, word == feature));
                        }
                    }
                }
                return Err(format!("{file} has no {}: the kernel was built without it", FEATURES[0]));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound && !why.is_empty() => {}
            Err(error) => why = format!("{file}: {error}"),
        }
    }
    Err(why)
}

/// Knowledge without a trial: an observer changes nothing.
#[must_use]
pub fn known(kernel: &dyn Kernel) -> Enforcement {
    match switch(kernel) {
        Ok((_, feature, true)) => {
            Enforcement { granularity_ns: 0, longest_run_ns: None, by: format!("exactly, by {feature}") }
        }
        Ok((_, feature, false)) => Enforcement::ticks(kernel, None, &format!("{feature} is off")),
        Err(why) => Enforcement::ticks(kernel, None, &why),
    }
}

/// Switches exact enforcement on, through the journal. The reason where it stays as it is; `None`:
/// it is on.
///
/// # Errors
///
/// The state file cannot be written; nothing was changed then.
pub fn sharpen(kernel: &mut dyn Kernel, journal: &mut Journal) -> Result<Option<String>, restore::Error> {
    let (file, feature) = match switch(kernel) {
        Ok((_, _, true)) => return Ok(None),
        Ok((file, feature, false)) => (Path::new(file), feature),
        Err(why) => return Ok(Some(why)),
    };
    journal.change(Change::File { path: file.to_owned(), undo: format!("NO_{feature}") })?;
    let outcome = kernel.write(file, feature).map_err(at(file));
    Ok(match (outcome, switch(kernel)) {
        (Err(Trouble::Closed(why)), _) => Some(why),
        (_, Ok((_, _, true))) => None,
        _ => Some(format!("{feature} was written to {} but is still off", file.display())),
    })
}

/// Finds out by a thread of our own that spins on `core` for a fifth of a second. `why`: what is
/// known of the switch, for people.
#[must_use]
pub fn measure(
    kernel: &mut dyn Kernel,
    journal: &mut Journal,
    partition: &Partition,
    core: usize,
    why: Option<String>,
) -> Enforcement {
    let runs = attempt(kernel, journal, partition, core);
    kernel.end_scratch();
    let runs = match runs {
        Ok(runs) => runs,
        Err(error) => return Enforcement::ticks(kernel, None, &format!("no trial was possible: {error}")),
    };
    // The last one was cut off by the end of the trial.
    let whole = runs.split_last().map_or(&[][..], |(_, whole)| whole);
    let longest_ns = whole.iter().map(|(from, to)| to - from).max().unwrap_or(0);
    let slack_ns = kernel.tick_ns() / 4;
    if whole.len() >= MIN_RUNS && longest_ns <= BUDGET_NS + slack_ns {
        let by = format!("exactly: a trial with 0.3 ms ran at most {:.2} ms", longest_ns as f64 / 1e6);
        return Enforcement { granularity_ns: 0, longest_run_ns: Some(longest_ns), by };
    }
    let why = why.unwrap_or_else(|| "HRTICK_DL is on, but a trial ran longer".to_owned());
    Enforcement::ticks(kernel, Some(longest_ns), &why)
}

fn attempt(
    kernel: &mut dyn Kernel,
    journal: &mut Journal,
    partition: &Partition,
    core: usize,
) -> Result<Vec<(u64, u64)>, String> {
    let words = |error: io::Error| error.to_string();
    let (pid, tid) = kernel.scratch().map_err(words)?;
    journal.record(kernel, [(pid, tid)], partition.mode.groups()).map_err(|error| error.to_string())?;
    journal
        .give(CpuSet::single(core).map_err(|error| error.to_string())?)
        .map_err(|error| error.to_string())?;
    let before = journal.before(pid, tid).cloned();
    let asked = Attributes::reservation(BUDGET_NS, PERIOD_NS, false);
    let runs = partition
        .reserve(kernel, pid, tid, core, &asked)
        .and_then(|()| kernel.spin_scratch(TRIAL_NS))
        .map_err(words);
    let _ = kernel.set_attributes(tid, &Attributes::other(0));
    if let Some(before) = before {
        let _ = kernel.set_attributes(tid, &before.attributes);
        let _ = partition.displace(kernel, &before);
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reserve::mode::Mode;
    use crate::reserve::partition::establish;
    use crate::reserve::system::sim::Sim;

    const FILE: &str = FEATURE_FILES[0];

    fn with(features: Option<&str>, tick_ns: u64, exact: bool) -> (Sim, Enforcement, String) {
        let folder = tempfile::tempdir().unwrap();
        let mut sim = Sim::new(2);
        (sim.tick_ns, sim.exact) = (tick_ns, exact);
        if let Some(features) = features {
            sim.files.insert(FILE.into(), features.into());
        }
        let (mut journal, _) = Journal::begin(&mut sim, &folder.path().join("state.json")).unwrap();
        let (partition, _) = establish(&mut sim, &mut journal, &[Mode::AdmissionOff], &[1]).unwrap();
        let why = sharpen(&mut sim, &mut journal).unwrap();
        let enforced = measure(&mut sim, &mut journal, &partition.unwrap(), 1, why);
        let during = sim.files.get(Path::new(FILE)).cloned().unwrap_or_default();
        let restored = journal.undo(&mut sim).unwrap();
        assert!(restored.is_complete(), "{restored}");
        (sim, enforced, during)
    }

    #[test]
    fn the_switch_is_turned_on_and_back() {
        let features = "GENTLE_FAIR_SLEEPERS NO_HRTICK NO_HRTICK_DL WAKEUP_PREEMPTION\n";
        let (sim, enforced, during) = with(Some(features), 4_000_000, true);
        assert!(during.contains(" HRTICK_DL ") && during.contains("NO_HRTICK "), "{during}");
        assert_eq!(enforced.granularity_ns, 0, "{enforced:?}");
        assert!(sim.files[Path::new(FILE)].contains("NO_HRTICK_DL"), "{:?}", sim.files);
        // One that was on already stays on.
        let (sim, enforced, _) = with(Some("HRTICK_DL\n"), 4_000_000, true);
        assert_eq!(enforced.granularity_ns, 0);
        assert_eq!(sim.files[Path::new(FILE)].trim(), "HRTICK_DL");
        // Before 5.12 there is one switch for all.
        let (sim, _, during) = with(Some("NO_HRTICK\n"), 4_000_000, true);
        assert_eq!((during.trim(), sim.files[Path::new(FILE)].trim()), ("HRTICK", "NO_HRTICK"));
    }

    #[test]
    fn what_a_trial_shows_counts_and_not_what_a_file_says() {
        for features in [None, Some("NO_HRTICK_DL\n"), Some("WAKEUP_PREEMPTION\n")] {
            for tick_ns in [1_000_000, 4_000_000, 10_000_000] {
                let (_, enforced, _) = with(features, tick_ns, false);
                assert_eq!(enforced.granularity_ns, tick_ns, "{features:?}: {enforced:?}");
                assert!(enforced.longest_run_ns.is_some());
            }
        }
        // Nobody may look at the switches, and it is on all the same.
        assert_eq!(with(None, 4_000_000, true).1.granularity_ns, 0);
    }
}

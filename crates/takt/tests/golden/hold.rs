//! Golden files held against what was seen; shared by the tests that make the real runs.

// Every test file uses a part; helpers of tests may panic as tests may.
#![allow(dead_code, clippy::unwrap_used)]

#[path = "shape.rs"]
pub mod shape;

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::takt::{read_json, root};
use shape::Free::{Absent, Keys};
use shape::{Freedom, Golden, Shape, columns, shape_of};

/// A freedom in all golden files.
pub const fn free(what: shape::Free, place: &'static str, why: &'static str) -> Freedom {
    Freedom { files: &[], place, what, why }
}

const fn of_ros(place: &'static str, why: &'static str) -> Freedom {
    Freedom { files: &["ros"], place, what: Keys, why }
}

const fn of_manage(what: shape::Free, place: &'static str, why: &'static str) -> Freedom {
    Freedom { files: &["manage-learn", "manage-observe"], place, what, why }
}

const fn of_analyse(what: shape::Free, place: &'static str, why: &'static str) -> Freedom {
    Freedom { files: &["ethercat-analyse"], place, what, why }
}

const fn of_tune(what: shape::Free, place: &'static str, why: &'static str) -> Freedom {
    Freedom { files: &["tune", "tune-guests"], place, what, why }
}

/// Values that chance and the machine decide.
pub const FREEDOMS: &[Freedom] = &[
    // Verdicts.
    free(Absent, "failures", "only of a run that failed"),
    free(Absent, "doubts", "only of a run that is in doubt"),
    free(Absent, "excused", "only of a measure that is not judged"),
    free(Absent, "longest_miss_run", "in the header only where something was missed between checkpoints"),
    free(Absent, "measure_more_samples", "only of an INCONCLUSIVE verdict"),
    free(Absent, "measure_more_s", "likewise"),
    free(Absent, "misses_per_job_below", "only of a PASS"),
    free(Absent, "never", "only where releases never ran"),
    // The machine.
    free(Absent, "run.machine.virtual_machine", "only in one of ours"),
    free(Absent, "run.machine.governor", "no cpufreq in a virtual machine"),
    free(Absent, "run.machine.isolated_cpus", "only where CPUs are isolated"),
    free(Absent, "run.machine.nohz_full_cpus", "likewise"),
    free(Absent, "run.machine.thermal_throttles", "not counted by every processor"),
    free(Absent, "run.machine.power", "no cpufreq or no cpuidle in a virtual machine"),
    free(Absent, "changes", "only where the doctor can change something"),
    free(Keys, "--json[].measured", "the doctor's figures: no PSI, no cpufreq, no clock to compare with"),
    free(Keys, "effective.policy", "its keys are those of the policy that the kernel granted"),
    free(Keys, "policy_before", "likewise"),
    free(Keys, "policy_after", "likewise"),
    // What happened.
    free(Keys, "lights", "named by what was shown"),
    free(Keys, "stop_causes", "named by what happened"),
    Freedom { files: &["cell", "bench-cell", "demo"], place: "losses", what: Keys, why: "likewise" },
    free(Keys, "unjudged", "likewise"),
    of_ros("run.plan", "what was decided, from what was seen in two seconds"),
    of_ros("run.model", "what was learnt, likewise"),
    of_ros("run.manager", "likewise"),
    of_ros("samples", "a file for each chain of which something came through"),
    of_ros("figures", "named by chains"),
    of_manage(Keys, "model.callbacks[].kind", "its keys are those of the kind of callback"),
    of_manage(Keys, "model.threads[].role", "its keys are those of the role"),
    of_manage(Keys, "plan.chains[].state", "its keys are those of the state"),
    of_manage(Keys, "plan.decisions[].step", "its keys are those of the decision"),
    of_manage(Absent, "room", "only where the goals leave room"),
    of_manage(Absent, "measured_bound_ns", "only beside a bound for more than was measured"),
    of_manage(Absent, "measured_bound_ms", "likewise"),
    of_manage(Absent, "bound_parts", "only of a chain with a bound"),
    of_manage(Absent, "given_up_why", "only of a chain that was given up"),
    of_manage(Absent, "worst_false_ms", "only where a guarantee was false"),
    of_manage(Absent, "refutations", "only where an assumption was seen broken"),
    of_manage(Absent, "observed", "only of an assumption that something was seen of"),
    of_manage(Absent, "why", "not of what is kept"),
    of_manage(Absent, "jitter", "only of a chain with a jitter goal"),
    of_manage(Absent, "jitter_goal_ms", "likewise"),
    of_manage(Absent, "best_case_ms", "likewise"),
    of_manage(Absent, "jitter_ms", "only where several messages came through"),
    of_manage(Absent, "clock_error_ms", "only of a chain from another machine"),
    of_manage(Absent, "clock_error_by", "likewise"),
    of_manage(Absent, "recent", "only where something was decided"),
    Freedom { files: &["watch"], place: "jitter_us", what: Absent, why: "only where a period was found" },
    Freedom { files: &["watch"], place: "release_interval_us", what: Absent, why: "likewise" },
    of_analyse(Keys, "blames", "named by who was to blame"),
    of_analyse(Keys, "kinds", "named by what was found"),
    of_analyse(
        Absent,
        "round_trip",
        "only where both ends were captured, or frames matched the robot's cycles",
    ),
    of_analyse(Absent, "outward", "likewise"),
    of_analyse(Absent, "homeward", "likewise"),
    of_analyse(Absent, "in_segment", "likewise"),
    of_analyse(Absent, "host_send", "likewise"),
    Freedom { files: &["gpu-check"], place: "figures", what: Keys, why: "each step has its own" },
    free(Keys, "--json.activations", "named by what was activated"),
    free(Keys, "--json.unmatched", "likewise"),
    free(Keys, "--json.missing_steps", "named by the steps that are missing"),
    free(Keys, "--json.switches", "named by how many there were"),
    free(Keys, "--json.by_kind", "named by the cases that were asked for"),
    free(Keys, "--json.rows[].activations", "named by what happened"),
    free(
        Keys,
        "--json.rows[].verdicts",
        "counted by verdict: a short run beside others may pass, fail or decide nothing",
    ),
    free(Keys, "--json.bench[].verdicts", "likewise"),
    of_tune(Keys, "settings", "its keys are those of the kind of setting; none of a knob that is refused"),
    of_tune(Absent, "note", "only where something is to be said"),
    of_tune(Absent, "cost", "only of a setting that costs something"),
    of_tune(Absent, "within_limit", "only where the aim has a limit"),
    of_tune(Absent, "undecided", "only where the time was over before the search"),
    Freedom { files: &["demo"], place: "scaled", what: Absent, why: "only where the machine carries less" },
];

/// The golden file of this name.
#[track_caller]
pub fn hold(name: &str, seen: &Shape) {
    let path = root().join("crates/takt/tests/golden").join(format!("{name}.txt"));
    Golden::new(&path, &fs::read_to_string(&path).unwrap_or_default(), FREEDOMS).hold(seen);
}

/// Result of a run: `run.json`, `summary.json`, samples.
pub fn run_shape(run_dir: &Path) -> Shape {
    let mut shape = Shape::new();
    for name in ["run", "summary"] {
        shape_of(&mut shape, name, &read_json(&run_dir.join(format!("{name}.json"))));
    }
    columns(&mut shape, run_dir);
    shape
}

pub fn shape(name: &str, value: &Value) -> Shape {
    let mut shape = Shape::new();
    shape_of(&mut shape, name, value);
    shape
}

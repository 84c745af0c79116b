//! Bounds against those of the PyPI package `response-time-analysis`, where scopes meet
//! (tools/reference/rta.py).

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::Command;

use serde::Deserialize;
use takt_manager::analysis::{Analysis, Bound, Method};
use takt_manager::simulate::{System, Trigger};
use takt_manager::workload::{Reading, Workload};

const SHIPPED: &str = include_str!("../data/rta.json");

#[derive(Deserialize)]
struct Cases {
    alone: Vec<Alone>,
    shared: Vec<SharedCase>,
}

#[derive(Deserialize)]
struct Alone {
    period: u64,
    budget: u64,
    task: Task,
    bound: u64,
}

#[derive(Deserialize)]
struct SharedCase {
    tasks: Vec<Task>,
    bounds: Vec<u64>,
}

#[derive(Deserialize)]
struct Task {
    period: u64,
    jitter: u64,
    cost: u64,
}

fn bounds(tasks: &[Task], source: bool, period: u64, budget: u64) -> Vec<Bound> {
    bounds_by(tasks, source, period, budget, false)
}

fn bounds_by(tasks: &[Task], source: bool, period: u64, budget: u64, published: bool) -> Vec<Bound> {
    let mut system = System::default();
    let executor = system.executor("x", source);
    for (number, task) in tasks.iter().enumerate() {
        let trigger = Trigger::Periodic { period_ns: task.period, jitter_ns: task.jitter };
        system.callback(executor, &format!("t{number}"), trigger, vec![task.cost], vec![]);
    }
    let model = system.exact_model();
    let workload =
        Workload::new(&model, &Reading { cost_margin: 0.0, arrival_margin: 0.0, exceedance: None });
    let mut analysis = Analysis::new(&workload, period, 10_000_000, 0);
    if published {
        analysis = analysis.as_published();
    }
    let solution = analysis.solve(&[budget], &[0]);
    solution.responses.into_iter().map(|b| b.expect("bounded there, bounded here")).collect()
}

#[test]
fn a_thread_alone_has_the_same_bound_but_for_one_wait() {
    let cases: Cases = serde_json::from_str(SHIPPED).unwrap();
    assert_eq!(cases.alone.len(), 60);
    for case in cases.alone {
        let ours = bounds(std::slice::from_ref(&case.task), true, case.period, case.budget);
        // The package's periodic resource is for intervals that begin anywhere: one wait more for
        // the budget.
        let most = case.period - case.budget;
        assert!(
            (case.bound.saturating_sub(most)..=case.bound).contains(&ours[0].ns),
            "{} against {}, period {}, budget {}",
            ours[0].ns,
            case.bound,
            case.period,
            case.budget
        );
    }
}

#[test]
fn a_callback_behind_all_others_has_the_same_bound_or_a_tighter_one_of_rtss21() {
    let cases: Cases = serde_json::from_str(SHIPPED).unwrap();
    assert_eq!(cases.shared.len(), 60);
    let (mut same, mut tighter) = (0, 0);
    for case in cases.shared {
        let ours = bounds(&case.tasks, false, 100, 100);
        for (ours, theirs) in ours.iter().zip(&case.bounds) {
            match ours.by {
                Method::Ecrts19 => assert_eq!(ours.ns, *theirs),
                Method::Rtss21Bw => assert!(ours.ns < *theirs),
                Method::Fifo | Method::Threads | Method::Joint => panic!("a single thread with a wait set"),
            }
            same += u32::from(ours.ns == *theirs);
            tighter += u32::from(ours.ns < *theirs);
        }
    }
    println!("{same} equal, {tighter} tighter");
    assert!(same > 50, "{same} equal, {tighter} tighter");
}

/// The paper's manager has the package's analysis and its supply: the same bounds, none tighter.
#[test]
fn as_published_every_bound_is_the_packages() {
    let cases: Cases = serde_json::from_str(SHIPPED).unwrap();
    for case in cases.alone {
        let task = std::slice::from_ref(&case.task);
        let ours = bounds_by(task, true, case.period, case.budget, true);
        assert_eq!(ours[0].ns, case.bound, "period {}, budget {}", case.period, case.budget);
    }
    for case in cases.shared {
        let ours = bounds_by(&case.tasks, false, 100, 100, true);
        assert!(ours.iter().all(|bound| bound.by == Method::Ecrts19));
        assert_eq!(ours.iter().map(|bound| bound.ns).collect::<Vec<_>>(), case.bounds);
    }
}

/// The shipped bounds are those of the package.
#[test]
fn the_package_still_gives_these_bounds() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let own = root.join(".venv/bin/python3");
    let python = if own.exists() { own } else { "python3".into() };
    let run = |arguments: &[&str]| Command::new(&python).args(arguments).current_dir(&root).output();
    if !run(&["-c", "import response_time_analysis"]).is_ok_and(|o| o.status.success()) {
        assert!(
            std::env::var_os("TAKT_REQUIRE_OUTSIDE").is_none(),
            "the Python package response-time-analysis is missing: run tools/install-outside"
        );
        takt_witness::skip!("no Python package response-time-analysis (tools/install-outside installs it)");
        return;
    }
    let output = run(&["tools/reference/rta.py"]).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let fresh: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(fresh, serde_json::from_str::<serde_json::Value>(SHIPPED).unwrap());
}

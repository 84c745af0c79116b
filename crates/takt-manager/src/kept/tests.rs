use std::os::unix::fs::PermissionsExt;

use takt_model::{
    ArrivalCurve, CallbackKind, Executor, ExecutorId, ExecutorKind, Thread, ThreadId, ThreadRole,
};

use super::*;

/// One callback of this very process.
fn model(cost_ns: u64, span_ns: u64, seen: u64) -> Model {
    let pid = std::process::id();
    let role = ThreadRole::Executor(ExecutorId(0));
    Model {
        threads: vec![Thread { pid, tid: pid, name: String::new(), role, ended: false }],
        executors: vec![Executor {
            kind: ExecutorKind::SingleThreaded,
            threads: vec![ThreadId(0)],
            callbacks: vec![takt_model::CallbackId(0)],
            groups: Vec::new(),
        }],
        callbacks: vec![Callback {
            arrivals: ArrivalCurve { least_span_ns: vec![span_ns, 2 * span_ns], seen, observed_ns: 1 },
            cost: CostCurve {
                most_ns: vec![cost_ns, 2 * cost_ns],
                seen,
                total_ns: seen * cost_ns,
                cpu_time: true,
            },
            ..Callback::unseen("/a timer 100ms", ExecutorId(0), CallbackKind::Timer { period_ns: span_ns })
        }],
        ..Model::default()
    }
}

/// The next run.
fn next(kept: Kept) -> Kept {
    Kept { earlier: None, mentioned: BTreeSet::new(), ..kept }
}

fn first(model: &Model) -> (u64, u64) {
    (model.callbacks[0].cost.most_ns[0], model.callbacks[0].arrivals.least_span_ns[0])
}

#[test]
fn a_restart_begins_with_what_was_known() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.json");
    let (mut kept, words) = Kept::read(&path).unwrap();
    assert!(kept.is_empty() && words.is_none());
    assert!(kept.complete(&mut model(5_000_000, 100_000_000, 50)).is_empty());
    kept.write(&path).unwrap();
    let (mut kept, words) = Kept::read(&path).unwrap();
    assert_eq!(words, None);
    // The first activations of the next run: cheap ones.
    let mut live = model(1_000_000, 110_000_000, 2);
    let words = kept.complete(&mut live);
    assert_eq!(words, ["using the model of an earlier run: 1 of 1 callbacks"]);
    assert_eq!(first(&live), (5_000_000, 100_000_000));
    assert!(kept.complete(&mut live).is_empty(), "said once");
}

#[test]
fn what_reality_refutes_is_dropped_and_said() {
    let mut kept = Kept::default();
    kept.complete(&mut model(5_000_000, 100_000_000, 50));
    let mut kept = next(kept);
    let mut live = model(5_900_000, 100_000_000, 50);
    let words = kept.complete(&mut live).join("\n");
    assert!(words.contains("takes 5.9 ms, above the stored maximum of 5.0 ms"), "{words}");
    assert_eq!(first(&live), (5_900_000, 100_000_000));
    let mut kept = next(kept);
    let mut live = model(5_000_000, 40_000_000, 50);
    let words = kept.complete(&mut live).join("\n");
    assert!(
        words.contains("2 activations came within 40.0 ms, below the stored minimum of 100 ms"),
        "{words}"
    );
    // From then on, only observed values are stored: the earlier higher cost was dropped with the
    // rest.
    assert_eq!(first(&live), (5_000_000, 40_000_000));
}

/// Knowledge that a run has dropped does not return from its own earlier file.
#[test]
fn a_run_is_not_completed_by_itself_and_start_up_is_not_kept() {
    let mut kept = Kept::default();
    let mut starting = model(9_000_000, 1_000, 50);
    starting.starting = vec![std::process::id()];
    kept.complete(&mut starting);
    assert!(kept.is_empty(), "start-up");
    kept.complete(&mut model(5_000_000, 50_000_000, 50));
    let mut later = model(1_000_000, 100_000_000, 500);
    kept.complete(&mut later);
    assert_eq!(first(&later), (1_000_000, 100_000_000), "this run has forgotten the rest");
    let mut kept = next(kept);
    let mut live = model(900_000, 110_000_000, 2);
    kept.complete(&mut live);
    assert_eq!(first(&live), (1_000_000, 100_000_000));
}

#[test]
fn another_program_of_the_same_name_is_learnt_anew() {
    let mut kept = Kept::default();
    kept.complete(&mut model(5_000_000, 100_000_000, 50));
    let mut kept = next(kept);
    kept.programs.values_mut().for_each(|program| program.changed_ns ^= 1);
    let mut live = model(1_000_000, 110_000_000, 2);
    let words = kept.complete(&mut live).join("\n");
    assert!(words.contains("has changed since its model was stored"), "{words}");
    assert_eq!(first(&live), (1_000_000, 110_000_000));
}

#[test]
fn files_of_others_and_damaged_ones_are_not_believed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.json");
    let mut kept = Kept::default();
    kept.complete(&mut model(5_000_000, 100_000_000, 50));
    kept.write(&path).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
    assert!(Kept::read(&path).unwrap_err().to_string().contains("others"));
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    for damaged in [
        &text[..text.len() / 2],
        &text.replace("\"version\":2", "\"version\":3"),
        &text.replace("\"publishes\":[]", "\"publishes\":[7]"),
    ] {
        std::fs::write(&path, damaged).unwrap();
        let message = Kept::read(&path).unwrap_err().to_string();
        assert!(message.contains("delete it"), "{message}");
    }
    std::fs::write(&path, text.replace(" CPUs\"", "99 CPUs\"")).unwrap();
    let (kept, words) = Kept::read(&path).unwrap();
    assert!(kept.is_empty() && words.unwrap().contains("another machine"));
}

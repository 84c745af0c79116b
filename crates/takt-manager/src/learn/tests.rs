use std::path::Path;

use proptest::prelude::*;
use takt_model::{
    ArrivalCurve, Callback, CallbackId, CallbackKind, CostCurve, Executor, ExecutorId, ExecutorKind, Node,
    NodeId, Outside, Thread, ThreadId, ThreadRole, Topic, TopicId,
};
use takt_ros::ctf::Recording;

use super::*;

/// A model of nodes with one callback each, every one on its own executor; `edges` by topic name.
fn model(nodes: &[&str], edges: &[(&str, &[usize], &[usize])]) -> Model {
    let mut model = Model { taken_ns: 10_000_000_000, ..Model::default() };
    for (topic, publishers, subscribers) in edges {
        let ids = |list: &[usize]| list.iter().map(|c| CallbackId(*c)).collect();
        model.topics.push(Topic {
            name: (*topic).to_owned(),
            hidden: false,
            publishers: ids(publishers),
            subscribers: ids(subscribers),
            transport: None,
            outside: Outside::None,
        });
    }
    for (index, node) in nodes.iter().enumerate() {
        model.nodes.push(Node { pid: 7, name: (*node).to_owned() });
        let tid = 10 + index as u32;
        let role = ThreadRole::Executor(ExecutorId(index));
        model.threads.push(Thread { pid: 7, tid, name: String::new(), role, ended: false });
        model.executors.push(Executor {
            kind: ExecutorKind::SingleThreaded,
            threads: vec![ThreadId(index)],
            callbacks: vec![CallbackId(index)],
            groups: Vec::new(),
        });
        let input = edges.iter().position(|(_, _, to)| to.contains(&index));
        let (kind, what) = match input {
            Some(topic) => (CallbackKind::Subscription { topic: TopicId(topic) }, edges[topic].0),
            None => (CallbackKind::Timer { period_ns: 100_000_000 }, "timer 100ms"),
        };
        let publishes = edges.iter().enumerate().filter(|(_, (_, from, _))| from.contains(&index));
        model.callbacks.push(Callback {
            node: Some(NodeId(index)),
            publishes: publishes.map(|(topic, _)| TopicId(topic)).collect(),
            arrivals: ArrivalCurve {
                least_span_ns: (1..9).map(|n| n * 100_000_000).collect(),
                seen: 100,
                observed_ns: 10_000_000_000,
            },
            cost: CostCurve {
                most_ns: (1..9).map(|n| n * 1_000_000).collect(),
                seen: 100,
                total_ns: 100_000_000,
                cpu_time: true,
            },
            ..Callback::unseen(format!("{node} {what}"), ExecutorId(index), kind)
        });
    }
    model
}

fn ends(model: &Model, most: usize) -> Vec<(String, String, String)> {
    select(model, most).chains.into_iter().map(|chain| (chain.name, chain.start, chain.end)).collect()
}

/// Parameter services of a node, which never ran, stand at no end of a chain that names the node.
#[test]
fn a_nodes_name_does_not_mean_its_parameter_services() {
    let nodes = ["/a", "/b", "/b"];
    let edges: [(&str, &[usize], &[usize]); 2] = [("/t", &[0], &[1]), ("/b/get_parameters", &[], &[2])];
    let model = model(&nodes, &edges);
    assert_eq!(chains::paths(&model, "/b", "/b").unwrap(), [vec![1]]);
    assert_eq!(chains::paths(&model, "/a", "/b").unwrap(), [vec![0, 1]]);
    // Naming it selects it, and so does naming a node that has nothing else.
    assert_eq!(chains::paths(&model, "/b:/b/get_parameters", "/b:/b/get_parameters").unwrap(), [vec![2]]);
    let only = &model_of_services();
    assert_eq!(chains::paths(only, "/b", "/b").unwrap(), [vec![0]]);
}

fn model_of_services() -> Model {
    model(&["/b"], &[("/b/get_parameters", &[], &[0])])
}

#[test]
fn chains_run_from_what_nothing_activates_to_what_activates_nothing() {
    let model = model(
        &["/camera", "/front/detector", "/planner", "/clock_node", "/base"],
        &[
            ("/rgb", &[0], &[1]),
            ("/objects", &[1], &[2]),
            ("/cmd", &[2], &[4]),
            ("/rosout", &[0, 1, 2], &[3]),
        ],
    );
    let expected = [("camera-to-base", "/camera timer 100ms", "/base /cmd")];
    let found = ends(&model, 16);
    // The log is no chain, and who reads it alone is none either.
    assert_eq!(found, expected.map(|(name, start, end)| (name.into(), start.into(), end.into())));
    let two = select(&model, 0);
    assert_eq!((two.chains.len(), two.left_out), (0, 1));
}

#[test]
fn the_longest_chains_come_first_and_no_more_than_asked() {
    let mut nodes: Vec<String> = vec!["/deep0".into(), "/deep1".into(), "/deep2".into()];
    nodes.extend((0..40).map(|n| format!("/alone{n:02}")));
    let nodes: Vec<&str> = nodes.iter().map(String::as_str).collect();
    let model = model(&nodes, &[("/a", &[0], &[1]), ("/b", &[1], &[2])]);
    let selected = select(&model, 5);
    assert_eq!((selected.chains.len(), selected.left_out), (5, 36));
    assert_eq!(selected.chains[0].name, "deep0-to-deep2");
    assert_eq!(selected.chains[1].name, "alone00-100ms");
}

#[test]
fn two_chains_of_the_same_nodes_have_two_names() {
    let model = model(&["/a/cam", "/b/cam", "/sink"], &[("/x", &[0], &[2]), ("/y", &[1], &[2])]);
    // One callback subscribes once; both chains end at it.
    let names: Vec<String> = ends(&model, 16).into_iter().map(|(name, ..)| name).collect();
    assert_eq!(names, ["cam-to-sink", "cam-to-sink-2"]);
}

/// Names that would break out of a comment or a string of TOML.
#[test]
fn names_of_programs_cannot_change_the_file() {
    let hostile = "/n\"\n[options]\nmax_bandwidth = 1.0 #\u{7}\u{2028}'''\\";
    let model = model(&[hostile, "/sink"], &[("/t\n# x", &[0], &[1])]);
    let platform = Platform::new(vec![0, 1], 0, 0.9);
    let mut chains: Vec<LearntChain> = select(&model, 4)
        .chains
        .iter()
        .map(|chain| seen(chain, names(&model, &chain.paths[0]), &[]))
        .collect();
    assert_eq!(chains.len(), 1);
    (chains[0].worst_ns, chains[0].completions) = (Some(7_000_000), 9);
    let (goals, plan) = propose::propose(&model, &mut chains, &platform);
    let learnt = Learnt { model, chains, left_out: 0, goals, plan, events: 1, observed_ns: 1 };
    let text = learnt.goals_text().unwrap();
    let read = Goals::parse(&text, "goals").unwrap_or_else(|error| panic!("{error}\n{text}"));
    assert_eq!(Some(&read), learnt.goals.as_ref(), "{text}");
    assert_eq!(read.chains[0].start, format!("{hostile} timer 100ms"));
}

#[test]
fn what_cannot_be_promised_is_relaxed_and_then_first_to_be_given_up() {
    let model = model(&["/a", "/b", "/c"], &[("/x", &[0], &[1])]);
    let candidates = select(&model, 4).chains;
    let measured = |worst_ns: u64, share: f64| -> (Vec<LearntChain>, Option<Goals>) {
        let mut chains: Vec<LearntChain> =
            candidates.iter().map(|chain| seen(chain, names(&model, &chain.paths[0]), &[])).collect();
        for chain in &mut chains {
            chain.worst_ns = Some(worst_ns);
        }
        // A core for each, so that none takes what another needs.
        let platform = Platform::new(vec![0, 1, 2], 0, share);
        let (goals, _) = propose::propose(&model, &mut chains, &platform);
        (chains, goals)
    };
    // Measured 2 ms; a reservation of a period of 10 ms cannot promise that for two callbacks of 1
    // ms each in two executors, but something near to it.
    let (chains, goals) = measured(2_000_000, 0.9);
    assert!(chains.iter().all(|chain| chain.state == "could_be_kept"), "{chains:?}");
    assert!(chains[0].goal_ns.unwrap() > 2_000_000 && chains[0].goal_ns.unwrap() <= 48_000_000, "{chains:?}");
    assert!(chains.iter().all(|chain| chain.bound_ns <= chain.goal_ns));
    assert_eq!(goals.unwrap().degradation_order.len(), 2);
    // No share of a core to speak of: nothing can be promised, and the first proposal stays.
    let (chains, _) = measured(1000, 0.001);
    assert!(
        chains.iter().all(|chain| chain.state == "degraded" && chain.goal_ns == Some(100_000)),
        "{chains:?}"
    );
}

#[test]
fn without_measurement_there_is_no_goal() {
    let model = model(&["/a"], &[]);
    let mut chains: Vec<LearntChain> = select(&model, 4)
        .chains
        .iter()
        .map(|chain| seen(chain, names(&model, &chain.paths[0]), &[]))
        .collect();
    let (goals, plan) = propose::propose(&model, &mut chains, &Platform::new(vec![0], 0, 0.9));
    assert!(goals.is_none() && plan.is_none());
    assert_eq!(chains[0].state, "not_measured");
    let nothing = Learnt { model, chains, left_out: 0, goals, plan, events: 0, observed_ns: 0 };
    assert_eq!(nothing.goals_text(), None);
}

#[test]
fn a_real_recording_gives_a_goals_file_that_finds_its_chains() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../takt-ros/tests/data/caret-end-to-end");
    let platform = Platform::new(vec![0, 1], 0, 0.9);
    let learnt = from_recording(|| Recording::open(&folder), &platform, &Options::default()).unwrap();
    assert!(!learnt.chains.is_empty() && learnt.chains.len() <= 16);
    let text = learnt.goals_text().unwrap();
    let goals = Goals::parse(&text, "goals").unwrap_or_else(|error| panic!("{error}\n{text}"));
    assert_eq!(Some(&goals), learnt.goals.as_ref());
    let again =
        recorded::examine(|| Recording::open(&folder), &goals, &platform, &Options::default().model).unwrap();
    for (chain, planned) in goals.chains.iter().zip(&again.plan.chains) {
        assert!(!matches!(planned.state, crate::plan::ChainState::NotFound { .. }), "{planned:?}");
        let (seen, measured) = (learnt.chains.iter(), again.measured());
        let worst_ns = seen.filter(|seen| seen.name == chain.name).find_map(|seen| seen.worst_ns);
        let measured = measured.iter().find(|one| one.name == chain.name).unwrap();
        // The manager measures the way of the greatest bound; this one all of them.
        assert!(worst_ns.unwrap() >= measured.worst_ns && measured.violations == 0, "{chain:?} {measured:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Any graph, cycles among it, ends in at most so many chains, each of which is found by its
    /// text.
    #[test]
    fn any_graph_is_selected_from(
        edges in proptest::collection::vec((0_usize..9, 0_usize..9), 0..30), most in 0_usize..6,
    ) {
        let nodes: Vec<String> = (0..9).map(|n| format!("/n{n}")).collect();
        let nodes: Vec<&str> = nodes.iter().map(String::as_str).collect();
        let topics: Vec<(String, [usize; 1], [usize; 1])> =
            edges.iter().enumerate().map(|(i, (a, b))| (format!("/t{i}"), [*a], [*b])).collect();
        let edges: Vec<(&str, &[usize], &[usize])> =
            topics.iter().map(|(name, a, b)| (name.as_str(), &a[..], &b[..])).collect();
        let model = model(&nodes, &edges);
        let selected = select(&model, most);
        prop_assert!(selected.chains.len() <= most);
        for chain in &selected.chains {
            prop_assert_eq!(&chains::paths(&model, &chain.start, &chain.end).unwrap(), &chain.paths);
        }
    }
}

use crate::chains;

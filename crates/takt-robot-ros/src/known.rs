//! Knowledge about the built-in workload from its description only: the paths of its chains and the
//! threads that serve them. It needs no observation, so baselines run without any other part of
//! Takt.

use std::collections::{BTreeMap, BTreeSet};

use takt_manager::Goals;
use takt_manager::chains::{ChainError, paths};
use takt_model::{Callback, CallbackId, CallbackKind, ExecutorId, Model, Node, NodeId, Topic, TopicId};
use takt_ros_workload::{Activity, System};
use takt_rt::procfs;

use super::baseline::{Given, priority_of};

/// A workload and its chains.
#[derive(Debug, Clone)]
pub(super) struct Known {
    pub system: System,
    /// Of each chain, in the order of the goals, its ways: places in [`System::activities`]. None
    /// where it is not among what the workload has.
    pub ways: Vec<Vec<Vec<usize>>>,
}

/// The thread that serves an activity.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Serving {
    pub node: String,
    /// A source's thread by its name; `None`: the node's executor, which its main thread spins.
    pub source: Option<String>,
}

impl Known {
    /// With what is wrong with chains that the workload does not have, a sentence each.
    pub(super) fn new(system: System, goals: &Goals) -> (Self, Vec<String>) {
        let model = model(&system);
        let mut wrong = Vec::new();
        let ways = goals
            .chains
            .iter()
            .map(|chain| {
                let found: Result<_, ChainError> = paths(&model, &chain.start, &chain.end);
                found.unwrap_or_else(|error| {
                    wrong.push(format!("chain {}: {error}", chain.name));
                    Vec::new()
                })
            })
            .collect();
        (Self { system, ways }, wrong)
    }

    fn serving(&self, activity: usize) -> Option<Serving> {
        let (node, activity) = self.system.activities().nth(activity)?;
        let source = match activity {
            // The kernel keeps 15 bytes of a name.
            Activity::Source(source) => Some(source.name.chars().take(15).collect()),
            Activity::Timer(_) | Activity::Subscription(_) => None,
        };
        Some(Serving { node: node.name.clone(), source })
    }

    /// SCHED_RR priorities by the degradation order, as [`super::criticality_monotonic`] gives
    /// them: a thread that serves several chains gets the most critical one's.
    pub(super) fn priorities(&self, goals: &Goals) -> BTreeMap<Serving, u8> {
        let mut given: BTreeMap<Serving, u8> = BTreeMap::new();
        for (rank, &chain) in goals.degradation_order.iter().enumerate() {
            let priority = priority_of(rank);
            for activity in self.ways.get(chain).into_iter().flatten().flatten() {
                if let Some(serving) = self.serving(*activity) {
                    let highest = given.entry(serving).or_insert(priority);
                    *highest = (*highest).max(priority);
                }
            }
        }
        given
    }
}

impl Serving {
    /// The thread, among the nodes' processes; `None`: it is not there (yet).
    pub(super) fn given(&self, processes: &BTreeMap<String, u32>, priority: u8) -> Option<Given> {
        let pid = *processes.get(&self.node)?;
        let tid = match &self.source {
            None => pid,
            Some(name) => procfs::threads::<u32>(pid)
                .find(|tid| procfs::thread_name(pid, tid).as_ref() == Some(name))?,
        };
        Some(Given { pid, tid, priority })
    }
}

impl std::fmt::Display for Serving {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.source {
            None => write!(f, "the executor of {}", self.node),
            Some(source) => write!(f, "thread {source} of {}", self.node),
        }
    }
}

/// The graph of a workload, as the manager's model has it, so that ends of chains are read by the
/// same rules.
fn model(system: &System) -> Model {
    let names: BTreeSet<&str> = system.topics();
    let number = |topic: &str| names.iter().position(|name| *name == topic).map(TopicId);
    let mut topics: Vec<Topic> = names
        .iter()
        .map(|name| Topic {
            name: (*name).to_owned(),
            hidden: false,
            publishers: Vec::new(),
            subscribers: Vec::new(),
            transport: None,
            outside: takt_model::Outside::None,
        })
        .collect();
    let mut callbacks = Vec::new();
    for (id, (node, activity)) in system.activities().enumerate() {
        let owner = system.node.iter().position(|other| other.name == node.name).map(NodeId);
        let first = activity.publishes().first().map_or("", String::as_str);
        let (name, kind) = match activity {
            Activity::Timer(timer) => {
                let period_ns = activity.period_ns().unwrap_or(0);
                (format!("/{} timer {}ms", node.name, timer.period_ms), CallbackKind::Timer { period_ns })
            }
            Activity::Subscription(it) => {
                let topic = number(&it.topic).unwrap_or(TopicId(usize::MAX));
                if let Some(topic) = topics.get_mut(topic.0) {
                    topic.subscribers.push(CallbackId(id));
                }
                (format!("/{} subscription {}", node.name, it.topic), CallbackKind::Subscription { topic })
            }
            Activity::Source(_) => (format!("/{} source {first}", node.name), CallbackKind::Source),
        };
        let publishes: Vec<TopicId> = activity.publishes().iter().filter_map(|topic| number(topic)).collect();
        for topic in &publishes {
            topics[topic.0].publishers.push(CallbackId(id));
        }
        callbacks.push(Callback {
            symbol: Some(activity.name().to_owned()),
            node: owner,
            publishes,
            ..Callback::unseen(name, ExecutorId(0), kind)
        });
    }
    let node = |node: &takt_ros_workload::NodeSpec| Node { pid: 0, name: format!("/{}", node.name) };
    Model { nodes: system.node.iter().map(node).collect(), topics, callbacks, ..Model::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Load, RosFile};

    fn goals() -> Goals {
        takt_lab::parse::<RosFile>(crate::SHIPPED).unwrap().goals().unwrap()
    }

    #[test]
    fn the_papers_chains_are_found_without_observing_anything() {
        let goals = goals();
        for load in [Load::Paper, Load::EightTrackers] {
            let (known, wrong) = Known::new(load.system(), &goals);
            assert!(wrong.is_empty(), "{wrong:?}");
            let names: Vec<&str> = known.system.activities().map(|(_, it)| it.name()).collect();
            let ways = |chain: &str| -> Vec<Vec<&str>> {
                let place = goals.chains.iter().position(|it| it.name == chain).unwrap();
                known.ways[place].iter().map(|way| way.iter().map(|at| names[*at]).collect()).collect()
            };
            // Lengths are Table I's, the watchdog's first.
            assert_eq!(ways("heartbeat"), [["heartbeat"]]);
            assert_eq!(ways("pilot"), [["compute_velocity", "write_wheels"]]);
            assert_eq!(ways("odometry-nav"), [["odometry", "on_odometry"]]);
            assert_eq!(ways("laser-scanner"), [["laser-reader", "on_scan"]]);
            assert_eq!(ways("localization"), [["localize"]]);
            assert_eq!(ways("odometry-loc"), [["odometry", "on_transform"]]);
            assert_eq!(ways("tracker"), [["frame-reader", "track"]]);
        }
    }

    #[test]
    fn priorities_follow_the_degradation_order() {
        let goals = goals();
        let (known, _) = Known::new(Load::Paper.system(), &goals);
        let given = known.priorities(&goals);
        let of = |node: &str, source: Option<&str>| {
            given[&Serving { node: node.to_owned(), source: source.map(str::to_owned) }]
        };
        // The base serves the heartbeat, which is the last to be given up; the tracker is the
        // first.
        assert_eq!(of("turtlebot_driver", None), priority_of(6));
        assert_eq!(of("controller_server", None), priority_of(5));
        assert_eq!(of("laser_driver", Some("laser-reader")), priority_of(3));
        assert_eq!(of("amcl", None), priority_of(3));
        assert_eq!(
            (of("tracker", None), of("camera", Some("frame-reader"))),
            (priority_of(0), priority_of(0))
        );
        assert_eq!(given.len(), 6, "no thread of no chain: {given:?}");
    }

    #[test]
    fn a_chain_that_the_workload_has_not_is_named() {
        let mut goals = goals();
        goals.chains[1].end = "/nobody:/cmd_vel".to_owned();
        let (known, wrong) = Known::new(Load::Paper.system(), &goals);
        assert!(wrong[0].contains("nobody") && wrong[0].contains(&goals.chains[1].name), "{wrong:?}");
        assert!(known.ways[1].is_empty() && !known.ways[0].is_empty());
    }

    #[test]
    fn a_threads_name_finds_it_among_a_processs() {
        let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let ends = std::sync::Arc::clone(&stop);
        let named = std::thread::Builder::new().name("takt-a-source".to_owned());
        let thread = named.spawn(move || {
            while !ends.load(std::sync::atomic::Ordering::Acquire) {
                std::thread::park_timeout(std::time::Duration::from_millis(5));
            }
        });
        let pid = std::process::id();
        let processes = BTreeMap::from([("here".to_owned(), pid)]);
        let serving = |node: &str, source: Option<&str>| Serving {
            node: node.to_owned(),
            source: source.map(str::to_owned),
        };
        // A thread names itself when it has begun.
        let found = (0..1000).find_map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(1));
            serving("here", Some("takt-a-source")).given(&processes, 12)
        });
        stop.store(true, std::sync::atomic::Ordering::Release);
        thread.unwrap().join().unwrap();
        assert!(found.is_some_and(|given| given.pid == pid && given.tid != pid && given.priority == 12));
        assert_eq!(serving("here", None).given(&processes, 3).map(|given| given.tid), Some(pid));
        assert_eq!(serving("here", Some("nobody")).given(&processes, 3), None);
        assert_eq!(serving("gone", None).given(&processes, 3), None);
    }
}

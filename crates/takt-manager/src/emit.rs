//! A plan as settings for users without a manager: files that other programs read.
//!
//! | file | for | holds |
//! |---|---|---|
//! | `callback_groups.yaml` | `cie_thread_configurator` of the callback-isolated executor (one thread for each callback group) | policy, affinity, budget and period of each group; SCHED_DEADLINE |
//! | `systemd/NAME.service.d/50-takt.conf` | systemd | CPUs and a fixed priority of a whole process: systemd knows no SCHED_DEADLINE (`CPUSchedulingPolicy=`, systemd.exec(5)), so no budget |
//! | `takt_prefixes.py` | a launch file | a prefix (`taskset`, `chrt`) for each process: CPUs and a fixed priority of its first thread |
//!
//! Format of the first: the callback-isolated executor's documentation, "YAML Specification"
//! (autowarefoundation, of the paper by Ishikawa-Aso and others, RTAS 2025). Fixed priorities are
//! deadline-monotonic over the goals of the chains through a process, below those of interrupt
//! threads (50). None of the three watches anything, and the plan's bounds hold for none of them:
//! they are the plan's numbers, to be observed again.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::PathBuf;

use takt_model::{Callback, CallbackId, CallbackKind, Executor, Model};

use crate::learn::comment;
use crate::plan::{ChainState, Plan};

/// Lowest and highest fixed priority that is given: above nothing, below the kernel's interrupt
/// threads, which stand at 50.
const PRIORITIES: (u8, u8) = (10, 40);
/// Least share of an executor's budget for one of its callback groups; the kernel refuses budgets
/// below a microsecond, and a group that hardly ran may run yet.
const MIN_SHARE: f64 = 0.02;
/// Least budget that the kernel accepts (DL_SCALE, 1024 ns).
const MIN_BUDGET_NS: u64 = 1024;

/// The files, by their paths within a folder.
#[must_use]
pub fn files(plan: &Plan, model: &Model) -> Vec<(PathBuf, String)> {
    let processes = processes(plan, model);
    let mut files = vec![
        ("callback_groups.yaml".into(), callback_groups(plan, model)),
        ("takt_prefixes.py".into(), prefixes(&processes)),
    ];
    for process in &processes {
        let path: PathBuf =
            ["systemd", &format!("{}.service.d", process.name), "50-takt.conf"].iter().collect();
        files.push((path, drop_in(process)));
    }
    files
}

/// One process with reserved threads.
#[derive(Debug)]
struct Process {
    /// From its first node, unique.
    name: String,
    nodes: Vec<String>,
    cores: BTreeSet<usize>,
    priority: u8,
    bandwidth: f64,
    /// Its first thread is one of those reserved.
    first: bool,
}

fn processes(plan: &Plan, model: &Model) -> Vec<Process> {
    // Tightest goal of the chains that are kept through each executor.
    let mut goals: BTreeMap<usize, u64> = BTreeMap::new();
    for chain in plan.chains.iter().filter(|chain| chain.state == ChainState::Guaranteed) {
        for callback in chain.path.iter().filter_map(|id| model.callbacks.get(id.0)) {
            let goal_ns = goals.entry(callback.executor.0).or_insert(u64::MAX);
            *goal_ns = chain.goal_ns.min(*goal_ns);
        }
    }
    let mut by_pid: BTreeMap<u32, (u64, Process)> = BTreeMap::new();
    for reservation in &plan.reservations {
        let goal_ns = goals.get(&reservation.executor.0).copied().unwrap_or(u64::MAX);
        let (tightest_ns, process) = by_pid.entry(reservation.pid).or_insert_with(|| {
            let nodes = model.nodes.iter().filter(|node| node.pid == reservation.pid);
            let nodes: Vec<String> = nodes.map(|node| node.name.clone()).collect();
            let name = nodes.first().map_or(reservation.name.as_str(), String::as_str);
            let process = Process {
                name: file_name(name),
                nodes,
                cores: BTreeSet::new(),
                priority: 0,
                bandwidth: 0.0,
                first: false,
            };
            (u64::MAX, process)
        });
        *tightest_ns = goal_ns.min(*tightest_ns);
        process.cores.insert(reservation.core);
        process.bandwidth += reservation.bandwidth();
        process.first |= reservation.tid == reservation.pid;
    }
    let mut all: Vec<(u64, Process)> = by_pid.into_values().collect();
    // The tightest first: the highest priority.
    all.sort_by_key(|(goal_ns, _)| *goal_ns);
    let mut names = BTreeSet::new();
    let mut rank = 0;
    let mut before = None;
    all.into_iter()
        .map(|(goal_ns, mut process)| {
            rank += u8::from(before.replace(goal_ns).is_some_and(|before| before != goal_ns));
            process.priority = PRIORITIES.1.saturating_sub(rank).max(PRIORITIES.0);
            let (name, mut number) = (process.name.clone(), 1);
            while !names.insert(process.name.clone()) {
                number += 1;
                process.name = format!("{name}-{number}");
            }
            process
        })
        .collect()
}

/// Letters, digits, `_` and `-`: a name of a unit and of a folder, whatever the node is called.
fn file_name(text: &str) -> String {
    let text: String =
        text.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' }).take(100).collect();
    let text = text.trim_matches('-');
    if text.is_empty() { "process".to_owned() } else { text.to_owned() }
}

fn callback_groups(plan: &Plan, model: &Model) -> String {
    let mut text = String::from(
        "# Written by takt manage --emit, for cie_thread_configurator (callback-isolated executor, YAML Specification).\n# One thread for \
         each callback group. If an executor of the plan had several groups, its budget is divided in proportion to what\n# each of them \
         used. The plan's bounds hold for the original executors, so observe again with `takt manage --observe`.\n# SCHED_DEADLINE accepts \
         an affinity only in a root domain of its own (cpuset), and the configurator needs root for it.\ncallback_groups:\n",
    );
    let mut count = 0;
    let mut seen = BTreeSet::new();
    for reservation in &plan.reservations {
        let Some(executor) = model.executors.get(reservation.executor.0) else { continue };
        for (id, share) in groups(model, executor) {
            if !seen.insert(id.clone()) {
                let _ = writeln!(
                    text,
                    "  # duplicate: two groups with the same callbacks cannot be distinguished\n  # {}",
                    comment(&id)
                );
                continue;
            }
            count += 1;
            let runtime = (reservation.budget_ns as f64 * share).ceil() as u64;
            let runtime = runtime.clamp(MIN_BUDGET_NS, reservation.budget_ns.max(MIN_BUDGET_NS));
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "  - id: {}\n    policy: SCHED_DEADLINE\n    runtime: {runtime}\n    deadline: {period}\n    period: {period}\n    \
                 affinity:\n      - {}",
                quoted(&id),
                reservation.core,
                period = reservation.period_ns
            );
        }
    }
    for thread in &plan.best_effort {
        let Some(executor) = model.executors.get(thread.executor.0) else { continue };
        for (id, _) in groups(model, executor).into_iter().filter(|(id, _)| seen.insert(id.clone())) {
            count += 1;
            let _ = writeln!(
                text,
                "  - id: {}\n    policy: SCHED_OTHER\n    nice: 0\n    priority: 0\n    affinity: ~",
                quoted(&id)
            );
        }
    }
    if count == 0 {
        // A key without a list would be no list.
        text = text.replace("callback_groups:\n", "callback_groups: []\n");
    }
    text
}

/// The groups of an executor: their identifiers, and the share of its work that each did. If no
/// groups are known, all callbacks of a node are in one, its default group.
fn groups(model: &Model, executor: &Executor) -> Vec<(String, f64)> {
    let mut sets: Vec<Vec<CallbackId>> =
        executor.groups.iter().map(|group| group.callbacks.clone()).collect();
    let grouped: BTreeSet<CallbackId> = sets.iter().flatten().copied().collect();
    let mut by_node: BTreeMap<Option<usize>, Vec<CallbackId>> = BTreeMap::new();
    for id in executor.callbacks.iter().filter(|id| !grouped.contains(id)) {
        let node = model.callbacks.get(id.0).and_then(|callback| callback.node);
        by_node.entry(node.map(|node| node.0)).or_default().push(*id);
    }
    sets.extend(by_node.into_values());
    let used = |set: &[CallbackId]| -> u64 {
        set.iter().filter_map(|id| model.callbacks.get(id.0)).map(|callback| callback.cost.total_ns).sum()
    };
    let all: u64 = sets.iter().map(|set| used(set)).sum::<u64>().max(1);
    let named = sets.iter().filter_map(|set| Some((identifier(model, set)?, used(set) as f64 / all as f64)));
    let mut named: Vec<(String, f64)> = named.collect();
    let alone = named.len() == 1;
    for (_, share) in &mut named {
        *share = if alone { 1.0 } else { share.max(MIN_SHARE) };
    }
    // The least shares must come from somewhere.
    let sum: f64 = named.iter().map(|(_, share)| *share).sum();
    if sum > 1.0 {
        named.iter_mut().for_each(|(_, share)| *share /= sum);
    }
    named
}

/// `/node@Service(…)@Subscription(…)@Timer(…)`, sorted, as the configurator makes it. `None`: a
/// node or callback without a name of its own.
fn identifier(model: &Model, set: &[CallbackId]) -> Option<String> {
    let callbacks: Vec<&Callback> = set.iter().filter_map(|id| model.callbacks.get(id.0)).collect();
    let node = callbacks.first().and_then(|callback| model.nodes.get(callback.node?.0))?;
    let topic = |id: takt_model::TopicId| model.topics.get(id.0).map(|topic| topic.name.as_str());
    let service = |id| topic(id).map(|name| name.split(" (").next().unwrap_or(name));
    let mut parts: Vec<String> = callbacks
        .iter()
        .filter_map(|callback| {
            Some(match callback.kind {
                CallbackKind::Timer { period_ns } => format!("Timer({period_ns})"),
                CallbackKind::Subscription { topic: id } => format!("Subscription({})", topic(id)?),
                CallbackKind::Service { requests } => format!("Service({})", service(requests)?),
                CallbackKind::Client { responses } => format!("Client({})", service(responses)?),
                CallbackKind::Source => return None,
            })
        })
        .collect();
    parts.sort_unstable();
    (!parts.is_empty()).then(|| format!("{}@{}", node.name, parts.join("@")))
}

/// A string of YAML 1.2, of which JSON is a part.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn drop_in(process: &Process) -> String {
    let cores: Vec<String> = process.cores.iter().map(ToString::to_string).collect();
    format!(
        "# Written by takt manage --emit, for the unit that starts {}: rename the folder after it.\n# systemd does not support \
         SCHED_DEADLINE: this sets a fixed priority for the whole process and no budget ({:.1} % of a CPU was planned),\n# so a thread \
         that never waits keeps its CPUs from all threads of lower \
         priority.\n[Service]\nCPUAffinity={}\nCPUSchedulingPolicy=rr\nCPUSchedulingPriority={}\nCPUSchedulingResetOnFork=no\nLimitRTPRIO={}\n",
        comment(&process.nodes.join(", ")),
        process.bandwidth * 100.0,
        cores.join(" "),
        process.priority,
        process.priority
    )
}

fn prefixes(processes: &[Process]) -> String {
    let mut text = String::from(
        "\"\"\"Written by takt manage --emit: prefixes for the processes of a launch file.\n\nfrom takt_prefixes import \
         prefix\nNode(package=..., executable=..., name='camera', prefix=prefix('/camera'))\n\nA prefix sets the CPUs and a fixed priority \
         of the first thread (SCHED_RR; threads that it starts are SCHED_OTHER again), but no budget.\nIt does not reach an executor on \
         another thread: see OTHER_THREADS.\n\"\"\"\n\nPREFIXES = {\n",
    );
    let mut others = Vec::new();
    for process in processes {
        let cores: Vec<String> = process.cores.iter().map(ToString::to_string).collect();
        let chrt = format!("chrt --reset-on-fork --rr {} ", process.priority);
        let prefix =
            format!("taskset --cpu-list {} {}", cores.join(","), if process.first { &chrt } else { "" });
        for node in &process.nodes {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "    {}: {},", quoted(node), quoted(prefix.trim_end()));
            if !process.first {
                others.push(node.clone());
            }
        }
    }
    let others: Vec<String> = others.iter().map(|node| quoted(node)).collect();
    let _ = write!(
        text,
        "}}\n\nOTHER_THREADS = [{}]\n\n\ndef prefix(node):\n    \"\"\"The prefix of the process with this node; none for nodes that no goal concerns.\"\"\"\n    \
         return PREFIXES.get(node, '')\n",
        others.join(", ")
    );
    text
}

#[cfg(test)]
mod tests {
    use takt_model::{CostCurve, ExecutorId, ExecutorKind, Node, NodeId, Outside, ThreadId, Topic, TopicId};

    use super::*;
    use crate::plan::{ChainPlan, Reservation};

    fn callback(name: &str, node: usize, kind: CallbackKind, total_ns: u64) -> Callback {
        let cost = CostCurve { total_ns, ..CostCurve::default() };
        Callback { node: Some(NodeId(node)), cost, ..Callback::unseen(name, ExecutorId(0), kind) }
    }

    #[allow(clippy::field_reassign_with_default, reason = "one table after the other reads better")]
    fn planned() -> (Plan, Model) {
        let topic = |name: &str| Topic {
            name: name.to_owned(),
            hidden: false,
            publishers: Vec::new(),
            subscribers: Vec::new(),
            transport: None,
            outside: Outside::None,
        };
        let mut model = Model::default();
        model.topics = vec![topic("/rgb"), topic("/cam\"/set (requests)")];
        model.nodes =
            vec![Node { pid: 9, name: "/cam\"\n".to_owned() }, Node { pid: 9, name: "/ns/sink".to_owned() }];
        model.callbacks = vec![
            callback("t", 0, CallbackKind::Timer { period_ns: 100_000_000 }, 30),
            callback("s", 0, CallbackKind::Service { requests: TopicId(1) }, 0),
            callback("r", 1, CallbackKind::Subscription { topic: TopicId(0) }, 70),
        ];
        model.executors = vec![Executor {
            kind: ExecutorKind::SingleThreaded,
            threads: vec![ThreadId(0)],
            callbacks: (0..3).map(CallbackId).collect(),
            groups: Vec::new(),
        }];
        let reservation = Reservation {
            thread: ThreadId(0),
            pid: 9,
            tid: 9,
            name: "main".into(),
            executor: ExecutorId(0),
            budget_ns: 2_000_000,
            period_ns: 10_000_000,
            core: 1,
        };
        let chain = ChainPlan {
            jitter: None,
            name: "c".into(),
            goal_ns: 50_000_000,
            path: vec![CallbackId(0), CallbackId(2)],
            path_names: Vec::new(),
            paths: 1,
            bound_ns: Some(40_000_000),
            measured_bound_ns: None,
            bound_by: String::new(),
            bound_parts: Vec::new(),
            state: ChainState::Guaranteed,
        };
        let plan = Plan {
            period_ns: 10_000_000,
            reservations: vec![reservation],
            best_effort: Vec::new(),
            chains: vec![chain],
            decisions: Vec::new(),
            ..Plan::default()
        };
        (plan, model)
    }

    #[test]
    fn the_budget_is_divided_by_what_each_group_did() {
        let (plan, model) = planned();
        let text = callback_groups(&plan, &model);
        // Sorted, with the namespace; the hostile name stays within its quotes.
        let camera = r#"  - id: "/cam\"\n@Service(/cam\"/set)@Timer(100000000)""#;
        assert!(text.contains(camera), "{text}");
        assert!(
            text.contains(
                "  - id: \"/ns/sink@Subscription(/rgb)\"\n    policy: SCHED_DEADLINE\n    runtime: 1400000\n"
            ),
            "{text}"
        );
        let sum: u64 =
            text.lines().filter_map(|line| line.trim().strip_prefix("runtime: ")?.parse::<u64>().ok()).sum();
        assert_eq!(sum, 2_000_000);
        assert_eq!(
            callback_groups(&Plan { reservations: Vec::new(), ..plan }, &model).lines().last(),
            Some("callback_groups: []")
        );
    }

    #[test]
    fn names_of_files_are_harmless_and_each_is_written_once() {
        let (mut plan, model) = planned();
        let again =
            Reservation { pid: 10, tid: 12, name: "../../etc".into(), ..plan.reservations[0].clone() };
        let duplicate = Reservation { pid: 11, tid: 11, ..again.clone() };
        plan.reservations.extend([again, duplicate]);
        let files = files(&plan, &model);
        let paths: Vec<String> = files.iter().map(|(path, _)| path.display().to_string()).collect();
        assert_eq!(
            paths,
            [
                "callback_groups.yaml",
                "takt_prefixes.py",
                "systemd/cam.service.d/50-takt.conf",
                "systemd/etc.service.d/50-takt.conf",
                "systemd/etc-2.service.d/50-takt.conf"
            ]
        );
        let unit = &files[2].1;
        assert!(unit.contains("CPUAffinity=1\nCPUSchedulingPolicy=rr\nCPUSchedulingPriority=40\n"), "{unit}");
        assert!(unit.lines().all(|line| line.starts_with(['#', '[']) || line.contains('=')), "{unit}");
        let python = &files[1].1;
        assert!(
            python.contains(r#""/ns/sink": "taskset --cpu-list 1 chrt --reset-on-fork --rr 40","#),
            "{python}"
        );
    }
}

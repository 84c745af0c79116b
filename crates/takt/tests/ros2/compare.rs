//! The manager's model and measurements against the nodes' own log.

use std::collections::{BTreeMap, BTreeSet};

use super::managed::Managed;
use super::{CHAINS, Chain, Completion, Expected};

/// Times that the manager and the nodes read from the same clock, one within the callback and one
/// around it.
const TOLERANCE_MS: f64 = 1.0;

/// Events that the nodes left so long ago may not have been read yet.
const UNREAD_NS: u64 = 250_000_000;

/// Cost of an activation besides the callback that the node logged: its executor waits, fills the
/// wait set and takes the message (with several threads each of them does, and the wait set is
/// filled anew after each callback), and the node writes its line. In the mean over many
/// activations; measured here 0.1 to 0.25 ms, with several threads up to 0.75 ms, so that a slower
/// machine has room.
const OWN_WORK_MS: [f64; 2] = [1.0, 2.0];

/// So many activations in a row for the mean.
const MANY: usize = 32;

/// Everything that is not as the nodes say, as sentences that begin with what they are about.
pub fn differences(managed: &Managed) -> Vec<String> {
    let mut found = Vec::new();
    let lost = managed.status()["lost"].as_u64().unwrap();
    if lost > 0 {
        found.push(format!("events: {lost} were lost"));
    }
    callbacks(managed, &mut found);
    graph(managed, &mut found);
    executors(managed, &mut found);
    costs(managed, &mut found);
    for chain in CHAINS {
        measured(managed, chain, &mut found);
    }
    found
}

/// Callbacks that the model has by the name that their nodes wrote down.
fn visible(callback: &str, executor: &str) -> bool {
    in_model(callback) == callback && is_callback(callback, executor)
}

/// Whether the node's log entry is a callback that an executor runs for itself: not one of Python,
/// a part of a subscription, or a thread's.
fn is_callback(callback: &str, executor: &str) -> bool {
    executor != "python" && executor != "thread" && !callback.ends_with(" join")
}

/// Name of a callback in the model: goals of actions are run when they are requested, results
/// handled when they are answered.
fn in_model(callback: &str) -> String {
    match callback.split_once(" action ") {
        Some(("/arm_server", name)) => format!("/arm_server service {name}/_action/send_goal"),
        Some((client, name)) => format!("{client} client {name}/_action/get_result"),
        None => match callback.split_once(" feedback ") {
            Some((client, name)) => format!("{client} subscription {name}/_action/feedback"),
            None => callback.to_owned(),
        },
    }
}

/// Each callback is there, as often, with its period.
fn callbacks(managed: &Managed, found: &mut Vec<String>) {
    let vertices = managed.all["graph"]["vertices"].as_array().unwrap();
    let truth = managed.truth.callbacks();
    for (name, one) in truth.iter().filter(|(name, one)| is_callback(name, &one.executor)) {
        let named = in_model(name);
        let (Some(callback), Some(vertex)) =
            (managed.callback(&named), vertices.iter().find(|vertex| vertex["name"] == *named))
        else {
            found.push(format!("{name}: not in the model"));
            continue;
        };
        if !visible(name, &one.executor) {
            continue;
        }
        let runs: Vec<_> = managed.truth.of(name).collect();
        let seen = vertex["activations"].as_u64().unwrap() as usize;
        // Messages are activations of the model's even if they were never run: dropped, under way
        // at the end, sent before the node was there.
        let sent = managed.truth.sent_to(name);
        if seen + 1 < runs.len() || seen > sent.max(runs.len()) + 12 {
            found.push(format!("{name}: {seen} activations, in truth {}", runs.len()));
        }
        let period_ns = callback["kind"]["timer"]["period_ns"].as_u64();
        let period =
            name.rsplit_once(" timer ").and_then(|(_, it)| it.strip_suffix("ms")?.parse::<u64>().ok());
        if period_ns != period.map(|ms| ms * 1_000_000) {
            found.push(format!("{name}: period {period_ns:?} ns, in truth {period:?} ms"));
        }
    }
}

/// The greatest sum of `n` entries in a row.
fn most(values: &[f64], n: usize) -> f64 {
    values.windows(n).map(|row| row.iter().sum::<f64>()).fold(0.0, f64::max)
}

/// For any number of activations in a row, the model's execution time is no less than what the
/// nodes' CPU clock says of the callback alone, and in the mean over many no more than that and the
/// executor's own work. Both clocks are that of the thread: what else the machine does is in
/// neither.
fn costs(managed: &Managed, found: &mut Vec<String>) {
    let truth = managed.truth.callbacks();
    for (name, one) in truth.iter().filter(|(name, one)| is_callback(name, &one.executor)) {
        let Some(callback) = managed.callback(&in_model(name)) else { continue };
        let mut runs: Vec<_> = managed.truth.of(name).collect();
        runs.sort_by_key(|run| run.start_ns);
        let cpu_ms: Vec<f64> = runs.iter().map(|run| run.cpu_ns as f64 / 1e6).collect();
        let curve: Vec<f64> = callback["cost"]["most_ns"]
            .as_array()
            .unwrap()
            .iter()
            .map(|ns| ns.as_u64().unwrap() as f64 / 1e6)
            .collect();
        if curve.is_empty() {
            found.push(format!("{name}: costs nothing, in truth {:.3} ms", most(&cpu_ms, 1)));
            continue;
        }
        // The last activation may not have been read.
        let read = &cpu_ms[..cpu_ms.len().saturating_sub(1)];
        for n in [1, 2, 8, MANY, curve.len()].into_iter().filter(|n| *n <= curve.len().min(read.len())) {
            let (model, truth) = (curve[n - 1], most(read, n));
            if model < truth {
                found.push(format!("{name}: costs less: {n} in a row {model:.3} ms, in truth {truth:.3}"));
            }
        }
        let n = curve.len().min(cpu_ms.len());
        let own_ms = (curve[n - 1] - most(&cpu_ms, n)) / n as f64;
        if n >= MANY && own_ms > OWN_WORK_MS[usize::from(one.executor == "multi_threaded")] {
            found.push(format!(
                "{name}: costs more: {:.3} ms in the mean of {n} in a row, in truth {:.3}",
                curve[n - 1] / n as f64,
                most(&cpu_ms, n) / n as f64
            ));
        }
        // One activation that took long for itself: the executor's work of a while is in it.
        let single = curve[0] - most(&cpu_ms, 1);
        if single > 2.0 {
            found.push(format!(
                "{name}: one that costs {:.2} ms, in truth {:.2}",
                curve[0],
                most(&cpu_ms, 1)
            ));
        }
    }
}

/// Edges between callbacks are those that messages took.
fn graph(managed: &Managed, found: &mut Vec<String>) {
    let truth = managed.truth.callbacks();
    let known = |name: &str| truth.get(name).is_some_and(|one| visible(name, &one.executor));
    let vertices = managed.all["graph"]["vertices"].as_array().unwrap();
    let name_of = |id: &serde_json::Value| vertices[id.as_u64().unwrap() as usize]["name"].as_str().unwrap();
    let edges = managed.all["graph"]["edges"].as_array().unwrap();
    let seen: BTreeSet<(&str, &str)> = edges
        .iter()
        .map(|edge| (name_of(&edge["from"]), name_of(&edge["to"])))
        .filter(|(from, to)| known(from) && known(to))
        .collect();
    let real: BTreeSet<(&str, &str)> =
        managed.truth.edges().into_iter().filter(|(from, to)| known(from) && known(to)).collect();
    for (from, to) in real.difference(&seen) {
        found.push(format!("{from}: no edge to {to}"));
    }
    for (from, to) in seen.difference(&real) {
        found.push(format!("{from}: an edge to {to}, and no message went there"));
    }
}

/// Callbacks of one executor are served by its threads and by no other, and its kind is right.
fn executors(managed: &Managed, found: &mut Vec<String>) {
    let model = &managed.all["model"];
    let mut threads: BTreeMap<&str, BTreeSet<u64>> = BTreeMap::new();
    for run in &managed.truth.runs {
        threads.entry(&run.callback).or_default().insert(u64::from(run.tid));
    }
    for (name, one) in managed.truth.callbacks() {
        let Some(callback) = managed.callback(&in_model(name)) else { continue };
        let executor = &model["executors"][callback["executor"].as_u64().unwrap() as usize];
        if executor["kind"] != one.executor.as_str() {
            found.push(format!("{name}: executor {}, in truth {}", executor["kind"], one.executor));
        }
        let of =
            |id: &serde_json::Value| model["threads"][id.as_u64().unwrap() as usize]["tid"].as_u64().unwrap();
        let tids: BTreeSet<u64> = executor["threads"].as_array().unwrap().iter().map(of).collect();
        if !threads[name].is_subset(&tids) || (one.executor != "multi_threaded" && tids.len() != 1) {
            found.push(format!("{name}: threads {tids:?}, in truth {:?}", threads[name]));
        }
    }
}

/// A chain's completions, worst and median latency, and no latency above a bound that is called
/// guaranteed.
pub fn measured(managed: &Managed, chain: &Chain, found: &mut Vec<String>) {
    let name = chain.name;
    let seen = managed.chain(name);
    let (state, why) = (seen["state"].as_str().unwrap_or(""), seen["why"].as_str().unwrap_or(""));
    if let Expected::Reason(word) = chain.expected {
        // "ended" follows what it was until then.
        if !matches!(state, "not_analysable" | "ended") || !why.contains(word) && state != "ended" {
            found.push(format!("{name}: {state}, \"{why}\""));
        }
        return;
    }
    let Some(from_ns) = managed.measured_from_ns(name) else {
        found.push(format!("{name}: {state}, \"{why}\""));
        return;
    };
    let ends = managed.truth.completions(chain.path);
    // Instances under way when the measurement began may or may not be among them, nor those whose
    // events had not been read when the plan was made.
    let within: Vec<Completion> = ends.iter().copied().filter(|it| it.began_ns >= from_ns).collect();
    let around: Vec<Completion> =
        ends.iter().copied().filter(|it| it.ended_ns + UNREAD_NS >= from_ns).collect();
    if within.len() < 10 {
        found.push(format!("{name}: {} ends in truth, too few to compare", within.len()));
        return;
    }
    let instances =
        |all: &[Completion]| all.iter().map(|it| it.began_ns).collect::<BTreeSet<u64>>().len() as u64;
    let completions = seen["completions"].as_u64().unwrap();
    if completions + 2 < instances(&within) || completions > instances(&around) + 2 {
        found.push(format!("{name}: {completions} completions, in truth {}", instances(&within)));
    }
    let ms = |key: &str| seen[key].as_u64().map_or(f64::NAN, |ns| ns as f64 / 1e6);
    let worst = |all: &[Completion], of: fn(&Completion) -> f64| all.iter().map(of).fold(0.0, f64::max);
    let (least, most) = (worst(&within, Completion::latency_ms), worst(&around, Completion::most_ms));
    // A comparison with NaN is false: what was not measured is a difference.
    if !(ms("worst_ns") >= least - TOLERANCE_MS && ms("worst_ns") <= most + TOLERANCE_MS) {
        found.push(format!("{name}: worst {:.2} ms, in truth {least:.2} to {most:.2}", ms("worst_ns")));
    }
    let mut sorted: Vec<f64> = within.iter().map(Completion::latency_ms).collect();
    sorted.sort_by(f64::total_cmp);
    // The median of the instances within or around: two more on either side.
    let middle = sorted.len() / 2;
    let (low, high) = (sorted[middle.saturating_sub(3)], sorted[(middle + 3).min(sorted.len() - 1)]);
    let median = ms("median_ns");
    if !(median >= low - TOLERANCE_MS && median <= high + TOLERANCE_MS) {
        found.push(format!("{name}: median {median:.2} ms, in truth {low:.2} to {high:.2}"));
    }
    // At the end it may be learning anew, since what came last was denser than all before.
    let bounded = managed.message(name).iter().any(|word| word.bound_ms.is_some());
    if chain.expected == Expected::Bounded && !bounded {
        found.push(format!("{name}: no bound: {state}, \"{why}\""));
    }
    false_guarantees(managed, chain, found);
}

/// No latency that the nodes wrote down is above a bound that was called guaranteed meanwhile.
pub fn false_guarantees(managed: &Managed, chain: &Chain, found: &mut Vec<String>) {
    let broken = managed.broken(chain);
    if broken.above > 0 {
        found.push(format!(
            "{}: FALSE GUARANTEE: {} of {} latencies above the bound, by up to {:.2} ms; the manager noticed {}",
            chain.name,
            broken.above,
            broken.guaranteed,
            broken.worst_excess_ms,
            managed.run_of(chain.name)["false_guarantees"]
        ));
    }
}

/// Facts that are equal in each run of one system: the chains' ways, and the chains that cannot be
/// analysed, with the reason.
pub fn answer(managed: &Managed) -> BTreeMap<String, String> {
    let mut answer = BTreeMap::new();
    for name in managed.truth.callbacks().keys() {
        let Some(callback) = managed.callback(&in_model(name)) else { continue };
        let model = &managed.all["model"];
        let executor = &model["executors"][callback["executor"].as_u64().unwrap() as usize];
        let (kind, of) = callback["kind"].as_object().unwrap().iter().next().unwrap();
        // Topics have other numbers in each run.
        let of = match &of["period_ns"] {
            serde_json::Value::Null => {
                let id = of.as_object().unwrap().values().next().unwrap().as_u64().unwrap();
                model["topics"][id as usize]["name"].to_string()
            }
            period_ns => format!("{period_ns} ns"),
        };
        answer.insert((*name).to_owned(), format!("{kind} {of}, {}", executor["kind"]));
    }
    for chain in CHAINS {
        let seen = managed.all["plan"]["chains"]
            .as_array()
            .unwrap()
            .iter()
            .find(|it| it["name"] == chain.name)
            .unwrap();
        let state = seen["state"]["state"].as_str().unwrap();
        // Threads have other numbers in each run, and whether a goal is kept depends on what else
        // the CPUs do.
        let why = seen["state"]["why"].as_str().unwrap_or("");
        let why: String = why.chars().filter(|it| !it.is_ascii_digit()).collect();
        let message = if state == "not_analysable" || state == "not_found" {
            format!("{state}: {why}")
        } else {
            "analysed".to_owned()
        };
        answer.insert(
            format!("chain {}", chain.name),
            format!("{message}; {}", managed.path(chain.name).join(", ")),
        );
    }
    answer
}

//! Assumptions of a plan's bounds, in a form that can be checked against every event.

use std::collections::BTreeSet;

use takt_model::{Allowance, Assumed, Callback, CallbackId, CallbackKind, Model, Outside};

use super::{Manager, Present};
use crate::analysis::Disturbance;
use crate::curves::Counts;
use crate::plan::ChainState;
use crate::policy::Policy;
use crate::workload::{Activity, Suspension};

/// Threads of the middleware work for a fraction of this with any ordinary message. Threads that
/// were seen to take longer waited for a CPU, which nothing guarantees them: they have no
/// reservations, and run when the reserved ones leave them time. The longest of such waits says
/// nothing about the next.
pub const MAX_DELIVERY_NS: u64 = 25_000_000;

/// The grounds of a plan.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Grounds {
    /// Assumptions about callbacks.
    pub assumed: Vec<Assumed>,
    /// Allowances for callbacks beyond that, by their accounts.
    pub allowances: Vec<Allowance>,
    /// One per goal, in the order of the goals file.
    pub chains: Vec<ChainGrounds>,
}

/// Assumptions of one chain's bound.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChainGrounds {
    /// Callbacks on its paths, by name.
    pub path: BTreeSet<String>,
    /// Callbacks whose execution times and arrivals are in the bound: all that the influencing
    /// executors serve.
    pub callbacks: BTreeSet<String>,
    /// Threads whose reservations the bound needs.
    pub threads: BTreeSet<u32>,
    /// Topics on its way with messages whose publishers are not observed, and of which nobody knows
    /// how long they waited.
    pub unobserved: Vec<String>,
    /// Callbacks whose messages pass the middleware, and nobody knows how long that takes.
    pub undelivered: Vec<String>,
    /// Callbacks on its way whose messages the middleware was seen to hold for longer than
    /// [`MAX_DELIVERY_NS`], and how long.
    pub delayed: Vec<(String, u64)>,
    /// Processes on its way that messages of other threads come to by the middleware.
    pub receivers: BTreeSet<u32>,
    /// Processes of these threads.
    pub processes: BTreeSet<u32>,
    /// Those of them that are starting, and have not shown what they do afterwards.
    pub starting: Vec<u32>,
    /// Callbacks of these executors that are due and have not run yet.
    pub not_run: Vec<String>,
    /// Callbacks of which nobody shows how often they suspend themselves or yield.
    pub unseen: Vec<String>,
}

impl Manager {
    /// Assumptions of the present plan's bounds; `model` is the snapshot from which it was made, or
    /// the present one if the plan was repeated.
    #[must_use]
    pub fn grounds(&self, model: &Model) -> Grounds {
        let Some(present) = &self.present else { return Grounds::default() };
        let mut grounds = Grounds::default();
        let mut needed: BTreeSet<usize> = BTreeSet::new();
        let mut named: BTreeSet<usize> = BTreeSet::new();
        for (index, plan) in present.plan.chains.iter().enumerate() {
            let on_path = present.on_path.get(index).map_or(&[][..], Vec::as_slice);
            named.extend(on_path);
            let servers =
                if plan.state == ChainState::Guaranteed { servers(present, on_path) } else { Vec::new() };
            let callbacks = servers.iter().flat_map(|s| &present.planned.executors[*s].callbacks);
            let callbacks: BTreeSet<usize> = callbacks.copied().collect();
            let name = |number: &usize| present.planned.callbacks.get(*number).map(|c| c.name.clone());
            let unseen = |number: &&usize| model.callbacks.get(**number).is_some_and(|c| c.suspension_unseen);
            // Callbacks that an earlier run reported are known.
            let not_run = |number: &&usize| {
                model.not_run.contains(&CallbackId(**number))
                    && model.callbacks.get(**number).is_some_and(|c| c.cost.seen == 0)
            };
            let threads = |server: &usize| {
                let ids = present.planned.executors[*server].threads.iter();
                ids.filter_map(|id| model.threads.get(id.0).map(|thread| thread.tid))
            };
            grounds.chains.push(ChainGrounds {
                path: on_path.iter().filter_map(name).collect(),
                callbacks: callbacks.iter().filter_map(name).collect(),
                threads: servers.iter().flat_map(threads).collect(),
                unobserved: unobserved(model, on_path),
                undelivered: undelivered(present, on_path),
                delayed: match self.goals.options.policy {
                    Policy::Takt => delayed(model, on_path),
                    // Its bounds leave delivery out, however long that takes (VII.A.c).
                    Policy::RosLlama => Vec::new(),
                },
                receivers: receivers(present, model, on_path),
                starting: starting(present, model, &servers),
                processes: processes(present, model, &servers),
                not_run: callbacks.iter().filter(not_run).filter_map(name).collect(),
                unseen: callbacks.iter().filter(unseen).filter_map(name).collect(),
            });
            needed.extend(callbacks);
        }
        let disturbance = present.plan.slack.map(|slack| slack.disturbance()).filter(|it| it.window_ns > 0);
        if let Some(Disturbance { most_ns, window_ns }) = disturbance {
            let cores = present.places.iter().flatten().max().map_or(0, |most| most + 1);
            grounds.allowances = vec![Allowance { most_ns, window_ns }; cores];
        }
        let derived = derived(present, model, &needed);
        let counted = counted(model, &derived);
        for number in needed.union(&named) {
            let Some(activity) = present.planned.callbacks.get(*number) else { continue };
            grounds.assumed.push(if needed.contains(number) {
                let callback = model.callbacks.get(*number);
                let outputs = callback
                    .map(|callback| outputs(callback, model, &derived, self.goals.options.policy))
                    .unwrap_or_default();
                let account = disturbance.and(present.places.get(activity.server).copied().flatten());
                Assumed { account, ..assumed(activity, callback, outputs, senders(*number, model, &counted)) }
            } else {
                // Only whether it is there.
                Assumed { callback: activity.name.clone(), ..Assumed::default() }
            });
        }
        grounds
    }
}

fn servers(present: &Present, on_path: &[usize]) -> Vec<usize> {
    if !present.shared.is_empty() {
        return present.shared.clone();
    }
    let on_path = on_path.iter().filter_map(|c| present.planned.callbacks.get(*c));
    present.planned.influencing(on_path.map(|c| c.server))
}

fn assumed(
    activity: &Activity,
    callback: Option<&Callback>,
    outputs: Vec<(String, Vec<u64>)>,
    senders: Vec<String>,
) -> Assumed {
    let spans_ns = activity.root.as_ref().map(|root| {
        let spans_ns = root.spans_ns();
        match callback {
            Some(callback) if declared(callback) => timer_starts(spans_ns),
            _ => spans_ns.to_vec(),
        }
    });
    // As the plan has them, margins included.
    let suspension = activity.suspension.as_deref();
    let numbers = |of: fn(&Suspension) -> &Counts| suspension.map(|s| of(s).entries().to_vec());
    Assumed {
        callback: activity.name.clone(),
        cost_ns: Some(activity.cost.most_ns().to_vec()),
        spans_ns,
        // Messages that come another way than those that were seen are later than assumed, too.
        delivery_ns: (!activity.undelivered).then(|| activity.allowed_delivery_ns()),
        own_delivery_ns: activity.own_delivery_ns.map(|_| activity.allowed_own_delivery_ns()),
        suspension_ns: Some(suspension.map(|s| s.most.most_ns().to_vec()).unwrap_or_default()),
        suspensions: numbers(|s| &s.times).unwrap_or_default(),
        yields: numbers(|s| &s.yields).unwrap_or_default(),
        outputs,
        senders,
        account: None,
        closed: true,
    }
}

/// Topics by which callbacks under a bound are activated as often as their publishers say.
fn derived(present: &Present, model: &Model, needed: &BTreeSet<usize>) -> BTreeSet<usize> {
    let follows = |number: &usize| {
        needed.contains(number)
            && present.planned.callbacks.get(*number).is_some_and(|activity| !activity.inputs.is_empty())
    };
    let topics = model.topics.iter().enumerate();
    topics.filter(|(_, t)| t.subscribers.iter().any(|s| follows(&s.0))).map(|(topic, _)| topic).collect()
}

/// Messages that a callback sends there, as the plan reads the counts.
fn outputs(
    callback: &Callback,
    model: &Model,
    derived: &BTreeSet<usize>,
    policy: Policy,
) -> Vec<(String, Vec<u64>)> {
    let counted = callback.outputs.iter().filter(|output| derived.contains(&output.topic.0));
    let named = counted.filter_map(|output| Some((output, model.topics.get(output.topic.0)?)));
    named
        .map(|(output, topic)| {
            let counted = Counts::measured(&output.most, output.most_per_activation);
            let counts = match policy {
                Policy::Takt => counted,
                Policy::RosLlama => Counts::each(counted.of(1)),
            };
            (topic.name.clone(), counts.entries().to_vec())
        })
        .collect()
}

/// Those of these topics whose publishers the plan knows all by their counts.
fn counted(model: &Model, derived: &BTreeSet<usize>) -> Vec<usize> {
    let counts = |topic: usize, publisher: &CallbackId| {
        let publisher = model.callbacks.get(publisher.0);
        publisher.is_some_and(|p| p.outputs.iter().any(|output| output.topic.0 == topic))
    };
    let known = |topic: &usize| {
        let publishers = model.topics.get(*topic).map(|topic| &topic.publishers);
        publishers.is_some_and(|publishers| publishers.iter().all(|publisher| counts(*topic, publisher)))
    };
    derived.iter().copied().filter(known).collect()
}

/// By which of these topics a callback is activated.
fn senders(number: usize, model: &Model, counted: &[usize]) -> Vec<String> {
    let topics = counted.iter().filter_map(|topic| model.topics.get(*topic));
    let topics = topics.filter(|topic| topic.subscribers.iter().any(|s| s.0 == number));
    topics.map(|topic| topic.name.clone()).collect()
}

/// A timer whose curve is its period, and not what was seen.
pub(super) fn declared(callback: &Callback) -> bool {
    let CallbackKind::Timer { period_ns } = callback.kind else { return false };
    let multiples = callback.arrivals.least_span_ns.iter().zip(1_u64..);
    period_ns > 0
        && multiples.clone().count() > 0
        && multiples.clone().all(|(span, k)| *span == k * period_ns)
}

/// The observed events of a timer are its starts, but its curve is that of its releases. After a
/// late start the next comes no sooner than the next release, so that `n` starts after another take
/// at least `n - 1` periods; with the same allowance as where the model decides whether a timer
/// keeps its period.
fn timer_starts(spans_ns: &[u64]) -> Vec<u64> {
    let first_ns = spans_ns.first().copied().unwrap_or(0);
    let least = |span_ns: &u64| {
        let least_ns = span_ns.saturating_sub(first_ns);
        least_ns.saturating_sub(1_000_000 + least_ns / 64)
    };
    spans_ns.iter().map(least).collect()
}

fn undelivered(present: &Present, on_path: &[usize]) -> Vec<String> {
    let on_path = on_path.iter().filter_map(|number| present.planned.callbacks.get(*number));
    on_path.filter(|activity| activity.undelivered).map(|activity| activity.name.clone()).collect()
}

fn receivers(present: &Present, model: &Model, on_path: &[usize]) -> BTreeSet<u32> {
    let activities = on_path.iter().filter_map(|number| present.planned.callbacks.get(*number));
    let servers: Vec<usize> = activities
        .filter(|activity| activity.delivery_ns.is_some())
        .map(|activity| activity.server)
        .collect();
    processes(present, model, &servers)
}

fn delayed(model: &Model, on_path: &[usize]) -> Vec<(String, u64)> {
    let on_path = on_path.iter().filter_map(|number| model.callbacks.get(*number));
    let longest = |callback: &Callback| {
        let delivery = callback.delivery?;
        delivery.most_ns.max(delivery.own_most_ns).filter(|ns| *ns > MAX_DELIVERY_NS)
    };
    on_path.filter_map(|callback| Some((callback.name.clone(), longest(callback)?))).collect()
}

fn processes(present: &Present, model: &Model, servers: &[usize]) -> BTreeSet<u32> {
    let threads = servers.iter().flat_map(|s| present.planned.executors[*s].threads.iter());
    threads.filter_map(|id| model.threads.get(id.0)).map(|thread| thread.pid).collect()
}

fn starting(present: &Present, model: &Model, servers: &[usize]) -> Vec<u32> {
    processes(present, model, servers).into_iter().filter(|pid| model.starting.contains(pid)).collect()
}

fn unobserved(model: &Model, on_path: &[usize]) -> Vec<String> {
    let takes = |topic: &&takt_model::Topic| topic.subscribers.iter().any(|s| on_path.contains(&s.0));
    let unknown = |topic: &&takt_model::Topic| matches!(topic.outside, Outside::Unknown { seen } if seen > 0);
    model.topics.iter().filter(takes).filter(unknown).map(|topic| topic.name.clone()).collect()
}

//! A snapshot of a running system in the form that the analysis takes.
//!
//! **Multi-threaded executors** have a reservation for each of their threads; all threads that
//! serve them must be known. **Events executors**: their timers enter the queue through a thread of
//! `rclcpp` that has no reservation; the time that this takes is taken to be nothing. The time of
//! the middleware's threads is measured ([`takt_model::Delivery`]).

use std::collections::BTreeSet;
use std::sync::Arc;

use takt_model::{Callback, CallbackKind, ExecutorKind, Model, Outside, ThreadId};

use crate::curves::{Cost, Counts, Spans};
use crate::load::{DISPATCH_NS, Load};
use crate::spent;

/// Options for reading measured curves.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reading {
    /// Share by which measured execution times are lengthened.
    pub cost_margin: f64,
    /// Share by which measured spans between arrivals are shortened.
    pub arrival_margin: f64,
    /// Execution times with at most this probability of being exceeded; `None`: the worst seen.
    pub exceedance: Option<f64>,
}

/// Callbacks, what serves them, and what activates what.
#[derive(Debug, Clone, PartialEq)]
pub struct Workload {
    /// As in the model, same numbers.
    pub executors: Vec<Server>,
    /// As in the model, same numbers.
    pub callbacks: Vec<Activity>,
    /// Callbacks, each after all that activate it.
    pub order: Vec<usize>,
    /// Ways that no chain can be given a bound on: a callback, the topic that it leads to, and why.
    /// Arrivals are propagated along them nevertheless: one message for each activation is the most
    /// that passes.
    pub broken: Vec<(usize, usize, String)>,
    /// Assumptions, for the log.
    pub assumptions: Vec<String>,
    /// By executor, the CPU time of looking for work once that was seen at most; `None`: it was
    /// not.
    pub dispatch_ns: Vec<Option<u64>>,
}

/// Whatever serves callbacks one after another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// For messages.
    pub name: String,
    /// Its living threads, each of which gets a reservation; none: it has ended, or cannot be given
    /// a budget.
    pub threads: Vec<ThreadId>,
    /// In which order it runs what is activated.
    pub order: Order,
    /// Callbacks that it serves.
    pub callbacks: Vec<usize>,
}

/// In which order an executor runs what is activated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Order {
    /// It runs nothing but its own loop.
    Alone,
    /// A wait set, filled when it is empty, and of each callback one instance from it.
    WaitSet {
        /// Timers come before all others.
        timers_first: bool,
    },
    /// In the order of activation.
    Fifo,
    /// In any order, but never idle while something is ready, and each callback's activations one
    /// after another.
    Any,
    /// Several threads, in any order.
    Threads {
        /// For every callback of the executor those that never run while it does, itself among them
        /// where it does not run twice at once.
        excludes: Vec<Vec<usize>>,
    },
}

/// Suspension of a callback.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suspension {
    /// Longest time, in so many activations.
    pub most: Cost,
    /// Number of suspensions.
    pub times: Counts,
    /// Number of yields of the CPU.
    pub yields: Counts,
}

/// One callback.
#[derive(Debug, Clone, PartialEq)]
pub struct Activity {
    pub name: String,
    /// The server of the callback.
    pub server: usize,
    /// A timer: before all others at every polling point.
    pub timer: bool,
    /// Execution times.
    pub cost: Arc<Cost>,
    /// Self-suspension; `None`: it has none.
    pub suspension: Option<Arc<Suspension>>,
    /// The longest that the middleware was seen to take with a message to it
    /// ([`takt_model::Delivery`]); `None`: it gets none.
    pub delivery_ns: Option<u64>,
    /// The same with messages that its own thread sends.
    pub own_delivery_ns: Option<u64>,
    /// Its messages pass the middleware, and nothing is known of how long that takes.
    pub undelivered: bool,
    /// Its root is the arrival of messages at the subscriber, and not their publication.
    pub arrived: bool,
    /// Activations from outside the graph.
    pub root: Option<Arc<Spans>>,
    /// Callbacks that activate it, and how often so many of their activations in a row.
    pub inputs: Vec<(usize, Arc<Counts>)>,
    /// Reason why no chain through it can have a bound.
    pub trouble: Option<String>,
}

/// Addition to the longest observed delivery: a quarter, and this much. Threads without a
/// reservation deliver; a wake-up on a busy machine differs by this from one time to the next.
const DELIVERY_MARGIN_NS: u64 = 300_000;

impl Activity {
    /// Allowance for the middleware with a message to it: the longest observed time, a quarter more
    /// and `DELIVERY_MARGIN_NS`. Every message is checked against it.
    #[must_use]
    pub(crate) fn allowed_delivery_ns(&self) -> u64 {
        self.delivery_ns.map_or(0, with_margin)
    }

    /// The same with messages that its own thread sends: none where they were always delivered
    /// within the publication.
    #[must_use]
    pub(crate) fn allowed_own_delivery_ns(&self) -> u64 {
        self.own_delivery_ns.filter(|ns| *ns > 0).map_or(0, with_margin)
    }

    /// Load of `n` activations in a row on their thread.
    #[must_use]
    #[inline]
    pub fn load(&self, n: u64) -> Load {
        let (suspended_ns, suspensions, yields) = match &self.suspension {
            Some(s) if n > 0 => (s.most.of(n), s.times.of(n), s.yields.of(n)),
            _ => (0, 0, 0),
        };
        Load { work_ns: self.cost.of(n), suspended_ns, suspensions, yields }
    }
}

fn with_margin(ns: u64) -> u64 {
    ns.saturating_add(ns / 4).saturating_add(DELIVERY_MARGIN_NS)
}

impl Workload {
    /// Brings a model to this form. Never fails: what cannot be analysed is marked so.
    #[must_use]
    pub fn new(model: &Model, reading: &Reading) -> Self {
        let _spent = spent::on(spent::Part::Model);
        let executors: Vec<Server> = (0..model.executors.len()).map(|e| server(model, e)).collect();
        let mut assumptions = Vec::new();
        let mut callbacks: Vec<Activity> = (0..model.callbacks.len())
            .map(|number| activity(model, &executors, number, reading, &mut assumptions))
            .collect();
        let mut broken = Vec::new();
        for entry in &model.unanalysable {
            if let Some(topic) = entry.towards {
                broken.extend(entry.callbacks.iter().map(|c| (c.0, topic.0, entry.reason.clone())));
                continue;
            }
            for id in &entry.callbacks {
                let Some(callback) = callbacks.get_mut(id.0) else { continue };
                callback.trouble.get_or_insert_with(|| entry.reason.clone());
                // Its activations are not plain publications, so the observed arrivals count.
                measured_root(callback, &model.callbacks[id.0], reading);
            }
        }
        let order = order(model, &mut callbacks, reading, &mut assumptions);
        let dispatch_ns: Vec<Option<u64>> = (0..executors.len())
            .map(|executor| model.dispatch_ns.get(executor).copied().filter(|ns| *ns > 0))
            .collect();
        for (server, _) in executors
            .iter()
            .zip(&dispatch_ns)
            .filter(|(server, ns)| ns.is_none() && matches!(server.order, Order::Threads { .. }))
        {
            assumptions.push(format!(
                "{}: the cost of its polls for work was not seen; {} us each are assumed",
                server.name,
                DISPATCH_NS / 1000
            ));
        }
        for id in &model.not_run {
            let Some(callback) = model.callbacks.get(id.0).filter(|callback| callback.cost.seen == 0) else {
                continue;
            };
            assumptions.push(format!(
                "{}: it has not run yet, so its execution time is unknown, and no chain that shares an executor or a core with it is \
                 guaranteed until then",
                callback.name
            ));
        }
        Self { executors, callbacks, order, broken, assumptions, dispatch_ns }
    }

    /// CPU time that an executor is allowed for looking for work once: half as much again as was
    /// seen, and 20 us; what is not known costs [`DISPATCH_NS`].
    #[must_use]
    pub fn allowed_dispatch_ns(&self, server: usize) -> u64 {
        match self.dispatch_ns.get(server).copied().flatten() {
            Some(ns) => ns.saturating_add(ns / 2).saturating_add(20_000),
            None => DISPATCH_NS,
        }
    }

    /// All servers whose budgets influence response times on `of`: those and all upstream of any of
    /// their callbacks.
    #[must_use]
    pub fn influencing(&self, of: impl IntoIterator<Item = usize>) -> Vec<usize> {
        let mut seen: BTreeSet<usize> = BTreeSet::new();
        let mut open: Vec<usize> = of.into_iter().collect();
        while let Some(server) = open.pop() {
            if !seen.insert(server) {
                continue;
            }
            for callback in &self.executors[server].callbacks {
                open.extend(self.callbacks[*callback].inputs.iter().map(|(p, _)| self.callbacks[*p].server));
            }
        }
        seen.into_iter().collect()
    }
}

fn server(model: &Model, number: usize) -> Server {
    let executor = &model.executors[number];
    let living: Vec<ThreadId> = executor
        .threads
        .iter()
        .copied()
        .filter(|id| model.threads.get(id.0).is_some_and(|t| !t.ended))
        .collect();
    let several = executor.kind == ExecutorKind::MultiThreaded;
    let threads = if living.len() == 1 || several { living } else { Vec::new() };
    let name = name(model, number);
    let callbacks =
        executor.callbacks.iter().map(|id| id.0).filter(|id| *id < model.callbacks.len()).collect::<Vec<_>>();
    let order = match executor.kind {
        ExecutorKind::Source | ExecutorKind::Task if callbacks.len() == 1 => Order::Alone,
        ExecutorKind::Events => Order::Fifo,
        ExecutorKind::Static => Order::Any,
        ExecutorKind::MultiThreaded => Order::Threads { excludes: excludes(executor, &callbacks) },
        _ => Order::WaitSet { timers_first: true },
    };
    Server { name, threads, order, callbacks }
}

/// Callbacks that never run while another one of a multi-threaded executor does. If a group is
/// unknown, all are assumed to be excluded: the longest wait.
fn excludes(executor: &takt_model::Executor, callbacks: &[usize]) -> Vec<Vec<usize>> {
    let group = |callback: usize| {
        executor.groups.iter().position(|group| group.callbacks.iter().any(|c| c.0 == callback))
    };
    let groups: Vec<Option<usize>> = callbacks.iter().map(|callback| group(*callback)).collect();
    let excluded = |own: Option<usize>, other: Option<usize>| match (own, other) {
        (Some(own), Some(other)) => own == other && !executor.groups[own].reentrant,
        _ => true,
    };
    groups
        .iter()
        .map(|own| {
            let others = callbacks.iter().zip(&groups).filter(|(_, other)| excluded(*own, **other));
            others.map(|(callback, _)| *callback).collect()
        })
        .collect()
}

/// Name for people: its node, if all callbacks belong to one, and its thread.
fn name(model: &Model, number: usize) -> String {
    let executor = &model.executors[number];
    let thread = executor.threads.first().and_then(|id| model.threads.get(id.0));
    let mut nodes = executor.callbacks.iter().map(|c| model.callbacks.get(c.0).and_then(|c| c.node));
    let node = nodes.next().flatten().filter(|first| nodes.all(|n| n == Some(*first)));
    let node = node.and_then(|n| model.nodes.get(n.0));
    match (node, thread) {
        (Some(node), Some(thread)) => format!("{} ({}/{})", node.name, thread.name, thread.tid),
        (None, Some(thread)) => format!("{}/{}", thread.name, thread.tid),
        (Some(node), None) => node.name.clone(),
        (None, None) => format!("executor {number}"),
    }
}

fn activity(
    model: &Model,
    servers: &[Server],
    number: usize,
    reading: &Reading,
    assumptions: &mut Vec<String>,
) -> Activity {
    let callback = &model.callbacks[number];
    let server = callback.executor.0.min(servers.len().saturating_sub(1));
    let mut trouble = match (model.executors.get(callback.executor.0), servers.get(callback.executor.0)) {
        (None, _) | (_, None) => Some("its executor is unknown".to_owned()),
        (Some(_), Some(s)) if s.threads.is_empty() => Some("its thread has ended".to_owned()),
        _ => None,
    };
    if callback.cost.most_ns.is_empty() && callback.arrivals.seen > 0 {
        trouble.get_or_insert_with(|| "its execution times were not seen".to_owned());
    }
    let mut activity = Activity {
        name: callback.name.clone(),
        server,
        timer: matches!(callback.kind, CallbackKind::Timer { .. }),
        cost: Arc::new(cost(callback, reading, assumptions)),
        suspension: suspension(callback, reading),
        delivery_ns: callback.delivery.and_then(|delivery| delivery.most_ns),
        own_delivery_ns: callback.delivery.and_then(|delivery| delivery.own_most_ns),
        undelivered: undelivered(callback),
        arrived: false,
        root: None,
        inputs: Vec::new(),
        trouble,
    };
    let publishers = match callback.kind {
        CallbackKind::Timer { .. } | CallbackKind::Source => Vec::new(),
        _ => publishers(model, number),
    };
    let provisionable = |p: usize| {
        servers.get(model.callbacks[p].executor.0).is_some_and(|s| !s.threads.is_empty())
            && model.callbacks[p].arrivals.seen > 0
    };
    // Announcements of start-up, as those on `/parameter_events`: nothing is known to come again,
    // and what does counts as it arrives. Otherwise every executor with default nodes would wait
    // for the bounds of all that once made a node.
    let announced = !publishers.is_empty() && publishers.iter().all(|pair| in_start_up_alone(model, *pair));
    if announced {
        assumptions.push(format!(
            "{}: its messages arrived only during start-up, so the analysis uses the observed arrivals",
            callback.name
        ));
        measured_root(&mut activity, callback, reading);
        return activity;
    }
    // Others publish to it as well, whom nobody observes.
    let outside = !publishers.is_empty()
        && model
            .topics
            .iter()
            .any(|topic| topic.outside != Outside::None && topic.subscribers.iter().any(|s| s.0 == number));
    activity.arrived = outside || publishers.is_empty();
    if publishers.is_empty() || outside || !publishers.iter().all(|(p, _)| provisionable(*p)) {
        measured_root(&mut activity, callback, reading);
        if !publishers.is_empty() {
            assumptions.push(format!(
                "{}: some of its messages come from callbacks that cannot have a budget, so the analysis uses the observed arrivals",
                callback.name
            ));
        }
        return activity;
    }
    activity.inputs = inputs(model, callback, &publishers, assumptions);
    if activity.inputs.is_empty() {
        measured_root(&mut activity, callback, reading);
    }
    activity
}

/// Callbacks that send to a callback, and the topics by which. Not only the topic that it
/// subscribed to: the virtual ones of cut cycles reach it too.
fn publishers(model: &Model, number: usize) -> Vec<(usize, usize)> {
    let mut publishers: Vec<(usize, usize)> = model
        .topics
        .iter()
        .enumerate()
        .filter(|(_, t)| t.subscribers.iter().any(|s| s.0 == number))
        .flat_map(|(topic, t)| t.publishers.iter().map(move |p| (p.0, topic)))
        .filter(|(p, _)| *p < model.callbacks.len())
        .collect();
    publishers.sort_unstable();
    publishers.dedup();
    publishers
}

/// Whether a publisher's messages on a topic were seen while processes were starting and never
/// since: several, and no span of the steady state.
fn in_start_up_alone(model: &Model, (publisher, topic): (usize, usize)) -> bool {
    let outputs = &model.callbacks[publisher].outputs;
    outputs
        .iter()
        .any(|it| it.topic.0 == topic && it.arrivals.seen > 1 && it.arrivals.least_span_ns.is_empty())
}

/// Number of messages that each publisher sends. If messages were not counted by activation, at
/// least as many as were sent each time in the mean are assumed, and the log says so; with more
/// than a few, the arrivals are the observed ones (nothing is returned).
fn inputs(
    model: &Model,
    callback: &Callback,
    publishers: &[(usize, usize)],
    assumptions: &mut Vec<String>,
) -> Vec<(usize, Arc<Counts>)> {
    let counted = |(publisher, topic): &(usize, usize)| {
        let outputs = &model.callbacks[*publisher].outputs;
        let output = outputs.iter().find(|output| output.topic.0 == *topic)?;
        Some(Counts::measured(&output.most, output.most_per_activation))
    };
    let mut unknown: Vec<usize> = publishers.iter().filter(|p| counted(p).is_none()).map(|p| p.0).collect();
    unknown.dedup();
    let sent: u64 = unknown.iter().map(|p| model.callbacks[*p].arrivals.seen).sum();
    let taken = callback.arrivals.seen;
    // One message for each activation explains what was seen, but for a few under way when watching
    // began.
    let enough = taken <= sent + sent / 20 + 2 || unknown.len() < publishers.len();
    let times = if enough { 1 } else { taken.div_ceil(sent.max(1)) };
    if times > 8 {
        assumptions.push(format!(
            "{}: {taken} messages of {sent} activations, so the analysis uses the observed arrivals",
            callback.name
        ));
        return Vec::new();
    }
    if times > 1 {
        assumptions.push(format!(
            "{}: {taken} messages of {sent} activations, so up to {times} each time",
            callback.name
        ));
    }
    let mut inputs: Vec<(usize, Arc<Counts>)> = Vec::new();
    for pair in publishers {
        let counts = counted(pair).unwrap_or_else(|| Counts::each(times));
        match inputs.last_mut() {
            // By several topics.
            Some((publisher, sum)) if *publisher == pair.0 => *sum = Arc::new(sum.with(&counts)),
            _ => inputs.push((pair.0, Arc::new(counts))),
        }
    }
    inputs
}

/// Whether it is activated by messages, and how long these were under way was never seen.
fn undelivered(callback: &Callback) -> bool {
    let by_message = !matches!(callback.kind, CallbackKind::Timer { .. } | CallbackKind::Source);
    by_message && callback.delivery.is_none()
}
/// Addition to the longest observed suspension besides the margin of costs, because sleeps vary:
/// 100 microseconds, twice the slack of the kernel's timers.
const SLEEP_VARIES_NS: u64 = 100_000;

fn suspension(callback: &Callback, reading: &Reading) -> Option<Arc<Suspension>> {
    let none = |most: &[u64]| most.last().is_none_or(|most| *most == 0);
    let suspends = callback.most_suspensions > 0 || !none(&callback.suspension.most_ns);
    if !suspends && none(&callback.yields) {
        return None;
    }
    // With no margin the curve is asked for as it was measured.
    let varies_ns = if reading.cost_margin > 0.0 && suspends { SLEEP_VARIES_NS } else { 0 };
    let lengths: Vec<u64> =
        callback.suspension.most_ns.iter().map(|ns| ns.saturating_add(varies_ns)).collect();
    let each = |most: &[u64]| most.first().copied().unwrap_or(0);
    let often = callback.most_suspensions.max(each(&callback.suspensions)).max(u64::from(suspends));
    Some(Arc::new(Suspension {
        most: Cost::new(&lengths, reading.cost_margin),
        times: Counts::measured(&callback.suspensions, often),
        yields: Counts::measured(&callback.yields, each(&callback.yields)),
    }))
}

fn cost(callback: &Callback, reading: &Reading, assumptions: &mut Vec<String>) -> Cost {
    if let Some(asked) = reading.exceedance {
        let fitting = callback
            .probable_cost
            .iter()
            .filter(|p| p.exceedance <= asked && !p.most_ns.is_empty())
            .max_by(|a, b| a.exceedance.total_cmp(&b.exceedance));
        if let Some(curve) = fitting {
            return Cost::new(&curve.most_ns, reading.cost_margin);
        }
        assumptions.push(format!(
            "{}: no execution-time curve for probability {asked}; the analysis uses the worst seen",
            callback.name
        ));
    }
    Cost::measured(&callback.cost, reading.cost_margin)
}

/// Its arrivals are those seen, and not those that its publishers cause.
pub(crate) fn measured_root(activity: &mut Activity, callback: &Callback, reading: &Reading) {
    activity.inputs.clear();
    match Spans::measured(&callback.arrivals, reading.arrival_margin) {
        Ok(spans) => activity.root = Some(Arc::new(spans)),
        Err(error) => {
            activity.root = None;
            activity.trouble.get_or_insert_with(|| error.to_string());
        }
    }
}

/// Each callback after all that activate it. Cycles are cut where the fewest callbacks stand
/// between: at the one of the least number.
fn order(
    model: &Model,
    callbacks: &mut [Activity],
    reading: &Reading,
    assumptions: &mut Vec<String>,
) -> Vec<usize> {
    let mut order = Vec::with_capacity(callbacks.len());
    let mut placed = vec![false; callbacks.len()];
    let mut missing: Vec<usize> = callbacks.iter().map(|c| c.inputs.len()).collect();
    let mut outputs = vec![Vec::new(); callbacks.len()];
    for (number, callback) in callbacks.iter().enumerate() {
        for (publisher, _) in &callback.inputs {
            outputs[*publisher].push(number);
        }
    }
    let mut ready: Vec<usize> = (0..callbacks.len()).rev().filter(|c| missing[*c] == 0).collect();
    loop {
        while let Some(next) = ready.pop() {
            if std::mem::replace(&mut placed[next], true) {
                continue;
            }
            order.push(next);
            for output in &outputs[next] {
                missing[*output] = missing[*output].saturating_sub(1);
                if missing[*output] == 0 {
                    ready.push(*output);
                }
            }
        }
        let Some(start) = placed.iter().position(|p| !p) else { break };
        let cut = on_cycle(callbacks, &placed, start);
        let callback = &mut callbacks[cut];
        assumptions.push(format!(
            "{}: on an activation cycle; the analysis uses the observed arrivals",
            callback.name
        ));
        callback.trouble.get_or_insert_with(|| "it is on an activation cycle".to_owned());
        measured_root(callback, &model.callbacks[cut], reading);
        ready.push(cut);
    }
    order
}

/// Some callback on a cycle: going backwards from one that could not be placed must come round.
fn on_cycle(callbacks: &[Activity], placed: &[bool], start: usize) -> usize {
    let mut seen = vec![false; callbacks.len()];
    let mut at = start;
    while !std::mem::replace(&mut seen[at], true) {
        at = callbacks[at].inputs.iter().map(|(p, _)| *p).find(|p| !placed[*p]).unwrap_or(start);
    }
    at
}

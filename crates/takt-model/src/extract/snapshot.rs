//! The snapshot: from the extractor's tables to the model that others read.

use std::collections::{BTreeMap, BTreeSet};

use super::groups::{self, Groups, Type};
use super::names::{names, only_client, topic_name};
use super::state::{CallbackState, Origin};
use super::{Extractor, cycle, filter, outside, shortest, unrun};
use crate::{
    ArrivalCurve, Callback, CallbackId, CallbackKind, CostCurve, Executor, ExecutorId, ExecutorKind, Model,
    Node, NodeId, Output, Outside, Subscribed, Thread, ThreadId, ThreadRole, Topic, TopicId, Unanalysable,
};

/// Work without events that is shorter than this is a wake-up for nothing: some system calls.
const NOTHING_NS: u64 = 200_000;
/// Entries of a timer's declared curve: it is linear, and extrapolation of any entry gives the
/// rest.
const TIMER_ENTRIES: u64 = 8;
/// Activations on a thread before the lack of an executor's events means anything.
const ENOUGH: u64 = 10;
/// Times that the own code around a thread's executor published, before that is taken for its way
/// of working rather than start-up.
const OWN_LOOP: u64 = 3;

/// Builds the model.
pub(super) fn take(extractor: &Extractor, now_ns: u64) -> Model {
    Builder { extractor, now_ns, model: Model::default() }.build()
}

struct Builder<'a> {
    extractor: &'a Extractor,
    now_ns: u64,
    model: Model,
}

impl Builder<'_> {
    fn build(mut self) -> Model {
        let ex = self.extractor;
        self.model.started_ns = ex.started_ns.unwrap_or(self.now_ns);
        self.model.taken_ns = self.now_ns;
        self.model.lost_events = ex.counters.lost_events;
        self.model.starting = ex.startups.not_shown(self.now_ns);

        let groups = Groups::new(ex);
        let names: Vec<(usize, String)> =
            names(ex).into_iter().filter(|(slot, _)| self.counts(*slot)).collect();
        let mut homes: BTreeMap<usize, usize> = BTreeMap::new();
        let mut unserved = Vec::new();
        for (slot, name) in &names {
            match groups.home(ex, *slot) {
                Some(thread) => {
                    homes.insert(*slot, groups.root(thread));
                }
                // One that ran has lost its thread: with its process, or to be found again on
                // another.
                None if ex.tables.callbacks[*slot].activations > 0 => {}
                None => unserved.push(name.clone()),
            }
        }

        let (threads, executor_ids) = self.threads(&groups, &homes);
        let nodes = self.nodes(&names);
        let topics = self.topics(&homes);
        self.subscribed_by_python(&nodes, &topics);

        let mut ids = BTreeMap::new();
        for (slot, name) in names {
            let Some(root) = homes.get(&slot) else { continue };
            let id = CallbackId(self.model.callbacks.len());
            ids.insert(slot, id);
            self.callback(slot, name, executor_ids[root], &nodes, &topics);
            self.model.executors[executor_ids[root].0].callbacks.push(id);
        }
        self.executor_kinds(&ids, &threads);
        groups::members(ex, &ids, &mut self.model);
        let unreported = self.unreported_suspensions(&ids);
        self.request_edges(&ids, &topics);
        filter::spread(ex, &ids, &mut self.model);
        self.connect();
        self.unanalysable(&ids, &threads, &topics, unserved);
        self.model.unanalysable.extend(unreported);
        outside::mark(ex, &ids, &topics, &mut self.model);
        filter::find(ex, &ids, &topics, &mut self.model);
        shortest::fill(ex, &ids, &topics, &mut self.model);
        unrun::fill(ex, self.now_ns, &ids, (&nodes, &topics), &mut self.model);
        cycle::cut(&mut self.model);
        self.model
    }

    /// Whether a slot belongs into the model. Work without events does where it is more than the
    /// executor's wake-ups for nothing.
    fn counts(&self, slot: usize) -> bool {
        let ex = self.extractor;
        let callback = &ex.tables.callbacks[slot];
        let Origin::Untraced { thread } = callback.origin else { return true };
        let all: u64 = ex
            .tables
            .callbacks
            .iter()
            .filter(|(_, c)| c.last_thread == Some(thread))
            .fold(0, |sum: u64, (_, c)| sum.saturating_add(c.cost.total_ns()));
        !callback.publishes.is_empty()
            || only_client(ex, thread).is_some()
            || callback.cost.total_ns().saturating_mul(100) > all
            // Seldom is not short: one that takes long is in nobody's bound otherwise.
            || callback.cost.curve().most_ns.first().is_some_and(|&most_ns| most_ns > NOTHING_NS)
    }

    fn threads(
        &mut self,
        groups: &Groups,
        homes: &BTreeMap<usize, usize>,
    ) -> (BTreeMap<usize, ThreadId>, BTreeMap<usize, ExecutorId>) {
        let ex = self.extractor;
        let mut executor_ids = BTreeMap::new();
        for &root in homes.values() {
            executor_ids.entry(root).or_insert_with(|| {
                self.model.executors.push(Executor {
                    kind: ExecutorKind::SingleThreaded,
                    threads: Vec::new(),
                    callbacks: Vec::new(),
                    groups: Vec::new(),
                });
                ExecutorId(self.model.executors.len() - 1)
            });
        }
        let mut ids = BTreeMap::new();
        for (slot, thread) in &ex.tables.threads {
            if thread.ended && !ex.options.keep_ended {
                continue;
            }
            let id = ThreadId(self.model.threads.len());
            ids.insert(slot, id);
            if thread.speaks && ex.tables.python.contains(&thread.pid) {
                self.model.python.threads.push(id);
            }
            let role = match executor_ids.get(&groups.root(slot)) {
                Some(&executor) => {
                    self.model.executors[executor.0].threads.push(id);
                    let looks = &mut self.model.dispatch_ns;
                    looks.resize(looks.len().max(executor.0 + 1), 0);
                    looks[executor.0] = looks[executor.0].max(thread.dispatch.most());
                    if thread.source.is_some() && !thread.executor {
                        ThreadRole::Source(executor)
                    } else {
                        ThreadRole::Executor(executor)
                    }
                }
                None => ThreadRole::Helper,
            };
            let name = thread.name.as_ref().map_or_else(String::new, ToString::to_string);
            self.model.threads.push(Thread {
                pid: thread.pid,
                tid: thread.tid,
                name,
                role,
                ended: thread.ended,
            });
        }
        (ids, executor_ids)
    }

    fn nodes(&mut self, names: &[(usize, String)]) -> BTreeMap<usize, NodeId> {
        let ex = self.extractor;
        let alive: std::collections::BTreeSet<u32> =
            names.iter().map(|(slot, _)| ex.tables.callbacks[*slot].pid).collect();
        let mut ids = BTreeMap::new();
        for (slot, node) in ex.tables.nodes.iter() {
            let python = ex.tables.python.contains(&node.pid);
            if python {
                self.model.python.nodes.push(NodeId(self.model.nodes.len()));
            }
            if python || alive.contains(&node.pid) || ex.options.keep_ended {
                ids.insert(slot, NodeId(self.model.nodes.len()));
                self.model.nodes.push(Node { pid: node.pid, name: node.name.to_string() });
            }
        }
        ids
    }

    /// Topics that somebody publishes, subscribes or registered.
    fn topics(&mut self, homes: &BTreeMap<usize, usize>) -> BTreeMap<usize, TopicId> {
        let ex = self.extractor;
        let tables = &ex.tables;
        let mut used = std::collections::BTreeSet::new();
        used.extend(tables.publishers.iter().map(|(_, p)| tables.topic(p.topic)));
        used.extend(tables.subscriptions.iter().map(|(_, s)| tables.topic(s.topic)));
        for (_, service) in tables.services.iter().chain(tables.clients.iter()) {
            used.extend([tables.topic(service.requests), tables.topic(service.responses)]);
        }
        for &slot in homes.keys() {
            used.extend(tables.callbacks[slot].publishes.iter().map(|edge| tables.topic(edge.topic)));
        }
        let mut ids = BTreeMap::new();
        for slot in used {
            ids.insert(slot, TopicId(self.model.topics.len()));
            let topic = &tables.topics[slot];
            self.model.topics.push(Topic {
                name: topic_name(ex, slot),
                hidden: topic.hidden,
                publishers: Vec::new(),
                subscribers: Vec::new(),
                transport: (topic.transport.seen > 0).then_some(topic.transport),
                outside: Outside::None,
            });
        }
        ids
    }

    fn subscribed_by_python(&mut self, nodes: &BTreeMap<usize, NodeId>, topics: &BTreeMap<usize, TopicId>) {
        let tables = &self.extractor.tables;
        let mut subscribed: BTreeMap<TopicId, Vec<NodeId>> = BTreeMap::new();
        for (_, subscription) in tables.subscriptions.iter() {
            let Some(&topic) = topics.get(&tables.topic(subscription.topic)) else { continue };
            let node = subscription.node.and_then(|node| nodes.get(&node));
            let Some(&node) = node.filter(|node| self.model.python.nodes.contains(node)) else { continue };
            if !self.model.topics[topic.0].name.ends_with("/parameter_events") {
                subscribed.entry(topic).or_default().push(node);
            }
        }
        self.model.python.subscribed =
            subscribed.into_iter().map(|(topic, nodes)| Subscribed { topic, nodes }).collect();
    }

    /// A topic that stands for what activates a callback of which nothing is known.
    fn nameless(&mut self, what: String) -> TopicId {
        self.model.topics.push(Topic {
            name: format!("?{what}"),
            hidden: true,
            publishers: vec![],
            subscribers: vec![],
            transport: None,
            outside: Outside::None,
        });
        TopicId(self.model.topics.len() - 1)
    }

    fn callback(
        &mut self,
        slot: usize,
        name: String,
        executor: ExecutorId,
        nodes: &BTreeMap<usize, NodeId>,
        topics: &BTreeMap<usize, TopicId>,
    ) {
        let ex = self.extractor;
        let tables = &ex.tables;
        let callback = &tables.callbacks[slot];
        let mut arrivals = callback.arrivals.curve(self.now_ns);
        let mut publishes: Vec<TopicId> = Vec::new();
        let mut outputs: Vec<Output> = Vec::new();
        for edge in &callback.publishes {
            let slot = tables.topic(edge.topic);
            let Some(&topic) = topics.get(&slot) else { continue };
            if let Some(known) = outputs.iter_mut().find(|known| known.topic == topic) {
                // Two that turned out to be one: whatever came on it was perhaps all this
                // callback's.
                known.most_per_activation = known.most_per_activation.saturating_add(edge.most());
                known.most.clear();
                known.arrivals = tables.topics[slot].arrivals.curve(self.now_ns);
                continue;
            }
            publishes.push(topic);
            outputs.push(Output {
                topic,
                most_per_activation: edge.most(),
                most: edge.most_in_a_row(callback.activations),
                arrivals: edge.arrivals.steady_curve(self.now_ns),
            });
        }
        let suspended = callback.suspensions.known(self.now_ns, ex.keep());
        let topic_id = |topic: usize| topics.get(&tables.topic(topic)).copied();
        let mut node = tables.node_of_callback(callback);
        let kind = match &callback.origin {
            Origin::Timer { timer } => {
                let declared_ns = tables.timers.get(*timer).and_then(|timer| timer.period_ns);
                match declared_ns.filter(|&period_ns| keeps_period(&arrivals, period_ns)) {
                    Some(period_ns) => {
                        arrivals.least_span_ns =
                            (1..=TIMER_ENTRIES).map(|k| period_ns.saturating_mul(k)).collect();
                        CallbackKind::Timer { period_ns }
                    }
                    // What an events executor ran late came at once, so that only the mean and the
                    // median report the period. Arrivals are those seen.
                    None => {
                        let measured_ns = measured_period(callback);
                        let agrees = |&ns: &u64| {
                            self.queues(callback)
                                && (in_the_mean(&arrivals, ns) || ns.abs_diff(measured_ns) <= ns / 8)
                        };
                        CallbackKind::Timer { period_ns: declared_ns.filter(agrees).unwrap_or(measured_ns) }
                    }
                }
            }
            Origin::Subscription { subscription } => {
                let subscription = tables.subscriptions.get(*subscription);
                if let Some(subscription) = subscription {
                    let published =
                        tables.topics[tables.topic(subscription.topic)].arrivals.curve(self.now_ns);
                    if published.seen > 0 {
                        arrivals =
                            if subscription.unjoined == 0 { published } else { arrivals.denser(&published) };
                    }
                }
                let topic = subscription.and_then(|subscription| topic_id(subscription.topic));
                CallbackKind::Subscription { topic: topic.unwrap_or_else(|| self.nameless(name.clone())) }
            }
            Origin::Service { service } => {
                let service = tables.services.get(*service);
                // It answers: the response topic is known even where no event shows.
                let responses = service.and_then(|service| topic_id(service.responses));
                publishes.extend(responses.filter(|topic| !publishes.contains(topic)));
                let requests = service.and_then(|service| topic_id(service.requests));
                CallbackKind::Service { requests: requests.unwrap_or_else(|| self.nameless(name.clone())) }
            }
            Origin::Client { client } => self.client_kind(*client, &name, topics),
            Origin::Untraced { thread } => match only_client(ex, *thread) {
                Some(client) => {
                    node = tables.clients.get(client).and_then(|client| client.node);
                    self.client_kind(client, &name, topics)
                }
                None => CallbackKind::Client { responses: self.nameless(name.clone()) },
            },
            Origin::Source { .. } => CallbackKind::Source,
            Origin::Task { .. } => CallbackKind::Timer { period_ns: measured_period(callback) },
            Origin::Unknown { intra: true, .. } => {
                CallbackKind::Subscription { topic: self.nameless(name.clone()) }
            }
            Origin::Unknown { executed: true, .. } => {
                CallbackKind::Timer { period_ns: measured_period(callback) }
            }
            Origin::Unknown { .. } => CallbackKind::Service { requests: self.nameless(name.clone()) },
        };
        let mut exceedance = ex.options.exceedance.clone();
        exceedance.sort_by(f64::total_cmp);
        let probable_cost = match &callback.probable {
            Some(probable) => exceedance.iter().filter_map(|&p| probable.curve(p)).collect(),
            None => Vec::new(),
        };
        self.model.callbacks.push(Callback {
            name,
            symbol: callback.symbol.as_ref().map(ToString::to_string),
            node: node.and_then(|node| nodes.get(&node)).copied(),
            executor,
            kind,
            publishes,
            outputs,
            arrivals,
            cost: callback.cost.curve(),
            suspension: suspended.curve,
            most_suspensions: suspended.most,
            suspensions: suspended.times,
            yields: suspended.yields,
            suspension_unseen: suspended.blind,
            delivery: callback.delivered.seen(),
            probable_cost,
        });
    }

    /// Whether it is run by an events executor, in whose queue a timer can be several times.
    fn queues(&self, callback: &CallbackState) -> bool {
        let thread = callback.last_thread.and_then(|thread| self.extractor.tables.threads.get(thread));
        let spins = thread.and_then(|thread| thread.spins.as_ref());
        spins.is_some_and(|(_, kind)| Type::of(kind) == Type::Events)
    }

    fn client_kind(&mut self, client: usize, name: &str, topics: &BTreeMap<usize, TopicId>) -> CallbackKind {
        let tables = &self.extractor.tables;
        let responses = tables
            .clients
            .get(client)
            .and_then(|client| topics.get(&tables.topic(client.responses)).copied());
        CallbackKind::Client { responses: responses.unwrap_or_else(|| self.nameless(name.to_owned())) }
    }

    /// Work without events lasts from one selection to the next. Threads of one executor wait for
    /// each other's selection in between, which is no suspension of that work, and cannot be
    /// distinguished from one.
    fn unreported_suspensions(&mut self, ids: &BTreeMap<usize, CallbackId>) -> Vec<Unanalysable> {
        let mut unreported = Vec::new();
        for (&slot, &id) in ids {
            let callback = &mut self.model.callbacks[id.0];
            let several = self.model.executors[callback.executor.0].kind == ExecutorKind::MultiThreaded;
            let untraced = matches!(self.extractor.tables.callbacks[slot].origin, Origin::Untraced { .. });
            if several && untraced && callback.most_suspensions > 0 {
                (callback.suspension, callback.most_suspensions) = (CostCurve::default(), 0);
                callback.suspensions.clear();
                unreported.push(Unanalysable {
                    callbacks: vec![id],
                    towards: None,
                    reason: format!(
                        "{}: how long it waits inside cannot be distinguished from its threads' waiting for each other",
                        callback.name
                    ),
                });
            }
        }
        unreported
    }

    fn executor_kinds(&mut self, ids: &BTreeMap<usize, CallbackId>, threads: &BTreeMap<usize, ThreadId>) {
        let tables = &self.extractor.tables;
        // What the threads' C++ executors are, and whether they run callbacks without an event of a
        // wait set.
        let mut types: BTreeMap<usize, Type> = BTreeMap::new();
        let mut silent = BTreeSet::new();
        for (slot, id) in threads {
            let (thread, role) = (&tables.threads[*slot], self.model.threads[id.0].role);
            if let ThreadRole::Executor(executor) = role {
                if let Some((_, kind)) = &thread.spins {
                    types.insert(executor.0, Type::of(kind));
                } else if thread.executor && !thread.waits {
                    silent.insert(executor.0);
                }
            }
        }
        let mut tasks = vec![true; self.model.executors.len()];
        let mut declared = vec![false; self.model.executors.len()];
        for (&slot, id) in ids {
            let callback = &tables.callbacks[slot];
            let executor = self.model.callbacks[id.0].executor.0;
            tasks[executor] &= matches!(callback.origin, Origin::Task { .. });
            declared[executor] |=
                tables.declared_executor(callback).and_then(|e| tables.executors.get(&e)) == Some(&true);
        }
        // Recordings need not have the events of executors.
        let speaks = !self.extractor.options.keep_ended || tables.threads.iter().any(|(_, t)| t.waits);
        for (i, executor) in self.model.executors.iter_mut().enumerate() {
            let only_source =
                executor.callbacks.iter().all(|id| self.model.callbacks[id.0].kind == CallbackKind::Source);
            let seen = executor.callbacks.iter().map(|id| self.model.callbacks[id.0].cost.seen);
            let activations = seen.fold(0, u64::saturating_add);
            executor.kind = match executor.threads.len() {
                _ if tasks[i] => ExecutorKind::Task,
                _ if only_source => ExecutorKind::Source,
                _ if declared[i] => ExecutorKind::MultiThreaded,
                0 | 1 => match types.get(&i) {
                    Some(Type::Multi) => ExecutorKind::MultiThreaded,
                    Some(Type::Static) => ExecutorKind::Static,
                    Some(Type::Events) => ExecutorKind::Events,
                    Some(Type::Single | Type::Other) => ExecutorKind::SingleThreaded,
                    None if speaks && silent.contains(&i) && activations >= ENOUGH => ExecutorKind::Events,
                    None => ExecutorKind::SingleThreaded,
                },
                _ => ExecutorKind::MultiThreaded,
            };
        }
    }

    /// Who sends a service's requests, where no event shows: the client's node, if only one node
    /// has a client and only one of its callbacks can be meant.
    fn request_edges(&mut self, ids: &BTreeMap<usize, CallbackId>, topics: &BTreeMap<usize, TopicId>) {
        let tables = &self.extractor.tables;
        for (_, service) in tables.services.iter() {
            let Some(&requests) = topics.get(&tables.topic(service.requests)) else { continue };
            if self.model.callbacks.iter().any(|c| c.publishes.contains(&requests)) {
                continue;
            }
            let mut nodes: Vec<Option<usize>> = tables
                .clients
                .iter()
                .filter(|(_, c)| c.requests == service.requests)
                .map(|(_, c)| c.node)
                .collect();
            nodes.dedup();
            let [Some(node)] = nodes[..] else { continue };
            let senders: Vec<CallbackId> = ids
                .iter()
                .filter(|(slot, _)| {
                    let callback = &tables.callbacks[**slot];
                    callback.activations > 0
                        && tables.node_of_callback(callback) == Some(node)
                        && !matches!(callback.origin, Origin::Client { .. } | Origin::Untraced { .. })
                        && !is_parameter_plumbing(self.extractor, callback)
                })
                .map(|(_, &id)| id)
                .collect();
            if let [sender] = senders[..] {
                self.model.callbacks[sender.0].publishes.push(requests);
            }
        }
    }

    /// Fills publishers and subscribers of topics from the callbacks.
    fn connect(&mut self) {
        for (index, callback) in self.model.callbacks.iter().enumerate() {
            for topic in &callback.publishes {
                self.model.topics[topic.0].publishers.push(CallbackId(index));
            }
            if let CallbackKind::Subscription { topic }
            | CallbackKind::Service { requests: topic }
            | CallbackKind::Client { responses: topic } = callback.kind
            {
                self.model.topics[topic.0].subscribers.push(CallbackId(index));
            }
        }
    }

    fn unanalysable(
        &mut self,
        ids: &BTreeMap<usize, CallbackId>,
        threads: &BTreeMap<usize, ThreadId>,
        topics: &BTreeMap<usize, TopicId>,
        unserved: Vec<String>,
    ) {
        let tables = &self.extractor.tables;
        let mut found = Vec::new();
        for executor in &self.model.executors {
            let mut refuse = |reason: String| {
                found.push(Unanalysable { callbacks: executor.callbacks.clone(), towards: None, reason });
            };
            let tids = || -> String {
                let tids = executor.threads.iter().map(|id| self.model.threads[id.0].tid.to_string());
                tids.collect::<Vec<_>>().join(", ")
            };
            let grouped = |id: &CallbackId| {
                self.model.callbacks[id.0].cost.seen == 0
                    || executor.groups.iter().any(|group| group.callbacks.contains(id))
            };
            let reported = threads
                .iter()
                .any(|(slot, id)| executor.threads.contains(id) && tables.threads[*slot].spins.is_some());
            match executor.kind {
                ExecutorKind::MultiThreaded if !executor.callbacks.iter().all(grouped) => refuse(format!(
                    "threads {} serve one multi-threaded executor, and which of its callbacks exclude each other (callback groups) is not \
                     known: it is seen of processes that Takt starts. Otherwise use one single-threaded executor for each callback group",
                    tids()
                )),
                ExecutorKind::Events if !reported => refuse(format!(
                    "thread {} runs callbacks without the events of an executor that waits: an events or a static executor, or one of \
                     its own kind. Which one is seen of processes that Takt starts",
                    tids()
                )),
                _ => {}
            }
            for (slot, id) in threads {
                let thread = &tables.threads[*slot];
                if executor.threads.contains(id) && thread.own_publications >= OWN_LOOP {
                    refuse(format!(
                        "thread {} publishes between calls of its executor ({} times): it does not wait for work like a spinning \
                         executor, and its own code delays the callbacks. Put that code into a timer",
                        thread.tid, thread.own_publications
                    ));
                }
            }
        }
        for (slot, id) in ids {
            let callback = &tables.callbacks[*slot];
            if callback.nested > 0 {
                let executor = self.model.callbacks[id.0].executor;
                found.push(Unanalysable {
                    callbacks: self.model.executors[executor.0].callbacks.clone(),
                    towards: None,
                    reason: format!(
                        "{} runs inside another callback on the same thread ({} times): a callback that spins an executor waits \
                         for others, which no analysis covers",
                        self.model.callbacks[id.0].name, callback.nested
                    ),
                });
            }
        }
        for (slot, id) in ids {
            let callback = &tables.callbacks[*slot];
            if let (Origin::Service { service }, 1..) = (&callback.origin, callback.deferred)
                && let Some(topic) =
                    tables.services.get(*service).and_then(|it| topics.get(&tables.topic(it.responses)))
            {
                found.push(Unanalysable {
                    callbacks: vec![*id],
                    towards: Some(*topic),
                    reason: format!(
                        "{} is answered later, by another callback or thread ({} times; an action that executes its goals in threads of their \
                         own does that): nothing bounds how long that takes. Declare the parts before and after it as separate chains",
                        self.model.callbacks[id.0].name, callback.deferred
                    ),
                });
            }
        }
        for name in unserved {
            found.push(Unanalysable {
                callbacks: vec![],
                towards: None,
                reason: format!(
                    "{name} is registered, but nothing shows which thread will serve it; it has not run yet"
                ),
            });
        }
        self.model.unanalysable = found;
    }
}

/// What every node brings: parameter services and the subscription of parameter events. They send
/// no requests.
fn is_parameter_plumbing(extractor: &Extractor, callback: &CallbackState) -> bool {
    let tables = &extractor.tables;
    match callback.origin {
        Origin::Subscription { subscription } => {
            tables.subscriptions.get(subscription).is_some_and(|subscription| {
                topic_name(extractor, subscription.topic).ends_with("/parameter_events")
            })
        }
        Origin::Service { service } => {
            let Some(service) = tables.services.get(service) else { return false };
            let name = &service.name;
            ["get_parameters", "get_parameter_types", "set_parameters", "set_parameters_atomically"]
                .iter()
                .chain(&["describe_parameters", "list_parameters", "get_type_description"])
                .any(|last| name.rsplit('/').next() == Some(last))
        }
        _ => false,
    }
}

/// Whether a timer's starts agree with its declared period. After a late start the next call comes
/// no sooner than the next period, so that `n` starts after another one take at least `n - 1`
/// periods. Timers of a simulated clock do not keep to it.
fn keeps_period(starts: &ArrivalCurve, period_ns: u64) -> bool {
    // The last entry may hold the start of observation, which is no start of the timer.
    let real = starts.least_span_ns.len().min(starts.seen.saturating_sub(1) as usize);
    starts.least_span_ns[..real].iter().enumerate().all(|(i, &span_ns)| {
        let least_ns = (i as u64).saturating_mul(period_ns);
        span_ns.saturating_add(1_000_000).saturating_add(least_ns / 64) >= least_ns
    })
}

/// Whether many starts in a row took what the declared period says, to an eighth: what had waited
/// came at once.
fn in_the_mean(starts: &ArrivalCurve, period_ns: u64) -> bool {
    let entries = starts.least_span_ns.len() as u64;
    let expected_ns = entries.saturating_mul(period_ns);
    let taken_ns = starts.least_span_ns.last().copied().unwrap_or(0);
    entries >= ENOUGH && starts.seen > entries && expected_ns.abs_diff(taken_ns) <= expected_ns / 8
}

/// The period that the last activations show.
fn measured_period(callback: &CallbackState) -> u64 {
    callback.arrivals.median_gap_ns().unwrap_or(0)
}

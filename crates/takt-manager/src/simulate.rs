//! Simulated executors: what the bounds are held against.
//!
//! Event-driven and exact to the nanosecond: hard constant-bandwidth servers as the kernel's
//! SCHED_DEADLINE has them, budgets enforced exactly or at ticks, earliest deadline first on each
//! core; and in them `rclcpp`'s executors: single-threaded ones with a wait set filled at polling
//! points, one instance of each callback per polling point, timers first (or last: static ones),
//! events executors, and multi-threaded ones with their lock, callback groups and wait set.
//! Callbacks run to their end, suspend themselves, publish several messages or none. It is an
//! adversary: releases together or when a budget is just used up, the most expensive activations
//! first, neighbours that take all that is left. Nothing here knows of the analysis.

mod disturb;
mod engine;
mod events;
mod kernel;
mod random;
mod threads;

use std::collections::VecDeque;

use takt_model::{
    ArrivalCurve, Callback, CallbackGroup, CallbackId, CallbackKind, CostCurve, Executor, ExecutorId,
    ExecutorKind, Model, Node, NodeId, Output, Outside, Shortest, Thread, ThreadId, ThreadRole, Topic,
    TopicId,
};

pub use engine::{Observed, Traceable, Traced, simulate, simulate_on, traced};
pub use events::events;
pub use random::{Features, random_system, random_with};

/// The machine that a system runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Machine {
    /// Sum of the reservations on each core, those of others included, percent.
    pub capacity_percent: u64,
    /// Budgets are enforced so often; 0: exactly.
    pub tick_ns: u64,
    /// Longest time that a thread of a multi-threaded executor looks for work.
    pub dispatch_ns: u64,
    /// Others sleep now and then, two on a core.
    pub sleeping_hogs: bool,
    /// Activations on each core take so much in all beyond their costs and suspensions, counted at
    /// their ends,
    pub disturbed_ns: u64,
    /// within this.
    pub disturbed_window_ns: u64,
    /// Messages to other executors arrive up to so much later.
    pub transit_ns: u64,
}

/// A system with known costs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct System {
    /// Executors: the callbacks of each, in priority order.
    pub executors: Vec<SimExecutor>,
    pub callbacks: Vec<SimCallback>,
    pub topics: Vec<String>,
    /// Timers are looked at before every callback, as executors did until 2019, instead of at
    /// polling points.
    pub eager_timers: bool,
    /// Messages may be sent when a callback begins, not only when it ends.
    pub early_messages: bool,
    /// No activation is cheaper than its cost says; otherwise one is now and then.
    pub steady: bool,
    /// One message in so many is lost; 0: none.
    pub lost_one_in: u64,
}

/// Kind of an executor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SimExecutorKind {
    /// Single-threaded, or a thread of its own (`SimExecutor::source`).
    #[default]
    WaitSet,
    /// Single-threaded, timers last.
    Static {
        /// All that is ready at a wait is run before the next one (until Iron), otherwise one
        /// callback of it (Jazzy).
        rounds: bool,
    },
    /// In the order of activation.
    Events,
    /// So many threads.
    Threads(usize),
}

/// One thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SimExecutor {
    /// Its node, which is its thread's name too.
    pub name: String,
    /// It runs its own loop instead of an executor.
    pub source: bool,
    /// Its kind, if it is not a source.
    pub kind: SimExecutorKind,
    /// Its callback groups: whether each is reentrant.
    pub reentrant: Vec<bool>,
    /// Its callbacks, timers first.
    pub callbacks: Vec<usize>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SimCallback {
    pub name: String,
    /// Its executor.
    pub executor: usize,
    /// Its trigger.
    pub trigger: Trigger,
    /// Topics that it publishes to when it ends.
    pub publishes: Vec<usize>,
    /// Costs of consecutive activations, over and over.
    pub costs_ns: Vec<u64>,
    /// Messages to each topic, of consecutive activations; none: always one.
    pub messages: Vec<u64>,
    /// Self-suspensions of consecutive activations.
    pub suspends_ns: Vec<Vec<u64>>,
    /// Its group in its executor.
    pub group: Option<usize>,
    /// It publishes only if this other callback of its executor has completed since it last did:
    /// the second input of a join.
    pub join: Option<usize>,
    /// Messages that wait for it at most, the oldest being overwritten; 0: any number.
    pub depth: usize,
}

/// Trigger of a callback.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trigger {
    /// A timer, or the device of a source: every period, and up to `jitter_ns` later.
    Periodic {
        /// Between releases.
        period_ns: u64,
        /// Greatest delay of a release.
        jitter_ns: u64,
    },
    /// Messages.
    Topic(usize),
}

/// Supply of an executor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Supply {
    /// Run time per period.
    pub budget_ns: u64,
    pub period_ns: u64,
    pub core: usize,
}

/// Entries of exact curves. Beyond, the analysis extrapolates.
const CURVE: u64 = 64;

impl System {
    /// Adds an executor.
    pub fn executor(&mut self, name: &str, source: bool) -> usize {
        self.executors.push(SimExecutor {
            name: name.to_owned(),
            source,
            kind: SimExecutorKind::WaitSet,
            reentrant: Vec::new(),
            callbacks: Vec::new(),
        });
        self.executors.len() - 1
    }

    /// Adds or finds a topic.
    pub fn topic(&mut self, name: &str) -> usize {
        if let Some(found) = self.topics.iter().position(|t| t == name) {
            return found;
        }
        self.topics.push(name.to_owned());
        self.topics.len() - 1
    }

    /// Adds a callback.
    pub fn callback(
        &mut self,
        executor: usize,
        name: &str,
        trigger: Trigger,
        costs_ns: Vec<u64>,
        publishes: Vec<usize>,
    ) -> usize {
        let number = self.callbacks.len();
        let name = name.to_owned();
        self.callbacks.push(SimCallback {
            name,
            executor,
            trigger,
            publishes,
            costs_ns,
            messages: Vec::new(),
            suspends_ns: Vec::new(),
            group: None,
            join: None,
            depth: 0,
        });
        self.executors[executor].callbacks.push(number);
        number
    }

    /// Number of an executor's threads.
    #[must_use]
    pub fn threads_of(&self, executor: usize) -> usize {
        match self.executors[executor].kind {
            SimExecutorKind::Threads(threads) => threads,
            _ => 1,
        }
    }

    /// The model that an observer of infinite patience would have.
    #[must_use]
    pub fn exact_model(&self) -> Model {
        let counts = self.arrivals_each();
        let mut model = Model { taken_ns: 1_000_000_000_000, ..Model::default() };
        for (number, executor) in self.executors.iter().enumerate() {
            let tid = 1000 + u32::try_from(number).unwrap_or(0);
            let id = ExecutorId(number);
            let first = model.threads.len();
            for thread in 0..u32::try_from(self.threads_of(number)).unwrap_or(1) {
                model.threads.push(Thread {
                    pid: tid,
                    tid: tid + thread * 10_000,
                    name: executor.name.clone(),
                    role: if executor.source { ThreadRole::Source(id) } else { ThreadRole::Executor(id) },
                    ended: false,
                });
            }
            model.nodes.push(Node { pid: tid, name: format!("/{}", executor.name) });
            model.executors.push(Executor {
                kind: match executor.kind {
                    _ if executor.source => ExecutorKind::Source,
                    SimExecutorKind::WaitSet => ExecutorKind::SingleThreaded,
                    SimExecutorKind::Static { .. } => ExecutorKind::Static,
                    SimExecutorKind::Events => ExecutorKind::Events,
                    SimExecutorKind::Threads(_) => ExecutorKind::MultiThreaded,
                },
                threads: (first..model.threads.len()).map(ThreadId).collect(),
                callbacks: executor.callbacks.iter().map(|c| CallbackId(*c)).collect(),
                groups: self.groups(executor),
            });
        }
        let ids = |keep: &dyn Fn(&SimCallback) -> bool| {
            self.callbacks.iter().enumerate().filter(|(_, c)| keep(c)).map(|(i, _)| CallbackId(i)).collect()
        };
        for (number, name) in self.topics.iter().enumerate() {
            model.topics.push(Topic {
                name: name.clone(),
                hidden: false,
                publishers: ids(&|c| c.publishes.contains(&number)),
                subscribers: ids(&|c| c.trigger == Trigger::Topic(number)),
                transport: None,
                outside: Outside::None,
            });
        }
        for (number, callback) in self.callbacks.iter().enumerate() {
            let source = self.executors[callback.executor].source;
            let kind = match callback.trigger {
                _ if source => CallbackKind::Source,
                Trigger::Periodic { period_ns, .. } => CallbackKind::Timer { period_ns },
                Trigger::Topic(topic) => CallbackKind::Subscription { topic: TopicId(topic) },
            };
            model.callbacks.push(Callback {
                node: Some(NodeId(callback.executor)),
                publishes: callback.publishes.iter().map(|t| TopicId(*t)).collect(),
                outputs: callback.publishes.iter().map(|t| output(callback, *t)).collect(),
                arrivals: arrivals(callback.trigger, counts[number]),
                cost: cost(&callback.costs_ns),
                suspension: suspension(&callback.suspends_ns),
                most_suspensions: callback.suspends_ns.iter().map(|s| s.len() as u64).max().unwrap_or(0),
                suspensions: suspensions(&callback.suspends_ns),
                ..Callback::unseen(&callback.name, ExecutorId(callback.executor), kind)
            });
            let callback_id = CallbackId(number);
            let least = |list: &[u64]| list.iter().copied().min().unwrap_or(0);
            let suspended =
                callback.suspends_ns.iter().map(|list| list.iter().sum::<u64>()).min().unwrap_or(0);
            let ns = if self.steady { least(&callback.costs_ns) + suspended } else { 0 };
            model.shortest.push(Shortest { callback: callback_id, towards: None, ns });
            for topic in &callback.publishes {
                let sent_ns = if self.early_messages { 0 } else { ns };
                model.shortest.push(Shortest {
                    callback: callback_id,
                    towards: Some(TopicId(*topic)),
                    ns: sent_ns,
                });
            }
        }
        model
    }

    fn groups(&self, executor: &SimExecutor) -> Vec<CallbackGroup> {
        let of = |group: usize| {
            let callbacks = executor.callbacks.iter().filter(|c| self.callbacks[**c].group == Some(group));
            callbacks.map(|c| CallbackId(*c)).collect()
        };
        let groups = executor.reentrant.iter().enumerate();
        groups
            .map(|(group, reentrant)| CallbackGroup { callbacks: of(group), reentrant: *reentrant })
            .collect()
    }

    /// Activations of every callback in a long time, so that counts agree along the graph.
    fn arrivals_each(&self) -> Vec<u64> {
        let mut counts = vec![0_u64; self.callbacks.len()];
        let mut open: VecDeque<(usize, u64)> = VecDeque::new();
        for (number, callback) in self.callbacks.iter().enumerate() {
            if let Trigger::Periodic { period_ns, .. } = callback.trigger {
                open.push_back((number, 1_000_000_000_000 / period_ns.max(1)));
            }
        }
        while let Some((number, times)) = open.pop_front() {
            counts[number] += times;
            for topic in &self.callbacks[number].publishes {
                for (other, callback) in self.callbacks.iter().enumerate() {
                    if callback.trigger == Trigger::Topic(*topic) {
                        let messages = &self.callbacks[number].messages;
                        let sent: u64 = messages.iter().sum();
                        let of = messages.len().max(1) as u64;
                        let sent = if messages.is_empty() { 1 } else { sent };
                        open.push_back((other, (times / of).saturating_mul(sent).max(1)));
                    }
                }
            }
        }
        counts
    }
}

fn arrivals(trigger: Trigger, seen: u64) -> ArrivalCurve {
    let least_span_ns = match trigger {
        Trigger::Periodic { period_ns, jitter_ns } => {
            (1..=CURVE).map(|n| (n * period_ns).saturating_sub(jitter_ns)).collect()
        }
        // Not looked at: the analysis propagates.
        Trigger::Topic(_) => vec![1],
    };
    ArrivalCurve { least_span_ns, seen, observed_ns: 1_000_000_000_000 }
}

/// Greatest sums of consecutive entries, two rounds long.
fn greatest(values: &[u64]) -> Vec<u64> {
    let length = values.len();
    (1..=2 * length)
        .map(|n| {
            (0..length).map(|start| (0..n).map(|i| values[(start + i) % length]).sum()).max().unwrap_or(0)
        })
        .collect()
}

fn cost(costs: &[u64]) -> CostCurve {
    CostCurve {
        most_ns: greatest(costs),
        seen: 1000,
        total_ns: costs.iter().sum::<u64>() * 1000 / costs.len().max(1) as u64,
        cpu_time: true,
    }
}

fn suspension(suspends: &[Vec<u64>]) -> CostCurve {
    let lengths: Vec<u64> = suspends.iter().map(|s| s.iter().sum()).collect();
    if lengths.iter().all(|ns| *ns == 0) { CostCurve::default() } else { cost(&lengths) }
}

fn suspensions(suspends: &[Vec<u64>]) -> Vec<u64> {
    let times: Vec<u64> = suspends.iter().map(|s| s.len() as u64).collect();
    if times.iter().all(|&times| times == 0) { Vec::new() } else { greatest(&times) }
}

fn output(callback: &SimCallback, topic: usize) -> Output {
    let messages = if callback.messages.is_empty() { &[1][..] } else { &callback.messages };
    Output {
        topic: TopicId(topic),
        most_per_activation: messages.iter().copied().max().unwrap_or(1),
        most: greatest(messages),
        arrivals: ArrivalCurve::default(),
    }
}

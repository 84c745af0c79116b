//! Simulated executors: what the bounds are held against.
//!
//! Event-driven and exact to the nanosecond: hard constant-bandwidth servers as the kernel's SCHED_DEADLINE has them, earliest deadline first on
//! each core, and in every server one of `rclcpp`'s single-threaded executors: a wait set filled at polling points, one
//! instance of each callback per polling point, timers before subscriptions, callbacks that run to their end.
//! Nothing here knows of the analysis.

mod engine;
mod events;
mod random;

use std::collections::VecDeque;

use takt_model::{
    ArrivalCurve, Callback, CallbackId, CallbackKind, CostCurve, Executor, ExecutorId, ExecutorKind, Model,
    Node, NodeId, Outside, Thread, ThreadId, ThreadRole, Topic, TopicId,
};

pub use engine::{Observed, Traceable, Traced, simulate, traced};
pub use events::events;
pub use random::{Random, random_system};

/// A system with known costs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct System {
    /// Executors: the callbacks of each, in priority order.
    pub executors: Vec<SimExecutor>,
    /// All callbacks.
    pub callbacks: Vec<SimCallback>,
    /// Names of topics.
    pub topics: Vec<String>,
    /// Timers are looked at before every callback, as executors did until 2019, instead of at polling points.
    pub eager_timers: bool,
}

/// One thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SimExecutor {
    /// Its node, which is its thread's name too.
    pub name: String,
    /// It runs its own loop instead of an executor.
    pub source: bool,
    /// What it serves, timers first.
    pub callbacks: Vec<usize>,
}

/// One callback.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SimCallback {
    /// Its name.
    pub name: String,
    /// Who serves it.
    pub executor: usize,
    /// What activates it.
    pub trigger: Trigger,
    /// Topics that it publishes to when it ends.
    pub publishes: Vec<usize>,
    /// Costs of consecutive activations, over and over.
    pub costs_ns: Vec<u64>,
}

/// What activates a callback.
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

/// What an executor gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Supply {
    /// Run time per period.
    pub budget_ns: u64,
    /// The period.
    pub period_ns: u64,
    /// Where.
    pub core: usize,
}

/// Entries of exact curves. Beyond, the analysis extrapolates.
const CURVE: u64 = 64;

impl System {
    /// Adds an executor.
    pub fn executor(&mut self, name: &str, source: bool) -> usize {
        self.executors.push(SimExecutor { name: name.to_owned(), source, callbacks: Vec::new() });
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
        self.callbacks.push(SimCallback { name, executor, trigger, publishes, costs_ns });
        self.executors[executor].callbacks.push(number);
        number
    }

    /// The model that an observer of infinite patience would have.
    #[must_use]
    pub fn exact_model(&self) -> Model {
        let counts = self.arrivals_each();
        let mut model = Model { taken_ns: 1_000_000_000_000, ..Model::default() };
        for (number, executor) in self.executors.iter().enumerate() {
            let tid = 1000 + u32::try_from(number).unwrap_or(0);
            let id = ExecutorId(number);
            model.threads.push(Thread {
                pid: tid,
                tid,
                name: executor.name.clone(),
                role: if executor.source { ThreadRole::Source(id) } else { ThreadRole::Executor(id) },
                ended: false,
            });
            model.nodes.push(Node { pid: tid, name: format!("/{}", executor.name) });
            model.executors.push(Executor {
                kind: if executor.source { ExecutorKind::Source } else { ExecutorKind::SingleThreaded },
                threads: vec![ThreadId(number)],
                callbacks: executor.callbacks.iter().map(|c| CallbackId(*c)).collect(),
                groups: Vec::new(),
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
            model.callbacks.push(Callback {
                name: callback.name.clone(),
                symbol: None,
                node: Some(NodeId(callback.executor)),
                executor: ExecutorId(callback.executor),
                kind: match callback.trigger {
                    _ if source => CallbackKind::Source,
                    Trigger::Periodic { period_ns, .. } => CallbackKind::Timer { period_ns },
                    Trigger::Topic(topic) => CallbackKind::Subscription { topic: TopicId(topic) },
                },
                publishes: callback.publishes.iter().map(|t| TopicId(*t)).collect(),
                outputs: Vec::new(),
                arrivals: arrivals(callback.trigger, counts[number]),
                cost: cost(&callback.costs_ns),
                suspension: CostCurve::default(),
                most_suspensions: 0,
                probable_cost: Vec::new(),
            });
        }
        model
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
                        open.push_back((other, times));
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

fn cost(costs: &[u64]) -> CostCurve {
    let length = costs.len();
    let most_ns = (1..=2 * length)
        .map(|n| {
            (0..length).map(|start| (0..n).map(|i| costs[(start + i) % length]).sum()).max().unwrap_or(0)
        })
        .collect();
    CostCurve {
        most_ns,
        seen: 1000,
        total_ns: costs.iter().sum::<u64>() * 1000 / length.max(1) as u64,
        cpu_time: true,
    }
}

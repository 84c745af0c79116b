//! The snapshot of a running system: nodes, callbacks, executors, topics and their curves.

use serde::{Deserialize, Serialize};

use crate::{ArrivalCurve, CostCurve};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub usize);
    };
}

id!(
    /// Index into [`Model::threads`].
    ThreadId
);
id!(
    /// Index into [`Model::nodes`].
    NodeId
);
id!(
    /// Index into [`Model::executors`].
    ExecutorId
);
id!(
    /// Index into [`Model::callbacks`].
    CallbackId
);
id!(
    /// Index into [`Model::topics`].
    TopicId
);

/// Model learnt up to one moment. Identifiers are indices of this snapshot; only names are
/// permanent.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Model {
    /// Start of observation, CLOCK_MONOTONIC nanoseconds.
    pub started_ns: u64,
    /// The moment of the snapshot.
    pub taken_ns: u64,
    /// Threads that did something.
    pub threads: Vec<Thread>,
    pub nodes: Vec<Node>,
    /// Executors: whatever serves callbacks one after another, or threads that publish without
    /// running callbacks.
    pub executors: Vec<Executor>,
    pub callbacks: Vec<Callback>,
    /// Topics, hidden ones of services and virtual ones of cut cycles included.
    pub topics: Vec<Topic>,
    /// Parts that cannot be analysed, with the reasons.
    pub unanalysable: Vec<Unanalysable>,
    /// Events lost on the way here.
    pub lost_events: u64,
    /// Processes that are starting or have just started (module `extract::startup`): what their
    /// callbacks do, and what comes of their messages elsewhere, is not known yet, and nothing that
    /// they take part in is guaranteed.
    #[serde(default)]
    pub starting: Vec<u32>,
    /// Python's part.
    #[serde(default)]
    pub python: Python,
    /// By executor, in the order of `executors`: CPU time of looking for work once, at most; 0: it
    /// was not seen.
    #[serde(default)]
    pub dispatch_ns: Vec<u64>,
    /// The shortest times that callbacks took.
    #[serde(default)]
    pub shortest: Vec<Shortest>,
    /// Timers that are due and have not run yet (module `extract::unrun`): what they take is not
    /// known, and nothing that shares an executor or a core with them is guaranteed.
    #[serde(default)]
    pub not_run: Vec<CallbackId>,
    /// Callbacks that never ran though they were released (a timer was due, messages were
    /// published) and their executor ran others (module `extract::unrun`). Releases count from the
    /// first on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub never_ran: Vec<PassedOver>,
    /// The same of those that ran before, and no longer do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stopped: Vec<PassedOver>,
    /// Topics that a node can publish on and never did, of nodes with callbacks that never ran,
    /// where one of these was passed over: a chain through it may go on there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub silent: Vec<Silent>,
}

/// A callback that was released and did not run, while its executor ran others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PassedOver {
    pub callback: CallbackId,
    /// Of a timer; `None`: messages release it.
    pub period_ns: Option<u64>,
    /// The first release since it last ran, if it ever did.
    pub first_release_ns: u64,
    /// When its executor was last seen to run another callback: what was due before that was passed
    /// over.
    pub until_ns: u64,
    /// Releases from the first on until then, but for those that fell into time that was not
    /// recorded.
    pub releases: u64,
    /// The newest of them, the oldest first, where messages are the releases: those of a timer are
    /// a grid. Not in files.
    #[serde(skip)]
    pub newest_ns: Vec<u64>,
    /// So often its executor ran others, by what is known of them.
    pub others_ran: u64,
}

/// Topics that a node can publish on and never did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Silent {
    pub node: NodeId,
    pub topics: Vec<TopicId>,
}

/// The shortest time from the start of a callback's activation to its end, or to a message of its.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shortest {
    pub callback: CallbackId,
    /// To the first message on this topic; `None`: to the end.
    pub towards: Option<TopicId>,
    /// The time, suspended or preempted included.
    pub ns: u64,
}

/// Nodes of Python (`rclpy`): no event shows their callbacks, so that chains end where they
/// subscribe. Their publications are seen, as of any thread that publishes without callbacks.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Python {
    pub nodes: Vec<NodeId>,
    /// Threads that took messages, published or made nodes: those that spin its executors, which
    /// take in `rclpy` (`_take_subscription` is called before the callback is handed on), and
    /// whoever publishes. Workers of a `MultiThreadedExecutor` that do neither are not among them:
    /// only their Python frames would report, which lie otherwise in each version of the
    /// interpreter and need the right to trace the process. They count as helpers, and stay as they
    /// were.
    pub threads: Vec<ThreadId>,
    /// Topics to which its nodes subscribe, except parameter events: chains towards these topics
    /// end there.
    #[serde(default)]
    pub subscribed: Vec<Subscribed>,
}

/// A topic with those of some nodes that subscribe to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subscribed {
    pub topic: TopicId,
    pub nodes: Vec<NodeId>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thread {
    pub pid: u32,
    pub tid: u32,
    pub name: String,
    /// Its role.
    pub role: ThreadRole,
    pub ended: bool,
}

/// Role of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ThreadRole {
    /// It runs callbacks for an executor.
    Executor(ExecutorId),
    /// It publishes without running callbacks: a driver (section IV.A, "event sources"). Modelled
    /// as an executor with one callback of kind [`CallbackKind::Source`].
    Source(ExecutorId),
    /// Neither was seen: middleware, helpers.
    Helper,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    pub pid: u32,
    /// Namespace and name, `/ns/name`.
    pub name: String,
}

/// One executor, or one event source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Executor {
    pub kind: ExecutorKind,
    /// Its threads; exactly one unless it is multi-threaded.
    pub threads: Vec<ThreadId>,
    /// Its callbacks, in the order of their registration, which is their priority order within a
    /// wait set.
    pub callbacks: Vec<CallbackId>,
    /// Callback groups, where they are known; each callback is in one at most. Callbacks of none:
    /// nothing excludes them from running at once.
    #[serde(default)]
    pub groups: Vec<CallbackGroup>,
}

/// Callbacks that share a callback group of rclcpp.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallbackGroup {
    pub callbacks: Vec<CallbackId>,
    /// They may run at once (`CallbackGroupType::Reentrant`), each callback even with itself.
    pub reentrant: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExecutorKind {
    /// One thread, wait set, timers before subscriptions before services before clients,
    /// non-preemptive callbacks.
    SingleThreaded,
    /// One thread, wait set, subscriptions before timers before clients before services. Until Iron
    /// all that is ready at a wait is run once; in Jazzy (`StaticSingleThreadedExecutor::spin`:
    /// `spin_once_impl`, `execute_ready_executables(.., spin_once = true)`) one of it, and then it
    /// waits again, so that subscriptions can starve timers.
    Static,
    /// Several threads serve the same callbacks.
    MultiThreaded,
    /// One thread, no wait set: whatever is activated enters one queue and is run in the order of
    /// activation (rclcpp's events executors).
    Events,
    /// A thread that publishes without callbacks.
    Source,
    /// A periodic task of Takt.
    Task,
}

/// One callback, or the activity of an event source.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Callback {
    /// Its name for people: node, and topic, service or period, unique within the model.
    pub name: String,
    /// Its symbol, where known.
    pub symbol: Option<String>,
    /// Its node; `None` for event sources of unknown nodes.
    pub node: Option<NodeId>,
    /// Its executor.
    pub executor: ExecutorId,
    /// Its trigger.
    pub kind: CallbackKind,
    /// Topics that it was seen publishing to (a service's response topic included).
    pub publishes: Vec<TopicId>,
    /// Messages that it was seen sending to each of those topics; a missing topic was not counted.
    #[serde(default)]
    pub outputs: Vec<Output>,
    /// Activations seen: of a timer or source its releases, of a subscription the arrivals of
    /// messages where they can be reported, otherwise its starts.
    pub arrivals: ArrivalCurve,
    /// Execution times.
    pub cost: CostCurve,
    /// Self-suspension: how long it was neither running nor ready to run (sleep, mutex, serial
    /// line, GPU), by activations in a row as the execution times are. Empty: no activation was
    /// seen to suspend itself.
    #[serde(default)]
    pub suspension: CostCurve,
    /// Largest number of suspensions of one activation.
    #[serde(default)]
    pub most_suspensions: u64,
    /// Time of the middleware with messages to it; `None`: it gets none, or none was seen.
    #[serde(default)]
    pub delivery: Option<Delivery>,
    /// Entry `i`: how often `i + 1` activations in a row suspended themselves, at most. Empty:
    /// `most_suspensions` each.
    #[serde(default)]
    pub suspensions: Vec<u64>,
    /// Entry `i`: how often `i + 1` activations in a row called `sched_yield`, at most, which under
    /// `SCHED_DEADLINE` gives the rest of a budget away. Empty: none did.
    #[serde(default)]
    pub yields: Vec<u64>,
    /// Whether the numbers of its suspensions and yields are unknown because its source does not
    /// report them.
    #[serde(default)]
    pub suspension_unseen: bool,
    /// Probabilistic execution-time curves, by rising exceedance probability; empty where none was
    /// asked for (section VII.A.b).
    pub probable_cost: Vec<ProbableCost>,
}

impl Callback {
    /// One of which nothing was seen yet: simulations and tests say what they know of it, with
    /// `..`.
    pub fn unseen(name: impl Into<String>, executor: ExecutorId, kind: CallbackKind) -> Self {
        Self {
            name: name.into(),
            symbol: None,
            node: None,
            executor,
            kind,
            publishes: Vec::new(),
            outputs: Vec::new(),
            arrivals: ArrivalCurve::default(),
            cost: CostCurve::default(),
            suspension: CostCurve::default(),
            most_suspensions: 0,
            delivery: None,
            suspensions: Vec::new(),
            yields: Vec::new(),
            suspension_unseen: false,
            probable_cost: Vec::new(),
        }
    }
}

/// Messages of a callback to one topic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Output {
    pub topic: TopicId,
    /// Messages of one activation, at most.
    pub most_per_activation: u64,
    /// Entry `i`: messages of `i + 1` activations in a row, at most, as execution times are
    /// counted. Unlike `arrivals` it does not depend on how the publisher was scheduled. Empty:
    /// `most_per_activation` is all that is known.
    #[serde(default)]
    pub most: Vec<u64>,
    /// Messages, as they were published in the steady state; no span: all of them in start-up
    /// (module `extract::startup`), as announcements are.
    pub arrivals: ArrivalCurve,
}

/// An empirical pWCET(n) curve.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProbableCost {
    /// The probability that `n` consecutive activations take longer.
    pub exceedance: f64,
    /// Entry `i`: for `i + 1` activations, nanoseconds.
    pub most_ns: Vec<u64>,
}

/// Trigger of a callback.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallbackKind {
    Timer {
        period_ns: u64,
    },
    /// A message on a topic.
    Subscription {
        topic: TopicId,
    },
    /// A request.
    Service {
        /// The hidden topic of requests.
        requests: TopicId,
    },
    /// A response.
    Client {
        /// The hidden topic of responses.
        responses: TopicId,
    },
    /// The outside world: an event source's own loop.
    Source,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Topic {
    /// Its name; virtual ones of cut cycles (section V.a) end in `#` and a number.
    pub name: String,
    /// Hidden: of a service, or virtual.
    pub hidden: bool,
    /// Callbacks seen publishing to it.
    pub publishers: Vec<CallbackId>,
    /// Callbacks that messages on it activate.
    pub subscribers: Vec<CallbackId>,
    /// From publication to take, where time stamps can be joined.
    pub transport: Option<Latency>,
    /// Messages from publishers that are not observed.
    #[serde(default)]
    pub outside: Outside,
}

/// Knowledge about messages whose publishers are not observed: another machine, a container, a
/// process started before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outside {
    #[default]
    None,
    /// The source time stamps of the middleware are on a clock that agrees with ours: the release
    /// is theirs.
    Stamped {
        /// Messages seen.
        seen: u64,
        /// Greatest time from the source's stamp to the take, nanoseconds.
        most_ns: u64,
        /// Greatest error of that clock against ours, nanoseconds.
        clock_error_ns: u64,
    },
    /// There are no stamps that can be believed: how long messages waited before they were taken
    /// cannot be known.
    Unknown {
        /// Messages seen.
        seen: u64,
    },
}

/// Time of the middleware with messages to a callback: from the end of the activation that sends
/// one (from its publication, if no activation does) until it is received by the subscriber's
/// process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Delivery {
    /// Messages of which that is known.
    pub seen: u64,
    /// The longest, nanoseconds; `None`: all came from its own thread.
    pub most_ns: Option<u64>,
    /// The longest of those that the callback's own thread sent, which many middlewares deliver
    /// within the publication; `None`: there were none.
    pub own_most_ns: Option<u64>,
    /// The middleware says when it has received a message. Otherwise only takes by executors that
    /// were waiting for work report something, and the executor's waking is in it.
    #[serde(rename = "told")]
    pub stamped: bool,
}

/// Times seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Latency {
    pub seen: u64,
    /// Sum, nanoseconds.
    pub total_ns: u64,
    /// Greatest.
    pub most_ns: u64,
}

/// Something that the analysis cannot cover.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unanalysable {
    /// The callbacks concerned; chains through them are named as not analysable.
    pub callbacks: Vec<CallbackId>,
    /// Set where only the way from these callbacks on to this topic is concerned (a message filter:
    /// what happens before it can be analysed, and so can what happens behind it; section VII.A.a).
    /// Chains that end at the callbacks are not touched.
    #[serde(default)]
    pub towards: Option<TopicId>,
    /// The reason, for a person.
    pub reason: String,
}

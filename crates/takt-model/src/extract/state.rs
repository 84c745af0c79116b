//! What the extractor knows: tables of the objects that events name, in slabs of bounded size.

use std::collections::VecDeque;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use slab::Slab;
use takt_ros::event::Handle;

use super::outside::OutsideState;
use super::registry::Registry;
use super::startup::Arrivals;
use super::suspend::{OffCpu, Suspensions};
use super::timer::TimerGrid;
use crate::guard::CountLimit;
use crate::{ArrivalRecorder, CostRecorder, GreatestRecorder, Latency, ProbableRecorder};

/// An object of one process.
pub(crate) type Key = (u32, Handle);

/// A place on the way of a watched chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tag {
    pub watch: u32,
    pub position: u32,
    /// The release of the chain's first callback.
    pub origin_ns: u64,
}

#[derive(Debug)]
pub(crate) struct ThreadState {
    pub pid: u32,
    pub tid: u32,
    pub name: Option<Arc<str>>,
    pub ended: bool,
    /// It showed an event of an executor, or ran a callback.
    pub executor: bool,
    pub stack: Vec<Frame>,
    pub last_cpu_ns: u64,
    /// When its last event was.
    pub last_ns: u64,
    /// CPU time up to which all is charged to some activation, and when that was.
    pub charged: Option<(u64, u64)>,
    /// Activations that ended where no CPU time was reported, until it is, and of each the wall
    /// time and what was said of it.
    pub unpaid: Vec<(usize, u64, Option<OffCpu>)>,
    /// `get_next_ready` of which it is not known yet whether anything was run: when, and CPU time.
    pub open: Option<(u64, Option<u64>)>,
    /// When it began to wait for work, if it has not started a callback since.
    pub waited_ns: Option<u64>,
    /// The message taken last.
    pub take: Option<Take>,
    /// The message under way through the three steps of a publication.
    pub publication: Option<Publication>,
    /// Topics published to outside callbacks, until it is known by what.
    pub outside: Vec<usize>,
    /// Between how many selections it published outside callbacks since it became an executor. A
    /// first goal of an action, which was taken before the thread was known for an executor, brings
    /// several publications at once.
    pub own_publications: u64,
    pub executed: Option<Handle>,
    /// How the message begins that comes next.
    pub head: Option<u64>,
    /// It took messages, published or made nodes.
    pub speaks: bool,
    /// The executor that it runs, where it is reported which, and its C++ type.
    pub spins: Option<(Handle, Arc<str>)>,
    /// It showed an event of a wait-set executor.
    pub waits: bool,
    /// It is reported when something without a callback's events ends.
    pub reports_ends: bool,
    /// The service's callback that ended last: `rclcpp` sends the response after it.
    pub answering: Option<(usize, Vec<Tag>)>,
    /// What it has registered last: a callback group's member comes next to it.
    pub made_service: Option<usize>,
    pub made_client: Option<usize>,
    pub joining_timer: Option<Handle>,
    /// What its source said of the activation that ends next.
    pub off_cpu: Option<OffCpu>,
    /// Its source counts how often a thread gives the CPU up.
    pub reports: bool,
    pub source: Option<SourceState>,
    /// The slot of executed work that no event names.
    pub untraced: Option<usize>,
    /// CPU time when it last ended an activation, or (true) began to wait for work.
    pub look: Option<(u64, bool)>,
    /// CPU time from the end of an activation to the wait that followed: a part of the look for
    /// work that follows.
    pub look_ns: u64,
    /// CPU time of looking for work once, at most.
    pub dispatch: GreatestRecorder,
    /// What is taken next was received so long after its source stamp.
    pub received: Option<i64>,
    /// Since when it has been waiting for work.
    pub waiting_ns: Option<u64>,
    /// Its last activations: start and end.
    pub ends: VecDeque<(u64, u64)>,
}

impl ThreadState {
    pub(crate) fn new(pid: u32, tid: u32) -> Self {
        Self {
            pid,
            tid,
            name: None,
            ended: false,
            executor: false,
            stack: Vec::new(),
            last_cpu_ns: 0,
            last_ns: 0,
            charged: None,
            unpaid: Vec::new(),
            open: None,
            waited_ns: None,
            take: None,
            publication: None,
            outside: Vec::new(),
            own_publications: 0,
            executed: None,
            head: None,
            speaks: false,
            spins: None,
            waits: false,
            reports_ends: false,
            answering: None,
            made_service: None,
            made_client: None,
            joining_timer: None,
            off_cpu: None,
            reports: false,
            source: None,
            untraced: None,
            look: None,
            look_ns: 0,
            dispatch: GreatestRecorder::default(),
            received: None,
            waiting_ns: None,
            ends: VecDeque::new(),
        }
    }

    /// What was under way is unknown.
    pub(crate) fn forget_course(&mut self) {
        self.stack.clear();
        self.charged = None;
        self.unpaid.clear();
        self.open = None;
        self.take = None;
        self.publication = None;
        self.outside.clear();
        self.executed = None;
        (self.answering, self.head) = (None, None);
        (self.off_cpu, self.received, self.waiting_ns) = (None, None, None);
        (self.look, self.look_ns) = (None, 0);
        if let Some(source) = &mut self.source {
            source.restart();
        }
    }
}

/// What a message was taken of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TakenOf {
    Subscription(usize),
    /// A request: services are found by their own handles.
    Service,
}

/// A message taken and not yet handed to a callback.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Take {
    pub of: TakenOf,
    pub message: Option<u64>,
    pub at_ns: u64,
    /// When its publisher, which is not observed, says to have published it, by our clock.
    pub sent_ns: Option<u64>,
    /// How long it waited before cannot be known.
    pub unknown: bool,
    /// How it begins, where that is reported.
    pub head: Option<u64>,
    /// When the middleware had received it, where that is known.
    pub receipt: Option<super::delivery::Receipt>,
}

/// A publication between its first and its last step.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Publication {
    pub publisher: usize,
    pub message: u64,
    /// Only the intra-process step was seen so far: the steps between processes may follow for the
    /// same message.
    pub intra_only: bool,
}

/// An activation under way.
#[derive(Debug)]
pub(crate) struct Frame {
    pub callback: usize,
    pub handle: Handle,
    pub at_ns: u64,
    pub cpu_ns: Option<u64>,
    /// Opened by a taken response: client callbacks have no start and no end of their own.
    pub inferred: bool,
    pub tags: Vec<Tag>,
    /// How its message begins, where that is reported.
    pub head: Option<u64>,
    /// What its last joint message carried.
    pub joint: Option<Joint>,
}

/// What a message filter has joined in one activation.
#[derive(Debug)]
pub(crate) struct Joint {
    /// How the message begins that was published of it.
    pub head: Option<u64>,
    pub tags: Vec<Tag>,
}

/// A message that waits in a message filter for its partners.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub head: Option<u64>,
    pub tags: Vec<Tag>,
}

/// The loop of a thread that publishes by itself. One activation lasts until a topic comes again.
#[derive(Debug)]
pub(crate) struct SourceState {
    pub callback: usize,
    pub topics: Vec<usize>,
    pub last: Option<(u64, Option<u64>)>,
    /// CPU time and moment of the last publication of the activation before.
    pub base: Option<(u64, Option<u64>)>,
    pub tags: Vec<Tag>,
}

impl SourceState {
    pub(crate) fn restart(&mut self) {
        self.topics.clear();
        self.last = None;
        self.base = None;
        self.tags.clear();
    }
}

#[derive(Debug)]
pub(crate) struct NodeState {
    pub pid: u32,
    pub name: Arc<str>,
}

#[derive(Debug)]
pub(crate) struct TopicState {
    /// `None`: known by publishers or subscriptions only, whose registration was missed.
    pub name: Option<Arc<str>>,
    pub hidden: bool,
    /// Merged into that one.
    pub merged: Option<usize>,
    pub arrivals: Arrivals,
    pub transport: Latency,
    /// Subscriptions that get messages within their process.
    pub intra: Vec<usize>,
    /// Callbacks that its messages release, each with the rank of its registration.
    pub releases: Vec<(usize, u64)>,
}

/// Messages that have come for a callback since it last ran.
#[derive(Debug, Default)]
pub(crate) struct Unheard {
    pub count: u64,
    pub first_ns: u64,
    pub newest_ns: VecDeque<u64>,
}

#[derive(Debug)]
pub(crate) struct PublisherState {
    pub topic: usize,
    pub node: Option<usize>,
}

#[derive(Debug)]
pub(crate) struct SubscriptionState {
    pub handle: Handle,
    pub pid: u32,
    pub topic: usize,
    pub node: Option<usize>,
    pub depth: u64,
    pub callback: Option<usize>,
    pub joined: u64,
    pub unjoined: u64,
    /// Messages whose publishers are not observed.
    pub outside: OutsideState,
    /// The C++ object.
    pub object: Handle,
    /// Messages in its intra-process buffer, if it was seen to have one.
    pub buffer: Option<VecDeque<u64>>,
}

/// A service or a client.
#[derive(Debug)]
pub(crate) struct ServiceState {
    pub handle: Handle,
    pub name: Arc<str>,
    pub node: Option<usize>,
    pub requests: usize,
    pub responses: usize,
    pub callback: Option<usize>,
    /// What services call this client; 0: not known.
    pub identity: u64,
}

#[derive(Debug)]
pub(crate) struct TimerState {
    pub handle: Handle,
    pub created_ns: u64,
    pub period_ns: Option<u64>,
    pub node: Option<usize>,
    pub callback: Option<usize>,
}

/// What activates a callback.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    Timer {
        timer: usize,
    },
    Subscription {
        subscription: usize,
    },
    Service {
        service: usize,
    },
    Client {
        client: usize,
    },
    Untraced {
        thread: usize,
    },
    Source {
        thread: usize,
    },
    Task {
        thread: usize,
        name: Arc<str>,
    },
    /// Known by its starts alone.
    Unknown {
        handle: Handle,
        intra: bool,
        executed: bool,
    },
}

/// A topic that a callback publishes to.
#[derive(Debug, Clone)]
pub(crate) struct Edge {
    pub topic: usize,
    pub publications: u64,
    /// In how many activations.
    pub activations: u64,
    pub last: u64,
    /// Messages in that one so far.
    pub now: u64,
    /// Messages of one activation, at most.
    pub most: GreatestRecorder,
    /// Those of start-up.
    pub most_apart: GreatestRecorder,
    /// Messages, as they were published.
    pub arrivals: Arrivals,
    /// The same over activations instead of time: how many messages so many activations in a row
    /// send. Not of start-up.
    pub counts: ArrivalRecorder,
    /// What a plan assumed of that.
    pub limit: Option<Box<CountLimit>>,
}

impl Edge {
    /// Messages of one activation, at most; what start-up showed only where nothing came since.
    pub(crate) fn most(&self) -> u64 {
        match self.most.most() {
            0 => self.most_apart.most(),
            most => most,
        }
    }
}

#[derive(Debug)]
pub(crate) struct CallbackState {
    pub pid: u32,
    pub origin: Origin,
    /// The callback or its process is gone: its name, under which a successor finds its curves. Its
    /// origin must not be followed any more.
    pub dead: Option<String>,
    /// Rank of registration.
    pub order: u64,
    pub symbol: Option<Arc<str>>,
    /// Node of a source's first publisher; others know theirs by their origin.
    pub source_node: Option<usize>,
    /// Threads that ran it, with how often.
    pub threads: Vec<(usize, u64)>,
    pub last_thread: Option<usize>,
    /// How often another thread than the last one ran it.
    pub switches: u64,
    pub nested: u64,
    /// Answers of a service that were sent by something else than its callback.
    pub deferred: u64,
    /// Its activations have no events of their own.
    pub eventless: bool,
    /// Messages that wait in its message filter.
    pub waiting: VecDeque<Waiting>,
    pub activations: u64,
    /// Since when it is known.
    pub known_ns: u64,
    pub arrivals: Arrivals,
    pub cost: CostRecorder,
    pub suspensions: Suspensions,
    /// How long the middleware took with its messages.
    pub delivered: super::delivery::Delivered,
    pub shortest: super::shortest::ShortestTimes,
    pub probable: Option<Box<ProbableRecorder>>,
    pub publishes: Vec<Edge>,
    pub grid: Option<TimerGrid>,
    /// Of a callback that messages release.
    pub unheard: Option<Box<Unheard>>,
    /// Watched chains that it is a step of, and where.
    pub watched: Vec<(u32, u32)>,
    /// Whether it looked for a predecessor of the same name.
    pub settled: bool,
}

/// A C++ subscription object between its two registrations, which come in either order.
#[derive(Debug, Default)]
pub(crate) struct ObjectState {
    pub subscription: Option<usize>,
    pub callback: Option<Handle>,
}

#[derive(Debug, Default)]
pub(crate) struct Tables {
    pub threads: Slab<ThreadState>,
    pub thread_of: FxHashMap<(u32, u32), usize>,
    pub nodes: Registry<NodeState>,
    pub topics: Vec<TopicState>,
    pub topic_of: FxHashMap<Arc<str>, usize>,
    pub publishers: Registry<PublisherState>,
    pub subscriptions: Registry<SubscriptionState>,
    pub objects: FxHashMap<Key, ObjectState>,
    pub services: Registry<ServiceState>,
    pub clients: Registry<ServiceState>,
    pub timers: Registry<TimerState>,
    pub callbacks: Slab<CallbackState>,
    pub callback_of: FxHashMap<Key, usize>,
    pub symbol_of: FxHashMap<Key, Arc<str>>,
    pub task_of: FxHashMap<(u32, Arc<str>), usize>,
    /// Executors that said what they are (CARET), and whether they have several threads.
    pub executors: FxHashMap<Key, bool>,
    /// Executors of callback groups.
    pub executor_of_group: FxHashMap<Key, Handle>,
    /// Clients and services were seen to report a client's process alike.
    pub processes_agree: bool,
    /// Processes whose nodes are Python's.
    pub python: rustc_hash::FxHashSet<u32>,
    /// Callback groups that said what they are, and whether they are reentrant.
    pub groups: FxHashMap<Key, bool>,
    /// Callback groups of timers, subscriptions, services and clients.
    pub group_of: FxHashMap<Key, Handle>,
}

impl Tables {
    /// The topic that `topic` was merged into.
    pub(crate) fn topic(&self, mut topic: usize) -> usize {
        while let Some(merged) = self.topics[topic].merged {
            topic = merged;
        }
        topic
    }

    /// Two names of one topic, at least one of which is none. Returns the common one; `None` where
    /// both are named and different.
    pub(crate) fn merge(&mut self, a: usize, b: usize) -> Option<usize> {
        let (a, b) = (self.topic(a), self.topic(b));
        if a == b {
            return Some(a);
        }
        let (kept, gone) = match (&self.topics[a].name, &self.topics[b].name) {
            (Some(_), Some(_)) => return None,
            (None, Some(_)) => (b, a),
            _ => (a, b),
        };
        // The publisher's side has the arrivals.
        if self.topics[gone].arrivals.seen() > self.topics[kept].arrivals.seen() {
            let arrivals = self.topics[gone].arrivals.clone();
            self.topics[kept].arrivals = arrivals;
        }
        let moved = std::mem::take(&mut self.topics[gone].intra);
        self.topics[kept].intra.extend(moved);
        let moved = std::mem::take(&mut self.topics[gone].releases);
        self.topics[kept].releases.extend(moved);
        self.topics[gone].merged = Some(kept);
        Some(kept)
    }

    pub(crate) fn node_of_callback(&self, callback: &CallbackState) -> Option<usize> {
        match callback.origin {
            Origin::Timer { timer } => self.timers.get(timer)?.node,
            Origin::Subscription { subscription } => self.subscriptions.get(subscription)?.node,
            Origin::Service { service } => self.services.get(service)?.node,
            Origin::Client { client } => self.clients.get(client)?.node,
            Origin::Source { .. } => callback.source_node,
            Origin::Untraced { .. } | Origin::Task { .. } | Origin::Unknown { .. } => None,
        }
    }

    /// The callback group of a callback, where it is known.
    pub(crate) fn group(&self, callback: &CallbackState) -> Option<Key> {
        let handle = match callback.origin {
            Origin::Timer { timer } => self.timers.get(timer)?.handle,
            Origin::Subscription { subscription } => self.subscriptions.get(subscription)?.handle,
            Origin::Service { service } => self.services.get(service)?.handle,
            Origin::Client { client } => self.clients.get(client)?.handle,
            _ => return None,
        };
        Some((callback.pid, *self.group_of.get(&(callback.pid, handle))?))
    }

    /// The executor that a callback was declared to belong to.
    pub(crate) fn declared_executor(&self, callback: &CallbackState) -> Option<Key> {
        if self.group_of.is_empty() {
            return None;
        }
        Some((callback.pid, *self.executor_of_group.get(&self.group(callback)?)?))
    }

    /// Nothing leads to a callback that has ended: its place becomes that of another one.
    pub(crate) fn forget_callback(&mut self, index: usize) {
        self.callback_of.retain(|_, known| *known != index);
        self.task_of.retain(|_, known| *known != index);
        let timers = self.timers.iter_mut().map(|(_, state)| &mut state.callback);
        let subscriptions = self.subscriptions.iter_mut().map(|(_, state)| &mut state.callback);
        let services = self.services.iter_mut().map(|(_, state)| &mut state.callback);
        let clients = self.clients.iter_mut().map(|(_, state)| &mut state.callback);
        for known in timers.chain(subscriptions).chain(services).chain(clients) {
            known.take_if(|known| *known == index);
        }
    }

    /// Forgets whatever the process registered; its callbacks and threads stay.
    pub(crate) fn forget_process(&mut self, pid: u32) {
        self.nodes.forget(pid);
        self.publishers.forget(pid);
        self.services.forget(pid);
        self.clients.forget(pid);
        self.timers.forget(pid);
        let subscriptions = &self.subscriptions;
        for topic in &mut self.topics {
            topic.intra.retain(|&index| subscriptions.get(index).is_some_and(|s| s.pid != pid));
        }
        self.subscriptions.forget(pid);
        self.objects.retain(|&(owner, _), _| owner != pid);
        self.symbol_of.retain(|&(owner, _), _| owner != pid);
        self.callback_of.retain(|&(owner, _), _| owner != pid);
        self.task_of.retain(|&(owner, _), _| owner != pid);
        self.executors.retain(|&(owner, _), _| owner != pid);
        self.executor_of_group.retain(|&(owner, _), _| owner != pid);
        self.group_of.retain(|&(owner, _), _| owner != pid);
        self.groups.retain(|&(owner, _), _| owner != pid);
        self.python.remove(&pid);
    }
}

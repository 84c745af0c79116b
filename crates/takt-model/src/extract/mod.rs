//! The model extractor (*ROS-Llama*, section IV.A): from a stream of events to a timing model,
//! incrementally.
//!
//! ```
//! use takt_model::{Extractor, Options};
//! # use takt_ros::event::{Event, Kind};
//! # let events: Vec<Event> = vec![];
//! let mut extractor = Extractor::new(Options::default());
//! for event in &events {
//!     extractor.event(event);
//! }
//! let model = extractor.snapshot(0);
//! assert!(model.callbacks.is_empty());
//! ```
//!
//! # What is inferred, and how
//! - **Activation edges**: whatever is published between a callback's start and its end, on its
//!   thread. A callback that publishes now and then has the edge for good: it may.
//! - **Execution time** of an activation: the CPU time of the thread since the end of the
//!   activation before, so that building wait sets, taking and deserialising are paid by somebody
//!   ([`Options::charge_executor`]).
//! - **Client callbacks** have no events before the service events of newer `tracetools`: where an
//!   executor selects something and no callback starts before it selects again, it ran a client's
//!   callback or another thing without events.
//! - **Self-suspension** is what an activation was off the CPU without being preempted: see
//!   [`Callback::suspension`](crate::Callback::suspension) and the module `suspend`. Of work
//!   without events (clients before their events) only what passed between two selections is known,
//!   and counts as undecided.
//! - **Event sources**: a publication outside callbacks, on a thread that is no executor. The
//!   loop's activation lasts until a topic comes a second time.
//! - **Identity over restarts**: a callback is node name, kind, and topic, service or period. When
//!   a process has ended and another one brings a callback of the same name, its curves go on (with
//!   a gap), because it is the same program doing the same work, and would otherwise run without a
//!   budget until everything is learnt again.
//! - **Lost events** end all windows of the process concerned; activations under way are dropped
//!   and counted, never guessed.

mod cycle;
mod delivery;
mod dispatch;
mod executor;
mod filter;
pub mod gap;
mod groups;
mod guarded;
mod join;
mod messages;
mod names;
mod outside;
mod publish;
mod register;
mod registry;
mod run;
mod service;
mod shortest;
mod snapshot;
pub mod startup;
mod state;
mod suspend;
#[cfg(test)]
mod tests;
mod timer;
mod unrun;
mod unsettled;

use serde::{Deserialize, Serialize};
use takt_ros::event::{Event, Kind};

use self::messages::Messages;
use self::startup::{Arrivals, Startups};
use self::state::{CallbackState, Origin, Tables, ThreadState, TopicState};
use self::suspend::{Keep, OffCpu, Suspensions};
use self::unsettled::Unsettled;
use crate::chain::{ChainSpec, ChainStats, WatchId};
use crate::{ArrivalRecorder, CostRecorder, Latency, Model, ProbableRecorder};

/// How the extractor works.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// Longest window of arrival curves, in events. 64: beyond it the analysis extrapolates, and
    /// what bursts there are in robots (a driver's messages, a queue worked off) are shorter.
    pub arrival_events: usize,
    /// Longest window of execution-time curves, in activations. 128: the paper's example needs 40
    /// to see that expensive activations are rare (figure 2).
    pub cost_activations: usize,
    /// Extremes older than this are forgotten, at the latest after twice as long, nanoseconds of
    /// activity; `None` keeps everything. Ten minutes: long against what repeats in a mission, and
    /// yet a slow start does not bind budgets for a day.
    pub horizon_ns: Option<u64>,
    /// Exceedance probabilities for which probabilistic execution-time curves are kept. None by
    /// default: they cost 100 kB for every callback.
    pub exceedance: Vec<f64>,
    /// Messages remembered until they are taken. 16384: more than a second at ten times the rates
    /// of the paper's robot.
    pub messages: usize,
    /// Objects of each kind (threads, callbacks, topics …) kept at most, as a guard against a
    /// stream that never stops naming new ones; what comes beyond is counted as refused. 16384: a
    /// hundred times a large robot.
    pub most_objects: usize,
    /// Callbacks of ended processes kept for their successors. 1024.
    pub most_ended: usize,
    /// Ended processes stay in the model: for recordings, where everything has ended. Off: nothing
    /// can be reserved for them.
    pub keep_ended: bool,
    /// Charge the executor's own work (wait sets, taking messages) to the activation that follows
    /// it. On, because the reservation must supply it.
    pub charge_executor: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            arrival_events: 64,
            cost_activations: 128,
            horizon_ns: Some(600_000_000_000),
            exceedance: Vec::new(),
            messages: 16_384,
            most_objects: 16_384,
            most_ended: 1024,
            keep_ended: false,
            charge_executor: true,
        }
    }
}

/// An option that cannot be.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum OptionsError {
    /// Too short a window.
    #[error("{option} is {value}; at least {least} is needed")]
    TooSmall {
        option: &'static str,
        value: u64,
        /// What it must be at least.
        least: u64,
    },
    #[error("exceedance has {0}; probabilities lie between 0 and 1, both excluded (1e-3: one in a thousand)")]
    NoProbability(f64),
}

impl Options {
    /// Checks ranges.
    ///
    /// # Errors
    ///
    /// The first option that cannot be.
    pub fn validate(&self) -> Result<(), OptionsError> {
        let least = [
            ("arrival_events", self.arrival_events as u64, 2),
            ("cost_activations", self.cost_activations as u64, 1),
            ("horizon_ns", self.horizon_ns.unwrap_or(u64::MAX), 1_000_000_000),
            ("messages", self.messages as u64, 1),
            ("most_objects", self.most_objects as u64, 1),
        ];
        if let Some(&(option, value, least)) = least.iter().find(|&&(_, value, least)| value < least) {
            return Err(OptionsError::TooSmall { option, value, least });
        }
        match self.exceedance.iter().find(|p| !(**p > 0.0 && **p < 1.0)) {
            Some(&p) => Err(OptionsError::NoProbability(p)),
            None => Ok(()),
        }
    }
}

/// What went by and what went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counters {
    pub events: u64,
    /// Events lost before they came here, where the source could tell; one for each gap where it
    /// could not.
    pub lost_events: u64,
    /// Gaps in the stream.
    pub gaps: u64,
    /// Activations of which the start or the end is missing: left out of the curves.
    pub dropped_activations: u64,
    /// Ends without a start: attached in the middle of a callback, or lost.
    pub ends_without_start: u64,
    /// CPU clocks that stepped back, or ran faster than time.
    pub clock_steps: u64,
    /// Messages taken whose publication was seen.
    pub joined: u64,
    /// Messages taken whose publication was not: published outside the observed processes, before
    /// observation, or without a time stamp (Humble).
    pub unjoined: u64,
    /// Objects beyond [`Options::most_objects`].
    pub refused: u64,
    /// Callbacks that went on where a predecessor had ended.
    pub succeeded: u64,
}

#[derive(Debug)]
pub struct Extractor {
    options: Options,
    tables: Tables,
    messages: Messages,
    counters: Counters,
    clocks: outside::Clocks,
    started_ns: Option<u64>,
    now_ns: u64,
    order: u64,
    watches: Vec<ChainStats>,
    /// Names may have changed since the watched chains were looked up.
    renamed: bool,
    looked_up_ns: u64,
    /// Names of ended callbacks, oldest first.
    ended: std::collections::VecDeque<usize>,
    /// Processes whose main thread has ended, and when they were last heard of.
    ending: Vec<(u32, u64)>,
    last_thread: usize,
    startups: Startups,
    /// The process of this event is starting.
    starting: bool,
    unsettled: Unsettled,
    tags: Vec<state::Tag>,
    guarded: guarded::Guarded,
    gaps: gap::Gaps,
    /// Models of when processes ended of which something had not run.
    farewells: Vec<Model>,
    /// Releases before this are not judged: they fell into a gap, or into the time in which the
    /// recording began again.
    judged_from_ns: u64,
}

impl Extractor {
    /// An extractor that knows nothing.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self {
            messages: Messages::new(options.messages),
            options,
            tables: Tables::default(),
            counters: Counters::default(),
            clocks: outside::Clocks::default(),
            started_ns: None,
            now_ns: 0,
            order: 0,
            watches: Vec::new(),
            renamed: true,
            looked_up_ns: 0,
            ended: std::collections::VecDeque::new(),
            ending: Vec::new(),
            last_thread: 0,
            startups: Startups::default(),
            starting: false,
            unsettled: Unsettled::default(),
            tags: Vec::new(),
            guarded: guarded::Guarded::default(),
            gaps: gap::Gaps::default(),
            farewells: Vec::new(),
            judged_from_ns: 0,
        }
    }

    /// Observation begins: without this call, with the first event.
    pub fn begin(&mut self, now_ns: u64) {
        self.started_ns.get_or_insert(now_ns);
    }

    /// What went by so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Measures end-to-end latencies of a chain from now on.
    pub fn watch(&mut self, chain: ChainSpec) -> WatchId {
        self.watches.push(ChainStats::new(chain));
        self.renamed = true;
        WatchId(self.watches.len() - 1)
    }

    /// What was measured of a chain.
    #[must_use]
    pub fn watched(&self, id: WatchId) -> Option<&ChainStats> {
        self.watches.get(id.0)
    }

    /// The same, to take it out and begin a new phase ([`ChainStats::take`]).
    pub fn watched_mut(&mut self, id: WatchId) -> Option<&mut ChainStats> {
        self.watches.get_mut(id.0)
    }

    /// Several at once, in their own order.
    pub fn watched_many(&mut self, ids: &[WatchId]) -> Vec<&mut ChainStats> {
        let all = self.watches.iter_mut().enumerate();
        all.filter(|(index, _)| ids.contains(&WatchId(*index))).map(|(_, stats)| stats).collect()
    }

    #[must_use]
    pub fn snapshot(&self, now_ns: u64) -> Model {
        snapshot::take(self, now_ns)
    }

    /// Models of when processes ended of which something was due and had not run, since the last
    /// call: in later ones it is missing.
    pub fn take_farewells(&mut self) -> Vec<Model> {
        std::mem::take(&mut self.farewells)
    }

    /// Callbacks that ran and whose registration was not seen.
    #[must_use]
    pub fn unregistered(&self) -> usize {
        let unknown = |callback: &CallbackState| {
            callback.activations > 0 && matches!(callback.origin, Origin::Unknown { .. })
        };
        self.tables.callbacks.iter().filter(|(_, callback)| unknown(callback)).count()
    }

    /// Learns from one event.
    pub fn event(&mut self, event: &Event) {
        self.counters.events += 1;
        self.begin(event.at_ns);
        self.now_ns = event.at_ns;
        if !self.ending.is_empty() {
            self.end_quiet_processes(event);
        }
        if let Kind::Lost { count } = event.kind
            && (event.pid, event.tid) == (0, 0)
        {
            return self.lost(None, count);
        }
        if let Kind::Gap { from_ns, why } = event.kind {
            return self.gap(from_ns, event.at_ns, why);
        }
        let Some(thread) = self.thread(event.pid, event.tid) else { return };
        self.tables.threads[thread].last_ns = event.at_ns;
        if let Some(cpu_ns) = event.cpu_ns {
            let state = &mut self.tables.threads[thread];
            if cpu_ns < state.last_cpu_ns {
                // Another thread behind the same number, or a broken clock: what was under way
                // cannot be reported.
                self.counters.clock_steps += 1;
                self.counters.dropped_activations += state.stack.len() as u64;
                state.forget_course();
            }
            state.last_cpu_ns = cpu_ns;
            if !state.unpaid.is_empty() {
                self.pay(thread, event.at_ns, cpu_ns);
            }
        }
        let (pid, at, cpu) = (event.pid, event.at_ns, event.cpu_ns);
        self.starting = self.startups.is_starting(pid, at);
        match &event.kind {
            Kind::CallbackStart { callback, intra_process } => {
                self.look_up_chains(at);
                self.callback_start(thread, at, cpu, *callback, *intra_process);
            }
            Kind::CallbackEnd { callback } => self.callback_end(thread, at, cpu, *callback),
            Kind::OffCpu { switches, ready_ns, yields, early_ns } => {
                let state = &mut self.tables.threads[thread];
                let (switches, ready_ns, yields, early_ns) = (*switches, *ready_ns, *yields, *early_ns);
                state.off_cpu = Some(OffCpu { switches, ready_ns, yields, early_ns });
                state.reports |= switches.is_some();
            }
            Kind::RclcppPublish { .. } => {}
            Kind::RclPublish { publisher, .. } => {
                self.rcl_publish(thread, at, cpu, *publisher);
            }
            Kind::RmwPublish { rmw_publisher, source_ns, .. } => {
                self.rmw_publish(thread, at, cpu, *rmw_publisher, *source_ns);
            }
            Kind::IntraPublish { publisher, .. } => {
                self.intra_publish(thread, at, cpu, *publisher);
            }
            Kind::RmwTake { rmw_subscription, source_ns, taken, .. } => {
                if *taken {
                    self.rmw_take(thread, at, cpu, *rmw_subscription, *source_ns);
                }
            }
            Kind::Service { step, rmw_handle, sequence, client } => {
                self.service_step(thread, at, cpu, *step, *rmw_handle, (*sequence, *client));
            }
            Kind::ExecutorWait { .. } => self.executor_wait(thread, at, cpu),
            Kind::ExecutorNextReady => self.executor_next_ready(thread, at, cpu),
            Kind::ExecutorExecute { handle } => self.executor_execute(thread, at, cpu, *handle),
            Kind::ExecutorSpin { executor, kind } => {
                self.executor_event(thread, at, cpu);
                let state = &mut self.tables.threads[thread];
                // Whoever reports executors reports what they run, too.
                (state.spins, state.reports_ends) = (Some((*executor, kind.clone())), true);
            }
            Kind::MessageReceived { after_ns } => self.tables.threads[thread].received = Some(*after_ns),
            Kind::MessageHead { head } => self.tables.threads[thread].head = Some(*head),
            Kind::Python => {
                if self.tables.python.len() < self.options.most_objects {
                    self.tables.python.insert(pid);
                }
            }
            Kind::ExecutorExecuted { complete } => self.executor_executed(thread, at, cpu, *complete),
            Kind::GroupMember { group, reentrant, member, object } => {
                self.group_member(thread, *group, *reentrant, *member, *object);
            }
            Kind::Job { task, released_ns, started_ns, used_ns } => {
                self.look_up_chains(at);
                self.job(thread, at, task, (*released_ns, *started_ns, *used_ns));
            }
            Kind::ThreadName { name } => self.tables.threads[thread].name = Some(name.clone()),
            Kind::ThreadEnd => self.thread_end(thread, at),
            Kind::Lost { count } => self.lost(Some(thread), *count),
            Kind::LifecycleTransition { .. } | Kind::IntraProcessBuffer { .. } => {}
            registration => self.register(pid, thread, registration),
        }
    }

    fn thread(&mut self, pid: u32, tid: u32) -> Option<usize> {
        // Events come in runs of one thread.
        if let Some(state) = self.tables.threads.get(self.last_thread)
            && (state.pid, state.tid, state.ended) == (pid, tid, false)
        {
            return Some(self.last_thread);
        }
        self.last_thread = self.find_thread(pid, tid)?;
        Some(self.last_thread)
    }

    fn find_thread(&mut self, pid: u32, tid: u32) -> Option<usize> {
        if let Some(&thread) = self.tables.thread_of.get(&(pid, tid)) {
            if self.tables.threads[thread].ended {
                // The number came again.
                let name = self.tables.threads[thread].name.take();
                self.tables.threads[thread] = ThreadState { name, ..ThreadState::new(pid, tid) };
            }
            return Some(thread);
        }
        if self.tables.threads.len() >= self.options.most_objects {
            let ended = self.tables.threads.iter().find(|(_, t)| t.ended).map(|(i, t)| (i, t.pid, t.tid));
            let Some((index, pid, tid)) = ended.filter(|_| !self.options.keep_ended) else {
                self.counters.refused += 1;
                return None;
            };
            self.tables.threads.remove(index);
            self.tables.thread_of.remove(&(pid, tid));
        }
        let thread = self.tables.threads.insert(ThreadState::new(pid, tid));
        self.tables.thread_of.insert((pid, tid), thread);
        Some(thread)
    }

    fn new_topic(&mut self, name: Option<std::sync::Arc<str>>, hidden: bool) -> Option<usize> {
        if self.tables.topics.len() >= self.options.most_objects {
            self.counters.refused += 1;
            return None;
        }
        self.tables.topics.push(TopicState {
            name: name.clone(),
            hidden,
            merged: None,
            arrivals: self.arrivals(),
            transport: Latency::default(),
            intra: Vec::new(),
            releases: Vec::new(),
        });
        let topic = self.tables.topics.len() - 1;
        if let Some(name) = name {
            self.tables.topic_of.insert(name, topic);
        }
        Some(topic)
    }

    fn named_topic(&mut self, name: &std::sync::Arc<str>, hidden: bool) -> Option<usize> {
        match self.tables.topic_of.get(name) {
            Some(&topic) => Some(topic),
            None => self.new_topic(Some(name.clone()), hidden),
        }
    }

    /// Observation of what begins to exist now starts now; what existed before the first event was
    /// seen, with it.
    fn arrivals(&self) -> Arrivals {
        let started_ns = self.started_ns.unwrap_or(self.now_ns);
        let (events, horizon_ns) = (self.options.arrival_events, self.options.horizon_ns);
        Arrivals::new(ArrivalRecorder::new(events, horizon_ns, started_ns))
    }

    fn keep(&self) -> Keep {
        Keep { activations: self.options.cost_activations, horizon_ns: self.options.horizon_ns }
    }

    fn new_callback(&mut self, pid: u32, origin: Origin) -> Option<usize> {
        if self.tables.callbacks.len() >= self.options.most_objects && !self.forget_oldest_ended() {
            self.counters.refused += 1;
            return None;
        }
        self.order += 1;
        self.renamed = true;
        let probable = (!self.options.exceedance.is_empty())
            .then(|| Box::new(ProbableRecorder::new(self.options.cost_activations.min(64))));
        Some(self.tables.callbacks.insert(CallbackState {
            pid,
            origin,
            dead: None,
            order: self.order,
            symbol: None,
            source_node: None,
            threads: Vec::new(),
            last_thread: None,
            switches: 0,
            nested: 0,
            deferred: 0,
            eventless: false,
            waiting: std::collections::VecDeque::new(),
            activations: 0,
            known_ns: self.now_ns,
            arrivals: self.arrivals(),
            cost: CostRecorder::new(
                self.options.cost_activations,
                self.options.horizon_ns,
                self.started_ns.unwrap_or(self.now_ns),
            ),
            suspensions: Suspensions::default(),
            delivered: delivery::Delivered::default(),
            shortest: shortest::ShortestTimes::default(),
            probable,
            publishes: Vec::new(),
            grid: None,
            unheard: None,
            watched: Vec::new(),
            settled: false,
        }))
    }

    fn forget_oldest_ended(&mut self) -> bool {
        self.ended.pop_front().is_some_and(|index| self.tables.callbacks.try_remove(index).is_some())
    }

    /// Finds the callbacks of watched chains by their names, at most every ten milliseconds while
    /// names change.
    fn look_up_chains(&mut self, at_ns: u64) {
        if !self.renamed || self.watches.is_empty() {
            return;
        }
        if at_ns.abs_diff(self.looked_up_ns) < 10_000_000 {
            return;
        }
        (self.renamed, self.looked_up_ns) = (false, at_ns);
        for (_, callback) in &mut self.tables.callbacks {
            callback.watched.clear();
        }
        for (index, name) in names::names(self) {
            for (watch, stats) in self.watches.iter().enumerate() {
                for position in stats.positions(&name) {
                    self.tables.callbacks[index].watched.push((watch as u32, position));
                }
            }
        }
    }
}

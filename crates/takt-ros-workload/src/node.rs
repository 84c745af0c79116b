//! One node as one process: its objects announced, its executor spun, its sources run.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::io;
use std::path::Path;

use takt_rt::random::SplitMix64;

use crate::burn::burn_ns;
use crate::bus::{Bus, Message};
use crate::executor::{Executor, Served, Timer};
use crate::stamps::{ActivationId, Run, Stamper, Stamps};
use crate::system::{Cost, NodeSpec, SourceSpec, System, period_ns, random};
use crate::tracepoints::{Handle, trace};
use takt_rt::clock::{self, monotonic_ns, sleep_until};

/// When a run begins and ends, CLOCK_MONOTONIC nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Begin: the first release of every timer and source.
    pub start_ns: u64,
    /// From here to the end the phases divide the time equally; before it is the first phase, too.
    pub phases_ns: u64,
    /// End: nothing is released any more.
    pub end_ns: u64,
    /// Number of phases.
    pub phases: usize,
}

impl Window {
    /// The phase of a moment.
    #[must_use]
    pub fn phase(&self, at_ns: u64) -> usize {
        let length = u128::from(self.end_ns.saturating_sub(self.phases_ns)).max(1);
        let gone = u128::from(at_ns.saturating_sub(self.phases_ns));
        let phase = gone * self.phases as u128 / length;
        usize::try_from(phase).unwrap_or(usize::MAX).min(self.phases.saturating_sub(1))
    }
}

/// Reason why a node cannot run.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The system has no such node.
    #[error("the system has no node {node}; it has {has}")]
    NoNode { node: String, has: String },
    /// Its socket or a thread could not be made.
    #[error("node {node} cannot join the bus at {place}: {source}")]
    Bus { node: String, place: String, source: io::Error },
    /// Its stamps cannot be written.
    #[error("node {node} cannot write its stamps to {place}: {source}")]
    Stamps { node: String, place: String, source: io::Error },
}

/// A node whose objects are announced and whose socket is there: it waits for the start.
pub struct Node {
    spec: NodeSpec,
    seed: u64,
    /// The number of its first activity.
    first: u16,
    stamps: Stamps,
    bus: Bus,
    publishers: BTreeMap<String, Publisher>,
    timers: Vec<TimerObjects>,
    subscriptions: Vec<SubscriptionObjects>,
}

/// Handles of a publisher. Plain numbers that travel between threads.
#[derive(Debug, Clone, Copy)]
struct Publisher {
    topic: u32,
    rcl: Handle,
    rmw: Handle,
}

struct TimerObjects {
    /// When it was made: its releases lie on the grid of its period from there, as `rcl`'s do.
    made_ns: u64,
    timer: Handle,
    callback: Handle,
}

struct SubscriptionObjects {
    rcl: Handle,
    rmw: Handle,
    callback: Handle,
}

/// Runs a node of a system: joins the bus below `directory`, calls `ready`, which returns when to
/// begin, and serves until the end.
pub fn run(
    system: &System,
    node: &str,
    directory: &Path,
    ready: impl FnOnce() -> Option<Window>,
) -> Result<Losses, Failure> {
    let node = Node::announce(system, node, directory)?;
    Ok(ready().map(|window| node.serve(window)).unwrap_or_default())
}

/// Losses of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Losses {
    /// Messages that a receiver did not get.
    pub dropped: u64,
    /// Messages overwritten in this node's full histories.
    pub overwritten: u64,
    /// Activations that it could not write down.
    pub unwritten: u64,
}

impl std::fmt::Display for Losses {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "dropped {} overwritten {} unwritten {}", self.dropped, self.overwritten, self.unwritten)
    }
}

impl Losses {
    /// Reads what [`Losses`] prints.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (dropped, rest) = text.strip_prefix("dropped ")?.split_once(" overwritten ")?;
        let (overwritten, unwritten) = rest.split_once(" unwritten ")?;
        Some(Self {
            dropped: dropped.parse().ok()?,
            overwritten: overwritten.parse().ok()?,
            unwritten: unwritten.parse().ok()?,
        })
    }
}

impl Node {
    fn announce(system: &System, name: &str, directory: &Path) -> Result<Self, Failure> {
        let spec = system.node(name).cloned().ok_or_else(|| Failure::NoNode {
            node: name.to_owned(),
            has: system.node.iter().map(|node| node.name.as_str()).collect::<Vec<_>>().join(", "),
        })?;
        let bus = Bus::open(system, name, directory).map_err(|source| Failure::Bus {
            node: name.to_owned(),
            place: directory.display().to_string(),
            source,
        })?;
        let stamps = Stamps::create(system, name, directory).map_err(|source| Failure::Stamps {
            node: name.to_owned(),
            place: directory.display().to_string(),
            source,
        })?;
        let gid = [0u8; 24];
        let trace = trace();
        trace.rcl_init(Handle::new().pointer());
        let node = Handle::new();
        trace.rcl_node_init(node.pointer(), Handle::new().pointer(), &text(name), c"/");

        let topics: Vec<&str> = system.topics().into_iter().collect();
        let mut publishers = BTreeMap::new();
        let publishes = (spec.timer.iter().flat_map(|timer| &timer.publishes))
            .chain(spec.subscription.iter().flat_map(|subscription| &subscription.publishes))
            .chain(spec.source.iter().flat_map(|source| &source.publishes));
        for topic in publishes {
            let Some(index) = topics.iter().position(|other| other == topic) else { continue };
            publishers.entry(topic.clone()).or_insert_with(|| {
                let (rcl, rmw) = (Handle::new(), Handle::new());
                trace.rmw_publisher_init(rmw.pointer(), &gid);
                trace.rcl_publisher_init(rcl.pointer(), node.pointer(), rmw.pointer(), &text(topic), 10);
                // A system of more than 2^32 topics does not pass through memory.
                Publisher { topic: u32::try_from(index).unwrap_or(u32::MAX), rcl, rmw }
            });
        }
        let timers = (spec.timer.iter())
            .map(|timer| {
                let objects =
                    TimerObjects { made_ns: monotonic_ns(), timer: Handle::new(), callback: Handle::new() };
                trace.rcl_timer_init(objects.timer.pointer(), period_ns(timer.period_ms).cast_signed());
                trace.rclcpp_timer_callback_added(objects.timer.pointer(), objects.callback.pointer());
                trace.rclcpp_callback_register(objects.callback.pointer(), &text(&timer.name));
                trace.rclcpp_timer_link_node(objects.timer.pointer(), node.pointer());
                objects
            })
            .collect();
        let subscriptions = (spec.subscription.iter())
            .map(|subscription| {
                let (rcl, rmw, object) = (Handle::new(), Handle::new(), Handle::new());
                let callback = Handle::new();
                trace.rmw_subscription_init(rmw.pointer(), &gid);
                let topic = text(&subscription.topic);
                trace.rcl_subscription_init(
                    rcl.pointer(),
                    node.pointer(),
                    rmw.pointer(),
                    &topic,
                    subscription.depth,
                );
                trace.rclcpp_subscription_init(rcl.pointer(), object.pointer());
                trace.rclcpp_subscription_callback_added(object.pointer(), callback.pointer());
                trace.rclcpp_callback_register(callback.pointer(), &text(&subscription.name));
                SubscriptionObjects { rcl, rmw, callback }
            })
            .collect();
        let first = system.first_activity(name);
        Ok(Self { spec, seed: system.seed, first, stamps, bus, publishers, timers, subscriptions })
    }

    fn serve(self, window: Window) -> Losses {
        let numbers = self.first + (self.spec.timer.len() + self.spec.subscription.len()) as u16;
        let sources: Vec<_> = (self.spec.source.iter().zip(numbers..))
            .filter_map(|(source, number)| {
                let publishers = self.publishers_of(&source.publishes);
                let mut loop_ = SourceLoop {
                    number,
                    spec: source.clone(),
                    random: random(self.seed, &source.name),
                    publishers,
                    bus: self.bus.clone(),
                    stamper: self.stamps.stamper(),
                };
                // The kernel keeps 15 bytes of a name.
                let name: String = source.name.chars().take(15).collect();
                std::thread::Builder::new().name(name).spawn(move || loop_.run(window)).ok()
            })
            .collect();
        if self.timers.is_empty() && self.subscriptions.is_empty() {
            // A node of sources only: its main thread waits, as `spin` would with nothing to do.
            sleep_until(window.end_ns);
        } else {
            let timers = (self.spec.timer.iter().zip(&self.timers))
                .map(|(timer, objects)| {
                    Timer::on_grid(objects.made_ns, period_ns(timer.period_ms), window.start_ns)
                })
                .collect();
            sleep_until(window.start_ns);
            let mut numbers = self.first..;
            let mut number = || numbers.next().unwrap_or(u16::MAX);
            let mut work = Work {
                timers: self
                    .spec
                    .timer
                    .iter()
                    .map(|timer| self.activity(number(), &timer.name, &timer.cost, &timer.publishes))
                    .collect(),
                subscriptions: (self.spec.subscription.iter())
                    .map(|it| self.activity(number(), &it.name, &it.cost, &it.publishes))
                    .collect(),
                received: vec![false; self.spec.subscription.len()],
                stamper: self.stamps.stamper(),
                node: &self,
                window,
            };
            Executor::new(timers).spin(&mut work, window.end_ns);
        }
        for source in sources {
            // A source that panicked has said so.
            let _ = source.join();
        }
        let (dropped, overwritten) = self.bus.losses();
        Losses { dropped, overwritten, unwritten: self.stamps.unwritten() }
    }

    fn publishers_of(&self, topics: &[String]) -> Vec<Publisher> {
        topics.iter().filter_map(|topic| self.publishers.get(topic).copied()).collect()
    }

    fn activity(&self, number: u16, name: &str, cost: &Cost, publishes: &[String]) -> Activity {
        let label = format!("{}/{name}", self.spec.name);
        let publishers = self.publishers_of(publishes);
        Activity { number, cost: cost.clone(), random: random(self.seed, &label), index: 0, publishers }
    }
}

/// Activity of a callback: compute, then publish.
struct Activity {
    number: u16,
    cost: Cost,
    random: SplitMix64,
    index: u64,
    publishers: Vec<Publisher>,
}

impl Activity {
    /// Computes; returns the activation, which has begun.
    fn compute(&mut self, window: &Window) -> Run {
        let start_ns = monotonic_ns();
        let random = self.random.unit();
        burn_ns(self.cost.ns(window.phase(start_ns), self.index, random));
        let index = self.index;
        self.index += 1;
        Run { index, release_ns: None, start_ns, end_ns: start_ns, input: None, sent_ns: None }
    }

    /// Sends its messages; returns when the first left.
    fn publish(&self, bus: &Bus, index: u64) -> Option<u64> {
        publish(bus, &self.publishers, ActivationId { activity: self.number, index })
    }
}

struct Work<'a> {
    node: &'a Node,
    timers: Vec<Activity>,
    subscriptions: Vec<Activity>,
    /// Subscriptions with a message since a filter last let something through.
    received: Vec<bool>,
    stamper: Stamper,
    window: Window,
}

impl Served for Work<'_> {
    fn wait(&mut self, until_ns: u64, ready: &mut Vec<bool>) {
        self.node.bus.wait(until_ns, ready);
    }

    fn timer(&mut self, index: usize, release_ns: u64) {
        let (Some(objects), Some(activity)) = (self.node.timers.get(index), self.timers.get_mut(index))
        else {
            return;
        };
        trace().rclcpp_executor_execute(objects.timer.pointer());
        trace().callback_start(objects.callback.pointer(), false);
        let run = activity.compute(&self.window);
        let sent_ns = activity.publish(&self.node.bus, run.index);
        let end_ns = monotonic_ns();
        trace().callback_end(objects.callback.pointer());
        let run = Run { release_ns: Some(release_ns), sent_ns, end_ns, ..run };
        self.stamper.write(activity.number, &run);
    }

    fn subscription(&mut self, index: usize) {
        let Some(objects) = self.node.subscriptions.get(index) else { return };
        let Some(message) = self.node.bus.take(index) else { return };
        let Some(activity) = self.subscriptions.get_mut(index) else { return };
        trace().rclcpp_executor_execute(objects.rcl.pointer());
        let place = Handle::of(&message);
        trace().rmw_take(objects.rmw.pointer(), place.pointer(), message.source_ns, true);
        trace().rcl_take(place.pointer());
        trace().rclcpp_take(place.pointer());
        trace().callback_start(objects.callback.pointer(), false);
        let run = activity.compute(&self.window);
        if let Some(received) = self.received.get_mut(index) {
            *received = true;
        }
        let needs = self.node.spec.subscription.get(index).and_then(|spec| spec.needs.as_ref());
        let other =
            needs.map(|topic| self.node.spec.subscription.iter().position(|spec| &spec.topic == topic));
        let passes = match other {
            Some(Some(other)) => self.received.get_mut(other).is_some_and(std::mem::take),
            Some(None) => false,
            None => true,
        };
        let sent_ns = if passes { activity.publish(&self.node.bus, run.index) } else { None };
        let end_ns = monotonic_ns();
        trace().callback_end(objects.callback.pointer());
        let input = Some(ActivationId::unpacked(message.sequence));
        self.stamper.write(activity.number, &Run { input, sent_ns, end_ns, ..run });
    }
}

struct SourceLoop {
    number: u16,
    spec: SourceSpec,
    random: SplitMix64,
    publishers: Vec<Publisher>,
    bus: Bus,
    stamper: Stamper,
}

impl SourceLoop {
    fn run(&mut self, window: Window) {
        let period_ns = period_ns(self.spec.period_ms);
        let mut index = 0;
        let mut timer = Timer { next_ns: window.start_ns, period_ns };
        while timer.next_ns < window.end_ns {
            let release_ns = timer.next_ns;
            sleep_until(release_ns);
            let start_ns = monotonic_ns();
            timer.call(start_ns);
            burn_ns(self.spec.cost.ns(window.phase(start_ns), index, self.random.unit()));
            let id = ActivationId { activity: self.number, index };
            let whole = !self.spec.is_incomplete(index);
            let sent_ns = if whole { publish(&self.bus, &self.publishers, id) } else { None };
            let end_ns = monotonic_ns();
            let run = Run { index, release_ns: Some(release_ns), start_ns, end_ns, input: None, sent_ns };
            self.stamper.write(self.number, &run);
            index += 1;
        }
    }
}

/// Sends a message to each; returns when the first left.
fn publish(bus: &Bus, publishers: &[Publisher], id: ActivationId) -> Option<u64> {
    let sent_ns = (!publishers.is_empty()).then(monotonic_ns);
    for publisher in publishers {
        let message = Message { topic: publisher.topic, sequence: id.packed(), source_ns: realtime_ns() };
        let place = Handle::of(&message);
        trace().rclcpp_publish(publisher.rcl.pointer(), place.pointer());
        trace().rcl_publish(publisher.rcl.pointer(), place.pointer());
        trace().rmw_publish(publisher.rmw.pointer(), place.pointer(), message.source_ns);
        bus.publish(message);
    }
    sent_ns
}

/// Source time stamps are wall-clock times, as the middlewares' are.
fn realtime_ns() -> i64 {
    clock::realtime_ns().cast_signed()
}

/// For a tracepoint; a name with a NUL inside, which TOML allows, becomes empty.
fn text(text: &str) -> CString {
    CString::new(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_divide_the_window() {
        let window = Window { start_ns: 0, phases_ns: 100, end_ns: 400, phases: 3 };
        let at = [0, 100, 199, 200, 300, 399, 400, 10_000].map(|at_ns| window.phase(at_ns));
        assert_eq!(at, [0, 0, 0, 1, 2, 2, 2, 2]);
        let losses = Losses { dropped: 3, overwritten: 4, unwritten: 5 };
        assert_eq!(Losses::parse(&losses.to_string()), Some(losses));
        assert_eq!(Losses::parse("dropped 3"), None);
        assert_eq!(Losses::parse("dropped 3 overwritten 4"), None);
        assert_eq!(Window { start_ns: 5, phases_ns: 5, end_ns: 5, phases: 0 }.phase(5), 0);
    }

    #[test]
    fn a_message_goes_through_a_chain_of_nodes() {
        let system = System::parse(
            r#"
            phases = ["one"]
            [[node]]
            name = "driver"
            source = [{ name = "reader", period_ms = 20, cost = { ms = [0.1] }, publishes = ["/scan"] }]
            [[node]]
            name = "filter"
            subscription = [
              { topic = "/scan", name = "on_scan", cost = { ms = [0.1] }, publishes = ["/seldom"], needs = "/never" },
              { topic = "/never", name = "on_never", cost = { ms = [0.0] } },
              { topic = "/seldom", name = "on_seldom", cost = { ms = [0.0] }, publishes = ["/odd"] },
            ]
            [[node]]
            name = "sink"
            subscription = [{ topic = "/scan", name = "on_scan", cost = { ms = [0.1] }, publishes = ["/done"] }]
            [[node]]
            name = "watcher"
            subscription = [
              { topic = "/done", name = "on_done", cost = { ms = [0.0] } },
              { topic = "/seldom", name = "on_seldom", cost = { ms = [0.0] } },
            ]
            "#,
        )
        .unwrap();
        let directory = tempfile::tempdir().unwrap();
        let start_ns = monotonic_ns() + 50_000_000;
        let window = Window { start_ns, phases_ns: start_ns, end_ns: start_ns + 10_000_000_000, phases: 1 };
        for name in ["driver", "filter", "sink"] {
            let (system, place) = (system.clone(), directory.path().to_owned());
            // They go on until the process ends; what they lead to is what counts.
            std::thread::spawn(move || run(&system, name, &place, || Some(window)));
        }
        let bus = Bus::open(&system, "watcher", directory.path()).unwrap();
        let mut ready = Vec::new();
        let mut done = 0;
        while done < 3 {
            bus.wait(window.end_ns, &mut ready);
            assert!(monotonic_ns() < window.end_ns, "nothing came through");
            assert!(bus.take(1).is_none(), "the filter let something through that it had to hold");
            while let Some(message) = bus.take(0) {
                assert_eq!(message.topic, 0, "topics are sorted by name: /done is the first");
                done += 1;
            }
        }
    }

    #[test]
    fn an_unknown_node_is_named_with_those_that_are_there() {
        let directory = tempfile::tempdir().unwrap();
        let error = run(&System::turtlebot(), "amlc", directory.path(), || None).unwrap_err().to_string();
        assert!(error.contains("amlc") && error.contains("amcl,"), "{error}");
    }
}

//! Random systems, run by a small executor, and found again.
//!
//! Processes with one executor each (wait set, timers before subscriptions, no preemption),
//! drivers, topics between them. Times are simulated: all processes run at once, as on a computer
//! with enough cores. The extractor must find exactly the graph that ran, its bounds must hold for
//! every window that was run, and its chain latencies must be those of the messages.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::prelude::*;
use takt_ros::event::{Event, Handle, Kind};

use super::script::{MS, check};
use crate::extract::startup::SETTLED_NS;
use crate::{CallbackKind, ChainSpec, Extractor, Options, Reorder};

/// Queue depth of subscriptions.
const DEPTH: usize = 3;
/// From publication to arrival.
const TRANSPORT_NS: u64 = 1000;

#[derive(Debug, Clone)]
struct Random {
    /// Period in ms and topic, of drivers.
    drivers: Vec<(u64, usize)>,
    /// Process, period in ms, cost in µs, topics.
    timers: Vec<(usize, u64, u64, Vec<usize>)>,
    /// Process, topic, cost in µs, topics published (only greater ones: no cycles), in every
    /// how-many-eth activation.
    subscriptions: Vec<(usize, usize, u64, Vec<usize>, u64)>,
}

const TOPICS: usize = 6;
const PROCESSES: usize = 4;

fn systems() -> impl Strategy<Value = Random> {
    let topics =
        || prop::collection::btree_set(0..TOPICS, 0..3).prop_map(|set| set.into_iter().collect::<Vec<_>>());
    let drivers = prop::collection::vec((5u64..60, 0..TOPICS), 0..3);
    let timers = prop::collection::vec((0..PROCESSES, 5u64..50, 50u64..3000, topics()), 1..5);
    let subscriptions =
        prop::collection::vec((0..PROCESSES, 0..TOPICS, 50u64..4000, topics(), 1u64..4), 1..8);
    (drivers, timers, subscriptions).prop_map(|(drivers, timers, mut subscriptions)| {
        for (_, topic, _, out, _) in &mut subscriptions {
            out.retain(|to| to > topic);
        }
        Random { drivers, timers, subscriptions }
    })
}

#[derive(Debug)]
struct Runner {
    process: usize,
    timer: Option<(u64, u64)>,
    topic: Option<usize>,
    cost_ns: u64,
    publishes: Vec<usize>,
    every: u64,
    handle: Handle,
    name: String,
    /// What waits: stamp, publication, origins by first callback.
    queue: VecDeque<(i64, u64, Origins)>,
    activations: u64,
    costs: Vec<u64>,
    arrivals: Vec<u64>,
    published: BTreeSet<usize>,
}

/// When each first callback of this message's history was released.
type Origins = BTreeMap<usize, u64>;

struct World {
    events: Vec<Event>,
    cpu: Vec<u64>,
    stamp: i64,
    runners: Vec<Runner>,
    /// By first and last callback: latencies of all ends.
    latencies: BTreeMap<(usize, usize), Vec<u64>>,
}

impl World {
    fn emit(&mut self, at_ns: u64, process: usize, tid: u32, kind: Kind) {
        let cpu_ns = Some(self.cpu[process]);
        self.events.push(Event { at_ns, cpu_ns, pid: process as u32 + 1, tid, kind });
    }

    fn publish(&mut self, at_ns: u64, process: usize, tid: u32, who: u64, topic: usize, origins: &Origins) {
        self.stamp += 1;
        let publisher = publisher(who, topic);
        self.emit(at_ns, process, tid, Kind::RclPublish { publisher, message: 1 });
        let source_ns = Some(self.stamp);
        self.emit(
            at_ns,
            process,
            tid,
            Kind::RmwPublish { rmw_publisher: publisher + 1, message: 1, source_ns },
        );
        for runner in &mut self.runners {
            if runner.topic == Some(topic) {
                if runner.queue.len() == DEPTH {
                    runner.queue.pop_front();
                }
                runner.queue.push_back((self.stamp, at_ns, origins.clone()));
                runner.arrivals.push(at_ns);
            }
        }
    }
}

fn publisher(who: u64, topic: usize) -> Handle {
    0x10_0000 + who * 0x100 + topic as u64 * 2
}

fn build(system: &Random) -> World {
    let cpu = vec![0; PROCESSES + system.drivers.len()];
    let mut world = World { events: vec![], cpu, stamp: 1, runners: vec![], latencies: BTreeMap::new() };
    let start = 500 * MS;
    for process in 0..PROCESSES + system.drivers.len() {
        let kind = Kind::NodeInit { node: 1, name: format!("n{process}").into(), namespace: "/".into() };
        world.emit(start, process, process as u32 + 1, kind);
    }
    let mut duplicates: BTreeMap<String, usize> = BTreeMap::new();
    let mut unique = |name: String| {
        let count = duplicates.entry(name.clone()).or_default();
        *count += 1;
        if *count == 1 { name } else { format!("{name} ({count})") }
    };
    for (process, period, cost, topics) in &system.timers {
        let handle = 0x1000 + world.runners.len() as u64 * 0x10;
        let tid = *process as u32 + 1;
        world.emit(
            start,
            *process,
            tid,
            Kind::TimerInit { timer: handle + 1, period_ns: (period * MS) as i64 },
        );
        world.emit(start, *process, tid, Kind::TimerCallback { timer: handle + 1, callback: handle });
        world.emit(start, *process, tid, Kind::TimerNode { timer: handle + 1, node: 1 });
        let name = unique(format!("/n{process} timer {period}ms"));
        let publishes = topics.clone();
        let timer = Some((period * MS, start + period * MS));
        world.runners.push(runner(*process, handle, name, cost * 1000, publishes, 1, timer, None));
    }
    for (process, topic, cost, topics, every) in &system.subscriptions {
        let handle = 0x1000 + world.runners.len() as u64 * 0x10;
        let tid = *process as u32 + 1;
        let (subscription, rmw_subscription, object) = (handle + 1, handle + 2, handle + 3);
        let name = format!("/t{topic}").as_str().into();
        world.emit(
            start,
            *process,
            tid,
            Kind::SubscriptionInit {
                subscription,
                node: 1,
                rmw_subscription,
                topic: name,
                depth: DEPTH as u64,
            },
        );
        world.emit(start, *process, tid, Kind::SubscriptionObject { subscription, object });
        world.emit(start, *process, tid, Kind::SubscriptionCallback { object, callback: handle });
        let name = unique(format!("/n{process} subscription /t{topic}"));
        world.runners.push(runner(
            *process,
            handle,
            name,
            cost * 1000,
            topics.clone(),
            *every,
            None,
            Some(*topic),
        ));
    }
    let publishers: Vec<(usize, u64, Vec<usize>)> = world
        .runners
        .iter()
        .enumerate()
        .map(|(i, r)| (r.process, i as u64, r.publishes.clone()))
        .chain(system.drivers.iter().enumerate().map(|(i, d)| (PROCESSES + i, 100 + i as u64, vec![d.1])))
        .collect();
    for (process, who, topics) in publishers {
        for topic in topics {
            let (publisher, name) = (publisher(who, topic), format!("/t{topic}").as_str().into());
            let kind = Kind::PublisherInit {
                publisher,
                node: 1,
                rmw_publisher: publisher + 1,
                topic: name,
                depth: 10,
            };
            world.emit(start, process, process as u32 + 1, kind);
        }
    }
    world
}

#[allow(clippy::too_many_arguments)]
fn runner(
    process: usize,
    handle: Handle,
    name: String,
    cost_ns: u64,
    publishes: Vec<usize>,
    every: u64,
    timer: Option<(u64, u64)>,
    topic: Option<usize>,
) -> Runner {
    Runner {
        process,
        timer,
        topic,
        cost_ns,
        publishes,
        every,
        handle,
        name,
        queue: VecDeque::new(),
        activations: 0,
        costs: vec![],
        arrivals: vec![],
        published: BTreeSet::new(),
    }
}

/// What a process is about to do.
#[derive(Clone)]
enum Next {
    Idle,
    /// Ends at this moment; the runner, and the origins of its message.
    Ends(u64, usize, Origins),
}

// Processes are numbers here, and index several arrays.
#[allow(clippy::needless_range_loop)]
fn run(system: &Random, until_ns: u64) -> World {
    let mut world = build(system);
    let mut doing = vec![Next::Idle; PROCESSES];
    let mut driver_next: Vec<u64> = system.drivers.iter().map(|d| 600 * MS + d.0 * MS).collect();
    let mut sampled: Vec<VecDeque<usize>> = vec![VecDeque::new(); PROCESSES];
    loop {
        // The next moment at which anything happens.
        let ends = doing.iter().filter_map(|d| match d {
            Next::Ends(at, ..) => Some(*at),
            Next::Idle => None,
        });
        let idle = |r: &Runner| matches!(doing[r.process], Next::Idle);
        let timers = world.runners.iter().filter(|r| idle(r)).filter_map(|r| r.timer.map(|t| t.1));
        let messages = world.runners.iter().filter(|r| idle(r)).filter_map(|r| r.queue.front());
        let arriving = messages.map(|&(_, published_ns, _)| published_ns + TRANSPORT_NS);
        let drivers = driver_next.iter().copied();
        let Some(now) = ends.chain(timers).chain(arriving).chain(drivers).min() else { break };
        if now > until_ns {
            break;
        }
        for (i, driver) in system.drivers.iter().enumerate() {
            if driver_next[i] == now {
                let process = PROCESSES + i;
                world.cpu[process] += 100_000;
                world.publish(now, process, 900 + i as u32, 100 + i as u64, driver.1, &Origins::new());
                driver_next[i] += driver.0 * MS;
            }
        }
        for process in 0..PROCESSES {
            if let Next::Ends(at, index, origins) = doing[process].clone()
                && at == now
            {
                let tid = process as u32 + 1;
                world.cpu[process] += world.runners[index].cost_ns;
                if world.runners[index].activations.is_multiple_of(world.runners[index].every) {
                    for topic in world.runners[index].publishes.clone() {
                        world.runners[index].published.insert(topic);
                        world.publish(now, process, tid, index as u64, topic, &origins);
                    }
                }
                let callback = world.runners[index].handle;
                world.emit(now, process, tid, Kind::CallbackEnd { callback });
                let cost_ns = world.runners[index].cost_ns;
                world.runners[index].costs.push(cost_ns);
                for (&first, &released_ns) in &origins {
                    world.latencies.entry((first, index)).or_default().push(now - released_ns);
                }
                doing[process] = Next::Idle;
            }
        }
        for process in 0..PROCESSES {
            if !matches!(doing[process], Next::Idle) {
                continue;
            }
            let due = |r: &Runner| {
                let arrived = |message: &(i64, u64, Origins)| message.1 + TRANSPORT_NS <= now;
                r.process == process
                    && (r.timer.is_some_and(|t| t.1 <= now) || r.queue.front().is_some_and(arrived))
            };
            if sampled[process].is_empty() {
                // A new wait set: timers first.
                let (timers, others): (Vec<usize>, Vec<usize>) = (0..world.runners.len())
                    .filter(|&i| due(&world.runners[i]))
                    .partition(|&i| world.runners[i].timer.is_some());
                sampled[process].extend(timers.into_iter().chain(others));
            }
            let Some(index) = sampled[process].pop_front() else { continue };
            let tid = process as u32 + 1;
            world.emit(now, process, tid, Kind::ExecutorNextReady);
            let (mut origins, mut released_ns) = (Origins::new(), now);
            if let Some((period_ns, due_ns)) = world.runners[index].timer {
                released_ns = due_ns;
                let mut next = due_ns + period_ns;
                while next < now {
                    next += period_ns;
                }
                world.runners[index].timer = Some((period_ns, next));
            } else if let Some((stamp, published_ns, of)) = world.runners[index].queue.pop_front() {
                let rmw_subscription = world.runners[index].handle + 2;
                let kind = Kind::RmwTake { rmw_subscription, message: 2, source_ns: stamp, taken: true };
                world.emit(now, process, tid, kind);
                (origins, released_ns) = (of, published_ns);
            }
            origins.insert(index, released_ns);
            let runner = &mut world.runners[index];
            runner.activations += 1;
            let (callback, ends_ns) = (runner.handle, now + runner.cost_ns);
            world.emit(now, process, tid, Kind::CallbackStart { callback, intra_process: false });
            doing[process] = Next::Ends(ends_ns, index, origins);
        }
    }
    world
}

/// A path through the graph, if there is exactly one from `first` to `last`: then every message
/// between them went that way.
fn only_path(world: &World, first: usize, last: usize) -> Option<Vec<usize>> {
    let mut found: Vec<Vec<usize>> = Vec::new();
    let mut work = vec![vec![first]];
    while let Some(path) = work.pop() {
        if path.last() == Some(&last) {
            found.push(path.clone());
        }
        if found.len() > 1 {
            return None;
        }
        let from = &world.runners[path[path.len() - 1]];
        for topic in &from.published {
            for (to, runner) in world.runners.iter().enumerate() {
                if runner.topic == Some(*topic) {
                    work.push(path.iter().copied().chain([to]).collect());
                }
            }
        }
    }
    found.pop()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn what_ran_is_found_and_bounded(system in systems()) {
        let world = run(&system, 2_400 * MS);
        let ran: Vec<usize> = (0..world.runners.len()).filter(|&i| world.runners[i].activations > 0).collect();
        let mut extractor = Extractor::new(Options::default());
        let mut watches = Vec::new();
        for &(first, last) in world.latencies.keys() {
            if let Some(path) = only_path(&world, first, last) {
                let path = path.iter().map(|&i| world.runners[i].name.clone()).collect();
                watches.push(((first, last), extractor.watch(ChainSpec { name: String::new(), path, goal_ns: None })));
            }
        }
        // As a source hands them out: thread by thread, in polls.
        let mut reorder = Reorder::new(0);
        let mut events = world.events.clone();
        events.sort_by_key(|event| (event.at_ns / (100 * MS), event.tid));
        for event in events {
            reorder.push(event);
        }
        reorder.finish(|event| extractor.event(event));
        let model = extractor.snapshot(2_400 * MS);
        check(&model);

        // Callbacks, edges, executors.
        let named = |name: &str| model.callbacks.iter().find(|c| c.name == name);
        for &i in &ran {
            let runner = &world.runners[i];
            let callback = named(&runner.name);
            prop_assert!(callback.is_some(), "{} in {:?}", runner.name, model.callbacks.iter().map(|c| &c.name).collect::<Vec<_>>());
            let callback = callback.unwrap();
            let topics: BTreeSet<String> = callback.publishes.iter().map(|t| model.topics[t.0].name.clone()).collect();
            let expected: BTreeSet<String> = runner.published.iter().map(|t| format!("/t{t}")).collect();
            prop_assert_eq!(topics, expected);
            let executor = &model.executors[callback.executor.0];
            prop_assert_eq!(executor.threads.len(), 1);
            prop_assert_eq!(model.threads[executor.threads[0].0].tid, runner.process as u32 + 1);
            match (callback.kind, runner.timer, runner.topic) {
                (CallbackKind::Timer { period_ns }, Some((declared_ns, _)), None) => prop_assert_eq!(period_ns, declared_ns),
                (CallbackKind::Subscription { topic }, None, Some(number)) => {
                    prop_assert_eq!(&model.topics[topic.0].name, &format!("/t{number}"));
                    // Arrivals are publications, whether they were taken or fell out of the queue.
                    prop_assert_eq!(callback.arrivals.seen, runner.arrivals.len() as u64);
                    // All processes register at the beginning; until then everything is start-up.
                    let steady: Vec<u64> =
                        runner.arrivals.iter().copied().filter(|&at_ns| at_ns >= 500 * MS + SETTLED_NS).collect();
                    let seen = if steady.is_empty() { &runner.arrivals } else { &steady };
                    for (n, least_ns) in callback.arrivals.least_span_ns.iter().enumerate() {
                        for window in seen.windows(n + 2) {
                            prop_assert!(window[n + 1] - window[0] >= *least_ns);
                        }
                    }
                }
                other => prop_assert!(false, "{other:?}"),
            }
            prop_assert_eq!(callback.cost.seen, runner.costs.len() as u64);
            for (n, most_ns) in callback.cost.most_ns.iter().enumerate() {
                prop_assert_eq!(*most_ns, runner.costs.windows(n + 1).map(|w| w.iter().sum::<u64>()).max().unwrap());
            }
        }
        // And nothing else: drivers are sources, and whoever has not run is there without
        // activations.
        for callback in &model.callbacks {
            if callback.kind == CallbackKind::Source {
                prop_assert!(callback.name.contains(" source /t"));
            } else if !ran.iter().any(|&i| world.runners[i].name == callback.name) {
                prop_assert_eq!(callback.cost.seen, 0);
            }
        }
        // Every end of every chain, to the nanosecond.
        for ((first, last), watch) in watches {
            let stats = extractor.watched(watch).unwrap();
            let expected = &world.latencies[&(first, last)];
            prop_assert_eq!(stats.completions + stats.repeated, expected.len() as u64);
            let measured: Vec<u64> = extractor.watched_mut(watch).unwrap().drain().iter().map(|c| c.ended_ns - c.began_ns).collect();
            prop_assert_eq!(&measured, expected);
        }
    }
}

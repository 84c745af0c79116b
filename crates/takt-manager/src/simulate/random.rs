//! Random systems, the same for the same seed.

use takt_rt::random::SplitMix64;

use super::{SimExecutorKind, System, Trigger};

/// Features of random systems besides timers and subscriptions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Features {
    /// Several messages of one activation, and none of others.
    pub bursts: bool,
    /// Callbacks that suspend themselves.
    pub suspension: bool,
    /// Events executors and static ones.
    pub kinds: bool,
    /// Multi-threaded executors with groups.
    pub threads: bool,
    /// Joins, and messages that are lost or overwritten.
    pub joins: bool,
}

impl Features {
    /// Everything.
    pub const ALL: Self = Self { bursts: true, suspension: true, kinds: true, threads: true, joins: true };
}

/// A random system with these features on top.
#[must_use]
pub fn random_with(seed: u64, features: Features) -> System {
    let mut system = random_system(seed);
    let mut random = SplitMix64::new(seed ^ 0x5eed);
    let random = &mut random;
    system.early_messages = random.one_in(2);
    if features.joins && random.one_in(4) {
        system.lost_one_in = random.within(2, 20);
    }
    for number in 0..system.callbacks.len() {
        let source = system.executors[system.callbacks[number].executor].source;
        let callback = &mut system.callbacks[number];
        if features.bursts && random.one_in(4) {
            let length = random.within(1, 6);
            callback.messages =
                (0..length).map(|i| if i == 0 { random.within(2, 5) } else { random.within(0, 1) }).collect();
        }
        if features.suspension && !source && random.one_in(5) {
            let length = random.within(1, 3);
            let some = |random: &mut SplitMix64| random.within(0, 2);
            callback.suspends_ns = (0..length)
                .map(|i| {
                    (0..some(random) + u64::from(i == 0)).map(|_| random.within(10_000, 5_000_000)).collect()
                })
                .collect();
        }
        if features.joins && random.one_in(4) && matches!(callback.trigger, Trigger::Topic(_)) {
            callback.depth = usize::try_from(random.within(1, 5)).unwrap_or(1);
        }
    }
    for number in 0..system.executors.len() {
        if system.executors[number].source {
            continue;
        }
        let callbacks = system.executors[number].callbacks.clone();
        let subscriptions: Vec<usize> = callbacks
            .iter()
            .copied()
            .filter(|c| matches!(system.callbacks[*c].trigger, Trigger::Topic(_)))
            .collect();
        if let (true, [first, second, ..]) = (features.joins && random.one_in(2), subscriptions.as_slice()) {
            system.callbacks[*second].join = Some(*first);
        }
        if features.kinds && random.one_in(3) {
            system.executors[number].kind = if random.one_in(3) {
                SimExecutorKind::Static { rounds: number % 2 == 1 }
            } else {
                SimExecutorKind::Events
            };
        }
        if features.threads && random.one_in(3) {
            system.executors[number].kind =
                SimExecutorKind::Threads(usize::try_from(random.within(2, 3)).unwrap_or(2));
            system.executors[number].reentrant = (0..random.within(1, 3)).map(|_| random.one_in(2)).collect();
            let groups = system.executors[number].reentrant.len() as u64;
            for callback in callbacks {
                system.callbacks[callback].group = usize::try_from(random.within(0, groups - 1)).ok();
            }
        }
    }
    system
}

/// A few executors and sources with timers, subscriptions, fan-out, fan-in, bursts, and costs that
/// vary. Never cyclic.
#[must_use]
pub fn random_system(seed: u64) -> System {
    let mut random = SplitMix64::new(seed);
    let mut system = System { eager_timers: random.one_in(4), ..System::default() };
    let executors = random.within(1, 4);
    let sources = random.within(0, 2);
    for number in 0..sources {
        let executor = system.executor(&format!("source{number}"), true);
        let topic = system.topic(&format!("/s{number}"));
        let trigger = periodic(&mut random, true);
        let costs = costs(&mut random, 2_000_000);
        system.callback(executor, &format!("source{number}"), trigger, costs, vec![topic]);
    }
    for number in 0..executors {
        let executor = system.executor(&format!("node{number}"), false);
        for timer in 0..random.within(u64::from(sources == 0 && number == 0), 2) {
            let topics = publishes(&mut random, &mut system, number, timer);
            let trigger = periodic(&mut random, false);
            let costs = costs(&mut random, 4_000_000);
            system.callback(executor, &format!("node{number} timer{timer}"), trigger, costs, topics);
        }
        for subscription in 0..random.within(0, 4) {
            // Only topics that exist are subscribed to, and only publishers that come later add new
            // ones: no cycle.
            let known = system.topics.len() as u64;
            if known == 0 {
                break;
            }
            let trigger = Trigger::Topic(usize::try_from(random.within(0, known - 1)).unwrap_or(0));
            let topics = publishes(&mut random, &mut system, number, 10 + subscription);
            let costs = costs(&mut random, 3_000_000);
            system.callback(executor, &format!("node{number} sub{subscription}"), trigger, costs, topics);
        }
    }
    fan_in(&mut random, &mut system);
    system
}

fn periodic(random: &mut SplitMix64, source: bool) -> Trigger {
    let period_ns = random.within(5, 60) * 1_000_000 + random.within(0, 999_999);
    // Beyond a period, releases of a device come in bursts.
    let jitter_ns = if source && random.one_in(2) { random.within(0, 2 * period_ns) } else { 0 };
    Trigger::Periodic { period_ns, jitter_ns }
}

fn costs(random: &mut SplitMix64, most: u64) -> Vec<u64> {
    let usual = random.within(10_000, most);
    let length = random.within(1, 8);
    (0..length).map(|i| if i == 0 { usual } else { random.within(usual / 20, usual) }).collect()
}

fn publishes(random: &mut SplitMix64, system: &mut System, node: u64, number: u64) -> Vec<usize> {
    if random.one_in(3) { Vec::new() } else { vec![system.topic(&format!("/n{node}_{number}"))] }
}

/// Some callbacks publish to a second topic, all of whose subscribers come after them.
fn fan_in(random: &mut SplitMix64, system: &mut System) {
    for number in 0..system.callbacks.len() {
        if !random.one_in(4) {
            continue;
        }
        let topic = usize::try_from(random.within(0, system.topics.len() as u64)).unwrap_or(0);
        let later = |c: usize| system.callbacks[c].trigger != Trigger::Topic(topic) || c > number;
        if topic < system.topics.len()
            && (0..system.callbacks.len()).all(later)
            && !system.callbacks[number].publishes.contains(&topic)
        {
            system.callbacks[number].publishes.push(topic);
        }
    }
}

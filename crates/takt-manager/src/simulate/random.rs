//! Random systems, the same for the same seed.

use super::{System, Trigger};

/// SplitMix64 (Steele, Lea and Flood, 2014): small, and good enough to choose test cases.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// From a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From `from` to `to`, both included.
    pub fn within(&mut self, from: u64, to: u64) -> u64 {
        from + self.bits() % (to - from + 1)
    }

    /// One time in so many.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.bits().is_multiple_of(times)
    }
}

/// A few executors and sources with timers, subscriptions, fan-out, fan-in, bursts, and costs that vary. Never cyclic.
#[must_use]
pub fn random_system(seed: u64) -> System {
    let mut random = Random::new(seed);
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
            // Only topics that exist are subscribed to, and only publishers that come later add new ones: no cycle.
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

fn periodic(random: &mut Random, source: bool) -> Trigger {
    let period_ns = random.within(5, 60) * 1_000_000 + random.within(0, 999_999);
    // Beyond a period, releases of a device come in bursts.
    let jitter_ns = if source && random.one_in(2) { random.within(0, 2 * period_ns) } else { 0 };
    Trigger::Periodic { period_ns, jitter_ns }
}

fn costs(random: &mut Random, most: u64) -> Vec<u64> {
    let usual = random.within(10_000, most);
    let length = random.within(1, 8);
    (0..length).map(|i| if i == 0 { usual } else { random.within(usual / 20, usual) }).collect()
}

fn publishes(random: &mut Random, system: &mut System, node: u64, number: u64) -> Vec<usize> {
    if random.one_in(3) { Vec::new() } else { vec![system.topic(&format!("/n{node}_{number}"))] }
}

/// Some callbacks publish to a second topic, all of whose subscribers come after them.
fn fan_in(random: &mut Random, system: &mut System) {
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

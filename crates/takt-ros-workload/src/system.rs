//! Description of the processes: nodes, their callbacks, their costs in each load phase.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use takt_rt::random::SplitMix64;

/// The mobile robot of *ROS-Llama*, section VI, with the seven chains of its Table I and the
/// paper's load; costs are those of its machine ([`System::fitted`]).
pub const TURTLEBOT: &str = include_str!("turtlebot.toml");
/// The same robot with a heavier load than the paper's: eight trackers, seven of them in no chain.
pub const EIGHT_TRACKERS: &str = include_str!("eight-trackers.toml");

/// A system of nodes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct System {
    /// Names of the load phases, in order; costs may differ between them. The run's time is divided
    /// equally.
    pub phases: Vec<String>,
    /// Seed of the costs' randomness; the same seed gives every callback the same sequence of
    /// costs.
    #[serde(default = "seed")]
    pub seed: u64,
    /// Cores of the machine that the costs are of. On fewer cores they shrink in proportion
    /// ([`System::fitted`]). None: costs are as written on any machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<u32>,
    /// The nodes, one process each.
    pub node: Vec<NodeSpec>,
}

fn seed() -> u64 {
    1
}

/// One node: one process with one executor thread.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeSpec {
    /// Its name, without the leading slash.
    pub name: String,
    /// Timers, in the order of registration, which is the executor's priority order.
    #[serde(default)]
    pub timer: Vec<TimerSpec>,
    /// Subscriptions, likewise.
    #[serde(default)]
    pub subscription: Vec<SubscriptionSpec>,
    /// Event sources: threads that publish without callbacks.
    #[serde(default)]
    pub source: Vec<SourceSpec>,
}

/// A timer callback.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimerSpec {
    /// Its function's name.
    pub name: String,
    pub period_ms: f64,
    /// Its CPU time.
    pub cost: Cost,
    /// Topics that it publishes to when it ends.
    #[serde(default)]
    pub publishes: Vec<String>,
}

/// A subscription callback.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SubscriptionSpec {
    pub topic: String,
    /// Its function's name.
    pub name: String,
    /// Its CPU time.
    pub cost: Cost,
    /// Topics that it publishes to when it ends.
    #[serde(default)]
    pub publishes: Vec<String>,
    /// A message filter: publishes only when the node has received a message on this topic since it
    /// last published.
    #[serde(default)]
    pub needs: Option<String>,
    /// Queue depth (KEEP_LAST); older messages are overwritten.
    #[serde(default = "depth")]
    pub depth: usize,
}

fn depth() -> usize {
    // ROS 2's default for sensor data and most examples.
    10
}

/// A thread that publishes in a loop of its own, as a driver does that reads a device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceSpec {
    /// Its name, which its thread bears (15 bytes).
    pub name: String,
    /// Time between readings of the device.
    pub period_ms: f64,
    /// CPU time for each reading.
    pub cost: Cost,
    /// Topics that it publishes to.
    pub publishes: Vec<String>,
    /// Every so many readings (0: never) are incomplete and are not published, as a laser's scans
    /// that the hardware transmits only in part.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub incomplete_every: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(value: &u64) -> bool {
    *value == 0
}

impl SourceSpec {
    /// Whether the reading number `index` is incomplete.
    #[must_use]
    pub fn is_incomplete(&self, index: u64) -> bool {
        self.incomplete_every > 0 && index % self.incomplete_every == self.incomplete_every - 1
    }
}

/// CPU time of an activation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cost {
    /// Usual cost, in each phase; a single value holds for all.
    pub ms: Vec<f64>,
    /// Spread: uniformly up to this share more.
    #[serde(default)]
    pub jitter: f64,
    /// Expensive activations: every so many (0: never) ...
    #[serde(default)]
    pub peak_every: u64,
    /// ... takes this many times the usual cost. Peaks far apart are what execution-time curves are
    /// for (section V.b).
    #[serde(default = "one")]
    pub peak_factor: f64,
    /// Shrinks on machines with fewer cores ([`System::fitted`]). False for a thread that is to
    /// fill a core of any machine.
    #[serde(default = "yes")]
    pub scales: bool,
}

fn one() -> f64 {
    1.0
}

fn yes() -> bool {
    true
}

/// One callback or source of a system.
#[derive(Debug, Clone, Copy)]
pub enum Activity<'a> {
    Timer(&'a TimerSpec),
    Subscription(&'a SubscriptionSpec),
    Source(&'a SourceSpec),
}

impl<'a> Activity<'a> {
    #[must_use]
    pub fn name(&self) -> &'a str {
        match self {
            Self::Timer(timer) => &timer.name,
            Self::Subscription(subscription) => &subscription.name,
            Self::Source(source) => &source.name,
        }
    }

    #[must_use]
    pub fn publishes(&self) -> &'a [String] {
        match self {
            Self::Timer(timer) => &timer.publishes,
            Self::Subscription(subscription) => &subscription.publishes,
            Self::Source(source) => &source.publishes,
        }
    }

    /// From one release to the next; `None`: messages release it.
    #[must_use]
    pub fn period_ns(&self) -> Option<u64> {
        match self {
            Self::Timer(timer) => Some(period_ns(timer.period_ms)),
            Self::Subscription(_) => None,
            Self::Source(source) => Some(period_ns(source.period_ms)),
        }
    }
}

/// A period, which validation bounds to an hour.
pub(crate) fn period_ns(period_ms: f64) -> u64 {
    (period_ms * 1e6) as u64
}

/// Fault of a system.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// Not TOML, an unknown key, or a value of the wrong kind.
    #[error("the system's description cannot be read: {0}")]
    Syntax(#[from] toml::de::Error),
    /// A value that makes no sense.
    #[error("{place}: {what}")]
    Value {
        place: String,
        /// The expected value, and the one found.
        what: String,
    },
}

impl System {
    /// Reads and checks a description.
    pub fn parse(text: &str) -> Result<Self, Problem> {
        let system: Self = toml::from_str(text)?;
        system.validate()?;
        Ok(system)
    }

    /// The robot of the paper.
    #[must_use]
    pub fn turtlebot() -> Self {
        Self::shipped(TURTLEBOT)
    }

    /// The same robot under the heavier load, [`EIGHT_TRACKERS`].
    #[must_use]
    pub fn eight_trackers() -> Self {
        Self::shipped(EIGHT_TRACKERS)
    }

    fn shipped(text: &str) -> Self {
        // The shipped texts are read by a test.
        Self::parse(text).unwrap_or(Self { phases: Vec::new(), seed: 1, cores: None, node: Vec::new() })
    }

    /// The system as a machine with so many cores runs it, and the factor. Costs are multiplied by
    /// this machine's cores through those of the machine that they are of, at most by 1: each
    /// callback then takes the same share of the machine. Rates and goals stay as they are.
    #[must_use]
    pub fn fitted(&self, cores: usize) -> (Self, f64) {
        let Some(of) = self.cores else { return (self.clone(), 1.0) };
        let factor = (cores.max(1) as f64 / f64::from(of.max(1))).min(1.0);
        let mut system = Self { cores: None, ..self.clone() };
        for node in &mut system.node {
            let costs = (node.timer.iter_mut().map(|timer| &mut timer.cost))
                .chain(node.subscription.iter_mut().map(|subscription| &mut subscription.cost))
                .chain(node.source.iter_mut().map(|source| &mut source.cost));
            for cost in costs.filter(|cost| cost.scales) {
                cost.ms.iter_mut().for_each(|ms| *ms *= factor);
            }
        }
        (system, factor)
    }

    /// Every callback and source, in the order of the nodes, and of each node its timers,
    /// subscriptions and sources. Its place is the number that its messages and stamps bear.
    pub fn activities(&self) -> impl Iterator<Item = (&NodeSpec, Activity<'_>)> {
        self.node.iter().flat_map(|node| {
            (node.timer.iter().map(Activity::Timer))
                .chain(node.subscription.iter().map(Activity::Subscription))
                .chain(node.source.iter().map(Activity::Source))
                .map(move |activity| (node, activity))
        })
    }

    /// The number of a node's first activity.
    #[must_use]
    pub fn first_activity(&self, node: &str) -> u16 {
        let before = self.activities().take_while(|(of, _)| of.name != node).count();
        // Validation bounds it.
        u16::try_from(before).unwrap_or(u16::MAX)
    }

    #[must_use]
    pub fn node(&self, name: &str) -> Option<&NodeSpec> {
        self.node.iter().find(|node| node.name == name)
    }

    #[must_use]
    pub fn topics(&self) -> BTreeSet<&str> {
        let mut topics = BTreeSet::new();
        for node in &self.node {
            topics.extend(node.timer.iter().flat_map(|timer| &timer.publishes).map(String::as_str));
            topics.extend(node.source.iter().flat_map(|source| &source.publishes).map(String::as_str));
            for subscription in &node.subscription {
                topics.insert(&subscription.topic);
                topics.extend(subscription.publishes.iter().map(String::as_str));
            }
        }
        topics
    }

    /// Checks what no type does.
    ///
    /// # Errors
    ///
    /// [`Problem::Value`].
    pub fn validate(&self) -> Result<(), Problem> {
        let wrong = |place: &str, what: String| Err(Problem::Value { place: place.to_owned(), what });
        if self.phases.is_empty() {
            return wrong("phases", "at least one is needed".to_owned());
        }
        if self.node.is_empty() {
            return wrong("node", "a system needs at least one".to_owned());
        }
        if self.cores == Some(0) {
            return wrong("cores", "a machine has at least 1".to_owned());
        }
        let activities = self.activities().count();
        if activities >= usize::from(u16::MAX) {
            return wrong(
                "node",
                format!("a system has at most {} callbacks, not {activities}", u16::MAX - 1),
            );
        }
        let mut names = BTreeSet::new();
        for node in &self.node {
            let well =
                !node.name.is_empty() && node.name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            if !well {
                return wrong(
                    &node.name,
                    "a node's name is made of letters, digits and underscores".to_owned(),
                );
            }
            if !names.insert(&node.name) {
                return wrong(&node.name, "two nodes have this name".to_owned());
            }
            let periods = node.timer.iter().map(|timer| (&timer.name, timer.period_ms));
            for (name, period_ms) in
                periods.chain(node.source.iter().map(|source| (&source.name, source.period_ms)))
            {
                if !(period_ms.is_finite() && (0.1..=3_600_000.0).contains(&period_ms)) {
                    return wrong(
                        &format!("{}/{name}", node.name),
                        format!("a period is from 0.1 ms to an hour, not {period_ms} ms"),
                    );
                }
            }
            let costs = (node.timer.iter().map(|timer| (&timer.name, &timer.cost)))
                .chain(node.subscription.iter().map(|subscription| (&subscription.name, &subscription.cost)))
                .chain(node.source.iter().map(|source| (&source.name, &source.cost)));
            for (name, cost) in costs {
                if let Err(what) = cost.check(self.phases.len()) {
                    return wrong(&format!("{}/{name}", node.name), what);
                }
            }
            for subscription in &node.subscription {
                if subscription.depth == 0 {
                    return wrong(
                        &format!("{}/{}", node.name, subscription.name),
                        "depth is at least 1".to_owned(),
                    );
                }
                if let Some(topic) = &subscription.needs
                    && !node.subscription.iter().any(|other| &other.topic == topic)
                {
                    return wrong(
                        &format!("{}/{}", node.name, subscription.name),
                        format!("it needs {topic}, to which the node does not subscribe"),
                    );
                }
            }
        }
        for topic in self.topics() {
            let well = topic.strip_prefix('/').is_some_and(|rest| {
                !rest.is_empty()
                    && rest.split('/').all(|part| {
                        !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
                    })
            });
            if !well {
                return wrong(
                    topic,
                    "a topic looks like /name or /name/name, of letters, digits and underscores".to_owned(),
                );
            }
        }
        Ok(())
    }
}

impl Cost {
    fn check(&self, phases: usize) -> Result<(), String> {
        if self.ms.len() != 1 && self.ms.len() != phases {
            return Err(format!(
                "ms has one value, or one for each of {phases} phases, not {}",
                self.ms.len()
            ));
        }
        if !self.ms.iter().all(|ms| (0.0..=60_000.0).contains(ms)) {
            return Err(format!("ms is from 0 to 60000, not {:?}", self.ms));
        }
        if !(0.0..=10.0).contains(&self.jitter) {
            return Err(format!("jitter is from 0 to 10 (shares of the usual cost), not {}", self.jitter));
        }
        if !(0.0..=1000.0).contains(&self.peak_factor) {
            return Err(format!("peak_factor is from 0 to 1000, not {}", self.peak_factor));
        }
        Ok(())
    }

    /// CPU time of the activation number `index` in a phase; `random` is from 0 up to, without, 1.
    #[must_use]
    pub fn ns(&self, phase: usize, index: u64, random: f64) -> u64 {
        let usual = self.ms.get(phase).or(self.ms.last()).copied().unwrap_or(0.0);
        let peak = self.peak_every > 0 && index % self.peak_every == self.peak_every - 1;
        let ms = usual * (1.0 + self.jitter * random) * if peak { self.peak_factor } else { 1.0 };
        // Saturating conversion of a value that validation bounds.
        (ms * 1e6) as u64
    }
}

/// Numbers of a callback of its own: costs are the same in every run of a seed.
#[must_use]
pub fn random(seed: u64, name: &str) -> SplitMix64 {
    // FNV-1a, so that names differ early.
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    SplitMix64::new(seed ^ hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_robots_have_what_the_papers_table_names() {
        for text in [TURTLEBOT, EIGHT_TRACKERS] {
            let system = System::parse(text).unwrap();
            assert_eq!(system.phases.len(), 3);
            for topic in ["/cmd_vel", "/odom", "/scan", "/tf", "/rgb"] {
                assert!(system.topics().contains(topic), "{topic}");
            }
        }
        assert!(!System::turtlebot().node.is_empty());
        // The paper runs one tracker; the heavier load has another name.
        let trackers = |system: &System| {
            let takes = |node: &&NodeSpec| node.subscription.iter().any(|it| it.topic == "/rgb");
            system.node.iter().filter(takes).count()
        };
        assert_eq!((trackers(&System::turtlebot()), trackers(&System::eight_trackers())), (1, 8));
    }

    /// The paper's numbers on the load, from its text only: sections V.b, VI and VI.A.
    #[test]
    fn the_load_has_the_numbers_that_the_paper_publishes() {
        let system = System::turtlebot();
        assert_eq!(system.cores, Some(4));
        let of = |node: &str, name: &str| {
            let mut all = system.activities();
            all.find(|(of, activity)| of.name == node && activity.name() == name).unwrap().1
        };
        let period_ms = |node: &str, name: &str| of(node, name).period_ns().unwrap() as f64 / 1e6;
        assert_eq!(period_ms("turtlebot_driver", "heartbeat"), 100.0);
        assert_eq!(period_ms("turtlebot_driver", "odometry"), 50.0);
        assert_eq!(period_ms("controller_server", "compute_velocity"), 125.0);
        assert_eq!(period_ms("laser_driver", "laser-reader"), 200.0);
        assert_eq!(period_ms("camera", "frame-reader"), 990.0);
        let costs_ms = |node: &str, name: &str, phase: usize, count: u64| -> Vec<f64> {
            let activity = of(node, name);
            let cost = match activity {
                Activity::Timer(timer) => &timer.cost,
                Activity::Subscription(subscription) => &subscription.cost,
                Activity::Source(source) => &source.cost,
            };
            let mut random = random(system.seed, &format!("{node}/{name}"));
            (0..count).map(|index| cost.ns(phase, index, random.unit()) as f64 / 1e6).collect()
        };
        let worst =
            |all: &[f64], n: usize| all.windows(n).map(|row| row.iter().sum::<f64>()).fold(0.0, f64::max);
        // Fig. 2: 250 activations, at most 56 ms each and 122 ms for 40 in a row.
        let transform = costs_ms("amcl", "on_transform", 0, 250);
        let (one, forty) = (worst(&transform, 1), worst(&transform, 40));
        assert!((50.0..=56.0).contains(&one) && (110.0..=122.0).contains(&forty), "{one} {forty}");
        // Fig. 3: without load 4 % of the pilot's latencies exceed 80 ms, none exceeds 100 ms.
        let (plan, write) = (
            costs_ms("controller_server", "compute_velocity", 0, 4000),
            costs_ms("turtlebot_driver", "write_wheels", 0, 4000),
        );
        let latencies: Vec<f64> = plan.iter().zip(&write).map(|(plan, write)| plan + write).collect();
        let above = latencies.iter().filter(|ms| **ms > 80.0).count() as f64 / 4000.0;
        assert!((0.01..=0.05).contains(&above) && worst(&latencies, 1) < 100.0, "{above}");
        // The payload: from barely noticeable to more than every frame's period.
        let mean = |phase| costs_ms("tracker", "track", phase, 1000).iter().sum::<f64>() / 1000.0;
        assert!(mean(0) < 0.02 * 990.0 && mean(1) < 990.0 && mean(2) > 990.0);
    }

    #[test]
    fn costs_shrink_with_the_cores_and_those_that_fill_one_stay() {
        let system = System::turtlebot();
        let cost = |system: &System, node: &str| system.node(node).unwrap().subscription[0].cost.ms.clone();
        for (cores, factor) in [(1, 0.25), (2, 0.5), (4, 1.0), (64, 1.0), (0, 0.25)] {
            let (fitted, by) = system.fitted(cores);
            assert_eq!(by, factor, "{cores}");
            assert_eq!(cost(&fitted, "turtlebot_driver"), [4.0 * factor]);
            assert_eq!(cost(&fitted, "tracker"), cost(&system, "tracker"));
            // A fitted system is not fitted again.
            assert_eq!(fitted.fitted(1), (fitted.clone(), 1.0));
            fitted.validate().unwrap();
        }
        assert_eq!(System::eight_trackers().fitted(1), (System::eight_trackers(), 1.0));
        assert!(System::parse(&TURTLEBOT.replace("cores = 4", "cores = 0")).is_err());
    }

    #[test]
    fn activities_are_numbered_node_by_node() {
        let system = System::turtlebot();
        let names: Vec<&str> = system.activities().map(|(_, activity)| activity.name()).collect();
        assert_eq!(names[..4], ["heartbeat", "odometry", "write_wheels", "laser-reader"]);
        assert_eq!(
            (system.first_activity("turtlebot_driver"), system.first_activity("laser_driver")),
            (0, 3)
        );
        let source = SourceSpec {
            name: "laser".to_owned(),
            period_ms: 1.0,
            cost: system.node[0].timer[0].cost.clone(),
            publishes: Vec::new(),
            incomplete_every: 3,
        };
        let missing: Vec<u64> = (0..9).filter(|index| source.is_incomplete(*index)).collect();
        assert_eq!(missing, [2, 5, 8]);
        assert!(!SourceSpec { incomplete_every: 0, ..source }.is_incomplete(0));
    }

    #[test]
    fn mistakes_are_named() {
        let of =
            |from: &str, to: &str| System::parse(&TURTLEBOT.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(of("period_ms", "periode_ms").contains("periode_ms"));
        assert!(of("\"/cmd_vel\"", "\"cmd vel\"").contains("a topic looks like"));
        assert!(System::parse("phases = []\nnode = []").unwrap_err().to_string().contains("at least one"));
    }

    #[test]
    fn peaks_come_when_they_should_and_phases_change_the_cost() {
        let cost = Cost { ms: vec![1.0, 2.0], jitter: 0.5, peak_every: 4, peak_factor: 10.0, scales: true };
        let seen: Vec<u64> = (0..8).map(|index| cost.ns(0, index, 0.0)).collect();
        assert_eq!(seen, [1_000_000, 1_000_000, 1_000_000, 10_000_000].repeat(2));
        assert_eq!(cost.ns(1, 0, 0.0), 2_000_000);
        assert_eq!(cost.ns(7, 0, 0.0), 2_000_000, "after the last phase its costs stay");
        assert!(cost.ns(0, 0, 0.999) < 1_500_000);
        let mut a = random(1, "a");
        let (first, second) = (a.unit(), a.unit());
        assert!(first != second && (0.0..1.0).contains(&first));
        assert_ne!(first, random(1, "b").unit());
    }
}

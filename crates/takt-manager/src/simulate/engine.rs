//! The simulation itself.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::{Random, Supply, System, Trigger};

/// What was seen.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Observed {
    /// Per callback: longest time from activation to completion, and how many completed.
    pub responses: Vec<(u64, u64)>,
    /// Per path: longest time from the activation of the first callback to the completion of the last, and how many.
    pub latencies: Vec<(u64, u64)>,
}

/// Something that a tracer would have seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Traced {
    /// When.
    pub at_ns: u64,
    /// CPU time that the executor's thread had used.
    pub cpu_ns: u64,
    /// The executor.
    pub executor: usize,
    /// What.
    pub step: Traceable,
}

/// What a tracer sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Traceable {
    /// A callback starts, with the message that activated it.
    Start(usize, Option<i64>),
    /// A callback publishes to a topic.
    Publish(usize, usize, i64),
    /// A callback ends.
    End(usize),
    /// The executor found nothing to do.
    Wait,
}

/// One activation.
#[derive(Debug, Clone, Default)]
struct Instance {
    activated_ns: u64,
    message: Option<i64>,
    /// Paths that it is on: path, position, start of the first.
    on: Vec<(usize, usize, u64)>,
}

#[derive(Debug)]
struct Running {
    callback: usize,
    left_ns: u64,
    instance: Instance,
}

/// A hard constant-bandwidth server and the executor in it.
#[derive(Debug)]
struct Server {
    supply: Supply,
    left_ns: u64,
    deadline_ns: u64,
    throttled: bool,
    cpu_ns: u64,
    running: Option<Running>,
    /// The wait set: callbacks found ready at the last polling point and not yet served.
    ready: VecDeque<usize>,
    /// It waits for work.
    idle: bool,
}

/// A server without executor that always wants to run, to take what the others leave.
const HOG: usize = usize::MAX;

struct Engine<'a> {
    system: &'a System,
    paths: &'a [Vec<usize>],
    now_ns: u64,
    servers: Vec<Server>,
    pending: Vec<VecDeque<Instance>>,
    next_cost: Vec<usize>,
    releases: BinaryHeap<Reverse<(u64, usize)>>,
    /// Grid of the releases of each callback.
    grid_ns: Vec<u64>,
    random: Random,
    observed: Observed,
    messages: i64,
    trace: Vec<Traced>,
}

/// Runs `system` on reservations for `length_ns`, from random phases. The rest of every core, up to `capacity_share` (in percent),
/// is kept busy by others.
#[must_use]
pub fn simulate(
    system: &System,
    supplies: &[Supply],
    paths: &[Vec<usize>],
    length_ns: u64,
    capacity_percent: u64,
    seed: u64,
) -> Observed {
    traced(system, supplies, paths, length_ns, capacity_percent, seed).0
}

/// The same, with what a tracer would have recorded.
#[must_use]
pub fn traced(
    system: &System,
    supplies: &[Supply],
    paths: &[Vec<usize>],
    length_ns: u64,
    capacity_percent: u64,
    seed: u64,
) -> (Observed, Vec<Traced>) {
    let mut random = Random::new(seed);
    let mut servers: Vec<Server> = supplies.iter().map(|supply| server(*supply)).collect();
    hogs(&mut servers, capacity_percent, &mut random);
    let count = system.callbacks.len();
    let mut engine = Engine {
        system,
        paths,
        now_ns: 0,
        servers,
        pending: vec![VecDeque::new(); count],
        next_cost: system
            .callbacks
            .iter()
            .map(|c| usize::try_from(random.within(0, c.costs_ns.len() as u64 - 1)).unwrap_or(0))
            .collect(),
        releases: BinaryHeap::new(),
        grid_ns: vec![0; count],
        random,
        messages: 0,
        trace: Vec::new(),
        observed: Observed { responses: vec![(0, 0); count], latencies: vec![(0, 0); paths.len()] },
    };
    engine.start();
    engine.run(length_ns);
    (engine.observed, engine.trace)
}

fn server(supply: Supply) -> Server {
    Server {
        supply,
        left_ns: 0,
        deadline_ns: 0,
        throttled: false,
        cpu_ns: 0,
        running: None,
        ready: VecDeque::new(),
        idle: true,
    }
}

/// Adds to each core a server that uses up all that is left of it.
fn hogs(servers: &mut Vec<Server>, capacity_percent: u64, random: &mut Random) {
    let cores = servers.iter().map(|s| s.supply.core + 1).max().unwrap_or(0);
    for core in 0..cores {
        let Some(period_ns) = servers.iter().find(|s| s.supply.core == core).map(|s| s.supply.period_ns)
        else {
            continue;
        };
        let used: u64 = servers.iter().filter(|s| s.supply.core == core).map(|s| s.supply.budget_ns).sum();
        let budget_ns = (period_ns * capacity_percent / 100).saturating_sub(used);
        if budget_ns == 0 || random.one_in(4) {
            continue;
        }
        let mut hog = server(Supply { budget_ns, period_ns, core });
        hog.idle = false;
        // In the middle of a period, with the budget that is its due until then.
        hog.deadline_ns = random.within(1, period_ns);
        hog.left_ns = (budget_ns * hog.deadline_ns / period_ns).max(1);
        hog.running = Some(Running { callback: HOG, left_ns: u64::MAX, instance: Instance::default() });
        servers.push(hog);
    }
}

impl Engine<'_> {
    fn start(&mut self) {
        // Often everything starts at once, which is when it is worst.
        let together = self.random.one_in(2);
        for number in 0..self.system.callbacks.len() {
            if let Trigger::Periodic { period_ns, .. } = self.system.callbacks[number].trigger {
                self.grid_ns[number] = if together { 1_000_000 } else { self.random.within(0, period_ns) };
                self.schedule(number);
            }
        }
    }

    fn schedule(&mut self, callback: usize) {
        if let Trigger::Periodic { period_ns, jitter_ns } = self.system.callbacks[callback].trigger {
            // Extremes make bursts; anything between is possible.
            let late = match self.random.within(0, 3) {
                0 => jitter_ns,
                1 => self.random.within(0, jitter_ns),
                _ => 0,
            };
            self.releases.push(Reverse((self.grid_ns[callback] + late, callback)));
            self.grid_ns[callback] += period_ns;
        }
    }

    fn run(&mut self, length_ns: u64) {
        while self.now_ns < length_ns {
            self.release();
            self.replenish();
            let chosen = self.choose();
            let mut next = self.releases.peek().map_or(length_ns, |Reverse((at, _))| *at);
            for server in &self.servers {
                if server.throttled {
                    next = next.min(server.deadline_ns);
                }
            }
            for &server in &chosen {
                let server = &self.servers[server];
                let left = server.running.as_ref().map_or(0, |r| r.left_ns).min(server.left_ns);
                next = next.min(self.now_ns.saturating_add(left));
            }
            let passed = next.saturating_sub(self.now_ns);
            self.now_ns = next;
            for server in chosen {
                self.advance(server, passed);
            }
        }
    }

    fn release(&mut self) {
        while let Some(Reverse((at, callback))) = self.releases.peek().copied() {
            if at > self.now_ns {
                break;
            }
            self.releases.pop();
            self.activate(callback, None, Vec::new());
            // Releases with jitter may overtake each other; order within a callback does not matter to its curve.
            self.schedule(callback);
        }
    }

    fn activate(&mut self, callback: usize, message: Option<i64>, mut on: Vec<(usize, usize, u64)>) {
        for (number, path) in self.paths.iter().enumerate() {
            if path.first() == Some(&callback) {
                on.push((number, 0, self.now_ns));
            }
        }
        self.pending[callback].push_back(Instance { activated_ns: self.now_ns, message, on });
        self.wake(self.system.callbacks[callback].executor);
    }

    /// The kernel's rule at a wake-up: budget and deadline are kept unless they would exceed the bandwidth.
    fn wake(&mut self, server: usize) {
        let now = self.now_ns;
        let server = &mut self.servers[server];
        if !server.idle {
            return;
        }
        server.idle = false;
        let (budget, period) = (u128::from(server.supply.budget_ns), u128::from(server.supply.period_ns));
        let fresh = server.deadline_ns <= now
            || u128::from(server.left_ns) * period > budget * u128::from(server.deadline_ns - now);
        if fresh {
            server.deadline_ns = now + server.supply.period_ns;
            server.left_ns = server.supply.budget_ns;
            server.throttled = false;
        } else if server.left_ns == 0 {
            server.throttled = true;
        }
    }

    fn replenish(&mut self) {
        for server in &mut self.servers {
            if server.throttled && server.deadline_ns <= self.now_ns {
                server.throttled = false;
                server.left_ns = server.supply.budget_ns;
                server.deadline_ns += server.supply.period_ns;
            }
        }
    }

    /// On every core the runnable server of the earliest deadline.
    fn choose(&mut self) -> Vec<usize> {
        let mut chosen: Vec<usize> = Vec::new();
        for number in 0..self.servers.len() {
            if self.servers[number].idle || self.servers[number].throttled {
                continue;
            }
            let core = self.servers[number].supply.core;
            match chosen.iter_mut().find(|c| self.servers[**c].supply.core == core) {
                // Ties go to the hog, which comes last.
                Some(best) if self.servers[number].deadline_ns <= self.servers[*best].deadline_ns => {
                    *best = number
                }
                Some(_) => {}
                None => chosen.push(number),
            }
        }
        for server in &chosen {
            self.fetch(*server);
        }
        // Whoever found nothing to do sleeps; then others of that core are chosen.
        if chosen.iter().any(|s| self.servers[*s].idle) {
            return self.choose();
        }
        chosen
    }

    /// The executor of a server that has the CPU: goes on, takes the next callback of the wait set, or polls.
    fn fetch(&mut self, number: usize) {
        if self.servers[number].running.is_some() {
            return;
        }
        let callbacks = &self.system.executors[number].callbacks;
        let is_timer = |c: usize| matches!(self.system.callbacks[c].trigger, Trigger::Periodic { .. });
        let eager = self
            .system
            .eager_timers
            .then(|| callbacks.iter().copied().find(|c| is_timer(*c) && !self.pending[*c].is_empty()))
            .flatten();
        let server = &mut self.servers[number];
        if eager.is_none() && server.ready.is_empty() {
            server.ready = callbacks.iter().copied().filter(|c| !self.pending[*c].is_empty()).collect();
        }
        let Some(callback) = eager.or_else(|| server.ready.pop_front()) else {
            server.idle = true;
            self.record(number, Traceable::Wait);
            return;
        };
        server.ready.retain(|c| Some(*c) != eager);
        if let Some(instance) = self.pending[callback].pop_front() {
            let costs = &self.system.callbacks[callback].costs_ns;
            let left_ns = costs[self.next_cost[callback] % costs.len()];
            self.next_cost[callback] += 1;
            // Now and then a run is cheaper than ever; anomalies love that.
            let left_ns = if self.random.one_in(16) { self.random.within(0, left_ns) } else { left_ns };
            self.record(number, Traceable::Start(callback, instance.message));
            self.servers[number].running = Some(Running { callback, left_ns, instance });
        }
    }

    fn advance(&mut self, number: usize, passed_ns: u64) {
        let server = &mut self.servers[number];
        server.left_ns -= passed_ns;
        if server.left_ns == 0 {
            server.throttled = true;
        }
        let Some(running) = &mut server.running else { return };
        if running.callback == HOG {
            return;
        }
        running.left_ns -= passed_ns;
        server.cpu_ns += passed_ns;
        if running.left_ns > 0 {
            return;
        }
        if let Some(done) = server.running.take() {
            self.complete(number, &done);
        }
    }

    fn record(&mut self, executor: usize, step: Traceable) {
        let cpu_ns = self.servers[executor].cpu_ns;
        self.trace.push(Traced { at_ns: self.now_ns, cpu_ns, executor, step });
    }

    fn complete(&mut self, executor: usize, done: &Running) {
        let longest = &mut self.observed.responses[done.callback];
        longest.0 = longest.0.max(self.now_ns - done.instance.activated_ns);
        longest.1 += 1;
        for (path, position, started_ns) in &done.instance.on {
            if position + 1 == self.paths[*path].len() {
                let longest = &mut self.observed.latencies[*path];
                longest.0 = longest.0.max(self.now_ns - started_ns);
                longest.1 += 1;
            }
        }
        for topic in &self.system.callbacks[done.callback].publishes {
            self.messages += 1;
            let message = self.messages;
            self.record(executor, Traceable::Publish(done.callback, *topic, message));
            for (subscriber, callback) in self.system.callbacks.iter().enumerate() {
                if callback.trigger != Trigger::Topic(*topic) {
                    continue;
                }
                let on = done
                    .instance
                    .on
                    .iter()
                    .filter(|(path, position, _)| self.paths[*path].get(position + 1) == Some(&subscriber))
                    .map(|(path, position, started)| (*path, position + 1, *started))
                    .collect();
                self.activate(subscriber, Some(message), on);
            }
        }
        self.record(executor, Traceable::End(done.callback));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(costs: Vec<u64>, budget_ns: u64) -> Observed {
        let mut system = System::default();
        let executor = system.executor("a", false);
        let trigger = Trigger::Periodic { period_ns: 100, jitter_ns: 0 };
        system.callback(executor, "t", trigger, costs, vec![]);
        let supply = Supply { budget_ns, period_ns: 10, core: 0 };
        simulate(&system, &[supply], &[vec![0]], 2_000_000, 0, 3)
    }

    #[test]
    fn a_callback_alone_gets_its_budget_in_every_period() {
        assert_eq!(one(vec![5], 10).responses[0].0, 5, "nothing in its way");
        // Five per period: 5, wait 5, 5, wait 5, 2.
        assert_eq!(one(vec![12], 5).responses[0].0, 22);
    }

    #[test]
    fn no_core_gives_more_time_than_there_is() {
        let mut system = System::default();
        let (a, b) = (system.executor("a", false), system.executor("b", false));
        let trigger = Trigger::Periodic { period_ns: 1000, jitter_ns: 0 };
        system.callback(a, "a", trigger, vec![300], vec![]);
        system.callback(b, "b", trigger, vec![300], vec![]);
        let supply = Supply { budget_ns: 50, period_ns: 100, core: 0 };
        let seen = simulate(&system, &[supply, supply], &[], 10_000_000, 100, 1);
        // Both want 300 and share one core.
        assert!(seen.responses[0].0.max(seen.responses[1].0) >= 500, "{seen:?}");
        assert!(seen.responses.iter().all(|(worst, n)| *worst <= 700 && *n >= 8900), "{seen:?}");
    }
}

//! Threads that never sleep for long: a loop that polls has no wake-ups by which it could be
//! followed, or so many that they have no period. Its sends and writes have a period.

use std::collections::{BTreeMap, HashMap};

use takt_rt::clock::monotonic_ns;
use takt_trace::calls::Calls;
use takt_trace::event::State;
use takt_trace::follow::{Activation, Followed, Source};

use crate::target::Watched;

/// Threads whose calls are followed at once.
const MOST: usize = 16;
/// With more watched threads each is looked at more seldom.
const MANY: usize = 256;
/// A thread without a period is worth a look where it takes so much of a CPU.
const MIN_SHARE: f64 = 0.1;
/// Calls per second above which cycles cannot be followed this way.
const MAX_CALLS_PER_S: f64 = 20_000.0;
/// Time without a result, or with too many, after which a thread is ignored for as long.
const PATIENCE_NS: u64 = 5_000_000_000;
const LEFT_ALONE_NS: u64 = 30_000_000_000;

/// Facts about a thread that may spin.
#[derive(Debug, Clone, Copy)]
struct Looked {
    at_ns: u64,
    ran_ns: u64,
    /// At the first look, for its share of a CPU.
    first: (u64, u64),
    /// Looks in a row at which it took much CPU time without a period.
    in_a_row: u32,
}

#[derive(Debug)]
struct Open {
    calls: Calls,
    since_ns: u64,
    count: u64,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Spinning {
    /// Off where nobody asks for it: an experiment has its loop.
    pub(crate) on: bool,
    turn: u32,
    looked: BTreeMap<i32, Looked>,
    open: BTreeMap<i32, Open>,
    left_alone_until: BTreeMap<i32, u64>,
}

impl Spinning {
    /// Looks at the watched threads; `has_period` says of which one a period is known, and whether
    /// it is that of its calls. Returns why calls cannot be followed, where they cannot.
    pub(crate) fn refresh(
        &mut self,
        watched: &Watched,
        has_period: &dyn Fn(i32) -> Option<bool>,
    ) -> Option<String> {
        if !self.on {
            return None;
        }
        let now_ns = monotonic_ns();
        let threads = watched.threads_now();
        // Each look reads a file: those of a whole machine are worth it now and then.
        self.turn = self.turn.wrapping_add(1);
        if threads.len() > MANY && self.turn % 4 != 1 {
            return None;
        }
        self.looked.retain(|tid, _| threads.contains(tid));
        self.open.retain(|tid, _| threads.contains(tid));
        self.left_alone_until.retain(|_, until_ns| *until_ns > now_ns);
        self.give_up(now_ns, has_period);
        let mut refused = None;
        for &tid in threads {
            let Some(thread) = watched.threads.get(&tid) else { continue };
            // The kernel's threads have no command line, and call nobody.
            let is_out = thread.command.0.is_empty() || self.left_alone_until.contains_key(&tid);
            if is_out || has_period(tid) == Some(false) {
                self.looked.remove(&tid);
                continue;
            }
            let Some(ran_ns) = ran_ns(thread.pid, tid) else { continue };
            let looked = self.looked.entry(tid).or_insert(Looked {
                at_ns: now_ns,
                ran_ns,
                first: (now_ns, ran_ns),
                in_a_row: 0,
            });
            let passed_ns = now_ns.saturating_sub(looked.at_ns);
            if passed_ns == 0 {
                continue;
            }
            let share = ran_ns.saturating_sub(looked.ran_ns) as f64 / passed_ns as f64;
            looked.in_a_row = if share >= MIN_SHARE { looked.in_a_row + 1 } else { 0 };
            (looked.at_ns, looked.ran_ns) = (now_ns, ran_ns);
            if looked.in_a_row == 0 || self.open.contains_key(&tid) || self.open.len() >= MOST {
                continue;
            }
            match Calls::open(tid) {
                Ok(calls) => {
                    self.open.insert(tid, Open { calls, since_ns: now_ns, count: 0 });
                }
                Err(error) => {
                    self.left_alone_until.insert(tid, now_ns + LEFT_ALONE_NS);
                    refused = Some(format!(
                        "{} (tid {tid}) uses much CPU time and does not wake up periodically; whether it sends or writes periodically is \
                         not known: {error}",
                        thread.name
                    ));
                }
            }
        }
        refused
    }

    /// Ends what leads to nothing.
    fn give_up(&mut self, now_ns: u64, has_period: &dyn Fn(i32) -> Option<bool>) {
        let left_alone = &mut self.left_alone_until;
        self.open.retain(|&tid, open| {
            let open_ns = now_ns.saturating_sub(open.since_ns);
            let per_s = open.count as f64 * 1e9 / open_ns.max(1) as f64;
            let keeps = match has_period(tid) {
                Some(of_calls) => of_calls,
                None => open_ns < PATIENCE_NS || (open.count > 0 && per_s <= MAX_CALLS_PER_S),
            };
            if !keeps {
                left_alone.insert(tid, now_ns + LEFT_ALONE_NS);
            }
            keeps
        });
    }

    /// Adds the calls that have come to the activations of their threads; returns those threads,
    /// and how many calls were lost.
    pub(crate) fn take(&mut self, threads: &mut HashMap<i32, Followed>) -> (Vec<i32>, u64) {
        let mut called = Vec::new();
        let mut lost = 0;
        for (&tid, open) in &mut self.open {
            let Some(thread) = threads.get_mut(&tid) else { continue };
            let before = thread.activations.len();
            lost += open.calls.drain(&mut |call| {
                let source = Source::Call { number: call.number, file: call.file };
                thread.activations.push(Activation {
                    source,
                    planned_ns: call.time_ns,
                    awake_ns: call.time_ns,
                    end_ns: call.time_ns,
                    cpu_ns: 0,
                    state: State::Sleeping,
                    slept_on: None,
                    cpu: 0,
                });
            });
            let new = thread.activations.len() - before;
            open.count += new as u64;
            if new > 0 {
                thread.activations.sort_by_key(|one| one.planned_ns);
                called.push(tid);
            }
        }
        (called, lost)
    }

    /// Its share of a CPU since it was first looked at; None where it was not.
    pub(crate) fn cpu_share(&self, tid: i32) -> Option<f64> {
        let looked = self.looked.get(&tid)?;
        let passed_ns = looked.at_ns.saturating_sub(looked.first.0);
        (passed_ns > 0).then(|| looked.ran_ns.saturating_sub(looked.first.1) as f64 / passed_ns as f64)
    }
}

/// CPU time of a thread (Documentation/scheduler/sched-stats.rst).
fn ran_ns(pid: i32, tid: i32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/schedstat")).ok()?;
    text.split(' ').next()?.parse().ok()
}

//! Everything around the executors: threads of the middleware, of pools and of drivers in the managed processes, and what the kernel does in
//! threads of its own. They keep the CPUs and the policy that they had, or get better ones; what they get is decided by what they are
//! measured to do, and again every second:
//!
//! - A **messenger** wakes often, runs briefly and needs little: threads of the middleware, through which every message of a chain passes. It gets
//!   [`super::Options::helper_policy`], so that no computation makes it wait, on all the CPUs it had: the kernel finds the
//!   one that is free. Together they get no more than [`super::Options::most_helper_share`].
//! - Whatever **computes** (pools of OpenMP, inference, compression) stays as it was: at real-time priority it would starve others. Where the
//!   kernel does not balance, it goes to the place that leaves it most time, as a best-effort executor does.
//! - What is **not known yet**, or asleep all the time, stays as it was until it is.
//!
//! A thread that a reserved thread creates inherits its single CPU. It is found within a poll by the number of threads of its process, and
//! gets the CPUs of its process.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use takt_rt::placement::CpuSet;
use takt_rt::policy::Policy;

use super::{Difference, Enacted, Enactor, Error, Mode};
use crate::restore::ThreadBefore;
use crate::system::{Attributes, Kernel, RESET_ON_FORK};
use takt_reserve::{Trouble, WORKERS_FILE, partition};

/// A helper is not judged by a shorter time: whatever just woke has used all of the last millisecond.
const LEAST_WATCHED_NS: u64 = 200_000_000;
/// Between two looks at all helpers: reading a hundred of them takes half a millisecond.
const LOOK_NS: u64 = 1_000_000_000;
/// A messenger runs no longer than this at a time, on average: copies of a large image take a millisecond.
const MOST_TURN_NS: u64 = 1_000_000;
/// And no more than this share of a CPU.
const MOST_MESSENGER_SHARE: f64 = 0.05;
/// Turns per second below which nothing can be said.
const LEAST_TURNS: u64 = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Kind {
    /// Nothing was measured yet, or it slept.
    #[default]
    Unknown,
    Messenger,
    /// It needs more than a messenger, but little.
    Plain,
    /// It computes: never at real-time priority again.
    Computes,
}

#[derive(Debug, Clone, Copy)]
struct Helper {
    start_ticks: u64,
    run_ns: u64,
    turns: u64,
    kind: Kind,
    /// Share of a CPU in the last interval.
    share: f64,
}

#[derive(Debug, Default)]
pub(super) struct Helpers {
    seen: BTreeMap<u32, Helper>,
    at_ns: Option<u64>,
    /// The managed processes, and how many threads they had at the last look.
    processes: BTreeMap<u32, usize>,
    /// Threads that serve or publish: not helpers.
    named: BTreeSet<u32>,
}

impl Helpers {
    pub fn told(&mut self, processes: &BTreeSet<u32>, named: BTreeSet<u32>) {
        let before = std::mem::take(&mut self.processes);
        self.processes = processes.iter().map(|pid| (*pid, before.get(pid).copied().unwrap_or(0))).collect();
        self.named = named;
    }
}

/// Twice as much for one that is a messenger already, so that nobody goes to and fro.
fn most_share(kind: Kind) -> f64 {
    if kind == Kind::Messenger { 2.0 * MOST_MESSENGER_SHARE } else { MOST_MESSENGER_SHARE }
}

fn attributes(policy: &Policy) -> Attributes {
    let real_time = |policy, priority: u8| Attributes {
        policy,
        priority: priority.into(),
        flags: RESET_ON_FORK,
        ..Attributes::default()
    };
    match *policy {
        Policy::Fifo { priority } => real_time(libc::SCHED_FIFO as u32, priority),
        Policy::RoundRobin { priority } => real_time(libc::SCHED_RR as u32, priority),
        Policy::Other { nice } => Attributes::other(nice),
        // Refused by `Options::validate`.
        Policy::Deadline { .. } => Attributes::other(0),
    }
}

/// The mask of one CPU as the kernel writes and reads masks: groups of 32 bits with commas.
fn mask(cpu: usize) -> String {
    let mut text = format!("{:x}", 1_u32 << (cpu % 32));
    for _ in 0..cpu / 32 {
        text.push_str(",00000000");
    }
    text
}

impl<K: Kernel> Enactor<K> {
    /// All other threads of the managed processes.
    pub(super) fn others(&self) -> Vec<(u32, u32)> {
        let threads = |&pid: &u32| {
            let tids = self.kernel.threads(pid).unwrap_or_default();
            tids.into_iter().map(move |tid| (pid, tid))
        };
        let named = &self.helpers.named;
        self.helpers.processes.keys().flat_map(threads).filter(|(_, tid)| !named.contains(tid)).collect()
    }

    /// A look between plans: threads that were made meanwhile, and every second what all of them do.
    pub(super) fn attend(&mut self, now_ns: u64) -> Result<(), Error> {
        if !self.options.helpers || self.helpers.processes.is_empty() {
            return Ok(());
        }
        let count = |(&pid, _): (&u32, &usize)| (pid, self.kernel.thread_count(pid).unwrap_or(0));
        let counts: BTreeMap<u32, usize> = self.helpers.processes.iter().map(count).collect();
        let due = self.helpers.at_ns.is_none_or(|at| now_ns.saturating_sub(at) >= LOOK_NS);
        if !due && counts == self.helpers.processes {
            return Ok(());
        }
        self.helpers.processes = counts;
        let others = self.others();
        self.journal.record(&self.kernel, others.iter().copied(), self.partition.mode.groups())?;
        self.helpers(&others, now_ns, &mut Enacted::default())
    }

    /// What each helper has been doing, measured since the last look at least [`LEAST_WATCHED_NS`] ago.
    fn measure(&mut self, threads: &[(u32, u32)], now_ns: u64) {
        let passed_ns = self.helpers.at_ns.map(|at| now_ns.saturating_sub(at));
        let due = passed_ns.is_none_or(|passed_ns| passed_ns >= LEAST_WATCHED_NS);
        if due {
            self.helpers.at_ns = Some(now_ns);
        }
        let passed_ns = passed_ns.unwrap_or(0);
        let mut seen = BTreeMap::new();
        for &(pid, tid) in threads {
            let Some(before) = self.journal.before(pid, tid) else { continue };
            let start_ticks = before.thread.start_ticks;
            let known = self.helpers.seen.get(&tid).filter(|known| known.start_ticks == start_ticks);
            if let Some(known) = known.filter(|_| !due) {
                seen.insert(tid, *known);
                continue;
            }
            let run_ns = self.kernel.run_ns(pid, tid).unwrap_or(0);
            let turns = self.kernel.turns(pid, tid).unwrap_or(0);
            let mut now = Helper { start_ticks, run_ns, turns, kind: Kind::Unknown, share: 0.0 };
            if let Some(known) = known.filter(|_| passed_ns > 0) {
                let used_ns = run_ns.saturating_sub(known.run_ns);
                let turns = turns.saturating_sub(known.turns);
                now.share = used_ns as f64 / passed_ns as f64;
                let least = LEAST_TURNS.max(LEAST_TURNS * passed_ns / 1_000_000_000);
                now.kind = if known.kind == Kind::Computes || now.share > self.options.most_helper_share {
                    Kind::Computes
                } else if turns < least {
                    // It sleeps: as before, be that known or not.
                    known.kind
                } else if now.share <= most_share(known.kind) && used_ns / turns.max(1) <= MOST_TURN_NS {
                    Kind::Messenger
                } else {
                    Kind::Plain
                };
            }
            seen.insert(tid, now);
        }
        // Together they may have no more than one alone: those that need least come first.
        let mut messengers: Vec<(u32, f64)> =
            seen.iter().filter(|(_, h)| h.kind == Kind::Messenger).map(|(tid, h)| (*tid, h.share)).collect();
        messengers.sort_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0)));
        let mut sum = 0.0;
        for (tid, share) in messengers {
            sum += share;
            if sum > self.options.most_helper_share
                && let Some(helper) = seen.get_mut(&tid)
            {
                helper.kind = Kind::Plain;
            }
        }
        self.helpers.seen = seen;
    }

    pub(super) fn helpers(
        &mut self,
        threads: &[(u32, u32)],
        now_ns: u64,
        report: &mut Enacted,
    ) -> Result<(), Error> {
        self.measure(threads, now_ns);
        let core = self.platform.system_core;
        let online = self.kernel.online().map_err(Error::Online)?;
        let Ok(system) = CpuSet::single(core) else {
            return Err(Error::Core { core, online: Box::new(online) });
        };
        if !self.partition.balances() {
            self.journal.give(system)?;
        }
        let asked = attributes(&self.options.helper_policy);
        let may_raise = self.may_raise();
        let kind = |tid: &u32| self.helpers.seen.get(tid).map_or(Kind::Unknown, |helper| helper.kind);
        let known: Vec<(ThreadBefore, Kind)> = threads
            .iter()
            .filter_map(|&(pid, tid)| Some((self.journal.before(pid, tid)?.clone(), kind(&tid))))
            .collect();
        for (before, kind) in known {
            let tid = before.thread.tid;
            // A policy that the application chose for itself stays.
            let chosen = before.attributes.policy != 0 || before.attributes.nice != 0;
            let raised = kind == Kind::Messenger && !chosen && may_raise;
            let policy = if raised { asked } else { before.attributes };
            // One that was made since the last plan has no place yet: it goes where its process may run.
            let spread = !chosen && self.spreads(kind) && self.spread.knows(before.thread.pid, tid);
            // Nor does it push messengers to a free CPU then: the system core is the one that has room.
            let cpus = if raised && !self.partition.balances() { system } else { before.cpus };
            // A thread that had a reservation of ours and no longer serves anything comes by here too.
            let outcome = (|| {
                let now = self.kernel.attributes(tid)?;
                let same = now == policy || (now.serves(&policy) && raised);
                if !same {
                    self.kernel.set_attributes(tid, &policy)?;
                }
                let moved = !spread && self.kernel.affinity(tid)? != self.partition.shown(&cpus);
                if moved {
                    self.partition.settle(&mut self.kernel, &before, &cpus)?;
                }
                Ok(usize::from(!same) + usize::from(moved))
            })();
            match outcome {
                Ok(changes) => {
                    report.changes += changes;
                    report.helpers += usize::from(!chosen);
                    report.raised += usize::from(raised);
                }
                Err(error) if partition::gone(&error) => {}
                Err(error) => report.differences.push(difference(
                    tid,
                    &before.name,
                    format!("{policy} on {cpus}"),
                    &error,
                )),
            }
        }
        Ok(())
    }

    /// Whether a helper at real-time priority that begins to spin still leaves time to the manager, which would take that back. With the
    /// admission test off there is no throttling of real-time threads; the fair server, which came with 6.12, then sees to it.
    fn may_raise(&self) -> bool {
        let release = || self.kernel.read(Path::new("/proc/sys/kernel/osrelease")).unwrap_or_default();
        self.mode() != Mode::AdmissionOff || takt_reserve::system::version(&release()) >= Some((6, 12))
    }

    /// Whether helpers of this kind are spread with the best-effort executors, once a plan. With exclusive sets the kernel balances
    /// nobody; beside partition roots it does so on the CPUs that are left.
    fn spreads(&self, kind: Kind) -> bool {
        match self.mode() {
            Mode::AdmissionOff | Mode::Global => false,
            Mode::PartitionRoots => kind == Kind::Computes,
            Mode::ExclusiveSets => kind != Kind::Messenger,
        }
    }

    /// Helpers that are spread with the best-effort executors.
    pub(super) fn to_spread(&self, threads: &[(u32, u32)]) -> Vec<(u32, u32)> {
        let kind = |tid: &u32| self.helpers.seen.get(tid).map_or(Kind::Unknown, |helper| helper.kind);
        let chosen = |before: &ThreadBefore| before.attributes.policy != 0 || before.attributes.nice != 0;
        let spread = |&(pid, tid): &(u32, u32)| {
            self.spreads(kind(&tid)) && self.journal.before(pid, tid).is_some_and(|before| !chosen(before))
        };
        threads.iter().copied().filter(spread).collect()
    }

    /// Unbound kernel workers, and kernel threads that may run anywhere.
    pub(super) fn kernel_helpers(&mut self, report: &mut Enacted) -> Result<(), Error> {
        let core = self.platform.system_core;
        // Where the system core takes reservations, too, a thread shut in there is worse off than one that may go anywhere.
        if self.platform.cores.contains(&core) {
            return Ok(());
        }
        if self.options.kernel_workers {
            match takt_reserve::set(
                &mut self.kernel,
                &mut self.journal,
                Path::new(WORKERS_FILE),
                &mask(core),
                None,
            ) {
                Ok(()) => report.changes += 1,
                Err(Trouble::Journal(error)) => return Err(error.into()),
                Err(Trouble::Closed(reason)) => report.differences.push(Difference {
                    tid: 0,
                    name: "unbound kernel workers".into(),
                    asked: format!("CPU {core}"),
                    has: reason,
                    reservation: false,
                }),
            }
        }
        if !self.options.kernel_threads {
            return Ok(());
        }
        let online = self.kernel.online().map_err(Error::Online)?;
        let Ok(system) = CpuSet::single(core) else {
            return Err(Error::Core { core, online: Box::new(online) });
        };
        // Those bound to CPUs belong there, and interrupt threads go where their interrupts are sent.
        let may_move = |&tid: &u32| {
            self.kernel.affinity(tid).is_ok_and(|cpus| cpus.len() > 1)
                && self.kernel.thread_name(tid, tid).is_ok_and(|name| !name.starts_with("irq/"))
        };
        let threads: Vec<u32> =
            self.kernel.kernel_threads().unwrap_or_default().into_iter().filter(may_move).collect();
        self.journal.record(&self.kernel, threads.iter().map(|&tid| (tid, tid)), None)?;
        // The kernel refuses those that it binds itself (EINVAL); that is in order.
        report.changes +=
            threads.iter().filter(|&&tid| self.kernel.set_affinity(tid, &system).is_ok()).count();
        Ok(())
    }
}

fn difference(tid: u32, name: &str, asked: String, error: &std::io::Error) -> Difference {
    Difference { tid, name: name.to_owned(), asked, has: error.to_string(), reservation: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_are_written_as_the_kernel_reads_them() {
        assert_eq!(mask(0), "1");
        assert_eq!(mask(5), "20");
        assert_eq!(mask(33), "2,00000000");
    }
}

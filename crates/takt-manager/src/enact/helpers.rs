//! Everything around the executors: threads of the middleware, of pools and of drivers in the
//! managed processes, and what the kernel does in threads of its own. They keep the CPUs and the
//! policy that they had, or get better ones; what they get is decided by what they are measured to
//! do, and again every second:
//!
//! - A **messenger** wakes often, runs briefly and needs little: threads of the middleware, through
//!   which every message of a chain passes. It gets [`super::Options::helper_policy`], so that no
//!   computation makes it wait, on all the CPUs it had: the kernel finds the one that is free.
//!   Together they get no more than [`super::Options::most_helper_share`].
//! - Whatever **computes** (pools of OpenMP, inference, compression) stays as it was: at real-time
//!   priority it would starve others. If the kernel does not balance, it goes to the place that
//!   leaves it most time, like a best-effort executor.
//! - A thread that is **not known yet**, or asleep all the time, stays unchanged until it is known.
//!
//! A thread that a reserved thread creates inherits its single CPU. It is found within a poll by
//! the number of threads of its process, and gets the CPUs of its process.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use takt_rt::placement::CpuSet;
use takt_rt::policy::Policy;

use super::{Difference, Enacted, Enactor, Error, Mode};
use crate::restore::ThreadBefore;
use crate::system::{Attributes, Kernel, RESET_ON_FORK, Usage};
use takt_host::reserve::{Trouble, WORKERS_FILE, partition};

/// A helper is not judged by a shorter time: whatever just woke has used all of the last
/// millisecond.
const MIN_WATCHED_NS: u64 = 200_000_000;
/// Between two looks at all helpers: reading a hundred of them takes a quarter of a millisecond.
const LOOK_NS: u64 = 1_000_000_000;
/// A messenger runs no longer than this at a time, on average: copies of a large image take a
/// millisecond.
const MAX_TURN_NS: u64 = 1_000_000;
/// And no more than this share of a CPU.
const MAX_MESSENGER_SHARE: f64 = 0.05;
/// Turns per second below which nothing can be said.
const MIN_TURNS: u64 = 2;

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
    /// When it had used that.
    at_ns: u64,
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
    /// Processes with helpers that are not asleep, and those in which a messenger is raised, as of
    /// the last look at all.
    awake: BTreeSet<u32>,
    carried: BTreeSet<u32>,
}

impl Helpers {
    pub fn set_processes(&mut self, processes: &BTreeSet<u32>, named: BTreeSet<u32>) {
        let before = std::mem::take(&mut self.processes);
        self.processes = processes.iter().map(|pid| (*pid, before.get(pid).copied().unwrap_or(0))).collect();
        self.named = named;
    }

    fn kind(&self, tid: u32) -> Kind {
        self.seen.get(&tid).map_or(Kind::Unknown, |helper| helper.kind)
    }
}

/// Twice as much for one that is a messenger already, so that nobody goes to and fro.
fn most_share(kind: Kind) -> f64 {
    if kind == Kind::Messenger { 2.0 * MAX_MESSENGER_SHARE } else { MAX_MESSENGER_SHARE }
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
        self.others_of(self.helpers.processes.keys().copied())
    }

    fn others_of(&self, processes: impl Iterator<Item = u32>) -> Vec<(u32, u32)> {
        let threads = |pid: u32| {
            let tids = self.kernel.threads(pid).unwrap_or_default();
            tids.into_iter().map(move |tid| (pid, tid))
        };
        let named = &self.helpers.named;
        processes.flat_map(threads).filter(|(_, tid)| !named.contains(tid)).collect()
    }

    /// A look between plans: threads that were made meanwhile, and every second what all of them
    /// do.
    pub(super) fn attend(&mut self, now_ns: u64) -> Result<(), Error> {
        if !self.options.helpers || self.helpers.processes.is_empty() {
            return Ok(());
        }
        let mut grown = Vec::new();
        for (&pid, known) in &mut self.helpers.processes {
            let count = self.kernel.thread_count(pid).unwrap_or(0);
            if std::mem::replace(known, count) != count {
                grown.push(pid);
            }
        }
        if self.helpers.at_ns.is_none_or(|at| now_ns.saturating_sub(at) >= LOOK_NS) {
            let all = self.others();
            return self.helpers(&all, now_ns, true, &mut Enacted::default());
        }
        if grown.is_empty() {
            return Ok(());
        }
        // Those that were there already are looked at when it is time.
        let mut new = self.others_of(grown.into_iter());
        new.retain(|&(pid, tid)| !self.is_known(pid, tid));
        self.helpers(&new, now_ns, false, &mut Enacted::default())
    }

    /// Whether a helper was looked at before, and is not another one with its number.
    fn is_known(&self, pid: u32, tid: u32) -> bool {
        let before = self.journal.before(pid, tid);
        self.helpers.seen.contains_key(&tid)
            && before.is_some_and(|before| self.kernel.is_alive(&before.thread))
    }

    /// Use of a thread, with the time of its start; it is recorded first if it was not yet.
    fn usage(&self, pid: u32, tid: u32) -> Option<(u64, Usage)> {
        let thread = self.journal.before(pid, tid)?.thread;
        Some((thread.start_ticks, self.kernel.usage(&thread).ok()?))
    }

    /// Use of each helper, measured since it was last examined, at least [`MIN_WATCHED_NS`] ago.
    /// `all`: there are no others.
    fn measure(&mut self, threads: &[(u32, u32)], now_ns: u64, all: bool) -> Result<(), Error> {
        let used: Vec<Option<(u64, Usage)>> =
            threads.iter().map(|&(pid, tid)| self.usage(pid, tid)).collect();
        let new = threads.iter().zip(&used).filter(|(_, used)| used.is_none()).map(|(thread, _)| *thread);
        self.journal.record(&self.kernel, new, self.partition.mode.groups())?;

        if all {
            self.helpers.at_ns = Some(now_ns);
        }
        let before = std::mem::take(&mut self.helpers.seen);
        let mut seen = BTreeMap::new();
        for (&(pid, tid), used) in threads.iter().zip(used) {
            let Some((start_ticks, usage)) = used.or_else(|| self.usage(pid, tid)) else { continue };
            let Usage { run_ns, turns } = usage;
            let mut now =
                Helper { start_ticks, at_ns: now_ns, run_ns, turns, kind: Kind::Unknown, share: 0.0 };
            if let Some(known) = before.get(&tid).filter(|known| known.start_ticks == start_ticks) {
                let passed_ns = now_ns.saturating_sub(known.at_ns);
                if !all || passed_ns < MIN_WATCHED_NS {
                    seen.insert(tid, *known);
                    continue;
                }
                let used_ns = run_ns.saturating_sub(known.run_ns);
                let turns = turns.saturating_sub(known.turns);
                now.share = used_ns as f64 / passed_ns as f64;
                let least = MIN_TURNS.max(MIN_TURNS * passed_ns / 1_000_000_000);
                now.kind = if known.kind == Kind::Computes || now.share > self.options.most_helper_share {
                    Kind::Computes
                } else if turns < least {
                    // It sleeps: as before, be that known or not.
                    known.kind
                } else if now.share <= most_share(known.kind) && used_ns / turns.max(1) <= MAX_TURN_NS {
                    Kind::Messenger
                } else {
                    Kind::Plain
                };
            }
            seen.insert(tid, now);
        }
        if !all {
            // Only new ones were looked at: the others are what they were.
            for (tid, known) in before {
                seen.entry(tid).or_insert(known);
            }
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
        Ok(())
    }

    /// Looks at helpers and gives each what it should have. `all`: there are no others.
    pub(super) fn helpers(
        &mut self,
        threads: &[(u32, u32)],
        now_ns: u64,
        all: bool,
        report: &mut Enacted,
    ) -> Result<(), Error> {
        self.measure(threads, now_ns, all)?;
        let core = self.platform.system_core;
        let online = self.kernel.online().map_err(Error::Online)?;
        let Ok(system) = CpuSet::single(core) else {
            return Err(Error::Core { core, online: Box::new(online) });
        };
        let confined = self.options.confine_helpers && !self.platform.cores.contains(&core);
        if confined || !self.partition.balances() {
            self.journal.give(system)?;
        }
        if all {
            self.helpers.awake.clear();
            self.helpers.carried.clear();
        }
        let asked = attributes(&self.options.helper_policy);
        let may_raise = self.may_raise();
        for &(pid, tid) in threads {
            let Some(before) = self.journal.before(pid, tid) else { continue };
            let kind = self.helpers.kind(tid);
            // A policy that the application chose for itself stays.
            let chosen = self.is_chosen(before);
            let raised = kind == Kind::Messenger && !chosen && may_raise;
            if kind != Kind::Unknown {
                self.helpers.awake.insert(pid);
            }
            if raised {
                self.helpers.carried.insert(pid);
            }
            let policy = if raised { asked } else { before.attributes };
            // One that was made since the last plan has no place yet: it goes where its process may
            // run.
            let spread = !chosen && self.spreads(kind) && self.spread.knows(pid, tid);
            // Nor does it push messengers to a free CPU then: the system core is the one that has
            // room.
            let cpus = if raised && (confined || !self.partition.balances()) { system } else { before.cpus };
            // A thread that had a reservation of ours and no longer serves anything comes by here
            // too.
            let outcome = (|| {
                let now = self.kernel.attributes(tid)?;
                let same = now == policy || (now.serves(&policy) && raised);
                if !same {
                    self.kernel.set_attributes(tid, &policy)?;
                }
                let moved = !spread && self.kernel.affinity(tid)? != self.partition.shown(&cpus);
                if moved {
                    self.partition.settle(&mut self.kernel, before, &cpus)?;
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

    /// Whether the application gave this thread its policy or its nice value. Its process's own
    /// settings were given to the process (`nice`, `Nice=` of a systemd unit), and a thread that a
    /// reserved one makes begins at 0 (SCHED_FLAG_RESET_ON_FORK).
    fn is_chosen(&self, before: &ThreadBefore) -> bool {
        let pid = before.thread.pid;
        let of_process = self.journal.before(pid, pid).map_or(0, |leader| leader.attributes.nice);
        before.attributes.policy != 0 || ![0, of_process].contains(&before.attributes.nice)
    }

    /// Managed processes whose helpers work while none of them has the policy of messengers: how
    /// long messages wait there is up to everybody else on the machine.
    #[must_use]
    pub(crate) fn uncarried(&self) -> BTreeSet<u32> {
        self.helpers.awake.difference(&self.helpers.carried).copied().collect()
    }

    /// Whether a helper at real-time priority that begins to spin still leaves time to the manager,
    /// which would take that back. With the admission test off there is no throttling of real-time
    /// threads; the fair server, which came with 6.12, then sees to it.
    fn may_raise(&self) -> bool {
        self.mode() != Mode::AdmissionOff || self.has_fair_server
    }

    /// Whether helpers of this kind are spread with the best-effort executors, once a plan. With
    /// exclusive sets the kernel balances nobody; beside partition roots it does so on the CPUs
    /// that are left.
    fn spreads(&self, kind: Kind) -> bool {
        match self.mode() {
            Mode::AdmissionOff => false,
            Mode::PartitionRoots => kind == Kind::Computes,
            Mode::ExclusiveSets => kind != Kind::Messenger,
        }
    }

    /// Helpers that are spread with the best-effort executors.
    pub(super) fn to_spread(&self, threads: &[(u32, u32)]) -> Vec<(u32, u32)> {
        let spread = |&(pid, tid): &(u32, u32)| {
            self.spreads(self.helpers.kind(tid))
                && self.journal.before(pid, tid).is_some_and(|before| !self.is_chosen(before))
        };
        threads.iter().copied().filter(spread).collect()
    }

    /// Unbound kernel workers, and kernel threads that may run anywhere.
    pub(super) fn kernel_helpers(&mut self, report: &mut Enacted) -> Result<(), Error> {
        let core = self.platform.system_core;
        // If the system core accepts reservations, too, a thread confined to it is worse off than
        // one that may run anywhere.
        if self.platform.cores.contains(&core) {
            return Ok(());
        }
        if self.options.kernel_workers {
            match takt_host::reserve::set(
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
        // Those bound to CPUs belong there, and interrupt threads go where their interrupts are
        // sent.
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

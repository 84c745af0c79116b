//! Everything around the executors: threads of the middleware and other helpers of the managed processes, and what the kernel does in threads
//! of its own, go to the system core.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use takt_rt::placement::CpuSet;
use takt_rt::policy::Policy;

use super::{Difference, Enacted, Enactor, Error};
use crate::system::{Attributes, Kernel, RESET_ON_FORK};
use takt_reserve::{Trouble, WORKERS_FILE, partition};

/// A helper is not judged by a shorter time: whatever just woke has used all of the last millisecond.
const LEAST_WATCHED_NS: u64 = 200_000_000;

#[derive(Debug, Clone, Copy)]
struct Helper {
    start_ticks: u64,
    run_ns: u64,
    /// It computes: never at real-time priority again.
    heavy: bool,
}

#[derive(Debug, Default)]
pub(super) struct Helpers {
    seen: BTreeMap<u32, Helper>,
    at: Option<Instant>,
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
    pub(super) fn helpers(&mut self, threads: &[(u32, u32)], report: &mut Enacted) -> Result<(), Error> {
        let now = Instant::now();
        let passed_ns = self.helpers.at.replace(now).map_or(0, |at| now.duration_since(at).as_nanos() as u64);
        let core = self.platform.system_core;
        let online = self.kernel.online().map_err(Error::Online)?;
        let Ok(system) = CpuSet::single(core) else {
            return Err(Error::Core { core, online: Box::new(online) });
        };
        self.journal.give(system)?;
        let asked = attributes(&self.options.helper_policy);
        let mut seen = BTreeMap::new();
        for &(pid, tid) in threads {
            let Some(before) = self.journal.before(pid, tid).cloned() else { continue };
            let run_ns = self.kernel.run_ns(pid, tid).unwrap_or(0);
            let start_ticks = before.thread.start_ticks;
            let known = self.helpers.seen.get(&tid).filter(|known| known.start_ticks == start_ticks);
            let used_ns = known.map_or(0, |known| run_ns.saturating_sub(known.run_ns));
            let heavy = known.is_some_and(|known| known.heavy)
                || (passed_ns > 0
                    && used_ns as f64
                        > self.options.most_helper_share * passed_ns.max(LEAST_WATCHED_NS) as f64);
            seen.insert(tid, Helper { start_ticks, run_ns, heavy });
            // A policy that the application chose for itself stays, and so do the CPUs.
            let chosen = before.attributes.policy != 0 || before.attributes.nice != 0;
            let (policy, cpus) = match (chosen, heavy) {
                (true, _) | (_, true) => (before.attributes, before.cpus),
                _ => (asked, system),
            };
            // A thread that had a reservation of ours and no longer serves anything comes by here too.
            let outcome = (|| {
                let now = self.kernel.attributes(tid)?;
                let same = now == policy || (now.serves(&policy) && policy == asked);
                if !same {
                    self.kernel.set_attributes(tid, &policy)?;
                }
                let moved = self.kernel.affinity(tid)? != self.partition.shown(&cpus);
                if moved {
                    self.partition.settle(&mut self.kernel, &before, &cpus)?;
                }
                Ok(usize::from(!same) + usize::from(moved))
            })();
            match outcome {
                Ok(changes) => {
                    report.changes += changes;
                    report.helpers += usize::from(!chosen && !heavy);
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
        self.helpers.seen = seen;
        Ok(())
    }

    /// Unbound kernel workers, and kernel threads that may run anywhere.
    pub(super) fn kernel_helpers(&mut self, report: &mut Enacted) -> Result<(), Error> {
        let core = self.platform.system_core;
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

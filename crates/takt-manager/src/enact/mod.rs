//! Making a plan so: reservations on their cores, best-effort executors beside them, middleware and
//! kernel helpers on the system core.
//!
//! Every thread's state is on disk before it is changed ([`crate::restore`]). Changes are ordered
//! so that admission control refuses none of them ([`order`]), and everything is read back; where
//! the kernel has something else than asked, the [`Enacted`] report says so.
//!
//! A reservation carries SCHED_FLAG_RESET_ON_FORK: without it the kernel refuses a SCHED_DEADLINE
//! thread that makes a thread (`EAGAIN`), which would break the application. New threads start as
//! SCHED_OTHER, on the CPU of their creator; the next [`Enactor::enact`] finds them.

use std::collections::{BTreeMap, BTreeSet};

use takt_rt::placement::CpuSet;

use crate::plan::Platform;
use crate::restore::{Journal, Restored, ThreadBefore};
use crate::system::{self, Identity, Kernel};

mod admission;
mod check;
mod foreign;
mod helpers;
pub mod order;
pub mod overrun;
mod platform;
mod reserve;
mod spread;
mod types;

pub use overrun::{Overrun, Soft};
pub use platform::platform;
pub use takt_host::reserve::{Mode, Refusal};
pub use types::{Difference, Enacted, Error, Options, Reserved, Target, Wanted};

use order::Held;
use takt_host::reserve::enforce::{self, Enforcement};
use takt_host::reserve::partition::{self, Partition};
use takt_host::reserve::reclaim;
use takt_rt::clock::monotonic_ns;

/// A thread with a reservation of ours.
#[derive(Debug, Clone)]
struct Kept {
    thread: Identity,
    name: String,
    held: Held,
    patience_ns: u64,
}

impl Kept {
    fn new(thread: Identity, wanted: &Wanted, held: Held) -> Self {
        Self { thread, name: wanted.name.clone(), held, patience_ns: wanted.patience_ns }
    }
}

/// Enacts plans and undoes them.
#[derive(Debug)]
pub struct Enactor<K: Kernel> {
    kernel: K,
    journal: Journal,
    options: Options,
    platform: Platform,
    partition: Partition,
    refusals: Vec<Refusal>,
    left_behind: Option<Restored>,
    kept: BTreeMap<u32, Kept>,
    /// Threads that get their reservation as soon as they wake ([`Partition::reserve`]).
    asleep: BTreeMap<u32, Kept>,
    watch: overrun::Watch,
    admission: admission::Admission,
    helpers: helpers::Helpers,
    spread: spread::Spread,
    system_done: bool,
    /// Reason why threads may not reclaim unused time; `None`: all may.
    no_reclaim: Option<String>,
    enforcement: Enforcement,
    /// Others have reservations in the domain that ours share: what is free of it is not known.
    has_others: bool,
    /// The kernel keeps a share of each CPU for fair threads, since 6.12.
    has_fair_server: bool,
}

impl<K: Kernel> Enactor<K> {
    /// Finds a way of reserving that works here. State left by an earlier manager is undone first.
    ///
    /// # Errors
    ///
    /// No way works, or the state file cannot be kept; then nothing is changed.
    pub fn new(mut kernel: K, platform: &Platform, options: Options) -> Result<Self, Error> {
        options.validate()?;
        let online = kernel.online().map_err(Error::Online)?;
        let cores: BTreeSet<usize> = platform.cores.iter().copied().collect();
        if let Some(&core) = cores.iter().chain([&platform.system_core]).find(|core| !online.contains(**core))
        {
            return Err(Error::Core { core, online: Box::new(online) });
        }
        let cores: Vec<usize> = cores.into_iter().collect();
        let (mut journal, left_behind) = Journal::begin(&mut kernel, &options.state)?;
        let (partition, refusals) = partition::establish(&mut kernel, &mut journal, &options.modes, &cores)?;
        let Some(partition) = partition else { return Err(Error::NothingGranted { refusals }) };
        let why = if options.exact_budgets {
            enforce::sharpen(&mut kernel, &mut journal)?
        } else {
            Some("exact enforcement was not requested".to_owned())
        };
        if partition.mode == Mode::AdmissionOff {
            kernel.watch_writes(std::path::Path::new(takt_host::reserve::ADMISSION_FILE));
        }
        let core = cores.first().copied().unwrap_or(platform.system_core);
        let enforcement = enforce::measure(&mut kernel, &mut journal, &partition, core, why);
        let no_reclaim = match options.soft {
            Soft::Hard => Some("budgets are hard by request".to_owned()),
            _ => reclaim::is_sound(&kernel, partition.mode).err().map(|why| why.to_string()),
        };
        let release = kernel.read(std::path::Path::new("/proc/sys/kernel/osrelease")).unwrap_or_default();
        let has_fair_server = takt_host::reserve::system::version(&release) >= Some((6, 12));
        Ok(Self {
            kernel,
            journal,
            options,
            platform: platform.clone(),
            partition,
            refusals,
            left_behind,
            kept: BTreeMap::new(),
            asleep: BTreeMap::new(),
            watch: overrun::Watch::default(),
            admission: admission::Admission::default(),
            helpers: helpers::Helpers::default(),
            spread: spread::Spread::default(),
            system_done: false,
            no_reclaim,
            enforcement,
            has_others: false,
            has_fair_server,
        })
    }

    /// The way that worked.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.partition.mode
    }

    /// The ways that did not, and why.
    #[must_use]
    pub fn refusals(&self) -> &[Refusal] {
        &self.refusals
    }

    /// State left behind by an earlier manager and undone at the start.
    #[must_use]
    pub fn left_behind(&self) -> Option<&Restored> {
        self.left_behind.as_ref()
    }

    #[must_use]
    pub fn state_file(&self) -> &std::path::Path {
        self.journal.path()
    }

    #[cfg(test)]
    pub(crate) fn kernel(&self) -> &K {
        &self.kernel
    }

    #[cfg(test)]
    pub(crate) fn kernel_mut(&mut self) -> &mut K {
        &mut self.kernel
    }

    /// Precision of the kernel's budget enforcement, as measured at the start.
    #[must_use]
    pub fn enforcement(&self) -> &Enforcement {
        &self.enforcement
    }

    /// Reason why threads do not reclaim unused time of their core; `None`: they do.
    #[must_use]
    pub fn no_reclaim(&self) -> Option<&str> {
        self.no_reclaim.as_deref()
    }

    /// Whether threads of others had reservations on the cores at the last enactment, where nothing
    /// keeps them away.
    #[must_use]
    pub(crate) fn has_others(&self) -> bool {
        self.has_others
    }

    /// Whether reservations are given with GRUB.
    fn reclaims(&self) -> bool {
        self.no_reclaim.is_none() && !self.has_others
    }

    /// Makes `target` so and reads back what holds.
    ///
    /// # Errors
    ///
    /// The state file cannot be written; what was enacted before stays, and can still be undone.
    pub fn enact(&mut self, target: &Target) -> Result<Enacted, Error> {
        let mut report = Enacted { mode: Some(self.mode()), ..Enacted::default() };
        self.journal.forget_gone(&self.kernel)?;
        self.asleep.clear();
        self.keep_admission_off(monotonic_ns())?;
        // The cause, before the threads that it is the cause for.
        self.report_admission(&mut report);
        self.notice_what_changed();
        let mut wanted: BTreeMap<u32, (Identity, &Wanted)> = BTreeMap::new();
        for one in &target.reservations {
            match self.identify(one.pid, one.tid) {
                Some(thread) => drop(wanted.insert(one.tid, (thread, one))),
                None => report.gone += 1,
            }
        }
        let best_effort: Vec<(u32, u32)> =
            target.best_effort.iter().copied().filter(|(_, tid)| !wanted.contains_key(tid)).collect();
        let named = wanted.keys().copied().chain(best_effort.iter().map(|(_, tid)| *tid)).collect();
        self.helpers.set_processes(&target.processes, named);
        let others = self.others();
        let all = wanted.values().map(|(thread, _)| (thread.pid, thread.tid));
        let all: Vec<_> = all.chain(best_effort.iter().copied()).chain(others.iter().copied()).collect();
        self.journal.record(&self.kernel, all, self.partition.mode.groups())?;

        let share = |one: &Wanted| one.held.budget_ns as f64 / one.held.period_ns.max(1) as f64;
        let planned: Vec<(usize, f64)> =
            wanted.values().map(|(_, one)| (one.held.core, share(one))).collect();
        self.foreign(&mut report, &planned, target.alone, &wanted.keys().copied().collect());
        self.reservations(&wanted, &mut report);
        self.fill(&mut report);
        let spread = if self.options.helpers { self.to_spread(&others) } else { Vec::new() };
        self.best_effort(&best_effort, &spread, &mut report)?;
        if self.options.helpers {
            self.helpers(&others, monotonic_ns(), true, &mut report)?;
        }
        if !self.system_done {
            self.system_done = true;
            self.kernel_helpers(&mut report)?;
        }
        self.read_back(&wanted, &mut report);
        Ok(report)
    }

    /// The thread of these numbers; one that was recorded and is still there is not read anew.
    fn identify(&self, pid: u32, tid: u32) -> Option<Identity> {
        let before = self.journal.before(pid, tid).map(|before| before.thread);
        before
            .filter(|thread| self.kernel.is_alive(thread))
            .or_else(|| system::identify(&self.kernel, pid, tid))
    }

    /// Forgets reservations whose thread is gone, or that somebody else has ended or changed: they
    /// are given anew.
    fn notice_what_changed(&mut self) {
        let differs = |tid: &u32| self.difference_of(*tid).is_some();
        let changed: Vec<u32> = self.kept.keys().copied().filter(differs).collect();
        let kernel = &self.kernel;
        let dead = |tid: &u32| kernel.attributes(*tid).is_ok_and(|has| has.is_of_dead());
        self.kept.retain(|tid, kept| {
            !changed.contains(tid) && !dead(tid) && system::is_alive(kernel, &kept.thread)
        });
    }

    fn best_effort(
        &mut self,
        threads: &[(u32, u32)],
        helpers: &[(u32, u32)],
        report: &mut Enacted,
    ) -> Result<(), Error> {
        let all: Vec<(u32, u32)> = threads.iter().chain(helpers).copied().collect();
        let spots = self.spots(&all)?;
        for (index, (&(pid, tid), spot)) in all.iter().zip(spots).enumerate() {
            let Some(before) = self.journal.before(pid, tid).cloned() else { continue };
            let outcome = self.settle(&before, spot);
            match outcome {
                Ok(changed) => {
                    report.changes += usize::from(changed);
                    report.best_effort += usize::from(index < threads.len());
                }
                Err(error) if partition::gone(&error) => {}
                Err(error) => report.differences.push(Difference {
                    tid,
                    name: before.name.clone(),
                    asked: format!("{} on {}", before.attributes, spot.unwrap_or(before.cpus)),
                    has: error.to_string(),
                    reservation: false,
                }),
            }
        }
        Ok(())
    }

    /// CPUs for best-effort threads; `None`: their present ones.
    fn spots(&mut self, threads: &[(u32, u32)]) -> Result<Vec<Option<CpuSet>>, Error> {
        if self.partition.balances() {
            return Ok(vec![None; threads.len()]);
        }
        let online = self.kernel.online().map_err(Error::Online)?;
        let reserved: BTreeMap<usize, f64> = self
            .platform
            .cores
            .iter()
            .map(|&core| {
                let held = self.kept.values().filter(|kept| kept.held.core == core);
                let share = held.map(|kept| kept.held.budget_ns as f64 / kept.held.period_ns.max(1) as f64);
                (core, share.sum())
            })
            .collect();
        let spots = self.spread.assign(&self.kernel, threads, &reserved, &online);
        for spot in spots.iter().flatten() {
            self.journal.give(*spot)?;
        }
        Ok(spots)
    }

    fn settle(&mut self, before: &ThreadBefore, spot: Option<CpuSet>) -> std::io::Result<bool> {
        let tid = before.thread.tid;
        let mut changed = false;
        let now = self.kernel.attributes(tid)?;
        if now != before.attributes {
            self.kernel.set_attributes(tid, &before.attributes)?;
            changed = true;
        }
        let cpus = spot.unwrap_or(before.cpus);
        if self.kernel.affinity(tid)? != self.partition.shown(&cpus) {
            changed = true;
        }
        self.partition.settle(&mut self.kernel, before, &cpus)?;
        Ok(changed)
    }

    fn read_back(&self, wanted: &BTreeMap<u32, (Identity, &Wanted)>, report: &mut Enacted) {
        for (&tid, (thread, one)) in wanted {
            if report.differences.iter().any(|known| known.tid == tid && known.reservation) {
                continue;
            }
            let (Ok(has), Ok(cpus)) = (self.kernel.attributes(tid), self.kernel.affinity(tid)) else {
                report.gone += 1;
                continue;
            };
            if has.is_of_dead() || !system::is_alive(&self.kernel, thread) {
                report.gone += 1;
                continue;
            }
            if let Some(difference) = self.compare(tid, &one.name, &one.held, (&has, &cpus)) {
                report.differences.push(difference);
            }
            if has.is_deadline() {
                report.reserved.push(Reserved {
                    pid: thread.pid,
                    tid,
                    name: one.name.clone(),
                    budget_ns: has.runtime_ns,
                    period_ns: has.period_ns,
                    cpus,
                });
            }
        }
    }

    /// Gives a thread its reservation once more, with other flags.
    fn renew(&mut self, tid: u32) {
        let Some(kept) = self.kept.get(&tid) else { return };
        let attributes = self.attributes_of(&kept.held);
        // A failure shows at the next plan, which reads everything back.
        let _ = self.kernel.set_attributes(tid, &attributes);
    }

    /// Makes the sums of reservations equal on all CPUs, which reclaiming needs where they share
    /// one domain ([`reclaim`]).
    fn fill(&mut self, report: &mut Enacted) {
        // Those that were given before somebody else came, or before he went.
        let differs =
            |tid: &u32| self.kernel.attributes(*tid).is_ok_and(|has| has.reclaims() != self.reclaims());
        let stale: Vec<u32> = self.kept.keys().copied().filter(differs).collect();
        stale.into_iter().for_each(|tid| self.renew(tid));
        if self.no_reclaim.is_some() || self.mode() != Mode::AdmissionOff {
            return;
        }
        let Ok(online) = self.kernel.online() else { return };
        let mut used: BTreeMap<usize, f64> = BTreeMap::new();
        for kept in self.kept.values() {
            *used.entry(kept.held.core).or_default() +=
                kept.held.budget_ns as f64 / kept.held.period_ns.max(1) as f64;
        }
        let most = self.platform.cores.iter().map(|core| self.platform.most_on(*core));
        let sum = most.chain(used.values().copied()).fold(0.0, f64::max);
        for (cpu, filler) in reclaim::fillers(online.iter(), &used, sum) {
            if let Err(error) = self.kernel.fill(cpu, filler.as_ref()) {
                // Without it reclaiming would harm others.
                self.no_reclaim = Some(format!("the filler of CPU {cpu} was refused: {error}"));
                self.end_fillers();
                let tids: Vec<u32> = self.kept.keys().copied().collect();
                tids.into_iter().for_each(|tid| self.renew(tid));
                report.differences.push(Difference {
                    tid: 0,
                    name: "reclaiming".into(),
                    asked: "a sleeping reservation on each CPU".into(),
                    has: error.to_string(),
                    reservation: false,
                });
                return;
            }
        }
    }

    fn end_fillers(&mut self) {
        for cpu in self.kernel.online().iter().flat_map(CpuSet::iter) {
            let _ = self.kernel.fill(cpu, None);
        }
    }

    /// Looks for threads that have used up their budget since the last call; in soft mode helps
    /// them where the kernel does not. To be called every few periods.
    pub fn watch(&mut self, now_ns: u64) -> Vec<Overrun> {
        self.wake();
        // A state file that cannot be written is reported at the next plan; nothing is changed
        // until then.
        let _ = self.attend(now_ns);
        let answer = match (self.options.soft, &self.no_reclaim) {
            (Soft::Reclaim, _) | (Soft::Soft, Some(_)) => overrun::Answer::Release,
            _ => overrun::Answer::Report,
        };
        let (overruns, actions) = self.watch.look(&self.kernel, now_ns, &self.kept, answer);
        for action in actions {
            match action {
                overrun::Action::Release(tid) => {
                    let Some(kept) = self.kept.get(&tid).cloned() else { continue };
                    let Some(before) = self.journal.before(kept.thread.pid, tid).cloned() else { continue };
                    if self.end_reservation(tid, Some(&before)).is_ok() {
                        let _ = self.partition.displace(&mut self.kernel, &before);
                    }
                }
                overrun::Action::Reserve(tid) => {
                    let Some(kept) = self.kept.get(&tid).cloned() else { continue };
                    let (attributes, pid) = (self.attributes_of(&kept.held), kept.thread.pid);
                    let core = kept.held.core;
                    if self.partition.reserve(&mut self.kernel, pid, tid, core, &attributes).is_err() {
                        self.kept.remove(&tid);
                    }
                }
            }
        }
        overruns
    }

    /// Undoes everything.
    ///
    /// # Errors
    ///
    /// The state file cannot be deleted. Changes that could not be undone are in the result, and
    /// the file stays for another attempt.
    pub fn restore(mut self) -> Result<Restored, Error> {
        self.end_fillers();
        Ok(self.journal.undo(&mut self.kernel)?)
    }
}

impl<K: Kernel> Drop for Enactor<K> {
    fn drop(&mut self) {
        // Also when a panic or an early return passes by; after `restore` nothing is left to do.
        self.end_fillers();
        let _ = self.journal.undo(&mut self.kernel);
    }
}

#[cfg(test)]
mod looks_tests;
#[cfg(test)]
mod tests;

//! The loop: events in, a plan every few seconds, enacted and watched; what holds and what it
//! costs, for all to see.
//!
//! One thread does all of it, on the system core and without urgency: a manager that is late makes
//! a plan later, and nothing else. It looks at events every few milliseconds (rings must not
//! overflow, and exhausted budgets should be noticed), which costs little where there is nothing to
//! see.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};

use takt_model::{
    ChainSpec, ChainStats, Completion, Extractor, Model, Reorder, Skip, Thread, ThreadRole, WatchId,
};
use takt_ros::Source;
use takt_rt::clock::{monotonic_ns, process_cpu_ns, thread_cpu_ns};
use takt_rt::placement::CpuSet;
use takt_rt::policy::Policy;

use crate::enact::{Enacted, Enactor, Overrun, Soft, Target};
use crate::goals::Goals;
use crate::manager::Manager;
use crate::never::{self, DidNotRun};
use crate::plan::{Plan, Platform};
use crate::restore::guard::Guard;
use crate::system::{Kernel, Linux};

pub mod account;
pub mod assumption;
mod drive;
mod evidence;
mod follow;
mod jitter;
pub mod launch;
mod ledger;
mod log;
mod measure;
pub mod metrics;
mod network;
mod observations;
mod status;
mod strays;
mod types;
mod verdict;

pub use assumption::{Assumption, Interval, Standing, State};
pub use drive::Drive;
pub use log::{Change, Listener, Log};
pub use status::{BUCKETS_NS, Board, BoundSum, ChainStatus, Cost, ReservationStatus, Run, Status};
pub use types::{Error, Finished, Options};

use ledger::{Findings, Ledger};
use log::Record;
use measure::measure;

/// Time from the first event to the first plan where the model of an earlier run is known.
const KNOWN_PLAN_NS: u64 = 1_000_000_000;

/// Reservations are read back so often: two system calls for each thread, which is less than a
/// ten-thousandth of a CPU for thirty of them, and a word that is no longer true stands no longer
/// than it takes a person to read it.
const CHECK_NS: u64 = 250_000_000;

/// A chain's measurement.
#[derive(Debug)]
struct Watched {
    id: WatchId,
    path: Vec<String>,
}

/// The running manager.
#[derive(Debug)]
pub struct Live<S: Source, K: Kernel = Linux> {
    source: S,
    order: Reorder,
    extractor: Extractor,
    manager: Manager,
    enactor: Option<Enactor<K>>,
    watchdog: Option<Guard>,
    /// Number of ends of the watchdog at the last report.
    watchdog_again: u32,
    options: Options,
    board: Board,
    started_ns: u64,
    next_plan_ns: Option<u64>,
    next_status_ns: u64,
    plan: Option<Plan>,
    model: Model,
    /// Threads of executors that had ended at the last look.
    ended: BTreeSet<u32>,
    enacted: Enacted,
    /// Every path that a chain ever took, by its place in the goals: what was measured is not
    /// forgotten when another path is the longest.
    watched: BTreeMap<usize, Vec<Watched>>,
    overruns: BTreeMap<u32, u64>,
    /// Since the last plan, for the log.
    fresh_overruns: BTreeMap<u32, (Overrun, u64)>,
    cost: Cost,
    cpu_at_start_ns: u64,
    plans: u64,
    cached: u64,
    /// Wall clock less monotonic clock.
    clock_offset_ns: i64,
    /// Error of the clocks for chains that begin on other machines, and its last known value.
    clocks: Option<crate::clocks::Watch>,
    clock: crate::clocks::ClockError,
    /// Record of each chain over the whole run.
    ledger: Ledger,
    /// Events lost at the last look.
    lost: u64,
    /// When the last plan was made, and what it took: an observation against it is answered at
    /// once, but not with all of a CPU.
    planned: Option<(u64, u64)>,
    /// Findings since the last poll that need action.
    found: Findings,
    next_check_ns: u64,
    /// Callbacks that did not run on the paths of chains.
    never: Vec<Option<DidNotRun>>,
}

impl<S: Source> Live<S> {
    /// On the running kernel.
    ///
    /// # Errors
    ///
    /// Nothing can be enacted here, or an option is out of range; everything is as it was.
    pub fn new(goals: Goals, platform: Platform, source: S, options: Options) -> Result<Self, Error> {
        Self::with_kernel(goals, platform, source, options, Linux::new())
    }
}

impl<S: Source, K: Kernel> Live<S, K> {
    /// On any kernel.
    ///
    /// # Errors
    ///
    /// As [`Live::new`].
    pub(crate) fn with_kernel(
        goals: Goals,
        mut platform: Platform,
        source: S,
        mut options: Options,
        kernel: K,
    ) -> Result<Self, Error> {
        let model = goals.learning(&options.model);
        model.validate()?;
        let horizon_ns = model.horizon_ns;
        match (goals.options.policy, goals.options.soft_reservations, goals.options.reclaim_unused) {
            (crate::Policy::RosLlama, _, reclaim) => {
                options.enact.soft = if reclaim { Soft::Grub } else { Soft::Hard };
                options.enact.confine_helpers = true;
                // It learns anew with each start.
                options.kept = None;
            }
            (_, true, _) => options.enact.soft = Soft::Soft,
            (_, false, false) => options.enact.soft = Soft::Hard,
            (_, false, true) => {}
        }
        if let Some(ways) = &goals.options.ways {
            options.enact.modes.clone_from(ways);
        }
        let now_ns = monotonic_ns();
        let ledger = Ledger::new(&goals, options.observe, now_ns);
        let mut watchdog = None;
        let enactor = if options.observe {
            None
        } else {
            // Before the first change.
            if let Some(command) = options.watchdog {
                let state = options.enact.state.clone();
                watchdog = Some(Guard::start(move || command(&state)).map_err(Error::Watchdog)?);
            }
            Some(Enactor::new(kernel, &platform, options.enact.clone())?)
        };
        if let Some(enactor) = &enactor {
            platform.enforcement_ns = enactor.enforcement().granularity_ns;
        }
        let (clocks, clock) = network::watch(&goals);
        let mut live = Self {
            clocks,
            clock,
            source,
            order: Reorder::new(takt_model::order::HOLD_NS),
            extractor: Extractor::new(model),
            manager: Manager::new(goals, platform).keeping(horizon_ns),
            enactor,
            watchdog,
            watchdog_again: 0,
            options,
            board: Board::default(),
            started_ns: now_ns,
            next_plan_ns: None,
            next_status_ns: now_ns,
            plan: None,
            model: Model::default(),
            ended: BTreeSet::new(),
            enacted: Enacted::default(),
            watched: BTreeMap::new(),
            overruns: BTreeMap::new(),
            fresh_overruns: BTreeMap::new(),
            cost: Cost::default(),
            cpu_at_start_ns: process_cpu_ns(),
            plans: 0,
            cached: 0,
            clock_offset_ns: network::ahead_ns(),
            ledger,
            lost: 0,
            planned: None,
            found: Findings::default(),
            next_check_ns: now_ns,
            never: Vec::new(),
        };
        live.introduce(now_ns);
        Ok(live)
    }

    fn introduce(&mut self, now_ns: u64) {
        if self.manager.goals().options.policy == crate::Policy::RosLlama {
            let words = "plans by the paper's manager (ros-llama): Algorithms 1 and 2 of ROS-Llama, and nothing of Takt's own";
            self.note(now_ns, words);
        }
        let Some(enactor) = &self.enactor else {
            return self.note(now_ns, "observing only: takt changes nothing");
        };
        let mut words = format!("reservations by {}", enactor.mode());
        for refusal in enactor.refusals() {
            words.push_str(&format!("\n  not by {refusal}"));
        }
        if let Some(left) = enactor.left_behind() {
            words.push_str(&format!("\n  an earlier manager did not shut down cleanly: {left}"));
        }
        words.push_str(&format!("\n  budgets are enforced {}", enactor.enforcement().by));
        match enactor.no_reclaim() {
            Some(why) => words.push_str(&format!("\n  unused reserved time stays unused: {why}")),
            None => words.push_str("\n  unused reserved time goes to reservations that want more"),
        }
        self.note(now_ns, &words);
    }

    fn note(&mut self, now_ns: u64, words: &str) {
        self.options.log.record(now_ns, &Record::Note { words });
    }

    /// Holder of the status; to be read from any thread.
    #[must_use]
    pub fn board(&self) -> Board {
        self.board.clone()
    }

    /// The source, to inform it that no more processes will come.
    pub fn source_mut(&mut self) -> &mut S {
        &mut self.source
    }

    /// The last plan.
    #[must_use]
    pub fn plan(&self) -> Option<&Plan> {
        self.plan.as_ref()
    }

    /// The last model.
    #[must_use]
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The extractor, for what it measured.
    #[must_use]
    pub fn extractor(&self) -> &Extractor {
        &self.extractor
    }

    /// Measurements of a chain, by its place in the goals: one for each path that it took.
    pub(crate) fn watch_ids(&self, chain: usize) -> impl Iterator<Item = WatchId> + '_ {
        self.watched.get(&chain).into_iter().flatten().map(|watched| watched.id)
    }

    /// Completions of chains since the last call, by the chains' places in the goals.
    pub fn completions(&mut self) -> Vec<(usize, Vec<Completion>)> {
        let extractor = &mut self.extractor;
        let mut drained = |watched: &Watched| extractor.watched_mut(watched.id).map(|stats| stats.drain());
        let chains = self.watched.iter();
        chains
            .map(|(&chain, paths)| (chain, paths.iter().filter_map(&mut drained).flatten().collect()))
            .collect()
    }

    /// State of a chain, by its place in the goals.
    #[must_use]
    pub fn state(&self, chain: usize) -> State {
        self.ledger.chains.get(chain).map_or(State::Learning, |chain| chain.state)
    }

    /// Releases of chains' first timers that never ran, since the last call, by the chains' places
    /// in the goals. Of a chain with several paths each was seen on all of them.
    pub fn skips(&mut self) -> Vec<(usize, Vec<Skip>)> {
        let extractor = &mut self.extractor;
        let mut drained = Vec::new();
        for (&chain, paths) in &self.watched {
            let mut all = Vec::new();
            for watched in paths {
                let skips = extractor.watched_mut(watched.id).map(ChainStats::drain_skips);
                for skip in skips.unwrap_or_default() {
                    if !all.contains(&skip) {
                        all.push(skip);
                    }
                }
            }
            drained.push((chain, all));
        }
        drained
    }

    /// Runs until `stop` is set or the source ends. The thread goes to the system core unless it
    /// only observes.
    ///
    /// # Errors
    ///
    /// The source is broken for good, or the state file can no longer be written.
    pub fn run(&mut self, stop: &AtomicBool) -> Result<(), Error> {
        let home = self.settle();
        let outcome = self.turns(stop);
        if let Some(home) = home {
            // The thread may have other things to do afterwards.
            let _ = takt_rt::placement::set_affinity(0, &home);
            let _ = Policy::Other { nice: 0 }.apply(0);
        }
        outcome
    }

    fn turns(&mut self, stop: &AtomicBool) -> Result<(), Error> {
        while !stop.load(Ordering::Acquire) {
            if !self.step(monotonic_ns())? {
                break;
            }
            std::thread::sleep(self.options.poll);
        }
        Ok(())
    }

    /// Plans made so far.
    #[must_use]
    pub fn plans(&self) -> u64 {
        self.plans
    }

    /// Brings the calling thread to the system core, unless the manager only observes; returns
    /// where it was. [`Live::run`] does it by itself.
    pub fn settle(&mut self) -> Option<CpuSet> {
        self.enactor.as_ref()?;
        let home = takt_rt::placement::affinity(0).ok()?;
        let platform = self.manager.platform();
        let core = platform.system_core;
        // If that core accepts reservations, too, a thread confined to it waits for them; the
        // kernel finds a better place.
        if !platform.cores.contains(&core) {
            let outcome = CpuSet::single(core).and_then(|cpus| takt_rt::placement::set_affinity(0, &cpus));
            if let Err(error) = outcome {
                self.note(monotonic_ns(), &format!("the manager itself stays on its CPUs: {error}"));
            }
        }
        // Without urgency, but with weight: it needs a hundredth of the core, and on a crowded one
        // a fair share of a twentieth comes in pieces that are seconds apart. Where that is not
        // allowed, it goes without.
        let _ = Policy::Other { nice: -10 }.apply(0);
        Some(home)
    }

    /// One turn: all events that are there, and a plan when it is due. False: the source has ended.
    ///
    /// # Errors
    ///
    /// As [`Live::run`].
    pub fn step(&mut self, now_ns: u64) -> Result<bool, Error> {
        let began_ns = thread_cpu_ns();
        let (order, mut count) = (&mut self.order, 0_u64);
        let polled = self.source.poll(&mut |event| {
            count += 1;
            order.push(event);
        });
        polled.map_err(|error| Error::Source(Box::new(error)))?;
        let ended = self.source.ended();
        // Stamps of publishers that are not observed are of the day's clock: whether it was set
        // must be known before they are read.
        self.extractor.clock(now_ns, network::ahead_ns());
        let extractor = &mut self.extractor;
        match ended {
            true => order.finish(|event| extractor.event(event)),
            false => order.release(now_ns, |event| extractor.event(event)),
        }
        self.look_at_ended();
        let after_ns = thread_cpu_ns();
        self.cost.extract_ns += after_ns.saturating_sub(began_ns);
        let period_ns = (self.manager.goals().options.update_period_s * 1e9) as u64;
        // The first plan a period after the first event: what starts up is not yet what runs.
        if self.next_plan_ns.is_none() && count > 0 {
            // The model of an earlier run is available at once; one second is enough for all
            // processes to appear.
            let known = self.options.kept.as_ref().is_some_and(|kept| !kept.is_empty());
            self.next_plan_ns = Some(now_ns + if known { period_ns.min(KNOWN_PLAN_NS) } else { period_ns });
        }
        let checks = now_ns >= self.next_check_ns;
        if checks {
            self.next_check_ns = now_ns + CHECK_NS;
        }
        if let Some(enactor) = &mut self.enactor {
            for overrun in enactor.watch(now_ns) {
                let words = follow::overrun_words(&overrun);
                self.ledger.overrun(now_ns, overrun.tid, &words, &mut self.found);
                self.manager.overrun(overrun.tid, now_ns);
                *self.overruns.entry(overrun.tid).or_default() += 1;
                let (kept, times) =
                    self.fresh_overruns.entry(overrun.tid).or_insert_with(|| (overrun.clone(), 0));
                kept.released |= overrun.released;
                *times += 1;
            }
            let mut notes = Vec::new();
            if checks {
                let again = enactor.keep_admission_off(now_ns)?;
                // Reservations refused in the meantime are requested again at once.
                self.found.replan |= again && !self.enacted.holds();
                notes = enactor.admission_notes();
                for difference in enactor.check() {
                    self.ledger.differs(now_ns, difference.tid, &difference.to_string(), &mut self.found);
                }
                self.ledger.uncarried(enactor.uncarried());
            }
            self.cost.enact_ns += thread_cpu_ns().saturating_sub(after_ns);
            notes.iter().for_each(|words| self.note(now_ns, words));
        }
        self.follow(now_ns);
        // When everything has ended there is nothing left to plan for, but a look at what was
        // there.
        let due = self.next_plan_ns.is_some_and(|due_ns| now_ns >= due_ns);
        if (due && !ended) || (ended && self.plans == 0) {
            // A manager that was held up for long makes one plan, not many.
            self.next_plan_ns = Some(now_ns + period_ns);
            self.decide(now_ns)?;
            self.follow(now_ns);
        }
        if now_ns >= self.next_status_ns || ended {
            self.next_status_ns = now_ns + self.options.renew.as_nanos() as u64;
            if self.board.is_shown() {
                self.board.put(self.status(now_ns));
            }
        }
        Ok(!ended)
    }

    /// Makes a plan of what is known now, and enacts it.
    ///
    /// # Errors
    ///
    /// The state file can no longer be written.
    pub fn decide(&mut self, now_ns: u64) -> Result<(), Error> {
        let (began_ns, decides_ns) = (thread_cpu_ns(), monotonic_ns());
        let model = self.extractor.snapshot(now_ns);
        let over = !model.threads.is_empty() && model.threads.iter().all(|thread| thread.ended);
        if over && self.enactor.is_none() && self.plan.is_some() {
            // An observing manager keeps the plan of the processes that ran; none is running that
            // needs another one.
            return Ok(());
        }
        let executor = |thread: &&Thread| thread.ended && matches!(thread.role, ThreadRole::Executor(_));
        let ended = model.threads.iter().filter(executor).map(|thread| thread.tid).collect();
        let fresh = !self.ended.is_superset(&ended);
        self.ended = ended;
        if self.enactor.is_none() && self.plan.is_some() && (fresh || self.ledger.is_ending(now_ns)) {
            // Or there will be nothing that runs in a moment: what was run to its end is reported
            // by a plan for all of it, and not for those that happened to be last.
            self.next_plan_ns = Some(now_ns + ledger::ALL_END_NS);
            return Ok(());
        }
        self.model = model;
        let words = self.options.kept.as_mut().map(|kept| kept.complete(&mut self.model));
        words.into_iter().flatten().for_each(|words| self.note(now_ns, &words));
        let modelled_ns = thread_cpu_ns();
        let mut plan = self.manager.plan(&self.model);
        self.look_for_silent(&mut plan);
        let planned_ns = thread_cpu_ns();
        self.cost.model_ns += modelled_ns.saturating_sub(began_ns);
        self.cost.reading_ns += plan.model_ns;
        self.cost.timing_ns += plan.timing_ns;
        self.cost.budgeting_ns += plan.budgeting_ns;
        self.cost.plan_ns += planned_ns.saturating_sub(modelled_ns);
        self.plans += 1;
        if plan.cached {
            self.cached += 1;
        } else {
            self.cost.last_analysis_ns = plan.analysis_ns;
        }
        self.cost.worst_analysis_ns = self.cost.worst_analysis_ns.max(plan.analysis_ns);
        self.cost.worst_analysis_wall_ns = self.cost.worst_analysis_wall_ns.max(plan.analysis_wall_ns);
        self.board.put_model(&self.model);
        self.watch_chains(&plan);
        let number = self.plans;
        let (chains, decisions) = (&plan.chains, &plan.decisions);
        self.options.log.record(now_ns, &Record::Plan { number, plan: &plan, chains, decisions });
        self.keep_watchdog(now_ns)?;
        let held = std::mem::take(&mut self.enacted.reserved);
        let mut enacting = None;
        if let Some(enactor) = &mut self.enactor {
            self.enacted = enactor.enact(&Target::new(&plan, &self.model))?;
            let ended_ns = now_ns + monotonic_ns().saturating_sub(decides_ns);
            enacting = (self.enacted.changes > 0).then_some((now_ns, ended_ns));
            self.manager.beside_others(enactor.has_others());
            self.cost.enact_ns += thread_cpu_ns().saturating_sub(planned_ns);
            self.options.log.record(now_ns, &Record::Enacted { number, enacted: &self.enacted });
        }
        let fresh: Vec<(Overrun, u64)> = std::mem::take(&mut self.fresh_overruns).into_values().collect();
        if !fresh.is_empty() {
            self.options.log.record(now_ns, &Record::Overruns { threads: &fresh });
        }
        let alive: BTreeSet<u32> =
            self.model.threads.iter().filter(|thread| !thread.ended).map(|thread| thread.tid).collect();
        self.overruns.retain(|tid, _| alive.contains(tid));
        self.notice_clock_step(now_ns);
        self.allow_for_clocks(&plan);
        self.ground(now_ns, &plan, &held, enacting);
        if !self.enacted.holds() {
            // A refuted model is not a basis for the next plan. (But that it does not is what takes
            // the word from its chains, so that the grounds are known first.)
            self.manager.forget();
        }
        self.planned = Some((now_ns, thread_cpu_ns().saturating_sub(began_ns)));
        self.plan = Some(plan);
        let mut status = self.status(now_ns);
        // The log itself has those lines already.
        let recent = std::mem::take(&mut status.recent);
        self.options.log.record(now_ns, &Record::Status { status: &status });
        self.board.put(Status { recent, ..status });
        Ok(())
    }

    /// Notes what did not run on the ways of chains.
    fn look_for_silent(&mut self, plan: &mut Plan) {
        let fresh = never::look(&self.model, self.manager.goals(), plan);
        keep_silent(&mut self.never, fresh, &self.model);
    }

    /// The same of processes that have ended since the last look, as they were then.
    fn look_at_ended(&mut self) {
        let Some(plan) = &self.plan else { return };
        for model in self.extractor.take_farewells() {
            let fresh = never::find(&model, self.manager.goals(), plan);
            keep_silent(&mut self.never, fresh, &model);
        }
    }

    fn keep_watchdog(&mut self, now_ns: u64) -> Result<(), Error> {
        let Some(watchdog) = &self.watchdog else { return Ok(()) };
        let again = watchdog.check().map_err(Error::Watchdog)?;
        if again > std::mem::replace(&mut self.watchdog_again, again) {
            self.note(now_ns, "the watchdog had ended and was restarted");
        }
        Ok(())
    }

    /// All times are of the monotonic clock, but for the stamps of messages whose publishers are
    /// not observed ([`Extractor::clock`]).
    fn notice_clock_step(&mut self, now_ns: u64) {
        let offset_ns = network::ahead_ns();
        let step_ns = offset_ns - self.clock_offset_ns;
        self.clock_offset_ns = offset_ns;
        if step_ns.abs() > 500_000_000 {
            let words = format!(
                "the wall clock was changed by {:.3} s. Measurements use the monotonic clock, except for messages from publishers that are \
                 not observed: those received within the next second are not measured",
                step_ns as f64 / 1e9
            );
            self.note(now_ns, &words);
        }
    }

    /// Measures each chain that was found, along the path of its greatest bound, and awaits its
    /// instances on each way that it can still go.
    fn watch_chains(&mut self, plan: &Plan) {
        let alive = |callback: &takt_model::Callback| {
            let executor = self.model.executors.get(callback.executor.0);
            let mut threads = executor.into_iter().flat_map(|executor| &executor.threads);
            threads.any(|id| self.model.threads.get(id.0).is_some_and(|thread| !thread.ended))
        };
        let alive: BTreeSet<&str> = self
            .model
            .callbacks
            .iter()
            .filter(|callback| alive(callback))
            .map(|callback| callback.name.as_str())
            .collect();
        for (index, chain) in plan.chains.iter().enumerate() {
            let known = self.watched.entry(index).or_default();
            if chain.path_names.is_empty() {
                continue;
            }
            for way in known.iter() {
                let goes = way.path == chain.path_names
                    || way.path.iter().all(|callback| alive.contains(callback.as_str()));
                if let Some(stats) = self.extractor.watched_mut(way.id) {
                    stats.await_ends(goes);
                }
            }
            if known.iter().any(|known| known.path == chain.path_names) {
                continue;
            }
            let (name, path) = (chain.name.clone(), chain.path_names.clone());
            let id =
                self.extractor.watch(ChainSpec { name, path: path.clone(), goal_ns: Some(chain.goal_ns) });
            known.push(Watched { id, path });
        }
    }

    /// The state now.
    #[must_use]
    pub fn status(&self, now_ns: u64) -> Status {
        let goals = self.manager.goals();
        let chains = goals.chains.iter().enumerate().map(|(index, goal)| {
            let planned = self.plan.as_ref().and_then(|plan| plan.chains.get(index));
            let mut chain = ChainStatus {
                name: goal.name.clone(),
                goal_ns: goal.goal_ns,
                path: planned.map(|chain| chain.path_names.clone()).unwrap_or_default(),
                bound_ns: planned.and_then(|chain| chain.bound_ns),
                bound_by: planned.map(|chain| chain.bound_by.clone()).unwrap_or_default(),
                bound_parts: planned.and_then(status::BoundSum::of),
                measured_bound_ms: planned
                    .and_then(|chain| chain.measured_bound_ns)
                    .map(|ns| ns as f64 / 1e6),
                ..ChainStatus::default()
            };
            let measured: Vec<&ChainStats> =
                self.watch_ids(index).filter_map(|id| self.extractor.watched(id)).collect();
            measure(&mut chain, &measured, self.read_until(now_ns));
            self.stand(index, &mut chain, now_ns);
            chain
        });
        let chains = chains.collect();
        let reservations = self.enacted.reserved.iter().map(|one| ReservationStatus {
            pid: one.pid,
            tid: one.tid,
            name: one.name.clone(),
            budget_ns: one.budget_ns,
            period_ns: one.period_ns,
            cpus: one.cpus.to_string(),
            overruns: self.overruns.get(&one.tid).copied().unwrap_or(0),
        });
        let counters = self.extractor.counters();
        let running_ns = now_ns.saturating_sub(self.started_ns);
        let loop_ns = self.cost.extract_ns + self.cost.model_ns + self.cost.plan_ns + self.cost.enact_ns;
        let share = |ns: u64| if running_ns == 0 { 0.0 } else { ns as f64 / running_ns as f64 };
        let alive = self.model.threads.iter().filter(|thread| !thread.ended).map(|thread| thread.pid);
        Status {
            at_ns: now_ns,
            running_ns,
            observes: self.enactor.is_none(),
            mode: self.enactor.as_ref().map(|enactor| enactor.mode().to_string()),
            plans: self.plans,
            cached: self.cached,
            chains,
            reservations: reservations.collect(),
            best_effort: self.enacted.best_effort,
            helpers: self.enacted.helpers,
            differences: self.enacted.differences.iter().map(ToString::to_string).collect(),
            holds: self.enactor.is_some() && self.plan.is_some() && self.enacted.holds(),
            cost: Cost {
                cpu_share: share(process_cpu_ns().saturating_sub(self.cpu_at_start_ns)),
                loop_share: share(loop_ns),
                ..self.cost
            },
            events: counters.events,
            lost: counters.lost_events,
            processes: alive.collect::<BTreeSet<_>>().len(),
            callbacks: self.model.callbacks.len(),
            most_bandwidth: goals.options.max_bandwidth,
            slack: self.plan.as_ref().and_then(|plan| plan.slack),
            recent: self.options.log.recent(),
            gaps: self.extractor.gaps().clone(),
        }
    }

    /// Ends: everything is restored.
    ///
    /// # Errors
    ///
    /// The state file cannot be deleted.
    pub fn finish(mut self) -> Result<Finished, Error> {
        let now_ns = monotonic_ns();
        if self.is_over() {
            self.ledger.all_over(now_ns);
        }
        self.look_at_ended();
        let last = self.extractor.snapshot(now_ns);
        if let Some(plan) = &self.plan {
            let fresh = never::find(&last, self.manager.goals(), plan);
            keep_silent(&mut self.never, fresh, &last);
        }
        let status = self.status(now_ns);
        let restored = self.enactor.take().map(Enactor::restore).transpose()?;
        if let Some(restored) = &restored {
            self.note(now_ns, &restored.to_string());
        }
        let mut model = self.extractor.snapshot(now_ns);
        if model.callbacks.is_empty() {
            // Everything has ended: the last model that was planned for.
            model = self.model;
        }
        Ok(Finished { status, restored, plan: self.plan, model, kept: self.options.kept })
    }
}

/// Known values stay if the callback is no longer in the model because its process has ended.
fn keep_silent(known: &mut Vec<Option<DidNotRun>>, fresh: Vec<Option<DidNotRun>>, model: &Model) {
    known.resize(fresh.len(), None);
    let is_gone = |it: &DidNotRun| !model.callbacks.iter().any(|callback| callback.name == it.callback);
    for (known, fresh) in known.iter_mut().zip(fresh) {
        *known = fresh.or_else(|| known.take_if(|it| is_gone(it)));
    }
}

#[cfg(test)]
mod tests;

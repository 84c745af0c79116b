//! A system without goals: which chains it has, how long they take, and a goals file to begin from.
//!
//! [`Learner`] only looks. Chains are looked for again and again while the model grows
//! ([`select`]), and every way of each is measured from the moment on that it is known; [`Learnt`]
//! holds what came of it, with goals proposed from what was measured and a plan for them. The text
//! of the goals file is [`Learnt::goals_text`].

mod propose;
pub(crate) mod select;
#[cfg(test)]
mod tests;
mod write;

use std::collections::BTreeMap;

use serde::Serialize;
use takt_model::{ChainSpec, ChainStats, Extractor, Model, OptionsError, Reorder, WatchId};
use takt_ros::{Event, Source};

use crate::goals::Goals;
use crate::plan::{Plan, Platform};
use crate::recorded;

pub use propose::GOAL_FACTOR;
pub use select::{Candidate, Selected, select};
pub use write::comment;

/// Ways of one chain that are measured; the longest are.
const WAYS: usize = 4;
/// Ways measured in all: each costs a little with every event of its callbacks.
const MAX_WATCHED: usize = 512;
/// First search for chains after the first event, and the longest time between two.
const FIRST_SEARCH_NS: u64 = 500_000_000;
const SEARCH_EVERY_NS: u64 = 5_000_000_000;

/// Options of learning.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Chains at most. 16: more is not read, and a robot's goals are fewer.
    pub most_chains: usize,
    /// Options of the model.
    pub model: takt_model::Options,
}

impl Default for Options {
    fn default() -> Self {
        // Processes that have ended belong to the observations, too.
        Self {
            most_chains: 16,
            model: takt_model::Options { keep_ended: true, ..takt_model::Options::default() },
        }
    }
}

/// One chain that was seen.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LearntChain {
    /// Its name, from its nodes'.
    pub name: String,
    /// First callback.
    pub start: String,
    /// Last callback.
    pub end: String,
    /// Callbacks of the longest way.
    pub path: Vec<String>,
    /// Ways from start to end.
    pub ways: usize,
    /// Times that it came to its end, over all ways.
    pub completions: u64,
    /// Instances that a later one passed.
    pub dropped: u64,
    /// Median latency of the way that was taken most, nanoseconds.
    pub median_ns: Option<u64>,
    /// 99 % of them were shorter.
    pub p99_ns: Option<u64>,
    /// The longest of all ways; `None`: it never came to its end.
    pub worst_ns: Option<u64>,
    /// The goal that is proposed; `None`: nothing was measured to propose one from.
    pub goal_ns: Option<u64>,
    /// Bound with the reservations that a plan for all proposed goals makes.
    pub bound_ns: Option<u64>,
    /// State that reservations would give it; nothing is guaranteed, since nothing is reserved yet.
    /// `could_be_kept`, `degraded`, `not_analysable` or `not_found` under that plan; `not_measured`
    /// without goal.
    pub state: String,
    /// The reason, for all chains that could not be kept.
    pub why: String,
}

#[derive(Debug, Clone)]
pub struct Learnt {
    /// The model at the end.
    pub model: Model,
    /// The chains, the most interesting first.
    pub chains: Vec<LearntChain>,
    /// Chains beyond those.
    pub left_out: usize,
    /// The proposed goals; `None`: no chain was measured.
    pub goals: Option<Goals>,
    /// Plan that a manager would make for them now.
    pub plan: Option<Plan>,
    /// Events read.
    pub events: u64,
    /// Observed time, nanoseconds.
    pub observed_ns: u64,
}

/// Looks at a system.
#[derive(Debug)]
pub struct Learner<S: Source> {
    source: S,
    order: Reorder,
    extractor: Extractor,
    options: Options,
    watched: Watched,
    first_ns: Option<u64>,
    next_search_ns: u64,
    pause_ns: u64,
}

impl<S: Source> Learner<S> {
    /// One that has seen nothing.
    ///
    /// # Errors
    ///
    /// An option of the model is out of range.
    pub fn new(source: S, options: Options) -> Result<Self, OptionsError> {
        options.model.validate()?;
        Ok(Self {
            source,
            order: Reorder::new(takt_model::order::HOLD_NS),
            extractor: Extractor::new(options.model.clone()),
            options,
            watched: Watched::default(),
            first_ns: None,
            next_search_ns: 0,
            pause_ns: FIRST_SEARCH_NS,
        })
    }

    /// The source, to inform it that no more processes will come.
    pub fn source_mut(&mut self) -> &mut S {
        &mut self.source
    }

    /// All events that are there. False: the source has ended.
    ///
    /// # Errors
    ///
    /// The source is broken for good.
    pub fn step(&mut self, now_ns: u64) -> Result<bool, S::Error> {
        let (order, mut count) = (&mut self.order, 0_u64);
        self.source.poll(&mut |event| {
            count += 1;
            order.push(event);
        })?;
        let ended = self.source.ended();
        let extractor = &mut self.extractor;
        match ended {
            true => order.finish(|event| extractor.event(event)),
            false => order.release(now_ns, |event| extractor.event(event)),
        }
        if count > 0 && self.first_ns.is_none() {
            self.first_ns = Some(now_ns);
            self.next_search_ns = now_ns + self.pause_ns;
        }
        if self.first_ns.is_some() && now_ns >= self.next_search_ns {
            // Systems grow at first, and later rarely.
            self.pause_ns = (self.pause_ns * 2).min(SEARCH_EVERY_NS);
            self.next_search_ns = now_ns + self.pause_ns;
            self.search(now_ns);
        }
        Ok(!ended)
    }

    #[must_use]
    pub fn model(&self, now_ns: u64) -> Model {
        self.extractor.snapshot(now_ns)
    }

    fn search(&mut self, now_ns: u64) {
        let model = self.extractor.snapshot(now_ns);
        let chains = select(&model, self.options.most_chains).chains;
        self.watched.watch(&mut self.extractor, &model, &chains);
    }

    /// Ends: goals for what was measured, and a plan for them on `platform`.
    #[must_use]
    pub fn finish(mut self, now_ns: u64, platform: &Platform) -> Learnt {
        let extractor = &mut self.extractor;
        self.order.finish(|event| extractor.event(event));
        let model = self.extractor.snapshot(now_ns);
        let selected = select(&model, self.options.most_chains);
        let observed_ns = self.first_ns.map_or(0, |first_ns| now_ns.saturating_sub(first_ns));
        let events = self.extractor.counters().events;
        learnt(model, selected, &self.watched, &self.extractor, platform, (events, observed_ns))
    }
}

/// Learns from a recording that `open` opens, each time from its beginning: first the chains, then
/// what they took.
///
/// # Errors
///
/// It cannot be read, or holds nothing.
pub fn from_recording<S: Source>(
    mut open: impl FnMut() -> Result<S, S::Error>,
    platform: &Platform,
    options: &Options,
) -> Result<Learnt, recorded::Error<S::Error>> {
    options.model.validate()?;
    let mut extractor = Extractor::new(options.model.clone());
    let (mut first_ns, mut last_ns, mut events) = (None, 0, 0);
    recorded::read(open().map_err(recorded::Error::Source)?, |event: Event| {
        first_ns.get_or_insert(event.at_ns);
        last_ns = last_ns.max(event.at_ns);
        events += 1;
        extractor.event(&event);
    })?;
    let first_ns = first_ns.ok_or(recorded::Error::Empty)?;
    let model = extractor.snapshot(last_ns);
    let selected = select(&model, options.most_chains);
    let mut extractor = Extractor::new(options.model.clone());
    extractor.begin(first_ns);
    let mut watched = Watched::default();
    watched.watch(&mut extractor, &model, &selected.chains);
    recorded::read(open().map_err(recorded::Error::Source)?, |event| extractor.event(&event))?;
    Ok(learnt(model, selected, &watched, &extractor, platform, (events, last_ns.saturating_sub(first_ns))))
}

/// Measurements by the names of the callbacks on the way.
#[derive(Debug, Default)]
struct Watched(BTreeMap<Vec<String>, WatchId>);

impl Watched {
    fn watch(&mut self, extractor: &mut Extractor, model: &Model, chains: &[Candidate]) {
        for chain in chains {
            for path in chain.paths.iter().take(WAYS) {
                let path = names(model, path);
                if !self.0.contains_key(&path) && self.0.len() < MAX_WATCHED {
                    let spec = ChainSpec { name: chain.name.clone(), path: path.clone(), goal_ns: None };
                    self.0.insert(path, extractor.watch(spec));
                }
            }
        }
    }
}

fn names(model: &Model, path: &[usize]) -> Vec<String> {
    path.iter().map(|c| model.callbacks[*c].name.clone()).collect()
}

fn learnt(
    model: Model,
    selected: Selected,
    watched: &Watched,
    extractor: &Extractor,
    platform: &Platform,
    (events, observed_ns): (u64, u64),
) -> Learnt {
    let mut chains: Vec<LearntChain> = selected
        .chains
        .iter()
        .map(|chain| {
            let ways = chain.paths.iter().take(WAYS).map(|path| names(&model, path));
            let measured: Vec<&ChainStats> =
                ways.filter_map(|way| extractor.watched(*watched.0.get(&way)?)).collect();
            seen(chain, chain.paths.first().map(|path| names(&model, path)).unwrap_or_default(), &measured)
        })
        .collect();
    let (goals, plan) = propose::propose(&model, &mut chains, platform);
    Learnt { model, chains, left_out: selected.left_out, goals, plan, events, observed_ns }
}

fn seen(chain: &Candidate, path: Vec<String>, measured: &[&ChainStats]) -> LearntChain {
    let most = measured.iter().max_by_key(|stats| stats.completions);
    LearntChain {
        name: chain.name.clone(),
        start: chain.start.clone(),
        end: chain.end.clone(),
        path,
        ways: chain.paths.len(),
        completions: measured.iter().map(|stats| stats.completions).sum(),
        dropped: measured.iter().map(|stats| stats.dropped).sum(),
        median_ns: most.and_then(|stats| stats.quantile_ns(0.5)),
        p99_ns: most.and_then(|stats| stats.quantile_ns(0.99)),
        worst_ns: measured.iter().filter(|stats| stats.last_ns.is_some()).map(|stats| stats.worst_ns).max(),
        goal_ns: None,
        bound_ns: None,
        state: "not_measured".to_owned(),
        why: "it never came to its end while it was observed".to_owned(),
    }
}

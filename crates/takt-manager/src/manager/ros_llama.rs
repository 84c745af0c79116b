//! Plans as the paper's manager makes them ([`crate::ros_llama`]).

use takt_model::{CallbackId, Model};

use super::present::carried;
use super::write::{best_effort, methods, not_analysable, not_found, reservations};
use super::{Candidate, Manager, Present, bounds, on_path, unchanged};
use crate::analysis::Analysis;
use crate::budget::{ChainBound, Request};
use crate::degrade::Fate;
use crate::partition::Slots;
use crate::plan::{ChainPlan, ChainState, Decision, Plan};
use crate::ros_llama::{reading, search::Search};
use crate::workload::Workload;

/// Budgets, and what they keep.
struct Provisioned {
    budgets_ns: Vec<u64>,
    /// One per goal; `None`: it was not found, or cannot be analysed.
    fates: Vec<Option<Fate>>,
    bounds: Vec<Option<ChainBound>>,
    decisions: Vec<Decision>,
}

impl Manager {
    /// Makes the plan of the paper's manager for a snapshot.
    pub(super) fn plan_ros_llama(&mut self, model: &Model) -> Plan {
        let workload = reading::workload(model);
        let ends = self.goals.chains.iter().map(|chain| (chain.start.as_str(), chain.end.as_str()));
        let candidates: Vec<Candidate> = (self.ways.of(model, ends).iter())
            .map(|ways| match ways {
                Ok(paths) => {
                    Candidate { refused: not_analysable(model, &workload, paths), paths: paths.clone() }
                }
                Err(error) => Candidate { paths: Vec::new(), refused: Some(not_found(error)) },
            })
            .collect();
        self.look_outside(model, &candidates);
        let requests: Vec<Option<Request<'_>>> = (self.goals.chains.iter().zip(&candidates))
            .map(|(chain, candidate)| {
                let request = Request { name: &chain.name, goal_ns: chain.goal_ns, paths: &candidate.paths };
                candidate.refused.is_none().then_some(request)
            })
            .collect();
        let options = &self.goals.options;
        let (period_ns, horizon_ns) = (options.period_ns(), options.horizon_ns());
        let mut analysis = Analysis::new(&workload, period_ns, horizon_ns, 0).as_published();
        let provisioned = match self.cached_budgets(model, &workload, &requests, &mut analysis) {
            Some(cached) => cached,
            None => self.provision(&requests, &mut analysis),
        };
        let work = analysis.work;
        let Provisioned { budgets_ns, fates, bounds, mut decisions } = provisioned;
        let slots = slots(&workload);
        // The search accepted nothing without a partitioning.
        let places = slots.partition(&budgets_ns, &self.limits(period_ns).capacities_ns).unwrap_or_default();
        let cores: Vec<usize> =
            places.iter().map(|place| self.platform.cores.get(*place).copied().unwrap_or(0)).collect();
        decisions.extend(workload.assumptions.iter().map(|words| Decision {
            chain: None,
            step: crate::plan::Step::Assumed,
            words: words.clone(),
        }));
        let chains = self.goals.chains.iter().zip(&candidates).zip(&fates).zip(&bounds);
        let chains = chains
            .map(|(((chain, candidate), fate), bound)| {
                chain_plan(model, chain, candidate, fate.as_ref(), bound.as_ref())
            })
            .collect();
        let plan = Plan {
            period_ns,
            reservations: reservations(model, &workload, &budgets_ns, &cores, &|_| period_ns),
            best_effort: best_effort(model, &workload, &candidates, &budgets_ns),
            chains,
            decisions,
            ..Plan::default()
        };
        drop(requests);
        self.work = work;
        self.present = Some(Present {
            plan: plan.clone(),
            planned: workload,
            on_path: candidates.iter().map(|candidate| on_path(&candidate.paths)).collect(),
            jitter_paths: vec![Vec::new(); candidates.len()],
            repeats: 0,
            shrinks: 0,
            shared: Vec::new(),
            places: Vec::new(),
        });
        plan
    }

    /// Section IV.C: "an iterative heuristic-driven search that is performed for each cause-effect
    /// chain in reverse degradation order".
    fn provision(&self, requests: &[Option<Request<'_>>], analysis: &mut Analysis<'_>) -> Provisioned {
        let limits = self.limits(analysis.period_ns());
        let mut search = Search::new(analysis, limits);
        let mut fates: Vec<Option<Fate>> = requests.iter().map(|_| None).collect();
        for &chain in self.goals.degradation_order.iter().rev() {
            if let Some(Some(request)) = requests.get(chain) {
                fates[chain] = Some(search.provision(request));
            }
        }
        let (budgets_ns, decisions) = (search.budgets_ns, search.decisions);
        // Later budgets of less important chains can only have shortened a bound.
        let bounds = bounds(analysis, requests, &budgets_ns);
        Provisioned { budgets_ns, fates, bounds, decisions }
    }

    /// Section VI.B: "opportunistically reusing cached budget assignments in a low-load scenario".
    /// Load is low where the last plan degraded nothing; its budgets are used again where they keep
    /// all goals under the present model.
    fn cached_budgets(
        &self,
        model: &Model,
        workload: &Workload,
        requests: &[Option<Request<'_>>],
        analysis: &mut Analysis<'_>,
    ) -> Option<Provisioned> {
        let present = self.present.as_ref()?;
        let kept_all = present.plan.chains.iter().all(|chain| chain.state == ChainState::Guaranteed);
        let held = carried(model, workload, &present.plan);
        let limits = self.limits(analysis.period_ns());
        let fits = || slots(workload).partition(&held.budgets_ns, &limits.capacities_ns).is_some();
        if !kept_all || !held.complete || held.period_ns != analysis.period_ns() || !fits() {
            return None;
        }
        let bounds = bounds(analysis, requests, &held.budgets_ns);
        let fates: Option<Vec<Option<Fate>>> = (requests.iter().zip(&bounds))
            .map(|(request, bound)| {
                let (goal_ns, bound) = (request.as_ref()?.goal_ns, bound.as_ref()?);
                (bound.ns <= goal_ns).then(|| Some(Ok(bound.clone())))
            })
            .collect();
        let decisions = vec![unchanged("its budgets meet all goals under the present model")];
        Some(Provisioned { budgets_ns: held.budgets_ns, fates: fates?, bounds, decisions })
    }
}

fn slots(workload: &Workload) -> Slots {
    Slots::new(workload.executors.iter().map(|executor| executor.threads.len()), usize::MAX)
}

fn chain_plan(
    model: &Model,
    chain: &crate::goals::Chain,
    candidate: &Candidate,
    fate: Option<&Fate>,
    bound: Option<&ChainBound>,
) -> ChainPlan {
    let (state, shown) = match (&candidate.refused, fate) {
        (Some(refused), _) => (refused.clone(), None),
        (None, Some(Ok(provisioned))) => (ChainState::Guaranteed, Some(bound.unwrap_or(provisioned))),
        // A degraded chain stays so, whatever its executors were given for others since.
        (None, Some(Err(refusal))) => {
            (ChainState::Degraded { why: refusal.why.clone() }, refusal.bound.as_ref())
        }
        (None, None) => (ChainState::Degraded { why: "it got no budgets".to_owned() }, None),
    };
    let path = candidate.paths.get(shown.map_or(0, |bound| bound.path));
    let path: Vec<CallbackId> = path.into_iter().flatten().map(|c| CallbackId(*c)).collect();
    ChainPlan {
        name: chain.name.clone(),
        goal_ns: chain.goal_ns,
        path_names: path.iter().map(|c| model.callbacks[c.0].name.clone()).collect(),
        path,
        paths: candidate.paths.len(),
        bound_ns: shown.map(|bound| bound.ns),
        measured_bound_ns: None,
        bound_by: shown.map_or_else(String::new, |bound| methods(&bound.by)),
        bound_parts: shown.map_or_else(Vec::new, |bound| bound.parts.clone()),
        // The paper has no jitter goals; jitter is measured all the same.
        jitter: None,
        state,
    }
}

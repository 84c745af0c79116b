//! Decisions of the search, in words.

use takt_model::ExecutorId;

use super::{Request, Search};
use crate::analysis::Solution;
use crate::plan::{Decision, Step};
use crate::words::ms;

impl Search<'_, '_> {
    pub(super) fn unbounded(&self, servers: &[usize], solution: &Solution) -> String {
        let workload = self.analysis.workload();
        if let Some(server) = solution.diverged.first() {
            return format!(
                "{} has more work than a core can do, so its response times have no bound",
                workload.executors[*server].name
            );
        }
        let troubled = servers
            .iter()
            .flat_map(|s| &workload.executors[*s].callbacks)
            .map(|c| &workload.callbacks[*c])
            .find(|c| c.trouble.is_some());
        match troubled {
            Some(callback) => format!(
                "{} influences it but cannot be analysed: {}",
                callback.name,
                callback.trouble.as_deref().unwrap_or_default()
            ),
            None => "response times along it have no bound".to_owned(),
        }
    }

    pub(super) fn decide(&mut self, chain: &Request<'_>, step: Step, words: String) {
        self.decisions.push(Decision { chain: Some(chain.name.to_owned()), step, words });
    }

    pub(super) fn describe_raised(
        &mut self,
        chain: &Request<'_>,
        server: usize,
        old: u64,
        new: u64,
        delay: u64,
    ) {
        let (from, to) = (self.bandwidth(old), self.bandwidth(new));
        let shortage_ns = (delay < u64::MAX).then_some(delay);
        let words = raised_words(&self.name(server), chain.name, from, to, shortage_ns);
        self.decide(chain, Step::Raised { executor: ExecutorId(server), from, to, shortage_ns }, words);
    }

    /// Joins all steps of one executor since `from` into one decision at the place of the first.
    pub(super) fn join_raises(&mut self, from: usize) {
        let mut joined: Vec<Decision> = Vec::new();
        for decision in self.decisions.drain(from..).collect::<Vec<_>>() {
            let same = joined.iter_mut().find(|earlier| match (&earlier.step, &decision.step) {
                (Step::Raised { executor: a, .. }, Step::Raised { executor: b, .. })
                | (Step::Stabilised { executor: a, .. }, Step::Stabilised { executor: b, .. }) => a == b,
                _ => false,
            });
            match (same, &decision.step) {
                (Some(earlier), Step::Raised { to: last, .. } | Step::Stabilised { to: last, .. }) => {
                    let chain = earlier.chain.clone().unwrap_or_default();
                    let name = match &earlier.step {
                        Step::Raised { executor, .. } | Step::Stabilised { executor, .. } => *executor,
                        _ => continue,
                    };
                    let name = &self.analysis.workload().executors[name.0].name;
                    match &mut earlier.step {
                        Step::Raised { from, to, shortage_ns, .. } => {
                            *to = *last;
                            earlier.words = raised_words(name, &chain, *from, *to, *shortage_ns);
                        }
                        Step::Stabilised { from, to, .. } => {
                            *to = *last;
                            earlier.words = format!(
                                "raised {name} from {} to {}: it had no bounded response times",
                                percent(*from),
                                percent(*to)
                            );
                        }
                        _ => {}
                    }
                }
                _ => joined.push(decision),
            }
        }
        self.decisions.extend(joined);
    }
}

fn raised_words(name: &str, chain: &str, from: f64, to: f64, shortage_ns: Option<u64>) -> String {
    let (from, to) = (percent(from), percent(to));
    match shortage_ns {
        Some(delay) => {
            format!("raised {name} from {from} to {to}: it delayed chain {chain} by {} ms", ms(delay))
        }
        None => format!("raised {name} from {from} to {to}: chain {chain} had no bound because of it"),
    }
}

/// A share in percent, with as many digits as matter.
#[must_use]
pub fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent >= 10.0 { format!("{percent:.0} %") } else { format!("{percent:.1} %") }
}

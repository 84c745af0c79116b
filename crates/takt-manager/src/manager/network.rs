//! Chains that begin on another machine: their bound includes the network's, where one is declared.

use takt_model::{CallbackId, Model, Outside, Topic};

use super::{Candidate, Manager};
use crate::plan::Plan;
use crate::words::ms;

/// The topic that a callback subscribes to and gets messages on from publishers that are not
/// observed; `None`: it does not.
#[must_use]
pub fn outside_topic(model: &Model, callback: usize) -> Option<&Topic> {
    let foreign =
        |topic: &&Topic| topic.outside != Outside::None && topic.subscribers.contains(&CallbackId(callback));
    model.topics.iter().find(foreign)
}

/// Reason why a chain is not guaranteed because it begins on another machine, from the knowledge
/// about its messages and the declared bound of the network.
#[must_use]
pub fn against(outside: Outside, bound_ns: Option<u64>) -> Option<String> {
    let Some(bound_ns) = bound_ns else {
        return Some(
            "it begins on another machine and the network has no declared bound, so takt only measures it. If the network has a bound, \
             declare it: [network] bound = \"2 ms\""
                .to_owned(),
        );
    };
    match outside {
        Outside::Stamped { most_ns, clock_error_ns, .. }
            if most_ns > bound_ns.saturating_add(clock_error_ns) =>
        {
            Some(format!(
                "a message took {} +- {} ms from the other machine until it was received, above the network's bound of {} ms",
                ms(most_ns),
                ms(clock_error_ns),
                ms(bound_ns)
            ))
        }
        _ => None,
    }
}

impl Manager {
    /// Finds the chains that begin on another machine.
    pub(super) fn look_outside(&mut self, model: &Model, candidates: &[Candidate]) {
        let known = self.goals.network.is_some();
        let begins =
            |path: &Vec<usize>| path.first().is_some_and(|first| outside_topic(model, *first).is_some());
        self.foreign = candidates.iter().map(|c| known && c.paths.iter().any(begins)).collect();
    }

    /// Whether the chains of a plan still begin where they did.
    pub(super) fn foreign_holds(&self, model: &Model, plan: &Plan) -> bool {
        self.goals.network.is_none()
            || plan.chains.iter().zip(&self.foreign).all(|(chain, was)| {
                let first = chain.path.first();
                *was || first.is_none_or(|first| outside_topic(model, first.0).is_none())
            })
    }

    /// Longest time of a chain's messages from another machine.
    pub(super) fn network_ns(&self, chain: usize) -> u64 {
        let bound_ns = self.goals.network.as_ref().and_then(|network| network.bound_ns).unwrap_or(0);
        if self.foreign.get(chain) == Some(&true) { bound_ns } else { 0 }
    }
}

//! Choice of the chains to keep: the declared order, and its meaning.
//!
//! Chains are given budgets in reverse degradation order. So the rule is exact: *a chain is
//! degraded only if it cannot be kept beside the chains that come later in the order; what comes
//! earlier in the order never matters to it.* A chain that cannot be kept at all (its goal is below
//! what whole cores could give) takes nothing down with it: chains earlier in the order are then
//! kept if they fit.

use std::cmp::Ordering;

use crate::budget::{ChainBound, Refusal, Request, Search};

/// Outcome for a chain.
pub type Fate = Result<ChainBound, Refusal>;

/// An alternative.
pub trait Rival {
    /// The chains that it keeps, where that is [`better`] than to keep these alone.
    fn keeps(&mut self, kept: &[bool]) -> Option<&[bool]>;

    /// The chains that it keeps, if that was looked at already.
    fn known(&self) -> Option<Known<'_>> {
        None
    }
}

/// Known facts about a rival.
#[derive(Debug, Clone, Copy)]
pub struct Known<'r> {
    pub keeps: &'r [bool],
    /// Nothing makes up for one of these chains.
    pub each: bool,
}

/// Guarantees as many chains as fit, the last of `order` first. Entry `i` is the fate of chain `i`;
/// `None`: it was not asked for. Given up as soon as it cannot become [`better`] than keeping the
/// chains of `than`, or must become worse than the rival, which is asked when a chain is refused
/// and not before; whether it is better comes beside it. (What is refused may be kept in the end by
/// what less important chains are given. The search does not wait for that.)
pub fn decide<'a>(
    search: &mut Search<'a, '_>,
    chains: &[Option<Request<'a>>],
    order: &[usize],
    than: Option<&[bool]>,
    rival: &mut dyn Rival,
) -> (Vec<Option<Fate>>, bool) {
    let mut fates: Vec<Option<Fate>> = chains.iter().map(|_| None).collect();
    let mut kept_so_far = vec![false; chains.len()];
    let (mut undecided, mut compared) = (than, false);
    for (number, &chain) in order.iter().rev().enumerate() {
        if let Some(Some(request)) = chains.get(chain) {
            let decided = &order[order.len() - 1 - number..];
            if !compared && let Some(rival) = rival.known() {
                compared = true;
                let required = required(search, chains, order, number, &kept_so_far, rival);
                if !required.is_empty() && search.cannot_keep(&required) {
                    return (fates, false);
                }
            }
            fates[chain] = Some(search.guarantee(request));
            kept_so_far[chain] = matches!(fates[chain], Some(Ok(_)));
            if !kept_so_far[chain]
                && let Some(rival) = rival.keeps(&kept_so_far)
                && better(&kept_so_far, rival, decided).is_lt()
            {
                return (fates, false);
            }
        }
        let kept = fates.get(chain).map(|fate| matches!(fate, Some(Ok(_))));
        match undecided.map(|than| kept.cmp(&than.get(chain).copied())) {
            Some(Ordering::Less) => break,
            Some(Ordering::Greater) => undecided = None,
            Some(Ordering::Equal) | None => {}
        }
    }
    (fates, undecided.is_none())
}

/// Chains without which a search is worse than the rival, `decided` of which are decided: those
/// that the rival keeps and that are more important than the first that the search alone may keep.
fn required<'s, 'a>(
    search: &mut Search<'a, '_>,
    chains: &'s [Option<Request<'a>>],
    order: &[usize],
    decided: usize,
    kept_so_far: &[bool],
    rival: Known<'_>,
) -> Vec<&'s Request<'a>> {
    let mut required = Vec::new();
    for (number, &chain) in order.iter().rev().enumerate() {
        let Some(Some(request)) = chains.get(chain) else { continue };
        if rival.keeps.get(chain) == Some(&true) {
            required.push(request);
        } else if !rival.each && number < decided && kept_so_far[chain] {
            return Vec::new();
        } else if !rival.each && number >= decided && !search.is_hopeless(request) {
            break;
        }
    }
    required
}

/// Whether keeping the chains of `a` is better than keeping those of `b`: the most important chain
/// that only one of them keeps decides.
#[must_use]
pub fn better(a: &[bool], b: &[bool], order: &[usize]) -> Ordering {
    order
        .iter()
        .rev()
        .map(|chain| a.get(*chain).cmp(&b.get(*chain)))
        .find(|ordering| ordering.is_ne())
        .unwrap_or(Ordering::Equal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_important_chain_outweighs_all_before_it() {
        // Chain 2 is degraded first, chain 1 last.
        let order = [2, 0, 1];
        assert_eq!(better(&[false, true, false], &[true, false, true], &order), Ordering::Greater);
        assert_eq!(better(&[true, true, false], &[true, true, true], &order), Ordering::Less);
        assert_eq!(better(&[true, false, true], &[true, false, true], &order), Ordering::Equal);
    }
}

//! Order of the executors of a shared core, and the periods that produce it ([`crate::analysis`],
//! `ranks`).
//!
//! Weighted by the tightest goal that each serves, completions come earliest in sum where executors
//! run by their demand over their weight (Smith, *Naval Research Logistics Quarterly* 3, 1956):
//! what is short and urgent first. A search decides where to cut that order into ranks, and at
//! which periods: the shortest windows whose budgets the core has room for.

use super::Manager;
use super::present::Held;
use super::shared::{LONGEST_PERIOD_NS, SECOND_NS};
use crate::analysis::{Ahead, Analysis, MAX_RANKS, Solution};
use crate::budget::Request;
use crate::partition::{Slots, keeps};

/// Periods of ranks.
const PERIODS_MS: [u64; 9] = [10, 20, 40, 60, 80, 120, 160, 240, 320];
/// Budgets that are searched for leave this for what comes.
const HEADROOM: f64 = 1.1;
/// An order is worth having if windows become shorter by this share.
const WORTH: f64 = 0.95;
/// Places of an order at which it is cut, at most, and ranks of long orders.
const MAX_CUTS: usize = 5;
const RANKS_OF_MANY: usize = 3;

/// The rank of each executor on its core: shorter periods come first. `None`: all are alike, or too
/// many differ.
pub(super) fn ranks(cores: &[Option<usize>], periods_ns: &[u64]) -> Option<Vec<usize>> {
    let rank = |server: usize| {
        let core = cores[server]?;
        let shorter = (0..cores.len())
            .filter(|other| cores[*other] == Some(core) && periods_ns[*other] < periods_ns[server]);
        let mut shorter: Vec<u64> = shorter.map(|other| periods_ns[other]).collect();
        shorter.sort_unstable();
        shorter.dedup();
        Some(shorter.len())
    };
    let ranks: Vec<usize> = (0..cores.len()).map(|server| rank(server).unwrap_or(0)).collect();
    let most = ranks.iter().copied().max().unwrap_or(0);
    (1..MAX_RANKS).contains(&most).then_some(ranks)
}

/// One executor of a core, as the search sees it.
struct Member {
    server: usize,
    goal_ns: f64,
    /// The longest that it runs, in intervals of [`Search::ages_ns`].
    most_ns: Vec<u64>,
}

/// The search for cuts and periods of one core.
struct Search {
    ages_ns: Vec<u64>,
    members: Vec<Member>,
    /// Busy windows of the first so many.
    windows_ns: Vec<u64>,
    cuts: Vec<usize>,
    most_ranks: usize,
    capacity: f64,
    /// Cost, share of the core, and where each rank ends and its period.
    best: (f64, f64, Vec<(usize, u64)>),
}

impl Search {
    /// The share of the core that one needs; infinite: it cannot be.
    fn bandwidth(&self, member: &Member, period_ns: u64, ahead_ns: u64, window_ns: u64) -> f64 {
        let most = |age_ns: u64| {
            let place = self.ages_ns.partition_point(|known| *known < age_ns);
            member.most_ns.get(place).copied().unwrap_or(u64::MAX) as f64
        };
        let mut needed = most(period_ns) / period_ns as f64;
        if ahead_ns > 0 {
            let Some(age_ns) = (period_ns - ahead_ns).checked_sub(window_ns).filter(|ns| *ns > 1_000_000)
            else {
                return f64::INFINITY;
            };
            needed = needed.max(most(age_ns) / age_ns as f64);
            let later = self.ages_ns.windows(2).zip(&member.most_ns[1..]);
            for (ages, most_ns) in later.filter(|(ages, _)| ages[0] >= age_ns && ages[0] < period_ns) {
                needed = needed.max(*most_ns as f64 / ages[0] as f64);
            }
        }
        needed * HEADROOM
    }

    /// The shortest period at which all are alike and fit.
    fn alike_ns(&self) -> u64 {
        let needs = |period_ns| -> f64 {
            self.members.iter().map(|member| self.bandwidth(member, period_ns, 0, 0)).sum()
        };
        let mut periods = PERIODS_MS.map(|ms| ms * 1_000_000).into_iter();
        periods.find(|period_ns| needs(*period_ns) <= self.capacity).unwrap_or(LONGEST_PERIOD_NS)
    }

    /// Ranks from this member on, behind those of shorter periods.
    fn from(&mut self, begin: usize, ahead_ns: u64, used: f64, cost: f64, chosen: &mut Vec<(usize, u64)>) {
        if begin == self.members.len() {
            if (cost, used) < (self.best.0, self.best.1) {
                self.best = (cost, used, chosen.clone());
            }
            return;
        }
        let last = chosen.len() + 1 == self.most_ranks;
        let ends: Vec<usize> = self.cuts.iter().copied().filter(|cut| *cut > begin && !last).collect();
        for end in ends.into_iter().chain([self.members.len()]) {
            let window_ns = self.windows_ns[end - 1];
            let members = &self.members[begin..end];
            let cost = cost + members.iter().map(|member| window_ns as f64 / member.goal_ns).sum::<f64>();
            if cost > self.best.0 {
                continue;
            }
            for period_ns in PERIODS_MS.map(|ms| ms * 1_000_000) {
                if period_ns <= ahead_ns {
                    continue;
                }
                let needs = |member| self.bandwidth(member, period_ns, ahead_ns, window_ns);
                let used = used + self.members[begin..end].iter().map(needs).sum::<f64>();
                if used > self.capacity {
                    continue;
                }
                chosen.push((end, period_ns));
                self.from(end, period_ns, used, cost, chosen);
                chosen.pop();
            }
        }
    }
}

impl Manager {
    /// Periods for ranks on these cores, from a solution without; 0 where an executor takes no
    /// part. `None`: no order is worth it.
    pub(super) fn rank(
        &self,
        analysis: &Analysis<'_>,
        requests: &[Option<Request<'_>>],
        chains: &[usize],
        cores: &[Option<usize>],
        solution: &Solution,
    ) -> Option<Vec<u64>> {
        let mut ages_ns = vec![4_000_000_u64];
        while ages_ns[ages_ns.len() - 1] < LONGEST_PERIOD_NS {
            ages_ns.push(ages_ns[ages_ns.len() - 1] * 9 / 8);
        }
        let mut periods_ns = vec![0; cores.len()];
        let mut worth = false;
        for core in 0..self.platform.cores.len() {
            let on_core: Vec<usize> = (0..cores.len()).filter(|s| cores[*s] == Some(core)).collect();
            let mut keyed = Vec::new();
            for server in on_core {
                let own_ns = analysis.pending_ns(&|other| other == server, solution)? as f64;
                let goal_ns = self.tightest_ns(analysis, requests, chains, server) as f64;
                keyed.push((own_ns * goal_ns, server, goal_ns));
            }
            keyed.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            let mut members = Vec::new();
            let mut windows_ns = Vec::new();
            let mut first: Vec<usize> = Vec::new();
            for (_, server, goal_ns) in keyed {
                let most = |age_ns: &u64| analysis.most_work_ns(server, *age_ns, solution);
                let most_ns = ages_ns.iter().map(most).collect::<Option<_>>()?;
                members.push(Member { server, goal_ns, most_ns });
                first.push(server);
                windows_ns.push(analysis.pending_ns(&|other| first.contains(&other), solution)?);
            }
            let Some(all_ns) = windows_ns.last().copied() else { continue };
            let alike: f64 = members.iter().map(|member| all_ns as f64 / member.goal_ns).sum();
            let step = members.len().div_ceil(MAX_CUTS + 1).max(1);
            let many = members.len() > MAX_CUTS + 1;
            let mut search = Search {
                ages_ns: ages_ns.clone(),
                cuts: (1..members.len()).step_by(step).collect(),
                members,
                windows_ns,
                most_ranks: if many { RANKS_OF_MANY } else { MAX_RANKS },
                capacity: self.platform.most_on(self.platform.cores[core]),
                best: (alike * WORTH, 0.0, Vec::new()),
            };
            search.from(0, 0, 0.0, 0.0, &mut Vec::new());
            let mut begin = 0;
            worth |= !search.best.2.is_empty();
            if search.best.2.is_empty() {
                search.best.2 = vec![(search.members.len(), search.alike_ns())];
            }
            for (end, period_ns) in search.best.2 {
                search.members[begin..end].iter().for_each(|member| periods_ns[member.server] = period_ns);
                begin = end;
            }
        }
        worth.then_some(periods_ns)
    }

    /// The tightest goal of these chains that runs through an executor.
    fn tightest_ns(
        &self,
        analysis: &Analysis<'_>,
        requests: &[Option<Request<'_>>],
        chains: &[usize],
        server: usize,
    ) -> u64 {
        let callbacks = &analysis.workload().callbacks;
        let through = chains.iter().filter(|chain| {
            let paths = requests.get(**chain).and_then(Option::as_ref).map(|request| request.paths);
            paths.into_iter().flatten().flatten().any(|callback| callbacks[*callback].server == server)
        });
        let goals = through.map(|chain| self.goals.chains[*chain].goal_ns);
        // Callbacks that only disturb others come after those for which the others wait.
        goals.min().unwrap_or(self.goals.longest_ns().saturating_mul(2)).max(1)
    }

    /// Budgets with which these periods keep the order, and never run out; `None`: they do not fit.
    pub(super) fn ranked_budgets(
        &self,
        analysis: &Analysis<'_>,
        slots: &Slots,
        cores: &[Option<usize>],
        periods_ns: &[u64],
        solution: &Solution,
        held: Option<&Held>,
    ) -> Option<Vec<u64>> {
        let ranks = ranks(cores, periods_ns).filter(|_| self.leaves_time(analysis, cores, solution))?;
        let mut least = vec![0; cores.len()];
        for server in (0..cores.len()).filter(|server| cores[*server].is_some()) {
            let same = |other: usize| cores[other] == cores[server];
            let before = (0..cores.len()).filter(|other| same(*other) && ranks[*other] < ranks[server]);
            let ahead = match before.map(|other| periods_ns[other]).max() {
                Some(period_ns) => {
                    let up_to = |other: usize| same(other) && ranks[other] <= ranks[server];
                    Some(Ahead { period_ns, pending_ns: analysis.pending_ns(&up_to, solution)? })
                }
                None => None,
            };
            least[server] = analysis.ranked_budget_ns(server, periods_ns[server], ahead, solution)?;
        }
        let places: Vec<usize> = slots.executors().iter().map(|s| cores[*s].unwrap_or(0)).collect();
        let capacities_ns = self.limits(SECOND_NS).capacities_ns;
        let fits = |budgets_ns: &[u64]| {
            let in_second = |(budget, period): (&u64, &u64)| {
                let sum = u128::from(*budget) * u128::from(SECOND_NS);
                u64::try_from(sum.div_ceil(u128::from((*period).max(1)))).unwrap_or(u64::MAX)
            };
            let shares: Vec<u64> = budgets_ns.iter().zip(periods_ns).map(in_second).collect();
            keeps(&slots.budgets(&shares), &places, &capacities_ns)
        };
        if let Some(held) = held
            && held.periods_ns == periods_ns
            && least
                .iter()
                .zip(&held.budgets_ns)
                .all(|(least, has)| least <= has && (*least > 0 || *has == 0))
            && fits(&held.budgets_ns)
        {
            return Some(held.budgets_ns.clone());
        }
        let times = |percent: u64| -> Vec<u64> {
            let budgets = least.iter().zip(periods_ns);
            budgets.map(|(ns, period_ns)| (ns * percent / 100).min(*period_ns)).collect()
        };
        [125, 110, 100].into_iter().map(times).find(|budgets_ns| fits(budgets_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shorter_periods_come_first_on_each_core() {
        let cores = [Some(0), Some(0), Some(1), None, Some(0)];
        assert_eq!(ranks(&cores, &[320, 40, 320, 0, 320]), Some(vec![1, 0, 0, 0, 1]));
        assert_eq!(ranks(&cores, &[160, 160, 320, 0, 160]), None, "all alike on each core");
        let five = [Some(0); 5];
        assert_eq!(ranks(&five, &[10, 20, 30, 40, 50]), None, "more ranks than there may be");
    }

    #[test]
    fn what_is_long_is_put_behind_what_is_short() {
        let member =
            |server, most_ms: u64| Member { server, goal_ns: 1e8, most_ns: vec![most_ms * 1_000_000; 3] };
        let mut search = Search {
            ages_ns: vec![10_000_000, 100_000_000, 320_000_000],
            members: vec![member(0, 2), member(1, 30)],
            windows_ns: vec![2_000_000, 32_000_000],
            cuts: vec![1],
            most_ranks: MAX_RANKS,
            capacity: 0.9,
            best: (0.6, 0.0, Vec::new()),
        };
        search.from(0, 0, 0.0, 0.0, &mut Vec::new());
        let [(1, short_ns), (2, long_ns)] = search.best.2[..] else { panic!("{:?}", search.best) };
        assert!(long_ns - short_ns > 32_000_000, "{short_ns}, {long_ns}");
        // Without room for the greater budgets they stay alike.
        search.best = (0.6, 0.0, Vec::new());
        search.capacity = 0.1;
        search.from(0, 0, 0.0, 0.0, &mut Vec::new());
        assert!(search.best.2.is_empty(), "{:?}", search.best);
    }
}

//! Experiments: which settings are tried in which order, drawn by lot.

use takt_rt::random::SplitMix64;

/// An alternative of a search: one setting, with one or several values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Factor {
    /// Name of the setting.
    pub name: String,
    /// The ways; leaving it as it was found is none of them.
    pub options: Vec<String>,
    /// It changes nothing: whoever credits it is wrong.
    pub placebo: bool,
    /// It costs something elsewhere: where it is not missed, it goes before one that does not.
    pub costs: bool,
}

/// For each factor the chosen way, or none: as it was found.
pub type Config = Vec<Option<usize>>;

/// Measurements in one block under one configuration.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Block {
    /// The statistic of the aim, microseconds.
    pub value_us: f64,
    /// Its worst value, microseconds.
    pub worst_us: f64,
    /// Cycles.
    pub releases: u64,
    /// Share of the CPUs' time that the hypervisor took, 0 to 1.
    pub stolen: f64,
    /// Share of the CPUs' time that other programs used, 0 to 1.
    pub load: f64,
}

/// A bench that can set and measure: a machine, or a model of one.
pub trait Bench {
    /// Its error.
    type Error;

    /// Measures one block under each configuration, in this order; fewer where the time is over or
    /// somebody ends it.
    ///
    /// # Errors
    /// Nothing more can be measured.
    fn measure(&mut self, plan: &[Config]) -> Result<Vec<Block>, Self::Error>;

    /// For how many blocks there is still time.
    fn left(&self) -> usize;

    /// Whether somebody ended it before its time was over.
    fn is_stopped(&self) -> bool {
        false
    }
}

/// Draws lots.
#[derive(Debug)]
pub(crate) struct Lot(SplitMix64);

impl Lot {
    pub(crate) fn new(seed: u64) -> Self {
        Self(SplitMix64::new(seed))
    }

    /// A number below `n`, which must be positive.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.0.within(0, n.max(1) as u64 - 1) as usize
    }

    pub(crate) fn seed(&mut self) -> u64 {
        self.0.bits()
    }

    fn shuffle<T>(&mut self, values: &mut [T]) {
        for at in (1..values.len()).rev() {
            values.swap(at, self.below(at + 1));
        }
    }

    /// The numbers below `n` in random order.
    pub(crate) fn permutation(&mut self, n: usize) -> Vec<usize> {
        self.balanced(n, n)
    }

    /// `n` values that go through `0..of` as evenly as can be, in random order.
    pub(crate) fn balanced(&mut self, n: usize, of: usize) -> Vec<usize> {
        let mut values: Vec<usize> = (0..n).map(|at| at % of.max(1)).collect();
        self.shuffle(&mut values);
        values
    }
}

/// Options of each factor that are still in the search.
pub(crate) type Live = Vec<Vec<usize>>;

/// Pairs for a screening. Each pair draws a way for every factor, and which half of the factors is
/// set in its first member; the second is its complement. So the main effects of all factors come
/// out of all pairs, clear of what any two of them do only together (a folded-over design: Box and
/// Hunter 1961), and free of drift that is slow against a pair.
pub(crate) fn folded_pairs(live: &Live, pairs: usize, lot: &mut Lot) -> Vec<[Config; 2]> {
    let mut columns: Vec<(Vec<usize>, Vec<usize>)> = Vec::new();
    for options in live {
        let ways = lot.balanced(pairs, options.len());
        // The member that sets it is balanced for each value separately.
        let mut member = vec![0; pairs];
        for way in 0..options.len() {
            let of_way: Vec<usize> = (0..pairs).filter(|&pair| ways[pair] == way).collect();
            let halves = lot.balanced(of_way.len(), 2);
            // An odd one goes either way.
            let flip = lot.below(2);
            for (pair, half) in of_way.iter().zip(halves) {
                member[*pair] = half ^ flip;
            }
        }
        columns.push((ways, member));
    }
    (0..pairs)
        .map(|pair| {
            let config = |which: usize| {
                let of = |(options, (ways, member)): (&Vec<usize>, &(Vec<usize>, Vec<usize>))| {
                    options.get(ways[pair]).copied().filter(|_| member[pair] == which)
                };
                live.iter().zip(&columns).map(of).collect::<Config>()
            };
            [config(0), config(1)]
        })
        .collect()
}

/// The order in which blocks are measured: `groups` of configurations, the members of each in
/// random order. Without `interleave` all blocks of one member come together, then those of the
/// next: the usual and wrong way, kept for the tests that show why.
pub(crate) fn order(groups: usize, members: usize, interleave: bool, lot: &mut Lot) -> Vec<(usize, usize)> {
    if !interleave {
        let all = lot.permutation(members);
        return all.into_iter().flat_map(|member| (0..groups).map(move |group| (group, member))).collect();
    }
    let mut order = Vec::with_capacity(groups * members);
    for group in 0..groups {
        let of_group = lot.permutation(members);
        order.extend(of_group.into_iter().map(|member| (group, member)));
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_pair_is_a_choice_and_its_complement() {
        let live: Live = vec![vec![0, 1, 2], vec![0], vec![], vec![1]];
        let pairs = folded_pairs(&live, 24, &mut Lot::new(5));
        for [first, second] in &pairs {
            for (at, options) in live.iter().enumerate() {
                let set: Vec<usize> = [first[at], second[at]].into_iter().flatten().collect();
                // In exactly one of the two, and in a way that is left.
                assert_eq!(set.len(), usize::from(!options.is_empty()));
                assert!(set.iter().all(|way| options.contains(way)));
            }
        }
        for way in 0..3 {
            let firsts = pairs.iter().filter(|pair| pair[0][0] == Some(way)).count();
            let seconds = pairs.iter().filter(|pair| pair[1][0] == Some(way)).count();
            assert_eq!(firsts + seconds, 8);
            assert_eq!(firsts, 4, "way {way} is not balanced");
        }
    }

    proptest! {
        #[test]
        fn every_block_is_measured_once(groups in 0_usize..20, members in 0_usize..7, interleave: bool, seed: u64) {
            let mut order = order(groups, members, interleave, &mut Lot::new(seed));
            if interleave {
                prop_assert!(order.windows(2).all(|two| two[0].0 <= two[1].0));
            }
            order.sort_unstable();
            let all: Vec<_> = (0..groups).flat_map(|group| (0..members).map(move |member| (group, member))).collect();
            prop_assert_eq!(order, all);
        }
    }
}

//! Common cycles of a graph: callbacks that activate each other, executors that influence each
//! other.

/// The strongly connected components of a graph whose node `n` leads to `next[n]`, each after all
/// that it leads to and with its members in order (Tarjan, *Depth-first search and linear graph
/// algorithms*, 1972). Without recursion, since nothing bounds the length of chains.
#[must_use]
pub fn components(next: &[Vec<usize>]) -> Vec<Vec<usize>> {
    const UNSEEN: usize = usize::MAX;
    let mut search =
        Search { number: vec![UNSEEN; next.len()], low: vec![0; next.len()], found: 0, open: Vec::new() };
    let mut on_stack = vec![false; next.len()];
    let mut components = Vec::new();
    for root in 0..next.len() {
        if search.number[root] != UNSEEN {
            continue;
        }
        search.discover(root);
        on_stack[root] = true;
        // A node, and how many of its edges were followed.
        let mut path = vec![(root, 0)];
        while let Some(&mut (node, ref mut followed)) = path.last_mut() {
            if let Some(&to) = next[node].get(*followed) {
                *followed += 1;
                if search.number[to] == UNSEEN {
                    search.discover(to);
                    on_stack[to] = true;
                    path.push((to, 0));
                } else if on_stack[to] {
                    search.low[node] = search.low[node].min(search.number[to]);
                }
                continue;
            }
            path.pop();
            if let Some(&(before, _)) = path.last() {
                search.low[before] = search.low[before].min(search.low[node]);
            }
            if search.low[node] == search.number[node] {
                let begin = search.open.iter().rposition(|&open| open == node).unwrap_or(0);
                let mut members = search.open.split_off(begin);
                members.iter().for_each(|&member| on_stack[member] = false);
                members.sort_unstable();
                components.push(members);
            }
        }
    }
    components
}

struct Search {
    /// In which order nodes were discovered.
    number: Vec<usize>,
    /// The first node that a node leads back to.
    low: Vec<usize>,
    found: usize,
    /// Discovered, and not yet in a component.
    open: Vec<usize>,
}

impl Search {
    fn discover(&mut self, node: usize) {
        self.number[node] = self.found;
        self.low[node] = self.found;
        self.found += 1;
        self.open.push(node);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_long_chain_needs_no_stack() {
        let mut next: Vec<Vec<usize>> = (1..=200_000).map(|to| vec![to]).collect();
        next.push(vec![199_999]);
        let found = components(&next);
        assert_eq!((found.len(), &found[0]), (200_000, &vec![199_999, 200_000]));
    }

    proptest! {
        #[test]
        fn members_reach_each_other_and_later_components_lead_to_earlier_ones(
            next in prop::collection::vec(prop::collection::vec(0_usize..12, 0..4), 12)
        ) {
            let mut reaches = vec![vec![false; next.len()]; next.len()];
            for (from, to) in next.iter().enumerate() {
                reaches[from][from] = true;
                to.iter().for_each(|&to| reaches[from][to] = true);
            }
            for over in 0..next.len() {
                for from in 0..next.len() {
                    for to in 0..next.len() {
                        reaches[from][to] |= reaches[from][over] && reaches[over][to];
                    }
                }
            }
            let found = components(&next);
            let mut of = vec![usize::MAX; next.len()];
            for (number, members) in found.iter().enumerate() {
                prop_assert!(members.is_sorted());
                members.iter().for_each(|&member| of[member] = number);
            }
            for from in 0..next.len() {
                for to in 0..next.len() {
                    prop_assert_eq!(of[from] == of[to], reaches[from][to] && reaches[to][from]);
                    prop_assert!(!reaches[from][to] || of[to] <= of[from]);
                }
            }
        }
    }
}

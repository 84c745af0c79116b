//! Executors that influence each other, and in which order groups of them can be analysed.
//!
//! Influence goes from publishers to subscribers. Executors on a common cycle of influence need a fixed point together; all others are
//! analysed once, after those upstream of them.

use crate::workload::Workload;

/// Executors that influence each other; mostly a single one.
#[derive(Debug, Default)]
pub(super) struct Component {
    /// Its executors, those first whose callbacks come first.
    pub servers: Vec<usize>,
    /// Their callbacks, each after all that activate it.
    pub callbacks: Vec<usize>,
    /// Components that influence it directly.
    pub upstream: Vec<usize>,
}

/// Components, each after all that influence it, and the component of every executor.
pub(super) fn components(workload: &Workload) -> (Vec<Component>, Vec<usize>) {
    let count = workload.executors.len();
    let mut sources: Vec<Vec<usize>> = vec![Vec::new(); count];
    for callback in &workload.callbacks {
        for (publisher, _) in &callback.inputs {
            let source = workload.callbacks[*publisher].server;
            if source != callback.server && !sources[callback.server].contains(&source) {
                sources[callback.server].push(source);
            }
        }
    }
    let mut search = Tarjan {
        sources: &sources,
        number: vec![0; count],
        low: vec![0; count],
        next: 1,
        stack: Vec::new(),
        of: vec![usize::MAX; count],
        found: 0,
    };
    for server in 0..count {
        search.visit(server);
    }
    let (of, found) = (search.of, search.found);
    let mut components: Vec<Component> = (0..found).map(|_| Component::default()).collect();
    for &callback in &workload.order {
        let server = workload.callbacks[callback].server;
        let component = &mut components[of[server]];
        component.callbacks.push(callback);
        if !component.servers.contains(&server) {
            component.servers.push(server);
        }
    }
    for (server, sources) in sources.iter().enumerate() {
        let component = &mut components[of[server]];
        component.upstream.extend(sources.iter().map(|s| of[*s]).filter(|c| *c != of[server]));
        // Without callbacks.
        if !component.servers.contains(&server) {
            component.servers.push(server);
        }
    }
    for component in &mut components {
        component.upstream.sort_unstable();
        component.upstream.dedup();
    }
    (components, of)
}

/// Tarjan's algorithm along influence backwards, so that components are found upstream first; without recursion, since
/// nothing bounds the length of chains.
struct Tarjan<'a> {
    sources: &'a [Vec<usize>],
    /// Order of discovery; 0: not yet.
    number: Vec<usize>,
    low: Vec<usize>,
    next: usize,
    stack: Vec<usize>,
    of: Vec<usize>,
    found: usize,
}

impl Tarjan<'_> {
    fn discover(&mut self, node: usize) {
        self.number[node] = self.next;
        self.low[node] = self.next;
        self.next += 1;
        self.stack.push(node);
    }

    fn visit(&mut self, root: usize) {
        if self.number[root] > 0 {
            return;
        }
        self.discover(root);
        // A node, and how many of its sources were looked at.
        let mut path = vec![(root, 0)];
        while let Some((node, looked)) = path.last_mut() {
            let node = *node;
            if let Some(&source) = self.sources[node].get(*looked) {
                *looked += 1;
                if self.number[source] == 0 {
                    self.discover(source);
                    path.push((source, 0));
                } else if self.of[source] == usize::MAX {
                    self.low[node] = self.low[node].min(self.number[source]);
                }
                continue;
            }
            path.pop();
            if let Some((before, _)) = path.last() {
                self.low[*before] = self.low[*before].min(self.low[node]);
            }
            if self.low[node] == self.number[node] {
                while let Some(member) = self.stack.pop() {
                    self.of[member] = self.found;
                    if member == node {
                        break;
                    }
                }
                self.found += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::random_system;
    use crate::workload::Reading;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn influence_goes_forwards_and_components_are_what_influences_each_other(seed in any::<u64>()) {
            let model = random_system(seed).exact_model();
            let workload =
                Workload::new(&model, &Reading { cost_margin: 0.0, arrival_margin: 0.0, exceedance: None });
            let (components, of) = components(&workload);
            let upstream: Vec<Vec<usize>> =
                (0..of.len()).map(|server| workload.influencing([server])).collect();
            for a in 0..of.len() {
                for b in 0..of.len() {
                    let mutual = upstream[a].contains(&b) && upstream[b].contains(&a);
                    prop_assert_eq!(of[a] == of[b], mutual, "executors {} and {}", a, b);
                    if upstream[a].contains(&b) {
                        prop_assert!(of[b] <= of[a]);
                    }
                }
            }
            let mut servers: Vec<usize> = components.iter().flat_map(|c| c.servers.clone()).collect();
            servers.sort_unstable();
            prop_assert_eq!(servers, (0..of.len()).collect::<Vec<_>>());
            let callbacks: usize = components.iter().map(|c| c.callbacks.len()).sum();
            prop_assert_eq!(callbacks, workload.callbacks.len());
            for (number, component) in components.iter().enumerate() {
                prop_assert!(component.upstream.iter().all(|up| *up < number));
            }
        }
    }
}

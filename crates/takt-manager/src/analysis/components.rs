//! Executors that influence each other, and in which order groups of them can be analysed.
//!
//! Influence goes from publishers to subscribers. Executors on a common cycle of influence need a
//! fixed point together; all others are analysed once, after those upstream of them.

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
    /// All executors that influence it, its own among them.
    pub influencing: Vec<usize>,
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
    // Along influence backwards, so that components are found upstream first.
    let groups = takt_model::components(&sources);
    let mut of = vec![usize::MAX; count];
    for (number, servers) in groups.iter().enumerate() {
        servers.iter().for_each(|&server| of[server] = number);
    }
    let mut components: Vec<Component> = groups.iter().map(|_| Component::default()).collect();
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
    for number in 0..components.len() {
        // Those upstream come before.
        let (before, rest) = components.split_at_mut(number);
        let component = &mut rest[0];
        component.upstream.sort_unstable();
        component.upstream.dedup();
        component.influencing.clone_from(&component.servers);
        component.influencing.extend(component.upstream.iter().flat_map(|up| &before[*up].influencing));
        component.influencing.sort_unstable();
        component.influencing.dedup();
    }
    (components, of)
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
                for server in &component.servers {
                    prop_assert_eq!(&component.influencing, &workload.influencing([*server]));
                }
            }
        }
    }
}

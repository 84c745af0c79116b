//! Which threads serve callbacks together, and which callback belongs where.

use std::collections::BTreeMap;

use super::Extractor;
use super::state::{CallbackState, Origin};
use crate::{CallbackGroup, CallbackId, Model};

/// What an executor's C++ type says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Type {
    Single,
    Static,
    Multi,
    Events,
    /// Somebody's own.
    Other,
}

impl Type {
    /// The type of `kind`, a mangled name. The events executor with callback groups (rclcpp after
    /// Kilted) can have several threads.
    pub(super) fn of(kind: &str) -> Self {
        let is = |name: &str| kind.contains(name);
        match () {
            () if is("6rclcpp") && is("28StaticSingleThreadedExecutor") => Self::Static,
            () if is("6rclcpp") && is("22SingleThreadedExecutor") => Self::Single,
            () if is("MultiThreaded") || is("EventsCBGExecutor") => Self::Multi,
            () if is("6rclcpp") && is("14EventsExecutor") => Self::Events,
            () => Self::Other,
        }
    }
}

/// Threads that serve the same callbacks.
pub(super) struct Groups {
    parent: BTreeMap<usize, usize>,
}

impl Groups {
    pub(super) fn new(extractor: &Extractor) -> Self {
        let tables = &extractor.tables;
        let mut groups = Self { parent: BTreeMap::new() };
        let mut declared: BTreeMap<(u32, u64), usize> = BTreeMap::new();
        let mut spinning: BTreeMap<(u32, u64), usize> = BTreeMap::new();
        for (slot, thread) in tables.threads.iter().filter(|(slot, _)| alive(extractor, *slot)) {
            if let Some((executor, kind)) = &thread.spins
                && Type::of(kind) == Type::Multi
            {
                let first = *spinning.entry((thread.pid, *executor)).or_insert(slot);
                groups.join(first, slot);
            }
        }
        for (_, callback) in tables.callbacks.iter().filter(|(_, c)| c.dead.is_none()) {
            // Declared to be one executor with several threads.
            if let Some(executor) = tables.declared_executor(callback)
                && tables.executors.get(&executor) == Some(&true)
            {
                for &(thread, _) in callback.threads.iter().filter(|(thread, _)| alive(extractor, *thread)) {
                    let first = *declared.entry(executor).or_insert(thread);
                    groups.join(first, thread);
                }
            }
            // One change of thread is a move (spin was called elsewhere); to and fro is several
            // threads at work.
            if callback.switches < 2 {
                continue;
            }
            let mut serving =
                callback.threads.iter().map(|&(thread, _)| thread).filter(|&t| alive(extractor, t));
            let Some(first) = serving.next() else { continue };
            for other in serving {
                groups.join(first, other);
            }
        }
        groups
    }

    fn join(&mut self, a: usize, b: usize) {
        let (a, b) = (self.root(a), self.root(b));
        if a != b {
            self.parent.insert(a.max(b), a.min(b));
        }
    }

    pub(super) fn root(&self, mut thread: usize) -> usize {
        while let Some(&parent) = self.parent.get(&thread) {
            thread = parent;
        }
        thread
    }

    /// The thread that serves a callback: the one that ran it last; of one that never ran, whoever
    /// serves its node, or its process if only one does.
    pub(super) fn home(&self, extractor: &Extractor, slot: usize) -> Option<usize> {
        let tables = &extractor.tables;
        let callback = &tables.callbacks[slot];
        if callback.last_thread.is_some() {
            return callback.last_thread.filter(|&thread| alive(extractor, thread));
        }
        let serving = |same: &dyn Fn(&CallbackState) -> bool| {
            let mut homes: Vec<usize> = tables
                .callbacks
                .iter()
                .filter(|(_, c)| c.dead.is_none() && c.pid == callback.pid && same(c))
                .filter(|(_, c)| !matches!(c.origin, Origin::Source { .. } | Origin::Task { .. }))
                .filter_map(|(_, c)| c.last_thread)
                .filter(|&thread| alive(extractor, thread))
                .map(|thread| self.root(thread))
                .collect();
            homes.sort_unstable();
            homes.dedup();
            match homes[..] {
                [only] => Some(only),
                _ => None,
            }
        };
        if let Some(executor) = tables.declared_executor(callback) {
            return serving(&|other| tables.declared_executor(other) == Some(executor));
        }
        // One executor serves all of a callback group.
        if let Some(group) = tables.group(callback)
            && let Some(thread) = serving(&|other| tables.group(other) == Some(group))
        {
            return Some(thread);
        }
        let node = tables.node_of_callback(callback);
        serving(&|other| node.is_some() && tables.node_of_callback(other) == node)
            .or_else(|| serving(&|_| true))
            .or_else(|| {
                let mut executors =
                    tables.threads.iter().filter(|(_, t)| t.pid == callback.pid && t.executor && !t.ended);
                let (only, _) = executors.next()?;
                executors.next().is_none().then_some(only)
            })
    }
}

/// Fills the callback groups of the executors (`ids`: from slots to the model).
pub(super) fn members(extractor: &Extractor, ids: &BTreeMap<usize, CallbackId>, model: &mut Model) {
    let tables = &extractor.tables;
    let mut found: BTreeMap<(usize, (u32, u64)), Vec<CallbackId>> = BTreeMap::new();
    for (&slot, &id) in ids {
        if let Some(group) = tables.group(&tables.callbacks[slot])
            && tables.groups.contains_key(&group)
        {
            found.entry((model.callbacks[id.0].executor.0, group)).or_default().push(id);
        }
    }
    for ((executor, group), callbacks) in found {
        let reentrant = tables.groups.get(&group) == Some(&true);
        model.executors[executor].groups.push(CallbackGroup { callbacks, reentrant });
    }
}

pub(super) fn alive(extractor: &Extractor, thread: usize) -> bool {
    extractor.tables.threads.get(thread).is_some_and(|t| !t.ended || extractor.options.keep_ended)
}

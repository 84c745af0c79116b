//! Objects of one kind, by what programs call them: the handle of `rcl`, and that of the middleware
//! where they have one. Nobody reports the end of an object; its handles come again.

use std::ops::{Deref, DerefMut};

use rustc_hash::FxHashMap;
use slab::Slab;

use super::state::Key;

/// Objects of one kind. The slab is theirs: what is read and changed there needs no handle.
#[derive(Debug)]
pub(crate) struct Registry<T> {
    objects: Slab<T>,
    by_handle: FxHashMap<Key, usize>,
    by_middleware: FxHashMap<Key, usize>,
}

/// Which of an object's two handles is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Rcl,
    Middleware,
}

impl<T> Default for Registry<T> {
    fn default() -> Self {
        Self { objects: Slab::new(), by_handle: FxHashMap::default(), by_middleware: FxHashMap::default() }
    }
}

impl<T> Deref for Registry<T> {
    type Target = Slab<T>;

    fn deref(&self) -> &Self::Target {
        &self.objects
    }
}

impl<T> DerefMut for Registry<T> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.objects
    }
}

impl<T> Registry<T> {
    fn handles(&self, side: Side) -> &FxHashMap<Key, usize> {
        match side {
            Side::Rcl => &self.by_handle,
            Side::Middleware => &self.by_middleware,
        }
    }

    fn handles_mut(&mut self, side: Side) -> &mut FxHashMap<Key, usize> {
        match side {
            Side::Rcl => &mut self.by_handle,
            Side::Middleware => &mut self.by_middleware,
        }
    }

    /// The object with that handle.
    pub(crate) fn find(&self, side: Side, key: Key) -> Option<usize> {
        self.handles(side).get(&key).copied()
    }

    /// Enters an object that was registered. Returns its place, and those of the objects that were
    /// destroyed before without an event: the one that had its handle, and the one that was known
    /// by its middleware's handle alone. They stay until the caller removes them.
    pub(crate) fn enter(
        &mut self,
        key: Key,
        middleware: Option<Key>,
        object: T,
    ) -> (usize, [Option<usize>; 2]) {
        let index = self.objects.insert(object);
        let before = self.by_handle.insert(key, index);
        if let Some(before) = before {
            self.by_middleware.retain(|_, known| *known != before);
        }
        let other = middleware.and_then(|middleware| self.by_middleware.insert(middleware, index));
        let unnamed = other.filter(|other| !self.by_handle.values().any(|known| known == other));
        (index, [before, unnamed])
    }

    /// Enters an object of which only an event shows that it exists.
    pub(crate) fn enter_seen(&mut self, side: Side, key: Key, object: T) -> usize {
        let index = self.objects.insert(object);
        self.handles_mut(side).insert(key, index);
        index
    }

    /// The object has this handle of the middleware, too, unless another one has it or there are
    /// `most`.
    pub(crate) fn link(&mut self, middleware: Key, index: usize, most: usize) {
        if self.by_middleware.len() < most {
            self.by_middleware.entry(middleware).or_insert(index);
        }
    }

    /// Forgets all objects of a process.
    pub(crate) fn forget(&mut self, pid: u32) {
        let Self { objects, by_handle, by_middleware } = self;
        for handles in [by_handle, by_middleware] {
            handles.retain(|&(owner, _), index| {
                if owner == pid {
                    objects.try_remove(*index);
                }
                owner != pid
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PID: u32 = 7;

    fn key(handle: u64) -> Key {
        (PID, handle)
    }

    /// Enters an object and removes those that it replaces, as the extractor does.
    fn enter(
        registry: &mut Registry<&'static str>,
        handle: u64,
        middleware: u64,
        name: &'static str,
    ) -> usize {
        let (index, replaced) = registry.enter(key(handle), Some(key(middleware)), name);
        for old in replaced.into_iter().flatten() {
            registry.try_remove(old);
        }
        index
    }

    #[test]
    fn a_handle_that_comes_again_is_another_object() {
        let mut registry = Registry::default();
        let first = enter(&mut registry, 1, 11, "first");
        let second = enter(&mut registry, 1, 12, "second");
        assert_ne!(first, second);
        assert_eq!((registry.len(), registry.find(Side::Rcl, key(1))), (1, Some(second)));
        // Nothing leads to the first one.
        assert_eq!(registry.find(Side::Middleware, key(11)), None);
        assert_eq!(registry.find(Side::Middleware, key(12)), Some(second));
    }

    #[test]
    fn one_known_by_the_middleware_alone_is_replaced_and_no_other() {
        let mut registry = Registry::default();
        let seen = registry.enter_seen(Side::Middleware, key(11), "seen");
        let registered = enter(&mut registry, 1, 11, "registered");
        assert!(registry.get(seen).is_none() && registry.len() == 1);
        // A second object with that middleware's handle: the first one still has its own.
        enter(&mut registry, 2, 11, "other");
        assert_eq!((registry.len(), registry.get(registered)), (2, Some(&"registered")));
    }

    #[test]
    fn links_are_bounded_and_a_process_takes_all_of_its_own_along() {
        let mut registry = Registry::default();
        let mine = enter(&mut registry, 1, 11, "mine");
        registry.link(key(12), mine, 2);
        registry.link(key(13), mine, 2);
        assert_eq!(registry.find(Side::Middleware, key(12)), Some(mine));
        assert_eq!(registry.find(Side::Middleware, key(13)), None);
        registry.enter_seen(Side::Rcl, (PID + 1, 1), "another's");
        registry.forget(PID);
        let left: Vec<&str> = registry.iter().map(|(_, name)| *name).collect();
        assert_eq!((left, registry.find(Side::Rcl, key(1))), (vec!["another's"], None));
    }
}

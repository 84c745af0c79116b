//! The nodes of a process that made them before it was observed, and which of them its publishers,
//! subscriptions, services and clients belong to. No call shows that any more; the process's memory
//! does.
//!
//! Assumptions, each checked by its content before it is trusted:
//! - `rmw_node_t` begins with the middleware's identifier, the very pointer that all its objects
//!   begin with, then its data, the node's name and its namespace (`rmw/types.h`, the same from
//!   Foxy to Kilted). Texts that cannot be a name and a namespace are no node.
//! - `rcl_node_t` is two pointers, context and implementation (`rcl/node.h`); the implementation
//!   holds the pointer to the `rmw_node_t` somewhere, and that to the full name behind it
//!   (`rcl/src/rcl/node_impl.h`). The implementation of the context, its second word
//!   (`rcl/context.h`), has the `rmw_context_t` inside (`rcl/src/rcl/context_impl.h`) that the
//!   fifth word of the `rmw_node_t` leads to.
//! - `rclcpp`'s objects hold the shared pointer to their `rcl_node_t` shortly before that to their
//!   own handle (`publisher_base.hpp`, `subscription_base.hpp`, `service.hpp`, `client.hpp`).
//! - Callback groups hold weak pointers to their members in vectors (`callback_group.hpp`), and
//!   nodes to their groups in one that stands shortly behind the shared pointer to their
//!   `rcl_node_t` (`node_base.hpp`). Timers are found by these: they hold no node.
//!
//! So the writable memory is read once, and every pointer in it into writable memory is kept,
//! sorted by where it leads: "who points here" is then a search. A contradiction (two nodes equally
//! near) gives no answer.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use super::memory::{Memory, words, words_before};
use super::objects::What;
use crate::event::{Handle, Kind};

/// Memory that is read of a process. Objects of `rclcpp` are made at start-up and lie in its first
/// heaps; beyond are images and maps.
const MAX_BYTES: u64 = 256 << 20;
/// Pointers that are kept: 64 MiB while the process's objects are looked up.
const MAX_POINTERS: usize = 4 << 20;
const CHUNK: usize = 1 << 20;
/// Words of an `rcl` implementation that may hold the pointer to the middleware's object.
const IMPLEMENTATION_WORDS: u64 = 96;
/// Words before an object's own handle that may hold its node's: between them lie a context, a
/// logger and a mutex at most.
const BEFORE_WORDS: u64 = 24;
/// Words behind the pointer to the middleware's node that may hold the one to the full name.
const FULL_NAME_WORDS: u64 = 16;
/// Bytes of a context's implementation before the middleware's context in it: an allocator, options
/// and arguments.
const MAX_CONTEXT_BYTES: u64 = 512;
/// Occurrences of a handle that are looked at.
const MAX_OCCURRENCES: usize = 64;

/// Members of a callback group, and groups of a node, that are looked through.
const MAX_MEMBERS: u64 = 1024;
/// Pointers into the neighbourhood of one that are looked at.
const MAX_NEIGHBOURS: usize = 1 << 16;
/// A weak pointer: to the object, and to its counts.
const WEAK_BYTES: u64 = 16;
/// Words of a callback group: its type in the first, a mutex of five, a flag, and the lists of
/// subscriptions, timers, services, clients and waitables.
const FLAG_WORD: usize = 6;
const LIST_WORDS: [usize; 5] = [7, 10, 13, 16, 19];
const GROUP_WORDS: usize = 22;
/// Words from a subscription's handle to its copy within the process: a logger, the handlers of
/// events and weak pointers are between them.
const WITHIN_WORDS: u64 = 40;

/// The nodes of one process.
#[derive(Debug, Default)]
pub struct Nodes {
    /// Begin of every object of the middleware.
    pub identifier: u64,
    /// By the address of their `rcl_node_t`.
    names: BTreeMap<Handle, (Arc<str>, Arc<str>)>,
    /// Pointers into writable memory: where they lead, where they are.
    pointers: Vec<(u64, u64)>,
    regions: Vec<(u64, u64)>,
    /// All of its memory was read.
    whole: bool,
}

/// A callback group, of which node it is, and whether it is reentrant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Group {
    pub group: Handle,
    pub node: Handle,
    pub reentrant: bool,
}

impl Nodes {
    /// Reads the process's memory. `identifier` is what every object of its middleware begins with.
    pub fn find(memory: &mut dyn Memory, pid: u32, identifier: u64) -> Self {
        let (regions, mut whole) = memory.regions(pid);
        let mut marked = Vec::new();
        let mut pointers = Vec::new();
        let mut left = MAX_BYTES;
        let mut bytes = vec![0; CHUNK];
        for &(start, end) in &regions {
            let mut at = start;
            while at < end && left > 0 && pointers.len() < MAX_POINTERS {
                let wanted = usize::try_from((end - at).min(left)).map_or(CHUNK, |rest| rest.min(CHUNK));
                let count = memory.read(pid, at, &mut bytes[..wanted]) / 8 * 8;
                if count == 0 {
                    break;
                }
                for (index, word) in bytes[..count].chunks_exact(8).enumerate() {
                    let value = u64::from_ne_bytes(word.try_into().unwrap_or_default());
                    let here = at + index as u64 * 8;
                    if value == identifier {
                        marked.push(here);
                    } else if value % 8 == 0 && is_inside(&regions, value) {
                        pointers.push((value, here));
                    }
                }
                at += count as u64;
                left = left.saturating_sub(count as u64);
            }
        }
        whole &= left > 0 && pointers.len() < MAX_POINTERS;
        pointers.sort_unstable();
        let mut nodes = Self { identifier, names: BTreeMap::new(), pointers, regions, whole };
        for rmw_node in marked {
            if let Some(name) = node_name(memory, pid, rmw_node)
                && let Some(handle) = nodes.handle(memory, pid, rmw_node, &name)
            {
                nodes.names.insert(handle, name);
            }
        }
        nodes
    }

    /// Events that would have been reported when they were made.
    pub fn events(&self) -> impl Iterator<Item = Kind> {
        self.names.iter().map(|(&node, (name, namespace))| Kind::NodeInit {
            node,
            name: name.clone(),
            namespace: namespace.clone(),
        })
    }

    /// The only node, where there is one only: of memory that was read in part there may be others.
    pub fn only(&self) -> Option<Handle> {
        let mut all = self.names.keys();
        all.next().copied().filter(|_| all.next().is_none() && self.whole)
    }

    /// The node of what has this handle of `rcl`; 0: unknown.
    pub fn of(&self, memory: &mut dyn Memory, pid: u32, handle: Handle) -> Handle {
        self.only().or_else(|| self.nearest(memory, pid, &[handle])).unwrap_or(0)
    }

    /// The node of what has this object of the middleware (its handle of `rcl` is not known); 0:
    /// unknown.
    pub fn behind(&self, memory: &mut dyn Memory, pid: u32, rmw_object: Handle) -> Handle {
        let handles = || {
            let inside: BTreeSet<Handle> =
                self.holders(rmw_object).flat_map(|at| self.to_implementation(at)).collect();
            self.nearest(memory, pid, &inside.into_iter().take(MAX_OCCURRENCES).collect::<Vec<_>>())
        };
        self.only().or_else(handles).unwrap_or(0)
    }

    /// The callback group that this object of `rclcpp` is in. Something else may look like one; it
    /// is in no node's list of groups.
    pub fn group(&self, memory: &mut dyn Memory, pid: u32, object: u64, what: What) -> Option<Group> {
        let before = match what {
            What::Subscription => LIST_WORDS[0],
            What::Timer => LIST_WORDS[1],
            What::Service => LIST_WORDS[2],
            // A waitable.
            What::IntraProcess => LIST_WORDS[4],
        };
        let mut found = BTreeSet::new();
        for list in self.lists(memory, pid, object) {
            let Some(group) = list.checked_sub(before as u64 * 8) else { continue };
            let Some(words) = words::<GROUP_WORDS>(memory, pid, group) else { continue };
            let (reentrant, flag) = (words[0] & 0xffff_ffff, words[FLAG_WORD] & 0xff);
            let list = |first: usize| is_list([words[first], words[first + 1], words[first + 2]]);
            if reentrant <= 1
                && flag <= 1
                && LIST_WORDS.iter().all(|&first| list(first))
                && let Some(node) = self.with_group(memory, pid, group)
            {
                found.insert(Group { group, node, reentrant: reentrant == 1 });
            }
        }
        // Contradictions are no answer.
        found.first().copied().filter(|_| found.len() == 1)
    }

    /// The node that has this callback group.
    fn with_group(&self, memory: &mut dyn Memory, pid: u32, group: Handle) -> Option<Handle> {
        let mut found = BTreeSet::new();
        for list in self.lists(memory, pid, group) {
            found.extend(self.before(memory, pid, list).map(|(_, node)| node));
        }
        found.first().copied().filter(|_| found.len() == 1)
    }

    /// The words shortly before each pointer to this object, the nearest first: what the objects
    /// that hold it hold, too.
    pub fn beside<'a>(
        &'a self,
        memory: &'a mut dyn Memory,
        pid: u32,
        object: u64,
    ) -> impl Iterator<Item = u64> + 'a {
        let before = |at: u64| (1..=WITHIN_WORDS).filter_map(move |distance| at.checked_sub(distance * 8));
        let words = self.holders(object).flat_map(before).filter_map(move |at| memory.word(pid, at));
        words.filter(|&word| is_inside(&self.regions, word))
    }

    /// Vectors of weak pointers that have one to this object.
    fn lists(&self, memory: &mut dyn Memory, pid: u32, object: u64) -> Vec<u64> {
        let mut lists = Vec::new();
        for at in self.holders(object) {
            let most = MAX_MEMBERS * WEAK_BYTES;
            // The end stands behind the begin: few of what leads here have what leads beyond it as
            // their neighbour, and only these are read.
            let ends = self.pointing(at + 1, at.saturating_add(most)).map(|(_, place)| place);
            let ends: HashSet<u64> = ends.take(MAX_NEIGHBOURS).collect();
            let begins = self.pointing(at.saturating_sub(most), at).rev().take(MAX_NEIGHBOURS);
            for (begin, list) in begins {
                if (at - begin) % WEAK_BYTES != 0 || !ends.contains(&(list + 8)) {
                    continue;
                }
                let Some([end, allocated]) = words(memory, pid, list + 8) else { continue };
                let fits = end > at && is_list([begin, end, allocated]);
                lists.extend(fits.then_some(list));
            }
        }
        lists
    }

    /// The pointers that lead to `from` until `to`: where to, and where they are.
    fn pointing(&self, from: u64, to: u64) -> impl DoubleEndedIterator<Item = (u64, u64)> + '_ {
        let first = self.pointers.partition_point(|(target, _)| *target < from);
        let count = self.pointers[first..].partition_point(|(target, _)| *target <= to);
        self.pointers[first..first + count].iter().copied()
    }

    /// Places of the pointers to `value`.
    fn holders(&self, value: u64) -> impl Iterator<Item = u64> + '_ {
        self.pointing(value, value).map(|(_, at)| at).take(MAX_OCCURRENCES)
    }

    /// Pointers that lead to the begin of an implementation that has `at` inside, the latest begin
    /// first.
    fn to_implementation(&self, at: u64) -> impl Iterator<Item = u64> + '_ {
        let all = self.pointing(at.saturating_sub(IMPLEMENTATION_WORDS * 8), at).rev();
        all.map(|(_, at)| at).take(MAX_OCCURRENCES)
    }

    /// The address of the `rcl_node_t` that leads to this `rmw_node_t`.
    fn handle(
        &self,
        memory: &mut dyn Memory,
        pid: u32,
        rmw_node: u64,
        name: &(Arc<str>, Arc<str>),
    ) -> Option<Handle> {
        let full = format!("{}/{}", name.1.trim_end_matches('/'), name.0);
        let rmw_context = memory.word(pid, rmw_node + 32).unwrap_or(0);
        for inside in self.holders(rmw_node) {
            // The implementation keeps the full name, too, soon behind.
            let named = (1..=FULL_NAME_WORDS).any(|distance| {
                let text = inside.checked_add(distance * 8).and_then(|at| memory.word(pid, at));
                text.and_then(|text| memory.text(pid, text)).is_some_and(|text| *text == *full)
            });
            if !named {
                continue;
            }
            // Of all that lead to where the implementation may begin: other objects lie before it,
            // nothing begins within it.
            let mut best: Option<(u64, Handle)> = None;
            for second in self.to_implementation(inside) {
                // The pointer to the implementation is the second word; the first leads to the
                // context.
                let node = second.wrapping_sub(8);
                let (context, begin) =
                    (memory.word(pid, node).unwrap_or(0), memory.word(pid, second).unwrap_or(0));
                let of_context = memory.word(pid, context.wrapping_add(8)).unwrap_or(0);
                let has_context = rmw_context
                    .checked_sub(of_context)
                    .map_or(rmw_context == 0, |bytes| rmw_context == 0 || bytes < MAX_CONTEXT_BYTES);
                let is_handle = node % 16 == 0 && begin % 16 == 0 && is_inside(&self.regions, context);
                if is_handle
                    && has_context
                    && self.holders(node).next().is_some()
                    && best.is_none_or(|(least, _)| begin > least)
                {
                    best = Some((begin, node));
                }
            }
            if let Some((_, node)) = best {
                return Some(node);
            }
        }
        None
    }

    /// The node whose handle stands nearest before this address, and how many words before.
    fn before(&self, memory: &mut dyn Memory, pid: u32, at: u64) -> Option<(usize, Handle)> {
        let words = words_before(memory, pid, at, BEFORE_WORDS);
        words.into_iter().rev().enumerate().find(|(_, word)| self.names.contains_key(word))
    }

    /// Whether this leads into writable memory.
    pub fn is_writable(&self, address: u64) -> bool {
        is_inside(&self.regions, address)
    }

    /// The node whose handle stands nearest before one of these handles. Contradictions are no
    /// answer.
    fn nearest(&self, memory: &mut dyn Memory, pid: u32, handles: &[Handle]) -> Option<Handle> {
        let mut best: Option<(usize, Handle)> = None;
        let mut contradiction = false;
        for at in handles.iter().flat_map(|handle| self.holders(*handle)) {
            let found = self.before(memory, pid, at);
            let Some((distance, node)) = found else { continue };
            match best {
                Some((least, other)) if distance == least => contradiction |= node != other,
                Some((least, _)) if distance > least => {}
                _ => (best, contradiction) = (Some((distance, node)), false),
            }
        }
        best.filter(|_| !contradiction).map(|(_, node)| node)
    }
}

fn is_inside(regions: &[(u64, u64)], value: u64) -> bool {
    let after = regions.partition_point(|(start, _)| *start <= value);
    after.checked_sub(1).and_then(|index| regions.get(index)).is_some_and(|(_, end)| value < *end)
}

/// Whether this is a `std::vector` of weak pointers: begin, end, and end of its allocation.
fn is_list([begin, end, allocated]: [u64; 3]) -> bool {
    let bytes = |from: u64, to: u64| to.checked_sub(from).filter(|bytes| bytes % WEAK_BYTES == 0);
    begin % 8 == 0
        && bytes(begin, end).is_some()
        && bytes(end, allocated).is_some()
        && allocated - begin <= 2 * MAX_MEMBERS * WEAK_BYTES
}

/// Name and namespace, if this is an `rmw_node_t`.
fn node_name(memory: &mut dyn Memory, pid: u32, at: u64) -> Option<(Arc<str>, Arc<str>)> {
    let name = memory.word(pid, at.checked_add(16)?)?;
    let name = memory.text(pid, name)?;
    let namespace = memory.word(pid, at.checked_add(24)?)?;
    let namespace = memory.text(pid, namespace)?;
    // rmw/validate_node_name.h, rmw/validate_namespace.h.
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let fits = !name.is_empty()
        && name.chars().all(plain)
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && namespace.starts_with('/')
        && namespace.chars().all(|c| plain(c) || c == '/');
    fits.then_some((name, namespace))
}

/// Period and next call of an `rcl_timer_t` (`rcl/timer.c`), both on the timer's own clock,
/// whichever of the two that is. They stand in its implementation one after the other with the last
/// call between them, and are taken only where the three agree with each other and with the time.
pub fn timer(memory: &mut dyn Memory, pid: u32, timer: Handle, clocks_ns: [i64; 2]) -> Option<Timer> {
    const WORDS: usize = 64;
    /// Shorter ones no operating system keeps; longer ones nobody waits for.
    const PERIODS_NS: std::ops::RangeInclusive<i64> = 100_000..=10_000_000_000_000;
    let implementation = memory.word(pid, timer)?;
    let mut bytes = [0; WORDS * 8];
    let count = memory.read(pid, implementation, &mut bytes);
    let words: Vec<i64> = bytes[..count / 8 * 8]
        .chunks_exact(8)
        .map(|word| i64::from_ne_bytes(word.try_into().unwrap_or_default()))
        .collect();
    words.windows(3).find_map(|three| {
        let &[period_ns, last_ns, next_ns] = three else { return None };
        let until_next = next_ns.checked_sub(last_ns)?;
        if !PERIODS_NS.contains(&period_ns) || !(1..=period_ns).contains(&until_next) {
            return None;
        }
        let now_ns = clocks_ns.into_iter().find(|now_ns| {
            let since = now_ns.checked_sub(last_ns);
            since.is_some_and(|since| {
                (-1_000_000_000..=period_ns.saturating_add(10_000_000_000)).contains(&since)
            })
        })?;
        Some(Timer { period_ns, until_next_ns: next_ns.checked_sub(now_ns)? })
    })
}

/// A timer as it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timer {
    pub period_ns: i64,
    /// From now to its next call.
    pub until_next_ns: i64,
}

#[cfg(test)]
mod tests {
    use super::super::memory::{Image, Space};
    use super::super::objects::Object;
    use super::*;

    const IDENTIFIER: u64 = 0x100;
    const CONTEXT: u64 = 0x200;

    /// A node with a publisher, at `base`; returns the handles of both.
    fn node(space: &mut Space, base: u64, name: &str, namespace: &str) -> (u64, u64) {
        let full = format!("{}/{name}", namespace.trim_end_matches('/'));
        let [text, space_text, full_text] = [base + 0x800, base + 0x880, base + 0x900];
        space.text(text, name);
        space.text(space_text, namespace);
        space.text(full_text, &full);
        let [rmw, implementation, rcl, publisher, object] =
            [base, base + 0x100, base + 0x500, base + 0x540, base + 0x600];
        space.put(rmw, &[IDENTIFIER, 0, text, space_text, CONTEXT + 0x90]);
        space.put(CONTEXT, &[0, CONTEXT + 0x50]);
        space.put(implementation + 0x90, &[rmw, 0, full_text]);
        space.put(rcl, &[CONTEXT, implementation]);
        space.put(publisher, &[0x77]);
        space.put(object + 16, &[rcl, 1, publisher, 1]);
        (rcl, publisher)
    }

    fn space_of_two() -> (Space, [(u64, u64); 2]) {
        let mut space = Space::new();
        space.text(IDENTIFIER, "rmw_test_cpp");
        let both = [node(&mut space, 0x2000, "camera", "/"), node(&mut space, 0x4000, "tracker", "/front")];
        (space, both)
    }

    #[test]
    fn nodes_are_found_in_memory_and_what_is_theirs() {
        let (space, [(camera, camera_out), (tracker, tracker_out)]) = space_of_two();
        let mut memory = Image(&space.0);
        let nodes = Nodes::find(&mut memory, 1, IDENTIFIER);
        let expected =
            [(camera, "camera", "/"), (tracker, "tracker", "/front")].map(|(node, name, namespace)| {
                Kind::NodeInit { node, name: name.into(), namespace: namespace.into() }
            });
        assert_eq!(nodes.events().collect::<Vec<_>>(), expected);
        assert_eq!(nodes.of(&mut memory, 1, camera_out), camera);
        assert_eq!(nodes.of(&mut memory, 1, tracker_out), tracker);
        assert_eq!((nodes.of(&mut memory, 1, 0x9999), nodes.only()), (0, None));
    }

    /// A callback group at `group` with this timer as its only member, of the node with this
    /// handle.
    fn callback_group(space: &mut Space, group: u64, reentrant: u64, timer: u64, node: u64) {
        let [members, groups, base] = [group + 0x200, group + 0x300, group + 0x400];
        // The entry before it in its list has ended.
        space.put(members, &[0x111, 0x222, timer, timer - 16]);
        // Behind it what is no list, as before it.
        space.put(group - 24, &[7, 8, 9]);
        space.put(group, &[reentrant]);
        space.put(group + LIST_WORDS[1] as u64 * 8, &[members, members + 32, members + 64]);
        space.put(groups, &[group, group - 16]);
        // Node handle, default group, mutex, groups.
        space.put(base, &[node, 1, 0, 0, 0, 0, 0, 0, 0, groups, groups + 16, groups + 16]);
    }

    #[test]
    fn timers_belong_to_the_node_that_has_their_callback_group() {
        let (mut space, [(camera, _), (tracker, _)]) = space_of_two();
        let (first, second) = (0x1_0400, 0x1_0500);
        callback_group(&mut space, 0x8000, 0, first, camera);
        callback_group(&mut space, 0xa000, 1, second, tracker);
        let mut memory = Image(&space.0);
        let nodes = Nodes::find(&mut memory, 1, IDENTIFIER);
        assert_eq!(
            nodes.group(&mut memory, 1, first, What::Timer),
            Some(Group { group: 0x8000, node: camera, reentrant: false })
        );
        assert_eq!(
            nodes.group(&mut memory, 1, second, What::Timer),
            Some(Group { group: 0xa000, node: tracker, reentrant: true })
        );
        assert_eq!(nodes.group(&mut memory, 1, 0x1_0600, What::Timer), None);
        assert_eq!(
            nodes.group(&mut memory, 1, first, What::Service),
            None,
            "timers have a list of their own"
        );

        // A lookalike of a group that is in no node's list does not matter.
        space.put(0xc200, &[first, 1]);
        space.put(0xc000 + LIST_WORDS[1] as u64 * 8, &[0xc200, 0xc210, 0xc210]);
        let mut memory = Image(&space.0);
        let nodes = Nodes::find(&mut memory, 1, IDENTIFIER);
        let known = Some(Group { group: 0x8000, node: camera, reentrant: false });
        assert_eq!(nodes.group(&mut memory, 1, first, What::Timer), known);

        // A second group with the same timer: no answer.
        callback_group(&mut space, 0xc000, 0, first, tracker);
        let mut memory = Image(&space.0);
        let nodes = Nodes::find(&mut memory, 1, IDENTIFIER);
        assert_eq!(nodes.group(&mut memory, 1, first, What::Timer), None);
        // Of another shape: no group.
        space.put(0xa000, &[2]);
        assert_eq!(nodes.group(&mut Image(&space.0), 1, second, What::Timer), None);
        space.put(0xa000, &[1]);
        space.put(0xa000 + LIST_WORDS[4] as u64 * 8, &[0x100, 0x90, 0x100]);
        assert_eq!(nodes.group(&mut Image(&space.0), 1, second, What::Timer), None);
    }

    /// An object between the begin of a node's implementation and the pointer to its middleware's
    /// node, pointed to by something that looks like a handle, is not a node: its context is not
    /// the node's.
    #[test]
    fn a_node_has_the_context_of_its_middleware() {
        let (mut space, [(camera, _), (tracker, tracker_out)]) = space_of_two();
        let implementation = 0x4100;
        space.put(0x7000, &[0x300, implementation + 0x40]);
        space.put(0x7100, &[0x7000]);
        let mut memory = Image(&space.0);
        let nodes = Nodes::find(&mut memory, 1, IDENTIFIER);
        assert_eq!(nodes.names.keys().copied().collect::<Vec<_>>(), [camera, tracker]);
        assert_eq!(nodes.of(&mut memory, 1, tracker_out), tracker);
    }

    #[test]
    fn contradictions_and_texts_that_are_no_names_are_no_answer() {
        let (mut space, [(camera, camera_out), (tracker, _)]) = space_of_two();
        // Another object that says otherwise, no farther away.
        space.put(0x6000, &[tracker, 1, camera_out]);
        let nodes = Nodes::find(&mut Image(&space.0), 1, IDENTIFIER);
        assert_eq!(nodes.of(&mut Image(&space.0), 1, camera_out), 0);
        space.put(0x6000, &[tracker, 1, 0, 0, 0, camera_out]);
        let nodes = Nodes::find(&mut Image(&space.0), 1, IDENTIFIER);
        assert_eq!(nodes.of(&mut Image(&space.0), 1, camera_out), camera, "the nearer one holds");
        // A publisher of the middleware begins alike; its text is a topic.
        space.text(0x2000 + 0x800, "/topic");
        let nodes = Nodes::find(&mut Image(&space.0), 1, IDENTIFIER);
        assert_eq!(nodes.only(), Some(tracker));
    }

    #[test]
    fn a_timer_is_believed_where_it_agrees_with_itself_and_the_time() {
        let mut space = Space::new();
        let (now, wall) = (5_000_000_000_i64, 1_700_000_000_000_000_000_i64);
        space.put(0x100, &[0x200]);
        let mut read = |period: i64, last: i64, next: i64| {
            space.put(0x200 + 24, &[period.cast_unsigned(), last.cast_unsigned(), next.cast_unsigned()]);
            timer(&mut Image(&space.0), 1, 0x100, [now, wall])
        };
        let period_ns = 100_000_000;
        let found = read(period_ns, now - 30_000_000, now + 60_000_000);
        assert_eq!(found, Some(Timer { period_ns, until_next_ns: 60_000_000 }));
        let found = read(period_ns, wall - 30_000_000, wall + 60_000_000);
        assert_eq!(found, Some(Timer { period_ns, until_next_ns: 60_000_000 }));
        assert_eq!(read(period_ns, now - 30_000_000, now + 90_000_000), None, "further than a period");
        assert_eq!(read(period_ns, now - 60_000_000_000, now - 59_950_000_000), None, "long ago");
        assert_eq!(read(0, now, now + 1), None);
        assert_eq!(read(i64::MAX, i64::MIN, i64::MAX), None);
    }

    /// Memory of any content ends in an answer.
    #[test]
    fn garbage_is_read_without_harm() {
        let mut state = 1_u64;
        let garbage: Vec<u8> = (0..(32 << 10))
            .flat_map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                // Mostly pointers into itself.
                ((state >> 33) % (256 << 10)).to_ne_bytes()
            })
            .collect();
        let mut memory = Image(&garbage);
        for identifier in [0, 8, 0x1000, u64::MAX] {
            let nodes = Nodes::find(&mut memory, 1, identifier);
            for handle in (0..(256 << 10)).step_by(4104) {
                nodes.of(&mut memory, 1, handle);
                nodes.behind(&mut memory, 1, handle);
                timer(&mut memory, 1, handle, [5, i64::MAX]);
                nodes.group(&mut memory, 1, handle, What::Service);
                nodes.beside(&mut memory, 1, handle).count();
                if let Some(object) = Object::around(&mut memory, 1, handle, None) {
                    object.topic(&mut memory, 1);
                }
            }
        }
    }
}

//! Events that a late observer has missed, as far as they can be found: events of initialisation
//! fire once.
//!
//! Two sources. The **order of calls** on a thread shows which callback belongs to which
//! subscription or timer (the executor names the handle that it executes, `rmw` the subscription
//! that it takes from, then the callback starts). And the **objects of the middleware** begin alike
//! in every release: an identifier (`rmw_...`), a pointer of the middleware, the name of the topic
//! or service. `rcl`'s own objects hold a pointer to them somewhere in their implementation; it is
//! looked for, and taken only where both texts are there. If the calls do not show what starts (a
//! service, all of an events executor, messages from within the process), the object that contains
//! the callback does, as [`super::objects`] describes. Nodes and timers are found as
//! [`super::nodes`] says; a timer that no callback group of one node has belongs to the node whose
//! publisher it uses first. Symbols and queue depths stay unknown (0), but for messages from within
//! the process.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use takt_rt::clock::monotonic_ns;

use super::memory::{Memory, rmw_name};
use super::nodes::{Group, Nodes, timer};
use super::objects::{Object, What};
use crate::event::{Handle, Kind, MemberKind, ServiceStep};

/// Words of an `rcl` implementation that are searched: its options and pointers, in every release
/// known.
const SEARCHED_WORDS: usize = 96;

/// Starts of a callback after which it stays unexplained.
const MAX_TRIES: u32 = 16;

/// Knowledge about a process's objects.
#[derive(Debug, Default)]
pub struct Known {
    /// With the nodes of those that were found again; 0: unknown.
    publishers: HashMap<Handle, Handle>,
    callbacks: HashSet<Handle>,
    /// Starts of callbacks that could not be explained, as after lost records.
    tries: HashMap<Handle, u32>,
    clients: HashSet<Handle>,
    subscriptions: HashSet<Handle>,
    /// Timers found again whose node is not known, by their callbacks.
    unowned: HashMap<Handle, Handle>,
    /// Looked for when the first object of the middleware is there.
    nodes: Option<Nodes>,
    /// Callbacks of which nothing could be found in all those starts.
    pub unexplained: u64,
    /// Objects that were found.
    pub found: u64,
}

/// Knowledge from a thread's last calls about the callback that starts next.
#[derive(Debug, Default, Clone, Copy)]
pub struct Context {
    execute: Option<Handle>,
    take: Option<Handle>,
    request: Option<Handle>,
    /// The callback that runs.
    running: Option<Handle>,
}

/// A callback that nothing is known of starts.
#[derive(Debug, Clone, Copy)]
struct Start {
    callback: Handle,
    intra_process: bool,
    at_ns: u64,
}

/// A subscription that was found.
#[derive(Debug)]
struct Subscription {
    /// `rcl`'s, or what stands for it.
    subscription: Handle,
    /// 0: unknown.
    rmw_subscription: Handle,
    topic: Option<Arc<str>>,
    /// 0: unknown.
    depth: u64,
}

/// The middleware's object behind one of `rcl`, whose first word points to its implementation.
/// `identifier` is what it begins with, where that is known: one look is then enough for what is
/// none.
fn behind(
    memory: &mut dyn Memory,
    pid: u32,
    object: Handle,
    identifier: Option<u64>,
) -> Option<(Handle, Arc<str>)> {
    let implementation = memory.word(pid, object)?;
    let mut bytes = [0; SEARCHED_WORDS * 8];
    let count = memory.read(pid, implementation, &mut bytes).min(allocated(memory, pid, implementation));
    let words = bytes[..count / 8 * 8].chunks_exact(8);
    words.map(|word| u64::from_ne_bytes(word.try_into().unwrap_or_default())).find_map(|candidate| {
        // Pointers into user space only, aligned as objects are.
        let plausible = candidate % 8 == 0 && candidate > 0xffff && candidate < 1 << 56;
        let mut begins = || identifier.is_none_or(|it| memory.word(pid, candidate) == Some(it));
        let name = (plausible && begins()).then(|| rmw_name(memory, pid, candidate))??;
        Some((candidate, name))
    })
}

/// Bytes of the allocation that begins here, at most, by the word before it (glibc's `malloc`: its
/// size with that word, a multiple of 16 beside three bits): what lies behind it is another
/// object's.
fn allocated(memory: &mut dyn Memory, pid: u32, address: u64) -> usize {
    let before = address.checked_sub(8).and_then(|at| memory.word(pid, at)).unwrap_or(0);
    let chunk = before & !7;
    match usize::try_from(chunk) {
        Ok(chunk @ 32..=0xffff) if chunk % 16 == 0 => chunk - 8,
        // Not glibc's.
        _ => usize::MAX,
    }
}

/// The clocks that a timer may go by, nanoseconds.
fn clocks_ns() -> [i64; 2] {
    let wall = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    [monotonic_ns().cast_signed(), i64::try_from(wall.as_nanos()).unwrap_or(i64::MAX)]
}

/// The callback group of what a callback lies in.
fn group_around(nodes: &Nodes, memory: &mut dyn Memory, pid: u32, callback: Handle) -> Option<Group> {
    let object = Object::around(memory, pid, callback, Some(nodes))?;
    nodes.group(memory, pid, object.at, object.what)
}

/// Says the node of a timer, and its callback group; returns whether that is known.
fn own_timer(
    nodes: &Nodes,
    memory: &mut dyn Memory,
    pid: u32,
    (callback, timer): (Handle, Handle),
    at_ns: u64,
    out: &mut dyn FnMut(u64, Kind),
) -> bool {
    let group = group_around(nodes, memory, pid, callback);
    let Some(node) = group.map(|group| group.node).or_else(|| nodes.only()) else { return false };
    // The timer that joins is the next one that is linked to its node.
    if let Some(Group { group, reentrant, .. }) = group {
        out(at_ns, Kind::GroupMember { group, reentrant, member: MemberKind::Timer, object: callback });
    }
    out(at_ns, Kind::TimerNode { timer, node });
    true
}

impl Known {
    /// Looks at `kind` before it is handed on, and at what is not known of it: `out` gets what
    /// would have been said earlier.
    pub fn before(
        &mut self,
        context: &mut Context,
        kind: &Kind,
        pid: u32,
        memory: &mut dyn Memory,
        at_ns: u64,
        out: &mut dyn FnMut(u64, Kind),
    ) {
        match *kind {
            Kind::PublisherInit { publisher, node, .. } => {
                self.publishers.insert(publisher, node);
            }
            Kind::ClientInit { rmw_client, .. } => {
                self.clients.insert(rmw_client);
            }
            Kind::SubscriptionInit { subscription, .. } => {
                self.subscriptions.insert(subscription);
            }
            Kind::SubscriptionCallback { callback, .. }
            | Kind::TimerCallback { callback, .. }
            | Kind::ServiceCallback { callback, .. } => {
                self.callbacks.insert(callback);
            }
            Kind::RclPublish { publisher, .. } | Kind::IntraPublish { publisher, .. } => {
                if !self.publishers.contains_key(&publisher) {
                    self.publishers.insert(publisher, 0);
                    if let Some((rmw_publisher, topic)) = behind(memory, pid, publisher, self.identifier()) {
                        let node =
                            self.nodes(memory, pid, rmw_publisher, at_ns, out).of(memory, pid, publisher);
                        self.publishers.insert(publisher, node);
                        self.found += 1;
                        out(at_ns, Kind::PublisherInit { publisher, node, rmw_publisher, topic, depth: 0 });
                    }
                }
                // A timer's callback that publishes: it is of the publisher's node.
                if let Some(callback) = context.running
                    && let Some(&node) = self.publishers.get(&publisher).filter(|&&node| node != 0)
                    && let Some(timer) = self.unowned.remove(&callback)
                {
                    out(at_ns, Kind::TimerNode { timer, node });
                }
            }
            Kind::ExecutorExecute { handle } => {
                *context = Context { execute: Some(handle), ..Context::default() }
            }
            Kind::RmwTake { rmw_subscription, taken: true, .. } => context.take = Some(rmw_subscription),
            Kind::Service { step: ServiceStep::TakeRequest, rmw_handle, .. } => {
                *context = Context { request: Some(rmw_handle), ..Context::default() };
            }
            Kind::Service {
                step: ServiceStep::SendRequest | ServiceStep::TakeResponse, rmw_handle, ..
            } => {
                if self.clients.insert(rmw_handle)
                    && let Some(name) = rmw_name(memory, pid, rmw_handle)
                {
                    let node =
                        self.nodes(memory, pid, rmw_handle, at_ns, out).behind(memory, pid, rmw_handle);
                    self.found += 1;
                    // `rcl`'s client stays unknown; the middleware's stands for it.
                    out(at_ns, Kind::ClientInit { client: rmw_handle, node, rmw_client: rmw_handle, name });
                }
            }
            Kind::CallbackStart { callback, intra_process } => {
                if !self.callbacks.contains(&callback) {
                    let start = Start { callback, intra_process, at_ns };
                    let explained = self.explain(*context, start, pid, memory, out);
                    let tries = self.tries.entry(callback).or_default();
                    *tries += 1;
                    match explained {
                        true => self.unexplained -= u64::from(*tries > 1),
                        false => self.unexplained += u64::from(*tries == 1),
                    }
                    if explained || *tries >= MAX_TRIES {
                        self.tries.remove(&callback);
                        self.callbacks.insert(callback);
                    }
                }
                *context = Context { running: Some(callback), ..Context::default() };
            }
            Kind::CallbackEnd { .. } | Kind::ExecutorWait { .. } | Kind::ExecutorNextReady => {
                *context = Context::default();
            }
            _ => {}
        }
    }

    /// The process's nodes. `rmw_object` is any object of its middleware.
    fn nodes(
        &mut self,
        memory: &mut dyn Memory,
        pid: u32,
        rmw_object: Handle,
        at_ns: u64,
        out: &mut dyn FnMut(u64, Kind),
    ) -> &Nodes {
        let (found, unowned) = (&mut self.found, &mut self.unowned);
        self.nodes.get_or_insert_with(|| {
            let identifier = memory.word(pid, rmw_object).unwrap_or(0);
            let nodes = Nodes::find(memory, pid, identifier);
            nodes.events().for_each(|kind| {
                *found += 1;
                out(at_ns, kind);
            });
            unowned.retain(|&callback, &mut timer| {
                !own_timer(&nodes, memory, pid, (callback, timer), at_ns, out)
            });
            nodes
        })
    }

    fn identifier(&self) -> Option<u64> {
        self.nodes.as_ref().map(|nodes| nodes.identifier).filter(|&identifier| identifier != 0)
    }

    fn explain(
        &mut self,
        context: Context,
        start: Start,
        pid: u32,
        memory: &mut dyn Memory,
        out: &mut dyn FnMut(u64, Kind),
    ) -> bool {
        let before = self.found;
        let Start { callback, intra_process, at_ns } = start;
        match context {
            Context { execute: Some(subscription), take: Some(rmw_subscription), .. } => {
                let topic = rmw_name(memory, pid, rmw_subscription);
                let found = Subscription { subscription, rmw_subscription, topic, depth: 0 };
                // The C++ object stays unknown; the handle stands for it.
                self.subscription(found, subscription, start, pid, memory, out);
            }
            Context { execute: Some(handle), take: None, .. } if !intra_process => {
                let is_timer = match Object::around(memory, pid, callback, self.nodes.as_ref()) {
                    Some(object) => object.what == What::Timer,
                    None => timer(memory, pid, handle, clocks_ns()).is_some(),
                };
                let found = (!is_timer).then(|| behind(memory, pid, handle, self.identifier()));
                match found.flatten() {
                    // Nothing was taken from the middleware all the same.
                    Some((rmw_subscription, topic)) => {
                        let subscription = handle;
                        let topic = Some(topic);
                        let found = Subscription { subscription, rmw_subscription, topic, depth: 0 };
                        self.subscription(found, subscription, start, pid, memory, out);
                    }
                    None => self.explain_timer(handle, callback, pid, memory, at_ns, out),
                }
            }
            Context { request: Some(rmw_service), .. } => {
                if let Some(name) = rmw_name(memory, pid, rmw_service) {
                    let node =
                        self.nodes(memory, pid, rmw_service, at_ns, out).behind(memory, pid, rmw_service);
                    // `rcl`'s service stays unknown; the middleware's stands for it.
                    out(at_ns, Kind::ServiceInit { service: rmw_service, node, rmw_service, name });
                    out(at_ns, Kind::ServiceCallback { service: rmw_service, callback });
                    self.found += 1;
                }
            }
            Context { .. } => self.explain_object(start, pid, memory, out),
        }
        self.found != before
    }

    /// By the object that the callback lies in: the calls do not say it.
    fn explain_object(
        &mut self,
        start: Start,
        pid: u32,
        memory: &mut dyn Memory,
        out: &mut dyn FnMut(u64, Kind),
    ) {
        let Start { callback, at_ns, .. } = start;
        let Some(object) = Object::around(memory, pid, callback, self.nodes.as_ref()) else { return };
        let identifier = self.identifier();
        let handle_of = |memory: &mut dyn Memory| {
            object.members().find_map(|handle| Some((handle, behind(memory, pid, handle, identifier)?)))
        };
        match object.what {
            What::Timer => {
                let clocks_ns = clocks_ns();
                let handle = object.members().find(|&it| timer(memory, pid, it, clocks_ns).is_some());
                if let Some(handle) = handle {
                    self.explain_timer(handle, callback, pid, memory, at_ns, out);
                }
            }
            What::Service => {
                if let Some((service, (rmw_service, name))) = handle_of(memory) {
                    let nodes = self.nodes(memory, pid, rmw_service, at_ns, out);
                    let node = nodes.of(memory, pid, service);
                    let group = nodes.group(memory, pid, object.at, object.what);
                    out(at_ns, Kind::ServiceInit { service, node, rmw_service, name });
                    if let Some(Group { group, reentrant, .. }) = group {
                        let (member, object) = (MemberKind::Service, object.at);
                        out(at_ns, Kind::GroupMember { group, reentrant, member, object });
                    }
                    out(at_ns, Kind::ServiceCallback { service, callback });
                    self.found += 1;
                }
            }
            What::Subscription => {
                if let Some((subscription, (rmw_subscription, topic))) = handle_of(memory) {
                    let found = Subscription { subscription, rmw_subscription, topic: Some(topic), depth: 0 };
                    self.subscription(found, object.at, start, pid, memory, out);
                }
            }
            What::IntraProcess => {
                let Some((topic, depth)) = object.topic(memory, pid) else { return };
                // Before the first object of the middleware was seen the next start asks again.
                let Some(nodes) = &self.nodes else { return };
                let beside: Vec<Handle> = nodes.beside(memory, pid, object.at).collect();
                let owner = beside.into_iter().find_map(|subscription| {
                    let (rmw_subscription, name) = behind(memory, pid, subscription, identifier)?;
                    (name == topic).then_some((subscription, rmw_subscription))
                });
                let (subscription, rmw_subscription) = owner.unwrap_or((object.at, 0));
                let found = Subscription { subscription, rmw_subscription, topic: Some(topic), depth };
                self.subscription(found, object.at, start, pid, memory, out);
            }
        }
    }

    /// A subscription was found, and the C++ object that has its callback.
    fn subscription(
        &mut self,
        found: Subscription,
        object: Handle,
        start: Start,
        pid: u32,
        memory: &mut dyn Memory,
        out: &mut dyn FnMut(u64, Kind),
    ) {
        let Subscription { subscription, rmw_subscription, topic, depth } = found;
        let Start { callback, at_ns, .. } = start;
        let mut group = None;
        if let Some(topic) = topic {
            self.found += 1;
            let nodes = self.nodes(memory, pid, rmw_subscription, at_ns, out);
            group = group_around(nodes, memory, pid, callback);
            let node = match nodes.of(memory, pid, subscription) {
                0 => group.map_or(0, |group| group.node),
                node => node,
            };
            // Its other callback may have been found before.
            if self.subscriptions.insert(subscription) {
                out(at_ns, Kind::SubscriptionInit { subscription, node, rmw_subscription, topic, depth });
            }
        }
        out(at_ns, Kind::SubscriptionObject { subscription, object });
        if let Some(Group { group, reentrant, .. }) = group {
            out(at_ns, Kind::GroupMember { group, reentrant, member: MemberKind::Subscription, object });
        }
        out(at_ns, Kind::SubscriptionCallback { object, callback });
    }

    fn explain_timer(
        &mut self,
        handle: Handle,
        callback: Handle,
        pid: u32,
        memory: &mut dyn Memory,
        at_ns: u64,
        out: &mut dyn FnMut(u64, Kind),
    ) {
        let clocks_ns = clocks_ns();
        let now_ns = clocks_ns[0].cast_unsigned();
        let known = timer(memory, pid, handle, clocks_ns);
        if let Some(known) = known {
            // Its releases are the next call and all that are whole periods before it; the last of
            // them before this start was this one's, and a timer made a period earlier would have
            // it as its first.
            let period_ns = known.period_ns.unsigned_abs();
            let next_ns = now_ns.saturating_add_signed(known.until_next_ns);
            let release_ns = match next_ns.checked_sub(at_ns) {
                Some(until) => next_ns.saturating_sub(until.div_ceil(period_ns).saturating_mul(period_ns)),
                None => next_ns.saturating_add((at_ns - next_ns) / period_ns * period_ns),
            };
            out(
                release_ns.saturating_sub(period_ns),
                Kind::TimerInit { timer: handle, period_ns: known.period_ns },
            );
        }
        out(at_ns, Kind::TimerCallback { timer: handle, callback });
        self.found += 1;
        if known.is_some() {
            let one = (callback, handle);
            let nodes = self.nodes.as_ref();
            if !nodes.is_some_and(|nodes| own_timer(nodes, memory, pid, one, at_ns, out)) {
                self.unowned.insert(callback, handle);
            }
        }
    }
}

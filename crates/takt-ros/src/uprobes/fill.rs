//! What a late observer has missed, as far as it can be found: events of initialisation fire once.
//!
//! Two sources. The **order of calls** on a thread shows which callback belongs to which
//! subscription or timer (the executor names the handle that it executes, `rmw` the subscription
//! that it takes from, then the callback starts). And the **objects of the middleware** begin alike
//! in every release: an identifier (`rmw_...`), a pointer of the middleware, the name of the topic
//! or service. `rcl`'s own objects hold a pointer to them somewhere in their implementation; it is
//! looked for, and taken only where both texts are there. Nodes and timers are found as
//! [`super::nodes`] says; a timer of one of several nodes belongs to the one whose publisher it
//! uses first. Symbols and queue depths stay unknown (0).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use takt_rt::clock::monotonic_ns;

use super::memory::Memory;
use super::nodes::{Nodes, timer};
use crate::event::{Handle, Kind, ServiceStep};

/// Words of an `rcl` implementation that are searched: its options and pointers, in every release
/// known.
const SEARCHED_WORDS: u64 = 96;

/// Starts of a callback after which it stays unexplained.
const MOST_TRIES: u32 = 16;

/// What is known of a process's objects.
#[derive(Debug, Default)]
pub struct Known {
    /// With the nodes of those that were found again; 0: unknown.
    publishers: HashMap<Handle, Handle>,
    callbacks: HashSet<Handle>,
    /// Starts of callbacks that could not be explained, as after lost records.
    tries: HashMap<Handle, u32>,
    clients: HashSet<Handle>,
    /// Timers found again whose node is not known, by their callbacks.
    unowned: HashMap<Handle, Handle>,
    /// Looked for when the first object of the middleware is there.
    nodes: Option<Nodes>,
    /// Callbacks of which nothing could be found in all those starts.
    pub unexplained: u64,
    /// Objects that were found.
    pub found: u64,
}

/// What a thread's last calls say of the callback that starts next.
#[derive(Debug, Default, Clone, Copy)]
pub struct Context {
    execute: Option<Handle>,
    take: Option<Handle>,
    request: Option<Handle>,
    /// The callback that runs.
    running: Option<Handle>,
}

/// The name that an object of the middleware carries.
fn rmw_name(memory: &mut dyn Memory, pid: u32, object: Handle) -> Option<Arc<str>> {
    let identifier = memory.word(pid, object)?;
    let name = memory.word(pid, object.checked_add(16)?)?;
    if !memory.text(pid, identifier)?.starts_with("rmw_") {
        return None;
    }
    memory.text(pid, name).filter(|name| name.starts_with('/') && name.len() > 1)
}

/// The middleware's object behind one of `rcl`, whose first word points to its implementation.
fn behind(memory: &mut dyn Memory, pid: u32, object: Handle) -> Option<(Handle, Arc<str>)> {
    let implementation = memory.word(pid, object)?;
    let words = (0..SEARCHED_WORDS).map_while(|index| implementation.checked_add(index * 8));
    words.into_iter().find_map(|address| {
        let candidate = memory.word(pid, address)?;
        // Pointers into user space only, aligned as objects are.
        let plausible = candidate % 8 == 0 && candidate > 0xffff && candidate < 1 << 56;
        let name = plausible.then(|| rmw_name(memory, pid, candidate))??;
        Some((candidate, name))
    })
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
            Kind::SubscriptionCallback { callback, .. }
            | Kind::TimerCallback { callback, .. }
            | Kind::ServiceCallback { callback, .. } => {
                self.callbacks.insert(callback);
            }
            Kind::RclPublish { publisher, .. } | Kind::IntraPublish { publisher, .. } => {
                if !self.publishers.contains_key(&publisher) {
                    self.publishers.insert(publisher, 0);
                    if let Some((rmw_publisher, topic)) = behind(memory, pid, publisher) {
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
            Kind::CallbackStart { callback, .. } => {
                if !self.callbacks.contains(&callback) {
                    let explained = self.explain(*context, callback, pid, memory, at_ns, out);
                    let tries = self.tries.entry(callback).or_default();
                    *tries += 1;
                    match explained {
                        true => self.unexplained -= u64::from(*tries > 1),
                        false => self.unexplained += u64::from(*tries == 1),
                    }
                    if explained || *tries >= MOST_TRIES {
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
            if let Some(node) = nodes.only() {
                unowned.drain().for_each(|(_, timer)| out(at_ns, Kind::TimerNode { timer, node }));
            }
            nodes
        })
    }

    fn explain(
        &mut self,
        context: Context,
        callback: Handle,
        pid: u32,
        memory: &mut dyn Memory,
        at_ns: u64,
        out: &mut dyn FnMut(u64, Kind),
    ) -> bool {
        let before = self.found;
        match context {
            Context { execute: Some(subscription), take: Some(rmw_subscription), .. } => {
                if let Some(topic) = rmw_name(memory, pid, rmw_subscription) {
                    let nodes = self.nodes(memory, pid, rmw_subscription, at_ns, out);
                    let node = nodes.of(memory, pid, subscription);
                    out(
                        at_ns,
                        Kind::SubscriptionInit { subscription, node, rmw_subscription, topic, depth: 0 },
                    );
                    self.found += 1;
                }
                // The C++ object stays unknown; the handle stands for it.
                out(at_ns, Kind::SubscriptionObject { subscription, object: subscription });
                out(at_ns, Kind::SubscriptionCallback { object: subscription, callback });
            }
            Context { execute: Some(handle), take: None, .. } => match behind(memory, pid, handle) {
                // A subscription within the process: nothing was taken from the middleware.
                Some((rmw_subscription, topic)) => {
                    let subscription = handle;
                    let nodes = self.nodes(memory, pid, rmw_subscription, at_ns, out);
                    let node = nodes.of(memory, pid, subscription);
                    out(
                        at_ns,
                        Kind::SubscriptionInit { subscription, node, rmw_subscription, topic, depth: 0 },
                    );
                    out(at_ns, Kind::SubscriptionObject { subscription, object: subscription });
                    out(at_ns, Kind::SubscriptionCallback { object: subscription, callback });
                    self.found += 1;
                }
                None => self.explain_timer(handle, callback, pid, memory, at_ns, out),
            },
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
            Context { .. } => {}
        }
        self.found != before
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
        let now_ns = monotonic_ns();
        let wall_ns = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let clocks = [now_ns.cast_signed(), i64::try_from(wall_ns.as_nanos()).unwrap_or(i64::MAX)];
        let known = timer(memory, pid, handle, clocks);
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
            match self.nodes.as_ref().and_then(Nodes::only) {
                Some(node) => out(at_ns, Kind::TimerNode { timer: handle, node }),
                None => drop(self.unowned.insert(callback, handle)),
            }
        }
    }
}

//! What a late observer has missed, as far as it can be found: events of initialisation fire once.
//!
//! Two sources. The **order of calls** on a thread tells which callback belongs to which subscription or timer (the executor
//! names the handle that it executes, `rmw` the subscription that it takes from, then the callback starts). And the
//! **objects of the middleware** begin alike in every release: an identifier (`rmw_...`), a pointer of the middleware, the
//! name of the topic or service. `rcl`'s own objects hold a pointer to them somewhere in their implementation; it is looked for, and
//! taken only where both texts are there. Nodes, symbols, periods of timers and queue depths stay unknown (0).

use std::collections::HashSet;
use std::sync::Arc;

use super::memory::Memory;
use crate::event::{Handle, Kind, ServiceStep};

/// Words of an `rcl` implementation that are searched: its options and pointers, in every release known.
const SEARCHED_WORDS: u64 = 96;

/// What is known of a process's objects.
#[derive(Debug, Default)]
pub struct Known {
    publishers: HashSet<Handle>,
    callbacks: HashSet<Handle>,
    /// Callbacks of which nothing could be found.
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
    /// Looks at `kind` before it is handed on, and at what is not known of it: `out` gets what would have been said earlier.
    pub fn before(
        &mut self,
        context: &mut Context,
        kind: &Kind,
        pid: u32,
        memory: &mut dyn Memory,
        mut out: impl FnMut(Kind),
    ) {
        match *kind {
            Kind::PublisherInit { publisher, .. } => {
                self.publishers.insert(publisher);
            }
            Kind::SubscriptionCallback { callback, .. }
            | Kind::TimerCallback { callback, .. }
            | Kind::ServiceCallback { callback, .. } => {
                self.callbacks.insert(callback);
            }
            Kind::RclPublish { publisher, .. } | Kind::IntraPublish { publisher, .. } => {
                if self.publishers.insert(publisher)
                    && let Some((rmw_publisher, topic)) = behind(memory, pid, publisher)
                {
                    self.found += 1;
                    out(Kind::PublisherInit { publisher, node: 0, rmw_publisher, topic, depth: 0 });
                }
            }
            Kind::ExecutorExecute { handle } => {
                *context = Context { execute: Some(handle), ..Context::default() }
            }
            Kind::RmwTake { rmw_subscription, taken: true, .. } => context.take = Some(rmw_subscription),
            Kind::Service { step: ServiceStep::TakeRequest, rmw_handle, .. } => {
                *context = Context { request: Some(rmw_handle), ..Context::default() };
            }
            Kind::CallbackStart { callback, .. } => {
                if self.callbacks.insert(callback) {
                    self.explain(*context, callback, pid, memory, out);
                }
                *context = Context::default();
            }
            Kind::CallbackEnd { .. } | Kind::ExecutorWait { .. } | Kind::ExecutorNextReady => {
                *context = Context::default();
            }
            _ => {}
        }
    }

    fn explain(
        &mut self,
        context: Context,
        callback: Handle,
        pid: u32,
        memory: &mut dyn Memory,
        mut out: impl FnMut(Kind),
    ) {
        let before = self.found;
        match context {
            Context { execute: Some(subscription), take: Some(rmw_subscription), .. } => {
                if let Some(topic) = rmw_name(memory, pid, rmw_subscription) {
                    out(Kind::SubscriptionInit { subscription, node: 0, rmw_subscription, topic, depth: 0 });
                    self.found += 1;
                }
                // The C++ object stays unknown; the handle stands for it.
                out(Kind::SubscriptionObject { subscription, object: subscription });
                out(Kind::SubscriptionCallback { object: subscription, callback });
            }
            Context { execute: Some(handle), take: None, .. } => match behind(memory, pid, handle) {
                // A subscription within the process: nothing was taken from the middleware.
                Some((rmw_subscription, topic)) => {
                    let subscription = handle;
                    out(Kind::SubscriptionInit { subscription, node: 0, rmw_subscription, topic, depth: 0 });
                    out(Kind::SubscriptionObject { subscription, object: subscription });
                    out(Kind::SubscriptionCallback { object: subscription, callback });
                    self.found += 1;
                }
                None => {
                    out(Kind::TimerCallback { timer: handle, callback });
                    self.found += 1;
                }
            },
            Context { request: Some(rmw_service), .. } => {
                if let Some(name) = rmw_name(memory, pid, rmw_service) {
                    // `rcl`'s service stays unknown; the middleware's stands for it.
                    out(Kind::ServiceInit { service: rmw_service, node: 0, rmw_service, name });
                    out(Kind::ServiceCallback { service: rmw_service, callback });
                    self.found += 1;
                }
            }
            Context { .. } => {}
        }
        if self.found == before {
            self.unexplained += 1;
        }
    }
}

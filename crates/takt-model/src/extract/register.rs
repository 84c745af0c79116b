//! Registrations: events that fire once and name things.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use takt_ros::event::{Handle, Kind, MemberKind};

use super::outside::OutsideState;
use super::registry::{Registry, Side};
use super::state::{
    Key, NodeState, ObjectState, Origin, PublisherState, ServiceState, SubscriptionState, Tables, TimerState,
};
use super::timer::TimerGrid;
use super::{Counters, Extractor};

/// An object that is registered under a handle.
trait Registered {
    /// The callback that ends with it.
    fn callback(&self) -> Option<usize> {
        None
    }

    /// Forgets what leads to the one of this place.
    fn unlink(_tables: &mut Tables, _index: usize) {}
}

impl Registered for NodeState {}

impl Registered for PublisherState {}

impl Registered for SubscriptionState {
    fn callback(&self) -> Option<usize> {
        self.callback
    }

    fn unlink(tables: &mut Tables, index: usize) {
        tables.topics.iter_mut().for_each(|topic| topic.intra.retain(|known| *known != index));
    }
}

impl Registered for ServiceState {
    fn callback(&self) -> Option<usize> {
        self.callback
    }
}

impl Registered for TimerState {
    fn callback(&self) -> Option<usize> {
        self.callback
    }
}

impl Extractor {
    pub(super) fn register(&mut self, pid: u32, thread: usize, kind: &Kind) {
        let is_node = matches!(kind, Kind::NodeInit { .. });
        let creates = is_node
            || matches!(
                kind,
                Kind::PublisherInit { .. }
                    | Kind::SubscriptionInit { .. }
                    | Kind::ServiceInit { .. }
                    | Kind::ClientInit { .. }
                    | Kind::TimerInit { .. }
            );
        if creates {
            self.startups.registered(pid, self.now_ns, is_node);
        }
        let most = self.options.most_objects;
        match kind {
            Kind::NodeInit { node, name, namespace } => {
                self.tables.threads[thread].speaks = true;
                let full: Arc<str> = if namespace.ends_with('/') {
                    format!("{namespace}{name}").into()
                } else {
                    format!("{namespace}/{name}").into()
                };
                self.enter(|tables| &mut tables.nodes, pid, [*node, 0], NodeState { pid, name: full });
            }
            Kind::PublisherInit { publisher, node, rmw_publisher, topic, .. } => {
                let Some(topic) = self.named_topic(topic, false) else { return };
                let state = PublisherState { topic, node: self.node(pid, *node) };
                self.enter(|tables| &mut tables.publishers, pid, [*publisher, *rmw_publisher], state);
            }
            Kind::SubscriptionInit { subscription, node, rmw_subscription, topic, depth } => {
                let Some(topic) = self.named_topic(topic, false) else { return };
                let state = SubscriptionState {
                    handle: *subscription,
                    pid,
                    topic,
                    node: self.node(pid, *node),
                    depth: *depth,
                    callback: None,
                    joined: 0,
                    unjoined: 0,
                    outside: OutsideState::default(),
                    object: 0,
                    buffer: None,
                };
                self.enter(
                    |tables| &mut tables.subscriptions,
                    pid,
                    [*subscription, *rmw_subscription],
                    state,
                );
            }
            Kind::SubscriptionObject { subscription, object } => {
                let subscription = self.tables.subscriptions.find(Side::Rcl, (pid, *subscription));
                if let Some(state) = subscription.and_then(|index| self.tables.subscriptions.get_mut(index)) {
                    state.object = *object;
                }
                self.object(pid, *object, |known| known.subscription = subscription);
            }
            Kind::SubscriptionCallback { object, callback } => {
                self.object(pid, *object, |known| known.callback = Some(*callback));
            }
            Kind::ServiceInit { service, node, rmw_service, name } => {
                let Some(state) = self.service_state(pid, *service, *node, name) else { return };
                let index = self.enter(|tables| &mut tables.services, pid, [*service, *rmw_service], state);
                if index.is_some() {
                    self.tables.threads[thread].made_service = index;
                }
            }
            Kind::ServiceCallback { service, callback } => {
                let Some(service) = self.tables.services.find(Side::Rcl, (pid, *service)) else { return };
                self.end_callback(self.tables.services[service].callback);
                if let Some(index) = self.new_callback(pid, Origin::Service { service }) {
                    self.tables.services[service].callback = Some(index);
                    self.is_released_by(self.tables.services[service].requests, index);
                    self.name_callback(pid, *callback, index);
                }
            }
            Kind::ClientInit { client, node, rmw_client, name } => {
                let Some(state) = self.service_state(pid, *client, *node, name) else { return };
                let index = self.enter(|tables| &mut tables.clients, pid, [*client, *rmw_client], state);
                if index.is_some() {
                    self.tables.threads[thread].made_client = index;
                }
            }
            Kind::TimerInit { timer, period_ns } => {
                let period_ns = u64::try_from(*period_ns).ok().filter(|&period| period > 0);
                let state = TimerState {
                    handle: *timer,
                    created_ns: self.now_ns,
                    period_ns,
                    node: None,
                    callback: None,
                };
                self.enter(|tables| &mut tables.timers, pid, [*timer, 0], state);
            }
            Kind::TimerCallback { timer, callback } => {
                let Some(timer) = self.tables.timers.find(Side::Rcl, (pid, *timer)) else { return };
                let grid = self.tables.timers[timer]
                    .period_ns
                    .map(|period_ns| TimerGrid::new(period_ns, Some(self.tables.timers[timer].created_ns)));
                self.end_callback(self.tables.timers[timer].callback);
                if let Some(index) = self.new_callback(pid, Origin::Timer { timer }) {
                    self.tables.timers[timer].callback = Some(index);
                    self.tables.callbacks[index].grid = grid;
                    self.name_callback(pid, *callback, index);
                }
            }
            Kind::TimerNode { timer, node } => {
                if let Some(group) = self.tables.threads[thread].joining_timer.take() {
                    remember(&mut self.tables.group_of, (pid, *timer), group, most, &mut self.counters);
                }
                let node = self.node(pid, *node);
                if let Some(timer) = self.tables.timers.find(Side::Rcl, (pid, *timer)) {
                    self.tables.timers[timer].node = node;
                    self.renamed = true;
                }
            }
            Kind::CallbackSymbol { callback, symbol } => match self.tables.callback_of.get(&(pid, *callback))
            {
                Some(&index) => self.tables.callbacks[index].symbol = Some(symbol.clone()),
                // Registered before its callback is known as one.
                None => {
                    let symbols = &mut self.tables.symbol_of;
                    remember(symbols, (pid, *callback), symbol.clone(), most, &mut self.counters);
                }
            },
            Kind::ExecutorInit { executor, kind } => {
                let several = kind.contains("multi");
                remember(&mut self.tables.executors, (pid, *executor), several, most, &mut self.counters);
            }
            Kind::CallbackGroup { executor, group, .. } => {
                let groups = &mut self.tables.executor_of_group;
                remember(groups, (pid, *group), *executor, most, &mut self.counters);
            }
            Kind::CallbackGroupMember { group, handle } => {
                remember(&mut self.tables.group_of, (pid, *handle), *group, most, &mut self.counters);
            }
            _ => {}
        }
    }

    fn node(&self, pid: u32, node: Handle) -> Option<usize> {
        self.tables.nodes.find(Side::Rcl, (pid, node))
    }

    /// Enters an object under its handle and its middleware's (0: it has none), unless there are
    /// too many. What had them before was destroyed: it goes, and its callback ends.
    fn enter<T: Registered>(
        &mut self,
        table: fn(&mut Tables) -> &mut Registry<T>,
        pid: u32,
        [handle, middleware]: [Handle; 2],
        object: T,
    ) -> Option<usize> {
        let registry = table(&mut self.tables);
        if registry.len() >= self.options.most_objects {
            self.counters.refused += 1;
            return None;
        }
        let middleware = (middleware != 0).then_some((pid, middleware));
        let (index, replaced) = registry.enter((pid, handle), middleware, object);
        for old in replaced.into_iter().flatten() {
            // Its callback's name is that of the object.
            let callback = table(&mut self.tables).get(old).and_then(T::callback);
            self.end_callback(callback);
            table(&mut self.tables).try_remove(old);
            T::unlink(&mut self.tables, old);
        }
        Some(index)
    }

    /// A callback group of the thread's process has a new member ([`Kind::GroupMember`] says how it
    /// is named).
    pub(super) fn group_member(
        &mut self,
        thread: usize,
        group: Handle,
        reentrant: bool,
        member: MemberKind,
        object: Handle,
    ) {
        let most = self.options.most_objects;
        let state = &mut self.tables.threads[thread];
        let pid = state.pid;
        let tables = &mut self.tables;
        remember(&mut tables.groups, (pid, group), reentrant, most, &mut self.counters);
        let state = &mut tables.threads[thread];
        let handle = match member {
            MemberKind::Timer => {
                state.joining_timer = Some(group);
                None
            }
            MemberKind::Service => {
                state.made_service.take().and_then(|made| tables.services.get(made)).map(|s| s.handle)
            }
            MemberKind::Client => {
                state.made_client.take().and_then(|made| tables.clients.get(made)).map(|c| c.handle)
            }
            MemberKind::Subscription => tables
                .subscriptions
                .iter()
                .filter(|(_, s)| s.pid == pid && s.object == object)
                .map(|(_, s)| s.handle)
                .next_back(),
        };
        if let Some(handle) = handle {
            remember(&mut tables.group_of, (pid, handle), group, most, &mut self.counters);
        }
    }

    fn object(&mut self, pid: u32, object: Handle, set: impl FnOnce(&mut ObjectState)) {
        let key = (pid, object);
        if !self.tables.objects.contains_key(&key) && self.tables.objects.len() >= self.options.most_objects {
            self.counters.refused += 1;
            return;
        }
        set(self.tables.objects.entry(key).or_default());
        self.subscription_callback(pid, object);
    }

    /// Both halves of an object may be known now. A subscription has two callbacks where messages
    /// may come from within the process: two copies of one function, and one callback to everybody
    /// else.
    fn subscription_callback(&mut self, pid: u32, object: Handle) {
        let Some(&ObjectState { subscription: Some(subscription), callback: Some(callback) }) =
            self.tables.objects.get(&(pid, object))
        else {
            return;
        };
        // Done with: the object's address may come again.
        self.tables.objects.remove(&(pid, object));
        let Some(state) = self.tables.subscriptions.get(subscription) else { return };
        let index = match state.callback {
            Some(index) => index,
            None => match self.new_callback(pid, Origin::Subscription { subscription }) {
                Some(index) => index,
                None => return,
            },
        };
        self.tables.subscriptions[subscription].callback = Some(index);
        self.is_released_by(self.tables.subscriptions[subscription].topic, index);
        self.name_callback(pid, callback, index);
    }

    /// The handle is this callback's from now on. Another one that had the same address before was
    /// destroyed.
    fn name_callback(&mut self, pid: u32, handle: Handle, index: usize) {
        if let Some(symbol) = self.tables.symbol_of.remove(&(pid, handle)) {
            self.tables.callbacks[index].symbol = Some(symbol);
        }
        if let Some(before) = self.tables.callback_of.insert((pid, handle), index)
            && before != index
            && !self.tables.callback_of.iter().any(|(_, &other)| other == before)
        {
            self.end_callback(Some(before));
        }
    }

    fn service_state(
        &mut self,
        pid: u32,
        handle: Handle,
        node: Handle,
        name: &Arc<str>,
    ) -> Option<ServiceState> {
        let requests = self.named_topic(&format!("{name} (requests)").into(), true)?;
        let responses = self.named_topic(&format!("{name} (responses)").into(), true)?;
        Some(ServiceState {
            handle,
            name: name.clone(),
            node: self.node(pid, node),
            requests,
            responses,
            callback: None,
            identity: 0,
        })
    }
}

/// Keeps an entry, unless there are too many.
fn remember<V>(map: &mut FxHashMap<Key, V>, key: Key, value: V, most: usize, counters: &mut Counters) {
    if map.len() < most || map.contains_key(&key) {
        map.insert(key, value);
    } else {
        counters.refused += 1;
    }
}

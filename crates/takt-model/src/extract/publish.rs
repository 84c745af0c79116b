//! Messages: from a publication, by a callback or by a thread of its own, to whoever takes it.

use std::collections::VecDeque;

use takt_ros::event::Handle;

use super::Extractor;
use super::delivery::Receipt;
use super::outside::OutsideState;
use super::registry::Side;
use super::run::{MAX_EDGES, add_edge, edge_to, ran_on};
use super::service::is_of_action;
use super::state::{Origin, Publication, PublisherState, SourceState, SubscriptionState, Take, TakenOf};

/// Messages of an intra-process buffer that are followed.
const MAX_BUFFERED: u64 = 1024;

impl Extractor {
    pub(super) fn publisher(&mut self, pid: u32, handle: Handle, side: Side) -> Option<usize> {
        let known = self.tables.publishers.find(side, (pid, handle));
        if known.is_some() {
            return known;
        }
        if self.tables.publishers.len() >= self.options.most_objects {
            self.counters.refused += 1;
            return None;
        }
        let topic = self.new_topic(None, false)?;
        let state = PublisherState { topic, node: None };
        Some(self.tables.publishers.enter_seen(side, (pid, handle), state))
    }

    pub(super) fn rcl_publish(&mut self, thread: usize, at_ns: u64, cpu_ns: Option<u64>, handle: Handle) {
        let state = &mut self.tables.threads[thread];
        let pid = state.pid;
        let open = state.publication.take();
        let Some(publisher) = self.publisher(pid, handle, Side::Rcl) else { return };
        // The second step of a message that went to subscribers in the process first.
        let message = match open.filter(|open| open.intra_only && open.publisher == publisher) {
            Some(open) => Some(open.message),
            None => self.published(thread, at_ns, cpu_ns, publisher),
        };
        if let Some(message) = message {
            self.tables.threads[thread].publication =
                Some(Publication { publisher, message, intra_only: false });
        }
    }

    pub(super) fn rmw_publish(
        &mut self,
        thread: usize,
        at_ns: u64,
        cpu_ns: Option<u64>,
        rmw_handle: Handle,
        stamp: Option<i64>,
    ) {
        let state = &mut self.tables.threads[thread];
        let pid = state.pid;
        let open = state.publication.take().filter(|open| !open.intra_only);
        let message = match open {
            Some(open) => {
                // Attached late: two handles of one publisher.
                if rmw_handle != 0 {
                    let most = self.options.most_objects;
                    self.tables.publishers.link((pid, rmw_handle), open.publisher, most);
                }
                Some(open.message)
            }
            // The steps before were not seen.
            None if rmw_handle != 0 => {
                let Some(publisher) = self.publisher(pid, rmw_handle, Side::Middleware) else { return };
                self.published(thread, at_ns, cpu_ns, publisher)
            }
            None => None,
        };
        match (message, stamp) {
            (Some(message), Some(stamp)) => {
                if self.clocks.published(at_ns, stamp) {
                    self.learn_clocks_anew();
                }
                self.messages.stamp(message, stamp, at_ns);
            }
            (_, None) => self.clocks.unstamped(),
            _ => {}
        }
    }

    pub(super) fn intra_publish(&mut self, thread: usize, at_ns: u64, cpu_ns: Option<u64>, handle: Handle) {
        let pid = self.tables.threads[thread].pid;
        let Some(publisher) = self.publisher(pid, handle, Side::Rcl) else { return };
        let Some(message) = self.published(thread, at_ns, cpu_ns, publisher) else { return };
        self.tables.threads[thread].publication = Some(Publication { publisher, message, intra_only: true });
        let topic = self.tables.topic(self.tables.publishers[publisher].topic);
        for i in 0..self.tables.topics[topic].intra.len() {
            let subscription = self.tables.topics[topic].intra[i];
            if let Some(state) = self.tables.subscriptions.get_mut(subscription)
                && state.pid == pid
                && let Some(buffer) = &mut state.buffer
            {
                // A ring buffer of the subscription's depth: the oldest message goes. Where the
                // depth is not known, none goes that the subscription may still take: a latency
                // that is too long is no promise.
                let depth = if state.depth == 0 { MAX_BUFFERED } else { state.depth.min(MAX_BUFFERED) };
                if buffer.len() as u64 >= depth {
                    buffer.pop_front();
                }
                buffer.push_back(message);
            }
        }
    }

    /// The message that an intra-process activation works on. Buffers are first in, first out.
    pub(super) fn pop_buffer(&mut self, subscription: usize) -> Option<u64> {
        let state = self.tables.subscriptions.get_mut(subscription)?;
        match &mut state.buffer {
            Some(buffer) => buffer.pop_front(),
            None => {
                // The first one: from now on its buffer is followed.
                state.buffer = Some(VecDeque::new());
                let topic = self.tables.topic(self.tables.subscriptions[subscription].topic);
                self.tables.topics[topic].intra.push(subscription);
                None
            }
        }
    }

    /// One message was published: by the activation under way, or by the thread's own loop.
    pub(super) fn published(
        &mut self,
        thread: usize,
        at_ns: u64,
        cpu_ns: Option<u64>,
        publisher: usize,
    ) -> Option<u64> {
        let PublisherState { topic, node } = *self.tables.publishers.get(publisher)?;
        let topic = self.tables.topic(topic);
        self.send(thread, at_ns, cpu_ns, topic, node)
    }

    /// A message on its way on a topic.
    pub(super) fn send(
        &mut self,
        thread: usize,
        at_ns: u64,
        cpu_ns: Option<u64>,
        topic: usize,
        node: Option<usize>,
    ) -> Option<u64> {
        self.tables.topics[topic].arrivals.record(at_ns, self.starting);
        self.comes(topic, at_ns);
        let message = self.sent_by(thread, at_ns, cpu_ns, topic, node)?;
        if self.starting {
            self.messages.set_starting(message);
        }
        Some(message)
    }

    /// By the activation under way, or by the thread's own loop.
    fn sent_by(
        &mut self,
        thread: usize,
        at_ns: u64,
        cpu_ns: Option<u64>,
        topic: usize,
        node: Option<usize>,
    ) -> Option<u64> {
        let (fresh, horizon_ns) = (self.arrivals(), self.options.horizon_ns);
        let state = &mut self.tables.threads[thread];
        state.speaks = true;
        let head = state.head.take();
        if let Some(frame) = state.stack.last() {
            let planned = add_edge(
                &mut self.tables.callbacks[frame.callback],
                topic,
                at_ns,
                fresh,
                (horizon_ns, self.starting),
            );
            self.guarded.sends(topic, planned);
            self.join_messages(thread, head);
            let frame = self.tables.threads[thread].stack.last()?;
            if !self.starting {
                // What a message filter sends may belong to activations of other callbacks, and
                // those may have been short. Who has no start of its own may have begun just now.
                let whole = frame.joint.is_none() && !frame.inferred;
                let after_ns = if whole { at_ns.saturating_sub(frame.at_ns) } else { 0 };
                self.tables.callbacks[frame.callback].shortest.sent(topic, after_ns);
            }
            let tags = frame.joint.as_ref().map_or(&frame.tags, |joint| &joint.tags);
            return Some(self.messages.publish(thread, topic, at_ns, tags));
        }
        if state.executor {
            if state.outside.len() < MAX_EDGES {
                state.outside.push(topic);
            }
            return Some(self.messages.publish(thread, topic, at_ns, &[]));
        }
        self.source_publishes(thread, at_ns, cpu_ns, topic, node)
    }

    pub(super) fn source_publishes(
        &mut self,
        thread: usize,
        at_ns: u64,
        cpu_ns: Option<u64>,
        topic: usize,
        node: Option<usize>,
    ) -> Option<u64> {
        let pid = self.tables.threads[thread].pid;
        if self.tables.threads[thread].source.is_none() {
            let index = self.new_callback(pid, Origin::Source { thread })?;
            let fresh = self.arrivals();
            let callback = &mut self.tables.callbacks[index];
            callback.source_node = node;
            // Its name comes from its first topic.
            edge_to(callback, topic, fresh);
            ran_on(callback, thread);
            self.tables.threads[thread].source =
                Some(SourceState { callback: index, topics: vec![], last: None, base: None, tags: vec![] });
            self.settle(index);
        }
        let source = self.tables.threads[thread].source.as_mut()?;
        let index = source.callback;
        if source.topics.is_empty() || source.topics.contains(&topic) {
            // The loop has come round.
            let ended = source.last;
            let begun = std::mem::replace(&mut source.base, source.last);
            source.topics.clear();
            if let (Some((from_ns, from)), Some((to_ns, to))) = (begun, ended) {
                self.source_cost(index, from_ns, from, to_ns, to);
            }
            if let Some(finished) = ended {
                self.finish_source(thread, finished.0);
            }
            self.look_up_chains(at_ns);
            let tags = self.step(index, &[], at_ns, false);
            let callback = &mut self.tables.callbacks[index];
            callback.activations += 1;
            callback.arrivals.record(at_ns, self.starting);
            self.tables.threads[thread].source.as_mut()?.tags = tags;
        }
        let (fresh, horizon_ns) = (self.arrivals(), self.options.horizon_ns);
        let callback = &mut self.tables.callbacks[index];
        let edges = callback.publishes.len();
        callback.source_node = callback.source_node.or(node);
        let planned = add_edge(callback, topic, at_ns, fresh, (horizon_ns, self.starting));
        self.guarded.sends(topic, planned);
        // Its name comes from what it publishes.
        self.renamed |= callback.publishes.len() != edges;
        let source = self.tables.threads[thread].source.as_mut()?;
        if source.topics.len() < MAX_EDGES {
            source.topics.push(topic);
        }
        source.last = Some((at_ns, cpu_ns));
        Some(self.messages.publish(thread, topic, at_ns, &source.tags))
    }

    /// The cost of one turn of a source's loop. Without a CPU clock it is unknown: the loop mostly
    /// waits.
    pub(super) fn source_cost(
        &mut self,
        index: usize,
        from_ns: u64,
        from: Option<u64>,
        to_ns: u64,
        to: Option<u64>,
    ) {
        let callback = &mut self.tables.callbacks[index];
        let elapsed_ns = to_ns.saturating_sub(from_ns);
        // Between two announcements a process loads its libraries, which is no turn of a loop.
        let starting = self.startups.is_starting(callback.pid, from_ns);
        match (from, to) {
            (Some(from), Some(to)) if starting => callback.cost.hold_against(to_ns, to.saturating_sub(from)),
            (Some(from), Some(to)) if to.saturating_sub(from) <= elapsed_ns + elapsed_ns / 16 + 1_000_000 => {
                callback.cost.record(to_ns, to.saturating_sub(from), true);
                if let Some(probable) = &mut callback.probable {
                    probable.record(to.saturating_sub(from));
                }
            }
            (Some(_), Some(_)) => {
                self.counters.clock_steps += 1;
                callback.cost.gap();
            }
            _ => {}
        }
    }

    /// A chain that consists of the source alone ends with its last publication.
    pub(super) fn finish_source(&mut self, thread: usize, at_ns: u64) {
        let Some(source) = &mut self.tables.threads[thread].source else { return };
        for tag in source.tags.drain(..) {
            if let Some(watch) = self.watches.get_mut(tag.watch as usize) {
                watch.finished(tag.position, tag.origin_ns, at_ns);
            }
        }
    }

    pub(super) fn rmw_take(
        &mut self,
        thread: usize,
        at_ns: u64,
        cpu_ns: Option<u64>,
        rmw_handle: Handle,
        stamp: i64,
    ) {
        let pid = self.tables.threads[thread].pid;
        let subscription = match self.tables.subscriptions.find(Side::Middleware, (pid, rmw_handle)) {
            Some(subscription) => subscription,
            None => match self.unknown_subscription(pid, rmw_handle) {
                Some(subscription) => subscription,
                None => return,
            },
        };
        let Some(state) = self.tables.subscriptions.get(subscription) else { return };
        let topic = self.tables.topic(state.topic);
        // Same stamp: the message on this topic, or else one on a topic that may be the same.
        let (mut exact, mut possible) = (None, None);
        for (number, message) in self.messages.stamped(stamp) {
            let its = self.tables.topic(message.topic);
            if its == topic {
                exact = exact.or(Some((number, message.at_ns)));
            } else if self.tables.topics[its].name.is_none() || self.tables.topics[topic].name.is_none() {
                possible = possible.or(Some((number, message.at_ns, its)));
            }
        }
        if exact.is_none()
            && let Some((number, published_ns, its)) = possible
            && self.tables.merge(topic, its).is_some()
        {
            self.renamed = true;
            exact = Some((number, published_ns));
        }
        let (mut sent_ns, mut unknown) = (None, false);
        let (head, of_action) = self.taken(thread, subscription);
        // The middleware's two stamps are of the day's clock; when that was set in between, they
        // say nothing.
        let after_ns = self.tables.threads[thread].received.take().filter(|_| !self.clocks.is_unsure(at_ns));
        let mut receipt = exact.and_then(|(number, _)| self.received(thread, number, at_ns, after_ns));
        let unrecorded = exact.is_none() && self.gaps.count > 0 && self.in_a_gap(stamp);
        let state = &mut self.tables.subscriptions[subscription];
        let topic = state.topic;
        if unrecorded {
            // Its publisher may well be one that is observed.
            self.counters.unjoined += 1;
            unknown = true;
        } else if let Some((_, published_ns)) = exact {
            state.joined += 1;
            self.counters.joined += 1;
            let topic = self.tables.topic(topic);
            let transport = &mut self.tables.topics[topic].transport;
            let late_ns = at_ns.saturating_sub(published_ns);
            transport.seen += 1;
            transport.total_ns = transport.total_ns.saturating_add(late_ns);
            transport.most_ns = transport.most_ns.max(late_ns);
        } else {
            state.unjoined += 1;
            self.counters.unjoined += 1;
            sent_ns = state.outside.take(&self.clocks, at_ns, stamp);
            unknown = sent_ns.is_none();
            receipt = sent_ns.zip(after_ns).map(|(sent_ns, after_ns)| {
                let received_ns = sent_ns.saturating_add_signed(after_ns).clamp(sent_ns, at_ns);
                Receipt { at_ns: received_ns, took_ns: received_ns - sent_ns, stamped: true, own: false }
            });
        }
        let message = exact.map(|(number, _)| number);
        self.tables.threads[thread].take = Some(Take {
            of: TakenOf::Subscription(subscription),
            message,
            at_ns,
            sent_ns,
            unknown,
            head,
            receipt,
        });
        if of_action {
            self.inferred(thread, at_ns, cpu_ns, Origin::Subscription { subscription }, message, receipt);
        }
    }

    /// A message was taken: how it begins, where that is reported, and whether it is one that an
    /// action takes without a callback's events.
    fn taken(&mut self, thread: usize, subscription: usize) -> (Option<u64>, bool) {
        let state = &mut self.tables.threads[thread];
        state.speaks = true;
        let head = state.head.take();
        let Some(state) = self.tables.subscriptions.get(subscription) else { return (head, false) };
        let topic = &self.tables.topics[self.tables.topic(state.topic)];
        let eventless = match state.callback {
            Some(callback) => self.tables.callbacks.get(callback).is_some_and(|c| c.eventless),
            None => state.handle != 0,
        };
        (head, eventless && topic.name.as_ref().is_some_and(|name| is_of_action(name)))
    }

    pub(super) fn unknown_subscription(&mut self, pid: u32, rmw_handle: Handle) -> Option<usize> {
        if self.tables.subscriptions.len() >= self.options.most_objects {
            self.counters.refused += 1;
            return None;
        }
        let topic = self.new_topic(None, false)?;
        let state = SubscriptionState {
            handle: 0,
            pid,
            topic,
            node: None,
            depth: 1,
            callback: None,
            joined: 0,
            unjoined: 0,
            outside: OutsideState::default(),
            object: 0,
            buffer: None,
        };
        Some(self.tables.subscriptions.enter_seen(Side::Middleware, (pid, rmw_handle), state))
    }
}

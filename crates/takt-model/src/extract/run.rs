//! What running processes do: activations, messages, executors.

use std::collections::VecDeque;
use std::sync::Arc;

use takt_ros::event::{Handle, ServiceStep};

use super::Extractor;
use super::snapshot;
use super::state::{
    Edge, Frame, Origin, Publication, PublisherState, SourceState, SubscriptionState, Tag, Take,
};

/// Callbacks inside callbacks on one thread; deeper ones are taken for a stream without ends.
const DEEPEST: usize = 16;
/// Topics that one callback publishes to, and threads that one callback runs on, at most.
const MOST_EDGES: usize = 256;

impl Extractor {
    pub(super) fn callback_start(
        &mut self,
        thread: usize,
        at_ns: u64,
        cpu_ns: Option<u64>,
        handle: Handle,
        intra: bool,
    ) {
        self.close_inferred(thread, at_ns, cpu_ns);
        let state = &mut self.tables.threads[thread];
        let pid = state.pid;
        state.executor = true;
        state.open = None;
        let executed = state.executed.take();
        let take = state.take.take();
        if state.charged.is_none()
            && let Some(cpu_ns) = cpu_ns
        {
            state.charged = Some((cpu_ns, at_ns));
        }
        // A callback does not run inside itself: the end of the earlier one is missing. Neither does anything nest without limit.
        if let Some(stale) = state.stack.iter().position(|frame| frame.handle == handle) {
            self.counters.dropped_activations += (state.stack.len() - stale) as u64;
            state.stack.truncate(stale);
        } else if state.stack.len() >= DEEPEST {
            self.counters.dropped_activations += state.stack.len() as u64;
            state.stack.clear();
        }
        let nested = !state.stack.is_empty();

        let known = self.tables.callback_of.get(&(pid, handle)).copied();
        let Some(index) = known.or_else(|| self.unknown_callback(pid, handle, intra, executed.is_some()))
        else {
            return;
        };
        if !self.tables.callbacks[index].settled {
            self.settle(index);
        }
        let mut released_ns = at_ns;
        let mut tags = std::mem::take(&mut self.tags);
        tags.clear();
        match self.tables.callbacks[index].origin {
            Origin::Timer { .. } => {
                let callback = &mut self.tables.callbacks[index];
                if let Some(grid) = &mut callback.grid {
                    released_ns = grid.start(at_ns);
                }
                // Starts, to hold against the declared period.
                callback.arrivals.record(at_ns);
            }
            Origin::Subscription { subscription } => {
                let message = if intra {
                    self.pop_buffer(subscription)
                } else {
                    take.filter(|take| take.subscription == subscription).and_then(|take| take.message)
                };
                match message.and_then(|message| self.messages.get(message)) {
                    Some(message) => {
                        released_ns = message.at_ns;
                        tags.extend_from_slice(&message.tags);
                    }
                    None => released_ns = take.map_or(at_ns, |take| take.at_ns),
                }
                self.tables.callbacks[index].arrivals.record(released_ns);
            }
            Origin::Service { .. } => {
                // The request that was taken just before, where service events tell.
                if let Some(message) = take.and_then(|t| t.message).and_then(|m| self.messages.get(m)) {
                    released_ns = message.at_ns;
                    tags.extend_from_slice(&message.tags);
                }
                self.tables.callbacks[index].arrivals.record(released_ns);
            }
            Origin::Unknown { .. } => {
                self.learn_unknown(index, pid, take.map(|take| take.subscription));
                self.tables.callbacks[index].arrivals.record(at_ns);
            }
            _ => self.tables.callbacks[index].arrivals.record(at_ns),
        }
        let tags_here = self.step(index, &tags, released_ns);
        self.tags = tags;
        let callback = &mut self.tables.callbacks[index];
        callback.activations += 1;
        callback.nested += u64::from(nested);
        ran_on(callback, thread);
        self.tables.threads[thread].stack.push(Frame {
            callback: index,
            handle,
            at_ns,
            cpu_ns,
            inferred: false,
            tags: tags_here,
        });
    }

    pub(super) fn callback_end(&mut self, thread: usize, at_ns: u64, cpu_ns: Option<u64>, handle: Handle) {
        let state = &mut self.tables.threads[thread];
        let Some(position) = state.stack.iter().rposition(|frame| frame.handle == handle && !frame.inferred)
        else {
            self.counters.ends_without_start += 1;
            // What the thread used up to here belongs to an activation that was not seen whole.
            state.charged = cpu_ns.map(|cpu_ns| (cpu_ns, at_ns));
            return;
        };
        self.counters.dropped_activations += (state.stack.len() - position - 1) as u64;
        state.stack.truncate(position + 1);
        self.close(thread, at_ns, cpu_ns);
    }

    /// Ends the topmost activation.
    fn close(&mut self, thread: usize, at_ns: u64, cpu_ns: Option<u64>) {
        let charge_executor = self.options.charge_executor;
        let state = &mut self.tables.threads[thread];
        let Some(frame) = state.stack.pop() else { return };
        let wall_ns = at_ns.saturating_sub(frame.at_ns);
        let took = match (frame.cpu_ns, cpu_ns) {
            (Some(from), Some(to)) => {
                let outermost = state.stack.is_empty();
                let charged = state.charged.filter(|_| outermost && charge_executor);
                let (from, since_ns) = charged.map_or((from, frame.at_ns), |(c, at)| (c.min(from), at));
                if outermost {
                    state.charged = Some((to, at_ns));
                }
                let took_ns = to.saturating_sub(from);
                let elapsed_ns = at_ns.saturating_sub(since_ns);
                // A thread uses no more CPU time than passes; the two clocks are not read at the same moment.
                if took_ns > elapsed_ns.saturating_add(elapsed_ns / 16).saturating_add(1_000_000) {
                    None
                } else {
                    Some((took_ns, true))
                }
            }
            _ => Some((wall_ns, false)),
        };
        let callback = &mut self.tables.callbacks[frame.callback];
        match took {
            Some((took_ns, cpu_time)) => {
                callback.cost.record(at_ns, took_ns, cpu_time);
                if let Some(probable) = &mut callback.probable {
                    probable.record(took_ns);
                }
            }
            None => {
                self.counters.clock_steps += 1;
                self.counters.dropped_activations += 1;
                callback.cost.gap();
                if let Some(probable) = &mut callback.probable {
                    probable.gap();
                }
            }
        }
        for tag in &frame.tags {
            if let Some(watch) = self.watches.get_mut(tag.watch as usize) {
                watch.finished(tag.position, tag.origin_ns, at_ns);
            }
        }
    }

    /// A callback of a client ends where its executor goes on.
    fn close_inferred(&mut self, thread: usize, at_ns: u64, cpu_ns: Option<u64>) {
        if self.tables.threads[thread].stack.last().is_some_and(|frame| frame.inferred) {
            self.close(thread, at_ns, cpu_ns);
        }
    }

    /// The tags of an activation: those of its message that this callback is the next step of, and those of chains that
    /// begin here.
    fn step(&mut self, index: usize, arriving: &[Tag], released_ns: u64) -> Vec<Tag> {
        let callback = &self.tables.callbacks[index];
        if callback.watched.is_empty() {
            return Vec::new();
        }
        let mut tags = Vec::new();
        for &(watch, position) in &callback.watched {
            if position == 0 {
                tags.push(Tag { watch, position, origin_ns: released_ns });
                if let Some(stats) = self.watches.get_mut(watch as usize) {
                    stats.began(released_ns);
                }
                continue;
            }
            tags.extend(
                arriving
                    .iter()
                    .filter(|tag| tag.watch == watch && tag.position + 1 == position)
                    .map(|tag| Tag { position, ..*tag }),
            );
        }
        tags
    }

    fn unknown_callback(&mut self, pid: u32, handle: Handle, intra: bool, executed: bool) -> Option<usize> {
        let index = self.new_callback(pid, Origin::Unknown { handle, intra, executed })?;
        self.tables.callback_of.insert((pid, handle), index);
        self.tables.callbacks[index].symbol = self.tables.symbol_of.remove(&(pid, handle));
        Some(index)
    }

    /// A callback whose registration was missed: a message taken just before its start says what it is.
    fn learn_unknown(&mut self, index: usize, pid: u32, taken: Option<usize>) {
        let Some(subscription) = taken else { return };
        let Some(state) = self.tables.subscriptions.get_mut(subscription) else { return };
        if state.pid == pid && state.callback.is_none() {
            state.callback = Some(index);
            self.tables.callbacks[index].origin = Origin::Subscription { subscription };
            self.renamed = true;
        }
    }

    /// At its first start a callback is fully registered: it takes over the curves of an ended one of its name.
    fn settle(&mut self, index: usize) {
        self.tables.callbacks[index].settled = true;
        if self.ended.is_empty() {
            return;
        }
        let name = snapshot::label(self, &self.tables.callbacks[index]);
        let predecessor = self.ended.iter().position(|&ended| {
            self.tables.callbacks.get(ended).is_some_and(|c| c.dead.as_deref() == Some(name.as_str()))
        });
        let Some(position) = predecessor else { return };
        let Some(ended) = self.ended.remove(position) else { return };
        let Some(before) = self.tables.callbacks.try_remove(ended) else { return };
        let callback = &mut self.tables.callbacks[index];
        callback.arrivals = before.arrivals;
        callback.arrivals.gap();
        callback.cost = before.cost;
        callback.cost.gap();
        callback.probable = before.probable;
        if let Some(probable) = &mut callback.probable {
            probable.gap();
        }
        callback.publishes = before.publishes;
        callback.activations = before.activations;
        callback.symbol = callback.symbol.take().or(before.symbol);
        self.counters.succeeded += 1;
    }

    // --- messages -----------------------------------------------------------------------------------------------------

    fn publisher(&mut self, pid: u32, handle: Handle, rmw: bool) -> Option<usize> {
        let map = if rmw { &self.tables.rmw_publisher_of } else { &self.tables.publisher_of };
        if let Some(&publisher) = map.get(&(pid, handle)) {
            return Some(publisher);
        }
        if self.tables.publishers.len() >= self.options.most_objects {
            self.counters.refused += 1;
            return None;
        }
        let topic = self.new_topic(None, false)?;
        let publisher = self.tables.publishers.insert(PublisherState { topic, node: None });
        let map = if rmw { &mut self.tables.rmw_publisher_of } else { &mut self.tables.publisher_of };
        map.insert((pid, handle), publisher);
        Some(publisher)
    }

    pub(super) fn rcl_publish(&mut self, thread: usize, at_ns: u64, cpu_ns: Option<u64>, handle: Handle) {
        let state = &mut self.tables.threads[thread];
        let pid = state.pid;
        let open = state.publication.take();
        let Some(publisher) = self.publisher(pid, handle, false) else { return };
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
                if rmw_handle != 0
                    && self.tables.rmw_publisher_of.len() < self.options.most_objects
                    && !self.tables.rmw_publisher_of.contains_key(&(pid, rmw_handle))
                {
                    self.tables.rmw_publisher_of.insert((pid, rmw_handle), open.publisher);
                }
                Some(open.message)
            }
            // The steps before were not seen.
            None if rmw_handle != 0 => {
                let Some(publisher) = self.publisher(pid, rmw_handle, true) else { return };
                self.published(thread, at_ns, cpu_ns, publisher)
            }
            None => None,
        };
        if let (Some(message), Some(stamp)) = (message, stamp) {
            self.messages.stamp(message, stamp);
        }
    }

    pub(super) fn intra_publish(&mut self, thread: usize, at_ns: u64, cpu_ns: Option<u64>, handle: Handle) {
        let pid = self.tables.threads[thread].pid;
        let Some(publisher) = self.publisher(pid, handle, false) else { return };
        let Some(message) = self.published(thread, at_ns, cpu_ns, publisher) else { return };
        self.tables.threads[thread].publication = Some(Publication { publisher, message, intra_only: true });
        let topic = self.tables.topic(self.tables.publishers[publisher].topic);
        for i in 0..self.tables.topics[topic].intra.len() {
            let subscription = self.tables.topics[topic].intra[i];
            if let Some(state) = self.tables.subscriptions.get_mut(subscription)
                && state.pid == pid
                && let Some(buffer) = &mut state.buffer
            {
                // A ring buffer of the subscription's depth: the oldest message goes.
                if buffer.len() as u64 >= state.depth.clamp(1, 1024) {
                    buffer.pop_front();
                }
                buffer.push_back(message);
            }
        }
    }

    /// The message that an intra-process activation works on. Buffers are first in, first out.
    fn pop_buffer(&mut self, subscription: usize) -> Option<u64> {
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
    fn published(&mut self, thread: usize, at_ns: u64, cpu_ns: Option<u64>, publisher: usize) -> Option<u64> {
        let PublisherState { topic, node } = *self.tables.publishers.get(publisher)?;
        let topic = self.tables.topic(topic);
        self.send(thread, at_ns, cpu_ns, topic, node)
    }

    /// A message on its way on a topic.
    fn send(
        &mut self,
        thread: usize,
        at_ns: u64,
        cpu_ns: Option<u64>,
        topic: usize,
        node: Option<usize>,
    ) -> Option<u64> {
        self.tables.topics[topic].arrivals.record(at_ns);
        let state = &mut self.tables.threads[thread];
        if let Some(frame) = state.stack.last() {
            add_edge(&mut self.tables.callbacks[frame.callback], topic);
            return Some(self.messages.publish(topic, at_ns, &frame.tags));
        }
        if state.executor {
            if state.outside.len() < MOST_EDGES {
                state.outside.push(topic);
            }
            return Some(self.messages.publish(topic, at_ns, &[]));
        }
        self.source_publishes(thread, at_ns, cpu_ns, topic, node)
    }

    fn source_publishes(
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
            let callback = &mut self.tables.callbacks[index];
            callback.source_node = node;
            add_edge(callback, topic);
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
            let tags = self.step(index, &[], at_ns);
            let callback = &mut self.tables.callbacks[index];
            callback.activations += 1;
            callback.arrivals.record(at_ns);
            self.tables.threads[thread].source.as_mut()?.tags = tags;
        }
        add_edge(&mut self.tables.callbacks[index], topic);
        let source = self.tables.threads[thread].source.as_mut()?;
        if source.topics.len() < MOST_EDGES {
            source.topics.push(topic);
        }
        source.last = Some((at_ns, cpu_ns));
        Some(self.messages.publish(topic, at_ns, &source.tags))
    }

    /// The cost of one turn of a source's loop. Without a CPU clock it is unknown: the loop mostly waits.
    fn source_cost(&mut self, index: usize, from_ns: u64, from: Option<u64>, to_ns: u64, to: Option<u64>) {
        let callback = &mut self.tables.callbacks[index];
        let elapsed_ns = to_ns.saturating_sub(from_ns);
        match (from, to) {
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
    fn finish_source(&mut self, thread: usize, at_ns: u64) {
        let Some(source) = &mut self.tables.threads[thread].source else { return };
        for tag in source.tags.drain(..) {
            if let Some(watch) = self.watches.get_mut(tag.watch as usize) {
                watch.finished(tag.position, tag.origin_ns, at_ns);
            }
        }
    }

    pub(super) fn rmw_take(&mut self, thread: usize, at_ns: u64, rmw_handle: Handle, stamp: i64) {
        let pid = self.tables.threads[thread].pid;
        let subscription = match self.tables.rmw_subscription_of.get(&(pid, rmw_handle)) {
            Some(&subscription) => subscription,
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
        let state = &mut self.tables.subscriptions[subscription];
        let topic = state.topic;
        if let Some((_, published_ns)) = exact {
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
        }
        self.tables.threads[thread].take =
            Some(Take { subscription, message: exact.map(|(number, _)| number), at_ns });
    }

    fn unknown_subscription(&mut self, pid: u32, rmw_handle: Handle) -> Option<usize> {
        if self.tables.subscriptions.len() >= self.options.most_objects {
            self.counters.refused += 1;
            return None;
        }
        let topic = self.new_topic(None, false)?;
        let subscription = self.tables.subscriptions.insert(SubscriptionState {
            pid,
            topic,
            node: None,
            depth: 1,
            callback: None,
            joined: 0,
            unjoined: 0,
            buffer: None,
        });
        self.tables.rmw_subscription_of.insert((pid, rmw_handle), subscription);
        Some(subscription)
    }

    // --- services -----------------------------------------------------------------------------------------------------

    pub(super) fn service_step(
        &mut self,
        thread: usize,
        at_ns: u64,
        cpu_ns: Option<u64>,
        step: ServiceStep,
        rmw_handle: Handle,
        sequence: i64,
    ) {
        let key = (self.tables.threads[thread].pid, rmw_handle);
        match step {
            ServiceStep::SendRequest => {
                let Some(client) =
                    self.tables.rmw_client_of.get(&key).and_then(|&i| self.tables.clients.get(i))
                else {
                    return;
                };
                let (topic, node) = (client.requests, client.node);
                if let Some(message) = self.send(thread, at_ns, cpu_ns, topic, node) {
                    self.messages.stamp(message, service_stamp(topic, sequence));
                }
            }
            ServiceStep::SendResponse => {
                let Some(service) =
                    self.tables.rmw_service_of.get(&key).and_then(|&i| self.tables.services.get(i))
                else {
                    return;
                };
                let (topic, node) = (service.responses, service.node);
                if let Some(message) = self.send(thread, at_ns, cpu_ns, topic, node) {
                    self.messages.stamp(message, service_stamp(topic, sequence));
                }
            }
            ServiceStep::TakeRequest => {
                let Some(service) =
                    self.tables.rmw_service_of.get(&key).and_then(|&i| self.tables.services.get(i))
                else {
                    return;
                };
                let message = self.only_message(service.requests, sequence);
                self.joined_service(service.requests, message, at_ns);
                self.tables.threads[thread].take = Some(Take { subscription: usize::MAX, message, at_ns });
            }
            ServiceStep::TakeResponse => {
                let Some(&client) = self.tables.rmw_client_of.get(&key) else { return };
                let Some(topic) = self.tables.clients.get(client).map(|client| client.responses) else {
                    return;
                };
                let message = self.only_message(topic, sequence);
                self.joined_service(topic, message, at_ns);
                self.response_taken(thread, at_ns, cpu_ns, client, message);
            }
        }
    }

    /// The message of this sequence number. Clients count for themselves: where two have the same number under way,
    /// nobody can tell whose it is, and neither is joined.
    fn only_message(&self, topic: usize, sequence: i64) -> Option<u64> {
        let topic = self.tables.topic(topic);
        let mut on_topic =
            self.messages.stamped(service_stamp(topic, sequence)).filter(|(_, m)| m.topic == topic);
        let (number, message) = on_topic.next()?;
        let twin =
            on_topic.next().is_some_and(|(_, m)| message.at_ns.saturating_sub(m.at_ns) < 1_000_000_000);
        (!twin).then_some(number)
    }

    fn joined_service(&mut self, topic: usize, message: Option<u64>, at_ns: u64) {
        let Some(message) = message.and_then(|m| self.messages.get(m)) else {
            self.counters.unjoined += 1;
            return;
        };
        self.counters.joined += 1;
        let late_ns = at_ns.saturating_sub(message.at_ns);
        let topic = self.tables.topic(topic);
        let transport = &mut self.tables.topics[topic].transport;
        transport.seen += 1;
        transport.total_ns = transport.total_ns.saturating_add(late_ns);
        transport.most_ns = transport.most_ns.max(late_ns);
    }

    /// A response was taken by an executor: the client's callback runs until the executor goes on.
    fn response_taken(
        &mut self,
        thread: usize,
        at_ns: u64,
        cpu_ns: Option<u64>,
        client: usize,
        message: Option<u64>,
    ) {
        self.close_inferred(thread, at_ns, cpu_ns);
        let state = &mut self.tables.threads[thread];
        let pid = state.pid;
        if !state.executor || !state.stack.is_empty() {
            return;
        }
        state.open = None;
        let index = match self.tables.clients[client].callback {
            Some(index) => index,
            None => match self.new_callback(pid, Origin::Client { client }) {
                Some(index) => {
                    self.tables.clients[client].callback = Some(index);
                    self.settle(index);
                    index
                }
                None => return,
            },
        };
        let (mut released_ns, mut arriving) = (at_ns, std::mem::take(&mut self.tags));
        arriving.clear();
        if let Some(message) = message.and_then(|m| self.messages.get(m)) {
            released_ns = message.at_ns;
            arriving.extend_from_slice(&message.tags);
        }
        let tags = self.step(index, &arriving, released_ns);
        self.tags = arriving;
        let callback = &mut self.tables.callbacks[index];
        callback.arrivals.record(released_ns);
        callback.activations += 1;
        ran_on(callback, thread);
        let frame = Frame { callback: index, handle: 0, at_ns, cpu_ns, inferred: true, tags };
        self.tables.threads[thread].stack.push(frame);
    }

    // --- executors ----------------------------------------------------------------------------------------------------

    fn executor_event(&mut self, thread: usize, at_ns: u64, cpu_ns: Option<u64>) {
        self.close_inferred(thread, at_ns, cpu_ns);
        let state = &mut self.tables.threads[thread];
        state.executed = None;
        if !state.executor {
            state.executor = true;
            state.outside.clear();
            // What it published before was start-up.
            if let Some(source) = state.source.take() {
                self.tables.callbacks.try_remove(source.callback);
                self.renamed = true;
            }
        }
        let state = &mut self.tables.threads[thread];
        if state.charged.is_none()
            && let Some(cpu_ns) = cpu_ns
        {
            state.charged = Some((cpu_ns, at_ns));
        }
    }

    pub(super) fn executor_wait(&mut self, thread: usize, at_ns: u64, cpu_ns: Option<u64>) {
        self.executor_event(thread, at_ns, cpu_ns);
        let state = &mut self.tables.threads[thread];
        state.open = None;
        // Not between two selections: the thread's own code published, around a call of spin_some.
        state.own_publications += state.outside.len() as u64;
        state.outside.clear();
    }

    pub(super) fn executor_next_ready(&mut self, thread: usize, at_ns: u64, cpu_ns: Option<u64>) {
        self.executor_event(thread, at_ns, cpu_ns);
        let state = &mut self.tables.threads[thread];
        let opened = state.open.replace((at_ns, cpu_ns));
        let outside = std::mem::take(&mut state.outside);
        let nested = !state.stack.is_empty();
        let Some((from_ns, from)) = opened.filter(|_| !nested) else {
            self.tables.threads[thread].own_publications += outside.len() as u64;
            return;
        };
        // Selected, nothing that has events ran, and selected again: a client's callback, an action, or a wake-up for
        // nothing.
        let (Some(from), Some(to)) = (from, cpu_ns) else { return };
        let pid = state.pid;
        let index = match state.untraced {
            Some(index) => index,
            None => match self.new_callback(pid, Origin::Untraced { thread }) {
                Some(index) => {
                    self.tables.threads[thread].untraced = Some(index);
                    index
                }
                None => return,
            },
        };
        self.tables.threads[thread].charged = Some((to, at_ns));
        let callback = &mut self.tables.callbacks[index];
        callback.activations += 1;
        ran_on(callback, thread);
        callback.arrivals.record(from_ns);
        callback.cost.record(at_ns, to.saturating_sub(from), true);
        for topic in outside {
            add_edge(callback, topic);
        }
    }

    pub(super) fn executor_execute(
        &mut self,
        thread: usize,
        at_ns: u64,
        cpu_ns: Option<u64>,
        handle: Handle,
    ) {
        self.executor_event(thread, at_ns, cpu_ns);
        let state = &mut self.tables.threads[thread];
        state.open = None;
        state.executed = Some(handle);
    }

    // --- Takt's own tasks, ends and losses ------------------------------------------------------------------------------

    pub(super) fn job(&mut self, thread: usize, at_ns: u64, task: &Arc<str>, released_ns: u64, used_ns: u64) {
        let pid = self.tables.threads[thread].pid;
        let key = (pid, task.clone());
        let index = match self.tables.task_of.get(&key) {
            Some(&index) => index,
            None => {
                let Some(index) = self.new_callback(pid, Origin::Task { thread, name: task.clone() }) else {
                    return;
                };
                self.tables.task_of.insert(key, index);
                self.settle(index);
                index
            }
        };
        for tag in self.step(index, &[], released_ns) {
            if let Some(watch) = self.watches.get_mut(tag.watch as usize) {
                watch.finished(tag.position, tag.origin_ns, at_ns);
            }
        }
        let callback = &mut self.tables.callbacks[index];
        callback.activations += 1;
        ran_on(callback, thread);
        callback.arrivals.record(released_ns);
        callback.cost.record(at_ns, used_ns, true);
        if let Some(probable) = &mut callback.probable {
            probable.record(used_ns);
        }
    }

    pub(super) fn thread_end(&mut self, thread: usize) {
        let (pid, whole) = {
            let state = &self.tables.threads[thread];
            (state.pid, state.pid == state.tid)
        };
        for (index, state) in &mut self.tables.threads {
            if index == thread || (whole && state.pid == pid) {
                state.ended = true;
                self.counters.dropped_activations += state.stack.len() as u64;
                state.forget_course();
            }
        }
        if !whole {
            if !self.options.keep_ended {
                let state = &mut self.tables.threads[thread];
                let own = [state.source.take().map(|source| source.callback), state.untraced.take()];
                own.into_iter().for_each(|callback| self.end_callback(callback));
            }
            return;
        }
        if self.options.keep_ended {
            return;
        }
        let ended: Vec<usize> = self
            .tables
            .callbacks
            .iter()
            .filter(|(_, callback)| callback.pid == pid && callback.dead.is_none())
            .map(|(index, _)| index)
            .collect();
        for index in ended {
            self.end_callback(Some(index));
        }
        self.tables.forget_process(pid);
        for (_, state) in self.tables.threads.iter_mut().filter(|(_, state)| state.pid == pid) {
            (state.source, state.untraced) = (None, None);
        }
    }

    /// A callback is no more; its curves wait for a successor.
    pub(super) fn end_callback(&mut self, index: Option<usize>) {
        let Some(index) = index.filter(|&index| self.tables.callbacks.contains(index)) else { return };
        self.renamed = true;
        let name = snapshot::label(self, &self.tables.callbacks[index]);
        let callback = &mut self.tables.callbacks[index];
        if callback.dead.is_some() {
            return;
        }
        callback.dead = Some(name);
        self.tables.callback_of.retain(|_, known| *known != index);
        callback.watched.clear();
        for (_, thread) in &mut self.tables.threads {
            thread.stack.retain(|frame| frame.callback != index);
        }
        self.ended.push_back(index);
        if self.ended.len() > self.options.most_ended {
            self.forget_oldest_ended();
        }
    }

    /// Events of this thread are missing from here back to its last one.
    pub(super) fn lost(&mut self, thread: usize, count: u64) {
        self.counters.gaps += 1;
        self.counters.lost_events += count.max(1);
        let state = &mut self.tables.threads[thread];
        let pid = state.pid;
        self.counters.dropped_activations += state.stack.len() as u64;
        state.forget_course();
        // Activations of this thread and messages of any of its callbacks may be missing.
        for (_, callback) in
            self.tables.callbacks.iter_mut().filter(|(_, c)| c.pid == pid && c.dead.is_none())
        {
            callback.arrivals.gap();
            if callback.threads.iter().any(|&(ran, _)| ran == thread) {
                callback.cost.gap();
                if let Some(probable) = &mut callback.probable {
                    probable.gap();
                }
                if let Some(grid) = &mut callback.grid {
                    grid.forget();
                }
            }
            for edge in &callback.publishes {
                let mut topic = edge.topic;
                while let Some(merged) = self.tables.topics[topic].merged {
                    topic = merged;
                }
                self.tables.topics[topic].arrivals.gap();
            }
        }
    }
}

/// Service messages are found by topic and sequence number, in the same table as others by their time stamps.
fn service_stamp(topic: usize, sequence: i64) -> i64 {
    sequence ^ i64::MIN ^ ((topic as i64) << 40)
}

/// The callback has an edge to the topic.
fn add_edge(callback: &mut super::state::CallbackState, topic: usize) {
    let activation = callback.activations;
    if let Some(edge) = callback.publishes.iter_mut().find(|edge| edge.topic == topic) {
        edge.publications += 1;
        edge.activations += u64::from(edge.last != activation);
        edge.last = activation;
    } else if callback.publishes.len() < MOST_EDGES {
        callback.publishes.push(Edge { topic, publications: 1, activations: 1, last: activation });
    }
}

fn ran_on(callback: &mut super::state::CallbackState, thread: usize) {
    if callback.last_thread == Some(thread) {
        if let Some((_, runs)) = callback.threads.last_mut().filter(|(last, _)| *last == thread) {
            *runs += 1;
            return;
        }
    } else {
        callback.switches += u64::from(callback.last_thread.is_some());
        callback.last_thread = Some(thread);
    }
    if let Some((_, runs)) = callback.threads.iter_mut().find(|(known, _)| *known == thread) {
        *runs += 1;
    } else if callback.threads.len() < MOST_EDGES {
        callback.threads.push((thread, 1));
    }
}

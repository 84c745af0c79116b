//! Activations: from a callback's start to its end.

use takt_ros::event::Handle;

use super::Extractor;
use super::delivery::Receipt;
use super::names;
use super::startup::Arrivals;
use super::state::{CallbackState, Edge, Frame, Origin, SubscriptionState, Tag, TakenOf};
use super::suspend::Ended;
use crate::chain::Skip;
use crate::{ArrivalRecorder, GreatestRecorder};

/// Callbacks inside callbacks on one thread; deeper ones are taken for a stream without ends.
const DEEPEST: usize = 16;
/// Topics that one callback publishes to, and threads that one callback runs on, at most.
pub(super) const MAX_EDGES: usize = 256;

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
        self.is_executor(thread);
        let state = &mut self.tables.threads[thread];
        let pid = state.pid;
        (state.open, state.off_cpu, state.answering) = (None, None, None);
        let waited_ns = state.waited_ns.take();
        state.waiting_ns = None;
        if let Some(cpu_ns) = cpu_ns.filter(|_| state.stack.is_empty()) {
            state.finds(at_ns, cpu_ns, self.options.horizon_ns);
        }
        let executed = state.executed.take();
        let take = state.take.take();
        if state.charged.is_none()
            && let Some(cpu_ns) = cpu_ns
        {
            state.charged = Some((cpu_ns, at_ns));
        }
        // A callback does not run inside itself: the end of the earlier one is missing. Neither
        // does anything nest without limit.
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
        let head = take.and_then(|take| take.head);
        let mut unknown = false;
        let executor = self.tables.threads[thread].spins.as_ref().map(|(executor, _)| (pid, *executor));
        self.guarded.runs(thread, executor, index);
        let (mut released_ns, mut starting) = (at_ns, self.starting);
        let mut tags = std::mem::take(&mut self.tags);
        tags.clear();
        match self.tables.callbacks[index].origin {
            Origin::Timer { .. } => {
                let callback = &mut self.tables.callbacks[index];
                if let Some(grid) = &mut callback.grid {
                    match grid.start(at_ns, waited_ns) {
                        Some(release_ns) => released_ns = release_ns,
                        None => unknown = true,
                    }
                    let period_ns = grid.period_ns();
                    for (passed, until_ns) in grid.passed() {
                        let skip = Skip { first_ns: passed.first_ns, period_ns, count: passed.count };
                        let skip = match until_ns {
                            None => skip.since(self.judged_from_ns),
                            Some(_) => skip,
                        };
                        let begins = callback.watched.iter().filter(|(_, position)| *position == 0);
                        for (watch, _) in begins {
                            if let Some(stats) = self.watches.get_mut(*watch as usize) {
                                stats.skipped(skip, until_ns);
                            }
                        }
                    }
                }
                // Starts, to hold against the declared period.
                callback.arrivals.record(at_ns, starting);
            }
            Origin::Subscription { subscription } => {
                let arrived_ns;
                let message = if intra {
                    self.pop_buffer(subscription)
                } else {
                    take.filter(|take| take.of == TakenOf::Subscription(subscription))
                        .and_then(|take| take.message)
                };
                match message.and_then(|message| self.messages.get(message)) {
                    Some(message) => {
                        released_ns = message.at_ns;
                        arrived_ns = take.and_then(|take| take.receipt).map_or(released_ns, |it| it.at_ns);
                        starting |= message.starting;
                        tags.extend_from_slice(&message.tags);
                    }
                    None => {
                        released_ns = take.map_or(at_ns, |take| take.sent_ns.unwrap_or(take.at_ns));
                        // Not when it was sent: what the network held up comes denser than that.
                        arrived_ns =
                            take.map_or(at_ns, |take| take.receipt.map_or(take.at_ns, |it| it.at_ns));
                        unknown = !intra && take.is_none_or(|take| take.unknown);
                        // Where no message carries a stamp none can be distinguished from others.
                        let joins = |state: &&SubscriptionState| !intra && state.joined > 0;
                        if let Some(state) = self.tables.subscriptions.get(subscription).filter(joins) {
                            self.guarded.takes_unseen(self.tables.topic(state.topic));
                        }
                        // Whoever published it may be the one that is starting.
                        starting |= self.startups.is_any_starting(at_ns);
                    }
                }
                // Where all its messages are seen being published, those are its arrivals.
                let all_joined = |state: &SubscriptionState| state.unjoined == 0 && state.joined > 0;
                if !self.tables.subscriptions.get(subscription).is_some_and(all_joined) {
                    self.tables.callbacks[index].arrivals.record(arrived_ns, starting);
                }
            }
            Origin::Service { .. } => {
                // The request that was taken just before, where service events report.
                if let Some(message) = take.and_then(|t| t.message).and_then(|m| self.messages.get(m)) {
                    released_ns = message.at_ns;
                    starting |= message.starting;
                    tags.extend_from_slice(&message.tags);
                }
                self.tables.callbacks[index].arrivals.record(released_ns, starting);
            }
            Origin::Unknown { .. } => {
                self.learn_unknown(index, pid, take.map(|take| take.of));
                self.tables.callbacks[index].arrivals.record(at_ns, starting);
            }
            _ => self.tables.callbacks[index].arrivals.record(at_ns, starting),
        }
        let receipt = match self.tables.callbacks[index].origin {
            // Within a process messages are there when they are published.
            Origin::Subscription { .. } if intra => {
                Some(Receipt { at_ns, took_ns: 0, stamped: true, own: false })
            }
            Origin::Subscription { subscription } => take
                .filter(|take| take.of == TakenOf::Subscription(subscription))
                .and_then(|take| take.receipt),
            Origin::Service { .. } => {
                take.filter(|take| take.of == TakenOf::Service).and_then(|take| take.receipt)
            }
            _ => None,
        };
        if let Some(receipt) = receipt {
            self.delivered(index, at_ns, receipt, starting);
        }
        let tags_here = self.step(index, &tags, released_ns, unknown);
        self.wait_for_partners(index, head, &tags_here);
        self.tags = tags;
        let callback = &mut self.tables.callbacks[index];
        callback.activations += 1;
        if let Some(unheard) = &mut callback.unheard {
            unheard.clear();
        }
        callback.nested += u64::from(nested);
        ran_on(callback, thread);
        self.tables.threads[thread].stack.push(Frame {
            callback: index,
            handle,
            at_ns,
            cpu_ns,
            inferred: false,
            tags: tags_here,
            head,
            joint: None,
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
    pub(super) fn close(&mut self, thread: usize, at_ns: u64, cpu_ns: Option<u64>) {
        let (charge_executor, keep) = (self.options.charge_executor, self.keep());
        let state = &mut self.tables.threads[thread];
        let Some(frame) = state.stack.pop() else { return };
        let off_cpu = state.off_cpu.take();
        if state.stack.is_empty() {
            state.ended(frame.at_ns, at_ns);
            (state.look, state.look_ns) = (cpu_ns.map(|cpu_ns| (cpu_ns, false)), 0);
        }
        let wall_ns = at_ns.saturating_sub(frame.at_ns);
        let reports = state.reports;
        if frame.inferred && frame.cpu_ns.is_none() && cpu_ns.is_some() && state.charged.is_some() {
            state.unpaid.push((frame.callback, wall_ns, off_cpu));
            self.tables.callbacks[frame.callback].shortest.ended(0);
            self.finish_tags(&frame.tags, at_ns);
            return self.pay(thread, at_ns, cpu_ns.unwrap_or(0));
        }
        if frame.inferred && cpu_ns.is_none() && state.charged.is_some() {
            // Its executor's events come without CPU time here: the next event with one says what
            // it took.
            state.unpaid.push((frame.callback, wall_ns, off_cpu));
            self.tables.callbacks[frame.callback].shortest.ended(0);
            self.finish_tags(&frame.tags, at_ns);
            return;
        }
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
                // A thread uses no more CPU time than passes; the two clocks are not read at the
                // same moment.
                if took_ns > elapsed_ns.saturating_add(elapsed_ns / 16).saturating_add(1_000_000) {
                    None
                } else {
                    Some((took_ns, true))
                }
            }
            _ => Some((wall_ns, false)),
        };
        let callback = &mut self.tables.callbacks[frame.callback];
        if !self.starting {
            // Nobody saw the start of an inferred one.
            callback.shortest.ended(if frame.inferred { 0 } else { wall_ns });
        }
        let serves = matches!(callback.origin, Origin::Service { .. });
        let unsettled = self.unsettled.runs(thread, frame.at_ns, at_ns);
        match took {
            Some((took_ns, cpu_time)) => {
                callback.costs(at_ns, took_ns, cpu_time, unsettled);
                if let (Some(from), Some(to)) = (frame.cpu_ns, cpu_ns) {
                    let off_ns = wall_ns.saturating_sub(to.saturating_sub(from));
                    let number = callback.activations;
                    let ended = Ended { number, at_ns, off_ns, known: off_cpu, reports };
                    callback.suspends(ended, keep, self.starting, unsettled);
                } else {
                    callback.suspensions.wall_time(at_ns);
                }
            }
            None => {
                self.counters.clock_steps += 1;
                self.counters.dropped_activations += 1;
                callback.cost.gap();
                callback.suspensions.gap();
                if let Some(probable) = &mut callback.probable {
                    probable.gap();
                }
            }
        }
        self.finish_tags(&frame.tags, at_ns);
        if serves {
            self.tables.threads[thread].answering = Some((frame.callback, frame.tags));
        }
    }

    pub(super) fn finish_tags(&mut self, tags: &[Tag], at_ns: u64) {
        for tag in tags {
            if let Some(watch) = self.watches.get_mut(tag.watch as usize) {
                watch.finished(tag.position, tag.origin_ns, at_ns);
            }
        }
    }

    /// An event with CPU time: activations that ended without one share what the thread used. Each
    /// is charged all of it, since nobody can tell how much was whose.
    pub(super) fn pay(&mut self, thread: usize, at_ns: u64, cpu_ns: u64) {
        let state = &mut self.tables.threads[thread];
        let unpaid = std::mem::take(&mut state.unpaid);
        let Some((from, since_ns)) = state.charged.replace((cpu_ns, at_ns)) else { return };
        let took_ns = cpu_ns.saturating_sub(from);
        let elapsed_ns = at_ns.saturating_sub(since_ns);
        let possible = took_ns <= elapsed_ns.saturating_add(elapsed_ns / 16).saturating_add(1_000_000);
        self.counters.clock_steps += u64::from(!possible);
        let (keep, reports) = (self.keep(), self.tables.threads[thread].reports);
        let unsettled = self.unsettled.runs(thread, since_ns, at_ns);
        for (i, &(index, wall_ns, known)) in unpaid.iter().enumerate() {
            let Some(callback) = self.tables.callbacks.get_mut(index) else { continue };
            let share_ns = if unpaid[..i].iter().any(|&(other, ..)| other == index) { 0 } else { took_ns };
            if possible {
                callback.costs(at_ns, share_ns, true, unsettled);
                let off_ns = wall_ns.saturating_sub(took_ns);
                let number = callback.activations;
                let ended = Ended { number, at_ns, off_ns, known, reports };
                callback.suspends(ended, keep, self.starting, unsettled);
            } else {
                callback.cost.gap();
                callback.suspensions.gap();
                if let Some(probable) = &mut callback.probable {
                    probable.gap();
                }
            }
        }
    }

    /// A callback of a client ends where its executor goes on.
    pub(super) fn close_inferred(&mut self, thread: usize, at_ns: u64, cpu_ns: Option<u64>) {
        if self.tables.threads[thread].stack.last().is_some_and(|frame| frame.inferred) {
            self.close(thread, at_ns, cpu_ns);
        }
    }

    /// The tags of an activation: those of its message that this callback is the next step of, and
    /// those of chains that begin here.
    pub(super) fn step(
        &mut self,
        index: usize,
        arriving: &[Tag],
        released_ns: u64,
        unknown: bool,
    ) -> Vec<Tag> {
        let callback = &self.tables.callbacks[index];
        if callback.watched.is_empty() {
            return Vec::new();
        }
        let mut tags = Vec::new();
        for &(watch, position) in &callback.watched {
            if position == 0 && (unknown || released_ns < self.judged_from_ns) {
                // How long it has waited already cannot be known: no latency is better than one
                // that is too short.
                if let Some(stats) = self.watches.get_mut(watch as usize) {
                    stats.unmeasured += 1;
                }
                continue;
            }
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

    pub(super) fn unknown_callback(
        &mut self,
        pid: u32,
        handle: Handle,
        intra: bool,
        executed: bool,
    ) -> Option<usize> {
        let index = self.new_callback(pid, Origin::Unknown { handle, intra, executed })?;
        self.tables.callback_of.insert((pid, handle), index);
        self.tables.callbacks[index].symbol = self.tables.symbol_of.remove(&(pid, handle));
        Some(index)
    }

    /// A callback whose registration was missed: a message taken just before its start says what it
    /// is.
    pub(super) fn learn_unknown(&mut self, index: usize, pid: u32, taken: Option<TakenOf>) {
        let Some(TakenOf::Subscription(subscription)) = taken else { return };
        let Some(state) = self.tables.subscriptions.get_mut(subscription) else { return };
        if state.pid == pid && state.callback.is_none() {
            state.callback = Some(index);
            self.tables.callbacks[index].origin = Origin::Subscription { subscription };
            self.renamed = true;
        }
    }

    /// At its first start a callback is fully registered: it takes over the curves of an ended one
    /// of its name.
    pub(super) fn settle(&mut self, index: usize) {
        self.tables.callbacks[index].settled = true;
        if self.ended.is_empty() {
            return;
        }
        let name = names::label(self, &self.tables.callbacks[index]);
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
        callback.delivered = before.delivered;
        callback.suspensions = before.suspensions;
        callback.suspensions.gap();
        callback.shortest = before.shortest;
        callback.probable = before.probable;
        if let Some(probable) = &mut callback.probable {
            probable.gap();
        }
        callback.publishes = before.publishes;
        callback.publishes.iter_mut().for_each(|edge| {
            edge.gap();
            // A plan's, of the one before.
            edge.limit = None;
        });
        callback.activations = before.activations;
        callback.symbol = callback.symbol.take().or(before.symbol);
        self.counters.succeeded += 1;
    }
}

/// Messages of activations in a row are counted up to so many.
const COUNTED: usize = 33;

impl Edge {
    /// Messages may be missing here.
    pub(super) fn gap(&mut self) {
        self.arrivals.gap();
        self.counts.gap();
        if let Some(limit) = &mut self.limit {
            limit.gap();
        }
    }

    /// Messages of so many activations in a row, at most: as far as they were counted.
    pub(super) fn most_in_a_row(&self, activations: u64) -> Vec<u64> {
        let spans = self.counts.curve(activations).least_span_ns;
        let known = spans.last().copied().unwrap_or(0).min(2 * COUNTED as u64);
        if known == 0 {
            // One activation published, or start-up alone saw it: none of those since then has.
            let since = activations.saturating_sub(self.last).min(2 * COUNTED as u64);
            return vec![self.most(); usize::try_from(since).unwrap_or(0)];
        }
        (1..=known).map(|n| 1 + spans.partition_point(|span| *span < n) as u64).collect()
    }
}

/// The callback's edge to the topic; `None`: it has too many.
pub(super) fn edge_to(callback: &mut CallbackState, topic: usize, arrivals: Arrivals) -> Option<&mut Edge> {
    let known = callback.publishes.iter().position(|edge| edge.topic == topic);
    let place = match known {
        None if callback.publishes.len() >= MAX_EDGES => return None,
        None => {
            let last = callback.activations.wrapping_sub(1);
            let most = GreatestRecorder::default();
            let most_apart = most;
            let (publications, activations, now) = (0, 0, 0);
            let counts = ArrivalRecorder::new(COUNTED, None, callback.activations);
            let limit = None;
            let edge = Edge {
                topic,
                publications,
                activations,
                last,
                now,
                most,
                most_apart,
                arrivals,
                counts,
                limit,
            };
            callback.publishes.push(edge);
            callback.publishes.len() - 1
        }
        Some(place) => place,
    };
    callback.publishes.get_mut(place)
}

/// The callback published to the topic at `at_ns`: it may do so again. Returns whether a plan knows
/// that it does.
pub(super) fn add_edge(
    callback: &mut CallbackState,
    topic: usize,
    at_ns: u64,
    arrivals: Arrivals,
    (horizon_ns, starting): (Option<u64>, bool),
) -> bool {
    let activation = callback.activations;
    let Some(edge) = edge_to(callback, topic, arrivals) else { return false };
    if edge.last != activation {
        edge.activations += 1;
        (edge.last, edge.now) = (activation, 0);
    }
    edge.publications += 1;
    edge.now += 1;
    let most = if starting { &mut edge.most_apart } else { &mut edge.most };
    most.record(at_ns, edge.now, horizon_ns);
    edge.arrivals.record(at_ns, starting);
    if !starting {
        edge.counts.record(activation);
    }
    if let Some(limit) = &mut edge.limit {
        limit.see(at_ns, activation);
    }
    edge.limit.is_some()
}

pub(super) fn ran_on(callback: &mut CallbackState, thread: usize) {
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
    } else if callback.threads.len() < MAX_EDGES {
        callback.threads.push((thread, 1));
    }
}

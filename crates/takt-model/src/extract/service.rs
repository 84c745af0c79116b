//! Services: calls and answers are messages on two hidden topics.

use takt_ros::event::{Handle, ServiceStep};

use super::Extractor;
use super::delivery::Receipt;
use super::messages::Message;
use super::registry::Side;
use super::run::{add_edge, ran_on};
use super::state::{Frame, Origin, Take, TakenOf};

impl Extractor {
    pub(super) fn service_step(
        &mut self,
        thread: usize,
        at_ns: u64,
        cpu_ns: Option<u64>,
        step: ServiceStep,
        rmw_handle: Handle,
        (sequence, identity): (i64, u64),
    ) {
        let key = (self.tables.threads[thread].pid, rmw_handle);
        match step {
            ServiceStep::SendRequest => {
                let Some(client) =
                    self.tables.clients.find(Side::Middleware, key).and_then(|i| self.tables.clients.get(i))
                else {
                    return;
                };
                let (topic, node, known) = (client.requests, client.node, client.identity);
                let identity = if known == 0 { identity } else { known };
                if let Some(message) = self.send(thread, at_ns, cpu_ns, topic, node) {
                    self.messages.stamp(message, service_stamp(topic, sequence), at_ns);
                    self.messages.of_client(message, identity);
                }
            }
            ServiceStep::SendResponse => {
                let Some(service) = self
                    .tables
                    .services
                    .find(Side::Middleware, key)
                    .and_then(|i| self.tables.services.get(i))
                else {
                    return;
                };
                let (topic, node, callback) = (service.responses, service.node, service.callback);
                let state = &mut self.tables.threads[thread];
                let running = state.stack.last().map(|frame| frame.callback);
                let answered =
                    state.answering.as_ref().map(|(callback, _)| *callback).filter(|_| running.is_none());
                let deferred = callback.filter(|_| callback != running && callback != answered);
                if let Some(service) = deferred.and_then(|callback| self.tables.callbacks.get_mut(callback)) {
                    service.deferred += 1;
                }
                let state = &mut self.tables.threads[thread];
                // `rclcpp` ends the callback and then sends what it has filled in.
                let answering = state
                    .answering
                    .take_if(|(answering, _)| state.stack.is_empty() && callback == Some(*answering));
                let message = match answering {
                    Some((callback, tags)) if self.tables.callbacks.contains(callback) => {
                        let topic = self.tables.topic(topic);
                        self.tables.topics[topic].arrivals.record(at_ns, self.starting);
                        let (fresh, horizon_ns) = (self.arrivals(), self.options.horizon_ns);
                        let origin = (horizon_ns, self.starting);
                        let planned =
                            add_edge(&mut self.tables.callbacks[callback], topic, at_ns, fresh, origin);
                        self.guarded.sends(topic, planned);
                        let message = self.messages.publish(thread, topic, at_ns, &tags);
                        if self.starting {
                            self.messages.set_starting(message);
                        }
                        Some(message)
                    }
                    _ => self.send(thread, at_ns, cpu_ns, topic, node),
                };
                if let Some(message) = message {
                    self.messages.stamp(message, service_stamp(topic, sequence), at_ns);
                    self.messages.of_client(message, identity);
                }
            }
            ServiceStep::TakeRequest => {
                let Some(service) = self
                    .tables
                    .services
                    .find(Side::Middleware, key)
                    .and_then(|i| self.tables.services.get(i))
                else {
                    return;
                };
                let (requests, index) = (service.requests, service.callback);
                let message = self.only_message(requests, sequence, identity);
                self.joined_service(requests, message, at_ns);
                let after_ns = self.tables.threads[thread].received.take();
                let receipt = message.and_then(|m| self.received(thread, m, at_ns, after_ns));
                self.tables.threads[thread].take = Some(Take {
                    of: TakenOf::Service,
                    message,
                    at_ns,
                    sent_ns: None,
                    unknown: false,
                    head: None,
                    receipt,
                });
                // Actions have services whose callbacks have no events.
                let eventless =
                    index.is_none_or(|index| self.tables.callbacks.get(index).is_some_and(|c| c.eventless));
                if eventless
                    && let Some(service) = self.tables.services.find(Side::Middleware, key)
                    && is_of_action(&self.tables.services[service].name)
                {
                    self.inferred(thread, at_ns, cpu_ns, Origin::Service { service }, message, receipt);
                }
            }
            ServiceStep::TakeResponse => {
                let Some(client) = self.tables.clients.find(Side::Middleware, key) else { return };
                let Some(topic) = self.tables.clients.get(client).map(|client| client.responses) else {
                    return;
                };
                let known = self.tables.clients[client].identity;
                let identity = if known == 0 { identity } else { known };
                let message = self.only_message(topic, sequence, identity);
                if let Some(answer) = message.and_then(|m| self.messages.get(m)) {
                    // What the service's side calls this client: its requests are found by it from
                    // now on.
                    self.tables.clients[client].identity = answer.client;
                }
                self.joined_service(topic, message, at_ns);
                let after_ns = self.tables.threads[thread].received.take();
                let receipt = message.and_then(|m| self.received(thread, m, at_ns, after_ns));
                self.inferred(thread, at_ns, cpu_ns, Origin::Client { client }, message, receipt);
            }
        }
    }

    /// The message of this sequence number that is of this client (0: whose is not known). Clients
    /// count for themselves: where two have the same number under way and nothing says which is
    /// whose, nobody can tell, and neither is joined.
    pub(super) fn only_message(&mut self, topic: usize, sequence: i64, client: u64) -> Option<u64> {
        let topic = self.tables.topic(topic);
        let on_topic =
            || self.messages.stamped(service_stamp(topic, sequence)).filter(|(_, m)| m.topic == topic);
        if let Some((number, _)) = on_topic().find(|(_, m)| client != 0 && m.client == client) {
            return Some(number);
        }
        // What one side says of the process is compared where there is a choice; everywhere once
        // both sides were seen to say it alike, which not every middleware does.
        let agree = self.tables.processes_agree;
        let same = |m: &Message| client >> 32 != 0 && m.client >> 32 == client >> 32;
        let open = |m: &Message| {
            let partly = !is_whole(client) || !is_whole(m.client);
            partly && (!agree || same(m) || client >> 32 == 0 || m.client >> 32 == 0)
        };
        let others = || on_topic().filter(|(_, m)| open(m));
        let (newest, message) = others().next()?;
        let of_late = |m: &Message| message.at_ns.saturating_sub(m.at_ns) < 1_000_000_000;
        let found = if others().skip(1).all(|(_, m)| !of_late(m)) {
            newest
        } else {
            let mut alike = others().filter(|(_, m)| same(m) && of_late(m));
            let (only, _) = alike.next()?;
            if alike.next().is_some() {
                return None;
            }
            only
        };
        let reported = self.messages.get(found).is_some_and(same);
        self.tables.processes_agree |= reported;
        Some(found)
    }

    pub(super) fn joined_service(&mut self, topic: usize, message: Option<u64>, at_ns: u64) {
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

    /// Something was taken by an executor whose callback has no events: it runs until the executor
    /// goes on.
    pub(super) fn inferred(
        &mut self,
        thread: usize,
        at_ns: u64,
        cpu_ns: Option<u64>,
        origin: Origin,
        message: Option<u64>,
        receipt: Option<Receipt>,
    ) {
        self.close_inferred(thread, at_ns, cpu_ns);
        let state = &mut self.tables.threads[thread];
        let pid = state.pid;
        if !state.executor || !state.stack.is_empty() {
            return;
        }
        (state.open, state.answering) = (None, None);
        let known = match origin {
            Origin::Client { client } => self.tables.clients[client].callback,
            Origin::Service { service } => self.tables.services[service].callback,
            Origin::Subscription { subscription } => self.tables.subscriptions[subscription].callback,
            _ => return,
        };
        let index = match known {
            Some(index) => index,
            None => match self.new_callback(pid, origin.clone()) {
                Some(index) => {
                    match origin {
                        Origin::Client { client } => self.tables.clients[client].callback = Some(index),
                        Origin::Service { service } => self.tables.services[service].callback = Some(index),
                        Origin::Subscription { subscription } => {
                            self.tables.subscriptions[subscription].callback = Some(index);
                        }
                        _ => {}
                    }
                    self.tables.callbacks[index].eventless = true;
                    self.settle(index);
                    index
                }
                None => return,
            },
        };
        self.tables.threads[thread].waiting_ns = None;
        let (mut released_ns, mut arriving) = (at_ns, std::mem::take(&mut self.tags));
        arriving.clear();
        let mut starting = self.starting;
        if let Some(message) = message.and_then(|m| self.messages.get(m)) {
            released_ns = message.at_ns;
            starting |= message.starting;
            arriving.extend_from_slice(&message.tags);
        }
        if let Some(receipt) = receipt {
            self.delivered(index, at_ns, receipt, starting);
        }
        let tags = self.step(index, &arriving, released_ns, false);
        self.tags = arriving;
        let callback = &mut self.tables.callbacks[index];
        callback.arrivals.record(released_ns, starting);
        callback.activations += 1;
        ran_on(callback, thread);
        let frame = Frame {
            callback: index,
            handle: 0,
            at_ns,
            cpu_ns,
            inferred: true,
            tags,
            head: None,
            joint: None,
        };
        self.tables.threads[thread].stack.push(frame);
    }
}

/// Whether an identity stands for one client, and not for a process.
fn is_whole(client: u64) -> bool {
    client & 0xffff_ffff != 0
}

/// Whether a topic or service belongs to an action: `rclcpp_action` runs what they bring without a
/// callback's events.
pub(super) fn is_of_action(name: &str) -> bool {
    name.contains("/_action/")
}

/// Service messages are found by topic and sequence number, in the same table as others by their
/// time stamps.
fn service_stamp(topic: usize, sequence: i64) -> i64 {
    sequence ^ i64::MIN ^ ((topic as i64) << 40)
}

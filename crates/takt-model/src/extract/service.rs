//! Services: calls and answers are messages on two hidden topics.

use takt_ros::event::{Handle, ServiceStep};

use super::Extractor;
use super::run::ran_on;
use super::state::{Frame, Origin, Take};

impl Extractor {
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
    pub(super) fn only_message(&self, topic: usize, sequence: i64) -> Option<u64> {
        let topic = self.tables.topic(topic);
        let mut on_topic =
            self.messages.stamped(service_stamp(topic, sequence)).filter(|(_, m)| m.topic == topic);
        let (number, message) = on_topic.next()?;
        let twin =
            on_topic.next().is_some_and(|(_, m)| message.at_ns.saturating_sub(m.at_ns) < 1_000_000_000);
        (!twin).then_some(number)
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

    /// A response was taken by an executor: the client's callback runs until the executor goes on.
    pub(super) fn response_taken(
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
        let mut starting = self.starting;
        if let Some(message) = message.and_then(|m| self.messages.get(m)) {
            released_ns = message.at_ns;
            starting |= message.starting;
            arriving.extend_from_slice(&message.tags);
        }
        let tags = self.step(index, &arriving, released_ns);
        self.tags = arriving;
        let callback = &mut self.tables.callbacks[index];
        callback.arrivals.record(released_ns, starting);
        callback.activations += 1;
        ran_on(callback, thread);
        let frame = Frame { callback: index, handle: 0, at_ns, cpu_ns, inferred: true, tags };
        self.tables.threads[thread].stack.push(frame);
    }
}

/// Service messages are found by topic and sequence number, in the same table as others by their time stamps.
fn service_stamp(topic: usize, sequence: i64) -> i64 {
    sequence ^ i64::MIN ^ ((topic as i64) << 40)
}

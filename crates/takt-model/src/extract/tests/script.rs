//! Writes streams of events as ROS 2 processes make them.

use std::collections::BTreeMap;

use takt_ros::event::{Event, Handle, Kind};

use crate::{Callback, CallbackId, Extractor, Model, Options, Topic};

/// How far the day's clock is ahead of the monotonic one.
const DAY_NS: i64 = 1_700_000_000_000_000_000;
pub(super) const MS: u64 = 1_000_000;

/// A stream under construction: a clock, and each thread's CPU time.
#[derive(Default)]
pub(super) struct Script {
    pub events: Vec<Event>,
    pub now_ns: u64,
    cpu: BTreeMap<(u32, u32), u64>,
    stamp: i64,
    next_handle: Handle,
    node_of: BTreeMap<Handle, Handle>,
}

impl Script {
    pub(super) fn new() -> Self {
        Self { now_ns: 1_000 * MS, stamp: DAY_NS, next_handle: 0x1000, ..Self::default() }
    }

    pub(super) fn handle(&mut self) -> Handle {
        self.next_handle += 0x10;
        self.next_handle
    }

    pub(super) fn emit(&mut self, pid: u32, tid: u32, kind: Kind) {
        let cpu_ns = Some(*self.cpu.entry((pid, tid)).or_default());
        self.events.push(Event { at_ns: self.now_ns, cpu_ns, pid, tid, kind });
    }

    /// The thread computes.
    pub(super) fn work(&mut self, pid: u32, tid: u32, ns: u64) {
        self.now_ns += ns;
        *self.cpu.entry((pid, tid)).or_default() += ns;
    }

    pub(super) fn wait_until(&mut self, at_ns: u64) {
        self.now_ns = self.now_ns.max(at_ns);
    }

    pub(super) fn node(&mut self, pid: u32, name: &str) -> Handle {
        let node = self.handle();
        self.emit(pid, pid, Kind::NodeInit { node, name: name.into(), namespace: "/".into() });
        node
    }

    pub(super) fn publisher(&mut self, pid: u32, node: Handle, topic: &str) -> Handle {
        let publisher = self.handle();
        let rmw_publisher = publisher + 1;
        let topic = topic.into();
        self.emit(pid, pid, Kind::PublisherInit { publisher, node, rmw_publisher, topic, depth: 10 });
        publisher
    }

    /// A subscription; its callback's handle is returned, the middleware's handle is one more.
    pub(super) fn subscription(&mut self, pid: u32, node: Handle, topic: &str) -> Handle {
        let callback = self.handle();
        let (subscription, object) = (self.handle(), self.handle());
        let topic = topic.into();
        self.emit(
            pid,
            pid,
            Kind::SubscriptionInit { subscription, node, rmw_subscription: callback + 1, topic, depth: 10 },
        );
        self.emit(pid, pid, Kind::SubscriptionObject { subscription, object });
        self.emit(pid, pid, Kind::SubscriptionCallback { object, callback });
        callback
    }

    pub(super) fn timer(&mut self, pid: u32, node: Handle, period_ns: u64) -> Handle {
        let (timer, callback) = (self.handle(), self.handle());
        self.emit(pid, pid, Kind::TimerInit { timer, period_ns: period_ns as i64 });
        self.emit(pid, pid, Kind::TimerCallback { timer, callback });
        self.emit(pid, pid, Kind::TimerNode { timer, node });
        self.node_of.insert(callback, node);
        callback
    }

    pub(super) fn service(&mut self, pid: u32, node: Handle, name: &str) -> Handle {
        let (service, callback) = (self.handle(), self.handle());
        let rmw_service = callback + 1;
        self.emit(pid, pid, Kind::ServiceInit { service, node, rmw_service, name: name.into() });
        self.emit(pid, pid, Kind::ServiceCallback { service, callback });
        callback
    }

    pub(super) fn client(&mut self, pid: u32, node: Handle, name: &str) -> Handle {
        let client = self.handle();
        let rmw_client = client + 1;
        self.emit(pid, pid, Kind::ClientInit { client, node, rmw_client, name: name.into() });
        client
    }

    pub(super) fn start(&mut self, pid: u32, tid: u32, callback: Handle) {
        self.emit(pid, tid, Kind::CallbackStart { callback, intra_process: false });
    }

    pub(super) fn end(&mut self, pid: u32, tid: u32, callback: Handle) {
        self.emit(pid, tid, Kind::CallbackEnd { callback });
    }

    /// Publishes, and returns the stamp that takes it.
    pub(super) fn publish(&mut self, pid: u32, tid: u32, publisher: Handle) -> i64 {
        // Of the day's clock, which goes as the other one does, and never twice the same.
        self.stamp = (DAY_NS + self.now_ns as i64).max(self.stamp + 1);
        let message = 0xabc;
        self.emit(pid, tid, Kind::RclcppPublish { message });
        self.emit(pid, tid, Kind::RclPublish { publisher, message });
        let source_ns = Some(self.stamp);
        self.emit(pid, tid, Kind::RmwPublish { rmw_publisher: publisher + 1, message, source_ns });
        self.stamp
    }

    pub(super) fn take(&mut self, pid: u32, tid: u32, callback: Handle, source_ns: i64) {
        self.emit(
            pid,
            tid,
            Kind::RmwTake { rmw_subscription: callback + 1, message: 0xdef, source_ns, taken: true },
        );
    }

    /// A whole activation of `ns`, publishing at its end.
    pub(super) fn run(
        &mut self,
        pid: u32,
        tid: u32,
        callback: Handle,
        taken: Option<i64>,
        ns: u64,
        publishers: &[Handle],
    ) -> Vec<i64> {
        self.emit(pid, tid, Kind::ExecutorNextReady);
        if let Some(stamp) = taken {
            self.take(pid, tid, callback, stamp);
        }
        self.start(pid, tid, callback);
        self.work(pid, tid, ns);
        let stamps = publishers.iter().map(|&publisher| self.publish(pid, tid, publisher)).collect();
        self.end(pid, tid, callback);
        stamps
    }

    pub(super) fn idle(&mut self, pid: u32, tid: u32) {
        self.emit(pid, tid, Kind::ExecutorNextReady);
        self.emit(pid, tid, Kind::ExecutorWait { timeout_ns: -1 });
    }

    pub(super) fn extract(&self, options: Options) -> Extractor {
        options.validate().unwrap();
        let mut extractor = Extractor::new(options);
        for event in &self.events {
            extractor.event(event);
        }
        extractor
    }

    pub(super) fn model(&self) -> Model {
        self.extract(Options::default()).snapshot(self.now_ns)
    }
}

pub(super) fn callback<'a>(model: &'a Model, name: &str) -> (CallbackId, &'a Callback) {
    let index = model.callbacks.iter().position(|c| c.name == name).unwrap_or_else(|| {
        panic!("no {name} in {:?}", model.callbacks.iter().map(|c| &c.name).collect::<Vec<_>>())
    });
    (CallbackId(index), &model.callbacks[index])
}

pub(super) fn topic<'a>(model: &'a Model, name: &str) -> &'a Topic {
    model.topics.iter().find(|t| t.name == name).unwrap_or_else(|| {
        panic!("no {name} in {:?}", model.topics.iter().map(|t| &t.name).collect::<Vec<_>>())
    })
}

/// Names of the callbacks that this one activates.
pub(super) fn activates(model: &Model, name: &str) -> Vec<String> {
    let mut names: Vec<String> = callback(model, name)
        .1
        .publishes
        .iter()
        .flat_map(|topic| &model.topics[topic.0].subscribers)
        .map(|id| model.callbacks[id.0].name.clone())
        .collect();
    names.sort();
    names
}

/// What every snapshot holds, whatever was fed.
pub(super) fn check(model: &Model) {
    for (i, callback) in model.callbacks.iter().enumerate() {
        assert!(model.executors[callback.executor.0].callbacks.contains(&CallbackId(i)));
        assert!(callback.arrivals.least_span_ns.is_sorted() && callback.cost.most_ns.is_sorted());
        for topic in &callback.publishes {
            assert!(model.topics[topic.0].publishers.contains(&CallbackId(i)));
        }
    }
    for (i, topic) in model.topics.iter().enumerate() {
        for publisher in &topic.publishers {
            assert!(model.callbacks[publisher.0].publishes.iter().any(|t| t.0 == i));
        }
    }
    for executor in &model.executors {
        assert!(!executor.threads.is_empty(), "{executor:?}");
        assert!(!executor.callbacks.is_empty());
    }
    let mut names: Vec<&str> = model.callbacks.iter().map(|c| c.name.as_str()).collect();
    names.sort_unstable();
    assert!(names.windows(2).all(|w| w[0] != w[1]), "names are unique");
    // Acyclic: repeatedly take out callbacks that nothing activates.
    let mut incoming = vec![0usize; model.callbacks.len()];
    let next = |c: usize| {
        model.callbacks[c].publishes.iter().flat_map(|t| &model.topics[t.0].subscribers).map(|id| id.0)
    };
    (0..incoming.len()).flat_map(next).for_each(|to| incoming[to] += 1);
    let mut free: Vec<usize> = (0..incoming.len()).filter(|&c| incoming[c] == 0).collect();
    let mut seen = 0;
    while let Some(at) = free.pop() {
        seen += 1;
        for to in next(at) {
            incoming[to] -= 1;
            if incoming[to] == 0 {
                free.push(to);
            }
        }
    }
    assert_eq!(seen, incoming.len(), "a cycle is left");
}

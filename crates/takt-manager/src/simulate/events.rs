//! Simulated runs as ROS 2's tracepoints would have reported them, so that the extractor learns its
//! model from what it would see.

use takt_ros::event::{Event, Handle, Kind};

use super::{System, Traceable, Traced, Trigger};

fn callback(number: usize) -> Handle {
    0x1_0000 + number as u64 * 0x10
}

fn publisher(number: usize, topic: usize) -> Handle {
    0x1000_0000 + (number as u64 * 0x1000 + topic as u64) * 0x10
}

fn node(executor: usize) -> Handle {
    0x100 + executor as u64
}

/// The thread (and process) of an executor, as in [`System::exact_model`].
fn thread(executor: usize) -> u32 {
    1000 + u32::try_from(executor).unwrap_or(0)
}

/// All events, in the order of time; a callback's symbol is its name.
#[must_use]
pub fn events(system: &System, trace: &[Traced]) -> Vec<Event> {
    let mut events = Vec::new();
    for (number, executor) in system.executors.iter().enumerate() {
        let name = executor.name.as_str().into();
        emit(&mut events, 0, 0, number, Kind::NodeInit { node: node(number), name, namespace: "/".into() });
    }
    for number in 0..system.callbacks.len() {
        register(system, number, &mut events);
    }
    for entry in trace {
        let mut emit_next = |kind| emit(&mut events, entry.at_ns, entry.cpu_ns, entry.executor, kind);
        let source = system.executors[entry.executor].source;
        match entry.step {
            Traceable::Start(number, message) if !source => {
                emit_next(Kind::ExecutorNextReady);
                if let Some(source_ns) = message {
                    emit_next(Kind::RmwTake {
                        rmw_subscription: callback(number) + 2,
                        message: 0xabc,
                        source_ns,
                        taken: true,
                    });
                }
                emit_next(Kind::CallbackStart { callback: callback(number), intra_process: false });
            }
            Traceable::Publish(number, topic, stamp) => {
                let handle = publisher(number, topic);
                emit_next(Kind::RclcppPublish { message: 0xabc });
                emit_next(Kind::RclPublish { publisher: handle, message: 0xabc });
                emit_next(Kind::RmwPublish {
                    rmw_publisher: handle + 1,
                    message: 0xabc,
                    source_ns: Some(stamp),
                });
            }
            Traceable::End(number) if !source => {
                // It was off the CPU because others ran: the kernel counts no switch of its own.
                emit_next(Kind::OffCpu { switches: Some(0), ready_ns: None, yields: Some(0), early_ns: 0 });
                emit_next(Kind::CallbackEnd { callback: callback(number) });
            }
            Traceable::Wait if !source => {
                emit_next(Kind::ExecutorNextReady);
                emit_next(Kind::ExecutorWait { timeout_ns: -1 });
            }
            _ => {}
        }
    }
    events
}

fn emit(events: &mut Vec<Event>, at_ns: u64, cpu_ns: u64, executor: usize, kind: Kind) {
    let tid = thread(executor);
    events.push(Event { at_ns, cpu_ns: Some(cpu_ns), pid: tid, tid, kind });
}

fn register(system: &System, number: usize, events: &mut Vec<Event>) {
    let sim = &system.callbacks[number];
    let executor = sim.executor;
    let (handle, node) = (callback(number), node(executor));
    let mut emit_next = |kind| emit(events, 0, 0, executor, kind);
    for topic in &sim.publishes {
        let publisher = publisher(number, *topic);
        emit_next(Kind::PublisherInit {
            publisher,
            node,
            rmw_publisher: publisher + 1,
            topic: system.topics[*topic].as_str().into(),
            depth: 1000,
        });
    }
    if system.executors[executor].source {
        return;
    }
    match sim.trigger {
        Trigger::Periodic { period_ns, .. } => {
            emit_next(Kind::TimerInit {
                timer: handle + 1,
                period_ns: i64::try_from(period_ns).unwrap_or(i64::MAX),
            });
            emit_next(Kind::TimerCallback { timer: handle + 1, callback: handle });
            emit_next(Kind::TimerNode { timer: handle + 1, node });
        }
        Trigger::Topic(topic) => {
            emit_next(Kind::SubscriptionInit {
                subscription: handle + 1,
                node,
                rmw_subscription: handle + 2,
                topic: system.topics[topic].as_str().into(),
                depth: 1000,
            });
            emit_next(Kind::SubscriptionObject { subscription: handle + 1, object: handle + 3 });
            emit_next(Kind::SubscriptionCallback { object: handle + 3, callback: handle });
        }
    }
    emit_next(Kind::CallbackSymbol { callback: handle, symbol: sim.name.as_str().into() });
}

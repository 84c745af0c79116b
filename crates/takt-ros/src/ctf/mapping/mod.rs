//! Events of `ros2` and `ros2_caret` and what they are brought to.

use std::collections::HashMap;
use std::sync::Arc;

use super::trace::slot;
use super::tsdl::types::{Type, shown};
use crate::event::{Event, Handle, Kind, ServiceStep};

/// Our kind of event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    NodeInit,
    PublisherInit,
    SubscriptionInit,
    SubscriptionObject,
    SubscriptionCallback,
    ServiceInit,
    ServiceCallback,
    ClientInit,
    TimerInit,
    TimerCallback,
    TimerNode,
    CallbackSymbol,
    CallbackStart,
    CallbackEnd,
    RclcppPublish,
    RclPublish,
    RmwPublish,
    IntraPublish,
    RmwTake,
    Service(ServiceStep),
    ExecutorWait,
    ExecutorNextReady,
    ExecutorExecute,
    IpbToSubscription,
    BufferToIpb,
    LifecycleTransition,
    /// The kernel's: a processor goes from one thread to another.
    Switch,
    // CARET's.
    Dispatch,
    BindStamp,
    ExecutorInit,
    StaticExecutorInit,
    CallbackGroup,
    CallbackGroupMember,
}

/// Event, kind, and the fields in the order of the slots; `?`: may be missing; `|`: the older name.
///
/// Not here, and so read over and counted: what adds nothing to the model (`rcl_init`,
/// `rmw_publisher_init` and `rmw_subscription_init` with the middleware's identities, `rcl_take`,
/// `rclcpp_take`, ring buffers inside intra-process buffers, `message_construct`, `dds_write`).
const TABLE: &[(&str, Shape, &[&str])] = &[
    ("rcl_node_init", Shape::NodeInit, &["node_handle", "node_name", "namespace"]),
    (
        "rcl_publisher_init",
        Shape::PublisherInit,
        &["publisher_handle", "node_handle", "rmw_publisher_handle?", "topic_name", "queue_depth?"],
    ),
    (
        "rcl_subscription_init",
        Shape::SubscriptionInit,
        &["subscription_handle", "node_handle", "rmw_subscription_handle?", "topic_name", "queue_depth?"],
    ),
    ("rclcpp_subscription_init", Shape::SubscriptionObject, &["subscription_handle", "subscription"]),
    (
        "rclcpp_subscription_callback_added",
        Shape::SubscriptionCallback,
        &["subscription|subscription_handle", "callback"],
    ),
    (
        "rcl_service_init",
        Shape::ServiceInit,
        &["service_handle", "node_handle", "rmw_service_handle?", "service_name"],
    ),
    ("rclcpp_service_callback_added", Shape::ServiceCallback, &["service_handle", "callback"]),
    (
        "rcl_client_init",
        Shape::ClientInit,
        &["client_handle", "node_handle", "rmw_client_handle?", "service_name"],
    ),
    ("rcl_timer_init", Shape::TimerInit, &["timer_handle", "period"]),
    ("rclcpp_timer_callback_added", Shape::TimerCallback, &["timer_handle", "callback"]),
    ("rclcpp_timer_link_node", Shape::TimerNode, &["timer_handle", "node_handle"]),
    ("rclcpp_callback_register", Shape::CallbackSymbol, &["callback", "symbol"]),
    ("callback_start", Shape::CallbackStart, &["callback", "is_intra_process?"]),
    ("callback_end", Shape::CallbackEnd, &["callback"]),
    ("rclcpp_publish", Shape::RclcppPublish, &["message"]),
    ("rcl_publish", Shape::RclPublish, &["publisher_handle", "message"]),
    ("rmw_publish", Shape::RmwPublish, &["message", "rmw_publisher_handle?", "timestamp?"]),
    ("rclcpp_intra_publish", Shape::IntraPublish, &["publisher_handle", "message"]),
    ("rmw_take", Shape::RmwTake, &["rmw_subscription_handle", "message", "source_timestamp", "taken?"]),
    (
        "rmw_send_request",
        Shape::Service(ServiceStep::SendRequest),
        &["rmw_client_handle", "sequence_number", "taken?"],
    ),
    (
        "rmw_take_request",
        Shape::Service(ServiceStep::TakeRequest),
        &["rmw_service_handle", "sequence_number", "taken?"],
    ),
    (
        "rmw_send_response",
        Shape::Service(ServiceStep::SendResponse),
        &["rmw_service_handle", "sequence_number", "taken?"],
    ),
    (
        "rmw_take_response",
        Shape::Service(ServiceStep::TakeResponse),
        &["rmw_client_handle", "sequence_number", "taken?"],
    ),
    ("rclcpp_executor_wait_for_work", Shape::ExecutorWait, &["timeout"]),
    ("rclcpp_executor_get_next_ready", Shape::ExecutorNextReady, &[]),
    ("rclcpp_executor_execute", Shape::ExecutorExecute, &["handle"]),
    ("rclcpp_ipb_to_subscription", Shape::IpbToSubscription, &["ipb", "subscription"]),
    ("rclcpp_buffer_to_ipb", Shape::BufferToIpb, &["buffer", "ipb"]),
    ("rcl_lifecycle_transition", Shape::LifecycleTransition, &["state_machine", "start_label", "goal_label"]),
    (
        "dispatch_subscription_callback",
        Shape::Dispatch,
        &["message", "callback", "source_stamp|source_timestamp"],
    ),
    ("dds_bind_addr_to_stamp", Shape::BindStamp, &["addr", "source_stamp|source_timestamp"]),
    ("construct_executor", Shape::ExecutorInit, &["executor_addr", "executor_type_name"]),
    (
        "construct_static_executor",
        Shape::StaticExecutorInit,
        &["entities_collector_addr", "executor_type_name"],
    ),
    (
        "add_callback_group",
        Shape::CallbackGroup,
        &["executor_addr", "callback_group_addr", "group_type_name"],
    ),
    (
        "add_callback_group_static_executor",
        Shape::CallbackGroup,
        &["entities_collector_addr", "callback_group_addr", "group_type_name"],
    ),
    ("callback_group_add_timer", Shape::CallbackGroupMember, &["callback_group_addr", "timer_handle"]),
    (
        "callback_group_add_subscription",
        Shape::CallbackGroupMember,
        &["callback_group_addr", "subscription_handle"],
    ),
    ("callback_group_add_service", Shape::CallbackGroupMember, &["callback_group_addr", "service_handle"]),
    ("callback_group_add_client", Shape::CallbackGroupMember, &["callback_group_addr", "client_handle"]),
];

/// The one event of the kernel that is read: from it comes the CPU time of threads.
const SWITCH: (&str, Shape, &[&str]) = ("sched_switch", Shape::Switch, &["prev_tid", "next_tid"]);

/// Conversion of an event class to a kind of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    shape: Shape,
    arguments: &'static [&'static str],
    /// Present arguments, a bit for each.
    present: u32,
}

/// Whether a field is the one that the table names.
fn is(entry: &str, field: &str) -> bool {
    entry.trim_end_matches('?').split('|').any(|name| name == field)
}

/// Conversion of an event of this name and payload: none if it is not ours, or lacks a field.
pub fn of(name: &str, fields: Option<&Type>, is_kernel: bool) -> Option<Mapping> {
    let (_, shape, arguments) = if is_kernel {
        Some(&SWITCH).filter(|(event, ..)| *event == name)?
    } else {
        let (provider, event) = name.split_once(':')?;
        if provider != "ros2" && provider != "ros2_caret" {
            return None;
        }
        TABLE.iter().find(|(name, ..)| *name == event)?
    };
    let mut present = 0;
    for (number, entry) in arguments.iter().enumerate() {
        let found = match fields {
            Some(Type::Struct(body)) => body.fields.iter().any(|(name, _)| is(entry, shown(name))),
            _ => false,
        };
        if found {
            present |= 1 << number;
        } else if !entry.ends_with('?') {
            return None;
        }
    }
    Some(Mapping { shape: *shape, arguments, present })
}

impl Mapping {
    /// A switch of threads: the one that leaves, the one that comes. Not an event of ours.
    #[inline]
    pub fn switch(&self, event: &impl Arguments) -> Option<(u32, u32)> {
        let thread = |number: u32| event.value(slot::ARGUMENTS + number) as u32;
        (self.shape == Shape::Switch).then(|| (thread(0), thread(1)))
    }

    /// The slot of a field of the payload.
    pub fn argument(&self, field: &str) -> Option<u32> {
        let number = self.arguments.iter().position(|entry| is(entry, field))?;
        Some(slot::ARGUMENTS + u32::try_from(number).ok()?)
    }
}

/// Texts, each kept once: a text that was seen before costs no allocation.
#[derive(Debug, Default)]
pub struct Texts {
    known: HashMap<Box<[u8]>, Arc<str>>,
}

/// Texts kept at once. Beyond, all are forgotten and begin anew: names are few, a damaged recording
/// may have many.
const MAX_TEXTS: usize = 1 << 16;

impl Texts {
    pub fn get(&mut self, bytes: &[u8]) -> Arc<str> {
        if let Some(known) = self.known.get(bytes) {
            return Arc::clone(known);
        }
        if self.known.len() >= MAX_TEXTS {
            self.known.clear();
        }
        let text: Arc<str> = String::from_utf8_lossy(bytes).into();
        self.known.insert(bytes.into(), Arc::clone(&text));
        text
    }
}

/// Arguments of one event: slots, and the texts that they name.
pub trait Arguments {
    fn value(&self, slot: u32) -> u64;
    fn text(&self, slot: u32) -> &[u8];
}

/// Objects kept for [`Kinds::subscriptions`]; beyond, all are forgotten.
const MAX_OBJECTS: usize = 1 << 16;

/// Brings events to kinds.
#[derive(Debug, Default)]
pub struct Kinds {
    /// Names and other texts.
    pub texts: Texts,
    /// By process and object: CARET names the callback that a message is dispatched to, where we
    /// name the middleware's subscription. Callback to object to subscription of `rcl` to that of
    /// the middleware.
    subscriptions: HashMap<(u32, Link, Handle), Handle>,
}

/// When, and of which thread, an event is.
#[derive(Debug, Clone, Copy)]
pub struct Head {
    pub at_ns: u64,
    /// CPU time of the thread.
    pub cpu_ns: Option<u64>,
    pub pid: u32,
    pub tid: u32,
}

impl Head {
    #[inline(always)]
    fn of(self, kind: Kind) -> Event {
        Event { at_ns: self.at_ns, cpu_ns: self.cpu_ns, pid: self.pid, tid: self.tid, kind }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Link {
    Callback,
    Object,
    Rcl,
}

impl Kinds {
    fn link(&mut self, pid: u32, link: Link, from: Handle, to: Handle) {
        if self.subscriptions.len() >= MAX_OBJECTS {
            self.subscriptions.clear();
        }
        self.subscriptions.insert((pid, link, from), to);
    }

    fn rmw_subscription(&self, pid: u32, callback: Handle) -> Option<Handle> {
        let object = self.subscriptions.get(&(pid, Link::Callback, callback))?;
        let subscription = self.subscriptions.get(&(pid, Link::Object, *object))?;
        self.subscriptions.get(&(pid, Link::Rcl, *subscription)).copied()
    }

    /// Hands the event to `sink`; returns how many that were: none if it says nothing (a take of a
    /// service that took nothing). Every kind is built where it is handed over: built first and
    /// moved then, it would cost twice as much.
    #[inline]
    pub fn send(
        &mut self,
        mapping: &Mapping,
        head: Head,
        event: &impl Arguments,
        sink: &mut dyn FnMut(Event),
    ) -> usize {
        let a = |number: u32| event.value(slot::ARGUMENTS + number);
        let has = |number: u32| mapping.present & 1 << number != 0;
        let optional = |number: u32| if has(number) { a(number) } else { 0 };
        let signed = |number: u32| a(number) as i64;
        match mapping.shape {
            Shape::CallbackStart => {
                sink(head.of(Kind::CallbackStart { callback: a(0), intra_process: optional(1) != 0 }));
            }
            Shape::CallbackEnd => sink(head.of(Kind::CallbackEnd { callback: a(0) })),
            Shape::RclcppPublish => sink(head.of(Kind::RclcppPublish { message: a(0) })),
            Shape::RclPublish => sink(head.of(Kind::RclPublish { publisher: a(0), message: a(1) })),
            Shape::RmwPublish => {
                let source_ns = has(2).then(|| signed(2));
                sink(head.of(Kind::RmwPublish { message: a(0), rmw_publisher: optional(1), source_ns }));
            }
            Shape::IntraPublish => sink(head.of(Kind::IntraPublish { publisher: a(0), message: a(1) })),
            Shape::RmwTake => {
                let taken = !has(3) || a(3) != 0;
                let (rmw_subscription, message, source_ns) = (a(0), a(1), signed(2));
                sink(head.of(Kind::RmwTake { rmw_subscription, message, source_ns, taken }));
            }
            Shape::ExecutorWait => sink(head.of(Kind::ExecutorWait { timeout_ns: signed(0) })),
            Shape::ExecutorNextReady => sink(head.of(Kind::ExecutorNextReady)),
            Shape::ExecutorExecute => sink(head.of(Kind::ExecutorExecute { handle: a(0) })),
            Shape::Dispatch => {
                let rmw_subscription = self.rmw_subscription(head.pid, a(1)).unwrap_or(0);
                let (message, source_ns) = (a(0), signed(2));
                sink(head.of(Kind::RmwTake { rmw_subscription, message, source_ns, taken: true }));
            }
            Shape::BindStamp => {
                let source_ns = Some(signed(1));
                sink(head.of(Kind::RmwPublish { message: a(0), rmw_publisher: 0, source_ns }));
            }
            Shape::Service(step) => {
                if has(2) && a(2) == 0 {
                    return 0;
                }
                sink(head.of(Kind::Service { step, rmw_handle: a(0), sequence: signed(1), client: 0 }));
            }
            _ => sink(head.of(self.rare(mapping, head.pid, event))),
        }
        1
    }

    /// Kinds that come when a system starts.
    #[cold]
    fn rare(&mut self, mapping: &Mapping, pid: u32, event: &impl Arguments) -> Kind {
        let a = |number: u32| event.value(slot::ARGUMENTS + number);
        let optional = |number: u32| if mapping.present & 1 << number != 0 { a(number) } else { 0 };
        let bytes = |number: u32| event.text(slot::ARGUMENTS + number);
        match mapping.shape {
            Shape::NodeInit => Kind::NodeInit {
                node: a(0),
                name: self.texts.get(bytes(1)),
                namespace: self.texts.get(if bytes(2).is_empty() { b"/" } else { bytes(2) }),
            },
            Shape::PublisherInit => Kind::PublisherInit {
                publisher: a(0),
                node: a(1),
                rmw_publisher: optional(2),
                topic: self.texts.get(bytes(3)),
                depth: optional(4),
            },
            Shape::SubscriptionInit => {
                self.link(pid, Link::Rcl, a(0), optional(2));
                Kind::SubscriptionInit {
                    subscription: a(0),
                    node: a(1),
                    rmw_subscription: optional(2),
                    topic: self.texts.get(bytes(3)),
                    depth: optional(4),
                }
            }
            Shape::SubscriptionObject => {
                self.link(pid, Link::Object, a(1), a(0));
                Kind::SubscriptionObject { subscription: a(0), object: a(1) }
            }
            Shape::SubscriptionCallback => {
                self.link(pid, Link::Callback, a(1), a(0));
                Kind::SubscriptionCallback { object: a(0), callback: a(1) }
            }
            Shape::ServiceInit => Kind::ServiceInit {
                service: a(0),
                node: a(1),
                rmw_service: optional(2),
                name: self.texts.get(bytes(3)),
            },
            Shape::ServiceCallback => Kind::ServiceCallback { service: a(0), callback: a(1) },
            Shape::ClientInit => Kind::ClientInit {
                client: a(0),
                node: a(1),
                rmw_client: optional(2),
                name: self.texts.get(bytes(3)),
            },
            Shape::TimerInit => Kind::TimerInit { timer: a(0), period_ns: a(1) as i64 },
            Shape::TimerCallback => Kind::TimerCallback { timer: a(0), callback: a(1) },
            Shape::TimerNode => Kind::TimerNode { timer: a(0), node: a(1) },
            Shape::CallbackSymbol => {
                Kind::CallbackSymbol { callback: a(0), symbol: self.texts.get(bytes(1)) }
            }
            Shape::IpbToSubscription => {
                Kind::IntraProcessBuffer { buffer: a(0), of: a(1), to_subscription: true }
            }
            Shape::BufferToIpb => Kind::IntraProcessBuffer { buffer: a(1), of: a(0), to_subscription: false },
            Shape::LifecycleTransition => Kind::LifecycleTransition {
                machine: a(0),
                from: self.texts.get(bytes(1)),
                to: self.texts.get(bytes(2)),
            },
            Shape::ExecutorInit | Shape::StaticExecutorInit => {
                Kind::ExecutorInit { executor: a(0), kind: self.texts.get(bytes(1)) }
            }
            Shape::CallbackGroup => {
                Kind::CallbackGroup { executor: a(0), group: a(1), kind: self.texts.get(bytes(2)) }
            }
            // The others are handled by the caller.
            _ => Kind::CallbackGroupMember { group: a(0), handle: a(1) },
        }
    }
}

#[cfg(test)]
mod tests;

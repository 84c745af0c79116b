//! Names and fields of all releases.

use super::*;
use crate::ctf::tsdl::types::{Int, Order, Struct};

/// A payload with these fields, as LTTng names them.
fn payload(fields: &str) -> Type {
    let int = || Type::Int(Int::plain(64, 8, Order::Little));
    let fields = fields.split_whitespace().map(|name| (format!("_{name}"), int())).collect();
    Type::Struct(Struct { align: 1, fields })
}

struct Numbers([u64; 16]);

impl Arguments for Numbers {
    fn value(&self, slot: u32) -> u64 {
        self.0[slot as usize]
    }
    fn text(&self, _: u32) -> &[u8] {
        b"text"
    }
}

/// The kind of an event whose fields hold 1, 2, 3 and so on, in the order in which they are
/// recorded.
fn kind(name: &str, fields: &str) -> Option<Kind> {
    let mapping = of(name, Some(&payload(fields)), false)?;
    let mut numbers = Numbers([0; 16]);
    for (number, field) in fields.split_whitespace().enumerate() {
        if let Some(slot) = mapping.argument(field) {
            numbers.0[slot as usize] = number as u64 + 1;
        }
    }
    let mut found = None;
    let head = Head { at_ns: 0, cpu_ns: None, pid: 1, tid: 1 };
    Kinds::default().send(&mapping, head, &numbers, &mut |event| found = Some(event.kind));
    found
}

#[test]
fn events_of_all_releases_are_brought_to_the_same_kinds() {
    let text = || Arc::<str>::from("text");
    let publish = |rmw_publisher, message, source_ns| Kind::RmwPublish { rmw_publisher, message, source_ns };
    let take = Kind::RmwTake { rmw_subscription: 1, message: 2, source_ns: 3, taken: true };
    let service = |step, rmw_handle, sequence| Kind::Service { step, rmw_handle, sequence, client: 0 };
    let cases = [
        // Humble, and Jazzy on.
        ("ros2:rmw_publish", "message", publish(0, 1, None)),
        ("ros2:rmw_publish", "rmw_publisher_handle message timestamp", publish(1, 2, Some(3))),
        ("ros2:rmw_take", "rmw_subscription_handle message source_timestamp taken", take),
        // Foxy, Galactic with CARET, Jazzy.
        (
            "ros2:rclcpp_subscription_callback_added",
            "subscription_handle callback",
            Kind::SubscriptionCallback { object: 1, callback: 2 },
        ),
        (
            "ros2:rclcpp_subscription_callback_added",
            "subscription callback",
            Kind::SubscriptionCallback { object: 1, callback: 2 },
        ),
        (
            "ros2:rclcpp_publish",
            "publisher_handle message message_timestamp",
            Kind::RclcppPublish { message: 2 },
        ),
        ("ros2:rclcpp_publish", "message", Kind::RclcppPublish { message: 1 }),
        (
            "ros2:rcl_publisher_init",
            "publisher_handle node_handle rmw_publisher_handle topic_name queue_depth",
            Kind::PublisherInit { publisher: 1, node: 2, rmw_publisher: 3, topic: text(), depth: 5 },
        ),
        (
            "ros2:rcl_client_init",
            "client_handle node_handle rmw_client_handle service_name",
            Kind::ClientInit { client: 1, node: 2, rmw_client: 3, name: text() },
        ),
        (
            "ros2:rclcpp_buffer_to_ipb",
            "buffer ipb",
            Kind::IntraProcessBuffer { buffer: 2, of: 1, to_subscription: false },
        ),
        (
            "ros2:rclcpp_ipb_to_subscription",
            "ipb subscription",
            Kind::IntraProcessBuffer { buffer: 1, of: 2, to_subscription: true },
        ),
        // Newer than 8.4.
        (
            "ros2:rmw_send_request",
            "rmw_client_handle request sequence_number",
            service(ServiceStep::SendRequest, 1, 3),
        ),
        (
            "ros2:rmw_take_request",
            "rmw_service_handle request client_gid sequence_number taken",
            service(ServiceStep::TakeRequest, 1, 4),
        ),
        (
            "ros2:rmw_take_response",
            "rmw_client_handle response sequence_number source_timestamp taken",
            service(ServiceStep::TakeResponse, 1, 3),
        ),
        // CARET's, old and new, which repeats events of initialisation with their time.
        ("ros2_caret:dds_bind_addr_to_stamp", "addr source_stamp", publish(0, 1, Some(2))),
        (
            "ros2_caret:rcl_timer_init",
            "timer_handle period init_timestamp",
            Kind::TimerInit { timer: 1, period_ns: 2 },
        ),
        (
            "ros2_caret:construct_static_executor",
            "executor_addr entities_collector_addr executor_type_name",
            Kind::ExecutorInit { executor: 2, kind: text() },
        ),
    ];
    for (name, fields, expected) in cases {
        assert_eq!(kind(name, fields), Some(expected), "{name} {fields}");
    }
}

#[test]
fn what_is_not_ours_or_lacks_a_field_is_read_over() {
    assert_eq!(kind("other:callback_start", "callback is_intra_process"), None);
    assert_eq!(kind("ros2:callback_start", "function"), None);
    assert_eq!(kind("ros2:rcl_init", "context_handle version"), None);
    assert_eq!(of("ros2:callback_end", None, false), None);
    assert_eq!(of("sched_switch", Some(&payload("prev_tid next_tid")), false), None);
    assert!(of("sched_switch", Some(&payload("prev_tid next_tid")), true).is_some());
}

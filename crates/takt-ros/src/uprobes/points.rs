//! The functions that are probed, and what their arguments mean.

use std::sync::Arc;

use super::memory::{Memory, rmw_name};
use super::record::ARGUMENTS;
use crate::event::{Kind, ServiceStep};

/// A call of one of the functions.
pub struct Call<'a> {
    /// The first arguments.
    pub arguments: [u64; ARGUMENTS],
    pub pid: u32,
    pub memory: &'a mut dyn Memory,
    /// Texts that were gone.
    pub lost_texts: &'a mut u64,
    /// The message of the thread's last `rcl_publish`.
    pub message: u64,
    /// Number of arguments of the process's `rmw_publish`; 0 while unknown.
    pub rmw_publish: &'a mut u32,
}

impl Call<'_> {
    /// The text that argument `index` points to, or pointed to: it is read after the call, and
    /// could be another by now.
    fn text(&mut self, index: usize) -> Arc<str> {
        let address = self.arguments[index];
        self.memory.text(self.pid, address).unwrap_or_else(|| {
            *self.lost_texts += 1;
            format!("?{address:x}").into()
        })
    }

    /// The name that the middleware's object of the first argument carries, which lives as long as
    /// that does; else the text of the second, which the caller may have freed by now.
    fn name(&mut self, rmw_object: usize, text: usize) -> Arc<str> {
        if let Some(name) = rmw_name(self.memory, self.pid, self.arguments[rmw_object]) {
            return name;
        }
        let name = self.text(text);
        if name.starts_with(['/', '?']) {
            return name;
        }
        *self.lost_texts += 1;
        format!("?{:x}", self.arguments[text]).into()
    }

    /// A C `bool`: the lowest byte.
    fn flag(&self, index: usize) -> bool {
        self.arguments[index] & 0xff != 0
    }

    fn service(&self, step: ServiceStep, sequence: usize) -> Kind {
        Kind::Service {
            step,
            rmw_handle: self.arguments[0],
            sequence: self.arguments[sequence].cast_signed(),
            client: 0,
        }
    }

    /// Before Jazzy the one argument is the message; later the first is the publisher and the
    /// second the message.
    fn rmw_publish(&mut self) -> Kind {
        let [first, second, third, ..] = self.arguments;
        if *self.rmw_publish == 0 && self.message != 0 {
            *self.rmw_publish = match self.message {
                message if message == first => 1,
                message if message == second => 3,
                _ => 0,
            };
        }
        match *self.rmw_publish {
            1 => Kind::RmwPublish { rmw_publisher: 0, message: first, source_ns: None },
            _ => Kind::RmwPublish {
                rmw_publisher: first,
                message: second,
                source_ns: Some(third.cast_signed()),
            },
        }
    }
}

/// A function and how its call becomes an event.
pub type Point = (&'static str, fn(&mut Call<'_>) -> Kind);

/// All of them. `rclcpp_publish` is left out: `rcl_publish` follows it and says more, and every
/// breakpoint costs.
pub const POINTS: &[Point] = &[
    ("ros_trace_rcl_node_init", |c| Kind::NodeInit {
        node: c.arguments[0],
        name: c.text(2),
        namespace: c.text(3),
    }),
    ("ros_trace_rcl_publisher_init", |c| Kind::PublisherInit {
        publisher: c.arguments[0],
        node: c.arguments[1],
        rmw_publisher: c.arguments[2],
        topic: c.name(2, 3),
        depth: c.arguments[4],
    }),
    ("ros_trace_rcl_subscription_init", |c| Kind::SubscriptionInit {
        subscription: c.arguments[0],
        node: c.arguments[1],
        rmw_subscription: c.arguments[2],
        topic: c.name(2, 3),
        depth: c.arguments[4],
    }),
    ("ros_trace_rclcpp_subscription_init", |c| Kind::SubscriptionObject {
        subscription: c.arguments[0],
        object: c.arguments[1],
    }),
    ("ros_trace_rclcpp_subscription_callback_added", |c| Kind::SubscriptionCallback {
        object: c.arguments[0],
        callback: c.arguments[1],
    }),
    ("ros_trace_rcl_service_init", |c| Kind::ServiceInit {
        service: c.arguments[0],
        node: c.arguments[1],
        rmw_service: c.arguments[2],
        name: c.name(2, 3),
    }),
    ("ros_trace_rclcpp_service_callback_added", |c| Kind::ServiceCallback {
        service: c.arguments[0],
        callback: c.arguments[1],
    }),
    ("ros_trace_rcl_client_init", |c| Kind::ClientInit {
        client: c.arguments[0],
        node: c.arguments[1],
        rmw_client: c.arguments[2],
        name: c.name(2, 3),
    }),
    ("ros_trace_rcl_timer_init", |c| Kind::TimerInit {
        timer: c.arguments[0],
        period_ns: c.arguments[1].cast_signed(),
    }),
    ("ros_trace_rclcpp_timer_callback_added", |c| Kind::TimerCallback {
        timer: c.arguments[0],
        callback: c.arguments[1],
    }),
    ("ros_trace_rclcpp_timer_link_node", |c| Kind::TimerNode { timer: c.arguments[0], node: c.arguments[1] }),
    ("ros_trace_rclcpp_callback_register", |c| Kind::CallbackSymbol {
        callback: c.arguments[0],
        symbol: c.text(1),
    }),
    ("ros_trace_callback_start", |c| Kind::CallbackStart {
        callback: c.arguments[0],
        intra_process: c.flag(1),
    }),
    ("ros_trace_callback_end", |c| Kind::CallbackEnd { callback: c.arguments[0] }),
    ("ros_trace_rcl_publish", |c| Kind::RclPublish { publisher: c.arguments[0], message: c.arguments[1] }),
    ("ros_trace_rmw_publish", |c| c.rmw_publish()),
    ("ros_trace_rclcpp_intra_publish", |c| Kind::IntraPublish {
        publisher: c.arguments[0],
        message: c.arguments[1],
    }),
    ("ros_trace_rmw_take", |c| Kind::RmwTake {
        rmw_subscription: c.arguments[0],
        message: c.arguments[1],
        source_ns: c.arguments[2].cast_signed(),
        taken: c.flag(3),
    }),
    ("ros_trace_rmw_send_request", |c| c.service(ServiceStep::SendRequest, 2)),
    ("ros_trace_rmw_take_request", |c| c.service(ServiceStep::TakeRequest, 3)),
    ("ros_trace_rmw_send_response", |c| c.service(ServiceStep::SendResponse, 3)),
    ("ros_trace_rmw_take_response", |c| c.service(ServiceStep::TakeResponse, 2)),
    ("ros_trace_rclcpp_executor_wait_for_work", |c| Kind::ExecutorWait {
        timeout_ns: c.arguments[0].cast_signed(),
    }),
    ("ros_trace_rclcpp_executor_get_next_ready", |_| Kind::ExecutorNextReady),
    ("ros_trace_rclcpp_executor_execute", |c| Kind::ExecutorExecute { handle: c.arguments[0] }),
    ("ros_trace_rclcpp_ipb_to_subscription", |c| Kind::IntraProcessBuffer {
        buffer: c.arguments[0],
        of: c.arguments[1],
        to_subscription: true,
    }),
    ("ros_trace_rclcpp_buffer_to_ipb", |c| Kind::IntraProcessBuffer {
        buffer: c.arguments[1],
        of: c.arguments[0],
        to_subscription: false,
    }),
    ("ros_trace_rcl_lifecycle_transition", |c| Kind::LifecycleTransition {
        machine: c.arguments[0],
        from: c.text(1),
        to: c.text(2),
    }),
];

//! The event model: what every probe (preload library, uprobes, LTTng traces, Takt's own job
//! records) is brought to, and what the model extractor reads.
//!
//! Kinds and arguments are those of ROS 2's `tracetools` (Humble 4.1 to rolling 8.4). Every event
//! has two time stamps (*ROS-Llama*, section IV.A): the monotonic clock, from which arrivals are
//! read, and the thread's own CPU time, from which execution times are.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The address of an object in its process: the identity that `tracetools` gives to nodes,
/// callbacks, timers and so on. Unique together with the process only.
pub type Handle = u64;

/// A callback that was off the CPU for longer than this is asked why: a microsecond, which is less
/// than a wait takes (1.9 were the least seen). Interrupts and a hypervisor take longer; sources
/// say of these that the thread never gave the CPU up.
pub const OFF_CPU_NS: u64 = crate::preload::ring::OFF_CPU_NS;

/// One event of one thread.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// When, CLOCK_MONOTONIC nanoseconds.
    pub at_ns: u64,
    /// CPU time that the thread had used, nanoseconds; `None` where the source does not record it
    /// (LTTng without a CPU-time context). Execution times are then wall times, and said to be so.
    pub cpu_ns: Option<u64>,
    pub pid: u32,
    pub tid: u32,
    pub kind: Kind,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "event")]
pub enum Kind {
    /// `rcl_node_init`.
    NodeInit {
        node: Handle,
        name: Arc<str>,
        /// Its namespace, `/` at least.
        namespace: Arc<str>,
    },
    /// `rcl_publisher_init`.
    PublisherInit {
        /// The publisher of `rcl`.
        publisher: Handle,
        node: Handle,
        /// The middleware's publisher.
        rmw_publisher: Handle,
        /// Topic, as resolved.
        topic: Arc<str>,
        /// Queue depth.
        depth: u64,
    },
    /// `rcl_subscription_init`.
    SubscriptionInit {
        /// The subscription of `rcl`.
        subscription: Handle,
        node: Handle,
        /// The middleware's subscription.
        rmw_subscription: Handle,
        /// Topic, as resolved.
        topic: Arc<str>,
        /// Queue depth.
        depth: u64,
    },
    /// `rclcpp_subscription_init`: the C++ object of a subscription.
    SubscriptionObject {
        /// The subscription of `rcl`.
        subscription: Handle,
        object: Handle,
    },
    /// `rclcpp_subscription_callback_added`.
    SubscriptionCallback {
        /// The C++ object.
        object: Handle,
        callback: Handle,
    },
    /// `rcl_service_init`.
    ServiceInit {
        service: Handle,
        node: Handle,
        /// The middleware's service, which [`Kind::Service`] names; 0 where unknown.
        rmw_service: Handle,
        name: Arc<str>,
    },
    /// `rclcpp_service_callback_added`.
    ServiceCallback {
        service: Handle,
        callback: Handle,
    },
    /// `rcl_client_init`.
    ClientInit {
        client: Handle,
        node: Handle,
        /// The middleware's client, which [`Kind::Service`] names; 0 where unknown.
        rmw_client: Handle,
        /// The service's name.
        name: Arc<str>,
    },
    /// `rcl_timer_init`.
    TimerInit {
        timer: Handle,
        period_ns: i64,
    },
    /// `rclcpp_timer_callback_added`.
    TimerCallback {
        timer: Handle,
        callback: Handle,
    },
    /// `rclcpp_timer_link_node`.
    TimerNode {
        timer: Handle,
        node: Handle,
    },
    /// `rclcpp_callback_register`: the callback's function, demangled or not.
    CallbackSymbol {
        callback: Handle,
        symbol: Arc<str>,
    },
    CallbackStart {
        callback: Handle,
        /// The message came from within the process.
        intra_process: bool,
    },
    CallbackEnd {
        callback: Handle,
    },
    /// The activation that ends with this thread's next event gave the CPU up, or was off it for
    /// more than [`OFF_CPU_NS`], and so much is known of why. If a source reports nothing about an
    /// activation that was off the CPU for so long, it does not know.
    OffCpu {
        /// Number of times that the thread gave the CPU up on its own (it slept, or waited for a
        /// lock, a device, a reply), by the kernel's count; 0: it was preempted, or its budget was
        /// used up. `None`: not counted from the activation's start.
        switches: Option<u64>,
        /// For how long it was ready to run and did not, at least; `None`: unknown.
        ready_ns: Option<u64>,
        /// Number of calls of `sched_yield`, which under `SCHED_DEADLINE` gives the rest of the
        /// budget away and is not a voluntary switch for the kernel; `None`: unknown.
        #[serde(default)]
        yields: Option<u64>,
        /// Some of the switches came before the start, since its executor had begun to run it
        /// (taking the message): so long ago.
        #[serde(default)]
        early_ns: u64,
    },
    /// `rclcpp_publish`: the first of the three steps of a publication.
    RclcppPublish {
        message: Handle,
    },
    /// `rcl_publish`: names the publisher.
    RclPublish {
        /// The publisher of `rcl`.
        publisher: Handle,
        message: Handle,
    },
    /// `rmw_publish`: carries the time stamp that the subscriber's [`Kind::RmwTake`] repeats (Jazzy
    /// on).
    RmwPublish {
        /// The middleware's publisher; 0 on Humble, which does not say.
        rmw_publisher: Handle,
        message: Handle,
        /// Source time stamp; `None` on Humble.
        source_ns: Option<i64>,
    },
    /// `rclcpp_intra_publish`.
    IntraPublish {
        /// The publisher of `rcl`.
        publisher: Handle,
        message: Handle,
    },
    RmwTake {
        /// The middleware's subscription.
        rmw_subscription: Handle,
        message: Handle,
        /// The publisher's [`Kind::RmwPublish`] time stamp.
        source_ns: i64,
        /// Whether there was a message.
        taken: bool,
    },
    /// `rmw_send_request`, `rmw_take_request`, `rmw_send_response`, `rmw_take_response` (newer than
    /// 8.4).
    Service {
        /// The step among the four.
        step: ServiceStep,
        /// The middleware's client or service.
        rmw_handle: Handle,
        /// Sequence number of the request.
        sequence: i64,
        /// Client of the request, as far as the middleware reports it; 0: unknown. Each client
        /// counts its own requests. The upper half identifies the client's process, the lower half
        /// the client; it is 0 if only the process is known.
        #[serde(default)]
        client: u64,
    },
    /// `rclcpp_executor_wait_for_work`: the thread is an executor, and idle.
    ExecutorWait {
        /// Time-out, nanoseconds; negative: none.
        timeout_ns: i64,
    },
    /// `rclcpp_executor_get_next_ready`.
    ExecutorNextReady,
    /// `rclcpp_executor_execute`: timers and subscriptions only.
    ExecutorExecute {
        /// The timer or subscription of `rcl`.
        handle: Handle,
    },
    /// `rclcpp_ipb_to_subscription`, `rclcpp_buffer_to_ipb`: joins between a subscription and its
    /// intra-process buffer.
    IntraProcessBuffer {
        buffer: Handle,
        /// Its owner: a subscription, or the ring buffer inside it.
        of: Handle,
        /// Whether `of` is the subscription (`ipb_to_subscription`) rather than the inner buffer.
        to_subscription: bool,
    },
    /// `rcl_lifecycle_transition`.
    LifecycleTransition {
        /// The state machine.
        machine: Handle,
        /// State left.
        from: Arc<str>,
        /// State entered.
        to: Arc<str>,
    },
    /// A job of a task of Takt's own robots: release, start and end in one record. The task is its
    /// own executor.
    Job {
        task: Arc<str>,
        /// Planned release, CLOCK_MONOTONIC nanoseconds; the event's own stamp is the job's end.
        released_ns: u64,
        started_ns: u64,
        /// CPU time used.
        used_ns: u64,
    },
    /// The name of the thread (`comm`), when first seen or changed.
    ThreadName {
        name: Arc<str>,
    },
    /// The thread, or the process when `tid == pid` and the source cannot tell threads, has ended.
    ThreadEnd,
    /// An executor was built (recorded by CARET only; elsewhere executors are inferred from their
    /// threads).
    ExecutorInit {
        executor: Handle,
        /// Its type, as recorded: `single_threaded_executor`, `multi_threaded_executor`,
        /// `static_single_threaded_executor`.
        kind: Arc<str>,
    },
    /// An executor serves a callback group (recorded by CARET only).
    CallbackGroup {
        /// The executor; of a static executor its entities collector, which its
        /// [`Kind::ExecutorInit`] repeats.
        executor: Handle,
        group: Handle,
        /// Its type, as recorded: `mutually_exclusive`, `reentrant`.
        kind: Arc<str>,
    },
    /// A timer, subscription, service or client of `rcl` belongs to a callback group (recorded by
    /// CARET only).
    CallbackGroupMember {
        group: Handle,
        /// The timer, subscription, service or client.
        handle: Handle,
    },
    /// An executor of rclcpp runs on this thread from here on (seen by the preload library only).
    ExecutorSpin {
        executor: Handle,
        /// Its C++ type, mangled as the compiler does
        /// (`N6rclcpp9executors21MultiThreadedExecutorE`).
        kind: Arc<str>,
    },
    /// An executable of the executor has returned without the start of a callback: a client's
    /// callback, an action, a wake-up. Also once when a thread runs its first executable (seen by
    /// the preload library only).
    ExecutorExecuted {
        /// A callback's events have reported all of it.
        #[serde(rename = "told")]
        complete: bool,
    },
    /// A callback group gets a member (seen by the preload library only). A subscription is named
    /// by its C++ object; a timer is the one that the same thread links to its node next; a service
    /// or client the one that the same thread has made last.
    GroupMember {
        group: Handle,
        /// Whether its callbacks may run at once.
        reentrant: bool,
        /// The new member.
        member: MemberKind,
        /// The C++ object.
        object: Handle,
    },
    /// The first eight bytes of the message that this thread's next event takes or publishes: of
    /// messages that begin with a header its time stamp (seconds, nanoseconds). Only of processes
    /// that join messages by filters (seen by the preload library only).
    MessageHead {
        /// The bytes.
        head: u64,
    },
    /// The message that this thread's next event takes was received by the middleware of this
    /// process so long after its source timestamp. Both timestamps use their machines' time-of-day
    /// clocks (seen only by the preload library, and only if the middleware shows it).
    MessageReceived {
        /// Nanoseconds; negative where two machines' clocks disagree.
        after_ns: i64,
    },
    /// Nodes of this process are those of Python, whose callbacks no event shows.
    Python,
    /// Events were lost here: what stood between this thread's last event and this one is unknown.
    /// With `pid` and `tid` 0 any thread of any process is concerned (a buffer of a processor,
    /// which all its threads write, was full).
    Lost {
        /// Number of events; 0: unknown to the source.
        count: u64,
    },
    /// Nothing was recorded from `from_ns` to this event, of any thread of any process (`pid` and
    /// `tid` are 0): what happened meanwhile is unknown, and what did not happen is no miss.
    Gap {
        from_ns: u64,
        why: GapCause,
    },
}

impl Kind {
    /// Whether it says that something happened, rather than what there is (objects, names, threads)
    /// or what was lost.
    pub(crate) fn happens(&self) -> bool {
        matches!(
            self,
            Self::CallbackStart { .. }
                | Self::CallbackEnd { .. }
                | Self::OffCpu { .. }
                | Self::RclcppPublish { .. }
                | Self::RclPublish { .. }
                | Self::RmwPublish { .. }
                | Self::IntraPublish { .. }
                | Self::RmwTake { .. }
                | Self::Service { .. }
                | Self::ExecutorWait { .. }
                | Self::ExecutorNextReady
                | Self::ExecutorExecute { .. }
                | Self::ExecutorExecuted { .. }
                | Self::Job { .. }
                | Self::MessageHead { .. }
                | Self::MessageReceived { .. }
        )
    }
}

/// Reason why nothing was recorded for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GapCause {
    /// No stream recorded: the session was stopped and started again (`ros2 trace pause`).
    Paused,
    /// Callbacks were not recorded yet: the session that records them began later than what names
    /// them.
    NotYet,
    /// Packets of a stream are missing: overwritten, deleted, or not copied.
    Packets,
    /// A buffer was full.
    Full,
    /// A part of a stream cannot be read: it is damaged or cut off, and the others go on.
    Unreadable,
}

impl GapCause {
    /// In words, as they follow "because".
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Paused => "the recording was paused",
            Self::NotYet => "callbacks were not recorded yet",
            Self::Packets => "packets of a stream are missing",
            Self::Full => "a buffer of the tracer was full",
            Self::Unreadable => "a part of a stream cannot be read",
        }
    }
}

/// Member of a callback group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemberKind {
    Timer,
    Subscription,
    Service,
    Client,
}

/// The four steps of a service call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServiceStep {
    /// The client sends its request.
    SendRequest,
    TakeRequest,
    /// The service answers.
    SendResponse,
    /// The client takes the answer.
    TakeResponse,
}

/// Source of events: live or recorded, the reader's code is the same.
pub trait Source {
    /// Reason why events can no longer be read.
    type Error: std::error::Error + Send + Sync + 'static;

    /// Hands events that are there to `sink`, those of one thread in their order, and all within a
    /// call by time as far as the source allows; never waits. Returns how many. A live source hands
    /// out all that it has; a long recording may come in portions, so that the reader can act in
    /// between: it is over when [`ended`](Self::ended) says so.
    ///
    /// # Errors
    ///
    /// The source is broken for good; what was lost in passing comes as [`Kind::Lost`] instead.
    fn poll(&mut self, sink: &mut dyn FnMut(Event)) -> Result<usize, Self::Error>;

    /// Whether nothing can come any more (the end of a recording, or of all processes).
    fn ended(&self) -> bool;
}

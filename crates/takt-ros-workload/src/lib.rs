//! Processes that behave like ROS 2 nodes, with costs that are known: what the latency manager is
//! measured on where no ROS 2 is installed, and with the same costs every time.
//!
//! A [`System`] describes nodes, one process each. A node has timers, subscriptions and event
//! sources. Its callbacks run under the semantics of `rclcpp`'s single-threaded executor
//! ([`executor`]), messages travel over a bus with a receiving helper thread in every process, as
//! DDS implementations have one ([`bus`]), and every step calls the same exported `ros_trace_*`
//! functions as `rclcpp`, `rcl` and `rmw` do ([`tracepoints`]).
//!
//! Every node writes down its activations ([`stamps`]), from which latencies are read after a run.
//!
//! Costs are CPU time, burnt to the microsecond by the thread's own clock: a preempted callback
//! takes longer, never less.

pub mod burn;
pub mod bus;
pub mod executor;
pub mod launch;
pub mod node;
pub mod rclcpp;
pub mod stamps;
pub mod system;
pub mod tracepoints;

pub use launch::{Program, Running, serve};
pub use node::{Losses, Window, run};
pub use stamps::{Completion, Instances, StampError, Stamped};
pub use system::{Activity, Cost, NodeSpec, Problem, SourceSpec, SubscriptionSpec, System, TimerSpec};

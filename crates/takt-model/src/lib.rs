//! Timing models of running systems: what the latency manager analyses.
//!
//! [`model`] is the snapshot that the extractor hands out; [`curve`] holds the two kinds of curves.

pub mod chain;
mod components;
pub mod curve;
pub mod extract;
pub mod guard;
pub mod model;
pub mod order;
pub mod probable;
pub mod recorder;
pub mod spread;
pub mod view;

pub use chain::{ChainSpec, ChainStats, Completion, Exceeded, Skip, WatchId};
pub use components::components;
pub use curve::{ArrivalCurve, CostCurve};
pub use extract::gap::{Gap, Gaps};
pub use extract::{Counters, Extractor, Options, OptionsError};
pub use guard::{Allowance, Assumed, Breach, Broken, Excess};
pub use model::{
    Callback, CallbackGroup, CallbackId, CallbackKind, Delivery, Executor, ExecutorId, ExecutorKind, Latency,
    Model, Node, NodeId, Output, Outside, PassedOver, ProbableCost, Python, Shortest, Silent, Subscribed,
    Thread, ThreadId, ThreadRole, Topic, TopicId, Unanalysable,
};
pub use order::Reorder;
pub use probable::ProbableRecorder;
pub use recorder::{ArrivalRecorder, CostRecorder, GreatestRecorder};
pub use spread::{Range, Spread};
pub use view::DotOptions;

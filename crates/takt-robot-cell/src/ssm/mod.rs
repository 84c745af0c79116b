//! Speed and separation monitoring: pure logic, no clock, no threads, no allocation.
//!
//! The monitor is called once per SSM job with everything it may look at, and answers with the
//! decision of this job. It fails towards stop. It is **not** a certified safety function.

mod config;
mod distance;
mod monitor;
mod obedience;
mod watch;

pub use config::{SsmConfig, SsmMode};
pub use distance::{ProtectiveDistance, ProtectiveTerm, ReactionTime, arithmetic, terms};
pub use monitor::{Decision, Inputs, Light, MAX_CAMERAS, Monitor};
pub(crate) use obedience::REMEMBERED;
pub use obedience::{LinkDelays, Obedience};
pub use watch::{CameraInput, Fault, FaultKind};
pub(crate) use watch::{MAX_TOOL_M, is_within_reach};

//! SCHED_DEADLINE on CPUs of one's own.
//!
//! The kernel refuses a reservation to a thread that may not run on all CPUs of its root domain,
//! unless the domain is that CPU alone or admission control is off. [`partition`] makes each wanted
//! CPU such a domain, in one of several ways ([`Mode`]), each tried for real with a thread of our
//! own; [`restore`] keeps on disk what was there before and brings it back, whatever ends the
//! program; [`system`] is what both ask of the kernel. [`pin`] does all of it for the few threads
//! of a robot. [`rt_group`] is one reservation for all real-time threads of a robot together.

pub mod enforce;
mod mode;
pub mod partition;
pub mod pin;
mod prepare;
pub mod reclaim;
pub mod restore;
pub mod rt_group;
pub mod system;

pub use mode::{Mode, Refusal};
pub use partition::{MIN_BUDGET_NS, Partition, Trouble, set};
pub use system::ratio;

/// Holds -1 while admission control is off.
pub const ADMISSION_FILE: &str = "/proc/sys/kernel/sched_rt_runtime_us";

/// CPUs of the kernel's unbound workers.
pub const WORKERS_FILE: &str = "/sys/devices/virtual/workqueue/cpumask";

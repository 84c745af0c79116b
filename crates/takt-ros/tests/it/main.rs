//! The integration tests of takt-ros, as one program: each file is a module.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "../lttng/mod.rs"]
mod lttng;
#[path = "../support/mod.rs"]
mod support;
#[path = "../workload/mod.rs"]
mod workload;

mod ctf_damage;
mod ctf_hosts;
mod ctf_lttng;
mod ctf_quiet;
mod ctf_recording;
mod ctf_unread;
mod hostile;
mod off_cpu;
mod preload;
mod uprobes;

use takt_rt::proof::AllocationCounter;

#[global_allocator]
static ALLOCATOR: AllocationCounter = AllocationCounter;

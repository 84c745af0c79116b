//! Runs of a campaign on the nodes of a cluster, placed and queued by Slurm.
//!
//! ```text
//! Plan ─► blocks ─► sbatch --array --exclusive --requeue ─► node: takt campaign block ─► run directories
//!                                                                        │ journal
//!                   takt campaign run --on slurm  ◄──────────────────────┘ (shared folder)
//! ```
//!
//! A **block** is the runs of one repetition that ask for the same conditions, in their random
//! order. It is one task of an array job and has its node to itself, so that machines are a factor
//! and not noise. Takt writes no scheduler: it calls `sinfo`, `sbatch`, `squeue` and `sacct`, in
//! output formats that all their versions have, and everything else passes through the campaign's
//! folder, which all nodes must see. A run is measured in a folder of its attempt and published
//! into the campaign by one rename that replaces nothing, so that whatever dies, or runs twice
//! because a controller lost its state, no run is in the results twice.

mod block;
mod client;
mod error;
mod feature;
mod journal;
mod node;
mod state;
mod submit;
mod watch;

pub use block::{Block, blocks};
pub use client::{Node, Partition, Task};
pub use error::SlurmError;
pub use node::run_block;
pub use state::{Asked, Submission};
pub use submit::Slurm;

//! The ways of binding reservations to cores.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::reserve::system::GroupVersion;

/// A way of binding reservations to cores. Without one no bound holds (the kernel runs the threads
/// with the earliest deadlines, wherever, and budgets that fit core by core can still miss their
/// deadlines: Dhall's effect), so nothing is reserved then. [`Mode::ALL`] has the order in which
/// they are tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Partition roots of cgroup v2: the kernel admits per core, and keeps all other threads off
    /// those cores.
    PartitionRoots,
    /// Exclusive cpusets of cgroup v1: the kernel admits per core; other threads keep their CPUs
    /// but are no longer balanced between the domains.
    ExclusiveSets,
    /// Admission control off (`sched_rt_runtime_us = -1`) and plain affinity: the kernel keeps
    /// budgets but no longer checks that they fit, so the plan alone sees to that. Fair threads are
    /// balanced over all CPUs as ever.
    AdmissionOff,
}

impl Mode {
    /// All, in the order in which they are tried. The admission test off comes first, because it
    /// alone leaves every process in the control group that systemd or a container gave it, with
    /// that group's limits and its end. Partition roots move whole processes. Exclusive sets of
    /// version 1 switch load balancing off for every thread of the machine, managed or not; a
    /// thread in a set without its reservation starves there.
    pub const ALL: [Self; 3] = [Self::AdmissionOff, Self::PartitionRoots, Self::ExclusiveSets];

    /// The control groups that it uses.
    #[must_use]
    pub fn groups(self) -> Option<GroupVersion> {
        match self {
            Self::PartitionRoots => Some(GroupVersion::V2),
            Self::ExclusiveSets => Some(GroupVersion::V1),
            Self::AdmissionOff => None,
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PartitionRoots => "partition roots (cgroup v2)",
            Self::ExclusiveSets => "exclusive cpusets (cgroup v1)",
            Self::AdmissionOff => "affinity, admission control off",
        })
    }
}

/// Reason why a way is not possible here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    pub mode: Mode,
    pub reason: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.mode, self.reason)
    }
}

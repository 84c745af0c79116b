//! The integration tests of takt, as one program: each file is a module.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "../golden/hold.rs"]
mod hold;
#[path = "../../src/registry.rs"]
mod kinds;
#[cfg(feature = "store")]
#[path = "../../../takt-history/tests/made/mod.rs"]
mod made;
#[path = "../../../takt-ros/tests/lttng/mod.rs"]
mod recorder;
#[path = "../ros2/mod.rs"]
mod ros2;
#[cfg(feature = "s3")]
#[path = "../s3/mod.rs"]
mod s3;
#[path = "../slurm/mod.rs"]
mod slurm;
#[path = "../takt/sources.rs"]
mod sources;
#[path = "../takt/mod.rs"]
mod takt;

mod baselines;
mod bench;
mod book;
mod bounds;
mod budgets;
mod campaign;
mod containers;
mod demo;
mod ending;
mod evidence;
mod faults;
mod frozen;
mod gate;
mod golden;
mod gpu;
mod habits;
mod hostile;
mod hostile_values;
mod humanoid;
mod installed;
mod kernels;
mod lab;
mod learn;
mod lifecycle;
mod lttng;
mod manager;
mod mistakes;
mod networks;
mod new;
mod otlp;
mod own_loop;
mod papers;
mod placement;
mod plain;
mod planted;
mod program;
mod query;
mod recordings;
mod refusals;
mod registry;
mod resume;
mod ros2_truth;
mod service;
mod servo;
mod simulate;
mod store;
mod trace;
mod tune;
mod view;
mod watch;
mod watch_findings;
mod watch_others;

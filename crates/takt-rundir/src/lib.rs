//! Run directories: what was asked, what the kernel really granted, the machine, the samples, the
//! figures; in files that outlive a kill. Whatever measures writes one, and whatever reports,
//! compares or exports reads nothing else.

mod checkpoint;
mod command;
mod cpu;
mod dir;
mod error;
mod files;
pub mod footer;
mod header;
#[cfg(test)]
mod kills_tests;
mod loss;
mod machine;
mod memory;
mod parquet;
pub mod prune;
mod rows;
mod samples;
mod seal;
mod series;
mod sink;
mod steps;
mod utc;

pub use checkpoint::{Checkpoint, Claim, Draft};
pub use command::{COMMAND_KEY, command_line};
pub use cpu::CpuPower;
pub use dir::{
    HASHES_FILE, RUN_FILE, RunDir, SAMPLES_FOLDER, SUMMARY_FILE, find_runs, set_aside, utc_name, utc_now,
};
pub use error::{Error, HeaderError, NotARun};
pub use files::{read_json, sha256, sha256_of, write_json};
pub use header::{
    ClusterPlace, Counter, Experiment, FORMAT, Factor, Measure, Phase, RunHeader, Work, check_claims, judged,
};
pub use loss::Loss;
pub use machine::{
    FactDifference, GUEST_PARAMETER, KERNEL_FACTS, Machine, VIRTUAL_MACHINE_FILE, VirtualMachine,
};
pub use rows::{Column, ColumnKind};
pub use samples::{NumberFile, SampleFile, Sum, read_samples};
pub use seal::SealState;
pub use series::Series;
pub use takt_rt::procfs::{CpuShare, CpuTime};

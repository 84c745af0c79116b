//! Run directories: what was asked, what the kernel really granted, the machine, the samples, the figures; in files
//! that outlive a kill. Whatever measures writes one, and whatever reports, compares or exports reads nothing else.

mod dir;
mod error;
mod header;
mod machine;
mod parquet;
mod series;

pub use dir::{
    HASHES_FILE, RUN_FILE, RunDir, SAMPLES_FOLDER, SUMMARY_FILE, SampleFile, find_runs, read_json,
    read_samples, set_aside, sha256, sha256_of, utc_name, utc_now, write_json,
};
pub use error::Error;
pub use header::{Experiment, FORMAT, Factor, Measure, Phase, RunHeader, judged};
pub use machine::{
    CpuShare, CpuTime, FactDifference, GUEST_PARAMETER, KERNEL_FACTS, Machine, VIRTUAL_MACHINE_FILE,
    VirtualMachine,
};
pub use series::Series;

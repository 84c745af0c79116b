//! Sealed runs that were made up, for tests and the bench.

#![allow(clippy::unwrap_used)]

use std::path::Path;

use serde::Serialize;
use takt_rt::random::SplitMix64;
use takt_rundir::{Experiment, Factor, Machine, Measure, RUN_FILE, RunDir, RunHeader};

#[derive(Serialize)]
struct Job {
    index: u64,
    planned_ns: u64,
    wake_ns: u64,
}

/// A run to be made.
#[derive(Clone, Debug)]
pub struct Made {
    pub number: u64,
    pub robot: &'static str,
    pub kernel: &'static str,
    pub host: &'static str,
    pub policy: &'static str,
    pub median_us: f64,
    pub stolen: f64,
    /// Without, it reports its measure and has no samples.
    pub samples: u64,
}

impl Made {
    /// One of a fleet: three kernels, four machines, two policies, two robots.
    pub fn of_a_fleet(number: u64, samples: u64) -> Self {
        let pick = |of: usize, by: u64| (number / by) as usize % of;
        let kernel = ["6.12.43", "6.12.48", "6.13.1"][pick(3, 8)];
        let policy = ["fifo:80", "other:0"][pick(2, 4)];
        Self {
            number,
            robot: ["uav", "cyclic"][pick(2, 24)],
            kernel,
            host: ["nuc1", "nuc2", "nuc3", "nuc4"][pick(4, 1)],
            policy,
            median_us: 20.0
                + if kernel == "6.13.1" { 6.0 } else { 0.0 }
                + if policy == "other:0" { 30.0 } else { 0.0 },
            stolen: [0.0, 0.001, 0.002, 0.03][pick(4, 2)],
            samples,
        }
    }

    /// Makes it in `folder`.
    pub fn make(&self, folder: &Path) -> RunDir {
        let mut dice = SplitMix64::new(self.number.wrapping_mul(0x9e37_79b9) ^ self.median_us.to_bits());
        let mut unit = move || ((dice.bits() >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
        let mut normal = || (-2.0 * unit().ln()).sqrt() * (std::f64::consts::TAU * unit()).cos();
        // Runs differ by some percent, beside what their samples do.
        let level = self.median_us * 1e3 * (0.04 * normal()).exp();
        let dir = RunDir::create_at(&folder.join(format!("{:06}", self.number))).unwrap();
        if self.samples > 0 {
            let mut file = dir.samples("jobs").unwrap();
            for index in 0..self.samples {
                let planned_ns = 1_000_000_000 + index * 1_000_000;
                let wake_ns = planned_ns + (level * (0.3 * normal()).exp()) as u64;
                file.push(&Job { index, planned_ns, wake_ns }).unwrap();
            }
            file.flush().unwrap();
        }
        let measure = Measure::new("lateness", "Wake-up lateness", "jobs", "wake_ns").since("planned_ns");
        let seconds = self.number % 86_400;
        let mut header = RunHeader {
            experiment: Experiment {
                campaign: "nightly".to_owned(),
                factors: vec![Factor { name: "policy".to_owned(), value: self.policy.to_owned() }],
                repetition: 1 + (self.number % 4) as u32,
                ..Experiment::default()
            },
            started_utc: format!(
                "2026-11-{:02}T{:02}:{:02}:{:02}.000Z",
                1 + self.number / 86_400,
                seconds / 3600,
                seconds / 60 % 60,
                seconds % 60
            ),
            finished_utc: Some("2026-11-30T10:00:00.000Z".to_owned()),
            machine: Machine {
                kernel: Some(self.kernel.to_owned()),
                host: Some(self.host.to_owned()),
                ..Machine::default()
            },
            measures: vec![measure.deadline_ns(100_000).rate_hz(1000.0)],
            ..RunHeader::new(self.robot, self.policy)
        };
        header.cpu.stolen = self.stolen;
        dir.write_json(RUN_FILE, &header).unwrap();
        dir.seal().unwrap();
        dir
    }
}

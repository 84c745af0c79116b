//! Run directories made up for tests: shaped like a scheduling experiment, with heavy tails where a
//! real one has them.

#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a test that cannot write its runs has nothing to test")]

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;
use takt_report::document::Document;
use takt_report::{Collection, Error, Supplements, Written};
use takt_rt::random::SplitMix64;
use takt_rundir::{CpuShare, Experiment, Factor, Machine, Measure, RUN_FILE, RunDir, RunHeader};

/// The report on runs, with what no robot adds.
pub fn build(collection: &Collection) -> Document {
    takt_report::build(collection, &Supplements::default())
}

/// The same, written.
pub fn write(paths: &[impl AsRef<Path>], out: &Path) -> Result<Written, Error> {
    takt_report::write(paths, out, &Supplements::default())
}

/// Latencies that are the same every time.
pub struct Dice(SplitMix64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(SplitMix64::new(seed))
    }

    /// 0 < value < 1.
    pub fn unit(&mut self) -> f64 {
        ((self.0.bits() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    /// A latency: log-normal about `median_ns`, and one in `rare` a spike up to `spike_ns`.
    pub fn latency(&mut self, median_ns: f64, spread: f64, rare: f64, spike_ns: f64) -> u64 {
        let normal = (-2.0 * self.unit().ln()).sqrt() * (std::f64::consts::TAU * self.unit()).cos();
        let body = median_ns * (spread * normal).exp();
        if self.unit() < 1.0 / rare { (body + spike_ns * self.unit()) as u64 } else { body as u64 }
    }
}

#[derive(Serialize)]
pub struct Job {
    pub index: u64,
    pub planned_ns: u64,
    pub wake_ns: u64,
}

pub fn machine() -> Machine {
    Machine {
        host: Some("testbed".into()),
        kernel: Some("6.8.0-rt".into()),
        preemption: Some("PREEMPT_RT (full)".into()),
        cpu: Some("A processor".into()),
        rt_runtime_us: Some(-1),
        memory_kib: Some(8_000_000),
        ..Machine::default()
    }
}

pub fn measure() -> Measure {
    Measure {
        since_column: Some("planned_ns".into()),
        time_column: Some("planned_ns".into()),
        deadline_ns: Some(4_000_000),
        rate_hz: Some(250.0),
        ..Measure::new("lateness", "Wake-up lateness of the attitude loop", "attitude", "wake_ns")
    }
}

pub fn header(factors: &[(&str, &str)], repetition: u32) -> RunHeader {
    let factors: Vec<Factor> =
        factors.iter().map(|(name, value)| Factor { name: (*name).into(), value: (*value).into() }).collect();
    let label = factors.iter().map(|f| f.value.clone()).collect::<Vec<_>>().join(", ");
    let campaign = if factors.is_empty() { String::new() } else { "uav".to_owned() };
    RunHeader {
        takt: "0.1.0".into(),
        experiment: Experiment { campaign, factors, repetition, ..Experiment::default() },
        started_utc: "2026-11-21T15:52:02.000Z".into(),
        finished_utc: Some("2026-11-21T15:52:42.000Z".into()),
        machine: machine(),
        cpu: CpuShare { stolen: 0.012, busy: 0.6 },
        measures: vec![measure()],
        ..RunHeader::new("uav", &label)
    }
}

/// Writes a sealed run with these latencies, at 250 Hz.
pub fn run(path: &Path, header: &RunHeader, latencies_ns: impl Iterator<Item = u64>) -> RunDir {
    let dir = unsealed(path, header, latencies_ns);
    dir.seal().unwrap();
    dir
}

/// Writes a run that never came to its end.
pub fn unsealed(path: &Path, header: &RunHeader, latencies_ns: impl Iterator<Item = u64>) -> RunDir {
    let dir = RunDir::create_at(path).unwrap();
    let mut file = dir.samples("attitude").unwrap();
    for (index, latency) in (0u64..).zip(latencies_ns) {
        let planned_ns = 5_000_000_000 + index * 4_000_000;
        file.push(&Job { index, planned_ns, wake_ns: planned_ns + latency }).unwrap();
    }
    file.flush().unwrap();
    dir.write_json(RUN_FILE, header).unwrap();
    dir
}

/// The quadrotor's experiment in small: 8 scheduler settings, idle and stressed.
pub fn campaign(root: &Path, repetitions: u32, iterations: usize) {
    let settings = [
        ("other:0", 54e3, 300e3),
        ("other:-19", 54e3, 150e3),
        ("fifo:50", 4e3, 39e3),
        ("fifo:99", 4e3, 40e3),
        ("rr:50", 4e3, 30e3),
        ("rr:99", 4e3, 36e3),
        ("deadline:400us/4ms", 7e3, 36e3),
        ("deadline:800us/4ms", 6e3, 35e3),
    ];
    let mut cell = 0;
    for (policy, idle, busy) in settings {
        for stress in ["off", "uav"] {
            for repetition in 1..=repetitions {
                cell += 1;
                let stressed = stress != "off";
                let mut header =
                    header(&[("policy", policy), ("stress", stress), ("rate", "250")], repetition);
                header.figures =
                    BTreeMap::from([("position_rms_m".to_owned(), 0.011 + 0.001 * f64::from(repetition))]);
                if stressed {
                    header.load = serde_json::json!({
                        "profile": "uav", "seconds": 41.2,
                        "components": [{ "kind": "matrix", "tool": "stress-ng", "version": "0.18", "asked": "4 workers",
                            "processes": 4, "cpu_s": 120.5, "cpu_share": 0.73, "proof": { "matrix_bogo_ops": 123456 } }],
                        "system": { "context_switches_per_s": 120345.0, "forks_per_s": 802.0 }
                    });
                }
                let mut dice = Dice::new(cell);
                let (median, rare, spike) = if stressed {
                    (busy, 300.0, if busy > 1e5 { 9e6 } else { 7e5 })
                } else {
                    (idle, 3000.0, 6e4)
                };
                let latencies = (0..iterations).map(|_| dice.latency(median, 0.35, rare, spike));
                run(&root.join(format!("{cell:03}")), &header, latencies);
            }
        }
    }
}

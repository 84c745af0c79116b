//! Wake-up lateness of this machine, measured by a loop of our own, and by `cyclictest` of rt-tests
//! for comparison.

use std::process::{Command, Stdio};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::latency::DmaLatency;
use crate::periodic::{Periodic, SleepStrategy};
use crate::placement::CpuSet;
use crate::settings::{Granted, ThreadSettings};
use crate::thread;

/// Parameters of a measurement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Probe {
    /// Settings of the measuring thread.
    pub settings: ThreadSettings,
    /// Time between wake-ups.
    #[serde(with = "crate::duration")]
    pub period: Duration,
    /// Wake-ups to measure.
    pub cycles: usize,
    /// Sleep method.
    pub sleep: SleepStrategy,
}

/// Result of a measurement. Nothing is left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lateness {
    /// Wake-up after planned release, one per cycle in order, nanoseconds.
    pub samples_ns: Vec<u64>,
    /// Releases skipped because the loop was more than a period late.
    pub skipped: u64,
    /// The settings under which the thread ran; `None` for an external program.
    pub granted: Option<Granted>,
    /// Reason why `/dev/cpu_dma_latency` could not be held at 0.
    pub dma_latency_error: Option<String>,
}

impl Lateness {
    /// The quantile `q` (0 to 1) of the lateness by nearest rank; `None` without samples.
    pub fn quantile_ns(&self, q: f64) -> Option<u64> {
        let mut sorted = self.samples_ns.clone();
        sorted.sort_unstable();
        let rank = (q * sorted.len() as f64).ceil() as usize;
        sorted.get(rank.clamp(1, sorted.len().max(1)) - 1).copied()
    }
}

/// Runs a periodic loop that does nothing but wake up, in a thread of its own, with
/// `/dev/cpu_dma_latency` held at 0 where possible (as cyclictest does).
///
/// # Errors
/// As [`thread::spawn`] and [`Periodic::new`].
pub fn wakeup_lateness(probe: &Probe) -> Result<Lateness, Error> {
    // Shows an invalid period before a thread starts.
    Periodic::new(0, probe.period, probe.sleep)?;
    let held = DmaLatency::hold(0);
    let (period, cycles, sleep) = (probe.period, probe.cycles, probe.sleep);
    let handle = thread::spawn("takt-probe", &probe.settings, move || {
        let mut samples_ns = Vec::with_capacity(cycles);
        let mut periodic = Periodic::start_now(period, sleep)?;
        // Release 0 is now: its lateness is that of starting, not of waking.
        periodic.next();
        for _ in 0..cycles {
            samples_ns.push(periodic.next().lateness_ns());
        }
        Ok((samples_ns, periodic.skipped()))
    })?;
    let granted = Some(handle.granted().clone());
    let (samples_ns, skipped) = handle.join()??;
    let dma_latency_error = held.err().map(|error| error.to_string());
    Ok(Lateness { samples_ns, skipped, granted, dma_latency_error })
}

const CYCLICTEST: &str = "cyclictest";

/// Runs `cyclictest` (rt-tests) with one SCHED_FIFO thread of `priority` on `cpu`: absolute
/// releases every `period`, locked memory, nanosecond samples.
///
/// # Errors
/// [`Error::Program`] when it is not installed, fails, or answers something else than samples.
pub fn cyclictest(priority: u8, cpu: usize, period: Duration, cycles: usize) -> Result<Lateness, Error> {
    let error = |reason: String| Error::Program {
        program: CYCLICTEST,
        reason,
        fix: "`sudo apt-get install rt-tests`, and run as root",
    };
    let cpu = CpuSet::single(cpu)?;
    let output = Command::new(CYCLICTEST)
        .args(["--mlockall", "--nsecs", "--verbose", "--threads=1", "--policy=fifo"])
        .args([format!("--priority={priority}"), format!("--affinity={cpu}")])
        .args([format!("--interval={}", period.as_micros()), format!("--loops={cycles}")])
        .stdin(Stdio::null())
        .output()
        .map_err(|source| error(format!("cannot be run: {source}")))?;
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr);
        return Err(error(format!("{}: {}", output.status, message.trim())));
    }
    let samples_ns = parse_samples(&String::from_utf8_lossy(&output.stdout));
    if samples_ns.is_empty() {
        return Err(error("printed no samples".into()));
    }
    Ok(Lateness { samples_ns, skipped: 0, granted: None, dma_latency_error: None })
}

/// Reads lines `thread: cycle: latency` of thread 0. Negative latencies (the clock read early)
/// count as 0.
fn parse_samples(text: &str) -> Vec<u64> {
    let sample = |line: &str| {
        let mut fields = line.split(':').map(str::trim);
        let (thread, cycle, latency) = (fields.next()?, fields.next()?, fields.next()?);
        cycle.parse::<u64>().ok()?;
        let latency: i64 = latency.parse().ok()?;
        (thread == "0" && fields.next().is_none()).then_some(latency.max(0) as u64)
    };
    text.lines().filter_map(sample).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measures_every_cycle() {
        let probe = Probe {
            settings: ThreadSettings::default(),
            period: Duration::from_micros(500),
            cycles: 40,
            sleep: SleepStrategy::Kernel,
        };
        let lateness = wakeup_lateness(&probe).unwrap();
        assert_eq!(lateness.samples_ns.len(), 40);
        assert!(lateness.quantile_ns(0.0) <= lateness.quantile_ns(0.5));
        assert_eq!(lateness.quantile_ns(1.0), lateness.samples_ns.iter().copied().max());
        assert!(wakeup_lateness(&Probe { period: Duration::ZERO, ..probe }).is_err());
    }

    #[test]
    fn reads_the_output_of_cyclictest() {
        let text = "Max CPUs = 2\n# /dev/cpu_dma_latency set to 0us\n       0:       0:    5123\n       0:       1:   -20\n\
                    1: 1: 9\nT: 0 ( 12) P:80 I:1000 C: 10 Min: 3\n";
        assert_eq!(parse_samples(text), [5123, 0]);
    }

    #[test]
    fn runs_cyclictest_where_it_is_installed() {
        match cyclictest(10, 0, Duration::from_millis(1), 50) {
            Ok(lateness) => assert!(!lateness.samples_ns.is_empty()),
            Err(error @ Error::Program { .. })
                if std::env::var_os("TAKT_REQUIRE_OUTSIDE").is_none_or(|value| value != "1") =>
            {
                takt_witness::skip!("{error}");
            }
            Err(error) => panic!("{error}"),
        }
    }
}

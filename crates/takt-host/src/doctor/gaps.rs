//! Times in which a CPU did nothing for us although nobody may take it: a loop at real-time
//! priority that does nothing but read the clock, and looks for jumps.
//!
//! Causes of a gap: another task (the kernel's count of involuntary switches, read at every gap),
//! interrupts (`/proc/interrupts` over the windows), the hypervisor (steal), and system management
//! interrupts, which no kernel sees: their counter reports them if the machine and the privilege
//! allow, otherwise they are the rest.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use takt_rt::clock::{self, monotonic_ns};
use takt_rt::cpus::MachineCpus;
use takt_rt::memory::thread_switches;
use takt_rt::placement::CpuSet;
use takt_rt::policy::Policy;
use takt_rt::procfs::CpuTime;
use takt_rt::settings::ThreadSettings;
use takt_rt::thread;

use crate::doctor::error::DoctorError;
use crate::doctor::interrupts::Interrupts;
use crate::doctor::tree::Tree;

/// Spinning and pause within a cycle. 75 % is below the 95 % at which real-time throttling and the
/// fair server come in, and leaves the other threads of the machine a turn five times a second.
const SPIN_NS: u64 = 150_000_000;
const CYCLE_NS: u64 = 200_000_000;

/// A jump beyond this is a stall, but no gap yet. The loop takes some 30 ns; the shortest interrupt
/// takes about this.
const STALL_NS: u64 = 1000;

/// Counter of system management interrupts of Intel CPUs since Nehalem (MSR_SMI_COUNT).
const MSR_SMI_COUNT: u64 = 0x34;

/// Options of the search for gaps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GapOptions {
    /// Duration, pauses included.
    pub duration: Duration,
    /// Threshold of a gap. Default 10 µs: longer than any usual interrupt, shorter than what breaks
    /// a loop of 1 kHz.
    pub threshold: Duration,
    /// The loop's priority (SCHED_FIFO). Default 90: above what robots use, below the kernel's own
    /// threads of highest urgency (99: migration, watchdog).
    pub priority: u8,
    /// On which CPUs, at the same time. `None`: all that the caller may use, isolated ones too.
    pub cpus: Option<CpuSet>,
}

impl Default for GapOptions {
    fn default() -> Self {
        Self {
            duration: Duration::from_secs(1),
            threshold: Duration::from_micros(10),
            priority: 90,
            cpus: None,
        }
    }
}

/// Observations of the loop on one CPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CpuGaps {
    pub cpu: usize,
    /// Time spent looking, nanoseconds.
    pub looked_ns: u64,
    /// Gaps at or above the threshold.
    pub gaps: u64,
    /// Of these, gaps in which the kernel switched to another task.
    pub preempted: u64,
    /// The longest gap, nanoseconds; 0 without one.
    pub worst_ns: u64,
    /// The longest gap in which no other task ran, nanoseconds.
    pub worst_alone_ns: u64,
    /// All gaps together, nanoseconds.
    pub lost_ns: u64,
    /// Jumps above 1 µs, gaps among them.
    pub stalls: u64,
    /// Interrupts that this CPU served meanwhile; `None` where the kernel does not report.
    pub interrupts: Option<u64>,
    /// Time that the hypervisor took from this CPU meanwhile, nanoseconds, in steps of 10 ms.
    pub steal_ns: u64,
    /// System management interrupts meanwhile, where their counter can be read.
    pub smis: Option<u64>,
    /// Whether the loop ran at real-time priority. If not, any thread of the machine may have made
    /// the gaps.
    pub real_time: bool,
}

impl CpuGaps {
    /// Stalls that are more than the interrupts and switches of the time: the least number that
    /// something below this kernel must have made.
    pub fn unexplained(&self) -> Option<u64> {
        Some(self.stalls.saturating_sub(self.interrupts?).saturating_sub(self.preempted))
    }
}

/// Looks for gaps, on all asked CPUs at the same time. Without the right to real-time priority it
/// looks all the same, and says so.
///
/// # Errors
/// [`DoctorError::Option`] for options out of their bounds.
pub(crate) fn detect_gaps(options: &GapOptions) -> Result<Vec<CpuGaps>, DoctorError> {
    if !(1..=98).contains(&options.priority) {
        let given = options.priority.to_string();
        return Err(DoctorError::Option { field: "priority", given, expected: "1..=98" });
    }
    let error = |field, given: String, expected| DoctorError::Option { field, given, expected };
    let threshold_ns = options.threshold.as_nanos() as u64;
    if !(Duration::from_nanos(STALL_NS)..=Duration::from_secs(1)).contains(&options.threshold) {
        return Err(error("threshold", format!("{:?}", options.threshold), "1µs..=1s"));
    }
    if !(Duration::from_millis(1)..=Duration::from_secs(3600)).contains(&options.duration) {
        return Err(error("duration", format!("{:?}", options.duration), "1ms..=1h"));
    }
    let usable = || MachineCpus::read().ok().map(|machine| machine.usable);
    let cpus = options.cpus.or_else(usable).unwrap_or(CpuSet::EMPTY);
    // All begin together, when the last thread is there.
    let start_ns = monotonic_ns() + 20_000_000;
    let end_ns = start_ns + options.duration.as_nanos() as u64;
    let handles: Vec<_> = cpus
        .iter()
        .filter_map(|cpu| {
            let settings = ThreadSettings {
                policy: Policy::Fifo { priority: options.priority },
                cpus: CpuSet::single(cpu).ok(),
                ..ThreadSettings::default()
            };
            let name: String = format!("takt-gap-{cpu}").chars().take(15).collect();
            let body = move |granted: &takt_rt::settings::Granted| {
                let real_time = granted.effective.policy.is_some_and(|policy| policy.is_real_time());
                // Without its CPU, it would report of another one.
                let placed = granted.effective.cpus == CpuSet::single(cpu).ok();
                placed.then(|| look(cpu, start_ns, end_ns, threshold_ns, real_time))
            };
            // A CPU that went offline meanwhile has no gaps.
            thread::spawn_with(&name, &settings, body).ok()
        })
        .collect();
    Ok(handles.into_iter().filter_map(|handle| handle.join().ok().flatten()).collect())
}

fn look(cpu: usize, start_ns: u64, end_ns: u64, threshold_ns: u64, real_time: bool) -> CpuGaps {
    let mut found = CpuGaps {
        cpu,
        looked_ns: 0,
        gaps: 0,
        preempted: 0,
        worst_ns: 0,
        worst_alone_ns: 0,
        lost_ns: 0,
        stalls: 0,
        interrupts: Some(0),
        steal_ns: 0,
        smis: smi_count(cpu).map(|_| 0),
        real_time,
    };
    let tree = Tree::new(std::path::Path::new("/"));
    let mut window_ns = start_ns;
    while window_ns < end_ns {
        clock::sleep_until(window_ns);
        let interrupts = Interrupts::read(&tree).and_then(|all| all.of_cpu(cpu));
        let (steal, smis) = (steal_ns(&tree, cpu), smi_count(cpu));
        spin(&mut found, (window_ns + SPIN_NS).min(end_ns), threshold_ns);
        let served =
            Interrupts::read(&tree).and_then(|all| Some(all.of_cpu(cpu)?.saturating_sub(interrupts?)));
        found.interrupts = found.interrupts.zip(served).map(|(sum, served)| sum + served);
        found.smis = found
            .smis
            .zip(smi_count(cpu))
            .zip(smis)
            .map(|((sum, now), before)| sum + (now - before.min(now)));
        found.steal_ns += steal_ns(&tree, cpu).saturating_sub(steal);
        window_ns += CYCLE_NS;
    }
    found
}

fn spin(found: &mut CpuGaps, until_ns: u64, threshold_ns: u64) {
    let mut switches = thread_switches().involuntary;
    let first = monotonic_ns();
    let mut last = first;
    while last < until_ns {
        let now = monotonic_ns();
        let jump = now - last;
        last = now;
        if jump <= STALL_NS {
            continue;
        }
        found.stalls += 1;
        if jump >= threshold_ns {
            found.gaps += 1;
            found.lost_ns += jump;
            found.worst_ns = found.worst_ns.max(jump);
            let switched = thread_switches().involuntary;
            if switched == switches {
                found.worst_alone_ns = found.worst_alone_ns.max(jump);
            } else {
                found.preempted += 1;
            }
            switches = switched;
            // Time spent on the examination is not a gap.
            last = monotonic_ns();
        }
    }
    found.looked_ns += last - first;
}

fn smi_count(cpu: usize) -> Option<u64> {
    let mut value = [0; 8];
    File::open(format!("/dev/cpu/{cpu}/msr")).ok()?.read_exact_at(&mut value, MSR_SMI_COUNT).ok()?;
    // The upper half is reserved.
    Some(u64::from_le_bytes(value) & 0xffff_ffff)
}

/// Stolen time of one CPU.
fn steal_ns(tree: &Tree, cpu: usize) -> u64 {
    let stat = tree.text("/proc/stat").unwrap_or_default();
    CpuTime::by_cpu(&stat).find(|&(number, _)| number == cpu).map_or(0, |(_, time)| time.steal_ns())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn looks_for_as_long_as_asked_and_counts_what_adds_up() {
        let _machine = crate::doctor::alone();
        let options =
            GapOptions { duration: Duration::from_millis(60), priority: 2, ..GapOptions::default() };
        let found = detect_gaps(&options).unwrap();
        assert_eq!(found.len(), MachineCpus::read().unwrap().usable.len());
        for cpu in &found {
            // Under load without a right to real-time priority, a single gap may fill all of the
            // time.
            assert!(cpu.looked_ns > 0, "{cpu:?}");
            assert!(cpu.gaps <= cpu.stalls && cpu.preempted <= cpu.gaps, "{cpu:?}");
            assert!(cpu.worst_alone_ns <= cpu.worst_ns && cpu.worst_ns <= cpu.lost_ns, "{cpu:?}");
            assert!(cpu.lost_ns <= cpu.looked_ns, "{cpu:?}");
            assert!((cpu.gaps == 0) == (cpu.worst_ns == 0));
        }
    }

    #[test]
    fn another_task_on_the_cpu_is_distinguished_from_the_hardware() {
        let _machine = crate::doctor::alone();
        let cpu = MachineCpus::read().unwrap().usable.iter().next().unwrap();
        let set = CpuSet::single(cpu).unwrap();
        // Preempts the loop, of priority 2, for half a millisecond now and then.
        let settings = ThreadSettings {
            policy: Policy::Fifo { priority: 5 },
            cpus: Some(set),
            strict: true,
            ..Default::default()
        };
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let pest = match thread::spawn("pest", &settings, move || {
            while !stopped.load(Ordering::Acquire) {
                let busy = monotonic_ns() + 500_000;
                while monotonic_ns() < busy {}
                clock::sleep_until(monotonic_ns() + 5_000_000);
            }
        }) {
            Ok(pest) => pest,
            Err(refusal) => {
                takt_witness::skip!("{refusal}");
                return;
            }
        };
        let duration = Duration::from_millis(100);
        let options = GapOptions { duration, priority: 2, cpus: Some(set), ..GapOptions::default() };
        // Another test's measurement, of higher priority, may hold the CPU for a whole look: then
        // look again.
        let seen = |found: &[CpuGaps]| found[0].preempted >= 3 && found[0].worst_ns >= 500_000;
        let mut found = detect_gaps(&options).unwrap();
        for _ in 0..100 {
            if seen(&found) {
                break;
            }
            found = detect_gaps(&options).unwrap();
        }
        stop.store(true, Ordering::Release);
        pest.join().unwrap();
        assert!(seen(&found), "{found:?}");
    }

    #[test]
    fn options_out_of_bounds_are_refused() {
        for options in [
            GapOptions { priority: 99, ..GapOptions::default() },
            GapOptions { threshold: Duration::ZERO, ..GapOptions::default() },
            GapOptions { duration: Duration::MAX, ..GapOptions::default() },
        ] {
            assert!(matches!(detect_gaps(&options), Err(DoctorError::Option { .. })));
        }
    }

    #[test]
    fn stalls_beyond_interrupts_and_switches_are_unexplained() {
        let mut gaps = look(0, 0, 0, 10_000, false);
        assert_eq!((gaps.looked_ns, gaps.unexplained()), (0, Some(0)));
        (gaps.stalls, gaps.interrupts, gaps.preempted) = (50, Some(30), 5);
        assert_eq!(gaps.unexplained(), Some(15));
        gaps.interrupts = None;
        assert_eq!(gaps.unexplained(), None);
    }
}

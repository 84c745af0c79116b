//! Measurements on the running system, and what they say.

use std::time::{Duration, Instant};

use takt_rt::cpus::MachineCpus;
use takt_rt::latency;
use takt_rt::periodic::SleepStrategy;
use takt_rt::placement::CpuSet;
use takt_rt::policy::Policy;
use takt_rt::probe::{Lateness, Probe, wakeup_lateness};
use takt_rt::processor::Family;
use takt_rt::procfs::CpuTime;
use takt_rt::settings::ThreadSettings;

use crate::doctor::clocks::{self, Reading};
use crate::doctor::cpus;
use crate::doctor::error::DoctorError;
use crate::doctor::gaps::{CpuGaps, GapOptions, detect_gaps};
use crate::doctor::interrupts::{Interrupts, Rate};
use crate::doctor::options::Options;
use crate::doctor::processor;
use crate::doctor::report::Check;
use crate::doctor::tree::Tree;

/// Time between wake-ups of the lateness probe: a loop of 2 kHz.
const PROBE_PERIOD: Duration = Duration::from_micros(500);

/// Lateness and gaps from here on cost a loop of 1 kHz a tenth of its period, and half of it.
const WARN_NS: u64 = 100_000;
const FAIL_NS: u64 = 500_000;

/// Stolen share of the CPU time that is noticed, and that makes any deadline a matter of luck.
const WARN_STEAL: f64 = 0.000_5;
const FAIL_STEAL: f64 = 0.01;

#[derive(Debug)]
pub(crate) struct Measured {
    /// CPU and lateness of wake-ups there.
    pub(crate) lateness: Vec<(usize, Lateness)>,
    /// Whether the probes ran at real-time priority.
    pub(crate) real_time: bool,
    /// Lateness of a SCHED_OTHER thread beside them.
    pub(crate) other: Option<Lateness>,
    pub(crate) rates: Option<Vec<Rate>>,
    pub(crate) gaps: Vec<CpuGaps>,
    pub(crate) clock: Reading,
    /// Share of the CPU time that the hypervisor took while all of this was measured; `None` where
    /// it is not reported.
    pub(crate) stolen: Option<f64>,
    pub(crate) seconds: f64,
}

impl Measured {
    /// Half of the wake-ups, on the CPU where that is worst, came later than this.
    pub(crate) fn median_ns(&self) -> Option<u64> {
        self.lateness.iter().filter_map(|(_, lateness)| lateness.quantile_ns(0.5)).max()
    }
}

/// Measures for about `options.seconds`: a half for lateness and interrupt rates, a half for gaps.
pub(crate) fn measure(tree: &Tree, options: &Options) -> Result<Measured, DoctorError> {
    let began = Instant::now();
    let before_all = cpu_time(tree);
    let clock = clocks::measure_reading();
    let half = Duration::from_secs_f64(options.seconds * 0.48);
    let cpus = MachineCpus::read().map_or(CpuSet::EMPTY, |machine| machine.usable);
    let (since, before) = (Instant::now(), Interrupts::read(tree));
    let (lateness, other) = lateness(&cpus, options.priority, half);
    let rates = Interrupts::read(tree).zip(before);
    let rates = rates.map(|(after, before)| after.since(&before, since.elapsed().as_secs_f64()));
    let gaps = detect_gaps(&GapOptions {
        duration: half,
        threshold: options.gap,
        priority: options.priority,
        cpus: Some(cpus),
    })?;
    let real_time = lateness.iter().all(|(_, lateness)| {
        let granted = lateness.granted.as_ref().and_then(|granted| granted.effective.policy);
        granted.is_some_and(|policy| policy.is_real_time())
    });
    let stolen = cpu_time(tree)
        .zip(before_all)
        .and_then(|(now, before)| (now.total > before.total).then(|| now.since(&before).stolen));
    let seconds = began.elapsed().as_secs_f64();
    Ok(Measured { lateness, real_time, other, rates, gaps, clock, stolen, seconds })
}

/// Probes on all CPUs at the same time, and one under SCHED_OTHER.
fn lateness(cpus: &CpuSet, priority: u8, duration: Duration) -> (Vec<(usize, Lateness)>, Option<Lateness>) {
    let cycles = (duration.as_micros() / PROBE_PERIOD.as_micros()).max(1) as usize;
    let probe = |policy, cpus| Probe {
        settings: ThreadSettings { policy, cpus, ..ThreadSettings::default() },
        period: PROBE_PERIOD,
        cycles,
        sleep: SleepStrategy::Kernel,
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = cpus
            .iter()
            .map(|cpu| {
                let probe = probe(Policy::Fifo { priority }, CpuSet::single(cpu).ok());
                (cpu, scope.spawn(move || wakeup_lateness(&probe).ok()))
            })
            .collect();
        let other = probe(Policy::default(), None);
        let other = scope.spawn(move || wakeup_lateness(&other).ok());
        let found = threads.into_iter().filter_map(|(cpu, thread)| Some((cpu, thread.join().ok()??)));
        // Without its CPU, a probe would report of another one.
        let placed = |(cpu, lateness): &(usize, Lateness)| {
            let granted = lateness.granted.as_ref().and_then(|granted| granted.effective.cpus);
            granted == CpuSet::single(*cpu).ok()
        };
        (found.filter(placed).collect(), other.join().ok().flatten())
    })
}

/// Of all CPUs since boot.
fn cpu_time(tree: &Tree) -> Option<CpuTime> {
    CpuTime::of_all(&tree.text("/proc/stat")?).filter(|time| time.total > 0)
}

fn us(ns: u64) -> f64 {
    ns as f64 / 1000.0
}

const REDUCED: &str = "; measured without real-time priority, so any program may be the cause";

/// The kernel's default slack.
const DEFAULT_SLACK_NS: u64 = 50_000;

pub(crate) fn slack(measured: Option<&Measured>) -> Check {
    let check = Check::new(
        "timer_slack",
        "Timer slack",
        "timers of SCHED_OTHER threads may fire late by up to the slack, so that wake-ups can be grouped; real-time policies have no slack",
    );
    let Some(measured) = measured else { return check.unknown("known only on the running system") };
    let Ok(slack_ns) = latency::timer_slack_ns() else { return check.unknown("the slack cannot be read") };
    let medians = (measured.other.as_ref().and_then(|l| l.quantile_ns(0.5)), measured.median_ns());
    let shown = match medians {
        (Some(other), Some(real_time)) => format!(
            "; measured: half of all wake-ups were later than {:?} under SCHED_OTHER, and later than {:?} under {}",
            Duration::from_nanos(other),
            Duration::from_nanos(real_time),
            if measured.real_time { "SCHED_FIFO" } else { "SCHED_OTHER too, since SCHED_FIFO was refused" },
        ),
        _ => String::new(),
    };
    let check = check.with_number("timer_slack_ns", slack_ns as f64);
    let evidence = format!("{slack_ns} ns for SCHED_OTHER threads of this session{shown}");
    if slack_ns > DEFAULT_SLACK_NS {
        return check
            .warn(evidence, "set `timer_slack_ns = 1` for SCHED_OTHER threads in the robot's configuration");
    }
    check.ok(evidence)
}

pub(crate) fn wakeups(measured: Option<&Measured>) -> Check {
    let check = Check::new(
        "wakeup_lateness",
        "Wake-up lateness",
        "a control loop starts this late, whatever the cause: the sum of all following findings",
    );
    let Some(measured) = measured else { return check.unknown("not measured") };
    let quantile =
        |q| measured.lateness.iter().filter_map(move |(cpu, l)| Some((l.quantile_ns(q)?, *cpu))).max();
    let (Some((worst, cpu)), Some((p99, _)), Some(median)) =
        (quantile(1.0), quantile(0.99), measured.median_ns())
    else {
        return check.unknown("no probe could be started");
    };
    let count: usize = measured.lateness.iter().map(|(_, lateness)| lateness.samples_ns.len()).sum();
    let skipped: u64 = measured.lateness.iter().map(|(_, lateness)| lateness.skipped).sum();
    let evidence = format!(
        "{count} wake-ups at 2 kHz on CPUs {}: median {:.1} us, 99 % within {:.1} us, worst {:.1} us (CPU {cpu}), {skipped} \
         periods lost{}",
        CpuSet::from_cpus(measured.lateness.iter().map(|(cpu, _)| *cpu)).unwrap_or(CpuSet::EMPTY),
        us(median),
        us(p99),
        us(worst),
        if measured.real_time { "" } else { REDUCED },
    );
    let check = check
        .with_number("median_us", us(median))
        .with_number("p99_us", us(p99))
        .with_number("worst_us", us(worst));
    let check = measured.lateness.iter().fold(check, |check, (cpu, lateness)| {
        let worst = lateness.quantile_ns(1.0).map_or(f64::NAN, us);
        check.with_number(&format!("cpu{cpu}_worst_us"), worst)
    });
    let fix = "see the other findings; `takt bench` measures your robot under load";
    match worst {
        // Other programs may have been the cause: nothing is said against the machine.
        _ if !measured.real_time => check.unknown(evidence),
        _ if skipped > 0 => check.fail(evidence, fix),
        ns if ns >= FAIL_NS => check.fail(evidence, fix),
        ns if ns >= WARN_NS => check.warn(evidence, fix),
        _ => check.ok(evidence),
    }
}

pub(crate) fn hardware_gaps(tree: &Tree, measured: Option<&Measured>, threshold: Duration) -> Check {
    let check = Check::new(
        "hardware_gaps",
        "Hardware gaps",
        &format!(
            "{} and hypervisors stop a CPU without the kernel's knowledge; no kernel setting prevents that",
            processor::below_the_kernel(processor::family(tree))
        ),
    );
    let Some(measured) = measured else { return check.unknown("not measured") };
    judge_gaps(check, &measured.gaps, tree, threshold)
}

fn judge_gaps(check: Check, gaps: &[CpuGaps], tree: &Tree, threshold: Duration) -> Check {
    let is_virtual = cpus::is_virtual(tree);
    let Some(worst) = gaps.iter().max_by_key(|cpu| cpu.worst_alone_ns) else {
        return check.unknown("no CPU could be examined");
    };
    let sum = |field: fn(&CpuGaps) -> u64| gaps.iter().map(field).sum::<u64>();
    let (count, preempted) = (sum(|cpu| cpu.gaps), sum(|cpu| cpu.preempted));
    let option = |field: fn(&CpuGaps) -> Option<u64>| gaps.iter().map(field).sum::<Option<u64>>();
    let (interrupts, smis) = (option(|cpu| cpu.interrupts), option(|cpu| cpu.smis));
    let unexplained = option(CpuGaps::unexplained);
    let looked_s = sum(|cpu| cpu.looked_ns) as f64 / 1e9;
    let real_time = gaps.iter().all(|cpu| cpu.real_time);
    let mut evidence = format!(
        "in {looked_s:.2} s of spinning on CPUs {}: {count} gaps above {threshold:?}, {preempted} of them another task; longest other gap \
         {:.1} us (CPU {}); {} jumps above 1 us in total",
        CpuSet::from_cpus(gaps.iter().map(|gaps| gaps.cpu)).unwrap_or(CpuSet::EMPTY),
        us(worst.worst_alone_ns),
        worst.cpu,
        sum(|cpu| cpu.stalls),
    );
    if let (Some(interrupts), Some(unexplained)) = (interrupts, unexplained) {
        evidence.push_str(&format!(
            " against {interrupts} interrupts, so no interrupt explains at least {unexplained} of them"
        ));
    }
    evidence.push_str(&format!("; stolen {} ms", sum(|cpu| cpu.steal_ns) / 1_000_000));
    match smis {
        Some(smis) => {
            evidence.push_str(&format!("; {smis} system management interrupts, counted by the CPUs"))
        }
        None if is_virtual => {
            evidence.push_str("; this is a virtual machine: the hypervisor is the likely cause")
        }
        None => match processor::family(tree) {
            Family::Arm | Family::Riscv => {
                evidence.push_str("; this processor does not count its firmware's interruptions")
            }
            Family::X86 | Family::Unknown => evidence.push_str(
                "; the CPUs' count of system management interrupts cannot be read (`sudo modprobe msr`, Intel only)",
            ),
        },
    }
    if !real_time {
        evidence.push_str(REDUCED);
    }
    let check = check
        .with_number("gaps", count as f64)
        .with_number("gaps_preempted", preempted as f64)
        .with_number("worst_us", us(worst.worst_alone_ns))
        .with_number("unexplained_stalls", unexplained.map_or(f64::NAN, |n| n as f64))
        .with_number("system_management_interrupts", smis.map_or(f64::NAN, |n| n as f64));
    let fix = if is_virtual {
        "run on the hardware itself; or pin the virtual CPUs to isolated CPUs of the host and give them real-time priority"
    } else {
        processor::firmware_fix(tree)
    };
    // As many interrupts as jumps, and no count of the CPU's own that says otherwise: nothing is
    // said against the hardware.
    let explained = unexplained == Some(0) && smis.is_none_or(|smis| smis == 0);
    match worst.worst_alone_ns {
        // Without priority nothing can be distinguished.
        _ if !real_time => check.unknown(evidence),
        ns if explained && ns >= WARN_NS => check.warn(
            format!("{evidence}; interrupts may explain all of them"),
            "move interrupts to other CPUs (/proc/irq/*/smp_affinity_list), then examine again",
        ),
        ns if ns >= FAIL_NS => check.fail(evidence, fix),
        ns if ns >= WARN_NS => check.warn(evidence, fix),
        _ if smis.is_some_and(|smis| smis > 0) => check.warn(evidence, fix),
        _ => check.ok(evidence),
    }
}

pub(crate) fn hypervisor(tree: &Tree, measured: Option<&Measured>) -> Check {
    let check = Check::new(
        "hypervisor",
        "Hypervisor and steal",
        "a hypervisor runs other machines on these CPUs unnoticed: real-time policies count only within the virtual machine",
    );
    let is_virtual = cpus::is_virtual(tree);
    let stolen = measured.and_then(|measured| measured.stolen);
    let since_boot = cpu_time(tree).map(|time| time.since(&CpuTime::default()).stolen);
    let percent = |share: Option<f64>| {
        share.map_or_else(|| "unknown".into(), |share| format!("{:.2} %", share * 100.0))
    };
    let evidence = format!(
        "{}; stolen since boot {}, {}",
        if is_virtual { "a virtual machine" } else { "no hypervisor visible" },
        percent(since_boot),
        match measured {
            Some(measured) => format!("{} in {:.1} s of measuring", percent(stolen), measured.seconds),
            None => "not measured".into(),
        },
    );
    let check = check.with_number("stolen_share", stolen.unwrap_or(f64::NAN));
    let worst = stolen.unwrap_or(0.0).max(since_boot.unwrap_or(0.0));
    let fix = "run on the hardware itself; or have the virtual CPUs pinned to dedicated CPUs (libvirt: `vcpupin`, `vcpusched`)";
    match is_virtual || worst > 0.0 {
        _ if stolen.is_some_and(|share| share >= FAIL_STEAL) => check.fail(evidence, fix),
        true if is_virtual || worst >= WARN_STEAL => check.warn(evidence, fix),
        _ if !tree.exists("/proc/cpuinfo") => check.unknown("/proc/cpuinfo cannot be read"),
        _ => check.ok(evidence),
    }
}

#[cfg(test)]
#[path = "measure_tests.rs"]
mod tests;

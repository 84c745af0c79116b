//! Cost of tracing: latency of a 1 kHz loop and CPU time, with tracing off, on, and with full
//! rings.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use takt_rt::clock::{self, monotonic_ns};
use takt_rt::jobs::JobRecord;
use takt_rt::periodic::{Periodic, SleepStrategy};
use takt_rt::settings::ThreadSettings;
use takt_rt::thread;
use takt_stats::Summary;

use crate::analysis::analyse;
use crate::capture::{KeepAwake, TraceOptions, Tracer};
use crate::error::TraceError;
use crate::event::Trace;

/// State of tracing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// No tracing.
    Off,
    /// Tracing as usual.
    On,
    /// Rings that nobody drains: full after some milliseconds.
    Full,
}

/// One mode's cost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    pub mode: Mode,
    /// Wake-up after the release, microseconds.
    pub lateness_us: Summary,
    /// CPU time of the loop per release, microseconds: with its switches and timers, without the
    /// interrupts.
    pub loop_cpu_us: f64,
    /// CPU time of the reader, percent of one CPU.
    pub reader_cpu_percent: f64,
    /// Events per second on all CPUs, whoever caused them.
    pub events_per_s: f64,
    pub lost_events: u64,
    /// Share of the releases that were matched with their activation.
    pub matched_share: Option<f64>,
}

/// Cost of tracing on this machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Overhead {
    /// Off, on, full.
    pub costs: Vec<Cost>,
    /// Cost of one event for its CPU: difference of on and off in a ping-pong of two threads.
    pub ns_per_event: f64,
    /// Events times that, and the reader: percent of the machine's CPU time while tracing is on.
    pub cpu_percent: f64,
    /// The same for the events around the loop alone, as on a machine that does nothing else.
    pub loop_cpu_percent: f64,
}

/// Runs the three modes in turns, `rounds` times one second each, on `cpu`, under FIFO 80 where
/// that is granted.
pub fn measure(rounds: u32, cpu: usize) -> Result<Overhead, TraceError> {
    let modes = [Mode::Off, Mode::On, Mode::Full];
    let mut costs = Vec::new();
    let mut samples: [Vec<f64>; 3] = Default::default();
    let mut per_release = 0.0;
    for (mode, lateness) in modes.iter().zip(&mut samples) {
        lateness.reserve(1000 * rounds as usize);
        costs.push(Cost {
            mode: *mode,
            lateness_us: Summary::default(),
            loop_cpu_us: 0.0,
            reader_cpu_percent: 0.0,
            events_per_s: 0.0,
            lost_events: 0,
            matched_share: None,
        });
    }
    let rounds = rounds.max(1);
    for _ in 0..rounds {
        for (cost, lateness) in costs.iter_mut().zip(&mut samples) {
            let tracer = tracer(cost.mode)?;
            let begin_ns = monotonic_ns();
            let (tid, jobs, cpu_ns) = run_loop(cpu)?;
            let seconds = (monotonic_ns() - begin_ns) as f64 / 1e9;
            lateness.extend(jobs.iter().map(|job| job.lateness_ns() as f64 / 1e3));
            cost.loop_cpu_us += cpu_ns as f64 / 1e3 / jobs.len().max(1) as f64 / f64::from(rounds);
            let Some(tracer) = tracer else { continue };
            let reader_ns = clock::cpu_ns_of_thread(tracer.reader_tid());
            let trace = tracer.stop()?;
            cost.reader_cpu_percent += reader_ns as f64 / 1e7 / seconds / f64::from(rounds);
            cost.events_per_s += trace.events.len() as f64 / seconds / f64::from(rounds);
            cost.lost_events += trace.lost_events;
            if cost.mode == Mode::On {
                let report = analyse(&trace, tid, &jobs)?;
                if let Some(share) = report.matched_share() {
                    let share = share / f64::from(rounds);
                    cost.matched_share = Some(cost.matched_share.unwrap_or(0.0) + share);
                }
                let own = trace.events.iter().filter(|event| event.tid == tid).count();
                // Its timer's interrupt brings eight more: entry, exit, expiry twice, waking,
                // wakeup, charge, switch.
                per_release = own as f64 / jobs.len().max(1) as f64 + 8.0;
            }
        }
    }
    for (cost, lateness) in costs.iter_mut().zip(&mut samples) {
        cost.lateness_us = Summary::of(lateness);
    }
    let ns_per_event = event_cost(cpu)?;
    let cpus = std::thread::available_parallelism().map_or(1.0, |count| count.get() as f64);
    let on = &costs[1];
    let percent = |events_per_s: f64| (events_per_s * ns_per_event / 1e7 + on.reader_cpu_percent) / cpus;
    let cpu_percent = percent(on.events_per_s);
    let loop_cpu_percent = percent(per_release * 1000.0);
    Ok(Overhead { costs, ns_per_event, cpu_percent, loop_cpu_percent })
}

fn tracer(mode: Mode) -> Result<Option<Tracer>, TraceError> {
    // The cost of tracing itself, without that of a CPU that is kept awake.
    let on = TraceOptions { keep_awake: KeepAwake::Off, ..TraceOptions::default() };
    let full = TraceOptions { buffer_bytes: 64 << 10, drain: false, ..on.clone() };
    match mode {
        Mode::Off => Ok(None),
        Mode::On => Tracer::start(&on).map(Some),
        Mode::Full => Tracer::start(&full).map(Some),
    }
}

fn settings(cpu: usize) -> ThreadSettings {
    ThreadSettings {
        policy: takt_rt::policy::Policy::Fifo { priority: 80 },
        cpus: takt_rt::placement::CpuSet::single(cpu).ok(),
        ..ThreadSettings::default()
    }
}

/// A thousand releases at 1 kHz: thread, records and CPU time.
fn run_loop(cpu: usize) -> Result<(i32, Vec<JobRecord>, u64), TraceError> {
    let body = || -> Result<(Vec<JobRecord>, u64), takt_rt::Error> {
        let mut jobs = Vec::with_capacity(1000);
        let mut periodic = Periodic::start_now(Duration::from_millis(1), SleepStrategy::Kernel)?;
        let before_ns = clock::thread_cpu_ns();
        for _ in 0..1000 {
            let release = periodic.next();
            let start_ns = monotonic_ns();
            jobs.push(JobRecord { start_ns, end_ns: monotonic_ns(), ..JobRecord::of(&release) });
        }
        Ok((jobs, clock::thread_cpu_ns() - before_ns))
    };
    let handle = thread::spawn("overhead", &settings(cpu), body).map_err(TraceError::Reader)?;
    let tid = handle.tid();
    let (jobs, cpu_ns) = handle.join().and_then(|outcome| outcome).map_err(TraceError::Reader)?;
    Ok((tid, jobs, cpu_ns))
}

/// Two threads of one CPU wake each other in turns; what an event costs is the difference between
/// traced and untraced rounds, divided by the events of one. The medians of short blocks leave
/// interruptions out.
fn event_cost(cpu: usize) -> Result<f64, TraceError> {
    const BLOCKS: usize = 60;
    const TURNS: usize = 100;
    let block = |count: usize| -> Result<Vec<f64>, TraceError> {
        let body = move || {
            let (go, gone) = (std::sync::mpsc::sync_channel::<()>(0), std::sync::mpsc::sync_channel::<()>(0));
            let settings = settings(cpu);
            let answer = thread::spawn("overhead-pong", &settings, move || {
                while go.1.recv().is_ok() && gone.0.send(()).is_ok() {}
            })?;
            let mut blocks = Vec::with_capacity(count);
            for _ in 0..count {
                let begin_ns = monotonic_ns();
                for _ in 0..TURNS {
                    let _ = go.0.send(());
                    let _ = gone.1.recv();
                }
                blocks.push((monotonic_ns() - begin_ns) as f64 / TURNS as f64);
            }
            drop((go.0, gone.1));
            answer.join()?;
            Ok(blocks)
        };
        let handle = thread::spawn("overhead-ping", &settings(cpu), body).map_err(TraceError::Reader)?;
        handle.join().and_then(|outcome| outcome).map_err(TraceError::Reader)
    };
    let mut off = block(BLOCKS)?;
    let tracer = tracer(Mode::On)?;
    let begin_ns = monotonic_ns();
    let mut on = block(BLOCKS)?;
    let end_ns = monotonic_ns();
    let trace = tracer.map_or_else(|| Ok(Trace::default()), Tracer::stop)?;
    let ours = trace.tids("overhead-ping").into_iter().chain(trace.tids("overhead-pong")).collect::<Vec<_>>();
    let events = trace.between(begin_ns, end_ns).iter().filter(|event| ours.contains(&event.tid)).count();
    let events_per_turn = events as f64 / (BLOCKS * TURNS) as f64;
    let difference_ns = Summary::of(&mut on).median - Summary::of(&mut off).median;
    Ok(difference_ns.max(0.0) / events_per_turn.max(1.0))
}

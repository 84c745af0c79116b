//! A periodic real-time thread, traced, and interference planted beside it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use takt_rt::clock::{monotonic_ns, sleep_until};
use takt_rt::jobs::JobRecord;
use takt_rt::periodic::{Periodic, SleepStrategy};
use takt_rt::placement::CpuSet;
use takt_rt::settings::ThreadSettings;
use takt_trace::analysis::{Late, Thresholds};
use takt_trace::{Cause, TraceOptions, Tracer, analyse_with};

/// CPU of the traced thread and of what disturbs it.
pub const CPU: usize = 0;

pub fn settings(policy: &str, cpu: Option<usize>) -> ThreadSettings {
    ThreadSettings {
        policy: policy.parse().unwrap(),
        cpus: cpu.map(|cpu| CpuSet::single(cpu).unwrap()),
        ..ThreadSettings::default()
    }
}

pub fn spin(ns: u64) {
    let until_ns = monotonic_ns() + ns;
    while monotonic_ns() < until_ns {
        std::hint::spin_loop();
    }
}

pub fn pause(ns: u64) {
    sleep_until(monotonic_ns() + ns);
}

/// Outcome of a plant.
#[derive(Debug)]
pub struct Outcome {
    pub name: &'static str,
    /// Planted windows that made a release late.
    pub cases: usize,
    pub right: usize,
    pub wrong: Vec<Late>,
    pub matched: f64,
    pub lost: u64,
}

pub struct Plant<'a> {
    pub name: &'static str,
    /// Policy of the traced thread, and whether it is bound to [`CPU`].
    pub policy: &'a str,
    pub bound: bool,
    pub period_ns: u64,
    pub late_ns: u64,
    pub expected: &'a [Cause],
    /// Part of the name that must be blamed.
    pub who: &'a str,
}

impl Plant<'_> {
    /// Runs `job` (with its number) every period, until `disturb` returns; it returns the windows
    /// of its interference.
    pub fn run(
        &self,
        mut job: impl FnMut(u64) + Send + 'static,
        disturb: impl FnOnce(i32) -> Vec<(u64, u64)>,
    ) -> Option<Outcome> {
        let tracer = Tracer::start(&TraceOptions::default()).unwrap();
        let done = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&done);
        let settings = settings(self.policy, self.bound.then_some(CPU));
        let period_ns = self.period_ns;
        let victim = takt_rt::thread::spawn("victim", &settings, move || {
            let mut periodic =
                Periodic::start_now(Duration::from_nanos(period_ns), SleepStrategy::Kernel).unwrap();
            let mut jobs = Vec::with_capacity(100_000);
            while !stop.load(Ordering::Relaxed) && jobs.len() < 100_000 {
                let release = periodic.next();
                let start_ns = monotonic_ns();
                job(release.index);
                jobs.push(JobRecord { start_ns, end_ns: monotonic_ns(), ..JobRecord::of(&release) });
            }
            jobs
        })
        .unwrap();
        if !victim.granted().is_complete() {
            takt_witness::skip!("in part: {}: {:?}", self.name, victim.granted().differences);
            done.store(true, Ordering::Relaxed);
            let _ = victim.join();
            return None;
        }
        let tid = victim.tid();
        pause(100_000_000);
        let windows = disturb(tid);
        pause(20_000_000);
        done.store(true, Ordering::Relaxed);
        let jobs = victim.join().unwrap();
        let trace = tracer.stop().unwrap();
        let thresholds =
            Thresholds { lateness_ns: self.late_ns, response_ns: Some(self.late_ns), windows: usize::MAX };
        let report = analyse_with(&trace, tid, &jobs, &thresholds).unwrap();
        if std::env::var_os("TAKT_TRACE_SHOW").is_some() {
            println!(
                "{}: {} of {} matched, causes {:#?}",
                self.name, report.matched, report.releases, report.causes
            );
        }
        let mut outcome = Outcome {
            name: self.name,
            cases: 0,
            right: 0,
            wrong: Vec::new(),
            matched: report.matched_share().unwrap_or(0.0),
            lost: report.lost_events,
        };
        for (from_ns, to_ns) in windows {
            // The worst release whose job the interference can have touched; the list begins with
            // the worst.
            let touched = |late: &&Late| late.end_ns >= from_ns && late.planned_ns <= to_ns;
            let Some(late) = report.windows.iter().find(touched) else { continue };
            outcome.cases += 1;
            if self.expected.contains(&late.cause) && late.who.contains(self.who) {
                outcome.right += 1;
            } else {
                let parts: Vec<_> =
                    late.parts.iter().map(|part| (part.cause, part.who.as_str(), part.ns / 1000)).collect();
                println!("  {} {} {} us: {parts:?}", late.index, late.cause.title(), late.response_us);
                // What the kernel said about the beginning of it: a wrong answer may be rare.
                let since = trace.events.partition_point(|event| event.time_ns + 500_000 < late.planned_ns);
                for event in &trace.events[since..trace.events.len().min(since + 80)] {
                    let us = (event.time_ns as f64 - late.planned_ns as f64) / 1e3;
                    println!(
                        "    {us:+10.1} us, cpu {}, {}: {:?}",
                        event.cpu,
                        trace.name(event.tid),
                        event.kind
                    );
                }
                outcome.wrong.push(late.clone());
            }
        }
        Some(outcome)
    }
}

/// Ten times `act`, with its windows, 25 ms apart.
pub fn ten_times(mut act: impl FnMut()) -> Vec<(u64, u64)> {
    (0..10)
        .map(|_| {
            let from_ns = monotonic_ns();
            act();
            let to_ns = monotonic_ns();
            pause(25_000_000);
            (from_ns, to_ns)
        })
        .collect()
}

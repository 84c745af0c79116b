//! Dumps the kernel's events around a few releases of a 1 kHz loop.
use std::time::Duration;
use takt_rt::jobs::JobRecord;
use takt_rt::periodic::{Periodic, SleepStrategy};
use takt_rt::settings::ThreadSettings;
use takt_trace::{TraceOptions, Tracer};

fn main() {
    let tracer = Tracer::start(&TraceOptions::default()).unwrap_or_else(|error| panic!("{error}"));
    let settings = ThreadSettings { policy: "fifo:80".parse().unwrap_or_default(), ..Default::default() };
    let control = takt_rt::thread::spawn("loop", &settings, || {
        let mut periodic = Periodic::start_now(Duration::from_millis(1), SleepStrategy::Kernel).ok()?;
        let mut jobs = Vec::with_capacity(1000);
        for _ in 0..1000 {
            let release = periodic.next();
            let now = takt_rt::clock::monotonic_ns();
            jobs.push(JobRecord {
                start_ns: now,
                end_ns: takt_rt::clock::monotonic_ns(),
                ..JobRecord::of(&release)
            });
        }
        Some(jobs)
    });
    let Ok(control) = control else { return };
    let tid = control.tid();
    let Ok(Some(jobs)) = control.join() else { return };
    let trace = match tracer.stop() {
        Ok(trace) => trace,
        Err(error) => panic!("{error}"),
    };
    println!("{} events, {} lost, {:?}, tid {tid}", trace.events.len(), trace.lost_events, trace.notes);
    println!("{:?}", trace.spans);
    let report = takt_trace::analyse(&trace, tid, &jobs).unwrap_or_else(|error| panic!("{error}"));
    println!("{report:#?}");
}

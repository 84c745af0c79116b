//! How fast a recorded file is read and analysed on one core, by the CPU time of the thread:
//! `cargo run --example offline_speed [FILE THREAD]`. Without a file, a recorded one repeated to
//! some hundred megabytes.

#![allow(clippy::unwrap_used)] // An example may panic as tests may.

use takt_rt::clock::thread_cpu_ns;
use takt_trace::Thresholds;
use takt_trace::analysis::{analyse_with, observed_jobs};
use takt_trace::offline::read_bytes;

#[path = "../src/offline/synthetic.rs"]
mod synthetic;

fn main() {
    let mut args = std::env::args().skip(1);
    let (file, thread) = match (args.next(), args.next()) {
        (Some(file), Some(thread)) => (std::fs::read(file).unwrap(), thread),
        _ => {
            let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/cyclictest.perf.data");
            (synthetic::repeated(&std::fs::read(path).unwrap(), 2000), "cyclictest".to_owned())
        }
    };
    for _ in 0..3 {
        let begin_ns = thread_cpu_ns();
        let trace = read_bytes(&file).unwrap();
        let read_ns = thread_cpu_ns();
        // The newest of the name: the others are its helpers.
        let tid = *trace.tids(&thread).last().expect("the thread is in the file");
        let jobs = observed_jobs(&trace, tid);
        let jobs_ns = thread_cpu_ns();
        let report = analyse_with(&trace, tid, &jobs, &Thresholds::default()).unwrap();
        let end_ns = thread_cpu_ns();
        let events = trace.events.len() as f64;
        let each = |from_ns: u64, to_ns: u64| (to_ns - from_ns) as f64 / events;
        println!(
            "{} MB, {} events: read {:.0} ns, jobs {:.0} ns, analysis {:.0} ns an event; {:.2} million events/s; {} of {} matched",
            file.len() >> 20,
            trace.events.len(),
            each(begin_ns, read_ns),
            each(read_ns, jobs_ns),
            each(jobs_ns, end_ns),
            events * 1e3 / (end_ns - begin_ns) as f64,
            report.matched,
            report.releases,
        );
    }
}

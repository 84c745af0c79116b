//! Any bytes are a trace, in the order of time, or a clear error; and whatever stands in a trace,
//! it can be analysed.
#![no_main]

use libfuzzer_sys::fuzz_target;
use takt_trace::analysis::observed_jobs;
use takt_trace::{Clock, Thresholds, analyse_with, offline, perfetto};

fuzz_target!(|bytes: &[u8]| {
    match offline::read_bytes(bytes) {
        Ok(mut trace) => {
            assert!(trace.events.is_sorted_by_key(|event| event.time_ns));
            trace.clock = Clock::Monotonic;
            let Some(tid) = trace.threads.keys().next().copied() else { return };
            let jobs = observed_jobs(&trace, tid);
            let thresholds = Thresholds { lateness_ns: 0, response_ns: Some(0), windows: 3 };
            let report = analyse_with(&trace, tid, &jobs, &thresholds).expect("the clock is the right one");
            assert!(report.matched <= report.releases && report.releases <= jobs.len() as u64);
            perfetto::export(std::io::sink(), &trace, &[]).expect("nothing to fail");
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});

//! Any bytes are a trace, in the order of time, or a clear error.
#![no_main]

use libfuzzer_sys::fuzz_target;
use takt_trace::offline;

fuzz_target!(|bytes: &[u8]| {
    match offline::read_bytes(bytes) {
        Ok(trace) => {
            assert!(trace.events.is_sorted_by_key(|event| event.time_ns));
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});

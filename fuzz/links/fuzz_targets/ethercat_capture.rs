//! Capture files and application logs of anybody: read, analysed, printed.
#![no_main]

use libfuzzer_sys::fuzz_target;
use takt_link_ethercat::analyse::{AppLog, Limits, Traffic, analyse};
use takt_link_ethercat::capture::read_from;

fuzz_target!(|data: &[u8]| {
    // A log, a line of NUL, a capture.
    let (log, capture) = match data.iter().position(|byte| *byte == 0) {
        Some(at) => (&data[..at], &data[at + 1..]),
        None => (&data[..0], data),
    };
    let mut traffic = Traffic::default();
    let _ = read_from(capture, &mut |packet| traffic.add(&packet));
    let log = std::str::from_utf8(log).ok().and_then(|text| AppLog::from_csv(text, 0).ok());
    let report = analyse(&traffic, log.as_ref(), &Limits::default());
    let _ = report.text(10, log.is_none());
});

//! Any text is a mission or a clear error; a mission that is accepted survives being written and
//! read.
#![no_main]

use libfuzzer_sys::fuzz_target;
use takt_link_rtde::arm::Mission;

fuzz_target!(|text: &str| {
    match Mission::from_toml(text) {
        Ok(mission) => mission.check().expect("accepted once"),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});

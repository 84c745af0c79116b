//! Any text is a robot of one of the kinds, or a clear error; one that is accepted survives being
//! written and read.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;

#[path = "../../../crates/takt/src/registry.rs"]
mod registry;

use registry::ROBOTS;

fuzz_target!(|text: &str| {
    // Recordings that are built in would be unpacked into the user's cache folder: a side effect,
    // no parsing.
    if text.contains("builtin") {
        return;
    }
    match ROBOTS.parse(text, "fuzz.toml", Path::new("")) {
        Ok(file) => {
            assert!(!file.describe().is_empty());
            assert!(file.expected_seconds().is_none_or(|seconds| seconds >= 0.0));
            let written = file.to_toml().expect("what was read can be written");
            let again = ROBOTS.parse(&written, "again.toml", Path::new("")).expect("accepted once");
            assert_eq!(again.to_toml().expect("written before"), written);
        }
        Err(error) => assert!(error.to_string().contains("fuzz.toml"), "{error}"),
    }
});

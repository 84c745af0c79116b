//! Any text is a cell or a clear error; a cell that is accepted survives being written and read.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use takt_robot_cell::lab::CellFile;

fuzz_target!(|text: &str| {
    // Recordings that are built in would be unpacked into the user's cache folder: a side effect,
    // no parsing.
    if text.contains("builtin") {
        return;
    }
    match CellFile::parse(text, "fuzz.toml", Path::new("")) {
        Ok(file) => {
            let written = toml::to_string(&file).expect("what was read can be written");
            let again = CellFile::parse(&written, "again.toml", Path::new("")).expect("accepted once");
            // As text: a number that is not a number is not equal to itself.
            assert_eq!(toml::to_string(&again).expect("written before"), written);
        }
        Err(error) => {
            let message = error.to_string();
            let names_it = message.starts_with("fuzz.toml: ") || message.contains("builtin:");
            assert!(names_it, "the file, or the unknown recording, is named: {message}");
        }
    }
});

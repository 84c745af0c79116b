//! The memory that the cell and the worker of perception share, whatever a broken side writes
//! there.
#![no_main]

use libfuzzer_sys::fuzz_target;
use takt_perception::process::read_image;

fuzz_target!(|memory: &[u8]| {
    if let Err(error) = read_image(memory) {
        assert!(!error.to_string().is_empty());
    }
});

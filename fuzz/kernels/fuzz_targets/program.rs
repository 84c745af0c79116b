//! A program and the dynamic linker's cache: which libraries it names, or a sentence why it is
//! none.
#![no_main]

use libfuzzer_sys::fuzz_target;
use parts::parts;
use takt_kernels::image::read_program;

fuzz_target!(|data: &[u8]| {
    let [cache, program] = parts(data);
    match read_program(program, cache) {
        Ok((named, known)) => assert!(known <= named),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});

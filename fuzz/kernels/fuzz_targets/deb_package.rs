//! Any bytes as a kernel package: an error or an unpacked kernel, never a file outside the folder.
#![no_main]

use libfuzzer_sys::fuzz_target;
use takt_kernels::packages::{Limits, unpack};

fuzz_target!(|bytes: &[u8]| {
    let outer = tempfile::tempdir().unwrap();
    let limits = Limits { unpacked_bytes: 8 << 20, file_bytes: 1 << 20, entries: 1_000 };
    let _ = unpack(bytes, &outer.path().join("kernel"), limits);
    assert!(std::fs::read_dir(outer.path()).unwrap().count() <= 1);
});

//! Any bytes as a kernel's file: its name for itself, and the kernel packed in it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use takt_kernels::machine::kernel_within;
use takt_kernels::packages::Kernel;

fuzz_target!(|bytes: &[u8]| {
    let most = 1 << 20;
    if let Some(kernel) = kernel_within(bytes, most) {
        assert!(kernel.len() as u64 <= most && kernel.starts_with(b"\x7fELF"));
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("vmlinuz");
    std::fs::write(&path, bytes).expect("a file");
    if let Err(error) = Kernel::from_path(&path, None) {
        assert!(!error.to_string().is_empty());
    }
});

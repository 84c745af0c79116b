//! The kernels under true concurrency: the emulated device runs their threads one after another, a
//! GPU does not.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]

use std::path::Path;
use std::process::Command;

#[test]
fn cells_are_joined_alike_whatever_thread_comes_first() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = std::env::temp_dir().join(format!("takt-races-{}", std::process::id()));
    let compiled = Command::new("c++")
        .args(["-std=c++17", "-O2", "-pthread", "-Wall", "-Wno-unused-function", "-o"])
        .arg(&program)
        .arg(format!("-DKERNELS=\"{}\"", root.join("src/gpu/kernels.cu").display()))
        .arg(root.join("tests/data/races.cpp"))
        .output();
    let compiled = match compiled {
        Ok(compiled) => compiled,
        Err(error) => {
            assert!(
                std::env::var_os("TAKT_REQUIRE_OUTSIDE").is_none_or(|value| value != "1"),
                "c++: {error}"
            );
            takt_witness::skip!("c++: {error}");
            return;
        }
    };
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let output = Command::new(&program).output();
    std::fs::remove_file(&program).unwrap();
    let output = output.unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("100 rounds, 0 differ"), "{text}");
}

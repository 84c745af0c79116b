//! Declares the `loom` configuration flag, under which the lock-free modules are model-checked.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(loom)");
}

//! An init and nothing else, for guests that run other programs than Takt, and for the tests.

use std::process::ExitCode;

fn main() -> ExitCode {
    if takt_kernels::guest::is_init() {
        takt_kernels::guest::run();
    }
    eprintln!("takt-guest: runs as the first process of a virtual machine created by `takt kernels`");
    ExitCode::from(2)
}

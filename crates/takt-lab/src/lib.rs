//! Runs robots and keeps what was measured: run directories, benches, verdicts.

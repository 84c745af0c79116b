//! Not a test: the last program of a test run, which prints what was skipped and why.

use std::process::ExitCode;

fn main() -> ExitCode {
    // Tools ask every test program for a list of its tests.
    if std::env::args().any(|argument| argument == "--list") {
        return ExitCode::SUCCESS;
    }
    let Some(path) = takt_witness::list() else { return ExitCode::SUCCESS };
    match takt_witness::take(&path) {
        Ok(text) => print!(
            "\n{text}\nTests marked `ignored` take more than ten seconds each. CI runs them; so does `cargo test --workspace -- \
             --include-ignored --skip campaign_`.\n\n"
        ),
        Err(error) => {
            eprintln!("{}: {error}", path.display());
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

//! Printing to streams that may close or fill. The standard macros panic then, and a run must
//! neither end because `| tee` has died nor stay unsealed because a disk is full: what cannot be
//! printed is counted, the program goes on, and its exit status reports.
//!
//! The macros of this file take the place of the standard ones in this whole crate. Output for
//! people has its verdicts in colour on a terminal ([`crate::print::colour`]).

use std::fmt;
use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicI32, Ordering};

use crate::print::colour;

/// Exit status of a command that did what it should and could not report it.
pub const OUTPUT_LOST: u8 = 3;

/// Error number of the first failed write to each stream; 0 for none.
static STDOUT: AtomicI32 = AtomicI32::new(0);
static STDERR: AtomicI32 = AtomicI32::new(0);

fn note(lost: &AtomicI32, outcome: io::Result<()>) {
    if let Err(error) = outcome {
        let number = error.raw_os_error().unwrap_or(-1);
        // The first is kept.
        let _ = lost.compare_exchange(0, number, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// Writes to standard output.
pub fn to_stdout(text: fmt::Arguments<'_>) {
    note(&STDOUT, io::stdout().lock().write_all(colour::for_stdout(&text.to_string()).as_bytes()));
}

/// Writes to standard error.
pub fn to_stderr(text: fmt::Arguments<'_>) {
    note(&STDERR, io::stderr().lock().write_all(colour::for_stderr(&text.to_string()).as_bytes()));
}

/// Ends the output. `code` unless the command succeeded and something that it said was lost.
pub fn finish(code: ExitCode) -> ExitCode {
    note(&STDOUT, io::stdout().lock().flush());
    let lost = |stream: &AtomicI32| match stream.load(Ordering::Relaxed) {
        0 => None,
        number => Some(io::Error::from_raw_os_error(number)),
    };
    if let Some(error) = lost(&STDOUT).filter(|error| error.kind() != ErrorKind::BrokenPipe) {
        // A reader that has gone away knows it, a full disk does not.
        to_stderr(format_args!("takt: the output could not be printed and is lost: {error}\n"));
    }
    match lost(&STDOUT).or(lost(&STDERR)) {
        Some(_) if code == ExitCode::SUCCESS => ExitCode::from(OUTPUT_LOST),
        _ => code,
    }
}

macro_rules! print {
    ($($part:tt)*) => { $crate::out::to_stdout(::std::format_args!($($part)*)) };
}

macro_rules! println {
    () => { $crate::out::to_stdout(::std::format_args!("\n")) };
    ($($part:tt)*) => { $crate::out::to_stdout(::std::format_args!("{}\n", ::std::format_args!($($part)*))) };
}

macro_rules! eprintln {
    () => { $crate::out::to_stderr(::std::format_args!("\n")) };
    ($($part:tt)*) => { $crate::out::to_stderr(::std::format_args!("{}\n", ::std::format_args!($($part)*))) };
}

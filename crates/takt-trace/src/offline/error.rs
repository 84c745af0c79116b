//! Errors of reading a recorded file.

use std::io;
use std::path::PathBuf;

/// Reason why a recorded file gives no trace. A file that only ends too early does: with what was
/// whole, and a note.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OfflineError {
    /// The file cannot be read.
    #[error("cannot read {path}: {source}")]
    Read { path: PathBuf, source: io::Error },
    /// Neither of the kinds that we read.
    #[error(
        "this is neither a perf.data file nor a trace.dat file: it begins with {received}, expected `PERFILE2` or \
         17 08 44 `tracing`{hint}"
    )]
    Unknown {
        /// The first bytes.
        received: String,
        /// Its probable kind, with its separator.
        hint: &'static str,
    },
    /// A part that everything after it depends on is cut off.
    #[error(
        "torn file: {part} at byte {offset} needs {expected} bytes, and {received} are left. Fix: copy the file again, or record again and \
         stop the recorder with SIGINT, not SIGKILL"
    )]
    Torn { part: &'static str, offset: u64, expected: u64, received: u64 },
    /// A value that makes no sense.
    #[error(
        "damaged file: {part} at byte {offset} is {received}, expected {expected}. Fix: copy or record it again"
    )]
    Damaged { part: &'static str, offset: u64, received: String, expected: &'static str },
    /// The recorder was ended before it wrote what is needed to read the events.
    #[error(
        "the recorder did not finish this file ({part} is missing), so its events cannot be read. Fix: record again and end the recorder \
         with SIGINT (Ctrl-C), not with SIGKILL or by switching the machine off"
    )]
    Unfinished { part: &'static str },
    /// More of something than is read.
    #[error("{received} {what}; at most {most} are read. Fix: {fix}")]
    Limit { what: &'static str, received: u64, most: u64, fix: &'static str },
    /// An instance was asked for that the file does not have.
    #[error(
        "the file has no trace instance `{wanted}`; it has: {received}. Fix: pass one of these, or leave out `--instance`"
    )]
    NoInstance { wanted: String, received: String },
    /// Events only in instances, and several of them.
    #[error(
        "the main buffer has no events, and several trace instances have: {received}. Fix: pass one of them, `--instance NAME`"
    )]
    SeveralInstances { received: String },
    /// Times of a clock that does not count time, with nothing in the file that relates it to one.
    #[error(
        "the trace counts time by the clock `{clock}` in {unit}, and nothing in it shows how long one lasts. Fix: record \
         hrtimer_expire_entry as well (`trace-cmd record -C {clock} -e sched -e timer`), or by a clock that counts nanoseconds \
         (`trace-cmd record -C mono`)"
    )]
    NoTime { clock: String, unit: &'static str },
    /// A kind of file that we do not read, and what to do.
    #[error("{what} cannot be read. Fix: {fix}")]
    Unsupported { what: String, fix: &'static str },
}

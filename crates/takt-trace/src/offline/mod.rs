//! Traces recorded elsewhere by the standard tools: `perf.data` of `perf record`, `trace.dat` of
//! `trace-cmd record`.
//!
//! ```text
//! perf record -a -k CLOCK_MONOTONIC -e 'sched:*,irq:*,irq_vectors:*,timer:hrtimer_*' -- sleep 10
//! trace-cmd record -C mono -e sched -e irq -e irq_vectors -e hrtimer sleep 10
//! ```
//!
//! Events come out in the order of time across CPUs. The clock of the file is named in
//! [`Trace::clock`]: both tools stamp by a clock of their own unless reported as above, and then job
//! records cannot be matched. Records that the kernel lost stand as
//! [`Kind::Lost`](crate::event::Kind::Lost) where they are missing. A file that ends too early
//! gives what was whole, and a note with the place.
//!
//! A file is not trusted: whatever its bytes are, there is a trace or an [`OfflineError`].

mod bytes;
mod error;
mod pages;
mod perf_data;
mod sections;
#[cfg(test)]
mod synthetic;
mod trace_dat;
mod tracing_data;

use std::path::Path;

pub use error::OfflineError;

use crate::event::Trace;

/// Reads a `perf.data` or `trace.dat` file, whichever it is. The whole file is held in memory while
/// it is read.
pub fn read(path: &Path) -> Result<Trace, OfflineError> {
    let file = takt_files::read(path, takt_files::TRACE_BYTES)
        .map_err(|source| OfflineError::Read { path: path.to_owned(), source })?;
    read_bytes(&file)
}

/// Reads the bytes of a `perf.data` or `trace.dat` file.
pub fn read_bytes(file: &[u8]) -> Result<Trace, OfflineError> {
    if file.starts_with(perf_data::MAGIC) {
        return perf_data::read(file);
    }
    if file.starts_with(tracing_data::MAGIC) {
        return trace_dat::read(file);
    }
    let hint = match file {
        [] => ": it is empty",
        _ if file.starts_with(b"2ELIFREP") => ": a perf.data of a machine of the other byte order",
        _ if file.starts_with(b"PERFFILE") => ": a perf.data of a perf before Linux 2.6.38",
        _ if file.starts_with(b"PERFILE") || tracing_data::MAGIC.starts_with(file) => ": it is cut off",
        _ => "",
    };
    let received = match &file[..file.len().min(12)] {
        [] => "nothing".to_owned(),
        start => format!("`{}`", start.escape_ascii()),
    };
    Err(OfflineError::Unknown { received, hint })
}

/// Says how many records had to be left out.
fn note_undecoded(trace: &mut Trace, records: u64) {
    if records > 0 {
        trace.notes.push(format!(
            "{records} records of events that Takt does not use, or that are damaged, are left out"
        ));
    }
}

#[cfg(test)]
mod tests;

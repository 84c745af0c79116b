//! Traces recorded elsewhere by the standard tools: `perf.data` of `perf record`, `trace.dat` of
//! `trace-cmd record`.
//!
//! ```text
//! perf record -a -k CLOCK_MONOTONIC -e 'sched:*,irq:*,irq_vectors:*,timer:hrtimer_*' -- sleep 10
//! trace-cmd record -C mono -e sched -e irq -e irq_vectors -e 'timer:hrtimer_*' sleep 10
//! ```
//!
//! Events come out in the order of time across CPUs. Both tools stamp by a clock of their own
//! unless asked as above; such times are brought to CLOCK_MONOTONIC where the file has
//! `hrtimer_expire_entry` ([`Trace::clock_map`]), else they are of the clock that [`Trace::clock`]
//! names. Records that the kernel lost stand as [`Kind::Lost`](crate::event::Kind::Lost) where they
//! are missing. A file that ends too early gives what was whole, and a note with the place.
//!
//! A file is not trusted: whatever its bytes are, there is a trace or an [`OfflineError`].

mod bytes;
mod clock;
mod error;
mod limits;
mod pages;
mod perf_data;
mod perf_layout;
mod perf_records;
mod sections;
#[cfg(test)]
mod synthetic;
mod trace_dat;
mod tracing_data;

use std::io::{self, Read};
use std::path::Path;

pub use error::OfflineError;

use crate::event::{Clock, Trace};

/// Reads a `perf.data` or `trace.dat` file, whichever it is, or a folder of `perf record
/// --threads`. All of it is held in memory while it is read.
///
/// # Errors
/// [`OfflineError`].
pub fn read(path: &Path) -> Result<Trace, OfflineError> {
    read_instance(path, None)
}

/// As [`read`], of a `trace.dat` the events of the trace instance `instance` (`trace-cmd record
/// -B`). Without a name: of the main buffer or, where that is empty, of the only instance.
///
/// # Errors
/// [`OfflineError`].
pub fn read_instance(path: &Path, instance: Option<&str>) -> Result<Trace, OfflineError> {
    let failed = |source| OfflineError::Read { path: path.to_owned(), source };
    let (file, folder) = match path.is_dir() {
        true => (path.join("data"), Some(path)),
        // One file of such a folder; the others are beside it.
        false if path.file_name().is_some_and(|name| name == "data") => (path.to_owned(), path.parent()),
        false => (path.to_owned(), None),
    };
    let hinted = |source: io::Error| {
        let hint = match folder {
            Some(_) if source.kind() == io::ErrorKind::NotFound => io::Error::other(
                "it is not a folder of `perf record --threads`, which contains a file `data`; pass the file itself",
            ),
            _ => source,
        };
        failed(hint)
    };
    // By its first bytes: of a file of gigabytes that is no trace, nothing else is read.
    let mut start = Vec::new();
    let opened = takt_files::open(&file).map_err(hinted)?;
    opened.take(MAGIC_BYTES).read_to_end(&mut start).map_err(failed)?;
    if !is_known(&start) {
        return Err(unknown(&start));
    }
    let bytes = takt_files::read(&file, takt_files::TRACE_BYTES).map_err(failed)?;
    let beside = match folder {
        Some(folder) => threads_files(folder, bytes.len() as u64).map_err(failed)?,
        None => Vec::new(),
    };
    read_parts(&bytes, &beside, instance)
}

/// The files `data.N` of a folder, by number.
fn threads_files(folder: &Path, read_bytes: u64) -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut names: Vec<(u32, String)> = Vec::new();
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    for entry in std::fs::read_dir(folder)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if let Some(number) = name.strip_prefix("data.").and_then(|number| number.parse().ok()) {
            names.push((number, name));
        }
        if names.len() > limits::MAX_FILES {
            return Err(io::Error::new(
                io::ErrorKind::FileTooLarge,
                format!("it has more than {} files data.N, and no more are read", limits::MAX_FILES),
            ));
        }
    }
    names.sort_unstable();
    let mut left = takt_files::TRACE_BYTES.saturating_sub(read_bytes);
    let mut files = Vec::with_capacity(names.len());
    for (_, name) in names {
        let bytes = takt_files::read(&folder.join(&name), left)?;
        left = left.saturating_sub(bytes.len() as u64);
        files.push((name, bytes));
    }
    Ok(files)
}

/// Reads the bytes of a `perf.data` or `trace.dat` file.
///
/// # Errors
/// [`OfflineError`].
pub fn read_bytes(file: &[u8]) -> Result<Trace, OfflineError> {
    read_parts(file, &[], None)
}

fn read_parts(
    file: &[u8],
    beside: &[(String, Vec<u8>)],
    instance: Option<&str>,
) -> Result<Trace, OfflineError> {
    let mut trace = if file.starts_with(perf_data::MAGIC) {
        if let Some(wanted) = instance {
            return Err(OfflineError::NoInstance {
                wanted: takt_files::quoted(wanted),
                received: "none, as no perf.data has".to_owned(),
            });
        }
        perf_data::read(file, beside)?
    } else if file.starts_with(tracing_data::MAGIC) {
        trace_dat::read(file, instance)?
    } else {
        return Err(unknown(file));
    };
    let clock = trace.clock.clone();
    match (clock::to_monotonic(&mut trace), clock) {
        (Err(unit), Clock::Other(clock)) => Err(OfflineError::NoTime { clock, unit }),
        _ => Ok(trace),
    }
}

/// Enough of a file to know what it is.
const MAGIC_BYTES: u64 = 16;

fn is_known(start: &[u8]) -> bool {
    start.starts_with(perf_data::MAGIC) || start.starts_with(tracing_data::MAGIC)
}

fn unknown(file: &[u8]) -> OfflineError {
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
    OfflineError::Unknown { received, hint }
}

/// Says how many records had to be left out.
fn note_undecoded(trace: &mut Trace, records: u64) {
    if records > 0 {
        trace.notes.push(format!(
            "{records} records are left out because Takt does not use their events or they are damaged"
        ));
    }
}

#[cfg(test)]
mod tests;

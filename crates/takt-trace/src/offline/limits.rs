//! Limits of the readers of recorded traces, in one place; docs/src/limits.md lists them.

use super::error::OfflineError;

/// Unpacked bytes of one section or chunk of a trace.dat: the largest section, the kernel's
/// symbols, has some ten MiB, and trace-cmd's chunks have some ten pages.
pub(super) const MAX_SECTION_BYTES: u32 = 256 << 20;

/// Unpacked bytes of all chunks of a trace.dat or records of a perf.data for each byte of the
/// file. zstd and zlib pack a kernel's events to a fifth, and pages that are almost empty to a
/// hundredth.
pub(super) const MAX_UNPACKED_RATIO: u64 = 200;

/// Unpacked size up to which the ratio is not checked.
pub(super) const MIN_UNPACKED_BYTES: u64 = 64 << 20;

/// Unpacked bytes of one compressed record of a perf.data, which holds what one look at a ring
/// buffer found.
pub(super) const MAX_RECORD_BYTES: usize = 64 << 20;

/// Events of a trace: 48 bytes each in memory. A machine of 64 CPUs makes ten million in ten
/// seconds under load.
pub(super) const MAX_EVENTS: usize = 200_000_000;

/// CPUs of a trace.
pub(super) const MAX_CPUS: u32 = 65_535;

/// Trace instances of a trace.dat.
pub(super) const MAX_INSTANCES: usize = 1024;

/// Sections of options of a trace.dat of version 7: trace-cmd writes one for each buffer, and one.
pub(super) const MAX_OPTION_SECTIONS: usize = 4096;

/// Events in the list of a perf.data, which has one for each tracepoint that was asked for.
pub(super) const MAX_ATTRS: u64 = 65_536;

/// Files of a folder of `perf record --threads`, which has one for each thread that recorded.
pub(super) const MAX_FILES: usize = 4096;

/// Refuses a trace of more events than are read.
pub(super) fn events(count: usize) -> Result<(), OfflineError> {
    match count <= MAX_EVENTS {
        true => Ok(()),
        false => Err(OfflineError::Limit {
            what: "events and more",
            received: count as u64,
            most: MAX_EVENTS as u64,
            fix: "cut a part out: `trace-cmd split START END -i trace.dat`, or `perf record` for a shorter time",
        }),
    }
}

/// Refuses a file that unpacks to more than recordings do.
pub(super) fn unpacked(bytes: u64, file_bytes: u64) -> Result<(), OfflineError> {
    let most = file_bytes.saturating_mul(MAX_UNPACKED_RATIO).max(MIN_UNPACKED_BYTES);
    match bytes <= most {
        true => Ok(()),
        false => Err(OfflineError::Limit {
            what: "unpacked bytes and more",
            received: bytes,
            most,
            fix: "unpack it first: `trace-cmd convert --compression none -i trace.dat -o plain.dat`, or record without `-z`",
        }),
    }
}

//! The begin and the end of a function of a program, as its threads run through it: breakpoints
//! that the kernel sets (uprobes) and takes out again when this program closes them, or ends in
//! whatever way.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use perf_event_open_sys as perf;
use perf_event_open_sys::bindings as b;
use takt_rt::perf_ring::PerfRing;

/// Room for some hundred hits.
const RING_BYTES: usize = 8 << 10;
/// Of the uprobe unit: the probe is at the return; the place of the semaphore is in the upper half
/// (its `format` folder in sysfs).
const AT_RETURN: u64 = 1;
const SEMAPHORE_SHIFT: u32 = 32;

/// A place in a program's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProbePoint {
    /// Offset in the file.
    pub offset: u64,
    /// Offset of the counter that says whether anybody listens (USDT); 0 for none.
    pub semaphore: u64,
    /// Not there, but where the function that begins there returns.
    pub at_return: bool,
}

/// A thread came to a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hit {
    /// When, CLOCK_MONOTONIC.
    pub time_ns: u64,
    /// The thread.
    pub tid: i32,
    /// The first of the two places.
    pub begin: bool,
}

/// Two places that one thread is watched at. Dropping it takes the breakpoints out.
#[derive(Debug)]
pub struct Probes {
    sources: [(PerfRing, OwnedFd); 2],
}

impl Probes {
    /// Watches the thread `tid` at two places of `file`.
    ///
    /// # Errors
    /// The kernel's: no such unit before Linux 4.17, `EPERM` or `EACCES` without CAP_PERFMON.
    pub fn open(file: &Path, places: [ProbePoint; 2], tid: i32) -> io::Result<Self> {
        let unit = std::fs::read_to_string("/sys/bus/event_source/devices/uprobe/type")?;
        let unit = unit.trim().parse().map_err(|_| io::ErrorKind::InvalidData)?;
        let path = CString::new(file.as_os_str().as_bytes()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let source = |place: ProbePoint| -> io::Result<(PerfRing, OwnedFd)> {
            let event = open(unit, &path, place, tid)?;
            Ok((PerfRing::map(event.as_fd(), RING_BYTES)?, event))
        };
        let [begin, end] = places;
        Ok(Self { sources: [source(begin)?, source(end)?] })
    }

    /// Hands out what has come since the last time, in the order of time.
    pub fn drain(&mut self) -> Vec<Hit> {
        let mut hits = Vec::new();
        let mut bytes = Vec::new();
        for (index, (ring, _)) in self.sources.iter_mut().enumerate() {
            bytes.clear();
            ring.drain(&mut bytes);
            decode(&bytes, index == 0, &mut hits);
        }
        hits.sort_by_key(|hit| hit.time_ns);
        hits
    }
}

fn open(unit: u32, path: &CString, place: ProbePoint, tid: i32) -> io::Result<OwnedFd> {
    let mut attr = b::perf_event_attr {
        type_: unit,
        size: u32::try_from(size_of::<b::perf_event_attr>()).unwrap_or(b::PERF_ATTR_SIZE_VER5),
        config: place.semaphore << SEMAPHORE_SHIFT | if place.at_return { AT_RETURN } else { 0 },
        sample_type: u64::from(b::PERF_SAMPLE_TID | b::PERF_SAMPLE_TIME),
        clockid: libc::CLOCK_MONOTONIC,
        ..Default::default()
    };
    attr.__bindgen_anon_1.sample_period = 1;
    // The reader comes by the clock.
    attr.__bindgen_anon_2.wakeup_watermark = RING_BYTES as u32;
    attr.__bindgen_anon_3.uprobe_path = path.as_ptr() as u64;
    attr.__bindgen_anon_4.probe_offset = place.offset;
    attr.set_use_clockid(1);
    attr.set_watermark(1);
    // SAFETY: the attributes are whole, and the path lives through the call, in which the kernel
    // copies it.
    let fd = unsafe { perf::perf_event_open(&mut attr, tid, -1, -1, b::PERF_FLAG_FD_CLOEXEC.into()) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Samples of thread and time; records of other kinds are passed over.
fn decode(mut bytes: &[u8], begin: bool, hits: &mut Vec<Hit>) {
    const HEADER: usize = 8;
    let word = |bytes: &[u8], at: usize| bytes.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes);
    while let (Some(kind), Some(sizes)) = (word(bytes, 0), word(bytes, 4)) {
        // misc and size, 16 bits each, in the order of the machine.
        let [_, _, low, high] = sizes.to_ne_bytes();
        let size = usize::from(u16::from_ne_bytes([low, high]));
        let Some(record) = bytes.get(..size).filter(|_| size >= HEADER) else { break };
        if kind == b::PERF_RECORD_SAMPLE
            && let Some(tid) = word(record, HEADER + 4)
            && let Some(time) = record.get(HEADER + 8..HEADER + 16)
            && let Ok(time) = time.try_into()
        {
            hits.push(Hit { time_ns: u64::from_ne_bytes(time), tid: tid.cast_signed(), begin });
        }
        bytes = &bytes[size..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hits_are_decoded_and_any_bytes_are_read() {
        let mut bytes = Vec::new();
        // A record of losses, then a sample.
        bytes.extend([2_u32.to_ne_bytes(), [0, 0, 0, 0]].concat());
        let size = 16_u16.to_ne_bytes();
        bytes[6..8].copy_from_slice(&size);
        bytes.extend([0; 8]);
        bytes.extend(9_u32.to_ne_bytes());
        bytes.extend([0, 0]);
        bytes.extend(24_u16.to_ne_bytes());
        bytes.extend(4_i32.to_ne_bytes());
        bytes.extend(5_i32.to_ne_bytes());
        bytes.extend(77_u64.to_ne_bytes());
        let mut hits = Vec::new();
        decode(&bytes, true, &mut hits);
        assert_eq!(hits, [Hit { time_ns: 77, tid: 5, begin: true }]);
        for length in 0..bytes.len() {
            decode(&bytes[..length], false, &mut Vec::new());
        }
    }
}

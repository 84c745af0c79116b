//! Calls by which a thread hands something out: sends and writes. A loop that never sleeps has no
//! wake-ups, and these are its cycles.
//!
//! The kernel records them for the threads that are asked for alone, but a tracepoint of calls
//! makes every call of every process a little dearer as long as anybody listens: it is opened for
//! threads that need it.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use perf_event_open_sys as perf;
use perf_event_open_sys::bindings as b;
use takt_rt::perf_ring::PerfRing;

use crate::error::TraceError;
use crate::format::{Field, Format};
use crate::tracefs::Tracefs;

/// Room for some ten thousand calls, and for a few where little memory may be locked.
const MAX_BYTES: usize = 1 << 20;
const MIN_BYTES: usize = 16 << 10;

/// Tracepoint for the begin of every call.
const TRACEPOINT: &str = "raw_syscalls:sys_enter";

/// The calls that hand something out, with their names. Transfers of `ioctl` to devices (SPI, I2C,
/// USB) count as well.
const HANDED_OUT: [(libc::c_long, &str); 10] = [
    (libc::SYS_write, "write"),
    (libc::SYS_writev, "writev"),
    (libc::SYS_pwrite64, "pwrite"),
    (libc::SYS_pwritev, "pwritev"),
    (libc::SYS_pwritev2, "pwritev2"),
    (libc::SYS_sendto, "send"),
    (libc::SYS_sendmsg, "sendmsg"),
    (libc::SYS_sendmmsg, "sendmmsg"),
    (libc::SYS_ioctl, "ioctl"),
    (libc::SYS_io_uring_enter, "io_uring_enter"),
];

/// A call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// When it began, CLOCK_MONOTONIC.
    pub time_ns: u64,
    /// Its number.
    pub number: u32,
    /// The file that it is about.
    pub file: i32,
}

/// Returns a call's name.
pub fn name(number: u32) -> &'static str {
    let known = HANDED_OUT.iter().find(|known| known.0 == libc::c_long::from(number));
    known.map_or("call", |known| known.1)
}

/// The calls of one thread, as long as it lives.
#[derive(Debug)]
pub struct Calls {
    ring: PerfRing,
    _event: OwnedFd,
    number: Field,
    arguments: Field,
    bytes: Vec<u8>,
}

impl Calls {
    /// Records the calls of the thread `tid` from now on.
    ///
    /// # Errors
    /// [`TraceError`]: no right, no such tracepoint in this kernel (CONFIG_FTRACE_SYSCALLS), or no
    /// such thread.
    pub fn open(tid: i32) -> Result<Self, TraceError> {
        let refused = |call| move |source| TraceError::refused(call, TRACEPOINT, 0, source);
        let tracefs = Tracefs::open()?;
        let text = tracefs.read("events/raw_syscalls/sys_enter/format").map_err(|source| {
            match source.kind() == io::ErrorKind::NotFound {
                true => TraceError::Missing { tracepoint: TRACEPOINT.to_owned() },
                false => refused("read tracefs")(source),
            }
        })?;
        let format = Format::parse(TRACEPOINT, &text)?;
        let (number, arguments) = (format.field("id")?, format.field("args")?);
        let mut attr = b::perf_event_attr {
            type_: b::PERF_TYPE_TRACEPOINT,
            size: u32::try_from(size_of::<b::perf_event_attr>()).unwrap_or(b::PERF_ATTR_SIZE_VER5),
            config: u64::from(format.id),
            sample_type: u64::from(b::PERF_SAMPLE_TIME | b::PERF_SAMPLE_RAW),
            clockid: libc::CLOCK_MONOTONIC,
            ..Default::default()
        };
        attr.__bindgen_anon_1.sample_period = 1;
        // The reader comes by the clock.
        attr.__bindgen_anon_2.wakeup_watermark = MAX_BYTES as u32;
        attr.set_disabled(1);
        attr.set_use_clockid(1);
        attr.set_watermark(1);
        // SAFETY: the attributes are whole, and their size is the structure's.
        let fd = unsafe { perf::perf_event_open(&mut attr, tid, -1, -1, b::PERF_FLAG_FD_CLOEXEC.into()) };
        if fd < 0 {
            return Err(refused("perf_event_open")(io::Error::last_os_error()));
        }
        // SAFETY: the kernel has just made this descriptor for us.
        let event = unsafe { OwnedFd::from_raw_fd(fd) };
        let ids: Vec<String> = HANDED_OUT.iter().map(|(number, _)| format!("id == {number}")).collect();
        let filter = CString::new(ids.join(" || ")).unwrap_or_default();
        // SAFETY: the text is whole, and the kernel copies it; the descriptor is open.
        if unsafe { perf::ioctls::SET_FILTER(event.as_raw_fd(), filter.as_ptr().cast_mut()) } < 0 {
            return Err(refused("ioctl(SET_FILTER)")(io::Error::last_os_error()));
        }
        let mut bytes = MAX_BYTES;
        let ring = loop {
            match PerfRing::map(event.as_fd(), bytes) {
                Err(source) if source.raw_os_error() == Some(libc::EPERM) && bytes > MIN_BYTES => bytes /= 4,
                mapped => break mapped.map_err(|source| TraceError::Buffer { bytes, source })?,
            }
        };
        // SAFETY: the descriptor is open; the argument is a flag word.
        if unsafe { perf::ioctls::ENABLE(event.as_raw_fd(), 0) } < 0 {
            return Err(refused("ioctl(ENABLE)")(io::Error::last_os_error()));
        }
        Ok(Self { ring, _event: event, number, arguments, bytes: Vec::new() })
    }

    /// Hands out what has come since the last time, oldest first; returns how many calls were lost.
    pub fn drain(&mut self, take: &mut dyn FnMut(Call)) -> u64 {
        self.bytes.clear();
        self.ring.drain(&mut self.bytes);
        decode(&self.bytes, &self.number, &self.arguments, take)
    }
}

/// Samples of time and record; records of other kinds but losses are passed over.
fn decode(mut bytes: &[u8], number: &Field, arguments: &Field, take: &mut dyn FnMut(Call)) -> u64 {
    const HEADER: usize = 8;
    let word = |bytes: &[u8], at: usize| bytes.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes);
    let long = |bytes: &[u8], at: usize| bytes.get(at..at + 8)?.try_into().ok().map(u64::from_ne_bytes);
    // The first of the arguments, which are words of the machine.
    let first = Field { size: size_of::<libc::c_ulong>(), ..*arguments };
    let mut lost: u64 = 0;
    while let (Some(kind), Some(sizes)) = (word(bytes, 0), word(bytes, 4)) {
        // misc and size, 16 bits each, in the order of the machine.
        let [_, _, low, high] = sizes.to_ne_bytes();
        let size = usize::from(u16::from_ne_bytes([low, high]));
        let Some(record) = bytes.get(..size).filter(|_| size >= HEADER) else { break };
        if kind == b::PERF_RECORD_LOST {
            lost = lost.saturating_add(long(record, HEADER + 8).unwrap_or(0));
        } else if kind == b::PERF_RECORD_SAMPLE
            && let Some(time_ns) = long(record, HEADER)
            && let Some(raw) = record.get(HEADER + 12..)
            && let Some(number) = number.integer(raw).and_then(|number| u32::try_from(number).ok())
            && let Some(file) = first.integer(raw)
        {
            // A file's number is the lower half.
            take(Call { time_ns, number, file: file as i32 });
        }
        bytes = &bytes[size..];
    }
    lost
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_decoded_and_any_bytes_are_read() {
        let field = |offset, size, signed| Field { offset, size, signed, data_loc: false };
        let (number, arguments) = (field(8, 8, true), field(16, 48, false));
        let mut bytes = Vec::new();
        let mut record = |kind: u32, body: &[u8]| {
            bytes.extend(kind.to_ne_bytes());
            bytes.extend([0, 0]);
            bytes.extend((body.len() as u16 + 8).to_ne_bytes());
            bytes.extend(body);
        };
        record(b::PERF_RECORD_LOST, &[9_u64.to_ne_bytes(), 5_u64.to_ne_bytes()].concat());
        let mut sample = 77_u64.to_ne_bytes().to_vec();
        sample.extend(64_u32.to_ne_bytes());
        sample.extend([0; 8]);
        sample.extend((libc::SYS_sendto as u64).to_ne_bytes());
        sample.extend(3_u64.to_ne_bytes());
        sample.extend([0; 40]);
        record(b::PERF_RECORD_SAMPLE, &sample);
        let mut calls = Vec::new();
        assert_eq!(decode(&bytes, &number, &arguments, &mut |call| calls.push(call)), 5);
        assert_eq!(calls, [Call { time_ns: 77, number: libc::SYS_sendto as u32, file: 3 }]);
        assert_eq!((name(calls[0].number), name(u32::MAX)), ("send", "call"));
        for length in 0..bytes.len() {
            decode(&bytes[..length], &number, &arguments, &mut |_| {});
        }
    }
}

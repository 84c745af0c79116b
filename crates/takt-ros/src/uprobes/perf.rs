//! The kernel's side: uprobe events on every CPU, all of one CPU writing into one ring buffer.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use perf_event_open_sys as perf;
use perf_event_open_sys::bindings as b;
use takt_rt::perf_ring::PerfRing;

use super::record::REGISTERS;

/// The number of the PMU that makes uprobes; `None`: this kernel has none.
pub(crate) fn pmu() -> Option<u32> {
    fs::read_to_string("/sys/bus/event_source/devices/uprobe/type").ok()?.trim().parse().ok()
}

/// CPUs that are online.
pub fn cpus() -> Vec<u16> {
    let online = takt_rt::placement::online().unwrap_or_default();
    let cpus: Vec<u16> = online.iter().filter_map(|cpu| u16::try_from(cpu).ok()).collect();
    if cpus.is_empty() { vec![0] } else { cpus }
}

/// Makes room for `count` more descriptors, as far as the hard limit goes: each function has one on
/// every CPU.
pub(crate) fn allow_descriptors(count: usize) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel fills the structure.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return;
    }
    let needed = (count as libc::rlim_t).saturating_add(256).min(limit.rlim_max);
    if limit.rlim_cur < needed {
        limit.rlim_cur = needed;
        // SAFETY: reads the structure. Should it be refused, opening the events says so.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
    }
}

fn attributes() -> b::perf_event_attr {
    let mut attr = b::perf_event_attr {
        size: u32::try_from(size_of::<b::perf_event_attr>()).unwrap_or(b::PERF_ATTR_SIZE_VER5),
        sample_type: u64::from(
            b::PERF_SAMPLE_IDENTIFIER | b::PERF_SAMPLE_TID | b::PERF_SAMPLE_TIME | b::PERF_SAMPLE_REGS_USER,
        ),
        sample_regs_user: REGISTERS.0,
        clockid: libc::CLOCK_MONOTONIC,
        ..Default::default()
    };
    attr.__bindgen_anon_1.sample_period = 1;
    // The reader comes by the clock; a wake-up would be an interrupt of its own.
    attr.__bindgen_anon_2.wakeup_watermark = u32::MAX;
    attr.set_watermark(1);
    attr.set_use_clockid(1);
    attr.set_sample_id_all(1);
    attr
}

fn open(attr: &mut b::perf_event_attr, cpu: u16) -> io::Result<OwnedFd> {
    // SAFETY: the attributes are whole, their size is the structure's, and what they point to
    // outlives the call.
    let fd = unsafe { perf::perf_event_open(attr, -1, cpu.into(), -1, b::PERF_FLAG_FD_CLOEXEC.into()) };
    match fd < 0 {
        true => Err(io::Error::last_os_error()),
        // SAFETY: the kernel has just made this descriptor for us.
        false => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
    }
}

/// A uprobe: an event that was defined in tracefs, or one of this CPU alone.
#[derive(Debug, Clone, Copy)]
pub enum What<'a> {
    /// Of tracefs.
    Named { id: u64 },
    /// Made by opening it.
    Nameless {
        pmu: u32,
        path: &'a CString,
        /// Offset in the file.
        offset: u64,
    },
}

/// One CPU's buffer. Switches, ends and names of threads come from the first event, hits from those
/// added.
#[derive(Debug)]
pub struct CpuBuffer {
    cpu: u16,
    ring: PerfRing,
    first: OwnedFd,
    added: Vec<OwnedFd>,
}

impl CpuBuffer {
    /// Opens the buffer and begins to record switches, ends and names.
    pub fn open(cpu: u16, bytes: usize) -> io::Result<Self> {
        let mut attr = attributes();
        attr.type_ = b::PERF_TYPE_SOFTWARE;
        attr.config = b::PERF_COUNT_SW_DUMMY.into();
        attr.set_context_switch(1);
        attr.set_task(1);
        attr.set_comm(1);
        let first = open(&mut attr, cpu)?;
        let ring = PerfRing::map(first.as_fd(), bytes)?;
        Ok(Self { cpu, ring, first, added: Vec::new() })
    }

    /// Opens `what` on this CPU; returns the number that its samples carry.
    pub fn add(&mut self, what: What<'_>) -> io::Result<u64> {
        let mut attr = attributes();
        match what {
            What::Named { id } => {
                attr.type_ = b::PERF_TYPE_TRACEPOINT;
                attr.config = id;
            }
            What::Nameless { pmu, path, offset } => {
                attr.type_ = pmu;
                attr.__bindgen_anon_3.uprobe_path = path.as_ptr() as u64;
                attr.__bindgen_anon_4.probe_offset = offset;
            }
        }
        attr.set_disabled(1);
        let event = open(&mut attr, self.cpu)?;
        let mut id = 0u64;
        // SAFETY: both descriptors are open; the kernel writes one number.
        let refused = unsafe {
            perf::ioctls::SET_OUTPUT(event.as_raw_fd(), self.first.as_raw_fd()) < 0
                || perf::ioctls::ID(event.as_raw_fd(), &raw mut id) < 0
                || perf::ioctls::ENABLE(event.as_raw_fd(), 0) < 0
        };
        if refused {
            return Err(io::Error::last_os_error());
        }
        self.added.push(event);
        Ok(id)
    }

    /// Appends what waits, whole records, oldest first.
    pub fn drain(&mut self, out: &mut Vec<u8>) {
        self.ring.drain(out);
    }
}

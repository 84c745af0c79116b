//! The kernel's side: uprobe events on every CPU, all of one CPU writing into one ring buffer.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use perf_event_open_sys as perf;
use perf_event_open_sys::bindings as b;

use super::record::REGISTERS;

/// The number of the PMU that makes uprobes; `None`: this kernel has none.
pub fn pmu() -> Option<u32> {
    fs::read_to_string("/sys/bus/event_source/devices/uprobe/type").ok()?.trim().parse().ok()
}

/// CPUs that are online.
pub fn cpus() -> Vec<u16> {
    let text = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let mut cpus = Vec::new();
    for range in text.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        if let (Ok(first), Ok(last)) = (first.parse::<u16>(), last.parse::<u16>()) {
            cpus.extend(first..=last);
        }
    }
    if cpus.is_empty() { vec![0] } else { cpus }
}

/// Makes room for `count` more descriptors, as far as the hard limit goes: each function has one on every CPU.
pub fn allow_descriptors(count: usize) {
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
    // SAFETY: the attributes are whole, their size is the structure's, and what they point to outlives the call.
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
    Named {
        /// Its number there.
        id: u64,
    },
    /// Made by opening it.
    Nameless {
        /// The number of the PMU.
        pmu: u32,
        /// The file.
        path: &'a CString,
        /// Where in the file.
        offset: u64,
    },
}

/// One CPU's buffer. Switches, ends and names of threads come from the first event, hits from those added.
#[derive(Debug)]
pub struct CpuBuffer {
    cpu: u16,
    ring: Ring,
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
        let ring = Ring::map(&first, bytes)?;
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

/// The ring buffer that the kernel shares with the reader (perf_event_open(2), "MMAP layout").
#[derive(Debug)]
struct Ring {
    page: NonNull<b::perf_event_mmap_page>,
    page_bytes: usize,
    data_bytes: usize,
}

// SAFETY: the mapping is shared with the kernel alone, and `drain` takes `&mut self`.
unsafe impl Send for Ring {}

impl Ring {
    /// Maps about `bytes` (rounded to a power of two of pages).
    fn map(event: &OwnedFd, bytes: usize) -> io::Result<Self> {
        // SAFETY: takes an integer, returns one.
        let page_bytes = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
        let data_bytes = bytes.max(page_bytes).next_power_of_two();
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new shared mapping of a descriptor that is open; nothing is replaced.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                page_bytes + data_bytes,
                protection,
                libc::MAP_SHARED,
                event.as_raw_fd(),
                0,
            )
        };
        match NonNull::new(address) {
            Some(page) if address != libc::MAP_FAILED => {
                Ok(Self { page: page.cast(), page_bytes, data_bytes })
            }
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn drain(&mut self, out: &mut Vec<u8>) {
        // SAFETY: the page is mapped while `self` lives; the kernel and we use these words as atomics.
        let (head, tail) = unsafe {
            let page = self.page.as_ptr();
            (AtomicU64::from_ptr(&raw mut (*page).data_head), AtomicU64::from_ptr(&raw mut (*page).data_tail))
        };
        let from = tail.load(Ordering::Relaxed);
        let waiting = head.load(Ordering::Acquire).wrapping_sub(from);
        let count = usize::try_from(waiting).unwrap_or(0).min(self.data_bytes);
        let start = (from % self.data_bytes as u64) as usize;
        let first = count.min(self.data_bytes - start);
        // SAFETY: the data area begins one page after the header and has `data_bytes`; the kernel does not write between
        // tail and head, which was loaded with acquire.
        let (front, back) = unsafe {
            let data = self.page.as_ptr().cast::<u8>().add(self.page_bytes);
            (
                std::slice::from_raw_parts(data.add(start), first),
                std::slice::from_raw_parts(data, count - first),
            )
        };
        out.extend_from_slice(front);
        out.extend_from_slice(back);
        tail.store(from.wrapping_add(count as u64), Ordering::Release);
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping that was made, and nobody holds a reference into it.
        unsafe { libc::munmap(self.page.as_ptr().cast(), self.page_bytes + self.data_bytes) };
    }
}

//! Tracepoints opened on every CPU, all of one CPU writing into one ring buffer.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use perf_event_open_sys as perf;
use perf_event_open_sys::bindings as b;

use crate::error::TraceError;
use crate::format::{Decoder, Format};
use crate::tracefs::Tracefs;
use takt_rt::perf_ring::PerfRing;

/// Without these nothing can be reported.
const NEEDED: [&str; 3] = ["sched:sched_switch", "sched:sched_waking", "timer:hrtimer_expire_entry"];

fn needed(name: &str) -> bool {
    NEEDED.contains(&name)
}

/// Decodable, and not recorded by the live capture: every call of every process, and every
/// contended lock of the kernel, cost more than they report here; and the kernel does not let the
/// end of `irq_work` be sampled.
const LEFT_OUT: [&str; 3] = ["raw_syscalls:", "lock:", "irq_vectors:irq_work"];

/// Recorded only for whoever follows packets: there are thousands a second on some machines.
const PACKETS: [&str; 2] = ["net:", "skb:"];

/// Rings are no smaller than this.
const MIN_BYTES: usize = 64 << 10;

/// Options for opening rings.
#[derive(Debug, Clone, Copy)]
pub(super) struct How {
    pub(super) data_bytes: usize,
    /// The newest events overwrite the oldest.
    pub(super) overwritten: bool,
    /// The steps of packets are recorded as well.
    pub(super) packets: bool,
}

/// Destination of a CPU's events.
#[derive(Debug)]
pub(super) struct CpuBuffer {
    pub(super) cpu: u16,
    pub(super) ring: PerfRing,
    overwritten: bool,
    data_bytes: usize,
    events: Vec<OwnedFd>,
    /// The page fault tracepoints: their numbers, and what is open of them. They are opened anew
    /// for every filter, because the kernel does not change the filter of an open one.
    fault_ids: Vec<u16>,
    faults: Vec<OwnedFd>,
    /// Losses of those that were closed.
    closed_lost: u64,
}

/// Every CPU's buffer, and how to read what comes.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) cpus: Vec<CpuBuffer>,
    pub(super) decoder: Decoder,
    pub(super) notes: Vec<String>,
    /// The number of `sched:sched_waking`.
    pub(super) waking_id: u16,
}

pub(crate) fn attributes(config: u16, data_bytes: usize) -> b::perf_event_attr {
    let mut attr = b::perf_event_attr {
        type_: b::PERF_TYPE_TRACEPOINT,
        size: u32::try_from(size_of::<b::perf_event_attr>()).unwrap_or(b::PERF_ATTR_SIZE_VER5),
        config: u64::from(config),
        // The period is not wanted, but without it the kernel writes an event that carries a count
        // (the nanoseconds of sched_stat_runtime) as often as it counts.
        sample_type: u64::from(b::PERF_SAMPLE_TIME | b::PERF_SAMPLE_PERIOD | b::PERF_SAMPLE_RAW),
        read_format: u64::from(b::PERF_FORMAT_LOST),
        clockid: libc::CLOCK_MONOTONIC,
        ..Default::default()
    };
    attr.__bindgen_anon_1.sample_period = 1;
    // The reader comes by the clock; a wake-up by the kernel would be an interrupt of its own.
    attr.__bindgen_anon_2.wakeup_watermark = u32::try_from(data_bytes).unwrap_or(u32::MAX);
    attr.set_disabled(1);
    attr.set_use_clockid(1);
    attr.set_sample_id_all(1);
    attr.set_watermark(1);
    attr
}

pub(crate) fn open(attr: &mut b::perf_event_attr, cpu: u16) -> io::Result<OwnedFd> {
    let flags = b::PERF_FLAG_FD_CLOEXEC;
    // SAFETY: the attributes are whole, and their size is the structure's.
    let mut fd = unsafe { perf::perf_event_open(attr, -1, i32::from(cpu), -1, flags.into()) };
    let first = io::Error::last_os_error();
    if fd < 0 && first.raw_os_error() == Some(libc::EINVAL) && attr.read_format != 0 {
        // PERF_FORMAT_LOST is of Linux 6.0; before, losses are known from the records in the ring
        // alone.
        attr.read_format = 0;
        // SAFETY: as above.
        fd = unsafe { perf::perf_event_open(attr, -1, i32::from(cpu), -1, flags.into()) };
    }
    if fd < 0 {
        return Err(if attr.read_format == 0 { io::Error::last_os_error() } else { first });
    }
    // SAFETY: the kernel has just made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Opens every tracepoint that the kernel has on every CPU of `cpus`; nothing is recorded yet.
/// Rings are smaller than asked for where their memory may not be locked (CAP_IPC_LOCK).
pub(super) fn open_all(cpus: &[u16], mut how: How) -> Result<Opened, TraceError> {
    let tracefs = Tracefs::open()?;
    let mut decoder = Decoder::default();
    let mut notes: Vec<String> = tracefs.other_tracer().into_iter().collect();
    let mut missing = Vec::new();
    let mut formats = Vec::new();
    let left_out = LEFT_OUT.iter().chain(PACKETS.iter().filter(|_| !how.packets));
    for name in Decoder::known().filter(|name| !left_out.clone().any(|prefix| name.starts_with(prefix))) {
        match tracefs.read(&format!("events/{}/format", name.replace(':', "/"))) {
            Ok(text) => {
                let format = Format::parse(name, &text)?;
                decoder.add(&format)?;
                formats.push(format);
            }
            Err(source) if source.kind() == io::ErrorKind::PermissionDenied => {
                return Err(TraceError::refused("read tracefs", name, 0, source));
            }
            Err(_) if needed(name) => {
                return Err(TraceError::Missing { tracepoint: name.to_owned() });
            }
            Err(_) => missing.push(name),
        }
    }
    if !missing.is_empty() {
        notes.push(format!("the kernel lacks: {}", missing.join(", ")));
    }
    let asked_bytes = how.data_bytes;
    let cpus = loop {
        let opened = cpus.iter().map(|&cpu| CpuBuffer::open(cpu, &formats, how, &mut notes)).collect();
        let opened: Result<Vec<CpuBuffer>, TraceError> = opened;
        match opened {
            Err(TraceError::Buffer { source, .. })
                if source.raw_os_error() == Some(libc::EPERM) && how.data_bytes > MIN_BYTES =>
            {
                how.data_bytes /= 2;
            }
            opened => break opened?,
        }
    };
    if how.data_bytes < asked_bytes {
        notes.push(format!(
            "event buffers have {} KiB per CPU instead of {}, because no more memory may be locked; a busy machine loses more events. \
             CAP_IPC_LOCK or `ulimit -l unlimited` allows larger ones",
            how.data_bytes >> 10,
            asked_bytes >> 10
        ));
    }
    let waking = formats.iter().find(|format| format.name == "sched:sched_waking");
    Ok(Opened { cpus, decoder, notes, waking_id: waking.map_or(0, |format| format.id) })
}

impl CpuBuffer {
    fn open(
        cpu: u16,
        formats: &[Format],
        How { data_bytes, overwritten, .. }: How,
        notes: &mut Vec<String>,
    ) -> Result<Self, TraceError> {
        let mut events: Vec<OwnedFd> = Vec::with_capacity(formats.len());
        let mut fault_ids = Vec::new();
        let mut ring = None;
        for format in formats {
            if format.name.starts_with("exceptions:") {
                fault_ids.push(format.id);
                continue;
            }
            let mut attr = attributes(format.id, data_bytes);
            attr.set_write_backward(u64::from(overwritten));
            let fd = match open(&mut attr, cpu) {
                Ok(fd) => fd,
                // Some tracepoints may not be sampled by anybody; the right as such is reported by
                // those before.
                Err(source) if source.raw_os_error() == Some(libc::EPERM) && !needed(&format.name) => {
                    let note = format!("the kernel does not provide {}", format.name);
                    if !notes.contains(&note) {
                        notes.push(note);
                    }
                    continue;
                }
                Err(source) => {
                    return Err(TraceError::refused("perf_event_open", &format.name, cpu, source));
                }
            };
            if let Some(first) = events.first() {
                // SAFETY: both descriptors are open; the call keeps no pointer.
                if unsafe { perf::ioctls::SET_OUTPUT(fd.as_raw_fd(), first.as_raw_fd()) } < 0 {
                    let source = io::Error::last_os_error();
                    return Err(TraceError::refused("ioctl(SET_OUTPUT)", &format.name, cpu, source));
                }
            } else {
                let mapped = match overwritten {
                    true => PerfRing::map_overwritten(fd.as_fd(), data_bytes),
                    false => PerfRing::map(fd.as_fd(), data_bytes),
                };
                let mapped = mapped.map_err(|source| TraceError::Buffer { bytes: data_bytes, source })?;
                ring = Some(mapped);
            }
            events.push(fd);
        }
        let Some(ring) = ring else { return Err(TraceError::Missing { tracepoint: NEEDED[0].to_owned() }) };
        Ok(Self { cpu, ring, overwritten, data_bytes, events, fault_ids, faults: Vec::new(), closed_lost: 0 })
    }

    /// Switches recording on or off.
    pub(super) fn enable(&self, on: bool) -> Result<(), TraceError> {
        for event in self.events.iter().chain(&self.faults) {
            // SAFETY: the descriptor is open; the argument is a flag word.
            let rc = unsafe {
                match on {
                    true => perf::ioctls::ENABLE(event.as_raw_fd(), 0),
                    false => perf::ioctls::DISABLE(event.as_raw_fd(), 0),
                }
            };
            if rc < 0 {
                return Err(TraceError::refused("ioctl(ENABLE)", "", self.cpu, io::Error::last_os_error()));
            }
        }
        Ok(())
    }

    /// Records page faults of these threads alone: those of all others would fill the ring and
    /// explain nothing.
    pub(super) fn filter_faults(&mut self, filter: &CString) -> io::Result<()> {
        let Some(first) = self.events.first() else { return Ok(()) };
        let mut faults = Vec::new();
        for &id in &self.fault_ids {
            let mut attr = attributes(id, self.data_bytes);
            attr.set_write_backward(u64::from(self.overwritten));
            let event = open(&mut attr, self.cpu)?;
            // SAFETY: the text is whole, and the kernel copies it; both descriptors are open.
            let refused = unsafe {
                perf::ioctls::SET_FILTER(event.as_raw_fd(), filter.as_ptr().cast_mut()) < 0
                    || perf::ioctls::SET_OUTPUT(event.as_raw_fd(), first.as_raw_fd()) < 0
                    || perf::ioctls::ENABLE(event.as_raw_fd(), 0) < 0
            };
            if refused {
                return Err(io::Error::last_os_error());
            }
            faults.push(event);
        }
        self.closed_lost += lost(&self.faults);
        self.faults = faults;
        Ok(())
    }

    /// Events that the kernel could not write, where it counts them (Linux 6.0).
    pub(super) fn lost(&self) -> u64 {
        if self.overwritten {
            // Nothing is refused there, and asking costs an interrupt of every CPU.
            return 0;
        }
        self.closed_lost + lost(&self.events) + lost(&self.faults)
    }
}

fn lost(events: &[OwnedFd]) -> u64 {
    let lost = events.iter().map(|event| {
        // Value, then the count of losses.
        let mut words = [0u64; 2];
        // SAFETY: the kernel writes at most the 16 bytes offered.
        let count = unsafe { libc::read(event.as_raw_fd(), words.as_mut_ptr().cast(), size_of_val(&words)) };
        if count == 16 { words[1] } else { 0 }
    });
    lost.sum()
}

//! The system call bpf(2): maps, programs, where they are attached, the ring of records. Only what
//! is used here.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::asm::Instruction;

const MAP_CREATE: libc::c_int = 0;
const MAP_LOOKUP: libc::c_int = 1;
const MAP_UPDATE: libc::c_int = 2;
const MAP_DELETE: libc::c_int = 3;
const PROG_LOAD: libc::c_int = 5;
const RAW_TRACEPOINT_OPEN: libc::c_int = 17;
const LINK_CREATE: libc::c_int = 28;
/// `BPF_XDP` of `enum bpf_attach_type`.
const AT_XDP: u32 = 37;

/// Hook to which a program is attached (`enum bpf_prog_type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgramKind {
    /// A tracepoint's record, as perf sees it.
    Tracepoint = 5,
    /// Frames at an interface.
    Xdp = 6,
    /// A tracepoint's arguments.
    RawTracepoint = 17,
}

/// Place at an interface where a program runs (`XDP_FLAGS_*` of linux/if_link.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum XdpMode {
    /// Behind the driver, after the kernel has made a packet of the frame.
    Generic = 1 << 1,
    /// In the driver.
    Driver = 1 << 2,
}

/// Data structure of a map (`enum bpf_map_type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MapKind {
    /// By key.
    Hash = 1,
    /// By number, a value for each CPU.
    PerCpuArray = 6,
    /// The entries used least are forgotten.
    LruHash = 9,
    /// Sockets of AF_XDP by queue.
    Xsk = 17,
    /// Records for a reader.
    Ringbuf = 27,
}

#[repr(C)]
#[derive(Default)]
struct MapCreate {
    kind: u32,
    key_bytes: u32,
    value_bytes: u32,
    entries: u32,
    flags: u32,
}

#[repr(C)]
#[derive(Default)]
struct MapElement {
    fd: u32,
    _pad: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
#[derive(Default)]
struct ProgLoad {
    kind: u32,
    instructions: u32,
    code: u64,
    license: u64,
    log_level: u32,
    log_bytes: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    attach: u32,
}

#[repr(C)]
struct LinkCreate {
    program: u32,
    interface: u32,
    attach: u32,
    flags: u32,
}

#[repr(C)]
#[derive(Default)]
struct RawTracepoint {
    name: u64,
    fd: u32,
    _pad: u32,
}

/// Calls bpf(2).
///
/// # Safety
/// The pointers in `attributes` are valid for what `command` does with them.
unsafe fn bpf<T>(command: libc::c_int, attributes: &mut T) -> io::Result<libc::c_int> {
    // SAFETY: the attributes are whole and writable, and their size is given; the kernel takes what
    // lies behind it for zero.
    let rc = unsafe {
        libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attributes), size_of::<T>() as libc::c_uint)
    };
    match libc::c_int::try_from(rc) {
        Ok(rc) if rc >= 0 => Ok(rc),
        _ => Err(io::Error::last_os_error()),
    }
}

fn owned(fd: libc::c_int) -> OwnedFd {
    // SAFETY: the kernel has just made this descriptor for us.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// A map.
#[derive(Debug)]
pub struct Map {
    fd: OwnedFd,
    key_bytes: usize,
    value_bytes: usize,
}

impl Map {
    /// A new one, empty.
    ///
    /// # Errors
    /// The system's.
    pub fn new(kind: MapKind, key_bytes: usize, value_bytes: usize, entries: usize) -> io::Result<Self> {
        let number = |value: usize| u32::try_from(value).map_err(|_| io::ErrorKind::InvalidInput);
        let mut attributes = MapCreate {
            kind: kind as u32,
            key_bytes: number(key_bytes)?,
            value_bytes: number(value_bytes)?,
            entries: number(entries)?,
            flags: 0,
        };
        // SAFETY: the attributes hold no pointer.
        let fd = unsafe { bpf(MAP_CREATE, &mut attributes)? };
        Ok(Self { fd: owned(fd), key_bytes, value_bytes })
    }

    /// Its descriptor, for programs.
    pub fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    fn element(&self, key: &[u8], value: *mut u8, flags: u64) -> MapElement {
        assert_eq!(key.len(), self.key_bytes);
        MapElement { fd: self.fd() as u32, key: key.as_ptr() as u64, value: value as u64, flags, _pad: 0 }
    }

    /// Sets the value of a key, both in the map's sizes.
    ///
    /// # Errors
    /// The system's.
    pub fn update(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        assert_eq!(value.len(), self.value_bytes);
        let mut attributes = self.element(key, value.as_ptr().cast_mut(), 0);
        // SAFETY: key and value have the map's sizes, and the kernel only reads them.
        unsafe { bpf(MAP_UPDATE, &mut attributes).map(drop) }
    }

    /// Takes a key away.
    ///
    /// # Errors
    /// The system's.
    pub fn delete(&self, key: &[u8]) -> io::Result<()> {
        let mut attributes = self.element(key, std::ptr::null_mut(), 0);
        // SAFETY: the key has the map's size, and the kernel only reads it.
        unsafe { bpf(MAP_DELETE, &mut attributes).map(drop) }
    }

    /// The values of all CPUs at one place of a map by CPU; `cpus` is that of all possible ones.
    ///
    /// # Errors
    /// The system's.
    pub fn per_cpu(&self, index: u32, cpus: usize) -> io::Result<Vec<u8>> {
        let mut values = vec![0; cpus * self.value_bytes.next_multiple_of(8)];
        let key = index.to_ne_bytes();
        let mut attributes = self.element(&key, values.as_mut_ptr(), 0);
        // SAFETY: the key has the map's size, and the kernel writes as many values as there are
        // possible CPUs.
        unsafe { bpf(MAP_LOOKUP, &mut attributes)? };
        Ok(values)
    }
}

/// A program that the kernel has verified.
#[derive(Debug)]
pub struct Program(OwnedFd);

/// Size of the buffer for the verifier's message when it refuses a program.
const LOG_BYTES: usize = 64 << 10;

impl Program {
    /// Gives `code` to the kernel.
    ///
    /// # Errors
    /// The system's, with the end of what the verifier said.
    pub fn load(kind: ProgramKind, name: &str, code: &[Instruction]) -> io::Result<Self> {
        let mut attributes = ProgLoad {
            kind: kind as u32,
            instructions: u32::try_from(code.len()).map_err(|_| io::ErrorKind::InvalidInput)?,
            code: code.as_ptr() as u64,
            license: c"Apache-2.0".as_ptr() as u64,
            attach: if kind == ProgramKind::Xdp { AT_XDP } else { 0 },
            ..ProgLoad::default()
        };
        for (to, from) in attributes.name.iter_mut().take(15).zip(name.bytes()) {
            *to = if from.is_ascii_alphanumeric() { from } else { b'_' };
        }
        // SAFETY: code and license are whole; the kernel copies them.
        match unsafe { bpf(PROG_LOAD, &mut attributes) } {
            Ok(fd) => Ok(Self(owned(fd))),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EPERM | libc::ENOSYS)) => Err(error),
            Err(_) => {
                let mut log = vec![0_u8; LOG_BYTES];
                (attributes.log_level, attributes.log_bytes) = (1, LOG_BYTES as u32);
                attributes.log = log.as_mut_ptr() as u64;
                // SAFETY: as above; the kernel writes at most the bytes offered into the log.
                match unsafe { bpf(PROG_LOAD, &mut attributes) } {
                    Ok(fd) => Ok(Self(owned(fd))),
                    Err(error) => {
                        let text = String::from_utf8_lossy(&log);
                        let text = text.trim_end_matches(['\0', '\n']);
                        let last: Vec<&str> = text.lines().rev().take(12).collect();
                        let last: Vec<&str> = last.into_iter().rev().collect();
                        Err(io::Error::new(error.kind(), format!("{name}: {error}: {}", last.join("; "))))
                    }
                }
            }
        }
    }

    /// Its descriptor.
    pub fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Attaches it to the interface of this index, until what comes back is closed.
    ///
    /// # Errors
    /// The system's.
    pub fn attach_xdp(&self, interface: u32, mode: XdpMode) -> io::Result<OwnedFd> {
        let mut attributes =
            LinkCreate { program: self.fd() as u32, interface, attach: AT_XDP, flags: mode as u32 };
        // SAFETY: the attributes hold no pointer.
        unsafe { bpf(LINK_CREATE, &mut attributes).map(owned) }
    }

    /// Attaches it to a raw tracepoint, until what comes back is closed.
    ///
    /// # Errors
    /// The system's.
    pub fn attach_raw(&self, tracepoint: &std::ffi::CStr) -> io::Result<OwnedFd> {
        let mut attributes =
            RawTracepoint { name: tracepoint.as_ptr() as u64, fd: self.fd() as u32, _pad: 0 };
        // SAFETY: the name is a string with a NUL, which the kernel copies.
        unsafe { bpf(RAW_TRACEPOINT_OPEN, &mut attributes).map(owned) }
    }
}

/// A mapping of a descriptor.
#[derive(Debug)]
struct Mapping {
    at: NonNull<u8>,
    bytes: usize,
}

impl Mapping {
    fn new(fd: RawFd, bytes: usize, offset: usize, writable: bool) -> io::Result<Self> {
        let protection = if writable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
        let offset = libc::off_t::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: a new shared mapping of a descriptor that is open; nothing is replaced.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, libc::MAP_SHARED, fd, offset) };
        match NonNull::new(at) {
            Some(page) if at != libc::MAP_FAILED => Ok(Self { at: page.cast(), bytes }),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping that was made, and nobody holds a reference into it.
        unsafe { libc::munmap(self.at.as_ptr().cast(), self.bytes) };
    }
}

/// The ring in which programs hand out records (Documentation/bpf/ringbuf.rst).
#[derive(Debug)]
pub struct Ring {
    map: Map,
    consumer: Mapping,
    /// The producer's page, then the data twice in a row, so that every record is in one piece.
    producer: Mapping,
    page_bytes: usize,
    data_bytes: usize,
}

// SAFETY: the mappings are shared with the kernel alone, and `drain` takes `&mut self`.
unsafe impl Send for Ring {}

const BUSY: u32 = 1 << 31;
const DISCARDED: u32 = 1 << 30;
const HEADER_BYTES: usize = 8;

impl Ring {
    /// `data_bytes`: a power of two of whole pages.
    ///
    /// # Errors
    /// The system's.
    pub fn new(data_bytes: usize) -> io::Result<Self> {
        let map = Map::new(MapKind::Ringbuf, 0, 0, data_bytes)?;
        // SAFETY: takes an integer, returns one.
        let page_bytes = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
        let consumer = Mapping::new(map.fd(), page_bytes, 0, true)?;
        let producer = Mapping::new(map.fd(), page_bytes + 2 * data_bytes, page_bytes, false)?;
        Ok(Self { map, consumer, producer, page_bytes, data_bytes })
    }

    /// The map's descriptor, for programs.
    pub fn fd(&self) -> RawFd {
        self.map.fd()
    }

    /// Hands every record that is there to `take`, oldest first, and frees it.
    pub fn drain(&mut self, take: &mut dyn FnMut(&[u8])) {
        // SAFETY: both pages are mapped while `self` lives; their first 8 bytes are the positions,
        // which the kernel uses as atomics.
        let (consumed, produced) = unsafe {
            (
                AtomicU64::from_ptr(self.consumer.at.as_ptr().cast()),
                AtomicU64::from_ptr(self.producer.at.as_ptr().cast()),
            )
        };
        let mut at = consumed.load(Ordering::Relaxed);
        let end = produced.load(Ordering::Acquire);
        // A difference beyond the ring is none of the kernel's.
        while at < end && end - at <= self.data_bytes as u64 {
            let place = (at % self.data_bytes as u64) as usize;
            // SAFETY: the data lies behind the producer's page and is mapped twice, so that what
            // begins in its first half and is no longer than that is within the mapping. Headers
            // are aligned to 8 and written by the kernel as one word.
            let (header, data) = unsafe {
                let record = self.producer.at.as_ptr().add(self.page_bytes + place);
                (AtomicU32::from_ptr(record.cast()).load(Ordering::Acquire), record.add(HEADER_BYTES))
            };
            if header & BUSY != 0 {
                break;
            }
            let bytes = (header & !DISCARDED) as usize;
            if bytes > self.data_bytes - HEADER_BYTES {
                break;
            }
            if header & DISCARDED == 0 {
                // SAFETY: as above; the kernel does not write to it before it is freed below.
                take(unsafe { std::slice::from_raw_parts(data, bytes) });
            }
            at += (HEADER_BYTES + bytes.next_multiple_of(8)) as u64;
        }
        consumed.store(at, Ordering::Release);
    }
}

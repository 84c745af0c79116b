//! The program at the interface: EtherCAT frames of one queue go to the socket, stamped, everything else goes on.
//!
//! Thirty instructions by hand (Documentation/bpf/standardization/instruction-set.rst): a compiler for them would be a tool of C or one
//! more tool chain to build Takt with.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use super::super::wire::ETHERCAT;

/// Bytes that the program puts before a frame: [`MARK`], then CLOCK_MONOTONIC.
pub(super) const STAMP_BYTES: usize = 16;
/// Tells a stamp from what lay there before, where a driver has no room for one. The reader wipes it out.
pub(super) const MARK: u64 = u64::from_be_bytes(*b"taktxdp1");

/// Where a program is attached (linux/if_link.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// `XDP_FLAGS_DRV_MODE`.
    Driver,
    /// `XDP_FLAGS_SKB_MODE`.
    Generic,
}

/// One instruction.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Instruction {
    code: u8,
    /// Destination in the low half, source in the high one, on little-endian machines; the other way round on big-endian ones.
    registers: u8,
    offset: i16,
    immediate: i32,
}

const fn instruction(code: u8, to: u8, from: u8, offset: i16, immediate: i32) -> Instruction {
    let registers = if cfg!(target_endian = "little") { from << 4 | to } else { to << 4 | from };
    Instruction { code, registers, offset, immediate }
}

const MOVE: u8 = 0xBF;
const MOVE_NUMBER: u8 = 0xB7;
const ADD_NUMBER: u8 = 0x07;
const LOAD_16: u8 = 0x69;
const LOAD_32: u8 = 0x61;
const STORE_64: u8 = 0x7B;
/// Two places long.
const NUMBER_64: u8 = 0x18;
/// Source register of [`NUMBER_64`] that makes a map of a descriptor (`BPF_PSEUDO_MAP_FD`).
const MAP: u8 = 1;
const IF_GREATER: u8 = 0x2D;
const IF_NOT_NUMBER: u8 = 0x55;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;

/// `bpf_ktime_get_ns`, `bpf_redirect_map`, `bpf_xdp_adjust_meta` of linux/bpf.h.
const KTIME_GET_NS: i32 = 5;
const REDIRECT_MAP: i32 = 51;
const ADJUST_META: i32 = 54;
/// `XDP_PASS`: the frame goes its usual way.
const PASS: i32 = 2;

/// Offsets in `struct xdp_md`.
const DATA: i16 = 0;
const DATA_END: i16 = 4;
const DATA_META: i16 = 8;
const QUEUE: i16 = 16;

fn instructions(map: RawFd, stamped: bool) -> Vec<Instruction> {
    let stamp = [
        instruction(MOVE, 1, 6, 0, 0),
        instruction(MOVE_NUMBER, 2, 0, 0, -(STAMP_BYTES as i32)),
        instruction(CALL, 0, 0, 0, ADJUST_META),
        // Not every driver has room for it: on without.
        instruction(IF_NOT_NUMBER, 0, 0, 10, 0),
        instruction(CALL, 0, 0, 0, KTIME_GET_NS),
        instruction(LOAD_32, 2, 6, DATA_META, 0),
        instruction(LOAD_32, 3, 6, DATA, 0),
        instruction(MOVE, 4, 2, 0, 0),
        instruction(ADD_NUMBER, 4, 0, 0, STAMP_BYTES as i32),
        instruction(IF_GREATER, 4, 3, 4, 0),
        instruction(STORE_64, 2, 0, 8, 0),
        instruction(NUMBER_64, 4, 0, 0, MARK as u32 as i32),
        instruction(0, 0, 0, 0, (MARK >> 32) as u32 as i32),
        instruction(STORE_64, 2, 4, 0, 0),
    ];
    let redirect = [
        instruction(LOAD_32, 2, 6, QUEUE, 0),
        instruction(NUMBER_64, 1, MAP, 0, map),
        instruction(0, 0, 0, 0, 0),
        // Without a socket for this queue.
        instruction(MOVE_NUMBER, 3, 0, 0, PASS),
        instruction(CALL, 0, 0, 0, REDIRECT_MAP),
        instruction(EXIT, 0, 0, 0, 0),
    ];
    let stamp: &[Instruction] = if stamped { &stamp } else { &[] };
    let rest = (stamp.len() + redirect.len()) as i16;
    let head = [
        instruction(MOVE, 6, 1, 0, 0),
        instruction(LOAD_32, 2, 6, DATA, 0),
        instruction(LOAD_32, 3, 6, DATA_END, 0),
        instruction(MOVE, 4, 2, 0, 0),
        instruction(ADD_NUMBER, 4, 0, 0, 14),
        instruction(IF_GREATER, 4, 3, rest + 2, 0),
        instruction(LOAD_16, 4, 2, 12, 0),
        instruction(IF_NOT_NUMBER, 4, 0, rest, i32::from(ETHERCAT.to_be())),
    ];
    let pass = [instruction(MOVE_NUMBER, 0, 0, 0, PASS), instruction(EXIT, 0, 0, 0, 0)];
    [&head[..], stamp, &redirect, &pass].concat()
}

/// `union bpf_attr` of linux/bpf.h, as far as the commands here read it; the kernel takes what is left out as 0.
#[repr(C)]
struct CreateMap {
    kind: u32,
    key_bytes: u32,
    value_bytes: u32,
    entries: u32,
    flags: u32,
    inner_map: u32,
    numa_node: u32,
    name: [u8; 16],
}

#[repr(C)]
struct UpdateMap {
    map: u32,
    pad: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
struct LoadProgram {
    kind: u32,
    instructions: u32,
    first: u64,
    license: u64,
    log_level: u32,
    log_bytes: u32,
    log: u64,
    kernel: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    attach: u32,
}

#[repr(C)]
struct CreateLink {
    program: u32,
    interface: u32,
    attach: u32,
    flags: u32,
}

const MAP_CREATE: libc::c_int = 0;
const MAP_UPDATE: libc::c_int = 2;
const PROG_LOAD: libc::c_int = 5;
const LINK_CREATE: libc::c_int = 28;
/// `BPF_MAP_TYPE_XSKMAP`, `BPF_PROG_TYPE_XDP`, `BPF_XDP`.
const XSK_MAP: u32 = 17;
const XDP_PROGRAM: u32 = 6;
const AT_XDP: u32 = 37;
/// What `bpftool` shows.
const NAME: [u8; 16] = *b"takt_ethercat\0\0\0";

/// One command.
///
/// # Safety
/// `attributes` are those of the command, and what they point to is valid for the call.
unsafe fn bpf<T>(command: libc::c_int, attributes: &T) -> io::Result<RawFd> {
    // SAFETY: the attributes are as long as told; the rest is the caller's word.
    let answer =
        unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attributes), size_of::<T>()) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer as RawFd) }
}

/// A command that makes a descriptor.
///
/// # Safety
/// As [`bpf`].
unsafe fn bpf_made<T>(command: libc::c_int, attributes: &T) -> io::Result<OwnedFd> {
    // SAFETY: the caller's word; the descriptor is new and nobody else has it.
    unsafe { bpf(command, attributes).map(|fd| OwnedFd::from_raw_fd(fd)) }
}

/// A program that turns frames of `queue` over to `socket`, not attached yet.
#[derive(Debug)]
pub(super) struct Program {
    program: OwnedFd,
    /// Whether it stamps.
    pub(super) stamped: bool,
}

/// The attached program; dropping detaches it.
#[derive(Debug)]
pub(super) struct Attached {
    _link: OwnedFd,
}

impl Program {
    /// Loads it.
    pub(super) fn load(socket: RawFd, queue: u32) -> io::Result<Self> {
        let map = CreateMap {
            kind: XSK_MAP,
            key_bytes: 4,
            value_bytes: 4,
            entries: queue.saturating_add(1),
            flags: 0,
            inner_map: 0,
            numa_node: 0,
            name: NAME,
        };
        // SAFETY: no pointers in it.
        let map = unsafe { bpf_made(MAP_CREATE, &map) }?;
        let update = UpdateMap {
            map: map.as_raw_fd() as u32,
            pad: 0,
            key: (&raw const queue) as u64,
            value: (&raw const socket) as u64,
            flags: 0,
        };
        // SAFETY: key and value are of four bytes each, as the map says.
        unsafe { bpf(MAP_UPDATE, &update) }?;
        // A machine without unaligned access refuses the stamps; the program holds the map.
        let load = |stamped| Self::load_as(map.as_raw_fd(), stamped);
        match load(true) {
            Err(error) if error.raw_os_error() != Some(libc::EPERM) => load(false),
            other => other,
        }
    }

    fn load_as(map: RawFd, stamped: bool) -> io::Result<Self> {
        let list = instructions(map, stamped);
        let load = LoadProgram {
            kind: XDP_PROGRAM,
            instructions: list.len() as u32,
            first: list.as_ptr() as u64,
            license: c"MIT".as_ptr() as u64,
            log_level: 0,
            log_bytes: 0,
            log: 0,
            kernel: 0,
            flags: 0,
            name: NAME,
            interface: 0,
            attach: AT_XDP,
        };
        // SAFETY: instructions and licence are valid for the call; there is no log.
        let program = unsafe { bpf_made(PROG_LOAD, &load) }?;
        Ok(Self { program, stamped })
    }

    /// Attaches it to the interface with this index.
    pub(super) fn attach(&self, interface: i32, place: Place) -> io::Result<Attached> {
        let link = CreateLink {
            program: self.program.as_raw_fd() as u32,
            interface: interface as u32,
            attach: AT_XDP,
            flags: match place {
                Place::Generic => 1 << 1,
                Place::Driver => 1 << 2,
            },
        };
        // SAFETY: no pointers in it.
        Ok(Attached { _link: unsafe { bpf_made(LINK_CREATE, &link) }? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumps_end_where_they_should() {
        for stamped in [true, false] {
            let list = instructions(7, stamped);
            let end = list.len();
            let redirect = end - 8;
            assert_eq!((list[redirect].code, list[redirect].offset), (LOAD_32, QUEUE));
            let jumps =
                list.iter().enumerate().filter(|(_, one)| matches!(one.code, IF_GREATER | IF_NOT_NUMBER));
            let targets: Vec<usize> = jumps.map(|(at, one)| at + 1 + one.offset as usize).collect();
            let pass = end - 2;
            if stamped {
                assert_eq!(targets, [pass, pass, redirect, redirect]);
            } else {
                assert_eq!(targets, [pass, pass]);
            }
        }
    }
}

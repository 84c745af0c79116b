//! The program at the interface: EtherCAT frames of one queue go to the socket, stamped, everything
//! else goes on.
//!
//! Thirty instructions by hand: a compiler for them would be a tool of C or one more tool chain to
//! build Takt with.

use std::io;
use std::os::fd::{OwnedFd, RawFd};

use takt_rt::bpf::{
    Asm, Helper, If, Instruction, Map, MapKind, Program, ProgramKind, R0, R1, R2, R3, R4, R6, XdpMode,
};

use super::super::wire::ETHERCAT;

/// Bytes that the program puts before a frame: [`MARK`], then CLOCK_MONOTONIC.
pub(super) const STAMP_BYTES: usize = 16;
/// Reports a stamp from what lay there before, where a driver has no room for one. The reader wipes
/// it out.
pub(super) const MARK: u64 = u64::from_be_bytes(*b"taktxdp1");

/// Name in `bpftool`.
const NAME: &str = "takt_ethercat";
/// `XDP_PASS`: the frame goes its usual way.
const PASS: i32 = 2;

/// Offsets in `struct xdp_md`.
const DATA: i16 = 0;
const DATA_END: i16 = 4;
const DATA_META: i16 = 8;
const QUEUE: i16 = 16;

/// `None` never: all labels are near.
fn code(map: &Map, stamped: bool) -> Option<Vec<Instruction>> {
    let mut asm = Asm::default();
    let (pass, redirect) = (asm.label(), asm.label());
    asm.mov(R6, R1);
    asm.load_sized(R2, R6, DATA, 4);
    asm.load_sized(R3, R6, DATA_END, 4);
    asm.mov(R4, R2);
    asm.add(R4, 14);
    asm.jump_if_reg(R4, If::Greater, R3, pass);
    asm.load_sized(R4, R2, 12, 2);
    asm.jump_if(R4, If::NotEqual, i32::from(ETHERCAT.to_be()), pass);
    if stamped {
        asm.mov(R1, R6);
        asm.set(R2, -(STAMP_BYTES as i32));
        asm.call(Helper::XdpAdjustMeta);
        // Not every driver has room for it: on without.
        asm.jump_if(R0, If::NotEqual, 0, redirect);
        asm.call(Helper::KtimeGetNs);
        asm.load_sized(R2, R6, DATA_META, 4);
        asm.load_sized(R3, R6, DATA, 4);
        asm.mov(R4, R2);
        asm.add(R4, STAMP_BYTES as i32);
        asm.jump_if_reg(R4, If::Greater, R3, redirect);
        asm.store(R2, 8, R0);
        asm.set_wide(R4, MARK);
        asm.store(R2, 0, R4);
    }
    asm.here(redirect);
    asm.load_sized(R2, R6, QUEUE, 4);
    asm.set_map(R1, map.fd());
    // Without a socket for this queue.
    asm.set(R3, PASS);
    asm.call(Helper::RedirectMap);
    asm.end();
    asm.here(pass);
    asm.exit(PASS);
    asm.finish()
}

/// A program that turns frames of one queue over to a socket, not attached yet. It holds the map
/// with the socket.
#[derive(Debug)]
pub(super) struct Loaded {
    program: Program,
    /// Whether it stamps.
    pub(super) stamped: bool,
}

impl Loaded {
    /// For frames of `queue`.
    pub(super) fn new(socket: RawFd, queue: u32) -> io::Result<Self> {
        let map = Map::new(MapKind::Xsk, 4, 4, queue.saturating_add(1) as usize)?;
        map.update(&queue.to_ne_bytes(), &socket.to_ne_bytes())?;
        let load = |stamped| -> io::Result<Self> {
            let code = code(&map, stamped).ok_or(io::ErrorKind::InvalidInput)?;
            Ok(Self { program: Program::load(ProgramKind::Xdp, NAME, &code)?, stamped })
        };
        // A machine without unaligned access refuses the stamps.
        match load(true) {
            Err(error) if error.raw_os_error() != Some(libc::EPERM) => load(false),
            other => other,
        }
    }

    /// Attaches it to the interface of this index, until what comes back is closed.
    pub(super) fn attach(&self, interface: i32, mode: XdpMode) -> io::Result<OwnedFd> {
        self.program.attach_xdp(interface as u32, mode)
    }
}

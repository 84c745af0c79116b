//! RTDE protocol version 2 as bytes: framing, packing, parsing. Pure: no I/O, and no allocation.
//!
//! Source: Universal Robots, "Real-Time Data Exchange (RTDE) Guide". Every packet is big-endian and
//! starts with its size in bytes (`u16`, with the three-byte header) and its type (`u8`). Whatever
//! a peer sends, parsing ends in a value or in a [`WireError`], never in a panic: this is the
//! surface that the network reaches, and it is fuzzed (`fuzz/links/fuzz_targets/rtde_wire.rs`).

mod error;
mod field;
mod framing;
mod message;

pub use error::WireError;
pub use field::{Answer, DataType, Fields, PacketWriter, names};
pub use framing::{FrameBuffer, HEADER_BYTES, MAX_PACKET_BYTES, Packet, PacketType, split};
pub use message::{ControllerVersion, MAX_NAMES_BYTES, Message, Reply, Request};

/// The protocol version that Takt speaks: version 2 has recipe identifiers and an output frequency.
pub const PROTOCOL_VERSION: u16 = 2;

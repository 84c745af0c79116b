//! Messages from the guest to the host: frames on a byte stream in one direction. The host writes
//! the stream to a file and reads it while it grows; so it never makes the guest wait, which would
//! make the guest's time depend on the host.

mod frame;
mod message;

pub use frame::{FRAME_PAYLOAD_MAX_BYTES, FrameError, FrameKind, FrameReader, FrameWriter};
pub use message::{
    ArchiveEnd, Done, Hello, JobEnd, JobEnding, JobStart, Message, MessageError, Receiver, Sender,
};

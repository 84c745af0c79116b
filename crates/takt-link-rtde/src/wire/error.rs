//! Errors of bytes that should be RTDE.

use thiserror::Error;

/// Reason why bytes are not an RTDE packet, or values do not fit into one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum WireError {
    /// The size field is smaller than the header that holds it.
    #[error(
        "RTDE packet announces {announced} bytes, but its header alone has 3: the peer does not speak RTDE, or the stream lost \
         synchronisation; reconnect"
    )]
    SizeTooSmall {
        /// Size field as received.
        announced: u16,
    },
    /// The size field is larger than what the receiver accepts.
    #[error("RTDE packet announces {announced} bytes, at most {limit} are accepted here; reconnect")]
    SizeTooLarge {
        /// Size field as received.
        announced: u16,
        /// Most bytes that the receiver takes.
        limit: usize,
    },
    /// The type byte names no packet type of protocol version 2.
    #[error(
        "RTDE packet type {received} is unknown, expected one of V v M U O I S P: is this port 30004 of a UR?"
    )]
    UnknownType {
        /// Type byte as received.
        received: u8,
    },
    /// The type exists, but does not travel in this direction.
    #[error("RTDE packet type '{received}' does not travel in this direction")]
    WrongDirection {
        /// Type byte as received.
        received: char,
    },
    /// The payload ends before the value that should come next.
    #[error("RTDE payload ends early: {needed} more bytes expected, {left} left")]
    Short {
        /// Bytes that the next value takes.
        needed: usize,
        /// Bytes that are left.
        left: usize,
    },
    /// The payload goes on after its last value.
    #[error("RTDE payload has {left} bytes too many: does the recipe match the one set up?")]
    Trailing {
        /// Bytes left over.
        left: usize,
    },
    /// A text is not ASCII/UTF-8.
    #[error("RTDE text is not UTF-8")]
    NotText,
    /// A list of variable names is longer than the controller takes.
    #[error(
        "RTDE name list has {received} bytes, a controller accepts at most {limit}; request fewer variables"
    )]
    NamesTooLong {
        /// Length of the list.
        received: usize,
        /// Longest list that is taken.
        limit: usize,
    },
    /// A type name in a set-up answer is unknown.
    #[error("the controller answered with a variable type unknown to RTDE version 2")]
    UnknownDataType,
    /// The values do not fit into the packet buffer.
    #[error("RTDE packet needs {needed} bytes, its buffer has {capacity}")]
    BufferFull {
        /// Bytes needed.
        needed: usize,
        /// Bytes there are.
        capacity: usize,
    },
}

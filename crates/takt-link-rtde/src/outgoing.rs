//! Commands on their way into a socket that nobody waits for: for the senders of both clients.

use std::io;
use std::os::fd::BorrowedFd;

use crate::socket;

/// Outcome of one command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendOutcome {
    /// The kernel took the whole packet.
    Sent,
    /// The kernel took a part of the packet; the rest goes out first with the next send.
    Partial,
    /// The kernel took nothing: the robot does not read. The command is superseded by the next one.
    WouldBlock,
    /// There is no connection now; the receiver thread reconnects.
    Disconnected,
    /// The send failed otherwise.
    Failed {
        /// The error number.
        errno: i32,
    },
}

impl SendOutcome {
    /// Whether the command is on its way to the robot.
    pub const fn is_sent(self) -> bool {
        matches!(self, Self::Sent)
    }
}

/// Sends packets of so many bytes. The stream stays whole whatever the kernel takes: a packet that
/// was begun is finished first.
#[derive(Debug)]
pub(crate) struct Outgoing<const BYTES: usize> {
    /// The rest of a packet that the kernel took only in part, then room for one more packet.
    pending: [[u8; BYTES]; 2],
    pending_bytes: usize,
}

impl<const BYTES: usize> Outgoing<BYTES> {
    pub const fn new() -> Self {
        Self { pending: [[0; BYTES]; 2], pending_bytes: 0 }
    }

    /// The rest of an old packet has no place in a new stream.
    pub const fn clear(&mut self) {
        self.pending_bytes = 0;
    }

    /// At most one `send(2)` with `MSG_DONTWAIT`, no lock, no allocation.
    pub fn send(&mut self, socket: BorrowedFd<'_>, packet: &[u8; BYTES]) -> SendOutcome {
        let begun = self.pending_bytes;
        let end = begun + BYTES;
        let pending = self.pending.as_flattened_mut();
        pending[begun..end].copy_from_slice(packet);
        match socket::send_now(socket, &pending[..end]) {
            Ok(sent) => self.account(begun, end, sent),
            Err(error) => match error.kind() {
                // A signal before anything was sent: same as a full buffer, the next cycle sends
                // again.
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => SendOutcome::WouldBlock,
                io::ErrorKind::BrokenPipe
                | io::ErrorKind::ConnectionReset
                | io::ErrorKind::NotConnected
                | io::ErrorKind::TimedOut => SendOutcome::Disconnected,
                _ => SendOutcome::Failed { errno: error.raw_os_error().unwrap_or(0) },
            },
        }
    }

    /// Keeps what must still go out: the rest of the packet that the kernel's share ends in.
    fn account(&mut self, begun: usize, end: usize, sent: usize) -> SendOutcome {
        let sent = sent.min(end);
        let (rest_end, outcome) = if sent == end {
            (end, SendOutcome::Sent)
        } else if sent > begun {
            (end, SendOutcome::Partial)
        } else {
            // Nothing of the new packet went out: drop it, the next command is newer.
            (begun, SendOutcome::WouldBlock)
        };
        self.pending.as_flattened_mut().copy_within(sent..rest_end, 0);
        self.pending_bytes = rest_end - sent;
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As long as the safety job's.
    const COMMAND_BYTES: usize = 26;

    #[test]
    fn any_split_leaves_whole_packets() {
        for first in 0..=COMMAND_BYTES {
            let mut outgoing = Outgoing::<COMMAND_BYTES>::new();
            let outcome = outgoing.account(0, COMMAND_BYTES, first);
            let expected = match first {
                0 => (SendOutcome::WouldBlock, 0),
                COMMAND_BYTES => (SendOutcome::Sent, 0),
                _ => (SendOutcome::Partial, COMMAND_BYTES - first),
            };
            assert_eq!((outcome, outgoing.pending_bytes), expected);
            let begun = outgoing.pending_bytes;
            for second in 0..=begun + COMMAND_BYTES {
                outgoing.pending_bytes = begun;
                outgoing.account(begun, begun + COMMAND_BYTES, second);
                let left = outgoing.pending_bytes;
                let dropped = if second <= begun { COMMAND_BYTES } else { 0 };
                assert_eq!(second + left + dropped, begun + COMMAND_BYTES);
                assert!(left < COMMAND_BYTES);
            }
        }
    }
}

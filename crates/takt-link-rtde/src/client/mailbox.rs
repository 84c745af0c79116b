//! Handing sockets between the receiver and the commander without a lock and without a race.
//!
//! A descriptor number is reused by the kernel as soon as it is closed; a thread that still sends
//! on it would write a command into whatever was opened next. So every descriptor has exactly one
//! owner at any time, and only the owner may use or close it:
//!
//! ```text
//!  receiver --- incoming ---> commander --- retired ---> receiver, which closes it
//! ```
//!
//! The commander sends on its own duplicate (`dup(2)`) of the receiver's socket. Each arrow is one
//! atomic word that owns at most one descriptor. Both sides only swap words: wait-free, and
//! `close(2)`, which may take long, never runs on the commander's thread. The receiver breaks a
//! connection by `shutdown(2)` on its own duplicate: the commander's next send then fails with
//! EPIPE, which is safe at any time.

use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// A connected socket for commands and the input recipe that belongs to it.
#[derive(Debug)]
pub(super) struct CommandSocket {
    pub(super) socket: OwnedFd,
    pub(super) recipe: u8,
}

/// A word that owns no descriptor, or one: bit 63 set, recipe in bits 32..40, descriptor in bits
/// 0..32.
#[derive(Debug, Default)]
struct Slot(AtomicU64);

const FULL: u64 = 1 << 63;

impl Slot {
    fn put(&self, socket: CommandSocket) -> Option<CommandSocket> {
        let fd = socket.socket.into_raw_fd() as u32;
        let word = FULL | u64::from(socket.recipe) << 32 | u64::from(fd);
        // Release: what was done with the socket so far happens before its new owner uses it;
        // Acquire: the same for a socket that comes back.
        Self::unpack(self.0.swap(word, Ordering::AcqRel))
    }

    fn take(&self) -> Option<CommandSocket> {
        // Plain load first: the swap dirties a cache line that the other side reads too.
        if self.0.load(Ordering::Relaxed) == 0 {
            return None;
        }
        Self::unpack(self.0.swap(0, Ordering::AcqRel))
    }

    fn unpack(word: u64) -> Option<CommandSocket> {
        if word & FULL == 0 {
            return None;
        }
        let fd = word as u32 as RawFd;
        // SAFETY: only `put` stores words with FULL set, from a descriptor that it owned and gave
        // up; swapping a word out hands it to exactly one caller.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        Some(CommandSocket { socket, recipe: (word >> 32) as u8 })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        drop(self.take());
    }
}

/// Both arrows.
#[derive(Debug, Default)]
pub(super) struct Mailbox {
    incoming: Slot,
    retired: Slot,
}

impl Mailbox {
    /// Receiver: hands over the socket of a new connection. One that was never taken is closed
    /// here.
    pub(super) fn offer(&self, socket: CommandSocket) {
        drop(self.incoming.put(socket));
    }

    /// Receiver: the connection is gone; a socket that was never taken is closed here.
    pub(super) fn withdraw(&self) {
        drop(self.incoming.take());
    }

    /// Receiver: closes what the commander has put aside.
    pub(super) fn close_retired(&self) {
        drop(self.retired.take());
    }

    /// Commander: takes the newest socket, if there is a new one, into `current`, and puts the old
    /// one aside.
    ///
    /// While the receiver has not closed the last one the exchange waits, so that nothing is closed
    /// here; the receiver closes it with every packet and at least once per silence time-out.
    pub(super) fn renew(&self, current: &mut Option<CommandSocket>) -> bool {
        if self.incoming.0.load(Ordering::Relaxed) == 0 {
            return false;
        }
        if current.is_some() && self.retired.0.load(Ordering::Acquire) != 0 {
            return false;
        }
        let Some(new) = self.incoming.take() else { return false };
        if let Some(old) = current.replace(new) {
            // Empty: checked above, and only the commander fills it.
            let displaced = self.retired.put(old);
            debug_assert!(displaced.is_none());
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    fn pair() -> (CommandSocket, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (far, _) = listener.accept().unwrap();
        (CommandSocket { socket: near.into(), recipe: 0xa5 }, far)
    }

    fn closed(mut far: TcpStream) -> bool {
        far.set_read_timeout(Some(std::time::Duration::from_secs(5))).unwrap();
        matches!(far.read(&mut [0; 1]), Ok(0))
    }

    #[test]
    fn every_socket_is_closed_once_by_its_owner() {
        let mailbox = Mailbox::default();
        let mut current = None;
        assert!(!mailbox.renew(&mut current));

        let (first, first_far) = pair();
        let number = first.socket.as_raw_fd();
        mailbox.offer(first);
        assert!(mailbox.renew(&mut current));
        let taken = current.as_ref().unwrap();
        assert_eq!((taken.socket.as_raw_fd(), taken.recipe), (number, 0xa5));

        let (second, second_far) = pair();
        let (third, third_far) = pair();
        mailbox.offer(second);
        mailbox.offer(third);
        assert!(closed(second_far), "never taken: closed when displaced");
        assert!(mailbox.renew(&mut current));

        let (fourth, fourth_far) = pair();
        mailbox.offer(fourth);
        assert!(!mailbox.renew(&mut current), "the first is not closed yet");
        mailbox.close_retired();
        assert!(closed(first_far));
        assert!(mailbox.renew(&mut current));
        mailbox.close_retired();
        assert!(closed(third_far));
        drop(current);
        assert!(closed(fourth_far));
    }

    #[test]
    fn a_mailbox_closes_what_it_still_owns() {
        let mailbox = Mailbox::default();
        let (socket, far) = pair();
        mailbox.offer(socket);
        drop(mailbox);
        assert!(closed(far));
    }
}

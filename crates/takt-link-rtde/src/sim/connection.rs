//! A connection of the simulated controller to one client: nothing on it ever waits.

use std::io::{self, Read};
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd, RawFd};

use crate::socket;

#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    /// Bytes that the kernel has not taken yet.
    waiting: Vec<u8>,
    /// To be closed when it is not set.
    pub(super) open: bool,
}

impl Connection {
    pub(super) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, waiting: Vec::new(), open: true })
    }

    pub(super) fn fd(&self) -> RawFd {
        self.stream.as_raw_fd()
    }

    /// Reads what has come.
    pub(super) fn read(&mut self, free: &mut [u8]) -> io::Result<usize> {
        self.stream.read(free)
    }

    /// Number of bytes that the kernel has not accepted yet.
    pub(super) fn waiting_bytes(&self) -> usize {
        self.waiting.len()
    }

    /// Keeps bytes for the next [`flush`](Self::flush). The protocol defines how many may wait.
    pub(super) fn keep(&mut self, bytes: &[u8]) {
        self.waiting.extend_from_slice(bytes);
    }

    /// Gives the kernel what it takes; never blocks.
    pub(super) fn flush(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        match socket::send_now(self.stream.as_fd(), &self.waiting) {
            Ok(sent) => {
                self.waiting.drain(..sent);
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(_) => self.open = false,
        }
    }

    /// Makes the close a reset, as a lost peer looks.
    pub(super) fn reset(&mut self) {
        // Without it the close is an orderly one: a milder fault, still a lost link.
        let _ = socket::set_abortive_close(&self.stream);
        self.open = false;
    }
}

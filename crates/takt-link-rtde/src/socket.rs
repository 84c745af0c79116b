//! The few socket calls that the standard library does not offer.

use std::io;
use std::net::TcpStream;
use std::os::fd::{AsRawFd, BorrowedFd};

use takt_rt::clock::monotonic_ns;

/// Sends what fits without ever blocking and without SIGPIPE; returns how many bytes the kernel
/// took.
pub(crate) fn send_now(socket: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    // SAFETY: the descriptor is open for as long as it is borrowed, and the pointer and length are
    // those of a live slice that the kernel only reads.
    let sent = unsafe {
        libc::send(
            socket.as_raw_fd(),
            bytes.as_ptr().cast(),
            bytes.len(),
            libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
        )
    };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// Reads what is there without ever blocking; returns how many bytes came, 0 at the end of the
/// stream.
pub(crate) fn receive_now(socket: BorrowedFd<'_>, free: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the descriptor is open for as long as it is borrowed, and the pointer and length are
    // those of a live slice that the kernel only writes.
    let read =
        unsafe { libc::recv(socket.as_raw_fd(), free.as_mut_ptr().cast(), free.len(), libc::MSG_DONTWAIT) };
    usize::try_from(read).map_err(|_| io::Error::last_os_error())
}

/// Waits until there is something to read, or until `deadline_ns` of CLOCK_MONOTONIC: then false.
pub(crate) fn wait_readable(socket: BorrowedFd<'_>, deadline_ns: u64) -> io::Result<bool> {
    let mut polled = libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    loop {
        let left_ns = deadline_ns.saturating_sub(monotonic_ns());
        let left = libc::timespec {
            tv_sec: (left_ns / 1_000_000_000) as libc::time_t,
            tv_nsec: (left_ns % 1_000_000_000) as libc::c_long,
        };
        // SAFETY: one live pollfd of an open descriptor, and a live timespec; no signal mask is
        // given.
        match unsafe { libc::ppoll(&raw mut polled, 1, &raw const left, std::ptr::null()) } {
            0 => return Ok(false),
            1.. => return Ok(true),
            _ => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
}

fn set_int(stream: &TcpStream, level: i32, option: i32, value: libc::c_int) -> io::Result<()> {
    // SAFETY: the descriptor is open for as long as `stream` is borrowed; pointer and size describe
    // `value`.
    let rc = unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            size_of_val(&value) as libc::socklen_t,
        )
    };
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Bounds the bytes that wait in the kernel for a peer that does not read.
pub(crate) fn set_send_buffer(stream: &TcpStream, bytes: i32) -> io::Result<()> {
    set_int(stream, libc::SOL_SOCKET, libc::SO_SNDBUF, bytes)
}

/// Breaks the connection when sent bytes stay unacknowledged for so long (RFC 5482).
pub(crate) fn set_user_timeout(stream: &TcpStream, milliseconds: u32) -> io::Result<()> {
    let value = libc::c_int::try_from(milliseconds).unwrap_or(libc::c_int::MAX);
    set_int(stream, libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, value)
}

/// Makes closing the socket send RST at once, so that a peer sees a dropped link as such.
pub(crate) fn set_abortive_close(stream: &TcpStream) -> io::Result<()> {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    // SAFETY: the descriptor is open for as long as `stream` is borrowed; pointer and size describe
    // `linger`.
    let rc = unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            (&raw const linger).cast(),
            size_of_val(&linger) as libc::socklen_t,
        )
    };
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

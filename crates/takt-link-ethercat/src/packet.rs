//! Packet sockets of one interface: what master, segment and tap open alike.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// A raw packet socket that gets nothing until [`bind`] gives it an interface and a protocol: one
/// that has a protocol from the start gets the frames of all interfaces in between. `flags`:
/// `SOCK_NONBLOCK` or 0.
pub(crate) fn open(flags: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: no memory is handed over.
    let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC | flags, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Frames of `protocol` (an EtherType, or `ETH_P_ALL`) on the interface with this index come from
/// now on.
pub(crate) fn bind(socket: &OwnedFd, index: i32, protocol: u16) -> io::Result<()> {
    // SAFETY: all bytes zero is a valid sockaddr_ll.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = protocol.to_be();
    address.sll_ifindex = index;
    let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the address is as long as instructed.
    match unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

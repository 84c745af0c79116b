//! A tap: all frames of one interface, in both directions, stamped by the kernel.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use crate::packet;
use crate::segment::raw::{InterfaceError, check_interface};
use crate::segment::veth::namespace_of;

/// Room for frames that wait to be taken. 16 MiB: some thousand full frames, seconds of a busy bus.
const BUFFER_BYTES: libc::c_int = 16 << 20;

/// A frame as a tap saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sighted {
    /// CLOCK_REALTIME, nanoseconds. For a received frame when the network stack got it, before any
    /// thread woke up; for a sent one when it was handed to the driver.
    pub time_ns: u64,
    /// Whether this host sent it.
    pub outgoing: bool,
    /// The frame.
    pub frame: Vec<u8>,
}

/// A packet socket that sees everything on one interface.
#[derive(Debug)]
pub struct Tap {
    name: String,
    socket: OwnedFd,
}

impl Tap {
    /// Opens a tap on interface `name`. The segment's end of a pair of this process is found in the
    /// pair's network namespace.
    ///
    /// # Errors
    /// [`InterfaceError`].
    pub fn open(name: &str) -> Result<Self, InterfaceError> {
        let Some(namespace) = namespace_of(name) else { return Self::open_here(name) };
        let what = "entering the network namespace";
        namespace.run(|| Self::open_here(name)).map_err(|source| InterfaceError::System {
            what,
            name: name.to_owned(),
            source,
        })?
    }

    fn open_here(name: &str) -> Result<Self, InterfaceError> {
        check_interface(name)?;
        let own = || name.to_owned();
        let system = |what| InterfaceError::System { what, name: own(), source: io::Error::last_os_error() };
        // Outgoing frames are shown to sockets for all protocols alone.
        let protocol = libc::ETH_P_ALL as u16;
        let socket = packet::open(libc::SOCK_NONBLOCK).map_err(|error| match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => InterfaceError::NoRight { name: own() },
            _ => InterfaceError::System { what: "opening a tap", name: own(), source: error },
        })?;
        let option = |option: libc::c_int, value: libc::c_int| {
            let length = size_of::<libc::c_int>() as libc::socklen_t;
            // SAFETY: the value is as long as instructed.
            unsafe {
                libc::setsockopt(
                    socket.as_raw_fd(),
                    libc::SOL_SOCKET,
                    option,
                    (&raw const value).cast(),
                    length,
                )
            }
        };
        // Without CAP_NET_ADMIN as much as the system allows.
        if option(libc::SO_RCVBUFFORCE, BUFFER_BYTES) < 0 {
            option(libc::SO_RCVBUF, BUFFER_BYTES);
        }
        if option(libc::SO_TIMESTAMPNS, 1) < 0 {
            return Err(system("asking for time stamps"));
        }
        let c_name = std::ffi::CString::new(name).map_err(|_| InterfaceError::Name { name: own() })?;
        // SAFETY: the name ends with NUL.
        let index = unsafe { libc::if_nametoindex(c_name.as_ptr()) };
        packet::bind(&socket, index as i32, protocol).map_err(|_| system("binding the tap"))?;
        Ok(Self { name: own(), socket })
    }

    /// The interface's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The next frame, without waiting.
    ///
    /// # Errors
    /// What the system says; after an interface has gone down, once.
    pub fn take(&self) -> io::Result<Option<Sighted>> {
        let mut bytes = [0_u8; 2048];
        // SAFETY: all bytes zero is valid for both.
        let mut from: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        // SAFETY: as above.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        // Aligned as control messages must be.
        let mut control = [0_u64; 16];
        let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        message.msg_name = (&raw mut from).cast();
        message.msg_namelen = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control) as _;
        // SAFETY: all parts are valid for the lengths reported, and outlive the call.
        let length = unsafe { libc::recvmsg(self.socket.as_raw_fd(), &raw mut message, 0) };
        if length < 0 {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
                _ => Err(error),
            };
        }
        let mut time_ns = 0;
        // SAFETY: the kernel filled the control buffer, whose bounds the macros keep to.
        unsafe {
            let mut header = libc::CMSG_FIRSTHDR(&raw const message);
            while !header.is_null() {
                if (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == libc::SCM_TIMESTAMPNS {
                    let time: libc::timespec = std::ptr::read_unaligned(libc::CMSG_DATA(header).cast());
                    time_ns = time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64;
                }
                header = libc::CMSG_NXTHDR(&raw const message, header);
            }
        }
        let length = (length as usize).min(bytes.len());
        Ok(Some(Sighted {
            time_ns,
            outgoing: from.sll_pkttype == libc::PACKET_OUTGOING,
            frame: bytes[..length].to_vec(),
        }))
    }

    /// Frames that found no room since the last call.
    pub fn dropped(&self) -> u64 {
        let mut statistics = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
        let mut length = size_of::<libc::tpacket_stats>() as libc::socklen_t;
        // SAFETY: the statistics are as long as instructed.
        let outcome = unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut statistics).cast(),
                &raw mut length,
            )
        };
        if outcome < 0 { 0 } else { statistics.tp_drops.into() }
    }
}

//! Packet sockets (packet(7)): what passes network interfaces, below the protocols, with the
//! kernel's own time stamps. EtherCAT's master, segment and recorder use them, and whoever follows
//! a link from outside.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// `ETH_P_ALL`: every protocol, and what this host sends as well.
pub const EVERY_PROTOCOL: u16 = libc::ETH_P_ALL as u16;

/// `PACKET_IGNORE_OUTGOING` of linux/if_packet.h.
const IGNORE_OUTGOING: libc::c_int = 23;

/// The part of a packet that is received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layer {
    /// The frame, from the link's header on.
    Frame,
    /// From the network's header on, whatever the link.
    Network,
}

/// The kernel's information about a received packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    /// Bytes of it that are in the buffer.
    pub length: usize,
    /// CLOCK_REALTIME: for a received packet when the network stack got it, before any thread woke
    /// up; for a sent one when it was handed to the driver. `None` without
    /// [`stamp`](PacketSocket::stamp).
    pub time_ns: Option<u64>,
    /// Whether this host sent it.
    pub outgoing: bool,
    /// Index of the interface that it passed.
    pub interface: i32,
}

/// A packet socket.
#[derive(Debug)]
pub struct PacketSocket(OwnedFd);

impl PacketSocket {
    /// A socket that gets nothing until [`bind`](Self::bind) gives it an interface and a protocol:
    /// one that has a protocol from the start gets the packets of all interfaces in between.
    /// `waits`: whether receiving waits for a packet.
    ///
    /// # Errors
    /// `EPERM` without CAP_NET_RAW; what the system says.
    pub fn open(layer: Layer, waits: bool) -> io::Result<Self> {
        let layer = match layer {
            Layer::Frame => libc::SOCK_RAW,
            Layer::Network => libc::SOCK_DGRAM,
        };
        let wait = if waits { 0 } else { libc::SOCK_NONBLOCK };
        // SAFETY: no memory is handed over.
        let fd = unsafe { libc::socket(libc::AF_PACKET, layer | libc::SOCK_CLOEXEC | wait, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and nobody else has it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Packets of `protocol` (an EtherType, or [`EVERY_PROTOCOL`]) on the interface with this index
    /// come from now on; 0: on all interfaces of this network namespace.
    ///
    /// # Errors
    /// `ENETDOWN` for an interface that is down; what the system says.
    pub fn bind(&self, index: u32, protocol: u16) -> io::Result<()> {
        // SAFETY: all bytes zero is a valid sockaddr_ll.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = protocol.to_be();
        address.sll_ifindex = index as i32;
        let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: the address is as long as instructed.
        match unsafe { libc::bind(self.0.as_raw_fd(), (&raw const address).cast(), length) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Takes packets alone that a program of classic BPF (linux/filter.h) lets through.
    ///
    /// # Errors
    /// The system's error: the program is not one that ends.
    pub fn filter(&self, program: &[libc::sock_filter]) -> io::Result<()> {
        // The kernel copies it, and does not write to it.
        let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut() };
        self.option(libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
    }

    /// Leaves out what this host sends; Linux 5.4 and later.
    ///
    /// # Errors
    /// The system's error.
    pub fn ignore_outgoing(&self) -> io::Result<()> {
        self.option(libc::SOL_PACKET, IGNORE_OUTGOING, &1_i32)
    }

    /// Asks for the kernel's time stamps.
    ///
    /// # Errors
    /// The system's error.
    pub fn stamp(&self) -> io::Result<()> {
        self.option(libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, &1_i32)
    }

    /// Makes room for packets that wait; without CAP_NET_ADMIN as much as the system allows.
    pub fn enlarge_buffer(&self, bytes: i32) {
        if self.option(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &bytes).is_err() {
            let _ = self.option(libc::SOL_SOCKET, libc::SO_RCVBUF, &bytes);
        }
    }

    /// Sets how long receiving waits; 0: forever.
    ///
    /// # Errors
    /// The system's error.
    pub fn set_patience(&self, patience: Duration) -> io::Result<()> {
        let patience = libc::timeval {
            tv_sec: patience.as_secs() as libc::time_t,
            tv_usec: libc::suseconds_t::from(patience.subsec_micros()),
        };
        self.option(libc::SOL_SOCKET, libc::SO_RCVTIMEO, &patience)
    }

    fn option<T>(&self, level: libc::c_int, name: libc::c_int, value: &T) -> io::Result<()> {
        let (fd, length) = (self.0.as_raw_fd(), size_of::<T>() as libc::socklen_t);
        // SAFETY: the value is as long as instructed, and the kernel copies it.
        let outcome = unsafe { libc::setsockopt(fd, level, name, (&raw const *value).cast(), length) };
        if outcome < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// The next packet; `None` where none is there, or came in time.
    ///
    /// # Errors
    /// The system's error; once after an interface has gone down.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        // SAFETY: the buffer is as long as instructed.
        let length = unsafe { libc::recv(self.0.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0) };
        usize::try_from(length).map_or_else(|_| none_came(), |length| Ok(Some(length)))
    }

    /// As [`receive`](Self::receive), with what the kernel says of the packet.
    ///
    /// # Errors
    /// As there.
    pub fn take(&self, buffer: &mut [u8]) -> io::Result<Option<Taken>> {
        // SAFETY: all bytes zero is valid for both.
        let (mut from, mut message): (libc::sockaddr_ll, libc::msghdr) =
            unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        // Aligned as control messages must be.
        let mut control = [0_u64; 16];
        let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        message.msg_name = (&raw mut from).cast();
        message.msg_namelen = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control) as _;
        // SAFETY: all parts are valid for the lengths reported, and outlive the call.
        let length = unsafe { libc::recvmsg(self.0.as_raw_fd(), &raw mut message, 0) };
        let Ok(length) = usize::try_from(length) else { return none_came() };
        Ok(Some(Taken {
            length: length.min(buffer.len()),
            time_ns: stamp_of(&message),
            outgoing: from.sll_pkttype == libc::PACKET_OUTGOING,
            interface: from.sll_ifindex,
        }))
    }

    /// Sends one frame.
    ///
    /// # Errors
    /// The system's error; `WriteZero` if it accepted only a part.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        // SAFETY: the frame is as long as instructed.
        let sent = unsafe { libc::send(self.0.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
        match usize::try_from(sent) {
            Ok(sent) if sent == frame.len() => Ok(()),
            Ok(_) => Err(io::ErrorKind::WriteZero.into()),
            Err(_) => Err(io::Error::last_os_error()),
        }
    }

    /// When the kernel got the packet that was received last, CLOCK_REALTIME; `None` before the
    /// first. The first question switches these stamps on.
    pub fn last_stamp_ns(&self) -> Option<u64> {
        // Of 64 bits on every architecture: SIOCGSTAMPNS_NEW of linux/sockios.h, _IOR(0x89, 0x07,
        // long long[2]).
        let request = libc::_IOR::<[i64; 2]>(0x89, 0x07);
        let mut stamp = [0_i64; 2];
        // SAFETY: the kernel writes two 64-bit numbers.
        let outcome = unsafe { libc::ioctl(self.0.as_raw_fd(), request as _, stamp.as_mut_ptr()) };
        (outcome == 0).then_some(nanoseconds(stamp[0], stamp[1])?).filter(|&ns| ns > 0)
    }

    /// Packets that found no room since the last call.
    pub fn dropped(&self) -> u64 {
        let mut statistics = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
        let mut length = size_of::<libc::tpacket_stats>() as libc::socklen_t;
        // SAFETY: the statistics are as long as instructed.
        let outcome = unsafe {
            libc::getsockopt(
                self.0.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut statistics).cast(),
                &raw mut length,
            )
        };
        if outcome < 0 { 0 } else { statistics.tp_drops.into() }
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Waits until `socket` may have a packet, at most so long; whether one is there.
pub fn wait(socket: BorrowedFd<'_>, most: Duration) -> bool {
    let mut poll = libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let most = libc::timespec {
        tv_sec: most.as_secs() as libc::time_t,
        tv_nsec: libc::c_long::from(most.subsec_nanos() as i32),
    };
    // SAFETY: one descriptor, as instructed, and a time; no signal mask.
    unsafe { libc::ppoll(&raw mut poll, 1, &raw const most, std::ptr::null()) > 0 }
}

/// Interprets a call that received nothing.
fn none_came<T>() -> io::Result<Option<T>> {
    let error = io::Error::last_os_error();
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted => Ok(None),
        _ => Err(error),
    }
}

/// The time stamp among control messages.
fn stamp_of(message: &libc::msghdr) -> Option<u64> {
    // SAFETY: the kernel filled the control buffer, whose bounds the macros keep to.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(message);
        while !header.is_null() {
            if (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == libc::SCM_TIMESTAMPNS {
                let time: libc::timespec = std::ptr::read_unaligned(libc::CMSG_DATA(header).cast());
                return nanoseconds(time.tv_sec, time.tv_nsec);
            }
            header = libc::CMSG_NXTHDR(message, header);
        }
    }
    None
}

fn nanoseconds(s: i64, ns: i64) -> Option<u64> {
    u64::try_from(s).ok()?.checked_mul(1_000_000_000)?.checked_add(u64::try_from(ns).ok()?)
}

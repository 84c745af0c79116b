//! Raw sockets: EtherCAT frames of one interface.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use takt_rt::net;

use crate::packet;

use super::wire::ETHERTYPE;

/// Longest interface name (IFNAMSIZ less the NUL).
const MAX_NAME: usize = 15;

/// Why an interface cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum InterfaceError {
    /// No such interface.
    #[error("there is no network interface \"{name}\"; there are: {known}. Fix: `ip link` lists them")]
    NoInterface {
        /// The name asked for.
        name: String,
        /// Those that exist.
        known: String,
    },
    /// The interface is there, but down.
    #[error("network interface \"{name}\" is down. Fix: ip link set {name} up")]
    Down {
        /// The interface.
        name: String,
    },
    /// Not Ethernet.
    #[error(
        "network interface \"{name}\" is of link type {found}, expected 1 (Ethernet); EtherCAT needs Ethernet frames"
    )]
    NotEthernet {
        /// The interface.
        name: String,
        /// ARPHRD_ type.
        found: String,
    },
    /// Raw sockets are for the privileged.
    #[error(
        "no right to open a raw socket on \"{name}\". Fix: run as root, or give the program the capability: \
         setcap cap_net_raw,cap_net_admin+ep PROGRAM"
    )]
    NoRight {
        /// The interface.
        name: String,
    },
    /// The system said something else.
    #[error("{what} on \"{name}\": {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// The interface.
        name: String,
        /// The system's answer.
        source: io::Error,
    },
    /// A name that no interface can have.
    #[error("\"{name}\" cannot be an interface's name: 1 to 15 characters without blanks and slashes")]
    Name {
        /// The name given.
        name: String,
    },
}

pub(super) fn check_name(name: &str) -> Result<(), InterfaceError> {
    let fits = (1..=MAX_NAME).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/' && byte != b':');
    if fits && name != "." && name != ".." {
        Ok(())
    } else {
        Err(InterfaceError::Name { name: name.to_owned() })
    }
}

/// Checks that `name` is an Ethernet interface that is up, of this thread's network namespace. The
/// socket is asked: `/sys/class/net` may show another namespace.
///
/// # Errors
/// [`InterfaceError::Name`], [`InterfaceError::NoInterface`], [`InterfaceError::NotEthernet`],
/// [`InterfaceError::Down`].
pub fn check_interface(name: &str) -> Result<(), InterfaceError> {
    check_name(name)?;
    let own = || name.to_owned();
    let found = net::interface(name).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => {
            InterfaceError::NoInterface { name: own(), known: net::names().join(", ") }
        }
        _ => InterfaceError::System { what: "asking for its state", name: own(), source },
    })?;
    if found.link_type != libc::ARPHRD_ETHER {
        return Err(InterfaceError::NotEthernet { name: own(), found: found.link_type.to_string() });
    }
    if !found.is_up() {
        return Err(InterfaceError::Down { name: own() });
    }
    Ok(())
}

/// A raw socket that gets the EtherCAT frames of one interface.
#[derive(Debug)]
pub struct RawSocket(OwnedFd);

/// `PACKET_IGNORE_OUTGOING` of linux/if_packet.h.
const IGNORE_OUTGOING: libc::c_int = 23;

impl RawSocket {
    /// Opens a socket on interface `name`, whose [`receive`](Self::receive) waits at most
    /// `patience` (0: does not wait). The segment's end of a [`VethPair`](super::veth::VethPair) of
    /// this process is found where it is, in the pair's network namespace.
    ///
    /// # Errors
    /// [`InterfaceError`].
    pub fn open(name: &str, patience: Duration) -> Result<Self, InterfaceError> {
        let Some(namespace) = super::veth::namespace_of(name) else { return Self::open_here(name, patience) };
        let what = "entering the network namespace";
        namespace.run(|| Self::open_here(name, patience)).map_err(|source| InterfaceError::System {
            what,
            name: name.to_owned(),
            source,
        })?
    }

    fn open_here(name: &str, patience: Duration) -> Result<Self, InterfaceError> {
        check_interface(name)?;
        let own = || name.to_owned();
        let system =
            |what| InterfaceError::System { what, name: name.to_owned(), source: io::Error::last_os_error() };
        let wait = if patience.is_zero() { libc::SOCK_NONBLOCK } else { 0 };
        let socket = packet::open(wait).map_err(|error| match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => InterfaceError::NoRight { name: own() },
            _ => InterfaceError::System { what: "opening a raw socket", name: own(), source: error },
        })?;
        let socket = Self(socket);
        // Our own answers must not come back as requests.
        socket
            .option(libc::SOL_PACKET, IGNORE_OUTGOING, &1_i32)
            .map_err(|_| system("ignoring outgoing frames"))?;
        let patience = libc::timeval {
            tv_sec: patience.as_secs() as libc::time_t,
            tv_usec: libc::suseconds_t::from(patience.subsec_micros()),
        };
        socket
            .option(libc::SOL_SOCKET, libc::SO_RCVTIMEO, &patience)
            .map_err(|_| system("setting the time-out"))?;
        let c_name = std::ffi::CString::new(name).map_err(|_| InterfaceError::Name { name: own() })?;
        // SAFETY: the name ends with NUL.
        let index = unsafe { libc::if_nametoindex(c_name.as_ptr()) };
        packet::bind(&socket.0, index as i32, ETHERTYPE).map_err(|_| system("binding the raw socket"))?;
        Ok(socket)
    }

    fn option<T>(&self, level: libc::c_int, name: libc::c_int, value: &T) -> io::Result<()> {
        let (fd, length) = (self.0.as_raw_fd(), size_of::<T>() as libc::socklen_t);
        // SAFETY: the value is as long as instructed.
        let outcome = unsafe { libc::setsockopt(fd, level, name, (&raw const *value).cast(), length) };
        if outcome < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// One frame; `Ok(None)` when none came in time.
    ///
    /// # Errors
    /// What the system says; after an interface has gone down, once.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        // SAFETY: the buffer is as long as instructed.
        let length = unsafe { libc::recv(self.0.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0) };
        if length >= 0 {
            return Ok(Some(length as usize));
        }
        let error = io::Error::last_os_error();
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted => Ok(None),
            _ => Err(error),
        }
    }

    /// Whether a frame is there.
    pub fn has_frame(&self) -> bool {
        self.wait(Duration::ZERO)
    }

    /// Waits for a frame, at most so long; whether one is there.
    pub fn wait(&self, most: Duration) -> bool {
        let mut poll = libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let time = libc::timespec {
            tv_sec: most.as_secs() as libc::time_t,
            tv_nsec: libc::c_long::from(most.subsec_nanos() as i32),
        };
        // SAFETY: one descriptor, as instructed; no signal mask.
        unsafe { libc::ppoll(&raw mut poll, 1, &raw const time, std::ptr::null()) > 0 }
    }

    /// Sends one frame.
    ///
    /// # Errors
    /// What the system says.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        // SAFETY: the frame is as long as instructed.
        let sent = unsafe { libc::send(self.0.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

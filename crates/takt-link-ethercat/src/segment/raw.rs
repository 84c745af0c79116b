//! Raw sockets: EtherCAT frames of one interface.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use takt_rt::net;
use takt_rt::packet::{self, Layer, PacketSocket};

use super::wire::ETHERTYPE;

/// Longest interface name (IFNAMSIZ less the NUL).
const MAX_NAME: usize = 15;

/// Reason why an interface cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum InterfaceError {
    /// No such interface.
    #[error(
        "there is no network interface \"{name}\"; the interfaces are: {known}. Fix: `ip link` lists them"
    )]
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
        "network interface \"{name}\" has link type {found}, expected 1 (Ethernet); EtherCAT needs Ethernet frames"
    )]
    NotEthernet {
        /// The interface.
        name: String,
        /// ARPHRD_ type.
        found: String,
    },
    /// Raw sockets are for the privileged.
    #[error(
        "no permission to open a raw socket on \"{name}\". Fix: run as root, or give the program the capability: setcap \
         cap_net_raw,cap_net_admin+ep PROGRAM"
    )]
    NoRight {
        /// The interface.
        name: String,
    },
    /// The system said something else.
    #[error("{what} on \"{name}\": {source}")]
    System {
        /// The attempt.
        what: &'static str,
        /// The interface.
        name: String,
        /// The system's answer.
        source: io::Error,
    },
    /// A name that no interface can have.
    #[error(
        "\"{name}\" cannot be an interface's name: expected 1 to 15 characters without blanks and slashes"
    )]
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

/// Checks that `name` is an Ethernet interface that is up, of this thread's network namespace, and
/// returns its index. The socket is asked: `/sys/class/net` may show another namespace.
///
/// # Errors
/// [`InterfaceError::Name`], [`InterfaceError::NoInterface`], [`InterfaceError::NotEthernet`],
/// [`InterfaceError::Down`].
pub fn check_interface(name: &str) -> Result<u32, InterfaceError> {
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
    Ok(found.index)
}

/// Meaning of a failure to open a packet socket on interface `name`.
pub(crate) fn open_error(what: &'static str, name: &str) -> impl FnOnce(io::Error) -> InterfaceError {
    let name = name.to_owned();
    move |source| match source.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => InterfaceError::NoRight { name },
        _ => InterfaceError::System { what, name, source },
    }
}

/// A raw socket that gets the EtherCAT frames of one interface.
#[derive(Debug)]
pub struct RawSocket(PacketSocket);

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
        let index = check_interface(name)?;
        let system = |what| move |source| InterfaceError::System { what, name: name.to_owned(), source };
        let opened = PacketSocket::open(Layer::Frame, !patience.is_zero());
        let socket = opened.map_err(open_error("opening a raw socket", name))?;
        // Our own answers must not come back as requests.
        socket.ignore_outgoing().map_err(system("ignoring outgoing frames"))?;
        socket.set_patience(patience).map_err(system("setting the time-out"))?;
        socket.bind(index, ETHERTYPE).map_err(system("binding the raw socket"))?;
        Ok(Self(socket))
    }

    /// One frame; `Ok(None)` when none came in time.
    ///
    /// # Errors
    /// The system's error; once after an interface has gone down.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        self.0.receive(buffer)
    }

    pub(crate) fn has_frame(&self) -> bool {
        self.wait(Duration::ZERO)
    }

    /// Waits for a frame, at most so long; whether one is there.
    pub fn wait(&self, most: Duration) -> bool {
        packet::wait(self.0.as_fd(), most)
    }

    /// Sends one frame.
    ///
    /// # Errors
    /// The system's error.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        self.0.send(frame)
    }
}

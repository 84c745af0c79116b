//! A tap: all frames of one interface, in both directions, stamped by the kernel.

use std::io;

use takt_rt::packet::{EVERY_PROTOCOL, Layer, PacketSocket};

use crate::segment::raw::{InterfaceError, check_interface, open_error};
use crate::segment::veth::namespace_of;

/// Room for frames that wait to be taken. 16 MiB: some thousand full frames, seconds of a busy bus.
const BUFFER_BYTES: i32 = 16 << 20;

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
    socket: PacketSocket,
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
        let index = check_interface(name)?;
        let system = |what| move |source| InterfaceError::System { what, name: name.to_owned(), source };
        let socket = PacketSocket::open(Layer::Frame, false).map_err(open_error("opening a tap", name))?;
        socket.enlarge_buffer(BUFFER_BYTES);
        socket.stamp().map_err(system("requesting timestamps"))?;
        // Outgoing frames are shown to sockets for all protocols alone.
        socket.bind(index, EVERY_PROTOCOL).map_err(system("binding the tap"))?;
        Ok(Self { name: name.to_owned(), socket })
    }

    /// The interface's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The next frame, without waiting.
    ///
    /// # Errors
    /// The system's error; once after an interface has gone down.
    pub fn take(&self) -> io::Result<Option<Sighted>> {
        let mut bytes = [0_u8; 2048];
        let taken = self.socket.take(&mut bytes)?;
        Ok(taken.map(|taken| Sighted {
            time_ns: taken.time_ns.unwrap_or(0),
            outgoing: taken.outgoing,
            frame: bytes[..taken.length].to_vec(),
        }))
    }

    /// Frames that found no room since the last call.
    pub fn dropped(&self) -> u64 {
        self.socket.dropped()
    }
}

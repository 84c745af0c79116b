//! Packets out of a stream of bytes, and into one.

use super::WireError;

/// Bytes of a packet header: size (`u16`) and type (`u8`).
pub const HEADER_BYTES: usize = 3;

/// Largest packet that the size field can announce.
pub const MAX_PACKET_BYTES: usize = u16::MAX as usize;

/// RTDE packet types, protocol version 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PacketType {
    /// `V`: ask for, or accept, a protocol version.
    ProtocolVersion = b'V',
    /// `v`: ask for, or report, the controller's version.
    ControllerVersion = b'v',
    /// `M`: a text for people.
    Text = b'M',
    /// `U`: values of one recipe.
    Data = b'U',
    /// `O`: set up the output recipe (controller to client).
    SetupOutputs = b'O',
    /// `I`: set up an input recipe (client to controller).
    SetupInputs = b'I',
    /// `S`: start sending outputs.
    Start = b'S',
    /// `P`: pause sending outputs.
    Pause = b'P',
}

impl TryFrom<u8> for PacketType {
    type Error = WireError;

    fn try_from(byte: u8) -> Result<Self, WireError> {
        Ok(match byte {
            b'V' => Self::ProtocolVersion,
            b'v' => Self::ControllerVersion,
            b'M' => Self::Text,
            b'U' => Self::Data,
            b'O' => Self::SetupOutputs,
            b'I' => Self::SetupInputs,
            b'S' => Self::Start,
            b'P' => Self::Pause,
            received => return Err(WireError::UnknownType { received }),
        })
    }
}

/// One framed packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Its type.
    pub kind: PacketType,
    /// Content after the header.
    pub payload: &'a [u8],
}

/// Splits the first packet off `bytes`: the packet and its size, or `None` while it is still
/// incomplete.
///
/// # Errors
/// A header that no RTDE peer sends, as soon as its bytes are there: the size is judged before the
/// type, and both before the payload has come, so that a foreign peer is noticed at once.
pub fn split(bytes: &[u8]) -> Result<Option<(Packet<'_>, usize)>, WireError> {
    let [high, low, rest @ ..] = bytes else { return Ok(None) };
    let announced = u16::from_be_bytes([*high, *low]);
    let size = usize::from(announced);
    if size < HEADER_BYTES {
        return Err(WireError::SizeTooSmall { announced });
    }
    let Some(kind) = rest.first() else { return Ok(None) };
    let kind = PacketType::try_from(*kind)?;
    Ok(bytes.get(HEADER_BYTES..size).map(|payload| (Packet { kind, payload }, size)))
}

/// Bytes as they arrive, handed out as packets: the receive buffer of one connection, allocated
/// once.
#[derive(Debug)]
pub struct FrameBuffer {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
}

impl FrameBuffer {
    /// A buffer that takes packets of up to `max_packet` bytes.
    pub fn new(max_packet: usize) -> Self {
        let capacity = max_packet.clamp(HEADER_BYTES, MAX_PACKET_BYTES);
        Self { bytes: vec![0; capacity].into_boxed_slice(), start: 0, end: 0 }
    }

    /// Lets `read` append bytes to the free part of the buffer; `read` shows how many it wrote.
    ///
    /// Call it when [`Self::next_packet`] has returned `None`: then there always is room.
    ///
    /// # Errors
    /// Whatever `read` returns.
    pub fn fill<E>(&mut self, read: impl FnOnce(&mut [u8]) -> Result<usize, E>) -> Result<usize, E> {
        if self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        let free = self.bytes.len() - self.end;
        let read = read(&mut self.bytes[self.end..])?.min(free);
        self.end += read;
        Ok(read)
    }

    /// The next complete packet, or `None` until more bytes have come.
    ///
    /// # Errors
    /// Malformed or oversize packets; the stream cannot be followed any more and has to be closed.
    pub fn next_packet(&mut self) -> Result<Option<Packet<'_>>, WireError> {
        let bytes = &self.bytes[self.start..self.end];
        if let [high, low, ..] = bytes {
            let announced = u16::from_be_bytes([*high, *low]);
            if usize::from(announced) > self.bytes.len() {
                return Err(WireError::SizeTooLarge { announced, limit: self.bytes.len() });
            }
        }
        match split(bytes)? {
            Some((packet, size)) => {
                self.start += size;
                Ok(Some(packet))
            }
            None => Ok(None),
        }
    }

    /// Forgets what has arrived, for a new connection.
    pub fn clear(&mut self) {
        (self.start, self.end) = (0, 0);
    }
}

//! The records of an MCAP file (<https://mcap.dev/spec>), as far as replay needs them.

/// Opcodes.
pub(super) mod op {
    pub(in super::super) const FOOTER: u8 = 0x02;
    pub(in super::super) const SCHEMA: u8 = 0x03;
    pub(in super::super) const CHANNEL: u8 = 0x04;
    pub(in super::super) const MESSAGE: u8 = 0x05;
    pub(in super::super) const CHUNK: u8 = 0x06;
    pub(in super::super) const MESSAGE_INDEX: u8 = 0x07;
    pub(in super::super) const CHUNK_INDEX: u8 = 0x08;
    pub(in super::super) const STATISTICS: u8 = 0x0b;
    pub(in super::super) const DATA_END: u8 = 0x0f;
}

/// Bytes of opcode and length before a record.
pub(super) const HEAD_BYTES: u64 = 9;

/// Bytes of a message before its data: channel, sequence number, two times.
pub(super) const MESSAGE_HEAD_BYTES: u64 = 22;

/// Bytes of a footer record with its opcode and length.
pub(super) const FOOTER_BYTES: u64 = HEAD_BYTES + 20;

/// Reads little-endian fields off the front of a record; `None` once it is too short.
#[derive(Clone, Copy)]
pub(super) struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    pub(super) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn string(&mut self) -> Option<&'a str> {
        let length = self.u32()?;
        std::str::from_utf8(self.bytes(usize::try_from(length).ok()?)?).ok()
    }
}

/// Opcode and length of a record.
pub(super) fn head(bytes: [u8; HEAD_BYTES as usize]) -> (u8, u64) {
    let [opcode, length @ ..] = bytes;
    (opcode, u64::from_le_bytes(length))
}

/// Header before the data of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MessageHead {
    pub channel: u16,
    pub log_time_ns: u64,
}

pub(super) fn message_head(bytes: &[u8]) -> Option<MessageHead> {
    let mut fields = Fields(bytes);
    let channel = fields.u16()?;
    let _sequence = fields.u32()?;
    let log_time_ns = fields.u64()?;
    let _publish_time = fields.u64()?;
    Some(MessageHead { channel, log_time_ns })
}

/// Bytes of a chunk record before the name of its compression.
pub(super) const CHUNK_HEAD_BYTES: u64 = 8 + 8 + 8 + 4 + 4;

/// Header before the compressed records of a chunk. The name of the compression and the length of
/// the data follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChunkHead {
    pub start_ns: u64,
    pub uncompressed_bytes: u64,
    pub crc: u32,
    pub compression_length: u32,
}

pub(super) fn chunk_head(bytes: &[u8]) -> Option<ChunkHead> {
    let mut fields = Fields(bytes);
    let start_ns = fields.u64()?;
    let _end_ns = fields.u64()?;
    let uncompressed_bytes = fields.u64()?;
    let crc = fields.u32()?;
    let compression_length = fields.u32()?;
    Some(ChunkHead { start_ns, uncompressed_bytes, crc, compression_length })
}

/// An entry of the chunk index.
pub(super) struct ChunkIndex<'a> {
    pub start_ns: u64,
    pub place: u64,
    pub record_bytes: u64,
    /// Channel and place of its message index, packed.
    offsets: &'a [u8],
    pub message_index_bytes: u64,
}

impl ChunkIndex<'_> {
    pub(super) fn offsets(&self) -> impl Iterator<Item = (u16, u64)> {
        self.offsets.chunks_exact(10).filter_map(|pair| {
            let mut fields = Fields(pair);
            Some((fields.u16()?, fields.u64()?))
        })
    }
}

pub(super) fn chunk_index(bytes: &[u8]) -> Option<ChunkIndex<'_>> {
    let mut fields = Fields(bytes);
    let start_ns = fields.u64()?;
    let _end_ns = fields.u64()?;
    let place = fields.u64()?;
    let record_bytes = fields.u64()?;
    let length = usize::try_from(fields.u32()?).ok()?;
    let offsets = fields.bytes(length)?;
    let message_index_bytes = fields.u64()?;
    Some(ChunkIndex { start_ns, place, record_bytes, offsets, message_index_bytes })
}

/// Log time and place of each message of a message index, after its channel.
pub(super) fn message_index(bytes: &[u8]) -> Option<(u16, impl Iterator<Item = (u64, u64)>)> {
    let mut fields = Fields(bytes);
    let channel = fields.u16()?;
    let length = usize::try_from(fields.u32()?).ok()?;
    if length % 16 != 0 {
        return None;
    }
    let entries = fields.bytes(length)?.chunks_exact(16);
    let entries = entries.filter_map(|entry| {
        let mut fields = Fields(entry);
        Some((fields.u64()?, fields.u64()?))
    });
    Some((channel, entries))
}

/// Number of messages of each channel, by the statistics record; an empty list if its writer did
/// not count.
pub(super) fn channel_counts(bytes: &[u8]) -> Option<Vec<(u16, u64)>> {
    let mut fields = Fields(bytes);
    fields.bytes(8 + 2 + 4 + 4 + 4 + 4 + 8 + 8)?;
    let length = usize::try_from(fields.u32()?).ok()?;
    let counts = fields.bytes(length)?.chunks_exact(10);
    Some(
        counts
            .filter_map(|pair| {
                let mut fields = Fields(pair);
                Some((fields.u16()?, fields.u64()?))
            })
            .collect(),
    )
}

//! Contents of an MCAP file with their places: its definitions, its chunks, and messages outside of
//! chunks. Listing them decompresses nothing.

use std::collections::HashMap;
use std::io::{Read, Seek};

use super::chunk::{Place, Shared};
use takt_files::quoted;

use super::fault::Fault;
use super::limits::{
    MAX_CHUNKS, MAX_DEFINITION_BYTES, MAX_INDEX_ENTRIES, MAX_INDEX_RECORD_BYTES, MAX_SHOWN_TOPICS,
};
use super::records::{
    CHUNK_HEAD_BYTES, FOOTER_BYTES, Fields, HEAD_BYTES, MESSAGE_HEAD_BYTES, MessageHead, channel_counts,
    chunk_head, chunk_index, head, message_head, op,
};

const SPLIT: &str = "split the recording: mcap filter --start … --end …";

/// A channel of the file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Channel {
    pub topic: String,
    /// `protobuf`, `cdr`, `json`.
    pub encoding: String,
    /// Name of its schema; empty without one.
    pub schema: String,
}

/// Schemas and channels that are known so far.
#[derive(Default)]
pub(super) struct Definitions {
    schemas: HashMap<u16, String>,
    channels: HashMap<u16, Channel>,
    bytes: usize,
}

impl Definitions {
    pub(super) fn channel(&self, id: u16) -> Option<&Channel> {
        self.channels.get(&id)
    }

    /// All channels, by topic.
    pub(super) fn channels(&self) -> Vec<&Channel> {
        let mut channels: Vec<_> = self.channels.values().collect();
        channels.sort_by(|a, b| a.topic.cmp(&b.topic));
        channels
    }

    /// Takes a schema or a channel; what is there already stays, for the format demands that both
    /// are the same.
    pub(super) fn add(&mut self, opcode: u8, record: &[u8]) -> Result<(), Fault> {
        let mut fields = Fields(record);
        let short = |what| Fault::damaged(format!("a {what} record is too short or not UTF-8"));
        let added = if opcode == op::SCHEMA {
            let mut read = || Some((fields.u16()?, fields.string()?));
            let (id, name) = read().ok_or_else(|| short("schema"))?;
            if self.schemas.contains_key(&id) {
                return Ok(());
            }
            self.schemas.insert(id, name.to_owned());
            name.len()
        } else {
            let mut read = || Some((fields.u16()?, fields.u16()?, fields.string()?, fields.string()?));
            let (id, schema, topic, encoding) = read().ok_or_else(|| short("channel"))?;
            if self.channels.contains_key(&id) {
                return Ok(());
            }
            let schema = self.schemas.get(&schema).cloned().unwrap_or_default();
            let added = topic.len() + encoding.len() + schema.len();
            let channel = Channel { topic: topic.to_owned(), encoding: encoding.to_owned(), schema };
            self.channels.insert(id, channel);
            added
        };
        self.bytes += added;
        if self.bytes > MAX_DEFINITION_BYTES {
            return Err(Fault::too_many_definitions(self.bytes));
        }
        Ok(())
    }
}

/// A chunk and where the indexes of its messages are.
pub(super) struct Chunk {
    pub place: Place,
    /// Log time of its first message.
    pub start_ns: u64,
    /// Channels with messages in it, and the place of their message index. Empty where nothing was
    /// indexed.
    pub indexes: Box<[(u16, u64)]>,
    /// Whether the index says that it has messages of other topics alone.
    pub others_only: bool,
    /// Bytes of the message indexes that follow, by the chunk index.
    following_bytes: u64,
    in_summary: bool,
}

/// A message that lies in no chunk.
#[derive(Clone, Copy)]
pub(super) struct Loose {
    pub head: MessageHead,
    /// Of its record in the file.
    pub at: u64,
}

/// The file's contents.
#[derive(Default)]
pub(super) struct Contents {
    pub definitions: Definitions,
    /// Whether the summary lists all channels; else they are defined in the chunks.
    pub lists_channels: bool,
    /// In the order of the file.
    pub chunks: Vec<Chunk>,
    pub loose: Vec<Loose>,
    /// Messages of each channel by the file's own count.
    pub counts: HashMap<u16, u64>,
}

/// Reads what the file contains. `wanted` chooses the topics whose messages count.
pub(super) fn read<R: Read + Seek>(
    file: &Shared<R>,
    file_bytes: u64,
    allow_truncated: bool,
    wanted: &dyn Fn(&str) -> bool,
) -> Result<Contents, Fault> {
    let mut scan = Scan::new(file, file_bytes, wanted);
    match scan.with_summary() {
        // A summary that does not hold is no reason to give up what was recorded.
        Err(Fault::Damaged(_)) if allow_truncated => {
            let mut scan = Scan::new(file, file_bytes, wanted);
            scan.walk(::mcap::MAGIC.len() as u64, file_bytes, true)?;
            // Its recorder may have been killed between the message indexes of its channels.
            if let Some(chunk) = scan.contents.chunks.last_mut() {
                chunk.indexes = Box::default();
            }
            Ok(scan.contents)
        }
        Err(fault) => Err(fault),
        Ok(()) => Ok(scan.contents),
    }
}

struct Scan<'a, R> {
    file: &'a Shared<R>,
    file_bytes: u64,
    wanted: &'a dyn Fn(&str) -> bool,
    contents: Contents,
    index_entries: usize,
    /// Bytes of the file from `buffer_at` on.
    buffer: Vec<u8>,
    buffer_at: u64,
}

impl<'a, R: Read + Seek> Scan<'a, R> {
    fn new(file: &'a Shared<R>, file_bytes: u64, wanted: &'a dyn Fn(&str) -> bool) -> Self {
        let contents = Contents::default();
        Self { file, file_bytes, wanted, contents, index_entries: 0, buffer: Vec::new(), buffer_at: 0 }
    }

    /// The whole file, which has an end.
    fn with_summary(&mut self) -> Result<(), Fault> {
        let magic = ::mcap::MAGIC.len() as u64;
        let footer_at = self.file_bytes.saturating_sub(magic + FOOTER_BYTES);
        let footer = self.bytes(footer_at, FOOTER_BYTES as usize)?.to_vec();
        let summary = (footer_at >= magic).then(|| footer_of(&footer)).flatten();
        let Some((summary_at, crc)) = summary else {
            return Err(Fault::damaged("no footer before the end: mcap recover repairs the file"));
        };
        let mut data_end = footer_at;
        if summary_at != 0 {
            if !(magic..=footer_at).contains(&summary_at) {
                return Err(Fault::damaged(format!(
                    "the footer gives byte {summary_at} as the begin of the summary, which is after byte {footer_at}"
                )));
            }
            self.check_summary(summary_at, footer_at, &footer, crc)?;
            self.summary(summary_at, footer_at)?;
            data_end = summary_at;
        }
        self.walk(magic, data_end, false)
    }

    fn check_summary(&mut self, from: u64, to: u64, footer: &[u8], expected: u32) -> Result<(), Fault> {
        if expected == 0 {
            return Ok(());
        }
        let mut crc = crc32fast::Hasher::new();
        let mut at = from;
        while at < to {
            let piece = (to - at).min(1 << 16) as usize;
            crc.update(self.bytes(at, piece)?);
            at += piece as u64;
        }
        crc.update(&footer[..footer.len() - 4]);
        let found = crc.finalize();
        if found == expected {
            return Ok(());
        }
        Err(Fault::damaged(format!("the summary's checksum is {found:08x}, expected {expected:08x}")))
    }

    /// Twice over the summary: chunks need the channels, whatever comes first.
    fn summary(&mut self, from: u64, to: u64) -> Result<(), Fault> {
        for channels in [true, false] {
            let mut at = from;
            while at < to {
                let (opcode, length) = self.head(at)?;
                let data_at = at + HEAD_BYTES;
                let next = data_at.checked_add(length).filter(|next| *next <= to);
                let Some(next) = next else {
                    return Err(Fault::damaged(format!(
                        "a record of {length} bytes at byte {at} is longer than the summary"
                    )));
                };
                let now = match opcode {
                    op::SCHEMA | op::CHANNEL => channels,
                    op::CHUNK_INDEX | op::STATISTICS => !channels,
                    _ => false,
                };
                if now {
                    self.summary_record(opcode, data_at, length)?;
                }
                at = next;
            }
        }
        self.contents.lists_channels = !self.contents.definitions.channels.is_empty();
        self.contents.chunks.sort_by_key(|chunk| chunk.place.at);
        Ok(())
    }

    fn summary_record(&mut self, opcode: u8, at: u64, length: u64) -> Result<(), Fault> {
        let record = self.record(at, length)?;
        let short = |what| Fault::damaged(format!("the {what} record at byte {at} is too short"));
        match opcode {
            op::SCHEMA | op::CHANNEL => self.contents.definitions.add(opcode, &record),
            op::STATISTICS => {
                let counts = channel_counts(&record).ok_or_else(|| short("statistics"))?;
                self.contents.counts = counts.into_iter().collect();
                Ok(())
            }
            _ => {
                let index = chunk_index(&record).ok_or_else(|| short("chunk index"))?;
                let definitions = &self.contents.definitions;
                let wanted = |(id, _): &(u16, u64)| {
                    definitions.channel(*id).is_none_or(|channel| (self.wanted)(&channel.topic))
                };
                let indexes: Box<[_]> = index.offsets().filter(wanted).collect();
                let chunk = Chunk {
                    place: Place { at: index.place, record_bytes: index.record_bytes },
                    following_bytes: index.message_index_bytes,
                    in_summary: true,
                    start_ns: index.start_ns,
                    others_only: indexes.is_empty() && index.offsets().next().is_some(),
                    indexes,
                };
                self.push(chunk)
            }
        }
    }

    fn push(&mut self, chunk: Chunk) -> Result<(), Fault> {
        self.index_entries += chunk.indexes.len();
        if self.contents.chunks.len() >= MAX_CHUNKS {
            return Err(Fault::too_many("chunks", MAX_CHUNKS, SPLIT));
        }
        if self.index_entries > MAX_INDEX_ENTRIES {
            return Err(Fault::too_many("message indexes", MAX_INDEX_ENTRIES, SPLIT));
        }
        self.contents.chunks.push(chunk);
        Ok(())
    }

    /// Goes from record to record without reading what is in them. Chunks that the summary knows
    /// are jumped over, so in a whole file little is left to look at.
    fn walk(&mut self, from: u64, end: u64, allow_truncated: bool) -> Result<(), Fault> {
        let known = std::mem::take(&mut self.contents.chunks);
        let mut known = known.into_iter().peekable();
        let mut at = from;
        while at < end {
            if let Some(chunk) = known.next_if(|chunk| chunk.place.at == at) {
                let bytes = chunk.place.record_bytes.saturating_add(chunk.following_bytes);
                at = at.saturating_add(bytes.max(HEAD_BYTES));
                self.contents.chunks.push(chunk);
                continue;
            }
            if end - at < HEAD_BYTES {
                if allow_truncated {
                    break;
                }
                return Err(Fault::damaged(format!("no record begins at byte {at}")));
            }
            let (opcode, length) = self.head(at)?;
            let next = at.saturating_add(HEAD_BYTES).saturating_add(length);
            if opcode == op::DATA_END {
                break;
            }
            if next > end {
                if !allow_truncated {
                    return Err(Fault::damaged(format!(
                        "a record of {length} bytes at byte {at} extends beyond the end of the data at byte {end}"
                    )));
                }
                // The existing part of the last chunk counts.
                if opcode == op::CHUNK {
                    let _ = self.unindexed(at, length);
                }
                break;
            }
            match opcode {
                op::CHUNK => self.unindexed(at, length)?,
                op::MESSAGE_INDEX => self.message_index(at, length)?,
                op::SCHEMA | op::CHANNEL => {
                    let record = self.record(at + HEAD_BYTES, length)?;
                    self.contents.definitions.add(opcode, &record)?;
                }
                op::MESSAGE => self.loose(at, length)?,
                _ => {}
            }
            at = next;
        }
        if let Some(chunk) = known.next() {
            let at = chunk.place.at;
            return Err(Fault::damaged(format!(
                "according to the index, a chunk begins at byte {at}, but no record begins there"
            )));
        }
        Ok(())
    }

    /// A chunk that no index names.
    fn unindexed(&mut self, at: u64, length: u64) -> Result<(), Fault> {
        let front = self.bytes(at + HEAD_BYTES, CHUNK_HEAD_BYTES as usize)?;
        let Some(head) = chunk_head(front).filter(|_| length >= CHUNK_HEAD_BYTES) else {
            return Err(Fault::damaged(format!("chunk at byte {at}: its header is too short")));
        };
        self.push(Chunk {
            place: Place { at, record_bytes: length.saturating_add(HEAD_BYTES) },
            following_bytes: 0,
            in_summary: false,
            start_ns: head.start_ns,
            indexes: Box::default(),
            others_only: false,
        })
    }

    /// A message index belongs to the chunk before it.
    fn message_index(&mut self, at: u64, length: u64) -> Result<(), Fault> {
        let channel = if length < 2 { None } else { Fields(self.bytes(at + HEAD_BYTES, 2)?).u16() };
        let Some(channel) = channel else {
            return Err(Fault::damaged(format!("the message index at byte {at} is too short")));
        };
        // Some writers make an entry for each channel, whether the chunk has messages of it or not.
        let chunk = self.contents.chunks.last_mut().filter(|chunk| length > 6 && !chunk.in_summary);
        let Some(chunk) = chunk else { return Ok(()) };
        if chunk.indexes.iter().any(|(id, _)| *id == channel) {
            return Err(Fault::damaged(format!("a second message index of channel {channel} at byte {at}")));
        }
        self.index_entries += 1;
        if self.index_entries > MAX_INDEX_ENTRIES {
            return Err(Fault::too_many("message indexes", MAX_INDEX_ENTRIES, SPLIT));
        }
        let mut indexes = std::mem::take(&mut chunk.indexes).into_vec();
        indexes.push((channel, at));
        chunk.indexes = indexes.into();
        Ok(())
    }

    fn loose(&mut self, at: u64, length: u64) -> Result<(), Fault> {
        let head = match length {
            MESSAGE_HEAD_BYTES.. => message_head(self.bytes(at + HEAD_BYTES, MESSAGE_HEAD_BYTES as usize)?),
            _ => None,
        };
        let Some(head) = head else {
            return Err(Fault::damaged(format!("the message at byte {at} is too short")));
        };
        let channel = self.contents.definitions.channel(head.channel);
        if channel.is_some_and(|channel| (self.wanted)(&channel.topic)) {
            if self.contents.loose.len() >= MAX_INDEX_ENTRIES {
                return Err(Fault::too_many("images outside of chunks", MAX_INDEX_ENTRIES, SPLIT));
            }
            self.contents.loose.push(Loose { head, at });
        }
        Ok(())
    }

    fn head(&mut self, at: u64) -> Result<(u8, u64), Fault> {
        let bytes = self.bytes(at, HEAD_BYTES as usize)?;
        Ok(head(bytes.try_into().unwrap_or_default()))
    }

    /// The data of a record that must be short.
    fn record(&mut self, at: u64, length: u64) -> Result<Vec<u8>, Fault> {
        record(self.file, at, length, self.file_bytes)
    }

    /// `count` bytes at a place, out of the buffer where they are in it.
    fn bytes(&mut self, at: u64, count: usize) -> Result<&[u8], Fault> {
        const BUFFER_BYTES: usize = 1 << 16;
        let within = |at: u64, this: &Self| {
            let from = usize::try_from(at.checked_sub(this.buffer_at)?).ok()?;
            (from.checked_add(count)? <= this.buffer.len()).then_some(from)
        };
        let from = match within(at, self) {
            Some(from) => from,
            None => {
                let left = usize::try_from(self.file_bytes.saturating_sub(at)).unwrap_or(usize::MAX);
                if left < count {
                    return Err(Fault::damaged(format!("the file ends within a record (byte {at})")));
                }
                self.buffer.resize(left.min(BUFFER_BYTES.max(count)), 0);
                self.buffer_at = at;
                self.file.read_exact_at(at, &mut self.buffer)?;
                0
            }
        };
        Ok(&self.buffer[from..from + count])
    }
}

/// The data of a record of an index or a definition.
pub(super) fn record<R: Read + Seek>(
    file: &Shared<R>,
    at: u64,
    length: u64,
    file_bytes: u64,
) -> Result<Vec<u8>, Fault> {
    if length > MAX_INDEX_RECORD_BYTES {
        return Err(Fault::too_many_bytes(
            format!("index or definition at byte {at}"),
            length,
            MAX_INDEX_RECORD_BYTES,
            SPLIT,
        ));
    }
    if at.checked_add(length).is_none_or(|end| end > file_bytes) {
        return Err(Fault::damaged(format!(
            "a record of {length} bytes at byte {at} is longer than the file"
        )));
    }
    // Bounded by the file's own length, which is there.
    let mut record = vec![0; length as usize];
    file.read_exact_at(at, &mut record)?;
    Ok(record)
}

/// Begin of the summary (0: there is none) and its checksum.
fn footer_of(record: &[u8]) -> Option<(u64, u32)> {
    let mut fields = Fields(record);
    let &[opcode] = fields.bytes(1)? else { return None };
    let length = fields.u64()?;
    if opcode != op::FOOTER || length != 20 {
        return None;
    }
    let summary_at = fields.u64()?;
    let _offsets_at = fields.u64()?;
    Some((summary_at, fields.u32()?))
}

/// Contents of a file, for an error.
pub(super) fn listed(channels: &[&Channel]) -> String {
    if channels.is_empty() {
        return "no topics".into();
    }
    let shown = |channel: &&Channel| {
        let schema = if channel.schema.is_empty() { "no schema" } else { &channel.schema };
        format!("{} ({}, {})", quoted(&channel.topic), quoted(schema), quoted(&channel.encoding))
    };
    let mut found: Vec<String> = channels.iter().take(MAX_SHOWN_TOPICS).map(shown).collect();
    if channels.len() > MAX_SHOWN_TOPICS {
        found.push(format!("and {} more", channels.len() - MAX_SHOWN_TOPICS));
    }
    found.join(", ")
}

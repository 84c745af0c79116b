//! The messages of some topics of an MCAP file, each topic in the order of its log times, whatever
//! the order of the bytes.
//!
//! Chunks are looked into once time has come to their first message, by their message index where
//! they have one, and decompressed as far as the next message that is asked for. So memory is
//! bounded by the images that are asked for, and not by the file: a message that lies behind
//! another one that is needed later is kept ([`MAX_STASH_BYTES`]), and beyond that the chunk is
//! read a second time.
//!
//! `index` finds out which messages a chunk has, `messages` reads them.

mod index;
mod messages;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};
use std::io::{Read, Seek};

use super::chunk::{ChunkReader, Head, Shared};
use super::contents::{self, Channel, Contents, Definitions};
use super::fault::Fault;
#[cfg(doc)]
use super::limits::MAX_STASH_BYTES;
use super::limits::{MAX_INDEX_RECORD_BYTES, RECORD_WORK_BYTES, work_limit};
use super::records::{HEAD_BYTES, MESSAGE_HEAD_BYTES, MessageHead, message_head, op};

const RECOVER: &str = "mcap recover rewrites the index";

/// One message.
#[derive(Debug, Default)]
pub(super) struct Message {
    pub channel: u16,
    pub log_time_ns: u64,
    pub data: Vec<u8>,
}

/// A message that has not been read yet. The order of the fields is the order of reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    log_time_ns: u64,
    /// Of the chunk or of the message's own record in the file.
    at: u64,
    /// Within the decompressed chunk.
    offset: u64,
    chunk: Option<u32>,
}

/// A chunk with messages that have not been read yet.
struct Open<R> {
    /// Offsets of all messages that are asked for, and whether they have been read.
    entries: BTreeMap<u64, bool>,
    left: usize,
    /// Whether the entries come from an index, which may be wrong, and not from the chunk.
    by_index: bool,
    readers: VecDeque<ChunkReader<R>>,
    /// Messages that were passed on the way to another.
    stash: HashMap<u64, Message>,
}

/// The messages of the topics that [`Log::select`] chose.
pub(super) struct Log<R> {
    file: Shared<R>,
    file_bytes: u64,
    allow_truncated: bool,
    contents: Contents,
    /// Chunks, in the order of the file, whose definitions have been read.
    defined_to: usize,
    /// Chunks by the time of their first message.
    order: Vec<u32>,
    topics: Vec<Vec<String>>,
    next_chunk: usize,
    /// Of each stream, what is known and not read.
    known: Vec<BinaryHeap<Reverse<Entry>>>,
    entries: usize,
    open: HashMap<u32, Open<R>>,
    /// Chunks with decoders, the one used last at the end.
    in_use: VecDeque<u32>,
    stash_bytes: usize,
    /// Messages read of each stream since the beginning.
    read: Vec<u64>,
    spare: Vec<Vec<u8>>,
    /// Bytes read or decompressed since [`Log::begin_work`].
    work: u64,
    /// Bytes of files that by their length grant work: of this one, and of those that were passed
    /// since then.
    granting_bytes: u64,
}

impl<R: Read + Seek> Log<R> {
    /// Looks at what the file contains. `wanted` says which topics may be selected later.
    pub(super) fn open(
        input: R,
        allow_truncated: bool,
        wanted: &dyn Fn(&str) -> bool,
    ) -> Result<Self, Fault> {
        let file = Shared::new(input);
        let file_bytes = file.length()?;
        let contents = contents::read(&file, file_bytes, allow_truncated, wanted)?;
        let mut order: Vec<u32> = (0..contents.chunks.len() as u32).collect();
        let chunk = |id: &u32| &contents.chunks[*id as usize];
        order.retain(|id| !chunk(id).others_only);
        order.sort_by_key(|id| (chunk(id).start_ns, chunk(id).place.at));
        Ok(Self {
            file,
            file_bytes,
            allow_truncated,
            contents,
            defined_to: 0,
            order,
            topics: Vec::new(),
            next_chunk: 0,
            known: Vec::new(),
            entries: 0,
            open: HashMap::new(),
            in_use: VecDeque::new(),
            stash_bytes: 0,
            read: Vec::new(),
            spare: Vec::new(),
            work: 0,
            granting_bytes: file_bytes,
        })
    }

    /// Schemas and channels that are known so far.
    pub(super) fn definitions(&self) -> &Definitions {
        &self.contents.definitions
    }

    /// The channel of a message.
    pub(super) fn channel(&self, id: u16) -> Option<&Channel> {
        self.contents.definitions.channel(id)
    }

    /// Reads definitions until `enough` or until all are known. A file with a summary lists them;
    /// in another one they lie in its chunks.
    pub(super) fn define(&mut self, enough: impl Fn(&Definitions) -> bool) -> Result<(), Fault> {
        if self.contents.lists_channels {
            return Ok(());
        }
        self.define_up_to(self.contents.chunks.len(), enough)
    }

    fn define_up_to(&mut self, chunks: usize, enough: impl Fn(&Definitions) -> bool) -> Result<(), Fault> {
        while self.defined_to < chunks && !enough(&self.contents.definitions) {
            let place = self.contents.chunks[self.defined_to].place;
            let mut read = || -> Result<bool, Fault> {
                let mut reader = ChunkReader::open(&self.file, place, self.file_bytes)?;
                while let Some(head) = next(&mut reader, &mut self.work, self.granting_bytes)? {
                    if define(&mut reader, head, &mut self.contents.definitions)?
                        && enough(&self.contents.definitions)
                    {
                        return Ok(false);
                    }
                }
                Ok(true)
            };
            match read() {
                Ok(true) => self.defined_to += 1,
                Ok(false) => return Ok(()),
                Err(Fault::Damaged(_)) if self.allow_truncated => self.defined_to += 1,
                Err(fault) => return Err(fault),
            }
        }
        Ok(())
    }

    /// Chooses topics, each list of names a stream, and begins at the beginning.
    pub(super) fn select(&mut self, topics: Vec<Vec<String>>) {
        self.read = vec![0; topics.len()];
        self.topics = topics;
        self.rewind();
    }

    /// Begins at the beginning again.
    pub(super) fn rewind(&mut self) {
        self.next_chunk = 0;
        self.entries = 0;
        self.open.clear();
        self.in_use.clear();
        self.stash_bytes = 0;
        self.known.clear();
        self.known.resize_with(self.topics.len(), BinaryHeap::new);
        self.read.fill(0);
        for loose in std::mem::take(&mut self.contents.loose) {
            if let Some(stream) = self.stream_of(loose.head.channel) {
                let entry =
                    Entry { log_time_ns: loose.head.log_time_ns, at: loose.at, offset: 0, chunk: None };
                self.known[stream].push(Reverse(entry));
                self.entries += 1;
            }
            self.contents.loose.push(loose);
        }
    }

    fn stream_of(&self, channel: u16) -> Option<usize> {
        let topic = &self.contents.definitions.channel(channel)?.topic;
        self.topics.iter().position(|topics| topics.contains(topic))
    }

    /// Work counts from now on: a frame was found.
    pub(super) fn begin_work(&mut self) {
        (self.work, self.granting_bytes) = (0, self.file_bytes);
    }

    /// Work that was done in other files counts, too, and so do their bytes.
    pub(super) fn go_on_from(&mut self, work: u64, bytes: u64) {
        self.work = self.work.saturating_add(work);
        self.granting_bytes = self.granting_bytes.saturating_add(bytes);
    }

    /// Work so far, and the bytes that grant it.
    pub(super) fn work(&self) -> (u64, u64) {
        (self.work, self.granting_bytes)
    }

    /// Takes a buffer back that a message was read into.
    pub(super) fn recycle(&mut self, buffer: Vec<u8>) {
        if self.spare.len() < 8 {
            self.spare.push(buffer);
        }
    }

    /// The next message of a stream; `None` at its end.
    pub(super) fn next(&mut self, stream: usize) -> Result<Option<Message>, Fault> {
        self.next_until(stream, None)
    }

    /// The same, if it was logged until then. Chunks that begin later are not looked into.
    pub(super) fn next_until(
        &mut self,
        stream: usize,
        until_ns: Option<u64>,
    ) -> Result<Option<Message>, Fault> {
        match self.try_next(stream, until_ns) {
            // It ends where it breaks off.
            Err(Fault::Damaged(_)) if self.allow_truncated => {
                self.entries -= self.known[stream].len();
                self.known[stream].clear();
                self.next_chunk = self.order.len();
                Ok(None)
            }
            other => other,
        }
    }

    fn try_next(&mut self, stream: usize, until_ns: Option<u64>) -> Result<Option<Message>, Fault> {
        loop {
            let first = self.known[stream].peek().map(|Reverse(entry)| (entry.log_time_ns, entry.at));
            let Some(&id) = self.order.get(self.next_chunk) else { break };
            let chunk = &self.contents.chunks[id as usize];
            if first.is_some_and(|first| first <= (chunk.start_ns, chunk.place.at))
                || until_ns.is_some_and(|until_ns| chunk.start_ns > until_ns)
            {
                break;
            }
            self.next_chunk += 1;
            self.look_into(id)?;
        }
        let first_ns = self.known[stream].peek().map(|Reverse(entry)| entry.log_time_ns);
        if until_ns.is_some_and(|until_ns| first_ns.is_none_or(|first_ns| first_ns > until_ns)) {
            return Ok(None);
        }
        let Some(Reverse(entry)) = self.known[stream].pop() else {
            self.check_count(stream)?;
            return Ok(None);
        };
        self.entries -= 1;
        let message = match entry.chunk {
            Some(id) => self.take(id, entry)?,
            None => self.loose(entry)?,
        };
        if message.log_time_ns != entry.log_time_ns || self.stream_of(message.channel) != Some(stream) {
            return Err(Fault::damaged(format!(
                "according to the message index, a message of {} ns is at byte {} of the chunk at byte {}, but another one is there: \
                 {RECOVER}",
                entry.log_time_ns, entry.offset, entry.at
            )));
        }
        self.read[stream] += 1;
        Ok(Some(message))
    }

    /// Number of messages left in a stream. Ends the reading of all streams until
    /// [`rewind`](Self::rewind).
    pub(super) fn count_left(&mut self, stream: usize) -> Result<u64, Fault> {
        let mut left = 0u64;
        loop {
            left += self.known[stream].len() as u64;
            self.known.iter_mut().for_each(BinaryHeap::clear);
            self.open.clear();
            self.in_use.clear();
            (self.entries, self.stash_bytes) = (0, 0);
            let Some(&id) = self.order.get(self.next_chunk) else { return Ok(left) };
            self.next_chunk += 1;
            match self.look_into(id) {
                Err(Fault::Damaged(_)) if self.allow_truncated => return Ok(left),
                looked => looked?,
            }
        }
    }

    /// Whether the file's own count of messages was reached.
    fn check_count(&mut self, stream: usize) -> Result<(), Fault> {
        let counts = &self.contents.counts;
        if self.allow_truncated || counts.is_empty() {
            return Ok(());
        }
        let of_stream = counts.iter().filter(|(id, _)| self.stream_of(**id) == Some(stream));
        let expected: u64 = of_stream.map(|(_, count)| *count).fold(0, u64::saturating_add);
        let found = self.read[stream];
        if expected == found {
            return Ok(());
        }
        let topic = self.topics[stream].first().map_or("", String::as_str);
        Err(Fault::damaged(format!(
            "the index has {found} messages of `{topic}`, but the file's own count is {expected}: {RECOVER}"
        )))
    }
}

/// The next record, as long as work is granted.
fn next<R: Read + Seek>(
    reader: &mut ChunkReader<R>,
    work: &mut u64,
    granting_bytes: u64,
) -> Result<Option<Head>, Fault> {
    let head = reader.next()?;
    if let Some(head) = head {
        *work = work.saturating_add((HEAD_BYTES + head.length).max(RECORD_WORK_BYTES));
        let limit = work_limit(granting_bytes);
        if *work > limit {
            return Err(Fault::too_many_bytes(
                "data that was decompressed without finding a frame",
                *work,
                limit,
                "if the file is genuine, keep only the camera's topics: mcap filter --include-topic-regex …",
            ));
        }
    }
    Ok(head)
}

/// Takes a definition, or passes over another record; whether it was a definition.
fn define<R: Read + Seek>(
    reader: &mut ChunkReader<R>,
    head: Head,
    definitions: &mut Definitions,
) -> Result<bool, Fault> {
    if !matches!(head.opcode, op::SCHEMA | op::CHANNEL) {
        reader.skip(head.length)?;
        return Ok(false);
    }
    if head.length > MAX_INDEX_RECORD_BYTES {
        return Err(Fault::too_many_bytes(
            "a schema or channel",
            head.length,
            MAX_INDEX_RECORD_BYTES,
            "the file was written by no known tool",
        ));
    }
    let mut record = Vec::new();
    reader.read_to(head.length, &mut record)?;
    definitions.add(head.opcode, &record)?;
    Ok(true)
}

/// Channel and time of the message whose record was found.
fn message<R: Read + Seek>(reader: &mut ChunkReader<R>, head: Head) -> Result<MessageHead, Fault> {
    let short = || Fault::damaged(format!("the message at byte {} of a chunk is too short", head.offset));
    if head.length < MESSAGE_HEAD_BYTES {
        return Err(short());
    }
    let mut front = [0; MESSAGE_HEAD_BYTES as usize];
    reader.fill(&mut front)?;
    message_head(&front).ok_or_else(short)
}

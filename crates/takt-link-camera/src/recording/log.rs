//! The messages of some topics of an MCAP file, each topic in the order of its log times, whatever
//! the order of the bytes.
//!
//! Chunks are looked into once time has come to their first message, by their message index where
//! they have one, and decompressed as far as the next message that is asked for. So memory is
//! bounded by the images that are asked for, and not by the file: a message that lies behind
//! another one that is needed later is kept ([`MAX_STASH_BYTES`]), and beyond that the chunk is
//! read a second time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap, VecDeque};
use std::io::{Read, Seek};

use super::chunk::{ChunkReader, Head, Shared};
use super::contents::{self, Channel, Contents, Definitions};
use super::fault::Fault;
use super::limits::{
    MAX_DECODERS_PER_CHUNK, MAX_INDEX_ENTRIES, MAX_INDEX_RECORD_BYTES, MAX_MESSAGE_BYTES, MAX_OPEN_CHUNKS,
    MAX_STASH_BYTES, RECORD_WORK_BYTES, work_limit,
};
use super::records::{HEAD_BYTES, MESSAGE_HEAD_BYTES, MessageHead, head, message_head, message_index, op};

const RECOVER: &str = "mcap recover writes the index anew";

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
                while let Some(head) = next(&mut reader, &mut self.work, self.file_bytes)? {
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
        self.work = 0;
    }

    /// Takes a buffer back that a message was read into.
    pub(super) fn recycle(&mut self, buffer: Vec<u8>) {
        if self.spare.len() < 8 {
            self.spare.push(buffer);
        }
    }

    /// The next message of a stream; `None` at its end.
    pub(super) fn next(&mut self, stream: usize) -> Result<Option<Message>, Fault> {
        match self.try_next(stream) {
            // It ends where it breaks off.
            Err(Fault::Damaged(_)) if self.allow_truncated => {
                self.known[stream].clear();
                self.next_chunk = self.order.len();
                Ok(None)
            }
            other => other,
        }
    }

    fn try_next(&mut self, stream: usize) -> Result<Option<Message>, Fault> {
        loop {
            let first = self.known[stream].peek().map(|Reverse(entry)| (entry.log_time_ns, entry.at));
            let Some(&id) = self.order.get(self.next_chunk) else { break };
            let chunk = &self.contents.chunks[id as usize];
            if first.is_some_and(|first| first <= (chunk.start_ns, chunk.place.at)) {
                break;
            }
            self.next_chunk += 1;
            self.look_into(id)?;
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
                "the message index says that a message of {} ns lies at byte {} of the chunk at byte {}, but it \
                 is another one: {RECOVER}",
                entry.log_time_ns, entry.offset, entry.at
            )));
        }
        self.read[stream] += 1;
        Ok(Some(message))
    }

    /// How many messages a stream has left. Ends the reading of all streams until
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
            "the index has {found} messages of `{topic}`, the file's own count is {expected}: {RECOVER}"
        )))
    }

    /// Finds the messages of a chunk that are asked for.
    fn look_into(&mut self, id: u32) -> Result<(), Fault> {
        let chunk = &self.contents.chunks[id as usize];
        let by_index = !chunk.indexes.is_empty();
        let found = if by_index { self.by_index(id)? } else { self.by_reading(id)? };
        let chunk = &self.contents.chunks[id as usize];
        let (at, start_ns) = (chunk.place.at, chunk.start_ns);
        let mut entries = BTreeMap::new();
        for (channel, log_time_ns, offset) in found {
            let Some(stream) = self.stream_of(channel) else { continue };
            if log_time_ns < start_ns {
                return Err(Fault::damaged(format!(
                    "chunk at byte {at}: it says that it begins at {start_ns} ns, but has a message of {log_time_ns} ns"
                )));
            }
            if entries.insert(offset, false).is_some() {
                return Err(Fault::damaged(format!(
                    "the message index of the chunk at byte {at} names the message at byte {offset} twice: {RECOVER}"
                )));
            }
            self.known[stream].push(Reverse(Entry { log_time_ns, at, offset, chunk: Some(id) }));
        }
        self.entries += entries.len();
        if self.entries > MAX_INDEX_ENTRIES {
            return Err(Fault::too_many(
                "images of one time",
                MAX_INDEX_ENTRIES,
                "sort the messages: mcap sort writes them in the order of their log times",
            ));
        }
        if !entries.is_empty() {
            let left = entries.len();
            let (readers, stash) = (VecDeque::new(), HashMap::new());
            self.open.insert(id, Open { entries, left, by_index, readers, stash });
        }
        Ok(())
    }

    fn by_index(&mut self, id: u32) -> Result<Vec<(u16, u64, u64)>, Fault> {
        let unknown = |definitions: &Definitions, indexes: &[(u16, u64)]| {
            indexes.iter().any(|(channel, _)| definitions.channel(*channel).is_none())
        };
        let indexes = self.contents.chunks[id as usize].indexes.clone();
        if unknown(&self.contents.definitions, &indexes) {
            self.define_up_to(id as usize + 1, |definitions| !unknown(definitions, &indexes))?;
        }
        let mut found = Vec::new();
        for &(channel, at) in &indexes {
            if self.stream_of(channel).is_none() {
                continue;
            }
            let wrong = || {
                Fault::damaged(format!(
                    "there is no message index of channel {channel} at byte {at}: {RECOVER}"
                ))
            };
            let mut front = [0; HEAD_BYTES as usize];
            self.file.read_exact_at(at, &mut front).map_err(|_| wrong())?;
            let (opcode, length) = head(front);
            if opcode != op::MESSAGE_INDEX {
                return Err(wrong());
            }
            let record = contents::record(&self.file, at + HEAD_BYTES, length, self.file_bytes)?;
            self.work = self.work.saturating_add(length);
            let Some((of, entries)) = message_index(&record).filter(|(of, _)| *of == channel) else {
                return Err(wrong());
            };
            found.extend(entries.map(|(log_time_ns, offset)| (of, log_time_ns, offset)));
        }
        Ok(found)
    }

    /// Reads a chunk through for its messages, which no index names.
    fn by_reading(&mut self, id: u32) -> Result<Vec<(u16, u64, u64)>, Fault> {
        let place = self.contents.chunks[id as usize].place;
        let mut found: Vec<(u16, u64, u64)> = Vec::new();
        let mut unknown = BTreeSet::new();
        let mut read = || -> Result<(), Fault> {
            let mut reader = ChunkReader::open(&self.file, place, self.file_bytes)?;
            while let Some(head) = next(&mut reader, &mut self.work, self.file_bytes)? {
                if head.opcode != op::MESSAGE {
                    define(&mut reader, head, &mut self.contents.definitions)?;
                    continue;
                }
                let message = self::message(&mut reader, head)?;
                reader.skip(head.length - MESSAGE_HEAD_BYTES)?;
                let MessageHead { channel, log_time_ns } = message;
                let topic = self.contents.definitions.channel(channel).map(|channel| &channel.topic);
                match topic {
                    Some(topic) if !self.topics.iter().any(|topics| topics.contains(topic)) => continue,
                    Some(_) => {}
                    None => {
                        unknown.insert(channel);
                    }
                }
                if found.len() >= MAX_INDEX_ENTRIES {
                    return Err(Fault::too_many(
                        "messages in one chunk",
                        MAX_INDEX_ENTRIES,
                        "rewrite the file with smaller chunks: mcap compress --chunk-size 4194304",
                    ));
                }
                found.push((channel, log_time_ns, head.offset));
            }
            Ok(())
        };
        match read() {
            // What could be read counts.
            Err(Fault::Damaged(_)) if self.allow_truncated => {}
            other => other?,
        }
        if !unknown.is_empty() {
            let enough = |definitions: &Definitions| {
                unknown.iter().all(|channel| definitions.channel(*channel).is_some())
            };
            self.define_up_to(id as usize, enough)?;
        }
        Ok(found)
    }

    /// A message of a chunk.
    fn take(&mut self, id: u32, entry: Entry) -> Result<Message, Fault> {
        self.use_chunk(id);
        let missing = || Fault::damaged(format!("the chunk at byte {} was closed too early", entry.at));
        let mut open = self.open.remove(&id).ok_or_else(missing)?;
        let message = match open.stash.remove(&entry.offset) {
            Some(message) => {
                self.stash_bytes -= message.data.len();
                message
            }
            None => self.find(id, &mut open, entry)?,
        };
        if let Some(read) = open.entries.get_mut(&entry.offset) {
            *read = true;
        }
        open.left -= 1;
        if open.left > 0 {
            self.open.insert(id, open);
        } else {
            self.in_use.retain(|other| *other != id);
            self.finish(open)?;
        }
        Ok(message)
    }

    /// The chunk used longest ago gives its decoders and what it kept up where too many are in use.
    fn use_chunk(&mut self, id: u32) {
        if self.in_use.back() == Some(&id) {
            return;
        }
        self.in_use.retain(|other| *other != id);
        self.in_use.push_back(id);
        if self.in_use.len() > MAX_OPEN_CHUNKS
            && let Some(oldest) = self.in_use.pop_front()
            && let Some(open) = self.open.get_mut(&oldest)
        {
            open.readers.clear();
            for (_, message) in open.stash.drain() {
                self.stash_bytes -= message.data.len();
            }
        }
    }

    /// Reads on to a message, keeping what is asked for on the way as long as there is room.
    fn find(&mut self, id: u32, open: &mut Open<R>, entry: Entry) -> Result<Message, Fault> {
        let mut reader = self.reader_before(id, open, entry.offset)?;
        loop {
            let Some(head) = next(&mut reader, &mut self.work, self.file_bytes)? else {
                return Err(wrong_place(&entry));
            };
            if head.offset > entry.offset {
                return Err(wrong_place(&entry));
            }
            if head.opcode != op::MESSAGE {
                define(&mut reader, head, &mut self.contents.definitions)?;
                continue;
            }
            let message = self::message(&mut reader, head)?;
            let found = head.offset == entry.offset;
            let known = open.entries.get(&head.offset);
            if known.is_none() && open.by_index && self.stream_of(message.channel).is_some() {
                return Err(omitted(&entry, head.offset));
            }
            let bytes = head.length - MESSAGE_HEAD_BYTES;
            let fits = self.stash_bytes.saturating_add(bytes as usize) <= MAX_STASH_BYTES;
            let keep = known == Some(&false) && !open.stash.contains_key(&head.offset) && fits;
            if !found && !keep {
                reader.skip(bytes)?;
                continue;
            }
            if bytes > MAX_MESSAGE_BYTES {
                return Err(too_long(head.offset, bytes));
            }
            let mut data = self.spare.pop().unwrap_or_default();
            data.clear();
            reader.read_to(bytes, &mut data)?;
            let message = Message { channel: message.channel, log_time_ns: message.log_time_ns, data };
            if found {
                open.readers.push_back(reader);
                return Ok(message);
            }
            self.stash_bytes += message.data.len();
            open.stash.insert(head.offset, message);
        }
    }

    /// A decoder of the chunk that has not passed the offset yet, the nearest one.
    fn reader_before(&self, id: u32, open: &mut Open<R>, offset: u64) -> Result<ChunkReader<R>, Fault> {
        let before = open.readers.iter().enumerate().filter(|(_, reader)| reader.position() <= offset);
        let nearest = before.max_by_key(|(_, reader)| reader.position()).map(|(index, _)| index);
        if let Some(reader) = nearest.and_then(|index| open.readers.remove(index)) {
            return Ok(reader);
        }
        if open.readers.len() >= MAX_DECODERS_PER_CHUNK {
            open.readers.pop_front();
        }
        ChunkReader::open(&self.file, self.contents.chunks[id as usize].place, self.file_bytes)
    }

    /// Reads a chunk to its end: its checksum, and whether the index left something out, are known
    /// then.
    fn finish(&mut self, mut open: Open<R>) -> Result<(), Fault> {
        let farthest = open.readers.drain(..).max_by_key(ChunkReader::position);
        let Some(mut reader) = farthest.filter(|_| open.by_index) else { return Ok(()) };
        while let Some(head) = next(&mut reader, &mut self.work, self.file_bytes)? {
            if head.opcode != op::MESSAGE {
                define(&mut reader, head, &mut self.contents.definitions)?;
                continue;
            }
            let message = self::message(&mut reader, head)?;
            if !open.entries.contains_key(&head.offset) && self.stream_of(message.channel).is_some() {
                let entry =
                    Entry { log_time_ns: message.log_time_ns, at: reader.at(), offset: 0, chunk: None };
                return Err(omitted(&entry, head.offset));
            }
            reader.skip(head.length - MESSAGE_HEAD_BYTES)?;
        }
        Ok(())
    }

    /// A message that lies in no chunk.
    fn loose(&mut self, entry: Entry) -> Result<Message, Fault> {
        let mut front = [0; (HEAD_BYTES + MESSAGE_HEAD_BYTES) as usize];
        self.file.read_exact_at(entry.at, &mut front)?;
        let (start, fields) = front.split_at(HEAD_BYTES as usize);
        let (_, length) = head(start.try_into().unwrap_or_default());
        let bytes = length.saturating_sub(MESSAGE_HEAD_BYTES);
        if bytes > MAX_MESSAGE_BYTES {
            return Err(too_long(entry.at, bytes));
        }
        let message = message_head(fields).ok_or_else(|| wrong_place(&entry))?;
        let mut data = self.spare.pop().unwrap_or_default();
        data.clear();
        data.resize(bytes as usize, 0);
        self.file.read_exact_at(entry.at + front.len() as u64, &mut data)?;
        self.work = self.work.saturating_add(length);
        Ok(Message { channel: message.channel, log_time_ns: message.log_time_ns, data })
    }
}

/// The next record, as long as work is granted.
fn next<R: Read + Seek>(
    reader: &mut ChunkReader<R>,
    work: &mut u64,
    file_bytes: u64,
) -> Result<Option<Head>, Fault> {
    let head = reader.next()?;
    if let Some(head) = head {
        *work = work.saturating_add((HEAD_BYTES + head.length).max(RECORD_WORK_BYTES));
        let limit = work_limit(file_bytes);
        if *work > limit {
            return Err(Fault::too_many_bytes(
                "data that was decompressed without finding a frame",
                *work,
                limit,
                "if the file is honest, keep the topics of the camera: mcap filter --include-topic-regex …",
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

fn wrong_place(entry: &Entry) -> Fault {
    Fault::damaged(format!(
        "the message index says that a message lies at byte {} of the chunk at byte {}, but no message begins \
         there: {RECOVER}",
        entry.offset, entry.at
    ))
}

fn omitted(entry: &Entry, offset: u64) -> Fault {
    Fault::damaged(format!(
        "the message index of the chunk at byte {} leaves out the message at byte {offset}: {RECOVER}",
        entry.at
    ))
}

fn too_long(at: u64, bytes: u64) -> Fault {
    Fault::too_many_bytes(
        format!("message at byte {at}"),
        bytes,
        MAX_MESSAGE_BYTES,
        "record smaller or compressed images",
    )
}

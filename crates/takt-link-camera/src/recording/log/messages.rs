//! Reading messages out of chunks, each as far as it is needed.

use std::io::{Read, Seek};

use super::super::chunk::ChunkReader;
use super::super::fault::Fault;
use super::super::limits::{MAX_DECODERS_PER_CHUNK, MAX_MESSAGE_BYTES, MAX_OPEN_CHUNKS, MAX_STASH_BYTES};
use super::super::records::{HEAD_BYTES, MESSAGE_HEAD_BYTES, head, message_head, op};
use super::{Entry, Log, Message, Open, RECOVER, define, next};

impl<R: Read + Seek> Log<R> {
    /// A message of a chunk.
    pub(super) fn take(&mut self, id: u32, entry: Entry) -> Result<Message, Fault> {
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
            let Some(head) = next(&mut reader, &mut self.work, self.granting_bytes)? else {
                return Err(wrong_place(&entry));
            };
            if head.offset > entry.offset {
                return Err(wrong_place(&entry));
            }
            if head.opcode != op::MESSAGE {
                define(&mut reader, head, &mut self.contents.definitions)?;
                continue;
            }
            let message = super::message(&mut reader, head)?;
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
        while let Some(head) = next(&mut reader, &mut self.work, self.granting_bytes)? {
            if head.opcode != op::MESSAGE {
                define(&mut reader, head, &mut self.contents.definitions)?;
                continue;
            }
            let message = super::message(&mut reader, head)?;
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
    pub(super) fn loose(&mut self, entry: Entry) -> Result<Message, Fault> {
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

fn wrong_place(entry: &Entry) -> Fault {
    Fault::damaged(format!(
        "according to the message index, a message is at byte {} of the chunk at byte {}, but no message begins there: {RECOVER}",
        entry.offset, entry.at
    ))
}

fn omitted(entry: &Entry, offset: u64) -> Fault {
    Fault::damaged(format!(
        "the message index of the chunk at byte {} omits the message at byte {offset}: {RECOVER}",
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

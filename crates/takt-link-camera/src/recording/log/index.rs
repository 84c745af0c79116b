//! Messages of a chunk, by its message index or, without one, by reading it through.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::io::{Read, Seek};

use super::super::chunk::ChunkReader;
use super::super::contents::{self, Definitions};
use super::super::fault::Fault;
use super::super::limits::MAX_INDEX_ENTRIES;
use super::super::records::{HEAD_BYTES, MESSAGE_HEAD_BYTES, MessageHead, head, message_index, op};
use super::{Entry, Log, Open, RECOVER, define, next};

impl<R: Read + Seek> Log<R> {
    /// Finds the messages of a chunk that are asked for.
    pub(super) fn look_into(&mut self, id: u32) -> Result<(), Fault> {
        let chunk = &self.contents.chunks[id as usize];
        let by_index = !chunk.indexes.is_empty();
        let found = if by_index { self.by_index(id)? } else { self.by_reading(id)? };
        let chunk = &self.contents.chunks[id as usize];
        let (at, start_ns) = (chunk.place.at, chunk.start_ns);
        let mut entries = BTreeMap::new();
        // Nothing of a damaged chunk is known: no stream may ask for its messages.
        let mut streams = Vec::new();
        for (channel, log_time_ns, offset) in found {
            let Some(stream) = self.stream_of(channel) else { continue };
            if log_time_ns < start_ns {
                return Err(Fault::damaged(format!(
                    "chunk at byte {at}: it declares its begin as {start_ns} ns, but has a message of {log_time_ns} ns"
                )));
            }
            if entries.insert(offset, false).is_some() {
                return Err(Fault::damaged(format!(
                    "the message index of the chunk at byte {at} names the message at byte {offset} twice: {RECOVER}"
                )));
            }
            streams.push((stream, Entry { log_time_ns, at, offset, chunk: Some(id) }));
        }
        for (stream, entry) in streams {
            self.known[stream].push(Reverse(entry));
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
            while let Some(head) = next(&mut reader, &mut self.work, self.granting_bytes)? {
                if head.opcode != op::MESSAGE {
                    define(&mut reader, head, &mut self.contents.definitions)?;
                    continue;
                }
                let message = super::message(&mut reader, head)?;
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
            // The readable part counts.
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
}

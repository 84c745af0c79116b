//! The records of one chunk, decompressed as far as they are needed and never held as a whole.

use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::sync::{Arc, Mutex, PoisonError};

use takt_files::quoted;

use super::fault::Fault;
use super::limits::{MAX_COMPRESSION_NAME_BYTES, work_limit};
use super::records::{CHUNK_HEAD_BYTES, HEAD_BYTES, chunk_head, head, op};

/// Advice for making a chunk smaller.
const SMALLER_CHUNKS: &str =
    "if the file is genuine, rewrite it with smaller chunks: mcap compress --chunk-size 4194304";

/// The file that all decoders of its chunks share; each reads at its own place.
pub(super) struct Shared<R>(Arc<Mutex<R>>);

impl<R> Clone for Shared<R> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<R: Read + Seek> Shared<R> {
    pub(super) fn new(file: R) -> Self {
        Self(Arc::new(Mutex::new(file)))
    }

    /// Reads at a place; fewer bytes than asked for, at least one before the end.
    pub(super) fn read_at(&self, place: u64, into: &mut [u8]) -> io::Result<usize> {
        // A reader has no state but its place, which is set anew each time.
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        file.seek(SeekFrom::Start(place))?;
        file.read(into)
    }

    /// Fills `into` from a place on.
    pub(super) fn read_exact_at(&self, place: u64, into: &mut [u8]) -> io::Result<()> {
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        file.seek(SeekFrom::Start(place))?;
        file.read_exact(into)
    }

    /// Length of the file.
    pub(super) fn length(&self) -> io::Result<u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).seek(SeekFrom::End(0))
    }
}

/// A part of the file.
pub(super) struct Section<R> {
    file: Shared<R>,
    at: u64,
    end: u64,
}

impl<R: Read + Seek> Section<R> {
    pub(super) fn new(file: &Shared<R>, at: u64, end: u64) -> Self {
        Self { file: file.clone(), at, end }
    }
}

impl<R: Read + Seek> Read for Section<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.end.saturating_sub(self.at)).unwrap_or(usize::MAX);
        let wanted = into.len().min(left);
        if wanted == 0 {
            return Ok(0);
        }
        let read = self.file.read_at(self.at, &mut into[..wanted])?;
        self.at += read as u64;
        Ok(read)
    }
}

/// Place of a chunk in the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// Of its record.
    pub at: u64,
    /// With opcode and length.
    pub record_bytes: u64,
}

/// A record inside a chunk whose data has not been read yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub opcode: u8,
    pub length: u64,
    /// Offset of the record within the decompressed chunk.
    pub offset: u64,
}

/// The decompressed records of a chunk. Not a boxed `Read`: that would keep the file's own type
/// from being a borrowed one.
enum Records<R> {
    Plain(BufReader<Section<R>>),
    Zstd(Box<zstd::Decoder<'static, BufReader<Section<R>>>>),
    Lz4(Box<lz4::Decoder<Section<R>>>),
}

impl<R: Read + Seek> Read for Records<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(records) => records.read(into),
            Self::Zstd(records) => records.read(into),
            Self::Lz4(records) => records.read(into),
        }
    }
}

/// A chunk's records in their order.
pub(super) struct ChunkReader<R> {
    at: u64,
    records: Records<R>,
    /// Bytes that were decompressed ahead, from `start` on. Without them each field of each record
    /// would be a call of the decompressor.
    buffer: Vec<u8>,
    start: usize,
    /// Bytes that were decompressed.
    decompressed: u64,
    declared: u64,
    crc: crc32fast::Hasher,
    expected_crc: u32,
}

/// Bytes that are decompressed at once.
const BUFFER_BYTES: usize = 1 << 17;

impl<R: Read + Seek> ChunkReader<R> {
    /// Opens the chunk at `place` of a file of `file_bytes`.
    pub(super) fn open(file: &Shared<R>, place: Place, file_bytes: u64) -> Result<Self, Fault> {
        let at = place.at;
        let damaged = |what: &str| Fault::damaged(format!("chunk at byte {at}: {what}"));
        let mut front = [0; (HEAD_BYTES + CHUNK_HEAD_BYTES) as usize];
        file.read_exact_at(at, &mut front).map_err(|_| damaged("the file ends within its header"))?;
        let (start, fields) = front.split_at(HEAD_BYTES as usize);
        let (opcode, length) = head(start.try_into().unwrap_or_default());
        if opcode != op::CHUNK || length.checked_add(HEAD_BYTES) != Some(place.record_bytes) {
            return Err(damaged(&format!(
                "according to the index, a chunk of {} bytes begins here, but it is a record {opcode:#04x} of {length} bytes",
                place.record_bytes.saturating_sub(HEAD_BYTES)
            )));
        }
        let chunk = chunk_head(fields).ok_or_else(|| damaged("its header is too short"))?;
        let name_bytes = chunk.compression_length as usize;
        if name_bytes > MAX_COMPRESSION_NAME_BYTES {
            return Err(damaged(&format!("the name of its compression has {name_bytes} bytes")));
        }
        let mut rest = vec![0; name_bytes + 8];
        let rest_at = at + front.len() as u64;
        file.read_exact_at(rest_at, &mut rest).map_err(|_| damaged("the file ends within its header"))?;
        let (name, compressed) = rest.split_at(name_bytes);
        let compressed = u64::from_le_bytes(compressed.try_into().unwrap_or_default());
        let data_at = rest_at + rest.len() as u64;
        let data_end = data_at.checked_add(compressed).filter(|end| *end <= at + place.record_bytes);
        let data_end = data_end.ok_or_else(|| {
            damaged(&format!("it has {compressed} bytes of records, more than fit into the record"))
        })?;
        let limit = work_limit(file_bytes);
        if chunk.uncompressed_bytes > limit {
            return Err(Fault::too_many_bytes(
                format!("chunk at byte {at}: size after decompression"),
                chunk.uncompressed_bytes,
                limit,
                SMALLER_CHUNKS,
            ));
        }
        let section = Section::new(file, data_at, data_end.min(file_bytes));
        let records = match name {
            b"" => Records::Plain(BufReader::with_capacity(1 << 16, section)),
            b"zstd" => Records::Zstd(Box::new(zstd::Decoder::new(section)?)),
            b"lz4" => Records::Lz4(Box::new(lz4::Decoder::new(section)?)),
            other => return Err(Fault::Compression(quoted(&String::from_utf8_lossy(other)))),
        };
        Ok(Self {
            at,
            records,
            buffer: Vec::new(),
            start: 0,
            decompressed: 0,
            declared: chunk.uncompressed_bytes,
            crc: crc32fast::Hasher::new(),
            expected_crc: chunk.crc,
        })
    }

    /// Offset of the chunk in the file.
    pub(super) fn at(&self) -> u64 {
        self.at
    }

    /// Offset of the next record within the decompressed chunk.
    pub(super) fn position(&self) -> u64 {
        self.decompressed - (self.buffer.len() - self.start) as u64
    }

    fn damaged(&self, what: &str) -> Fault {
        Fault::damaged(format!("chunk at byte {}: {what}", self.at))
    }

    /// Fills `into` with the next bytes.
    pub(super) fn fill(&mut self, mut into: &mut [u8]) -> Result<(), Fault> {
        while !into.is_empty() {
            let ahead = self.ahead()?;
            let count = ahead.len().min(into.len());
            let (now, later) = into.split_at_mut(count);
            now.copy_from_slice(&ahead[..count]);
            self.start += count;
            into = later;
        }
        Ok(())
    }

    /// Bytes that were decompressed and not used yet, at least one.
    fn ahead(&mut self) -> Result<&[u8], Fault> {
        if self.start == self.buffer.len() {
            let left = usize::try_from(self.declared.saturating_sub(self.decompressed)).unwrap_or(usize::MAX);
            self.start = 0;
            self.buffer.resize(left.min(BUFFER_BYTES), 0);
            let read = self.records.read(&mut self.buffer);
            self.buffer.truncate(read.as_ref().map_or(0, |read| *read));
            match read {
                Ok(0) => return Err(self.broken(&io::ErrorKind::UnexpectedEof.into())),
                Ok(read) => self.decompressed += read as u64,
                Err(error) => return Err(self.broken(&error)),
            }
            self.crc.update(&self.buffer);
        }
        Ok(&self.buffer[self.start..])
    }

    fn broken(&self, error: &io::Error) -> Fault {
        let (declared, position) = (self.declared, self.position());
        match error.kind() {
            io::ErrorKind::UnexpectedEof => self.damaged(&format!(
                "it ends after less than {declared} bytes, the size that it declares (near byte {position})"
            )),
            _ => self.damaged(&format!("it cannot be decompressed near byte {position}: {error}")),
        }
    }

    /// The next record, whose data must be read or skipped before the one after it; `None` at the
    /// end, where the checksum and the declared size have been compared.
    pub(super) fn next(&mut self) -> Result<Option<Head>, Fault> {
        let offset = self.position();
        let left = self.declared.saturating_sub(offset);
        if left == 0 {
            self.check_end()?;
            return Ok(None);
        }
        if left < HEAD_BYTES {
            return Err(self.damaged("it ends within a record"));
        }
        let mut front = [0; HEAD_BYTES as usize];
        self.fill(&mut front)?;
        let (opcode, length) = head(front);
        if length > left - HEAD_BYTES {
            return Err(self.damaged(&format!(
                "a record of {length} bytes at byte {offset} is longer than the rest of the chunk"
            )));
        }
        Ok(Some(Head { opcode, length, offset }))
    }

    fn check_end(&mut self) -> Result<(), Fault> {
        let mut more = [0];
        match self.records.read(&mut more) {
            Ok(0) => {}
            Ok(_) => {
                let declared = self.declared;
                return Err(
                    self.damaged(&format!("it contains more than the {declared} bytes that it declares"))
                );
            }
            Err(error) => return Err(self.broken(&error)),
        }
        let found = self.crc.clone().finalize();
        if self.expected_crc != 0 && self.expected_crc != found {
            let expected = self.expected_crc;
            return Err(self.damaged(&format!("its checksum is {found:08x}, expected {expected:08x}")));
        }
        Ok(())
    }

    /// Appends the next `count` bytes to `into`, which grows as they arrive.
    pub(super) fn read_to(&mut self, count: u64, into: &mut Vec<u8>) -> Result<(), Fault> {
        let mut left = count;
        while left > 0 {
            // Long data is decompressed into its place.
            if self.start == self.buffer.len() && left >= BUFFER_BYTES as u64 {
                let before = into.len();
                let read = self.records.by_ref().take(left).read_to_end(into);
                let new = &into[before..];
                self.crc.update(new);
                self.decompressed += new.len() as u64;
                left -= new.len() as u64;
                match read {
                    Ok(_) if left == 0 => {}
                    Ok(_) => return Err(self.broken(&io::ErrorKind::UnexpectedEof.into())),
                    Err(error) => return Err(self.broken(&error)),
                }
            } else {
                let ahead = self.ahead()?;
                let piece = ahead.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                into.extend_from_slice(&ahead[..piece]);
                self.start += piece;
                left -= piece as u64;
            }
        }
        Ok(())
    }

    /// Passes over the next `count` bytes.
    pub(super) fn skip(&mut self, count: u64) -> Result<(), Fault> {
        let mut left = count;
        while left > 0 {
            let ahead = self.ahead()?.len() as u64;
            let piece = ahead.min(left);
            self.start += piece as usize;
            left -= piece;
        }
        Ok(())
    }
}

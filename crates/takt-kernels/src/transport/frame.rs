//! Frames: a mark, a kind, a length, a check sum and a payload.
//!
//! ```text
//! "TKF1"  kind  0 0 0  length (u32, little endian)  CRC-32 of kind, length and payload  payload
//! ```

use std::io::{self, Write};

use flate2::Crc;

/// Longest payload. Head and payload together are what the console driver takes in one write.
pub const FRAME_PAYLOAD_MAX_BYTES: usize = (32 << 10) - HEAD_BYTES;

const MARK: [u8; 4] = *b"TKF1";
const HEAD_BYTES: usize = 16;

/// Content of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameKind {
    /// The guest is up (JSON).
    Hello,
    /// A line about what goes on (text).
    Progress,
    /// A job has been started (JSON).
    JobStart,
    /// A job has ended (JSON).
    JobEnd,
    /// A piece of the tar archive that is brought out (bytes).
    Archive,
    /// The archive is complete (JSON).
    ArchiveEnd,
    /// Something went wrong (text).
    Failure,
    /// Nothing follows; the guest switches itself off (JSON).
    Done,
}

impl FrameKind {
    const ALL: [Self; 8] = [
        Self::Hello,
        Self::Progress,
        Self::JobStart,
        Self::JobEnd,
        Self::Archive,
        Self::ArchiveEnd,
        Self::Failure,
        Self::Done,
    ];

    fn code(self) -> u8 {
        match self {
            Self::Hello => 1,
            Self::Progress => 2,
            Self::JobStart => 3,
            Self::JobEnd => 4,
            Self::Archive => 5,
            Self::ArchiveEnd => 6,
            Self::Failure => 7,
            Self::Done => 8,
        }
    }

    fn of(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.code() == code)
    }
}

/// Reason why bytes are not a frame. The stream has no way back to frames after that: nothing of
/// ours can have written it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Other bytes where a frame should begin.
    #[error("at byte {at}: expected a frame's mark {MARK:02x?}, found {found:02x?}")]
    Mark { at: u64, found: [u8; 4] },
    /// A kind that is unknown, or bytes set that must be 0.
    #[error("at byte {at}: unknown kind of frame {found:02x?}")]
    Kind {
        /// Place of the frame in the stream.
        at: u64,
        /// The four bytes of the kind.
        found: [u8; 4],
    },
    /// Longer than any frame.
    #[error("at byte {at}: a frame of {found} bytes; at most {FRAME_PAYLOAD_MAX_BYTES} are allowed")]
    Length {
        /// Place of the frame in the stream.
        at: u64,
        found: u32,
    },
    /// Damaged.
    #[error("at byte {at}: the frame's checksum is {found:#010x}, but its bytes give {expected:#010x}")]
    Sum {
        /// Place of the frame in the stream.
        at: u64,
        expected: u32,
        found: u32,
    },
    /// The stream ends inside a frame: the guest stopped while it wrote.
    #[error("the stream ends inside a frame that begins at byte {at}, {missing} bytes before its end")]
    Torn {
        /// Place of the frame in the stream.
        at: u64,
        /// Bytes that are known to be missing.
        missing: usize,
    },
}

fn sum(kind: [u8; 4], length: [u8; 4], payload: &[u8]) -> u32 {
    let mut crc = Crc::new();
    crc.update(&kind);
    crc.update(&length);
    crc.update(payload);
    crc.sum()
}

/// Writes frames. Every frame is one `write`, so that a frame is torn only where the guest dies.
#[derive(Debug)]
pub struct FrameWriter<W: Write> {
    sink: W,
    buffer: Vec<u8>,
}

impl<W: Write> FrameWriter<W> {
    /// Writes to this.
    pub fn new(sink: W) -> Self {
        Self { sink, buffer: Vec::with_capacity(HEAD_BYTES + FRAME_PAYLOAD_MAX_BYTES) }
    }

    /// One frame; a payload above the greatest length becomes several of the same kind.
    ///
    /// # Errors
    /// The sink's.
    pub fn frame(&mut self, kind: FrameKind, payload: &[u8]) -> io::Result<()> {
        if payload.is_empty() {
            return self.one(kind, payload);
        }
        payload.chunks(FRAME_PAYLOAD_MAX_BYTES).try_for_each(|chunk| self.one(kind, chunk))
    }

    fn one(&mut self, kind: FrameKind, payload: &[u8]) -> io::Result<()> {
        let length = u32::try_from(payload.len()).map_err(io::Error::other)?.to_le_bytes();
        let kind = [kind.code(), 0, 0, 0];
        self.buffer.clear();
        self.buffer.extend_from_slice(&MARK);
        self.buffer.extend_from_slice(&kind);
        self.buffer.extend_from_slice(&length);
        self.buffer.extend_from_slice(&sum(kind, length, payload).to_le_bytes());
        self.buffer.extend_from_slice(payload);
        self.sink.write_all(&self.buffer)
    }

    /// Hands on what the sink holds back.
    ///
    /// # Errors
    /// The sink's.
    pub fn flush(&mut self) -> io::Result<()> {
        self.sink.flush()
    }
}

/// Reads frames out of a stream that arrives in pieces of any size.
#[derive(Debug, Default)]
pub struct FrameReader {
    buffer: Vec<u8>,
    /// Of the buffer, read already.
    taken: usize,
    /// Place in the stream of the next frame.
    at: u64,
}

impl FrameReader {
    /// The next bytes of the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        // Moved only when most of the buffer is read, so that many small frames in a large piece
        // stay linear.
        if self.taken > self.buffer.len() / 2 {
            self.buffer.drain(..self.taken);
            self.taken = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole frame; `None`: more bytes are needed.
    ///
    /// # Errors
    /// [`FrameError`], the same at every later call.
    pub fn next_frame(&mut self) -> Result<Option<(FrameKind, &[u8])>, FrameError> {
        let at = self.at;
        let rest = &self.buffer[self.taken..];
        let Some(head) = rest.first_chunk::<HEAD_BYTES>() else {
            // A wrong mark is reported at once, not when sixteen bytes of it are there.
            let begin = &rest[..rest.len().min(MARK.len())];
            return if MARK.starts_with(begin) { Ok(None) } else { Err(Self::mark_error(at, begin)) };
        };
        let [m0, m1, m2, m3, k0, k1, k2, k3, l0, l1, l2, l3, s0, s1, s2, s3] = *head;
        if [m0, m1, m2, m3] != MARK {
            return Err(Self::mark_error(at, &[m0, m1, m2, m3]));
        }
        let kind_bytes = [k0, k1, k2, k3];
        let kind = match (FrameKind::of(k0), [k1, k2, k3]) {
            (Some(kind), [0, 0, 0]) => kind,
            _ => return Err(FrameError::Kind { at, found: kind_bytes }),
        };
        let length_bytes = [l0, l1, l2, l3];
        let found = u32::from_le_bytes(length_bytes);
        let length = usize::try_from(found).unwrap_or(usize::MAX);
        if length > FRAME_PAYLOAD_MAX_BYTES {
            return Err(FrameError::Length { at, found });
        }
        if rest.len() < HEAD_BYTES + length {
            return Ok(None);
        }
        let begin = self.taken + HEAD_BYTES;
        let payload = &self.buffer[begin..begin + length];
        let (expected, found) =
            (sum(kind_bytes, length_bytes, payload), u32::from_le_bytes([s0, s1, s2, s3]));
        if expected != found {
            return Err(FrameError::Sum { at, expected, found });
        }
        self.taken = begin + length;
        self.at += (HEAD_BYTES + length) as u64;
        Ok(Some((kind, payload)))
    }

    fn mark_error(at: u64, begin: &[u8]) -> FrameError {
        let mut found = [0; 4];
        for (to, from) in found.iter_mut().zip(begin) {
            *to = *from;
        }
        FrameError::Mark { at, found }
    }

    /// Whether the stream may end here.
    ///
    /// # Errors
    /// [`FrameError::Torn`] inside a frame.
    pub fn finish(&self) -> Result<(), FrameError> {
        let rest = &self.buffer[self.taken..];
        if rest.is_empty() {
            return Ok(());
        }
        let whole = match rest.first_chunk::<HEAD_BYTES>() {
            Some([.., l0, l1, l2, l3, _, _, _, _]) => {
                let length = u32::from_le_bytes([*l0, *l1, *l2, *l3]);
                HEAD_BYTES.saturating_add(usize::try_from(length).unwrap_or(usize::MAX))
            }
            None => HEAD_BYTES,
        };
        Err(FrameError::Torn { at: self.at, missing: whole.saturating_sub(rest.len()) })
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn stream(frames: &[(FrameKind, Vec<u8>)]) -> Vec<u8> {
        let mut writer = FrameWriter::new(Vec::new());
        for (kind, payload) in frames {
            writer.frame(*kind, payload).unwrap();
        }
        writer.sink
    }

    fn read(reader: &mut FrameReader) -> Result<Vec<(FrameKind, Vec<u8>)>, FrameError> {
        let mut frames = Vec::new();
        while let Some((kind, payload)) = reader.next_frame()? {
            frames.push((kind, payload.to_vec()));
        }
        Ok(frames)
    }

    fn frames() -> impl Strategy<Value = Vec<(FrameKind, Vec<u8>)>> {
        vec((proptest::sample::select(&FrameKind::ALL[..]), vec(any::<u8>(), 0..300)), 0..12)
    }

    #[test]
    fn a_long_payload_is_cut_and_whole_again() {
        let payload: Vec<u8> = (0..FRAME_PAYLOAD_MAX_BYTES * 2 + 7).map(|i| (i % 251) as u8).collect();
        let mut reader = FrameReader::default();
        reader.push(&stream(&[(FrameKind::Archive, payload.clone())]));
        let frames = read(&mut reader).unwrap();
        assert_eq!(frames.len(), 3);
        assert_eq!(frames.concat_payloads(), payload);
        reader.finish().unwrap();
    }

    trait Concat {
        fn concat_payloads(&self) -> Vec<u8>;
    }
    impl Concat for Vec<(FrameKind, Vec<u8>)> {
        fn concat_payloads(&self) -> Vec<u8> {
            self.iter().flat_map(|(_, payload)| payload.clone()).collect()
        }
    }

    #[test]
    fn foreign_bytes_are_reported_at_once() {
        let mut reader = FrameReader::default();
        reader.push(b"[  ");
        assert_eq!(reader.next_frame(), Err(FrameError::Mark { at: 0, found: *b"[  \0" }));
    }

    #[test]
    fn kinds_and_lengths_out_of_range_are_refused() {
        let mut bytes = stream(&[(FrameKind::Done, b"{}".to_vec())]);
        bytes[4] = 99;
        let mut reader = FrameReader::default();
        reader.push(&bytes);
        assert_eq!(reader.next_frame(), Err(FrameError::Kind { at: 0, found: [99, 0, 0, 0] }));
        bytes[4] = 8;
        bytes[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
        let mut reader = FrameReader::default();
        reader.push(&bytes);
        assert_eq!(reader.next_frame(), Err(FrameError::Length { at: 0, found: u32::MAX }));
        assert!(reader.finish().is_err());
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_however_it_is_cut(frames in frames(), cuts in vec(1usize..64, 1..200)) {
            let bytes = stream(&frames);
            let mut reader = FrameReader::default();
            let (mut got, mut rest, mut cuts) = (Vec::new(), &bytes[..], cuts.into_iter().cycle());
            while !rest.is_empty() {
                let (piece, after) = rest.split_at(cuts.next().unwrap().min(rest.len()));
                reader.push(piece);
                got.extend(read(&mut reader).unwrap());
                rest = after;
            }
            reader.finish().unwrap();
            prop_assert_eq!(got, frames);
        }

        #[test]
        fn a_torn_stream_gives_whole_frames_and_says_so(frames in frames(), keep in 0.0f64..1.0) {
            let bytes = stream(&frames);
            let kept = (bytes.len() as f64 * keep) as usize;
            let mut reader = FrameReader::default();
            reader.push(&bytes[..kept]);
            let got = read(&mut reader).unwrap();
            prop_assert_eq!(&got[..], &frames[..got.len()]);
            let whole: usize = got.iter().map(|(_, payload)| HEAD_BYTES + payload.len()).sum();
            prop_assert_eq!(reader.finish().is_ok(), whole == kept);
        }

        #[test]
        fn one_flipped_bit_is_found(frames in frames(), at in any::<proptest::sample::Index>(), bit in 0u8..8) {
            prop_assume!(!frames.is_empty());
            let mut bytes = stream(&frames);
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            let mut reader = FrameReader::default();
            reader.push(&bytes);
            // A length that became greater is found as a torn stream.
            let found = match read(&mut reader) {
                Ok(got) => reader.finish().is_err() && got.len() < frames.len(),
                Err(_) => true,
            };
            prop_assert!(found);
        }

        #[test]
        fn any_bytes_are_survived(bytes in vec(any::<u8>(), 0..200)) {
            let mut reader = FrameReader::default();
            reader.push(&bytes);
            let _ = read(&mut reader);
            let _ = reader.finish();
        }
    }
}

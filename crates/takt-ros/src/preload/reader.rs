//! The reading end of one ring.

use std::sync::atomic::{AtomicU64, Ordering};

use super::decode::{Decoded, RecordError, decode, head};
use super::ring::{MAX_RECORD, MIN_WORDS, PAGE, RingView, code};

/// Reason why a ring cannot be read further.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RingError {
    /// More written than the ring holds: the writer did not keep to the protocol.
    #[error("{waiting} words are waiting in a ring of {words}: its counters are corrupt")]
    Counters { waiting: u64, words: usize },
    /// A record that cannot be read.
    #[error(transparent)]
    Record(#[from] RecordError),
}

/// A reader's state for a ring.
#[derive(Debug)]
pub struct Reader {
    /// Words read; ours alone counts, whatever the shared one says.
    tail: u64,
    buffer: Vec<u64>,
}

impl Default for Reader {
    fn default() -> Self {
        Self { tail: 0, buffer: Vec::with_capacity(MAX_RECORD) }
    }
}

impl Reader {
    /// A reader that goes on where an earlier one stopped.
    pub fn resume(ring: RingView<'_>) -> Self {
        Self { tail: ring.header.tail.load(Ordering::Acquire), ..Self::default() }
    }

    /// Reads what is there, hands it to `sink`, and gives its room back to the writer. Returns how
    /// many records.
    ///
    /// # Errors
    ///
    /// The ring holds what no writer of this version has written. Earlier data has been handed out.
    pub fn read(&mut self, ring: RingView<'_>, mut sink: impl FnMut(Decoded)) -> Result<usize, RingError> {
        let head_at = ring.header.head.load(Ordering::Acquire);
        let waiting = head_at.wrapping_sub(self.tail);
        let capacity = ring.words.len();
        if waiting > capacity as u64 {
            return Err(RingError::Counters { waiting, words: capacity });
        }
        let mut count = 0;
        let result = loop {
            if self.tail == head_at {
                break Ok(count);
            }
            match self.next(ring, head_at) {
                Ok(Some(record)) => {
                    count += 1;
                    sink(record);
                }
                Ok(None) => {}
                Err(error) => break Err(error.into()),
            }
        };
        ring.header.tail.store(self.tail, Ordering::Release);
        result
    }

    /// The next record, `None` for padding.
    fn next(&mut self, ring: RingView<'_>, head_at: u64) -> Result<Option<Decoded>, RecordError> {
        let mask = ring.words.len() - 1;
        let position = self.tail;
        let place = (position as usize) & mask;
        let word =
            |offset: usize| ring.words.get((place + offset) & mask).map_or(0, |w| w.load(Ordering::Relaxed));
        let head = head(word(0), position, head_at.wrapping_sub(position), ring.words.len() - place)?;
        // Copied before it is judged: the other process could change it in between.
        self.buffer.clear();
        if head.code != code::PADDING {
            self.buffer.extend((1..head.words).map(word));
        }
        self.tail = position.wrapping_add(head.words as u64);
        match head.code {
            code::PADDING => Ok(None),
            _ => decode(head, &self.buffer, position).map(Some),
        }
    }
}

/// Reads a ring of the smallest size from an image: its head and the reader's tail, then its words.
/// For tests and fuzzing.
///
/// # Errors
///
/// As `Reader::read`; what came before is not returned then.
pub fn read_image(bytes: &[u8]) -> Result<Vec<Decoded>, RingError> {
    let mut words = bytes.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word.iter_mut().zip(chunk).for_each(|(to, from)| *to = *from);
        u64::from_le_bytes(word)
    });
    let (head, tail) = (words.next().unwrap_or(0), words.next().unwrap_or(0));
    let memory: Vec<AtomicU64> = std::iter::repeat_n(0, PAGE / 8)
        .chain(words.chain(std::iter::repeat(0)).take(MIN_WORDS))
        .map(AtomicU64::new)
        .collect();
    // SAFETY: header and words lie in `memory`, which is aligned to 8 bytes, outlives the view, and
    // is used through atomics alone.
    let view = unsafe { RingView::at(memory.as_ptr().cast_mut().cast(), MIN_WORDS) };
    view.header.head.store(head, Ordering::Relaxed);
    view.header.tail.store(tail, Ordering::Relaxed);
    let mut records = Vec::new();
    Reader::resume(view).read(view, |record| records.push(record))?;
    Ok(records)
}

//! A level on a line of bytes: what the UDP and pty loopbacks carry, with a plant at the far end
//! ([`Wide`]) and without ([`Frame`]).

use std::marker::PhantomData;

/// Bytes of a frame.
pub const FRAME_BYTES: usize = 8;
const MAGIC: u8 = 0xA7;

/// A level with its number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Frame {
    /// Counts levels, wrapping.
    pub sequence: u16,
    /// The level, volts.
    pub level_v: f32,
}

impl Frame {
    pub fn encode(&self) -> [u8; FRAME_BYTES] {
        let [s0, s1] = self.sequence.to_le_bytes();
        let [l0, l1, l2, l3] = self.level_v.to_le_bytes();
        let mut bytes = [MAGIC, s0, s1, l0, l1, l2, l3, 0];
        bytes[7] = check(&bytes);
        bytes
    }

    /// None where the bytes are no frame.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; FRAME_BYTES] = bytes.try_into().ok()?;
        let &[magic, s0, s1, l0, l1, l2, l3, sum] = bytes;
        let level_v = f32::from_le_bytes([l0, l1, l2, l3]);
        (magic == MAGIC && sum == check(bytes) && level_v.is_finite())
            .then_some(Self { sequence: u16::from_le_bytes([s0, s1]), level_v })
    }
}

/// Rotating, so that swapped bytes show. Over all but the last byte, where the result lies.
fn check(bytes: &[u8]) -> u8 {
    let rest = bytes.split_last().map_or(bytes, |(_, rest)| rest);
    rest.iter().fold(0x5A, |sum: u8, byte| sum.rotate_left(1) ^ byte)
}

/// Bytes of a wide frame.
pub const WIDE_BYTES: usize = 16;
const WIDE_MAGIC: u8 = 0xA8;

/// A level with its number and two values beside: out, the plant's drive and 0; back, its sensors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wide {
    /// Counts levels, wrapping.
    pub sequence: u16,
    /// The pulse level, volts.
    pub level_v: f32,
    /// The values, volts.
    pub values_v: [f32; 2],
}

impl Wide {
    pub fn encode(&self) -> [u8; WIDE_BYTES] {
        let mut bytes = [0; WIDE_BYTES];
        bytes[0] = WIDE_MAGIC;
        bytes[1..3].copy_from_slice(&self.sequence.to_le_bytes());
        let [a_v, b_v] = self.values_v;
        for (value_v, at) in [(self.level_v, 3), (a_v, 7), (b_v, 11)] {
            bytes[at..at + 4].copy_from_slice(&value_v.to_le_bytes());
        }
        bytes[WIDE_BYTES - 1] = check(&bytes);
        bytes
    }

    /// None where the bytes are no wide frame.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; WIDE_BYTES] = bytes.try_into().ok()?;
        let at = |at: usize| f32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let (level_v, values_v) = (at(3), [at(7), at(11)]);
        let numbers = level_v.is_finite() && values_v.iter().all(|value_v| value_v.is_finite());
        let sequence = u16::from_le_bytes([bytes[1], bytes[2]]);
        (bytes[0] == WIDE_MAGIC && bytes[WIDE_BYTES - 1] == check(bytes) && numbers).then_some(Self {
            sequence,
            level_v,
            values_v,
        })
    }
}

/// Result of a [`Parser`].
pub trait Found: Sized {
    /// Its first byte.
    const FIRST: u8;
    /// Number of its bytes: at most those of a wide one.
    const BYTES: usize;
    /// None where the bytes are none.
    fn find(bytes: &[u8]) -> Option<Self>;
}

impl Found for Frame {
    const FIRST: u8 = MAGIC;
    const BYTES: usize = FRAME_BYTES;
    fn find(bytes: &[u8]) -> Option<Self> {
        Self::decode(bytes)
    }
}

impl Found for Wide {
    const FIRST: u8 = WIDE_MAGIC;
    const BYTES: usize = WIDE_BYTES;
    fn find(bytes: &[u8]) -> Option<Self> {
        Self::decode(bytes)
    }
}

/// Finds frames in a stream; skips what is none.
#[derive(Clone, Debug)]
pub struct Parser<F> {
    window: [u8; WIDE_BYTES],
    filled: usize,
    /// Bytes that belonged to no frame.
    pub rejected: u64,
    found: PhantomData<F>,
}

impl<F> Default for Parser<F> {
    fn default() -> Self {
        Self { window: [0; WIDE_BYTES], filled: 0, rejected: 0, found: PhantomData }
    }
}

impl<F: Found> Parser<F> {
    pub fn push(&mut self, byte: u8) -> Option<F> {
        self.window[self.filled] = byte;
        self.filled += 1;
        if self.filled < F::BYTES {
            return None;
        }
        if let Some(frame) = F::find(&self.window[..F::BYTES]) {
            self.filled = 0;
            return Some(frame);
        }
        // The next frame can begin at the next magic byte at the earliest.
        let next = (1..F::BYTES).find(|&at| self.window[at] == F::FIRST).unwrap_or(F::BYTES);
        self.window.copy_within(next.., 0);
        self.filled -= next;
        self.rejected += next as u64;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn frames_survive_the_wire(sequence: u16, level_v in -100.0f32..100.0) {
            let frame = Frame { sequence, level_v };
            prop_assert_eq!(Frame::decode(&frame.encode()), Some(frame));
        }

        #[test]
        fn one_wrong_byte_is_no_frame(sequence: u16, level_v in -10.0f32..10.0, at in 0..FRAME_BYTES, wrong in 1u8..) {
            let mut bytes = Frame { sequence, level_v }.encode();
            bytes[at] ^= wrong;
            prop_assert_eq!(Frame::decode(&bytes), None);
        }

        #[test]
        fn a_stream_is_found_again_after_noise(noise in proptest::collection::vec(any::<u8>(), 0..40)) {
            let mut parser = Parser::<Frame>::default();
            let mut seen = noise.iter().filter_map(|&byte| parser.push(byte)).count();
            let frames: Vec<Frame> = (0..8).map(|n| Frame { sequence: n, level_v: 5.0 }).collect();
            let mut last = None;
            for byte in frames.iter().flat_map(Frame::encode) {
                if let Some(frame) = parser.push(byte) {
                    seen += 1;
                    last = Some(frame);
                }
            }
            prop_assert_eq!(last, frames.last().copied());
            // Every byte is in a frame, rejected, or still awaited.
            let bytes = (noise.len() + 8 * FRAME_BYTES) as u64;
            prop_assert_eq!(seen as u64 * FRAME_BYTES as u64 + parser.rejected + parser.filled as u64, bytes);
        }

        #[test]
        fn wide_frames_survive_the_wire_and_one_wrong_byte_is_none(
            sequence: u16, values in proptest::array::uniform3(-100.0f32..100.0), at in 0..WIDE_BYTES, wrong in 1u8..,
        ) {
            let frame = Wide { sequence, level_v: values[0], values_v: [values[1], values[2]] };
            let mut bytes = frame.encode();
            prop_assert_eq!(Wide::decode(&bytes), Some(frame));
            let mut parser = Parser::<Wide>::default();
            let noise = [WIDE_MAGIC, 1, 2];
            let found: Vec<Wide> = noise.iter().chain(&bytes).chain(&bytes).filter_map(|&byte| parser.push(byte)).collect();
            prop_assert_eq!(found.last(), Some(&frame));
            bytes[at] ^= wrong;
            prop_assert_eq!(Wide::decode(&bytes), None);
        }

        #[test]
        fn no_datagram_makes_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = (Frame::decode(&bytes), Wide::decode(&bytes));
        }
    }
}

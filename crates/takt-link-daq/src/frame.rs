//! A level on a line of bytes: what the UDP and pty loopbacks carry.

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

/// Rotating, so that swapped bytes show.
fn check(bytes: &[u8; FRAME_BYTES]) -> u8 {
    bytes[..FRAME_BYTES - 1].iter().fold(0x5A, |sum: u8, byte| sum.rotate_left(1) ^ byte)
}

/// Finds frames in a stream; skips what is none.
#[derive(Clone, Debug, Default)]
pub struct Parser {
    window: [u8; FRAME_BYTES],
    filled: usize,
    /// Bytes that belonged to no frame.
    pub rejected: u64,
}

impl Parser {
    pub fn push(&mut self, byte: u8) -> Option<Frame> {
        self.window[self.filled] = byte;
        self.filled += 1;
        if self.filled < FRAME_BYTES {
            return None;
        }
        if let Some(frame) = Frame::decode(&self.window) {
            self.filled = 0;
            return Some(frame);
        }
        // The next frame can begin at the next magic byte at the earliest.
        let next = (1..FRAME_BYTES).find(|&at| self.window[at] == MAGIC).unwrap_or(FRAME_BYTES);
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
            let mut parser = Parser::default();
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
        fn no_datagram_makes_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = Frame::decode(&bytes);
        }
    }
}

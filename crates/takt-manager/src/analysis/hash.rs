//! Maps for results that are remembered: their keys are hundreds of numbers, all our own.

use std::hash::{BuildHasherDefault, Hasher};

pub(super) type HashMap<K, V> = std::collections::HashMap<K, V, BuildHasherDefault<Fast>>;

/// A multiplication for each number, as in the compiler's own (FxHash). An attacker who could
/// choose colliding keys could choose the workload, too.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Fast(u64);

impl Fast {
    fn add(&mut self, number: u64) {
        self.0 = (self.0.rotate_left(5) ^ number).wrapping_mul(0x517c_c1b7_2722_0a95);
    }
}

impl Hasher for Fast {
    fn write(&mut self, bytes: &[u8]) {
        let (numbers, rest) = bytes.as_chunks();
        numbers.iter().for_each(|number| self.add(u64::from_le_bytes(*number)));
        rest.iter().for_each(|byte| self.add(u64::from(*byte)));
    }

    fn write_u64(&mut self, number: u64) {
        self.add(number);
    }

    fn write_usize(&mut self, number: usize) {
        self.add(number as u64);
    }

    fn finish(&self) -> u64 {
        // Maps take the place from the low bits and a tag from the high ones.
        self.0.rotate_left(26)
    }
}

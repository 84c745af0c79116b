//! Fieldbus memory management units: from logical addresses of the process image to a device's
//! memory.

use super::wire::{u16_at, u32_at};

/// One decoded unit (ETG.1000.4, table 56).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Fmmu {
    pub(super) logical: u32,
    pub(super) length: u16,
    pub(super) start_bit: u8,
    pub(super) end_bit: u8,
    pub(super) physical: u16,
    pub(super) physical_bit: u8,
    pub(super) reads: bool,
    pub(super) writes: bool,
    pub(super) enabled: bool,
}

impl Fmmu {
    pub(super) fn decode(block: &[u8]) -> Self {
        let byte = |at: usize| block.get(at).copied().unwrap_or(0);
        Self {
            logical: u32_at(block, 0),
            length: u16_at(block, 4),
            start_bit: byte(6) & 7,
            end_bit: byte(7) & 7,
            physical: u16_at(block, 8),
            physical_bit: byte(10) & 7,
            reads: byte(11) & 1 != 0,
            writes: byte(11) & 2 != 0,
            enabled: byte(12) & 1 != 0,
        }
    }

    /// Maps anything at all.
    pub(super) fn is_active(&self) -> bool {
        self.enabled && self.length > 0 && (self.reads || self.writes)
    }

    /// Whole bytes to whole bytes.
    pub(super) fn is_byte_wise(&self) -> bool {
        self.start_bit == 0 && self.end_bit == 7 && self.physical_bit == 0
    }

    /// The bits that are mapped, as offsets from the first logical byte's bit 0.
    pub(super) fn bits(&self) -> std::ops::Range<u32> {
        let end = (u32::from(self.length).saturating_sub(1)) * 8 + u32::from(self.end_bit) + 1;
        u32::from(self.start_bit)..end
    }

    /// The part of a datagram of `length` bytes at `address` that this unit maps: offset in the
    /// datagram, offset in the unit, bytes.
    pub(super) fn overlap(&self, address: u32, length: usize) -> Option<(usize, usize, usize)> {
        let own = u64::from(self.logical)..u64::from(self.logical) + u64::from(self.length);
        let asked = u64::from(address)..u64::from(address) + length as u64;
        let start = own.start.max(asked.start);
        let end = own.end.min(asked.end);
        (start < end)
            .then(|| ((start - asked.start) as usize, (start - own.start) as usize, (end - start) as usize))
    }
}

/// Copies single bits: of `bits` (offsets from bit 0 of `from`'s resp. `to`'s first mapped byte).
pub(super) fn copy_bits(from: &[u8], from_bit: u32, to: &mut [u8], to_bit: u32, count: u32) {
    for bit in 0..count {
        let (source, target) = (from_bit + bit, to_bit + bit);
        let value = from.get((source / 8) as usize).is_some_and(|byte| byte >> (source % 8) & 1 != 0);
        if let Some(byte) = to.get_mut((target / 8) as usize) {
            let mask = 1 << (target % 8);
            *byte = if value { *byte | mask } else { *byte & !mask };
        }
    }
}

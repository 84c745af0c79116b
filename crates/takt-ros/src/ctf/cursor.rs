//! Bits of a packet, read one integer after the other.

use super::tsdl::types::{Int, Order};

/// The packet ends before the field does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Short;

/// A place in a packet's content.
#[derive(Debug, Clone, Copy)]
pub struct Cursor<'a> {
    /// The packet, its content at least.
    pub data: &'a [u8],
    /// Next bit.
    pub at: u64,
    /// First bit behind the content; never beyond `data`.
    pub end: u64,
}

impl<'a> Cursor<'a> {
    /// Skips to the next multiple of `align` (a power of two).
    #[inline]
    pub fn align(&mut self, align: u64) {
        self.at = (self.at + align - 1) & !(align - 1);
    }

    /// Skips so many bits.
    #[inline]
    pub fn skip(&mut self, bits: u64) -> Result<(), Short> {
        if self.end.saturating_sub(self.at) < bits {
            return Err(Short);
        }
        self.at += bits;
        Ok(())
    }

    /// Reads an integer after aligning to it, sign-extended.
    #[inline]
    pub fn int(&mut self, int: &Int) -> Result<u64, Short> {
        self.align(u64::from(int.align));
        self.bits(int.bits, int.order == Order::Big, int.signed)
    }

    /// Reads `bits` (1 to 64) from here on, sign-extended.
    #[inline]
    pub fn bits(&mut self, bits: u32, big: bool, signed: bool) -> Result<u64, Short> {
        let at = self.at;
        self.skip(u64::from(bits))?;
        let first = (at / 8) as usize;
        let shift = (at % 8) as u32;
        let bytes = (shift + bits).div_ceil(8) as usize;
        let Some(source) = self.data.get(first..first + bytes) else { return Err(Short) };
        let mut buffer = [0_u8; 16];
        let value = if big {
            // The first byte holds the most significant bits.
            buffer[16 - bytes..].copy_from_slice(source);
            (u128::from_be_bytes(buffer) >> (bytes as u32 * 8 - shift - bits)) as u64
        } else {
            buffer[..bytes].copy_from_slice(source);
            (u128::from_le_bytes(buffer) >> shift) as u64
        };
        Ok(extend(value, bits, signed))
    }

    /// Reads text up to its zero byte: its first byte and its length.
    #[inline]
    pub fn text(&mut self) -> Result<(usize, usize), Short> {
        self.align(8);
        let (first, end) = ((self.at / 8) as usize, (self.end / 8) as usize);
        let rest = self.data.get(first..end).ok_or(Short)?;
        let length = std::ffi::CStr::from_bytes_until_nul(rest).map_err(|_| Short)?.to_bytes().len();
        self.at += (length as u64 + 1) * 8;
        Ok((first, length))
    }

    /// The bytes from `first` on.
    pub fn slice(&self, first: usize, length: usize) -> &'a [u8] {
        self.data.get(first..first.saturating_add(length)).unwrap_or_default()
    }
}

/// Drops what stands above `bits`, or repeats the sign there.
#[inline]
pub fn extend(value: u64, bits: u32, signed: bool) -> u64 {
    let unused = 64 - bits.clamp(1, 64);
    if signed { (((value << unused) as i64) >> unused) as u64 } else { (value << unused) >> unused }
}

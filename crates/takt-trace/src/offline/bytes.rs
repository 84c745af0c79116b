//! A place in the bytes of a file. Every step is checked: a file is not to be trusted.

use super::error::OfflineError;

/// Reads from the front; knows where in the file it is, for errors.
#[derive(Debug, Clone)]
pub(super) struct Bytes<'a> {
    rest: &'a [u8],
    offset: u64,
}

impl<'a> Bytes<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, offset: 0 }
    }

    /// The place `offset` of a file.
    pub(super) fn at(file: &'a [u8], offset: u64, part: &'static str) -> Result<Self, OfflineError> {
        let rest = usize::try_from(offset)
            .ok()
            .and_then(|offset| file.get(offset..))
            .ok_or(OfflineError::Torn { part, offset, expected: 1, received: 0 })?;
        Ok(Self { rest, offset })
    }

    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    pub(super) fn take(&mut self, count: u64, part: &'static str) -> Result<&'a [u8], OfflineError> {
        match usize::try_from(count).ok().and_then(|count| self.rest.split_at_checked(count)) {
            Some((taken, rest)) => {
                self.rest = rest;
                self.offset += count;
                Ok(taken)
            }
            None => Err(OfflineError::Torn {
                part,
                offset: self.offset,
                expected: count,
                received: self.rest.len() as u64,
            }),
        }
    }

    fn array<const N: usize>(&mut self, part: &'static str) -> Result<[u8; N], OfflineError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N as u64, part)?);
        Ok(array)
    }

    pub(super) fn u8(&mut self, part: &'static str) -> Result<u8, OfflineError> {
        Ok(self.array::<1>(part)?[0])
    }

    pub(super) fn u16(&mut self, part: &'static str) -> Result<u16, OfflineError> {
        Ok(u16::from_le_bytes(self.array(part)?))
    }

    pub(super) fn u32(&mut self, part: &'static str) -> Result<u32, OfflineError> {
        Ok(u32::from_le_bytes(self.array(part)?))
    }

    pub(super) fn u64(&mut self, part: &'static str) -> Result<u64, OfflineError> {
        Ok(u64::from_le_bytes(self.array(part)?))
    }

    /// Text that ends with a NUL.
    pub(super) fn text(&mut self, part: &'static str) -> Result<&'a [u8], OfflineError> {
        let length = self.rest.iter().position(|&byte| byte == 0).ok_or(OfflineError::Torn {
            part,
            offset: self.offset,
            expected: self.rest.len() as u64 + 1,
            received: self.rest.len() as u64,
        })?;
        let text = self.take(length as u64, part)?;
        self.take(1, part)?;
        Ok(text)
    }

    /// A u64 length, and as many bytes.
    pub(super) fn sized(&mut self, part: &'static str) -> Result<&'a [u8], OfflineError> {
        let size = self.u64(part)?;
        self.take(size, part)
    }
}

/// Reads a little-endian word of a record whose length is known; 0 beyond its end.
pub(super) fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    match bytes.get(offset..).and_then(|rest| rest.first_chunk()) {
        Some(word) => u64::from_le_bytes(*word),
        None => 0,
    }
}

/// See [`u64_at`].
pub(super) fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    match bytes.get(offset..).and_then(|rest| rest.first_chunk()) {
        Some(word) => u32::from_le_bytes(*word),
        None => 0,
    }
}

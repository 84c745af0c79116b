//! CDR, in which ROS 2 encodes its messages (OMG DDSI-RTPS, section 10; XTypes, section 7.4).
//!
//! Lengths of sequences and strings are compared with what is there before anything is taken.

/// Reads fields one after the other; each is aligned to its size, counted from the first byte after
/// the header.
pub(super) struct Cdr<'a> {
    message: &'a [u8],
    at: usize,
    big_endian: bool,
    /// 8 in the plain encoding of version 1, 4 in that of version 2.
    widest: usize,
}

/// Bytes before the fields: how they are encoded, and options.
const HEADER_BYTES: usize = 4;

impl<'a> Cdr<'a> {
    pub(super) fn new(message: &'a [u8]) -> Result<Self, String> {
        let Some(&[first, kind, _, _]) = message.first_chunk() else {
            return Err(format!("{} bytes, expected a CDR header of 4", message.len()));
        };
        let (big_endian, widest) = match (first, kind) {
            (0, 0) => (true, 8),
            (0, 1) => (false, 8),
            (0, 6) => (true, 4),
            (0, 7) => (false, 4),
            _ => {
                return Err(format!(
                    "encapsulation {first:02x} {kind:02x}, expected plain CDR (00 00, 00 01, 00 06 or 00 07)"
                ));
            }
        };
        Ok(Self { message, at: HEADER_BYTES, big_endian, widest })
    }

    pub(super) fn bytes(&mut self, count: usize) -> Result<&'a [u8], String> {
        let rest = self.message.get(self.at..).unwrap_or_default();
        let Some((taken, _)) = rest.split_at_checked(count) else {
            return Err(format!("ends after {} bytes, {count} more expected", self.message.len()));
        };
        self.at += count;
        Ok(taken)
    }

    fn aligned<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let to = N.min(self.widest);
        self.at += (self.at - HEADER_BYTES).wrapping_neg() % to;
        let mut field: [u8; N] = self.bytes(N)?.try_into().unwrap_or([0; N]);
        if !self.big_endian {
            field.reverse();
        }
        Ok(field)
    }

    pub(super) fn u8(&mut self) -> Result<u8, String> {
        self.aligned().map(u8::from_be_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, String> {
        self.aligned().map(u32::from_be_bytes)
    }

    pub(super) fn f64(&mut self) -> Result<f64, String> {
        self.aligned().map(f64::from_be_bytes)
    }

    /// A text, whose length counts the zero at its end.
    pub(super) fn string(&mut self) -> Result<&'a str, String> {
        let length = self.u32()? as usize;
        let bytes = self.bytes(length)?;
        let text = bytes.strip_suffix(&[0]).unwrap_or(bytes);
        std::str::from_utf8(text).map_err(|_| format!("a text of {length} bytes is not UTF-8"))
    }

    /// Place of a sequence's bytes in the message.
    pub(super) fn byte_sequence(&mut self) -> Result<std::ops::Range<usize>, String> {
        let length = self.u32()? as usize;
        let from = self.at;
        self.bytes(length)?;
        Ok(from..self.at)
    }

    pub(super) fn f64s(&mut self, count: usize) -> Result<Vec<f64>, String> {
        let left = self.message.len().saturating_sub(self.at);
        if count > left / 8 {
            return Err(format!("a sequence of {count} numbers, but {left} bytes are left"));
        }
        (0..count).map(|_| self.f64()).collect()
    }

    pub(super) fn f64_sequence(&mut self) -> Result<Vec<f64>, String> {
        let count = self.u32()? as usize;
        self.f64s(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_aligned_from_the_first_byte_after_the_header() {
        let little = [0, 1, 0, 0, 7, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f];
        let mut cdr = Cdr::new(&little[..]).unwrap();
        assert_eq!(cdr.u8().unwrap(), 7);
        assert_eq!(cdr.u32().unwrap(), 0x201);
        assert_eq!(cdr.at, 12);
        let plain2 = [0, 6, 0, 0, 0, 0, 0, 9, 0x3f, 0xf0, 0, 0, 0, 0, 0, 0];
        let mut cdr = Cdr::new(&plain2).unwrap();
        assert_eq!(cdr.u32().unwrap(), 9);
        assert_eq!(cdr.f64().unwrap(), 1.0, "version 2 aligns to 4 at most");
        assert!(cdr.u8().is_err());
    }

    #[test]
    fn lengths_that_lie_cost_nothing() {
        for kind in [0, 1, 6, 7] {
            let lie = [0, kind, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];
            assert!(Cdr::new(&lie).unwrap().f64_sequence().is_err());
            assert!(Cdr::new(&lie).unwrap().byte_sequence().is_err());
            assert!(Cdr::new(&lie).unwrap().string().is_err());
        }
        assert!(Cdr::new(&[0, 3, 0, 0]).is_err(), "parameter lists are no plain CDR");
        assert!(Cdr::new(&[0, 1]).is_err());
    }
}

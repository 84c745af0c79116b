//! Protocol Buffers, read in place: a message is a slice, and nothing is copied or allocated.
//!
//! The format: protobuf.dev, "Encoding". Groups (wire types 3 and 4) are refused; ONNX has none,
//! and they are the only way for a message to nest without stating its length.

/// Reason why bytes are not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// A field ends behind the bytes.
    #[error("a field of {length} bytes where {left} are left")]
    Short { length: u64, left: usize },
    /// A number of more than 64 bits.
    #[error("a number that is longer than 10 bytes")]
    Number,
    /// Field number 0 or one above 2²⁹ − 1, or a wire type that ONNX does not use.
    #[error("a field with the key {key}, which does not occur in ONNX files")]
    Key { key: u64 },
    /// The field has another wire type than ONNX gives it.
    #[error("field {field} has the wrong wire type")]
    Type { field: u32 },
}

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Value<'a> {
    Number(u64),
    /// Four or eight bytes.
    Fixed(&'a [u8]),
    Bytes(&'a [u8]),
}

/// A field of a message.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Field<'a> {
    pub(crate) number: u32,
    pub(crate) value: Value<'a>,
    /// With its key, as it stands in the message.
    pub(crate) raw: &'a [u8],
}

impl<'a> Field<'a> {
    /// A string, a message, or packed numbers.
    pub(crate) fn bytes(&self) -> Result<&'a [u8], WireError> {
        match self.value {
            Value::Bytes(bytes) => Ok(bytes),
            _ => Err(WireError::Type { field: self.number }),
        }
    }

    /// An integer; negative ones are stored as their two's complement.
    pub(crate) fn int(&self) -> Result<i64, WireError> {
        match self.value {
            Value::Number(number) => Ok(number as i64),
            _ => Err(WireError::Type { field: self.number }),
        }
    }

    /// The integers of a repeated field, packed or not.
    pub(crate) fn ints(&self) -> Ints<'a> {
        match self.value {
            Value::Number(number) => Ints { bytes: &[], one: Some(number as i64) },
            Value::Bytes(bytes) | Value::Fixed(bytes) => Ints { bytes, one: None },
        }
    }

    /// Number of elements of `width` bytes in a repeated field of fixed width; `None` if the bytes
    /// are not a multiple of that.
    pub(crate) fn fixed_count(&self, width: usize) -> Option<usize> {
        match self.value {
            Value::Fixed(bytes) => (bytes.len() == width).then_some(1),
            Value::Bytes(bytes) => bytes.len().is_multiple_of(width).then_some(bytes.len() / width),
            Value::Number(_) => None,
        }
    }
}

/// The numbers of a repeated integer field.
#[derive(Clone, Debug)]
pub(crate) struct Ints<'a> {
    bytes: &'a [u8],
    one: Option<i64>,
}

impl Iterator for Ints<'_> {
    type Item = Result<i64, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(one) = self.one.take() {
            return Some(Ok(one));
        }
        if self.bytes.is_empty() {
            return None;
        }
        let number = varint(&mut self.bytes);
        if number.is_err() {
            self.bytes = &[];
        }
        Some(number.map(|number| number as i64))
    }
}

/// The fields of a message, in their order.
#[derive(Clone, Debug)]
pub(crate) struct Fields<'a> {
    bytes: &'a [u8],
}

/// The fields of the message in `bytes`.
pub(crate) fn fields(bytes: &[u8]) -> Fields<'_> {
    Fields { bytes }
}

impl<'a> Fields<'a> {
    fn read(&mut self) -> Result<Field<'a>, WireError> {
        let whole = self.bytes;
        let key = varint(&mut self.bytes)?;
        let number = u32::try_from(key >> 3).ok().filter(|number| (1..1 << 29).contains(number));
        let Some(number) = number else { return Err(WireError::Key { key }) };
        let value = match key & 7 {
            0 => Value::Number(varint(&mut self.bytes)?),
            1 => Value::Fixed(self.take(8)?),
            2 => {
                let length = varint(&mut self.bytes)?;
                Value::Bytes(self.take(length)?)
            }
            5 => Value::Fixed(self.take(4)?),
            _ => return Err(WireError::Key { key }),
        };
        Ok(Field { number, value, raw: &whole[..whole.len() - self.bytes.len()] })
    }

    fn take(&mut self, length: u64) -> Result<&'a [u8], WireError> {
        let left = self.bytes.len();
        let found = usize::try_from(length).ok().and_then(|length| self.bytes.split_at_checked(length));
        let Some((taken, rest)) = found else { return Err(WireError::Short { length, left }) };
        self.bytes = rest;
        Ok(taken)
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<Field<'a>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.bytes.is_empty() {
            return None;
        }
        let field = self.read();
        if field.is_err() {
            self.bytes = &[];
        }
        Some(field)
    }
}

fn varint(bytes: &mut &[u8]) -> Result<u64, WireError> {
    let mut number = 0u64;
    for index in 0..10 {
        let Some((&byte, rest)) = bytes.split_first() else {
            return Err(WireError::Short { length: 1, left: 0 });
        };
        *bytes = rest;
        number |= u64::from(byte & 0x7f).checked_shl(7 * index).unwrap_or_default();
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err(WireError::Number)
}

/// Appends an integer field.
pub(crate) fn put_int(out: &mut Vec<u8>, field: u32, value: i64) {
    put_varint(out, u64::from(field) << 3);
    put_varint(out, value as u64);
}

/// Appends a string, a message or packed numbers.
pub(crate) fn put_bytes(out: &mut Vec<u8>, field: u32, bytes: &[u8]) {
    put_varint(out, u64::from(field) << 3 | 2);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut message = Vec::new();
        put_int(&mut message, 1, 300);
        put_int(&mut message, 2, -1);
        put_bytes(&mut message, 500, b"text");
        let read: Vec<Field> = fields(&message).collect::<Result<_, _>>().unwrap();
        assert_eq!((read[0].number, read[0].int().unwrap()), (1, 300));
        assert_eq!((read[1].number, read[1].int().unwrap()), (2, -1));
        assert_eq!((read[2].number, read[2].bytes().unwrap()), (500, &b"text"[..]));
        assert!(read[0].bytes().is_err() && read[2].int().is_err());
        assert_eq!(read.iter().map(|field| field.raw.len()).sum::<usize>(), message.len());
    }

    #[test]
    fn numbers_are_read_packed_and_one_by_one() {
        // The example of protobuf.dev: field 6 packed with 3, 270, 86942.
        let message = [0x32, 0x06, 0x03, 0x8e, 0x02, 0x9e, 0xa7, 0x05, 0x30, 0x07];
        let read: Vec<i64> =
            fields(&message).flat_map(|field| field.unwrap().ints()).collect::<Result<_, _>>().unwrap();
        assert_eq!(read, [3, 270, 86942, 7]);
    }

    #[test]
    fn bytes_that_are_no_message_are_refused() {
        let of = |bytes: &[u8]| fields(bytes).find_map(Result::err).unwrap();
        assert_eq!(of(&[0x0a, 0x05, 1]), WireError::Short { length: 5, left: 1 });
        assert_eq!(of(&[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 1]), {
            WireError::Short { length: u64::MAX, left: 1 }
        });
        assert_eq!(of(&[0x08, 0x80]), WireError::Short { length: 1, left: 0 });
        assert_eq!(of(&[0xff; 11]), WireError::Number);
        assert_eq!(of(&[0x00, 0x01]), WireError::Key { key: 0 });
        assert_eq!(of(&[0x0b]), WireError::Key { key: 0x0b });
        assert_eq!(of(&[0x09, 1, 2]), WireError::Short { length: 8, left: 2 });
    }
}

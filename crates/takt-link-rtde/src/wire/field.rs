//! Types of RTDE variables, and values as bytes.

use super::{HEADER_BYTES, PacketType, WireError};

/// Types of RTDE variables (RTDE guide, "Data Types").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataType {
    /// One byte, 0 or not 0.
    Bool,
    /// Unsigned 8-bit integer.
    Uint8,
    /// Unsigned 32-bit integer.
    Uint32,
    /// Unsigned 64-bit integer.
    Uint64,
    /// Signed 32-bit integer.
    Int32,
    /// IEEE 754 binary64.
    Double,
    /// Three doubles.
    Vector3d,
    /// Six doubles.
    Vector6d,
    /// Six signed 32-bit integers.
    Vector6Int32,
    /// Six unsigned 32-bit integers.
    Vector6Uint32,
}

impl DataType {
    /// Bytes that a value takes on the wire.
    pub const fn size(self) -> usize {
        match self {
            Self::Bool | Self::Uint8 => 1,
            Self::Uint32 | Self::Int32 => 4,
            Self::Uint64 | Self::Double => 8,
            Self::Vector3d | Self::Vector6Int32 | Self::Vector6Uint32 => 24,
            Self::Vector6d => 48,
        }
    }

    /// The name that the protocol uses.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bool => "BOOL",
            Self::Uint8 => "UINT8",
            Self::Uint32 => "UINT32",
            Self::Uint64 => "UINT64",
            Self::Int32 => "INT32",
            Self::Double => "DOUBLE",
            Self::Vector3d => "VECTOR3D",
            Self::Vector6d => "VECTOR6D",
            Self::Vector6Int32 => "VECTOR6INT32",
            Self::Vector6Uint32 => "VECTOR6UINT32",
        }
    }

    const ALL: [Self; 10] = [
        Self::Bool,
        Self::Uint8,
        Self::Uint32,
        Self::Uint64,
        Self::Int32,
        Self::Double,
        Self::Vector3d,
        Self::Vector6d,
        Self::Vector6Int32,
        Self::Vector6Uint32,
    ];
}

/// A controller's answer for one variable of a recipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The variable is in the recipe and has this type.
    Type(DataType),
    /// `NOT_FOUND`: this controller has no such variable.
    NotFound,
    /// `IN_USE`: another client owns this input.
    InUse,
}

impl Answer {
    /// Parses one entry of a set-up answer.
    ///
    /// # Errors
    /// [`WireError::UnknownDataType`].
    pub fn parse(text: &str) -> Result<Self, WireError> {
        match text {
            "NOT_FOUND" => Ok(Self::NotFound),
            "IN_USE" => Ok(Self::InUse),
            _ => DataType::ALL
                .into_iter()
                .find(|kind| kind.name() == text)
                .map(Self::Type)
                .ok_or(WireError::UnknownDataType),
        }
    }

    /// As it is written in a set-up answer.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Type(kind) => kind.name(),
            Self::NotFound => "NOT_FOUND",
            Self::InUse => "IN_USE",
        }
    }
}

/// The entries of a comma-separated list. Blank entries are skipped: `ur_rtde` ends its lists with
/// a comma.
pub fn names(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim).filter(|name| !name.is_empty())
}

/// Reads values from a payload, in order.
#[derive(Clone, Debug)]
pub struct Fields<'a> {
    left: &'a [u8],
}

macro_rules! read_number {
    ($(#[$doc:meta])* $name:ident, $kind:ty) => {
        $(#[$doc])*
        ///
        /// # Errors
        /// [`WireError::Short`].
        pub fn $name(&mut self) -> Result<$kind, WireError> {
            Ok(<$kind>::from_be_bytes(self.array()?))
        }
    };
}

impl<'a> Fields<'a> {
    /// From the first byte of `payload`.
    pub const fn new(payload: &'a [u8]) -> Self {
        Self { left: payload }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (head, tail) =
            self.left.split_first_chunk().ok_or(WireError::Short { needed: N, left: self.left.len() })?;
        self.left = tail;
        Ok(*head)
    }

    read_number!(/// An unsigned byte.
        u8, u8);
    read_number!(/// A 16-bit unsigned integer.
        u16, u16);
    read_number!(/// A 32-bit unsigned integer.
        u32, u32);
    read_number!(/// A 64-bit unsigned integer.
        u64, u64);
    read_number!(/// A 32-bit signed integer.
        i32, i32);
    read_number!(/// A double, whatever its bits are: the caller judges NaN and infinities.
        f64, f64);

    /// `N` doubles.
    ///
    /// # Errors
    /// [`WireError::Short`].
    pub fn doubles<const N: usize>(&mut self) -> Result<[f64; N], WireError> {
        let mut values = [0.0; N];
        for value in &mut values {
            *value = self.f64()?;
        }
        Ok(values)
    }

    /// The next `count` bytes.
    ///
    /// # Errors
    /// [`WireError::Short`].
    pub fn bytes(&mut self, count: usize) -> Result<&'a [u8], WireError> {
        let (head, tail) = self
            .left
            .split_at_checked(count)
            .ok_or(WireError::Short { needed: count, left: self.left.len() })?;
        self.left = tail;
        Ok(head)
    }

    /// All bytes that are left.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.left)
    }

    /// Ends reading.
    ///
    /// # Errors
    /// [`WireError::Trailing`] when values are left over.
    pub const fn finish(self) -> Result<(), WireError> {
        if self.left.is_empty() { Ok(()) } else { Err(WireError::Trailing { left: self.left.len() }) }
    }
}

/// Packs one packet into a buffer that the caller owns.
///
/// A value that does not fit is remembered, and [`Self::finish`] says so: the steps between need no
/// check.
#[derive(Debug)]
pub struct PacketWriter<'a> {
    buffer: &'a mut [u8],
    used: usize,
}

impl<'a> PacketWriter<'a> {
    /// Starts a packet of type `kind` at the start of `buffer`.
    pub fn new(buffer: &'a mut [u8], kind: PacketType) -> Self {
        let mut writer = Self { buffer, used: 0 };
        writer.bytes(&[0, 0, kind as u8]);
        writer
    }

    /// Appends bytes.
    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        let end = self.used.saturating_add(bytes.len());
        if let Some(free) = self.buffer.get_mut(self.used..end) {
            free.copy_from_slice(bytes);
        }
        self.used = end;
        self
    }

    /// Appends a byte.
    pub fn u8(&mut self, value: u8) -> &mut Self {
        self.bytes(&[value])
    }

    /// Appends a 16-bit unsigned integer.
    pub fn u16(&mut self, value: u16) -> &mut Self {
        self.bytes(&value.to_be_bytes())
    }

    /// Appends a 32-bit unsigned integer.
    pub fn u32(&mut self, value: u32) -> &mut Self {
        self.bytes(&value.to_be_bytes())
    }

    /// Appends a 64-bit unsigned integer.
    pub fn u64(&mut self, value: u64) -> &mut Self {
        self.bytes(&value.to_be_bytes())
    }

    /// Appends a 32-bit signed integer.
    pub fn i32(&mut self, value: i32) -> &mut Self {
        self.bytes(&value.to_be_bytes())
    }

    /// Appends a double.
    pub fn f64(&mut self, value: f64) -> &mut Self {
        self.bytes(&value.to_be_bytes())
    }

    /// Appends doubles.
    pub fn doubles(&mut self, values: &[f64]) -> &mut Self {
        for value in values {
            self.f64(*value);
        }
        self
    }

    /// Writes the size into the header and returns it.
    ///
    /// # Errors
    /// [`WireError::BufferFull`] when the values do not fit into the buffer or the size field.
    pub fn finish(&mut self) -> Result<usize, WireError> {
        let capacity = self.buffer.len().min(usize::from(u16::MAX));
        let full = WireError::BufferFull { needed: self.used, capacity };
        if self.used > capacity || self.used < HEADER_BYTES {
            return Err(full);
        }
        let size = u16::try_from(self.used).map_err(|_| full)?;
        self.buffer[..2].copy_from_slice(&size.to_be_bytes());
        Ok(self.used)
    }
}

//! Declarations of a trace's metadata, after parsing: types as trees, classes of streams and
//! events, clocks.

use std::collections::BTreeMap;

/// Byte order of an integer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// The least significant.
    Little,
    /// The most significant.
    Big,
    /// Whatever the trace's `byte_order` says, which may be declared after the type.
    Native,
}

/// An integer of 1 to 64 bits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Int {
    /// Its size in bits.
    pub bits: u32,
    /// Alignment in bits, a power of two.
    pub align: u32,
    /// Two's complement.
    pub signed: bool,
    /// Byte order.
    pub order: Order,
    /// Base for people: 2, 8, 10 or 16.
    pub base: u8,
    /// A character rather than a number: arrays of such integers are texts.
    pub text: bool,
    /// Reading it sets the clock.
    pub clock: bool,
    /// Slot in which the decoder keeps its value because a sequence's length or a variant's choice
    /// refers to it.
    pub save: Option<u32>,
    /// Its number among all integers of the trace, by which references are resolved.
    pub(super) ordinal: u32,
}

impl Int {
    /// A plain unsigned integer, for what is as wide as one.
    pub fn plain(bits: u32, align: u32, order: Order) -> Self {
        Self {
            bits,
            align,
            signed: false,
            order,
            base: 10,
            text: false,
            clock: false,
            save: None,
            ordinal: 0,
        }
    }
}

/// A floating-point number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Float {
    /// 32 or 64.
    pub bits: u32,
    /// Alignment in bits.
    pub align: u32,
    /// Byte order.
    pub order: Order,
}

/// One label of an enumeration, for all values from `low` to `high`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    pub name: String,
    /// Least value.
    pub low: i128,
    /// Greatest value.
    pub high: i128,
}

/// A reference to an integer that stands earlier in the event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    /// As written.
    pub path: String,
    /// Its place in the text, for messages.
    pub(super) at: usize,
    /// Slot in which the decoder keeps the value.
    pub from: u32,
}

/// A choice among types.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variant {
    /// The enumeration that chooses.
    pub tag: Option<Reference>,
    pub options: Vec<(String, Type)>,
    /// Values of the tag for each option, filled in when the tag is resolved.
    pub cases: Vec<(i128, i128, usize)>,
    /// Whether the tag is signed.
    pub signed: bool,
}

/// A structure.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Struct {
    /// Least alignment in bits, as asked for by `align(n)`.
    pub align: u32,
    /// The fields in order.
    pub fields: Vec<(String, Type)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Type {
    /// An integer.
    Int(Int),
    /// A floating-point number.
    Float(Float),
    /// An enumeration over an integer.
    Enum(Int, Vec<Label>),
    /// Text up to a zero byte.
    Text,
    /// A structure.
    Struct(Struct),
    /// So many elements.
    Array(Box<Type>, u64),
    /// As many elements as an earlier integer says.
    Sequence(Box<Type>, Reference),
    /// A choice.
    Variant(Variant),
}

impl Type {
    /// The alignment in bits of its first bit.
    pub fn align(&self) -> u32 {
        match self {
            Type::Int(int) | Type::Enum(int, _) => int.align,
            Type::Float(float) => float.align,
            Type::Text => 8,
            Type::Struct(body) => {
                body.fields.iter().map(|(_, of)| of.align()).max().unwrap_or(1).max(body.align).max(1)
            }
            Type::Array(of, _) | Type::Sequence(of, _) => of.align(),
            // Its options align themselves.
            Type::Variant(_) => 1,
        }
    }

    /// Bytes, one behind the other when in an array or sequence.
    pub(crate) fn is_byte(&self) -> bool {
        matches!(self, Type::Int(int) if int.bits == 8 && int.align <= 8)
    }

    /// The integer of an array or sequence of characters.
    pub(crate) fn is_byte_text(&self) -> bool {
        matches!(self, Type::Int(int) if int.text && int.bits == 8 && int.align == 8)
    }
}

/// The name that people see: LTTng puts an underscore before every field's own name.
pub fn shown(name: &str) -> &str {
    name.strip_prefix('_').unwrap_or(name)
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clock {
    /// Its name, `monotonic` with LTTng.
    pub name: String,
    /// Identity: equal clocks of several traces count the same time (LTTng: the boot).
    pub uuid: Option<String>,
    /// Ticks a second.
    pub frequency_hz: u64,
    /// Seconds from the Epoch to the clock's zero.
    pub offset_s: i64,
    /// Further ticks from the Epoch to the clock's zero.
    pub offset_ticks: i64,
}

impl Clock {
    /// When it was zero, by the time of day: nanoseconds since the Epoch.
    pub fn zero_ns(&self) -> i128 {
        let ticks = i128::from(self.offset_ticks) * 1_000_000_000 / i128::from(self.frequency_hz.max(1));
        i128::from(self.offset_s) * 1_000_000_000 + ticks
    }
}

/// A value of the trace's environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EnvValue {
    Number(i128),
    Text(String),
}

#[derive(Debug, Clone)]
pub struct EventClass {
    /// Number in its stream class.
    pub id: u64,
    /// Its name, `provider:event` with LTTng.
    pub name: String,
    pub context: Option<Type>,
    /// The payload.
    pub fields: Option<Type>,
    pub(super) stream_id: Option<u64>,
    pub(super) at: usize,
}

#[derive(Debug, Clone)]
pub struct StreamClass {
    pub id: u64,
    /// Content after the packet header.
    pub packet_context: Option<Type>,
    /// Begin of every event.
    pub event_header: Option<Type>,
    pub event_context: Option<Type>,
    /// Its events by number.
    pub events: Vec<EventClass>,
}

/// All that the metadata says.
#[derive(Debug, Clone)]
pub struct Metadata {
    /// Byte order of the trace.
    pub order: Order,
    /// Identity of the trace, repeated in every packet.
    pub uuid: Option<[u8; 16]>,
    /// Begin of every packet.
    pub packet_header: Option<Type>,
    /// Environment.
    pub env: BTreeMap<String, EnvValue>,
    pub clocks: Vec<Clock>,
    /// Classes of streams.
    pub streams: Vec<StreamClass>,
    /// Number of values to which sequences and variants refer.
    pub saved: u32,
}

impl Metadata {
    /// A text of the environment.
    pub(crate) fn env_text(&self, name: &str) -> Option<&str> {
        match self.env.get(name) {
            Some(EnvValue::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// A number of the environment.
    pub(crate) fn env_number(&self, name: &str) -> Option<i128> {
        match self.env.get(name) {
            Some(EnvValue::Number(number)) => Some(*number),
            _ => None,
        }
    }
}

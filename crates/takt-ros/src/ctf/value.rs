//! Values of any type, walked field by field: slower than a [plan](super::plan), complete, and
//! independent of it, so that tests can hold one against the other.

use std::fmt;

use super::cursor::{Cursor, Short};
use super::header::option;
use super::plan::Stop;
use super::tsdl::types::{Float, Int, Label, Order, Type, shown};

/// Elements of one list that are kept; those beyond are read over. A damaged length must not fill
/// the memory.
const MAX_ELEMENTS: usize = 1 << 16;

/// A value of a recorded event.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// An integer: its two's complement, whether it is signed, its size, and the base that it is
    /// shown in.
    Int {
        /// Sign-extended to 64 bits.
        bits: u64,
        /// Whether to read it as signed.
        signed: bool,
        /// Bits that it has in the trace.
        size: u32,
        /// 2, 8, 10 or 16.
        base: u8,
    },
    /// An enumeration's value, and its labels there.
    Enum(Box<Value>, Vec<String>),
    /// A floating-point number.
    Float(f64),
    Text(String),
    /// Fields with their names.
    Struct(Vec<(String, Value)>),
    /// Elements.
    List(Vec<Value>),
    /// The chosen option.
    Option(String, Box<Value>),
}

impl Value {
    /// A field of a structure.
    pub fn field(&self, name: &str) -> Option<&Value> {
        match self {
            Value::Struct(fields) => fields.iter().find(|(of, _)| of == name).map(|(_, value)| value),
            _ => None,
        }
    }

    /// An integer's (or enumeration's) bits, sign-extended.
    pub fn bits(&self) -> Option<u64> {
        match self {
            Value::Int { bits, .. } => Some(*bits),
            Value::Enum(value, _) => value.bits(),
            _ => None,
        }
    }

    pub fn text(&self) -> Option<&str> {
        match self {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }
}

/// Reads a value of type `of`; `saved` are the values that references mean.
pub fn read(of: &Type, cursor: &mut Cursor<'_>, saved: &mut [u64]) -> Result<Value, Stop> {
    Ok(match of {
        Type::Int(int) => integer(int, cursor, saved)?,
        Type::Enum(int, labels) => {
            let value = integer(int, cursor, saved)?;
            let names = names(labels, value.bits().unwrap_or(0), int.signed);
            Value::Enum(Box::new(value), names)
        }
        Type::Float(float) => Value::Float(real(float, cursor)?),
        Type::Text => {
            let (first, length) = cursor.text()?;
            Value::Text(String::from_utf8_lossy(cursor.slice(first, length)).into_owned())
        }
        Type::Struct(body) => {
            cursor.align(u64::from(of.align()));
            let mut fields = Vec::with_capacity(body.fields.len());
            for (name, of) in &body.fields {
                fields.push((shown(name).to_owned(), read(of, cursor, saved)?));
            }
            Value::Struct(fields)
        }
        Type::Array(of, count) => list(of, *count, cursor, saved)?,
        Type::Sequence(of, length) => {
            let count = saved.get(length.from as usize).copied().unwrap_or(0);
            list(of, count, cursor, saved)?
        }
        Type::Variant(variant) => {
            let of = option(variant, saved)?;
            let name = variant.options.iter().find(|(_, other)| std::ptr::eq(other, of));
            let name = name.map_or("", |(name, _)| shown(name)).to_owned();
            Value::Option(name, Box::new(read(of, cursor, saved)?))
        }
    })
}

/// Moves over a value of type `of`.
pub fn skip(of: &Type, cursor: &mut Cursor<'_>, saved: &mut [u64]) -> Result<(), Stop> {
    read(of, cursor, saved).map(drop)
}

fn integer(int: &Int, cursor: &mut Cursor<'_>, saved: &mut [u64]) -> Result<Value, Stop> {
    let bits = cursor.int(int)?;
    if let Some(slot) = int.save.and_then(|slot| saved.get_mut(slot as usize)) {
        *slot = bits;
    }
    Ok(Value::Int { bits, signed: int.signed, size: int.bits, base: int.base })
}

fn real(float: &Float, cursor: &mut Cursor<'_>) -> Result<f64, Short> {
    cursor.align(u64::from(float.align));
    let bits = cursor.bits(float.bits, float.order == Order::Big, false)?;
    Ok(if float.bits == 32 { f64::from(f32::from_bits(bits as u32)) } else { f64::from_bits(bits) })
}

fn names(labels: &[Label], bits: u64, signed: bool) -> Vec<String> {
    let value = if signed { i128::from(bits as i64) } else { i128::from(bits) };
    labels
        .iter()
        .filter(|label| (label.low..=label.high).contains(&value))
        .map(|label| label.name.clone())
        .collect()
}

fn list(of: &Type, count: u64, cursor: &mut Cursor<'_>, saved: &mut [u64]) -> Result<Value, Stop> {
    cursor.align(u64::from(of.align()));
    if of.is_byte_text() {
        let first = (cursor.at / 8) as usize;
        cursor.skip(count.checked_mul(8).ok_or(Short)?)?;
        let bytes = cursor.slice(first, count as usize);
        let length = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
        return Ok(Value::Text(String::from_utf8_lossy(&bytes[..length]).into_owned()));
    }
    let mut values = Vec::new();
    for _ in 0..count {
        let before = cursor.at;
        let value = read(of, cursor, saved)?;
        if values.len() < MAX_ELEMENTS {
            values.push(value);
        }
        // Elements of no size: the others are as empty.
        if cursor.at == before {
            break;
        }
    }
    Ok(Value::List(values))
}

/// As the text output of babeltrace2 has it.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Int { bits, signed, size, base } => {
                let shown = bits & (u64::MAX >> (64 - size.clamp(&1, &64)));
                match base {
                    2 => write!(f, "0b{shown:0width$b}", width = *size as usize),
                    8 => write!(f, "0{shown:o}"),
                    16 => write!(f, "0x{shown:X}"),
                    _ if *signed => write!(f, "{}", *bits as i64),
                    _ => write!(f, "{bits}"),
                }
            }
            Value::Enum(value, names) => {
                f.write_str("( ")?;
                match names.as_slice() {
                    [] => f.write_str("<unknown>")?,
                    [name] => write!(f, "\"{name}\"")?,
                    names => {
                        let names: Vec<_> = names.iter().map(|name| format!("\"{name}\"")).collect();
                        write!(f, "{{ {} }}", names.join(", "))?;
                    }
                }
                write!(f, " : container = {value} )")
            }
            Value::Float(value) => f.write_str(&six_digits(*value)),
            Value::Text(text) => write!(f, "\"{}\"", escaped(text)),
            Value::Struct(fields) if fields.is_empty() => f.write_str("{ }"),
            Value::Struct(fields) => {
                let fields: Vec<_> = fields.iter().map(|(name, value)| format!("{name} = {value}")).collect();
                write!(f, "{{ {} }}", fields.join(", "))
            }
            Value::List(values) => {
                f.write_str("[")?;
                for (at, value) in values.iter().enumerate() {
                    write!(f, "{}[{at}] = {value}", if at == 0 { " " } else { ", " })?;
                }
                f.write_str(" ]")
            }
            Value::Option(name, value) => write!(f, "{{ {name} = {value} }}"),
        }
    }
}

/// `%g` of C: six digits, without zeros at the end.
fn six_digits(value: f64) -> String {
    if !value.is_finite() {
        return if value.is_nan() {
            "nan".into()
        } else if value > 0.0 {
            "inf".into()
        } else {
            "-inf".into()
        };
    }
    let trim = |digits: &str| match digits.contains('.') {
        true => digits.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => digits.to_owned(),
    };
    let scientific = format!("{value:.5e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..6).contains(&exponent) {
        trim(&format!("{value:.*}", usize::try_from(5 - exponent).unwrap_or(0)))
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{}e{sign}{:02}", trim(digits), exponent.abs())
    }
}

fn escaped(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\n' => shown.push_str("\\n"),
            '\t' => shown.push_str("\\t"),
            '"' | '\\' => {
                shown.push('\\');
                shown.push(letter);
            }
            _ => shown.push(letter),
        }
    }
    shown
}

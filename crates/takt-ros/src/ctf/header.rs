//! Headers of events: which event, and when.

use super::cursor::{Cursor, Short};
use super::plan::{Stop, choose};
use super::tsdl::types::{Order, Type, Variant, shown};
use super::value;

/// Reading plan for the header of a stream's events.
#[derive(Debug, Clone)]
pub enum HeaderPlan {
    /// One of LTTng's two: a short number and a short time stamp, or both in full.
    Lttng(LttngHeader),
    /// Any other: walked field by field.
    Other(Type),
}

/// LTTng's header; places are bits from its beginning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LttngHeader {
    align: u64,
    id_bits: u32,
    /// The short number that means that both stand in full behind it.
    extended: u64,
    stamp_at: u32,
    stamp_bits: u32,
    end: u64,
    full_id_at: u64,
    full_id_bits: u32,
    full_stamp_at: u64,
    full_stamp_bits: u32,
    full_end: u64,
}

impl HeaderPlan {
    /// The way to read headers of type `of`.
    pub fn new(of: &Type) -> Self {
        lttng(of).map_or_else(|| HeaderPlan::Other(of.clone()), HeaderPlan::Lttng)
    }

    /// Reads a header: the event's number; `clock` goes on to its time. `saved` are the values that
    /// references mean.
    #[inline]
    pub fn read(&self, cursor: &mut Cursor<'_>, clock: &mut u64, saved: &mut [u64]) -> Result<u64, Stop> {
        match self {
            HeaderPlan::Lttng(plan) => Ok(plan.read(cursor, clock)?),
            HeaderPlan::Other(of) => {
                let mut id = 0;
                walk(of, "", cursor, saved, &mut id, clock)?;
                Ok(id)
            }
        }
    }
}

impl LttngHeader {
    #[inline]
    fn read(&self, cursor: &mut Cursor<'_>, clock: &mut u64) -> Result<u64, Short> {
        cursor.align(self.align);
        let first = (cursor.at / 8) as usize;
        let rest = cursor.data.get(first..).ok_or(Short)?;
        let word = match rest.first_chunk() {
            Some(eight) => u64::from_le_bytes(*eight),
            None => {
                let mut eight = [0; 8];
                eight[..rest.len()].copy_from_slice(rest);
                u64::from_le_bytes(eight)
            }
        };
        let id = word & mask(self.id_bits);
        if id != self.extended {
            let stamp = (word >> self.stamp_at) & mask(self.stamp_bits);
            cursor.skip(self.end)?;
            *clock = tick(*clock, stamp, self.stamp_bits);
            return Ok(id);
        }
        let start = cursor.at;
        cursor.skip(self.full_end)?;
        let mut inner = Cursor { at: start + self.full_id_at, ..*cursor };
        let id = inner.bits(self.full_id_bits, false, false)?;
        inner.at = start + self.full_stamp_at;
        let stamp = inner.bits(self.full_stamp_bits, false, false)?;
        *clock = tick(*clock, stamp, self.full_stamp_bits);
        Ok(id)
    }
}

#[inline]
fn mask(bits: u32) -> u64 {
    u64::MAX >> (64 - bits.clamp(1, 64))
}

/// The clock after a stamp of so many of its low bits: what stands above is as before, or one more
/// where the stamp wrapped around. Tracers make sure (by a stamp in full) that it never wraps
/// twice.
#[inline]
pub fn tick(clock: u64, stamp: u64, bits: u32) -> u64 {
    if bits >= 64 {
        return stamp;
    }
    let mask = mask(bits);
    let next = (clock & !mask) | (stamp & mask);
    if next < clock { next.wrapping_add(mask + 1) } else { next }
}

/// Whether a header of this type can hold a time stamp.
pub fn has_clock(of: &Type) -> bool {
    match of {
        Type::Int(int) | Type::Enum(int, _) => int.clock,
        Type::Struct(body) => body.fields.iter().any(|(_, of)| has_clock(of)),
        Type::Variant(body) => !body.options.is_empty() && body.options.iter().all(|(_, of)| has_clock(of)),
        Type::Array(..) | Type::Sequence(..) | Type::Float(_) | Type::Text => false,
    }
}

fn walk(
    of: &Type,
    name: &str,
    cursor: &mut Cursor<'_>,
    saved: &mut [u64],
    id: &mut u64,
    clock: &mut u64,
) -> Result<(), Stop> {
    match of {
        Type::Int(int) | Type::Enum(int, _) => {
            let value = cursor.int(int)?;
            if let Some(slot) = int.save.and_then(|slot| saved.get_mut(slot as usize)) {
                *slot = value;
            }
            if int.clock {
                *clock = tick(*clock, value, int.bits);
            } else if name == "id" {
                *id = value;
            }
            Ok(())
        }
        Type::Struct(body) => {
            cursor.align(u64::from(of.align()));
            body.fields.iter().try_for_each(|(name, of)| walk(of, shown(name), cursor, saved, id, clock))
        }
        Type::Variant(variant) => {
            let of = option(variant, saved)?;
            walk(of, name, cursor, saved, id, clock)
        }
        other => value::skip(other, cursor, saved),
    }
}

/// The type that a variant's tag chooses.
pub fn option<'t>(variant: &'t Variant, saved: &[u64]) -> Result<&'t Type, Stop> {
    let tag = variant.tag.as_ref().and_then(|tag| saved.get(tag.from as usize)).copied().unwrap_or(0);
    choose(&variant.cases, tag, variant.signed)
        .and_then(|option| variant.options.get(option))
        .map(|(_, of)| of)
        .ok_or(Stop::Tag(tag))
}

/// Recognises LTTng's headers, least significant byte first, by their structure.
fn lttng(of: &Type) -> Option<LttngHeader> {
    let Type::Struct(body) = of else { return None };
    let [(id_name, Type::Enum(id, _)), (_, Type::Variant(variant))] = body.fields.as_slice() else {
        return None;
    };
    let align = of.align();
    if id_name != "id" || id.signed || id.order != Order::Little || align < 8 || id.bits > 16 || id.clock {
        return None;
    }
    if variant.tag.as_ref()?.path != "id" || variant.cases.len() != 2 || variant.options.len() != 2 {
        return None;
    }
    let mut short = None;
    let mut full = None;
    for (low, high, option) in &variant.cases {
        let Type::Struct(fields) = &variant.options.get(*option)?.1 else { return None };
        if fields.align.max(Type::Struct(fields.clone()).align()) > align {
            return None;
        }
        let mut at = id.bits.next_multiple_of(Type::Struct(fields.clone()).align());
        let mut places = Vec::new();
        for (name, of) in &fields.fields {
            let Type::Int(int) = of else { return None };
            if int.order != Order::Little || int.signed || int.save.is_some() {
                return None;
            }
            at = at.next_multiple_of(int.align);
            places.push((name.as_str(), at, int.bits, int.clock));
            at += int.bits;
        }
        match places.as_slice() {
            [("timestamp", stamp_at, stamp_bits, true)] if stamp_at + stamp_bits <= 64 && *low == 0 => {
                short = Some((*stamp_at, *stamp_bits, at, *high));
            }
            [("id", id_at, id_bits, false), ("timestamp", stamp_at, stamp_bits, true)] if low == high => {
                full = Some((*id_at, *id_bits, *stamp_at, *stamp_bits, at, *low));
            }
            _ => return None,
        }
    }
    let (stamp_at, stamp_bits, end, last_short) = short?;
    let (full_id_at, full_id_bits, full_stamp_at, full_stamp_bits, full_end, extended) = full?;
    if last_short + 1 != extended || extended != (1_i128 << id.bits) - 1 {
        return None;
    }
    Some(LttngHeader {
        align: u64::from(align),
        id_bits: id.bits,
        extended: u64::try_from(extended).ok()?,
        stamp_at,
        stamp_bits,
        end: u64::from(end),
        full_id_at: u64::from(full_id_at),
        full_id_bits,
        full_stamp_at: u64::from(full_stamp_at),
        full_stamp_bits,
        full_end: u64::from(full_end),
    })
}

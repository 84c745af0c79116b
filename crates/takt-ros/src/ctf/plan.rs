//! Types as a flat list of steps, which the decoder runs for every event.
//!
//! A step moves over as many bytes as have a fixed layout, with one check of the bounds, and copies the few values that are
//! asked for (named fields, and the lengths and tags that later fields depend on) into numbered slots. Nothing is
//! looked up by name, and nothing is allocated. Fields that nobody asks for cost an addition, or nothing.

use super::cursor::{Cursor, Short, extend};
use super::tsdl::types::{Int, Order, Type, shown};

/// How a value is copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Copy {
    U8,
    U16,
    U32,
    U64,
    /// Where a text of so many bytes stands.
    Bytes(u32),
}

/// A value copied out of a fixed layout.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Read {
    at: u32,
    slot: u32,
    copy: Copy,
    big: bool,
    signed: bool,
}

/// A step.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    /// So many bytes, of which some are copied.
    Block { bytes: u32, reads: Vec<Read> },
    /// To the next multiple of so many bits.
    Align(u32),
    /// An integer that is no whole bytes.
    Bits { int: Int, slots: Vec<u32> },
    /// A text; its place is kept.
    Text { slot: Option<u32> },
    /// So many bits, as often as a slot says; where they begin is kept (`slot`, as a text of so many bytes).
    Run { bits: u64, times: u32, slot: Option<u32> },
    /// Steps, as often as a number or a slot says.
    Repeat { times: Times, steps: Vec<Step> },
    /// The steps that the tag in a slot chooses.
    Switch { tag: u32, signed: bool, cases: Vec<(i128, i128, usize)>, options: Vec<Vec<Step>> },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Times {
    Fixed(u64),
    Slot(u32),
}

/// Why a plan could not be run to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// The content ends before.
    Short,
    /// A tag chooses nothing.
    Tag(u64),
}

impl From<Short> for Stop {
    fn from(_: Short) -> Self {
        Stop::Short
    }
}

/// What to do with an event's body.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    steps: Vec<Step>,
}

/// A place and a length in the packet, as a slot holds them.
#[inline]
pub fn place(slot: u64) -> (usize, usize) {
    ((slot >> 32) as usize, (slot & 0xffff_ffff) as usize)
}

#[inline]
fn packed(first: usize, length: usize) -> u64 {
    (first as u64) << 32 | length as u64 & 0xffff_ffff
}

impl Plan {
    /// Runs the plan from `cursor` on; `slots` are those the plan was built with.
    #[inline]
    pub fn run(&self, cursor: &mut Cursor<'_>, slots: &mut [u64]) -> Result<(), Stop> {
        run(&self.steps, cursor, slots)
    }
}

fn run(steps: &[Step], cursor: &mut Cursor<'_>, slots: &mut [u64]) -> Result<(), Stop> {
    for step in steps {
        match step {
            Step::Block { bytes, reads } => {
                let first = (cursor.at / 8) as usize;
                cursor.skip(u64::from(*bytes) * 8)?;
                let block = cursor.data.get(first..first + *bytes as usize).ok_or(Short)?;
                for read in reads {
                    let value = copy(read, block, first).ok_or(Short)?;
                    *slots.get_mut(read.slot as usize).ok_or(Short)? = value;
                }
            }
            Step::Align(bits) => cursor.align(u64::from(*bits)),
            Step::Bits { int, slots: wanted } => {
                let value = cursor.int(int)?;
                for slot in wanted {
                    *slots.get_mut(*slot as usize).ok_or(Short)? = value;
                }
            }
            Step::Text { slot } => {
                let (first, length) = cursor.text()?;
                if let Some(slot) = slot.and_then(|slot| slots.get_mut(slot as usize)) {
                    *slot = packed(first, length);
                }
            }
            Step::Run { bits, times, slot } => {
                let times = slots.get(*times as usize).copied().unwrap_or(0);
                let first = (cursor.at / 8) as usize;
                cursor.skip(bits.checked_mul(times).ok_or(Short)?)?;
                if let Some(slot) = slot.and_then(|slot| slots.get_mut(slot as usize)) {
                    *slot = packed(first, times as usize);
                }
            }
            Step::Repeat { times, steps } => {
                let times = match times {
                    Times::Fixed(times) => *times,
                    Times::Slot(slot) => slots.get(*slot as usize).copied().unwrap_or(0),
                };
                for _ in 0..times {
                    let before = cursor.at;
                    run(steps, cursor, slots)?;
                    // Elements of no size: the others are as empty.
                    if cursor.at == before {
                        break;
                    }
                }
            }
            Step::Switch { tag, signed, cases, options } => {
                let tag = slots.get(*tag as usize).copied().unwrap_or(0);
                let option = choose(cases, tag, *signed).ok_or(Stop::Tag(tag))?;
                run(options.get(option).ok_or(Stop::Tag(tag))?, cursor, slots)?;
            }
        }
    }
    Ok(())
}

/// The option that a tag chooses.
pub fn choose(cases: &[(i128, i128, usize)], tag: u64, signed: bool) -> Option<usize> {
    let value = if signed { i128::from(tag as i64) } else { i128::from(tag) };
    cases.iter().find(|(low, high, _)| (*low..=*high).contains(&value)).map(|(_, _, option)| *option)
}

#[inline]
fn copy(read: &Read, block: &[u8], first: usize) -> Option<u64> {
    let rest = block.get(read.at as usize..)?;
    let (value, bits) = match read.copy {
        Copy::U8 => (u64::from(*rest.first()?), 8),
        Copy::U16 => {
            let bytes = *rest.first_chunk()?;
            (u64::from(if read.big { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) }), 16)
        }
        Copy::U32 => {
            let bytes = *rest.first_chunk()?;
            (u64::from(if read.big { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }), 32)
        }
        Copy::U64 => {
            let bytes = *rest.first_chunk()?;
            return Some(if read.big { u64::from_be_bytes(bytes) } else { u64::from_le_bytes(bytes) });
        }
        Copy::Bytes(length) => return Some(packed(first + read.at as usize, length as usize)),
    };
    Some(if read.signed { extend(value, bits, true) } else { value })
}

/// Builds a plan from the types that make up an event's body.
#[derive(Debug)]
pub struct Builder {
    steps: Vec<Step>,
    /// The block under way.
    block: Option<(u32, Vec<Read>)>,
    /// What the beginning of the block (or the place here, without a block) is known to be a multiple of, in bits.
    known: u32,
    /// The slot where the values begin that lengths and tags refer to.
    saved_at: u32,
}

/// Fixed layouts up to this size are copied in one step.
const MOST_BLOCK: u64 = 1 << 20;

impl Builder {
    /// A plan that begins anywhere; values that lengths and tags refer to are kept from slot `saved_at` on.
    pub fn new(saved_at: u32) -> Self {
        Self { steps: Vec::new(), block: None, known: 1, saved_at }
    }

    /// Adds a root type; `wanted` tells in which slots a field of its first level is to be kept.
    pub fn root(&mut self, of: &Type, wanted: &dyn Fn(&str) -> Option<u32>) {
        self.align(of.align());
        match of {
            Type::Struct(body) => {
                for (name, of) in &body.fields {
                    self.add(of, wanted(shown(name)));
                }
            }
            other => self.add(other, None),
        }
    }

    /// The finished plan.
    pub fn finish(mut self) -> Plan {
        self.close();
        Plan { steps: self.steps }
    }

    fn close(&mut self) {
        if let Some((bytes, reads)) = self.block.take() {
            // What the place behind the block is a multiple of.
            let behind = if bytes == 0 { u32::MAX } else { (bytes & bytes.wrapping_neg()).saturating_mul(8) };
            self.known = self.known.min(behind);
            if bytes > 0 {
                self.steps.push(Step::Block { bytes, reads });
            }
        }
    }

    fn align(&mut self, bits: u32) {
        if bits <= 1 {
            return;
        }
        if bits <= self.known {
            if let Some((bytes, _)) = &mut self.block {
                *bytes = bytes.next_multiple_of((bits / 8).max(1));
            }
            return;
        }
        self.close();
        if bits > self.known {
            self.steps.push(Step::Align(bits));
            self.known = bits;
        }
    }

    /// Adds `length` bytes of fixed layout; where in the block they begin.
    fn extend(&mut self, length: u64) -> u32 {
        if self.block.as_ref().is_some_and(|(bytes, _)| u64::from(*bytes) + length > MOST_BLOCK) {
            self.close();
        }
        let (bytes, _) = self.block.get_or_insert_with(|| (0, Vec::new()));
        let at = *bytes;
        *bytes = bytes.saturating_add(u32::try_from(length).unwrap_or(u32::MAX));
        at
    }

    fn read(&mut self, read: Read) {
        if let Some((_, reads)) = &mut self.block {
            reads.push(read);
        }
    }

    /// Nothing is known about the place here any more.
    fn lost(&mut self) {
        self.close();
        self.known = 1;
    }

    fn add(&mut self, of: &Type, slot: Option<u32>) {
        match of {
            Type::Int(int) | Type::Enum(int, _) => self.int(int, slot),
            Type::Float(float) => {
                let int = Int::plain(float.bits, float.align, float.order);
                self.int(&int, slot);
            }
            Type::Text => {
                self.align(8);
                self.close();
                self.steps.push(Step::Text { slot });
                self.known = 8;
            }
            Type::Struct(body) => {
                self.align(of.align());
                for (_, of) in &body.fields {
                    self.add(of, None);
                }
            }
            Type::Array(of, count) => self.array(of, *count, slot),
            Type::Sequence(of, length) => {
                let times = self.saved_at + length.from;
                self.align(of.align());
                if let Some(bits) = run_bits(of) {
                    self.close();
                    let slot = slot.filter(|_| of.is_byte_text());
                    self.steps.push(Step::Run { bits, times, slot });
                    self.known = if bits % 8 == 0 { 8.min(self.known) } else { 1 };
                } else {
                    self.repeat(of, Times::Slot(times));
                }
            }
            Type::Variant(variant) => {
                self.lost();
                let tag = self.saved_at + variant.tag.as_ref().map_or(0, |tag| tag.from);
                let options = variant
                    .options
                    .iter()
                    .map(|(_, of)| {
                        let mut inner = Builder::new(self.saved_at);
                        inner.add(of, slot);
                        inner.finish().steps
                    })
                    .collect();
                self.steps.push(Step::Switch {
                    tag,
                    signed: variant.signed,
                    cases: variant.cases.clone(),
                    options,
                });
            }
        }
    }

    fn array(&mut self, of: &Type, count: u64, slot: Option<u32>) {
        self.align(of.align());
        let fixed = run_bits(of).and_then(|bits| bits.checked_mul(count));
        match fixed {
            Some(bits) if bits % 8 == 0 && bits / 8 <= MOST_BLOCK && self.known >= 8 => {
                let at = self.extend(bits / 8);
                if let (Some(slot), true) = (slot, of.is_byte_text()) {
                    let copy = Copy::Bytes(u32::try_from(bits / 8).unwrap_or(u32::MAX));
                    self.read(Read { at, slot, copy, big: false, signed: false });
                }
            }
            _ => self.repeat(of, Times::Fixed(count)),
        }
    }

    fn repeat(&mut self, of: &Type, times: Times) {
        self.lost();
        let mut inner = Builder::new(self.saved_at);
        inner.add(of, None);
        self.steps.push(Step::Repeat { times, steps: inner.finish().steps });
    }

    fn int(&mut self, int: &Int, slot: Option<u32>) {
        let saved = int.save.map(|number| self.saved_at + number);
        let big = int.order == Order::Big;
        let copy = match int.bits {
            8 => Some(Copy::U8),
            16 => Some(Copy::U16),
            32 => Some(Copy::U32),
            64 => Some(Copy::U64),
            _ => None,
        };
        self.align(int.align);
        match copy {
            Some(copy) if self.known >= 8 => {
                let at = self.extend(u64::from(int.bits / 8));
                for slot in [slot, saved].into_iter().flatten() {
                    self.read(Read { at, slot, copy, big, signed: int.signed });
                }
            }
            _ => {
                self.lost();
                let slots = [slot, saved].into_iter().flatten().collect();
                self.steps.push(Step::Bits { int: int.clone(), slots });
            }
        }
    }
}

/// The distance in bits between elements of an array of `of`, if it is the same everywhere and no element is referred to.
fn run_bits(of: &Type) -> Option<u64> {
    match of {
        Type::Int(int) | Type::Enum(int, _) => {
            (int.save.is_none() && int.bits % int.align == 0).then_some(u64::from(int.bits))
        }
        Type::Float(float) => (float.bits % float.align == 0).then_some(u64::from(float.bits)),
        Type::Array(of, count) => run_bits(of)?.checked_mul(*count),
        _ => None,
    }
}

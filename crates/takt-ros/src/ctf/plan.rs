//! Types as a flat list of steps, which the decoder runs for every event.
//!
//! A step moves over as many bytes as have a fixed layout, with one check of the bounds, and copies
//! the few values that are asked for (named fields, and the lengths and tags that later fields
//! depend on) into numbered slots. Nothing is looked up by name, and nothing is allocated. Fields
//! that nobody asks for cost an addition, or nothing.

use super::cursor::{Cursor, Short};
use super::tsdl::types::{Int, Order, Type, shown};

/// An integer of whole bytes, copied out of a fixed layout: eight bytes are loaded, and what is too
/// much is masked away.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Read {
    at: u32,
    slot: u32,
    /// The bits that it has.
    mask: u64,
    /// Its sign bit, if it has a sign.
    sign: u64,
    /// Most significant byte first: then so many bits of the eight bytes are too much.
    big: Option<u32>,
}

/// Bytes of fixed length in a fixed layout.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Span {
    at: u32,
    length: u32,
    slot: u32,
}

/// Bytes of fixed layout.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Block {
    bytes: u32,
    reads: Vec<Read>,
    spans: Vec<Span>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    /// So many bytes, of which some are copied.
    Block(Block),
    /// To the next multiple of so many bits.
    Align(u32),
    /// An integer that is no whole bytes.
    Bits { int: Int, slots: Vec<u32> },
    /// A text; its place is kept.
    Text { slot: Option<u32> },
    /// So many bits, as often as a slot says; where they begin is kept (`slot`, as a text of so
    /// many bytes).
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

/// Reason why a plan could not be completed.
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

/// Plan for reading an event's body.
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
            Step::Block(block) => {
                let first = (cursor.at / 8) as usize;
                cursor.skip(u64::from(block.bytes) * 8)?;
                for span in &block.spans {
                    let slot = slots.get_mut(span.slot as usize).ok_or(Short)?;
                    *slot = packed(first + span.at as usize, span.length as usize);
                }
                for read in &block.reads {
                    let value = load(read, cursor.data, first).ok_or(Short)?;
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

pub fn choose(cases: &[(i128, i128, usize)], tag: u64, signed: bool) -> Option<usize> {
    let value = if signed { i128::from(tag as i64) } else { i128::from(tag) };
    cases.iter().find(|(low, high, _)| (*low..=*high).contains(&value)).map(|(_, _, option)| *option)
}

#[inline]
fn load(read: &Read, data: &[u8], first: usize) -> Option<u64> {
    let rest = data.get(first + read.at as usize..)?;
    let word = match rest.first_chunk() {
        Some(eight) => *eight,
        None => last_bytes(rest),
    };
    let word = match read.big {
        None => u64::from_le_bytes(word),
        Some(behind) => u64::from_be_bytes(word) >> behind,
    };
    let value = word & read.mask;
    // Repeats the sign bit above; does nothing without one.
    Some((value ^ read.sign).wrapping_sub(read.sign))
}

/// Fewer than eight bytes, filled up.
#[cold]
fn last_bytes(rest: &[u8]) -> [u8; 8] {
    let mut eight = [0; 8];
    let length = rest.len().min(8);
    eight[..length].copy_from_slice(&rest[..length]);
    eight
}

/// Builds a plan from the types that make up an event's body.
#[derive(Debug)]
pub struct Builder {
    steps: Vec<Step>,
    /// The block under way.
    block: Option<Block>,
    /// Known factor of the begin of the block (or of the place here, without a block), in bits.
    known: u32,
    /// Alignment required by the next part of the block, in bits. Trailing padding is not content:
    /// a packet may end before it.
    pending: u32,
    /// The slot where the values begin that lengths and tags refer to.
    saved_at: u32,
}

/// Fixed layouts up to this size are copied in one step.
const MAX_BLOCK: u64 = 1 << 20;

impl Builder {
    /// A plan that begins anywhere; values that lengths and tags refer to are kept from slot
    /// `saved_at` on.
    pub fn new(saved_at: u32) -> Self {
        Self { steps: Vec::new(), block: None, known: 1, pending: 1, saved_at }
    }

    /// Adds a root type; `wanted` shows in which slots a field of its first level is to be kept.
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

    pub fn finish(mut self) -> Plan {
        self.close();
        Plan { steps: self.steps }
    }

    fn close(&mut self) {
        if let Some(block) = self.block.take().filter(|block| block.bytes > 0) {
            // Alignment of the position after the block.
            let behind = (block.bytes & block.bytes.wrapping_neg()).saturating_mul(8);
            self.known = self.known.min(behind);
            self.steps.push(Step::Block(block));
        }
        let pending = std::mem::replace(&mut self.pending, 1);
        if pending > self.known {
            self.steps.push(Step::Align(pending));
            self.known = pending;
        }
    }

    fn align(&mut self, bits: u32) {
        if bits <= 1 {
            return;
        }
        if bits <= self.known {
            if self.block.is_some() {
                self.pending = self.pending.max(bits);
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
        if self.block.as_ref().is_some_and(|block| u64::from(block.bytes) + length > MAX_BLOCK) {
            self.close();
        }
        let align = std::mem::replace(&mut self.pending, 1) / 8;
        let block = self.block.get_or_insert_default();
        let at = block.bytes.next_multiple_of(align.max(1));
        block.bytes = at.saturating_add(u32::try_from(length).unwrap_or(u32::MAX));
        at
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
                    let slot = slot.filter(|_| of.is_byte() && self.known >= 8);
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
            Some(bits) if bits % 8 == 0 && bits / 8 <= MAX_BLOCK && self.known >= 8 => {
                let at = self.extend(bits / 8);
                if let (Some(slot), true, Some(block)) = (slot, of.is_byte(), &mut self.block) {
                    let length = u32::try_from(bits / 8).unwrap_or(u32::MAX);
                    block.spans.push(Span { at, length, slot });
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
        self.align(int.align);
        match int.bits {
            8 | 16 | 32 | 64 if self.known >= 8 => {
                let at = self.extend(u64::from(int.bits / 8));
                let mask = u64::MAX >> (64 - int.bits);
                let sign = if int.signed { mask ^ mask >> 1 } else { 0 };
                let big = (int.order == Order::Big).then_some(64 - int.bits);
                for slot in [slot, saved].into_iter().flatten() {
                    if let Some(block) = &mut self.block {
                        block.reads.push(Read { at, slot, mask, sign, big });
                    }
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

/// The distance in bits between elements of an array of `of`, if it is the same everywhere and no
/// element is referred to.
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

//! The frames of a cycle: what goes out together, and what came back of it.
//!
//! Process data, the status of all devices and the status of one share a frame as long as they fit.
//! The frames of a cycle have a source address of their own, which distinguishes them from the
//! master's, and say which cycle they belong to: its low 8 bits are every datagram's index, and the
//! low 32 are the data of a last datagram without effect (NOP, ETG.1000.4 section 5.4), which
//! devices pass on as it is. Indices alone would take an answer that is 256 cycles late for a new
//! one.

use std::ops::Range;

use super::config::ProcessCommands;
use super::flights::{Arrival, Flights};
use super::port::ImagePlace;
use crate::frame::{self, DATAGRAM_OVERHEAD, FrameBuilder, MAX_DATA, command};

/// Source address of cyclic frames. The master's own have `10:10:10:10:10:10`.
const SOURCE: [u8; 6] = [0x10, 0x10, 0x10, 0x10, 0x10, 0x20];

/// AL status of a device, and its status code at 0x0134.
const AL_STATUS: u16 = 0x0130;
/// System time of a distributed clock.
const DC_SYSTEM_TIME: u16 = 0x0910;

/// The datagram with the cycle's number.
const MARK: usize = DATAGRAM_OVERHEAD + size_of::<u32>();
/// Most process data of a frame.
const MAX_PIECE: usize = MAX_DATA - MARK;

/// Adds the cycle's number, for which [`MARK`] bytes are left.
fn marked(frame: &mut FrameBuilder, cycle: u64) -> &[u8] {
    if let Some(data) = frame.push(command::NOP, cycle as u8, 0, size_of::<u32>()) {
        data.copy_from_slice(&(cycle as u32).to_le_bytes());
    }
    frame.finish()
}

/// Whether a frame is one of a cycle that has come back.
pub(super) fn is_cyclic(frame: &[u8]) -> bool {
    frame.get(7..12) == Some(&SOURCE[1..]) && frame.get(6).is_some_and(|byte| byte & !2 == SOURCE[0])
}

/// A piece of the process image: one datagram.
pub(super) struct Piece {
    pub command: u8,
    pub range: Range<usize>,
    /// Working counter when all devices take part: reading 1; writing 1, and 2 in a datagram that
    /// reads, too.
    pub expected: u16,
    /// Working counter of the cycle waited for.
    pub answer: Option<u16>,
    /// The newest cycle that was answered, and its working counter.
    pub newest: u64,
    /// The newest cycle that had been sent when that answer came.
    pub advanced: u64,
    pub counter: u16,
    /// An answer that was taken since the cycle was sent had another working counter than expected:
    /// a newer one that is right does not undo that.
    pub wrong: bool,
    /// Its place among the cycle's frames.
    frame: u8,
}

/// Cuts the image of `places` into datagrams. Inputs lie before outputs.
pub(super) fn cut(places: &[ImagePlace], image_bytes: usize, commands: ProcessCommands) -> Vec<Piece> {
    let inputs_end = places.iter().map(|place| place.inputs.end).max().unwrap_or(0).min(image_bytes);
    let parts: &[(u8, Range<usize>)] = match commands {
        ProcessCommands::Lrw => &[(command::LRW, 0..image_bytes)],
        ProcessCommands::LrdLwr => &[(command::LRD, 0..inputs_end), (command::LWR, inputs_end..image_bytes)],
    };
    let mut pieces = Vec::new();
    for (command, part) in parts {
        for start in part.clone().step_by(MAX_PIECE) {
            let range = start..(start + MAX_PIECE).min(part.end);
            let expected = places.iter().map(|place| counts(*command, place, &range)).sum();
            pieces.push(Piece {
                command: *command,
                range,
                expected,
                answer: None,
                newest: 0,
                advanced: 0,
                counter: 0,
                wrong: false,
                frame: 0,
            });
        }
    }
    pieces
}

/// Increment of a datagram's working counter by a device.
fn counts(command: u8, place: &ImagePlace, range: &Range<usize>) -> u16 {
    let touches = |part: &Range<usize>| !part.is_empty() && part.start < range.end && range.start < part.end;
    let (reads, writes) = (u16::from(touches(&place.inputs)), u16::from(touches(&place.outputs)));
    match command {
        command::LRD => reads,
        command::LWR => writes,
        _ => reads + 2 * writes,
    }
}

/// Kind of returned frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Came {
    /// A frame of the cycle waited for.
    Current,
    /// A frame of process data, so many cycles after its own.
    Late(u64),
    /// For a second time.
    Twice,
    /// A frame of process data that counted as lost, so many cycles after its own.
    Found(u64),
    /// The same, of a cycle that is forgotten.
    AfterLost,
    /// Status of an earlier cycle: nobody misses it.
    OldStatus,
    /// Not as it was sent.
    Broken,
}

/// Reading of the reference clock for a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reference {
    /// When the frame was sent.
    pub sent_ns: u64,
    /// The reference clock's time as it passed.
    pub time_ns: u64,
}

/// The cycle's frames.
pub(super) struct Cyclic {
    pub pieces: Vec<Piece>,
    frame: FrameBuilder,
    /// Cycles sent.
    pub cycle: u64,
    flights: Flights,
    /// Station address of the reference clock, if the cycle carries its time.
    pub reference: Option<u16>,
    /// Its last reading, until it is taken.
    pub shown: Option<Reference>,
    /// Frames under way.
    pub under_way: usize,
    /// Those of them with process data; the others are not waited for.
    pub waited_for: usize,
    /// Status of all devices: how many answered, and their states ORed.
    pub status: Option<(u16, u8)>,
    status_cycle: u64,
    /// Status of the device asked: whether it answered, its state, its status code.
    pub device: Option<(bool, u8, u16)>,
}

impl Cyclic {
    pub fn new(pieces: Vec<Piece>) -> Self {
        let frame = FrameBuilder::new(SOURCE);
        Self {
            pieces,
            frame,
            cycle: 0,
            flights: Flights::default(),
            reference: None,
            shown: None,
            under_way: 0,
            waited_for: 0,
            status: None,
            status_cycle: 0,
            device: None,
        }
    }

    /// Working counter over all datagrams of process data when all devices take part.
    pub fn expected(&self) -> u16 {
        self.pieces.iter().map(|piece| piece.expected).sum()
    }

    /// Datagrams of process data that have not come back.
    pub fn missing(&self) -> u32 {
        self.pieces.iter().filter(|piece| piece.answer.is_none()).count() as u32
    }

    /// Frames with process data in a cycle.
    pub fn frames(&self) -> usize {
        self.pieces.iter().map(|piece| usize::from(piece.frame) + 1).max().unwrap_or(0)
    }

    /// Cycles by which the oldest inputs in use are behind those of the cycle waited for.
    pub fn behind(&self) -> u64 {
        let newest = self.pieces.iter().map(|piece| piece.newest).min();
        newest.map_or(0, |newest| self.cycle.saturating_sub(newest))
    }

    /// Cycles in a row in which no newer inputs came: of the datagram that brought none for
    /// longest.
    pub fn silent(&self) -> u64 {
        let advanced = self.pieces.iter().map(|piece| piece.advanced).min();
        advanced.map_or(0, |advanced| self.cycle.saturating_sub(advanced))
    }

    /// Working counter of the newest answers.
    pub(crate) fn newest_counter(&self) -> u16 {
        self.pieces.iter().fold(0, |sum, piece| sum.saturating_add(piece.counter))
    }

    /// Whether an answer that came since the cycle was sent has another working counter than
    /// expected.
    pub fn counter_wrong(&self) -> bool {
        self.pieces.iter().any(|piece| piece.wrong)
    }

    /// Whether the newest answers have.
    pub(crate) fn stands_wrong(&self) -> bool {
        self.pieces.iter().any(|piece| piece.newest > 0 && piece.counter != piece.expected)
    }

    /// When the frames of the cycle `ago` cycles before this one were sent.
    pub fn sent_ns(&self, ago: u64) -> Option<u64> {
        self.flights.sent_ns(self.cycle.checked_sub(ago)?)
    }

    /// Nothing that was sent before this cycle counts any more.
    pub fn settle(&mut self) {
        self.flights.settle(self.cycle);
    }

    /// Makes the next cycle's frames out of `image` and hands them to `send`. `all` asks for the
    /// status of all devices, `one` for that of a device by its station address. Returns how many
    /// frames are given up as lost by now.
    pub fn launch(
        &mut self,
        now_ns: u64,
        image: &[u8],
        all: bool,
        one: Option<u16>,
        mut send: impl FnMut(&[u8]),
    ) -> u32 {
        self.cycle += 1;
        (self.status, self.device, self.under_way, self.waited_for) = (None, None, 0, 0);
        let Self { frame, cycle, .. } = self;
        let (cycle, index) = (*cycle, *cycle as u8);
        frame.clear();
        let mut with_data = false;
        for piece in &mut self.pieces {
            (piece.answer, piece.wrong) = (None, false);
            let (start, length) = (piece.range.start, piece.range.len());
            if !frame.fits(length + MARK) {
                send(marked(frame, cycle));
                self.under_way += 1;
                self.waited_for += 1;
                frame.clear();
            }
            with_data = true;
            piece.frame = self.waited_for as u8;
            if let Some(data) = frame.push(piece.command, index, start as u32, length)
                && let Some(bytes) = image.get(piece.range.clone())
            {
                data.copy_from_slice(bytes);
            }
        }
        let clock = self.reference;
        let asked = [
            (command::FRMW, frame::address(clock.unwrap_or(0), DC_SYSTEM_TIME), 8, clock.is_some()),
            (command::BRD, frame::address(0, AL_STATUS), 2, all),
            (command::FPRD, frame::address(one.unwrap_or(0), AL_STATUS), 6, one.is_some()),
        ];
        for (command, address, length, _) in asked.into_iter().filter(|asked| asked.3) {
            if !frame.fits(length + MARK) {
                send(marked(frame, cycle));
                self.under_way += 1;
                self.waited_for += usize::from(with_data);
                with_data = false;
                frame.clear();
            }
            if let Some(data) = frame.push(command, index, address, length) {
                data.fill(0);
            }
        }
        if !frame.is_empty() {
            send(marked(frame, cycle));
            self.under_way += 1;
            self.waited_for += usize::from(with_data);
        }
        self.flights.open(self.cycle, now_ns, self.waited_for)
    }

    /// Takes a frame for which [`is_cyclic`] holds; inputs go to `inputs`, which begins where the
    /// image does.
    pub fn take(&mut self, bytes: &[u8], mut inputs: impl FnMut(Range<usize>, &[u8])) -> Came {
        let Some(mark) = frame::cycle(bytes) else { return Came::Broken };
        let age = (self.cycle as u32).wrapping_sub(mark);
        let Some(cycle) = self.cycle.checked_sub(age.into()).filter(|&cycle| cycle > 0) else {
            return Came::Broken;
        };
        let mut arrival = None;
        let mut new = false;
        for datagram in frame::datagrams(bytes) {
            match datagram.command {
                command::LRD | command::LWR | command::LRW => {
                    // Of another length than was sent: no data of ours.
                    let Some(piece) = self.pieces.iter_mut().find(|piece| {
                        piece.command == datagram.command
                            && piece.range.start as u32 == datagram.address
                            && piece.range.len() == datagram.data.len()
                    }) else {
                        continue;
                    };
                    let arrival =
                        *arrival.get_or_insert_with(|| self.flights.close(cycle, piece.frame, self.cycle));
                    if matches!(arrival, Arrival::Twice | Arrival::AfterLost) {
                        continue;
                    }
                    if age == 0 {
                        piece.answer = Some(datagram.working_counter);
                    }
                    // A late answer is better than the one before it, and no better than a newer
                    // one.
                    if cycle > piece.newest {
                        (piece.newest, piece.advanced) = (cycle, self.cycle);
                        piece.counter = datagram.working_counter;
                        piece.wrong |= piece.counter != piece.expected;
                        if piece.command != command::LWR {
                            inputs(piece.range.clone(), datagram.data);
                        }
                    }
                }
                command::FRMW => {
                    if let Some(time) = datagram.data.first_chunk()
                        && datagram.working_counter > 0
                        && let Some(sent_ns) = self.flights.sent_ns(cycle)
                        && self.shown.is_none_or(|shown| shown.sent_ns < sent_ns)
                    {
                        self.shown = Some(Reference { sent_ns, time_ns: u64::from_le_bytes(*time) });
                        new = true;
                    }
                }
                command::BRD => {
                    if let &[low, ..] = datagram.data
                        && cycle > self.status_cycle
                    {
                        self.status_cycle = cycle;
                        self.status = Some((datagram.working_counter, low));
                        new = true;
                    }
                }
                // Of an earlier cycle: another device was asked.
                command::FPRD if age == 0 => {
                    if let (None, &[low, _, _, _, code_low, code_high]) = (self.device, datagram.data) {
                        let code = u16::from_le_bytes([code_low, code_high]);
                        self.device = Some((datagram.working_counter > 0, low & 0x1F, code));
                        new = true;
                    }
                }
                _ => {}
            }
        }
        match arrival {
            Some(Arrival::InTime) => {
                self.under_way = self.under_way.saturating_sub(1);
                self.waited_for = self.waited_for.saturating_sub(1);
                Came::Current
            }
            Some(Arrival::Late(cycles)) => Came::Late(cycles),
            Some(Arrival::Found(cycles)) => Came::Found(cycles),
            Some(Arrival::Twice) => Came::Twice,
            Some(Arrival::AfterLost) => Came::AfterLost,
            None if age > 0 => Came::OldStatus,
            None if new => {
                self.under_way = self.under_way.saturating_sub(1);
                Came::Current
            }
            None => Came::Twice,
        }
    }
}

#[cfg(test)]
mod tests;

//! A stream file: packets of events, read one after the other.

use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::cursor::Cursor;
use super::error::PacketProblem;
use super::plan::{Stop, place};
use super::trace::{EventPlan, StreamPlan, Trace, slot};
use crate::event::GapCause;

/// Packets larger than this are taken for damage: LTTng's are some kilobytes to some megabytes.
const MAX_PACKET: u64 = 256 << 20;
/// Enough for the header and context of any packet.
const HEADER_BYTES: u64 = 4096;
/// Magic number of a packet.
const MAGIC: u64 = 0xc1fc_1fc1;

/// Next item of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// An event: where its class stands in the stream class.
    Event(u32),
    /// Events were lost: [`Stream::lost`] says how many.
    Lost,
    /// The stream recorded nothing from [`Stream::gap_from`] on until now.
    Gap(GapCause),
    /// Something cannot be read: [`Stream::take_damage`] says what. Next come a loss of unknown
    /// size, and then readable data again.
    Damage,
    /// The file is over.
    End,
}

/// Something that could not be read, and was left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The stream file.
    pub path: PathBuf,
    /// Begin of its packet.
    pub at: u64,
    /// The fault.
    pub problem: PacketProblem,
}

/// Last values of a stream's counters: they continue from file to file of a rotated recording.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Events lost so far.
    pub discarded: Option<u64>,
    /// Number of the last packet.
    pub sequence: Option<u64>,
    /// The clock at the end of the last packet.
    pub ended: Option<u64>,
}

/// A packet's sizes and counters.
struct Sizes {
    header_bits: u64,
    content_bits: u64,
    /// Bytes of the file from the packet on.
    left_bytes: u64,
    /// It goes beyond the file.
    torn: bool,
    /// To be reported where a size cannot be.
    size: PacketProblem,
    discarded: Option<u64>,
    sequence: Option<u64>,
}

/// Header and context of a packet.
#[derive(Debug, Clone, Copy)]
pub struct PacketHead {
    /// The clock at its beginning and at its end.
    pub begin_ticks: Option<u64>,
    pub end_ticks: Option<u64>,
    /// Its number in its stream.
    pub sequence: Option<u64>,
    /// It has no event.
    pub is_empty: bool,
}

/// A stream file.
pub struct Stream {
    path: PathBuf,
    /// Size of the file when it was opened.
    length: u64,
    /// Bytes read at a time.
    window: u64,
    /// A part of the file, and where it begins.
    buffer: Vec<u8>,
    buffer_at: u64,
    /// Part of the buffer that comes from the file.
    read: u64,
    /// Begin of the current packet, in the file and in the buffer, and eight bytes behind its
    /// content in the buffer.
    packet_at: u64,
    first: usize,
    behind: usize,
    next_packet_at: u64,
    class: usize,
    /// Next bit of the packet, and the end of its content.
    at: u64,
    end: u64,
    clock: u64,
    /// The packet under way goes beyond the file.
    torn: bool,
    /// To be reported before anything else.
    loss: Option<u64>,
    /// To be reported after that: packets are missing since then.
    hole: Option<u64>,
    /// To be reported at the end of the packet: events were lost in it, and its last ones are
    /// followed by nothing.
    loses: bool,
    /// Begin of the gap that was reported last.
    gap_from: u64,
    /// Reported last; 0: nobody knows how many.
    lost: u64,
    damage: Option<Damage>,
    /// The clock at the last event that was read whole.
    sure: u64,
    /// Events stamped later than this are of another time than their packet; [`u64::MAX`]: any time
    /// is believed.
    latest: u64,
    /// The time that the damage costs, in ticks.
    unread: Option<(u64, u64)>,
    /// Something behind the last packet's head cannot be read.
    cut: bool,
    /// Values of the event under way.
    pub slots: Vec<u64>,
    /// The processor whose stream it is, if it says so.
    pub cpu: Option<u64>,
    /// The stream's number, if it says so.
    pub instance: Option<u64>,
    /// The clock at the beginning of the last packet opened.
    pub begin_ticks: Option<u64>,
    /// The clock at the end of the last packet opened.
    pub end_ticks: Option<u64>,
    /// The counters of the last packet opened.
    pub counters: Counters,
}

impl Stream {
    /// A stream file of `trace`, read `window` bytes at a time.
    pub fn open(path: &Path, trace: &Trace, window: u64) -> io::Result<Self> {
        Ok(Self {
            path: path.to_owned(),
            length: takt_files::open(path)?.metadata()?.len(),
            window,
            buffer: Vec::new(),
            buffer_at: 0,
            read: 0,
            packet_at: 0,
            first: 0,
            behind: 0,
            next_packet_at: 0,
            class: 0,
            at: 0,
            end: 0,
            clock: 0,
            torn: false,
            loss: None,
            hole: None,
            loses: false,
            gap_from: 0,
            lost: 0,
            damage: None,
            sure: 0,
            latest: u64::MAX,
            unread: None,
            cut: false,
            slots: vec![0; trace.slots],
            cpu: None,
            instance: None,
            begin_ticks: None,
            end_ticks: None,
            counters: Counters::default(),
        })
    }

    /// Looks at the first packet, if there is one, and goes back to the beginning: a file of
    /// another trace, or one that is damaged from its beginning on, is reported here.
    pub fn probe(&mut self, trace: &Trace) -> Result<(), Damage> {
        let opened = self.open_packet(trace);
        let torn = std::mem::take(&mut self.torn);
        (self.packet_at, self.next_packet_at, self.at, self.end) = (0, 0, 0, 0);
        (self.loss, self.counters) = (None, Counters::default());
        (self.hole, self.loses, self.unread) = (None, false, None);
        match opened {
            Err(damage) if !torn => Err(damage),
            _ => Ok(()),
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file has no packet.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The time of what [`advance`](Self::advance) found, in ticks.
    #[inline]
    pub fn ticks(&self) -> u64 {
        self.clock
    }

    /// The class of the packet under way.
    #[inline]
    pub fn class<'t>(&self, trace: &'t Trace) -> Option<&'t StreamPlan> {
        trace.streams.get(self.class)
    }

    /// Index of the current packet's class.
    pub(crate) fn class_number(&self) -> usize {
        self.class
    }

    /// The bytes at a place that a slot holds.
    #[inline]
    pub fn bytes(&self, slot: u32) -> &[u8] {
        let (first, length) = place(self.slots.get(slot as usize).copied().unwrap_or(0));
        let content = self.buffer.get(self.first..self.behind).unwrap_or_default();
        content.get(first..first.saturating_add(length)).unwrap_or_default()
    }

    /// A cursor at the body of the event found, and the values that references mean: for walking
    /// its types. The event is still to be [taken](Self::take).
    pub fn body(&mut self) -> (Cursor<'_>, &mut [u64]) {
        let data = self.buffer.get(self.first..self.behind).unwrap_or_default();
        let cursor = Cursor { data, at: self.at, end: self.end };
        (cursor, self.slots.get_mut(slot::SAVED as usize..).unwrap_or_default())
    }

    /// Number of events in the loss just found; 0: unknown.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Begin of the gap just found, in ticks.
    pub fn gap_from(&self) -> u64 {
        self.gap_from
    }

    /// The damage just found.
    pub fn take_damage(&mut self) -> Option<Damage> {
        self.damage.take()
    }

    /// The time that damage met since the last call costs, in ticks: from the last event that was
    /// read to the end of its packet.
    pub fn take_unread(&mut self) -> Option<(u64, u64)> {
        self.unread.take()
    }

    /// Whether the heads ended where the file cannot be read.
    pub fn is_cut(&self) -> bool {
        self.cut
    }

    /// Size of the file.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Finds the header of the next event; its body must be [taken](Self::take) before the next
    /// call.
    #[inline]
    pub fn advance(&mut self, trace: &Trace) -> Next {
        if (self.at >= self.end || self.loss.is_some() || self.hole.is_some())
            && let Some(other) = self.between(trace)
        {
            return other;
        }
        let Some(class) = trace.streams.get(self.class) else { return Next::End };
        let data = self.buffer.get(self.first..self.behind).unwrap_or_default();
        let mut cursor = Cursor { data, at: self.at, end: self.end };
        let saved = self.slots.get_mut(slot::SAVED as usize..).unwrap_or_default();
        let start = self.at;
        match class.header.read(&mut cursor, &mut self.clock, saved) {
            Ok(id) if cursor.at > start => {
                self.at = cursor.at;
                let is_of_another_time = self.latest != u64::MAX
                    && (self.clock > self.latest
                        || self.clock.saturating_add(trace.second_ticks()) < self.sure);
                if is_of_another_time && !self.reads_whole(trace, start) {
                    self.damage = Some(self.damage(PacketProblem::Time { at_bit: start }));
                    return Next::Damage;
                }
                match class.event(id) {
                    Some(event) => Next::Event(event),
                    None => self.unknown(id, start),
                }
            }
            Ok(_) => self.broken(start, Stop::Short),
            Err(stop) => self.broken(start, stop),
        }
    }

    /// Whether the packet can be read whole from this bit on, and ends before the next one begins:
    /// then only its stamped end is wrong, and its events are believed.
    #[cold]
    fn reads_whole(&mut self, trace: &Trace, at_bit: u64) -> bool {
        let Some(class) = trace.streams.get(self.class) else { return false };
        let data = self.buffer.get(self.first..self.behind).unwrap_or_default();
        let mut cursor = Cursor { data, at: at_bit, end: self.end };
        let (mut slots, mut clock) = (self.slots.clone(), self.clock);
        while cursor.at < cursor.end {
            let before = cursor.at;
            let saved = slots.get_mut(slot::SAVED as usize..).unwrap_or_default();
            let id = class.header.read(&mut cursor, &mut clock, saved);
            let event = id.ok().and_then(|id| class.events.get(class.event(id)? as usize));
            let is_read = event.is_some_and(|event| event.body.run(&mut cursor, &mut slots).is_ok());
            if !is_read || cursor.at <= before {
                return false;
            }
        }
        let is_possible = clock <= self.next_begin(trace);
        if is_possible {
            self.latest = u64::MAX;
        }
        is_possible
    }

    /// The clock when the next packet begins. Behind the last one, events may be a second late.
    fn next_begin(&self, trace: &Trace) -> u64 {
        let next = Self::open(&self.path, trace, HEADER_BYTES).ok().and_then(|mut next| {
            next.next_packet_at = self.next_packet_at;
            next.next_head(trace)?.begin_ticks
        });
        match next {
            // A beginning before this packet's says nothing.
            Some(begin) => Some(begin).filter(|&begin| begin > self.latest).unwrap_or(u64::MAX),
            // No event of it lies within its stamps.
            None if Some(self.sure) == self.begin_ticks => u64::MAX,
            None => self.latest.saturating_add(trace.second_ticks()),
        }
    }

    /// Item before the next event: a loss, damage, the end; `None`: that event.
    #[cold]
    fn between(&mut self, trace: &Trace) -> Option<Next> {
        loop {
            if let Some(count) = self.loss.take() {
                self.lost = count;
                return Some(Next::Lost);
            }
            if let Some(from) = self.hole.take() {
                self.gap_from = from;
                return Some(Next::Gap(GapCause::Packets));
            }
            if self.at < self.end {
                return None;
            }
            // A tracer that finds no room leaves the packet open until there is some: the events
            // that it counts as lost are those that would follow the packet's last ones.
            if std::mem::take(&mut self.loses)
                && let Some(end) = self.end_ticks.filter(|&end| end > self.clock)
            {
                self.gap_from = std::mem::replace(&mut self.clock, end);
                return Some(Next::Gap(GapCause::Full));
            }
            match self.open_packet(trace) {
                Ok(true) => {}
                Ok(false) => return Some(Next::End),
                Err(damage) => {
                    self.damage = Some(damage);
                    return Some(Next::Damage);
                }
            }
        }
    }

    #[cold]
    fn unknown(&mut self, id: u64, at_bit: u64) -> Next {
        self.damage = Some(self.damage(PacketProblem::EventId { id, at_bit }));
        Next::Damage
    }

    /// Reads the body of the event that [`advance`](Self::advance) found into the slots; `false`:
    /// it is damaged.
    #[inline]
    pub fn take(&mut self, event: &EventPlan) -> bool {
        let data = self.buffer.get(self.first..self.behind).unwrap_or_default();
        let mut cursor = Cursor { data, at: self.at, end: self.end };
        match event.body.run(&mut cursor, &mut self.slots) {
            Ok(()) => {
                self.at = cursor.at;
                self.sure = self.clock;
                true
            }
            Err(stop) => {
                self.broken(self.at, stop);
                false
            }
        }
    }

    /// The event at this bit cannot be read.
    #[cold]
    fn broken(&mut self, at_bit: u64, stop: Stop) -> Next {
        self.damage = Some(self.damage(match stop {
            Stop::Short => PacketProblem::Event { at_bit },
            Stop::Tag(tag) => PacketProblem::Tag { at_bit, tag },
        }));
        Next::Damage
    }

    /// Skips the rest of the packet.
    #[cold]
    fn damage(&mut self, problem: PacketProblem) -> Damage {
        if self.end > 0 {
            self.end_early();
        }
        self.at = self.end;
        self.loss = Some(0);
        Damage { path: self.path.clone(), at: self.packet_at, problem }
    }

    /// The packet's last events cannot be read.
    #[cold]
    fn end_early(&mut self) {
        // The event that is damaged may have any time.
        self.clock = self.sure.max(self.begin_ticks.unwrap_or(0));
        if let Some(end) = self.end_ticks.filter(|&end| end > self.clock) {
            self.unread = Some((self.clock, end));
            // A packet that is damaged and cut off has this time once.
            self.sure = end;
        }
    }

    /// Nothing more can be read from the file.
    #[cold]
    fn give_up(&mut self, problem: PacketProblem) -> Damage {
        self.next_packet_at = self.length;
        self.end = 0;
        self.at = 0;
        self.damage(problem)
    }

    /// Has so many bytes of the file in the buffer; the place of the first.
    fn need(&mut self, at: u64, bytes: u64) -> io::Result<usize> {
        let behind = self.buffer_at + self.read;
        if at < self.buffer_at || at + bytes > behind {
            let size = bytes.max(self.window).min(self.length.saturating_sub(at));
            let size = usize::try_from(size).unwrap_or(usize::MAX);
            // Eight bytes behind, so that the last field can be loaded as the others are.
            self.buffer.resize(size + 8, 0);
            self.buffer_at = at;
            self.read = 0;
            // Opened each time: a recording may have more streams than a process may have open
            // files.
            takt_files::open(&self.path)?.read_exact_at(&mut self.buffer[..size], at)?;
            self.read = size as u64;
        }
        Ok(usize::try_from(at - self.buffer_at).unwrap_or(usize::MAX))
    }

    /// Goes on to the next packet; `false`: there is none.
    fn open_packet(&mut self, trace: &Trace) -> Result<bool, Damage> {
        if std::mem::take(&mut self.torn) {
            self.end_early();
            self.loss = Some(0);
            return Ok(true);
        }
        let Some(sizes) = self.open_head(trace)? else { return Ok(false) };
        self.clock = self.begin_ticks.unwrap_or(self.clock);
        self.sure = self.clock;
        // LTTng up to 2.11 may stamp a packet's end before its last event: see `reads_whole`.
        self.latest = self.end_ticks.filter(|&end| end > self.clock).unwrap_or(u64::MAX);
        let lost = self.count(sizes.discarded, sizes.sequence);
        self.loses = lost.is_some_and(|lost| lost > 0);
        self.loss = lost;
        let Sizes { header_bits, content_bits, left_bytes, torn, size, .. } = sizes;
        let content_bytes = content_bits.div_ceil(8).min(left_bytes);
        if content_bytes > MAX_PACKET {
            self.end = 0;
            return Err(self.damage(size));
        }
        let read = |error: io::Error| PacketProblem::Read { why: error.to_string() };
        self.first = self.need(self.packet_at, content_bytes).map_err(|error| self.give_up(read(error)))?;
        self.behind = self.first + content_bytes as usize + 8;
        self.at = header_bits;
        self.end = content_bits.min(content_bytes * 8);
        for slot in slot::PACKET_FIELDS {
            if let Some(value) = self.slots.get_mut(slot as usize) {
                *value = 0;
            }
        }
        if let Some(pid) = self.slots.get_mut(slot::PID as usize) {
            *pid = u64::from(trace.pid.unwrap_or(0));
        }
        if torn {
            self.torn = true;
            return Err(Damage { path: self.path.clone(), at: self.packet_at, problem: size });
        }
        Ok(true)
    }

    /// Reads the header and the context of the next packet and nothing of its events: for a look
    /// at what a file covers. `None`: there is none, or it cannot be read
    /// ([`is_cut`](Self::is_cut)).
    pub fn next_head(&mut self, trace: &Trace) -> Option<PacketHead> {
        let sizes = match self.open_head(trace) {
            Ok(sizes) => sizes?,
            Err(_) => {
                self.cut = true;
                return None;
            }
        };
        self.cut |= sizes.torn;
        Some(PacketHead {
            begin_ticks: self.begin_ticks,
            end_ticks: self.end_ticks,
            sequence: sizes.sequence,
            is_empty: sizes.content_bits == sizes.header_bits,
        })
    }

    /// Reads the header and the context of the next packet; `None`: there is none.
    fn open_head(&mut self, trace: &Trace) -> Result<Option<Sizes>, Damage> {
        if self.next_packet_at >= self.length {
            return Ok(None);
        }
        self.packet_at = self.next_packet_at;
        let left_bytes = self.length - self.packet_at;
        let header_bytes = left_bytes.min(HEADER_BYTES);
        let read = |error: io::Error| PacketProblem::Read { why: error.to_string() };
        let first = self.need(self.packet_at, header_bytes).map_err(|error| self.give_up(read(error)))?;

        self.slots.fill(0);
        let data = self.buffer.get(first..first + header_bytes as usize).unwrap_or_default();
        let mut cursor = Cursor { data, at: 0, end: header_bytes * 8 };
        let header_is_read = trace.packet_header.run(&mut cursor, &mut self.slots).is_ok();
        if !header_is_read {
            return Err(self.give_up(PacketProblem::Header { left_bytes }));
        }
        let field = |slots: &[u64], fields: u32, slot: u32| {
            (fields & 1 << slot != 0).then(|| slots.get(slot as usize).copied().unwrap_or(0))
        };
        let fields = trace.header_fields;
        if let Some(found) = field(&self.slots, fields, slot::MAGIC).filter(|&found| found != MAGIC) {
            return Err(self.give_up(PacketProblem::Magic { found }));
        }
        if let (Some(at), Some(expected)) = (field(&self.slots, fields, slot::UUID), trace.metadata.uuid) {
            let (at, length) = place(at);
            let found = data.get(at..at + length).and_then(|found| <[u8; 16]>::try_from(found).ok());
            if let Some(found) = found.filter(|found| *found != expected) {
                return Err(self.give_up(PacketProblem::Uuid { found, expected }));
            }
        }
        let id = field(&self.slots, fields, slot::STREAM);
        let class = match id {
            Some(id) => trace.metadata.streams.iter().position(|class| class.id == id),
            None => (!trace.streams.is_empty()).then_some(0),
        };
        let Some(class) = class else {
            return Err(self.give_up(PacketProblem::StreamId { id: id.unwrap_or(0) }));
        };
        let Some(plan) = trace.streams.get(class) else { return Ok(None) };
        if plan.context.run(&mut cursor, &mut self.slots).is_err() {
            return Err(self.give_up(PacketProblem::Header { left_bytes }));
        }

        let header_bits = cursor.at;
        let fields = plan.packet_fields;
        let packet_bits = field(&self.slots, fields, slot::PACKET).unwrap_or(left_bytes.saturating_mul(8));
        let content_bits = field(&self.slots, fields, slot::CONTENT).unwrap_or(packet_bits);
        let size = PacketProblem::Size { packet_bits, content_bits, left_bytes };
        if packet_bits % 8 != 0 || content_bits > packet_bits || content_bits < header_bits {
            return Err(self.give_up(size));
        }
        let torn = packet_bits / 8 > left_bytes;
        self.next_packet_at = if torn { self.length } else { self.packet_at + packet_bits / 8 };
        self.class = class;
        self.cpu = field(&self.slots, fields, slot::CPU);
        self.instance = field(&self.slots, fields, slot::INSTANCE);
        self.end_ticks = field(&self.slots, fields, slot::END);
        self.begin_ticks = field(&self.slots, fields, slot::BEGIN);
        let discarded = field(&self.slots, fields, slot::DISCARDED);
        let sequence = field(&self.slots, fields, slot::SEQUENCE);
        Ok(Some(Sizes { header_bits, content_bits, left_bytes, torn, size, discarded, sequence }))
    }

    /// Losses before a new packet, by its counters.
    ///
    /// LTTng-UST 2.13 now and then leaves a packet's counter at zero when it loses many events at a
    /// time; the next packet has the right one again. So a counter that goes back says nothing, and
    /// the greatest so far counts.
    fn count(&mut self, discarded: Option<u64>, sequence: Option<u64>) -> Option<u64> {
        let before = self.counters;
        // Counted in 32 bits by 32-bit processes.
        let wraps = |before: u64, now: u64| before >> 30 == 3 && now >> 30 == 0;
        let lost = match (before.discarded, discarded) {
            (Some(before), Some(now)) if wraps(before, now) => now + (1 << 32) - before,
            (Some(before), Some(now)) => now.saturating_sub(before),
            // The beginning of a recording; a part of one says nothing of itself.
            (None, Some(now)) if sequence.unwrap_or(0) == 0 => now,
            _ => 0,
        };
        if lost > 0 || before.discarded.is_none() {
            self.counters.discarded = discarded;
        }
        self.counters.sequence = sequence.max(before.sequence);
        let skipped = match (before.sequence, sequence) {
            (Some(before), Some(now)) => now > before.saturating_add(1),
            _ => false,
        };
        self.hole = before.ended.filter(|&ended| skipped && ended < self.clock);
        self.counters.ended = self.end_ticks;
        if skipped { Some(0) } else { Some(lost).filter(|&lost| lost > 0) }
    }
}

//! The file that an observed process and the reader share: one header page, then one ring per
//! thread. This source is part of both sides: the probe library includes it by path, and uses
//! nothing beyond `core`.
//!
//! A ring is a sequence of 64-bit words with one writer and one reader. A record is contiguous:
//!
//! ```text
//! word 0   length in words (16 bits) | code (8) | flags (8) | low 32 bits of the record's position in the stream
//! word 1   CLOCK_MONOTONIC, nanoseconds
//! word 2   CPU time of the thread, nanoseconds (only with FLAG_CPU)
//! ...      arguments; a text is one word with its length in bytes, then its bytes, padded with zeros
//! ```
//!
//! A record that would cross the end of the ring starts at its beginning, after a padding record of
//! which only word 0 counts. All words are atomics, because the other side is another process,
//! whose actions must not cause undefined behaviour here.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// First word of the file, written last.
pub const MAGIC: u64 = u64::from_le_bytes(*b"TAKTPRB\x01");
/// Version of everything in this source.
pub const VERSION: u32 = 3;
/// Bytes of the file's header and of each ring's: one page, so that rings are mapped one by one.
pub const PAGE: usize = 4096;
/// Rings that one process can have.
pub const MAX_RINGS: usize = 512;
/// Words of a ring, at least: the longest record must fit several times.
pub const MIN_WORDS: usize = 4096;
pub const MAX_WORDS: usize = 1 << 23;
/// Bytes of a text that are kept.
pub const MAX_TEXT: usize = 1016;
/// Words of the longest record: head, two stamps, four arguments, two texts.
pub const MAX_RECORD: usize = 7 + 2 * (1 + MAX_TEXT / 8);

/// A number that was not measured.
pub const UNKNOWN: u64 = u64::MAX;
/// Unit of `event::OFF_CPU_NS`.
pub const OFF_CPU_NS: u64 = 1_000;

/// The record carries the CPU time of its thread.
pub const FLAG_CPU: u8 = 1;
/// The event's own flag: message from within the process, message taken.
pub const FLAG_SET: u8 = 2;
/// A text was longer than [`MAX_TEXT`].
pub const FLAG_CUT: u8 = 4;

/// Codes of records.
pub mod code {
    /// Nothing: the rest of the ring's lap.
    pub const PADDING: u8 = 0;
    /// The ring belongs to this thread from here on: thread id, name.
    pub const THREAD: u8 = 1;
    pub const THREAD_END: u8 = 2;
    /// So many events found the ring full.
    pub const LOST: u8 = 3;
    /// `rcl_init`: context.
    pub const INIT: u8 = 4;
    /// `rcl_node_init`: node, name, namespace.
    pub const NODE: u8 = 5;
    /// `rcl_publisher_init`: publisher, node, rmw publisher, depth, topic.
    pub const PUBLISHER: u8 = 6;
    /// `rcl_subscription_init`: subscription, node, rmw subscription, depth, topic.
    pub const SUBSCRIPTION: u8 = 7;
    /// `rclcpp_subscription_init`: subscription, object.
    pub const SUBSCRIPTION_OBJECT: u8 = 8;
    /// `rclcpp_subscription_callback_added`: object, callback.
    pub const SUBSCRIPTION_CALLBACK: u8 = 9;
    /// `rcl_service_init`: service, node, rmw service, name.
    pub const SERVICE: u8 = 10;
    /// `rclcpp_service_callback_added`: service, callback.
    pub const SERVICE_CALLBACK: u8 = 11;
    /// `rcl_client_init`: client, node, rmw client, name.
    pub const CLIENT: u8 = 12;
    /// `rcl_timer_init`: timer, period.
    pub const TIMER: u8 = 13;
    /// `rclcpp_timer_callback_added`: timer, callback.
    pub const TIMER_CALLBACK: u8 = 14;
    /// `rclcpp_timer_link_node`: timer, node.
    pub const TIMER_NODE: u8 = 15;
    /// `rclcpp_callback_register`: callback, symbol.
    pub const SYMBOL: u8 = 16;
    /// `callback_start`: callback; flag: from within the process.
    pub const CALLBACK_START: u8 = 17;
    pub const CALLBACK_END: u8 = 18;
    /// `rclcpp_publish`: message.
    pub const RCLCPP_PUBLISH: u8 = 19;
    /// `rcl_publish`: publisher, message.
    pub const RCL_PUBLISH: u8 = 20;
    /// `rmw_publish` with three arguments: rmw publisher, message, source stamp.
    pub const RMW_PUBLISH: u8 = 21;
    /// `rmw_publish` with one argument (before Jazzy): message.
    pub const RMW_PUBLISH_OLD: u8 = 22;
    /// `rclcpp_intra_publish`: publisher, message.
    pub const INTRA_PUBLISH: u8 = 23;
    /// `rmw_take`: rmw subscription, message, source stamp; flag: taken.
    pub const RMW_TAKE: u8 = 24;
    /// `rmw_send_request`: rmw client, sequence number, client's identity or 0.
    pub const SEND_REQUEST: u8 = 25;
    /// `rmw_take_request`: rmw service, sequence number, client's identity or 0; flag: taken.
    pub const TAKE_REQUEST: u8 = 26;
    /// `rmw_send_response`: rmw service, sequence number, client's identity or 0.
    pub const SEND_RESPONSE: u8 = 27;
    /// `rmw_take_response`: rmw client, sequence number, client's identity or 0; flag: taken.
    pub const TAKE_RESPONSE: u8 = 28;
    /// `rclcpp_executor_wait_for_work`: time-out.
    pub const WAIT: u8 = 29;
    /// `rclcpp_executor_get_next_ready`.
    pub const NEXT_READY: u8 = 30;
    /// `rclcpp_executor_execute`: handle.
    pub const EXECUTE: u8 = 31;
    /// `rclcpp_ipb_to_subscription`: buffer, subscription.
    pub const BUFFER_OF_SUBSCRIPTION: u8 = 32;
    /// `rclcpp_buffer_to_ipb`: inner buffer, buffer.
    pub const BUFFER_INSIDE: u8 = 33;
    /// `rcl_lifecycle_transition`: machine, from, to.
    pub const TRANSITION: u8 = 34;
    /// A job of a task of Takt's own robots, stamped with its end: release, start, CPU time used,
    /// task.
    pub const JOB: u8 = 35;
    /// The activation that ends with the next record was off the CPU: how often by itself, how long
    /// ready, how often it yielded, how long it may have been off the CPU before its start;
    /// [`super::UNKNOWN`].
    pub const OFF_CPU: u8 = 36;
    /// An executor runs on this thread from here on: executor, its C++ type.
    pub const SPIN: u8 = 40;
    /// An executable of an executor has returned without the events of a callback; flag: with the
    /// events of a callback.
    pub const EXECUTED: u8 = 41;
    /// A callback group gets a member: group, which kind of member, C++ object; flag: the group is
    /// reentrant.
    pub const GROUP_MEMBER: u8 = 42;
    /// First eight bytes of the message of the next record.
    pub const HEAD: u8 = 43;
    /// The process's nodes are those of Python.
    pub const PYTHON: u8 = 44;
    /// The message of the next record was received by the middleware: so long after its source
    /// stamp, signed.
    pub const RECEIVED: u8 = 45;
    /// Codes end here.
    pub const END: u8 = 46;
}

/// Records with CPU time, one bit for each code: those that make up execution times, the demand of
/// a thread that publishes without callbacks, and an executor's own work. Reading the clock is a
/// system call.
pub const CPU_NEEDED: u64 = 1 << code::THREAD
    | 1 << code::THREAD_END
    | 1 << code::CALLBACK_START
    | 1 << code::CALLBACK_END
    | 1 << code::RCL_PUBLISH
    | 1 << code::WAIT
    | 1 << code::TAKE_REQUEST
    | 1 << code::TAKE_RESPONSE
    | 1 << code::EXECUTED;

/// A process's state as it shows it itself.
pub mod state {
    /// Running.
    pub const LIVE: u32 = 1;
    /// It has left by `exit`.
    pub const ENDED: u32 = 2;
}

/// The first page of the file.
#[repr(C)]
pub struct FileHeader {
    /// [`MAGIC`] once everything else is there.
    pub magic: AtomicU64,
    pub version: AtomicU32,
    /// The process, as it sees itself.
    pub pid: AtomicU32,
    /// When it was started, clock ticks since boot (`/proc/PID/stat`): distinguishes it from a
    /// later one of the same number.
    pub start_ticks: AtomicU64,
    /// When the file was made, CLOCK_MONOTONIC nanoseconds.
    pub opened_ns: AtomicU64,
    /// Words of each ring, a power of two.
    pub ring_words: AtomicU32,
    /// Rings that were handed out; the file holds so many, but for one that is just being made.
    pub rings: AtomicU32,
    pub state: AtomicU32,
    /// Arguments of `rmw_publish`: 1 or 3; 0 while unknown.
    pub rmw_publish: AtomicU32,
    /// Events of threads that got no ring.
    pub without_ring: AtomicU64,
    /// The program's name, zero-padded.
    pub name: [AtomicU64; 2],
}

/// The first page of a ring.
#[repr(C)]
pub struct RingHeader {
    /// 1 once the ring can be used.
    pub ready: AtomicU32,
    /// The thread that writes; 0: none. A thread that ends gives its ring to the next.
    pub owner: AtomicU32,
    /// Lost by the last writer and not said by it; the next one says it before anything else.
    pub unsaid: AtomicU64,
    _writer: [u64; 14],
    /// Words written since the beginning.
    pub head: AtomicU64,
    /// Events that found the ring full.
    pub lost: AtomicU64,
    _reader: [u64; 14],
    /// Words read since the beginning.
    pub tail: AtomicU64,
}

const _: () = assert!(size_of::<FileHeader>() <= PAGE && size_of::<RingHeader>() <= PAGE);
const _: () = assert!(MAX_RECORD < MIN_WORDS / 8 && MAX_RECORD < u16::MAX as usize);

pub const fn ring_bytes(words: usize) -> usize {
    PAGE + words * 8
}

/// Offset of ring `index` in the file.
pub const fn ring_offset(index: usize, words: usize) -> usize {
    PAGE + index * ring_bytes(words)
}

/// Word 0 of a record.
pub(crate) const fn head_word(words: usize, code: u8, flags: u8, position: u64) -> u64 {
    (words as u64 & 0xffff) | (code as u64) << 16 | (flags as u64) << 24 | position << 32
}

/// A ring in memory: its header and its words.
#[derive(Clone, Copy)]
pub struct RingView<'a> {
    pub header: &'a RingHeader,
    /// The words, a power of two.
    pub words: &'a [AtomicU64],
}

impl<'a> RingView<'a> {
    /// The ring at `base`.
    ///
    /// # Safety
    ///
    /// `base` is aligned to 8 bytes, and [`ring_bytes`]`(words)` bytes from there stay mapped,
    /// readable and writable, for `'a`; everybody who uses them does so with atomics. `words` is a
    /// power of two.
    pub unsafe fn at(base: *mut u8, words: usize) -> Self {
        // SAFETY: by contract; atomics may be shared with whoever else has the memory mapped.
        unsafe {
            Self {
                header: &*base.cast::<RingHeader>(),
                words: core::slice::from_raw_parts(base.add(PAGE).cast::<AtomicU64>(), words),
            }
        }
    }
}

/// The writing end: what a thread keeps of its ring.
pub struct Writer<'a> {
    ring: RingView<'a>,
    head: u64,
    /// The tail as last seen.
    tail: u64,
    /// Lost, and not yet said in the stream.
    unsaid: u64,
}

impl<'a> Writer<'a> {
    /// Goes on where the ring's last writer stopped. The caller has taken the ring (`owner`) with
    /// acquire ordering.
    pub fn new(ring: RingView<'a>) -> Self {
        let head = ring.header.head.load(Ordering::Relaxed);
        let unsaid = ring.header.unsaid.load(Ordering::Relaxed);
        Self { ring, head, tail: ring.header.tail.load(Ordering::Acquire), unsaid }
    }

    /// Gives the ring back for the next thread.
    pub fn leave(self) {
        self.ring.header.unsaid.store(self.unsaid, Ordering::Relaxed);
        self.ring.header.owner.store(0, Ordering::Release);
    }

    /// Whether `words` fit; looks at the reader's tail only when they do not fit by what is known.
    fn fits(&mut self, words: usize) -> bool {
        let capacity = self.ring.words.len() as u64;
        let needed = self.head.wrapping_add(words as u64);
        if needed.wrapping_sub(self.tail) <= capacity {
            return true;
        }
        // Acquire: the reader is through with the words that it gave back.
        self.tail = self.ring.header.tail.load(Ordering::Acquire);
        needed.wrapping_sub(self.tail) <= capacity
    }

    /// Words that a record of `words` takes here, with the padding before it.
    fn padded(&self, words: usize) -> (usize, usize) {
        let capacity = self.ring.words.len();
        let place = self.head as usize & (capacity - 1);
        let padding = if place + words > capacity { capacity - place } else { 0 };
        (padding, words + padding)
    }

    fn put(&self, position: u64, word: u64) {
        let place = position as usize & (self.ring.words.len() - 1);
        if let Some(slot) = self.ring.words.get(place) {
            slot.store(word, Ordering::Relaxed);
        }
    }

    /// Begins a record of at most `words` words in all; `None`: no room, lost and counted.
    /// Wait-free.
    #[inline]
    pub fn begin(&mut self, words: usize, at_ns: u64) -> Option<Record<'_, 'a>> {
        if self.unsaid > 0 {
            self.report_lost(words, at_ns)?;
        }
        let (padding, all) = self.padded(words);
        if !self.fits(all) {
            self.lose();
            return None;
        }
        let mut start = self.head;
        if padding > 0 {
            self.put(start, head_word(padding, code::PADDING, 0, start));
            start = start.wrapping_add(padding as u64);
        }
        self.put(start.wrapping_add(1), at_ns);
        Some(Record { start, next: start.wrapping_add(2), flags: 0, writer: self })
    }

    /// Says how many were lost, as soon as there is room for that and for the record that follows.
    #[cold]
    fn report_lost(&mut self, following: usize, at_ns: u64) -> Option<()> {
        // Each of the two records can need padding before it, of less than its own length.
        if !self.fits(2 * (3 + following)) {
            self.lose();
            return None;
        }
        let count = core::mem::take(&mut self.unsaid);
        let mut record = self.begin(3, at_ns)?;
        record.word(count);
        record.end(code::LOST);
        Some(())
    }

    /// Counts one event that could not be written.
    #[cold]
    pub fn lose(&mut self) {
        self.unsaid += 1;
        let lost = &self.ring.header.lost;
        lost.store(lost.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }
}

/// A record being written; nothing of it is seen before [`Record::end`].
pub struct Record<'w, 'a> {
    writer: &'w mut Writer<'a>,
    start: u64,
    next: u64,
    flags: u8,
}

impl Record<'_, '_> {
    /// Appends an argument.
    #[inline]
    pub fn word(&mut self, word: u64) {
        self.writer.put(self.next, word);
        self.next = self.next.wrapping_add(1);
    }

    /// Sets a flag.
    #[inline]
    pub fn flag(&mut self, flag: u8) {
        self.flags |= flag;
    }

    /// Appends a text: its length, its bytes. The caller has reserved [`text_words`].
    pub fn text(&mut self, text: &[u8]) {
        let kept = text.get(..MAX_TEXT).unwrap_or(text);
        if kept.len() < text.len() {
            self.flags |= FLAG_CUT;
        }
        self.word(kept.len() as u64);
        for chunk in kept.chunks(8) {
            let mut bytes = [0; 8];
            for (to, from) in bytes.iter_mut().zip(chunk) {
                *to = *from;
            }
            self.word(u64::from_le_bytes(bytes));
        }
    }

    /// Hands the record to the reader.
    #[inline]
    pub fn end(self, code: u8) {
        let length = self.next.wrapping_sub(self.start) as usize;
        self.writer.put(self.start, head_word(length, code, self.flags, self.start));
        self.writer.head = self.next;
        self.writer.ring.header.head.store(self.next, Ordering::Release);
    }
}

/// Words that [`Record::text`] takes.
pub fn text_words(text: &[u8]) -> usize {
    1 + text.len().min(MAX_TEXT).div_ceil(8)
}

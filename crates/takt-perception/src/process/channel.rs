//! One camera's questions and answers in shared memory.
//!
//! The cell asks: it fills a frame slot and marks it ready. The worker takes the ready slot,
//! judges, and writes the answer. There are two slots, so that a newer frame can wait while the
//! worker is still at an older one; a frame that waits is replaced by a newer one. A slot is a word
//! of state and generation:
//!
//! ```text
//!            cell                    worker of this generation
//! free ──► filling ──► ready ──► taken ──► free
//!             ▲__________|  replaced
//! ```
//!
//! The generation is that of the worker process. A worker touches only slots that are ready for its
//! own generation, and an answer counts only when it bears the ticket of the question, which holds
//! the generation: whatever a dead worker left behind, in any state, is never mistaken for
//! something fresh.
//!
//! Everything the cell does is wait-free except for the wait itself, which ends at an absolute
//! time. The answer is guarded by a version number instead of a lock: a worker that dies or is
//! stopped in the middle of it holds up nobody.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use crate::FrameView;
use takt_link_camera::Frame;
use takt_rt::clock::monotonic_ns;

use crate::process::frame_judge::{PixelMemory, Seen};
use crate::process::futex;
use crate::process::memory::Memory;
use crate::process::wire::{ANSWER_WORDS, Answer, Garbled, QUESTION_WORDS, Question};

const SLOTS: usize = 2;

/// Number of attempts to read an answer that changes while it is read. A worker in order writes
/// once per question.
const READ_ATTEMPTS: usize = 4;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Slot {
    Free = 0,
    Filling = 1,
    Ready = 2,
    Taken = 3,
}

fn word_of(generation: u32, slot: Slot) -> u64 {
    u64::from(generation) << 32 | slot as u64
}

/// All zero is a valid beginning: nothing posted, both slots free, no answer.
#[repr(C, align(64))]
struct Control {
    /// Questions posted; the worker waits on it.
    posted: AtomicU32,
    worker_waits: AtomicU32,
    /// Answers written; the cell waits on it.
    answered: AtomicU32,
    cell_waits: AtomicU32,
    slots: [AtomicU64; SLOTS],
    /// Odd while an answer is being written.
    version: AtomicU64,
    answer: [AtomicU64; ANSWER_WORDS],
    questions: [[AtomicU64; QUESTION_WORDS]; SLOTS],
}

/// Pixels begin at a page and fill whole pages, so that a device's driver can pin them by
/// themselves.
const PAGE: usize = 4096;

fn aligned(bytes: usize) -> usize {
    bytes.next_multiple_of(64)
}

/// Offsets of a slot's colour and depth in the pixel memory, and of the next slot.
fn places(slot: usize, pixels: usize) -> (usize, usize, usize) {
    let bytes = aligned(pixels * 3) + aligned(pixels * 2);
    (slot * bytes, slot * bytes + aligned(pixels * 3), (slot + 1) * bytes)
}

/// A camera's part of a shared memory.
#[derive(Debug)]
pub(crate) struct Channel {
    memory: Arc<Memory>,
    control: NonNull<Control>,
    /// Colour and depth of all slots.
    pixels: NonNull<u8>,
    width: u32,
    height: u32,
}

// SAFETY: the pointers lead into `memory`, which lives as long; the control block is atomics only,
// and pixels are touched by whoever holds the slot.
unsafe impl Send for Channel {}
// SAFETY: as above; methods that touch pixels are behind `&mut` of an end.
unsafe impl Sync for Channel {}

impl Channel {
    /// Bytes that a camera of this size needs.
    pub fn bytes(width: u32, height: u32) -> usize {
        let pixels = width as usize * height as usize;
        size_of::<Control>().next_multiple_of(PAGE) + Self::pixel_bytes(pixels)
    }

    fn pixel_bytes(pixels: usize) -> usize {
        places(SLOTS - 1, pixels).2.next_multiple_of(PAGE)
    }

    /// The channel at `offset`; `None` when the memory is too small for it.
    pub fn at(memory: &Arc<Memory>, offset: usize, width: u32, height: u32) -> Option<Self> {
        let pixels = width as usize * height as usize;
        let control = memory.at(offset, size_of::<Control>())?;
        let first = offset.checked_add(size_of::<Control>().next_multiple_of(PAGE))?;
        let pixels = memory.at(first, Self::pixel_bytes(pixels))?;
        Some(Self { memory: Arc::clone(memory), control: control.cast(), pixels, width, height })
    }

    /// The same place once more, to wake its waiters.
    pub fn again(&self) -> Self {
        Self { memory: Arc::clone(&self.memory), ..*self }
    }

    fn control(&self) -> &Control {
        // SAFETY: inside the mapping, aligned to 64 bytes, and atomics are valid for every bit
        // pattern.
        unsafe { self.control.as_ref() }
    }

    fn pixel_count(&self) -> usize {
        self.width as usize * self.height as usize
    }

    /// The memory of all its frames.
    pub(crate) fn pixel_memory(&self) -> PixelMemory {
        PixelMemory { start: self.pixels.as_ptr(), bytes: Self::pixel_bytes(self.pixel_count()) }
    }

    /// Colour and depth of a slot.
    fn slot(&self, slot: usize) -> (NonNull<u8>, NonNull<u8>) {
        let (rgb_at, depth_at, _) = places(slot, self.pixel_count());
        // SAFETY: both lie within the pixel memory, whose size `at` has checked.
        unsafe { (self.pixels.add(rgb_at), self.pixels.add(depth_at)) }
    }

    /// Wakes the cell's thread, which then looks at the breaker.
    pub(crate) fn wake_cell(&self) {
        self.control().answered.fetch_add(1, Ordering::SeqCst);
        futex::wake(&self.control().answered);
    }

    /// Wakes the worker's thread, which then looks whether it shall end.
    pub(crate) fn wake_worker(&self) {
        self.control().posted.fetch_add(1, Ordering::SeqCst);
        futex::wake(&self.control().posted);
    }
}

/// Generation and number of a question.
pub(crate) fn ticket(generation: u32, number: u32) -> u64 {
    u64::from(generation) << 32 | u64::from(number)
}

/// Result of a wait.
// A box would be an allocation per frame.
#[allow(clippy::large_enum_variant)]
#[derive(Debug)]
pub(crate) enum Waited {
    /// The answer to this very question.
    Answer(Answer),
    /// Its words make no sense.
    Garbled(Garbled),
    /// The deadline has passed.
    TimeUp,
    /// The caller does not want to wait any more.
    Abandoned,
}

/// The cell's end: one thread owns it.
#[derive(Debug)]
pub(crate) struct Asker {
    channel: Channel,
    number: u32,
    /// Ticket of the newest answer seen.
    seen: u64,
    words: [u64; ANSWER_WORDS],
}

impl Asker {
    pub fn new(channel: Channel) -> Self {
        Self { channel, number: 0, seen: 0, words: [0; ANSWER_WORDS] }
    }

    /// Posts a frame to the worker of `generation`; returns the ticket, or `None` when the frame
    /// has another size or a worker that breaks the rules holds both slots. Wait-free.
    pub fn post(&mut self, generation: u32, frame: &Frame, question: &mut Question) -> Option<u64> {
        let pixels = self.channel.pixel_count();
        if frame.rgb.len() != pixels * 3 || frame.depth_mm.len() != pixels {
            return None;
        }
        let control = self.channel.control();
        let ready = word_of(generation, Slot::Ready);
        let filling = word_of(generation, Slot::Filling);
        // A frame that nobody has taken is older than this one and need not be judged.
        let replaced = (0..SLOTS).find(|&slot| {
            let word = &control.slots[slot];
            word.compare_exchange(ready, filling, Ordering::Acquire, Ordering::Relaxed).is_ok()
        });
        let slot = replaced.or_else(|| {
            // Slots left behind by another generation's worker are free: that worker is dead.
            (0..SLOTS)
                .find(|&slot| control.slots[slot].load(Ordering::Acquire) != word_of(generation, Slot::Taken))
        })?;
        control.slots[slot].store(filling, Ordering::Relaxed);
        self.number = self.number.wrapping_add(1);
        question.ticket = ticket(generation, self.number);
        for (place, word) in control.questions[slot].iter().zip(question.words()) {
            place.store(word, Ordering::Relaxed);
        }
        let (colour, depth) = self.channel.slot(slot);
        // SAFETY: the slot is being filled: only this end touches its pixels, which are this many
        // bytes within the mapping, and the frame's sizes were checked above. Depth is stored in
        // this machine's byte order.
        unsafe {
            std::ptr::copy_nonoverlapping(frame.rgb.as_ptr(), colour.as_ptr(), pixels * 3);
            std::ptr::copy_nonoverlapping(frame.depth_mm.as_ptr().cast(), depth.as_ptr(), pixels * 2);
        }
        // Release: whoever takes the slot sees what is in it.
        control.slots[slot].store(ready, Ordering::Release);
        // SeqCst here and in `next`: either the worker sees the new count, or this thread sees that
        // it waits.
        control.posted.fetch_add(1, Ordering::SeqCst);
        if control.worker_waits.load(Ordering::SeqCst) != 0 {
            futex::wake(&control.posted);
        }
        Some(question.ticket)
    }

    /// Waits for the answer to `ticket` until `deadline_ns`. Answers to other questions are handed
    /// to `late`, each once. Ends early when `go_on` says so; it is asked after every wake-up.
    pub fn wait(
        &mut self,
        ticket: u64,
        deadline_ns: u64,
        mut go_on: impl FnMut() -> bool,
        mut late: impl FnMut(u64, Option<Answer>),
    ) -> Waited {
        loop {
            let count = self.channel.control().answered.load(Ordering::SeqCst);
            if let Some(answered) = self.newest() {
                if answered == ticket {
                    return match Answer::from_words(&self.words) {
                        Ok(answer) => Waited::Answer(answer),
                        Err(garbled) => Waited::Garbled(garbled),
                    };
                }
                late(answered, Answer::from_words(&self.words).ok());
            }
            if !go_on() {
                return Waited::Abandoned;
            }
            if monotonic_ns() >= deadline_ns {
                return Waited::TimeUp;
            }
            let control = self.channel.control();
            control.cell_waits.store(1, Ordering::SeqCst);
            if control.answered.load(Ordering::SeqCst) == count {
                futex::wait_until(&control.answered, count, deadline_ns);
            }
            control.cell_waits.store(0, Ordering::SeqCst);
        }
    }

    /// Reads the newest answer into `words` if it was not seen yet; its ticket.
    fn newest(&mut self) -> Option<u64> {
        let control = self.channel.control();
        for _ in 0..READ_ATTEMPTS {
            let before = control.version.load(Ordering::Acquire);
            if before % 2 == 1 {
                // Being written: its author wakes us when it is whole.
                return None;
            }
            for (word, place) in self.words.iter_mut().zip(&control.answer) {
                *word = place.load(Ordering::Relaxed);
            }
            fence(Ordering::Acquire);
            if control.version.load(Ordering::Relaxed) == before {
                let ticket = Answer::ticket_of(&self.words);
                if ticket == self.seen {
                    return None;
                }
                self.seen = ticket;
                return Some(ticket);
            }
        }
        None
    }
}

/// The worker's end: one thread owns it.
#[derive(Debug)]
pub(crate) struct Answerer {
    channel: Channel,
    generation: u32,
}

impl Answerer {
    pub fn new(channel: Channel, generation: u32) -> Self {
        Self { channel, generation }
    }

    /// The memory of all frames.
    pub(crate) fn pixel_memory(&self) -> PixelMemory {
        self.channel.pixel_memory()
    }

    /// Takes the frame that waits, if one does.
    pub fn take(&self) -> Option<Taken<'_>> {
        let control = self.channel.control();
        let ready = word_of(self.generation, Slot::Ready);
        let taken = word_of(self.generation, Slot::Taken);
        let slot = (0..SLOTS).find(|&slot| {
            control.slots[slot].compare_exchange(ready, taken, Ordering::Acquire, Ordering::Relaxed).is_ok()
        })?;
        let mut words = [0; QUESTION_WORDS];
        for (word, place) in words.iter_mut().zip(&control.questions[slot]) {
            *word = place.load(Ordering::Relaxed);
        }
        Some(Taken { answerer: self, slot, question: Question::from_words(&words) })
    }

    /// Takes the next frame; waits for it until `until_ns` at most.
    pub fn next(&self, until_ns: u64) -> Option<Taken<'_>> {
        let control = self.channel.control();
        let posted = control.posted.load(Ordering::SeqCst);
        if let Some(taken) = self.take() {
            return Some(taken);
        }
        control.worker_waits.store(1, Ordering::SeqCst);
        if control.posted.load(Ordering::SeqCst) == posted {
            futex::wait_until(&control.posted, posted, until_ns);
        }
        control.worker_waits.store(0, Ordering::SeqCst);
        self.take()
    }

    /// Waits until any camera of `all` may have a frame, until `until_ns` at most.
    pub(crate) fn wait_any(all: &[Self], until_ns: u64) {
        let controls = || all.iter().map(|answerer| answerer.channel.control());
        let mut posted = [0; futex::MAX_WORDS];
        for (posted, control) in posted.iter_mut().zip(controls()) {
            *posted = control.posted.load(Ordering::SeqCst);
            control.worker_waits.store(1, Ordering::SeqCst);
        }
        // After the counts were read: a frame that is ready now was posted before them or changes
        // them.
        let ready = controls().any(|control| {
            let ready = word_of(all[0].generation, Slot::Ready);
            control.slots.iter().any(|slot| slot.load(Ordering::SeqCst) == ready)
        });
        if !ready {
            futex::wait_any(controls().zip(posted).map(|(control, seen)| (&control.posted, seen)), until_ns);
        }
        controls().for_each(|control| control.worker_waits.store(0, Ordering::SeqCst));
    }

    /// Writes an answer and wakes the cell's thread.
    pub fn answer(&self, answer: &Answer) {
        let control = self.channel.control();
        // A predecessor that died while writing leaves an odd number.
        let even = control.version.load(Ordering::Relaxed).wrapping_add(1) & !1;
        control.version.store(even | 1, Ordering::Relaxed);
        fence(Ordering::Release);
        for (place, word) in control.answer.iter().zip(answer.words()) {
            place.store(word, Ordering::Relaxed);
        }
        control.version.store(even.wrapping_add(2), Ordering::Release);
        control.answered.fetch_add(1, Ordering::SeqCst);
        if control.cell_waits.load(Ordering::SeqCst) != 0 {
            futex::wake(&control.answered);
        }
    }
}

/// A frame that the worker holds; its slot is given back when this is dropped.
#[derive(Debug)]
pub(crate) struct Taken<'a> {
    answerer: &'a Answerer,
    slot: usize,
    pub question: Question,
}

impl Taken<'_> {
    /// The frame, where it lies.
    pub fn seen(&self) -> Seen<'_> {
        let channel = &self.answerer.channel;
        let pixels = channel.pixel_count();
        let (colour, depth) = channel.slot(self.slot);
        let (rgb_at, depth_at, _) = places(self.slot, pixels);
        // SAFETY: the slot is taken: the cell touches it only after it was given back, which needs
        // this value to be dropped. The places are this many bytes long and aligned to 64.
        let (rgb, depth_mm) = unsafe {
            (
                std::slice::from_raw_parts(colour.as_ptr(), pixels * 3),
                std::slice::from_raw_parts(depth.cast::<u16>().as_ptr(), pixels),
            )
        };
        let question = &self.question;
        let view = FrameView {
            sequence: question.sequence,
            capture_ns: question.capture_ns,
            arrival_ns: question.arrival_ns,
            width: channel.width,
            height: channel.height,
            rgb,
            depth_mm,
        };
        Seen { view, rgb_at, depth_at }
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        // A device may still read the pixels of a frame that was given up: what comes of that is
        // never used.
        let free = word_of(self.answerer.generation, Slot::Free);
        self.answerer.channel.control().slots[self.slot].store(free, Ordering::Release);
    }
}

#[cfg(test)]
mod tests;

//! The process's shared memory: made when the first loop is declared, and there until the process
//! ends.
//!
//! A forked child shares its parent's mappings, and two writers would spoil the rings. So the child
//! gets empty pages in their place (its copies of the parent's loops then record nothing), closes
//! the file, and begins anew if it declares loops of its own.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU8, AtomicU64, Ordering};

use crate::error::{Error, errno};
use crate::layout::{
    HEAD_BYTES, Head, KIND_DRIVEN, KIND_PERIODIC, MAGIC, MAX_LOOPS, MAX_REFUSALS, MEMFD_NAME, REFUSED_FULL,
    REFUSED_PERIOD, REFUSED_TWICE, RING_BYTES, RING_RECORDS, RING_WORDS, STATE_CLOSED, STATE_OPEN, Slot,
    TOTAL_BYTES, VERSION, ring_offset,
};
use crate::ring::Ring;
use crate::system;

/// What this process has. Declaring and closing loops takes the lock; records never do.
struct Region {
    lock: AtomicBool,
    head: AtomicPtr<Head>,
    rings: [AtomicPtr<AtomicU64>; MAX_LOOPS],
    file: AtomicI32,
    /// Of the file, so that a number that means another file by now is left alone.
    device: AtomicU64,
    inode: AtomicU64,
    knows_forks: AtomicBool,
}

static REGION: Region = Region {
    lock: AtomicBool::new(false),
    head: AtomicPtr::new(std::ptr::null_mut()),
    rings: [const { AtomicPtr::new(std::ptr::null_mut()) }; MAX_LOOPS],
    file: AtomicI32::new(-1),
    device: AtomicU64::new(0),
    inode: AtomicU64::new(0),
    knows_forks: AtomicBool::new(false),
};

/// The lock. No standard mutex: a child must be able to open the one that its parent held.
struct Locked;

impl Locked {
    fn new() -> Self {
        while REGION.lock.swap(true, Ordering::Acquire) {
            std::thread::yield_now();
        }
        Self
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        REGION.lock.store(false, Ordering::Release);
    }
}

extern "C" fn before_fork() {
    std::mem::forget(Locked::new());
}

extern "C" fn after_fork_in_the_parent() {
    drop(Locked);
}

extern "C" fn after_fork_in_the_child() {
    let head = REGION.head.swap(std::ptr::null_mut(), Ordering::AcqRel);
    if !head.is_null() {
        system::empty(head.cast(), HEAD_BYTES);
    }
    for ring in &REGION.rings {
        let ring = ring.swap(std::ptr::null_mut(), Ordering::AcqRel);
        if !ring.is_null() {
            system::empty(ring.cast(), RING_BYTES);
        }
    }
    let file = REGION.file.swap(-1, Ordering::AcqRel);
    let own = (REGION.device.load(Ordering::Relaxed), REGION.inode.load(Ordering::Relaxed));
    if file >= 0 && system::identity(file) == Some(own) {
        system::close(file);
    }
    drop(Locked);
}

/// A declared loop, where it lies.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    slot: NonNull<Slot>,
    words: NonNull<AtomicU64>,
    pub(crate) number: u16,
}

// SAFETY: it leads to atomics alone, in mappings that stay until the process ends.
unsafe impl Send for Place {}

impl Place {
    #[inline]
    pub(crate) fn slot(&self) -> &Slot {
        // SAFETY: the head is never unmapped, and holds atomics alone.
        unsafe { self.slot.as_ref() }
    }

    #[inline]
    pub(crate) fn ring(&self) -> Option<Ring<'_>> {
        // SAFETY: a ring is mapped whole, aligned, never unmapped, and holds atomics alone.
        let words = unsafe { std::slice::from_raw_parts(self.words.as_ptr(), RING_WORDS) };
        Ring::new(&self.slot().counters, words)
    }

    /// The loop may be declared again.
    pub(crate) fn close(&self) {
        let _lock = Locked::new();
        self.slot().state.store(STATE_CLOSED, Ordering::Release);
    }
}

/// What a program declares.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Declaration<'a> {
    pub(crate) name: &'a str,
    /// `None` for a driven loop.
    pub(crate) period_ns: Option<u64>,
    pub(crate) deadline_ns: u64,
    pub(crate) tid: u32,
}

/// Writes a text and a zero behind it.
pub(crate) fn write_text(to: &[AtomicU8], text: &str) {
    let most = to.len().saturating_sub(1);
    for (at, place) in to.iter().enumerate() {
        let byte = text.as_bytes().get(at).copied().filter(|_| at < most);
        place.store(byte.unwrap_or(0), Ordering::Relaxed);
    }
}

/// Whether such a text stands there.
pub(crate) fn is_text(there: &[AtomicU8], text: &str) -> bool {
    let bytes = text.bytes().chain(std::iter::once(0));
    text.len() < there.len() && there.iter().zip(bytes).all(|(one, byte)| one.load(Ordering::Relaxed) == byte)
}

fn refuse(head: &Head, why: u32, declaration: &Declaration<'_>) {
    let at = head.refused.fetch_add(1, Ordering::Relaxed) as usize;
    if let Some(refusal) = head.refusals.get(at.min(MAX_REFUSALS)) {
        refusal.period_ns.store(declaration.period_ns.unwrap_or(0), Ordering::Relaxed);
        write_text(&refusal.name, declaration.name);
        refusal.why.store(why, Ordering::Release);
    }
}

/// Leaves a note for a session that a period could not be used.
pub(crate) fn refuse_period(declaration: &Declaration<'_>) -> Result<(), Error> {
    let _lock = Locked::new();
    refuse(head()?, REFUSED_PERIOD, declaration);
    Ok(())
}

/// Declares a loop.
///
/// # Errors
/// [`Error::DeclaredTwice`], [`Error::TooManyLoops`], [`Error::Memory`].
pub(crate) fn declare(declaration: &Declaration<'_>) -> Result<Place, Error> {
    let _lock = Locked::new();
    let head = head()?;
    let used = head.loops.load(Ordering::Relaxed) as usize;
    let known =
        head.slots[..used.min(MAX_LOOPS)].iter().position(|slot| is_text(&slot.name, declaration.name));
    let number = match known {
        Some(number) if head.slots[number].state.load(Ordering::Relaxed) == STATE_OPEN => {
            refuse(head, REFUSED_TWICE, declaration);
            return Err(Error::DeclaredTwice { name: declaration.name.to_owned() });
        }
        Some(number) => number,
        None if used >= MAX_LOOPS => {
            refuse(head, REFUSED_FULL, declaration);
            return Err(Error::TooManyLoops);
        }
        None => used,
    };
    let words = ring(number)?;
    let slot = &head.slots[number];
    let kind = if declaration.period_ns.is_some() { KIND_PERIODIC } else { KIND_DRIVEN };
    slot.kind.store(kind, Ordering::Relaxed);
    slot.period_ns.store(declaration.period_ns.unwrap_or(0), Ordering::Relaxed);
    slot.deadline_ns.store(declaration.deadline_ns, Ordering::Relaxed);
    slot.spin_ns.store(0, Ordering::Relaxed);
    slot.tid.store(declaration.tid, Ordering::Relaxed);
    if known.is_none() {
        write_text(&slot.name, declaration.name);
    }
    slot.state.store(STATE_OPEN, Ordering::Release);
    if known.is_none() {
        // A session looks at slots below this number alone.
        head.loops.store(number as u32 + 1, Ordering::Release);
    }
    Ok(Place { slot: NonNull::from(slot), words, number: number as u16 })
}

/// The head of this process, made where there is none. The lock is held.
fn head() -> Result<&'static Head, Error> {
    if let Some(head) = NonNull::new(REGION.head.load(Ordering::Acquire)) {
        // SAFETY: mapped whole, never unmapped, atomics alone.
        return Ok(unsafe { head.as_ref() });
    }
    if !REGION.knows_forks.swap(true, Ordering::AcqRel) {
        system::at_fork(before_fork, after_fork_in_the_parent, after_fork_in_the_child)?;
    }
    let file = system::sealed_memory(MEMFD_NAME, TOTAL_BYTES)?;
    let base = match system::map(file, 0, HEAD_BYTES) {
        Ok(base) => base.cast::<Head>(),
        Err(error) => {
            system::close(file);
            return Err(error);
        }
    };
    let (device, inode) =
        system::identity(file).ok_or_else(|| Error::Memory { what: "fstat", errno: errno() })?;
    // SAFETY: mapped whole and aligned to a page; zeros are valid atomics.
    let head = unsafe { base.as_ref() };
    head.version.store(VERSION, Ordering::Relaxed);
    head.pid.store(std::process::id(), Ordering::Relaxed);
    head.max_loops.store(MAX_LOOPS as u32, Ordering::Relaxed);
    head.ring_records.store(RING_RECORDS as u32, Ordering::Relaxed);
    head.magic.store(MAGIC, Ordering::Release);
    REGION.device.store(device, Ordering::Relaxed);
    REGION.inode.store(inode, Ordering::Relaxed);
    REGION.file.store(file, Ordering::Release);
    REGION.head.store(base.as_ptr(), Ordering::Release);
    Ok(head)
}

/// The ring of a slot, mapped where it was not. The lock is held.
fn ring(number: usize) -> Result<NonNull<AtomicU64>, Error> {
    if let Some(ring) = NonNull::new(REGION.rings[number].load(Ordering::Acquire)) {
        return Ok(ring);
    }
    let file = REGION.file.load(Ordering::Acquire);
    let own = (REGION.device.load(Ordering::Relaxed), REGION.inode.load(Ordering::Relaxed));
    if system::identity(file) != Some(own) {
        // A daemon that closes all its descriptors has closed this one, too.
        return Err(Error::Memory { what: "the descriptor of the records was closed", errno: libc::EBADF });
    }
    let base = system::map(file, ring_offset(number), RING_BYTES)?.cast::<AtomicU64>();
    // Every page exists before the loop writes to it.
    for at in (0..RING_WORDS).step_by(512) {
        // SAFETY: within the mapping, which nobody else knows of yet but sessions that read.
        unsafe { base.add(at).as_ref() }.store(0, Ordering::Relaxed);
    }
    REGION.rings[number].store(base.as_ptr(), Ordering::Release);
    Ok(base)
}

const _: () = assert!(HEAD_BYTES.is_multiple_of(65_536) && RING_BYTES.is_multiple_of(65_536));
const _: () = assert!(MAX_LOOPS <= u16::MAX as usize);

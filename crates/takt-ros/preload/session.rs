//! Where the session is, the shared file of this process, and its rings.

use std::cell::UnsafeCell;
use std::ffi::{c_char, c_void};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::c::{
    Appender, CLOCK_MONOTONIC, MADV_DONTFORK, MADV_WIPEONFORK, MAP_POPULATE, MAP_PRIVATE_ANONYMOUS, MAP_SHARED,
    O_CLOEXEC, O_CREAT, O_EXCL, O_RDWR, PROT_BOTH, clock, close, complain, getenv, getpid, gettid, madvise, mmap, munmap,
    number, open, posix_fallocate, pthread_key_create, read, start_ticks, text, unlink,
};
use crate::process::thread_ends;
use crate::ring::{self, FileHeader, MAGIC, MAX_RINGS, PAGE, RingView, VERSION, Writer, state};

/// States of the word on the wiped page; greater numbers are generations.
pub const NOT_YET: u32 = 0;
const UNDER_WAY: u32 = 1;
pub const OFF: u32 = 2;
pub const FIRST_GENERATION: u32 = 16;
/// Of a thread that has not seen any event.
pub const NO_GENERATION: u32 = u32::MAX;

/// What stands for the wiped page before there is one, or when there is no session: the probe is
/// off.
static NO_PAGE: AtomicU32 = AtomicU32::new(OFF);
static PAGE_WORD: AtomicPtr<AtomicU32> = AtomicPtr::new((&raw const NO_PAGE).cast_mut());
static LAST_GENERATION: AtomicU32 = AtomicU32::new(FIRST_GENERATION - 1);

#[inline]
pub fn generation() -> &'static AtomicU32 {
    // SAFETY: points to the static above or to the page, which is never unmapped.
    unsafe { &*PAGE_WORD.load(Ordering::Acquire) }
}

const MAX_PATH: usize = 1024;

/// Set once, when the library is loaded, and read afterwards; and the file's path, set by whoever
/// wins the setting-up.
struct Place {
    directory: UnsafeCell<[u8; MAX_PATH]>,
    directory_bytes: AtomicUsize,
    file: UnsafeCell<[u8; MAX_PATH]>,
}

// SAFETY: `directory` is written while the library is loaded, by one thread; `file` by the one
// thread that has moved the generation from NOT_YET to UNDER_WAY, and read only by those that saw
// the generation after that.
unsafe impl Sync for Place {}

static PLACE: Place = Place {
    directory: UnsafeCell::new([0; MAX_PATH]),
    directory_bytes: AtomicUsize::new(0),
    file: UnsafeCell::new([0; MAX_PATH]),
};

static RING_WORDS: AtomicUsize = AtomicUsize::new(32 * 1024);
pub static CPU_CODES: AtomicU64 = AtomicU64::new(ring::CPU_NEEDED);
static HEADER: AtomicPtr<FileHeader> = AtomicPtr::new(std::ptr::null_mut());
static RINGS: [AtomicPtr<u8>; MAX_RINGS] = [const { AtomicPtr::new(std::ptr::null_mut()) }; MAX_RINGS];
/// That there is no space for a ring is said once.
static COMPLAINED: AtomicBool = AtomicBool::new(false);
pub static THREAD_KEY: AtomicU32 = AtomicU32::new(u32::MAX);

/// The file's header, if there is one.
pub fn header() -> Option<&'static FileHeader> {
    match generation().load(Ordering::Acquire) >= FIRST_GENERATION {
        // SAFETY: null or a mapping that stays; a forked child sets it anew before any use (its
        // generation is cleared).
        true => unsafe { HEADER.load(Ordering::Acquire).as_ref() },
        false => None,
    }
}

pub fn without_ring() {
    if let Some(header) = header() {
        header.without_ring.fetch_add(1, Ordering::Relaxed);
    }
}

/// When the library is loaded: where the session is. Without one the probe stays off for good.
pub fn load() {
    // SAFETY: the environment is read while the program is being loaded, before it has threads of
    // its own.
    unsafe {
        let directory = text(getenv(c"TAKT_PROBE_DIR".as_ptr()));
        // Room for the file's name and its end.
        if directory.is_empty() {
            return;
        }
        if directory.len() + 64 > MAX_PATH {
            return complain(b"the path of the session's directory is too long");
        }
        (&mut *PLACE.directory.get())[..directory.len()].copy_from_slice(directory);
        PLACE.directory_bytes.store(directory.len(), Ordering::Relaxed);
        if let Some(kib) = number(text(getenv(c"TAKT_PROBE_RING_KIB".as_ptr()))) {
            let words = (kib.min(1 << 20) as usize * 128).next_power_of_two();
            RING_WORDS.store(words.clamp(ring::MIN_WORDS, ring::MAX_WORDS), Ordering::Relaxed);
        }
        match text(getenv(c"TAKT_PROBE_CPU".as_ptr())) {
            b"all" => CPU_CODES.store(u64::MAX, Ordering::Relaxed),
            b"none" => CPU_CODES.store(0, Ordering::Relaxed),
            _ => {}
        }
        let page = mmap(std::ptr::null_mut(), PAGE, PROT_BOTH, MAP_PRIVATE_ANONYMOUS, -1, 0);
        if page as isize == -1 || madvise(page, PAGE, MADV_WIPEONFORK) != 0 {
            return complain(b"the kernel cannot clear a page on fork (Linux 4.14)");
        }
        let mut key = 0;
        if pthread_key_create(&mut key, Some(thread_ends)) != 0 {
            return complain(b"no thread-specific key is left");
        }
        THREAD_KEY.store(key, Ordering::Relaxed);
        // The page's word is 0: NOT_YET.
        PAGE_WORD.store(page.cast(), Ordering::Release);
    }
}

/// When the process leaves by `exit`.
pub fn unload() {
    if let Some(header) = header() {
        header.state.store(state::ENDED, Ordering::Release);
    }
}

/// The process's first event, or its first after a fork: makes the file. Returns the state that
/// holds then.
pub fn set_up() -> u32 {
    let word = generation();
    // Whoever comes second goes without until the first is through: it waits for nobody.
    if let Err(now) = word.compare_exchange(NOT_YET, UNDER_WAY, Ordering::Acquire, Ordering::Acquire) {
        return now;
    }
    for ring in &RINGS {
        ring.store(std::ptr::null_mut(), Ordering::Relaxed);
    }
    let now = match make_file() {
        Ok(header) => {
            HEADER.store(header, Ordering::Release);
            LAST_GENERATION
                .fetch_add(1, Ordering::Relaxed)
                .wrapping_add(1)
                .clamp(FIRST_GENERATION, NO_GENERATION - 1)
        }
        Err(what) => {
            complain(what);
            OFF
        }
    };
    word.store(now, Ordering::Release);
    now
}

fn make_file() -> Result<*mut FileHeader, &'static [u8]> {
    let opened_ns = clock(CLOCK_MONOTONIC);
    // SAFETY: takes nothing.
    let pid = unsafe { getpid() } as u32;
    // SAFETY: only the thread that sets up comes here (see `Place`); the directory was written at
    // load.
    let path = unsafe {
        let directory = &(&*PLACE.directory.get())[..PLACE.directory_bytes.load(Ordering::Relaxed)];
        let file = &mut *PLACE.file.get();
        *file = [0; MAX_PATH];
        let mut writer = Appender { to: file, used: 0 };
        writer.bytes(directory);
        writer.bytes(b"/");
        writer.number(u64::from(pid), 10);
        writer.bytes(b"-");
        writer.number(opened_ns, 16);
        writer.bytes(b".ring");
        file.as_ptr().cast::<c_char>()
    };
    // SAFETY: plain calls on a path that ends in zero; the mapping is new, and only pointers into
    // it are formed.
    unsafe {
        let fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0o600);
        if fd < 0 {
            return Err(b"cannot make a file in the session's directory");
        }
        if posix_fallocate(fd, 0, PAGE as i64) != 0 {
            close(fd);
            unlink(path);
            return Err(b"no space for the file in the session's directory");
        }
        let page = mmap(std::ptr::null_mut(), PAGE, PROT_BOTH, MAP_SHARED | MAP_POPULATE, fd, 0);
        close(fd);
        if page as isize == -1 || madvise(page, PAGE, MADV_DONTFORK) != 0 {
            unlink(path);
            return Err(b"cannot map the file in the session's directory");
        }
        let header = page.cast::<FileHeader>();
        let to = &*header;
        to.version.store(VERSION, Ordering::Relaxed);
        to.pid.store(pid, Ordering::Relaxed);
        to.start_ticks.store(start_ticks(), Ordering::Relaxed);
        to.opened_ns.store(opened_ns, Ordering::Relaxed);
        to.ring_words.store(RING_WORDS.load(Ordering::Relaxed) as u32, Ordering::Relaxed);
        to.state.store(state::LIVE, Ordering::Relaxed);
        to.name[0].store(0, Ordering::Relaxed);
        let mut name = [0u8; 16];
        // The main thread's name is the program's; /proc/self/comm is it whichever thread asks.
        let comm = open(c"/proc/self/comm".as_ptr(), O_CLOEXEC, 0);
        if comm >= 0 {
            let count = read(comm, name.as_mut_ptr().cast(), 15);
            close(comm);
            let end = name.iter().position(|&byte| byte == b'\n' || byte == 0).unwrap_or(0);
            name[end.min(usize::try_from(count).unwrap_or(0))..].fill(0);
        }
        for (to, from) in to.name.iter().zip(name.chunks_exact(8)) {
            to.store(from.try_into().map_or(0, u64::from_le_bytes), Ordering::Relaxed);
        }
        to.magic.store(MAGIC, Ordering::Release);
        Ok(header)
    }
}

/// A ring for this thread: one that a thread left, or a new one. `None`: there is no room; its
/// events are counted.
pub fn claim() -> Option<Writer<'static>> {
    let header = header()?;
    let words = RING_WORDS.load(Ordering::Relaxed);
    // SAFETY: takes nothing.
    let tid = unsafe { gettid() } as u32;
    for base in RINGS.iter().take(header.rings.load(Ordering::Relaxed) as usize) {
        let base = base.load(Ordering::Acquire);
        if base.is_null() {
            continue;
        }
        // SAFETY: the mapping of a whole ring, which stays.
        let ring = unsafe { RingView::at(base, words) };
        let waiting = |ring: &RingView<'_>| {
            ring.header.head.load(Ordering::Relaxed).wrapping_sub(ring.header.tail.load(Ordering::Relaxed))
        };
        let free = ring.header.owner.load(Ordering::Relaxed) == 0 && waiting(&ring) < words as u64 / 4;
        if free && ring.header.owner.compare_exchange(0, tid, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            if waiting(&ring) < words as u64 / 2 {
                return Some(Writer::new(ring));
            }
            ring.header.owner.store(0, Ordering::Release);
        }
    }
    let index = header.rings.fetch_add(1, Ordering::Relaxed) as usize;
    let slot = RINGS.get(index)?;
    let bytes = ring::ring_bytes(words);
    let offset = ring::ring_offset(index, words) as i64;
    // SAFETY: the path was written before the generation that this thread has seen; the mapping is
    // new. Opened by its name each time: a descriptor kept open could have been closed, or
    // replaced, by a program that closes all it does not know.
    let base = unsafe {
        let fd = open((*PLACE.file.get()).as_ptr().cast(), O_RDWR | O_CLOEXEC, 0);
        if fd < 0 {
            // The session has ended, as a rule; or the program has left for another root directory.
            return None;
        }
        // All its blocks and pages now: later a full disk would be a SIGBUS, and a page fault a
        // delay.
        let full = posix_fallocate(fd, offset, bytes as i64);
        let base = match full != 0 {
            true => -1isize as *mut c_void,
            false => mmap(std::ptr::null_mut(), bytes, PROT_BOTH, MAP_SHARED | MAP_POPULATE, fd, offset),
        };
        close(fd);
        if base as isize == -1 {
            if !COMPLAINED.swap(true, Ordering::Relaxed) {
                complain(b"no space for the rings of its threads, whose events are only counted");
            }
            return None;
        }
        if madvise(base, bytes, MADV_DONTFORK) != 0 {
            munmap(base, bytes);
            return None;
        }
        base.cast::<u8>()
    };
    // SAFETY: as above.
    let ring = unsafe { RingView::at(base, words) };
    ring.header.owner.store(tid, Ordering::Relaxed);
    ring.header.ready.store(1, Ordering::Release);
    slot.store(base, Ordering::Release);
    Some(Writer::new(ring))
}

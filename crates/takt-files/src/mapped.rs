//! Shared memory in files that somebody else can shorten.
//!
//! A user who may write to a file may also truncate it, and touching a page that has gone is
//! SIGBUS, which ends the process. Checking the size first does not help, because the file can be
//! truncated afterwards. A sealed `memfd` cannot be truncated; where a file needs a name,
//! [`Mapped`] survives it: a handler of SIGBUS puts an empty page in the place of the one that has
//! gone, and notes that the mapping is [broken](Mapped::is_broken). Later reads of it return zeros,
//! which are worthless.
//!
//! Faults anywhere else go to the handler that was there before.

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Mappings of one process at a time: rings of some thousand threads.
const MAX_MAPPINGS: usize = 16_384;

/// Address of a mapping; no base: the place is free.
struct Place {
    base: AtomicUsize,
    bytes: AtomicUsize,
    taken: AtomicBool,
    broken: AtomicBool,
}

static PLACES: [Place; MAX_MAPPINGS] = [const {
    Place {
        base: AtomicUsize::new(0),
        bytes: AtomicUsize::new(0),
        taken: AtomicBool::new(false),
        broken: AtomicBool::new(false),
    }
}; MAX_MAPPINGS];
static PAGE_BYTES: AtomicUsize = AtomicUsize::new(4096);

/// The handler that was there before ours.
struct Before(libc::sigaction);
// SAFETY: plain numbers and the address of a function.
unsafe impl Send for Before {}
// SAFETY: it is written once and read afterwards.
unsafe impl Sync for Before {}
static BEFORE: OnceLock<Before> = OnceLock::new();

/// A part of a file, shared with whoever else maps it. It goes when this is dropped.
#[derive(Debug)]
pub struct Mapped {
    base: NonNull<u8>,
    bytes: usize,
    place: usize,
}

// SAFETY: an address and numbers; those who use the memory say for themselves how they share it.
unsafe impl Send for Mapped {}

impl Mapped {
    /// Maps `bytes` of `file` from `offset` on, a multiple of the page size, to be read and
    /// written.
    ///
    /// # Errors
    /// The system's answer; [`io::ErrorKind::OutOfMemory`] where 16,384 are mapped already.
    pub fn new(file: &File, offset: usize, bytes: usize) -> io::Result<Self> {
        survive()?;
        let offset =
            libc::off_t::try_from(offset).map_err(|_| io::Error::from_raw_os_error(libc::EOVERFLOW))?;
        let place = PLACES
            .iter()
            .position(|place| !place.taken.swap(true, Ordering::Acquire))
            .ok_or_else(|| io::Error::new(io::ErrorKind::OutOfMemory, "too many files are mapped"))?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping; nothing is replaced.
        let base = unsafe {
            libc::mmap(std::ptr::null_mut(), bytes, protection, libc::MAP_SHARED, file.as_raw_fd(), offset)
        };
        let base = match NonNull::new(base.cast::<u8>()) {
            Some(base) if base.as_ptr().cast() != libc::MAP_FAILED => base,
            _ => {
                let error = io::Error::last_os_error();
                PLACES[place].taken.store(false, Ordering::Release);
                return Err(error);
            }
        };
        PLACES[place].broken.store(false, Ordering::Relaxed);
        PLACES[place].bytes.store(bytes, Ordering::Relaxed);
        PLACES[place].base.store(base.as_ptr() as usize, Ordering::Release);
        Ok(Self { base, bytes, place })
    }

    /// Its address.
    #[must_use]
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Whether the file was cut, and a page that has gone was touched. Data read since then may be
    /// zeros that nobody wrote.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        PLACES[self.place].broken.load(Ordering::Acquire)
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        let place = &PLACES[self.place];
        place.base.store(0, Ordering::Release);
        // SAFETY: exactly what was mapped; no reference into it outlives `self`.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
        place.taken.store(false, Ordering::Release);
    }
}

/// Installs the handler, once.
fn survive() -> io::Result<()> {
    static INSTALLED: OnceLock<Result<(), i32>> = OnceLock::new();
    let installed = INSTALLED.get_or_init(|| {
        // SAFETY: takes a number and returns one.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        if let Ok(page) = usize::try_from(page) {
            PAGE_BYTES.store(page, Ordering::Relaxed);
        }
        let mut before = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: asks for the present handler; the kernel fills the structure when it returns 0.
        if unsafe { libc::sigaction(libc::SIGBUS, std::ptr::null(), before.as_mut_ptr()) } != 0 {
            return Err(io::Error::last_os_error().raw_os_error().unwrap_or(0));
        }
        // SAFETY: zeroed, and filled by the call above.
        let _ = BEFORE.set(Before(unsafe { before.assume_init() }));
        // SAFETY: all zeros is a valid value: no flags, no handler, an empty mask.
        let mut ours: libc::sigaction = unsafe { std::mem::zeroed() };
        let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = on_fault;
        ours.sa_sigaction = handler as usize;
        ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        // SAFETY: a handler that calls nothing but what a handler may call.
        match unsafe { libc::sigaction(libc::SIGBUS, &raw const ours, std::ptr::null_mut()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error().raw_os_error().unwrap_or(0)),
        }
    });
    installed.map_err(io::Error::from_raw_os_error)
}

/// A page of a mapping has gone: an empty one takes its place.
extern "C" fn on_fault(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel hands over a valid structure; SIGBUS has an address in it.
    let at = unsafe { (*info).si_addr() } as usize;
    let page_bytes = PAGE_BYTES.load(Ordering::Relaxed);
    for place in &PLACES {
        let base = place.base.load(Ordering::Acquire);
        if base == 0 || at.wrapping_sub(base) >= place.bytes.load(Ordering::Relaxed) {
            continue;
        }
        let page = (at & !(page_bytes - 1)) as *mut libc::c_void;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        // SAFETY: the page is of a mapping that is registered, and so of nobody else; the memory
        // behind it has gone.
        let put = unsafe { libc::mmap(page, page_bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        if put != libc::MAP_FAILED {
            place.broken.store(true, Ordering::Release);
            return;
        }
    }
    hand_on(signal, info, context);
}

/// The fault is none of ours.
fn hand_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let before = BEFORE.get().map(|before| &before.0);
    match before.map(|before| (before.sa_sigaction, before.sa_flags & libc::SA_SIGINFO != 0)) {
        None | Some((libc::SIG_DFL | libc::SIG_IGN, _)) => {
            // SAFETY: the default is put back; the instruction faults again, and the process ends.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        Some((handler, true)) => {
            // SAFETY: a handler that was installed with SA_SIGINFO has this type.
            let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                unsafe { std::mem::transmute(handler) };
            handler(signal, info, context);
        }
        Some((handler, false)) => {
            // SAFETY: a handler that was installed without SA_SIGINFO has this type.
            let handler: extern "C" fn(libc::c_int) = unsafe { std::mem::transmute(handler) };
            handler(signal);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    fn word(mapped: &Mapped, at: usize) -> &AtomicU64 {
        // SAFETY: within the mapping, and aligned.
        unsafe { &*mapped.base().as_ptr().add(at).cast::<AtomicU64>() }
    }

    #[test]
    fn a_file_that_is_cut_breaks_its_mapping_and_nothing_else() {
        let page = 4096;
        let [cut, whole] = [(); 2].map(|()| tempfile::tempfile().unwrap());
        for file in [&cut, &whole] {
            file.set_len(4 * page as u64).unwrap();
        }
        let mapped = Mapped::new(&cut, 0, 4 * page).unwrap();
        let other = Mapped::new(&whole, page, page).unwrap();
        word(&mapped, 3 * page).store(7, Ordering::Relaxed);
        word(&other, 0).store(9, Ordering::Relaxed);
        assert!(!mapped.is_broken());
        cut.set_len(page as u64).unwrap();
        // The rest can still be read without an error.
        assert_eq!((word(&mapped, 8).load(Ordering::Relaxed), mapped.is_broken()), (0, false));
        assert_eq!(word(&mapped, 3 * page).load(Ordering::Relaxed), 0);
        assert!(mapped.is_broken() && !other.is_broken());
        // Written to, too.
        word(&mapped, 2 * page).store(1, Ordering::Relaxed);
        assert_eq!(word(&other, 0).load(Ordering::Relaxed), 9);
        // Its place serves the next one, which is whole.
        drop(mapped);
        let again = Mapped::new(&whole, 0, page).unwrap();
        assert!(!again.is_broken());
    }

    #[test]
    fn a_file_that_is_cut_all_the_time_is_read_all_the_same() {
        let file = tempfile::tempfile().unwrap();
        let cutter = file.try_clone().unwrap();
        let done = std::sync::Arc::new(AtomicBool::new(false));
        let stop = std::sync::Arc::clone(&done);
        let thread = std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                cutter.set_len(65536).unwrap();
                cutter.set_len(0).unwrap();
            }
        });
        for _ in 0..200 {
            let mapped = Mapped::new(&file, 0, 65536).unwrap();
            for at in (0..65536).step_by(4096) {
                word(&mapped, at).fetch_add(1, Ordering::Relaxed);
            }
        }
        done.store(true, Ordering::Relaxed);
        thread.join().unwrap();
    }
}

//! The memory of one process: opened without being led astray, mapped, and read without belief.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use takt_rt::procfs;
use takt_sdk::layout::{
    HEAD_BYTES, Head, KIND_DRIVEN, KIND_PERIODIC, MAGIC, MAX_LOOPS, MAX_PERIOD_NS, MAX_REFUSALS, MAX_STAGES,
    REFUSED_FULL, REFUSED_PERIOD, REFUSED_TWICE, RING_BYTES, RING_RECORDS, RING_WORDS, STATE_OPEN, Slot,
    TOTAL_BYTES, VERSION, ring_offset,
};

use super::{Declared, Refusal, thread_of};

/// `TMPFS_MAGIC` of linux/magic.h: what a memfd lies in, but for huge pages.
const TMPFS: u32 = 0x0102_1994;

/// Why a memory is not read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// The program is still making it.
    NotReady,
    /// It could be cut while it is read.
    NotSealed,
    /// Its size is another one.
    Size { found: u64 },
    /// Another version of it.
    Version { found: u32 },
    /// It cannot be opened or mapped.
    Denied { reason: String },
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotReady => f.write_str("it is not ready"),
            Self::NotSealed => f.write_str(
                "the memory is not sealed, so that the program could cut it off; the library seals it",
            ),
            Self::Size { found } => {
                write!(f, "the memory has {found} bytes, and version {VERSION} has {TOTAL_BYTES}")
            }
            Self::Version { found } => write!(
                f,
                "the program's library writes version {found}, and this Takt reads version {VERSION}: update the older one of the two"
            ),
            Self::Denied { reason } => write!(f, "{reason}; run Takt as the program's user, or as root"),
        }
    }
}

/// An open memory.
#[derive(Debug)]
pub(super) struct Opened {
    file: File,
    pub(super) identity: (u64, u64),
}

fn last_error() -> Refused {
    Refused::Denied { reason: io::Error::last_os_error().to_string() }
}

fn open_at(path: &Path, flags: libc::c_int) -> io::Result<OwnedFd> {
    let path = std::ffi::CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: a C string; the flags create nothing.
    let file = unsafe { libc::open(path.as_ptr(), flags | libc::O_CLOEXEC) };
    if file < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(file) })
}

/// Identity of a file that is refused, and the reason.
type RefusedFile = ((u64, u64), Refused);

/// Opens the file behind an entry of `/proc/PID/fd`. The program may put another file there at any
/// moment: it is looked at before it is opened, and what was looked at is what is opened. `None`:
/// it is gone.
pub(super) fn open(path: &Path) -> Result<Opened, Option<RefusedFile>> {
    use std::os::unix::fs::{FileTypeExt, MetadataExt};
    // Opens nothing: no device is touched, no pipe waited for.
    let place = open_at(path, libc::O_PATH).map_err(|_| None)?;
    let data = File::from(place.try_clone().map_err(|_| None)?).metadata().map_err(|_| None)?;
    let kind = data.file_type();
    if kind.is_fifo()
        || kind.is_socket()
        || kind.is_char_device()
        || kind.is_block_device()
        || !data.is_file()
    {
        return Err(None);
    }
    let identity = (data.dev(), data.ino());
    let refused = |why| Err(Some((identity, why)));
    let own = format!("/proc/self/fd/{}", place.as_raw_fd());
    let file = match open_at(Path::new(&own), libc::O_RDWR | libc::O_NONBLOCK | libc::O_NOCTTY) {
        Ok(file) => File::from(file),
        Err(error) => return refused(Refused::Denied { reason: error.to_string() }),
    };
    // SAFETY: asks for the seals; touches no memory.
    let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
    if seals < 0 {
        // No memfd at all.
        return Err(None);
    }
    let needed = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW;
    if seals & needed != needed {
        // A memory is sealed a moment after it was made.
        return if seals & libc::F_SEAL_SEAL == 0 { Err(None) } else { refused(Refused::NotSealed) };
    }
    let mut about = std::mem::MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: the structure outlives the call.
    if unsafe { libc::fstatfs(file.as_raw_fd(), about.as_mut_ptr()) } != 0 {
        return refused(last_error());
    }
    // SAFETY: filled in by the call.
    let kind = unsafe { about.assume_init() }.f_type;
    #[allow(clippy::cast_possible_truncation, reason = "it has other types on other machines")]
    if kind as u32 != TMPFS {
        // Touching a huge page that cannot be had is SIGBUS.
        return refused(Refused::NotSealed);
    }
    // Now that it cannot change any more.
    match file.metadata() {
        Ok(data) if data.len() == TOTAL_BYTES as u64 => Ok(Opened { file, identity }),
        Ok(data) => refused(Refused::Size { found: data.len() }),
        Err(error) => refused(Refused::Denied { reason: error.to_string() }),
    }
}

/// A part of a memory.
#[derive(Debug)]
struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: an address and a length; what lies there are atomics.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(file: &File, offset: usize, bytes: usize) -> io::Result<Self> {
        let offset = libc::off_t::try_from(offset).map_err(io::Error::other)?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe {
            libc::mmap(std::ptr::null_mut(), bytes, protection, libc::MAP_SHARED, file.as_raw_fd(), offset)
        };
        match NonNull::new(base.cast::<u8>()) {
            Some(base) if base.as_ptr().cast() != libc::MAP_FAILED => Ok(Self { base, bytes }),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly what was mapped; references into it do not outlive `self`.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// The words of one ring.
#[derive(Debug)]
pub(super) struct RingMapping(Mapping);

impl RingMapping {
    pub(super) fn words(&self) -> &[AtomicU64] {
        // SAFETY: mapped whole, aligned to a page; any bits are valid atomics.
        unsafe { std::slice::from_raw_parts(self.0.base.as_ptr().cast(), RING_WORDS) }
    }
}

/// The memory of a process.
#[derive(Debug)]
pub(super) struct Region {
    file: File,
    head: Mapping,
    pub(super) identity: (u64, u64),
    pid: i32,
}

/// A text that ends with a zero; `None` where it is none that a name could be.
fn text(there: &[AtomicU8]) -> Option<String> {
    let bytes: Vec<u8> =
        there.iter().map(|byte| byte.load(Ordering::Relaxed)).take_while(|&byte| byte != 0).collect();
    let text = String::from_utf8(bytes).ok()?;
    let is_name = !text.is_empty() && text.len() < there.len() && !text.chars().any(char::is_control);
    is_name.then_some(text)
}

impl Region {
    pub(super) fn map(opened: &Opened, pid: i32) -> Result<Self, Refused> {
        let denied = |error: io::Error| Refused::Denied { reason: error.to_string() };
        let file = opened.file.try_clone().map_err(denied)?;
        let head = Mapping::new(&file, 0, HEAD_BYTES).map_err(denied)?;
        let region = Self { file, head, identity: opened.identity, pid };
        let head = region.head();
        if head.magic.load(Ordering::Acquire) != MAGIC {
            return Err(Refused::NotReady);
        }
        let version = head.version.load(Ordering::Relaxed);
        let same = head.max_loops.load(Ordering::Relaxed) as usize == MAX_LOOPS
            && head.ring_records.load(Ordering::Relaxed) as usize == RING_RECORDS;
        if version != VERSION || !same {
            return Err(Refused::Version { found: version });
        }
        Ok(region)
    }

    fn head(&self) -> &Head {
        // SAFETY: mapped whole, aligned to a page; any bits are valid atomics.
        unsafe { self.head.base.cast().as_ref() }
    }

    pub(super) fn slot(&self, number: usize) -> Option<&Slot> {
        self.head().slots.get(number)
    }

    pub(super) fn ring(&self, number: usize) -> io::Result<RingMapping> {
        Mapping::new(&self.file, ring_offset(number.min(MAX_LOOPS - 1)), RING_BYTES).map(RingMapping)
    }

    pub(super) fn loops(self: &Arc<Self>) -> Vec<Declared> {
        let used = (self.head().loops.load(Ordering::Acquire) as usize).min(MAX_LOOPS);
        (0..used).filter_map(|number| self.declared(number)).collect()
    }

    pub(super) fn declared(self: &Arc<Self>, number: usize) -> Option<Declared> {
        let slot = self.slot(number)?;
        if slot.state.load(Ordering::Acquire) != STATE_OPEN {
            return None;
        }
        let period_ns = slot.period_ns.load(Ordering::Relaxed);
        let period_ns = match slot.kind.load(Ordering::Relaxed) {
            KIND_PERIODIC if (1..=MAX_PERIOD_NS).contains(&period_ns) => Some(period_ns),
            KIND_DRIVEN => None,
            _ => return None,
        };
        let deadline_ns = slot.deadline_ns.load(Ordering::Relaxed);
        Some(Declared {
            name: text(&slot.name)?,
            pid: self.pid,
            process: procfs::thread_name(self.pid, self.pid).unwrap_or_default(),
            tid: thread_of(self.pid, slot.tid.load(Ordering::Relaxed)),
            period_ns,
            deadline_ns: (deadline_ns > 0).then_some(deadline_ns),
            spin_ns: slot.spin_ns.load(Ordering::Relaxed).min(period_ns.unwrap_or(0)),
            region: Arc::clone(self),
            slot: number,
        })
    }

    pub(super) fn stages(&self, number: usize) -> Vec<String> {
        let Some(slot) = self.slot(number) else { return Vec::new() };
        let known = (slot.stages.load(Ordering::Acquire) as usize).min(MAX_STAGES);
        let name = |at: usize| text(&slot.stage_names[at]).unwrap_or_else(|| format!("stage {at}"));
        (0..known).map(name).collect()
    }

    pub(super) fn refusals(&self) -> Vec<Refusal> {
        let head = self.head();
        let kept = (head.refused.load(Ordering::Relaxed) as usize).min(MAX_REFUSALS);
        let refusal = |refusal: &takt_sdk::layout::Refusal| {
            let why = refusal.why.load(Ordering::Acquire);
            let name = text(&refusal.name)?;
            match why {
                REFUSED_TWICE => Some(Refusal::Twice { name }),
                REFUSED_PERIOD => {
                    Some(Refusal::Period { name, period_ns: refusal.period_ns.load(Ordering::Relaxed) })
                }
                REFUSED_FULL => Some(Refusal::Full { name }),
                _ => None,
            }
        };
        head.refusals[..kept].iter().filter_map(refusal).collect()
    }
}

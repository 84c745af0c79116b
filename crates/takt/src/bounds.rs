//! Behaviour with little memory: the program enlarges a small stack (`ulimit -s`), and a command
//! that only reads reports an exhausted limit (`ulimit -v`) and ends with status 2.

use std::alloc::{GlobalAlloc, Layout, System};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Stack of the main thread. Options are put together on it, and files are read; unoptimised that
/// takes about one MiB. Linux gives 8 MiB by default.
const STACK_BYTES: u64 = 8 << 20;

/// Set for commands that may end anywhere: they have nothing to stop and nothing to undo.
static MAY_END: AtomicBool = AtomicBool::new(false);

/// The system's allocator, which reports a refusal instead of aborting.
#[derive(Debug)]
pub struct Allocator;

// SAFETY: every call is passed on to the system's allocator as it is, and what that returns is
// returned; a refusal may end the process instead.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's.
        given(unsafe { System.alloc(layout) }, layout.size())
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's.
        given(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: the caller's.
        given(unsafe { System.realloc(pointer, layout, bytes) }, bytes)
    }
}

fn given(memory: *mut u8, bytes: usize) -> *mut u8 {
    if memory.is_null() && MAY_END.load(Ordering::Relaxed) {
        refused(bytes);
    }
    memory
}

/// Says that there is no memory, without asking for any, and ends.
fn refused(bytes: usize) -> ! {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    let mut rest = bytes;
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    let parts: [&[u8]; 3] = [
        b"takt: no memory for ",
        &digits[at..],
        b" bytes more. Allow this process more (`ulimit -v unlimited`, or the memory limit of its control group), or use a smaller file\n",
    ];
    for part in parts {
        // If standard error cannot be written, there is nobody to inform.
        let _ = rustix::io::write(rustix::stdio::stderr(), part);
    }
    // SAFETY: ends the process without running anything of it.
    unsafe { libc::_exit(2) }
}

/// From now on the process may end where it gets no memory.
pub fn may_end() {
    MAY_END.store(true, Ordering::Relaxed);
}

/// Calls `run` with enough stack, whatever `ulimit -s` says. To be called on the main thread.
pub fn with_stack(run: impl FnOnce() -> ExitCode + Send + 'static) -> ExitCode {
    if has_stack() {
        return run();
    }
    // The limit is that of the main thread alone.
    let thread = std::thread::Builder::new().name("main".to_owned()).stack_size(STACK_BYTES as usize);
    let done = thread.spawn(run).map(std::thread::JoinHandle::join);
    match done {
        Ok(Ok(code)) => code,
        // The panic has been reported.
        Ok(Err(_)) => ExitCode::from(101),
        Err(error) => {
            eprintln!(
                "takt: cannot allocate a stack of {} kB: {error}. Allow more: `ulimit -s 8192`, `ulimit -v unlimited`",
                STACK_BYTES >> 10
            );
            ExitCode::from(2)
        }
    }
}

/// Whether the main thread has enough stack: the kernel lets it grow up to the limit of the moment,
/// so a limit that is raised now counts.
fn has_stack() -> bool {
    let limit = getrlimit(Resource::Stack);
    let enough = |bytes: Option<u64>| bytes.is_none_or(|bytes| bytes >= STACK_BYTES);
    if enough(limit.current) {
        return true;
    }
    let maximum = if enough(limit.maximum) { limit.maximum } else { Some(STACK_BYTES) };
    // Only root may raise the maximum.
    setrlimit(Resource::Stack, Rlimit { current: Some(STACK_BYTES), maximum }).is_ok()
}

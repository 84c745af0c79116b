//! Proof that a real-time path does what it must not do never: counters of allocations and of
//! system calls per thread. For tests; page faults and context switches are in
//! [`memory`](crate::memory).

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

thread_local! {
    // Constant and without a destructor: the first use neither allocates nor registers anything.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static FREES: Cell<u64> = const { Cell::new(0) };
}

/// A global allocator that counts per thread and leaves the work to the system's.
///
/// ```
/// use takt_rt::proof::{AllocationCounter, allocations};
///
/// #[global_allocator]
/// static COUNTER: AllocationCounter = AllocationCounter;
///
/// let before = allocations();
/// let boxed = std::hint::black_box(Box::new(1));
/// assert_eq!(allocations() - before, 1);
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct AllocationCounter;

fn count(counter: &'static std::thread::LocalKey<Cell<u64>>) {
    // Fails only while the thread's locals are torn down.
    let _ = counter.try_with(|counter| counter.set(counter.get() + 1));
}

// SAFETY: every call is handed to `System` unchanged; counting touches a thread-local integer
// alone.
unsafe impl GlobalAlloc for AllocationCounter {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(&ALLOCATIONS);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(&ALLOCATIONS);
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(&ALLOCATIONS);
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(block, layout, size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        count(&FREES);
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(block, layout) }
    }
}

/// Allocations (and reallocations) of the calling thread so far; 0 unless [`AllocationCounter`] is
/// the global allocator.
pub fn allocations() -> u64 {
    ALLOCATIONS.try_with(Cell::get).unwrap_or(0)
}

/// Blocks that the calling thread has freed so far; 0 unless [`AllocationCounter`] is the global
/// allocator.
pub fn frees() -> u64 {
    FREES.try_with(Cell::get).unwrap_or(0)
}

/// The system calls of a body other than the allowed ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unexpected {
    /// Number of calls.
    pub calls: u64,
    /// Number of the first one (asm/unistd.h); `None` when there was none.
    pub first: Option<i64>,
}

/// Runs `prepare` in a fresh thread and then what it returns under a filter that lets only the
/// system calls `allowed` (as `libc::SYS_clock_nanosleep`) through. All others fail with EPERM and
/// are counted.
///
/// The filter (seccomp(2), no privilege needed) binds that thread alone and cannot be lifted, so
/// the thread is parked for the life of the process afterwards, with `clock_nanosleep`, which is
/// always let through. Takes over the handler of SIGSYS. On architectures other than x86-64 and
/// aarch64 the counted calls return garbage.
///
/// # Errors
/// The kernel has no seccomp filters. A body that panics is an error as well.
pub fn system_calls_beyond<F>(
    allowed: &[libc::c_long],
    prepare: impl FnOnce() -> F + Send + 'static,
) -> io::Result<Unexpected>
where
    F: FnOnce(),
{
    handle_sigsys()?;
    let filter = filter(allowed)?;
    let outcome = Arc::new(Outcome::default());
    let shared = Arc::clone(&outcome);
    std::thread::Builder::new().name("syscall-proof".into()).spawn(move || {
        let body = prepare();
        let counters = Counters { calls: AtomicU64::new(0), first: AtomicI64::new(-1) };
        let counters: &'static Counters = Box::leak(Box::new(counters));
        COUNTERS.set(Some(counters));
        if let Err(error) = install(&filter) {
            shared.errno.store(error.raw_os_error().unwrap_or(libc::EINVAL).into(), Ordering::Relaxed);
            shared.done.store(true, Ordering::Release);
            return;
        }
        let finished = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).is_ok();
        shared.calls.store(counters.calls.load(Ordering::Relaxed), Ordering::Relaxed);
        shared.first.store(counters.first.load(Ordering::Relaxed), Ordering::Relaxed);
        shared.errno.store(if finished { 0 } else { libc::ECANCELED.into() }, Ordering::Relaxed);
        shared.done.store(true, Ordering::Release);
        loop {
            // The tear-down of a thread needs calls that the filter stops.
            crate::clock::sleep_until(i64::MAX as u64);
        }
    })?;
    // Polled: a wake-up would be a system call of the filtered thread.
    while !outcome.done.load(Ordering::Acquire) {
        std::thread::sleep(Duration::from_millis(1));
    }
    match outcome.errno.load(Ordering::Relaxed) {
        0 => {
            let calls = outcome.calls.load(Ordering::Relaxed);
            Ok(Unexpected { calls, first: (calls > 0).then(|| outcome.first.load(Ordering::Relaxed)) })
        }
        errno => Err(io::Error::from_raw_os_error(errno as i32)),
    }
}

#[derive(Default)]
struct Outcome {
    done: AtomicBool,
    errno: AtomicI64,
    calls: AtomicU64,
    first: AtomicI64,
}

struct Counters {
    calls: AtomicU64,
    first: AtomicI64,
}

thread_local! {
    static COUNTERS: Cell<Option<&'static Counters>> = const { Cell::new(None) };
}

/// The part of `siginfo_t` that SIGSYS fills (sigaction(2)).
#[repr(C)]
struct SigsysInfo {
    signo: i32,
    errno: i32,
    code: i32,
    call_addr: *mut libc::c_void,
    syscall: i32,
    arch: u32,
}

extern "C" fn on_sigsys(_: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: for SIGSYS the kernel fills these fields of the siginfo that it passes.
    let number = unsafe { (*info.cast::<SigsysInfo>()).syscall };
    if let Some(counters) = COUNTERS.get()
        && counters.calls.fetch_add(1, Ordering::Relaxed) == 0
    {
        counters.first.store(number.into(), Ordering::Relaxed);
    }
    let context = context.cast::<libc::ucontext_t>();
    // SAFETY: the kernel passes the interrupted context and restores it from here; this register
    // holds the call's result, which would otherwise stay undefined.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        (*context).uc_mcontext.gregs[libc::REG_RAX as usize] = -i64::from(libc::EPERM);
    }
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        (*context).uc_mcontext.regs[0] = -i64::from(libc::EPERM) as u64;
    }
    let _ = context;
}

fn handle_sigsys() -> io::Result<()> {
    // SAFETY: sigaction is plain data, for which zero is valid.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_sigsys as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO;
    // SAFETY: the handler touches atomics, a constant thread-local and the context alone, so it is
    // async-signal-safe.
    match unsafe { libc::sigaction(libc::SIGSYS, &action, std::ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A BPF program: load the call number, allow if it is one of `allowed`, else trap.
fn filter(allowed: &[libc::c_long]) -> io::Result<Vec<libc::sock_filter>> {
    const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
    const TRAP: u32 = libc::SECCOMP_RET_TRAP;
    let statement = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    // Offset 0 of seccomp_data is the call number.
    let mut program = vec![statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0)];
    // Parking, and the return from the handler.
    let needed = [libc::SYS_clock_nanosleep, libc::SYS_rt_sigreturn];
    for &number in allowed.iter().chain(&needed) {
        let number = u32::try_from(number).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
        let code = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
        // Equal: fall to the next instruction, which allows; else step over it.
        program.push(libc::sock_filter { code, jt: 0, jf: 1, k: number });
        program.push(statement(libc::BPF_RET | libc::BPF_K, ALLOW));
    }
    program.push(statement(libc::BPF_RET | libc::BPF_K, TRAP));
    Ok(program)
}

fn install(filter: &[libc::sock_filter]) -> io::Result<()> {
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    // SAFETY: no_new_privs takes integers; the program outlives the call, and the kernel copies it.
    let rc = unsafe {
        if libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 {
            -1
        } else {
            libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program)
        }
    };
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unexpected_calls_are_counted_and_expected_ones_run() {
        let outcome = system_calls_beyond(&[], || {
            || {
                for _ in 0..3 {
                    // SAFETY: getppid has no preconditions.
                    unsafe { libc::syscall(libc::SYS_getppid) };
                }
                crate::clock::sleep_until(crate::clock::monotonic_ns() + 1000);
            }
        });
        match outcome {
            Ok(outcome) => assert_eq!(outcome, Unexpected { calls: 3, first: Some(libc::SYS_getppid) }),
            Err(error) => takt_witness::skip!("no seccomp filter: {error}"),
        }
    }

    #[test]
    fn allowed_calls_are_not_counted() {
        let outcome = system_calls_beyond(&[libc::SYS_getppid], || {
            || {
                // SAFETY: getppid has no preconditions.
                assert!(unsafe { libc::syscall(libc::SYS_getppid) } > 0);
            }
        });
        match outcome {
            Ok(outcome) => assert_eq!(outcome, Unexpected { calls: 0, first: None }),
            Err(error) => takt_witness::skip!("no seccomp filter: {error}"),
        }
    }
}

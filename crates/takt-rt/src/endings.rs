//! The signals that end a process, as the kernel has it.
//!
//! The kernel's default action ends a process for every signal but those that it ignores and those
//! that stop a process (`SIG_KERNEL_IGNORE_MASK` and `SIG_KERNEL_STOP_MASK` of
//! `include/linux/signal.h`, which `sig_fatal()` asks): the lists here are what is left, so that no
//! signal is forgotten.

use std::io;

/// The last signal number of x86-64, ARM64 and RISC-V (`_NSIG`).
pub const LAST: i32 = 64;

/// `SIG_KERNEL_IGNORE_MASK`.
const IGNORED: [i32; 4] = [libc::SIGCONT, libc::SIGCHLD, libc::SIGWINCH, libc::SIGURG];
/// `SIG_KERNEL_STOP_MASK`: the process stands, and goes on by SIGCONT.
const STOPPING: [i32; 4] = [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];
/// Signals that an instruction of the process itself raises (`SYNCHRONOUS_MASK` of
/// `kernel/signal.c`), and abort(3): the process cannot continue after them.
const FAULTS: [i32; 7] =
    [libc::SIGABRT, libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGSYS, libc::SIGTRAP];

/// Whether the default action of `signal` ends the process.
pub fn ends(signal: i32) -> bool {
    (1..=LAST).contains(&signal) && !IGNORED.contains(&signal) && !STOPPING.contains(&signal)
}

/// After these the process dies: faults of its own.
pub const fn faults() -> [i32; 7] {
    FAULTS
}

/// Those that end a process and ask it to end: all that can be handled and are no faults. Without
/// SIGPIPE, which programs in Rust ignore, and without what the C library keeps for itself
/// ([`reserved`]).
pub fn requests() -> impl Iterator<Item = i32> {
    let is_request = |signal: &i32| {
        ends(*signal)
            && !FAULTS.contains(signal)
            && !reserved().contains(signal)
            && ![libc::SIGKILL, libc::SIGPIPE].contains(signal)
    };
    (1..=LAST).filter(is_request)
}

/// Real-time signals that the C library keeps for its threads and lets nobody handle: 32 and 33 of
/// glibc, 34 also of musl.
pub fn reserved() -> std::ops::Range<i32> {
    // The kernel's first one: no name of the C library's stands for it.
    const FIRST_REAL_TIME: i32 = 32;
    FIRST_REAL_TIME..libc::SIGRTMIN()
}

/// Lets the [`reserved`] signals end nothing: who sends one from outside would end the process
/// without a word, and no handler can be had. A handler that the C library has installed stays.
///
/// # Errors
/// The kernel's error.
pub fn ignore_reserved() -> io::Result<()> {
    reserved().try_for_each(ignore_if_default)
}

/// The kernel's `struct sigaction` without its mask, which the C library's call refuses for signals
/// that are its own.
#[repr(C)]
struct KernelAction {
    handler: usize,
    flags: libc::c_ulong,
    restorer: usize,
    mask: u64,
}

fn ignore_if_default(signal: i32) -> io::Result<()> {
    let mut action = KernelAction { handler: 0, flags: 0, restorer: 0, mask: 0 };
    let call = |new: *const KernelAction, old: *mut KernelAction| {
        // SAFETY: both are null or point to a valid action of the kernel's layout (handler, flags,
        // restorer, mask: on x86-64; ARM64 has the same and does not use the restorer; RISC-V has
        // no restorer, reads a mask of zero in its place, and writes less), and the mask is of the
        // size that is given.
        match unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, new, old, size_of::<u64>()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    call(std::ptr::null(), &mut action)?;
    if action.handler != libc::SIG_DFL {
        return Ok(());
    }
    // Nothing is called, so that no restorer is needed.
    let ignore = KernelAction { handler: libc::SIG_IGN, flags: 0, restorer: 0, mask: 0 };
    call(&ignore, std::ptr::null_mut())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel is asked for every number: a child that does nothing gets it, and its end is
    /// looked at.
    #[test]
    fn the_kernel_ends_a_process_for_exactly_these() {
        for signal in 1..=LAST {
            // SAFETY: the child calls async-signal-safe functions alone.
            let child = unsafe { libc::fork() };
            if child == 0 {
                // SAFETY: in the child; raw calls, as the C library refuses its own signals.
                unsafe {
                    let default = KernelAction { handler: 0, flags: 0, restorer: 0, mask: 0 };
                    libc::syscall(libc::SYS_rt_sigaction, signal, &default, 0_usize, 8_usize);
                    let none = 0_u64;
                    libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &none, 0_usize, 8_usize);
                    let no_core = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
                    libc::setrlimit(libc::RLIMIT_CORE, &no_core);
                    libc::syscall(libc::SYS_kill, libc::getpid(), signal);
                    libc::_exit(7);
                }
            }
            assert!(child > 0);
            let mut status = 0;
            // SAFETY: waits for the child made above.
            unsafe {
                libc::waitpid(child, &mut status, libc::WUNTRACED);
                if libc::WIFSTOPPED(status) {
                    libc::kill(child, libc::SIGKILL);
                    libc::waitpid(child, std::ptr::null_mut(), 0);
                }
            }
            assert_eq!(libc::WIFSIGNALED(status), ends(signal), "signal {signal}: status {status:#x}");
        }
    }

    #[test]
    fn nothing_that_ends_is_left_out() {
        let requests: Vec<i32> = requests().collect();
        for signal in (1..=LAST).filter(|&signal| ends(signal)) {
            let known = requests.contains(&signal)
                || faults().contains(&signal)
                || reserved().contains(&signal)
                || [libc::SIGKILL, libc::SIGPIPE].contains(&signal);
            assert!(known, "signal {signal}");
        }
        for signal in [libc::SIGIO, libc::SIGSTKFLT, libc::SIGRTMIN(), libc::SIGRTMAX(), libc::SIGPWR] {
            assert!(requests.contains(&signal), "signal {signal}");
        }
    }

    #[test]
    fn signals_of_the_c_library_end_nothing_after_that() {
        ignore_reserved().unwrap();
        for signal in reserved() {
            // SAFETY: sends this process a signal that it ignores, or that the C library handles
            // and knows as not its own.
            unsafe { libc::syscall(libc::SYS_kill, libc::getpid(), signal) };
        }
    }
}

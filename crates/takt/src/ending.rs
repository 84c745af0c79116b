//! Ends the program on request from outside. Whatever the request, the robot is first commanded to
//! stop.
//!
//! | how | what happens |
//! |---|---|
//! | every signal that ends a process and is none of those below ([`endings::requests`]): SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGXCPU, SIGIO, the real-time signals … | the flag is set: the next safety job commands the stop, then everything ends in order and the run is sealed |
//! | SIGINT or SIGQUIT again, half a second later or more | the stop is sent, the process ends at once |
//! | [`PARENT_GONE`] | the same: a run of a bench or campaign that was killed, which must stay unsealed |
//! | SIGABRT, SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGSYS, SIGTRAP | the stop is sent, then the process dies of the signal |
//! | SIGPIPE, and the signals that the C library keeps for itself (32 and 33) | nothing: they end no process of ours |
//! | SIGKILL, power | nothing can be sent: the robot's watchdog stops it |
//!
//! A hang-up that was ignored before the start (nohup) stays ignored.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::process::Signal;
use signal_hook::consts;
use takt_link_rtde::client::send_final_stop;
use takt_rt::clock::monotonic_ns;
use takt_rt::endings;

/// Signal that the kernel sends to a run whose bench or campaign has ended.
pub const PARENT_GONE: Signal = Signal::USR2;

/// Typed by somebody who will not wait.
const IMPATIENT: [i32; 2] = [consts::SIGINT, consts::SIGQUIT];

/// A second signal before that is the same request: a terminal and a shell both report a
/// hang-up, and `timeout` signals the process and its group.
const SAME_REQUEST_NS: u64 = 500_000_000;

/// After these the process dies.
const FATAL: [i32; 7] = endings::faults();

/// When the end was asked for first; 0: not yet.
static ASKED_NS: AtomicU64 = AtomicU64::new(0);

/// Earlier handlers of fatal signals: Rust's own handler reports a stack overflow.
static BEFORE: [AtomicU64; FATAL.len()] = [const { AtomicU64::new(0) }; FATAL.len()];

/// A flag that every request for the end sets.
///
/// # Errors
/// When a signal cannot be handled.
pub fn flag() -> io::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    endings::ignore_reserved()?;
    for signal in endings::requests().filter(|signal| *signal != PARENT_GONE.as_raw()) {
        if signal == consts::SIGHUP && is_ignored(signal)? {
            continue;
        }
        let (stop, impatient) = (Arc::clone(&stop), IMPATIENT.contains(&signal));
        let asked = move || {
            let now_ns = monotonic_ns();
            let first = ASKED_NS.compare_exchange(0, now_ns, Ordering::AcqRel, Ordering::Acquire);
            stop.store(true, Ordering::Release);
            if let Err(first_ns) = first
                && impatient
                && now_ns.saturating_sub(first_ns) >= SAME_REQUEST_NS
            {
                send_final_stop();
                signal_hook::low_level::exit(130);
            }
        };
        // SAFETY: reads a clock, touches atomics and sends on a socket without blocking: all of it
        // async-signal-safe.
        unsafe { signal_hook::low_level::register(signal, asked) }?;
    }
    let parent_gone = || {
        send_final_stop();
        signal_hook::low_level::exit(128 + PARENT_GONE.as_raw());
    };
    // SAFETY: as above.
    unsafe { signal_hook::low_level::register(PARENT_GONE.as_raw(), parent_gone) }?;
    for (signal, before) in FATAL.into_iter().zip(&BEFORE) {
        handle_fatal(signal, before)?;
    }
    Ok(stop)
}

fn is_ignored(signal: i32) -> io::Result<bool> {
    // SAFETY: sigaction is plain data, for which zero is valid.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: changes nothing, and writes what holds into `action`.
    match unsafe { libc::sigaction(signal, std::ptr::null(), &mut action) } {
        0 => Ok(action.sa_sigaction == libc::SIG_IGN),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Lets `signal` send the stop first and then do what it did.
fn handle_fatal(signal: i32, before: &AtomicU64) -> io::Result<()> {
    // SAFETY: sigaction is plain data, for which zero is valid.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    let mut old: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = fatal as *const () as usize;
    // On the alternative stack, since this one may be what overflowed.
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: both point to valid actions; the handler is async-signal-safe, see there.
    if unsafe { libc::sigaction(signal, &action, &mut old) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // Asked for twice, by two flags: what was before the first stays.
    if old.sa_sigaction != action.sa_sigaction {
        before.store(old.sa_sigaction as u64, Ordering::Release);
    }
    Ok(())
}

extern "C" fn fatal(signal: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    send_final_stop();
    let before = FATAL.iter().zip(&BEFORE).find(|(fatal, _)| **fatal == signal);
    let before = before.map_or(0, |(_, before)| before.load(Ordering::Acquire));
    // SAFETY: the kernel passes a valid siginfo to a handler with SA_SIGINFO.
    let is_fault = unsafe { (*info).si_code } > 0;
    // SAFETY: sigaction is plain data, for which zero is valid; it is the default action then.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    if is_fault && before != 0 {
        action.sa_sigaction = before as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    }
    // SAFETY: installs what was installed before, by the runtime with these flags, or the default.
    unsafe { libc::sigaction(signal, &action, std::ptr::null_mut()) };
    if !is_fault {
        // Sent by somebody or by abort(3). The instruction of a fault is tried again and faults
        // again by itself. SAFETY: raise takes an integer.
        unsafe { libc::raise(signal) };
    }
}

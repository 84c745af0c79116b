//! Processes that must not outlive the one that started them.

use std::io;
use std::os::unix::process::{CommandExt, parent_id};
use std::process::Command;

/// Has the kernel kill the process that `command` starts when the thread that started it ends,
/// however that ends. An exec of a file with capabilities takes it back (prctl(2)): such a program
/// asks itself ([`end_with`]).
pub fn end_with_this_process(command: &mut Command) {
    let parent = std::process::id();
    // SAFETY: prctl and getppid are async-signal-safe, and nothing else is done between fork and
    // exec.
    unsafe {
        command.pre_exec(move || end_with(parent, libc::SIGKILL));
    }
}

/// Has the kernel send this process a signal when its parent ends.
///
/// # Errors
/// The system's error; `NotFound` if `parent` has already ended, since then no signal would end
/// this process.
pub fn end_with(parent: u32, signal: i32) -> io::Result<()> {
    // SAFETY: it takes a signal's number and touches no memory.
    if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, signal) } != 0 {
        return Err(io::Error::last_os_error());
    }
    if parent_id() == parent { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
}

/// Takes the status of a child that has ended, which only a parent can: else it would keep its
/// number until this process ends. Nothing happens to any other.
pub fn reap(pid: i32) {
    // SAFETY: no place for the status is given.
    unsafe { libc::waitpid(pid, std::ptr::null_mut(), libc::WNOHANG) };
}

/// Makes children of processes that end, and whose own parents were started by this one, children
/// of this process instead of init's. Without it (before Linux 3.4) they are init's.
pub fn adopt_orphans() {
    // SAFETY: changes an attribute of this process; no memory is touched.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
}

/// Goes on in a child and ends this process with `code`, so that whoever waits for it goes on, too.
/// The child has a session of its own. To be called while the process has one thread.
///
/// # Errors
/// The system cannot make another process; this one goes on then.
pub fn go_on_alone(code: i32) -> io::Result<()> {
    // SAFETY: the process has one thread by the contract above, so that the child may do what this
    // process may.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            // SAFETY: takes no argument; it fails for a leader of a group alone, which a child is
            // not.
            unsafe { libc::setsid() };
            Ok(())
        }
        // SAFETY: ends this process at once, without destructors that the child still needs.
        _ => unsafe { libc::_exit(code) },
    }
}

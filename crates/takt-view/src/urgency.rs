//! The lowest urgency that the scheduler has, for threads that must never be in the way.

use std::io;
use std::thread::{Builder, JoinHandle};

/// How a view thread is scheduled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Urgency {
    /// SCHED_OTHER with nice 19: a small share of what other best-effort threads get.
    #[default]
    Low,
    /// SCHED_IDLE: runs only where a CPU would else be idle. The page may stand still on a loaded machine.
    Idle,
}

/// Starts a thread `name` that takes on `urgency` before it runs `body`, whatever policy its creator has.
///
/// # Errors
/// When the thread cannot be made or the kernel refuses the urgency: a view never runs at the urgency of a
/// real-time creator.
pub(crate) fn spawn(
    name: &str,
    urgency: Urgency,
    body: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let (answer, granted) = std::sync::mpsc::sync_channel(1);
    let thread = Builder::new().name(name.into()).stack_size(512 * 1024).spawn(move || {
        let result = take_on(urgency);
        let refused = result.is_err();
        // The creator waits for this answer, so it is still there.
        let _ = answer.send(result);
        if !refused {
            body();
        }
    })?;
    granted.recv().unwrap_or_else(|_| Err(io::Error::other("the thread ended before it began")))?;
    Ok(thread)
}

/// Gives the calling thread the lowest urgency.
pub(crate) fn take_on(urgency: Urgency) -> io::Result<()> {
    let policy = match urgency {
        Urgency::Low => libc::SCHED_OTHER,
        Urgency::Idle => libc::SCHED_IDLE,
    };
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: thread 0 is the calling thread, and the parameters outlive the call.
    if unsafe { libc::sched_setscheduler(0, policy, &parameters) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: no memory is passed. On Linux, PRIO_PROCESS with 0 is the calling thread.
    if unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 19) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_thread_has_the_lowest_urgency() {
        for (urgency, policy) in [(Urgency::Low, libc::SCHED_OTHER), (Urgency::Idle, libc::SCHED_IDLE)] {
            let (send, receive) = std::sync::mpsc::channel();
            let thread = spawn("view-test", urgency, move || {
                // SAFETY: neither call takes memory; thread 0 is the calling thread.
                let effective =
                    unsafe { (libc::sched_getscheduler(0), libc::getpriority(libc::PRIO_PROCESS, 0)) };
                let name = std::fs::read_to_string("/proc/thread-self/comm").unwrap();
                send.send((effective, name)).unwrap();
            })
            .unwrap();
            assert_eq!(receive.recv().unwrap(), ((policy, 19), "view-test\n".to_owned()));
            thread.join().unwrap();
        }
    }
}

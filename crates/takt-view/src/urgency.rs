//! The lowest urgency that the scheduler has, for threads that must never be in the way.

use std::sync::mpsc::sync_channel;

use serde::{Deserialize, Serialize};
use takt_rt::policy::{self, Policy};
use takt_rt::thread::Handle;

use crate::error::Error;

/// Scheduling of a view thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Urgency {
    /// SCHED_OTHER with nice 19: a small share of what other best-effort threads get.
    #[default]
    Low,
    /// SCHED_IDLE: runs only where a CPU would else be idle. The page may stand still on a loaded
    /// machine.
    Idle,
}

impl Urgency {
    /// Gives it to the calling thread.
    fn take_on(self) -> Result<(), Error> {
        Policy::Other { nice: 19 }.apply(0).map_err(Error::Thread)?;
        if self == Urgency::Idle {
            policy::set_idle().map_err(Error::Idle)?;
        }
        Ok(())
    }
}

/// Starts a thread `name`, exempt from the fallback policy of the thread census, that takes on
/// `urgency` before it runs `body`, whatever policy its creator has.
///
/// # Errors
/// When the thread cannot be made or the kernel refuses the urgency: a view never runs at another
/// one.
pub(crate) fn spawn(
    name: &str,
    urgency: Urgency,
    body: impl FnOnce() + Send + 'static,
) -> Result<Handle, Error> {
    let (answer, granted) = sync_channel(1);
    let thread = takt_rt::thread::spawn_exempt(name, "best-effort view", move || {
        let result = urgency.take_on();
        let refused = result.is_err();
        // The creator waits for this answer, so it is still there.
        let _ = answer.send(result);
        if !refused {
            body();
        }
    })
    .map_err(Error::Thread)?;
    // No answer would mean that the thread ended before the body ran; then nothing runs at a wrong
    // urgency.
    granted.recv().unwrap_or(Ok(()))?;
    Ok(thread)
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

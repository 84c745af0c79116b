//! A search keeps its time on a machine that others fill: its thread comes before all others that
//! share the CPU fairly, and when its time is over before everybody.
//!
//! It sleeps through the blocks. Between them it changes settings and reads events, which must not
//! wait behind forty programs for its turn. Real-time threads stay above it up to the deadline,
//! since one of them may be the robot's loop; where they leave it nothing, a thread that waits for
//! the deadline raises it then: what is left is to take everything back and to count, some 0.1 s.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Instant;

use takt_rt::policy::{Favoured, Policy};
use takt_rt::settings::ThreadSettings;
use takt_rt::thread::{self, Handle};

const NICE: i32 = -20;
const AT_THE_END: Policy = Policy::Fifo { priority: 99 };

/// Whether the search has ended, and the bell for it.
type Ended = Arc<(Mutex<bool>, Condvar)>;

/// The calling thread's policy as it was comes back when this is dropped, by the same thread.
#[derive(Debug)]
pub(crate) struct Prompt {
    ended: Ended,
    waiting: Option<Handle<()>>,
    /// Behind what may change the policy.
    _favoured: Favoured,
}

impl Prompt {
    /// Without the right to these policies the search is as it was; so is one that has a real-time
    /// policy already.
    pub(crate) fn begin(deadline: Instant) -> Self {
        let ended = Ended::default();
        let chosen = Policy::read(0).is_ok_and(|policy| policy.is_real_time());
        let favoured = Favoured::begin(NICE);
        let (search, of) = (thread::own_tid(), Arc::clone(&ended));
        let settings = ThreadSettings { policy: AT_THE_END, ..ThreadSettings::default() };
        let wait = move || wait(&of, deadline, search);
        let waiting = if chosen { None } else { thread::spawn("takt-deadline", &settings, wait).ok() };
        Self { ended, waiting, _favoured: favoured }
    }
}

fn wait(ended: &Ended, deadline: Instant, search: i32) {
    let (flag, bell) = &**ended;
    let mut over = flag.lock().unwrap_or_else(PoisonError::into_inner);
    while !*over {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            // Under the lock: never after the search has put its own policy back.
            let _ = AT_THE_END.apply(search);
            return;
        }
        over = bell.wait_timeout(over, left).unwrap_or_else(PoisonError::into_inner).0;
    }
}

impl Drop for Prompt {
    fn drop(&mut self) {
        let (flag, bell) = &*self.ended;
        *flag.lock().unwrap_or_else(PoisonError::into_inner) = true;
        bell.notify_all();
        if let Some(waiting) = self.waiting.take() {
            let _ = waiting.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn own() -> Policy {
        Policy::read(0).unwrap()
    }

    /// In a thread of its own, which needs the right to the policies.
    fn in_thread(test: fn()) {
        std::thread::spawn(move || {
            if AT_THE_END.apply(0).is_err() {
                return takt_witness::skip!("no right to real-time policies");
            }
            Policy::Other { nice: 3 }.apply(0).unwrap();
            test();
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_search_is_before_others_and_its_children_are_not() {
        in_thread(|| {
            let prompt = Prompt::begin(Instant::now() + Duration::from_secs(3600));
            assert_eq!(own(), Policy::Other { nice: NICE });
            assert_eq!(std::thread::spawn(own).join().unwrap(), Policy::Other { nice: 0 });
            drop(prompt);
            assert_eq!(own(), Policy::Other { nice: 3 });
        });
    }

    #[test]
    fn when_the_time_is_over_it_is_before_everybody() {
        in_thread(|| {
            let prompt = Prompt::begin(Instant::now() + Duration::from_millis(20));
            while own() != AT_THE_END {
                std::thread::sleep(Duration::from_millis(1));
            }
            drop(prompt);
            assert_eq!(own(), Policy::Other { nice: 3 });
        });
    }

    #[test]
    fn a_policy_that_was_chosen_is_left_alone() {
        in_thread(|| {
            let chosen = Policy::Fifo { priority: 7 };
            chosen.apply(0).unwrap();
            let prompt = Prompt::begin(Instant::now());
            assert_eq!(own(), chosen);
            drop(prompt);
            assert_eq!(own(), chosen);
        });
    }
}

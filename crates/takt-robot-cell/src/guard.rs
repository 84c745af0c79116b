//! Reports of the SSM thread about the robot to the rest of the cell, and the cell's reaction: the
//! dashboard's stop, tried over a separate connection when the robot does not obey.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;
use takt_link_rtde::dashboard::Dashboard;
use takt_rt::clock::monotonic_ns;
use takt_rt::ring::{Consumer, Producer, ring};
use takt_rt::thread;

use crate::error::CellError;
use crate::ssm::{FaultKind, LinkDelays};

/// Events of disobedience that wait for the dashboard's thread; more at once say nothing new.
const WAITING: usize = 64;

/// Results that are kept: the first ones report most.
const KEPT: usize = 64;

/// Period at which the thread checks for an event. It is a second path, in addition to the command
/// that the SSM job sends at once.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Time limit of each step of a dashboard server.
const PATIENCE: Duration = Duration::from_millis(1000);

/// A robot that does not obey.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Disobedience {
    /// When the SSM job saw it, CLOCK_MONOTONIC nanoseconds.
    pub at_ns: u64,
    /// The fault.
    pub kind: FaultKind,
}

/// Result of the dashboard's stop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DashboardStop {
    /// Reason of the attempt.
    pub cause: Disobedience,
    /// When the answer was there, CLOCK_MONOTONIC nanoseconds.
    pub answered_ns: u64,
    /// Whether the controller says that it stops the program.
    pub stopped: bool,
    /// Its words, or why there are none.
    pub answer: String,
}

/// Facts that the SSM job leaves behind while it runs: plain words, written and read without
/// waiting.
#[derive(Debug, Default)]
pub struct SsmFacts {
    proved: AtomicBool,
    unproved_motion: AtomicBool,
    acknowledged_worst_ns: AtomicU64,
    script_worst_ns: AtomicU64,
    state_age_worst_ns: AtomicU64,
    capture_to_command_worst_ns: AtomicU64,
}

impl SsmFacts {
    /// SSM job: what it knows now.
    pub(crate) fn set(&self, proved: bool, moves: bool, delays: LinkDelays, capture_to_command_ns: u64) {
        // Relaxed: each word stands for itself, and nobody draws a conclusion from two of them.
        if proved {
            self.proved.store(true, Ordering::Relaxed);
        } else if moves {
            self.unproved_motion.store(true, Ordering::Relaxed);
        }
        self.acknowledged_worst_ns.store(delays.acknowledged_worst_ns, Ordering::Relaxed);
        self.script_worst_ns.store(delays.script_worst_ns, Ordering::Relaxed);
        self.state_age_worst_ns.store(delays.state_age_worst_ns, Ordering::Relaxed);
        self.capture_to_command_worst_ns.store(capture_to_command_ns, Ordering::Relaxed);
    }

    /// Whether the program on the robot has proved its watchdog.
    pub fn watchdog_proved(&self) -> bool {
        self.proved.load(Ordering::Relaxed)
    }

    /// Whether a speed above 0 was commanded before it had.
    pub(crate) fn moved_without_proof(&self) -> bool {
        self.unproved_motion.load(Ordering::Relaxed)
    }

    /// Worst delays of the link so far.
    pub fn delays(&self) -> LinkDelays {
        LinkDelays {
            acknowledged_worst_ns: self.acknowledged_worst_ns.load(Ordering::Relaxed),
            script_worst_ns: self.script_worst_ns.load(Ordering::Relaxed),
            state_age_worst_ns: self.state_age_worst_ns.load(Ordering::Relaxed),
        }
    }

    /// Worst time from capture to command so far, nanoseconds.
    pub(crate) fn capture_to_command_ns(&self) -> u64 {
        self.capture_to_command_worst_ns.load(Ordering::Relaxed)
    }
}

/// Report of disobedience by the SSM job; once per event, however long it lasts.
#[derive(Debug)]
pub struct Alarm {
    events: Producer<Disobedience>,
    since_ns: Option<u64>,
    reported: bool,
    /// The robot has been seen to move against its command since the last job without a fault.
    motion_reported: bool,
    /// The robot has obeyed once.
    obeyed: bool,
}

/// An echo that is late for a moment stops the robot and no more; one that stays away for so long
/// is an event.
const PERSISTS_NS: u64 = 100_000_000;

impl Alarm {
    /// An alarm and where its events come out.
    pub fn new() -> (Self, Consumer<Disobedience>) {
        let (events, consumer) = ring(WAITING);
        (Self { events, since_ns: None, reported: false, motion_reported: false, obeyed: false }, consumer)
    }

    /// Takes the fault of a job; `waits` says that the program on the robot waits for Takt, so that
    /// nothing moves and a stop would only keep it from starting. Wait-free.
    pub(crate) fn see(&mut self, fault: Option<FaultKind>, waits: bool, now_ns: u64) {
        self.obeyed |= fault.is_none();
        // A robot that has not obeyed yet is starting: a missing answer is then no event, a motion
        // is.
        let counts = |kind: &FaultKind| kind.is_motion() || (self.obeyed && !waits && kind.is_disobedience());
        let Some(kind) = fault.filter(counts) else {
            // A fault of another kind hides it; it is over when there is none.
            if fault.is_none() {
                (self.since_ns, self.reported, self.motion_reported) = (None, false, false);
            }
            return;
        };
        let since_ns = *self.since_ns.get_or_insert(now_ns);
        let lasting = kind.is_motion() || now_ns.saturating_sub(since_ns) >= PERSISTS_NS;
        // An echo that failed first must not hide a robot that moves on.
        let reported = if kind.is_motion() { &mut self.motion_reported } else { &mut self.reported };
        if lasting && !*reported {
            *reported = true;
            self.events.push(Disobedience { at_ns: now_ns, kind });
        }
    }
}

/// The thread that tries the dashboard's stop; dropping it ends the thread.
#[derive(Debug)]
pub(super) struct DashboardStopper {
    stop: Arc<AtomicBool>,
    results: Arc<Mutex<Vec<DashboardStop>>>,
    thread: Option<thread::Handle>,
}

impl DashboardStopper {
    /// Starts the thread, best effort.
    pub(super) fn start(
        host: String,
        port: u16,
        mut events: Consumer<Disobedience>,
    ) -> Result<Self, CellError> {
        let stop = Arc::new(AtomicBool::new(false));
        let results = Arc::new(Mutex::new(Vec::new()));
        let body = {
            let (stop, results) = (Arc::clone(&stop), Arc::clone(&results));
            move || {
                let mut batch = Vec::with_capacity(WAITING);
                loop {
                    // Read before the ring: an event from before the wish to end is still handled.
                    let ends = stop.load(Ordering::Acquire);
                    batch.clear();
                    events.take_into(&mut batch, WAITING);
                    for &cause in &batch {
                        let result = try_stop(&host, port, cause);
                        let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
                        if results.len() < KEPT {
                            results.push(result);
                        }
                    }
                    if ends && batch.is_empty() {
                        return;
                    }
                    std::thread::sleep(LOOK_EVERY);
                }
            }
        };
        let what = "tries the dashboard's stop when the robot does not obey";
        let thread = thread::spawn_exempt("dashboard-stop", what, body)?;
        Ok(Self { stop, results, thread: Some(thread) })
    }

    pub(super) fn results(&self) -> Vec<DashboardStop> {
        self.results.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for DashboardStopper {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // A panic has been reported on stderr by itself.
            let _ = thread.join();
        }
    }
}

fn try_stop(host: &str, port: u16, cause: Disobedience) -> DashboardStop {
    let answer = Dashboard::connect(host, port, PATIENCE).and_then(|mut dashboard| dashboard.command("stop"));
    let (stopped, answer) = match answer {
        Ok(answer) => (answer.starts_with("Stopped"), answer),
        Err(error) => (false, error.to_string()),
    };
    DashboardStop { cause, answered_ns: monotonic_ns(), stopped, answer }
}

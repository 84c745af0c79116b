//! The circuit breaker: whether the worker is asked at all.
//!
//! ```text
//!  closed ──trip──► open ──(cool-down, fresh process)──► half-open ──all trials in time──► closed
//!                    ▲ ▲___________________trip_____________│
//!                    └── given up after too many restarts (stays)
//! ```
//!
//! One word, changed by compare-and-swap: cameras' threads trip it the moment they see the cause,
//! without waiting for the supervisor, which may be starved.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

/// State of the breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// The worker is asked.
    Closed,
    /// It is not.
    Open,
    /// It is asked on trial.
    HalfOpen,
    /// It is not, for the rest of the run.
    GivenUp,
}

/// Reason why it opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Trip {
    /// Too many overruns in a row, or one on trial.
    Overruns,
    /// Frames wait and nothing is answered.
    Hung,
    /// The process ended.
    Crashed,
    /// The worker says that its device is lost.
    Lost,
    /// An answer that makes no sense.
    Garbled,
}

const STATES: [State; 4] = [State::Closed, State::Open, State::HalfOpen, State::GivenUp];
const TRIPS: [Trip; 5] = [Trip::Overruns, Trip::Hung, Trip::Crashed, Trip::Lost, Trip::Garbled];

/// State, last cause, and how often the state has changed: two equal values mean that nothing
/// happened in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View(u64);

impl View {
    fn new(state: State, trip: Trip, changes: u64) -> Self {
        Self(state as u64 | (trip as u64) << 8 | changes << 16)
    }

    pub fn state(self) -> State {
        STATES[(self.0 & 0xff) as usize % STATES.len()]
    }

    /// Reason why it opened last.
    pub fn trip(self) -> Trip {
        TRIPS[(self.0 >> 8 & 0xff) as usize % TRIPS.len()]
    }

    /// State and cause of an open one, in words.
    pub fn in_words(self) -> &'static str {
        match (self.state(), self.trip()) {
            (State::Closed, _) => "closed",
            (State::HalfOpen, _) => "half-open",
            (State::GivenUp, _) => "open for the rest of the run",
            (State::Open, Trip::Overruns) => "open after overruns",
            (State::Open, Trip::Hung) => "open: the worker hung",
            (State::Open, Trip::Crashed) => "open: the worker crashed",
            (State::Open, Trip::Lost) => "open: the device was lost",
            (State::Open, Trip::Garbled) => "open: invalid answer",
        }
    }

    /// Whether the worker is asked.
    pub fn asks(self) -> bool {
        matches!(self.state(), State::Closed | State::HalfOpen)
    }

    fn next(self, state: State, trip: Trip) -> Self {
        Self::new(state, trip, (self.0 >> 16).wrapping_add(1))
    }
}

#[derive(Debug, Default)]
struct Trials {
    /// Changes of the state at which these trials began, with the number of frames answered in a
    /// row.
    since: AtomicU64,
    answered: AtomicU32,
}

/// The breaker of one worker, shared by all cameras and the supervisor. Wait-free but for the
/// compare-and-swap loop of changes, which are rare.
#[derive(Debug)]
pub struct Breaker {
    word: AtomicU64,
    trials: Vec<Trials>,
    /// Frames in a row that each camera must have answered.
    wanted: u32,
}

impl Breaker {
    /// A closed one. `trials` frames of each camera close it again.
    pub fn new(cameras: usize, trials: u32) -> Self {
        Self {
            word: AtomicU64::new(View::new(State::Closed, Trip::Overruns, 0).0),
            trials: (0..cameras).map(|_| Trials::default()).collect(),
            wanted: trials.max(1),
        }
    }

    /// Its present state.
    pub fn view(&self) -> View {
        View(self.word.load(Ordering::Acquire))
    }

    fn change(&self, step: impl Fn(View) -> Option<View>) -> bool {
        let update = |word| step(View(word)).map(|next| next.0);
        self.word.fetch_update(Ordering::AcqRel, Ordering::Acquire, update).is_ok()
    }

    /// Opens it. True for the one caller whose cause it is; false when it was open already.
    pub fn trip(&self, trip: Trip) -> bool {
        self.change(|view| view.asks().then(|| view.next(State::Open, trip)))
    }

    /// Begins the trials. False when it was not open.
    pub fn half_open(&self) -> bool {
        self.change(|view| (view.state() == State::Open).then(|| view.next(State::HalfOpen, view.trip())))
    }

    /// Opens it for good.
    pub fn give_up(&self) -> bool {
        self.change(|view| (view.state() == State::Open).then(|| view.next(State::GivenUp, view.trip())))
    }

    /// A frame is about to be asked about on trial: from now on the breaker does not close without
    /// this camera.
    pub fn asked(&self, camera: usize, view: View) {
        if view.state() == State::HalfOpen
            && let Some(trials) = self.trials.get(camera)
            && trials.since.load(Ordering::Relaxed) != view.0
        {
            trials.answered.store(0, Ordering::Relaxed);
            trials.since.store(view.0, Ordering::Release);
        }
    }

    /// A frame was answered in time; `view` is what the breaker showed when it was asked about.
    /// True when this closed the breaker.
    pub fn answered(&self, camera: usize, view: View) -> bool {
        if view.state() != State::HalfOpen {
            return false;
        }
        if let Some(trials) = self.trials.get(camera) {
            trials.answered.fetch_add(1, Ordering::AcqRel);
        }
        // Cameras that deliver no frames at all cannot be tried, and stop the robot by themselves.
        let tried = || self.trials.iter().filter(|t| t.since.load(Ordering::Acquire) == view.0);
        let enough = tried().all(|t| t.answered.load(Ordering::Acquire) >= self.wanted);
        enough && self.change(|now| (now == view).then(|| now.next(State::Closed, now.trip())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_cause_opens_it_and_trials_of_every_asked_camera_close_it() {
        let breaker = Breaker::new(3, 2);
        assert!(breaker.view().asks() && !breaker.half_open() && !breaker.give_up());
        assert!(breaker.trip(Trip::Lost) && !breaker.trip(Trip::Overruns));
        assert_eq!((breaker.view().state(), breaker.view().trip()), (State::Open, Trip::Lost));
        let open = breaker.view();
        assert!(!open.asks() && !breaker.answered(0, open));
        assert!(breaker.half_open() && !breaker.half_open());
        let view = breaker.view();
        breaker.asked(0, view);
        breaker.asked(1, view);
        assert!(!breaker.answered(0, view) && !breaker.answered(0, view), "camera 1 has not proved itself");
        assert!(!breaker.answered(1, view));
        assert!(breaker.answered(1, view));
        assert_eq!(breaker.view().state(), State::Closed);
    }

    #[test]
    fn an_answer_from_before_the_trip_proves_nothing() {
        let breaker = Breaker::new(1, 1);
        breaker.trip(Trip::Hung);
        breaker.half_open();
        let old = breaker.view();
        breaker.asked(0, old);
        breaker.trip(Trip::Overruns);
        breaker.half_open();
        assert!(!breaker.answered(0, old));
        assert_eq!(breaker.view().state(), State::HalfOpen);
        breaker.asked(0, breaker.view());
        assert!(breaker.answered(0, breaker.view()));
    }

    #[test]
    fn given_up_is_for_good() {
        let breaker = Breaker::new(1, 1);
        breaker.trip(Trip::Crashed);
        assert!(breaker.give_up());
        assert!(!breaker.half_open() && !breaker.trip(Trip::Lost) && !breaker.view().asks());
    }

    proptest! {
        /// Under any sequence of calls the breaker closes only after the asked number of answers
        /// within one trial.
        #[test]
        fn it_never_closes_early(steps in proptest::collection::vec((0u8..5, 0usize..2), 0..200), wanted in 1u32..5) {
            let breaker = Breaker::new(2, wanted);
            let mut answers = [0u32; 2];
            let mut asked = [false; 2];
            for (step, camera) in steps {
                let before = breaker.view();
                match step {
                    0 => { breaker.trip(Trip::Overruns); }
                    1 => { breaker.half_open(); }
                    2 => { breaker.asked(camera, before); asked[camera] |= before.state() == State::HalfOpen; }
                    _ => {
                        if asked[camera] && before.state() == State::HalfOpen {
                            answers[camera] += 1;
                            if breaker.answered(camera, before) {
                                prop_assert!((0..2).all(|c| !asked[c] || answers[c] >= wanted));
                            }
                        }
                    }
                }
                if breaker.view() != before {
                    answers = [0; 2];
                    asked = [false; 2];
                }
            }
        }
    }
}

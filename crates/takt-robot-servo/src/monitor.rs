//! When the arm must stop. Pure: what is known in, a reason out, no clock and no wire.

use std::fmt;

use serde::Serialize;
use takt_link_rtde::client::Content;
use takt_link_rtde::servo::registers::MAX_SPEED_RAD_S;
use takt_link_rtde::servo::{ProgramState, ServoState};
use takt_link_rtde::{RobotMode, SafetyMode};

use crate::config::ServoConfig;
use crate::limits::LimitsConfig;

/// Reason of a stream's end.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum StopReason {
    Asked,
    /// The newest state is too old.
    Stale {
        /// The age, nanoseconds.
        age_ns: u64,
    },
    /// The controller's clock stands, runs back or leaps.
    Clock {
        /// State of the clock.
        content: Content,
    },
    /// The next target is too far from the one before.
    Jump {
        /// The joint, from 0.
        joint: u8,
        /// The jump, rad.
        by_rad: f64,
        /// The limit, rad.
        allowed_rad: f64,
    },
    /// A joint is too far from its target.
    FollowingError {
        /// The joint, from 0.
        joint: u8,
        /// The distance, rad.
        by_rad: f64,
    },
    /// The joints that the controller reports cannot have moved so far.
    Contradiction {
        /// The joint, from 0.
        joint: u8,
        /// The motion, rad.
        by_rad: f64,
    },
    /// The controller's safety mode does not allow motion.
    Safety {
        mode: SafetyMode,
    },
    /// The robot does not run.
    Robot {
        mode: RobotMode,
    },
    /// No program runs on the robot.
    ProgramEnded,
    /// The program on the robot does not follow.
    Program {
        /// State of the program.
        state: ProgramState,
    },
    /// The program on the robot has not begun to follow in time.
    NotFollowed,
    /// The controller runs below its full speed.
    Slowed {
        /// Its speed fraction.
        fraction: f64,
    },
    /// Too many releases were passed over at once.
    Skipped {
        cycles: u64,
    },
    /// Commands do not leave this machine.
    NotSent {
        /// Number in a row.
        cycles: u32,
    },
    /// The link broke.
    LinkLost,
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Asked => write!(f, "stop requested"),
            Self::Stale { age_ns } => {
                write!(
                    f,
                    "the robot's newest state is {:.1} ms old (limits.stale_cycles)",
                    *age_ns as f64 / 1e6
                )
            }
            Self::Clock { content } => write!(f, "the controller's clock cannot be read: {content:?}"),
            Self::Jump { joint, by_rad, allowed_rad } => write!(
                f,
                "the target of joint {joint} jumps by {by_rad:.4} rad; {allowed_rad:.4} rad are allowed (limits.speed_rad_s); it was not \
                 sent"
            ),
            Self::FollowingError { joint, by_rad } => write!(
                f,
                "joint {joint} is {by_rad:.3} rad from its target (limits.following_error_rad): something holds it, or \
                 servoj is too slow for the motion"
            ),
            Self::Contradiction { joint, by_rad } => write!(
                f,
                "joint {joint} is reported to have moved by {by_rad:.3} rad in one cycle, which is impossible: the states contradict each \
                 other"
            ),
            Self::Safety { mode } => write!(f, "the controller's safety mode is {mode:?}"),
            Self::Robot { mode } => write!(f, "the robot is in mode {mode:?}"),
            Self::ProgramEnded => write!(f, "no program is running on the robot any more"),
            Self::Program { state: ProgramState::Silent } => {
                write!(
                    f,
                    "takt_servo.script received no command for too long (servoj.silent_cycles) and stopped the arm"
                )
            }
            Self::Program { state: ProgramState::Jump } => {
                write!(f, "takt_servo.script refused a target as a jump and stopped the arm")
            }
            Self::Program { state: ProgramState::Refused } => {
                write!(f, "takt_servo.script refused lookahead, gain or silent cycles")
            }
            Self::Program { state } => write!(f, "the program on the robot does not follow: {state:?}"),
            Self::NotFollowed => write!(f, "takt_servo.script did not start following in time"),
            Self::Slowed { fraction } => write!(
                f,
                "the controller runs at {:.0} % speed (limits.speed_fraction): move the slider to 100 %",
                fraction * 100.0
            ),
            Self::Skipped { cycles } => {
                write!(f, "{cycles} releases in a row were skipped (limits.skipped_cycles)")
            }
            Self::NotSent { cycles } => write!(f, "{cycles} commands in a row could not be sent"),
            Self::LinkLost => write!(f, "the link to the robot broke"),
        }
    }
}

/// Knowledge of a cycle.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// The newest state.
    pub state: &'a ServoState,
    /// Its age by its content.
    pub age_ns: u64,
    /// Own time of this cycle's newest packet; `None` if none arrived.
    pub content: Option<Content>,
    /// Releases passed over before this cycle.
    pub skipped: u64,
    /// Whether the program is to follow already.
    pub streaming: bool,
}

/// Judges cycle by cycle.
#[derive(Clone, Debug)]
pub struct Monitor {
    limits: LimitsConfig,
    period_s: f64,
    period_ns: u64,
    sent_rad: Option<[f64; 6]>,
    seen_at: Option<(f64, [f64; 6])>,
    not_sent: u32,
}

/// Speed beyond any joint of these arms, rad/s: a state that shows more is wrong.
const IMPOSSIBLE_RAD_S: f64 = 3.0 * MAX_SPEED_RAD_S;

/// Largest difference of sensors between two states without motion, rad.
const NOISE_RAD: f64 = 0.002;

impl Monitor {
    /// A monitor of the configuration's limits.
    pub fn new(config: &ServoConfig) -> Self {
        Self {
            limits: config.limits.clone(),
            period_s: 1.0 / config.rate_hz(),
            period_ns: config.period_ns(),
            sent_rad: None,
            seen_at: None,
            not_sent: 0,
        }
    }

    /// Whether the state allows motion.
    ///
    /// # Errors
    /// The reason against it.
    pub fn judge(&mut self, seen: &Seen<'_>) -> Result<(), StopReason> {
        let state = seen.state;
        self.modes(seen)?;
        if let Some(content @ (Content::ClockFrozen | Content::ClockBackwards | Content::ClockLeapt)) =
            seen.content
        {
            return Err(StopReason::Clock { content });
        }
        let most_ns = u64::from(self.limits.stale_cycles).saturating_mul(self.period_ns);
        if seen.age_ns > most_ns {
            return Err(StopReason::Stale { age_ns: seen.age_ns });
        }
        if seen.skipped > u64::from(self.limits.skipped_cycles) {
            return Err(StopReason::Skipped { cycles: seen.skipped });
        }
        self.consistent(state)?;
        if let Some((joint, by_rad)) = self.following_error(state)
            && by_rad > self.limits.following_error_rad
        {
            return Err(StopReason::FollowingError { joint, by_rad });
        }
        Ok(())
    }

    fn modes(&self, seen: &Seen<'_>) -> Result<(), StopReason> {
        let state = seen.state;
        if !matches!(state.safety_mode, SafetyMode::Normal | SafetyMode::Reduced) {
            return Err(StopReason::Safety { mode: state.safety_mode });
        }
        if state.robot_mode != RobotMode::Running {
            return Err(StopReason::Robot { mode: state.robot_mode });
        }
        if !state.program_running {
            // Its last words report more than that it is gone.
            return Err(match state.program {
                program @ (ProgramState::Silent | ProgramState::Jump | ProgramState::Refused) => {
                    StopReason::Program { state: program }
                }
                _ => StopReason::ProgramEnded,
            });
        }
        match state.program {
            ProgramState::Following => {}
            ProgramState::Waiting if !seen.streaming => {}
            program => return Err(StopReason::Program { state: program }),
        }
        // No number is not fast enough.
        let fast_enough = state.speed_fraction >= self.limits.speed_fraction - 1e-6;
        if !fast_enough {
            return Err(StopReason::Slowed { fraction: state.speed_fraction });
        }
        Ok(())
    }

    /// Whether the joints can have moved so since the state before.
    fn consistent(&mut self, state: &ServoState) -> Result<(), StopReason> {
        let before = self.seen_at.replace((state.controller_s, state.joints_rad));
        let Some((before_s, before_rad)) = before else { return Ok(()) };
        let passed_s = (state.controller_s - before_s).max(0.0);
        let (joint, by_rad) = farthest(&state.joints_rad, &before_rad);
        if by_rad <= IMPOSSIBLE_RAD_S * passed_s + NOISE_RAD {
            return Ok(());
        }
        Err(StopReason::Contradiction { joint, by_rad })
    }

    /// Joint that is farthest from the newest target that was sent, and how far.
    pub(crate) fn following_error(&self, state: &ServoState) -> Option<(u8, f64)> {
        self.sent_rad.map(|sent| farthest(&sent, &state.joints_rad))
    }

    /// Whether `target_rad` may follow the one before, `cycles` after it; the first one has to be
    /// where the arm is.
    ///
    /// # Errors
    /// [`StopReason::Jump`]; it must not be sent then.
    pub(crate) fn admit(
        &self,
        target_rad: &[f64; 6],
        joints_rad: &[f64; 6],
        cycles: u64,
    ) -> Result<(), StopReason> {
        let from = self.sent_rad.as_ref().unwrap_or(joints_rad);
        // The limits' own margin for rounding: a planned motion that touches its limit is no jump.
        let allowed_rad =
            self.limits.speed_rad_s * self.period_s * cycles.clamp(1, 1000) as f64 * 1.02 + 1e-6;
        let (joint, by_rad) = farthest(target_rad, from);
        if by_rad <= allowed_rad {
            return Ok(());
        }
        Err(StopReason::Jump { joint, by_rad, allowed_rad })
    }

    /// Notes what became of a command.
    ///
    /// # Errors
    /// [`StopReason::NotSent`] when too many in a row did not go out.
    pub fn sent(&mut self, target_rad: &[f64; 6], on_its_way: bool) -> Result<(), StopReason> {
        if on_its_way {
            self.sent_rad = Some(*target_rad);
            self.not_sent = 0;
            return Ok(());
        }
        self.not_sent += 1;
        if self.not_sent > self.limits.stale_cycles {
            return Err(StopReason::NotSent { cycles: self.not_sent });
        }
        Ok(())
    }
}

/// The joint where two sets of angles differ most; no number differs infinitely.
fn farthest(a: &[f64; 6], b: &[f64; 6]) -> (u8, f64) {
    let mut most = (0, 0.0);
    for joint in 0..6 {
        let by = (a[joint] - b[joint]).abs();
        let by = if by.is_nan() { f64::INFINITY } else { by };
        if by > most.1 {
            most = (joint as u8, by);
        }
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> ServoState {
        ServoState {
            sequence: 1,
            controller_s: 1.0,
            robot_mode: RobotMode::Running,
            safety_mode: SafetyMode::Normal,
            program_running: true,
            program: ProgramState::Following,
            speed_fraction: 1.0,
            ..ServoState::default()
        }
    }

    fn judge(change: impl FnOnce(&mut ServoState, &mut Seen<'static>)) -> Result<(), StopReason> {
        // Leaked: a handful of small values in a test.
        let state: &'static mut ServoState = Box::leak(Box::new(good()));
        let mut copy = *state;
        let mut seen =
            Seen { state: &*state, age_ns: 0, content: Some(Content::New), skipped: 0, streaming: true };
        change(&mut copy, &mut seen);
        let seen = Seen { state: &copy, ..seen };
        let mut monitor = Monitor::new(&ServoConfig::default());
        monitor.sent(&[0.0; 6], true).unwrap();
        monitor.judge(&seen)
    }

    #[test]
    fn every_doubt_stops() {
        use StopReason as R;
        assert_eq!(judge(|_, _| {}), Ok(()));
        assert_eq!(judge(|state, _| state.safety_mode = SafetyMode::Reduced), Ok(()));
        let stopped = |change: fn(&mut ServoState, &mut Seen<'static>)| judge(change).unwrap_err();
        for mode in [SafetyMode::ProtectiveStop, SafetyMode::SafeguardStop, SafetyMode::Unknown] {
            assert_eq!(judge(|state, _| state.safety_mode = mode), Err(R::Safety { mode }));
        }
        assert!(matches!(stopped(|s, _| s.robot_mode = RobotMode::Idle), R::Robot { .. }));
        assert_eq!(stopped(|s, _| s.program_running = false), R::ProgramEnded);
        assert!(matches!(stopped(|s, _| s.program = ProgramState::Waiting), R::Program { .. }));
        assert!(matches!(stopped(|s, _| s.program = ProgramState::Foreign(0)), R::Program { .. }));
        assert!(matches!(stopped(|s, _| s.speed_fraction = 0.99), R::Slowed { .. }));
        assert!(matches!(stopped(|s, _| s.speed_fraction = f64::NAN), R::Slowed { .. }));
        assert!(matches!(stopped(|_, seen| seen.age_ns = 10_000_001), R::Stale { .. }));
        assert_eq!(judge(|_, seen| seen.age_ns = 10_000_000), Ok(()));
        assert!(matches!(stopped(|_, seen| seen.skipped = 6), R::Skipped { cycles: 6 }));
        assert!(matches!(stopped(|_, seen| seen.content = Some(Content::ClockBackwards)), R::Clock { .. }));
        assert!(matches!(stopped(|s, _| s.joints_rad[3] = 0.21), R::FollowingError { joint: 3, .. }));
        assert!(matches!(stopped(|s, _| s.joints_rad[3] = f64::NAN), R::FollowingError { joint: 3, .. }));
    }

    #[test]
    fn a_jump_is_not_admitted_and_no_number_is_one() {
        let mut monitor = Monitor::new(&ServoConfig::default());
        let at = [0.1; 6];
        assert_eq!(monitor.admit(&at, &at, 1), Ok(()));
        assert!(monitor.admit(&[0.11; 6], &at, 1).is_err(), "the first target is where the arm is");
        monitor.sent(&at, true).unwrap();
        let mut next = at;
        next[5] += 0.002;
        assert_eq!(monitor.admit(&next, &[9.0; 6], 1), Ok(()), "1 rad/s is the limit");
        next[5] += 0.002;
        assert!(matches!(monitor.admit(&next, &at, 1), Err(StopReason::Jump { joint: 5, .. })));
        assert_eq!(monitor.admit(&next, &at, 2), Ok(()), "a passed cycle makes room");
        next[2] = f64::NAN;
        assert!(matches!(monitor.admit(&next, &at, 100), Err(StopReason::Jump { joint: 2, .. })));
    }

    #[test]
    fn states_that_contradict_each_other_stop() {
        let mut monitor = Monitor::new(&ServoConfig::default());
        let mut state = good();
        let seen = |state: &'static ServoState| Seen {
            state,
            age_ns: 0,
            content: Some(Content::New),
            skipped: 0,
            streaming: true,
        };
        assert_eq!(monitor.judge(&seen(Box::leak(Box::new(state)))), Ok(()));
        state.controller_s += 0.002;
        state.joints_rad[1] = 0.05;
        let judged = monitor.judge(&seen(Box::leak(Box::new(state))));
        assert!(matches!(judged, Err(StopReason::Contradiction { joint: 1, .. })), "{judged:?}");
    }
}

//! Whether the inputs of a job can be trusted at all.

mod camera;
mod robot;

use serde::{Deserialize, Serialize};
use takt_perception::Detections;

pub(super) use camera::CameraWatch;
pub(super) use robot::robot_fault;
pub(crate) use robot::{MAX_TOOL_M, Reach, is_within_reach};

/// The monitor's input from one camera.
#[derive(Clone, Copy, Debug)]
pub struct CameraInput<'a> {
    /// Newest result.
    pub detections: &'a Detections,
    /// Whether the perception thread is still running.
    pub alive: bool,
}

/// Reason why an input cannot be trusted. Each of them stops the robot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultKind {
    /// The perception thread has ended.
    PerceptionDead,
    /// No frame came yet.
    NoFrame,
    /// The newest capture is too old.
    StaleFrame,
    /// The newest capture lies in the future.
    FutureFrame,
    /// The newest capture does not lie after the one before, although its number does.
    StampBackwards,
    /// The sequence number went backwards.
    SequenceBackwards,
    /// The sequence number of the frame before, on another frame.
    SequenceRepeated,
    /// Colour and depth of a frame were captured too far apart: one of the two sensors has stalled.
    StreamsApart,
    /// The image, or a part of it, does not change even by the sensor's noise.
    Frozen,
    /// The colour image is empty.
    EmptyColour,
    /// Too little valid depth.
    EmptyDepth,
    ImpossibleDepth,
    /// The frame's size is not the configured one.
    WrongSize,
    /// The camera's pose at capture is unknown.
    NoPose,
    /// The network failed.
    InferenceFailed,
    /// Too much of the monitored volume lies in holes of the depth image.
    Unseen,
    /// Something hides places near the tool from a camera, and no other camera sees them.
    Hidden,
    /// Depth goes through the floor, a fixture or the arm by one factor: the depth scale, the focal
    /// length, the camera's place or the configured floor is wrong.
    WrongScale,
    /// A distance is NaN, negative or farther than the cell is wide.
    ImpossibleDistance,
    /// No packet from the robot for too long, or the link is down.
    RobotLinkLost,
    /// The robot's packet is dated in the future.
    RobotFutureDated,
    /// Robot mode is not "running".
    RobotNotRunning,
    /// Safety mode is neither "normal" nor "reduced".
    RobotSafetyMode,
    /// No program runs on the controller.
    ProgramStopped,
    /// The robot's speed or pose is not a number.
    RobotNotANumber,
    /// A number of the robot's state is one that no robot has: a tool farther from the base than
    /// any arm reaches, a speed beyond all joints.
    RobotImpossible,
    /// The tool is not where the joints of the same packet place it.
    RobotPoseNotOfJoints,
    /// The same packet comes again and again: its content is old.
    RobotStateRepeated,
    /// The controller's time stamp stands still while its values change.
    RobotClockFrozen,
    /// The controller's time stamp runs backwards.
    RobotClockBackwards,
    /// The controller's time stamp leaps ahead of the time that passed.
    RobotClockLeapt,
    /// Packets come, but what they say was measured too long ago.
    RobotStateOld,
    /// Several commands in a row did not leave this computer.
    CommandNotSent,
    /// The controller's echo of the heartbeat does not change, or shows what was never sent.
    HeartbeatNotEchoed,
    /// The controller's echo answers commands that are too old.
    AcknowledgementLate,
    /// The program on the robot does not copy the heartbeat: its watchdog does not run.
    ScriptNotEchoing,
    /// The program on the robot copies heartbeats that are too old.
    ScriptEchoLate,
    /// The program on the robot does not answer the challenge: it is not ours, or its watchdog is
    /// not armed.
    WatchdogNotProven,
    /// A stop is commanded, and the robot moves after its stopping time.
    MovesDespiteStop,
    /// The tool moves faster than commanded.
    FasterThanCommanded,
    /// The controller follows a greater speed fraction than commanded.
    SpeedFractionNotFollowed,
}

impl FaultKind {
    /// Whether the robot does other things than it is instructed, or does not hear: the dashboard's
    /// stop is tried, too.
    pub(crate) const fn is_disobedience(self) -> bool {
        self.is_motion()
            || matches!(
                self,
                Self::CommandNotSent
                    | Self::HeartbeatNotEchoed
                    | Self::AcknowledgementLate
                    | Self::ScriptNotEchoing
                    | Self::ScriptEchoLate
                    | Self::WatchdogNotProven
            )
    }

    /// Whether the robot's own motion shows it.
    pub(crate) const fn is_motion(self) -> bool {
        matches!(self, Self::MovesDespiteStop | Self::FasterThanCommanded | Self::SpeedFractionNotFollowed)
    }

    /// A few words for a person.
    pub const fn text(self) -> &'static str {
        match self {
            Self::PerceptionDead => "perception thread ended",
            Self::NoFrame => "no frame yet",
            Self::StaleFrame => "frames are stale",
            Self::FutureFrame => "frame timestamp in the future",
            Self::StampBackwards => "frame timestamps went backwards",
            Self::SequenceBackwards => "frame sequence went backwards",
            Self::SequenceRepeated => "frame sequence number repeated",
            Self::StreamsApart => "colour and depth too far apart",
            Self::Frozen => "image is frozen",
            Self::EmptyColour => "colour image is empty",
            Self::EmptyDepth => "depth image is empty",
            Self::ImpossibleDepth => "impossible depths",
            Self::WrongSize => "frame size is not the configured one",
            Self::NoPose => "camera pose unknown",
            Self::InferenceFailed => "inference failed",
            Self::Unseen => "too much of the volume is not visible",
            Self::Hidden => "an object hides space near the robot",
            Self::WrongScale => "depth goes through the floor or a fixture",
            Self::ImpossibleDistance => "impossible distance",
            Self::RobotLinkLost => "robot link lost",
            Self::RobotFutureDated => "robot state timestamp in the future",
            Self::RobotNotRunning => "robot is not running",
            Self::RobotSafetyMode => "robot safety stop",
            Self::ProgramStopped => "robot program is not running",
            Self::RobotNotANumber => "robot state is not a number",
            Self::RobotImpossible => "impossible pose or speed of the robot",
            Self::RobotPoseNotOfJoints => "the tool's position contradicts the joints",
            Self::RobotStateRepeated => "the robot's state repeats itself",
            Self::RobotClockFrozen => "the controller's clock stands still",
            Self::RobotClockBackwards => "the controller's clock runs backwards",
            Self::RobotClockLeapt => "the controller's clock leaps",
            Self::RobotStateOld => "the robot's state is old",
            Self::CommandNotSent => "commands cannot be sent",
            Self::HeartbeatNotEchoed => "the controller does not echo the heartbeat",
            Self::AcknowledgementLate => "commands are acknowledged late",
            Self::ScriptNotEchoing => "the robot's program does not echo the heartbeat",
            Self::ScriptEchoLate => "the robot's program echoes the heartbeat late",
            Self::WatchdogNotProven => "the robot's program has no armed watchdog",
            Self::MovesDespiteStop => "the robot moves although stop is commanded",
            Self::FasterThanCommanded => "the robot moves faster than commanded",
            Self::SpeedFractionNotFollowed => "the controller follows another speed than commanded",
        }
    }
}

/// A fault and the camera that has it (`None`: the robot).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// The fault.
    pub kind: FaultKind,
    /// Index of the camera.
    pub camera: Option<u32>,
}

/// `later - earlier` in nanoseconds, signed and saturating: time stamps are outside data.
fn signed_gap_ns(later: u64, earlier: u64) -> i64 {
    if later >= earlier {
        i64::try_from(later - earlier).unwrap_or(i64::MAX)
    } else {
        i64::try_from(earlier - later).map_or(i64::MIN, |gap| -gap)
    }
}

const NS_PER_MS: f64 = 1e6;

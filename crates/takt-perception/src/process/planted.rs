//! Faults on purpose, for tests: what a broken device does, at a frame of one's choice.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::{Detections, FramePose};

use crate::process::frame_judge::{FrameJudge, JudgeError, PixelMemory, Seen, StageSpans};

/// The environment variable that plants faults in worker processes:
/// `KIND@FRAME[+COUNT][:MS][/all]`, for example `hang@30`, `sleep@20+10:80` (ten frames of 80 ms)
/// or `abort@5/all` (in every process, not only in the first). A run with planted faults is
/// labelled.
pub const FAULT_VARIABLE: &str = "TAKT_WORKER_FAULT";

/// Fault of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Answers late by so much.
    Sleep,
    /// Never answers again.
    Hang,
    /// Ends the process.
    Abort,
    /// Says that the device is lost.
    Lost,
    /// Cannot judge the frame.
    Error,
    /// Answers about another frame.
    Other,
}

/// A fault and when it comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    pub fault: Fault,
    /// Counted from 1 in each process: the first judged frame that has it.
    pub at: u64,
    /// Number of frames with it.
    pub count: u64,
    /// Length of a sleep.
    pub length: Duration,
    /// In every process, or in the first only.
    pub all: bool,
}

/// Reason why a fault cannot be planted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// The text of the variable.
    #[error(
        "{FAULT_VARIABLE}=\"{0}\": expected KIND@FRAME[+COUNT][:MS][/all] with KIND one of sleep, hang, abort, lost, error, other"
    )]
    Words(String),
    /// A batch is judged as a whole.
    #[error("{FAULT_VARIABLE}: not with perception.gpu.streams = \"batch\"")]
    Batch,
}

const KINDS: [(&str, Fault); 6] = [
    ("sleep", Fault::Sleep),
    ("hang", Fault::Hang),
    ("abort", Fault::Abort),
    ("lost", Fault::Lost),
    ("error", Fault::Error),
    ("other", Fault::Other),
];

impl FromStr for Plan {
    type Err = PlanError;

    fn from_str(text: &str) -> Result<Self, PlanError> {
        let refused = || PlanError::Words(text.to_owned());
        let (rest, all) = text.strip_suffix("/all").map_or((text, false), |rest| (rest, true));
        let (kind, rest) = rest.split_once('@').ok_or_else(refused)?;
        let (rest, ms) = rest.split_once(':').unwrap_or((rest, "100"));
        let (at, count) = rest.split_once('+').unwrap_or((rest, "1"));
        let fault =
            KINDS.iter().find(|(name, _)| *name == kind).map(|(_, fault)| *fault).ok_or_else(refused)?;
        Ok(Self {
            fault,
            at: at.parse().map_err(|_| refused())?,
            count: count.parse().map_err(|_| refused())?,
            length: Duration::from_millis(ms.parse().map_err(|_| refused())?),
            all,
        })
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = KINDS.iter().find(|(_, fault)| *fault == self.fault).map_or("?", |(name, _)| name);
        write!(f, "{name} at frame {} of each camera, {} times", self.at, self.count)
    }
}

/// A judge with a planted fault.
pub struct Planted<J> {
    judge: J,
    plan: Plan,
    judged: u64,
}

impl<J> Planted<J> {
    /// `judge`, with the fault.
    pub fn new(judge: J, plan: Plan) -> Self {
        Self { judge, plan, judged: 0 }
    }
}

impl<J: FrameJudge> FrameJudge for Planted<J> {
    fn after(&mut self) {
        self.judge.after();
    }

    fn adopt(&mut self, memory: PixelMemory) -> Result<(), JudgeError> {
        self.judge.adopt(memory)
    }

    fn judge(
        &mut self,
        frame: &Seen<'_>,
        pose: Option<&FramePose>,
        start_ns: u64,
        deadline_ns: u64,
        out: &mut Detections,
    ) -> Result<StageSpans, JudgeError> {
        self.judged += 1;
        let Plan { fault, at, count, length, .. } = self.plan;
        let stages = self.judge.judge(frame, pose, start_ns, deadline_ns, out)?;
        if self.judged < at || self.judged - at >= count {
            return Ok(stages);
        }
        match fault {
            Fault::Sleep => std::thread::sleep(length),
            Fault::Hang => loop {
                std::thread::sleep(Duration::from_secs(1));
            },
            Fault::Abort => std::process::abort(),
            Fault::Lost => return Err(JudgeError::Lost("planted: the device is lost".into())),
            Fault::Error => return Err(JudgeError::Frame("planted: this frame cannot be judged".into())),
            Fault::Other => out.frame_sequence += 1,
        }
        Ok(stages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_are_read() {
        let plan: Plan = "sleep@20+10:80/all".parse().unwrap();
        let expected =
            Plan { fault: Fault::Sleep, at: 20, count: 10, length: Duration::from_millis(80), all: true };
        assert_eq!(plan, expected);
        let plan: Plan = "hang@3".parse().unwrap();
        assert_eq!((plan.fault, plan.at, plan.count, plan.all), (Fault::Hang, 3, 1, false));
        for wrong in ["", "hang", "hung@3", "hang@x", "sleep@1:x", "sleep@1+x"] {
            assert!(wrong.parse::<Plan>().unwrap_err().to_string().contains("expected"), "{wrong}");
        }
    }
}

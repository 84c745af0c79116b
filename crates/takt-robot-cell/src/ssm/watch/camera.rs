//! Whether a camera can be trusted.

use takt_perception::FrameHealth;

use super::super::SsmConfig;
use super::{CameraInput, FaultKind, NS_PER_MS, signed_gap_ns};

/// The newest look that a camera gave to a job.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::ssm) struct CameraWatch {
    sequence: u64,
    capture_ns: u64,
    /// Capture of the newest frame when the last fault was seen: recovery needs a later one.
    at_fault_ns: u64,
}

impl CameraWatch {
    /// Judges one camera. The order of a bad frame is taken as the new one, so that a source that
    /// starts again costs one stop.
    pub(in crate::ssm) fn judge(
        &mut self,
        config: &SsmConfig,
        input: CameraInput<'_>,
        now_ns: u64,
    ) -> Option<FaultKind> {
        let last = *self;
        let detections = input.detections;
        (self.sequence, self.capture_ns) = (detections.frame_sequence, detections.capture_ns);
        let fault = camera_fault(config, input, now_ns, &last);
        // A time in the future cannot be a reference for later frames: it would lock the camera out
        // until then.
        if is_future(config, self.capture_ns, now_ns) {
            self.capture_ns = last.capture_ns;
        }
        fault
    }

    /// Asks for a later capture than the newest one.
    pub(in crate::ssm) fn forget_validity(&mut self) {
        // Never one of the future, see `judge`.
        self.at_fault_ns = self.capture_ns;
    }

    /// Whether the newest capture lies after the last fault.
    pub(in crate::ssm) fn is_fresh(&self) -> bool {
        self.capture_ns > self.at_fault_ns
    }
}

fn is_future(config: &SsmConfig, capture_ns: u64, now_ns: u64) -> bool {
    -(signed_gap_ns(now_ns, capture_ns) as f64 / NS_PER_MS) > config.future_tolerance_ms
}

/// Judges one camera after its last look.
fn camera_fault(
    config: &SsmConfig,
    input: CameraInput<'_>,
    now_ns: u64,
    last: &CameraWatch,
) -> Option<FaultKind> {
    let detections = input.detections;
    if !input.alive {
        return Some(FaultKind::PerceptionDead);
    }
    match detections.health {
        FrameHealth::Ok => {}
        FrameHealth::NoFrame => return Some(FaultKind::NoFrame),
        FrameHealth::EmptyColour => return Some(FaultKind::EmptyColour),
        FrameHealth::EmptyDepth => return Some(FaultKind::EmptyDepth),
        FrameHealth::ImpossibleDepth => return Some(FaultKind::ImpossibleDepth),
        FrameHealth::WrongSize => return Some(FaultKind::WrongSize),
        FrameHealth::NoPose => return Some(FaultKind::NoPose),
        FrameHealth::InferenceFailed => return Some(FaultKind::InferenceFailed),
        FrameHealth::Frozen => return Some(FaultKind::Frozen),
        FrameHealth::FutureStamp => return Some(FaultKind::FutureFrame),
        FrameHealth::StampBackwards => return Some(FaultKind::StampBackwards),
        FrameHealth::SequenceRepeated => return Some(FaultKind::SequenceRepeated),
        FrameHealth::SequenceBackwards => return Some(FaultKind::SequenceBackwards),
        FrameHealth::StreamsApart => return Some(FaultKind::StreamsApart),
        FrameHealth::Unseen => return Some(FaultKind::Unseen),
        FrameHealth::WrongScale => return Some(FaultKind::WrongScale),
    }
    if is_future(config, detections.capture_ns, now_ns) {
        return Some(FaultKind::FutureFrame);
    }
    if detections.frame_sequence < last.sequence {
        return Some(FaultKind::SequenceBackwards);
    }
    if detections.frame_sequence == last.sequence && detections.capture_ns != last.capture_ns {
        return Some(FaultKind::SequenceRepeated);
    }
    // An equal capture is one sensor that has stalled beside another that has not: it ages.
    if detections.capture_ns < last.capture_ns {
        return Some(FaultKind::StampBackwards);
    }
    let age_ms = signed_gap_ns(now_ns, detections.capture_ns) as f64 / NS_PER_MS;
    if age_ms > config.stale_after_ms {
        return Some(FaultKind::StaleFrame);
    }
    let impossible = |d: f32| !(d.is_finite() && d >= 0.0 && f64::from(d) <= config.farthest_m);
    if detections.objects().iter().any(|o| impossible(o.distance_m)) {
        return Some(FaultKind::ImpossibleDistance);
    }
    None
}

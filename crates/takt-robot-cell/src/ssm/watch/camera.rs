//! Whether a camera can be trusted.

use takt_perception::FrameHealth;

use super::super::SsmConfig;
use super::{CameraInput, FaultKind, NS_PER_MS, signed_gap_ns};

/// Judges one camera. `last_sequence` is the greatest sequence number seen so far.
pub(in crate::ssm) fn camera_fault(
    config: &SsmConfig,
    input: CameraInput<'_>,
    now_ns: u64,
    last_sequence: u64,
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
        FrameHealth::Unseen => return Some(FaultKind::Unseen),
    }
    if detections.frame_sequence < last_sequence {
        return Some(FaultKind::SequenceBackwards);
    }
    let age_ms = signed_gap_ns(now_ns, detections.capture_ns) as f64 / NS_PER_MS;
    if age_ms < -config.future_tolerance_ms {
        return Some(FaultKind::FutureFrame);
    }
    if age_ms > config.stale_after_ms {
        return Some(FaultKind::StaleFrame);
    }
    let impossible = |d: f32| !(d.is_finite() && d >= 0.0 && f64::from(d) <= config.farthest_m);
    if detections.objects().iter().any(|o| impossible(o.distance_m)) {
        return Some(FaultKind::ImpossibleDistance);
    }
    None
}

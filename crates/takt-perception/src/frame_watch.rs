//! Whether a frame is a new look at the world: its numbers and stamps, and whether its picture
//! lives.
//!
//! It needs the frame in host memory and the one before it, and so runs before perception, whoever
//! perceives.

use takt_link_camera::{Frame, StreamStamp, Streams};

use crate::config::HealthConfig;
use crate::picture::{Moment, PictureWatch};
use crate::result::FrameHealth;

/// Watches the frames of one camera.
///
/// Every rule compares a frame with the one before it, and the order of a bad frame is taken as the
/// new one: a source that starts again, or one wrong stamp, costs that frame and at most the next.
/// A stamp of the future is never taken as the measure of what follows.
#[derive(Clone, Debug)]
pub struct FrameWatch {
    future_tolerance_ns: u64,
    max_stream_gap_ns: u64,
    last: Option<Seen>,
    picture: PictureWatch,
    content_ns: u64,
}

/// Facts kept about a frame.
#[derive(Clone, Copy, Debug)]
struct Seen {
    sequence: u64,
    streams: Streams,
}

impl FrameWatch {
    /// A watch that has seen nothing.
    pub fn new(config: &HealthConfig) -> Self {
        let ns = |ms: f32| (f64::from(ms) * 1e6) as u64;
        Self {
            future_tolerance_ns: ns(config.future_tolerance_ms),
            max_stream_gap_ns: ns(config.max_stream_gap_ms),
            last: None,
            picture: PictureWatch::new(config),
            content_ns: 0,
        }
    }

    /// Judges a frame that the camera has just delivered. [`FrameHealth::Ok`] means that it may be
    /// looked at.
    pub fn judge(&mut self, frame: &Frame, now_ns: u64) -> FrameHealth {
        if frame.sequence == 0 {
            return FrameHealth::NoFrame;
        }
        let pixels = frame.width as usize * frame.height as usize;
        if pixels == 0 || frame.depth_mm.len() != pixels || frame.rgb.len() != pixels * 3 {
            return FrameHealth::WrongSize;
        }
        let seen = Seen { sequence: frame.sequence, streams: frame.stamps() };
        let latest_ns = now_ns.saturating_add(self.future_tolerance_ns);
        let stamps = self.judge_stamps(&seen, frame.capture_ns, latest_ns);
        self.last = Some(self.measure(seen, latest_ns));
        // Looked at in any case: the picture of a frame with a wrong stamp is the one before the
        // next.
        let look = self.picture.look(frame, Moment { now_ns, capture_ns: frame.capture_ns.min(now_ns) });
        self.content_ns = look.content_ns;
        match stamps {
            FrameHealth::Ok if look.frozen => FrameHealth::Frozen,
            health => health,
        }
    }

    /// Capture of the newest content, CLOCK_MONOTONIC nanoseconds: a frame that repeats an earlier
    /// one in some part shows the world of then. Content that ages by it is stale when a silent
    /// camera would be, whatever `frozen_after_ms` is.
    pub fn content_ns(&self) -> u64 {
        self.content_ns
    }

    fn judge_stamps(&self, seen: &Seen, capture_ns: u64, latest_ns: u64) -> FrameHealth {
        let Streams { colour, depth } = seen.streams;
        if [capture_ns, colour.capture_ns, depth.capture_ns].iter().any(|&at_ns| at_ns > latest_ns) {
            return FrameHealth::FutureStamp;
        }
        if let Some(last) = &self.last {
            for (new, old) in [(depth, last.streams.depth), (colour, last.streams.colour)] {
                let health = follows(&new, &old);
                if health != FrameHealth::Ok {
                    return health;
                }
            }
        }
        if let Some(last) = &self.last {
            if seen.sequence == last.sequence {
                return FrameHealth::SequenceRepeated;
            }
            if seen.sequence < last.sequence {
                return FrameHealth::SequenceBackwards;
            }
        }
        // Last: a stalled sensor first repeats its number, which is no fault of its own.
        if colour.capture_ns.abs_diff(depth.capture_ns) > self.max_stream_gap_ns {
            return FrameHealth::StreamsApart;
        }
        FrameHealth::Ok
    }

    /// Values with which the next frame is compared.
    fn measure(&self, mut seen: Seen, latest_ns: u64) -> Seen {
        let last = self.last.map(|last| last.streams).unwrap_or_default();
        let pairs = [(&mut seen.streams.colour, last.colour), (&mut seen.streams.depth, last.depth)];
        for (stream, last) in pairs {
            if stream.capture_ns > latest_ns {
                stream.capture_ns = last.capture_ns;
            }
        }
        seen
    }
}

/// Whether an image of a sensor may follow another one of it.
fn follows(new: &StreamStamp, old: &StreamStamp) -> FrameHealth {
    if new.number < old.number {
        FrameHealth::SequenceBackwards
    } else if new.number == old.number {
        // The very same image again: it ages, and its distance from the other sensor's grows.
        let same = new.capture_ns == old.capture_ns;
        if same { FrameHealth::Ok } else { FrameHealth::SequenceRepeated }
    } else if new.capture_ns <= old.capture_ns {
        FrameHealth::StampBackwards
    } else {
        FrameHealth::Ok
    }
}

#[cfg(test)]
mod tests;

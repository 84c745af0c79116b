//! τ_v_i: draws what was found into the frames of one camera, as the paper's user interface does
//! (SentryRT-1, sections III and IV). Load, not a view: it shares the buffers of perception and
//! SSM, runs as best effort, and nobody looks at its picture.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use takt_link_camera::Frame;
use takt_perception::{Detections, Overlay};
use takt_rt::exchange::Reader;
use takt_rt::signal::Signal;

use crate::view::{CellStatus, Zone, tint};

/// Period at which a thread without frames checks whether it must end.
const WAIT: Duration = Duration::from_millis(50);

/// Width of the lines around what was found, pixels.
const LINE: usize = 2;

/// Connections of the task.
pub struct VisualisationPorts {
    pub frames: Reader<Frame>,
    /// Notified with every frame.
    pub signal: Signal,
    pub detections: Reader<Detections>,
    /// Masks of the newest judged frame.
    pub overlays: Option<Reader<Overlay>>,
    /// Frames drawn so far.
    pub drawn: Arc<AtomicU64>,
    pub stop: Arc<AtomicBool>,
}

pub struct VisualisationTask {
    ports: VisualisationPorts,
    /// The thresholds that colour what was found.
    status: CellStatus,
    zones: Vec<Zone>,
    /// The picture that is drawn, and the one that a window would show.
    back: Vec<u8>,
    front: Vec<u8>,
    last_write: u64,
}

impl VisualisationTask {
    /// Colours what is nearer than `stop_m` and `reduce_m`.
    pub fn new(ports: VisualisationPorts, stop_m: f64, reduce_m: f64) -> Self {
        let status = CellStatus {
            protective_distance_m: stop_m as f32,
            reduce_distance_m: reduce_m as f32,
            ..CellStatus::default()
        };
        Self { ports, status, zones: Vec::new(), back: Vec::new(), front: Vec::new(), last_write: 0 }
    }

    /// Draws every newest frame until asked to stop.
    pub fn run(mut self) {
        while !self.ports.stop.load(Ordering::Acquire) {
            let seen = self.ports.signal.value();
            if !self.draw_newest() {
                self.ports.signal.wait(seen, WAIT);
            }
        }
    }

    /// Draws the newest frame if it is new; false when it is not.
    fn draw_newest(&mut self) -> bool {
        let snapshot = self.ports.frames.read();
        if snapshot.sequence == self.last_write {
            return false;
        }
        self.last_write = snapshot.sequence;
        let Frame { width, height, rgb, .. } = snapshot.value;
        let (width, height) = (*width, *height);
        if rgb.len() != width as usize * height as usize * 3 {
            return true;
        }
        self.back.clear();
        self.back.extend_from_slice(rgb);
        // The newest that was found, as the paper's buffers hold it: mostly of the frame before.
        let detections = self.ports.detections.read().value;
        self.zones.clear();
        self.zones.extend(detections.objects().iter().map(|object| self.status.zone(object.distance_m)));
        if let Some(overlays) = &mut self.ports.overlays {
            tint(&mut self.back, width, height, overlays.read().value, &self.zones);
        }
        for (object, zone) in detections.objects().iter().zip(&self.zones) {
            outline(&mut self.back, width as usize, height as usize, object.box_px, zone.colour());
        }
        std::mem::swap(&mut self.back, &mut self.front);
        std::hint::black_box(&self.front);
        self.ports.drawn.fetch_add(1, Ordering::Relaxed);
        true
    }
}

/// Draws the outline of a box (left, top, right, bottom), cut off at the picture's edges.
fn outline(rgb: &mut [u8], width: usize, height: usize, box_px: [f32; 4], colour: [u8; 3]) {
    // A cast of what is no number gives 0, and of what is beyond the ends, the ends.
    let [left, top, right, bottom] = box_px.map(|side| side.max(0.0) as usize);
    let (right, bottom) = (right.min(width), bottom.min(height));
    for y in top..bottom {
        let is_edge = y < top + LINE || y + LINE >= bottom;
        for x in left..right {
            if is_edge || x < left + LINE || x + LINE >= right {
                rgb[(y * width + x) * 3..][..3].copy_from_slice(&colour);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use takt_perception::{FrameHealth, Object};
    use takt_rt::exchange::latest;

    #[test]
    fn an_outline_stays_within_the_picture() {
        let mut rgb = vec![0; 16 * 8 * 3];
        outline(&mut rgb, 16, 8, [2.0, 1.0, 10.0, 7.0], [9, 9, 9]);
        let inked = |x: usize, y: usize| rgb[(y * 16 + x) * 3] == 9;
        assert!(inked(2, 1) && inked(9, 6) && inked(3, 3) && !inked(5, 3) && !inked(1, 1) && !inked(10, 3));
        for odd in [
            [-5.0, -5.0, 500.0, 500.0],
            [f32::NAN; 4],
            [f32::INFINITY, 0.0, f32::NEG_INFINITY, 4.0],
            [12.0, 7.0, 3.0, 2.0],
        ] {
            outline(&mut rgb, 16, 8, odd, [1, 1, 1]);
        }
    }

    #[test]
    fn every_new_frame_is_drawn_once_with_what_was_found() {
        let (mut frames, mut frame_readers) = latest(1, || Frame::new(32, 24));
        let (mut found, mut found_readers) = latest(1, Detections::default);
        let (mut masks, mut mask_readers) = latest(1, || Overlay::new(32, 24));
        let drawn = Arc::new(AtomicU64::new(0));
        let ports = VisualisationPorts {
            frames: frame_readers.remove(0),
            signal: Signal::new(),
            detections: found_readers.remove(0),
            overlays: Some(mask_readers.remove(0)),
            drawn: Arc::clone(&drawn),
            stop: Arc::default(),
        };
        let mut task = VisualisationTask::new(ports, 1.0, 2.0);
        assert!(!task.draw_newest(), "there is no frame yet");
        let mut detections = Detections::default();
        detections.health = FrameHealth::Ok;
        detections.insert(Object { distance_m: 0.5, box_px: [4.0, 4.0, 20.0, 20.0], ..Object::default() });
        found.publish(1, detections);
        masks.write(1, |mask| mask.mask.fill(1));
        frames.write(1, |frame| frame.rgb.fill(10));
        assert!(task.draw_newest() && !task.draw_newest());
        assert_eq!(drawn.load(Ordering::Relaxed), 1);
        let pixel = |x: usize, y: usize| task.front[(y * 32 + x) * 3..][..3].to_vec();
        assert_eq!(pixel(4, 4), Zone::Stop.colour(), "the outline");
        assert_ne!(pixel(12, 12), [10, 10, 10], "the mask");
    }
}

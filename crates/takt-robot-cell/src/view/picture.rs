//! Pictures for the page: the newest frame with the detections and masks of that same frame, as
//! JPEG.

use std::sync::Arc;

use jpeg_encoder::{ColorType, Encoder, SamplingFactor};
use takt_link_camera::Frame;
use takt_perception::{Detections, Overlay};
use takt_rt::exchange::Reader;

use crate::view::api::PictureNote;
use crate::view::mask;
use crate::view::server::CameraSource;
use crate::view::status::{CellStatus, Zone};

/// Time that a frame waits for its detections. Perception of a healthy cell needs about 30 ms.
const SETTLE_NS: u64 = 150_000_000;
/// After this long without a request nobody looks any more.
const WATCHED_NS: u64 = 1_000_000_000;

/// Settings for making pictures.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PictureSettings {
    pub period_ns: u64,
    pub jpeg_quality: u8,
    pub shrink: u32,
}

/// A finished picture.
#[derive(Clone, Debug)]
pub(crate) struct Picture {
    pub jpeg: Arc<[u8]>,
    pub note: PictureNote,
    pub capture_ns: u64,
}

/// Reason why there is no picture.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PictureError {
    #[error("no frame yet")]
    NoFrame,
    #[error("frame of {width} x {height} pixels has {received} colour bytes, expected {expected}")]
    WrongSize { width: u32, height: u32, received: usize, expected: usize },
    #[error("cannot encode the frame: {0}")]
    Encode(String),
}

/// A frame that waits for its detections.
struct Pending {
    frame: u64,
    capture_ns: u64,
    width: u32,
    height: u32,
    taken_ns: u64,
}

/// Makes the pictures of one camera, only while somebody asks for them.
pub(crate) struct PictureMaker {
    frames: Reader<Frame>,
    detections: Reader<Detections>,
    masks: Option<Reader<Overlay>>,
    settings: PictureSettings,
    rgb: Vec<u8>,
    pending: Option<Pending>,
    newest: Result<Picture, PictureError>,
    /// Exchange sequence of the frame taken last.
    taken_sequence: u64,
    taken_ns: u64,
    asked_ns: Option<u64>,
    encoded: u64,
}

impl PictureMaker {
    pub fn new(source: CameraSource, settings: PictureSettings) -> Self {
        Self {
            frames: source.frames,
            detections: source.detections,
            masks: source.masks,
            settings,
            rgb: Vec::new(),
            pending: None,
            newest: Err(PictureError::NoFrame),
            taken_sequence: 0,
            taken_ns: 0,
            asked_ns: None,
            encoded: 0,
        }
    }

    /// Pictures encoded so far.
    pub fn encoded(&self) -> u64 {
        self.encoded
    }

    /// The newest picture, for a client. The first one after a pause is made at once, since what is
    /// kept is old.
    pub fn ask(&mut self, now_ns: u64, status: &CellStatus) -> &Result<Picture, PictureError> {
        let watched = self.watched(now_ns);
        self.asked_ns = Some(now_ns);
        if !watched || self.newest.is_err() {
            self.take(now_ns);
            self.finish(now_ns, status, true);
        }
        &self.newest
    }

    /// Moves on: takes a new frame when it is time to, and finishes it when its detections are
    /// there.
    pub fn advance(&mut self, now_ns: u64, status: &CellStatus) {
        if self.watched(now_ns) && self.pending.is_none() && now_ns >= self.taken_ns + self.settings.period_ns
        {
            self.take(now_ns);
        }
        self.finish(now_ns, status, false);
    }

    /// When [`Self::advance`] should be called next; `None` while nobody looks.
    pub fn due_ns(&self, now_ns: u64) -> Option<u64> {
        if self.pending.is_some() {
            return Some(now_ns + 10_000_000);
        }
        self.watched(now_ns).then(|| (self.taken_ns + self.settings.period_ns).max(now_ns + 10_000_000))
    }

    fn watched(&self, now_ns: u64) -> bool {
        self.asked_ns.is_some_and(|asked| now_ns.saturating_sub(asked) < WATCHED_NS)
    }

    /// Copies the newest frame, when there is a new one.
    fn take(&mut self, now_ns: u64) {
        if self.frames.sequence() == self.taken_sequence {
            return;
        }
        self.taken_ns = now_ns;
        let snapshot = self.frames.read();
        self.taken_sequence = snapshot.sequence;
        let frame = snapshot.value;
        let expected = frame.width as usize * frame.height as usize * 3;
        if frame.rgb.len() != expected || expected == 0 {
            let (width, height, received) = (frame.width, frame.height, frame.rgb.len());
            self.newest = Err(PictureError::WrongSize { width, height, received, expected });
            self.pending = None;
            return;
        }
        self.rgb.clear();
        self.rgb.extend_from_slice(&frame.rgb);
        self.pending = Some(Pending {
            frame: frame.sequence,
            capture_ns: frame.capture_ns,
            width: frame.width,
            height: frame.height,
            taken_ns: now_ns,
        });
    }

    fn finish(&mut self, now_ns: u64, status: &CellStatus, at_once: bool) {
        let Some(pending) = &self.pending else { return };
        let detections = self.detections.read();
        let mask = self.masks.as_mut().map(|masks| masks.read());
        let ready = detections.value.frame_sequence >= pending.frame
            && mask.as_ref().is_none_or(|mask| mask.value.frame_sequence >= pending.frame);
        if !(ready || at_once || now_ns.saturating_sub(pending.taken_ns) > SETTLE_NS) {
            return;
        }
        let zones: Vec<Zone> =
            detections.value.objects().iter().map(|object| status.zone(object.distance_m)).collect();
        let note = PictureNote::new(pending.frame, pending.width, pending.height, detections.value, &zones);
        if let Some(mask) = mask
            && note.same_frame
            && mask.value.frame_sequence == pending.frame
        {
            mask::tint(&mut self.rgb, pending.width, pending.height, mask.value, &zones);
        }
        let capture_ns = pending.capture_ns;
        self.encoded += 1;
        self.newest = encode(&self.rgb, pending.width, pending.height, self.settings).map(|jpeg| Picture {
            jpeg: jpeg.into(),
            note,
            capture_ns,
        });
        self.pending = None;
    }
}

fn encode(rgb: &[u8], width: u32, height: u32, settings: PictureSettings) -> Result<Vec<u8>, PictureError> {
    let failed = |what: &dyn std::fmt::Display| PictureError::Encode(what.to_string());
    let shrunk;
    let (rgb, width, height) = if settings.shrink > 1 {
        shrunk = shrink(rgb, width as usize, height as usize, settings.shrink as usize);
        (shrunk.as_slice(), width / settings.shrink, height / settings.shrink)
    } else {
        (rgb, width, height)
    };
    let side = |pixels: u32| u16::try_from(pixels).map_err(|_| failed(&"more than 65535 pixels on a side"));
    let mut jpeg = Vec::with_capacity(rgb.len() / 8);
    let mut encoder = Encoder::new(&mut jpeg, settings.jpeg_quality);
    encoder.set_sampling_factor(SamplingFactor::F_2_2);
    encoder.encode(rgb, side(width)?, side(height)?, ColorType::Rgb).map_err(|e| failed(&e))?;
    Ok(jpeg)
}

/// Box average over `by * by` pixels; columns and rows that do not fill a box are left out.
fn shrink(rgb: &[u8], width: usize, height: usize, by: usize) -> Vec<u8> {
    let mut small = Vec::with_capacity((width / by) * (height / by) * 3);
    for y in 0..height / by {
        for x in 0..width / by {
            let mut sum = [0_u32; 3];
            for row in y * by..(y + 1) * by {
                for pixel in rgb[(row * width + x * by) * 3..][..by * 3].chunks_exact(3) {
                    for (sum, &value) in sum.iter_mut().zip(pixel) {
                        *sum += u32::from(value);
                    }
                }
            }
            small.extend(sum.map(|sum| (sum / (by * by) as u32) as u8));
        }
    }
    small
}

#[cfg(test)]
mod tests {
    use super::*;
    use takt_perception::{FrameHealth, Object};
    use takt_rt::exchange::{Writer, latest};

    const MS: u64 = 1_000_000;
    const SETTINGS: PictureSettings = PictureSettings { period_ns: 125 * MS, jpeg_quality: 80, shrink: 1 };

    struct Bench {
        frames: Writer<Frame>,
        detections: Writer<Detections>,
        masks: Writer<Overlay>,
        maker: PictureMaker,
        status: CellStatus,
    }

    fn bench() -> Bench {
        let (frames, mut frame_readers) = latest(1, || Frame::new(64, 48));
        let (detections, mut detection_readers) = latest(1, Detections::default);
        let (masks, mut mask_readers) = latest(1, || Overlay::new(64, 48));
        let source = CameraSource {
            name: "front".into(),
            frames: frame_readers.remove(0),
            detections: detection_readers.remove(0),
            masks: Some(mask_readers.remove(0)),
        };
        let status =
            CellStatus { protective_distance_m: 0.8, reduce_distance_m: 1.5, ..CellStatus::default() };
        Bench { frames, detections, masks, maker: PictureMaker::new(source, SETTINGS), status }
    }

    impl Bench {
        fn frame(&mut self, sequence: u64) {
            self.frames.write(sequence, |f| {
                f.sequence = sequence;
                f.rgb.fill(90);
            });
        }

        fn perceived(&mut self, sequence: u64) {
            let mut detections = Detections::default();
            (detections.frame_sequence, detections.health) = (sequence, FrameHealth::Ok);
            detections.insert(Object {
                distance_m: 0.5,
                box_px: [1.0, 2.0, 30.0, 40.0],
                ..Object::default()
            });
            self.detections.publish(sequence, detections);
            self.masks.write(sequence, |m| {
                m.mask.fill(1);
                m.frame_sequence = sequence;
            });
        }
    }

    #[test]
    fn nothing_is_encoded_while_nobody_asks() {
        let mut bench = bench();
        for i in 1..20 {
            bench.frame(i);
            bench.maker.advance(i * 33 * MS, &bench.status);
        }
        assert_eq!(bench.maker.encoded(), 0);
        assert_eq!(bench.maker.due_ns(700 * MS), None);
    }

    #[test]
    fn without_a_frame_there_is_no_picture() {
        let mut bench = bench();
        assert_eq!(bench.maker.ask(MS, &bench.status).as_ref().err(), Some(&PictureError::NoFrame));
    }

    #[test]
    fn a_picture_waits_for_the_detections_of_its_frame() {
        let mut bench = bench();
        bench.frame(1);
        bench.perceived(1);
        assert!(bench.maker.ask(1000 * MS, &bench.status).as_ref().is_ok_and(|p| p.note.frame == 1));
        bench.frame(2);
        bench.maker.advance(1200 * MS, &bench.status);
        bench.maker.advance(1230 * MS, &bench.status);
        assert_eq!(bench.maker.encoded(), 1, "frame 2 must wait");
        bench.perceived(2);
        bench.maker.advance(1240 * MS, &bench.status);
        let picture = bench.maker.ask(1241 * MS, &bench.status).clone().expect("a picture");
        assert!(picture.note.same_frame);
        assert_eq!((picture.note.frame, bench.maker.encoded()), (2, 2));
        assert_eq!(picture.note.objects[0].zone, Zone::Stop);
    }

    #[test]
    fn a_dead_perception_does_not_stop_the_pictures_but_shows_no_mask() {
        let mut bench = bench();
        bench.frame(1);
        bench.perceived(1);
        let tinted = bench.maker.ask(1000 * MS, &bench.status).clone().expect("a picture");
        bench.frame(2);
        bench.maker.advance(1200 * MS, &bench.status);
        bench.maker.advance(1500 * MS, &bench.status);
        let plain = bench.maker.ask(1501 * MS, &bench.status).clone().expect("a picture");
        assert_eq!(plain.note.frame, 2);
        assert!(!plain.note.same_frame);
        assert_ne!(tinted.jpeg, plain.jpeg);
    }

    #[test]
    fn a_rate_above_the_limit_is_not_encoded() {
        let mut bench = bench();
        for i in 1..=100_u64 {
            let now = 1000 * MS + i * 10 * MS; // one second at 100 frames/s, asked for every time
            bench.frame(i);
            bench.perceived(i);
            bench.maker.advance(now, &bench.status);
            assert!(bench.maker.ask(now, &bench.status).is_ok());
        }
        assert!((7..=9).contains(&bench.maker.encoded()), "{}", bench.maker.encoded());
    }

    #[test]
    fn a_frame_of_wrong_size_is_an_error() {
        let mut bench = bench();
        bench.frames.write(1, |f| {
            f.sequence = 1;
            f.rgb.truncate(10);
        });
        let error = bench.maker.ask(MS, &bench.status).clone().expect_err("an error");
        assert!(error.to_string().contains("64 x 48 pixels has 10 colour bytes, expected 9216"), "{error}");
    }

    #[test]
    fn shrinking_averages_boxes() {
        let rgb: Vec<u8> = (0..5 * 3).flat_map(|i| [i as u8, 2 * i as u8, 0]).collect();
        // Rows of five: 0 1 2 3 4 / 5 6 7 8 9 / (left out)
        assert_eq!(shrink(&rgb, 5, 3, 2), [3, 6, 0, 5, 10, 0]);
    }
}

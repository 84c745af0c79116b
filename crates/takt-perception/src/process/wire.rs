//! Answers and questions as words in shared memory. Whatever a broken worker writes there is read
//! as words and checked: no bit pattern can be more than a wrong answer, and none that is not whole
//! is taken.

use crate::{
    Capsule, CapsuleFrame, Detections, FrameHealth, FramePose, MAX_OBJECTS, MAX_ROBOT_CAPSULES, Object,
    ObjectKind, Places, RobotShape,
};
use nalgebra::{Isometry3, Point3, Quaternion, Translation3, UnitQuaternion, Vector3};

use crate::process::frame_judge::{JudgeError, PARTS, StageSpans};
use crate::process::text::{TEXT_WORDS, Text};

/// Outcome of a frame.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Outcome {
    Judged,
    /// Not judged, for a reason of this frame.
    Failed(Text),
    /// Given up by the worker itself because its time was over.
    Overran(Text),
    /// The device is lost.
    Lost(Text),
}

/// An answer of the worker.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    /// The question that it answers.
    pub ticket: u64,
    /// When the worker took the question up, CLOCK_MONOTONIC nanoseconds.
    pub taken_ns: u64,
    /// When it had the answer.
    pub done_ns: u64,
    /// Its outcome.
    pub outcome: Outcome,
    /// Parts of the work.
    pub stages: StageSpans,
    /// The result; meaningful when judged.
    pub detections: Detections,
}

/// The request, besides the pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Question {
    pub ticket: u64,
    pub deadline_ns: u64,
    pub start_ns: u64,
    pub sequence: u64,
    pub capture_ns: u64,
    pub arrival_ns: u64,
    pub pose: Option<FramePose>,
}

pub(crate) const QUESTION_WORDS: usize = 7 + 14 + 1 + MAX_ROBOT_CAPSULES * CAPSULE_WORDS;
const CAPSULE_WORDS: usize = 4;
const OBJECT_WORDS: usize = 9;
/// Masks share a word with what was left out and whether a detector ran.
const MAX_MASKS: u32 = u32::MAX >> 1;
/// Behind as many objects as there may be.
const PLACES_AT: usize = ANSWER_WORDS - Places::WORDS;
pub(crate) const ANSWER_WORDS: usize =
    4 + 1 + TEXT_WORDS + 2 * PARTS + 1 + 3 + 5 + 1 + 3 + 2 + MAX_OBJECTS * OBJECT_WORDS + Places::WORDS;

/// Appends words to a fixed array.
struct Put<'a>(&'a mut [u64], usize);

impl Put<'_> {
    fn word(&mut self, word: u64) {
        if let Some(place) = self.0.get_mut(self.1) {
            *place = word;
        }
        self.1 += 1;
    }

    fn pair(&mut self, low: f32, high: f32) {
        self.word(u64::from(low.to_bits()) | u64::from(high.to_bits()) << 32);
    }

    fn pose(&mut self, pose: &Isometry3<f64>) {
        for value in pose.translation.vector.iter().chain(pose.rotation.coords.iter()) {
            self.word(value.to_bits());
        }
    }

    fn robot(&mut self, robot: &RobotShape) {
        self.word(robot.capsules().len() as u64);
        for Capsule { from_m, to_m, radius_m, .. } in robot.capsules() {
            self.pair(from_m.x, from_m.y);
            self.pair(from_m.z, to_m.x);
            self.pair(to_m.y, to_m.z);
            self.pair(*radius_m, 0.0);
        }
    }
}

/// Takes words from a fixed array.
struct Take<'a>(&'a [u64], usize);

impl Take<'_> {
    fn word(&mut self) -> u64 {
        let word = self.0.get(self.1).copied().unwrap_or(0);
        self.1 += 1;
        word
    }

    fn pair(&mut self) -> (f32, f32) {
        let word = self.word();
        (f32::from_bits(word as u32), f32::from_bits((word >> 32) as u32))
    }

    fn pose(&mut self) -> Isometry3<f64> {
        let mut value = || f64::from_bits(self.word());
        let translation = Translation3::new(value(), value(), value());
        // In the order of nalgebra's coordinates: i, j, k, w. Written by the cell itself, so
        // already of unit length.
        let (i, j, k, w) = (value(), value(), value(), value());
        Isometry3::from_parts(translation, UnitQuaternion::new_unchecked(Quaternion::new(w, i, j, k)))
    }

    /// Invalid capsules are left out: the robot is then seen, and stops.
    fn robot(&mut self) -> RobotShape {
        let mut robot = RobotShape::default();
        for _ in 0..self.word().min(MAX_ROBOT_CAPSULES as u64) {
            let ((ax, ay), (az, bx), (by, bz), (radius_m, _)) =
                (self.pair(), self.pair(), self.pair(), self.pair());
            let (from_m, to_m) = (Point3::new(ax, ay, az), Point3::new(bx, by, bz));
            robot.push(Capsule { frame: CapsuleFrame::Base, from_m, to_m, radius_m });
        }
        robot
    }
}

impl Question {
    pub fn words(&self) -> [u64; QUESTION_WORDS] {
        let mut words = [0; QUESTION_WORDS];
        let mut put = Put(&mut words, 0);
        put.word(self.ticket);
        put.word(self.deadline_ns);
        put.word(self.start_ns);
        put.word(self.sequence);
        put.word(self.capture_ns);
        put.word(self.arrival_ns);
        put.word(u64::from(self.pose.is_some()));
        if let Some(pose) = &self.pose {
            put.pose(&pose.camera_in_base);
            put.pose(&pose.tcp_in_base);
            put.robot(&pose.robot);
        }
        words
    }

    pub(crate) fn from_words(words: &[u64; QUESTION_WORDS]) -> Self {
        let mut take = Take(words, 0);
        Self {
            ticket: take.word(),
            deadline_ns: take.word(),
            start_ns: take.word(),
            sequence: take.word(),
            capture_ns: take.word(),
            arrival_ns: take.word(),
            pose: (take.word() == 1).then(|| FramePose {
                camera_in_base: take.pose(),
                tcp_in_base: take.pose(),
                robot: take.robot(),
            }),
        }
    }
}

const HEALTHS: [FrameHealth; 16] = [
    FrameHealth::Ok,
    FrameHealth::NoFrame,
    FrameHealth::EmptyColour,
    FrameHealth::EmptyDepth,
    FrameHealth::ImpossibleDepth,
    FrameHealth::WrongSize,
    FrameHealth::NoPose,
    FrameHealth::InferenceFailed,
    FrameHealth::Frozen,
    FrameHealth::FutureStamp,
    FrameHealth::StampBackwards,
    FrameHealth::SequenceRepeated,
    FrameHealth::SequenceBackwards,
    FrameHealth::StreamsApart,
    FrameHealth::Unseen,
    FrameHealth::WrongScale,
];

/// Reason why the words in the memory are not an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Garbled {
    /// A word that stands for a kind of something holds none of the known values.
    #[error("the worker wrote {found}; expected {what}")]
    Word { what: &'static str, found: u64 },
    /// The answer is about another frame than was asked about.
    #[error("the worker answered for frame {found} of camera {camera}; requested was frame {asked}")]
    OtherFrame {
        /// The camera in the answer.
        camera: u32,
        /// The frame that was asked about.
        asked: u64,
        /// The frame in the answer.
        found: u64,
    },
}

impl Answer {
    pub(crate) fn new(
        ticket: u64,
        taken_ns: u64,
        done_ns: u64,
        outcome: Result<StageSpans, JudgeError>,
        detections: &Detections,
    ) -> Self {
        let (outcome, stages) = match outcome {
            Ok(stages) => (Outcome::Judged, stages),
            Err(JudgeError::Frame(cause)) => (Outcome::Failed(Text::new(&cause)), StageSpans::default()),
            Err(JudgeError::Overrun(cause)) => (Outcome::Overran(Text::new(&cause)), StageSpans::default()),
            Err(JudgeError::Lost(cause)) => (Outcome::Lost(Text::new(&cause)), StageSpans::default()),
        };
        Self { ticket, taken_ns, done_ns, outcome, stages, detections: *detections }
    }

    pub(crate) fn words(&self) -> [u64; ANSWER_WORDS] {
        let mut words = [0; ANSWER_WORDS];
        let mut put = Put(&mut words, 0);
        put.word(self.ticket);
        put.word(self.taken_ns);
        put.word(self.done_ns);
        let (kind, text) = match self.outcome {
            Outcome::Judged => (0, Text::EMPTY),
            Outcome::Failed(text) => (1, text),
            Outcome::Overran(text) => (2, text),
            Outcome::Lost(text) => (3, text),
        };
        put.word(kind);
        put.word(text.length());
        for index in 0..TEXT_WORDS {
            put.word(text.word(index));
        }
        for word in self.stages.spans.iter().flatten() {
            put.word(*word);
        }
        put.word(self.stages.error_ns);
        let d = &self.detections;
        put.word(u64::from(d.camera));
        put.word(d.frame_sequence);
        put.word(d.capture_ns);
        let t = &d.times;
        for time in [t.arrival_ns, t.start_ns, t.inferred_ns, t.projected_ns, t.published_ns] {
            put.word(time);
        }
        put.word(HEALTHS.iter().position(|h| *h == d.health).unwrap_or(HEALTHS.len()) as u64);
        put.pair(d.valid_depth, d.tcp_m.x);
        put.pair(d.tcp_m.y, d.tcp_m.z);
        put.pair(d.unseen, 0.0);
        put.word(d.objects().len() as u64);
        put.word(u64::from(d.left_out) | u64::from(d.masks & MAX_MASKS) << 32 | u64::from(d.detected) << 63);
        for o in d.objects() {
            put.word(u64::from(o.track) | u64::from(o.points) << 32);
            let kind = match o.kind {
                ObjectKind::Unexplained => 0,
                ObjectKind::Person => 1,
                ObjectKind::Unseen => 2,
            };
            put.word(kind | u64::from(o.segmented) << 2);
            put.pair(o.confidence, o.distance_m);
            put.pair(o.box_px[0], o.box_px[1]);
            put.pair(o.box_px[2], o.box_px[3]);
            put.pair(o.position_m.x, o.position_m.y);
            put.pair(o.position_m.z, o.nearest_m.x);
            put.pair(o.nearest_m.y, o.nearest_m.z);
            put.word(0);
        }
        words[PLACES_AT..].copy_from_slice(&d.places.words());
        words
    }

    /// The ticket alone.
    pub(crate) fn ticket_of(words: &[u64; ANSWER_WORDS]) -> u64 {
        words[0]
    }

    /// # Errors
    /// [`Garbled`] for words that no worker in order writes.
    pub(crate) fn from_words(words: &[u64; ANSWER_WORDS]) -> Result<Self, Garbled> {
        let mut take = Take(words, 0);
        let (ticket, taken_ns, done_ns) = (take.word(), take.word(), take.word());
        let kind = take.word();
        let length = take.word();
        let text = Text::from_words(length, &words[take.1..take.1 + TEXT_WORDS]);
        take.1 += TEXT_WORDS;
        let outcome = match kind {
            0 => Outcome::Judged,
            1 => Outcome::Failed(text),
            2 => Outcome::Overran(text),
            3 => Outcome::Lost(text),
            found => return Err(Garbled::Word { what: "an outcome (0 to 3)", found }),
        };
        let spans = std::array::from_fn(|_| [take.word(), take.word()]);
        let stages = StageSpans { spans, error_ns: take.word() };
        let mut d = Detections::default();
        let camera = take.word();
        d.camera = u32::try_from(camera).map_err(|_| Garbled::Word { what: "a camera", found: camera })?;
        d.frame_sequence = take.word();
        d.capture_ns = take.word();
        let t = &mut d.times;
        for time in
            [&mut t.arrival_ns, &mut t.start_ns, &mut t.inferred_ns, &mut t.projected_ns, &mut t.published_ns]
        {
            *time = take.word();
        }
        let health = take.word();
        d.health = usize::try_from(health)
            .ok()
            .and_then(|index| HEALTHS.get(index).copied())
            .ok_or(Garbled::Word { what: "a frame's health (0 to 15)", found: health })?;
        let (valid_depth, x) = take.pair();
        let (y, z) = take.pair();
        d.valid_depth = valid_depth;
        (d.unseen, _) = take.pair();
        d.tcp_m = Vector3::new(x, y, z);
        let count = take.word();
        if count > MAX_OBJECTS as u64 {
            return Err(Garbled::Word { what: "a number of objects (0 to 16)", found: count });
        }
        let networks = take.word();
        for _ in 0..count {
            let numbers = take.word();
            let flags = take.word();
            let kind = match flags & 3 {
                0 => ObjectKind::Unexplained,
                1 => ObjectKind::Person,
                2 => ObjectKind::Unseen,
                _ => return Err(Garbled::Word { what: "an object's kind (0 to 2)", found: flags }),
            };
            if flags > 7 {
                return Err(Garbled::Word { what: "an object's flags (0 to 7)", found: flags });
            }
            let (confidence, distance_m) = take.pair();
            let (left, top) = take.pair();
            let (right, bottom) = take.pair();
            let (px, py) = take.pair();
            let (pz, nx) = take.pair();
            let (ny, nz) = take.pair();
            take.word();
            d.insert(Object {
                track: numbers as u32,
                kind,
                confidence,
                box_px: [left, top, right, bottom],
                segmented: flags & 4 == 4,
                points: (numbers >> 32) as u32,
                position_m: Point3::new(px, py, pz),
                nearest_m: Point3::new(nx, ny, nz),
                distance_m,
            });
        }
        let mut places = [0; Places::WORDS];
        places.copy_from_slice(&words[PLACES_AT..]);
        d.places = Places::from_words(&places);
        d.left_out = networks as u32;
        d.masks = (networks >> 32) as u32 & MAX_MASKS;
        d.detected = networks >> 63 == 1;
        Ok(Self { ticket, taken_ns, done_ns, outcome, stages, detections: d })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn detections(distances: &[f32]) -> Detections {
        let mut d = Detections::default();
        (d.camera, d.frame_sequence, d.capture_ns) = (3, 77, 1);
        (d.valid_depth, d.unseen) = (0.75, 0.05);
        let mut words = [0x0f0f_1234_5678_9abc; Places::WORDS];
        words[2] = 7 << 32 | 900;
        d.places = Places::from_words(&words);
        d.health = FrameHealth::Ok;
        d.tcp_m = Vector3::new(0.1, -0.2, 0.3);
        d.times.inferred_ns = 5;
        (d.left_out, d.masks, d.detected) = (5, distances.len() as u32, distances.len().is_multiple_of(2));
        for (index, &distance_m) in distances.iter().enumerate() {
            d.insert(Object {
                track: index as u32 + 1,
                kind: [ObjectKind::Person, ObjectKind::Unexplained, ObjectKind::Unseen][index % 3],
                confidence: 0.5,
                box_px: [1.0, 2.0, 3.0, index as f32],
                segmented: index % 2 == 0,
                points: 1000 + index as u32,
                position_m: Point3::new(1.0, 2.0, 3.0),
                nearest_m: Point3::new(4.0, 5.0, 6.0),
                distance_m,
            });
        }
        d
    }

    proptest! {
        #[test]
        fn answers_survive_the_memory(distances in proptest::collection::vec(0.0f32..9.0, 0..24), ticket: u64) {
            let stages = StageSpans { spans: std::array::from_fn(|i| [i as u64, 9]), error_ns: 7 };
            let answer = Answer::new(ticket, 10, 11, Ok(stages), &detections(&distances));
            let again = Answer::from_words(&answer.words()).unwrap();
            prop_assert_eq!(again.detections, answer.detections);
            prop_assert_eq!((again.ticket, again.taken_ns, again.done_ns), (ticket, 10, 11));
            prop_assert_eq!((again.outcome, again.stages), (Outcome::Judged, stages));
        }

        #[test]
        fn any_words_are_an_answer_or_an_error(seed: [u64; 32], at in 0usize..ANSWER_WORDS, word: u64) {
            let mut words = [0; ANSWER_WORDS];
            for (index, place) in words.iter_mut().enumerate() {
                *place = seed[index % 32].rotate_left(index as u32);
            }
            let _ = Answer::from_words(&words);
            let mut whole = Answer::new(1, 2, 3, Err(JudgeError::Lost("x".into())), &detections(&[1.0, f32::NAN])).words();
            whole[at] = word;
            if let Ok(answer) = Answer::from_words(&whole) {
                prop_assert!(answer.detections.objects().len() <= MAX_OBJECTS);
            }
        }

        #[test]
        fn questions_survive_the_memory(
            x in -9.0f64..9.0,
            angle in -3.0f64..3.0,
            posed: bool,
            links in 0usize..=MAX_ROBOT_CAPSULES,
        ) {
            let pose = Isometry3::from_parts(
                Translation3::new(x, -x, 0.5),
                UnitQuaternion::from_scaled_axis(Vector3::new(0.0, angle, 0.1)),
            );
            let mut asked = FramePose::new(pose, pose.inverse());
            for link in 0..links {
                let (from_m, to_m) = (Point3::new(x as f32, link as f32, 0.25), Point3::new(1.0, angle as f32, -2.0));
                asked.robot.push(Capsule { frame: CapsuleFrame::Base, from_m, to_m, radius_m: 0.1 });
            }
            let question = Question {
                ticket: 1, deadline_ns: 2, start_ns: 3, sequence: 4, capture_ns: 5, arrival_ns: 6,
                pose: posed.then_some(asked),
            };
            prop_assert_eq!(Question::from_words(&question.words()), question);
        }
    }

    #[test]
    fn garbled_capsules_leave_nothing_out() {
        let pose = FramePose::new(Isometry3::identity(), Isometry3::identity());
        let question = Question {
            ticket: 1,
            deadline_ns: 2,
            start_ns: 3,
            sequence: 4,
            capture_ns: 5,
            arrival_ns: 6,
            pose: Some(pose),
        };
        let mut words = question.words();
        words[7 + 14..].fill(u64::MAX);
        assert!(Question::from_words(&words).pose.unwrap().robot.capsules().is_empty(), "all of it NaN");
    }

    #[test]
    fn a_nan_distance_is_handed_on() {
        let answer = Answer::new(1, 2, 3, Ok(StageSpans::default()), &detections(&[1.0, f32::NAN]));
        let again = Answer::from_words(&answer.words()).unwrap();
        assert!(again.detections.objects()[0].distance_m.is_nan(), "the monitor must see it");
    }

    #[test]
    fn causes_come_through() {
        let answer = Answer::new(1, 2, 3, Err(JudgeError::Lost("ECC error".into())), &Detections::default());
        let Outcome::Lost(text) = Answer::from_words(&answer.words()).unwrap().outcome else {
            panic!("lost")
        };
        assert_eq!(text.as_str(), "ECC error");
    }
}

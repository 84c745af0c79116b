use super::*;

const FRAME_NS: u64 = 33_333_333;

fn blob(label: u32, box_px: [f32; 4]) -> Blob {
    Blob { box_px, big: true, ..Blob::new(label) }
}

fn detection(box_px: [f32; 4]) -> Detection {
    Detection { box_px, score: 0.8 }
}

struct Run {
    tracks: Tracks,
    frame: u64,
    placed: Vec<Option<u32>>,
}

impl Run {
    fn new() -> Self {
        Self { tracks: Tracks::new(&TrackingConfig::default(), 100), frame: 0, placed: Vec::new() }
    }

    fn now_ns(&self) -> u64 {
        self.frame * FRAME_NS
    }

    fn frame(&mut self, boxes: &[[f32; 4]]) {
        self.frame += 1;
        let blobs: Vec<Blob> = boxes.iter().zip(1..).map(|(&b, label)| blob(label, b)).collect();
        self.tracks.advance(self.frame, self.now_ns(), &blobs, 384, 288);
    }

    fn detect(&mut self, frame: u64, boxes: &[[f32; 4]]) {
        let mut set = DetectionSet::of_frame(frame, 0);
        for &box_px in boxes {
            set.push(detection(box_px));
        }
        let now_ns = self.now_ns();
        self.tracks.confirm(&set, now_ns, &mut self.placed);
    }

    fn people(&self) -> Vec<(u32, [f32; 4])> {
        self.tracks.all().iter().filter(|t| t.person).map(|t| (t.id, t.box_px)).collect()
    }
}

/// A blob of 20×60 that moves 3 px to the right each frame.
fn walker(frame: u64) -> [f32; 4] {
    let x = 50.0 + 3.0 * frame as f32;
    [x, 100.0, x + 20.0, 160.0]
}

#[test]
fn a_late_detection_lands_where_the_person_is_now() {
    let mut run = Run::new();
    for frame in 1..=10 {
        run.frame(&[walker(frame)]);
    }
    assert!(run.people().is_empty());
    // The detector's result for frame 4: the blob and, below, the feet.
    let [left, top, right, bottom] = walker(4);
    run.detect(4, &[[left - 2.0, top - 2.0, right + 2.0, bottom + 8.0]]);
    let [left, top, right, bottom] = walker(10);
    assert_eq!(run.people(), [(1, [left - 2.0, top - 2.0, right + 2.0, bottom + 8.0])]);
    run.frame(&[walker(11)]);
    let [left, top, right, bottom] = walker(11);
    assert_eq!(run.people(), [(1, [left - 2.0, top - 2.0, right + 2.0, bottom + 8.0])]);
}

#[test]
fn a_person_keeps_their_number_through_a_gap_and_is_not_doubled() {
    let mut run = Run::new();
    for frame in 1..=10 {
        run.frame(&[walker(frame)]);
    }
    run.detect(10, &[walker(10)]);
    for _ in 11..=20 {
        run.frame(&[]);
    }
    assert_eq!(run.people().len(), 1);
    let x = run.people()[0].1[0];
    assert!((x - walker(20)[0]).abs() < 3.0, "moved on while unseen: {x}");
    run.frame(&[walker(21)]);
    run.detect(21, &[walker(21)]);
    let people = run.people();
    assert_eq!(people.len(), 1);
    assert_eq!(people[0].0, 1);
}

#[test]
fn unsupported_tracks_end() {
    let mut run = Run::new();
    run.frame(&[walker(0)]);
    run.detect(1, &[walker(0)]);
    let timeout = u64::from(TrackingConfig::default().timeout_ms) * 1_000_000 / FRAME_NS;
    for _ in 0..=timeout + 2 {
        run.frame(&[]);
    }
    assert!(run.tracks.all().is_empty());
}

#[test]
fn a_person_whom_the_detector_no_longer_sees_becomes_unexplained() {
    let mut run = Run::new();
    run.frame(&[walker(0)]);
    run.detect(1, &[walker(0)]);
    let timeout = u64::from(TrackingConfig::default().confirm_timeout_ms) * 1_000_000 / FRAME_NS;
    for _ in 0..=timeout + 2 {
        run.frame(&[walker(0)]);
    }
    assert!(run.people().is_empty());
    assert_eq!(run.tracks.all().len(), 1, "the blob is still followed");
}

#[test]
fn fragments_of_a_person_are_no_tracks_of_their_own() {
    let mut run = Run::new();
    let (upper, lower) = ([100.0, 50.0, 130.0, 90.0], [100.0, 96.0, 130.0, 150.0]);
    run.frame(&[upper, lower]);
    assert_eq!(run.tracks.all().len(), 2);
    run.detect(1, &[[95.0, 45.0, 135.0, 160.0]]);
    assert_eq!(run.tracks.all().len(), 1);
    run.frame(&[upper, lower]);
    assert_eq!(run.tracks.all().len(), 1);
    assert_eq!(run.people().len(), 1);
}

#[test]
fn two_people_get_two_tracks_and_a_shared_blob_belongs_to_neither_alone() {
    let mut run = Run::new();
    let (a, b) = ([100.0, 50.0, 130.0, 150.0], [134.0, 50.0, 164.0, 150.0]);
    run.frame(&[a, b]);
    run.detect(1, &[a, b]);
    assert_eq!(run.people().len(), 2);
    let merged = [100.0, 50.0, 164.0, 150.0];
    let blobs = [blob(1, merged)];
    run.tracks.advance(2, 2 * FRAME_NS, &blobs, 384, 288);
    let with_blob = run.tracks.all().iter().position(|t| t.label == 1);
    assert!(with_blob.is_none_or(|index| !run.tracks.is_alone(index, &blobs)));
}

#[test]
fn a_candidate_asks_at_once_and_then_ever_more_rarely() {
    let mut run = Run::new();
    run.frame(&[walker(0)]);
    let mut asked = Vec::new();
    for frame in 0..300u64 {
        run.frame(&[walker(0)]);
        let now_ns = run.now_ns();
        if run.tracks.is_urgent(now_ns, 100_000_000) {
            run.tracks.asked(now_ns);
            asked.push(frame);
        }
    }
    assert_eq!(asked[0], 0);
    let gaps: Vec<u64> = asked.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps.windows(2).all(|pair| pair[1] > pair[0]), "{gaps:?}");
}

#[test]
fn masks_that_deny_a_person_drop_the_track_without_a_blob() {
    let mut run = Run::new();
    run.frame(&[walker(0)]);
    run.detect(1, &[walker(0), [300.0, 10.0, 310.0, 30.0]]);
    assert_eq!(run.people().len(), 2);
    for id in [1, 2] {
        run.tracks.get_mut(id).unwrap().rejected = 3;
    }
    run.tracks.reject(3);
    assert!(run.people().is_empty());
    assert_eq!(run.tracks.all().len(), 1);
}

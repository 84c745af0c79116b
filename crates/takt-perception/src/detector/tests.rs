use super::*;
use crate::engine::{Backend, EngineConfig, ModelSource};
use crate::testing::{PICTURE, picture};

/// Score and box of everybody in the reference picture, by ONNX Runtime and NumPy
/// (`tests/data/reference.py`).
const REFERENCE: [(f32, [f32; 4]); 8] = [
    (0.8156, [308.08, 132.12, 325.49, 184.45]),
    (0.7723, [109.07, 95.08, 125.40, 133.19]),
    (0.7110, [351.48, 126.06, 372.50, 177.02]),
    (0.7022, [338.19, 47.94, 348.91, 77.27]),
    (0.6892, [244.41, 72.35, 258.85, 111.33]),
    (0.6680, [40.89, 76.45, 54.34, 108.63]),
    (0.5810, [351.10, 52.90, 361.00, 76.33]),
    (0.3824, [81.28, 93.44, 90.31, 103.72]),
];

fn embedded() -> Engine {
    Engine::open(&EngineConfig { backend: Backend::Embedded, ..EngineConfig::default() }).unwrap()
}

/// A network of two boxes, which finds nobody in real pictures and has no real grid.
fn tiny() -> DetectorConfig {
    DetectorConfig {
        layout: DetectorLayout::Yolov8,
        accept_unproved: true,
        model: ModelSource::File(
            concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/tiny_yolo_seg.onnx").into(),
        ),
        ..DetectorConfig::default()
    }
}

#[test]
fn nanodet_finds_what_the_reference_finds() {
    let mut detector = Detector::new(&embedded(), &DetectorConfig::default()).unwrap();
    let mut set = DetectionSet::default();
    detector.detect(&picture(), PICTURE.0, PICTURE.1, &mut set).unwrap();
    assert!(!set.failed);
    assert_eq!(set.detections().len(), REFERENCE.len());
    for (found, (score, box_px)) in set.detections().iter().zip(REFERENCE) {
        assert!((found.score - score).abs() < 2e-3, "{found:?} against {score}");
        for (a, b) in found.box_px.iter().zip(box_px) {
            assert!((a - b).abs() < 0.1, "{found:?} against {box_px:?}");
        }
    }
}

#[test]
fn a_segmenting_detector_gives_boxes_and_masks() {
    let mut detector = Detector::new(&embedded(), &tiny()).unwrap();
    assert!(detector.has_masks());
    // 128×64 frame, red on the upper half.
    let (width, height) = (128u32, 64u32);
    let mut rgb = vec![0u8; (width * height * 3) as usize];
    for pixel in rgb[..(width * 32 * 3) as usize].chunks_exact_mut(3) {
        pixel[0] = 255;
    }
    let mut set = DetectionSet::default();
    detector.detect(&rgb, width, height, &mut set).unwrap();
    assert_eq!(set.detections().len(), 1, "green is below the threshold");
    let found = set.detections()[0];
    assert!((found.score - 0.5).abs() < 0.02);
    assert_eq!(found.box_px, [8.0, 4.0, 56.0, 60.0]);
    let mut mask = MaskCrop::default();
    assert!(detector.mask(0, &mut mask));
    assert!(mask.at(30, 12) > 0.9, "red inside the box");
    assert!(mask.at(30, 52) < 0.1, "black inside the box");
    assert!(mask.at(100, 12) < 0.1, "red outside of the box");
    assert!(!detector.mask(1, &mut mask));
}

#[test]
fn a_model_of_another_kind_is_refused_with_its_shapes() {
    let config = DetectorConfig {
        model: ModelSource::from("builtin:selfie_landscape_144x256"),
        ..DetectorConfig::default()
    };
    let message = Detector::new(&embedded(), &config).unwrap_err().to_string();
    assert!(message.contains("NanoDet") && message.contains("[1, 1, 144, 256]"), "{message}");
    let message = Detector::new(&embedded(), &DetectorConfig { person_class: 1, ..tiny() }).unwrap_err();
    assert!(message.to_string().contains("person_class"), "{message}");
}

#[test]
fn a_network_that_finds_nobody_is_refused_unless_that_is_accepted() {
    let config = DetectorConfig { accept_unproved: false, ..tiny() };
    let message = Detector::new(&embedded(), &config).unwrap_err().to_string();
    for part in ["does not fit", "0 of 4 people", "accept_unproved", "person_class", "tiny_yolo_seg.onnx"] {
        assert!(message.contains(part), "{part}: {message}");
    }
    // NanoDet's class 1 is a bicycle.
    let bicycles = DetectorConfig { person_class: 1, ..DetectorConfig::default() };
    assert!(matches!(Detector::new(&embedded(), &bicycles), Err(EngineError::Unproved { .. })));
}

#[test]
fn answers_that_cannot_be_are_failures() {
    let decoder = Decoder::Table(layout_of(&[1, 84, 2100]));
    let candidate = |box_px, score| [Candidate { box_px, score, index: 0 }];
    let size = [320, 320];
    decoder.plausible(&candidate([-20.0, 10.0, 100.0, 330.0], 0.9), size).unwrap();
    for (box_px, score) in [
        ([10.0, 10.0, 50.0, 90.0], f32::NAN),
        ([10.0, 10.0, 50.0, 90.0], 1.5),
        ([10.0, 10.0, 50.0, 90.0], -0.5),
        ([f32::NAN, 10.0, 50.0, 90.0], 0.9),
        ([10.0, 10.0, f32::INFINITY, 90.0], 0.9),
        ([50.0, 10.0, 10.0, 90.0], 0.9),
        ([400.0, 10.0, 450.0, 90.0], 0.9),
        ([10.0, -90.0, 50.0, -10.0], 0.9),
        ([-500.0, 10.0, 500.0, 90.0], 0.9),
    ] {
        assert!(decoder.plausible(&candidate(box_px, score), size).is_err(), "{box_px:?} {score}");
    }
    // Values that are not scores are handed to that check.
    let mut output = Tensor { name: String::new(), shape: vec![1, 84, 2100], data: vec![0.0; 84 * 2100] };
    output.data[4 * 2100 + 7] = f32::NAN;
    let mut out = Vec::new();
    decoder.decode(&[output], size, 0, 0.35, &mut out);
    assert_eq!(out.len(), 1);
}

fn layout_of(shape: &[usize]) -> Table {
    let outputs = [("output0".to_owned(), shape.to_vec())];
    let readings =
        layout::readings([320, 320], &outputs, &Facts::default(), DetectorLayout::Auto, 0).unwrap();
    let Decoder::Table(table) = readings[0].decoder else { panic!("{readings:?}") };
    table
}

#[test]
fn overlapping_boxes_become_one() {
    let candidate = |x: f32, score, index| Candidate { box_px: [x, 0.0, x + 10.0, 10.0], score, index };
    let mut all = [candidate(0.0, 0.5, 0), candidate(1.0, 0.9, 1), candidate(20.0, 0.6, 2)];
    let mut kept = Vec::new();
    suppress(&mut all, 0.5, &mut kept);
    assert_eq!(kept.iter().map(|c| c.index).collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn the_shared_thread_serves_every_camera_and_ends_with_the_service() {
    let sizes = [(64, 32), (64, 32)];
    let mut thread = None;
    let (service, mut handles) = DetectorService::start(&embedded(), &tiny(), &sizes, |body| {
        thread = Some(std::thread::spawn(body));
        Ok(())
    })
    .unwrap();
    let mut frame = takt_link_camera::Frame::new(64, 32);
    for pixel in frame.rgb.chunks_exact_mut(3) {
        pixel[0] = 255;
    }
    for (camera, handle) in handles.iter_mut().enumerate() {
        frame.sequence = camera as u64 + 7;
        handle.post(&frame, 1, camera == 1);
    }
    for (camera, handle) in handles.iter_mut().enumerate() {
        let set = loop {
            match handle.take() {
                Some(set) => break set,
                None => std::thread::sleep(std::time::Duration::from_millis(5)),
            }
        };
        assert_eq!(set.frame_sequence, camera as u64 + 7);
        assert_eq!(set.detections().len(), 1);
        assert!(handle.take().is_none(), "a result is taken once");
    }
    assert_eq!(service.runs(), 2);
    drop(service);
    thread.unwrap().join().unwrap();
}

#[test]
fn a_thread_that_cannot_start_is_reported() {
    let error = DetectorService::start(&embedded(), &tiny(), &[(64, 32)], |_| {
        Err(takt_rt::Error::Panicked { thread: "detector".to_owned(), message: "no permission".to_owned() })
    });
    assert!(error.unwrap_err().to_string().contains("no permission"));
}

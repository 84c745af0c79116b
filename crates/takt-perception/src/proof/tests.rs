use super::*;
use crate::detector::{DetectorLayout, understand};
use crate::engine::{Facts, Tensor};

/// Expected words of the refusal, and the network that earns it: its answer to each picture.
type Case = (&'static str, Box<dyn Fn(usize) -> Vec<Tensor>>);

const SIDE: usize = 640;

fn outputs() -> Vec<(String, Vec<usize>)> {
    vec![("output0".into(), vec![1, 300, 6])]
}

/// A network that answers with these boxes in pixels of the picture `call`, as corners.
fn answer(people: &[[f32; 4]], score: f32) -> Vec<Tensor> {
    let mut letterbox = Letterbox::new(SIDE, SIDE);
    letterbox.prepare(SIZE[0], SIZE[1]);
    let (scale, offset) = letterbox.forward();
    let mut data = vec![0.0; 300 * 6];
    for (row, person) in data.chunks_exact_mut(6).zip(people) {
        for (side, value) in person.iter().enumerate() {
            row[side] = value * scale + offset[side % 2];
        }
        row[4] = score;
    }
    vec![Tensor { name: "output0".into(), shape: vec![1, 300, 6], data }]
}

fn prove(mut network: impl FnMut(usize) -> Vec<Tensor>) -> Result<Reading, EngineError> {
    let (config, mut call) = (DetectorConfig::default(), 0);
    let mut infer = |input: &[f32]| {
        assert_eq!(input.len(), 3 * SIDE * SIDE);
        call += 1;
        Ok::<_, EngineError>(network((call - 1) % 2))
    };
    let input = [1, 3, SIDE, SIDE];
    let facts = Facts { end2end: Some(true), ..Facts::default() };
    understand(&facts, &input, &outputs(), &config, "m.onnx", &mut infer).map(|(reading, _)| reading)
}

fn shifted(people: &[[f32; 4]], by: f32) -> Vec<[f32; 4]> {
    people.iter().map(|p| [p[0] + by, p[1], p[2] + by, p[3]]).collect()
}

#[test]
fn people_in_their_places_prove_a_network_and_nothing_else_does() {
    let right = prove(|picture| answer(PICTURES[picture].people, 0.8)).unwrap();
    assert_eq!(right.layout, DetectorLayout::EndToEnd);
    let refused = |network: &dyn Fn(usize) -> Vec<Tensor>| prove(network).unwrap_err().to_string();
    let cases: [Case; 8] = [
        ("0 of 4", Box::new(|_| answer(&[], 0.0))),
        // The same answer to both, whichever it is.
        ("0 of 3", Box::new(|_| answer(PICTURES[0].people, 0.8))),
        ("0 of 4", Box::new(|_| answer(PICTURES[1].people, 0.8))),
        (
            "boxes elsewhere",
            Box::new(|_| {
                let both = [PICTURES[0].people, PICTURES[1].people].concat();
                answer(&[both, shifted(PICTURES[0].people, 110.0)].concat(), 0.8)
            }),
        ),
        ("0 of 4", Box::new(|picture| answer(&shifted(PICTURES[picture].people, 25.0), 0.8))),
        ("1 of 4", Box::new(|picture| answer(&PICTURES[picture].people[..1], 0.8))),
        ("a score of 7", Box::new(|picture| answer(PICTURES[picture].people, 7.0))),
        ("a score of NaN", Box::new(|picture| answer(PICTURES[picture].people, f32::NAN))),
    ];
    for (expected, network) in cases {
        let message = refused(&*network);
        assert!(
            message.contains(expected) && message.contains("m.onnx does not fit"),
            "{expected}: {message}"
        );
    }
}

#[test]
fn the_pictures_are_what_the_boxes_say() {
    // NanoDet, which was not asked where the boxes should be, finds nearly all of them.
    use crate::detector::Detector;
    use crate::engine::{Backend, Engine, EngineConfig};
    let engine =
        Engine::open(&EngineConfig { backend: Backend::Embedded, ..EngineConfig::default() }).unwrap();
    let mut detector = Detector::new(&engine, &DetectorConfig::default()).unwrap();
    for picture in &PICTURES {
        let mut set = DetectionSet::default();
        detector.detect(&picture.rgb().unwrap(), SIZE[0], SIZE[1], &mut set).unwrap();
        let (found, elsewhere) = picture.judge(&set);
        assert_eq!(found, picture.people.len(), "{}: {:?}", picture.name, set.detections());
        assert!(elsewhere <= 1, "{}: {:?}", picture.name, set.detections());
    }
}

#[test]
fn a_segmenter_must_cover_people_and_leave_the_rest() {
    let config = SegmenterConfig::default();
    let proved = |value: fn(usize, usize) -> f32| {
        let mut infer = |_: &[f32]| {
            let data = (0..144 * 256).map(|i| value(i % 256, i / 256)).collect();
            Ok::<_, EngineError>(vec![Tensor { name: "mask".into(), shape: vec![1, 1, 144, 256], data }])
        };
        prove_segmenter([144, 256], &config, "m.onnx", &mut infer)
    };
    // A crop holds its person in its middle.
    proved(|x, y| f32::from((108..148).contains(&x) && (20..124).contains(&y))).unwrap();
    for (what, value) in [
        ("everything", (|_, _| 1.0) as fn(usize, usize) -> f32),
        ("nothing", |_, _| 0.0),
        ("the wrong side", |x, _| f32::from(x < 60)),
        ("logits", |x, _| if (108..148).contains(&x) { 9.0 } else { -9.0 }),
        ("no number", |_, _| f32::NAN),
    ] {
        let error = proved(value).expect_err(what).to_string();
        assert!(error.contains("does not fit") && error.contains("accept_unproved"), "{what}: {error}");
    }
}

#[test]
fn what_was_proved_is_kept_and_what_failed_is_not() {
    let key = || "a key of this test".to_owned();
    assert!(once(key(), || Err::<_, ()>(())).is_err());
    assert_eq!(once(key(), || Ok::<_, ()>(None)), Ok(None));
    assert_eq!(once(key(), || Err::<_, ()>(())), Ok(None));
}

//! NanoDet, exported in the layouts of other detectors (`tests/data/export_layouts.py`, checked by
//! ONNX's own checker): every one of them finds the people that NanoDet finds.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]

use std::path::{Path, PathBuf};
use std::process::Command;

use takt_link_camera::Frame;
use takt_perception::gpu::GpuPerception;
use takt_perception::{
    Backend, Detection, DetectionSet, Detections, Detector, DetectorConfig, DetectorLayout, Engine,
    EngineConfig, ModelSource, Perception,
};

use crate::recording::{cameras, config, on_device};

/// A folder for a test's models.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("takt-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Writes exports of NanoDet into a folder; false where Python has no `onnx`.
fn export(folder: &Path, kinds: &[&str]) -> bool {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let own = root.join(".venv/bin/python3");
    let python = if own.exists() { own } else { "python3".into() };
    let run = |arguments: &[&str]| Command::new(&python).args(arguments).current_dir(&root).output();
    if !run(&["-c", "import numpy, onnx"]).is_ok_and(|output| output.status.success()) {
        assert!(
            std::env::var_os("TAKT_REQUIRE_OUTSIDE").is_none(),
            "the Python package onnx is missing: run tools/install-outside"
        );
        takt_witness::skip!("no Python package onnx (tools/install-outside installs it)");
        return false;
    }
    let script = "crates/takt-perception/tests/data/export_layouts.py";
    let mut arguments = vec![script, "models/nanodet_g_416.onnx", folder.to_str().unwrap()];
    arguments.extend(kinds);
    let output = run(&arguments).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    true
}

fn iou(a: &[f32; 4], b: &[f32; 4]) -> f32 {
    let side = |low: usize| (a[low + 2].min(b[low + 2]) - a[low].max(b[low])).max(0.0);
    let area = |c: &[f32; 4]| (c[2] - c[0]) * (c[3] - c[1]);
    let both = side(0) * side(1);
    both / (area(a) + area(b) - both)
}

fn detect(detector: &mut Detector, frame: &Frame) -> Vec<Detection> {
    let mut set = DetectionSet::default();
    detector.detect(&frame.rgb, frame.width, frame.height, &mut set).unwrap();
    set.detections().to_vec()
}

/// A frame of each of three cameras, which the proof does not have.
fn frames() -> Vec<Frame> {
    let read = |(mut reader, _): (takt_link_camera::recording::FrameReader<std::fs::File>, _)| {
        let mut frame = Frame::new(reader.intrinsics().width, reader.intrinsics().height);
        for _ in 0..40 {
            assert!(reader.read(&mut frame).unwrap());
        }
        frame
    };
    cameras().into_iter().take(3).map(read).collect()
}

#[test]
fn every_layout_finds_who_nanodet_finds() {
    use DetectorLayout::{EndToEnd, RtDetr, Yolov5, Yolov8, Yolox};
    let folder = Folder::new("layouts");
    let kinds = [
        ("v8", Yolov8),
        ("v8seg", Yolov8),
        ("v8-half", Yolov8),
        ("v8seg-half", Yolov8),
        ("v5", Yolov5),
        ("v5seg", Yolov5),
        ("v5-half", Yolov5),
        ("yolox", Yolox),
        ("yolox-decoded", Yolox),
        ("e2e", EndToEnd),
        ("e2eseg", EndToEnd),
        ("e2eseg-half", EndToEnd),
        ("rtdetr", RtDetr),
        ("detr", RtDetr),
        ("rtdetr-own", RtDetr),
    ];
    if !export(folder.path(), &kinds.map(|(kind, _)| kind)) {
        return;
    }
    let frames = frames();
    // The embedded engine takes five times as long: what its own reading of a file could change.
    let embedded = ["v8-half", "e2eseg-half", "yolox", "detr", "rtdetr-own"];
    for backend in [Backend::Embedded, Backend::Auto] {
        let engine = Engine::open(&EngineConfig { backend, ..EngineConfig::default() }).unwrap();
        let mut nanodet = Detector::new(&engine, &DetectorConfig::default()).unwrap();
        let expected: Vec<_> = frames.iter().map(|frame| detect(&mut nanodet, frame)).collect();
        assert!(expected.iter().map(Vec::len).sum::<usize>() >= 6, "{expected:?}");
        let of_this = |kind: &str| backend != Backend::Embedded || embedded.contains(&kind);
        for (kind, layout) in kinds.into_iter().filter(|(kind, _)| of_this(kind)) {
            let model = ModelSource::File(folder.path().join(format!("{kind}.onnx")));
            let config = DetectorConfig { model, ..DetectorConfig::default() };
            let mut detector =
                Detector::new(&engine, &config).unwrap_or_else(|error| panic!("{kind}: {error}"));
            assert_eq!(detector.layout(), layout, "{kind}");
            for (frame, expected) in frames.iter().zip(&expected) {
                let found = detect(&mut detector, frame);
                // The padding is grey here and black there, which moves scores near the threshold.
                for person in expected.iter().filter(|person| person.score > 0.5) {
                    let best =
                        found.iter().map(|found| iou(&found.box_px, &person.box_px)).fold(0.0, f32::max);
                    assert!(
                        best > 0.8,
                        "{kind} with {}: {person:?} is not in {found:?}",
                        engine.description()
                    );
                }
                assert!(found.len() <= expected.len() + 2, "{kind}: {found:?}");
            }
        }
    }
}

#[test]
#[ignore = "takes 15 s"]
fn a_device_decodes_every_layout_as_the_cpu_does() {
    let folder = Folder::new("device-layouts");
    let kinds = ["v5seg", "yolox", "e2eseg", "rtdetr", "detr", "rtdetr-own"];
    let Some((gpu, _turn)) = takt_gpu::testing::open() else { return };
    if !export(folder.path(), &kinds) {
        return;
    }
    for kind in kinds {
        let mut config = config();
        config.engine.backend = Backend::Embedded;
        config.detector.model = ModelSource::File(folder.path().join(format!("{kind}.onnx")));
        let engine = Engine::open(&config.engine).unwrap();
        let (mut reader, pose) = cameras().swap_remove(2);
        let intrinsics = reader.intrinsics();
        let mut cpu = Perception::new(&config, 0, intrinsics, &engine, None).unwrap();
        let mut device = GpuPerception::new(&gpu, &config, 0, intrinsics, None, &|_| {}).unwrap();
        let mut frame = Frame::new(intrinsics.width, intrinsics.height);
        let mut people = 0;
        for sequence in 1..=3 {
            for _ in 0..20 {
                assert!(reader.read(&mut frame).unwrap());
            }
            (frame.sequence, frame.capture_ns) = (sequence, sequence * 33_333_333);
            let (mut a, mut b) = (Detections::default(), Detections::default());
            cpu.process_with_detections(&frame, Some(&pose), 5, None, &mut a, None);
            device.process(&on_device(&frame, &pose), &mut b, None).unwrap();
            assert_eq!(a.health, b.health, "{kind}");
            assert_eq!(a.objects().len(), b.objects().len(), "{kind}: {:?} {:?}", a.objects(), b.objects());
            for (a, b) in a.objects().iter().zip(b.objects()) {
                assert_eq!((a.kind, a.track, a.segmented), (b.kind, b.track, b.segmented), "{kind}");
                assert!((a.distance_m - b.distance_m).abs() < 0.01, "{kind}");
                people += u32::from(a.kind == takt_perception::ObjectKind::Person);
            }
        }
        assert!(people > 0, "{kind} found nobody");
    }
}

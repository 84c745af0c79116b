//! The device against the CPU, on the emulated device: there the very kernels run, compiled by
//! `c++`.

use std::path::Path;

use nalgebra::{Point3, UnitQuaternion};
use proptest::prelude::*;
use takt_gpu::{Gpu, testing};
use takt_link_camera::{Frame, Intrinsics};

use super::*;
use crate::config::{DetectorSchedule, PerceptionConfig};
use crate::detector::{Detection, DetectionSet};
use crate::device::Copies;
use crate::engine::{Backend, Engine, ModelSource};
use crate::mount::FramePose;
use crate::overlay::Overlay;
use crate::perception::Perception;
use crate::result::{Detections, FrameHealth, Object, ObjectKind};
use crate::testing::{intrinsics, pose, put, wall};
use crate::{Capsule, CapsuleFrame, FrameView, MAX_ROBOT_CAPSULES, RobotShape, StaticBox, Volume};

fn geometry() -> PerceptionConfig {
    let mut config = PerceptionConfig::default();
    config.engine.backend = Backend::Embedded;
    config.detector.enabled = false;
    config.segmenter.enabled = false;
    config
}

/// Both, for the same camera; `None` where there is no emulated device.
fn pair(config: &PerceptionConfig, intrinsics: Intrinsics) -> Option<(Perception, GpuPerception, Gpu)> {
    let (gpu, _) = testing::open()?;
    let engine = Engine::open(&config.engine).unwrap();
    let cpu = Perception::new(config, 3, intrinsics, &engine, None).unwrap();
    let device = GpuPerception::new(&gpu, config, 3, intrinsics, None, &|_| {}).unwrap();
    Some((cpu, device, gpu))
}

fn on_device<'a>(frame: &'a Frame, pose: &'a FramePose) -> GpuFrame<'a> {
    GpuFrame {
        view: FrameView::from(frame),
        resident: None,
        pose: Some(pose),
        start_ns: 5,
        deadline_ns: u64::MAX,
    }
}

/// Runs a frame on both and compares what must be equal to the bit.
fn compare(
    (cpu, device): (&mut Perception, &mut GpuPerception),
    frame: &Frame,
    pose: &FramePose,
    set: Option<&DetectionSet>,
) -> Detections {
    let (mut a, mut b) = (Detections::default(), Detections::default());
    let (mut drawn_a, mut drawn_b) = (Overlay::default(), Overlay::default());
    cpu.process_with_detections(frame, Some(pose), 5, set, &mut a, Some(&mut drawn_a));
    device.process_with_detections(&on_device(frame, pose), set, &mut b, Some(&mut drawn_b)).unwrap();
    assert_eq!((a.health, a.valid_depth.to_bits()), (b.health, b.valid_depth.to_bits()));
    assert_eq!((a.camera, a.frame_sequence, a.left_out), (b.camera, b.frame_sequence, b.left_out));
    assert_eq!(a.objects(), b.objects());
    assert_eq!(drawn_a.frame_sequence, drawn_b.frame_sequence);
    let differs = drawn_a.mask.iter().zip(&drawn_b.mask).filter(|(a, b)| a != b).count();
    assert_eq!(differs, 0, "pixels drawn differently");
    a
}

#[test]
fn things_are_the_same_to_the_bit() {
    things_are_the_same(&geometry());
}

#[test]
fn what_kernels_copy_is_the_same_to_the_bit() {
    let mut config = geometry();
    config.gpu.copies = Copies::Kernels;
    things_are_the_same(&config);
}

fn things_are_the_same(config: &PerceptionConfig) {
    let Some((mut cpu, mut device, _gpu)) = pair(config, intrinsics()) else { return };
    let mut run =
        |frame: &Frame, set: Option<&DetectionSet>| compare((&mut cpu, &mut device), frame, &pose(), set);
    assert_eq!(run(&wall(1), None).objects().len(), 0);
    let mut frame = wall(2);
    put(&mut frame, [172, 100, 212, 240], 2_000);
    put(&mut frame, [40, 100, 80, 200], 3_000);
    assert_eq!(run(&frame, None).objects().len(), 2);
    frame.sequence = 3;
    let mut set = DetectionSet::of_frame(2, 0);
    set.push(Detection { box_px: [168.0, 96.0, 216.0, 250.0], score: 0.9 });
    // Somebody without depth in the volume.
    set.push(Detection { box_px: [260.0, 80.0, 320.0, 260.0], score: 0.8 });
    put(&mut frame, [260, 80, 320, 260], 0);
    let out = run(&frame, Some(&set));
    assert_eq!(out.objects().iter().filter(|object| object.kind == ObjectKind::Person).count(), 2);
    // An arm that leaves the box, in steps.
    let mut frame = wall(4);
    put(&mut frame, [172, 100, 212, 240], 2_000);
    for (i, depth) in (0..8u32).zip((1_300..=2_000).rev().step_by(100)) {
        put(&mut frame, [212 + i * 6, 140, 218 + i * 6, 160], depth);
    }
    assert!(run(&frame, None).nearest().unwrap().distance_m < 1.45);
}

#[test]
fn blind_frames_say_the_same() {
    let Some((mut cpu, mut device, _gpu)) = pair(&geometry(), intrinsics()) else { return };
    let mut health = |frame: &Frame| compare((&mut cpu, &mut device), frame, &pose(), None).health;
    let mut frame = wall(1);
    frame.depth_mm.fill(0);
    assert_eq!(health(&frame), FrameHealth::EmptyDepth);
    frame.depth_mm.fill(65_000);
    assert_eq!(health(&frame), FrameHealth::ImpossibleDepth);
    let mut frame = wall(2);
    frame.rgb.fill(3);
    assert_eq!(health(&frame), FrameHealth::EmptyColour);
    let mut frame = wall(3);
    frame.depth_mm.pop();
    assert_eq!(health(&frame), FrameHealth::WrongSize);
    assert_eq!(health(&Frame::new(384, 288)), FrameHealth::NoFrame);
    let mut out = Detections::default();
    let frame = wall(4);
    device.process(&GpuFrame { pose: None, ..on_device(&frame, &pose()) }, &mut out, None).unwrap();
    assert_eq!(out.health, FrameHealth::NoPose);
}

#[test]
fn more_blobs_than_the_first_copy_holds_are_all_there() {
    let mut config = geometry();
    config.occupancy.min_area_m2 = 1e-6;
    config.occupancy.min_samples = 1;
    let Some((mut cpu, mut device, _gpu)) = pair(&config, intrinsics()) else { return };
    let mut frame = wall(1);
    // 12 x 15 things of one cell each: more than a list's first part.
    for y in 0..18 {
        for x in 0..24 {
            put(&mut frame, [x * 16, y * 16, x * 16 + 4, y * 16 + 4], 2_000);
        }
    }
    let (mut a, mut b) = (Detections::default(), Detections::default());
    cpu.process_with_detections(&frame, Some(&pose()), 5, None, &mut a, None);
    let error = device.process(&on_device(&frame, &pose()), &mut b, None).unwrap_err();
    assert!(a.left_out > 250, "{}", a.left_out);
    // More things than the device distinguishes: the frame is refused, none is lost silently.
    assert!(matches!(error, GpuPerceptionError::TooManyPieces { limit: 255, .. }), "{error}");
    assert_eq!((error.severity(), b.health), (Severity::Frame, FrameHealth::InferenceFailed));
    // 250 of them are distinguished.
    let mut frame = wall(2);
    for i in 0..250u32 {
        let (x, y) = (i % 24 * 16, i / 24 * 16);
        put(&mut frame, [x, y, x + 4, y + 4], 1_000 + i as u16);
    }
    let mut out = None;
    for sequence in 2..5 {
        frame.sequence = sequence;
        out = Some(compare((&mut cpu, &mut device), &frame, &pose(), None));
    }
    assert_eq!(out.unwrap().left_out + 16, 250);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// Whatever stands there and whatever is detected: equal to the bit, over several frames.
    #[test]
    fn scenes_are_the_same_to_the_bit(
        things in prop::collection::vec((0u32..340, 10u32..240, 4u32..90, 4u32..120, 700u16..7_000), 1..9),
        holes in prop::collection::vec((0u32..340, 10u32..240, 4u32..60, 4u32..60), 0..3),
        boxes in prop::collection::vec((0f32..380.0, 0f32..280.0, 1f32..200.0, 1f32..200.0), 0..6),
        rank in 1usize..20,
        step in 1u32..7,
        turn in -0.6f64..0.6,
        noise in 0u16..60,
        robot in 0usize..MAX_ROBOT_CAPSULES + 1,
        graphs in any::<bool>(),
    ) {
        let mut config = geometry();
        config.gpu.graphs = graphs;
        config.occupancy.nearest_rank = rank;
        config.occupancy.step_px = step;
        config.occupancy.min_area_m2 = 0.02;
        config.occupancy.static_boxes.push(StaticBox {
            name: "table".into(),
            min_m: Point3::new(1.0, -0.5, 0.0),
            max_m: Point3::new(1.6, 0.5, 0.8),
            without_depth: false,
        });
        config.occupancy.robot.push(Capsule {
            radius_m: 0.4,
            ..Capsule::tool()
        });
        let Some((mut cpu, mut device, _gpu)) = pair(&config, intrinsics()) else { return Ok(()) };
        let mut pose = pose();
        pose.camera_in_base.rotation *= UnitQuaternion::from_euler_angles(0.1, turn, 0.05);
        let mut frame = wall(1);
        let mut state = 1u32;
        for &(left, top, width, height, depth) in &things {
            put(&mut frame, [left, top, (left + width).min(384), (top + height).min(288)], depth);
        }
        for &(left, top, width, height) in &holes {
            put(&mut frame, [left, top, (left + width).min(384), (top + height).min(288)], 0);
        }
        for depth in &mut frame.depth_mm {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            *depth += (state >> 16) as u16 % (noise + 1);
            if state >> 24 == 7 {
                *depth = 0;
            }
        }
        let mut set = DetectionSet::of_frame(1, 0);
        for &(x, y, w, h) in &boxes {
            set.push(Detection { box_px: [x, y, x + w, y + h], score: 0.9 });
        }
        for sequence in 1..4 {
            frame.sequence = sequence;
            frame.capture_ns = sequence * 33_000_000;
            pose.tcp_in_base.translation.x += 0.05;
            // Another robot in every frame, from none to as much as there is room for.
            pose.robot = RobotShape::default();
            for link in 0..robot * sequence as usize / 3 {
                let along = link as f32 * 0.11 + sequence as f32 * 0.03;
                pose.robot.push(Capsule {
                    frame: CapsuleFrame::Base,
                    from_m: Point3::new(1.0 + along, -0.6 + along, 0.4),
                    to_m: Point3::new(1.8, 0.5 - along, 0.5 + along),
                    radius_m: 0.05 + 0.01 * link as f32,
                });
            }
            compare((&mut cpu, &mut device), &frame, &pose, (sequence == 2).then_some(&set));
        }
    }
}

/// Objects of both, pair by pair; the least distance must agree to a tenth of what is asked.
fn agree(a: &[Object], b: &[Object]) {
    assert_eq!(a.len(), b.len(), "{a:?}\n{b:?}");
    for (a, b) in a.iter().zip(b) {
        assert_eq!((a.kind, a.track, a.segmented), (b.kind, b.track, b.segmented));
        assert!((a.confidence - b.confidence).abs() < 1e-3, "{a:?} {b:?}");
        assert!((a.distance_m - b.distance_m).abs() < 1e-3, "{a:?} {b:?}");
        assert!((a.position_m - b.position_m).norm() < 1e-2, "{a:?} {b:?}");
        for (x, y) in a.box_px.iter().zip(b.box_px) {
            assert!((x - y).abs() < 0.05, "{a:?} {b:?}");
        }
    }
}

#[test]
fn a_segmenting_detector_is_the_same() {
    segmenting(0.3, true);
}

#[test]
fn a_mask_that_misses_too_much_is_left_out_by_both() {
    segmenting(1.0, false);
}

fn segmenting(min_agreement: f32, used: bool) {
    let mut config = geometry();
    config.segmenter.min_agreement = min_agreement;
    config.detector.enabled = true;
    config.detector.schedule = DetectorSchedule::EveryFrame;
    config.detector.model =
        ModelSource::File(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tiny_yolo_seg.onnx"));
    config.detector.layout = crate::DetectorLayout::Yolov8;
    config.detector.accept_unproved = true;
    config.detector.threshold = 0.4;
    config.segmenter.min_coverage = 0.01;
    let camera = Intrinsics { width: 128, height: 64, fx: 100.0, fy: 100.0, cx: 63.5, cy: 31.5 };
    let Some((mut cpu, mut device, _gpu)) = pair(&config, camera) else { return };
    let mut frame = Frame::new(128, 64);
    for (i, pixel) in frame.rgb.chunks_exact_mut(3).enumerate() {
        pixel[0] = if i < 128 * 32 { 255 } else { 0 };
    }
    frame.depth_mm.fill(8_000);
    put(&mut frame, [10, 6, 54, 58], 2_000);
    for sequence in 1..4 {
        (frame.sequence, frame.capture_ns) = (sequence, sequence * 33_000_000);
        let (mut a, mut b) = (Detections::default(), Detections::default());
        let (mut drawn_a, mut drawn_b) = (Overlay::default(), Overlay::default());
        cpu.process_with_detections(&frame, Some(&pose()), 5, None, &mut a, Some(&mut drawn_a));
        device.process(&on_device(&frame, &pose()), &mut b, Some(&mut drawn_b)).unwrap();
        agree(a.objects(), b.objects());
        assert_eq!(a.objects().iter().any(|object| object.segmented), used, "{:?}", a.objects());
        assert_eq!(drawn_a, drawn_b);
    }
}

#[test]
fn frames_that_lie_in_memory_of_the_device_need_no_copy() {
    let Some((mut cpu, mut device, gpu)) = pair(&geometry(), intrinsics()) else { return };
    let mut frame = wall(1);
    put(&mut frame, [172, 100, 212, 240], 2_000);
    let depth_at = frame.rgb.len().next_multiple_of(64);
    let mut memory = gpu.pinned::<u8>(depth_at + frame.depth_mm.len() * 2).unwrap();
    {
        let mut memory = memory.write().unwrap();
        memory[..frame.rgb.len()].copy_from_slice(&frame.rgb);
        memory[depth_at..].copy_from_slice(bytemuck::cast_slice(&frame.depth_mm));
    }
    let (mut a, mut b) = (Detections::default(), Detections::default());
    cpu.process_with_detections(&frame, Some(&pose()), 5, None, &mut a, None);
    let resident = Some(Resident { memory: &memory, rgb_at: 0, depth_at });
    device.process(&GpuFrame { resident, ..on_device(&frame, &pose()) }, &mut b, None).unwrap();
    assert_eq!(a.objects(), b.objects());
    assert_eq!(b.objects().len(), 1);
}

#[test]
fn work_of_the_device_has_its_place_among_the_host_s() {
    let Some((_, mut device, gpu)) = pair(&geometry(), intrinsics()) else { return };
    let clock = takt_gpu::Clock::new(&gpu).unwrap();
    let (mut put_spans, mut take_spans) = takt_gpu::spans::recorder(16);
    let mut frame = wall(7);
    put(&mut frame, [172, 100, 212, 240], 2_000);
    let before_ns = takt_rt::clock::monotonic_ns();
    device.process(&on_device(&frame, &pose()), &mut Detections::default(), None).unwrap();
    let after_ns = takt_rt::clock::monotonic_ns();
    device.record_spans(&clock, 7, &mut put_spans).unwrap();
    let mut spans = Vec::new();
    take_spans.take_into(&mut spans);
    let names: Vec<&str> = spans.iter().map(|span| span.name).collect();
    assert_eq!(names, ["upload", "geometry", "detector", "decode", "distances"], "there were no masks");
    for span in &spans {
        assert_eq!((span.camera, span.index), (Some(3), 7));
        assert!(span.start_ns + span.error_ns >= before_ns && span.end_ns <= after_ns + span.error_ns);
    }
    assert!(spans.windows(2).all(|pair| pair[0].start_ns <= pair[1].end_ns));
    // A frame that is not looked at leaves nothing.
    device.process(&on_device(&Frame::new(384, 288), &pose()), &mut Detections::default(), None).unwrap();
    device.record_spans(&clock, 8, &mut put_spans).unwrap();
    assert_eq!(take_spans.take_into(&mut spans), 0);
}

/// Two people who walk through the synthetic room, with noise on the depth; the separation is known
/// there.
#[test]
fn the_synthetic_room_is_the_same_and_near_the_truth() {
    use std::sync::Arc;
    use takt_link_camera::synthetic::{PersonConfig, SceneConfig, SyntheticCamera};
    use takt_link_camera::{Camera, SyntheticConfig};

    let tilt = UnitQuaternion::from_euler_angles(-0.2, 0.0, 0.0);
    let mut camera_in_base = pose().camera_in_base;
    camera_in_base.translation.z = 1.2;
    camera_in_base.rotation *= tilt;
    let mut config = geometry();
    config.occupancy.volume =
        Volume { min_m: Point3::new(-5.5, -5.5, -2.0), max_m: Point3::new(5.5, 5.5, 3.0) };
    let tcp_in_base = nalgebra::Isometry3::translation(0.1, 0.0, 1.1);
    let pose = FramePose::new(camera_in_base, tcp_in_base);
    let synthetic = SyntheticConfig {
        rate_fps: 1000.0,
        latency_ms: 0.0,
        depth_noise_m: 0.002,
        scene: SceneConfig {
            people: vec![
                PersonConfig::walking(0, &[[4.5, 1.2], [0.9, -0.4]]),
                PersonConfig::walking(1, &[[3.0, -1.5], [3.5, 1.5]]),
            ],
            ..SceneConfig::default()
        },
        ..SyntheticConfig::default()
    };
    let mut camera = SyntheticCamera::new(&synthetic, Arc::new(move |_| camera_in_base)).unwrap();
    let intrinsics = camera.intrinsics();
    let Some((mut cpu, mut device, _gpu)) = pair(&config, intrinsics) else { return };
    let mut frame = Frame::new(intrinsics.width, intrinsics.height);
    let mut seen = 0;
    for round in 0..6 {
        camera.next_frame(&mut frame).unwrap();
        let tcp = Point3::from(tcp_in_base.translation.vector);
        let truth = camera.scene().truth(&intrinsics, &camera_in_base, frame.source_ns, &tcp);
        let mut set = DetectionSet::of_frame(frame.sequence, 0);
        for person in &truth {
            let inside = person.mask.iter().enumerate().filter(|(_, inside)| **inside);
            let mut box_px = [f32::MAX, f32::MAX, 0.0, 0.0];
            for (i, _) in inside {
                let (u, v) = ((i as u32 % intrinsics.width) as f32, (i as u32 / intrinsics.width) as f32);
                box_px = [box_px[0].min(u), box_px[1].min(v), box_px[2].max(u + 1.0), box_px[3].max(v + 1.0)];
            }
            set.push(Detection { box_px, score: 0.9 });
        }
        let out = compare((&mut cpu, &mut device), &frame, &pose, (round % 2 == 0).then_some(&set));
        if let (Some(nearest), Some(truth)) = (out.nearest(), truth.first()) {
            seen += 1;
            assert!(f64::from(nearest.distance_m) - truth.distance_m < 0.05, "{nearest:?}");
        }
    }
    assert!(seen >= 3, "{seen} frames showed somebody");
}

//! The measured separation against the exact one of the synthetic scene.

use std::sync::Arc;

use nalgebra::{Isometry3, Matrix3, Point3, Rotation3, Translation3, UnitQuaternion};
use takt_link_camera::synthetic::{PersonConfig, SceneConfig, SyntheticCamera};
use takt_link_camera::{Camera, Frame, SyntheticConfig};
use takt_perception::{
    Backend, Detection, DetectionSet, Detections, Engine, EngineConfig, FrameHealth, FramePose, ObjectKind,
    Perception, PerceptionConfig,
};

/// Looks along base x from the height of a tool, tilted down.
fn camera_in_base(x_m: f64, tilt_rad: f64) -> Isometry3<f64> {
    let level = Rotation3::from_matrix_unchecked(Matrix3::new(
        0.0, 0.0, 1.0, //
        -1.0, 0.0, 0.0, //
        0.0, -1.0, 0.0,
    ));
    let tilt = UnitQuaternion::from_euler_angles(-tilt_rad, 0.0, 0.0);
    Isometry3::from_parts(
        Translation3::new(x_m, 0.0, 1.2),
        UnitQuaternion::from_rotation_matrix(&level) * tilt,
    )
}

fn scene(start_s: f64, depth_noise_m: f64) -> SyntheticConfig {
    let mut near = PersonConfig::walking(0, &[[4.5, 1.2], [0.9, -0.4]]);
    near.start_s = start_s;
    let mut far = PersonConfig::walking(1, &[[3.0, -1.5], [3.5, 1.5]]);
    far.start_s = start_s;
    SyntheticConfig {
        // As fast as possible: nothing here depends on the pace.
        rate_fps: 1000.0,
        latency_ms: 0.0,
        depth_noise_m,
        scene: SceneConfig { people: vec![near, far], ..SceneConfig::default() },
        ..SyntheticConfig::default()
    }
}

struct Outcome {
    measured_m: f32,
    true_m: f64,
}

/// One frame with the people's boxes known; `None` where the camera sees nobody.
fn measure(config: &PerceptionConfig, start_s: f64, noise_m: f64, x_m: f64) -> Option<Outcome> {
    let engine = EngineConfig { backend: Backend::Embedded, ..EngineConfig::default() };
    let engine = Engine::open(&engine).expect("the embedded engine needs nothing");
    let pose = camera_in_base(x_m, 0.2);
    let synthetic = scene(start_s, noise_m);
    let mut camera = SyntheticCamera::new(&synthetic, Arc::new(move |_| pose)).expect("scene");
    let intrinsics = camera.intrinsics();
    let mut frame = Frame::new(intrinsics.width, intrinsics.height);
    camera.next_frame(&mut frame).expect("frame");

    let tcp_in_base = Isometry3::translation(x_m + 0.1, 0.0, 1.1);
    let tcp = Point3::from(tcp_in_base.translation.vector);
    let truth = camera.scene().truth(&intrinsics, &pose, frame.source_ns, &tcp);
    let mut set = DetectionSet::of_frame(frame.sequence, 0);
    for person in &truth {
        let mut box_px = [f32::MAX, f32::MAX, 0.0, 0.0];
        for (i, _) in person.mask.iter().enumerate().filter(|(_, inside)| **inside) {
            let (u, v) = ((i as u32 % intrinsics.width) as f32, (i as u32 / intrinsics.width) as f32);
            box_px = [box_px[0].min(u), box_px[1].min(v), box_px[2].max(u + 1.0), box_px[3].max(v + 1.0)];
        }
        set.push(Detection { box_px, score: 0.9 });
    }
    let mut perception = Perception::new(config, 0, intrinsics, &engine, None).expect("perception");
    let mut out = Detections::default();
    let pose = FramePose::new(pose, tcp_in_base);
    perception.process_with_detections(&frame, Some(&pose), 0, Some(&set), &mut out, None);
    assert_eq!(out.health, FrameHealth::Ok);
    let nearest = truth.first()?;
    let measured = out.nearest().unwrap_or_else(|| panic!("lost at {start_s} s, {} m", nearest.distance_m));
    assert_eq!(measured.kind, ObjectKind::Person);
    Some(Outcome { measured_m: measured.distance_m, true_m: nearest.distance_m })
}

fn config() -> PerceptionConfig {
    let mut config = PerceptionConfig::default();
    config.detector.enabled = false;
    config.segmenter.enabled = false;
    // Pictures have no volume: the room's walls at 6 m stay outside.
    config.occupancy.volume.min_m.x = -5.5;
    config.occupancy.volume.max_m.x = 5.5;
    config.occupancy.volume.min_m.y = -5.5;
    config.occupancy.volume.max_m.y = 5.5;
    config.occupancy.volume.max_m.z = 3.0;
    config
}

#[test]
fn separation_is_within_five_centimetres_of_the_truth() {
    let (mut seen, mut worst, mut nearest) = (0, 0.0f64, f64::INFINITY);
    for step in 0..24 {
        for x_m in [0.0, 0.25] {
            let Some(outcome) = measure(&config(), f64::from(step) * 0.1, 0.0, x_m) else { continue };
            let error_m = f64::from(outcome.measured_m) - outcome.true_m;
            assert!(error_m.abs() < 0.05, "{} m measured, {} m true", outcome.measured_m, outcome.true_m);
            worst = worst.max(error_m.abs());
            nearest = nearest.min(outcome.true_m);
            seen += 1;
        }
    }
    println!("{seen} frames, worst error {:.1} mm, nearest {nearest:.2} m", worst * 1e3);
    assert!(seen >= 40, "only {seen} frames showed somebody");
    assert!(nearest < 1.2, "nobody came near");
}

#[test]
fn noise_never_makes_people_seem_farther() {
    for step in 0..12 {
        // 2 mm at one metre: a D435 (2 % at 4 m would be 5 mm).
        let Some(outcome) = measure(&config(), f64::from(step) * 0.2, 0.002, 0.0) else { continue };
        let error_m = f64::from(outcome.measured_m) - outcome.true_m;
        assert!(error_m < 0.05, "{} m measured, {} m true", outcome.measured_m, outcome.true_m);
        assert!(error_m > -0.25, "{} m measured, {} m true", outcome.measured_m, outcome.true_m);
    }
}

//! The synthetic scene: the rendered image and the independently cast ground truth agree.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::f64::consts::{FRAC_PI_2, PI};
use std::sync::Arc;

use nalgebra::{Isometry3, Point3, Rotation3, Translation3, UnitQuaternion, Vector3};
use takt_link_camera::synthetic::{
    PersonConfig, Renderer, Scene, SceneConfig, SyntheticCamera, SyntheticConfig,
};
use takt_link_camera::{Camera, CameraConfig, Frame, Intrinsics, open};

/// A camera at `eye` that looks horizontally along `yaw` (from x), pitched down.
fn looking(eye: [f64; 3], yaw: f64, down: f64) -> Isometry3<f64> {
    // Optical axes (x right, y down, z forward) of a camera that looks along x.
    let level = Rotation3::from_matrix_unchecked(nalgebra::Matrix3::new(
        0.0, 0.0, 1.0, //
        -1.0, 0.0, 0.0, //
        0.0, -1.0, 0.0,
    ));
    let turn = Rotation3::from_axis_angle(&Vector3::z_axis(), yaw)
        * Rotation3::from_axis_angle(&Vector3::y_axis(), down);
    Isometry3::from_parts(
        Translation3::new(eye[0], eye[1], eye[2]),
        UnitQuaternion::from_rotation_matrix(&(turn * level)),
    )
}

fn config(people: Vec<PersonConfig>) -> SyntheticConfig {
    SyntheticConfig { scene: SceneConfig { people, ..SceneConfig::default() }, ..SyntheticConfig::default() }
}

fn unproject(intrinsics: &Intrinsics, pose: &Isometry3<f64>, pixel: usize, z_m: f64) -> Point3<f64> {
    let (u, v) = (pixel % intrinsics.width as usize, pixel / intrinsics.width as usize);
    let x = (u as f64 - intrinsics.cx) / intrinsics.fx * z_m;
    let y = (v as f64 - intrinsics.cy) / intrinsics.fy * z_m;
    pose * Point3::new(x, y, z_m)
}

#[test]
fn rendered_depth_agrees_with_the_cast_truth() {
    let config = config(vec![
        PersonConfig::walking(0, &[[4.0, 0.3], [1.2, 0.3]]),
        PersonConfig::walking(1, &[[3.0, -2.0], [3.0, 2.0]]),
        PersonConfig::walking(2, &[[-3.0, 0.0], [-1.0, 1.0]]),
    ]);
    let scene = Scene::new(&config.scene).unwrap();
    let mut renderer = Renderer::new(&config);
    let mut frame = Frame::new(1, 1);
    let tcp = Point3::new(0.1, 0.2, 0.9);
    let mut seen = 0;
    for (pose, time_s) in [
        (looking([0.2, 0.0, 1.3], 0.0, 0.2), 0.0),
        (looking([0.2, 0.0, 1.3], 0.0, 0.2), 1.1),
        (looking([0.0, 0.3, 0.8], 0.3, -0.2), 1.5),
        (looking([-0.3, 0.0, 1.6], PI, 0.4), 0.7),
        (looking([0.0, 0.0, 2.0], 0.5, FRAC_PI_2), 0.9),
    ] {
        let scene_ns = (time_s * 1e9) as u64;
        renderer.render(&scene, &pose, scene_ns, &mut frame);
        assert_eq!(frame.camera_in_base, Some(pose));
        for truth in scene.truth(&config.intrinsics, &pose, scene_ns, &tcp) {
            seen += 1;
            assert_eq!(truth.pixels, truth.mask.iter().filter(|&&covered| covered).count());
            assert!(((truth.nearest_m - tcp).norm() - truth.distance_m).abs() < 1e-12);
            let mut nearest_m = f64::INFINITY;
            for (pixel, _) in truth.mask.iter().enumerate().filter(|(_, covered)| **covered) {
                let depth_m = f64::from(frame.depth_mm[pixel]) / 1e3;
                let point = unproject(&config.intrinsics, &pose, pixel, depth_m);
                nearest_m = nearest_m.min((point - tcp).norm());
            }
            assert!(
                (nearest_m - truth.distance_m).abs() < 2e-3,
                "person {}: {nearest_m} m from the depth image, {} m in truth",
                truth.person,
                truth.distance_m
            );
            // A person is an upright plane through the place where he stands.
            let foot = scene.position_m(truth.person, scene_ns).unwrap();
            let flat = (truth.nearest_m - foot).xy().norm();
            assert!(flat < 0.6, "nearest point is {flat} m beside the person");
        }
    }
    assert!(seen >= 6, "only {seen} people were seen");
}

#[test]
fn floor_and_walls_have_exact_depth() {
    let config = config(vec![]);
    let scene = Scene::new(&config.scene).unwrap();
    let pose = looking([0.5, -0.5, 1.2], 0.7, 0.35);
    let mut frame = Frame::new(1, 1);
    Renderer::new(&config).render(&scene, &pose, 0, &mut frame);
    for (pixel, &depth) in frame.depth_mm.iter().enumerate() {
        let point = unproject(&config.intrinsics, &pose, pixel, f64::from(depth) / 1e3);
        let surface = [point.z, 3.5 - point.z, 6.0 - point.x.abs(), 6.0 - point.y.abs()]
            .into_iter()
            .fold(f64::INFINITY, |nearest: f64, distance| nearest.min(distance.abs()));
        assert!(surface < 2e-3, "pixel {pixel} is {surface} m off every surface: {point}");
    }
}

#[test]
fn the_nearer_person_hides_the_farther_one() {
    let scene = Scene::new(
        &config(vec![PersonConfig::walking(0, &[[4.0, 0.0]]), PersonConfig::walking(0, &[[2.0, 0.0]])]).scene,
    )
    .unwrap();
    let intrinsics = SyntheticConfig::default().intrinsics;
    let truth = scene.truth(&intrinsics, &looking([0.0, 0.0, 1.0], 0.0, 0.0), 0, &Point3::origin());
    assert_eq!(truth[0].person, 1);
    for other in &truth[1..] {
        assert!(other.mask.iter().zip(&truth[0].mask).all(|(a, b)| !(a & b)), "a pixel shows both");
        assert!(other.pixels < truth[0].pixels / 4);
    }
}

#[test]
fn range_and_noise_are_applied_and_repeatable() {
    let mut config = config(vec![PersonConfig::walking(3, &[[2.0, 0.0]])]);
    (config.max_depth_m, config.depth_noise_m, config.seed) = (4.0, 0.002, 7);
    let scene = Scene::new(&config.scene).unwrap();
    let pose = looking([0.0, 0.0, 1.0], 0.0, 0.0);
    let render = |config: &SyntheticConfig, sequence| {
        let mut frame = Frame::new(1, 1);
        frame.sequence = sequence;
        Renderer::new(config).render(&scene, &pose, 0, &mut frame);
        frame.depth_mm
    };
    let depth = render(&config, 1);
    assert!(depth.iter().all(|&mm| mm <= 4000) && depth.contains(&0), "the far wall is out of range");
    assert_eq!(depth, render(&config, 1), "the same seed gives the same noise");
    assert_ne!(depth, render(&config, 2), "noise differs from frame to frame");
    let exact = render(&SyntheticConfig { depth_noise_m: 0.0, ..config.clone() }, 1);
    let truth = &scene.truth(&config.intrinsics, &pose, 0, &Point3::origin())[0];
    let errors: Vec<f64> = (0..depth.len())
        .filter(|&pixel| truth.mask[pixel])
        .map(|pixel| f64::from(depth[pixel]) - f64::from(exact[pixel]))
        .collect();
    let rms = (errors.iter().map(|e| e * e).sum::<f64>() / errors.len() as f64).sqrt();
    // 2 mm at 1 m is 8 mm at 2 m.
    assert!((rms - 8.0).abs() < 1.0, "noise at 2 m is {rms} mm");
}

#[test]
fn cameras_with_one_origin_see_one_scene() {
    let config = SyntheticConfig { rate_fps: 100.0, latency_ms: 4.0, ..SyntheticConfig::default() };
    let fixed = looking([0.0, 0.0, 1.0], 0.0, 0.1);
    let origin_ns = takt_rt::clock::monotonic_ns() + 20_000_000;
    for phase_ns in [0, 3_000_000] {
        let mut camera = SyntheticCamera::new(&config, Arc::new(move |_| fixed)).unwrap();
        camera.start_at(origin_ns, phase_ns);
        let mut frame = Frame::new(1, 1);
        let mut last = 0;
        for _ in 0..5 {
            camera.next_frame(&mut frame).unwrap();
            assert!(frame.sequence > last);
            last = frame.sequence;
            assert_eq!(frame.source_ns, phase_ns + (last - 1) * 10_000_000, "time of the scene");
            assert_eq!(frame.capture_ns + 4_000_000, origin_ns + frame.source_ns, "exposure before arrival");
            assert!(frame.arrival_ns >= origin_ns + frame.source_ns);
            // The scene that truth is asked about is the scene that was drawn.
            let pose = frame.camera_in_base.unwrap();
            let truth = camera.scene().truth(&config.intrinsics, &pose, frame.source_ns, &Point3::origin());
            let pixel = truth[0].mask.iter().position(|&covered| covered).unwrap();
            let seen = unproject(&config.intrinsics, &pose, pixel, f64::from(frame.depth_mm[pixel]) / 1e3);
            let stands = camera.scene().position_m(0, frame.source_ns).unwrap();
            assert!((seen - stands).xy().norm() < 0.6);
        }
    }
}

#[test]
fn a_synthetic_camera_without_pose_or_with_bad_values_is_refused() {
    let error = open(&CameraConfig::Synthetic(SyntheticConfig::default()), None).err().unwrap();
    assert!(error.to_string().contains("needs a pose source"));
    let bad = SyntheticConfig { rate_fps: f64::NAN, ..SyntheticConfig::default() };
    let error = SyntheticCamera::new(&bad, Arc::new(|_| Isometry3::identity())).err().unwrap();
    assert_eq!(error.to_string(), "rate_fps = NaN: expected 1 to 1000");
}

#[test]
fn configurations_are_read_and_unknown_keys_refused() {
    let read = |text: &str| toml::from_str::<CameraConfig>(text);
    let replay =
        read("backend = \"replay\"\npath = \"a.mcap\"\ntopic = \"/cam0\"\nloop = true\nrate_fps = 30.0");
    assert!(
        matches!(replay, Ok(CameraConfig::Replay(config)) if config.looped && config.rate_fps == Some(30.0))
    );
    let scene = read("backend = \"synthetic\"\n[[scene.people]]\npath_m = [[3.0, 0.0], [1.0, 0.0]]");
    assert!(matches!(scene, Ok(CameraConfig::Synthetic(config)) if config.scene.people.len() == 1));
    assert!(matches!(read("backend = \"realsense\"\nserial = \"1\""), Ok(CameraConfig::Realsense(_))));
    let unknown =
        read("backend = \"replay\"\npath = \"a\"\ntopic = \"/c\"\nlooop = true").unwrap_err().to_string();
    assert!(unknown.contains("unknown field `looop`"), "{unknown}");
    let backend = read("backend = \"kinect\"").unwrap_err().to_string();
    assert!(backend.contains("replay") && backend.contains("realsense"), "{backend}");
}

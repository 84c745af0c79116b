//! CPU time per frame: replay (read, decode), synthetic rendering, recording, publication.

use std::hint::black_box;
use std::path::Path;

use criterion::{Criterion, criterion_group, criterion_main};
use nalgebra::Isometry3;
use takt_link_camera::recording::{FrameReader, Recorder, RecorderOptions};
use takt_link_camera::synthetic::{Renderer, Scene};
use takt_link_camera::{Frame, ReplayConfig, SyntheticConfig};
use takt_rt::exchange::latest;

fn replay(c: &mut Criterion) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recordings/pedestrians/cam2.mcap");
    let config = ReplayConfig { looped: true, ..ReplayConfig::new(path, "/cam2") };
    let mut reader = FrameReader::open(&config).expect("the shipped recording opens");
    let mut spare = Frame::new(384, 288);
    let (mut writer, _readers) = latest(2, || Frame::new(384, 288));
    c.bench_function("replay 384x288: read, decode, publish", |b| {
        b.iter(|| {
            assert!(reader.read(&mut spare).expect("the shipped recording is whole"));
            writer.write(spare.source_ns, |slot| std::mem::swap(slot, &mut spare))
        })
    });
    let folder = tempfile::tempdir().expect("a temporary folder");
    let cameras = [("/cam0", reader.intrinsics())];
    let mut recorder =
        Recorder::create(folder.path().join("bench.mcap"), &cameras, RecorderOptions::default())
            .expect("a recorder");
    assert!(reader.read(&mut spare).expect("the shipped recording is whole"));
    c.bench_function("record 384x288", |b| b.iter(|| recorder.write(0, &spare).expect("written")));
}

fn synthetic(c: &mut Criterion) {
    let config = SyntheticConfig::default();
    let scene = Scene::new(&config.scene).expect("the default scene is valid");
    let mut renderer = Renderer::new(&config);
    let mut frame = Frame::new(config.intrinsics.width, config.intrinsics.height);
    // At the robot, looking at the person who walks up along x.
    let pose = |shift: f64| {
        Isometry3::face_towards(
            &nalgebra::Point3::new(shift, 0.0, 1.0),
            &nalgebra::Point3::new(5.0, 0.5, 1.0),
            &-nalgebra::Vector3::z(),
        )
    };
    let mut time_ns = 0u64;
    c.bench_function("render 424x240, camera standing", |b| {
        b.iter(|| {
            time_ns += 33_333_333;
            renderer.render(&scene, &pose(0.0), time_ns, &mut frame);
            black_box(frame.depth_mm[0])
        })
    });
    c.bench_function("render 424x240, camera moving", |b| {
        b.iter(|| {
            time_ns += 33_333_333;
            renderer.render(&scene, &pose((time_ns % 1000) as f64 * 1e-4), time_ns, &mut frame);
            black_box(frame.depth_mm[0])
        })
    });
}

criterion_group!(benches, replay, synthetic);
criterion_main!(benches);

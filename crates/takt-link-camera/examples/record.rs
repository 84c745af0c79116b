//! Records a camera: `cargo run -p takt-link-camera --example record -- camera.toml out.mcap 300`
//!
//! `camera.toml` is one camera's configuration, for example `backend = "v4l2"` with its device and intrinsics; the
//! last argument is the number of frames. A synthetic camera stands one metre over the base and looks along x.

use std::error::Error;
use std::sync::Arc;

use nalgebra::{Isometry3, Point3, Vector3};
use takt_link_camera::recording::{Recorder, RecorderOptions};
use takt_link_camera::{CameraConfig, CameraError, Frame, open};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [config, out, frames] = arguments.as_slice() else {
        return Err("usage: record CAMERA.toml OUT.mcap FRAMES".into());
    };
    let config: CameraConfig = toml::from_str(&std::fs::read_to_string(config)?)?;
    let pose =
        Isometry3::face_towards(&Point3::new(0.0, 0.0, 1.0), &Point3::new(1.0, 0.0, 1.0), &-Vector3::z());
    let pose: takt_link_camera::PoseSource = Arc::new(move |_| pose);
    let mut camera = open(&config, Some(pose.into()))?;
    let intrinsics = camera.intrinsics();
    let mut recorder = Recorder::create(out, &[("/cam0", intrinsics)], RecorderOptions::default())?;
    let mut frame = Frame::new(intrinsics.width, intrinsics.height);
    let mut last = 0;
    let mut missed = 0;
    for _ in 0..frames.parse::<u64>()? {
        match camera.next_frame(&mut frame) {
            Ok(()) => recorder.write(0, &frame)?,
            Err(CameraError::Ended) => break,
            Err(error) => return Err(error.into()),
        }
        missed += frame.sequence.saturating_sub(last + 1);
        last = frame.sequence;
    }
    println!("{} frames in {out}, {missed} missed", recorder.frames());
    recorder.finish()?;
    Ok(())
}

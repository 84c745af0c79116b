//! Cost of perception on a recording: milliseconds of processor time and of wall-clock time per
//! frame and stage.
//!
//! `cargo run -p takt-perception --example replay -- [FOLDER] [auto|embedded|onnxruntime] [SECONDS]`
//!
//! Runs all cameras of the folder one after the other in one thread, frame by frame, with the
//! shared detector beside it, at 30 frames per second of each camera (as fast as possible if that
//! cannot be held).

use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use nalgebra::{Isometry3, Point3, Quaternion, Translation3, UnitQuaternion};
use serde::Deserialize;
use takt_link_camera::recording::FrameReader;
use takt_link_camera::{Frame, ReplayConfig};
use takt_perception::{
    Backend, Detections, DetectorService, Engine, FrameHealth, FramePose, ObjectKind, Perception,
    PerceptionConfig, Volume,
};
use takt_rt::clock::{monotonic_ns, process_cpu_ns, sleep_until, thread_cpu_ns};
use takt_rt::settings::ThreadSettings;

#[derive(Deserialize)]
struct Calibration {
    camera: Vec<CameraCalibration>,
}

#[derive(Deserialize)]
struct CameraCalibration {
    name: String,
    file: PathBuf,
    translation_m: [f64; 3],
    rotation_xyzw: [f64; 4],
}

struct View {
    reader: FrameReader<std::fs::File>,
    frame: Frame,
    pose: FramePose,
    perception: Perception,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = PathBuf::from(arguments.next().unwrap_or_else(|| "recordings/pedestrians".into()));
    let backend = match arguments.next().as_deref() {
        None | Some("auto") => Backend::Auto,
        Some("embedded") => Backend::Embedded,
        Some("onnxruntime") => Backend::Onnxruntime,
        Some(other) => return Err(format!("engine `{other}`; accepted: auto, embedded, onnxruntime").into()),
    };
    let seconds: u64 = arguments.next().map_or(Ok(10), |text| text.parse())?;

    let mut config = PerceptionConfig::default();
    config.engine.backend = backend;
    // The square that the recording shows is 19 m away, and its people walk in 10 m by 10 m.
    config.health.max_depth_mm = 60_000;
    config.occupancy.volume =
        Volume { min_m: Point3::new(-12.0, -12.0, -1.0), max_m: Point3::new(12.0, 12.0, 3.0) };
    let engine = Engine::open(&config.engine)?;
    println!("{}", engine.description());

    let calibration: Calibration =
        toml::from_str(&std::fs::read_to_string(folder.join("calibration.toml"))?)?;
    let mut readers = Vec::new();
    for camera in &calibration.camera {
        let mut replay = ReplayConfig::new(folder.join(&camera.file), format!("/{}", camera.name));
        replay.looped = true;
        readers.push(FrameReader::open(&replay)?);
    }
    let sizes: Vec<_> = readers.iter().map(|r| (r.intrinsics().width, r.intrinsics().height)).collect();
    let mut thread = None;
    let (service, handles) = DetectorService::start(&engine, &config.detector, &sizes, |body| {
        thread = Some(takt_rt::thread::spawn("detector", &ThreadSettings::default(), body)?);
        Ok(())
    })?;
    let mut views = Vec::new();
    for (index, ((reader, handle), camera)) in
        readers.into_iter().zip(handles).zip(&calibration.camera).enumerate()
    {
        let [x, y, z, w] = camera.rotation_xyzw;
        let camera_in_base = Isometry3::from_parts(
            Translation3::from(nalgebra::Vector3::from(camera.translation_m)),
            UnitQuaternion::from_quaternion(Quaternion::new(w, x, y, z)),
        );
        let intrinsics = reader.intrinsics();
        views.push(View {
            frame: Frame::new(intrinsics.width, intrinsics.height),
            reader,
            pose: FramePose::new(camera_in_base, Isometry3::translation(0.0, 0.0, 1.0)),
            perception: Perception::new(&config, index as u32, intrinsics, &engine, Some(handle))?,
        });
    }

    let (mut wall_ns, mut cpu_ns) = (Vec::new(), 0u64);
    let (mut inferred_ns, mut projected_ns) = (0u64, 0u64);
    let (mut people, mut segmented, mut unexplained, mut blind) = (0u64, 0u64, 0u64, 0u64);
    let mut out = Detections::default();
    let mut decode_ns = 0;
    let process_start_ns = process_cpu_ns();
    let start_ns = monotonic_ns();
    for tick in 0..seconds * 30 {
        for view in &mut views {
            let before_ns = thread_cpu_ns();
            if !view.reader.read(&mut view.frame)? {
                return Err("the recording is empty".into());
            }
            decode_ns += thread_cpu_ns() - before_ns;
            let (begin_ns, begin_cpu_ns) = (monotonic_ns(), thread_cpu_ns());
            view.frame.sequence = tick + 1;
            view.frame.capture_ns = begin_ns;
            view.perception.process(&view.frame, Some(&view.pose), begin_ns, &mut out, None);
            cpu_ns += thread_cpu_ns() - begin_cpu_ns;
            wall_ns.push(monotonic_ns() - begin_ns);
            inferred_ns += out.times.inferred_ns - begin_ns;
            projected_ns += out.times.projected_ns - out.times.inferred_ns;
            blind += u64::from(out.health != FrameHealth::Ok);
            for object in out.objects() {
                people += u64::from(object.kind == ObjectKind::Person);
                segmented += u64::from(object.segmented);
                unexplained += u64::from(object.kind == ObjectKind::Unexplained);
            }
        }
        sleep_until(start_ns + (tick + 1) * 33_333_333);
    }
    let elapsed_s = Duration::from_nanos(monotonic_ns() - start_ns).as_secs_f64();
    let process_ns = process_cpu_ns() - process_start_ns;
    wall_ns.sort_unstable();
    let frames = wall_ns.len() as f64;
    let each = |ns: u64| ns as f64 / frames / 1e6;
    println!("{frames} frames in {elapsed_s:.1} s ({:.0} frames/s)", frames / elapsed_s);
    println!(
        "per frame: {:.2} ms wall-clock median, {:.2} ms p99; {:.2} ms to inferred, {:.2} ms to projected",
        wall_ns[wall_ns.len() / 2] as f64 / 1e6,
        wall_ns[wall_ns.len() * 99 / 100] as f64 / 1e6,
        each(inferred_ns),
        each(projected_ns),
    );
    println!(
        "processor time per frame: {:.2} ms in the camera's thread; {:.2} ms in the whole process, less {:.2} ms \
         of decoding the recording",
        each(cpu_ns),
        each(process_ns - decode_ns),
        each(decode_ns),
    );
    println!(
        "detector: {} runs, {:.0} ms each",
        service.runs(),
        service.busy_ns() as f64 / 1e6 / service.runs().max(1) as f64
    );
    println!(
        "per frame: {:.2} people, {:.2} of them segmented, {:.2} unexplained; {blind} frames blind",
        people as f64 / frames,
        segmented as f64 / frames,
        unexplained as f64 / frames,
    );
    drop(service);
    if let Some(thread) = thread {
        thread.join().map_err(|_| "the detector thread panicked")?;
    }
    Ok(())
}

//! A cell that is not there: moving pictures, fixed people and a plausible state for the views.

#![allow(dead_code)] // Each test binary uses its part.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use nalgebra::Point3;
use takt_link_camera::Frame;
use takt_link_rtde::{RobotMode, SafetyMode};
use takt_perception::{Detections, FrameHealth, Object, ObjectKind, Overlay};
use takt_robot_cell::ssm::Light;
use takt_robot_cell::view::{
    CameraList, CameraSource, CameraStatus, CellStatus, Label, RobotStatus, ThreadSummary, ViewConfig,
    ViewServer, ViewSources,
};
use takt_rt::clock::monotonic_ns;
use takt_rt::exchange::{Reader, Writer, latest};

pub const WIDTH: u32 = 384;
pub const HEIGHT: u32 = 288;
pub const NAMES: [&str; 5] = ["front", "left", "right", "rear", "top"];

/// The writing ends of one camera.
pub struct CameraInput {
    pub frames: Writer<Frame>,
    pub detections: Writer<Detections>,
    pub masks: Writer<Overlay>,
}

/// The writing ends of everything that a view reads.
pub struct Cell {
    pub cameras: Vec<CameraInput>,
    pub status: Writer<CellStatus>,
}

/// Scene of the test cell.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Scene {
    Running,
    Reduced,
    Stopped,
}

pub fn cell() -> (Cell, ViewSources, Reader<CellStatus>) {
    let (status, mut readers) = latest(2, CellStatus::default);
    let mut cameras = Vec::new();
    let mut sources = Vec::new();
    for name in NAMES {
        let (frames, mut frame_readers) = latest(1, || Frame::new(WIDTH, HEIGHT));
        let (detections, mut detection_readers) = latest(1, Detections::default);
        let (masks, mut mask_readers) = latest(1, || Overlay::new(WIDTH, HEIGHT));
        sources.push(CameraSource {
            name: name.into(),
            frames: frame_readers.remove(0),
            detections: detection_readers.remove(0),
            masks: Some(mask_readers.remove(0)),
        });
        cameras.push(CameraInput { frames, detections, masks });
    }
    let for_terminal = readers.remove(0);
    (Cell { cameras, status }, ViewSources { cameras: sources, status: readers.remove(0) }, for_terminal)
}

pub fn start(config: ViewConfig) -> (Cell, ViewServer) {
    let (cell, sources, _) = cell();
    (cell, ViewServer::start(config, sources, "Cobot cell: pick and place").unwrap())
}

/// Position of person `i` of camera `camera` in frame `sequence`: left, top, right, bottom,
/// distance.
fn person(camera: usize, i: usize, sequence: u64, scene: Scene) -> ([f32; 4], f32) {
    let phase = sequence as f32 * 0.02 + camera as f32 * 1.3 + i as f32 * 2.6;
    let x = 170.0 + 120.0 * phase.sin();
    let distance = match (scene, camera, i) {
        (Scene::Stopped, 1, 0) => 0.62,
        (Scene::Reduced | Scene::Stopped, 0, 0) => 1.34,
        _ => 2.2 + 0.4 * i as f32 + 0.2 * phase.cos(),
    };
    let tall = 200.0 / distance.max(1.0) + 40.0;
    ([x, 240.0 - tall, x + tall * 0.4, 240.0], distance)
}

fn people(camera: usize) -> usize {
    [2, 1, 3, 0, 1][camera]
}

impl Cell {
    /// Publishes frame `sequence` on all cameras with what perception finds in it.
    pub fn publish_frames(&mut self, sequence: u64, scene: Scene) {
        for (number, camera) in self.cameras.iter_mut().enumerate() {
            let now = monotonic_ns();
            let mut detections = Detections::default();
            (detections.camera, detections.frame_sequence) = (number as u32, sequence);
            (detections.capture_ns, detections.health) = (now, FrameHealth::Ok);
            let mut bodies: Vec<([f32; 4], f32)> =
                (0..people(number)).map(|i| person(number, i, sequence, scene)).collect();
            bodies.sort_by(|a, b| a.1.total_cmp(&b.1));
            for (i, &(box_px, distance_m)) in bodies.iter().enumerate() {
                let kind = if number == 2 && i == 2 { ObjectKind::Unexplained } else { ObjectKind::Person };
                detections.insert(Object {
                    track: i as u32 + 1,
                    kind,
                    confidence: 0.9,
                    box_px,
                    segmented: true,
                    points: 500,
                    position_m: Point3::new(1.0, 0.0, 1.0),
                    nearest_m: Point3::new(1.0, 0.0, 1.0),
                    distance_m,
                });
            }
            let inside = |x: u32, y: u32| {
                bodies.iter().position(|&([left, top, right, bottom], _)| {
                    let (u, v) = ((x as f32 - left) / (right - left), (y as f32 - top) / (bottom - top));
                    let head = (u - 0.5).hypot((v - 0.1) * 2.5) < 0.25;
                    head || (v > 0.2 && v < 1.0 && (u - 0.5).abs() < 0.42 - 0.2 * v)
                })
            };
            camera.frames.write(now, |frame| {
                (frame.sequence, frame.capture_ns, frame.arrival_ns) = (sequence, now, now);
                for (i, pixel) in frame.rgb.chunks_exact_mut(3).enumerate() {
                    let (x, y) = (i as u32 % WIDTH, i as u32 / WIDTH);
                    let tile = ((x as u64 + sequence * 2) / 32 + y as u64 / 32) % 2;
                    let floor = 70 + y as u8 / 4 + tile as u8 * 22;
                    let shade =
                        if inside(x, y).is_some() { [96, 84, 76] } else { [floor, floor, floor + 12] };
                    pixel.copy_from_slice(&shade);
                }
            });
            camera.masks.write(now, |mask| {
                mask.frame_sequence = sequence;
                for (i, label) in mask.mask.iter_mut().enumerate() {
                    let at = inside(i as u32 % WIDTH, i as u32 / WIDTH);
                    *label = at.map_or(0, |i| i as u8 + 1);
                }
            });
            camera.detections.publish(now, detections);
        }
    }

    /// Publishes a state that fits to frame `sequence`.
    pub fn publish_status(&mut self, sequence: u64, scene: Scene) {
        let mut status = CellStatus {
            elapsed_s: sequence as f64 / 30.0,
            light: [Light::Green, Light::Orange, Light::Red][scene as usize],
            speed_fraction: [1.0, 0.3, 0.0][scene as usize],
            stop: scene == Scene::Stopped,
            protective_distance_m: 0.84,
            reduce_distance_m: 1.6,
            policy: Label::new("DL+RR"),
            threads: ThreadSummary { total: 21, realtime: 7, fallback: 8, deviating: 0 },
            robot: RobotStatus {
                connected: true,
                robot_mode: RobotMode::Running,
                safety_mode: SafetyMode::Normal,
                speed_fraction: [1.0, 0.3, 0.0][scene as usize],
                tcp_pose: [0.42, -0.18, 0.51, 0.0, 3.1, 0.0],
                tcp_speed_m_s: [0.78, 0.23, 0.0][scene as usize],
            },
            cameras: CameraList::new(NAMES.len()),
            ..CellStatus::default()
        };
        if scene == Scene::Stopped {
            status.stop_reason = Label::new("person at 0.62 m (camera left), protective distance 0.84 m");
        }
        // Long-tailed times, the same ones every time.
        let mut random = 7_u64;
        for _ in 0..2400 {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let uniform = ((random >> 33) as f32 + 1.0) / (1_u64 << 31) as f32;
            status.reaction.record(19.0 + 2.4 * (-uniform.ln()));
        }
        for late in [39.5, 41.2] {
            status.reaction.record(late);
        }
        for (number, camera) in status.cameras.iter_mut().enumerate() {
            let nearest =
                (0..people(number)).map(|i| person(number, i, sequence, scene).1).min_by(f32::total_cmp);
            *camera = CameraStatus {
                separation_m: nearest,
                health: FrameHealth::Ok,
                objects: people(number) as u32,
                frames: sequence,
                dropped: [0, 0, 2, 0, 1][number],
                unjudged: 0,
                last_reaction_ms: Some(21.0),
                worst_reaction_ms: Some([28.4, 31.0, 41.2, 26.8, 39.5][number]),
            };
        }
        status.separation_m = status.cameras.iter().filter_map(|c| c.separation_m).min_by(f32::total_cmp);
        self.status.publish(monotonic_ns(), status);
    }

    /// Plays a frame every `period` until the player is dropped.
    pub fn play(mut self, scene: Scene, period: Duration) -> Player {
        let stop = Arc::new(AtomicBool::new(false));
        let its_stop = stop.clone();
        let thread = std::thread::spawn(move || {
            for sequence in 900.. {
                self.publish_frames(sequence, scene);
                self.publish_status(sequence, scene);
                if its_stop.load(Ordering::Relaxed) {
                    break;
                }
                std::thread::sleep(period);
            }
        });
        Player { stop, thread: Some(thread) }
    }
}

pub struct Player {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Player {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

/// An HTTP answer as it came.
#[derive(Debug)]
pub struct Reply {
    pub code: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Reply {
    pub fn field(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

pub fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

/// Sends `bytes` and reads one answer (the connection may stay open); `None` when it closes without
/// one.
pub fn exchange(stream: &mut TcpStream, bytes: &[u8]) -> Option<Reply> {
    stream.write_all(bytes).ok()?;
    read_reply(stream)
}

pub fn read_reply(stream: &mut TcpStream) -> Option<Reply> {
    let mut received = Vec::new();
    let mut chunk = [0; 65536];
    loop {
        if let Some(end) = received.windows(4).position(|w| w == b"\r\n\r\n") {
            let head = String::from_utf8(received[..end].to_vec()).unwrap();
            let code = head.split(' ').nth(1).unwrap().parse().unwrap();
            let mut reply = Reply { code, head, body: received[end + 4..].to_vec() };
            let length: usize = reply.field("content-length").map_or(0, |n| n.parse().unwrap());
            while reply.body.len() < length {
                let count = stream.read(&mut chunk).unwrap();
                assert!(count > 0, "the body is cut off");
                reply.body.extend_from_slice(&chunk[..count]);
            }
            return Some(reply);
        }
        match stream.read(&mut chunk) {
            Ok(0) | Err(_) => return None,
            Ok(count) => received.extend_from_slice(&chunk[..count]),
        }
    }
}

pub fn get(address: SocketAddr, path: &str) -> Reply {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n");
    exchange(&mut connect(address), request.as_bytes()).unwrap()
}

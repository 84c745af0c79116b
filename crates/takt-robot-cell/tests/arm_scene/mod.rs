//! The rig of the arm's tests: a mission, a true arm in a rendered scene, and what the cell
//! believes of it.

use nalgebra::{Isometry3, Matrix3, Point3, Rotation3, UnitQuaternion, Vector3};
use takt_link_camera::synthetic::{Renderer, Scene, SceneConfig, Solid};
use takt_link_camera::{Frame, SyntheticConfig};
use takt_link_rtde::RobotState;
use takt_link_rtde::arm::Mission;
use takt_link_rtde::client::StateHistory;
use takt_link_rtde::kinematics::{Arm, Body, Model, pose_to_vector};
use takt_link_rtde::sim::{Calibration, MissionSample, SimConfig, trajectory};
use takt_perception::{
    Backend, Capsule, Detections, Engine, EngineConfig, FrameHealth, FramePose, Mount, MountFrame, Object,
    Perception, PerceptionConfig, Volume,
};
use takt_robot_cell::arm::{ArmShape, ShapeConfig, Viewpoint, drawn, joints_at};
use takt_robot_cell::poses::isometry;

/// A hand this far from a link must stop the robot in every place.
pub const HAND_REACH_M: f64 = 0.25;

/// Distance below which the cell stops, as in the demonstration.
const STOP_M: f32 = 1.4;

const HAND_RADIUS_M: f64 = 0.045;
/// Half the length between the ends of the hand's axis: 190 mm by 90 mm in all.
const HAND_HALF_M: f64 = 0.05;

/// Time between two states of the controller.
const CYCLE_S: f64 = 0.002;

/// The arm at one moment of the mission.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    pub t_s: f64,
    speeds_rad_s: [f64; 6],
}

impl Moment {
    /// A measure of how fast the links move: the speeds of the three big joints.
    pub fn tip_speed(&self) -> f64 {
        self.speeds_rad_s[..3].iter().map(|speed| speed.abs()).sum()
    }
}

/// Difference between the robot's state used to judge a frame and the robot at capture.
#[derive(Clone, Copy, Debug, Default)]
pub struct State {
    /// The robot was there so long before the time that the state reports.
    pub late_ms: f64,
    /// The newest state is so much older than the frame.
    pub held_ms: f64,
}

/// Observation of a camera.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    pub health: FrameHealth,
    pub objects: usize,
    pub nearest_m: f32,
    /// The nearest thing, for what a failed test prints.
    #[allow(dead_code, reason = "it is printed")]
    pub nearest: Option<Object>,
    /// Looked-at pixels that show the arm, of one in 64.
    pub arm_samples: usize,
    /// Places that count as occupied because they are hidden.
    pub hidden: u32,
}

impl Seen {
    pub fn is_nobody(&self) -> bool {
        self.health == FrameHealth::Ok && self.objects == 0 && self.hidden == 0
    }

    pub fn stops(&self) -> bool {
        self.health != FrameHealth::Ok || self.nearest_m < STOP_M
    }
}

struct View {
    mount: Mount,
    renderer: Renderer,
    perception: Perception,
    frame: Frame,
}

pub struct Rig {
    samples: Vec<MissionSample>,
    true_arm: Arm,
    true_body: Body,
    tcp: Isometry3<f64>,
    config: ShapeConfig,
    shape: Option<ArmShape>,
    views: Vec<View>,
    camera: SyntheticConfig,
    scene: Scene,
    sequence: u64,
    solids: Vec<Solid>,
}

/// A camera at `eye` that looks at `at`.
fn looking(eye: [f64; 3], at: [f64; 3]) -> Mount {
    let (eye, at) = (Vector3::from(eye), Vector3::from(at));
    let z = (at - eye).normalize();
    let x = z.cross(&Vector3::z()).normalize();
    let rotation = Rotation3::from_matrix_unchecked(Matrix3::from_columns(&[x, z.cross(&x), z]));
    let turn = UnitQuaternion::from_rotation_matrix(&rotation).scaled_axis();
    Mount { frame: MountFrame::Base, position_m: eye.into(), rotation_rad: turn.into() }
}

/// Part of a robot file of the project.
fn shipped<T: serde::de::DeserializeOwned>(
    file: &str,
    part: impl Fn(&toml::Value) -> Option<&toml::Value>,
) -> T {
    let path = format!("{}/../../robots/{file}", env!("CARGO_MANIFEST_DIR"));
    let all: toml::Value = toml::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    part(&all).unwrap().clone().try_into().unwrap()
}

fn perception() -> PerceptionConfig {
    let mut config = PerceptionConfig::default();
    config.detector.enabled = false;
    config.segmenter.enabled = false;
    config.occupancy.floor_m = -0.8;
    config.occupancy.volume =
        Volume { min_m: Point3::new(-4.5, -4.5, -0.8), max_m: Point3::new(4.5, 4.5, 1.4) };
    config.occupancy.robot = Vec::new();
    config
}

impl Rig {
    /// The demonstration's mission on a calibrated UR10e that the cell takes for a nominal one.
    pub fn new(change: impl Fn(&mut ShapeConfig)) -> Self {
        let mission: Mission = shipped("demo.toml", |file| file.get("robot")?.get("mission"));
        let simulated = SimConfig {
            calibration: Calibration {
                theta_rad: [2e-4, -3e-4, 4e-4, 2e-4, -1e-4, 0.0],
                a_m: [0.0, 6e-4, -5e-4, 0.0, 0.0, 0.0],
                d_m: [3e-4, 0.0, 0.0, -4e-4, 2e-4, 1e-4],
                alpha_rad: [2e-4, 1e-4, -1e-4, 2e-4, 0.0, 0.0],
            },
            ..SimConfig::default()
        };
        let true_arm = simulated.arm();
        let samples = trajectory(&true_arm, &mission, simulated.start_joints_rad, CYCLE_S).unwrap();
        let mut config: ShapeConfig = shipped("synthetic.toml", |file| file.get("robot")?.get("shape"));
        change(&mut config);
        config.validate().unwrap();
        let camera = SyntheticConfig {
            min_depth_m: 0.105,
            depth_noise_m: 0.0015,
            // Every wall lies within the 10 m that the sensor can measure.
            scene: SceneConfig {
                room_x_m: [-5.0, 5.0],
                room_y_m: [-5.0, 5.0],
                floor_m: -0.8,
                people: Vec::new(),
                ..SceneConfig::default()
            },
            ..SyntheticConfig::default()
        };
        let mut mounts: Vec<Mount> =
            shipped::<Vec<toml::Value>>("synthetic.toml", |file| file.get("cameras"))
                .into_iter()
                .map(|camera| camera.get("mount").unwrap().clone().try_into().unwrap())
                .collect();
        mounts.extend([
            looking([1.6, 1.4, 1.3], [0.1, 0.0, 0.3]),
            looking([1.6, -1.4, 1.3], [0.1, 0.0, 0.3]),
            looking([-1.3, 1.2, 1.0], [0.1, 0.0, 0.3]),
            looking([-1.3, -1.2, 1.0], [0.1, 0.0, 0.3]),
            looking([0.3, 0.2, 2.6], [0.1, 0.0, 0.0]),
        ]);
        let engine = EngineConfig { backend: Backend::Embedded, ..EngineConfig::default() };
        let engine = Engine::open(&engine).unwrap();
        let views = mounts.into_iter().enumerate().map(|(index, mount)| View {
            mount,
            renderer: Renderer::new(&SyntheticConfig { seed: index as u64, ..camera.clone() }),
            perception: Perception::new(&perception(), index as u32, camera.intrinsics, &engine, None)
                .unwrap(),
            frame: Frame::new(camera.intrinsics.width, camera.intrinsics.height),
        });
        Self {
            samples,
            true_body: Body::new(Model::Ur10e, &true_arm),
            true_arm,
            tcp: isometry(simulated.tcp),
            shape: Some(ArmShape::new(&config, Body::new(config.model, &config.model.arm()))),
            config,
            views: views.collect(),
            scene: Scene::new(&camera.scene).unwrap(),
            camera,
            sequence: 0,
            solids: Vec::new(),
        }
    }

    /// Leaves out the tool alone, as without `[robot.shape]`.
    pub fn forget_the_arm(&mut self) {
        self.shape = None;
        let engine = EngineConfig { backend: Backend::Embedded, ..EngineConfig::default() };
        let engine = Engine::open(&engine).unwrap();
        let mut config = perception();
        config.occupancy.robot = vec![Capsule::tool()];
        for (index, view) in self.views.iter_mut().enumerate() {
            view.perception =
                Perception::new(&config, index as u32, self.camera.intrinsics, &engine, None).unwrap();
        }
    }

    pub fn cameras(&self) -> usize {
        self.views.len()
    }

    pub fn moments(&self, step_s: f64) -> Vec<Moment> {
        let end_s = self.samples.last().unwrap().t_s;
        let count = (end_s / step_s) as usize;
        (0..count)
            .map(|index| {
                let t_s = index as f64 * step_s;
                Moment { t_s, speeds_rad_s: self.truth(t_s).speeds_rad_s }
            })
            .collect()
    }

    fn truth(&self, t_s: f64) -> MissionSample {
        let at = (t_s / CYCLE_S).clamp(0.0, (self.samples.len() - 2) as f64);
        let (before, share) = (self.samples[at as usize], at.fract());
        let after = self.samples[at as usize + 1];
        let mix = |a: &[f64; 6], b: &[f64; 6]| std::array::from_fn(|j| a[j] + share * (b[j] - a[j]));
        MissionSample {
            t_s,
            joints_rad: mix(&before.joints_rad, &after.joints_rad),
            speeds_rad_s: mix(&before.speeds_rad_s, &after.speeds_rad_s),
            suction: before.suction,
        }
    }

    fn tcp_at(&self, joints_rad: &[f64; 6]) -> Isometry3<f64> {
        self.true_arm.forward(joints_rad, &self.tcp)
    }

    /// The states that the link has delivered around a moment.
    fn history(&self, t_s: f64, State { late_ms, held_ms }: State) -> StateHistory {
        let mut history = StateHistory::default();
        let first = (t_s / CYCLE_S) as i64 - 5;
        for cycle in first..first + 10 {
            let stamp_s = cycle as f64 * CYCLE_S - held_ms / 1e3;
            if held_ms > 0.0 && stamp_s > t_s - held_ms / 1e3 {
                break;
            }
            let state = self.truth(stamp_s - late_ms / 1e3);
            let measured_ns = ((10.0 + stamp_s) * 1e9) as u64;
            history.push(&RobotState {
                sequence: (cycle + 1000) as u64,
                connected: true,
                received_ns: measured_ns,
                measured_ns,
                joints_rad: state.joints_rad,
                joint_speeds_rad_s: state.speeds_rad_s,
                tcp_pose: pose_to_vector(&self.tcp_at(&state.joints_rad)),
                digital_outputs: u64::from(state.suction) << 16,
                ..RobotState::default()
            });
        }
        history
    }

    fn draw(&mut self, moment: &Moment, hand: Option<Solid>) -> [f64; 6] {
        let truth = self.truth(moment.t_s);
        let tcp = self.tcp_at(&truth.joints_rad);
        self.solids.clear();
        let outputs = u64::from(truth.suction) << 16;
        drawn(&self.true_body, Some(&self.config), &truth.joints_rad, &tcp, outputs, &mut self.solids);
        let (solids, scene) = (&self.solids, &mut self.scene);
        scene.place_solids(|out| {
            out.extend_from_slice(solids);
            out.extend(hand);
        });
        truth.joints_rad
    }

    /// One frame of one camera, judged.
    pub fn look(&mut self, camera: usize, moment: &Moment, state: State, hand: Option<Solid>) -> Seen {
        let joints_rad = self.draw(moment, hand);
        let true_tcp = self.tcp_at(&joints_rad);
        let history = self.history(moment.t_s, state);
        let capture_ns = ((10.0 + moment.t_s) * 1e9) as u64;
        let joints = joints_at(&history, capture_ns, 40_000_000, 50_000_000).unwrap();
        let believed_tcp = self.tcp_at(&joints.joints_rad);
        self.sequence += 1;
        let view = &mut self.views[camera];
        view.frame.sequence = self.sequence;
        view.frame.capture_ns = capture_ns;
        let true_camera = view.mount.at(&true_tcp).camera_in_base;
        view.renderer.render(&self.scene, &true_camera, 0, &mut view.frame);
        let mut pose: FramePose = view.mount.at(&believed_tcp);
        let viewpoint = match view.mount.frame {
            MountFrame::Tcp => Viewpoint::Tcp,
            MountFrame::Base => Viewpoint::Base,
        };
        if let Some(shape) = &self.shape {
            pose.robot = shape
                .at(&joints, &believed_tcp, &pose.camera_in_base, viewpoint)
                .expect("a place that is known well enough");
        }
        let mut out = Detections::default();
        view.perception.process(&view.frame, Some(&pose), capture_ns, &mut out, None);
        let arm_samples = self.pixels_near(camera, &true_camera, &self.solids, 8);
        Seen {
            health: out.health,
            objects: out.objects().len(),
            nearest_m: out.nearest().map_or(f32::INFINITY, |object| object.distance_m),
            nearest: out.nearest().copied(),
            arm_samples,
            hidden: out
                .places
                .hidden_from_all(&out.tcp_m, std::iter::empty())
                .map_or(0, |hidden| hidden.places),
        }
    }

    /// Number of every `step`th pixel of the newest frame that show one of these bodies.
    fn pixels_near(&self, camera: usize, pose: &Isometry3<f64>, solids: &[Solid], step: usize) -> usize {
        let (frame, intrinsics) = (&self.views[camera].frame, &self.camera.intrinsics);
        let mut count = 0;
        for v in (0..frame.height as usize).step_by(step) {
            for u in (0..frame.width as usize).step_by(step) {
                let depth = f64::from(frame.depth_mm[v * frame.width as usize + u]) / 1e3;
                let ray = Vector3::new(
                    (u as f64 - intrinsics.cx) / intrinsics.fx,
                    (v as f64 - intrinsics.cy) / intrinsics.fy,
                    1.0,
                );
                let p = pose * Point3::from(ray * depth);
                count += usize::from(depth > 0.0 && solids.iter().any(|solid| solid.distance_m(&p) < 0.02));
            }
        }
        count
    }

    /// A hand at a place around a link, its surface `gap_m` from the link's true surface.
    pub fn hand(&self, link: usize, place: usize, gap_m: f64, moment: &Moment) -> Solid {
        let truth = self.truth(moment.t_s);
        let capsule = self.true_body.at(&truth.joints_rad).capsules[link];
        let mut solids = Vec::new();
        drawn(&self.true_body, None, &truth.joints_rad, &self.tcp, 0, &mut solids);
        let radius_m = solids[link].radius_m;
        let span = capsule.to_m - capsule.from_m;
        // A short link is a ball; then any axis will do.
        let axis = span.try_normalize(0.02).unwrap_or_else(Vector3::z);
        let side = axis.cross(&Vector3::z()).try_normalize(0.1).unwrap_or_else(Vector3::x);
        let (ring, along) = (place % 12, 0.2 + 0.3 * (place / 12) as f64);
        let turn = UnitQuaternion::from_scaled_axis(axis * (ring as f64 * std::f64::consts::TAU / 12.0));
        let out = turn * side;
        let middle = capsule.from_m + span * along + out * (radius_m + gap_m + HAND_RADIUS_M);
        let half = axis * HAND_HALF_M;
        Solid { colour: [224, 172, 140], ..Solid::new(middle - half, middle + half, HAND_RADIUS_M) }
    }

    /// Places around a link where a hand at reach is beside this link before all others, in the
    /// volume, and in full view of a camera; at most six, spread, each with the cameras that see
    /// it.
    pub fn hands(&mut self, link: usize, moment: &Moment) -> Vec<(usize, Vec<usize>)> {
        let mut places = Vec::new();
        for place in (0..36).map(|i| i * 7 % 36) {
            let hand = self.hand(link, place, HAND_REACH_M, moment);
            let middle = nalgebra::center(&hand.from_m, &hand.to_m);
            self.draw(moment, Some(hand));
            let nearest =
                self.solids.iter().map(|solid| solid.distance_m(&middle)).fold(f64::INFINITY, f64::min);
            if nearest < HAND_REACH_M - 0.01 || middle.z < -0.5 || middle.z > 1.2 {
                continue;
            }
            let cameras: Vec<usize> = (0..self.cameras())
                .filter(|&camera| {
                    self.look(camera, moment, State::default(), Some(hand));
                    let truth = self.truth(moment.t_s);
                    let pose = self.views[camera].mount.at(&self.tcp_at(&truth.joints_rad)).camera_in_base;
                    let pixels = self.pixels_near(camera, &pose, &[hand], 2) * 4;
                    let depth = pose.inverse_transform_point(&middle).z;
                    let area_m2 = pixels as f64 * depth * depth / (308.0 * 308.0);
                    area_m2 > 0.8 * 2.0 * HAND_RADIUS_M * (2.0 * HAND_HALF_M)
                })
                .collect();
            if !cameras.is_empty() {
                places.push((place, cameras));
            }
            if places.len() == 6 {
                break;
            }
        }
        places
    }
}

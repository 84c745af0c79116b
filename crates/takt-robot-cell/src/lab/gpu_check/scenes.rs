//! Scenes that look random and are the same each time.

use nalgebra::{Isometry3, Matrix3, Point3, Rotation3, Translation3, UnitQuaternion};
use takt_link_camera::{Frame, Intrinsics};
use takt_perception::{
    Backend, Capsule, CapsuleFrame, Detection, DetectionSet, Device, FramePose, MAX_ROBOT_CAPSULES,
    PerceptionConfig, RobotShape, StaticBox,
};
use takt_rt::random::SplitMix64;

/// Width and height.
const SIZE: (u32, u32) = (384, 288);

/// From 0 up to, without, `end`.
fn below(random: &mut SplitMix64, end: u32) -> u32 {
    random.within(0, u64::from(end.max(1)) - 1) as u32
}

/// A scene with everything that is compared.
pub(super) struct Scene {
    pub(super) config: PerceptionConfig,
    pub(super) intrinsics: Intrinsics,
    pose: FramePose,
    frame: Frame,
    seen: DetectionSet,
    links: usize,
}

impl Scene {
    /// Scene `number`: things, holes, noise, a table, a tool, boxes of people, a robot, and
    /// settings of all kinds.
    pub(super) fn new(number: u64) -> Self {
        let mut random = SplitMix64::new(number);
        let mut config = PerceptionConfig { device: Device::Cuda, ..PerceptionConfig::default() };
        config.engine.backend = Backend::Embedded;
        config.detector.enabled = false;
        config.segmenter.enabled = false;
        config.gpu.graphs = number.is_multiple_of(2);
        config.occupancy.nearest_rank = 1 + below(&mut random, 19) as usize;
        config.occupancy.step_px = 1 + below(&mut random, 6);
        config.occupancy.min_area_m2 = 0.02;
        config.occupancy.static_boxes.push(StaticBox {
            name: "table".into(),
            min_m: Point3::new(1.0, -0.5, 0.0),
            max_m: Point3::new(1.6, 0.5, 0.8),
            without_depth: false,
        });
        config.occupancy.robot.push(Capsule { radius_m: 0.4, ..Capsule::tool() });
        let frame = picture(&mut random);
        let mut seen = DetectionSet::of_frame(1, 0);
        for _ in 0..below(&mut random, 6) {
            let (x, y) = (below(&mut random, 380) as f32, below(&mut random, 280) as f32);
            let (w, h) = (1.0 + below(&mut random, 199) as f32, 1.0 + below(&mut random, 199) as f32);
            seen.push(Detection { box_px: [x, y, x + w, y + h], score: 0.9 });
        }
        let turn = 1.2 * random.unit() - 0.6;
        let links = below(&mut random, MAX_ROBOT_CAPSULES as u32 + 1) as usize;
        let intrinsics =
            Intrinsics { width: SIZE.0, height: SIZE.1, fx: 300.0, fy: 300.0, cx: 191.5, cy: 143.5 };
        Self { config, intrinsics, pose: pose(turn), frame, seen, links }
    }

    /// Its three frames: the robot moves, and people are detected in the second.
    pub(super) fn step(&mut self, sequence: u64) -> (&Frame, &FramePose, Option<&DetectionSet>) {
        (self.frame.sequence, self.frame.capture_ns) = (sequence, sequence * 33_000_000);
        self.pose.tcp_in_base.translation.x += 0.05;
        self.pose.robot = RobotShape::default();
        for link in 0..self.links * sequence as usize / 3 {
            let along = link as f32 * 0.11 + sequence as f32 * 0.03;
            self.pose.robot.push(Capsule {
                frame: CapsuleFrame::Base,
                from_m: Point3::new(1.0 + along, -0.6 + along, 0.4),
                to_m: Point3::new(1.8, 0.5 - along, 0.5 + along),
                radius_m: 0.05 + 0.01 * link as f32,
            });
        }
        (&self.frame, &self.pose, (sequence == 2).then_some(&self.seen))
    }
}

/// A camera 1 m above the base origin that looks along +x, turned a little.
fn pose(turn: f64) -> FramePose {
    // Optical z is base x, optical x is base -y, optical y is base -z.
    let axes = Matrix3::new(0.0, 0.0, 1.0, -1.0, 0.0, 0.0, 0.0, -1.0, 0.0);
    let rotation = UnitQuaternion::from_rotation_matrix(&Rotation3::from_matrix_unchecked(axes));
    let turned = rotation * UnitQuaternion::from_euler_angles(0.1, turn, 0.05);
    let camera_in_base = Isometry3::from_parts(Translation3::new(0.0, 0.0, 1.0), turned);
    FramePose::new(camera_in_base, Isometry3::translation(0.0, 0.0, 1.0))
}

/// Things before a wall 8 m away, holes, noise.
fn picture(random: &mut SplitMix64) -> Frame {
    let mut frame = Frame::new(SIZE.0, SIZE.1);
    frame.arrival_ns = 1;
    for (value, i) in frame.rgb.iter_mut().zip(0usize..) {
        *value = (i % 251) as u8;
    }
    frame.depth_mm.fill(8_000);
    let mut put = |[left, top, width, height]: [u32; 4], depth_mm: u16| {
        for v in top..(top + height).min(SIZE.1) {
            for u in left..(left + width).min(SIZE.0) {
                frame.depth_mm[(v * SIZE.0 + u) as usize] = depth_mm;
            }
        }
    };
    for _ in 0..1 + below(random, 8) {
        let area =
            [below(random, 340), 10 + below(random, 230), 4 + below(random, 86), 4 + below(random, 116)];
        put(area, 700 + below(random, 6_300) as u16);
    }
    for _ in 0..below(random, 3) {
        put([below(random, 340), 10 + below(random, 230), 4 + below(random, 56), 4 + below(random, 56)], 0);
    }
    let noise = below(random, 60);
    for depth in &mut frame.depth_mm {
        *depth += below(random, noise + 1) as u16;
        if below(random, 256) == 7 {
            *depth = 0;
        }
    }
    frame
}

//! The scene: a room, and people who walk in it.

use nalgebra::{Point3, Vector3};

use super::block::Block;
use super::config::{PersonConfig, SceneConfig};
use super::solid::Solid;
use super::texture::Texture;
use crate::error::CameraError;

/// A scene, ready to be seen.
#[derive(Clone, Debug)]
pub struct Scene {
    pub(super) room: Room,
    pub(super) people: Vec<Person>,
    still: Vec<Solid>,
    pub(super) blocks: Vec<Block>,
    moving: Vec<Solid>,
}

/// The room's walls, floor and ceiling.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    pub low: Point3<f64>,
    pub high: Point3<f64>,
}

/// A person with picture and path.
#[derive(Clone, Debug)]
pub(super) struct Person {
    config: PersonConfig,
    length_m: f64,
    pub texture: Texture,
}

/// A person's picture in space, as one camera sees it at one time: an upright rectangle.
#[derive(Clone, Copy, Debug)]
pub(super) struct Billboard {
    /// Middle of the lower edge.
    pub foot: Point3<f64>,
    /// Horizontal unit vector from the person to the camera.
    pub facing: Vector3<f64>,
    /// Horizontal unit vector along the picture, to the right as the camera sees it.
    pub right: Vector3<f64>,
    pub width_m: f64,
    pub height_m: f64,
}

impl Scene {
    /// Builds the scene.
    ///
    /// # Errors
    /// When a value of the configuration is impossible.
    pub fn new(config: &SceneConfig) -> Result<Self, CameraError> {
        config.check()?;
        let room = Room {
            low: Point3::new(config.room_x_m[0], config.room_y_m[0], config.floor_m),
            high: Point3::new(config.room_x_m[1], config.room_y_m[1], config.floor_m + config.ceiling_m),
        };
        let people = config.people.iter().map(Person::new).collect();
        // Room for an arm: nothing is allocated per frame.
        let (still, blocks) = (config.solids.clone(), config.blocks.clone());
        Ok(Self { room, people, still, blocks, moving: Vec::with_capacity(64) })
    }

    /// Sets the bodies of this moment anew, beside those that always stand in the scene. What
    /// cannot be drawn is left out.
    pub fn place_solids(&mut self, fill: impl FnOnce(&mut Vec<Solid>)) {
        self.moving.clear();
        fill(&mut self.moving);
        self.moving.retain(Solid::is_valid);
    }

    /// All bodies of this moment.
    pub(super) fn solids(&self) -> impl Iterator<Item = &Solid> {
        self.still.iter().chain(&self.moving)
    }

    /// Number of people.
    pub fn people(&self) -> usize {
        self.people.len()
    }

    /// Where a person stands (on the floor) at a time of the scene.
    pub fn position_m(&self, person: usize, scene_ns: u64) -> Option<Point3<f64>> {
        let [x, y] = self.people.get(person)?.place(scene_ns);
        Some(Point3::new(x, y, self.room.low.z))
    }

    /// A person's picture, turned towards a camera at `eye`; `None` when the camera is straight
    /// above.
    pub(super) fn billboard(&self, person: usize, eye: &Point3<f64>, scene_ns: u64) -> Option<Billboard> {
        let foot = self.position_m(person, scene_ns)?;
        let person = &self.people[person];
        let facing = Vector3::new(eye.x - foot.x, eye.y - foot.y, 0.0).try_normalize(1e-3)?;
        Some(Billboard {
            foot,
            facing,
            right: Vector3::new(-facing.y, facing.x, 0.0),
            width_m: person.config.height_m * person.texture.aspect(),
            height_m: person.config.height_m,
        })
    }
}

impl Person {
    fn new(config: &PersonConfig) -> Self {
        let length_m = config.path_m.windows(2).map(|leg| distance(leg[0], leg[1])).sum();
        Self { config: config.clone(), length_m, texture: Texture::built_in(config.look) }
    }

    /// Whether the depth sensor sees nothing of this person.
    pub fn without_depth(&self) -> bool {
        self.config.without_depth
    }

    /// The place on the path: out, pause, back, pause.
    fn place(&self, scene_ns: u64) -> [f64; 2] {
        let PersonConfig { path_m, speed_m_s, pause_s, start_s, .. } = &self.config;
        let way_s = self.length_m / speed_m_s;
        let round_s = 2.0 * (way_s + pause_s);
        if round_s <= 0.0 {
            return path_m[0];
        }
        let time_s = (scene_ns as f64 * 1e-9 + start_s) % round_s;
        let walked_s = if time_s < way_s + pause_s {
            time_s.min(way_s)
        } else {
            (2.0 * way_s + pause_s - time_s).max(0.0)
        };
        let mut left_m = walked_s * speed_m_s;
        for leg in path_m.windows(2) {
            let length_m = distance(leg[0], leg[1]);
            if left_m < length_m {
                let share = left_m / length_m;
                return [0, 1].map(|axis| leg[0][axis] + share * (leg[1][axis] - leg[0][axis]));
            }
            left_m -= length_m;
        }
        path_m[path_m.len() - 1]
    }
}

fn distance(a: [f64; 2], b: [f64; 2]) -> f64 {
    (a[0] - b[0]).hypot(a[1] - b[1])
}

impl Billboard {
    /// The picture coordinates at which a ray (from `eye` along `direction`) meets the picture's
    /// plane, and how far along the ray, in units of `direction`.
    pub fn meet(&self, eye: &Point3<f64>, direction: &Vector3<f64>) -> Option<(f64, f64, f64)> {
        let along = self.facing.dot(direction);
        // Facing points at the camera, so rays that reach the front run against it.
        if along >= -1e-9 {
            return None;
        }
        let t = self.facing.dot(&(self.foot - eye)) / along;
        let from_foot = eye + direction * t - self.foot;
        let u = self.right.dot(&from_foot) / self.width_m + 0.5;
        let v = 1.0 - from_foot.z / self.height_m;
        (t > 0.0).then_some((t, u, v))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scene(person: PersonConfig) -> Scene {
        Scene::new(&SceneConfig { people: vec![person], ..SceneConfig::default() }).unwrap()
    }

    #[test]
    fn people_walk_out_and_back_with_pauses() {
        let mut person = PersonConfig::walking(0, &[[4.0, 0.0], [2.0, 0.0], [2.0, 2.0]]);
        (person.speed_m_s, person.pause_s) = (1.0, 0.5);
        let scene = scene(person);
        let at = |s: f64| scene.position_m(0, (s * 1e9) as u64).unwrap();
        for (s, x, y) in [
            (0.0, 4.0, 0.0),
            (1.0, 3.0, 0.0),
            (3.0, 2.0, 1.0),
            (4.25, 2.0, 2.0),
            (5.5, 2.0, 1.0),
            (8.0, 3.5, 0.0),
            (8.75, 4.0, 0.0),
            (10.0, 3.0, 0.0),
        ] {
            let place = at(s);
            assert!((place.x - x).abs() < 1e-9 && (place.y - y).abs() < 1e-9, "at {s} s: {place}");
        }
        assert_eq!(scene.position_m(1, 0), None);
    }

    #[test]
    fn a_single_point_means_standing() {
        let scene = scene(PersonConfig::walking(1, &[[1.0, 2.0]]));
        assert_eq!(scene.position_m(0, 77_000_000_000), Some(Point3::new(1.0, 2.0, 0.0)));
    }

    #[test]
    fn impossible_scenes_are_refused() {
        let mut config = SceneConfig::default();
        config.people[0].look = 99;
        let error = Scene::new(&config).unwrap_err().to_string();
        assert_eq!(error, "look = 99: expected 0 to 3");
        config.people[0] = PersonConfig::walking(0, &[]);
        assert!(Scene::new(&config).unwrap_err().to_string().contains("at least one point"));
        config.people[0] = PersonConfig::walking(0, &[[f64::NAN, 0.0]]);
        assert!(Scene::new(&config).is_err());
    }
}

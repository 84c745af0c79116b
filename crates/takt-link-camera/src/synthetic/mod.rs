//! A synthetic scene with exact ground truth: a room and walking people, seen by cameras that may
//! move.
//!
//! People are upright pictures of real pedestrians that turn towards the camera. Colour is what a
//! network can find people in; depth is geometrically exact (to rounding, and noise where
//! configured); and [`Scene::truth`] says by independent ray casting which pixels belong to whom
//! and how near everyone is.

mod block;
mod camera;
mod config;
mod flaws;
mod render;
mod scene;
mod solid;
mod texture;
mod truth;

pub use block::Block;
pub use camera::SyntheticCamera;
pub use config::{PersonConfig, SceneConfig, SyntheticConfig};
pub use flaws::{Flaws, LensEvent, LensEventKind};
pub use render::Renderer;
pub use scene::Scene;
pub use solid::{Solid, SolidSource};
pub use texture::LOOKS;
pub use truth::PersonTruth;

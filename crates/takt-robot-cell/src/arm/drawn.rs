//! The arm as a synthetic scene shows it: thinner than the capsules that leave it out, as real
//! links are.

use nalgebra::{Isometry3, Point3};
use takt_link_camera::synthetic::Solid;
use takt_link_rtde::kinematics::{Body, LINKS};

use super::config::{PartFrame, ShapeConfig};

/// Share of each capsule's radius that the drawn link has. The exclusion's capsules hold the
/// maker's meshes, so the true links are thinner, each by its own.
const THINNER: [f64; LINKS] = [0.97, 0.70, 0.81, 0.95, 0.66, 0.98, 0.99, 0.96];

/// Distance by which a cable stands out beyond the capsules of upper arm and forearm: within the
/// margin, and beyond the model.
const CABLE_OUT_M: f64 = 0.008;
const CABLE_RADIUS_M: f64 = 0.01;

/// Draws the arm as it truly is at `joints_rad`: not the capsules that leave it out, but links that
/// differ from them by what real ones do (thinner tubes, cables that stand out), and gripper and
/// held part 2 mm thinner than reported.
pub fn drawn(
    body: &Body,
    shape: Option<&ShapeConfig>,
    joints_rad: &[f64; 6],
    tcp_in_base: &Isometry3<f64>,
    outputs: u64,
    out: &mut Vec<Solid>,
) {
    let links = body.at(joints_rad);
    for (capsule, share) in links.capsules.iter().zip(THINNER) {
        out.push(Solid::new(capsule.from_m, capsule.to_m, capsule.radius_m * share));
    }
    for link in [2, 4] {
        let capsule = &links.capsules[link];
        let axis = capsule.to_m - capsule.from_m;
        let Some(side) = axis.cross(&links.axis(link / 2)).try_normalize(1e-9) else { continue };
        let off = side * (capsule.radius_m + CABLE_OUT_M - CABLE_RADIUS_M);
        let colour = [40, 42, 46];
        let (from, to) = (capsule.from_m + axis * 0.1, capsule.to_m - axis * 0.1);
        out.push(Solid { colour, ..Solid::new(from + off, to + off, CABLE_RADIUS_M) });
    }
    let Some(shape) = shape else { return };
    let held = shape.held.parts.iter().filter(|_| outputs & shape.held_bit() != 0);
    for part in shape.gripper.iter().chain(held) {
        let frame = match part.frame {
            PartFrame::Tcp => *tcp_in_base,
            PartFrame::Flange => links.flange,
        };
        for capsule in part.capsules() {
            let at = |p: &Point3<f32>| frame * p.cast::<f64>();
            let radius_m = (f64::from(capsule.radius_m) - 0.002).max(0.001);
            out.push(Solid {
                colour: [150, 120, 90],
                ..Solid::new(at(&capsule.from_m), at(&capsule.to_m), radius_m)
            });
        }
    }
}

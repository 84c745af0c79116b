use super::*;
use crate::kinematics::UR10E;
use proptest::prelude::*;

const ALL: [Model; 9] = Model::ALL;

fn body(model: Model) -> Body {
    Body::new(model, &model.arm())
}

/// By hand from the maker's drawing of the UR10e, stretched out along -x: upper arm and forearm run
/// parallel, the one 0.176 m beside joint 1's axis, the other 0.039 m, both at the height of the
/// shoulder.
#[test]
fn a_stretched_ur10e_lies_as_drawn() {
    let links = body(Model::Ur10e).at(&[0.0; 6]);
    let [upper, forearm] = [2, 4].map(|link| links.capsules[link]);
    for (capsule, y) in [(upper, -0.1762), (forearm, -0.0393)] {
        for end in [capsule.from_m, capsule.to_m] {
            assert!((end.y - y).abs() < 1e-6 && (end.z - 0.1807).abs() < 1e-6, "{capsule:?}");
        }
    }
    assert!(upper.from_m.x > -0.2 && upper.to_m.x > -0.6127 && upper.to_m.x < -0.5, "{upper:?}");
    assert!(forearm.from_m.x < -0.6127 && forearm.to_m.x > -1.1843, "{forearm:?}");
    assert!(
        (links.flange.translation.vector
            - UR10E.forward(&[0.0; 6], &Isometry3::identity()).translation.vector)
            .norm()
            < 1e-12
    );
}

/// Links that follow each other touch, whatever the pose: no gap in which a piece of arm would be
/// unexplained.
#[test]
fn neighbouring_links_overlap_in_every_pose() {
    for model in ALL {
        let body = body(model);
        for case in 0..200u32 {
            let joints = std::array::from_fn(|j| f64::from((case * 37 + j as u32 * 53) % 126) * 0.1 - 6.3);
            let links = body.at(&joints);
            for pair in links.capsules.windows(2) {
                let gap = (0..=50)
                    .map(|i| {
                        let p = pair[0].from_m + (pair[0].to_m - pair[0].from_m) * (f64::from(i) / 50.0);
                        distance(&pair[1], &p) - pair[0].radius_m - pair[1].radius_m
                    })
                    .fold(f64::INFINITY, f64::min);
                assert!(gap < 0.0, "{model:?}: {gap} m between {pair:?}");
            }
            // The flange is where the last link ends.
            let end = distance(&links.capsules[7], &Point3::from(links.flange.translation.vector));
            assert!(end < links.capsules[7].radius_m + 0.02, "{model:?}: {end}");
        }
    }
}

fn distance(capsule: &LinkCapsule, p: &Point3<f64>) -> f64 {
    let axis = capsule.to_m - capsule.from_m;
    let along = ((p - capsule.from_m).dot(&axis) / axis.norm_squared().max(1e-12)).clamp(0.0, 1.0);
    (p - (capsule.from_m + axis * along)).norm()
}

/// A calibration as real ones are: axes tilted by tenths of a milliradian, written as
/// Denavit-Hartenberg parameters, whose offsets of the nearly parallel joints are tens of metres.
/// The links must stay where the arm is.
#[test]
fn nearly_parallel_axes_do_not_throw_the_links_away() {
    // Joint 2's axis tilted by 0.3 mrad against joint 3's: the common normal lies where the lines
    // cross.
    let tilt = 3e-4;
    for model in ALL {
        let nominal = model.arm();
        let mut arm = nominal;
        arm.alpha_rad[1] = tilt;
        arm.alpha_rad[2] = -tilt;
        arm.d_m[1] = 30.0;
        arm.d_m[2] = -30.0;
        let (real, ideal) = (Body::new(model, &arm), body(model));
        let joints = [0.4, -1.2, 1.1, -0.7, 0.9, 0.2];
        let (real, ideal) = (real.at(&joints), ideal.at(&joints));
        let flange = (real.flange.translation.vector - ideal.flange.translation.vector).norm();
        assert!(flange < 0.06, "{model:?}: the calibration moves the flange by {flange} m");
        for (link, (a, b)) in real.capsules.iter().zip(&ideal.capsules).enumerate() {
            let off = (a.from_m - b.from_m).norm().max((a.to_m - b.to_m).norm());
            assert!(off < 0.06, "{model:?} {}: {off} m away", Body::NAMES[link]);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Turn the joints by up to the error: no end of a capsule moves further than is said (to first
    /// order).
    #[test]
    fn displacement_bounds_what_an_angle_error_does(
        joints in prop::array::uniform6(-3.0f64..3.0),
        share in prop::array::uniform6(-1.0f64..1.0),
        errors in prop::array::uniform6(0.0f64..0.01),
        which in 0usize..9,
    ) {
        let body = body(ALL[which]);
        let (links, turned) = (body.at(&joints), body.at(&std::array::from_fn(|j| joints[j] + share[j] * errors[j])));
        for link in 0..LINKS {
            let (a, b) = (&links.capsules[link], &turned.capsules[link]);
            let moved = (a.from_m - b.from_m).norm().max((a.to_m - b.to_m).norm());
            let bound = links.link_displacement_m(link, &errors);
            prop_assert!(moved <= bound + 1e-4, "{}: {moved} > {bound}", Body::NAMES[link]);
        }
    }

    /// Own joint, own housing: what a joint turns is round about its axis, or it is counted as
    /// moved.
    #[test]
    fn a_link_moves_with_the_joints_that_are_said_to_move_it(joints in prop::array::uniform6(-3.0f64..3.0), turn in 0.1f64..1.0) {
        let body = body(Model::Ur5e);
        let before = body.at(&joints);
        for joint in 0..6 {
            let mut turned = joints;
            turned[joint] += turn;
            let after = body.at(&turned);
            for link in 0..LINKS {
                let (a, b) = (&before.capsules[link], &after.capsules[link]);
                let moved = (a.from_m - b.from_m).norm() + (a.to_m - b.to_m).norm();
                if joint >= Body::MOVED_BY[link] {
                    prop_assert!(moved < 1e-9, "joint {} moves {}", joint + 1, Body::NAMES[link]);
                }
            }
        }
    }
}

//! Cost of geometry, with and without holes in the depth image, and of looking for hidden places:
//! microseconds of processor time per frame of 640x480. Both halves of a pair look at the same
//! frames in turn.
//!
//! `cargo run --release -p takt-perception --example geometry_cost`

use std::error::Error;

use nalgebra::{Isometry3, Point3};
use takt_link_camera::{Frame, Intrinsics};
use takt_perception::{Backend, Detections, Engine, FramePose, Perception, PerceptionConfig, StaticBox};
use takt_rt::clock::thread_cpu_ns;

const FRAMES: u64 = 600;

fn main() -> Result<(), Box<dyn Error>> {
    let mut config = PerceptionConfig::default();
    config.engine.backend = Backend::Embedded;
    config.detector.enabled = false;
    config.segmenter.enabled = false;
    config.unseen.within_m = Some(1.4);
    config.unseen.max_share = 1.0;
    config.health.min_valid_depth = 0.0;
    for x in [-1.5, 1.5] {
        let (min_m, max_m) = (Point3::new(x - 0.1, -2.0, -2.0), Point3::new(x + 0.1, -1.5, 1.0));
        config.occupancy.static_boxes.push(StaticBox {
            name: "post".into(),
            min_m,
            max_m,
            without_depth: false,
        });
    }
    let intrinsics = Intrinsics { width: 640, height: 480, fx: 460.0, fy: 460.0, cx: 319.5, cy: 239.5 };
    let engine = Engine::open(&config.engine)?;
    let mut perception = Perception::new(&config, 0, intrinsics, &engine, None)?;
    // A zone of a millimetre has no places.
    config.unseen.within_m = Some(1e-3);
    let mut without = Perception::new(&config, 0, intrinsics, &engine, None)?;
    // 2 m behind the tool, looking at it.
    let pose = FramePose::new(Isometry3::translation(0.0, 0.0, -2.0), Isometry3::identity());
    let mut dice = 1u32;
    let mut roll = move || {
        dice = dice.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        dice >> 8
    };
    println!(
        "scene                      median   p99   without a zone: median   p99   (us, {FRAMES} frames)"
    );
    for (name, random, hole_rows, near_rows) in [
        ("no hole", 0, 0, 0),
        ("5 % random holes", 5, 0, 0),
        ("20 % random holes", 20, 0, 0),
        ("a hole of 10 %", 0, 48, 0),
        ("a hole of 69 %", 0, 331, 0),
        ("a board over a half", 0, 0, 240),
        ("a board over all", 0, 0, 480),
    ] {
        let mut frame = Frame::new(640, 480);
        frame.rgb.iter_mut().for_each(|value| *value = roll() as u8);
        for (pixel, depth) in frame.depth_mm.iter_mut().enumerate() {
            let hole = roll() % 100 < random || pixel / 640 < hole_rows;
            let near = pixel / 640 < near_rows;
            *depth = if hole {
                0
            } else if near {
                300
            } else {
                8_000
            };
        }
        let mut spent_ns = [(); 2].map(|()| Vec::with_capacity(FRAMES as usize));
        let mut outs = [Detections::default(); 2];
        for sequence in 1..=FRAMES {
            (frame.sequence, frame.capture_ns) = (sequence, sequence * 33_333_333);
            for (which, perception) in [&mut perception, &mut without].into_iter().enumerate() {
                let before_ns = thread_cpu_ns();
                perception.process(&frame, Some(&pose), 0, &mut outs[which], None);
                spent_ns[which].push(thread_cpu_ns() - before_ns);
            }
        }
        spent_ns.iter_mut().for_each(|spent_ns| spent_ns.sort_unstable());
        let at = |which: usize, share: f64| {
            let spent_ns = &spent_ns[which];
            spent_ns[(spent_ns.len() as f64 * share) as usize] as f64 / 1e3
        };
        println!(
            "{name:<25} {:>7.0} {:>5.0} {:>23.0} {:>5.0}   {} objects, {:.0} % of {} places hidden",
            at(0, 0.5),
            at(0, 0.99),
            at(1, 0.5),
            at(1, 0.99),
            outs[0].objects().len(),
            outs[0].places.hidden_share() * 100.0,
            outs[0].places.looked(),
        );
    }
    Ok(())
}

use super::*;
use proptest::prelude::*;

const PERIOD_NS: u64 = 33_000_000;
const START_NS: u64 = 1_000_000_000_000;

/// A camera over a still scene whose sensors have noise, frame by frame.
struct Scene {
    frame: Frame,
    watch: FrameWatch,
    now_ns: u64,
    seed: u64,
}

impl Scene {
    fn new(config: &HealthConfig) -> Self {
        let frame = Frame::new(106, 60);
        Self { frame, watch: FrameWatch::new(config), now_ns: START_NS, seed: 1 }
    }

    fn random(&mut self) -> u64 {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.seed >> 33
    }

    /// New noise on depth (where it is wanted) and colour.
    fn expose(&mut self, depth: impl Fn(u32, u32) -> bool, colour: bool) {
        for v in 0..60 {
            for u in 0..106 {
                let at = (v * 106 + u) as usize;
                let noise = self.random();
                if depth(u, v) {
                    self.frame.depth_mm[at] = 2000 + (noise % 7) as u16;
                }
                if colour {
                    self.frame.rgb[at * 3 + 1] = 100 + (noise >> 8 & 1) as u8;
                }
            }
        }
    }

    /// The next frame of a good camera, whatever its picture is.
    fn next(&mut self) -> FrameHealth {
        self.now_ns += PERIOD_NS;
        self.frame.sequence += 1;
        self.frame.capture_ns = self.now_ns - 20_000_000;
        self.frame.streams = None;
        self.watch.judge(&self.frame, self.now_ns)
    }

    fn live(&mut self) -> FrameHealth {
        self.expose(|_, _| true, true);
        self.next()
    }

    /// Good frames in which only a part goes on living: how many were Ok before the fault, and the
    /// fault.
    fn until_fault(&mut self, mut expose: impl FnMut(&mut Self)) -> (u32, FrameHealth) {
        for count in 0..100 {
            expose(self);
            let health = self.next();
            if health != FrameHealth::Ok {
                return (count, health);
            }
        }
        (100, FrameHealth::Ok)
    }
}

fn running() -> Scene {
    let mut scene = Scene::new(&HealthConfig::default());
    for _ in 0..50 {
        assert_eq!(scene.live(), FrameHealth::Ok);
    }
    scene
}

#[test]
fn a_picture_that_stands_still_is_frozen_and_lives_again_with_the_next() {
    // 80 ms are passed with the third frame after the last new one.
    let mut scene = running();
    assert_eq!(scene.until_fault(|_| ()), (2, FrameHealth::Frozen), "depth and colour");
    assert_eq!(scene.live(), FrameHealth::Ok);
    let depth_alone = scene.until_fault(|s| s.expose(|_, _| false, true));
    assert_eq!(depth_alone, (2, FrameHealth::Frozen));
    assert_eq!(scene.live(), FrameHealth::Ok);
    let colour_alone = scene.until_fault(|s| s.expose(|_, _| true, false));
    assert_eq!(colour_alone, (2, FrameHealth::Frozen));
    assert_eq!(scene.live(), FrameHealth::Ok);
}

#[test]
fn content_ages_from_the_frame_that_showed_it_first() {
    let mut scene = running();
    let first_ns = scene.frame.capture_ns;
    assert_eq!(scene.watch.content_ns(), first_ns);
    for _ in 0..2 {
        scene.expose(|u, _| u >= 53, true);
        assert_eq!(
            (scene.next(), scene.watch.content_ns()),
            (FrameHealth::Ok, first_ns),
            "one half repeats it"
        );
    }
    assert_eq!((scene.live(), scene.watch.content_ns()), (FrameHealth::Ok, scene.frame.capture_ns));
}

#[test]
fn a_frozen_part_is_frozen() {
    for (what, lives) in [
        ("left half", (|u, _| u >= 53) as fn(u32, u32) -> bool),
        ("right half", |u, _| u < 53),
        ("upper half", |_, v| v >= 30),
        ("lower half", |_, v| v < 30),
        // Twice a tile's size, and across the borders of tiles.
        ("somewhere", |u, v| !((20..73).contains(&u) && (12..42).contains(&v))),
        ("one tile", |u, v| !((27..53).contains(&u) && (15..30).contains(&v))),
    ] {
        let mut scene = running();
        assert_eq!(scene.until_fault(|s| s.expose(lives, true)), (2, FrameHealth::Frozen), "{what}");
        assert_eq!(scene.live(), FrameHealth::Ok, "{what}");
    }
}

#[test]
fn one_repeated_image_and_a_part_without_depth_are_no_fault() {
    let mut scene = running();
    for _ in 0..20 {
        assert_eq!(
            (scene.live(), scene.next(), scene.next()),
            (FrameHealth::Ok, FrameHealth::Ok, FrameHealth::Ok)
        );
    }
    // A sky: no depth in the upper half, but for a few pixels that never change.
    scene.frame.depth_mm[..106 * 30].fill(0);
    scene.frame.depth_mm[5] = 3000;
    let health = scene.until_fault(|s| s.expose(|_, v| v >= 30, true));
    assert_eq!(health, (100, FrameHealth::Ok));
}

#[test]
fn a_ring_of_old_pictures_is_frozen() {
    let mut scene = running();
    let mut ring = Vec::new();
    for _ in 0..32 {
        assert_eq!(scene.live(), FrameHealth::Ok);
        ring.push((scene.frame.depth_mm.clone(), scene.frame.rgb.clone()));
    }
    let mut next = 0;
    let health = scene.until_fault(|s| {
        (s.frame.depth_mm, s.frame.rgb) = ring[next % 32].clone();
        next += 1;
    });
    assert_eq!(health, (2, FrameHealth::Frozen));
}

#[test]
fn without_depth_noise_colour_speaks_for_each_tile() {
    let config = HealthConfig { depth_without_noise: true, ..HealthConfig::default() };
    let mut scene = Scene::new(&config);
    scene.expose(|_, _| true, true);
    let colour = scene.until_fault(|s| s.expose(|_, _| false, true));
    assert_eq!(colour, (100, FrameHealth::Ok), "depth may stand still");
    let half = scene.until_fault(|s| {
        let (depth, left) = (s.frame.depth_mm.clone(), s.frame.rgb.clone());
        s.expose(|_, _| true, true);
        s.frame.depth_mm = depth;
        for v in 0..60 {
            let row = v * 106 * 3..(v * 106 + 53) * 3;
            s.frame.rgb[row.clone()].copy_from_slice(&left[row]);
        }
    });
    assert_eq!(half, (2, FrameHealth::Frozen), "not together with its colour");
}

#[test]
fn odd_numbers_and_stamps_cost_that_frame_and_at_most_the_next() {
    type Spoil = fn(&mut Frame);
    let cases: [(&str, Spoil, FrameHealth); 7] = [
        ("number again", |f| f.sequence -= 1, FrameHealth::SequenceRepeated),
        ("number back", |f| f.sequence -= 2, FrameHealth::SequenceBackwards),
        ("counts from 1", |f| f.sequence = 1, FrameHealth::SequenceBackwards),
        ("stamp again", |f| f.capture_ns -= PERIOD_NS, FrameHealth::StampBackwards),
        ("stamp back", |f| f.capture_ns = 7, FrameHealth::StampBackwards),
        ("stamp a little ahead", |f| f.capture_ns += 23_000_000, FrameHealth::FutureStamp),
        ("stamp of the end of time", |f| f.capture_ns = u64::MAX, FrameHealth::FutureStamp),
    ];
    for (what, spoil, expected) in cases {
        let mut scene = running();
        scene.expose(|_, _| true, true);
        scene.now_ns += PERIOD_NS;
        scene.frame.sequence += 1;
        scene.frame.capture_ns = scene.now_ns - 20_000_000;
        spoil(&mut scene.frame);
        assert_eq!(scene.watch.judge(&scene.frame, scene.now_ns), expected, "{what}");
        assert_eq!(scene.live(), FrameHealth::Ok, "{what}: the next frame is good again");
    }
    let mut scene = running();
    scene.frame.sequence = u64::MAX;
    scene.now_ns += PERIOD_NS;
    scene.frame.capture_ns = scene.now_ns;
    scene.watch.judge(&scene.frame, scene.now_ns);
    scene.frame.sequence = 50;
    assert_eq!(scene.live(), FrameHealth::SequenceBackwards, "of what the wrong number said");
    assert_eq!(scene.live(), FrameHealth::Ok);
}

/// Two sensors, each with its own number and stamp.
fn two(scene: &mut Scene, colour: (u64, u64), depth: (u64, u64)) -> FrameHealth {
    scene.expose(|_, _| true, true);
    scene.frame.sequence += 1;
    let stamp = |(number, capture_ns)| StreamStamp { number, capture_ns, error_ns: 0 };
    scene.frame.streams = Some(Streams { colour: stamp(colour), depth: stamp(depth) });
    scene.frame.capture_ns = colour.1.min(depth.1);
    scene.watch.judge(&scene.frame, scene.now_ns)
}

#[test]
fn each_sensor_is_judged_by_itself() {
    let ms = |ms: u64| START_NS + ms * 1_000_000;
    let fresh = |at_ms| {
        let mut scene = Scene::new(&HealthConfig::default());
        scene.now_ns = ms(at_ms);
        scene.frame.sequence = 10;
        assert_eq!(two(&mut scene, (10, ms(0)), (10, ms(5))), FrameHealth::Ok);
        scene
    };
    // Colour goes on, depth does not: one repeat is survived, the second is too far apart.
    let mut scene = fresh(200);
    assert_eq!(two(&mut scene, (11, ms(33)), (10, ms(5))), FrameHealth::Ok);
    assert_eq!(two(&mut scene, (12, ms(66)), (10, ms(5))), FrameHealth::StreamsApart);
    assert_eq!(two(&mut scene, (13, ms(99)), (13, ms(104))), FrameHealth::Ok);
    // Depth goes on, colour does not.
    let mut scene = fresh(200);
    assert_eq!(two(&mut scene, (10, ms(0)), (11, ms(38))), FrameHealth::Ok);
    assert_eq!(two(&mut scene, (10, ms(0)), (12, ms(71))), FrameHealth::StreamsApart);
    for (what, colour, depth, expected) in [
        ("depth number back", (11, 33), (9, 38), FrameHealth::SequenceBackwards),
        ("colour number back", (9, 33), (11, 38), FrameHealth::SequenceBackwards),
        ("depth number again", (11, 33), (10, 38), FrameHealth::SequenceRepeated),
        ("depth stamp again", (11, 33), (11, 5), FrameHealth::StampBackwards),
        ("depth stamp back", (11, 33), (11, 4), FrameHealth::StampBackwards),
        ("depth of the future", (11, 33), (11, 203), FrameHealth::FutureStamp),
        ("colour of the future", (11, 9_000), (11, 38), FrameHealth::FutureStamp),
    ] {
        let mut scene = fresh(200);
        let stamp = |(number, at_ms)| (number, ms(at_ms));
        assert_eq!(two(&mut scene, stamp(colour), stamp(depth)), expected, "{what}");
    }
}

#[test]
fn a_frame_of_another_size_than_it_says_is_refused() {
    let mut scene = running();
    scene.frame.depth_mm.pop();
    assert_eq!(scene.live_unexposed(), FrameHealth::WrongSize);
    scene.frame = Frame::new(0, 0);
    assert_eq!(scene.live_unexposed(), FrameHealth::WrongSize);
    scene.frame = Frame::new(1, 1);
    scene.frame.sequence = 900;
    assert_eq!(scene.live_unexposed(), FrameHealth::Ok, "a size for perception to refuse");
    assert_eq!(scene.watch.judge(&Frame::new(1, 1), scene.now_ns), FrameHealth::NoFrame);
}

impl Scene {
    fn live_unexposed(&mut self) -> FrameHealth {
        self.next()
    }
}

fn stamp() -> impl Strategy<Value = u64> {
    prop_oneof![any::<u64>(), Just(0), Just(u64::MAX), START_NS..START_NS + 2_000_000_000]
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![0..20u64, any::<u64>(), Just(u64::MAX)]
}

type Odd = (u64, u64, Option<[(u64, u64); 2]>);

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Whatever came before: of frames that are good in themselves at most the first is refused,
    /// and no frame with a stamp of the future, a number again or an order back ever passes.
    #[test]
    fn any_history_costs_good_frames_at_most_one(
        odd in proptest::collection::vec(
            (number(), stamp(), proptest::option::of([(number(), stamp()), (number(), stamp())])), 0..20)
    ) {
        let odd: Vec<Odd> = odd;
        let mut scene = Scene::new(&HealthConfig::default());
        let mut last: Option<(u64, Streams)> = None;
        for (sequence, capture_ns, streams) in odd {
            scene.expose(|_, _| true, true);
            scene.now_ns += PERIOD_NS;
            scene.frame.sequence = sequence;
            scene.frame.capture_ns = capture_ns;
            scene.frame.streams = streams.map(|[colour, depth]| {
                let stamp = |(number, capture_ns)| StreamStamp { number, capture_ns, error_ns: 0 };
                Streams { colour: stamp(colour), depth: stamp(depth) }
            });
            let health = scene.watch.judge(&scene.frame, scene.now_ns);
            let Streams { colour, depth } = scene.frame.stamps();
            if health == FrameHealth::Ok {
                let latest_ns = scene.now_ns + 2_000_000;
                prop_assert!(capture_ns.max(colour.capture_ns).max(depth.capture_ns) <= latest_ns);
                prop_assert!(colour.capture_ns.abs_diff(depth.capture_ns) <= 60_000_000);
                if let Some((before, streams)) = last {
                    prop_assert!(sequence > before);
                    prop_assert!(colour.number >= streams.colour.number && depth.number >= streams.depth.number);
                }
            }
            if sequence > 0 {
                last = Some((sequence, scene.frame.stamps()));
            }
        }
        // The camera starts again.
        scene.frame.sequence = 0;
        scene.live();
        for _ in 0..30 {
            prop_assert_eq!(scene.live(), FrameHealth::Ok);
        }
    }
}

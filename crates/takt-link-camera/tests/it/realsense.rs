//! The RealSense backend against a library that plays every trouble: the very FFI code, on a
//! scripted librealsense2.
#![cfg(feature = "realsense")]
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use crate::standin;

use std::time::Duration;

use proptest::prelude::*;
use standin::{COLOUR, DEPTH, GLOBAL, HARDWARE, Moment, Part, SYSTEM, Set, Standin, config};
use takt_link_camera::realsense::RealsenseCamera;
use takt_link_camera::{Camera, CameraConfig, CameraError, CameraFeed, FeedOptions, Frame, Streams};

/// Stamps agree when they differ by less: the clocks are read one after the other, and drift
/// against each other.
const CLOSE_NS: u64 = 1_000_000;

fn good(standin: &Standin, number: u64) {
    let at = Moment::now();
    let stamp = at.realtime_ms - 10.0;
    standin.push(Set::pair((number, stamp), (number, stamp), GLOBAL));
}

/// A camera whose first set, which reports the intrinsics, is fetched.
fn open(standin: &Standin) -> RealsenseCamera {
    good(standin, 1);
    RealsenseCamera::open(&config()).unwrap()
}

fn next(camera: &mut RealsenseCamera) -> Result<Frame, CameraError> {
    let mut frame = Frame::new(standin::WIDTH, standin::HEIGHT);
    camera.next_frame(&mut frame).map(|()| frame)
}

fn streams(frame: &Frame) -> Streams {
    frame.streams.expect("distinguished")
}

fn near(a_ns: u64, b_ns: u64) -> bool {
    a_ns.abs_diff(b_ns) < CLOSE_NS
}

#[test]
fn colour_and_depth_are_dated_and_numbered_apart() {
    let standin = Standin::load();
    let mut camera = open(&standin);
    let at = Moment::now();
    standin.push(Set::pair((70, at.realtime_ms - 12.0), (20, at.realtime_ms - 20.0), GLOBAL));
    standin.push(Set::pair((71, at.realtime_ms + 21.0), (22, at.realtime_ms + 13.0), GLOBAL));
    let frame = next(&mut camera).unwrap();
    let Streams { colour, depth } = streams(&frame);
    assert_eq!((frame.sequence, colour.number, depth.number), (1, 1, 1));
    assert!(near(colour.capture_ns, at.after(-12.0).monotonic_ns));
    assert!(near(depth.capture_ns, at.after(-20.0).monotonic_ns));
    assert_eq!(frame.capture_ns, depth.capture_ns, "as old as the older one");
    assert!(colour.error_ns >= 5_000_000, "the error of the library's fit is stated");
    assert!(frame.depth_mm.iter().all(|mm| (2000..2009).contains(mm)));
    // One depth image was lost.
    let frame = next(&mut camera).unwrap();
    assert_eq!((frame.sequence, streams(&frame).colour.number, streams(&frame).depth.number), (3, 2, 3));
    drop(camera);
    assert_eq!(standin.live(), 0, "everything was given back");
}

#[test]
fn a_sensor_that_stalls_makes_the_frame_old() {
    for stalled in [DEPTH, COLOUR] {
        let standin = Standin::load();
        let mut camera = open(&standin);
        let at = Moment::now();
        for n in 0..5u64 {
            let live = (n + 10, at.realtime_ms + n as f64 * 33.0);
            let dead = (10, at.realtime_ms);
            let (colour, depth) = if stalled == DEPTH { (live, dead) } else { (dead, live) };
            standin.push(Set::pair(colour, depth, GLOBAL));
        }
        let frames: Vec<_> = (0..5).map(|_| next(&mut camera).unwrap()).collect();
        for (n, frame) in frames.iter().enumerate() {
            let Streams { colour, depth } = streams(frame);
            let (dead, live) = if stalled == DEPTH { (depth, colour) } else { (colour, depth) };
            assert_eq!((dead.number, live.number, frame.sequence), (1, n as u64 + 1, n as u64 + 1));
            assert_eq!(dead.capture_ns, frames[0].capture_ns, "to the nanosecond: the same image");
            assert_eq!(frame.capture_ns, dead.capture_ns, "its age is the stalled sensor's");
            assert!(near(live.capture_ns - dead.capture_ns, n as u64 * 33_000_000));
        }
    }
}

#[test]
fn odd_stamps_and_numbers_are_passed_on_as_they_are() {
    let standin = Standin::load();
    let mut camera = open(&standin);
    let at = Moment::now();
    good(&standin, 100);
    let first = next(&mut camera).unwrap();
    assert_eq!(first.sequence, 1);
    // Hours old, a little over a second old, ahead, hours ahead.
    for (number, off_ms) in [(101, -1_001.0), (102, -999.0), (103, 50.0), (104, 3_600_000.0)] {
        let stamp = (number, at.realtime_ms + off_ms);
        standin.push(Set::pair(stamp, stamp, GLOBAL));
        let frame = next(&mut camera).unwrap();
        assert!(near(frame.capture_ns, at.after(off_ms).monotonic_ns), "{off_ms}: never made new");
    }
    // Older than this machine's clock: as old as can be.
    standin.push(Set::pair((105, 1000.0), (105, 1000.0), GLOBAL));
    assert_eq!(next(&mut camera).unwrap().capture_ns, 0);
    // Swapped order.
    let later = |n: f64| at.realtime_ms + 33.0 * n;
    for (number, n) in [(106, 6.0), (108, 8.0), (107, 7.0)] {
        standin.push(Set::pair((number, later(n)), (number, later(n)), GLOBAL));
    }
    let swapped: Vec<_> = (0..3).map(|_| streams(&next(&mut camera).unwrap()).depth).collect();
    assert!(swapped[2].number == swapped[1].number - 1 && swapped[2].capture_ns < swapped[1].capture_ns);
    // The number again on another image.
    standin.push(Set::pair((109, later(9.0)), (109, later(9.0)), GLOBAL));
    standin.push(Set::pair((110, later(10.0)), (109, later(10.0)), GLOBAL));
    let pair: Vec<_> = (0..2).map(|_| streams(&next(&mut camera).unwrap()).depth).collect();
    assert!(pair[0].number == pair[1].number && pair[0].capture_ns < pair[1].capture_ns);
    // One number beyond all others does not use up those that follow.
    standin.push(Set::pair((u64::MAX, later(11.0)), (u64::MAX, later(11.0)), GLOBAL));
    standin.push(Set::pair((112, later(12.0)), (112, later(12.0)), GLOBAL));
    standin.push(Set::pair((113, later(13.0)), (113, later(13.0)), GLOBAL));
    let sequences: Vec<_> = (0..3).map(|_| next(&mut camera).unwrap().sequence).collect();
    assert!(sequences[2] > sequences[1] && sequences[1] >= sequences[0], "{sequences:?}");
    // The device counts from 1 again.
    for n in 1..4 {
        standin.push(Set::pair((n, later(14.0 + n as f64)), (n, later(14.0 + n as f64)), GLOBAL));
    }
    let numbers: Vec<_> = (0..3).map(|_| streams(&next(&mut camera).unwrap()).depth.number).collect();
    assert_eq!(numbers, [1, 2, 3]);
}

#[test]
fn every_clock_domain_is_carried_over_or_refused() {
    let standin = Standin::load();
    let mut camera = open(&standin);
    let at = Moment::now();
    let stamp = |n: u64, domain| {
        let ms = if domain == HARDWARE { 4_294_900.0 } else { at.realtime_ms } + n as f64 * 33.0;
        (n, ms % if domain == HARDWARE { 4_294_967.296 } else { f64::INFINITY })
    };
    // As the library begins: hardware stamps until its fit of the clocks stands. The device's clock
    // wraps meanwhile.
    let domains = [HARDWARE, HARDWARE, HARDWARE, GLOBAL, GLOBAL, SYSTEM, GLOBAL, HARDWARE];
    let mut newest_ns = 0;
    for (n, domain) in (1u64..).zip(domains) {
        let before_ns = takt_rt::clock::monotonic_ns();
        standin.push(Set::pair(stamp(n, domain), stamp(n, domain), domain));
        let frame = next(&mut camera).unwrap();
        let depth = streams(&frame).depth;
        assert!(depth.error_ns > 0, "the error is stated");
        match domain {
            GLOBAL => assert!(near(depth.capture_ns, at.after(n as f64 * 33.0).monotonic_ns)),
            // Exposure to host within a period.
            SYSTEM => assert!(near(depth.capture_ns, at.after(n as f64 * 33.0 - 33.3).monotonic_ns)),
            // By the least delay: no later than it was here, less a period. The script plays faster
            // than the device's clock runs, so that it jumps ahead; only the first has nothing
            // before it.
            _ if n == 1 => {
                assert!(depth.capture_ns + 34_000_000 > before_ns && depth.capture_ns < frame.arrival_ns);
            }
            _ => assert!(depth.capture_ns + 300_000_000 > before_ns),
        }
        newest_ns = newest_ns.max(depth.capture_ns);
    }
    for (domain, stamp_ms) in
        [(3, 5.0), (-1, 5.0), (GLOBAL, f64::NAN), (SYSTEM, f64::INFINITY), (HARDWARE, -1.0), (GLOBAL, 1e300)]
    {
        standin.push(Set::of(&[
            Part::new(COLOUR, 50, at.realtime_ms, GLOBAL),
            Part::new(DEPTH, 50, stamp_ms, domain),
        ]));
        let error = next(&mut camera).expect_err("no time that can be carried over");
        assert!(error.may_recover(), "{error}");
        assert!(error.to_string().contains("time stamp"), "{error}");
    }
}

#[test]
fn sets_that_are_none_are_refused_and_leak_nothing() {
    let depth = Part::new(DEPTH, 9, 1e12, GLOBAL);
    let colour = Part::new(COLOUR, 9, 1e12, GLOBAL);
    let wide = standin::WIDTH as i32;
    let sets = [
        ("no depth", Set::of(&[colour])),
        ("no colour", Set::of(&[depth])),
        ("colour twice", Set::of(&[colour, colour])),
        ("nothing in it", Set::EMPTY),
        ("more parts than there are", Set { count: 9, ..Set::of(&[colour]) }),
        ("no set", Set::NULL),
        ("small depth", Set::of(&[colour, Part { width: wide / 2, ..depth }])),
        ("tall depth", Set::of(&[colour, Part { height: 1000, ..depth }])),
        ("negative size", Set::of(&[colour, Part { width: -wide, ..depth }])),
        ("short rows", Set::of(&[colour, Part { stride: wide, ..depth }])),
        ("negative rows", Set::of(&[colour, Part { stride: -2 * wide, ..depth }])),
        ("less data than rows", Set::of(&[colour, Part { size: 2 * wide, ..depth }])),
        ("rows longer than the data", Set::of(&[colour, Part { stride: i32::MAX, ..depth }])),
        ("no data", Set::of(&[colour, Part { null_data: 1, ..depth }])),
        ("colour in another format", Set::of(&[Part { format: 6, ..colour }, depth])),
        ("depth in another format", Set::of(&[colour, Part { format: 5, ..depth }])),
        ("no unit", Set::of(&[colour, Part { unit_m: 0.0, ..depth }])),
        ("a unit that is no number", Set::of(&[colour, Part { unit_m: f32::NAN, ..depth }])),
        ("a negative unit", Set::of(&[colour, Part { unit_m: -0.001, ..depth }])),
        ("time out", Set::TIME_OUT),
        ("unplugged", Set::FAILURE),
    ];
    for (what, set) in sets {
        let standin = Standin::load();
        let mut camera = open(&standin);
        standin.push(set);
        let error = next(&mut camera).map(|frame| frame.sequence).expect_err(what);
        let timed_out = matches!(error, CameraError::Timeout { .. });
        assert_eq!(timed_out, ["time out", "no set"].contains(&what), "{what}: {error}");
        if what == "unplugged" {
            assert!(error.to_string().contains("Device disconnected"), "{error}");
        }
        drop(camera);
        assert_eq!(standin.live(), 0, "{what}");
    }
    // The order within a set means nothing.
    let standin = Standin::load();
    let mut camera = open(&standin);
    standin.push(Set::of(&[depth, colour]));
    assert!(next(&mut camera).is_ok());
}

#[test]
fn a_camera_that_cannot_be_opened_leaks_nothing() {
    let standin = Standin::load();
    for set in
        [None, Some(Set::FAILURE), Some(Set::EMPTY), Some(Set::of(&[Part::new(DEPTH, 1, 1e12, GLOBAL)]))]
    {
        set.into_iter().for_each(|set| standin.push(set));
        assert!(RealsenseCamera::open(&config()).is_err());
        assert_eq!(standin.live(), 0);
    }
    let mut other = config();
    other.serial = Some("another".into());
    assert!(RealsenseCamera::open(&other).err().unwrap().to_string().contains("No device connected"));
    for offset_ms in [-1.0, 1000.1, f64::NAN] {
        let error = RealsenseCamera::open(&takt_link_camera::RealsenseConfig {
            latency_offset_ms: Some(offset_ms),
            ..config()
        });
        assert!(error.err().unwrap().to_string().contains("latency_offset_ms"));
    }
    assert_eq!(standin.live(), 0);
}

#[test]
fn numbers_go_on_after_a_disconnection() {
    let standin = Standin::load();
    // Opening, three frames, gone; opening again, three frames with numbers from 1, and time-outs
    // ever after.
    for number in 1..5 {
        good(&standin, number);
    }
    standin.push(Set::FAILURE);
    for number in 1..5 {
        good(&standin, number);
    }
    let options = FeedOptions {
        retry_first: Duration::from_millis(1),
        retry_most: Duration::from_millis(2),
        ..FeedOptions::default()
    };
    let (feed, mut acquisition, mut readers) =
        CameraFeed::in_task(0, &CameraConfig::Realsense(config()), None, 1, options).unwrap();
    let mut seen = Vec::new();
    for _ in 0..6 {
        assert!(acquisition.acquire());
        let frame = readers[0].read().value;
        let Streams { colour, depth } = streams(frame);
        seen.push((frame.sequence, colour.number, depth.number));
    }
    assert!(seen.windows(2).all(|w| w[0].0 < w[1].0 && w[0].1 < w[1].1 && w[0].2 < w[1].2), "{seen:?}");
    assert_eq!((seen[0], seen[2]), ((1, 1, 1), (3, 3, 3)));
    drop((feed, acquisition));
    assert_eq!(standin.live(), 0);
}

fn any_part() -> impl Strategy<Value = Part> {
    let stamp = prop_oneof![any::<f64>(), 0.0..5e6, 1.6e12..1.9e12];
    let odd = prop_oneof![8 => Just(0), 1 => 1..6i32];
    (0..4i32, any::<u64>(), stamp, -1..4i32, odd, any::<i32>()).prop_map(
        |(stream, number, stamp_ms, domain, odd, value)| {
            let mut part = Part::new(stream, number, stamp_ms, domain);
            match odd {
                1 => part.width = value,
                2 => part.height = value,
                3 => part.stride = value,
                4 => part.format = value,
                5 => part.size = value % 10_000,
                _ => {}
            }
            part
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Whatever the library hands out: a frame that is whole or an error, never a panic, a read
    /// beyond the data, or an object that is not given back.
    #[test]
    fn any_script_is_survived(
        sets in proptest::collection::vec(
            (0..8i32, proptest::collection::vec(any_part(), 0..4)), 1..12)
    ) {
        let standin = Standin::load();
        let mut camera = open(&standin);
        let count = sets.len();
        for (kind, parts) in sets {
            let kind = if kind > 3 { 0 } else { kind };
            standin.push(Set { kind, ..Set::of(&parts) });
        }
        for _ in 0..count {
            if let Ok(frame) = next(&mut camera) {
                let pixels = (standin::WIDTH * standin::HEIGHT) as usize;
                prop_assert_eq!((frame.depth_mm.len(), frame.rgb.len()), (pixels, pixels * 3));
                let Streams { colour, depth } = streams(&frame);
                prop_assert_eq!(frame.capture_ns, colour.capture_ns.min(depth.capture_ns));
            }
        }
        drop(camera);
        prop_assert_eq!(standin.live(), 0);
    }
}

#[test]
fn a_frame_arrived_when_the_library_had_its_later_image() {
    let standin = Standin::load();
    let mut camera = open(&standin);
    // How long ago colour and depth came, and how long ago the frame was complete; without a stamp,
    // when it was fetched.
    for (number, (colour_ms, depth_ms, complete_ms)) in
        (10..).zip([(40, 50, 40), (90, 30, 30), (0, 50, 0), (50, 0, 0), (5000, 40, 0), (-60_000, -60_000, 0)])
    {
        let at = Moment::now();
        let mut set = Set::pair((number, at.realtime_ms), (number, at.realtime_ms), GLOBAL);
        set.parts[0].arrived_ms_ago = colour_ms;
        set.parts[1].arrived_ms_ago = depth_ms;
        standin.push(set);
        let before_ns = Moment::now().monotonic_ns;
        let frame = next(&mut camera).unwrap();
        let after_ns = Moment::now().monotonic_ns;
        // Whole milliseconds are rounded down, and two clocks are read one after the other.
        let ago_ns = complete_ms * 1_000_000;
        let slack_ns = if complete_ms == 0 { 0 } else { 1_000_000 + CLOSE_NS };
        assert!(
            (before_ns - ago_ns - slack_ns..=after_ns - ago_ns + slack_ns).contains(&frame.arrival_ns),
            "{colour_ms}, {depth_ms}: {} ns before the call",
            before_ns as i64 - frame.arrival_ns as i64
        );
    }
}

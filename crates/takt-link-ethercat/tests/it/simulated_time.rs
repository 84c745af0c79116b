//! Late frames, watchdogs and distributed clocks in simulated time: what is judged does not depend
//! on the machine that tests run on.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use takt_link_ethercat::control::{
    ControlConfig, DeviceConfig, ExchangeMode, Exchanged, Link, ObjectWrite, SimulatedTime, Sync0, Wire,
    bring_up, in_simulated_time,
};
use takt_link_ethercat::segment::{AlState, DeviceKind, Segment, SegmentConfig, SegmentControl, Update};

#[path = "../calls/mod.rs"]
mod calls;

const MS: u64 = 1_000_000;
/// The way of a frame on a wire of 59 devices.
const WAY_NS: u64 = 60_000;

/// A link in simulated time.
struct Bench {
    link: Link,
    control: SegmentControl,
    time: SimulatedTime,
    /// Delays of the next frames: microseconds besides the usual time; [`NEVER`].
    way_us: Arc<AtomicU64>,
    next_ns: u64,
}

/// A frame that does not come back.
const NEVER: u64 = u64::MAX;

impl Bench {
    fn new(segment: &SegmentConfig, config: &ControlConfig) -> Self {
        Self::over(segment, config, |wire| wire)
    }

    /// With something around its wire.
    fn over(
        segment: &SegmentConfig,
        config: &ControlConfig,
        around: impl FnOnce(Box<dyn Wire>) -> Box<dyn Wire>,
    ) -> Self {
        let time = SimulatedTime::new(77_123_456_789);
        let segment = Segment::new(segment).unwrap();
        let control = segment.control();
        let way_us = Arc::new(AtomicU64::new(0));
        let asked = Arc::clone(&way_us);
        let delay = move |_| match asked.load(Ordering::Relaxed) {
            NEVER => None,
            more_us => Some(WAY_NS + more_us * 1000),
        };
        let wire = around(in_simulated_time(segment, time.clone(), delay));
        let link = bring_up(wire, config, &mut |_| {}).unwrap();
        let next_ns = link.port.align(time.now_ns() + MS);
        Self { link, control, time, way_us, next_ns }
    }

    /// A cycle whose wake-up is `late_ns` late; frames sent in it take `way_us` longer.
    fn cycle(&mut self, late_ns: u64, way_us: u64) -> Exchanged {
        self.time.go_to(self.next_ns + late_ns);
        self.way_us.store(way_us, Ordering::Relaxed);
        self.next_ns += MS;
        let exchanged = self.link.port.exchange(self.next_ns);
        self.next_ns = self.next_ns.saturating_add_signed(exchanged.shift_ns);
        exchanged
    }

    fn all_in(&self, state: AlState) -> bool {
        self.control.devices().iter().all(|device| device.state == state && !device.error)
    }
}

fn bench(devices: usize) -> Bench {
    Bench::new(
        &SegmentConfig::humanoid(devices),
        &ControlConfig { bring_up_ms: 20_000, ..Default::default() },
    )
}

#[test]
fn a_late_frame_is_counted_late_and_its_inputs_are_used() {
    for mode in [ExchangeMode::Pipelined, ExchangeMode::Waiting] {
        let config = ControlConfig { mode, bring_up_ms: 20_000, ..Default::default() };
        let mut bench = Bench::new(&SegmentConfig::humanoid(59), &config);
        // The probe's command goes out, is applied, and comes back in inputs.
        let command = |bench: &mut Bench, value: u16| {
            bench.link.port.outputs_mut(0).copy_from_slice(&value.to_le_bytes());
        };
        command(&mut bench, 1);
        for _ in 0..20 {
            assert!(bench.cycle(0, 0).complete(), "{mode:?}");
        }
        // One frame takes 1.2 ms longer.
        command(&mut bench, 2);
        bench.cycle(0, 0);
        let waits = bench.cycle(0, 1200);
        let next = bench.cycle(0, 0);
        // A frame that overtakes it is taken first: the late one is found a cycle later.
        let after = bench.cycle(0, 0);
        let all = [waits, next, after, bench.cycle(0, 0)];
        assert_eq!(all.iter().map(|exchanged| exchanged.late).sum::<u32>(), 1, "{mode:?}: {all:?}");
        assert_eq!(all.iter().filter(|exchanged| !exchanged.fresh).count(), 1, "{mode:?}: {all:?}");
        for _ in 0..40 {
            assert!(bench.cycle(0, 0).complete(), "{mode:?}");
        }
        let totals = bench.link.port.totals();
        assert_eq!(
            (totals.late_frames, totals.lost_frames, totals.stray_frames),
            (1, 0, 0),
            "{mode:?}: {totals:?}"
        );
        assert_eq!(bench.link.port.inputs(0)[2..4], [2, 0]);
    }
}

#[test]
fn frames_that_are_always_late_bring_inputs_that_are_a_cycle_old() {
    let mut bench = bench(10);
    for _ in 0..5 {
        bench.cycle(0, 0);
    }
    let mut events = 0_u16;
    for cycle in 0..200 {
        let exchanged = bench.cycle(0, 1100);
        if cycle > 2 {
            assert!(exchanged.answered && !exchanged.fresh && !exchanged.incomplete(), "{exchanged:?}");
            assert_eq!((exchanged.stale, exchanged.late), (1, 1), "{exchanged:?}");
        }
        let seen = u16::from_le_bytes(bench.link.port.inputs(0)[..2].try_into().unwrap());
        assert!(seen >= events, "inputs never go back");
        events = seen;
    }
    assert!(events > 20, "the probe's events are seen all the while: {events}");
    let totals = bench.link.port.totals();
    assert_eq!((totals.lost_frames, totals.stray_frames), (0, 0));
    assert!(totals.late_frames >= 198, "{totals:?}");
}

#[test]
fn lost_is_what_never_came_and_is_taken_back_when_it_comes() {
    let mut bench = bench(10);
    for _ in 0..5 {
        bench.cycle(0, 0);
    }
    let mut stale = 0;
    for _ in 0..7 {
        stale = stale.max(bench.cycle(0, NEVER).stale);
    }
    for _ in 0..40 {
        bench.cycle(0, 0);
    }
    let totals = bench.link.port.totals();
    assert_eq!((totals.lost_frames, totals.late_frames, totals.stray_frames), (7, 0, 0), "{totals:?}");
    assert_eq!(stale, 6, "the seventh is missed in the cycle after");
    // Twenty cycles late: it counts as lost until it comes, and as late then. The exchange that
    // finds it first takes the answer that it waits for, and leaves the other for the next.
    let (mut lost, mut found, mut late) = (0, 0, 0);
    for cycle in 0..40 {
        let exchanged = bench.cycle(0, if cycle == 0 { 20_500 } else { 0 });
        (lost, found, late) = (lost + exchanged.lost, found + exchanged.found, late + exchanged.late);
        let expected = if (16..22).contains(&cycle) { 8 } else { 7 };
        assert_eq!(bench.link.port.totals().lost_frames, expected, "after {cycle} cycles: {exchanged:?}");
    }
    assert_eq!((lost, found, late), (1, 1, 1));
    let totals = bench.link.port.totals();
    assert_eq!((totals.lost_frames, totals.late_frames, totals.stray_frames), (7, 1, 0), "{totals:?}");
    // A quarter of a second later nobody knows it any more.
    bench.cycle(0, 300_500);
    for _ in 0..320 {
        bench.cycle(0, 0);
    }
    let totals = bench.link.port.totals();
    assert_eq!((totals.lost_frames, totals.strays.after_lost, totals.stray_frames), (8, 1, 1), "{totals:?}");
}

#[test]
fn the_grace_grows_with_our_own_lateness() {
    let mut bench = bench(10);
    for _ in 0..5 {
        bench.cycle(0, 0);
    }
    // The frame is sent 0.8 ms late and takes 0.4 ms: at the next release it is 0.2 ms away, within
    // a grace of 50 us and the lateness, which is counted up to half a cycle.
    bench.cycle(800_000, 340);
    let exchanged = bench.cycle(0, 0);
    assert!(exchanged.complete() && exchanged.late == 0, "{exchanged:?}");
    // Without lateness of ours the same way is too long.
    bench.cycle(0, 1140);
    let exchanged = bench.cycle(0, 0);
    assert!(!exchanged.fresh, "{exchanged:?}");
    bench.cycle(0, 0);
    bench.cycle(0, 0);
    assert_eq!(bench.link.port.totals().late_frames, 1);
}

#[test]
fn a_watchdog_of_30_ms_never_expires_from_bring_up_to_the_end() {
    let segment = SegmentConfig { watchdog_ms: 30, ..SegmentConfig::humanoid(59) };
    let config = ControlConfig { bring_up_ms: 60_000, ..Default::default() };
    // Frames take their time: 59 devices are asked one after the other while cycles go on.
    let mut bench = Bench::new(&segment, &config);
    assert!(bench.all_in(AlState::Op));
    for _ in 0..200 {
        assert!(bench.cycle(0, 0).complete());
    }
    assert!(bench.all_in(AlState::Op));
    let cyclic = bench.control.counts().cyclic;
    bench.link.port.shut_down(Duration::from_millis(1)).unwrap();
    let devices = bench.control.devices_now(Duration::ZERO);
    let expired: Vec<usize> =
        (0..59).filter(|&device| devices[device].clock.expired > 0 || devices[device].error).collect();
    assert!(expired.is_empty(), "watchdogs expired at {expired:?}");
    assert!(bench.control.counts().cyclic > cyclic, "cycles went on while devices were asked down");
    // The views are those of the last cycle: by then all had left OP, and the last states are read
    // from the wire.
    assert!(devices.iter().all(|device| device.state < AlState::SafeOp), "{devices:?}");
}

/// A watchdog that does expire is seen: the test above judges something.
#[test]
fn a_silence_of_40_ms_lets_watchdogs_of_30_ms_expire() {
    let segment = SegmentConfig { watchdog_ms: 30, ..SegmentConfig::humanoid(10) };
    let mut bench = Bench::new(&segment, &ControlConfig { bring_up_ms: 60_000, ..Default::default() });
    bench.cycle(0, 0);
    bench.cycle(40 * MS, 0);
    bench.cycle(0, 0);
    assert!(bench.control.devices().iter().any(|device| device.clock.expired > 0 && device.error));
}

#[test]
fn who_does_not_go_down_is_reported() {
    let mut bench = bench(5);
    bench.way_us.store(NEVER, Ordering::Relaxed);
    let error = bench.link.port.shut_down(Duration::from_millis(1)).unwrap_err().to_string();
    assert!(error.contains("going down to SAFE-OP"), "{error}");
}

#[test]
fn nobody_is_asked_up_when_all_are_asked_down() {
    use takt_link_ethercat::control::{Back, InProcess};
    use takt_link_ethercat::segment::Outcome;
    // Every write of AL control (0x0120) with its station address and the state asked for.
    let asked = Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = Arc::clone(&asked);
    let mut segment = Segment::new(&SegmentConfig::humanoid(5)).unwrap();
    let control = segment.control();
    let wire = InProcess::new(move |frame: &mut [u8], now_ns| {
        // FPWR, alone in its frame: command at 16, address at 18, data at 26.
        if frame.len() > 26 && frame[16] == 5 && frame[20..22] == [0x20, 0x01] {
            seen.lock().unwrap().push((u16::from_le_bytes([frame[18], frame[19]]), frame[26] & 0x0F));
        }
        match segment.process(frame, now_ns) {
            Outcome::Return { copies, delay_ns } => Some(Back { copies, delay_ns }),
            _ => None,
        }
    });
    let config = ControlConfig { bring_up_ms: 20_000, silence_ms: 2000, ..Default::default() };
    let mut link = bring_up(Box::new(wire), &config, &mut |_| {}).unwrap();
    // As after a bring-up that failed: one never got beyond PRE-OP.
    control.fall(2, AlState::PreOp, 0x001B).unwrap();
    let low = link.devices[2].address;
    asked.lock().unwrap().clear();
    link.port.shut_down(Duration::from_millis(1)).unwrap();
    let asked = asked.lock().unwrap().clone();
    let of =
        |address| asked.iter().filter(|asked| asked.0 == address).map(|asked| asked.1).collect::<Vec<u8>>();
    assert_eq!(of(low), [2, 1], "{asked:?}");
    assert_eq!(of(link.devices[0].address), [4, 2, 1], "{asked:?}");
    // The views are those of the last cycle.
    assert!(control.devices_now(Duration::ZERO).iter().all(|device| device.state < AlState::SafeOp));
}

/// Every drive acts at Sync0, half a cycle after the frame.
fn with_sync0(segment: &SegmentConfig) -> ControlConfig {
    let device = |device: &takt_link_ethercat::segment::DeviceConfig| DeviceConfig {
        name: device.name.clone(),
        sync0: (device.kind == DeviceKind::Drive).then(Sync0::default),
        ..DeviceConfig::default()
    };
    let devices = segment.devices.iter().map(device).collect();
    ControlConfig { devices, bring_up_ms: 60_000, ..Default::default() }
}

/// A pseudo-random number below `below`.
fn random(state: &mut u64, below: u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state % below
}

/// 60 s of cycles; the farthest that outputs came from half a cycle before a drive's Sync0, by the
/// segment's own truth, and how far the drives' pulses were apart.
fn sixty_seconds(segment: &SegmentConfig, follow: bool) -> (u64, u64, Bench) {
    let mut config = with_sync0(segment);
    config.clock.follow = follow;
    let mut bench = Bench::new(segment, &config);
    let drives: Vec<usize> = (0..segment.devices.len())
        .filter(|&device| segment.devices[device].kind == DeviceKind::Drive)
        .collect();
    let (mut farthest, mut apart, mut state) = (0, 0, 88_172_645_463_325_252);
    for cycle in 0..60_000 {
        // Wake-ups are a few microseconds late, and a few hundred once in a while.
        let late_ns = if cycle % 1009 == 1008 { 300_000 } else { 1000 + random(&mut state, 4000) };
        let usual = late_ns < 10_000;
        let outputs_before: Vec<u64> =
            bench.control.devices().iter().map(|view| view.clock.outputs_ns).collect();
        bench.cycle(late_ns, random(&mut state, 20));
        if cycle < 2000 || !usual || cycle % 1009 == 0 {
            continue;
        }
        // The pulse since the last frame, against that frame.
        let views = bench.control.devices();
        let pulses = drives.iter().map(|&drive| views[drive].clock.sync0_ns);
        apart = apart.max(pulses.clone().max().unwrap() - pulses.min().unwrap());
        for &drive in &drives {
            let since_ns = views[drive].clock.sync0_ns.saturating_sub(outputs_before[drive]);
            farthest = farthest.max(since_ns.abs_diff(MS / 2));
        }
    }
    (farthest, apart, bench)
}

#[test]
fn the_phase_to_sync0_holds_over_a_minute_of_drift() {
    // Constant drifts between -100 and +100 ppm: the reference clock, which is the first device's,
    // runs at -100. Then all of them swing between those ends within a minute.
    for clock_swing_s in [0, 60] {
        let segment =
            SegmentConfig { clock_drift_ppb: 100_000, clock_swing_s, ..SegmentConfig::humanoid(12) };
        let (farthest, apart, bench) = sixty_seconds(&segment, true);
        assert!(farthest <= 20_000, "swing {clock_swing_s}: outputs came {farthest} ns from their phase");
        assert!(apart <= 5000, "swing {clock_swing_s}: pulses of the drives {apart} ns apart");
        let totals = bench.link.port.totals();
        let clock = totals.clock;
        assert!(clock.farthest_release_ns <= 20_000 && clock.unlocked == 0, "{clock:?}");
        assert!(clock.locked_cycles > 59_000, "{clock:?}");
        // What is reported is what the segment saw, but for the cycles that we were late in.
        assert!(clock.farthest_frame_ns >= farthest.saturating_sub(8000) as u32, "{clock:?}");
        if clock_swing_s == 0 {
            assert!((clock.drift_ppb + 100_000).abs() < 2000, "{clock:?}");
        }
        let views = bench.control.devices();
        assert!(views.iter().all(|view| view.clock.starved <= 2), "drives had new outputs at every pulse");
        println!("swing {clock_swing_s} s: phase within {farthest} ns, pulses {apart} ns apart; {clock:?}");
    }
}

#[test]
fn without_the_lock_the_phase_is_lost() {
    let segment = SegmentConfig { clock_drift_ppb: 100_000, ..SegmentConfig::humanoid(6) };
    let (farthest, _, _) = sixty_seconds(&segment, false);
    assert!(farthest > 400_000, "100 ppm drift through a cycle in 10 s: {farthest} ns");
}

#[test]
fn the_delays_that_devices_are_reported_are_those_of_the_wire() {
    for devices in [4, 12, 30, 59] {
        let bench = bench(devices);
        for (place, view) in bench.control.devices().iter().enumerate() {
            let off = u64::from(view.clock.written_delay_ns).abs_diff(view.clock.pass_ns);
            assert!(off <= 100, "{devices} devices, {place}: {:?}", view.clock);
        }
    }
}

#[test]
fn sync0_without_a_clock_is_refused_by_name() {
    let segment = SegmentConfig { distributed_clocks: false, ..SegmentConfig::humanoid(5) };
    let config = with_sync0(&segment);
    let time = SimulatedTime::new(0);
    let wire = in_simulated_time(Segment::new(&segment).unwrap(), time, |_| Some(WAY_NS));
    let error = bring_up(wire, &config, &mut |_| {}).err().unwrap().to_string();
    assert!(error.contains("head-yaw") && error.contains("sync0"), "{error}");
}

#[test]
fn free_running_devices_and_the_lock_do_not_disturb_each_other() {
    let segment =
        SegmentConfig { update: Update::FreeRunning { period_us: 1000 }, ..SegmentConfig::humanoid(8) };
    let mut bench = Bench::new(&segment, &ControlConfig { bring_up_ms: 20_000, ..Default::default() });
    for _ in 0..500 {
        assert!(bench.cycle(2000, 0).complete());
    }
    assert!(bench.link.port.totals().clock.locked_cycles > 400);
}

/// A bring-up of four devices in which frame `lost` never comes back, and frame `delayed` so many
/// microseconds later; with the number of frames that it took, and those before the devices were
/// asked to SAFE-OP.
fn brought_up(lost: Option<u64>, delayed: Option<(u64, u64)>) -> Result<(Link, u64, u64), String> {
    let time = SimulatedTime::new(77_123_456_789);
    let description = SegmentConfig { watchdog_ms: 5000, ..SegmentConfig::humanoid(4) };
    let segment = Segment::new(&description).unwrap();
    let sent = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&sent);
    let delay = move |frame| {
        count.store(frame, Ordering::Relaxed);
        match delayed {
            _ if lost == Some(frame) => None,
            Some((late, us)) if late == frame => Some(us * 1000),
            _ => Some(WAY_NS),
        }
    };
    let config = ControlConfig { bring_up_ms: 60_000, ..with_sync0(&description) };
    let wire = in_simulated_time(segment, time, delay);
    let mut prepared = 0;
    let link = bring_up(wire, &config, &mut |progress| {
        if progress.phase == "going to SAFE-OP" {
            prepared = sent.load(Ordering::Relaxed);
        }
    });
    Ok((link.map_err(|error| error.to_string())?, sent.load(Ordering::Relaxed), prepared))
}

#[test]
fn a_long_object_survives_any_one_frame_that_is_lost_or_late() {
    let description = SegmentConfig::humanoid(4);
    let drive = description.devices.iter().position(|device| device.kind == DeviceKind::Drive).unwrap();
    let mut config = with_sync0(&description);
    let data = (0..512).map(|at| (at * 7) as u8).collect();
    config.devices[drive].startup =
        vec![ObjectWrite { index: 0x2000, data: Some(data), verify: true, ..ObjectWrite::default() }];
    // The first frame of the phase in which objects are written, and the first after it.
    let run = |lost: Option<u64>, late: Option<u64>| {
        let sent = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&sent);
        let delay = move |frame| {
            count.store(frame, Ordering::Relaxed);
            match lost {
                Some(lost) if lost == frame => late.map(|us| us * 1000),
                _ => Some(WAY_NS),
            }
        };
        let segment = Segment::new(&description).unwrap();
        let wire = in_simulated_time(segment, SimulatedTime::new(77_123_456_789), delay);
        let mut phases = Vec::new();
        let link = bring_up(wire, &config, &mut |progress| {
            phases.push((progress.phase, sent.load(Ordering::Relaxed)));
        });
        (link.map(|link| link.took).map_err(|error| error.to_string()), phases)
    };
    let (outcome, phases) = run(None, None);
    outcome.unwrap();
    let sent_until = |name: &str| phases.iter().find(|(phase, _)| *phase == name).unwrap().1;
    // Objects are written first there; before devices go to SAFE-OP cycles run already.
    for frame in sent_until("configuring devices")..sent_until("going to SAFE-OP") - 100 {
        let late = [None, Some(900), Some(101_000), Some(130_000)][frame as usize % 4];
        let (outcome, _) = run(Some(frame), late);
        assert!(outcome.is_ok(), "frame {frame} of {phases:?}, late {late:?}: {outcome:?}");
    }
}

#[test]
fn a_request_that_is_lost_beside_the_cycles_is_sent_again() {
    let (link, frames, prepared) = brought_up(None, None).unwrap();
    let usual = link.took;
    // The requests for Sync0, SAFE-OP and OP, and the cycles between them.
    for frame in prepared - 16..frames {
        for (lost, delayed) in [(Some(frame), None), (None, Some((frame, 20_000)))] {
            let outcome = brought_up(lost, delayed);
            let (mut link, ..) = outcome.unwrap_or_else(|error| panic!("frame {frame} of {frames}: {error}"));
            // Sixteen cycles until it counts as lost, and not the time that the whole bring-up may
            // take.
            assert!(
                link.took < usual + Duration::from_millis(25),
                "frame {frame}: {:?} of {usual:?}",
                link.took
            );
            link.port.shut_down(Duration::from_millis(1)).unwrap();
            // The second answer to what was asked twice is nobody's frame gone astray.
            assert_eq!(link.port.totals().strays.foreign, 0, "frame {frame} of {frames}");
        }
    }
}

#[test]
fn a_bring_up_survives_any_one_frame_that_is_lost_or_late() {
    let (_, frames, prepared) = brought_up(None, None).unwrap();
    // Then cycles are under way.
    let prepared = prepared - 100;
    for frame in (0..prepared).step_by(3) {
        // Within the silence, and when the search has begun again.
        let late = [None, Some(900), Some(101_000), Some(130_000)][frame as usize % 4];
        let outcome = match late {
            None => brought_up(Some(frame), None),
            Some(us) => brought_up(None, Some((frame, us))),
        };
        match outcome {
            Ok((link, ..)) => assert_eq!(link.devices.len(), 4, "frame {frame} of {frames}, {late:?}"),
            Err(error) => panic!("frame {frame} of {frames}, late {late:?}: {error}"),
        }
    }
}

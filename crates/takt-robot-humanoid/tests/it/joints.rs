//! Encoders as they are mounted: any zero, direction and gear, in all three modes. Judged by where
//! the simulated joints really are, in simulated time.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use takt_link_ethercat::control::{Link, SimulatedTime, bring_up, in_simulated_time};
use takt_link_ethercat::segment::{
    self, AlState, DeviceKind, DriveState, JointConfig, Segment, SegmentConfig, SegmentControl, When,
    WireFault,
};
use takt_robot_humanoid::joint::{Direction, DriveMode};
use takt_robot_humanoid::safety::Punctuality;
use takt_robot_humanoid::topology::{Device, DeviceClass, DriveLayout};
use takt_robot_humanoid::{Controller, HumanoidConfig, Mode, Moment, Motion, StopReason, Target};

const MS: u64 = 1_000_000;

/// Pseudo-random numbers.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn within(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Seven drives in all modes, with encoders at random; and their configuration as an installer
/// would write it.
fn robot(random: &mut Random) -> (SegmentConfig, HumanoidConfig) {
    let (mut simulated, mut list) = (Vec::new(), Vec::new());
    for number in 0..7 {
        let joint = JointConfig {
            counts_per_turn: [4096, 131_072, 1 << 20][number % 3],
            gear: [1.0, 50.0, 100.5][(random.next() % 3) as usize],
            encoder_zero_counts: random.next() as i32,
            encoder_reversed: random.next().is_multiple_of(2),
            start_rad: random.within(-2.4, 2.4),
            ..JointConfig::default()
        };
        let name = format!("joint-{number}");
        simulated
            .push(segment::DeviceConfig { joint, ..segment::DeviceConfig::new(&name, DeviceKind::Drive) });
        let mode = [DriveMode::Csp, DriveMode::Csv, DriveMode::Cst][number % 3];
        // Some drives keep the usual PDOs, which have the target position alone.
        let layout = (mode != DriveMode::Csp || number == 6).then(DriveLayout::all_modes);
        list.push(Device {
            name,
            kind: DeviceClass::Drive,
            counts_per_turn: joint.counts_per_turn,
            gear: joint.gear,
            zero_counts: joint.encoder_zero_counts,
            direction: if joint.encoder_reversed { Direction::Negative } else { Direction::Positive },
            mode,
            layout,
            middle_rad: 0.3,
            swing_rad: 0.2,
            ..Device::default()
        });
    }
    let segment = SegmentConfig { devices: simulated, watchdog_ms: 30, ..SegmentConfig::default() };
    let mut config = HumanoidConfig { list, ..HumanoidConfig::default() };
    config.link.bring_up_ms = 20_000;
    (segment, config)
}

/// A robot that is controlled, and its segment's own truth.
struct Run {
    controller: Controller,
    link: Link,
    control: SegmentControl,
    time: SimulatedTime,
    next_ns: u64,
    /// The controller's reported mode.
    mode: Mode,
}

impl Run {
    fn start(segment: &SegmentConfig, config: &HumanoidConfig) -> Self {
        Self::over(segment, config, |_| Some(50_000))
    }

    /// With frames that take so long, nanoseconds, or never come.
    fn over(
        segment: &SegmentConfig,
        config: &HumanoidConfig,
        way_ns: impl FnMut(u64) -> Option<u64> + Send + 'static,
    ) -> Self {
        config.validate().unwrap();
        let time = SimulatedTime::new(5_000_000_000);
        let segment = Segment::new(segment).unwrap();
        let control = segment.control();
        let wire = in_simulated_time(segment, time.clone(), way_ns);
        let link = bring_up(wire, &config.control(), &mut |_| {}).unwrap();
        let next_ns = link.port.align(time.now_ns() + MS);
        Self { controller: Controller::new(config), link, control, time, next_ns, mode: Mode::Enabling }
    }

    fn cycle(&mut self) {
        self.time.go_to(self.next_ns);
        self.next_ns += MS;
        let exchanged = self.link.port.exchange(self.next_ns);
        self.next_ns = self.next_ns.saturating_add_signed(exchanged.shift_ns);
        self.mode = self.controller.step(&exchanged, Punctuality::default(), false, &mut self.link.port);
    }

    fn positions(&self) -> Vec<f64> {
        self.control.devices().iter().map(|view| view.drive.unwrap().position_rad).collect()
    }
}

#[test]
fn no_joint_ever_moves_by_more_than_its_first_planned_step() {
    let mut random = Random(0x2545_F491_4F6C_DD1D);
    for round in 0..40 {
        let (segment, config) = robot(&mut random);
        let mut run = Run::start(&segment, &config);
        let starts: Vec<f64> = segment.devices.iter().map(|device| device.joint.start_rad).collect();
        let (mut enabling, mut walking) = (0, 0_u32);
        let mut before = starts.clone();
        for _ in 0..4000 {
            run.cycle();
            let positions = run.positions();
            assert!(
                !matches!(run.mode, Mode::Stopping(_) | Mode::Stopped(_)),
                "round {round}: {:?}",
                run.mode
            );
            enabling += u32::from(run.mode == Mode::Enabling);
            walking += u32::from(run.mode == Mode::Walking);
            for (place, &at) in positions.iter().enumerate() {
                let limits = config.list[place].limits;
                let resolution = 1.0 / segment.devices[place].joint.counts_per_rad();
                let step = limits.max_rad_s2 * 1e-6;
                // What the plan may have moved until now, each step longer than the one before by
                // one first step.
                let planned = step * f64::from(walking * (walking + 1) / 2);
                let moved = (at - starts[place]).abs();
                if walking <= 20 {
                    assert!(
                        moved <= planned + 2.0 * resolution,
                        "round {round}, {:?} at {place}: moved {moved} rad, {planned} were planned, {walking} cycles into the walk",
                        config.list[place].mode
                    );
                }
                let jump = (at - before[place]).abs();
                assert!(
                    jump <= limits.max_rad_s * 1e-3 * 1.2,
                    "round {round}, {place}: {jump} rad in a cycle"
                );
            }
            before = positions;
        }
        assert!(enabling > 2 && walking > 3000, "round {round}: {enabling} {walking}");
        // And they get where they are to be: signs and scales are right.
        for (place, at) in run.positions().into_iter().enumerate() {
            let mode = config.list[place].mode;
            assert!((0.05..0.55).contains(&at), "round {round}, {mode:?} at {place}: {at} rad");
        }
    }
}

#[test]
fn lost_and_late_frames_on_enabling_let_no_joint_jump() {
    for seed in 1..40 {
        let mut random = Random(seed * 104_729);
        let (segment, mut config) = robot(&mut random);
        config.safety.max_missing = 16;
        config.safety.max_incomplete = 1000;
        config.safety.max_resets = 100;
        // From no faults to four frames in ten, once devices are in OP: lost, a cycle or two late,
        // or not through all devices.
        let share = random.within(0.0, 0.4);
        let begun = Arc::new(AtomicBool::new(false));
        let (on, mut faults) = (Arc::clone(&begun), Random(seed * 7919));
        let mut run = Run::over(&segment, &config, move |_| {
            if !on.load(Ordering::Relaxed) || faults.within(0.0, 1.0) > share {
                return Some(50_000);
            }
            [None, Some(1_100_000), Some(2_300_000)][(faults.next() % 3) as usize]
        });
        begun.store(true, Ordering::Relaxed);
        run.control.wire(WireFault::WorkingCounter, When::Probability(share / 4.0));
        let mut before = run.positions();
        for cycle in 0..1500 {
            // Faults of drives while they come into operation: reset, and enabled anew.
            if run.mode == Mode::Enabling && random.next().is_multiple_of(8) {
                run.control.drive_fault((random.next() % 7) as usize).unwrap();
            }
            let mode = run.mode;
            run.cycle();
            let now = run.positions();
            for (place, (&at, &was)) in now.iter().zip(&before).enumerate() {
                let resolution = 2.0 / segment.devices[place].joint.counts_per_rad().abs();
                let limits = config.list[place].limits;
                // Without a walk nothing moves; in one, and on the way to standstill, nothing is
                // faster than its joint may be.
                let still = matches!(mode, Mode::Enabling) && run.mode == Mode::Enabling;
                let most = if still { resolution } else { limits.max_rad_s * 1e-3 * 1.5 + resolution };
                assert!(
                    (at - was).abs() <= most,
                    "seed {seed}, joint {place} ({:?}), cycle {cycle}, {mode:?}: {was} to {at}",
                    config.list[place].mode
                );
            }
            before = now;
        }
        run.link.port.shut_down(config.period()).unwrap();
    }
}

/// All joints go to a place far away, until it panics at 1 s with its targets half written.
struct Broken;

impl Motion for Broken {
    fn plan(&mut self, moment: &Moment<'_>, targets: &mut [Target]) {
        let place = if moment.time_s < 0.5 { 0.0 } else { 1.5 };
        for (number, target) in targets.iter_mut().enumerate() {
            *target = Target { position_rad: place, velocity_rad_s: 0.0 };
            assert!(moment.time_s < 1.0 || number < 3, "a mistake in one's own motion");
        }
    }
}

/// The robot after 4 s of simulated time, 2 of them with frames whose way back takes what `way_ns`
/// says of each from then on; `max_input_age`: as configured.
fn walked(max_input_age: u32, mut way_ns: impl FnMut(u64) -> Option<u64> + Send + 'static) -> (Mode, Run) {
    let (segment, mut config) = robot(&mut Random(16));
    config.safety.max_input_age = max_input_age;
    let planted = Arc::new(AtomicBool::new(false));
    let (on, mut frame) = (Arc::clone(&planted), 0);
    let mut run = Run::over(&segment, &config, move |_| {
        if !on.load(Ordering::Relaxed) {
            return Some(50_000);
        }
        frame += 1;
        way_ns(frame)
    });
    for cycle in 0..4000 {
        planted.store(cycle >= 2000, Ordering::Relaxed);
        run.cycle();
    }
    (run.mode, run)
}

#[test]
fn frames_that_are_late_stop_nothing_and_three_that_are_missing_do() {
    let shipped = HumanoidConfig::default().safety.max_input_age;
    // Every frame 3.5 cycles late: ever later, until they are.
    let late = |frame: u64| Some((50_000 + 100_000 * frame).min(3_500_000));
    let (mode, run) = walked(shipped, late);
    let totals = run.link.port.totals();
    assert_eq!((mode, totals.lost_frames), (Mode::Walking, 0), "{totals:?}");
    assert!(totals.late_frames > 1900 && totals.stale_cycles > 1900, "{totals:?}");
    // What allows no such age stops.
    for max_input_age in [0, 2] {
        assert_eq!(walked(max_input_age, late).0, Mode::Stopped(StopReason::InputsOld), "{max_input_age}");
    }
    // The shipped limit is one, too.
    let ever_later = |frame: u64| Some(50_000 + 100_000 * frame);
    assert_eq!(walked(shipped, ever_later).0, Mode::Stopped(StopReason::InputsOld));
    // Two frames do not come, or three; beside others that are late as well.
    for late_ns in [50_000, 2_500_000] {
        let dropped = |from: u64, to: u64| {
            move |frame: u64| {
                let is_dropped = (from..to).contains(&frame);
                (!is_dropped).then_some((50_000 + 100_000 * frame).min(late_ns))
            }
        };
        let (mode, run) = walked(shipped, dropped(500, 502));
        assert_eq!((mode, run.link.port.totals().lost_frames), (Mode::Walking, 2), "{late_ns}");
        let (mode, run) = walked(shipped, dropped(500, 503));
        let lost = run.link.port.totals().lost_frames;
        assert_eq!((mode, lost), (Mode::Stopped(StopReason::LinkLost), 3), "{late_ns}");
    }
}

#[test]
fn a_motion_that_panics_stops_the_joints_and_the_devices_go_down() {
    let (segment, config) = robot(&mut Random(99));
    let mut run = Run::start(&segment, &config);
    run.controller = Controller::with_motion(&config, Box::new(Broken));
    let mut stopping = 0;
    for _ in 0..2000 {
        run.cycle();
        stopping += u32::from(run.mode == Mode::Stopping(StopReason::MotionPanicked));
    }
    assert_eq!(run.mode, Mode::Stopped(StopReason::MotionPanicked));
    assert!((2..500).contains(&stopping), "{stopping} cycles of a quick stop");
    assert!(run.controller.is_safe());
    let rest = run.positions();
    for _ in 0..100 {
        run.cycle();
    }
    assert_eq!(run.positions(), rest);
    run.link.port.shut_down(config.period()).unwrap();
    for view in run.control.devices() {
        let drive = view.drive.unwrap();
        // As of the last frame with process data.
        assert!(view.state < AlState::SafeOp);
        assert_eq!(drive.state, DriveState::SwitchOnDisabled);
    }
}

#[test]
fn a_new_controller_of_drives_in_operation_lets_no_joint_jump() {
    for seed in 1..10 {
        let (segment, config) = robot(&mut Random(seed * 7919));
        let mut run = Run::start(&segment, &config);
        for _ in 0..1500 {
            run.cycle();
        }
        assert_eq!(run.mode, Mode::Walking);
        // The controller before was killed: its drives still hold their joints.
        run.controller = Controller::new(&config);
        let mut before = run.positions();
        for cycle in 0..3000 {
            run.cycle();
            let now = run.positions();
            for (place, (&at, &was)) in now.iter().zip(&before).enumerate() {
                let most = config.list[place].limits.max_rad_s * 1e-3 * 1.2;
                assert!((at - was).abs() <= most, "seed {seed}, joint {place}, cycle {cycle}: {was} to {at}");
            }
            before = now;
        }
        assert_eq!(run.mode, Mode::Walking);
    }
}

#[test]
fn an_encoder_that_is_not_as_configured_moves_nothing() {
    let mut random = Random(88_172_645_463_325_252);
    for _ in 0..10 {
        let (segment, mut config) = robot(&mut random);
        // The zero of one joint was never entered.
        let wrong = (random.next() % 7) as usize;
        let truth = segment.devices[wrong].joint;
        let off_rad = f64::from(truth.encoder_zero_counts) / truth.counts_per_rad();
        if (off_rad.abs() - 6.0) < 0.0 {
            continue;
        }
        config.list[wrong].zero_counts = 0;
        let mut run = Run::start(&segment, &config);
        for _ in 0..1000 {
            run.cycle();
        }
        assert_eq!(run.mode, Mode::Stopped(StopReason::OutOfRange));
        for (place, at) in run.positions().into_iter().enumerate() {
            let moved = (at - segment.devices[place].joint.start_rad).abs();
            assert!(moved < 1e-9, "joint {place} moved {moved} rad");
        }
    }
}

#[test]
fn a_joint_under_gravity_is_held_while_others_come_into_operation() {
    let mut random = Random(7);
    let (mut segment, mut config) = robot(&mut random);
    config.safety.max_resets = 100;
    for device in &mut segment.devices {
        device.joint.gravity_nm = 5.0;
        device.joint.start_rad = 1.0;
    }
    let mut run = Run::start(&segment, &config);
    // The last drive refuses to come: its fault is not reset, and all others wait for it with
    // torque on.
    let last = segment.devices.len() - 1;
    let mut held = None;
    for cycle in 0..400 {
        run.control.drive_fault(last).unwrap();
        run.cycle();
        assert_eq!(run.mode, Mode::Enabling, "cycle {cycle}");
        if cycle == 60 {
            held = Some(run.positions());
        }
    }
    let (held, now) = (held.unwrap(), run.positions());
    for place in (0..last).filter(|&place| config.list[place].mode == DriveMode::Csp) {
        let sunk = (held[place] - now[place]).abs();
        assert!(sunk < 0.02, "joint {place} sank by {sunk} rad while it was held");
    }
}

#[test]
fn impossible_joints_are_refused_by_name() {
    let refused = |text: &str| {
        let config: HumanoidConfig = toml::from_str(&format!("[[device]]\nname = 'knee'\n{text}")).unwrap();
        config.validate().unwrap_err().to_string()
    };
    for (text, words) in [
        ("mode = 'csv'", ["knee", "target_velocity"]),
        ("mode = 'cst'\nlayout = { target_velocity = 2 }", ["knee", "target_torque"]),
        ("layout = { target_velocity = 4 }", ["knee", "layout.target_velocity = 4"]),
        ("layout = { target = 0 }", ["layout.target = 0", "controlword = 0"]),
        ("gear = 0.0", ["knee", "gear = 0"]),
        ("gear = nan", ["knee", "gear = NaN"]),
        ("gear = 1e9", ["knee", "does not fit 32 bits"]),
        ("counts_per_turn = 0", ["knee", "counts_per_turn = 0"]),
        ("rated_torque_nm = -1.0", ["knee", "rated_torque_nm = -1"]),
        ("gains = { stiffness_nm_per_rad = -5.0 }", ["knee", "gains.stiffness_nm_per_rad = -5"]),
    ] {
        let message = refused(text);
        assert!(words.iter().all(|word| message.contains(word)), "{text}: {message}");
    }
    let error = toml::from_str::<HumanoidConfig>("[[device]]\nzero = 5").unwrap_err().to_string();
    assert!(error.contains("zero_counts"), "{error}");
}

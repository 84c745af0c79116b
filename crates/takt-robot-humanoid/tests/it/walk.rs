//! The controller on the simulated segment, in process.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::time::{Duration, Instant};

use takt_link_ethercat::control::{Idle, Link, bring_up, in_process};
use takt_link_ethercat::segment::{AlState, Segment, SegmentConfig, SegmentControl};
use takt_robot_humanoid::run::{self, CycleRecord, Finished, RunningMotion};
use takt_robot_humanoid::topology::DeviceClass;
use takt_robot_humanoid::{Controller, HumanoidConfig, Mode, Moment, Motion, StopReason, Target};
use takt_rt::periodic::SleepStrategy;
use takt_rt::ring::{Consumer, ring};
use takt_rt::settings::ThreadSettings;

struct Robot {
    running: RunningMotion,
    control: SegmentControl,
    records: Consumer<CycleRecord>,
}

/// A robot whose limits on lateness never stop it: what else runs on the machine is not what is
/// tested.
fn config(devices: usize) -> HumanoidConfig {
    let mut config = HumanoidConfig { devices, ramp_s: 0.2, ..HumanoidConfig::default() };
    config.safety.max_late = 1000;
    config.safety.max_late_in_row = 1000;
    config.safety.max_away_ms = 60_000;
    config.safety.enable_ms = 20_000;
    config.link.bring_up_ms = 20_000;
    config.link.silence_ms = 2000;
    config
}

fn start(config: &HumanoidConfig) -> Robot {
    let segment =
        Segment::new(&SegmentConfig { watchdog_ms: 6000, ..SegmentConfig::humanoid(config.devices) })
            .unwrap();
    let control = segment.control();
    let Link { port, .. } = bring_up(in_process(segment), &config.control(), &mut |_| {}).unwrap();
    let (records_in, records) = ring(1 << 16);
    let settings = ThreadSettings::default();
    let running = run::start(config, port, &settings, SleepStrategy::Kernel, records_in).unwrap();
    Robot { running, control, records }
}

impl Robot {
    /// Waits for a mode's code, without asserting how long it takes.
    fn until(&self, code: u8) {
        let begun = Instant::now();
        while self.running.shared.mode() != code {
            assert!(
                begun.elapsed() < Duration::from_secs(60),
                "mode {} is not {code}",
                self.running.shared.mode()
            );
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn end(mut self) -> (Finished, Vec<CycleRecord>) {
        self.running.shared.end();
        let finished = self.running.join().unwrap();
        let mut records = Vec::new();
        self.records.take_into(&mut records, usize::MAX);
        (finished, records)
    }
}

/// The first joint goes to a place that is no number, to 0.2 rad and far beyond its range, in turn.
struct Odd;

impl Motion for Odd {
    fn plan(&mut self, moment: &Moment<'_>, targets: &mut [Target]) {
        let time_s = moment.time_s;
        assert_eq!((moment.measured_rad.len(), moment.start_rad.len()), (targets.len(), targets.len()));
        let positions = [f64::NAN, 0.2, f64::INFINITY, 1e9];
        targets[0].position_rad = if time_s < 1.0 { 0.2 } else { positions[(time_s * 50.0) as usize % 4] };
    }
}

#[test]
fn an_own_motion_moves_the_joints_within_their_limits() {
    let config = config(12);
    let segment = Segment::new(&SegmentConfig { watchdog_ms: 6000, ..SegmentConfig::humanoid(12) }).unwrap();
    let control = segment.control();
    let first = config.devices().iter().position(|device| device.kind == DeviceClass::Drive).unwrap();
    let limits = config.devices()[first].limits;
    let position_rad = || control.devices()[first].drive.unwrap().position_rad;
    let Link { port, .. } = bring_up(in_process(segment), &config.control(), &mut |_| {}).unwrap();
    let settings = ThreadSettings::default();
    let idle = Idle::start(port, config.period(), &settings).unwrap();
    let (records_in, _records) = ring(1 << 16);
    let controller = Controller::with_motion(&config, Box::new(Odd));
    let running =
        run::start_with(controller, &config, idle, &settings, SleepStrategy::Kernel, records_in).unwrap();
    let begun = Instant::now();
    let (mut reached, mut least, mut most) = (false, 0.0_f64, 0.0_f64);
    while begun.elapsed() < Duration::from_secs(60) && !(reached && begun.elapsed() > Duration::from_secs(3))
    {
        let now_rad = position_rad();
        reached |= (now_rad - 0.2).abs() < 0.02;
        (least, most) = (least.min(now_rad), most.max(now_rad));
        std::thread::sleep(Duration::from_millis(2));
    }
    running.shared.end();
    let finished = running.join().unwrap();
    assert!(reached, "seen at the device: {least} to {most}");
    assert!(least > limits.min_rad - 0.05 && most < limits.max_rad + 0.05, "{least} {most} {limits:?}");
    assert!(matches!(finished.mode, Mode::Walking), "{:?}", finished.mode);
}

/// Panics after 1 s.
struct Broken;

impl Motion for Broken {
    fn plan(&mut self, moment: &Moment<'_>, _: &mut [Target]) {
        assert!(moment.time_s < 1.0, "a mistake in one's own motion");
    }
}

#[test]
fn a_motion_that_panics_does_not_end_the_control() {
    let config = config(12);
    let segment = Segment::new(&SegmentConfig { watchdog_ms: 6000, ..SegmentConfig::humanoid(12) }).unwrap();
    let control = segment.control();
    let Link { port, .. } = bring_up(in_process(segment), &config.control(), &mut |_| {}).unwrap();
    let settings = ThreadSettings::default();
    let idle = Idle::start(port, config.period(), &settings).unwrap();
    let (records_in, records) = ring(1 << 16);
    let controller = Controller::with_motion(&config, Box::new(Broken));
    let running =
        run::start_with(controller, &config, idle, &settings, SleepStrategy::Kernel, records_in).unwrap();
    let robot = Robot { running, control, records };
    robot.until(3);
    let control = robot.control.clone();
    let (finished, _) = robot.end();
    assert_eq!(finished.mode, Mode::Stopped(StopReason::MotionPanicked));
    assert!(run::why(finished.mode).unwrap().contains("motion panicked"));
    assert!(finished.safe);
    assert_eq!(finished.not_down, None);
    // As of the last frame with process data; that they are in INIT is what `not_down` reports.
    assert!(control.devices().iter().all(|device| device.state < AlState::SafeOp));
}

#[test]
fn all_59_walk_and_stop_when_asked() {
    let robot = start(&config(59));
    robot.until(1);
    std::thread::sleep(Duration::from_millis(500));
    robot.running.shared.stop();
    robot.until(3);
    let control = robot.control.clone();
    let (finished, records) = robot.end();
    assert_eq!(finished.mode, Mode::Stopped(StopReason::Asked));
    assert!(finished.safe);
    assert_eq!(finished.enabled, (43, 43));
    let totals = finished.port.totals();
    assert_eq!((totals.lost_frames, totals.working_counter_errors), (0, 0), "{totals:?}");
    // The cycles while devices were asked down are not the controller's.
    assert!((records.len() as u64..records.len() as u64 + 200).contains(&totals.cycles), "{totals:?}");
    assert_eq!(finished.not_down, None);
    let devices = control.devices();
    assert!(devices.iter().all(|device| device.state < AlState::SafeOp && device.clock.expired == 0));
    assert!(records.windows(2).all(|pair| pair[1].index == pair[0].index + 1 + u64::from(pair[1].skipped)));
    // The probe's events were seen and answered.
    assert!(records.last().unwrap().events > 0);
    assert!(records.last().unwrap().applied > 0);
}

#[test]
fn a_lost_device_stops_the_others() {
    let robot = start(&config(59));
    robot.until(1);
    let hand = robot.control.find("right-foot-imu").unwrap();
    robot.control.unplug(hand).unwrap();
    robot.until(3);
    let (finished, _) = robot.end();
    assert_eq!(finished.mode, Mode::Stopped(StopReason::DevicesLost));
    assert!(finished.safe);
    assert!(finished.port.totals().working_counter_errors > 0);
}

#[test]
fn a_drive_fault_stops_the_others() {
    let robot = start(&config(20));
    robot.until(1);
    let drive = robot.control.find("left-elbow").unwrap();
    robot.control.drive_fault(drive).unwrap();
    robot.until(3);
    let (finished, _) = robot.end();
    assert_eq!(finished.mode, Mode::Stopped(StopReason::DriveFault));
}

#[test]
fn devices_stay_in_op_between_bring_up_and_control() {
    let config = config(59);
    // What a busy test machine may hold a thread up for lies between the two.
    let description = SegmentConfig { watchdog_ms: 700, ..SegmentConfig::humanoid(59) };
    let segment = Segment::new(&description).unwrap();
    let control = segment.control();
    let Link { port, .. } = bring_up(in_process(segment), &config.control(), &mut |_| {}).unwrap();
    let idle = Idle::start(port, config.period(), &ThreadSettings::default()).unwrap();
    let before = control.counts().cyclic;
    std::thread::sleep(Duration::from_millis(2000));
    assert!(control.counts().cyclic > before + 100, "the wire is not silent");
    let devices = control.devices();
    assert!(devices.iter().all(|device| device.state == AlState::Op && device.clock.expired == 0));
    // Nobody took it: devices are asked down all the same.
    drop(idle);
    assert!(control.devices().iter().all(|device| device.state < AlState::SafeOp));
}

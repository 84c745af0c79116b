//! The controller on the simulated segment, in process.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::time::{Duration, Instant};

use takt_link_ethercat::control::{Link, bring_up, in_process};
use takt_link_ethercat::segment::{Segment, SegmentConfig, SegmentControl};
use takt_robot_humanoid::run::{self, CycleRecord, Finished, Running};
use takt_robot_humanoid::{HumanoidConfig, Mode, StopReason};
use takt_rt::periodic::SleepStrategy;
use takt_rt::ring::{Consumer, ring};
use takt_rt::settings::ThreadSettings;

struct Robot {
    running: Running,
    control: SegmentControl,
    records: Consumer<CycleRecord>,
}

/// A robot whose limits on lateness never stop it: what else runs on the machine is not what is tested.
fn config(devices: usize) -> HumanoidConfig {
    let mut config = HumanoidConfig { devices, ramp_s: 0.2, ..HumanoidConfig::default() };
    config.safety.most_late = 1000;
    config.safety.most_late_in_row = 1000;
    config.safety.most_away_ms = 60_000;
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

#[test]
fn all_59_walk_and_stop_when_asked() {
    let robot = start(&config(59));
    robot.until(1);
    std::thread::sleep(Duration::from_millis(500));
    robot.running.shared.stop();
    robot.until(3);
    let (finished, records) = robot.end();
    assert_eq!(finished.mode, Mode::Stopped(StopReason::Asked));
    assert!(finished.safe);
    assert_eq!(finished.enabled, (43, 43));
    let totals = finished.port.totals();
    assert_eq!((totals.lost_frames, totals.working_counter_errors), (0, 0), "{totals:?}");
    assert_eq!(records.len() as u64, totals.cycles);
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

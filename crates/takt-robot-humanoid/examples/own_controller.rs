//! One's own motion instead of the built-in walk: the arms wave, and each leg holds where it
//! stands.
//!
//! `cargo run -p takt-robot-humanoid --example own_controller`, on simulated devices; with the name
//! of an interface as argument on real ones (needs CAP_NET_RAW). Everything around the motion is
//! Takt's: bring-up, enabling, limits, safe stop.

use std::error::Error;
use std::time::Duration;

use takt_link_ethercat::control::{Idle, Interface, Wire, bring_up, in_process};
use takt_link_ethercat::segment::{Segment, SegmentConfig};
use takt_robot_humanoid::run::start_with;
use takt_robot_humanoid::topology::DeviceClass;
use takt_robot_humanoid::{Controller, HumanoidConfig, Moment, Motion, Target};
use takt_rt::periodic::SleepStrategy;
use takt_rt::ring::ring;
use takt_rt::settings::ThreadSettings;

/// Shoulders wave with half a radian, twice in three seconds; all other joints hold.
struct Wave {
    shoulders: Vec<bool>,
}

impl Motion for Wave {
    fn plan(&mut self, moment: &Moment<'_>, targets: &mut [Target]) {
        const RATE: f64 = 2.0 / 3.0 * std::f64::consts::TAU;
        let angle = RATE * moment.time_s;
        for (joint, target) in targets.iter_mut().enumerate() {
            let swing_rad = if self.shoulders[joint] { 0.5 } else { 0.0 };
            target.position_rad = moment.start_rad[joint] + swing_rad * (1.0 - angle.cos()) / 2.0;
            target.velocity_rad_s = swing_rad * RATE * angle.sin() / 2.0;
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let config = HumanoidConfig::default();
    let wire: Box<dyn Wire> = match std::env::args().nth(1) {
        Some(interface) => Box::new(Interface::open(&interface)?),
        None => in_process(Segment::new(&SegmentConfig::humanoid(config.devices))?),
    };
    let devices = config.devices();
    let shoulders: Vec<bool> = devices
        .iter()
        .filter(|device| device.kind == DeviceClass::Drive)
        .map(|device| device.name.contains("shoulder"))
        .collect();
    let controller = Controller::with_motion(&config, Box::new(Wave { shoulders }));

    let link = bring_up(wire, &config.control(), &mut |_| {})?;
    let settings = ThreadSettings::default();
    let idle = Idle::start(link.port, config.period(), &settings)?;
    let (records_in, mut records) = ring(1 << 14);
    let running = start_with(controller, &config, idle, &settings, SleepStrategy::Kernel, records_in)?;
    std::thread::sleep(Duration::from_secs(4));
    running.shared.stop();
    while running.shared.mode() != 3 && !running.is_finished() {
        std::thread::sleep(Duration::from_millis(10));
    }
    running.shared.end();
    let finished = running.join()?;
    let mut cycles = Vec::new();
    records.take_into(&mut cycles, usize::MAX);
    println!(
        "{} cycles, {} of {} drives enabled, {:?}",
        cycles.len(),
        finished.enabled.0,
        finished.enabled.1,
        finished.mode
    );
    Ok(())
}

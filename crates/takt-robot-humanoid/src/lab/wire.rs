//! The wire of a run: a simulated segment on a veth pair or in process, or an interface.

use takt_lab::LabError;
use takt_link_ethercat::control::{self, Interface, Wire, XdpOptions, open_xdp};
use takt_link_ethercat::segment::veth::{self, Server, VethPair};
use takt_link_ethercat::segment::{self as sim, DeviceKind, Segment, SegmentConfig, Truth, Update};
use takt_rt::placement;
use takt_rt::ring::Consumer;
use takt_rt::settings::ThreadSettings;

use super::failed;
use super::file::{HumanoidFile, WireKind};
use crate::joint::Direction;
use crate::topology::{Device, DeviceClass};

/// Facts of the segment between two drains.
const TRUTHS: usize = 1 << 14;

/// The simulation behind the wire; dropping it ends the simulation.
pub(super) struct Behind {
    // Before the pair: the server has its end open.
    _server: Option<Server>,
    _pair: Option<VethPair>,
    /// The real events; `None` on real devices.
    pub truth: Option<Consumer<Truth>>,
    /// Settings that were requested but not granted.
    pub not_granted: Vec<String>,
    /// In a few words.
    pub what: String,
    /// Thread of the simulated segment.
    pub segment_tid: Option<i32>,
}

pub(super) fn open(file: &HumanoidFile) -> Result<(Box<dyn Wire>, Behind), LabError> {
    let behind = |what: String| Behind {
        truth: None,
        not_granted: Vec::new(),
        what,
        segment_tid: None,
        _server: None,
        _pair: None,
    };
    if let WireKind::Interface { name } = &file.wire {
        let interface = Interface::open(name).map_err(failed)?;
        return Ok((Box::new(interface), behind(format!("interface {name}"))));
    }
    if let &WireKind::Xdp { ref name, queue, attach } = &file.wire {
        let (wire, how) = open_xdp(name, &XdpOptions { queue, attach }).map_err(failed)?;
        return Ok((wire, behind(format!("interface {name} through AF_XDP, {how}"))));
    }
    let mut segment = Segment::new(&segment_config(file)).map_err(LabError::robot)?;
    let truth = Some(segment.truth(TRUTHS));
    if file.wire == WireKind::InProcess {
        let behind = Behind { truth, ..behind("simulated, in process".to_owned()) };
        return Ok((control::in_process(segment), behind));
    }
    let pair = match VethPair::unique() {
        Ok(pair) => pair,
        Err(error) => {
            let label = format!("wire: no veth pair ({error}); the segment runs in the controller's thread");
            let behind = Behind {
                truth,
                not_granted: vec![label],
                ..behind("simulated, in process because there is no veth pair".to_owned())
            };
            return Ok((control::in_process(segment), behind));
        }
    };
    let mut settings = ThreadSettings { policy: file.segment.policy, ..ThreadSettings::default() };
    settings.cpus = file.segment.cpus.or_else(|| {
        let rest = placement::online().ok()?.without(file.cpus.as_ref()?);
        (!rest.is_empty()).then_some(rest)
    });
    let server = veth::serve(pair.segment(), segment, "segment", &settings).map_err(failed)?;
    let not_granted = server.granted().map_or_else(Vec::new, |granted| {
        granted.differences.iter().map(|difference| format!("segment: {difference}")).collect()
    });
    let segment_tid = server.tid();
    let interface = Interface::open(pair.master()).map_err(failed)?;
    let what = format!("simulated, on the veth pair {} - {}", pair.master(), pair.segment());
    Ok((
        Box::new(interface),
        Behind { _server: Some(server), _pair: Some(pair), truth, not_granted, what, segment_tid },
    ))
}

fn segment_config(file: &HumanoidFile) -> SegmentConfig {
    let options = &file.segment;
    let base = SegmentConfig::humanoid(file.motion.devices);
    let devices = if file.motion.list.is_empty() {
        base.devices.clone()
    } else {
        file.motion.list.iter().map(device).collect()
    };
    SegmentConfig {
        devices,
        update: Update::AfterFrame { delay_us: options.update_us },
        watchdog_ms: options.watchdog_ms,
        event_period_us: options.event_period_us,
        ..base
    }
}

/// A simulated device for a configured one: with its identity, in a daisy chain.
fn device(wanted: &Device) -> sim::DeviceConfig {
    let kind = match wanted.kind {
        DeviceClass::Drive => DeviceKind::Drive,
        DeviceClass::Imu => DeviceKind::ImuSensor,
        DeviceClass::ForceTorque => DeviceKind::ForceTorqueSensor,
        DeviceClass::Tactile => DeviceKind::TactileSensor,
        DeviceClass::DigitalIo => DeviceKind::DigitalIo,
        DeviceClass::Probe => DeviceKind::EventProbe,
    };
    let some = |value: u32| (value != 0).then_some(value);
    let mut device = sim::DeviceConfig::new(wanted.name.clone(), kind);
    device.vendor = some(wanted.identity.vendor);
    device.product = some(wanted.identity.product);
    device.serial = some(wanted.identity.serial);
    device.revision = some(wanted.identity.revision).unwrap_or(device.revision);
    // Mounted as configured: what the installer measured is what the encoder shows.
    device.joint.counts_per_turn = wanted.counts_per_turn;
    device.joint.gear = wanted.gear;
    device.joint.encoder_zero_counts = wanted.zero_counts;
    device.joint.encoder_reversed = wanted.direction == Direction::Negative;
    device.joint.rated_torque_nm = wanted.rated_torque_nm;
    device.joint.max_torque_nm = 3.0 * wanted.rated_torque_nm;
    device
}

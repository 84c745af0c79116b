//! Orders of the control handles to a running segment, and its reports to them.

use super::app::App;
use super::device::Device;
use super::fault::{DeviceView, DriveView, Order};
use super::process::Segment;
use super::sii::Sii;

impl Segment {
    /// Carries out what the control handles have asked for.
    pub(super) fn obey(&mut self, now_ns: u64) {
        for order in self.shared.take_orders() {
            match order {
                Order::Wire(fault, when) => self.faults.set(fault, when),
                Order::Unplug(index) => self.topology.set_plugged(index, false),
                Order::Plug(index) => self.topology.set_plugged(index, true),
                Order::PowerCycle(index) => self.devices[index].restart(self.config.watchdog_ms),
                Order::Refuse(index, refusal) => self.devices[index].refusal = refusal,
                Order::Fall(index, state, code) => self.devices[index].fall(state, code, now_ns),
                Order::Identity(index, identity) => {
                    self.devices[index].identity = identity;
                    self.restore_sii(index);
                }
                Order::Spoil(index, defect) => {
                    let device = &mut self.devices[index];
                    device.sii.spoil(defect);
                    device.sii.load(&mut device.esc);
                }
                Order::RestoreSii(index) => self.restore_sii(index),
                Order::DriveFault(index) => {
                    self.devices[index].app.inject_fault();
                }
                Order::Inputs(index, value) => {
                    if let App::DigitalIo { inputs, .. } = &mut self.devices[index].app {
                        *inputs = value;
                    }
                }
                Order::Strike(index) => {
                    if let App::Probe(probe) = &mut self.devices[index].app {
                        probe.strike(now_ns);
                    }
                }
            }
        }
        self.topology.show(&mut self.devices);
        self.rebuild();
    }

    fn restore_sii(&mut self, index: usize) {
        let device = &mut self.devices[index];
        let alias = self.config.devices[index].alias;
        device.sii = Sii::build(device.identity, alias, &device.name, device.profile);
        device.sii.load(&mut device.esc);
    }
}

/// A device as it is seen from outside.
pub(super) fn view(device: &Device) -> DeviceView {
    let drive = match &device.app {
        App::Drive(drive) => Some(DriveView {
            state: drive.state(),
            position_rad: drive.position_rad(),
            velocity_rad_s: drive.velocity_rad_s(),
            torque_nm: drive.torque_nm(),
        }),
        _ => None,
    };
    DeviceView {
        state: device.state,
        error: device.error,
        code: device.esc.u16(super::registers::AL_STATUS_CODE),
        present: device.present,
        drive,
        clock: device.clock_view(),
    }
}

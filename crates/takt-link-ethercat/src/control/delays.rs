//! Propagation delays and offsets of the distributed clocks (ET1100 data sheet, section 9.1).
//!
//! The master measures them too, and errs behind the second branch of a fork: it adds up the delays
//! of the branch before. So they are measured again here and written over its own.

use ethercrab::Command;

use super::error::ControlError;
use super::master::{Carrier, Limits, Master};

const DL_STATUS: u16 = 0x0110;
const DC_RECEIVE: u16 = 0x0900;
/// Receive time of the processing unit, 64 bits.
const DC_RECEIVE_UNIT: u16 = 0x0918;
const DC_OFFSET: u16 = 0x0920;
const DC_DELAY: u16 = 0x0928;
const DC_SPEED_START: u16 = 0x0930;
/// The order in which a frame leaves a device's ports.
const DOWNSTREAM: [usize; 3] = [3, 1, 2];

/// A frame's passage through a device, by the device's timestamps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Passage {
    clock: bool,
    /// Ports with a device behind them.
    open: [bool; 4],
    /// When the frame came in at each port, in the device's own time.
    at_ns: [u32; 4],
}

impl Passage {
    fn downstream(&self) -> impl DoubleEndedIterator<Item = usize> + '_ {
        DOWNSTREAM.into_iter().filter(|&port| self.open[port])
    }

    /// From the frame's coming to its last return, the way behind the device included.
    fn loop_ns(&self) -> u32 {
        self.downstream().next_back().map_or(0, |last| self.at_ns[last].wrapping_sub(self.at_ns[0]))
    }
}

/// Time from the reference clock to each device. Devices are in the order of the wire. One without
/// a clock measures nothing: it and what is behind it get their parent's delay, which is some
/// hundred nanoseconds too little for each.
fn delays(devices: &[Passage]) -> Vec<u32> {
    let mut found: Vec<u32> = Vec::with_capacity(devices.len());
    // Devices with ports whose branch has not come yet.
    let mut open: Vec<(usize, Vec<usize>)> = Vec::new();
    for (place, device) in devices.iter().enumerate() {
        while open.last().is_some_and(|(_, ports)| ports.is_empty()) {
            open.pop();
        }
        let delay = match open.last_mut() {
            None => 0,
            Some((parent, ports)) => {
                let port = ports.remove(0);
                let above = &devices[*parent];
                let before = above.downstream().take_while(|&other| other != port).last().unwrap_or(0);
                let there_and_back = above.at_ns[port].wrapping_sub(above.at_ns[before]);
                let own = device.loop_ns();
                let base = found.get(*parent).copied().unwrap_or(0);
                if above.clock && device.clock {
                    let to_branch = above.at_ns[before].wrapping_sub(above.at_ns[0]);
                    base.wrapping_add(to_branch).wrapping_add(there_and_back.saturating_sub(own) / 2)
                } else {
                    base
                }
            }
        };
        found.push(delay);
        open.push((place, device.downstream().collect()));
    }
    // Counted from the first device with a clock, whose time is the reference.
    let reference =
        devices.iter().position(|device| device.clock).and_then(|first| found.get(first)).copied();
    let reference = reference.unwrap_or(0);
    found.iter().map(|delay| delay.saturating_sub(reference)).collect()
}

/// Measures the delays to the devices at `addresses`, of which those with `clocks` have one, and
/// sets delay and offset of each, so that all show the time of the first.
pub(super) fn align_clocks(
    master: &mut Master,
    limits: &Limits,
    addresses: &[u16],
    clocks: &[bool],
) -> Result<(), ControlError> {
    const PHASE: &str = "measuring the delays of distributed clocks";
    let Some(first) = clocks.iter().position(|&has| has) else { return Ok(()) };
    let device = master.device();
    let latch = Command::bwr(DC_RECEIVE).ignore_wkc().send(device, 0_u32);
    master.run(PHASE, limits, latch)?;
    let mut passages = Vec::with_capacity(addresses.len());
    let mut entered_ns = Vec::with_capacity(addresses.len());
    for (&address, &clock) in addresses.iter().zip(clocks) {
        let status = Command::fprd(address, DL_STATUS).receive::<u16>(device);
        let status = master.run(PHASE, limits, status)?;
        let mut passage = Passage { clock, ..Passage::default() };
        for (port, open) in passage.open.iter_mut().enumerate() {
            // Communication established.
            *open = status & 0x0200 << (2 * port) != 0;
        }
        if clock {
            let read = Command::fprd(address, DC_RECEIVE).receive::<[u8; 16]>(device);
            let bytes = master.run(PHASE, limits, read)?;
            for (at_ns, word) in passage.at_ns.iter_mut().zip(bytes.chunks_exact(4)) {
                *at_ns = word.iter().rev().fold(0, |value, &byte| value << 8 | u32::from(byte));
            }
            let read = Command::fprd(address, DC_RECEIVE_UNIT).receive::<u64>(device);
            entered_ns.push(master.run(PHASE, limits, read)?);
        } else {
            entered_ns.push(0);
        }
        passages.push(passage);
    }
    let read = Command::fprd(addresses[first], DC_OFFSET).receive::<u64>(device);
    let reference_ns = entered_ns[first].wrapping_add(master.run(PHASE, limits, read)?);
    for (place, delay) in delays(&passages).into_iter().enumerate().filter(|&(place, _)| clocks[place]) {
        let address = addresses[place];
        let offset = reference_ns.wrapping_add(delay.into()).wrapping_sub(entered_ns[place]);
        let write = async {
            Command::fpwr(address, DC_DELAY).send(device, delay).await?;
            if place != first {
                Command::fpwr(address, DC_OFFSET).send(device, offset).await?;
            }
            // The control loop starts afresh.
            Command::fpwr(address, DC_SPEED_START).ignore_wkc().send(device, 0x1000_u16).await
        };
        master.run(PHASE, limits, write)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_topology_that_devices_may_report_breaks_it(
            devices in proptest::collection::vec((any::<bool>(), any::<[bool; 4]>(), any::<[u32; 4]>()), 0..40)
        ) {
            let devices: Vec<Passage> =
                devices.into_iter().map(|(clock, open, at_ns)| Passage { clock, open, at_ns }).collect();
            prop_assert_eq!(delays(&devices).len(), devices.len());
        }
    }
}

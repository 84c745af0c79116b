//! The tree of devices: which are reachable, what their ports report, when a frame passes them.

use super::config::{ConfigError, MAX_CHILDREN, SegmentConfig};
use super::device::Device;
use super::registers::{DC_RECEIVE, DC_RECEIVE_UNIT, DL_STATUS};

/// Devices behind a device, by port: a frame leaves through ports 3, 1 and 2 in this order.
const PORTS: [usize; MAX_CHILDREN] = [3, 1, 2];
/// Time on 10 m of cable.
const CABLE_NS: u64 = 50;

#[derive(Debug)]
struct Node {
    parent: Option<usize>,
    /// Ports are given when the tree is built; an unplugged device leaves its port closed.
    children: [Option<usize>; MAX_CHILDREN],
    plugged: bool,
}

/// The tree.
#[derive(Debug)]
pub(super) struct Topology {
    nodes: Vec<Node>,
    hop_ns: u64,
}

impl Topology {
    pub(super) fn new(config: &SegmentConfig) -> Result<Self, ConfigError> {
        let parents = config.parents()?;
        let mut nodes: Vec<Node> = Vec::with_capacity(parents.len());
        for parent in &parents {
            nodes.push(Node { parent: *parent, children: [None; MAX_CHILDREN], plugged: true });
        }
        for (index, parent) in parents.iter().enumerate() {
            let Some(parent) = *parent else { continue };
            let last = parents.iter().rposition(|other| *other == Some(parent)) == Some(index);
            let children = &mut nodes[parent].children;
            // One device behind: port 1, as on a daisy chain. Several: from port 3 on.
            let first = children.iter().all(Option::is_none);
            let slot = if first && last { 1 } else { children.iter().position(Option::is_none).unwrap_or(0) };
            children[slot] = Some(index);
        }
        Ok(Self { nodes, hop_ns: u64::from(config.hop_ns) })
    }

    pub(super) fn set_plugged(&mut self, index: usize, plugged: bool) {
        if let Some(node) = self.nodes.get_mut(index) {
            node.plugged = plugged;
        }
    }

    /// Reports every device whether it is reachable and what its ports' links are.
    pub(super) fn show(&self, devices: &mut [Device]) {
        for (index, node) in self.nodes.iter().enumerate() {
            let above = node.parent.is_none_or(|parent| devices[parent].present);
            devices[index].present = node.plugged && above;
            // Micro-controller and its watchdog work; loops of ports without a link are closed.
            let mut status: u16 = 0x0003;
            let linked = |port: usize| match port {
                0 => node.plugged,
                _ => PORTS.iter().zip(&node.children).any(|(number, child)| {
                    *number == port && child.is_some_and(|child| self.nodes[child].plugged)
                }),
            };
            for port in 0..4 {
                status |=
                    if linked(port) { 0x0010 << port | 0x0200 << (2 * port) } else { 0x0100 << (2 * port) };
            }
            devices[index].esc.set(DL_STATUS, &status.to_le_bytes());
        }
    }

    /// Reports every device when a frame reaches it, after the time at which it came to the
    /// segment.
    pub(super) fn time(&self, devices: &mut [Device]) {
        if !self.nodes.is_empty() && devices[0].present {
            self.visit(devices, 0, 0, &mut |device, stamps| device.pass_ns = stamps[0]);
        }
    }

    /// Puts the receive times of a frame that came at `now_ns` into all reachable devices.
    pub(super) fn latch(&self, devices: &mut [Device], now_ns: u64) {
        if self.nodes.is_empty() || !devices[0].present {
            return;
        }
        self.visit(devices, 0, 0, &mut |device, after| {
            if !device.esc.clocks {
                return;
            }
            let entry = device.local_time_ns(now_ns + after[0]);
            for (port, after) in after.into_iter().enumerate() {
                // A closed port has none.
                let open = port == 0 || after > 0;
                let stamp = if open { device.local_time_ns(now_ns + after) as u32 } else { 0 };
                device.esc.set(DC_RECEIVE + 4 * port as u16, &stamp.to_le_bytes());
            }
            device.esc.set(DC_RECEIVE_UNIT, &entry.to_le_bytes());
        });
    }

    /// The frame reaches `index` `after` nanoseconds after it came; returns when it leaves towards
    /// the master. `visit_device` gets each device and when the frame comes in at its ports; 0 for
    /// closed ones.
    fn visit(
        &self,
        devices: &mut [Device],
        index: usize,
        after: u64,
        visit_device: &mut impl FnMut(&mut Device, [u64; 4]),
    ) -> u64 {
        let mut stamps = [0_u64; 4];
        stamps[0] = after;
        let mut at = after + self.hop_ns;
        for (port, child) in PORTS.iter().zip(self.nodes[index].children) {
            let Some(child) = child.filter(|child| devices[*child].present) else { continue };
            at = self.visit(devices, child, at + CABLE_NS, visit_device) + CABLE_NS;
            stamps[*port] = at;
            at += self.hop_ns;
        }
        visit_device(&mut devices[index], stamps);
        at
    }
}

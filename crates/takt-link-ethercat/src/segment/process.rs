//! A frame's way through all devices.

use std::sync::Arc;

use takt_rt::random::SplitMix64;
use takt_rt::ring::Consumer;

use super::app::App;
use super::config::{ConfigError, SegmentConfig, Update};
use super::device::Device;
use super::esc::Events;
use super::fault::{ControlState, Counts, DeviceView, SegmentControl, WireFaults};
use super::fmmu::Fmmu;
use super::objects::DeviceKind;
use super::orders::view;
use super::registers::{DC_SYSTEM_TIME, STATION};
use super::topology::Topology;
use super::truth::{Log, Pulse, Stay, Truth};
use super::wire::{
    self, Access, Addressing, Command, DATAGRAM_HEADER, DATAGRAM_OVERHEAD, FIRST_DATAGRAM, MAX_FRAME,
    Malformed, u16_at, u32_at,
};
use crate::frame;

/// Outcome of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Not EtherCAT, or it has been round already: untouched, not to be sent back.
    Ignored,
    /// Untouched, not to be sent back.
    Malformed(Malformed),
    /// Nobody sends it back: a fault, or the first device is unplugged.
    Lost,
    /// Executed in place; to be sent back.
    Return {
        /// Number of copies: 1, or 2 by a fault.
        copies: u8,
        /// Delay; 0 without a fault.
        delay_ns: u64,
    },
}

/// One FMMU of a reachable device.
#[derive(Debug, Clone, Copy)]
struct Route {
    device: usize,
    unit: Fmmu,
}

/// The devices and the wire through them.
#[derive(Debug)]
pub struct Segment {
    pub(super) config: SegmentConfig,
    pub(super) devices: Vec<Device>,
    pub(super) topology: Topology,
    /// Places of the reachable devices, in a frame's order.
    present: Vec<usize>,
    /// Their station addresses.
    stations: Vec<u16>,
    /// No station address occurs twice.
    unique: bool,
    /// Place at which the last configured address was found.
    last_station: usize,
    routes: Vec<Route>,
    /// For a sensor: the drive before it.
    joints: Vec<Option<usize>>,
    next_due_ns: u64,
    free_period_ns: Option<u64>,
    delay_ns: u64,
    latch: bool,
    stale: bool,
    cyclic: bool,
    scratch: Box<[u8]>,
    pub(super) faults: WireFaults,
    random: SplitMix64,
    counts: Counts,
    log: Log,
    /// While a thread of its own works on a frame whose truth somebody reads.
    pub(super) pulse: Option<Pulse>,
    pub(super) shared: Arc<ControlState>,
}

impl Segment {
    /// Builds the devices, powered on and in INIT.
    ///
    /// # Errors
    /// [`ConfigError`] when the configuration is no segment.
    pub fn new(config: &SegmentConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        let topology = Topology::new(config)?;
        let devices: Vec<Device> = config
            .devices
            .iter()
            .enumerate()
            .map(|(index, device)| Device::new(device, index, config))
            .collect();
        let mut joints = Vec::with_capacity(devices.len());
        let mut last = None;
        for (index, device) in devices.iter().enumerate() {
            joints.push(last);
            if device.kind == DeviceKind::Drive {
                last = Some(index);
            }
        }
        let (free_period_ns, delay_ns) = match config.update {
            Update::AfterFrame { delay_us } => (None, u64::from(delay_us) * 1000),
            Update::FreeRunning { period_us } => (Some(u64::from(period_us) * 1000), 0),
        };
        let names = devices.iter().map(|device| device.name.clone()).collect();
        let views = devices.iter().map(view).collect();
        let mut segment = Self {
            config: config.clone(),
            topology,
            present: Vec::with_capacity(devices.len()),
            stations: Vec::with_capacity(devices.len()),
            unique: false,
            last_station: 0,
            routes: Vec::with_capacity(devices.len() * super::registers::FMMUS),
            joints,
            next_due_ns: if free_period_ns.is_some() { 0 } else { u64::MAX },
            free_period_ns,
            delay_ns,
            latch: false,
            stale: true,
            cyclic: false,
            scratch: vec![0; MAX_FRAME + 1024].into_boxed_slice(),
            faults: WireFaults::default(),
            random: SplitMix64::new(config.seed),
            counts: Counts::default(),
            log: Log::default(),
            pulse: None,
            shared: Arc::new(ControlState::new(names, views)),
            devices,
        };
        segment.topology.show(&mut segment.devices);
        segment.rebuild();
        Ok(segment)
    }

    /// The handle that switches faults and looks inside; works from any thread, wherever the
    /// segment goes.
    pub fn control(&self) -> SegmentControl {
        SegmentControl(Arc::clone(&self.shared))
    }

    /// From now on facts are kept for the reader returned, at most `capacity` unread ones.
    pub fn truth(&mut self, capacity: usize) -> Consumer<Truth> {
        self.log.open(capacity)
    }

    /// The segment's configuration.
    pub fn config(&self) -> &SegmentConfig {
        &self.config
    }

    /// Counts so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The devices as they are now.
    pub fn devices(&self) -> impl Iterator<Item = DeviceView> {
        self.devices.iter().map(view)
    }

    /// Whether somebody reads the truth.
    pub(super) fn is_asked(&self) -> bool {
        self.log.is_open()
    }

    /// Keeps how long `frame`, which has been processed, was in the segment, for those who read the
    /// truth.
    pub fn passed(&mut self, frame: &[u8], stay: Stay) {
        if !self.log.is_open() {
            return;
        }
        if let Some(address) = frame::logical_address(frame) {
            self.log.push(Truth::Passed { cycle: frame::cycle(frame), address, stay });
        }
    }

    /// Executes one Ethernet frame in place, at `now_ns` of a clock that never goes back.
    pub fn process(&mut self, frame: &mut [u8], now_ns: u64) -> Outcome {
        if self.shared.has_orders() {
            self.obey(now_ns);
        }
        if now_ns >= self.next_due_ns {
            self.run_due(now_ns);
        }
        if !wire::is_untagged_ethercat(frame) || frame::has_passed(frame) {
            return Outcome::Ignored;
        }
        self.counts.frames += 1;
        let outcome = match wire::check(frame) {
            Err(malformed) => {
                self.counts.malformed += 1;
                Outcome::Malformed(malformed)
            }
            Ok(_) if self.present.is_empty() => {
                self.counts.lost += 1;
                Outcome::Lost
            }
            Ok(end) => {
                self.execute(frame, end, now_ns);
                wire::mark_passed(frame);
                self.suffer(frame, end)
            }
        };
        self.shared.publish_counts(&self.counts);
        if self.cyclic || self.shared.is_watched() {
            self.cyclic = false;
            self.shared.publish_views(self.devices.iter().map(view));
        }
        outcome
    }

    fn execute(&mut self, frame: &mut [u8], end: usize, now_ns: u64) {
        self.cyclic = false;
        let mut at = FIRST_DATAGRAM;
        while at + DATAGRAM_OVERHEAD <= end {
            let word = u16_at(frame, at + 6);
            let length = usize::from(word & 0x07FF);
            let (header, rest) = frame[at..].split_at_mut(DATAGRAM_HEADER);
            let (data, rest) = rest.split_at_mut(length);
            let hits = self.datagram(header, data, now_ns);
            let counter = u16_at(rest, 0).wrapping_add(hits);
            wire::put(rest, 0, &counter.to_le_bytes());
            if self.stale {
                self.rebuild();
            }
            if self.latch {
                self.latch = false;
                self.topology.latch(&mut self.devices, now_ns);
            }
            at += DATAGRAM_OVERHEAD + length;
            if word & 0x8000 == 0 {
                break;
            }
        }
        self.counts.cyclic += u64::from(self.cyclic);
    }

    /// Applies the faults to the executed frame.
    fn suffer(&mut self, frame: &mut [u8], end: usize) -> Outcome {
        if self.faults.corrupt.hits(&mut self.random) && lower_working_counters(frame, end) {
            self.counts.corrupted += 1;
        }
        if self.faults.drop.hits(&mut self.random) {
            self.counts.lost += 1;
            return Outcome::Lost;
        }
        let delayed = self.faults.delay.hits(&mut self.random);
        let doubled = self.faults.duplicate.hits(&mut self.random);
        self.counts.delayed += u64::from(delayed);
        self.counts.duplicated += u64::from(doubled);
        Outcome::Return {
            copies: 1 + u8::from(doubled),
            delay_ns: if delayed { self.faults.delay_ns } else { 0 },
        }
    }

    /// Executes one datagram; what its working counter grows by.
    fn datagram(&mut self, header: &mut [u8], data: &mut [u8], now_ns: u64) -> u16 {
        let (address, offset) = (u16_at(header, 2), u16_at(header, 4));
        let count = self.present.len() as u16;
        match Command::decode(header[0]) {
            Command::Nop => 0,
            Command::Logical(access) => {
                self.cyclic = true;
                self.logical(u32_at(header, 2), data, access, now_ns)
            }
            Command::Physical(Addressing::AutoIncrement, access) => {
                wire::put(header, 2, &address.wrapping_add(count).to_le_bytes());
                let place = usize::from(address.wrapping_neg());
                if place < self.present.len() { self.access(place, offset, data, access, now_ns) } else { 0 }
            }
            Command::Physical(Addressing::Configured, access) => {
                self.configured(address, |segment, place| segment.access(place, offset, data, access, now_ns))
            }
            Command::Physical(Addressing::Broadcast, access) => {
                wire::put(header, 2, &address.wrapping_add(count).to_le_bytes());
                self.broadcast(offset, data, access, now_ns)
            }
            Command::ReadMultipleWrite(addressing) => {
                let reader = match addressing {
                    Addressing::AutoIncrement => {
                        wire::put(header, 2, &address.wrapping_add(count).to_le_bytes());
                        usize::from(address.wrapping_neg())
                    }
                    _ => self.stations.iter().position(|station| *station == address).unwrap_or(usize::MAX),
                };
                let mut hits = 0;
                for place in 0..self.present.len() {
                    let access = if place == reader { Access::Read } else { Access::Write };
                    hits += self.access(place, offset, data, access, now_ns);
                }
                hits
            }
        }
    }

    /// Runs `access` on every device with station address `address`.
    fn configured(&mut self, address: u16, mut access: impl FnMut(&mut Self, usize) -> u16) -> u16 {
        if self.unique {
            // Masters ask one device after the other: look at the neighbour first.
            let next = self.last_station + 1;
            let guess = [next, self.last_station]
                .into_iter()
                .find(|place| self.stations.get(*place) == Some(&address));
            let place = guess.or_else(|| self.stations.iter().position(|station| *station == address));
            return place.map_or(0, |place| {
                self.last_station = place;
                access(self, place)
            });
        }
        let mut hits = 0;
        for place in 0..self.present.len() {
            if self.stations.get(place) == Some(&address) {
                hits += access(self, place);
            }
        }
        hits
    }

    /// One device's part of a physical access.
    fn access(&mut self, place: usize, offset: u16, data: &mut [u8], access: Access, now_ns: u64) -> u16 {
        let index = self.present[place];
        let device = &mut self.devices[index];
        let mut hits = 0;
        let mut events = Events::default();
        if access.reads() && touches_system_time(offset, data.len()) {
            device.show_system_time(now_ns + device.pass_ns);
        }
        match access {
            Access::Read => {
                if let Some(set_off) = device.esc.read(offset, data) {
                    events = set_off;
                    hits = 1;
                }
            }
            Access::Write => {
                if let Some(set_off) = device.esc.write(offset, data) {
                    events = set_off;
                    hits = 1;
                }
            }
            Access::ReadWrite => {
                let old = &mut self.scratch[..data.len()];
                let read = device.esc.read(offset, old);
                if let Some(set_off) = device.esc.write(offset, data) {
                    events.add(set_off);
                    hits += 2;
                }
                if let Some(set_off) = read {
                    events.add(set_off);
                    hits += 1;
                    data.copy_from_slice(old);
                }
            }
        }
        self.after(index, events, now_ns);
        hits
    }

    fn broadcast(&mut self, offset: u16, data: &mut [u8], access: Access, now_ns: u64) -> u16 {
        let length = data.len();
        let mut hits = 0;
        // Every device writes what the master sent, not what the devices before it have reported.
        self.scratch[..length].copy_from_slice(data);
        for place in 0..self.present.len() {
            let index = self.present[place];
            let device = &mut self.devices[index];
            let mut events = Events::default();
            if access.reads() {
                if touches_system_time(offset, length) {
                    device.show_system_time(now_ns + device.pass_ns);
                }
                if let Some(set_off) = device.esc.read_or(offset, data) {
                    events.add(set_off);
                    hits += 1;
                }
            }
            if access.writes()
                && let Some(set_off) = device.esc.write(offset, &self.scratch[..length])
            {
                events.add(set_off);
                hits += if access == Access::ReadWrite { 2 } else { 1 };
            }
            self.after(index, events, now_ns);
        }
        hits
    }

    /// A datagram through the FMMUs: a device counts 1 if it gave and, in an LRW, 2 if it took.
    fn logical(&mut self, address: u32, data: &mut [u8], access: Access, now_ns: u64) -> u16 {
        let mut hits = 0;
        let mut next = 0;
        while let Some(first) = self.routes.get(next) {
            let index = first.device;
            let start = next;
            while self.routes.get(next).is_some_and(|route| route.device == index) {
                next += 1;
            }
            Pulse::at_device(&mut self.pulse, index);
            let device = &mut self.devices[index];
            let mut events = Events::default();
            let (mut gave, mut took) = (false, false);
            // Take before giving: both may lie at one address.
            if access.writes() {
                for Route { unit, .. } in &self.routes[start..next] {
                    if unit.writes
                        && let Some((from, to, count)) = unit.overlap(address, data.len())
                        && let Some(set_off) = device.esc.write_mapped(unit, to, &data[from..from + count])
                    {
                        events.add(set_off);
                        took = true;
                    }
                }
            }
            if access.reads() {
                for Route { unit, .. } in &self.routes[start..next] {
                    if unit.reads
                        && let Some((to, from, count)) = unit.overlap(address, data.len())
                        && let Some(set_off) = device.esc.read_mapped(unit, from, &mut data[to..to + count])
                    {
                        events.add(set_off);
                        gave = true;
                    }
                }
            }
            let weight = if access == Access::ReadWrite { 2 } else { 1 };
            hits += u16::from(gave) + weight * u16::from(took);
            self.after(index, events, now_ns);
        }
        hits
    }

    /// Sees to what an access to device `index` has set off.
    fn after(&mut self, index: usize, events: Events, now_ns: u64) {
        if events.is_empty() {
            return;
        }
        if events.has(Events::LATCH) {
            self.latch = true;
        }
        let device = &mut self.devices[index];
        if events.has(Events::OUTPUTS) || events.has(Events::INPUTS) {
            device.process_data_passed(events, now_ns);
            let trigger = if device.rx.is_some() { Events::OUTPUTS } else { Events::INPUTS };
            let runs_by_frames = self.free_period_ns.is_none() && !device.has_sync0();
            if runs_by_frames && device.tick_ns.is_none() && events.has(trigger) {
                let tick = now_ns.saturating_add(self.delay_ns);
                device.tick_ns = Some(tick);
                self.next_due_ns = self.next_due_ns.min(tick);
            }
        }
        if device.handle(events, now_ns) {
            self.stale = true;
            self.next_due_ns = self.next_due_ns.min(device.next_due_ns());
        }
    }

    /// Lets all micro-controllers and watchdogs run whose time has come.
    fn run_due(&mut self, now_ns: u64) {
        let mut next_due = u64::MAX;
        for index in 0..self.devices.len() {
            Pulse::at_device(&mut self.pulse, index);
            if let Some(joint) = self.joints[index]
                && let App::Drive(drive) = &self.devices[joint].app
            {
                let seen = [drive.position_rad(), drive.velocity_rad_s(), drive.torque_nm()];
                if let App::Sensor(sensor) = &mut self.devices[index].app {
                    sensor.joint = seen;
                }
            }
            let device = &mut self.devices[index];
            if let Some(period) = self.free_period_ns
                && device.tick_ns.is_none()
                && !device.has_sync0()
            {
                // Phases spread over the period.
                device.tick_ns = Some(now_ns + period * (index as u64 * 7 % 59) / 59);
            }
            if device.next_due_ns() <= now_ns {
                self.stale |= device.run_due(now_ns, self.free_period_ns, &mut self.log, index as u16);
            }
            next_due = next_due.min(device.next_due_ns());
        }
        self.next_due_ns = next_due;
        if self.stale {
            self.rebuild();
        }
    }

    /// Renews what is derived from registers and topology.
    pub(super) fn rebuild(&mut self) {
        self.stale = false;
        self.topology.time(&mut self.devices);
        self.present.clear();
        self.stations.clear();
        self.routes.clear();
        for (index, device) in self.devices.iter().enumerate().filter(|(_, device)| device.present) {
            self.present.push(index);
            self.stations.push(device.esc.u16(STATION));
            let units = device.esc.fmmus.iter().filter(|unit| unit.is_active());
            self.routes.extend(units.map(|unit| Route { device: index, unit: *unit }));
        }
        let stations = &self.stations;
        self.unique = (1..stations.len()).all(|at| !stations[..at].contains(&stations[at]));
    }
}

/// Whether an access reads the system time.
fn touches_system_time(offset: u16, length: usize) -> bool {
    offset < DC_SYSTEM_TIME + 8 && usize::from(offset) + length > usize::from(DC_SYSTEM_TIME)
}

/// Makes the working counters of all logical datagrams one smaller; whether there were any.
fn lower_working_counters(frame: &mut [u8], end: usize) -> bool {
    let mut at = FIRST_DATAGRAM;
    let mut any = false;
    while at + DATAGRAM_OVERHEAD <= end {
        let word = u16_at(frame, at + 6);
        let counter = at + DATAGRAM_HEADER + usize::from(word & 0x07FF);
        if matches!(Command::decode(frame[at]), Command::Logical(_)) {
            let value = u16_at(frame, counter).wrapping_sub(1);
            wire::put(frame, counter, &value.to_le_bytes());
            any = true;
        }
        at = counter + 2;
        if word & 0x8000 == 0 {
            break;
        }
    }
    any
}

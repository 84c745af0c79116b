//! Faults that can be switched while the segment runs, and what can be seen of it from outside.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use takt_rt::random::SplitMix64;

use super::device::AlState;
use super::drive::DriveState;
use super::sii::{Identity, SiiDefect};

/// Frames that a fault hits.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum When {
    /// None.
    #[default]
    Never,
    /// The next so many.
    Next(u64),
    /// Every n-th, counted from now; 1 is every frame.
    Every(u64),
    /// Each with this probability (0 to 1), from the configured seed.
    Probability(f64),
}

/// A rule and its progress.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Rule {
    when: When,
    seen: u64,
}

impl Rule {
    fn new(when: When) -> Self {
        Self { when, seen: 0 }
    }

    /// Whether the rule hits this frame.
    pub(super) fn hits(&mut self, random: &mut SplitMix64) -> bool {
        self.seen += 1;
        match &mut self.when {
            When::Never => false,
            When::Next(left) => {
                let hit = *left > 0;
                *left = left.saturating_sub(1);
                hit
            }
            When::Every(n) => *n > 0 && self.seen.is_multiple_of(*n),
            When::Probability(p) => random.unit() < *p,
        }
    }
}

/// A state that a device will not enter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) state: AlState,
    pub(super) code: u16,
}

/// Faults of the wire.
#[derive(Debug, Default)]
pub(super) struct WireFaults {
    pub(super) drop: Rule,
    pub(super) duplicate: Rule,
    pub(super) delay: Rule,
    pub(super) delay_ns: u64,
    pub(super) corrupt: Rule,
}

impl WireFaults {
    /// Takes over a rule.
    pub(super) fn set(&mut self, fault: WireFault, when: When) {
        let rule = Rule::new(when);
        match fault {
            WireFault::Drop => self.drop = rule,
            WireFault::Duplicate => self.duplicate = rule,
            WireFault::Delay(time) => {
                self.delay = rule;
                self.delay_ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
            }
            WireFault::WorkingCounter => self.corrupt = rule,
        }
    }
}

/// Fault of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WireFault {
    /// The devices see it, the master never gets it back: the harder case for a master.
    Drop,
    /// It comes back twice.
    Duplicate,
    /// It comes back later.
    Delay(Duration),
    /// The working counter of every logical datagram is one too small.
    WorkingCounter,
}

/// Orders to the segment, in their sequence.
#[derive(Debug)]
pub(super) enum Order {
    Wire(WireFault, When),
    Unplug(usize),
    Plug(usize),
    PowerCycle(usize),
    Refuse(usize, Option<Refusal>),
    Fall(usize, AlState, u16),
    Identity(usize, Identity),
    Spoil(usize, SiiDefect),
    RestoreSii(usize),
    DriveFault(usize),
    Inputs(usize, Option<u8>),
    Strike(usize),
}

/// Reason why an order is not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// No such device.
    #[error("there is no device {asked}; the segment's devices are 0 to {last}")]
    NoDevice {
        /// The place asked for.
        asked: usize,
        /// The last place.
        last: usize,
    },
    /// No device of that name.
    #[error("no device is named \"{asked}\"")]
    NoName {
        /// The name asked for.
        asked: String,
    },
}

/// Counts of the segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct Counts {
    /// Frames taken.
    pub frames: u64,
    /// Frames with process data (a logical datagram).
    pub cyclic: u64,
    /// Frames that were malformed and left alone.
    pub malformed: u64,
    /// Frames not given back: faults, or nobody connected.
    pub lost: u64,
    /// Frames given back twice.
    pub duplicated: u64,
    /// Frames given back late.
    pub delayed: u64,
    /// Frames with a wrong working counter.
    pub corrupted: u64,
}

/// One device seen from outside.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DeviceView {
    /// State of the AL state machine.
    pub state: AlState,
    /// Its error flag.
    pub error: bool,
    /// AL status code.
    pub code: u16,
    /// Reachable by frames.
    pub present: bool,
    /// For drives.
    pub drive: Option<DriveView>,
    /// Its distributed clock.
    pub clock: ClockView,
}

/// A device's distributed clock seen from outside, in the time that the segment is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClockView {
    /// When the last Sync0 pulse was; 0 before the first.
    pub sync0_ns: u64,
    /// Sync0 pulses so far.
    pub pulses: u64,
    /// Sync0 pulses in OP at which no new outputs had come since the pulse before.
    pub starved: u64,
    /// When outputs came last; 0 before the first.
    pub outputs_ns: u64,
    /// Time from the segment's first device to this one, as frames take it.
    pub pass_ns: u64,
    /// The same as the master has reported the device (0x0928).
    pub written_delay_ns: u32,
    /// Watchdogs of process data that have expired.
    pub expired: u8,
}

/// A drive seen from outside: the joint as it is, not as the master sees it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DriveView {
    /// State after CiA 402.
    pub state: DriveState,
    /// Position of the joint.
    pub position_rad: f64,
    /// Speed of the joint.
    pub velocity_rad_s: f64,
    /// Torque of the drive.
    pub torque_nm: f64,
}

#[derive(Debug)]
pub(super) struct ControlState {
    names: Vec<String>,
    orders: Mutex<Vec<Order>>,
    waiting: AtomicBool,
    counts: [AtomicU64; 7],
    views: Mutex<Vec<DeviceView>>,
    /// Somebody wants fresh views.
    looking: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ControlState {
    pub(super) fn new(names: Vec<String>, views: Vec<DeviceView>) -> Self {
        Self {
            names,
            orders: Mutex::default(),
            waiting: AtomicBool::new(false),
            counts: Default::default(),
            views: Mutex::new(views),
            looking: AtomicBool::new(false),
        }
    }

    /// Orders that have come since the last call; without any, one atomic load.
    pub(super) fn take_orders(&self) -> Vec<Order> {
        if !self.waiting.swap(false, Ordering::Acquire) {
            return Vec::new();
        }
        std::mem::take(&mut *lock(&self.orders))
    }

    /// Whether orders are waiting.
    pub(super) fn has_orders(&self) -> bool {
        self.waiting.load(Ordering::Relaxed)
    }

    pub(super) fn publish_counts(&self, counts: &Counts) {
        let Counts { frames, cyclic, malformed, lost, duplicated, delayed, corrupted } = *counts;
        let all = [frames, cyclic, malformed, lost, duplicated, delayed, corrupted];
        for (cell, value) in self.counts.iter().zip(all) {
            cell.store(value, Ordering::Relaxed);
        }
    }

    /// Refreshes the views, if nobody is just reading them.
    pub(super) fn publish_views(&self, fill: impl Iterator<Item = DeviceView>) {
        if let Ok(mut views) = self.views.try_lock() {
            views.iter_mut().zip(fill).for_each(|(view, new)| *view = new);
            self.looking.store(false, Ordering::Release);
        }
    }

    pub(super) fn is_watched(&self) -> bool {
        self.looking.load(Ordering::Relaxed)
    }
}

/// Switches faults and looks at a running segment. Any number of clones, from any thread; orders
/// take effect before the next frame.
#[derive(Debug, Clone)]
pub struct SegmentControl(pub(super) Arc<ControlState>);

impl SegmentControl {
    fn order(&self, order: Order) {
        lock(&self.0.orders).push(order);
        self.0.waiting.store(true, Ordering::Release);
    }

    fn device_order(&self, device: usize, order: Order) -> Result<(), ControlError> {
        let last = self.0.names.len() - 1;
        if device > last {
            return Err(ControlError::NoDevice { asked: device, last });
        }
        self.order(order);
        Ok(())
    }

    /// The place of the device called `name`.
    ///
    /// # Errors
    /// [`ControlError::NoName`].
    pub fn find(&self, name: &str) -> Result<usize, ControlError> {
        let place = self.0.names.iter().position(|other| other == name);
        place.ok_or_else(|| ControlError::NoName { asked: name.to_owned() })
    }

    /// Lets `fault` happen to the frames that `when` reports, instead of what was set for it
    /// before.
    pub fn wire(&self, fault: WireFault, when: When) {
        self.order(Order::Wire(fault, when));
    }

    /// Pulls the cable before the device: it and all behind it are gone, and keep their power.
    ///
    /// # Errors
    /// [`ControlError::NoDevice`], as all below.
    pub fn unplug(&self, device: usize) -> Result<(), ControlError> {
        self.device_order(device, Order::Unplug(device))
    }

    /// Puts the cable back.
    pub fn plug(&self, device: usize) -> Result<(), ControlError> {
        self.device_order(device, Order::Plug(device))
    }

    /// Takes the device's power for a moment: it is back at once, in INIT, and knows nothing of its
    /// configuration.
    pub fn power_cycle(&self, device: usize) -> Result<(), ControlError> {
        self.device_order(device, Order::PowerCycle(device))
    }

    /// The device refuses to enter `state` from below, with AL status `code`.
    pub fn refuse(&self, device: usize, state: AlState, code: u16) -> Result<(), ControlError> {
        self.device_order(device, Order::Refuse(device, Some(Refusal { state, code })))
    }

    /// The device enters every state again.
    pub fn accept(&self, device: usize) -> Result<(), ControlError> {
        self.device_order(device, Order::Refuse(device, None))
    }

    /// The device falls to `state` by itself, with error flag and AL status `code`.
    pub fn fall(&self, device: usize, state: AlState, code: u16) -> Result<(), ControlError> {
        self.device_order(device, Order::Fall(device, state, code))
    }

    /// Another identity in EEPROM and object 0x1018.
    pub fn set_identity(&self, device: usize, identity: Identity) -> Result<(), ControlError> {
        self.device_order(device, Order::Identity(device, identity))
    }

    /// Breaks the device's EEPROM.
    pub fn spoil_sii(&self, device: usize, defect: SiiDefect) -> Result<(), ControlError> {
        self.device_order(device, Order::Spoil(device, defect))
    }

    /// Writes a sound EEPROM again.
    pub fn restore_sii(&self, device: usize) -> Result<(), ControlError> {
        self.device_order(device, Order::RestoreSii(device))
    }

    /// A drive goes to its fault state; no effect on other kinds.
    pub fn drive_fault(&self, device: usize) -> Result<(), ControlError> {
        self.device_order(device, Order::DriveFault(device))
    }

    /// Sets the inputs of a digital I/O device; `None` wires its outputs back.
    pub fn set_inputs(&self, device: usize, inputs: Option<u8>) -> Result<(), ControlError> {
        self.device_order(device, Order::Inputs(device, inputs))
    }

    /// One event at an event probe, now.
    pub fn strike(&self, device: usize) -> Result<(), ControlError> {
        self.device_order(device, Order::Strike(device))
    }

    /// Counts so far.
    pub fn counts(&self) -> Counts {
        let [frames, cyclic, malformed, lost, duplicated, delayed, corrupted] =
            std::array::from_fn(|at| self.0.counts[at].load(Ordering::Relaxed));
        Counts { frames, cyclic, malformed, lost, duplicated, delayed, corrupted }
    }

    /// The devices as they were at the last frame with process data.
    pub fn devices(&self) -> Vec<DeviceView> {
        lock(&self.0.views).clone()
    }

    /// The devices at the next frame, of whatever kind; gives up waiting for one after `patience`.
    pub fn devices_now(&self, patience: Duration) -> Vec<DeviceView> {
        self.0.looking.store(true, Ordering::Release);
        let end = std::time::Instant::now() + patience;
        while self.0.is_watched() && std::time::Instant::now() < end {
            std::thread::sleep(Duration::from_micros(200));
        }
        lock(&self.0.views).clone()
    }
}

//! From a wire to devices in OP.

use std::time::Duration;

use ethercrab::subdevice_group::{PreOp, PreOpPdi};
use ethercrab::{Command, SubDeviceGroup};
use takt_rt::ring::{self, Consumer};

use super::cache::{CacheReader, cache};
use super::clock::ClockLock;
use super::config::{ControlConfig, ExchangeMode, Identity, MAX_DEVICES};
use super::cyclic::{Cyclic, cut};
use super::delays::align_clocks;
use super::error::{ControlError, Mismatch};
use super::event::{EventKind, LinkEvent, state_name};
use super::master::{Carrier, Limits, Master};
use super::objects;
use super::port::{ImagePlace, LateAnswer, Parts, Port};
use super::states::Cycling;
use super::stats::{TimingReader, channel};
use super::wire::Wire;
use crate::frame::MAX_DATA;

/// Most process data: four frames.
pub(super) const MAX_IMAGE: usize = 4 * MAX_DATA;
/// Number of a device's fieldbus memory management units.
const FMMU_COUNT: u16 = 0x0004;
/// Most of them, from 0x0600 on.
const FMMUS: u16 = 16;
const FMMU: u16 = 0x0600;
/// Register of a device's features; bit 2: it has a distributed clock.
const FEATURES: u16 = 0x0008;
const DISTRIBUTED_CLOCK: u16 = 1 << 2;
const DC_SYSTEM_TIME: u16 = 0x0910;
const DC_CYCLIC_CONTROL: u16 = 0x0980;
/// Bit 0 switches the cyclic unit on, bit 1 Sync0.
const DC_ACTIVATION: u16 = 0x0981;
const DC_SYNC_START: u16 = 0x0990;
const DC_SYNC0_CYCLE: u16 = 0x09A0;
/// From the setting of Sync0 to its first pulse: later than the setting can take.
const SYNC0_AHEAD_NS: u64 = 100_000_000;
/// Cycles before Sync0 is set and states are changed: the clocks, which nobody compared while
/// objects were written, come together.
const FIRST_CYCLES: u32 = 64;
/// Events kept until somebody takes them: more than those of a whole segment that falls out of OP
/// and comes back.
const EVENTS: usize = 1024;
/// Late answers kept for a reader that is slow: seconds of a wire on which every frame is late.
const LATE: usize = 8192;
/// Cycle of the exchange while devices go to OP: their watchdogs want data.
const CYCLE: Duration = Duration::from_millis(1);

/// Progress of the bring-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Present step.
    pub phase: &'static str,
    /// Devices on the wire, once they are counted.
    pub devices: usize,
    /// Devices known to be in OP.
    pub in_op: usize,
    /// Time since the start.
    pub elapsed: Duration,
}

/// A device as found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Its own name.
    pub name: String,
    /// Its identity.
    pub identity: Identity,
    /// Its station address.
    pub address: u16,
    /// Place of its data.
    pub place: ImagePlace,
}

/// A segment in OP.
pub struct Link {
    /// For the motion controller.
    pub port: Port,
    /// For everybody else.
    pub readers: Vec<CacheReader>,
    /// Events on the wire.
    pub events: Consumer<LinkEvent>,
    /// Answers that came late, each with what is known of its way.
    pub late: Consumer<LateAnswer>,
    /// Timing, for an [`Exporter`](super::Exporter).
    pub timing: TimingReader,
    /// The devices, in the order of the wire.
    pub devices: Vec<Found>,
    /// Duration of the bring-up.
    pub took: Duration,
}

type Mapped = SubDeviceGroup<MAX_DEVICES, MAX_IMAGE, ethercrab::DefaultLock, PreOpPdi>;
type Group = SubDeviceGroup<MAX_DEVICES, MAX_IMAGE, ethercrab::DefaultLock, PreOp>;

/// Brings the devices on `wire` to OP. Call it from a thread without real-time policy: it takes
/// seconds and allocates.
///
/// # Errors
/// [`ControlError`]: nobody there, other devices than configured, a device that refuses.
pub fn bring_up(
    wire: Box<dyn Wire>,
    config: &ControlConfig,
    observe: &mut dyn FnMut(Progress),
) -> Result<Link, ControlError> {
    config.validate()?;
    let mut master = Master::new(wire, config.clock_frames)?;
    let begun_ns = master.now_ns();
    let limits = Limits::of(config, begun_ns);
    let mut report = |phase: &'static str, devices: usize, in_op: usize, now_ns: u64| {
        let elapsed = Duration::from_nanos(now_ns.saturating_sub(begun_ns));
        observe(Progress { phase, devices, in_op, elapsed });
    };

    let mut tries = 1;
    let Prepared { group, devices, clocks, addresses, image_bytes } = loop {
        match prepare(&mut master, config, &limits, &mut report) {
            // A frame was lost, be it the first of all: begin again, with all devices in INIT. Who
            // is not there costs `attempts` silences.
            Err(ControlError::Silent { .. }) if tries < config.attempts => tries += 1,
            outcome => break outcome?,
        }
    };

    let (publisher, readers) = cache(config, image_bytes)?;
    let (events_in, events) = ring::ring(EVENTS);
    let (late_in, late) = ring::ring(LATE);
    let (timing_out, timing) = channel();
    let places: Vec<ImagePlace> = devices.iter().map(|found| found.place.clone()).collect();
    let mut cyclic = Cyclic::new(cut(&places, image_bytes, config.process));
    cyclic.reference = clocks.iter().position(|&has| has).map(|first| devices[first].address);
    let follows = config.clock.follow && cyclic.reference.is_some();
    let wait_us = match config.mode {
        ExchangeMode::Pipelined => config.grace_us,
        ExchangeMode::Waiting => config.timeout_us,
    };
    let port = Port::new(Parts {
        cyclic,
        status_cycles: config.status_cycles,
        master,
        places,
        addresses,
        image_bytes,
        mode: config.mode,
        wait_ns: u64::from(wait_us) * 1000,
        clock: follows.then(|| ClockLock::new(&config.clock)),
        publisher,
        events: events_in,
        late: late_in,
        timing_out,
    });
    let mut link = Link { port, readers, events, late, timing, devices, took: Duration::ZERO };
    if let Err(error) = go_up(group, &mut link, &clocks, config, &limits, &mut report) {
        // Nobody will cycle them: they are not left behind in SAFE-OP or OP.
        let _ = link.port.shut_down(CYCLE);
        return Err(error);
    }
    link.port.begin_counting();
    let now_ns = link.port.now_ns();
    report("in OP", link.devices.len(), link.devices.len(), now_ns);
    link.took = Duration::from_nanos(now_ns.saturating_sub(begun_ns));
    Ok(link)
}

/// Observer of a bring-up: phase, devices, those in OP, the time.
type Report<'a> = dyn FnMut(&'static str, usize, usize, u64) + 'a;

/// Devices in PRE-OP, configured, with their clocks compared.
struct Prepared {
    group: Mapped,
    devices: Vec<Found>,
    /// Whether each of them has a distributed clock.
    clocks: Vec<bool>,
    addresses: Vec<u16>,
    image_bytes: usize,
}

/// From a wire to devices in PRE-OP. No cycle is under way yet, so that all of it can be done
/// again.
fn prepare(
    master: &mut Master,
    config: &ControlConfig,
    limits: &Limits,
    report: &mut Report<'_>,
) -> Result<Prepared, ControlError> {
    let device = master.device();
    report("looking for devices", 0, 0, master.now_ns());
    let found = device.init_single_group::<MAX_DEVICES, MAX_IMAGE>(ethercrab::std::ethercat_now);
    let group: Group = master.run("looking for devices", limits, found)?;
    let mut devices: Vec<Found> = group
        .iter(device)
        .map(|sub| {
            let ethercrab::SubDeviceIdentity { vendor_id, product_id, revision, serial } = sub.identity();
            Found {
                name: sub.name().to_owned(),
                identity: Identity { vendor: vendor_id, product: product_id, revision, serial },
                address: sub.configured_address(),
                place: ImagePlace::default(),
            }
        })
        .collect();
    check_identities(config, &devices)?;

    report("configuring devices", devices.len(), 0, master.now_ns());
    for (position, wanted) in config.devices.iter().enumerate() {
        for write in &wanted.startup {
            let future = async {
                let sub = group.subdevice(device, position)?;
                match (&write.data, write.bytes) {
                    (Some(_), _) => Ok(()),
                    (None, 1) => sub.sdo_write(write.index, write.sub, write.value as u8).await,
                    (None, 2) => sub.sdo_write(write.index, write.sub, write.value as u16).await,
                    (None, _) => sub.sdo_write(write.index, write.sub, write.value).await,
                }
            };
            master.run("configuring devices", limits, future).map_err(|error| match error {
                ControlError::Master { message, .. } => ControlError::Object {
                    position,
                    name: wanted.name.clone(),
                    index: write.index,
                    sub: write.sub,
                    value: write.value,
                    message,
                },
                other => other,
            })?;
            if write.data.is_some() || write.verify {
                let found = &devices[position];
                objects::write(master, limits, position, found, write)?;
            }
        }
    }

    // The mapping is written in PRE-OP, so that cycles can begin before anybody goes to SAFE-OP.
    let group = master.run("mapping process data", limits, group.into_pre_op_pdi(device))?;
    let mut image_bytes = 0;
    for (position, found) in devices.iter_mut().enumerate() {
        found.place = read_place(master, limits, found.address)?;
        image_bytes = image_bytes.max(found.place.inputs.end).max(found.place.outputs.end);
        if let Some(wanted) = config.devices.get(position) {
            check_mapping(position, &wanted.name, "inputs", wanted.input_bytes, found.place.inputs.len())?;
            check_mapping(position, &wanted.name, "outputs", wanted.output_bytes, found.place.outputs.len())?;
        }
    }
    let clocks = find_clocks(master, limits, &devices)?;
    let addresses: Vec<u16> = devices.iter().map(|found| found.address).collect();
    align_clocks(master, limits, &addresses, &clocks)?;
    Ok(Prepared { group, devices, clocks, addresses, image_bytes })
}

/// From PRE-OP to OP, with cycles all the while.
fn go_up(
    group: Mapped,
    link: &mut Link,
    clocks: &[bool],
    config: &ControlConfig,
    limits: &Limits,
    report: &mut Report<'_>,
) -> Result<(), ControlError> {
    let Link { port, events, devices, .. } = link;
    let device = port.master().device();
    port.expect_changes();
    let mut cycling = Cycling::new(port, CYCLE);
    for _ in 0..FIRST_CYCLES {
        cycling.next();
    }
    start_sync0(&mut cycling, limits, devices, clocks, config)?;

    report("going to SAFE-OP", devices.len(), 0, cycling.port.now_ns());
    let up = cycling.run("going to SAFE-OP", limits, group.into_safe_op(device));
    let group = up.map_err(|error| match error {
        ControlError::TooLong { phase, allowed, .. } => {
            let detail = behind_in(cycling.port.master(), devices, SAFE_OP);
            ControlError::TooLong { phase, allowed, detail }
        }
        other => other,
    })?;

    report("going to OP", devices.len(), 0, cycling.port.now_ns());
    // The group goes on living in the devices' registers alone: process data are exchanged by
    // `Port`.
    let _ = cycling.run("going to OP", limits, group.request_into_op(device))?;
    reach_op(&mut cycling, events, limits, devices, report)
}

/// Exchanges process data until all devices are in OP.
fn reach_op(
    cycling: &mut Cycling<'_>,
    events: &mut Consumer<LinkEvent>,
    limits: &Limits,
    devices: &[Found],
    report: &mut Report<'_>,
) -> Result<(), ControlError> {
    let mut reported = 0;
    let mut refused: Option<LinkEvent> = None;
    loop {
        let exchanged = cycling.next();
        while let Some(event) = take_one(events) {
            if let EventKind::DeviceState { state, .. } = event.kind
                && state & 0x10 != 0
            {
                refused = Some(event);
            }
        }
        let (all_op, behind) = cycling.port.not_in_op();
        if all_op && exchanged.complete() {
            return Ok(());
        }
        let in_op = devices.len() - behind.len();
        let now_ns = cycling.port.now_ns();
        if in_op != reported {
            reported = in_op;
            report("going to OP", devices.len(), in_op, now_ns);
        }
        if now_ns >= limits.deadline_ns {
            let mut detail = if behind.is_empty() {
                let (got, expected) = (exchanged.working_counter, exchanged.expected_counter);
                let (answer, all) = (exchanged.devices, devices.len());
                format!(": {answer} of {all} devices answer, working counter {got}, expected {expected}")
            } else {
                let name = |&(device, state): &(usize, u8)| {
                    let found = devices.get(device)?;
                    Some(format!("device {device} ({}) is in {}", found.name, state_name(state)))
                };
                let names: Vec<String> = behind.iter().take(4).filter_map(name).collect();
                format!(": {} of {} devices are not in OP; {}", behind.len(), devices.len(), names.join(", "))
            };
            if let Some(LinkEvent { kind: EventKind::DeviceState { device, code, .. }, .. }) = refused {
                detail.push_str(&format!("; device {device} refuses with AL status code {code:#06x}"));
            }
            return Err(ControlError::TooLong { phase: "going to OP", allowed: limits.allowed, detail });
        }
    }
}

/// Finds the devices with a distributed clock.
fn find_clocks(master: &mut Master, limits: &Limits, devices: &[Found]) -> Result<Vec<bool>, ControlError> {
    let device = master.device();
    let mut clocks = Vec::with_capacity(devices.len());
    for found in devices {
        let read = Command::fprd(found.address, FEATURES).receive::<u16>(device);
        clocks.push(master.run("reading the devices' features", limits, read)? & DISTRIBUTED_CLOCK != 0);
    }
    Ok(clocks)
}

/// Switches Sync0 on where it is asked for.
fn start_sync0(
    cycling: &mut Cycling<'_>,
    limits: &Limits,
    devices: &[Found],
    clocks: &[bool],
    config: &ControlConfig,
) -> Result<(), ControlError> {
    const PHASE: &str = "starting Sync0";
    let device = cycling.port.master().device();
    let first = clocks.iter().position(|&has| has);
    for (position, wanted) in config.devices.iter().enumerate() {
        let (Some(sync0), Some(found)) = (wanted.sync0, devices.get(position)) else { continue };
        let Some(first) = first.filter(|_| clocks.get(position) == Some(&true)) else {
            return Err(ControlError::NoClock { position, name: wanted.name.clone() });
        };
        let read = Command::fprd(devices[first].address, DC_SYSTEM_TIME).receive::<u64>(device);
        let now = cycling.run(PHASE, limits, read)?;
        let bus_ns = config.clock.period_ns();
        let cycle_ns = if sync0.cycle_us == 0 { bus_ns.into() } else { u64::from(sync0.cycle_us) * 1000 };
        let shift_ns = sync0.shift_us.map_or(u64::from(bus_ns / 2), |shift_us| u64::from(shift_us) * 1000);
        let grid_ns = cycle_ns.max(bus_ns.into());
        let start =
            (now / grid_ns * grid_ns).wrapping_add(SYNC0_AHEAD_NS / grid_ns * grid_ns + grid_ns + shift_ns);
        let write = async {
            // Off before it is changed (ET1100 data sheet, section 9.2.3).
            Command::fpwr(found.address, DC_ACTIVATION).send(device, 0_u8).await?;
            Command::fpwr(found.address, DC_CYCLIC_CONTROL).send(device, 0_u8).await?;
            Command::fpwr(found.address, DC_SYNC_START).send(device, start).await?;
            Command::fpwr(found.address, DC_SYNC0_CYCLE).send(device, cycle_ns as u32).await?;
            Command::fpwr(found.address, DC_ACTIVATION).send(device, 3_u8).await
        };
        cycling.run(PHASE, limits, write)?;
    }
    Ok(())
}

fn take_one(events: &mut Consumer<LinkEvent>) -> Option<LinkEvent> {
    let mut one = [LinkEvent { cycle: 0, at_ns: 0, kind: EventKind::LinkBack }];
    (events.take(&mut one) == 1).then_some(one[0])
}

const SAFE_OP: u8 = 4;

/// Devices that are not in `state`, as the end of a sentence.
fn behind_in(master: &mut Master, devices: &[Found], state: u8) -> String {
    // A moment of its own: the time of the bring-up is over.
    let second = Duration::from_secs(1);
    let limits = Limits {
        deadline_ns: master.now_ns() + second.as_nanos() as u64,
        allowed: second,
        silence: second / 5,
    };
    let device = master.device();
    let mut behind = Vec::new();
    for (position, found) in devices.iter().enumerate() {
        let read = Command::fprd(found.address, 0x0130).ignore_wkc().receive::<[u8; 6]>(device);
        match master.run("asking for states", &limits, read) {
            Ok(status) if status[0] & 0x1F != state => {
                let code = u16::from_le_bytes([status[4], status[5]]);
                behind.push(format!(
                    "device {position} ({}) is in {}, AL status code {code:#06x}",
                    found.name,
                    state_name(status[0] & 0x1F)
                ));
            }
            Ok(_) => {}
            Err(_) => break,
        }
    }
    if behind.is_empty() { String::new() } else { format!(": {}", behind.join(", ")) }
}

fn check_identities(config: &ControlConfig, found: &[Found]) -> Result<(), ControlError> {
    if config.devices.is_empty() {
        if found.is_empty() {
            let message = "frames come back, but no device took part".to_owned();
            return Err(ControlError::Master { phase: "looking for devices", message });
        }
        return Ok(());
    }
    let mismatches: Vec<Mismatch> = (0..config.devices.len().max(found.len()))
        .filter_map(|position| {
            let (expected, found) = (config.devices.get(position), found.get(position));
            let right = expected.is_some_and(|e| found.is_some_and(|f| e.identity.accepts(&f.identity)));
            (!right).then(|| Mismatch {
                position,
                expected: expected.map(|device| (device.name.clone(), device.identity)),
                found: found.map(|device| (device.name.clone(), device.identity)),
            })
        })
        .collect();
    if mismatches.is_empty() { Ok(()) } else { Err(ControlError::Devices(mismatches)) }
}

fn check_mapping(
    position: usize,
    name: &str,
    direction: &'static str,
    expected: Option<usize>,
    found: usize,
) -> Result<(), ControlError> {
    match expected {
        Some(expected) if expected != found => {
            Err(ControlError::Mapping { position, name: name.to_owned(), direction, expected, found })
        }
        _ => Ok(()),
    }
}

/// Reads where a device's data lie from its own memory management units: what holds on the wire,
/// whoever wrote it.
fn read_place(master: &mut Master, limits: &Limits, address: u16) -> Result<ImagePlace, ControlError> {
    let device = master.device();
    let mut place = ImagePlace::default();
    // Number of its units; masters leave gaps among them.
    let count = Command::fprd(address, FMMU_COUNT).receive::<u8>(device);
    let count = u16::from(master.run("reading the mapping", limits, count)?).min(FMMUS);
    for unit in 0..count {
        let read = Command::fprd(address, FMMU + 16 * unit).receive::<[u8; 16]>(device);
        let unit = master.run("reading the mapping", limits, read)?;
        if unit[12] & 1 == 0 {
            continue;
        }
        let start = u32::from_le_bytes([unit[0], unit[1], unit[2], unit[3]]) as usize;
        let length = usize::from(u16::from_le_bytes([unit[4], unit[5]]));
        if length == 0 || start + length > MAX_IMAGE {
            continue;
        }
        let part = match unit[11] & 3 {
            1 => &mut place.inputs,
            2 => &mut place.outputs,
            _ => continue,
        };
        *part = if part.start == part.end {
            start..start + length
        } else {
            part.start.min(start)..part.end.max(start + length)
        };
    }
    Ok(place)
}

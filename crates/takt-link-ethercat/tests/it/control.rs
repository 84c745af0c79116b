//! The control interface on the simulated segment, in process.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use takt_link_ethercat::control::{
    CacheKind, ControlConfig, ControlError, DeviceConfig, EventKind, ExchangeMode, Exchanged, Identity, Link,
    LinkEvent, ObjectWrite, ProcessCommands, bring_up, in_process,
};
use takt_link_ethercat::segment::{
    AlState, DeviceKind, Segment, SegmentConfig, SegmentControl, SiiDefect, When, WireFault,
};
use takt_rt::clock::monotonic_ns;
use takt_rt::proof::allocations;

/// The segment's own list, as a master is reported it.
fn expected(segment: &SegmentConfig) -> Vec<DeviceConfig> {
    let device = |(place, device): (usize, &takt_link_ethercat::segment::DeviceConfig)| {
        let identity = device.identity(place);
        DeviceConfig {
            name: device.name.clone(),
            identity: Identity {
                vendor: identity.vendor,
                product: identity.product,
                revision: identity.revision,
                serial: identity.serial,
            },
            input_bytes: Some(device.kind.input_bytes()),
            output_bytes: Some(device.kind.output_bytes()),
            startup: match device.kind {
                DeviceKind::Drive => {
                    vec![ObjectWrite { index: 0x6060, bytes: 1, value: 8, ..ObjectWrite::default() }]
                }
                _ => Vec::new(),
            },
            sync0: None,
        }
    };
    segment.devices.iter().enumerate().map(device).collect()
}

/// Patient with a busy machine.
fn config(segment: &SegmentConfig) -> ControlConfig {
    ControlConfig {
        devices: expected(segment),
        bring_up_ms: 20_000,
        silence_ms: 2000,
        ..ControlConfig::default()
    }
}

fn segment(devices: usize) -> SegmentConfig {
    SegmentConfig { watchdog_ms: 6000, ..SegmentConfig::humanoid(devices) }
}

fn up(devices: usize, change: impl FnOnce(&mut ControlConfig)) -> (Link, SegmentControl) {
    let description = segment(devices);
    let segment = Segment::new(&description).unwrap();
    let control = segment.control();
    let mut config = config(&description);
    change(&mut config);
    (bring_up(in_process(segment), &config, &mut |_| {}).unwrap(), control)
}

/// Exchanges at the pace of the test.
fn cycles(link: &mut Link, count: usize) -> Vec<Exchanged> {
    (0..count)
        .map(|_| {
            std::thread::sleep(Duration::from_micros(200));
            link.port.exchange(monotonic_ns() + 1_000_000)
        })
        .collect()
}

fn events(link: &mut Link) -> Vec<EventKind> {
    let mut list: Vec<LinkEvent> = Vec::new();
    link.events.take_into(&mut list, usize::MAX);
    list.iter().map(|event| event.kind).collect()
}

#[test]
fn all_59_devices_reach_op_and_exchange() {
    let description = segment(59);
    let mut phases = Vec::new();
    let segment = Segment::new(&description).unwrap();
    let mut link = bring_up(in_process(segment), &config(&description), &mut |progress| {
        phases.push((progress.phase, progress.in_op));
    })
    .unwrap();
    assert_eq!(phases.first().unwrap().0, "looking for devices");
    assert_eq!(*phases.last().unwrap(), ("in OP", 59));
    assert_eq!(link.devices.len(), 59);
    let bytes = description.input_bytes() + description.output_bytes();
    assert_eq!(link.port.image_bytes(), bytes);
    // Places neither overlap nor leave gaps.
    let mut taken: Vec<usize> = link
        .port
        .places()
        .iter()
        .flat_map(|place| place.inputs.clone().chain(place.outputs.clone()))
        .collect();
    taken.sort_unstable();
    assert!(taken.into_iter().eq(0..bytes));

    let all = cycles(&mut link, 50);
    // Cycles have not stopped since the bring-up: the first exchange fetches what that sent last.
    assert!(all.iter().all(|exchanged| exchanged.complete() && exchanged.all_op && exchanged.devices == 59));
    assert_eq!(all[9].expected_counter, description.working_counter());
    assert_eq!(link.port.totals().lost_frames, 0);
    assert!(events(&mut link).iter().all(|kind| matches!(kind, EventKind::DeviceState { state: 8, .. })));
    let seen = link.readers[0].read(|snapshot| (snapshot.cycle, snapshot.image.len())).unwrap();
    assert_eq!(seen, (50, bytes));
}

#[test]
fn a_command_is_applied_and_seen_by_both_modes() {
    for mode in [ExchangeMode::Pipelined, ExchangeMode::Waiting] {
        let (mut link, _control) = up(3, |config| {
            config.mode = mode;
            config.timeout_us = 500_000;
        });
        link.port.outputs_mut(0).copy_from_slice(&[0x34, 0x12]);
        // The probe applies half a millisecond after the frame.
        for _ in 0..20 {
            std::thread::sleep(Duration::from_millis(1));
            link.port.exchange(0);
        }
        assert_eq!(link.port.inputs(0)[2..4], [0x34, 0x12], "{mode:?}");
        assert!(link.port.inputs(99).is_empty() && link.port.outputs_mut(99).is_empty());
    }
}

#[test]
fn devices_without_lrw_are_read_and_written_apart() {
    let (mut link, control) = up(59, |config| {
        config.process = ProcessCommands::LrdLwr;
        config.status_cycles = 10;
    });
    let frames = control.counts().frames;
    link.port.outputs_mut(0).copy_from_slice(&[0x34, 0x12]);
    let all = cycles(&mut link, 50);
    assert_eq!(control.counts().frames - frames, 50, "one frame a cycle");
    assert!(all[1..].iter().all(|exchanged| exchanged.complete() && exchanged.all_op));
    // A device counts 1 where it is read and 1 where it is written, and not 2 as in one datagram
    // for both.
    let description = segment(59);
    let parts = |bytes: fn(DeviceKind) -> usize| {
        description.devices.iter().filter(|device| bytes(device.kind) > 0).count() as u16
    };
    let (inputs, outputs) = (parts(DeviceKind::input_bytes), parts(DeviceKind::output_bytes));
    assert_eq!(all[9].expected_counter, inputs + outputs);
    assert_eq!(description.working_counter(), inputs + 2 * outputs);
    assert_eq!(link.port.inputs(0)[2..4], [0x34, 0x12]);
}

#[test]
fn the_status_of_all_is_asked_as_often_as_instructed() {
    let (mut link, control) = up(10, |config| config.status_cycles = 8);
    cycles(&mut link, 16);
    control.fall(3, AlState::SafeOp, 0x001B).unwrap();
    // Asked in cycle 24, fetched in cycle 25. Working counters do not report: its sync managers
    // stay open in SAFE-OP.
    let all = cycles(&mut link, 10);
    assert_eq!(all.iter().position(|exchanged| !exchanged.all_op), Some(8));
    assert!(all.iter().all(Exchanged::complete));
}

#[test]
fn other_and_missing_devices_are_reported_with_their_identities() {
    let description = segment(4);
    let mut config = config(&description);
    config.devices[1].identity.product = 0x77;
    let extra = DeviceConfig { name: "tail".to_owned(), ..DeviceConfig::default() };
    config.devices.push(extra);
    let error =
        bring_up(in_process(Segment::new(&description).unwrap()), &config, &mut |_| {}).err().unwrap();
    let ControlError::Devices(list) = &error else { panic!("{error}") };
    assert_eq!(list.iter().map(|mismatch| mismatch.position).collect::<Vec<_>>(), [1, 4]);
    let text = error.to_string();
    assert!(text.contains("product 0x77") && text.contains("TAKT-IMU"), "{text}");
    assert!(text.contains("tail") && text.contains("found nothing"), "{text}");
}

#[test]
fn another_mapping_is_reported() {
    let description = segment(4);
    let mut config = config(&description);
    config.devices[1].input_bytes = Some(7);
    let error =
        bring_up(in_process(Segment::new(&description).unwrap()), &config, &mut |_| {}).err().unwrap();
    assert!(matches!(error, ControlError::Mapping { position: 1, expected: 7, found: 12, .. }), "{error}");
}

#[test]
fn refused_objects_and_states_are_reported() {
    let description = segment(5);
    let mut config = config(&description);
    config.devices[3].startup =
        vec![ObjectWrite { index: 0x7777, sub: 1, bytes: 2, value: 5, ..ObjectWrite::default() }];
    let error =
        bring_up(in_process(Segment::new(&description).unwrap()), &config, &mut |_| {}).err().unwrap();
    assert!(matches!(error, ControlError::Object { position: 3, index: 0x7777, .. }), "{error}");

    let mut config = self::config(&description);
    config.bring_up_ms = 1500;
    let segment = Segment::new(&description).unwrap();
    segment.control().refuse(2, AlState::Op, 0x001D).unwrap();
    let error = bring_up(in_process(segment), &config, &mut |_| {}).err().unwrap().to_string();
    assert!(error.contains("1 of 5 devices") && error.contains("0x001d"), "{error}");
}

#[test]
fn nobody_on_the_wire_and_broken_eeproms_are_errors() {
    let asked = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&asked);
    let silent = takt_link_ethercat::control::InProcess::new(move |_: &mut [u8], _| {
        counted.fetch_add(1, Ordering::Relaxed);
        None
    });
    let config = ControlConfig { silence_ms: 20, attempts: 4, ..ControlConfig::default() };
    let error = bring_up(Box::new(silent), &config, &mut |_| {}).err().unwrap();
    assert!(matches!(error, ControlError::Silent { .. }), "{error}");
    // Once for each try, and no more: the refusal comes after as many silences.
    assert_eq!(asked.load(Ordering::Relaxed), 4);

    use SiiDefect::{Blank, Checksum, HugeCategory, HugeMailbox, HugeSyncManagers, LongString, Zero};
    let description = segment(4);
    for defect in [Blank, Checksum, HugeCategory, HugeMailbox, HugeSyncManagers, LongString, Zero] {
        let segment = Segment::new(&description).unwrap();
        segment.control().spoil_sii(1, defect).unwrap();
        let mut config = self::config(&description);
        config.bring_up_ms = 1500;
        match bring_up(in_process(segment), &config, &mut |_| {}) {
            Err(error) => assert!(!error.to_string().is_empty()),
            // Some masters can do without the part that is broken.
            Ok(link) => assert_eq!(link.devices.len(), 4, "{defect:?}"),
        }
    }
}

#[test]
fn a_search_whose_first_frames_are_lost_begins_again() {
    for (lost, found) in [(1, true), (2, true), (3, false)] {
        let description = segment(4);
        let segment = Segment::new(&description).unwrap();
        segment.control().wire(WireFault::Drop, When::Next(lost));
        let mut config = self::config(&description);
        (config.silence_ms, config.attempts) = (20, 3);
        match bring_up(in_process(segment), &config, &mut |_| {}) {
            Ok(link) => assert!(found && link.devices.len() == 4, "{lost}"),
            Err(error) => assert!(!found && matches!(error, ControlError::Silent { .. }), "{lost}: {error}"),
        }
    }
}

#[test]
fn lost_frames_are_counted_and_the_link_comes_back() {
    let (mut link, control) = up(10, |_| {});
    cycles(&mut link, 5);
    events(&mut link);
    // One frame a cycle: process data and states.
    control.wire(WireFault::Drop, When::Next(6));
    let all = cycles(&mut link, 30);
    let lost = all.iter().filter(|exchanged| !exchanged.fresh).count();
    assert_eq!((lost, link.port.totals().lost_frames), (6, 6));
    assert_eq!(events(&mut link), [EventKind::FrameLost, EventKind::LinkLost, EventKind::LinkBack]);
    assert!(all.last().unwrap().complete());
}

#[test]
fn wrong_working_counters_are_counted_and_reported_once() {
    let (mut link, control) = up(10, |_| {});
    cycles(&mut link, 5);
    events(&mut link);
    control.wire(WireFault::WorkingCounter, When::Every(1));
    cycles(&mut link, 10);
    control.wire(WireFault::WorkingCounter, When::Never);
    cycles(&mut link, 10);
    let expected = link.port.exchange(0).expected_counter;
    let reported = events(&mut link);
    let wrong = EventKind::WorkingCounter { expected, got: expected - 1 };
    assert_eq!(reported, [wrong, EventKind::WorkingCounterRight]);
    assert_eq!(link.port.totals().working_counter_errors, 10);
}

#[test]
fn a_device_that_leaves_op_is_named() {
    let (mut link, control) = up(10, |_| {});
    cycles(&mut link, 5);
    events(&mut link);
    control.fall(4, AlState::SafeOp, 0x001B).unwrap();
    let all = cycles(&mut link, 60);
    assert!(!all.last().unwrap().all_op);
    let reported = events(&mut link);
    let fell = reported.iter().find_map(|kind| match kind {
        EventKind::DeviceState { device, state, code } => Some((*device, *state & 0x0F, *code)),
        _ => None,
    });
    assert_eq!(fell, Some((4, 4, 0x001B)), "{reported:?}");
}

#[test]
fn an_unplugged_branch_is_noticed_and_its_inputs_stay() {
    let (mut link, control) = up(10, |_| {});
    cycles(&mut link, 5);
    events(&mut link);
    let before = link.port.inputs(9).to_vec();
    control.unplug(8).unwrap();
    let all = cycles(&mut link, 60);
    assert!(all.last().unwrap().fresh && !all.last().unwrap().complete());
    assert_eq!(all.last().unwrap().devices, 8);
    let reported = events(&mut link);
    assert!(reported.contains(&EventKind::DeviceCount { expected: 10, got: 8 }), "{reported:?}");
    assert!(reported.contains(&EventKind::DeviceState { device: 9, state: 0, code: 0 }), "{reported:?}");
    assert_eq!(link.port.inputs(9), before);
}

#[test]
fn doubled_and_delayed_frames_are_strays_and_do_no_harm() {
    let (mut link, control) = up(10, |config| config.grace_us = 0);
    cycles(&mut link, 5);
    control.wire(WireFault::Duplicate, When::Every(2));
    assert!(cycles(&mut link, 20).iter().all(Exchanged::complete));
    control.wire(WireFault::Duplicate, When::Never);
    assert!(link.port.totals().stray_frames > 0);
    control.wire(WireFault::Delay(Duration::from_millis(50)), When::Next(4));
    let all = cycles(&mut link, 300);
    assert!(all.iter().filter(|exchanged| !exchanged.fresh).count() >= 1);
    assert!(all.last().unwrap().complete());
}

#[test]
fn a_cycle_allocates_nothing_and_makes_no_system_call() {
    for cache in [CacheKind::PiMutex, CacheKind::Exchange] {
        let (mut link, control) = up(59, |config| config.cache = cache);
        cycles(&mut link, 5);
        // Faults take other ways through the code.
        control.wire(WireFault::Drop, When::Every(7));
        control.wire(WireFault::WorkingCounter, When::Every(5));
        let before = allocations();
        for _ in 0..200 {
            link.port.exchange(0);
        }
        assert_eq!(allocations() - before, 0, "{cache:?}");
        control.wire(WireFault::WorkingCounter, When::Never);
        control.wire(WireFault::Drop, When::Never);
        let outcome = takt_rt::proof::system_calls_beyond(&[], move || {
            move || {
                for _ in 0..200 {
                    link.port.exchange(0);
                }
                // Freeing it takes system calls.
                std::mem::forget(link);
            }
        });
        match outcome {
            Ok(calls) => assert_eq!(calls.calls, 0, "{cache:?}: system call {:?}", calls.first),
            Err(error) => takt_witness::skip!("no seccomp filter: {error}"),
        }
    }
}

#[test]
fn unknown_interfaces_are_reported_with_those_that_there_are() {
    let error = takt_link_ethercat::control::Interface::open("no-such-if").err().unwrap();
    assert!(matches!(error, ControlError::UnknownInterface { .. }));
    assert!(error.to_string().contains("the interfaces are:"), "{error}");
    assert!(takt_link_ethercat::control::Interface::open("").is_err());
    assert!(takt_link_ethercat::control::Interface::open("a\0b").is_err());
}

#[test]
fn the_timing_is_exported_as_text() {
    use takt_link_ethercat::control::Exporter;
    let (mut link, _control) = up(5, |_| {});
    cycles(&mut link, 10);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ethercat.txt");
    let exporter = Exporter::start(link.timing, path.clone(), Duration::from_millis(1)).unwrap();
    exporter.stop().unwrap().unwrap();
    let text = std::fs::read_to_string(path).unwrap();
    assert!(text.contains("cycles 10\n") && text.contains("period_max_ns "), "{text}");
}

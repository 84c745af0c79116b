#![allow(clippy::unwrap_used, reason = "helpers of tests, which the configuration does not exempt")]

//! The task set in real time: records are complete, jobs neither allocate nor fault nor make system
//! calls but the sleep, lateness reaches the vehicle, and what the kernel refuses is reported.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use takt_robot_uav::control::{AttitudeLaw, ForceCommand, PositionController};
use takt_robot_uav::flight::{AttitudeTask, Flight, PositionTask, TelemetryTask};
use takt_robot_uav::plant::Plant;
use takt_robot_uav::records::{AttitudeRecord, PositionRecord, TelemetryRecord};
use takt_robot_uav::reference::Reference;
use takt_robot_uav::sim::{Pattern, Simulation};
use takt_robot_uav::vehicle::Vehicle;
use takt_robot_uav::{UavConfig, UavError};
use takt_rt::clock::monotonic_ns;
use takt_rt::exchange::latest;
use takt_rt::memory::{self, MemoryLock};
use takt_rt::periodic::{Periodic, Release, SleepStrategy};
use takt_rt::policy::Policy;
use takt_rt::proof::{allocations, frees, system_calls_beyond};
use takt_rt::ring::{Consumer, ring};
use takt_rt::settings::ThreadSettings;
use takt_rt::thread;

const PERIOD_NS: u64 = 4_000_000;

/// All three tasks, to be run by one thread.
struct Fixture {
    attitude: AttitudeTask,
    position: PositionTask,
    telemetry: TelemetryTask,
    records: Consumer<AttitudeRecord>,
    positions: Consumer<PositionRecord>,
    lines: Consumer<TelemetryRecord>,
}

fn fixture(reference: Reference, epoch_ns: u64) -> Fixture {
    let config = UavConfig { reference, ..UavConfig::default() };
    let vehicle = Vehicle::new(&config.vehicle).unwrap();
    let plant = Plant::new(vehicle, config.limits, reference);
    let first = *plant.state();
    let (state, mut states) = latest(2, || first);
    let (force, mut forces) = latest(2, || ForceCommand::hovering(&config.vehicle));
    let (records_in, records) = ring(1 << 14);
    let (positions_in, positions) = ring(1 << 12);
    let (lines_in, lines) = ring(1 << 12);
    Fixture {
        attitude: AttitudeTask {
            plant,
            law: AttitudeLaw::new(&config.control, &config.vehicle),
            epoch_ns,
            force: forces.pop().unwrap(),
            state,
            records: records_in,
        },
        position: PositionTask {
            controller: PositionController::new(&config.control, &config.vehicle, 0.02),
            reference,
            epoch_ns,
            state: states.pop().unwrap(),
            force,
            records: positions_in,
        },
        telemetry: TelemetryTask {
            state: states.pop().unwrap(),
            force: forces.pop().unwrap(),
            records: lines_in,
        },
        records,
        positions,
        lines,
    }
}

impl Fixture {
    fn job(&mut self, release: &Release) -> AttitudeRecord {
        let record = self.attitude.job(release);
        if release.index.is_multiple_of(5) {
            self.position.job(release);
        }
        if release.index.is_multiple_of(12) {
            self.telemetry.job();
        }
        record
    }
}

fn release(index: u64, epoch_ns: u64, lateness_ns: u64, skipped: u64) -> Release {
    let planned_ns = epoch_ns + index * PERIOD_NS;
    Release { index, planned_ns, wake_ns: planned_ns + lateness_ns, skipped }
}

fn all<T: Copy + Send>(consumer: &mut Consumer<T>) -> Vec<T> {
    let mut records = Vec::new();
    while consumer.take_into(&mut records, 1024) > 0 {}
    assert_eq!(consumer.lost(), 0);
    records
}

/// Policies that need no privilege, so that the test runs anywhere.
fn unprivileged(iterations: u64) -> UavConfig {
    let mut config = UavConfig { iterations, ..UavConfig::default() };
    config.attitude.policy = Policy::Other { nice: 0 };
    config.position.policy = Policy::Other { nice: 0 };
    config.tasks.lock_memory = false;
    config
}

fn fly_out(flight: &Flight) {
    let until = Instant::now() + Duration::from_secs(60);
    while !flight.is_finished() {
        assert!(Instant::now() < until, "the flight ends by itself");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_flight_ends_by_itself_and_its_records_are_complete() {
    let mut flight = Flight::start(&unprivileged(300)).unwrap();
    let mut records = flight.take_records().unwrap();
    assert!(flight.take_records().is_none());
    let names: Vec<_> = flight.threads().iter().map(|thread| thread.name.clone()).collect();
    assert_eq!(names, ["uav-attitude", "uav-position", "uav-telemetry"]);
    assert_eq!(flight.not_granted(), Vec::<String>::new());
    let epoch_ns = flight.epoch_ns().unwrap();
    fly_out(&flight);
    assert_eq!(flight.jobs(), 300);
    assert_eq!(flight.stop(), Vec::<String>::new());

    let jobs = all(&mut records.attitude);
    assert_eq!(jobs.len(), 300);
    let mut next = 0;
    for job in &jobs {
        assert_eq!(job.index, next + job.skipped, "what is missing was counted");
        next = job.index + 1;
        assert_eq!(job.planned_ns, epoch_ns + job.index * PERIOD_NS);
        let times = [job.planned_ns, job.wake_ns, job.control_start_ns, job.control_end_ns, job.end_ns];
        assert!(times.is_sorted(), "{times:?}");
        assert!(job.position_error_m.is_finite());
    }
    assert!(jobs.last().unwrap().force_sequence > 0, "the position loop was heard");
    let moved = jobs.last().unwrap().position_m[0] - jobs[0].position_m[0];
    assert!(moved.abs() > 0.5, "it flies: {moved}");
    assert!(!all(&mut records.position).is_empty());
    let lines = all(&mut records.telemetry);
    assert!(lines.iter().any(|line| line.roll_pitch_yaw_rad.iter().any(|angle| angle.abs() > 0.01)));
}

#[test]
fn a_prepared_flight_waits_for_its_beginning() {
    let mut flight = Flight::prepare(&unprivileged(30)).unwrap();
    let mut records = flight.take_records().unwrap();
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!((flight.jobs(), flight.epoch_ns(), flight.is_finished()), (0, None, false));
    let before_ns = monotonic_ns();
    flight.begin();
    let epoch_ns = flight.epoch_ns().unwrap();
    flight.begin();
    assert_eq!(flight.epoch_ns(), Some(epoch_ns), "it begins once");
    fly_out(&flight);
    flight.stop();
    let jobs = all(&mut records.attitude);
    assert_eq!(jobs.len(), 30);
    assert!(epoch_ns > before_ns && jobs.iter().all(|job| job.planned_ns >= epoch_ns));
    let mut unused = Flight::prepare(&unprivileged(30)).unwrap();
    let mut records = unused.take_records().unwrap();
    assert_eq!(unused.stop(), Vec::<String>::new());
    assert!(all(&mut records.attitude).is_empty());
}

#[test]
fn stopping_ends_all_threads_early() {
    let mut flight = Flight::start(&unprivileged(1_000_000)).unwrap();
    let mut records = flight.take_records().unwrap();
    while flight.jobs() < 20 {
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(flight.stop(), Vec::<String>::new());
    assert!(records.attitude.is_abandoned() && records.position.is_abandoned());
    assert!(all(&mut records.attitude).len() >= 20);
}

#[test]
fn impossible_flights_do_not_start() {
    let refused = |change: fn(&mut UavConfig)| {
        let mut config = unprivileged(10);
        change(&mut config);
        Flight::start(&config).unwrap_err()
    };
    assert!(
        matches!(refused(|c| c.iterations = 0), UavError::Config(error) if error.to_string().contains("iterations"))
    );
    let strict = refused(|c| {
        c.tasks.strict = true;
        c.attitude.cpus = takt_rt::placement::CpuSet::single(takt_rt::placement::CpuSet::MAX_CPU).ok();
    });
    assert!(matches!(strict, UavError::RealTime(takt_rt::Error::NotGranted { .. })), "{strict}");
}

#[test]
fn jobs_neither_allocate_nor_fault() {
    let settings = ThreadSettings {
        policy: Policy::Fifo { priority: 40 },
        lock_memory: MemoryLock::All,
        prefault_stack_bytes: 128 << 10,
        ..ThreadSettings::default()
    };
    let (send, receive) = mpsc::channel();
    let handle = thread::spawn("uav-test", &settings, move || {
        let mut fixture = fixture(Reference::default(), monotonic_ns());
        let mut periodic =
            Periodic::new(fixture.attitude.epoch_ns, Duration::from_millis(1), SleepStrategy::Kernel)
                .unwrap();
        let count = || (allocations(), frees(), memory::thread_faults());
        for _ in 0..100 {
            fixture.job(&periodic.next());
        }
        let before = count();
        for _ in 0..1000 {
            fixture.job(&periodic.next());
        }
        let after = count();
        let _ = send.send((before, after, all(&mut fixture.records).len()));
    })
    .unwrap();
    for difference in &handle.granted().differences {
        takt_witness::skip!("in part: {difference}");
    }
    let (before, after, records) = receive.recv().unwrap();
    handle.join().unwrap();
    memory::unlock();
    assert_eq!(before, after, "allocations, frees, page faults");
    assert!(before.0 > 0, "the counter counts: building the tasks allocated");
    assert_eq!(records, 1100);
}

#[test]
fn jobs_make_no_system_call_but_the_sleep() {
    // A late release on a busy machine asks for its policy instead of sleeping, and does not yield
    // under SCHED_OTHER.
    let allowed = [libc::SYS_sched_getscheduler];
    let outcome = system_calls_beyond(&allowed, || {
        let mut fixture = fixture(Reference::default(), monotonic_ns());
        let mut periodic =
            Periodic::new(fixture.attitude.epoch_ns, Duration::from_millis(1), SleepStrategy::Kernel)
                .unwrap();
        for _ in 0..50 {
            fixture.job(&periodic.next());
        }
        move || {
            for _ in 0..1000 {
                fixture.job(&periodic.next());
            }
            std::mem::forget(fixture);
        }
    });
    match outcome {
        Ok(unexpected) => assert_eq!(unexpected.calls, 0, "first: {:?}", unexpected.first),
        Err(error) => takt_witness::skip!("{error}"),
    }
}

#[test]
fn punctual_tasks_fly_as_the_simulation_does() {
    let epoch_ns = monotonic_ns() + 3_600_000_000_000;
    let mut fixture = fixture(Reference::default(), epoch_ns);
    let mut ideal = Simulation::new(&UavConfig::default()).unwrap();
    for index in 0..2500 {
        // Within one thread the position job follows the attitude job; its clock readings lie
        // before the epoch, so commands take effect at once.
        fixture.job(&release(index, epoch_ns, 0, 0));
    }
    ideal.fly_to(2500 * PERIOD_NS, Pattern::Punctual);
    let last = all(&mut fixture.records)[2499];
    let difference = (ideal.plant().state().position_m - nalgebra::Vector3::from(last.position_m)).norm();
    // The simulation's position loop sees the state of one attitude job earlier.
    assert!(difference < 0.02, "{difference}");
    assert!(last.position_error_m < 0.05 && last.loss.is_none());
    assert_eq!(all(&mut fixture.positions).len(), 500);
    assert_eq!(all(&mut fixture.lines).len(), 209);
}

#[test]
fn lateness_reaches_the_vehicle() {
    let epoch_ns = monotonic_ns() + 3_600_000_000_000;
    let fly = |hold_ms: u64| {
        let mut fixture = fixture(Reference::aggressive_step(), epoch_ns);
        let mut index = 0;
        while index < 2000 {
            // The step is at release 1000; the job at 1015 is late by the hold, and the releases in
            // it are skipped.
            let lateness_ns = if index == 1015 { hold_ms * 1_000_000 } else { 0 };
            let skipped = lateness_ns / PERIOD_NS;
            fixture.job(&release(index, epoch_ns, lateness_ns, 0));
            index += 1 + skipped;
        }
        all(&mut fixture.records)
    };
    let punctual = fly(0);
    let deviation = |flight: &[AttitudeRecord]| {
        let apart = |record: &AttitudeRecord| {
            let undisturbed = nalgebra::Vector3::from(punctual[record.index as usize].position_m);
            // The late job itself reads a later state.
            if record.wake_ns > record.planned_ns {
                0.0
            } else {
                (undisturbed - nalgebra::Vector3::from(record.position_m)).norm()
            }
        };
        flight.iter().map(apart).fold(0.0, f64::max)
    };
    let row = [0, 10, 80, 600].map(|hold_ms| deviation(&fly(hold_ms)));
    assert_eq!(row[0], 0.0);
    assert!(row.windows(2).all(|pair| pair[1] > pair[0]), "{row:?}");
    assert!(fly(600).last().unwrap().loss.is_some() && fly(10).last().unwrap().loss.is_none());
}

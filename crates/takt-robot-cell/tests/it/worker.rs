//! The whole cell with its perception in a process of its own, and everything that this process may
//! do wrong.

use crate::support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use takt_perception::process::{EventKind, Program};
use takt_perception::{Device, FrameHealth, Streams, WhenOpen};
use takt_robot_cell::cell::StartOptions;
use takt_robot_cell::records::SsmJob;
use takt_robot_cell::ssm::{Fault, FaultKind};
use takt_robot_cell::{Cell, CellConfig, CellError};

use support::{Running, alone, set_people};

/// Two cameras in an empty cell, judged by a process; with so much time that only planted faults
/// are late.
fn config() -> CellConfig {
    let mut config = support::config(2);
    set_people(&mut config, &[]);
    config.perception.device = Device::Cuda;
    let gpu = &mut config.perception.gpu;
    gpu.budget_ms = 900.0;
    gpu.breaker.hang_ms = 1000.0;
    gpu.breaker.cool_down_ms = 100.0;
    gpu.breaker.trials = 3;
    gpu.start_timeout_s = 50.0;
    config
}

fn runs_free(job: &SsmJob) -> bool {
    job.decision.speed_fraction == 1.0
}

fn is_blind(job: &SsmJob) -> bool {
    job.decision.fault.is_some_and(|fault| fault.kind == FaultKind::InferenceFailed)
}

fn count(running: &Running, kind: EventKind) -> usize {
    running.worker.iter().filter(|record| record.kind == kind).count()
}

#[test]
fn a_cell_runs_on_what_its_perception_process_says() {
    let _alone = alone();
    let mut running = Running::start(&config());
    running.until("the robot runs free", 0, |_, jobs| jobs.iter().any(runs_free));
    running.more_jobs(300);
    let facts = running.cell.worker().expect("a worker");
    assert!(facts.pid.is_some() && facts.threads.len() == 2, "{facts:#?}");
    assert!(running.cell.engine().contains("separate process"), "{}", running.cell.engine());
    let finished = running.stop();
    let answered = finished.worker.iter().filter(|r| r.kind == EventKind::Answered).count();
    let judged = finished.frames.iter().filter(|f| f.health == FrameHealth::Ok).count();
    assert!(answered > 10 && answered <= judged, "{answered} answers, {judged} judged frames");
    for frame in &finished.frames {
        assert!(frame.start_ns <= frame.inferred_ns && frame.inferred_ns <= frame.projected_ns, "{frame:#?}");
        assert!(frame.projected_ns <= frame.published_ns, "{frame:#?}");
    }
}

/// The robot runs, the worker fails, the robot stops, a fresh worker proves itself, the robot runs
/// again.
fn stops_and_goes_on(config: &CellConfig, fault: &str, kind: EventKind) {
    let _alone = alone();
    let mut running = Running::with_fault(config, fault);
    running.until("the robot runs free", 0, |_, jobs| jobs.iter().any(runs_free));
    let from = running.jobs.len();
    running.until("the robot stops", from.saturating_sub(1), |_, jobs| jobs.iter().any(is_blind));
    let stopped = running.jobs.iter().find(|job| is_blind(job)).expect("just seen");
    assert!(stopped.decision.stop && stopped.decision.speed_fraction == 0.0);
    let from = running.jobs.len();
    running.until("the robot runs again", from, |_, jobs| jobs.iter().any(runs_free));
    assert!(count(&running, kind) > 0 && count(&running, EventKind::Restarted) > 0);
    assert!(count(&running, EventKind::BreakerClosed) > 0);
    assert!(running.cell.worker().is_some_and(|worker| worker.generation > 1));
    running.stop();
}

#[test]
fn a_worker_that_crashes_stops_the_robot_until_a_fresh_one_proves_itself() {
    stops_and_goes_on(&config(), "abort@60", EventKind::Crashed);
}

#[test]
fn a_worker_that_hangs_stops_the_robot_until_a_fresh_one_proves_itself() {
    let mut config = config();
    config.perception.gpu.budget_ms = 200.0;
    config.perception.gpu.breaker.hang_ms = 400.0;
    config.perception.gpu.breaker.overruns = 1000;
    stops_and_goes_on(&config, "hang@60", EventKind::Hung);
}

#[test]
fn a_lost_device_stops_the_robot_until_a_fresh_process_proves_itself() {
    stops_and_goes_on(&config(), "lost@60", EventKind::Lost);
}

#[test]
fn with_the_fallback_the_robot_never_stops_for_the_worker() {
    let _alone = alone();
    let mut config = config();
    config.perception.gpu.breaker.when_open = WhenOpen::Fallback;
    let mut running = Running::with_fault(&config, "lost@60");
    running.until("the robot runs free", 0, |_, jobs| jobs.iter().any(runs_free));
    let begin = std::time::Instant::now();
    while count(&running, EventKind::BreakerClosed) == 0 {
        assert!(begin.elapsed().as_secs() < 60, "waited in vain: {:#?}", running.worker.last());
        running.more_jobs(10);
    }
    assert!(count(&running, EventKind::BreakerOpen) > 0);
    let finished = running.stop();
    assert!(!finished.jobs.iter().any(is_blind));
}

#[test]
fn dropped_frames_leave_no_result_and_are_counted() {
    let _alone = alone();
    let mut config = config();
    config.perception.gpu.fallback = takt_perception::Fallback::Drop;
    config.perception.gpu.budget_ms = 60.0;
    config.perception.gpu.breaker.overruns = 1000;
    let mut running = Running::with_fault(&config, "sleep@30+3:150");
    let begin = std::time::Instant::now();
    loop {
        running.more_jobs(10);
        let after = running.worker.iter().filter(|r| r.kind == EventKind::Overrun).map(|r| r.frame).max();
        let answered = |frame| running.frames.iter().any(|f| f.sequence > frame && f.dropped > 0);
        if after.is_some_and(answered) {
            break;
        }
        assert!(begin.elapsed().as_secs() < 60, "waited in vain: {:#?}", running.worker.last());
    }
    let finished = running.stop();
    for overrun in finished.worker.iter().filter(|r| r.kind == EventKind::Overrun) {
        let same = |f: &&takt_robot_cell::records::FrameRecord| {
            Some(f.camera) == overrun.camera && f.sequence == overrun.frame
        };
        assert!(!finished.frames.iter().any(|f| same(&f)), "a dropped frame has no result");
    }
}

#[test]
fn a_gpu_that_is_not_there_is_refused_by_name_and_replaced_under_auto() {
    let _alone = alone();
    let mut config = config();
    // Where a GPU is, a number that no machine has.
    config.perception.gpu.ordinal = 1000;
    let start = |config: &CellConfig| {
        Cell::start(config, StartOptions { worker: Some(support::on_device()), ..StartOptions::default() })
    };
    let Err(error) = start(&config) else { panic!("no such GPU") };
    assert!(matches!(error, CellError::Worker { .. }), "{error}");
    let message = error.to_string();
    assert!(message.starts_with("perception.device = \"cuda\": ") && !message.contains('\n'), "{message}");

    config.perception.device = Device::Auto;
    let mut running = Running::with_worker(&config, support::on_device());
    let label = running.cell.not_granted().join("\n");
    assert!(label.contains("perception runs on the CPU, because: "), "{label}");
    running.until("the robot runs free", 0, |_, jobs| jobs.iter().any(runs_free));
    assert!(running.cell.worker().is_none());
    running.stop();
}

#[test]
fn a_start_that_is_stopped_while_it_waits_for_the_worker_ends_and_leaves_nothing() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    for device in [Device::Cuda, Device::Auto] {
        let mut config = config();
        config.perception.device = device;
        // A worker that says its number and is never ready.
        let last_words = folder.path().join(device.to_string());
        let script =
            format!("echo $$ > '{0}.new' && mv '{0}.new' '{0}'; exec sleep 1000", last_words.display());
        let worker = Program {
            path: "/bin/sh".into(),
            arguments: vec!["-c".into(), script.into()],
            variables: Vec::new(),
        };
        let stop = std::sync::Arc::new(AtomicBool::new(false));
        let outcome = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !last_words.exists() && !stop.load(Ordering::Acquire) {
                    std::thread::sleep(Duration::from_millis(2));
                }
                stop.store(true, Ordering::Release);
            });
            let options = StartOptions { worker: Some(worker), stop: Some(&stop), ..StartOptions::default() };
            let outcome = Cell::start(&config, options).map(drop);
            // The other thread ends, whatever came of it.
            stop.store(true, Ordering::Release);
            outcome
        });
        // Neither that the worker was too slow, nor a cell that judges on the CPU instead.
        assert!(matches!(outcome, Err(CellError::Stopped)), "{device}: {outcome:?}");
        let pid = std::fs::read_to_string(&last_words).expect("the worker had begun");
        assert!(!std::path::Path::new(&format!("/proc/{}", pid.trim())).exists(), "worker {pid} is left");
    }
}

#[test]
fn a_start_that_is_stopped_before_it_begins_opens_no_camera() {
    let _alone = alone();
    let stop = std::sync::Arc::new(AtomicBool::new(true));
    let mut config = config();
    config.perception.device = Device::Cpu;
    let outcome = Cell::start(&config, StartOptions { stop: Some(&stop), ..StartOptions::default() });
    assert!(matches!(outcome.map(drop), Err(CellError::Stopped)));
}

#[test]
fn the_first_blind_job_names_the_camera() {
    let _alone = alone();
    let mut running = Running::with_fault(&config(), "lost@20/all");
    running.until("a camera is blind", 0, |_, jobs| jobs.iter().any(is_blind));
    let job = running.jobs.iter().find(|job| is_blind(job)).expect("just seen");
    assert!(matches!(job.decision.fault, Some(Fault { camera: Some(0 | 1), .. })));
    running.stop();
}

/// A worker on the emulated device; `None`, with the reason printed, where that cannot be compiled.
fn emulated(faults: &str) -> Option<Program> {
    match takt_gpu::testing::emulator() {
        Ok(emulator) => {
            let mut program = support::on_device();
            let environment = emulator.environment(faults).into_iter();
            program.variables.extend(environment.map(|(name, value)| (name.into(), value)));
            Some(program)
        }
        Err(reason) => {
            let required = std::env::var_os("TAKT_REQUIRE_OUTSIDE").is_some_and(|value| value == "1");
            assert!(!required, "TAKT_REQUIRE_OUTSIDE=1, but {reason}");
            takt_witness::skip!("{reason}");
            None
        }
    }
}

#[test]
fn a_cell_on_a_gpu_survives_the_loss_of_the_gpu() {
    let _alone = alone();
    // The device is lost after some thousand launches, in every process.
    let Some(program) = emulated("lost=1500") else { return };
    for streams in [Streams::PerCamera, Streams::Batch] {
        let mut config = config();
        config.perception.gpu.streams = streams;
        let mut running = Running::with_worker(&config, program.clone());
        running.until("the robot runs free", 0, |_, jobs| jobs.iter().any(runs_free));
        assert!(running.cell.not_granted().iter().any(|line| line.contains("emulated")), "labelled");
        assert!(running.cell.engine().contains("emulated"), "{}", running.cell.engine());
        running.until("the robot stops", 0, |_, jobs| jobs.iter().any(is_blind));
        let from = running.jobs.len();
        running.until("the robot runs again", from, |_, jobs| jobs.iter().any(runs_free));
        assert!(count(&running, EventKind::Lost) > 0 && count(&running, EventKind::Restarted) > 0);
        let answered = running.worker.iter().filter(|r| r.kind == EventKind::Answered);
        assert!(
            answered.clone().any(|r| r.camera == Some(0)) && answered.clone().any(|r| r.camera == Some(1))
        );
        running.stop();
    }
}

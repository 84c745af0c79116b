//! Real worker processes with planted faults. The worker is this very test program, started again
//! with one test selected.

// Not every test program uses all of the rig.
#[allow(dead_code)]
use crate::rig;

use std::time::{Duration, Instant};

use takt_perception::process::breaker::State;
use takt_perception::process::{EventKind, Judged, WorkerError};
use takt_perception::{Fallback, PerceptionConfig, WhenOpen};

use rig::{ALL, PATIENCE, Rig, perception};

#[test]
fn a_worker_answers_as_perception_in_the_same_process_does() {
    let config = perception();
    let mut rig = Rig::start(&config, "");
    let mut local = rig.local();
    for _ in 0..20 {
        let (judged, remote) = rig.frame();
        assert_eq!(judged, Judged::Worker);
        let expected = local.judge(&rig);
        assert_eq!(remote.objects(), expected.objects());
        assert_eq!((remote.health, remote.tcp_m), (expected.health, expected.tcp_m));
    }
    assert_eq!((rig.count(EventKind::Answered), rig.kinds()), (20, Vec::new()));
    let facts = rig.started.supervisor.facts();
    assert_eq!((facts.about.device.as_str(), facts.generation, facts.threads.len()), ("stand-in", 1, 1));
    assert!(facts.about.labels.is_empty());
    let pid = facts.pid.unwrap();
    assert!(std::path::Path::new(&format!("/proc/{pid}")).exists());
    rig.started.supervisor.stop();
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists(), "the worker is gone");
}

#[test]
fn frames_over_budget_have_the_fallback_and_their_late_answers_never_count() {
    let mut config = perception();
    config.gpu.budget_ms = 30.0;
    config.gpu.breaker.overruns = 1000;
    let mut rig = Rig::start(&config, "sleep@5+3:120");
    let mut fell_back = Vec::new();
    rig.until("all late answers came", &[Judged::Worker, Judged::Fallback], |rig, judged| {
        if judged == Judged::Fallback {
            fell_back.push(rig.frame.sequence);
        }
        rig.count(EventKind::Late) >= 1 && rig.count(EventKind::Overrun) >= 3 && judged == Judged::Worker
    });
    assert_eq!(rig.started.supervisor.state(), State::Closed);
    let label = rig.started.supervisor.facts().about.labels.join(" ");
    assert!(label.contains("planted fault: sleep"), "{label}");
    let overrun = rig.records.iter().find(|r| r.kind == EventKind::Overrun).unwrap();
    assert!(overrun.camera == Some(0) && overrun.frame > 0 && !overrun.cause.as_str().is_empty());
    // Each frame that the fallback judged is there, with the reason.
    let reported: Vec<_> = rig.records.iter().filter(|r| r.kind == EventKind::Fallback).collect();
    assert_eq!(reported.iter().map(|r| r.frame).collect::<Vec<_>>(), fell_back);
    assert!(
        reported.iter().all(|r| r.camera == Some(0) && !r.cause.as_str().is_empty()),
        "{:#?}",
        rig.kinds()
    );
}

#[test]
fn without_a_fallback_frames_are_dropped() {
    let mut config = perception();
    config.gpu.budget_ms = 30.0;
    config.gpu.fallback = Fallback::Drop;
    config.gpu.breaker.overruns = 1000;
    let mut rig = Rig::start(&config, "sleep@3:150");
    let mut dropped = false;
    rig.until("a frame was dropped", &[Judged::Worker, Judged::Dropped], |_, judged| {
        dropped |= judged == Judged::Dropped;
        dropped && judged == Judged::Worker
    });
}

#[test]
fn overruns_in_a_row_open_the_breaker_and_the_same_process_proves_itself() {
    let mut config = perception();
    config.gpu.budget_ms = 40.0;
    let mut rig = Rig::start(&config, "sleep@5+6:100");
    rig.until("the breaker closed again", &ALL, |rig, _| rig.count(EventKind::BreakerClosed) > 0);
    assert!(rig.cause(EventKind::BreakerOpen).contains("3 frames in a row"), "{:#?}", rig.kinds());
    assert!(rig.count(EventKind::BreakerHalfOpen) > 0);
    assert_eq!(rig.started.supervisor.state(), State::Closed);
}

fn recovers_in_a_fresh_process(config: &PerceptionConfig, fault: &str, kind: EventKind) -> Rig {
    let mut rig = Rig::start(config, fault);
    let first = rig.started.supervisor.facts().pid.expect("a living worker");
    rig.until("the breaker closed again", &ALL, |rig, _| rig.count(EventKind::BreakerClosed) > 0);
    assert!(rig.count(kind) > 0, "{:#?}", rig.kinds());
    assert!(rig.count(EventKind::Restarted) > 0, "{:#?}", rig.kinds());
    let facts = rig.started.supervisor.facts();
    assert_ne!(facts.pid, Some(first), "a fresh process");
    assert!(facts.generation > 1);
    rig.until("the worker answers", &[Judged::Worker], |_, _| true);
    rig
}

#[test]
fn a_hung_worker_is_replaced() {
    let mut config = perception();
    config.gpu.budget_ms = 30.0;
    config.gpu.breaker.hang_ms = 200.0;
    config.gpu.breaker.overruns = 1000;
    let rig = recovers_in_a_fresh_process(&config, "hang@4", EventKind::Hung);
    assert!(rig.cause(EventKind::BreakerOpen).contains("no answer at all"), "{:#?}", rig.kinds());
}

#[test]
fn a_crashed_worker_is_replaced() {
    let rig = recovers_in_a_fresh_process(&perception(), "abort@4", EventKind::Crashed);
    assert!(rig.cause(EventKind::Crashed).contains("signal 6"), "{:#?}", rig.kinds());
}

#[test]
fn a_lost_device_has_a_fresh_process() {
    let rig = recovers_in_a_fresh_process(&perception(), "lost@4", EventKind::Lost);
    assert!(rig.cause(EventKind::BreakerOpen).contains("the device is lost"), "{:#?}", rig.kinds());
}

#[test]
fn an_answer_about_another_frame_is_not_believed() {
    let rig = recovers_in_a_fresh_process(&perception(), "other@4", EventKind::Garbled);
    assert!(rig.cause(EventKind::Garbled).contains("requested was frame"), "{:#?}", rig.kinds());
}

#[test]
fn frames_that_cannot_be_judged_have_the_fallback() {
    let mut rig = Rig::start(&perception(), "error@3+2");
    rig.until("two failed", &[Judged::Worker, Judged::Fallback], |rig, judged| {
        rig.count(EventKind::Failed) == 2 && judged == Judged::Worker
    });
    assert_eq!(rig.started.supervisor.state(), State::Closed, "two in a row are below three");
}

#[test]
fn the_fallback_answers_while_the_breaker_is_open_if_so_configured() {
    let mut config = perception();
    config.gpu.breaker.when_open = WhenOpen::Fallback;
    let mut rig = Rig::start(&config, "lost@2");
    let mut fell_back = 0;
    rig.until("the breaker closed again", &[Judged::Worker, Judged::Fallback], |rig, judged| {
        fell_back += usize::from(judged == Judged::Fallback);
        rig.count(EventKind::BreakerClosed) > 0
    });
    assert_eq!(rig.count(EventKind::Fallback), fell_back);
    let mut causes = rig.records.iter().filter(|r| r.kind == EventKind::Fallback).map(|r| r.cause);
    assert!(causes.any(|cause| cause.as_str().contains("the device is lost")), "{:#?}", rig.kinds());
}

#[test]
fn a_worker_that_fails_again_and_again_is_given_up() {
    let mut config = perception();
    config.gpu.breaker.restarts = 2;
    let mut rig = Rig::start(&config, "lost@2/all");
    rig.until("it was given up", &ALL, |rig, _| rig.count(EventKind::GivenUp) > 0);
    assert_eq!((rig.count(EventKind::Restarted), rig.started.supervisor.state()), (2, State::GivenUp));
    rig.until("blind for good", &[Judged::Blind], |_, _| true);
}

#[test]
fn a_worker_that_cannot_start_says_why_in_one_sentence() {
    let Err(error) =
        Rig::try_start(&perception(), "", [("TAKT_CUDA_LIBRARY", "/nonexistent/libcuda.so.1".into())])
    else {
        panic!("no GPU here")
    };
    let message = error.to_string();
    assert!(matches!(error, WorkerError::Refused(_)), "{message}");
    assert!(!message.contains('\n') && message.contains("no CUDA driver"), "{message}");

    let Err(error) = Rig::try_start(&perception(), "nonsense", []) else { panic!("refused") };
    assert!(error.to_string().contains("expected KIND@FRAME"), "{error}");
}

#[test]
fn the_worker_ends_with_its_cell() {
    // A cell in a process of its own, which is then killed: this test program once more.
    const IS_CELL: &str = "TAKT_TEST_IS_CELL";
    if std::env::var_os(IS_CELL).is_some() {
        let rig = Rig::start(&perception(), "");
        println!("pid={}", rig.started.supervisor.facts().pid.unwrap());
        loop {
            std::thread::sleep(PATIENCE);
        }
    }
    let mut cell = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["process_faults::the_worker_ends_with_its_cell", "--exact", "--nocapture"])
        .env(IS_CELL, "1")
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let out = std::io::BufReader::new(cell.stdout.take().unwrap());
    let pid = std::io::BufRead::lines(out)
        .map_while(Result::ok)
        .find_map(|line| line.rsplit_once("pid=").map(|(_, pid)| pid.trim().to_owned()))
        .expect("the cell's worker");
    let worker = format!("/proc/{pid}/stat");
    assert!(std::path::Path::new(&worker).exists());
    cell.kill().unwrap();
    cell.wait().unwrap();
    let begin = Instant::now();
    // Gone, or a zombie that its new parent has not yet reaped.
    while std::fs::read_to_string(&worker).is_ok_and(|stat| !stat.contains(") Z ")) {
        assert!(begin.elapsed() < PATIENCE, "the worker outlives its cell");
        std::thread::sleep(Duration::from_millis(10));
    }
}

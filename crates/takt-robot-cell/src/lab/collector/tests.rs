use takt_link_rtde::client::SendOutcome;
use takt_rt::exchange;
use takt_rt::ring::ring;

use super::*;
use crate::ssm::MAX_CAMERAS;

fn job(index: u64) -> SsmJob {
    let at_ns = 1_000_000 * index;
    SsmJob {
        index,
        planned_ns: at_ns,
        wake_ns: at_ns,
        start_ns: at_ns,
        end_ns: at_ns,
        input_sequences: [0; MAX_CAMERAS],
        decision: Decision::STOPPED,
        heartbeat: 0,
        sent: SendOutcome::Sent,
        echo: 0,
        echo_received_ns: 0,
    }
}

/// A bound that is reported while records are taken is one of the records that were made after it:
/// they are judged by bounds read later.
#[test]
fn bounds_are_asked_for_after_records_are_taken() {
    let root = tempfile::tempdir().unwrap();
    let dir = RunDir::create(root.path(), "bounds").unwrap();
    let (mut jobs_in, jobs) = ring(2);
    let (status, _) = exchange::latest(1, CellStatus::default);
    let (_, robot) = exchange::latest(1, RobotState::default);
    let board = Board {
        status,
        robot: robot.into_iter().next().unwrap(),
        policy: String::new(),
        ssm: SsmConfig::default(),
        tasks: TaskSet::default(),
        facts: Arc::default(),
        deadline_ms: 37.3,
        cameras: 0,
        threads: Arc::default(),
    };
    let rules = Rules { ssm_period_ns: 1_000_000, ssm_deadline_ns: 1_000_000, ..Rules::default() };
    let window = Window::default();
    window.open(0);
    let records = Records { jobs, frames: Vec::new(), worker: Vec::new() };
    let mut collector = CellCollector::bounded(&dir, records, board, rules, &mut [], &window, 10).unwrap();
    assert!(jobs_in.push(job(1)) && jobs_in.push(job(2)));

    let held = window.hold();
    let turning = std::thread::spawn(move || {
        collector.turn().unwrap();
        collector
    });
    // Bounds are not known yet, and the ring is emptied all the same.
    let begun = Instant::now();
    while !jobs_in.push(job(3)) {
        assert!(begun.elapsed() < Duration::from_secs(60), "the ring is full: bounds are asked for first");
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(held);
    assert!(turning.join().unwrap().last_job.is_some());
}

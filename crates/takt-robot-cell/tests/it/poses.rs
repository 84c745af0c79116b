//! The robot's poses reach perception without the safety job: it runs ten times a second here, and
//! every frame is judged all the same.

use crate::support;

use support::{Running, alone, config, set_people};
use takt_perception::FrameHealth;
use takt_robot_cell::tasks::TaskTiming;

#[test]
fn frames_are_judged_while_the_safety_job_starves() {
    let _alone = alone();
    let mut config = config(1);
    set_people(&mut config, &[]);
    // Poses are held for 40 ms: through the safety job, most frames would have none.
    config.tasks.ssm = TaskTiming { period_ms: 100.0, deadline_ms: 100.0, runtime_ms: 0.4 };
    let mut running = Running::start(&config);
    running.until("some seconds of the safety job", 0, |_, jobs| jobs.len() >= 40);
    let finished = running.stop();
    let judged = finished.frames.len();
    // The first frames of a start may still be warm-up; what is asked about is the steady state.
    let blind = finished.frames.iter().skip(5).filter(|frame| frame.health == FrameHealth::NoPose).count();
    println!("{judged} frames, {blind} without a pose, {} safety jobs", finished.jobs.len());
    assert!(judged > 20, "{judged} frames");
    assert_eq!(blind, 0, "frames without a pose while the robot sent its state 500 times a second");
}

//! The whole cell, running: rendered cameras on the tool of the simulated robot, people whose
//! distance is exactly known, and everything that may fail.
//!
//! Nothing here depends on how fast the machine is: tests wait for what must happen, and judge the
//! records.

use crate::support;

use std::collections::HashMap;
use std::path::Path;

use nalgebra::{Isometry3, Point3};
use takt_link_camera::synthetic::{PersonConfig, Scene};
use takt_link_camera::{CameraConfig, FeedState, ReplayConfig};
use takt_link_rtde::sim::{Fault as RobotFault, RuntimeState, Simulator};
use takt_perception::{FrameHealth, Mount, MountFrame};
use takt_robot_cell::CellConfig;
use takt_robot_cell::records::{FrameRecord, SsmJob};
use takt_robot_cell::ssm::{Fault, FaultKind, Light};

use support::{Finished, Running, alone, config, set_people, wait_until};

/// People who come into both fields, near enough for a stop, and go again.
fn visitors() -> Vec<PersonConfig> {
    let mut near = PersonConfig::walking(0, &[[4.8, 0.9], [1.6, 0.3]]);
    near.speed_m_s = 2.4;
    let mut far = PersonConfig::walking(1, &[[3.0, 3.2], [2.4, 2.0]]);
    far.speed_m_s = 0.8;
    vec![near, far]
}

fn runs_free(job: &SsmJob) -> bool {
    job.decision.speed_fraction == 1.0
}

fn has_fault(job: &SsmJob, kind: FaultKind, camera: Option<u32>) -> bool {
    job.decision.fault == Some(Fault { kind, camera })
}

/// Properties of every job of every run.
fn assert_sound(config: &CellConfig, jobs: &[SsmJob]) {
    for pair in jobs.windows(2) {
        assert!(pair[0].index < pair[1].index, "jobs in order: {pair:#?}");
        assert!(pair[0].start_ns <= pair[0].end_ns && pair[0].end_ns <= pair[1].wake_ns, "one at a time");
    }
    for job in jobs {
        let decision = &job.decision;
        assert_eq!(decision.breach, decision.separation_m < decision.stop_distance_m, "{job:#?}");
        assert_eq!(decision.stop_distance_m, config.ssm.stop_below_m, "{job:#?}");
        let must_stop = decision.breach || decision.fault.is_some() || decision.recovering;
        assert!(!must_stop || decision.stop, "{job:#?}");
        assert_eq!(decision.stop, decision.speed_fraction == 0.0, "{job:#?}");
        let light = match decision.speed_fraction {
            0.0 => Light::Red,
            1.0 => Light::Green,
            _ => Light::Orange,
        };
        assert_eq!(decision.light, light, "{job:#?}");
    }
}

/// Every frame whose result a job consumed is in that job's decision, and nothing else is.
fn assert_decided_on_frames(cameras: usize, Finished { jobs, frames, .. }: &Finished) {
    let by_sequence: HashMap<(usize, u64), &FrameRecord> =
        frames.iter().map(|frame| ((frame.camera as usize, frame.sequence), frame)).collect();
    let mut seen = vec![0; cameras];
    for job in jobs {
        let mut least_m = f64::INFINITY;
        for (camera, &sequence) in job.input_sequences[..cameras].iter().enumerate() {
            assert!(sequence >= seen[camera], "an older frame of camera {camera} came back: {job:#?}");
            seen[camera] = sequence;
            if sequence > 0 {
                let frame = by_sequence.get(&(camera, sequence)).expect("recorded before it is consumed");
                assert!(frame.published_ns <= job.start_ns, "consumed after it was published");
                least_m = least_m.min(f64::from(frame.nearest_m));
            }
        }
        assert_eq!(
            job.decision.separation_m, least_m,
            "the least separation of the consumed frames: {job:#?}"
        );
    }
}

/// For every frame that shows a breach: the first job that consumed it breaches and stops, and no
/// earlier job that began after publication ran without it. Returns how many there were.
fn assert_breaches_stop(config: &CellConfig, Finished { jobs, frames, .. }: &Finished) -> usize {
    let mut answered = 0;
    let mut late = 0;
    for frame in frames.iter().filter(|f| f64::from(f.nearest_m) < config.ssm.stop_below_m) {
        assert_eq!(frame.health, FrameHealth::Ok);
        let consumed = |job: &SsmJob| job.input_sequences[frame.camera as usize];
        let first = jobs.partition_point(|job| consumed(job) < frame.sequence);
        // A starved SSM thread may find a newer frame already; that one is in the list, too.
        let Some(job) = jobs.get(first).filter(|job| consumed(job) == frame.sequence) else { continue };
        let decision = &job.decision;
        assert!(decision.breach && decision.stop, "{frame:#?} must stop {job:#?}");
        assert!(decision.separation_m <= f64::from(frame.nearest_m), "{frame:#?} {job:#?}");
        // Jobs that woke up between the time stamp of publication and the job that answered it:
        // none, unless the perception thread lost its processor just between time stamp and
        // publication.
        let after = jobs.partition_point(|job| job.wake_ns <= frame.published_ns);
        late += usize::from(first > after);
        answered += 1;
    }
    println!("{answered} breaching frames; {late} missed by the first job that woke up after them");
    assert!(late * 4 <= answered, "{late} of {answered} breaching frames did not stop the robot at once");
    answered
}

/// Contents of a frame.
#[derive(Clone, Copy)]
struct Shot {
    source_ns: u64,
    camera_in_base: Isometry3<f64>,
}

/// The distances of frames that were compared with the truth.
#[derive(Default)]
struct Compared {
    frames: usize,
    nearest_m: f64,
}

/// Compares the newest result of every camera with what the scene's ray caster says.
fn compare_with_truth(
    running: &mut Running,
    config: &CellConfig,
    scene: &Scene,
    shots: &mut [HashMap<u64, Shot>],
    judged: &mut [u64],
    compared: &mut Compared,
) {
    let volume = config.perception.occupancy.volume;
    let floor_m = f64::from(config.perception.occupancy.floor_m);
    for (camera, ports) in running.view.cameras.iter_mut().enumerate() {
        let frame = ports.frames.read().value;
        if let (true, Some(camera_in_base)) = (frame.sequence > 0, frame.camera_in_base) {
            shots[camera].insert(frame.sequence, Shot { source_ns: frame.source_ns, camera_in_base });
        }
        let detections = *ports.detections.read().value;
        if detections.health != FrameHealth::Ok || detections.frame_sequence == judged[camera] {
            continue;
        }
        judged[camera] = detections.frame_sequence;
        let Some(shot) = shots[camera].get(&detections.frame_sequence) else { continue };
        let tcp = Point3::from(detections.tcp_m.cast::<f64>());
        let intrinsics = running.cell.feeds()[camera].intrinsics();
        let truth = scene.truth(&intrinsics, &shot.camera_in_base, shot.source_ns, &tcp);
        let Some(nearest) = truth.first() else { continue };
        // Well inside: not at the border of the volume or the floor, and more than a sliver at the
        // image's edge.
        let p = nearest.nearest_m;
        let inside = (0..2)
            .all(|i| f64::from(volume.min_m[i]) + 0.3 < p[i] && p[i] < f64::from(volume.max_m[i]) - 0.3)
            && floor_m + 0.3 < p.z
            && p.z < f64::from(volume.max_m.z) - 0.1;
        if !inside || nearest.pixels < 400 {
            continue;
        }
        let measured = detections.nearest().map_or(f64::INFINITY, |object| f64::from(object.distance_m));
        let error_m = measured - nearest.distance_m;
        assert!(
            error_m.abs() < 0.05,
            "camera {camera}, frame {}: {measured} m measured, {} m true",
            detections.frame_sequence,
            nearest.distance_m
        );
        compared.frames += 1;
        compared.nearest_m = compared.nearest_m.min(nearest.distance_m);
    }
}

#[test]
#[ignore = "takes 30 s"]
fn people_are_measured_and_every_breach_stops_the_robot() {
    let _alone = alone();
    let mut config = config(2);
    set_people(&mut config, &visitors());
    let CameraConfig::Synthetic(source) = &mut config.cameras[0].source else { panic!("a synthetic camera") };
    let scene = Scene::new(&source.scene).expect("a good scene");
    // Nearly exact depth: the tolerance is for the method, perception's own tests judge it under
    // noise. Without any the picture would count as frozen while nothing moves.
    for camera in &mut config.cameras {
        let CameraConfig::Synthetic(source) = &mut camera.source else { panic!("a synthetic camera") };
        source.depth_noise_m = 0.0002;
    }
    let mut running = Running::start(&config);
    let mut shots = vec![HashMap::new(); 2];
    let mut judged = vec![0; 2];
    let mut compared = Compared { nearest_m: f64::INFINITY, ..Compared::default() };
    let mut outputs = Vec::new();
    // Until it has run, stopped for a person and run again.
    let (mut ran, mut stopped, mut ran_again) = (false, false, false);
    while !(ran_again && compared.frames >= 150 && compared.nearest_m < 1.4) {
        let from = running.jobs.len();
        running.until("the next job", from, |_, jobs| !jobs.is_empty());
        for job in &running.jobs[from..] {
            let d = &job.decision;
            ran |= d.speed_fraction > 0.0;
            stopped |= ran && d.breach;
            ran_again |= stopped && d.speed_fraction > 0.0;
        }
        assert!(running.jobs.len() < 60_000, "ran {ran}, stopped {stopped}, ran again {ran_again}");
        compare_with_truth(&mut running, &config, &scene, &mut shots, &mut judged, &mut compared);
        let robot = running.robot();
        outputs.push((robot.heartbeat, robot.digital_outputs, robot.slider));
    }
    let way_m = running.robot().tcp_way_m;
    let finished = running.stop();
    println!("{} frames compared, nearest {:.2} m, {way_m:.2} m moved", compared.frames, compared.nearest_m);
    assert!(way_m > 0.0, "the arm moved");
    assert_sound(&config, &finished.jobs);
    assert_decided_on_frames(2, &finished);
    assert!(assert_breaches_stop(&config, &finished) > 0);
    assert_lights_follow(&config, &finished.jobs, &outputs);
    let colours: Vec<_> = [Light::Green, Light::Orange, Light::Red]
        .into_iter()
        .filter(|light| finished.jobs.iter().any(|job| job.decision.light == *light))
        .collect();
    assert!(colours.contains(&Light::Red) && colours.len() >= 2, "{colours:?}");
}

/// The robot's lights belong to the command whose number it held then.
fn assert_lights_follow(config: &CellConfig, jobs: &[SsmJob], outputs: &[(i32, u64, f64)]) {
    let light = &config.robot.light;
    let all = 1u64 << light.green | 1 << light.orange | 1 << light.red;
    let by_heartbeat: HashMap<i32, &SsmJob> = jobs.iter().map(|job| (job.heartbeat, job)).collect();
    let mut compared = 0;
    for &(heartbeat, bits, slider) in outputs.iter().filter(|(heartbeat, ..)| *heartbeat != 0) {
        assert_eq!((bits & all).count_ones(), 1, "exactly one light is on, not {bits:#b}");
        let decision = by_heartbeat.get(&heartbeat).expect("the command of a recorded job").decision;
        assert_eq!(bits & all, 1 << light.output(decision.light), "{decision:?}");
        assert_eq!(slider, decision.speed_fraction, "{decision:?}");
        compared += 1;
    }
    assert!(
        compared > outputs.len() / 2,
        "the robot heard of {compared} commands in {} looks",
        outputs.len()
    );
}

#[test]
#[ignore = "takes 30 s"]
fn robot_faults_stop_the_cell_and_it_recovers() {
    let _alone = alone();
    let mut config = config(1);
    set_people(&mut config, &[]);
    let mut running = Running::start(&config);
    running.until("the robot runs freely", 0, |_, jobs| jobs.last().is_some_and(runs_free));

    // A pulled cable, put back at once.
    let (from, moves) = (running.jobs.len(), running.robot().moves_finished);
    running.cell.simulator().expect("simulated").inject(RobotFault::DropLinks);
    running.until("the lost link is noticed", from, |_, jobs| {
        jobs.iter().any(|job| has_fault(job, FaultKind::RobotLinkLost, None))
    });
    running.until("the robot moves again", from, |cell, jobs| {
        let moved = cell.simulator().is_some_and(|robot| robot.state().moves_finished > moves);
        moved && jobs.last().is_some_and(runs_free)
    });
    let lost = running.jobs[from..].iter().position(|job| has_fault(job, FaultKind::RobotLinkLost, None));
    let lost = from + lost.expect("it was noticed");
    let free = running.jobs[lost..].iter().position(|job| !job.decision.stop).expect("it moved");
    assert!(
        running.jobs[lost..lost + free].iter().any(|job| job.decision.recovering),
        "recovery takes its time: no speed straight after a fault"
    );
    assert!(!running.cell.link_events().is_empty(), "the link reports it");

    // Power off and on.
    let from = running.jobs.len();
    let simulator = running.cell.simulator().expect("simulated");
    simulator.inject(RobotFault::PowerOff);
    running.until("the powerless robot is noticed", from, |_, jobs| {
        jobs.iter().any(|job| has_fault(job, FaultKind::RobotNotRunning, None))
    });
    assert!(running.more_jobs(300).iter().all(|job| job.decision.stop), "it stays stopped");
    let from = running.jobs.len();
    let simulator = running.cell.simulator().expect("simulated");
    simulator.inject(RobotFault::PowerOn);
    simulator.inject(RobotFault::Play);
    running.until("the robot runs again", from, |_, jobs| jobs.last().is_some_and(runs_free));

    // A collision: nobody unlocks it, so it stays.
    let from = running.jobs.len();
    running.cell.simulator().expect("simulated").inject(RobotFault::ProtectiveStop);
    running.until("the protective stop is noticed", from, |_, jobs| {
        jobs.iter().any(|job| has_fault(job, FaultKind::RobotSafetyMode, None))
    });
    let after = running.more_jobs(500);
    assert!(after.iter().all(|job| has_fault(job, FaultKind::RobotSafetyMode, None) && job.decision.stop));
    wait_until("the arm rests", || running.robot().joint_speeds_rad_s == [0.0; 6]);
    assert_eq!(running.robot().slider, 0.0);

    let finished = running.stop();
    assert_sound(&config, &finished.jobs);
    assert_decided_on_frames(1, &finished);
}

#[test]
fn a_camera_that_ends_stops_the_robot_for_good() {
    let _alone = alone();
    let mut config = config(1);
    set_people(&mut config, &[]);
    // The second camera plays the last seconds of a recording, and is so far away that it watches
    // nothing.
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recordings/pedestrians");
    let mut ending = config.cameras[0].clone();
    ending.name = "ending".into();
    ending.mount = Mount { frame: MountFrame::Base, position_m: [90.0, 0.0, 0.0], rotation_rad: [0.0; 3] };
    let mut replay = ReplayConfig::new(folder.join("cam0.mcap"), "/cam0");
    replay.start_offset_s = 12.0;
    ending.source = CameraConfig::Replay(replay);
    config.cameras.push(ending);
    // People are 15 to 35 m from the camera of this recording, and its sky has no depth.
    config.perception.health.max_depth_mm = 41_000;
    // Its depth is reconstructed.
    config.perception.health.depth_without_noise = true;

    let mut running = Running::start(&config);
    running.until("the robot runs freely", 0, |_, jobs| jobs.iter().any(runs_free));
    running.until("the end of the recording is noticed", 0, |_, jobs| {
        jobs.iter().any(|job| has_fault(job, FaultKind::StaleFrame, Some(1)))
    });
    assert_eq!(running.cell.feeds()[1].state(), FeedState::Ended);
    assert_eq!(running.cell.feeds()[0].state(), FeedState::Running);
    // Many times the recovery time.
    let after = running.more_jobs(800);
    assert!(
        after.iter().all(|job| job.decision.stop && job.decision.fault.is_some()),
        "no recovery without it"
    );
    assert!(after.iter().any(|job| has_fault(job, FaultKind::StaleFrame, Some(1))));
    wait_until("the arm rests", || running.robot().joint_speeds_rad_s == [0.0; 6]);
    let finished = running.stop();
    let last = finished.frames.iter().filter(|f| f.camera == 1).map(|f| f.sequence).max();
    assert_eq!(last, Some(30), "the recording's last three seconds were judged to the end");
    assert_sound(&config, &finished.jobs);
    assert_decided_on_frames(2, &finished);
}

#[test]
fn the_robot_stops_by_itself_when_takt_dies() {
    let _alone = alone();
    let mut config = config(1);
    set_people(&mut config, &[]);
    // A robot that outlives the cell, and that nobody restarts.
    let mut sim = config.robot.simulator.take().expect("simulated");
    sim.watchdog_auto_resume = false;
    sim.watchdog_min_hz = 1.0;
    let robot = Simulator::start(sim).expect("free ports");
    config.robot.rtde.host = robot.rtde_address().ip().to_string();
    config.robot.rtde.port = robot.rtde_address().port();

    let mut running = Running::start(&config);
    running.until("the arm moves at full speed", 0, |_, jobs| {
        let state = robot.state();
        jobs.last().is_some_and(runs_free)
            && state.speed_fraction == 1.0
            && state.joint_speeds_rad_s[0] != 0.0
    });
    assert!(running.cell.simulator().is_none(), "this robot is not the cell's own");
    assert_eq!((robot.state().watchdog_trips, robot.state().watchdog_armed), (0, true));
    drop(running);

    wait_until("the watchdog trips", || robot.state().watchdog_trips == 1);
    wait_until("the arm rests", || {
        let state = robot.state();
        state.runtime == RuntimeState::Stopped && state.joint_speeds_rad_s == [0.0; 6]
    });
    let resting = robot.state();
    wait_until("hundreds of cycles have passed", || robot.state().cycles > resting.cycles + 300);
    assert_eq!(robot.state().tcp_way_m, resting.tcp_way_m, "it does not move any more");
    assert_eq!(robot.state().clients, 0, "nobody is connected");
}

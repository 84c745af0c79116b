//! A day of the cell's records in a minute: the memory and the disk that its evidence takes do not
//! grow, and nothing is counted wrong.

#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use takt_lab::keeper::Window;
use takt_link_rtde::RobotState;
use takt_link_rtde::client::SendOutcome;
use takt_perception::FrameHealth;
use takt_robot_cell::cell::Records;
use takt_robot_cell::lab::CellSummary;
use takt_robot_cell::lab::collector::{Board, CellCollector};
use takt_robot_cell::lab::rows::{FRAMES, JOBS, REACTION, REACTIONS, SSM_RESPONSE};
use takt_robot_cell::lab::summary::{RunFacts, summarise};
use takt_robot_cell::lab::tally::{CameraRule, Rules};
use takt_robot_cell::records::{FrameRecord, SsmJob};
use takt_robot_cell::ssm::{Decision, Light, MAX_CAMERAS, SsmConfig};
use takt_rt::exchange;
use takt_rt::ring::{Producer, ring};
use takt_rundir::{CpuShare, Measure, RUN_FILE, RunDir};

struct Live;

static LIVE_BYTES: AtomicI64 = AtomicI64::new(0);

// SAFETY: all calls are passed on to the system's allocator unchanged; counting touches no memory
// of theirs.
unsafe impl GlobalAlloc for Live {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE_BYTES.fetch_add(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        LIVE_BYTES.fetch_sub(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Live = Live;

/// Only one test allocates at a time: the counter is the process's.
static ALONE: Mutex<()> = Mutex::new(());

const CAMERAS: u64 = 5;
const FPS: u64 = 30;
const JOBS_A_SECOND: u64 = 500;
const SECOND: u64 = 1_000_000_000;
const FRAME_NS: u64 = SECOND / FPS;
const JOB_NS: u64 = SECOND / JOBS_A_SECOND;
/// When the records begin, and so much later the window.
const BEGIN: u64 = 1_000 * SECOND;

/// Faults in the made-up cell.
#[derive(Clone, Copy)]
struct Faults {
    /// One frame in so many of camera 0 cannot be judged.
    unjudged_every: u64,
    /// One release in so many is skipped.
    skipped_every: u64,
    /// The SSM task ends after so many seconds.
    ssm_seconds: u64,
    /// Whether the controller echoes commands.
    echoes: bool,
}

const SOME: Faults =
    Faults { unjudged_every: 1000, skipped_every: 10_007, ssm_seconds: u64::MAX, echoes: true };

/// A made-up cell: pushes records as the cell's threads do.
struct Source {
    jobs: Producer<SsmJob>,
    frames: Vec<Producer<FrameRecord>>,
    faults: Faults,
    pushed_jobs: u64,
    skipped: u64,
    unjudged: u64,
    newest: [u64; MAX_CAMERAS],
}

impl Source {
    /// One second of records.
    fn second(&mut self, second: u64) {
        let from_ns = BEGIN + second * SECOND;
        for n in 0..JOBS_A_SECOND {
            let index = second * JOBS_A_SECOND + n;
            let planned_ns = from_ns + n * JOB_NS;
            self.frames_until(second, planned_ns);
            if index % self.faults.skipped_every == self.faults.skipped_every - 1 {
                self.skipped += 1;
                continue;
            }
            if second < self.faults.ssm_seconds {
                self.pushed_jobs += 1;
                assert!(self.jobs.push(self.job(index, planned_ns)), "the ring is large enough");
            }
        }
        self.frames_until(second, from_ns + SECOND);
    }

    /// Frames whose results are published before `until_ns`.
    fn frames_until(&mut self, second: u64, until_ns: u64) {
        for camera in 0..CAMERAS as usize {
            loop {
                let sequence = self.newest[camera] + 1;
                let k = sequence - 1;
                let arrival_ns = BEGIN + k / FPS * SECOND + k % FPS * FRAME_NS + camera as u64 * 1_000_000;
                let published_ns = arrival_ns + 6_000_000 + k % 4096;
                if published_ns >= until_ns || k / FPS > second {
                    break;
                }
                let blind = camera == 0 && sequence.is_multiple_of(self.faults.unjudged_every);
                self.unjudged += u64::from(blind);
                self.newest[camera] = sequence;
                let frame = FrameRecord {
                    camera: camera as u32,
                    sequence,
                    capture_ns: arrival_ns,
                    arrival_ns,
                    start_ns: arrival_ns + 100_000,
                    inferred_ns: arrival_ns + 5_000_000,
                    projected_ns: arrival_ns + 5_500_000,
                    published_ns,
                    health: if blind { FrameHealth::NoPose } else { FrameHealth::Ok },
                    people: if blind { 0 } else { 2 },
                    unexplained: 0,
                    nearest_m: 2.0,
                    detected: false,
                    masks: u32::from(!blind),
                    dropped: 0,
                };
                assert!(self.frames[camera].push(frame));
            }
        }
    }

    fn job(&self, index: u64, planned_ns: u64) -> SsmJob {
        let wake_ns = planned_ns + 20_000 + index * 7919 % 60_000;
        let heartbeat = index as i32;
        SsmJob {
            index,
            planned_ns,
            wake_ns,
            start_ns: wake_ns + 1000,
            end_ns: wake_ns + 30_000,
            input_sequences: self.newest,
            decision: Decision {
                speed_fraction: 1.0,
                stop: index.is_multiple_of(5000),
                light: Light::Green,
                separation_m: 3.0,
                ..Decision::STOPPED
            },
            heartbeat,
            sent: SendOutcome::Sent,
            echo: if self.faults.echoes { heartbeat.wrapping_sub(2) } else { 0 },
            echo_received_ns: if self.faults.echoes { wake_ns } else { 0 },
        }
    }
}

/// A collector on a run directory, and what feeds it.
struct Bench {
    dir: RunDir,
    collector: CellCollector,
    source: Source,
    window_ns: [u64; 2],
    rules: Rules,
}

impl Bench {
    fn new(root: &Path, faults: Faults, most_rows: u64, seconds: u64) -> Self {
        let dir = RunDir::create(root, "endless").unwrap();
        let (jobs_in, jobs) = ring(1 << 13);
        let (frames_in, frames): (Vec<_>, Vec<_>) = (0..CAMERAS).map(|_| ring(1 << 10)).unzip();
        let (status, _) = exchange::latest(1, takt_robot_cell::view::CellStatus::default);
        let (_, robot) = exchange::latest(1, RobotState::default);
        let board = Board {
            status,
            robot: robot.into_iter().next().unwrap(),
            policy: "DL+RR".to_owned(),
            ssm: SsmConfig::default(),
            tasks: takt_robot_cell::tasks::TaskSet::default(),
            facts: Arc::default(),
            deadline_ms: 37.3,
            cameras: CAMERAS as usize,
            threads: Arc::default(),
        };
        let camera = |index| CameraRule { name: format!("cam{index}"), period_ns: Some(FRAME_NS) };
        let rules = Rules {
            reaction_deadline_ns: 37_300_000,
            ssm_period_ns: JOB_NS,
            ssm_deadline_ns: JOB_NS,
            perception_deadline_ns: 33_000_000,
            cameras: (0..CAMERAS).map(camera).collect(),
        };
        let mut measures = [
            Measure::new(REACTION, "R", REACTIONS, "answered_ns").since("arrival_ns").deadline_ns(37_300_000),
            Measure::new(SSM_RESPONSE, "S", JOBS, "end_ns").since("planned_ns").deadline_ns(JOB_NS),
        ];
        let window = Window::default();
        let window_ns = [BEGIN + SECOND, BEGIN + seconds * SECOND];
        window.close(window_ns[1]);
        window.open(window_ns[0]);
        let records = Records { jobs, frames, worker: Vec::new() };
        let collector =
            CellCollector::bounded(&dir, records, board, rules.clone(), &mut measures, &window, most_rows)
                .unwrap();
        let source = Source {
            jobs: jobs_in,
            frames: frames_in,
            faults,
            pushed_jobs: 0,
            skipped: 0,
            unjudged: 0,
            newest: [0; MAX_CAMERAS],
        };
        Self { dir, collector, source, window_ns, rules }
    }

    /// `seconds` more seconds of records, taken up as they come.
    fn go_on(&mut self, seconds: std::ops::Range<u64>) {
        for second in seconds {
            self.source.second(second);
            if second % 5 == 4 {
                self.collector.turn().unwrap();
            }
        }
        self.collector.turn().unwrap();
        self.collector.save().unwrap();
    }

    fn finish(self) -> (CellSummary, Source, RunDir) {
        let Self { dir, collector, source, window_ns, rules } = self;
        assert_eq!(collector.finish().unwrap().lost, 0);
        let facts = RunFacts {
            policy: "DL+RR".to_owned(),
            noise: 0,
            cameras: rules.cameras.len() as u32,
            deadline_ms: 37.3,
            window_ns,
            before_ns: 0,
            records_lost: 0,
            not_granted: Vec::new(),
            cpu: CpuShare::default(),
            failures: Vec::new(),
            doubts: Vec::new(),
            longest_still_ms: 0.0,
            losses: Default::default(),
            link_losses: 0,
            detector_runs: 0,
            visualised: None,
            scaled: None,
            worker: None,
        };
        dir.write_json(RUN_FILE, &serde_json::json!({ "facts": facts })).unwrap();
        let mut summary = summarise(&dir).unwrap();
        summary.run_dir = String::new();
        (summary, source, dir)
    }
}

fn disk_bytes(dir: &Path) -> u64 {
    let sizes = std::fs::read_dir(dir).unwrap().map(|entry| {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            disk_bytes(&entry.path())
        } else {
            entry.metadata().unwrap().len()
        }
    });
    sizes.sum()
}

/// Contents of a run after each of `hours`.
fn by_the_hour(bench: &mut Bench, hours: u64) -> Vec<(i64, u64)> {
    (0..hours)
        .map(|hour| {
            bench.go_on(hour * 3600..(hour + 1) * 3600);
            (LIVE_BYTES.load(Ordering::Relaxed), disk_bytes(bench.dir.path()))
        })
        .collect()
}

/// Nothing grows after the first `warm` hours. Recorders write the counts that they hold, which get
/// longer digit by digit.
fn constant(held: &[(i64, u64)], warm: usize) {
    let (bytes, disk) = held[warm - 1];
    for (later_bytes, later_disk) in &held[warm..] {
        assert!(*later_bytes <= bytes + (64 << 10), "memory grows: {held:?}");
        assert!(*later_disk <= disk + disk / 4, "the disk fills: {held:?}");
    }
}

/// Five cameras at 30 FPS and 500 jobs a second: 43 million jobs and 13 million frames.
#[test]
fn a_day_of_running_takes_constant_memory_and_counts_every_record() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    const HOURS: u64 = 24;
    let root = tempfile::tempdir().unwrap();
    let mut bench = Bench::new(root.path(), SOME, 10_000, HOURS * 3600);
    let held = by_the_hour(&mut bench, HOURS);
    println!("live bytes and disk bytes by the hour: {held:?}");
    constant(&held, 3);
    let (s, source, dir) = bench.finish();
    // The window opens a second after the first record: 500 jobs and 150 frames lie before it.
    let day = HOURS * 3600 - 1;
    assert_eq!(s.ssm.jobs + s.ssm.skipped, day * JOBS_A_SECOND);
    assert_eq!(
        (s.ssm.jobs, s.ssm.skipped, s.ssm.late),
        (source.pushed_jobs - JOBS_A_SECOND, source.skipped, 0)
    );
    assert_eq!(s.work.frames_delivered, day * FPS * CAMERAS);
    assert_eq!(s.losses["no-pose"], source.unjudged);
    assert_eq!(s.losses.get("not-delivered"), None, "{:?}", s.reasons);
    assert_eq!(s.frames, day * FPS * CAMERAS - source.unjudged);
    assert_eq!(s.reaction_ms.count + s.unfinished, s.frames);
    assert_eq!(s.people_detected, 2 * s.frames);
    assert_eq!(s.tasks.iter().map(|task| task.misses).sum::<u64>(), source.skipped);
    assert_eq!(dir.columns(JOBS, &["index"]).unwrap()[0].len(), 10_000);
    assert_eq!(dir.columns(FRAMES, &["sequence"]).unwrap()[0].len(), 10_000);
}

/// A task that died, and a controller that echoes nothing: what waits for them is bounded, too, and
/// every frame is a miss.
#[test]
fn what_waits_for_the_dead_does_not_fill_the_memory() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    const HOURS: u64 = 4;
    for (ssm_seconds, echoes) in [(60, true), (u64::MAX, false)] {
        let root = tempfile::tempdir().unwrap();
        let mut bench = Bench::new(root.path(), Faults { ssm_seconds, echoes, ..SOME }, 1000, HOURS * 3600);
        let held = by_the_hour(&mut bench, HOURS);
        constant(&held, 2);
        let (s, source, _) = bench.finish();
        assert_eq!(s.frames, (HOURS * 3600 - 1) * FPS * CAMERAS - source.unjudged);
        assert_eq!(s.reaction_ms.count + s.unfinished, s.frames);
        if echoes {
            assert!(
                s.unanswered_late > (HOURS * 3600 - 70) * FPS * CAMERAS - source.unjudged,
                "{}",
                s.unanswered_late
            );
            assert_eq!(s.ssm.jobs + s.ssm.skipped, (HOURS * 3600 - 1) * JOBS_A_SECOND);
        }
    }
}

/// The figures are the same to the last digit, whether all rows were kept or the first ones.
#[test]
fn figures_do_not_depend_on_how_many_rows_were_kept() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let summary = |most_rows: u64| {
        let root = tempfile::tempdir().unwrap();
        let mut bench = Bench::new(root.path(), SOME, most_rows, 120);
        bench.go_on(0..120);
        let (summary, _, dir) = bench.finish();
        let rows = dir.columns(REACTIONS, &["arrival_ns"]).unwrap()[0].len();
        (serde_json::to_value(summary).unwrap(), rows)
    };
    let (all, every_row) = summary(u64::MAX);
    let (first, few_rows) = summary(50);
    assert_eq!((every_row > 17_000, few_rows), (true, 50));
    assert_eq!(all, first);
    assert!(all["reaction_ms"]["count"].as_u64() > Some(17_000));
    // And they are those of the rows, computed one by one.
    let root = tempfile::tempdir().unwrap();
    let mut bench = Bench::new(root.path(), SOME, u64::MAX, 120);
    bench.go_on(0..120);
    let (s, _, dir) = bench.finish();
    let columns = dir.columns(REACTIONS, &["arrival_ns", "answered_ns"]).unwrap();
    let times = columns[0].iter().zip(&columns[1]).filter(|(arrival, _)| **arrival >= BEGIN + SECOND);
    let mut ms: Vec<f64> = times.map(|(from, to)| (to - from) as f64 / 1e6).collect();
    let exact = takt_stats::Summary::of(&mut ms);
    assert_eq!(
        (s.reaction_ms.count, s.reaction_ms.min, s.reaction_ms.worst),
        (exact.count, exact.min, exact.worst)
    );
    assert!((s.reaction_ms.mean - exact.mean).abs() < 1e-9);
    assert!(
        (s.reaction_ms.p99 - exact.p99).abs() / exact.p99 < 1e-3,
        "{} for {}",
        s.reaction_ms.p99,
        exact.p99
    );
}

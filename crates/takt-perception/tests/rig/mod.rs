//! A camera with a worker process, and what it leaves behind.

mod stand_in;

use std::ffi::OsString;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use nalgebra::Isometry3;
use takt_link_camera::{Frame, Intrinsics};
use takt_perception::process::{
    EventKind, FAULT_VARIABLE, Judged, Program, Record, Setup, Started, Supervisor, WorkerError, judges,
    worker,
};
use takt_perception::{
    Backend, Detections, Device, Engine, EngineConfig, FrameHealth, FramePose, ObjectKind, Perception,
    PerceptionConfig,
};
use takt_rt::clock::monotonic_ns;
use takt_rt::policy::Policy;
use takt_rt::settings::ThreadSettings;

/// Set for the processes that a rig starts: the test program itself, with its test `worker_process`
/// selected. `device` makes it judge on the device of its setup, anything else without one.
const IS_WORKER: &str = "TAKT_TEST_IS_WORKER";
/// Ends a test that hangs; nothing is measured by it.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Becomes a worker where a rig started this process; does nothing else.
/// The worker's entry. It does nothing unless a test started it.
#[test]
fn worker_process() {
    if let Some(kind) = std::env::var_os(IS_WORKER) {
        let code = if kind == "device" { worker::run(&judges) } else { worker::run(&stand_in::judges) };
        std::process::exit(i32::from(code != std::process::ExitCode::SUCCESS));
    }
}

/// This test program as a worker: on a device, where its environment names one.
pub fn program(fault: &str, environment: impl IntoIterator<Item = (&'static str, OsString)>) -> Program {
    let mut variables: Vec<_> = environment.into_iter().map(|(name, value)| (name.into(), value)).collect();
    let kind = if variables.is_empty() { "stand-in" } else { "device" };
    variables.push((IS_WORKER.into(), kind.into()));
    if !fault.is_empty() {
        variables.push((FAULT_VARIABLE.into(), fault.into()));
    }
    Program {
        path: std::env::current_exe().expect("the test program"),
        arguments: ["rig::worker_process", "--exact", "--nocapture", "--test-threads=1"]
            .map(Into::into)
            .into(),
        variables,
    }
}

pub fn intrinsics() -> Intrinsics {
    Intrinsics { width: 96, height: 72, fx: 80.0, fy: 80.0, cx: 47.5, cy: 35.5 }
}

/// No networks: what stands in the volume counts. So much time that only planted faults are late.
pub fn perception() -> PerceptionConfig {
    let mut config = PerceptionConfig { device: Device::Cuda, ..PerceptionConfig::default() };
    config.engine.backend = Backend::Embedded;
    config.detector.enabled = false;
    config.segmenter.enabled = false;
    config.gpu.budget_ms = 900.0;
    config.gpu.breaker.hang_ms = 1500.0;
    config.gpu.breaker.cool_down_ms = 20.0;
    config.gpu.breaker.trials = 3;
    config.gpu.breaker.overruns = 3;
    config.gpu.start_timeout_s = 50.0;
    config
}

pub struct Rig {
    pub started: Started,
    pub frame: Frame,
    pub records: Vec<Record>,
    config: PerceptionConfig,
}

impl Rig {
    pub fn start(config: &PerceptionConfig, fault: &str) -> Self {
        Self::try_start(config, fault, []).expect("a worker")
    }

    pub fn try_start(
        config: &PerceptionConfig,
        fault: &str,
        environment: impl IntoIterator<Item = (&'static str, OsString)>,
    ) -> Result<Self, WorkerError> {
        let setup = Setup {
            device: config.device,
            perception: config.clone(),
            cameras: vec![intrinsics()],
            threads: ThreadSettings::default(),
            library_policy: Policy::Other { nice: 0 },
        };
        let fallback = cpu(config);
        let started = Supervisor::start(
            setup,
            program(fault, environment),
            vec![Some(fallback)],
            &mut |_| (),
            &AtomicBool::new(false),
        )?;
        let mut frame = Frame::new(96, 72);
        for (i, value) in frame.rgb.iter_mut().enumerate() {
            *value = (i % 251) as u8;
        }
        // A thing at 2 m in front of a wall at 8 m.
        frame.depth_mm.fill(8_000);
        for v in 20..50 {
            frame.depth_mm[v * 96 + 30..v * 96 + 60].fill(2_000);
        }
        Ok(Self { started, frame, records: Vec::new(), config: config.clone() })
    }

    pub fn frame(&mut self) -> (Judged, Detections) {
        self.frame.sequence += 1;
        self.frame.capture_ns = monotonic_ns();
        self.frame.arrival_ns = self.frame.capture_ns;
        let mut out = Detections::default();
        let judged =
            self.started.remotes[0].process(&self.frame, Some(&pose()), monotonic_ns(), &mut out, None);
        if judged != Judged::Dropped {
            assert_eq!((out.frame_sequence, out.capture_ns), (self.frame.sequence, self.frame.capture_ns));
        }
        for ring in &mut self.started.records {
            ring.take_into(&mut self.records, usize::MAX);
        }
        (judged, out)
    }

    /// Frames until `done`; every one of them is answered as `allowed` says.
    pub fn until(&mut self, what: &str, allowed: &[Judged], mut done: impl FnMut(&Self, Judged) -> bool) {
        let begin = Instant::now();
        loop {
            let (judged, out) = self.frame();
            assert!(allowed.contains(&judged), "{judged:?} while waiting until {what}: {:#?}", self.kinds());
            if matches!(judged, Judged::Worker | Judged::Fallback) {
                assert_eq!(out.health, FrameHealth::Ok);
                assert_eq!(out.objects().len(), 1, "the thing is seen, whoever judges");
                assert_eq!(out.objects()[0].kind, ObjectKind::Unexplained);
            }
            if judged == Judged::Blind {
                assert_eq!(out.health, FrameHealth::InferenceFailed, "which stops the robot");
                assert!(out.objects().is_empty());
            }
            if done(self, judged) {
                return;
            }
            assert!(begin.elapsed() < PATIENCE, "waited in vain until {what}: {:#?}", self.kinds());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// The CPU's perception in this process, with the same configuration.
    pub fn local(&self) -> Local {
        Local(cpu(&self.config))
    }

    pub fn count(&self, kind: EventKind) -> usize {
        self.records.iter().filter(|record| record.kind == kind).count()
    }

    pub fn kinds(&self) -> Vec<(EventKind, String)> {
        let events = self.records.iter().filter(|record| record.kind != EventKind::Answered);
        events.map(|record| (record.kind, record.cause.to_string())).collect()
    }

    pub fn cause(&self, kind: EventKind) -> String {
        self.records.iter().find(|r| r.kind == kind).map(|r| r.cause.to_string()).unwrap_or_default()
    }
}

/// All judges.
pub const ALL: [Judged; 3] = [Judged::Worker, Judged::Fallback, Judged::Blind];

/// The camera and the tool, always.
fn pose() -> FramePose {
    FramePose::new(Isometry3::translation(0.0, 0.0, -1.0), Isometry3::identity())
}

fn cpu(config: &PerceptionConfig) -> Perception {
    let engine = EngineConfig { backend: Backend::Embedded, ..EngineConfig::default() };
    let engine = Engine::open(&engine).expect("the embedded engine needs nothing");
    Perception::new(config, 0, intrinsics(), &engine, None).expect("perception")
}

/// The reference for the worker.
pub struct Local(Perception);

impl Local {
    /// The rig's newest frame.
    pub fn judge(&mut self, rig: &Rig) -> Detections {
        let mut out = Detections::default();
        self.0.process(&rig.frame, Some(&pose()), monotonic_ns(), &mut out, None);
        out
    }
}

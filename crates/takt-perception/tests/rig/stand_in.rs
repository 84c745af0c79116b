//! Judges of a worker process without a device, for tests of everything around it: depth alone, on
//! the CPU.

use takt_perception::process::worker::{Judges, SetupError};
use takt_perception::process::{About, FrameJudge, JudgeError, Seen, Setup, StageSpans};
use takt_perception::{Backend, Detections, Engine, EngineConfig, FramePose, Perception};
use takt_rt::census::CensusKeeper;

struct StandIn(Perception);

impl FrameJudge for StandIn {
    fn judge(
        &mut self,
        frame: &Seen<'_>,
        pose: Option<&FramePose>,
        start_ns: u64,
        _deadline_ns: u64,
        out: &mut Detections,
    ) -> Result<StageSpans, JudgeError> {
        self.0.process_view(&frame.view, pose, start_ns, out, None);
        let mut parts = StageSpans::default();
        parts.spans[1] = [start_ns, out.times.inferred_ns];
        parts.spans[5] = [out.times.inferred_ns, out.times.projected_ns];
        Ok(parts)
    }
}

/// One for each camera of the setup.
pub fn judges(
    setup: &Setup,
    _census: &CensusKeeper,
    _progress: &(dyn Fn(String) + Sync),
) -> Result<Judges, SetupError> {
    let engine = EngineConfig { backend: Backend::Embedded, ..EngineConfig::default() };
    let engine = Engine::open(&engine).expect("the embedded engine needs nothing");
    let judge = |(index, camera): (usize, &_)| {
        let perception = Perception::new(&setup.perception, index as u32, *camera, &engine, None);
        Box::new(StandIn(perception.expect("perception without networks"))) as Box<dyn FrameJudge>
    };
    let about = About { device: "stand-in".to_owned(), engine: engine.description(), ..About::default() };
    Ok(Judges::new(setup.cameras.iter().enumerate().map(judge).collect(), about, Box::new(())))
}

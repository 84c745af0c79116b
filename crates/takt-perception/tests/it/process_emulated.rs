//! The GPU's pipeline in the worker process, on the emulated device, which breaks when it is
//! instructed to.

#[allow(dead_code)]
use crate::rig;

use takt_gpu::Interference;
use takt_gpu::testing::{Emulator, emulator};
use takt_perception::Streams;
use takt_perception::process::{EventKind, Judged};

use rig::{ALL, Rig, perception};

/// The emulated device; `None`, with the reason printed, where it cannot be compiled.
fn device() -> Option<&'static Emulator> {
    match emulator() {
        Ok(emulator) => Some(emulator),
        Err(reason) => {
            let required = std::env::var_os("TAKT_REQUIRE_OUTSIDE").is_some_and(|value| value == "1");
            assert!(!required, "TAKT_REQUIRE_OUTSIDE=1, but {reason}");
            takt_witness::skip!("{reason}");
            None
        }
    }
}

fn config(streams: Streams) -> takt_perception::PerceptionConfig {
    let mut config = perception();
    config.gpu.streams = streams;
    config
}

fn start(emulator: &Emulator, streams: Streams, faults: &str) -> Rig {
    Rig::try_start(&config(streams), "", emulator.environment(faults))
        .expect("a worker on the emulated device")
}

#[test]
fn all_on_one_stream_answer_as_the_cpu_does() {
    let Some(emulator) = device() else { return };
    let mut rig = start(emulator, Streams::Batch, "");
    let mut local = rig.local();
    for _ in 0..30 {
        let (judged, remote) = rig.frame();
        assert_eq!(judged, Judged::Worker, "{:#?}", rig.kinds());
        assert_eq!(remote.objects(), local.judge(&rig).objects());
    }
    assert_eq!(rig.started.supervisor.facts().threads.len(), 1);
    assert_parts(&rig);
}

/// The last answer shows when the device did what, within the time in which the worker had the
/// frame.
fn assert_parts(rig: &Rig) {
    let answer = rig.records.iter().rfind(|record| record.kind == EventKind::Answered).expect("an answer");
    let parts = answer.stages.spans;
    for [start_ns, end_ns] in [parts[0], parts[1], parts[5]] {
        let slack_ns = answer.stages.error_ns;
        assert!(start_ns > 0 && start_ns <= end_ns, "{answer:?}");
        assert!(start_ns + slack_ns >= answer.taken_ns && end_ns <= answer.done_ns + slack_ns, "{answer:?}");
    }
}

#[test]
fn the_device_answers_as_the_cpu_does() {
    let Some(emulator) = device() else { return };
    let mut rig = start(emulator, Streams::PerCamera, "");
    let mut local = rig.local();
    for _ in 0..30 {
        let (judged, remote) = rig.frame();
        assert_eq!(judged, Judged::Worker, "{:#?}", rig.kinds());
        let expected = local.judge(&rig);
        assert_eq!(remote.objects(), expected.objects());
        assert_eq!((remote.health, remote.valid_depth), (expected.health, expected.valid_depth));
    }
    let facts = rig.started.supervisor.facts();
    assert!(facts.about.device.contains("emulated"), "{:?}", facts.about);
    assert!(facts.about.labels.iter().any(|label| label.contains("emulated")), "{:?}", facts.about);
    assert_parts(&rig);
}

#[test]
fn work_that_gets_in_the_way_runs_beside_the_cameras_and_is_labelled() {
    let Some(emulator) = device() else { return };
    let mut config = config(Streams::PerCamera);
    config.gpu.interference =
        Some(Interference { kernel_us: 200, streams: 1, duty: 0.2, ..Interference::default() });
    let mut rig = Rig::try_start(&config, "", emulator.environment("")).expect("a worker");
    let labels = rig.started.supervisor.facts().about.labels;
    assert!(
        labels.iter().any(|label| label.contains("GPU interference in the perception process")),
        "{labels:?}"
    );
    rig.until("a frame was answered", &ALL, |_, judged| judged == Judged::Worker);
}

#[test]
fn a_device_that_is_lost_has_a_fresh_process() {
    let Some(emulator) = device() else { return };
    // Every process loses its device after some launches; each new one works until then.
    let mut rig = start(emulator, Streams::PerCamera, "lost=150");
    rig.until("the device was lost and used again", &ALL, |rig, judged| {
        rig.count(EventKind::BreakerClosed) > 0 && judged == Judged::Worker
    });
    assert!(rig.cause(EventKind::Lost).contains("the GPU is lost"), "{:#?}", rig.kinds());
    assert!(rig.count(EventKind::Restarted) > 0);
}

#[test]
fn a_device_without_memory_is_refused_in_one_sentence() {
    let Some(emulator) = device() else { return };
    let refused =
        |faults: &str| match Rig::try_start(&config(Streams::PerCamera), "", emulator.environment(faults)) {
            Ok(_) => panic!("refused"),
            Err(error) => error.to_string(),
        };
    for (faults, words) in
        [("memory=1000", "out of GPU memory"), ("driver=11000", "too old"), ("devices=0", "no GPU 0")]
    {
        let message = refused(faults);
        assert!(message.contains(words) && !message.contains('\n'), "{faults}: {message}");
    }
}

//! A recorder's checkpoint: any text is a recorder whose figures hang together, or an error.
#![no_main]

use libfuzzer_sys::fuzz_target;
use takt_stats::{Recorder, Streamed};

fuzz_target!(|text: &str| {
    if let Ok(streamed) = serde_json::from_str::<Streamed>(text) {
        let _ = streamed.mean_trend.finish();
        check(streamed.recorder);
    }
    if let Ok(recorder) = serde_json::from_str::<Recorder>(text) {
        check(recorder);
    }
});

fn check(mut recorder: Recorder) {
    let summary = recorder.summary();
    assert!(summary.min <= summary.median && summary.median <= summary.worst, "{summary:?}");
    assert!(recorder.low_table().len() <= 16);
    let count = recorder.count();
    if count > 1 << 60 {
        return;
    }
    recorder.record(1_000);
    assert_eq!(recorder.count(), count + 1);
    let written = serde_json::to_string(&recorder).expect("it can be written");
    let again: Recorder = serde_json::from_str(&written).expect("and read again");
    assert_eq!(again.summary(), recorder.summary());
    recorder.merge(&again).expect("the same deadline");
}

//! A managed system or a recording passes with the evidence that any run needs, and is asked for
//! the time that is missing.

use std::path::Path;

use takt_manager::live::{ChainStatus, Run, Status};
use takt_manager::{Goals, Platform, learn, recorded};
use takt_ros::ctf::Recording;
use takt_stats::{Verdict, VerdictReport};

/// The verdict on a chain of `rate_hz` that was kept for `seconds`, and given up for some more.
fn managed(seconds: f64, rate_hz: f64, given_up_s: f64) -> VerdictReport {
    let counted = (seconds * rate_hz) as u64;
    let chain = ChainStatus {
        name: "drive".to_owned(),
        goal_ns: 100_000_000,
        completions: counted,
        worst_ns: 20_000_000,
        run: Run { counted, given_up_s, ..Run::default() },
        ..ChainStatus::default()
    };
    let running_ns = ((seconds + given_up_s) * 1e9) as u64;
    Status { running_ns, chains: vec![chain], ..Status::default() }.verdict()
}

#[test]
fn a_managed_chain_passes_after_thirty_seconds_or_300_completions() {
    // (rate, long enough, too short): bursts of 0.1 s are one trial each.
    for (rate_hz, enough_s, short_s) in
        [(1000.0, 31.0, 29.0), (50.0, 31.0, 29.0), (10.0, 31.0, 29.0), (5.0, 61.0, 59.0), (1.0, 301.0, 290.0)]
    {
        let enough = managed(enough_s, rate_hz, 0.0);
        assert_eq!(enough.verdict, Verdict::Pass, "{rate_hz} Hz: {}", enough.sentence());
        let short = managed(short_s, rate_hz, 0.0);
        assert_eq!(short.verdict, Verdict::Inconclusive, "{rate_hz} Hz: {}", short.sentence());
        // As long as is asked for is long enough.
        let sentence = managed(2.0, rate_hz, 0.0).sentence();
        let (_, option) = sentence.rsplit_once("`--seconds ").unwrap_or_else(|| panic!("{sentence}"));
        let seconds: f64 = option.trim_end_matches('`').parse().unwrap();
        let again = managed(seconds, rate_hz, 0.0);
        assert_eq!(again.verdict, Verdict::Pass, "{seconds} s at {rate_hz} Hz: {}", again.sentence());
    }
}

#[test]
fn time_in_which_a_chain_was_given_up_is_no_evidence_and_is_asked_for_again() {
    let asks = |given_up_s| managed(10.0, 50.0, given_up_s).sentence();
    assert!(asks(0.0).contains("without a miss): `--seconds 31`"), "{}", asks(0.0));
    assert!(asks(20.0).contains("without a miss): `--seconds 51`"), "{}", asks(20.0));
    assert_eq!(managed(10.0, 50.0, 60.0).verdict, Verdict::Inconclusive);
}

#[test]
fn a_short_recording_is_asked_to_be_longer() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../takt-ros/tests/data/caret-end-to-end");
    let platform = Platform::new(vec![0, 1], 0, 0.9);
    let open = || Recording::open(&folder);
    let learnt = learn::from_recording(open, &platform, &Default::default()).unwrap();
    let chain = learnt.chains.iter().find(|chain| chain.worst_ns > Some(200_000)).unwrap();
    let goals = format!(
        "[[chain]]\nname = \"all\"\nstart = \"{}\"\nend = \"{}\"\ngoal = \"60 s\"\n",
        chain.start, chain.end
    );
    let goals = Goals::parse(&goals, "goals").unwrap();
    let seen = recorded::examine(open, &goals, &platform, &Default::default()).unwrap();
    let verdict = seen.verdict();
    assert_eq!(verdict.verdict, Verdict::Inconclusive, "{}", verdict.sentence());
    assert!(verdict.sentence().contains("record "), "{}", verdict.sentence());
    assert!(!verdict.sentence().contains("--seconds"), "{}", verdict.sentence());
    assert!(verdict.measure_more_s.is_some_and(|s| s > 0.0), "{verdict:?}");
}

//! Unrecorded parts and callbacks that never ran: recordings of real rclcpp, next to the nodes' own
//! clocks.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::Command;

use takt_manager::recorded::{self, Recorded};
use takt_manager::{Goals, Platform};
use takt_ros::GapCause;
use takt_ros::ctf::Recording;
use takt_stats::Verdict;

const DRIFT: &str = "[[chain]]\nname = \"d\"\nstart = \"/drift\"\nend = \"/sub:/drift\"\n";

/// Examines one of the recordings.
fn examine(name: &str, goals: &str) -> Recorded {
    examine_changed(name, goals, |_| ())
}

/// Examines one of the recordings of which something was changed.
fn examine_changed(name: &str, goals: &str, change: impl FnOnce(&Path)) -> Recorded {
    let all = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/recordings");
    let packed = ["gz", "xz"].map(|kind| all.join(format!("{name}.tar.{kind}")));
    let packed = packed.iter().find(|path| path.exists()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let unpacked = Command::new("tar").arg("xf").arg(packed).arg("-C").arg(folder.path()).status().unwrap();
    assert!(unpacked.success());
    change(folder.path());
    let platform = Platform::new(vec![0, 1], 0, 0.9);
    let goals = Goals::parse(goals, "goals").unwrap();
    let options = takt_model::Options::default();
    recorded::examine(|| Recording::open(folder.path()), &goals, &platform, &options).unwrap()
}

fn drift(name: &str, goal: &str) -> Recorded {
    examine(name, &format!("{DRIFT}goal = \"{goal}\"\n"))
}

/// The gaps, in milliseconds.
fn gaps(seen: &Recorded) -> Vec<(u64, GapCause)> {
    seen.gaps.listed.iter().map(|gap| (gap.length_ns() / 1_000_000, gap.why)).collect()
}

/// Late, skipped, overdue, or under way at a gap for too long.
fn missed(seen: &Recorded) -> u64 {
    let overdue = |stats: &takt_model::ChainStats| stats.overdue(seen.ended_ns) as u64;
    let all = seen.chains.iter();
    all.map(|it| it.violations + it.skipped + it.late_at_gap + it.never_ended + overdue(it)).sum()
}

/// Every completion met its goal. A recording of some seconds is too short for a PASS.
fn met_without_a_miss(verdict: &takt_stats::VerdictReport) {
    assert_eq!(verdict.verdict, Verdict::Inconclusive, "{verdict:?}");
    assert!(
        verdict.reasons[0].starts_with("all ") && verdict.reasons[1].starts_with("record "),
        "{verdict:?}"
    );
}

#[test]
fn a_pause_is_no_miss() {
    let seen = drift("pause", "50 ms");
    let verdict = seen.verdict();
    met_without_a_miss(&verdict);
    assert_eq!(gaps(&seen), [(2016, GapCause::Paused)]);
    let sentence = verdict.sentence();
    assert!(sentence.contains("2016 ms were not recorded (the recording was paused)"), "{sentence}");
    let chain = &seen.chains[0];
    // By the nodes' own clocks: 768 in all, some 200 of them in the pause; worst 9.1 ms from the
    // timer's start on, which came up to 4.4 ms after its release.
    assert!((520..=580).contains(&chain.completions), "{}", chain.completions);
    assert!(chain.worst_ns < 13_600_000, "{}", chain.worst_ns);
    assert_eq!((missed(&seen), seen.model.lost_events), (0, 0));
    // The ten releases of the 100 ms in which the recording began again are neither; of those at
    // its end some were under way. (By the nodes' own log their timer stood still for 44 ms then.)
    assert!((8..=16).contains(&(chain.unjudged + chain.unmeasured)), "{}", chain.unmeasured);
}

/// One CPU's stream is damaged while the other's goes on, before and after a pause: the time is a
/// gap, and half of the picture is neither judged nor taken for misses.
#[test]
fn a_stream_that_cannot_be_read_is_a_gap_with_its_length() {
    let whole = drift("pause", "50 ms").chains[0].completions;
    let damaged = |change: &dyn Fn(&mut Vec<u8>, usize)| {
        let goals = format!("{DRIFT}goal = \"50 ms\"\n");
        let seen = examine_changed("pause", &goals, |folder| {
            let found =
                Command::new("find").arg(folder).args(["-name", "ch*_0", "-type", "f"]).output().unwrap();
            let path = String::from_utf8(found.stdout).unwrap();
            let path = Path::new(path.lines().next().unwrap());
            let mut bytes = std::fs::read(path).unwrap();
            // The size of the first packet, in bits, stands in its context.
            let bits = u64::from_le_bytes(*bytes[56..].first_chunk().unwrap());
            let second = usize::try_from(bits / 8).unwrap();
            change(&mut bytes, second);
            std::fs::remove_file(path).unwrap();
            std::fs::write(path, bytes).unwrap();
        });
        assert_eq!(missed(&seen), 0);
        let sentence = seen.verdict().sentence();
        let gap = *gaps(&seen).iter().find(|gap| gap.1 == GapCause::Unreadable).unwrap();
        assert!(sentence.contains("in 2 gaps were not recorded"), "{sentence}");
        (gap.0, seen.chains[0].completions)
    };
    // Nothing is left behind the pause.
    let (length_ms, completions) = damaged(&|bytes, second| bytes[second..second + 4].fill(0));
    assert!((5080..5110).contains(&length_ms) && completions < whole * 2 / 3, "{length_ms} {completions}");
    // Part of the time before the pause is left, and all behind it.
    let (length_ms, completions) = damaged(&|bytes, second| bytes[second / 2..second / 2 + 200].fill(0xff));
    assert!((1000..2500).contains(&length_ms) && completions > whole / 2, "{length_ms} {completions}");
    // Cut off within the second packet.
    let (length_ms, completions) =
        damaged(&|bytes, second| bytes.truncate(second + (bytes.len() - second) / 3));
    assert!((1000..5000).contains(&length_ms) && completions < whole, "{length_ms} {completions}");
}

#[test]
fn what_ran_before_its_session_began_is_no_miss() {
    let seen = drift("dual", "50 ms");
    let verdict = seen.verdict();
    met_without_a_miss(&verdict);
    assert_eq!(gaps(&seen), [(1998, GapCause::NotYet)]);
    assert!(verdict.sentence().contains("callbacks were not recorded yet"), "{verdict:?}");
    let chain = &seen.chains[0];
    // 800 since then by the nodes' own clocks; worst 8.7 ms.
    assert!((785..=800).contains(&chain.completions), "{}", chain.completions);
    assert!(chain.worst_ns < 8_900_000, "{}", chain.worst_ns);
    assert_eq!(missed(&seen), 0);
}

#[test]
fn every_pause_counts_once_and_rotations_are_none() {
    // By the nodes' own clocks: worst 11.7 ms, and no two runs of the timer 19 ms apart.
    let seen = drift("twice", "50 ms");
    assert_eq!(gaps(&seen), [(620, GapCause::Paused), (1023, GapCause::Paused)]);
    assert_eq!(missed(&seen), 0);
    met_without_a_miss(&seen.verdict());
    assert!(seen.chains[0].worst_ns < 12_000_000 && seen.chains[0].completions > 550);
    // Worst 6.4 ms from the timer's start on, which came up to 3.8 ms after its release.
    let seen = drift("rotated", "50 ms");
    assert_eq!(gaps(&seen), [(1443, GapCause::Paused)]);
    assert_eq!(missed(&seen), 0);
    met_without_a_miss(&seen.verdict());
    assert!(seen.chains[0].worst_ns < 10_300_000, "{}", seen.chains[0].worst_ns);
}

#[test]
fn buffers_that_are_flushed_by_a_timer_are_not_paused() {
    let seen = drift("switch-timer", "50 ms");
    assert_eq!(gaps(&seen), []);
    // By the nodes' own clocks: 498 completions, 14 of them above 50 ms, worst 180.1 ms.
    let chain = &seen.chains[0];
    assert!((495..=499).contains(&chain.completions), "{}", chain.completions);
    assert!((13..=16).contains(&chain.violations), "{}", chain.violations);
    assert!((180_000_000..181_000_000).contains(&chain.worst_ns), "{}", chain.worst_ns);
    assert_eq!(chain.skipped, 0);
}

#[test]
fn a_recording_that_begins_after_its_nodes_fails_nothing() {
    let verdict = drift("late", "50 ms").verdict();
    assert_eq!(verdict.verdict, Verdict::Inconclusive, "{verdict:?}");
    let sentence = verdict.sentence();
    assert!(
        sentence.contains("it began after their nodes") && sentence.contains("--dual-session"),
        "{sentence}"
    );
    assert!(sentence.contains("nothing named `/drift` was seen"), "{sentence}");
    // One that has them says nothing of the kind.
    let sentence = drift("pause", "50 ms").verdict().sentence();
    assert!(!sentence.contains("it began after"), "{sentence}");
}

#[test]
fn a_timer_that_never_ran_is_late_from_its_first_release_on() {
    let chain = |start: &str, end: &str| {
        format!("[[chain]]\nname = \"{start}\"\nstart = \"{start}\"\nend = \"{end}\"\ngoal = \"250 ms\"\n")
    };
    // By the nodes' own logs the timer of /a ran 0 times, that of /b 7 times, over 8 s.
    for start in ["/starve:/a", "/a", "/starve"] {
        let seen = examine("starve", &chain(start, "/sub:/a"));
        let verdict = seen.verdict();
        assert_eq!(verdict.verdict, Verdict::Fail, "{start}: {verdict:?}");
        let sentence = verdict.sentence();
        assert!(
            sentence.contains("never ran, while its executor ran other callbacks"),
            "{start}: {sentence}"
        );
        let late = seen.never[0].as_ref().unwrap().late;
        assert!((100..=170).contains(&late), "{start}: {late}");
        assert!(seen.model.to_text().contains("timer 50ms"), "{}", seen.model.to_text());
    }
    // The other chain is judged by what it did, and so is one from a topic that nobody could send.
    let seen = examine("starve", &chain("/starve:/b", "/sub2:/b"));
    assert!(seen.never[0].is_none() && seen.chains[0].began > 0, "{:?}", seen.never);
    let seen = examine("starve", &chain("/nothing", "/sub2:/b"));
    assert!(seen.never[0].is_none(), "{:?}", seen.never);
    // A watchdog that is reset before it is due never runs either, and is no chain's beginning.
    let seen = drift("pause", "50 ms");
    assert_eq!((seen.model.never_ran.len(), seen.never), (1, vec![None]));
}

fn chain(start: &str, end: &str) -> String {
    format!("[[chain]]\nname = \"c\"\nstart = \"{start}\"\nend = \"{end}\"\ngoal = \"200 ms\"\n")
}

#[test]
fn a_subscription_that_never_ran_is_late_from_its_first_message_on() {
    // By the nodes' own logs: 33 messages on /in, a timer of 50 ms in the subscription's group ran
    // 13 times for 60 ms and more, and the subscription never did. The first second counts for
    // nothing. The chain begins with it, on the way to it, or at whoever sends its messages.
    for (start, end) in
        [("/ss:/in", "/sink:/out"), ("/ss:/in", "/ss:/in"), ("/in", "/out"), ("/feed", "/sink:/out")]
    {
        let seen = examine("never-took", &chain(start, end));
        let verdict = seen.verdict();
        assert_eq!(verdict.verdict, Verdict::Fail, "{start} to {end}: {verdict:?}");
        let sentence = verdict.sentence();
        let words = "/ss subscription /in had ";
        assert!(
            sentence.contains(words) && sentence.contains("and never ran, while its executor ran"),
            "{sentence}"
        );
        let never = seen.never[0].as_ref().unwrap();
        assert!(never.never && never.counts && (18..=30).contains(&never.late), "{never:?}");
    }
    // Where the end is reached without it, it is nobody's fault.
    let seen = examine("never-took", &chain("/feed", "/feed"));
    assert!(seen.never[0].is_none() && seen.chains[0].completions > 20, "{:?}", seen.never);
}

#[test]
fn a_chain_whose_timer_stops_is_no_pass() {
    // By the nodes' own log the timer of /a ran 78 times, and not in the last 8 of 12 s, in which
    // another one of its group ran for 60 ms and more at a time.
    let seen = examine("stops", &chain("/later:/a", "/sink:/a"));
    let verdict = seen.verdict();
    let sentence = verdict.sentence();
    assert!(sentence.contains("no longer runs, while its executor ran other callbacks"), "{sentence}");
    let never = seen.never[0].as_ref().unwrap();
    assert!(!never.never && !never.counts && (120..=165).contains(&never.late), "{never:?}");
}

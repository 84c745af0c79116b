//! Ten loops of 1 kHz: both ways to follow them report the same, and what it costs.

use std::process::{Command, Stdio};

use takt_watch::{FollowBy, LoopKind, Report, Settings};

use crate::planted::rig::{MS, Watch, can_trace, pause};
use crate::planted::{Ended, alone};

/// Ten loops of 1 kHz of a program that nobody here wrote; no right is needed for them.
fn ten_loops() -> Option<Ended> {
    let child = Command::new("cyclictest")
        .args(["-t10", "-i1000", "-d0", "-q", "-D600"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    match child {
        Ok(child) => {
            let child = Ended(child);
            pause(300 * MS);
            Some(child)
        }
        Err(_) => {
            takt_witness::skip!("cyclictest is missing (Debian package rt-tests)");
            None
        }
    }
}

#[test]
fn the_kernel_and_the_events_report_the_same() {
    let _machine = alone();
    if !can_trace() {
        return;
    }
    if let Err(error) = takt_trace::bpf::KernelFollower::start() {
        takt_witness::skip!("{error}");
        return;
    }
    let Some(child) = ten_loops() else { return };
    let settings = |follow| Settings {
        follow,
        late_ns: Some(500 * MS),
        deadline_ns: Some(500 * MS),
        ..Settings::default()
    };
    // At the same time, so that both see the same cycles.
    let watches =
        [FollowBy::Kernel, FollowBy::Events].map(|follow| Watch::start(child.0.id(), settings(follow)));
    let [kernel, events] = watches.map(Watch::finish);
    assert_eq!((kernel.followed_by, events.followed_by), (FollowBy::Kernel, FollowBy::Events));
    let loops =
        |report: &Report| report.threads.iter().filter(|thread| thread.kind == LoopKind::Periodic).count();
    // Its first thread looks at them with a period of its own.
    assert!(loops(&kernel) >= 10 && loops(&kernel) == loops(&events), "{kernel:#?}\n{events:#?}");
    for thread in kernel.threads.iter().filter(|thread| thread.kind == LoopKind::Periodic) {
        let other = events.threads.iter().find(|other| other.tid == thread.tid).unwrap();
        let text = format!("{thread:?}\n{other:?}");
        // Microseconds: events report what a timer was set to with its slack.
        let near = |a: f64, b: f64, share: f64| (a - b).abs() <= share * a.max(b) + 60.0;
        assert!(near(thread.period_us.unwrap(), other.period_us.unwrap(), 0.01), "{text}");
        // They do not begin and end at the same instant, and the machine is busy.
        assert!(near(thread.rate_hz, other.rate_hz, 0.1), "{text}");
        assert!(near(thread.lateness_us.median, other.lateness_us.median, 0.2), "{text}");
        assert!(near(thread.response_us.median, other.response_us.median, 0.2), "{text}");
        let most = thread.cpu_percent.max(other.cpu_percent);
        assert!((thread.cpu_percent - other.cpu_percent).abs() < 0.3 + 0.2 * most, "{text}");
        assert_eq!(
            thread.woken_by.first().map(|share| &share.who),
            other.woken_by.first().map(|share| &share.who)
        );
    }
}

/// Lateness exceeded by one cycle in ten of this process.
fn late_tenth_ns(pid: u32) -> u64 {
    let never = Settings { late_ns: Some(500 * MS), deadline_ns: Some(500 * MS), ..Settings::default() };
    let watch = Watch::start(pid, never);
    pause(3000 * MS);
    let mut all: Vec<f64> = watch.finish().threads.iter().map(|thread| thread.lateness_us.p90).collect();
    all.sort_by(f64::total_cmp);
    (all[all.len() / 2] * 1e3) as u64
}

/// Cost of a watch of ten loops of 1 kHz, with its run directory; if TAKT_LATE is `tenth`, cycles
/// later than the latest tenth count as late, if it is a number, cycles later than so many
/// milliseconds.
#[test]
#[ignore = "figures, of a minute"]
fn campaign_what_ten_loops_cost() {
    let _machine = alone();
    let Some(child) = ten_loops() else { return };
    let only = std::env::var("TAKT_FOLLOW").ok();
    let all = [(FollowBy::Kernel, "kernel"), (FollowBy::Events, "events")];
    for (follow, _) in all.into_iter().filter(|one| only.as_deref().is_none_or(|only| only == one.1)) {
        let late = std::env::var("TAKT_LATE").ok().map(|text| match text.as_str() {
            "tenth" => late_tenth_ns(child.0.id()),
            number => number.parse::<u64>().unwrap() * MS,
        });
        let folder = tempfile::tempdir().unwrap();
        let mut recording = takt_watch::Recording::create(folder.path(), None, "ten loops").unwrap();
        let options = takt_watch::Options {
            target: takt_watch::Target::Process(child.0.id() as i32),
            seconds: Some(std::env::var("TAKT_SECONDS").map_or(15.0, |text| text.parse().unwrap())),
            settings: Settings {
                follow,
                live: false,
                late_ns: late,
                deadline_ns: late.map(|_| 500 * MS),
                ..Settings::default()
            },
            expected: Default::default(),
            trace: takt_watch::TraceOptions::default(),
        };
        let stop = std::sync::atomic::AtomicBool::new(false);
        let recorded = std::env::var("TAKT_NO_RUN").is_err();
        let report =
            takt_watch::watch(&options, &stop, recorded.then_some(&mut recording), &mut |_| {}).unwrap();
        let late: u64 = report.threads.iter().map(|thread| thread.late).sum();
        let cycles: u64 = report.threads.iter().map(|thread| thread.releases).sum();
        let unjudged: u64 = report.threads.iter().map(|thread| thread.unjudged).sum();
        println!(
            "{follow:?}: {:.2} % of a CPU; {} events, {} lost, {cycles} cycles, {late} late, {unjudged} of them not examined; {:?}",
            report.watcher_cpu_percent, report.events, report.lost_events, report.notes
        );
    }
}

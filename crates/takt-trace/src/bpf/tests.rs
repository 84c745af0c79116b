use std::collections::BTreeSet;
use std::time::Duration;

use takt_rt::clock::monotonic_ns;

use super::*;

/// Loads the programs; None, and SKIPPED, where this machine does not let anybody.
fn follower() -> Option<KernelFollower> {
    match KernelFollower::start() {
        Ok(follower) => Some(follower),
        // A verifier that refuses is a defect of ours.
        Err(
            error @ (TraceError::NotPermitted { .. }
            | TraceError::NoTracefs { .. }
            | TraceError::Lockdown { .. }),
        ) => {
            takt_witness::skip!("{error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_sleeping_loop_is_followed_by_its_timer() {
    let Some(mut follower) = follower() else { return };
    assert_eq!(follower.notes(), [""; 0]);
    let (sender, receiver) = std::sync::mpsc::channel();
    let (go, gone) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        // SAFETY: takes nothing, returns a number.
        sender.send(unsafe { libc::gettid() }).unwrap();
        gone.recv().unwrap();
        let begin_ns = monotonic_ns();
        (0..20).for_each(|_| std::thread::sleep(Duration::from_millis(2)));
        (begin_ns, monotonic_ns())
    });
    let tid = receiver.recv().unwrap();
    follower.follow(&BTreeSet::from([tid])).unwrap();
    go.send(()).unwrap();
    let (begin_ns, end_ns) = thread.join().unwrap();
    let mut found = Vec::new();
    follower.drain(&mut |awake| found.push(awake));
    assert_eq!(follower.lost(), 0);
    let timed: Vec<&Awake> =
        found.iter().filter(|awake| matches!(awake.waker, Waker::Timer { .. })).collect();
    println!("{} records, {} by timers: {:?}", found.len(), timed.len(), timed.first());
    // The kernel hides events while some threads are current, so a few wake-ups are reported
    // without a waker.
    assert!(timed.len() >= 15, "{found:#?}");
    for awake in &found {
        assert_eq!(awake.tid, tid);
        assert!(awake.planned_ns <= awake.awake_ns && awake.awake_ns <= awake.end_ns, "{awake:?}");
        assert!(awake.cpu_ns <= awake.end_ns - awake.awake_ns, "{awake:?}");
    }
    for pair in timed.windows(2) {
        assert!(pair[0].end_ns <= pair[1].awake_ns, "{pair:?}");
        // It sleeps for 2 ms from the end on.
        assert!(pair[1].planned_ns >= pair[0].end_ns + 1_900_000, "{pair:?}");
        assert!(pair[0].slept_on.is_some(), "{pair:?}");
    }
    assert!(timed.iter().all(|awake| (begin_ns..end_ns).contains(&awake.awake_ns)));
    // Nobody is followed any more.
    follower.follow(&BTreeSet::new()).unwrap();
    std::thread::sleep(Duration::from_millis(5));
    let mut more = 0;
    follower.drain(&mut |_| more += 1);
    assert_eq!(more, 0);
}

#[test]
fn records_of_any_bytes_are_answered() {
    for length in 0..state::RECORD_BYTES {
        assert_eq!(decoded(&vec![0xff; length]), None);
    }
    assert_eq!(decoded(&[0xff; state::RECORD_BYTES]), None);
    assert!(decoded(&[0; state::RECORD_BYTES]).is_some());
}

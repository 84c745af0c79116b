//! The census gives real-time fallback policies to threads that libraries spawn. One test in a
//! process of its own, since the census touches every thread of the process.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]

use std::sync::mpsc;
use std::time::Duration;

use takt_rt::census::{self, CensusKeeper, Role};
use takt_rt::policy::Policy;
use takt_rt::settings::ThreadSettings;
use takt_rt::thread;

fn tid() -> i32 {
    // SAFETY: gettid has no preconditions.
    unsafe { libc::gettid() }
}

/// A thread as a library would spawn it: unknown to Takt, alive until its sender is dropped.
fn library_thread() -> (i32, mpsc::Sender<()>, std::thread::JoinHandle<()>) {
    let (end, ended) = mpsc::channel::<()>();
    let (send, receive) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        send.send(tid()).unwrap();
        let _ = ended.recv();
    });
    (receive.recv().unwrap(), end, thread)
}

#[test]
fn library_threads_get_the_fallback_and_others_keep_theirs() {
    let fallback = Policy::RoundRobin { priority: 2 };
    if let Err(refusal) = std::thread::spawn(move || fallback.apply(0)).join().unwrap() {
        takt_witness::skip!("{refusal}");
        return;
    }
    // The harness's own threads are none of the run's.
    let test_thread = tid();
    let inherited = Policy::read(test_thread).unwrap();
    assert!(census::exempt(test_thread, "test harness"));
    let keeper = CensusKeeper::start(fallback, Duration::from_millis(1)).unwrap();

    // A SCHED_DEADLINE task spawns a helper: it may, the helper starts as SCHED_OTHER and becomes
    // RR.
    let reservation: Policy = "deadline:2ms/20ms/20ms".parse().unwrap();
    let settings = ThreadSettings { policy: reservation, ..Default::default() };
    let task = thread::spawn("dl-task", &settings, || {
        let (helper, end, thread) = library_thread();
        while Policy::read(helper).unwrap() != (Policy::RoundRobin { priority: 2 }) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let own = Policy::read(0).unwrap();
        drop(end);
        thread.join().unwrap();
        (helper, own)
    })
    .unwrap();
    let dl_granted = task.granted().is_complete();
    let (helper, own) = task.join().unwrap();
    assert!(own == reservation || !dl_granted);

    // The keeper finds one that appears later, and one that leaves the policy again.
    let (late, end, thread) = library_thread();
    while Policy::read(late).unwrap() != fallback {
        std::thread::sleep(Duration::from_millis(1));
    }
    Policy::default().apply(late).unwrap();
    while Policy::read(late).unwrap() != fallback {
        std::thread::sleep(Duration::from_millis(1));
    }

    // Exempted after the fact, it gets its former policy back.
    assert!(census::exempt(late, "belongs to the view"));
    while Policy::read(late).unwrap() != inherited {
        std::thread::sleep(Duration::from_millis(1));
    }

    let view = thread::spawn_exempt("view", "shows the run", move || {
        std::thread::sleep(Duration::from_millis(20));
        Policy::read(0).unwrap()
    })
    .unwrap();
    assert_eq!(view.join().unwrap(), Policy::default());

    let report = keeper.report().unwrap();
    let helper =
        report.threads.iter().find(|entry| entry.tid == helper && entry.role == Role::Subthread).unwrap();
    assert!(helper.policy_before.is_some_and(|policy| !policy.is_real_time()));
    assert_eq!(helper.policy_after, Some(fallback));
    assert_eq!(helper.error, None);
    let late = report.threads.iter().find(|entry| entry.tid == late).unwrap();
    assert_eq!((late.role, late.reapplied), (Role::Exempt, 1));
    assert_eq!(Policy::read(test_thread).unwrap(), inherited);
    assert_eq!(Policy::read(std::process::id() as i32).unwrap(), inherited);
    drop(end);
    thread.join().unwrap();
}

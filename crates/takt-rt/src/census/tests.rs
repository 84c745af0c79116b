use super::*;
use crate::settings::ThreadSettings;
use std::sync::mpsc;

// The tests of this crate share one process: none of them may change threads of the others, so the
// fallback used here is what those have already. Integration tests cover real-time fallbacks.
fn keeper() -> CensusKeeper {
    CensusKeeper::start(Policy::default(), Duration::from_secs(3600)).unwrap()
}

fn entry(report: &CensusReport, tid: i32) -> CensusEntry {
    report.threads.iter().find(|entry| entry.tid == tid && !entry.ended).unwrap().clone()
}

#[test]
fn deadline_is_no_fallback() {
    let policy = "deadline:1ms/2ms/2ms".parse().unwrap();
    assert!(matches!(Census::new(policy), Err(Error::InvalidFallback { .. })));
    assert!(Census::new(Policy::Fifo { priority: 0 }).is_err());
}

#[test]
fn roles_and_creators_are_distinguished() {
    let keeper = keeper();
    let (end, ended) = mpsc::channel::<()>();
    let (send, receive) = mpsc::channel();
    let ended = Arc::new(Mutex::new(ended));
    let wait = move || {
        let _ = ended.lock().unwrap_or_else(PoisonError::into_inner).recv();
    };
    let library = |wait: Box<dyn Fn() + Send>, send: mpsc::Sender<i32>| {
        std::thread::Builder::new()
            .name("pool-1".into())
            .spawn(move || {
                send.send(sys::gettid()).unwrap();
                wait();
            })
            .unwrap()
    };
    let main = thread::spawn("task-main", &ThreadSettings::default(), wait.clone()).unwrap();
    let view = thread::spawn_exempt("view", "shows the run", wait.clone()).unwrap();
    let pool = keeper.attribute("inference", || library(Box::new(wait), send));
    let pool_tid = receive.recv().unwrap();

    let report = keeper.report().unwrap();
    let found = entry(&report, main.tid());
    assert_eq!((found.role, found.name.as_str()), (Role::Main, "task-main"));
    let found = entry(&report, pool_tid);
    assert_eq!((found.role, found.creator.as_deref()), (Role::Subthread, Some("inference")));
    assert_eq!(found.policy_after, Some(Policy::default()));
    let found = entry(&report, std::process::id() as i32);
    assert_eq!((found.role, found.why), (Role::ProcessMain, None));
    // The view registers after it started.
    let exempt = (0..1000).any(|_| {
        std::thread::yield_now();
        let found = entry(&keeper.report().unwrap(), view.tid());
        found.role == Role::Exempt && found.why.as_deref() == Some("shows the run")
    });
    assert!(exempt);

    drop(end);
    pool.join().unwrap();
    main.join().unwrap();
    view.join().unwrap();
    let report = keeper.report().unwrap();
    assert!(report.threads.iter().any(|entry| entry.tid == pool_tid && entry.ended));
    let text = toml::to_string(&report).unwrap();
    assert_eq!(toml::from_str::<CensusReport>(&text).unwrap(), report);
}

#[test]
fn names_handed_down_show_the_creator() {
    let keeper = keeper();
    let (send, receive) = mpsc::channel();
    let (end, ended) = mpsc::channel::<()>();
    let task = thread::spawn("task-heir", &ThreadSettings::default(), move || {
        // Without a name of its own the child keeps its parent's.
        let child = std::thread::spawn(move || {
            send.send(sys::gettid()).unwrap();
            let _ = ended.recv();
        });
        child.join().unwrap();
    })
    .unwrap();
    let tid = receive.recv().unwrap();
    let found = entry(&keeper.report().unwrap(), tid);
    assert_eq!((found.role, found.creator.as_deref()), (Role::Subthread, Some("task-heir")));
    drop(end);
    task.join().unwrap();
}

#[test]
fn unknown_ids_cannot_be_exempt() {
    assert!(!exempt(i32::MAX, "nobody"));
}

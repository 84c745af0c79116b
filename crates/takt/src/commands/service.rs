//! What `run`, `manage` and `watch` tell the machine that they run on.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use takt_service::{About, Burst, Kind, Options, Report, Reporting, notify};

/// Begins to tell events and the state of a service. What is returned is dropped at the end: the
/// last events are written then.
pub fn begin(command: &'static str) -> Reporting {
    notify::begin();
    takt_service::begin(Options::of(command))
}

/// As [`begin`], of something that is no run of the lab.
pub fn begin_about(command: &'static str, robot: &str, run_dir: Option<&Path>) -> Reporting {
    let reporting = begin(command);
    let run_dir = run_dir.and_then(|dir| std::path::absolute(dir).ok());
    takt_service::about(About { robot: robot.to_owned(), run_dir });
    takt_service::window_began(takt_rt::clock::monotonic_ns());
    takt_service::report(Kind::Started, Report::default());
    reporting
}

/// Says at the end how it ended.
pub fn ended(outcome: Result<String, String>) {
    notify::stopping("ends");
    match outcome {
        Ok(how) => takt_service::report(Kind::Ended, Report::of(how)),
        Err(why) => takt_service::report(Kind::Fault, Report::of(why)),
    }
}

/// How often a loop is looked at that cannot say by itself that it runs.
const LOOK: Duration = Duration::from_millis(100);

/// A loop that has not turned for so long does not run.
const STANDS_STILL: Duration = Duration::from_secs(5);

/// Vouches for a loop whose turns another thread can see, until this is dropped.
#[derive(Debug)]
pub struct Vouching {
    over: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Vouching {
    /// `turns` grows with every turn of the loop; `line` says how it is doing.
    pub fn start(
        turns: impl Fn() -> u64 + Send + 'static,
        line: impl Fn() -> String + Send + 'static,
    ) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        if !notify::is_on() {
            return Self { over, thread: None };
        }
        let ending = Arc::clone(&over);
        let vouch = move || {
            let (first, mut known, mut turned) = (turns(), turns(), Instant::now());
            while !ending.load(Ordering::Acquire) {
                let now = turns();
                if now != known {
                    (known, turned) = (now, Instant::now());
                }
                if now != first {
                    notify::ready("runs");
                    notify::status(&line());
                }
                if turned.elapsed() < STANDS_STILL {
                    notify::alive();
                }
                std::thread::sleep(LOOK);
            }
        };
        let thread = std::thread::Builder::new().name("takt-notify".to_owned()).spawn(vouch);
        Self { over, thread: thread.ok() }
    }
}

impl Drop for Vouching {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // A panic of it has been printed.
            let _ = thread.join();
        }
    }
}

/// Tells late cycles of watched loops.
#[derive(Debug, Default)]
pub struct LateLoops(HashMap<(i32, i32), Burst>);

impl LateLoops {
    /// A report that grows with the watch.
    pub fn see(&mut self, report: &takt_watch::Report) {
        for one in &report.threads {
            let worst_ns = (one.lateness_us.worst.max(0.0) * 1e3) as u64;
            let key = (one.pid, one.tid);
            // The first report of a loop may have late cycles: they are this watch's.
            let burst = self.0.entry(key).or_insert_with(|| {
                let mut burst = Burst::default();
                burst.look(0, 0, Instant::now());
                burst
            });
            let Some(reported) = burst.look(one.late, worst_ns, Instant::now()) else { continue };
            let plural = if reported.count == 1 { "cycle" } else { "cycles" };
            let more = if reported.again { " in all" } else { "" };
            let causes = match one.totals.first() {
                None => String::new(),
                Some(total) if total.who.is_empty() => format!("; most of it: {}", total.cause.title()),
                Some(total) => format!("; most of it: {}, {}", total.cause.title(), total.who),
            };
            let cause = format!(
                "{} ({}): {} {plural} late by more than {} us{more}, worst {:.0} us{causes}",
                one.name, one.process, reported.count, one.late_beyond_us, one.lateness_us.worst
            );
            takt_service::report(
                Kind::Late,
                Report {
                    at_ns: None,
                    cause,
                    measure: Some(one.label.clone()),
                    count: Some(reported.count),
                    worst_ns: Some(reported.worst_ns),
                },
            );
        }
    }
}

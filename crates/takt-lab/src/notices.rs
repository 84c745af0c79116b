//! What a run tells those who operate the machine while it goes on: events ([`takt_service`]), and
//! its state to systemd. Nobody is told anything in a bench or a campaign: `takt run` begins both.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use takt_report::verdict::of_run;
use takt_rt::clock::monotonic_ns;
use takt_rundir::RunDir;
use takt_service::{About, Kind, Report, notify};

use crate::robot::{End, Robot};
use crate::session::Session;

/// A critical loop that left no record for so long does not run, whatever the thread says that
/// times the run.
const STANDS_STILL: Duration = Duration::from_secs(2);

/// What the collectors of a run show of its loops, to whoever vouches for them.
#[derive(Debug, Default)]
pub(crate) struct Pulse {
    keepers: AtomicU64,
    beats: AtomicU64,
    /// The robot stands, and why has been told.
    stands: AtomicBool,
}

impl Pulse {
    pub(crate) fn opened(&self) {
        self.keepers.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn beat(&self) {
        self.beats.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn report(&self, kind: Kind, at_ns: u64, cause: String) {
        match kind {
            Kind::Stop => self.stands.store(true, Ordering::Relaxed),
            Kind::Recovery => self.stands.store(false, Ordering::Relaxed),
            _ => {}
        }
        report_event(kind, at_ns, None, cause);
    }
}

/// Reports an event of a run, measured at `at_ns` (CLOCK_MONOTONIC), with the measure or chain that
/// it is about. Waits for nobody; not for threads with a deadline. A stop or a recovery of the
/// robot is reported through [`Window::report_event`](crate::keeper::Window::report_event).
pub fn report_event(kind: Kind, at_ns: u64, measure: Option<String>, cause: String) {
    takt_service::report(kind, Report { at_ns: Some(at_ns), measure, ..Report::of(cause) });
}

/// A run, as it is told.
#[derive(Debug)]
pub(crate) struct Telling {
    pulse: Arc<Pulse>,
    /// Whether its critical task has releases of its own: then it must show them.
    has_releases: bool,
    beats: u64,
    beat_at: Instant,
    is_ready: bool,
    /// When the loop that times the run was left.
    left_ns: Option<u64>,
}

impl Telling {
    /// The robot's threads run.
    pub(crate) fn started(session: &Session, robot: &dyn Robot, pulse: Arc<Pulse>) -> Self {
        let not_granted = session.header.not_granted.len();
        let granted = match not_granted {
            0 => String::new(),
            count => format!(", {count} settings not granted"),
        };
        takt_service::report(Kind::Started, Report::of(format!("{}{granted}", session.header.label)));
        notify::status("waits for the first release");
        Self {
            pulse,
            has_releases: robot.rate_hz().is_some() || robot.critical().is_ok(),
            beats: 0,
            beat_at: Instant::now(),
            is_ready: false,
            left_ns: None,
        }
    }

    /// Called by the loop that times the run, at its own pace. `open`: the window has begun.
    pub(crate) fn turn(&mut self, open: bool) {
        if !notify::is_on() {
            return;
        }
        let beats = self.pulse.beats.load(Ordering::Relaxed);
        if beats != self.beats {
            (self.beats, self.beat_at) = (beats, Instant::now());
        }
        let shows = self.pulse.keepers.load(Ordering::Relaxed) > 0;
        if !self.is_ready && (beats > 0 || !shows && open) {
            self.is_ready = true;
            notify::ready("runs");
        }
        // Before its first release it may be loading models, or enabling drives.
        let must_beat = self.is_ready && self.has_releases && shows;
        if !must_beat || self.beat_at.elapsed() < STANDS_STILL {
            notify::alive();
        }
    }

    /// The loop was left; the robot is asked to stop now.
    pub(crate) fn left(&mut self) {
        self.left_ns = Some(monotonic_ns());
        notify::stopping("stops the robot");
    }

    /// The robot has stopped. `over`: its time was over.
    pub(crate) fn stopped(&self, session: &Session, end: &End, asked: bool, over: bool) {
        // Stopped by itself before, which was told at its moment.
        if self.pulse.stands.load(Ordering::Relaxed) {
            return;
        }
        let failures = &session.header.failures;
        let cause = match (&end.trouble, failures.as_slice()) {
            _ if asked => "asked to stop (a signal, Ctrl-C or its page)".to_owned(),
            (Some(trouble), _) => trouble.clone(),
            _ if over => "the time of the run was over".to_owned(),
            (None, [first, ..]) => first.clone(),
            (None, []) => "its work was done".to_owned(),
        };
        report_event(Kind::Stop, self.left_ns.unwrap_or_else(monotonic_ns), None, cause);
    }
}

/// From now on events are about this run.
pub(crate) fn about(session: &Session) {
    let run_dir = std::path::absolute(session.dir().path()).ok();
    takt_service::about(About { robot: session.header.robot.clone(), run_dir });
}

/// The run is sealed.
pub(crate) fn ended(dir: &RunDir) {
    if takt_service::is_on() {
        let cause = of_run(dir).map_or_else(|error| error.to_string(), |judged| judged.report.sentence());
        takt_service::report(Kind::Ended, Report::of(cause));
    }
}

/// The run broke off.
pub(crate) fn broke_off(error: &crate::LabError) {
    notify::stopping("ends after an error");
    takt_service::report(Kind::Fault, Report::of(error.to_string()));
}

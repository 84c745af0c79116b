//! The stream as a robot of the lab.

use std::path::PathBuf;
use std::time::Duration;

use takt_lab::jobs::Task;
use takt_lab::keeper::Window;
use takt_lab::robot::{
    Conclusion, Critical, End, NoCriticalThread, Observe, Robot, RobotKind, Running, read,
};
use takt_lab::{Collecting, ConfigError, LabError, RunOptions, Session};
use takt_rt::ring::ring;
use takt_rundir::{Loss, Measure};

use super::collector::{CYCLES, StreamCollector};
use crate::config::{Pacing, SHIPPED, ServoConfig};
use crate::controller_log;
use crate::monitor::StopReason;
use crate::run::{Finished, Phase, THREAD};
use crate::{ServoError, start};

/// The stream as a registry lists it.
pub static KIND: RobotKind = RobotKind {
    factors: &[
        ("policy", "task.policy"),
        ("placement", "task.cpus"),
        ("pacing", "task.pacing"),
        ("rate", "link.frequency_hz"),
    ],
    tasks: &[&SERVO_TASK],
    ..RobotKind::new("servo", &[("servo", SHIPPED)], read::<ServoConfig>)
};

/// The stream's thread, for the latency manager.
pub(super) static SERVO_TASK: Task = Task {
    name: "servo",
    thread: THREAD,
    file: CYCLES,
    columns: ["planned_ns", "wake_ns", "end_ns"],
    number: None,
};

/// The simulated controller's own log, of a run of up to ten minutes.
pub const CONTROLLER_LOG: &str = "controller.csv";

/// Longest run whose controller writes a log, seconds: 100 MB.
const LONGEST_LOG_S: f64 = 600.0;

/// Records that wait for the collector: half a minute at 500 Hz.
const RING: usize = 1 << 14;

impl From<ServoError> for LabError {
    fn from(error: ServoError) -> Self {
        Self::robot(error)
    }
}

/// Measures that reports read.
fn measures(file: &ServoConfig) -> Vec<Measure> {
    // A value belongs to the part of a run in which its cycle was released.
    let measure = |name, title, since: &str, column| Measure {
        time_column: Some("planned_ns".to_owned()),
        ..Measure::new(name, title, CYCLES, column).since(since).rate_hz(file.rate_hz())
    };
    let released = match file.task.pacing {
        Pacing::Locked => "Wake-up after the earliest possible arrival of the controller's packet",
        Pacing::Free => "Wake-up lateness",
    };
    vec![
        measure("response", "From the release to the command", "planned_ns", "sent_ns")
            .deadline_ns(file.task.deadline_us.saturating_mul(1000)),
        measure("lateness", released, "planned_ns", "wake_ns"),
        measure(
            "packet-to-command",
            "From reading the newest packet to the command",
            "received_ns",
            "sent_ns",
        ),
        measure("period", "From one command to the next", "before_ns", "sent_ns"),
    ]
}

impl Robot for ServoConfig {
    takt_lab::robot_basics!(KIND);

    fn validate(&self) -> Result<(), ConfigError> {
        Ok(Self::validate(self)?)
    }

    fn measures(&self) -> Result<Vec<Measure>, ConfigError> {
        Ok(measures(self))
    }

    fn label(&self) -> String {
        match self.task.pacing {
            Pacing::Locked => self.task.policy.to_string(),
            Pacing::Free => format!("{}, free", self.task.policy),
        }
    }

    fn describe(&self) -> String {
        let to = if self.simulator.is_some() { "a simulated controller" } else { &self.link.host };
        format!("{} targets a second to {to}, {}", self.rate_hz(), self.task.policy)
    }

    fn expected_seconds(&self) -> Option<f64> {
        Some(self.seconds)
    }

    fn rate_hz(&self) -> Option<f64> {
        Some(Self::rate_hz(self))
    }

    fn make_strict(&mut self) {
        self.task.strict = true;
    }

    fn critical(&self) -> Result<Critical, NoCriticalThread> {
        let columns = ["planned_ns", "wake_ns", "wake_ns", "end_ns"];
        Ok(Critical { thread: THREAD, file: CYCLES, columns })
    }

    fn start(
        &self,
        session: &mut Session,
        options: &RunOptions,
        _observe: Observe<'_>,
    ) -> Result<Box<dyn Running>, LabError> {
        let seconds = options.seconds.unwrap_or(self.seconds);
        let mut config = self.clone();
        let goes_on = session.resumed() > 0;
        let log = match &mut config.simulator {
            // A log is of one stream: that of a killed part stays, and the others write none.
            simulator if goes_on => {
                if let Some(simulator) = simulator {
                    simulator.log = None;
                }
                None
            }
            Some(simulator) if simulator.log.is_none() && seconds <= LONGEST_LOG_S => {
                simulator.log = Some(session.dir().path().join(CONTROLLER_LOG));
                simulator.log.clone()
            }
            Some(simulator) => simulator.log.clone(),
            None => None,
        };
        session.header.measures = measures(self);
        let window = session.new_window(options.watch.clone());
        let (producer, consumer) = ring(RING);
        let collector = StreamCollector::new(self, session, consumer, &window)?;
        let collecting =
            Collecting::start("servo-collect", "drains the stream's records", |end| collector.run(end))?;
        let stream = start(&config, producer)?;
        if let Some(granted) = stream.granted() {
            session.granted(&[granted])?;
        }
        session.note("controller_version", &stream.controller_version().to_string())?;
        let length = options.length(self.seconds);
        Ok(Box::new(Streaming { window, length, stream, collecting, log, config }))
    }
}

/// A stream under way. Dropped, it leads the arm to rest: its fields go in this order.
struct Streaming {
    window: Window,
    length: Duration,
    stream: crate::RunningStream,
    collecting: Collecting<StreamCollector>,
    log: Option<PathBuf>,
    config: ServoConfig,
}

impl Running for Streaming {
    fn window(&self) -> &Window {
        &self.window
    }

    fn is_ready(&self) -> bool {
        // Also one that never followed: its reason is reported at the end.
        self.stream.phase() != Phase::Beginning
    }

    fn line(&mut self) -> String {
        match self.stream.phase() {
            Phase::Beginning => "waits for the program on the robot",
            Phase::Streaming => "streams",
            Phase::Stopping => "stops the arm",
            Phase::Ended => "has ended",
        }
        .to_owned()
    }

    fn length(&self) -> Option<Duration> {
        Some(self.length)
    }

    fn is_over(&mut self, elapsed: Duration) -> bool {
        elapsed >= self.length || self.stream.is_finished()
    }

    fn stop(self: Box<Self>, session: &mut Session, _end: &End) -> Result<Conclusion, LabError> {
        let Self { window, stream, collecting, log, config, .. } = *self;
        let finished = stream.stop()?;
        let mut collected = collecting.end()?;
        // A stream that was asked to stop ran to the window's end, give or take the release that it
        // waited for. Without one that ended by itself the window went on.
        let [_, to_ns] = window.bounds();
        let asked = finished.reason == StopReason::Asked;
        collected.log.releases.finish_at(if asked {
            to_ns.saturating_sub(config.period_ns())
        } else {
            to_ns
        });
        fill_header(session, &config, &finished, &collected);
        if let Some(log) = log {
            // The controller has ended with the stream, so that its log is whole.
            let view = controller_log::view(&controller_log::read(&log)?, config.rate_hz());
            session.figures([
                ("controller_cycles", view.cycles as f64),
                ("controller_cycles_made_up", view.made_up as f64),
                ("controller_cycles_without_command", view.without_command as f64),
                ("controller_longest_without_command", view.longest_without as f64),
                ("controller_commands_overwritten", view.overwritten as f64),
                ("controller_oldest_answer_cycles", view.oldest_answer_cycles as f64),
                ("controller_following_max_rad", view.following_max_rad),
                ("controller_following_rms_rad", view.following_rms_rad),
            ]);
        }
        Ok(Conclusion::Common)
    }
}

/// Fills in what the stream and its collector know.
fn fill_header(
    session: &mut Session,
    config: &ServoConfig,
    finished: &Finished,
    collected: &StreamCollector,
) {
    let (counted, totals) = (&collected.counted, &collected.counted.totals);
    let whole = session.resumed() == 0;
    session.releases(&collected.log.releases, "the stream");
    let header = &mut session.header;
    header.records_lost = counted.lost.max(finished.records_lost);
    if let Some(response) = header.measures.first_mut() {
        response.skipped = response.skipped.saturating_add(counted.not_sent);
    }
    if finished.reason != StopReason::Asked {
        header.failures.push(format!("the stream ended by itself: {}", finished.reason));
    }
    if !finished.at_rest {
        header.failures.push("the arm was not seen at rest after the stop was requested".to_owned());
    }
    let cycles = counted.cycles.saturating_add(counted.lost_packets);
    let losses = &config.losses;
    header.losses = vec![
        Loss::new(
            "lost_packets",
            "packets of the controller",
            [counted.lost_packets, cycles],
            ("losses.max_lost_packets", losses.max_lost_packets),
        ),
        Loss::new(
            "missed_commands",
            "control cycles without a command",
            [counted.missed, cycles],
            ("losses.max_missed_commands", losses.max_missed_commands),
        ),
    ];
    let rms = |squares: f64, count: u64| (count > 0).then(|| (squares / count as f64).sqrt());
    let figures = [
        ("commands", Some((counted.cycles - counted.not_sent) as f64)),
        ("following_max_rad", (counted.cycles > 0).then_some(counted.following_max_rad)),
        ("following_rms_rad", rms(counted.following_squares_rad2, counted.cycles)),
        // As the UR driver's benchmark has them, over the whole stream.
        ("period_jitter_us", totals.jitter_ns().map(|ns| ns / 1e3)),
        ("period_rms_error_us", totals.period_rms_error_ns().map(|ns| ns / 1e3)),
        ("longest_without_command", Some(f64::from(counted.longest.max(finished.longest)))),
        // Nobody knows those of a part that was killed.
        ("page_faults", whole.then_some((finished.minor_faults + finished.major_faults) as f64)),
    ];
    session.figures(figures.into_iter().filter_map(|(name, value)| Some((name, value?))));
}

//! One run of any robot, from its configuration to a sealed run directory.
//!
//! ```text
//! create ─► start ─► write ─► settle ─► load ─► window ─► ticks ─► window's end ─► load's end ─► stop ─► seal
//! ```

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde::{Serialize, Serializer};
use serde_json::Value;
use takt_rundir::RunDir;
use takt_service::notify;
use takt_stats::Verdict;

use crate::LabError;
use crate::notices::{self, Telling};
use crate::options::RunOptions;
use crate::robot::{Conclusion, End, Event, Observe, Robot, Running};
use crate::session::Session;
use crate::summary::{RunSummary, summarise};

/// Period at which a run shows its state and checks the interference.
const REPORT_EVERY: Duration = Duration::from_millis(100);

/// Result of a run: the place of its files, and its summary. As JSON it is the summary.
#[derive(Clone, Debug)]
pub struct Ran {
    dir: RunDir,
    summary: Summary,
}

#[derive(Clone, Debug)]
enum Summary {
    Common(Box<RunSummary>),
    Own(Value),
}

impl Ran {
    /// The run directory.
    pub fn dir(&self) -> &RunDir {
        &self.dir
    }

    pub fn verdict(&self) -> Verdict {
        match &self.summary {
            Summary::Common(summary) => summary.verdict,
            // A summary without a verdict of its own says nothing.
            Summary::Own(value) => value
                .get("verdict")
                .and_then(|verdict| serde_json::from_value(verdict.clone()).ok())
                .unwrap_or(Verdict::Inconclusive),
        }
    }

    /// The common summary, which is made where the robot has one of its own.
    ///
    /// # Errors
    /// [`LabError`] for a run directory that was changed meanwhile.
    pub fn into_summary(self) -> Result<RunSummary, LabError> {
        match self.summary {
            Summary::Common(summary) => Ok(*summary),
            Summary::Own(_) => summarise(&self.dir),
        }
    }

    /// The robot's own summary, where it has one of this type.
    pub fn own<S: DeserializeOwned>(&self) -> Option<S> {
        match &self.summary {
            Summary::Common(_) => None,
            Summary::Own(value) => serde_json::from_value(value.clone()).ok(),
        }
    }

    /// The common summary, where the robot has none of its own.
    pub fn common(&self) -> Option<&RunSummary> {
        match &self.summary {
            Summary::Common(summary) => Some(summary),
            Summary::Own(_) => None,
        }
    }
}

impl Serialize for Ran {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.summary {
            Summary::Common(summary) => summary.serialize(serializer),
            Summary::Own(value) => value.serialize(serializer),
        }
    }
}

impl Session {
    /// Runs `robot` and leaves a sealed run directory.
    ///
    /// # Errors
    /// [`LabError`]; what was measured until then stays in the run directory. Also where that could
    /// not be written.
    pub fn run(robot: &dyn Robot, options: &RunOptions, observe: Observe<'_>) -> Result<Ran, LabError> {
        let ran = Self::run_anyway(robot, options, observe)?;
        ran.dir.unwritten().map_or(Ok(ran), |unwritten| Err(unwritten.into()))
    }

    /// The same, for whoever shows what was measured also where the run directory could not be
    /// written ([`RunDir::unwritten`]).
    ///
    /// # Errors
    /// [`LabError`]; what was measured until then stays in the run directory.
    pub fn run_anyway(
        robot: &dyn Robot,
        options: &RunOptions,
        observe: Observe<'_>,
    ) -> Result<Ran, LabError> {
        options.interference.check()?;
        let settled = robot.settled(options, observe)?;
        let robot = settled.as_deref().unwrap_or(robot);
        let asked = robot.to_json()?;
        let mut session = Self::create(robot.kind().name, &robot.label(), &asked, options)?;
        session.header.verdict = robot.verdict().clone();
        match session.drive(robot, options, observe) {
            Ok(Conclusion::Common) => {
                let (dir, summary) = session.seal()?;
                notices::ended(&dir);
                Ok(Ran { dir, summary: Summary::Common(Box::new(summary)) })
            }
            Ok(Conclusion::Own(summarise)) => {
                let (dir, summary) = session.seal_with(summarise)?;
                notices::ended(&dir);
                Ok(Ran { dir, summary: Summary::Own(summary) })
            }
            Err(error) => {
                notices::broke_off(&error);
                session.discard();
                Err(error)
            }
        }
    }

    fn drive(
        &mut self,
        robot: &dyn Robot,
        options: &RunOptions,
        observe: Observe<'_>,
    ) -> Result<Conclusion, LabError> {
        let mut running = robot.start(self, options, observe)?;
        running.note(self)?;
        self.write()?;
        observe(Event::Started {
            dir: self.dir(),
            not_granted: &self.header.not_granted,
            notes: &running.notes(),
            url: running.url().as_deref(),
        });
        let mut telling = Telling::started(self, robot, std::sync::Arc::clone(running.window().pulse()));
        running.settle();
        self.start_load(&options.interference)?;
        running.loaded(self)?;
        let (end, over) = self.turn(&mut *running, options, observe, &mut telling)?;
        self.end_load()?;
        let stopped = running.stop(self, &end);
        let conclusion = self.despite_the_disk(stopped)?.unwrap_or(Conclusion::Common);
        telling.stopped(self, &end, options.stop.load(Ordering::Acquire), over);
        self.write()?;
        // Without the kernel's part, which only a trace knows.
        let explained = robot.explain(self.dir(), Err("the kernel was not traced"));
        self.despite_the_disk(explained)?;
        Ok(conclusion)
    }

    /// From the beginning of the window to its end; whether its time was over.
    fn turn(
        &mut self,
        running: &mut dyn Running,
        options: &RunOptions,
        observe: Observe<'_>,
        telling: &mut Telling,
    ) -> Result<(End, bool), LabError> {
        let window = running.window().clone();
        let (before, mut begun) = (self.before(), None::<Instant>);
        let elapsed = |begun: Option<Instant>| before + begun.map_or(Duration::ZERO, |at| at.elapsed());
        let (mut reported_at, mut trouble) = (None::<Instant>, None);
        loop {
            if begun.is_none() && running.is_ready() {
                let from_ns = self.begin_window(&window, |from_ns| running.open(from_ns))?;
                begun = Some(Instant::now());
                running.begun(self, from_ns)?;
            }
            running.tick(self, begun.is_some())?;
            telling.turn(begun.is_some());
            let asked = options.stop.load(Ordering::Acquire);
            if asked || trouble.is_some() || running.is_over(elapsed(begun)) {
                break;
            }
            if reported_at.is_none_or(|at| at.elapsed() >= REPORT_EVERY) {
                reported_at = Some(Instant::now());
                let line = running.line();
                notify::status(&line);
                observe(Event::Tick { elapsed: elapsed(begun), of: running.length(), line });
                trouble = self.load_trouble();
            }
            let left = running.length().map(|length| length.saturating_sub(elapsed(begun)));
            // A robot that ends by itself may take longer than it was thought to.
            let left = left.filter(|left| !left.is_zero());
            std::thread::sleep(left.map_or(running.pace(), |left| running.pace().min(left)));
        }
        telling.left();
        let over = running.length().is_some_and(|length| begun.is_some() && elapsed(begun) >= length);
        let cut_off = options.stop.load(Ordering::Acquire)
            && running.length().is_some_and(|length| elapsed(begun) < length);
        if begun.is_some() {
            self.end_window(&window, |to_ns| running.close(to_ns));
        }
        running.closed(self)?;
        Ok((End { cut_off, trouble }, over))
    }
}

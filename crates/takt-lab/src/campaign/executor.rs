//! Executors of a campaign's runs: this machine ([`Local`]), or another implementation of
//! [`Executor`].

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::engine::Campaign;
use super::failure::RunFailure;
use super::plan::CellRun;
use crate::LabError;

/// Assumed time that a run takes besides its window (start, settling, sealing), until one has been
/// measured.
const OVERHEAD_GUESS: Duration = Duration::from_secs(2);
/// The same of a guest, which boots first and whose second takes several of the host's under load.
const GUEST_OVERHEAD_GUESS: Duration = Duration::from_secs(30);

/// Order for one run.
#[derive(Debug)]
pub struct RunOrder<'a> {
    pub run: &'a CellRun,
    /// Its resolved configuration.
    pub config: &'a Path,
    /// Path for its run directory.
    pub dir: &'a Path,
    /// File with its [`super::RunSetup`], for a run in a process of its own.
    pub setup: &'a Path,
    /// Whether `dir` holds the run as far as it came before it was cut off, and it goes on there.
    pub resume: bool,
}

/// Makes one run and leaves a sealed run directory, or says why it could not.
pub type Make<'a> = &'a (dyn Fn(&RunOrder<'_>) -> Result<(), RunFailure> + Sync);

/// State of the open runs when other machines make them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Queue {
    /// Runs that wait for a node.
    pub queued: usize,
    /// Runs that are being made.
    pub running: usize,
    /// Reason why the queue's first does not run yet, in the scheduler's word; empty if none waits.
    pub reason: String,
    /// Time left for all, as far as known.
    pub left: Duration,
}

/// An executor's report about the runs.
#[derive(Debug)]
pub enum Step<'a> {
    /// A run begins.
    Begins {
        run: &'a CellRun,
        /// Time left for all, as far as known.
        left: Duration,
    },
    /// A run ended; the cause where it failed.
    Ended {
        run: &'a CellRun,
        /// Result of the run.
        outcome: Result<(), RunFailure>,
    },
    /// A run that had ended is made again.
    Again { run: &'a CellRun },
    /// State of the open runs.
    Queue(Queue),
    /// Something that whoever waits should know, a sentence.
    Note(&'a str),
}

/// Progress messages of a campaign.
#[derive(Debug)]
pub enum Progress<'a> {
    /// A run begins.
    Begin {
        run: &'a CellRun,
        /// Time left for all, as far as known.
        left: Duration,
    },
    /// A run was measured before.
    Kept { run: &'a CellRun },
    /// A run waits for another kernel, or another condition.
    Waits { run: &'a CellRun },
    /// A run ended.
    End { run: &'a CellRun },
    /// A run failed; the campaign goes on, and the table says so.
    Failed {
        run: &'a CellRun,
        /// The reason.
        cause: &'a str,
    },
    /// A run that had ended is made again.
    Again { run: &'a CellRun },
    /// State of the open runs when other machines make them.
    Queue(Queue),
    /// Something that whoever waits should know, a sentence.
    Note(&'a str),
}

/// Is called with what becomes of the runs.
pub type Notify<'a> = &'a mut dyn FnMut(Step<'_>) -> Result<(), LabError>;

/// Makes the open runs of a campaign.
pub trait Executor {
    /// Refuses what cannot be, before any run is made.
    ///
    /// # Errors
    /// The obstacle, and the way out.
    fn check(&self, campaign: &Campaign) -> Result<(), LabError>;

    /// Whether `run` can be made now; others wait.
    fn takes(&self, run: &CellRun) -> bool;

    /// Has the `open` runs made, each into its place in the campaign, and shows what becomes of
    /// each.
    ///
    /// # Errors
    /// [`LabError::Stopped`] and others where it ended before the last of them.
    fn execute(&self, campaign: &Campaign, open: &[&CellRun], notify: Notify<'_>) -> Result<(), LabError>;
}

/// Makes runs on this machine, one after the other; guests, whose time does not pass with the
/// host's, as many at once as the campaign says.
pub struct Local<'a> {
    /// Conditions that hold now (`kernel` and others): runs for other conditions wait.
    pub labels: &'a BTreeMap<String, String>,
    /// Goes on although the finished runs were made on another machine.
    pub any_machine: bool,
    pub make: Make<'a>,
    /// Whether to go on with the next.
    pub go_on: &'a (dyn Fn() -> bool + Sync),
    /// Folder for the run directories, instead of their places in the campaign.
    pub folder: Option<PathBuf>,
}

impl Executor for Local<'_> {
    fn check(&self, campaign: &Campaign) -> Result<(), LabError> {
        let differences = campaign.machine_differences()?;
        if !self.any_machine && !differences.is_empty() {
            return Err(LabError::OtherMachine { dir: campaign.path().to_owned(), differences });
        }
        campaign.plan().check_labels(self.labels)
    }

    fn takes(&self, run: &CellRun) -> bool {
        run.setup.labels == *self.labels
    }

    /// Workers make runs, and this thread alone reports.
    fn execute(&self, campaign: &Campaign, open: &[&CellRun], notify: Notify<'_>) -> Result<(), LabError> {
        let guests = campaign.plan().file.guests.as_ref();
        let at_once = guests.map_or(1, |guests| guests.at_once as usize);
        let work = Work { campaign, open, next: AtomicUsize::new(0), given_up: AtomicBool::new(false) };
        let mut left = TimeLeft::of(open, guests.is_some());
        std::thread::scope(|scope| {
            let (sender, events) = mpsc::channel();
            for _ in 0..at_once.clamp(1, open.len().max(1)) {
                let sender = sender.clone();
                scope.spawn(|| self.work(&work, sender));
            }
            drop(sender);
            let reported = self.notify(&events, &mut left, at_once, notify);
            work.given_up.store(true, Ordering::Release);
            reported
        })?;
        if (self.go_on)() { Ok(()) } else { Err(LabError::Stopped { dir: campaign.path().to_owned() }) }
    }
}

/// A worker's report about a run.
enum RunEvent<'a> {
    Begins(&'a CellRun),
    Ended(&'a CellRun, Result<(), RunFailure>, Duration),
}

/// The open runs while workers take one after the other.
struct Work<'a> {
    campaign: &'a Campaign,
    open: &'a [&'a CellRun],
    next: AtomicUsize,
    given_up: AtomicBool,
}

impl Local<'_> {
    fn work<'a>(&self, work: &Work<'a>, sender: mpsc::Sender<RunEvent<'a>>) {
        while (self.go_on)() && !work.given_up.load(Ordering::Acquire) {
            let Some(run) = work.open.get(work.next.fetch_add(1, Ordering::Relaxed)).copied() else { return };
            let begun = Instant::now();
            let _ = sender.send(RunEvent::Begins(run));
            let outcome = work.campaign.one(run, self.folder.as_deref(), self.make);
            let _ = sender.send(RunEvent::Ended(run, outcome, begun.elapsed()));
        }
    }

    fn notify(
        &self,
        events: &mpsc::Receiver<RunEvent<'_>>,
        left: &mut TimeLeft,
        at_once: usize,
        notify: Notify<'_>,
    ) -> Result<(), LabError> {
        for event in events {
            match event {
                RunEvent::Begins(run) => notify(Step::Begins { run, left: left.over(at_once) })?,
                // It was ended with the campaign and says nothing about its configuration.
                RunEvent::Ended(..) if !(self.go_on)() => break,
                RunEvent::Ended(run, outcome, took) => {
                    left.ended(run, outcome.is_ok().then_some(took));
                    notify(Step::Ended { run, outcome })?;
                }
            }
        }
        Ok(())
    }
}

/// Estimate of the time left for the open runs: their windows, and the extra time that earlier runs
/// took.
#[derive(Clone, Debug)]
pub struct TimeLeft {
    windows: Duration,
    runs: u32,
    guess: Duration,
    beside: Duration,
    measured: u32,
}

impl TimeLeft {
    /// Of these runs, in guests or not.
    pub fn of(open: &[&CellRun], guests: bool) -> Self {
        Self {
            windows: open.iter().map(|run| window(run)).sum(),
            runs: open.len() as u32,
            guess: if guests { GUEST_OVERHEAD_GUESS } else { OVERHEAD_GUESS },
            beside: Duration::ZERO,
            measured: 0,
        }
    }

    /// A run ended; one that was measured took so long.
    pub fn ended(&mut self, run: &CellRun, took: Option<Duration>) {
        self.windows = self.windows.saturating_sub(window(run));
        self.runs = self.runs.saturating_sub(1);
        if let Some(took) = took {
            self.beside += took.saturating_sub(window(run));
            self.measured += 1;
        }
    }

    /// A run that had ended is open again.
    pub fn again(&mut self, run: &CellRun) {
        self.windows += window(run);
        self.runs += 1;
    }

    /// The time left when so many are made at once.
    pub fn over(&self, at_once: usize) -> Duration {
        let each = self.beside.checked_div(self.measured).unwrap_or(self.guess);
        (self.windows + each * self.runs) / at_once.max(1) as u32
    }
}

fn window(run: &CellRun) -> Duration {
    Duration::from_secs_f64(run.expected_s)
}

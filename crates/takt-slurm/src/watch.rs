//! Waiting for blocks: journals say what nodes do, the folder what is made, the queue what is still
//! to come.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Seek, SeekFrom};
use std::time::{Duration, Instant};

use takt_lab::LabError;
use takt_lab::campaign::{Campaign, CellRun, Notify, Queue, RunFailure, Step, TimeLeft};

use crate::block::Block;
use crate::client::{self, Task};
use crate::error::SlurmError;
use crate::journal::{Event, Journals, storage_ahead_s};
use crate::state::{State, attempts, folder, journals};

/// Period of checking the folder.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Period of queries to the controller: its time belongs to all users.
const ASK_EVERY: Duration = Duration::from_secs(10);
/// Difference of clocks that is reported, seconds: more than NTP leaves, and enough to bring times
/// of day into disorder.
const CLOCK_S: f64 = 1.0;

/// A block that is waited for.
struct Waited<'a> {
    name: String,
    submission: String,
    job: String,
    runs: Vec<&'a CellRun>,
    /// Number of consecutive queries without it in the queue.
    absent: u32,
}

/// The waiting side.
pub(crate) struct Watch<'a> {
    campaign: &'a Campaign,
    names: Vec<String>,
    jobs: String,
    blocks: Vec<Waited<'a>>,
    /// Runs that have ended, by name; those included that were measured before in a block that is
    /// not whole.
    ended: BTreeSet<String>,
    /// Those of them that failed.
    failed: BTreeSet<String>,
    /// Runs that are being made, with the node.
    running: BTreeMap<String, String>,
    /// Attempts of the present submissions, with their nodes and clocks.
    attempts: BTreeMap<String, String>,
    clock: f64,
    clocks_reported: BTreeSet<String>,
    journals: Journals,
    left: TimeLeft,
    reported_queue: Option<Queue>,
    reason: String,
    silent: bool,
    /// The campaign's folder could not be read when it was looked at last.
    blind: bool,
}

impl<'a> Watch<'a> {
    pub fn of(campaign: &'a Campaign, state: &State, open_blocks: &[&Block<'a>], open: &[&CellRun]) -> Self {
        let waited = |block: &&Block<'a>| {
            let (index, task) = state.current(&block.name)?;
            let submission = &state.submissions[index];
            let array = submission.job.as_deref().unwrap_or("?");
            Some(Waited {
                name: block.name.clone(),
                submission: submission.name.clone(),
                job: format!("{array}_{task}"),
                runs: block.runs.clone(),
                absent: 0,
            })
        };
        let blocks: Vec<Waited<'a>> = open_blocks.iter().filter_map(waited).collect();
        let current: BTreeSet<&str> = blocks.iter().map(|block| block.submission.as_str()).collect();
        let jobs = state.submissions.iter().filter(|s| current.contains(s.name.as_str()));
        let jobs: Vec<&str> = jobs.filter_map(|submission| submission.job.as_deref()).collect();
        let is_open = |run: &CellRun| open.iter().any(|o| o.name == run.name);
        let all = blocks.iter().flat_map(|block| &block.runs);
        Self {
            campaign,
            names: current.iter().map(|name| (*name).to_owned()).collect(),
            jobs: jobs.join(" "),
            ended: all.filter(|run| !is_open(run)).map(|run| run.name.clone()).collect(),
            failed: BTreeSet::new(),
            running: BTreeMap::new(),
            attempts: BTreeMap::new(),
            clock: storage_ahead_s(&attempts(campaign).join("clock")).unwrap_or(0.0),
            clocks_reported: BTreeSet::new(),
            journals: Journals::of(journals(campaign)),
            left: TimeLeft::of(open, campaign.plan().file.guests.is_some()),
            reported_queue: None,
            reason: String::new(),
            silent: false,
            blind: false,
            blocks,
        }
    }

    fn run(&self, name: &str) -> Option<&'a CellRun> {
        self.blocks.iter().flat_map(|block| &block.runs).copied().find(|run| run.name == name)
    }

    /// Reports what happens until every run has ended. Whatever ends the waiting before, the jobs
    /// go on.
    pub(crate) fn until_done(
        &mut self,
        go_on: &dyn Fn() -> bool,
        notify: Notify<'_>,
    ) -> Result<(), SlurmError> {
        self.wait(go_on, notify).map_err(|error| match error {
            left @ SlurmError::Left { .. } => left,
            error => SlurmError::Lost {
                error: Box::new(error),
                jobs: self.jobs.clone(),
                dir: self.campaign.path().to_owned(),
            },
        })
    }

    fn wait(&mut self, go_on: &dyn Fn() -> bool, notify: Notify<'_>) -> Result<(), SlurmError> {
        let mut asked: Option<Instant> = None;
        loop {
            match self.look(notify) {
                // A shared folder comes back. It is waited for as long as Slurm has a job.
                Err(SlurmError::Files(error)) => {
                    if !std::mem::replace(&mut self.blind, true) {
                        let note = format!("{error}; the jobs continue, and takt keeps waiting");
                        notify(Step::Note(&note))?;
                    }
                }
                looked => {
                    looked?;
                    if std::mem::take(&mut self.blind) {
                        notify(Step::Note("the campaign's folder can be read again"))?;
                    }
                }
            }
            if self.blocks.iter().flat_map(|block| &block.runs).all(|run| self.ended.contains(&run.name)) {
                return Ok(());
            }
            if asked.is_none_or(|asked| asked.elapsed() >= ASK_EVERY) {
                self.ask(notify)?;
                asked = Some(Instant::now());
            }
            self.report_queue(notify)?;
            if !go_on() {
                return Err(SlurmError::Left {
                    jobs: self.jobs.clone(),
                    dir: self.campaign.path().to_owned(),
                });
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Reads the nodes' journals and the campaign's runs.
    fn look(&mut self, notify: Notify<'_>) -> Result<(), SlurmError> {
        for (attempt, line) in self.journals.new_lines()? {
            if let Event::Start { submission, block, node, storage_ahead_s, .. } = &line.event {
                let is_current = |b: &Waited<'_>| b.name == *block && b.submission == *submission;
                if self.blocks.iter().any(is_current) {
                    self.attempts.insert(attempt.clone(), node.clone());
                    self.report_clock(node, *storage_ahead_s, notify)?;
                }
            } else if let Some(node) = self.attempts.get(&attempt).cloned() {
                self.happens(&node, line.event, notify)?;
            }
        }
        // The folder has the last word: a journal's last line may be lost with its node.
        let runs = self.blocks.iter().flat_map(|block| block.runs.iter().copied());
        let has_ended = |run: &CellRun| self.ended.contains(&run.name) && !self.failed.contains(&run.name);
        let unseen = |run: &&CellRun| !has_ended(run) && self.campaign.is_whole(run);
        for run in runs.filter(unseen).collect::<Vec<_>>() {
            self.end(run, Ok(()), None, notify)?;
        }
        Ok(())
    }

    fn happens(&mut self, node: &str, event: Event, notify: Notify<'_>) -> Result<(), LabError> {
        match event {
            Event::Begin { run } => {
                let Some(run) = self.run(&run) else { return Ok(()) };
                // It failed on a node, or was made by one that is gone.
                self.open_again(run, notify)?;
                self.running.insert(run.name.clone(), node.to_owned());
                notify(Step::Begins { run, left: self.left.over(self.at_once()) })
            }
            Event::End { run, took_s } => match self.run(&run).filter(|run| self.campaign.is_whole(run)) {
                Some(run) => self.end(run, Ok(()), Some(took_s), notify),
                None => Ok(()),
            },
            // If another node has made it since, by whatever clock, that counts.
            Event::Failed { run, cause } => match self.run(&run).filter(|run| !self.campaign.is_whole(run)) {
                Some(run) => {
                    self.end(run, Err(RunFailure::Elsewhere(format!("node {node}: {cause}"))), None, notify)
                }
                None => Ok(()),
            },
            Event::Again { run } => {
                let Some(run) = self.run(&run) else { return Ok(()) };
                self.open_again(run, notify)
            }
            Event::Start { .. } | Event::Stop { .. } => Ok(()),
        }
    }

    fn open_again(&mut self, run: &CellRun, notify: Notify<'_>) -> Result<(), LabError> {
        if !self.ended.contains(&run.name) || self.campaign.is_whole(run) {
            return Ok(());
        }
        self.begin_again(run, notify)
    }

    fn begin_again(&mut self, run: &CellRun, notify: Notify<'_>) -> Result<(), LabError> {
        self.ended.remove(&run.name);
        self.failed.remove(&run.name);
        self.left.again(run);
        notify(Step::Again { run })
    }

    fn end(
        &mut self,
        run: &CellRun,
        outcome: Result<(), RunFailure>,
        took_s: Option<f64>,
        notify: Notify<'_>,
    ) -> Result<(), LabError> {
        self.running.remove(&run.name);
        if outcome.is_err() {
            self.failed.insert(run.name.clone());
        } else if self.failed.contains(&run.name) {
            // Made by another attempt, between two looks.
            self.begin_again(run, notify)?;
        }
        if !self.ended.insert(run.name.clone()) {
            return Ok(());
        }
        let took = took_s.filter(|took| took.is_finite() && *took >= 0.0).map(Duration::from_secs_f64);
        self.left.ended(run, took);
        notify(Step::Ended { run, outcome })
    }

    /// Nodes on which runs are made now.
    fn at_once(&self) -> usize {
        self.running.values().collect::<BTreeSet<_>>().len().max(1)
    }

    /// Asks for the queue: why blocks wait, and which will not come any more.
    fn ask(&mut self, notify: Notify<'_>) -> Result<(), SlurmError> {
        let names: Vec<&str> = self.names.iter().map(String::as_str).collect();
        let tasks = match client::queue(&names) {
            Ok(tasks) => tasks,
            // It may be restarted, and the jobs go on meanwhile.
            Err(error) => {
                if !self.silent {
                    let note =
                        format!("{error}; the nodes continue with their blocks, and takt keeps waiting");
                    notify(Step::Note(&note))?;
                }
                self.silent = true;
                return Ok(());
            }
        };
        if std::mem::take(&mut self.silent) {
            notify(Step::Note("the controller answers again"))?;
        }
        let waits = tasks.iter().find(|task| task.state == "PENDING");
        let reason = waits.map(|task| task.reason.clone()).filter(|reason| reason != "None");
        self.reason = reason.unwrap_or_default();
        let mut gone = Vec::new();
        for (index, block) in self.blocks.iter_mut().enumerate() {
            let task = tasks.iter().find(|task| format!("{}_{}", task.job, task.index) == block.job);
            if task.is_some_and(|task| !task.has_ended()) {
                block.absent = 0;
                continue;
            }
            block.absent += 1;
            // Not at once: what a node wrote last may still be on its way.
            if block.absent >= 2 {
                gone.push((index, task.cloned()));
            }
        }
        for (index, task) in gone {
            self.give_up(index, task.as_ref(), notify)?;
        }
        Ok(())
    }

    /// The job of a block has ended before its last run: what is open has failed.
    fn give_up(&mut self, index: usize, task: Option<&Task>, notify: Notify<'_>) -> Result<(), SlurmError> {
        self.look(notify)?;
        let block = &self.blocks[index];
        let open = block.runs.iter().copied().filter(|run| !self.ended.contains(&run.name));
        let open: Vec<&CellRun> = open.collect();
        if open.is_empty() {
            return Ok(());
        }
        let job = &block.job;
        let state = client::account(job).or_else(|| {
            let task = task?;
            let node =
                if task.node.is_empty() { "no node".to_owned() } else { format!("node {}", task.node) };
            Some(format!("{} ({}, {node})", task.state, task.reason))
        });
        let cause = match (state, last_words(self.campaign, job)) {
            (None, None) => format!(
                "Slurm no longer knows job {job}, which never began: its controller may have lost its state. `takt campaign resume` \
                 submits it again"
            ),
            (state, output) => {
                let state = state.unwrap_or_else(|| "a state that Slurm has forgotten".to_owned());
                let output = output.unwrap_or_else(|| {
                    "it left no log: can its node see the campaign's folder, and may this user write there?".to_owned()
                });
                // The options for sbatch are fixed for a campaign.
                let more = if state.starts_with("TIMEOUT") {
                    "; for more time per block, start the campaign with --sbatch=--time=MINUTES, or in another partition"
                } else {
                    ""
                };
                format!("job {job} ended before this run in {state}: {output}{more}")
            }
        };
        for run in open {
            self.end(run, Err(RunFailure::Elsewhere(cause.clone())), None, notify)?;
        }
        Ok(())
    }

    fn report_queue(&mut self, notify: Notify<'_>) -> Result<(), LabError> {
        let open = self.blocks.iter().flat_map(|block| &block.runs);
        let open = open.filter(|run| !self.ended.contains(&run.name)).count();
        let queued = open.saturating_sub(self.running.len());
        let queue = Queue {
            queued,
            running: self.running.len(),
            reason: if self.running.is_empty() && queued > 0 { self.reason.clone() } else { String::new() },
            left: self.left.over(self.at_once()),
        };
        let shown = |queue: &Queue| (queue.queued, queue.running, queue.reason.clone());
        if self.reported_queue.as_ref().map(shown) != Some(shown(&queue)) {
            self.reported_queue = Some(queue.clone());
            notify(Step::Queue(queue))?;
        }
        Ok(())
    }

    /// Reports once of a node whose clock is not this machine's.
    fn report_clock(&mut self, node: &str, storage_ahead_s: f64, notify: Notify<'_>) -> Result<(), LabError> {
        let Some(note) = clock_note(node, self.clock - storage_ahead_s) else { return Ok(()) };
        if self.clocks_reported.insert(node.to_owned()) {
            notify(Step::Note(&note))?;
        }
        Ok(())
    }
}

/// Note on a node whose clock is so far ahead.
fn clock_note(node: &str, ahead_s: f64) -> Option<String> {
    if ahead_s.abs() < CLOCK_S {
        return None;
    }
    let way = if ahead_s > 0.0 { "ahead of" } else { "behind" };
    Some(format!(
        "the clock of node {node} is {:.1} s {way} this machine's: times of day of its runs are wrong by that; latencies are not (they use \
         each node's monotonic clock). Fix: run NTP on both",
        ahead_s.abs()
    ))
}

/// Bytes at the end of a task's log that are read for its last words.
const LAST_WORDS_BYTES: u64 = 1 << 16;

/// The last line of a task's log.
fn last_words(campaign: &Campaign, job: &str) -> Option<String> {
    let mut log = takt_files::open(&folder(campaign).join(format!("log-{job}.txt"))).ok()?;
    let before = log.metadata().ok()?.len().saturating_sub(LAST_WORDS_BYTES);
    log.seek(SeekFrom::Start(before)).ok()?;
    let mut end = Vec::new();
    log.take(LAST_WORDS_BYTES).read_to_end(&mut end).ok()?;
    let log = String::from_utf8_lossy(&end);
    let line = log.lines().rev().find(|line| !line.trim().is_empty())?;
    Some(takt_files::shortened(line.trim_start_matches("takt: ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_that_differ_are_reported_with_the_direction() {
        assert_eq!(clock_note("n1", 0.4), None);
        // The storage is 2 s ahead of this machine and 5 s of the node: the node is behind.
        assert!(clock_note("n1", 2.0 - 5.0).unwrap().contains("n1 is 3.0 s behind"));
        assert!(clock_note("n1", 30.25).unwrap().contains("30.2 s ahead of"));
    }
}

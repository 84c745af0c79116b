//! The chains of a run: their samples, their picture, and how the manager stood by them.

use std::path::Path;

use serde::Serialize;
use takt_lab::LabError;
use takt_lab::releases::grid;
use takt_manager::Goals;
use takt_manager::goals::Chain as ChainGoal;
use takt_manager::live::{Live, State};
use takt_manager::plan::ChainState;
use takt_ros::preload::Probe;
use takt_ros_workload::Stamped;
use takt_rt::jobs::JobRecord;
use takt_rundir::{Measure, SampleFile};
use takt_trace::event::Trace;
use takt_trace::perfetto::{Task, export};

use takt_lab::{Session, file_name};

use super::known::Known;

/// Instances of a chain in the picture: half an hour at 50 Hz.
const MAX_SHOWN: usize = 100_000;
/// The picture of the chains.
const PERFETTO_FILE: &str = "chains.perfetto-trace";

/// Sample files of the chains.
pub(super) struct Chains {
    chains: Vec<Chain>,
    /// When the standing was last looked at, and for how long in all.
    looked_ns: Option<u64>,
    followed_ns: u64,
    /// The measured time.
    window_ns: [u64; 2],
}

struct Chain {
    index: usize,
    measure: String,
    goal_ns: u64,
    file: SampleFile,
    rows: u64,
    /// Releases within the window that never ran, and instances that had not ended when the nodes
    /// did, though the goal had passed.
    skipped: u64,
    /// Instances that a later one passed; `None`: nobody counted them here.
    dropped: Option<u64>,
    /// The first instances, for the picture.
    shown: Vec<JobRecord>,
    standing: Standing,
}

/// The manager's record with a chain in the measured window.
#[derive(Debug, Default)]
struct Standing {
    /// For how long it had given the chain up.
    degraded_ns: u64,
    /// The reason, in its words.
    why: String,
    /// From when on the chain was guaranteed or given up, in time.
    words: Vec<Word>,
    /// Completions later than the goal while it was guaranteed.
    late: u64,
    /// Completions later than the goal, and releases that never ran, while it was not given up:
    /// nothing excuses them.
    unexcused: u64,
}

/// The manager's statement on a chain from a moment on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Word {
    from_ns: u64,
    guaranteed: bool,
    degraded: bool,
}

impl Standing {
    /// The statement at a moment.
    fn at(&self, at_ns: u64) -> Word {
        let later = self.words.partition_point(|word| word.from_ns <= at_ns);
        later.checked_sub(1).and_then(|last| self.words.get(last)).copied().unwrap_or_default()
    }

    /// Spans of a time in which it was not given up.
    fn kept(&self, [from_ns, to_ns]: [u64; 2]) -> Vec<[u64; 2]> {
        let mut kept = Vec::new();
        let mut at_ns = from_ns;
        let turns = self.words.iter().map(|word| word.from_ns).filter(|at| (from_ns..to_ns).contains(at));
        for next_ns in turns.chain([to_ns]) {
            if next_ns > at_ns && !self.at(at_ns).degraded {
                kept.push([at_ns, next_ns]);
            }
            at_ns = next_ns;
        }
        kept
    }
}

#[derive(Serialize)]
struct Row {
    began_ns: u64,
    ended_ns: u64,
}

fn measure(goal: &ChainGoal) -> Measure {
    let (samples, title) = (file_name("chain", &goal.name), format!("End-to-end latency of {}", goal.name));
    Measure::new(&goal.name, &title, &samples, "ended_ns")
        .since("began_ns")
        .deadline_ns(goal.goal_ns)
        .judged()
}

/// Measures that reports read: one for each chain.
pub(super) fn measures(goals: &Goals) -> Vec<Measure> {
    goals.chains.iter().map(measure).collect()
}

impl Chains {
    /// The most critical first: reports begin with it. The verdict is about all of them.
    pub(super) fn open(goals: &Goals, session: &mut Session) -> Result<Self, LabError> {
        let mut chains = Vec::new();
        for &index in goals.degradation_order.iter().rev() {
            let Some(goal) = goals.chains.get(index) else { continue };
            session.header.measures.push(measure(goal));
            let samples = file_name("chain", &goal.name);
            let file = session.dir().samples(&samples)?;
            chains.push(Chain {
                index,
                measure: goal.name.clone(),
                goal_ns: goal.goal_ns,
                file,
                rows: 0,
                skipped: 0,
                dropped: None,
                shown: Vec::new(),
                standing: Standing::default(),
            });
        }
        Ok(Self { chains, looked_ns: None, followed_ns: 0, window_ns: [0, u64::MAX] })
    }

    /// The measured time is known.
    pub(super) fn measured(&mut self, from_ns: u64, to_ns: u64) {
        self.window_ns = [from_ns, to_ns];
    }

    /// Looks which chains the manager stands by. To be called within the measured window, before
    /// [`Chains::keep`], and only where plans are enacted: what a plan gives up on paper alone is
    /// nobody's excuse.
    pub(super) fn follow(&mut self, now_ns: u64, live: &Live<Probe>) {
        let passed_ns = now_ns.saturating_sub(self.looked_ns.replace(now_ns).unwrap_or(now_ns));
        self.followed_ns += passed_ns;
        let Some(plan) = live.plan() else { return };
        for chain in &mut self.chains {
            let Some(planned) = plan.chains.get(chain.index) else { continue };
            let guaranteed = live.state(chain.index) == State::Guaranteed;
            let degraded = matches!(planned.state, ChainState::Degraded { .. });
            let words = &mut chain.standing.words;
            if words.last().is_none_or(|w| (w.guaranteed, w.degraded) != (guaranteed, degraded)) {
                words.push(Word { from_ns: now_ns, guaranteed, degraded });
            }
            if let ChainState::Degraded { why } = &planned.state {
                chain.standing.degraded_ns += passed_ns;
                chain.standing.why.clone_from(why);
            }
        }
    }

    /// Takes what the nodes wrote down, after their end.
    pub(super) fn take(&mut self, known: &Known, stamped: &Stamped) -> Result<(), LabError> {
        let [from_ns, to_ns] = self.window_ns;
        let within = |at_ns: &u64| (from_ns..to_ns).contains(at_ns);
        for chain in &mut self.chains {
            let Some(ways) = known.ways.get(chain.index) else { continue };
            let mut ended = Vec::new();
            let mut dropped = 0;
            for way in ways {
                let instances = stamped.instances(way);
                ended.extend(instances.ended);
                dropped += instances.dropped.iter().filter(|at| within(at)).count() as u64;
                // Instances that had not ended and could no longer end in time.
                let late = instances.open.iter().filter(|at| within(at) && **at + chain.goal_ns <= to_ns);
                for &began_ns in late {
                    chain.skipped += 1;
                    let degraded = chain.standing.at(began_ns + chain.goal_ns).degraded;
                    chain.standing.unexcused += u64::from(!degraded);
                }
            }
            ended.sort_by_key(|one| (one.ended_ns, one.began_ns));
            for done in ended {
                chain.complete(done.began_ns, done.ended_ns, within(&done.began_ns))?;
            }
            if let Some(&first) = ways.first().and_then(|way| way.first()) {
                // A release just before the end could still have run in time, but for those that a
                // later one passed.
                let last_ns = stamped.runs(first).iter().filter_map(|run| run.release_ns).max();
                let due_ns = to_ns.saturating_sub(chain.goal_ns).max(last_ns.unwrap_or(0)).min(to_ns);
                if due_ns > from_ns {
                    chain.skipped += stamped.skipped(first, [from_ns, due_ns]);
                    let kept = chain.standing.kept([from_ns, due_ns]);
                    chain.standing.unexcused +=
                        kept.into_iter().map(|span| stamped.skipped(first, span)).sum::<u64>();
                }
            }
            chain.dropped = Some(dropped);
        }
        Ok(())
    }

    /// Takes the completions that the manager saw since the last call.
    pub(super) fn keep(&mut self, live: &mut Live<Probe>) -> Result<(), LabError> {
        let [from_ns, to_ns] = self.window_ns;
        for (index, skips) in live.skips() {
            let Some(chain) = self.chains.iter_mut().find(|chain| chain.index == index) else { continue };
            for skip in skips {
                let end_ns = skip.first_ns.saturating_add(skip.period_ns.saturating_mul(skip.count));
                let skipped = grid(skip.first_ns, skip.period_ns, from_ns, to_ns.min(end_ns));
                chain.skipped += skipped;
                let degraded = chain.standing.at(skip.first_ns).degraded;
                chain.standing.unexcused += if degraded { 0 } else { skipped };
            }
        }
        for (index, completions) in live.completions() {
            let Some(chain) = self.chains.iter_mut().find(|chain| chain.index == index) else { continue };
            for done in completions {
                let counts = (from_ns..to_ns).contains(&done.ended_ns);
                chain.complete(done.began_ns, done.ended_ns, counts)?;
            }
        }
        Ok(())
    }

    /// Chains that were given up have an excuse; those that never completed have no samples, which
    /// is said instead.
    pub(super) fn close(&mut self, session: &mut Session) -> Result<(), LabError> {
        if let Err(error) = self.draw(&session.dir().path().join(PERFETTO_FILE)) {
            session.header.problems.push(format!("{PERFETTO_FILE}: {error}"));
        }
        for chain in &mut self.chains {
            chain.file.flush()?;
            if chain.rows == 0 {
                let path = session.dir().sample_path(&file_name("chain", &chain.measure));
                std::fs::remove_file(&path).map_err(LabError::io(&path))?;
                session.header.problems.push(format!("chain {} never completed", chain.measure));
            }
            session.header.figures.insert(format!("skipped.{}", chain.measure), chain.skipped as f64);
            if let Some(dropped) = chain.dropped {
                session.header.figures.insert(format!("dropped.{}", chain.measure), dropped as f64);
            }
            if let Some(measure) = session.header.measures.iter_mut().find(|m| m.name == chain.measure) {
                measure.skipped = chain.skipped;
            }
            if self.followed_ns == 0 {
                continue;
            }
            let Standing { degraded_ns, why, late, unexcused, .. } = &chain.standing;
            let seconds = |ns: u64| ns as f64 / 1e9;
            let (name, figures) = (&chain.measure, &mut session.header.figures);
            figures.insert(format!("degraded_s.{name}"), seconds(*degraded_ns));
            figures.insert(format!("late_while_guaranteed.{name}"), *late as f64);
            let measure = session.header.measures.iter_mut().find(|measure| measure.name == *name);
            // A goal missed while it was not given up has no excuse, whatever was given up later.
            if let (Some(measure), true, 0) = (measure, *degraded_ns > 0, *unexcused) {
                let (given_up_s, all_s) = (seconds(*degraded_ns), seconds(self.followed_ns));
                measure.excused = Some(format!("degraded for {given_up_s:.1} of {all_s:.1} s: {why}"));
            }
        }
        Ok(())
    }
}

impl Chain {
    /// An instance came to its end; `counts`: within the window.
    fn complete(&mut self, began_ns: u64, ended_ns: u64, counts: bool) -> Result<(), LabError> {
        self.file.push(&Row { began_ns, ended_ns })?;
        let late = ended_ns.saturating_sub(began_ns) > self.goal_ns;
        let word = self.standing.at(ended_ns);
        self.standing.late += u64::from(late && word.guaranteed);
        self.standing.unexcused += u64::from(late && counts && !word.degraded);
        if self.shown.len() < MAX_SHOWN {
            let (index, planned_ns, end_ns) = (self.rows, began_ns, ended_ns);
            let (wake_ns, start_ns) = (began_ns, began_ns);
            self.shown.push(JobRecord { index, planned_ns, wake_ns, start_ns, end_ns, ..Default::default() });
        }
        self.rows += 1;
        Ok(())
    }
}

impl Chains {
    /// Every chain as a track of its instances, late ones marked, for ui.perfetto.dev.
    fn draw(&self, path: &Path) -> Result<(), String> {
        let task = |chain: &Chain| Task {
            name: format!("chain {}", chain.measure),
            deadline_ns: Some(chain.goal_ns),
            ..Task::default()
        };
        let tasks: Vec<_> = self.chains.iter().map(|chain| (task(chain), chain.shown.as_slice())).collect();
        let file = takt_files::create_output(path).map_err(|error| error.to_string())?;
        export(std::io::BufWriter::new(file), &Trace::default(), &tasks)
            .map_err(|error| error.to_string())?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_said_of_a_chain_is_known_for_every_moment() {
        let word = |from_ns, guaranteed, degraded| Word { from_ns, guaranteed, degraded };
        let words = vec![word(10, true, false), word(20, false, true), word(40, false, false)];
        let standing = Standing { words, ..Standing::default() };
        let reported: Vec<(bool, bool)> = [5, 10, 19, 20, 39, 40, 99]
            .map(|at| (standing.at(at).guaranteed, standing.at(at).degraded))
            .to_vec();
        let (nothing, kept, given_up) = ((false, false), (true, false), (false, true));
        assert_eq!(reported, [nothing, kept, kept, given_up, given_up, nothing, nothing]);
        assert_eq!(standing.kept([0, 100]), [[0, 10], [10, 20], [40, 100]]);
        assert_eq!(standing.kept([25, 35]), Vec::<[u64; 2]>::new());
        assert_eq!(standing.kept([20, 50]), [[40, 50]]);
        assert_eq!(Standing::default().kept([3, 7]), [[3, 7]]);
    }
}

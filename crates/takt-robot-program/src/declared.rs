//! What comes of a declared loop beside its jobs: stages, losses, and how far it agrees with the
//! kernel.

use serde::{Deserialize, Serialize};
use takt_lab::LabError;
use takt_lab::collect::Rows;
use takt_lab::keeper::Window;
use takt_rundir::{Draft, RunDir};
use takt_sdk::layout::MAX_STAGES;
use takt_watch::declared::{Declared, Job};

use crate::agreement::{Agreement, Compared};
use crate::config::Loop;
use crate::feed::Batch;

/// More jobs than this many times what the period allows are a flood.
const FLOOD: f64 = 2.0;

/// A stage of a loop's jobs, in `run.json` and in the summary.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StageSummary {
    /// Its name.
    pub name: String,
    /// How often it ran within the window.
    pub count: u64,
    /// How long it took, on average.
    pub mean_us: f64,
    /// How long it took at most.
    pub max_us: f64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    count: u64,
    total_ns: u64,
    max_ns: u64,
}

/// One line of a stage file. CLOCK_MONOTONIC nanoseconds.
#[derive(Debug, Serialize)]
struct StageRow {
    /// Number of the job.
    index: u64,
    /// Number of the stage, in the order of `stages` in `run.json`.
    stage: u64,
    begin_ns: u64,
    end_ns: u64,
}

/// A declared loop while it is collected.
#[derive(Debug)]
pub(crate) struct Own {
    declared: Declared,
    config: Loop,
    pub(crate) agreement: Agreement,
    stages: [Sum; MAX_STAGES],
    rows: Rows,
    last_job: Option<u64>,
    /// Records that were lost, of which it is not known yet before which job.
    open_losses: u64,
    lost: u64,
    impossible: u64,
    is_damaged: bool,
    is_replaced: bool,
    jobs: u64,
    span_ns: Option<[u64; 2]>,
}

/// What a declared loop came to.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) compared: Compared,
    pub(crate) stages: Vec<StageSummary>,
    pub(crate) lost: u64,
    /// What went wrong, a sentence each; what was measured stays.
    pub(crate) problems: Vec<String>,
    /// What keeps it from a PASS.
    pub(crate) doubts: Vec<String>,
}

impl Own {
    pub(crate) fn new(dir: &RunDir, config: &Loop, declared: &Declared) -> Result<Self, LabError> {
        let agreement = Agreement::new(config.deadline_ns, declared.spin_ns, declared.period_ns.is_some());
        Ok(Self {
            declared: declared.clone(),
            config: config.clone(),
            agreement,
            stages: [Sum::default(); MAX_STAGES],
            rows: Rows::new(dir, &stages_file(config))?,
            last_job: None,
            open_losses: 0,
            lost: 0,
            impossible: 0,
            is_damaged: false,
            is_replaced: false,
            jobs: 0,
            span_ns: None,
        })
    }

    /// Notes what came beside the rows.
    pub(crate) fn note(&mut self, batch: &Batch) {
        self.open_losses = self.open_losses.saturating_add(batch.lost);
        self.lost = self.lost.saturating_add(batch.lost);
        self.impossible = self.impossible.saturating_add(batch.impossible);
        self.is_damaged |= batch.is_damaged;
        self.is_replaced |= batch.is_replaced;
    }

    /// How many jobs before this one were lost: those that its number leaves out, as far as so many
    /// records were lost.
    pub(crate) fn lost_before(&mut self, job: &Job) -> u64 {
        self.jobs += 1;
        let begin_ns = self.span_ns.map_or(job.release_ns, |[begin_ns, _]| begin_ns);
        self.span_ns = Some([begin_ns, job.release_ns]);
        let left_out = self.last_job.map_or(0, |last| job.job.saturating_sub(last).saturating_sub(1));
        self.last_job = Some(job.job);
        let lost = left_out.min(self.open_losses);
        self.open_losses -= lost;
        lost
    }

    pub(crate) fn stage(
        &mut self,
        window: &Window,
        job: u64,
        stage: usize,
        [begin_ns, end_ns]: [u64; 2],
    ) -> Result<(), LabError> {
        if window.keeps(begin_ns) {
            let row = || StageRow { index: job, stage: stage as u64, begin_ns, end_ns };
            self.rows.push(row)?;
        }
        let [from_ns, to_ns] = window.bounds();
        if let Some(sum) = self.stages.get_mut(stage).filter(|_| (from_ns..to_ns).contains(&begin_ns)) {
            let took_ns = end_ns.saturating_sub(begin_ns);
            sum.count += 1;
            sum.total_ns = sum.total_ns.saturating_add(took_ns);
            sum.max_ns = sum.max_ns.max(took_ns);
        }
        Ok(())
    }

    pub(crate) fn keep(&mut self, draft: &mut Draft) -> Result<(), LabError> {
        self.rows.keep(draft)
    }

    pub(crate) fn finish(mut self) -> Outcome {
        let compared = self.agreement.finish();
        let names = self.declared.stages();
        let stages = names.into_iter().zip(self.stages).map(|(name, sum)| StageSummary {
            name,
            count: sum.count,
            mean_us: if sum.count > 0 { sum.total_ns as f64 / sum.count as f64 / 1e3 } else { 0.0 },
            max_us: sum.max_ns as f64 / 1e3,
        });
        Outcome {
            compared,
            stages: stages.collect(),
            lost: self.lost,
            problems: self.problems(),
            doubts: self.doubts(),
        }
    }

    fn name(&self) -> String {
        takt_files::quoted(&self.config.name)
    }

    fn problems(&self) -> Vec<String> {
        let (name, mut problems) = (self.name(), Vec::new());
        if self.lost > 0 {
            problems.push(format!(
                "{} records of loop \"{name}\" found no room: it writes one for each job and each stage, and Takt takes up to 4096 every \
                 10 ms",
                self.lost
            ));
        }
        if self.impossible > 0 {
            problems.push(format!(
                "{} records of loop \"{name}\" cannot be (they end before they begin, or in the future) and were left out",
                self.impossible
            ));
        }
        let ns = self.declared.deadline_ns.filter(|&ns| ns != self.config.deadline_ns);
        // The period is the deadline of whoever declares none.
        if let Some(ns) = ns.filter(|&ns| Some(ns) != self.declared.period_ns) {
            problems.push(format!(
                "loop \"{name}\" declares a deadline of {}, and the file's {} is what it was judged by",
                ms(ns),
                ms(self.config.deadline_ns)
            ));
        }
        problems
    }

    fn doubts(&self) -> Vec<String> {
        let (name, mut doubts) = (self.name(), Vec::new());
        if let Some(ns) = self.declared.period_ns.filter(|&ns| ns != self.config.period_ns) {
            // A rate such as 3 kHz is no whole number of nanoseconds.
            if (ns as f64 / self.config.period_ns as f64 - 1.0).abs() > 1e-3 {
                doubts.push(format!(
                    "loop \"{name}\" declares a period of {}, and the file says {}: correct `period`, or the program",
                    ms(ns),
                    ms(self.config.period_ns)
                ));
            }
        }
        if let Some([begin_ns, end_ns]) = self.span_ns {
            let seconds = end_ns.saturating_sub(begin_ns) as f64 / 1e9;
            let allowed = seconds * self.config.rate_hz() + 1.0;
            if self.jobs as f64 > FLOOD * allowed + 16.0 {
                doubts.push(format!(
                    "loop \"{name}\" declares {} jobs in {seconds:.3} s, where its period allows {allowed:.0}: a job is what one release \
                     begins",
                    self.jobs
                ));
            }
        }
        if self.is_damaged {
            doubts.push(format!(
                "the records of loop \"{name}\" contradict each other: the program writes over the memory in which they lie"
            ));
        }
        if self.is_replaced {
            doubts.push(format!("another session took the records of loop \"{name}\" during the run"));
        }
        doubts
    }
}

/// Name of a loop's stage file.
fn stages_file(one: &Loop) -> String {
    format!("stages-{}", one.label)
}

fn ms(ns: u64) -> String {
    takt_rt::duration::format(std::time::Duration::from_nanos(ns))
}

//! The paper's matrix: policies × noise threads, each repeated (SentryRT-1, Table II and Fig. 3).
//!
//! A bench directory holds `bench.json` (what was asked) and one run directory per cell and repetition. A cell
//! with a sealed run directory is never measured again, so that a killed bench goes on where it stopped.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use takt_robot_cell::tasks::PolicyMix;
use takt_stats::{Summary, reduction};

use super::CellSummary;
use crate::LabError;
use takt_rundir::{RunDir, SUMMARY_FILE, read_json, set_aside, utc_name, utc_now, write_json};

/// File of what was asked of a bench.
pub const BENCH_FILE: &str = "bench.json";
/// File of the rows.
pub const ROWS_FILE: &str = "rows.json";

/// What to measure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BenchPlan {
    /// Scheduler configurations.
    pub policies: Vec<PolicyMix>,
    /// Numbers of noise threads.
    pub noise: Vec<u32>,
    /// Length of one run, seconds.
    pub seconds: f64,
    /// Runs per cell.
    pub repeat: u32,
    /// SHA-256 of the robot's configuration.
    pub config_sha256: String,
    /// The same of another design that runs in every cell, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub against_sha256: Option<String>,
}

/// One run of the matrix.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BenchCell {
    /// Scheduler configuration.
    pub policy: PolicyMix,
    /// Noise threads.
    pub noise: u32,
    /// Repetition, from 1.
    pub repetition: u32,
    /// Whether it is of the other design.
    pub against: bool,
}

impl BenchCell {
    /// Folder name of the run.
    pub fn name(&self) -> String {
        let design = if self.against { "against-" } else { "" };
        format!("{design}{}-noise{}-r{}", self.policy.name().replace('+', "-"), self.noise, self.repetition)
    }
}

impl BenchPlan {
    /// All runs. Repetitions are the outermost loop, so that slow changes of the machine spread over all cells
    /// instead of favouring the first. Two designs take turns in every cell.
    pub fn cells(&self) -> Vec<BenchCell> {
        let designs = if self.against_sha256.is_some() { &[false, true][..] } else { &[false] };
        let mut cells = Vec::new();
        for repetition in 1..=self.repeat {
            for &noise in &self.noise {
                for &policy in &self.policies {
                    let cell = |&against| BenchCell { policy, noise, repetition, against };
                    cells.extend(designs.iter().map(cell));
                }
            }
        }
        cells
    }
}

/// `bench.json`.
#[derive(Debug, Serialize, Deserialize)]
struct BenchFile {
    started_utc: String,
    plan: BenchPlan,
}

/// One cell of the matrix over its repetitions.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BenchRow {
    /// Scheduler configuration.
    pub policy: PolicyMix,
    /// Noise threads.
    pub noise: u32,
    /// Repetitions measured.
    pub repetitions: u32,
    /// Reaction time over the repetitions, milliseconds.
    pub reaction_ms: ReactionRow,
    /// Reactions later than the deadline, all repetitions.
    pub misses: u64,
    /// Reactions measured, all repetitions.
    pub reactions: u64,
    /// Frames that were delivered and never judged, all repetitions.
    pub frames_dropped: u64,
    /// SSM jobs that missed their own deadline, all repetitions.
    pub ssm_misses: u64,
    /// Greatest share of the processor time that the hypervisor took in one repetition.
    pub stolen: f64,
    /// Settings that were asked for and not granted.
    pub not_granted: Vec<String>,
    /// The run directories.
    pub run_dirs: Vec<String>,
}

/// Reaction time of a cell: maximum and mean across repetitions, with their spread (SentryRT-1, V.D and Fig. 3).
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ReactionRow {
    /// Mean of the repetitions' means.
    pub mean: f64,
    /// Worst of all repetitions.
    pub worst: f64,
    /// Means of the repetitions: least and greatest.
    pub mean_range: [f64; 2],
    /// Worsts of the repetitions: least, median, greatest.
    pub worst_range: [f64; 3],
}

/// A bench on disk.
#[derive(Debug)]
pub struct Bench {
    path: PathBuf,
    plan: BenchPlan,
}

/// What a bench says while it runs.
#[derive(Clone, Copy, Debug)]
pub enum Progress<'a> {
    /// A run begins.
    Begin {
        /// Which one.
        cell: &'a BenchCell,
        /// Runs done, all runs.
        done: (usize, usize),
    },
    /// A run was found measured already.
    Kept {
        /// Which one.
        cell: &'a BenchCell,
        /// Runs done, all runs.
        done: (usize, usize),
    },
    /// A run ended.
    End {
        /// Its figures.
        summary: &'a CellSummary,
        /// Runs done, all runs.
        done: (usize, usize),
    },
}

impl Bench {
    /// A new bench below `root`.
    ///
    /// # Errors
    /// [`LabError::Io`].
    pub fn create(root: &Path, plan: BenchPlan) -> Result<Self, LabError> {
        let path = root.join(format!("{}-bench-cell-{}", utc_name(), std::process::id()));
        fs::create_dir_all(&path).map_err(LabError::io(&path))?;
        write_json(&path.join(BENCH_FILE), &BenchFile { started_utc: utc_now(), plan: plan.clone() })?;
        Ok(Self { path, plan })
    }

    /// Goes on with the bench at `path`.
    ///
    /// # Errors
    /// [`LabError::Damaged`] when it is no bench, [`LabError::OtherBench`] when it was begun with another plan.
    pub fn resume(path: &Path, plan: BenchPlan) -> Result<Self, LabError> {
        if !path.join(BENCH_FILE).is_file() {
            return Err(LabError::damaged(
                path,
                format!("no {BENCH_FILE}"),
                "the folder of a bench, which it names at its end; leave --resume out to start a new bench",
            ));
        }
        let before: BenchFile = read_json(&path.join(BENCH_FILE))?;
        if before.plan != plan {
            let show = |plan: &BenchPlan| serde_json::to_string(plan).unwrap_or_default();
            return Err(LabError::OtherBench {
                dir: path.to_owned(),
                before: show(&before.plan),
                now: show(&plan),
            });
        }
        Ok(Self { path: path.to_owned(), plan })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Measures what is not measured yet. `run` makes one run and leaves its sealed run directory at the path that it
    /// is given, or says why it could not.
    ///
    /// # Errors
    /// [`LabError::BenchCell`] with the way to go on.
    pub fn measure(
        &self,
        run: &mut dyn FnMut(&BenchCell, &Path) -> Result<(), String>,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Vec<BenchRow>, LabError> {
        let cells = self.plan.cells();
        for (index, cell) in cells.iter().enumerate() {
            let path = self.path.join(cell.name());
            if self.is_whole(&path) {
                progress(Progress::Kept { cell, done: (index + 1, cells.len()) });
                continue;
            }
            set_aside(&path)?;
            progress(Progress::Begin { cell, done: (index, cells.len()) });
            let failed = |cause| LabError::BenchCell { cell: cell.name(), cause, dir: self.path.clone() };
            run(cell, &path).map_err(failed)?;
            let summary: CellSummary = RunDir::open(&path)?.read_json(SUMMARY_FILE)?;
            if !self.is_whole(&path) {
                let (is, was) = (summary.seconds, self.plan.seconds);
                return Err(failed(format!("the run ended after {is:.1} s instead of {was} s")));
            }
            progress(Progress::End { summary: &summary, done: (index + 1, cells.len()) });
        }
        let rows = self.rows()?;
        write_json(&self.path.join(ROWS_FILE), &rows)?;
        Ok(rows)
    }

    /// Whether the run at `path` was sealed and as long as asked: one that was ended early, in order, is sealed, too.
    fn is_whole(&self, path: &Path) -> bool {
        let sealed = RunDir::open(path).ok().filter(RunDir::is_complete);
        let summary = sealed.and_then(|dir| dir.read_json::<CellSummary>(SUMMARY_FILE).ok());
        summary.is_some_and(|summary| summary.seconds >= self.plan.seconds)
    }

    /// One row per cell of the matrix, from the run directories.
    ///
    /// # Errors
    /// [`LabError::Io`] or [`LabError::Damaged`].
    pub fn rows(&self) -> Result<Vec<BenchRow>, LabError> {
        self.rows_of(false)
    }

    /// The same of the other design; none where there is no other.
    ///
    /// # Errors
    /// As [`rows`](Self::rows).
    pub fn against_rows(&self) -> Result<Vec<BenchRow>, LabError> {
        if self.plan.against_sha256.is_none() {
            return Ok(Vec::new());
        }
        self.rows_of(true)
    }

    fn rows_of(&self, against: bool) -> Result<Vec<BenchRow>, LabError> {
        let mut rows = Vec::new();
        for &noise in &self.plan.noise {
            for &policy in &self.plan.policies {
                let runs: Vec<CellSummary> = (1..=self.plan.repeat)
                    .map(|repetition| BenchCell { policy, noise, repetition, against })
                    .map(|cell| RunDir::open(&self.path.join(cell.name()))?.read_json(SUMMARY_FILE))
                    .collect::<Result<_, _>>()?;
                rows.push(row(policy, noise, &runs));
            }
        }
        Ok(rows)
    }
}

fn row(policy: PolicyMix, noise: u32, runs: &[CellSummary]) -> BenchRow {
    let means = Summary::of(&mut runs.iter().map(|r| r.reaction_ms.mean).collect::<Vec<_>>());
    let worsts = Summary::of(&mut runs.iter().map(|r| r.reaction_ms.worst).collect::<Vec<_>>());
    let mut not_granted: Vec<String> = runs.iter().flat_map(|r| r.not_granted.clone()).collect();
    not_granted.sort();
    not_granted.dedup();
    BenchRow {
        policy,
        noise,
        repetitions: runs.len() as u32,
        reaction_ms: ReactionRow {
            mean: means.mean,
            worst: worsts.worst,
            mean_range: [means.min, means.worst],
            worst_range: [worsts.min, worsts.median, worsts.worst],
        },
        misses: runs.iter().map(|r| r.misses).sum(),
        reactions: runs.iter().map(|r| r.reaction_ms.count).sum(),
        frames_dropped: runs.iter().map(|r| r.frames_dropped).sum(),
        ssm_misses: runs.iter().map(|r| r.ssm.misses).sum(),
        stolen: runs.iter().map(|r| r.cpu.stolen).fold(0.0, f64::max),
        not_granted,
        run_dirs: runs.iter().map(|r| r.run_dir.clone()).collect(),
    }
}

/// By how much a row's reaction lies below that of CFS+CFS under the same noise, percent: (mean, worst). `None` for
/// CFS+CFS itself and where it was not measured; and where the row dropped a greater share of its frames, since who answers only
/// what he can is not faster.
pub fn against_cfs(row: &BenchRow, rows: &[BenchRow]) -> Option<(f64, f64)> {
    let cfs = rows.iter().find(|r| r.policy == PolicyMix::CfsCfs && r.noise == row.noise)?;
    if row.policy == PolicyMix::CfsCfs {
        return None;
    }
    // Compared crosswise: dropped / (dropped + answered) without a division.
    let product = |one: u64, other: u64| u128::from(one) * u128::from(other);
    if product(row.frames_dropped, cfs.reactions) > product(cfs.frames_dropped, row.reactions) {
        return None;
    }
    let (before, now) = (&cfs.reaction_ms, &row.reaction_ms);
    Some((reduction(before.mean, now.mean)?, reduction(before.worst, now.worst)?))
}

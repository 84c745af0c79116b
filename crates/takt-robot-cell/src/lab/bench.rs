//! The paper's matrix (SentryRT-1, Table II and Fig. 3): the campaign `sentryrt1` over any
//! configuration of the cell, and its rows.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use takt_lab::LabError;
use takt_lab::campaign::{Campaign, CampaignFile, FactorSpec, Level, Order};
use takt_rundir::{Factor, RunDir, SUMMARY_FILE};
use takt_stats::{Summary, Verdict, reduction};

use super::run::CAMPAIGN;
use super::work::Work;
use super::{CellFile, CellSummary};
use crate::tasks::PolicyMix;

const NOISE: &str = "noise";
const POLICY: &str = "policy";
const DESIGN: &str = "design";

/// Varied factors, and the number of runs of each combination.
#[derive(Clone, Debug, PartialEq)]
pub struct Matrix {
    /// Scheduler configurations.
    pub policies: Vec<PolicyMix>,
    /// Numbers of noise threads.
    pub noise: Vec<u32>,
    /// Length of one run, seconds.
    pub seconds: f64,
    /// Runs of each combination.
    pub repeat: u32,
}

/// The campaign `sentryrt1` with this matrix, over `file` and, where there is one, another design
/// that takes turns with it in every combination. A `[scale]` must be settled: the runs follow the
/// configurations.
///
/// # Errors
/// [`LabError::Config`] for values that are there twice.
pub fn campaign(
    matrix: &Matrix,
    file: &CellFile,
    against: Option<&CellFile>,
) -> Result<CampaignFile, LabError> {
    let mut campaign = CampaignFile::parse(CAMPAIGN, "campaigns/sentryrt1.toml (built in)")?;
    (campaign.seconds, campaign.repetitions) = (Some(matrix.seconds), matrix.repeat);
    // Repetitions are the outermost loop, so that slow changes of the machine spread over all
    // combinations.
    campaign.order = Order::Given;
    // The configurations that are benched say all else; the campaign's other factors have the
    // paper's.
    campaign.factors.retain(|factor| [NOISE, POLICY].contains(&factor.name.as_str()));
    campaign.paper = None;
    campaign.replace_values(NOISE, &matrix.noise.iter().map(u32::to_string).collect::<Vec<_>>())?;
    campaign.replace_values(POLICY, &matrix.policies.iter().map(PolicyMix::to_string).collect::<Vec<_>>())?;
    // Whole configurations are set, so that it does not matter which one they are set in.
    campaign.robot = Some("cell".to_owned());
    let whole = |file: &CellFile| {
        toml::Table::try_from(file).map_err(|e| LabError::Config(format!("{}: {e}", file.envelope.name)))
    };
    let Some(against) = against else {
        campaign.set = whole(file)?;
        return Ok(campaign);
    };
    let other = if against.envelope.name == file.envelope.name {
        format!("{} (against)", file.envelope.name)
    } else {
        against.envelope.name.clone()
    };
    let values = vec![
        Level::Named { name: file.envelope.name.clone(), set: whole(file)? },
        Level::Named { name: other, set: whole(against)? },
    ];
    campaign.factors.push(FactorSpec { name: DESIGN.to_owned(), values, ..FactorSpec::default() });
    Ok(campaign)
}

/// One cell of the matrix over its repetitions. Measurements are null if no repetition has them,
/// because its policy was not granted or its runs failed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BenchRow {
    /// Scheduler configuration.
    pub policy: PolicyMix,
    /// Noise threads.
    pub noise: u32,
    /// Repetitions measured.
    pub repetitions: u32,
    /// Reaction time over the repetitions, milliseconds; null where nothing was answered.
    pub reaction_ms: Option<ReactionSpread>,
    /// Reactions later than the deadline, all repetitions.
    pub misses: Option<u64>,
    /// Reactions measured, all repetitions.
    pub reactions: Option<u64>,
    /// Frames that were delivered and never judged, all repetitions.
    pub frames_dropped: Option<u64>,
    /// SSM releases that missed their own deadline, skipped ones too, all repetitions.
    pub ssm_misses: Option<u64>,
    /// Every task that has a deadline, over all repetitions.
    #[serde(default)]
    pub tasks: Vec<BenchTask>,
    /// Frames without a judgement by reason, all repetitions.
    #[serde(default)]
    pub losses: BTreeMap<String, u64>,
    /// Runs by verdict.
    #[serde(default)]
    pub verdicts: BTreeMap<String, u32>,
    /// The verdict on each run in one sentence.
    #[serde(default)]
    pub sentences: Vec<String>,
    /// Amount of work, all repetitions.
    #[serde(default)]
    pub work: Option<Work>,
    /// Comparison with CFS+CFS under the same noise; null for CFS+CFS itself, and without it.
    #[serde(default)]
    pub against_cfs: Option<Against>,
    /// Greatest share of the processor time that the hypervisor took in one repetition.
    pub stolen: Option<f64>,
    /// Settings that were asked for and not granted.
    pub not_granted: Vec<String>,
    /// The run directories.
    pub run_dirs: Vec<String>,
}

/// A task over the repetitions of a cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BenchTask {
    /// Name of its thread.
    pub name: String,
    pub deadline_ms: f64,
    pub releases: u64,
    /// Those that missed the deadline, skipped ones too.
    pub misses: u64,
    /// Longest response time, milliseconds; null without a job.
    pub worst_ms: Option<f64>,
}

/// By how much the reaction time of a cell lies below that of CFS+CFS under the same noise.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Against {
    /// Mean, percent; null where the side that would be better did less work.
    pub mean_percent: Option<f64>,
    /// Worst, percent; null likewise.
    pub worst_percent: Option<f64>,
    /// Reasons why neither side is called better: less work, each kind beyond its tolerance.
    pub refused: Vec<String>,
}

/// Reaction time of a cell: maximum and mean across repetitions, with their spread (SentryRT-1, V.D
/// and Fig. 3).
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ReactionSpread {
    /// Mean of the repetitions' means.
    pub mean: f64,
    /// Worst of all repetitions.
    pub worst: f64,
    /// Means of the repetitions: least and greatest.
    pub mean_range: [f64; 2],
    /// Worsts of the repetitions: least, median, greatest.
    pub worst_range: [f64; 3],
}

/// A row for each combination of noise and policy, from the run directories; repetitions that are
/// not measured are left out.
///
/// # Errors
/// [`LabError::Files`] for a damaged run directory, [`LabError::Config`] for a campaign of other
/// factors.
pub fn rows(campaign: &Campaign) -> Result<Vec<BenchRow>, LabError> {
    rows_of(campaign, 0)
}

/// The same of the other design; none where there is no other.
///
/// # Errors
/// As [`rows`].
pub fn against_rows(campaign: &Campaign) -> Result<Vec<BenchRow>, LabError> {
    rows_of(campaign, 1)
}

fn rows_of(campaign: &Campaign, design: usize) -> Result<Vec<BenchRow>, LabError> {
    let plan = campaign.plan();
    let designs = plan.file.factors.iter().find(|factor| factor.name == DESIGN);
    let wanted = designs.and_then(|factor| factor.values.get(design)).map(Level::text);
    if wanted.is_none() && design > 0 {
        return Ok(Vec::new());
    }
    let mut rows = Vec::new();
    for (factors, runs) in plan.configurations() {
        let value = |name: &str| factors.iter().find(|f: &&Factor| f.name == name).map(|f| f.value.as_str());
        if value(DESIGN) != wanted.as_deref() {
            continue;
        }
        let policy = value(POLICY).and_then(|text| text.parse().ok());
        let noise = value(NOISE).and_then(|text| text.parse().ok());
        let Some((policy, noise)) = policy.zip(noise) else {
            let name = &plan.file.name;
            return Err(LabError::Config(format!("campaign {name}: accepted are factors noise and policy")));
        };
        let measured = runs.iter().map(|run| campaign.path().join(&run.name));
        let measured = measured.filter(|path| RunDir::open(path).is_ok_and(|dir| dir.is_complete()));
        let summaries = measured.map(|path| believed(&path)).collect::<Result<Vec<_>, _>>()?;
        rows.push(row(policy, noise, &summaries));
    }
    let against: Vec<_> = rows.iter().map(|row| against_cfs(row, &rows)).collect();
    rows.iter_mut().zip(against).for_each(|(row, against)| row.against_cfs = against);
    Ok(rows)
}

/// A run's own summary. If its files were changed after the run, it has no verdict.
fn believed(path: &Path) -> Result<CellSummary, LabError> {
    let dir = RunDir::open(path)?;
    let mut summary: CellSummary = dir.read_json(SUMMARY_FILE)?;
    if let Some(doubt) = dir.seal_state().doubt_of(&dir.header()?) {
        summary.verdict = Verdict::Inconclusive;
        summary.reasons.insert(0, format!("it proves nothing: {doubt}"));
    }
    Ok(summary)
}

fn row(policy: PolicyMix, noise: u32, runs: &[CellSummary]) -> BenchRow {
    // A repetition that answered nothing has no reaction time.
    let answered = || runs.iter().map(|r| r.reaction_ms).filter(|reaction| reaction.count > 0);
    let means = Summary::of(&mut answered().map(|reaction| reaction.mean).collect::<Vec<_>>());
    let worsts = Summary::of(&mut answered().map(|reaction| reaction.worst).collect::<Vec<_>>());
    let mut not_granted: Vec<String> = runs.iter().flat_map(|r| r.not_granted.clone()).collect();
    not_granted.sort();
    not_granted.dedup();
    let sum = |of: fn(&CellSummary) -> u64| (!runs.is_empty()).then(|| runs.iter().map(of).sum());
    BenchRow {
        policy,
        noise,
        repetitions: runs.len() as u32,
        reaction_ms: (means.count > 0).then_some(ReactionSpread {
            mean: means.mean,
            worst: worsts.worst,
            mean_range: [means.min, means.worst],
            worst_range: [worsts.min, worsts.median, worsts.worst],
        }),
        misses: sum(|r| r.misses),
        reactions: sum(|r| r.reaction_ms.count),
        frames_dropped: sum(|r| r.frames_dropped),
        ssm_misses: sum(|r| r.ssm.misses),
        tasks: tasks(runs),
        losses: counts(runs.iter().flat_map(|r| &r.losses).map(|(why, count)| (why.clone(), *count))),
        sentences: runs.iter().map(|r| r.sentence.clone()).collect(),
        verdicts: counts(runs.iter().map(|r| (r.verdict.to_string(), 1))),
        work: (!runs.is_empty()).then(|| Work::sum(runs.iter().map(|r| &r.work))),
        against_cfs: None,
        stolen: runs.iter().map(|r| r.cpu.stolen).reduce(f64::max),
        not_granted,
        run_dirs: runs.iter().map(|r| r.run_dir.clone()).collect(),
    }
}

fn counts<N: std::ops::AddAssign + Default>(all: impl Iterator<Item = (String, N)>) -> BTreeMap<String, N> {
    all.fold(BTreeMap::new(), |mut counts, (name, count)| {
        *counts.entry(name).or_default() += count;
        counts
    })
}

/// The tasks of the runs, those of the same name together.
fn tasks(runs: &[CellSummary]) -> Vec<BenchTask> {
    let mut tasks: Vec<BenchTask> = Vec::new();
    for task in runs.iter().flat_map(|run| &run.tasks) {
        match tasks.iter_mut().find(|known| known.name == task.name) {
            Some(known) => {
                known.releases += task.releases;
                known.misses += task.misses;
                known.worst_ms = known.worst_ms.into_iter().chain(task.worst_ms).reduce(f64::max);
            }
            None => tasks.push(BenchTask {
                name: task.name.clone(),
                deadline_ms: task.deadline_ms,
                releases: task.releases,
                misses: task.misses,
                worst_ms: task.worst_ms,
            }),
        }
    }
    tasks
}

/// Compares a row with CFS+CFS under the same noise; `None` for CFS+CFS itself, and if that was not
/// measured. A side that did less work than the other is not called better.
pub fn against_cfs(row: &BenchRow, rows: &[BenchRow]) -> Option<Against> {
    let cfs = rows.iter().find(|r| r.policy == PolicyMix::CfsCfs && r.noise == row.noise)?;
    if row.policy == PolicyMix::CfsCfs {
        return None;
    }
    let both = cfs.reaction_ms.zip(row.reaction_ms);
    let mean = both.and_then(|(before, now)| reduction(before.mean, now.mean));
    let worst = both.and_then(|(before, now)| reduction(before.worst, now.worst));
    let better = |percent: Option<f64>, sign: f64| percent.is_some_and(|percent| percent * sign > 0.0);
    let mut against = Against { mean_percent: mean, worst_percent: worst, refused: Vec::new() };
    for (side, other, sign) in [(row, cfs, 1.0), (cfs, row, -1.0)] {
        let less = side.work.zip(other.work).map_or_else(Vec::new, |(own, other)| own.less_than(&other));
        if less.is_empty() || !(better(mean, sign) || better(worst, sign)) {
            continue;
        }
        against.mean_percent = against.mean_percent.filter(|_| !better(mean, sign));
        against.worst_percent = against.worst_percent.filter(|_| !better(worst, sign));
        against.refused.extend(less.into_iter().map(|why| format!("{} did less work: {why}", side.policy)));
    }
    Some(against)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(policy: PolicyMix, mean: f64, judged: u64) -> BenchRow {
        BenchRow {
            policy,
            noise: 128,
            repetitions: 1,
            reaction_ms: Some(ReactionSpread {
                mean,
                worst: 2.0 * mean,
                mean_range: [mean; 2],
                worst_range: [mean; 3],
            }),
            misses: Some(0),
            reactions: Some(judged),
            frames_dropped: Some(0),
            ssm_misses: Some(0),
            tasks: Vec::new(),
            losses: BTreeMap::new(),
            verdicts: BTreeMap::new(),
            sentences: Vec::new(),
            work: Some(Work { seconds: 10.0, frames_judged: judged, ssm_jobs: 5000, ..Work::default() }),
            against_cfs: None,
            stolen: Some(0.0),
            not_granted: Vec::new(),
            run_dirs: Vec::new(),
        }
    }

    #[test]
    fn no_side_is_called_better_that_did_less() {
        let against = |cfs: BenchRow, dl: BenchRow| {
            assert!(against_cfs(&cfs, &[cfs.clone(), dl.clone()]).is_none());
            against_cfs(&dl, &[cfs, dl.clone()]).unwrap()
        };
        let [cfs, dl] = [PolicyMix::CfsCfs, PolicyMix::DlRr];
        let equal = against(row(cfs, 100.0, 1500), row(dl, 20.0, 1490));
        assert_eq!(
            (equal.mean_percent, equal.worst_percent, equal.refused.len()),
            (Some(80.0), Some(80.0), 0)
        );
        // The faster side judged a third of the frames.
        let less = against(row(cfs, 100.0, 1500), row(dl, 20.0, 500));
        assert_eq!((less.mean_percent, less.worst_percent), (None, None));
        assert!(
            less.refused[0].starts_with("DL+RR did less work: frames judged: 50.0 a second"),
            "{:?}",
            less.refused
        );
        // And so may the baseline not be, whose few frames were answered soon.
        let blind = against(row(cfs, 5.0, 424), row(dl, 20.0, 1500));
        assert_eq!((blind.mean_percent, blind.worst_percent), (None, None));
        assert!(blind.refused[0].starts_with("CFS+CFS did less"), "{:?}", blind.refused);
        // Slower although the other did less: that is said.
        let slower = against(row(cfs, 10.0, 1500), row(dl, 20.0, 500));
        assert_eq!((slower.mean_percent, slower.refused.len()), (Some(-100.0), 0));
    }
}

//! Two designs of the cell side by side, run under the same policies, noise, cameras and rate: what
//! ours gains beyond the paper's.

use serde::{Deserialize, Serialize};
use takt_stats::reduction;

use super::bench::BenchRow;
use super::work::Work;
use crate::tasks::PolicyMix;

/// Largest deficit in the share of judged frames on a side that is called faster. 2 %: the edges of
/// a short window.
pub const WORK_TOLERANCE: f64 = 0.02;

/// One design in one cell of the matrix, all repetitions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Side {
    /// Mean reaction time, milliseconds; null where nothing was answered.
    pub mean_ms: Option<f64>,
    /// Worst reaction time, milliseconds; null likewise.
    pub worst_ms: Option<f64>,
    /// Frames judged and answered; null where no run was measured, as the two below.
    pub judged: Option<u64>,
    /// Frames that nobody judged: dropped, lost, or without a judgement.
    pub dropped: Option<u64>,
    /// Reactions later than the deadline.
    pub misses: Option<u64>,
}

impl Side {
    fn of(row: &BenchRow) -> Self {
        Self {
            mean_ms: row.reaction_ms.map(|reaction| reaction.mean),
            worst_ms: row.reaction_ms.map(|reaction| reaction.worst),
            judged: row.reactions,
            dropped: row
                .frames_dropped
                .map(|dropped| row.losses.values().fold(dropped, |sum, lost| sum.saturating_add(*lost))),
            misses: row.misses,
        }
    }

    /// Share of the frames that were judged.
    fn judged_share(&self) -> f64 {
        let [judged, dropped] = [self.judged, self.dropped].map(|count| count.unwrap_or(0));
        let all = judged.saturating_add(dropped);
        if all == 0 { 0.0 } else { judged as f64 / all as f64 }
    }
}

/// One cell of the matrix in both designs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DesignRow {
    /// Noise threads.
    pub noise: u32,
    /// Scheduler configuration.
    pub policy: PolicyMix,
    /// The design that was benched.
    pub own: Side,
    /// The one that it is compared with.
    pub against: Side,
    /// By how much the mean of the first lies below, percent; negative when above. Absent where
    /// nothing may be said.
    pub mean_lower_percent: Option<f64>,
    /// The same of the worst value.
    pub worst_lower_percent: Option<f64>,
    /// Reason why nothing is stated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub withheld: Option<String>,
}

/// Rows of the cells that both designs have, in the order of the first.
pub fn compare(own: &[BenchRow], against: &[BenchRow]) -> Vec<DesignRow> {
    let pair = |row: &BenchRow| {
        let other = against.iter().find(|other| (other.policy, other.noise) == (row.policy, row.noise))?;
        Some(design_row(row, other))
    };
    own.iter().filter_map(pair).collect()
}

/// Work that one design left undone; what the designs do differently on purpose (who runs the
/// networks, and when) is none.
fn less_work(mine: &BenchRow, theirs: &BenchRow) -> Option<String> {
    let same = |work: Work| Work { frames_with_networks: 0, detector_runs: 0, people_found: 0, ..work };
    same(mine.work?).less_than(&same(theirs.work?)).into_iter().next()
}

fn design_row(row: &BenchRow, other: &BenchRow) -> DesignRow {
    let (own, against) = (Side::of(row), Side::of(other));
    let (mine, theirs) = (own.judged_share(), against.judged_share());
    let below = |a: Option<f64>, b: Option<f64>| a.zip(b).is_some_and(|(a, b)| a < b);
    let faster = |a: &Side, b: &Side| below(a.mean_ms, b.mean_ms) || below(a.worst_ms, b.worst_ms);
    let less = [
        faster(&own, &against).then(|| less_work(row, other)),
        faster(&against, &own).then(|| less_work(other, row)),
    ];
    let withheld = if own.judged.unwrap_or(0) == 0 || against.judged.unwrap_or(0) == 0 {
        Some("one side judged nothing".to_owned())
    } else if (mine - theirs).abs() > WORK_TOLERANCE && (mine < theirs) == below(own.mean_ms, against.mean_ms)
    {
        let (fewer, more) = (mine.min(theirs), mine.max(theirs));
        Some(format!("judged {:.1} % of its frames against {:.1} %: less work", 100.0 * fewer, 100.0 * more))
    } else {
        less.into_iter().flatten().flatten().next()
    };
    let message = |before: Option<f64>, now: Option<f64>| {
        before.zip(now).filter(|_| withheld.is_none()).and_then(|(before, now)| reduction(before, now))
    };
    DesignRow {
        noise: row.noise,
        policy: row.policy,
        mean_lower_percent: message(against.mean_ms, own.mean_ms),
        worst_lower_percent: message(against.worst_ms, own.worst_ms),
        own,
        against,
        withheld,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::lab::bench::ReactionSpread;

    fn row(policy: PolicyMix, mean: f64, worst: f64, reactions: u64, frames_dropped: u64) -> BenchRow {
        BenchRow {
            policy,
            noise: 64,
            repetitions: 1,
            reaction_ms: (reactions > 0).then_some(ReactionSpread {
                mean,
                worst,
                mean_range: [mean; 2],
                worst_range: [worst; 3],
            }),
            misses: Some(0),
            reactions: Some(reactions),
            frames_dropped: Some(frames_dropped),
            ssm_misses: Some(0),
            tasks: Vec::new(),
            losses: BTreeMap::new(),
            verdicts: BTreeMap::new(),
            sentences: Vec::new(),
            work: Some(Work::default()),
            against_cfs: None,
            stolen: Some(0.0),
            not_granted: Vec::new(),
            run_dirs: Vec::new(),
        }
    }

    #[test]
    fn a_gain_is_said_of_the_same_work_alone() {
        let paper = [row(PolicyMix::CfsCfs, 40.0, 100.0, 300, 0), row(PolicyMix::DlRr, 20.0, 30.0, 300, 0)];
        let ours = [row(PolicyMix::DlRr, 5.0, 15.0, 298, 2), row(PolicyMix::CfsCfs, 4.0, 8.0, 30, 270)];
        let rows = compare(&ours, &paper);
        assert_eq!(rows.iter().map(|r| r.policy).collect::<Vec<_>>(), [PolicyMix::DlRr, PolicyMix::CfsCfs]);
        assert_eq!((rows[0].mean_lower_percent, rows[0].worst_lower_percent), (Some(75.0), Some(50.0)));
        // Ten times faster, at a tenth of the work.
        assert_eq!((rows[1].mean_lower_percent, rows[1].worst_lower_percent), (None, None));
        assert_eq!(
            rows[1].withheld.as_deref(),
            Some("judged 10.0 % of its frames against 100.0 %: less work")
        );
        // The other way round it is the same two figures; a side without samples says nothing.
        assert!(compare(&paper, &ours)[0].withheld.is_some());
        assert_eq!(compare(&paper, &ours)[1].mean_lower_percent, Some(-300.0));
        assert!(compare(&[row(PolicyMix::DlRr, 0.0, 0.0, 0, 0)], &paper)[0].withheld.is_some());
        assert!(compare(&ours, &[]).is_empty());
    }
}

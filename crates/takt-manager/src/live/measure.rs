//! Measurements of a chain, for the status.

use takt_model::ChainStats;

use super::{BUCKETS_NS, ChainStatus};

/// Fills in what was measured, over all paths that the chain took. Quantiles are those of the path
/// that was taken most.
pub(super) fn measure(chain: &mut ChainStatus, paths: &[&ChainStats], now_ns: u64) {
    let Some(most) = paths.iter().max_by_key(|stats| stats.completions) else { return };
    let mut bounds: Vec<u64> = BUCKETS_NS.to_vec();
    bounds.push(chain.goal_ns);
    bounds.sort_unstable();
    bounds.dedup();
    chain.completions = paths.iter().map(|stats| stats.completions).sum();
    chain.violations = paths.iter().map(|stats| stats.violations).sum();
    chain.dropped = paths.iter().map(|stats| stats.dropped).sum();
    chain.overdue = paths.iter().map(|stats| stats.overdue(now_ns)).sum();
    chain.skipped = paths.iter().map(|stats| stats.skipped).sum();
    chain.run.longest_late_run = paths.iter().map(|stats| stats.longest_late_run).max().unwrap_or(0);
    chain.worst_ns = paths.iter().map(|stats| stats.worst_ns).max().unwrap_or(0);
    super::jitter::measure(chain, paths);
    chain.last_ns = most.last_ns;
    chain.median_ns = most.quantile_ns(0.5);
    chain.p99_ns = most.quantile_ns(0.99);
    let mean = |stats: &&ChainStats| stats.mean_ns().unwrap_or(0.0) * stats.completions as f64;
    chain.mean_ns =
        (chain.completions > 0).then(|| paths.iter().map(mean).sum::<f64>() / chain.completions as f64);
    let mut counts = vec![0; bounds.len()];
    for stats in paths {
        counts.iter_mut().zip(stats.at_most(&bounds)).for_each(|(sum, count)| *sum += count);
    }
    chain.histogram = bounds.into_iter().zip(counts).collect();
}

#![allow(missing_docs)]
use takt_stats::Verdict;
#[derive(Default)]
pub struct SeriesEvidence { pub unit: String, pub deadline_ns: u64, pub rate_hz: Option<f64>, pub samples: u64, pub misses: u64, pub longest_run: u64, pub worst_ns: u64, pub unfinished_late: u64, pub records_lost: u64, pub not_granted: u64, pub stolen: Option<f64>, pub tail: Option<()>, pub allowed: Option<f64> }
#[derive(Clone, Debug)]
pub struct VerdictReport { pub verdict: Verdict, pub reasons: Vec<String>, pub measure_more_s: Option<f64>, pub measure_more_samples: Option<u64> }
pub fn judge_series(e: &SeriesEvidence) -> VerdictReport {
    let r = takt_stats::judge(&takt_stats::DeadlineEvidence { deadline_ms: e.deadline_ns as f64/1e6, samples: e.samples, misses: e.misses, worst_ms: e.worst_ns as f64/1e6, unfinished_late: e.unfinished_late, records_lost: e.records_lost, not_granted: e.not_granted });
    VerdictReport { verdict: r.verdict, reasons: r.reasons, measure_more_s: None, measure_more_samples: None }
}
pub mod evt {
    #[derive(Clone, Debug)]
    pub struct Tail { pub per_hour: () }
    pub fn analyse(_: &[u64], _: f64, _: u64) -> Result<Tail, String> { Err("interim".into()) }
}

#![allow(missing_docs)]
use takt_stats::Verdict;
#[derive(Default)]
pub struct SeriesEvidence {
    pub unit: String,
    pub deadline_ns: u64,
    pub rate_hz: Option<f64>,
    pub samples: u64,
    pub misses: u64,
    pub longest_run: u64,
    pub worst_ns: u64,
    pub unfinished_late: u64,
    pub records_lost: u64,
    pub not_granted: u64,
    pub stolen: Option<f64>,
    pub tail: Option<takt_stats::evt::Estimate>,
    pub allowed: Option<f64>,
}
#[derive(Clone, Debug)]
pub struct VerdictReport {
    pub verdict: Verdict,
    pub reasons: Vec<String>,
    pub measure_more_s: Option<f64>,
    pub measure_more_samples: Option<u64>,
}
pub fn judge_series(e: &SeriesEvidence) -> VerdictReport {
    let r = takt_stats::judge(&takt_stats::DeadlineEvidence {
        deadline_ms: e.deadline_ns as f64 / 1e6,
        samples: e.samples,
        misses: e.misses,
        worst_ms: e.worst_ns as f64 / 1e6,
        unfinished_late: e.unfinished_late,
        records_lost: e.records_lost,
        not_granted: e.not_granted,
    });
    VerdictReport { verdict: r.verdict, reasons: r.reasons, measure_more_s: None, measure_more_samples: None }
}
pub mod bootstrap {
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub enum Statistic {
        Mean,
        Median,
        Quantile(f64),
        Maximum,
    }
    #[derive(Clone, Debug)]
    pub struct Difference {
        pub before: f64,
        pub after: f64,
        pub difference: f64,
        pub low: Option<f64>,
        pub high: Option<f64>,
        pub percent: Option<f64>,
        pub warnings: Vec<String>,
    }
    pub fn difference(a: &[&[f64]], b: &[&[f64]], _: Statistic, _: u64) -> Result<Difference, String> {
        if a.is_empty() || b.is_empty() {
            return Err("interim".into());
        }
        Ok(Difference {
            before: 1.0,
            after: 2.0,
            difference: 1.0,
            low: Some(0.5),
            high: Some(1.5),
            percent: Some(100.0),
            warnings: vec![],
        })
    }
}

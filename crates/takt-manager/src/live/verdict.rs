//! The verdict on a managed run, over all of its time.

use takt_stats::{Part, SeriesEvidence, Verdict, VerdictReport, judge_series, overall};

use super::{ChainStatus, State, Status};

impl ChainStatus {
    /// Evidence for its verdict: all measurements while it was not given up in the declared order.
    /// Doubtful measurements say nothing for it.
    #[must_use]
    pub fn evidence(&self) -> SeriesEvidence {
        SeriesEvidence {
            unit: "completions".to_owned(),
            deadline_ns: self.goal_ns,
            samples: self.run.counted.saturating_sub(self.run.in_doubt),
            misses: self.run.late,
            longest_run: self.run.longest_late_run,
            worst_ns: self.worst_ns,
            unfinished_late: self.run.missing,
            ..SeriesEvidence::default()
        }
    }

    /// Reason why no measurement counts: it was given up in the declared order for the whole time.
    #[must_use]
    pub fn excuse(&self) -> Option<String> {
        let run = &self.run;
        let all = run.given_up_completions > 0 || run.given_up_s > 0.0;
        (all && run.counted == 0 && run.late == 0 && run.missing == 0).then(|| {
            format!("given up in the declared order for {:.1} s: {}", run.given_up_s, run.given_up_why)
        })
    }

    /// Reason that keeps its verdict from a PASS besides the figures.
    #[must_use]
    pub fn doubt(&self) -> Option<String> {
        let run = &self.run;
        let (latency_ms, bound_ms) = run.worst_false_ms?;
        Some(format!(
            "{}: {} of its latencies were above a guaranteed bound, the longest {latency_ms:.1} ms, the bound {bound_ms:.1} ms",
            self.name, run.false_guarantees
        ))
    }

    /// Reason that keeps its verdict from a PASS because clocks differ.
    #[must_use]
    pub fn undecided(&self) -> Option<String> {
        let error_ms = self.clock_error_ms.unwrap_or(0.0);
        (self.run.in_doubt > 0).then(|| {
            format!(
                "{}: {} of its latencies were within {error_ms:.3} ms of the goal, the possible difference between the machines' clocks, \
                 so it is unknown whether they were late",
                self.name, self.run.in_doubt
            )
        })
    }
}

impl Status {
    /// The verdict on all chains, over the whole run. FAIL: a goal was missed that was not given up
    /// in order.
    #[must_use]
    pub fn verdict(&self) -> VerdictReport {
        let judged: Vec<(VerdictReport, Option<String>)> = self
            .chains
            .iter()
            .map(|chain| {
                let mut evidence = chain.evidence();
                // Time for which it was given up is no evidence for it, and a longer run has it
                // again.
                evidence.besides_s = chain.run.given_up_s;
                evidence.measured_s = Some(self.running_ns as f64 / 1e9 - chain.run.given_up_s);
                evidence.records_lost = self.lost;
                evidence.not_granted = self.differences.len() as u64;
                let mut report = judge_series(&evidence);
                if let Some(why) = super::jitter::missed(chain) {
                    report.verdict = Verdict::Fail;
                    report.reasons.push(why);
                }
                let degraded = chain.run.given_up_s;
                if degraded > 0.0 && chain.excuse().is_none() {
                    report.reasons.push(format!(
                        "given up in the declared order for {degraded:.1} s, in which {} more completions do not count",
                        chain.run.given_up_completions
                    ));
                }
                if let Some(words) = &chain.run.did_not_run {
                    report.reasons.push(words.clone());
                } else if chain.completions == 0 && !chain.why.is_empty() {
                    report.reasons.push(chain.why.clone());
                }
                if let Some(words) = &chain.run.has_stopped {
                    report = report.concluded(&[], std::slice::from_ref(words));
                }
                (report, chain.excuse())
            })
            .collect();
        let parts: Vec<Part<'_>> = self
            .chains
            .iter()
            .zip(&judged)
            .map(|(chain, (report, excuse))| Part { name: &chain.name, report, excused: excuse.as_deref() })
            .collect();
        let doubts = self.chains.iter().flat_map(|chain| [chain.doubt(), chain.undecided()]);
        let doubts: Vec<String> = doubts.flatten().collect();
        let mut report = overall(&parts).concluded(&[], &doubts);
        report.reasons.extend(crate::recorded::gaps_in_words(&self.gaps));
        report
    }

    /// Chains in this state now.
    #[must_use]
    pub fn count(&self, state: State) -> usize {
        self.chains.iter().filter(|chain| chain.state == state.name()).count()
    }
}

//! Without kernel events: what /proc reports of any thread, to anybody who may see it.

use std::collections::BTreeMap;

use takt_rt::clock::monotonic_ns;
use takt_rt::{placement, policy::Policy};
use takt_stats::Summary;

use crate::report::{LoopKind, LoopReport, Report, Share};
use crate::target::{Thread, Watched};

/// Counters of one thread (Documentation/scheduler/sched-stats.rst; `status` of proc(5)).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Counters {
    ran_ns: u64,
    /// Ready and without a CPU.
    waited_ns: u64,
    /// It went to sleep.
    voluntary: u64,
    /// It lost its CPU.
    involuntary: u64,
}

impl Counters {
    fn read(pid: i32, tid: i32) -> Option<Self> {
        let file = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/{name}")).ok();
        let stat = file("schedstat")?;
        let mut words = stat.split_ascii_whitespace().map(|word| word.parse::<u64>().ok());
        let (ran_ns, waited_ns) = (words.next()??, words.next()??);
        let status = file("status")?;
        let count =
            |key: &str| status.lines().find_map(|line| line.strip_prefix(key))?.trim().parse::<u64>().ok();
        Some(Self {
            ran_ns,
            waited_ns,
            voluntary: count("voluntary_ctxt_switches:")?,
            involuntary: count("nonvoluntary_ctxt_switches:")?,
        })
    }
}

/// Counters, and when they were read.
type At = (u64, Counters);

/// A thread with the first reading and the last.
type Read = (Thread, At, At);

/// The first and the last reading of every thread.
#[derive(Debug, Default)]
pub struct Coarse {
    threads: BTreeMap<i32, Read>,
    began_ns: u64,
}

impl Coarse {
    /// Reads the counters of all watched threads.
    pub fn look(&mut self, watched: &Watched) {
        if self.began_ns == 0 {
            self.began_ns = monotonic_ns();
        }
        for (&tid, thread) in &watched.threads {
            let Some(counters) = Counters::read(thread.pid, tid) else { continue };
            let now = (monotonic_ns(), counters);
            self.threads.entry(tid).or_insert_with(|| (thread.clone(), now, now)).2 = now;
        }
    }

    /// Returns the report.
    pub fn report(&self, target: &str, why: &str) -> Report {
        let mut threads: Vec<LoopReport> = self
            .threads
            .iter()
            .filter(|(_, (_, first, last))| last.1.voluntary > first.1.voluntary)
            .map(|(&tid, (thread, first, last))| of(tid, thread, first, last))
            .collect();
        threads.sort_by(|a, b| b.rate_hz.total_cmp(&a.rate_hz));
        threads.truncate(crate::watcher::MAX_THREADS);
        let known = self.threads.iter().map(|(&tid, read)| (tid, read.0.clone())).collect();
        let mut names = crate::naming::names(&known, &|_| crate::naming::Rank::Other);
        for thread in &mut threads {
            thread.label = names.remove(&thread.tid).unwrap_or_default();
        }
        Report {
            target: target.to_owned(),
            seconds: monotonic_ns().saturating_sub(self.began_ns) as f64 / 1e9,
            threads,
            declared: Vec::new(),
            links: Vec::new(),
            totals: Vec::new(),
            followed_by: crate::watcher::FollowBy::Events,
            events: 0,
            lost_events: 0,
            watcher_cpu_percent: 0.0,
            watcher_lateness_us: 0.0,
            watcher_lateness_share: None,
            kept_awake: Vec::new(),
            python: Vec::new(),
            proposals: Vec::new(),
            untraced: Some(why.to_owned()),
            notes: vec![
                "without kernel events: rates count sleeps, and lateness is the mean wait for a CPU (schedstat); periods, single cycles \
                 and causes are not known"
                    .to_owned(),
            ],
            doubts: Vec::new(),
            exit_status: None,
            exit_signal: None,
            ended_by_itself: None,
            verdict: None,
            verdict_sentence: None,
            run_dir: None,
        }
    }
}

fn of(tid: i32, thread: &Thread, first: &At, last: &At) -> LoopReport {
    let since = |pick: fn(&Counters) -> u64| pick(&last.1).saturating_sub(pick(&first.1));
    let seconds = last.0.saturating_sub(first.0) as f64 / 1e9;
    let sleeps = since(|counters| counters.voluntary);
    let waits = sleeps + since(|counters| counters.involuntary);
    let mean_wait_us = since(|counters| counters.waited_ns) as f64 / 1e3 / (waits.max(1)) as f64;
    let mean_us = since(|counters| counters.ran_ns) as f64 / 1e3 / (sleeps.max(1)) as f64;
    let only_mean = |us: f64| Summary { count: sleeps, mean: us, ..Summary::of(&mut []) };
    let kept = Share {
        who: "unknown: no kernel events".to_owned(),
        count: 0,
        us: since(|c| c.waited_ns) as f64 / 1e3,
    };
    LoopReport {
        since_ns: None,
        histograms: None,
        name: thread.name.clone(),
        label: String::new(),
        pid: thread.pid,
        tid,
        process: thread.process.clone(),
        kind: LoopKind::Irregular,
        period_us: None,
        rate_hz: if seconds > 0.0 { sleeps as f64 / seconds } else { 0.0 },
        jitter_us: None,
        release_interval_us: None,
        releases: sleeps,
        missed: 0,
        late: 0,
        unjudged: 0,
        late_beyond_us: 0.0,
        deadline_us: None,
        lateness_us: only_mean(mean_wait_us),
        response_us: only_mean(mean_wait_us + mean_us),
        cpu_percent: 100.0 * since(|counters| counters.ran_ns) as f64 / 1e9 / seconds.max(1e-3),
        policy: Policy::read(tid).map_or(String::new(), |policy| policy.to_string()),
        cpus: placement::affinity(tid).map_or(String::new(), |cpus| cpus.to_string()),
        ran_on: String::new(),
        timer_slack_us: None,
        preempted: since(|counters| counters.involuntary),
        page_faults: 0,
        woken_by: Vec::new(),
        kept_by: vec![kept],
        causes: Vec::new(),
        totals: Vec::new(),
        recurs: Vec::new(),
        windows: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Target;

    #[test]
    fn rates_are_reported_without_any_right() {
        let mut child =
            std::process::Command::new("sh").args(["-c", "while :; do sleep 0.01; done"]).spawn().unwrap();
        let mut watched = Watched::new(Target::Tree(child.id() as i32));
        let mut coarse = Coarse::default();
        // Until it was seen to sleep: how fast it is depends on the machine.
        for _ in 0..500 {
            watched.refresh();
            coarse.look(&watched);
            std::thread::sleep(std::time::Duration::from_millis(20));
            if coarse.report("", "").threads.iter().any(|thread| thread.releases > 5) {
                break;
            }
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let report = coarse.report("x", "no right");
        let shell = report.threads.iter().find(|thread| thread.tid == child.id() as i32).unwrap();
        assert!(shell.rate_hz > 0.0 && shell.releases > 5, "{shell:?}");
        assert_eq!(report.untraced.as_deref(), Some("no right"));
    }
}

//! Cost of the manager in each load phase (*ROS-Llama*, Table III).

use takt_lab::Session;
use takt_manager::live::{Cost, Live, Status};
use takt_ros::preload::Probe;
use takt_rundir::Phase;

/// Cost so far, at one moment.
#[derive(Debug, Clone, Copy)]
struct Mark {
    at_ns: u64,
    cost: Cost,
    /// CPU time of the whole process.
    cpu_ns: f64,
    plans: u64,
}

impl Mark {
    fn of(status: &Status) -> Self {
        let Status { at_ns, cost, plans, running_ns, .. } = *status;
        Self { at_ns, cost, cpu_ns: cost.cpu_share * running_ns as f64, plans }
    }
}

/// Follows the cost through the phases.
#[derive(Debug)]
pub(super) struct Costs {
    phases: Vec<Phase>,
    /// At the beginning of each phase that has begun.
    marks: Vec<Mark>,
}

impl Costs {
    pub(super) fn new(phases: &[Phase]) -> Self {
        Self { phases: phases.to_vec(), marks: Vec::new() }
    }

    /// Takes a mark where a phase has begun.
    pub(super) fn follow(&mut self, now_ns: u64, live: &Live<Probe>) {
        if self.phases.get(self.marks.len()).is_some_and(|phase| phase.from_ns <= now_ns) {
            self.marks.push(Mark::of(&live.status(now_ns)));
        }
    }

    /// The last phase is over: figures `name@phase`.
    pub(super) fn close(mut self, live: &Live<Probe>, session: &mut Session) {
        if self.marks.is_empty() {
            return;
        }
        self.marks.push(Mark::of(&live.status(takt_rt::clock::monotonic_ns())));
        for (pair, phase) in self.marks.windows(2).zip(&self.phases) {
            for (name, value) in between(&pair[0], &pair[1]) {
                session.header.figures.insert(format!("{name}@{}", phase.name), value);
            }
        }
    }
}

fn between(from: &Mark, to: &Mark) -> [(&'static str, f64); 9] {
    let plans = to.plans.saturating_sub(from.plans);
    let each = |pick: fn(&Cost) -> u64| {
        let spent_ns = pick(&to.cost).saturating_sub(pick(&from.cost));
        // A phase shorter than the time between plans: what went on belongs to the next plan.
        spent_ns as f64 / 1e6 / plans.max(1) as f64
    };
    let length_ns = to.at_ns.saturating_sub(from.at_ns).max(1) as f64;
    [
        ("plans", plans as f64),
        ("extract_ms_per_plan", each(|cost| cost.extract_ns)),
        ("model_ms_per_plan", each(|cost| cost.model_ns)),
        ("plan_ms_per_plan", each(|cost| cost.plan_ns)),
        ("processing_ms_per_plan", each(|cost| cost.model_ns + cost.reading_ns)),
        ("budgeting_ms_per_plan", each(|cost| cost.budgeting_ns)),
        ("timing_ms_per_plan", each(|cost| cost.timing_ns)),
        ("enact_ms_per_plan", each(|cost| cost.enact_ns)),
        ("manager_cpu_share", (to.cpu_ns - from.cpu_ns).max(0.0) / length_ns),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_those_of_the_phase_alone() {
        let mark = |at_s: u64, extract_ns, plan_ns, plans| Mark {
            at_ns: at_s * 1_000_000_000,
            cost: Cost { extract_ns, plan_ns, timing_ns: plan_ns / 2, ..Cost::default() },
            cpu_ns: (extract_ns + plan_ns) as f64,
            plans,
        };
        let (from, to) = (mark(7, 50_000_000, 4_000_000, 1), mark(17, 150_000_000, 14_000_000, 3));
        let figures = between(&from, &to);
        let of = |name: &str| figures.iter().find(|(known, _)| *known == name).unwrap().1;
        assert_eq!((of("plans"), of("extract_ms_per_plan"), of("plan_ms_per_plan")), (2.0, 50.0, 5.0));
        assert_eq!((of("timing_ms_per_plan"), of("budgeting_ms_per_plan")), (2.5, 0.0));
        assert!((of("manager_cpu_share") - 0.011).abs() < 1e-9);
        // No plan within a short phase: nothing is divided by zero.
        assert_eq!(between(&from, &mark(8, 60_000_000, 4_000_000, 1))[1], ("extract_ms_per_plan", 10.0));
    }
}

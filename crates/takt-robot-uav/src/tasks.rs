//! The task set: attitude loop, position loop, telemetry; each with period, policy, placement and way to sleep.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use takt_rt::periodic::SleepStrategy;
use takt_rt::placement::{self, CpuSet};
use takt_rt::policy::Policy;

/// One periodic task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Task {
    /// Period; the deadline is its end.
    #[serde(with = "takt_rt::duration")]
    pub period: Duration,
    /// Scheduling policy, as `fifo:99`, `rr:50`, `other:-19`, `deadline:400us/4ms/4ms`.
    #[serde(default)]
    pub policy: Policy,
    /// CPUs; absent: chosen by `tasks.isolate`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<CpuSet>,
    /// How the task waits for its release. `kernel`, as in the paper (`clock_nanosleep`).
    #[serde(default)]
    pub sleep: SleepStrategy,
}

/// `[tasks]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TaskSet {
    /// τ_att: 4 ms, the paper's 250 Hz, with its best fixed priority, `fifo:99`.
    pub attitude: Task,
    /// τ_pos: 20 ms, 50 Hz. `fifo:40`: it keeps its policy while an experiment varies the attitude loop's.
    pub position: Task,
    /// Telemetry and logging: 50 ms, SCHED_OTHER; nothing waits for it.
    pub telemetry: Task,
    /// Gives the attitude loop the highest CPU that the process may use and the other tasks the rest, as the paper does
    /// with cores 2 and 3. `true`. Nothing is pinned where there is one CPU only. CPUs named at a task win.
    ///
    /// The kernel refuses SCHED_DEADLINE to a thread that may not run on all CPUs of its root domain; such a task is
    /// left unpinned, and the run says so.
    pub isolate: bool,
    /// Locks all memory. `true`, as in the paper.
    pub lock_memory: bool,
    /// Holds `/dev/cpu_dma_latency` at 0 so that no CPU enters a deep idle state. `false`: the paper locks the
    /// frequency and leaves the idle states.
    pub hold_cpu_awake: bool,
    /// Timer slack of SCHED_OTHER tasks, ns; absent: the inherited one, 50 µs by default, which the paper's
    /// SCHED_OTHER rows contain (median 54 µs).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timer_slack_ns: Option<u64>,
    /// Refuses to fly when the kernel grants less than asked. `false`: the run is labelled instead.
    pub strict: bool,
}

impl Default for TaskSet {
    fn default() -> Self {
        let task = |ms, policy| Task {
            period: Duration::from_millis(ms),
            policy,
            cpus: None,
            sleep: SleepStrategy::Kernel,
        };
        Self {
            attitude: task(4, Policy::Fifo { priority: 99 }),
            position: task(20, Policy::Fifo { priority: 40 }),
            telemetry: task(50, Policy::Other { nice: 0 }),
            isolate: true,
            lock_memory: true,
            hold_cpu_awake: false,
            timer_slack_ns: None,
            strict: false,
        }
    }
}

/// Where a task may run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// CPUs to ask for; `None` leaves what the process has.
    pub cpus: Option<CpuSet>,
    /// CPUs that the task should have had and does not ask for, since the kernel would refuse its policy there.
    pub given_up: Option<CpuSet>,
}

/// The paper's placement for CPUs that the process may use: the attitude loop's, and the other tasks'.
fn isolated(allowed: &CpuSet) -> Option<(CpuSet, CpuSet)> {
    let last = allowed.iter().last().filter(|_| allowed.len() > 1)?;
    let own = CpuSet::from_cpus([last])?;
    Some((own, allowed.without(&own)))
}

impl TaskSet {
    /// The three tasks with their keys.
    pub fn tasks(&self) -> [(&'static str, &Task); 3] {
        [("attitude", &self.attitude), ("position", &self.position), ("telemetry", &self.telemetry)]
    }

    /// Where the tasks may run, in the order of [`tasks`](Self::tasks), when the process may use `allowed`.
    pub fn placements(&self, allowed: &CpuSet) -> [Placement; 3] {
        let chosen = if self.isolate { isolated(allowed) } else { None };
        let place = |task: &Task, default: Option<CpuSet>| {
            let cpus = task.cpus.or(default);
            // An exclusive cpuset can make one CPU a root domain; then the process may use no other.
            let refused = matches!(task.policy, Policy::Deadline { .. })
                && cpus.is_some_and(|cpus| !allowed.without(&cpus).is_empty());
            if refused {
                Placement { cpus: None, given_up: cpus }
            } else {
                Placement { cpus, given_up: None }
            }
        };
        let own = chosen.map(|(own, _)| own);
        let rest = chosen.map(|(_, rest)| rest);
        [place(&self.attitude, own), place(&self.position, rest), place(&self.telemetry, rest)]
    }

    /// Checks what the types cannot.
    ///
    /// # Errors
    /// A sentence that names the key, the value and what is accepted.
    pub fn validate(&self) -> Result<(), String> {
        for (key, task) in self.tasks() {
            let period = takt_rt::duration::format(task.period);
            if task.period < Duration::from_micros(500) || task.period > Duration::from_secs(1) {
                return Err(format!("tasks.{key}.period = \"{period}\": accepted are 500us to 1s"));
            }
            task.policy.validate().map_err(|error| format!("tasks.{key}.policy: {error}"))?;
            if let Policy::Deadline { period: reserved, .. } = task.policy
                && reserved != task.period
            {
                return Err(format!(
                    "tasks.{key}: period \"{period}\" and a reservation every \"{}\": accepted are equal ones",
                    takt_rt::duration::format(reserved)
                ));
            }
            if task.cpus.is_some_and(|cpus| cpus.is_empty()) {
                return Err(format!("tasks.{key}.cpus: accepted is at least one CPU"));
            }
        }
        if self.position.period < self.attitude.period {
            return Err(format!(
                "tasks.position.period = \"{}\": accepted is at least the attitude loop's, \"{}\"",
                takt_rt::duration::format(self.position.period),
                takt_rt::duration::format(self.attitude.period)
            ));
        }
        Ok(())
    }

    /// The CPUs that this process may use.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn allowed() -> Result<CpuSet, takt_rt::Error> {
        placement::affinity(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpus(text: &str) -> CpuSet {
        text.parse().unwrap()
    }

    #[test]
    fn the_attitude_loop_has_a_cpu_of_its_own() {
        let set = TaskSet::default();
        let places = set.placements(&cpus("0-3"));
        assert_eq!(
            places.clone().map(|place| place.cpus),
            [Some(cpus("3")), Some(cpus("0-2")), Some(cpus("0-2"))]
        );
        assert!(places.iter().all(|place| place.given_up.is_none()));
        assert!(set.placements(&cpus("2")).iter().all(|place| place.cpus.is_none()), "nothing to divide");
        let open = TaskSet { isolate: false, ..TaskSet::default() };
        assert!(open.placements(&cpus("0-3")).iter().all(|place| place.cpus.is_none()));
    }

    #[test]
    fn reservations_are_left_unpinned_and_say_so() {
        let mut set = TaskSet::default();
        set.attitude.policy = "deadline:400us/4ms/4ms".parse().unwrap();
        let [attitude, position, _] = set.placements(&cpus("0-1"));
        assert_eq!((attitude.cpus, attitude.given_up), (None, Some(cpus("1"))));
        assert_eq!(position.cpus, Some(cpus("0")));
        set.attitude.cpus = Some(cpus("0-1"));
        assert_eq!(set.placements(&cpus("0-1"))[0].cpus, Some(cpus("0-1")), "the whole domain is accepted");
        assert!(set.validate().is_ok());
        set.attitude.policy = "deadline:400us/3ms/3ms".parse().unwrap();
        assert!(set.validate().unwrap_err().contains("reservation"));
    }

    #[test]
    fn wrong_task_sets_are_refused_by_name() {
        let wrong = |text: &str| match toml::from_str::<TaskSet>(text) {
            Ok(set) => set.validate().unwrap_err(),
            Err(error) => error.to_string(),
        };
        assert!(wrong("attitude = { period = '0s' }").contains("tasks.attitude.period"));
        assert!(wrong("attitude = { period = '4ms', policy = 'fifo:0' }").contains("accepted"));
        assert!(wrong("attitude = { period = '4ms', policy = 'deadline:5ms/4ms/4ms' }").contains("runtime"));
        assert!(wrong("attitude = { period = '30ms' }").contains("tasks.position.period"));
        assert!(wrong("attitude = { period = '4ms', prio = 3 }").contains("prio"));
    }
}

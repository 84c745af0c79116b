//! Settings of the manager that a goals file may hold (`[options]`), each with why it is what it
//! is.

use serde::{Deserialize, Serialize};
use takt_rt::config::{SettingError, all_within, within};

use super::from_ms;
use crate::policy::Policy;

/// Settings that nobody needs to set.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// Manager that makes the plans: `takt`, or `ros-llama`, the paper's as printed. Default
    /// `takt`; the other one is for comparison.
    pub policy: Policy,
    /// Time between plans. 6 s, as in *ROS-Llama*: long against every goal and short against
    /// changes of the surroundings.
    pub update_period_s: f64,
    /// Period of all reservations. 10 ms, as in *ROS-Llama*: well below the tightest goal, well
    /// above the cost of switching. Goals below 40 ms want a shorter one.
    pub reservation_period_ms: f64,
    /// Tries a half and a quarter of that period when not all chains can be kept with it. On: the
    /// wait for a budget shrinks with the period, and a switch more per millisecond costs little
    /// against a chain degraded.
    pub adapt_period: bool,
    /// Step by which a budget is raised. 5 %, as in *ROS-Llama*: a compromise of speed and waste.
    pub step_percent: f64,
    /// Interval over which long-term demand is counted. 10 s, as in *ROS-Llama*: longer than goals
    /// and busy windows.
    pub horizon_s: f64,
    /// Core of everything without reservation: middleware, kernel workers, Takt. 0, where most
    /// interrupts are anyway.
    pub system_core: usize,
    /// Cores for reservations; none named: all but the system core, or that too where it is the
    /// only one.
    pub cores: Option<Vec<usize>>,
    /// Greatest share of a core for reservations. 0.95, the kernel's own limit; more is not
    /// admitted.
    pub max_bandwidth: f64,
    /// The same for the system core, where that takes reservations. None: as for the others, since
    /// a plan that degrades nothing is worth more than middleware that never waits; less leaves the
    /// middleware and Takt themselves a share that nothing takes.
    pub max_system_bandwidth: Option<f64>,
    /// Budgets for execution times that are exceeded with at most this probability. None: for the
    /// worst seen, which needs no assumption on how execution times vary.
    pub exceedance: Option<f64>,
    /// An exhausted thread goes on at best effort instead of being cut off. Off, because it weakens
    /// the isolation of the others from it.
    pub soft_reservations: bool,
    /// A thread that has used up its budget goes on in time that no other reservation of its core
    /// wants, for as long as its tightest goal. On: without it a callback of 5 ms on 1 ms in 10
    /// takes 50 ms on an idle machine. Other reservations are not harmed.
    pub reclaim_unused: bool,
    /// Ways of binding reservations to cores, in the order in which they are tried:
    /// `admission-off`, `partition-roots`, `exclusive-sets`. Unset: in this order, because only the
    /// first leaves every process in its control group. Name `partition-roots`
    /// alone where the kernel shall check that the reservations of a core fit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ways: Option<Vec<takt_host::reserve::Mode>>,
    /// Lengthens measured execution times. 10 %: the worst so far is not the worst to come, and a
    /// budget that is short by little costs a whole period. It also lets a plan outlive small
    /// changes.
    pub cost_margin_percent: f64,
    /// Shortens measured times between arrivals. 1 %: periods are steadier than execution times.
    pub arrival_margin_percent: f64,
    /// Plans for more than was ever seen, as far as all goals bear that are kept without: longer
    /// execution times, more suspensions, later messages. On: among `n` values the next is the
    /// greatest with a probability of one in `n + 1`, and each such record beyond the margins takes
    /// the word "guaranteed" back. Off: bounds and budgets are those of what was seen and the
    /// margins.
    pub widen_assumptions: bool,
    /// On shared cores, several hops of a chain wait for what a core has to do once, and not each
    /// anew: shorter bounds. On: none of 10,000 simulated systems exceeded them, nor did 30 minutes
    /// of real ROS 2 at three loads. Off: every hop waits anew.
    pub join_hops: bool,
    /// On shared cores, executors that are short and serve tight goals run before the others: each
    /// has a period of its own. Their bounds do not wait for long neighbours, at the price of
    /// greater budgets. Off until it was held against real ROS 2 as long as the rest: one period
    /// for all, and no order. On: none of 20,000 simulated systems exceeded its bounds.
    pub order_executors: bool,
    /// Allowed for every message between executors. 0, as in *ROS-Llama*, which keeps the
    /// middleware's threads on the system core and leaves the rest out.
    pub transport_ms: f64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            policy: Policy::Takt,
            update_period_s: 6.0,
            reservation_period_ms: 10.0,
            adapt_period: true,
            step_percent: 5.0,
            horizon_s: 10.0,
            system_core: 0,
            cores: None,
            max_bandwidth: 0.95,
            max_system_bandwidth: None,
            exceedance: None,
            soft_reservations: false,
            reclaim_unused: true,
            ways: None,
            cost_margin_percent: 10.0,
            arrival_margin_percent: 1.0,
            widen_assumptions: true,
            join_hops: true,
            order_executors: false,
            transport_ms: 0.0,
        }
    }
}

impl Options {
    /// Checks every setting.
    ///
    /// # Errors
    ///
    /// The value that is out of range, and the range.
    pub fn validate(&self) -> Result<(), SettingError> {
        all_within(
            "options.",
            &[
                ("update_period_s", self.update_period_s, 0.1, 3600.0),
                // The kernel's own limits are 100 us and 4 s (sched_deadline_period_min_us,
                // _max_us).
                ("reservation_period_ms", self.reservation_period_ms, 0.1, 4000.0),
                ("step_percent", self.step_percent, 0.1, 100.0),
                ("horizon_s", self.horizon_s, 0.1, 3600.0),
                ("max_bandwidth", self.max_bandwidth, 0.01, 1.0),
                ("cost_margin_percent", self.cost_margin_percent, 0.0, 1000.0),
                ("arrival_margin_percent", self.arrival_margin_percent, 0.0, 90.0),
                ("transport_ms", self.transport_ms, 0.0, 10_000.0),
            ],
        )?;
        if let Some(most) = self.max_system_bandwidth {
            within("options.max_system_bandwidth", most, 0.01, self.max_bandwidth)?;
        }
        if let Some(exceedance) = self.exceedance
            && !(exceedance > 0.0 && exceedance < 1.0)
        {
            let accepted = "expected a probability between 0 and 1, such as 1e-6";
            return Err(SettingError::value("options.exceedance", exceedance, accepted));
        }
        if self.ways.as_ref().is_some_and(Vec::is_empty) {
            let accepted = format!("omit it, or name some of {}", names_of_ways());
            return Err(SettingError::value("options.ways", "[]", accepted));
        }
        if let Some(cores) = &self.cores {
            if cores.is_empty() {
                let accepted = "omit it to use all but the system core";
                return Err(SettingError::value("options.cores", "[]", accepted));
            }
            if let Some(twice) = cores.iter().enumerate().find(|(i, c)| cores[..*i].contains(c)) {
                let accepted = format!("core {} is named twice", twice.1);
                return Err(SettingError::value("options.cores", format!("{cores:?}"), accepted));
            }
        }
        Ok(())
    }

    /// Period of reservations, nanoseconds.
    #[must_use]
    pub fn period_ns(&self) -> u64 {
        from_ms(self.reservation_period_ms).unwrap_or(10_000_000)
    }

    /// The horizon, nanoseconds.
    #[must_use]
    pub fn horizon_ns(&self) -> u64 {
        from_ms(self.horizon_s * 1e3).unwrap_or(10_000_000_000)
    }

    /// Allowance for a hop, nanoseconds.
    #[must_use]
    pub fn transport_ns(&self) -> u64 {
        from_ms(self.transport_ms).unwrap_or(0)
    }
}

/// The ways of binding reservations, by their names in files.
pub(crate) fn names_of_ways() -> String {
    let name = |mode| serde_json::to_value(mode).ok()?.as_str().map(str::to_owned);
    takt_host::reserve::Mode::ALL.into_iter().filter_map(name).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_names_the_policy() {
        let options = |text: &str| toml::from_str::<Options>(text);
        assert_eq!(options("").unwrap().policy, Policy::Takt);
        assert_eq!(options("policy = \"ros-llama\"").unwrap().policy, Policy::RosLlama);
        let refused = options("policy = \"llama\"").unwrap_err().to_string();
        assert!(
            refused.contains("llama") && refused.contains("`takt`") && refused.contains("`ros-llama`"),
            "{refused}"
        );
    }

    #[test]
    fn an_empty_list_of_ways_names_those_that_a_file_takes() {
        let none = Options { ways: Some(Vec::new()), ..Options::default() };
        let refused = none.validate().unwrap_err().to_string();
        let (_, names) = refused.split_once("name some of ").unwrap();
        let all: Options =
            toml::from_str(&format!("ways = [\"{}\"]", names.replace(", ", "\", \""))).unwrap();
        assert_eq!(all.ways.unwrap(), takt_host::reserve::Mode::ALL, "{refused}");
    }
}

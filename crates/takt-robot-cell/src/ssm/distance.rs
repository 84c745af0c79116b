//! The protective separation distance and the speed that a given separation allows.

#![deny(missing_docs)]

use serde::{Deserialize, Serialize};

use super::{LinkDelays, SsmConfig, SsmMode};
use crate::tasks::TaskSet;
use takt_rt::config::SettingError;

/// Terms of the protective separation distance (ISO/TS 15066, 5.5.4; Marvel & Norcross,
/// PMC5117641):
///
/// `S_p = S_h + S_r + S_s + C + Z_d + Z_r`
///
/// with human speed held constant over reaction and stopping, and the robot's stopping path bounded
/// by `v_r * T_s` (no braking credit).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ProtectiveDistance {
    /// Speed of a walking person towards the robot, m/s. 1.6 after ISO 13855 where it is not
    /// measured.
    pub human_speed_m_s: f64,
    /// Speed of a person (an arm) that is already near, m/s. 2.0 after ISO 13855.
    pub near_human_speed_m_s: f64,
    /// Separation below which the near speed counts, metres. 0.5 after ISO 13855.
    pub near_m: f64,
    /// Reaction time T_r that is assumed, seconds: capture to the moment at which the controller
    /// begins to brake. When absent, it is the sum of what the monitor tolerates
    /// ([`ReactionTime`]); a smaller one is refused. The run's own worst takes its place as soon as
    /// it is larger.
    pub reaction_time_s: Option<f64>,
    /// Time from the command's arrival at the controller until the controller begins to brake,
    /// seconds. 0.01: one RTDE cycle out, one back and margin.
    pub controller_time_s: f64,
    /// Stopping time T_s of the stop that Takt uses, seconds: the speed slider goes to 0 and the
    /// controller slows the arm along its path by its own ramp. It is not a stop of category 1,
    /// whose time the maker states: measure it at your payload, speed and extension (log
    /// `actual_TCP_speed` after `speed_slider_fraction = 0`). 0.3: the simulated controller's ramp
    /// of 0.25 s and margin.
    pub stopping_time_s: f64,
    /// Intrusion distance C: how far a body part reaches into the field before it is seen, metres.
    /// 0.1: what the camera's resolution at the edge of the field does not separate from the
    /// background.
    pub intrusion_m: f64,
    /// Position uncertainty of the person Z_d, metres. 0.1: depth noise of a D435 at 3 m, twice.
    pub human_uncertainty_m: f64,
    /// Position uncertainty of the robot Z_r, metres. 0.01: calibration of the mounting.
    pub robot_uncertainty_m: f64,
}

impl Default for ProtectiveDistance {
    fn default() -> Self {
        Self {
            human_speed_m_s: 1.6,
            near_human_speed_m_s: 2.0,
            near_m: 0.5,
            reaction_time_s: None,
            controller_time_s: 0.01,
            stopping_time_s: 0.3,
            intrusion_m: 0.1,
            human_uncertainty_m: 0.1,
            robot_uncertainty_m: 0.01,
        }
    }
}

/// Delay that the monitor tolerates before it stops the robot, in seconds. The protective distance
/// must include this delay.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ReactionTime {
    /// Age of a capture that is still used (`ssm.stale_after_ms`).
    pub capture_s: f64,
    /// Time in which perception answers a frame (`tasks.perception.deadline_ms`).
    pub perception_s: f64,
    /// Time until the next SSM job (`tasks.ssm.period_ms`).
    pub period_s: f64,
    /// Time until a command is acknowledged (`ssm.ack_after_ms`).
    pub command_s: f64,
    /// Age of the robot's state that is still used (`ssm.robot_state_age_ms`).
    pub state_s: f64,
    /// Time until the controller begins to brake (`ssm.protective.controller_time_s`).
    pub controller_s: f64,
}

impl ReactionTime {
    /// Of a monitor and its tasks.
    pub fn of(ssm: &SsmConfig, tasks: &TaskSet) -> Self {
        Self {
            capture_s: ssm.stale_after_ms / 1e3,
            perception_s: tasks.perception.deadline_ms / 1e3,
            period_s: tasks.ssm.period_ms / 1e3,
            command_s: ssm.ack_after_ms / 1e3,
            state_s: ssm.robot_state_age_ms / 1e3,
            controller_s: ssm.protective.controller_time_s,
        }
    }

    /// All of it.
    pub(crate) fn sum_s(&self) -> f64 {
        self.capture_s + self.perception_s + self.period_s + self.command_s + self.state_s + self.controller_s
    }

    fn text(&self) -> String {
        let ms = |seconds: f64| (seconds * 1e5).round() / 1e2;
        format!(
            "{} (ssm.stale_after_ms) + {} (tasks.perception.deadline_ms) + {} (tasks.ssm.period_ms) + {} \
             (ssm.ack_after_ms) + {} (ssm.robot_state_age_ms) + {} (ssm.protective.controller_time_s) = {} ms",
            ms(self.capture_s),
            ms(self.perception_s),
            ms(self.period_s),
            ms(self.command_s),
            ms(self.state_s),
            ms(self.controller_s),
            ms(self.sum_s())
        )
    }
}

/// One term of the formula, for people and run directories.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProtectiveTerm {
    /// In words.
    pub term: String,
    /// As in the formula.
    pub symbol: String,
    /// In this run.
    pub value: f64,
    /// Unit of the value.
    pub unit: String,
    /// Source of the value.
    pub source: String,
}

/// Every term of S_p at full speed with the values of a run; `delays` and `capture_to_command_ns`
/// are its worst.
pub fn terms(
    ssm: &SsmConfig,
    tasks: &TaskSet,
    delays: LinkDelays,
    capture_to_command_ns: u64,
) -> Vec<ProtectiveTerm> {
    let (p, tolerated) = (&ssm.protective, ReactionTime::of(ssm, tasks));
    let seconds = |ns: u64| ns as f64 / 1e9;
    let measured = seconds(capture_to_command_ns)
        + seconds(delays.acknowledged_worst_ns)
        + seconds(delays.state_age_worst_ns)
        + p.controller_time_s;
    let assumed = p.reaction_time_s.unwrap_or(0.0).max(tolerated.sum_s());
    let reaction = assumed.max(measured);
    let (speed, human) = (ssm.full_speed_m_s, p.human_speed_m_s);
    let term = |term: &str, symbol: &str, value: f64, unit: &str, source: String| ProtectiveTerm {
        term: term.to_owned(),
        symbol: symbol.to_owned(),
        value,
        unit: unit.to_owned(),
        source,
    };
    let key = |key: &str| format!("ssm.{key}");
    let worst = |of: &str| format!("worst of this run: {of}");
    let used = match ssm.mode {
        SsmMode::Fixed => term("stop threshold", "S_stop", ssm.stop_below_m, "m", key("stop_below_m")),
        SsmMode::SpeedDependent => {
            term("stop threshold", "S_stop", p.at(speed, f64::INFINITY, reaction), "m", "S_p".to_owned())
        }
    };
    vec![
        term("speed of the person", "v_h", human, "m/s", key("protective.human_speed_m_s")),
        term(
            "speed of the robot",
            "v_r",
            speed,
            "m/s",
            format!("{}, at speed fraction 1", key("full_speed_m_s")),
        ),
        term("reaction time tolerated", "T_tolerated", tolerated.sum_s(), "s", tolerated.text()),
        term(
            "reaction time measured",
            "T_measured",
            measured,
            "s",
            worst("the four below and controller_time_s"),
        ),
        term(
            "capture to command",
            "T_capture",
            seconds(capture_to_command_ns),
            "s",
            worst("frames that were used"),
        ),
        term(
            "command to its echo",
            "T_command",
            seconds(delays.acknowledged_worst_ns),
            "s",
            worst("round trips"),
        ),
        term(
            "command to the program's echo",
            "T_script",
            seconds(delays.script_worst_ns),
            "s",
            worst("round trips"),
        ),
        term(
            "age of the robot's state",
            "T_state",
            seconds(delays.state_age_worst_ns),
            "s",
            worst("by its content"),
        ),
        term(
            "reaction time in use",
            "T_r",
            reaction,
            "s",
            match p.reaction_time_s {
                Some(_) => "greatest of ssm.protective.reaction_time_s, tolerated and measured".to_owned(),
                None => "greater of tolerated and measured".to_owned(),
            },
        ),
        term(
            "stopping time, slider to 0",
            "T_s",
            p.stopping_time_s,
            "s",
            format!("{}, the controller's own ramp", key("protective.stopping_time_s")),
        ),
        term(
            "distance of the person",
            "S_h",
            human * (reaction + p.stopping_time_s),
            "m",
            "v_h (T_r + T_s)".to_owned(),
        ),
        term("distance of the robot, reacting", "S_r", speed * reaction, "m", "v_r T_r".to_owned()),
        term("distance of the robot, stopping", "S_s", speed * p.stopping_time_s, "m", "v_r T_s".to_owned()),
        term("intrusion", "C", p.intrusion_m, "m", key("protective.intrusion_m")),
        term(
            "uncertainty of the person",
            "Z_d",
            p.human_uncertainty_m,
            "m",
            key("protective.human_uncertainty_m"),
        ),
        term(
            "uncertainty of the robot",
            "Z_r",
            p.robot_uncertainty_m,
            "m",
            key("protective.robot_uncertainty_m"),
        ),
        term(
            "protective separation distance",
            "S_p",
            p.at(speed, f64::INFINITY, reaction),
            "m",
            "S_h + S_r + S_s + C + Z_d + Z_r".to_owned(),
        ),
        used,
    ]
}

/// Refuses configurations that contradict the formula; shows the arithmetic.
///
/// # Errors
/// [`SettingError::Value`] with the way out.
pub fn arithmetic(
    ssm: &SsmConfig,
    tasks: &TaskSet,
    slider_rate_per_s: Option<f64>,
) -> Result<(), SettingError> {
    let (p, tolerated) = (&ssm.protective, ReactionTime::of(ssm, tasks));
    if let Some(assumed) = p.reaction_time_s.filter(|assumed| *assumed < tolerated.sum_s() - 1e-6) {
        let expected = format!(
            "less than the monitor tolerates before it stops the robot: {}; omit it (that sum is then used), raise it, or tolerate less",
            tolerated.text()
        );
        return Err(SettingError::value("ssm.protective.reaction_time_s", assumed, expected));
    }
    if let Some(rate) = slider_rate_per_s.filter(|rate| 1.0 / rate > p.stopping_time_s) {
        let expected = format!(
            "less than the simulated controller needs to stop: 1 / {rate} (robot.simulator.slider_rate_per_s) = {:.3} s",
            1.0 / rate
        );
        return Err(SettingError::value("ssm.protective.stopping_time_s", p.stopping_time_s, expected));
    }
    let reaction = p.reaction_time_s.unwrap_or(0.0).max(tolerated.sum_s());
    let needed = p.at(ssm.full_speed_m_s, ssm.stop_below_m, reaction);
    if ssm.mode == SsmMode::Fixed && ssm.stop_below_m < needed && !ssm.accept_short_stop_distance {
        let (human, total) = (p.human_speed(ssm.stop_below_m), reaction + p.stopping_time_s);
        let expected = format!(
            "less than the protective separation distance at full speed: S_p = v_h (T_r + T_s) + v_r (T_r + T_s) + C + Z_d + Z_r = {human} \
             * {total:.3} + {} * {total:.3} + {} + {} + {} = {needed:.3} m, with T_s = {} s and T_r = {reaction:.3} s; the monitor \
             tolerates {}. Raise stop_below_m, lower ssm.full_speed_m_s, tolerate less, or set ssm.accept_short_stop_distance = true where \
             your risk assessment allows it",
            ssm.full_speed_m_s,
            p.intrusion_m,
            p.human_uncertainty_m,
            p.robot_uncertainty_m,
            p.stopping_time_s,
            tolerated.text()
        );
        return Err(SettingError::value("ssm.stop_below_m", ssm.stop_below_m, expected));
    }
    Ok(())
}

impl ProtectiveDistance {
    fn human_speed(&self, separation_m: f64) -> f64 {
        if separation_m < self.near_m {
            self.near_human_speed_m_s.max(self.human_speed_m_s)
        } else {
            self.human_speed_m_s
        }
    }

    /// S_p in metres for a robot that moves at `robot_speed_m_s` and a person `separation_m` away,
    /// after the reaction time T_r `reaction_s`.
    pub fn at(&self, robot_speed_m_s: f64, separation_m: f64, reaction_s: f64) -> f64 {
        let human = self.human_speed(separation_m) * (reaction_s + self.stopping_time_s);
        let robot_reacting = robot_speed_m_s * reaction_s;
        let robot_stopping = robot_speed_m_s * self.stopping_time_s;
        human + robot_reacting + robot_stopping + self.constants()
    }

    /// The greatest robot speed in m/s at which `separation_m` is still at least S_p; negative when
    /// not even a standing robot satisfies it.
    pub(crate) fn allowed_speed(&self, separation_m: f64, reaction_s: f64) -> f64 {
        let total_s = reaction_s + self.stopping_time_s;
        (separation_m - self.human_speed(separation_m) * total_s - self.constants()) / total_s
    }

    fn constants(&self) -> f64 {
        self.intrusion_m + self.human_uncertainty_m + self.robot_uncertainty_m
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn worked_example() {
        // v_r 1 m/s, T_r 0.1 s, T_s 0.3 s, C + Z 0.3 m -> 0.64 + 0.10 + 0.30 + 0.30 = 1.34 m.
        let terms = ProtectiveDistance {
            stopping_time_s: 0.3,
            intrusion_m: 0.2,
            human_uncertainty_m: 0.09,
            robot_uncertainty_m: 0.01,
            ..ProtectiveDistance::default()
        };
        assert!((terms.at(1.0, 2.0, 0.1) - 1.34).abs() < 1e-12);
        // 0.2 s were measured: 1.6 * 0.5 + 0.2 + 0.3 + 0.3.
        assert!((terms.at(1.0, 2.0, 0.2) - 1.6).abs() < 1e-12);
    }

    #[test]
    fn a_reaction_time_below_what_is_tolerated_is_refused_with_the_sum() {
        let mut ssm = SsmConfig { mode: SsmMode::SpeedDependent, ..SsmConfig::default() };
        let tasks = TaskSet::default();
        assert_eq!(arithmetic(&ssm, &tasks, Some(4.0)), Ok(()));
        // The default of before: three camera periods.
        ssm.protective.reaction_time_s = Some(0.1);
        let refused = arithmetic(&ssm, &tasks, None).expect_err("100 ms").to_string();
        for part in ["reaction_time_s = 0.1", "120", "33", "= 245 ms"] {
            assert!(refused.contains(part), "{part}: {refused}");
        }
        ssm.protective.reaction_time_s = Some(0.245);
        assert_eq!(arithmetic(&ssm, &tasks, None), Ok(()));
        ssm.protective.stopping_time_s = 0.2;
        let refused = arithmetic(&ssm, &tasks, Some(4.0)).expect_err("0.25 s");
        assert!(refused.to_string().contains("slider_rate_per_s"));
    }

    #[test]
    fn a_fixed_threshold_below_the_formula_needs_to_be_accepted_by_name() {
        let mut ssm = SsmConfig::default();
        let tasks = TaskSet::default();
        let refused = arithmetic(&ssm, &tasks, None).expect_err("1.4 m").to_string();
        // 1.6 * 0.545 + 1.0 * 0.545 + 0.21.
        for part in ["stop_below_m = 1.4", "1.627 m", "accept_short_stop_distance"] {
            assert!(refused.contains(part), "{part}: {refused}");
        }
        ssm.accept_short_stop_distance = true;
        assert_eq!(arithmetic(&ssm, &tasks, None), Ok(()));
        (ssm.accept_short_stop_distance, ssm.stop_below_m) = (false, 1.63);
        assert_eq!(arithmetic(&ssm, &tasks, None), Ok(()));
    }

    #[test]
    fn the_terms_add_up_and_take_the_runs_worst() {
        let (ssm, tasks) = (SsmConfig::default(), TaskSet::default());
        let value = |terms: &[ProtectiveTerm], symbol: &str| {
            terms.iter().find(|term| term.symbol == symbol).expect(symbol).value
        };
        for (capture_ns, reaction) in [(40_000_000, 0.245), (600_000_000, 0.627)] {
            let delays = LinkDelays {
                acknowledged_worst_ns: 12_000_000,
                script_worst_ns: 14_000_000,
                state_age_worst_ns: 5_000_000,
            };
            let terms = terms(&ssm, &tasks, delays, capture_ns);
            assert!((value(&terms, "T_r") - reaction).abs() < 1e-9, "{terms:#?}");
            let parts = ["S_h", "S_r", "S_s", "C", "Z_d", "Z_r"];
            let sum: f64 = parts.iter().map(|symbol| value(&terms, symbol)).sum();
            assert!((sum - value(&terms, "S_p")).abs() < 1e-9);
        }
    }

    proptest! {
        #[test]
        fn allowed_speed_is_the_inverse(separation in 0.0f64..6.0, reaction in 0.0f64..0.5) {
            let terms = ProtectiveDistance::default();
            let speed = terms.allowed_speed(separation, reaction);
            prop_assert!((terms.at(speed, separation, reaction) - separation).abs() < 1e-9);
        }
    }
}

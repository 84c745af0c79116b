//! The goals file to begin from.

use std::fmt::Write as _;

use super::{GOAL_FACTOR, Learnt, LearntChain};
use crate::words::ms;

impl Learnt {
    /// The text of the goals file; `None`: nothing was measured that a goal could be proposed for.
    #[must_use]
    pub fn goals_text(&self) -> Option<String> {
        let goals = self.goals.as_ref()?;
        let processes: std::collections::BTreeSet<u32> =
            self.model.threads.iter().map(|thread| thread.pid).collect();
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "# Latency goals to begin from, written by `takt manage --learn` after {:.1} s of {} processes with {} callbacks.\n# Only you \
             know what the robot needs. Each goal below is {GOAL_FACTOR} times the longest measured latency, rounded up, or the bound\n# \
             that reservations could guarantee if that is larger. Delete chains that do not matter.\n# Then: takt manage THIS_FILE -- \
             COMMAND",
            self.observed_ns as f64 / 1e9,
            processes.len(),
            self.model.callbacks.len()
        );
        let order: Vec<toml::Value> =
            goals.degradation_order.iter().map(|index| goals.chains[*index].name.clone().into()).collect();
        let _ = writeln!(
            text,
            "\n# If not all goals can be met, chains are given up in this order.\ndegradation_order = [\n{}]",
            order.iter().map(|name| format!("    {name},\n")).collect::<String>()
        );
        for chain in &self.chains {
            self.write_chain(&mut text, chain);
        }
        Some(text)
    }

    fn write_chain(&self, text: &mut String, chain: &LearntChain) {
        let optional = |ns: Option<u64>| ns.map_or_else(|| "-".to_owned(), ms);
        let _ = writeln!(text, "\n# {}", comment(&chain.path.join(" -> ")));
        if chain.ways > 1 {
            let _ =
                writeln!(text, "# This is the longest of {} paths from its start to its end.", chain.ways);
        }
        let Some(goal_ns) = chain.goal_ns else {
            let _ = writeln!(text, "# Not measured: {}. Without a goal:", comment(&chain.why));
            for line in entry(chain, None).lines() {
                let _ = writeln!(text, "# {line}");
            }
            return;
        };
        let _ = writeln!(
            text,
            "# Measured {} times: median {} ms, 99 % {}, longest {}.",
            chain.completions,
            optional(chain.median_ns),
            optional(chain.p99_ns),
            optional(chain.worst_ns),
        );
        let _ = match chain.bound_ns.filter(|_| chain.state == "could_be_kept") {
            Some(bound_ns) => {
                writeln!(
                    text,
                    "# With reservations it would take at most {} ms, according to the observations so far.",
                    ms(bound_ns)
                )
            }
            None => writeln!(text, "# It could not be guaranteed: {}", comment(&chain.why)),
        };
        text.push_str(&entry(chain, Some(goal_ns)));
    }
}

fn entry(chain: &LearntChain, goal_ns: Option<u64>) -> String {
    let value = |text: &str| toml::Value::from(text);
    // Exact: whole microseconds, as goals are rounded to.
    let goal = goal_ns.map_or_else(
        || "100 ms".to_owned(),
        |ns| match ns % 1_000_000 {
            0 => format!("{} ms", ns / 1_000_000),
            _ => format!("{} us", ns / 1000),
        },
    );
    format!(
        "[[chain]]\nname = {}\nstart = {}\nend = {}\ngoal = {}\n",
        value(&chain.name),
        value(&chain.start),
        value(&chain.end),
        value(&goal)
    )
}

/// Text that stays within its line: names come from the observed programs.
#[must_use]
pub fn comment(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

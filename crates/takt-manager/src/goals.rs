//! The goals file: what the user declares, and nothing else.
//!
//! ```toml
//! # The first is the first to be given up when not all goals can be kept.
//! degradation_order = ["tracker", "pilot"]
//!
//! [[chain]]
//! name = "pilot"
//! start = "/planner"         # a callback, a node, a topic, or node:topic
//! end = "/turtlebot3_node"
//! goal = "125 ms"            # or goal_ms = 125
//! jitter = "20 ms"           # or jitter_ms = 20: latencies no further apart than that
//!
//! [[chain]]
//! name = "tracker"
//! start = "/camera"
//! end = "/tracker"
//! goal = "990 ms"
//! ```

#![deny(missing_docs)]

mod options;

use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};
use toml::Spanned;

pub use self::options::Options;
pub(crate) use self::options::names_of_ways;

/// More chains than this are a mistake, not a robot.
const MAX_CHAINS: usize = 1000;
/// Goals between a tenth of a millisecond and an hour. Below, a reservation's period would have to
/// be shorter than the kernel's timers are exact; above, nothing is real-time.
pub(crate) const GOAL_RANGE_NS: std::ops::RangeInclusive<u64> = 100_000..=3_600_000_000_000;

/// Clocks that are further apart, and messages that take longer, are no part of a control loop.
const MAX_NETWORK_NS: u64 = 60_000_000_000;
/// Each is asked every second.
const MAX_PEERS: usize = 16;
/// Least jitter goal: two clock readings and an interrupt are as far apart.
const MIN_JITTER_NS: u64 = 10_000;

/// Goals to keep.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Goals {
    /// Chains, in the file's order.
    pub chains: Vec<Chain>,
    /// Indices of `chains`, the first to be degraded first.
    pub degradation_order: Vec<usize>,
    /// The rest, all of which has a default.
    pub options: Options,
    /// Messages come from other machines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
}

/// Properties of messages whose publishers are not observed because they run on other machines.
/// Without this table, they are assumed to run on this machine, by the same clock.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Network {
    /// The clocks of the machines are no further apart, as whoever synchronises them states. None:
    /// as measured with the peers.
    pub clock_error_ns: Option<u64>,
    /// A message is here no later than so long after it was published. None: nothing is known, and
    /// a chain that begins on another machine is measured, but never called guaranteed.
    pub bound_ns: Option<u64>,
    /// Machines on which `takt clock` answers, `host` or `host:port`: the clock error is measured
    /// by round trips to them.
    pub peers: Vec<String>,
}

/// One cause-effect chain and its goal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Chain {
    /// Its name.
    pub name: String,
    /// Its start.
    pub start: String,
    /// Its end.
    pub end: String,
    /// From the activation at the start to the completion at the end.
    pub goal_ns: u64,
    /// Its longest and its shortest latency may be so far apart. None: they may be as they like,
    /// within the goal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jitter_ns: Option<u64>,
}

/// Reason why a goals file was refused.
#[derive(Debug, thiserror::Error)]
pub enum GoalsError {
    /// The file could not be read.
    #[error("{path}: {source}")]
    Read {
        /// The file.
        path: String,
        /// The system's answer.
        source: std::io::Error,
    },
    /// It is not TOML, or has keys that are not known.
    #[error("{path}: {message}")]
    Syntax {
        /// The file.
        path: String,
        /// Line, what was found and what was expected.
        message: String,
    },
    /// It contradicts itself or asks for nonsense.
    #[error("{path}, line {line}: {message}")]
    Meaning {
        /// The file.
        path: String,
        /// The line.
        line: usize,
        /// The mistake and its remedy.
        message: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawGoals {
    degradation_order: Option<Spanned<Vec<Spanned<String>>>>,
    #[serde(default)]
    chain: Vec<Spanned<RawChain>>,
    #[serde(default)]
    options: Option<Spanned<Options>>,
    network: Option<RawNetwork>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawNetwork {
    clock_error: Option<Spanned<String>>,
    bound: Option<Spanned<String>>,
    #[serde(default)]
    peers: Vec<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawChain {
    name: Spanned<String>,
    start: Spanned<String>,
    end: Spanned<String>,
    goal: Option<Spanned<String>>,
    goal_ms: Option<Spanned<f64>>,
    jitter: Option<Spanned<String>>,
    jitter_ms: Option<Spanned<f64>>,
}

/// Position to which a message points.
struct Text<'a> {
    path: &'a str,
    text: &'a str,
}

impl Text<'_> {
    fn wrong<T>(&self, at: &Spanned<T>, message: impl fmt::Display) -> GoalsError {
        let end = at.span().start.min(self.text.len());
        let line = self.text.as_bytes()[..end].iter().filter(|b| **b == b'\n').count() + 1;
        GoalsError::Meaning { path: self.path.to_owned(), line, message: message.to_string() }
    }

    fn nowhere(&self, message: impl Into<String>) -> GoalsError {
        GoalsError::Meaning { path: self.path.to_owned(), line: 1, message: message.into() }
    }
}

impl Goals {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// It cannot be read, or says nothing that could be kept.
    pub fn read(path: &Path) -> Result<Self, GoalsError> {
        let name = path.display().to_string();
        let text = takt_files::read_configuration(path)
            .map_err(|source| GoalsError::Read { path: name.clone(), source })?;
        Self::parse(&text, &name)
    }

    /// Reads a text; `path` is for messages.
    ///
    /// # Errors
    ///
    /// It says nothing that could be kept.
    pub fn parse(text: &str, path: &str) -> Result<Self, GoalsError> {
        let at = Text { path, text };
        let raw: RawGoals = takt_files::parse_configuration(text).map_err(|error| {
            let message = takt_files::shortened(&error.to_string());
            GoalsError::Syntax { path: path.to_owned(), message }
        })?;
        let options = match raw.options {
            Some(options) => {
                let found = options.get_ref().clone();
                found.validate().map_err(|message| at.wrong(&options, message))?;
                found
            }
            None => Options::default(),
        };
        if raw.chain.is_empty() {
            return Err(at.nowhere(
                "no chain is declared. Add one: [[chain]] with name, start, end and goal = \"125 ms\"",
            ));
        }
        if raw.chain.len() > MAX_CHAINS {
            return Err(at.nowhere(format!("{} chains; at most {MAX_CHAINS} are managed", raw.chain.len())));
        }
        let mut chains: Vec<Chain> = Vec::new();
        for raw in &raw.chain {
            let chain = chain(raw, &at)?;
            if chains.iter().any(|c| c.name == chain.name) {
                return Err(at.wrong(
                    &raw.get_ref().name,
                    format!("two chains are named `{}`. Rename one", chain.name),
                ));
            }
            chains.push(chain);
        }
        let degradation_order = order(raw.degradation_order.as_ref(), &chains, &at)?;
        let network = raw.network.as_ref().map(|raw| network(raw, &at)).transpose()?;
        Ok(Self { chains, degradation_order, options, network })
    }

    /// Options for learning the model for these goals: with the probability that budgets use.
    #[must_use]
    pub fn learning(&self, options: &takt_model::Options) -> takt_model::Options {
        let mut options = options.clone();
        if let Some(exceedance) = self.options.exceedance
            && !options.exceedance.contains(&exceedance)
        {
            options.exceedance.push(exceedance);
        }
        options
    }

    /// Length of the longest goal.
    #[must_use]
    pub fn longest_ns(&self) -> u64 {
        self.chains.iter().map(|c| c.goal_ns).max().unwrap_or(0)
    }
}

fn chain(raw: &Spanned<RawChain>, at: &Text<'_>) -> Result<Chain, GoalsError> {
    let chain = raw.get_ref();
    for (key, value) in [("name", &chain.name), ("start", &chain.start), ("end", &chain.end)] {
        if value.get_ref().trim().is_empty() {
            return Err(at.wrong(value, format!("`{key}` is empty")));
        }
    }
    let name = chain.name.get_ref().trim().to_owned();
    let goal_ns = match (&chain.goal, &chain.goal_ms) {
        (Some(text), None) => duration_ns(text.get_ref()).map_err(|message| at.wrong(text, message))?,
        (None, Some(ms)) => from_ms(*ms.get_ref()).ok_or_else(|| {
            at.wrong(ms, format!("`goal_ms` is {}; a positive number is needed", ms.get_ref()))
        })?,
        (Some(_), Some(ms)) => {
            return Err(at.wrong(ms, "both `goal` and `goal_ms` are given. Keep one"));
        }
        (None, None) => {
            return Err(at.wrong(raw, format!("chain `{name}` has no goal. Add goal = \"125 ms\"")));
        }
    };
    if !GOAL_RANGE_NS.contains(&goal_ns) {
        let message = format!(
            "chain `{name}` has a goal of {} ms; accepted are 0.1 ms to one hour",
            crate::words::ms(goal_ns)
        );
        return Err(match (&chain.goal, &chain.goal_ms) {
            (Some(at_text), _) => at.wrong(at_text, message),
            (_, Some(at_ms)) => at.wrong(at_ms, message),
            _ => at.wrong(raw, message),
        });
    }
    let end_point = |s: &Spanned<String>| s.get_ref().trim().to_owned();
    let jitter_ns = jitter(chain, &name, goal_ns, at)?;
    Ok(Chain { name, start: end_point(&chain.start), end: end_point(&chain.end), goal_ns, jitter_ns })
}

fn network(raw: &RawNetwork, at: &Text<'_>) -> Result<Network, GoalsError> {
    let duration = |text: &Option<Spanned<String>>, key: &str| match text {
        None => Ok(None),
        Some(text) => match duration_ns(text.get_ref()).map_err(|message| at.wrong(text, message))? {
            ns if ns <= MAX_NETWORK_NS => Ok(Some(ns)),
            ns => Err(at.wrong(
                text,
                format!(
                    "`{key}` of the network is {} ms; at most one minute is accepted",
                    crate::words::ms(ns)
                ),
            )),
        },
    };
    if let (Some(stated), Some(_)) = (&raw.clock_error, raw.peers.first()) {
        let message =
            "both `clock_error` and `peers` are given: the error is either stated or measured. Keep one";
        return Err(at.wrong(stated, message));
    }
    if let Some(peer) = raw.peers.iter().find(|peer| peer.get_ref().trim().is_empty()) {
        return Err(at.wrong(peer, "a peer is empty; expected a host or host:port"));
    }
    if let Some(peer) = raw.peers.get(MAX_PEERS) {
        return Err(at.wrong(peer, format!("{} peers; at most {MAX_PEERS} are accepted", raw.peers.len())));
    }
    Ok(Network {
        clock_error_ns: duration(&raw.clock_error, "clock_error")?,
        bound_ns: duration(&raw.bound, "bound")?,
        peers: raw.peers.iter().map(|peer| peer.get_ref().trim().to_owned()).collect(),
    })
}

fn jitter(chain: &RawChain, name: &str, goal_ns: u64, at: &Text<'_>) -> Result<Option<u64>, GoalsError> {
    let wrong = |message: String| match (&chain.jitter, &chain.jitter_ms) {
        (_, Some(ms)) => at.wrong(ms, message),
        (Some(text), None) => at.wrong(text, message),
        (None, None) => at.nowhere(message),
    };
    let jitter_ns = match (&chain.jitter, &chain.jitter_ms) {
        (None, None) => return Ok(None),
        (Some(text), None) => duration_ns(text.get_ref()).map_err(|error| wrong(error.to_string()))?,
        (None, Some(ms)) => from_ms(*ms.get_ref())
            .ok_or_else(|| wrong(format!("`jitter_ms` is {}; a positive number is needed", ms.get_ref())))?,
        (Some(_), Some(_)) => {
            return Err(wrong("both `jitter` and `jitter_ms` are given. Keep one".to_owned()));
        }
    };
    if !(MIN_JITTER_NS..goal_ns).contains(&jitter_ns) {
        return Err(wrong(format!(
            "chain `{name}` has a jitter goal of {} ms; accepted are {} ms to below its latency goal of {} ms (latencies within the goal \
             never differ by more than the goal, so omit a larger one)",
            crate::words::ms(jitter_ns),
            MIN_JITTER_NS as f64 / 1e6,
            crate::words::ms(goal_ns)
        )));
    }
    Ok(Some(jitter_ns))
}

fn order(
    raw: Option<&Spanned<Vec<Spanned<String>>>>,
    chains: &[Chain],
    at: &Text<'_>,
) -> Result<Vec<usize>, GoalsError> {
    let Some(raw) = raw else {
        if chains.len() == 1 {
            return Ok(vec![0]);
        }
        let names: Vec<String> = chains.iter().map(|c| format!("\"{}\"", c.name)).collect();
        return Err(at.nowhere(format!(
            "degradation_order is missing. Add it at the top, with the least important chain first: degradation_order = [{}]",
            names.join(", ")
        )));
    };
    let mut order = Vec::new();
    for name in raw.get_ref() {
        let asked = name.get_ref().trim();
        let Some(index) = chains.iter().position(|c| c.name == asked) else {
            let near = crate::words::near(asked, chains.iter().map(|c| c.name.as_str()));
            let hint =
                if near.is_empty() { String::new() } else { format!(" Did you mean {}?", near.join(" or ")) };
            return Err(at.wrong(
                name,
                format!("degradation_order names `{asked}`, but this file has no such chain.{hint}"),
            ));
        };
        if order.contains(&index) {
            return Err(at.wrong(
                name,
                format!("degradation_order names `{asked}` twice. Each chain has one place; keep one"),
            ));
        }
        order.push(index);
    }
    let missing: Vec<&str> =
        chains.iter().enumerate().filter(|(i, _)| !order.contains(i)).map(|(_, c)| c.name.as_str()).collect();
    if !missing.is_empty() {
        return Err(at.wrong(
            raw,
            format!(
                "degradation_order leaves out {}. Every chain needs a place, with the least important first",
                missing.join(", ")
            ),
        ));
    }
    Ok(order)
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn from_ms(ms: f64) -> Option<u64> {
    (ms.is_finite() && ms > 0.0).then(|| (ms * 1e6).min(1e18) as u64)
}

/// Reads `125 ms`, `0.5s`, `300 us`; not 0.
fn duration_ns(text: &str) -> Result<u64, takt_rt::Error> {
    let wrong = |reason| takt_rt::Error::InvalidDuration { given: text.to_owned(), reason };
    match takt_rt::duration::parse(text)?.as_nanos() {
        0 => Err(wrong("it must be above 0")),
        ns => u64::try_from(ns).map_err(|_| wrong("longer than 584 years")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = r#"
degradation_order = ["b", "a"]
[[chain]]
name = "a"
start = "/x"
end = "/y"
goal = "125 ms"
[[chain]]
name = "b"
start = "/x"
end = "/z"
goal_ms = 0.5
"#;

    #[test]
    fn reads_goals_and_their_order() {
        let goals = Goals::parse(TWO, "g.toml").unwrap();
        assert_eq!(goals.degradation_order, [1, 0]);
        assert_eq!(goals.chains[0].goal_ns, 125_000_000);
        assert_eq!(goals.chains[1].goal_ns, 500_000);
        assert_eq!(goals.options, Options::default());
        let network = |text: &str| Goals::parse(&format!("{TWO}\n[network]\n{text}"), "g.toml");
        let known = network("clock_error = \"50 us\"\nbound = \"2 ms\"").unwrap().network.unwrap();
        assert_eq!((known.clock_error_ns, known.bound_ns), (Some(50_000), Some(2_000_000)));
        assert_eq!(network("peers = [\"10.0.0.2\"]").unwrap().network.unwrap().peers, ["10.0.0.2"]);
        assert_eq!(network("").unwrap().network, Some(Network::default()));
        for wrong in [
            "clock_error = 3",
            "bound = \"2 h\"",
            "peers = [\"\"]",
            "clock_error = \"1 us\"\npeers = [\"a\"]",
            "x = 1",
        ] {
            assert!(network(wrong).is_err(), "{wrong}");
        }
        let with = |key: &str| {
            Goals::parse(&TWO.replace("goal_ms = 0.5", key), "g.toml").map(|g| g.chains[1].jitter_ns)
        };
        assert_eq!(goals.chains[1].jitter_ns, None);
        assert_eq!(with("goal_ms = 5\njitter = \"2 ms\"").unwrap(), Some(2_000_000));
        assert_eq!(with("goal_ms = 5\njitter_ms = 0.05").unwrap(), Some(50_000));
        assert!(Options::default().validate().is_ok());
    }

    #[test]
    fn shipped_example_is_table_one() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../goals/turtlebot.toml");
        let goals = Goals::read(&path).unwrap();
        assert_eq!(goals.chains.len(), 7);
        let first = &goals.chains[goals.degradation_order[0]];
        assert_eq!((first.name.as_str(), first.goal_ns), ("tracker", 990_000_000));
    }

    #[test]
    fn durations() {
        assert_eq!(duration_ns("125 ms").unwrap(), 125_000_000);
        assert_eq!(duration_ns("0.5s").unwrap(), 500_000_000);
        assert_eq!(duration_ns("300 us").unwrap(), 300_000);
        for bad in ["", "ms", "12", "1.2.3 ms", "-3 ms", "0 ms", "5 parsec", "∞ ms"] {
            assert!(duration_ns(bad).is_err(), "{bad}");
        }
    }

    /// Each case: the mistake, the line that the message names, and a word of it.
    #[test]
    fn nonsense_is_refused_with_line_and_way_out() {
        let cases = [
            ("", 1, "no chain"),
            (&TWO.replace("\"b\", \"a\"", "\"b\""), 2, "leaves out a"),
            (&TWO.replace("\"b\", \"a\"", "\"b\", \"a\", \"b\""), 2, "twice"),
            (&TWO.replace("\"b\", \"a\"", "\"b\", \"aa\""), 2, "Did you mean a?"),
            (&TWO.replace("degradation_order = [\"b\", \"a\"]", ""), 1, "Add it at the top"),
            (&TWO.replace("name = \"b\"", "name = \"a\""), 9, "Rename"),
            (&TWO.replace("125 ms", "125"), 7, "no unit"),
            (&TWO.replace("125 ms", "2 ns"), 7, "accepted are 0.1 ms"),
            (&TWO.replace("goal_ms = 0.5", "goal_ms = 1e30"), 12, "to one hour"),
            (&TWO.replace("goal_ms = 0.5", "goal_ms = nan"), 12, "positive"),
            (&TWO.replace("goal_ms = 0.5", ""), 8, "has no goal"),
            (&TWO.replace("goal_ms = 0.5", "goal_ms = 1\ngoal = \"1 ms\""), 12, "Keep one"),
            (&TWO.replace("\"/z\"", "\" \""), 11, "empty"),
            (&TWO.replace("goal_ms = 0.5", "goal_ms = 5\njitter = \"5 ms\""), 13, "omit a larger one"),
            (&TWO.replace("goal_ms = 0.5", "goal_ms = 5\njitter_ms = 0"), 13, "positive"),
            (&TWO.replace("goal_ms = 0.5", "goal_ms = 5\njitter = \"2\""), 13, "no unit"),
            (&TWO.replace("goal_ms = 0.5", "goal_ms = 5\njitter = \"2 us\""), 13, "0.01 ms"),
            (&TWO.replace("goal_ms = 0.5", "goal_ms = 5\njitter = \"2 ms\"\njitter_ms = 2"), 14, "Keep one"),
        ];
        for (text, line, word) in cases {
            let Err(GoalsError::Meaning { line: found, message, .. }) = Goals::parse(text, "g.toml") else {
                panic!("accepted or refused for another reason: {text}");
            };
            assert!(message.contains(word), "{message} lacks {word}");
            assert_eq!(found, line, "{message}");
        }
        let unknown = Goals::parse(&format!("{TWO}\nlatency = 3"), "g.toml").unwrap_err().to_string();
        assert!(unknown.contains("latency") && unknown.contains("line 1"), "{unknown}");
        for option in [
            "step_percent = 0",
            "horizon_s = -1",
            "cores = []",
            "cores = [1, 1]",
            "exceedance = 1.0",
            "max_bandwidth = 2.0",
            "max_bandwidth = 0.8\nmax_system_bandwidth = 0.9",
            "reservation_period_ms = nan",
            "period = 1",
        ] {
            assert!(Goals::parse(&format!("{TWO}\n[options]\n{option}"), "g.toml").is_err(), "{option}");
        }
    }

    #[test]
    fn limits_are_read_by_their_former_names() {
        let options = |text: &str| {
            Goals::parse(&format!("{TWO}\n[options]\n{text}"), "g.toml").map(|goals| goals.options)
        };
        let former = options("most_bandwidth = 0.8\nmost_system_bandwidth = 0.5").unwrap();
        assert_eq!((former.max_bandwidth, former.max_system_bandwidth), (0.8, Some(0.5)));
        assert_eq!(former, options("max_bandwidth = 0.8\nmax_system_bandwidth = 0.5").unwrap());
        assert!(options("most_bandwidth = 0.8\nmax_bandwidth = 0.7").is_err());
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_goals_or_an_error(text in "[\\[\\]a-z=\" .0-9\n#]{0,200}") {
            let _ = Goals::parse(&text, "any.toml");
        }
    }
}

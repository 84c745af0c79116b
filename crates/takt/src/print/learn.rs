//! Results of `takt manage --learn`.

use std::fmt::Write;
use std::path::Path;

use serde_json::{Value, json};
use takt_manager::learn::{Learnt, LearntChain};

use super::manager::graph;

/// Everything that was learnt, the model as a graph among it.
pub fn json(learnt: &Learnt, written: Option<&Path>, goals: Option<&str>) -> Value {
    let ms = |ns: Option<u64>| ns.map(|ns| ns as f64 / 1e6);
    let chain = |chain: &LearntChain| {
        json!({
            "name": chain.name,
            "start": chain.start,
            "end": chain.end,
            "path": chain.path,
            "ways": chain.ways,
            "state": chain.state,
            "why": chain.why,
            "completions": chain.completions,
            "dropped": chain.dropped,
            "median_ms": ms(chain.median_ns),
            "p99_ms": ms(chain.p99_ns),
            "worst_ms": ms(chain.worst_ns),
            "bound_ms": ms(chain.bound_ns),
            "goal_ms": ms(chain.goal_ns),
        })
    };
    json!({
        "graph": graph(&learnt.model),
        "chains": learnt.chains.iter().map(chain).collect::<Vec<_>>(),
        "chains_left_out": learnt.left_out,
        "goals_file": written.map(|path| path.display().to_string()),
        "goals": goals,
        "seconds": learnt.observed_ns as f64 / 1e9,
        "events": learnt.events,
        "lost": learnt.model.lost_events,
        "plan": learnt.plan,
        "model": learnt.model,
    })
}

/// The chains for people.
pub fn text(learnt: &Learnt, written: Option<&Path>) -> String {
    let mut text = String::new();
    let width = learnt.chains.iter().map(|chain| chain.name.chars().count()).max().unwrap_or(0).max(5);
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "{:.1} s, {} events ({} lost), {} callbacks\n",
        learnt.observed_ns as f64 / 1e9,
        learnt.events,
        learnt.model.lost_events,
        learnt.model.callbacks.len()
    );
    let _ = writeln!(
        text,
        "{:width$}  {:>7} {:>9} {:>9} {:>9} {:>9} {:>9}  callbacks",
        "chain", "count", "median ms", "99 %", "worst", "bound", "goal"
    );
    let ms = |ns: Option<u64>| ns.map_or_else(|| "-".to_owned(), |ns| format!("{:.1}", ns as f64 / 1e6));
    for chain in &learnt.chains {
        let _ = writeln!(
            text,
            "{:width$}  {:>7} {:>9} {:>9} {:>9} {:>9} {:>9}  {}",
            chain.name,
            chain.completions,
            ms(chain.median_ns),
            ms(chain.p99_ns),
            ms(chain.worst_ns),
            ms(chain.bound_ns),
            ms(chain.goal_ns),
            chain.path.join(" -> ")
        );
        if chain.state != "could_be_kept" {
            let _ = writeln!(text, "{:width$}    {}: {}", "", chain.state.replace('_', " "), chain.why);
        }
    }
    if learnt.left_out > 0 {
        let _ = writeln!(
            text,
            "{} more pairs of end points are left out (--chains N shows more)",
            learnt.left_out
        );
    }
    match written {
        Some(path) => {
            let _ = writeln!(
                text,
                "\nThe goals are in {path}; edit them, then: takt manage {path} -- COMMAND",
                path = path.display()
            );
        }
        None => text.push_str("\nNo chain completed, so no goals file was written\n"),
    }
    text
}

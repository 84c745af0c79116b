//! Models for the eye: a graph for graphviz and a tree in plain text.

use std::fmt::Write as _;

use crate::{Callback, CallbackKind, Executor, ExecutorKind, Model, PassedOver, ThreadRole};

/// Parts that the graph leaves out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DotOptions {
    /// Callbacks that never ran, and topics that nobody publishes: every node of ROS 2 brings eight
    /// of them.
    pub idle: bool,
}

impl Model {
    /// The graph in the language of graphviz: executors as boxes, callbacks in them, topics
    /// between. `dot -Tsvg` draws it.
    #[must_use]
    pub fn to_dot(&self, options: DotOptions) -> String {
        let mut out = String::from(
            "digraph takt {\n  rankdir=LR;\n  node [fontname=\"sans-serif\", fontsize=10];\n  edge [fontname=\"sans-serif\", fontsize=9];\n",
        );
        let shown =
            |callback: &Callback| options.idle || callback.arrivals.seen > 0 || callback.cost.seen > 0;
        for (i, executor) in self.executors.iter().enumerate() {
            let callbacks: Vec<usize> =
                executor.callbacks.iter().map(|id| id.0).filter(|&id| shown(&self.callbacks[id])).collect();
            if callbacks.is_empty() {
                continue;
            }
            // Writing to a string cannot fail.
            let _ = writeln!(
                out,
                "  subgraph cluster_{i} {{\n    label={};",
                quote(&self.executor_label(executor))
            );
            for id in callbacks {
                let callback = &self.callbacks[id];
                let label = format!("{}\n{}", callback.name, callback.figures());
                let unanalysable = self
                    .unanalysable
                    .iter()
                    .any(|u| u.towards.is_none() && u.callbacks.iter().any(|c| c.0 == id));
                let style = if unanalysable { ", style=dashed" } else { "" };
                let _ = writeln!(out, "    c{id} [shape=box{style}, label={}];", quote(&label));
            }
            out.push_str("  }\n");
        }
        for (i, topic) in self.topics.iter().enumerate() {
            let ends = |ids: &[crate::CallbackId]| -> Vec<usize> {
                ids.iter().map(|id| id.0).filter(|&id| shown(&self.callbacks[id])).collect()
            };
            let (publishers, subscribers) = (ends(&topic.publishers), ends(&topic.subscribers));
            if publishers.is_empty() && (subscribers.is_empty() || !options.idle) {
                continue;
            }
            let style = if topic.hidden { ", style=dotted" } else { "" };
            let _ = writeln!(out, "  t{i} [shape=ellipse{style}, label={}];", quote(&topic.name));
            publishers.iter().for_each(|id| {
                let _ = writeln!(out, "  c{id} -> t{i};");
            });
            subscribers.iter().for_each(|id| {
                let _ = writeln!(out, "  t{i} -> c{id};");
            });
        }
        out.push_str("}\n");
        out
    }

    /// Executors with their callbacks, what they cost and where their messages go.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        for executor in &self.executors {
            let _ = writeln!(out, "{}", self.executor_label(executor));
            let last = executor.callbacks.len().saturating_sub(1);
            for (i, id) in executor.callbacks.iter().enumerate() {
                let callback = &self.callbacks[id.0];
                let (branch, stem) = if i == last { ("└─", "   ") } else { ("├─", "│  ") };
                let never = self.never_ran.iter().find(|never| never.callback == *id);
                let figures = match never {
                    Some(never) => format!("never ran {}", never.figures()),
                    None => match self.stopped.iter().find(|stopped| stopped.callback == *id) {
                        Some(stopped) => {
                            format!("{}; then no more {}", callback.figures(), stopped.figures())
                        }
                        None => callback.figures(),
                    },
                };
                let _ = writeln!(out, "{branch} {}  {figures}", callback.name);
                for topic in &callback.publishes {
                    let topic = &self.topics[topic.0];
                    let subscribers: Vec<&str> =
                        topic.subscribers.iter().map(|id| self.callbacks[id.0].name.as_str()).collect();
                    let to =
                        if subscribers.is_empty() { "nobody".to_owned() } else { subscribers.join(", ") };
                    let _ = writeln!(out, "{stem}   → {} → {to}", topic.name);
                }
            }
        }
        let helpers = self.threads.iter().filter(|t| t.role == ThreadRole::Helper).count();
        if helpers > 0 {
            let _ = writeln!(out, "{helpers} helper threads");
        }
        for problem in &self.unanalysable {
            let _ = writeln!(out, "not analysable: {}", problem.reason);
        }
        let python: Vec<&str> =
            self.python.nodes.iter().map(|node| self.nodes[node.0].name.as_str()).collect();
        if !python.is_empty() {
            let _ = writeln!(
                out,
                "Python nodes, whose callbacks are not visible: {} ({} threads)",
                python.join(", "),
                self.python.threads.len()
            );
        }
        if self.lost_events > 0 {
            let _ = writeln!(out, "{} events were lost", self.lost_events);
        }
        out
    }

    /// An executor in words: its kind, and its threads.
    #[must_use]
    pub fn executor_label(&self, executor: &Executor) -> String {
        let kind = match executor.kind {
            ExecutorKind::SingleThreaded => "executor",
            ExecutorKind::MultiThreaded => "multi-threaded executor",
            ExecutorKind::Static => "static executor",
            ExecutorKind::Events => "events executor",
            ExecutorKind::Source => "event source",
            ExecutorKind::Task => "task",
        };
        let threads: Vec<String> = executor
            .threads
            .iter()
            .map(|id| {
                let thread = &self.threads[id.0];
                let name = if thread.name.is_empty() { "thread" } else { &thread.name };
                format!("{name} {}/{}", thread.pid, thread.tid)
            })
            .collect();
        format!("{kind}, {}", threads.join(", "))
    }
}

impl PassedOver {
    fn figures(&self) -> String {
        let releases = if self.period_ns.is_some() { "releases" } else { "messages" };
        let times =
            if self.others_ran == 1 { "once".to_owned() } else { format!("{} times", self.others_ran) };
        format!("in {} {releases}, while its executor ran others {times}", self.releases)
    }
}

impl Callback {
    /// Activations, the shortest time between two and the longest execution.
    #[must_use]
    pub fn figures(&self) -> String {
        if self.arrivals.seen == 0 && self.cost.seen == 0 {
            return "never ran".to_owned();
        }
        let mut text = format!("{}×", self.cost.seen.max(self.arrivals.seen));
        if let CallbackKind::Timer { .. } = self.kind {
        } else if let Some(&least_ns) = self.arrivals.least_span_ns.first() {
            let _ = write!(text, ", every {} ms or more", milliseconds(least_ns));
        }
        if let Some(&most_ns) = self.cost.most_ns.first() {
            let clock = if self.cost.cpu_time { "" } else { " (wall time)" };
            let _ = write!(text, ", up to {} ms{clock}", milliseconds(most_ns));
        }
        text
    }
}

fn milliseconds(ns: u64) -> String {
    format!("{:.3}", ns as f64 / 1e6)
}

fn quote(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_break_the_graph() {
        assert_eq!(quote("a\"b\\c\nd"), "\"a\\\"b\\\\c\\nd\"");
        assert_eq!(Model::default().to_text(), "");
        assert!(Model::default().to_dot(DotOptions::default()).ends_with("}\n"));
    }
}

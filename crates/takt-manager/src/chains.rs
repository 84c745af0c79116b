//! From end points to callback paths.
//!
//! An end point is, in this order of preference: the name of a callback (or its symbol), of a node,
//! of a topic, or `node:what`, where `what` is a topic, or a part of a callback's name or symbol.
//! Leading slashes and case do not matter where no name fits exactly. A node stands for all of its
//! callbacks but those that every node of ROS 2 has (parameter services and the like), unless it
//! has no other; a topic stands for the callbacks that its messages activate at a chain's start,
//! and for those that publish to it at the end.

use std::collections::{BTreeSet, HashSet};

use takt_model::Model;

use crate::infrastructure::{activating, is_brought_along};
use crate::words;

mod remembered;

pub use remembered::Remembered;

/// More paths than this between two end points cannot be meant.
const MAX_PATHS: usize = 64;
/// Steps of the search, so that a dense graph ends in an answer.
const MAX_STEPS: usize = 200_000;

/// Reason why a chain was not found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChainError {
    /// An end point names nothing that was seen.
    #[error("nothing named `{asked}` was seen at the {side}")]
    Unknown { side: &'static str, asked: String, near_misses: Vec<String> },
    /// An end point is a node of Python.
    #[error(
        "ends in Python: `{asked}` at the {side} belongs to an rclpy node, whose callbacks leave no events. Declare the chain up to the \
         topic to which it subscribes"
    )]
    Python { side: &'static str, asked: String },
    /// No activation leads from start to end, but to a node of Python.
    #[error(
        "ends in Python: from `{start}`, messages reach {nodes} on {topic}. Callbacks of rclpy leave no events, so the path to `{end}` is \
         unknown. Declare the parts before and after it as separate chains"
    )]
    ThroughPython {
        start: String,
        end: String,
        /// Nodes of Python that subscribe to the topic.
        nodes: String,
        topic: String,
    },
    /// No activation leads from start to end.
    #[error(
        "no message leads from `{start}` to `{end}`. Messages from the start reach {reached}. If data waits there for a timer or another \
         message, declare the parts before and after it as separate chains"
    )]
    Unconnected { start: String, end: String, reached: String },
    /// Too many ways.
    #[error(
        "more than {MAX_PATHS} paths lead from `{start}` to `{end}`. Name callbacks (node:topic) instead of nodes or topics"
    )]
    Many { start: String, end: String },
}

/// All simple callback paths between two end points; those that are part of longer ones left out.
///
/// # Errors
///
/// There is none, or too many.
pub fn paths(model: &Model, start: &str, end: &str) -> Result<Vec<Vec<usize>>, ChainError> {
    PathSearch::new(model).paths(start, end)
}

/// Activations between callbacks in a model, for several chains.
#[derive(Debug)]
pub struct PathSearch<'m> {
    model: &'m Model,
    after: Vec<Vec<usize>>,
    /// All names, as [`plain`] has them: most ends are no name, but a node and something of it.
    names: HashSet<String>,
}

impl<'m> PathSearch<'m> {
    #[must_use]
    pub fn new(model: &'m Model) -> Self {
        let callbacks = model.callbacks.iter();
        let names = callbacks
            .flat_map(|c| std::iter::once(c.name.as_str()).chain(c.symbol.as_deref()))
            .chain(model.nodes.iter().map(|node| node.name.as_str()))
            .chain(model.topics.iter().map(|topic| topic.name.as_str()));
        Self { model, after: successors(model), names: names.map(plain).collect() }
    }

    /// As [`paths`].
    ///
    /// # Errors
    ///
    /// As [`paths`].
    pub fn paths(&self, start: &str, end: &str) -> Result<Vec<Vec<usize>>, ChainError> {
        let starts = self.resolve(start, Side::Start)?;
        let ends = self.resolve(end, Side::End)?;
        between(self.model, &self.after, (start, &starts), (end, &ends))
    }

    /// Callbacks that `start` names; none where it names nothing.
    pub(crate) fn starts(&self, start: &str) -> Vec<usize> {
        self.resolve(start, Side::Start).unwrap_or_default()
    }

    /// Callbacks that `end` names; none where it names nothing.
    pub(crate) fn ends(&self, end: &str) -> Vec<usize> {
        self.resolve(end, Side::End).unwrap_or_default()
    }

    /// Callbacks that a callback was seen to activate.
    pub(crate) fn after(&self, callback: usize) -> &[usize] {
        self.after.get(callback).map_or(&[], Vec::as_slice)
    }

    fn resolve(&self, asked: &str, side: Side) -> Result<Vec<usize>, ChainError> {
        resolve(self.model, asked, side, self.names.contains(&plain(asked)))
    }
}

fn between(
    model: &Model,
    after: &[Vec<usize>],
    (start, starts): (&str, &[usize]),
    (end, ends): (&str, &[usize]),
) -> Result<Vec<Vec<usize>>, ChainError> {
    let leads = leading_to(after, ends);
    let mut search = Search { after, leads: &leads, ends, found: Vec::new(), steps: 0 };
    for first in starts {
        if leads[*first] && !search.from(&mut vec![*first]) {
            return Err(ChainError::Many { start: start.to_owned(), end: end.to_owned() });
        }
    }
    let mut found = search.found;
    if found.is_empty() {
        if let Some(error) = through_python(model, after, starts, start, end) {
            return Err(error);
        }
        return Err(ChainError::Unconnected {
            start: start.to_owned(),
            end: end.to_owned(),
            reached: reached(model, after, starts),
        });
    }
    found.sort_by_key(|path| std::cmp::Reverse(path.len()));
    let mut whole: Vec<Vec<usize>> = Vec::new();
    for path in found {
        if !whole.iter().any(|w| w.windows(path.len()).any(|part| part == path)) {
            whole.push(path);
        }
    }
    Ok(whole)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Start,
    End,
}

/// For every callback those that it activates.
fn successors(model: &Model) -> Vec<Vec<usize>> {
    let count = model.callbacks.len();
    let mut after = vec![Vec::new(); count];
    for topic in &model.topics {
        for publisher in topic.publishers.iter().filter(|p| p.0 < count) {
            after[publisher.0].extend(topic.subscribers.iter().map(|s| s.0).filter(|s| *s < count));
        }
    }
    for list in &mut after {
        list.sort_unstable();
        list.dedup();
    }
    after
}

fn leading_to(after: &[Vec<usize>], ends: &[usize]) -> Vec<bool> {
    let mut before = vec![Vec::new(); after.len()];
    for (from, list) in after.iter().enumerate() {
        for to in list {
            before[*to].push(from);
        }
    }
    let mut leads = vec![false; after.len()];
    let mut open = ends.to_vec();
    while let Some(at) = open.pop() {
        if !std::mem::replace(&mut leads[at], true) {
            open.extend(&before[at]);
        }
    }
    leads
}

struct Search<'a> {
    after: &'a [Vec<usize>],
    leads: &'a [bool],
    ends: &'a [usize],
    found: Vec<Vec<usize>>,
    steps: usize,
}

impl Search<'_> {
    /// False: too many. Goes no deeper than the number of callbacks, on a stack of its own.
    fn from(&mut self, path: &mut Vec<usize>) -> bool {
        let mut next: Vec<usize> = vec![0];
        if self.ends.contains(&path[0]) {
            self.found.push(path.clone());
        }
        while let (Some(&at), Some(index)) = (path.last(), next.last_mut()) {
            let Some(&candidate) = self.after[at].get(*index) else {
                path.pop();
                next.pop();
                continue;
            };
            *index += 1;
            self.steps += 1;
            if !self.leads[candidate] || path.contains(&candidate) {
                continue;
            }
            path.push(candidate);
            next.push(0);
            if self.ends.contains(&candidate) {
                self.found.push(path.clone());
            }
            if self.found.len() > MAX_PATHS || self.steps > MAX_STEPS {
                return false;
            }
        }
        true
    }
}

/// All that activations lead to from these.
fn all_reached(after: &[Vec<usize>], starts: &[usize]) -> Vec<usize> {
    let mut seen = vec![false; after.len()];
    let (mut open, mut reached) = (starts.to_vec(), Vec::new());
    while let Some(at) = open.pop() {
        if !std::mem::replace(&mut seen[at], true) {
            reached.push(at);
            open.extend(&after[at]);
        }
    }
    reached
}

fn through_python(
    model: &Model,
    after: &[Vec<usize>],
    starts: &[usize],
    start: &str,
    end: &str,
) -> Option<ChainError> {
    let reached = all_reached(after, starts);
    let taken = model.python.subscribed.iter().find(|taken| {
        let topic = model.topics.get(taken.topic.0);
        topic.is_some_and(|topic| topic.publishers.iter().any(|p| reached.contains(&p.0)))
    })?;
    let nodes = taken.nodes.iter().filter_map(|id| model.nodes.get(id.0)).map(|node| node.name.as_str());
    Some(ChainError::ThroughPython {
        start: start.to_owned(),
        end: end.to_owned(),
        nodes: nodes.collect::<Vec<_>>().join(", "),
        topic: model.topics[taken.topic.0].name.clone(),
    })
}

fn reached(model: &Model, after: &[Vec<usize>], starts: &[usize]) -> String {
    let reached = all_reached(after, starts).into_iter().filter(|at| after[*at].is_empty());
    let mut last: Vec<&str> = reached.map(|at| model.callbacks[at].name.as_str()).collect();
    last.sort_unstable();
    match last.as_slice() {
        [] => "nothing but cycles".to_owned(),
        names => names.iter().take(5).copied().collect::<Vec<_>>().join(", "),
    }
}

fn plain(name: &str) -> String {
    name.trim().trim_start_matches('/').to_lowercase()
}

/// Whether a name is this one, which is [`plain`], but for leading slashes and case.
fn is_plainly(name: &str, asked: &str) -> bool {
    // Nearly all names differ in their last character.
    if let Some(last) = name.bytes().next_back()
        && last.is_ascii_alphanumeric()
        && asked.bytes().next_back() != Some(last.to_ascii_lowercase())
    {
        return false;
    }
    let name = name.trim().trim_start_matches('/');
    if name.is_ascii() { name.eq_ignore_ascii_case(asked) } else { name.to_lowercase() == asked }
}

/// `is_name`: something is called so.
fn resolve(model: &Model, asked: &str, side: Side, is_name: bool) -> Result<Vec<usize>, ChainError> {
    let exact = |name: &str| name == asked;
    let wanted = plain(asked);
    let alike = |name: &str| is_plainly(name, &wanted);
    // The node, or something of it (`node:what`).
    let owner = asked.split_once(':').map_or(asked, |(node, _)| node);
    let python = |node: &takt_model::NodeId| {
        model.nodes.get(node.0).is_some_and(|node| alike(&node.name) || plain(&node.name) == plain(owner))
    };
    let of_python = || ChainError::Python {
        side: if side == Side::Start { "start" } else { "end" },
        asked: asked.to_owned(),
    };
    if side == Side::End && model.python.nodes.iter().any(python) {
        return Err(of_python());
    }
    let named = || by(model, exact, side).or_else(|| by(model, alike, side));
    let found = is_name
        .then(named)
        .flatten()
        .or_else(|| by_parts(model, asked, side))
        // The end of a name that is unique is as good as the name.
        .or_else(|| by_ending(model, asked));
    // Publications of a Python node are visible, its callbacks are not: a chain can begin there but
    // cannot end there.
    let of_nodes_of_python =
        |callback: &usize| model.callbacks[*callback].node.is_some_and(|id| model.python.nodes.contains(&id));
    if side == Side::End && found.as_ref().is_some_and(|found| found.iter().all(of_nodes_of_python)) {
        return Err(of_python());
    }
    found.ok_or_else(|| match model.python.nodes.iter().any(python) {
        true => of_python(),
        false => ChainError::Unknown {
            side: if side == Side::Start { "start" } else { "end" },
            asked: asked.to_owned(),
            near_misses: near_misses(model, asked),
        },
    })
}

fn by(model: &Model, fits: impl Fn(&str) -> bool, side: Side) -> Option<Vec<usize>> {
    let callbacks = |wanted: &dyn Fn(usize) -> bool| {
        let list: Vec<usize> = (0..model.callbacks.len()).filter(|i| wanted(*i)).collect();
        (!list.is_empty()).then_some(list)
    };
    callbacks(&|i| fits(&model.callbacks[i].name))
        .or_else(|| callbacks(&|i| model.callbacks[i].symbol.as_deref().is_some_and(&fits)))
        .or_else(|| {
            let own = |i: usize| !is_brought_along(model, &model.callbacks[i]);
            callbacks(&|i| node_of(model, i).is_some_and(&fits) && own(i))
        })
        .or_else(|| callbacks(&|i| node_of(model, i).is_some_and(&fits)))
        .or_else(|| {
            let list = on_topics(model, &fits, side);
            callbacks(&|i| list.contains(&i))
        })
}

fn node_of(model: &Model, callback: usize) -> Option<&str> {
    let node = model.callbacks[callback].node?;
    model.nodes.get(node.0).map(|n| n.name.as_str())
}

/// Callbacks that take (at a start) or give (at an end) messages of a topic of this name.
fn on_topics(model: &Model, fits: &impl Fn(&str) -> bool, side: Side) -> BTreeSet<usize> {
    let named = model.topics.iter().filter(|topic| fits(&topic.name));
    let lists = named.map(|topic| if side == Side::Start { &topic.subscribers } else { &topic.publishers });
    lists.flatten().map(|callback| callback.0).collect()
}

fn by_parts(model: &Model, asked: &str, side: Side) -> Option<Vec<usize>> {
    let (node, what) = asked.split_once(':')?;
    let (node, what) = (plain(node), plain(what));
    if what.is_empty() {
        return None;
    }
    let ending = format!("/{node}");
    let is_meant = |name: &str| is_plainly(name, &node) || plain(name).ends_with(&ending);
    let meant: Vec<bool> = model.nodes.iter().map(|node| is_meant(&node.name)).collect();
    let of_node: Vec<usize> = (0..model.callbacks.len())
        .filter(|i| model.callbacks[*i].node.is_some_and(|n| meant.get(n.0).is_some_and(|meant| *meant)))
        .collect();
    let some = |list: Vec<usize>| (!list.is_empty()).then_some(list);
    let same = |name: &str| is_plainly(name, &what);
    let on_topics = |side| {
        let list = on_topics(model, &same, side);
        some(of_node.iter().copied().filter(|i| list.contains(i)).collect())
    };
    let takes = |callback: usize| activating(model, &model.callbacks[callback]);
    some(of_node.iter().copied().filter(|i| takes(*i).is_some_and(same)).collect())
        .or_else(|| on_topics(side))
        .or_else(|| on_topics(Side::End))
        .or_else(|| {
            let has = |text: &str| text.to_lowercase().contains(&what);
            some(
                of_node
                    .iter()
                    .copied()
                    .filter(|i| {
                        let callback = &model.callbacks[*i];
                        // The node's own name is in every callback's name.
                        has(&plain(&callback.name).replacen(&node, "", 1))
                            || callback.symbol.as_deref().is_some_and(has)
                    })
                    .collect(),
            )
        })
}

fn by_ending(model: &Model, asked: &str) -> Option<Vec<usize>> {
    let ending = plain(asked);
    if ending.len() < 3 {
        return None;
    }
    let list: Vec<usize> = (0..model.callbacks.len())
        .filter(|i| {
            let callback = &model.callbacks[*i];
            plain(&callback.name).ends_with(&ending)
                || callback.symbol.as_deref().is_some_and(|s| plain(s).ends_with(&ending))
        })
        .collect();
    (list.len() == 1).then_some(list)
}

fn near_misses(model: &Model, asked: &str) -> Vec<String> {
    let names = model
        .callbacks
        .iter()
        .flat_map(|c| std::iter::once(c.name.as_str()).chain(c.symbol.as_deref()))
        .chain(model.nodes.iter().map(|n| n.name.as_str()))
        .chain(model.topics.iter().filter(|t| !t.hidden).map(|t| t.name.as_str()));
    words::near(asked, names)
}

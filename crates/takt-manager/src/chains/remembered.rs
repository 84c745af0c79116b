//! Ways of chains, looked up once for each graph: names and edges stay the same from one plan to
//! the next, and comparing them is a hundred times cheaper than looking for names.

use takt_model::{CallbackId, Model, Node, NodeId, Subscribed, TopicId};

use super::{ChainError, PathSearch};
use crate::infrastructure::takes;

/// The ways of one chain.
type Found = Result<Vec<Vec<usize>>, ChainError>;

/// Last result, and its graph.
#[derive(Debug, Default)]
pub struct Remembered {
    graph: Graph,
    ways: Option<Vec<Found>>,
}

impl Remembered {
    /// The ways of these chains in this model, each by its start and end. Chains must be the same
    /// at each call.
    pub fn of<'a>(&mut self, model: &Model, chains: impl Iterator<Item = (&'a str, &'a str)>) -> &[Found] {
        if !self.graph.is_of(model) {
            (self.graph, self.ways) = (Graph::of(model), None);
        }
        self.ways.get_or_insert_with(|| {
            let ways = PathSearch::new(model);
            chains.map(|(start, end)| ways.paths(start, end)).collect()
        })
    }
}

/// A callback's name, symbol, node and topic.
type Named = (String, Option<String>, Option<NodeId>, Option<TopicId>);
/// A topic's name, whether it is hidden, its publishers and subscribers.
type Edges = (String, bool, Vec<CallbackId>, Vec<CallbackId>);

/// All of a model that ends and ways depend on.
#[derive(Debug, Default)]
struct Graph {
    callbacks: Vec<Named>,
    topics: Vec<Edges>,
    nodes: Vec<Node>,
    python: (Vec<NodeId>, Vec<Subscribed>),
}

impl Graph {
    fn of(model: &Model) -> Self {
        let callbacks = model.callbacks.iter();
        let topics = model.topics.iter();
        Self {
            callbacks: callbacks.map(|c| (c.name.clone(), c.symbol.clone(), c.node, takes(c.kind))).collect(),
            topics: topics
                .map(|t| (t.name.clone(), t.hidden, t.publishers.clone(), t.subscribers.clone()))
                .collect(),
            nodes: model.nodes.clone(),
            python: (model.python.nodes.clone(), model.python.subscribed.clone()),
        }
    }

    fn is_of(&self, model: &Model) -> bool {
        let callbacks = model.callbacks.iter().zip(&self.callbacks);
        let topics = model.topics.iter().zip(&self.topics);
        self.callbacks.len() == model.callbacks.len()
            && self.topics.len() == model.topics.len()
            && self.nodes == model.nodes
            && self.python.0 == model.python.nodes
            && self.python.1 == model.python.subscribed
            && callbacks.into_iter().all(|(c, (name, symbol, node, topic))| {
                (&c.name, &c.symbol, &c.node, &takes(c.kind)) == (name, symbol, node, topic)
            })
            && topics.into_iter().all(|(t, (name, hidden, publishers, subscribers))| {
                (&t.name, &t.hidden, &t.publishers, &t.subscribers) == (name, hidden, publishers, subscribers)
            })
    }
}

#[cfg(test)]
mod tests {
    use takt_model::CallbackKind;

    use super::*;

    /// A model whose every name and edge differs from the one before is looked at anew: as if
    /// nothing were remembered.
    #[test]
    fn what_is_remembered_is_what_would_be_found() {
        let callback = |name: &str, node: usize, topic: Option<usize>| {
            let kind = match topic {
                Some(topic) => CallbackKind::Subscription { topic: TopicId(topic) },
                None => CallbackKind::Timer { period_ns: 1 },
            };
            takt_model::Callback {
                symbol: Some(format!("{name}_symbol")),
                node: Some(NodeId(node)),
                ..takt_model::Callback::unseen(name, takt_model::ExecutorId(0), kind)
            }
        };
        let topic = |name: &str, from: &[usize], to: &[usize]| takt_model::Topic {
            name: name.to_owned(),
            hidden: false,
            publishers: from.iter().map(|c| CallbackId(*c)).collect(),
            subscribers: to.iter().map(|c| CallbackId(*c)).collect(),
            transport: None,
            outside: takt_model::Outside::None,
        };
        let node = |name: &str| Node { pid: 1, name: name.to_owned() };
        let first = Model {
            callbacks: vec![
                callback("/a timer", 0, None),
                callback("/b sub", 1, Some(0)),
                callback("/c sub", 2, Some(0)),
            ],
            topics: vec![topic("/t", &[0], &[1])],
            nodes: vec![node("/a"), node("/b"), node("/c")],
            ..Model::default()
        };
        let change = |change: &dyn Fn(&mut Model)| {
            let mut model = first.clone();
            change(&mut model);
            model
        };
        let models = [
            first.clone(),
            change(&|m| m.callbacks[1].name = "/d sub".to_owned()),
            change(&|m| m.callbacks[2].symbol = Some("/b".to_owned())),
            change(&|m| m.callbacks[1].node = Some(NodeId(2))),
            change(&|m| m.topics[0].subscribers.push(CallbackId(2))),
            change(&|m| m.topics[0].publishers.clear()),
            change(&|m| m.nodes.swap(1, 2)),
            change(&|m| m.topics[0].name = "/b".to_owned()),
            change(&|m| m.python.nodes.push(NodeId(1))),
            change(&|m| {
                m.callbacks.pop();
            }),
            first.clone(),
        ];
        let chains = [("/a", "/b"), ("/a", "/c"), ("/b", "/t"), ("/t", "/c")];
        let mut remembered = Remembered::default();
        for model in models.iter().flat_map(|model| [&first, model, model]) {
            let found: Vec<_> =
                chains.iter().map(|(start, end)| super::super::paths(model, start, end)).collect();
            assert_eq!(remembered.of(model, chains.into_iter()), found);
        }
    }
}

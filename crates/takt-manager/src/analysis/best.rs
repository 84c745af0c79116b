//! Best cases of chains: what no latency is below, and so how far latencies can be apart.
//!
//! A chain's **jitter** is its longest less its shortest latency, and at most its bound less its
//! best case. (As for fixed priorities: Bril and others, "Best-case response times and jitter
//! analysis of real-time tasks", Journal of Scheduling 2004. Under reservations, and without
//! knowing when budgets are full, nothing better than this is sound.) In the best case nothing
//! waits: not for the executor, not for the budget, not for the middleware. Then each callback but
//! the last takes from its start to its first message to the next one, or to its end where one
//! thread runs both, and the last one to its end. Those times are the shortest that were measured
//! ([`takt_model::Shortest`]), so this rests on observation as execution-time curves do, and is
//! refuted as they are: by the first latency below it.

use takt_model::{CallbackId, CallbackKind, ExecutorKind, Model, TopicId};

/// The least latency of a path of callbacks, from the release of the first to the end of the last.
/// A callback that was never seen counts as zero.
#[must_use]
pub fn best_case(model: &Model, path: &[usize]) -> u64 {
    let _spent = crate::spent::on(crate::spent::Part::Timing);
    let steps = path.windows(2).map(|pair| before_next(model, pair[0], pair[1]));
    let last = path.last().map_or(0, |last| shortest(model, *last, None));
    steps.fold(last, u64::saturating_add)
}

fn shortest(model: &Model, callback: usize, towards: Option<TopicId>) -> u64 {
    let of = CallbackId(callback);
    let found = model.shortest.iter().find(|one| one.callback == of && one.towards == towards);
    // A source's activation begins when it publishes.
    let source = model.callbacks.get(callback).is_none_or(|one| one.kind == CallbackKind::Source);
    found.filter(|_| !source).map_or(0, |one| one.ns)
}

/// From the start of one callback to the earliest start of the next.
fn before_next(model: &Model, from: usize, to: usize) -> u64 {
    let (Some(one), Some(other)) = (model.callbacks.get(from), model.callbacks.get(to)) else { return 0 };
    let leads = |topic: &takt_model::Topic| {
        topic.publishers.contains(&CallbackId(from)) && topic.subscribers.contains(&CallbackId(to))
    };
    let topics = model.topics.iter().enumerate().filter(|(_, topic)| leads(topic));
    let sent = topics.map(|(id, _)| shortest(model, from, Some(TopicId(id)))).min().unwrap_or(0);
    let alone = model
        .executors
        .get(one.executor.0)
        .is_some_and(|executor| executor.threads.len() == 1 && executor.kind != ExecutorKind::MultiThreaded);
    // One thread runs one callback after the other. But what runs inside another callback is part
    // of it.
    let same = one.executor == other.executor && alone && from != to;
    if same { sent.max(shortest(model, from, None)) } else { sent }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::{System, Trigger};
    use takt_model::Shortest;

    /// A timer in one executor, two subscriptions in another.
    fn model() -> Model {
        let mut system = System::default();
        let (one, two) = (system.executor("one", false), system.executor("two", false));
        let (a, b) = (system.topic("a"), system.topic("b"));
        let timer = Trigger::Periodic { period_ns: 100, jitter_ns: 0 };
        system.callback(one, "/one timer", timer, vec![8], vec![a]);
        system.callback(two, "/two subscription a", Trigger::Topic(a), vec![20], vec![b]);
        system.callback(two, "/two subscription b", Trigger::Topic(b), vec![40], vec![]);
        let mut model = system.exact_model();
        model.shortest.clear();
        for (callback, towards, ns) in
            [(0, Some(0), 3), (0, None, 8), (1, Some(1), 5), (1, None, 20), (2, None, 40)]
        {
            let towards = towards.map(TopicId);
            model.shortest.push(Shortest { callback: CallbackId(callback), towards, ns });
        }
        model
    }

    #[test]
    fn what_is_sent_early_may_be_taken_early() {
        let model = model();
        assert_eq!(best_case(&model, &[2]), 40);
        // In another executor the next one starts with the message; in the same after the end.
        assert_eq!(best_case(&model, &[0, 1]), 3 + 20);
        assert_eq!(best_case(&model, &[0, 1, 2]), 3 + 20 + 40);
    }

    #[test]
    fn what_was_not_seen_takes_no_time() {
        let mut unseen = model();
        unseen.shortest.retain(|one| one.callback != CallbackId(1));
        assert_eq!(best_case(&unseen, &[0, 1, 2]), 3 + 40);
        let mut threads = model();
        threads.executors[1].kind = ExecutorKind::MultiThreaded;
        assert_eq!(best_case(&threads, &[1, 2]), 5 + 40);
        assert_eq!((best_case(&threads, &[]), best_case(&threads, &[99, 98])), (0, 0));
    }
}

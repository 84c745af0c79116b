//! Assumptions of a plan, attached to what the extractor records.

use rustc_hash::{FxHashMap, FxHashSet};

use super::Extractor;
use super::names::{label, names};
use super::state::{Key, Origin};
use crate::guard::{
    Account, Allowance, Assumed, Beyond, Breach, Broken, CostLimit, CountLimit, Noticed, SpanLimit, Taken,
};

/// Callbacks reported at once that run where no plan knew them.
const MAX_UNPLANNED: usize = 64;
/// Messages of a topic whose publication was not seen, of which as many are no news: their events
/// may have been lost.
const UNSEEN: u64 = 3;

/// What is watched.
#[derive(Debug, Default)]
pub(super) struct Guarded {
    /// Callbacks by their slots, with their names.
    callbacks: FxHashMap<usize, String>,
    /// What callbacks take beyond their curves, and whose account is which.
    accounts: Vec<Account>,
    account_of: FxHashMap<usize, usize>,
    /// Topics whose arrivals are limited, each with the callbacks that it is reported by and its
    /// limit.
    topics: Vec<(usize, Vec<String>, Vec<u64>)>,
    /// Threads on which no other callbacks may run, and executors, each with one of its threads.
    threads: FxHashSet<usize>,
    executors: FxHashMap<Key, usize>,
    /// Topics to which nobody may send who is not known to, each with the callbacks that it is
    /// reported by.
    senders: FxHashMap<usize, Vec<String>>,
    /// Messages of those whose publication was not seen.
    unseen: FxHashMap<usize, u64>,
    strangers: Vec<usize>,
    /// Callbacks, and the threads that they ran on.
    unplanned: Vec<(usize, usize)>,
    /// Something is to be reported.
    noticed: Noticed,
}

impl Guarded {
    /// A callback starts on a thread that runs for `executor`, where that is reported.
    #[inline]
    pub(super) fn runs(&mut self, thread: usize, executor: Option<Key>, callback: usize) {
        if self.threads.is_empty() {
            return;
        }
        let thread = match self.threads.contains(&thread) {
            true => thread,
            // A thread that has run nothing for it before.
            false => match executor.and_then(|executor| self.executors.get(&executor)) {
                Some(&thread) => thread,
                None => return,
            },
        };
        let reported = || self.unplanned.iter().any(|(known, _)| *known == callback);
        if !self.callbacks.contains_key(&callback) && !reported() && self.unplanned.len() < MAX_UNPLANNED {
            self.unplanned.push((callback, thread));
            self.noticed.set();
        }
    }

    /// A message is sent to a topic; `planned`: by a callback that is known to.
    #[inline]
    pub(super) fn sends(&mut self, topic: usize, planned: bool) {
        if !planned && !self.senders.is_empty() && self.senders.contains_key(&topic) {
            self.strangers.push(topic);
            // Reported once.
            self.strangers.dedup();
            self.strangers.truncate(MAX_UNPLANNED);
            self.noticed.set();
        }
    }

    /// Something has ended.
    pub(super) fn ends(&self) {
        self.noticed.set();
    }

    /// A message of a topic is taken, and nobody was seen to send it.
    pub(super) fn takes_unseen(&mut self, topic: usize) {
        if self.senders.contains_key(&topic) {
            let unseen = self.unseen.entry(topic).or_default();
            *unseen += 1;
            let planned = *unseen < UNSEEN;
            self.sends(topic, planned);
        }
    }
}

impl Extractor {
    /// Holds what happens from now on against these assumptions, and no longer against earlier
    /// ones.
    #[cfg(test)]
    pub(crate) fn assume(&mut self, assumed: &[Assumed]) {
        self.assume_with(assumed, &[]);
    }

    /// Holds what happens from now on against these assumptions, and no longer against earlier
    /// ones, with accounts of what callbacks take beyond ([`Assumed::account`]). Windows do not
    /// begin anew with a plan: a burst that began under the plan before is one.
    pub fn assume_with(&mut self, assumed: &[Assumed], allowances: &[Allowance]) {
        let released = std::mem::take(&mut self.guarded);
        let before: Vec<Taken> = released.accounts.iter().flat_map(Account::kept).collect();
        self.guarded.accounts = allowances.iter().copied().map(Account::new).collect();
        let by_name: FxHashMap<&str, &Assumed> =
            assumed.iter().map(|one| (one.callback.as_str(), one)).collect();
        for (slot, name) in names(self) {
            let Some(one) = by_name.get(name.as_str()) else { continue };
            let Some(callback) = self.tables.callbacks.get_mut(slot) else { continue };
            let account = one.account.filter(|account| *account < allowances.len());
            if let Some(account) = account {
                self.guarded.account_of.insert(slot, account);
                for taken in before.iter().filter(|taken| taken.callback == slot) {
                    let of = if taken.suspended { &one.suspension_ns } else { &one.cost_ns };
                    if let Some(taken) = taken.against(of.as_deref().unwrap_or_default()) {
                        self.guarded.accounts[account].keep(taken);
                    }
                }
            }
            let noticed = &self.guarded.noticed;
            let limit = |most_ns: Vec<u64>| match account {
                Some(_) => CostLimit::new(most_ns).with_account().noticed_by(noticed),
                None => CostLimit::new(most_ns).noticed_by(noticed),
            };
            let spans = |least_ns: Vec<u64>| SpanLimit::new(least_ns).noticed_by(noticed);
            callback.cost.limit(one.cost_ns.clone().map(limit));
            callback.delivered.limit(one.delivery_ns, one.own_delivery_ns, noticed);
            callback.arrivals.limit(one.spans_ns.clone().map(spans));
            let suspension = |lengths| [lengths, one.suspensions.clone(), one.yields.clone()];
            callback.suspensions.limit(one.suspension_ns.clone().map(suspension), account.is_some(), noticed);
            let mut known: Vec<Option<Box<CountLimit>>> =
                callback.publishes.iter_mut().map(|edge| edge.limit.take()).collect();
            for (name, most) in &one.outputs {
                let Some(topic) = self.tables.topic_of.get(name.as_str()).copied() else { continue };
                let topic = self.tables.topic(topic);
                let callback = &mut self.tables.callbacks[slot];
                for (edge, before) in callback.publishes.iter_mut().zip(&mut known) {
                    if edge.topic == topic {
                        let limit = CountLimit::new(most.clone());
                        let limit = match before.take() {
                            Some(before) => limit.after(&before),
                            None => limit,
                        };
                        edge.limit = Some(Box::new(limit.noticed_by(&self.guarded.noticed)));
                    }
                }
            }
            for name_of in &one.senders {
                if let Some(topic) = self.tables.topic_of.get(name_of.as_str()).copied() {
                    self.guarded.senders.entry(self.tables.topic(topic)).or_default().push(name.clone());
                }
            }
            let callback = &self.tables.callbacks[slot];
            // Where all messages are seen being published, they are its arrivals.
            if let (Origin::Subscription { subscription }, Some(spans_ns)) = (&callback.origin, &one.spans_ns)
                && let Some(subscription) = self.tables.subscriptions.get(*subscription)
            {
                let topic = self.tables.topic(subscription.topic);
                match self.guarded.topics.iter_mut().find(|(known, ..)| *known == topic) {
                    Some((_, reported, limit)) => {
                        reported.push(name.clone());
                        tighten(limit, spans_ns);
                    }
                    None => self.guarded.topics.push((topic, vec![name.clone()], spans_ns.clone())),
                }
            }
            if one.closed {
                // Of an executor of several threads all that have served it.
                for &(thread, _) in &callback.threads {
                    self.guarded.threads.insert(thread);
                    let state = self.tables.threads.get(thread);
                    if let Some((executor, _)) = state.and_then(|state| state.spins.as_ref()) {
                        self.guarded.executors.entry((callback.pid, *executor)).or_insert(thread);
                    }
                }
            }
            self.guarded.callbacks.insert(slot, name);
        }
        for (topic, _, limit) in &self.guarded.topics {
            let limit = SpanLimit::new(limit.clone()).noticed_by(&self.guarded.noticed);
            self.tables.topics[*topic].arrivals.limit(Some(limit));
        }
        self.release(&released);
        // What ended before is reported at the first look.
        self.guarded.noticed.set();
    }

    /// What was held against assumptions that are no longer any.
    fn release(&mut self, released: &Guarded) {
        for slot in released.callbacks.keys().filter(|slot| !self.guarded.callbacks.contains_key(slot)) {
            if let Some(callback) = self.tables.callbacks.get_mut(*slot) {
                callback.cost.limit(None);
                callback.arrivals.limit(None);
                callback.delivered.limit(None, None, &Noticed::default());
                callback.suspensions.limit(None, false, &Noticed::default());
                callback.publishes.iter_mut().for_each(|edge| edge.limit = None);
            }
        }
        for (topic, ..) in &released.topics {
            if !self.guarded.topics.iter().any(|(kept, ..)| kept == topic) {
                self.tables.topics[*topic].arrivals.limit(None);
            }
        }
    }

    /// Processes that are starting by now, or have not shown their steady state since.
    #[must_use]
    pub fn starting(&self) -> Vec<u32> {
        self.startups.not_shown(self.now_ns)
    }

    /// Assumptions that were seen broken since the last call.
    pub fn broken(&mut self) -> Vec<Broken> {
        let mut found = Vec::new();
        if !self.guarded.noticed.take() {
            return found;
        }
        let now_ns = self.now_ns;
        let tables = &mut self.tables;
        let mut ended = Vec::new();
        let mut beyond: Vec<Taken> = Vec::new();
        for (slot, name) in &self.guarded.callbacks {
            let mut found_breach =
                |what: Breach, at_ns: u64| found.push(Broken { callback: name.clone(), what, at_ns });
            let alive = tables.callbacks.get_mut(*slot).filter(|callback| callback.dead.is_none());
            let Some(callback) = alive else {
                ended.push(*slot);
                found_breach(Breach::Ended, now_ns);
                continue;
            };
            if self.guarded.account_of.contains_key(slot) {
                let taken = |suspended| move |beyond: Beyond| Taken { callback: *slot, suspended, beyond };
                beyond.extend(callback.cost.beyond().into_iter().map(taken(false)));
                beyond.extend(callback.suspensions.beyond().into_iter().map(taken(true)));
            }
            if let Some(excess) = callback.cost.excess() {
                found_breach(Breach::Cost(excess), excess.at_ns);
            }
            if let Some(excess) = callback.arrivals.excess() {
                found_breach(Breach::Arrivals(excess), excess.at_ns);
            }
            if let Some(excess) = callback.delivered.excess() {
                found_breach(Breach::Delivery(excess), excess.at_ns);
            }
            for breach in callback.suspensions.breaches() {
                found_breach(breach, breach.excess().map_or(now_ns, |excess| excess.at_ns));
            }
            for limit in callback.publishes.iter_mut().filter_map(|edge| edge.limit.as_mut()) {
                if let Some(excess) = limit.take() {
                    found_breach(Breach::Output(excess), excess.at_ns);
                }
            }
            // Recordings keep what has ended in the model.
            let thread = callback.last_thread.and_then(|thread| tables.threads.get(thread));
            if thread.is_some_and(|thread| thread.ended) {
                ended.push(*slot);
                found_breach(Breach::Ended, now_ns);
            }
        }
        beyond.sort_by_key(|taken| (taken.beyond.excess.at_ns, taken.callback));
        let mut reported = FxHashSet::default();
        for taken in beyond {
            let Some(&number) = self.guarded.account_of.get(&taken.callback) else { continue };
            let Some(account) = self.guarded.accounts.get_mut(number) else { continue };
            // The first is reported, as with curves.
            if reported.contains(&number) {
                account.keep(taken);
                continue;
            }
            let Some((sum_ns, allowance)) = account.take(taken) else { continue };
            reported.insert(number);
            let Taken { callback, suspended, beyond: Beyond { excess, .. } } = taken;
            let callback = self.guarded.callbacks.get(&callback).cloned().unwrap_or_default();
            let what = Breach::Beyond { excess, suspended, sum_ns, allowance };
            found.push(Broken { callback, what, at_ns: excess.at_ns });
        }
        for (topic, reported, _) in &self.guarded.topics {
            if let Some(excess) = tables.topics[*topic].arrivals.excess() {
                for callback in reported {
                    let what = Breach::Arrivals(excess);
                    found.push(Broken { callback: callback.clone(), what, at_ns: excess.at_ns });
                }
            }
        }
        for slot in ended {
            self.guarded.callbacks.remove(&slot);
        }
        for topic in std::mem::take(&mut self.guarded.strangers) {
            for callback in self.guarded.senders.remove(&topic).unwrap_or_default() {
                found.push(Broken { callback, what: Breach::Sender, at_ns: now_ns });
            }
        }
        // They stay known, so that each is reported once.
        for (slot, thread) in std::mem::take(&mut self.guarded.unplanned) {
            let Some(callback) = self.tables.callbacks.get(slot) else { continue };
            let name = label(self, callback);
            let tid = self.tables.threads.get(thread).map_or(0, |thread| thread.tid);
            found.push(Broken { callback: name.clone(), what: Breach::Unplanned { tid }, at_ns: now_ns });
            self.guarded.callbacks.insert(slot, name);
        }
        found.sort_by(|a, b| (a.at_ns, &a.callback).cmp(&(b.at_ns, &b.callback)));
        found
    }
}

/// The tighter of two limits: spans that must not be shorter.
fn tighten(limit: &mut Vec<u64>, spans_ns: &[u64]) {
    for (index, &span_ns) in spans_ns.iter().enumerate() {
        match limit.get_mut(index) {
            Some(least_ns) => *least_ns = span_ns.max(*least_ns),
            None => limit.push(span_ns),
        }
    }
    // A window is no shorter than a part of it.
    for index in 1..limit.len() {
        limit[index] = limit[index].max(limit[index - 1]);
    }
}

//! Threads of executors: `rclcpp`'s executors as of Jazzy.

use std::collections::VecDeque;

use super::engine::{Engine, Traceable};
use super::kernel::{Doing, Thread};
use super::{SimExecutorKind, Supply, System, Trigger};

/// An executor's state.
#[derive(Debug)]
pub(super) struct Executor {
    threads: Vec<usize>,
    /// The wait set: callbacks found ready at the last polling point and not yet served.
    ready: VecDeque<usize>,
    /// Activations in their order, for events executors.
    pub arrived: VecDeque<usize>,
    /// The thread that holds the lock of a multi-threaded executor.
    lock: Option<usize>,
    waiting: VecDeque<usize>,
    /// Groups of which a callback runs.
    busy: Vec<bool>,
}

pub(super) fn start(system: &System, supplies: &[Supply]) -> (Vec<Thread>, Vec<Executor>) {
    let mut threads = Vec::new();
    let mut executors = Vec::new();
    let mut supplies = supplies.iter();
    for (number, executor) in system.executors.iter().enumerate() {
        let first = threads.len();
        let of = system.threads_of(number);
        threads.extend(supplies.by_ref().take(of).map(|supply| Thread::new(*supply, Some(number))));
        if matches!(executor.kind, SimExecutorKind::Threads(_)) {
            threads[first..].iter_mut().for_each(|t| t.doing = Doing::Fetch);
        }
        executors.push(Executor {
            threads: (first..threads.len()).collect(),
            ready: VecDeque::new(),
            arrived: VecDeque::new(),
            lock: None,
            waiting: VecDeque::new(),
            busy: vec![false; executor.reentrant.len()],
        });
    }
    (threads, executors)
}

impl Engine<'_> {
    /// Something arrived for an executor, or a group of it became free: whoever waits in its wait
    /// set wakes up.
    pub fn notify(&mut self, executor: usize) {
        for position in 0..self.executors[executor].threads.len() {
            let thread = self.executors[executor].threads[position];
            if matches!(self.threads[thread].doing, Doing::Idle) {
                self.threads[thread].doing = if self.executors[executor].lock == Some(thread) {
                    Doing::Dispatch { left_ns: self.dispatch_ns() }
                } else {
                    Doing::Fetch
                };
                self.wake(thread);
            }
        }
    }

    fn dispatch_ns(&mut self) -> u64 {
        let most = self.machine.dispatch_ns.max(1);
        self.random.within(most / 2, most).max(1)
    }

    /// A thread that has the CPU looks for something to do.
    pub fn fetch(&mut self, thread: usize) {
        let Some(executor) = self.threads[thread].executor else { return };
        let next = match self.system.executors[executor].kind {
            SimExecutorKind::Threads(_) => return self.lock(thread, executor),
            SimExecutorKind::Events => self.first_arrived(executor),
            SimExecutorKind::WaitSet | SimExecutorKind::Static { .. } => self.next_polled(executor),
        };
        match next {
            Some(callback) => self.run_callback(thread, callback),
            None => {
                self.threads[thread].doing = Doing::Idle;
                self.record(thread, Traceable::Wait);
            }
        }
    }

    fn run_callback(&mut self, thread: usize, callback: usize) {
        let Some(instance) = self.pending[callback].pop_front() else { return };
        self.record(thread, Traceable::Start(callback, instance.message));
        let mut job = Box::new(self.job(instance));
        let core = self.threads[thread].supply.core;
        self.disturber.begin(self.now_ns, core, thread, &mut job, &mut self.random);
        self.begin(thread, &mut job);
        self.threads[thread].doing = Doing::Work(job);
    }

    fn first_arrived(&mut self, executor: usize) -> Option<usize> {
        // Of messages that were overwritten only the event is left.
        std::iter::from_fn(|| self.executors[executor].arrived.pop_front())
            .find(|callback| !self.pending[*callback].is_empty())
    }

    fn is_timer(&self, callback: usize) -> bool {
        matches!(self.system.callbacks[callback].trigger, Trigger::Periodic { .. })
    }

    /// Ready callbacks, in the order in which this executor takes them.
    fn poll(&self, executor: usize) -> VecDeque<usize> {
        let timers_last = matches!(self.system.executors[executor].kind, SimExecutorKind::Static { .. });
        let mut ready: Vec<usize> = (self.system.executors[executor].callbacks.iter().copied())
            .filter(|c| !self.pending[*c].is_empty())
            .collect();
        ready.sort_by_key(|c| self.is_timer(*c) == timers_last);
        ready.into()
    }

    fn next_polled(&mut self, executor: usize) -> Option<usize> {
        let callbacks = &self.system.executors[executor].callbacks;
        let eager = self
            .system
            .eager_timers
            .then(|| callbacks.iter().copied().find(|c| self.is_timer(*c) && !self.pending[*c].is_empty()))
            .flatten();
        let waits_each_time =
            self.system.executors[executor].kind == SimExecutorKind::Static { rounds: false };
        if eager.is_none() && (waits_each_time || self.executors[executor].ready.is_empty()) {
            self.executors[executor].ready = self.poll(executor);
        }
        self.executors[executor].arrived.clear();
        let ready = &mut self.executors[executor].ready;
        let callback = eager.or_else(|| ready.pop_front());
        ready.retain(|c| Some(*c) != eager);
        // Overwritten messages leave nothing to run; then there is another round.
        match callback {
            Some(callback) if self.pending[callback].is_empty() => self.next_polled(executor),
            other => other,
        }
    }

    /// A thread of several asks for the executor's lock.
    fn lock(&mut self, thread: usize, executor: usize) {
        if self.executors[executor].lock.is_some() {
            self.executors[executor].waiting.push_back(thread);
            self.threads[thread].doing = Doing::Blocked;
        } else {
            self.executors[executor].lock = Some(thread);
            self.threads[thread].doing = Doing::Dispatch { left_ns: self.dispatch_ns() };
        }
    }

    fn unlock(&mut self, executor: usize) {
        self.executors[executor].lock = None;
        let waiting = self.executors[executor].waiting.len() as u64;
        if waiting == 0 {
            return;
        }
        // A futex has no order that one could rely on.
        let next = usize::try_from(self.random.within(0, waiting - 1)).unwrap_or(0);
        if let Some(thread) = self.executors[executor].waiting.remove(next) {
            self.executors[executor].lock = Some(thread);
            self.threads[thread].doing = Doing::Dispatch { left_ns: self.dispatch_ns() };
            self.wake(thread);
        }
    }

    /// Of the wait set the first whose group is free; what is not free is passed over, and left out
    /// until the next polling point unless it is a timer.
    fn take(&mut self, executor: usize) -> Option<usize> {
        let ready = std::mem::take(&mut self.executors[executor].ready);
        let mut kept = VecDeque::new();
        let mut found = None;
        for callback in ready {
            let group = self.system.callbacks[callback].group;
            let busy = group.is_some_and(|g| self.executors[executor].busy[g]);
            if found.is_none() && !busy && !self.pending[callback].is_empty() {
                found = Some(callback);
                if let Some(group) = group {
                    self.executors[executor].busy[group] = !self.system.executors[executor].reentrant[group];
                }
            } else if found.is_some() || self.is_timer(callback) {
                kept.push_back(callback);
            }
        }
        self.executors[executor].ready = kept;
        found
    }

    /// A thread that has the lock has looked for work.
    pub fn dispatch(&mut self, thread: usize) {
        let Some(executor) = self.threads[thread].executor else { return };
        self.executors[executor].arrived.clear();
        let mut callback = self.take(executor);
        if callback.is_none() {
            self.executors[executor].ready = self.poll(executor);
            if self.executors[executor].ready.is_empty() {
                // It sleeps in its wait set, with the lock.
                self.threads[thread].doing = Doing::Idle;
                return;
            }
            callback = self.take(executor);
        }
        match callback {
            Some(callback) => self.run_callback(thread, callback),
            None => self.threads[thread].doing = Doing::Fetch,
        }
        self.unlock(executor);
    }

    /// A callback may have come to its end, or to a place where it waits.
    pub(crate) fn worked(&mut self, thread: usize) {
        let Doing::Work(job) = &mut self.threads[thread].doing else { return };
        if job.segment_ns == 0 && !job.suspensions.is_empty() {
            let until_ns = self.now_ns + job.suspensions.remove(0);
            let parts = job.suspensions.len() as u64 + 1;
            job.segment_ns = if job.suspensions.is_empty() { 0 } else { job.left_ns / parts / 4 };
            if let Doing::Work(job) = std::mem::replace(&mut self.threads[thread].doing, Doing::Fetch) {
                self.threads[thread].doing = Doing::Suspended { until_ns, job };
            }
            return;
        }
        if job.left_ns > 0 {
            return;
        }
        let Doing::Work(job) = std::mem::replace(&mut self.threads[thread].doing, Doing::Fetch) else {
            return;
        };
        self.complete(thread, &job);
        let Some(executor) = self.threads[thread].executor else { return };
        if let (Some(group), SimExecutorKind::Threads(_)) =
            (self.system.callbacks[job.instance.callback].group, self.system.executors[executor].kind)
        {
            self.executors[executor].busy[group] = false;
            self.notify(executor);
        }
    }
}

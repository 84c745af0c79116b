//! Executors and threads: what they do between callbacks, Takt's own jobs, ends and losses.

use std::sync::Arc;

use takt_ros::event::{Event, Handle, Kind};

use super::Extractor;
use super::names;
use super::run::{add_edge, ran_on};
use super::state::{CallbackState, Edge, Origin, ThreadState};
use super::suspend::Ended;

/// How long nothing must be heard of a process whose main thread has ended.
const QUIET_NS: u64 = 1_000_000_000;
/// Models that are kept until they are asked for: processes of one system end together.
const MAX_FAREWELLS: usize = 8;

impl Extractor {
    /// The thread serves callbacks. What it published before was start-up.
    pub(super) fn is_executor(&mut self, thread: usize) {
        let state = &mut self.tables.threads[thread];
        if std::mem::replace(&mut state.executor, true) {
            return;
        }
        state.outside.clear();
        if let Some(source) = state.source.take() {
            self.tables.callbacks.try_remove(source.callback);
            self.guarded.ends();
            self.renamed = true;
        }
    }

    pub(super) fn executor_event(&mut self, thread: usize, at_ns: u64, cpu_ns: Option<u64>) {
        self.close_inferred(thread, at_ns, cpu_ns);
        let state = &mut self.tables.threads[thread];
        state.executed = None;
        self.is_executor(thread);
        let state = &mut self.tables.threads[thread];
        state.answering = None;
        if state.charged.is_none()
            && let Some(cpu_ns) = cpu_ns
        {
            state.charged = Some((cpu_ns, at_ns));
        }
    }

    /// What the executor ran has returned.
    pub(super) fn executor_executed(
        &mut self,
        thread: usize,
        at_ns: u64,
        cpu_ns: Option<u64>,
        complete: bool,
    ) {
        let inferred = self.tables.threads[thread].stack.last().is_some_and(|frame| frame.inferred);
        let state = &self.tables.threads[thread];
        // A subscription whose message another thread has taken, or a timer that another has
        // called: nothing ran.
        let (from, nothing) = (state.open, state.executed.is_some());
        self.executor_event(thread, at_ns, cpu_ns);
        let state = &mut self.tables.threads[thread];
        (state.reports_ends, state.open) = (true, None);
        if complete || inferred || nothing || !state.stack.is_empty() {
            return;
        }
        let outside = std::mem::take(&mut state.outside);
        let charged = state.charged;
        let took_ns = charged.zip(cpu_ns).map_or(0, |((from, _), to)| to.saturating_sub(from));
        let from = match from {
            Some((from_ns, from)) => (from_ns, from.or(charged.map(|(cpu_ns, _)| cpu_ns))),
            None => (at_ns.saturating_sub(took_ns), charged.map(|(cpu_ns, _)| cpu_ns)),
        };
        self.untraced(thread, at_ns, cpu_ns, from, outside);
    }

    pub(super) fn executor_wait(&mut self, thread: usize, at_ns: u64, cpu_ns: Option<u64>) {
        let horizon_ns = self.options.horizon_ns;
        self.executor_event(thread, at_ns, cpu_ns);
        let state = &mut self.tables.threads[thread];
        state.open = None;
        state.waits = true;
        state.waited_ns = Some(at_ns);
        if let Some(cpu_ns) = cpu_ns {
            state.looks(at_ns, cpu_ns, horizon_ns);
        }
        state.waiting_ns = Some(at_ns);
        // Not between two selections: the thread's own code published, around a call of spin_some.
        // What it announces while nodes come into being is no way of working.
        state.own_publications += u64::from(!state.outside.is_empty() && !self.starting);
        state.outside.clear();
    }

    pub(super) fn executor_next_ready(&mut self, thread: usize, at_ns: u64, cpu_ns: Option<u64>) {
        self.executor_event(thread, at_ns, cpu_ns);
        let state = &mut self.tables.threads[thread];
        state.waits = true;
        let opened = state.open.replace((at_ns, cpu_ns));
        let outside = std::mem::take(&mut state.outside);
        // Where ends are reported, this was a wake-up for nothing: what it took is paid by the
        // activation that follows.
        let nothing = !state.stack.is_empty() || state.reports_ends;
        let Some(from) = opened.filter(|_| !nothing) else {
            let own = !outside.is_empty() && !self.starting;
            self.tables.threads[thread].own_publications += u64::from(own);
            return;
        };
        self.untraced(thread, at_ns, cpu_ns, from, outside);
    }

    fn untraced(
        &mut self,
        thread: usize,
        at_ns: u64,
        cpu_ns: Option<u64>,
        (from_ns, from): (u64, Option<u64>),
        outside: Vec<usize>,
    ) {
        let state = &self.tables.threads[thread];
        // Selected, nothing that has events ran, and selected again: a client's callback, an
        // action, or a wake-up for nothing.
        let pid = state.pid;
        let index = match state.untraced {
            Some(index) => index,
            None => match self.new_callback(pid, Origin::Untraced { thread }) {
                Some(index) => {
                    self.tables.threads[thread].untraced = Some(index);
                    index
                }
                None => return,
            },
        };
        let (keep, fresh, horizon_ns) = (self.keep(), self.arrivals(), self.options.horizon_ns);
        let starting = self.starting;
        let unsettled = self.unsettled.runs(thread, from_ns, at_ns);
        let state = &mut self.tables.threads[thread];
        let callback = &mut self.tables.callbacks[index];
        let (known, reports) = (state.off_cpu.take(), state.reports);
        match (from, cpu_ns) {
            (Some(from), Some(to)) => {
                let charged =
                    state.charged.replace((to, at_ns)).map_or(from, |(charged, _)| charged.min(from));
                callback.costs(at_ns, to.saturating_sub(charged), true, unsettled);
                let off_ns = at_ns.saturating_sub(from_ns).saturating_sub(to.saturating_sub(from));
                let number = callback.activations + 1;
                callback.suspends(Ended { number, at_ns, off_ns, known, reports }, keep, starting, unsettled);
            }
            _ if state.charged.is_some() => {
                state.unpaid.push((index, at_ns.saturating_sub(from_ns), known));
            }
            // No CPU clock at all. Between two selections the executor does not wait.
            _ => {
                callback.cost.record(at_ns, at_ns.saturating_sub(from_ns), false);
                callback.suspensions.wall_time(at_ns);
            }
        }
        callback.activations += 1;
        ran_on(callback, thread);
        callback.arrivals.record(from_ns, starting);
        for topic in outside {
            let planned = add_edge(callback, topic, at_ns, fresh.clone(), (horizon_ns, starting));
            self.guarded.sends(topic, planned);
        }
    }

    pub(super) fn executor_execute(
        &mut self,
        thread: usize,
        at_ns: u64,
        cpu_ns: Option<u64>,
        handle: Handle,
    ) {
        self.executor_event(thread, at_ns, cpu_ns);
        let state = &mut self.tables.threads[thread];
        state.open = None;
        state.waits = true;
        state.executed = Some(handle);
    }

    pub(super) fn job(
        &mut self,
        thread: usize,
        at_ns: u64,
        task: &Arc<str>,
        (released_ns, started_ns, used_ns): (u64, u64, u64),
    ) {
        let (keep, starting) = (self.keep(), self.starting);
        let pid = self.tables.threads[thread].pid;
        let key = (pid, task.clone());
        let index = match self.tables.task_of.get(&key) {
            Some(&index) => index,
            None => {
                let Some(index) = self.new_callback(pid, Origin::Task { thread, name: task.clone() }) else {
                    return;
                };
                self.tables.task_of.insert(key, index);
                self.settle(index);
                index
            }
        };
        for tag in self.step(index, &[], released_ns, false) {
            if let Some(watch) = self.watches.get_mut(tag.watch as usize) {
                watch.finished(tag.position, tag.origin_ns, at_ns);
            }
        }
        let callback = &mut self.tables.callbacks[index];
        callback.activations += 1;
        ran_on(callback, thread);
        callback.arrivals.record(released_ns, starting);
        callback.cost.record(at_ns, used_ns, true);
        callback.shortest.ended(at_ns.saturating_sub(started_ns));
        let off_ns = at_ns.saturating_sub(started_ns).saturating_sub(used_ns);
        let number = callback.activations;
        callback.suspensions.record(
            Ended { number, at_ns, off_ns, known: None, reports: false },
            keep,
            starting,
        );
        if let Some(probable) = &mut callback.probable {
            probable.record(used_ns);
        }
    }

    /// A thread has ended. With the main thread the process has, unless others of its threads go
    /// on: their events may be younger than the main thread's end, and a source that cannot tell
    /// threads has that one end only.
    pub(super) fn thread_end(&mut self, thread: usize, at_ns: u64) {
        self.keep_farewell(thread, at_ns);
        let state = &mut self.tables.threads[thread];
        let (pid, main) = (state.pid, state.pid == state.tid);
        state.ended = true;
        self.guarded.ends();
        self.counters.dropped_activations += state.stack.len() as u64;
        state.forget_course();
        if self.options.keep_ended {
            return;
        }
        if main && !self.ending.iter().any(|&(known, _)| known == pid) {
            self.ending.push((pid, at_ns));
        }
        let others = self.tables.threads.iter().any(|(_, state)| state.pid == pid && !state.ended);
        if !others && let Some(place) = self.ending.iter().position(|&(known, _)| known == pid) {
            self.ending.swap_remove(place);
            return self.process_end(pid);
        }
        if !main {
            let state = &mut self.tables.threads[thread];
            let own = [state.source.take().map(|source| source.callback), state.untraced.take()];
            own.into_iter().for_each(|callback| self.end_callback(callback));
        }
    }

    /// Keeps what is known of callbacks that were due and had not run: with the thread of their
    /// executor they are gone.
    fn keep_farewell(&mut self, thread: usize, at_ns: u64) {
        let ThreadState { pid, executor, .. } = self.tables.threads[thread];
        let is_wanted = executor && !self.options.keep_ended && self.farewells.len() < MAX_FAREWELLS;
        if is_wanted && self.has_unrun(pid, at_ns) {
            let model = self.snapshot(at_ns);
            self.farewells.push(model);
        }
    }

    /// Processes of which the main thread has ended and nothing else was heard for a while are
    /// gone.
    pub(super) fn end_quiet_processes(&mut self, event: &Event) {
        if !matches!(event.kind, Kind::ThreadEnd | Kind::Lost { .. } | Kind::ThreadName { .. }) {
            let ending = self.ending.iter_mut().filter(|(pid, _)| *pid == event.pid);
            ending.for_each(|(_, last_ns)| *last_ns = event.at_ns);
        }
        while let Some(place) =
            self.ending.iter().position(|&(_, last_ns)| event.at_ns.saturating_sub(last_ns) > QUIET_NS)
        {
            let (pid, _) = self.ending.swap_remove(place);
            self.process_end(pid);
        }
    }

    fn process_end(&mut self, pid: u32) {
        self.guarded.ends();
        let ended: Vec<usize> = self
            .tables
            .callbacks
            .iter()
            .filter(|(_, callback)| callback.pid == pid && callback.dead.is_none())
            .map(|(index, _)| index)
            .collect();
        for index in ended {
            self.end_callback(Some(index));
        }
        self.tables.forget_process(pid);
        self.startups.ended(pid);
        for (_, state) in self.tables.threads.iter_mut().filter(|(_, state)| state.pid == pid) {
            self.counters.dropped_activations += state.stack.len() as u64;
            state.ended = true;
            state.forget_course();
            (state.source, state.untraced) = (None, None);
        }
    }

    /// A callback is no more; its curves wait for a successor.
    pub(super) fn end_callback(&mut self, index: Option<usize>) {
        let Some(index) = index.filter(|&index| self.tables.callbacks.contains(index)) else { return };
        self.renamed = true;
        let name = names::label(self, &self.tables.callbacks[index]);
        let callback = &mut self.tables.callbacks[index];
        if callback.dead.is_some() {
            return;
        }
        callback.dead = Some(name);
        self.guarded.ends();
        callback.watched.clear();
        self.tables.forget_callback(index);
        for (_, thread) in &mut self.tables.threads {
            thread.stack.retain(|frame| frame.callback != index);
        }
        self.ended.push_back(index);
        if self.ended.len() > self.options.most_ended {
            self.forget_oldest_ended();
        }
    }

    /// Events of this thread are missing between its last one and this. Without a thread: of any.
    pub(super) fn lost(&mut self, thread: Option<usize>, count: u64) {
        self.counters.gaps += 1;
        self.counters.lost_events += count.max(1);
        let pid = thread.map(|thread| self.tables.threads[thread].pid);
        self.forget_courses(thread);
        let ran = |callback: &CallbackState| {
            callback.dead.is_none()
                && pid.is_none_or(|pid| callback.pid == pid)
                && thread.is_none_or(|thread| callback.threads.iter().any(|&(ran, _)| ran == thread))
        };
        for (_, callback) in self.tables.callbacks.iter_mut().filter(|(_, callback)| ran(callback)) {
            if let Some(grid) = &mut callback.grid {
                grid.forget();
            }
        }
    }

    /// What was under way on this thread (without one: on any) is unknown, and no window of a curve
    /// reaches across.
    pub(super) fn forget_courses(&mut self, thread: Option<usize>) {
        let tables = &mut self.tables;
        for (_, state) in tables.threads.iter_mut().filter(|&(index, _)| thread.is_none_or(|t| t == index)) {
            self.counters.dropped_activations += state.stack.len() as u64;
            state.forget_course();
        }
        let pid = thread.map(|thread| tables.threads[thread].pid);
        // Activations of this thread and messages of any callback of its process may be missing.
        let concerned =
            |callback: &CallbackState| callback.dead.is_none() && pid.is_none_or(|pid| callback.pid == pid);
        for (_, callback) in tables.callbacks.iter_mut().filter(|(_, callback)| concerned(callback)) {
            callback.arrivals.gap();
            callback.publishes.iter_mut().for_each(Edge::gap);
            if thread.is_none_or(|thread| callback.threads.iter().any(|&(ran, _)| ran == thread)) {
                callback.cost.gap();
                callback.suspensions.gap();
                if let Some(probable) = &mut callback.probable {
                    probable.gap();
                }
            }
        }
        for (_, callback) in tables.callbacks.iter().filter(|(_, callback)| concerned(callback)) {
            for edge in &callback.publishes {
                let topic = tables.topic(edge.topic);
                tables.topics[topic].arrivals.gap();
            }
        }
        for (_, subscription) in tables.subscriptions.iter_mut() {
            if pid.is_none_or(|pid| subscription.pid == pid)
                && let Some(buffer) = &mut subscription.buffer
            {
                buffer.clear();
            }
        }
    }
}

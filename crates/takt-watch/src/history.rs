//! The events of the last seconds, from which late cycles are judged, and the worst windows of the
//! whole time.

use std::collections::{BTreeMap, BTreeSet};

use takt_rt::jobs::JobRecord;
use takt_trace::analysis::{Late, Thresholds, analyse_with};
use takt_trace::event::{Softirq, Span, Thread as Named, WakeStack};
use takt_trace::follow::Source;
use takt_trace::{Cause, Event, Kind, Trace};

use crate::target::Thread;

/// Events that are kept at most: some 50 MB.
const MAX_EVENTS: usize = 1 << 20;
/// Time that is kept at least, and periods of the slowest loop: a cycle is judged from the end of
/// the one before it on.
const KEPT_NS: u64 = 4_000_000_000;
const KEPT_PERIODS: f64 = 3.0;
/// Kept around a window for a picture, before and after.
const MARGIN_NS: u64 = 5_000_000;
/// Windows that are kept for a picture, and events of one.
const MAX_WINDOWS: usize = 20;
const MAX_WINDOW_EVENTS: usize = 200_000;
/// Names of threads that are remembered.
const MAX_NAMES: usize = 1 << 16;
/// Readings of counters that are kept where windows alone are read: minutes.
const MAX_READINGS: usize = 4096;
/// Stacks that are remembered before those of forgotten events are.
const MAX_STACKS: usize = 4096;
/// An expiry further from its event than this is of another clock than CLOCK_MONOTONIC.
const SAME_CLOCK_NS: u64 = 60_000_000_000;

/// A window of a late cycle.
#[derive(Debug)]
pub(crate) struct Window {
    pub(crate) tid: i32,
    pub(crate) late: Late,
    events: Vec<Event>,
}

impl Window {
    fn weight(&self) -> f64 {
        self.late.lateness_us.max(self.late.response_us)
    }
}

/// The part of the trace that is kept.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// The last seconds.
    pub(crate) trace: Trace,
    /// The worst late cycles, in no order.
    pub(crate) windows: Vec<Window>,
}

impl History {
    /// Adds a part, whose events are in `events`; `slowest_ns` is the longest period of a watched
    /// loop.
    pub(crate) fn add(
        &mut self,
        mut events: Vec<Event>,
        part: Trace,
        threads: &BTreeMap<i32, Thread>,
        slowest_ns: f64,
    ) {
        let trace = &mut self.trace;
        to_monotonic(&mut events);
        let end_ns = events.last().map_or(0, |event| event.time_ns);
        let kept_ns = KEPT_NS.max((KEPT_PERIODS * slowest_ns) as u64);
        let from_ns = end_ns.saturating_sub(kept_ns);
        let mut forgotten = trace.events.partition_point(|event| event.time_ns < from_ns);
        forgotten = forgotten
            .max((trace.events.len() + events.len()).saturating_sub(MAX_EVENTS).min(trace.events.len()));
        trace.events.drain(..forgotten);
        trace.events.append(&mut events);
        let from_ns = trace.events.first().map_or(0, |event| event.time_ns);
        // Parts follow each other without a gap.
        let to_ns = part.spans.last().map_or(end_ns, |span| span.to_ns).max(end_ns);
        trace.spans = vec![Span { from_ns, to_ns }];
        // Those of events that are still kept may be forgotten where the part comes from.
        if trace.threads.len() > MAX_NAMES {
            trace.threads.clear();
        }
        trace.threads.extend(part.threads);
        for (&tid, thread) in threads {
            let named = trace.threads.entry(tid).or_default();
            named.pid = Some(thread.pid);
            if named.name.is_empty() {
                named.name.clone_from(&thread.name);
            }
        }
        trace.irqs.extend(part.irqs);
        trace.guest = part.guest;
        trace.kept_awake = part.kept_awake;
        // The last one before is the one to count from.
        let steal = trace.steal.partition_point(|reading| reading.time_ns < from_ns);
        let cpus = trace.steal[..steal].iter().map(|reading| reading.cpu).collect::<BTreeSet<_>>();
        trace.steal.drain(..steal.saturating_sub(cpus.len()));
        trace.steal.extend(part.steal);
        trace.steal.sort_by_key(|reading| (reading.time_ns, reading.cpu));
        trace.steal.dedup();
        trace.wake_stacks.retain(|one| one.time_ns >= from_ns);
        if trace.stacks.len() > MAX_STACKS {
            let (stacks, samples) = used(&trace.stacks, trace.wake_stacks.iter());
            (trace.stacks, trace.wake_stacks) = (stacks, samples);
        }
        // Each part numbers its own.
        let before = u32::try_from(trace.stacks.len()).unwrap_or(u32::MAX);
        trace.stacks.extend(part.stacks);
        let placed = part
            .wake_stacks
            .into_iter()
            .map(|one| WakeStack { stack: one.stack.saturating_add(before), ..one });
        trace.wake_stacks.extend(placed);
        let firmware = &mut trace.firmware;
        let readings = firmware.readings.partition_point(|reading| reading.time_ns < from_ns);
        firmware.readings.drain(..readings.saturating_sub(1));
        firmware.readings.extend(part.firmware.readings);
        firmware.readings.dedup();
        firmware.gaps.retain(|gap| gap.to_ns >= from_ns);
        firmware.gaps.extend(part.firmware.gaps);
        firmware.watched.retain(|span| span.to_ns >= from_ns);
        for span in part.firmware.watched {
            match firmware.watched.last_mut() {
                Some(last) if last.to_ns >= span.from_ns => last.to_ns = last.to_ns.max(span.to_ns),
                _ => firmware.watched.push(span),
            }
        }
    }

    /// Takes the place of all events that were there: those of some windows, which are the trace's
    /// spans. The knowledge of threads, interrupts and counters stays.
    pub(crate) fn load(&mut self, mut windows: Trace) {
        to_monotonic(&mut windows.events);
        let cpus: BTreeSet<u16> = windows.events.iter().map(|event| event.cpu).collect();
        let trace = &mut self.trace;
        trace.events.clear();
        for span in &windows.spans {
            piece(windows.between(span.from_ns, span.to_ns), span, &cpus, &mut trace.events);
        }
        trace.spans = windows.spans;
        trace.stacks = windows.stacks;
        trace.wake_stacks = windows.wake_stacks;
    }

    /// Takes what a part reports beside its events.
    pub(crate) fn take_counters(&mut self, part: &mut Trace, threads: &BTreeMap<i32, Thread>) {
        let trace = &mut self.trace;
        for (&tid, thread) in threads {
            let named = part.threads.entry(tid).or_default();
            named.pid = Some(thread.pid);
            if named.name.is_empty() {
                named.name.clone_from(&thread.name);
            }
        }
        if trace.threads.len() > MAX_NAMES {
            trace.threads.clear();
        }
        let named = std::mem::take(&mut part.threads).into_iter().filter(|one| !one.1.name.is_empty());
        trace.threads.extend(named);
        trace.irqs.append(&mut part.irqs);
        trace.guest = part.guest;
        trace.kept_awake.clone_from(&part.kept_awake);
        trace.steal.append(&mut part.steal);
        trace.steal.sort_by_key(|reading| (reading.time_ns, reading.cpu));
        trace.steal.dedup();
        let beyond = trace.steal.len().saturating_sub(MAX_READINGS);
        trace.steal.drain(..beyond);
        let (firmware, new) = (&mut trace.firmware, std::mem::take(&mut part.firmware));
        firmware.readings.extend(new.readings);
        firmware.readings.dedup();
        let beyond = firmware.readings.len().saturating_sub(MAX_READINGS);
        firmware.readings.drain(..beyond);
        for (kept, new) in [(&mut firmware.gaps, new.gaps), (&mut firmware.watched, new.watched)] {
            kept.extend(new);
            let beyond = kept.len().saturating_sub(MAX_READINGS);
            kept.drain(..beyond);
        }
    }

    /// From when on events are there.
    pub(crate) fn begin_ns(&self) -> u64 {
        self.trace.spans.first().map_or(0, |span| span.from_ns)
    }

    /// Until when events are there.
    pub(crate) fn end_ns(&self) -> u64 {
        self.trace.spans.last().map_or(0, |span| span.to_ns)
    }

    /// Judges the causes of the cycles in `late`, among the thread's `jobs`.
    pub(crate) fn judge(
        &mut self,
        tid: i32,
        jobs: &[JobRecord],
        late: &[JobRecord],
        (late_ns, deadline_ns): (u64, Option<u64>),
    ) -> Vec<Late> {
        let response_ns = Some(deadline_ns.unwrap_or(u64::MAX));
        let thresholds = Thresholds { lateness_ns: late_ns, response_ns, windows: jobs.len() };
        let mut jobs = jobs.to_vec();
        jobs.sort_by_key(|job| job.planned_ns);
        let (cut, jobs) = cut(&self.trace, tid, &jobs, late);
        let trace = cut.as_ref().unwrap_or(&self.trace);
        let Ok(report) = analyse_with(trace, tid, &jobs, &thresholds) else { return Vec::new() };
        let asked: BTreeSet<u64> = late.iter().map(|job| job.index).collect();
        let found: Vec<Late> =
            report.windows.into_iter().filter(|window| asked.contains(&window.index)).collect();
        for one in &found {
            self.keep(tid, one);
        }
        let reported: BTreeSet<u64> = found.iter().map(|one| one.index).collect();
        // Cycles that were dropped from memory before they could be judged.
        let uncovered = late
            .iter()
            .filter(|job| !reported.contains(&job.index))
            .map(|job| Late::of(job, Cause::NotRecorded, Vec::new()));
        found.into_iter().chain(uncovered).collect()
    }

    /// Keeps the window of a late cycle, if it is among the worst.
    fn keep(&mut self, tid: i32, late: &Late) {
        let mut window = Window { tid, late: late.clone(), events: Vec::new() };
        if self.windows.len() >= MAX_WINDOWS {
            let least = self.windows.iter().enumerate().min_by(|a, b| a.1.weight().total_cmp(&b.1.weight()));
            match least {
                Some((index, least)) if least.weight() < window.weight() => {
                    self.windows.swap_remove(index);
                }
                _ => return,
            }
        }
        let (from_ns, to_ns) =
            (late.planned_ns.saturating_sub(MARGIN_NS), late.end_ns.saturating_add(MARGIN_NS));
        let events = self.trace.between(from_ns, to_ns);
        window.events = events[..events.len().min(MAX_WINDOW_EVENTS)].to_vec();
        self.windows.push(window);
    }

    /// Looks the name of a thread or an interrupt up that no event has reported.
    pub(crate) fn look_up(&mut self, source: Source) {
        match source {
            Source::Thread(tid) if tid > 0 => {
                self.trace.threads.entry(tid).or_insert_with(|| {
                    // Of a thread that has ended meanwhile nobody knows the name.
                    Named { name: takt_rt::procfs::thread_name(tid, tid).unwrap_or_default(), pid: None }
                });
            }
            Source::Interrupt(irq) => {
                if let Some(name) = interrupt_name(irq).filter(|_| !self.trace.irqs.contains_key(&irq)) {
                    self.trace.irqs.insert(irq, name);
                }
            }
            _ => {}
        }
    }

    /// The waker of a thread, in words.
    pub(crate) fn source(&self, source: Source) -> String {
        match source {
            Source::Timer(_) => "its timer".to_owned(),
            Source::Thread(tid) => self.trace.name_and_id(tid),
            Source::Interrupt(irq) => match self.trace.irqs.get(&irq) {
                Some(name) => format!("interrupt {name}"),
                None => format!("interrupt {irq}"),
            },
            Source::Softirq(number) => format!("software interrupt {}", Softirq(number).name()),
            Source::Other => "an interrupt of the CPU's own".to_owned(),
            Source::Call { number, file } => {
                format!("nobody: it is awake and calls {} on file {file}", takt_trace::calls::name(number))
            }
        }
    }

    /// The worst windows as one trace, with holes marked between them.
    pub(crate) fn picture(&self) -> Trace {
        let mut events: Vec<Event> = Vec::new();
        let mut windows: Vec<&Window> = self.windows.iter().collect();
        windows.sort_by_key(|window| window.late.planned_ns);
        let mut end_ns = 0;
        for window in windows {
            let first = window.events.partition_point(|event| event.time_ns <= end_ns);
            let new = &window.events[first..];
            let Some(begin) = new.first() else { continue };
            if first == 0 {
                let cpus: BTreeSet<u16> = new.iter().map(|event| event.cpu).collect();
                events.extend(cpus.into_iter().map(|cpu| hole(begin.time_ns, cpu)));
            }
            events.extend_from_slice(new);
            end_ns = new.last().map_or(end_ns, |event| event.time_ns);
        }
        Trace {
            events,
            threads: self.trace.threads.clone(),
            irqs: self.trace.irqs.clone(),
            ..Trace::default()
        }
    }
}

/// An interrupt's handler has a folder below the interrupt's own.
fn interrupt_name(irq: u32) -> Option<String> {
    let entries = std::fs::read_dir(format!("/proc/irq/{irq}")).ok()?;
    let folder = entries.flatten().find(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))?;
    folder.file_name().to_str().map(str::to_owned)
}

/// Events of a CPU were left out here.
fn hole(time_ns: u64, cpu: u16) -> Event {
    Event { time_ns, tid: 0, cpu, kind: Kind::Lost { count: 0 } }
}

/// Appends the events of a span of a trace that has holes, `within`, so that each CPU is known to
/// begin and to end with it.
fn piece(within: &[Event], span: &Span, cpus: &BTreeSet<u16>, events: &mut Vec<Event>) {
    // At the very begin, so that no cycle looks as if it were in the hole.
    events.extend(cpus.iter().map(|&cpu| hole(span.from_ns, cpu)));
    events.extend_from_slice(within);
    // A CPU that was quiet up to the end was not lost there.
    for &cpu in cpus {
        let tid = within.iter().rev().find(|event| event.cpu == cpu).map_or(0, |event| match event.kind {
            Kind::Switch { next_tid, .. } => next_tid,
            _ => event.tid,
        });
        let kind = Kind::SignalGenerate { signal: 0, tid: 0 };
        events.push(Event { time_ns: span.to_ns, tid, cpu, kind });
    }
}

/// The stacks that `samples` name, and the samples with their new places.
fn used<'a>(
    stacks: &[Vec<String>],
    samples: impl Iterator<Item = &'a WakeStack>,
) -> (Vec<Vec<String>>, Vec<WakeStack>) {
    let mut places: BTreeMap<u32, u32> = BTreeMap::new();
    let mut found = Vec::new();
    let mut moved = Vec::new();
    for sample in samples {
        let next = u32::try_from(found.len()).unwrap_or(u32::MAX);
        let stack = *places.entry(sample.stack).or_insert_with(|| {
            found.push(stacks.get(sample.stack as usize).cloned().unwrap_or_default());
            next
        });
        moved.push(WakeStack { stack, ..*sample });
    }
    (found, moved)
}

/// Cycles that report what is usual.
const USUAL: usize = 32;
/// Looked at before the cycle before a late one.
const LEAD_NS: u64 = 3_000_000;

/// Of the trace, what is needed to judge the late cycles; None for all of it. A judgement passes
/// over all events, and there are hundreds of thousands in a second.
fn cut(trace: &Trace, tid: i32, jobs: &[JobRecord], late: &[JobRecord]) -> (Option<Trace>, Vec<JobRecord>) {
    if jobs.len() <= USUAL {
        return (None, jobs.to_vec());
    }
    let mut wanted = vec![false; jobs.len()];
    wanted[..USUAL].fill(true);
    for job in late {
        let at = jobs.partition_point(|other| other.planned_ns < job.planned_ns);
        let reach = at.saturating_sub(2)..(at + 1).min(jobs.len());
        wanted[reach].fill(true);
    }
    let mut spans: Vec<Span> = Vec::new();
    for (index, job) in jobs.iter().enumerate().filter(|(index, _)| wanted[*index]) {
        let before_ns =
            index.checked_sub(1).map_or(job.planned_ns, |before| jobs[before].end_ns.min(job.planned_ns));
        let span = Span { from_ns: before_ns.saturating_sub(LEAD_NS), to_ns: job.end_ns + LEAD_NS };
        match spans.last_mut() {
            Some(last) if last.to_ns >= span.from_ns => last.to_ns = last.to_ns.max(span.to_ns),
            _ => spans.push(span),
        }
    }
    // If most of it would be copied, the whole trace is as good.
    let length_ns: u64 = spans.iter().map(|span| span.to_ns - span.from_ns).sum();
    let all_ns = trace.spans.iter().map(|span| span.to_ns.saturating_sub(span.from_ns)).sum::<u64>();
    if length_ns > all_ns / 2 {
        return (None, jobs.to_vec());
    }
    let cpus: BTreeSet<u16> = trace.events.iter().map(|event| event.cpu).collect();
    let mut events = Vec::new();
    for span in &spans {
        piece(trace.between(span.from_ns, span.to_ns), span, &cpus, &mut events);
    }
    let known = trace.spans.first().copied().unwrap_or(Span { from_ns: 0, to_ns: u64::MAX });
    for span in &mut spans {
        (span.from_ns, span.to_ns) = (span.from_ns.max(known.from_ns), span.to_ns.min(known.to_ns));
    }
    let jobs = jobs.iter().zip(wanted).filter(|(_, wanted)| *wanted).map(|(job, _)| *job).collect();
    let within = |one: &&WakeStack| {
        one.tid == tid && spans.iter().any(|span| (span.from_ns..=span.to_ns).contains(&one.time_ns))
    };
    let (stacks, wake_stacks) = used(&trace.stacks, trace.wake_stacks.iter().filter(within));
    let cut = Trace {
        events,
        threads: trace.threads.clone(),
        irqs: trace.irqs.clone(),
        clock: trace.clock.clone(),
        clock_map: trace.clock_map.clone(),
        lost_events: 0,
        spans: spans.clone(),
        guest: trace.guest,
        steal: trace.steal.clone(),
        kept_awake: trace.kept_awake.clone(),
        firmware: trace.firmware.clone(),
        wake_stacks,
        stacks,
        notes: Vec::new(),
    };
    (Some(cut), jobs)
}

/// Brings expiries of CLOCK_REALTIME to CLOCK_MONOTONIC: what a wait of a condition variable asks
/// for is often of that clock.
fn to_monotonic(events: &mut [Event]) {
    let ahead_ns = ahead_ns();
    for event in events {
        if let Kind::TimerStart { expires_ns, .. } = &mut event.kind
            && expires_ns.abs_diff(event.time_ns) > SAME_CLOCK_NS
        {
            let monotonic_ns = expires_ns.saturating_sub(ahead_ns);
            if monotonic_ns.abs_diff(event.time_ns) < SAME_CLOCK_NS {
                *expires_ns = monotonic_ns;
            }
        }
    }
}

/// By how much CLOCK_REALTIME is ahead.
pub(crate) fn ahead_ns() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX).saturating_sub(takt_rt::clock::monotonic_ns())
}

//! Time that was taken from a CPU and that nobody in this kernel saw: stolen by a hypervisor, or a
//! gap that it (or the firmware, by an SMI) made without telling.
//!
//! If a hypervisor reports stolen time to its guest, the scheduler leaves it out of the time that
//! it charges to threads (`sched_stat_runtime`). So a gap of a running thread is wall time that was
//! not charged, placed in the silences of the CPU's events. A gap of an idle CPU is a silence that
//! goes on although a thread was woken for it, or a timer of it was due. Either is called steal
//! only if the CPU's counter of stolen time agrees; that one counts in hundredths of a second, so a
//! short gap must wait until the counter has moved, and it must have moved enough for all gaps
//! until then.

use std::collections::HashMap;

use crate::event::{Event, Kind, Span, StealReading};

/// Less is noise of the time stamps.
const MIN_NS: u64 = 20_000;

/// Less is what it takes to come out of idle: the deepest states of x86 take up to 0.3 ms, and a
/// hypervisor that has to run a halted CPU again needs some tens of microseconds.
const MIN_IDLE_NS: u64 = 500_000;

/// Largest lag of the counter, which is truncated to USER_HZ, 10 ms on every current architecture.
const RESOLUTION_NS: u64 = 10_000_000;

/// The counter must have moved within this time after a gap; later it speaks of something else.
const HORIZON_NS: u64 = 1_000_000_000;

/// Time of a CPU that nobody saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Gap {
    pub(super) span: Span,
    /// The hypervisor's counter agrees.
    pub(super) stolen: bool,
    /// The CPU was idle, and was to come out of it.
    pub(super) idle: bool,
}

/// A gap that was not judged yet: when, and whether the CPU was idle.
type Found = (Span, bool);

#[derive(Default)]
struct Cpu {
    /// Since when the running thread has not been charged, and who runs.
    since: Option<(i32, u64)>,
    last_ns: u64,
    /// Silences since then.
    silences: Vec<Span>,
    interrupt_depth: u32,
    interrupts_ns: u64,
    interrupt_since: u64,
    idle: bool,
    /// Threads that were woken for this CPU since its last event, and when.
    woken: Vec<(i32, u64)>,
    gaps: Vec<Found>,
}

/// Finds the gaps in events that pass in the order of time.
#[derive(Default)]
pub(super) struct GapFinder {
    cpus: Vec<Cpu>,
    /// Timers by their address: where they were set, and their expiry. One may be carried to
    /// another CPU.
    timers: HashMap<u64, (u16, u64)>,
}

impl GapFinder {
    pub(super) fn see(&mut self, event: &Event) {
        self.end_idle_silence(event);
        self.cpu(event.cpu).see(event);
        match event.kind {
            // A wake-up also charges, from here, the thread that runs where the woken one will.
            Kind::Runtime { tid, runtime_ns } => {
                let runs = |cpu: &Cpu| cpu.since.is_some_and(|who| who.0 == tid);
                let cpu = match tid == event.tid {
                    true => Some(self.cpu(event.cpu)),
                    false => self.cpus.iter_mut().find(|cpu| runs(cpu)),
                };
                if let Some(cpu) = cpu {
                    cpu.charge(tid, runtime_ns, event.time_ns);
                }
            }
            Kind::TimerStart { timer, expires_ns, .. } => {
                self.timers.insert(timer, (event.cpu, expires_ns));
            }
            Kind::TimerCancel { timer } | Kind::TimerExpireEntry { timer, .. } => {
                self.timers.remove(&timer);
            }
            Kind::Lost { .. } => self.timers.clear(),
            Kind::Waking { tid, target_cpu, .. } | Kind::WakeupNew { tid, target_cpu, .. }
                if target_cpu != event.cpu =>
            {
                self.cpu(target_cpu).woken.push((tid, event.time_ns));
            }
            // A wake-up is reported with the CPU that the thread slept on, before another is
            // chosen.
            Kind::Migrate { tid, from_cpu, to_cpu } => {
                let woken = &mut self.cpu(from_cpu).woken;
                if let Some(at) = woken.iter().position(|one| one.0 == tid) {
                    let one = woken.swap_remove(at);
                    self.cpu(to_cpu).woken.push(one);
                }
            }
            _ => {}
        }
    }

    /// At the end of an idle CPU's silence, the part after a reason to leave idle is a gap.
    fn end_idle_silence(&mut self, event: &Event) {
        let Some(cpu) = self.cpus.get_mut(usize::from(event.cpu)) else { return };
        // If the kernel records nothing about an idle CPU, another thread runs on it by now.
        let seen = cpu.idle && event.tid == 0 && !matches!(event.kind, Kind::Lost { .. });
        if !seen || event.time_ns.saturating_sub(cpu.last_ns) < MIN_IDLE_NS {
            return;
        }
        let own = self.timers.values().filter(|timer| timer.0 == event.cpu);
        let due = own.map(|timer| timer.1).chain(cpu.woken.iter().map(|one| one.1)).min();
        let span = Span { from_ns: due.unwrap_or(u64::MAX).max(cpu.last_ns), to_ns: event.time_ns };
        if span.to_ns.saturating_sub(span.from_ns) >= MIN_IDLE_NS {
            cpu.gaps.push((span, true));
        }
    }

    /// Marks a hole: the next event does not follow the last one.
    pub(super) fn hole(&mut self) {
        self.timers.clear();
        for cpu in &mut self.cpus {
            cpu.forget();
        }
    }

    fn cpu(&mut self, cpu: u16) -> &mut Cpu {
        let index = usize::from(cpu);
        if self.cpus.len() <= index {
            self.cpus.resize_with(index + 1, Cpu::default);
        }
        &mut self.cpus[index]
    }

    /// The gaps by CPU, each list in the order of time.
    pub(super) fn finish(self, readings: &[StealReading]) -> Vec<Vec<Gap>> {
        let mut by_cpu: HashMap<u16, Vec<StealReading>> = HashMap::new();
        for &reading in readings {
            by_cpu.entry(reading.cpu).or_default().push(reading);
        }
        let judged = self.cpus.into_iter().enumerate().map(|(index, mut cpu)| {
            cpu.gaps.sort_by_key(|gap| gap.0.from_ns);
            let readings = u16::try_from(index).ok().and_then(|cpu| by_cpu.get(&cpu));
            judge(&cpu.gaps, readings.map_or(&[][..], Vec::as_slice))
        });
        judged.collect()
    }
}

impl Cpu {
    fn see(&mut self, event: &Event) {
        let now_ns = event.time_ns;
        if now_ns.saturating_sub(self.last_ns) >= MIN_NS && self.since.is_some() {
            self.silences.push(Span { from_ns: self.last_ns, to_ns: now_ns });
        }
        self.woken.clear();
        self.last_ns = now_ns;
        self.idle = if let Kind::Switch { next_tid, .. } = event.kind { next_tid } else { event.tid } == 0;
        match event.kind {
            Kind::VectorEntry(_) | Kind::IrqEntry { .. } | Kind::SoftirqEntry(_) => {
                if self.interrupt_depth == 0 {
                    self.interrupt_since = now_ns;
                }
                self.interrupt_depth += 1;
            }
            Kind::VectorExit(_) | Kind::IrqExit { .. } | Kind::SoftirqExit(_) => {
                self.interrupt_depth = self.interrupt_depth.saturating_sub(1);
                if self.interrupt_depth == 0 {
                    self.interrupts_ns =
                        self.interrupts_ns.saturating_add(now_ns.saturating_sub(self.interrupt_since));
                }
            }
            Kind::Switch { next_tid, .. } => {
                self.interrupt_depth = 0;
                self.restart((next_tid != 0).then_some((next_tid, now_ns)));
            }
            Kind::Lost { .. } => self.forget(),
            _ => {}
        }
    }

    /// The thread that runs here was charged: what is missing against the clock is a gap.
    fn charge(&mut self, tid: i32, runtime_ns: u64, now_ns: u64) {
        if let Some((who, since_ns)) = self.since
            && who == tid
        {
            // Interrupts may or may not be charged (CONFIG_IRQ_TIME_ACCOUNTING); they are never
            // theft.
            let wall_ns = now_ns.saturating_sub(since_ns).saturating_sub(self.interrupts_ns);
            let short_ns = wall_ns.saturating_sub(runtime_ns);
            if short_ns >= MIN_NS {
                place(short_ns, &mut self.silences, &mut self.gaps);
            }
        }
        self.restart(Some((tid, now_ns)));
    }

    fn forget(&mut self) {
        self.interrupt_depth = 0;
        self.idle = false;
        self.woken.clear();
        self.restart(None);
    }

    fn restart(&mut self, since: Option<(i32, u64)>) {
        self.since = since;
        self.silences.clear();
        self.interrupts_ns = 0;
        self.interrupt_since = self.last_ns;
    }
}

/// Puts the missing time at the ends of the longest silences.
fn place(mut short_ns: u64, silences: &mut [Span], into: &mut Vec<Found>) {
    silences.sort_by_key(|span| std::cmp::Reverse(span.to_ns - span.from_ns));
    for silence in silences {
        let part_ns = short_ns.min(silence.to_ns - silence.from_ns);
        into.push((Span { from_ns: silence.to_ns - part_ns, to_ns: silence.to_ns }, false));
        short_ns -= part_ns;
        if short_ns < MIN_NS {
            break;
        }
    }
}

/// Asks the readings of one CPU's counter, in the order of time, about its gaps.
fn judge(gaps: &[Found], readings: &[StealReading]) -> Vec<Gap> {
    let length = |gap: &Found| gap.0.to_ns - gap.0.from_ns;
    let agrees = |index: usize, gap: &Span| {
        let first = readings.partition_point(|reading| reading.time_ns <= gap.from_ns);
        let Some(before) = first.checked_sub(1).map(|first| readings[first]) else { return false };
        // A reading stands for the time since the one before, so gaps in that time are its own as
        // well.
        let since = gaps[..index].partition_point(|other| other.0.from_ns < before.time_ns);
        let mut claimed_ns = gaps[since..=index].iter().map(length).fold(0, u64::saturating_add);
        let mut next = index + 1;
        for reading in readings[first..].iter().filter(|reading| reading.time_ns >= gap.to_ns) {
            if reading.time_ns > gap.to_ns.saturating_add(HORIZON_NS) {
                break;
            }
            while let Some(other) = gaps.get(next).filter(|other| other.0.to_ns <= reading.time_ns) {
                claimed_ns = claimed_ns.saturating_add(length(other));
                next += 1;
            }
            let counted_ns = reading.stolen_ns.saturating_sub(before.stolen_ns);
            if counted_ns > 0 && counted_ns.saturating_add(RESOLUTION_NS) >= claimed_ns {
                return true;
            }
        }
        false
    };
    let judged = gaps.iter().enumerate();
    judged.map(|(index, &(span, idle))| Gap { span, stolen: agrees(index, &span), idle }).collect()
}

/// Counts the part of a span of time that lies in gaps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Within {
    /// Stolen from a running thread.
    pub(super) stolen_ns: u64,
    /// Taken from a running thread, by nobody knows whom.
    pub(super) gap_ns: u64,
    /// Stolen while the CPU was idle.
    pub(super) idle_stolen_ns: u64,
    /// The CPU was idle and did not come out of it, for a reason that nobody knows.
    pub(super) idle_ns: u64,
}

impl Within {
    pub(super) fn of(gaps: &[Gap], from_ns: u64, to_ns: u64) -> Self {
        let first = gaps.partition_point(|gap| gap.span.to_ns <= from_ns);
        let mut within = Self::default();
        // Gaps that overlap count once, so that their sum is never more than the whole.
        let mut at_ns = from_ns;
        for gap in gaps[first..].iter().take_while(|gap| gap.span.from_ns < to_ns) {
            let ns = match (gap.stolen, gap.idle) {
                (true, false) => &mut within.stolen_ns,
                (false, false) => &mut within.gap_ns,
                (true, true) => &mut within.idle_stolen_ns,
                (false, true) => &mut within.idle_ns,
            };
            let end_ns = gap.span.to_ns.min(to_ns);
            *ns += end_ns.saturating_sub(gap.span.from_ns.max(at_ns));
            at_ns = at_ns.max(end_ns);
        }
        within
    }

    pub(super) fn sum_ns(self) -> u64 {
        self.stolen_ns + self.gap_ns + self.idle_stolen_ns + self.idle_ns
    }
}

/// Period of the CPU bandwidth control of Linux (`cpu.cfs_period_us`, `cpu.max`) where nobody chose
/// another: nearly everywhere.
const QUOTA_PERIOD_NS: u64 = 100_000_000;

/// Gaps in step from which a quota is reported: by chance so many are rarer than one in 10,000
/// runs.
const MIN_IN_STEP: usize = 6;

/// Says that a hypervisor's quota makes the long gaps, where they show it: whoever has used up its
/// CPU time stands still until the next period begins, so that all of its gaps end in step with the
/// host's clock, which may differ from this one's by some 100 ppm. Gaps of an idle CPU that begin
/// in step as well are those of a loop whose timer the CPU is slow to answer.
pub(super) fn quota(gaps: &[Vec<Gap>]) -> Option<String> {
    const LONG_NS: u64 = 1_000_000;
    const APART_NS: u64 = 500_000;
    let mut long: Vec<&Gap> =
        gaps.iter().flatten().filter(|gap| gap.span.to_ns - gap.span.from_ns >= LONG_NS).collect();
    long.sort_unstable_by_key(|gap| gap.span.to_ns);
    // All CPUs go on together: that is one.
    long.dedup_by(|next, kept| next.span.to_ns - kept.span.to_ns < QUOTA_PERIOD_NS / 2);
    let same_phase = |before_ns: u64, next_ns: u64| {
        let between_ns = next_ns.abs_diff(before_ns);
        let off_ns = between_ns % QUOTA_PERIOD_NS;
        off_ns.min(QUOTA_PERIOD_NS - off_ns) <= APART_NS + between_ns / 10_000
    };
    let pairs = long.len().saturating_sub(1);
    let in_step = long
        .windows(2)
        .map(|pair| (pair[0], pair[1]))
        .filter(|(before, next)| same_phase(before.span.to_ns, next.span.to_ns))
        .filter(|(before, next)| next.span.to_ns - before.span.to_ns < 100 * QUOTA_PERIOD_NS)
        .filter(|(before, next)| !(next.idle && same_phase(before.span.from_ns, next.span.from_ns)))
        .count();
    (in_step >= MIN_IN_STEP && 4 * in_step >= pairs).then(|| {
        format!(
            "{in_step} of {pairs} gaps of 1 ms or more end at a multiple of 100 ms after the previous one, as they do when the hypervisor \
             limits this machine's CPU time (cpu.max) and the quota is used up; request more CPUs, or load the machine less"
        )
    })
}

/// Length of the part of `from_ns..to_ns` that lies in spans, which are in the order of time and do
/// not touch.
pub(super) fn length_within(spans: &[Span], from_ns: u64, to_ns: u64) -> u64 {
    let first = spans.partition_point(|span| span.to_ns <= from_ns);
    let within = spans[first..].iter().take_while(|span| span.from_ns < to_ns);
    within.map(|span| span.to_ns.min(to_ns) - span.from_ns.max(from_ns)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gaps(events: &[Event], readings: &[StealReading]) -> Vec<Vec<Gap>> {
        let mut finder = GapFinder::default();
        events.iter().for_each(|event| finder.see(event));
        finder.finish(readings)
    }

    fn reading(time_ms: u64, stolen_ms: u64) -> StealReading {
        StealReading { cpu: 0, time_ns: time_ms * 1_000_000, stolen_ns: stolen_ms * 1_000_000 }
    }

    fn span_ms(from_ms: u64, to_ms: u64) -> Found {
        (Span { from_ns: from_ms * 1_000_000, to_ns: to_ms * 1_000_000 }, false)
    }

    /// CPU 0 goes idle at 1 ms; CPU 1 wakes thread 5 for it at 2 ms; it answers at `answers_us`.
    fn woken_idle(answers_us: u64, answering: i32, before: &[Event]) -> Vec<Gap> {
        let at = |us: u64, cpu, tid, kind| Event { time_ns: us * 1000, tid, cpu, kind };
        let to_idle = Kind::Switch {
            prev_tid: 5,
            prev_prio: 20,
            prev_state: crate::event::State::Sleeping,
            next_tid: 0,
            next_prio: 120,
        };
        let mut events = vec![at(1000, 0, 5, to_idle), at(2000, 1, 9, waking(0))];
        events.extend_from_slice(before);
        events.push(at(answers_us, 0, answering, Kind::CpuIdle { state: None }));
        gaps(&events, &[]).swap_remove(0)
    }

    fn waking(target_cpu: u16) -> Kind {
        Kind::Waking { tid: 5, prio: 20, target_cpu }
    }

    #[test]
    fn an_idle_cpu_that_does_not_come_when_it_is_woken_is_a_gap() {
        let gap = |from_us: u64, to_us: u64| {
            let span = Span { from_ns: from_us * 1000, to_ns: to_us * 1000 };
            vec![Gap { span, stolen: false, idle: true }]
        };
        assert_eq!(woken_idle(28_000, 0, &[]), gap(2000, 28_000));
        // As long as idle states take; an idle time that leaves no events.
        assert_eq!(woken_idle(2300, 0, &[]), []);
        assert_eq!(woken_idle(28_000, 5, &[]), []);
        // The thread was carried to another CPU, so that this one had no reason to come.
        let moved = Kind::Migrate { tid: 5, from_cpu: 0, to_cpu: 1 };
        assert_eq!(woken_idle(28_000, 0, &[Event { time_ns: 2_001_000, tid: 9, cpu: 1, kind: moved }]), []);
        // A timer of its own; and one that was cancelled in time, by the other.
        let event = |us: u64, cpu, kind| Event { time_ns: us * 1000, tid: 0, cpu, kind };
        let start = Kind::TimerStart { timer: 7, function: 1, expires_ns: 4_000_000, slack_ns: 0 };
        let mut events = vec![event(2010, 1, moved), event(2100, 0, start)];
        assert_eq!(woken_idle(28_000, 0, &events), gap(4000, 28_000));
        events.push(event(2200, 1, Kind::TimerCancel { timer: 7 }));
        assert_eq!(woken_idle(28_000, 0, &events), []);
    }

    #[test]
    fn a_quota_is_reported_by_gaps_that_end_in_step() {
        // Each uses its time up at another moment.
        let gaps = |ends_us: &[u64]| {
            let gap = |(index, &end_us): (u64, &u64)| Gap {
                span: Span { from_ns: (end_us - 6000 - 2000 * (index % 3)) * 1000, to_ns: end_us * 1000 },
                stolen: false,
                idle: end_us % 2 == 0,
            };
            vec![(0..).zip(ends_us).map(gap).collect::<Vec<_>>()]
        };
        // A host whose clock is 30 ppm off, seconds between its gaps.
        let mut ends: Vec<u64> =
            [3, 4, 9, 30, 41, 42, 99].map(|periods: u64| 81_000 + periods * 99_997).into();
        let reported = quota(&gaps(&ends)).unwrap();
        assert!(reported.starts_with("6 of 6 gaps"), "{reported}");
        // At any time; too few to report; and both CPUs at once are one.
        assert_eq!(quota(&gaps(&[10_000, 244_000, 371_000, 912_000, 1_555_000, 2_403_000, 3_891_000])), None);
        assert_eq!(quota(&gaps(&ends[..6])), None);
        ends.truncate(6);
        assert_eq!(quota(&[gaps(&ends).remove(0), gaps(&ends).remove(0)]), None);
    }

    #[test]
    fn a_slow_idle_exit_of_a_10_hz_loop_is_no_quota() {
        let gap = |index: u64, idle| {
            let due_ns = 5_000_000 + index * QUOTA_PERIOD_NS;
            Gap { span: Span { from_ns: due_ns, to_ns: due_ns + 1_500_000 }, stolen: false, idle }
        };
        assert_eq!(quota(&[(0..20).map(|index| gap(index, true)).collect()]), None);
        // A thread that computes all the time loses its CPU at the same moment of each period.
        let reported = quota(&[(0..20).map(|index| gap(index, false)).collect()]).unwrap();
        assert!(reported.starts_with("19 of 19 gaps"), "{reported}");
    }

    #[test]
    fn a_silence_that_nobody_was_charged_for_is_a_gap() {
        let at = |time_ns, kind| Event { time_ns, tid: 5, cpu: 1, kind };
        let charge = |time_ns, runtime_ns| at(time_ns, Kind::Runtime { tid: 5, runtime_ns });
        let quiet = |time_ns| at(time_ns, Kind::CpuIdle { state: None });
        let events = [
            charge(0, 10),
            // 4 ms, charged as 1 ms: 3 ms are missing, and nothing happened between 0.5 and 3.9 ms.
            quiet(500_000),
            quiet(3_900_000),
            charge(4_000_000, 1_000_000),
            // A long silence that was charged.
            charge(9_000_000, 5_000_000),
        ];
        let found = &gaps(&events, &[])[1];
        assert_eq!(
            found,
            &[Gap { span: Span { from_ns: 900_000, to_ns: 3_900_000 }, stolen: false, idle: false }]
        );
        let within = |gaps: &[Gap], from_ns, to_ns| {
            let Within { stolen_ns, gap_ns, .. } = Within::of(gaps, from_ns, to_ns);
            (stolen_ns, gap_ns)
        };
        assert_eq!(within(found, 1_000_000, 2_000_000), (0, 1_000_000));
        assert_eq!(within(found, 3_800_000, 9_000_000), (0, 100_000));
        // The same with a counter that moved.
        let readings = [
            StealReading { cpu: 1, time_ns: 0, stolen_ns: 0 },
            StealReading { cpu: 1, time_ns: 100_000_000, stolen_ns: 10_000_000 },
        ];
        assert_eq!(within(&gaps(&events, &readings)[1], 1_000_000, 2_000_000), (1_000_000, 0));
    }

    #[test]
    fn a_charge_from_another_cpu_is_of_the_cpu_that_runs_the_thread() {
        let at = |cpu, tid, time_ns, kind| Event { time_ns, tid, cpu, kind };
        let charge =
            |cpu, tid, time_ns, runtime_ns| at(cpu, tid, time_ns, Kind::Runtime { tid: 5, runtime_ns });
        let events = [
            at(0, 0, 0, Kind::CpuIdle { state: None }),
            charge(1, 5, 0, 10),
            // Idle CPU 0 wakes something on CPU 1, whose thread is charged with all of its 3 ms.
            charge(0, 0, 3_000_000, 3_000_000),
            // CPU 0 was silent, but not of thread 5; CPU 1 lacks nothing since the last charge.
            at(0, 0, 8_000_000, Kind::CpuIdle { state: None }),
            charge(0, 0, 9_000_000, 6_000_000),
            charge(1, 5, 10_000_000, 1_000_000),
        ];
        assert!(gaps(&events, &[]).iter().all(Vec::is_empty), "{:?}", gaps(&events, &[]));
    }

    #[test]
    fn a_gap_across_lost_events_is_none() {
        let at = |time_ns, kind| Event { time_ns, tid: 5, cpu: 0, kind };
        let events = [
            at(0, Kind::Runtime { tid: 5, runtime_ns: 10 }),
            at(3_000_000, Kind::Lost { count: 9 }),
            at(4_000_000, Kind::Runtime { tid: 5, runtime_ns: 1_000 }),
        ];
        assert_eq!(gaps(&events, &[]), [[]]);
    }

    #[test]
    fn steal_is_said_only_where_the_counter_agrees() {
        let stolen = |spans: &[Found], readings: &[StealReading]| {
            judge(spans, readings).iter().map(|gap| gap.stolen).collect::<Vec<_>>()
        };
        let one = [span_ms(10, 12)];
        // It moved soon after; it never moved; it moved too late; nobody read it before.
        assert_eq!(stolen(&one, &[reading(0, 70), reading(100, 80)]), [true]);
        assert_eq!(stolen(&one, &[reading(0, 70), reading(100, 70)]), [false]);
        assert_eq!(stolen(&one, &[reading(0, 70), reading(1900, 70), reading(2000, 80)]), [false]);
        assert_eq!(stolen(&one, &[reading(50, 70), reading(100, 80)]), [false]);
        assert_eq!(stolen(&one, &[]), [false]);
        // 50 ms are missing, and 10 are counted, 20 at most with the part that is cut off.
        let long = [span_ms(10, 60)];
        assert_eq!(stolen(&long, &[reading(0, 0), reading(100, 10)]), [false]);
        assert_eq!(stolen(&long, &[reading(0, 0), reading(100, 40)]), [true]);
        // Two gaps share what was counted; the third lies after it.
        let three = [span_ms(10, 19), span_ms(30, 39), span_ms(300, 301)];
        let readings = [reading(0, 0), reading(100, 10), reading(200, 10), reading(400, 10)];
        assert_eq!(stolen(&three, &readings), [true, true, false]);
        // Earlier gaps within the same reading's time count as well.
        let many = [span_ms(1, 30), span_ms(31, 33)];
        assert_eq!(stolen(&many, &[reading(0, 0), reading(100, 10)]), [false, false]);
    }
}

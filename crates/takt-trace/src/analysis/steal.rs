//! Time that was taken from a running thread and that nobody in this kernel saw: stolen by a
//! hypervisor, or a gap that it (or the firmware, by an SMI) made without telling.
//!
//! Where a hypervisor tells its guest of the time that it steals, the scheduler leaves that out of
//! what it charges to threads (`sched_stat_runtime`). So a gap is wall time that was not charged,
//! placed in the silences of the CPU's events. It is called steal only if the CPU's counter of
//! stolen time agrees; that one counts in hundredths of a second, so a short gap must wait until
//! the counter has moved, and it must have moved enough for all gaps until then.

use std::collections::HashMap;

use crate::event::{Event, Kind, Span, StealReading};

/// Less is noise of the time stamps.
const LEAST_NS: u64 = 20_000;

/// How much the counter may lag: it is cut off to USER_HZ, 10 ms on every architecture of today.
const RESOLUTION_NS: u64 = 10_000_000;

/// The counter must have moved within this time after a gap; later it speaks of something else.
const HORIZON_NS: u64 = 1_000_000_000;

/// Time of a CPU that nobody saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Gap {
    pub(super) span: Span,
    /// The hypervisor's counter agrees.
    pub(super) stolen: bool,
}

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
    gaps: Vec<Span>,
}

/// Finds the gaps in events that pass in the order of time.
#[derive(Default)]
pub(super) struct GapFinder(Vec<Cpu>);

impl GapFinder {
    pub(super) fn see(&mut self, event: &Event) {
        let index = usize::from(event.cpu);
        if self.0.len() <= index {
            self.0.resize_with(index + 1, Cpu::default);
        }
        self.0[index].see(event);
    }

    /// The gaps by CPU, each list in the order of time.
    pub(super) fn finish(self, readings: &[StealReading]) -> Vec<Vec<Gap>> {
        let mut by_cpu: HashMap<u16, Vec<StealReading>> = HashMap::new();
        for &reading in readings {
            by_cpu.entry(reading.cpu).or_default().push(reading);
        }
        let judged = self.0.into_iter().enumerate().map(|(index, mut cpu)| {
            cpu.gaps.sort_by_key(|span| span.from_ns);
            let readings = u16::try_from(index).ok().and_then(|cpu| by_cpu.get(&cpu));
            judge(&cpu.gaps, readings.map_or(&[][..], Vec::as_slice))
        });
        judged.collect()
    }
}

impl Cpu {
    fn see(&mut self, event: &Event) {
        let now_ns = event.time_ns;
        if now_ns.saturating_sub(self.last_ns) >= LEAST_NS && self.since.is_some() {
            self.silences.push(Span { from_ns: self.last_ns, to_ns: now_ns });
        }
        self.last_ns = now_ns;
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
            Kind::Runtime { tid, runtime_ns } => {
                if let Some((who, since_ns)) = self.since
                    && who == tid
                {
                    // Interrupts may or may not be charged (CONFIG_IRQ_TIME_ACCOUNTING); they are
                    // never theft.
                    let wall_ns = now_ns.saturating_sub(since_ns).saturating_sub(self.interrupts_ns);
                    let short_ns = wall_ns.saturating_sub(runtime_ns);
                    if short_ns >= LEAST_NS {
                        place(short_ns, &mut self.silences, &mut self.gaps);
                    }
                }
                self.restart(Some((tid, now_ns)));
            }
            Kind::Switch { next_tid, .. } => {
                self.interrupt_depth = 0;
                self.restart((next_tid != 0).then_some((next_tid, now_ns)));
            }
            Kind::Lost { .. } => {
                self.interrupt_depth = 0;
                self.restart(None);
            }
            _ => {}
        }
    }

    fn restart(&mut self, since: Option<(i32, u64)>) {
        self.since = since;
        self.silences.clear();
        self.interrupts_ns = 0;
        self.interrupt_since = self.last_ns;
    }
}

/// Puts the missing time at the ends of the longest silences.
fn place(mut short_ns: u64, silences: &mut [Span], into: &mut Vec<Span>) {
    silences.sort_by_key(|span| std::cmp::Reverse(span.to_ns - span.from_ns));
    for silence in silences {
        let part_ns = short_ns.min(silence.to_ns - silence.from_ns);
        into.push(Span { from_ns: silence.to_ns - part_ns, to_ns: silence.to_ns });
        short_ns -= part_ns;
        if short_ns < LEAST_NS {
            break;
        }
    }
}

/// Asks the readings of one CPU's counter, in the order of time, about its gaps.
fn judge(gaps: &[Span], readings: &[StealReading]) -> Vec<Gap> {
    let length = |gap: &Span| gap.to_ns - gap.from_ns;
    let agrees = |index: usize, gap: &Span| {
        let first = readings.partition_point(|reading| reading.time_ns <= gap.from_ns);
        let Some(before) = first.checked_sub(1).map(|first| readings[first]) else { return false };
        // A reading stands for the time since the one before, so gaps in that time are its own as
        // well.
        let since = gaps[..index].partition_point(|other| other.from_ns < before.time_ns);
        let mut claimed_ns = gaps[since..=index].iter().map(length).fold(0, u64::saturating_add);
        let mut next = index + 1;
        for reading in readings[first..].iter().filter(|reading| reading.time_ns >= gap.to_ns) {
            if reading.time_ns > gap.to_ns.saturating_add(HORIZON_NS) {
                break;
            }
            while let Some(other) = gaps.get(next).filter(|other| other.to_ns <= reading.time_ns) {
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
    gaps.iter().enumerate().map(|(index, gap)| Gap { span: *gap, stolen: agrees(index, gap) }).collect()
}

/// Whether the counter of this CPU moved by `ns` about a span: between the last reading before it
/// and one soon after.
pub(super) fn counted(readings: &[StealReading], cpu: u16, span: &Span, ns: u64) -> bool {
    let of_cpu = || readings.iter().filter(|reading| reading.cpu == cpu);
    let Some(before) = of_cpu().rfind(|reading| reading.time_ns <= span.from_ns) else { return false };
    let soon = span.to_ns..=span.to_ns.saturating_add(HORIZON_NS);
    of_cpu().filter(|reading| soon.contains(&reading.time_ns)).any(|reading| {
        let counted_ns = reading.stolen_ns.saturating_sub(before.stolen_ns);
        counted_ns > 0 && counted_ns.saturating_add(RESOLUTION_NS) >= ns
    })
}

/// How much of `from_ns..to_ns` lies in gaps: stolen, and not explained.
pub(super) fn overlap(gaps: &[Gap], from_ns: u64, to_ns: u64) -> (u64, u64) {
    let first = gaps.partition_point(|gap| gap.span.to_ns <= from_ns);
    let mut lengths = (0, 0);
    for gap in gaps[first..].iter().take_while(|gap| gap.span.from_ns < to_ns) {
        let length_ns = gap.span.to_ns.min(to_ns) - gap.span.from_ns.max(from_ns);
        if gap.stolen {
            lengths.0 += length_ns;
        } else {
            lengths.1 += length_ns;
        }
    }
    lengths
}

/// How much of `from_ns..to_ns` lies in spans, which are in the order of time and apart from each
/// other.
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

    fn span_ms(from_ms: u64, to_ms: u64) -> Span {
        Span { from_ns: from_ms * 1_000_000, to_ns: to_ms * 1_000_000 }
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
        assert_eq!(found, &[Gap { span: Span { from_ns: 900_000, to_ns: 3_900_000 }, stolen: false }]);
        assert_eq!(overlap(found, 1_000_000, 2_000_000), (0, 1_000_000));
        assert_eq!(overlap(found, 3_800_000, 9_000_000), (0, 100_000));
        // The same with a counter that moved.
        let readings = [
            StealReading { cpu: 1, time_ns: 0, stolen_ns: 0 },
            StealReading { cpu: 1, time_ns: 100_000_000, stolen_ns: 10_000_000 },
        ];
        assert_eq!(overlap(&gaps(&events, &readings)[1], 1_000_000, 2_000_000), (1_000_000, 0));
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
        let stolen = |spans: &[Span], readings: &[StealReading]| {
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
        // What went before in the same reading's time counts as well.
        let many = [span_ms(1, 30), span_ms(31, 33)];
        assert_eq!(stolen(&many, &[reading(0, 0), reading(100, 10)]), [false, false]);
    }
}

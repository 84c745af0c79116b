//! Time that a hypervisor took from a running thread: wall time that the scheduler's clock did not charge, placed in
//! the silences of the CPU's events.
//!
//! Where a hypervisor tells its guest (steal time), the scheduler leaves it out of what it charges
//! (`sched_stat_runtime`). So two witnesses must agree: the charge falls short, and nobody saw anything meanwhile.

use std::collections::HashMap;

use crate::event::{Event, Kind, Span};

/// Less is noise of the time stamps.
const LEAST_NS: u64 = 20_000;

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
}

/// Stolen spans by CPU, in the order of time.
pub(super) fn stolen(events: &[Event]) -> HashMap<u16, Vec<Span>> {
    let mut cpus: HashMap<u16, Cpu> = HashMap::new();
    let mut stolen: HashMap<u16, Vec<Span>> = HashMap::new();
    for event in events {
        let cpu = cpus.entry(event.cpu).or_default();
        let now_ns = event.time_ns;
        if now_ns.saturating_sub(cpu.last_ns) >= LEAST_NS && cpu.since.is_some() {
            cpu.silences.push(Span { from_ns: cpu.last_ns, to_ns: now_ns });
        }
        cpu.last_ns = now_ns;
        match event.kind {
            Kind::VectorEntry(_) | Kind::IrqEntry { .. } | Kind::SoftirqEntry(_) => {
                if cpu.interrupt_depth == 0 {
                    cpu.interrupt_since = now_ns;
                }
                cpu.interrupt_depth += 1;
            }
            Kind::VectorExit(_) | Kind::IrqExit { .. } | Kind::SoftirqExit(_) => {
                cpu.interrupt_depth = cpu.interrupt_depth.saturating_sub(1);
                if cpu.interrupt_depth == 0 {
                    cpu.interrupts_ns += now_ns.saturating_sub(cpu.interrupt_since);
                }
            }
            Kind::Runtime { tid, runtime_ns } => {
                if let Some((who, since_ns)) = cpu.since
                    && who == tid
                {
                    // Interrupts may or may not be charged (CONFIG_IRQ_TIME_ACCOUNTING); they are never theft.
                    let wall_ns = now_ns.saturating_sub(since_ns).saturating_sub(cpu.interrupts_ns);
                    let short_ns = wall_ns.saturating_sub(runtime_ns);
                    if short_ns >= LEAST_NS {
                        place(short_ns, &mut cpu.silences, stolen.entry(event.cpu).or_default());
                    }
                }
                cpu.restart(Some((tid, now_ns)));
            }
            Kind::Switch { next_tid, .. } => {
                cpu.interrupt_depth = 0;
                cpu.restart((next_tid != 0).then_some((next_tid, now_ns)));
            }
            Kind::Lost { .. } => {
                cpu.interrupt_depth = 0;
                cpu.restart(None);
            }
            _ => {}
        }
    }
    for spans in stolen.values_mut() {
        spans.sort_by_key(|span| span.from_ns);
    }
    stolen
}

impl Cpu {
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

/// How much of `from_ns..to_ns` lies in `spans`.
pub(super) fn overlap(spans: &[Span], from_ns: u64, to_ns: u64) -> u64 {
    let first = spans.partition_point(|span| span.to_ns <= from_ns);
    let overlapping = spans[first..].iter().take_while(|span| span.from_ns < to_ns);
    overlapping.map(|span| span.to_ns.min(to_ns) - span.from_ns.max(from_ns)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silence_that_nobody_was_charged_for_was_stolen() {
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
        let stolen = stolen(&events);
        assert_eq!(stolen[&1], [Span { from_ns: 900_000, to_ns: 3_900_000 }]);
        assert_eq!(overlap(&stolen[&1], 1_000_000, 2_000_000), 1_000_000);
        assert_eq!(overlap(&stolen[&1], 3_800_000, 9_000_000), 100_000);
    }
}

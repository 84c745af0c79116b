//! Brings the events of a recorded file to CLOCK_MONOTONIC.
//!
//! Both recorders stamp events by a clock of their own unless asked otherwise (`local`, perf's
//! sched_clock). Each `hrtimer_expire_entry` has two clocks, though: its stamp, and the reading of
//! the timer's clock on which the kernel decided that the timer was due (`now`). The kernel reads
//! `now` first, so a stamp is later than its `now` by the offset of the clocks and a delay of 0.3
//! us or more. The pair with the least delay in each tenth of a second is an anchor, and stamps
//! between two anchors are interpolated. This follows the drift of the clocks and the rate of
//! clocks that count cycles.
//!
//! The interrupt's own event bounds the error from the other side: its stamp is taken before `now`
//! is read.

use std::collections::BTreeMap;

use crate::event::{Clock, ClockMap, Event, Kind, Softirq, Trace, Vector};

/// Length of the windows of which each gives an anchor. Clocks of one machine drift apart by 500
/// ppm at most (adjtimex(2)), 50 us in a window; 10 ppm are usual.
const WINDOW_NS: i128 = 100_000_000;

/// The most that two clocks that count nanoseconds are believed to drift apart: an anchor that
/// needs more is the pair of an expiry that was held up.
const MAX_DRIFT: f64 = 1e-3;

/// Offsets further apart than this belong to timers of different clocks. Suspending a machine
/// separates CLOCK_BOOTTIME from CLOCK_MONOTONIC by more.
const APART_NS: f64 = 500e6;

/// Readings of clocks that count from boot are below this (15 years), those of CLOCK_REALTIME and
/// CLOCK_TAI above it from 1985 on.
const SINCE_BOOT_NS: u64 = 473_000_000_000_000_000;

/// Unit of `uptime`.
const HUNDREDTH_NS: u64 = 10_000_000;

/// Unit of a clock of ftrace or perf.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    Nanoseconds,
    /// Cycles of the CPU's counter, at a rate that the pairs show.
    Cycles,
    /// `counter`: each event of the machine counts one.
    Events,
    /// `uptime`: hundredths of a second.
    Hundredths,
}

impl Unit {
    fn of(clock: &str) -> Self {
        match clock {
            "x86-tsc" | "ppc-tb" | "s390-tod" => Self::Cycles,
            "counter" => Self::Events,
            "uptime" => Self::Hundredths,
            _ => Self::Nanoseconds,
        }
    }

    /// Examines the events of a clock that is said to count nanoseconds. trace-cmd 3.1 writes the
    /// name of the main buffer's clock for a trace instance, whichever clock the instance has.
    fn seen(events: &[Event], pairs: &[Pair]) -> Self {
        let since_boot = since_boot(pairs);
        let slopes = slopes(&since_boot);
        let at = |quarter: usize| slopes.get(slopes.len() * quarter / 4).copied();
        let (Some(low), Some(middle), Some(high)) = (at(1), at(2), at(3)) else { return Self::Nanoseconds };
        let stamps = 1 + events.windows(2).filter(|pair| pair[0].time_ns != pair[1].time_ns).count();
        if (middle - 1.0).abs() < MAX_DRIFT {
            Self::Nanoseconds
        } else if stamps * 20 < events.len() {
            Self::Hundredths
        } else if high - low < 0.01 * middle {
            Self::Cycles
        } else {
            Self::Events
        }
    }

    fn describe(self) -> &'static str {
        match self {
            Self::Nanoseconds => "nanoseconds",
            Self::Cycles => "cycles",
            Self::Events => "events",
            Self::Hundredths => "hundredths of a second",
        }
    }
}

/// An expiry: its stamp and the reading of the timer's clock.
#[derive(Debug, Clone, Copy)]
struct Pair {
    key: u64,
    now_ns: u64,
    /// The stamp of the interrupt that found the timer due.
    entry: Option<u64>,
}

/// Brings the events to CLOCK_MONOTONIC where the file has pairs, and notes how. Events of a clock
/// that does not count time and has no pairs cannot be read; the error is the clock's unit.
pub(super) fn to_monotonic(trace: &mut Trace) -> Result<(), &'static str> {
    let pairs = pairs(&trace.events, |event, _| event.time_ns);
    let name = match trace.clock.clone() {
        Clock::Other(name) => name,
        Clock::Monotonic if is_monotonic(&pairs) => return Ok(()),
        Clock::Monotonic => {
            trace
                .notes
                .push("the file claims CLOCK_MONOTONIC as its clock, but its timers show another one".into());
            "claimed to be mono, but is not".to_owned()
        }
    };
    let unit = match Unit::of(&name) {
        Unit::Nanoseconds => Unit::seen(&trace.events, &pairs),
        unit => unit,
    };
    if unit == Unit::Hundredths {
        hundredths(trace, &name);
        return Ok(());
    }
    let Some(line) = Line::through(&pairs, unit) else {
        if unit == Unit::Cycles || unit == Unit::Events {
            return Err(unit.describe());
        }
        unmapped(trace, &name);
        return Ok(());
    };
    let map = line.describe(&name, unit);
    for event in &mut trace.events {
        event.time_ns = line.at(event.time_ns);
    }
    note(trace, map, unit);
    Ok(())
}

/// Whether stamps and the readings of timers can be of one clock: some expiry is reported within a
/// millisecond of the reading.
fn is_monotonic(pairs: &[Pair]) -> bool {
    const NEAR_NS: u64 = 1_000_000;
    let since_boot = since_boot(pairs);
    since_boot.len() < 8 || since_boot.iter().any(|pair| pair.key.wrapping_sub(pair.now_ns) < NEAR_NS)
}

/// The pairs of clocks that count from boot, where there are any.
fn since_boot(pairs: &[Pair]) -> Vec<Pair> {
    let any = pairs.iter().any(|pair| pair.now_ns < SINCE_BOOT_NS);
    pairs.iter().filter(|pair| !any || pair.now_ns < SINCE_BOOT_NS).copied().collect()
}

/// `uptime` has the same stamp for all events of 10 ms. Those of one CPU are in the order that they
/// happened, so the place of an event in that order is the clock, CPU by CPU.
fn hundredths(trace: &mut Trace, name: &str) {
    let mut places: BTreeMap<u16, u64> = BTreeMap::new();
    let keys: Vec<u64> = (trace.events.iter())
        .map(|event| {
            let place = places.entry(event.cpu).or_default();
            *place += 1;
            *place
        })
        .collect();
    let mut all: Option<ClockMap> = None;
    for &cpu in places.keys() {
        let (events, own): (Vec<Event>, Vec<u64>) = (trace.events.iter().zip(&keys))
            .filter(|(event, _)| event.cpu == cpu)
            .map(|(event, &key)| (*event, key))
            .unzip();
        let line = Line::through(&pairs(&events, |_, index| own[index]), Unit::Events);
        let map = line.as_ref().map(|line| line.describe(name, Unit::Hundredths));
        for (event, &key) in trace.events.iter_mut().zip(&keys).filter(|(event, _)| event.cpu == cpu) {
            event.time_ns = match &line {
                Some(line) => line.at(key),
                // Jiffies begin with CLOCK_MONOTONIC.
                None => event.time_ns.saturating_mul(HUNDREDTH_NS),
            };
        }
        all = match (all, map) {
            (Some(all), Some(map)) => {
                let error_ns = all.error_ns.max(map.error_ns);
                Some(ClockMap { pairs: all.pairs + map.pairs, error_ns, ..all })
            }
            (Some(all), None) => Some(ClockMap { error_ns: all.error_ns.max(2 * HUNDREDTH_NS), ..all }),
            (None, map) => map,
        };
    }
    trace.sort();
    match all {
        Some(map) => note(trace, map, Unit::Hundredths),
        None => {
            unmapped(trace, name);
            trace.notes.push("this clock advances in steps of 10 ms, so shorter times mean nothing".into());
        }
    }
}

fn note(trace: &mut Trace, map: ClockMap, unit: Unit) {
    let offset = match map.offset_ns {
        Some([least, median, most]) => {
            let ms = |ns: i64| ns as f64 / 1e6;
            format!(
                "stamp less `now` is {:.4} to {:.4} ms, median {:.4} ms; ",
                ms(least),
                ms(most),
                ms(median)
            )
        }
        None => format!("it counts {}; ", unit.describe()),
    };
    let error_us = map.error_ns as f64 / 1e3;
    let error = match (unit, map.error_is_bound) {
        (Unit::Events | Unit::Hundredths, _) => format!(
            "the time between two pairs is interpolated, so times may be wrong by up to {error_us:.0} us"
        ),
        (_, true) => {
            format!("times are wrong by at most {error_us:.1} us, according to the interrupts' timestamps")
        }
        (_, false) => format!(
            "times are wrong by about {error_us:.1} us, judged by the scatter of the pairs (the file has no interrupts that bound it)"
        ),
    };
    trace.notes.push(format!(
        "times are converted from the clock `{}` to CLOCK_MONOTONIC with {} pairs (`now` of hrtimer_expire_entry): {offset}{error}",
        map.from, map.pairs
    ));
    trace.clock = Clock::Monotonic;
    trace.clock_map = Some(map);
}

/// Without pairs, times are those of the file; what timers were set to is of another clock and
/// must not be compared with them.
fn unmapped(trace: &mut Trace, name: &str) {
    let before = trace.events.len();
    trace.events.retain(|event| !matches!(event.kind, Kind::TimerStart { .. }));
    let left_out = match before - trace.events.len() {
        0 => String::new(),
        timers => format!("; {timers} hrtimer_start events, whose times are CLOCK_MONOTONIC, are left out"),
    };
    trace.notes.push(format!(
        "times are those of the clock `{name}`: the file has no hrtimer_expire_entry event with which to convert them to CLOCK_MONOTONIC, \
         so a release counts from its wake-up{left_out}"
    ));
}

/// All pairs, in the order of the events.
fn pairs(events: &[Event], key: impl Fn(&Event, usize) -> u64) -> Vec<Pair> {
    // The stamps of the interrupt and the software interrupt that each CPU is in.
    let mut entries: BTreeMap<u16, (Option<u64>, Option<u64>)> = BTreeMap::new();
    let mut pairs = Vec::new();
    for (index, event) in events.iter().enumerate() {
        let entry = entries.entry(event.cpu).or_default();
        let stamp = key(event, index);
        match event.kind {
            Kind::VectorEntry(Vector::LocalTimer) | Kind::IrqEntry { .. } => entry.0 = Some(stamp),
            Kind::VectorExit(_) | Kind::IrqExit { .. } => entry.0 = None,
            Kind::SoftirqEntry(Softirq::HRTIMER) => entry.1 = Some(stamp),
            Kind::SoftirqExit(_) => entry.1 = None,
            Kind::Lost { .. } => *entry = (None, None),
            Kind::TimerExpireEntry { now_ns, .. } if now_ns > 0 => {
                pairs.push(Pair { key: stamp, now_ns, entry: entry.0.or(entry.1) });
            }
            _ => {}
        }
    }
    pairs
}

/// A line through anchors, which never falls.
#[derive(Debug)]
struct Line {
    /// Stamp and CLOCK_MONOTONIC, both growing; one at least.
    anchors: Vec<(u64, u64)>,
    /// Nanoseconds for one of the clock, beyond the first and the last anchor.
    rate: f64,
    /// The pairs of CLOCK_MONOTONIC.
    pairs: Vec<Pair>,
}

impl Line {
    fn through(pairs: &[Pair], unit: Unit) -> Option<Self> {
        let pairs = since_boot(pairs);
        let first = *pairs.first()?;
        let rate = match unit {
            Unit::Nanoseconds => 1.0,
            // The median: pairs of another clock do not move it.
            _ => {
                let slopes = slopes(&pairs);
                slopes.get(slopes.len() / 2).copied()?
            }
        };
        let offset = |pair: &Pair| {
            let (stamp, now) = (difference(pair.key, first.key), difference(pair.now_ns, first.now_ns));
            match unit {
                Unit::Nanoseconds => (stamp - now) as f64,
                _ => stamp as f64 * rate - now as f64,
            }
        };
        let chosen = match unit {
            // Its rate changes all the time: there are no offsets to tell clocks apart by.
            Unit::Events | Unit::Hundredths => pairs,
            _ => of_one_clock(&pairs, &offset),
        };
        let mut anchors: Vec<Pair> = Vec::new();
        match unit {
            Unit::Events | Unit::Hundredths => anchors.clone_from(&chosen),
            _ => {
                for pair in &chosen {
                    let window = |pair: &Pair| i128::from(pair.now_ns) / WINDOW_NS;
                    match anchors.last_mut() {
                        Some(last) if window(last) == window(pair) => {
                            if offset(pair) < offset(last) {
                                *last = *pair;
                            }
                        }
                        _ => anchors.push(*pair),
                    }
                }
                anchors = not_held_up(anchors, &offset);
            }
        }
        let mut growing: Vec<(u64, u64)> = Vec::with_capacity(anchors.len());
        for pair in anchors {
            if growing.last().is_none_or(|last| last.0 < pair.key && last.1 < pair.now_ns) {
                growing.push((pair.key, pair.now_ns));
            }
        }
        Some(Self { anchors: growing, rate, pairs: chosen })
    }

    /// A stamp on CLOCK_MONOTONIC.
    fn at(&self, key: u64) -> u64 {
        let behind = self.anchors.partition_point(|anchor| anchor.0 <= key);
        let beyond = |anchor: (u64, u64)| {
            let distance = difference(key, anchor.0);
            let distance = if self.rate == 1.0 { distance } else { (distance as f64 * self.rate) as i128 };
            u64::try_from(i128::from(anchor.1) + distance).unwrap_or(0)
        };
        match (behind.checked_sub(1).map(|at| self.anchors[at]), self.anchors.get(behind).copied()) {
            (Some(from), Some(to)) => {
                let (all, part) = (u128::from(to.0 - from.0), u128::from(key - from.0));
                // Anchors grow, so neither difference is negative nor `all` 0.
                from.1 + (u128::from(to.1 - from.1) * part / all) as u64
            }
            (Some(anchor), None) | (None, Some(anchor)) => beyond(anchor),
            (None, None) => key,
        }
    }

    /// Note for the reader.
    fn describe(&self, from: &str, unit: Unit) -> ClockMap {
        let offset_ns = (unit == Unit::Nanoseconds).then(|| {
            let mut offsets: Vec<i64> = (self.pairs.iter())
                .map(|pair| i64::try_from(difference(pair.key, pair.now_ns)).unwrap_or(i64::MAX))
                .collect();
            offsets.sort_unstable();
            let at = |at: usize| offsets.get(at).copied().unwrap_or(0);
            [at(0), at(offsets.len() / 2), at(offsets.len().saturating_sub(1))]
        });
        let (error_ns, error_is_bound) = match unit {
            Unit::Events | Unit::Hundredths => {
                let gaps = self.anchors.windows(2).map(|pair| pair[1].1 - pair[0].1);
                (gaps.max().unwrap_or(0), true)
            }
            _ => self.error(),
        };
        ClockMap {
            from: from.to_owned(),
            pairs: self.pairs.len() as u64,
            offset_ns,
            error_ns,
            error_is_bound,
        }
    }

    /// Largest error of the times, and whether that is a bound or an estimate.
    ///
    /// Of an expiry the interrupt came before `now` was read, and the event after it. If times are
    /// too early by e, no interrupt can be mapped later than e before its `now`; if they are too
    /// late by e, every expiry is mapped to e after its `now` at least.
    fn error(&self) -> (u64, bool) {
        let mut windows: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        let mut late: Vec<u64> = Vec::with_capacity(self.pairs.len());
        for pair in &self.pairs {
            let after_ns = self.at(pair.key).abs_diff(pair.now_ns);
            late.push(after_ns);
            let Some(entry) = pair.entry else { continue };
            let before_ns = pair.now_ns.saturating_sub(self.at(entry));
            let window = windows.entry(pair.now_ns / WINDOW_NS as u64).or_insert((u64::MAX, u64::MAX));
            *window = (window.0.min(before_ns), window.1.min(after_ns));
        }
        match windows.values().map(|&(before_ns, after_ns)| before_ns.max(after_ns)).max() {
            Some(bound_ns) => (bound_ns.max(1), true),
            None => {
                let middle = late.len() / 2;
                let scatter_ns = if late.is_empty() { 0 } else { *late.select_nth_unstable(middle).1 };
                (scatter_ns.max(1000), false)
            }
        }
    }
}

fn difference(a: u64, b: u64) -> i128 {
    i128::from(a) - i128::from(b)
}

/// Nanoseconds for one of the clock between pairs that are half of all apart, sorted.
fn slopes(pairs: &[Pair]) -> Vec<f64> {
    let half = (pairs.len() / 2).max(1);
    let mut slopes: Vec<f64> = (pairs.iter().zip(pairs.get(half..).unwrap_or_default()))
        .map(|(a, b)| difference(b.now_ns, a.now_ns) as f64 / difference(b.key, a.key) as f64)
        .filter(|slope| slope.is_finite() && *slope > 0.0)
        .collect();
    slopes.sort_unstable_by(f64::total_cmp);
    slopes
}

/// The pairs of CLOCK_MONOTONIC: it counts less than CLOCK_BOOTTIME once the machine was suspended,
/// so that its offset is the largest. A fiftieth of the pairs is of the kernel's tick at least,
/// which is of that clock; fewer are damage.
fn of_one_clock(pairs: &[Pair], offset: &dyn Fn(&Pair) -> f64) -> Vec<Pair> {
    let mut sorted: Vec<f64> = pairs.iter().map(offset).collect();
    sorted.sort_unstable_by(f64::total_cmp);
    let enough = sorted.len().div_ceil(50);
    let mut end = sorted.len();
    let mut range = (f64::MIN, f64::MAX);
    for at in (0..sorted.len()).rev() {
        if at == 0 || sorted[at] - sorted[at - 1] > APART_NS {
            if end - at >= enough {
                range = (sorted[at], sorted[end - 1]);
                break;
            }
            end = at;
        }
    }
    pairs.iter().filter(|pair| (range.0..=range.1).contains(&offset(pair))).copied().collect()
}

/// Leaves out anchors that need more drift than there is: in their window no timer fired in time.
fn not_held_up(anchors: Vec<Pair>, offset: &dyn Fn(&Pair) -> f64) -> Vec<Pair> {
    let mut keep = vec![true; anchors.len()];
    let mut sweep = |order: &mut dyn Iterator<Item = usize>| {
        let mut last: Option<(f64, u64)> = None;
        for at in order {
            let (own, now_ns) = (offset(&anchors[at]), anchors[at].now_ns);
            let most =
                last.map_or(f64::MAX, |(least, of_ns)| least + MAX_DRIFT * now_ns.abs_diff(of_ns) as f64);
            keep[at] &= own <= most;
            if own <= most {
                last = Some((own, now_ns));
            }
        }
    };
    sweep(&mut (0..anchors.len()));
    sweep(&mut (0..anchors.len()).rev());
    anchors.iter().zip(keep).filter(|(_, keep)| *keep).map(|(pair, _)| *pair).collect()
}

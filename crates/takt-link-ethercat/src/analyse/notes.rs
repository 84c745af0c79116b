//! What a capture cannot tell, and what stands against what it was asked.

use super::Limits;
use super::intervals::Judged;
use super::report::micros;
use super::ways::{FrameTimes, Frames};

/// The mean of all intervals may differ so much from most of them before cycles are missing.
const PERIOD_TOLERANCE: f64 = 0.01;
/// And from the period that was asked for: two clocks that run free differ by a tenth of that, and
/// one late frame at an end of 500 cycles makes up the rest.
const ASKED_TOLERANCE: f64 = 0.002;

/// What the capture cannot tell, and what it says of itself.
pub(super) fn notes(
    ways: &Frames,
    cycles_found: Option<usize>,
    is_missing: bool,
    intervals: &Option<Judged>,
    limits: &Limits,
) -> Vec<String> {
    let mut notes = Vec::new();
    notes.extend(intervals.as_ref().and_then(|judged| of_period(judged, limits)));
    notes.extend(of_clock(ways));
    notes.extend(of_probe(ways));
    if ways.interfaces_joined > 1 {
        notes.push(format!(
            "{} interfaces saw the same frames; the one that frames reach first counts as the master's end of the wire, the \
             last one as the devices' end",
            ways.interfaces_joined
        ));
    }
    let is_answered = |way: &FrameTimes| way.from_segment_ns.or(way.returned_ns).is_some();
    if !ways.ways.is_empty() && !ways.ways.iter().any(is_answered) {
        notes.push(
            "the capture has no frame on its way back: record both directions, or nothing can be said of round trips".to_owned(),
        );
    }
    if is_missing && !ways.has_segment && !ways.is_probed {
        // Seen in captures of TwinCAT by Windows' drivers: neither frame nor answer of 25 indices
        // in a row, and no packet counted as lost.
        notes.push(
            "what the capture itself lost looks missing, too, and not every driver counts it; compare with the master's own \
             count of lost frames"
                .to_owned(),
        );
    }
    if ways.has_master && !ways.has_segment && !ways.is_probed {
        notes.push(
            "captured at the master's host alone: what took long beyond its interface may be the network card, the wire or a \
             device; a capture at the devices' end, too (takt segment --capture, a tap at the first device) distinguishes them"
                .to_owned(),
        );
    }
    if !ways.has_master && ways.has_segment && !ways.is_probed {
        notes.push(
            "captured at the segment alone: the way between master and segment is not in it".to_owned(),
        );
    }
    match cycles_found {
        None if ways.is_probed => notes.push(
            "what the master's application, its stack and its network card did before a frame reached the probe looks as if the \
             application had sent late"
                .to_owned(),
        ),
        None => notes.push(
            "without the application's own stamps (--run) a frame that waited in the host's stack looks as if it was sent late, and \
             one that was dropped there as if the application had left a cycle out"
                .to_owned(),
        ),
        Some(0) => notes.push(
            "no cycle of the application's log fits a frame: it is of another time, or of another clock".to_owned(),
        ),
        Some(_) => {}
    }
    notes
}

/// Where the period is not what it was said to be, or sends are missing.
fn of_period(judged: &Judged, limits: &Limits) -> Option<String> {
    let mean_us = judged.mean_ns / 1e3;
    let is_near =
        |period_ns: f64, tolerance: f64| (judged.mean_ns - period_ns).abs() <= period_ns * tolerance;
    let sends = judged.facts.n + 1;
    if let Some(asked_ns) = limits.period_ns {
        return (!is_near(asked_ns as f64, ASKED_TOLERANCE)).then(|| {
            let asked_us = micros(asked_ns);
            format!("{sends} sends are {mean_us:.1} µs apart on average, and not {asked_us:.1} µs as --period says")
        });
    }
    let median_us = judged.facts.median;
    (judged.has_grid && !is_near(median_us * 1e3, PERIOD_TOLERANCE)).then(|| {
        format!(
            "{sends} sends are {mean_us:.1} µs apart on average, most of them {median_us:.1} µs: cycles are missing, or the \
             master paused; lateness is counted by {median_us:.1} µs"
        )
    })
}

/// Where the clock of the capturing computer was set back.
fn of_clock(ways: &Frames) -> Option<String> {
    let (steps, longest_ns, first) = ways.clock_steps;
    let times = if steps == 1 { "once".to_owned() } else { format!("{steps} times") };
    (steps > 0).then(|| {
        format!(
            "the capture's clock was set back {times}, by {:.1} ms at most, first before frame {first}: times go on from there as if \
             nothing had been sent meanwhile, and that interval is not known",
            longest_ns as f64 / 1e6
        )
    })
}

fn of_probe(ways: &Frames) -> Option<String> {
    let unstamped = match ways.unstamped {
        0 => String::new(),
        frames => format!("; {frames} frames without its stamp are not judged"),
    };
    ways.is_probed.then(|| {
        format!(
            "a probe on the wire stamped the frames (EtherCAT Switch Link): its stamps and ports are judged, and not when the \
             recording computer got them{unstamped}"
        )
    })
}

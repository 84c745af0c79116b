//! Limits of a capture's evidence, and contradictions to the given parameters.

use super::Limits;
use super::intervals::Judged;
use super::report::micros;
use super::ways::{FrameTimes, Frames};

/// The mean of all intervals may differ so much from most of them before cycles are missing.
const PERIOD_TOLERANCE: f64 = 0.01;
/// And from the period that was asked for: two clocks that run free differ by a tenth of that, and
/// one late frame at an end of 500 cycles makes up the rest.
const ASKED_TOLERANCE: f64 = 0.002;

/// Notes on the limits of the capture's evidence, and its own description.
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
            "{} interfaces saw the same frames; the first one that frames reach counts as the master's end of the wire, the last one as \
             the devices' end",
            ways.interfaces_joined
        ));
    }
    let is_answered = |way: &FrameTimes| way.from_segment_ns.or(way.returned_ns).is_some();
    if !ways.ways.is_empty() && !ways.ways.iter().any(is_answered) {
        notes.push(
            "the capture has no frame on its way back: record both directions, otherwise round trips are unknown".to_owned(),
        );
    }
    if is_missing && !ways.has_segment && !ways.is_probed {
        // Seen in captures of TwinCAT by Windows' drivers: neither frame nor answer of 25 indices
        // in a row, and no packet counted as lost.
        notes.push(
            "frames lost by the capture itself look missing, too, and not every driver counts them; compare with the master's own count of \
             lost frames"
                .to_owned(),
        );
    }
    if ways.has_master && !ways.has_segment && !ways.is_probed {
        notes.push(
            "captured only at the master's host: delays beyond its interface may come from the network card, the wire or a device; a \
             second capture at the devices' end (takt segment --capture, a tap at the first device) distinguishes them"
                .to_owned(),
        );
    }
    if !ways.has_master && ways.has_segment && !ways.is_probed {
        notes.push(
            "captured only at the segment: the path between master and segment is not covered".to_owned(),
        );
    }
    match cycles_found {
        None if ways.is_probed => notes.push(
            "delays in the master's application, network stack and card before a frame reached the probe look as if the application had \
             sent late"
                .to_owned(),
        ),
        None => notes.push(
            "without the application's own timestamps (--run), a frame that waited in the host's stack looks sent late, and a frame \
             dropped there looks like a cycle that the application skipped"
                .to_owned(),
        ),
        Some(0) => notes.push(
            "no cycle of the application's log matches a frame: the log is from another time, or uses another clock".to_owned(),
        ),
        Some(_) => {}
    }
    notes
}

/// Note if the period differs from the given one, or sends are missing.
fn of_period(judged: &Judged, limits: &Limits) -> Option<String> {
    let mean_us = judged.mean_ns / 1e3;
    let is_near =
        |period_ns: f64, tolerance: f64| (judged.mean_ns - period_ns).abs() <= period_ns * tolerance;
    let sends = judged.facts.n + 1;
    if let Some(asked_ns) = limits.period_ns {
        return (!is_near(asked_ns as f64, ASKED_TOLERANCE)).then(|| {
            let asked_us = micros(asked_ns);
            format!("{sends} sends are {mean_us:.1} µs apart on average, not {asked_us:.1} µs as given with --period")
        });
    }
    let period_us = micros(judged.period_ns);
    (judged.has_grid && !is_near(judged.period_ns as f64, PERIOD_TOLERANCE)).then(|| {
        let why = if mean_us > period_us {
            "cycles are missing, or the master paused"
        } else {
            "the master also sends between its cycles, or early"
        };
        format!(
            "{sends} sends are {mean_us:.1} µs apart on average, most of them {period_us:.1} µs: {why}; lateness is counted with a period \
             of {period_us:.1} µs"
        )
    })
}

/// Note if the clock of the capturing computer was set back.
fn of_clock(ways: &Frames) -> Option<String> {
    let (steps, longest_ns, first) = ways.clock_steps;
    let times = if steps == 1 { "once".to_owned() } else { format!("{steps} times") };
    (steps > 0).then(|| {
        format!(
            "the capture's clock was set back {times}, by at most {:.1} ms, first before frame {first}: times continue from there without \
             a gap, so the interval at each of these places is unknown",
            longest_ns as f64 / 1e6
        )
    })
}

fn of_probe(ways: &Frames) -> Option<String> {
    let unstamped = match ways.unstamped {
        0 => String::new(),
        frames => format!(
            "; {frames} frames without its timestamp are not judged, nor are intervals and round trips that they are part of"
        ),
    };
    let (restarts, first) = ways.probe_restarts;
    let times = if restarts == 1 { "once".to_owned() } else { format!("{restarts} times") };
    let unstamped = match restarts {
        0 => unstamped,
        _ => format!(
            "{unstamped}; its clock began anew {times}, first before frame {first}: the interval at each of these places is unknown"
        ),
    };
    ways.is_probed.then(|| {
        format!(
            "a probe on the wire timestamped the frames (EtherCAT Switch Link): its timestamps and ports are used, not the time at which \
             the recording computer received them{unstamped}"
        )
    })
}

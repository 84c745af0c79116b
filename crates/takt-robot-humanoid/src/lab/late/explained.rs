//! Explanation of a late frame, and whether it is complete.

use takt_link_ethercat::analyse::LatePlace;
use takt_trace::Cause;

use super::{Holder, LateFrame, Threads, is_charge, is_no_cause_of_the_segment};

/// The causes that explain a frame: one with half of its delay or more, or two with three quarters
/// together, of which none is "unknown".
fn names(frame: &LateFrame) -> Option<String> {
    let cause = frame.cause?;
    let by = |who: &str| if who.is_empty() { String::new() } else { format!(" ({who})") };
    let one = |cause: Cause, who: &str| format!("{}{}", cause.title(), by(who));
    if frame.share >= 0.5 {
        return Some(format!(
            "{:.0} % of which {{}} lost to {}",
            100.0 * frame.share,
            one(cause, &frame.who)
        ));
    }
    let second = frame.parts.iter().find(|part| part.cause != cause && !is_charge(part.cause))?;
    let is_known = !matches!(second.cause, Cause::Unknown | Cause::Waited);
    (is_known && frame.share + second.share >= 0.75).then(|| {
        let (first, other) = (100.0 * frame.share, 100.0 * second.share);
        let [a, b] = [one(cause, &frame.who), one(second.cause, &second.who)];
        format!("{first:.0} % of which {{}} lost to {a} and {other:.0} % to {b}")
    })
}

/// Whether something that was seen says why.
pub(super) fn is_explained(frame: &LateFrame, threads: &Threads) -> bool {
    match (frame.place, frame.cause) {
        (LatePlace::Unexplained | LatePlace::Beyond, _)
        | (_, Some(Cause::Unknown | Cause::NotRecorded | Cause::EventsLost | Cause::ExecutionOrFirmware)) => {
            false
        }
        (place, Some(cause)) => names(frame).is_some() && !is_no_cause_of_the_segment(place, cause),
        (LatePlace::Segment, None) => frame.kept,
        // A simulated segment without a thread of its own stamps the delays that were planted, and
        // no others.
        (LatePlace::Outward | LatePlace::Homeward, None) => threads.segment.is_none(),
        // In a thread of this host, and nothing says what held it up.
        (
            LatePlace::WakeUp | LatePlace::Work | LatePlace::Before | LatePlace::Handing | LatePlace::Untaken,
            None,
        ) => false,
    }
}

pub(super) fn sentence(frame: &LateFrame, known: bool) -> String {
    let cycles = frame.stamps.late_cycles;
    let plural = if cycles == 1 { "" } else { "s" };
    let late = format!(
        "{cycles} cycle{plural} late, {:.0} µs after the master stopped waiting for it",
        frame.missed_by_us
    );
    if frame.place == LatePlace::Unexplained {
        if frame.stamps.way.gave_up_ns == 0 {
            return format!("unexplained: {cycles} cycle{plural} late; its own cycle is not recorded");
        }
        return format!("unexplained: {late}; no timestamp along its path shows where the time went");
    }
    let title = frame.place.title();
    let place = if frame.inherited {
        format!("{title} of the previous frame, for which the controller waited: {late}")
    } else {
        let way = &frame.stamps.way;
        let took = way.judge(&frame.stamps.usual);
        let took_us = took.to_ns.saturating_sub(took.from_ns) as f64 / 1e3;
        if frame.excess_us < took_us / 2.0 {
            format!(
                "{title}: {late}; it took {took_us:.0} µs there, only {:.0} more than usual",
                frame.excess_us
            )
        } else {
            format!("{title}: {late}; it took {:.0} µs longer there than usual", frame.excess_us)
        }
    };
    let holder = frame.holder.map_or("the thread", Holder::name);
    let by = if frame.who.is_empty() { String::new() } else { format!(" ({})", frame.who) };
    match frame.cause {
        Some(_) if known => {
            format!("{place}, {}", names(frame).unwrap_or_default().replace("{}", holder))
        }
        Some(cause) => {
            let most = if frame.share > 0.0 {
                format!("most of it, {:.0} %, was ", 100.0 * frame.share)
            } else {
                String::new()
            };
            format!("{place}; the delay of {holder} is unexplained: {most}{}{by}", cause.title())
        }
        None if frame.kept => {
            format!("{place}: the device held it back on purpose, according to its own timestamps")
        }
        None if known => place,
        None if frame.place == LatePlace::Beyond => format!("{place}; the recording does not show why"),
        None => format!(
            "{place}; the delay of {holder} is unexplained: the kernel's trace does not show it, or there is no trace"
        ),
    }
}

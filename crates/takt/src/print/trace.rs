//! Kernel activity during a run.

use std::fmt::Write;

use takt_lab::trace::Traced;
use takt_trace::TraceReport;
use takt_trace::analysis::table;

// Writing to a String cannot fail, so the results of `write!` are dropped throughout.

/// A traced run, whose summary `run` puts into words; its activation sequence beside that of
/// `before`, where there is one.
pub fn traced<R>(traced: &Traced<R>, run: impl FnOnce(&R) -> String, before: Option<&TraceReport>) -> String {
    let mut out = run(&traced.run);
    if let Some(why) = &traced.untraced {
        let _ = writeln!(out, "\nNOT TRACED: {why}");
    }
    let Some(trace) = &traced.trace else { return out };
    out += &trace_report(&trace.report, before);
    let Some(overhead) = &trace.overhead else { return out };
    let _ = writeln!(
        out,
        "\n  {:<10}{:>14}{:>10}{:>10}{:>14}{:>12}{:>10}",
        "tracing", "lateness us", "P99", "worst", "reader CPU %", "events/s", "lost"
    );
    for cost in &overhead.costs {
        let s = &cost.lateness_us;
        let _ = writeln!(
            out,
            "  {:<10}{:>14.1}{:>10.1}{:>10.1}{:>14.2}{:>12.0}{:>10}",
            format!("{:?}", cost.mode).to_lowercase(),
            s.median,
            s.p99,
            s.worst,
            cost.reader_cpu_percent,
            cost.events_per_s,
            cost.lost_events
        );
    }
    let _ = writeln!(
        out,
        "  {:.0} ns an event; {:.2} % of the machine for all events, {:.2} % for the loop's alone",
        overhead.ns_per_event, overhead.cpu_percent, overhead.loop_cpu_percent
    );
    out
}

/// Report of a trace; its activation sequence next to that of `before`, if given.
pub fn trace_report(report: &TraceReport, before: Option<&TraceReport>) -> String {
    let mut out = String::new();
    let events = format!("{} events, {} lost", report.events, report.lost_events);
    match (report.polled, report.matched_share()) {
        (Some(edges), _) => {
            let _ = writeln!(
                out,
                "\n{}: {edges} edges, found by polling, so there is no activation; {events}",
                report.task
            );
        }
        (None, share) => {
            let steps = match share {
                Some(share) => {
                    format!("{} with every step of their activation ({:.1} %)", report.matched, 100.0 * share)
                }
                None => {
                    "so there is nothing to match: it was never seen to wake up and sleep again".to_owned()
                }
            };
            let _ = writeln!(out, "\n{}: {} releases, {steps}; {events}", report.task, report.releases);
        }
    }
    for (why, count) in &report.unmatched {
        let _ = writeln!(out, "  {count} not matched: {}", why.title());
    }
    for (step, count) in &report.missing_steps {
        let _ = writeln!(out, "    {count} lack {}", step.title());
    }
    if !report.kept_awake.is_empty() {
        let cpus = report.kept_awake.iter().map(u16::to_string).collect::<Vec<_>>().join(", ");
        let _ = writeln!(out, "  KEPT AWAKE while traced: CPU {cpus} (see below)");
    }
    if report.polled.is_none() {
        let _ = writeln!(
            out,
            "\n  {:<26}{:>9}{:>10}{:>10}{:>10}{:>10}",
            "segment, us", "n", "mean", "median", "P99", "max"
        );
    }
    for segment in &report.segments_us {
        let s = &segment.summary;
        let _ = writeln!(
            out,
            "  {:<26}{:>9}{:>10.2}{:>10.2}{:>10.2}{:>10.2}",
            segment.name, s.count, s.mean, s.median, s.p99, s.worst
        );
    }
    out.push('\n');
    match before {
        Some(before) => {
            out += &table(["before", "now"], [&before.sequence, &report.sequence]);
            if let Some(factor) = report.dilation(before) {
                let _ = writeln!(out, "The job's code ran {factor:.2} times as long as before.");
            }
        }
        None => {
            for step in &report.sequence {
                let _ = writeln!(out, "  {:>9.1} us  {}", step.median_us, step.event);
            }
        }
    }
    let what = if report.polled.is_some() { "late edges" } else { "late releases" };
    let beyond_us = report.thresholds.lateness_ns / 1000;
    let _ = writeln!(out, "\n  {} {what} (beyond {beyond_us} us)", report.late);
    for cause in &report.causes {
        let who = if cause.who.is_empty() { String::new() } else { format!(" ({})", cause.who) };
        let _ = writeln!(
            out,
            "  {:>7} x {}{who}: worst {:.0} us, together {:.0} us{}",
            cause.count,
            cause.cause.title(),
            cause.worst_us,
            cause.total_us,
            match cause.never_ran {
                0 => String::new(),
                releases => format!("; {releases} later releases never ran"),
            }
        );
    }
    for note in &report.notes {
        let _ = writeln!(out, "  {note}");
    }
    out
}

#[cfg(test)]
mod tests {
    use takt_trace::analysis::analyse_observed;
    use takt_trace::{Thresholds, Trace};

    #[test]
    fn no_share_is_said_of_no_releases() {
        let (report, _) = analyse_observed(&Trace::default(), 7, &Thresholds::default());
        let text = super::trace_report(&report, None);
        assert!(
            text.contains("tid 7: 0 releases, so there is nothing to match") && !text.contains('%'),
            "{text}"
        );
    }
}

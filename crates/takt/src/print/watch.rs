//! Results of `takt watch`, for people.

use std::fmt::Write;

use takt_trace::Cause;
use takt_watch::link::LinkReport;
use takt_watch::python::PythonReport;
use takt_watch::report::{Share, Total};
use takt_watch::screen::{signed, time};
use takt_watch::{Ahead, FollowBy, LoopKind, LoopReport, Report};

// Writing to a String cannot fail, so the results of `write!` are dropped throughout.

/// Late cycles of one thread that are reported one by one.
const MAX_WORST: usize = 3;
/// Names in a list.
const MAX_NAMES: usize = 3;

/// Names hold whatever their programs put there: escape sequences that would change the terminal,
/// or line ends that would make up a line.
fn plain(report: &Report) -> Report {
    let clean = |text: &mut String| {
        if text.contains(char::is_control) {
            *text = text.replace(char::is_control, "\u{fffd}");
        }
    };
    let mut report = report.clone();
    report.notes.iter_mut().chain(&mut report.proposals).for_each(clean);
    report.totals.iter_mut().for_each(|total| clean(&mut total.who));
    for thread in &mut report.threads {
        clean(&mut thread.name);
        thread.woken_by.iter_mut().chain(&mut thread.kept_by).for_each(|share| clean(&mut share.who));
        thread.totals.iter_mut().for_each(|total| clean(&mut total.who));
        thread.windows.iter_mut().for_each(|late| clean(&mut late.who));
        thread.recurs.iter_mut().for_each(|one| clean(&mut one.who));
    }
    report.links.iter_mut().flat_map(|link| &mut link.blame).for_each(|blame| clean(&mut blame.who));
    for wait in report.python.iter_mut().flat_map(|python| python.lock.iter_mut().flatten()) {
        clean(&mut wait.thread);
        wait.holders.iter_mut().for_each(|share| clean(&mut share.who));
    }
    report
}

/// Everything.
pub fn watched(report: &Report) -> String {
    let report = &plain(report);
    let mut out = format!("\nwatched: {}, {:.1} s\n", report.target, report.seconds);
    out += &own_share(report);
    command(&mut out, report);
    if let Some(sentence) = &report.verdict_sentence {
        let _ = writeln!(out, "{sentence}");
    }
    if let Some(why) = &report.untraced {
        let _ = writeln!(out, "\nNO KERNEL EVENTS: {why}");
    }
    if report.threads.is_empty() {
        out += "\nnone of its threads slept and was woken during the watch, so there are no cycles\n";
    }
    table(&mut out, report);
    declared(&mut out, report);
    for one in &report.links {
        link(&mut out, one);
    }
    for thread in report.threads.iter().filter(|thread| thread.late > 0 || thread.missed > 0) {
        about(&mut out, thread);
    }
    if !report.totals.is_empty() {
        let _ = writeln!(out, "\nof all lateness");
        totals(&mut out, &report.totals);
    }
    for one in &report.python {
        python(&mut out, one);
    }
    if !report.proposals.is_empty() {
        let _ = writeln!(out, "\nwhat may help (`takt tune` tries it)");
    }
    for proposal in &report.proposals {
        let _ = writeln!(out, "  {proposal}");
    }
    let _ = writeln!(out, "\n  {} kernel events, {} lost", report.events, report.lost_events);
    for note in &report.notes {
        let _ = writeln!(out, "  {note}");
    }
    if let Some(dir) = &report.run_dir {
        let _ = writeln!(out, "  {}", dir.display());
    }
    out
}

/// CPU time of this program itself, and its effect on the loops.
fn own_share(report: &Report) -> String {
    let cpu = format!("takt itself: {:.2} % of a CPU", report.watcher_cpu_percent);
    match report.watcher_lateness_share {
        Some(share) => format!(
            "{cpu}, {:.1} % of all lateness below ({})\n",
            100.0 * share,
            time(report.watcher_lateness_us)
        ),
        None if report.untraced.is_some() => String::new(),
        None if report.threads.iter().any(|thread| thread.late > 0) => {
            format!("{cpu}; its share of the lateness is unknown, because causes are unknown\n")
        }
        None => format!("{cpu}; nothing was late\n"),
    }
}

/// End of the command that was run.
fn command(out: &mut String, report: &Report) {
    if report.exit_status.is_none() {
        return;
    }
    let how = ending(report.exit_status, report.exit_signal);
    let asked = if report.ended_by_itself == Some(true) { "by itself, " } else { "when asked to, " };
    let _ = writeln!(out, "the command ended {asked}{how}");
}

/// Describes the end of a command.
pub fn ending(status: Option<i32>, signal: Option<i32>) -> String {
    match (signal, status) {
        (Some(signal), _) => format!("by signal {signal}"),
        (None, Some(status)) => format!("with exit status {status}"),
        (None, None) => "without a status".to_owned(),
    }
}

/// Whether something can be watched, and what is missing.
pub fn ahead(found: &Ahead) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{}: {} threads of {} processes now", found.target, found.threads, found.processes);
    if found.threads == 0 {
        let _ = writeln!(out, "  no such process or thread is running; `ps -eLo pid,tid,comm` lists them");
    }
    let way = match (&found.untraced, found.followed_by) {
        (Some(why), _) => format!("NO KERNEL EVENTS: {why}"),
        (None, FollowBy::Events) => "this program reads all kernel events of the machine".to_owned(),
        (None, _) => "the kernel follows the threads (BPF)".to_owned(),
    };
    let _ = writeln!(out, "  periods and causes: {way}");
    let _ = writeln!(
        out,
        "  loops that do not sleep, recognised by their sends and writes: {}",
        found.no_calls.as_deref().unwrap_or("yes")
    );
    let _ = writeln!(out, "  --link: {}", found.no_links.as_deref().unwrap_or("yes"));
    for missing in &found.missing {
        let _ = writeln!(out, "  missing: {}\n    fix: {}", missing.what, missing.fix);
    }
    out
}

fn table(out: &mut String, report: &Report) {
    let _ = writeln!(
        out,
        "\n  {:<24}{:>8}  {:<10}{:>12}{:>10}{:>9}{:>8}{:>8}{:>12}{:>12}{:>12}{:>7}  {:<10}CPUs",
        "thread",
        "tid",
        "kind",
        "period",
        "rate Hz",
        "cycles",
        "late",
        "missed",
        "wake P99",
        "wake worst",
        "resp. P99",
        "CPU %",
        "policy"
    );
    for thread in &report.threads {
        let _ = writeln!(
            out,
            "  {:<24}{:>8}  {:<10}{:>12}{:>10.1}{:>9}{:>8}{:>8}{:>12}{:>12}{:>12}{:>7.1}  {:<10}{}",
            thread.name,
            thread.tid,
            thread.kind.title(),
            thread.period_us.map_or("-".to_owned(), time),
            thread.rate_hz,
            thread.releases,
            thread.late,
            thread.missed,
            time(thread.lateness_us.p99),
            time(thread.lateness_us.worst),
            time(thread.response_us.p99),
            thread.cpu_percent,
            thread.policy,
            thread.cpus
        );
    }
}

/// Loops by the program's own records.
fn declared(out: &mut String, report: &Report) {
    if report.declared.is_empty() {
        return;
    }
    let _ = writeln!(
        out,
        "\n  {:<24}{:>8}  {:>12}{:>12}{:>9}{:>8}{:>9}{:>8}{:>12}{:>12}",
        "declared loop",
        "tid",
        "period",
        "deadline",
        "jobs",
        "late",
        "skipped",
        "lost",
        "begin worst",
        "resp. worst"
    );
    for one in &report.declared {
        let _ = writeln!(
            out,
            "  {:<24}{:>8}  {:>12}{:>12}{:>9}{:>8}{:>9}{:>8}{:>12}{:>12}",
            one.name,
            one.tid.map_or("-".to_owned(), |tid| tid.to_string()),
            one.period_us.map_or("-".to_owned(), time),
            one.deadline_us.map_or("-".to_owned(), time),
            one.jobs,
            one.late,
            one.skipped,
            one.lost,
            time(one.lateness_us.worst),
            time(one.response_us.worst)
        );
    }
}

fn link(out: &mut String, link: &LinkReport) {
    let _ = writeln!(
        out,
        "\nlink {}: {} packets every {}, {} answered; {} violations{}",
        link.name,
        link.packets,
        link.period_us.map_or("?".to_owned(), time),
        link.answered,
        link.violations,
        if link.lost > 0 { format!("; {} packets LOST to this watch", link.lost) } else { String::new() }
    );
    let _ = writeln!(
        out,
        "  gap P99 {}, worst {}; answered after P99 {}, worst {}{}",
        time(link.gap_us.p99),
        time(link.gap_us.worst),
        time(link.response_us.p99),
        time(link.response_us.worst),
        link.deadline_us.map_or(String::new(), |us| format!("; late beyond {}", time(us)))
    );
    if let Some([least, low]) = link.margin_us {
        let _ = writeln!(
            out,
            "  margin: the answer could always have left {} later, and {} later in 99 % of cycles",
            time(least),
            time(low)
        );
    }
    if let Some(clock) = link.robot_clock {
        let _ = writeln!(
            out,
            "  the robot's clock drifts by {:.0} ppm; late packets: {} stamped late (slow robot), {} stamped in time (slow network)",
            clock.drift_ppm, clock.slow_robot, clock.slow_network
        );
        let [median, p99, worst] = clock.phase_us.map(time);
        if let Some([least, low]) = clock.margin_us {
            let _ = writeln!(
                out,
                "  by that clock, answers leave {median} after the earliest possible arrival of the packet (P99 {p99}, worst {worst}): \
                 margin at least {}, in 99 % of cycles {}",
                signed(least),
                signed(low)
            );
        }
    }
    for blame in &link.blame {
        let who = if blame.who.is_empty() { String::new() } else { format!(" ({})", blame.who) };
        let _ = writeln!(out, "  {:>8} times  {}{who}", blame.count, link.title(blame.place));
    }
}

fn python(out: &mut String, python: &PythonReport) {
    let _ = writeln!(out, "\nPython, process {}", python.pid);
    match &python.lock {
        Some(waits) if waits.is_empty() => {
            let _ = writeln!(
                out,
                "  no thread waited for the interpreter's lock (GIL) in any of {} samples",
                python.looks
            );
        }
        _ => {}
    }
    for wait in python.lock.iter().flatten() {
        let _ = writeln!(
            out,
            "  {} (tid {}) waited for the interpreter's lock (GIL) in {:.1} % of {} samples; held by {}",
            wait.thread,
            wait.tid,
            100.0 * wait.share,
            python.looks,
            names(&wait.holders, |share| format!("{} ({} times)", share.who, share.count))
        );
    }
    if let Some(collector) = python.collector {
        let _ = writeln!(
            out,
            "  the garbage collector ran {} times, {} in total, the longest {}; it took most of the time of {} of the worst late cycles",
            collector.collections,
            time(collector.us),
            time(collector.worst_us),
            collector.late_cycles
        );
    }
    for note in &python.notes {
        let _ = writeln!(out, "  {note}");
    }
}

fn names(shares: &[Share], shown: impl Fn(&Share) -> String) -> String {
    shares.iter().take(MAX_NAMES).map(shown).collect::<Vec<_>>().join(", ")
}

fn about(out: &mut String, thread: &LoopReport) {
    let percent = 100.0 * thread.late_share();
    let _ = writeln!(
        out,
        "\n{} (tid {}): {} of {} cycles late ({percent:.2} %), {} missed",
        thread.name, thread.tid, thread.late, thread.releases, thread.missed
    );
    let deadline = thread.deadline_us.map_or(String::new(), |us| format!(", or ended beyond {}", time(us)));
    let beyond = time(thread.late_beyond_us);
    let _ = match thread.kind {
        LoopKind::Spinning => writeln!(out, "  late: sent or wrote more than {beyond} after the period"),
        _ => writeln!(out, "  late: woken more than {beyond} late{deadline}"),
    };
    if let (LoopKind::Periodic, Some(slack_us)) =
        (thread.kind, thread.timer_slack_us.filter(|&us| us >= 10.0))
    {
        let _ = writeln!(
            out,
            "  timer slack may delay its timers by {} (policy {})",
            time(slack_us),
            thread.policy
        );
    }
    let _ = writeln!(
        out,
        "  woken by {}",
        names(&thread.woken_by, |share| format!("{} ({} times)", share.who, share.count))
    );
    if !thread.kept_by.is_empty() {
        let kept = names(&thread.kept_by, |share| format!("{} ({})", share.who, time(share.us)));
        let _ = writeln!(out, "  ready but not running, over all cycles: {kept}");
    }
    if let Some(intervals) = thread.release_interval_us.as_ref().filter(|intervals| intervals.uneven) {
        let apart = intervals.pattern.iter().map(|&us| time(us)).collect::<Vec<_>>().join(", ");
        let what = if intervals.pattern.len() == 2 { "in pairs" } else { "in groups" };
        let _ = writeln!(out, "  released {what}: alternately {apart} apart");
    }
    for one in &thread.recurs {
        let cause = one.cause.map_or(String::new(), |cause| {
            let who = if one.who.is_empty() { String::new() } else { format!(" ({})", one.who) };
            format!(": {}{who}", cause.title())
        });
        let _ = writeln!(
            out,
            "  late periodically: every {}, {} times, {} cycles{cause}",
            every(one.every_us),
            one.times,
            one.cycles
        );
    }
    totals(out, &thread.totals);
    for late in thread.windows.iter().take(MAX_WORST) {
        let who = if late.who.is_empty() { String::new() } else { format!(" ({})", late.who) };
        let behind = match late.backlog_of.filter(|_| late.inherited) {
            Some(first) => format!(", which delayed cycle {first}"),
            None => String::new(),
        };
        let (lateness, response) = (time(late.lateness_us), time(late.response_us));
        let when = match thread.kind {
            LoopKind::Spinning => format!("{lateness} late"),
            _ => format!("woken {lateness} late, over after {response}"),
        };
        let _ = writeln!(
            out,
            "  worst: cycle {} {when}: {}{who}{behind}, {:.0} % of it",
            late.index,
            late.cause.title(),
            100.0 * late.share
        );
    }
}

/// A period in seconds, where it is so long: "1.0 s".
fn every(us: f64) -> String {
    if us >= 1e5 { format!("{:.1} s", us / 1e6) } else { time(us) }
}

fn totals(out: &mut String, totals: &[Total]) {
    for total in totals.iter().filter(|total| total.share >= 0.005 || total.cause == Cause::Unknown) {
        let who = if total.who.is_empty() { String::new() } else { format!(" ({})", total.who) };
        let _ = writeln!(
            out,
            "  {:>6.1} %  {}{who}: {} in {} cycles",
            100.0 * total.share,
            total.cause.title(),
            time(total.us),
            total.cycles
        );
    }
}

#[cfg(test)]
mod tests {
    use takt_watch::{Settings, Target, Watcher};

    use super::*;

    #[test]
    fn names_change_no_terminal_and_make_up_no_line() {
        let mut report = Watcher::new(Target::Machine, Settings::default()).report();
        report.notes.push("\u{1b}[2J of a note".to_owned());
        report.totals.push(Total {
            cause: Cause::HigherPriority,
            who: "a\n  99.0 %  b\u{7}".to_owned(),
            us: 1.0,
            share: 1.0,
            cycles: 1,
        });
        let text = watched(&report);
        assert!(!text.contains(|letter: char| letter.is_control() && letter != '\n'), "{text:?}");
        assert!(!text.lines().any(|line| line.trim_start().starts_with("99.0 %")), "{text}");
    }
}

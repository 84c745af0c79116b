//! The safety cell.

use std::fmt::Write;

use takt_robot_cell::lab::CellSummary;
use takt_robot_cell::lab::bench::{Against, BenchRow};
use takt_robot_cell::lab::designs::{DesignRow, Side};
use takt_robot_cell::lab::work::Work;
use takt_robot_cell::lab::worker_rows::WorkerSummary;
use takt_robot_cell::ssm::ProtectiveTerm;
use takt_robot_cell::tasks::PolicyMix;

use super::{circumstances, counted, number, percent};

// Writing to a String cannot fail, so the results of `write!` are dropped throughout.

/// The verdict in a line or two.
pub fn verdict(s: &CellSummary) -> String {
    s.sentence.clone()
}

/// Everything about one run.
pub fn summary(s: &CellSummary) -> String {
    let mut out = String::new();
    let _ = writeln!(
        out,
        "{} over {:.1} s, {} noise threads: {} cameras, {} frames judged, {} dropped, {} people found (at most {} at \
         once), {} stops",
        s.policy,
        s.seconds,
        s.noise,
        s.cameras,
        s.frames,
        s.frames_dropped,
        s.people_detected,
        s.people_at_once,
        s.stops
    );
    for (why, count) in &s.losses {
        let _ = writeln!(out, "  {count:>4} frames lost: {why}");
    }
    for (cause, count) in &s.stop_causes {
        let _ = writeln!(out, "  {count:>4} x {cause}");
    }
    let _ = writeln!(
        out,
        "\n  {:<22}{:>9}{:>9}{:>9}{:>9}{:>9}",
        "ms", "mean", "median", "p99", "worst", "misses"
    );
    let r = &s.reaction_ms;
    let _ = writeln!(
        out,
        "  {:<22}{:>9.2}{:>9.2}{:>9.2}{:>9.2}{:>9}",
        format!("reaction ({} ms)", s.deadline_ms),
        r.mean,
        r.median,
        r.p99,
        r.worst,
        s.misses
    );
    for (stage, t) in &s.stages_ms {
        let _ =
            writeln!(out, "    {:<20}{:>9.2}{:>9.2}{:>9.2}{:>9.2}", stage, t.mean, t.median, t.p99, t.worst);
    }
    for c in &s.per_camera {
        let r = &c.reaction_ms;
        let _ = writeln!(
            out,
            "  {:<22}{:>9.2}{:>9.2}{:>9.2}{:>9.2}{:>9}   {} frames, {} dropped",
            format!("camera {}", c.name),
            r.mean,
            r.median,
            r.p99,
            r.worst,
            c.misses,
            c.frames,
            c.dropped
        );
    }
    let ssm = &s.ssm;
    let _ = writeln!(
        out,
        "\n  SSM: {} jobs, {} skipped, {} late; wake-up lateness median {:.0} us, p99.9 {:.0} us, worst {:.0} us; response \
         worst {:.0} us",
        ssm.jobs,
        ssm.skipped,
        ssm.late,
        ssm.lateness_us.median,
        ssm.lateness_us.p999,
        ssm.lateness_us.worst,
        ssm.response_us.worst
    );
    out += &tasks(s);
    if let Some(worker) = &s.worker {
        out += &perception_process(worker);
    }
    out += &protective_distance(&s.protective_distance);
    if s.breach_to_stop_ms.count > 0 {
        let _ = writeln!(
            out,
            "  Breach published to stop commanded: median {:.2} ms, worst {:.2} ms",
            s.breach_to_stop_ms.median, s.breach_to_stop_ms.worst
        );
    }
    out += &circumstances(s.cpu, s.records_lost, &s.not_granted);
    if let Some(scaled) = &s.scaled {
        let _ = writeln!(out, "\n  {}", scaled.text());
    }
    let _ = writeln!(out, "\n{}\nRun directory: {}", verdict(s), s.run_dir);
    out
}

/// Every task against its deadline.
fn tasks(s: &CellSummary) -> String {
    let mut out = String::new();
    let _ = writeln!(
        out,
        "\n  {:<22}{:>9}{:>10}{:>9}{:>9}{:>9}{:>11}",
        "task", "deadline", "releases", "misses", "skipped", "late", "worst ms"
    );
    for task in &s.tasks {
        let name = match &task.camera {
            Some(camera) => format!("{} ({camera})", task.name),
            None => task.name.clone(),
        };
        let _ = writeln!(
            out,
            "  {name:<22}{:>6} ms{:>10}{:>9}{:>9}{:>9}{:>11}",
            task.deadline_ms,
            task.releases,
            task.misses,
            task.skipped,
            task.late,
            number(task.worst_ms, 2)
        );
    }
    out
}

/// The formula with the values of the run, and whether the threshold that stops the robot covers
/// it.
fn protective_distance(terms: &[ProtectiveTerm]) -> String {
    let value = |symbol: &str| terms.iter().find(|term| term.symbol == symbol).map(|term| term.value);
    let mut out = String::new();
    let (Some(needed), Some(stop)) = (value("S_p"), value("S_stop")) else { return out };
    let parts = ["S_h", "S_r", "S_s", "C", "Z_d", "Z_r"];
    let sum: Vec<_> = parts
        .iter()
        .filter_map(|symbol| value(symbol).map(|metres| format!("{symbol} {metres:.3}")))
        .collect();
    let _ = writeln!(
        out,
        "\n  Protective separation distance at full speed: {} = {needed:.3} m",
        sum.join(" + ")
    );
    let times = ["T_r", "T_tolerated", "T_measured", "T_s"];
    let times: Vec<_> = times
        .iter()
        .filter_map(|symbol| value(symbol).map(|seconds| format!("{symbol} {:.1} ms", seconds * 1e3)))
        .collect();
    let _ = writeln!(out, "    with {}", times.join(", "));
    if stop + 1e-9 < needed {
        let _ = writeln!(
            out,
            "    the robot is stopped only below {stop:.3} m, less than the formula requires; ssm.accept_short_stop_distance accepts this"
        );
    }
    out
}

/// The perception process's answers and events.
fn perception_process(w: &WorkerSummary) -> String {
    let driver = if w.driver.is_empty() { String::new() } else { format!(", driver {}", w.driver) };
    let mut out = format!("\n  Perception process ({}{driver}; {})\n", w.device, w.engine);
    let _ = writeln!(
        out,
        "    {} frames answered in time: mean {:.2} ms, p99.9 {:.2} ms, worst {:.2} ms; computation {:.2} ms, worst {:.2} ms",
        w.answered, w.answer_ms.mean, w.answer_ms.p999, w.answer_ms.worst, w.work_ms.mean, w.work_ms.worst
    );
    for (stage, t) in &w.stages_ms {
        let _ = writeln!(out, "      {stage:<12} mean {:.2} ms, worst {:.2} ms", t.mean, t.worst);
    }
    for (kind, count) in &w.events {
        let cause = w.causes.get(kind).map_or("", String::as_str);
        let _ = writeln!(out, "    {count:>5} x {kind} ({cause})");
    }
    out
}

/// The bench as a table.
pub fn rows(rows: &[BenchRow]) -> String {
    let mut out = String::new();
    let _ = writeln!(
        out,
        "  {:<9}{:>6}{:>11}{:>11}{:>9}{:>9}{:>9}{:>11}{:>9}{:>9}{:>10}{:>9}   against CFS+CFS: mean, worst",
        "policy",
        "noise",
        "mean ms",
        "worst ms",
        "judged",
        "networks",
        "people",
        "reactions",
        "misses",
        "dropped",
        "SSM jobs",
        "stolen"
    );
    let mut refused = Vec::new();
    for row in rows {
        let against = row.against_cfs.as_ref().map(against).unwrap_or_default();
        let work = |of: fn(&Work) -> u64| counted(row.work.as_ref().map(of));
        let _ = writeln!(
            out,
            "  {:<9}{:>6}{:>11}{:>11}{:>9}{:>9}{:>9}{:>11}{:>9}{:>9}{:>10}{:>9}   {}{}",
            row.policy,
            row.noise,
            number(row.reaction_ms.map(|reaction| reaction.mean), 2),
            number(row.reaction_ms.map(|reaction| reaction.worst), 2),
            work(|work| work.frames_judged),
            work(|work| work.frames_with_networks),
            work(|work| work.people_found),
            counted(row.reactions),
            counted(row.misses),
            counted(row.frames_dropped),
            work(|work| work.ssm_jobs),
            percent(row.stolen),
            against,
            if row.not_granted.is_empty() { "" } else { "  (lenient: not all settings granted)" }
        );
        let why = row.against_cfs.iter().flat_map(|against| &against.refused);
        refused.extend(why.map(|why| format!("  {} under {} noise threads: {why}", row.policy, row.noise)));
    }
    refused.iter().for_each(|line| out += &format!("{line}\n"));
    for row in rows {
        let missed: Vec<String> = row
            .tasks
            .iter()
            .filter(|task| task.misses > 0)
            .map(|task| format!("{} {} of {}", task.name, task.misses, task.releases))
            .collect();
        let lost: Vec<String> = row.losses.iter().map(|(why, count)| format!("{count} {why}")).collect();
        for sentence in &row.sentences {
            let _ = writeln!(out, "  {} under {} noise threads: {sentence}", row.policy, row.noise);
        }
        if !missed.is_empty() || !lost.is_empty() {
            let _ = writeln!(
                out,
                "  {} under {} noise threads: deadline misses: {}; frames lost: {}",
                row.policy,
                row.noise,
                if missed.is_empty() { "none".to_owned() } else { missed.join(", ") },
                if lost.is_empty() { "none".to_owned() } else { lost.join(", ") }
            );
        }
    }
    let paper = rows.iter().any(|r| r.noise == 128 && r.policy == PolicyMix::CfsCfs)
        && rows.iter().any(|r| r.noise == 128 && r.policy == PolicyMix::DlRr);
    if paper {
        out.push_str(
            "  (SentryRT-1 at 128 noise threads, 32 CPUs: DL+RR about 85 % lower mean, 80 % lower worst)\n",
        );
    }
    out
}

/// Two designs side by side.
pub fn designs(own: &str, against: &str, rows: &[DesignRow]) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{own} against {against}, the same policies, noise, cameras, rate and networks:");
    let _ = writeln!(
        out,
        "  {:<9}{:>6}{:>22}{:>22}   {own}: mean, worst",
        "policy",
        "noise",
        format!("{} mean/worst", clipped(against)),
        format!("{} mean/worst", clipped(own)),
    );
    for row in rows {
        let side = |side: &Side| format!("{} / {}", number(side.mean_ms, 2), number(side.worst_ms, 2));
        let lower = |percent: f64| {
            let word = if percent < 0.0 { "higher" } else { "lower" };
            format!("{:.0} % {word}", percent.abs())
        };
        let gain = match (row.mean_lower_percent, row.worst_lower_percent, &row.withheld) {
            (Some(mean), Some(worst), _) => format!("{}, {}", lower(mean), lower(worst)),
            (_, _, Some(why)) => format!("not compared: {why}"),
            _ => "not compared".to_owned(),
        };
        let _ = writeln!(
            out,
            "  {:<9}{:>6}{:>22}{:>22}   {gain}",
            row.policy,
            row.noise,
            side(&row.against),
            side(&row.own)
        );
        let work = |side: &Side| {
            let [judged, dropped, missed] = [side.judged, side.dropped, side.misses].map(counted);
            format!("{judged} judged, {dropped} dropped, {missed} missed")
        };
        let _ = writeln!(out, "      {against}: {}; {own}: {}", work(&row.against), work(&row.own));
    }
    out
}

/// The first letters of a name, for the head of a column.
fn clipped(name: &str) -> String {
    name.chars().take(10).collect()
}

fn against(against: &Against) -> String {
    let figure = |percent: Option<f64>| match percent {
        Some(percent) if percent < 0.0 => format!("{:.0} % higher", -percent),
        Some(percent) => format!("{percent:.0} % lower"),
        None => "not reported".to_owned(),
    };
    let refused = if against.refused.is_empty() { "" } else { " (less work, see below)" };
    format!("{}, {}{refused}", figure(against.mean_percent), figure(against.worst_percent))
}

//! Results of `takt tune`, for people.

use std::fmt::Write;

use takt_tune::search::Stage;
use takt_tune::{GuestSide, InGuests, KnobRow, TuneReport};
use takt_watch::screen::{signed, time};

// Writing to a String cannot fail, so the results of `write!` are dropped throughout.

/// Columns of a setting's name.
const MIN_WIDTH: usize = 43;
const MAX_WIDTH: usize = 60;

/// Everything.
pub fn tuned(report: &TuneReport) -> String {
    let tunes = &report.tunes;
    let period = tunes.period_us.map_or("no period".to_owned(), |us| format!("every {}", time(us)));
    let mut out = format!(
        "\ntuned: {} of {} ({}), {period}, as found {} on CPUs {}\n",
        report.aim, tunes.thread, tunes.process, tunes.policy, tunes.cpus
    );
    if report.stopped {
        out += "STOPPED before the search was complete; these are the results so far\n";
    }
    let kept: Vec<&KnobRow> = report.kept().collect();
    match (report.gain_us, kept.is_empty()) {
        _ if report.blocks == 0 => out += "\nno search was made; these settings can be tried here\n",
        (Some([gain, low, high]), false) => {
            let _ = writeln!(
                out,
                "\n{}: {} -> {} in a typical block ({} less, 95 % of such searches between {} and {} less)",
                help(kept.len()),
                time(report.before.typical_us),
                time(report.after.typical_us),
                time(gain),
                signed(low),
                signed(high)
            );
        }
        (None, false) => {
            let _ = writeln!(
                out,
                "\n{}; the effect was measured together with undecided settings",
                help(kept.len())
            );
        }
        (_, true) if report.over => {
            let short = if report.stopped {
                "the search was stopped too early to"
            } else {
                "the time was too short to"
            };
            let _ = writeln!(out, "\n{short} show which setting helps");
        }
        _ => {
            let _ = writeln!(
                out,
                "\nno setting that could be tried here helps; lateness stays at {} in a typical block",
                time(report.before.typical_us)
            );
        }
    }
    if report.blocks > 0 {
        let sides = [("as found", &report.before), ("with kept settings", &report.after)];
        for (name, side) in sides.into_iter().filter(|(_, side)| side.blocks > 0) {
            let _ = writeln!(
                out,
                "  {name:<18} {} blocks of {:.2} s, {} cycles: worst {}, {:.1} % of CPU time stolen, other load {:.0} %",
                side.blocks,
                report.block_s,
                side.releases,
                time(side.worst_us),
                100.0 * side.stolen,
                100.0 * side.load
            );
        }
    }
    for knob in &report.knobs {
        let Some(stretches) = &knob.stretches else { continue };
        let _ = writeln!(
            out,
            "  over stretches of {} blocks, in {} alternating pairs, {} {}: {} without, {} with it",
            stretches.blocks,
            stretches.pairs,
            knob.name,
            match (stretches.helps(), stretches.harms()) {
                (true, _) => "helps",
                (_, true) => "does HARM and is not kept",
                _ => "does not measurably help",
            },
            time(stretches.without_us),
            time(stretches.with_us)
        );
    }
    if let Some(reached) = report.aim_reached {
        let within = report.after.within_limit.unwrap_or(0);
        let word = if reached { "reached" } else { "NOT reached" };
        let _ = writeln!(out, "  the aim is {word}: {within} of {} blocks meet it", report.after.blocks);
    }
    table(&mut out, report);
    if !report.proposed.is_empty() {
        let _ = writeln!(out, "\nnot measured here; to try one, boot with it and run `takt tune` again:");
        for one in &report.proposed {
            let _ = writeln!(out, "  {}", one.parameters);
            if let Some(guests) = &one.in_guests {
                in_guests(&mut out, guests);
            }
            if !one.note.is_empty() {
                let _ = writeln!(out, "      {}", one.note);
            }
        }
    }
    let _ = writeln!(
        out,
        "\n  {} blocks ({} repeated because of stolen time) in {:.0} s; all settings were restored",
        report.blocks, report.remeasured, report.seconds
    );
    for note in &report.notes {
        let _ = writeln!(out, "  {note}");
    }
    if let Some(file) = report.files.iter().find(|file| file.ends_with("tuned.toml")) {
        let _ = writeln!(out, "  apply: takt doctor --apply {}; undo: takt doctor --revert", file.display());
    }
    for file in &report.files {
        let _ = writeln!(out, "  {}", file.display());
    }
    out
}

/// Results in virtual kernels, which compare kernel paths and do not predict this machine's
/// microseconds.
fn in_guests(out: &mut String, guests: &InGuests) {
    let InGuests { kernel, time: counted, without, with } = guests;
    let figures = |side: &GuestSide| {
        let skipped = if side.skipped > 0 { format!(", {} skipped", side.skipped) } else { String::new() };
        format!("{} / {} / {}{skipped}", time(side.median_us), time(side.p99_us), time(side.worst_us))
    };
    let _ = writeln!(
        out,
        "      in guests under load ({kernel}, {counted} time, {} cycles), median / p99 / worst: {} -> {}",
        with.releases,
        figures(without),
        figures(with)
    );
}

fn help(settings: usize) -> String {
    match settings {
        1 => "1 setting helps".to_owned(),
        more => format!("{more} settings help"),
    }
}

fn table(out: &mut String, report: &TuneReport) {
    let longest = report.knobs.iter().map(|knob| knob.name.len()).max().unwrap_or(0);
    let wide = longest.clamp(MIN_WIDTH, MAX_WIDTH) + 1;
    let _ = writeln!(out, "\n  {:<wide$}{:>12}{:>26}  {:<10}cost", "setting", "gain", "95 %", "");
    let (settable, missing): (Vec<&KnobRow>, Vec<&KnobRow>) =
        report.knobs.iter().partition(|knob| knob.stage != Stage::Unavailable);
    for knob in settable {
        let word = match (knob.kept, knob.placebo, knob.stage) {
            (true, ..) => "KEPT",
            (_, true, _) => "placebo",
            _ if report.undecided.contains(&knob.name) => "undecided",
            (_, _, Stage::Ablated) => "removed",
            _ => "",
        };
        let interval = match (knob.low, knob.high) {
            (Some(low), Some(high)) => format!("{} to {}", signed(low), signed(high)),
            _ => String::new(),
        };
        let gain = knob.gain_us.map_or("-".to_owned(), signed);
        let cost = if knob.kept { knob.cost.as_str() } else { "" };
        let line = format!("  {:<wide$}{gain:>12}{interval:>26}  {word:<10}{cost}", knob.name);
        let _ = writeln!(out, "{}", line.trim_end());
    }
    if !missing.is_empty() {
        let _ = writeln!(out, "\n  cannot be set here:");
        for knob in missing {
            let _ = writeln!(out, "  {:<wide$}{}", knob.name, knob.note);
        }
    }
}

//! Choice of a measure's figures, and their captions.

use takt_rundir::Factor;

use crate::collect::{Collection, is_idle, is_interference};
use crate::digest::{Digest, RunDigest};
use crate::figure::{
    About, Axis, BarRow, CdfPanel, Curves, Figure, Kinds, Layer, Line, Panel, Picture, RidgeRow, Source,
    Whisker, WindowPart, WindowRow, bars, boxes, cdfs, lines, panels, ridges, windows,
};
use crate::supplement::{Context, Drawn};
use crate::tables::spread;
use crate::traces::{Traced, Window, cause_title, sound};
use crate::words::{Unit, clean};

/// Rows in one picture: more get a second one, so that each fits on a page.
const ROWS: usize = 40;
/// Panels in one picture.
const PANELS: usize = 16;
/// Curves in one picture.
const CURVES: usize = 24;
/// Curves in one picture of distribution functions: as many as there are colours.
const CDFS: usize = 6;
/// A late release this many times shorter than the longest of its picture goes to the next one: its
/// parts would be too small to be seen, and a logarithmic axis has no lengths to add.
const SQUEEZED: f64 = 20.0;

/// Everything about a figure but its picture.
pub(crate) struct Words {
    pub(crate) id: String,
    pub(crate) title: String,
    pub(crate) caption: String,
}

/// The runs as the origin of a figure.
pub(crate) fn sources(context: &Context<'_>, runs: impl Iterator<Item = usize>) -> Vec<Source> {
    let mut runs: Vec<usize> = runs.collect();
    runs.sort_unstable();
    runs.dedup();
    runs.into_iter().map(|run| context.collection.runs[run].source()).collect()
}

/// A figure with what is drawn.
pub(crate) fn figure(words: Words, sources: Vec<Source>, draw: impl FnOnce(About<'_>) -> Picture) -> Figure {
    let words = Words { title: clean(&words.title), caption: clean(&words.caption), ..words };
    let origin: Vec<String> = sources.iter().map(Source::line).collect();
    let about = About { alt: &words.title, source: &format!("Drawn from: {}", origin.join("; ")) };
    let (svg, key) = draw(about);
    Figure { id: words.id, title: words.title, caption: words.caption, key, sources, svg }
}

/// Splits configurations over pictures; the second and later ones are numbered.
fn parts<T>(items: &[T], size: usize) -> impl Iterator<Item = (String, String, &[T])> {
    let all = items.len().div_ceil(size);
    items.chunks(size).enumerate().map(move |(index, chunk)| {
        let part = if all > 1 { format!(" (part {} of {all})", index + 1) } else { String::new() };
        (format!("-{}", index + 1), part, chunk)
    })
}

/// The robot's remark below a figure, after the caption.
fn remark(context: &Context<'_>, figure: Drawn) -> String {
    let remark = context.supplement.and_then(|supplement| supplement.remark(context.group, figure));
    remark.map_or_else(String::new, |remark| format!(" {remark}"))
}

/// Bars, boxes, distributions: a row for each configuration that has samples.
pub fn rows(context: &Context<'_>, id: &str) -> Vec<Figure> {
    let axis = Axis { quantity: &context.group.title, unit: context.unit };
    let title = &context.group.title;
    let measured: Vec<&Digest> = context.digests.iter().filter(|d| d.summary.count > 0).collect();
    let runs = |chunk: &[&Digest]| sources(context, chunk.iter().flat_map(|d| &d.runs).map(|r| r.run));
    let deadline = |d: &Digest| d.deadline_ns.map(|d| d as f64);
    let mut figures = Vec::new();
    // One bar beside nothing says less than its number in the table.
    let compared = measured.iter().map(|d| d.runs.len()).sum::<usize>() > 1;
    for (suffix, part, chunk) in parts(if compared { &measured } else { &[] }, ROWS) {
        let repeated = chunk.iter().any(|d| d.runs.len() > 1);
        let words = Words {
            id: format!("{id}-bars{suffix}"),
            title: format!("{title}: mean and worst{part}"),
            caption: if repeated {
                "Bars: median over the repetitions. Whiskers: least and greatest repetition.".to_owned()
            } else {
                "One run per configuration, so there are no whiskers.".to_owned()
            } + " On the logarithmic axis, compare the ends of bars, not their lengths."
                + &remark(context, Drawn::Bars),
        };
        let rows: Vec<BarRow> = chunk
            .iter()
            .map(|d| {
                let whisker = |pick: fn(&RunDigest) -> f64| {
                    let [middle, low, high] = spread(d.runs.iter().filter(|r| r.summary.count > 0).map(pick));
                    Whisker { low, middle, high }
                };
                BarRow {
                    name: context.name(d).to_owned(),
                    mean: whisker(|r| r.summary.mean),
                    worst: whisker(|r| r.summary.worst),
                    deadline_ns: deadline(d),
                }
            })
            .collect();
        figures.push(figure(words, runs(chunk), |about| bars(&axis, about, &rows)));
    }
    for (suffix, part, chunk) in parts(&measured, ROWS) {
        let words = Words {
            id: format!("{id}-boxes{suffix}"),
            title: format!("{title}: box plots{part}"),
            caption: "All repetitions together. Box: the middle half of the samples, line: median; whiskers: 1 % to 99 %; small \
                      tick: 99.9 %; dot: the greatest value. No value is left out as an outlier."
                .to_owned(),
        };
        let rows: Vec<_> = chunk.iter().map(|d| d.box_row(context.name(d))).collect();
        figures.push(figure(words, runs(chunk), |about| boxes(&axis, about, &rows)));
    }
    for (suffix, part, chunk) in parts(&measured, ROWS) {
        let words = Words {
            id: format!("{id}-distribution{suffix}"),
            title: format!("{title}: distribution{part}"),
            caption: "All repetitions together, bins of equal ratio. Heights are logarithmic, so a single outlier is visible next to a \
                 million samples in the middle."
                .to_owned()
                + &remark(context, Drawn::Distribution),
        };
        let rows: Vec<RidgeRow> = chunk
            .iter()
            .map(|d| RidgeRow {
                name: context.name(d).to_owned(),
                bins: d.bins.clone(),
                median: d.summary.median,
                max: d.summary.worst,
                deadline_ns: deadline(d),
            })
            .collect();
        figures.push(figure(words, runs(chunk), |about| ridges(&axis, about, &rows)));
    }
    for (suffix, part, chunk) in parts(&measured, CURVES) {
        let words = Words {
            id: format!("{id}-above{suffix}"),
            title: format!("{title}: share of samples above a value{part}"),
            caption: "Both axes are logarithmic; a curve ends at the greatest value. A curve that stays left and falls steeply has \
                      a short tail; a step to the right is a second cause of delay."
                .to_owned(),
        };
        let curves: Vec<Line> = chunk
            .iter()
            .map(|d| Line { name: context.name(d).to_owned(), points: d.above.clone() })
            .collect();
        let common = common_deadline(chunk);
        figures.push(figure(words, runs(chunk), |about| lines(&axis, about, Curves::Above, &curves, common)));
    }
    figures
}

/// Distribution functions of a measure with phases, a panel for each (*ROS-Llama*, Figs. 3 and 4).
pub(crate) fn by_phase(context: &Context<'_>, id: &str) -> Vec<Figure> {
    let axis = Axis { quantity: &context.group.title, unit: context.unit };
    let measured: Vec<&Digest> = context.digests.iter().filter(|d| !d.phases.is_empty()).collect();
    let mut figures = Vec::new();
    for (suffix, part, chunk) in parts(&measured, CDFS) {
        let mut names: Vec<&str> = Vec::new();
        for phase in chunk.iter().flat_map(|d| &d.phases) {
            if !names.contains(&phase.name.as_str()) {
                names.push(&phase.name);
            }
        }
        let curve = |d: &Digest, phase: &str| Line {
            name: context.name(d).to_owned(),
            points: d.phases.iter().find(|p| p.name == phase).map_or_else(Vec::new, |p| p.at_most.clone()),
        };
        let panels: Vec<CdfPanel> = names
            .iter()
            .map(|phase| CdfPanel {
                name: (*phase).to_owned(),
                curves: chunk.iter().map(|d| curve(d, phase)).collect(),
            })
            .collect();
        let words = Words {
            id: format!("{id}-phases{suffix}"),
            title: format!("{}: share of samples up to a value, by phase{part}", context.group.title),
            caption: "A goal is met if the curve lies left of its line. A dot marks the greatest value; all repetitions together. A sample \
                 belongs to the phase in which it began."
                .to_owned(),
        };
        let curves: Vec<String> = chunk.iter().map(|d| context.name(d).to_owned()).collect();
        let runs = sources(context, chunk.iter().flat_map(|d| &d.runs).map(|r| r.run));
        let common = common_deadline(chunk);
        figures.push(figure(words, runs, |about| cdfs(&axis, about, &curves, &panels, common)));
    }
    figures
}

fn common_deadline(digests: &[&Digest]) -> Option<f64> {
    let first = digests.first()?.deadline_ns?;
    digests.iter().all(|d| d.deadline_ns == Some(first)).then_some(first as f64)
}

/// The repetition that is drawn where only one can be: the one with the greatest value.
fn worst_run(digest: &Digest) -> Option<&RunDigest> {
    digest
        .runs
        .iter()
        .filter(|r| r.summary.count > 0)
        .max_by(|a, b| a.summary.worst.total_cmp(&b.summary.worst))
}

/// The factor that is an interference, switched off in some configurations and on in others.
fn interference<'a>(context: &Context<'a>) -> Option<&'a str> {
    let factors =
        || context.digests.iter().flat_map(|d| &context.collection.configurations[d.configuration].factors);
    let both = |name: &str| {
        let of = || factors().filter(|f| f.name == name);
        of().any(|f| is_idle(&f.value)) && of().any(|f| !is_idle(&f.value))
    };
    factors().map(|f| f.name.as_str()).find(|name| is_interference(name) && both(name))
}

/// Time series, under interference over idle.
pub fn series(context: &Context<'_>, id: &str) -> Vec<Figure> {
    let axis = Axis { quantity: &context.group.title, unit: context.unit };
    let factor = interference(context);
    let factors = |d: &Digest| &context.collection.configurations[d.configuration].factors;
    let level = |d: &Digest| -> Option<String> {
        let factor = factor?;
        factors(d).iter().find(|f| f.name == factor).map(|f| f.value.clone())
    };
    let rest = |d: &Digest| -> Vec<Factor> {
        factors(d).iter().filter(|f| Some(f.name.as_str()) != factor).cloned().collect()
    };
    let idle = |d: &Digest| level(d).is_none_or(|v| is_idle(&v));
    let mut levels: Vec<String> = context.digests.iter().filter_map(&level).filter(|v| !is_idle(v)).collect();
    levels.sort();
    levels.dedup();
    let timed = context.digests.iter().filter_map(worst_run).all(|r| r.timed);
    let layer = |d: &Digest| -> Option<(usize, Layer)> {
        let run = worst_run(d)?;
        let stressed = factor.is_some() && !idle(d);
        let name = match (factor, stressed, levels.len()) {
            (None, ..) => String::new(),
            (Some(factor), true, 1) => format!("{factor} {}", levels[0]),
            (Some(factor), true, _) => format!("with {factor}"),
            (Some(factor), false, _) => format!("{factor} {}", level(d).unwrap_or_default()),
        };
        // Without times in every series, the axis is the number of the sample for all.
        let columns = if timed || !run.timed {
            run.columns.clone()
        } else {
            let share = run.summary.count as f64 / run.duration_s.filter(|s| *s > 0.0).unwrap_or(1.0);
            run.columns.iter().map(|c| (c.0 * share, c.1, c.2)).collect()
        };
        Some((run.run, Layer { name, stressed, columns }))
    };
    let mut drawn: Vec<(Panel, Vec<usize>)> = Vec::new();
    for digest in context.digests.iter().filter(|d| d.summary.count > 0) {
        let partner = |d: &&Digest| idle(d) != idle(digest) && rest(d) == rest(digest) && d.summary.count > 0;
        let partner = if factor.is_some() { context.digests.iter().find(partner) } else { None };
        // An idle configuration is drawn with its stressed one.
        if partner.is_some() && idle(digest) {
            continue;
        }
        let layers: Vec<(usize, Layer)> =
            [Some(digest), partner].into_iter().flatten().filter_map(layer).collect();
        let varying = |f: &&Factor| !context.collection.common.contains(f) && Some(f.name.as_str()) != factor;
        let mut words: Vec<String> =
            factors(digest).iter().filter(varying).map(|f| format!("{} {}", f.name, f.value)).collect();
        if factor.is_some() && (levels.len() > 1 || words.is_empty()) {
            words.extend(level(digest).zip(factor).map(|(level, factor)| format!("{factor} {level}")));
        }
        let name = if words.is_empty() { context.name(digest).to_owned() } else { words.join(" · ") };
        let (runs, layers) = layers.into_iter().unzip();
        drawn.push((Panel { name, layers, deadline_ns: digest.deadline_ns.map(|d| d as f64) }, runs));
    }
    let partial = context.digests.iter().filter_map(worst_run).any(|r| r.raw_samples.is_some());
    let mut figures = Vec::new();
    for (suffix, part, chunk) in parts(&drawn, PANELS) {
        let mut caption = format!(
            "Thinned to {} columns; each spans the least to the greatest value in its interval, so every spike is visible. The repetition \
             with the greatest value is drawn.",
            crate::figure::COLUMNS
        );
        if factor.is_some() {
            caption += " With interference divided by without.";
        }
        if partial {
            caption += " Long runs store only their first samples individually, and only these are drawn.";
        }
        let words = Words {
            id: format!("{id}-series{suffix}"),
            title: format!("{}: time series{part}", context.group.title),
            caption,
        };
        let runs = sources(context, chunk.iter().flat_map(|(_, runs)| runs.iter().copied()));
        let all: Vec<Panel> = chunk.iter().map(|(panel, _)| panel.clone()).collect();
        figures.push(figure(words, runs, |about| panels(&axis, about, &all, timed)));
    }
    figures
}

/// Development of maximum and mean (DAQ paper, Figs. 3 to 5).
pub(crate) fn trends(context: &Context<'_>, id: &str) -> Vec<Figure> {
    let axis = Axis { quantity: &context.group.title, unit: context.unit };
    // Without times and rate there is no time to draw over.
    let measured: Vec<(&Digest, &RunDigest)> = context
        .digests
        .iter()
        .filter_map(|d| Some((d, worst_run(d)?)))
        .filter(|(_, run)| run.duration_s.is_some_and(|s| s > 0.0))
        .collect();
    let mut figures = Vec::new();
    for (kind, what, name, caption) in [
        (
            "max",
            Curves::Steps,
            "greatest value so far",
            "A curve that still rises at its end has not seen its worst value.",
        ),
        ("mean", Curves::Trend, "mean so far", "The mean settles early; the maximum does not."),
    ] {
        for (suffix, part, chunk) in parts(&measured, CURVES) {
            let words = Words {
                id: format!("{id}-{kind}-trend{suffix}"),
                title: format!("{}: {name}{part}", context.group.title),
                caption: format!(
                    "Over the time since the first sample, for the repetition with the greatest value. {caption}"
                ),
            };
            let curves: Vec<Line> = chunk
                .iter()
                .map(|(digest, run)| {
                    let mut points: Vec<(f64, f64)> = match what {
                        Curves::Steps => run
                            .max_trend
                            .iter()
                            .map(|p| (p.elapsed_ns as f64 / 1e9, p.max_ns as f64))
                            .collect(),
                        _ => run.mean_trend.iter().map(|p| (p.elapsed_ns as f64 / 1e9, p.mean_ns)).collect(),
                    };
                    if let (Some(&(_, last)), Some(end)) = (points.last(), run.duration_s) {
                        points.push((end, last));
                    }
                    Line { name: context.name(digest).to_owned(), points }
                })
                .collect();
            let digests: Vec<&Digest> = chunk.iter().map(|(d, _)| *d).collect();
            let common = common_deadline(&digests);
            let runs = sources(context, chunk.iter().map(|(_, run)| run.run));
            figures.push(figure(words, runs, |about| lines(&axis, about, what, &curves, common)));
        }
    }
    figures
}

/// Late releases, a bar each, from the worst on.
pub fn late(collection: &Collection, traced: &[Traced], worst: &[(usize, &Window)]) -> Vec<Figure> {
    let mut chunks: Vec<&[(usize, &Window)]> = Vec::new();
    let mut rest = worst;
    while let Some((_, first)) = rest.first() {
        let fits = |(_, window): &&(usize, &Window)| window.length_ns() * SQUEEZED >= first.length_ns();
        let (chunk, after) = rest.split_at(rest.iter().take_while(fits).count().max(1));
        chunks.push(chunk);
        rest = after;
    }
    let all = chunks.len();
    let row = |(run, window): &(usize, &Window)| late_row(collection, traced, *run, window);
    let kinds = Kinds::of(&worst.iter().map(row).collect::<Vec<_>>());
    let mut figures = Vec::new();
    for (number, chunk) in chunks.into_iter().enumerate() {
        let part = if all > 1 { format!(" (part {} of {all})", number + 1) } else { String::new() };
        let words = Words {
            id: format!("kernel-late-{}", number + 1),
            title: format!("The worst late releases: where the time went{part}"),
            caption: "One bar for each, from the planned release to the end of the job. Its parts are ordered by cause, not by time; \
                 unexplained time is left empty."
                .to_owned(),
        };
        let rows: Vec<WindowRow> = chunk.iter().map(row).collect();
        let unit = Unit::for_typical(spread(rows.iter().map(|row| row.end_ns))[0]);
        let mut runs: Vec<usize> = chunk.iter().map(|(run, _)| *run).collect();
        runs.sort_unstable();
        runs.dedup();
        let sources = runs.into_iter().map(|run| collection.runs[run].source()).collect();
        figures.push(figure(words, sources, |about| windows(about, unit, &rows, &kinds)));
    }
    figures
}

fn late_row(collection: &Collection, traced: &[Traced], run: usize, window: &Window) -> WindowRow {
    let trace = traced.iter().find(|one| one.run == run).and_then(|one| one.trace.as_ref().ok());
    let limits = trace.map(|trace| trace.thresholds).unwrap_or_default();
    let index = window.index.map_or_else(|| "unknown".to_owned(), |index| index.to_string());
    let part = |part: &crate::traces::Part| {
        let ns = sound(part.ns).filter(|ns| *ns > 0.0)?;
        Some(WindowPart { what: cause_title(&part.cause), who: part.who.clone(), ns })
    };
    WindowRow {
        name: format!("{} release {index}", collection.runs[run].key),
        parts: window.parts.iter().filter_map(part).collect(),
        otherwise: format!("{}: the parts are unknown", cause_title(&window.cause)),
        wake_ns: sound(window.lateness_us).map(|us| us * 1e3),
        end_ns: window.length_ns(),
        wake_limit_ns: limits.lateness_ns.map(|ns| ns as f64),
        end_limit_ns: limits.response_ns.map(|ns| ns as f64),
    }
}

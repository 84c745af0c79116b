//! Bars in groups: a panel for each condition, a group for each amount of load, a bar for each
//! configuration, mean in front of worst.

use super::canvas::{Canvas, Colour, Side, WIDTH};
use super::plot::{Entry, Plot, Swatch, legend, legend_height, mark};
use super::rows::Whisker;
use super::scale::Scale;
use super::{About, Axis, Picture};

/// Mean and worst of a configuration over its repetitions, nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pair {
    pub mean: Whisker,
    pub worst: Whisker,
}

/// Published values of a bar, nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PublishedBar {
    /// Index of the group and of its bar.
    pub group: usize,
    pub series: usize,
    /// Least and greatest value that the paper names; alike where it names one.
    pub range: [f64; 2],
}

/// One panel: a row of groups.
#[derive(Clone, Debug)]
pub struct GroupPanel {
    pub name: String,
    /// A bar for each series of each group; `None` where nothing was measured.
    pub bars: Vec<Vec<Option<Pair>>>,
    pub published: Vec<PublishedBar>,
}

/// Common properties of all panels.
#[derive(Clone, Debug)]
pub struct Groups<'a> {
    /// Quantity by which the groups differ: "noise threads".
    pub quantity: &'a str,
    /// Name of each group, and of each bar within one.
    pub groups: &'a [String],
    pub series: &'a [String],
    pub deadline_ns: Option<f64>,
}

/// Height of a panel's plot.
const PANEL: f64 = 190.0;
/// Height of what stands around it: its name and the marks below.
const AROUND: f64 = 72.0;
/// Left end of the plots.
const LEFT: f64 = 74.0;
/// Opacity of a worst value, behind the mean.
const BEHIND: f64 = 0.38;

/// Draws the panels one below the other over one scale.
pub fn groups(axis: &Axis<'_>, about: About<'_>, of: &Groups<'_>, panels: &[GroupPanel]) -> Picture {
    let pairs = || panels.iter().flat_map(|panel| panel.bars.iter().flatten().flatten());
    let published = || panels.iter().flat_map(|panel| &panel.published);
    let least = pairs().map(|pair| pair.mean.low).chain(published().map(|bar| bar.range[0]));
    let least = least.fold(f64::MAX, f64::min) / 2.0;
    let high = pairs().map(|pair| pair.worst.high).chain(published().map(|bar| bar.range[1]));
    let high = high.chain(of.deadline_ns).fold(0.0, f64::max);
    let mut means: Vec<f64> = pairs().map(|pair| pair.mean.middle).collect();
    means.sort_by(f64::total_cmp);
    let scale = Scale::suited(least, means.get(means.len() / 2).copied().unwrap_or(0.0), high);
    let mut entries: Vec<Entry> = of
        .series
        .iter()
        .enumerate()
        .map(|(index, name)| (format!("{name}: mean"), Colour::Series(index), Swatch::Area))
        .collect();
    entries.push(("lighter: worst".to_owned(), Colour::Series(0), Swatch::Tint));
    if published().next().is_some() {
        entries.push(("published".to_owned(), Colour::Ink, Swatch::Dot));
    }
    if let Some(deadline) = of.deadline_ns {
        entries.push((
            format!("deadline {}", crate::words::time(deadline)),
            Colour::Deadline,
            Swatch::Dashed,
        ));
    }
    let head = legend_height(&entries, LEFT) + 22.0;
    let height = head + (PANEL + AROUND) * panels.len().max(1) as f64;
    let unit = axis.unit;
    let name = if scale.is_log() { format!("{}, logarithmic", axis.name()) } else { axis.name() };
    let svg = Canvas::picture(height, about.alt, about.source, |canvas| {
        legend(canvas, &entries, LEFT, 0.0);
        canvas.text(&name, (6.0, head - 8.0), Side::Right, Colour::Ink);
        for (index, panel) in panels.iter().enumerate() {
            let top = head + (PANEL + AROUND) * index as f64 + 22.0;
            let plot = Plot { canvas, left: LEFT, right: f64::from(WIDTH) - 16.0, top, bottom: top + PANEL };
            canvas.text(&panel.name, (LEFT, top - 12.0), Side::Right, Colour::Ink);
            plot.upright_axis(&scale, "", |value| mark(unit.of_ns(value)));
            plot.frame();
            draw(&plot, &scale, of, panel);
            if let Some(deadline) = of.deadline_ns {
                plot.level_deadline(&scale, deadline);
            }
            let middle = ((plot.left + plot.right) / 2.0, plot.bottom + 32.0);
            canvas.text(of.quantity, middle, Side::Middle, Colour::Ink);
        }
    });
    (svg, Vec::new())
}

fn draw(plot: &Plot<'_, '_>, scale: &Scale, of: &Groups<'_>, panel: &GroupPanel) {
    let width = (plot.right - plot.left) / of.groups.len().max(1) as f64;
    let slot = width * 0.84 / of.series.len().max(1) as f64;
    let middle_of = |group: usize, series: usize| {
        plot.left + width * (group as f64 + 0.08) + slot * (series as f64 + 0.5)
    };
    let y = |value: f64| plot.y(scale, value);
    for (group, name) in of.groups.iter().enumerate() {
        let middle = plot.left + width * (group as f64 + 0.5);
        plot.canvas.text(name, (middle, plot.bottom + 13.0), Side::Middle, Colour::Ink);
        for (series, pair) in panel.bars.get(group).into_iter().flatten().enumerate() {
            let x = middle_of(group, series);
            let Some(pair) = pair else {
                plot.canvas.text("–", (x, plot.bottom - 8.0), Side::Middle, Colour::Ink);
                continue;
            };
            let half = slot * 0.42;
            for (value, opacity) in [(pair.worst, BEHIND), (pair.mean, 0.92)] {
                let (from, to) = ((x - half, y(value.middle)), (x + half, plot.bottom));
                plot.canvas.bar(from, to, Colour::Series(series), opacity);
            }
            for value in [pair.worst, pair.mean] {
                plot.canvas.line((x, y(value.low)), (x, y(value.high)), Colour::Ink, 1.5);
                for end in [value.low, value.high] {
                    plot.canvas.line((x - 3.5, y(end)), (x + 3.5, y(end)), Colour::Ink, 1.5);
                }
            }
        }
    }
    for bar in &panel.published {
        let x = middle_of(bar.group, bar.series) + slot * 0.36;
        plot.canvas.line((x, y(bar.range[0])), (x, y(bar.range[1])), Colour::Ink, 2.5);
        for value in bar.range {
            plot.canvas.dot((x, y(value)), 3.5, Colour::Ink);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::Unit;

    #[test]
    fn every_bar_and_every_published_value_is_drawn_and_nothing_is_for_nothing() {
        let whisker = |middle: f64| Whisker { low: middle * 0.9, middle, high: middle * 1.1 };
        let pair = |mean: f64| Some(Pair { mean: whisker(mean), worst: whisker(mean * 3.0) });
        let panel = GroupPanel {
            name: "generic <b>".to_owned(),
            bars: vec![vec![pair(5e6), pair(4e6)], vec![pair(9e7), None]],
            published: vec![PublishedBar { group: 1, series: 0, range: [1e8, 3.5e8] }],
        };
        let (groups_of, series) = (["0", "128"].map(str::to_owned), ["CFS+CFS", "DL+RR"].map(str::to_owned));
        let of = Groups {
            quantity: "noise threads",
            groups: &groups_of,
            series: &series,
            deadline_ns: Some(37.3e6),
        };
        let axis = Axis { quantity: "Reaction time", unit: Unit::for_typical(5e6) };
        let (svg, key) = groups(&axis, About { alt: "a", source: "b" }, &of, std::slice::from_ref(&panel));
        assert!(key.is_empty() && !svg.contains("<b>") && !svg.contains("NaN"), "{svg}");
        for text in ["noise threads", "CFS+CFS: mean", "published", "deadline 37.3 ms", "128", "–"] {
            assert!(svg.contains(text), "{text} in {svg}");
        }
        // Nothing at all has a picture, too.
        let (svg, _) = groups(&axis, About { alt: "a", source: "b" }, &of, &[]);
        assert!(svg.contains("<svg") && !svg.contains("NaN"));
    }
}

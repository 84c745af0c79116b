//! Figures with a row for each configuration: bars, boxes, distributions.

use super::canvas::{CHARACTER, Canvas, Colour, Side, WIDTH};
use super::plot::{Entry, Plot, Swatch, legend, legend_height, mark};
use super::scale::Scale;
use super::{About, Axis, Picture, fit};

/// Longest name that stands beside its row.
const NAME: usize = 40;

/// A value over repetitions: median with least and greatest. Nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Whisker {
    /// Least over the repetitions.
    pub low: f64,
    /// Median over the repetitions.
    pub middle: f64,
    /// Greatest over the repetitions.
    pub high: f64,
}

#[derive(Clone, Debug)]
pub struct BarRow {
    pub name: String,
    pub mean: Whisker,
    pub worst: Whisker,
    pub deadline_ns: Option<f64>,
}

/// A box: order statistics, nanoseconds.
#[derive(Clone, Debug)]
pub struct BoxRow {
    pub name: String,
    pub min: f64,
    /// 1 %, 25 %, 50 %, 75 %, 99 % quantiles.
    pub quantiles: [f64; 5],
    /// 99.9 % quantile.
    pub p999: f64,
    pub max: f64,
    pub deadline_ns: Option<f64>,
}

/// A distribution: counts in bins, nanoseconds.
#[derive(Clone, Debug)]
pub struct RidgeRow {
    pub name: String,
    /// Bins in rising order: from, to, count.
    pub bins: Vec<(f64, f64, u64)>,
    pub median: f64,
    pub max: f64,
    pub deadline_ns: Option<f64>,
}

struct Frame<'f> {
    axis: &'f Axis<'f>,
    names: &'f [String],
    deadlines: &'f [Option<f64>],
    scale: Scale,
    row: f64,
    entries: Vec<Entry>,
}

impl Frame<'_> {
    /// Draws names, axis, legend and deadlines; `draw` gets the plot, the row's number and its
    /// middle's height.
    fn picture(&self, about: About<'_>, draw: impl Fn(&Plot<'_, '_>, usize, f64)) -> Picture {
        let (names, key) = fit(self.names, NAME, 'C');
        let longest = names.iter().map(|n| n.chars().count()).max().unwrap_or(0);
        let left = (longest as f64 * CHARACTER + 16.0).max(60.0);
        let mut entries = self.entries.clone();
        if self.deadlines.iter().any(Option::is_some) {
            entries.push((self.deadline_name(), Colour::Deadline, Swatch::Dashed));
        }
        let top = legend_height(&entries, left) + 6.0;
        let bottom = top + self.row * names.len().max(1) as f64 + 8.0;
        let svg = Canvas::picture(bottom + 46.0, about.alt, about.source, |canvas| {
            let plot = Plot { canvas, left, right: f64::from(WIDTH) - 24.0, top, bottom };
            let unit = self.axis.unit;
            legend(canvas, &entries, left, 0.0);
            plot.level_axis(&self.scale, &self.axis_name(), |v| mark(unit.of_ns(v)));
            plot.frame();
            for (index, name) in names.iter().enumerate() {
                let from = top + 4.0 + self.row * index as f64;
                let middle = from + self.row / 2.0;
                canvas.text(name, (left - 9.0, middle), Side::Left, Colour::Ink);
                draw(&plot, index, middle);
                if let Some(deadline) = self.deadlines.get(index).copied().flatten() {
                    plot.upright_deadline(&self.scale, deadline, from, from + self.row);
                }
            }
            if names.is_empty() {
                let middle = ((plot.left + plot.right) / 2.0, (top + bottom) / 2.0);
                canvas.text("no samples", middle, Side::Middle, Colour::Ink);
            }
        });
        (svg, key)
    }

    fn deadline_name(&self) -> String {
        let mut deadlines: Vec<f64> = self.deadlines.iter().copied().flatten().collect();
        deadlines.sort_by(f64::total_cmp);
        deadlines.dedup();
        match deadlines[..] {
            [one] => format!("deadline {}", crate::words::time(one)),
            _ => "deadline of the row".to_owned(),
        }
    }

    fn axis_name(&self) -> String {
        let name = self.axis.name();
        if self.scale.is_log() { format!("{name}, logarithmic") } else { name }
    }
}

/// The axis for rows: deadlines count only where they are not far off, else they would squeeze the
/// data.
fn scale_for(least: f64, typical: f64, high: f64, deadlines: &[Option<f64>]) -> Scale {
    let deadline = deadlines.iter().copied().flatten().fold(0.0, f64::max);
    Scale::suited(least, typical, high.max(deadline))
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// Bars of mean and worst value with whiskers from the least to the greatest repetition
/// (SentryRT-1, Fig. 3).
pub fn bars(axis: &Axis<'_>, about: About<'_>, rows: &[BarRow]) -> Picture {
    let names: Vec<String> = rows.iter().map(|r| r.name.clone()).collect();
    let deadlines: Vec<_> = rows.iter().map(|r| r.deadline_ns).collect();
    let least = rows.iter().map(|r| r.mean.low).fold(f64::MAX, f64::min) / 2.0;
    let high = rows.iter().map(|r| r.worst.high).fold(0.0, f64::max);
    let scale = scale_for(least, median(rows.iter().map(|r| r.mean.middle)), high, &deadlines);
    let entries = vec![
        ("mean".to_owned(), Colour::Series(0), Swatch::Area),
        ("worst".to_owned(), Colour::Series(1), Swatch::Area),
    ];
    let frame = Frame { axis, names: &names, deadlines: &deadlines, scale, row: 38.0, entries };
    frame.picture(about, |plot, index, middle| {
        let row = &rows[index];
        for (value, colour, y) in
            [(row.mean, Colour::Series(0), middle - 7.5), (row.worst, Colour::Series(1), middle + 7.5)]
        {
            let x = |v: f64| plot.x(&scale, v);
            plot.canvas.bar((plot.left, y - 6.0), (x(value.middle), y + 6.0), colour, 0.85);
            plot.canvas.line((x(value.low), y), (x(value.high), y), Colour::Ink, 1.5);
            for end in [value.low, value.high] {
                plot.canvas.line((x(end), y - 4.0), (x(end), y + 4.0), Colour::Ink, 1.5);
            }
        }
    })
}

/// Boxes with the deadline (quadrotor paper, Fig. 2). Whiskers do not filter: the greatest value is
/// always drawn.
pub fn boxes(axis: &Axis<'_>, about: About<'_>, rows: &[BoxRow]) -> Picture {
    let names: Vec<String> = rows.iter().map(|r| r.name.clone()).collect();
    let deadlines: Vec<_> = rows.iter().map(|r| r.deadline_ns).collect();
    let least = rows.iter().map(|r| r.min).fold(f64::MAX, f64::min);
    let high = rows.iter().map(|r| r.max).fold(0.0, f64::max);
    let scale = scale_for(least, median(rows.iter().map(|r| r.quantiles[2])), high, &deadlines);
    let entries = vec![
        ("25 % to 75 %, line: median".to_owned(), Colour::Series(0), Swatch::Area),
        ("1 % to 99 %, tick: 99.9 %".to_owned(), Colour::Ink, Swatch::Line),
        ("worst".to_owned(), Colour::Series(1), Swatch::Dot),
    ];
    let frame = Frame { axis, names: &names, deadlines: &deadlines, scale, row: 30.0, entries };
    frame.picture(about, |plot, index, y| {
        let row = &rows[index];
        let x = |v: f64| plot.x(&scale, v);
        let [p1, p25, p50, p75, p99] = row.quantiles;
        plot.canvas.line((x(p1), y), (x(p99), y), Colour::Ink, 1.5);
        for end in [p1, p99] {
            plot.canvas.line((x(end), y - 5.0), (x(end), y + 5.0), Colour::Ink, 1.5);
        }
        plot.canvas.line((x(row.p999), y - 3.0), (x(row.p999), y + 3.0), Colour::Ink, 1.5);
        // A box narrower than two pixels could not be seen.
        plot.canvas.bar((x(p25), y - 8.0), (x(p75).max(x(p25) + 2.0), y + 8.0), Colour::Series(0), 0.75);
        plot.canvas.line((x(p50), y - 8.0), (x(p50), y + 8.0), Colour::Ink, 2.0);
        plot.canvas.dot((x(row.max), y), 3.5, Colour::Series(1));
    })
}

/// Distributions, one above the other over one axis (SentryRT-1, Fig. 4). Heights are logarithmic
/// counts, so that one value far out is seen beside a million in the middle.
pub fn ridges(axis: &Axis<'_>, about: About<'_>, rows: &[RidgeRow]) -> Picture {
    let names: Vec<String> = rows.iter().map(|r| r.name.clone()).collect();
    let deadlines: Vec<_> = rows.iter().map(|r| r.deadline_ns).collect();
    let filled = |row: &RidgeRow| row.bins.iter().find(|b| b.2 > 0).map_or(f64::MAX, |b| b.0);
    let least = rows.iter().map(filled).fold(f64::MAX, f64::min);
    let high = rows.iter().map(|r| r.max).fold(0.0, f64::max);
    let scale = scale_for(least, median(rows.iter().map(|r| r.median)), high, &deadlines);
    let most = rows.iter().flat_map(|r| &r.bins).map(|b| b.2).max().unwrap_or(1).max(1) as f64;
    let height = |count: u64| if count == 0 { 0.0 } else { (1.0 + count as f64).ln() / (1.0 + most).ln() };
    let entries = vec![
        ("number of samples (logarithmic height)".to_owned(), Colour::Series(0), Swatch::Area),
        ("median".to_owned(), Colour::Ink, Swatch::Line),
        ("worst".to_owned(), Colour::Series(1), Swatch::Dot),
    ];
    let row_height = 46.0;
    let frame = Frame { axis, names: &names, deadlines: &deadlines, scale, row: row_height, entries };
    frame.picture(about, |plot, index, middle| {
        let row = &rows[index];
        let base = middle + row_height / 2.0 - 4.0;
        let x = |v: f64| plot.x(&scale, v);
        plot.canvas.line((plot.left, base), (plot.right, base), Colour::Faint, 1.0);
        for &(from, to, count) in row.bins.iter().filter(|b| b.2 > 0) {
            let top = base - (row_height - 10.0) * height(count);
            plot.canvas.bar((x(from), top), (x(to).max(x(from) + 1.0), base), Colour::Series(0), 0.85);
        }
        plot.canvas.line((x(row.median), base - row_height + 8.0), (x(row.median), base), Colour::Ink, 1.5);
        plot.canvas.dot((x(row.max), base), 3.5, Colour::Series(1));
    })
}

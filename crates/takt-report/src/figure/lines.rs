//! Curves: how maximum and mean developed, and which share of the samples lies above a value.

use super::canvas::{Canvas, Colour, Side, WIDTH};
use super::plot::{Entry, Plot, Swatch, legend, legend_height, mark};
use super::scale::Scale;
use super::{About, Axis, Picture, fit};

/// A curve; points in the units of the axes, in rising order of x.
#[derive(Clone, Debug)]
pub struct Line {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

/// Quantities on the axes of a figure of curves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Curves {
    /// Seconds against a latency in nanoseconds that keeps its value until the next point (a
    /// maximum).
    Steps,
    /// Seconds against a latency in nanoseconds (a mean).
    Trend,
    /// A latency in nanoseconds against the share of samples above it.
    Above,
}

/// The unit in which a time axis of `seconds` is read best: its length in seconds and its name.
pub(crate) fn time_unit(seconds: f64) -> (f64, &'static str) {
    match seconds {
        s if s < 180.0 => (1.0, "s"),
        s if s < 3.0 * 3600.0 => (60.0, "min"),
        s if s < 3.0 * 86_400.0 => (3600.0, "h"),
        _ => (86_400.0, "days"),
    }
}

/// Draws curves in plots of at most `Colour::SERIES` curves, one plot below the other, with common
/// axes.
pub fn lines(
    axis: &Axis<'_>,
    about: About<'_>,
    what: Curves,
    curves: &[Line],
    deadline_ns: Option<f64>,
) -> Picture {
    let names: Vec<String> = curves.iter().map(|c| c.name.clone()).collect();
    let (names, key) = fit(&names, 56, 'C');
    let all = || curves.iter().flat_map(|c| &c.points);
    let high_x = all().map(|p| p.0).fold(0.0, f64::max);
    let high_y = all().map(|p| p.1).fold(0.0, f64::max);
    let low = |pick: fn(&(f64, f64)) -> f64| all().map(pick).filter(|v| *v > 0.0).fold(f64::MAX, f64::min);
    let (per_unit, unit_name) = time_unit(high_x);
    let (x_scale, y_scale) = match what {
        Curves::Steps | Curves::Trend => {
            let y = if high_y > 20.0 * low(|p| p.1) {
                Scale::log(low(|p| p.1), high_y)
            } else {
                Scale::linear(high_y)
            };
            (Scale::span(high_x, per_unit), y)
        }
        Curves::Above => {
            let reach = high_x.max(deadline_ns.unwrap_or(0.0));
            (Scale::log(low(|p| p.0).max(1.0), reach), Scale::log((low(|p| p.1) / 2.0).min(0.1), 1.0))
        }
    };
    let groups: Vec<(&[Line], &[String])> =
        curves.chunks(Colour::SERIES).zip(names.chunks(Colour::SERIES)).collect();
    let (left, height) = (82.0, 220.0);
    // A deadline far above would only squeeze the curves.
    let drawn = |deadline: f64| what == Curves::Above || deadline <= high_y * 1.05;
    let entries_of = |names: &[String]| -> Vec<Entry> {
        let mut entries: Vec<Entry> =
            names.iter().enumerate().map(|(i, n)| (n.clone(), Colour::Series(i), Swatch::Line)).collect();
        if let Some(deadline) = deadline_ns {
            let name = format!("deadline {}", crate::words::time(deadline));
            let name = if drawn(deadline) { name } else { format!("{name}: far above") };
            entries.push((name, Colour::Deadline, Swatch::Dashed));
        }
        entries
    };
    let tall = |names: &[String]| legend_height(&entries_of(names), left) + height + 84.0;
    let total: f64 = groups.iter().map(|(_, names)| tall(names)).sum();
    let svg = Canvas::picture(total.max(80.0), about.alt, about.source, |canvas| {
        let mut from = 0.0;
        for (curves, names) in &groups {
            let entries = entries_of(names);
            let top = from + legend_height(&entries, left) + 28.0;
            let plot = Plot { canvas, left, right: f64::from(WIDTH) - 30.0, top, bottom: top + height };
            legend(canvas, &entries, left, from);
            let deadline_up = match what {
                Curves::Above => {
                    plot.level_axis(&x_scale, &format!("{}, logarithmic", axis.name()), |v| {
                        mark(axis.unit.of_ns(v))
                    });
                    plot.upright_axis(&y_scale, "Share of samples above the value, logarithmic", mark);
                    true
                }
                _ => {
                    plot.level_axis(&x_scale, &format!("Time since the first sample ({unit_name})"), |v| {
                        mark(v / per_unit)
                    });
                    let log = if y_scale.is_log() { ", logarithmic" } else { "" };
                    plot.upright_axis(&y_scale, &format!("{}{log}", axis.name()), |v| {
                        mark(axis.unit.of_ns(v))
                    });
                    false
                }
            };
            plot.frame();
            match deadline_ns {
                Some(deadline) if deadline_up => plot.upright_deadline(&x_scale, deadline, top, top + height),
                Some(deadline) if drawn(deadline) => plot.level_deadline(&y_scale, deadline),
                _ => {}
            }
            for (index, curve) in curves.iter().enumerate() {
                let mut points = Vec::with_capacity(curve.points.len() * 2);
                let mut last_y = None;
                for &(x, y) in &curve.points {
                    let (x, y) = (plot.x(&x_scale, x), plot.y(&y_scale, y));
                    if let (Curves::Steps | Curves::Above, Some(last)) = (what, last_y) {
                        points.push((x, last));
                    }
                    points.push((x, y));
                    last_y = Some(y);
                }
                if let [only] = points[..] {
                    canvas.dot(only, 3.0, Colour::Series(index));
                }
                canvas.path(&points, Colour::Series(index), 1.8);
            }
            from = top + height + 52.0;
        }
        if groups.is_empty() {
            canvas.text("no samples", (f64::from(WIDTH) / 2.0, 40.0), Side::Middle, Colour::Ink);
        }
    });
    (svg, key)
}

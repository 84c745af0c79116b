//! A figure of every run in the order of kernels, versions or days, with the levels between
//! changes.

use super::canvas::{CHARACTER, Canvas, Colour, Side, WIDTH};
use super::plot::{Plot, mark};
use super::scale::Scale;
use crate::words::{Unit, clean, shorten};

/// A run of a history.
#[derive(Clone, Debug)]
pub struct HistoryPoint {
    /// Its kernel, version or day.
    pub at: String,
    /// Nanoseconds; `None` where nothing came.
    pub ns: Option<f64>,
}

/// One measure in one configuration.
#[derive(Clone, Debug)]
pub struct HistoryPicture {
    pub title: String,
    pub points: Vec<HistoryPoint>,
    /// Levels: the first run, the one after the last, nanoseconds.
    pub levels: Vec<(usize, usize, f64)>,
}

/// Draws histories one below the other.
pub fn history_picture(histories: &[HistoryPicture], by: &str) -> String {
    let (left, height) = (82.0, 200.0);
    let tall = height + 96.0;
    let alt = format!("History by {by}: figures of the runs, their levels and the changes between them");
    Canvas::picture(tall * histories.len().max(1) as f64, &alt, "takt history", |canvas| {
        for (index, history) in histories.iter().enumerate() {
            let top = tall * index as f64 + 46.0;
            let plot = Plot { canvas, left, right: f64::from(WIDTH) - 30.0, top, bottom: top + height };
            one(&plot, history);
        }
    })
}

fn one(plot: &Plot<'_, '_>, history: &HistoryPicture) {
    let mut values: Vec<f64> = history.points.iter().filter_map(|p| p.ns).collect();
    values.sort_unstable_by(f64::total_cmp);
    let at = |index: usize| values.get(index).copied().unwrap_or(0.0);
    let (typical, high) = (at(values.len() / 2), at(values.len().saturating_sub(1)));
    let (unit, scale) = (Unit::for_typical(typical), Scale::suited(at(0), typical, high));
    let canvas = plot.canvas;
    canvas.text(&shorten(&clean(&history.title), 110), (6.0, plot.top - 34.0), Side::Right, Colour::Ink);
    plot.upright_axis(&scale, unit.sign(), |ns| mark(unit.of_ns(ns)));
    plot.frame();
    // A place for each run: the middle of its share of the axis.
    let wide = (plot.right - plot.left) / history.points.len().max(1) as f64;
    let edge = |index: usize| plot.left + wide * index as f64;
    let mut written = f64::NEG_INFINITY;
    for (index, point) in history.points.iter().enumerate() {
        if index == 0 || history.points[index - 1].at != point.at {
            let name = shorten(&clean(&point.at), 24);
            // Names that would be written over each other are left out; their line stays.
            canvas.line((edge(index), plot.top), (edge(index), plot.bottom + 4.0), Colour::Faint, 1.0);
            if edge(index) >= written {
                canvas.text(&name, (edge(index) + 2.0, plot.bottom + 13.0), Side::Right, Colour::Ink);
                written = edge(index) + (name.chars().count() as f64 + 1.0) * CHARACTER;
            }
        }
        // A sample that never came is drawn at the upper edge.
        let y = point.ns.map_or(plot.top, |ns| plot.y(&scale, ns));
        canvas.dot((edge(index) + wide / 2.0, y), 3.0, Colour::Series(0));
    }
    for (index, (from, to, ns)) in history.levels.iter().enumerate() {
        let y = if ns.is_finite() { plot.y(&scale, *ns) } else { plot.top };
        canvas.line((edge(*from), y), (edge(*to), y), Colour::Series(1), 2.5);
        if index > 0 {
            canvas.dashed((edge(*from), plot.top), (edge(*from), plot.bottom), Colour::Deadline);
        }
    }
}

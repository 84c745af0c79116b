//! Time series, a panel for each configuration (quadrotor paper, Figs. 3-9).

use super::canvas::{Canvas, Colour, Side, WIDTH};
use super::lines::time_unit;
use super::plot::{Entry, Plot, Swatch, legend, legend_height, mark};
use super::scale::Scale;
use super::{About, Axis, Picture, fit};

/// Columns that a series is thinned to. Each keeps its least and its greatest value: no outlier
/// vanishes.
pub(crate) const COLUMNS: usize = 360;

/// A thinned series.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Layer {
    /// Its name: "stress off". Equal names have equal colours.
    pub name: String,
    /// Drawn in the second colour: under interference.
    pub stressed: bool,
    /// Place on the level axis, least and greatest value (nanoseconds); at most `COLUMNS` of them.
    pub columns: Vec<(f64, f64, f64)>,
}

#[derive(Clone, Debug)]
pub struct Panel {
    pub name: String,
    /// Its series; the first is drawn first and lies below.
    pub layers: Vec<Layer>,
    pub deadline_ns: Option<f64>,
}

/// Draws panels in two columns with common axes. `seconds`: the level axis is time; else the number
/// of the sample.
pub fn panels(axis: &Axis<'_>, about: About<'_>, all: &[Panel], seconds: bool) -> Picture {
    let names: Vec<String> = all.iter().map(|p| p.name.clone()).collect();
    let (names, key) = fit(&names, 54, 'P');
    let columns = || all.iter().flat_map(|p| &p.layers).flat_map(|l| &l.columns);
    let high_x = columns().map(|c| c.0).fold(0.0, f64::max);
    let high = columns().map(|c| c.2).fold(0.0, f64::max);
    let low = columns().map(|c| c.1).fold(f64::MAX, f64::min);
    let mut middles: Vec<f64> = columns().map(|c| c.1).collect();
    middles.sort_by(f64::total_cmp);
    let typical = middles.get(middles.len() / 2).copied().unwrap_or(0.0);
    // The deadline is drawn where it is near: far above, it would press all series to the ground.
    let near = all.iter().filter_map(|p| p.deadline_ns).filter(|d| *d <= high * 20.0).fold(0.0, f64::max);
    let y_scale = Scale::suited(low, typical, high.max(near));
    let (per_unit, unit_name) = if seconds { time_unit(high_x) } else { (1.0, "") };
    let x_scale = Scale::span(high_x, per_unit);
    let entries = entries(all, near);
    let two = all.len() > 1;
    let (left, gap, right) = (70.0, 62.0, f64::from(WIDTH) - 24.0);
    let width = if two { (right - left - gap) / 2.0 } else { right - left };
    let (height, step) = if two { (130.0, 188.0) } else { (220.0, 276.0) };
    let top = legend_height(&entries, left) + 50.0;
    let rows = all.len().div_ceil(if two { 2 } else { 1 });
    let total = top + step * rows as f64 + 6.0;
    let x_name =
        if seconds { format!("Time since the first sample ({unit_name})") } else { "Sample".to_owned() };
    let svg = Canvas::picture(total, about.alt, about.source, |canvas| {
        legend(canvas, &entries, left, 0.0);
        let log = if y_scale.is_log() { ", logarithmic" } else { "" };
        canvas.text(&format!("Upright: {}{log}", axis.name()), (left, top - 38.0), Side::Right, Colour::Ink);
        for (index, (panel, name)) in all.iter().zip(&names).enumerate() {
            let x = left + if two && index % 2 == 1 { width + gap } else { 0.0 };
            let y = top + step * (index / if two { 2 } else { 1 }) as f64;
            let plot = Plot { canvas, left: x, right: x + width, top: y, bottom: y + height };
            canvas.text(name, (x, y - 12.0), Side::Right, Colour::Ink);
            // Only the lowest panel of a column names the axis.
            let last = index + if two { 2 } else { 1 } >= all.len();
            plot.level_axis(&x_scale, if last { &x_name } else { "" }, |v| mark(v / per_unit));
            plot.upright_axis(&y_scale, "", |v| mark(axis.unit.of_ns(v)));
            plot.frame();
            for layer in &panel.layers {
                draw(&plot, layer, &x_scale, &y_scale);
            }
            if panel.layers.iter().all(|l| l.columns.is_empty()) {
                canvas.text("no samples", (x + width / 2.0, y + height / 2.0), Side::Middle, Colour::Ink);
            }
            if let Some(deadline) = panel.deadline_ns.filter(|d| *d <= near) {
                plot.level_deadline(&y_scale, deadline);
            }
        }
    });
    (svg, key)
}

/// A band from least to greatest value of each column, one closed shape.
fn draw(plot: &Plot<'_, '_>, layer: &Layer, x_scale: &Scale, y_scale: &Scale) {
    let colour = Colour::Series(usize::from(layer.stressed));
    let mut outline: Vec<(f64, f64)> =
        layer.columns.iter().map(|c| (plot.x(x_scale, c.0), plot.y(y_scale, c.2) - 0.5)).collect();
    outline.extend(layer.columns.iter().rev().map(|c| (plot.x(x_scale, c.0), plot.y(y_scale, c.1) + 0.5)));
    match outline[..] {
        [] => {}
        [top, bottom] => plot.canvas.line(top, bottom, colour, 2.0),
        _ => {
            plot.canvas.area(&outline, colour, 0.85);
            // If a column holds one value, the band has no width: only its outline shows a spike of
            // it. Its upper half suffices, for there the lower one is the same.
            plot.canvas.path(&outline[..layer.columns.len()], colour, 1.0);
        }
    }
}

fn entries(all: &[Panel], near: f64) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    for layer in all.iter().flat_map(|p| &p.layers) {
        if !layer.name.is_empty() && !entries.iter().any(|(name, ..)| *name == layer.name) {
            entries.push((layer.name.clone(), Colour::Series(usize::from(layer.stressed)), Swatch::Area));
        }
    }
    let mut deadlines: Vec<f64> = all.iter().filter_map(|p| p.deadline_ns).collect();
    deadlines.sort_by(f64::total_cmp);
    deadlines.dedup();
    let words = match deadlines[..] {
        [] => return entries,
        [one] => format!("deadline {}", crate::words::time(one)),
        _ => "deadline".to_owned(),
    };
    let far = deadlines.iter().all(|d| *d > near);
    let words = if far { format!("{words}: far above") } else { words };
    entries.push((words, Colour::Deadline, Swatch::Dashed));
    entries
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::Unit;

    #[test]
    fn a_panel_of_ten_million_samples_stays_small() {
        let columns = (0..COLUMNS).map(|i| (i as f64, 4e3 + i as f64, 9e6 - i as f64)).collect();
        let layer = Layer { name: "stress".into(), stressed: true, columns };
        let panel = Panel { name: "fifo".into(), layers: vec![layer], deadline_ns: Some(4e6) };
        let axis = Axis { quantity: "Lateness", unit: Unit::Micro };
        let (svg, _) = panels(&axis, About { alt: "a", source: "s" }, &vec![panel; 32], true);
        assert!(svg.len() < 600_000, "{}", svg.len());
        assert_eq!(svg.matches("<polygon").count(), 32);
    }
}

//! Distribution functions side by side, a panel for each phase (*ROS-Llama*, Figs. 3 and 4): curve
//! by curve who keeps the goal.

use super::canvas::{Canvas, Colour, Side, WIDTH};
use super::lines::Line;
use super::plot::{Entry, Plot, Swatch, legend, legend_height, mark};
use super::scale::Scale;
use super::{About, Axis, Picture, fit};

#[derive(Clone, Debug)]
pub struct CdfPanel {
    /// The phase; empty where there is only one panel.
    pub name: String,
    /// A curve for each configuration, in the order of their names; empty ones are left out.
    /// Points: a latency in nanoseconds and the share of samples that are not above it.
    pub curves: Vec<Line>,
}

/// Panels in a row.
const ACROSS: usize = 3;
const HEIGHT: f64 = 230.0;

/// Draws panels with common axes. `names` are those of the curves in every panel.
pub fn cdfs(
    axis: &Axis<'_>,
    about: About<'_>,
    names: &[String],
    panels: &[CdfPanel],
    deadline_ns: Option<f64>,
) -> Picture {
    let (names, key) = fit(names, 56, 'C');
    let values = || panels.iter().flat_map(|p| &p.curves).flat_map(|c| &c.points).map(|p| p.0);
    let (low, high) = (values().fold(f64::MAX, f64::min), values().fold(0.0, f64::max));
    let reach = high.max(deadline_ns.unwrap_or(0.0));
    // On a linear axis, as in the paper, unless what is late would push all that is in time to its
    // beginning.
    let wanted = deadline_ns.unwrap_or(high);
    let x_scale = if reach > 4.0 * wanted { Scale::log(low.max(1.0), reach) } else { Scale::linear(reach) };
    let y_scale = Scale::linear(1.0);
    let mut entries: Vec<Entry> =
        names.iter().enumerate().map(|(i, n)| (n.clone(), Colour::Series(i), Swatch::Line)).collect();
    if let Some(deadline) = deadline_ns {
        let name = format!("goal {}", crate::words::time(deadline));
        entries.push((name, Colour::Deadline, Swatch::Dashed));
    }
    let (left, right, gap) = (60.0, f64::from(WIDTH) - 24.0, 34.0);
    let across = panels.len().clamp(1, ACROSS);
    let width = (right - left - gap * (across - 1) as f64) / across as f64;
    let down = panels.len().div_ceil(ACROSS);
    let first = legend_height(&entries, left);
    let each = HEIGHT + 92.0;
    let svg = Canvas::picture((first + each * down as f64).max(80.0), about.alt, about.source, |canvas| {
        legend(canvas, &entries, left, 0.0);
        for (number, panel) in panels.iter().enumerate() {
            let (row, column) = (number / ACROSS, number % ACROSS);
            let from = left + column as f64 * (width + gap);
            let top = first + row as f64 * each + 44.0;
            let plot = Plot { canvas, left: from, right: from + width, top, bottom: top + HEIGHT };
            canvas.text(&panel.name, (from + width / 2.0, top - 14.0), Side::Middle, Colour::Ink);
            let log = if x_scale.is_log() { ", logarithmic" } else { "" };
            let level = if across == 1 { axis.name() } else { axis.unit.sign().to_owned() };
            plot.level_axis(&x_scale, &format!("{level}{log}"), |v| mark(axis.unit.of_ns(v)));
            let share = |v: f64| if column == 0 { mark(v) } else { String::new() };
            plot.upright_axis(&y_scale, "", share);
            plot.frame();
            if let Some(deadline) = deadline_ns {
                plot.upright_deadline(&x_scale, deadline, top, top + HEIGHT);
            }
            for (index, curve) in panel.curves.iter().enumerate() {
                draw(canvas, &plot, (&x_scale, &y_scale), curve, Colour::Series(index));
            }
        }
        if panels.iter().all(|panel| panel.curves.iter().all(|curve| curve.points.is_empty())) {
            canvas.text("no samples", (f64::from(WIDTH) / 2.0, first + 20.0), Side::Middle, Colour::Ink);
        }
    });
    (svg, key)
}

/// A staircase from 0 to 1, which ends where the greatest value is: a dot says so.
fn draw(
    canvas: &Canvas<'_>,
    plot: &Plot<'_, '_>,
    (x_scale, y_scale): (&Scale, &Scale),
    curve: &Line,
    colour: Colour,
) {
    let (Some(first), Some(last)) = (curve.points.first(), curve.points.last()) else { return };
    let mut points = vec![(plot.x(x_scale, first.0), plot.y(y_scale, 0.0))];
    for &(value, share) in &curve.points {
        let x = plot.x(x_scale, value);
        let before = points.last().map_or(0.0, |point| point.1);
        points.push((x, before));
        points.push((x, plot.y(y_scale, share)));
    }
    canvas.path(&points, colour, 1.8);
    canvas.dot((plot.x(x_scale, last.0), plot.y(y_scale, last.1)), 3.0, colour);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::Unit;

    fn panel(name: &str, latest: f64) -> CdfPanel {
        let points = (1..=10).map(|i| (latest * f64::from(i) / 10.0, f64::from(i) / 10.0)).collect();
        let empty = Line { name: "never".to_owned(), points: Vec::new() };
        CdfPanel { name: name.to_owned(), curves: vec![Line { name: "cfs".to_owned(), points }, empty] }
    }

    #[test]
    fn panels_stand_side_by_side_and_late_curves_do_not_squeeze_the_others() {
        let axis = Axis { quantity: "Latency", unit: Unit::Milli };
        let about = About { alt: "a", source: "b" };
        let names = ["cfs".to_owned(), "never".to_owned()];
        let draw = |panels: &[CdfPanel]| cdfs(&axis, about, &names, panels, Some(100e6)).0;
        let linear = draw(&[panel("no load", 50e6), panel("high load", 150e6)]);
        assert!(linear.contains("no load") && linear.contains("high load") && linear.contains("goal 100 ms"));
        assert!(!linear.contains("logarithmic"));
        assert!(draw(&[panel("no load", 50e6), panel("high load", 7e9)]).contains("logarithmic"));
        let height = |svg: &str| -> u32 {
            let from = svg.find("height=\"").unwrap() + 8;
            svg[from..].split('"').next().unwrap().parse().unwrap()
        };
        let four: Vec<CdfPanel> = (0..4).map(|i| panel(&i.to_string(), 50e6)).collect();
        assert!(height(&draw(&four)) > height(&linear) + 200, "a fourth panel begins a row");
        assert!(draw(&[]).contains("no samples"));
    }
}

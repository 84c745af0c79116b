//! The frame around data: axes with marks and names, grid lines, legend, deadline.

use super::canvas::{CHARACTER, Canvas, Colour, Side, WIDTH};
use super::scale::Scale;
use crate::words::short;

/// A rectangle of the picture with two axes.
#[derive(Clone, Copy)]
pub(crate) struct Plot<'a, 'b> {
    pub(crate) canvas: &'a Canvas<'b>,
    pub(crate) left: f64,
    pub(crate) right: f64,
    pub(crate) top: f64,
    pub(crate) bottom: f64,
}

impl Plot<'_, '_> {
    /// Place on the level axis.
    pub(crate) fn x(&self, scale: &Scale, value: f64) -> f64 {
        self.left + (self.right - self.left) * scale.place(value)
    }

    /// Place on the upright axis.
    pub(crate) fn y(&self, scale: &Scale, value: f64) -> f64 {
        self.bottom - (self.bottom - self.top) * scale.place(value)
    }

    pub(crate) fn frame(&self) {
        self.canvas.frame((self.left, self.top), (self.right, self.bottom), Colour::Faint);
    }

    /// Marks, grid and name of the level axis; `label` writes a mark.
    pub(crate) fn level_axis(&self, scale: &Scale, name: &str, label: impl Fn(f64) -> String) {
        // Room for labels of ten characters.
        let marks = scale.marks(((self.right - self.left) / (CHARACTER * 10.0)) as usize);
        for mark in marks {
            let x = self.x(scale, mark);
            self.canvas.line((x, self.top), (x, self.bottom), Colour::Faint, 1.0);
            self.canvas.text(&label(mark), (x, self.bottom + 13.0), Side::Middle, Colour::Ink);
        }
        let middle = (self.left + self.right) / 2.0;
        if !name.is_empty() {
            self.canvas.text(name, (middle, self.bottom + 33.0), Side::Middle, Colour::Ink);
        }
    }

    /// Marks, grid and name of the upright axis. The name stands level above it, where long ones
    /// have room.
    pub(crate) fn upright_axis(&self, scale: &Scale, name: &str, label: impl Fn(f64) -> String) {
        if !name.is_empty() {
            self.canvas.text(name, (6.0, self.top - 14.0), Side::Right, Colour::Ink);
        }
        for mark in scale.marks(((self.bottom - self.top) / 24.0) as usize) {
            let y = self.y(scale, mark);
            self.canvas.line((self.left, y), (self.right, y), Colour::Faint, 1.0);
            self.canvas.text(&label(mark), (self.left - 7.0, y), Side::Left, Colour::Ink);
        }
    }

    /// A part of the deadline line, upright from `from_y` to `to_y`.
    pub(crate) fn upright_deadline(&self, scale: &Scale, deadline: f64, from_y: f64, to_y: f64) {
        let x = self.x(scale, deadline);
        self.canvas.dashed((x, from_y), (x, to_y), Colour::Deadline);
    }

    /// The deadline line, level, all across.
    pub(crate) fn level_deadline(&self, scale: &Scale, deadline: f64) {
        let y = self.y(scale, deadline);
        self.canvas.dashed((self.left, y), (self.right, y), Colour::Deadline);
    }
}

/// A mark on an axis, without the unit: it stands in the axis' name.
pub(crate) fn mark(value: f64) -> String {
    if value == 0.0 || (1e-3..1e7).contains(&value.abs()) {
        return short(value);
    }
    // Marks are round: more digits would only show how powers of ten are rounded.
    let text = format!("{value:.1e}");
    text.replace(".0e", "e")
}

/// Drawing style of a legend's entry.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Swatch {
    Area,
    /// An area light enough to be written on.
    Tint,
    Line,
    Dashed,
    Dot,
}

impl Swatch {
    /// Opacity of an area that is written on.
    pub(crate) const TINT: f64 = 0.45;
}

/// One entry of a legend.
pub(crate) type Entry = (String, Colour, Swatch);

/// Lays entries into lines; returns their places and the height that they take.
fn lay(entries: &[Entry], left: f64) -> (Vec<(f64, f64)>, f64) {
    let (mut x, mut y) = (left, 15.0);
    let mut places = Vec::new();
    for (name, ..) in entries {
        let width = 30.0 + name.chars().count() as f64 * CHARACTER + 18.0;
        if x > left && x + width > f64::from(WIDTH) {
            (x, y) = (left, y + 20.0);
        }
        places.push((x, y));
        x += width;
    }
    let height = if entries.is_empty() { 0.0 } else { y + 15.0 };
    (places, height)
}

pub(crate) fn legend_height(entries: &[Entry], left: f64) -> f64 {
    lay(entries, left).1
}

/// Draws a legend, `down` pixels below the top of the picture.
pub(crate) fn legend(canvas: &Canvas<'_>, entries: &[Entry], left: f64, down: f64) {
    for ((name, colour, swatch), (x, y)) in entries.iter().zip(lay(entries, left).0) {
        let y = y + down;
        match swatch {
            Swatch::Area => canvas.bar((x, y - 6.0), (x + 22.0, y + 6.0), *colour, 0.9),
            Swatch::Tint => {
                canvas.bar((x, y - 6.0), (x + 22.0, y + 6.0), *colour, Swatch::TINT);
                canvas.frame((x, y - 6.0), (x + 22.0, y + 6.0), *colour);
            }
            Swatch::Line => canvas.line((x, y), (x + 22.0, y), *colour, 2.0),
            Swatch::Dashed => canvas.dashed((x, y), (x + 22.0, y), *colour),
            Swatch::Dot => canvas.dot((x + 11.0, y), 3.5, *colour),
        }
        canvas.text(name, (x + 30.0, y), Side::Right, Colour::Ink);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_legend_wraps_before_the_edge() {
        let entries: Vec<Entry> =
            (0..9).map(|i| (format!("configuration number {i}"), Colour::Series(i), Swatch::Line)).collect();
        let (places, height) = lay(&entries, 60.0);
        for ((name, ..), (x, y)) in entries.iter().zip(&places) {
            assert!(x + 30.0 + name.chars().count() as f64 * CHARACTER <= f64::from(WIDTH) && *y < height);
        }
        assert!(places[8].1 > places[0].1);
    }

    #[test]
    fn marks_are_short() {
        assert_eq!(mark(0.5), "0.5");
        assert_eq!(mark(1e9), "1e9");
        assert_eq!(mark(10_000.0), "10000");
        assert_eq!(mark(1e-7), "1e-7");
        assert_eq!(mark(3.000_000_000_3e-4), "3e-4");
        assert_eq!(mark(2.5e8), "2.5e8");
    }
}

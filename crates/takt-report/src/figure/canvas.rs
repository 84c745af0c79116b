//! Drawing: the few shapes that the figures need, over plotters' SVG backend.
//!
//! Text and lines are drawn in the colour of the text around the figure (`currentColor`), and
//! series in colours that stand out on white and on near-black alike, so that one picture serves
//! light pages, dark pages and paper.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::words::clean;

/// Width of every figure.
pub(crate) const WIDTH: i32 = 960;
/// Plotters places shapes on whole pixels; a finer grid than the screen's keeps lines smooth.
const FINE: i32 = 2;
/// Size of all writing, pixels.
const LETTER: f64 = 13.0;
/// Width of a character, generous for a sans-serif face: nothing overlaps where the viewer's font
/// is wider.
pub(crate) const CHARACTER: f64 = 7.4;

/// The backend divides sizes of writing by this.
const BACKEND: f64 = 1.24;

/// Stands for the colour of the text around; replaced when the picture is done.
const INK: RGBColor = RGBColor(1, 1, 1);

/// A colour of a series. After Okabe and Ito's palette for all colour vision, orange darkened and
/// pink made violet until they reach 3:1 on white and stand apart from the deadline; all reach 3:1
/// on near-black.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Colour {
    /// Writing, axes.
    Ink,
    /// Grid lines.
    Faint,
    /// The deadline; nothing else has this colour.
    Deadline,
    /// A series, by number.
    Series(usize),
}

impl Colour {
    /// Number of series that can be distinguished in one plot.
    pub(crate) const SERIES: usize = 6;

    fn rgba(self) -> RGBAColor {
        match self {
            Self::Ink => INK.to_rgba(),
            Self::Faint => INK.mix(0.15),
            Self::Deadline => RGBColor(0xe2, 0x3a, 0x77).to_rgba(),
            Self::Series(index) => [
                RGBColor(0x00, 0x72, 0xb2),
                RGBColor(0xd5, 0x5e, 0x00),
                RGBColor(0x00, 0x91, 0x6a),
                RGBColor(0x8a, 0x63, 0xd2),
                RGBColor(0xb5, 0x80, 0x00),
                RGBColor(0x3a, 0x96, 0xcf),
            ][index % Self::SERIES]
                .to_rgba(),
        }
    }
}

/// Side of a point on which its text stands.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Side {
    /// Begins at the point.
    Right,
    /// Ends at the point.
    Left,
    /// Has the point in its middle.
    Middle,
}

/// A picture under way. Places are in pixels of a figure [`WIDTH`] wide; shapes outside are cut off
/// by the viewer.
pub(crate) struct Canvas<'a> {
    area: DrawingArea<SVGBackend<'a>, Shift>,
}

fn fine(value: f64) -> i32 {
    // A cast saturates; the bound keeps sums of places within range too.
    (value * f64::from(FINE)).round().clamp(-1e6, 1e6) as i32
}

fn at(x: f64, y: f64) -> (i32, i32) {
    (fine(x), fine(y))
}

impl Canvas<'_> {
    /// Draws a picture `height` pixels high and returns it as SVG with `alt` as its name for
    /// readers that cannot see it and `source` as its description: where it came from.
    pub(crate) fn picture(height: f64, alt: &str, source: &str, draw: impl FnOnce(&Canvas<'_>)) -> String {
        let height = height.ceil().clamp(40.0, 30_000.0) as i32;
        let mut svg = String::new();
        let size = ((WIDTH * FINE) as u32, (height * FINE) as u32);
        draw(&Canvas { area: SVGBackend::with_string(&mut svg, size).into_drawing_area() });
        finish(&svg, height, alt, source)
    }

    // An SVG backend that writes into memory has no way to fail; a shape that it refused would only
    // be missing.
    fn line_of(&self, points: Vec<(i32, i32)>, style: ShapeStyle) {
        let _ = self.area.draw(&PathElement::new(points, style));
    }

    /// A line through points.
    pub(crate) fn path(&self, points: &[(f64, f64)], colour: Colour, width: f64) {
        let style = colour.rgba().stroke_width((width * f64::from(FINE)).round() as u32);
        self.line_of(points.iter().map(|&(x, y)| at(x, y)).collect(), style);
    }

    /// A straight line.
    pub(crate) fn line(&self, from: (f64, f64), to: (f64, f64), colour: Colour, width: f64) {
        self.path(&[from, to], colour, width);
    }

    /// A straight dashed line, level or upright.
    pub(crate) fn dashed(&self, from: (f64, f64), to: (f64, f64), colour: Colour) {
        let length = (to.0 - from.0).hypot(to.1 - from.1);
        let steps = (length / 9.0).ceil().clamp(1.0, 2000.0) as usize;
        let point = |share: f64| (from.0 + (to.0 - from.0) * share, from.1 + (to.1 - from.1) * share);
        for step in 0..steps {
            let begin = step as f64 / steps as f64;
            self.line(point(begin), point(begin + 0.6 / steps as f64), colour, 1.5);
        }
    }

    /// A filled area.
    pub(crate) fn area(&self, points: &[(f64, f64)], colour: Colour, opacity: f64) {
        let points: Vec<_> = points.iter().map(|&(x, y)| at(x, y)).collect();
        let _ = self.area.draw(&Polygon::new(points, colour.rgba().mix(opacity).filled()));
    }

    /// A rectangle, filled.
    pub(crate) fn bar(&self, from: (f64, f64), to: (f64, f64), colour: Colour, opacity: f64) {
        let style = colour.rgba().mix(opacity).filled();
        let _ = self.area.draw(&Rectangle::new([at(from.0, from.1), at(to.0, to.1)], style));
    }

    /// A rectangle, framed.
    pub(crate) fn frame(&self, from: (f64, f64), to: (f64, f64), colour: Colour) {
        let style = colour.rgba().stroke_width(FINE as u32);
        let _ = self.area.draw(&Rectangle::new([at(from.0, from.1), at(to.0, to.1)], style));
    }

    pub(crate) fn dot(&self, place: (f64, f64), radius: f64, colour: Colour) {
        let _ = self.area.draw(&Circle::new(at(place.0, place.1), fine(radius), colour.rgba().filled()));
    }

    /// Writing, level, its middle on the height of the point.
    pub(crate) fn text(&self, text: &str, place: (f64, f64), side: Side, colour: Colour) {
        let anchor = match side {
            Side::Right => HPos::Left,
            Side::Left => HPos::Right,
            Side::Middle => HPos::Center,
        };
        let colour = colour.rgba();
        let style = TextStyle::from(("sans-serif", LETTER * BACKEND * f64::from(FINE)).into_font())
            .color(&colour)
            .pos(Pos::new(anchor, VPos::Center));
        let _ = self.area.draw(&Text::new(clean(text), at(place.0, place.1), style));
    }
}

/// Makes plotters' output a picture that scales, has a name and takes the colour of the text around
/// it.
fn finish(svg: &str, height: i32, alt: &str, source: &str) -> String {
    let body = svg.split_once('>').map_or("", |(_, body)| body);
    let escape = |text: &str| maud::html! { (clean(text)) }.into_string();
    let (alt, source) = (escape(alt), escape(source));
    // Opened on its own, the picture sets its own ground; within a page, `svg.takt` there has the
    // last word.
    let style = "svg.takt{color:#1b1e23;background:#fff}\
                 @media (prefers-color-scheme:dark){svg.takt{color:#e4e6ea;background:#15171b}}";
    format!(
        "<svg class=\"takt\" xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" aria-label=\"{alt}\" \
         width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {} {}\">\n<title>{alt}</title>\n<desc>{source}</desc>\n\
         <style>{style}</style>{}",
        WIDTH * FINE,
        height * FINE,
        body.replace("\"#010101\"", "\"currentColor\"")
    )
}

//! The live view of a watch as a picture: draws what a run directory's `watch.json` tells, and
//! writes SVG on standard output.
//!
//! `cargo run -p takt-watch --example picture -- takt-runs/NAME/watch.json > docs/src/watch.svg`

use std::error::Error;
use std::fmt::Write;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Cell;
use ratatui::style::{Color, Modifier};
use takt_watch::Report;

const COLUMNS: u16 = 150;
const ROWS: u16 = 26;
/// Of one character.
const WIDTH: f64 = 8.4;
const HEIGHT: f64 = 18.0;
const BACK: &str = "#14161b";

fn colour(of: Color) -> &'static str {
    match of {
        Color::Green => "#7fc07a",
        Color::Yellow => "#d9b45b",
        Color::Red => "#e0606a",
        Color::DarkGray => "#7a8090",
        _ => "#d6d9df",
    }
}

fn style(cell: &Cell) -> (Color, bool, bool) {
    (cell.fg, cell.modifier.contains(Modifier::BOLD), cell.modifier.contains(Modifier::REVERSED))
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("the path of a watch.json is missing")?;
    let report: Report = serde_json::from_str(&std::fs::read_to_string(path)?)?;
    let mut terminal = Terminal::new(TestBackend::new(COLUMNS, ROWS))?;
    terminal.draw(|frame| takt_watch::screen::draw(frame, &report))?;
    let buffer = terminal.backend().buffer();
    let (width, height) = (f64::from(COLUMNS) * WIDTH + 24.0, f64::from(ROWS) * HEIGHT + 16.0);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         font-family=\"DejaVu Sans Mono, Liberation Mono, monospace\" font-size=\"14\">\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"{BACK}\"/>\n"
    );
    for (row, cells) in (0_u16..).zip(buffer.content().chunks(usize::from(COLUMNS))) {
        let y = f64::from(row + 1) * HEIGHT;
        let mut at = 0_u16;
        for part in cells.chunk_by(|a, b| style(a) == style(b)) {
            let text: String = part.iter().map(Cell::symbol).collect();
            let (x, length) = (12.0 + f64::from(at) * WIDTH, part.len() as f64 * WIDTH);
            at += part.len() as u16;
            let (front, bold, reversed) = style(&part[0]);
            let mut front = colour(front);
            if reversed {
                let top = y - 13.5;
                writeln!(
                    svg,
                    "<rect x=\"{x:.1}\" y=\"{top:.1}\" width=\"{length:.1}\" height=\"{HEIGHT}\" fill=\"{front}\"/>"
                )?;
                front = BACK;
            }
            if !text.trim().is_empty() {
                let weight = if bold { " font-weight=\"bold\"" } else { "" };
                writeln!(
                    svg,
                    "<text x=\"{x:.1}\" y=\"{y}\" fill=\"{front}\"{weight} textLength=\"{length:.1}\" \
                     lengthAdjust=\"spacingAndGlyphs\" xml:space=\"preserve\">{}</text>",
                    escaped(&text)
                )?;
            }
        }
    }
    println!("{svg}</svg>");
    Ok(())
}

//! Late releases, a bar each: where the time from the planned release to the end of the job went.

use super::canvas::{CHARACTER, Canvas, Colour, Side, WIDTH};
use super::plot::{Entry, Plot, Swatch, legend, legend_height, mark};
use super::scale::Scale;
use super::{About, Picture};
use crate::words::{Unit, clean, shorten, time};

/// Height of a row: the bar, and below it its parts in words.
const ROW: f64 = 50.0;
/// Longest name beside a bar.
const NAME: usize = 24;
/// Room at the right for the length of each bar.
const LENGTH: f64 = 96.0;
/// Parts drawn of one bar. Further parts are drawn as one.
const PARTS: usize = 24;

/// A part of a late release.
#[derive(Clone, Debug, PartialEq)]
pub struct WindowPart {
    /// Cause of the time: the same words have the same colour.
    pub what: String,
    /// The thread or device behind it; empty if there is none.
    pub who: String,
    /// Its length.
    pub ns: f64,
}

/// A late release.
#[derive(Clone, Debug, PartialEq)]
pub struct WindowRow {
    /// Run and number of the release.
    pub name: String,
    /// Its parts, in the order in which they are drawn.
    pub parts: Vec<WindowPart>,
    /// Text shown if there are no parts.
    pub otherwise: String,
    /// Wake-up after the planned release.
    pub wake_ns: Option<f64>,
    /// End of the job after the planned release.
    pub end_ns: f64,
    /// Wake-ups later than this counted as late.
    pub wake_limit_ns: Option<f64>,
    /// Ends later than this counted as late.
    pub end_limit_ns: Option<f64>,
}

/// Assignment of letters and colours, the longest time first. Pictures of one series share it.
pub struct Kinds(Vec<String>);

impl Kinds {
    /// The kinds of these late releases.
    pub fn of(rows: &[WindowRow]) -> Self {
        let mut sums: Vec<(&str, f64)> = Vec::new();
        for part in rows.iter().flat_map(|row| &row.parts) {
            match sums.iter_mut().find(|(what, _)| *what == part.what) {
                Some((_, sum)) => *sum += part.ns,
                None => sums.push((&part.what, part.ns)),
            }
        }
        sums.sort_by(|a, b| b.1.total_cmp(&a.1));
        Self(sums.into_iter().map(|(what, _)| what.to_owned()).collect())
    }

    /// Letter and colour. The seventh and later kinds share the colour of writing; their letters
    /// distinguish them.
    fn look(&self, what: &str) -> (String, Colour) {
        let index = self.0.iter().position(|kind| kind == what).unwrap_or(self.0.len());
        let colour = if index < Colour::SERIES { Colour::Series(index) } else { Colour::Ink };
        // After Z come A1, B1, ...
        let letter = char::from(b'A' + (index % 26) as u8);
        (if index < 26 { letter.to_string() } else { format!("{letter}{}", index / 26) }, colour)
    }
}

/// Late releases as bars, stacked from their parts.
pub fn windows(about: About<'_>, unit: Unit, rows: &[WindowRow], kinds: &Kinds) -> Picture {
    let names: Vec<String> = rows.iter().map(|row| shorten(&clean(&row.name), NAME)).collect();
    let longest = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let left = (longest as f64 * CHARACTER + 16.0).max(60.0);
    let high = rows.iter().map(extent).fold(0.0, f64::max);
    let scale = Scale::linear(high);
    let entries = legend_entries(rows, kinds, &scale);
    let top = legend_height(&entries, left) + 6.0;
    let bottom = top + ROW * rows.len().max(1) as f64 + 4.0;
    let svg = Canvas::picture(bottom + 46.0, about.alt, about.source, |canvas| {
        let plot = Plot { canvas, left, right: f64::from(WIDTH) - LENGTH, top, bottom };
        legend(canvas, &entries, left, 0.0);
        let axis = format!("Time since the planned release ({})", unit.sign());
        plot.level_axis(&scale, &axis, |v| mark(unit.of_ns(v)));
        plot.frame();
        for (index, (row, name)) in rows.iter().zip(&names).enumerate() {
            let from = top + 4.0 + ROW * index as f64;
            canvas.text(name, (left - 9.0, from + 13.0), Side::Left, Colour::Ink);
            canvas.text(&time(row.end_ns), (plot.right + 8.0, from + 13.0), Side::Right, Colour::Ink);
            draw(&plot, &scale, row, kinds, from);
        }
        if rows.is_empty() {
            let middle = ((plot.left + plot.right) / 2.0, (top + bottom) / 2.0);
            canvas.text("no late releases", middle, Side::Middle, Colour::Ink);
        }
    });
    (svg, Vec::new())
}

/// Extent of a row: the parts of a damaged file may be longer than the whole.
fn extent(row: &WindowRow) -> f64 {
    let parts: f64 = row.parts.iter().map(|part| part.ns).sum();
    parts.max(row.end_ns).max(row.wake_ns.unwrap_or(0.0))
}

fn legend_entries(rows: &[WindowRow], kinds: &Kinds, scale: &Scale) -> Vec<Entry> {
    let entry = |what: &String| {
        let (letter, colour) = kinds.look(what);
        (format!("{letter}  {}", shorten(&clean(what), 60)), colour, Swatch::Tint)
    };
    let used = |what: &&String| rows.iter().flat_map(|row| &row.parts).any(|part| part.what == **what);
    let mut entries: Vec<Entry> = kinds.0.iter().filter(used).take(PARTS).map(entry).collect();
    if rows.iter().any(|row| row.wake_ns.is_some()) {
        entries.push(("wake-up".to_owned(), Colour::Ink, Swatch::Line));
    }
    let limit = |name: &str, limits: Vec<Option<f64>>| {
        let mut limits: Vec<f64> = limits.into_iter().flatten().filter(|limit| scale.holds(*limit)).collect();
        limits.sort_by(f64::total_cmp);
        limits.dedup();
        match limits[..] {
            [] => None,
            [one] => Some(format!("{name} after {}", time(one))),
            _ => Some(format!("{name}, limit of the row")),
        }
    };
    let wake = limit("wake-up", rows.iter().map(|row| row.wake_limit_ns).collect());
    let end = limit("end", rows.iter().map(|row| row.end_limit_ns).collect());
    let limits: Vec<String> = [wake, end].into_iter().flatten().collect();
    if !limits.is_empty() {
        entries.push((format!("late from here: {}", limits.join(", ")), Colour::Deadline, Swatch::Dashed));
    }
    entries
}

fn draw(plot: &Plot<'_, '_>, scale: &Scale, row: &WindowRow, kinds: &Kinds, from: f64) {
    let canvas = plot.canvas;
    let x = |ns: f64| plot.x(scale, ns);
    let (top, bottom) = (from + 3.0, from + 23.0);
    let limits = [row.wake_limit_ns, row.end_limit_ns];
    // A limit beyond the axis would be drawn at its end, where it is not.
    let limits: Vec<f64> = limits.into_iter().flatten().filter(|limit| scale.holds(*limit)).collect();
    let mut lines: Vec<f64> = limits.iter().copied().chain(row.wake_ns).map(x).collect();
    lines.sort_by(f64::total_cmp);
    // The whole first: what no part accounts for stays empty within its frame.
    canvas.frame((x(0.0), top), (x(row.end_ns), bottom), Colour::Ink);
    let mut begin = 0.0;
    for (index, part) in row.parts.iter().enumerate() {
        let last = index + 1 == PARTS;
        let rest: f64 = row.parts[index..].iter().map(|part| part.ns).sum();
        let end = begin + if last { rest } else { part.ns };
        let (letter, colour) = kinds.look(&part.what);
        canvas.bar((x(begin), top), (x(end), bottom), colour, Swatch::TINT);
        canvas.frame((x(begin), top), (x(end), bottom), colour);
        if let Some(middle) = clear(x(begin), x(end), &lines, letter.len() as f64 * CHARACTER + 6.0) {
            canvas.text(&letter, (middle, (top + bottom) / 2.0), Side::Middle, Colour::Ink);
        }
        begin = end;
        if last {
            break;
        }
    }
    if let Some(wake) = row.wake_ns {
        canvas.line((x(wake), top - 3.0), (x(wake), bottom + 3.0), Colour::Ink, 2.0);
    }
    for limit in limits {
        plot.upright_deadline(scale, limit, from - 2.0, from + 28.0);
    }
    let available = ((plot.right - plot.left - 8.0) / CHARACTER) as usize;
    canvas.text(&words(row, kinds, available), (plot.left + 4.0, from + 36.0), Side::Right, Colour::Ink);
}

/// The middle of the widest room between two ends that no upright line crosses, where it is as wide
/// as is needed.
fn clear(begin: f64, end: f64, lines: &[f64], needed: f64) -> Option<f64> {
    let within = lines.iter().copied().filter(|line| *line > begin && *line < end);
    let mut widest = (0.0, begin);
    let mut from = begin;
    for to in within.chain([end]) {
        if to - from > widest.0 {
            widest = (to - from, (from + to) / 2.0);
        }
        from = to;
    }
    (widest.0 >= needed).then_some(widest.1)
}

/// Time that no part accounts for, where it is worth telling: a twentieth of the whole or more.
pub fn unaccounted_ns(end_ns: f64, parts_ns: f64) -> Option<f64> {
    Some(end_ns - parts_ns).filter(|rest| *rest > 0.0 && *rest >= end_ns / 20.0)
}

/// The parts in words, as many as there is room for.
fn words(row: &WindowRow, kinds: &Kinds, available: usize) -> String {
    if row.parts.is_empty() {
        return shorten(&clean(&row.otherwise), available);
    }
    let mut pieces: Vec<String> = Vec::new();
    let known = row.parts.iter().map(|part| part.ns).sum();
    pieces.extend(unaccounted_ns(row.end_ns, known).map(|ns| format!("not accounted for {}", time(ns))));
    pieces.extend(row.parts.iter().map(|part| {
        let who = shorten(&clean(&part.who), 32);
        let who = if who.is_empty() { who } else { format!(" ({who})") };
        format!("{} {}{who}", kinds.look(&part.what).0, time(part.ns))
    }));
    let mut text = String::new();
    for (index, piece) in pieces.iter().enumerate() {
        let left = pieces.len() - index;
        let more = format!(" · {left} more");
        let join = if text.is_empty() { "" } else { " · " };
        let length = [&text, join, piece].iter().map(|t| t.chars().count()).sum::<usize>();
        let reserve = if left > 1 { more.chars().count() } else { 0 };
        if length + reserve > available && !text.is_empty() {
            text += &more;
            break;
        }
        text += join;
        text += piece;
    }
    shorten(&text, available)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ABOUT: About<'static> = About { alt: "late releases", source: "R1" };

    fn part(what: &str, who: &str, ns: f64) -> WindowPart {
        WindowPart { what: what.to_owned(), who: who.to_owned(), ns }
    }

    fn row(parts: Vec<WindowPart>, end_ns: f64) -> WindowRow {
        WindowRow {
            name: "R1 release 7".to_owned(),
            parts,
            otherwise: "not recorded".to_owned(),
            wake_ns: Some(end_ns * 0.9),
            end_ns,
            wake_limit_ns: Some(100e3),
            end_limit_ns: Some(4e6),
        }
    }

    #[test]
    fn parts_are_named_in_the_legend_and_in_words() {
        let rows = [
            row(vec![part("timer fired late", "while a ran", 900e3), part("interrupt", "", 50e3)], 960e3),
            row(vec![part("interrupt", "eth0", 200e3)], 210e3),
            row(vec![], 150e3),
        ];
        let (svg, key) = windows(ABOUT, Unit::Micro, &rows, &Kinds::of(&rows));
        assert!(key.is_empty());
        for words in [
            "A  timer fired late",
            "B  interrupt",
            "A 900 µs (while a ran) · B 50 µs",
            "B 200 µs (eth0)",
            "not recorded",
            "late from here: wake-up after 100 µs",
            "Time since the planned release (µs)",
            "960 µs",
        ] {
            assert!(svg.contains(words), "{words} is missing from {svg}");
        }
        // The limit of 4 ms lies beyond the axis: neither drawn nor reported.
        assert!(!svg.contains("end after"));
    }

    #[test]
    fn colours_are_for_the_greatest_kinds_and_letters_for_all() {
        let names: Vec<String> = (0..30).map(|i| format!("kind {i}")).collect();
        let parts = names.iter().enumerate().map(|(i, name)| part(name, "", 1000.0 - i as f64)).collect();
        let kinds = Kinds::of(&[row(parts, 40e3)]);
        let looks: Vec<_> = names.iter().map(|name| kinds.look(name)).collect();
        assert_eq!(looks[0], ("A".to_owned(), Colour::Series(0)));
        assert_eq!(looks[6], ("G".to_owned(), Colour::Ink));
        assert_eq!(looks[26].0, "A1");
        let mut letters: Vec<_> = looks.iter().map(|look| &look.0).collect();
        letters.sort();
        letters.dedup();
        assert_eq!(letters.len(), 30);
    }

    #[test]
    fn what_no_part_accounts_for_is_reported() {
        let rows =
            [row(vec![part("execution", "", 10e3)], 470e3), row(vec![part("execution", "", 460e3)], 470e3)];
        let kinds = Kinds::of(&rows);
        assert_eq!(words(&rows[0], &kinds, 90), "not accounted for 460 µs · A 10 µs");
        assert_eq!(words(&rows[1], &kinds, 90), "A 460 µs");
    }

    #[test]
    fn letters_keep_clear_of_lines() {
        assert_eq!(clear(0.0, 100.0, &[], 14.0), Some(50.0));
        assert_eq!(clear(0.0, 100.0, &[40.0, 200.0], 14.0), Some(70.0));
        assert_eq!(clear(0.0, 20.0, &[10.0], 14.0), None);
    }

    proptest! {
        #[test]
        fn nothing_stands_outside_its_room(
            lengths in proptest::collection::vec(0.0f64..1e300, 0..40),
            who in any::<String>(),
            end in 0.0f64..1e300,
        ) {
            let parts = lengths.iter().enumerate().map(|(i, ns)| part(&format!("kind {i}"), &who, *ns)).collect();
            let rows = [row(parts, end)];
            let kinds = Kinds::of(&rows);
            prop_assert!(words(&rows[0], &kinds, 90).chars().count() <= 90);
            let (svg, _) = windows(ABOUT, Unit::Milli, &rows, &kinds);
            prop_assert!(svg.contains("R1 release 7") && !svg.contains("NaN"));
        }
    }
}

//! Errors that quote their input, cut to what a person reads.

/// Most characters of a quoted line: one with a mark below.
const LINE: usize = 160;
/// Most characters of any other line: lists of accepted keys are long.
const PROSE: usize = 4000;
/// Of a longer one, how many are kept before the place that is marked.
const BEFORE: usize = 40;
/// Most lines.
const LINES: usize = 40;

/// Most characters of a value that a message quotes.
pub const MAX_QUOTED_CHARS: usize = 80;
/// Of a longer one, how many are shown.
const SHOWN_CHARS: usize = 60;

/// A value as a message quotes it: of a long one the beginning, and how long it is.
pub fn quoted(value: &str) -> String {
    // Few values are long, and none is counted beyond what has to be said.
    if value.len() <= MAX_QUOTED_CHARS || value.chars().nth(MAX_QUOTED_CHARS).is_none() {
        return value.to_owned();
    }
    let shown: String = value.chars().take(SHOWN_CHARS).collect();
    format!("{shown}… ({} characters)", value.chars().count())
}

/// `message` with each line cut to what can be read, for errors that quote a line of a file: it may
/// be megabytes long. Where a line of blanks and carets below marks a place (as TOML's errors do),
/// the cut keeps that place.
pub fn shortened(message: &str) -> String {
    if message.len() <= LINE && message.lines().count() <= LINES {
        return message.to_owned();
    }
    let mut lines: Vec<&str> = message.lines().take(LINES + 1).collect();
    let more = lines.len() > LINES;
    lines.truncate(LINES);
    let mut shown: Vec<String> = Vec::with_capacity(lines.len());
    let mut at = 0;
    while let Some(line) = lines.get(at) {
        match lines.get(at + 1).and_then(|below| mark(below)) {
            Some((place, below)) => {
                // The quoted text begins after "12 | ", which has the width of "   | ".
                let head = line.find("| ").map_or(0, |bar| bar + 2);
                let from = place.saturating_sub(BEFORE).max(head);
                if from > head {
                    let kept: String = line.chars().take(head).collect();
                    shown.push(format!("{kept}…{}", cut(line, from, LINE)));
                    let mark: String = below.chars().take(head).collect();
                    shown.push(format!("{mark} {}", cut(below, from, LINE)));
                } else {
                    shown.push(cut(line, 0, LINE));
                    shown.push(cut(below, 0, LINE));
                }
                at += 2;
            }
            None => {
                shown.push(cut(line, 0, PROSE));
                at += 1;
            }
        }
    }
    if more {
        shown.push("…".to_owned());
    }
    shown.join("\n")
}

/// Where the first caret is, if this is a line that marks a place.
fn mark(line: &str) -> Option<(usize, &str)> {
    let carets = line.trim_start_matches([' ', '|', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9']);
    (carets.starts_with('^') && carets.trim_end().chars().all(|c| c == '^'))
        .then(|| (line.chars().count() - carets.chars().count(), line))
}

/// `most` characters of `line` from `from` on.
fn cut(line: &str, from: usize, most: usize) -> String {
    let mut rest = line.chars().skip(from);
    let kept: String = rest.by_ref().take(most).collect();
    match rest.count() {
        0 => kept,
        more => format!("{kept}… ({more} characters more)"),
    }
}

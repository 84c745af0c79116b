//! Errors that quote their input, cut to what a person reads.

use std::borrow::Cow;

use crate::hints::{Excerpt, explained, unknown, with_unit};

/// Most characters of a quoted line: one with a mark below.
const LINE: usize = 100;
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

/// Most characters of a word in a message: a name or a value that somebody gave.
const WORD_CHARS: usize = 100;
/// Most characters of a path, and of what stands in quotation marks, which may be a command.
const PATH_CHARS: usize = 256;

/// A line of prose with the values in it as [`quoted`]: those in quotation marks, and words.
fn brief(line: &str) -> String {
    let mut out = String::with_capacity(line.len().min(PROSE));
    let mut rest = line;
    while let Some(begin) = rest.find(|c: char| !c.is_whitespace()) {
        out.push_str(&rest[..begin]);
        rest = &rest[begin..];
        let end = in_marks(rest).unwrap_or_else(|| rest.find(char::is_whitespace).unwrap_or(rest.len()));
        let (word, behind) = rest.split_at(end);
        rest = behind;
        let most = if word.contains(['/', ' ']) { PATH_CHARS } else { WORD_CHARS };
        if word.len() <= most || word.chars().nth(most).is_none() {
            out.push_str(word);
            continue;
        }
        let core = word.trim_matches(|c: char| c.is_ascii_punctuation());
        match word.split_once(core).filter(|_| !core.is_empty()) {
            Some((before, after)) => out.extend([before, &quoted(core), after]),
            None => out.push_str(&quoted(word)),
        }
    }
    out + rest
}

/// End of a text in quotation marks that begins here, its mark included.
fn in_marks(text: &str) -> Option<usize> {
    let mark = text.chars().next().filter(|mark| matches!(mark, '`' | '"' | '\''))?;
    let behind = &text[1..];
    // An apostrophe within a word is no mark.
    let ends = |at: &usize| !behind[at + 1..].starts_with(char::is_alphanumeric);
    behind.match_indices(mark).map(|(at, _)| at).find(ends).map(|at| at + 2)
}

/// `message` with each line cut to what can be read, for errors that quote a line of a file: it may
/// be megabytes long. If a line of blanks and carets below marks a place (as TOML's errors do), the
/// cut keeps that place.
pub fn shortened(message: &str) -> String {
    let message: &str = &with_ways_out(message);
    let message: &str = &with_hints(message);
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
                shown.push(cut(&brief(line), 0, PROSE));
                at += 1;
            }
        }
    }
    if more {
        shown.push("…".to_owned());
    }
    shown.join("\n")
}

/// Parsers' messages for a file that nests too deeply, and words with the way out. None of Takt's
/// own files comes near any of these limits.
const NESTED: [(&str, &str); 3] = [
    ("recursion limit exceeded", "nested more than 128 levels deep; write fewer levels"),
    (
        "cannot recurse further; max recursion depth met",
        "nested more than 80 levels deep; write fewer levels",
    ),
    ("recursion limit", "a key with more than 80 parts between dots; write fewer"),
];

fn with_ways_out(message: &str) -> Cow<'_, str> {
    // As a line of its own, or before the place: a file may quote the same words.
    let replaced = |line: &str| {
        let nested =
            NESTED.iter().find(|(words, _)| line == *words || line.contains(&format!("{words} at line ")));
        nested.map(|(words, ours)| line.replacen(words, ours, 1))
    };
    match message.lines().any(|line| replaced(line).is_some()) {
        true => message
            .lines()
            .map(|line| replaced(line).unwrap_or_else(|| line.to_owned()))
            .collect::<Vec<_>>()
            .join("\n")
            .into(),
        false => message.into(),
    }
}

/// The sentence of a parser in a user's words, where it is one of those that need it.
fn with_hints(message: &str) -> Cow<'_, str> {
    let lines: Vec<&str> = message.lines().take(LINES).collect();
    let of_excerpt = lines.windows(3).enumerate().find_map(|(at, three)| {
        let (place, _) = mark(three[1])?;
        Some((at + 2, explained(three[2], Excerpt::new(three[0], place)?)?))
    });
    let of_line = || {
        let begins = |line: &str| line.find("unknown field `").or_else(|| line.find("unknown variant `"));
        lines.iter().enumerate().find_map(|(at, line)| {
            let (before, words) = line.split_at(begins(line)?);
            Some((at, format!("{before}{}", unknown(words, None)?)))
        })
    };
    let of_range = || lines.iter().enumerate().find_map(|(at, line)| Some((at, with_unit(line)?)));
    let Some((at, words)) = of_excerpt.or_else(of_line).or_else(of_range) else { return message.into() };
    let replaced =
        message.lines().enumerate().map(|(index, line)| if index == at { words.as_str() } else { line });
    replaced.collect::<Vec<_>>().join("\n").into()
}

/// Column of the first caret, if this is a line that marks a place.
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

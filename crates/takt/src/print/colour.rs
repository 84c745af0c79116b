//! Verdicts in colour. A pipe, a file and whoever sets `NO_COLOR` (no-color.org) get plain text.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::io::IsTerminal;
use std::sync::OnceLock;

const GREEN: &str = "\x1b[1;32m";
const YELLOW: &str = "\x1b[1;33m";
const RED: &str = "\x1b[1;31m";
const RESET: &str = "\x1b[0m";

/// Words that decide what somebody does next; the longer one first where one begins another.
const WORDS: [(&str, &str); 9] = [
    ("INCONCLUSIVE", YELLOW),
    ("NOT GRANTED", YELLOW),
    ("NOT TRACED", RED),
    ("NOT RUN", YELLOW),
    ("FAILED", RED),
    ("REFUSED", RED),
    ("VIOLATION", RED),
    ("FAIL", RED),
    ("PASS", GREEN),
];

/// Whether text for this stream is coloured.
fn wanted(is_terminal: bool, no_color: Option<&OsStr>, term: Option<&OsStr>) -> bool {
    // An empty NO_COLOR counts as none.
    is_terminal && no_color.is_none_or(OsStr::is_empty) && term.is_some_and(|term| term != "dumb")
}

fn on(stream: &impl IsTerminal) -> bool {
    let [no_color, term] = ["NO_COLOR", "TERM"].map(std::env::var_os);
    wanted(stream.is_terminal(), no_color.as_deref(), term.as_deref())
}

/// Text for standard output. JSON stays as it is: it is for programs, on a terminal as well.
pub fn for_stdout(text: &str) -> Cow<'_, str> {
    static ON: OnceLock<bool> = OnceLock::new();
    let is_json = text.starts_with(['{', '[']);
    if !is_json && *ON.get_or_init(|| on(&std::io::stdout())) { coloured(text) } else { text.into() }
}

/// Text for standard error.
pub fn for_stderr(text: &str) -> Cow<'_, str> {
    static ON: OnceLock<bool> = OnceLock::new();
    if *ON.get_or_init(|| on(&std::io::stderr())) { coloured(text) } else { text.into() }
}

/// Colours whole words.
fn coloured(text: &str) -> Cow<'_, str> {
    let (mut out, mut kept) = (String::new(), 0);
    let mut at = 0;
    while let Some(found) = text[at..].find(|c: char| c.is_ascii_uppercase()) {
        let start = at + found;
        let whole = !text[..start].ends_with(is_of_word);
        let word = WORDS.iter().find(|(word, _)| {
            text[start..].strip_prefix(word).is_some_and(|rest| !rest.starts_with(is_of_word))
        });
        // Past this word, whatever it is.
        let end = |from: usize| {
            text[from..].find(|c: char| !is_of_word(c)).map_or(text.len(), |length| from + length)
        };
        at = match word.filter(|_| whole) {
            Some((word, colour)) => {
                out.push_str(&text[kept..start]);
                out.push_str(colour);
                out.push_str(word);
                out.push_str(RESET);
                kept = start + word.len();
                kept
            }
            None => end(start),
        };
    }
    if kept == 0 {
        return text.into();
    }
    out.push_str(&text[kept..]);
    out.into()
}

fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_words_are_coloured_and_nothing_else_changes() {
        let text = "PASS: no PASSWORD of BYPASS_FAIL FAILED, ÄFAIL INCONCLUSIVE\nNOT GRANTED FAIL";
        let shown = coloured(text);
        assert_eq!(
            shown,
            "\x1b[1;32mPASS\x1b[0m: no PASSWORD of BYPASS_FAIL \x1b[1;31mFAILED\x1b[0m, ÄFAIL \
             \x1b[1;33mINCONCLUSIVE\x1b[0m\n\x1b[1;33mNOT GRANTED\x1b[0m \x1b[1;31mFAIL\x1b[0m"
        );
        let plain =
            [GREEN, YELLOW, RED, RESET].iter().fold(shown.into_owned(), |s, code| s.replace(code, ""));
        assert_eq!(plain, text);
        assert!(matches!(coloured("nothing HERE"), Cow::Borrowed(_)));
        assert_eq!(coloured(""), "");
    }

    #[test]
    fn only_terminals_that_want_it_get_colour() {
        let [none, empty, one] = [None, Some(OsStr::new("")), Some(OsStr::new("1"))];
        let [xterm, dumb] = ["xterm-256color", "dumb"].map(|term| Some(OsStr::new(term)));
        assert!(wanted(true, none, xterm) && wanted(true, empty, xterm));
        assert!(!wanted(true, one, xterm) && !wanted(true, none, dumb) && !wanted(true, none, none));
        assert!(!wanted(false, none, xterm));
    }
}
